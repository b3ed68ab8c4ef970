/*
 * A worker's side of lanes, on a CPU device: what it copies, what it refuses, what it takes over
 * from a dead one, what it holds.
 */
#include "worker/lanes.h"

#include <sched.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/fd.h"
#include "tests/harness/test.h"

#define CHUNK_BYTES  (UINT64_C(32) << 20)
#define BUFFER_BYTES (UINT64_C(3) << 20)

static struct store_table *table;
static struct worker_shared shared;
static struct device *device;
static struct worker_memory *memory;
static struct transfer_counters counters;
static struct worker_lanes lanes;
static struct store_lane *lane; /* as the client maps it */
static uint8_t *chunk;          /* the device's memory */

/* Slot 1 is open for a client, slot 2 is sealed, slot 3 is being written by a task. */
static void fill_table(void)
{
    const struct pl_shape frame = {.dtype = PL_U8, .ndim = 1, .dim = {BUFFER_BYTES}};

    for (uint32_t slot = 1; slot <= 3; slot++) {
        store_table_alloc(table, slot, 10 + slot, slot * BUFFER_BYTES, &frame,
                          slot == 1 ? STORE_ENTRY_CLIENT_WRITES : 0, 1);
    }
    store_table_seal(table, 2);
}

static void begin(void)
{
    struct device_config config = {.bytes_max = 2 * CHUNK_BYTES};
    struct pl_err err;
    void *mapped;
    int fd, *given;

    table = mmap(NULL, sizeof(*table), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                 -1, 0);
    ASSERT_TRUE(table != MAP_FAILED);
    store_table_init(table, 0, DEVICE_CPU, 0, UINT64_C(1) << 30);
    fill_table();
    worker_shared_init(&shared, -1);
    shared.tables[0]         = table;
    shared.host_device_count = 1;
    ASSERT_OK(device_open(DEVICE_CPU, 0, &config, &device, &err));
    ASSERT_OK(worker_memory_create(device, &shared, 0, &memory, &err));
    ASSERT_OK(device_chunk_create(device, CHUNK_BYTES, &fd));
    ASSERT_OK(
        device_chunk_map(device, fd, CHUNK_BYTES, 0, true, worker_memory_own(memory, 0)));
    chunk = device_ptr_host(device, worker_memory_own(memory, 0));
    pl_fd_close(&fd);

    ASSERT_OK(worker_lanes_init(&lanes, device, &shared, memory, &counters));
    given = pl_vec_push(&shared.lanes);
    ASSERT_NOT_NULL(given);
    ASSERT_OK(pl_memfd_create("lane", STORE_LANE_BYTES, given));
    ASSERT_OK(pl_fd_map(*given, STORE_LANE_BYTES, 1, &mapped));
    lane        = mapped;
    lane->magic = STORE_LANE_MAGIC;
}

static void take(void)
{
    struct pl_err err;

    ASSERT_OK(worker_lanes_take(&lanes, &err));
}

static void end(void)
{
    worker_lanes_finish(&lanes);
    device_chunk_unmap(device, worker_memory_own(memory, 0), CHUNK_BYTES);
    worker_memory_destroy(memory);
    device_close(device);
    pl_fd_unmap(lane, STORE_LANE_BYTES);
    shared.tables[0] = NULL;
    worker_shared_finish(&shared);
    ASSERT_EQ(munmap(table, sizeof(*table)), 0);
}

static void ask(uint32_t slot, uint32_t kind, uint32_t buffer_slot, uint64_t offset,
                uint64_t bytes)
{
    struct store_lane_slot *mailbox = &lane->slot[slot];

    mailbox->kind        = kind;
    mailbox->buffer_slot = buffer_slot;
    mailbox->generation  = 10 + buffer_slot;
    mailbox->offset      = offset;
    mailbox->bytes       = bytes;
    __atomic_store_n(&mailbox->asked, mailbox->asked + 1, __ATOMIC_RELEASE);
}

