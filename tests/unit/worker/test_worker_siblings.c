/*
 * Three devices of one host, and the lives of their workers: the head gave the host up, and each of
 * them hears of it by itself. Processes are made up; tables, words, rings and what goes through
 * them are not.
 */
#include <string.h>
#include <sys/mman.h>

#include "base/fault.h"
#include "device/device.h"
#include "tests/harness/test.h"
#include "transfer/transfer.h"
#include "worker/siblings.h"

enum { A, B, C, DEVICES };
enum { BYTES = 1000, OLD = 1, NEW = 2 };
#define EPOCH UINT64_C(7)

static struct store_table *tables[DEVICES];
static struct store_timeline *timelines[DEVICES];
static struct worker_siblings workers[DEVICES];

static void *zero_pages(uint64_t bytes)
{
    void *ptr =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    ASSERT_TRUE(ptr != MAP_FAILED);
    return ptr;
}

static void begin(void)
{
    for (uint32_t i = 0; i < DEVICES; i++) {
        tables[i]    = zero_pages(sizeof(struct store_table));
        timelines[i] = zero_pages(sizeof(struct store_timeline));
        store_table_init(tables[i], i, DEVICE_CPU, i, 1 << 20);
        store_timeline_init(timelines[i], i);
    }
}

static void end(void)
{
    for (uint32_t i = 0; i < DEVICES; i++) {
        (void)munmap(tables[i], sizeof(struct store_table));
        (void)munmap(timelines[i], sizeof(struct store_timeline));
    }
}

/*
 * A worker begins, and the head welcomes it. A host that joins anew has another session, and its
 * devices other numbers.
 */
static void welcomed(uint32_t which, uint64_t epoch, uint64_t session, uint32_t device)
{
    workers[which] = (struct worker_siblings){.tables       = tables,
                                              .timelines    = timelines,
                                              .count        = DEVICES,
                                              .own          = which,
                                              .epoch        = epoch,
                                              .node_session = session};
    if (tables[which]->device != 0 &&
        (tables[which]->device != device + 1 || tables[which]->epoch != epoch)) {
        worker_siblings_forget(&workers[which]);
    }
    worker_siblings_announce(&workers[which], device);
}

static void life(uint32_t which, uint32_t number)
{
    welcomed(which, EPOCH, 100 * number, 10 * number + which);
}

static bool ring_begins(uint32_t which)
{
    return worker_siblings_ring_begin(&workers[which]);
}

static uint64_t number(uint32_t of, uint32_t by)
{
    return worker_siblings_number(&workers[by], of);
}

static void use(uint32_t which)
{
    timelines[which]->stage_ready[3].value = 20;
    timelines[which]->stage_taken.value    = 19;
}

TEST(on_a_new_host_a_ring_begins_at_once)
{
    begin();
    life(B, 1);
    ASSERT_TRUE(ring_begins(B));
    life(A, 1);
    ASSERT_EQ(number(B, A), 10 + B + 1);
    ASSERT_EQ(number(A, B), 0); /* its own has not begun */
    ASSERT_TRUE(ring_begins(A));
    ASSERT_EQ(number(A, B), 10 + A + 1);
    ASSERT_EQ(number(C, B), 0);
    end();
}

TEST(who_is_restarted_finds_its_ring_as_it_was)
{
    begin();
    life(A, 1);
    life(B, 1);
    ASSERT_TRUE(ring_begins(B));
    use(B);
    life(B, 1);
    ASSERT_TRUE(ring_begins(B));
    ASSERT_EQ(timelines[B]->stage_ready[3].value, 20);
    ASSERT_EQ(timelines[B]->stage_taken.value, 19);
    end();
}

TEST(in_another_life_a_ring_begins_when_all_have_heard)
{
    begin();
    for (uint32_t i = 0; i < DEVICES; i++) {
        life(i, 1);
        ASSERT_TRUE(ring_begins(i));
        use(i);
    }
    life(B, 2);
    ASSERT_TRUE(!ring_begins(B));
    life(C, 2);
    ASSERT_TRUE(!ring_begins(B) && !ring_begins(C));
    ASSERT_EQ(number(B, C), 0);
    ASSERT_EQ(number(B, A), 0); /* nor does the one of before take it for what it was */
    life(C, 2);                 /* it dies while it waits */
    ASSERT_TRUE(!ring_begins(C));
    life(A, 2);
    ASSERT_EQ(number(B, C), 0);
    ASSERT_TRUE(ring_begins(B));
    ASSERT_EQ(timelines[B]->stage_ready[3].value, 0);
    ASSERT_EQ(timelines[B]->stage_taken.value, 0);
    ASSERT_EQ(number(B, C), 20 + B + 1);
    ASSERT_TRUE(ring_begins(A) && ring_begins(C));
    use(B);
    ASSERT_TRUE(ring_begins(B)); /* once */
    ASSERT_EQ(timelines[B]->stage_taken.value, 19);
    end();
}

