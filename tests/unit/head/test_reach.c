/*
 * Ways between hosts by which nothing gets through: what workers report of them is made up, and
 * what they are told is decoded. Three hosts of a device each, or two of two and one of one.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "head/checkpoint.h"
#include "head/core_int.h"
#include "tests/harness/test.h"
#include "tests/unit/head/core.h"

enum {
    HOSTS               = 3,
    DEVICES             = 5,
    ORDERS_MAX          = 16,
    REPORTED_PEER_ROUTE = 1,
    REPORTED_HOST_ROUTE = 2
};

struct order {
    uint32_t peer;
    bool receives;
    uint64_t first;
    uint64_t count;
};

static struct head_core *core;
static struct wire_arena arena;
static struct order orders[DEVICES][ORDERS_MAX];
static uint32_t order_count[DEVICES];
static uint32_t host_devices; /* of the first two hosts */
static uint64_t session;
static uint32_t comm_version;

static void take_command(void *user, uint32_t device, const uint8_t *body, size_t length)
{
    Plasmon__V1__WorkerCommand *command;

    (void)user;
    wire_arena_reset(&arena);
    command = plasmon__v1__worker_command__unpack(&arena.allocator, length, body);
    ASSERT_NOT_NULL(command);
    for (size_t i = 0; i < command->n_bulk_give_up; i++) {
        const Plasmon__V1__BulkGiveUp *order = command->bulk_give_up[i];

        ASSERT_TRUE(order_count[device] < ORDERS_MAX);
        orders[device][order_count[device]++] =
            (struct order){order->device, order->receives, order->first, order->count};
    }
}

/* enqueued, unfinished from `first` on: of the worker before it. */
static void come(uint32_t device, uint32_t incarnation, uint64_t first, uint64_t enqueued)
{
    static const char *const names[HOSTS] = {"a", "b", "c"};
    uint32_t at                           = device / host_devices;
    Plasmon__V1__WorkerHello hello        = PLASMON__V1__WORKER_HELLO__INIT;
    Plasmon__V1__Range range              = PLASMON__V1__RANGE__INIT;
    Plasmon__V1__Range *ranges[1]         = {&range};
    uint8_t secret[16]                    = {1};
    char address[32];
    struct pl_err err = {0};
    uint32_t number;

    range.first        = first;
    range.count        = enqueued + 1 - first;
    hello.unfinished   = ranges;
    hello.n_unfinished = enqueued > 0;
    hello.enqueued     = enqueued;
    hello.host         = (char *)(uintptr_t)names[at];
    hello.node         = (char *)(uintptr_t)names[at];
    hello.host_device  = device % host_devices;
    hello.name         = "test";
    hello.kind         = 1;
    hello.bytes_total  = 1 << 20;
    hello.incarnation  = incarnation;
    (void)snprintf(address, sizeof(address), "10.0.0.%u:%u", device + 1,
                   7100 + incarnation);
    hello.bulk_address     = address;
    hello.bulk_secret.data = secret;
    hello.bulk_secret.len  = sizeof(secret);
    hello.comm_version     = comm_version;
    hello.comm_plain       = true;
    ASSERT_OK(head_core_worker_up(core, &hello, &number, &err));
    ASSERT_EQ(number, device);
    head_core_flush(core);
}

static void done(uint32_t device, uint64_t seq)
{
    Plasmon__V1__WorkerFrame frame = PLASMON__V1__WORKER_FRAME__INIT;
    Plasmon__V1__Range range       = PLASMON__V1__RANGE__INIT;
    Plasmon__V1__Range *ranges[1]  = {&range};
    struct pl_err err              = {0};

    range.first = seq, range.count = 1;
    frame.done = ranges, frame.n_done = 1;
    ASSERT_OK(head_core_worker_frame(core, device, &frame, &err));
    head_core_flush(core);
}

static void pass(uint64_t ms)
{
    head_core_tick(core, core->now_ms + ms);
}

