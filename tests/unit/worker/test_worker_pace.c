/* What takes long is learned, and has words of its own. */
#include "tests/harness/test.h"

#include <string.h>

#include "tests/unit/worker/fake.h"

#define RUN PLASMON__V1__LAUNCH_KIND__LAUNCH_RUN
#define US  UINT64_C(1000)
#define MS  UINT64_C(1000000)

/* One message: launches of these functions, each behind the one before, so all in stream 0. */
static const char *batch(struct fake *fake, uint64_t first, const char *const *names,
                         uint32_t count)
{
    static struct fake_launch launch[8];
    Plasmon__V1__WorkerCommand command = PLASMON__V1__WORKER_COMMAND__INIT;
    Plasmon__V1__Launch *launches[8];

    for (uint32_t i = 0; i < count; i++) {
        uint64_t seq = first + i;

        fake_launch_init(&launch[i], seq, RUN);
        fake_launch_function(&launch[i], names[i]);
        if (strcmp(names[i], "fill") == 0) {
            fake_launch_scalar(&launch[i], 1.0);
            (void)fake_launch_fresh(&launch[i], (uint32_t)seq, 4);
        } else { /* spin; on what the first launch made */
            fake_launch_scalar(&launch[i], 0);
            fake_launch_operand(&launch[i], KERNEL_INOUT, 1, 4)->consume = 1;
        }
        if (seq > 1) {
            fake_launch_after(&launch[i], FAKE_BASE + FAKE_US, seq - 1);
        }
        launches[i] = &launch[i].message;
    }
    command.launches   = launches;
    command.n_launches = count;
    ASSERT_OK(worker_core_command(fake->core, &command, NULL));
    worker_core_advance(fake->core);
    return fake_calls(fake);
}

static const char *const fills[] = {"fill", "fill", "fill"};

static void finish_after(struct fake *fake, uint64_t ns, uint64_t seq)
{
    fake->now_ns += ns;
    fake_finish(fake, 0, seq);
}

TEST(what_took_long_has_a_word_each)
{
    struct fake *fake = fake_create();

    fake->now_ns = 5 * MS;
    ASSERT_STR(batch(fake, 1, fills, 3), "run:0:fill run:0:fill run:0:fill signal:0:3");
    finish_after(fake, 900 * MS, 3);
    ASSERT_STR(batch(fake, 4, fills, 3),
               "run:0:fill signal:0:4 run:0:fill signal:0:5 run:0:fill signal:0:6");
    finish_after(fake, 300 * MS, 4); /* still */
    finish_after(fake, 300 * MS, 5);
    finish_after(fake, 300 * MS, 6);
    ASSERT_STR(batch(fake, 7, fills, 2), "run:0:fill signal:0:7 run:0:fill signal:0:8");
    fake_destroy(fake);
}

TEST(what_takes_less_has_one_word_again)
{
    struct fake *fake = fake_create();

    fake->now_ns = 5 * MS;
    (void)batch(fake, 1, fills, 3);
    finish_after(fake, 200 * MS, 3);
    ASSERT_STR(batch(fake, 4, fills, 2), "run:0:fill signal:0:4 run:0:fill signal:0:5");
    finish_after(fake, 700 * US, 4); /* between: as it was */
    ASSERT_STR(batch(fake, 6, fills, 1), "run:0:fill signal:0:6");
    finish_after(fake, 400 * US, 5);
    ASSERT_STR(batch(fake, 7, fills, 2), "run:0:fill run:0:fill signal:0:8");
    fake_destroy(fake);
}

/* Two runs in one message: does each have a word? */
static bool have_words(struct fake *fake, uint64_t first)
{
    const char *calls = batch(fake, first, fills, 2);
    const char *word  = strstr(calls, "signal:");

    ASSERT_NOT_NULL(word);
    return strstr(word + 1, "signal:") != NULL;
}

/* The host may have been late. */
TEST(a_few_milliseconds_are_believed_the_third_time)
{
    struct fake *fake = fake_create();
    uint64_t seq      = 1;

    fake->now_ns = 5 * MS;
    for (int round = 0; round < 3; round++) {
        for (int times = 0; times < 2; times++, seq += 2) {
            ASSERT_TRUE(!have_words(fake, seq));
            finish_after(fake, 3 * MS, seq + 1);
        }
        ASSERT_TRUE(!have_words(fake, seq));
        finish_after(fake, round < 2 ? 10 * US : 3 * MS, seq + 1); /* 10: it was */
        seq += 2;
    }
    ASSERT_TRUE(have_words(fake, seq));
    fake_destroy(fake);
}

/* Nobody knows how much of it was the wait. */
TEST(what_waited_for_another_device_is_not_taken_to_be_long)
{
    struct fake *fake = fake_create();
    struct fake_launch launch;

    fake->now_ns = 5 * MS;
    fake_peer_publish(fake, 0, 1, 0);
    fake_launch_init(&launch, 1, RUN);
    fake_launch_function(&launch, "fill");
    fake_launch_scalar(&launch, 1.0);
    (void)fake_launch_fresh(&launch, 1, 4);
    fake_launch_after(&launch, FAKE_BASE, 1);
    ASSERT_OK(fake_send(fake, &launch));
    ASSERT_STR(fake_calls(fake), "wait:0:0.0>=1 run:0:fill signal:0:1");
    finish_after(fake, 900 * MS, 1);
    ASSERT_TRUE(!have_words(fake, 2));
    finish_after(fake, 900 * MS, 3);
    ASSERT_TRUE(have_words(fake, 4));
    fake_destroy(fake);
}

/* It is the time since the stream was empty. */
TEST(a_stream_that_was_empty_for_long_says_nothing)
{
    struct fake *fake = fake_create();

    (void)batch(fake, 1, fills, 1);
    finish_after(fake, 10 * US, 1);
    fake->now_ns += 9000 * MS;
    (void)batch(fake, 2, fills, 1);
    finish_after(fake, 10 * US, 2);
    ASSERT_STR(batch(fake, 3, fills, 2), "run:0:fill run:0:fill signal:0:4");
    fake_destroy(fake);
}

/* Nobody knows which one of a batch it was; they are told apart by the next. */
TEST(short_ones_beside_a_long_one_are_told_apart)
{
    static const char *const mixed[] = {"fill", "spin", "fill"};
    struct fake *fake                = fake_create();

    fake->now_ns = 5 * MS;
    (void)batch(fake, 1, fills, 1);
    finish_after(fake, 20 * US, 1);
    ASSERT_STR(batch(fake, 2, mixed, 3), "run:0:fill run:0:spin run:0:fill signal:0:4");
    finish_after(fake, 900 * MS, 4);
    ASSERT_STR(batch(fake, 5, mixed, 3),
               "run:0:fill signal:0:5 run:0:spin signal:0:6 run:0:fill signal:0:7");
    finish_after(fake, 20 * US, 5);
    finish_after(fake, 900 * MS, 6);
    finish_after(fake, 20 * US, 7);
    /* One before the long one, one behind it, and one at the end. */
    ASSERT_STR(batch(fake, 8, mixed, 3),
               "run:0:fill signal:0:8 run:0:spin signal:0:9 run:0:fill signal:0:10");
    finish_after(fake, 20 * US, 10);
    ASSERT_STR(batch(fake, 11, fills, 3), "run:0:fill run:0:fill run:0:fill signal:0:13");
    fake_destroy(fake);
}

TEST_MAIN()
