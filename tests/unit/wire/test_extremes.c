/*
 * Each field of each sample, spoiled alone: the largest number of its type, a kind that there is
 * none of, a text, bytes or a list longer than any may be. It is refused, or it is in the list of
 * what may be anything, because whoever uses it looks it up, compares it, or shows it. So a field
 * that is added is checked, or somebody has thought about it; and a check that goes missing is
 * missed here.
 */
#include "tests/harness/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "tests/unit/wire/samples.h"

enum { ITEMS = 69997, TEXT = 70001, BYTES = (1 << 20) + 1, FIELDS_MAX = 1000 };

/* clang-format off */
/* What may be anything; `[]`: as many of them as there is room for in a message. */
static const char *const free_fields[] = {
    "Arg.client", "Arg.reduce_op", "Arg.ref", "ClientFrame.cancel",
    "ClientFrame.cancel_force", "ClientFrame.graph_release", "ClientFrame.host_copies_heard", "ClientFrame.ping",
    "Condemned.seq", "Condemned.status", "Data.request", "Data.status", "Data.total",
    "Device.bytes_pinned", "Device.bytes_replica", "Device.bytes_reserved",
    "Device.bytes_scratch", "Device.bytes_total", "Device.bytes_used",
    "Device.communicators", "Device.communicators_opened", "Device.engines",
    "Device.down_ms", "Device.host_device", "Device.kind", "Device.largest_hole",
    "Device.launches", "Device.ordinal", "Device.queued", "Device.restarts",
    "Device.state", "Failure.first_client", "Failure.first_task", "Failure.status",
    "Failure.task", "FunctionDefine.id", "FunctionReport.id", "FunctionReport.status",
    "FunctionWait.function", "FunctionWait.request", "GraphNode.after[]", "GraphPart.id",
    "GraphScalar.value", "HeadFrame.host_copies", "HeadFrame.pong", "Header.ack", "Header.credit", "Header.epoch",
    "Header.seq", "Header.session", "Hello.protocol_max", "Hello.resume_ack",
    "Hello.resume_session", "Launch.after", "Launch.client", "Launch.function",
    "Launch.graph", "Launch.host_buffer", "Launch.launch_shape", "Launch.length",
    "Launch.offset", "Launch.order", "Launch.pair", "Launch.peer", "Launch.placed_ns",
    "Launch.priority", "Launch.ranks", "Launch.request", "Launch.scalars", "Launch.seq",
    "Launch.submit_ns", "Launch.task", "Launch.team", "Launch.time_limit_ms",
    "LaunchFailure.seq", "LaunchFailure.status", "LaunchWait.behind", "LaunchWait.client",
    "LaunchWait.device", "LaunchWait.peer", "LaunchWait.point", "LaunchWait.seq",
    "LaunchWait.since_ms", "LaunchWait.stream", "LaunchWait.task", "Locate.client",
    "Locate.hold_ref", "Locate.ref", "Locate.request", "Located.request", "Located.status",
    "Location.buffer", "Location.producer_seq", "Lookup.new_ref", "Lookup.request",
    "Lookup.task",
    "NodeCommand.ask", "NodeCommand.fence", "NodeCommand.fence_incarnation", "NodeFrame.answer", "NodeFrame.beat",
    "NodeHello.memory", "NodeHello.spill_life", "NodeHello.spill_slab",
    "NodeLeave.deadline_ms", "NodeLeft.bytes_left", "NodeLeft.objects_left",
    "NodeWelcome.epoch", "NumaPlace.device", "NumaPlace.nodes", "NumaPlace.pages",
    "NumaPlace.processors", "Operand.buffer", "Operand.graph_offset",
    "Operand.graph_operand", "Operand.reduce_op", "PairOrder.epoch", "PairOrder.team",
    "PairReport.bytes", "PairReport.chunk", "PairReport.epoch", "PairReport.team",
    "PairStats.busy_ns", "PairStats.bytes", "PairStats.in_flight",
    "PairStats.in_flight_bytes", "PairStats.rate", "PairStats.relays", "PairStats.retries",
    "PairStats.stalls", "PairStats.transfers", "PairStats.unreached_last",
    "PairStats.unreached_ms", "PairStats.written_bytes", "Piece.src", "Piece.src_frame",
    "Publish.ref", "Publish.request", "PutOpen.ref", "PutOpen.request", "PutReady.buffer",
    "PutReady.request", "PutReady.status", "PutSeal.ref", "Range.first", "Read.client",
    "Read.ref", "Read.request", "Relief.buffer", "Relief.host_buffer", "Relief.launch",
    "Relief.offset", "Relief.request", "Relief.seq", "Reply.request", "Reply.status", "RouteStats.bytes",
    "RouteStats.copies", "RouteStats.route", "Span.begin_ns", "Span.bytes", "Span.client",
    "Span.duration_ns", "Span.enqueued_ns", "Span.kind", "Span.peer", "Span.placed_ns",
    "Span.route", "Span.seq", "Span.stream", "Span.submit_ns", "Span.task",
    "SpanBatch.dropped", "SpanBatch.error_ns", "SpanBatch.request",
    "SpanBatch.run_streams", "SpillDone.bytes", "SpillDone.host_buffer", "SpillDone.id",
    "SpillDone.status", "SpillOp.file", "SpillOp.host_buffer", "SpillOp.id",
    "Starved.bytes", "Starved.largest_hole", "Starved.seq", "Task.function",
    "Task.function_retries", "Task.graph", "Task.host_buffer", "Task.host_offset",
    "Task.id", "Task.launch_shape", "Task.priority", "Task.put_offset", "Task.retries",
    "Task.scalars", "Task.submit_ns", "Task.time_limit_ms", "Trace.request",
    "Welcome.client", "Welcome.epoch", "Welcome.host_copies", "Welcome.protocol", "Welcome.resumed_seq",
    "Welcome.session", "WorkerCommand.cancel", "WorkerCommand.cancel_force",
    "WorkerCommand.free", "WorkerCommand.free[]", "WorkerCommand.function_free",
    "WorkerCommand.graph_free", "WorkerCommand.retire", "WorkerCommand.retire[]",
    "WorkerCommand.sent", "WorkerCommand.starve", "WorkerCommand.starve[]",
    "WorkerCommand.stats_request", "WorkerData.request", "WorkerData.status",
    "WorkerDown.incarnation", "WorkerDown.status", "WorkerDown.wait_status",
    "WorkerHello.bulk_clock_ms", "WorkerHello.bytes_total", "WorkerHello.comm_version",
    "WorkerHello.held", "WorkerHello.incarnation", "WorkerHello.kind", "WorkerHello.memory",
    "WorkerHello.ordinal", "WorkerHello.resume_ack", "WorkerHello.resume_session",
    "WorkerHello.runs", "WorkerStats.bytes_replica", "WorkerStats.bytes_reserved",
    "WorkerStats.bytes_scratch", "WorkerStats.bytes_used", "WorkerStats.cpu_ns",
    "WorkerStats.driver_ns", "WorkerStats.engines", "WorkerStats.largest_hole", "WorkerStats.launches",
    "WorkerStats.pairs[]", "WorkerStats.request", "WorkerWelcome.epoch",
    "WorkerWelcome.node_session", "WorkerWelcome.resumed_seq", "WorkerWelcome.session",
};

