/* A client's side of lanes, with a worker in a thread that copies, refuses, or does nothing. */
#include "client/lane.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "tests/harness/test.h"

#define BUFFER_BYTES (UINT64_C(80) << 20)

struct worker {
    struct store_lane *lane;
    uint8_t *buffer;
    int doorbell;
    _Atomic bool stop, idle; /* idle: it does not answer */
    _Atomic int refuse;      /* a status, from now on */
    pthread_t thread;
};

static void serve(struct worker *worker)
{
    for (uint32_t i = 0; i < STORE_LANE_SLOTS && !worker->idle; i++) {
        struct store_lane_slot *slot = &worker->lane->slot[i];
        uint8_t *data                = store_lane_data(worker->lane, i);

        if (store_lane_quiet(worker->lane, i)) {
            continue;
        }
        slot->status = atomic_load(&worker->refuse);
        if (slot->offset + slot->bytes > BUFFER_BYTES || slot->buffer_slot != 5 ||
            slot->generation != 6) {
            slot->status = PLASMON_EMALFORMED;
        } else if (slot->status == PLASMON_OK && slot->kind == STORE_LANE_PUT) {
            memcpy(worker->buffer + slot->offset, data, slot->bytes);
        } else if (slot->status == PLASMON_OK) {
            memcpy(data, worker->buffer + slot->offset, slot->bytes);
        }
        __atomic_store_n(&slot->done, store_lane_asked(worker->lane, i), __ATOMIC_RELEASE);
    }
}

static void *worker_run(void *user)
{
    struct worker *worker = user;

    while (!worker->stop) {
        struct pollfd poller = {.fd = worker->doorbell, .events = POLLIN};
        uint64_t count;

        (void)poll(&poller, 1, 5); /* idle may have ended without a ring */
        if (read(worker->doorbell, &count, sizeof(count)) < 0) {
            ASSERT_EQ(errno, EAGAIN);
        }
        serve(worker);
    }
    return NULL;
}

static struct lane *begin(struct worker *worker)
{
    struct pl_err err = {0};
    struct lane *lane;
    void *mapped;
    int slab, doorbell;

    ASSERT_OK(pl_memfd_create("lane", STORE_LANE_BYTES, &slab));
    ASSERT_OK(pl_fd_map(slab, STORE_LANE_BYTES, 1, &mapped));
    doorbell = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    ASSERT_TRUE(doorbell >= 0);
    *worker = (struct worker){.doorbell = dup(doorbell), .buffer = calloc(1, BUFFER_BYTES)};
    ((struct store_lane *)mapped)->magic = STORE_LANE_MAGIC;
    ASSERT_NOT_NULL(worker->buffer);
    pl_fd_unmap(mapped, STORE_LANE_BYTES);
    ASSERT_OK(lane_create(slab, doorbell, &lane, &err));
    /* the same mapping: the thread sanitizer sees one word, not two */
    worker->lane = lane->shared;
    ASSERT_EQ(pthread_create(&worker->thread, NULL, worker_run, worker), 0);
    return lane;
}

static void end(struct worker *worker, struct lane *lane)
{
    worker->stop = true;
    ASSERT_EQ(pthread_join(worker->thread, NULL), 0);
    lane_destroy(lane);
    pl_fd_close(&worker->doorbell);
    free(worker->buffer);
}

static struct lane_transfer transfer_of(uint64_t offset, uint64_t bytes)
{
    return (struct lane_transfer){.buffer_slot = 5,
                                  .generation  = 6,
                                  .offset      = offset,
                                  .bytes       = bytes,
                                  .deadline_ns = UINT64_MAX};
}

static void round_trip(struct worker *worker, struct lane *lane, uint64_t offset,
                       uint64_t bytes)
{
    struct lane_transfer transfer = transfer_of(offset, bytes);
    uint8_t *from = calloc(1, bytes), *to = calloc(1, bytes);
    struct pl_err err = {0};

    ASSERT_TRUE(from != NULL && to != NULL);
    for (uint64_t i = 0; i < bytes; i++) {
        from[i] = (uint8_t)(((i + bytes) * 2654435761u) >> 21);
    }
    ASSERT_OK(lane_put(lane, &transfer, from, &err));
    ASSERT_EQ(memcmp(worker->buffer + offset, from, bytes), 0);
    ASSERT_OK(lane_get(lane, &transfer, to, &err));
    ASSERT_EQ(memcmp(to, from, bytes), 0);
    ASSERT_EQ(lane->taken, 0);
    free(from);
    free(to);
}

TEST(bytes_of_any_size_go_both_ways)
{
    static const uint64_t sizes[] = {
        1, 1000, 256 << 10, (256 << 10) + 1, (2 << 20) + 3, (20 << 20) + 7};
    struct worker worker;
    struct lane *lane = begin(&worker);

    for (size_t i = 0; i < PL_COUNT(sizes); i++) {
        round_trip(&worker, lane, i * 100, sizes[i]);
    }
    end(&worker, lane);
}

struct user {
    struct worker *worker;
    struct lane *lane;
    uint64_t offset;
    pthread_t thread;
};

static void *user_run(void *arg)
{
    struct user *user = arg;

    for (unsigned i = 0; i < 3; i++) {
        struct lane_transfer transfer = transfer_of(user->offset, (3 << 20) + i);
        uint8_t *from = calloc(1, transfer.bytes), *to = calloc(1, transfer.bytes);
        struct pl_err err = {0};

        ASSERT_TRUE(from != NULL && to != NULL);
        memset(from, (int)(user->offset >> 20) + (int)i, transfer.bytes);
        ASSERT_OK(lane_put(user->lane, &transfer, from, &err));
        ASSERT_OK(lane_get(user->lane, &transfer, to, &err));
        ASSERT_EQ(memcmp(to, from, transfer.bytes), 0);
        free(from);
        free(to);
    }
    return NULL;
}