static void begin_of(enum head_transfer transfer, uint32_t devices_a_host)
{
    static const struct head_ops ops = {.client_frame   = core_drop_frame,
                                        .worker_command = take_command,
                                        .fence          = core_drop_fence,
                                        .session_ended  = core_drop_end,
                                        .random64       = core_count_up};

    memset(order_count, 0, sizeof(order_count));
    host_devices          = devices_a_host;
    comm_version          = transfer == HEAD_TRANSFER_NCCL ? 22809 : 0;
    core                  = core_make();
    core->config.ops      = &ops;
    core->config.transfer = transfer;
    ASSERT_OK(wire_arena_init(&arena, 1 << 20));
    for (uint32_t i = 0; i < HOSTS; i++) {
        core_announce(core, (const char *[]){"a", "b", "c"}[i], i < 2 ? devices_a_host : 1);
    }
    for (uint32_t i = 0; i <= 2 * devices_a_host; i++) {
        come(i, 1, 1, 0);
    }
    pass(HEAD_REACH_WAIT_MS);
    session = core_client(core);
    core_submit(core, session, 1, 0, 0, (uint64_t[]){1000}, 1); /* device 0 has it */
    done(0, 1);
}

static void begin(enum head_transfer transfer)
{
    begin_of(transfer, 1);
}

static void end(void)
{
    head_core_check(core);
    head_core_destroy(core);
    wire_arena_finish(&arena);
}

/* Task `id` is to read it there. @return the number of the RECV; its SEND is the last launch of device 0 */
static uint64_t read_on(uint32_t device, uint64_t id)
{
    core_submit(core, session, id, device, 101, NULL, 0);
    return head_device_at(core, device)->seq_last - 1;
}

static const struct head_task *task_of(uint32_t device, uint64_t seq)
{
    return head_device_task(head_device_at(core, device), seq);
}

/* A worker says of the way from its device to `to`; why "": all is well. */
static void report_from(uint32_t from, uint32_t route, uint32_t to, uint64_t ms,
                        uint64_t last, const char *why)
{
    Plasmon__V1__WorkerFrame frame  = PLASMON__V1__WORKER_FRAME__INIT;
    Plasmon__V1__WorkerStats stats  = PLASMON__V1__WORKER_STATS__INIT;
    Plasmon__V1__PairStats pair     = PLASMON__V1__PAIR_STATS__INIT;
    Plasmon__V1__PairStats *pairs[] = {&pair};
    struct pl_err err               = {0};

    pair.route = route, pair.sent = true, pair.to = to;
    pair.unreached_ms = ms, pair.unreached_last = last;
    pair.unreached_why = (char *)(uintptr_t)why;
    stats.pairs = pairs, stats.n_pairs = 1;
    frame.stats = &stats;
    ASSERT_OK(head_core_worker_frame(core, from, &frame, &err));
    head_core_flush(core);
}

static void report_by(uint32_t route, uint32_t to, uint64_t ms, uint64_t last,
                      const char *why)
{
    report_from(0, route, to, ms, last, why);
}

static void report(uint32_t to, uint64_t ms, uint64_t last)
{
    report_by(REPORTED_HOST_ROUTE, to, ms, last, "10.0.0.2:7100: nobody there");
}

static bool apart(uint32_t from, uint32_t to)
{
    return head_reach_apart(core, head_device_at(core, from), head_device_at(core, to));
}

static void expect_order(uint32_t device, uint32_t index, uint32_t peer, bool receives,
                         uint64_t first)
{
    ASSERT_TRUE(index < order_count[device]);
    ASSERT_EQ(orders[device][index].peer, peer);
    ASSERT_EQ(orders[device][index].receives, receives);
    ASSERT_EQ(orders[device][index].first, first);
    ASSERT_EQ(orders[device][index].count, 1);
}