/* What no sample has: golden/ pins their bytes. test_hostile.c and test_decode.c look at these. */
static const char *const other_fields[] = {
    "Arg.index_step", "Reply.shape", "Task.bind", "Task.index", "Task.set",
    "WorkerStats.left", "WorkerStats.queue", "WorkerStats.transfers",
};
/* clang-format on */

static struct wire_arena arena;
static const struct wire_sample *sample;
static ProtobufCMessage *spoiled; /* the sample's message */

static struct field {
    char name[96];
    bool looked, taken;
} fields[FIELDS_MAX];

static struct field *field_of(const char *name)
{
    for (size_t i = 0; i < FIELDS_MAX; i++) {
        if (fields[i].name[0] == '\0') {
            (void)snprintf(fields[i].name, sizeof(fields[i].name), "%s", name);
        }
        if (strcmp(fields[i].name, name) == 0) {
            return &fields[i];
        }
    }
    test_fail(__FILE__, __LINE__, "more than %d fields", FIELDS_MAX);
    return NULL;
}

static struct field *note(const ProtobufCMessage *message,
                          const ProtobufCFieldDescriptor *field, const char *suffix)
{
    char name[96];

    (void)snprintf(name, sizeof(name), "%s.%s%s", message->descriptor->short_name,
                   field->name, suffix);
    return field_of(name);
}

