/*
 * Boxes against the truth: a box is a set of index vectors, so each operation is compared with the
 * same operation on explicit sets, over a grid small enough to enumerate. Seeded; a failure prints
 * the seed.
 */
#include "tests/harness/test.h"

#include "base/box.h"

#include <stdlib.h>

#define GRID   7 /* coordinates 0 .. GRID - 1; boxes stay inside */
#define DIMS   4
#define ROUNDS 2000

static int64_t random_below(uint64_t *rng, int64_t limit)
{
    return (int64_t)(test_random(rng) % (uint64_t)limit);
}

static struct pl_box random_box(uint64_t *rng, uint32_t ndim)
{
    struct pl_box box = {.ndim = ndim};

    for (uint32_t d = 0; d < ndim; d++) {
        box.start[d] = random_below(rng, GRID);
        box.count[d] = 1 + random_below(rng, GRID - box.start[d]);
    }
    return box;
}

static bool has(const struct pl_box *box, const int64_t *at)
{
    for (uint32_t d = 0; d < box->ndim; d++) {
        if (at[d] < box->start[d] || at[d] >= box->start[d] + box->count[d]) {
            return false;
        }
    }
    return true;
}

/* Points of the grid of `ndim` dimensions, and the `n`th of them. */
static int64_t point_count(uint32_t ndim)
{
    int64_t count = 1;

    for (uint32_t d = 0; d < ndim; d++) {
        count *= GRID;
    }
    return count;
}

static void point_at(uint32_t ndim, int64_t n, int64_t at[PL_DIM_MAX])
{
    for (uint32_t d = ndim; d-- > 0;) {
        at[d] = n % GRID;
        n /= GRID;
    }
}

/* Bit 0: in a, bit 1: in b; how many points have each value. */
static void classify(const struct pl_box *a, const struct pl_box *b, int64_t out_count[4])
{
    int64_t at[PL_DIM_MAX];

    memset(out_count, 0, 4 * sizeof(out_count[0]));
    for (int64_t n = 0; n < point_count(a->ndim); n++) {
        point_at(a->ndim, n, at);
        out_count[(has(a, at) ? 1 : 0) | (has(b, at) ? 2 : 0)]++;
    }
}

TEST(relations_agree_with_sets)
{
    uint64_t rng = test_seed();

    for (int round = 0; round < ROUNDS; round++) {
        uint32_t ndim   = (uint32_t)random_below(&rng, DIMS + 1);
        struct pl_box a = random_box(&rng, ndim);
        struct pl_box b = random_below(&rng, 10) == 0 ? a : random_box(&rng, ndim);
        int64_t count[4];

        classify(&a, &b, count);
        ASSERT_EQ(pl_box_elements(&a), count[1] + count[3]);
        ASSERT_EQ(pl_box_intersects(&a, &b), count[3] > 0);
        ASSERT_EQ(pl_box_contains(&a, &b), count[2] == 0);
        ASSERT_EQ(pl_box_equal(&a, &b), count[1] == 0 && count[2] == 0);
    }
}

TEST(intersection_has_exactly_the_common_points)
{
    uint64_t rng = test_seed();

    for (int round = 0; round < ROUNDS; round++) {
        uint32_t ndim   = 1 + (uint32_t)random_below(&rng, DIMS);
        struct pl_box a = random_box(&rng, ndim);
        struct pl_box b = random_box(&rng, ndim);
        struct pl_box both;
        int64_t at[PL_DIM_MAX];

        memset(&both, 0xee, sizeof(both));
        if (!pl_box_intersection(&a, &b, &both)) {
            ASSERT_TRUE(!pl_box_intersects(&a, &b));
            ASSERT_EQ(pl_box_common(&a, &b), 0);
            ASSERT_EQ(both.ndim, 0xeeeeeeee); /* untouched */
            continue;
        }
        ASSERT_EQ(pl_box_common(&a, &b), pl_box_elements(&both));
        for (int64_t n = 0; n < point_count(ndim); n++) {
            point_at(ndim, n, at);
            ASSERT_EQ(has(&both, at), has(&a, at) && has(&b, at));
        }
    }
}

TEST(intersection_may_write_over_its_argument)
{
    struct pl_box a = {.ndim = 2, .start = {0, 2}, .count = {4, 4}};
    struct pl_box b = {.ndim = 2, .start = {2, 0}, .count = {4, 4}};
    struct pl_box want;

    ASSERT_TRUE(pl_box_intersection(&a, &b, &want));
    ASSERT_TRUE(pl_box_intersection(&a, &b, &a));
    ASSERT_TRUE(pl_box_equal(&a, &want));
}

