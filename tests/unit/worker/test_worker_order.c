/* Order: which stream, what a launch waits for, when words are written, what is reported. */
#include "base/fault.h"
#include "tests/unit/worker/fake.h"

#define RUN PLASMON__V1__LAUNCH_KIND__LAUNCH_RUN

TEST(chain_stays_in_its_stream_and_needs_no_join)
{
    struct fake *fake = fake_create();

    fake_fill(fake, 1, 1, 4);
    fake_fill_after(fake, 2, 2, 1, 0);
    fake_fill_after(fake, 3, 3, 2, 0);
    ASSERT_STR(fake_calls(fake),
               "run:0:fill signal:0:1 run:0:fill signal:0:2 run:0:fill signal:0:3");
    fake_destroy(fake);
}

TEST(second_child_takes_another_stream_and_joins)
{
    struct fake *fake = fake_create();

    fake_fill(fake, 1, 1, 4);
    fake_fill_after(fake, 2, 2, 1, 0);
    fake_fill_after(fake, 3, 3, 1, 0);
    ASSERT_STR(
        fake_calls(fake),
        "run:0:fill signal:0:1 run:0:fill signal:0:2 join:1:0 run:1:fill signal:1:3");
    fake_destroy(fake);
}

TEST(independent_launches_spread_over_the_streams)
{
    struct fake *fake = fake_create();

    fake_fill(fake, 1, 1, 4);
    fake_fill(fake, 2, 2, 4);
    fake_fill(fake, 3, 3, 4);
    ASSERT_STR(fake_calls(fake),
               "run:0:fill signal:0:1 run:1:fill signal:1:2 run:0:fill signal:0:3");
    fake_destroy(fake);
}

TEST(join_is_left_out_when_the_other_launch_is_done)
{
    struct fake *fake = fake_create();

    fake_fill(fake, 1, 1, 4);
    fake_fill(fake, 2, 2, 4);
    fake_finish(fake, 1, 2);
    (void)fake_calls(fake);
    fake_fill_after(fake, 3, 3, 1, 2);
    ASSERT_STR(fake_calls(fake), "run:0:fill signal:0:3");
    fake_destroy(fake);
}

TEST(one_join_covers_everything_before_it)
{
    struct fake *fake = fake_create();

    fake_fill(fake, 1, 1, 4);          /* stream 0 */
    fake_fill(fake, 2, 2, 4);          /* stream 1 */
    fake_fill_after(fake, 3, 3, 1, 2); /* stream 0, joins 1 */
    (void)fake_calls(fake);
    fake_fill_after(fake, 4, 4, 3, 2); /* stream 0 again */
    ASSERT_STR(fake_calls(fake), "run:0:fill signal:0:4");
    fake_destroy(fake);
}

static void fill_init(struct fake_launch *launch, uint64_t seq, int32_t priority)
{
    fake_launch_init(launch, seq, RUN);
    fake_launch_function(launch, "fill");
    fake_launch_scalar(launch, 1.0);
    fake_launch_fresh(launch, (uint32_t)seq, 4);
    launch->message.priority = priority;
}

static void fill_of(struct fake *fake, uint64_t seq, int32_t priority, uint64_t after)
{
    struct fake_launch launch;

    fill_init(&launch, seq, priority);
    if (after != 0) {
        fake_launch_after(&launch, FAKE_BASE + FAKE_US, after);
    }
    ASSERT_OK(fake_send(fake, &launch));
}

TEST(a_join_stands_for_what_the_other_stream_has_joined)
{
    struct fake *fake = fake_create();
    struct fake_launch launch;

    fill_of(fake, 1, 0, 0); /* stream 0 */
    fill_of(fake, 2, 1, 1); /* stream 8 joins 0 */
    fill_of(fake, 3, 0, 2); /* stream 1 joins 8 */
    ASSERT_STR(fake_calls(fake), "run:0:fill signal:0:1 join:8:0 run:8:fill signal:8:2 "
                                 "join:1:8 run:1:fill signal:1:3");
    fill_init(&launch, 4, 0); /* stream 1, behind 1 already */
    fake_launch_after(&launch, FAKE_BASE + FAKE_US, 3);
    fake_launch_after(&launch, FAKE_BASE + FAKE_US, 1);
    ASSERT_OK(fake_send(fake, &launch));
    ASSERT_STR(fake_calls(fake), "run:1:fill signal:1:4");
    fake_destroy(fake);
}

TEST(of_several_launches_the_latest_is_joined_first)
{
    struct fake *fake = fake_create();
    struct fake_launch launch;

    fill_of(fake, 1, 0, 0); /* stream 0 */
    fill_of(fake, 2, 1, 1); /* stream 8 joins 0 */
    (void)fake_calls(fake);
    fill_init(&launch, 3, -1); /* stream 9 */
    fake_launch_after(&launch, FAKE_BASE + FAKE_US, 1);
    fake_launch_after(&launch, FAKE_BASE + FAKE_US, 2);
    ASSERT_OK(fake_send(fake, &launch));
    ASSERT_STR(fake_calls(fake), "join:9:8 run:9:fill signal:9:3");
    fake_destroy(fake);
}

TEST(skipped_join_is_a_bug_that_shows)
{
    struct fake *fake = fake_create();

    pl_bug_arm("worker.skip_join");
    fake_fill(fake, 1, 1, 4);
    fake_fill_after(fake, 2, 2, 1, 0);
    fake_fill_after(fake, 3, 3, 1, 0);
    pl_bug_arm(NULL);
    ASSERT_STR(fake_calls(fake),
               "run:0:fill signal:0:1 run:0:fill signal:0:2 run:1:fill signal:1:3");
    fake_destroy(fake);
}

static void send_after_peer(struct fake *fake, uint64_t seq, uint32_t slot,
                            uint64_t peer_seq)
{
    struct fake_launch launch;

    fake_launch_init(&launch, seq, RUN);
    fake_launch_function(&launch, "fill");
    fake_launch_scalar(&launch, 1.0);
    fake_launch_fresh(&launch, slot, 4);
    fake_launch_after(&launch, FAKE_BASE + 0, peer_seq);
    ASSERT_OK(fake_send(fake, &launch));
}

TEST(front_waits_until_the_other_device_published)
{
    struct fake *fake = fake_create();

    send_after_peer(fake, 1, 1, 1);
    fake_fill(fake, 2, 2, 4); /* nothing overtakes the front */
    ASSERT_STR(fake_calls(fake), "");
    fake_peer_publish(fake, 0, 1, 5);
    ASSERT_STR(fake_calls(fake),
               "wait:0:0.5>=1 run:0:fill run:1:fill signal:0:1 signal:1:2");
    fake_destroy(fake);
}

TEST(done_launch_of_another_device_needs_no_wait)
{
    struct fake *fake = fake_create();

    fake_peer_publish(fake, 0, 1, 0);
    fake->timelines[0]->stream[0].value = 1;
    send_after_peer(fake, 1, 1, 1);
    ASSERT_STR(fake_calls(fake), "run:0:fill signal:0:1");
    fake_destroy(fake);
}

