/* Waiting without falling asleep: how long, and when it ends. */
#include "tests/harness/test.h"

#include "base/clock.h"
#include "base/linger.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

TEST(pauses_grow_with_the_wait_and_stay_below_what_puts_a_processor_to_sleep)
{
    uint64_t last = 0;

    ASSERT_EQ(pl_linger_pause_ns(0, false), 0);
    ASSERT_EQ(pl_linger_pause_ns(19999, false), 0);
    for (uint64_t waited = 20000; waited < 100000000; waited += 1000) {
        uint64_t pause = pl_linger_pause_ns(waited, false);

        ASSERT_TRUE(pause >= last && pause >= 5000 && pause <= 50000);
        last = pause;
    }
    ASSERT_EQ(last, 50000);
}

TEST(with_many_things_under_way_there_is_a_pause_before_the_first_look)
{
    ASSERT_EQ(pl_linger_pause_ns(0, true), 20000);
    ASSERT_EQ(pl_linger_pause_ns(500000, true), 20000);
    ASSERT_EQ(pl_linger_pause_ns(100000000, true), 50000);
}

/* How late what comes after so long is seen, when looks take no time. */
static uint64_t lateness(const struct pl_recent *recent, uint64_t after_ns, bool many)
{
    uint64_t at_ns = 20000; /* until then it is looked for without a pause */

    while (at_ns < after_ns) {
        at_ns += pl_linger_recent_ns(recent, at_ns, many);
    }
    return at_ns - after_ns;
}

TEST(what_takes_as_long_as_lately_is_seen_sooner)
{
    struct pl_recent recent = {0};
    uint64_t late = 0, before = 0;

    for (uint64_t after = 2950000; after < 3050000; after += 1000) {
        before = pl_max_u64(before, lateness(&recent, after, false));
    }
    ASSERT_TRUE(before > 45000);
    pl_recent_learn(&recent, 3000000);
    for (uint64_t after = 2950000; after < 3050000; after += 1000) {
        late = pl_max_u64(late, lateness(&recent, after, false));
    }
    ASSERT_TRUE(late <= 3000000 / 256);
    ASSERT_EQ(pl_linger_recent_ns(&recent, 1000000, false), 31250); /* not yet */
    ASSERT_EQ(pl_linger_recent_ns(&recent, 3100000, false), 50000); /* not any more */
    ASSERT_EQ(pl_linger_recent_ns(&recent, 3000000, true), 50000);
}

TEST(the_environment_says_how_long)
{
    ASSERT_EQ(setenv("PLASMON_LINGER_MS", "7", 1), 0);
    ASSERT_EQ(pl_linger_ns(), 7000000);
}

TEST(what_is_no_number_is_named_and_not_used)
{
    test_expect_log();
    ASSERT_EQ(setenv("PLASMON_LINGER_MS", "-3 ms", 1), 0);
    ASSERT_TRUE(pl_linger_ns() == 0 || pl_linger_ns() == 16000000);
}

struct shared {
    struct pl_mutex mutex;
    struct pl_cond cond;
    bool done;
};

static void *finish(void *user)
{
    struct shared *shared = user;

    pl_mutex_lock(&shared->mutex);
    shared->done = true;
    pl_cond_signal(&shared->cond);
    pl_mutex_unlock(&shared->mutex);
    return NULL;
}

/* Both in the time of pauses and after it. */
static void wait_both_ways(const char *ms)
{
    struct shared shared = {.done = false};
    uint64_t began_ns    = pl_now_ns();
    pthread_t thread;

    ASSERT_EQ(setenv("PLASMON_LINGER_MS", ms, 1), 0);
    ASSERT_OK(pl_mutex_init(&shared.mutex, PL_RANK_LEAF));
    ASSERT_OK(pl_cond_init(&shared.cond));
    pl_mutex_lock(&shared.mutex);
    while (pl_linger_cond_wait(&shared.cond, &shared.mutex, began_ns, began_ns + 3000000)) {
    }
    ASSERT_TRUE(pl_now_ns() >= began_ns + 3000000);
    ASSERT_EQ(pthread_create(&thread, NULL, finish, &shared), 0);
    while (!shared.done) {
        ASSERT_TRUE(
            pl_linger_cond_wait(&shared.cond, &shared.mutex, pl_now_ns(), UINT64_MAX));
    }
    pl_mutex_unlock(&shared.mutex);
    ASSERT_EQ(pthread_join(thread, NULL), 0);
    pl_cond_finish(&shared.cond);
    pl_mutex_finish(&shared.mutex);
}

TEST(a_wait_ends_by_its_signal_and_at_its_deadline)
{
    wait_both_ways("1");
}

TEST(so_does_one_that_falls_asleep_at_once)
{
    wait_both_ways("0");
}

TEST_MAIN()
