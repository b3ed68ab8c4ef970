/*
 * Euclidean lengths that neither overflow nor vanish where the result does not: the squares of
 * large, middling and small numbers are summed apart, the large and the small ones scaled (Blue,
 * ACM TOMS 4, 1978). One reading, and partial results join by adding, so it works in any order.
 * Shared by the CPU and the CUDA variants.
 */
#ifndef KERNELS_NORM_H
#define KERNELS_NORM_H

#include "kernels/element.h"

struct kernel_squares {
    double large;  /* of x 2^-600 for |x| > 2^500 */
    double middle; /* of x */
    double small;  /* of x 2^600 for |x| < 2^-500 */
};

KERNEL_FN void kernel_squares_add(struct kernel_squares *sum, double x)
{
    double size = fabs(x);

    if (size > 0x1p500) {
        size *= 0x1p-600;
        sum->large += size * size;
    } else if (size < 0x1p-500) {
        size *= 0x1p600;
        sum->small += size * size;
    } else { /* NaN, too */
        sum->middle += size * size;
    }
}

KERNEL_FN double kernel_squares_root(const struct kernel_squares *sum)
{
    if (sum->large > 0) { /* the small ones are lost in rounding */
        return sqrt(sum->large + sum->middle * 0x1p-600 * 0x1p-600) * 0x1p600;
    }
    if (sum->middle == 0) {
        return sqrt(sum->small) * 0x1p-600;
    }
    return sqrt(sum->middle + sum->small * 0x1p-600 * 0x1p-600);
}

#endif
