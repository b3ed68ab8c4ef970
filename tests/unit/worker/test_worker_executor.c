/*
 * The core with a real device behind it: two workers of one host in this process, on CPU devices,
 * over memory that a store would have handed out. Commands go in, bytes are looked at.
 */
#include <fcntl.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/fd.h"
#include "tests/unit/worker/fake.h"
#include "tests/unit/worker/host.h"
#include "worker/executor.h"

#define WORKERS HOST_WORKERS
#define RUN     PLASMON__V1__LAUNCH_KIND__LAUNCH_RUN

struct worker {
    uint32_t index;
    struct worker_shared shared;
    struct device *device;
    struct worker_memory *memory;
    struct worker_executor executor;
    struct worker_core *core;
    uint64_t done; /* launches */
    uint64_t failed;
    uint64_t seq;
    char text[256];
    uint8_t data[64];
    uint64_t data_bytes;
};

static struct host host;
static int store_sockets[WORKERS];
static struct worker workers[WORKERS];
static uint32_t host_device_of[4] = {0, 1, UINT32_MAX, UINT32_MAX};

static uint32_t chunks_kept[WORKERS];
static bool store_sleeps;

/* What the store does with a CHUNK_ADD: tell the others, and then that it keeps it. */
static void chunks_pass_on(void)
{
    for (uint32_t i = 0; i < WORKERS && !store_sleeps; i++) {
        struct store_control message;
        struct pl_err err;
        size_t bytes      = sizeof(message);
        unsigned fd_count = 1;
        int fd;

        while (recv(store_sockets[i], &message, 1, MSG_PEEK | MSG_DONTWAIT) > 0) {
            ASSERT_OK(pl_fd_recv(store_sockets[i], &message, &bytes, &fd, &fd_count));
            ASSERT_EQ(message.type, STORE_CONTROL_CHUNK_ADD);
            message.type    = STORE_CONTROL_CHUNK;
            message.kind    = DEVICE_CPU;
            message.ordinal = i;
            ASSERT_OK(pl_fd_send(store_sockets[1 - i], &message, sizeof(message), &fd, 1));
            pl_fd_close(&fd);
            message = (struct store_control){.version     = STORE_CONTROL_VERSION,
                                             .type        = STORE_CONTROL_CHUNKS_KEPT,
                                             .host_device = i,
                                             .chunk_id    = ++chunks_kept[i]};
            ASSERT_OK(pl_fd_send(store_sockets[i], &message, sizeof(message), NULL, 0));
        }
        if (workers[i].core == NULL) {
            continue;
        }
        while (worker_shared_receive(&workers[i].shared, &err) == PLASMON_OK) {
        }
        ASSERT_OK(worker_memory_take_chunks(workers[i].memory, &err));
        worker_core_advance(workers[i].core);
    }
}

/* ------------------------------------------------------------------------------ workers */

static void on_done(void *user, uint64_t first, uint64_t count)
{
    (void)first;
    ((struct worker *)user)->done += count;
}

static void on_failed(void *user, uint64_t seq, plasmon_status_t status, const char *text)
{
    struct worker *worker = user;

    (void)seq, (void)status;
    worker->failed++;
    (void)snprintf(worker->text, sizeof(worker->text), "%s", text);
}

static void on_starved(void *user, uint64_t seq, uint64_t bytes, uint64_t largest_hole)
{
    (void)user, (void)seq, (void)bytes, (void)largest_hole;
}

static void on_data(void *user, uint64_t request, const uint8_t *bytes, uint64_t length)
{
    struct worker *worker = user;

    (void)request;
    ASSERT_TRUE(length <= sizeof(worker->data));
    memcpy(worker->data, bytes, length);
    worker->data_bytes = length;
}

static void on_refused(void *user, uint64_t request, plasmon_status_t status,
                       const uint64_t *buffers, size_t count)
{
    (void)buffers;
    (void)count;
    (void)user;
    (void)request;
    ASSERT_OK(status); /* nobody orders such here */
}

static struct worker_reports reports[WORKERS];

