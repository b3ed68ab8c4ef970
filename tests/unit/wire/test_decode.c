/* Decoding: what comes back is what was sent, it is fast enough, and the arena lives between messages. */
#include "tests/harness/test.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "tests/unit/wire/samples.h"

static uint8_t *create(size_t length)
{
    return pl_alloc(length);
}

/* A frame with random counts and values, within the limits. */
static Plasmon__V1__ClientFrame *random_frame(struct wire_arena *arena, uint64_t *seed)
{
    Plasmon__V1__ClientFrame *frame = wire_sample_tasks(arena, test_random(seed) % 40);

    for (size_t i = 0; i < frame->n_tasks; i++) {
        Plasmon__V1__Task *task = frame->tasks[i];
        uint64_t r              = test_random(seed);

        task->id              = r | 1;
        task->function        = (uint32_t)test_random(seed);
        task->n_args          = r % 3;
        task->n_scalars       = r / 3 % 3;
        task->place           = (uint32_t)(r % 100);
        task->scalars[0]      = test_random(seed);
        task->args[0]->ref    = test_random(seed) | 1;
        task->args[1]->client = test_random(seed);
        if (r & 1) {
            task->label = wire_arena_alloc(arena, 8);
            memcpy(task->label, "label", 6);
        }
    }
    return frame;
}

static void assert_same_task(const Plasmon__V1__Task *a, const Plasmon__V1__Task *b)
{
    ASSERT_EQ(a->id, b->id);
    ASSERT_EQ(a->function, b->function);
    ASSERT_EQ(a->place, b->place);
    ASSERT_STR(a->label, b->label);
    ASSERT_EQ(a->n_args, b->n_args);
    ASSERT_EQ(a->n_scalars, b->n_scalars);
    for (size_t i = 0; i < a->n_args; i++) {
        ASSERT_EQ(a->args[i]->mode, b->args[i]->mode);
        ASSERT_EQ(a->args[i]->ref, b->args[i]->ref);
        ASSERT_EQ(a->args[i]->client, b->args[i]->client);
    }
    for (size_t i = 0; i < a->n_scalars; i++) {
        ASSERT_EQ(a->scalars[i], b->scalars[i]);
    }
}

TEST(random_frames_come_back_as_they_were_sent)
{
    uint64_t seed = test_seed();
    struct wire_arena out, in;

    ASSERT_OK(wire_arena_init(&out, WIRE_ARENA_BYTES_MAX));
    ASSERT_OK(wire_arena_init(&in, WIRE_ARENA_BYTES_MAX));
    for (int round = 0; round < 500; round++) {
        Plasmon__V1__ClientFrame *sent, *got;
        struct pl_err err;
        uint8_t *bytes;
        size_t length;

        wire_arena_reset(&out);
        wire_arena_reset(&in);
        sent = random_frame(&out, &seed);
        ASSERT_OK(wire_encode(&sent->base, create, &bytes, &length));
        if (wire_decode_client_frame(&in, bytes, length, &got, &err) != PLASMON_OK) {
            test_fail(__FILE__, __LINE__, "%s", err.text);
        }
        pl_free(bytes); /* nothing in the result may point into the message */
        ASSERT_EQ(got->n_tasks, sent->n_tasks);
        for (size_t i = 0; i < got->n_tasks; i++) {
            assert_same_task(sent->tasks[i], got->tasks[i]);
        }
    }
    wire_arena_finish(&in);
    wire_arena_finish(&out);
}

TEST(the_arena_grows_and_then_needs_no_more_blocks)
{
    struct wire_arena out, in;
    struct pl_err err;

    ASSERT_OK(wire_arena_init(&out, WIRE_ARENA_BYTES_MAX));
    ASSERT_OK(wire_arena_init(&in, WIRE_ARENA_BYTES_MAX));
    Plasmon__V1__ClientFrame *sent = wire_sample_tasks(&out, 4096), *got;
    uint8_t *bytes;
    size_t length, used;

    ASSERT_OK(wire_encode(&sent->base, create, &bytes, &length));
    ASSERT_OK(wire_decode_client_frame(&in, bytes, length, &got, &err));
    ASSERT_NOT_NULL(in.overflow);
    used = in.total;

    wire_arena_reset(&in);
    ASSERT_NULL(in.overflow);
    for (int round = 0; round < 3; round++) {
        ASSERT_OK(wire_decode_client_frame(&in, bytes, length, &got, &err));
        ASSERT_EQ(in.total, used);
        wire_arena_reset(&in);
    }
    pl_free(bytes);
    wire_arena_finish(&in);
    wire_arena_finish(&out);
}

