/*
 * The nccl route without NCCL: four devices in one process, each with its part of all pairs, over
 * the stand-in. Transfers have numbers, and each device enqueues its halves in their order, in a
 * thread of its own, as workers do; the test is the head.
 *
 * Whatever happens on the way - pairs that break in the middle, at either end, again and again -
 * every byte must arrive, in time.
 */
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/lock.h"
#include "device/device_int.h"
#include "tests/harness/test.h"
#include "transfer/pair.h"
#include "transfer/pair_int.h"

#define HOSTS      4u
#define SIZE_MAX_  (40u << 10)
#define DEADLINE_S 60

struct world;

struct host {
    struct world *world;
    uint32_t index;
    struct device *device;
    struct device_stream *stream[2]; /* launches' [receives] */
    struct device_ptr base;
    uint8_t *memory;
    uint64_t bytes;
    struct transfer_ring ring;
    struct transfer_pairs *pairs;
    struct transfer_counters counters;
    uint64_t *done; /* [transfer]: its receive is over; written by the device */
    int notify_fd;
    bool may_be_stuck;
    uint32_t stuck; /* how often that was said */
    char stuck_text[200];
    pthread_t thread;
    struct pl_mutex lock; /* the worker's */
};

struct transfer {
    uint32_t from, to;
    uint64_t bytes;
    uint64_t chunk;
    uint64_t offset; /* where it is put at the receiver; from there, too, at the sender */
};

struct world {
    struct host host[HOSTS];
    struct transfer *transfer;
    uint32_t transfers;
    uint64_t until_ns;
    uint64_t random;
};

static void *zero_pages(uint64_t bytes)
{
    void *ptr =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    ASSERT_TRUE(ptr != MAP_FAILED);
    return ptr;
}

static void nap(void)
{
    const struct timespec pause = {.tv_nsec = 50000};

    (void)nanosleep(&pause, NULL);
}

static void in_time(const struct world *world, const char *what)
{
    if (pl_now_ns() > world->until_ns) {
        test_fail(__FILE__, __LINE__, "%s has not come in %d s", what, DEADLINE_S);
    }
}

/* -------------------------------------------------------------------------------- hosts */

static plasmon_status_t stage(void *user, struct device_stream *stream,
                              const struct transfer_half *half)
{
    struct host *host = user;
    struct transfer_ring *to =
        &host->world->host[half->key.receives ? host->index : half->key.peer].ring;

    return half->key.receives
               ? transfer_stage_recv(stream, to, half->first_chunk, half->ptr, half->bytes,
                                     half->with_bytes, &host->counters)
               : transfer_stage_send(stream, to, half->first_chunk, half->ptr, half->bytes,
                                     half->with_bytes);
}

static void stuck(void *user, const char *text)
{
    struct host *host = user;

    if (!host->may_be_stuck) {
        test_fail(__FILE__, __LINE__, "%s", text);
    }
    (void)snprintf(host->stuck_text, sizeof(host->stuck_text), "%s", text);
    (void)__atomic_fetch_add(&host->stuck, 1, __ATOMIC_RELEASE);
}

static void host_open(struct world *world, uint32_t index, uint64_t bytes)
{
    struct host *host           = &world->host[index];
    struct device_config config = {.bytes_max = UINT64_C(1) << 30};
    struct transfer_pairs_config pairs;
    struct pl_err err;
    int fd;

    host->world = world;
    host->index = index;
    ASSERT_OK(pl_mutex_init(&host->lock, PL_RANK_WORKER));
    ASSERT_OK(device_open(DEVICE_CPU, index, &config, &host->device, &err));
    host->bytes = pl_round_up(bytes, device_get_info(host->device)->chunk_granularity);
    for (uint32_t i = 0; i < 2; i++) {
        ASSERT_OK(device_stream_create(host->device, 0, &host->stream[i]));
    }
    ASSERT_OK(device_range_reserve(host->device, host->bytes, &host->base));
    ASSERT_OK(device_chunk_create(host->device, host->bytes, &fd));
    ASSERT_OK(device_chunk_map(host->device, fd, host->bytes, index, true, host->base));
    host->memory        = device_ptr_host(host->device, host->base);
    host->ring.timeline = zero_pages(sizeof(struct store_timeline));
    host->ring.slab     = zero_pages(STORE_STAGE_SLOTS * (uint64_t)STORE_STAGE_SLOT_BYTES);
    host->done          = zero_pages((world->transfers + 1) * sizeof(uint64_t));
    host->notify_fd     = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    store_timeline_init(host->ring.timeline, index);
    pairs = (struct transfer_pairs_config){.device    = host->device,
                                           .timeline  = host->ring.timeline,
                                           .counters  = &host->counters,
                                           .notify_fd = host->notify_fd,
                                           .stall_ns  = UINT64_C(300000000),
                                           .stage     = stage,
                                           .stuck     = stuck,
                                           .user      = host};
    ASSERT_OK(transfer_pairs_create(&pairs, &host->pairs));
}

