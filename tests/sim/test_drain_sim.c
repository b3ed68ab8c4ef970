/*
 * Random programs on clusters of two hosts, of which one is drained at any step and ends when the
 * head says that nothing lies only there. Nothing that a program made is lost then, with or without
 * lineage: no task, read or name fails for it, but tasks that named a device of that host. A host
 * that cannot be emptied, because there is no room, stays until the end; one with a short deadline
 * goes all the same.
 */
#include "tests/sim/seeds.h"

#include <stdio.h>

#include "tests/harness/test.h"

enum { SEEDS_DEFAULT = 24 };

static struct graph_coverage sum; /* large, and zero at the start of each test's process */

static void run_seeds(const struct graph_profile *profile)
{
    uint64_t count = seeds_run_graphs(SEEDS_DEFAULT, profile, &sum);

    printf(
        "# %llu runs: %llu tasks done, %llu failed; %llu devices gone, %llu hosts drained, "
        "%llu crashes, %llu spills\n",
        (unsigned long long)sum.graphs, (unsigned long long)sum.tasks_done,
        (unsigned long long)sum.tasks_failed, (unsigned long long)sum.gone,
        (unsigned long long)sum.drained, (unsigned long long)sum.crashes,
        (unsigned long long)sum.spills);
    if (count >= SEEDS_DEFAULT) {
        ASSERT_TRUE(sum.drained > SEEDS_DEFAULT / 8);
    }
}

TEST(a_drained_host_takes_nothing_with_it)
{
    static const struct graph_profile profile = {.devices_min    = 2,
                                                 .devices_max    = 4,
                                                 .steps_min      = 30,
                                                 .steps_max      = 100,
                                                 .gone_permille  = 1000,
                                                 .host_permille  = 1000,
                                                 .drains         = true,
                                                 .crash_permille = 300,
                                                 .break_permille = 300,
                                                 .no_lineage     = true,
                                                 .check_every    = 20};

    run_seeds(&profile);
}

TEST(nor_does_one_whose_values_others_must_spill_for)
{
    static const struct graph_profile profile = {.devices_min    = 2,
                                                 .devices_max    = 4,
                                                 .steps_min      = 30,
                                                 .steps_max      = 100,
                                                 .gone_permille  = 1000,
                                                 .host_permille  = 1000,
                                                 .drains         = true,
                                                 .spill_permille = 1000,
                                                 .no_lineage     = true,
                                                 .check_every    = 20};

    run_seeds(&profile);
}

TEST(nor_one_whose_head_is_killed_meanwhile)
{
    static const struct graph_profile profile = {.devices_min         = 2,
                                                 .devices_max         = 4,
                                                 .steps_min           = 30,
                                                 .steps_max           = 80,
                                                 .gone_permille       = 1000,
                                                 .host_permille       = 1000,
                                                 .drains              = true,
                                                 .spill_permille      = 300,
                                                 .head_crash_permille = 1000,
                                                 .no_lineage          = true,
                                                 .check_every         = 50};

    run_seeds(&profile);
}

/* Its moves stand still meanwhile, for less or more than the head waits for them. */
TEST(nor_one_that_cannot_be_reached_for_a_while)
{
    static const struct graph_profile profile = {.devices_min    = 2,
                                                 .devices_max    = 4,
                                                 .steps_min      = 30,
                                                 .steps_max      = 80,
                                                 .gone_permille  = 1000,
                                                 .host_permille  = 1000,
                                                 .drains         = true,
                                                 .crash_permille = 300,
                                                 .way_cuts_most  = 4,
                                                 .reach_wait_ms  = 2000,
                                                 .check_every    = 20};

    run_seeds(&profile);
}

TEST_MAIN()