TEST(a_transfer_fails_when_the_bound_is_over_and_not_before)
{
    const struct head_task *send, *receive, *again;
    uint64_t received, run;

    test_expect_log();
    begin(HEAD_TRANSFER_AUTO);
    received = read_on(1, 2);
    send     = task_of(0, head_device_at(core, 0)->seq_last);
    receive  = task_of(1, received);
    run      = receive->seq + 1;
    report(1, HEAD_REACH_WAIT_MS - 1, 0);
    ASSERT_TRUE(apart(0, 1));
    ASSERT_TRUE(!apart(1, 0) && !apart(0, 2));
    ASSERT_NULL(send->failure);
    ASSERT_EQ(order_count[0] + order_count[1], 0);

    report(1, HEAD_REACH_WAIT_MS, 0);
    ASSERT_EQ(send->failure->status, PLASMON_EUNREACHABLE);
    ASSERT_EQ(receive->failure->status, PLASMON_EUNREACHABLE);
    ASSERT_EQ(task_of(1, run)->failure->status, PLASMON_EUNREACHABLE);
    ASSERT_NOT_NULL(strstr(
        task_of(1, run)->failure->text,
        "cannot get what it reads: no bytes went from device 0 on a to device 1 on b for "
        "60 s, though both are there: 10.0.0.2:7100: nobody there"));
    expect_order(0, 0, 1, false, 0);
    expect_order(1, 0, 0, true, 0);
    again = task_of(0, head_device_at(core, 0)->seq_last); /* where its input is */
    ASSERT_EQ(again->id, 2);
    ASSERT_NULL(again->failure);

    report(1, HEAD_REACH_WAIT_MS + 1000, 0); /* it goes on saying so; they know it */
    ASSERT_EQ(order_count[0], 1);
    ASSERT_EQ(order_count[1], 1);
    done(0, send->seq); /* both let go */
    done(1, receive->seq);
    done(1, run);
    ASSERT_NULL(task_of(1, received));
    end();
}

/* Task `id` writes the first half of what device 0 has. */
static void write_half_on(uint32_t device, uint64_t id)
{
    Plasmon__V1__ClientFrame frame = PLASMON__V1__CLIENT_FRAME__INIT;
    Plasmon__V1__Task task         = PLASMON__V1__TASK__INIT;
    Plasmon__V1__Arg arg           = PLASMON__V1__ARG__INIT;
    Plasmon__V1__Arg *args[1]      = {&arg};
    Plasmon__V1__Task *tasks[1]    = {&task};
    int64_t view[3]                = {0, 500, 1};
    struct pl_err err              = {0};

    arg.mode = PLASMON__V1__MODE__MODE_OUT, arg.ref = 101;
    arg.view = view, arg.n_view = 3;
    task.id = id, task.place = device + 1, task.function = pl_hash_name("fill");
    task.args = args, task.n_args = 1;
    frame.tasks = tasks, frame.n_tasks = 1;
    ASSERT_OK(head_core_client_frame(core, session, &frame, &err));
    head_core_flush(core);
}

/*
 * One half is there, and the other one cannot come: no launch between that and the task is
 * somebody's, so it is the task that fails for want of a way.
 */
TEST(who_reads_what_is_joined_of_several_parts_cannot_get_it_either)
{
    const struct head_task *join, *reader;

    test_expect_log();
    begin(HEAD_TRANSFER_AUTO);
    write_half_on(1, 2);
    core_submit(core, session, 3, 1, 101, NULL, 0);
    reader = task_of(1, head_device_at(core, 1)->seq_last);
    join   = task_of(1, reader->seq - 1);
    ASSERT_EQ(reader->id, 3);
    ASSERT_EQ(join->kind, PLASMON__V1__LAUNCH_KIND__LAUNCH_COPY);
    report(1, HEAD_REACH_WAIT_MS, UINT64_MAX);
    ASSERT_EQ(join->failure->status, PLASMON_EUNREACHABLE);
    ASSERT_EQ(reader->failure->status, PLASMON_EUNREACHABLE);
    ASSERT_NOT_NULL(
        strstr(reader->failure->text, "cannot get what it reads: no bytes went"));
    ASSERT_EQ(reader->failure->first_task, 0);
    end();
}

