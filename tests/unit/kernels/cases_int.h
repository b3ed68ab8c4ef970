/*
 * What the files of the cases share. build_ functions make arguments, expect_ functions the
 * expected values; the list in cases.c joins them to functions and dtypes.
 */
#ifndef TESTS_KERNELS_CASES_INT_H
#define TESTS_KERNELS_CASES_INT_H

#include "cases.h"

/* What libraries of math functions may be off by, in halves of a unit in the last place. */
#define MATH_ULPS 8

/* Wraps to the width of the dtype. */
int64_t case_wrapped(uint32_t dtype, uint64_t value);
/* A value that is exact but for eps_count roundings. */
void case_want_rounded(struct trial *trial, uint32_t index, int64_t flat, double want,
                       double eps_count);
/* The same for complex numbers, in eps of the whole. */
void case_want_complex(struct trial *trial, uint32_t index, int64_t flat,
                       double complex want, double eps_count);
/*
 * What one output of a reduction is made from: `length` elements of x from flat index `first` on,
 * `step` apart.
 */
struct case_lane {
    int64_t first;
    int64_t step;
    int64_t length;
};
struct case_lane case_lane_of(const struct trial *trial, int64_t flat);
/* An output and one input of a random shape, values in [low, high]. */
void case_build_input(struct trial *trial, uint32_t dtype, double low, double high);

void case_build_arange(struct trial *trial);
void case_build_binary(struct trial *trial);
void case_build_cast(struct trial *trial);
void case_build_checksum(struct trial *trial);
void case_build_compare(struct trial *trial);
void case_build_concatenate(struct trial *trial);
void case_build_copy(struct trial *trial);
void case_build_dot(struct trial *trial);
void case_build_fail(struct trial *trial);
void case_build_fill(struct trial *trial);
void case_build_fill_int(struct trial *trial);
void case_build_fold(struct trial *trial);
void case_build_combine(struct trial *trial);
void case_build_gemm(struct trial *trial);
void case_build_gemv(struct trial *trial);
void case_build_into(struct trial *trial);
void case_build_noop(struct trial *trial);
void case_build_not(struct trial *trial);
void case_build_pairwise(struct trial *trial);
void case_build_permute(struct trial *trial);
void case_build_power(struct trial *trial);
void case_build_prod(struct trial *trial);
void case_build_random(struct trial *trial);
void case_build_reduce(struct trial *trial);
void case_build_scalar(struct trial *trial);
void case_build_spin(struct trial *trial);
void case_build_topk_merge(struct trial *trial);
void case_build_topk_min(struct trial *trial);
void case_build_touch(struct trial *trial);
void case_build_transpose(struct trial *trial);
void case_build_unary(struct trial *trial);
void case_build_unary_positive(struct trial *trial);
void case_build_unary_small(struct trial *trial);
void case_build_vote(struct trial *trial);
void case_build_norm(struct trial *trial);
void case_expect_norm(struct trial *trial);
void case_build_softmax(struct trial *trial);
void case_expect_softmax(struct trial *trial);
void case_build_scan(struct trial *trial);
void case_expect_scan(struct trial *trial);
void case_build_sort(struct trial *trial);
void case_expect_sort(struct trial *trial);
void case_build_where(struct trial *trial);
void case_expect_where(struct trial *trial);
void case_build_gemm_batched(struct trial *trial);
void case_expect_gemm_batched(struct trial *trial);
void case_build_einsum(struct trial *trial);
void case_expect_einsum(struct trial *trial);
void case_build_spmv(struct trial *trial);
void case_expect_spmv(struct trial *trial);
void case_build_sort_into(struct trial *trial);
void case_build_solve(struct trial *trial);
void case_expect_solve(struct trial *trial);
void case_build_cholesky(struct trial *trial);
void case_expect_cholesky(struct trial *trial);
void case_build_qr(struct trial *trial);
void case_build_svd(struct trial *trial);
void case_build_eigh(struct trial *trial);
void case_build_inverse(struct trial *trial);
void case_expect_relations(struct trial *trial);
void case_build_determinant(struct trial *trial);
void case_expect_determinant(struct trial *trial);
void case_build_fft(struct trial *trial);
void case_expect_fft(struct trial *trial);
void case_build_irfft(struct trial *trial);
void case_expect_irfft(struct trial *trial);
void case_expect_arange(struct trial *trial);
void case_expect_binary(struct trial *trial);
void case_expect_cast(struct trial *trial);
void case_expect_checksum(struct trial *trial);
void case_expect_compare(struct trial *trial);
void case_expect_concatenate(struct trial *trial);
void case_expect_copy(struct trial *trial);
void case_expect_dot(struct trial *trial);
void case_expect_extreme(struct trial *trial);
void case_expect_fill(struct trial *trial);
void case_expect_fill_int(struct trial *trial);
void case_expect_fold(struct trial *trial);
void case_expect_combine(struct trial *trial);
void case_expect_into(struct trial *trial);
void case_expect_not(struct trial *trial);
void case_expect_nothing(struct trial *trial);
void case_expect_pairwise(struct trial *trial);
void case_expect_permuted(struct trial *trial);
void case_expect_part(struct trial *trial);
void case_expect_prod(struct trial *trial);
void case_expect_product(struct trial *trial);
void case_expect_random(struct trial *trial);
void case_expect_scalar(struct trial *trial);
void case_expect_sum(struct trial *trial);
void case_expect_topk_merge(struct trial *trial);
void case_expect_topk_min(struct trial *trial);
void case_expect_unary(struct trial *trial);
void case_expect_vote(struct trial *trial);

#endif
