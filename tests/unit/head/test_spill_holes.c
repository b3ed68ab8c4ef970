/* Holes of a slab, against a search through all of them. */
#include <string.h>

#include "base/alloc.h"
#include "head/spill_holes.h"
#include "tests/harness/test.h"

enum { COUNT = 300 };

static uint64_t next_random(void)
{
    static uint64_t state = 1;

    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return state >> 33;
}

static const struct head_hole *search(const struct head_hole holes[COUNT], uint64_t bytes)
{
    const struct head_hole *best = NULL;

    for (int i = 0; i < COUNT; i++) {
        if (holes[i].bytes != 0 && holes[i].bytes >= bytes &&
            (best == NULL || holes[i].bytes < best->bytes)) {
            best = &holes[i]; /* by offset: the first of these */
        }
    }
    return best;
}

TEST(the_smallest_hole_that_will_do_is_found_and_of_these_the_first)
{
    static struct head_hole all[COUNT];
    struct head_holes holes = {0};
    uint64_t steps          = 0;

    for (int i = 0; i < 20000; i++) {
        uint64_t which = next_random() % COUNT, bytes = 1 + next_random() % 64;

        head_hole_set(&holes, &all[which], which * 1000 + next_random() % 900,
                      next_random() % 3 == 0 ? 0 : next_random() % 60);
        ASSERT_TRUE(head_hole_find(&holes, bytes, &steps) == search(all, bytes));
    }
    for (int i = 0; i < COUNT; i++) {
        head_hole_set(&holes, &all[i], 0, 0);
    }
    ASSERT_NULL(holes.root);
}

TEST(a_search_takes_a_few_steps_however_many_holes_there_are)
{
    enum { MANY = 100000 };
    struct head_hole *all   = pl_alloc_array(MANY, sizeof(*all));
    struct head_holes holes = {0};
    uint64_t steps          = 0;

    ASSERT_TRUE(all != NULL);
    for (uint64_t i = 0; i < MANY;
         i++) { /* in order: the worst for a tree that is not balanced */
        head_hole_set(&holes, &all[i], i * 4096, 256 * (1 + i % 1000));
    }
    for (uint64_t i = 0; i < 1000; i++) {
        ASSERT_EQ(head_hole_find(&holes, 256 * (i + 1), &steps)->offset, i * 4096);
    }
    ASSERT_TRUE(steps < UINT64_C(1000) * 100); /* some 2 log2 of it each */
    pl_free(all);
}

TEST_MAIN()
