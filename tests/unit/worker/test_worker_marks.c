/* Marks: who needs one copy of many does not wait for those behind it. */
#include "base/fault.h"
#include "tests/unit/worker/fake.h"

#define KIND(name) PLASMON__V1__LAUNCH_KIND__LAUNCH_##name

enum { LARGE = FAKE_MARK_BYTES / 4, SMALL = LARGE - 1 };

/* From another device's buffer `slot`, made here: launch `seq` makes our buffer `slot`. */
static void copy(struct fake *fake, uint64_t seq, uint32_t slot, int64_t count)
{
    struct pl_shape frame = {.dtype = PL_F32, .ndim = 1, .dim = {count}};
    struct fake_launch launch;

    store_table_alloc(fake->tables[2], slot, 1, 0, &frame, 0, 1);
    store_table_seal(fake->tables[2], slot);
    fake_launch_init(&launch, seq, KIND(COPY));
    fake_launch_fresh(&launch, slot, count);
    fake_launch_piece(&launch, FAKE_BASE + 2, slot, count);
    ASSERT_OK(fake_send(fake, &launch));
}

/* Streams: copies 2 and 5 by turns, functions 0 and 1. */
static struct fake *four_copies(int64_t count)
{
    struct fake *fake = fake_create_marking();

    for (uint32_t i = 1; i <= 4; i++) {
        copy(fake, i, i, count);
    }
    (void)fake_calls(fake);
    return fake;
}

TEST(a_function_waits_for_its_copy_and_not_for_those_behind_it)
{
    struct fake *fake = four_copies(LARGE);

    fake_fill_after(fake, 5, 5, 1, 0);
    ASSERT_STR(fake_calls(fake), "join_mark:0:2.0 run:0:fill mark:0:0 signal:0:5");
    fake_destroy(fake);
}

TEST(what_waited_for_a_mark_has_one_behind_it)
{
    struct fake *fake = four_copies(LARGE);

    fake_fill_after(fake, 5, 5, 1, 0); /* in stream 0 */
    fake_fill_after(fake, 6, 6, 2, 0); /* in stream 1 */
    (void)fake_calls(fake);
    fake_fill_after(fake, 7, 7, 5, 6); /* follows 5, waits for 6 */
    ASSERT_STR(fake_calls(fake), "join_mark:0:1.0 run:0:fill mark:0:1 signal:0:7");
    fake_destroy(fake);
}

/* Buffers 1 and 2 are made, then read by launches 3 and 4, which copy them to host memory in one stream. */
static struct fake *two_read(int64_t count)
{
    struct fake *fake = fake_create_marking();
    struct fake_launch launch;

    for (uint32_t i = 1; i <= 2; i++) {
        fake_fill(fake, i, i, count);
        fake_finish(fake, 0, i);
    }
    (void)fake_calls(fake);
    for (uint32_t i = 1; i <= 2; i++) {
        fake_launch_init(&launch, 2 + i, KIND(GET_HOST));
        launch.message.host_buffer = 7;
        fake_launch_operand(&launch, KERNEL_IN, i, count);
        ASSERT_OK(fake_send(fake, &launch));
    }
    return fake;
}

static void overwrite(struct fake *fake, uint64_t seq, uint32_t slot, int64_t count,
                      uint64_t reader)
{
    struct fake_launch launch;

    fake_launch_init(&launch, seq, KIND(RUN));
    fake_launch_function(&launch, "fill");
    fake_launch_scalar(&launch, 1.0);
    fake_launch_operand(&launch, KERNEL_OUT, slot, count);
    fake_launch_after(&launch, FAKE_BASE + FAKE_US, reader);
    ASSERT_OK(fake_send(fake, &launch));
}

/*
 * It must not come before the reader's word, lest that reads again after a crash: but no word of a
 * later one.
 */
