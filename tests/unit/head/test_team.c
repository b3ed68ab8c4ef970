/*
 * Teams: all devices of an all-reduce by NCCL open a communicator under one number and have parts
 * of one number; what each is told when it breaks; and what has to make room.
 */
#include "tests/harness/test.h"
#include "tests/unit/head/comms.h"
#include "tests/unit/head/core.h"

enum { DEVICES = 4, GPUS = 5, ELEMENTS = 1000, NCCL = 3, FASTEST = 4 };
enum {
    OPEN  = PLASMON__V1__LAUNCH_KIND__LAUNCH_OPEN,
    CLOSE = PLASMON__V1__LAUNCH_KIND__LAUNCH_CLOSE,
    COPY  = PLASMON__V1__LAUNCH_KIND__LAUNCH_COPY
};

static uint64_t task_last;
static uint32_t way = NCCL; /* of all_reduce() */

/* Member i is ref 101 + i, on device i: its device has launch 1. */
static void begin_of(uint32_t devices, uint32_t kind, uint32_t version_of_last)
{
    uint64_t elements = ELEMENTS;

    comms_begin(devices, kind, version_of_last);
    task_last = 49;
    for (uint32_t i = 0; i < devices; i++) {
        core_submit(comms.core, comms.session, 1 + i, i, 0, &elements, 1);
    }
}

