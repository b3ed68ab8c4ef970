/*
 * A cluster under faults: broken connections, crashing workers, dying clients, full devices,
 * kernels that do not end, each alone and all at once.
 *
 * In every run, checked by the simulation itself: the head's invariants after every few steps
 * (every one with PLASMON_SIM_TRACE); sealed entries keep their bytes; no frame is lost or taken
 * twice; every future resolves, once; nothing waits for ever; what is answered is what sequential
 * execution gives; and when all refs are gone, nothing is left in the head and no byte on any
 * device.
 *
 * PLASMON_SEEDS=n: so many runs of each kind. A seed that fails is printed with its program;
 * `--only TEST --seed S` with PLASMON_SEEDS=1 repeats it, PLASMON_SIM_TRACE=1 shows every step.
 */
#include "tests/sim/seeds.h"

#include <stdio.h>

#include "base/log.h"
#include "tests/harness/test.h"

/*
 * The invariants take as long as five steps. What breaks one stays broken, most often: the seed
 * tells which step it was, checked after each.
 */
enum { SEEDS_DEFAULT = 120, EVERY = 7 };

/* What a few runs may miss. */
#define ASSERT_MET(x) ASSERT_TRUE(sum.graphs < SEEDS_DEFAULT || (x))

static void run_seeds(const struct graph_profile *profile, struct graph_coverage *out_sum)
{
    uint64_t first = test_seed();

    (void)seeds_run_graphs(SEEDS_DEFAULT, profile, out_sum);
    printf("# %llu runs from seed %llu: %llu tasks done, %llu failed; %llu crashes, %llu "
           "broken "
           "connections, %llu starvations\n",
           (unsigned long long)out_sum->graphs, (unsigned long long)first,
           (unsigned long long)out_sum->tasks_done,
           (unsigned long long)out_sum->tasks_failed, (unsigned long long)out_sum->crashes,
           (unsigned long long)out_sum->breaks, (unsigned long long)out_sum->starvations);
}

static void print_limits(const struct graph_coverage *of)
{
    printf(
        "# %llu tasks over their limit, %llu that do not end were cancelled, %llu workers "
        "fenced\n",
        (unsigned long long)of->over_limit, (unsigned long long)of->ended_by_force,
        (unsigned long long)of->fences);
}

static struct graph_coverage sum; /* large, and zero at the start of each test's process */

/*
 * Nothing but test_fail, cancels and what depends on them may fail here: the check is strict
 * without crashes.
 */
TEST(broken_connections_change_nothing)
{
    static const struct graph_profile profile = {.devices_min    = 1,
                                                 .devices_max    = 4,
                                                 .steps_min      = 40,
                                                 .steps_max      = 120,
                                                 .break_permille = 1000,
                                                 .breaks_most    = 30,
                                                 .check_every    = EVERY};

    run_seeds(&profile, &sum);
    ASSERT_MET(sum.breaks > sum.graphs);
    ASSERT_MET(sum.found_late > 0 && sum.found_failed > 0);
}

TEST(crashed_workers_lose_only_what_was_running)
{
    static const struct graph_profile profile = {.devices_min    = 1,
                                                 .devices_max    = 4,
                                                 .steps_min      = 40,
                                                 .steps_max      = 120,
                                                 .crash_permille = 1000,
                                                 .crashes_most   = 6,
                                                 .check_every    = EVERY};

    run_seeds(&profile, &sum);
    ASSERT_MET(sum.crashes > sum.graphs / 2);
    ASSERT_MET(sum.tasks_done > sum.tasks_failed); /* most of the work survives */
}

TEST(dead_clients_leave_nothing)
{
    static const struct graph_profile profile = {.devices_min           = 1,
                                                 .devices_max           = 4,
                                                 .steps_min             = 40,
                                                 .steps_max             = 120,
                                                 .client_crash_permille = 1000,
                                                 .check_every           = EVERY};

    run_seeds(&profile, &sum);
}

TEST(full_devices_fail_tasks_and_hang_nobody)
{
    static const struct graph_profile profile = {.devices_min     = 1,
                                                 .devices_max     = 4,
                                                 .steps_min       = 40,
                                                 .steps_max       = 120,
                                                 .scarce_permille = 1000,
                                                 .check_every     = EVERY};

    run_seeds(&profile, &sum);
    ASSERT_MET(sum.starvations > 0);
}

TEST(programs_that_wait_behind_gates_mean_what_they_mean_whoever_dies)
{
    static const struct graph_profile profile = {.devices_min    = 1,
                                                 .devices_max    = 3,
                                                 .steps_min      = 40,
                                                 .steps_max      = 120,
                                                 .crash_permille = 800,
                                                 .crashes_most   = 6,
                                                 .gates          = true,
                                                 .check_every    = EVERY};

    run_seeds(&profile, &sum);
    ASSERT_MET(sum.crashes > 0 && sum.tasks_done > sum.tasks_failed);
}

/* Limits, cancels by force, and the fences that they take; an order to fence may be lost on the way. */
TEST(launches_that_do_not_end_cost_only_themselves_and_what_was_cut_short)
{
    static const struct graph_profile profile = {.devices_min    = 1,
                                                 .devices_max    = 4,
                                                 .steps_min      = 40,
                                                 .steps_max      = 120,
                                                 .limit_permille = 1000,
                                                 .check_every    = EVERY};

    run_seeds(&profile, &sum);
    print_limits(&sum);
    ASSERT_MET(sum.crashes == 0 && sum.fences > 0);
    ASSERT_MET(sum.over_limit > 0 && sum.ended_by_force > 0);
    ASSERT_MET(sum.tasks_done > sum.tasks_failed);
}