static void world_open(struct world *world, uint32_t hosts, uint32_t transfers)
{
    memset(world, 0, sizeof(*world));
    world->transfers = transfers;
    world->transfer  = calloc(transfers + 1, sizeof(*world->transfer));
    world->until_ns  = pl_now_ns() + DEADLINE_S * UINT64_C(1000000000);
    world->random    = test_seed();
    ASSERT_NOT_NULL(world->transfer);
    for (uint32_t i = 0; i < hosts; i++) {
        host_open(world, i, (uint64_t)SIZE_MAX_ * (transfers + 1));
    }
}

static void world_close(struct world *world, uint32_t hosts)
{
    for (uint32_t i = 0; i < hosts; i++) {
        struct host *host = &world->host[i];

        device_stream_destroy(host->stream[0]);
        device_stream_destroy(host->stream[1]);
        transfer_pairs_destroy(host->pairs);
        device_chunk_unmap(host->device, host->base, host->bytes);
        device_range_release(host->device, host->base, host->bytes);
        device_close(host->device);
        pl_mutex_finish(&host->lock);
    }
    free(world->transfer);
}

/* ----------------------------------------------------------------------------- the head */

static struct transfer_pair_key key_of(uint32_t peer, bool receives)
{
    return (struct transfer_pair_key){.peer = peer, .receives = receives, .epoch = 1};
}

/* What a worker does when there is news. */
static void turns_take(struct world *world)
{
    for (uint32_t i = 0; i < HOSTS && world->host[i].pairs != NULL; i++) {
        struct host *host = &world->host[i];
        struct transfer_pair_news news;

        pl_mutex_lock(&host->lock);
        while (transfer_pairs_news(host->pairs, &news)) {
            if (news.event == TRANSFER_PAIR_TURN) {
                ASSERT_OK(transfer_pairs_stage_next(host->pairs));
            }
        }
        pl_mutex_unlock(&host->lock);
    }
}

/* Until news of that kind comes to this host about that pair; others are dropped. */
static struct transfer_pair_news wait_for(struct host *host, uint32_t peer, bool receives,
                                          enum transfer_pair_event event)
{
    struct transfer_pair_news news;

    for (;;) {
        if (!transfer_pairs_news(host->pairs, &news)) {
            in_time(host->world, "news of a pair");
            nap();
        } else if (news.event == TRANSFER_PAIR_TURN) {
            pl_mutex_lock(&host->lock);
            ASSERT_OK(transfer_pairs_stage_next(host->pairs));
            pl_mutex_unlock(&host->lock);
        } else if (news.event == event && news.key.peer == peer &&
                   news.key.receives == receives) {
            return news;
        }
    }
}

static const struct transfer_pair_shape sender = {.rank = 0}, receiver = {.rank = 1};

static void pair_open(struct world *world, uint32_t from, uint32_t to)
{
    struct host *src = &world->host[from], *dst = &world->host[to];
    struct transfer_pair_key sends = key_of(to, false), takes = key_of(from, true);
    struct transfer_pair_news made, opened;

    ASSERT_OK(transfer_pair_open(src->pairs, &sends, &sender, NULL, 5000));
    made = wait_for(src, to, false, TRANSFER_PAIR_MADE);
    ASSERT_OK(transfer_pair_open(dst->pairs, &takes, &receiver, made.id, 5000));
    opened = wait_for(src, to, false, TRANSFER_PAIR_OPENED);
    ASSERT_OK(opened.status);
    opened = wait_for(dst, from, true, TRANSFER_PAIR_OPENED);
    ASSERT_OK(opened.status);
}

/*
 * As worker and head do: broken on both sides, staged at the receiver, and at the sender when what
 * did come is over.
 */
static void pair_break(struct world *world, uint32_t from, uint32_t to)
{
    struct host *src = &world->host[from], *dst = &world->host[to];
    struct transfer_pair_key sends = key_of(to, false), takes = key_of(from, true);
    uint64_t first;

    pl_mutex_lock(&src->lock);
    transfer_pair_break(src->pairs, &sends);
    pl_mutex_unlock(&src->lock);
    pl_mutex_lock(&dst->lock);
    transfer_pair_break(dst->pairs, &takes);
    transfer_pair_abort(dst->pairs, &takes);
    pl_mutex_unlock(&dst->lock);
    pl_mutex_lock(&dst->lock);
    ASSERT_OK(transfer_pair_stage(dst->pairs, &takes, &first));
    pl_mutex_unlock(&dst->lock);
    for (uint32_t t = 0; t < world->transfers; t++) { /* what came by the pair is over */
        const struct transfer *transfer = &world->transfer[t];

        while (transfer->from == from && transfer->to == to &&
               (first == 0 || t + 1 < first) &&
               __atomic_load_n(&dst->done[t], __ATOMIC_ACQUIRE) == 0) {
            in_time(world, "what came by a broken pair");
            turns_take(world);
            nap();
        }
    }
    pl_mutex_lock(&src->lock);
    for (uint32_t t = 0; t < world->transfers; t++) {
        if (__atomic_load_n(&world->host[world->transfer[t].to].done[t],
                            __ATOMIC_ACQUIRE) != 0 &&
            world->transfer[t].from == from) {
            transfer_pair_sent(src->pairs, t + 1);
        }
    }
    transfer_pair_abort(src->pairs, &sends);
    ASSERT_OK(transfer_pair_stage(src->pairs, &sends, &first));
    pl_mutex_unlock(&src->lock);
}