TEST(arena_memory_is_zeroed_and_on_sixteen)
{
    struct wire_arena arena;
    uint64_t seed = test_seed();

    ASSERT_OK(wire_arena_init(&arena, 1 << 20));
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < 200; i++) {
            size_t bytes = test_random(&seed) % 300 + 1;
            uint8_t *ptr = i % 3 == 0 ? arena.allocator.alloc(&arena, bytes)
                                      : wire_arena_alloc(&arena, bytes);

            ASSERT_NOT_NULL(ptr);
            if (i % 3 != 0) {
                ASSERT_EQ((uintptr_t)ptr % 16, 0);
                for (size_t b = 0; b < bytes; b++) {
                    ASSERT_EQ(ptr[b], 0);
                }
            }
            memset(ptr, 0xa5, bytes);
        }
        wire_arena_reset(&arena);
    }
    wire_arena_finish(&arena);
}

TEST(encoding_refuses_what_the_other_side_would_refuse)
{
    static uint8_t big[WIRE_MESSAGE_BYTES_MAX];
    Plasmon__V1__Data data       = PLASMON__V1__DATA__INIT;
    Plasmon__V1__Data *list[]    = {&data};
    Plasmon__V1__HeadFrame frame = PLASMON__V1__HEAD_FRAME__INIT;
    uint8_t *bytes;
    size_t length;

    data.bytes   = (ProtobufCBinaryData){.len = sizeof(big), .data = big};
    frame.n_data = 1;
    frame.data   = list;
    ASSERT_STATUS(wire_encode(&frame.base, create, &bytes, &length), PLASMON_ELIMIT);
}

/* A worker that says one that the head does not know is disconnected. */
TEST(every_reason_to_wait_is_known_to_the_head)
{
    const ProtobufCEnumDescriptor *reasons = &plasmon__v1__wait_why__descriptor;
    Plasmon__V1__WorkerFrame frame         = PLASMON__V1__WORKER_FRAME__INIT, *got;
    Plasmon__V1__Header header             = PLASMON__V1__HEADER__INIT;
    Plasmon__V1__WorkerStats stats         = PLASMON__V1__WORKER_STATS__INIT;
    Plasmon__V1__LaunchWait wait           = PLASMON__V1__LAUNCH_WAIT__INIT;
    Plasmon__V1__LaunchWait *waits[]       = {&wait};
    struct wire_arena arena;
    struct pl_err err;
    uint8_t *bytes;
    size_t length;

    ASSERT_OK(wire_arena_init(&arena, WIRE_ARENA_BYTES_MAX));
    header.protocol = WIRE_PROTOCOL;
    header.seq      = 1;
    frame.header    = &header;
    frame.stats     = &stats;
    stats.n_waits   = 1;
    stats.waits     = waits;
    wait.seq        = 1;
    for (unsigned i = 0; i < reasons->n_values; i++) {
        wait.why = (Plasmon__V1__WaitWhy)reasons->values[i].value;
        ASSERT_OK(wire_encode(&frame.base, create, &bytes, &length));
        ASSERT_OK(wire_decode_worker_frame(&arena, bytes, length, &got, &err));
        pl_free(bytes);
        wire_arena_reset(&arena);
    }
    wire_arena_finish(&arena);
}

