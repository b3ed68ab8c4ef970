/*
 * Random programs on clusters that lose devices, and whole hosts, for good, at any step. Every
 * future resolves; what is answered is what the program means; and nothing fails for a loss but
 * what the head cannot make again: what depends on a put, on a replayed graph, or on a task that
 * named the device that is gone. Without puts, graphs and names nothing fails at all.
 */
#include "tests/sim/seeds.h"

#include <stdio.h>

#include "tests/harness/test.h"

enum { SEEDS_DEFAULT = 60 };

static struct graph_coverage sum; /* large, and zero at the start of each test's process */

static void run_seeds(const struct graph_profile *profile)
{
    uint64_t count = seeds_run_graphs(SEEDS_DEFAULT, profile, &sum);

    printf("# %llu runs: %llu tasks done, %llu failed; %llu devices gone, %llu crashes, "
           "%llu tasks run again, %llu shadows kept, %llu versions given back\n",
           (unsigned long long)sum.graphs, (unsigned long long)sum.tasks_done,
           (unsigned long long)sum.tasks_failed, (unsigned long long)sum.gone,
           (unsigned long long)sum.crashes, (unsigned long long)sum.rebuilt,
           (unsigned long long)sum.shadows, (unsigned long long)sum.given_back);
    if (count >= SEEDS_DEFAULT) {
        ASSERT_TRUE(sum.gone > 0);
        ASSERT_TRUE(sum.rebuilt > 0 && sum.shadows > 0);
    }
}

static const struct graph_profile devices_go = {.devices_min   = 2,
                                                .devices_max   = 4,
                                                .steps_min     = 20,
                                                .steps_max     = 70,
                                                .gone_permille = 1000,
                                                .no_puts       = true,
                                                .check_every   = 20};

TEST(what_devices_took_with_them_is_made_again)
{
    run_seeds(&devices_go);
}

TEST(what_a_host_took_with_it_is_made_again)
{
    static const struct graph_profile profile = {.devices_min   = 2,
                                                 .devices_max   = 4,
                                                 .steps_min     = 20,
                                                 .steps_max     = 70,
                                                 .gone_permille = 1000,
                                                 .host_permille = 1000,
                                                 .no_puts       = true,
                                                 .check_every   = 20};

    run_seeds(&profile);
}

TEST(losses_crashes_and_broken_connections_together)
{
    static const struct graph_profile profile = {.devices_min           = 2,
                                                 .devices_max           = 4,
                                                 .steps_min             = 20,
                                                 .steps_max             = 70,
                                                 .gone_permille         = 900,
                                                 .host_permille         = 400,
                                                 .crash_permille        = 500,
                                                 .break_permille        = 300,
                                                 .client_crash_permille = 150,
                                                 .check_every           = 50};

    run_seeds(&profile);
}

static const struct graph_profile pairs_go = {.devices_min    = 2,
                                              .devices_max    = 4,
                                              .steps_min      = 30,
                                              .steps_max      = 100,
                                              .pairs_permille = 1000,
                                              .gone_permille  = 1000,
                                              .host_permille  = 500,
                                              .crash_permille = 300,
                                              .check_every    = 100};

TEST(pairs_whose_devices_are_lost_hang_nobody)
{
    run_seeds(&pairs_go);
}

TEST(losses_while_devices_are_full)
{
    static const struct graph_profile profile = {.devices_min    = 2,
                                                 .devices_max    = 4,
                                                 .steps_min      = 30,
                                                 .steps_max      = 80,
                                                 .gone_permille  = 900,
                                                 .crash_permille = 200,
                                                 .spill_permille = 1000,
                                                 .check_every    = 50};

    run_seeds(&profile);
}

/*
 * What is put is to be in two places. A device, or a host, is lost only when all of it is, as the
 * head says: then nothing of it is ever lost, however many go one after the other, whatever else
 * dies meanwhile.
 */
static const struct graph_profile put_twice = {.devices_min         = 2,
                                               .devices_max         = 4,
                                               .steps_min           = 30,
                                               .steps_max           = 100,
                                               .gone_permille       = 1000,
                                               .host_permille       = 300,
                                               .crash_permille      = 500,
                                               .break_permille      = 300,
                                               .head_crash_permille = 300,
                                               .replicas            = true,
                                               .patient             = true,
                                               .check_every         = 5};