TEST(only_what_the_attempt_was_made_for_fails)
{
    const struct head_task *first, *later, *other;

    test_expect_log();
    begin(HEAD_TRANSFER_AUTO);
    first = task_of(1, read_on(1, 2));
    core_submit(core, session, 3, 0, 0, (uint64_t[]){1000}, 1);
    core_submit(core, session, 4, 1, 103, NULL, 0);
    later = task_of(1, head_device_at(core, 1)->seq_last - 1);
    ASSERT_EQ(later->kind, PLASMON__V1__LAUNCH_KIND__LAUNCH_RECV);
    other = task_of(2, read_on(2, 5));
    report(1, HEAD_REACH_WAIT_MS, 0);
    ASSERT_NOT_NULL(first->failure);
    ASSERT_NULL(later->failure);
    ASSERT_NULL(other->failure);
    report(1, HEAD_REACH_WAIT_MS, later->chunk);
    ASSERT_NOT_NULL(later->failure);
    ASSERT_NULL(other->failure);
    expect_order(1, 1, 0, true, later->chunk);
    ASSERT_EQ(order_count[2], 0);
    end();
}

TEST(who_is_replaced_is_told_again_before_its_launches_come)
{
    uint64_t sent, received;

    test_expect_log();
    begin(HEAD_TRANSFER_AUTO);
    received = read_on(1, 2);
    sent     = head_device_at(core, 0)->seq_last;
    report(1, HEAD_REACH_WAIT_MS, 0);
    head_core_worker_lost(core, 0);
    come(0, 2, sent, sent);
    expect_order(0, 1, 1, false, 0);
    ASSERT_TRUE(!apart(0, 1)); /* this one does not know */
    done(0, sent);
    head_core_worker_lost(core, 1);
    come(1, 2, received, received + 1); /* though the other half is over */
    expect_order(1, 1, 0, true, 0);
    done(1, received);
    head_core_worker_lost(core, 1);
    come(1, 3, received + 1, received + 1);
    ASSERT_EQ(order_count[1], 2);
    end();
}

TEST(who_is_not_there_is_not_one_that_cannot_be_reached)
{
    const struct head_task *receive;

    test_expect_log();
    begin(HEAD_TRANSFER_AUTO);
    receive = task_of(1, read_on(1, 2));
    head_core_worker_lost(core, 1); /* its host boots, say */
    report(1, 2 * HEAD_REACH_WAIT_MS, 0);
    ASSERT_NULL(receive->failure);
    ASSERT_TRUE(!apart(0, 1));
    ASSERT_EQ(order_count[0] + order_count[1], 0);
    pass(2 * HEAD_REACH_WAIT_MS);
    come(1, 2, receive->seq, receive->seq + 1);
    report(1, 4 * HEAD_REACH_WAIT_MS, 0); /* still of the one before */
    ASSERT_NULL(receive->failure);
    pass(HEAD_REACH_WAIT_MS);
    report(1, HEAD_REACH_WAIT_MS, 0);
    ASSERT_EQ(receive->failure->status, PLASMON_EUNREACHABLE);
    end();
}

TEST(bytes_that_came_though_no_answer_did_are_no_failure)
{
    const struct head_task *receive;
    uint64_t run;

    test_expect_log();
    begin(HEAD_TRANSFER_AUTO);
    receive = task_of(1, read_on(1, 2));
    run     = receive->seq + 1;
    done(1, receive->seq);
    report(1, HEAD_REACH_WAIT_MS, 0);
    expect_order(0, 0, 1, false, 0); /* which waits for an answer */
    ASSERT_EQ(order_count[1], 0);
    ASSERT_NULL(task_of(1, run)->failure);
    end();
}

TEST(what_goes_by_a_pair_does_not_wait_for_the_bulk_channel)
{
    const struct head_task *receive;

    test_expect_log();
    begin(HEAD_TRANSFER_NCCL);
    receive = task_of(1, read_on(1, 2));
    ASSERT_TRUE(receive->pair != 0);
    report(1, HEAD_REACH_WAIT_MS, UINT64_MAX);
    ASSERT_NULL(receive->failure);
    ASSERT_EQ(order_count[0] + order_count[1], 0);
    end();
}

