/*
 * What a put with a second copy costs the head must not grow with how many there are, nor with what
 * lies on devices and in host memory that are full, nor with how many values wait for a place.
 * Counted in steps of its searches (head_core.steps), not in time, which is only printed.
 * PLASMON_SCALE says how many puts.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "head/core_int.h"
#include "tests/harness/test.h"
#include "tests/unit/head/core.h"

enum { VALUE = 4096, SECOND_MS = 1000 };

static struct head_core *core;
static uint64_t session, now_ms, failed;

static void take_frame(void *user, uint64_t to, const uint8_t *body, size_t length)
{
    Plasmon__V1__HeadFrame *frame;
    struct wire_arena arena;
    struct pl_err err = {0};
    uint8_t *bytes;

    (void)user;
    (void)to;
    ASSERT_OK(wire_arena_init(&arena, WIRE_ARENA_BYTES_MAX));
    bytes = core_frame(&arena, body, &length);
    ASSERT_OK(wire_decode_head_frame(&arena, bytes, length, &frame, &err));
    failed += frame->n_failed;
    wire_arena_finish(&arena);
}

static void begin(void)
{
    static const struct head_ops ops = {.client_frame   = take_frame,
                                        .worker_command = core_drop_command,
                                        .fence          = core_drop_fence,
                                        .session_ended  = core_drop_end,
                                        .random64       = core_count_up,
                                        .spill          = core_drop_spill};
    const struct head_config config  = {.ops = &ops, .retries = UINT32_MAX, .epoch = 1};

    test_set_timeout(600);
    ASSERT_OK(head_core_create(&config, &core));
    failed = 0;
    now_ms = 1;
    head_core_tick(core, now_ms);
}

static void end(void)
{
    head_core_check(core);
    head_core_destroy(core);
}

static uint64_t scale(void)
{
    const char *text = getenv("PLASMON_SCALE");

    return text != NULL ? strtoull(text, NULL, 10) : 4000;
}

static uint32_t join(const char *host, uint32_t host_device, uint64_t values)
{
    uint32_t device = core_join_reachable(core, host, host_device, values * VALUE);

    head_core_flush(core);
    return device;
}

static void spills(const char *host, uint64_t values)
{
    head_core_spill_up(
        core, host, &(struct head_spill_config){.memory_bytes = values * VALUE, .life = 1});
    head_core_flush(core);
}

static void send(Plasmon__V1__Task *task)
{
    Plasmon__V1__ClientFrame frame = PLASMON__V1__CLIENT_FRAME__INIT;
    struct pl_err err              = {0};

    frame.tasks   = &task;
    frame.n_tasks = 1;
    ASSERT_OK(head_core_client_frame(core, session, &frame, &err));
    head_core_flush(core);
}

/* Ref `ref` is put on a device, or made there by a task that nobody waits for. */
static void value(uint64_t ref, uint32_t device, bool replica)
{
    static uint8_t bytes[VALUE];
    Plasmon__V1__Task task   = PLASMON__V1__TASK__INIT;
    Plasmon__V1__Shape shape = PLASMON__V1__SHAPE__INIT;
    Plasmon__V1__Arg arg     = PLASMON__V1__ARG__INIT;
    Plasmon__V1__Arg *args[] = {&arg};
    uint64_t dim             = VALUE;

    shape.dtype      = PL_U8;
    shape.n_dim      = 1;
    shape.dim        = &dim;
    arg.mode         = PLASMON__V1__MODE__MODE_OUT;
    arg.ref          = ref;
    arg.shape        = &shape;
    task.id          = ref;
    task.kind        = PLASMON__V1__TASK_KIND__TASK_PUT;
    task.args        = args;
    task.n_args      = 1;
    task.place       = device + 1;
    task.data.data   = bytes;
    task.data.len    = sizeof(bytes);
    task.put_replica = replica;
    send(&task);
}

static void release(uint64_t ref, uint64_t count)
{
    Plasmon__V1__ClientFrame frame = PLASMON__V1__CLIENT_FRAME__INIT;
    Plasmon__V1__Range range       = PLASMON__V1__RANGE__INIT;
    Plasmon__V1__Range *ranges[]   = {&range};
    struct pl_err err              = {0};

    range.first     = ref;
    range.count     = count;
    frame.release   = ranges;
    frame.n_release = 1;
    ASSERT_OK(head_core_client_frame(core, session, &frame, &err));
    head_core_flush(core);
}

static void done(struct head_device *by)
{
    Plasmon__V1__WorkerFrame frame = PLASMON__V1__WORKER_FRAME__INIT;
    Plasmon__V1__Range range       = PLASMON__V1__RANGE__INIT;
    Plasmon__V1__Range *ranges[]   = {&range};
    struct pl_err err              = {0};

    if (by->seq_sent >= by->seq_oldest) {
        range.first  = by->seq_oldest;
        range.count  = by->seq_sent - by->seq_oldest + 1;
        frame.done   = ranges;
        frame.n_done = 1;
        ASSERT_OK(head_core_worker_frame(core, by->index, &frame, &err));
        head_core_flush(core);
    }
}

