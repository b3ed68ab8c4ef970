/* Loops: posts, ticks and idle, of both kinds. */
#include "tests/harness/test.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/fd.h"
#include "rpc/grpc_int.h"
#include "tests/unit/rpc/peer.h"

struct counts {
    struct peer_end end; /* its counters and its waiting are what is used */
    struct rpc_loop *loop;
    pthread_t thread;
};

static struct rpc_loop *loop_create(int kind)
{
    struct rpc_loop *loop = NULL;

    if (kind == 0) {
        rpc_init();
        ASSERT_OK(rpc_loop_create(&loop));
    } else {
        ASSERT_OK(rpc_loopback_loop_create(&loop));
    }
    return loop;
}

static void loop_destroy(struct rpc_loop *loop, int kind)
{
    rpc_loop_destroy(loop);
    if (kind == 0) {
        rpc_finish();
    }
}

static void count_message(void *user)
{
    struct counts *counts = user;

    peer_ops.message(&counts->end, NULL, NULL, 1);
}

static void count_idle(void *user)
{
    struct counts *counts = user;

    peer_ops.writable(&counts->end, NULL);
}

static void *post_many(void *user)
{
    struct counts *counts = user;

    for (int i = 0; i < 5000; i++) {
        rpc_loop_post(counts->loop, count_message, counts);
    }
    return NULL;
}

TEST(every_post_runs_whoever_posts)
{
    for (int kind = 0; kind < 2; kind++) {
        struct counts counts = {.loop = loop_create(kind)};
        pthread_t threads[3];

        peer_end_init(&counts.end);
        ASSERT_OK(rpc_loop_start(counts.loop, "posts"));
        for (size_t i = 0; i < PL_COUNT(threads); i++) {
            ASSERT_EQ(pthread_create(&threads[i], NULL, post_many, &counts), 0);
        }
        for (size_t i = 0; i < PL_COUNT(threads); i++) {
            ASSERT_EQ(pthread_join(threads[i], NULL), 0);
        }
        peer_end_wait(&counts.end, &counts.end.messages, 15000, 10000);
        loop_destroy(counts.loop, kind);
        peer_end_finish(&counts.end);
    }
}

/* A post cannot fail, so its room is there: in a program of a user, too, who would not like to be ended. */
TEST(a_few_posts_need_no_memory)
{
    for (int kind = 0; kind < 2; kind++) {
        struct counts counts = {.loop = loop_create(kind)};

        peer_end_init(&counts.end);
        pl_fault_arm("alloc", 0);
        for (int i = 0; i < 30; i++) {
            rpc_loop_post(counts.loop, count_message, &counts);
        }
        ASSERT_EQ(pl_fault_disarm(), 0);
        ASSERT_OK(rpc_loop_start(counts.loop, "posts"));
        peer_end_wait(&counts.end, &counts.end.messages, 30, 5000);
        pl_fault_arm("alloc", 0);
        for (int i = 0; i < 30; i++) {
            rpc_loop_post(counts.loop, count_message, &counts);
        }
        peer_end_wait(&counts.end, &counts.end.messages, 60, 5000);
        ASSERT_EQ(pl_fault_disarm(), 0);
        loop_destroy(counts.loop, kind);
        peer_end_finish(&counts.end);
    }
}

TEST(idle_follows_a_burst_and_not_silence)
{
    for (int kind = 0; kind < 2; kind++) {
        struct counts counts = {.loop = loop_create(kind)};
        uint64_t before;

        peer_end_init(&counts.end);
        rpc_loop_set_idle(counts.loop, count_idle, &counts);
        ASSERT_OK(rpc_loop_start(counts.loop, "idle"));
        rpc_loop_post(counts.loop, count_message, &counts);
        peer_end_wait(&counts.end, &counts.end.writable, 1, 5000);
        before = counts.end.writable;
        rpc_loop_post(counts.loop, count_message, &counts);
        peer_end_wait(&counts.end, &counts.end.writable, before + 1, 5000);
        /* once a burst, whatever woke the loop beside it */
        ASSERT_TRUE(counts.end.writable <= before + 2);
        loop_destroy(counts.loop, kind);
        peer_end_finish(&counts.end);
    }
}

struct relay {
    struct counts counts;
    int left;
};

static bool always(void *user)
{
    (void)user;
    return true;
}

/* A burst of less than 64 events, of 50 us each. */
static void post_another(void *user)
{
    struct relay *relay = user;
    uint64_t until      = pl_now_ns() + 50000;

    while (pl_now_ns() < until) {
    }
    if (--relay->left > 0) {
        rpc_loop_post(relay->counts.loop, post_another, relay);
    } else {
        count_message(&relay->counts);
    }
}

