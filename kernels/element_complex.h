/*
 * Complex numbers, shared by the CPU and the CUDA variants: a pair as it lies in memory, and the
 * functions on it.
 *
 * C's own complex types are not used: nvcc has none, and their multiplication calls a library
 * function to mend infinities, which no BLAS does either. Errors are those of the pair as a whole:
 * |got - want| is some eps |want|; a part that cancels may have no correct digit. Division is
 * Smith's, so no intermediate overflows where the quotient does not. Square root, logarithm and
 * exponential take the principal branch, cut along the negative real axis.
 */
#ifndef KERNELS_ELEMENT_COMPLEX_H
#define KERNELS_ELEMENT_COMPLEX_H

#include "kernels/element.h"

#define KERNEL_COMPLEX(name, R, f)                                                                            \
    struct kernel_##name {                                                                                    \
        R re;                                                                                                 \
        R im;                                                                                                 \
    };                                                                                                        \
    KERNEL_FN struct kernel_##name kernel_##name##_make(R re, R im)                                           \
    {                                                                                                         \
        struct kernel_##name z;                                                                               \
                                                                                                              \
        z.re = re;                                                                                            \
        z.im = im;                                                                                            \
        return z;                                                                                             \
    }                                                                                                         \
    KERNEL_FN struct kernel_##name kernel_##name##_add(struct kernel_##name a,                                \
                                                       struct kernel_##name b)                                \
    {                                                                                                         \
        return kernel_##name##_make(a.re + b.re, a.im + b.im);                                                \
    }                                                                                                         \
    KERNEL_FN struct kernel_##name kernel_##name##_sub(struct kernel_##name a,                                \
                                                       struct kernel_##name b)                                \
    {                                                                                                         \
        return kernel_##name##_make(a.re - b.re, a.im - b.im);                                                \
    }                                                                                                         \
    KERNEL_FN struct kernel_##name kernel_##name##_mul(struct kernel_##name a,                                \
                                                       struct kernel_##name b)                                \
    {                                                                                                         \
        return kernel_##name##_make(a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re);                    \
    }                                                                                                         \
    KERNEL_FN struct kernel_##name kernel_##name##_div(struct kernel_##name a,                                \
                                                       struct kernel_##name b)                                \
    {                                                                                                         \
        R ratio;                                                                                              \
        R scale;                                                                                              \
                                                                                                              \
        if (fabs##f(b.re) >= fabs##f(b.im)) {                                                                 \
            ratio = b.im / b.re;                                                                              \
            scale = b.re + b.im * ratio;                                                                      \
            return kernel_##name##_make((a.re + a.im * ratio) / scale,                                        \
                                        (a.im - a.re * ratio) / scale);                                       \
        }                                                                                                     \
        ratio = b.re / b.im;                                                                                  \
        scale = b.im + b.re * ratio;                                                                          \
        return kernel_##name##_make((a.re * ratio + a.im) / scale,                                            \
                                    (a.im * ratio - a.re) / scale);                                           \
    }                                                                                                         \
    KERNEL_FN struct kernel_##name kernel_##name##_neg(struct kernel_##name a)                                \
    {                                                                                                         \
        return kernel_##name##_make(-a.re, -a.im);                                                            \
    }                                                                                                         \
    KERNEL_FN struct kernel_##name kernel_##name##_conj(struct kernel_##name a)                               \
    {                                                                                                         \
        return kernel_##name##_make(a.re, -a.im);                                                             \
    }                                                                                                         \
    KERNEL_FN R kernel_##name##_abs(struct kernel_##name a)                                                   \
    {                                                                                                         \
        return hypot##f(a.re, a.im);                                                                          \
    }                                                                                                         \
    KERNEL_FN int kernel_##name##_equal(struct kernel_##name a, struct kernel_##name b)                       \
    {                                                                                                         \
        return a.re == b.re && a.im == b.im;                                                                  \
    }                                                                                                         \
    KERNEL_FN int kernel_##name##_true(struct kernel_##name a)                                                \
    {                                                                                                         \
        return a.re != 0 || a.im != 0;                                                                        \
    }                                                                                                         \
    KERNEL_FN struct kernel_##name kernel_##name##_exp(struct kernel_##name a)                                \
    {                                                                                                         \
        R length = exp##f(a.re);                                                                              \
                                                                                                              \
        if (a.im == 0) { /* no infinity times 0 */                                                            \
            return kernel_##name##_make(length, a.im);                                                        \
        }                                                                                                     \
        return kernel_##name##_make(length * cos##f(a.im), length * sin##f(a.im));                            \
    }                                                                                                         \
    /* Near length 1 the logarithm of the length would be all rounding: there, log1p of its square less 1. */ \
    KERNEL_FN struct kernel_##name kernel_##name##_log(struct kernel_##name a)                                \
    {                                                                                                         \
        R length = hypot##f(a.re, a.im);                                                                      \
        R large  = fabs##f(a.re) > fabs##f(a.im) ? fabs##f(a.re) : fabs##f(a.im);                             \
        R small  = fabs##f(a.re) > fabs##f(a.im) ? fabs##f(a.im) : fabs##f(a.re);                             \
        R real   = log##f(length);                                                                            \
                                                                                                              \
        if (length > (R)0.5 && length < 2) {                                                                  \
            real = log1p##f((large - 1) * (large + 1) + small * small) / 2;                                   \
        }                                                                                                     \
        return kernel_##name##_make(real, atan2##f(a.im, a.re));                                              \
    }                                                                                                         \
    KERNEL_FN struct kernel_##name kernel_##name##_sqrt(struct kernel_##name a)                               \
    {                                                                                                         \
        R root = sqrt##f(fabs##f(a.re) / 2 + hypot##f(a.re / 2, a.im / 2));                                   \
                                                                                                              \
        if (root == 0) {                                                                                      \
            return kernel_##name##_make(0, a.im);                                                             \
        }                                                                                                     \
        if (a.re >= 0) {                                                                                      \
            return kernel_##name##_make(root, a.im / (2 * root));                                             \
        }                                                                                                     \
        return kernel_##name##_make(fabs##f(a.im) / (2 * root), copysign##f(root, a.im));                     \
    }

