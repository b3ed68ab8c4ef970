/*
 * How long functions wait in the queue of their worker, and what its front stands still for: each
 * time, by cause.
 */
#include <string.h>

#include "tests/unit/worker/fake.h"

#define KIND(x) PLASMON__V1__LAUNCH_KIND__LAUNCH_##x
#define WHY(x)  PLASMON__V1__WAIT_WHY__WAIT_##x
#define MS      UINT64_C(1000000)
#define PEER    (FAKE_BASE + 2)

static void expect_in(const Plasmon__V1__WorkerStats *stats, Plasmon__V1__TimeOf of,
                      Plasmon__V1__WaitWhy why, uint64_t count, uint64_t sum_ns)
{
    struct pl_histogram got = {.sum_ns = 0};

    for (size_t i = 0; i < stats->n_queue; i++) {
        if (stats->queue[i]->of == of && stats->queue[i]->why == why) {
            wire_histogram_read(stats->queue[i], &got);
        }
    }
    ASSERT_EQ(pl_histogram_count(&got), count);
    ASSERT_EQ(got.sum_ns, sum_ns);
}

/* kinds: so many causes there were. */
static void expect_queue(const struct fake *fake, uint64_t count, uint64_t sum_ns,
                         size_t kinds)
{
    Plasmon__V1__WorkerStats stats = PLASMON__V1__WORKER_STATS__INIT;
    struct wire_arena arena;

    ASSERT_OK(wire_arena_init(&arena, 1 << 20));
    worker_core_queue_times(fake->core, &arena, &stats);
    expect_in(&stats, PLASMON__V1__TIME_OF__TIME_QUEUE, WHY(NONE), count, sum_ns);
    ASSERT_EQ(stats.n_queue, (count > 0) + kinds);
    wire_arena_finish(&arena);
}

static void expect_stood(const struct fake *fake, Plasmon__V1__WaitWhy why, uint64_t count,
                         uint64_t sum_ns)
{
    Plasmon__V1__WorkerStats stats = PLASMON__V1__WORKER_STATS__INIT;
    struct wire_arena arena;

    ASSERT_OK(wire_arena_init(&arena, 1 << 20));
    worker_core_queue_times(fake->core, &arena, &stats);
    expect_in(&stats, PLASMON__V1__TIME_OF__TIME_FRONT, why, count, sum_ns);
    wire_arena_finish(&arena);
}

static void fill_after_peer(struct fake *fake, uint64_t seq, uint32_t slot, int64_t count,
                            uint64_t point)
{
    struct fake_launch launch;

    fake_launch_init(&launch, seq, KIND(RUN));
    fake_launch_function(&launch, "fill");
    fake_launch_fresh(&launch, slot, count);
    fake_launch_scalar(&launch, 1);
    fake_launch_after(&launch, PEER, point);
    ASSERT_OK(fake_send(fake, &launch));
}

TEST(what_goes_at_once_has_waited_for_nothing)
{
    struct fake *fake = fake_create();

    fake->now_ns = 10 * MS;
    fake_fill(fake, 1, 1, 4);
    expect_queue(fake, 1, 0, 0);
    fake_destroy(fake);
}

TEST(what_stands_behind_the_front_waits_too_but_the_front_stands_once)
{
    struct fake *fake = fake_create();

    fake->now_ns = 10 * MS;
    fill_after_peer(fake, 1, 1, 4, 1);
    fake->now_ns = 12 * MS;
    fake_fill(fake, 2, 2, 4);
    expect_queue(fake, 0, 0, 0); /* it is not over yet */
    fake->now_ns = 30 * MS;
    worker_core_advance(fake->core);
    expect_queue(fake, 0, 0, 0);
    fake->now_ns = 31 * MS;
    fake_peer_publish(fake, 2, 1, 0);
    worker_core_advance(fake->core);
    expect_queue(fake, 2, (21 + 19) * MS, 1);
    expect_stood(fake, WHY(PUBLISH), 1, 21 * MS);
    fake_fill(fake, 3, 3, 4); /* and nothing stands any more */
    expect_queue(fake, 3, (21 + 19) * MS, 1);
    fake_destroy(fake);
}

TEST(another_cause_is_another_time)
{
    struct fake *fake = fake_create_small();

    fake->now_ns = 10 * MS;
    fake_fill(fake, 1, 1, 200000); /* most of 1 MiB */
    fill_after_peer(fake, 2, 2, 150000, 1);
    fake->now_ns = 20 * MS;
    fake_peer_publish(fake, 2, 1, 0);
    worker_core_advance(fake->core);
    expect_stood(fake, WHY(PUBLISH), 1, 10 * MS);
    expect_stood(fake, WHY(MEMORY), 0, 0);
    fake->now_ns = 50 * MS;
    fake_finish(fake, 0, 1);
    worker_core_complete(fake->core);
    fake_free(fake, 1);
    worker_core_advance(fake->core);
    expect_stood(fake, WHY(MEMORY), 1, 30 * MS);
    expect_queue(fake, 2, 40 * MS, 2);
    fake_destroy(fake);
}

TEST_MAIN()
