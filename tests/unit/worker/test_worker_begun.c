/* What has begun when a worker dies: who tells it, and what the next one makes of it. */
#include "tests/unit/worker/fake.h"

#define RUN PLASMON__V1__LAUNCH_KIND__LAUNCH_RUN

/* Overwrites slot 1 (made by launch 1) in place, after these launches; device: of the first. */
static void update_after(struct fake *fake, uint64_t seq, uint32_t device, uint64_t first,
                         uint64_t second)
{
    struct fake_launch launch;

    fake_launch_init(&launch, seq, RUN);
    fake_launch_function(&launch, "spin");
    fake_launch_scalar(&launch, 0);
    fake_launch_operand(&launch, KERNEL_INOUT, 1, 4)->consume = 1;
    if (first != 0) {
        fake_launch_after(&launch, device, first);
    }
    if (second != 0) {
        fake_launch_after(&launch, FAKE_BASE + FAKE_US, second);
    }
    ASSERT_OK(fake_send(fake, &launch));
}

static void update(struct fake *fake, uint64_t seq)
{
    update_after(fake, seq, FAKE_BASE + FAKE_US, seq - 1, 0);
}

static void begins(struct fake *fake, uint32_t stream, uint64_t seq)
{
    __atomic_store_n(&fake->timelines[FAKE_US]->begun[stream].value, seq, __ATOMIC_RELEASE);
}

/* What the next worker says has not begun. */
static const char *die(struct fake *fake)
{

    fake_restart(fake);
    return fake->untouched;
}

static struct fake *cheap(void)
{
    struct fake *fake = fake_create();

    fake->words_cheap = true;
    (void)die(fake);
    return fake;
}

TEST(where_it_is_cheap_each_one_that_overwrites_tells)
{
    struct fake *fake = cheap();

    fake_fill(fake, 1, 1, 4);
    update(fake, 2);
    update(fake, 3);
    ASSERT_STR(fake_calls(fake), "run:0:fill signal:0:1 begin:0:2 run:0:spin signal:0:2 "
                                 "begin:0:3 run:0:spin signal:0:3");
    fake_destroy(fake);
}

TEST(elsewhere_only_what_another_device_may_hold_up)
{
    struct fake *fake = fake_create();

    fake_fill(fake, 1, 1, 4); /* stream 0 */
    fake_fill(fake, 2, 2, 4); /* stream 1 */
    update_after(fake, 3, FAKE_BASE + FAKE_US, 1, 2);
    ASSERT_STR(fake_calls(fake), "run:0:fill signal:0:1 run:1:fill signal:1:2 "
                                 "join:0:1 run:0:spin signal:0:3");
    update(fake, 4);
    ASSERT_STR(fake_calls(fake), "run:0:spin signal:0:4");
    fake_peer_publish(fake, 0, 1, 5);
    update_after(fake, 5, FAKE_BASE + 0, 1, 4);
    ASSERT_STR(fake_calls(fake), "wait:0:0.5>=1 begin:0:5 run:0:spin signal:0:5");
    fake_destroy(fake);
}

TEST(what_lies_behind_a_word_that_was_not_written_has_not_begun)
{
    struct fake *fake = fake_create();

    for (uint64_t seq = 1; seq <= 3; seq++) {
        fake_fill_after(fake, seq, (uint32_t)seq, seq - 1, 0); /* each with its word */
    }
    ASSERT_STR(die(fake), "2+2");
    fake_destroy(fake);
}

TEST(without_a_word_in_between_all_of_a_batch_may_have_begun)
{
    struct fake *fake = fake_create();

    /* Behind a wait: 1, 2 and 3 go at once, with one word behind the last. */
    for (uint64_t seq = 1; seq <= 3; seq++) {
        struct fake_launch launch;

        fake_launch_init(&launch, seq, RUN);
        fake_launch_function(&launch, "fill");
        fake_launch_scalar(&launch, 1.0);
        fake_launch_fresh(&launch, (uint32_t)seq, 4);
        if (seq == 1) {
            fake_launch_after(&launch, FAKE_BASE + 0, 1);
        } else {
            fake_launch_after(&launch, FAKE_BASE + FAKE_US, seq - 1);
        }
        ASSERT_OK(fake_send(fake, &launch));
    }
    fake_peer_publish(fake, 0, 1, 5);
    ASSERT_STR(fake_calls(fake),
               "wait:0:0.5>=1 run:0:fill run:0:fill run:0:fill signal:0:3");
    fake_fill_after(fake, 4, 4, 3, 0);
    ASSERT_STR(die(fake), "4+1");
    fake_destroy(fake);
}

TEST(one_whose_begin_was_not_told_has_not_begun_nor_what_lies_behind_it)
{
    struct fake *fake = fake_create();

    fake_filled(fake, 1);
    fake_peer_publish(fake, 0, 1, 5);
    update_after(fake, 2, FAKE_BASE + 0, 1, 1); /* waits for another device */
    ASSERT_STR(die(fake), "2+1");

    fake_destroy(fake);
    fake = fake_create();
    fake_filled(fake, 1);
    fake_peer_publish(fake, 0, 1, 5);
    update_after(fake, 2, FAKE_BASE + 0, 1, 1);
    begins(fake, 0, 2);
    update(fake, 3); /* behind the word of 2 */
    ASSERT_STR(die(fake), "3+1");
    fake_destroy(fake);
}