TEST(one_wait_a_word_for_the_highest_value)
{
    struct fake *fake = fake_create();
    struct fake_launch launch;

    fake_peer_publish(fake, 0, 1, 0);
    fake_peer_publish(fake, 0, 2, 0);
    fake_peer_publish(fake, 0, 3, 1);
    fake_launch_init(&launch, 1, RUN);
    fake_launch_function(&launch, "noop");
    fake_launch_after(&launch, FAKE_BASE, 1);
    fake_launch_after(&launch, FAKE_BASE, 3);
    fake_launch_after(&launch, FAKE_BASE, 2);
    ASSERT_OK(fake_send(fake, &launch));
    ASSERT_STR(fake_calls(fake), "wait:0:0.0>=2 wait:0:0.1>=3 signal:0:1");
    fake_destroy(fake);
}

TEST(skipped_wait_is_a_bug_that_shows)
{
    struct fake *fake = fake_create();

    fake_peer_publish(fake, 0, 1, 0);
    pl_bug_arm("worker.skip_wait");
    send_after_peer(fake, 1, 1, 1);
    pl_bug_arm(NULL);
    ASSERT_STR(fake_calls(fake), "run:0:fill signal:0:1");
    fake_destroy(fake);
}

/* What SIGUSR1 prints: from worker to worker it leads to whoever holds up the others. */
TEST(who_waits_for_what_is_said_in_words)
{
    struct fake *fake = fake_create();
    struct fake_launch launch;
    struct pl_str text;

    pl_str_init(&text);
    worker_core_describe(fake->core, &text);
    ASSERT_STR(pl_str_text(&text), "nothing is queued");
    pl_str_finish(&text);

    fake_fill(fake, 1, 1, 4);
    fake_launch_init(&launch, 2, RUN);
    fake_launch_function(&launch, "fill");
    fake_launch_scalar(&launch, 1.0);
    fake_launch_fresh(&launch, 2, 4);
    fake_launch_after(&launch, FAKE_BASE, 7);
    ASSERT_OK(fake_send(fake, &launch));
    pl_str_init(&text);
    worker_core_describe(fake->core, &text);
    ASSERT_CONTAINS(pl_str_text(&text), "1 queued, the first, launch 2 (fill");
    ASSERT_CONTAINS(pl_str_text(&text),
                    "waits for a launch of another device to be published, after launch 7 "
                    "of host device 0 (not enqueued)");
    ASSERT_CONTAINS(pl_str_text(&text),
                    "\nstream 0: word 0, last 1, signalled 1, launch 1 (fill");
    pl_str_finish(&text);
    fake_destroy(fake);
}

/*
 * Launch 1 of ours may be what the other device waits for before its launch 1 ends: it must not
 * hide behind our wait.
 */
/* Of a worker that follows a dead one. It has no memory yet, and holds up nothing that is enqueued. */
TEST(what_copies_to_host_memory_waits_until_that_is_page_locked)
{
    struct fake *fake = fake_create();
    struct fake_launch launch;
    struct pl_str text;

    fake_fill(fake, 1, 1, 8);
    (void)fake_calls(fake);
    fake->host_locking = true;
    fake_launch_init(&launch, 2, PLASMON__V1__LAUNCH_KIND__LAUNCH_GET_HOST);
    launch.message.host_buffer = 7;
    fake_launch_operand(&launch, KERNEL_IN, 1, 8);
    ASSERT_OK(fake_send(fake, &launch));
    fake_fill(fake, 3, 2, 8);
    fake_finish(fake, 0, 1);
    worker_core_advance(fake->core);
    ASSERT_TRUE(strstr(fake_calls(fake), "get_host") == NULL);
    pl_str_init(&text);
    worker_core_describe(fake->core, &text);
    ASSERT_CONTAINS(pl_str_text(&text), "for host memory to be page-locked");
    pl_str_finish(&text);

    fake->host_locking = false;
    worker_core_advance(fake->core);
    ASSERT_CONTAINS(fake_calls(fake), "get_host");
    fake_destroy(fake);
}

TEST(word_is_written_before_a_wait_for_another_device)
{
    struct fake *fake                  = fake_create();
    Plasmon__V1__WorkerCommand command = PLASMON__V1__WORKER_COMMAND__INIT;
    struct fake_launch one, two, three;
    Plasmon__V1__Launch *launches[3] = {&one.message, &two.message, &three.message};

    fake_peer_publish(fake, 0, 1, 0);
    fake_launch_init(&one, 1, RUN);
    fake_launch_function(&one, "fill");
    fake_launch_scalar(&one, 1.0);
    fake_launch_fresh(&one, 1, 4);
    fake_launch_init(&two, 2, RUN); /* follows 1 into stream 0, and waits */
    fake_launch_function(&two, "fill");
    fake_launch_scalar(&two, 1.0);
    fake_launch_fresh(&two, 2, 4);
    fake_launch_after(&two, FAKE_BASE + FAKE_US, 1);
    fake_launch_after(&two, FAKE_BASE, 1);
    fake_launch_init(&three, 3, RUN); /* joins the stream that waits, behind nothing */
    fake_launch_function(&three, "fill");
    fake_launch_scalar(&three, 1.0);
    fake_launch_fresh(&three, 3, 4);
    fake_launch_after(&three, FAKE_BASE + FAKE_US, 1);
    command.launches   = launches;
    command.n_launches = 3;

    ASSERT_OK(worker_core_command(fake->core, &command, NULL));
    worker_core_advance(fake->core);
    ASSERT_STR(fake_calls(fake), "run:0:fill signal:0:1 wait:0:0.0>=1 run:0:fill "
                                 "signal:0:2 join:1:0 run:1:fill signal:1:3");
    fake_destroy(fake);
}

/*
 * Who comes behind it in another stream finds nothing of what it was to make, and may be done when
 * the worker dies: then it must be known that the one before it failed, or that would run again, and
 * be right.
 */
TEST(word_of_a_launch_that_failed_is_written_before_who_joins_its_stream)
{
    struct fake *fake                  = fake_create();
    Plasmon__V1__WorkerCommand command = PLASMON__V1__WORKER_COMMAND__INIT;
    struct fake_launch launch[4];
    Plasmon__V1__Launch *launches[4];
    uint64_t cancelled = 2;

    for (uint32_t i = 0; i < 4; i++) {
        fake_launch_init(&launch[i], i + 1, RUN);
        fake_launch_function(&launch[i], "fill");
        fake_launch_scalar(&launch[i], 1.0);
        fake_launch_fresh(&launch[i], i + 1, 4);
        if (i > 0) { /* 3 follows 2 into stream 0, 4 joins that */
            fake_launch_after(&launch[i], FAKE_BASE + FAKE_US, i < 2 ? i : 2);
        }
        launches[i] = &launch[i].message;
    }
    command.launches   = launches;
    command.n_launches = 4;
    command.cancel     = &cancelled;
    command.n_cancel   = 1;
    ASSERT_OK(worker_core_command(fake->core, &command, NULL));
    worker_core_advance(fake->core);
    ASSERT_STR(fake_calls(fake), "run:0:fill signal:0:2 run:0:fill join:1:0 run:1:fill "
                                 "signal:0:3 signal:1:4");
    fake_destroy(fake);
}