static uint8_t *create(size_t length)
{
    return pl_alloc(length);
}

/* Is the message taken as it is now? part: what a refusal must say, for it to be this one; NULL: anything. */
static bool taken(const char *part)
{
    ProtobufCMessage *got = NULL;
    struct pl_err err     = {0};
    plasmon_status_t status;
    uint8_t *bytes;
    size_t length;

    if (wire_encode(spoiled, create, &bytes, &length) != PLASMON_OK) {
        return false; /* more than a message may have */
    }
    wire_arena_reset(&arena);
    status = sample->decode(&arena, bytes, length, &got, &err);
    pl_free(bytes);
    return status == PLASMON_OK || (part != NULL && strstr(err.text, part) == NULL &&
                                    strstr(err.text, "send less in one message") == NULL);
}

static void message_look(ProtobufCMessage *message);

static size_t bytes_of(const ProtobufCFieldDescriptor *field)
{
    switch (field->type) {
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
        return sizeof(uint64_t);
    case PROTOBUF_C_TYPE_MESSAGE:
    case PROTOBUF_C_TYPE_STRING:
        return sizeof(void *);
    case PROTOBUF_C_TYPE_BYTES:
        return sizeof(ProtobufCBinaryData);
    default:
        return sizeof(uint32_t);
    }
}

/* false: a flag, of which both values are good. */
static bool spoil(const ProtobufCFieldDescriptor *field, uint8_t *at)
{
    static uint8_t long_bytes[BYTES];
    static char long_text[TEXT + 1];
    const ProtobufCBinaryData data = {.len = BYTES, .data = long_bytes};
    const char *text               = long_text;
    int kind                       = 4711;

    switch (field->type) {
    case PROTOBUF_C_TYPE_BOOL:
        return false;
    case PROTOBUF_C_TYPE_STRING:
        memset(long_text, 'a', TEXT);
        memcpy(at, &text, sizeof(text));
        return true;
    case PROTOBUF_C_TYPE_BYTES:
        memcpy(at, &data, sizeof(data));
        return true;
    case PROTOBUF_C_TYPE_ENUM:
        memcpy(at, &kind, sizeof(kind));
        return true;
    default:
        memset(at, 0xff, bytes_of(field));
        return true;
    }
}

static void value_look(const ProtobufCMessage *message,
                       const ProtobufCFieldDescriptor *field, uint8_t *at)
{
    uint8_t kept[sizeof(ProtobufCBinaryData)];
    struct field *noted = note(message, field, "");

    noted->looked = true;
    memcpy(kept, at, bytes_of(field));
    if (field->type == PROTOBUF_C_TYPE_MESSAGE) {
        ProtobufCMessage *below;

        memcpy(&below, at, sizeof(below));
        message_look(below);
        return;
    }
    noted->taken |= spoil(field, at) && taken(NULL);
    memcpy(at, kept, bytes_of(field));
}