/* Workers and stores have done all that they were asked, and what came of that. */
static void settle(void)
{
    bool busy = true;

    while (busy) {
        struct pl_list *pos;

        busy = head_core_under_way(core, 0);
        for (uint32_t i = 0; i < core->devices.count; i++) {
            done(head_device_at(core, i));
        }
        pl_list_for_each(pos, &core->spill_hosts) {
            struct head_spill_host *spill =
                pl_container_of(pos, struct head_spill_host, link);

            while (!pl_list_empty(&spill->requests)) {
                busy = true;
                head_core_spill_done(
                    core, spill->home.host,
                    pl_list_first(&spill->requests, struct head_spill_request, link)->op.id,
                    &(struct head_spill_answer){.host_buffer = 9, .text = ""});
            }
        }
        head_core_flush(core);
    }
}

/* Steps of one put, on average, and the time it took. */
static double cost(const char *what, uint64_t first, uint64_t count, uint32_t device,
                   bool settled)
{
    uint64_t began = core->steps, began_ns = pl_thread_cpu_ns();

    for (uint64_t i = 0; i < count; i++) {
        value(first + i, device, true);
        if (settled && i % 64 == 63) {
            settle();
        }
    }
    printf("# %s: %llu puts, %.0f ns and %.2f steps each\n", what,
           (unsigned long long)count,
           (double)(pl_thread_cpu_ns() - began_ns) / (double)count,
           (double)(core->steps - began) / (double)count);
    return (double)(core->steps - began) / (double)count;
}

enum {
    STEPS_MAX  = 64,
    STEPS_MANY = 1024, /* where host memory is full: some are looked at for smaller ones */
    STEPS_IDLE = 4096  /* a second, for those that wait */
};

TEST(puts_whose_copies_go_to_host_memory_cost_the_same_however_many)
{
    uint64_t count = scale();

    begin();
    spills("a", 4 * count);
    (void)join("a", 0, 2 * count);
    session = core_client(core);
    value(1, 0, true);
    settle(); /* the memory is there */
    ASSERT_TRUE(cost("none is done", 2, count, 0, false) < STEPS_MAX);
    settle();
    ASSERT_EQ(core->seconds.safe_count[HEAD_SAFE_NEAR], count + 1);
    release(1, count + 1);
    settle();
    ASSERT_EQ(core->counts.buffers, 0);
    ASSERT_TRUE(cost("done 64 at a time", count + 2, count, 0, true) < STEPS_MAX);
    ASSERT_EQ(failed, 0);
    end();
}

/* Places that came free here and there are found again. */
TEST(holes_between_copies_are_found_however_many)
{
    uint64_t count = scale(), began;

    begin();
    spills("a", 4 * count);
    (void)join("a", 0, 4 * count);
    session = core_client(core);
    for (uint64_t ref = 1; ref <= count; ref++) {
        value(ref, 0, true);
        if (ref % 64 == 0) {
            settle();
        }
    }
    settle();
    began = core->steps;
    for (uint64_t ref = 1; ref <= count; ref += 2) {
        release(ref, 1);
    }
    printf("# releases: %.2f steps each\n",
           (double)(core->steps - began) / (double)(count / 2));
    ASSERT_TRUE(core->steps - began < STEPS_MAX * count);
    ASSERT_TRUE(cost("into holes", count + 1, count / 2, 0, true) < STEPS_MAX);
    end();
}

/* Full of what nobody may drop, or spill. */
static void full_device(const char *host, uint32_t device, uint64_t first, uint64_t values)
{
    ASSERT_EQ(join(host, 0, values), device);
    for (uint64_t i = 0; i < values; i++) {
        value(first + i, device, false);
        if (i % 64 == 63) {
            settle();
        }
    }
    settle();
}

TEST(a_full_device_of_another_host_costs_the_same_however_much_lies_there)
{
    uint64_t count = scale();

    begin();
    spills("a", 4 * count);
    (void)join("a", 0, 4 * count);
    session = core_client(core);
    full_device("b", 1, 1000000, count);
    ASSERT_TRUE(cost("beside a full device", 1, count, 0, true) < STEPS_MAX);
    ASSERT_EQ(core->seconds.safe_count[HEAD_SAFE_NEAR], count);
    end();
}

