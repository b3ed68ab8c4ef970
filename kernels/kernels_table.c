/*
 * The catalogue: one row a function. The signature is what people read; tests parse it and compare
 * it with the params.
 *
 * In signatures, a dtype letter stands for one dtype of a set, the same wherever the letter stands
 * in one call:
 *
 *   N    i32 i64 f16 bf16 f32 f64 c64 c128       L    bool and N
 *   R    the real ones of N                      T    i32 i64 f32 f64
 *   Z    N without the integers                  F    f16 bf16 f32 f64
 *   C    c64 c128                                E    f32 f64
 *   S    any dtype (moved as bytes)              I    i32 i64
 *
 * while `any` (any dtype) may differ from argument to argument. [...] is any shape, [] is 0-d.
 * `inout|reduce` takes either mode; with REDUCE the operation must be the sum.
 *
 * Integers wrap around on overflow. Integer division rounds towards zero; x / 0 is 0. 16-bit floats
 * are computed in f32 (sums in f64) and rounded once. Complex numbers are as in element_complex.h.
 */
#include "kernels/kernels.h"

#include "kernels/kernel_list.h"
#include "kernels/shape_rules.h"

#define ANY     ((KERNEL_DTYPE(PL_C128 + 1) - 1) & ~KERNEL_DTYPE(0))
#define N       KERNEL_NUMBERS
#define R       KERNEL_REALS
#define Z       (KERNEL_FLOATS | KERNEL_PAIRS)
#define C       KERNEL_PAIRS
#define T       (KERNEL_SINGLES | KERNEL_DTYPE(PL_I32) | KERNEL_DTYPE(PL_I64))
#define F       KERNEL_FLOATS
#define E       KERNEL_SINGLES
#define S       ANY
#define I       (KERNEL_DTYPE(PL_I32) | KERNEL_DTYPE(PL_I64))
#define L       (KERNEL_DTYPE(PL_BOOL) | KERNEL_NUMBERS)
#define BOOL    KERNEL_DTYPE(PL_BOOL)
#define ONLY(d) KERNEL_DTYPE(PL_##d)

#define IN(id, set)                                      \
    {                                                    \
        .name = #id, .modes = KERNEL_IN, .dtypes = (set) \
    }
#define OUT(id, set)                                      \
    {                                                     \
        .name = #id, .modes = KERNEL_OUT, .dtypes = (set) \
    }
#define INOUT(id, set)                                      \
    {                                                       \
        .name = #id, .modes = KERNEL_INOUT, .dtypes = (set) \
    }
#define REDUCE(id, set)                                      \
    {                                                        \
        .name = #id, .modes = KERNEL_REDUCE, .dtypes = (set) \
    }
#define SCRATCH(id, set)                                      \
    {                                                         \
        .name = #id, .modes = KERNEL_SCRATCH, .dtypes = (set) \
    }
#define SUMMED(id, set)                                                     \
    {                                                                       \
        .name = #id, .modes = KERNEL_INOUT | KERNEL_REDUCE, .dtypes = (set) \
    }
#define IN_MANY(id, set)                                                   \
    {                                                                      \
        .name = #id, .modes = KERNEL_IN, .dtypes = (set), .variadic = true \
    }
#define I64(id)                                         \
    {                                                   \
        .name = #id, .scalar = true, .is_integer = true \
    }
#define FLAG(id)                                                         \
    {                                                                    \
        .name = #id, .scalar = true, .is_integer = true, .is_flag = true \
    }
#define F64(id)                     \
    {                               \
        .name = #id, .scalar = true \
    }

#define FUNCTION(id, text, rule, docs, ...)                                    \
    [KERNEL_ID_##id] = {                                                       \
        .name        = #id,                                                    \
        .signature   = #id text,                                               \
        .doc         = docs,                                                   \
        .params      = (const struct kernel_param[]){__VA_ARGS__},             \
        .param_count = PL_COUNT(((const struct kernel_param[]){__VA_ARGS__})), \
        .infer       = kernel_rule_##rule,                                     \
    }

#define UNARY(id, set, docs)                                                           \
    FUNCTION(id, "(out " #set "[...] y, in " #set "[...] x)", like, docs, OUT(y, set), \
             IN(x, set))
