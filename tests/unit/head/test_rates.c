/*
 * Measured rates: what reports become, when they count, which route between hosts follows from them
 * and how often the other one is tried. What workers report is made up.
 */
#include <string.h>

#include "head/core_int.h"
#include "tests/harness/test.h"
#include "tests/unit/head/core.h"

enum { HOST = 2, NCCL = 3, PEER = 1 };
#define MIB  (UINT64_C(1) << 20)
#define GB   UINT64_C(1000000000)
#define MANY 1000u

static struct head_core *core;

static void join(const char *host, uint32_t host_device)
{
    Plasmon__V1__WorkerHello hello = PLASMON__V1__WORKER_HELLO__INIT;
    struct pl_err err              = {0};
    uint32_t device;

    hello.host             = (char *)(uintptr_t)host;
    hello.node             = (char *)(uintptr_t)host;
    hello.name             = "test";
    hello.host_device      = host_device;
    hello.kind             = 2;
    hello.bytes_total      = UINT64_C(1) << 30;
    hello.incarnation      = 1;
    hello.peer_capable     = true;
    hello.comm_version     = 22800;
    hello.comm_plain       = true;
    hello.comm_missing     = "";
    hello.bulk_address     = "10.0.0.1:7100";
    hello.bulk_secret.data = (uint8_t *)(uintptr_t) "sixteen bytes !!";
    hello.bulk_secret.len  = WIRE_BULK_SECRET_BYTES;
    ASSERT_OK(head_core_worker_up(core, &hello, &device, &err));
}

/* Devices 0 and 1 on host a, 2 and 3 on host b: GPUs that could have pairs. */
static void begin(void)
{
    core = core_make();
    core_announce(core, "a", 2);
    core_announce(core, "b", 2);
    for (uint32_t i = 0; i < 4; i++) {
        join(i < 2 ? "a" : "b", i % 2);
    }
}

static void end(void)
{
    head_core_check(core);
    head_core_destroy(core);
}

/* Sums, as a worker has them. */
struct report {
    uint32_t from, to, route;
    uint64_t transfers, bytes, busy_ns;
};

static void tell(const struct report *report)
{
    Plasmon__V1__PairStats pair = PLASMON__V1__PAIR_STATS__INIT;

    pair.route     = report->route;
    pair.from      = report->from;
    pair.to        = report->to;
    pair.transfers = report->transfers;
    pair.bytes     = report->bytes;
    pair.busy_ns   = report->busy_ns;
    head_rates_take(core, &pair);
}

/* Another transfer of so many bytes, at so many a second. */
static void move(struct report *report, uint64_t bytes, uint64_t bytes_per_s)
{
    report->transfers++;
    report->bytes += bytes;
    report->busy_ns += bytes * 1000 / (bytes_per_s / 1000000);
    tell(report);
}

/* What a sender says of its connection, three times, each a bit different. */
static void measure_connection(uint32_t from, uint32_t to, uint64_t bytes_per_s)
{
    for (uint32_t i = 0; i < HEAD_RATE_SAMPLES; i++) {
        Plasmon__V1__PairStats pair = PLASMON__V1__PAIR_STATS__INIT;

        pair.route = HOST;
        pair.from  = from;
        pair.to    = to;
        pair.sent  = true;
        pair.rate  = bytes_per_s + i;
        head_rates_take(core, &pair);
    }
}

static void measure(uint32_t from, uint32_t to, uint32_t route, uint64_t bytes_per_s)
{
    struct report report = {from, to, route, 0, 0, 0};

    if (route == HOST && from / 2 != to / 2) {
        measure_connection(from, to, bytes_per_s);
        return;
    }
    for (uint32_t i = 0; i < HEAD_RATE_SAMPLES; i++) {
        move(&report, 64 * MIB, bytes_per_s);
    }
}

static uint64_t rate_of(uint32_t from, uint32_t to, uint32_t route)
{
    return head_rates_way(core, from, to)->rates[route].bytes_per_s;
}

static uint64_t ns_of(uint32_t from, uint32_t to, uint64_t bytes)
{
    return head_rates_ns(core, head_device_at(core, from), head_device_at(core, to), bytes);
}

/* ------------------------------------------------------------------------------ samples */

TEST(a_rate_is_what_moved_between_two_reports_in_the_time_in_which_some_was_under_way)
{
    struct report report = {0, 2, NCCL, 0, 0, 0};

    begin();
    move(&report, 100 * MIB, GB);
    ASSERT_TRUE(rate_of(0, 2, NCCL) > GB / 1000 * 999 && rate_of(0, 2, NCCL) <= GB);
    tell(&report); /* nothing new */
    ASSERT_EQ(head_rates_way(core, 0, 2)->rates[NCCL].rate_samples, 1);
    ASSERT_NULL(head_rates_way(core, 2, 0));
    end();
}

