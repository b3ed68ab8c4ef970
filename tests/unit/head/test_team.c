/*
 * Teams: all devices of an all-reduce by NCCL open a communicator under one number and have parts of one number; what each is told when it
 * breaks; and what has to make room. The head's commands are decoded and kept; what workers say is made up.
 */
#include "head/core_int.h"
#include "tests/harness/test.h"
#include "tests/unit/head/core.h"

enum { DEVICES = 4, ELEMENTS = 1000, TOLD_MAX = 64, NCCL = 3, FASTEST = 4 };
enum {
    OPEN  = PLASMON__V1__LAUNCH_KIND__LAUNCH_OPEN,
    CLOSE = PLASMON__V1__LAUNCH_KIND__LAUNCH_CLOSE,
    COPY  = PLASMON__V1__LAUNCH_KIND__LAUNCH_COPY
};

/* What a worker was told of teams, in order. */
struct told {
    Plasmon__V1__PairState state;
    uint32_t team;
    bool receives;
    uint64_t epoch;
};

static struct head_core *core;
static uint64_t session, task_last;
static uint32_t kind = 1, way = NCCL; /* of devices; of all_reduce() */
static struct told told[DEVICES][TOLD_MAX];
static uint32_t told_count[DEVICES];
static uint64_t starve[DEVICES];
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

        ASSERT_TRUE(told_count[device] < TOLD_MAX);
        told[device][told_count[device]++] = (struct told){.state    = order->state,
                                                           .team     = order->team,
                                                           .receives = order->receives,
                                                           .epoch    = order->epoch};
    }
    for (size_t i = 0; i < command->n_starve; i++) {
        starve[device] = command->starve[i];
    }
}

static const struct head_ops ops = {.client_frame   = core_drop_frame,
                                    .worker_command = take_command,
                                    .fence          = core_drop_fence,
                                    .session_ended  = core_drop_end,
                                    .random64       = core_count_up};

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
    hello.kind         = kind;
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

/* Member i is ref 101 + i, on device i: its device has launch 1. */
static void begin(uint32_t version_of_last)
{
    uint64_t elements = ELEMENTS;

    core             = core_make();
    core->config.ops = &ops;
    memset(told_count, 0, sizeof(told_count));
    memset(starve, 0, sizeof(starve));
    ASSERT_OK(wire_arena_init(&arena, 1 << 20));
    core_announce(core, "a", DEVICES);
    for (uint32_t i = 0; i < DEVICES; i++) {
        join(i, 1, i + 1 < DEVICES ? 22809 : version_of_last, 0);
    }
    session   = core_client(core);
    task_last = 49;
    for (uint32_t i = 0; i < DEVICES; i++) {
        core_submit(core, session, 1 + i, i, 0, &elements, 1);
    }
}

static void end(void)
{
    head_core_check(core);
    head_core_destroy(core);
    wire_arena_finish(&arena);
}

