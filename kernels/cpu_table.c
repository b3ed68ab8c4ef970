/*
 * The CPU variants by function, and the functions that tests use to keep a stream busy or to fail.
 */
#include "kernels/cpu.h"

#include <errno.h>
#include <time.h>

/* Sleeps rather than spins: the stream is busy, and the cores stay free for what is tested beside it. */
plasmon_status_t cpu_spin(const struct kernel_call *call, int op, struct pl_err *err)
{
    int64_t microseconds = call->scalar[0].i;
    struct timespec until;

    (void)op;
    (void)err;
    if (microseconds <= 0) {
        return PLASMON_OK;
    }
    (void)clock_gettime(CLOCK_MONOTONIC, &until); /* cannot fail for this clock */
    until.tv_sec += microseconds / 1000000;
    until.tv_nsec += microseconds % 1000000 * 1000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR) {
    }
    return PLASMON_OK;
}

plasmon_status_t cpu_fail(const struct kernel_call *call, int op, struct pl_err *err)
{
    (void)op;
    return pl_err_set(err, PLASMON_EFUNCTION, "%s: failed as asked, code %lld",
                      call->function->name, (long long)call->scalar[0].i);
}

plasmon_status_t cpu_illegal(const struct kernel_call *call, int op, struct pl_err *err)
{
    (void)op;
    return pl_err_set(err, PLASMON_EFUNCTION, "%s: illegal access", call->function->name);
}

#define ROW(id, fn, operation) [KERNEL_ID_##id] = {.run = cpu_##fn, .op = (operation)}
#define ROW_SCRATCH(id, fn) \
    [KERNEL_ID_##id] = {.run = cpu_##fn, .scratch = cpu_##fn##_scratch}
#define UNARY(id, OP)     ROW(id, unary, KERNEL_OP_##OP)
#define BINARY(id, OP)    ROW(id, binary, KERNEL_OP_##OP)
#define COMPARE(id, OP)   ROW(id, compare, KERNEL_OP_##OP)
#define REDUCTION(id, OP) ROW(id, reduce, KERNEL_REDUCTION_##OP)

const struct kernel_cpu_variant kernel_cpu_table[KERNEL_ID_COUNT] = {
    [KERNEL_ID_noop]  = {.run = NULL},
    [KERNEL_ID_touch] = {.run = NULL},
    ROW(fill, fill_f64, 0),
    ROW(fill_int, fill_i64, 0),
    ROW(copy, move, 0),
    ROW(cast, cast, 0),
    ROW(arange, arange, 0),
    ROW(random_uniform, random, 0),
    ROW(random_normal, random, 0),
    UNARY(negative, NEGATIVE),
    ROW(abs, part, KERNEL_OP_ABS),
    UNARY(sign, SIGN),
    UNARY(square, SQUARE),
    UNARY(sqrt, SQRT),
    UNARY(reciprocal, RECIPROCAL),
    UNARY(exp, EXP),
    UNARY(log, LOG),
    UNARY(sin, SIN),
    UNARY(cos, COS),
    UNARY(tanh, TANH),
    UNARY(sigmoid, SIGMOID),
    UNARY(floor, FLOOR),
    UNARY(ceil, CEIL),
    UNARY(conj, CONJ),
    ROW(real, part, KERNEL_OP_REAL),
    ROW(imag, part, KERNEL_OP_IMAG),
    ROW(not, logical, KERNEL_OP_NOT),
    BINARY(add, ADD),
    BINARY(subtract, SUBTRACT),
    BINARY(multiply, MULTIPLY),
    BINARY(divide, DIVIDE),
    BINARY(minimum, MINIMUM),
    BINARY(maximum, MAXIMUM),
    BINARY(power, POWER),
    COMPARE(equal, EQUAL),
    COMPARE(less, LESS),
    COMPARE(less_equal, LESS_EQUAL),
    COMPARE(logical_and, LOGICAL_AND),
    COMPARE(logical_or, LOGICAL_OR),
    ROW(add_scalar, scalar, KERNEL_OP_ADD_SCALAR),
    ROW(multiply_scalar, scalar, KERNEL_OP_MULTIPLY_SCALAR),
    ROW(axpy, into, KERNEL_OP_AXPY),
    ROW(add_into, into, KERNEL_OP_ADD),
    ROW(accumulate, into, 0),
    ROW(fold, fold, 0),
    ROW(combine, combine, 0),
    REDUCTION(sum, SUM),
    REDUCTION(prod, PROD),
    REDUCTION(min, MIN),
    REDUCTION(max, MAX),
    REDUCTION(mean, MEAN),
    ROW(argmin, arg_reduce, KERNEL_REDUCTION_MIN),
    ROW(argmax, arg_reduce, KERNEL_REDUCTION_MAX),
    ROW(norm, norm, 0),
    ROW(softmax, softmax, 0),
    ROW(log_softmax, softmax, 1),
    ROW(cumsum, scan, KERNEL_REDUCTION_SUM),
    ROW(cumprod, scan, KERNEL_REDUCTION_PROD),
    ROW_SCRATCH(sort, sort),
    ROW_SCRATCH(argsort, sort),
    ROW_SCRATCH(sort_into, sort),
    ROW(where, where, 0),
    ROW(dot, dot, KERNEL_REDUCTION_DOT),
    ROW_SCRATCH(gemv, gemv),
    ROW_SCRATCH(gemm, gemm),
    ROW_SCRATCH(gemm_into, gemm),
    ROW_SCRATCH(gemm_batched, gemm_batched),
    ROW_SCRATCH(einsum, einsum),
    [KERNEL_ID_solve_triangular] = {.run = cpu_solve, .scratch = cpu_solve_scratch},
    [KERNEL_ID_cholesky]         = {.run = cpu_cholesky, .scratch = cpu_cholesky_scratch},
    [KERNEL_ID_cholesky_solve]   = {.run = cpu_solve, .scratch = cpu_solve_scratch},
    ROW_SCRATCH(qr, qr),
    ROW_SCRATCH(svd, svd),
    ROW_SCRATCH(eigh, eigh),
    [KERNEL_ID_inverse]     = {.run = cpu_inverse, .scratch = cpu_lu_scratch},
    [KERNEL_ID_determinant] = {.run = cpu_determinant, .scratch = cpu_lu_scratch},
    ROW_SCRATCH(fft, fft),
    ROW_SCRATCH(ifft, ifft),
    [KERNEL_ID_rfft]  = {.run = cpu_fft, .scratch = cpu_fft_scratch},
    [KERNEL_ID_irfft] = {.run = cpu_ifft, .scratch = cpu_ifft_scratch},
    ROW(spmv, spmv, 0),
    ROW(transpose, transpose, 0),
    ROW(permute, permute, 0),
    ROW(concatenate, concatenate, 0),
    ROW_SCRATCH(pairwise_distance, pairwise),
    ROW(topk_min, topk_min, 0),
    ROW(topk_merge, topk_merge, 0),
    ROW(vote, vote, 0),
    ROW(checksum, checksum, 0),
    ROW(spin, spin, 0),
    ROW(test_fail, fail, 0),
    ROW(test_illegal, illegal, 0),
};
