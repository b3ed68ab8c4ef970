/*
 * Bytes that nobody honest sends: each is refused with a text that names the field, and costs
 * bounded memory.
 */
#include "tests/harness/test.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/fault.h"
#include "tests/unit/wire/samples.h"

static struct wire_arena arena;

static uint8_t *create(size_t length)
{
    return pl_alloc(length);
}

/* Encode `message`, decode it as sample `index`, and want `status` with `part` in the text. */
static void refuse(const ProtobufCMessage *message, size_t index, plasmon_status_t status,
                   const char *part)
{
    ProtobufCMessage *got = NULL;
    struct pl_err err     = {.status = PLASMON_OK};
    plasmon_status_t answer;
    uint8_t *bytes;
    size_t length;

    ASSERT_OK(wire_encode(message, create, &bytes, &length));
    wire_arena_reset(&arena);
    answer = wire_samples()[index].decode(&arena, bytes, length, &got, &err);
    pl_free(bytes);
    if (answer != status) {
        test_fail(__FILE__, __LINE__, "status %d, not %d, for \"%s\": %s", (int)answer,
                  (int)status, part, err.text);
    }
    ASSERT_NULL(got);
    ASSERT_EQ(err.status, status);
    ASSERT_CONTAINS(err.text, part);
}
#define CLIENT         0
#define WORKER_COMMAND 5

/* One client frame with one good task, to be spoiled. */
static struct {
    Plasmon__V1__Header header;
    Plasmon__V1__Task task, *tasks[1];
    Plasmon__V1__Arg arg, *args[2];
    Plasmon__V1__Shape shape;
    Plasmon__V1__ClientFrame frame;
} one;

static void one_init(void)
{
    if (arena.block == NULL) {
        ASSERT_OK(wire_arena_init(&arena, WIRE_ARENA_BYTES_MAX));
    }
    plasmon__v1__header__init(&one.header);
    plasmon__v1__task__init(&one.task);
    plasmon__v1__arg__init(&one.arg);
    plasmon__v1__shape__init(&one.shape);
    plasmon__v1__client_frame__init(&one.frame);
    one.header.protocol = WIRE_PROTOCOL;
    one.arg.mode        = PLASMON__V1__MODE__MODE_IN;
    one.arg.ref         = 5;
    one.shape.dtype     = PL_F32;
    one.args[0]         = &one.arg;
    one.task.id         = 6;
    one.task.n_args     = 1;
    one.task.args       = one.args;
    one.tasks[0]        = &one.task;
    one.frame.header    = &one.header;
    one.frame.n_tasks   = 1;
    one.frame.tasks     = one.tasks;
}

static void refuse_one(plasmon_status_t status, const char *part)
{
    refuse(&one.frame.base, CLIENT, status, part);
    one_init();
}

TEST(the_unspoiled_frame_is_taken)
{
    Plasmon__V1__ClientFrame *got;
    struct pl_err err;
    uint8_t *bytes;
    size_t length;

    one_init();
    ASSERT_OK(wire_encode(&one.frame.base, create, &bytes, &length));
    ASSERT_OK(wire_decode_client_frame(&arena, bytes, length, &got, &err));
    pl_free(bytes);
    wire_arena_finish(&arena);
}

TEST(headers_come_first)
{
    one_init();
    one.frame.header = NULL;
    refuse_one(PLASMON_EMALFORMED, "client frame: it has no header");
    one.header.protocol = 2;
    refuse_one(PLASMON_EVERSION, "the peer speaks protocol 2, this program 1");
    wire_arena_finish(&arena);
}

TEST(tasks_are_checked)
{
    static uint64_t scalars[WIRE_SCALARS_MAX + 1];
    static uint8_t data[WIRE_DATA_BYTES_MAX + 1];

    one_init();
    one.task.id = 0;
    refuse_one(PLASMON_EMALFORMED, "tasks[0]: its id is 0");
    one.task.kind = (Plasmon__V1__TaskKind)9;
    refuse_one(PLASMON_EMALFORMED, "tasks[0]: its kind is 9");
    one.task.place = 1 << 20;
    refuse_one(PLASMON_EMALFORMED, "place");
    one.task.n_scalars = PL_COUNT(scalars);
    one.task.scalars   = scalars;
    refuse_one(PLASMON_ELIMIT, "65 scalars");
    one.task.data = (ProtobufCBinaryData){.len = 1, .data = data};
    refuse_one(PLASMON_EMALFORMED, "no PUT");
    one.task.kind = PLASMON__V1__TASK_KIND__TASK_PUT;
    one.task.data = (ProtobufCBinaryData){.len = sizeof(data), .data = data};
    refuse_one(PLASMON_ELIMIT, "data has 1048577 bytes");
    one.task.kind       = PLASMON__V1__TASK_KIND__TASK_PUT;
    one.task.put_offset = UINT64_MAX;
    refuse_one(PLASMON_EMALFORMED, "a PUT at byte 18446744073709551615");
    one.task.kind = PLASMON__V1__TASK_KIND__TASK_SNAPSHOT;
    refuse_one(PLASMON_EMALFORMED, "a SNAPSHOT has 1 arguments");
    wire_arena_finish(&arena);
}