static uint64_t idles_in_a_burst(int kind, bool many)
{
    struct relay relay = {.counts = {.loop = loop_create(kind)}, .left = 40};
    uint64_t idles;

    peer_end_init(&relay.counts.end);
    rpc_loop_set_idle(relay.counts.loop, count_idle, &relay.counts);
    if (many) {
        rpc_loop_set_many(relay.counts.loop, always, NULL);
    }
    rpc_loop_post(relay.counts.loop, post_another, &relay);
    ASSERT_OK(rpc_loop_start(relay.counts.loop, "burst"));
    peer_end_wait(&relay.counts.end, &relay.counts.end.messages, 1, 5000);
    idles = relay.counts.end.writable; /* the last one may be yet to come */
    loop_destroy(relay.counts.loop, kind);
    peer_end_finish(&relay.counts.end);
    return idles;
}

/* In one of 2 ms or more. */
TEST(idle_comes_soon_in_a_burst_and_later_with_many_things_under_way)
{
    for (int kind = 0; kind < 2; kind++) {
        uint64_t few = idles_in_a_burst(kind, false), many = idles_in_a_burst(kind, true);

        ASSERT_TRUE(few >= 10);
        ASSERT_TRUE(many >= 4 && many <= few);
    }
}

struct left {
    struct counts counts;
    struct rpc_late late;
    uint64_t idles; /* before it ran */
};

static void left_run(struct rpc_late *late)
{
    struct left *left = pl_container_of(late, struct left, late);

    left->idles = left->counts.end.writable;
    count_message(&left->counts);
}

static void leave(void *user)
{
    struct left *left = user;

    if (!rpc_loop_late(left->counts.loop, &left->late)) {
        left_run(&left->late);
    }
}

static uint64_t idles_before_what_is_left(int kind, bool many)
{
    struct left left = {.counts = {.loop = loop_create(kind)}, .late = {.fn = left_run}};

    peer_end_init(&left.counts.end);
    pl_list_init(&left.late.link);
    rpc_loop_set_idle(left.counts.loop, count_idle, &left.counts);
    if (many) {
        rpc_loop_set_many(left.counts.loop, always, NULL);
    }
    rpc_loop_post(left.counts.loop, leave, &left);
    ASSERT_OK(rpc_loop_start(left.counts.loop, "late"));
    peer_end_wait(&left.counts.end, &left.counts.end.messages, 1, 5000);
    loop_destroy(left.counts.loop, kind);
    peer_end_finish(&left.counts.end);
    return left.idles;
}

TEST(what_nobody_waits_for_is_left_for_after_idle_unless_many_things_are_under_way)
{
    for (int kind = 0; kind < 2; kind++) {
        ASSERT_EQ(idles_before_what_is_left(kind, false), 1);
        ASSERT_EQ(idles_before_what_is_left(kind, true), 0);
    }
}

static void leave_and_stop(void *user)
{
    struct left *left = user;

    leave(left);
    rpc_loop_stop(left->counts.loop);
}

TEST(what_is_left_is_done_when_the_loop_stops)
{
    for (int kind = 0; kind < 2; kind++) {
        struct left left = {.counts = {.loop = loop_create(kind)},
                            .late   = {.fn = left_run}};

        peer_end_init(&left.counts.end);
        pl_list_init(&left.late.link);
        rpc_loop_set_idle(left.counts.loop, count_idle, &left.counts);
        rpc_loop_post(left.counts.loop, leave_and_stop, &left);
        rpc_loop_run(left.counts.loop);
        ASSERT_EQ(left.counts.end.messages, 1);
        ASSERT_EQ(left.idles, 0);
        loop_destroy(left.counts.loop, kind);
        peer_end_finish(&left.counts.end);
    }
}

TEST(the_tick_comes_at_its_interval)
{
    for (int kind = 0; kind < 2; kind++) {
        struct counts counts = {.loop = loop_create(kind)};
        uint64_t start       = pl_now_ns(), taken;

        peer_end_init(&counts.end);
        rpc_loop_set_tick(counts.loop, 20, count_message, &counts);
        ASSERT_OK(rpc_loop_start(counts.loop, "tick"));
        peer_end_wait(&counts.end, &counts.end.messages, 5, 10000);
        taken = pl_now_ns() - start;
        ASSERT_TRUE(taken >= 95000000u);
        loop_destroy(counts.loop, kind);
        peer_end_finish(&counts.end);
    }
}

static void stop_loop(void *user)
{
    rpc_loop_stop(user);
}

TEST(a_loop_runs_in_the_calling_thread_until_stopped)
{
    for (int kind = 0; kind < 2; kind++) {
        struct rpc_loop *loop = loop_create(kind);

        rpc_loop_post(loop, stop_loop, loop);
        rpc_loop_run(loop);
        loop_destroy(loop, kind);
    }
}

TEST(posts_before_the_start_and_at_the_end_are_not_lost)
{
    for (int kind = 0; kind < 2; kind++) {
        struct counts counts = {.loop = loop_create(kind)};

        peer_end_init(&counts.end);
        rpc_loop_post(counts.loop, count_message, &counts);
        loop_destroy(counts.loop, kind); /* it never ran */
        ASSERT_EQ(counts.end.messages, 1);
        peer_end_finish(&counts.end);
    }
}

