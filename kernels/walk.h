/*
 * Walking strided arrays together, on any device.
 *
 * A walk holds up to KERNEL_WALK_MAX arrays of one (broadcast) shape. Merged, it has no dimensions
 * of length 1, and neighbours that are contiguous in every array are one dimension: a dense array
 * becomes one long run whatever its shape. The order stays C order. On a CPU the walk itself calls
 * an inner function for each run of the last dimension; GPU kernels take the merged dimensions and
 * strides as they are.
 */
#ifndef KERNELS_WALK_H
#define KERNELS_WALK_H

#include "kernels/kernel_int.h"

#define KERNEL_WALK_MAX 4

struct kernel_walk {
    uint32_t ndim;
    uint32_t count; /* of arrays */
    int64_t dim[PL_DIM_MAX];
    int64_t stride[KERNEL_WALK_MAX][PL_DIM_MAX]; /* bytes */
    char *base[KERNEL_WALK_MAX]; /* device addresses where the device is a GPU */
};

/* Element `first` in C order is at ptr[i] for array i, the next ones `stride[i]` bytes on. */
typedef void (*kernel_run_fn)(void *user, char *const ptr[], const int64_t stride[],
                              int64_t first, int64_t n);

/* The walk has the shape of `arg`, which is its first array. */
void kernel_walk_init(struct kernel_walk *walk, const struct kernel_arg *arg);
/* Another array, broadcast to the walk's shape. */
void kernel_walk_add(struct kernel_walk *walk, const struct kernel_arg *arg);
/* A walk over the outputs of a reduction: y, and the first element of x that goes into each. */
void kernel_walk_outputs(struct kernel_walk *walk, const struct kernel_arg *y,
                         const struct kernel_arg *x, int64_t axis);
/* Idempotent. At least one dimension is left. */
void kernel_walk_merge(struct kernel_walk *walk);
/* Merges, then calls `run` for all of it; host memory only. */
void kernel_walk_run(struct kernel_walk *walk, kernel_run_fn run, void *user);

#endif
