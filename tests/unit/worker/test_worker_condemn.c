/* Launches that must not go on: when the clock runs, who is condemned, what else on the device is spared. */
#include "tests/unit/worker/fake.h"

#define RUN PLASMON__V1__LAUNCH_KIND__LAUNCH_RUN
#define MS  UINT64_C(1000000)

/* A fill of a fresh buffer with a limit, after launches of ours; 0: none. */
static void limited(struct fake *fake, uint64_t seq, uint32_t slot, uint32_t limit_ms,
                    uint64_t after)
{
    struct fake_launch launch;

    fake_launch_init(&launch, seq, RUN);
    fake_launch_function(&launch, "fill");
    fake_launch_scalar(&launch, 1.0);
    fake_launch_fresh(&launch, slot, 4);
    if (after != 0) {
        fake_launch_after(&launch, FAKE_BASE + FAKE_US, after);
    }
    launch.message.time_limit_ms = limit_ms;
    launch.message.task          = 77;
    ASSERT_OK(fake_send(fake, &launch));
}

static void begins(struct fake *fake, uint32_t stream, uint64_t seq)
{
    __atomic_store_n(&fake->timelines[FAKE_US]->begun[stream].value, seq, __ATOMIC_RELEASE);
}

static void force(struct fake *fake, uint64_t seq)
{
    Plasmon__V1__WorkerCommand command = PLASMON__V1__WORKER_COMMAND__INIT;
    struct pl_err err                  = {0};

    command.cancel_force   = &seq;
    command.n_cancel_force = 1;
    ASSERT_OK(worker_core_command(fake->core, &command, &err));
}

TEST(a_launch_with_a_limit_is_marked_and_its_word_follows_at_once)
{
    struct fake *fake = fake_create();

    limited(fake, 1, 1, 100, 0);
    ASSERT_STR(fake_calls(fake), "begin:0:1 run:0:fill signal:0:1");
    fake_destroy(fake);
}

TEST(without_limits_nobody_has_to_watch)
{
    struct fake *fake = fake_create();

    fake_fill(fake, 1, 1, 4);
    ASSERT_TRUE(worker_core_tick(fake->core, MS) == UINT64_MAX);
    limited(fake, 2, 2, 100, 0);
    ASSERT_TRUE(worker_core_tick(fake->core, MS) <= 10 * MS);
    fake_destroy(fake);
}

TEST(the_clock_runs_from_the_begin_on_the_device)
{
    struct fake *fake = fake_create();

    limited(fake, 1, 1, 100, 0);
    (void)worker_core_tick(fake->core, 5 * MS); /* enqueued, and waits for ten minutes */
    (void)worker_core_tick(fake->core, 600000 * MS);
    ASSERT_STR(fake_reports(fake), "");
    begins(fake, 0, 1);
    (void)worker_core_tick(fake->core, 600001 * MS);
    (void)worker_core_tick(fake->core, 600100 * MS);
    ASSERT_STR(fake_reports(fake), "");
    (void)worker_core_tick(fake->core, 600101 * MS);
    ASSERT_STR(fake_reports(fake), "condemned:1:ETIMELIMIT fence:1");
    ASSERT_CONTAINS(fake->last_text, "limit of 100 ms");
    ASSERT_CONTAINS(fake->last_text, "fill");
    ASSERT_CONTAINS(fake->last_text, "task 77");
    fake_destroy(fake);
}

TEST(the_next_one_in_the_stream_has_a_clock_of_its_own)
{
    struct fake *fake = fake_create();

    limited(fake, 1, 1, 100, 0);
    limited(fake, 2, 2, 100, 1);
    begins(fake, 0, 1);
    (void)worker_core_tick(fake->core, 10 * MS);
    (void)worker_core_tick(fake->core, 100 * MS);
    fake_finish(fake, 0, 1);
    begins(fake, 0, 2);
    (void)worker_core_tick(fake->core, 105 * MS);
    (void)worker_core_tick(fake->core, 200 * MS);
    ASSERT_STR(fake_reports(fake), "done:1+1");
    (void)worker_core_tick(fake->core, 205 * MS);
    ASSERT_STR(fake_reports(fake), "condemned:2:ETIMELIMIT fence:2");
    fake_destroy(fake);
}

