/* Rings of messages between two loops: order, room, rest and rousing, and a side that lies. */
#include "rpc/ring.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/base.h"
#include "tests/harness/test.h"

static struct rpc_ring *ring_create(void)
{
    void *ring = aligned_alloc(64, sizeof(struct rpc_ring));

    ASSERT_NOT_NULL(ring);
    return memset(ring, 0, sizeof(struct rpc_ring));
}

static void expect(struct rpc_ring_in *in, const char *text)
{
    uint8_t bytes[RPC_RING_MESSAGE_MAX];
    uint32_t length;

    ASSERT_EQ(rpc_ring_first(in, &length), RPC_RING_MESSAGE);
    ASSERT_EQ(length, strlen(text));
    ASSERT_TRUE(!rpc_ring_take(in, bytes, length));
    ASSERT_TRUE(memcmp(bytes, text, length) == 0);
}

static bool put(struct rpc_ring_out *out, const char *text)
{
    return rpc_ring_put(out, (const uint8_t *)text, (uint32_t)strlen(text));
}

TEST(messages_come_out_in_their_order_and_some_go_elsewhere)
{
    struct rpc_ring_out out = {.ring = ring_create()};
    struct rpc_ring_in in   = {.ring = out.ring};
    uint32_t length;

    ASSERT_EQ(rpc_ring_first(&in, &length), RPC_RING_EMPTY);
    ASSERT_TRUE(put(&out, "one"));
    ASSERT_TRUE(put(&out, ""));
    ASSERT_TRUE(rpc_ring_put(&out, NULL, 0));
    ASSERT_TRUE(put(&out, "exactly8"));
    expect(&in, "one");
    expect(&in, "");
    ASSERT_EQ(rpc_ring_first(&in, &length), RPC_RING_ELSEWHERE);
    ASSERT_TRUE(!rpc_ring_take(&in, NULL, 0));
    expect(&in, "exactly8");
    ASSERT_EQ(rpc_ring_first(&in, &length), RPC_RING_EMPTY);
    free(out.ring);
}

TEST(a_ring_that_is_full_has_room_again_for_what_was_taken)
{
    static uint8_t bytes[RPC_RING_MESSAGE_MAX], got[RPC_RING_MESSAGE_MAX];
    struct rpc_ring_out out = {.ring = ring_create()};
    struct rpc_ring_in in   = {.ring = out.ring};
    uint32_t length, count = 0;

    while (rpc_ring_put(&out, bytes, RPC_RING_MESSAGE_MAX)) {
        count++;
    }
    ASSERT_EQ(count, RPC_RING_BYTES / (RPC_RING_MESSAGE_MAX + 8));
    for (unsigned turn = 0; turn < 1000; turn++) { /* over its end, again and again */
        memset(bytes, (int)turn, sizeof(bytes));
        ASSERT_EQ(rpc_ring_first(&in, &length), RPC_RING_MESSAGE);
        (void)rpc_ring_take(&in, got, length);
        ASSERT_EQ(got[0], turn >= count ? (uint8_t)(turn - count) : 0);
        ASSERT_TRUE(memcmp(got, got + 1, length - 1) == 0);
        ASSERT_TRUE(rpc_ring_put(&out, bytes, RPC_RING_MESSAGE_MAX));
        ASSERT_TRUE(!rpc_ring_put(&out, bytes, RPC_RING_MESSAGE_MAX));
    }
    free(out.ring);
}

TEST(who_waits_is_told_once_and_only_then)
{
    struct rpc_ring_out out = {.ring = ring_create()};
    struct rpc_ring_in in   = {.ring = out.ring};
    uint8_t byte;

    ASSERT_TRUE(rpc_ring_caught_up(&out, false));
    ASSERT_TRUE(put(&out, "1"));
    ASSERT_TRUE(rpc_ring_caught_up(&out, false)); /* one may wait */
    ASSERT_TRUE(put(&out, "2"));
    ASSERT_TRUE(put(&out, "3"));
    ASSERT_TRUE(!rpc_ring_caught_up(&out, false));
    ASSERT_TRUE(rpc_ring_caught_up(&out, true));
    rpc_ring_want(&out);
    ASSERT_TRUE(rpc_ring_take(&in, &byte, 1));
    ASSERT_TRUE(!rpc_ring_caught_up(&out, false));
    ASSERT_TRUE(!rpc_ring_take(&in, &byte, 1));
    ASSERT_TRUE(rpc_ring_caught_up(&out, false));
    free(out.ring);
}

