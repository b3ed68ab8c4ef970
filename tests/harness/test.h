/*
 * A test file is one executable:
 *
 *   TEST(seal_makes_an_object_visible) { ASSERT_OK(...); }
 *   TEST_MAIN()
 *
 * TAP on stdout. Each test runs in a forked child with its own time-out, so that a crash, a leak
 * report or a hang is one "not ok" with its reason, and later tests still run. `--only NAME`,
 * `--list`, `--no-fork` (for debuggers). An unexpected warn or error in the log fails the test;
 * test_expect_log(level) allows it.
 */
#ifndef TESTS_HARNESS_TEST_H
#define TESTS_HARNESS_TEST_H

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "plasmon/status.h"

typedef void (*test_fn)(void);
void test_register(const char *name, const char *file, int line, test_fn fn);
int test_main(int argc, char **argv);
_Noreturn void test_fail(const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* says why; counts as skipped */
_Noreturn void test_skip(const char *format, ...) __attribute__((format(printf, 1, 2)));
void test_set_timeout(unsigned seconds);  /* for this test; default 30 */
void test_need_timeout(unsigned seconds); /* the same, unless it has more already */
void test_expect_log(void); /* warnings and errors are expected from here on */
/*
 * As long as `ms` on an idle machine: more on a machine whose processors have a queue. For promises
 * like "gone within two seconds", which are about what the product waits for and not about who else
 * wants to compute.
 */
unsigned test_patience_ms(unsigned ms);
/* from --seed or PLASMON_TEST_SEED, else from the clock; printed on failure */
uint64_t test_seed(void);
uint64_t test_random(uint64_t *io_state); /* splitmix64 */

#define TEST(name)                                                      \
    static void test_##name(void);                                      \
    __attribute__((constructor)) static void test_register_##name(void) \
    {                                                                   \
        test_register(#name, __FILE__, __LINE__, test_##name);          \
    }                                                                   \
    static void test_##name(void)

#define TEST_MAIN()                   \
    int main(int argc, char **argv)   \
    {                                 \
        return test_main(argc, argv); \
    }

#define ASSERT_TRUE(x)                                        \
    do {                                                      \
        if (!(x)) {                                           \
            test_fail(__FILE__, __LINE__, "%s is false", #x); \
        }                                                     \
    } while (0)
#define ASSERT_NULL(x)     ASSERT_TRUE((x) == NULL)
#define ASSERT_NOT_NULL(x) ASSERT_TRUE((x) != NULL)
#define ASSERT_EQ(a, b)                                                              \
    do {                                                                             \
        long long a_ = (long long)(a), b_ = (long long)(b);                          \
        if (a_ != b_) {                                                              \
            test_fail(__FILE__, __LINE__, "%s is %lld, %s is %lld", #a, a_, #b, b_); \
        }                                                                            \
    } while (0)
#define ASSERT_STATUS(x, want)                                                      \
    do {                                                                            \
        plasmon_status_t s_ = (x);                                                  \
        if (s_ != (want)) {                                                         \
            test_fail(__FILE__, __LINE__, "%s gave status %d, not %s", #x, (int)s_, \
                      #want);                                                       \
        }                                                                           \
    } while (0)
#define ASSERT_OK(x) ASSERT_STATUS(x, PLASMON_OK)
#define ASSERT_STR(a, b)                                                           \
    do {                                                                           \
        const char *a_ = (a), *b_ = (b);                                           \
        if (strcmp(a_, b_) != 0) {                                                 \
            test_fail(__FILE__, __LINE__, "%s is \"%s\", not \"%s\"", #a, a_, b_); \
        }                                                                          \
    } while (0)
#define ASSERT_CONTAINS(text, part)                                                  \
    do {                                                                             \
        const char *t_ = (text), *p_ = (part);                                       \
        if (strstr(t_, p_) == NULL) {                                                \
            test_fail(__FILE__, __LINE__, "\"%s\" does not contain \"%s\"", t_, p_); \
        }                                                                            \
    } while (0)

#endif
