/* Plans of box copies: that they reach each element once, and that they have as few loops as they could. */
#include "device/copy_plan.h"

#include "base/box.h"
#include "tests/harness/test.h"

static struct device_copy_plan plan_of(uint32_t ndim, const int64_t *dst,
                                       const int64_t *src, const int64_t *part,
                                       uint32_t element_bytes)
{
    struct pl_box dst_frame = {.ndim = ndim};
    struct pl_box src_frame = {.ndim = ndim};
    struct pl_box box       = {.ndim = ndim};
    struct device_copy_plan plan;

    for (uint32_t d = 0; d < ndim; d++) {
        dst_frame.count[d] = dst[d];
        src_frame.count[d] = src[d];
        box.count[d]       = part[d];
    }
    device_copy_plan_init(&plan, &box, element_bytes, &dst_frame, &src_frame);
    return plan;
}

#define DIMS(...) ((const int64_t[]){__VA_ARGS__})

TEST(a_whole_array_is_one_run)
{
    struct device_copy_plan plan =
        plan_of(4, DIMS(3, 4, 5, 6), DIMS(3, 4, 5, 6), DIMS(3, 4, 5, 6), 8);

    ASSERT_EQ(plan.loop_count, 0);
    ASSERT_EQ(plan.run_bytes, 3 * 4 * 5 * 6 * 8);
    ASSERT_EQ(device_copy_plan_runs(&plan, 0), 1);
}

TEST(a_slab_of_whole_rows_is_one_run)
{
    struct device_copy_plan plan =
        plan_of(3, DIMS(2, 5, 6), DIMS(9, 5, 6), DIMS(2, 5, 6), 4);

    ASSERT_EQ(plan.loop_count, 0);
    ASSERT_EQ(plan.run_bytes, 2 * 5 * 6 * 4);
}

TEST(a_tile_is_one_loop_of_rows)
{
    struct device_copy_plan plan = plan_of(2, DIMS(10, 20), DIMS(30, 40), DIMS(7, 9), 4);

    ASSERT_EQ(plan.loop_count, 1);
    ASSERT_EQ(plan.run_bytes, 9 * 4);
    ASSERT_EQ(plan.count[0], 7);
    ASSERT_EQ(plan.dst_stride[0], 20 * 4);
    ASSERT_EQ(plan.src_stride[0], 40 * 4);
}

TEST(dimensions_that_step_alike_become_one_loop)
{
    /* Cut along the last dimension only: the outer three are one loop over 2 * 3 * 4 rows. */
    struct device_copy_plan plan =
        plan_of(4, DIMS(2, 3, 4, 8), DIMS(2, 3, 4, 16), DIMS(2, 3, 4, 8), 8);

    ASSERT_EQ(plan.loop_count, 1);
    ASSERT_EQ(plan.count[0], 2 * 3 * 4);
    ASSERT_EQ(plan.run_bytes, 64);
}

TEST(dimensions_of_one_element_are_no_loops)
{
    struct device_copy_plan plan =
        plan_of(4, DIMS(5, 9, 7, 8), DIMS(5, 9, 7, 8), DIMS(5, 1, 1, 8), 1);

    ASSERT_EQ(plan.loop_count, 1);
    ASSERT_EQ(plan.count[0], 5);
    ASSERT_EQ(plan.src_stride[0], 9 * 7 * 8);
}

TEST(a_scalar_is_one_run)
{
    struct device_copy_plan plan = plan_of(0, DIMS(0), DIMS(0), DIMS(0), 16);

    ASSERT_EQ(plan.loop_count, 0);
    ASSERT_EQ(plan.run_bytes, 16);
}

TEST(the_width_divides_runs_strides_and_addresses)
{
    struct device_copy_plan plan = plan_of(2, DIMS(8, 64), DIMS(8, 32), DIMS(8, 16), 4);

    ASSERT_EQ(device_copy_plan_width(&plan, 4096, 8192), 16);
    ASSERT_EQ(device_copy_plan_width(&plan, 4096 + 8, 8192), 8);
    ASSERT_EQ(device_copy_plan_width(&plan, 4096, 8192 + 3), 1);
    plan = plan_of(2, DIMS(8, 64), DIMS(8, 33), DIMS(8, 16), 4);
    ASSERT_EQ(device_copy_plan_width(&plan, 4096, 8192), 4);
    plan = plan_of(2, DIMS(8, 64), DIMS(8, 32), DIMS(8, 15), 2);
    ASSERT_EQ(device_copy_plan_width(&plan, 4096, 8192), 2);
}

/* Step through all runs of random plans; every element must be reached once, at the place base/box.c says. */
TEST(the_runs_of_a_plan_reach_each_element_once)
{
    enum { FRAME_MAX = 8 * 8 * 8 * 8 * 8 };
    static uint16_t reached[FRAME_MAX];
    uint64_t seed = test_seed();

    for (unsigned trial = 0; trial < 500; trial++) {
        uint64_t index[DEVICE_COPY_LOOPS_MAX] = {0};
        uint32_t ndim                         = 1 + (uint32_t)(test_random(&seed) % 5);
        struct pl_box box                     = {.ndim = ndim};
        struct pl_box dst                     = {.ndim = ndim};
        struct pl_box src                     = {.ndim = ndim};
        struct device_copy_plan plan;
        struct device_copy_plan start;
        int64_t visited = 0;

        for (uint32_t d = 0; d < ndim; d++) {
            box.count[d] = 1 + (int64_t)(test_random(&seed) % 5);
            box.start[d] = (int64_t)(test_random(&seed) % 3);
            dst.count[d] = box.start[d] + box.count[d] + (int64_t)(test_random(&seed) % 2);
            src.count[d] = box.start[d] + box.count[d] + (int64_t)(test_random(&seed) % 2);
        }
        device_copy_plan_init(&plan, &box, 1, &dst, &src);
        start = plan;
        memset(reached, 0, sizeof(reached));
        do {
            for (uint64_t i = 0; i < plan.run_bytes; i++) {
                ASSERT_TRUE(plan.dst_offset + i < FRAME_MAX);
                reached[plan.dst_offset + i]++;
                visited++;
            }
        } while (device_copy_plan_step(&plan, 0, index));
        ASSERT_EQ(plan.dst_offset, start.dst_offset);
        ASSERT_EQ(plan.src_offset, start.src_offset);
        ASSERT_EQ(visited, pl_box_elements(&box));
        for (int64_t at = 0; at < pl_box_elements(&dst); at++) {
            ASSERT_TRUE(reached[at] <= 1);
        }
    }
}

TEST_MAIN()
