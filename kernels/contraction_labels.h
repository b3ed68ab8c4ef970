/*
 * The labels of einsum, which cross the wire as integers: for the shape rules and for what runs.
 */
#ifndef KERNELS_CONTRACTION_LABELS_H
#define KERNELS_CONTRACTION_LABELS_H

#include "kernels/kernels.h"

/* Up to eight letters in the bytes of an integer, the first in the lowest, ended by 0. */
struct kernel_labels {
    uint32_t count;
    char label[PL_DIM_MAX];
};
/* false: something that is no letter, or something behind the end. */
bool kernel_labels_of(int64_t packed, struct kernel_labels *out);

#endif
