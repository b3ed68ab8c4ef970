/*
 * Random graphs on clusters of CPU devices, compared to the bit with a sequential reference; and
 * proof that they would notice: bugs are armed in the workers, one at a time, and this same test
 * must fail.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/integration/started.h"
#include "tests/stress/stress_test.h"

#define HUNT_SECONDS 30

static struct stress_profile profile(bool kills)
{
    const struct stress_profile defaults = {
        .kills = kills, .seconds = 5, .devices_max = 4, .large_bytes = 24u << 20};

    return stress_profile_from(&defaults);
}

TEST(random_graphs_mean_the_same_on_a_cluster)
{
    const struct stress_profile chosen = profile(false);

    stress_play(&chosen);
}

TEST(random_graphs_mean_the_same_when_workers_die)
{
    const struct stress_profile chosen = profile(true);

    test_expect_log();
    stress_play(&chosen);
}

/*
 * By pairs of the stand-in for NCCL: every transfer is a meeting of two devices, and all of one
 * device go through two lanes.
 */
TEST(random_graphs_mean_the_same_by_pairs)
{
    struct stress_profile chosen = profile(false);

    chosen.transfer = "nccl";
    stress_play(&chosen);
}

TEST(random_graphs_mean_the_same_by_pairs_when_workers_die)
{
    struct stress_profile chosen = profile(true);

    test_expect_log();
    chosen.transfer = "nccl";
    stress_play(&chosen);
}

/* -------------------------------------------------------------------------- seeded bugs */

/*
 * Runs this program's own first test with the bug armed; its exit status. What it says about the
 * failure is printed.
 */
static int run_with(const char *bug)
{
    static char said[256 << 10];
    char seconds[16], seed[24];
    char *line, *rest = said;
    int status;

    (void)snprintf(seconds, sizeof(seconds), "%d", HUNT_SECONDS);
    (void)snprintf(seed, sizeof(seed), "%llu", (unsigned long long)test_seed());
    ASSERT_EQ(setenv("PLASMON_BUG", bug, 1), 0);
    status = STARTED_RUN(said, sizeof(said), "/proc/self/exe", "--only",
                         "random_graphs_mean_the_same_on_a_cluster", "--seconds", seconds,
                         "--seed", seed);
    while ((line = strsep(&rest, "\n")) != NULL) {
        if (strncmp(line, "# /", 3) == 0 || strstr(line, "stress_run.c") != NULL) {
            printf("# %s: %s\n", bug, line);
        }
    }
    return status;
}

static void assert_noticed(const char *bug)
{
    int status;

#ifndef PL_FAULTS
    test_skip("this build has no seeded bugs (PLASMON_FAULTS is off)");
#endif
    test_set_timeout(HUNT_SECONDS + 90);
    status = run_with(bug);
    if (status != 1) {
        test_fail(__FILE__, __LINE__, "%d s of random graphs did not notice %s (status %d)",
                  HUNT_SECONDS, bug, status);
    }
}

TEST(they_notice_a_wait_for_another_device_left_out)
{
    assert_noticed("worker.skip_wait");
}

TEST(they_notice_a_join_of_streams_left_out)
{
    assert_noticed("worker.skip_join");
}

TEST(they_notice_memory_that_is_freed_at_once)
{
    assert_noticed("worker.early_free");
}

int main(int argc, char **argv)
{
    return stress_main(argc, argv);
}
