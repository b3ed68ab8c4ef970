/* Transfers by pair: what is counted, whose time it is, and when one is late. */
#include <string.h>

#include "tests/unit/worker/fake.h"

#define KIND(x)  PLASMON__V1__LAUNCH_KIND__LAUNCH_##x
#define MS       UINT64_C(1000000)
#define PEER     (FAKE_BASE + 2)
#define COPIES   2u /* streams of the fake */
#define COPIES_2 5u
#define RECEIVES 4u

static struct worker_pair pair_from(const struct fake *fake, uint32_t peer, uint32_t route)
{
    struct worker_pair pair;

    for (size_t i = 0; worker_core_pair_next(fake->core, &i, &pair);) {
        if (pair.peer == peer && pair.route == route) {
            return pair;
        }
    }
    return (struct worker_pair){0};
}

static void peer_buffer(struct fake *fake)
{
    struct pl_shape frame = {.dtype = PL_F32, .ndim = 1, .dim = {4}};

    store_table_alloc(fake->tables[2], 30, 1, 256, &frame, 0, 1);
    store_table_seal(fake->tables[2], 30);
}

/* Of a buffer of device 2 of this host, which a launch of that device made. */
static void copy(struct fake *fake, uint64_t seq, uint32_t slot, uint64_t after)
{
    struct fake_launch launch;

    fake_launch_init(&launch, seq, KIND(COPY));
    fake_launch_fresh(&launch, slot, 4);
    fake_launch_piece(&launch, PEER, 30, 4);
    if (after != 0) {
        fake_launch_after(&launch, PEER, after);
    }
    ASSERT_OK(fake_send(fake, &launch));
}

static void receive(struct fake *fake, uint64_t seq, uint32_t slot, uint64_t chunk)
{
    struct fake_launch launch;

    fake_launch_init(&launch, seq, KIND(RECV));
    fake_launch_fresh(&launch, slot, 4);
    launch.message.peer   = PEER;
    launch.message.offset = chunk;
    ASSERT_OK(fake_send(fake, &launch));
}

static void chunk_comes(struct fake *fake, uint64_t chunk)
{
    __atomic_store_n(
        &fake->timelines[FAKE_US]->stage_ready[chunk % STORE_STAGE_SLOTS].value, chunk + 1,
        __ATOMIC_RELEASE);
}

TEST(a_copy_from_a_peer_is_counted_and_one_within_the_device_is_not)
{
    struct fake *fake = fake_create();
    struct fake_launch launch;
    struct worker_pair pair;

    peer_buffer(fake);
    fake->now_ns = 10 * MS;
    copy(fake, 1, 1, 0);
    pair = pair_from(fake, PEER, WORKER_ROUTE_PEER);
    ASSERT_EQ(pair.transfers, 1);
    ASSERT_EQ(pair.bytes, 16);
    ASSERT_EQ(pair.in_flight, 1);
    ASSERT_EQ(pair.bytes_in_flight, 16);
    copy(fake, 2, 2, 0);
    fake->now_ns = 30 * MS;
    fake_finish(fake, COPIES, 1);
    fake_finish(fake, COPIES_2, 2);
    pair = pair_from(fake, PEER, WORKER_ROUTE_PEER);
    ASSERT_EQ(pair.transfers, 2);
    ASSERT_EQ(pair.in_flight, 0);
    ASSERT_EQ(pair.bytes_in_flight, 0);
    ASSERT_EQ(pair.busy_ns, 20 * MS); /* both at once: not twice the time */

    fake_launch_init(&launch, 3, KIND(COPY));
    fake_launch_fresh(&launch, 3, 4);
    fake_launch_piece(&launch, FAKE_BASE + FAKE_US, 1, 4);
    ASSERT_OK(fake_send(fake, &launch));
    ASSERT_EQ(pair_from(fake, FAKE_BASE + FAKE_US, WORKER_ROUTE_PEER).transfers, 0);
    ASSERT_EQ(pair_from(fake, FAKE_BASE + FAKE_US, WORKER_ROUTE_LOCAL).transfers, 0);
    fake_destroy(fake);
}

TEST(a_copy_is_late_when_its_input_is_there_and_its_deadline_is_over)
{
    struct fake *fake = fake_create();

    test_expect_log();
    peer_buffer(fake);
    fake_peer_publish(fake, 2, 1, 0);
    copy(fake, 1, 1, 1);
    ASSERT_TRUE(worker_core_tick(fake->core, MS) <= 1001 * MS);
    (void)worker_core_tick(fake->core, 9000 * MS); /* it waits for its producer */
    ASSERT_EQ(pair_from(fake, PEER, WORKER_ROUTE_PEER).stalls, 0);
    fake->timelines[2]->stream[0].value = 1;
    (void)worker_core_tick(fake->core, 9100 * MS);
    (void)worker_core_tick(fake->core, 9990 * MS);
    ASSERT_EQ(pair_from(fake, PEER, WORKER_ROUTE_PEER).stalls, 0);
    (void)worker_core_tick(fake->core, 10200 * MS);
    ASSERT_EQ(pair_from(fake, PEER, WORKER_ROUTE_PEER).stalls, 1);
    (void)worker_core_tick(fake->core, 99000 * MS); /* once */
    ASSERT_EQ(pair_from(fake, PEER, WORKER_ROUTE_PEER).stalls, 1);
    fake_finish(fake, COPIES, 1);
    ASSERT_TRUE(worker_core_tick(fake->core, 99001 * MS) == UINT64_MAX);
    fake_destroy(fake);
}

TEST(half_a_staged_transfer_is_late_when_the_other_half_began_and_stopped)
{
    struct fake *fake = fake_create();

    test_expect_log();
    receive(fake, 1, 1, 40);
    for (uint64_t ms = 1; ms < 20000; ms += 1000) { /* its sender computes */
        (void)worker_core_tick(fake->core, ms * MS);
    }
    ASSERT_EQ(pair_from(fake, PEER, WORKER_ROUTE_HOST).stalls, 0);
    chunk_comes(fake, 40);
    (void)worker_core_tick(fake->core, 20000 * MS);
    (void)worker_core_tick(fake->core, 20900 * MS);
    chunk_comes(fake, 41); /* somebody's chunk moves: the ring does its work */
    (void)worker_core_tick(fake->core, 21500 * MS);
    (void)worker_core_tick(fake->core, 22400 * MS);
    ASSERT_EQ(pair_from(fake, PEER, WORKER_ROUTE_HOST).stalls, 0);
    (void)worker_core_tick(fake->core, 22600 * MS);
    ASSERT_EQ(pair_from(fake, PEER, WORKER_ROUTE_HOST).stalls, 1);
    fake_finish(fake, RECEIVES, 1);
    ASSERT_EQ(pair_from(fake, PEER, WORKER_ROUTE_HOST).bytes, 16);
    ASSERT_EQ(pair_from(fake, PEER, WORKER_ROUTE_HOST).in_flight, 0);
    fake_destroy(fake);
}

TEST_MAIN()
