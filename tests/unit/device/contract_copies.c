/* Streams that are made for copies: what is put into one comes in its order, wherever a large copy runs. */
#include "tests/unit/device/contract.h"

#define BYTES                \
    (CONTRACT_DEVICE_BYTES / \
     2) /* large enough to run beside its stream (device/cuda/copy.c) */

static void filled(struct contract *c, uint8_t value)
{
    ASSERT_OK(device_fill8(c->other, c->memory, value, BYTES));
    ASSERT_OK(device_stream_sync(c->other, NULL));
}

static void all_are(struct contract *c, struct device_ptr at, uint8_t value)
{
    contract_download(c, c->host, at, BYTES);
    for (size_t i = 0; i < BYTES; i++) {
        ASSERT_EQ(c->host[i], value);
    }
}

TEST(a_large_copy_begins_behind_what_is_in_its_stream_and_ends_before_what_follows)
{
    struct contract c;
    struct device_stream *stream;
    struct device_ptr to;

    contract_open(&c);
    to = device_ptr_add(c.memory, BYTES);
    ASSERT_OK(device_stream_create(c.device, DEVICE_STREAM_COPIES, &stream));
    for (uint64_t turn = 1; turn <= 20; turn++) {
        filled(&c, 1);
        ASSERT_OK(device_wait(stream, &c.words[0], turn));
        ASSERT_OK(device_copy(stream, DEVICE_COPY_DEVICE_TO_DEVICE, to.addr, c.memory.addr,
                              BYTES));
        ASSERT_OK(device_signal(stream, &c.words[1], turn));
        ASSERT_OK(device_fill8(stream, c.memory, 3, BYTES));
        filled(&c, 2); /* while the gate is shut */
        ASSERT_EQ(contract_word_load(&c.words[1]), turn - 1);
        contract_gate_open(&c.words[0], turn);
        ASSERT_OK(device_stream_sync(stream, NULL));
        ASSERT_EQ(contract_word_load(&c.words[1]), turn);
        all_are(&c, to, 2);
        all_are(&c, c.memory, 3);
    }
    device_stream_destroy(stream);
    contract_close(&c);
}

/* Another stream goes on behind the bytes, too, and not just behind what is in the stream itself. */
TEST(who_joins_a_stream_for_copies_comes_behind_its_large_copies)
{
    struct contract c;
    struct device_stream *stream;
    struct device_ptr to;

    contract_open(&c);
    to = device_ptr_add(c.memory, BYTES);
    ASSERT_OK(device_stream_create(c.device, DEVICE_STREAM_COPIES, &stream));
    for (uint64_t turn = 1; turn <= 20; turn++) {
        filled(&c, (uint8_t)turn);
        ASSERT_OK(device_wait(stream, &c.words[0], turn));
        ASSERT_OK(device_copy(stream, DEVICE_COPY_DEVICE_TO_DEVICE, to.addr, c.memory.addr,
                              BYTES));
        ASSERT_OK(device_stream_join(c.other, stream));
        ASSERT_OK(device_fill8(c.other, c.memory, 99, BYTES));
        contract_gate_open(&c.words[0], turn);
        ASSERT_OK(device_stream_sync(c.other, NULL));
        all_are(&c, to, (uint8_t)turn);
        all_are(&c, c.memory, 99);
    }
    device_stream_destroy(stream);
    contract_close(&c);
}