TEST(what_was_put_twice_outlives_what_is_lost_one_after_the_other)
{
    run_seeds(&put_twice);
}

TEST(what_was_put_twice_goes_to_host_memory_from_devices_that_are_full)
{
    static const struct graph_profile profile = {.devices_min    = 2,
                                                 .devices_max    = 4,
                                                 .steps_min      = 30,
                                                 .steps_max      = 100,
                                                 .gone_permille  = 1000,
                                                 .host_permille  = 300,
                                                 .crash_permille = 300,
                                                 .spill_permille = 1000,
                                                 .replicas       = true,
                                                 .patient        = true,
                                                 .check_every    = 5};

    run_seeds(&profile);
}

TEST(what_is_put_twice_while_anything_may_be_lost)
{
    static const struct graph_profile profile = {.devices_min           = 2,
                                                 .devices_max           = 4,
                                                 .steps_min             = 20,
                                                 .steps_max             = 70,
                                                 .gone_permille         = 900,
                                                 .host_permille         = 400,
                                                 .crash_permille        = 500,
                                                 .break_permille        = 300,
                                                 .spill_permille        = 400,
                                                 .client_crash_permille = 150,
                                                 .replicas              = true,
                                                 .check_every           = 5};

    run_seeds(&profile);
}

/* Programs that did not end well once, each for a reason of its own. */
static void run_one(const struct graph_profile *profile, uint64_t seed)
{
    test_expect_log();
    seeds_log_errors();
    ASSERT_TRUE(graph_run(seed, profile, &sum, true));
}

/*
 * A loss led back to a buffer that had been given up, and whose worker was told so when its last
 * launch was sent.
 */
TEST(memory_that_leaves_is_not_read_again)
{
    static const struct graph_profile profile = {.devices_min    = 2,
                                                 .devices_max    = 4,
                                                 .steps_min      = 30,
                                                 .steps_max      = 80,
                                                 .gone_permille  = 900,
                                                 .crash_permille = 200,
                                                 .spill_permille = 1000,
                                                 .check_every    = 1};

    run_one(&profile, 55);
}

/*
 * The first part was to bring the memory, and found none; what the others read came from devices
 * that were well.
 */
TEST(parts_of_a_copy_that_found_no_memory_end)
{
    static const struct graph_profile profile = {.devices_min    = 2,
                                                 .devices_max    = 4,
                                                 .steps_min      = 40,
                                                 .steps_max      = 120,
                                                 .spill_permille = 1000,
                                                 .check_every    = 20};

    run_one(&profile, 1);
    run_one(&profile, 1689);
}

/*
 * A call was run a second time beside a launch of its own; both losses gave up that run and the one
 * that was to write over its result. The result of the first was then found where that of the
 * second should have been: bytes of nobody.
 */
TEST(what_was_never_made_is_not_found_where_the_next_would_have_written_over_it)
{
    run_one(&devices_go, 1795402728482305969);
}

/* A launch that wrote beside it had failed, and so did the spill of both: the value was nowhere then. */
TEST(a_value_beside_one_that_failed_is_spilled_when_it_is_there)
{
    static const struct graph_profile profile = {.devices_min    = 2,
                                                 .devices_max    = 4,
                                                 .steps_min      = 40,
                                                 .steps_max      = 120,
                                                 .gone_permille  = 900,
                                                 .host_permille  = 400,
                                                 .crash_permille = 300,
                                                 .break_permille = 300,
                                                 .spill_permille = 1000,
                                                 .check_every    = 1};

    run_one(&profile, 728);
}

/*
 * A call was to be run again that needed what nobody can make; another one, which read a part of
 * the same value that was there, failed with it.
 */
TEST(a_part_that_is_there_does_not_fail_with_one_that_is_not)
{
    run_one(&put_twice, 1795468889875644185);
}

/*
 * What was looked up was lost before it was made, and only the record of a later call still had it,
 * so that nobody was to make it again.
 */
TEST(what_is_lost_and_only_a_record_has_is_over_for_who_looked_it_up)
{
    run_one(&pairs_go, 257);
}

TEST_MAIN()