static void begin(uint32_t version_of_last)
{
    begin_of(DEVICES, 1, version_of_last);
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
    Plasmon__V1__Arg arg[2 * GPUS], *args[2 * GPUS];
    uint32_t nowhere[GPUS] = {0};
    uint32_t count         = 0;
    struct pl_err err      = {0};

    shape.dtype = PL_F32;
    shape.n_dim = 1;
    shape.dim   = &elements;
    for (uint32_t i = 0; i < GPUS; i++) {
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
    ASSERT_OK(head_core_client_frame(comms.core, comms.session, &frame, &err));
    head_core_flush(comms.core);
}

static void report_team(uint32_t device, uint32_t team, Plasmon__V1__PairEvent event,
                        uint64_t number)
{
    Plasmon__V1__PairReport report = PLASMON__V1__PAIR_REPORT__INIT;

    report.team  = team;
    report.event = event;
    report.chunk = number;
    report.bytes = number;
    report.text  = "an operation was refused";
    comms_report(device, &report);
}

static void expect_told(uint32_t device, uint32_t index, Plasmon__V1__PairState state)
{
    const struct comms_told *told = comms_told(device, index, state);

    ASSERT_EQ(told->team, 1);
    ASSERT_EQ(told->receives, device != 0);
    ASSERT_EQ(told->epoch, 1);
}

static void expect_all_told_broken(void)
{
    for (uint32_t i = 0; i < DEVICES; i++) {
        ASSERT_EQ(comms.told_count[i], 1);
        expect_told(i, 0, PLASMON__V1__PAIR_STATE__PAIR_BROKEN);
    }
}

/* Launches of each device: 1 makes the member, 2 OPEN, 3 the part. */
static void reduce_begin(void)
{
    begin(COMMS_NCCL);
    all_reduce(15, 1);
}

static void reduce_open(void)
{
    reduce_begin();
    for (uint32_t i = 0; i < DEVICES; i++) {
        comms_report_done(i, 1);
        comms_report_done(i, 2);
    }
}

TEST(all_parts_have_one_number_behind_those_of_the_open)
{
    const struct head_task *open, *part;

    reduce_begin();
    open = comms_task(0, 2);
    part = comms_task(0, 3);
    for (uint32_t i = 0; i < DEVICES; i++) {
        ASSERT_EQ(comms_task(i, 2)->kind, OPEN);
        ASSERT_EQ(comms_task(i, 2)->order, open->order);
        ASSERT_EQ(comms_task(i, 2)->team, 1);
        ASSERT_EQ(comms_task(i, 2)->length, i);
        ASSERT_EQ(comms_task(i, 3)->kind, COPY);
        ASSERT_EQ(comms_task(i, 3)->order, part->order);
        ASSERT_EQ(comms_task(i, 3)->team, 1);
        ASSERT_EQ(comms_task(i, 3)->pair, 1);
        ASSERT_EQ(comms_task(i, 3)->use_count, 1 + DEVICES); /* it reads all members */
        ASSERT_TRUE(comms_task(i, 4) == NULL);
    }
    ASSERT_TRUE(part->order > open->order);
    all_reduce(15, 1); /* the same team */
    ASSERT_EQ(comms_task(0, 4)->kind, COPY);
    ASSERT_EQ(comms_task(0, 4)->pair, 1);
    comms_end();
}

TEST(an_average_is_a_sum_and_a_division)
{
    begin(COMMS_NCCL);
    all_reduce(15, 5);
    for (uint32_t i = 0; i < DEVICES; i++) {
        ASSERT_EQ(comms_task(i, 3)->kind, COPY);
        ASSERT_EQ(comms_task(i, 3)->order, comms_task(0, 3)->order);
        ASSERT_EQ(comms_task(i, 4)->kind, PLASMON__V1__LAUNCH_KIND__LAUNCH_RUN);
    }
    comms_end();
}

TEST(the_id_goes_to_all_others)
{
    reduce_begin();
    report_team(0, 1, PLASMON__V1__PAIR_EVENT__PAIR_MADE, 0);
    ASSERT_EQ(comms.told_count[0], 0);
    for (uint32_t i = 1; i < DEVICES; i++) {
        ASSERT_EQ(comms.told_count[i], 1);
        expect_told(i, 0, PLASMON__V1__PAIR_STATE__PAIR_ID);
    }
    comms_end();
}

TEST(without_the_same_nccl_on_all_there_is_none)
{
    begin(22703);
    all_reduce(15, 1);
    for (uint64_t seq = 2; seq < 4 && comms_task(0, seq) != NULL; seq++) {
        ASSERT_TRUE(comms_task(0, seq)->kind != OPEN && comms_task(0, seq)->team == 0);
    }
    all_reduce(7, 1); /* the others have */
    ASSERT_TRUE(comms_task(3, comms_task(3, 2) != NULL ? 2 : 1)->team == 0);
    ASSERT_EQ(head_team_count(comms.core, head_device_at(comms.core, 0)), 1);
    ASSERT_EQ(head_team_count(comms.core, head_device_at(comms.core, 3)), 0);
    comms_end();
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
    begin_of(GPUS, 2, COMMS_NCCL);
    comms.core->config.team_bytes = team_bytes;
}

TEST(the_fastest_is_by_nccl_where_much_is_reduced_on_more_than_four_gpus)
{
    begin_gpus(4 * ELEMENTS);
    way = FASTEST;
    all_reduce(31, 1);
    all_reduce(31, 1);
    ASSERT_EQ(head_team_count(comms.core, head_device_at(comms.core, 0)),
              0); /* perhaps the last */
    all_reduce(31, 1);
    ASSERT_EQ(head_team_count(comms.core, head_device_at(comms.core, 0)), 1);
    way = NCCL;
    comms_end();
}

TEST(the_fastest_is_not_by_nccl_on_four_gpus_nor_of_little_nor_where_sums_have_an_order)
{
    begin_gpus(4 * ELEMENTS);
    reduce_some(15, FASTEST);
    reduce_some(31, 0);
    ASSERT_EQ(head_team_count(comms.core, head_device_at(comms.core, 0)), 0);
    comms.core->config.team_bytes++;
    reduce_some(31, FASTEST);
    ASSERT_EQ(head_team_count(comms.core, head_device_at(comms.core, 0)), 0);
    comms_end();
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
        comms_report_done(i, 3); /* alone, or before */
    }
    ASSERT_TRUE(head_core_idle(comms.core));
    comms_end();
}

TEST(it_is_stuck_when_all_say_the_same)
{
    uint64_t order;

    test_expect_log();
    reduce_open();
    order = comms_task(0, 3)->order;
    for (uint32_t i = 0; i < DEVICES; i++) {
        ASSERT_EQ(comms.told_count[0], 0);
        report_team(i, 1, PLASMON__V1__PAIR_EVENT__PAIR_STALLED, order);
    }
    expect_all_told_broken();
    comms_end();
}

