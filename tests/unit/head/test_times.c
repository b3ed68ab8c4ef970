/* How long things took: what is counted, from when to when, and what is not. */
#include "head/core_int.h"
#include "tests/harness/test.h"
#include "tests/unit/head/core.h"

#define US UINT64_C(1000)
#define MS UINT64_C(1000000)

static uint64_t side = 16;

static void done(struct head_core *core, uint32_t device, uint64_t first, uint64_t count)
{
    Plasmon__V1__WorkerFrame frame = PLASMON__V1__WORKER_FRAME__INIT;
    Plasmon__V1__Range range       = PLASMON__V1__RANGE__INIT;
    Plasmon__V1__Range *ranges[]   = {&range};
    struct pl_err err              = {0};

    range.first  = first;
    range.count  = count;
    frame.done   = ranges;
    frame.n_done = 1;
    ASSERT_OK(head_core_worker_frame(core, device, &frame, &err));
    head_core_flush(core);
}

static void rejoin(struct head_core *core, uint32_t incarnation)
{
    Plasmon__V1__WorkerHello hello = PLASMON__V1__WORKER_HELLO__INIT;
    struct pl_err err              = {0};
    uint32_t device;

    hello.host = hello.node = (char *)(uintptr_t) "a";
    hello.name              = (char *)(uintptr_t) "test";
    hello.kind              = 1;
    hello.bytes_total       = 1 << 20;
    hello.incarnation       = incarnation;
    hello.resume_session    = incarnation == 1;
    ASSERT_OK(head_core_worker_up(core, &hello, &device, &err));
    ASSERT_EQ(device, 0);
}

TEST(a_task_counts_from_its_frame_to_its_end_and_to_when_it_was_sent)
{
    struct head_times times;
    struct head_core *core;
    uint64_t client;

    head_times_init(&times);
    core = core_make_timed(&times);
    ASSERT_EQ(core_join(core, "a", 0), 0);
    client = core_client(core);
    head_core_worker_lost(core, 0);
    times.now_ns = 100 * MS;
    core_submit(core, client, 1, 0, 0, &side, 1); /* to a worker that is away */
    ASSERT_EQ(pl_histogram_count(&times.waits), 0);
    times.now_ns += 3 * MS;
    rejoin(core, 1);
    head_core_flush(core);
    ASSERT_EQ(pl_histogram_count(&times.waits), 1);
    ASSERT_EQ(times.waits.sum_ns, 3 * MS);
    ASSERT_EQ(pl_histogram_count(&times.tasks), 0);
    times.now_ns += 50 * US;
    done(core, 0, 1, 1);
    ASSERT_EQ(pl_histogram_count(&times.tasks), 1);
    ASSERT_EQ(times.tasks.sum_ns, 3 * MS + 50 * US);
    core_submit(core, client, 2, 0, 101, NULL, 0);
    times.now_ns += 20 * US;
    done(core, 0, 2, 1);
    ASSERT_EQ(times.tasks.counts[pl_histogram_bucket(20 * US)], 1);
    head_core_destroy(core);
    head_times_finish(&times);
}

/* What is replayed has no time, and what began then has no beginning. */
TEST(what_began_without_a_time_is_not_counted)
{
    struct head_times times;
    struct head_core *core;
    uint64_t client;

    head_times_init(&times);
    core = core_make_timed(&times);
    ASSERT_EQ(core_join(core, "a", 0), 0);
    client = core_client(core);
    core_submit(core, client, 1, 0, 0, &side, 1);
    times.now_ns = 7 * MS;
    done(core, 0, 1, 1);
    ASSERT_EQ(pl_histogram_count(&times.waits), 0);
    ASSERT_EQ(pl_histogram_count(&times.tasks), 0);
    head_core_destroy(core);
    head_times_finish(&times);
}

TEST(a_worker_that_is_replaced_counts_and_a_connection_that_comes_back_does_not)
{
    struct head_times times;
    struct head_core *core;

    head_times_init(&times);
    core = core_make_timed(&times);
    ASSERT_EQ(core_join(core, "a", 0), 0);
    times.now_ns = 100 * MS;
    head_core_worker_lost(core, 0);
    times.now_ns += 5 * MS;
    rejoin(core, 1);
    ASSERT_EQ(pl_histogram_count(&times.workers), 0);
    head_core_worker_lost(core, 0);
    times.now_ns += 80 * MS;
    test_expect_log();
    rejoin(core, 2);
    ASSERT_EQ(pl_histogram_count(&times.workers), 1);
    ASSERT_EQ(times.workers.sum_ns, 80 * MS);
    head_core_destroy(core);
    head_times_finish(&times);
}

static void report(struct head_times *times, uint32_t device, uint64_t first,
                   uint64_t second, uint64_t sum_ns)
{
    uint64_t counts[]                 = {first, second};
    Plasmon__V1__WorkerStats stats    = PLASMON__V1__WORKER_STATS__INIT;
    Plasmon__V1__Histogram histogram  = PLASMON__V1__HISTOGRAM__INIT;
    Plasmon__V1__Histogram *reports[] = {&histogram};

    histogram.of       = PLASMON__V1__TIME_OF__TIME_TRANSFER;
    histogram.route    = HEAD_ROUTE_PEER;
    histogram.counts   = counts;
    histogram.n_counts = 2;
    histogram.sum_ns   = sum_ns;
    stats.transfers    = reports;
    stats.n_transfers  = 1;
    head_times_take(times, device, &stats);
}

