/*
 * Devices of the cluster: what number each gets, what goes with a host, and what a worker that
 * comes back is told.
 */
#include "head/core_int.h"
#include "tests/harness/test.h"
#include "tests/unit/head/core.h"

#include <string.h>

TEST(devices_of_a_host_are_numbered_in_its_order_whoever_comes_first)
{
    struct head_core *core = core_make();

    core_announce(core, "a", 4);
    for (uint32_t i = 4; i-- > 0;) {
        ASSERT_EQ(core_join(core, "a", i), i);
    }
    head_core_destroy(core);
}

TEST(hosts_that_come_before_any_worker_are_numbered_by_name)
{
    struct head_core *core = core_make();

    core_announce(core, "c", 1);
    core_announce(core, "b", 2);
    core_announce(core, "a", 1);
    core_announce(core, "b", 2); /* over another connection: nothing new */
    ASSERT_EQ(head_core_device_count(core), 4);
    ASSERT_EQ(core_join(core, "c", 0), 3);
    ASSERT_EQ(core_join(core, "b", 1), 2);
    ASSERT_EQ(core_join(core, "a", 0), 0);
    ASSERT_EQ(core_join(core, "b", 0), 1);
    head_core_destroy(core);
}

/* What clients had from a head before, they may have for ever: who is put there would wait for them. */
TEST(slots_that_clients_hold_since_before_are_given_to_nobody)
{
    uint32_t held[]                = {2, 5, HEAD_SLOTS_MAX};
    struct head_core *core         = core_make();
    Plasmon__V1__WorkerHello hello = PLASMON__V1__WORKER_HELLO__INIT;
    uint8_t *taken                 = head_alloc(HEAD_SLOTS_MAX);
    struct pl_err err              = {0};
    struct head_device *device;
    uint32_t index;

    hello.host = hello.node = hello.name = (char *)(uintptr_t) "a";
    hello.kind                           = 1;
    hello.bytes_total                    = 1 << 20;
    hello.incarnation                    = 1;
    hello.held                           = held;
    hello.n_held                         = PL_COUNT(held);
    ASSERT_OK(head_core_worker_up(core, &hello, &index, &err));
    device = head_device_at(core, index);

    hello.incarnation =
        2; /* holds them still: nothing new, and nothing of that is to be freed */
    ASSERT_OK(head_core_worker_up(core, &hello, &index, &err));
    ASSERT_EQ(device->out_free.count, 0);
    for (uint32_t i = 0; i < HEAD_SLOTS_MAX - 2; i++) {
        uint64_t buffer = head_device_slot_take(core, device);

        ASSERT_EQ(wire_buffer_generation(buffer),
                  head_device_generation_none(core, device) + 1);
        taken[wire_buffer_slot(buffer)]++;
    }
    ASSERT_EQ(head_device_slot_take(core, device), 0);
    for (uint32_t i = 0; i < HEAD_SLOTS_MAX; i++) {
        ASSERT_EQ(taken[i], i != 2 && i != 5);
    }
    pl_free(taken);
    head_core_destroy(core);
}

TEST(a_number_that_was_told_stays)
{
    struct head_core *core = core_make();

    core_announce(core, "b", 1);
    ASSERT_EQ(core_join(core, "b", 0), 0);
    core_announce(core, "a", 1);
    ASSERT_EQ(core_join(core, "a", 0), 1);
    head_core_destroy(core);
}

TEST(a_cluster_is_complete_when_all_announced_devices_came)
{
    struct head_core *core = core_make();

    core_announce(core, "a", 2);
    ASSERT_TRUE(!head_core_all_joined(core));
    (void)core_join(core, "a", 1);
    ASSERT_TRUE(!head_core_all_joined(core));
    (void)core_join(core, "a", 0);
    ASSERT_TRUE(head_core_all_joined(core));
    head_core_destroy(core);
}