TEST(what_gets_through_again_is_chosen_again)
{
    const struct head_device *to;

    test_expect_log();
    begin(HEAD_TRANSFER_AUTO);
    to = head_device_at(core, 1);
    ASSERT_TRUE(head_rates_ns(core, head_device_at(core, 0), to, 1000) < 1000000000);
    report(1, 1000, 0);
    ASSERT_TRUE(head_rates_ns(core, head_device_at(core, 0), to, 1000) > 1000000000000);
    ASSERT_TRUE(head_rates_known_ns(core, head_device_at(core, 0), to, 1000) >
                1000000000000);
    report_by(REPORTED_HOST_ROUTE, 1, 0, 0, "");
    ASSERT_TRUE(!apart(0, 1));
    ASSERT_TRUE(head_rates_ns(core, head_device_at(core, 0), to, 1000) < 1000000000);
    report_by(REPORTED_PEER_ROUTE, 1, HEAD_REACH_WAIT_MS, 0, "no such thing");
    ASSERT_TRUE(!apart(0, 1));
    end();
}

/* ------------------------------------------------------------- two hosts of two devices */

/* Devices 0 and 1 are on host a, 2 and 3 on b, 4 on c. */
static void begin_wide(void)
{
    test_expect_log();
    begin_of(HEAD_TRANSFER_AUTO, 2);
}

/* From host a to host b, of all their devices. */
static bool hosts_apart(void)
{
    bool apart_one = apart(0, 2);

    ASSERT_EQ(apart(0, 3), apart_one);
    ASSERT_EQ(apart(1, 2), apart_one);
    ASSERT_EQ(apart(1, 3), apart_one);
    return apart_one;
}

static void unreached(uint32_t from, uint32_t to)
{
    report_from(from, REPORTED_HOST_ROUTE, to, 1000, 0, "10.0.0.2:7100: nobody there");
}

static void well(uint32_t from, uint32_t to)
{
    report_from(from, REPORTED_HOST_ROUTE, to, 0, 0, "");
}

TEST(what_does_not_get_from_one_device_to_another_does_not_for_their_hosts)
{
    begin_wide();
    unreached(0, 2);
    ASSERT_TRUE(hosts_apart());
    ASSERT_TRUE(!apart(2, 0) && !apart(3, 1)); /* the other direction */
    ASSERT_TRUE(!apart(0, 4) && !apart(4, 2)); /* another host */
    ASSERT_TRUE(!apart(0, 1) && !apart(2, 3)); /* a host and itself */
    well(1, 3);                                /* which sends nothing */
    ASSERT_TRUE(hosts_apart());
    unreached(1, 3);
    well(0, 2);
    ASSERT_TRUE(hosts_apart());
    well(1, 3);
    ASSERT_TRUE(!hosts_apart());
    end();
}

/*
 * A task that has no place of its own goes elsewhere at once, not to the next device of the host
 * that cannot be reached.
 */
TEST(who_cannot_get_its_input_does_not_run_beside_where_it_failed)
{
    const struct head_task *again;

    begin_wide();
    ASSERT_TRUE(head_rates_ns(core, head_device_at(core, 0), head_device_at(core, 3),
                              1000) < 1000000000);
    (void)read_on(2, 2);
    report_from(0, REPORTED_HOST_ROUTE, 2, HEAD_REACH_WAIT_MS, 0, "nobody there");
    again = task_of(0, head_device_at(core, 0)->seq_last);
    ASSERT_EQ(again->id, 2);
    ASSERT_NULL(again->failure);
    ASSERT_TRUE(head_rates_ns(core, head_device_at(core, 0), head_device_at(core, 3),
                              1000) > 1000000000000);
    end();
}

TEST(bytes_between_two_others_of_the_hosts_say_that_it_is_these_devices_alone)
{
    uint64_t received;

    begin_wide();
    received = read_on(3, 2);
    unreached(0, 2);
    unreached(1, 2);
    ASSERT_TRUE(hosts_apart());
    done(3, received); /* from device 0 */
    ASSERT_TRUE(apart(0, 2) && apart(1, 2));
    ASSERT_TRUE(!apart(0, 3) && !apart(1, 3));
    unreached(0, 2); /* it goes on saying so: of itself */
    ASSERT_TRUE(!apart(0, 3));
    unreached(1, 3); /* but this is news */
    ASSERT_TRUE(hosts_apart());
    well(1, 3);
    ASSERT_TRUE(!apart(0, 3));
    well(0, 2);
    well(1, 2);
    unreached(0, 2); /* nothing is known of before */
    ASSERT_TRUE(hosts_apart());
    end();
}

