/*
 * Frames whose tasks or launches are read by hand are what protobuf-c makes of them, and what it
 * refuses is refused: as they are written, with rare fields, and damaged.
 */
#include "tests/harness/test.h"
#include "tests/unit/wire/random_message.h"
#include "tests/unit/wire/samples.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "wire/wire_int.h"

#define ROUNDS      3000u
#define DAMAGES     20u /* of each frame */
#define ITEMS_MAX   6u
#define ARENA_BYTES ((size_t)64 << 20)

/* A frame, and its items that are read by hand. */
struct kind {
    const ProtobufCMessageDescriptor *frame, *item;
    const char *list;
    const char *usual[24]; /* fields of an item that are read by hand */
    ProtobufCMessage *(*unpack)(struct wire_arena *arena, const uint8_t *bytes,
                                size_t length);
};

static const struct kind tasks = {
    .frame  = &plasmon__v1__client_frame__descriptor,
    .item   = &plasmon__v1__task__descriptor,
    .list   = "tasks",
    .usual  = {"id", "function", "args", "scalars", "label", "place", "retries",
               "launch_shape", "time_limit_ms", "submit_ns", "function_retries"},
    .unpack = wire_unpack_client_frame};
static const struct kind launches = {
    .frame  = &plasmon__v1__worker_command__descriptor,
    .item   = &plasmon__v1__launch__descriptor,
    .list   = "launches",
    .usual  = {"seq",        "order",        "kind",          "function",  "operands",
               "scalars",    "after",        "pieces",        "offset",    "length",
               "peer",       "request",      "client",        "task",      "label",
               "graph",      "launch_shape", "time_limit_ms", "submit_ns", "placed_ns",
               "host_buffer"},
    .unpack = wire_unpack_worker_command};

struct both {
    const struct kind *kind;
    struct wire_arena by_hand;
    struct wire_arena by_description;
    uint32_t read, refused;
};