TEST(others_on_the_device_may_finish_before_the_worker_is_fenced)
{
    struct fake *fake = fake_create();

    limited(fake, 1, 1, 100, 0); /* stream 0 */
    fake_fill(fake, 2, 2, 4);    /* stream 1 */
    begins(fake, 0, 1);
    (void)worker_core_tick(fake->core, 10 * MS);
    ASSERT_TRUE(worker_core_tick(fake->core, 110 * MS) <= 120 * MS);
    ASSERT_STR(fake_reports(fake), "condemned:1:ETIMELIMIT");
    fake_finish(fake, 1, 2);
    (void)worker_core_tick(fake->core, 115 * MS);
    ASSERT_STR(fake_reports(fake), "done:2+1 fence:1");
    ASSERT_TRUE(worker_core_tick(fake->core, 120 * MS) == UINT64_MAX); /* asked once */
    ASSERT_STR(fake_reports(fake), "");
    fake_destroy(fake);
}

TEST(what_takes_too_long_beside_it_is_not_waited_for)
{
    struct fake *fake = fake_create();

    limited(fake, 1, 1, 100, 0);
    fake_fill(fake, 2, 2, 4);
    begins(fake, 0, 1);
    (void)worker_core_tick(fake->core, 10 * MS);
    (void)worker_core_tick(fake->core, 110 * MS);
    (void)worker_core_tick(fake->core, 1100 * MS);
    ASSERT_STR(fake_reports(fake), "condemned:1:ETIMELIMIT");
    (void)worker_core_tick(fake->core, 1110 * MS);
    ASSERT_STR(fake_reports(fake), "fence:1");
    fake_destroy(fake);
}

/* Its word comes behind the launch that does not end: one word speaks for several. */
TEST(what_lies_before_it_in_its_stream_is_over_when_it_has_begun)
{
    struct fake *fake = fake_create();

    fake_fill(fake, 1, 1, 4);
    limited(fake, 2, 2, 100, 1);
    begins(fake, 0, 2);
    (void)worker_core_tick(fake->core, 10 * MS);
    (void)worker_core_tick(fake->core, 110 * MS);
    ASSERT_STR(fake_reports(fake), "condemned:2:ETIMELIMIT fence:2");
    fake_destroy(fake);
}

/* 2 and 3 share the other stream, and 3 waits for the one that does not end: as one batch. */
static void beside(struct fake *fake, uint32_t limit_ms)
{
    worker_core_hold(fake->core);
    limited(fake, 1, 1, limit_ms, 0);
    fake_fill(fake, 2, 2, 4);
    fake_fill_after(fake, 3, 3, 2, 1);
    worker_core_resume(fake->core);
    worker_core_advance(fake->core);
}

TEST(what_is_done_before_a_join_with_one_that_has_a_limit_is_seen_to_be)
{
    struct fake *fake = fake_create();

    beside(fake, 100);
    ASSERT_STR(fake_calls(fake), "begin:0:1 run:0:fill signal:0:1 run:1:fill signal:1:2 "
                                 "join:1:0 run:1:fill signal:1:3");
    begins(fake, 0, 1);
    fake_finish(fake, 1, 2);
    (void)fake_reports(fake);
    (void)worker_core_tick(fake->core, 10 * MS);
    (void)worker_core_tick(fake->core, 110 * MS);
    ASSERT_STR(fake_reports(fake), "condemned:1:ETIMELIMIT fence:1");
    fake_destroy(fake);
}