TEST(host_copies_are_checked)
{
    static uint8_t byte;

    one_init();
    one.task.kind = PLASMON__V1__TASK_KIND__TASK_GET_HOST;
    refuse_one(PLASMON_EMALFORMED, "tasks[0]: host buffer 0");
    one.task.kind        = PLASMON__V1__TASK_KIND__TASK_GET_HOST;
    one.task.host_buffer = 7;
    one.task.host_offset = UINT64_MAX;
    refuse_one(PLASMON_EMALFORMED, "byte 18446744073709551615");
    one.task.kind        = PLASMON__V1__TASK_KIND__TASK_GET_HOST;
    one.task.host_buffer = 7;
    one.task.data        = (ProtobufCBinaryData){.len = 1, .data = &byte};
    refuse_one(PLASMON_EMALFORMED, "1 bytes of data");
    one.task.kind        = PLASMON__V1__TASK_KIND__TASK_GET_HOST;
    one.task.host_buffer = 7;
    one.task.n_args      = 0;
    refuse_one(PLASMON_EMALFORMED, "a GET_HOST has one argument, IN");
    one.task.kind        = PLASMON__V1__TASK_KIND__TASK_PUT_HOST;
    one.task.host_buffer = 7;
    refuse_one(PLASMON_EMALFORMED, "a PUT_HOST has one argument, OUT");
    one.task.kind        = PLASMON__V1__TASK_KIND__TASK_PUT_HOST;
    one.task.host_buffer = 7;
    one.arg.mode         = PLASMON__V1__MODE__MODE_OUT;
    refuse_one(PLASMON_EMALFORMED, "a PUT_HOST makes a ref with a shape");
    wire_arena_finish(&arena);
}

/* A broadcast to one device, unspoiled. */
static Plasmon__V1__Collective *one_collective(void)
{
    static Plasmon__V1__Collective collective;
    static Plasmon__V1__Arg out;
    static uint32_t place;

    plasmon__v1__collective__init(&collective);
    plasmon__v1__arg__init(&out);
    place               = 1;
    out.mode            = PLASMON__V1__MODE__MODE_OUT;
    out.ref             = 8;
    collective.kind     = PLASMON__V1__COLLECTIVE_KIND__BROADCAST;
    collective.n_place  = 1;
    collective.place    = &place;
    one.task.kind       = PLASMON__V1__TASK_KIND__TASK_COLLECTIVE;
    one.task.collective = &collective;
    one.task.n_args     = 2;
    one.args[1]         = &out;
    return &collective;
}

TEST(collectives_are_checked)
{
    Plasmon__V1__ClientFrame *got;
    struct pl_err err;
    uint8_t *bytes;
    size_t length;

    one_init();
    (void)one_collective();
    ASSERT_OK(wire_encode(&one.frame.base, create, &bytes, &length));
    ASSERT_OK(wire_decode_client_frame(&arena, bytes, length, &got, &err));
    pl_free(bytes);
    one.task.collective = NULL;
    refuse_one(PLASMON_EMALFORMED, "no collective");
    one_collective()->kind = (Plasmon__V1__CollectiveKind)6;
    refuse_one(PLASMON_EMALFORMED, "none of a known kind");
    one_collective()->n_place = 0;
    refuse_one(PLASMON_EMALFORMED, "2 members, root 0, with 0 results");
    one_collective()->op = 1;
    refuse_one(PLASMON_EMALFORMED, "collective 2 with reduction 1");
    one_collective()->kind = PLASMON__V1__COLLECTIVE_KIND__ALL_REDUCE;
    refuse_one(PLASMON_EMALFORMED, "collective 0 with reduction 0");
    one_collective()->kind    = PLASMON__V1__COLLECTIVE_KIND__REDUCE;
    one.task.collective->op   = 1;
    one.task.collective->root = 1;
    refuse_one(PLASMON_EMALFORMED, "root 1");
    one_collective()->place[0] = 1 << 20;
    refuse_one(PLASMON_EMALFORMED, "place[0] is 1048576");
    (void)one_collective();
    one.arg.mode = PLASMON__V1__MODE__MODE_OUT;
    refuse_one(PLASMON_EMALFORMED, "members are IN");
    wire_arena_finish(&arena);
}