TEST(those_that_wait_for_another_one_are_not_stuck)
{
    uint64_t order;

    reduce_open();
    order = comms_task(0, 3)->order;
    report_team(0, 1, PLASMON__V1__PAIR_EVENT__PAIR_STALLED, order);
    report_team(1, 1, PLASMON__V1__PAIR_EVENT__PAIR_STALLED, order);
    report_team(2, 1, PLASMON__V1__PAIR_EVENT__PAIR_STALLED, order);
    report_team(3, 1, PLASMON__V1__PAIR_EVENT__PAIR_STALLED, order - 1);
    for (uint32_t i = 0; i < DEVICES; i++) {
        ASSERT_EQ(comms.told_count[i], 0);
    }
    comms_end();
}

/*
 * An operation that is aborted tells the others that its bytes came: nobody may abort before all
 * have marked.
 */
TEST(it_is_ended_when_all_have_marked_it)
{
    test_expect_log();
    reduce_open();
    report_team(1, 1, PLASMON__V1__PAIR_EVENT__PAIR_TROUBLE, 0);
    expect_all_told_broken();
    for (uint32_t i = 0; i < DEVICES; i++) {
        for (uint32_t k = 0; k < DEVICES; k++) {
            ASSERT_EQ(comms.told_count[k], 1);
        }
        report_team(i, 1, PLASMON__V1__PAIR_EVENT__PAIR_DECIDED, 0);
    }
    for (uint32_t i = 0; i < DEVICES; i++) {
        ASSERT_EQ(comms.told_count[i], 2);
        expect_told(i, 1, PLASMON__V1__PAIR_STATE__PAIR_STAGED);
    }
    comms_end();
}

/* Who was fenced has nothing to believe any more. */
TEST(a_worker_that_was_replaced_is_not_waited_for)
{
    test_expect_log();
    reduce_open();
    comms_join(3, 1, 2, COMMS_NCCL, 3);
    expect_all_told_broken();
    for (uint32_t i = 0; i + 1 < DEVICES; i++) {
        ASSERT_EQ(comms.told_count[0], 1);
        report_team(i, 1, PLASMON__V1__PAIR_EVENT__PAIR_DECIDED, 0);
    }
    for (uint32_t i = 0; i < DEVICES; i++) {
        ASSERT_EQ(comms.told_count[i], 2);
        expect_told(i, 1, PLASMON__V1__PAIR_STATE__PAIR_STAGED);
    }
    comms_join(3, 1, 3, COMMS_NCCL, 3); /* and the next one hears that at once */
    ASSERT_EQ(comms.told_count[3], 3);
    expect_told(3, 2, PLASMON__V1__PAIR_STATE__PAIR_STAGED);
    comms_end();
}

TEST(a_worker_that_was_replaced_breaks_it_and_hears_of_it_first)
{
    test_expect_log();
    reduce_open();
    comms_join(3, 1, 2, COMMS_NCCL, 3);
    expect_all_told_broken();
    comms_join(3, 1, 3, COMMS_NCCL,
               3); /* once more: what is left of the team is its own to do */
    ASSERT_EQ(comms.told_count[3], 2);
    expect_told(3, 1, PLASMON__V1__PAIR_STATE__PAIR_BROKEN);
    ASSERT_EQ(comms.told_count[0], 1);
    comms_end();
}

TEST(a_device_that_is_gone_ends_it)
{
    test_expect_log();
    reduce_open();
    head_core_worker_down(comms.core, "a", 1, true, PLASMON_OK, "it died too often");
    head_core_flush(comms.core);
    expect_told(0, 0, PLASMON__V1__PAIR_STATE__PAIR_BROKEN);
    ASSERT_EQ(head_team_count(comms.core, head_device_at(comms.core, 0)), 0);
    comms_end();
}

TEST(a_part_without_memory_fails_when_all_else_is_over)
{
    reduce_begin();
    comms_report_starved(2, 3);
    ASSERT_EQ(comms.starve[2], 0);
    for (uint32_t i = 0; i < DEVICES; i++) {
        comms_report_done(i, 1);
        comms_report_done(i, 2);
    }
    ASSERT_EQ(comms.starve[2], 3); /* the others' parts are as old, and wait for it */
    comms_end();
}

