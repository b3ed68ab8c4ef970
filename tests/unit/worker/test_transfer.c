/* The host route's ring, both halves on CPU devices; and what is counted where. */
#include <stdlib.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/fault.h"
#include "tests/harness/test.h"
#include "transfer/transfer.h"

#define SLOT ((uint64_t)STORE_STAGE_SLOT_BYTES)

struct side {
    struct device *device;
    struct device_stream *stream;
    struct device_ptr base;
    uint64_t bytes;
    uint8_t *host;
};

struct pair {
    struct side from;
    struct side to;
    struct transfer_ring ring;
    struct transfer_counters counters;
};

static void side_open(struct side *side, uint32_t ordinal, uint64_t bytes)
{
    struct device_config config = {.bytes_max = UINT64_C(1) << 30};
    struct pl_err err;
    int fd;

    ASSERT_OK(device_open(DEVICE_CPU, ordinal, &config, &side->device, &err));
    side->bytes = pl_round_up(bytes, device_get_info(side->device)->chunk_granularity);
    ASSERT_OK(device_stream_create(side->device, 0, &side->stream));
    ASSERT_OK(device_range_reserve(side->device, side->bytes, &side->base));
    ASSERT_OK(device_chunk_create(side->device, side->bytes, &fd));
    ASSERT_OK(device_chunk_map(side->device, fd, side->bytes, ordinal, true, side->base));
    side->host = device_ptr_host(side->device, side->base);
    ASSERT_NOT_NULL(side->host);
}

static void side_close(struct side *side)
{
    device_stream_destroy(side->stream);
    device_chunk_unmap(side->device, side->base, side->bytes);
    device_range_release(side->device, side->base, side->bytes);
    device_close(side->device);
}

static void *zero_pages(uint64_t bytes)
{
    void *ptr =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    ASSERT_TRUE(ptr != MAP_FAILED);
    return ptr;
}

/* Some content that differs from place to place and from `seed` to seed. */
static void pattern_fill(uint8_t *bytes, uint64_t count, uint64_t seed)
{
    for (uint64_t i = 0; i < count; i += 4093) {
        bytes[i] = (uint8_t)((i * 2654435761u + seed) >> 7);
    }
}

static void pattern_check(const uint8_t *bytes, uint64_t count, uint64_t seed)
{
    for (uint64_t i = 0; i < count; i += 4093) {
        ASSERT_EQ(bytes[i], (uint8_t)((i * 2654435761u + seed) >> 7));
    }
}

static void pair_open(struct pair *pair, uint64_t bytes)
{
    memset(pair, 0, sizeof(*pair));
    side_open(&pair->from, 0, bytes);
    side_open(&pair->to, 1, bytes);
    pair->ring.timeline = zero_pages(sizeof(struct store_timeline));
    pair->ring.slab     = zero_pages(STORE_STAGE_SLOTS * SLOT);
    store_timeline_init(pair->ring.timeline, 1);
    for (uint32_t i = 0; i < 2; i++) {
        struct device *device = i == 0 ? pair->from.device : pair->to.device;

        ASSERT_OK(device_host_register(device, pair->ring.timeline,
                                       sizeof(struct store_timeline)));
        ASSERT_OK(device_host_register(device, pair->ring.slab, STORE_STAGE_SLOTS * SLOT));
    }
}

static void pair_close(struct pair *pair)
{
    side_close(&pair->from);
    side_close(&pair->to);
}

static void send_half(struct pair *pair, uint64_t first, uint64_t bytes, bool with_bytes)
{
    ASSERT_OK(transfer_stage_send(pair->from.stream, &pair->ring, first, pair->from.base,
                                  bytes, with_bytes));
}

static void recv_half(struct pair *pair, uint64_t first, uint64_t bytes, bool with_bytes)
{
    ASSERT_OK(transfer_stage_recv(pair->to.stream, &pair->ring, first, pair->to.base, bytes,
                                  with_bytes, &pair->counters));
}

static void sync_both(struct pair *pair)
{
    struct pl_err err;

    ASSERT_OK(device_stream_sync(pair->from.stream, &err));
    ASSERT_OK(device_stream_sync(pair->to.stream, &err));
}

TEST(small_transfer_arrives_whichever_half_comes_first)
{
    struct pair pair;

    pair_open(&pair, 1000);
    pattern_fill(pair.from.host, 1000, 1);
    send_half(&pair, 0, 1000, true);
    recv_half(&pair, 0, 1000, true);
    sync_both(&pair);
    ASSERT_EQ(memcmp(pair.from.host, pair.to.host, 1000), 0);

    memset(pair.from.host, 7, 1000);
    recv_half(&pair, 1, 1000, true);
    send_half(&pair, 1, 1000, true);
    sync_both(&pair);
    ASSERT_EQ(memcmp(pair.from.host, pair.to.host, 1000), 0);
    ASSERT_EQ(pair.counters.copies[TRANSFER_HOST], 2);
    ASSERT_EQ(pair.counters.bytes[TRANSFER_HOST], 2000);
    pair_close(&pair);
}

