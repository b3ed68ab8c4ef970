/*
 * References are written one element at a time, without the tools of kernels/: what they share with
 * what they test is only the definition.
 *
 * Error bounds. eps is half the distance from 1 to the next number of the output's dtype. One
 * correctly rounded operation has eps |want|; functions of the math libraries get 8 eps |want|;
 * sums, products and norms of n terms get n + 8 times eps times the sum of the terms' magnitudes,
 * which is the classical bound for any order of summation. Where the catalogue computes in a wider
 * type and rounds once, the n eps are those of the wider type. Bounds of complex numbers are on the
 * pair: an arithmetic operation has 8 eps of the result's length, a sum n + 8 eps of the sum of
 * lengths.
 */
#include "cases_int.h"

#include <math.h>
#include <stdlib.h>

#define NUMBERS  KERNEL_NUMBERS
#define REALS    KERNEL_REALS
#define FLOATS   KERNEL_FLOATS
#define PAIRS    KERNEL_PAIRS
#define INEXACT  (FLOATS | PAIRS)
#define D(d)     KERNEL_DTYPE(PL_##d)
#define FOURS    (KERNEL_SINGLES | D(I32) | D(I64))
#define LOGICALS (KERNEL_NUMBERS | D(BOOL))
#define CASTS    (LOGICALS | D(I8) | D(U8) | D(I16) | D(U16) | D(U32) | D(U64))
#define STORAGE  (D(BOOL) | D(F16) | D(F32) | D(F64) | D(I64) | D(C64) | D(C128))

/* Wraps to the width of the dtype. */
int64_t case_wrapped(uint32_t dtype, uint64_t value)
{
    switch (dtype) {
    case PL_BOOL:
        return value != 0;
    case PL_I8:
        return (int8_t)value;
    case PL_U8:
        return (uint8_t)value;
    case PL_I16:
        return (int16_t)value;
    case PL_U16:
        return (uint16_t)value;
    case PL_I32:
        return (int32_t)value;
    case PL_U32:
        return (uint32_t)value;
    default:
        return (int64_t)value;
    }
}

/* A value that is exact but for one rounding. */
void case_want_rounded(struct trial *trial, uint32_t index, int64_t flat, double want,
                       double eps_count)
{
    double eps = trial_epsilon(trial->array[index].arg.dtype);

    trial_want(trial, index, flat, want,
               eps_count * eps * fabs(want) + trial_tiny(trial->array[index].arg.dtype));
}

void case_want_complex(struct trial *trial, uint32_t index, int64_t flat,
                       double complex want, double eps_count)
{
    uint32_t dtype = trial->array[index].arg.dtype;

    trial_want_z(trial, index, flat, want,
                 eps_count * trial_epsilon(dtype) * cabs(want) + trial_tiny(dtype));
}

/* ----------------------------------------------------------------------------- the list */

