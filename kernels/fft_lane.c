/*
 * The discrete Fourier transform of one lane. See fft_lane.h.
 *
 * A PASS over a factor r takes `m` r-point transforms of numbers that lie m * s apart, s of them
 * side by side, and multiplies by powers of the root of order r m: with length n = r m s, that root
 * is the s-th power of the table's, so one table of n roots serves all passes. The results go where
 * the next pass finds them in order; after the last they are in order.
 */
#include "kernels/fft_lane.h"

#include "base/base.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#if defined(__clang__)
#define FFT_VECTORISE _Pragma("clang loop vectorize(assume_safety)")
#else
#define FFT_VECTORISE _Pragma("GCC ivdep")
#endif

#define PI 3.14159265358979323846

/* ------------------------------------------------------------------------------ lengths */

/* Fours first: half as many passes as twos. 0: a prime factor is too large. */
static uint32_t factorise(int64_t n, uint32_t factor[FFT_FACTORS_MAX])
{
    uint32_t count = 0;

    for (; n % 4 == 0; n /= 4) {
        factor[count++] = 4;
    }
    for (uint32_t r = 2; r <= FFT_RADIX_MAX; r++) {
        for (; n % r == 0; n /= r) {
            factor[count++] = r;
        }
    }
    if (n != 1) {
        return 0;
    }
    if (count == 0) { /* length 1 */
        factor[count++] = 1;
    }
    return count;
}

static int64_t padded_length(int64_t n)
{
    uint32_t factor[FFT_FACTORS_MAX];
    int64_t length = 1;

    if (factorise(n, factor) != 0) {
        return 0;
    }
    while (length < 2 * n - 1) {
        length *= 2;
    }
    return length;
}

/* -------------------------------------------------------------------------------- roots */

/*
 * exp(-2 pi i j / n), 0 <= j < n. In eighths of a turn that are counted exactly, so the angle is at
 * most pi / 4.
 */
static void root_of_unity(int64_t j, int64_t n, double *re, double *im)
{
    __int128 turn  = (__int128)8 * j; /* of 8 n */
    __int128 one   = n;
    double sign_re = 1;
    double sign_im = -1;
    double c, s, angle;
    bool swapped;

    if (turn > 4 * one) {
        turn    = 8 * one - turn;
        sign_im = 1;
    }
    if (turn > 2 * one) {
        turn    = 4 * one - turn;
        sign_re = -1;
    }
    swapped = turn > one;
    if (swapped) {
        turn = 2 * one - turn;
    }
    angle = PI / 4 * ((double)turn / (double)n);
    c     = cos(angle);
    s     = sin(angle);
    *re   = sign_re * (swapped ? s : c);
    *im   = sign_im * (swapped ? c : s);
}

static void roots_fill(const struct fft_parts *root, int64_t n)
{
    for (int64_t j = 0; j < n; j++) {
        root_of_unity(j, n, &root->re[j], &root->im[j]);
    }
}

/* ------------------------------------------------------------------------------- passes */

/*
 * One r-point transform of `s` numbers side by side: x[j] are r rows of them, `x_step` apart, y[k]
 * likewise.
 */
struct pass {
    const double *root_re;
    const double *root_im;
    int64_t n; /* of the whole transform, and of the table */
    int64_t s;
    int64_t x_step;
    uint32_t r;
};

static void rows_2(const struct pass *pass, int64_t twiddle, const double *xr,
                   const double *xi, double *yr, double *yi)
{
    double wr    = pass->root_re[twiddle];
    double wi    = pass->root_im[twiddle];
    int64_t s    = pass->s;
    int64_t step = pass->x_step;

    FFT_VECTORISE
    for (int64_t q = 0; q < s; q++) {
        double dr = xr[q] - xr[q + step];
        double di = xi[q] - xi[q + step];

        yr[q]     = xr[q] + xr[q + step];
        yi[q]     = xi[q] + xi[q + step];
        yr[q + s] = dr * wr - di * wi;
        yi[q + s] = dr * wi + di * wr;
    }
}

