/* Shapes, views, boxes and ranges: what goes out comes back, and nothing wrong comes in. */
#include "tests/harness/test.h"

#include "tests/unit/wire/samples.h"

TEST(shapes_come_back)
{
    struct pl_shape shape = {.dtype = PL_F64, .ndim = 3, .dim = {2, 3, 4}}, got;
    Plasmon__V1__Shape wire;
    uint64_t dims[PL_DIM_MAX];
    struct pl_err err;

    for (uint32_t ndim = 0; ndim <= PL_DIM_MAX; ndim++) {
        shape.ndim = ndim;
        for (uint32_t d = 0; d < ndim; d++) {
            shape.dim[d] = 1 + d;
        }
        wire_shape_put(&shape, &wire, dims);
        ASSERT_OK(wire_shape_get(&wire, &got, &err));
        ASSERT_TRUE(pl_shape_equal(&shape, &got));
    }
}

TEST(bad_shapes_are_refused)
{
    uint64_t dims[9]        = {1, 1, 1, 1, 1, 1, 1, 1, 1};
    Plasmon__V1__Shape wire = PLASMON__V1__SHAPE__INIT;
    struct pl_shape got;
    struct pl_err err;

    wire.dtype = PL_F32;
    wire.dim   = dims;
    wire.n_dim = 9;
    ASSERT_STATUS(wire_shape_get(&wire, &got, &err), PLASMON_EMALFORMED);
    ASSERT_CONTAINS(err.text, "9 dimensions");

    wire.n_dim = 2;
    dims[1]    = 0;
    ASSERT_STATUS(wire_shape_get(&wire, &got, &err), PLASMON_EMALFORMED);
    dims[1] = UINT64_MAX;
    ASSERT_STATUS(wire_shape_get(&wire, &got, &err), PLASMON_EMALFORMED);
    dims[0] = dims[1] = 1ull << 40;
    ASSERT_STATUS(wire_shape_get(&wire, &got, &err), PLASMON_EMALFORMED);
    dims[0] = dims[1] = 1;
    wire.dtype        = 77;
    ASSERT_STATUS(wire_shape_get(&wire, &got, &err), PLASMON_EMALFORMED);
    ASSERT_STATUS(wire_shape_get(NULL, &got, &err), PLASMON_EMALFORMED);
}

TEST(views_come_back)
{
    struct pl_shape root = {.dtype = PL_F32, .ndim = 2, .dim = {100, 50}};
    uint64_t seed        = test_seed();
    struct pl_err err;

    for (int round = 0; round < 1000; round++) {
        struct pl_view view = {.ndim = 2}, got;
        int64_t numbers[3 * PL_DIM_MAX];

        for (int d = 0; d < 2; d++) {
            view.start[d] = (int64_t)(test_random(&seed) % (uint64_t)root.dim[d]);
            view.step[d]  = (int64_t)(test_random(&seed) % 5 + 1);
            view.count[d] = (root.dim[d] - view.start[d] - 1) / view.step[d] + 1;
        }
        ASSERT_EQ(wire_view_put(&view, numbers), 6);
        ASSERT_OK(wire_view_get(6, numbers, &root, &got, &err));
        ASSERT_EQ(memcmp(&view, &got, sizeof(view)), 0);

        numbers[1]++; /* one element more than fits */
        ASSERT_TRUE(wire_view_get(6, numbers, &root, &got, &err) != PLASMON_OK);
    }
}

TEST(an_empty_view_is_the_whole)
{
    struct pl_shape root = {.dtype = PL_F32, .ndim = 2, .dim = {100, 50}};
    struct pl_view got;
    struct pl_err err;

    ASSERT_OK(wire_view_get(0, NULL, &root, &got, &err));
    ASSERT_EQ(got.ndim, 2);
    ASSERT_EQ(got.count[1], 50);
}

