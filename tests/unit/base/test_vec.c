#include "tests/harness/test.h"

#include "base/fault.h"
#include "base/vec.h"

struct item {
    uint32_t number;
    char pad[3];
    uint64_t square;
};

static void push_squares(struct pl_vec *vec, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        struct item *item = pl_vec_push(vec);

        ASSERT_NOT_NULL(item);
        ASSERT_EQ(item->number, 0);
        ASSERT_EQ(item->square, 0);
        item->number = i;
        item->square = (uint64_t)i * i;
    }
}

static void check_item(const struct pl_vec *vec, size_t index, uint32_t number)
{
    const struct item *item = pl_vec_at(vec, index);

    ASSERT_EQ(item->number, number);
    ASSERT_EQ(item->square, (uint64_t)number * number);
}

TEST(items_survive_growth)
{
    struct pl_vec vec = PL_VEC_INIT(struct item);

    push_squares(&vec, 10000);
    ASSERT_EQ(vec.count, 10000);
    for (uint32_t i = 0; i < 10000; i++) {
        check_item(&vec, i, i);
    }
    pl_vec_finish(&vec);
    ASSERT_EQ(vec.count, 0);
    ASSERT_NULL(vec.items);
}

TEST(a_pushed_item_is_zero_also_where_one_was_popped)
{
    struct pl_vec vec = PL_VEC_INIT(struct item);

    push_squares(&vec, 20);
    for (int i = 0; i < 10; i++) {
        pl_vec_pop(&vec);
    }
    ASSERT_EQ(vec.count, 10);
    push_squares(&vec, 10); /* asserts zeros */
    check_item(&vec, 19, 9);
    pl_vec_clear(&vec);
    push_squares(&vec, 20);
    pl_vec_finish(&vec);
}

TEST(push_n_gives_a_zeroed_row)
{
    struct pl_vec vec = PL_VEC_INIT(uint64_t);
    uint64_t *first;

    *(uint64_t *)pl_vec_push(&vec) = 7;
    first                          = pl_vec_push_n(&vec, 1000);
    ASSERT_NOT_NULL(first);
    ASSERT_EQ(vec.count, 1001);
    ASSERT_TRUE(first == pl_vec_at(&vec, 1));
    for (size_t i = 0; i < 1000; i++) {
        ASSERT_EQ(first[i], 0);
    }
    ASSERT_EQ(*(uint64_t *)pl_vec_at(&vec, 0), 7);
    pl_vec_finish(&vec);
}

TEST(unordered_removal_moves_the_last_item)
{
    struct pl_vec vec = PL_VEC_INIT(struct item);

    push_squares(&vec, 5);
    pl_vec_remove_unordered(&vec, 1);
    ASSERT_EQ(vec.count, 4);
    check_item(&vec, 1, 4);
    pl_vec_remove_unordered(&vec, 3); /* the last itself */
    ASSERT_EQ(vec.count, 3);
    check_item(&vec, 0, 0);
    check_item(&vec, 1, 4);
    check_item(&vec, 2, 2);
    pl_vec_finish(&vec);
}

TEST(a_failed_push_changes_nothing)
{
    struct pl_vec vec = PL_VEC_INIT(struct item);
    size_t full;

    push_squares(&vec, 1);
    full = vec.capacity;
    push_squares(&vec, (uint32_t)full - 1);

    pl_fault_arm("alloc", 0);
    ASSERT_NULL(pl_vec_push(&vec));
    ASSERT_TRUE(pl_fault_disarm());
    ASSERT_EQ(vec.count, full);
    check_item(&vec, full - 1, (uint32_t)full - 2);
    ASSERT_NOT_NULL(pl_vec_push(&vec));
    pl_vec_finish(&vec);
}

TEST(impossible_sizes_are_refused)
{
    struct pl_vec vec = PL_VEC_INIT(struct item);

    ASSERT_NULL(pl_vec_push_n(&vec, SIZE_MAX / 8));
    ASSERT_NULL(pl_vec_push_n(&vec, SIZE_MAX));
    ASSERT_EQ(vec.count, 0);
    pl_vec_finish(&vec);
}

TEST_MAIN()