TEST(who_overwrites_what_a_large_copy_reads_waits_for_its_word_and_for_nothing_behind_it)
{
    struct fake *fake = two_read(4 * LARGE);

    ASSERT_STR(fake_calls(fake), "get_host:3:0+16384 signal:3:3 mark:3:0 "
                                 "get_host:3:16384+16384 signal:3:4 mark:3:1");
    overwrite(fake, 5, 1, 4 * LARGE, 3);
    ASSERT_STR(fake_calls(fake), "join_mark:0:3.0 run:0:fill mark:0:0 signal:0:5");
    overwrite(fake, 6, 2, 4 * LARGE, 4); /* behind the word of the first one all the same */
    ASSERT_STR(fake_calls(fake), "join_mark:1:3.1 run:1:fill mark:1:0 signal:1:6");
    fake_destroy(fake);
}

TEST(who_overwrites_what_a_small_copy_reads_joins_its_stream)
{
    struct fake *fake = two_read(LARGE);

    (void)fake_calls(fake);
    overwrite(fake, 5, 1, LARGE, 3);
    ASSERT_STR(fake_calls(fake), "join:0:3 run:0:fill signal:0:5");
    fake_destroy(fake);
}

enum { LONG = FAKE_SIGNAL_BYTES / 2 / 4 };

static void fill_after(struct fake *fake, uint64_t seq, uint32_t slot, int64_t count,
                       uint64_t after)
{
    struct fake_launch launch;

    fake_launch_init(&launch, seq, KIND(RUN));
    fake_launch_function(&launch, "fill");
    fake_launch_scalar(&launch, 1.0);
    fake_launch_fresh(&launch, slot, count);
    fake_launch_after(&launch, FAKE_BASE + FAKE_US, after);
    ASSERT_OK(fake_send(fake, &launch));
}

/*
 * The first follows it in its stream. The other one waits for the short one and not for the first,
 * and has no mark behind itself, as it would have behind a copy.
 */
TEST(of_long_functions_that_wait_for_one_none_waits_for_the_first_of_them)
{
    struct fake *fake = fake_create_marking();

    fake_fill(fake, 1, 1, 4);
    (void)fake_calls(fake);
    fill_after(fake, 2, 2, LONG, 1);
    ASSERT_STR(fake_calls(fake), "mark:0:0 run:0:fill signal:0:2");
    fill_after(fake, 3, 3, LONG, 1);
    ASSERT_STR(fake_calls(fake), "join_mark:1:0.0 run:1:fill signal:1:3");
    fake_destroy(fake);
}

TEST(functions_that_do_not_take_long_join)
{
    struct fake *fake = fake_create_marking();

    fake_fill(fake, 1, 1, 4);
    (void)fake_calls(fake);
    fill_after(fake, 2, 2, LONG - 1, 1);
    ASSERT_STR(fake_calls(fake), "run:0:fill signal:0:2");
    fill_after(fake, 3, 3, LONG - 1, 1);
    ASSERT_STR(fake_calls(fake), "join:1:0 run:1:fill signal:1:3");
    fake_destroy(fake);
}

/* Nothing is to be waited for in a stream whose work is over, and one mark behind a launch is enough. */
TEST(a_mark_is_put_before_a_long_function_only_where_it_says_something_new)
{
    struct fake *fake = fake_create_marking();

    fake_fill(fake, 1, 1, 4);
    fake_finish(fake, 0, 1);
    (void)fake_calls(fake);
    fake_fill(fake, 2, 2, LONG); /* takes stream 0, which is empty */
    ASSERT_STR(fake_calls(fake), "run:0:fill signal:0:2");
    fake_destroy(fake);
}

TEST(small_copies_are_joined)
{
    struct fake *fake = four_copies(SMALL);

    fake_fill_after(fake, 5, 5, 1, 0);
    ASSERT_STR(fake_calls(fake), "join:0:2 run:0:fill signal:0:5");
    fake_destroy(fake);
}