TEST(launch_shapes_are_checked)
{
    uint32_t shape[8] = {1, 1, 1, 32, 1, 1, 0, 0};

    one_init();
    one.task.n_launch_shape = 6;
    one.task.launch_shape   = shape;
    refuse_one(PLASMON_EMALFORMED, "a launch shape has 6 numbers");
    one.task.n_launch_shape = 8;
    one.task.launch_shape   = shape;
    refuse_one(PLASMON_EMALFORMED, "a launch shape has 8 numbers");
    shape[6]                = UINT32_MAX;
    one.task.n_launch_shape = 7;
    one.task.launch_shape   = shape;
    refuse_one(PLASMON_EMALFORMED, "shared memory is over");
    wire_arena_finish(&arena);
}

TEST(definitions_are_checked)
{
    Plasmon__V1__FunctionDefine define  = PLASMON__V1__FUNCTION_DEFINE__INIT;
    Plasmon__V1__FunctionDefine *list[] = {&define};
    static uint8_t large[WIRE_SOURCE_BYTES_MAX + 1];
    uint8_t hash[WIRE_HASH_BYTES];

    define.name      = (char *)(uintptr_t) "f";
    define.signature = (char *)(uintptr_t) "f()";
    define.c_text    = (ProtobufCBinaryData){.len = 1, .data = (uint8_t *)(uintptr_t) "x"};
#define REFUSE_DEFINE(status, part) \
    one_init();                     \
    one.frame.n_define = 1;         \
    one.frame.define   = list;      \
    refuse_one(status, part)
    REFUSE_DEFINE(PLASMON_EMALFORMED, "define[0]: its id is 0");
    define.id = WIRE_FUNCTION_FIRST;
    REFUSE_DEFINE(PLASMON_EMALFORMED, "define[0]: its hash is not that of its content");
    wire_function_hash(&define, hash);
    define.hash = (ProtobufCBinaryData){.len = sizeof(hash), .data = hash};
    hash[7] ^= 1;
    REFUSE_DEFINE(PLASMON_EMALFORMED, "its hash");
    define.library = (char *)(uintptr_t) "x.so";
    REFUSE_DEFINE(PLASMON_EMALFORMED, "either source text or a library");
    define.library = (char *)(uintptr_t) "";
    define.c_text  = (ProtobufCBinaryData){.len = 2, .data = (uint8_t *)(uintptr_t) "x\0"};
    REFUSE_DEFINE(PLASMON_EMALFORMED, "c_text has a NUL");
    define.c_text.len = 0;
    define.cuda_text  = (ProtobufCBinaryData){.len = sizeof(large), .data = large};
    REFUSE_DEFINE(PLASMON_ELIMIT, "cuda_text has 1048577 bytes");
    define.name          = (char *)(uintptr_t) "";
    define.cuda_text.len = 0;
    REFUSE_DEFINE(PLASMON_EMALFORMED, "it needs a name");
    wire_arena_finish(&arena);
}

TEST(arguments_are_checked)
{
    int64_t view[4] = {0, 1, 1, 0};

    one_init();
    one.arg.mode = 5;
    refuse_one(PLASMON_EMALFORMED, "tasks[0]: args[0]: mode 5");
    one.arg.ref = 0;
    refuse_one(PLASMON_EMALFORMED, "names no ref");
    one.arg.n_view = 4;
    one.arg.view   = view;
    refuse_one(PLASMON_EMALFORMED, "view has 4 numbers");
    view[1]        = 0;
    one.arg.n_view = 3;
    one.arg.view   = view;
    refuse_one(PLASMON_EMALFORMED, "view dimension 0 is start 0, count 0, step 1");
    one.shape.dtype = 99;
    one.arg.shape   = &one.shape;
    refuse_one(PLASMON_EMALFORMED, "args[0]: shape: ");
    one.arg.mode = PLASMON__V1__MODE__MODE_SCRATCH;
    refuse_one(PLASMON_EMALFORMED, "a SCRATCH has no shape");
    wire_arena_finish(&arena);
}

TEST(text_must_be_short_utf8_without_nul)
{
    static const char *const bad[] = {
        "\xff", "a\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe2\x82", "\xc3"};
    char label[WIRE_LABEL_BYTES_MAX + 2];
    Plasmon__V1__Publish publish = PLASMON__V1__PUBLISH__INIT, *list[] = {&publish};

    one_init();
    for (size_t i = 0; i < PL_COUNT(bad); i++) {
        one.task.label = (char *)(uintptr_t)bad[i];
        refuse_one(PLASMON_EMALFORMED, "label is not UTF-8");
    }
    memset(label, 'x', sizeof(label) - 1);
    label[sizeof(label) - 1] = '\0';
    one.task.label           = label;
    refuse_one(PLASMON_ELIMIT, "label has 129 bytes; the limit is 128");

    publish.name        = (char *)(uintptr_t) "a\x80";
    one.frame.n_publish = 1;
    one.frame.publish   = list;
    refuse_one(PLASMON_EMALFORMED, "publish[0]: name is not UTF-8 at byte 1");
    wire_arena_finish(&arena);
}

