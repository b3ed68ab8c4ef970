/*
 * A worker that stands still says where each of its threads is: also the one that holds what the
 * main loop waits for.
 */
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/harness/test.h"
#include "worker/where.h"

static pthread_mutex_t held    = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t there = {0};

static void asked(int signal_number)
{
    (void)signal_number;
    (void)worker_where_tell();
}

/* As the thread of gRPC is made: with all signals blocked. */
static void *hold(void *unused)
{
    sigset_t all;

    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, NULL);
    worker_where_join();
    (void)pthread_mutex_lock(&held);
    (void)pthread_barrier_wait(&there);
    for (;;) {
        (void)pause();
    }
    return unused;
}

/* Asks again and again: nobody says anything before the loop has been away for its time. */
static void *watch(void *unused)
{
    (void)pthread_barrier_wait(&there);
    for (;;) {
        worker_where_ask_all();
    }
    return unused;
}

static _Noreturn void stand_still(int out)
{
    pthread_t threads[2];

    (void)dup2(out, STDERR_FILENO);
    (void)signal(SIGUSR1, asked);
    worker_where_start();
    (void)pthread_barrier_init(&there, NULL, 3);
    (void)pthread_create(&threads[0], NULL, hold, NULL);
    (void)pthread_create(&threads[1], NULL, watch, NULL);
    (void)pthread_barrier_wait(&there);
    (void)pthread_mutex_lock(&held);
    _exit(1);
}

TEST(whoever_holds_up_the_loop_is_told_beside_it)
{
    static char text[1 << 16];
    size_t length = 0;
    int ends[2];
    pid_t pid;

    ASSERT_EQ(pipe(ends), 0);
    pid = fork();
    if (pid == 0) {
        stand_still(ends[1]);
    }
    (void)close(ends[1]);
    while (length + 1 < sizeof(text) && (strstr(text, ": the main thread ") == NULL ||
                                         strstr(text, ": a thread ") == NULL)) {
        ssize_t got = read(ends[0], text + length, sizeof(text) - 1 - length);

        ASSERT_TRUE(got > 0);
        length += (size_t)got;
    }
    ASSERT_EQ(kill(pid, SIGKILL), 0);
    ASSERT_EQ(waitpid(pid, NULL, 0), pid);
    ASSERT_CONTAINS(text, ": the main thread ");
    ASSERT_CONTAINS(text, ": a thread ");
}

TEST(a_loop_that_comes_by_is_left_alone)
{
    worker_where_start();
    ASSERT_TRUE(!worker_where_tell());
    worker_where_beat();
    ASSERT_TRUE(!worker_where_tell());
}

TEST_MAIN()