TEST(another_head_begins_another_life)
{
    begin();
    for (uint32_t i = 0; i < DEVICES; i++) {
        life(i, 1);
        ASSERT_TRUE(ring_begins(i));
    }
    welcomed(A, EPOCH + 1, 100, 10 + A);
    ASSERT_TRUE(!ring_begins(A));
    welcomed(B, EPOCH + 1, 100, 10 + B);
    welcomed(C, EPOCH + 1, 100, 10 + C);
    ASSERT_TRUE(ring_begins(A));
    end();
}

TEST(who_will_not_come_is_not_waited_for)
{
    begin();
    for (uint32_t i = 0; i < DEVICES; i++) {
        life(i, 1);
        ASSERT_TRUE(ring_begins(i));
    }
    life(B, 2);
    life(C, 2);
    ASSERT_TRUE(!ring_begins(B));
    store_timeline_release(timelines[A]);
    ASSERT_TRUE(ring_begins(B));
    ASSERT_TRUE(ring_begins(C));
    end();
}

/* -------------------------------------------------------------------------------- bytes */

struct side {
    struct device *device;
    struct device_stream *stream;
    struct device_ptr base;
    uint64_t bytes;
    uint8_t *host;
};

static void side_open(struct side *side, uint32_t ordinal, int content)
{
    struct device_config config = {.bytes_max = UINT64_C(1) << 30};
    struct pl_err err;
    int fd;

    ASSERT_OK(device_open(DEVICE_CPU, ordinal, &config, &side->device, &err));
    side->bytes = device_get_info(side->device)->chunk_granularity;
    ASSERT_OK(device_stream_create(side->device, 0, &side->stream));
    ASSERT_OK(device_range_reserve(side->device, side->bytes, &side->base));
    ASSERT_OK(device_chunk_create(side->device, side->bytes, &fd));
    ASSERT_OK(device_chunk_map(side->device, fd, side->bytes, ordinal, true, side->base));
    side->host = device_ptr_host(side->device, side->base);
    ASSERT_NOT_NULL(side->host);
    memset(side->host, content, BYTES);
}

static void side_close(struct side *side)
{
    device_stream_destroy(side->stream);
    device_chunk_unmap(side->device, side->base, side->bytes);
    device_range_release(side->device, side->base, side->bytes);
    device_close(side->device);
}

static void sync(struct side *side)
{
    struct pl_err err;

    ASSERT_OK(device_stream_sync(side->stream, &err));
}

/*
 * A has enqueued to send its first chunk to B, behind a kernel that takes long, when the host is
 * given up. B and C hear of that and join anew, and C is to send the first chunk to B. Then A's
 * kernel ends, and after that A hears, too. @return what B gets
 */
static int what_comes(void)
{
    struct store_word *kernel = zero_pages(4096);
    struct transfer_counters counters;
    struct transfer_ring ring;
    struct side a, b, c;
    int got;

    begin();
    memset(&counters, 0, sizeof(counters));
    side_open(&a, A, OLD);
    side_open(&b, B, 0);
    side_open(&c, C, NEW);
    ring = (struct transfer_ring){
        .timeline = timelines[B],
        .slab     = zero_pages((uint64_t)STORE_STAGE_SLOTS * STORE_STAGE_SLOT_BYTES)};
    for (uint32_t i = 0; i < DEVICES; i++) {
        life(i, 1);
        ASSERT_TRUE(ring_begins(i));
    }
    ASSERT_OK(device_wait(a.stream, &kernel->value, 1));
    ASSERT_OK(transfer_stage_send(a.stream, &ring, 0, a.base, BYTES, true));

    life(B, 2);
    life(C, 2);
    (void)ring_begins(B);
    (void)ring_begins(C);
    kernel->value = 1;
    device_word_wake(&kernel->value);
    sync(&a);
    life(A, 2);
    for (uint32_t i = 0; i < DEVICES; i++) {
        ASSERT_TRUE(ring_begins(i));
    }
    ASSERT_EQ(number(B, C), 20 + B + 1);
    ASSERT_OK(transfer_stage_send(c.stream, &ring, 0, c.base, BYTES, true));
    ASSERT_OK(transfer_stage_recv(b.stream, &ring, 0, b.base, BYTES, true, &counters));
    sync(&c);
    sync(&b);
    got = b.host[0];
    for (uint32_t i = 0; i < BYTES; i++) {
        ASSERT_EQ(b.host[i], got);
    }
    side_close(&a);
    side_close(&b);
    side_close(&c);
    (void)munmap(ring.slab, (uint64_t)STORE_STAGE_SLOTS * STORE_STAGE_SLOT_BYTES);
    (void)munmap(kernel, 4096);
    end();
    return got;
}

TEST(what_was_to_be_sent_in_a_life_before_is_not_taken_for_what_comes_in_this_one)
{
    ASSERT_EQ(what_comes(), NEW);
}

TEST(a_ring_that_begins_at_once_takes_old_bytes_for_new_ones)
{
#ifndef PL_FAULTS
    test_skip("this build has no seeded bugs (PLASMON_FAULTS is off)");
#endif
    pl_bug_arm("worker.ring_at_once");
    ASSERT_EQ(what_comes(), OLD);
    pl_bug_arm(NULL);
}

TEST_MAIN()