TEST(threads_that_find_no_slot_wait)
{
    struct worker worker;
    struct lane *lane = begin(&worker);
    struct user users[7];

    for (size_t i = 0; i < PL_COUNT(users); i++) {
        users[i] =
            (struct user){.worker = &worker, .lane = lane, .offset = i * (10u << 20)};
        ASSERT_EQ(pthread_create(&users[i].thread, NULL, user_run, &users[i]), 0);
    }
    for (size_t i = 0; i < PL_COUNT(users); i++) {
        ASSERT_EQ(pthread_join(users[i].thread, NULL), 0);
    }
    ASSERT_EQ(lane->taken, 0);
    end(&worker, lane);
}

TEST(many_small_gets_come_each_to_its_place)
{
    enum { COUNT = 65 };
    static struct lane_transfer transfers[COUNT];
    static uint8_t values[COUNT][100];
    static void *data[COUNT];
    struct worker worker;
    struct lane *lane = begin(&worker);
    struct pl_err err = {0};

    for (uint32_t i = 0; i < COUNT; i++) {
        transfers[i] = transfer_of(i * 1000, 1 + i % 100);
        data[i]      = values[i];
        memset(worker.buffer + i * 1000, (int)i + 1, 1000);
    }
    ASSERT_OK(lane_get_many(lane, transfers, data, COUNT, &err));
    for (uint32_t i = 0; i < COUNT; i++) {
        for (uint32_t k = 0; k < 100; k++) {
            ASSERT_EQ(values[i][k], k < 1 + i % 100 ? i + 1 : 0);
        }
    }
    transfers[40].generation++; /* a buffer that is gone */
    ASSERT_STATUS(lane_get_many(lane, transfers, data, COUNT, &err), PLASMON_EMALFORMED);
    ASSERT_OK(lane_get_many(lane, transfers, data, 0, &err));
    ASSERT_EQ(lane->taken, 0);
    end(&worker, lane);
}

TEST(a_refusal_is_told)
{
    struct worker worker;
    struct lane *lane             = begin(&worker);
    struct lane_transfer transfer = transfer_of(0, 30 << 20);
    uint8_t *bytes                = calloc(1, transfer.bytes);
    struct pl_err err             = {0};

    ASSERT_NOT_NULL(bytes);
    atomic_store(&worker.refuse, PLASMON_ELOST);
    ASSERT_STATUS(lane_put(lane, &transfer, bytes, &err), PLASMON_ELOST);
    ASSERT_CONTAINS(err.text, "refused");
    ASSERT_STATUS(lane_get(lane, &transfer, bytes, &err), PLASMON_ELOST);
    atomic_store(&worker.refuse, PLASMON_OK);
    round_trip(&worker, lane, 0, 30 << 20);
    free(bytes);
    end(&worker, lane);
}

TEST(a_slot_that_was_given_up_is_not_used_before_it_is_quiet)
{
    struct worker worker;
    struct lane *lane             = begin(&worker);
    struct lane_transfer transfer = transfer_of(0, 30 << 20);
    uint8_t *bytes                = calloc(1, transfer.bytes);
    struct pl_err err             = {0};
    uint64_t asked[STORE_LANE_SLOTS];
    uint32_t waiting = 0;

    ASSERT_NOT_NULL(bytes);
    worker.idle          = true;
    transfer.deadline_ns = pl_now_ns() + 100000000u;
    ASSERT_STATUS(lane_get(lane, &transfer, bytes, &err), PLASMON_ETIMEDOUT);
    ASSERT_EQ(lane->taken, 0);
    for (uint32_t i = 0; i < STORE_LANE_SLOTS; i++) {
        asked[i] = store_lane_asked(lane->shared, i);
        waiting += store_lane_quiet(lane->shared, i) ? 0 : 1;
    }
    ASSERT_TRUE(waiting > 0);

    transfer.deadline_ns = pl_now_ns() + 100000000u; /* takes the quiet ones */
    ASSERT_STATUS(lane_put(lane, &transfer, bytes, &err), PLASMON_ETIMEDOUT);
    transfer.deadline_ns = pl_now_ns() + 100000000u; /* and now there is none */
    ASSERT_STATUS(lane_put(lane, &transfer, bytes, &err), PLASMON_ETIMEDOUT);
    for (uint32_t i = 0; i < STORE_LANE_SLOTS; i++) {
        ASSERT_TRUE(store_lane_asked(lane->shared, i) <= asked[i] + 1);
    }
    worker.idle = false;
    round_trip(&worker, lane, 0, 30 << 20);
    free(bytes);
    end(&worker, lane);
}

static plasmon_status_t no_hope(void *user, struct pl_err *err)
{
    return pl_err_set(err, PLASMON_ECLOSED, "%s", (const char *)user);
}

TEST(a_transfer_without_hope_ends)
{
    struct worker worker;
    struct lane *lane             = begin(&worker);
    struct lane_transfer transfer = transfer_of(0, 1000);
    uint8_t bytes[1000]           = {0};
    char text[]                   = "nobody is there";
    struct pl_err err             = {0};

    worker.idle   = true;
    transfer.hope = no_hope;
    transfer.user = text;
    ASSERT_STATUS(lane_put(lane, &transfer, bytes, &err), PLASMON_ECLOSED);
    ASSERT_STR(err.text, text);
    transfer.hope       = NULL;
    worker.lane->closed = 1;
    ASSERT_STATUS(lane_get(lane, &transfer, bytes, &err), PLASMON_ECLOSED);
    ASSERT_CONTAINS(err.text, "given up");
    worker.idle = false;
    end(&worker, lane);
}

TEST_MAIN()
