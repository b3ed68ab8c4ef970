/*
 * What a wait or a join stands for: nothing is waited for twice, and nothing less than a written
 * word counts.
 */
#include "base/fault.h"
#include "tests/unit/worker/fake.h"

#define KIND(name) PLASMON__V1__LAUNCH_KIND__LAUNCH_##name
#define US         (FAKE_BASE + FAKE_US)

enum { LARGE = FAKE_MARK_BYTES / 4 };

static void fill_init(struct fake_launch *launch, uint64_t seq)
{
    fake_launch_init(launch, seq, KIND(RUN));
    fake_launch_function(launch, "fill");
    fake_launch_scalar(launch, 1.0);
    fake_launch_fresh(launch, (uint32_t)seq, 4);
}

/* Launch `seq` in a batch of its own: after one of ours (0: none) and after one of device 0 (0: none). */
static void fill(struct fake *fake, uint64_t seq, int32_t priority, uint64_t ours,
                 uint64_t theirs)
{
    struct fake_launch launch;

    fill_init(&launch, seq);
    launch.message.priority = priority;
    if (ours != 0) {
        fake_launch_after(&launch, US, ours);
    }
    if (theirs != 0) {
        fake_launch_after(&launch, FAKE_BASE, theirs);
    }
    ASSERT_OK(fake_send(fake, &launch));
}

TEST(a_stream_waits_once_for_a_word)
{
    struct fake *fake = fake_create();

    fake_peer_publish(fake, 0, 1, 4);
    fake_peer_publish(fake, 0, 2, 4);
    fake_peer_publish(fake, 0, 3, 4);
    fill(fake, 1, 0, 0, 2);
    ASSERT_STR(fake_calls(fake), "wait:0:0.4>=2 run:0:fill signal:0:1");
    fill(fake, 2, 0, 1, 1); /* an earlier value */
    ASSERT_STR(fake_calls(fake), "run:0:fill signal:0:2");
    fill(fake, 3, 0, 2, 3); /* a later one */
    ASSERT_STR(fake_calls(fake), "wait:0:0.4>=3 run:0:fill signal:0:3");
    fake_destroy(fake);
}

TEST(a_stream_that_joins_one_that_waited_does_not_wait)
{
    struct fake *fake = fake_create();

    fake_peer_publish(fake, 0, 1, 4);
    fill(fake, 1, 0, 0, 1);
    fill(fake, 2, 0, 1, 0); /* follows it */
    (void)fake_calls(fake);
    fill(fake, 3, 0, 1, 1);
    ASSERT_STR(fake_calls(fake), "join:1:0 run:1:fill signal:1:3");
    fill(fake, 4, 1, 0, 1); /* behind nothing that has waited */
    ASSERT_STR(fake_calls(fake), "wait:8:0.4>=1 run:8:fill signal:8:4");
    fake_destroy(fake);
}

/* Others that are in that stream by then may have waited for what the launch at the mark did not. */
TEST(a_stream_that_waits_for_a_mark_waits)
{
    struct fake *fake     = fake_create_marking();
    struct pl_shape frame = {.dtype = PL_F32, .ndim = 1, .dim = {LARGE}};
    struct fake_launch launch;

    fake_peer_publish(fake, 0, 1, 4);
    store_table_alloc(fake->tables[2], 1, 1, 0, &frame, 0, 1);
    store_table_seal(fake->tables[2], 1);
    fake_launch_init(&launch, 1, KIND(COPY));
    fake_launch_fresh(&launch, 1, LARGE);
    fake_launch_piece(&launch, FAKE_BASE + 2, 1, LARGE);
    fake_launch_after(&launch, FAKE_BASE, 1);
    ASSERT_OK(fake_send(fake, &launch));
    (void)fake_calls(fake);
    fill(fake, 2, 0, 1, 1);
    ASSERT_CONTAINS(fake_calls(fake), "join_mark:0:2.0 wait:0:0.4>=1 run:0:fill");
    fake_destroy(fake);
}