TEST(more_chunks_than_slots_go_through_the_ring)
{
    uint64_t bytes = (STORE_STAGE_SLOTS + 3) * SLOT + 12345;
    struct pair pair;

    pair_open(&pair, bytes);
    pattern_fill(pair.from.host, bytes, 2);
    send_half(&pair, 5, bytes, true); /* a ring that is in use: 5 chunks went before */
    pair.ring.timeline->stage_taken.value = 5;
    device_word_wake(&pair.ring.timeline->stage_taken.value);
    recv_half(&pair, 5, bytes, true);
    sync_both(&pair);
    pattern_check(pair.to.host, bytes, 2);
    ASSERT_EQ(pair.ring.timeline->stage_taken.value, 5 + STORE_STAGE_SLOTS + 4);
    pair_close(&pair);
}

TEST(half_that_failed_moves_the_words_only)
{
    struct pair pair;

    pair_open(&pair, 2 * SLOT);
    pattern_fill(pair.from.host, 2 * SLOT, 3);
    memset(pair.to.host, 9, 2 * SLOT);
    send_half(&pair, 0, 2 * SLOT, true);
    recv_half(&pair, 0, 2 * SLOT, false); /* found no memory */
    send_half(&pair, 2, SLOT, false);     /* its source was gone */
    recv_half(&pair, 2, SLOT, true);
    sync_both(&pair);
    ASSERT_EQ(pair.ring.timeline->stage_taken.value, 3);
    ASSERT_EQ(pair.to.host[SLOT], 9);
    ASSERT_EQ(pair.counters.copies[TRANSFER_HOST], 1);

    send_half(&pair, 3, SLOT, true); /* and the ring works on */
    recv_half(&pair, 3, SLOT, true);
    sync_both(&pair);
    pattern_check(pair.to.host, SLOT, 3);
    pair_close(&pair);
}

/* The receiver dies after it took `taken` chunks, and its half comes again; for every possible `taken`. */
TEST(receiver_goes_on_where_it_died)
{
    uint64_t bytes = 4 * SLOT;

    for (uint64_t taken = 0; taken <= 4; taken++) {
        struct pair pair;

        pair_open(&pair, bytes);
        pattern_fill(pair.from.host, bytes, 4);
        send_half(&pair, 0, bytes, true);
        if (taken != 0) {
            recv_half(&pair, 0, taken * SLOT, true); /* as far as it came */
        }
        sync_both(&pair);
        /* Slots that were taken are somebody else's by now. */
        memset(pair.ring.slab, 0xee, taken * SLOT);
        recv_half(&pair, 0, bytes, true);
        sync_both(&pair);
        pattern_check(pair.to.host, bytes, 4);
        ASSERT_EQ(pair.ring.timeline->stage_taken.value, 4);
        pair_close(&pair);
    }
}

/*
 * The sender dies after it sent `sent` chunks of which the receiver took some, and slots of those
 * are in use again.
 */
TEST(sender_goes_on_where_it_died)
{
    uint64_t bytes = 4 * SLOT;

    for (uint64_t sent = 0; sent <= 4; sent++) {
        struct pair pair;

        pair_open(&pair, bytes);
        pattern_fill(pair.from.host, bytes, 5);
        if (sent != 0) {
            send_half(&pair, 0, sent * SLOT, true);
        }
        recv_half(&pair, 0, bytes, true);
        if (sent == 4) {
            sync_both(&pair);
            memset(pair.ring.slab, 0xee, 4 * SLOT);
        }
        send_half(&pair, 0, bytes, true);
        sync_both(&pair);
        pattern_check(pair.to.host, bytes, 5);
        ASSERT_TRUE(sent != 4 || pair.ring.slab[0] == 0xee); /* not written again */
        pair_close(&pair);
    }
}

TEST(copies_are_counted_by_where_they_came_from)
{
    struct pair pair;
    struct pl_box frame = {.ndim = 1, .start = {0}, .count = {256}};
    struct pl_box box   = {.ndim = 1, .start = {16}, .count = {32}};

    pair_open(&pair, 4096);
    pattern_fill(pair.from.host, 4096, 6);
    ASSERT_OK(transfer_copy(pair.from.stream, &box, 4, device_ptr_add(pair.from.base, 2048),
                            &frame, pair.from.base, &frame, false, &pair.counters));
    ASSERT_OK(transfer_copy(pair.from.stream, &box, 4, device_ptr_add(pair.from.base, 1024),
                            &frame, pair.from.base, &frame, true, &pair.counters));
    sync_both(&pair);
    ASSERT_EQ(memcmp(pair.from.host + 2048 + 64, pair.from.host + 64, 128), 0);
    ASSERT_EQ(pair.counters.copies[TRANSFER_LOCAL], 1);
    ASSERT_EQ(pair.counters.bytes[TRANSFER_LOCAL], 128);
    ASSERT_EQ(pair.counters.bytes[TRANSFER_PEER], 128);
    pair_close(&pair);
}

TEST(copy_that_fails_is_not_counted)
{
    struct pair pair;
    struct pl_box frame = {.ndim = 1, .start = {0}, .count = {256}};

    pair_open(&pair, 4096);
    pl_fault_arm("transfer.copy", 0);
    ASSERT_STATUS(transfer_copy(pair.from.stream, &frame, 4,
                                device_ptr_add(pair.from.base, 2048), &frame,
                                pair.from.base, &frame, false, &pair.counters),
                  PLASMON_EDEVICE);
    ASSERT_TRUE(pl_fault_disarm());
    ASSERT_EQ(pair.counters.copies[TRANSFER_LOCAL], 0);
    pair_close(&pair);
}

TEST_MAIN()
