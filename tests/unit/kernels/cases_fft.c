/*
 * Cases of the Fourier transforms, by the definition.
 *
 * The bound is Higham's (Accuracy and Stability of Numerical Algorithms, 2002, theorem 24.2): |got
 * - want| is at most a small multiple of log2(n) eps |want|, norms of the whole transform; and no
 * element is farther off than the norm of all.
 */
#include "cases_int.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/test.h"

#define PI_LONG 3.141592653589793238462643383279503L

#define LENGTH_MAX 256
#define AXES_MAX   3

/*
 * exp(sign 2 pi i j / n). Sums over all pairs want each of them often, so those of one length an
 * axis are kept.
 */
static long double complex unit(uint32_t axis, int64_t j, int64_t n, int sign)
{
    static int64_t length[AXES_MAX];
    static long double complex root[AXES_MAX][LENGTH_MAX];

    ASSERT_TRUE(n <= LENGTH_MAX);
    for (int64_t i = 0; length[axis] != n && i < n; i++) {
        long double angle   = 2 * PI_LONG * (long double)i / (long double)n;
        long double part[2] = {cosl(angle), sinl(angle)};

        memcpy(&root[axis][i], part, sizeof(part)); /* CMPLX is missing in clang 14 */
    }
    length[axis] = n;
    return sign > 0 ? root[axis][j % n] : conjl(root[axis][j % n]);
}

/* The last `axes` dimensions: what is transformed together. */
struct block {
    uint32_t axes;
    int64_t dim[AXES_MAX];
    int64_t count;
};

static struct block block_of(const struct trial *trial, uint32_t index)
{
    const struct kernel_arg *arg = &trial->array[index].arg;
    struct block block           = {.axes = (uint32_t)trial->scalar[0].i, .count = 1};

    for (uint32_t d = 0; d < block.axes; d++) {
        block.dim[d] = arg->dim[arg->ndim - block.axes + d];
        block.count *= block.dim[d];
    }
    return block;
}

/* exp(sign 2 pi i (k0 j0 / n0 + ..)), of flat positions in arrays of two shapes. */
static long double complex kernel_at_points(const struct block *n,
                                            const struct block *j_shape, int64_t j,
                                            const struct block *k_shape, int64_t k,
                                            int sign)
{
    long double complex w = 1;

    for (uint32_t d = n->axes; d-- > 0;) {
        w *= unit(d, (j % j_shape->dim[d]) * (k % k_shape->dim[d]), n->dim[d], sign);
        j /= j_shape->dim[d];
        k /= k_shape->dim[d];
    }
    return w;
}

static double bound_of(const struct trial *trial, const struct block *n, double squares)
{
    double logarithm = log2((double)n->count) + 3;

    return 16 * logarithm * trial_epsilon(trial->array[0].arg.dtype) * sqrt(squares);
}

/* ----------------------------------------------------------------------------- building */

/* Lengths that are powers of 2, products of small primes, and primes. */
static int64_t length(struct trial *trial, int64_t most)
{
    static const int64_t lengths[] = {1,  2,   3,   4,   5,   7,   8,   9,
                                      12, 16,  25,  30,  31,  32,  37,  64,
                                      74, 101, 120, 128, 210, 211, 243, 256};
    int64_t n;

    do {
        n = lengths[trial_int(trial, 0, (int64_t)PL_COUNT(lengths) - 1)];
    } while (n > most);
    return n;
}

static uint32_t build_dims(struct trial *trial, int64_t axes, int64_t dim[4])
{
    uint32_t ndim = 0;
    int64_t most  = axes == 1 ? (trial->large ? 256 : 64) : axes == 2 ? 16 : 7;

    if (trial_int(trial, 0, 1)) {
        dim[ndim++] = trial_int(trial, 1, 4);
    }
    for (int64_t i = 0; i < axes; i++) {
        dim[ndim++] = length(trial, most);
    }
    return ndim;
}

void case_build_fft(struct trial *trial)
{
    int64_t axes = trial_int(trial, 0, 1) ? 1 : trial_int(trial, 2, 3);
    int64_t dim[4];
    uint32_t ndim = build_dims(trial, axes, dim);

    trial_out(trial);
    (void)trial_array(trial, KERNEL_IN, trial->dtype, ndim, dim, -5, 5);
    trial_i64(trial, axes);
    trial_prepare(trial);
}

