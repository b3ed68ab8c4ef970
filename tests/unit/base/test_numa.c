/*
 * Two nodes that a folder in the place of sysfs tells of: node 0 has the first processor that the
 * test may use, node 1 the second (if it may use two).
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/numa.h"
#include "base/str.h"
#include "tests/harness/test.h"
#include "tests/unit/base/tree.h"

static const char *root;
static int first, second; /* processors; second -1: there is no other */

static void begin(void)
{
    cpu_set_t mine;
    char line[32];

    first = second = -1;
    ASSERT_EQ(sched_getaffinity(0, sizeof(mine), &mine), 0);
    for (int i = 0; i < CPU_SETSIZE; i++) {
        if (CPU_ISSET((size_t)i, &mine)) {
            second = first >= 0 && second < 0 ? i : second;
            first  = first < 0 ? i : first;
        }
    }
    root = tree_begin();
    (void)snprintf(line, sizeof(line), "%d\n", first);
    tree_put("devices/system/node/node0/cpulist", line);
    if (second >= 0) {
        (void)snprintf(line, sizeof(line), "%d,900-901\n", second);
        tree_put("devices/system/node/node1/cpulist", line);
    }
    tree_put("devices/system/node/node2/cpulist", "900-903\n");
    tree_put("devices/system/node/node3/cpulist", "\n"); /* memory alone */
    tree_put("devices/system/node/online", "0-3\n");
    tree_put("bus/pci/devices/0000:1b:00.0/numa_node", "1\n");
    tree_put("bus/pci/devices/0000:9b:00.0/numa_node", "-1\n");
}

static int processors(cpu_set_t *out)
{
    ASSERT_EQ(sched_getaffinity(0, sizeof(*out), out), 0);
    return CPU_COUNT(out);
}

TEST(a_device_is_at_the_node_that_sysfs_says)
{
    begin();
    ASSERT_EQ(pl_numa_node_of_pci(root, "0000:1B:00.0"), 1);
    ASSERT_EQ(pl_numa_node_of_pci(root, "0000:9B:00.0"), -1);
    ASSERT_EQ(pl_numa_node_of_pci(root, "0000:AA:00.0"), -1);
    tree_end();
}

TEST(a_list_of_processors_is_read_whole)
{
    cpu_set_t set;

    begin();
    tree_put("devices/system/node/node4/cpulist", "0-2,5,8-9\n");
    ASSERT_TRUE(pl_numa_processors(root, 4, &set));
    ASSERT_EQ(CPU_COUNT(&set), 6);
    ASSERT_TRUE(CPU_ISSET(5, &set) && CPU_ISSET(9, &set) && !CPU_ISSET(3, &set));
    ASSERT_TRUE(!pl_numa_processors(root, 3, &set));
    ASSERT_TRUE(!pl_numa_processors(root, 7, &set));
    tree_end();
}

TEST(a_process_is_bound_to_what_it_may_use_of_the_node)
{
    char text[PL_NUMA_TEXT_BYTES];
    cpu_set_t set;

    begin();
    if (second < 0) {
        tree_end();
        test_skip("one processor is all there is");
    }
    ASSERT_TRUE(pl_numa_bind(root, 1, text));
    ASSERT_EQ(processors(&set), 1);
    ASSERT_TRUE(CPU_ISSET((size_t)second, &set));
    ASSERT_CONTAINS(text, "bound to NUMA node 1: 1 of its 3 processors");
    tree_end();
}

TEST(a_process_that_has_none_of_them_stays_where_it_is)
{
    char text[PL_NUMA_TEXT_BYTES];
    cpu_set_t before, after;

    begin();
    (void)processors(&before);
    ASSERT_TRUE(!pl_numa_bind(root, 2, text));
    ASSERT_CONTAINS(text, "none of its 4 processors is this process's");
    ASSERT_TRUE(!pl_numa_bind(root, -1, text));
    ASSERT_CONTAINS(text, "does not say at which one the device is");
    ASSERT_TRUE(!pl_numa_bind(root, 7, text));
    ASSERT_CONTAINS(text, "which processors it has");
    (void)processors(&after);
    ASSERT_TRUE(CPU_EQUAL(&before, &after));
    tree_end();
}

/*
 * What this machine says of its memory is asked of the real system: its first node has number 0
 * where there is one.
 */
TEST(what_is_near_a_device_and_what_is_not_is_said)
{
    static char memory[64 * 4096] __attribute__((aligned(4096)));
    struct pl_numa_place place;
    struct pl_str text;
    cpu_set_t mine;
    uint32_t all;

    begin();
    all = (uint32_t)processors(&mine);
    memset(memory, 1, sizeof(memory) / 2); /* the rest is not there yet */
    pl_str_init(&text);

    pl_numa_look(root, 0, memory, sizeof(memory), &place);
    ASSERT_EQ(place.nodes, 4);
    ASSERT_EQ(place.processors, all);
    ASSERT_EQ(place.near, 1);
    ASSERT_TRUE(place.pages == 32 || place.pages == 0); /* 0: it may not be asked */
    ASSERT_TRUE(place.pages_near <= place.pages);
    place.pages_near = place.pages;
    ASSERT_TRUE(pl_numa_say(&place, "its worker", &text));
    ASSERT_CONTAINS(pl_str_text(&text), "at node 0; 1 of the ");
    ASSERT_CONTAINS(pl_str_text(&text), " processors of its worker are there");

    pl_numa_look(root, 2, memory, sizeof(memory), &place);
    ASSERT_EQ(place.near, 0);
    ASSERT_EQ(place.pages_near, 0);
    place.pages = 32;
    pl_str_finish(&text);
    pl_str_init(&text);
    ASSERT_TRUE(!pl_numa_say(&place, "its worker", &text));
    ASSERT_CONTAINS(pl_str_text(&text), "at node 2; none of the ");
    ASSERT_CONTAINS(pl_str_text(&text), "taskset");
    ASSERT_CONTAINS(pl_str_text(&text), "100 % of its pinned memory is not");

    pl_numa_look(root, -1, memory, sizeof(memory), &place);
    ASSERT_EQ(place.pages, 0);
    pl_str_finish(&text);
    pl_str_init(&text);
    ASSERT_TRUE(pl_numa_say(&place, "its worker", &text));
    ASSERT_CONTAINS(pl_str_text(&text), "does not say at which node");
    tree_put("devices/system/node/online", "0\n");
    pl_numa_look(root, 0, NULL, 0, &place);
    pl_str_finish(&text);
    pl_str_init(&text);
    ASSERT_TRUE(pl_numa_say(&place, "its worker", &text));
    ASSERT_STR(pl_str_text(&text), "the machine has one node");
    pl_str_finish(&text);
    tree_end();
}

TEST_MAIN()
