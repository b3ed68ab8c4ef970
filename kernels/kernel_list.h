/*
 * The catalogue's names, once. The signature table, the CPU table and the CUDA table are all
 * indexed by KERNEL_ID_<name>, and each checks at build or start-up that it has a row for every
 * name here. The order is not on the wire (a function's id there is the hash of its name), so a new
 * name may go where it reads best.
 */
#ifndef KERNELS_KERNEL_LIST_H
#define KERNELS_KERNEL_LIST_H

/* clang-format would take 'not' for the operator of C++. */
/* clang-format off */
#define KERNEL_LIST(XX)   \
    XX(noop)              \
    XX(touch)             \
    XX(fill)              \
    XX(fill_int)          \
    XX(copy)              \
    XX(cast)              \
    XX(arange)            \
    XX(random_uniform)    \
    XX(random_normal)     \
    XX(negative)          \
    XX(abs)               \
    XX(sign)              \
    XX(square)            \
    XX(sqrt)              \
    XX(reciprocal)        \
    XX(exp)               \
    XX(log)               \
    XX(sin)               \
    XX(cos)               \
    XX(tanh)              \
    XX(sigmoid)           \
    XX(floor)             \
    XX(ceil)              \
    XX(conj)              \
    XX(real)              \
    XX(imag)              \
    XX(not)               \
    XX(add)               \
    XX(subtract)          \
    XX(multiply)          \
    XX(divide)            \
    XX(minimum)           \
    XX(maximum)           \
    XX(power)             \
    XX(equal)             \
    XX(less)              \
    XX(less_equal)        \
    XX(logical_and)       \
    XX(logical_or)        \
    XX(add_scalar)        \
    XX(multiply_scalar)   \
    XX(axpy)              \
    XX(add_into)          \
    XX(accumulate)        \
    XX(fold)              \
    XX(combine)           \
    XX(sum)               \
    XX(prod)              \
    XX(min)               \
    XX(max)               \
    XX(mean)              \
    XX(argmin)            \
    XX(argmax)            \
    XX(norm)              \
    XX(softmax)           \
    XX(log_softmax)       \
    XX(cumsum)            \
    XX(cumprod)           \
    XX(sort)              \
    XX(argsort)           \
    XX(sort_into)         \
    XX(where)             \
    XX(dot)               \
    XX(gemv)              \
    XX(gemm)              \
    XX(gemm_into)         \
    XX(gemm_batched)      \
    XX(einsum)            \
    XX(solve_triangular)  \
    XX(cholesky)          \
    XX(cholesky_solve)    \
    XX(qr)                \
    XX(svd)               \
    XX(eigh)              \
    XX(inverse)           \
    XX(determinant)       \
    XX(fft)               \
    XX(ifft)              \
    XX(rfft)              \
    XX(irfft)             \
    XX(spmv)              \
    XX(transpose)         \
    XX(permute)           \
    XX(concatenate)       \
    XX(pairwise_distance) \
    XX(topk_min)          \
    XX(topk_merge)        \
    XX(vote)              \
    XX(checksum)          \
    XX(spin)              \
    XX(test_fail)         \
    XX(test_illegal)
/* clang-format on */

enum kernel_id {
#define XX(name) KERNEL_ID_##name,
    KERNEL_LIST(XX)
#undef XX
        KERNEL_ID_COUNT
};

/*
 * Partials that one fold takes, and arrays that one combine takes; the caller folds more in rounds
 * of its own.
 */
#define KERNEL_FOLD_MAX 64

#endif
