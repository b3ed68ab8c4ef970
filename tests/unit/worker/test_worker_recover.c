/* A restart: what the table and the timeline say is kept, the rest comes again under its old numbers. */
#include "base/fault.h"
#include "tests/unit/worker/fake.h"

#define RUN PLASMON__V1__LAUNCH_KIND__LAUNCH_RUN

static void word_set(struct fake *fake, uint32_t stream, uint64_t seq)
{
    fake->timelines[FAKE_US]->stream[stream].value = seq;
}

static const struct wire_range *unfinished(const struct fake *fake, size_t i)
{
    return pl_vec_at(&fake->unfinished.items, i);
}

TEST(first_start_has_nothing_to_recover)
{
    struct fake *fake = fake_create();

    fake_restart(fake);
    ASSERT_EQ(fake->enqueued, 0);
    ASSERT_EQ(fake->unfinished.items.count, 0);
    fake_noop(fake, 1);
    ASSERT_STR(fake_reports(fake), "done:1+1");
    fake_destroy(fake);
}

TEST(done_is_sealed_and_the_rest_comes_again_on_its_streams)
{
    struct fake *fake = fake_create();
    uint64_t offset;

    for (uint64_t seq = 1; seq <= 6; seq++) {
        fake_fill(fake, seq, (uint32_t)seq,
                  4); /* odd ones in stream 0, even ones in stream 1 */
    }
    offset = fake->tables[FAKE_US]->entries[4].offset;
    word_set(fake, 0, 5); /* and the worker died before it looked */
    word_set(fake, 1, 2);
    fake_restart(fake);

    ASSERT_EQ(fake->enqueued, 6);
    ASSERT_EQ(fake->unfinished.items.count, 2);
    ASSERT_EQ(unfinished(fake, 0)->first, 4);
    ASSERT_EQ(unfinished(fake, 0)->count, 1);
    ASSERT_EQ(unfinished(fake, 1)->first, 6);
    ASSERT_EQ(fake_state(fake, 1), STORE_SEALED);
    ASSERT_EQ(fake_state(fake, 2), STORE_SEALED);
    ASSERT_EQ(fake_state(fake, 5), STORE_SEALED);
    ASSERT_TRUE(fake_state(fake, 4) != STORE_SEALED);

    fake_fill(fake, 4, 4, 4);
    fake_fill(fake, 6, 6, 4);
    fake_fill(fake, 7, 7, 4);
    ASSERT_STR(fake_calls(fake), "run:1:fill signal:1:4"); /* one at a time */
    fake_finish(fake, 1, 4);
    ASSERT_STR(fake_calls(fake), "run:1:fill signal:1:6");
    ASSERT_EQ(fake->tables[FAKE_US]->entries[4].offset, offset); /* the same memory */
    fake_finish(fake, 1, 6);
    ASSERT_STR(fake_calls(fake), "run:0:fill signal:0:7");
    ASSERT_EQ(fake_state(fake, 4), STORE_SEALED);
    ASSERT_EQ(fake_memory(fake).bytes_used, 7 * 256);
    fake_destroy(fake);
}

TEST(unfinished_launch_that_is_left_out_is_passed)
{
    struct fake *fake = fake_create();
    struct fake_launch launch;
    struct pl_err err;

    fake_fill(fake, 1, 1, 4);
    fake_fill(fake, 2, 2, 4);
    fake_restart(fake);
    fake_launch_init(&launch, 4, RUN);
    ASSERT_STATUS(fake_send_err(fake, &launch, &err), PLASMON_EMALFORMED);
    ASSERT_CONTAINS(err.text, "launch 4 came when 3 was due");
    fake_fill(fake, 2, 2, 4);
    ASSERT_STR(fake_calls(fake), "run:1:fill signal:1:2");
    ASSERT_EQ(fake->timelines[FAKE_US]->stream[0].value, 1); /* who waits for 1 goes on */
    ASSERT_TRUE(fake_state(fake, 1) != STORE_SEALED);
    ASSERT_STR(fake_reports(fake), "done:1+1");
    fake_finish(fake, 1, 2);
    fake_noop(fake, 3);
    ASSERT_STR(fake_reports(fake), "done:2+1 done:3+1");
    fake_destroy(fake);
}

TEST(new_head_finds_an_empty_device)
{
    struct fake *fake = fake_create();

    fake_fill(fake, 1, 1, 4);
    fake_fill(fake, 2, 2, 4);
    fake_finish(fake, 0, 1);
    fake_restart(fake);
    worker_core_forget(fake->core);
    ASSERT_EQ(fake->timelines[FAKE_US]->stream[1].value, 2);
    ASSERT_EQ(fake_state(fake, 1), STORE_FREE);
    ASSERT_EQ(fake_state(fake, 2), STORE_FREE);
    ASSERT_EQ(fake_memory(fake).bytes_used, 0);
    fake_fill(fake, 3, 1, 4);
    ASSERT_STR(fake_calls(fake), "run:0:fill signal:0:3");
    fake_destroy(fake);
}

