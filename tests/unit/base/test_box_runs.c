/*
 * The copy walk against a copy element by element, and its runs against the definition of "as long
 * as possible": list the elements of the box in C order and join neighbours that touch in both
 * buffers.
 */
#include "tests/harness/test.h"

#include "base/box.h"

#include <stdlib.h>

#define FRAME_MAX 4
#define RUNS_MAX  8192
#define ROUNDS    1500

struct run {
    uint64_t dst, src, bytes;
};
struct runs {
    unsigned count;
    struct run run[RUNS_MAX];
};

static struct runs got, want;

static int64_t random_below(uint64_t *rng, int64_t limit)
{
    return (int64_t)(test_random(rng) % (uint64_t)limit);
}

/* A frame around `box`: in half of the dimensions exactly as wide, so that runs do merge. */
static struct pl_box random_frame(uint64_t *rng, const struct pl_box *box)
{
    struct pl_box frame = *box;

    for (uint32_t d = 0; d < box->ndim; d++) {
        if (random_below(rng, 2) == 0) {
            int64_t before = random_below(rng, 2);

            frame.start[d] -= before;
            frame.count[d] += before + random_below(rng, 2);
        }
    }
    return frame;
}

static struct pl_box random_box(uint64_t *rng)
{
    struct pl_box box = {.ndim = (uint32_t)random_below(rng, 6)};

    for (uint32_t d = 0; d < box.ndim; d++) {
        box.start[d] = 2 + random_below(rng, 3);
        box.count[d] = 1 + random_below(rng, FRAME_MAX);
    }
    return box;
}

static void runs_add(void *user, uint64_t dst, uint64_t src, uint64_t bytes)
{
    struct runs *runs = user;

    ASSERT_TRUE(runs->count < RUNS_MAX);
    runs->run[runs->count++] = (struct run){.dst = dst, .src = src, .bytes = bytes};
}

/* The next index vector inside `box` in C order; 0 after the last. */
static int next_index(const struct pl_box *box, int64_t at[PL_DIM_MAX])
{
    for (uint32_t d = box->ndim; d-- > 0;) {
        if (++at[d] < box->start[d] + box->count[d]) {
            return 1;
        }
        at[d] = box->start[d];
    }
    return 0;
}

static void runs_by_definition(const struct pl_box *box, const struct pl_box *dst_frame,
                               const struct pl_box *src_frame, uint32_t bytes,
                               struct runs *out)
{
    int64_t at[PL_DIM_MAX];

    memcpy(at, box->start, sizeof(at));
    out->count = 0;
    do {
        uint64_t dst     = (uint64_t)pl_box_offset(dst_frame, at) * bytes;
        uint64_t src     = (uint64_t)pl_box_offset(src_frame, at) * bytes;
        struct run *last = out->count > 0 ? &out->run[out->count - 1] : NULL;

        if (last != NULL && last->dst + last->bytes == dst &&
            last->src + last->bytes == src) {
            last->bytes += bytes;
        } else {
            runs_add(out, dst, src, bytes);
        }
    } while (next_index(box, at));
}

TEST(runs_are_the_longest_possible_and_in_order)
{
    uint64_t rng = test_seed();

    for (int round = 0; round < ROUNDS; round++) {
        struct pl_box box       = random_box(&rng);
        struct pl_box dst_frame = random_frame(&rng, &box);
        struct pl_box src_frame = random_frame(&rng, &box);

        runs_by_definition(&box, &dst_frame, &src_frame, 4, &want);
        got.count = 0;
        pl_box_runs(&box, &dst_frame, &src_frame, 4, runs_add, &got);

        ASSERT_EQ(got.count, want.count);
        ASSERT_EQ(memcmp(got.run, want.run, want.count * sizeof(want.run[0])), 0);
    }
}

static unsigned count_runs(struct pl_box box, struct pl_box frame, uint64_t want_bytes)
{
    got.count = 0;
    pl_box_runs(&box, &frame, &frame, 8, runs_add, &got);
    ASSERT_EQ(got.run[0].bytes, want_bytes);
    return got.count;
}

TEST(whole_arrays_and_whole_rows_are_one_run)
{
    struct pl_box whole = {.ndim = 4, .count = {5, 6, 7, 8}};
    struct pl_box slab  = {.ndim = 4, .start = {1}, .count = {3, 6, 7, 8}};
    struct pl_box rows  = {.ndim = 4, .start = {2, 3}, .count = {1, 2, 7, 8}};
    struct pl_box tile  = {.ndim = 4, .start = {1, 1, 1, 1}, .count = {2, 3, 4, 5}};

    ASSERT_EQ(count_runs(whole, whole, 5 * 6 * 7 * 8 * 8), 1);
    ASSERT_EQ(count_runs(slab, whole, 3 * 6 * 7 * 8 * 8), 1);
    ASSERT_EQ(count_runs(rows, whole, 2 * 7 * 8 * 8), 1);
    ASSERT_EQ(count_runs(tile, whole, 5 * 8), 2 * 3 * 4);
}

TEST(columns_of_width_one_are_one_run_an_element)
{
    struct pl_box frame  = {.ndim = 2, .count = {9, 5}};
    struct pl_box column = {.ndim = 2, .start = {0, 2}, .count = {9, 1}};

    ASSERT_EQ(count_runs(column, frame, 8), 9);
}

/* A buffer whose element i holds i + 1, so that a wrong source shows. */
static uint16_t *numbered(int64_t count)
{
    uint16_t *buffer = calloc((size_t)count, sizeof(*buffer));

    ASSERT_NOT_NULL(buffer);
    for (int64_t i = 0; i < count; i++) {
        buffer[i] = (uint16_t)(i + 1);
    }
    return buffer;
}

TEST(copy_moves_the_box_and_nothing_else)
{
    uint64_t rng = test_seed();

    for (int round = 0; round < ROUNDS; round++) {
        struct pl_box box       = random_box(&rng);
        struct pl_box dst_frame = random_frame(&rng, &box);
        struct pl_box src_frame = random_frame(&rng, &box);
        int64_t dst_count       = pl_box_elements(&dst_frame);
        uint16_t *src           = numbered(pl_box_elements(&src_frame));
        uint16_t *dst           = calloc((size_t)dst_count, sizeof(*dst));
        int64_t at[PL_DIM_MAX];
        int64_t written = 0;

        ASSERT_NOT_NULL(dst);
        pl_box_copy_host(&box, dst, &dst_frame, src, &src_frame, sizeof(*dst));

        memcpy(at, box.start, sizeof(at));
        do {
            ASSERT_EQ(dst[pl_box_offset(&dst_frame, at)],
                      src[pl_box_offset(&src_frame, at)]);
        } while (next_index(&box, at));
        for (int64_t i = 0; i < dst_count; i++) {
            written += dst[i] != 0;
        }
        ASSERT_EQ(written, pl_box_elements(&box));
        free(dst);
        free(src);
    }
}

TEST_MAIN()
