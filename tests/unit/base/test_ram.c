/* Machines and containers, as files below a folder of the test's own. */
#include "base/ram.h"

#include "tests/harness/test.h"
#include "tests/unit/base/tree.h"

#include <stdio.h>
#include <string.h>

#define MIB (UINT64_C(1) << 20)

static const char *root;

static void begin(void)
{
    root = tree_begin();
    tree_put("proc/meminfo", "MemTotal:       8192000 kB\nMemFree:  1 kB\nMemAvailable:   "
                             "4096000 kB\nBuffers: 7 kB\n");
}

static void expect(uint64_t total, uint64_t available)
{
    struct pl_ram ram = pl_ram_below(root);

    ASSERT_EQ(ram.total, total);
    ASSERT_EQ(ram.available, available);
}

TEST(a_machine_without_groups_has_what_it_has)
{
    begin();
    expect(8000 * MIB, 4000 * MIB);
    tree_put("proc/self/cgroup", "0::/a\n");
    tree_put("sys/fs/cgroup/a/memory.max", "max\n");
    tree_put("sys/fs/cgroup/a/memory.current", "4096\n");
    expect(8000 * MIB, 4000 * MIB);
    tree_end();
}

TEST(a_group_bounds_what_is_in_it_and_caches_count_as_free)
{
    begin();
    tree_put("proc/self/cgroup", "0::/a/b\n");
    tree_put("sys/fs/cgroup/a/b/memory.max", "max\n");
    tree_put("sys/fs/cgroup/a/b/memory.current", "4096\n");
    tree_put("sys/fs/cgroup/a/memory.max",
             "1048576000\n"); /* 1000 MiB, and 300 of 700 are a cache */
    tree_put("sys/fs/cgroup/a/memory.current", "734003200\n");
    tree_put("sys/fs/cgroup/a/memory.stat",
             "anon 1\nactive_file 2\ninactive_file 314572800\n");
    expect(1000 * MIB, 600 * MIB);
    tree_end();
}

TEST(a_container_finds_its_limit_in_the_root)
{
    begin();
    tree_put("proc/self/cgroup", "0::/system.slice/docker-0123.scope\n");
    tree_put("sys/fs/cgroup/memory.max", "524288000\n");
    tree_put("sys/fs/cgroup/memory.current", "104857600\n");
    expect(500 * MIB, 400 * MIB);
    tree_end();
}

TEST(version_1_bounds_as_well_and_more_than_there_is_bounds_nothing)
{
    begin();
    tree_put("proc/self/cgroup", "11:cpu,cpuacct:/x\n9:memory:/job\n");
    tree_put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    tree_put("sys/fs/cgroup/memory/memory.usage_in_bytes", "104857600\n");
    expect(8000 * MIB, 4000 * MIB);
    tree_put("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "524288000\n");
    tree_put("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "629145600\n");
    expect(500 * MIB, 0);
    tree_end();
}

TEST(what_cannot_be_read_is_a_little)
{
    struct pl_ram ram = pl_ram_below("/nowhere");

    ASSERT_EQ(ram.total, 4096 * MIB);
    ram = pl_ram(); /* whatever this machine has */
    ASSERT_TRUE(ram.total > 0 && ram.available <= ram.total);
}

TEST_MAIN()
