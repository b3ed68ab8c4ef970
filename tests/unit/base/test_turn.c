/* Turns: one at a time, whoever dies; and nobody waits for ever. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/turn.h"
#include "tests/harness/test.h"

#define LONG_NS UINT64_C(60000000000)

static atomic_bool stays;

static const char *name_of_test(void)
{
    static char name[32];

    (void)snprintf(name, sizeof(name), "test-%d", (int)getpid());
    return name;
}

TEST(a_turn_is_one_holders_and_the_next_ones_when_he_is_through)
{
    const char *name = name_of_test();
    int mine         = pl_turn_take(name, &stays, 0);

    ASSERT_TRUE(mine >= 0);
    ASSERT_EQ(pl_turn_take(name, &stays, 0), -1);
    pl_fd_close(&mine);
    mine = pl_turn_take(name, &stays, 0);
    ASSERT_TRUE(mine >= 0);
    pl_fd_close(&mine);
}

TEST(names_are_turns_of_their_own)
{
    int one = pl_turn_take("test-one", &stays, LONG_NS);
    int two = pl_turn_take("test-on", &stays, LONG_NS);

    ASSERT_TRUE(one >= 0 && two >= 0);
    pl_fd_close(&one);
    pl_fd_close(&two);
}

TEST(who_dies_has_no_turn)
{
    const char *name = name_of_test();
    int ready[2], mine;
    char byte;
    pid_t child;

    ASSERT_EQ(pipe(ready), 0);
    child = fork();
    if (child == 0) {
        byte = pl_turn_take(name, &stays, LONG_NS) >= 0;
        (void)!write(ready[1], &byte, 1);
        (void)pause();
        _exit(0);
    }
    ASSERT_EQ(read(ready[0], &byte, 1), 1);
    ASSERT_EQ(byte, 1);
    ASSERT_EQ(pl_turn_take(name, &stays, 10000000), -1);
    ASSERT_EQ(kill(child, SIGKILL), 0);
    mine = pl_turn_take(name, &stays, LONG_NS);
    ASSERT_TRUE(mine >= 0);
    pl_fd_close(&mine);
    ASSERT_EQ(waitpid(child, NULL, 0), child);
    (void)close(ready[0]);
    (void)close(ready[1]);
}

struct waiter {
    atomic_bool left;
    int got;
};

static void *wait_long(void *user)
{
    struct waiter *waiter = user;

    waiter->got = pl_turn_take(name_of_test(), &waiter->left, LONG_NS);
    return NULL;
}

TEST(who_is_told_to_leave_does_not_wait)
{
    const struct timespec nap = {.tv_nsec = 20000000};
    struct waiter waiter      = {.got = 0};
    uint64_t begun_ns         = pl_now_ns();
    int mine                  = pl_turn_take(name_of_test(), &stays, 0);
    pthread_t thread;

    ASSERT_TRUE(mine >= 0);
    atomic_init(&waiter.left, false);
    ASSERT_EQ(pthread_create(&thread, NULL, wait_long, &waiter), 0);
    (void)nanosleep(&nap, NULL);
    atomic_store(&waiter.left, true);
    ASSERT_EQ(pthread_join(thread, NULL), 0);
    ASSERT_EQ(waiter.got, -1);
    ASSERT_TRUE(pl_now_ns() - begun_ns < LONG_NS / 2);
    pl_fd_close(&mine);
}

TEST_MAIN()
