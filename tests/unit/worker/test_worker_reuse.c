/*
 * Memory in stream order: what the head retires is used again before anybody has seen that it is
 * free, behind the words of those that still use it; a crash finds everything that must run again.
 * The device here does nothing until a test says so.
 *
 * In all of these the device has one MiB: launch 1 fills half of it (slot 1), launch 2 copies from
 * there (slot 2, small).
 */
#include "tests/unit/worker/fake.h"

#define RUN  PLASMON__V1__LAUNCH_KIND__LAUNCH_RUN
#define HALF (FAKE_CHUNK / 8) /* floats: half a MiB */
#define REST (HALF - 1024)    /* fits beside slots 1 and 2, but for a hole */
#define HOLE (4096 - 256)

static void copy_from(struct fake *fake, uint64_t seq, uint32_t to, uint32_t from,
                      uint64_t after)
{
    struct fake_launch launch;

    fake_launch_init(&launch, seq, PLASMON__V1__LAUNCH_KIND__LAUNCH_COPY);
    fake_launch_fresh(&launch, to, 16);
    fake_launch_piece(&launch, FAKE_BASE + FAKE_US, from, HALF);
    launch.box[0][1] = 16;
    fake_launch_after(&launch, FAKE_BASE + FAKE_US, after);
    ASSERT_OK(fake_send(fake, &launch));
}

/* Reads slot 1 on the stream of launch 1. */
static void sum_of(struct fake *fake, uint64_t seq, uint32_t to, uint32_t from,
                   uint64_t after)
{
    struct fake_launch launch;

    fake_launch_init(&launch, seq, RUN);
    fake_launch_function(&launch, "sum");
    fake_launch_fresh(&launch, to, 1);
    fake_launch_operand(&launch, KERNEL_IN, from, HALF);
    launch.scalar[launch.message.n_scalars++] = 0; /* axis */
    launch.scalar[launch.message.n_scalars++] = 1; /* keepdims */
    fake_launch_after(&launch, FAKE_BASE + FAKE_US, after);
    ASSERT_OK(fake_send(fake, &launch));
}

static void fill(struct fake *fake, uint64_t seq, uint32_t slot, int64_t count,
                 uint64_t after)
{
    struct fake_launch launch;

    fake_launch_init(&launch, seq, RUN);
    fake_launch_function(&launch, "fill");
    fake_launch_scalar(&launch, 1.0);
    fake_launch_fresh(&launch, slot, count);
    if (after != 0) {
        fake_launch_after(&launch, FAKE_BASE + FAKE_US, after);
    }
    ASSERT_OK(fake_send(fake, &launch));
}

static const struct store_entry *entry(const struct fake *fake, uint32_t slot)
{
    return &fake->tables[FAKE_US]->entries[slot];
}

static bool same_bytes(const struct fake *fake, uint32_t a, uint32_t b)
{
    return entry(fake, a)->offset < entry(fake, b)->offset + entry(fake, b)->bytes &&
           entry(fake, b)->offset < entry(fake, a)->offset + entry(fake, a)->bytes;
}

/* Both launches, in one batch with what follows until go(). */
static struct fake *begin(void)
{
    struct fake *fake = fake_create_small();

    worker_core_hold(fake->core);
    fill(fake, 1, 1, HALF, 0);
    sum_of(fake, 2, 2, 1, 1);
    return fake;
}

static void go(struct fake *fake)
{
    worker_core_resume(fake->core);
    worker_core_advance(fake->core);
}

