/*
 * Programs with the real libplasmon on a simulated cluster: connections that break, a network that
 * is cut, heads that are killed and go on from their journal, programs that are killed, sessions
 * whose lease is over. Every value is that of sequential execution, nothing is lost or done twice,
 * what was published outlives its publisher, and in the end nothing is left at the head or on a
 * device.
 *
 * PLASMON_SEEDS=n: so many runs of each kind; --only TEST --seed S with PLASMON_SEEDS=1 repeats one.
 */
#include "tests/sim/clients_play.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "tests/harness/test.h"

enum { SEEDS_DEFAULT = 40, HUNT_MAX = 300, FOUND = 3 };

static struct clients_coverage sum;

static const char *const cell_texts[] = {
#define XX(name, text) [SIM_CELL_##name] = text,
    SIM_CELLS(XX)
#undef XX
};

static double seconds_of_cpu(void)
{
    return (double)pl_thread_cpu_ns() / 1e9;
}

static void run_seeds(const struct clients_profile *profile)
{
    const char *text = getenv("PLASMON_SEEDS");
    uint64_t count   = text != NULL ? strtoull(text, NULL, 10) : SEEDS_DEFAULT;
    uint64_t first   = test_seed();
    double began     = seconds_of_cpu();

    test_set_timeout(600);
    test_expect_log();
    pl_log_set_sink(NULL, NULL);
    for (uint64_t seed = first; seed < first + count; seed++) {
        if (!clients_run(seed, profile, &sum, true)) {
            test_fail(__FILE__, __LINE__,
                      "seed %llu fails; repeat with PLASMON_SEEDS=1 and --seed %llu",
                      (unsigned long long)seed, (unsigned long long)seed);
        }
    }
    printf("# %llu seeds from %llu\n", (unsigned long long)count,
           (unsigned long long)first);
    printf(
        "# %llu runs, %.0f a second: %llu steps, %llu values; %llu programs killed, %llu "
        "sessions lost\n",
        (unsigned long long)sum.runs, (double)sum.runs / (seconds_of_cpu() - began),
        (unsigned long long)sum.steps, (unsigned long long)sum.values,
        (unsigned long long)sum.kills, (unsigned long long)sum.lost_sessions);
}

static void assert_met(enum sim_cell first, enum sim_cell last)
{
    for (uint32_t i = first; i <= (uint32_t)last; i++) {
        printf("# %8llu  %s\n", (unsigned long long)sum.met[i], cell_texts[i]);
    }
    (void)fflush(stdout);
    for (uint32_t i = first; sum.runs >= SEEDS_DEFAULT && i <= (uint32_t)last; i++) {
        if (sum.met[i] == 0) {
            test_fail(__FILE__, __LINE__, "never met: %s", cell_texts[i]);
        }
    }
}

static const struct clients_profile broken = {.steps_min      = 60,
                                              .steps_max      = 200,
                                              .break_permille = 1000,
                                              .cut_permille   = 500,
                                              .check_every    = 50};

static const struct clients_profile dying = {.steps_min      = 60,
                                             .steps_max      = 200,
                                             .break_permille = 300,
                                             .cut_permille   = 700,
                                             .lease_permille = 700,
                                             .kill_permille  = 1000,
                                             .check_every    = 50};

static const struct clients_profile with_heads = {.steps_min           = 60,
                                                  .steps_max           = 160,
                                                  .break_permille      = 300,
                                                  .cut_permille        = 300,
                                                  .kill_permille       = 500,
                                                  .head_crash_permille = 1000,
                                                  .check_every         = 100};

TEST(connections_that_break_are_noticed_by_nobody)
{
    run_seeds(&broken);
    assert_met(SIM_CELL_CLIENT_RESUMED, SIM_CELL_CLIENT_WAITING);
}

TEST(programs_die_and_leave_nothing_but_names)
{
    run_seeds(&dying);
    assert_met(SIM_CELL_CLIENT_RESUMED, SIM_CELL_CLIENT_NAMES);
}

TEST(sessions_go_on_with_the_next_head)
{
    run_seeds(&with_heads);
    assert_met(SIM_CELL_CLIENT_NEW_HEAD, SIM_CELL_CLIENT_NEW_HEAD);
}

/*
 * Programs that found something. All three: what a connection had taken before it refused a frame
 * was taken for acknowledged, and was not there any more when the connection broke
 * (wire_link_resend).
 */
TEST(programs_that_lost_frames_lose_none)
{
    test_set_timeout(120);
    test_expect_log();
    pl_log_set_sink(NULL, NULL);
    ASSERT_TRUE(clients_run(1604, &broken, &sum, true));
    ASSERT_TRUE(clients_run(1098, &dying, &sum, true));
    ASSERT_TRUE(clients_run(1252, &with_heads, &sum, true));
}

/* ----------------------------------------------------------------- would it be noticed? */

static void assert_found(const char *bug, const struct clients_profile *profile)
{
    int status = 0;
    pid_t child;

#ifndef PL_FAULTS
    test_skip("this build has no seeded bugs (PLASMON_FAULTS is off)");
#endif
    test_set_timeout(240);
    (void)fflush(stdout);
    child = fork();
    ASSERT_TRUE(child >= 0);
    if (child == 0) {
        (void)alarm(200);
        pl_log_set_sink(NULL, NULL);
        pl_bug_arm(bug);
        for (uint64_t seed = 1; seed <= HUNT_MAX; seed++) {
            if (!clients_run(seed, profile, &sum, false)) {
                printf("# %s: found by seed %llu\n", bug, (unsigned long long)seed);
                (void)fflush(stdout);
                _exit(FOUND);
            }
        }
        _exit(0);
    }
    ASSERT_TRUE(waitpid(child, &status, 0) == child);
    ASSERT_TRUE(WIFSIGNALED(status) ? WTERMSIG(status) == SIGABRT
                                    : WEXITSTATUS(status) == FOUND);
}

TEST(a_resend_that_leaves_a_frame_out_is_noticed)
{
    assert_found("client.resend_skips", &broken);
}

TEST(a_refused_frame_that_is_forgotten_is_noticed)
{
    assert_found("client.stuck_forgotten", &broken);
}

TEST(a_session_that_is_given_up_too_early_is_noticed)
{
    assert_found("head.lease_short", &dying);
}

TEST(a_session_that_is_never_given_up_is_noticed)
{
    assert_found("head.lease_forgotten", &dying);
}

TEST(a_name_that_goes_with_its_publisher_is_noticed)
{
    assert_found("head.name_dies", &dying);
}

TEST_MAIN()