static void report_all_done(void)
{
    for (uint32_t i = 0; i < DEVICES; i++) {
        struct head_device *device = head_device_at(comms.core, i);

        for (uint64_t at = device->seq_oldest; at <= device->seq_last; at++) {
            if (comms_task(i, at) != NULL) {
                comms_report_done(i, at);
            }
        }
    }
}

/* Of 1.2 GiB at both ends, and used. */
static void open_pair(uint32_t from, uint32_t to)
{
    uint64_t elements = ELEMENTS;

    /* Another array each time: a copy that is there needs no transfer. */
    comms.core->config.transfer = HEAD_TRANSFER_NCCL;
    core_submit(comms.core, comms.session, ++task_last, from, 0, &elements, 1);
    task_last++;
    core_submit(comms.core, comms.session, task_last, to, task_last + 99, &elements, 1);
    comms.core->config.transfer = HEAD_TRANSFER_AUTO;
    for (uint32_t i = 0; i < 2; i++) {
        Plasmon__V1__PairReport report = PLASMON__V1__PAIR_REPORT__INIT;

        report.event    = PLASMON__V1__PAIR_EVENT__PAIR_OPENED;
        report.bytes    = UINT64_C(1200) << 20;
        report.receives = i == 1;
        report.peer     = i == 1 ? from : to;
        comms_report(i == 1 ? to : from, &report);
    }
    report_all_done();
}

/* Those of a device that are open. */
static uint32_t open_pairs(uint32_t device)
{
    uint32_t count = 0;
    uint64_t key;
    void *item;

    for (size_t at = 0; pl_map_next(&comms.core->pairs, &at, &key, &item);) {
        const struct head_pair *pair = item;

        count += pair->state == HEAD_PAIR_OPEN &&
                 (pair->src->index == device || pair->dst->index == device);
    }
    return count;
}

TEST(a_pair_makes_room_for_a_team_and_a_team_for_a_pair)
{
    begin(COMMS_NCCL);
    report_all_done();
    open_pair(0, 1);
    open_pair(0, 2);
    open_pair(0, 3);
    ASSERT_EQ(open_pairs(0), 3);
    all_reduce(3, 1);
    report_all_done();
    ASSERT_EQ(head_team_count(comms.core, head_device_at(comms.core, 0)), 1);
    ASSERT_EQ(open_pairs(0), 2); /* 4.4 GiB would be too much */
    open_pair(0, 2);
    open_pair(0, 3);
    open_pair(0, 1);
    ASSERT_EQ(open_pairs(0), 3);
    ASSERT_EQ(head_team_count(comms.core, head_device_at(comms.core, 0)), 0);
    comms_end();
}

TEST(a_team_for_which_one_device_has_no_room_closes_nothing_on_the_others)
{
    uint64_t key;
    void *item;

    begin(COMMS_NCCL);
    report_all_done();
    open_pair(0, 2);
    open_pair(0, 3);
    open_pair(2, 0);
    open_pair(1, 2);
    open_pair(1, 3);
    open_pair(2, 1);
    for (size_t at = 0; pl_map_next(&comms.core->pairs, &at, &key, &item);) {
        struct head_pair *pair = item;

        if (pair->src->index == 1 || pair->dst->index == 1) {
            pair->state = HEAD_PAIR_OPENING; /* so it cannot be closed */
        }
    }
    all_reduce(3, 1);
    ASSERT_EQ(head_team_count(comms.core, head_device_at(comms.core, 0)), 0);
    ASSERT_EQ(open_pairs(0), 3);
    for (size_t at = 0; pl_map_next(&comms.core->pairs, &at, &key, &item);) {
        ((struct head_pair *)item)->state = HEAD_PAIR_OPEN;
    }
    all_reduce(3, 1);
    report_all_done();
    ASSERT_EQ(head_team_count(comms.core, head_device_at(comms.core, 1)), 1);
    ASSERT_EQ(open_pairs(0), 2);
    comms_end();
}