/* ------------------------------------------------------------------------------ workers */

static uint8_t byte_of(uint32_t t, uint64_t i)
{
    return (uint8_t)((i * 2654435761u + t * 40503u) >> 7);
}

static void half_enqueue(struct host *host, uint32_t t)
{
    struct world *world             = host->world;
    const struct transfer *mine     = &world->transfer[t];
    bool receives                   = mine->to == host->index;
    const struct transfer_half half = {
        .key         = key_of(receives ? mine->from : mine->to, receives),
        .host_device = receives ? mine->from : mine->to,
        .seq         = t + 1,
        .first_chunk = mine->chunk,
        .ptr         = device_ptr_add(host->base, mine->offset),
        .bytes       = mine->bytes,
        .with_bytes  = true,
    };

    while (!transfer_pair_room(host->pairs, receives)) {
        pl_mutex_unlock(&host->lock);
        in_time(world, "room on a lane");
        nap();
        pl_mutex_lock(&host->lock);
    }
    ASSERT_OK(transfer_pair_move(host->pairs, host->stream[receives], &half));
    if (receives) {
        ASSERT_OK(device_signal(host->stream[1], &host->done[t], 1));
    }
}

static void *worker_run(void *user)
{
    struct host *host   = user;
    struct world *world = host->world;
    uint64_t random     = world->random + host->index;

    for (uint32_t t = 0; t < world->transfers; t++) {
        const struct transfer *transfer = &world->transfer[t];

        if (transfer->from == host->index || transfer->to == host->index) {
            pl_mutex_lock(&host->lock);
            half_enqueue(host, t);
            pl_mutex_unlock(&host->lock);
            if (test_random(&random) % 16 == 0) {
                nap(); /* one device is ahead, then another */
            }
        }
    }
    return NULL;
}

static void transfers_make(struct world *world, uint32_t hosts)
{
    uint64_t chunks[HOSTS] = {0};

    for (uint32_t t = 0; t < world->transfers; t++) {
        struct transfer *transfer = &world->transfer[t];

        transfer->from = (uint32_t)(test_random(&world->random) % hosts);
        transfer->to =
            (transfer->from + 1 + (uint32_t)(test_random(&world->random) % (hosts - 1))) %
            hosts;
        transfer->bytes  = 1 + test_random(&world->random) % SIZE_MAX_;
        transfer->offset = (uint64_t)t * SIZE_MAX_;
        transfer->chunk  = chunks[transfer->to];
        chunks[transfer->to] += transfer_chunks(transfer->bytes);
        for (uint64_t i = 0; i < transfer->bytes; i += 7) {
            world->host[transfer->from].memory[transfer->offset + i] = byte_of(t, i);
        }
    }
}

static void start(struct world *world, uint32_t hosts)
{
    for (uint32_t i = 0; i < hosts; i++) {
        ASSERT_EQ(pthread_create(&world->host[i].thread, NULL, worker_run, &world->host[i]),
                  0);
    }
}

static void join(struct world *world, uint32_t hosts)
{
    for (uint32_t i = 0; i < hosts; i++) {
        ASSERT_EQ(pthread_join(world->host[i].thread, NULL), 0);
    }
}

/* All receives are over, senders hear of each, and every byte is there. */
static void finish(struct world *world)
{
    for (uint32_t t = 0; t < world->transfers; t++) {
        const struct transfer *transfer = &world->transfer[t];
        struct host *src = &world->host[transfer->from], *dst = &world->host[transfer->to];

        while (__atomic_load_n(&dst->done[t], __ATOMIC_ACQUIRE) == 0) {
            turns_take(world);
            if (pl_now_ns() > world->until_ns) {
                test_fail(__FILE__, __LINE__,
                          "transfer %u of %u, %llu bytes from %u to %u, is not over", t,
                          world->transfers, (unsigned long long)transfer->bytes,
                          transfer->from, transfer->to);
            }
            nap();
        }
        pl_mutex_lock(&src->lock);
        transfer_pair_sent(src->pairs, t + 1);
        pl_mutex_unlock(&src->lock);
    }
    for (uint32_t t = 0; t < world->transfers; t++) {
        const struct transfer *transfer = &world->transfer[t];

        for (uint64_t i = 0; i < transfer->bytes; i += 7) {
            uint8_t seen = world->host[transfer->to].memory[transfer->offset + i];

            if (seen != byte_of(t, i)) {
                test_fail(__FILE__, __LINE__,
                          "transfer %u from %u to %u: byte %llu of %llu is %u, not %u", t,
                          transfer->from, transfer->to, (unsigned long long)i,
                          (unsigned long long)transfer->bytes, seen, byte_of(t, i));
            }
        }
    }
}

static void open_all(struct world *world, uint32_t hosts)
{
    for (uint32_t from = 0; from < hosts; from++) {
        for (uint32_t to = 0; to < hosts; to++) {
            if (from != to) {
                pair_open(world, from, to);
            }
        }
    }
}

/* -------------------------------------------------------------------------------- tests */

static struct world world;