/* 3 is in stream 0, behind 1 there and behind 2 in stream 1. */
static struct fake *joined(void)
{
    struct fake *fake = fake_create();

    fake_fill(fake, 1, 1, 4);
    fake_fill(fake, 2, 2, 4);
    update_after(fake, 3, FAKE_BASE + FAKE_US, 1, 2);
    ASSERT_STR(fake_calls(fake), "run:0:fill signal:0:1 run:1:fill signal:1:2 "
                                 "join:0:1 run:0:spin signal:0:3");
    return fake;
}

TEST(what_joined_a_stream_has_not_begun_before_the_word_of_that_one)
{
    struct fake *fake = joined();

    update(fake, 4); /* nor what lies behind it */
    fake_finish(fake, 0, 1);
    ASSERT_STR(die(fake), "3+2");
    fake_destroy(fake);

    fake = joined();
    fake_finish(fake, 1, 2);
    fake_finish(fake, 0, 1);
    ASSERT_STR(die(fake), "");
    fake_destroy(fake);
}

TEST(the_last_word_that_is_not_there_holds)
{
    struct fake *fake = fake_create();
    struct fake_launch launch;

    for (uint64_t seq = 1; seq <= 3; seq++) { /* a stream each */
        fake_fill(fake, seq, (uint32_t)seq, 4);
    }
    fake_launch_init(&launch, 4, RUN);
    fake_launch_function(&launch, "spin");
    fake_launch_scalar(&launch, 0);
    fake_launch_operand(&launch, KERNEL_INOUT, 1, 4)->consume = 1;
    for (uint64_t seq = 1; seq <= 3; seq++) {
        fake_launch_after(&launch, FAKE_BASE + FAKE_US, seq);
    }
    ASSERT_OK(fake_send(fake, &launch));
    fake_finish(fake, 0, 1);
    fake_finish(fake, 1, 2);
    ASSERT_STR(die(fake), "4+1"); /* 3 is not done */
    fake_destroy(fake);
}

TEST(a_launch_that_comes_again_is_held_by_nothing_of_old)
{
    struct fake *fake = joined();

    fake_finish(fake, 0, 1);
    ASSERT_STR(die(fake), "3+1");
    fake_fill(fake, 2, 2, 4);
    fake_finish(fake, 1, 2);
    update_after(fake, 3, FAKE_BASE + FAKE_US, 1, 2);
    ASSERT_STR(die(fake), ""); /* it may have begun */
    fake_destroy(fake);
}

TEST(who_is_too_far_back_holds_nobody)
{
    struct fake *fake               = fake_create();
    struct store_timeline *timeline = fake->timelines[FAKE_US];

    timeline->enqueued = STORE_RING;
    store_timeline_publish(timeline, STORE_RING + 1, 3);
    store_timeline_hold(timeline, STORE_RING + 2, STORE_RING + 1);
    ASSERT_TRUE(store_timeline_held(timeline, STORE_RING + 2));
    store_timeline_hold(timeline, STORE_RING + 2, 2);
    ASSERT_TRUE(!store_timeline_held(timeline, STORE_RING + 2));
    store_timeline_hold(timeline, STORE_RING + 2, 0);
    ASSERT_TRUE(!store_timeline_held(timeline, STORE_RING + 2));
    fake_destroy(fake);
}

TEST(what_began_once_has_begun_for_all_that_come)
{
    struct fake *fake = cheap();

    fake_filled(fake, 1);
    update(fake, 2);
    update(fake, 3);
    begins(fake, 0, 2);
    ASSERT_STR(die(fake), "3+1");
    ASSERT_EQ(fake->timelines[FAKE_US]->begun[0].value, 0);
    ASSERT_STR(die(fake), "3+1"); /* before it got anything again */
    update(fake, 2);
    ASSERT_STR(die(fake), "3+1"); /* in which 2 had not begun anew */
    update(fake, 2);
    fake_finish(fake, 0, 2);
    update(fake, 3);
    begins(fake, 0, 3);
    ASSERT_STR(die(fake), "");
    fake_destroy(fake);
}

TEST(what_failed_before_it_had_work_has_not_begun)
{
    struct fake *fake = cheap();

    fake_fill(fake, 1, 1, 4);
    fake->refuse = "run";
    update(fake,
           2); /* the device refuses the kernel: its begin is on the device all the same */
    ASSERT_STR(die(fake), "2+1");
    fake_destroy(fake);
}

TEST(a_number_that_comes_round_again_knows_nothing_of_the_old_one)
{
    struct fake *fake               = fake_create();
    struct store_timeline *timeline = fake->timelines[FAKE_US];

    store_timeline_publish(timeline, 1, 0);
    store_timeline_know(timeline, 1, STORE_KNOWN_ENQUEUED | STORE_KNOWN_BEGUN);
    timeline->enqueued = STORE_RING;
    store_timeline_publish(timeline, STORE_RING + 1, 0);
    ASSERT_EQ(store_timeline_known(timeline, STORE_RING + 1), 0);
    store_timeline_know(timeline, STORE_RING + 1, STORE_KNOWN_ENQUEUED | STORE_KNOWN_TELLS);
    store_timeline_unknow(timeline, STORE_RING + 1, STORE_KNOWN_TELLS);
    ASSERT_EQ(store_timeline_known(timeline, STORE_RING + 1), STORE_KNOWN_TELLS);
    fake_destroy(fake);
}

TEST_MAIN()