TEST(word_is_written_before_a_join_with_a_stream_that_waits)
{
    struct fake *fake                  = fake_create();
    Plasmon__V1__WorkerCommand command = PLASMON__V1__WORKER_COMMAND__INIT;
    struct fake_launch launch[3];
    Plasmon__V1__Launch *launches[3] = {&launch[0].message, &launch[1].message,
                                        &launch[2].message};

    fake_peer_publish(fake, 0, 1, 0);
    for (uint32_t i = 0; i < 3; i++) {
        fake_launch_init(&launch[i], i + 1, RUN);
        fake_launch_function(&launch[i], "fill");
        fake_launch_scalar(&launch[i], 1.0);
        fake_launch_fresh(&launch[i], i + 1, 4);
    }
    fake_launch_after(&launch[1], FAKE_BASE, 1); /* 1 in stream 0; 2 in stream 1, waits */
    fake_launch_after(&launch[2], FAKE_BASE + FAKE_US,
                      1); /* 3 follows 1 and joins stream 1 */
    fake_launch_after(&launch[2], FAKE_BASE + FAKE_US, 2);
    command.launches   = launches;
    command.n_launches = 3;

    ASSERT_OK(worker_core_command(fake->core, &command, NULL));
    worker_core_advance(fake->core);
    ASSERT_STR(fake_calls(fake), "run:0:fill signal:0:1 wait:1:0.0>=1 run:1:fill "
                                 "signal:1:2 join:0:1 run:0:fill signal:0:3");
    fake_destroy(fake);
}

/*
 * Streams may share a hardware queue: what goes into that behind our wait is not there for others
 * before the wait is over.
 */
TEST(words_of_all_streams_are_written_before_a_wait)
{
    struct fake *fake                  = fake_create();
    Plasmon__V1__WorkerCommand command = PLASMON__V1__WORKER_COMMAND__INIT;
    struct fake_launch launch[3];
    Plasmon__V1__Launch *launches[3] = {&launch[0].message, &launch[1].message,
                                        &launch[2].message};

    fake_peer_publish(fake, 0, 1, 0);
    for (uint32_t i = 0; i < 3; i++) {
        fake_launch_init(&launch[i], i + 1, RUN);
        fake_launch_function(&launch[i], "fill");
        fake_launch_scalar(&launch[i], 1.0);
        fake_launch_fresh(&launch[i], i + 1, 4);
        launch[i].message.priority = i == 1; /* in a stream of its own */
    }
    fake_launch_after(&launch[2], FAKE_BASE, 1);
    command.launches   = launches;
    command.n_launches = 3;

    ASSERT_OK(worker_core_command(fake->core, &command, NULL));
    worker_core_advance(fake->core);
    ASSERT_STR(fake_calls(fake), "run:0:fill run:8:fill signal:0:1 signal:8:2 "
                                 "wait:1:0.0>=1 run:1:fill signal:1:3");
    fake_destroy(fake);
}

/* Who waits for what is short does not wait for what is long behind it. */
TEST(word_is_written_before_work_that_takes_long)
{
    static const int64_t long_count    = FAKE_SIGNAL_BYTES / sizeof(float) / 2;
    struct fake *fake                  = fake_create();
    Plasmon__V1__WorkerCommand command = PLASMON__V1__WORKER_COMMAND__INIT;
    struct fake_launch launch[3];
    Plasmon__V1__Launch *launches[3] = {&launch[0].message, &launch[1].message,
                                        &launch[2].message};

    for (uint32_t i = 0; i < 3; i++) {
        fake_launch_init(&launch[i], i + 1, RUN);
        fake_launch_function(&launch[i], "fill");
        fake_launch_scalar(&launch[i], 1.0);
        fake_launch_fresh(&launch[i], i + 1, i == 1 ? long_count : 4);
        if (i > 0) {
            fake_launch_after(&launch[i], FAKE_BASE + FAKE_US, i);
        }
    }
    command.launches   = launches;
    command.n_launches = 3;

    ASSERT_OK(worker_core_command(fake->core, &command, NULL));
    worker_core_advance(fake->core);
    ASSERT_STR(fake_calls(fake), "run:0:fill signal:0:1 run:0:fill run:0:fill signal:0:3");
    fake_destroy(fake);
}

TEST(signal_before_the_kernel_is_a_bug_that_shows)
{
    struct fake *fake = fake_create();

    pl_bug_arm("worker.signal_before_kernel");
    fake_fill(fake, 1, 1, 4);
    pl_bug_arm(NULL);
    ASSERT_STR(fake_calls(fake), "signal:0:1 run:0:fill signal:0:1");
    fake_destroy(fake);
}

TEST(long_batch_signals_in_between)
{
    struct fake *fake                  = fake_create();
    Plasmon__V1__WorkerCommand command = PLASMON__V1__WORKER_COMMAND__INIT;
    static struct fake_launch launch[70];
    Plasmon__V1__Launch *launches[70];
    const char *calls;
    unsigned signals = 0;

    for (uint32_t i = 0; i < 70; i++) {
        fake_launch_init(&launch[i], i + 1, RUN);
        fake_launch_function(&launch[i], "fill");
        fake_launch_scalar(&launch[i], 1.0);
        fake_launch_fresh(&launch[i], i + 1, 4);
        if (i > 0) {
            fake_launch_after(&launch[i], FAKE_BASE + FAKE_US, i);
        }
        launches[i] = &launch[i].message;
    }
    command.launches   = launches;
    command.n_launches = 70;
    ASSERT_OK(worker_core_command(fake->core, &command, NULL));
    worker_core_advance(fake->core);
    for (calls = fake_calls(fake); (calls = strstr(calls, "signal:")) != NULL; calls++) {
        signals++;
    }
    ASSERT_EQ(signals, 3); /* after 32, 64 and at the end */
    /* Who waits for the first ones hears of them before the rest is in. */
    ASSERT_STR(pl_str_text(&fake->rang), "1 2 4 8 16 32 48 64 70 ");
    fake_destroy(fake);
}

/* Nobody else could be waiting. */
TEST(a_lone_device_rings_once_a_batch)
{
    struct fake *fake                  = fake_create_lone();
    Plasmon__V1__WorkerCommand command = PLASMON__V1__WORKER_COMMAND__INIT;
    static struct fake_launch launch[3];
    Plasmon__V1__Launch *launches[3];

    for (uint32_t i = 0; i < 3; i++) {
        fake_launch_init(&launch[i], i + 1, RUN);
        fake_launch_function(&launch[i], "fill");
        fake_launch_scalar(&launch[i], 1.0);
        fake_launch_fresh(&launch[i], i + 1, 4);
        launches[i] = &launch[i].message;
    }
    command.launches   = launches;
    command.n_launches = 3;
    ASSERT_OK(worker_core_command(fake->core, &command, NULL));
    worker_core_advance(fake->core);
    ASSERT_STR(pl_str_text(&fake->rang), "3 ");
    fake_destroy(fake);
}

TEST(noop_on_an_idle_stream_is_done_without_the_device)
{
    struct fake *fake = fake_create();

    for (uint64_t seq = 1; seq <= 5; seq++) {
        fake_noop(fake, seq);
    }
    ASSERT_STR(fake_calls(fake), "");
    ASSERT_STR(fake_reports(fake), "done:1+1 done:2+1 done:3+1 done:4+1 done:5+1");
    ASSERT_EQ(fake->timelines[FAKE_US]->stream[0].value, 5);
    ASSERT_EQ(fake->wakes, 5);
    ASSERT_TRUE(worker_core_idle(fake->core));
    fake_destroy(fake);
}