TEST(subtraction_covers_each_remaining_point_once)
{
    uint64_t rng = test_seed();

    for (int round = 0; round < ROUNDS; round++) {
        uint32_t ndim   = (uint32_t)random_below(&rng, DIMS + 1);
        struct pl_box a = random_box(&rng, ndim);
        struct pl_box b = random_box(&rng, ndim);
        struct pl_box parts[2 * PL_DIM_MAX];
        unsigned count = pl_box_subtract(&a, &b, parts);

        ASSERT_TRUE(count <= (ndim > 0 ? 2 * ndim : 1));
        for (int64_t n = 0; n < point_count(ndim); n++) {
            int64_t at[PL_DIM_MAX];
            unsigned covered = 0;

            point_at(ndim, n, at);
            for (unsigned i = 0; i < count; i++) {
                covered += has(&parts[i], at);
            }
            ASSERT_EQ(covered, has(&a, at) && !has(&b, at));
        }
    }
}

TEST(subtraction_gives_only_proper_boxes)
{
    uint64_t rng = test_seed();

    for (int round = 0; round < ROUNDS; round++) {
        uint32_t ndim   = 1 + (uint32_t)random_below(&rng, PL_DIM_MAX);
        struct pl_box a = random_box(&rng, ndim);
        struct pl_box b = random_box(&rng, ndim);
        struct pl_box parts[2 * PL_DIM_MAX];
        struct pl_box both;
        int64_t left   = pl_box_elements(&a);
        unsigned count = pl_box_subtract(&a, &b, parts);

        if (pl_box_intersection(&a, &b, &both)) {
            left -= pl_box_elements(&both);
        }
        for (unsigned i = 0; i < count; i++) {
            ASSERT_EQ(parts[i].ndim, ndim);
            ASSERT_TRUE(pl_box_contains(&a, &parts[i]));
            for (uint32_t d = 0; d < ndim; d++) {
                ASSERT_TRUE(parts[i].count[d] >= 1);
            }
            left -= pl_box_elements(&parts[i]);
        }
        ASSERT_EQ(left, 0);
    }
}

TEST(subtraction_of_the_middle_of_a_cube_gives_six_slabs_in_order)
{
    struct pl_box cube   = {.ndim = 3, .count = {3, 3, 3}};
    struct pl_box middle = {.ndim = 3, .start = {1, 1, 1}, .count = {1, 1, 1}};
    struct pl_box want[] = {
        {.ndim = 3, .start = {0, 0, 0}, .count = {1, 3, 3}},
        {.ndim = 3, .start = {2, 0, 0}, .count = {1, 3, 3}},
        {.ndim = 3, .start = {1, 0, 0}, .count = {1, 1, 3}},
        {.ndim = 3, .start = {1, 2, 0}, .count = {1, 1, 3}},
        {.ndim = 3, .start = {1, 1, 0}, .count = {1, 1, 1}},
        {.ndim = 3, .start = {1, 1, 2}, .count = {1, 1, 1}},
    };
    struct pl_box parts[2 * PL_DIM_MAX];

    ASSERT_EQ(pl_box_subtract(&cube, &middle, parts), 6);
    for (size_t i = 0; i < PL_COUNT(want); i++) {
        ASSERT_TRUE(pl_box_equal(&parts[i], &want[i]));
    }
}

TEST(offset_counts_the_points_before_in_c_order)
{
    uint64_t rng = test_seed();

    for (int round = 0; round < ROUNDS; round++) {
        uint32_t ndim       = (uint32_t)random_below(&rng, DIMS + 1);
        struct pl_box frame = random_box(&rng, ndim);
        int64_t before      = 0;

        for (int64_t n = 0; n < point_count(ndim); n++) {
            int64_t at[PL_DIM_MAX];

            point_at(ndim, n, at);
            if (has(&frame, at)) {
                ASSERT_EQ(pl_box_offset(&frame, at), before);
                before++;
            }
        }
    }
}

TEST(strides_are_differences_of_offsets)
{
    uint64_t rng = test_seed();

    for (int round = 0; round < ROUNDS; round++) {
        uint32_t ndim       = 1 + (uint32_t)random_below(&rng, PL_DIM_MAX);
        struct pl_box frame = random_box(&rng, ndim);
        int64_t stride[PL_DIM_MAX];

        pl_box_strides(&frame, stride);
        for (uint32_t d = 0; d < ndim; d++) {
            struct pl_box next = frame;

            next.start[d]++;
            if (frame.count[d] > 1) {
                ASSERT_EQ(pl_box_offset(&frame, next.start), stride[d]);
            }
        }
    }
}

TEST_MAIN()
