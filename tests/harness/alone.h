/*
 * With --shared the tests of a program run in one process, one after the other, until one fails,
 * skips or crashes; the next begins another. For programs whose processes take seconds to start:
 * drivers and libraries of a GPU. A test that forks, or leaves its process in no state for another
 * test, is TEST_ALONE: it has its own, as all have without --shared.
 */
#ifndef TESTS_HARNESS_ALONE_H
#define TESTS_HARNESS_ALONE_H

#include "tests/harness/test.h"

void test_set_alone(const char *name);

#define TEST_ALONE(name)                                             \
    __attribute__((constructor)) static void test_alone_##name(void) \
    {                                                                \
        test_set_alone(#name);                                       \
    }                                                                \
    TEST(name)

#endif