TEST(noop_takes_an_idle_stream_past_a_busy_one)
{
    struct fake *fake = fake_create();

    fake_fill(fake, 1, 1, 4);
    fake_noop(fake, 2);
    ASSERT_STR(fake_calls(fake), "run:0:fill signal:0:1");
    ASSERT_STR(fake_reports(fake), "done:2+1");
    fake_destroy(fake);
}

TEST(noop_behind_unfinished_work_is_signalled_by_the_device)
{
    struct fake *fake = fake_create();
    struct fake_launch launch;

    fake_fill(fake, 1, 1, 4);
    fake_launch_init(&launch, 2, RUN);
    fake_launch_function(&launch, "noop");
    fake_launch_after(&launch, FAKE_BASE + FAKE_US, 1);
    ASSERT_OK(fake_send(fake, &launch));
    ASSERT_STR(fake_calls(fake), "run:0:fill signal:0:1 signal:0:2");
    ASSERT_STR(fake_reports(fake), "");
    ASSERT_EQ(fake->timelines[FAKE_US]->stream[0].value, 0);
    fake_destroy(fake);
}

TEST(noop_is_not_done_while_another_stream_runs_what_it_waits_for)
{
    struct fake *fake = fake_create();
    struct fake_launch launch;

    fake_fill(fake, 1, 1, 4);
    fake_fill_after(fake, 2, 2, 1, 0); /* 1 has been followed: the noop goes elsewhere */
    fake_launch_init(&launch, 3, RUN);
    fake_launch_function(&launch, "noop");
    fake_launch_after(&launch, FAKE_BASE + FAKE_US, 1);
    ASSERT_OK(fake_send(fake, &launch));
    ASSERT_STR(fake_reports(fake), "");
    ASSERT_STR(fake_calls(fake),
               "run:0:fill signal:0:1 run:0:fill signal:0:2 join:1:0 signal:1:3");
    fake_destroy(fake);
}

TEST(completions_of_several_streams_make_one_range)
{
    struct fake *fake = fake_create();

    for (uint64_t seq = 1; seq <= 6; seq++) {
        fake_fill(fake, seq, (uint32_t)seq,
                  4); /* odd ones in stream 0, even ones in stream 1 */
    }
    fake->timelines[FAKE_US]->stream[0].value = 5;
    fake->timelines[FAKE_US]->stream[1].value = 4;
    worker_core_complete(fake->core);
    ASSERT_STR(fake_reports(fake), "done:1+5");
    fake_finish(fake, 1, 6);
    ASSERT_STR(fake_reports(fake), "done:6+1");
    ASSERT_TRUE(worker_core_idle(fake->core));
    fake_destroy(fake);
}

TEST(later_value_covers_earlier_launches)
{
    struct fake *fake = fake_create();

    fake_fill(fake, 1, 1, 4);
    fake_fill_after(fake, 2, 2, 1, 0);
    fake_finish(fake, 0, 2);
    ASSERT_STR(fake_reports(fake), "done:1+2");
    fake_destroy(fake);
}

TEST(gap_is_refused_and_repeat_is_dropped)
{
    struct fake *fake = fake_create();
    struct fake_launch launch;
    struct pl_err err;

    fake_noop(fake, 1);
    fake_noop(fake, 1);
    ASSERT_STR(fake_reports(fake), "done:1+1");
    fake_launch_init(&launch, 3, RUN);
    ASSERT_STATUS(fake_send_err(fake, &launch, &err), PLASMON_EMALFORMED);
    ASSERT_CONTAINS(err.text, "launch 3 came when 2 was due");
    ASSERT_EQ(worker_core_received(fake->core), 1);
    fake_destroy(fake);
}

TEST(waiting_for_oneself_or_a_later_launch_is_refused)
{
    struct fake *fake = fake_create();
    struct fake_launch launch;

    fake_launch_init(&launch, 1, RUN);
    fake_launch_after(&launch, FAKE_BASE + FAKE_US, 1);
    ASSERT_STATUS(fake_send_err(fake, &launch, NULL), PLASMON_EMALFORMED);
    fake_destroy(fake);
}

TEST(running_launches_are_described_by_stream)
{
    struct fake *fake = fake_create();
    struct pl_str text;
    struct fake_launch launch;

    pl_str_init(&text);
    fake_launch_init(&launch, 1, RUN);
    fake_launch_function(&launch, "fill");
    fake_launch_scalar(&launch, 1.0);
    fake_launch_fresh(&launch, 1, 4);
    launch.message.label = (char *)"warm up";
    launch.message.task  = 9;
    ASSERT_OK(fake_send(fake, &launch));
    fake_fill(fake, 2, 2, 4);
    worker_core_describe_running(fake->core, &text);
    ASSERT_CONTAINS(pl_str_text(&text),
                    "stream 0: launch 1 (fill 'warm up', task 9 of client");
    ASSERT_CONTAINS(pl_str_text(&text), "; stream 1: launch 2 (fill, task");
    pl_str_finish(&text);
    fake_destroy(fake);
}

static void send_urgent(struct fake *fake, uint64_t seq, uint32_t slot, int32_t priority,
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
    launch.message.priority = priority;
    ASSERT_OK(fake_send(fake, &launch));
}

TEST(functions_of_high_and_of_low_priority_have_streams_that_nobody_else_enters)
{
    struct fake *fake = fake_create();

    send_urgent(fake, 1, 1, 1, 0);
    send_urgent(fake, 2, 2, 0, 0);
    send_urgent(fake, 3, 3, -1, 0);
    send_urgent(fake, 4, 4, 1, 0);
    ASSERT_STR(fake_calls(fake), "run:8:fill signal:8:1 run:0:fill signal:0:2 "
                                 "run:9:fill signal:9:3 run:8:fill signal:8:4");
    send_urgent(fake, 5, 5, 0, 3); /* normal, after the low one: not in its stream */
    send_urgent(fake, 6, 6, -1, 5);
    ASSERT_STR(fake_calls(fake),
               "join:1:9 run:1:fill signal:1:5 join:9:1 run:9:fill signal:9:6");
    fake_destroy(fake);
}

TEST(priorities_join_each_others_streams_where_one_needs_the_other)
{
    struct fake *fake = fake_create();

    send_urgent(fake, 1, 1, 0, 0);
    send_urgent(fake, 2, 2, 1, 1); /* urgent, after a normal one: not in its stream */
    send_urgent(fake, 3, 3, 0,
                2); /* normal, after the urgent one: not in its stream either */
    send_urgent(fake, 4, 4, 1, 2); /* follows the urgent one */
    ASSERT_STR(fake_calls(fake), "run:0:fill signal:0:1 join:8:0 run:8:fill signal:8:2 "
                                 "join:1:8 run:1:fill signal:1:3 run:8:fill signal:8:4");
    fake_destroy(fake);
}

/* Those that work on much are signalled without waiting for the end of the batch. */
TEST(large_launches_are_signalled_within_a_batch)
{
    struct fake *fake = fake_create();

    send_after_peer(fake, 1, 1, 1); /* holds the queue */
    fake_fill_after(fake, 2, 2, 1, 0);
    fake_fill(fake, 3, 3, 4096); /* 16 KiB, in the other stream */
    fake_fill_after(fake, 4, 4, 3, 0);
    ASSERT_STR(fake_calls(fake), "");
    fake_peer_publish(fake, 0, 1, 5);
    ASSERT_STR(fake_calls(fake), "wait:0:0.5>=1 run:0:fill run:0:fill run:1:fill "
                                 "signal:1:3 run:1:fill signal:0:2 signal:1:4");
    fake_destroy(fake);
}