#define BINARY(id, set, docs)                                                             \
    FUNCTION(id, "(out " #set "[...] y, in " #set "[...] a, in " #set "[...] b)", binary, \
             docs, OUT(y, set), IN(a, set), IN(b, set))
#define COMPARE(id, set, docs)                                                         \
    FUNCTION(id, "(out bool[...] y, in " #set "[...] a, in " #set "[...] b)", compare, \
             docs, OUT(y, BOOL), IN(a, set), IN(b, set))
#define REDUCTION(id, set, docs)                                                      \
    FUNCTION(id, "(out " #set "[...] y, in " #set "[...] x, i64 axis, i64 keepdims)", \
             reduce, docs, OUT(y, set), IN(x, set), I64(axis), FLAG(keepdims))
#define ARG_REDUCTION(id, docs)                                                       \
    FUNCTION(id, "(out i64[...] y, in R[...] x, i64 axis, i64 keepdims)", arg_reduce, \
             docs, OUT(y, ONLY(I64)), IN(x, R), I64(axis), FLAG(keepdims))

static const struct kernel_function kernel_table[KERNEL_ID_COUNT] = {
    [KERNEL_ID_noop] =
        {
            .name      = "noop",
            .signature = "noop()",
            .infer     = kernel_rule_none,
            .doc       = "Does nothing, without a launch.",
        },
    FUNCTION(touch, "(in any[...]... x)", none, "Does nothing; depends on its arguments.",
             IN_MANY(x, ANY)),
    FUNCTION(fill, "(out any[...] x, f64 value)", stated,
             "x = value, cast to x's dtype as cast does.", OUT(x, ANY), F64(value)),
    FUNCTION(fill_int, "(out any[...] x, i64 value)", stated,
             "x = value, exact for 64-bit integers.", OUT(x, ANY), I64(value)),
    FUNCTION(copy, "(out S[...] y, in S[...] x)", like, "y = x, any dtype.", OUT(y, S),
             IN(x, S)),
    FUNCTION(cast, "(out any[...] y, in any[...] x)", cast,
             "y = x in y's dtype. Floats become integers by truncation, saturated, NaN as "
             "0; integers wrap; bool is x != 0; a complex number loses its imaginary part. "
             "Floats are rounded once, to nearest even.",
             OUT(y, ANY), IN(x, ANY)),
    FUNCTION(arange, "(out N[...] x, f64 start, f64 step)", stated,
             "x[i] = start + i * step, i the flat index; computed in f64, then cast.",
             OUT(x, N), F64(start), F64(step)),
    FUNCTION(random_uniform,
             "(out R[...] x, i64 seed, i64 offset, i64 row_stride, f64 low, f64 high)",
             stated,
             "Uniform in [low, high), Philox4x32-10. The element in row r and column c "
             "(the last dimension) has counter "
             "offset + r * row_stride + c; row_stride 0 is the width of x. So tiles of one "
             "array get its numbers, to the bit.",
             OUT(x, R), I64(seed), I64(offset), I64(row_stride), F64(low), F64(high)),
    FUNCTION(random_normal,
             "(out F[...] x, i64 seed, i64 offset, i64 row_stride, f64 mean, f64 stddev)",
             stated, "Normal by Box-Muller on the same counters as random_uniform.",
             OUT(x, F), I64(seed), I64(offset), I64(row_stride), F64(mean), F64(stddev)),

    UNARY(negative, N, "y = -x."),
    FUNCTION(abs, "(out R[...] y, in N[...] x)", part,
             "y = |x|, real: the length of a complex number.", OUT(y, R), IN(x, N)),
    UNARY(sign, R, "y = -1, 0 or 1; NaN stays NaN."),
    UNARY(square, N, "y = x * x."),
    UNARY(sqrt, Z, "y = the square root of x."),
    UNARY(reciprocal, Z, "y = 1 / x."),
    UNARY(exp, Z, "y = e to the x."),
    UNARY(log, Z, "y = the natural logarithm of x."),
    UNARY(sin, F, "y = sin x."),
    UNARY(cos, F, "y = cos x."),
    UNARY(tanh, F, "y = tanh x."),
    UNARY(sigmoid, F, "y = 1 / (1 + exp(-x))."),
    UNARY(floor, F, "y = x rounded down."),
    UNARY(ceil, F, "y = x rounded up."),
    UNARY(conj, C, "y = the complex conjugate of x."),
    FUNCTION(real, "(out E[...] y, in C[...] x)", part, "y = the real part of x.",
             OUT(y, E), IN(x, C)),
    FUNCTION(imag, "(out E[...] y, in C[...] x)", part, "y = the imaginary part of x.",
             OUT(y, E), IN(x, C)),
    FUNCTION(not, "(out bool[...] y, in L[...] x)", logical, "y = x == 0.", OUT(y, BOOL),
             IN(x, L)),

    BINARY(add, N, "y = a + b, broadcast."),
    BINARY(subtract, N, "y = a - b, broadcast."),
    BINARY(multiply, N, "y = a * b, broadcast."),
    BINARY(divide, N, "y = a / b, broadcast; integers towards zero, x / 0 is 0."),
    BINARY(minimum, R, "y = the smaller of a and b, broadcast; NaN wins."),
    BINARY(maximum, R, "y = the larger of a and b, broadcast; NaN wins."),
    BINARY(power, R,
           "y = a to the b, broadcast; for integers a negative b gives 0 unless a "
           "is 1 or -1."),
    COMPARE(equal, N, "y = a == b, broadcast."),
    COMPARE(less, R, "y = a < b, broadcast."),
    COMPARE(less_equal, R, "y = a <= b, broadcast."),
    COMPARE(logical_and, L, "y = a != 0 and b != 0, broadcast."),
    COMPARE(logical_or, L, "y = a != 0 or b != 0, broadcast."),
    FUNCTION(add_scalar, "(out N[...] y, in N[...] x, f64 value)", like,
             "y = x + value (cast to the dtype first).", OUT(y, N), IN(x, N), F64(value)),
    FUNCTION(multiply_scalar, "(out N[...] y, in N[...] x, f64 value)", like,
             "y = x * value (cast to the dtype first).", OUT(y, N), IN(x, N), F64(value)),

    FUNCTION(axpy, "(inout|reduce N[...] y, in N[...] x, f64 a)", into,
             "y = y + a * x (a cast to the dtype first), x broadcast to y.", SUMMED(y, N),
             IN(x, N), F64(a)),
    FUNCTION(add_into, "(inout|reduce N[...] y, in N[...] x)", into,
             "y = y + x, x broadcast to y.", SUMMED(y, N), IN(x, N)),
    FUNCTION(accumulate, "(reduce N[...] y, in N[...] x)", into,
             "y = y op x with the argument's reduction, x broadcast to y.", REDUCE(y, N),
             IN(x, N)),
    FUNCTION(fold, "(inout N[...] y, in N[...]... x, i64 op)", fold,
             "y = y op tree, the tree joining neighbours of x pairwise, level by level, in "
             "the order given. At most 64.",
             INOUT(y, N), IN_MANY(x, N), I64(op)),
    FUNCTION(combine, "(out N[...] y, in N[...]... x, i64 op)", combine,
             "y = x[0] op tree, the tree as fold joins the others. At most 64.", OUT(y, N),
             IN_MANY(x, N), I64(op)),

    REDUCTION(sum, N,
              "Sum over an axis; -1: over all. With keepdims the axis stays, of length 1."),
    REDUCTION(prod, N, "Product over an axis."),
    REDUCTION(min, R, "Smallest over an axis; NaN wins."),
    REDUCTION(max, R, "Largest over an axis; NaN wins."),
    FUNCTION(mean, "(out Z[...] y, in N[...] x, i64 axis, i64 keepdims)", mean,
             "Mean over an axis; f64 for integers.", OUT(y, Z), IN(x, N), I64(axis),
             FLAG(keepdims)),
    ARG_REDUCTION(argmin, "Index of the smallest along an axis (-1: flat index); the "
                          "lowest index of equals, the first NaN wins."),
    ARG_REDUCTION(argmax, "Index of the largest along an axis (-1: flat index); the lowest "
                          "index of equals, the first NaN wins."),

    FUNCTION(norm, "(out F[...] y, in Z[...] x, i64 axis, i64 keepdims, f64 p)", norm,
             "The norm of order p over an axis (-1: over all; with p = 2 Frobenius'): the "
             "sum of magnitudes (1), the root of the sum of their squares (2), the largest "
             "(infinity). Overflows only where the result does.",
             OUT(y, F), IN(x, Z), I64(axis), FLAG(keepdims), F64(p)),
    FUNCTION(softmax, "(out F[...] y, in F[...] x, i64 axis)", softmax,
             "y = exp(x) / the sum of exp(x) along an axis (-1: over all), of x less its "
             "largest element.",
             OUT(y, F), IN(x, F), I64(axis)),
    FUNCTION(log_softmax, "(out F[...] y, in F[...] x, i64 axis)", softmax,
             "y = the logarithm of softmax, without its cancellation.", OUT(y, F), IN(x, F),
             I64(axis)),
    FUNCTION(
        cumsum, "(out N[...] y, in N[...] x, i64 axis, i64 exclusive)", scan,
        "Sums of all up to each element along an axis; exclusive: without the element.",
        OUT(y, N), IN(x, N), I64(axis), FLAG(exclusive)),
    FUNCTION(cumprod, "(out N[...] y, in N[...] x, i64 axis, i64 exclusive)", scan,
             "Products of all up to each element along an axis; exclusive: without it.",
             OUT(y, N), IN(x, N), I64(axis), FLAG(exclusive)),
    FUNCTION(sort, "(out R[...] y, in R[...] x)", sort,
             "Sorts along the last axis, ascending, equals in their order, NaN last.",
             OUT(y, R), IN(x, R)),
    FUNCTION(argsort, "(out i64[...] y, in R[...] x)", argsort,
             "The positions along the last axis in the order that sort makes.",
             OUT(y, ONLY(I64)), IN(x, R)),
    FUNCTION(sort_into, "(inout R[...] x, scratch R[...] work)", sort_into,
             "Sorts x in place as sort does; work has x's dtype and shape.", INOUT(x, R),
             SCRATCH(work, R)),
    FUNCTION(where, "(out S[...] y, in bool[...] condition, in S[...] a, in S[...] b)",
             where, "y = a where the condition holds, otherwise b; all three broadcast.",
             OUT(y, S), IN(condition, BOOL), IN(a, S), IN(b, S)),

    FUNCTION(dot, "(out N[] c, in N[n] x, in N[n] y)", dot,
             "c = the sum of x * y; complex numbers are not conjugated.", OUT(c, N),
             IN(x, N), IN(y, N)),
    FUNCTION(gemv, "(out N[m] y, in N[m,n] a, in N[n] x)", gemv, "y = a x.", OUT(y, N),
             IN(a, N), IN(x, N)),
    FUNCTION(
        gemm,
        "(out N[m,n] c, in N[m,k] a, in N[k,n] b, f64 alpha, i64 trans_a, i64 trans_b)",
        gemm,
        "c = alpha a b; with trans_a, a is given as [k,m]; with trans_b, b is given as "
        "[n,k].",
        OUT(c, N), IN(a, N), IN(b, N), F64(alpha), FLAG(trans_a), FLAG(trans_b)),
    FUNCTION(
        gemm_into,
        "(inout|reduce N[m,n] c, in N[m,k] a, in N[k,n] b, f64 alpha, f64 beta, i64 "
        "trans_a, i64 trans_b)",
        gemm_into,
        "c = alpha a b + beta c, transposed as in gemm. A REDUCE argument needs beta 1.",
        SUMMED(c, N), IN(a, N), IN(b, N), F64(alpha), F64(beta), FLAG(trans_a),
        FLAG(trans_b)),
    FUNCTION(
        gemm_batched,
        "(out Z[g,m,n] c, in Z[g,m,k] a, in Z[g,k,n] b, f64 alpha, i64 trans_a, i64 "
        "trans_b)",
        gemm_batched,
        "c[i] = alpha a[i] b[i], transposed as in gemm; one matrix (g = 1) serves all.",
        OUT(c, Z), IN(a, Z), IN(b, Z), F64(alpha), FLAG(trans_a), FLAG(trans_b)),
    FUNCTION(
        einsum, "(out Z[...] y, in Z[...] a, in Z[...] b, i64 la, i64 lb, i64 ly)", einsum,
        "The sum of products that labels describe: a letter a dimension, packed into "
        "the bytes of la, lb and ly, the first in the lowest (\"ij\", \"jk\" and "
        "\"ik\" are a matrix product). Labels that ly lacks are summed over; they must "
        "be in both a and b.",
        OUT(y, Z), IN(a, Z), IN(b, Z), I64(la), I64(lb), I64(ly)),
    FUNCTION(
        solve_triangular,
        "(out E[n,k] x, in E[n,n] a, in E[n,k] b, i64 lower, i64 trans, i64 unit)", solve,
        "The x of a x = b (a' x = b with trans) for a triangle: the lower one of a, or "
        "the upper; with unit its diagonal is 1. Fails with ESINGULAR where it is 0.",
        OUT(x, E), IN(a, E), IN(b, E), FLAG(lower), FLAG(trans), FLAG(unit)),
    FUNCTION(cholesky, "(out E[n,n] l, in E[n,n] a)", square,
             "The lower triangle with l l' = a, of a symmetric a, whose lower triangle is "
             "read. Fails with ESINGULAR where a is not positive definite.",
             OUT(l, E), IN(a, E)),
    FUNCTION(cholesky_solve, "(out E[n,k] x, in E[n,n] l, in E[n,k] b)", solve,
             "The x of l l' x = b, with what cholesky made.", OUT(x, E), IN(l, E),
             IN(b, E)),
    FUNCTION(qr, "(out E[m,k] q, out E[k,n] r, in E[m,n] a)", qr,
             "q r = a, k = min(m, n): the columns of q are orthonormal, r is an upper "
             "triangle (Householder; its diagonal may be negative).",
             OUT(q, E), OUT(r, E), IN(a, E)),
    FUNCTION(svd, "(out E[m,k] u, out E[k] s, out E[k,n] vh, in E[m,n] a)", svd,
             "The reduced singular value decomposition, k = min(m, n): u diag(s) vh = a, "
             "columns of u and rows of vh orthonormal, s not negative and falling. Fails "
             "with EINVAL where a holds NaN or an infinity.",
             OUT(u, E), OUT(s, E), OUT(vh, E), IN(a, E)),
    FUNCTION(eigh, "(out E[n] w, out E[n,n] v, in E[n,n] a)", eigh,
             "Eigenvalues, rising, and orthonormal eigenvectors (the columns of v) of a "
             "symmetric a, whose lower triangle is read. Fails with EINVAL where that "
             "holds NaN or an infinity.",
             OUT(w, E), OUT(v, E), IN(a, E)),
    FUNCTION(
        inverse, "(out E[n,n] y, in E[n,n] a)", square,
        "y = the inverse of a, by an LU factor with pivots. Fails with ESINGULAR where "
        "a pivot is 0.",
        OUT(y, E), IN(a, E)),
    FUNCTION(determinant, "(out E[] d, in E[n,n] a)", determinant,
             "d = the determinant of a, by an LU factor with pivots.", OUT(d, E), IN(a, E)),
    FUNCTION(fft, "(out C[...] y, in C[...] x, i64 axes)", fft,
             "The discrete Fourier transform over the last `axes` axes (1 to 3), of any "
             "length, without a factor; leading axes are a batch.",
             OUT(y, C), IN(x, C), I64(axes)),
    FUNCTION(ifft, "(out C[...] y, in C[...] x, i64 axes)", fft,
             "The inverse of fft: divided by the number of elements transformed.",
             OUT(y, C), IN(x, C), I64(axes)),
    FUNCTION(rfft, "(out C[...] y, in E[...] x, i64 axes)", rfft,
             "fft of real numbers, without the half that follows by symmetry: of a last "
             "axis of length n, elements 0 to n / 2.",
             OUT(y, C), IN(x, E), I64(axes)),
    FUNCTION(irfft, "(out E[...] y, in C[...] x, i64 axes, i64 n)", irfft,
             "The inverse of rfft; n is the length of y's last axis (0: even, from x's). x "
             "has the symmetry that the transform of real numbers has; nobody checks it.",
             OUT(y, E), IN(x, C), I64(axes), I64(n)),
    FUNCTION(spmv,
             "(out E[m] y, in I[m1] rows, in I[nnz] columns, in E[nnz] values, in E[n] x)",
             spmv,
             "y = A x, A in CSR: row i has values[rows[i]] to values[rows[i + 1] - 1], in "
             "columns[..]. Fails with EINVAL where these point outside.",
             OUT(y, E), IN(rows, I), IN(columns, I), IN(values, E), IN(x, E)),
    FUNCTION(transpose, "(out S[...] y, in S[...] x)", transpose,
             "Swaps the last two dimensions.", OUT(y, S), IN(x, S)),
    FUNCTION(
        permute,
        "(out S[...] y, in S[...] x, i64 p0, i64 p1, i64 p2, i64 p3, i64 p4, i64 p5, i64 "
        "p6, i64 p7)",
        permute,
        "Dimension i of y is dimension p_i of x; those beyond x's dimensions are ignored.",
        OUT(y, S), IN(x, S), I64(p0), I64(p1), I64(p2), I64(p3), I64(p4), I64(p5), I64(p6),
        I64(p7)),
    FUNCTION(concatenate, "(out S[...] y, in S[...]... x, i64 axis)", concatenate,
             "Joins arrays along an axis.", OUT(y, S), IN_MANY(x, S), I64(axis)),

    FUNCTION(pairwise_distance, "(out T[m,n] d, in T[m,k] a, in T[n,k] b)", pairwise,
             "Squared Euclidean distances between the rows of a and of b.", OUT(d, T),
             IN(a, T), IN(b, T)),
    FUNCTION(
        topk_min,
        "(out T[m,kk] values, out i64[m,kk] indices, in T[m,n] x, i64 k, i64 index_base)",
        topk_min,
        "The k smallest of each row, ascending, and their columns plus index_base; equals "
        "by lowest column, NaN last. kk = min(k, n).",
        OUT(values, T), OUT(indices, ONLY(I64)), IN(x, T), I64(k), I64(index_base)),
    FUNCTION(topk_merge,
             "(out T[m,kk] values, out i64[m,kk] indices, in T[m,ka] va, in i64[m,ka] ia, "
             "in T[m,kb] vb, in i64[m,kb] ib, i64 k)",
             topk_merge,
             "The k smallest of two results of topk_min, row by row; equals by lowest "
             "index. kk = min(k, ka + kb).",
             OUT(values, T), OUT(indices, ONLY(I64)), IN(va, T), IN(ia, ONLY(I64)),
             IN(vb, T), IN(ib, ONLY(I64)), I64(k)),
    FUNCTION(vote, "(out i32[m] y, in i64[m,k] indices, in i32[n] labels)", vote,
             "The most frequent label among labels[indices[row]]; of equals the one met "
             "first. Indices outside are skipped; -1 if none is left.",
             OUT(y, ONLY(I32)), IN(indices, ONLY(I64)), IN(labels, ONLY(I32))),
    FUNCTION(checksum, "(out u64[] sum, in any[...] x)", checksum,
             "Sum of hashes of (flat index, bits) over x: equal contents have equal sums "
             "on every device and in every layout.",
             OUT(sum, ONLY(U64)), IN(x, ANY)),

    FUNCTION(spin, "(inout any[...] x, i64 microseconds)", none,
             "Keeps the stream busy for that long; x stays as it is.", INOUT(x, ANY),
             I64(microseconds)),
    FUNCTION(test_fail, "(out any[...] x, i64 code)", stated,
             "Fails when it runs: an error that names code on a CPU, a trap on a GPU.",
             OUT(x, ANY), I64(code)),
    FUNCTION(test_illegal, "(out any[...] x)", stated,
             "Fails when it runs: an illegal access on a GPU, an error on a CPU.",
             OUT(x, ANY)),
};

uint32_t kernel_count(void)
{
    return KERNEL_ID_COUNT;
}

const struct kernel_function *kernel_at(uint32_t index)
{
    return index < KERNEL_ID_COUNT ? &kernel_table[index] : NULL;
}
