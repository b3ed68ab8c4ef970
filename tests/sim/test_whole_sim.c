/*
 * Everything at once: each program draws some of what the other simulations have alone - little
 * memory, host memory and files for what has no room, time limits, pairs, lineage and shadows,
 * recorded graphs, a journal - and some of the faults: workers that crash, stand still, go on when
 * they should not; stores and heads that are killed, and heads that stand still and whose place
 * another one takes; devices that are lost for good; hosts that die, are drained, or come back when
 * they were given up; connections that break, networks that are cut; clients that die; disks that
 * are full; communicators that fail. What is put is in two places in some. Each is checked where it
 * is; here they meet.
 *
 * PLASMON_SEEDS=n: so many runs; --only TEST --seed S with PLASMON_SEEDS=1 repeats one.
 * tools/simulate makes as many as there is time for.
 */
#include "tests/sim/seeds.h"

#include <stdio.h>

#include "base/clock.h"
#include "tests/harness/test.h"

enum { SEEDS_DEFAULT = 150 };

static struct graph_coverage sum; /* large, and zero at the start of each test's process */

/* What all of them have. */
#define WHOLE                                                                           \
    .devices_min = 1, .devices_max = 4, .steps_min = 40, .steps_max = 140,              \
    .crash_permille = 500, .crashes_most = 4, .break_permille = 400, .breaks_most = 10, \
    .scarce_permille = 150, .spill_permille = 400, .disk_full_permille = 200,           \
    .spill_deaths_most = 3, .client_crash_permille = 150, .pairs_permille = 250,        \
    .limit_permille = 300, .head_crash_permille = 500, .cut_permille = 400,             \
    .cuts_most = 8, .stop_permille = 500, .stops_most = 3, .store_deaths_most = 2,      \
    .replays_anyway = true, .check_every = 50

/* Of programs that found something; what comes to the others later leaves them as they are. */
static const struct graph_profile whole_at_first = {WHOLE, .gone_permille = 250,
                                                    .host_permille = 300};

static const struct graph_profile whole_with_hosts = {
    WHOLE, .gone_permille = 350, .host_permille = 500, .head_stops_most = 2,
    .host_faults = true};

static const struct graph_profile whole = {WHOLE,
                                           .gone_permille   = 350,
                                           .host_permille   = 500,
                                           .head_stops_most = 2,
                                           .host_faults     = true,
                                           .pairs_of_hosts  = true,
                                           .some_replicas   = true};

TEST(all_features_and_all_faults_together)
{
    uint64_t began_ns = pl_thread_cpu_ns();
    uint64_t count    = seeds_run_graphs(SEEDS_DEFAULT, &whole, &sum);
    double seconds    = (double)(pl_thread_cpu_ns() - began_ns) / 1e9;

    printf("# %llu runs, %.0f a second: %llu tasks done, %llu failed; %llu crashes, %llu "
           "fenced, %llu heads and %llu stores killed, %llu devices gone, %llu broken "
           "connections; %llu tasks run again, %llu spills, %llu restores, %llu tasks of "
           "recorded graphs\n",
           (unsigned long long)sum.graphs, (double)sum.graphs / seconds,
           (unsigned long long)sum.tasks_done, (unsigned long long)sum.tasks_failed,
           (unsigned long long)sum.crashes, (unsigned long long)sum.fences,
           (unsigned long long)sum.head_crashes, (unsigned long long)sum.spill_deaths,
           (unsigned long long)sum.gone, (unsigned long long)sum.breaks,
           (unsigned long long)sum.rebuilt, (unsigned long long)sum.spills,
           (unsigned long long)sum.restores, (unsigned long long)sum.replayed);
    if (count >= SEEDS_DEFAULT) {
        ASSERT_TRUE(sum.crashes > 0 && sum.fences > 0 && sum.head_crashes > 0);
        ASSERT_TRUE(sum.spill_deaths > 0 && sum.gone > 0 && sum.breaks > 0);
        ASSERT_TRUE(sum.rebuilt > 0 && sum.spills > 0 && sum.restores > 0);
        ASSERT_TRUE(sum.replayed > 0);
        ASSERT_TRUE(sum.met[SIM_CELL_HEAD_REFUSED] > 0);
        ASSERT_TRUE(sum.met[SIM_CELL_HOST_DIED] + sum.met[SIM_CELL_HOST_CAME_BACK] > 0);
    }
}

/*
 * 558936255: a fold was given up with a partial result that was made again later, and with it what
 * had been put. 491678581: an order to fence came while there was no store. 920312537: a hello of a
 * dead worker came late, of a device that was gone. 3146082: a launch of a graph that failed took
 * along what it had only read. 77780133: a launch that ended after it was over its limit was sealed
 * by the third worker that got it. 5000272: an order to fence died with the head that gave it.
 * 6021189: a shadow whose bytes had gone while others were made again stayed, and no checkpoint
 * could be made any more.
 */
TEST(programs_that_found_something)
{
    static const uint64_t seeds[] = {558936255, 491678581, 920312537, 3146082,
                                     77780133,  5000272,   6021189};

    test_expect_log();
    seeds_log_errors();
    for (size_t i = 0; i < PL_COUNT(seeds); i++) {
        ASSERT_TRUE(graph_run(seeds[i], &whole_at_first, &sum, true));
    }
}

/*
 * 6219351061: a copy for a shadow failed with one of its parts, and took the others, which it alone
 * had, for lost to all: a value that was well failed with them. 7276069590: a recorded graph went
 * on naming the device where it had been planned, which was being drained. 8888101: the head looked
 * for memory for spilling on a host that has none. 1795402290164508521 (as they are now): a partial
 * sum went with a worker that was fenced, and the fold that was to add it to a put that a call had
 * overwritten was sent already: what reads that fails, as it may. 2191735761: a value was dropped
 * from host memory while it was on its way to a device where it found no room. 3252622297: a second
 * copy found no place after its value had been spilled, the value was shown on its device again, was
 * overwritten there in part, and shown there once more in whole when the spill found no place either.
 */
TEST(programs_that_found_something_later)
{
    static const uint64_t seeds[] = {6219351061, 7276069590, 8888101};

    test_expect_log();
    seeds_log_errors();
    for (size_t i = 0; i < PL_COUNT(seeds); i++) {
        ASSERT_TRUE(graph_run(seeds[i], &whole_with_hosts, &sum, true));
    }
    ASSERT_TRUE(graph_run(1795402290164508521, &whole, &sum, true));
    ASSERT_TRUE(graph_run(1652828067, &whole, &sum, true));
    ASSERT_TRUE(graph_run(2191735761, &whole, &sum, true));
    ASSERT_TRUE(graph_run(3252622297, &whole, &sum, true));
}

TEST_MAIN()