TEST(thousands_of_transfers_among_four_devices_arrive)
{
    uint64_t moved = 0;

    test_set_timeout(DEADLINE_S + 30);
    world_open(&world, HOSTS, 3000);
    open_all(&world, HOSTS);
    transfers_make(&world, HOSTS);
    start(&world, HOSTS);
    finish(&world);
    join(&world, HOSTS);
    for (uint32_t i = 0; i < HOSTS; i++) {
        moved += world.host[i].counters.copies[TRANSFER_NCCL];
        ASSERT_EQ(world.host[i].counters.copies[TRANSFER_HOST], 0);
    }
    ASSERT_EQ(moved, 3000);
    world_close(&world, HOSTS);
}

/* As many halves as fit on the lanes; then both pairs break, wherever their transfers are. */
TEST(what_was_under_way_when_pairs_break_goes_by_the_host_route)
{
    test_set_timeout(DEADLINE_S + 30);
    for (uint32_t round = 0; round < 25; round++) {
        world_open(&world, 2, TRANSFER_PAIR_DEPTH);
        open_all(&world, 2);
        transfers_make(&world, 2);
        start(&world, 2);
        join(&world, 2);
        for (uint64_t i = test_random(&world.random) % 40; i > 0; i--) {
            pl_cpu_relax();
        }
        pair_break(&world, 0, 1);
        pair_break(&world, 1, 0);
        finish(&world);
        world_close(&world, 2);
    }
}

/*
 * Else a lane that was full would stand still until something else happens: a message of the head,
 * for who sends.
 */
TEST(who_found_no_room_on_a_lane_is_told_when_there_is)
{
    struct host *src = &world.host[0];
    uint64_t raised;

    test_set_timeout(DEADLINE_S + 30);
    world_open(&world, 2, TRANSFER_PAIR_DEPTH);
    pair_open(&world, 0, 1);
    pl_mutex_lock(&src->lock);
    for (uint32_t t = 0; t < TRANSFER_PAIR_DEPTH; t++) {
        world.transfer[t] =
            (struct transfer){.to = 1, .bytes = 300, .offset = t * 512ull, .chunk = t};
        for (uint64_t i = 0; i < 300; i += 7) {
            src->memory[t * 512ull + i] = byte_of(t, i);
        }
        half_enqueue(src, t);
    }
    ASSERT_TRUE(!transfer_pair_room(src->pairs, TRANSFER_LANE_SENDS));
    pl_mutex_unlock(&src->lock);
    for (uint32_t t = 0; t < TRANSFER_PAIR_DEPTH; t++) {
        pl_mutex_lock(&world.host[1].lock);
        half_enqueue(&world.host[1], t);
        pl_mutex_unlock(&world.host[1].lock);
    }
    while (!transfer_pair_room(src->pairs, TRANSFER_LANE_SENDS)) {
        struct pollfd fd = {.fd = src->notify_fd, .events = POLLIN};

        ASSERT_EQ(poll(&fd, 1, DEADLINE_S * 1000), 1);
        ASSERT_EQ(read(src->notify_fd, &raised, sizeof(raised)), sizeof(raised));
    }
    finish(&world);
    world_close(&world, 2);
}

static void receive_staged(struct host *host, uint32_t t)
{
    const struct transfer *mine = &host->world->transfer[t];

    ASSERT_OK(transfer_stage_recv(host->stream[1], &host->ring, mine->chunk,
                                  device_ptr_add(host->base, mine->offset), mine->bytes,
                                  true, &host->counters));
    ASSERT_OK(device_signal(host->stream[1], &host->done[t], 1));
}

/*
 * Device 0 has on its lane: to 1, to 2, to 1. The worker of device 1 is replaced, and device 2 does
 * not take its own before that of device 1 has come. The last one lies behind the one in the
 * middle, and the first must not wait for it.
 */
TEST(a_half_does_not_wait_for_one_of_its_pair_that_lies_behind_another_pairs)
{
    struct transfer_pair_key sends = key_of(1, false);
    struct host *src               = &world.host[0];
    uint64_t first;

    test_set_timeout(DEADLINE_S + 30);
    world_open(&world, 3, 3);
    pair_open(&world, 0, 1);
    pair_open(&world, 0, 2);
    for (uint32_t t = 0; t < 3; t++) {
        world.transfer[t] = (struct transfer){
            .to = 1 + t % 2, .bytes = 300, .offset = t * 512ull, .chunk = t / 2};
        for (uint64_t i = 0; i < 300; i += 7) {
            src->memory[t * 512ull + i] = byte_of(t, i);
        }
    }
    pl_mutex_lock(&src->lock);
    for (uint32_t t = 0; t < 3; t++) {
        half_enqueue(src, t);
    }
    transfer_pair_break(src->pairs, &sends);
    transfer_pair_abort(src->pairs, &sends);
    ASSERT_OK(transfer_pair_stage(src->pairs, &sends, &first));
    ASSERT_EQ(first, 1);
    ASSERT_TRUE(!transfer_pairs_settled(src->pairs, false));
    pl_mutex_unlock(&src->lock);
    receive_staged(&world.host[1], 0);
    receive_staged(&world.host[1], 2);
    while (__atomic_load_n(&world.host[1].done[0], __ATOMIC_ACQUIRE) == 0) {
        turns_take(&world);
        in_time(&world, "the first transfer of the broken pair");
        nap();
    }
    pl_mutex_lock(&world.host[2].lock);
    half_enqueue(&world.host[2], 1);
    pl_mutex_unlock(&world.host[2].lock);
    finish(&world);
    ASSERT_EQ(world.host[1].counters.copies[TRANSFER_HOST], 2);
    ASSERT_EQ(world.host[2].counters.copies[TRANSFER_NCCL], 1);
    world_close(&world, 3);
}