TEST(transfers_are_what_workers_report_more_and_never_fewer)
{
    const struct pl_histogram *peer;
    struct head_times times;

    head_times_init(&times);
    peer = &times.worked.transfers[HEAD_ROUTE_PEER];
    report(&times, 0, 2, 0, 1500);
    report(&times, 0, 2, 0, 1500); /* nothing new */
    report(&times, 1, 1, 5, 9000);
    ASSERT_EQ(peer->counts[0], 3);
    ASSERT_EQ(peer->counts[1], 5);
    ASSERT_EQ(peer->sum_ns, 10500);
    report(&times, 0, 0, 1, 2000); /* the next worker */
    ASSERT_EQ(peer->counts[0], 3);
    ASSERT_EQ(peer->counts[1], 6);
    ASSERT_EQ(peer->sum_ns, 12500);
    head_times_finish(&times);
}

static void report_queue(struct head_times *times, Plasmon__V1__TimeOf of,
                         Plasmon__V1__WaitWhy why, uint64_t count)
{
    Plasmon__V1__WorkerStats stats    = PLASMON__V1__WORKER_STATS__INIT;
    Plasmon__V1__Histogram histogram  = PLASMON__V1__HISTOGRAM__INIT;
    Plasmon__V1__Histogram *reports[] = {&histogram};

    histogram.of       = of;
    histogram.why      = why;
    histogram.counts   = &count;
    histogram.n_counts = 1;
    histogram.sum_ns   = count * 500;
    stats.queue        = reports;
    stats.n_queue      = 1;
    head_times_take(times, 0, &stats);
}

TEST(waits_in_queues_are_kept_by_cause)
{
    Plasmon__V1__StatusReply reply = PLASMON__V1__STATUS_REPLY__INIT;
    struct head_times times;
    struct head_core *core;
    struct wire_arena arena;

    ASSERT_OK(wire_arena_init(&arena, WIRE_ARENA_BYTES_MAX));
    head_times_init(&times);
    core = core_make_timed(&times);
    report_queue(&times, PLASMON__V1__TIME_OF__TIME_QUEUE, 0, 3);
    report_queue(&times, PLASMON__V1__TIME_OF__TIME_QUEUE, 0, 5); /* in all */
    report_queue(&times, PLASMON__V1__TIME_OF__TIME_FRONT,
                 PLASMON__V1__WAIT_WHY__WAIT_MEMORY, 2);
    report_queue(&times, PLASMON__V1__TIME_OF__TIME_FRONT,
                 PLASMON__V1__WAIT_WHY__WAIT_STORE, 1);
    report_queue(&times, PLASMON__V1__TIME_OF__TIME_TASK, 0, 9); /* no worker's to say */
    ASSERT_OK(head_core_status(core, &arena, &reply));
    ASSERT_EQ(reply.n_histograms, 3);
    ASSERT_EQ(reply.histograms[0]->of, PLASMON__V1__TIME_OF__TIME_QUEUE);
    ASSERT_EQ(reply.histograms[0]->counts[0], 5);
    ASSERT_EQ(reply.histograms[1]->of, PLASMON__V1__TIME_OF__TIME_FRONT);
    ASSERT_EQ(reply.histograms[1]->why, PLASMON__V1__WAIT_WHY__WAIT_MEMORY);
    ASSERT_EQ(reply.histograms[1]->counts[0], 2);
    ASSERT_EQ(reply.histograms[2]->why, PLASMON__V1__WAIT_WHY__WAIT_STORE);
    head_core_destroy(core);
    head_times_finish(&times);
    wire_arena_finish(&arena);
}

TEST(the_status_has_what_there_is)
{
    Plasmon__V1__StatusReply reply = PLASMON__V1__STATUS_REPLY__INIT;
    struct head_times times;
    struct head_core *core;
    struct wire_arena arena;
    struct pl_histogram got;

    ASSERT_OK(wire_arena_init(&arena, WIRE_ARENA_BYTES_MAX));
    head_times_init(&times);
    core = core_make_timed(&times);
    report(&times, 0, 2, 3, 1500);
    pl_histogram_add(&times.tasks, 40 * US);
    ASSERT_OK(head_core_status(core, &arena, &reply));
    ASSERT_EQ(reply.n_histograms, 2);
    ASSERT_EQ(reply.histograms[0]->of, PLASMON__V1__TIME_OF__TIME_TASK);
    ASSERT_EQ(reply.histograms[1]->of, PLASMON__V1__TIME_OF__TIME_TRANSFER);
    ASSERT_EQ(reply.histograms[1]->route, HEAD_ROUTE_PEER);
    ASSERT_EQ(reply.histograms[1]->n_counts, 2);
    wire_histogram_read(reply.histograms[0], &got);
    ASSERT_EQ(pl_histogram_count(&got), 1);
    ASSERT_EQ(got.sum_ns, 40 * US);
    head_core_destroy(core);
    head_times_finish(&times);
    wire_arena_finish(&arena);
}

TEST_MAIN()