TEST(a_mark_that_is_waited_for_covers_what_came_before_it_and_no_more)
{
    struct fake *fake = four_copies(LARGE);

    fake_fill_after(fake, 5, 5, 1, 0); /* waits for launch 1 in stream 2 */
    (void)fake_calls(fake);
    fake_fill_after(fake, 6, 6, 5, 1);
    ASSERT_STR(fake_calls(fake), "run:0:fill signal:0:6");
    fake_fill_after(fake, 7, 7, 6, 3); /* launch 3 is the second in stream 2 */
    ASSERT_STR(fake_calls(fake), "join_mark:0:2.1 run:0:fill mark:0:1 signal:0:7");
    fake_destroy(fake);
}

TEST(more_launches_than_marks_are_kept_are_joined_behind_the_oldest_that_is_left)
{
    struct fake *fake = fake_create_marking();

    fake->grow_bytes = UINT64_C(64) << 20;
    for (uint32_t i = 1; i <= 2 * (WORKER_MARKS + 1); i++) { /* 65 in stream 2, 65 in 5 */
        copy(fake, i, i, LARGE);
    }
    (void)fake_calls(fake);
    fake_fill_after(fake, 131, 131, 1, 0); /* its mark was used again, by launch 129 */
    ASSERT_STR(fake_calls(fake), "join_mark:0:2.1 run:0:fill mark:0:0 signal:0:131");
    fake_destroy(fake);
}

TEST(a_mark_that_could_not_be_made_is_no_failure)
{
    struct fake *fake = fake_create_marking();

    fake->refuse = "mark";
    copy(fake, 1, 1, LARGE);
    copy(fake, 2, 2, LARGE);
    copy(fake, 3, 3, LARGE);
    fake->refuse = NULL;
    (void)fake_calls(fake);
    fake_fill_after(fake, 4, 4, 1, 0);
    ASSERT_STR(fake_calls(fake), "join:0:2 run:0:fill signal:0:4");
    fake_destroy(fake);
}

/* Copies 1 and 2 in one batch, which reads another device's memory. */
static struct fake *two_in_a_batch(int64_t count)
{
    struct pl_shape frame              = {.dtype = PL_F32, .ndim = 1, .dim = {count}};
    struct fake *fake                  = fake_create_marking();
    Plasmon__V1__WorkerCommand command = PLASMON__V1__WORKER_COMMAND__INIT;
    struct fake_launch launch[2];
    Plasmon__V1__Launch *launches[2] = {&launch[0].message, &launch[1].message};

    for (uint32_t i = 0; i < 2; i++) {
        store_table_alloc(fake->tables[2], i + 1, 1, 0, &frame, 0, 1);
        store_table_seal(fake->tables[2], i + 1);
        fake_launch_init(&launch[i], i + 1, KIND(COPY));
        fake_launch_fresh(&launch[i], i + 1, count);
        fake_launch_piece(&launch[i], FAKE_BASE + 2, i + 1, count);
    }
    command.launches   = launches;
    command.n_launches = 2;
    ASSERT_OK(worker_core_command(fake->core, &command, NULL));
    worker_core_advance(fake->core);
    return fake;
}

TEST(large_copies_of_a_batch_are_over_one_by_one)
{
    enum { COUNT = FAKE_SIGNAL_BYTES / 8 / 4 }; /* what goes over a link counts eightfold */
    struct fake *fake = two_in_a_batch(COUNT);

    ASSERT_STR(fake_calls(fake),
               "copy:2:0+256->0<-2.0 signal:2:1 copy:5:0+256->1024<-2.0 signal:5:2");
    fake_destroy(fake);
    fake = two_in_a_batch(COUNT / 2);
    ASSERT_STR(fake_calls(fake),
               "copy:2:0+128->0<-2.0 copy:5:0+128->512<-2.0 signal:2:1 signal:5:2");
    fake_destroy(fake);
}

TEST_MAIN()