TEST(a_transfer_that_was_given_up_is_none_that_came)
{
    uint64_t received;

    begin_wide();
    received = read_on(2, 2);
    report_from(0, REPORTED_HOST_ROUTE, 2, HEAD_REACH_WAIT_MS, 0, "nobody there");
    done(2, received);
    ASSERT_TRUE(hosts_apart());
    end();
}

TEST(a_device_that_is_gone_keeps_no_hosts_apart)
{
    begin_wide();
    unreached(0, 2);
    unreached(1, 2);
    head_core_worker_down(core, "a", 0, true, PLASMON_OK, "test");
    ASSERT_TRUE(apart(1, 3));
    unreached(0, 3); /* late */
    head_core_worker_down(core, "b", 0, true, PLASMON_OK, "test");
    ASSERT_TRUE(!apart(1, 3));
    end();
}

TEST(people_are_told_once_that_two_hosts_are_apart)
{
    Plasmon__V1__StatusReply reply = PLASMON__V1__STATUS_REPLY__INIT;
    uint64_t received;

    begin_wide();
    received = read_on(3, 2);
    for (uint32_t i = 0; i < 4; i++) {
        unreached(i / 2, 2 + i % 2);
    }
    unreached(3, 1);
    wire_arena_reset(&arena);
    ASSERT_OK(head_core_status_pairs(core, &arena, &reply));
    ASSERT_EQ(reply.n_choices, 2);
    ASSERT_EQ(reply.choices[0]->from, 0);
    ASSERT_EQ(reply.choices[0]->to, 2);
    ASSERT_STR(reply.choices[0]->why, "nothing gets through now from a to b: "
                                      "10.0.0.2:7100: nobody there");
    ASSERT_EQ(reply.choices[1]->from, 3);
    well(0, 3);
    done(3, received);
    wire_arena_reset(&arena);
    plasmon__v1__status_reply__init(&reply);
    ASSERT_OK(head_core_status_pairs(core, &arena, &reply));
    ASSERT_EQ(reply.n_choices, 4);
    ASSERT_NOT_NULL(strstr(reply.choices[1]->why,
                           "between these two devices, though others do: 10.0.0.2:7100"));
    end();
}

/* Nothing is on its way, so that it can be saved. */
static void all_done(void)
{
    for (uint32_t i = 0; i < DEVICES; i++) {
        struct head_device *device = head_device_at(core, i);

        while (device->seq_oldest <= device->seq_last) {
            done(i, device->seq_oldest);
        }
    }
    if (head_core_unquiet(core) != NULL) {
        test_fail(__FILE__, __LINE__, "%s", head_core_unquiet(core));
    }
}

static void load_and_compare(void)
{
    struct head_core *loaded    = core_make();
    struct head_core *before    = core;
    struct head_bytes saved     = {.data = NULL};
    bool was[DEVICES * DEVICES] = {false};
    struct head_reader in;
    struct pl_err err = {0};

    for (uint32_t i = 0; i < DEVICES * DEVICES; i++) {
        was[i] = apart(i / DEVICES, i % DEVICES);
    }
    head_core_save(core, &saved);
    in = (struct head_reader){.at = saved.data, .end = saved.data + saved.length};
    ASSERT_OK(head_core_load(loaded, &in, &err));
    core = loaded;
    for (uint32_t i = 0; i < DEVICES * DEVICES; i++) {
        ASSERT_EQ(apart(i / DEVICES, i % DEVICES), was[i]);
    }
    well(0, 2);
    ASSERT_TRUE(!apart(0, 2) && !apart(0, 3)); /* what was counted can be counted down */
    head_core_check(core);
    head_core_destroy(core);
    core = before;
    pl_free(saved.data);
}

TEST(a_checkpoint_has_what_is_apart)
{
    begin_wide();
    all_done();
    unreached(0, 2);
    load_and_compare();
    (void)read_on(3, 2);
    all_done();
    ASSERT_TRUE(apart(0, 2) && !apart(0, 3));
    load_and_compare();
    end();
}

TEST_MAIN()