TEST(bad_views_are_refused)
{
    struct pl_shape root          = {.dtype = PL_F32, .ndim = 1, .dim = {100}};
    static const int64_t bad[][3] = {
        {-1, 1, 1},        {0, 0, 1},  {0, 1, 0},         {0, -5, 1},
        {0, 101, 1},       {0, 51, 2}, {INT64_MAX, 2, 1}, {0, INT64_MAX, INT64_MAX},
        {INT64_MAX, 1, 1},
    };
    int64_t two[6] = {0, 1, 1, 0, 1, 1};
    struct pl_view got;
    struct pl_err err;

    for (size_t i = 0; i < PL_COUNT(bad); i++) {
        if (wire_view_get(3, bad[i], &root, &got, &err) == PLASMON_OK) {
            test_fail(__FILE__, __LINE__, "view %zu was taken", i);
        }
    }
    ASSERT_STATUS(wire_view_get(4, two, &root, &got, &err), PLASMON_EMALFORMED);
    ASSERT_TRUE(wire_view_get(6, two, &root, &got, &err) != PLASMON_OK);
}

TEST(boxes_come_back_and_bad_ones_do_not)
{
    struct pl_box box = {.ndim = 2, .start = {3, 0}, .count = {4, 9}}, got;
    int64_t numbers[2 * PL_DIM_MAX];
    struct pl_err err;

    ASSERT_EQ(wire_box_put(&box, numbers), 4);
    ASSERT_OK(wire_box_get(4, numbers, &got, &err));
    ASSERT_TRUE(pl_box_equal(&box, &got));

    ASSERT_STATUS(wire_box_get(3, numbers, &got, &err), PLASMON_EMALFORMED);
    numbers[3] = 0;
    ASSERT_STATUS(wire_box_get(4, numbers, &got, &err), PLASMON_EMALFORMED);
    numbers[3] = INT64_MAX;
    ASSERT_STATUS(wire_box_get(4, numbers, &got, &err), PLASMON_EMALFORMED);
    numbers[3] = 9;
    numbers[0] = -1;
    ASSERT_STATUS(wire_box_get(4, numbers, &got, &err), PLASMON_EMALFORMED);
    ASSERT_OK(wire_box_get(0, NULL, &got, &err));
    ASSERT_EQ(got.ndim, 0);
}

TEST(buffer_and_point_numbers_come_apart_again)
{
    uint64_t buffer = wire_buffer(65534, 0xabcdef, 0x123456),
             point  = wire_point(7, 1ull << 47);

    ASSERT_EQ(wire_buffer_device(buffer), 65534);
    ASSERT_EQ(wire_buffer_slot(buffer), 0xabcdef);
    ASSERT_EQ(wire_buffer_generation(buffer), 0x123456);
    ASSERT_EQ(wire_point_device(point), 7);
    ASSERT_EQ(wire_point_seq(point), 1ll << 47);
}

static bool ranges_have(const struct wire_ranges *ranges, uint64_t number)
{
    for (size_t i = 0; i < ranges->items.count; i++) {
        const struct wire_range *range = pl_vec_at(&ranges->items, i);

        if (number >= range->first && number - range->first < range->count) {
            return true;
        }
    }
    return false;
}

TEST(a_run_of_numbers_is_one_range)
{
    struct wire_ranges ranges;

    wire_ranges_init(&ranges);
    for (uint64_t n = 10; n < 1000; n++) {
        ASSERT_OK(wire_ranges_add(&ranges, n));
    }
    ASSERT_OK(wire_ranges_add(&ranges, 9));
    ASSERT_OK(wire_ranges_add(&ranges, 500));
    ASSERT_EQ(ranges.items.count, 1);
    ASSERT_EQ(((struct wire_range *)pl_vec_at(&ranges.items, 0))->first, 9);
    ASSERT_EQ(((struct wire_range *)pl_vec_at(&ranges.items, 0))->count, 991);
    wire_ranges_clear(&ranges);
    ASSERT_EQ(ranges.items.count, 0);
    wire_ranges_finish(&ranges);
}

TEST(ranges_hold_exactly_what_was_added)
{
    struct wire_ranges ranges;
    uint64_t seed = test_seed();
    bool in[300]  = {false};

    wire_ranges_init(&ranges);
    for (int i = 0; i < 200; i++) {
        uint64_t n = test_random(&seed) % PL_COUNT(in);

        in[n] = true;
        ASSERT_OK(wire_ranges_add(&ranges, n));
    }
    for (uint64_t n = 0; n < PL_COUNT(in); n++) {
        ASSERT_EQ(ranges_have(&ranges, n), in[n]);
    }
    wire_ranges_finish(&ranges);
}

TEST_MAIN()