TEST(what_is_under_way_is_not_counted)
{
    Plasmon__V1__PairStats pair = PLASMON__V1__PAIR_STATS__INIT;

    begin();
    pair.route           = NCCL;
    pair.to              = 2;
    pair.transfers       = 2;
    pair.bytes           = 110 * MIB;
    pair.in_flight       = 1;
    pair.in_flight_bytes = 10 * MIB;
    pair.busy_ns         = 100 * MIB; /* a byte a nanosecond */
    head_rates_take(core, &pair);
    ASSERT_EQ(rate_of(0, 2, NCCL), GB);
    end();
}

TEST(better_figures_count_at_once_and_worse_ones_slowly)
{
    struct report report = {0, 2, NCCL, 0, 0, 0};

    begin();
    move(&report, 100 * MIB, GB);
    move(&report, 100 * MIB, 3 * GB);
    ASSERT_TRUE(rate_of(0, 2, NCCL) > GB / 10 * 19 && rate_of(0, 2, NCCL) < GB / 10 * 21);
    move(&report, 100 * MIB, GB / 10); /* it waited for who makes the bytes */
    ASSERT_TRUE(rate_of(0, 2, NCCL) > GB / 10 * 17);
    for (uint32_t i = 0; i < 100; i++) { /* a network that became slow */
        move(&report, 100 * MIB, GB / 10);
    }
    ASSERT_TRUE(rate_of(0, 2, NCCL) < GB / 8);
    end();
}

TEST(small_transfers_say_something_of_latency_and_large_ones_of_bandwidth)
{
    struct report report = {0, 2, NCCL, 0, 0, 0};
    const struct head_rate *rate;

    begin();
    report.transfers = 10;
    report.bytes     = 10 * 1000;
    report.busy_ns   = 10 * 50000;
    tell(&report);
    rate = &head_rates_way(core, 0, 2)->rates[NCCL];
    ASSERT_EQ(rate->latency_ns, 50000);
    ASSERT_EQ(rate->rate_samples, 0);
    move(&report, 500000, GB); /* neither */
    ASSERT_EQ(rate->rate_samples + rate->latency_samples, 1);
    end();
}

TEST(a_worker_that_begins_anew_begins_at_nothing)
{
    struct report report = {0, 2, NCCL, 0, 0, 0}, again = {0, 2, NCCL, 0, 0, 0};

    begin();
    move(&report, 500 * MIB, GB);
    move(&again, 100 * MIB, GB);
    ASSERT_EQ(head_rates_way(core, 0, 2)->rates[NCCL].rate_samples, 2);
    ASSERT_TRUE(rate_of(0, 2, NCCL) > GB / 1000 * 999 && rate_of(0, 2, NCCL) <= GB);
    end();
}

TEST(by_the_bulk_channel_the_senders_figure_counts_alone)
{
    struct report report = {0, 2, HOST, 0, 0, 0};

    begin();
    move(&report, 100 * MIB, 100 * GB); /* the chunks were there before its half began */
    ASSERT_EQ(head_rates_way(core, 0, 2)->rates[HOST].rate_samples, 0);
    measure_connection(0, 2, GB);
    ASSERT_TRUE(rate_of(0, 2, HOST) >= GB && rate_of(0, 2, HOST) < GB + 3);
    end();
}

TEST(reports_of_devices_that_there_are_not_and_of_no_time_make_no_figures)
{
    struct report none = {0, 77, HOST, 1, MIB, 1000000}, same = {1, 1, 0, 1, MIB, 1000000};
    struct report fast = {0, 2, HOST, 1, UINT64_C(1) << 60, 1000};

    begin();
    tell(&none);
    tell(&same);
    ASSERT_EQ(core->ways.count, 0);
    tell(&fast);
    ASSERT_TRUE(ns_of(0, 2, MIB) > 0);
    end();
}

/* ---------------------------------------------------------------------------- estimates */