TEST(launch_that_was_done_is_not_done_again)
{
    struct fake *fake = fake_create();

    fake_fill(fake, 1, 1, 4);
    fake_fill(fake, 2, 2, 4);
    word_set(fake, 0, 1);
    fake_restart(fake);
    fake_fill(fake, 1, 1, 4);
    ASSERT_STR(fake_calls(fake), "");
    fake_fill(fake, 2, 2, 4);
    ASSERT_STR(fake_calls(fake), "run:1:fill signal:1:2");
    fake_destroy(fake);
}

TEST(skip_only_signals)
{
    struct fake *fake = fake_create();
    struct fake_launch launch;

    fake_fill(fake, 1, 1, 4);
    fake_restart(fake);
    fake_launch_init(&launch, 1, PLASMON__V1__LAUNCH_KIND__LAUNCH_SKIP);
    ASSERT_OK(fake_send(fake, &launch));
    ASSERT_EQ(fake->timelines[FAKE_US]->stream[0].value, 1);
    ASSERT_TRUE(fake_state(fake, 1) != STORE_SEALED); /* until the head frees it */
    fake_free(fake, 1);
    ASSERT_EQ(fake_memory(fake).bytes_used, 0);
    fake_destroy(fake);
}

/*
 * 1 makes the buffer, and 2 writes a part of it without waiting for that: it is over when the
 * worker dies, and 1 is not.
 */
static void other_part_written(struct fake *fake)
{
    struct fake_launch launch;

    fake_fill(fake, 1, 1, 4);
    fake_launch_init(&launch, 2, RUN);
    fake_launch_function(&launch, "fill");
    fake_launch_scalar(&launch, 1.0);
    fake_launch_operand(&launch, KERNEL_OUT, 1, 4);
    ASSERT_OK(fake_send(fake, &launch));
    word_set(fake, 1, 2);
    fake_restart(fake);
    ASSERT_EQ(fake->unfinished.items.count, 1);
    ASSERT_EQ(unfinished(fake, 0)->first, 1);
    ASSERT_EQ(fake_state(fake, 1), STORE_SEALED);
}

TEST(what_another_launch_sealed_stays_sealed_when_its_maker_is_skipped)
{
    struct fake *fake = fake_create();
    struct fake_launch launch;

    other_part_written(fake);
    fake_launch_init(&launch, 1, PLASMON__V1__LAUNCH_KIND__LAUNCH_SKIP);
    fake_launch_fresh(&launch, 1, 4)->mode = PLASMON__V1__MODE__MODE_SCRATCH;
    ASSERT_OK(fake_send(fake, &launch));
    ASSERT_EQ(fake->timelines[FAKE_US]->stream[0].value, 1);
    ASSERT_EQ(fake_state(fake, 1), STORE_SEALED);
    fake_destroy(fake);
}

TEST(what_another_launch_sealed_is_sealed_again_when_its_maker_fails)
{
    struct fake *fake = fake_create();

    other_part_written(fake);
    fake->refuse = "run";
    fake_filled(fake, 1);
    ASSERT_CONTAINS(fake_reports(fake), "failed:1:");
    ASSERT_EQ(fake_state(fake, 1), STORE_SEALED);
    fake_destroy(fake);
}

/*
 * What was half written when the worker died is not there because its launch is over: a second
 * death must not seal it.
 */
TEST(what_a_skipped_launch_was_to_write_is_never_sealed)
{
    struct fake *fake = fake_create();
    struct fake_launch launch;

    fake_fill(fake, 1, 1, 4);
    fake_restart(fake);
    fake_launch_init(&launch, 1, PLASMON__V1__LAUNCH_KIND__LAUNCH_SKIP);
    fake_launch_fresh(&launch, 1, 4)->mode = PLASMON__V1__MODE__MODE_SCRATCH;
    ASSERT_OK(fake_send(fake, &launch));
    fake_restart(fake);
    ASSERT_EQ(fake->unfinished.items.count, 0);
    ASSERT_TRUE(fake_state(fake, 1) != STORE_SEALED);
    fake_destroy(fake);
}

/*
 * It came again in a second life, was over its limit, and ended all the same while the worker was
 * being killed.
 */
