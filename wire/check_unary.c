/*
 * Checks of unary calls: what people and scripts ask the head, and what it answers.
 *
 * Nothing in an answer is an address, an index or a size of memory: it is shown, and who shows it
 * takes any number and any bytes (a text that was cut is no UTF-8 at its end, and must not hide the
 * rest of a status). So what has to be right is that no text is longer than a page, and no list
 * longer than what one cluster can have. That is asked of whatever a message holds, at any depth,
 * by its descriptor, so that a field that is added later is checked without a line here.
 */
#include "wire/wire_int.h"

#include <string.h>

#define UNARY_LIST_MAX (1u << 20) /* pairs of devices are the longest */

static plasmon_status_t check_message(const ProtobufCMessage *message, struct pl_err *err);

/* Element `index` of a field: what protobuf-c keeps there. */
static const void *element(const ProtobufCFieldDescriptor *field, const void *member,
                           size_t index)
{
    const void *value;

    if (field->label == PROTOBUF_C_LABEL_REPEATED) {
        const void *const *list;

        memcpy(&list, member, sizeof(list));
        return list[index];
    }
    memcpy(&value, member, sizeof(value));
    return value;
}

static plasmon_status_t check_element(const ProtobufCFieldDescriptor *field,
                                      const void *value, long index, struct pl_err *err)
{
    plasmon_status_t status;

    if (field->type == PROTOBUF_C_TYPE_STRING) {
        ProtobufCBinaryData text = {.len = wire_arena_text_length(value)};

        return check_bytes(&text, WIRE_TEXT_BYTES_MAX, field->name, err);
    }
    if (value == NULL) {
        return PLASMON_OK; /* a message that is not there */
    }
    status = check_message(value, err);
    return status == PLASMON_OK ? PLASMON_OK : check_below(err, status, field->name, index);
}

static plasmon_status_t check_field(const ProtobufCMessage *message,
                                    const ProtobufCFieldDescriptor *field,
                                    struct pl_err *err)
{
    const uint8_t *member = (const uint8_t *)message + field->offset;
    bool repeated         = field->label == PROTOBUF_C_LABEL_REPEATED;
    plasmon_status_t status;
    size_t count = 1;

    if (repeated) {
        memcpy(&count, (const uint8_t *)message + field->quantifier_offset, sizeof(count));
    }
    status = check_count(count, UNARY_LIST_MAX, field->name, err);
    if (field->type != PROTOBUF_C_TYPE_STRING && field->type != PROTOBUF_C_TYPE_MESSAGE) {
        return status;
    }
    for (size_t i = 0; status == PLASMON_OK && i < count; i++) {
        status =
            check_element(field, element(field, member, i), repeated ? (long)i : -1, err);
    }
    return status;
}

static plasmon_status_t check_message(const ProtobufCMessage *message, struct pl_err *err)
{
    plasmon_status_t status = PLASMON_OK;

    for (unsigned i = 0; status == PLASMON_OK && i < message->descriptor->n_fields; i++) {
        status = check_field(message, &message->descriptor->fields[i], err);
    }
    return status;
}

plasmon_status_t check_status_request(const Plasmon__V1__StatusRequest *request,
                                      struct pl_err *err)
{
    plasmon_status_t status = check_name(request->host, WIRE_NAME_BYTES_MAX, "host", err);

    if (status == PLASMON_OK) {
        status = check_name(request->label, WIRE_NAME_BYTES_MAX, "label", err);
    }
    return status == PLASMON_OK ? check_message(&request->base, err) : status;
}

plasmon_status_t check_status_reply(const Plasmon__V1__StatusReply *reply,
                                    struct pl_err *err)
{
    plasmon_status_t status = check_message(&reply->base, err);

    if (status == PLASMON_OK) {
        status = check_name(reply->store_socket, WIRE_NAME_BYTES_MAX, "store_socket", err);
    }
    for (size_t i = 0; status == PLASMON_OK && i < reply->n_histograms; i++) {
        status = check_histogram(reply->histograms[i], err);
    }
    return status == PLASMON_OK
               ? check_count(reply->n_devices, WIRE_DEVICES_MAX, "devices", err)
               : status;
}

plasmon_status_t check_drain_request(const Plasmon__V1__DrainRequest *request,
                                     struct pl_err *err)
{
    plasmon_status_t status = check_name(request->node, WIRE_NAME_BYTES_MAX, "node", err);

    if (status == PLASMON_OK && request->deadline_ms > WIRE_DRAIN_MS_MAX) {
        status = pl_err_set(err, PLASMON_EINVAL, "a deadline of more than a day");
    }
    return status;
}

plasmon_status_t check_drain_reply(const Plasmon__V1__DrainReply *reply, struct pl_err *err)
{
    return check_message(&reply->base, err);
}

plasmon_status_t check_list_request(const Plasmon__V1__ListRequest *request,
                                    struct pl_err *err)
{
    if (request->kind > PLASMON__V1__LIST_KIND__LIST_NODES) {
        return pl_err_set(err, PLASMON_EINVAL, "kind %d is none of tasks, objects, nodes",
                          (int)request->kind);
    }
    if (request->device > WIRE_DEVICES_MAX) {
        return pl_err_set(err, PLASMON_EINVAL, "device %u: a cluster has at most %u",
                          request->device - 1, WIRE_DEVICES_MAX);
    }
    return check_name(request->label, WIRE_NAME_BYTES_MAX, "label", err);
}

plasmon_status_t check_list_reply(const Plasmon__V1__ListReply *reply, struct pl_err *err)
{
    return check_message(&reply->base, err);
}