static void worker_start(struct worker *worker)
{
    struct device_config device_config = {.bytes_max = UINT64_C(1) << 30};
    struct worker_core_config config   = {.ops               = &worker_executor_ops,
                                          .user              = &worker->executor,
                                          .host_device       = worker->index,
                                          .host_device_count = WORKERS,
                                          .timelines         = worker->shared.timelines,
                                          .tables            = worker->shared.tables,
                                          .readers           = worker->shared.readers,
                                          .reader_epoch      = &worker->shared.reader_epoch,
                                          .host_device_of    = host_device_of,
                                          .device_max        = 4};
    struct kernel_context *kernels;
    struct wire_ranges unfinished, untouched;
    struct pl_err err;
    uint64_t enqueued;
    int pair[2];

    ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
    store_sockets[worker->index] = pair[0];
    host_setup_send(&host, pair[0], worker->index);
    worker_shared_init(&worker->shared, pair[1]);
    ASSERT_OK(worker_shared_receive_setup(&worker->shared, &err));
    ASSERT_OK(
        device_open(DEVICE_CPU, worker->index, &device_config, &worker->device, &err));
    ASSERT_OK(
        worker_memory_create(worker->device, &worker->shared, 0, &worker->memory, &err));
    reports[worker->index] = (struct worker_reports){.user    = worker,
                                                     .done    = on_done,
                                                     .failed  = on_failed,
                                                     .starved = on_starved,
                                                     .data    = on_data,
                                                     .refused = on_refused};
    ASSERT_OK(kernel_context_create(worker->device, &kernels, &err));
    ASSERT_OK(worker_executor_init(&worker->executor, worker->device, kernels,
                                   &worker->shared, worker->memory, 0,
                                   &reports[worker->index], &err));
    config.run_streams    = worker->executor.run_streams;
    config.urgent_streams = WORKER_URGENT_STREAMS;
    config.low_streams    = WORKER_LOW_STREAMS;
    ASSERT_OK(worker_core_create(&config, &worker->core));
    worker->executor.core = worker->core;
    worker_memory_set_core(worker->memory, worker->core);
    ASSERT_OK(worker_memory_take_chunks(worker->memory, &err));
    wire_ranges_init(&unfinished);
    wire_ranges_init(&untouched);
    ASSERT_OK(worker_core_recover(worker->core, &enqueued, &unfinished, &untouched));
    wire_ranges_finish(&unfinished);
    wire_ranges_finish(&untouched);
}

static void host_start(void)
{
    host_create(&host);
    for (uint32_t i = 0; i < WORKERS; i++) {
        workers[i].index = i;
        worker_start(&workers[i]);
    }
}

static void host_stop(void)
{
    for (uint32_t i = 0; i < WORKERS; i++) {
        worker_executor_finish(&workers[i].executor);
        worker_core_destroy(workers[i].core);
    }
    for (uint32_t i = 0; i < WORKERS; i++) {
        worker_memory_destroy(workers[i].memory);
        device_close(workers[i].device);
        worker_shared_finish(&workers[i].shared);
    }
    host_destroy(&host);
}

/* Until both have nothing left to do. */
static void settle(void)
{
    uint64_t deadline = pl_now_ns() + UINT64_C(20000000000);

    for (;;) {
        bool idle = true;

        for (uint32_t i = 0; i < WORKERS; i++) {
            worker_core_advance(workers[i].core);
            worker_core_complete(workers[i].core);
            idle = idle && worker_core_idle(workers[i].core);
        }
        chunks_pass_on();
        if (idle) {
            return;
        }
        ASSERT_TRUE(pl_now_ns() < deadline);
    }
}

static void give(struct worker *worker, struct fake_launch *launch)
{
    Plasmon__V1__WorkerCommand command = PLASMON__V1__WORKER_COMMAND__INIT;
    Plasmon__V1__Launch *launches[1]   = {&launch->message};
    struct pl_err err;

    launch->message.seq = ++worker->seq;
    command.launches    = launches;
    command.n_launches  = 1;
    ASSERT_OK(worker_core_command(worker->core, &command, &err));
    worker_core_advance(worker->core);
    chunks_pass_on();
}

static uint64_t buffer_of(const struct worker *worker, uint32_t slot)
{
    return wire_buffer(worker->index, slot, 1);
}

static void give_fill(struct worker *worker, uint32_t slot, int64_t count, double value)
{
    struct fake_launch launch;

    fake_launch_init(&launch, 0, RUN);
    fake_launch_function(&launch, "fill");
    fake_launch_scalar(&launch, value);
    fake_launch_fresh(&launch, slot, count)->buffer = buffer_of(worker, slot);
    give(worker, &launch);
}

/* Element `at` of a buffer, by a READ. */
static float element(struct worker *worker, uint32_t slot, int64_t count, uint64_t at)
{
    struct fake_launch launch;
    float value;

    worker->data_bytes = 0;
    fake_launch_init(&launch, 0, PLASMON__V1__LAUNCH_KIND__LAUNCH_READ);
    fake_launch_operand(&launch, KERNEL_IN, slot, count)->buffer = buffer_of(worker, slot);
    launch.message.offset                                        = at * sizeof(float);
    launch.message.length                                        = sizeof(float);
    if (worker->seq != 0) {
        fake_launch_after(&launch, worker->index, worker->seq);
    }
    give(worker, &launch);
    settle();
    ASSERT_EQ(worker->data_bytes, sizeof(float));
    memcpy(&value, worker->data, sizeof(value));
    return value;
}