/* Of the members of the devices whose bits are set, into new refs. */
static void all_reduce(uint32_t devices, uint32_t dtype_op)
{
    static uint64_t ref_last           = 1000;
    uint64_t elements                  = ELEMENTS;
    Plasmon__V1__ClientFrame frame     = PLASMON__V1__CLIENT_FRAME__INIT;
    Plasmon__V1__Collective collective = PLASMON__V1__COLLECTIVE__INIT;
    Plasmon__V1__Task task             = PLASMON__V1__TASK__INIT;
    Plasmon__V1__Shape shape           = PLASMON__V1__SHAPE__INIT;
    Plasmon__V1__Task *tasks[]         = {&task};
    Plasmon__V1__Arg arg[2 * DEVICES], *args[2 * DEVICES];
    uint32_t nowhere[DEVICES] = {0};
    uint32_t count            = 0;
    struct pl_err err         = {0};

    shape.dtype = PL_F32;
    shape.n_dim = 1;
    shape.dim   = &elements;
    for (uint32_t i = 0; i < DEVICES; i++) {
        if ((devices & 1u << i) != 0) {
            plasmon__v1__arg__init(&arg[count]);
            arg[count].mode  = PLASMON__V1__MODE__MODE_IN;
            arg[count++].ref = 101 + i;
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        plasmon__v1__arg__init(&arg[count + i]);
        arg[count + i].mode  = PLASMON__V1__MODE__MODE_OUT;
        arg[count + i].ref   = ++ref_last;
        arg[count + i].shape = &shape;
    }
    for (uint32_t i = 0; i < 2 * count; i++) {
        args[i] = &arg[i];
    }
    collective.op      = dtype_op;
    collective.way     = way;
    collective.n_place = count;
    collective.place   = nowhere;
    task.id            = ++task_last;
    task.kind          = PLASMON__V1__TASK_KIND__TASK_COLLECTIVE;
    task.collective    = &collective;
    task.args          = args;
    task.n_args        = 2 * count;
    frame.tasks        = tasks;
    frame.n_tasks      = 1;
    ASSERT_OK(head_core_client_frame(core, session, &frame, &err));
    head_core_flush(core);
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

static void report_team(uint32_t device, uint32_t team, Plasmon__V1__PairEvent event,
                        uint64_t number)
{
    static uint8_t id[WIRE_PAIR_ID_BYTES];
    Plasmon__V1__WorkerFrame frame      = PLASMON__V1__WORKER_FRAME__INIT;
    Plasmon__V1__PairReport report      = PLASMON__V1__PAIR_REPORT__INIT;
    Plasmon__V1__PairReport *reports[1] = {&report};
    struct pl_err err                   = {0};

    report.team  = team;
    report.epoch = 1;
    report.event = event;
    report.chunk = number;
    report.bytes = number;
    report.id    = (ProtobufCBinaryData){
           .data = id, .len = event == PLASMON__V1__PAIR_EVENT__PAIR_MADE ? sizeof(id) : 0};
    report.text   = "an operation was refused";
    frame.pairs   = reports;
    frame.n_pairs = 1;
    ASSERT_OK(head_core_worker_frame(core, device, &frame, &err));
    head_core_flush(core);
}

static void expect_told(uint32_t device, uint32_t index, Plasmon__V1__PairState state)
{
    ASSERT_TRUE(told_count[device] > index);
    ASSERT_EQ((int)told[device][index].state, (int)state);
    ASSERT_EQ(told[device][index].team, 1);
    ASSERT_EQ(told[device][index].receives, device != 0);
    ASSERT_EQ(told[device][index].epoch, 1);
}

static void expect_all_told_broken(void)
{
    for (uint32_t i = 0; i < DEVICES; i++) {
        ASSERT_EQ(told_count[i], 1);
        expect_told(i, 0, PLASMON__V1__PAIR_STATE__PAIR_BROKEN);
    }
}

/* Launches of each device: 1 makes the member, 2 OPEN, 3 the part. */
static void reduce_begin(void)
{
    begin(22809);
    all_reduce(15, 1);
}

static void reduce_open(void)
{
    reduce_begin();
    for (uint32_t i = 0; i < DEVICES; i++) {
        report_done(i, 1);
        report_done(i, 2);
    }
}

TEST(all_parts_have_one_number_behind_those_of_the_open)
{
    const struct head_task *open, *part;

    reduce_begin();
    open = task_of(0, 2);
    part = task_of(0, 3);
    for (uint32_t i = 0; i < DEVICES; i++) {
        ASSERT_EQ(task_of(i, 2)->kind, OPEN);
        ASSERT_EQ(task_of(i, 2)->order, open->order);
        ASSERT_EQ(task_of(i, 2)->team, 1);
        ASSERT_EQ(task_of(i, 2)->length, i);
        ASSERT_EQ(task_of(i, 3)->kind, COPY);
        ASSERT_EQ(task_of(i, 3)->order, part->order);
        ASSERT_EQ(task_of(i, 3)->team, 1);
        ASSERT_EQ(task_of(i, 3)->pair, 1);
        ASSERT_EQ(task_of(i, 3)->use_count, 1 + DEVICES); /* it reads all members */
        ASSERT_TRUE(task_of(i, 4) == NULL);
    }
    ASSERT_TRUE(part->order > open->order);
    all_reduce(15, 1); /* the same team */
    ASSERT_EQ(task_of(0, 4)->kind, COPY);
    ASSERT_EQ(task_of(0, 4)->pair, 1);
    end();
}

TEST(an_average_is_a_sum_and_a_division)
{
    begin(22809);
    all_reduce(15, 5);
    for (uint32_t i = 0; i < DEVICES; i++) {
        ASSERT_EQ(task_of(i, 3)->kind, COPY);
        ASSERT_EQ(task_of(i, 3)->order, task_of(0, 3)->order);
        ASSERT_EQ(task_of(i, 4)->kind, PLASMON__V1__LAUNCH_KIND__LAUNCH_RUN);
    }
    end();
}

TEST(the_id_goes_to_all_others)
{
    reduce_begin();
    report_team(0, 1, PLASMON__V1__PAIR_EVENT__PAIR_MADE, 0);
    ASSERT_EQ(told_count[0], 0);
    for (uint32_t i = 1; i < DEVICES; i++) {
        ASSERT_EQ(told_count[i], 1);
        expect_told(i, 0, PLASMON__V1__PAIR_STATE__PAIR_ID);
    }
    end();
}

TEST(without_the_same_nccl_on_all_there_is_none)
{
    begin(22703);
    all_reduce(15, 1);
    for (uint64_t seq = 2; seq < 4 && task_of(0, seq) != NULL; seq++) {
        ASSERT_TRUE(task_of(0, seq)->kind != OPEN && task_of(0, seq)->team == 0);
    }
    all_reduce(7, 1); /* the others have */
    ASSERT_TRUE(task_of(3, task_of(3, 2) != NULL ? 2 : 1)->team == 0);
    ASSERT_EQ(head_team_count(core, head_device_at(core, 0)), 1);
    ASSERT_EQ(head_team_count(core, head_device_at(core, 3)), 0);
    end();
}

static void reduce_some(uint32_t devices, uint32_t wish)
{
    way = wish;
    for (uint32_t i = 0; i < 3; i++) {
        all_reduce(devices, 1);
    }
    way = NCCL;
}

static void begin_gpus(uint64_t team_bytes)
{
    kind = 2;
    begin(22809);
    kind                    = 1;
    core->config.team_bytes = team_bytes;
}

TEST(the_fastest_is_by_nccl_where_much_is_reduced_on_three_gpus_and_more)
{
    begin_gpus(4 * ELEMENTS);
    way = FASTEST;
    all_reduce(15, 1);
    all_reduce(15, 1);
    ASSERT_EQ(head_team_count(core, head_device_at(core, 0)), 0); /* perhaps the last */
    all_reduce(15, 1);
    ASSERT_EQ(head_team_count(core, head_device_at(core, 0)), 1);
    way = NCCL;
    end();
}

TEST(the_fastest_is_not_by_nccl_on_two_gpus_nor_of_little_nor_where_sums_have_an_order)
{
    begin_gpus(4 * ELEMENTS);
    reduce_some(3, FASTEST);
    reduce_some(15, 0);
    ASSERT_EQ(head_team_count(core, head_device_at(core, 0)), 0);
    core->config.team_bytes++;
    reduce_some(15, FASTEST);
    ASSERT_EQ(head_team_count(core, head_device_at(core, 0)), 0);
    end();
}

TEST(one_in_trouble_breaks_it_for_all)
{
    test_expect_log();
    reduce_open();
    report_team(2, 1, PLASMON__V1__PAIR_EVENT__PAIR_TROUBLE, 0);
    expect_all_told_broken();
    report_team(1, 1, PLASMON__V1__PAIR_EVENT__PAIR_TROUBLE, 0); /* no more of it */
    expect_all_told_broken();
    for (uint32_t i = 0; i < DEVICES; i++) {
        report_done(i, 3); /* alone, or before */
    }
    ASSERT_TRUE(head_core_idle(core));
    end();
}

TEST(it_is_stuck_when_all_say_the_same)
{
    uint64_t order;

    test_expect_log();
    reduce_open();
    order = task_of(0, 3)->order;
    for (uint32_t i = 0; i < DEVICES; i++) {
        ASSERT_EQ(told_count[0], 0);
        report_team(i, 1, PLASMON__V1__PAIR_EVENT__PAIR_STALLED, order);
    }
    expect_all_told_broken();
    end();
}

TEST(those_that_wait_for_another_one_are_not_stuck)
{
    uint64_t order;

    reduce_open();
    order = task_of(0, 3)->order;
    report_team(0, 1, PLASMON__V1__PAIR_EVENT__PAIR_STALLED, order);
    report_team(1, 1, PLASMON__V1__PAIR_EVENT__PAIR_STALLED, order);
    report_team(2, 1, PLASMON__V1__PAIR_EVENT__PAIR_STALLED, order);
    report_team(3, 1, PLASMON__V1__PAIR_EVENT__PAIR_STALLED, order - 1);
    for (uint32_t i = 0; i < DEVICES; i++) {
        ASSERT_EQ(told_count[i], 0);
    }
    end();
}

/* An operation that is aborted tells the others that its bytes came: nobody may abort before all have marked. */
TEST(it_is_ended_when_all_have_marked_it)
{
    test_expect_log();
    reduce_open();
    report_team(1, 1, PLASMON__V1__PAIR_EVENT__PAIR_TROUBLE, 0);
    expect_all_told_broken();
    for (uint32_t i = 0; i < DEVICES; i++) {
        for (uint32_t k = 0; k < DEVICES; k++) {
            ASSERT_EQ(told_count[k], 1);
        }
        report_team(i, 1, PLASMON__V1__PAIR_EVENT__PAIR_DECIDED, 0);
    }
    for (uint32_t i = 0; i < DEVICES; i++) {
        ASSERT_EQ(told_count[i], 2);
        expect_told(i, 1, PLASMON__V1__PAIR_STATE__PAIR_STAGED);
    }
    end();
}

/* Who was fenced has nothing to believe any more. */
TEST(a_worker_that_was_replaced_is_not_waited_for)
{
    test_expect_log();
    reduce_open();
    join(3, 2, 22809, 3);
    expect_all_told_broken();
    for (uint32_t i = 0; i + 1 < DEVICES; i++) {
        ASSERT_EQ(told_count[0], 1);
        report_team(i, 1, PLASMON__V1__PAIR_EVENT__PAIR_DECIDED, 0);
    }
    for (uint32_t i = 0; i < DEVICES; i++) {
        ASSERT_EQ(told_count[i], 2);
        expect_told(i, 1, PLASMON__V1__PAIR_STATE__PAIR_STAGED);
    }
    join(3, 3, 22809, 3); /* and the next one hears that at once */
    ASSERT_EQ(told_count[3], 3);
    expect_told(3, 2, PLASMON__V1__PAIR_STATE__PAIR_STAGED);
    end();
}

TEST(a_worker_that_was_replaced_breaks_it_and_hears_of_it_first)
{
    test_expect_log();
    reduce_open();
    join(3, 2, 22809, 3);
    expect_all_told_broken();
    join(3, 3, 22809, 3); /* once more: what is left of the team is its own to do */
    ASSERT_EQ(told_count[3], 2);
    expect_told(3, 1, PLASMON__V1__PAIR_STATE__PAIR_BROKEN);
    ASSERT_EQ(told_count[0], 1);
    end();
}

TEST(a_device_that_is_gone_ends_it)
{
    test_expect_log();
    reduce_open();
    head_core_worker_down(core, "a", 1, true, PLASMON_OK, "it died too often");
    head_core_flush(core);
    expect_told(0, 0, PLASMON__V1__PAIR_STATE__PAIR_BROKEN);
    ASSERT_EQ(head_team_count(core, head_device_at(core, 0)), 0);
    end();
}

TEST(a_part_without_memory_fails_when_all_else_is_over)
{
    Plasmon__V1__WorkerFrame frame  = PLASMON__V1__WORKER_FRAME__INIT;
    Plasmon__V1__Starved starved    = PLASMON__V1__STARVED__INIT;
    Plasmon__V1__Starved *places[1] = {&starved};
    struct pl_err err               = {0};

    reduce_begin();
    starved.seq     = 3;
    starved.bytes   = 1 << 20;
    frame.starved   = places;
    frame.n_starved = 1;
    ASSERT_OK(head_core_worker_frame(core, 2, &frame, &err));
    head_core_flush(core);
    ASSERT_EQ(starve[2], 0);
    for (uint32_t i = 0; i < DEVICES; i++) {
        report_done(i, 1);
        report_done(i, 2);
    }
    ASSERT_EQ(starve[2], 3); /* the others' parts are as old, and wait for it */
    end();
}

static void report_all_done(void)
{
    for (uint32_t i = 0; i < DEVICES; i++) {
        struct head_device *device = head_device_at(core, i);

        for (uint64_t at = device->seq_oldest; at <= device->seq_last; at++) {
            if (task_of(i, at) != NULL) {
                report_done(i, at);
            }
        }
    }
}

/* Of 1.2 GiB at both ends, and used. */
static void open_pair(uint32_t from, uint32_t to)
{
    Plasmon__V1__WorkerFrame frame      = PLASMON__V1__WORKER_FRAME__INIT;
    Plasmon__V1__PairReport report      = PLASMON__V1__PAIR_REPORT__INIT;
    Plasmon__V1__PairReport *reports[1] = {&report};
    uint64_t elements                   = ELEMENTS;
    struct pl_err err                   = {0};

    /* Another array each time: a copy that is there needs no transfer. */
    core->config.transfer = HEAD_TRANSFER_NCCL;
    core_submit(core, session, ++task_last, from, 0, &elements, 1);
    task_last++;
    core_submit(core, session, task_last, to, task_last + 99, &elements, 1);
    core->config.transfer = HEAD_TRANSFER_AUTO;
    report.epoch          = 1;
    report.event          = PLASMON__V1__PAIR_EVENT__PAIR_OPENED;
    report.bytes          = UINT64_C(1200) << 20;
    frame.pairs           = reports;
    frame.n_pairs         = 1;
    for (uint32_t i = 0; i < 2; i++) {
        report.receives = i == 1;
        report.peer     = i == 1 ? from : to;
        ASSERT_OK(head_core_worker_frame(core, i == 1 ? to : from, &frame, &err));
    }
    report_all_done();
}

/* Those of a device that are open. */
static uint32_t open_pairs(uint32_t device)
{
    uint32_t count = 0;
    uint64_t key;
    void *item;

    for (size_t at = 0; pl_map_next(&core->pairs, &at, &key, &item);) {
        const struct head_pair *pair = item;

        count += pair->state == HEAD_PAIR_OPEN &&
                 (pair->src->index == device || pair->dst->index == device);
    }
    return count;
}

TEST(a_pair_makes_room_for_a_team_and_a_team_for_a_pair)
{
    begin(22809);
    report_all_done();
    open_pair(0, 1);
    open_pair(0, 2);
    open_pair(0, 3);
    ASSERT_EQ(open_pairs(0), 3);
    all_reduce(3, 1);
    report_all_done();
    ASSERT_EQ(head_team_count(core, head_device_at(core, 0)), 1);
    ASSERT_EQ(open_pairs(0), 2); /* 4.4 GiB would be too much */
    open_pair(0, 2);
    open_pair(0, 3);
    open_pair(0, 1);
    ASSERT_EQ(open_pairs(0), 3);
    ASSERT_EQ(head_team_count(core, head_device_at(core, 0)), 0);
    end();
}

TEST(a_team_for_which_one_device_has_no_room_closes_nothing_on_the_others)
{
    uint64_t key;
    void *item;

    begin(22809);
    report_all_done();
    open_pair(0, 2);
    open_pair(0, 3);
    open_pair(2, 0);
    open_pair(1, 2);
    open_pair(1, 3);
    open_pair(2, 1);
    for (size_t at = 0; pl_map_next(&core->pairs, &at, &key, &item);) {
        struct head_pair *pair = item;

        if (pair->src->index == 1 || pair->dst->index == 1) {
            pair->state = HEAD_PAIR_OPENING; /* so it cannot be closed */
        }
    }
    all_reduce(3, 1);
    ASSERT_EQ(head_team_count(core, head_device_at(core, 0)), 0);
    ASSERT_EQ(open_pairs(0), 3);
    for (size_t at = 0; pl_map_next(&core->pairs, &at, &key, &item);) {
        ((struct head_pair *)item)->state = HEAD_PAIR_OPEN;
    }
    all_reduce(3, 1);
    report_all_done();
    ASSERT_EQ(head_team_count(core, head_device_at(core, 1)), 1);
    ASSERT_EQ(open_pairs(0), 2);
    end();
}

TEST(the_one_that_was_not_used_for_longest_makes_room)
{
    static const uint32_t sets[] = {3, 5, 9, 7, 11}; /* all with device 0 */

    begin(22809);
    for (uint32_t s = 0; s < PL_COUNT(sets); s++) {
        all_reduce(sets[s], 1);
        report_all_done();
        if (s + 1 < PL_COUNT(sets)) {
            ASSERT_EQ(head_team_count(core, head_device_at(core, 0)), s + 1);
        }
    }
    ASSERT_EQ(head_team_count(core, head_device_at(core, 0)), 4);
    ASSERT_EQ(head_team_count(core, head_device_at(core, 1)), 2); /* {0, 1} is away */
    end();
}

TEST_MAIN()
