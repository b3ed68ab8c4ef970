/* Two nodes that a folder in the place of sysfs tells of: node 0 has the first processor that the test may use, node 1 the second (if it may use two). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/numa.h"
#include "base/str.h"
#include "tests/harness/test.h"

static char root[64];
static int first, second; /* processors; second -1: there is no other */

static void put(const char *folders, const char *name, const char *line)
{
    char path[512];
    FILE *file;

    (void)snprintf(path, sizeof(path), "%s", root);
    for (const char *part = folders; part != NULL;) {
        const char *slash = strchr(part, '/');
        size_t length     = slash != NULL ? (size_t)(slash - part) : strlen(part);

        (void)snprintf(path + strlen(path), sizeof(path) - strlen(path), "/%.*s",
                       (int)length, part);
        (void)mkdir(path, 0700);
        part = slash != NULL ? slash + 1 : NULL;
    }
    (void)snprintf(path + strlen(path), sizeof(path) - strlen(path), "/%s", name);
    file = fopen(path, "we");
    ASSERT_NOT_NULL(file);
    ASSERT_TRUE(fputs(line, file) >= 0);
    ASSERT_EQ(fclose(file), 0);
}

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
    (void)snprintf(root, sizeof(root), "/tmp/plasmon-numa-XXXXXX");
    ASSERT_NOT_NULL(mkdtemp(root));
    (void)snprintf(line, sizeof(line), "%d\n", first);
    put("devices/system/node/node0", "cpulist", line);
    if (second >= 0) {
        (void)snprintf(line, sizeof(line), "%d,900-901\n", second);
        put("devices/system/node/node1", "cpulist", line);
    }
    put("devices/system/node/node2", "cpulist", "900-903\n");
    put("devices/system/node/node3", "cpulist", "\n"); /* memory alone */
    put("bus/pci/devices/0000:1b:00.0", "numa_node", "1\n");
    put("bus/pci/devices/0000:9b:00.0", "numa_node", "-1\n");
}

static void end(void)
{
    char command[128];

    (void)snprintf(command, sizeof(command), "rm -r %s", root);
    ASSERT_EQ(system(command), 0);
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
    end();
}

TEST(a_list_of_processors_is_read_whole)
{
    cpu_set_t set;

    begin();
    put("devices/system/node/node4", "cpulist", "0-2,5,8-9\n");
    ASSERT_TRUE(pl_numa_processors(root, 4, &set));
    ASSERT_EQ(CPU_COUNT(&set), 6);
    ASSERT_TRUE(CPU_ISSET(5, &set) && CPU_ISSET(9, &set) && !CPU_ISSET(3, &set));
    ASSERT_TRUE(!pl_numa_processors(root, 3, &set));
    ASSERT_TRUE(!pl_numa_processors(root, 7, &set));
    end();
}

TEST(a_process_is_bound_to_what_it_may_use_of_the_node)
{
    char text[PL_NUMA_TEXT_BYTES];
    cpu_set_t set;

    begin();
    if (second < 0) {
        end();
        test_skip("one processor is all there is");
    }
    ASSERT_TRUE(pl_numa_bind(root, 1, text));
    ASSERT_EQ(processors(&set), 1);
    ASSERT_TRUE(CPU_ISSET((size_t)second, &set));
    ASSERT_CONTAINS(text, "bound to NUMA node 1: 1 of its 3 processors");
    end();
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
    end();
}

TEST_MAIN()