TEST(buffers_that_are_not_sent_are_freed)
{
    uint8_t *buffer = rpc_buffer_create(100);

    ASSERT_NOT_NULL(buffer);
    memset(buffer, 1, 100);
    rpc_buffer_destroy(buffer);
    rpc_buffer_destroy(NULL);
}

static bool count_many(void *user)
{
    count_idle(user);
    return true;
}

TEST(a_thread_that_is_awake_asks_whether_many_things_are_under_way)
{
    ASSERT_EQ(setenv("PLASMON_LINGER_MS", "1000", 1), 0);
    for (int kind = 0; kind < 2; kind++) {
        struct counts counts = {.loop = loop_create(kind)};

        peer_end_init(&counts.end);
        rpc_loop_set_many(counts.loop, count_many, &counts);
        ASSERT_OK(rpc_loop_start(counts.loop, "asks"));
        rpc_loop_post(counts.loop, count_message, &counts);
        peer_end_wait(&counts.end, &counts.end.writable, 10, 60000);
        peer_end_wait(&counts.end, &counts.end.messages, 1, 60000); /* and goes on */
        loop_destroy(counts.loop, kind);
        peer_end_finish(&counts.end);
    }
}

/* ------------------------------------------------------------------------------- pauses */

/* How many descriptors an epoll descriptor waits for. */
static unsigned epoll_waits_for(int fd)
{
    char path[64], line[256];
    unsigned count = 0;
    FILE *file;

    (void)snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
    file = fopen(path, "r");
    ASSERT_NOT_NULL(file);
    while (fgets(line, sizeof(line), file) != NULL) {
        count += strncmp(line, "tfd:", 4) == 0;
    }
    ASSERT_EQ(fclose(file), 0);
    return count;
}

TEST(grpc_waits_for_its_sockets_by_the_descriptor_that_was_found)
{
    int others[] = {epoll_create1(EPOLL_CLOEXEC), epoll_create1(EPOLL_CLOEXEC)};
    struct peer_pair pair;
    unsigned before;
    int fd;

    ASSERT_EQ(rpc_events_fd(), -1);
    rpc_init();
    fd = rpc_events_fd();
    ASSERT_TRUE(fd >= 0 && fd != others[0] && fd != others[1]);
    before = epoll_waits_for(fd);
    peer_pair_start(&pair, PEER_TCP, NULL);
    peer_pair_open(&pair);
    ASSERT_OK(peer_send(&pair.client, "x", 1));
    peer_end_wait(&pair.served, &pair.served.messages, 1, 5000);
    ASSERT_EQ(rpc_events_fd(), fd);
    ASSERT_TRUE(epoll_waits_for(fd) >= before + 2); /* both ends of a connection */
    peer_pair_stop(&pair);
    ASSERT_EQ(rpc_events_fd(), fd);
    rpc_finish();
    ASSERT_EQ(rpc_events_fd(), -1);
    ASSERT_EQ(close(others[0]), 0);
    ASSERT_EQ(close(others[1]), 0);
}

#define PAUSE_NS UINT64_C(60000000000)

static void *pause_long(void *user)
{
    struct rpc_loop *loop = user;

    ASSERT_TRUE(loop->ops->pause(loop, PAUSE_NS));
    return NULL;
}

/* Somebody rings, or something comes (nobody steps, so gRPC does not see whose it is). */
TEST(a_pause_is_over_when_something_comes)
{
    for (int ring = 0; ring < 2; ring++) {
        struct rpc_loop *base      = loop_create(0);
        struct rpc_loop_grpc *loop = pl_container_of(base, struct rpc_loop_grpc, base);
        struct epoll_event event   = {.events = EPOLLIN};
        uint64_t began_ns          = pl_now_ns();
        int fd                     = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        pthread_t thread;

        rpc_loop_ring(base); /* nobody pauses */
        ASSERT_TRUE(!pl_fd_lower(loop->bell));
        ASSERT_TRUE(!base->ops->pause(base, 0));
        ASSERT_EQ(epoll_ctl(rpc_events_fd(), EPOLL_CTL_ADD, fd, &event), 0);
        ASSERT_EQ(pthread_create(&thread, NULL, pause_long, base), 0);
        while (!__atomic_load_n(&loop->pausing, __ATOMIC_SEQ_CST)) {
            (void)sched_yield();
        }
        if (ring) {
            rpc_loop_ring(base);
        } else {
            pl_fd_raise(fd);
        }
        ASSERT_EQ(pthread_join(thread, NULL), 0);
        ASSERT_TRUE(pl_now_ns() - began_ns < PAUSE_NS / 2);
        ASSERT_TRUE(!pl_fd_lower(loop->bell)); /* the next one is a pause again */
        ASSERT_EQ(epoll_ctl(rpc_events_fd(), EPOLL_CTL_DEL, fd, NULL), 0);
        ASSERT_EQ(close(fd), 0);
        loop_destroy(base, 0);
    }
}

TEST_MAIN()