TEST(what_logs_and_tables_show_has_no_control_characters)
{
    static const char *const bad[] = {"a\nerror head: all is lost", "\x1b]0;title\x07",
                                      "a\x7f", "\t", "caf\303\251 \302\2332J"};
    char label[]                   = "caf\xc3\xa9 \xc2\xa0 ~";
    Plasmon__V1__Publish publish = PLASMON__V1__PUBLISH__INIT, *list[] = {&publish};

    one_init();
    for (size_t i = 0; i < PL_COUNT(bad); i++) {
        one.task.label = (char *)(uintptr_t)bad[i];
        refuse_one(PLASMON_EMALFORMED, "label has a control character");
    }
    one.task.label      = label;
    publish.name        = (char *)(uintptr_t) "a\r";
    one.frame.n_publish = 1;
    one.frame.publish   = list;
    refuse_one(PLASMON_EMALFORMED, "publish[0]: name has a control character at byte 1");
    wire_arena_finish(&arena);
}

TEST(a_nul_inside_text_is_seen)
{
    /* header{protocol 1}, tasks{id 1, label "a\0b"}: by hand, since protobuf-c cannot encode it */
    static const uint8_t bytes[]  = {0x0a, 2,    0x08, 1,   0x1a, 7,  0x08,
                                     1,    0x42, 3,    'a', 0,    'b'};
    Plasmon__V1__ClientFrame *got = NULL;
    struct pl_err err;

    one_init();
    ASSERT_STATUS(wire_decode_client_frame(&arena, bytes, sizeof(bytes), &got, &err),
                  PLASMON_EMALFORMED);
    ASSERT_CONTAINS(err.text, "tasks[0]: label has a NUL at byte 1");
    wire_arena_finish(&arena);
}

TEST(good_text_of_every_width_is_taken)
{
    Plasmon__V1__ClientFrame *got;
    struct pl_err err;
    uint8_t *bytes;
    size_t length;

    one_init();
    one.task.label = (char *)(uintptr_t) "a\xc2\xa0\xe0\xa0\x80\xed\x9f\xbf\xf0\x90\x80\x80"
                                         "\xf4\x8f\xbf\xbf";
    ASSERT_OK(wire_encode(&one.frame.base, create, &bytes, &length));
    ASSERT_OK(wire_decode_client_frame(&arena, bytes, length, &got, &err));
    ASSERT_STR(got->tasks[0]->label, one.task.label);
    pl_free(bytes);
    wire_arena_finish(&arena);
}

TEST(ranges_cannot_wrap)
{
    Plasmon__V1__Range range = PLASMON__V1__RANGE__INIT, *list[] = {&range};
    static const uint64_t bad[][2] = {{0, 1}, {1, 0}, {2, UINT64_MAX}, {UINT64_MAX, 2}};

    one_init();
    for (size_t i = 0; i < PL_COUNT(bad); i++) {
        range.first         = bad[i][0];
        range.count         = bad[i][1];
        one.frame.n_release = 1;
        one.frame.release   = list;
        refuse_one(PLASMON_EMALFORMED, "release[0] is no range");
    }
    wire_arena_finish(&arena);
}

TEST(too_many_of_anything_is_a_limit)
{
    static Plasmon__V1__Task *tasks[WIRE_TASKS_MAX + 1];
    static uint64_t cancel[WIRE_RANGES_MAX + 1];

    one_init();
    for (size_t i = 0; i < PL_COUNT(tasks); i++) {
        tasks[i] = &one.task;
    }
    one.frame.n_tasks = PL_COUNT(tasks);
    one.frame.tasks   = tasks;
    refuse_one(PLASMON_ELIMIT, "4097 tasks in one message; the limit is 4096");
    one.frame.n_cancel = PL_COUNT(cancel);
    one.frame.cancel   = cancel;
    refuse_one(PLASMON_ELIMIT, "65537 cancel in one message");
    wire_arena_finish(&arena);
}