TEST(more_of_a_node_than_there_is_is_refused)
{
    Plasmon__V1__WorkerFrame frame       = PLASMON__V1__WORKER_FRAME__INIT, *got;
    Plasmon__V1__Header header           = PLASMON__V1__HEADER__INIT;
    Plasmon__V1__WorkerStats stats       = PLASMON__V1__WORKER_STATS__INIT;
    Plasmon__V1__NumaPlace numa          = PLASMON__V1__NUMA_PLACE__INIT;
    const Plasmon__V1__NumaPlace wrong[] = {
        {.node = UINT32_MAX}, {.processors = 1, .near = 2}, {.pages = 1, .pages_near = 2}};
    struct wire_arena arena;
    struct pl_err err;
    uint8_t *bytes;
    size_t length;

    ASSERT_OK(wire_arena_init(&arena, WIRE_ARENA_BYTES_MAX));
    header.protocol = WIRE_PROTOCOL;
    header.seq      = 1;
    frame.header    = &header;
    frame.stats     = &stats;
    stats.numa      = &numa;
    for (size_t i = 0; i < PL_COUNT(wrong); i++) {
        numa.node       = wrong[i].node;
        numa.processors = wrong[i].processors;
        numa.near       = wrong[i].near;
        numa.pages      = wrong[i].pages;
        numa.pages_near = wrong[i].pages_near;
        ASSERT_OK(wire_encode(&frame.base, create, &bytes, &length));
        ASSERT_STATUS(wire_decode_worker_frame(&arena, bytes, length, &got, &err),
                      PLASMON_EMALFORMED);
        ASSERT_CONTAINS(err.text, "NUMA node");
        pl_free(bytes);
        wire_arena_reset(&arena);
    }
    wire_arena_finish(&arena);
}

/* A worker's hello, there and back. */
static plasmon_status_t hello_decoded(Plasmon__V1__WorkerHello *hello, struct pl_err *err)
{
    Plasmon__V1__WorkerFrame frame = PLASMON__V1__WORKER_FRAME__INIT, *got;
    Plasmon__V1__Header header     = PLASMON__V1__HEADER__INIT;
    struct wire_arena arena;
    plasmon_status_t status;
    uint8_t *bytes;
    size_t length;

    ASSERT_OK(wire_arena_init(&arena, WIRE_ARENA_BYTES_MAX));
    header.protocol = WIRE_PROTOCOL;
    header.seq      = 1;
    frame.header    = &header;
    frame.hello     = hello;
    hello->memory   = 1;
    ASSERT_OK(wire_encode(&frame.base, create, &bytes, &length));
    status = wire_decode_worker_frame(&arena, bytes, length, &got, err);
    pl_free(bytes);
    wire_arena_finish(&arena);
    return status;
}

TEST(a_worker_that_says_it_has_had_more_launches_than_there_are_numbers_is_refused)
{
    Plasmon__V1__WorkerHello hello = PLASMON__V1__WORKER_HELLO__INIT;
    struct pl_err err;

    for (unsigned i = 0; i < 3; i++) {
        hello.enqueued = WIRE_SEQ_MAX + (i == 1);
        hello.received = WIRE_SEQ_MAX + (i == 2);
        ASSERT_STATUS(hello_decoded(&hello, &err),
                      i == 0 ? PLASMON_OK : PLASMON_EMALFORMED);
    }
    ASSERT_CONTAINS(err.text, "received");
}

TEST(slots_that_are_held_come_in_their_order)
{
    Plasmon__V1__WorkerHello hello = PLASMON__V1__WORKER_HELLO__INIT;
    uint32_t held[]                = {0, 3, UINT32_MAX};
    struct pl_err err;

    hello.held   = held;
    hello.n_held = PL_COUNT(held);
    for (unsigned i = 0; i < 2; i++) {
        held[1] = i == 0 ? 3 : 0;
        ASSERT_STATUS(hello_decoded(&hello, &err),
                      i == 0 ? PLASMON_OK : PLASMON_EMALFORMED);
    }
    ASSERT_CONTAINS(err.text, "held[1]");
}

