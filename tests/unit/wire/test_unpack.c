/* Frames whose tasks are read by hand are what protobuf-c makes of them, and what it refuses is refused: as clients write them, with rare fields, and damaged. */
#include "tests/harness/test.h"
#include "tests/unit/wire/random_message.h"
#include "tests/unit/wire/samples.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "wire/wire_int.h"

#define ROUNDS      3000u
#define DAMAGES     20u /* of each frame */
#define TASKS_MAX   6u
#define ARENA_BYTES ((size_t)64 << 20)

struct both {
    struct wire_arena by_hand;
    struct wire_arena by_description;
    uint32_t read, refused;
};

static void both_init(struct both *both)
{
    *both = (struct both){.read = 0};
    ASSERT_OK(wire_arena_init(&both->by_hand, ARENA_BYTES));
    ASSERT_OK(wire_arena_init(&both->by_description, ARENA_BYTES));
}

static void both_finish(struct both *both)
{
    wire_arena_finish(&both->by_hand);
    wire_arena_finish(&both->by_description);
}

static void expect_alike(const ProtobufCMessage *a, const ProtobufCMessage *b)
{
    size_t length = protobuf_c_message_get_packed_size(a);
    uint8_t *x, *y;

    ASSERT_EQ(length, protobuf_c_message_get_packed_size(b));
    x = pl_alloc(length + 1);
    y = pl_alloc(length + 1);
    ASSERT_TRUE(x != NULL && y != NULL);
    (void)protobuf_c_message_pack(a, x); /* as many as it said */
    (void)protobuf_c_message_pack(b, y);
    ASSERT_EQ(memcmp(x, y, length), 0);
    pl_free(x);
    pl_free(y);
}

/* What the checks ask the arena: a NUL in a label would hide the rest of it. */
static void expect_texts(const ProtobufCMessage *a, const ProtobufCMessage *b)
{
    const Plasmon__V1__ClientFrame *x = (const void *)a, *y = (const void *)b;

    for (size_t i = 0; i < x->n_tasks; i++) {
        ASSERT_EQ(wire_arena_text_length(x->tasks[i]->label),
                  wire_arena_text_length(y->tasks[i]->label));
    }
}

static void expect_same(struct both *both, const uint8_t *bytes, size_t length)
{
    ProtobufCMessage *a, *b;

    wire_arena_reset(&both->by_hand);
    wire_arena_reset(&both->by_description);
    a = wire_unpack_client_frame(&both->by_hand, bytes, length);
    b = protobuf_c_message_unpack(&plasmon__v1__client_frame__descriptor,
                                  &both->by_description.allocator, length, bytes);
    ASSERT_EQ(a == NULL, b == NULL);
    if (a == NULL) {
        both->refused++;
        return;
    }
    both->read++;
    expect_alike(a, b);
    expect_texts(a, b);
}

/* Fields that most calls have, of those that are read by hand; a rare one now and then. */
static void usual_fill(struct rng *rng, Plasmon__V1__Task *task)
{
    static const char *const usual[] = {
        "id",      "function",     "args",          "scalars",   "label",           "place",
        "retries", "launch_shape", "time_limit_ms", "submit_ns", "function_retries"};

    for (size_t i = 0; i < PL_COUNT(usual); i++) {
        if (draw(rng) % 3 != 0) {
            message_field_fill(rng,
                               protobuf_c_message_descriptor_get_field_by_name(
                                   &plasmon__v1__task__descriptor, usual[i]),
                               (char *)task);
        }
    }
    for (size_t i = 0; i < task->n_args; i++) {
        if (draw(rng) % 4 != 0) {
            pl_free(task->args[i]->index_step);
            task->args[i]->n_index_step = 0;
            task->args[i]->index_step   = NULL;
        }
    }
}

static void frame_fill(struct rng *rng, Plasmon__V1__ClientFrame *frame)
{
    size_t count = draw(rng) % TASKS_MAX;

    plasmon__v1__client_frame__init(frame);
    if (draw(rng) % 3 == 0) {
        message_fill(rng, &frame->base);
        return;
    }
    message_field_fill(rng,
                       protobuf_c_message_descriptor_get_field_by_name(
                           &plasmon__v1__client_frame__descriptor, "header"),
                       (char *)frame);
    frame->tasks = pl_alloc((count + 1) * sizeof(struct Plasmon__V1__Task *));
    ASSERT_NOT_NULL(frame->tasks);
    for (; frame->n_tasks < count; frame->n_tasks++) {
        Plasmon__V1__Task *task = PL_NEW(Plasmon__V1__Task);

        ASSERT_NOT_NULL(task);
        plasmon__v1__task__init(task);
        frame->tasks[frame->n_tasks] = task;
        usual_fill(rng, task);
    }
}

/* A byte is another one, is too many, or is missing; or the end is. */
static size_t damage(struct rng *rng, uint8_t *bytes, size_t length)
{
    size_t at = draw(rng) % length;

    switch (draw(rng) % 5) {
    case 0:
        return at;
    case 1:
        memmove(bytes + at, bytes + at + 1, length - at - 1);
        return length - 1;
    case 2:
        memmove(bytes + at + 1, bytes + at, length - at);
        bytes[at] = (uint8_t)draw(rng);
        return length + 1;
    case 3:
        bytes[at] ^= (uint8_t)(1u << draw(rng) % 8);
        return length;
    default:
        bytes[at] = (uint8_t)draw(rng);
        return length;
    }
}