TEST(one_of_many_rouses_a_reader_that_rests)
{
    struct rpc_ring_out out = {.ring = ring_create()};
    struct rpc_ring_in in   = {.ring = out.ring};

    ASSERT_EQ(rpc_ring_rouse(&out), RPC_REST_AWAKE);
    ASSERT_TRUE(rpc_ring_reader_awake(&in));
    rpc_ring_rest(&in, RPC_REST_PAUSES);
    ASSERT_TRUE(!rpc_ring_reader_awake(&in));
    ASSERT_EQ(rpc_ring_rouse(&out), RPC_REST_PAUSES);
    ASSERT_EQ(rpc_ring_rouse(&out), RPC_REST_AWAKE);
    rpc_ring_rest(&in, RPC_REST_SLEEPS);
    ASSERT_EQ(rpc_ring_rouse(&out), RPC_REST_SLEEPS);
    rpc_ring_rest(&in, RPC_REST_PAUSES);
    rpc_ring_rest(&in, RPC_REST_AWAKE);
    ASSERT_EQ(rpc_ring_rouse(&out), RPC_REST_AWAKE);
    free(out.ring);
}

TEST(what_no_sender_writes_is_seen)
{
    static const uint64_t heads[]   = {RPC_RING_MESSAGE_MAX + 1, UINT64_MAX - 1,
                                       UINT64_C(1) << 32, 100};
    static const uint64_t written[] = {RPC_RING_BYTES + 8, 1, UINT64_MAX, 7,
                                       UINT64_C(1) << 63};
    struct rpc_ring_out out         = {.ring = ring_create()};
    struct rpc_ring_in in           = {.ring = out.ring};
    uint32_t length;

    for (size_t i = 0; i < PL_COUNT(heads); i++) {
        memcpy(out.ring->bytes, &heads[i], sizeof(heads[i]));
        out.ring->written = 16; /* less than any of these is long */
        ASSERT_EQ(rpc_ring_first(&in, &length), RPC_RING_BROKEN);
    }
    for (size_t i = 0; i < PL_COUNT(written); i++) {
        out.ring->written = written[i];
        ASSERT_EQ(rpc_ring_first(&in, &length), RPC_RING_BROKEN);
    }
    free(out.ring);
}

TEST(a_reader_that_lies_gets_nothing_over_what_it_has_not_taken)
{
    static const uint64_t read[] = {UINT64_C(1) << 40, 24};
    struct rpc_ring_out out      = {.ring = ring_create()};

    ASSERT_TRUE(put(&out, "1"));
    for (size_t i = 0; i < PL_COUNT(read); i++) {
        out.ring->read = read[i]; /* before what was written, or far behind */
        ASSERT_TRUE(!put(&out, "2"));
    }
    out.ring->reader = 77;
    ASSERT_EQ(rpc_ring_rouse(&out), RPC_REST_SLEEPS);
    free(out.ring);
}

/* ------------------------------------------------------------------- two loops that rest */

#define MESSAGES 200000u

struct side {
    struct rpc_ring_out out;
    struct rpc_ring_in in;
    sem_t *own, *other; /* what a loop rests on */
    uint64_t random;
    uint64_t sent, received;
    uint64_t rests;
    bool lost; /* it was not woken, and there was something */
};

static bool something(struct side *side)
{
    uint32_t length;

    return rpc_ring_first(&side->in, &length) != RPC_RING_EMPTY;
}

