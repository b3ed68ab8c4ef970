/*
 * Random programs on devices that are far too small for them: what has no room goes to host memory
 * and files and comes back, while workers crash, connections break and disks fill up. The results
 * are those of the programs run one step after the other, and the head's books are right at every
 * step. The seeded bugs show that this would be noticed.
 */
#include "tests/sim/seeds.h"

#include <stdio.h>

#include "tests/harness/test.h"

enum { SEEDS_DEFAULT = 60 };

static struct graph_coverage sum; /* large, and zero at the start of each test's process */

/* false: too few runs to say what must have come up in them. */
static bool run_seeds(const struct graph_profile *profile)
{
    uint64_t count = seeds_run_graphs(SEEDS_DEFAULT, profile, &sum);

    printf(
        "# %llu runs: %llu tasks done, %llu failed, %llu for want of room; %llu crashes, "
        "%llu starvations; %llu spills, %llu restores, %llu files written, %llu read, "
        "%llu moves; %llu copied ahead, %llu of them in vain; %llu stores killed; %llu "
        "spills found no place; %llu copied for a launch that found no memory, %llu of "
        "them "
        "for a spill, and %llu in vain\n",
        (unsigned long long)sum.graphs, (unsigned long long)sum.tasks_done,
        (unsigned long long)sum.tasks_failed, (unsigned long long)sum.no_room,
        (unsigned long long)sum.crashes, (unsigned long long)sum.starvations,
        (unsigned long long)sum.spills, (unsigned long long)sum.restores,
        (unsigned long long)sum.file_writes, (unsigned long long)sum.file_reads,
        (unsigned long long)sum.slab_moves, (unsigned long long)sum.write_backs,
        (unsigned long long)sum.write_back_cancels, (unsigned long long)sum.spill_deaths,
        (unsigned long long)sum.spills_undone, (unsigned long long)sum.relieved,
        (unsigned long long)sum.relieved_spills, (unsigned long long)sum.relieved_in_vain);
    return count >= SEEDS_DEFAULT;
}

TEST(what_devices_have_no_room_for_comes_back_as_it_was)
{
    static const struct graph_profile profile = {.devices_min    = 1,
                                                 .devices_max    = 3,
                                                 .steps_min      = 60,
                                                 .steps_max      = 160,
                                                 .spill_permille = 1000,
                                                 .check_every    = 1};

    if (run_seeds(&profile)) {
        ASSERT_TRUE(sum.spills > 0 && sum.restores > 0 && sum.write_backs > 0);
    }
}

TEST(crashes_lose_nothing_that_was_spilled)
{
    static const struct graph_profile profile = {.devices_min    = 1,
                                                 .devices_max    = 3,
                                                 .steps_min      = 60,
                                                 .steps_max      = 160,
                                                 .spill_permille = 1000,
                                                 .crash_permille = 1000,
                                                 .break_permille = 300,
                                                 .crashes_most   = 6,
                                                 .check_every    = 1};

    if (run_seeds(&profile)) {
        ASSERT_TRUE(sum.spills > 0 && sum.restores > 0 && sum.write_backs > 0);
    }
}

/* .. nor do stores that are killed at what they were asked: another one goes on with what is there. */
TEST(stores_that_are_killed_lose_nothing_that_was_spilled)
{
    static const struct graph_profile profile = {.devices_min       = 1,
                                                 .devices_max       = 3,
                                                 .steps_min         = 60,
                                                 .steps_max         = 160,
                                                 .spill_permille    = 1000,
                                                 .spill_deaths_most = 8,
                                                 .crash_permille    = 300,
                                                 .check_every       = 20};

    if (run_seeds(&profile)) {
        ASSERT_TRUE(sum.spill_deaths > SEEDS_DEFAULT / 4 && sum.file_reads > 0);
    }
}

TEST(stores_and_heads_that_are_killed_lose_nothing_that_was_spilled)
{
    static const struct graph_profile profile = {.devices_min         = 1,
                                                 .devices_max         = 3,
                                                 .steps_min           = 40,
                                                 .steps_max           = 120,
                                                 .spill_permille      = 1000,
                                                 .spill_deaths_most   = 8,
                                                 .head_crash_permille = 1000,
                                                 .crash_permille      = 300,
                                                 .break_permille      = 300,
                                                 .check_every         = 50};

    if (run_seeds(&profile)) {
        ASSERT_TRUE(sum.spill_deaths > SEEDS_DEFAULT / 4 && sum.head_crashes > 0);
    }
}

/*
 * Others fill the disk: what was to go to a file stays where it is, and what had been planned with
 * its room waits, or fails.
 */
static const struct graph_profile filled = {.devices_min        = 1,
                                            .devices_max        = 3,
                                            .steps_min          = 60,
                                            .steps_max          = 160,
                                            .spill_permille     = 1000,
                                            .disk_full_permille = 500,
                                            .crash_permille     = 300,
                                            .break_permille     = 300,
                                            .check_every        = 1};

TEST(disks_that_others_fill_lose_nothing)
{
    if (run_seeds(&filled)) {
        ASSERT_TRUE(sum.spills_undone > 0 && sum.file_writes > 0);
    }
    ASSERT_EQ(sum.spills_stranded, 0); /* who reads it elsewhere is served, too */
}

/*
 * 3272768211: a value was spilled, brought back and spilled again, and both spills were taken back.
 * What had been brought back counted as a second copy of what stayed, of which it had nothing just
 * then; when it got the value it was the only one, and was dropped for want of memory. Likewise
 * what was on its way back, and found no room.
 */
TEST(what_two_spills_are_taken_back_of_is_no_second_copy)
{
    test_expect_log();
    seeds_log_errors();
    ASSERT_TRUE(graph_run(3272768211, &filled, &sum, true));
}

/* What the head had said to a store that died came to the next one, before what it said to that one. */
TEST(what_was_said_to_a_dead_store_does_not_reach_the_next_one)
{
    static const struct graph_profile profile = {.devices_min         = 1,
                                                 .devices_max         = 3,
                                                 .steps_min           = 40,
                                                 .steps_max           = 120,
                                                 .spill_permille      = 1000,
                                                 .spill_deaths_most   = 8,
                                                 .head_crash_permille = 1000,
                                                 .crash_permille      = 300,
                                                 .break_permille      = 300,
                                                 .check_every         = 50};

    test_expect_log();
    seeds_log_errors();
    ASSERT_TRUE(graph_run(956685862, &profile, &sum, true));
}

TEST_MAIN()
