/*
 * The parts of an array that a box meets: those that a look at all parts finds, in their order,
 * whether there are few or many.
 */
#include "head/core_int.h"
#include "tests/harness/test.h"
#include "tests/unit/head/core.h"

enum { ROWS = 16, COLUMNS = 200 };

static struct pl_box random_box(uint64_t *seed, int64_t longest)
{
    struct pl_box box = {.ndim = 2};

    box.start[0] = (int64_t)(test_random(seed) % ROWS);
    box.start[1] = (int64_t)(test_random(seed) % COLUMNS);
    box.count[0] =
        1 + (int64_t)(test_random(seed) % pl_min_u64((uint64_t)(ROWS - box.start[0]), 2));
    box.count[1] =
        1 + (int64_t)(test_random(seed) %
                      pl_min_u64((uint64_t)(COLUMNS - box.start[1]), (uint64_t)longest));
    return box;
}

static void expect_meet(const struct head_array *array, const struct pl_box *box)
{
    const struct head_fragment *first = head_array_meet_first(array, box);
    const struct head_fragment *met   = head_array_meet(array, box);
    struct pl_list *pos;

    ASSERT_TRUE(first == met);

    pl_list_for_each(pos, &array->fragments) {
        const struct head_fragment *fragment =
            pl_container_of(pos, struct head_fragment, array_link);

        if (pl_box_intersects(&fragment->box, box)) {
            ASSERT_TRUE(met == fragment);
            met = met->met;
        }
    }
    ASSERT_NULL(met);
}

/* Bytes that nobody has: what the parts are of does not matter here. */
static void set_failed(struct head_core *core, struct head_array *array,
                       const struct pl_box *box, struct head_failure *failure)
{
    struct head_tile *tile = head_tile_create(core, box);

    tile->failure = head_failure_hold(failure);
    head_array_set(core, array, box, tile);
    head_tile_release(core, tile);
}

static void expect_same_parts(const struct head_array *a, const struct head_array *b)
{
    struct pl_list *x = a->fragments.next, *y = b->fragments.next;

    ASSERT_EQ(a->fragment_count, b->fragment_count);
    for (; x != &a->fragments; x = x->next, y = y->next) {
        ASSERT_TRUE(
            pl_box_equal(&pl_container_of(x, struct head_fragment, array_link)->box,
                         &pl_container_of(y, struct head_fragment, array_link)->box));
    }
}

TEST(parts_that_a_box_meets_are_found_in_their_order_few_or_many)
{
    struct pl_shape shape        = {.dtype = PL_F32, .ndim = 2, .dim = {ROWS, COLUMNS}};
    struct head_core *core       = core_make();
    struct head_array *array     = head_array_create(core, NULL, &shape), *copy;
    struct head_failure *failure = head_failure_create(PLASMON_EINVAL, 1, 1, "a test");
    uint64_t seed                = test_seed();
    uint32_t most                = 0;

    set_failed(core, array, &array->extent, failure);
    for (int step = 0; step < 3000; step++) {
        struct pl_box box = random_box(&seed, step % 500 < 400 ? 8 : 150);

        set_failed(core, array, step % 700 == 699 ? &array->extent : &box, failure);
        most = array->fragment_count > most ? array->fragment_count : most;
        box  = random_box(&seed, COLUMNS);
        expect_meet(array, &box);
        expect_meet(array, &array->extent);
        ASSERT_TRUE(head_array_failure(array, &box) == failure);
        if (step % 100 == 0) {
            copy = head_array_snapshot(core, NULL, array, &array->extent);
            expect_same_parts(array, copy);
            expect_meet(copy, &box);
            head_array_release(core, copy);
        }
    }
    ASSERT_TRUE(most > 300);
    head_array_release(core, array);
    head_failure_release(failure);
    head_core_check(core);
    head_core_destroy(core);
}

TEST(of_many_parts_a_write_looks_at_few)
{
    enum { PARTS = 65536 };
    struct pl_shape shape        = {.dtype = PL_F32, .ndim = 1, .dim = {PARTS}};
    struct head_core *core       = core_make();
    struct head_array *array     = head_array_create(core, NULL, &shape);
    struct head_failure *failure = head_failure_create(PLASMON_EINVAL, 1, 1, "a test");

    set_failed(core, array, &array->extent, failure);
    for (int64_t i = 0; i < PARTS; i++) {
        struct pl_box box = {.ndim = 1, .start = {i}, .count = {1}};

        set_failed(core, array, &box, failure);
    }
    ASSERT_EQ(array->fragment_count, PARTS);
    ASSERT_TRUE(array->spans->looked < 40 * (uint64_t)PARTS);
    head_array_release(core, array);
    head_failure_release(failure);
    head_core_destroy(core);
}

TEST_MAIN()