/* x is the transform of random real numbers, rounded: it must have the symmetry that is taken for granted. */
void case_build_irfft(struct trial *trial)
{
    int64_t axes  = trial_int(trial, 0, 1) ? 1 : trial_int(trial, 2, 3);
    uint32_t pair = trial->dtype == PL_F32 ? PL_C64 : PL_C128;
    int64_t dim[4];
    uint32_t ndim = build_dims(trial, axes, dim);
    int64_t n     = dim[ndim - 1];
    struct block x, y;
    double *real;

    dim[ndim - 1] = n / 2 + 1;
    trial_out(trial);
    (void)trial_array(trial, KERNEL_IN, pair, ndim, dim, 0, 0);
    trial_i64(trial, axes);
    trial_i64(trial, n % 2 == 0 && trial_int(trial, 0, 1) ? 0 : n);
    trial_prepare(trial);
    x    = block_of(trial, 1);
    y    = block_of(trial, 0);
    real = calloc((size_t)y.count, sizeof(*real));
    ASSERT_NOT_NULL(real);
    for (int64_t first = 0, g = 0; first < trial_elements(trial, 1);
         first += x.count, g++) {
        for (int64_t j = 0; j < y.count; j++) {
            real[j] = (double)trial_int(trial, -1000, 1000) / 200;
        }
        for (int64_t k = 0; k < x.count; k++) {
            long double complex sum = 0;

            for (int64_t j = 0; j < y.count; j++) {
                sum += real[j] * kernel_at_points(&y, &y, j, &x, k, -1);
            }
            trial_set_z(trial, 1, first + k, (double complex)sum);
        }
    }
    free(real);
}

/* ---------------------------------------------------------------------------- expecting */

void case_expect_fft(struct trial *trial)
{
    bool inverse   = strcmp(trial->function->name, "ifft") == 0;
    struct block x = block_of(trial, 1);
    struct block y = block_of(trial, 0);
    double scale   = inverse ? 1 / (double)x.count : 1;

    for (int64_t g = 0; g < trial_elements(trial, 1) / x.count; g++) {
        double squares = 0;

        for (int64_t j = 0; j < x.count; j++) {
            squares += pow(cabs(trial_get_z(trial, 1, g * x.count + j)), 2);
        }
        for (int64_t k = 0; k < y.count; k++) {
            long double complex sum = 0;

            for (int64_t j = 0; j < x.count; j++) {
                sum += (long double complex)trial_get_z(trial, 1, g * x.count + j) *
                       kernel_at_points(&x, &x, j, &y, k, inverse ? 1 : -1);
            }
            trial_want_z(trial, 0, g * y.count + k, scale * (double complex)sum,
                         scale * bound_of(trial, &x, squares * (double)x.count));
        }
    }
}

/* The elements that x lacks are the conjugates of those at the opposite point. */
static double complex full_at(const struct trial *trial, const struct block *x,
                              const struct block *y, int64_t first, int64_t k)
{
    int64_t at[3] = {0, 0, 0};
    int64_t flat  = 0;
    bool opposite;

    for (uint32_t d = y->axes; d-- > 0;) {
        at[d] = k % y->dim[d];
        k /= y->dim[d];
    }
    opposite = at[y->axes - 1] >= x->dim[x->axes - 1];
    for (uint32_t d = 0; d < y->axes; d++) {
        flat = flat * x->dim[d] + (opposite ? (y->dim[d] - at[d]) % y->dim[d] : at[d]);
    }
    return opposite ? conj(trial_get_z(trial, 1, first + flat))
                    : trial_get_z(trial, 1, first + flat);
}

void case_expect_irfft(struct trial *trial)
{
    struct block x = block_of(trial, 1);
    struct block y = block_of(trial, 0);

    for (int64_t g = 0; g < trial_elements(trial, 0) / y.count; g++) {
        double squares = 0;

        for (int64_t k = 0; k < y.count; k++) {
            squares += pow(cabs(full_at(trial, &x, &y, g * x.count, k)), 2);
        }
        for (int64_t j = 0; j < y.count; j++) {
            long double complex sum = 0;

            for (int64_t k = 0; k < y.count; k++) {
                sum += (long double complex)full_at(trial, &x, &y, g * x.count, k) *
                       kernel_at_points(&y, &y, j, &y, k, 1);
            }
            trial_want(trial, 0, g * y.count + j,
                       creal((double complex)sum) / (double)y.count,
                       bound_of(trial, &y, squares / (double)y.count));
        }
    }
}