static void rows_4(const struct pass *pass, int64_t twiddle, const double *xr,
                   const double *xi, double *yr, double *yi)
{
    double w1r = pass->root_re[twiddle], w1i = pass->root_im[twiddle];
    double w2r = pass->root_re[2 * twiddle], w2i = pass->root_im[2 * twiddle];
    double w3r = pass->root_re[3 * twiddle], w3i = pass->root_im[3 * twiddle];
    int64_t s    = pass->s;
    int64_t step = pass->x_step;

    FFT_VECTORISE
    for (int64_t q = 0; q < s; q++) {
        double ar = xr[q] + xr[q + 2 * step], ai = xi[q] + xi[q + 2 * step];
        double br = xr[q] - xr[q + 2 * step], bi = xi[q] - xi[q + 2 * step];
        double cr = xr[q + step] + xr[q + 3 * step], ci = xi[q + step] + xi[q + 3 * step];
        double dr = xi[q + step] - xi[q + 3 * step], di = xr[q + 3 * step] - xr[q + step];
        double er = br + dr, ei = bi + di; /* d is the difference times -i */
        double fr = ar - cr, fi = ai - ci;
        double gr = br - dr, gi = bi - di;

        yr[q]         = ar + cr;
        yi[q]         = ai + ci;
        yr[q + s]     = er * w1r - ei * w1i;
        yi[q + s]     = er * w1i + ei * w1r;
        yr[q + 2 * s] = fr * w2r - fi * w2i;
        yi[q + 2 * s] = fr * w2i + fi * w2r;
        yr[q + 3 * s] = gr * w3r - gi * w3i;
        yi[q + 3 * s] = gr * w3i + gi * w3r;
    }
}

/* Any other factor, by the definition. */
static void rows_any(const struct pass *pass, int64_t twiddle, const double *xr,
                     const double *xi, double *yr, double *yi)
{
    int64_t s     = pass->s;
    int64_t r     = pass->r;
    int64_t nth   = pass->n / r; /* step in the table of the root of order r */
    int64_t shift = 0;           /* twiddle * k */

    for (int64_t k = 0; k < r; k++, shift += twiddle) {
        double *outr = yr + k * s;
        double *outi = yi + k * s;

        memcpy(outr, xr, (size_t)s * sizeof(*outr));
        memcpy(outi, xi, (size_t)s * sizeof(*outi));
        for (int64_t j = 1; j < r; j++) {
            double wr        = pass->root_re[j * k % r * nth];
            double wi        = pass->root_im[j * k % r * nth];
            const double *ar = xr + j * pass->x_step;
            const double *ai = xi + j * pass->x_step;

            FFT_VECTORISE
            for (int64_t q = 0; q < s; q++) {
                outr[q] += ar[q] * wr - ai[q] * wi;
                outi[q] += ar[q] * wi + ai[q] * wr;
            }
        }
        if (shift != 0) {
            double wr = pass->root_re[shift];
            double wi = pass->root_im[shift];

            FFT_VECTORISE
            for (int64_t q = 0; q < s; q++) {
                double re = outr[q];

                outr[q] = re * wr - outi[q] * wi;
                outi[q] = re * wi + outi[q] * wr;
            }
        }
    }
}

static void pass_run(const struct pass *pass, const struct fft_parts *x,
                     const struct fft_parts *y)
{
    int64_t m = pass->x_step / pass->s;

    for (int64_t p = 0; p < m; p++) {
        int64_t from    = p * pass->s;
        int64_t to      = from * pass->r;
        int64_t twiddle = p * pass->s;

        (pass->r == 4 ? rows_4
         : pass->r == 2
             ? rows_2
             : rows_any)(pass, twiddle, x->re + from, x->im + from, y->re + to, y->im + to);
    }
}

static void swap_parts(struct fft_parts *a, struct fft_parts *b)
{
    struct fft_parts kept = *a;

    *a = *b;
    *b = kept;
}

/*
 * data = the transform of data, of the length that `factor` and `root` are for. The two buffers may
 * change places.
 */
static void passes_run(struct fft_lane *lane, int64_t length)
{
    int64_t s = 1;

    for (uint32_t i = 0; i < lane->factor_count; i++) {
        struct pass pass = {.root_re = lane->root.re,
                            .root_im = lane->root.im,
                            .n       = length,
                            .s       = s,
                            .x_step  = length / lane->factor[i],
                            .r       = lane->factor[i]};

        pass_run(&pass, &lane->data, &lane->work);
        swap_parts(&lane->data, &lane->work);
        s *= lane->factor[i];
    }
}

/* ---------------------------------------------------------------------------- Bluestein */