/* In a stream of its own. */
static void urgent(struct fake *fake, uint64_t seq, uint32_t slot, uint64_t after)
{
    struct fake_launch launch;

    fake_launch_init(&launch, seq, RUN);
    fake_launch_function(&launch, "fill");
    fake_launch_scalar(&launch, 1.0);
    fake_launch_fresh(&launch, slot, 4);
    if (after != 0) {
        fake_launch_after(&launch, FAKE_BASE + FAKE_US, after);
    }
    launch.message.priority = 1;
    ASSERT_OK(fake_send(fake, &launch));
}

TEST(and_before_a_join_with_what_waits_for_one_that_has_a_limit)
{
    struct fake *fake = fake_create();

    beside(fake, 100);
    (void)fake_calls(fake);
    worker_core_hold(fake->core);
    urgent(fake, 4, 4, 0);
    urgent(fake, 5, 5, 3);
    worker_core_resume(fake->core);
    worker_core_advance(fake->core);
    ASSERT_STR(fake_calls(fake), "run:8:fill signal:8:4 join:8:1 run:8:fill signal:8:5");
    begins(fake, 0, 1);
    fake_finish(fake, 1, 2);
    fake_finish(fake, 8, 4);
    (void)fake_reports(fake);
    (void)worker_core_tick(fake->core, 10 * MS);
    (void)worker_core_tick(fake->core, 110 * MS);
    ASSERT_STR(fake_reports(fake), "condemned:1:ETIMELIMIT fence:1");
    fake_destroy(fake);
}

TEST(where_words_are_cheap_what_is_done_before_any_join_is_seen_to_be)
{
    struct fake *fake = fake_create();

    fake->words_cheap = true;
    fake_restart(fake);
    (void)fake_calls(fake);
    beside(fake, 0);
    ASSERT_STR(fake_calls(fake), "run:0:fill run:1:fill signal:1:2 join:1:0 run:1:fill "
                                 "signal:0:1 signal:1:3");
    fake_finish(fake, 1, 2);
    (void)fake_reports(fake);
    force(fake, 1);
    (void)worker_core_tick(fake->core, 10 * MS);
    ASSERT_STR(fake_reports(fake), "condemned:1:ECANCELLED fence:1");
    fake_destroy(fake);
}

TEST(what_lies_before_one_that_has_not_begun_may_finish)
{
    struct fake *fake = fake_create();

    fake_fill(fake, 1, 1, 4);
    limited(fake, 2, 2, 100, 1);
    force(fake, 2);
    (void)worker_core_tick(fake->core, 10 * MS);
    ASSERT_STR(fake_reports(fake), "condemned:2:ECANCELLED");
    begins(fake, 0, 2);
    (void)worker_core_tick(fake->core, 15 * MS);
    ASSERT_STR(fake_reports(fake), "fence:2");
    fake_destroy(fake);
}

TEST(nothing_is_enqueued_once_a_launch_is_condemned)
{
    struct fake *fake = fake_create();

    limited(fake, 1, 1, 100, 0);
    begins(fake, 0, 1);
    (void)worker_core_tick(fake->core, 10 * MS);
    (void)worker_core_tick(fake->core, 110 * MS);
    (void)fake_calls(fake);
    fake_fill(fake, 2, 2, 4);
    ASSERT_STR(fake_calls(fake), "");
    fake_destroy(fake);
}

TEST(one_that_ends_in_time_after_all_fails_and_the_device_goes_on)
{
    struct fake *fake = fake_create();

    limited(fake, 1, 1, 100, 0);
    fake_fill(fake, 2, 2, 4);
    begins(fake, 0, 1);
    (void)worker_core_tick(fake->core, 10 * MS);
    (void)worker_core_tick(fake->core, 110 * MS);
    fake_fill(fake, 3, 3, 4); /* waits in the queue */
    (void)fake_calls(fake);
    (void)fake_reports(fake);
    fake_finish(fake, 0, 1);
    ASSERT_STR(fake_reports(fake), "failed:1:ETIMELIMIT");
    ASSERT_STR(fake_calls(fake), "run:0:fill signal:0:3");
    ASSERT_TRUE(fake_state(fake, 1) != STORE_SEALED);
    ASSERT_TRUE(worker_core_tick(fake->core, 200 * MS) == UINT64_MAX);
    fake_destroy(fake);
}