static void try_damaged(struct both *both, struct rng *rng, const uint8_t *bytes,
                        size_t length)
{
    uint8_t *copy = pl_alloc(length + DAMAGES);

    ASSERT_NOT_NULL(copy);
    for (uint32_t i = 0; i < DAMAGES && length > 0; i++) {
        size_t now     = length;
        uint32_t count = 1 + (uint32_t)(draw(rng) % 3);

        memcpy(copy, bytes, length);
        while (count-- > 0 && now > 0) {
            now = damage(rng, copy, now);
        }
        expect_same(both, copy, now);
    }
    pl_free(copy);
}

static void try_frame(struct both *both, struct rng *rng,
                      const Plasmon__V1__ClientFrame *frame)
{
    size_t length  = plasmon__v1__client_frame__get_packed_size(frame);
    uint8_t *bytes = pl_alloc(length + 1);

    ASSERT_NOT_NULL(bytes);
    (void)plasmon__v1__client_frame__pack(frame, bytes); /* as many as it said */
    expect_same(both, bytes, length);
    try_damaged(both, rng, bytes, length);
    pl_free(bytes);
}

TEST(random_frames_are_what_protobuf_c_makes_of_them)
{
    struct rng rng = {.state = test_seed() | 1};
    struct both both;

    both_init(&both);
    for (uint32_t i = 0; i < ROUNDS; i++) {
        Plasmon__V1__ClientFrame frame;

        frame_fill(&rng, &frame);
        try_frame(&both, &rng, &frame);
        message_free(&frame.base);
    }
    printf("# %u were read, %u refused\n", both.read, both.refused);
    ASSERT_TRUE(both.read > ROUNDS && both.refused > ROUNDS);
    both_finish(&both);
}

/* Numbers and lengths that are longer than they have to be, fields twice or out of order, lists that are not packed. */
TEST(other_forms_of_the_same_are_read_as_protobuf_c_reads_them)
{
    static const struct {
        uint8_t length;
        uint8_t bytes[24];
    } frames[] = {
        {4, {0x1a, 0x02, 0x08, 0x07}},
        {5, {0x1a, 0x03, 0x08, 0x87, 0x00}},                         /* id in two bytes */
        {5, {0x9a, 0x00, 0x02, 0x08, 0x07}},                         /* the tag in two */
        {9, {0x9a, 0x80, 0x80, 0x80, 0x80, 0x00, 0x02, 0x08, 0x07}}, /* in six */
        {5, {0x1a, 0x82, 0x00, 0x08, 0x07}},                         /* the length in two */
        {9, {0x1a, 0x82, 0x80, 0x80, 0x80, 0x80, 0x00, 0x08, 0x07}}, /* in six */
        {6, {0x1a, 0x04, 0x08, 0x07, 0x08, 0x09}},                   /* id twice */
        {7, {0x1a, 0x05, 0x48, 0x01, 0x08, 0x09, 0x50}},       /* out of order, cut off */
        {6, {0x1a, 0x04, 0x48, 0x01, 0x08, 0x09}},             /* out of order */
        {6, {0x1a, 0x04, 0x22, 0x02, 0x10, 0x05}},             /* an argument */
        {8, {0x1a, 0x06, 0x22, 0x04, 0x10, 0x05, 0x10, 0x06}}, /* its ref twice */
        {9, {0x1a, 0x07, 0x22, 0x05, 0x20, 0x01, 0x20, 0x02, 0x20}}, /* cut off */
        {8, {0x1a, 0x06, 0x22, 0x04, 0x20, 0x01, 0x20, 0x02}},       /* view, not packed */
        {6, {0x1a, 0x04, 0x22, 0x02, 0x22, 0x00}},                   /* an empty view */
        {4, {0x1a, 0x02, 0x2a, 0x00}},                               /* no scalars */
        {4, {0x1a, 0x02, 0x42, 0x00}},                         /* a label of no bytes */
        {7, {0x1a, 0x05, 0x42, 0x03, 'a', 0x00, 'b'}},         /* with a NUL */
        {4, {0x18, 0x07, 0x1a, 0x00}},                         /* tasks as a number */
        {4, {0x1a, 0x00, 0x68, 0x01}},                         /* something behind them */
        {8, {0x1a, 0x00, 0x68, 0x01, 0x1a, 0x02, 0x08, 0x05}}, /* between them */
        {5, {0x1a, 0x03, 0xf8, 0x07, 0x01}}, /* a field that nobody knows */
        {3, {0x1a, 0x05, 0x08}},             /* longer than the frame */
        {2, {0x1a, 0xff}},
        {13,
         {0x1a, 0x0b, 0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01}},
        {13,
         {0x1a, 0x0b, 0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f}},
        {13,
         {0x1a, 0x0b, 0x48, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01}},
    };
    struct both both;

    both_init(&both);
    for (size_t i = 0; i < PL_COUNT(frames); i++) {
        expect_same(&both, frames[i].bytes, frames[i].length);
    }
    both_finish(&both);
}

TEST(without_room_there_is_no_frame)
{
    struct wire_arena made, arena;
    Plasmon__V1__ClientFrame *frame;
    uint8_t *bytes;
    size_t length;

    ASSERT_OK(wire_arena_init(&made, ARENA_BYTES));
    frame  = wire_sample_tasks(&made, 100);
    length = plasmon__v1__client_frame__get_packed_size(frame);
    bytes  = pl_alloc(length);
    ASSERT_NOT_NULL(bytes);
    (void)plasmon__v1__client_frame__pack(frame, bytes); /* as many as it said */
    for (size_t room = 64; room < ARENA_BYTES; room *= 2) {
        ASSERT_OK(wire_arena_init(&arena, room));
        if (wire_unpack_client_frame(&arena, bytes, length) == NULL) {
            ASSERT_TRUE(arena.refused);
        } else {
            ASSERT_TRUE(room > length);
        }
        wire_arena_finish(&arena);
    }
    pl_free(bytes);
    wire_arena_finish(&made);
}

TEST_MAIN()