TEST(launches_stay_inside_their_frames)
{
    Plasmon__V1__WorkerCommand command = PLASMON__V1__WORKER_COMMAND__INIT;
    Plasmon__V1__Launch launch = PLASMON__V1__LAUNCH__INIT, *launches[] = {&launch};
    Plasmon__V1__Operand operand = PLASMON__V1__OPERAND__INIT, *operands[] = {&operand};
    Plasmon__V1__Piece piece = PLASMON__V1__PIECE__INIT, *pieces[] = {&piece};
    int64_t frame[2] = {10, 20}, view[3] = {10, 20, 1}, box[2] = {10, 20},
            src[2] = {0, 100};

    one_init();
    command.header     = &one.header;
    command.n_launches = 1;
    command.launches   = launches;
    launch.seq         = 1;
    launch.n_operands  = 1;
    launch.operands    = operands;
    operand.dtype      = PL_F32;
    operand.n_frame    = 2;
    operand.frame      = frame;
    operand.n_view     = 3;
    operand.view       = view;

    view[1] = 21;
    refuse(&command.base, WORKER_COMMAND, PLASMON_EMALFORMED,
           "operands[0]: its view is not inside");
    view[1] = 20;
    view[0] = 9;
    refuse(&command.base, WORKER_COMMAND, PLASMON_EMALFORMED,
           "operands[0]: its view is not inside");
    view[0]       = 10;
    operand.dtype = 0;
    refuse(&command.base, WORKER_COMMAND, PLASMON_EMALFORMED, "dtype 0 does not exist");
    operand.dtype = PL_F32;

    launch.n_pieces = 1;
    launch.pieces   = pieces;
    piece.n_box = piece.n_src_frame = 2;
    piece.box                       = box;
    piece.src_frame                 = src;
    box[1]                          = 21;
    refuse(&command.base, WORKER_COMMAND, PLASMON_EMALFORMED,
           "pieces[0]: its box is not inside both");
    box[1] = 20;
    src[1] = 29;
    refuse(&command.base, WORKER_COMMAND, PLASMON_EMALFORMED,
           "pieces[0]: its box is not inside both");
    src[1]            = 30;
    launch.n_operands = 0;
    refuse(&command.base, WORKER_COMMAND, PLASMON_EMALFORMED,
           "pieces[0]: it fills operand 0 of 0");
    wire_arena_finish(&arena);
}

TEST(too_many_of_anything_is_refused_before_it_is_decoded)
{
    size_t length                 = 4 << 20;
    uint8_t *bytes                = malloc(length);
    Plasmon__V1__ClientFrame *got = NULL;
    struct pl_err err;

    one_init();
    for (size_t i = 0; i < length; i += 2) {
        bytes[i]     = 0x1a; /* tasks, of length 0 */
        bytes[i + 1] = 0;
    }
    ASSERT_STATUS(wire_decode_client_frame(&arena, bytes, length, &got, &err),
                  PLASMON_ELIMIT);
    ASSERT_STR(err.text, "client frame: 2097152 tasks in one message; the limit is 4096");
    ASSERT_EQ(arena.total, 0);

    memcpy(bytes, "\x3a\x80\x80\x08", 4); /* cancels: a packed list of 131072 bytes */
    memset(bytes + 4, 0x81, 131072);
    for (size_t i = 1; i < 131072; i += 2) {
        bytes[4 + i] = 0x01; /* 65536 numbers of two bytes: as many as there may be */
    }
    ASSERT_STATUS(wire_decode_client_frame(&arena, bytes, 4 + 131072, &got, &err),
                  PLASMON_EMALFORMED);
    ASSERT_CONTAINS(err.text, "no header");
    wire_arena_reset(&arena);
    bytes[4] = 0x01; /* one more */
    ASSERT_STATUS(wire_decode_client_frame(&arena, bytes, 4 + 131072, &got, &err),
                  PLASMON_ELIMIT);
    ASSERT_CONTAINS(err.text, "65537 cancel in one message");
    ASSERT_EQ(arena.total, 0);
    free(bytes);
    wire_arena_finish(&arena);
}

TEST(amplification_hits_the_cap)
{
    size_t length                 = 4 << 20;
    uint8_t *bytes                = malloc(length);
    Plasmon__V1__ClientFrame *got = NULL;
    struct pl_err err;

    one_init();
    memcpy(bytes, "\x1a\xfb\xff\xff\x01", 5); /* one task of all the rest */
    for (size_t i = 5; i + 1 < length; i += 2) {
        bytes[i]     = 0x22; /* args, of length 0 */
        bytes[i + 1] = 0;
    }
    bytes[length - 1] = 0;
    ASSERT_STATUS(wire_decode_client_frame(&arena, bytes, length, &got, &err),
                  PLASMON_ELIMIT);
    ASSERT_CONTAINS(err.text, "would take more than 67108864 bytes decoded");
    ASSERT_NULL(got);
    ASSERT_TRUE(arena.total <= WIRE_ARENA_BYTES_MAX);

    /* The arena is as good as new afterwards, and gives the memory back. */
    wire_arena_reset(&arena);
    ASSERT_TRUE(arena.block_bytes <= 4 << 20);
    ASSERT_STATUS(
        wire_decode_client_frame(&arena, (const uint8_t *)"\x1a\0\x1a\0", 4, &got, &err),
        PLASMON_EMALFORMED);
    ASSERT_CONTAINS(err.text, "no header");
    free(bytes);
    wire_arena_finish(&arena);
}

