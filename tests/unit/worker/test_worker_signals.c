/*
 * How often a stream's word is written where only the host watches it: at the end of a batch,
 * unless two writes are still to come; then when the host sees one of those. Nothing may be left
 * without a write for ever.
 */
#include "tests/unit/worker/fake.h"

#define SLOT 40u

static void fill(struct fake *fake, uint64_t seq)
{
    fake_fill(fake, seq, SLOT + (uint32_t)seq, 4);
}

/* In stream 0, one after the other: each in a batch of its own. */
static void chain(struct fake *fake, uint64_t first, uint64_t last)
{
    for (uint64_t seq = first; seq <= last; seq++) {
        struct fake_launch launch;

        fake_launch_init(&launch, seq, PLASMON__V1__LAUNCH_KIND__LAUNCH_RUN);
        fake_launch_function(&launch, "fill");
        fake_launch_scalar(&launch, 1.0);
        fake_launch_operand(&launch, KERNEL_OUT, SLOT, 4);
        fake_launch_after(&launch, FAKE_BASE + FAKE_US, seq - 1);
        ASSERT_OK(fake_send(fake, &launch));
    }
}

/* One batch with its word written, one more with its own: seq 1 and 2 are under way. */
static struct fake *busy(struct fake *fake)
{
    fake_fill(fake, 1, SLOT, 4);
    chain(fake, 2, 2);
    ASSERT_STR(fake_calls(fake), "run:0:fill signal:0:1 run:0:fill signal:0:2");
    return fake;
}

TEST(two_batches_under_way_have_their_words_and_more_wait_for_the_first)
{
    struct fake *fake = busy(fake_create_lone());

    chain(fake, 3, 5);
    ASSERT_STR(fake_calls(fake), "run:0:fill run:0:fill run:0:fill");
    fake_finish(fake, 0, 1); /* the host looks: one write for all three */
    ASSERT_STR(fake_calls(fake), "signal:0:5");
    chain(fake, 6, 6);
    ASSERT_STR(fake_calls(fake), "run:0:fill");
    fake_finish(fake, 0, 2);
    ASSERT_STR(fake_calls(fake), "signal:0:6");
    fake_finish(fake, 0, 6);
    ASSERT_STR(fake_reports(fake), "done:1+1 done:2+1 done:3+4");
    fake_destroy(fake);
}

/* What a stream keeps (device_launch_soon()) must go in when nothing more comes. */
TEST(a_batch_without_a_word_is_flushed)
{
    struct fake *fake = busy(fake_create_lone());

    fake->flushes = true;
    chain(fake, 3, 3);
    ASSERT_CONTAINS(fake_calls(fake), "run:0:fill flush:0");
    fake_finish(fake, 0, 1);
    ASSERT_STR(fake_calls(fake), "signal:0:3");
    fake_destroy(fake);
}

TEST(the_first_launch_of_an_idle_stream_waits_for_no_others_of_its_batch)
{
    struct fake *fake = fake_create_lone();

    fake->flushes = true;
    worker_core_hold(fake->core);
    fake_fill(fake, 1, SLOT, 4);
    chain(fake, 2, 4);
    ASSERT_STR(fake_calls(fake), "");
    worker_core_resume(fake->core);
    worker_core_advance(fake->core);
    ASSERT_STR(fake_calls(fake),
               "run:0:fill flush:0 run:0:fill run:0:fill run:0:fill signal:0:4");
    fake_destroy(fake);
}

/* Before anything of it goes in; and not for what the device never hears of. */
TEST(who_has_stopped_looking_is_told_of_work_first)
{
    struct fake *fake = fake_create_lone();

    fake->stirs = true;
    fake_fill(fake, 1, SLOT, 4);
    ASSERT_STR(fake_calls(fake), "stir run:0:fill signal:0:1");
    fake_finish(fake, 0, 1);
    fake_noop(fake, 2);
    ASSERT_STR(fake_calls(fake), "");
    fake_destroy(fake);
}

/* Branches of a graph are to run side by side: none waits for the end of a batch. */
TEST(a_launch_in_another_stream_makes_those_before_it_go)
{
    struct fake *fake = busy(fake_create_lone());

    fake->flushes = true;
    worker_core_hold(fake->core);
    chain(fake, 3, 5);
    fill(fake, 6);     /* nothing before it: the other stream */
    chain(fake, 7, 7); /* behind that */
    worker_core_resume(fake->core);
    worker_core_advance(fake->core);
    ASSERT_CONTAINS(fake_calls(fake),
                    "run:0:fill run:0:fill run:0:fill flush:0 run:1:fill");
    fake_destroy(fake);
}

TEST(an_idle_stream_writes_its_word_at_once)
{
    struct fake *fake = busy(fake_create_lone());

    fake_finish(fake, 0, 2);
    (void)fake_calls(fake);
    chain(fake, 3, 3);
    ASSERT_STR(fake_calls(fake), "run:0:fill signal:0:3");
    fake_destroy(fake);
}