static void rouse(struct side *side)
{
    if (rpc_ring_rouse(&side->out) != RPC_REST_AWAKE) {
        (void)sem_post(side->other);
    }
}

static void take(struct side *side)
{
    uint8_t bytes[RPC_RING_MESSAGE_MAX];
    uint64_t number;
    uint32_t length;

    ASSERT_EQ(rpc_ring_first(&side->in, &length), RPC_RING_MESSAGE);
    if (rpc_ring_take(&side->in, bytes, length)) {
        rouse(side);
    }
    memcpy(&number, bytes, sizeof(number));
    ASSERT_EQ(number, side->received);
    ASSERT_EQ(bytes[length - 1], length > 8 ? (uint8_t)number : bytes[7]);
    side->received++;
}

/* false: there was no room, and it will be told. */
static bool send(struct side *side)
{
    uint8_t bytes[RPC_RING_MESSAGE_MAX];
    uint32_t length = 8 + (uint32_t)(test_random(&side->random) % 1000);

    memset(bytes, (uint8_t)side->sent, length);
    memcpy(bytes, &side->sent, sizeof(side->sent));
    if (!rpc_ring_put(&side->out, bytes, length)) {
        rpc_ring_want(&side->out);
        if (!rpc_ring_put(&side->out, bytes, length)) {
            return false;
        }
    }
    side->sent++;
    rouse(side);
    return true;
}

static bool room(const struct side *side)
{
    return side->out.written - __atomic_load_n(&side->out.ring->read, __ATOMIC_SEQ_CST) <
           RPC_RING_BYTES - 1100;
}

static void rest(struct side *side, bool full)
{
    struct timespec until;

    rpc_ring_rest(&side->in,
                  test_random(&side->random) % 2 == 0 ? RPC_REST_PAUSES : RPC_REST_SLEEPS);
    if (full) {
        rpc_ring_want(&side->out);
    }
    if (!something(side) && !(full && room(side))) {
        side->rests++;
        (void)clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += 20;
        side->lost = sem_timedwait(side->own, &until) != 0;
    }
    rpc_ring_rest(&side->in, RPC_REST_AWAKE);
}

static void *side_main(void *user)
{
    struct side *side = user;

    while (!side->lost && (side->sent < MESSAGES || side->received < MESSAGES)) {
        uint64_t burst = test_random(&side->random) % 100;
        bool full      = false;

        while (burst-- > 0 && side->sent < MESSAGES && !full) {
            full = !send(side);
        }
        while (something(side)) {
            take(side);
        }
        if (side->received < MESSAGES &&
            (full || side->sent == MESSAGES || test_random(&side->random) % 4 == 0)) {
            /* with nothing under way nobody would wake either of them */
            if (full || side->sent > side->received) {
                rest(side, full);
            }
        }
    }
    return NULL;
}

TEST(two_loops_that_rest_leave_nothing_lying)
{
    struct rpc_ring *there = ring_create(), *back = ring_create();
    sem_t sems[2];
    struct side sides[2] = {
        {.out = {.ring = there}, .in = {.ring = back}, .own = &sems[0], .other = &sems[1]},
        {.out = {.ring = back}, .in = {.ring = there}, .own = &sems[1], .other = &sems[0]},
    };
    pthread_t threads[2];

    for (size_t i = 0; i < 2; i++) {
        ASSERT_EQ(sem_init(&sems[i], 0, 0), 0);
        sides[i].random = test_seed() + i;
    }
    for (size_t i = 0; i < 2; i++) {
        ASSERT_EQ(pthread_create(&threads[i], NULL, side_main, &sides[i]), 0);
    }
    for (size_t i = 0; i < 2; i++) {
        ASSERT_EQ(pthread_join(threads[i], NULL), 0);
        ASSERT_TRUE(!sides[i].lost);
        ASSERT_EQ(sides[i].received, MESSAGES);
        printf("# rested %llu times\n", (unsigned long long)sides[i].rests);
    }
    free(there);
    free(back);
}

TEST_MAIN()
