#include "tests/unit/head/comms.h"

#include "tests/harness/test.h"
#include "tests/unit/head/core.h"

struct comms comms;

static void take_command(void *user, uint32_t device, const uint8_t *body, size_t length)
{
    Plasmon__V1__WorkerCommand *command;

    (void)user;
    wire_arena_reset(&comms.arena);
    command = plasmon__v1__worker_command__unpack(&comms.arena.allocator, length, body);
    ASSERT_NOT_NULL(command);
    for (size_t i = 0; i < command->n_pairs; i++) {
        const Plasmon__V1__PairOrder *order = command->pairs[i];

        ASSERT_TRUE(comms.told_count[device] < COMMS_TOLD_MAX);
        comms.told[device][comms.told_count[device]++] =
            (struct comms_told){.state    = order->state,
                                .peer     = order->peer,
                                .team     = order->team,
                                .receives = order->receives,
                                .epoch    = order->epoch};
    }
    for (size_t i = 0; i < command->n_starve; i++) {
        comms.starve[device] = command->starve[i];
    }
    for (size_t i = 0; i < command->n_sent; i++) {
        ASSERT_TRUE(comms.sent_count[device] < COMMS_TOLD_MAX);
        comms.sent[device][comms.sent_count[device]++] = command->sent[i];
    }
}

void comms_join(uint32_t device, uint32_t kind, uint32_t incarnation, uint32_t version,
                uint64_t enqueued)
{
    Plasmon__V1__WorkerHello hello = PLASMON__V1__WORKER_HELLO__INIT;
    Plasmon__V1__Range range       = PLASMON__V1__RANGE__INIT;
    Plasmon__V1__Range *ranges[1]  = {&range};
    struct pl_err err              = {0};
    uint32_t number;

    range.first        = 1;
    range.count        = enqueued;
    hello.unfinished   = ranges;
    hello.n_unfinished = enqueued > 0;
    hello.enqueued     = enqueued;
    hello.host         = "a";
    hello.node         = "a";
    hello.name         = "test";
    hello.host_device  = device;
    hello.kind         = kind;
    hello.bytes_total  = 1 << 20;
    hello.incarnation  = incarnation;
    hello.peer_capable = true;
    hello.comm_version = version;
    hello.comm_plain   = true;
    hello.comm_missing = version == 0 ? "libnccl.so.2 is not there" : "";
    ASSERT_OK(head_core_worker_up(comms.core, &hello, &number, &err));
    ASSERT_EQ(number, device);
    head_core_flush(comms.core);
}

void comms_begin(uint32_t devices, uint32_t kind, uint32_t version_of_last)
{
    static const struct head_ops ops = {.client_frame   = core_drop_frame,
                                        .worker_command = take_command,
                                        .fence          = core_drop_fence,
                                        .session_ended  = core_drop_end,
                                        .random64       = core_count_up};

    ASSERT_TRUE(devices <= COMMS_DEVICES_MAX);
    comms                  = (struct comms){.core = core_make()};
    comms.core->config.ops = &ops;
    ASSERT_OK(wire_arena_init(&comms.arena, 1 << 20));
    core_announce(comms.core, "a", devices);
    for (uint32_t i = 0; i < devices; i++) {
        comms_join(i, kind, 1, i + 1 < devices ? COMMS_NCCL : version_of_last, 0);
    }
    comms.session = core_client(comms.core);
}

void comms_end(void)
{
    head_core_check(comms.core);
    head_core_destroy(comms.core);
    wire_arena_finish(&comms.arena);
}

const struct head_task *comms_task(uint32_t device, uint64_t seq)
{
    return head_device_task(head_device_at(comms.core, device), seq);
}

static void frame_take(uint32_t device, const Plasmon__V1__WorkerFrame *frame)
{
    struct pl_err err = {0};

    ASSERT_OK(head_core_worker_frame(comms.core, device, frame, &err));
    head_core_flush(comms.core);
}

void comms_report_done(uint32_t device, uint64_t seq)
{
    Plasmon__V1__WorkerFrame frame = PLASMON__V1__WORKER_FRAME__INIT;
    Plasmon__V1__Range range       = PLASMON__V1__RANGE__INIT;
    Plasmon__V1__Range *ranges[1]  = {&range};

    range.first  = seq;
    range.count  = 1;
    frame.done   = ranges;
    frame.n_done = 1;
    frame_take(device, &frame);
}

void comms_report_starved(uint32_t device, uint64_t seq)
{
    Plasmon__V1__WorkerFrame frame  = PLASMON__V1__WORKER_FRAME__INIT;
    Plasmon__V1__Starved starved    = PLASMON__V1__STARVED__INIT;
    Plasmon__V1__Starved *places[1] = {&starved};

    starved.seq     = seq;
    starved.bytes   = 1 << 20;
    frame.starved   = places;
    frame.n_starved = 1;
    frame_take(device, &frame);
}

void comms_report(uint32_t device, Plasmon__V1__PairReport *report)
{
    static uint8_t id[WIRE_PAIR_ID_BYTES];
    Plasmon__V1__WorkerFrame frame      = PLASMON__V1__WORKER_FRAME__INIT;
    Plasmon__V1__PairReport *reports[1] = {report};

    report->epoch = report->epoch != 0 ? report->epoch : 1;
    if (report->event == PLASMON__V1__PAIR_EVENT__PAIR_MADE) {
        report->id = (ProtobufCBinaryData){.data = id, .len = sizeof(id)};
    }
    frame.pairs   = reports;
    frame.n_pairs = 1;
    frame_take(device, &frame);
}

const struct comms_told *comms_told(uint32_t device, uint32_t index,
                                    Plasmon__V1__PairState state)
{
    const struct comms_told *told = &comms.told[device][index];

    ASSERT_TRUE(comms.told_count[device] > index);
    ASSERT_EQ((int)told->state, (int)state);
    return told;
}