/* Its store goes on trying, and other devices do not wait for that. */
TEST(a_device_whose_workers_fail_to_start_is_not_waited_for)
{
    struct head_core *core = core_make();

    core_announce(core, "a", 2);
    test_expect_log();
    for (uint32_t i = 0; i < HEAD_FAILED_STARTS; i++) {
        head_core_worker_down(core, "a", 1, false, PLASMON_EDEVICE, "another has it");
    }
    ASSERT_TRUE(!head_core_all_joined(core)); /* there is no other */
    (void)core_join(core, "a", 0);
    ASSERT_TRUE(head_core_all_joined(core));
    core_announce(core, "b", 1);
    for (uint32_t i = 1; i < HEAD_FAILED_STARTS; i++) {
        head_core_worker_down(core, "b", 0, false, PLASMON_EDEVICE, "another has it");
        ASSERT_TRUE(!head_core_all_joined(core));
    }
    head_core_worker_down(core, "b", 0, false, PLASMON_EDEVICE, "another has it");
    ASSERT_TRUE(head_core_all_joined(core));
    ASSERT_EQ(core_join(core, "b", 0), 2);
    head_core_destroy(core);
}

TEST(a_device_that_never_comes_is_not_waited_for)
{
    struct head_core *core = core_make();

    core_announce(core, "a", 2);
    (void)core_join(core, "a", 0);
    test_expect_log();
    head_core_worker_down(core, "a", 1, true, PLASMON_OK, "it could not be started");
    ASSERT_TRUE(head_core_all_joined(core));
    head_core_destroy(core);
}

TEST(a_hello_of_a_device_that_is_gone_is_refused)
{
    Plasmon__V1__WorkerHello hello = PLASMON__V1__WORKER_HELLO__INIT;
    struct head_core *core         = core_make();
    struct pl_err err              = {0};
    uint32_t device                = UINT32_MAX;

    core_announce(core, "a", 2);
    (void)core_join(core, "a", 0);
    test_expect_log();
    head_core_worker_down(core, "a", 0, true, PLASMON_OK, "its GPU fell off the bus");
    hello.host        = (char *)(uintptr_t) "a";
    hello.node        = (char *)(uintptr_t) "a";
    hello.name        = (char *)(uintptr_t) "late";
    hello.kind        = 1;
    hello.incarnation = 2; /* the head has not heard of it before */
    ASSERT_STATUS(head_core_worker_up(core, &hello, &device, &err), PLASMON_EHEADLOST);
    ASSERT_CONTAINS(err.text, "device 0 on a has been given up (its GPU fell off the bus)");
    ASSERT_EQ(core->devices.count, 2);

    /* The same store, over another connection: its other device is there, this one stays gone. */
    ASSERT_OK(head_core_node_up(core, "a", "a", 2, true, &err));
    ASSERT_EQ(core->devices.count, 2);
    ASSERT_STATUS(head_core_worker_up(core, &hello, &device, &err), PLASMON_EHEADLOST);

    /* Another store of that host brings it back, as another device. */
    head_core_node_gone(core, "a", "its store has died");
    ASSERT_OK(head_core_node_up(core, "a", "a", 2, false, &err));
    ASSERT_EQ(core_join(core, "a", 0), 2);
    head_core_destroy(core);
}

TEST(more_devices_than_can_be_numbered_are_refused)
{
    struct head_core *core = core_make();
    struct pl_err err      = {0};

    core_announce(core, "a", 40000);
    ASSERT_STATUS(head_core_node_up(core, "b", "b", 40000, false, &err), PLASMON_ELIMIT);
    ASSERT_CONTAINS(err.text, "65535");
    head_core_destroy(core);
}

/* What goes to the worker of device 0. */
static struct {
    struct wire_arena arena;
    uint32_t commands;
    uint64_t first, last; /* of the launches; they must come without a gap */
    /* a buffer to look for, and whether its end was told before launch `last` */
    uint64_t freed;
    bool freed_first;
} told;