TEST(the_next_launch_of_the_stream_has_the_memory_at_once_behind_a_word)
{
    struct fake *fake = begin();

    fake_retire(fake, 1);
    fill(fake, 3, 3, HALF, 2); /* does not fit beside slot 1 */
    go(fake);
    ASSERT_STR(fake_calls(fake), "run:0:fill run:0:sum signal:0:2 run:0:fill signal:0:3");
    ASSERT_TRUE(same_bytes(fake, 1, 3));
    ASSERT_EQ(fake_state(fake, 1), STORE_RETIRED);
    fake_finish(fake, 0, 3);
    ASSERT_STR(fake_reports(fake), "done:1+3");
    ASSERT_EQ(fake_state(fake, 1), STORE_RETIRED);
    fake_free(fake, 1);
    ASSERT_EQ(fake_state(fake, 1), STORE_FREE);
    ASSERT_EQ(fake_state(fake, 3), STORE_SEALED);
    ASSERT_EQ(fake_memory(fake).bytes_used, HALF * 4 + 256);
    fake_free(fake, 2);
    fake_free(fake, 3);
    ASSERT_EQ(fake_memory(fake).bytes_used, 0);
    fake_destroy(fake);
}

TEST(another_stream_waits_on_the_device_for_the_word)
{
    struct fake *fake = begin();

    fake_retire(fake, 1);
    fill(fake, 3, 3, HALF, 0);
    go(fake);
    ASSERT_STR(fake_calls(fake),
               "run:0:fill run:0:sum signal:0:2 join:1:0 run:1:fill signal:1:3");
    fake_destroy(fake);
}

TEST(a_word_that_is_on_its_way_is_enough)
{
    struct fake *fake = begin();

    go(fake);
    fake_retire(fake, 1); /* after its launches: it makes no difference */
    ASSERT_STR(fake_calls(fake), "run:0:fill run:0:sum signal:0:2");
    fill(fake, 3, 3, HALF, 2);
    ASSERT_STR(fake_calls(fake), "run:0:fill signal:0:3");
    ASSERT_TRUE(same_bytes(fake, 1, 3));
    fake_destroy(fake);
}

/*
 * Two that write disjoint boxes of one buffer have no edge between them: each must see to the old
 * content by itself.
 */
TEST(every_writer_of_the_new_buffer_waits_for_the_old_ones)
{
    struct fake *fake = begin();
    struct fake_launch launch;

    fake_retire(fake, 1);
    fill(fake, 3, 3, HALF, 0);
    fake_launch_init(&launch, 4, PLASMON__V1__LAUNCH_KIND__LAUNCH_PUT);
    fake_launch_operand(&launch, KERNEL_OUT, 3, HALF)->consume = 1;
    launch.message.data.len                                    = 4;
    ASSERT_OK(fake_send(fake, &launch));
    go(fake);
    ASSERT_STR(fake_calls(fake),
               "run:0:fill run:0:sum signal:0:2 join:1:0 run:1:fill join:2:0 put:2:0+4 "
               "signal:1:3 signal:2:4");
    fake_destroy(fake);
}

TEST(memory_that_is_there_comes_first)
{
    struct fake *fake = begin();

    fake->grow_bytes += FAKE_CHUNK;
    fake_retire(fake, 1);
    fill(fake, 3, 3, 16, 2);
    fill(fake, 4, 4, HALF, 0); /* in another stream: the device grows instead */
    go(fake);
    ASSERT_STR(fake_calls(fake), "run:0:fill run:0:sum run:0:fill run:1:fill signal:0:3 "
                                 "signal:1:4");
    ASSERT_TRUE(fake_state(fake, 1) != STORE_RETIRED);
    ASSERT_TRUE(!same_bytes(fake, 1, 3) && !same_bytes(fake, 1, 4));
    fake_destroy(fake);
}

/*
 * Launch 1 fills most of the device, 2 reads that in another stream and is seen done, though its
 * own stream does not yet say so of 1, and has got launch 3 meanwhile.
 */