enum { HEAVY = FAKE_SIGNAL_BYTES / 4, SPREAD = 6 };

/* A large launch, which waits for another device or not, and sees so much of its array. */
static uint32_t large(struct fake *fake, uint64_t seq, bool waits, int64_t seen)
{
    struct fake_launch launch;
    Plasmon__V1__Operand *operand;

    fake_launch_init(&launch, seq, RUN);
    fake_launch_function(&launch, "fill");
    fake_launch_scalar(&launch, 1.0);
    operand          = fake_launch_fresh(&launch, (uint32_t)seq, HEAVY);
    operand->n_view  = 3;
    operand->view[0] = 0;
    operand->view[1] = seen;
    operand->view[2] = 1;
    if (waits) {
        fake_launch_after(&launch, FAKE_BASE, 1);
    }
    ASSERT_OK(fake_send(fake, &launch));
    return store_ring_stream(fake->timelines[FAKE_US]->ring[seq]);
}

/* Streams that six of these and then twelve small ones take, a bit each. */
static void spread(struct fake *fake, bool waits, int64_t seen, uint32_t *out_large,
                   uint32_t *out_small)
{
    *out_large = *out_small = 0;
    fake_peer_publish(fake, 0, 1, 0);
    for (uint64_t seq = 1; seq <= SPREAD; seq++) {
        *out_large |= 1u << large(fake, seq, waits, seen);
    }
    for (uint64_t seq = SPREAD + 1; seq <= 3 * SPREAD; seq++) {
        fake_fill(fake, seq, (uint32_t)seq, 4);
        *out_small |= 1u << store_ring_stream(fake->timelines[FAKE_US]->ring[seq]);
    }
}

TEST(large_launches_that_wait_for_other_devices_take_turns_in_two_streams)
{
    struct fake *fake = fake_create_wide(4);
    uint32_t taken, small, first = 0, second = 0;

    spread(fake, true, HEAVY, &taken, &small);
    ASSERT_EQ(__builtin_popcount(taken), 2);
    ASSERT_EQ(small, 0xfu);
    for (uint64_t seq = 1; seq <= SPREAD; seq++) {
        uint32_t stream = store_ring_stream(fake->timelines[FAKE_US]->ring[seq]);

        if (seq <= 2) {
            first  = seq == 1 ? stream : first;
            second = stream;
        }
        ASSERT_EQ(stream, seq % 2 == 1 ? first : second);
    }
    fake_destroy(fake);
}

TEST(large_launches_that_wait_for_nobody_take_all_streams)
{
    struct fake *fake = fake_create_wide(4);
    uint32_t taken, small;

    spread(fake, false, HEAVY, &taken, &small);
    ASSERT_EQ(taken, 0xfu);
    ASSERT_EQ(small, 0xfu);
    fake_destroy(fake);
}

/* Who works at the edge of a large array is not behind who works at all of it. */
TEST(it_is_what_a_launch_sees_of_an_array_that_makes_it_large)
{
    struct fake *fake = fake_create_wide(4);
    uint32_t taken, small;

    spread(fake, true, 4, &taken, &small);
    ASSERT_EQ(taken, 0xfu);
    fake_destroy(fake);
}

/* What waits on this device for such a one waits, too: its products for the vector that is being brought. */
TEST(large_launches_behind_what_waits_for_other_devices_take_turns_in_two_streams)
{
    struct fake *fake = fake_create_wide(4);
    struct fake_launch launch;
    uint32_t taken = 0;

    fake_peer_publish(fake, 0, 1, 0);
    fake_launch_init(&launch, 1, PLASMON__V1__LAUNCH_KIND__LAUNCH_COPY);
    fake_launch_fresh(&launch, 1, 4);
    fake_launch_piece(&launch, FAKE_BASE, 1, 4);
    fake_launch_after(&launch, FAKE_BASE, 1);
    ASSERT_OK(fake_send(fake, &launch));
    for (uint64_t seq = 2; seq <= 7; seq++) {
        fake_launch_init(&launch, seq, RUN);
        fake_launch_function(&launch, "fill");
        fake_launch_scalar(&launch, 1.0);
        fake_launch_fresh(&launch, (uint32_t)seq, HEAVY);
        fake_launch_after(&launch, FAKE_BASE + FAKE_US, 1);
        ASSERT_OK(fake_send(fake, &launch));
        taken |= 1u << store_ring_stream(fake->timelines[FAKE_US]->ring[seq]);
    }
    ASSERT_EQ(__builtin_popcount(taken), 2);
    fake_destroy(fake);
}

TEST(however_many_branches_there_are_only_the_pool_is_used)
{
    struct fake *fake = fake_create();

    fake_fill(fake, 1, 1, 4);
    for (uint64_t seq = 2; seq <= 60; seq++) {
        fake_fill_after(fake, seq, (uint32_t)seq, 1, 0);
    }
    for (uint64_t seq = 1; seq <= 60; seq++) {
        ASSERT_TRUE(store_ring_stream(fake->timelines[FAKE_US]->ring[seq]) <
                    FAKE_RUN_STREAMS);
    }
    fake_destroy(fake);
}

TEST(what_moves_bytes_never_enters_a_stream_of_functions_nor_the_other_way_round)
{
    struct fake *fake = fake_create();
    struct fake_launch copy;

    fake_fill(fake, 1, 1, 4);
    for (uint64_t seq = 2; seq <= 6;
         seq += 2) { /* a copy of what a function makes, and a function after it */
        fake_launch_init(&copy, seq, PLASMON__V1__LAUNCH_KIND__LAUNCH_COPY);
        fake_launch_fresh(&copy, (uint32_t)seq, 4);
        fake_launch_piece(&copy, FAKE_BASE + FAKE_US, (uint32_t)seq - 1, 4);
        fake_launch_after(&copy, FAKE_BASE + FAKE_US, seq - 1);
        ASSERT_OK(fake_send(fake, &copy));
        fake_fill_after(fake, seq + 1, (uint32_t)seq + 1, seq, 0);
    }
    for (uint64_t seq = 1; seq <= 7; seq++) {
        uint32_t stream = store_ring_stream(fake->timelines[FAKE_US]->ring[seq]);

        ASSERT_EQ(stream >= FAKE_RUN_STREAMS, seq % 2 == 0);
    }
    fake_destroy(fake);
}

/* The word of one is written while the other moves bytes. */
TEST(copies_take_turns_between_two_streams)
{
    struct fake *fake = fake_create();
    struct fake_launch copy;

    fake_fill(fake, 1, 1, 4);
    for (uint64_t seq = 2; seq <= 5; seq++) {
        uint32_t stream;

        fake_launch_init(&copy, seq, PLASMON__V1__LAUNCH_KIND__LAUNCH_COPY);
        fake_launch_fresh(&copy, (uint32_t)seq, 4);
        fake_launch_piece(&copy, FAKE_BASE + FAKE_US, 1, 4);
        fake_launch_after(&copy, FAKE_BASE + FAKE_US, 1);
        ASSERT_OK(fake_send(fake, &copy));
        stream = store_ring_stream(fake->timelines[FAKE_US]->ring[seq]);
        ASSERT_EQ(stream, FAKE_RUN_STREAMS + (seq % 2 == 0 ? 0u : 3u));
    }
    fake_destroy(fake);
}