static plasmon_status_t wait_done(uint32_t slot)
{
    uint64_t deadline_ns = pl_now_ns() + UINT64_C(20000000000);

    while (!store_lane_quiet(lane, slot)) {
        ASSERT_TRUE(pl_now_ns() < deadline_ns);
    }
    return (plasmon_status_t)lane->slot[slot].status;
}

TEST(bytes_go_in_and_out)
{
    begin();
    take();
    for (uint32_t slot = 0; slot < STORE_LANE_SLOTS; slot++) {
        memset(store_lane_data(lane, slot), (int)slot + 1, 1000);
        ask(slot, STORE_LANE_PUT, 1, 5000 + slot * 1000, 1000);
    }
    worker_lanes_serve(&lanes);
    for (uint32_t slot = 0; slot < STORE_LANE_SLOTS; slot++) {
        ASSERT_OK(wait_done(slot));
    }
    for (uint32_t i = 0; i < STORE_LANE_SLOTS * 1000; i++) {
        ASSERT_EQ(chunk[BUFFER_BYTES + 5000 + i], i / 1000 + 1);
    }
    ASSERT_EQ(chunk[BUFFER_BYTES + 4999], 0);

    memset(chunk + 2 * BUFFER_BYTES, 0x5a, BUFFER_BYTES);
    ask(3, STORE_LANE_GET, 2, BUFFER_BYTES - STORE_LANE_SLOT_BYTES, STORE_LANE_SLOT_BYTES);
    worker_lanes_serve(&lanes);
    ASSERT_OK(wait_done(3));
    ASSERT_EQ(store_lane_data(lane, 3)[0], 0x5a);
    ASSERT_EQ(store_lane_data(lane, 3)[STORE_LANE_SLOT_BYTES - 1], 0x5a);
    ASSERT_EQ(counters.bytes[TRANSFER_LANE],
              STORE_LANE_SLOTS * 1000 + STORE_LANE_SLOT_BYTES);
    ASSERT_TRUE(!worker_lanes_busy(&lanes));
    end();
}

TEST(what_a_client_may_not_touch_is_refused)
{
    static const struct {
        uint32_t kind, buffer_slot;
        uint64_t offset, bytes;
        plasmon_status_t status;
    } bad[] = {
        {STORE_LANE_PUT, 2, 0, 10, PLASMON_ELOST}, /* sealed */
        {STORE_LANE_PUT, 3, 0, 10, PLASMON_ELOST}, /* a task's */
        {STORE_LANE_PUT, 4, 0, 10, PLASMON_ELOST}, /* free */
        {STORE_LANE_GET, 1, 0, 10, PLASMON_ELOST}, /* not right yet */
        {STORE_LANE_GET, 4, 0, 10, PLASMON_ELOST},
        {9, 2, 0, 10, PLASMON_ELOST},
        {STORE_LANE_GET, STORE_TABLE_SLOTS, 0, 10, PLASMON_EMALFORMED},
        {STORE_LANE_GET, 2, 0, 0, PLASMON_EMALFORMED},
        {STORE_LANE_GET, 2, 0, STORE_LANE_SLOT_BYTES + 1, PLASMON_EMALFORMED},
        {STORE_LANE_GET, 2, BUFFER_BYTES - 9, 10, PLASMON_ERANGE},
        {STORE_LANE_GET, 2, UINT64_MAX - 4, 10, PLASMON_ERANGE},
        {STORE_LANE_PUT, 1, BUFFER_BYTES, 1, PLASMON_ERANGE},
    };

    begin();
    take();
    for (size_t i = 0; i < PL_COUNT(bad); i++) {
        ask(0, bad[i].kind, bad[i].buffer_slot, bad[i].offset, bad[i].bytes);
        worker_lanes_serve(&lanes);
        ASSERT_STATUS(wait_done(0), bad[i].status);
    }
    ask(0, STORE_LANE_GET, 2, 0, 10);
    lane->slot[0].generation++; /* of another buffer in the same slot */
    worker_lanes_serve(&lanes);
    ASSERT_STATUS(wait_done(0), PLASMON_ELOST);
    ASSERT_EQ(counters.copies[TRANSFER_LANE], 0);
    end();
}