TEST(
    memory_is_used_again_behind_the_last_user_of_each_stream_and_not_behind_the_last_of_all)
{
    enum {
        LARGE          = 150 << 10,
        REST_OF_DEVICE = 105000,
        PART           = 112 << 10,
        HOLE_PART      = 25 << 10
    };
    struct fake *fake = fake_create_small();

    fill(fake, 1, 1, LARGE, 0);
    copy_from(fake, 2, 2, 1, 1);
    fill(fake, 3, 3, REST_OF_DEVICE, 1);
    fake_retire(fake, 1);
    fake_finish(fake, 2, 2);
    (void)fake_calls(fake);
    fill(fake, 4, 4, PART, 3); /* in the stream of 1 and 3 */
    ASSERT_STR(fake_calls(fake), "run:0:fill signal:0:4");
    ASSERT_TRUE(same_bytes(fake, 1, 4));
    fill(fake, 5, 5, HOLE_PART, 0); /* what 4 left */
    ASSERT_STR(fake_calls(fake), "join:1:0 run:1:fill signal:1:5");
    ASSERT_TRUE(same_bytes(fake, 1, 5));
    fake_destroy(fake);
}

TEST(what_is_not_retired_is_waited_for)
{
    struct fake *fake = begin();

    fill(fake, 3, 3, HALF, 2);
    go(fake);
    ASSERT_STR(fake_reports(fake), "starved:3");
    fake_finish(fake, 0, 2);
    ASSERT_STR(fake_reports(fake), "done:1+2");
    (void)fake_calls(fake);
    fake_free(fake, 1);
    ASSERT_STR(fake_calls(fake), "run:0:fill signal:0:3");
    fake_destroy(fake);
}

TEST(a_launch_behind_the_front_still_needs_it)
{
    struct fake *fake = begin();

    fill(fake, 3, 3, HALF, 2);
    sum_of(fake, 4, 4, 1, 1); /* reads slot 1, too, and comes after the front */
    fake_retire(fake, 1);
    go(fake);
    ASSERT_STR(fake_reports(fake), "starved:3");
    ASSERT_TRUE(fake_state(fake, 1) != STORE_RETIRED);
    fake_destroy(fake);
}

TEST(copies_count_as_users)
{
    struct fake *fake = begin();

    copy_from(fake, 3, 3, 1, 1);
    fake_retire(fake, 1);
    fill(fake, 4, 4, HALF, 0);
    go(fake);
    ASSERT_STR(fake_calls(fake),
               "run:0:fill run:0:sum join:2:0 copy:2:0+16->524544<-1.0 "
               "signal:0:2 join:1:0 signal:2:3 join:1:2 run:1:fill signal:1:4");
    fake_destroy(fake);
}

TEST(a_reader_that_holds_it_keeps_it)
{
    struct fake *fake = begin();
    struct store_entry seen;
    uint32_t pin, other;

    go(fake);
    fake_finish(fake, 0, 1);
    ASSERT_OK(store_table_pin(fake->tables[FAKE_US], 1, 1, fake->readers[1], &seen, &pin));
    fake_retire(fake, 1);
    fill(fake, 3, 3, HALF, 2);
    ASSERT_STR(fake_reports(fake), "done:1+1 starved:3");
    /* Nobody else comes in, and it goes as anything does when it is freed. */
    ASSERT_STATUS(
        store_table_pin(fake->tables[FAKE_US], 1, 1, fake->readers[0], &seen, &other),
        PLASMON_ELOST);
    fake_finish(fake, 0, 2);
    fake_free(fake, 1);
    ASSERT_EQ(fake_state(fake, 1), STORE_DOOMED);
    ASSERT_STR(fake_reports(fake), "done:2+1");
    (void)fake_calls(fake);
    store_table_unpin(fake->readers[1], pin);
    worker_core_complete(fake->core);
    ASSERT_STR(fake_calls(fake), "run:0:fill signal:0:3");
    fake_destroy(fake);
}

/*
 * A client writes without a stream: what it gets must be over when it gets it. Nobody frees
 * anything for that.
 */
