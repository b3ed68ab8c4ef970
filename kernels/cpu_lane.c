/*
 * Functions that work along an axis, on a CPU: softmax, scans, norms of a lane at a time.
 */
#include "kernels/cpu.h"

struct lanes {
    void (*fn)(void *user, const struct cpu_lane *lane);
    void *user;
    struct cpu_lane lane;
};

static void lanes_run(void *user, char *const ptr[], const int64_t stride[], int64_t first,
                      int64_t n)
{
    struct lanes *lanes = user;

    (void)first;
    for (int64_t i = 0; i < n; i++) {
        lanes->lane.y = ptr[0] + i * stride[0];
        lanes->lane.x = ptr[1] + i * stride[1];
        lanes->fn(lanes->user, &lanes->lane);
    }
}

/* The first elements of the lanes. */
static struct kernel_arg without_axis(const struct kernel_arg *x, uint32_t axis)
{
    struct kernel_arg view = *x;

    view.dim[axis] = 1;
    return view;
}

void cpu_each_lane(const struct kernel_arg *y, const struct kernel_arg *x, uint32_t axis,
                   void (*fn)(void *user, const struct cpu_lane *lane), void *user)
{
    struct kernel_arg first_y = without_axis(y, axis);
    struct kernel_arg first_x = without_axis(x, axis);
    struct lanes lanes        = {
               .fn   = fn,
               .user = user,
               .lane = {.y_step = y->stride[axis] * (int64_t)pl_dtype_bytes(y->dtype),
                        .x_step = x->stride[axis] * (int64_t)pl_dtype_bytes(x->dtype),
                        .length = x->dim[axis]}};
    struct kernel_walk walk;

    kernel_walk_init(&walk, &first_y);
    kernel_walk_add(&walk, &first_x);
    kernel_walk_run(&walk, lanes_run, &lanes);
}