static void multiply(const struct fft_parts *x, const struct fft_parts *by, int64_t n)
{
    FFT_VECTORISE
    for (int64_t i = 0; i < n; i++) {
        double re = x->re[i];

        x->re[i] = re * by->re[i] - x->im[i] * by->im[i];
        x->im[i] = re * by->im[i] + x->im[i] * by->re[i];
    }
}

static struct fft_parts swapped(const struct fft_parts *x)
{
    return (struct fft_parts){x->im, x->re};
}

/*
 * jk = (j^2 + k^2 - (k - j)^2) / 2: a convolution with the conjugate chirp, between two
 * multiplications with the chirp.
 */
static void chirp_run(struct fft_lane *lane)
{
    size_t rest = (size_t)(lane->padded - lane->n) * sizeof(double);

    multiply(&lane->data, &lane->chirp, lane->n);
    memset(lane->data.re + lane->n, 0, rest);
    memset(lane->data.im + lane->n, 0, rest);
    passes_run(lane, lane->padded);
    multiply(&lane->data, &lane->filter, lane->padded);
    lane->data = swapped(&lane->data);
    lane->work = swapped(&lane->work);
    passes_run(lane, lane->padded);
    lane->data = swapped(&lane->data);
    lane->work = swapped(&lane->work);
    multiply(&lane->data, &lane->chirp, lane->n);
}

static void chirp_init(struct fft_lane *lane)
{
    int64_t n      = lane->n;
    int64_t length = lane->padded;
    int64_t at     = 0; /* j^2 mod 2 n */

    memset(lane->data.re, 0, (size_t)length * sizeof(double));
    memset(lane->data.im, 0, (size_t)length * sizeof(double));
    for (int64_t j = 0; j < n; j++) {
        root_of_unity(at, 2 * n, &lane->chirp.re[j], &lane->chirp.im[j]);
        lane->data.re[j]                     = lane->chirp.re[j];
        lane->data.im[j]                     = -lane->chirp.im[j];
        lane->data.re[(length - j) % length] = lane->chirp.re[j];
        lane->data.im[(length - j) % length] = -lane->chirp.im[j];
        at                                   = (at + 2 * j + 1) % (2 * n);
    }
    passes_run(lane, length);
    for (int64_t j = 0; j < length; j++) {
        lane->filter.re[j] = lane->data.re[j] / (double)length;
        lane->filter.im[j] = lane->data.im[j] / (double)length;
    }
}

/* -------------------------------------------------------------------------------- lanes */

static struct fft_parts parts_take(char **io_memory, int64_t n)
{
    uint64_t bytes         = pl_round_up((uint64_t)n * sizeof(double), 64);
    struct fft_parts parts = {(double *)(void *)*io_memory,
                              (double *)(void *)(*io_memory + bytes)};

    *io_memory += 2 * bytes;
    return parts;
}

static uint64_t parts_bytes(int64_t n)
{
    return 2 * pl_round_up((uint64_t)n * sizeof(double), 64);
}

uint64_t fft_lane_bytes(int64_t n)
{
    int64_t padded = padded_length(n);

    return padded == 0 ? 3 * parts_bytes(n) : 4 * parts_bytes(padded) + parts_bytes(n);
}

void fft_lane_init(struct fft_lane *lane, int64_t n, void *memory)
{
    char *at       = memory;
    int64_t padded = padded_length(n);
    int64_t length = padded == 0 ? n : padded;

    *lane = (struct fft_lane){.n = n, .padded = padded};

    lane->factor_count = factorise(length, lane->factor);
    lane->root         = parts_take(&at, length);
    lane->data         = parts_take(&at, length);
    lane->work         = parts_take(&at, length);
    roots_fill(&lane->root, length);
    if (padded != 0) {
        lane->filter = parts_take(&at, length);
        lane->chirp  = parts_take(&at, n);
        chirp_init(lane);
    }
}

void fft_lane_run(struct fft_lane *lane, int inverse)
{
    if (inverse) {
        lane->data = swapped(&lane->data);
        lane->work = swapped(&lane->work);
    }
    if (lane->padded == 0) {
        passes_run(lane, lane->n);
    } else {
        chirp_run(lane);
    }
    if (inverse) {
        lane->data = swapped(&lane->data);
        lane->work = swapped(&lane->work);
    }
}