TEST(singular_fields_sent_a_thousand_times_hit_the_cap_too)
{
    /* A hello repeated merges with the one before; each round copies, and nothing is freed in an arena. */
    uint8_t piece[]               = {0x12, 7, 0x22, 5, 'a', 'b', 'c', 'd', 'e'};
    size_t count                  = (WIRE_MESSAGE_BYTES_MAX - 4) / sizeof(piece);
    uint8_t *bytes                = malloc(4 + count * sizeof(piece));
    Plasmon__V1__ClientFrame *got = NULL;
    struct pl_err err;
    plasmon_status_t status;

    one_init();
    memcpy(bytes, (uint8_t[]){0x0a, 2, 0x08, 1}, 4);
    for (size_t i = 0; i < count; i++) {
        memcpy(bytes + 4 + i * sizeof(piece), piece, sizeof(piece));
    }
    status = wire_decode_client_frame(&arena, bytes, 4 + count * sizeof(piece), &got, &err);
    ASSERT_STATUS(status, PLASMON_ELIMIT);
    free(bytes);
    wire_arena_finish(&arena);
}

TEST(a_message_over_the_limit_is_not_even_looked_at)
{
    Plasmon__V1__ClientFrame *got = NULL;
    struct pl_err err;

    one_init();
    ASSERT_STATUS(
        wire_decode_client_frame(&arena, NULL, WIRE_MESSAGE_BYTES_MAX + 1, &got, &err),
        PLASMON_ELIMIT);
    ASSERT_CONTAINS(err.text, "client frame of 8388609 bytes");
    wire_arena_finish(&arena);
}

TEST(every_cut_and_every_flipped_bit_of_a_sample_is_survived)
{
    one_init();
    for (size_t s = 0; s < WIRE_SAMPLE_COUNT; s++) {
        const struct wire_sample *sample = &wire_samples()[s];
        ProtobufCMessage *got;
        struct pl_err err;
        uint8_t *bytes;
        size_t length;

        ASSERT_OK(wire_encode(sample->message, create, &bytes, &length));
        for (size_t cut = 0; cut < length; cut++) {
            /* its own size, so that ASan sees a byte too far */
            uint8_t *copy = malloc(cut + 1);

            memcpy(copy, bytes, cut);
            wire_arena_reset(&arena);
            (void)sample->decode(&arena, copy, cut, &got, &err); /* any answer, no crash */
            free(copy);
        }
        for (size_t bit = 0; bit < 8 * length; bit++) {
            bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
            wire_arena_reset(&arena);
            (void)sample->decode(&arena, bytes, length, &got,
                                 &err); /* any answer, no crash */
            bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        }
        pl_free(bytes);
    }
    wire_arena_finish(&arena);
}

/* A node of a graph looks at memory of the graph, or at what its launch was given: in it. */
TEST(what_nodes_of_a_graph_look_at_is_there)
{
    size_t index = 0, length;
    Plasmon__V1__WorkerCommand *command;
    Plasmon__V1__GraphPart *part;
    Plasmon__V1__Operand *operand = NULL;
    uint64_t offset;
    uint8_t *bytes;

    if (arena.block == NULL) {
        ASSERT_OK(wire_arena_init(&arena, WIRE_ARENA_BYTES_MAX));
    }
    while (strcmp(wire_samples()[index].name, "worker_graph") != 0) {
        index++;
    }
    ASSERT_OK(wire_encode(wire_samples()[index].message, create, &bytes, &length));
    command = plasmon__v1__worker_command__unpack(NULL, length, bytes);
    pl_free(bytes);
    ASSERT_NOT_NULL(command);
    part = command->graphs[0];
    for (size_t n = 0; n < part->n_nodes; n++) {
        Plasmon__V1__Launch *launch = part->nodes[n]->launch;

        for (size_t i = 0; i < launch->n_operands; i++) {
            if (launch->operands[i]->graph_operand == 0) {
                operand = launch->operands[i];
            }
        }
    }
    ASSERT_NOT_NULL(operand);
    offset                = operand->graph_offset;
    operand->graph_offset = part->bytes + 1;
    refuse(&command->base, index, PLASMON_EMALFORMED, "it is at byte");
    operand->graph_offset  = offset;
    operand->graph_operand = part->operands + 1;
    refuse(&command->base, index, PLASMON_EMALFORMED, "it is operand");
    plasmon__v1__worker_command__free_unpacked(command, NULL);
    wire_arena_finish(&arena);
}

