/*
 * Pairs: when they are opened, which transfers go by them, and what each side is told when one breaks. The head's commands are decoded and kept;
 * what workers say is made up.
 */
#include "head/core_int.h"
#include "tests/harness/test.h"
#include "tests/unit/head/core.h"

enum { DEVICES = 3, ROWS = 64 };

/* What a worker was told of pairs, in order. */
struct told {
    Plasmon__V1__PairState state;
    uint32_t peer;
    bool receives;
    uint64_t epoch;
};

static struct head_core *core;
static uint64_t session;
static struct told told[DEVICES][64];
static uint32_t told_count[DEVICES];
static uint64_t sent[DEVICES][64];
static uint32_t sent_count[DEVICES];
static uint64_t
    starve[DEVICES]; /* the launch that was told to fail for want of memory; 0: none */
static struct wire_arena arena;

static void take_command(void *user, uint32_t device, const uint8_t *body, size_t length)
{
    Plasmon__V1__WorkerCommand *command;

    (void)user;
    wire_arena_reset(&arena);
    command = plasmon__v1__worker_command__unpack(&arena.allocator, length, body);
    ASSERT_NOT_NULL(command);
    for (size_t i = 0; i < command->n_pairs; i++) {
        const Plasmon__V1__PairOrder *order = command->pairs[i];

        ASSERT_TRUE(told_count[device] < PL_COUNT(told[0]));
        told[device][told_count[device]++] = (struct told){.state    = order->state,
                                                           .peer     = order->peer,
                                                           .receives = order->receives,
                                                           .epoch    = order->epoch};
    }
    for (size_t i = 0; i < command->n_starve; i++) {
        starve[device] = command->starve[i];
    }
    for (size_t i = 0; i < command->n_sent; i++) {
        sent[device][sent_count[device]++] = command->sent[i];
    }
}

static const struct head_ops ops = {.client_frame   = core_drop_frame,
                                    .worker_command = take_command,
                                    .fence          = core_drop_fence,
                                    .session_ended  = core_drop_end,
                                    .random64       = core_count_up};

/* enqueued and unfinished: what an earlier incarnation left. */
static void join(uint32_t host_device, uint32_t incarnation, uint32_t version,
                 uint64_t enqueued)
{
    Plasmon__V1__WorkerHello hello = PLASMON__V1__WORKER_HELLO__INIT;
    Plasmon__V1__Range range       = PLASMON__V1__RANGE__INIT;
    Plasmon__V1__Range *ranges[1]  = {&range};
    struct pl_err err              = {0};
    uint32_t device;

    range.first        = 1;
    range.count        = enqueued;
    hello.unfinished   = ranges;
    hello.n_unfinished = enqueued > 0;
    hello.enqueued     = enqueued;
    hello.host         = "a";
    hello.node         = "a";
    hello.name         = "test";
    hello.host_device  = host_device;
    hello.kind         = 1;
    hello.bytes_total  = 1 << 20;
    hello.incarnation  = incarnation;
    hello.peer_capable = true;
    hello.comm_version = version;
    hello.comm_plain   = true;
    hello.comm_missing = version == 0 ? "libnccl.so.2 is not there" : "";
    ASSERT_OK(head_core_worker_up(core, &hello, &device, &err));
    ASSERT_EQ(device, host_device);
    head_core_flush(core);
}

static void begin(uint32_t version_of_last)
{
    core                  = core_make();
    core->config.ops      = &ops;
    core->config.transfer = HEAD_TRANSFER_NCCL;
    memset(told_count, 0, sizeof(told_count));
    memset(sent_count, 0, sizeof(sent_count));
    memset(starve, 0, sizeof(starve));
    ASSERT_OK(wire_arena_init(&arena, 1 << 20));
    core_announce(core, "a", DEVICES);
    for (uint32_t i = 0; i < DEVICES; i++) {
        join(i, 1, i + 1 < DEVICES ? 22809 : version_of_last, 0);
    }
    session = core_client(core);
}

static void end(void)
{
    head_core_check(core);
    head_core_destroy(core);
    wire_arena_finish(&arena);
}

/* Task `id` on a device: ref 0 makes an array as ref id + 100, another is read. */
static void submit(uint64_t id, uint32_t device, uint64_t ref)
{
    core_submit(core, session, id, device, ref, (uint64_t[]){ROWS}, 1);
}

static const struct head_task *task_of(uint32_t device, uint64_t seq)
{
    return head_device_task(head_device_at(core, device), seq);
}

static void report_done(uint32_t device, uint64_t seq)
{
    Plasmon__V1__WorkerFrame frame = PLASMON__V1__WORKER_FRAME__INIT;
    Plasmon__V1__Range range       = PLASMON__V1__RANGE__INIT;
    Plasmon__V1__Range *ranges[1]  = {&range};
    struct pl_err err              = {0};

    range.first  = seq;
    range.count  = 1;
    frame.done   = ranges;
    frame.n_done = 1;
    ASSERT_OK(head_core_worker_frame(core, device, &frame, &err));
    head_core_flush(core);
}