TEST(the_one_that_was_not_used_for_longest_makes_room)
{
    static const uint32_t sets[] = {3, 5, 9, 7, 11}; /* all with device 0 */

    begin(COMMS_NCCL);
    for (uint32_t s = 0; s < PL_COUNT(sets); s++) {
        all_reduce(sets[s], 1);
        report_all_done();
        if (s + 1 < PL_COUNT(sets)) {
            ASSERT_EQ(head_team_count(comms.core, head_device_at(comms.core, 0)), s + 1);
        }
    }
    ASSERT_EQ(head_team_count(comms.core, head_device_at(comms.core, 0)), 4);
    ASSERT_EQ(head_team_count(comms.core, head_device_at(comms.core, 1)),
              2); /* {0, 1} is away */
    comms_end();
}

static const struct head_team *team_at(uint64_t number)
{
    return pl_map_get(&comms.core->teams, number);
}

static void reduce_all(uint32_t devices)
{
    all_reduce(devices, 1);
    report_all_done();
}

/* As often as there are sets. */
TEST(the_record_that_was_not_asked_for_for_longest_goes_to_the_next_set)
{
    head_team_records_max = 2;
    begin(COMMS_NCCL);
    report_all_done();
    reduce_all(3);
    reduce_all(5);
    reduce_all(3);
    reduce_all(9); /* no record: the oldest is closed for it, and it goes another way */
    ASSERT_EQ(team_at(2)->state, HEAD_TEAM_CLOSED);
    ASSERT_EQ(comms.core->teams.count, 2);
    reduce_all(9);
    ASSERT_EQ(team_at(2)->state, HEAD_TEAM_OPEN);
    ASSERT_EQ(team_at(2)->epoch, 2); /* what workers know of it is older */
    ASSERT_EQ(team_at(2)->device[1]->index, 3);
    ASSERT_EQ(team_at(1)->state, HEAD_TEAM_OPEN);
    reduce_all(6);
    reduce_all(6);
    ASSERT_EQ(team_at(1)->device[0]->index, 1);
    ASSERT_EQ(head_device_at(comms.core, 0)->teams_opened, 3);
    ASSERT_EQ(head_device_at(comms.core, 1)->teams_opened, 2);
    ASSERT_EQ(head_device_at(comms.core, 2)->teams_opened, 2);
    ASSERT_EQ(comms.core->teams.count, 2);
    comms_end();
}

TEST(the_record_of_a_device_that_is_gone_goes_first)
{
    test_expect_log();
    begin(COMMS_NCCL);
    report_all_done();
    reduce_all(5);
    reduce_all(3);
    head_core_worker_down(comms.core, "a", 1, true, PLASMON_OK, "it died too often");
    head_core_flush(comms.core);
    report_team(0, 2, PLASMON__V1__PAIR_EVENT__PAIR_DECIDED, 0);
    ASSERT_EQ(team_at(2)->state, HEAD_TEAM_CLOSED);
    reduce_all(9);
    ASSERT_EQ(comms.core->teams.count, 2);
    ASSERT_EQ(team_at(2)->device[1]->index, 3);
    reduce_all(13);
    ASSERT_EQ(comms.core->teams.count, 3);
    comms_end();
}

/* A worker that is restarted is told what became of the teams of its launches. */
TEST(a_record_stays_while_a_launch_names_it)
{
    test_expect_log();
    head_team_records_max = 1;
    begin(COMMS_NCCL);
    report_all_done();
    reduce_all(3);
    all_reduce(3, 1);
    report_team(0, 1, PLASMON__V1__PAIR_EVENT__PAIR_TROUBLE, 0);
    report_team(0, 1, PLASMON__V1__PAIR_EVENT__PAIR_DECIDED, 0);
    report_team(1, 1, PLASMON__V1__PAIR_EVENT__PAIR_DECIDED, 0);
    ASSERT_EQ(team_at(1)->state, HEAD_TEAM_CLOSED);
    all_reduce(12, 1);
    ASSERT_EQ(team_at(1)->device[0]->index, 0);
    report_all_done();
    all_reduce(12, 1);
    ASSERT_EQ(team_at(1)->device[0]->index, 2);
    ASSERT_EQ(team_at(1)->failures, 0);
    comms_end();
}

TEST_MAIN()
