#include "tests/harness/test.h"

#include "base/clock.h"
#include "base/lock.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static struct pl_mutex low, low_too, high;

static void init_all(void)
{
    ASSERT_OK(pl_mutex_init(&low, PL_RANK_WORKER));
    ASSERT_OK(pl_mutex_init(&low_too, PL_RANK_WORKER));
    ASSERT_OK(pl_mutex_init(&high, PL_RANK_STORE));
}

static void finish_all(void)
{
    pl_mutex_finish(&low);
    pl_mutex_finish(&low_too);
    pl_mutex_finish(&high);
}

/* Runs `fn` in a child: 1 if it aborted, 0 if it came to its end. */
static int aborts(void (*fn)(void))
{
    int status;
    pid_t pid;

    (void)fflush(stdout);
    pid = fork();
    ASSERT_TRUE(pid >= 0);
    if (pid == 0) {
        (void)signal(SIGABRT, SIG_DFL); /* past the sanitizers' handlers */
        test_expect_log();
        fn();
        _exit(0);
    }
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    if (WIFSIGNALED(status)) {
        ASSERT_EQ(WTERMSIG(status), SIGABRT);
        return 1;
    }
    ASSERT_EQ(WEXITSTATUS(status), 0);
    return 0;
}

static void skip_without_checks(void)
{
#ifdef NDEBUG
    test_skip("lock ranks are checked in builds with assertions only");
#endif
}

static void lock_upwards(void)
{
    pl_mutex_lock(&low);
    pl_mutex_lock(&high);
    pl_mutex_assert_held(&low);
    pl_mutex_assert_held(&high);
    pl_mutex_unlock(&low); /* any order of unlocking is fine */
    pl_mutex_unlock(&high);
}

static void lock_downwards(void)
{
    pl_mutex_lock(&high);
    pl_mutex_lock(&low);
}

static void lock_equals(void)
{
    pl_mutex_lock(&low);
    pl_mutex_lock(&low_too);
}

static void lock_low_after_high_was_left(void)
{
    pl_mutex_lock(&high);
    pl_mutex_unlock(&high);
    pl_mutex_lock(&low);
    pl_mutex_unlock(&low);
}

static void assert_what_is_not_held(void)
{
    pl_mutex_lock(&low);
    pl_mutex_assert_held(&high);
}

static void unlock_what_is_not_held(void)
{
    pl_mutex_unlock(&low);
}

TEST(locking_upwards_is_allowed)
{
    init_all();
    ASSERT_TRUE(!aborts(lock_upwards));
    ASSERT_TRUE(!aborts(lock_low_after_high_was_left));
    finish_all();
}

TEST(locking_downwards_aborts)
{
    skip_without_checks();
    init_all();
    ASSERT_TRUE(aborts(lock_downwards));
    finish_all();
}

TEST(locking_an_equal_rank_aborts)
{
    skip_without_checks();
    init_all();
    ASSERT_TRUE(aborts(lock_equals));
    finish_all();
}

TEST(claiming_or_unlocking_what_is_not_held_aborts)
{
    skip_without_checks();
    init_all();
    ASSERT_TRUE(aborts(assert_what_is_not_held));
    ASSERT_TRUE(aborts(unlock_what_is_not_held));
    finish_all();
}

#define THREADS 4
#define ROUNDS  20000

static uint64_t guarded;

static void *count_up(void *unused)
{
    (void)unused;
    for (int i = 0; i < ROUNDS; i++) {
        pl_mutex_lock(&low);
        guarded++;
        pl_mutex_unlock(&low);
    }
    return NULL;
}

TEST(a_mutex_excludes)
{
    pthread_t threads[THREADS];

    init_all();
    for (int i = 0; i < THREADS; i++) {
        ASSERT_EQ(pthread_create(&threads[i], NULL, count_up, NULL), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        ASSERT_EQ(pthread_join(threads[i], NULL), 0);
    }
    ASSERT_EQ(guarded, THREADS * ROUNDS);
    finish_all();
}

static struct pl_cond turned;
static int turn; /* guarded by low: whose turn it is */

static void *answer(void *unused)
{
    (void)unused;
    for (int i = 0; i < 1000; i++) {
        pl_mutex_lock(&low);
        while (turn != 1) {
            pl_cond_wait(&turned, &low);
        }
        turn = 0;
        pl_cond_signal(&turned);
        pl_mutex_unlock(&low);
    }
    return NULL;
}

TEST(two_threads_take_turns_by_a_condition)
{
    pthread_t thread;

    init_all();
    ASSERT_OK(pl_cond_init(&turned));
    ASSERT_EQ(pthread_create(&thread, NULL, answer, NULL), 0);
    for (int i = 0; i < 1000; i++) {
        pl_mutex_lock(&low);
        turn = 1;
        pl_cond_broadcast(&turned);
        while (turn != 0) {
            ASSERT_TRUE(pl_cond_wait_until(&turned, &low, pl_now_ns() + 20000000000u));
        }
        pl_mutex_assert_held(&low);
        pl_mutex_unlock(&low);
    }
    ASSERT_EQ(pthread_join(thread, NULL), 0);
    pl_cond_finish(&turned);
    finish_all();
}

TEST(a_wait_ends_at_its_deadline_and_not_before)
{
    uint64_t deadline_ns = pl_now_ns() + 20000000u;
    int signalled        = 1;

    init_all();
    ASSERT_OK(pl_cond_init(&turned));
    pl_mutex_lock(&low);
    while (signalled) { /* spurious wake-ups are allowed */
        signalled = pl_cond_wait_until(&turned, &low, deadline_ns);
    }
    ASSERT_TRUE(pl_now_ns() >= deadline_ns);
    ASSERT_EQ(pl_cond_wait_until(&turned, &low, 0), 0); /* long past */
    pl_mutex_unlock(&low);
    pl_cond_finish(&turned);
    finish_all();
}

static void wait_while_holding_more(void)
{
    struct pl_cond cond;

    if (pl_cond_init(&cond) != PLASMON_OK) {
        abort();
    }
    pl_mutex_lock(&low);
    (void)pl_cond_wait_until(&cond, &low,
                             pl_now_ns()); /* only its effect on the held set matters */
    pl_mutex_lock(&high);
    pl_mutex_unlock(&high);
    pl_mutex_unlock(&low);
}

TEST(after_a_wait_the_mutex_is_held_as_before)
{
    init_all();
    ASSERT_TRUE(!aborts(wait_while_holding_more));
    finish_all();
}

TEST_MAIN()
