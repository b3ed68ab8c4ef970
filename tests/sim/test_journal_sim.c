/*
 * A head that is killed, and made again from its journal, in the middle of random programs: at any
 * step, with some batches of its journal stored and not yet answered, others lost on the way,
 * beside workers that crash, connections that break, clients that die and limits.
 *
 * Two claims. For clients it is as if nothing had happened: every future resolves once, with what
 * sequential execution gives; nothing that was acknowledged is lost or done twice. And the head is
 * a function of its inputs: at each crash and at the end a second one is made from all records
 * (since the last checkpoint, which is made at random quiet moments), and must have the same links,
 * the same numbers, and have put out the same bytes.
 *
 * PLASMON_SEEDS=n: so many runs of each kind; --only TEST --seed S with PLASMON_SEEDS=1 repeats one.
 */
#include "tests/sim/seeds.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/log.h"
#include "tests/harness/test.h"

enum { SEEDS_DEFAULT = 80, FOUND = 3 };

static struct graph_coverage sum; /* large, and zero at the start of each test's process */

/* What a few runs may miss. */
#define ASSERT_MET(x) ASSERT_TRUE(sum.graphs < SEEDS_DEFAULT || (x))

static void run_seeds(const struct graph_profile *profile)
{
    (void)seeds_run_graphs(SEEDS_DEFAULT, profile, &sum);
    printf(
        "# %llu runs: %llu tasks done, %llu failed; %llu heads killed, %llu inputs "
        "replayed, %llu checkpoints (%llu with spilled values, %llu with recorded graphs, "
        "%llu with lineage); %llu crashes of workers, %llu broken connections\n",
        (unsigned long long)sum.graphs, (unsigned long long)sum.tasks_done,
        (unsigned long long)sum.tasks_failed, (unsigned long long)sum.head_crashes,
        (unsigned long long)sum.inputs_replayed, (unsigned long long)sum.checkpoints,
        (unsigned long long)sum.checkpoints_spilled,
        (unsigned long long)sum.checkpoints_graphs,
        (unsigned long long)sum.checkpoints_lineage, (unsigned long long)sum.crashes,
        (unsigned long long)sum.breaks);
}

TEST(a_head_that_is_killed_goes_on_from_its_journal)
{
    static const struct graph_profile profile = {.devices_min         = 1,
                                                 .devices_max         = 4,
                                                 .steps_min           = 40,
                                                 .steps_max           = 120,
                                                 .head_crash_permille = 1000,
                                                 .check_every         = 50};

    run_seeds(&profile);
    ASSERT_MET(sum.head_crashes > sum.graphs / 2);
    ASSERT_MET(sum.tasks_done > sum.tasks_failed && sum.checkpoints > sum.graphs / 2);
    ASSERT_MET(sum.checkpoints_lineage > 0 && sum.checkpoints_graphs > 0);
}

TEST(beside_workers_that_crash_and_connections_that_break)
{
    static const struct graph_profile profile = {.devices_min         = 1,
                                                 .devices_max         = 4,
                                                 .steps_min           = 40,
                                                 .steps_max           = 120,
                                                 .head_crash_permille = 1000,
                                                 .crash_permille      = 700,
                                                 .crashes_most        = 4,
                                                 .break_permille      = 700,
                                                 .breaks_most         = 10,
                                                 .check_every         = 50};

    run_seeds(&profile);
    ASSERT_MET(sum.head_crashes > sum.graphs / 2 && sum.crashes > 0 && sum.breaks > 0);
}

TEST(with_little_memory_limits_and_clients_that_die)
{
    static const struct graph_profile profile = {.devices_min           = 1,
                                                 .devices_max           = 4,
                                                 .steps_min             = 40,
                                                 .steps_max             = 120,
                                                 .head_crash_permille   = 1000,
                                                 .crash_permille        = 300,
                                                 .scarce_permille       = 300,
                                                 .client_crash_permille = 300,
                                                 .limit_permille        = 400,
                                                 .check_every           = 50};

    run_seeds(&profile);
    ASSERT_MET(sum.head_crashes > sum.graphs / 2);
}

TEST(what_lies_in_memory_of_the_host_and_in_files_is_in_checkpoints)
{
    static const struct graph_profile profile = {.devices_min         = 1,
                                                 .devices_max         = 3,
                                                 .steps_min           = 40,
                                                 .steps_max           = 120,
                                                 .head_crash_permille = 1000,
                                                 .crash_permille      = 200,
                                                 .spill_permille      = 1000,
                                                 .check_every         = 50};

    run_seeds(&profile);
    ASSERT_MET(sum.head_crashes > sum.graphs / 2 && sum.spills > 0 &&
               sum.checkpoints_spilled > 0);
}