static void report_starved(uint32_t device, uint64_t seq)
{
    Plasmon__V1__WorkerFrame frame  = PLASMON__V1__WORKER_FRAME__INIT;
    Plasmon__V1__Starved starved    = PLASMON__V1__STARVED__INIT;
    Plasmon__V1__Starved *places[1] = {&starved};
    struct pl_err err               = {0};

    starved.seq     = seq;
    starved.bytes   = 1 << 20;
    frame.starved   = places;
    frame.n_starved = 1;
    ASSERT_OK(head_core_worker_frame(core, device, &frame, &err));
    head_core_flush(core);
}

static void report_pair(uint32_t device, uint32_t peer, bool receives,
                        Plasmon__V1__PairEvent event, uint64_t chunk)
{
    static uint8_t id[WIRE_PAIR_ID_BYTES];
    Plasmon__V1__WorkerFrame frame      = PLASMON__V1__WORKER_FRAME__INIT;
    Plasmon__V1__PairReport report      = PLASMON__V1__PAIR_REPORT__INIT;
    Plasmon__V1__PairReport *reports[1] = {&report};
    struct pl_err err                   = {0};

    report.peer     = peer;
    report.receives = receives;
    report.epoch    = 1;
    report.event    = event;
    report.chunk    = chunk;
    report.id.data  = id;
    report.id.len   = event == PLASMON__V1__PAIR_EVENT__PAIR_MADE ? sizeof(id) : 0;
    report.text     = "the network is down";
    frame.pairs     = reports;
    frame.n_pairs   = 1;
    ASSERT_OK(head_core_worker_frame(core, device, &frame, &err));
    head_core_flush(core);
}

static void expect_told(uint32_t device, uint32_t index, Plasmon__V1__PairState state,
                        uint32_t peer, bool receives, uint64_t epoch)
{
    ASSERT_TRUE(told_count[device] > index);
    ASSERT_EQ((int)told[device][index].state, (int)state);
    ASSERT_EQ(told[device][index].peer, peer);
    ASSERT_EQ(told[device][index].receives, receives);
    ASSERT_EQ(told[device][index].epoch, epoch);
}

/* Made on 0, read on 1: launches of 0: fill, OPEN, SEND; of 1: OPEN, RECV, touch. */
static void transfer_begin(void)
{
    begin(22809);
    submit(1, 0, 0);
    submit(2, 1, 101);
}

TEST(a_pair_is_opened_before_the_first_transfer_by_it)
{
    const struct head_task *open[2], *half[2];

    transfer_begin();
    open[0] = task_of(0, 2), half[0] = task_of(0, 3);
    open[1] = task_of(1, 1), half[1] = task_of(1, 2);
    for (uint32_t i = 0; i < 2; i++) {
        ASSERT_EQ(open[i]->kind, PLASMON__V1__LAUNCH_KIND__LAUNCH_OPEN);
        ASSERT_EQ(open[i]->length, i);
        ASSERT_EQ(open[i]->peer, 1 - i);
        ASSERT_EQ(open[i]->pair, 1);
        ASSERT_EQ(half[i]->pair, 1);
    }
    ASSERT_EQ(half[0]->kind, PLASMON__V1__LAUNCH_KIND__LAUNCH_SEND);
    ASSERT_EQ(half[1]->kind, PLASMON__V1__LAUNCH_KIND__LAUNCH_RECV);
    ASSERT_EQ(open[0]->order, open[1]->order);
    ASSERT_EQ(half[0]->order, half[1]->order);
    ASSERT_TRUE(open[0]->order < half[0]->order);
    end();
}

TEST(the_senders_id_goes_to_the_receiver)
{
    transfer_begin();
    report_pair(0, 1, false, PLASMON__V1__PAIR_EVENT__PAIR_MADE, 0);
    expect_told(1, 0, PLASMON__V1__PAIR_STATE__PAIR_ID, 0, true, 1);
    ASSERT_EQ(told_count[0], 0);
    end();
}

TEST(a_sender_hears_when_the_other_half_is_over)
{
    transfer_begin();
    report_done(1, 2);
    ASSERT_EQ(sent_count[0], 1);
    ASSERT_EQ(sent[0][0], 3);
    ASSERT_TRUE(task_of(1, 2)->ended); /* and is over itself when what it read from is */
    report_done(0, 1);
    report_done(0, 3);
    ASSERT_NULL(task_of(1, 2));
    ASSERT_EQ(sent_count[0], 1);
    end();
}

/* Its SEND is older, and waits for it. */
TEST(a_receive_without_memory_fails_when_all_but_its_send_is_over)
{
    transfer_begin();
    report_starved(1, 2);
    ASSERT_EQ(starve[1], 0); /* the OPEN is not over, and the fill might free something */
    report_done(0, 1);
    report_done(0, 2);
    report_done(1, 1);
    ASSERT_EQ(task_of(0, 3)->order, task_of(1, 2)->order);
    ASSERT_EQ(starve[1], 2);
    end();
}