static void worker_command(void *user, uint32_t device, const uint8_t *body, size_t length)
{
    struct pl_err err = {0};
    Plasmon__V1__WorkerCommand *command;

    (void)user;
    ASSERT_EQ(device, 0);
    wire_arena_reset(&told.arena);
    body = core_frame(&told.arena, body, &length);
    ASSERT_OK(wire_decode_worker_command(&told.arena, body, length, &command, &err));
    told.commands++;
    for (size_t i = 0; i < command->n_free; i++) {
        told.freed_first = told.freed_first || command->free[i] == told.freed;
    }
    for (size_t i = 0; i < command->n_launches; i++) {
        uint64_t seq = command->launches[i]->seq;

        ASSERT_EQ(seq, told.last == 0 ? seq : told.last + 1);
        told.first = told.first == 0 ? seq : told.first;
        told.last  = seq;
    }
}

static uint32_t come(struct head_core *core, uint32_t incarnation, uint64_t enqueued)
{
    Plasmon__V1__WorkerHello hello = PLASMON__V1__WORKER_HELLO__INIT;
    struct pl_err err              = {0};
    uint32_t device;

    hello.host        = "a";
    hello.node        = "a";
    hello.name        = "test";
    hello.kind        = 1;
    hello.bytes_total = 1 << 20;
    hello.incarnation = incarnation;
    hello.enqueued    = enqueued;
    ASSERT_OK(head_core_worker_up(core, &hello, &device, &err));
    return device;
}

/*
 * Its session is made after its hello was taken; what went out before that would go to the worker
 * that died.
 */
TEST(a_worker_that_comes_back_is_told_nothing_before_it_is_welcomed_however_much_that_is)
{
    enum { LAUNCHES = 6000, DONE = 100 }; /* a frame takes WIRE_TASKS_MAX */
    static const struct head_ops ops = {.client_frame   = core_drop_frame,
                                        .worker_command = worker_command,
                                        .fence          = core_drop_fence,
                                        .session_ended  = core_drop_end,
                                        .random64       = core_count_up};
    struct head_config config        = {.ops = &ops, .retries = UINT32_MAX, .epoch = 1};
    struct head_core *core;
    uint64_t session, dim = 4;

    memset(&told, 0, sizeof(told));
    ASSERT_OK(wire_arena_init(&told.arena, WIRE_ARENA_BYTES_MAX));
    ASSERT_OK(head_core_create(&config, &core));
    head_core_tick(core, 1);
    core_announce(core, "a", 1);
    ASSERT_EQ(come(core, 1, 0), 0);
    head_core_flush(core);
    session = core_client(core);
    for (uint64_t id = 1; id <= LAUNCHES; id++) {
        core_submit(core, session, 2 * LAUNCHES + id, 0, 0, &dim, 1);
    }
    ASSERT_EQ(told.last, LAUNCHES);

    told.commands = 0;
    told.first = told.last = 0;
    ASSERT_EQ(come(core, 2, DONE), 0);
    ASSERT_EQ(told.commands, 0);
    head_core_flush(core);
    ASSERT_TRUE(told.commands > 1);
    ASSERT_EQ(told.first, DONE + 1);
    ASSERT_EQ(told.last, LAUNCHES);

    /* Gone again before it is welcomed: the next one is told all the same. */
    ASSERT_EQ(come(core, 3, DONE), 0);
    head_core_worker_lost(core, 0);
    told.commands = 0;
    told.first = told.last = 0;
    head_core_flush(core);
    ASSERT_EQ(told.commands, 0);
    ASSERT_EQ(come(core, 4, DONE), 0);
    head_core_flush(core);
    ASSERT_EQ(told.first, DONE + 1);
    ASSERT_EQ(told.last, LAUNCHES);
    head_core_destroy(core);
    wire_arena_finish(&told.arena);
}

