/*
 * The elementwise operations, as expressions. The including code has T (the element type), U (T for
 * floats, the unsigned type of T for integers), the operands a and b, the scalar s, and M(f), which
 * names the math function f of T.
 *
 * Floats and integers have lists of their own because integers must wrap around without undefined
 * behaviour and have no exp. NaN wins in minimum and maximum: the result does not depend on the
 * order of the operands.
 */
#ifndef KERNELS_ELEMENT_OPS_H
#define KERNELS_ELEMENT_OPS_H

/* y = f(a), cheap for every device. */
#define KERNEL_UNARY_FLOAT(XX)                 \
    XX(NEGATIVE, -a)                           \
    XX(ABS, M(fabs)(a))                        \
    XX(SIGN, a > 0 ? (T)1 : a < 0 ? (T)-1 : a) \
    XX(SQUARE, a *a)                           \
    XX(SQRT, M(sqrt)(a))                       \
    XX(RECIPROCAL, (T)1 / a)                   \
    XX(FLOOR, M(floor)(a))                     \
    XX(CEIL, M(ceil)(a))                       \
    XX(ADD_SCALAR, a + s)                      \
    XX(MULTIPLY_SCALAR, a *s)
/* y = f(a), with code large enough to be kept apart on a GPU. */
#define KERNEL_UNARY_HEAVY(XX) \
    XX(EXP, M(exp)(a))         \
    XX(LOG, M(log)(a))         \
    XX(SIN, M(sin)(a))         \
    XX(COS, M(cos)(a))         \
    XX(TANH, M(tanh)(a))       \
    XX(SIGMOID, (T)1 / ((T)1 + M(exp)(-a)))
#define KERNEL_UNARY_INT(XX)              \
    XX(NEGATIVE, (T)((U)0 - (U)a))        \
    XX(ABS, a < 0 ? (T)((U)0 - (U)a) : a) \
    XX(SIGN, (T)((a > 0) - (a < 0)))      \
    XX(SQUARE, (T)((U)a * (U)a))          \
    XX(ADD_SCALAR, (T)((U)a + (U)s))      \
    XX(MULTIPLY_SCALAR, (T)((U)a * (U)s))

/* y = f(a, b). AXPY is a + s * b. */
#define KERNEL_BINARY_FLOAT(XX)            \
    XX(ADD, a + b)                         \
    XX(SUBTRACT, a - b)                    \
    XX(MULTIPLY, a *b)                     \
    XX(DIVIDE, a / b)                      \
    XX(MINIMUM, (a < b || a != a) ? a : b) \
    XX(MAXIMUM, (a > b || a != a) ? a : b) \
    XX(AXPY, a + s * b)
#define KERNEL_BINARY_INT(XX)                                                 \
    XX(ADD, (T)((U)a + (U)b))                                                 \
    XX(SUBTRACT, (T)((U)a - (U)b))                                            \
    XX(MULTIPLY, (T)((U)a * (U)b))                                            \
    XX(DIVIDE, sizeof(T) == 4 ? (T)kernel_divide_i32((int32_t)a, (int32_t)b)  \
                              : (T)kernel_divide_i64((int64_t)a, (int64_t)b)) \
    XX(MINIMUM, a < b ? a : b)                                                \
    XX(MAXIMUM, a > b ? a : b)                                                \
    XX(AXPY, (T)((U)a + (U)s * (U)b))
#define KERNEL_POWER_FLOAT(XX) XX(POWER, M(pow)(a, b))
#define KERNEL_POWER_INT(XX)   XX(POWER, (T)kernel_power_i64((int64_t)a, (int64_t)b))

/* y = f(a, b), a bool. NOT looks at a only. */
#define KERNEL_COMPARE(XX)            \
    XX(EQUAL, a == b)                 \
    XX(LESS, a < b)                   \
    XX(LESS_EQUAL, a <= b)            \
    XX(LOGICAL_AND, a != 0 && b != 0) \
    XX(LOGICAL_OR, a != 0 || b != 0)  \
    XX(NOT, a == 0)

enum kernel_op {
#define XX(name, expression) KERNEL_OP_##name,
    KERNEL_UNARY_FLOAT(XX) KERNEL_UNARY_HEAVY(XX) KERNEL_BINARY_FLOAT(XX)
        KERNEL_POWER_FLOAT(XX) KERNEL_COMPARE(XX)
#undef XX
    /* Of complex numbers only; their expressions are in element_complex.h. */
    KERNEL_OP_CONJ,
    KERNEL_OP_REAL,
    KERNEL_OP_IMAG,
};

/*
 * What a reduction does to the running value; the same numbers as enum kernel_reduce_op where they
 * overlap.
 */
enum kernel_reduction {
    KERNEL_REDUCTION_SUM  = 1,
    KERNEL_REDUCTION_PROD = 2,
    KERNEL_REDUCTION_MIN  = 3,
    KERNEL_REDUCTION_MAX  = 4,
    KERNEL_REDUCTION_MEAN = 5,
    KERNEL_REDUCTION_DOT  = 6,
    /* Norms: by the sum of magnitudes, of their squares, and the largest. */
    KERNEL_REDUCTION_NORM_1   = 7,
    KERNEL_REDUCTION_NORM_2   = 8,
    KERNEL_REDUCTION_NORM_INF = 9,
};

#endif