/* Of device 0: launch 1 in stream 4, launch 2 in stream 6; ours is after both. */
static const char *after_both(struct fake *fake, uint64_t shown)
{
    const uint64_t words[STORE_STREAM_MAX] = {[4] = shown};
    struct fake_launch launch;

    fake_peer_publish(fake, 0, 1, 4);
    fake_peer_publish(fake, 0, 2, 6);
    store_timeline_say_before(fake->timelines[0], 2, words);
    fill_init(&launch, 1);
    fake_launch_after(&launch, FAKE_BASE, 1);
    fake_launch_after(&launch, FAKE_BASE, 2);
    ASSERT_OK(fake_send(fake, &launch));
    return fake_calls(fake);
}

TEST(what_is_shown_before_one_that_is_waited_for_is_not_waited_for)
{
    struct fake *fake = fake_create();

    ASSERT_STR(after_both(fake, 1), "wait:0:0.6>=2 run:0:fill signal:0:1");
    fill(fake, 2, 0, 1, 1); /* nor later */
    ASSERT_STR(fake_calls(fake), "run:0:fill signal:0:2");
    fake_destroy(fake);
}

TEST(what_is_not_shown_before_it_is_waited_for)
{
    struct fake *fake = fake_create();

    ASSERT_STR(after_both(fake, 0), "wait:0:0.4>=1 wait:0:0.6>=2 run:0:fill signal:0:1");
    fake_destroy(fake);
}

static void expect_before(struct fake *fake, uint64_t seq, uint32_t stream, uint64_t shown)
{
    uint64_t words[STORE_STREAM_MAX] = {0};

    store_timeline_before(fake->timelines[FAKE_US], seq, words);
    for (uint32_t i = 0; i < STORE_STREAM_MAX; i++) {
        ASSERT_EQ(words[i], i == stream ? shown : 0);
    }
}

TEST(a_launch_says_which_words_are_written_before_it_begins)
{
    struct fake *fake = fake_create();

    fill(fake, 1, 0, 0, 0); /* stream 0, and its word */
    expect_before(fake, 1, 0, 0);
    fill(fake, 2, 1, 1, 0); /* stream 8 joins 0 */
    expect_before(fake, 2, 0, 1);
    fill(fake, 3, 1, 2, 0); /* and what follows there */
    expect_before(fake, 3, 0, 1);
    fake_destroy(fake);
}

/* Launch 2 joins the stream of launch 1, whose word is written at the end of the batch, behind that. */
static void join_before_the_word(struct fake *fake)
{
    Plasmon__V1__WorkerCommand command = PLASMON__V1__WORKER_COMMAND__INIT;
    struct fake_launch launch[2];
    Plasmon__V1__Launch *launches[2] = {&launch[0].message, &launch[1].message};

    for (uint32_t i = 0; i < 2; i++) {
        fill_init(&launch[i], i + 1);
    }
    launch[1].message.priority = 1;
    fake_launch_after(&launch[1], US, 1);
    command.launches   = launches;
    command.n_launches = 2;
    ASSERT_OK(worker_core_command(fake->core, &command, NULL));
    worker_core_advance(fake->core);
    ASSERT_STR(fake_calls(fake), "run:0:fill join:8:0 run:8:fill signal:0:1 signal:8:2");
}

TEST(work_that_is_done_before_it_is_not_shown_before_it)
{
    struct fake *fake = fake_create();

    join_before_the_word(fake);
    expect_before(fake, 2, 0, 0);
    fake_destroy(fake);
}

TEST(work_that_counts_as_shown_is_a_bug_that_shows)
{
    struct fake *fake = fake_create();

    pl_bug_arm("worker.before_work");
    join_before_the_word(fake);
    pl_bug_arm(NULL);
    expect_before(fake, 2, 0, 1);
    fake_destroy(fake);
}

TEST_MAIN()
