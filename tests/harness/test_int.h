/* Between the runner (test.c) and one test's process (child.c). */
#ifndef TESTS_HARNESS_TEST_INT_H
#define TESTS_HARNESS_TEST_INT_H

#include <stdatomic.h>
#include <stdint.h>

#include "test.h"

#define TEST_TEXT_BYTES 1024

enum test_result {
    TEST_RUNNING = 0, /* what a crash leaves behind */
    TEST_PASSED,
    TEST_FAILED,
    TEST_SKIPPED,
};

/*
 * In memory shared by both processes. The child writes; the runner reads `deadline_ns` when woken,
 * and the rest after the child has ended. `claimed` makes the first failure the one that is told:
 * threads of a test may fail together, and so may processes that it forked.
 */
struct test_report {
    _Atomic int result;           /* enum test_result */
    _Atomic int claimed;          /* by this process; 0: by none */
    _Atomic uint64_t deadline_ns; /* CLOCK_MONOTONIC */
    char text[TEST_TEXT_BYTES];   /* why it failed or was skipped */
};

struct test_child_config {
    struct test_report *report;
    int wake_fd; /* eventfd: the deadline has moved */
    int in_fork; /* 0: --no-fork, and a failure ends everything */
    uint64_t seed;
};

/* Run one test in this process and return; does not return if it fails or is skipped in a fork. */
void test_child_run(const struct test_child_config *config, test_fn fn);

#endif
