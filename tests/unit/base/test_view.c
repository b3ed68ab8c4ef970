/* Views against enumeration: element i of a view of a view is found by following both by hand. */
#include "tests/harness/test.h"

#include "base/box.h"

#define ROUNDS 3000

static int64_t random_below(uint64_t *rng, int64_t limit)
{
    return (int64_t)(test_random(rng) % (uint64_t)limit);
}

/* A view that stays inside sizes `size`. */
static struct pl_view random_view(uint64_t *rng, uint32_t ndim, const int64_t *size)
{
    struct pl_view view = {.ndim = ndim};

    for (uint32_t d = 0; d < ndim; d++) {
        view.start[d] = random_below(rng, size[d]);
        view.step[d]  = 1 + random_below(rng, 4);
        view.count[d] =
            1 + random_below(rng, (size[d] - 1 - view.start[d]) / view.step[d] + 1);
    }
    return view;
}

static struct pl_shape random_shape(uint64_t *rng)
{
    struct pl_shape shape = {.dtype = PL_F32,
                             .ndim  = 1 + (uint32_t)random_below(rng, PL_DIM_MAX)};

    for (uint32_t d = 0; d < shape.ndim; d++) {
        shape.dim[d] = 1 + random_below(rng, 40);
    }
    return shape;
}

static int64_t view_at(const struct pl_view *view, uint32_t d, int64_t i)
{
    return view->start[d] + i * view->step[d];
}

TEST(random_views_inside_pass_and_pushed_outside_fail)
{
    uint64_t rng = test_seed();

    for (int round = 0; round < ROUNDS; round++) {
        struct pl_shape shape = random_shape(&rng);
        struct pl_view view   = random_view(&rng, shape.ndim, shape.dim);
        uint32_t d            = (uint32_t)random_below(&rng, shape.ndim);
        struct pl_err err;

        ASSERT_OK(pl_view_check(&view, &shape, NULL));
        view.start[d] +=
            shape.dim[d] -
            view_at(&view, d, view.count[d] - 1); /* its last element is one too far */
        ASSERT_STATUS(pl_view_check(&view, &shape, &err), PLASMON_ERANGE);
    }
}

TEST(hostile_views_are_refused)
{
    struct pl_shape shape = {.dtype = PL_F32, .ndim = 1, .dim = {100}};
    static const struct {
        int64_t start, count, step;
    } bad[] = {
        {-1, 5, 1},        {0, 0, 1},         {0, -3, 1},        {0, 5, 0},
        {0, 5, -1},        {100, 1, 1},       {0, 101, 1},       {INT64_MAX, 2, 1},
        {1, INT64_MAX, 1}, {0, INT64_MAX, 2}, {0, 3, INT64_MAX}, {5, 2, INT64_MAX},
        {INT64_MIN, 1, 1}, {0, INT64_MIN, 1}, {0, 2, INT64_MIN}, {99, 2, 1},
    };

    for (size_t i = 0; i < PL_COUNT(bad); i++) {
        struct pl_view view = {.ndim  = 1,
                               .start = {bad[i].start},
                               .count = {bad[i].count},
                               .step  = {bad[i].step}};
        struct pl_err err;

        ASSERT_STATUS(pl_view_check(&view, &shape, &err), PLASMON_ERANGE);
        ASSERT_CONTAINS(err.text, "dimension 0");
    }
}

TEST(a_view_of_another_rank_is_refused)
{
    struct pl_shape shape = {.dtype = PL_F32, .ndim = 2, .dim = {4, 4}};
    struct pl_view view   = {.ndim = 1, .count = {1}, .step = {1}};

    ASSERT_STATUS(pl_view_check(&view, &shape, NULL), PLASMON_ERANGE);
}

TEST(composed_views_show_the_same_elements)
{
    uint64_t rng = test_seed();

    for (int round = 0; round < ROUNDS; round++) {
        struct pl_shape shape = random_shape(&rng);
        struct pl_view outer  = random_view(&rng, shape.ndim, shape.dim);
        struct pl_view inner  = random_view(&rng, shape.ndim, outer.count);
        struct pl_view both;

        ASSERT_OK(pl_view_compose(&outer, &inner, &both, NULL));
        ASSERT_OK(pl_view_check(&both, &shape, NULL));
        for (uint32_t d = 0; d < shape.ndim; d++) {
            ASSERT_EQ(both.count[d], inner.count[d]);
            for (int64_t i = 0; i < inner.count[d]; i++) {
                ASSERT_EQ(view_at(&both, d, i), view_at(&outer, d, view_at(&inner, d, i)));
            }
        }
    }
}