/* The store hands a new worker the lanes as the old one left them. */
TEST(what_a_dead_worker_left_undone_is_done)
{
    begin();
    memset(store_lane_data(lane, 2), 0x77, 500);
    lane->slot[2].asked = lane->slot[2].done = 41;
    lane->slot[4].asked = lane->slot[4].done = 9; /* was over */
    ask(2, STORE_LANE_PUT, 1, 0, 500);
    take();
    worker_lanes_serve(&lanes);
    ASSERT_OK(wait_done(2));
    ASSERT_EQ(lane->slot[2].done, 42);
    ASSERT_EQ(chunk[BUFFER_BYTES + 499], 0x77);
    ASSERT_EQ(counters.copies[TRANSFER_LANE], 1);
    end();
}

TEST(a_buffer_is_held_while_a_copy_into_it_is_on_its_way)
{
    uint64_t *word;

    begin();
    take();
    word = (uint64_t *)(void *)store_lane_data(lane, 15); /* registered, and nobody's now */
    ASSERT_OK(device_wait(lanes.in, word, 1));
    ask(0, STORE_LANE_PUT, 1, 0, 100);
    ask(1, STORE_LANE_GET, 2, 0, 100);
    worker_lanes_serve(&lanes);
    ASSERT_OK(wait_done(1)); /* the other direction does not wait */
    ASSERT_TRUE(worker_lanes_write(&lanes, 1));
    ASSERT_TRUE(!worker_lanes_write(&lanes, 2));
    ask(0, STORE_LANE_PUT, 1, 0, 100); /* nonsense: it asks again before it was answered */
    worker_lanes_serve(&lanes);
    ASSERT_EQ(lanes.running, 1);
    __atomic_store_n(word, 1, __ATOMIC_RELEASE);
    device_word_wake(word);
    while (store_lane_done(lane, 0) < 1) {
        (void)sched_yield();
    }
    ASSERT_TRUE(!worker_lanes_write(&lanes, 1));
    worker_lanes_serve(&lanes); /* now the second one is */
    ASSERT_OK(wait_done(0));
    end();
}

TEST(a_lane_that_cannot_be_pinned_is_closed)
{
    begin();
    test_expect_log();
    pl_fault_arm("worker.lane_register", 0);
    take();
    ASSERT_TRUE(pl_fault_disarm());
    ASSERT_EQ(lane->closed, 1);
    ask(0, STORE_LANE_GET, 2, 0, 10);
    worker_lanes_serve(&lanes);
    ASSERT_TRUE(!store_lane_quiet(lane, 0)); /* it is nobody's */
    end();
}

TEST(one_that_the_store_opens_again_is_pinned_when_that_is_possible)
{
    begin();
    test_expect_log();
    pl_fault_arm("worker.lane_register", 0);
    take();
    ASSERT_TRUE(pl_fault_disarm());
    lane->closed = 0;
    pl_fault_arm("worker.lane_register", 0);
    worker_lanes_serve(&lanes);
    ASSERT_TRUE(pl_fault_disarm());
    ASSERT_EQ(lane->closed, 1);
    lane->closed = 0;
    ask(0, STORE_LANE_GET, 2, 0, 10);
    worker_lanes_serve(&lanes);
    ASSERT_OK(wait_done(0));
    ASSERT_EQ(lane->closed, 0);
    end();
}

/* Another worker may find that it can. */
TEST(what_the_worker_before_could_not_pin_is_open_when_this_one_can)
{
    begin();
    lane->closed = 1;
    take();
    ASSERT_EQ(lane->closed, 0);
    end();
}

TEST(a_slab_that_is_none_is_refused)
{
    struct pl_err err;

    begin();
    lane->magic = 1;
    ASSERT_STATUS(worker_lanes_take(&lanes, &err), PLASMON_EVERSION);
    end();
}

TEST_MAIN()
