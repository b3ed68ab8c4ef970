/* Chunks, ranges and mappings, within one process. */
#include "tests/unit/device/contract.h"

#include "base/fault.h"
#include "base/fd.h"

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
