/*
 * The discrete Fourier transform of one lane, on a CPU, in f64.
 *
 * Of the libraries that Debian 12 and Ubuntu 24.04 package, FFTW is GPL, kissfft comes in f32 and
 * as a shared object alone, and SLEEF's takes powers of 2: none serves f64, any length, and a
 * relocatable tree. What is needed fits a page.
 *
 * METHODS. A length whose prime factors are at most FFT_RADIX_MAX: Stockham's self-sorting passes,
 * one a factor, between two buffers. Any other length: Bluestein's chirp, a convolution of a power
 * of 2 (Bluestein, IEEE Trans. Audio Electroacoust. 18, 1970). Both take O(n log n). Roots of unity
 * come from angles of at most pi / 4, each to the last place but one, so that the error grows like
 * log n (Higham, Accuracy and Stability of Numerical Algorithms, 2002, theorem 24.2).
 *
 * Real and imaginary parts are apart: the inverse transform is this one with the parts swapped,
 * before and after.
 */
#ifndef KERNELS_FFT_LANE_H
#define KERNELS_FFT_LANE_H

#include <stdint.h>

#define FFT_RADIX_MAX   31
#define FFT_FACTORS_MAX 64

/* n numbers; the parts are n doubles each. */
struct fft_parts {
    double *re;
    double *im;
};

struct fft_lane {
    int64_t n;
    int64_t padded; /* length of the convolution; 0: n is done by passes */
    uint32_t factor_count;
    uint32_t factor[FFT_FACTORS_MAX]; /* of n, or of padded */
    struct fft_parts root;            /* exp(-2 pi i j / length) */
    struct fft_parts chirp;           /* exp(-pi i j^2 / n), Bluestein's only */
    struct fft_parts filter;          /* transform of the conjugate chirp / padded */
    struct fft_parts data;            /* what goes in and comes out: the first n */
    struct fft_parts work;
};

/* Bytes of memory that fft_lane_init() lays out. */
uint64_t fft_lane_bytes(int64_t n);
/* memory: fft_lane_bytes(n), aligned to 64, used until the last transform. */
void fft_lane_init(struct fft_lane *lane, int64_t n, void *memory);
/* data = the transform of data, without a factor. inverse: the conjugate transform. */
void fft_lane_run(struct fft_lane *lane, int inverse);

#endif
