/* Chunks, ranges and mappings, within one process. */
#include "tests/unit/device/contract.h"

#include "base/fault.h"
#include "base/fd.h"

#include <string.h>
#include <unistd.h>

#define BYTES 5000u

static void pattern_upload(struct contract *c, struct device_ptr at, uint64_t seed)
{
    uint8_t bytes[BYTES];

    for (size_t i = 0; i < BYTES; i++) {
        bytes[i] = contract_pattern(seed, i);
    }
    contract_upload(c, at, bytes, BYTES);
}

static void pattern_check(struct contract *c, struct device_ptr at, uint64_t seed)
{
    uint8_t bytes[BYTES];

    contract_download(c, bytes, at, BYTES);
    for (size_t i = 0; i < BYTES; i++) {
        ASSERT_EQ(bytes[i], contract_pattern(seed, i));
    }
}

TEST(a_chunk_is_the_same_memory_at_two_addresses)
{
    struct device_ptr again;
    struct contract c;

    contract_open(&c);
    again = device_ptr_add(c.range, c.chunk_bytes);
    ASSERT_OK(device_chunk_map(c.device, c.chunk, c.chunk_bytes, 0, false, again));
    pattern_upload(&c, c.memory, 1);
    pattern_check(&c, again, 1);
    device_chunk_unmap(c.device, again, c.chunk_bytes);
    contract_close(&c);
}

TEST(a_chunk_keeps_its_bytes_while_only_its_descriptor_is_held)
{
    struct device_ptr elsewhere;
    struct contract c;

    contract_open(&c);
    elsewhere = device_ptr_add(c.range, c.chunk_bytes);
    pattern_upload(&c, c.memory, 2);
    device_chunk_unmap(c.device, c.memory, c.chunk_bytes);
    ASSERT_OK(device_chunk_map(c.device, c.chunk, c.chunk_bytes, 0, true, elsewhere));
    pattern_check(&c, elsewhere, 2);

    /* And the address it left takes other memory. */
    {
        int fd;

        ASSERT_OK(device_chunk_create(c.device, c.chunk_bytes, &fd));
        ASSERT_OK(device_chunk_map(c.device, fd, c.chunk_bytes, 0, true, c.memory));
        pl_fd_close(&fd); /* the mapping alone keeps it now */
        pattern_upload(&c, c.memory, 3);
        pattern_check(&c, elsewhere, 2);
        pattern_check(&c, c.memory, 3);
    }
    device_chunk_unmap(c.device, elsewhere, c.chunk_bytes);
    contract_close(&c);
}

/* -------------------------------------------------------------- two chunks side by side */

/*
 * As chunks of an arena lie: what begins in one and ends in the next is one piece of memory. Ends
 * with the border, in c.range.
 */
static struct device_ptr border_open(struct contract *c)
{
    struct device_ptr border;
    int fd;

    contract_open(c);
    border = device_ptr_add(c->range, c->chunk_bytes);
    ASSERT_OK(device_chunk_create(c->device, c->chunk_bytes, &fd));
    ASSERT_OK(device_chunk_map(c->device, fd, c->chunk_bytes, 0, true, border));
    pl_fd_close(&fd);
    return border;
}

static void border_close(struct contract *c, struct device_ptr border)
{
    device_chunk_unmap(c->device, border, c->chunk_bytes);
    contract_close(c);
}

static struct device_ptr before(struct device_ptr ptr, uint64_t bytes)
{
    return (struct device_ptr){.addr = ptr.addr - bytes};
}

TEST(copies_and_fills_cross_from_one_chunk_to_the_next)
{
    uint8_t bytes[BYTES];
    struct contract c;
    struct device_ptr border = border_open(&c);
    struct device_ptr across = before(border, BYTES / 2);

    pattern_upload(&c, across, 7); /* from the host */
    pattern_check(&c, across, 7);
    ASSERT_OK(device_copy(c.stream, DEVICE_COPY_DEVICE_TO_DEVICE, c.memory.addr,
                          across.addr, BYTES));
    ASSERT_OK(device_stream_sync(c.stream, NULL));
    pattern_check(&c, c.memory, 7);
    pattern_upload(&c, c.memory, 8);
    ASSERT_OK(device_copy(c.stream, DEVICE_COPY_DEVICE_TO_DEVICE, across.addr,
                          c.memory.addr, BYTES));
    ASSERT_OK(device_stream_sync(c.stream, NULL));
    pattern_check(&c, across, 8);

    ASSERT_OK(device_fill8(c.stream, across, 0x5a, BYTES));
    ASSERT_OK(device_stream_sync(c.stream, NULL));
    contract_download(&c, bytes, across, BYTES);
    for (size_t i = 0; i < BYTES; i++) {
        ASSERT_EQ(bytes[i], 0x5a);
    }
    border_close(&c, border);
}

/* Planes, rows and columns, in both directions; what lies beside the box stays. */
static void box_crosses(struct contract *c, struct device_ptr border,
                        const struct pl_box *frame, const struct pl_box *box)
{
    uint64_t bytes           = (uint64_t)pl_box_elements(frame);
    struct device_ptr across = before(border, bytes / 2 / 256 * 256);
    uint8_t *from            = c->host + CONTRACT_HOST_BYTES / 2;
    uint8_t *got             = from + bytes;
    uint8_t *want            = got + bytes;

    ASSERT_TRUE(3 * bytes <= CONTRACT_HOST_BYTES / 2);
    for (unsigned out = 0; out < 2; out++) {
        struct device_ptr src = out == 0 ? across : c->memory;
        struct device_ptr dst = out == 0 ? c->memory : across;

        for (size_t i = 0; i < bytes; i++) {
            from[i] = contract_pattern(21 + out, i);
        }
        memset(want, 0x11, bytes);
        pl_box_copy_host(box, want, frame, from, frame, 1);
        contract_upload(c, src, from, bytes);
        ASSERT_OK(device_fill8(c->stream, dst, 0x11, bytes));
        ASSERT_OK(device_copy_box(c->stream, box, 1, dst, frame, src, frame));
        ASSERT_OK(device_stream_sync(c->stream, NULL));
        contract_download(c, got, dst, bytes);
        for (size_t i = 0; i < bytes; i++) {
            if (got[i] != want[i]) {
                test_fail(__FILE__, __LINE__,
                          "%u dimensions, %s the border: byte %zu of %llu is %u and should "
                          "be %u",
                          frame->ndim, out == 0 ? "from across" : "to across", i,
                          (unsigned long long)bytes, got[i], want[i]);
            }
        }
    }
}

