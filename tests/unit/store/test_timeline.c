/* Timelines: what a point says at each moment of a launch's life, and after a restart. */
#include "store/timeline.h"

#include <string.h>

#include "base/alloc.h"
#include "tests/harness/test.h"

static struct store_timeline *timeline_create(void)
{
    struct store_timeline *timeline = PL_NEW(struct store_timeline);

    ASSERT_NOT_NULL(timeline);
    store_timeline_init(timeline, 3);
    return timeline;
}

TEST(a_launch_is_unknown_then_enqueued_then_done)
{
    struct store_timeline *timeline = timeline_create();
    uint64_t *word                  = NULL;
    uint64_t value                  = 0;

    ASSERT_EQ(timeline->magic, STORE_TIMELINE_MAGIC);
    ASSERT_EQ(timeline->host_device, 3);
    ASSERT_EQ(store_timeline_point(timeline, 1, &word, &value), STORE_POINT_UNKNOWN);

    store_timeline_publish(timeline, 1, 5);
    ASSERT_EQ(timeline->enqueued, 1);
    ASSERT_EQ(store_timeline_point(timeline, 1, &word, &value), STORE_POINT_ENQUEUED);
    ASSERT_TRUE(word == &timeline->stream[5].value);
    ASSERT_EQ(value, 1);
    ASSERT_EQ(store_timeline_point(timeline, 2, NULL, NULL), STORE_POINT_UNKNOWN);

    timeline->stream[4].value = 9; /* another stream says nothing about it */
    ASSERT_TRUE(!store_timeline_done(timeline, 1));
    timeline->stream[5].value = 1;
    ASSERT_TRUE(store_timeline_done(timeline, 1));
    pl_free(timeline);
}

TEST(a_later_value_covers_earlier_launches_of_its_stream_only)
{
    struct store_timeline *timeline = timeline_create();

    store_timeline_publish(timeline, 1, 0);
    store_timeline_publish(timeline, 2, 1);
    store_timeline_publish(timeline, 3, 0);
    timeline->stream[0].value = 3;
    ASSERT_TRUE(store_timeline_done(timeline, 1));
    ASSERT_TRUE(!store_timeline_done(timeline, 2));
    ASSERT_TRUE(store_timeline_done(timeline, 3));
    pl_free(timeline);
}

TEST(a_slot_that_names_a_later_launch_means_done)
{
    struct store_timeline *timeline = timeline_create();

    for (uint64_t seq = 1; seq <= STORE_RING + 7; seq++) {
        store_timeline_publish(timeline, seq, (uint32_t)(seq % 3));
    }
    ASSERT_TRUE(store_timeline_done(timeline, 7));
    ASSERT_TRUE(!store_timeline_done(timeline, 8));
    ASSERT_EQ(store_timeline_point(timeline, STORE_RING + 8, NULL, NULL),
              STORE_POINT_UNKNOWN);
    pl_free(timeline);
}

TEST(publishing_again_after_a_restart_takes_nothing_back)
{
    struct store_timeline *timeline = timeline_create();

    for (uint64_t seq = 1; seq <= 10; seq++) {
        store_timeline_publish(timeline, seq, 2);
    }
    timeline->stream[2].value = 4;
    store_timeline_publish(timeline, 5, 2);
    ASSERT_EQ(timeline->enqueued, 10);
    ASSERT_TRUE(store_timeline_done(timeline, 4));
    ASSERT_EQ(store_timeline_point(timeline, 5, NULL, NULL), STORE_POINT_ENQUEUED);
    ASSERT_EQ(store_timeline_point(timeline, 10, NULL, NULL), STORE_POINT_ENQUEUED);
    pl_free(timeline);
}

TEST(a_stream_number_out_of_range_stays_inside_the_timeline)
{
    struct store_timeline *timeline = timeline_create();
    uint64_t *word                  = NULL;

    timeline->ring[1] = 1u << 8 | 0xffu; /* a worker that went mad */
    ASSERT_EQ(store_timeline_point(timeline, 1, &word, NULL), STORE_POINT_ENQUEUED);
    ASSERT_TRUE(word >= &timeline->stream[0].value &&
                word <= &timeline->stream[STORE_STREAM_MAX - 1].value);
    pl_free(timeline);
}

TEST(nobody_waits_for_a_device_that_was_released)
{
    struct store_timeline *timeline = timeline_create();

    store_timeline_publish(timeline, 1, 2);
    ASSERT_EQ(store_timeline_point(timeline, 1, NULL, NULL), STORE_POINT_ENQUEUED);
    ASSERT_EQ(store_timeline_point(timeline, 2, NULL, NULL), STORE_POINT_UNKNOWN);
    ASSERT_TRUE(!store_timeline_is_released(timeline));
    store_timeline_release(timeline);
    ASSERT_TRUE(store_timeline_is_released(timeline));
    for (uint64_t seq = 1; seq < 3 * (uint64_t)STORE_RING; seq += 97) {
        ASSERT_TRUE(store_timeline_done(timeline, seq));
    }
    for (uint32_t i = 0; i < STORE_STREAM_MAX; i++) { /* as a GPU compares */
        ASSERT_TRUE((int64_t)(timeline->stream[i].value - (UINT64_C(1) << 40)) >= 0);
    }
    pl_free(timeline);
}

TEST(what_is_shown_before_a_launch_is_said_of_that_one_alone)
{
    struct store_timeline *timeline       = timeline_create();
    const uint64_t said[STORE_STREAM_MAX] = {[2] = 90000, [5] = 99999, [7] = 1};
    const uint64_t none[STORE_STREAM_MAX] = {0};
    uint64_t words[STORE_STREAM_MAX]      = {[5] = 5, [9] = 9};
    uint64_t unknown[STORE_STREAM_MAX]    = {0};

    store_timeline_say_before(timeline, 100000, said);
    store_timeline_before(timeline, 100000, words);
    ASSERT_EQ(words[2], 90000);
    ASSERT_EQ(words[5], 99999);
    ASSERT_EQ(words[7], 0); /* too far back */
    ASSERT_EQ(words[9], 9); /* more was known */

    store_timeline_before(timeline, 100000 + STORE_BEFORE, unknown); /* not said yet */
    store_timeline_before(timeline, 100000 - STORE_BEFORE, unknown); /* long ago */
    store_timeline_before(timeline, 100001, unknown);
    store_timeline_say_before(timeline, 100000 + STORE_BEFORE, none);
    store_timeline_before(timeline, 100000, unknown);
    store_timeline_before(timeline, 100000 + STORE_BEFORE, unknown);
    ASSERT_EQ(memcmp(unknown, none, sizeof(none)), 0);
    pl_free(timeline);
}

TEST_MAIN()