/* What it had enqueued, it says itself. It was sent less. */
TEST(a_worker_that_says_it_enqueued_more_than_it_was_sent_is_not_believed)
{
    static const struct head_ops ops = {.client_frame   = core_drop_frame,
                                        .worker_command = worker_command,
                                        .fence          = core_drop_fence,
                                        .session_ended  = core_drop_end,
                                        .random64       = core_count_up};
    struct head_config config        = {.ops = &ops, .retries = UINT32_MAX, .epoch = 1};
    struct head_core *core;
    uint64_t session, dim = 4;

    memset(&told, 0, sizeof(told));
    ASSERT_OK(wire_arena_init(&told.arena, WIRE_ARENA_BYTES_MAX));
    ASSERT_OK(head_core_create(&config, &core));
    head_core_tick(core, 1);
    core_announce(core, "a", 1);
    ASSERT_EQ(come(core, 1, 0), 0);
    session = core_client(core);
    for (uint64_t id = 1; id <= 3; id++) {
        core_submit(core, session, 10 + id, 0, 0, &dim, 1);
    }
    ASSERT_EQ(told.last, 3);
    ASSERT_EQ(come(core, 2, WIRE_SEQ_MAX), 0);
    core_submit(core, session, 14, 0, 0, &dim, 1);
    ASSERT_EQ(told.last, 4); /* the next number is the next one */
    head_core_check(core);
    head_core_destroy(core);
    wire_arena_finish(&told.arena);
}

static void all_done(struct head_core *core, uint64_t count)
{
    Plasmon__V1__WorkerFrame frame = PLASMON__V1__WORKER_FRAME__INIT;
    Plasmon__V1__Range range       = PLASMON__V1__RANGE__INIT;
    Plasmon__V1__Range *done[1]    = {&range};
    struct pl_err err              = {0};

    range.first  = 1;
    range.count  = count;
    frame.done   = done;
    frame.n_done = 1;
    ASSERT_OK(head_core_worker_frame(core, 0, &frame, &err));
    head_core_flush(core);
}

static void release(struct head_core *core, uint64_t session, uint64_t first,
                    uint64_t count)
{
    Plasmon__V1__ClientFrame frame = PLASMON__V1__CLIENT_FRAME__INIT;
    Plasmon__V1__Range range       = PLASMON__V1__RANGE__INIT;
    Plasmon__V1__Range *refs[1]    = {&range};
    struct pl_err err              = {0};

    range.first     = first;
    range.count     = count;
    frame.release   = refs;
    frame.n_release = 1;
    ASSERT_OK(head_core_client_frame(core, session, &frame, &err));
    head_core_flush(core);
}

/* That its first buffer was free was told to the worker that died; whether it heard that, nobody knows. */
TEST(a_slot_that_was_given_out_again_while_its_worker_was_away_is_emptied_first)
{
    enum { COUNT = 4096 + 8 }; /* slots rest until so many others are free */
    static const struct head_ops ops = {.client_frame   = core_drop_frame,
                                        .worker_command = worker_command,
                                        .fence          = core_drop_fence,
                                        .session_ended  = core_drop_end,
                                        .random64       = core_count_up};
    struct head_config config        = {.ops = &ops, .retries = UINT32_MAX, .epoch = 1};
    struct head_core *core;
    uint64_t session, dim = 4;

    memset(&told, 0, sizeof(told));
    ASSERT_OK(wire_arena_init(&told.arena, WIRE_ARENA_BYTES_MAX));
    ASSERT_OK(head_core_create(&config, &core));
    head_core_tick(core, 1);
    core_announce(core, "a", 1);
    ASSERT_EQ(come(core, 1, 0), 0);
    session = core_client(core);
    for (uint64_t id = 1; id <= COUNT; id++) {
        core_submit(core, session, 2 * COUNT + id, 0, 0, &dim, 1);
    }
    all_done(core, COUNT);
    head_core_worker_lost(core, 0);
    release(core, session, 2 * COUNT + 101, COUNT);
    core_submit(core, session, 4 * COUNT, 0, 0, &dim, 1);
    ASSERT_EQ(told.last, COUNT); /* it waits for a worker */

    told.first = told.last = 0;
    told.freed             = wire_buffer(0, 0, 1); /* the first slot's first */
    ASSERT_EQ(come(core, 2, COUNT), 0);
    head_core_flush(core);
    ASSERT_EQ(told.first, COUNT + 1);
    ASSERT_TRUE(told.freed_first);
    head_core_destroy(core);
    wire_arena_finish(&told.arena);
}

TEST_MAIN()