/* A receive that nobody answers: it is told to be stuck, and goes the other way once its pair is broken. */
TEST(a_transfer_that_is_stuck_is_told_and_gets_there)
{
    struct transfer_pair_news news;

    test_set_timeout(DEADLINE_S + 30);
    world_open(&world, 2, 2);
    open_all(&world, 2);
    world.transfer[0] = (struct transfer){.from = 0, .to = 1, .bytes = 5000};
    world.transfer[1] =
        (struct transfer){.from = 0, .to = 1, .bytes = 70, .offset = 8192, .chunk = 1};
    for (uint64_t i = 0; i < 5000; i += 7) {
        world.host[0].memory[i] = byte_of(0, i);
    }
    for (uint64_t i = 0; i < 70; i += 7) {
        world.host[0].memory[8192 + i] = byte_of(1, i);
    }
    pl_fault_arm("comm.stall", 0);
    start(&world, 2);
    news = wait_for(&world.host[0], 1, false, TRANSFER_PAIR_STALLED);
    ASSERT_EQ(news.first_chunk, 0);
    news = wait_for(&world.host[1], 0, true, TRANSFER_PAIR_STALLED);
    ASSERT_EQ(news.first_chunk, 0);
    ASSERT_EQ(world.host[1].done[0], 0);
    ASSERT_EQ(pl_fault_disarm(), 1);
    join(&world, 2);
    pair_break(&world, 0, 1);
    finish(&world);
    ASSERT_EQ(world.host[1].counters.copies[TRANSFER_HOST], 2);
    world_close(&world, 2);
}

static void stuck_after(struct host *host, uint64_t limit_ns)
{
    pl_mutex_lock(&host->pairs->lock); /* the watcher reads it */
    host->pairs->config.stuck_ns = limit_ns;
    pl_mutex_unlock(&host->pairs->lock);
}

static void stall_after(struct host *host, uint64_t limit_ns)
{
    pl_mutex_lock(&host->pairs->lock);
    host->pairs->config.stall_ns = limit_ns;
    pl_mutex_unlock(&host->pairs->lock);
}

/*
 * Each waits for the other's part, and nobody asks for news, as when the main thread is in a call
 * that does not return: that is said, once a limit.
 */
TEST(a_worker_that_does_not_look_after_its_pairs_is_told_to_be_stuck)
{
    test_set_timeout(DEADLINE_S + 30);
    world_open(&world, 2, 1);
    open_all(&world, 2);
    for (uint32_t i = 0; i < 2; i++) {
        world.host[i].may_be_stuck = i == 1;
        stuck_after(&world.host[i], i == 1 ? UINT64_C(300000000) : 0);
    }
    world.transfer[0] = (struct transfer){.from = 0, .to = 1, .bytes = 5000};
    for (uint64_t i = 0; i < 5000; i += 7) {
        world.host[0].memory[i] = byte_of(0, i);
    }
    pl_fault_arm("comm.stall", 0);
    start(&world, 2);
    while (__atomic_load_n(&world.host[1].stuck, __ATOMIC_ACQUIRE) == 0) {
        in_time(&world, "word of a stuck worker");
        nap();
    }
    ASSERT_EQ(pl_fault_disarm(), 1);
    join(&world, 2);
    stuck_after(&world.host[1], 0); /* from here on it looks */
    pair_break(&world, 0, 1);
    finish(&world);
    ASSERT_EQ(world.host[0].stuck, 0);
    ASSERT_EQ(world.host[1].counters.copies[TRANSFER_HOST], 1);
    world_close(&world, 2);
}

/* ---- calls that end a communicator and do not return */

/* In the place of a communicator's device, until the call may return. */
static struct device_ops hanging_ops;
static struct device hanging_device = {.ops = &hanging_ops};
static struct device *real_device;
static atomic_bool call_may_return;

static void hang(struct device_comm *comm)
{
    while (!atomic_load(&call_may_return)) {
        nap();
    }
    comm->device = real_device;
}

static void close_hangs(struct device_comm *comm)
{
    hang(comm);
    device_comm_close(comm);
}

static void cut_hangs(struct device_comm *comm)
{
    hang(comm);
    device_comm_cut(comm);
}

/* Of the only pair of this host, which is open, and of which nothing is under way. */
static void ends_hang(struct host *host, uint64_t limit_ns)
{
    hanging_ops = (struct device_ops){.comm_close = close_hangs, .comm_cut = cut_hangs};
    real_device = host->device;
    atomic_store(&call_may_return, false);
    stuck_after(host, limit_ns);
    pl_mutex_lock(&host->pairs->lock);
    pl_list_first(&host->pairs->pairs, struct pair, link)->comm->device = &hanging_device;
    pl_mutex_unlock(&host->pairs->lock);
}

