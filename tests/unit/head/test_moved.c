/*
 * What workers report of their transfers, and what becomes of it when they are replaced. What they
 * report is made up.
 */
#include "head/core_int.h"
#include "tests/harness/test.h"
#include "tests/unit/head/core.h"

enum { LOCAL = 0, PEER = 1 };

static struct head_core *core;

/* Incarnation `incarnation` of the worker of device 1 of a host. */
static void come(uint32_t incarnation)
{
    Plasmon__V1__WorkerHello hello = PLASMON__V1__WORKER_HELLO__INIT;
    struct pl_err err              = {0};
    uint32_t device;

    hello.host        = "a";
    hello.node        = "a";
    hello.name        = "test";
    hello.host_device = 1;
    hello.kind        = 1;
    hello.bytes_total = 1 << 20;
    hello.incarnation = incarnation;
    ASSERT_OK(head_core_worker_up(core, &hello, &device, &err));
    ASSERT_EQ(device, 1);
}

static void begin(void)
{
    core = core_make();
    core_announce(core, "a", 2);
    ASSERT_EQ(core_join(core, "a", 0), 0);
    come(1);
}

/*
 * Device 1 has got `count` values of 10 bytes from device 0 since its worker was started, gets
 * another one, and has made as many copies of its own.
 */
static void report(uint64_t count)
{
    Plasmon__V1__WorkerFrame frame     = PLASMON__V1__WORKER_FRAME__INIT;
    Plasmon__V1__WorkerStats stats     = PLASMON__V1__WORKER_STATS__INIT;
    Plasmon__V1__PairStats pair        = PLASMON__V1__PAIR_STATS__INIT;
    Plasmon__V1__RouteStats local      = PLASMON__V1__ROUTE_STATS__INIT;
    Plasmon__V1__RouteStats peer       = PLASMON__V1__ROUTE_STATS__INIT;
    Plasmon__V1__PairStats *pairs[]    = {&pair};
    Plasmon__V1__RouteStats *routes[2] = {&local, &peer};
    struct pl_err err                  = {0};

    local.route = LOCAL, local.copies = count, local.bytes = count;
    peer.route = PEER, peer.copies = count, peer.bytes = 10 * count;
    pair.route = PEER, pair.from = 0, pair.transfers = count, pair.bytes = 10 * count;
    pair.busy_ns = 1000 * count, pair.in_flight = 1, pair.in_flight_bytes = 10;
    pair.retries = count;
    stats.pairs = pairs, stats.n_pairs = 1;
    stats.routes = routes, stats.n_routes = 2;
    stats.cpu_ns = 100 * count, stats.driver_ns = 7 * count;
    frame.stats = &stats;
    ASSERT_OK(head_core_worker_frame(core, 1, &frame, &err));
}

/* What a status says: so many values came in all, and so many are under way. */
static void expect(uint64_t count, uint64_t in_flight)
{
    Plasmon__V1__StatusReply status = PLASMON__V1__STATUS_REPLY__INIT;
    struct wire_arena arena;

    ASSERT_OK(wire_arena_init(&arena, WIRE_ARENA_BYTES_MAX));
    ASSERT_OK(head_moved_status(core, &arena, &status));
    ASSERT_OK(head_core_status_pairs(core, &arena, &status));
    ASSERT_EQ(status.n_routes, 2);
    ASSERT_EQ(status.routes[0]->route, LOCAL);
    ASSERT_EQ(status.routes[0]->copies, count);
    ASSERT_EQ(status.routes[1]->route, PEER);
    ASSERT_EQ(status.routes[1]->copies, count);
    ASSERT_EQ(status.routes[1]->bytes, 10 * count);
    ASSERT_EQ(status.worker_cpu_ns, 100 * count);
    ASSERT_EQ(status.worker_driver_ns, 7 * count);
    ASSERT_EQ(status.n_pairs, 1);
    ASSERT_EQ(status.pairs[0]->from, 0);
    ASSERT_EQ(status.pairs[0]->to, 1);
    ASSERT_EQ(status.pairs[0]->transfers, count);
    ASSERT_EQ(status.pairs[0]->bytes, 10 * count);
    ASSERT_EQ(status.pairs[0]->busy_ns, 1000 * count);
    ASSERT_EQ(status.pairs[0]->retries, count);
    ASSERT_EQ(status.pairs[0]->in_flight, in_flight);
    ASSERT_EQ(status.pairs[0]->in_flight_bytes, 10 * in_flight);
    wire_arena_finish(&arena);
}

static void end(void)
{
    head_core_check(core);
    head_core_destroy(core);
}

TEST(what_workers_moved_is_kept_when_they_are_replaced)
{
    begin();
    report(3);
    report(5); /* sums: nothing is counted twice */
    expect(5, 1);
    head_core_worker_lost(core, 1);
    expect(5, 0);
    come(2);
    expect(5, 0);
    report(2);
    expect(7, 1);
    head_core_worker_lost(core, 1);
    come(3);
    head_core_worker_lost(core, 1); /* it never reported */
    come(4);
    expect(7, 0);
    report(1);
    expect(8, 1);
    end();
}

TEST(a_worker_that_only_connects_again_goes_on_counting)
{
    begin();
    report(5);
    head_core_worker_lost(core, 1);
    come(1);
    expect(5, 1);
    report(6);
    expect(6, 1);
    end();
}

TEST_MAIN()