/* The functions of double have no suffix. */
KERNEL_COMPLEX(c64, float, f)
KERNEL_COMPLEX(c128, double, )

KERNEL_FN struct kernel_c128 kernel_c64_widen(struct kernel_c64 a)
{
    return kernel_c128_make((double)a.re, (double)a.im);
}

KERNEL_FN struct kernel_c64 kernel_c128_narrow(struct kernel_c128 a)
{
    return kernel_c64_make((float)a.re, (float)a.im);
}

/* --------------------------------------------------------------------------- operations */

/* As in element_ops.h; Z(f) names the function f of the type, a, b and s are of the type. */
#define KERNEL_UNARY_COMPLEX(XX)             \
    XX(NEGATIVE, Z(neg)(a))                  \
    XX(SQUARE, Z(mul)(a, a))                 \
    XX(RECIPROCAL, Z(div)(Z(make)(1, 0), a)) \
    XX(CONJ, Z(conj)(a))                     \
    XX(ADD_SCALAR, Z(add)(a, s))             \
    XX(MULTIPLY_SCALAR, Z(make)(a.re * s.re, a.im * s.re))
#define KERNEL_HEAVY_COMPLEX(XX) \
    XX(SQRT, Z(sqrt)(a))         \
    XX(EXP, Z(exp)(a))           \
    XX(LOG, Z(log)(a))
#define KERNEL_BINARY_COMPLEX(XX) \
    XX(ADD, Z(add)(a, b))         \
    XX(SUBTRACT, Z(sub)(a, b))    \
    XX(MULTIPLY, Z(mul)(a, b))    \
    XX(DIVIDE, Z(div)(a, b))      \
    XX(AXPY, Z(add)(a, Z(mul)(s, b)))
#define KERNEL_COMPARE_COMPLEX(XX)            \
    XX(EQUAL, Z(equal)(a, b))                 \
    XX(LOGICAL_AND, Z(true)(a) && Z(true)(b)) \
    XX(LOGICAL_OR, Z(true)(a) || Z(true)(b))  \
    XX(NOT, !Z(true)(a))
/* y is real. */
#define KERNEL_PART_COMPLEX(XX) \
    XX(REAL, a.re)              \
    XX(IMAG, a.im)              \
    XX(ABS, Z(abs)(a))

#endif