TEST(a_begin_of_the_last_incarnation_is_no_begin)
{
    struct fake *fake = fake_create();

    limited(fake, 1, 1, 100, 0);
    begins(fake, 0, 1);
    fake_restart(fake);
    ASSERT_EQ(fake->unfinished.items.count, 1);
    limited(fake, 1, 1, 100, 0);
    (void)worker_core_tick(fake->core, 10 * MS);
    (void)worker_core_tick(fake->core, 1000 * MS);
    ASSERT_STR(fake_reports(fake), "");
    fake_destroy(fake);
}

TEST(force_condemns_a_running_launch_and_drops_a_queued_one)
{
    struct fake *fake = fake_create();

    fake_fill(fake, 1, 1, 4);
    force(fake, 1);
    (void)worker_core_tick(fake->core, 10 * MS);
    ASSERT_STR(fake_reports(fake), "condemned:1:ECANCELLED fence:1");
    fake_destroy(fake);
}

TEST(force_that_comes_too_late_does_nothing)
{
    struct fake *fake = fake_create();

    fake_filled(fake, 1);
    (void)fake_reports(fake);
    force(fake, 1);
    ASSERT_TRUE(worker_core_tick(fake->core, 10 * MS) == UINT64_MAX);
    ASSERT_STR(fake_reports(fake), "");
    fake_destroy(fake);
}

TEST(no_more_than_the_depth_is_on_the_device)
{
    struct fake *fake = fake_create();

    for (uint64_t seq = 1; seq <= WORKER_DEPTH + 10; seq++) {
        fake_fill(fake, seq, (uint32_t)seq, 4);
    }
    ASSERT_EQ(fake->timelines[FAKE_US]->enqueued, WORKER_DEPTH);
    fake_finish(fake, 0, 1);
    ASSERT_EQ(fake->timelines[FAKE_US]->enqueued, WORKER_DEPTH + 1);
    fake_finish(fake, 0, WORKER_DEPTH); /* every second one */
    fake_finish(fake, 1, WORKER_DEPTH);
    ASSERT_EQ(fake->timelines[FAKE_US]->enqueued, WORKER_DEPTH + 10);
    fake_destroy(fake);
}

/* Both streams of functions take turns: what goes into one is seq 1, 3, 5, ... */
TEST(a_stream_takes_no_more_operations_than_a_driver_does)
{
    struct fake *fake = fake_create();
    uint64_t each     = WORKER_OPERATIONS / 3 + 1; /* so two fit */

    fake->operations = each;
    for (uint64_t seq = 1; seq <= 8; seq++) {
        fake_fill(fake, seq, (uint32_t)seq, 4);
    }
    ASSERT_EQ(fake->timelines[FAKE_US]->enqueued, 4); /* 2 in each */
    fake_finish(fake, 0, 1);
    ASSERT_EQ(fake->timelines[FAKE_US]->enqueued, 5);
    fake_finish(fake, 0, 5); /* two more go in there, and the next one waits for it */
    ASSERT_EQ(fake->timelines[FAKE_US]->enqueued, 7);
    fake_finish(fake, 1, 4);
    ASSERT_EQ(fake->timelines[FAKE_US]->enqueued, 7);
    fake_finish(fake, 0, 6);
    ASSERT_EQ(fake->timelines[FAKE_US]->enqueued, 8);
    fake_destroy(fake);
}

TEST(a_launch_of_more_operations_goes_into_an_empty_stream)
{
    struct fake *fake = fake_create();

    fake_fill(fake, 1, 1, 4);
    fake_fill(fake, 2, 2, 4);
    fake->operations = 10 * WORKER_OPERATIONS;
    fake_fill(fake, 3, 3, 4);
    fake->operations = 1;
    fake_fill(fake, 4, 4, 4);
    ASSERT_EQ(fake->timelines[FAKE_US]->enqueued, 2); /* nothing passes it */
    fake_finish(fake, 0, 1);
    fake_finish(fake, 1, 2);
    ASSERT_EQ(fake->timelines[FAKE_US]->enqueued, 3);
    worker_core_advance(fake->core);                  /* others had their turn */
    ASSERT_EQ(fake->timelines[FAKE_US]->enqueued, 4); /* in the other stream */
    fake_fill(fake, 5, 5, 4);
    ASSERT_EQ(fake->timelines[FAKE_US]->enqueued, 5);
    fake_destroy(fake);
}