TEST(what_a_failed_launch_wrote_is_not_sealed_when_it_is_skipped_in_a_third_life)
{
    struct fake *fake = fake_create();
    struct fake_launch launch;

    fake_fill(fake, 1, 1, 4);
    fake_restart(fake);
    fake_fill(fake, 1, 1, 4);
    ASSERT_EQ(fake_state(fake, 1), STORE_CONSUMED);
    store_timeline_mark(fake->timelines[FAKE_US], 1, true);
    word_set(fake, 0, 1);
    fake_restart(fake);
    ASSERT_EQ(fake->unfinished.items.count, 1);
    fake_launch_init(&launch, 1, PLASMON__V1__LAUNCH_KIND__LAUNCH_SKIP);
    fake_launch_fresh(&launch, 1, 4)->mode = PLASMON__V1__MODE__MODE_SCRATCH;
    ASSERT_OK(fake_send(fake, &launch));
    ASSERT_CONTAINS(fake_reports(fake), "failed:1:");
    ASSERT_TRUE(fake_state(fake, 1) != STORE_SEALED);
    fake_destroy(fake);
}

static void consume(struct fake *fake, uint64_t seq, uint32_t y, uint32_t x)
{
    struct fake_launch launch;

    fake_launch_init(&launch, seq, RUN);
    fake_launch_function(&launch, "add_into");
    fake_launch_operand(&launch, KERNEL_INOUT, y, 4)->consume = 1;
    fake_launch_operand(&launch, KERNEL_IN, x, 4);
    ASSERT_OK(fake_send(fake, &launch));
}

TEST(consumed_for_a_published_launch_stays_consumed)
{
    struct fake *fake = fake_create();

    fake_filled(fake, 2);
    consume(fake, 3, 1, 2);
    fake_restart(fake);
    ASSERT_EQ(fake->enqueued, 3);
    ASSERT_EQ(fake_state(fake, 1), STORE_CONSUMED);
    ASSERT_EQ(fake_state(fake, 2), STORE_SEALED);
    fake_destroy(fake);
}

/* It wrote a part; a reader of another one is not to wait for ever. */
TEST(consumed_is_sealed_when_its_launch_has_come_again_and_was_skipped)
{
    struct fake *fake = fake_create();
    struct fake_launch launch;

    fake_filled(fake, 2);
    consume(fake, 3, 1, 2);
    fake_restart(fake);
    fake_launch_init(&launch, 3, PLASMON__V1__LAUNCH_KIND__LAUNCH_SKIP);
    ASSERT_OK(fake_send(fake, &launch));
    ASSERT_EQ(fake_state(fake, 1), STORE_SEALED);
    fake_destroy(fake);
}

TEST(consumed_is_sealed_when_its_launch_has_come_again_and_failed)
{
    struct fake *fake = fake_create();

    fake_filled(fake, 2);
    consume(fake, 3, 1, 2);
    fake_restart(fake);
    fake->refuse = "run";
    consume(fake, 3, 1, 2);
    fake_finish(fake, 0, 3);
    ASSERT_CONTAINS(fake_reports(fake), "failed:3:");
    ASSERT_EQ(fake_state(fake, 1), STORE_SEALED);
    fake_destroy(fake);
}

TEST(consumed_and_done_is_sealed)
{
    struct fake *fake = fake_create();

    fake_filled(fake, 2);
    consume(fake, 3, 1, 2);
    word_set(fake, 0, 3);
    fake_restart(fake);
    ASSERT_EQ(fake_state(fake, 1), STORE_SEALED);
    ASSERT_EQ(fake->unfinished.items.count, 0);
    fake_destroy(fake);
}

TEST(consumed_for_a_launch_that_was_never_published_is_as_it_was)
{
    struct fake *fake = fake_create();
    struct store_entry entry;
    uint32_t pin;

    fake_filled(fake, 2);
    ASSERT_OK(store_table_pin(fake->tables[FAKE_US], 1, 1, fake->readers[1], &entry, &pin));
    consume(fake, 3, 1, 2); /* marked; waits for the reader */
    ASSERT_EQ(fake_state(fake, 1), STORE_CONSUMED);
    fake_restart(fake);
    ASSERT_EQ(fake->enqueued, 2);
    ASSERT_EQ(fake_state(fake, 1), STORE_SEALED);
    store_table_unpin(fake->readers[1], pin);
    consume(fake, 3, 1, 2);
    ASSERT_STR(fake_calls(fake), "run:0:add_into signal:0:3");
    fake_destroy(fake);
}