enum { LARGE_COPY = 8 << 20 }; /* elements */

/* Buffer 30 of host devices 0 and 2. */
static void large_sources(struct fake *fake)
{
    struct pl_shape frame = {.dtype = PL_F32, .ndim = 1, .dim = {LARGE_COPY}};

    fake->grow_bytes = FAKE_ARENA / 2;
    for (uint32_t i = 0; i < FAKE_DEVICES; i += 2) {
        store_table_alloc(fake->tables[i], 30, 1, 256, &frame, 0, 1);
        store_table_seal(fake->tables[i], 30);
    }
}

/*
 * From there, when launch number `after` of that device is done (0: it is). Into which of the two
 * streams it goes.
 */
static uint32_t large_copy(struct fake *fake, uint64_t seq, uint32_t from, uint64_t after)
{
    struct fake_launch copy;

    if (seq == 1) {
        large_sources(fake);
    }
    fake_launch_init(&copy, seq, PLASMON__V1__LAUNCH_KIND__LAUNCH_COPY);
    fake_launch_fresh(&copy, (uint32_t)seq, LARGE_COPY);
    fake_launch_piece(&copy, FAKE_BASE + from, 30, LARGE_COPY);
    if (after != 0) {
        fake_peer_publish(fake, from, after, 0);
        fake_launch_after(&copy, FAKE_BASE + from, after);
    }
    ASSERT_OK(fake_send(fake, &copy));
    return store_ring_stream(fake->timelines[FAKE_US]->ring[seq]) - FAKE_RUN_STREAMS;
}

TEST(large_copies_from_several_devices_follow_each_other)
{
    struct fake *fake = fake_create();

    ASSERT_EQ(large_copy(fake, 1, 2, 0), 0);
    ASSERT_EQ(large_copy(fake, 2, 0, 0), 0); /* behind that from another device, .. */
    ASSERT_EQ(large_copy(fake, 3, 0, 0), 3); /* .. and beside one from the same one */
    ASSERT_EQ(large_copy(fake, 4, 2, 0), 3);
    ASSERT_EQ(large_copy(fake, 5, 0, 0), 3);
    fake_destroy(fake);
}

TEST(a_large_copy_follows_none_that_is_done)
{
    struct fake *fake = fake_create();

    ASSERT_EQ(large_copy(fake, 1, 2, 0), 0);
    ASSERT_EQ(large_copy(fake, 2, 2, 0), 3);
    fake_finish(fake, FAKE_RUN_STREAMS, 1);
    fake_finish(fake, FAKE_RUN_STREAMS + 3, 2);
    ASSERT_EQ(large_copy(fake, 3, 0, 0), 0); /* the first of two that are idle */
    fake_destroy(fake);
}

TEST(a_large_copy_does_not_wait_behind_one_whose_bytes_are_still_made)
{
    struct fake *fake = fake_create();

    ASSERT_EQ(large_copy(fake, 1, 2, 1), 0);
    ASSERT_EQ(large_copy(fake, 2, 0, 0), 3);
    ASSERT_EQ(large_copy(fake, 3, 2, 2), 3); /* neither is there */
    ASSERT_EQ(large_copy(fake, 4, 0, 1), 3);
    fake_destroy(fake);
}

/* So many MiB from a device (our own: of buffer 1), behind its launch `after`; what the streams were told. */
static const char *copy_told(struct fake *fake, uint64_t seq, uint32_t from, uint32_t mib,
                             uint64_t after)
{
    struct fake_launch copy;

    fake_launch_init(&copy, seq, PLASMON__V1__LAUNCH_KIND__LAUNCH_COPY);
    fake_launch_fresh(&copy, (uint32_t)seq, (int64_t)mib << 18);
    fake_launch_piece(&copy, FAKE_BASE + from, from == FAKE_US ? 1 : 30,
                      (int64_t)mib << 18);
    if (from != FAKE_US) {
        fake_peer_publish(fake, from, after, 0);
        fake_launch_after(&copy, FAKE_BASE + from, after);
    }
    (void)fake_calls(fake);
    ASSERT_OK(fake_send(fake, &copy));
    return fake_calls(fake);
}

TEST(large_copies_may_be_made_by_the_device_that_they_come_from_and_so_may_their_waits)
{
    struct fake *fake = fake_create();

    fake->tells_sources = true;
    large_sources(fake);
    fake_fill(fake, 1, 1, 1 << 20);
    fake_finish(fake, 0, 1);
    ASSERT_CONTAINS(copy_told(fake, 2, 0, 32, 1), "source:2:0:0 wait:2:0.");
    ASSERT_CONTAINS(copy_told(fake, 3, 2, 32, 1), "source:2:2:0 wait:2:2.");
    ASSERT_CONTAINS(copy_told(fake, 4, 0, 16, 2), "source:5:1:16"); /* not worth the way */
    ASSERT_CONTAINS(copy_told(fake, 5, 0, 32, 3), ":0:32 copy:");
    ASSERT_CONTAINS(copy_told(fake, 6, 0, 1, 4), ":1:1 "); /* small */
    ASSERT_CONTAINS(copy_told(fake, 7, FAKE_US, 4, 0), ":1:0 copy:");
    fake->refuse = "source";
    (void)copy_told(fake, 8, 2, 32, 2);
    fake_finish(fake, 2, 8);
    fake_finish(fake, 5, 8);
    ASSERT_CONTAINS(fake_reports(fake), "failed:8:EDEVICE");
    fake_destroy(fake);
}

/* Who reads them while they come needs them so; its engine would take one stream after the other. */
TEST(parts_of_an_array_that_its_device_writes_come_in_their_order)
{
    struct pl_shape frame = {.dtype = PL_F32, .ndim = 1, .dim = {LARGE_COPY}};
    struct fake *fake     = fake_create();
    struct fake_launch copy;

    fake->tells_sources = true;
    ASSERT_EQ(large_copy(fake, 1, 2, 0), 0);
    for (uint64_t seq = 2; seq < 5; seq++) {
        ASSERT_EQ(large_copy(fake, seq, 2, 0), 0);
    }
    store_table_alloc(fake->tables[2], 31, 1, 256, &frame, 0, 1);
    store_table_seal(fake->tables[2], 31);
    fake_launch_init(&copy, 5, PLASMON__V1__LAUNCH_KIND__LAUNCH_COPY);
    fake_launch_fresh(&copy, 5, LARGE_COPY);
    fake_launch_piece(&copy, FAKE_BASE + 2, 31, LARGE_COPY);
    ASSERT_OK(fake_send(fake, &copy)); /* another array, beside it, .. */
    ASSERT_EQ(store_ring_stream(fake->timelines[FAKE_US]->ring[5]) - FAKE_RUN_STREAMS, 3);
    ASSERT_EQ(large_copy(fake, 6, 2, 0), 3); /* .. and what is not its next part */
    fake_destroy(fake);
}