/* None of which may go. */
TEST(a_device_full_of_second_copies_costs_the_same_however_many_there_are)
{
    uint64_t count = scale();

    begin();
    spills("a", 4 * count);
    (void)join("a", 0, 4 * count);
    (void)join("b", 0, count);
    session = core_client(core);
    ASSERT_TRUE(cost("while there is room", 1, count, 0, true) < STEPS_MAX);
    settle();
    ASSERT_EQ(core->seconds.safe_count[HEAD_SAFE_APART], count);
    ASSERT_TRUE(cost("beside them", count + 1, count, 0, true) < STEPS_MAX);
    ASSERT_EQ(core->seconds.safe_count[HEAD_SAFE_NEAR], count);
    end();
}

/* Its host has memory, which is full, too. */
TEST(a_full_device_and_full_host_memory_cost_the_same_however_much_lies_there)
{
    uint64_t count = scale(), began, began_ns;

    begin();
    spills("a", 4 * count);
    spills("b", count);
    (void)join("a", 0, 4 * count);
    session = core_client(core);
    full_device("b", 1, 1000000, count);
    began    = core->steps;
    began_ns = pl_thread_cpu_ns();
    for (uint64_t i = 0; i < 2 * count; i++) {
        value(2000000 + i, 1, false); /* spills others until nothing can be spilled */
        if (i % 64 == 63) {
            settle();
        }
    }
    settle();
    printf("# until host memory is full: %.0f ns and %.2f steps each\n",
           (double)(pl_thread_cpu_ns() - began_ns) / (double)(2 * count),
           (double)(core->steps - began) / (double)(2 * count));
    ASSERT_TRUE(core->steps - began < 2 * count * STEPS_MANY);
    ASSERT_TRUE(cost("beside a full host", 1, count, 0, true) < STEPS_MAX);
    ASSERT_TRUE(core->seconds.safe_count[HEAD_SAFE_NEAR] >= count);
    end();
}

TEST(a_put_that_is_refused_costs_the_same_however_many_are_kept)
{
    uint64_t count = scale();

    begin();
    spills("a", count);
    (void)join("a", 0, 4 * count);
    session = core_client(core);
    ASSERT_TRUE(cost("until there is no place", 1, 2 * count, 0, true) < STEPS_MAX);
    ASSERT_TRUE(failed > count / 2 && failed < 2 * count);
    ASSERT_EQ(core->seconds.safe_count[HEAD_SAFE_NEAR], 2 * count - failed);
    end();
}

/* They are looked at again, in turn, and that takes little. */
TEST(copies_that_wait_for_a_place_cost_the_same_however_many)
{
    uint64_t count = scale(), began, began_ns;

    begin();
    spills("a", 4 * count);
    (void)join("a", 0, 4 * count);
    session = core_client(core);
    full_device("b", 1, 1000000, count);
    (void)cost("to wait", 1, count, 0, true);
    settle();
    ASSERT_EQ(core->seconds.counts[HEAD_SECOND_WANTING], count);
    began    = core->steps;
    began_ns = pl_thread_cpu_ns();
    for (uint32_t i = 0; i < 100; i++) {
        now_ms += SECOND_MS / 10;
        head_core_tick(core, now_ms);
        head_core_flush(core);
        head_core_flush(core);
    }
    printf("# %llu wait: %.3f ms and %.0f steps a second\n", (unsigned long long)count,
           (double)(pl_thread_cpu_ns() - began_ns) / 1e7,
           (double)(core->steps - began) / 10);
    ASSERT_TRUE(core->steps - began < 10 * STEPS_IDLE);
    release(1000000,
            count); /* now there is room: the first that find it take the rest along */
    for (uint32_t i = 0; i < 2; i++) {
        now_ms += SECOND_MS;
        head_core_tick(core, now_ms);
        settle();
    }
    ASSERT_EQ(core->seconds.safe_count[HEAD_SAFE_APART], count);
    ASSERT_EQ(core->seconds.counts[HEAD_SECOND_WANTING], 0);
    end();
}

/* More full devices than are looked at in a second; the last one can make room. */
TEST(a_search_among_full_devices_goes_on_where_it_ended)
{
    enum { FULL = 600 };
    char host[16];

    begin();
    spills("a", 64);
    (void)join("a", 0, 64);
    session = core_client(core);
    for (uint32_t i = 1; i <= FULL; i++) {
        (void)snprintf(host, sizeof(host), "full %u", i);
        full_device(host, i, 1000000 + i, 1);
    }
    spills("last", 64);
    ASSERT_EQ(join("last", 0, 2), FULL + 1);
    value(2000000, FULL + 1, false);
    settle();
    value(1, 0, true);
    settle();
    ASSERT_EQ(core->seconds.safe_count[HEAD_SAFE_NEAR], 1);
    for (uint32_t i = 0; i < 5; i++) {
        now_ms += SECOND_MS;
        head_core_tick(core, now_ms);
        settle();
    }
    ASSERT_EQ(core->seconds.safe_count[HEAD_SAFE_APART], 1);
    end();
}

TEST_MAIN()