TEST(so_many_operations_are_put_in_and_then_others_have_their_turn)
{
    struct fake *fake = fake_create();

    fake->operations = WORKER_OPERATIONS / 9;
    worker_core_hold(fake->core);
    for (uint64_t seq = 1; seq <= 20; seq++) {
        fake_fill(fake, seq, (uint32_t)seq, 4);
    }
    (void)fake_calls(fake);
    worker_core_resume(fake->core);
    worker_core_advance(fake->core);
    ASSERT_EQ(fake->timelines[FAKE_US]->enqueued, 9);
    ASSERT_CONTAINS(fake_calls(fake), "again");
    worker_core_advance(fake->core);
    ASSERT_EQ(fake->timelines[FAKE_US]->enqueued,
              16); /* as many as two streams take, with words and begins */
    fake_destroy(fake);
}

TEST(half_of_a_large_transfer_is_as_many_operations_as_its_chunks_take)
{
    struct fake *fake = fake_create();

    fake->grow_bytes = UINT64_C(600) << 20;
    fake_fill(fake, 1, 1, (int64_t)1 << 27);
    fake_finish(fake, 0, 1);
    for (uint64_t seq = 2; seq <= 7; seq++) { /* 64 chunks of 8 MiB, three each */
        struct fake_launch launch;

        fake_launch_init(&launch, seq, PLASMON__V1__LAUNCH_KIND__LAUNCH_SEND);
        fake_launch_operand(&launch, KERNEL_IN, 1, (int64_t)1 << 27);
        launch.message.peer   = FAKE_BASE + 2;
        launch.message.offset = 64 * seq;
        ASSERT_OK(fake_send(fake, &launch));
    }
    ASSERT_EQ(fake->timelines[FAKE_US]->enqueued, 5);
    fake_finish(fake, 6, 2);
    ASSERT_EQ(fake->timelines[FAKE_US]->enqueued, 6);
    fake_destroy(fake);
}

TEST(a_long_chain_of_light_launches_fills_the_depth)
{
    struct fake *fake = fake_create();

    fake->words_cheap = true;
    for (uint64_t seq = 1; seq <= WORKER_DEPTH + 10; seq++) { /* all in stream 0 */
        fake_fill_after(fake, seq, (uint32_t)seq, seq - 1, 0);
    }
    ASSERT_EQ(fake->timelines[FAKE_US]->enqueued, WORKER_DEPTH);
    fake_destroy(fake);
}

TEST(what_comes_again_runs_one_at_a_time)
{
    struct fake *fake = fake_create();

    for (uint64_t seq = 1; seq <= 3; seq++) {
        fake_fill(fake, seq, (uint32_t)seq, 4);
    }
    fake_restart(fake);
    (void)fake_calls(fake);
    for (uint64_t seq = 1; seq <= 5; seq++) { /* 4 and 5 are new */
        fake_fill(fake, seq, (uint32_t)seq, 4);
    }
    ASSERT_STR(fake_calls(fake), "run:0:fill signal:0:1");
    fake_finish(fake, 0, 1);
    ASSERT_STR(fake_calls(fake), "run:1:fill signal:1:2");
    fake_finish(fake, 1, 2);
    ASSERT_STR(fake_calls(fake), "run:0:fill signal:0:3");
    fake_finish(fake, 0, 3);
    ASSERT_STR(fake_calls(fake),
               "run:0:fill run:1:fill signal:0:4 signal:1:5"); /* at once */
    fake_destroy(fake);
}

TEST_MAIN()