/* Each piece from where it lies. */
TEST(a_large_copy_of_several_devices_is_made_by_each_of_them)
{
    struct fake *fake = fake_create();
    struct fake_launch copy;
    const char *calls;

    fake->tells_sources = true;
    large_sources(fake);
    fake_fill(fake, 1, 1, 1 << 20);
    fake_finish(fake, 0, 1);
    fake_launch_init(&copy, 2, PLASMON__V1__LAUNCH_KIND__LAUNCH_COPY);
    fake_launch_fresh(&copy, 2, LARGE_COPY);
    fake_launch_piece(&copy, FAKE_BASE + 2, 30, LARGE_COPY);
    fake_launch_piece(&copy, FAKE_BASE + 0, 30, LARGE_COPY);
    fake_launch_piece(&copy, FAKE_BASE + FAKE_US, 1, 1 << 20);
    (void)fake_calls(fake);
    ASSERT_OK(fake_send(fake, &copy));
    calls = fake_calls(fake);
    ASSERT_CONTAINS(calls, "source:2:2:0 source:2:2:32 copy:2:");
    ASSERT_CONTAINS(calls, " source:2:0:32 copy:2:");
    ASSERT_CONTAINS(calls, " source:2:1:0 copy:2:");
    fake_destroy(fake);
}

/*
 * A large copy, and one behind it in the same stream, from another device; what has not begun if we
 * die then, before any word is there.
 */
static const char *untouched_behind_a_copy(struct fake *fake)
{
    large_sources(fake);
    (void)copy_told(fake, 1, 0, 32, 1);
    ASSERT_CONTAINS(copy_told(fake, 2, 2, 32, 1), "wait:2:2.");
    fake_restart(fake);
    return fake->untouched;
}

/*
 * Where a copy may begin before the word of what is before it in its stream, that word is no
 * witness of what has not begun.
 */
TEST(a_word_that_is_late_says_nothing_of_what_follows)
{
    struct fake *fake = fake_create();

    ASSERT_STR(untouched_behind_a_copy(fake), "2+1");
    fake_destroy(fake);
    fake                = fake_create();
    fake->tells_sources = true;
    ASSERT_STR(untouched_behind_a_copy(fake), "");
    fake_destroy(fake);
}

/* The second one has the memory of the first, which was retired; what the streams were told. */
static const char *reuse_behind_a_copy(struct fake *fake)
{
    large_sources(fake);
    fake->grow_bytes = UINT64_C(40) << 20; /* for one of them */
    (void)copy_told(fake, 1, 0, 32, 1);
    fake_retire(fake, 1);
    return copy_told(fake, 2, 2, 32, 1);
}

TEST(memory_is_used_again_behind_a_word_that_is_late)
{
    struct fake *fake = fake_create();

    ASSERT_NULL(strstr(reuse_behind_a_copy(fake), "settle"));
    fake_destroy(fake);
    fake                = fake_create();
    fake->tells_sources = true;
    ASSERT_CONTAINS(reuse_behind_a_copy(fake), "source:2:2:0 settle:2 wait:2:2.");
    fake_destroy(fake);
    fake                = fake_create();
    fake->tells_sources = true;
    fake->refuse        = "settle";
    (void)reuse_behind_a_copy(fake);
    fake_finish(fake, 2, 2);
    ASSERT_CONTAINS(fake_reports(fake), "failed:2:EDEVICE");
    fake_destroy(fake);
}

/*
 * Memory goes from one launch to another when the first is done, seen by its word; so no stream has
 * to wait for that.
 */
TEST(scratch_is_given_to_the_next_launch_once_its_user_is_done)
{
    struct fake *fake = fake_create();
    uint64_t bytes;

    fake->scratch = 4096;
    fake_fill(fake, 1, 1, 4);
    bytes = fake_memory(fake).bytes_used;
    fake_fill(fake, 2, 2, 4);
    ASSERT_EQ(fake_memory(fake).bytes_used, 2 * bytes); /* both run: a scratch each */
    fake_finish(fake, 0, 1);
    ASSERT_EQ(fake_memory(fake).bytes_used, 2 * bytes - 4096);
    fake_fill(fake, 3, 3, 4);
    ASSERT_EQ(fake_memory(fake).bytes_used, 3 * bytes - 4096);
    fake_destroy(fake);
}

/* Its operation waits on the device for the other side, and streams may share a hardware queue. */
TEST(a_word_is_written_before_half_of_a_transfer_by_a_pair_is_enqueued)
{
    const struct worker_pair_key key   = {.peer = FAKE_BASE, .epoch = 1};
    Plasmon__V1__WorkerCommand command = PLASMON__V1__WORKER_COMMAND__INIT;
    struct fake *fake                  = fake_create();
    struct fake_launch launch[2];
    Plasmon__V1__Launch *launches[2] = {&launch[0].message, &launch[1].message};

    fake_filled(fake, 1);
    fake_launch_init(&launch[0], 2, PLASMON__V1__LAUNCH_KIND__LAUNCH_OPEN);
    launch[0].message.peer = FAKE_BASE;
    launch[0].message.pair = 1;
    (void)fake_calls(fake);
    ASSERT_OK(fake_send(fake, &launch[0]));
    ASSERT_STR(fake_calls(fake), "pair:2:1");
    worker_core_pair_opened(fake->core, &key, PLASMON_OK, NULL, 1);
    worker_core_advance(fake->core);
    (void)fake_calls(fake);

    fake_launch_init(&launch[0], 3, PLASMON__V1__LAUNCH_KIND__LAUNCH_RUN);
    fake_launch_function(&launch[0], "fill");
    fake_launch_scalar(&launch[0], 1.0);
    fake_launch_fresh(&launch[0], 3, 4);
    fake_launch_init(&launch[1], 4, PLASMON__V1__LAUNCH_KIND__LAUNCH_SEND);
    (void)fake_launch_operand(&launch[1], KERNEL_IN, 1, 4);
    fake_launch_after(&launch[1], FAKE_BASE + FAKE_US, 1);
    launch[1].message.peer = FAKE_BASE;
    launch[1].message.pair = 1;
    command.launches       = launches;
    command.n_launches     = 2;
    ASSERT_OK(worker_core_command(fake->core, &command, NULL));
    worker_core_advance(fake->core);
    ASSERT_STR(fake_calls(fake), "run:1:fill signal:1:3 move:6:2+16 word:6:4");
    fake_destroy(fake);
}

static void order_take(struct fake *fake, uint64_t epoch, Plasmon__V1__PairState state)
{
    Plasmon__V1__WorkerCommand command = PLASMON__V1__WORKER_COMMAND__INIT;
    Plasmon__V1__PairOrder order       = PLASMON__V1__PAIR_ORDER__INIT;
    Plasmon__V1__PairOrder *orders[]   = {&order};

    order.peer      = FAKE_BASE;
    order.epoch     = epoch;
    order.state     = state;
    command.pairs   = orders;
    command.n_pairs = 1;
    ASSERT_OK(worker_core_command(fake->core, &command, NULL));
    worker_core_advance(fake->core);
}

/* By launch 1, which is left in *out_launch. */
static void pair_open(struct fake *fake, struct fake_launch *out_launch,
                      const struct worker_pair_key *key)
{
    fake_launch_init(out_launch, 1, PLASMON__V1__LAUNCH_KIND__LAUNCH_OPEN);
    out_launch->message.peer = key->peer;
    out_launch->message.pair = 1;
    ASSERT_OK(fake_send(fake, out_launch));
    worker_core_pair_opened(fake->core, key, PLASMON_OK, NULL, 1);
    worker_core_advance(fake->core);
}