/* That is said once a limit, and nothing else stands still. */
static void assert_told_of_what_hangs(struct host *host)
{
    while (__atomic_load_n(&host->stuck, __ATOMIC_ACQUIRE) < 2) {
        struct transfer_pair_news news;

        ASSERT_TRUE(!transfer_pairs_news(host->pairs, &news));
        in_time(&world, "word of a call that does not return");
        nap();
    }
    stuck_after(host, 0);
    ASSERT_TRUE(
        strstr(host->stuck_text, "the communicator with device 1 cannot be ended") != NULL);
    ASSERT_TRUE(__atomic_load_n(&host->stuck, __ATOMIC_ACQUIRE) < 10);
    atomic_store(&call_may_return, true);
}

static void let_pass(uint64_t ms)
{
    const struct timespec pause = {.tv_sec  = (time_t)(ms / 1000),
                                   .tv_nsec = (long)(ms % 1000) * 1000000};

    (void)nanosleep(&pause, NULL);
}

/* The other side may be long in coming to it; who has died does not come at all. */
TEST(a_close_waits_for_its_other_side_while_that_is_there)
{
    struct transfer_pair_key sends = key_of(1, false);
    struct host *host              = &world.host[0];

    test_set_timeout(DEADLINE_S + 30);
    world_open(&world, 2, 1);
    open_all(&world, 2);
    ends_hang(host, UINT64_C(100000000));
    transfer_pair_close(host->pairs, &sends);
    let_pass(400);
    ASSERT_EQ(__atomic_load_n(&host->stuck, __ATOMIC_ACQUIRE), 0);
    host->may_be_stuck = true;
    transfer_pair_break(host->pairs, &sends);
    assert_told_of_what_hangs(host);
    (void)wait_for(host, 1, false, TRANSFER_PAIR_CLOSED);
    world_close(&world, 2);
}

TEST(a_communicator_that_cannot_be_aborted_is_told_of)
{
    struct transfer_pair_key sends = key_of(1, false);
    struct host *host              = &world.host[0];

    test_set_timeout(DEADLINE_S + 30);
    world_open(&world, 2, 1);
    open_all(&world, 2);
    host->may_be_stuck = true;
    ends_hang(host, UINT64_C(300000000));
    transfer_pair_break(host->pairs, &sends);
    transfer_pair_abort(host->pairs, &sends);
    assert_told_of_what_hangs(host);
    (void)wait_for(host, 1, false, TRANSFER_PAIR_ENDED);
    transfer_pair_free(host->pairs, &sends);
    (void)wait_for(host, 1, false, TRANSFER_PAIR_QUIET);
    world_close(&world, 2);
}

/*
 * The whole process was away (a frozen container, a machine that stood still): for as long the call
 * could not get on, and nobody else could.
 */
TEST(who_was_away_is_not_taken_for_stuck)
{
    struct transfer_pair_key sends = key_of(1, false);
    struct host *host              = &world.host[0];
    bool begun                     = false;

    test_set_timeout(DEADLINE_S + 30);
    world_open(&world, 2, 1);
    open_all(&world, 2);
    ends_hang(host, UINT64_C(3000000000));
    transfer_pair_break(host->pairs, &sends);
    transfer_pair_abort(host->pairs, &sends);
    while (!begun) {
        in_time(&world, "a call");
        nap();
        pl_mutex_lock(&host->pairs->lock);
        begun = pl_list_first(&host->pairs->pairs, struct pair, link)->abort_since_ns != 0;
        if (begun) { /* so long the watcher cannot look */
            let_pass(3300);
        }
        pl_mutex_unlock(&host->pairs->lock);
    }
    let_pass(300);
    ASSERT_EQ(__atomic_load_n(&host->stuck, __ATOMIC_ACQUIRE), 0);
    atomic_store(&call_may_return, true);
    (void)wait_for(host, 1, false, TRANSFER_PAIR_ENDED);
    transfer_pair_free(host->pairs, &sends);
    (void)wait_for(host, 1, false, TRANSFER_PAIR_QUIET);
    world_close(&world, 2);
}

/* It moves the words of the ring, so that the next transfer into it can come. */
TEST(a_half_that_failed_passes_without_bytes)
{
    struct transfer_half half = {.key         = key_of(1, false),
                                 .host_device = 1,
                                 .seq         = 1,
                                 .bytes       = 300,
                                 .with_bytes  = false};

    test_set_timeout(DEADLINE_S + 30);
    world_open(&world, 2, 1);
    pair_open(&world, 0, 1);
    world.transfer[0] = (struct transfer){.from = 0, .to = 1, .bytes = 300};
    half.ptr          = world.host[0].base;
    ASSERT_OK(transfer_pair_move(world.host[0].pairs, world.host[0].stream[0], &half));
    half = (struct transfer_half){.key         = key_of(0, true),
                                  .host_device = 0,
                                  .seq         = 1,
                                  .bytes       = 300,
                                  .ptr         = world.host[1].base,
                                  .with_bytes  = true};
    ASSERT_OK(transfer_pair_move(world.host[1].pairs, world.host[1].stream[1], &half));
    ASSERT_OK(device_signal(world.host[1].stream[1], &world.host[1].done[0], 1));
    (void)wait_for(&world.host[0], 1, false, TRANSFER_PAIR_TROUBLE);
    pair_break(&world, 0, 1);
    while (__atomic_load_n(&world.host[1].done[0], __ATOMIC_ACQUIRE) == 0) {
        turns_take(&world);
        in_time(&world, "a transfer without bytes");
        nap();
    }
    ASSERT_EQ(world.host[1].ring.timeline->stage_taken.value, 1);
    world_close(&world, 2);
}

