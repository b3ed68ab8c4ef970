/*
 * Encoding and decoding. Decoding is protobuf-c into the arena, then one walk over what came out
 * (check_*.c); nobody sees a message that has not passed it.
 */
#include "wire/wire_int.h"

#include <assert.h>

#include "base/alloc.h"

plasmon_status_t wire_encode(const ProtobufCMessage *message,
                             uint8_t *(*create)(size_t length), uint8_t **out_bytes,
                             size_t *out_length)
{
    size_t length = protobuf_c_message_get_packed_size(message);
    uint8_t *bytes;

    if (length > WIRE_MESSAGE_BYTES_MAX) {
        return PLASMON_ELIMIT;
    }

    bytes = create(length);
    if (bytes == NULL) {
        return PLASMON_ENOMEM;
    }

    *out_length = protobuf_c_message_pack(message, bytes);
    assert(*out_length == length);
    *out_bytes = bytes;
    return PLASMON_OK;
}

/* What clients send, who are trusted least. */
static const struct list_limit client_limits[] = {
    {"tasks", WIRE_TASKS_MAX},         {"release", WIRE_RANGES_MAX},
    {"locate", WIRE_RANGES_MAX},       {"read", WIRE_RANGES_MAX},
    {"cancel", WIRE_RANGES_MAX},       {"put_open", WIRE_RANGES_MAX},
    {"put_seal", WIRE_RANGES_MAX},     {"publish", WIRE_RANGES_MAX},
    {"lookup", WIRE_RANGES_MAX},       {"graph_release", WIRE_RANGES_MAX},
    {"define", WIRE_FUNCTIONS_MAX},    {"function_wait", WIRE_FUNCTIONS_MAX},
    {"cancel_force", WIRE_RANGES_MAX}, {NULL, 0},
};
static const struct list_limit no_limits[] = {{NULL, 0}};

static plasmon_status_t decode(struct wire_arena *arena,
                               const ProtobufCMessageDescriptor *type,
                               const struct list_limit *limits, const char *name,
                               const uint8_t *bytes, size_t length, ProtobufCMessage **out,
                               struct pl_err *err)
{
    plasmon_status_t status;

    if (length > WIRE_MESSAGE_BYTES_MAX) {
        return pl_err_set(err, PLASMON_ELIMIT, "%s of %zu bytes; the limit is %u", name,
                          length, WIRE_MESSAGE_BYTES_MAX);
    }

    status =
        limits->name != NULL ? check_lists(type, limits, bytes, length, err) : PLASMON_OK;
    if (status != PLASMON_OK) {
        return check_below(err, status, name, -1);
    }

    if (type == &plasmon__v1__client_frame__descriptor) {
        *out = wire_unpack_client_frame(arena, bytes, length);
    } else if (type == &plasmon__v1__worker_command__descriptor) {
        *out = wire_unpack_worker_command(arena, bytes, length);
    } else {
        *out = protobuf_c_message_unpack(type, &arena->allocator, length, bytes);
    }
    if (*out != NULL) {
        return PLASMON_OK;
    }

    if (arena->refused) {
        return pl_err_set(
            err, PLASMON_ELIMIT,
            "%s of %zu bytes would take more than %zu bytes decoded: send less in one "
            "message",
            name, length, arena->bytes_max);
    }
    if (arena->out_of_memory) {
        return pl_err_set(err, PLASMON_ENOMEM, "out of host memory for a %s of %zu bytes",
                          name, length);
    }
    return pl_err_set(err, PLASMON_EMALFORMED, "%zu bytes are not a %s", length, name);
}

static void as_it_is(ProtobufCMessage *message)
{
    (void)message;
}

/* One public function a message; the body is the same but for its types. */
#define WIRE_DECODE(function, struct_type, descriptor, limits, check, name) \
    WIRE_DECODE_AS(function, struct_type, descriptor, limits, check, name, as_it_is)
/* .. and what is then done with it; answers are for somebody's terminal. */
#define WIRE_DECODE_ANSWER(function, struct_type, descriptor, check, name)    \
    WIRE_DECODE_AS(function, struct_type, descriptor, no_limits, check, name, \
                   wire_texts_clean)
#define WIRE_DECODE_AS(function, struct_type, descriptor, limits, check, name, then) \
    plasmon_status_t function(struct wire_arena *arena, const uint8_t *bytes,        \
                              size_t length, struct_type **out, struct pl_err *err)  \
    {                                                                                \
        ProtobufCMessage *message = NULL;                                            \
        plasmon_status_t status =                                                    \
            decode(arena, &descriptor, limits, name, bytes, length, &message, err);  \
                                                                                     \
        if (status == PLASMON_OK) {                                                  \
            status = check((struct_type *)message, err);                             \
            if (status == PLASMON_OK) {                                              \
                then(message);                                                       \
                *out = (struct_type *)message;                                       \
            } else {                                                                 \
                status = check_below(err, status, name, -1);                         \
            }                                                                        \
        }                                                                            \
        return status;                                                               \
    }

WIRE_DECODE(wire_decode_client_frame, Plasmon__V1__ClientFrame,
            plasmon__v1__client_frame__descriptor, client_limits, check_client_frame,
            "client frame")
WIRE_DECODE(wire_decode_head_frame, Plasmon__V1__HeadFrame,
            plasmon__v1__head_frame__descriptor, no_limits, check_head_frame, "head frame")
WIRE_DECODE(wire_decode_worker_frame, Plasmon__V1__WorkerFrame,
            plasmon__v1__worker_frame__descriptor, no_limits, check_worker_frame,
            "worker frame")
WIRE_DECODE(wire_decode_worker_command, Plasmon__V1__WorkerCommand,
            plasmon__v1__worker_command__descriptor, no_limits, check_worker_command,
            "worker command")
WIRE_DECODE(wire_decode_node_frame, Plasmon__V1__NodeFrame,
            plasmon__v1__node_frame__descriptor, no_limits, check_node_frame, "node frame")
WIRE_DECODE(wire_decode_node_command, Plasmon__V1__NodeCommand,
            plasmon__v1__node_command__descriptor, no_limits, check_node_command,
            "node command")
WIRE_DECODE(wire_decode_status_request, Plasmon__V1__StatusRequest,
            plasmon__v1__status_request__descriptor, no_limits, check_status_request,
            "status request")
WIRE_DECODE_ANSWER(wire_decode_status_reply, Plasmon__V1__StatusReply,
                   plasmon__v1__status_reply__descriptor, check_status_reply,
                   "status reply")
WIRE_DECODE(wire_decode_drain_request, Plasmon__V1__DrainRequest,
            plasmon__v1__drain_request__descriptor, no_limits, check_drain_request,
            "drain request")
WIRE_DECODE_ANSWER(wire_decode_drain_reply, Plasmon__V1__DrainReply,
                   plasmon__v1__drain_reply__descriptor, check_drain_reply, "drain reply")
WIRE_DECODE(wire_decode_list_request, Plasmon__V1__ListRequest,
            plasmon__v1__list_request__descriptor, no_limits, check_list_request,
            "list request")
WIRE_DECODE_ANSWER(wire_decode_list_reply, Plasmon__V1__ListReply,
                   plasmon__v1__list_reply__descriptor, check_list_reply, "list reply")