TEST(composing_beyond_the_outer_view_is_refused)
{
    struct pl_view outer = {.ndim = 1, .start = {10}, .count = {5}, .step = {2}};
    struct pl_view inner = {.ndim = 1, .start = {3}, .count = {3}, .step = {1}};
    struct pl_view out   = {.ndim = 77};
    struct pl_err err;

    ASSERT_STATUS(pl_view_compose(&outer, &inner, &out, &err), PLASMON_ERANGE);
    ASSERT_CONTAINS(err.text, "dimension 0");
    ASSERT_EQ(out.ndim, 77);
}

TEST(composing_steps_of_single_elements_does_not_overflow)
{
    struct pl_view outer = {.ndim = 1, .start = {7}, .count = {1}, .step = {INT64_MAX}};
    struct pl_view inner = {.ndim = 1, .start = {0}, .count = {1}, .step = {INT64_MAX}};
    struct pl_view both;

    ASSERT_OK(pl_view_compose(&outer, &inner, &both, NULL));
    ASSERT_EQ(both.start[0], 7);
    ASSERT_EQ(both.step[0], 1);
}

TEST(composing_unchecked_numbers_is_refused_not_wrapped)
{
    struct pl_view outer = {
        .ndim = 1, .start = {0}, .count = {INT64_MAX}, .step = {INT64_MAX}};
    struct pl_view inner = {.ndim = 1, .start = {4}, .count = {1}, .step = {1}};
    struct pl_view both;

    ASSERT_STATUS(pl_view_compose(&outer, &inner, &both, NULL), PLASMON_ERANGE);
}

TEST(more_dimensions_than_there_are_is_refused)
{
    struct pl_view view = {.ndim = PL_DIM_MAX + 1}, out;
    struct pl_err err;

    for (uint32_t d = 0; d < PL_DIM_MAX; d++) {
        view.count[d] = 1;
        view.step[d]  = 1;
    }
    ASSERT_STATUS(pl_view_compose(&view, &view, &out, &err), PLASMON_ERANGE);
    ASSERT_CONTAINS(err.text, "9 dimensions; the limit is 8");
}

TEST(the_hull_is_the_smallest_box_around_a_view)
{
    uint64_t rng = test_seed();

    for (int round = 0; round < ROUNDS; round++) {
        struct pl_shape shape = random_shape(&rng);
        struct pl_view view   = random_view(&rng, shape.ndim, shape.dim);
        struct pl_box hull    = pl_view_hull(&view);

        ASSERT_EQ(hull.ndim, shape.ndim);
        for (uint32_t d = 0; d < shape.ndim; d++) {
            ASSERT_EQ(hull.start[d], view_at(&view, d, 0));
            ASSERT_EQ(hull.start[d] + hull.count[d] - 1,
                      view_at(&view, d, view.count[d] - 1));
        }
    }
}

TEST(a_view_is_dense_if_its_hull_has_no_other_elements)
{
    uint64_t rng = test_seed();

    for (int round = 0; round < ROUNDS; round++) {
        struct pl_shape shape      = random_shape(&rng);
        struct pl_view view        = random_view(&rng, shape.ndim, shape.dim);
        struct pl_box hull         = pl_view_hull(&view);
        struct pl_shape view_shape = pl_view_shape(&view, PL_F32);

        ASSERT_EQ(pl_view_dense(&view),
                  pl_box_elements(&hull) == pl_shape_elements(&view_shape));
    }
}

TEST(the_whole_view_is_the_shape)
{
    struct pl_shape shape = {.dtype = PL_I16, .ndim = 3, .dim = {2, 3, 4}};
    struct pl_view view   = pl_view_whole(&shape);
    struct pl_shape back  = pl_view_shape(&view, PL_I16);
    struct pl_box hull    = pl_view_hull(&view);
    struct pl_box all     = pl_box_of_shape(&shape);

    ASSERT_OK(pl_view_check(&view, &shape, NULL));
    ASSERT_TRUE(pl_view_dense(&view));
    ASSERT_TRUE(pl_shape_equal(&shape, &back));
    ASSERT_TRUE(pl_box_equal(&hull, &all));
}

TEST_MAIN()