/* The receiver knows nothing of that: what it has for the one that was refused would meet the one behind. */
TEST(behind_an_operation_that_was_refused_none_goes_by_its_pair)
{
    uint64_t until_ns;

    test_set_timeout(DEADLINE_S + 30);
    world_open(&world, 2, 2);
    pair_open(&world, 0, 1);
    for (uint32_t t = 0; t < 2; t++) {
        world.transfer[t] = (struct transfer){
            .from = 0, .to = 1, .bytes = 300, .chunk = t, .offset = t * UINT64_C(512)};
        for (uint64_t i = 0; i < 300; i += 7) {
            world.host[0].memory[world.transfer[t].offset + i] = byte_of(t, i);
        }
    }
    pl_fault_arm("pair.move", 0);
    for (uint32_t host = 0; host < 2; host++) {
        pl_mutex_lock(&world.host[host].lock);
        for (uint32_t t = 0; t < 2; t++) {
            half_enqueue(&world.host[host], t);
        }
        pl_mutex_unlock(&world.host[host].lock);
    }
    ASSERT_EQ(pl_fault_disarm(), 1);
    (void)wait_for(&world.host[0], 1, false, TRANSFER_PAIR_TROUBLE);
    for (until_ns = pl_now_ns() + 50000000; pl_now_ns() < until_ns; nap()) {
        ASSERT_EQ(__atomic_load_n(&world.host[1].done[0], __ATOMIC_ACQUIRE), 0);
    }
    pair_break(&world, 0, 1);
    finish(&world);
    ASSERT_EQ(world.host[1].counters.copies[TRANSFER_HOST], 2);
    world_close(&world, 2);
}

/*
 * Device 1 takes a transfer by the host route, which its sender knows nothing of yet, and waits in
 * another one for device 2, which does not come: neither ends, as if the one stood behind the other
 * in a hardware queue. Its side alone is enough then.
 */
TEST(who_keeps_what_is_staged_from_its_end_is_broken_too)
{
    const struct transfer_pair_key sends = key_of(1, false), takes = key_of(0, true);
    struct host *host = &world.host[1];
    uint64_t first;

    test_set_timeout(DEADLINE_S + 30);
    world_open(&world, 3, 2);
    pair_open(&world, 0, 1);
    pair_open(&world, 1, 2);
    stall_after(host, UINT64_C(100000000));
    stuck_after(host, UINT64_C(100000000));
    host->may_be_stuck = true;
    for (uint32_t t = 0; t < 2; t++) {
        world.transfer[t] = (struct transfer){
            .from = t, .to = t + 1, .bytes = 300, .offset = t * UINT64_C(512)};
        for (uint64_t i = 0; i < 300; i += 7) {
            world.host[t].memory[world.transfer[t].offset + i] = byte_of(t, i);
        }
    }
    pl_mutex_lock(&host->lock);
    half_enqueue(host, 0);
    half_enqueue(host, 1);
    transfer_pair_break(host->pairs, &takes);
    transfer_pair_abort(host->pairs, &takes);
    ASSERT_OK(transfer_pair_stage(host->pairs, &takes, &first));
    pl_mutex_unlock(&host->lock);
    (void)wait_for(host, 2, false, TRANSFER_PAIR_TROUBLE);
    ASSERT_EQ(__atomic_load_n(&host->stuck, __ATOMIC_ACQUIRE), 0);
    while (__atomic_load_n(&host->stuck, __ATOMIC_ACQUIRE) == 0) {
        /* nobody does break it */
        turns_take(&world);
        in_time(&world, "the worker's last way out");
        nap();
    }
    stall_after(host, 0);
    stuck_after(host, 0);
    for (uint32_t t = 0; t < 2; t++) {
        struct host *other = &world.host[2 * t];

        pl_mutex_lock(&other->lock);
        half_enqueue(other, t);
        pl_mutex_unlock(&other->lock);
    }
    pair_break(&world, 1, 2);
    pl_mutex_lock(&world.host[0].lock);
    transfer_pair_break(world.host[0].pairs, &sends);
    transfer_pair_abort(world.host[0].pairs, &sends);
    ASSERT_OK(transfer_pair_stage(world.host[0].pairs, &sends, &first));
    pl_mutex_unlock(&world.host[0].lock);
    finish(&world);
    ASSERT_EQ(host->stuck, 1);
    world_close(&world, 3);
}