/* The nth allocation fails, for each n: the whole message is there, or nothing of it. */
TEST(a_message_is_decoded_or_not_whichever_allocation_fails)
{
#ifndef PL_FAULTS
    test_skip("this build has no faults (PLASMON_FAULTS is off)");
#endif
    for (size_t s = 0; s < WIRE_SAMPLE_COUNT; s++) {
        const struct wire_sample *sample = &wire_samples()[s];
        bool fired                       = true;
        uint8_t *bytes;
        size_t length;

        ASSERT_OK(wire_encode(sample->message, create, &bytes, &length));
        for (unsigned nth = 0; fired; nth++) {
            ProtobufCMessage *got = NULL;
            struct pl_err err     = {0};
            plasmon_status_t status;

            pl_fault_arm("alloc", nth);
            status = wire_arena_init(&arena, WIRE_ARENA_BYTES_MAX);
            if (status == PLASMON_OK) {
                status = sample->decode(&arena, bytes, length, &got, &err);
                wire_arena_finish(&arena);
            }
            fired = pl_fault_disarm() != 0;
            ASSERT_STATUS(status, fired ? PLASMON_ENOMEM : PLASMON_OK);
            ASSERT_EQ(got != NULL, !fired);
        }
        pl_free(bytes);
    }
}

/* -------------------------------------------------------------------------------- unary */

/* As `decode` of a request or a reply that is not of a stream. */
#define UNARY(name, Type)                                                    \
    static plasmon_status_t name##_taken(const Plasmon__V1__##Type *message, \
                                         struct pl_err *err)                 \
    {                                                                        \
        Plasmon__V1__##Type *got;                                            \
        plasmon_status_t status;                                             \
        uint8_t *bytes;                                                      \
        size_t length;                                                       \
                                                                             \
        ASSERT_OK(wire_encode(&message->base, create, &bytes, &length));     \
        wire_arena_reset(&arena);                                            \
        pl_err_init(err);                                                    \
        status = wire_decode_##name(&arena, bytes, length, &got, err);       \
        pl_free(bytes);                                                      \
        return status;                                                       \
    }
UNARY(status_request, StatusRequest)
UNARY(status_reply, StatusReply)
UNARY(drain_request, DrainRequest)
UNARY(drain_reply, DrainReply)
UNARY(list_request, ListRequest)

static char *text_of(char fill, size_t length)
{
    static char text[WIRE_TEXT_BYTES_MAX + 2];

    memset(text, fill, length);
    text[length] = '\0';
    return text;
}

TEST(requests_outside_streams_are_checked)
{
    Plasmon__V1__StatusRequest status = PLASMON__V1__STATUS_REQUEST__INIT;
    Plasmon__V1__DrainRequest drain   = PLASMON__V1__DRAIN_REQUEST__INIT;
    Plasmon__V1__ListRequest list     = PLASMON__V1__LIST_REQUEST__INIT;
    struct pl_err err;

    ASSERT_OK(wire_arena_init(&arena, WIRE_ARENA_BYTES_MAX));
    status.host = text_of('h', WIRE_NAME_BYTES_MAX);
    ASSERT_OK(status_request_taken(&status, &err));
    status.host = text_of('h', WIRE_NAME_BYTES_MAX + 1);
    ASSERT_STATUS(status_request_taken(&status, &err), PLASMON_ELIMIT);
    ASSERT_CONTAINS(err.text, "host");

    drain.node        = text_of('n', WIRE_NAME_BYTES_MAX);
    drain.deadline_ms = WIRE_DRAIN_MS_MAX;
    ASSERT_OK(drain_request_taken(&drain, &err));
    drain.deadline_ms++;
    ASSERT_STATUS(drain_request_taken(&drain, &err), PLASMON_EINVAL);
    ASSERT_CONTAINS(err.text, "a day");
    drain.deadline_ms = 0;
    drain.node        = text_of('n', WIRE_NAME_BYTES_MAX + 1);
    ASSERT_STATUS(drain_request_taken(&drain, &err), PLASMON_ELIMIT);
    ASSERT_CONTAINS(err.text, "node");

    list.kind   = PLASMON__V1__LIST_KIND__LIST_NODES;
    list.device = WIRE_DEVICES_MAX;
    ASSERT_OK(list_request_taken(&list, &err));
    list.device++;
    ASSERT_STATUS(list_request_taken(&list, &err), PLASMON_EINVAL);
    ASSERT_CONTAINS(err.text, "device 65535");
    list.device = 0;
    list.kind   = (Plasmon__V1__ListKind)(PLASMON__V1__LIST_KIND__LIST_NODES + 1);
    ASSERT_STATUS(list_request_taken(&list, &err), PLASMON_EINVAL);
    ASSERT_CONTAINS(err.text, "kind 3");
    wire_arena_finish(&arena);
}