static const struct kernel_case cases[] = {
    {"noop", D(F32), 0, case_build_noop, case_expect_nothing},
    {"touch", STORAGE, 0, case_build_touch, case_expect_nothing},
    {"fill", CASTS, CASE_SAME_BITS, case_build_fill, case_expect_fill},
    {"fill_int", CASTS, CASE_SAME_BITS, case_build_fill_int, case_expect_fill_int},
    {"copy", STORAGE, CASE_SAME_BITS, case_build_copy, case_expect_copy},
    {"cast", CASTS, CASE_SAME_BITS, case_build_cast, case_expect_cast},
    {"arange", NUMBERS, CASE_SAME_BITS, case_build_arange, case_expect_arange},
    {"random_uniform", REALS, CASE_SAME_BITS, case_build_random, case_expect_random},
    {"random_normal", FLOATS, 0, case_build_random, case_expect_random},
    {"negative", NUMBERS, CASE_SAME_BITS, case_build_unary, case_expect_unary},
    {"abs", NUMBERS, CASE_SAME_BITS, case_build_unary, case_expect_part},
    {"sign", REALS, CASE_SAME_BITS, case_build_unary, case_expect_unary},
    {"square", NUMBERS, CASE_SAME_BITS, case_build_unary, case_expect_unary},
    {"sqrt", INEXACT, CASE_SAME_BITS, case_build_unary_positive, case_expect_unary},
    {"reciprocal", INEXACT, CASE_SAME_BITS, case_build_unary_positive, case_expect_unary},
    {"exp", INEXACT, 0, case_build_unary_small, case_expect_unary},
    {"log", INEXACT, 0, case_build_unary_positive, case_expect_unary},
    {"sin", FLOATS, 0, case_build_unary_small, case_expect_unary},
    {"cos", FLOATS, 0, case_build_unary_small, case_expect_unary},
    {"tanh", FLOATS, 0, case_build_unary_small, case_expect_unary},
    {"sigmoid", FLOATS, 0, case_build_unary_small, case_expect_unary},
    {"floor", FLOATS, CASE_SAME_BITS, case_build_unary, case_expect_unary},
    {"ceil", FLOATS, CASE_SAME_BITS, case_build_unary, case_expect_unary},
    {"conj", PAIRS, CASE_SAME_BITS, case_build_unary, case_expect_unary},
    {"real", PAIRS, CASE_SAME_BITS, case_build_unary, case_expect_part},
    {"imag", PAIRS, CASE_SAME_BITS, case_build_unary, case_expect_part},
    {"not", LOGICALS, 0, case_build_not, case_expect_not},
    {"add", NUMBERS, CASE_SAME_BITS, case_build_binary, case_expect_binary},
    {"subtract", NUMBERS, CASE_SAME_BITS, case_build_binary, case_expect_binary},
    {"multiply", NUMBERS, CASE_SAME_BITS, case_build_binary, case_expect_binary},
    {"divide", NUMBERS, CASE_SAME_BITS, case_build_binary, case_expect_binary},
    {"minimum", REALS, CASE_SAME_BITS, case_build_binary, case_expect_binary},
    {"maximum", REALS, CASE_SAME_BITS, case_build_binary, case_expect_binary},
    {"power", REALS, 0, case_build_power, case_expect_binary},
    {"equal", NUMBERS, 0, case_build_compare, case_expect_compare},
    {"less", REALS, 0, case_build_compare, case_expect_compare},
    {"less_equal", REALS, 0, case_build_compare, case_expect_compare},
    {"logical_and", LOGICALS, 0, case_build_compare, case_expect_compare},
    {"logical_or", LOGICALS, 0, case_build_compare, case_expect_compare},
    {"add_scalar", NUMBERS, CASE_SAME_BITS, case_build_scalar, case_expect_scalar},
    {"multiply_scalar", NUMBERS, CASE_SAME_BITS, case_build_scalar, case_expect_scalar},
    {"axpy", NUMBERS, 0, case_build_into, case_expect_into},
    {"add_into", NUMBERS, CASE_SAME_BITS, case_build_into, case_expect_into},
    {"accumulate", NUMBERS, CASE_SAME_BITS, case_build_into, case_expect_into},
    {"fold", NUMBERS, CASE_SAME_BITS, case_build_fold, case_expect_fold},
    {"combine", NUMBERS, CASE_SAME_BITS, case_build_combine, case_expect_combine},
    {"sum", NUMBERS, 0, case_build_reduce, case_expect_sum},
    {"prod", NUMBERS, 0, case_build_prod, case_expect_prod},
    {"min", REALS, CASE_SAME_BITS, case_build_reduce, case_expect_extreme},
    {"max", REALS, CASE_SAME_BITS, case_build_reduce, case_expect_extreme},
    {"mean", NUMBERS, 0, case_build_reduce, case_expect_sum},
    {"argmin", REALS, 0, case_build_reduce, case_expect_extreme},
    {"argmax", REALS, 0, case_build_reduce, case_expect_extreme},
    {"norm", INEXACT, 0, case_build_norm, case_expect_norm},
    {"softmax", FLOATS, 0, case_build_softmax, case_expect_softmax},
    {"log_softmax", FLOATS, 0, case_build_softmax, case_expect_softmax},
    {"cumsum", NUMBERS, 0, case_build_scan, case_expect_scan},
    {"cumprod", NUMBERS, 0, case_build_scan, case_expect_scan},
    {"sort", REALS, 0, case_build_sort, case_expect_sort},
    {"argsort", REALS, 0, case_build_sort, case_expect_sort},
    {"sort_into", REALS, 0, case_build_sort_into, case_expect_sort},
    {"where", STORAGE, CASE_SAME_BITS, case_build_where, case_expect_where},
    {"dot", NUMBERS, 0, case_build_dot, case_expect_dot},
    {"gemv", NUMBERS, 0, case_build_gemv, case_expect_product},
    {"gemm", NUMBERS, 0, case_build_gemm, case_expect_product},
    {"gemm_into", NUMBERS, 0, case_build_gemm, case_expect_product},
    {"gemm_batched", INEXACT, 0, case_build_gemm_batched, case_expect_gemm_batched},
    {"einsum", INEXACT, 0, case_build_einsum, case_expect_einsum},
    {"solve_triangular", KERNEL_SINGLES, 0, case_build_solve, case_expect_solve},
    {"cholesky", KERNEL_SINGLES, 0, case_build_cholesky, case_expect_cholesky},
    {"cholesky_solve", KERNEL_SINGLES, 0, case_build_solve, case_expect_solve},
    {"qr", KERNEL_SINGLES, 0, case_build_qr, case_expect_relations},
    {"svd", KERNEL_SINGLES, 0, case_build_svd, case_expect_relations},
    {"eigh", KERNEL_SINGLES, 0, case_build_eigh, case_expect_relations},
    {"inverse", KERNEL_SINGLES, 0, case_build_inverse, case_expect_relations},
    {"determinant", KERNEL_SINGLES, 0, case_build_determinant, case_expect_determinant},
    {"fft", PAIRS, 0, case_build_fft, case_expect_fft},
    {"ifft", PAIRS, 0, case_build_fft, case_expect_fft},
    {"rfft", KERNEL_SINGLES, 0, case_build_fft, case_expect_fft},
    {"irfft", KERNEL_SINGLES, 0, case_build_irfft, case_expect_irfft},
    {"spmv", KERNEL_SINGLES, 0, case_build_spmv, case_expect_spmv},
    {"transpose", STORAGE, CASE_SAME_BITS, case_build_transpose, case_expect_permuted},
    {"permute", STORAGE, CASE_SAME_BITS, case_build_permute, case_expect_permuted},
    {"concatenate", STORAGE, CASE_SAME_BITS, case_build_concatenate,
     case_expect_concatenate},
    {"pairwise_distance", FOURS, 0, case_build_pairwise, case_expect_pairwise},
    {"topk_min", FOURS, CASE_SAME_BITS, case_build_topk_min, case_expect_topk_min},
    {"topk_merge", FOURS, CASE_SAME_BITS, case_build_topk_merge, case_expect_topk_merge},
    {"vote", D(I32), 0, case_build_vote, case_expect_vote},
    {"checksum", STORAGE, 0, case_build_checksum, case_expect_checksum},
    {"spin", STORAGE, 0, case_build_spin, case_expect_nothing},
    {"test_fail", D(F32) | D(U8), CASE_FAILS, case_build_fail, case_expect_nothing},
    {"test_illegal", D(F32) | D(U8), CASE_FAILS, case_build_fail, case_expect_nothing},
};

uint32_t kernel_case_count(void)
{
    return (uint32_t)PL_COUNT(cases);
}

const struct kernel_case *kernel_case_at(uint32_t index)
{
    return &cases[index];
}

void kernel_cases_each(uint32_t rounds, uint64_t seed,
                       void (*fn)(const struct kernel_case *kase, struct trial *trial,
                                  void *user),
                       void *user)
{
    const char *most = getenv("PLASMON_ROUNDS");

    if (most != NULL) {
        rounds = (uint32_t)pl_min_u64(rounds, pl_max_u64(strtoul(most, NULL, 10), 1));
    }
    for (uint32_t i = 0; i < kernel_case_count(); i++) {
        for (uint32_t dtype = PL_BOOL; dtype <= PL_C128; dtype++) {
            for (uint32_t round = 0; round < rounds; round++) {
                struct trial trial;

                if ((cases[i].dtypes & KERNEL_DTYPE(dtype)) == 0) {
                    continue;
                }
                trial_begin(&trial, cases[i].name, dtype,
                            seed + i * 1000003u + dtype * 1009u + round);
                cases[i].build(&trial);
                cases[i].expect(&trial);
                fn(&cases[i], &trial, user);
                trial_end(&trial);
            }
        }
    }
}