TEST(a_pair_that_nobody_joins_is_given_up)
{
    struct transfer_pair_key sends = key_of(1, false), takes = key_of(0, true);
    struct transfer_pair_news news;

    test_set_timeout(DEADLINE_S + 30);
    world_open(&world, 2, 1);
    /* A sender waits until it is told to stop. */
    ASSERT_OK(transfer_pair_open(world.host[0].pairs, &sends, &sender, NULL, 100));
    news = wait_for(&world.host[0], 1, false, TRANSFER_PAIR_MADE);
    transfer_pair_break(world.host[0].pairs, &sends);
    news = wait_for(&world.host[0], 1, false, TRANSFER_PAIR_OPENED);
    ASSERT_EQ(news.status, PLASMON_ECANCELLED);
    (void)wait_for(&world.host[0], 1, false, TRANSFER_PAIR_QUIET);
    /* A receiver of an id whose maker is gone hears that at once, or gives up by itself. */
    {
        struct device_comm_config config = {.rank = 0};
        uint8_t id[DEVICE_COMM_ID_BYTES];
        struct pl_err err;

        ASSERT_OK(device_comm_id(world.host[0].device, &config, id, &err));
        ASSERT_OK(transfer_pair_open(world.host[1].pairs, &takes, &receiver, id, 100));
        news = wait_for(&world.host[1], 0, true, TRANSFER_PAIR_OPENED);
        ASSERT_EQ(news.status, PLASMON_ETIMEDOUT);
        ASSERT_TRUE(strstr(news.text, "device 0 did not answer within 100 ms") != NULL);
    }
    world_close(&world, 2);
}

/* ----------------------------------------------------------------------------- one lane */

struct side {
    struct device *device;
    struct device_stream *stream;
    struct device_comm *sends;
    struct device_comm *takes;
    uint8_t out[64], in[64];
    uint64_t word;
};

static void comm_open(struct side *from, struct side *to)
{
    struct device_comm_config sends = {.rank = 0}, takes = {.rank = 1};
    uint64_t until_ns = pl_now_ns() + UINT64_C(10000000000);
    uint8_t id[DEVICE_COMM_ID_BYTES];
    struct pl_err err;

    ASSERT_OK(device_comm_id(from->device, &sends, id, &err));
    ASSERT_OK(device_comm_open(from->device, &sends, id, from->stream, &from->sends, &err));
    ASSERT_OK(device_comm_open(to->device, &takes, id, to->stream, &to->takes, &err));
    for (;;) {
        bool sends_open = device_comm_poll(from->sends, &err) != PLASMON_EAGAIN;
        bool takes_open = device_comm_poll(to->takes, &err) != PLASMON_EAGAIN;

        if (sends_open && takes_open) {
            break;
        }
        ASSERT_TRUE(pl_now_ns() < until_ns);
        nap();
    }
}

static void move(struct side *side, struct device_comm *comm, uint8_t *data)
{
    struct device_ptr ptr = {.addr = (uint64_t)(uintptr_t)data};
    struct pl_err err;

    ASSERT_OK(device_comm_move(comm, side->stream, ptr, 64, &err));
}

/*
 * Both send first and receive then, with one lane each: the stand-in hangs as NCCL does. In the
 * order of numbers it does not.
 */
TEST(on_one_lane_only_the_order_of_numbers_keeps_two_devices_from_hanging)
{
    struct device_config config = {.bytes_max = 1 << 20};
    static struct side side[2];
    struct pl_err err;

    test_set_timeout(60);
    for (uint32_t i = 0; i < 2; i++) {
        ASSERT_OK(device_open(DEVICE_CPU, i, &config, &side[i].device, &err));
        ASSERT_OK(device_stream_create(side[i].device, 0, &side[i].stream));
        memset(side[i].out, (int)(i + 1), sizeof(side[i].out));
    }
    comm_open(&side[0], &side[1]);
    comm_open(&side[1], &side[0]);

    /* transfer 1: 0 to 1; transfer 2: 1 to 0 */
    move(&side[0], side[0].sends, side[0].out);
    move(&side[0], side[0].takes, side[0].in);
    move(&side[1], side[1].takes, side[1].in);
    move(&side[1], side[1].sends, side[1].out);
    for (uint32_t i = 0; i < 2; i++) {
        ASSERT_OK(device_stream_sync(side[i].stream, &err));
        ASSERT_EQ(side[i].in[63], 2 - i);
    }

    for (uint32_t i = 0; i < 2; i++) { /* each sends first */
        move(&side[i], side[i].sends, side[i].out);
        move(&side[i], side[i].takes, side[i].in);
        ASSERT_OK(device_signal(side[i].stream, &side[i].word, 1));
    }
    for (uint32_t i = 0; i < 2000;
         i++) { /* 0.1 s, in which the right order takes some microseconds */
        nap();
    }
    ASSERT_EQ(__atomic_load_n(&side[0].word, __ATOMIC_ACQUIRE), 0);
    ASSERT_EQ(__atomic_load_n(&side[1].word, __ATOMIC_ACQUIRE), 0);
    for (uint32_t i = 0; i < 2; i++) { /* an abort ends it, as if all were well */
        device_comm_abort(side[i].sends);
        device_comm_abort(side[i].takes);
    }
    for (uint32_t i = 0; i < 2; i++) {
        ASSERT_OK(device_stream_sync(side[i].stream, &err));
        ASSERT_EQ(side[i].word, 1);
        device_stream_destroy(side[i].stream);
        device_close(side[i].device);
    }
}

TEST_MAIN()
