/*
 * Walking strided arrays together; see walk.h.
 */
#include "kernels/walk.h"

#include <assert.h>
#include <string.h>

void kernel_walk_init(struct kernel_walk *walk, const struct kernel_arg *arg)
{
    walk->ndim  = arg->ndim;
    walk->count = 0;
    for (uint32_t i = 0; i < arg->ndim; i++) {
        walk->dim[i] = arg->dim[i];
    }
    kernel_walk_add(walk, arg);
}

/* An array whose strides (bytes, per dimension of the walk) the caller works out. */
static void walk_add_strides(struct kernel_walk *walk, char *base,
                             const int64_t stride[PL_DIM_MAX])
{
    assert(walk->count < KERNEL_WALK_MAX);

    for (uint32_t i = 0; i < walk->ndim; i++) {
        walk->stride[walk->count][i] = stride[i];
    }
    walk->base[walk->count] = base;
    walk->count++;
}

void kernel_walk_add(struct kernel_walk *walk, const struct kernel_arg *arg)
{
    int64_t stride[PL_DIM_MAX] = {0};
    int64_t bytes              = pl_dtype_bytes(arg->dtype);
    uint32_t skip              = walk->ndim - arg->ndim; /* leading dimensions it lacks */

    assert(arg->ndim <= walk->ndim);

    for (uint32_t i = 0; i < arg->ndim; i++) {
        if (arg->dim[i] != 1) {
            stride[skip + i] = arg->stride[i] * bytes;
        }
    }
    walk_add_strides(walk, (char *)(uintptr_t)arg->data.addr, stride);
}

void kernel_walk_outputs(struct kernel_walk *walk, const struct kernel_arg *y,
                         const struct kernel_arg *x, int64_t axis)
{
    int64_t stride[PL_DIM_MAX] = {0};
    int64_t bytes              = pl_dtype_bytes(x->dtype);
    uint32_t next              = 0;

    kernel_walk_init(walk, y);
    for (uint32_t d = 0; d < x->ndim && axis != -1; d++) {
        if (axis == (int64_t)d) {
            next += y->ndim == x->ndim; /* kept, of length 1 */
        } else {
            stride[next++] = x->stride[d] * bytes;
        }
    }
    walk_add_strides(walk, (char *)(uintptr_t)x->data.addr, stride);
}

/* May dimension `inner` be joined to the one before it, which is `outer`? */
static bool walk_mergeable(const struct kernel_walk *walk, uint32_t outer, uint32_t inner)
{
    for (uint32_t i = 0; i < walk->count; i++) {
        if (walk->stride[i][outer] != walk->stride[i][inner] * walk->dim[inner]) {
            return false;
        }
    }
    return true;
}

void kernel_walk_merge(struct kernel_walk *walk)
{
    uint32_t kept = 0;

    for (uint32_t d = 0; d < walk->ndim; d++) {
        if (walk->dim[d] == 1) {
            continue;
        }
        if (kept > 0 && walk_mergeable(walk, kept - 1, d)) {
            walk->dim[kept - 1] *= walk->dim[d];
        } else {
            walk->dim[kept++] = walk->dim[d];
        }
        for (uint32_t i = 0; i < walk->count; i++) {
            walk->stride[i][kept - 1] = walk->stride[i][d];
        }
    }
    if (kept == 0) { /* 0-d: one element */
        walk->dim[0] = 1;
        for (uint32_t i = 0; i < walk->count; i++) {
            walk->stride[i][0] = 0;
        }
        kept = 1;
    }
    walk->ndim = kept;
}

void kernel_walk_run(struct kernel_walk *walk, kernel_run_fn run, void *user)
{
    int64_t at[PL_DIM_MAX]          = {0};
    int64_t stride[KERNEL_WALK_MAX] = {0};
    char *ptr[KERNEL_WALK_MAX]      = {NULL};
    int64_t first                   = 0;
    uint32_t inner;

    kernel_walk_merge(walk);
    inner = walk->ndim - 1;
    for (uint32_t i = 0; i < walk->count; i++) {
        stride[i] = walk->stride[i][inner];
        ptr[i]    = walk->base[i];
    }
    for (;;) {
        uint32_t d = inner;

        run(user, ptr, stride, first, walk->dim[inner]);
        first += walk->dim[inner];

        /* Count up, like an odometer, from the dimension before the inner one. */
        for (;;) {
            if (d == 0) {
                return;
            }
            d--;
            at[d]++;
            for (uint32_t i = 0; i < walk->count; i++) {
                ptr[i] += walk->stride[i][d];
            }
            if (at[d] < walk->dim[d]) {
                break;
            }
            for (uint32_t i = 0; i < walk->count; i++) {
                ptr[i] -= walk->stride[i][d] * walk->dim[d];
            }
            at[d] = 0;
        }
    }
}