TEST(launches_that_do_not_end_on_workers_that_crash_behind_connections_that_break)
{
    static const struct graph_profile profile = {.devices_min    = 1,
                                                 .devices_max    = 4,
                                                 .steps_min      = 40,
                                                 .steps_max      = 120,
                                                 .limit_permille = 1000,
                                                 .crash_permille = 700,
                                                 .crashes_most   = 4,
                                                 .break_permille = 700,
                                                 .breaks_most    = 10,
                                                 .check_every    = EVERY};

    run_seeds(&profile, &sum);
    print_limits(&sum);
    ASSERT_MET(sum.crashes > 0 && sum.breaks > 0 && sum.fences > 0);
}

static const struct graph_profile everything = {.devices_min           = 2,
                                                .devices_max           = 4,
                                                .steps_min             = 60,
                                                .steps_max             = 200,
                                                .crash_permille        = 800,
                                                .crashes_most          = 8,
                                                .break_permille        = 800,
                                                .breaks_most           = 20,
                                                .scarce_permille       = 150,
                                                .client_crash_permille = 300,
                                                .limit_permille        = 300,
                                                .check_every           = EVERY};

TEST(everything_at_once)
{
    run_seeds(&everything, &sum);
    print_limits(&sum);
    ASSERT_MET(sum.crashes > 0 && sum.breaks > 0);
}

/*
 * A copy of an array on its device was gathered from there and from what another device was still
 * to make, which failed. It was the only whole one, since a part of the other was written over; so
 * it counted as no replica, and who read beside what failed was led there.
 */
TEST(what_lies_beside_a_failure_in_a_copy_is_read_where_it_is_well)
{
    test_expect_log();
    seeds_log_errors();
    ASSERT_TRUE(graph_run(1795402582819008460, &everything, &sum, true));
}

/* Communicators that fail, transfers that are stuck, room for few pairs. */
TEST(pairs_that_break_lose_no_byte)
{
    static const struct graph_profile profile = {.devices_min    = 2,
                                                 .devices_max    = 4,
                                                 .steps_min      = 40,
                                                 .steps_max      = 120,
                                                 .pairs_permille = 1000,
                                                 .break_permille = 300,
                                                 .check_every    = 50};

    run_seeds(&profile, &sum);
}

TEST(pairs_of_workers_that_die_hang_nobody)
{
    static const struct graph_profile profile = {.devices_min    = 2,
                                                 .devices_max    = 4,
                                                 .steps_min      = 60,
                                                 .steps_max      = 200,
                                                 .pairs_permille = 1000,
                                                 .crash_permille = 1000,
                                                 .crashes_most   = 8,
                                                 .break_permille = 300,
                                                 .breaks_most    = 10,
                                                 .check_every    = 50};

    run_seeds(&profile, &sum);
    ASSERT_MET(sum.crashes > sum.graphs);
}

/* What a lane writes must not be somebody's who has not finished with it. */
TEST(pairs_of_workers_that_die_with_little_memory_hang_nobody)
{
    static const struct graph_profile profile = {.devices_min     = 2,
                                                 .devices_max     = 4,
                                                 .steps_min       = 60,
                                                 .steps_max       = 200,
                                                 .pairs_permille  = 1000,
                                                 .scarce_permille = 1000,
                                                 .crash_permille  = 500,
                                                 .crashes_most    = 4,
                                                 .check_every     = 50};

    run_seeds(&profile, &sum);
    ASSERT_MET(sum.starvations > 0);
}

/*
 * Programs that found something about pairs. 189: a half waited for another of its pair, which lay
 * behind another pair's on its lane (test_pairs_sim.c has that on purpose). 57: a receive without
 * memory waited for its send to be over.
 */
TEST(programs_that_hung_by_pairs_end)
{
    static const struct graph_profile deaths = {.devices_min    = 3,
                                                .devices_max    = 4,
                                                .steps_min      = 60,
                                                .steps_max      = 200,
                                                .pairs_permille = 1000,
                                                .crash_permille = 800,
                                                .crashes_most   = 8,
                                                .check_every    = 200};
    static const struct graph_profile scarce = {.devices_min     = 2,
                                                .devices_max     = 4,
                                                .steps_min       = 60,
                                                .steps_max       = 200,
                                                .pairs_permille  = 1000,
                                                .scarce_permille = 1000,
                                                .crash_permille  = 500,
                                                .crashes_most    = 4,
                                                .check_every     = 50};

    test_set_timeout(120);
    test_expect_log();
    seeds_log_errors();
    ASSERT_TRUE(graph_run(189, &deaths, &sum, true));
    ASSERT_TRUE(graph_run(57, &scarce, &sum, true));
}

/* Without it, printing a seed would be of no use. */
TEST(the_same_seed_is_the_same_run)
{
    static const struct graph_profile profile = {.devices_min    = 3,
                                                 .devices_max    = 3,
                                                 .steps_min      = 100,
                                                 .steps_max      = 100,
                                                 .crash_permille = 1000,
                                                 .break_permille = 1000};
    uint64_t steps[2], times[2];

    test_expect_log();
    pl_log_set_sink(NULL, NULL);
    for (int i = 0; i < 2; i++) {
        struct graph *graph = graph_make(test_seed(), &profile);
        struct sim *sim     = NULL;

        ASSERT_OK(sim_create(&graph->config, &sim));
        ASSERT_TRUE(graph_play(graph, sim));
        steps[i] = sim->steps;
        times[i] = sim->now_ns;
        sim_destroy(sim);
        graph_destroy(graph);
    }
    ASSERT_EQ(steps[0], steps[1]);
    ASSERT_EQ(times[0], times[1]);
}

TEST_MAIN()
