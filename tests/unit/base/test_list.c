#include "tests/harness/test.h"

#include "base/list.h"

#define COUNT 8

struct node {
    int number;
    struct pl_list link;
};

static struct pl_list list;
static struct node nodes[COUNT];

static void init_all(void)
{
    pl_list_init(&list);
    for (int i = 0; i < COUNT; i++) {
        nodes[i].number = i;
        pl_list_init(&nodes[i].link);
    }
}

/* The list as digits, forwards; the links backwards must say the same. */
static const char *digits(void)
{
    static char forwards[COUNT + 1], backwards[COUNT + 1];
    struct pl_list *at;
    size_t count = 0, left;

    pl_list_for_each(at, &list) {
        ASSERT_TRUE(count < COUNT);
        forwards[count++] = (char)('0' + pl_container_of(at, struct node, link)->number);
    }
    forwards[count] = backwards[count] = '\0';
    left                               = count;
    for (at = list.prev; at != &list; at = at->prev) {
        ASSERT_TRUE(left > 0);
        backwards[--left] = (char)('0' + pl_container_of(at, struct node, link)->number);
    }
    ASSERT_EQ(left, 0);
    ASSERT_STR(backwards, forwards);
    return forwards;
}

TEST(links_keep_the_order_of_adding)
{
    init_all();
    ASSERT_STR(digits(), "");
    pl_list_add_tail(&list, &nodes[1].link);
    pl_list_add_tail(&list, &nodes[3].link);
    pl_list_add_head(&list, &nodes[0].link);
    pl_list_add_after(&nodes[1].link, &nodes[2].link);
    ASSERT_STR(digits(), "0123");
    ASSERT_TRUE(pl_list_first(&list, struct node, link) == &nodes[0]);
}

TEST(a_removed_link_is_unlinked_and_may_be_removed_again)
{
    init_all();
    for (int i = 0; i < COUNT; i++) {
        pl_list_add_tail(&list, &nodes[i].link);
    }
    pl_list_remove(&nodes[0].link);
    pl_list_remove(&nodes[7].link);
    pl_list_remove(&nodes[4].link);
    pl_list_remove(&nodes[4].link);
    ASSERT_STR(digits(), "12356");
    ASSERT_TRUE(!pl_list_linked(&nodes[4].link));
    ASSERT_TRUE(pl_list_linked(&nodes[5].link));
    pl_list_add_head(&list, &nodes[4].link);
    ASSERT_STR(digits(), "412356");
}

TEST(the_safe_walk_may_remove_what_it_visits)
{
    struct pl_list *at, *next;

    init_all();
    for (int i = 0; i < COUNT; i++) {
        pl_list_add_tail(&list, &nodes[i].link);
    }
    pl_list_for_each_safe(at, next, &list) {
        if (pl_container_of(at, struct node, link)->number % 2 == 0) {
            pl_list_remove(at);
        }
    }
    ASSERT_STR(digits(), "1357");
}

TEST(an_empty_list_has_no_first)
{
    struct node zeroed = {0};

    init_all();
    ASSERT_TRUE(pl_list_empty(&list));
    ASSERT_NULL(pl_list_first(&list, struct node, link));
    ASSERT_TRUE(!pl_list_linked(&zeroed.link)); /* not yet initialised: in no list */
}

TEST_MAIN()