TEST(more_times_than_are_counted_are_refused)
{
    enum { MOST = 1 + WIRE_WAIT_WHYS };
    static uint64_t counts[PL_HISTOGRAM_BUCKETS + 1];
    Plasmon__V1__WorkerFrame frame = PLASMON__V1__WORKER_FRAME__INIT, *got;
    Plasmon__V1__Header header     = PLASMON__V1__HEADER__INIT;
    Plasmon__V1__WorkerStats stats = PLASMON__V1__WORKER_STATS__INIT;
    Plasmon__V1__Histogram times   = PLASMON__V1__HISTOGRAM__INIT;
    Plasmon__V1__Histogram *list[MOST + 1];
    struct wire_arena arena;
    struct pl_err err;
    uint8_t *bytes;
    size_t length;

    ASSERT_OK(wire_arena_init(&arena, WIRE_ARENA_BYTES_MAX));
    header.protocol = WIRE_PROTOCOL;
    header.seq      = 1;
    frame.header    = &header;
    frame.stats     = &stats;
    for (size_t i = 0; i < PL_COUNT(list); i++) {
        list[i] = &times;
    }
    times.counts = counts;
    for (unsigned i = 0; i < 6; i++) {
        bool queue  = i % 2 == 0;
        size_t most = queue ? (size_t)MOST : 8;

        times.n_counts    = PL_HISTOGRAM_BUCKETS + (i / 2 == 1);
        stats.queue       = list;
        stats.transfers   = list;
        stats.n_queue     = queue ? most + (i / 2 == 2) : 0;
        stats.n_transfers = queue ? 0 : most + (i / 2 == 2);
        ASSERT_OK(wire_encode(&frame.base, create, &bytes, &length));
        ASSERT_EQ(wire_decode_worker_frame(&arena, bytes, length, &got, &err) == PLASMON_OK,
                  i / 2 == 0);
        ASSERT_TRUE(i / 2 == 0 ||
                    strstr(err.text, queue ? "times of a queue" : "transfers") != NULL);
        pl_free(bytes);
        wire_arena_reset(&arena);
    }
    wire_arena_finish(&arena);
}

TEST(more_of_what_is_left_than_there_is_cannot_be_freed)
{
    Plasmon__V1__WorkerFrame frame = PLASMON__V1__WORKER_FRAME__INIT, *got;
    Plasmon__V1__Header header     = PLASMON__V1__HEADER__INIT;
    Plasmon__V1__WorkerStats stats = PLASMON__V1__WORKER_STATS__INIT;
    Plasmon__V1__CommsLeft left    = PLASMON__V1__COMMS_LEFT__INIT;
    struct wire_arena arena;
    struct pl_err err;
    uint8_t *bytes;
    size_t length;

    ASSERT_OK(wire_arena_init(&arena, WIRE_ARENA_BYTES_MAX));
    header.protocol    = WIRE_PROTOCOL;
    header.seq         = 1;
    frame.header       = &header;
    frame.stats        = &stats;
    stats.left         = &left;
    left.communicators = 2;
    for (left.freeing = 2; left.freeing <= 3; left.freeing++) {
        ASSERT_OK(wire_encode(&frame.base, create, &bytes, &length));
        ASSERT_STATUS(wire_decode_worker_frame(&arena, bytes, length, &got, &err),
                      left.freeing == 2 ? PLASMON_OK : PLASMON_EMALFORMED);
        pl_free(bytes);
        wire_arena_reset(&arena);
    }
    ASSERT_CONTAINS(err.text, "3 of 2 communicators");
    wire_arena_finish(&arena);
}

/*
 * The target is 2 M small tasks a second in a release build; here a floor that even a loaded
 * machine must pass.
 */
TEST(small_tasks_decode_at_a_good_rate)
{
    struct wire_arena out, in;
    Plasmon__V1__ClientFrame *sent, *got;
    uint64_t best = UINT64_MAX;
    struct pl_err err;
    uint8_t *bytes;
    size_t length;

    ASSERT_OK(wire_arena_init(&out, WIRE_ARENA_BYTES_MAX));
    ASSERT_OK(wire_arena_init(&in, WIRE_ARENA_BYTES_MAX));
    sent = wire_sample_tasks(&out, 64);
    ASSERT_OK(wire_encode(&sent->base, create, &bytes, &length));
    for (int round = 0; round < 200; round++) {
        uint64_t start = pl_now_ns();

        for (int i = 0; i < 10; i++) {
            wire_arena_reset(&in);
            ASSERT_OK(wire_decode_client_frame(&in, bytes, length, &got, &err));
        }
        best = pl_min_u64(best, pl_now_ns() - start);
    }
    printf("# %.0f ns a task, %zu bytes a task\n", (double)best / 640, length / 64);
    ASSERT_TRUE(best / 640 < 10000);
    pl_free(bytes);
    wire_arena_finish(&in);
    wire_arena_finish(&out);
}

TEST_MAIN()
