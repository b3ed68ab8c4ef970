/* Pools: what is put back comes again, zeroed; not more is kept than was said; memory goes back. */
#include "base/pool.h"

#include <string.h>

#include "base/alloc.h"
#include "base/fault.h"
#include "tests/harness/test.h"

struct piece {
    char text[40];
};

enum { KEPT_MAX = 3 };

TEST(what_was_put_back_is_given_out_again_and_is_zero)
{
    struct pl_pool pool = PL_POOL_INIT(struct piece, KEPT_MAX);
    static const struct piece zero;
    struct piece *a = pl_pool_get(&pool), *b = pl_pool_get(&pool), *c, *d;

    ASSERT_TRUE(a != NULL && b != NULL && a != b);
    memset(a, 'a', sizeof(*a));
    memset(b, 'b', sizeof(*b));
    pl_pool_put(&pool, a);
    pl_pool_put(&pool, b);
    c = pl_pool_get(&pool);
    d = pl_pool_get(&pool);
    ASSERT_TRUE(c != NULL && d != NULL && c != d);
    ASSERT_TRUE(!PL_POOL_KEEPS || (c == b && d == a));
    ASSERT_EQ(memcmp(c, &zero, sizeof(zero)), 0);
    ASSERT_EQ(memcmp(d, &zero, sizeof(zero)), 0);
    pl_pool_put(&pool, c);
    pl_free(d); /* it is memory like any other */
    pl_pool_finish(&pool);
    ASSERT_EQ(pool.count, 0);
}

TEST(no_more_is_kept_than_was_said)
{
    struct pl_pool pool = PL_POOL_INIT(struct piece, KEPT_MAX);
    struct piece *pieces[2 * KEPT_MAX];

    for (int i = 0; i < 2 * KEPT_MAX; i++) {
        pieces[i] = pl_pool_get(&pool);
        ASSERT_NOT_NULL(pieces[i]);
    }
    for (int i = 0; i < 2 * KEPT_MAX; i++) {
        pl_pool_put(&pool, pieces[i]);
    }
    ASSERT_EQ(pool.count, PL_POOL_KEEPS ? KEPT_MAX : 0);
    pl_pool_put(&pool, NULL);
    pl_pool_finish(&pool);
    ASSERT_NULL(pool.first);
}

TEST(without_memory_there_is_none_whatever_is_kept)
{
    struct pl_pool pool = PL_POOL_INIT(struct piece, KEPT_MAX);
    struct piece *piece = pl_pool_get(&pool);

    ASSERT_NOT_NULL(piece);
    pl_pool_put(&pool, piece);
    pl_fault_arm("alloc", 0);
    ASSERT_NULL(pl_pool_get(&pool));
    ASSERT_TRUE(pl_fault_disarm());
    pl_pool_finish(&pool);
}

TEST_MAIN()