/* Its first element so many times. */
static void count_look(ProtobufCMessage *message, const ProtobufCFieldDescriptor *field,
                       uint8_t *items, size_t bytes)
{
    size_t *count = (size_t *)(void *)((uint8_t *)message + field->quantifier_offset);
    uint8_t *more = pl_alloc(ITEMS * bytes);
    size_t kept   = *count;
    char number[16];

    ASSERT_NOT_NULL(more);
    for (size_t i = 0; i < ITEMS; i++) {
        memcpy(more + i * bytes, items, bytes);
    }
    (void)snprintf(number, sizeof(number), "%d", ITEMS);
    memcpy((uint8_t *)message + field->offset, &more, sizeof(more));
    *count = ITEMS;
    note(message, field, "[]")->taken |= taken(number);
    memcpy((uint8_t *)message + field->offset, &items, sizeof(items));
    *count = kept;
    pl_free(more);
}

static void field_look(ProtobufCMessage *message, const ProtobufCFieldDescriptor *field)
{
    bool list   = field->label == PROTOBUF_C_LABEL_REPEATED;
    uint8_t *at = (uint8_t *)message + field->offset;
    uint8_t *value;

    (void)note(message, field, "");
    if (!list && field->type != PROTOBUF_C_TYPE_MESSAGE) {
        value_look(message, field, at);
        return;
    }
    memcpy(&value, at, sizeof(value));
    if (value == NULL) {
        return; /* another sample has it */
    }
    if (list) {
        count_look(message, field, value, bytes_of(field));
    }
    value_look(message, field, list ? value : at);
}

static void message_look(ProtobufCMessage *message)
{
    for (unsigned i = 0; i < message->descriptor->n_fields; i++) {
        field_look(message, &message->descriptor->fields[i]);
    }
}

static void sample_look(void)
{
    size_t length  = protobuf_c_message_get_packed_size(sample->message);
    uint8_t *bytes = pl_alloc(length);

    ASSERT_NOT_NULL(bytes);
    (void)protobuf_c_message_pack(sample->message, bytes);
    spoiled = protobuf_c_message_unpack(sample->message->descriptor, NULL, length, bytes);
    pl_free(bytes);
    ASSERT_NOT_NULL(spoiled);
    ASSERT_TRUE(taken(NULL));
    message_look(spoiled);
    protobuf_c_message_free_unpacked(spoiled, NULL);
}

static unsigned is_wrong(const struct field *field, const char *what)
{
    (void)printf("# %s %s\n", field->name, what);
    return 1;
}

/* How many are in the list without a reason. */
static unsigned free_look(void)
{
    unsigned wrong = 0;

    for (size_t i = 0; i < PL_COUNT(free_fields); i++) {
        struct field *field = field_of(free_fields[i]);

        if (!field->taken) {
            wrong += is_wrong(field, "is checked, it is not free");
        }
        field->taken = false;
    }
    for (size_t i = 0; i < PL_COUNT(other_fields); i++) {
        struct field *field = field_of(other_fields[i]);

        if (field->looked) {
            wrong += is_wrong(field, "is in a sample");
        }
        field->looked = true;
    }
    return wrong;
}

TEST(every_field_of_every_message_is_checked_or_may_be_anything)
{
    unsigned wrong;

    ASSERT_OK(wire_arena_init(&arena, WIRE_ARENA_BYTES_MAX));
    for (size_t i = 0; i < WIRE_SAMPLE_COUNT; i++) {
        sample = &wire_samples()[i];
        sample_look();
    }
    wire_arena_finish(&arena);
    wrong = free_look();
    for (size_t i = 0; i < FIELDS_MAX && fields[i].name[0] != '\0'; i++) {
        const struct field *field = &fields[i];

        if (field->taken) {
            wrong += is_wrong(field, "is not checked, and not said to be free");
        } else if (!field->looked && strchr(field->name, '[') == NULL) {
            wrong += is_wrong(field, "is in no sample");
        }
    }
    ASSERT_EQ(wrong, 0);
}

TEST_MAIN()