TEST(clients_memory_is_not_sealed_by_a_restart)
{
    struct fake *fake = fake_create();
    struct fake_launch launch;

    fake_launch_init(&launch, 1, PLASMON__V1__LAUNCH_KIND__LAUNCH_ALLOC);
    fake_launch_fresh(&launch, 1, 8);
    ASSERT_OK(fake_send(fake, &launch));
    fake_restart(fake);
    ASSERT_EQ(fake->unfinished.items.count, 0);
    ASSERT_EQ(fake_state(fake, 1), STORE_WRITING);
    fake_launch_init(&launch, 2, PLASMON__V1__LAUNCH_KIND__LAUNCH_SEAL);
    fake_launch_operand(&launch, KERNEL_IN, 1, 8);
    ASSERT_OK(fake_send(fake, &launch));
    ASSERT_EQ(fake_state(fake, 1), STORE_SEALED);
    fake_destroy(fake);
}

TEST(doomed_buffer_is_freed_after_the_restart)
{
    struct fake *fake = fake_create();
    struct store_entry entry;
    uint32_t pin;

    fake_filled(fake, 1);
    ASSERT_OK(store_table_pin(fake->tables[FAKE_US], 1, 1, fake->readers[0], &entry, &pin));
    fake_free(fake, 1);
    fake_restart(fake);
    worker_core_complete(fake->core);
    ASSERT_EQ(fake_state(fake, 1), STORE_DOOMED);
    store_table_unpin(fake->readers[0], pin);
    worker_core_complete(fake->core);
    ASSERT_EQ(fake_state(fake, 1), STORE_FREE);
    ASSERT_EQ(fake_memory(fake).bytes_used, 0);
    fake_destroy(fake);
}

TEST(half_written_entry_is_given_up)
{
    struct fake *fake = fake_create();

    test_expect_log();
    fake_filled(fake, 1);
    fake->tables[FAKE_US]->entries[1].offset += 256;
    fake_restart(fake);
    ASSERT_EQ(fake_state(fake, 1), STORE_FREE);
    ASSERT_EQ(fake_memory(fake).bytes_used, 0);
    fake_destroy(fake);
}

TEST(entry_in_no_state_that_there_is_is_given_up)
{
    struct fake *fake = fake_create();

    test_expect_log();
    fake_filled(fake, 1);
    fake->tables[FAKE_US]->entries[1].state = STORE_RETIRED + 1; /* no checksum covers it */
    fake_restart(fake);
    ASSERT_EQ(fake_state(fake, 1), STORE_FREE);
    ASSERT_EQ(fake_memory(fake).bytes_used, 0);
    fake_destroy(fake);
}

/*
 * Doomed, so its bytes may be shared; half of them lie in no chunk. What it took is given back, and
 * freeing it later is nothing.
 */
TEST(doomed_entry_that_makes_no_sense_leaves_nothing_behind)
{
    struct fake *fake = fake_create();
    struct store_entry *entry;

    test_expect_log();
    fake_filled(fake, 1);
    entry           = &fake->tables[FAKE_US]->entries[1];
    entry->bytes    = UINT64_C(1) << 36;
    entry->checksum = store_entry_checksum(entry);
    entry->state    = STORE_DOOMED;
    fake_restart(fake);
    ASSERT_EQ(fake_state(fake, 1), STORE_FREE);
    ASSERT_EQ(fake_memory(fake).bytes_used, 0);
    fake_fill(fake, 2, 1, 4); /* its slot is like any other */
    fake_finish(fake, 0, 2);
    fake_free(fake, 1);
    ASSERT_EQ(fake_memory(fake).bytes_used, 0);
    fake_destroy(fake);
}

TEST(timeline_that_was_overwritten_is_refused)
{
    struct fake *fake = fake_create();

    test_expect_log();
    /* to look at all of them would never end */
    fake->timelines[FAKE_US]->enqueued = UINT64_MAX;
    ASSERT_STATUS(fake_try_restart(fake), PLASMON_EINTERNAL);
    fake_destroy(fake);
}

TEST(peers_that_wait_for_a_lost_launch_are_released_by_its_repetition)
{
    struct fake *fake = fake_create();
    uint64_t value, *word;

    fake_fill(fake, 1, 1, 4);
    fake_fill(fake, 2, 2, 4);
    ASSERT_EQ(store_timeline_point(fake->timelines[FAKE_US], 2, &word, &value),
              STORE_POINT_ENQUEUED);
    fake_restart(fake);
    ASSERT_EQ(store_timeline_point(fake->timelines[FAKE_US], 2, NULL, NULL),
              STORE_POINT_ENQUEUED);
    fake_fill(fake, 1, 1, 4);
    fake_fill(fake, 2, 2, 4);
    fake_finish(fake, 1, 2);
    ASSERT_TRUE(*word >= value);
    fake_destroy(fake);
}

TEST_MAIN()