/* -------------------------------------------------------------------------------- tests */

TEST(function_writes_what_a_read_gets)
{
    host_start();
    give_fill(&workers[0], 1, 1000, 2.5);
    ASSERT_TRUE(element(&workers[0], 1, 1000, 999) == 2.5f);
    ASSERT_EQ(workers[0].done, 2);
    ASSERT_EQ(workers[0].failed, 0);
    ASSERT_EQ(workers[0].executor.counters.copies[TRANSFER_INLINE], 1);
    host_stop();
}

/* Else it would die with its worker. */
TEST(new_memory_is_used_and_listed_when_the_store_has_it)
{
    host_start();
    store_sleeps = true;
    give_fill(&workers[0], 1, 1000, 2.5);
    for (int i = 0; i < 3; i++) {
        worker_core_advance(workers[0].core);
        worker_core_complete(workers[0].core);
    }
    ASSERT_EQ(worker_core_launches(workers[0].core), 0);
    ASSERT_EQ(host.tables[0]->chunk_count, 0);
    store_sleeps = false;
    settle();
    ASSERT_EQ(host.tables[0]->chunk_count, 1);
    ASSERT_EQ(workers[0].done, 1);
    ASSERT_EQ(workers[0].failed, 0);
    host_stop();
}

/* It is slow, not gone: what needs the memory waits, and does not fail. */
TEST(new_memory_waits_for_a_store_that_does_not_read)
{
    struct pl_err err;
    int fd;

    host_start();
    store_sleeps = true;
    fd           = workers[0].shared.control_fd;
    ASSERT_EQ(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
    while (send(fd, "x", 1, 0) == 1) {
    }
    give_fill(&workers[0], 1, 1000, 2.5);
    for (int i = 0; i < 3; i++) {
        ASSERT_OK(worker_memory_take_chunks(workers[0].memory, &err));
        worker_core_advance(workers[0].core);
        worker_core_complete(workers[0].core);
    }
    ASSERT_TRUE(worker_memory_unsent(workers[0].memory));
    ASSERT_EQ(workers[0].failed, 0);
    ASSERT_EQ(worker_core_launches(workers[0].core), 0);
    while (recv(store_sockets[0], &(char){0}, 1, MSG_DONTWAIT) == 1) {
    }
    store_sleeps = false;
    settle();
    ASSERT_TRUE(!worker_memory_unsent(workers[0].memory));
    ASSERT_EQ(host.tables[0]->chunk_count, 1);
    ASSERT_EQ(workers[0].done, 1);
    ASSERT_EQ(workers[0].failed, 0);
    host_stop();
}

TEST(put_bytes_arrive)
{
    struct fake_launch launch;
    float numbers[4] = {1, 2, 3, 4};

    host_start();
    fake_launch_init(&launch, 0, PLASMON__V1__LAUNCH_KIND__LAUNCH_PUT);
    fake_launch_fresh(&launch, 1, 4)->buffer = buffer_of(&workers[0], 1);
    memcpy(launch.data, numbers, sizeof(numbers));
    launch.message.data.len = sizeof(numbers);
    give(&workers[0], &launch);
    ASSERT_TRUE(element(&workers[0], 1, 4, 2) == 3.0f);
    host_stop();
}

TEST(peer_copy_waits_for_its_producer_and_pulls)
{
    struct fake_launch launch;

    host_start();
    fake_launch_init(&launch, 0, PLASMON__V1__LAUNCH_KIND__LAUNCH_COPY);
    fake_launch_fresh(&launch, 7, 100000)->buffer = buffer_of(&workers[1], 7);
    fake_launch_piece(&launch, 0, 1, 100000);
    fake_launch_after(&launch, 0, 1);
    give(&workers[1], &launch); /* before its source is even enqueued */
    ASSERT_EQ(worker_core_waits_for(workers[1].core), 1);
    give_fill(&workers[0], 1, 100000, 4.0);
    ASSERT_TRUE(element(&workers[1], 7, 100000, 99999) == 4.0f);
    ASSERT_EQ(workers[1].executor.counters.copies[TRANSFER_PEER], 1);
    ASSERT_EQ(workers[1].executor.counters.bytes[TRANSFER_PEER], 400000);
    ASSERT_EQ(workers[1].executor.counters.copies[TRANSFER_HOST], 0);
    host_stop();
}

/* 1 + 2 + 4, of which device 0 has two. */
TEST(a_function_reads_where_its_arguments_lie_on_another_device)
{
    struct fake_launch launch;

    host_start();
    fake_launch_init(&launch, 0, PLASMON__V1__LAUNCH_KIND__LAUNCH_COPY);
    fake_launch_function(&launch, "combine");
    fake_launch_fresh(&launch, 7, 100000)->buffer = buffer_of(&workers[1], 7);
    fake_launch_piece(&launch, 0, 1, 100000);
    fake_launch_piece(&launch, 1, 1, 100000);
    fake_launch_piece(&launch, 0, 2, 100000);
    fake_launch_after(&launch, 0, 1);
    fake_launch_after(&launch, 0, 2); /* another stream, perhaps */
    fake_launch_after(&launch, 1, 1);
    launch.scalar[0]         = KERNEL_SUM;
    launch.message.n_scalars = 1;
    give_fill(&workers[1], 1, 100000, 2.0);
    give(&workers[1], &launch); /* before two of its sources are even enqueued */
    ASSERT_EQ(worker_core_waits_for(workers[1].core), 1);
    give_fill(&workers[0], 1, 100000, 1.0);
    give_fill(&workers[0], 2, 100000, 4.0);
    ASSERT_TRUE(element(&workers[1], 7, 100000, 0) == 7.0f);
    ASSERT_TRUE(element(&workers[1], 7, 100000, 99999) == 7.0f);
    ASSERT_EQ(workers[1].executor.counters.copies[TRANSFER_PEER], 2);
    ASSERT_EQ(workers[1].executor.counters.bytes[TRANSFER_PEER], 800000);
    host_stop();
}

TEST(host_route_takes_the_bytes_through_the_slab)
{
    int64_t count = 3 * (STORE_STAGE_SLOT_BYTES / 4) + 17;
    struct fake_launch launch;

    host_start();
    give_fill(&workers[0], 1, count, 6.0);
    fake_launch_init(&launch, 0, PLASMON__V1__LAUNCH_KIND__LAUNCH_SEND);
    fake_launch_operand(&launch, KERNEL_IN, 1, count)->buffer = buffer_of(&workers[0], 1);
    fake_launch_after(&launch, 0, 1);
    launch.message.peer = 1;
    give(&workers[0], &launch);
    fake_launch_init(&launch, 0, PLASMON__V1__LAUNCH_KIND__LAUNCH_RECV);
    fake_launch_fresh(&launch, 3, count)->buffer = buffer_of(&workers[1], 3);
    launch.message.peer                          = 0;
    give(&workers[1], &launch);
    ASSERT_TRUE(element(&workers[1], 3, count, (uint64_t)count - 1) == 6.0f);
    ASSERT_EQ(workers[1].executor.counters.bytes[TRANSFER_HOST], count * 4);
    ASSERT_EQ(workers[1].executor.counters.copies[TRANSFER_PEER], 0);
    host_stop();
}

static void until_done(struct worker *worker, uint64_t count)
{
    uint64_t deadline = pl_now_ns() + UINT64_C(60000000000);

    while (worker->done < count) {
        worker_core_advance(worker->core);
        worker_core_complete(worker->core);
        ASSERT_TRUE(pl_now_ns() < deadline);
    }
    ASSERT_EQ(worker->done, count);
}

static void give_half(struct worker *worker, uint32_t kind, uint32_t slot, uint32_t peer,
                      uint64_t chunk)
{
    struct fake_launch launch;

    fake_launch_init(&launch, 0, kind);
    if (kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_SEND) {
        fake_launch_operand(&launch, KERNEL_IN, slot, 4)->buffer = buffer_of(worker, slot);
        fake_launch_after(&launch, worker->index, 1);
    } else {
        fake_launch_fresh(&launch, slot, 4)->buffer = buffer_of(worker, slot);
    }
    launch.message.peer   = peer;
    launch.message.offset = chunk;
    give(worker, &launch);
}

TEST(a_send_to_one_device_and_a_read_pass_a_send_whose_receiver_is_not_there)
{
    struct store_timeline *receiver;
    struct fake_launch launch;

    host_start();
    receiver = workers[0].shared.timelines[1];
    give_fill(&workers[0], 1, 4, 8.0);
    until_done(&workers[0], 1);
    give_half(&workers[0], PLASMON__V1__LAUNCH_KIND__LAUNCH_SEND, 1, 1,
              STORE_STAGE_SLOTS + 24); /* until somebody has taken chunk 24 */
    give_half(&workers[0], PLASMON__V1__LAUNCH_KIND__LAUNCH_SEND, 1, 0, 0);
    give_half(&workers[0], PLASMON__V1__LAUNCH_KIND__LAUNCH_RECV, 2, 0, 0);
    fake_launch_init(&launch, 0, PLASMON__V1__LAUNCH_KIND__LAUNCH_READ);
    fake_launch_operand(&launch, KERNEL_IN, 2, 4)->buffer = buffer_of(&workers[0], 2);
    fake_launch_after(&launch, 0, 4);
    launch.message.length = sizeof(float);
    give(&workers[0], &launch);
    until_done(&workers[0], 4); /* all but the first send */
    ASSERT_TRUE(memcmp(workers[0].data, (float[]){8}, sizeof(float)) == 0);
    ASSERT_EQ(receiver->stage_ready[24 % STORE_STAGE_SLOTS].value, 0);

    __atomic_store_n(&receiver->stage_taken.value, 25, __ATOMIC_RELEASE);
    device_word_wake(&receiver->stage_taken.value);
    until_done(&workers[0], 5);
    ASSERT_EQ(receiver->stage_ready[24 % STORE_STAGE_SLOTS].value, STORE_STAGE_SLOTS + 25);
    ASSERT_EQ(workers[0].failed, 0);
    host_stop();
}

TEST(function_that_fails_on_the_device_is_reported_with_its_text)
{
    struct fake_launch launch;

    test_expect_log();
    host_start();
    fake_launch_init(&launch, 0, RUN);
    fake_launch_function(&launch, "test_fail");
    fake_launch_scalar(&launch, 0.0);
    fake_launch_fresh(&launch, 1, 4)->buffer = buffer_of(&workers[0], 1);
    give(&workers[0], &launch);
    settle();
    ASSERT_EQ(workers[0].failed, 1);
    ASSERT_CONTAINS(workers[0].text, "test_fail");
    ASSERT_TRUE(workers[0].shared.tables[0]->entries[1].state != STORE_SEALED);
    host_stop();
}

TEST(what_a_function_needs_is_made_by_another_thread_while_the_queue_waits)
{
    host_start();
    pl_fault_arm("kernel.prepare", 0); /* the first function needs something */
    give_fill(&workers[0], 1, 4, 2.5);
    ASSERT_TRUE(pl_fault_disarm());
    give_fill(&workers[0], 2, 4, 3.5);
    settle();
    ASSERT_TRUE(workers[0].executor.functions.started);
    ASSERT_NULL(workers[0].executor.functions.preparing);
    ASSERT_TRUE(element(&workers[0], 1, 4, 3) == 2.5f);
    ASSERT_TRUE(element(&workers[0], 2, 4, 3) == 3.5f);
    ASSERT_EQ(workers[0].failed, 0);
    host_stop();
}

/* Made here, where two chunks meet, and read from there, where both are mapped. */
TEST(a_block_spans_chunks_here_and_at_a_peer)
{
    int64_t count = 40 << 20; /* 160 MiB: more than a usual chunk */
    const struct store_table *table;
    const struct store_entry *entry;
    struct fake_launch launch;

    host_start();
    table = workers[0].shared.tables[0];
    entry = &table->entries[2];
    give_fill(&workers[0], 1, 1000, 1.0);
    give_fill(&workers[0], 2, count, 3.0);
    settle();
    ASSERT_EQ(workers[0].failed, 0);
    ASSERT_EQ(table->chunk_count, 2);
    ASSERT_EQ(table->chunks[0].bytes, 64 << 20);
    ASSERT_EQ(table->chunks[1].offset, 64 << 20);
    ASSERT_TRUE(entry->offset < table->chunks[1].offset);
    ASSERT_TRUE(entry->offset + entry->bytes <=
                table->chunks[1].offset + table->chunks[1].bytes);

    fake_launch_init(&launch, 0, PLASMON__V1__LAUNCH_KIND__LAUNCH_COPY);
    fake_launch_fresh(&launch, 7, count)->buffer = buffer_of(&workers[1], 7);
    fake_launch_piece(&launch, 0, 2, count);
    fake_launch_after(&launch, 0, 2);
    give(&workers[1], &launch);
    ASSERT_TRUE(element(&workers[1], 7, count, 0) == 3.0f);
    ASSERT_TRUE(element(&workers[1], 7, count,
                        (table->chunks[1].offset - entry->offset) / sizeof(float)) == 3.0f);
    ASSERT_TRUE(element(&workers[1], 7, count, (uint64_t)count - 1) == 3.0f);
    ASSERT_EQ(workers[1].failed, 0);
    ASSERT_EQ(workers[1].executor.counters.copies[TRANSFER_PEER], 1);
    host_stop();
}

TEST_MAIN()