TEST(boxes_cross_from_one_chunk_to_the_next)
{
    static const struct pl_box plane = {.ndim = 2, .count = {200, 1000}};
    static const struct pl_box space = {.ndim = 3, .count = {20, 50, 200}};
    static const struct pl_box rows  = {.ndim = 2, .start = {3, 0}, .count = {190, 1000}};
    static const struct pl_box part  = {.ndim = 2, .start = {3, 10}, .count = {190, 900}};
    static const struct pl_box cube  = {
         .ndim = 3, .start = {1, 2, 3}, .count = {18, 40, 150}};
    struct contract c;
    struct device_ptr border = border_open(&c);

    box_crosses(&c, border, &plane, &rows);
    box_crosses(&c, border, &plane, &part);
    box_crosses(&c, border, &space, &cube);
    border_close(&c, border);
}

TEST(sizes_that_do_not_fit_are_refused)
{
    uint64_t unit;
    struct device_ptr base;
    struct device_ptr second;
    int fd;
    struct contract c;

    contract_open(&c);
    test_expect_log(); /* a GPU's driver says it too */
    unit   = device_get_info(c.device)->chunk_granularity;
    second = device_ptr_add(c.range, c.chunk_bytes);
    ASSERT_STATUS(device_chunk_create(c.device, 0, &fd), PLASMON_EINVAL);
    ASSERT_STATUS(device_chunk_create(c.device, unit + 1, &fd), PLASMON_EINVAL);
    ASSERT_STATUS(device_range_reserve(c.device, 0, &base), PLASMON_EINVAL);
    ASSERT_STATUS(device_range_reserve(c.device, unit / 2, &base), PLASMON_EINVAL);
    ASSERT_STATUS(device_chunk_map(c.device, c.chunk, c.chunk_bytes, 0, true,
                                   device_ptr_add(second, 1)),
                  PLASMON_EINVAL);
    ASSERT_STATUS(device_chunk_map(c.device, -1, c.chunk_bytes, 0, true, second),
                  PLASMON_EINVAL);

    /* A chunk smaller than the mapping: nothing may lie behind its end. */
    ASSERT_OK(device_chunk_create(c.device, unit, &fd));
    if (c.chunk_bytes > unit) {
        ASSERT_TRUE(device_chunk_map(c.device, fd, c.chunk_bytes, 0, true, second) !=
                    PLASMON_OK);
    }
    ASSERT_OK(device_chunk_map(c.device, fd, unit, 0, true, second));
    device_chunk_unmap(c.device, second, unit);
    pl_fd_close(&fd);
    contract_close(&c);
}

TEST(what_is_no_chunk_is_not_mapped)
{
    struct contract c;
    int fds[2];

    contract_open(&c);
    test_expect_log();
    ASSERT_EQ(pipe(fds), 0);
    ASSERT_TRUE(device_chunk_map(c.device, fds[0], c.chunk_bytes, 0, true,
                                 device_ptr_add(c.range, c.chunk_bytes)) != PLASMON_OK);
    close(fds[0]);
    close(fds[1]);
    contract_close(&c);
}

TEST(a_full_device_says_so)
{
    struct contract c;
    int fd = -1;

    contract_open(&c);
    pl_fault_arm("device.chunk", 0);
    ASSERT_STATUS(device_chunk_create(c.device, c.chunk_bytes, &fd), PLASMON_EDEVMEM);
    ASSERT_TRUE(pl_fault_disarm());
    ASSERT_EQ(fd, -1);
    ASSERT_OK(device_chunk_create(c.device, c.chunk_bytes, &fd));
    pl_fd_close(&fd);

    /* And for real: all there is, though some is taken. */
    {
        const struct device_info *info = device_get_info(c.device);

        ASSERT_STATUS(
            device_chunk_create(
                c.device, pl_round_up(info->bytes_total, info->chunk_granularity), &fd),
            PLASMON_EDEVMEM);
    }
    contract_close(&c);
}

TEST(a_device_reaches_itself_and_nothing_that_does_not_exist)
{
    struct contract c;

    contract_open(&c);
    ASSERT_TRUE(device_can_peer(c.device, 0));
    ASSERT_TRUE(!device_can_peer(c.device, 100000));
    contract_close(&c);
}

TEST(signals_and_waits_reach_every_word_of_registered_memory)
{
    struct contract c;

    contract_open(&c);
    for (unsigned i = 0; i < CONTRACT_WORDS; i++) {
        ASSERT_OK(device_signal(c.stream, &c.words[i], 0x1000000000ull + i));
        ASSERT_OK(device_wait(c.other, &c.words[i], 0x1000000000ull + i));
    }
    ASSERT_OK(device_stream_sync(c.other, NULL));
    for (unsigned i = 0; i < CONTRACT_WORDS; i++) {
        ASSERT_EQ(contract_word_load(&c.words[i]), 0x1000000000ull + i);
    }
    contract_close(&c);
}
