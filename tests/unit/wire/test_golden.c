/*
 * Bytes that once crossed the wire must still decode, and what we send today must still be those
 * bytes. To pin a sample that is new: WIRE_GOLDEN_WRITE=1 test_wire_golden --no-fork, and look at
 * what git says changed.
 */
#include "tests/harness/test.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "tests/unit/wire/samples.h"

#define FILE_BYTES_MAX 4096

static size_t golden_read(const char *name, uint8_t *out)
{
    char path[512];
    size_t length;
    FILE *file;

    (void)snprintf(path, sizeof(path), "%s/%s.bin", WIRE_GOLDEN_DIR, name);
    file = fopen(path, "rb");
    if (file == NULL) {
        test_fail(__FILE__, __LINE__, "cannot open %s", path);
    }
    length = fread(out, 1, FILE_BYTES_MAX, file);
    (void)fclose(file);
    return length;
}

static void golden_write(const char *name, const uint8_t *bytes, size_t length)
{
    char path[512];
    FILE *file;

    (void)snprintf(path, sizeof(path), "%s/%s.bin", WIRE_GOLDEN_DIR, name);
    file = fopen(path, "wb");
    ASSERT_NOT_NULL(file);
    ASSERT_EQ(fwrite(bytes, 1, length, file), length);
    ASSERT_EQ(fclose(file), 0);
}

static uint8_t *create(size_t length)
{
    return pl_alloc(length);
}

TEST(samples_encode_to_the_golden_bytes)
{
    for (size_t i = 0; i < WIRE_SAMPLE_COUNT; i++) {
        const struct wire_sample *sample = &wire_samples()[i];
        uint8_t golden[FILE_BYTES_MAX];
        size_t length, golden_length;
        uint8_t *bytes;

        ASSERT_OK(wire_encode(sample->message, create, &bytes, &length));
        if (getenv("WIRE_GOLDEN_WRITE") != NULL) {
            golden_write(sample->name, bytes, length);
        }

        golden_length = golden_read(sample->name, golden);
        if (golden_length != length || memcmp(golden, bytes, length) != 0) {
            test_fail(__FILE__, __LINE__, "%s is not what it was: %zu bytes, golden %zu",
                      sample->name, length, golden_length);
        }
        pl_free(bytes);
    }
}

TEST(golden_bytes_decode_and_encode_again_to_themselves)
{
    struct wire_arena arena;

    ASSERT_OK(wire_arena_init(&arena, WIRE_ARENA_BYTES_MAX));
    for (size_t i = 0; i < WIRE_SAMPLE_COUNT; i++) {
        const struct wire_sample *sample = &wire_samples()[i];
        uint8_t golden[FILE_BYTES_MAX];
        size_t golden_length = golden_read(sample->name, golden);
        ProtobufCMessage *message;
        struct pl_err err;
        uint8_t *bytes;
        size_t length;

        wire_arena_reset(&arena);
        if (sample->decode(&arena, golden, golden_length, &message, &err) != PLASMON_OK) {
            test_fail(__FILE__, __LINE__, "%s: %s", sample->name, err.text);
        }
        ASSERT_OK(wire_encode(message, create, &bytes, &length));
        ASSERT_EQ(length, golden_length);
        ASSERT_EQ(memcmp(bytes, golden, length), 0);
        pl_free(bytes);
    }
    wire_arena_finish(&arena);
}

TEST(a_decoded_sample_has_the_values_that_were_set)
{
    uint8_t golden[FILE_BYTES_MAX];
    size_t length = golden_read("client_frame", golden);
    Plasmon__V1__ClientFrame *frame;
    const Plasmon__V1__Task *task;
    struct wire_arena arena;
    struct pl_err err;

    ASSERT_OK(wire_arena_init(&arena, WIRE_ARENA_BYTES_MAX));
    ASSERT_OK(wire_decode_client_frame(&arena, golden, length, &frame, &err));
    ASSERT_EQ(frame->header->seq, 3);
    ASSERT_EQ(frame->n_tasks, 3);
    task = frame->tasks[0];
    ASSERT_EQ(task->function, 0xdeadbeef);
    ASSERT_STR(task->label, "gemm \xc3\xa9");
    ASSERT_EQ(task->args[0]->n_view, 6);
    ASSERT_EQ(task->args[0]->view[1], 32);
    ASSERT_EQ(task->scalars[1], 0x3ff0000000000000);
    ASSERT_EQ(frame->tasks[1]->data.len, 8);
    ASSERT_EQ(frame->release[1]->count, 1000);
    ASSERT_STR(frame->lookup[0]->name, "model");
    ASSERT_EQ(frame->lookup[0]->task, 308);
    ASSERT_EQ(frame->bye, 1);
    wire_arena_finish(&arena);
}

TEST_MAIN()