TEST(what_a_client_writes_waits_for_the_word_itself)
{
    struct fake *fake = begin();
    struct fake_launch launch;

    fake_retire(fake, 1);
    fake_launch_init(&launch, 3, PLASMON__V1__LAUNCH_KIND__LAUNCH_ALLOC);
    fake_launch_fresh(&launch, 3, HALF)->writable_by_client = 1;
    ASSERT_OK(fake_send(fake, &launch));
    go(fake);
    ASSERT_STR(fake_reports(fake), "starved:3");
    fake_finish(fake, 0, 1);
    ASSERT_EQ(fake_state(fake, 3), STORE_FREE);
    fake_finish(fake, 0, 2);
    ASSERT_EQ(fake_state(fake, 3), STORE_WRITING);
    worker_core_complete(fake->core);
    ASSERT_STR(fake_reports(fake), "done:1+1 done:2+1 done:3+1");
    fake_destroy(fake);
}

/* ------------------------------------------------------------------------------ scratch */

TEST(launches_of_a_stream_hand_their_scratch_on)
{
    struct fake *fake = fake_create();

    fake->scratch = 65536;
    fill(fake, 1, 1, 4, 0);
    fill(fake, 2, 2, 4, 1);
    fill(fake, 3, 3, 4, 2);
    fill(fake, 4, 4, 4, 0); /* in the other stream: its own */
    ASSERT_STR(fake_calls(fake), "run:0:fill signal:0:1 run:0:fill signal:0:2 run:0:fill "
                                 "signal:0:3 run:1:fill signal:1:4");
    ASSERT_EQ(fake_memory(fake).bytes_used, 2 * 65536 + 4 * 256);
    fake_finish(fake, 0, 2);
    ASSERT_EQ(fake_memory(fake).bytes_used, 2 * 65536 + 4 * 256);
    fake_finish(fake, 0, 3);
    ASSERT_EQ(fake_memory(fake).bytes_used, 65536 + 4 * 256);
    fake_finish(fake, 1, 4);
    ASSERT_EQ(fake_memory(fake).bytes_used, 4 * 256);
    fake_destroy(fake);
}

TEST(scratch_that_a_waiting_front_took_over_is_let_go)
{
    struct fake *fake = fake_create_small();

    fake->scratch = 65536;
    fill(fake, 1, 1, HALF, 0);
    fill(fake, 2, 2, HALF, 1); /* no room for what it makes; its scratch would be there */
    ASSERT_STR(fake_reports(fake), "starved:2");
    fake_finish(fake, 0, 1);
    ASSERT_EQ(fake_memory(fake).bytes_used, HALF * 4);
    fake_starve(fake, 2);
    ASSERT_STR(fake_reports(fake), "done:1+1 failed:2:EDEVMEM");
    fake_destroy(fake);
}

/* ------------------------------------------------------------------------------ crashes */

static void crash(struct fake *fake, uint64_t words0, uint64_t want_unfinished)
{
    uint64_t count = 0;

    fake->timelines[FAKE_US]->stream[0].value = words0;
    fake_restart(fake);
    for (size_t i = 0; i < fake->unfinished.items.count; i++) {
        count += ((struct wire_range *)pl_vec_at(&fake->unfinished.items, i))->count;
    }
    ASSERT_EQ(count, want_unfinished);
}