TEST(answers_outside_streams_are_checked)
{
    Plasmon__V1__StatusReply status      = PLASMON__V1__STATUS_REPLY__INIT;
    Plasmon__V1__DrainReply drain        = PLASMON__V1__DRAIN_REPLY__INIT;
    Plasmon__V1__Histogram histogram     = PLASMON__V1__HISTOGRAM__INIT;
    Plasmon__V1__Histogram *histograms[] = {&histogram, &histogram};
    struct pl_err err;

    ASSERT_OK(wire_arena_init(&arena, WIRE_ARENA_BYTES_MAX));
    drain.text = text_of('t', WIRE_TEXT_BYTES_MAX);
    ASSERT_OK(drain_reply_taken(&drain, &err));
    drain.text = text_of('t', WIRE_TEXT_BYTES_MAX + 1);
    ASSERT_STATUS(drain_reply_taken(&drain, &err), PLASMON_ELIMIT);
    ASSERT_CONTAINS(err.text, "text");

    status.n_histograms = 2;
    status.histograms   = histograms;
    ASSERT_OK(status_reply_taken(&status, &err));
    histogram.why = (Plasmon__V1__WaitWhy)WIRE_WAIT_WHYS;
    ASSERT_STATUS(status_reply_taken(&status, &err), PLASMON_EMALFORMED);
    ASSERT_CONTAINS(err.text, "histogram");
    status.n_histograms = 0;
    status.store_socket = text_of('s', WIRE_NAME_BYTES_MAX + 1);
    ASSERT_STATUS(status_reply_taken(&status, &err), PLASMON_ELIMIT);
    ASSERT_CONTAINS(err.text, "store_socket");
    wire_arena_finish(&arena);
}

/* -------------------------------------------------------------- what is shown to people */

#define SHOWN_BAD                 \
    "a\nb\tc\x1b[2Jd\x7f\xc2\x9b" \
    "e \xc3\xa9 \xc2"
#define SHOWN_GOOD "a b c?[2Jd?\?\?e \xc3\xa9 \xc2"

static void *decode_answer(const ProtobufCMessage *message, bool list)
{
    Plasmon__V1__StatusReply *status = NULL;
    Plasmon__V1__ListReply *rows     = NULL;
    struct pl_err err;
    uint8_t *bytes;
    size_t length;

    ASSERT_OK(wire_encode(message, create, &bytes, &length));
    wire_arena_reset(&arena);
    ASSERT_OK(list ? wire_decode_list_reply(&arena, bytes, length, &rows, &err)
                   : wire_decode_status_reply(&arena, bytes, length, &status, &err));
    pl_free(bytes);
    return list ? (void *)rows : (void *)status;
}

TEST(an_answer_that_is_shown_begins_no_line_and_tells_a_terminal_nothing)
{
    static char bad[]                  = SHOWN_BAD;
    Plasmon__V1__ListReply list        = PLASMON__V1__LIST_REPLY__INIT;
    Plasmon__V1__ObjectRow row         = PLASMON__V1__OBJECT_ROW__INIT;
    Plasmon__V1__ObjectPlace place     = PLASMON__V1__OBJECT_PLACE__INIT;
    Plasmon__V1__Shape shape           = PLASMON__V1__SHAPE__INIT;
    Plasmon__V1__StatusReply status    = PLASMON__V1__STATUS_REPLY__INIT;
    Plasmon__V1__ObjectRow *rows[]     = {&row};
    Plasmon__V1__ObjectPlace *places[] = {&place};
    const Plasmon__V1__ListReply *listed;

    ASSERT_OK(wire_arena_init(&arena, WIRE_ARENA_BYTES_MAX));
    shape.dtype     = PL_F32;
    row.label       = bad;
    row.failure     = bad;
    row.value_label = bad;
    row.shape       = &shape;
    place.node      = bad;
    row.n_places    = 1;
    row.places      = places;
    list.n_objects  = 1;
    list.objects    = rows;
    listed          = decode_answer(&list.base, true);
    ASSERT_STR(listed->objects[0]->label, SHOWN_GOOD);
    ASSERT_STR(listed->objects[0]->value_label, SHOWN_GOOD);
    ASSERT_STR(listed->objects[0]->failure, SHOWN_GOOD);
    ASSERT_STR(listed->objects[0]->places[0]->node, SHOWN_GOOD);
    ASSERT_STR(listed->objects[0]->name_space, "");

    status.version = bad;
    ASSERT_STR(((Plasmon__V1__StatusReply *)decode_answer(&status.base, false))->version,
               SHOWN_GOOD);
    wire_arena_finish(&arena);
}

TEST_MAIN()