static void both_init(struct both *both, const struct kind *kind)
{
    *both = (struct both){.kind = kind};
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

/* The items of the frame: how many there are, and where pointers to them lie. */
static ProtobufCMessage **items_of(const struct kind *kind, const ProtobufCMessage *frame,
                                   size_t *out_count)
{
    const ProtobufCFieldDescriptor *field =
        protobuf_c_message_descriptor_get_field_by_name(kind->frame, kind->list);
    ProtobufCMessage **items;

    memcpy(out_count, (const char *)frame + field->quantifier_offset, sizeof(*out_count));
    memcpy(&items, (const char *)frame + field->offset, sizeof(items));
    return items;
}

static const char *label_of(const struct kind *kind, const ProtobufCMessage *item)
{
    const char *label;

    memcpy(&label,
           (const char *)item +
               protobuf_c_message_descriptor_get_field_by_name(kind->item, "label")->offset,
           sizeof(label));
    return label;
}

/* What the checks ask the arena: a NUL in a label would hide the rest of it. */
static void expect_texts(const struct kind *kind, const ProtobufCMessage *a,
                         const ProtobufCMessage *b)
{
    size_t count, same;
    ProtobufCMessage **x = items_of(kind, a, &count), **y = items_of(kind, b, &same);

    ASSERT_EQ(count, same);
    for (size_t i = 0; i < count; i++) {
        ASSERT_EQ(wire_arena_text_length(label_of(kind, x[i])),
                  wire_arena_text_length(label_of(kind, y[i])));
    }
}

static void expect_same(struct both *both, const uint8_t *bytes, size_t length)
{
    ProtobufCMessage *a, *b;

    wire_arena_reset(&both->by_hand);
    wire_arena_reset(&both->by_description);
    a = both->kind->unpack(&both->by_hand, bytes, length);
    b = protobuf_c_message_unpack(both->kind->frame, &both->by_description.allocator,
                                  length, bytes);
    ASSERT_EQ(a == NULL, b == NULL);
    if (a == NULL) {
        both->refused++;
        return;
    }
    both->read++;
    expect_alike(a, b);
    expect_texts(both->kind, a, b);
}

/* Now and then one of the rare fields of arguments and operands is left. */
static void rare_leave(struct rng *rng, const struct kind *kind, ProtobufCMessage *item)
{
    if (kind == &tasks) {
        Plasmon__V1__Task *task = (void *)item;

        for (size_t i = 0; i < task->n_args && draw(rng) % 4 != 0; i++) {
            pl_free(task->args[i]->index_step);
            task->args[i]->n_index_step = 0;
            task->args[i]->index_step   = NULL;
        }
    } else {
        Plasmon__V1__Launch *launch = (void *)item;

        for (size_t i = 0; i < launch->n_operands && draw(rng) % 4 != 0; i++) {
            launch->operands[i]->graph_operand = 0;
            launch->operands[i]->graph_offset  = 0;
        }
    }
}

/* Fields that most calls have, of those that are read by hand; a rare one now and then. */
static ProtobufCMessage *usual_fill(struct rng *rng, const struct kind *kind)
{
    ProtobufCMessage *item = pl_alloc(kind->item->sizeof_message);

    ASSERT_NOT_NULL(item);
    protobuf_c_message_init(kind->item, item);
    for (size_t i = 0; kind->usual[i] != NULL; i++) {
        if (draw(rng) % 3 != 0) {
            message_field_fill(
                rng,
                protobuf_c_message_descriptor_get_field_by_name(kind->item, kind->usual[i]),
                (char *)item);
        }
    }
    rare_leave(rng, kind, item);
    return item;
}

/* Returns what message_free() and pl_free() take. */
static ProtobufCMessage *frame_make(struct rng *rng, const struct kind *kind)
{
    const ProtobufCFieldDescriptor *list =
        protobuf_c_message_descriptor_get_field_by_name(kind->frame, kind->list);
    ProtobufCMessage *frame  = pl_alloc(kind->frame->sizeof_message);
    size_t count             = draw(rng) % ITEMS_MAX;
    ProtobufCMessage **items = pl_alloc((count + 1) * sizeof(*items));

    ASSERT_TRUE(frame != NULL && items != NULL);
    protobuf_c_message_init(kind->frame, frame);
    if (draw(rng) % 3 == 0) {
        message_fill(rng, frame);
        pl_free(items);
        return frame;
    }
    message_field_fill(
        rng, protobuf_c_message_descriptor_get_field_by_name(kind->frame, "header"),
        (char *)frame);
    for (size_t i = 0; i < count; i++) {
        items[i] = usual_fill(rng, kind);
    }
    memcpy((char *)frame + list->quantifier_offset, &count, sizeof(count));
    memcpy((char *)frame + list->offset, &items, sizeof(items));
    return frame;
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

static void try_frame(struct both *both, struct rng *rng, const ProtobufCMessage *frame)
{
    size_t length  = protobuf_c_message_get_packed_size(frame);
    uint8_t *bytes = pl_alloc(length + 1);

    ASSERT_NOT_NULL(bytes);
    (void)protobuf_c_message_pack(frame, bytes); /* as many as it said */
    expect_same(both, bytes, length);
    try_damaged(both, rng, bytes, length);
    pl_free(bytes);
}

/* Where the fields of a message begin, and where it ends: it was packed. Returns how many there are. */
static size_t fields_of(const uint8_t *bytes, size_t length, size_t *out_at, size_t max)
{
    size_t count = 0, at = 0;

    while (at < length && count < max) {
        uint32_t type = bytes[at] & 7;
        size_t value  = 0;

        out_at[count++] = at;
        while (bytes[at++] >= 0x80) {
        }
        if (type == 1 || type == 5) {
            at += type == 1 ? 8 : 4;
            continue;
        }
        for (unsigned shift = 0;; shift += 7) {
            value |= (size_t)(bytes[at] & 0x7f) << shift;
            if (bytes[at++] < 0x80) {
                break;
            }
        }
        at += type == 2 ? value : 0;
    }
    ASSERT_EQ(at, length);
    out_at[count] = length;
    return count;
}

#define FIELDS_MAX 256u

/*
 * One more like it: as it is, or a field is missing, or there twice, or a byte of it is another
 * one. The room is for a field more.
 */
static size_t like_make(struct rng *rng, const uint8_t *bytes, size_t length, uint8_t *out)
{
    size_t at[FIELDS_MAX + 1];
    size_t count = fields_of(bytes, length, at, FIELDS_MAX);
    size_t which = count == 0 ? 0 : draw(rng) % count;
    size_t field = count == 0 ? 0 : at[which + 1] - at[which];

    memcpy(out, bytes, length);
    switch (draw(rng) % 5) {
    case 0:
        memmove(out + at[which], out + at[which] + field, length - at[which] - field);
        return length - field;
    case 1:
        memmove(out + at[which] + field, out + at[which], length - at[which]);
        return length + field;
    case 2:
        if (length > 0) {
            out[draw(rng) % length] ^= (uint8_t)(1u << draw(rng) % 8);
        }
        return length;
    case 3:
        if (length > 1 && out[0] == 0x08) { /* its number */
            out[1] ^= (uint8_t)(draw(rng) & 0x7f);
        }
        return length;
    default:
        return length;
    }
}

static size_t item_append(uint8_t *frame, size_t at, const uint8_t *item, size_t length)
{
    frame[at++] = 0x1a;
    for (size_t rest = length; rest >= 0x80 || (frame[at++] = (uint8_t)rest, false);
         rest >>= 7) {
        frame[at++] = (uint8_t)(rest | 0x80);
    }
    if (length > 0) {
        memcpy(frame + at, item, length);
    }
    return at + length;
}

#define LIKES_MAX 8u

/* What is read of one serves those behind it that say the same. */
static void try_likes(const struct kind *kind)
{
    struct rng rng = {.state = test_seed() | 1};
    struct both both;

    both_init(&both, kind);
    for (uint32_t i = 0; i < ROUNDS; i++) {
        ProtobufCMessage *item = usual_fill(&rng, kind);
        size_t length = protobuf_c_message_get_packed_size(item), at = 0;
        uint8_t *bytes = pl_alloc(length + 1);
        uint8_t *like  = pl_alloc(2 * length + 1);
        uint8_t *frame = pl_alloc(LIKES_MAX * (2 * length + 8));

        ASSERT_TRUE(bytes != NULL && like != NULL && frame != NULL);
        (void)protobuf_c_message_pack(item, bytes); /* as many as it said */
        for (uint32_t k = 1 + (uint32_t)(draw(&rng) % LIKES_MAX); k > 0; k--) {
            at = item_append(frame, at, like, like_make(&rng, bytes, length, like));
            expect_same(&both, frame, at);
        }
        message_free(item);
        pl_free(item);
        pl_free(bytes);
        pl_free(like);
        pl_free(frame);
    }
    printf("# %u were read, %u refused\n", both.read, both.refused);
    ASSERT_TRUE(both.read > ROUNDS && both.refused > ROUNDS / 8);
    both_finish(&both);
}

TEST(tasks_that_are_like_one_before_are_what_protobuf_c_makes_of_them)
{
    try_likes(&tasks);
}

TEST(launches_that_are_like_one_before_are_what_protobuf_c_makes_of_them)
{
    try_likes(&launches);
}

/*
 * As a program's loop has them: the lists of the first serve all that follow, also when two calls
 * take turns.
 */
TEST(launches_of_a_loop_share_what_they_say)
{
    enum { COUNT = 40 };
    struct wire_arena arena;
    Plasmon__V1__WorkerCommand command = PLASMON__V1__WORKER_COMMAND__INIT, *read;
    Plasmon__V1__Launch launches_of[COUNT], *pointers[COUNT];
    Plasmon__V1__Operand operands[2]    = {PLASMON__V1__OPERAND__INIT,
                                           PLASMON__V1__OPERAND__INIT};
    Plasmon__V1__Operand *operand_of[2] = {&operands[0], &operands[1]};
    uint32_t shape[]                    = {1, 1, 1, 256, 1, 1, 0};
    uint8_t *bytes;
    size_t length;

    for (size_t i = 0; i < COUNT; i++) {
        plasmon__v1__launch__init(&launches_of[i]);
        launches_of[i].seq            = 100 + i;
        launches_of[i].function       = 7;
        launches_of[i].n_operands     = 1;
        launches_of[i].operands       = &operand_of[i % 2];
        launches_of[i].n_launch_shape = PL_COUNT(shape);
        launches_of[i].launch_shape   = shape;
        operands[i % 2].buffer        = wire_buffer(0, 3 + (uint32_t)(i % 2), 9);
        operands[i % 2].mode          = PLASMON__V1__MODE__MODE_INOUT;
        pointers[i]                   = &launches_of[i];
    }
    command.launches   = pointers;
    command.n_launches = COUNT;
    length             = plasmon__v1__worker_command__get_packed_size(&command);
    bytes              = pl_alloc(length);
    ASSERT_NOT_NULL(bytes);
    (void)plasmon__v1__worker_command__pack(&command, bytes); /* as many as it said */
    ASSERT_OK(wire_arena_init(&arena, ARENA_BYTES));
    read = (void *)wire_unpack_worker_command(&arena, bytes, length);
    ASSERT_NOT_NULL(read);
    for (size_t i = 2; i < COUNT; i++) {
        ASSERT_TRUE(read->launches[i]->operands == read->launches[i % 2]->operands);
        ASSERT_TRUE(read->launches[i]->launch_shape == read->launches[i % 2]->launch_shape);
        ASSERT_EQ(read->launches[i]->seq, 100 + i);
    }
    ASSERT_TRUE(read->launches[0]->operands != read->launches[1]->operands);
    wire_arena_finish(&arena);
    pl_free(bytes);
}

static void try_random(const struct kind *kind)
{
    struct rng rng = {.state = test_seed() | 1};
    struct both both;

    both_init(&both, kind);
    for (uint32_t i = 0; i < ROUNDS; i++) {
        ProtobufCMessage *frame = frame_make(&rng, kind);

        try_frame(&both, &rng, frame);
        message_free(frame);
        pl_free(frame);
    }
    printf("# %u were read, %u refused\n", both.read, both.refused);
    ASSERT_TRUE(both.read > ROUNDS && both.refused > ROUNDS);
    both_finish(&both);
}

TEST(random_frames_are_what_protobuf_c_makes_of_them)
{
    try_random(&tasks);
}

TEST(random_commands_are_what_protobuf_c_makes_of_them)
{
    try_random(&launches);
}

/* Lists up to any length: what is read by hand has room for some. */
TEST(lists_that_are_longer_than_most_are_read_all_the_same)
{
    enum { MOST = 70 };
    static Plasmon__V1__Arg arg[MOST], *args[MOST];
    static Plasmon__V1__Operand operand[MOST], *operands[MOST];
    static Plasmon__V1__Piece piece[MOST], *pieces[MOST];
    Plasmon__V1__ClientFrame frame     = PLASMON__V1__CLIENT_FRAME__INIT;
    Plasmon__V1__WorkerCommand command = PLASMON__V1__WORKER_COMMAND__INIT;
    Plasmon__V1__Task task = PLASMON__V1__TASK__INIT, *list[] = {&task};
    Plasmon__V1__Launch launch = PLASMON__V1__LAUNCH__INIT, *launched[] = {&launch};
    struct rng rng = {.state = test_seed() | 1};
    struct both both_tasks, both_launches;

    both_init(&both_tasks, &tasks);
    both_init(&both_launches, &launches);
    frame.n_tasks      = 1;
    frame.tasks        = list;
    command.n_launches = 1;
    command.launches   = launched;
    task.args          = args;
    launch.operands    = operands;
    launch.pieces      = pieces;
    for (size_t i = 0; i < MOST; i++) {
        plasmon__v1__arg__init(&arg[i]);
        plasmon__v1__operand__init(&operand[i]);
        plasmon__v1__piece__init(&piece[i]);
        arg[i].ref        = i + 1;
        operand[i].buffer = i + 1;
        piece[i].src      = i + 1;
        args[i]           = &arg[i];
        operands[i]       = &operand[i];
        pieces[i]         = &piece[i];
    }
    for (size_t count = 0; count <= MOST; count++) {
        task.n_args = launch.n_operands = launch.n_pieces = count;
        try_frame(&both_tasks, &rng, &frame.base);
        try_frame(&both_launches, &rng, &command.base);
        launch.n_operands = count / 8;
        try_frame(&both_launches, &rng, &command.base);
    }
    both_finish(&both_tasks);
    both_finish(&both_launches);
}

/*
 * Numbers and lengths that are longer than they have to be, fields twice or out of order, lists
 * that are not packed.
 */
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

    both_init(&both, &tasks);
    for (size_t i = 0; i < PL_COUNT(frames); i++) {
        expect_same(&both, frames[i].bytes, frames[i].length);
    }
    both_finish(&both);
}

TEST(other_forms_of_launches_are_read_as_protobuf_c_reads_them)
{
    static const struct {
        uint8_t length;
        uint8_t bytes[24];
    } commands[] = {
        {4, {0x1a, 0x02, 0x08, 0x07}},
        {4, {0x1a, 0x02, 0x18, 0x0d}},                         /* a kind */
        {4, {0x1a, 0x02, 0x18, 0x7f}},                         /* that nobody knows */
        {9, {0x1a, 0x07, 0x18, 0xff, 0xff, 0xff, 0xff, 0x0f}}, /* cut off */
        {8, {0x1a, 0x06, 0x18, 0xff, 0xff, 0xff, 0xff, 0x0f}}, /* of 32 bits */
        {6, {0x1a, 0x04, 0x2a, 0x02, 0x08, 0x01}},             /* an operand */
        {10, {0x1a, 0x08, 0x2a, 0x02, 0x08, 0x01, 0x2a, 0x02, 0x08, 0x02}}, /* two */
        {10, {0x1a, 0x08, 0x2a, 0x02, 0x08, 0x01, 0x42, 0x02, 0x20, 0x02}}, /* a piece */
        {14,
         {0x1a, 0x0c, 0x42, 0x02, 0x20, 0x01, 0x42, 0x02, 0x20, 0x02, 0x42, 0x02, 0x20,
          0x03}},                                                           /* three */
        {10, {0x1a, 0x08, 0x42, 0x02, 0x20, 0x01, 0x2a, 0x02, 0x08, 0x02}}, /* before one */
        {6, {0x1a, 0x04, 0x2a, 0x02, 0x58, 0x01}},       /* an operand of a graph's node */
        {6, {0x1a, 0x04, 0x2a, 0x02, 0x32, 0x00}},       /* without a frame */
        {5, {0x1a, 0x03, 0xb8, 0x01, 0x01}},             /* a priority */
        {6, {0x1a, 0x04, 0x4a, 0x02, 'a', 'b'}},         /* bytes */
        {7, {0x1a, 0x05, 0x4a, 0x02, 'a', 'b', 0x50}},   /* cut off */
        {6, {0x1a, 0x04, 0x2a, 0x05, 0x08, 0x01}},       /* longer than the launch */
        {8, {0x1a, 0x02, 0x08, 0x01, 0x1a, 0x02, 0x08}}, /* longer than the command */
    };
    struct both both;

    both_init(&both, &launches);
    for (size_t i = 0; i < PL_COUNT(commands); i++) {
        expect_same(&both, commands[i].bytes, commands[i].length);
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