TEST(before_the_word_a_crash_finds_both_where_they_were)
{
    struct fake *fake = begin();
    uint64_t first, second;

    fake_retire(fake, 1);
    fill(fake, 3, 3, HALF, 2);
    go(fake);
    first  = entry(fake, 1)->offset;
    second = entry(fake, 3)->offset;
    crash(fake, 0, 3);
    fill(fake, 1, 1, HALF, 0);
    sum_of(fake, 2, 2, 1, 1);
    fill(fake, 3, 3, HALF, 2);
    /* One at a time: what is to be read is made and read before it is overwritten. */
    ASSERT_STR(fake_calls(fake), "run:0:fill signal:0:1");
    fake_finish(fake, 0, 1);
    ASSERT_STR(fake_calls(fake), "run:0:sum signal:0:2");
    ASSERT_EQ(fake->args[1].data.addr, first);
    fake_finish(fake, 0, 2);
    ASSERT_STR(fake_calls(fake), "run:0:fill signal:0:3");
    ASSERT_EQ(fake->args[0].data.addr, second);
    fake_finish(fake, 0, 3);
    ASSERT_STR(fake_reports(fake), "done:1+1 done:2+1 done:3+1");
    ASSERT_EQ(fake_state(fake, 3), STORE_SEALED);
    ASSERT_EQ(fake_state(fake, 1), STORE_RETIRED);
    for (uint32_t slot = 1; slot <= 3; slot++) {
        fake_free(fake, slot);
    }
    ASSERT_EQ(fake_memory(fake).bytes_used, 0);
    fake_destroy(fake);
}

/* Nothing new gets into what is still to be read: not the part of it that nobody had taken either. */
TEST(what_is_left_of_it_stays_until_it_is_freed)
{
    const uint64_t all = FAKE_CHUNK - HOLE;
    struct fake *fake  = begin();

    fake_retire(fake, 1);
    fill(fake, 3, 3, REST, 2);
    fill(fake, 4, 4, HALF / 2, 3); /* takes a half of slot 1 */
    go(fake);
    ASSERT_TRUE(same_bytes(fake, 1, 4));
    crash(fake, 0, 4);
    ASSERT_EQ(fake_memory(fake).bytes_used, all);
    fill(fake, 1, 1, HALF, 0);
    sum_of(fake, 2, 2, 1, 1);
    fake_finish(fake, 0, 1);
    ASSERT_EQ(fake_memory(fake).bytes_used, all); /* the other half is still read */
    fake_free(fake, 1);
    ASSERT_EQ(fake_memory(fake).bytes_used, all - HALF / 2 * 4);
    fake_destroy(fake);
}

TEST(behind_the_word_only_the_new_content_comes_again)
{
    struct fake *fake = begin();

    fake_retire(fake, 1);
    fill(fake, 3, 3, HALF, 2);
    go(fake);
    crash(fake, 2, 1); /* launch 3 may have begun */
    ASSERT_EQ(fake_state(fake, 2), STORE_SEALED);
    ASSERT_EQ(fake_state(fake, 1), STORE_RETIRED);
    fake_retire(fake, 1); /* told again: nothing happens */
    fill(fake, 3, 3, HALF, 2);
    fake_free(fake, 1);
    fake_finish(fake, 0, 3);
    ASSERT_EQ(fake_state(fake, 3), STORE_SEALED);
    ASSERT_EQ(fake_memory(fake).bytes_used, entry(fake, 3)->bytes + 256);
    fake_destroy(fake);
}

/* The producer's end must not seal it: it is nobody's any more. */
TEST(a_retired_buffer_is_never_sealed)
{
    struct fake *fake = begin();

    fake_retire(fake, 1);
    fill(fake, 3, 3, HALF, 2);
    go(fake);
    fake_finish(fake, 0, 1);
    ASSERT_EQ(fake_state(fake, 1), STORE_RETIRED);
    crash(fake, 0, 3);
    fill(fake, 1, 1, HALF, 0);
    fake_finish(fake, 0, 1);
    ASSERT_EQ(fake_state(fake, 1), STORE_RETIRED);
    crash(fake, 1, 2); /* and so a second crash finds it as the first did */
    ASSERT_EQ(fake_state(fake, 1), STORE_RETIRED);
    sum_of(fake, 2, 2, 1, 1);
    fake_finish(fake, 0, 2);
    fill(fake, 3, 3, HALF, 2);
    fake_finish(fake, 0, 3);
    ASSERT_EQ(fake_state(fake, 3), STORE_SEALED);
    fake_destroy(fake);
}

TEST_MAIN()