TEST(a_long_series_writes_in_between_although_writes_are_to_come)
{
    struct fake *fake = busy(fake_create_lone());

    chain(fake, 3, 34);
    ASSERT_CONTAINS(fake_calls(fake), "run:0:fill signal:0:34"); /* the 32nd since */
    fake_destroy(fake);
}

TEST(with_other_devices_on_the_host_each_batch_has_its_word)
{
    struct fake *fake = busy(fake_create());

    chain(fake, 3, 5);
    ASSERT_STR(fake_calls(fake),
               "run:0:fill signal:0:3 run:0:fill signal:0:4 run:0:fill signal:0:5");
    fake_destroy(fake);
}

TEST(a_launch_with_a_limit_has_its_word_at_once_all_the_same)
{
    struct fake *fake = busy(fake_create_lone());
    struct fake_launch launch;

    fake_launch_init(&launch, 3, PLASMON__V1__LAUNCH_KIND__LAUNCH_RUN);
    fake_launch_function(&launch, "fill");
    fake_launch_scalar(&launch, 1.0);
    fake_launch_operand(&launch, KERNEL_OUT, SLOT, 4);
    fake_launch_after(&launch, FAKE_BASE + FAKE_US, 2);
    launch.message.time_limit_ms = 1000;
    ASSERT_OK(fake_send(fake, &launch));
    ASSERT_STR(fake_calls(fake), "begin:0:3 run:0:fill signal:0:3");
    fake_destroy(fake);
}

/*
 * What another stream overwrites must be shown as done by a word: so the word is written before the
 * join, however many are to come.
 */
TEST(a_word_that_another_stream_needs_does_not_wait)
{
    struct fake *fake = busy(fake_create_lone());
    struct fake_launch launch;

    chain(fake, 3, 3);
    fill(fake, 4); /* goes to the other stream: it has less to do */
    ASSERT_STR(fake_calls(fake), "run:0:fill run:1:fill signal:1:4");
    fake_launch_init(&launch, 5, PLASMON__V1__LAUNCH_KIND__LAUNCH_RUN);
    fake_launch_function(&launch, "fill");
    fake_launch_scalar(&launch, 1.0);
    fake_launch_operand(&launch, KERNEL_OUT, SLOT, 4);
    fake_launch_after(&launch, FAKE_BASE + FAKE_US, 4); /* the stream of this one */
    fake_launch_after(&launch, FAKE_BASE + FAKE_US, 3);
    ASSERT_OK(fake_send(fake, &launch));
    ASSERT_CONTAINS(fake_calls(fake), "signal:0:3 join:1:0 run:1:fill");
    fake_destroy(fake);
}

/*
 * A launch that only waits stands for what it waits for: whoever is behind it may overwrite what
 * that uses, and names nothing else.
 */
TEST(a_word_that_another_stream_needs_does_not_wait_behind_a_gate_either)
{
    struct fake *fake = busy(fake_create_lone());
    struct fake_launch launch;

    chain(fake, 3, 3);
    fill(fake, 4); /* goes to the other stream */
    (void)fake_calls(fake);
    fake_launch_init(&launch, 5, PLASMON__V1__LAUNCH_KIND__LAUNCH_SKIP);
    fake_launch_after(&launch, FAKE_BASE + FAKE_US, 4); /* the stream of this one */
    fake_launch_after(&launch, FAKE_BASE + FAKE_US, 3);
    ASSERT_OK(fake_send(fake, &launch));
    ASSERT_CONTAINS(fake_calls(fake), "signal:0:3 join:1:0");
    fake_launch_init(&launch, 6, PLASMON__V1__LAUNCH_KIND__LAUNCH_RUN);
    fake_launch_function(&launch, "fill");
    fake_launch_scalar(&launch, 1.0);
    fake_launch_operand(&launch, KERNEL_OUT, SLOT, 4);
    fake_launch_after(&launch, FAKE_BASE + FAKE_US, 5);
    ASSERT_OK(fake_send(fake, &launch));
    ASSERT_CONTAINS(fake_calls(fake), "run:1:fill");
    fake_destroy(fake);
}

/* What it only reads is made again with the same content: its work will do. */
TEST(a_word_of_what_is_only_read_can_wait)
{
    struct fake *fake = busy(fake_create_lone());
    struct fake_launch launch;

    chain(fake, 3, 3);
    fill(fake, 4); /* into a slot of its own, in the other stream */
    ASSERT_STR(fake_calls(fake), "run:0:fill run:1:fill signal:1:4");
    fake_launch_init(&launch, 5, PLASMON__V1__LAUNCH_KIND__LAUNCH_RUN);
    fake_launch_function(&launch, "add_into");
    fake_launch_operand(&launch, KERNEL_INOUT, SLOT + 4, 4)->consume = 1;
    fake_launch_operand(&launch, KERNEL_IN, SLOT, 4);
    fake_launch_after(&launch, FAKE_BASE + FAKE_US, 4);
    fake_launch_after(&launch, FAKE_BASE + FAKE_US, 3);
    ASSERT_OK(fake_send(fake, &launch));
    ASSERT_STR(fake_calls(fake), "join:1:0 run:1:add_into signal:1:5");
    fake_destroy(fake);
}

TEST_MAIN()