TEST(figures_count_from_the_third_sample_on)
{
    struct report report = {0, 1, PEER, 0, 0, 0};
    uint64_t guess, estimate;

    begin();
    guess = ns_of(0, 1, 64 * MIB);
    move(&report, 64 * MIB, 10 * GB);
    move(&report, 64 * MIB, 10 * GB);
    ASSERT_EQ(ns_of(0, 1, 64 * MIB), guess);
    move(&report, 64 * MIB, 10 * GB);
    estimate = ns_of(0, 1, 64 * MIB);
    ASSERT_TRUE(estimate > 6700000 && estimate < 6900000);
    ASSERT_TRUE(ns_of(0, 2, 64 * MIB) > ns_of(1, 0, 64 * MIB)); /* guessed: a network */
    end();
}

/* ----------------------------------------------------------------------------- choosing */

static bool by_nccl(uint64_t bytes)
{
    return head_rates_nccl(core, head_device_at(core, 0), head_device_at(core, 2), bytes);
}

TEST(as_long_as_one_route_was_not_measured_the_rule_is_as_without)
{
    begin();
    ASSERT_TRUE(by_nccl(MIB));
    measure(0, 2, HOST, 10 * GB);
    ASSERT_TRUE(by_nccl(MIB));
    ASSERT_EQ(head_rates_way(core, 0, 2)->chosen, 0);
    end();
}

TEST(the_faster_route_is_taken_and_the_other_one_tried_now_and_then)
{
    uint32_t by[2] = {0, 0};

    begin();
    measure(0, 2, HOST, 10 * GB);
    measure(0, 2, NCCL, 2 * GB);
    for (uint32_t i = 0; i < MANY; i++) {
        by[by_nccl(MIB)]++;
    }
    ASSERT_EQ(by[0] + by[1], MANY);
    ASSERT_TRUE(by[1] >= 1 && by[1] <= MANY / 64);
    ASSERT_EQ(head_rates_way(core, 0, 2)->explored, by[1]);
    end();
}

TEST(a_large_transfer_is_not_the_one_to_try_the_slower_route)
{
    begin();
    measure(0, 2, HOST, 10 * GB);
    measure(0, 2, NCCL, 2 * GB);
    for (uint32_t i = 0; i < 500; i++) {
        if (i % 64 != 63) {
            (void)by_nccl(4096);
        } else {
            ASSERT_TRUE(!by_nccl(MIB * 1024)); /* more than a 64th of what went */
        }
    }
    end();
}

TEST(two_routes_that_are_alike_do_not_take_turns_and_a_better_one_wins)
{
    struct report report = {0, 2, NCCL, 0, 0, 0};

    begin();
    measure(0, 2, HOST, 10 * GB);
    measure(0, 2, NCCL, 10 * GB - GB / 10);
    ASSERT_TRUE(!by_nccl(64 * MIB));
    report = (struct report){0, 2, NCCL, 100, 1000 * MIB, GB};
    tell(&report);
    for (uint32_t i = 0; i < 20; i++) {
        move(&report, 64 * MIB, 10 * GB + GB / 2); /* not by a tenth */
    }
    ASSERT_TRUE(!by_nccl(64 * MIB));
    for (uint32_t i = 0; i < 20; i++) {
        move(&report, 64 * MIB, 20 * GB);
    }
    ASSERT_TRUE(by_nccl(64 * MIB));
    ASSERT_EQ(head_rates_way(core, 0, 2)->chosen, NCCL);
    end();
}

TEST(within_a_host_nothing_is_chosen)
{
    begin();
    measure(0, 1, HOST, 10 * GB);
    measure(0, 1, NCCL, GB);
    ASSERT_TRUE(
        head_rates_nccl(core, head_device_at(core, 0), head_device_at(core, 1), MIB));
    ASSERT_EQ(head_rates_way(core, 0, 1)->chosen, 0);
    end();
}

/* 64 MiB lie on either host: where does the task go that needs both? */
static uint32_t placed(void)
{
    struct head_want wants[2]    = {{.at = head_device_at(core, 0), .bytes = 64 * MIB},
                                    {.at = head_device_at(core, 2), .bytes = 64 * MIB}};
    struct head_failure *failure = NULL;
    struct head_device *device   = head_place(core, wants, 2, 0, &failure);

    ASSERT_TRUE(device != NULL);
    return device->index;
}

TEST(a_task_goes_where_the_network_brings_its_inputs_sooner)
{
    begin();
    measure(0, 2, HOST, 20 * GB);
    measure(2, 0, HOST, GB);
    ASSERT_EQ(placed(), 2);
    ASSERT_EQ(placed(), 2);
    end();
    begin();
    measure(0, 2, HOST, GB);
    measure(2, 0, HOST, 20 * GB);
    ASSERT_EQ(placed(), 0);
    ASSERT_EQ(placed(), 0);
    end();
}