/*
 * A seed whose run did not come to rest: the flush before a checkpoint began a copy ahead of need,
 * so there was none, and the batch that was closed for it was never stored in the simulation. What
 * followed from it never left.
 */
TEST(a_checkpoint_that_a_copy_ahead_of_need_prevents)
{
    static const struct graph_profile profile = {.devices_min         = 1,
                                                 .devices_max         = 3,
                                                 .steps_min           = 40,
                                                 .steps_max           = 140,
                                                 .head_crash_permille = 1000,
                                                 .crash_permille      = 1000,
                                                 .crashes_most        = 4,
                                                 .breaks_most         = 6,
                                                 .spill_permille      = 1000,
                                                 .check_every         = 50};

    seeds_log_errors();
    ASSERT_TRUE(graph_run(60000477, &profile, &sum, true));
}

/* What is lost is made again by whichever head is there when that is known. */
TEST(devices_and_hosts_that_are_lost_beside_a_head_that_is_killed)
{
    static const struct graph_profile profile = {.devices_min         = 2,
                                                 .devices_max         = 4,
                                                 .steps_min           = 40,
                                                 .steps_max           = 120,
                                                 .head_crash_permille = 1000,
                                                 .gone_permille       = 1000,
                                                 .host_permille       = 300,
                                                 .crash_permille      = 300,
                                                 .break_permille      = 300,
                                                 .check_every         = 50};

    run_seeds(&profile);
    ASSERT_MET(sum.head_crashes > sum.graphs / 2 && sum.gone > sum.graphs / 2);
}

static const struct graph_profile standing_still = {.devices_min         = 1,
                                                    .devices_max         = 4,
                                                    .steps_min           = 40,
                                                    .steps_max           = 120,
                                                    .head_crash_permille = 300,
                                                    .head_stops_most     = 4,
                                                    .crash_permille      = 300,
                                                    .break_permille      = 300,
                                                    .stop_permille       = 300,
                                                    .stops_most          = 2,
                                                    .store_deaths_most   = 1,
                                                    .spill_permille      = 200,
                                                    .cut_permille        = 200,
                                                    .cuts_most           = 6,
                                                    .check_every         = 50};

/*
 * A head that stands still is no dead one: it goes on, perhaps when another one has taken its place
 * (sim_standby.c), with peers that have not left it yet, and with what it had begun.
 */
TEST(a_head_that_stood_still_is_not_believed_any_more)
{
    run_seeds(&standing_still);
    seeds_assert_met(&sum, SEEDS_DEFAULT, SIM_CELL_HEAD_WENT_ON, SIM_CELL_HEAD_REFUSED);
}

/*
 * A seed in which a call failed that had no reason to: it read what had been written over a part of
 * a fold, by a call that was done. The fold was not: of what it had read, one was cancelled on
 * another device, which was not heard of before.
 */
TEST(a_part_that_was_written_over_before_its_writer_is_known_to_have_failed)
{
    seeds_log_errors();
    ASSERT_TRUE(graph_run(1795416408062361748, &standing_still, &sum, true));
}

/* Would it be noticed? In a process of its own, since a broken invariant ends it. */
TEST(a_record_that_is_skipped_is_noticed)
{
    static const struct graph_profile profile = {.devices_min         = 1,
                                                 .devices_max         = 4,
                                                 .steps_min           = 40,
                                                 .steps_max           = 80,
                                                 .head_crash_permille = 1000};

    int status = 0;
    pid_t child;

#ifndef PL_FAULTS
    test_skip("this build has no seeded bugs (PLASMON_FAULTS is off)");
#endif
    (void)fflush(stdout);
    child = fork();
    ASSERT_TRUE(child >= 0);
    if (child == 0) {
        (void)alarm(60);
        pl_log_set_sink(NULL, NULL);
        pl_bug_arm("head.replay_skips");
        for (uint64_t seed = 1; seed < 50; seed++) {
            if (!graph_run(seed, &profile, &sum, false)) {
                _exit(FOUND);
            }
        }
        _exit(0);
    }
    ASSERT_TRUE(waitpid(child, &status, 0) == child);
    ASSERT_TRUE(WIFSIGNALED(status) ? WTERMSIG(status) == SIGABRT
                                    : WEXITSTATUS(status) == FOUND);
}

TEST_MAIN()
