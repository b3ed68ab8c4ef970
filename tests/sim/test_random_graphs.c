/*
 * Thousands of random programs on simulated clusters, each compared with what it means.
 *
 * PLASMON_GRAPHS=n runs n of them. A seed that fails is printed with its program; `--seed S` begins
 * there, PLASMON_GRAPHS=1 stops there.
 */
#include "tests/sim/seeds.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "tests/harness/test.h"

enum { GRAPHS_DEFAULT = 5000, PROCESSES = 2, COVERAGE_FROM = 4000 };

static const struct graph_profile profile = {.devices_min     = 1,
                                             .devices_max     = 4,
                                             .steps_min       = 20,
                                             .steps_max       = 70,
                                             .crash_permille  = 300,
                                             .break_permille  = 150,
                                             .scarce_permille = 120,
                                             .check_every     = 200};

static uint64_t graphs_wanted(void)
{
    const char *text = getenv("PLASMON_GRAPHS");

    return text != NULL ? strtoull(text, NULL, 10) : GRAPHS_DEFAULT;
}

struct shared {
    struct graph_coverage coverage[PROCESSES];
    uint64_t failed_seed[PROCESSES];
    uint64_t running_seed[PROCESSES];
};

static void coverage_add(struct graph_coverage *to, const struct graph_coverage *from)
{
    uint64_t *a       = (uint64_t *)to;
    const uint64_t *b = (const uint64_t *)from;

    for (size_t i = 0; i < sizeof(*to) / sizeof(uint64_t); i++) {
        a[i] += b[i];
    }
}

_Noreturn static void child_run(struct shared *shared, uint32_t which, uint64_t first,
                                uint64_t count)
{
    seeds_log_errors();
    for (uint64_t i = which; i < count; i += PROCESSES) {
        shared->running_seed[which] = first + i;
        if (!graph_run(first + i, &profile, &shared->coverage[which], true)) {
            shared->failed_seed[which] = first + i;
            _exit(1);
        }
    }
    _exit(0);
}

TEST(random_programs_mean_what_they_mean_one_by_one)
{
    uint64_t count            = graphs_wanted();
    uint64_t first            = test_seed();
    struct shared *shared     = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
                                     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct graph_coverage sum = {0};
    pid_t child[PROCESSES];
    bool failed = false;
    struct pl_str missing;

    test_set_timeout(600);
    ASSERT_TRUE(shared != MAP_FAILED);
    printf("# %llu seeds from %llu\n", (unsigned long long)count,
           (unsigned long long)first);
    (void)fflush(stdout);
    for (uint32_t i = 0; i < PROCESSES; i++) {
        child[i] = fork();
        ASSERT_TRUE(child[i] >= 0);
        if (child[i] == 0) {
            child_run(shared, i, first, count);
        }
    }
    for (uint32_t i = 0; i < PROCESSES; i++) {
        int status = 0;

        ASSERT_TRUE(waitpid(child[i], &status, 0) == child[i]);
        if (status != 0) {
            printf(
                "# seed %llu %s; repeat: PLASMON_GRAPHS=1 test_random_graphs --seed %llu\n",
                (unsigned long long)shared->running_seed[i],
                WIFSIGNALED(status) ? "ends the process" : "fails",
                (unsigned long long)shared->running_seed[i]);
            failed = true;
        }
        coverage_add(&sum, &shared->coverage[i]);
    }
    ASSERT_TRUE(!failed);
    graph_coverage_print(&sum);

    if (count >= COVERAGE_FROM) {
        ASSERT_TRUE(sum.replayed > 0);
        ASSERT_TRUE(sum.components > 0);
        pl_str_init(&missing);
        if (graph_coverage_missing(&sum, &missing) != 0) {
            printf("%s", pl_str_text(&missing));
            test_fail(__FILE__, __LINE__,
                      "cells of the coverage table were never executed");
        }
        pl_str_finish(&missing);
    }
    (void)munmap(shared, sizeof(*shared));
}

/*
 * Programs in which a sealed buffer was not sealed any more after a crash: its maker was given up
 * though another launch had written a part (31537269), or a launch that had been writing a part in
 * place (299336166, 142035034). And one whose maker failed twice, with nothing right in it
 * (298654587).
 */
TEST(programs_that_lost_a_seal_keep_it)
{
    static const uint64_t seeds[] = {31537269, 299336166, 142035034, 298654587};
    static struct graph_coverage coverage;

    test_expect_log();
    seeds_log_errors();
    for (size_t i = 0; i < PL_COUNT(seeds); i++) {
        ASSERT_TRUE(graph_run(seeds[i], &profile, &coverage, true));
    }
}

/*
 * Programs that failed while small parts came together, by one launch, before they were made
 * (head/move_launch.c says why they do not): a version that is kept for lineage had nothing else
 * (32141), readers of one part failed with another (72408, 82873, 3540, 1795352179185686785), and
 * what nobody shows any more was missed (82592).
 */
TEST(programs_that_failed_with_parts_they_do_not_read_succeed)
{
    static const uint64_t seeds[] = {32141, 72408, 82873,
                                     82592, 3540,  UINT64_C(1795352179185686785)};
    static struct graph_coverage coverage;

    test_expect_log();
    seeds_log_errors();
    for (size_t i = 0; i < PL_COUNT(seeds); i++) {
        ASSERT_TRUE(graph_run(seeds[i], &profile, &coverage, true));
    }
}

/*
 * A call that was lost had read a put that was written over in place behind it, on the call's own
 * device. It was run again with what had been copied for it, which counted as a replica although
 * nothing else was left.
 */
TEST(a_call_that_is_run_again_keeps_the_copy_that_it_was_given)
{
    static struct graph_coverage coverage;

    test_expect_log();
    seeds_log_errors();
    ASSERT_TRUE(graph_run(8510, &profile, &coverage, true));
}

TEST_MAIN()