TEST(a_sender_takes_the_other_way_when_the_receiver_has_said_what_came)
{
    test_expect_log();
    transfer_begin();
    report_pair(0, 1, false, PLASMON__V1__PAIR_EVENT__PAIR_TROUBLE, 0);
    expect_told(0, 0, PLASMON__V1__PAIR_STATE__PAIR_BROKEN, 1, false, 1);
    expect_told(1, 0, PLASMON__V1__PAIR_STATE__PAIR_BROKEN, 0, true, 1);
    ASSERT_EQ(told_count[0], 1);
    submit(3, 0, 0);
    submit(4, 1, 103); /* meanwhile transfers get no pair */
    ASSERT_EQ(task_of(0, 5)->kind, PLASMON__V1__LAUNCH_KIND__LAUNCH_SEND);
    ASSERT_EQ(task_of(0, 5)->pair, 0);
    report_pair(0, 1, false, PLASMON__V1__PAIR_EVENT__PAIR_DECIDED,
                0); /* it is not asked */
    ASSERT_EQ(told_count[0], 1);
    report_pair(1, 0, true, PLASMON__V1__PAIR_EVENT__PAIR_DECIDED, 0);
    expect_told(0, 1, PLASMON__V1__PAIR_STATE__PAIR_STAGED, 1, false, 1);
    report_pair(1, 0, true, PLASMON__V1__PAIR_EVENT__PAIR_DECIDED, 0); /* again: nothing */
    ASSERT_EQ(told_count[0], 2);
    end();
}

TEST(one_side_that_waits_is_not_stuck)
{
    test_expect_log();
    transfer_begin();
    report_pair(1, 0, true, PLASMON__V1__PAIR_EVENT__PAIR_STALLED, 0);
    report_pair(0, 1, false, PLASMON__V1__PAIR_EVENT__PAIR_STALLED, 7); /* at another one */
    ASSERT_EQ(told_count[0], 0);
    report_pair(0, 1, false, PLASMON__V1__PAIR_EVENT__PAIR_STALLED, 0);
    expect_told(0, 0, PLASMON__V1__PAIR_STATE__PAIR_BROKEN, 1, false, 1);
    expect_told(1, 0, PLASMON__V1__PAIR_STATE__PAIR_BROKEN, 0, true, 1);
    end();
}

/* The one that used it was fenced: nothing of it is on the device. */
TEST(a_receiver_that_was_replaced_got_nothing_more)
{
    transfer_begin();
    join(1, 2, 22809, 2);
    expect_told(0, 0, PLASMON__V1__PAIR_STATE__PAIR_BROKEN, 1, false, 1);
    expect_told(0, 1, PLASMON__V1__PAIR_STATE__PAIR_STAGED, 1, false, 1);
    expect_told(1, 0, PLASMON__V1__PAIR_STATE__PAIR_BROKEN, 0, true, 1);
    end();
}

/* Its launches by earlier pairs must not wait for what the receiver still does with the last one. */
TEST(a_sender_that_was_replaced_hears_of_earlier_pairs)
{
    transfer_begin();
    join(1, 2, 22809, 2); /* epoch 1 is over */
    submit(3, 0, 0);
    submit(4, 1, 103); /* and opens epoch 2 */
    ASSERT_EQ(task_of(0, 5)->kind, PLASMON__V1__LAUNCH_KIND__LAUNCH_OPEN);
    ASSERT_EQ(task_of(0, 5)->pair, 2);
    told_count[0] = 0;
    join(0, 2, 22809, 6);
    expect_told(0, 0, PLASMON__V1__PAIR_STATE__PAIR_STAGED, 1, false, 1);
    expect_told(0, 1, PLASMON__V1__PAIR_STATE__PAIR_BROKEN, 1, false, 2);
    ASSERT_EQ(told_count[0], 2);
    end();
}

TEST(a_device_that_is_gone_ends_its_pairs)
{
    test_expect_log();
    transfer_begin();
    head_core_worker_down(core, "a", 1, true, PLASMON_OK, "it died too often");
    head_core_flush(core);
    expect_told(0, 0, PLASMON__V1__PAIR_STATE__PAIR_BROKEN, 1, false, 1);
    expect_told(0, 1, PLASMON__V1__PAIR_STATE__PAIR_STAGED, 1, false, 1);
    end();
}

TEST(without_nccl_a_forced_transfer_fails_and_says_why)
{
    begin(0);
    submit(1, 0, 0);
    submit(2, 2, 101);
    ASSERT_EQ(head_device_at(core, 2)->seq_last, 0);
    ASSERT_EQ(core->tasks_failed, 1);
    end();
}

TEST_MAIN()