/* It has no function that could be compiled: it is opened when nothing is on the device. */
TEST(of_a_communicator_that_is_to_be_opened_it_is_said_what_it_waits_for)
{
    const struct worker_pair_key key = {.peer = FAKE_BASE, .epoch = 1};
    Plasmon__V1__WorkerStats stats   = PLASMON__V1__WORKER_STATS__INIT;
    struct fake *fake                = fake_create();
    struct fake_launch launch;
    struct wire_arena arena;

    pair_open(fake, &launch, &key);
    order_take(fake, 1, PLASMON__V1__PAIR_STATE__PAIR_STAGED);
    fake_fill(fake, 2, 3, 4);                 /* under way */
    worker_core_pair_ended(fake->core, &key); /* what is left of it is to be freed first */

    launch.message.seq  = 3;
    launch.message.pair = 2;
    ASSERT_OK(fake_send(fake, &launch));
    ASSERT_OK(wire_arena_init(&arena, 1 << 20));
    worker_core_waits(fake->core, &arena, 0, &stats);
    ASSERT_EQ(stats.waits[0]->seq, 3);
    ASSERT_EQ(stats.waits[0]->why, PLASMON__V1__WAIT_WHY__WAIT_QUIET);
    wire_arena_finish(&arena);
    fake_destroy(fake);
}

/* The call may wait for the other side, which died: who watches it has to know. */
TEST(of_a_communicator_that_is_being_closed_it_is_heard_that_its_other_side_is_gone)
{
    const struct worker_pair_key key = {.peer = FAKE_BASE, .epoch = 1};
    struct fake *fake                = fake_create();
    struct fake_launch launch;

    pair_open(fake, &launch, &key);
    launch.message.seq  = 2;
    launch.message.kind = PLASMON__V1__LAUNCH_KIND__LAUNCH_CLOSE;
    ASSERT_OK(fake_send(fake, &launch));
    ASSERT_EQ(fake->pairs_broken, 0);
    order_take(fake, 1, PLASMON__V1__PAIR_STATE__PAIR_BROKEN);
    ASSERT_EQ(fake->pairs_broken, 1);
    worker_core_pair_closed(fake->core, &key);
    worker_core_advance(fake->core);
    order_take(fake, 1, PLASMON__V1__PAIR_STATE__PAIR_STAGED);
    ASSERT_EQ(fake->pairs_broken, 1); /* it is none any more */
    fake_destroy(fake);
}

/* Part of an all-reduce of slots 1 and 2 by team 5, into a fresh slot. */
static void part_init(struct fake_launch *launch, uint64_t seq, uint32_t slot)
{
    fake_launch_init(launch, seq, PLASMON__V1__LAUNCH_KIND__LAUNCH_COPY);
    fake_launch_function(launch, "combine");
    fake_launch_fresh(launch, slot, 4);
    fake_launch_piece(launch, FAKE_BASE + FAKE_US, 1, 4);
    fake_launch_piece(launch, FAKE_BASE + FAKE_US, 2, 4);
    launch->scalar[0]         = KERNEL_SUM;
    launch->message.n_scalars = 1;
    launch->message.team      = 5;
    launch->message.pair      = 1;
    launch->message.ranks     = 2;
    launch->message.order     = seq;
}

static void team_open(struct fake *fake, uint64_t seq, uint32_t team)
{
    const struct worker_pair_key key = {.epoch = 1, .team = team};
    struct fake_launch launch;

    fake_launch_init(&launch, seq, PLASMON__V1__LAUNCH_KIND__LAUNCH_OPEN);
    launch.message.team  = team;
    launch.message.pair  = 1;
    launch.message.ranks = 2;
    ASSERT_OK(fake_send(fake, &launch));
    worker_core_pair_opened(fake->core, &key, PLASMON_OK, NULL, 1);
    worker_core_advance(fake->core);
}

/*
 * What the first makes is there when the operation behind it begins, and the host need not see it;
 * of another team the order of operations says nothing.
 */
TEST(a_part_goes_on_the_lane_behind_the_one_that_makes_its_member)
{
    struct fake *fake = fake_create();
    struct fake_launch launch;

    fake_filled(fake, 2);
    team_open(fake, 3, 5);
    team_open(fake, 4, 6);
    (void)fake_calls(fake);
    part_init(&launch, 5, 3);
    ASSERT_OK(fake_send(fake, &launch));
    ASSERT_STR(fake_calls(fake), "move:4:0+16 word:4:5");
    part_init(&launch, 6, 4);
    launch.piece[0].src = wire_buffer(FAKE_BASE + FAKE_US, 3, 1);
    fake_launch_after(&launch, FAKE_BASE + FAKE_US, 5);
    ASSERT_OK(fake_send(fake, &launch));
    ASSERT_STR(fake_calls(fake), "move:4:0+16 word:4:6");
    part_init(&launch, 7, 5);
    launch.message.team = 6;
    launch.piece[0].src = wire_buffer(FAKE_BASE + FAKE_US, 4, 1);
    fake_launch_after(&launch, FAKE_BASE + FAKE_US, 6);
    ASSERT_OK(fake_send(fake, &launch));
    ASSERT_STR(fake_calls(fake), "");
    fake_finish(fake, 4, 6);
    ASSERT_STR(fake_calls(fake), "move:4:0+16 word:4:7");
    fake_destroy(fake);
}

/* The others have theirs on the lane, and whatever came next from here would meet it. */
TEST(behind_a_part_that_failed_nothing_goes_by_its_team)
{
    Plasmon__V1__WorkerCommand command = PLASMON__V1__WORKER_COMMAND__INIT;
    Plasmon__V1__PairOrder broken      = PLASMON__V1__PAIR_ORDER__INIT;
    Plasmon__V1__PairOrder *orders[]   = {&broken};
    struct fake *fake                  = fake_create();
    struct fake_launch launch[2];
    Plasmon__V1__Launch *launches[2] = {&launch[0].message, &launch[1].message};
    uint64_t cancelled               = 4;

    fake_filled(fake, 2);
    team_open(fake, 3, 5);
    (void)fake_calls(fake);

    part_init(&launch[0], 4, 3);
    part_init(&launch[1], 5, 4);
    command.launches   = launches;
    command.n_launches = 2;
    command.cancel     = &cancelled;
    command.n_cancel   = 1;
    ASSERT_OK(worker_core_command(fake->core, &command, NULL));
    worker_core_advance(fake->core);
    ASSERT_TRUE(strstr(fake_calls(fake), "move") == NULL);

    /* All have marked it: ours may be done alone. */
    plasmon__v1__worker_command__init(&command);
    broken.team     = 5;
    broken.epoch    = 1;
    broken.state    = PLASMON__V1__PAIR_STATE__PAIR_BROKEN;
    command.pairs   = orders;
    command.n_pairs = 1;
    ASSERT_OK(worker_core_command(fake->core, &command, NULL));
    worker_core_advance(fake->core);
    ASSERT_STR(fake_calls(fake), "");
    broken.state = PLASMON__V1__PAIR_STATE__PAIR_STAGED;
    ASSERT_OK(worker_core_command(fake->core, &command, NULL));
    worker_core_advance(fake->core);
    ASSERT_TRUE(strstr(fake_calls(fake), "combine:4:combine") != NULL);
    fake_destroy(fake);
}

TEST_MAIN()