TEST(the_status_says_what_was_measured_and_why)
{
    Plasmon__V1__StatusReply reply = PLASMON__V1__STATUS_REPLY__INIT;
    struct wire_arena arena;

    begin();
    measure(2, 0, HOST, GB);
    measure(0, 2, HOST, 10 * GB);
    measure(0, 2, NCCL, 2 * GB);
    measure(0, 1, PEER, 300 * GB);
    (void)by_nccl(MIB);
    ASSERT_OK(wire_arena_init(&arena, WIRE_ARENA_BYTES_MAX));
    ASSERT_OK(head_core_status_pairs(core, &arena, &reply));
    ASSERT_EQ(reply.n_choices, 3);
    ASSERT_EQ(reply.choices[0]->to, 1);
    ASSERT_EQ(reply.choices[0]->route, PEER);
    ASSERT_EQ(reply.choices[1]->from, 0);
    ASSERT_EQ(reply.choices[1]->route, HOST);
    ASSERT_EQ(reply.choices[1]->n_rates, 2);
    ASSERT_CONTAINS(reply.choices[1]->why,
                    "TCP is faster: NCCL 2.0 GB/s measured, TCP 10.0 GB/s");
    ASSERT_EQ(reply.choices[2]->from, 2);
    ASSERT_CONTAINS(reply.choices[2]->why,
                    "until both are measured (NCCL: not measured yet, TCP: 1.0 GB/s");
    wire_arena_finish(&arena);
    end();
}

/* What is said of a way, and what a transfer that begins now does. */
static void expect_plan(uint32_t from, uint32_t to, uint32_t route, const char *why)
{
    char text[HEAD_WHY_BYTES];

    ASSERT_EQ(
        head_route_plan(core, head_device_at(core, from), head_device_at(core, to), text),
        route);
    ASSERT_CONTAINS(text, why);
}

TEST(the_plan_is_what_transfers_do)
{
    begin();
    expect_plan(0, 1, PEER, "one host, and each can map");
    expect_plan(0, 2, HOST, "NCCL once enough went another way");
    ASSERT_EQ(
        head_pair_route(core, head_device_at(core, 0), head_device_at(core, 2), 65 * MIB),
        1); /* which opens a pair */
    expect_plan(0, 2, NCCL, "until both are measured");
    expect_plan(2, 0, HOST, "NCCL once enough went another way");
    measure(0, 2, HOST, 10 * GB);
    measure(0, 2, NCCL, 2 * GB);
    (void)by_nccl(MIB);
    expect_plan(0, 2, HOST, "TCP is faster: NCCL 2.0 GB/s measured, TCP 10.0 GB/s");

    core->config.transfer = HEAD_TRANSFER_PEER;
    expect_plan(0, 1, PEER, "one copy by who wants the bytes");
    expect_plan(0, 2, HOST, "--transfer peer");
    core->config.transfer = HEAD_TRANSFER_HOST;
    expect_plan(0, 1, HOST, "--transfer host");
    expect_plan(0, 2, HOST, "--transfer host");
    core->config.transfer = HEAD_TRANSFER_NCCL;
    expect_plan(0, 1, NCCL, "--transfer nccl");
    end();
}

TEST(a_plan_without_nccl_or_a_way_at_all_says_what_to_do)
{
    begin();
    head_device_at(core, 0)->peer_capable = false;
    expect_plan(0, 1, HOST, "the memory of device 0 cannot be mapped");
    head_device_at(core, 2)->comm_version = 22703;
    expect_plan(0, 2, HOST,
                "device 0 has 2.28.0 and device 2 has 2.27.3; install the same");
    expect_plan(0, 3, HOST, "NCCL once enough");
    core->config.transfer = HEAD_TRANSFER_NCCL;
    expect_plan(2, 0, NCCL, "nothing can go by it: they have different versions");
    core->config.transfer                 = HEAD_TRANSFER_AUTO;
    head_device_at(core, 2)->comm_version = 22800;
    head_device_at(core, 2)->comm_plain   = false;
    expect_plan(0, 2, HOST, "does not encrypt, and their stores do (--tls-cert)");
    head_device_at(core, 2)->comm_version = 0;
    expect_plan(0, 2, HOST, "device 2 has no NCCL");
    head_device_at(core, 2)->kind = 1;
    expect_plan(0, 2, HOST, "`auto` takes NCCL between GPUs alone");
    head_device_at(core, 3)->bulk_address[0] = '\0';
    expect_plan(0, 3, HOST, "the store of device 3 takes no part");
    end();
}

TEST_MAIN()
