/*
 * How long the lists of a message are, before it is decoded: one over its limit is refused for the
 * price of looking at its bytes, and not for that of making as many structs first (check_*.c would
 * count those). A list of four million empty tasks fits into a frame.
 *
 * Only the outermost level is looked at. Whatever is not well formed is left to the decoder, which says so.
 */
#include <assert.h>

#include "wire/wire_int.h"

#define FIELDS_MAX 32u /* numbers of fields that are counted */

struct reader {
    const uint8_t *at;
    const uint8_t *end;
};

/* false: there is none, or it has too many bytes. */
static bool varint_read(struct reader *reader, uint64_t *out)
{
    uint64_t value = 0;

    for (unsigned shift = 0; shift < 64 && reader->at < reader->end; shift += 7) {
        uint8_t byte = *reader->at++;

        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            *out = value;
            return true;
        }
    }
    return false;
}

/* Numbers in a packed list: each ends with a byte below 0x80. */
static size_t varint_count(const uint8_t *bytes, size_t length)
{
    size_t count = 0;

    for (size_t i = 0; i < length; i++) {
        count += bytes[i] < 0x80;
    }
    return count;
}

/* How many elements of a field such bytes are. */
static size_t elements(const ProtobufCFieldDescriptor *field, const uint8_t *bytes,
                       size_t length)
{
    if (field == NULL || field->label != PROTOBUF_C_LABEL_REPEATED) {
        return 0;
    }
    switch (field->type) {
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_BYTES:
    case PROTOBUF_C_TYPE_MESSAGE:
        return 1;
    case PROTOBUF_C_TYPE_FIXED64:
    case PROTOBUF_C_TYPE_SFIXED64:
    case PROTOBUF_C_TYPE_DOUBLE:
        return length / 8;
    case PROTOBUF_C_TYPE_FIXED32:
    case PROTOBUF_C_TYPE_SFIXED32:
    case PROTOBUF_C_TYPE_FLOAT:
        return length / 4;
    default:
        return varint_count(bytes, length);
    }
}

/* What follows a tag. false: it is cut off, or of a kind that there is not. */
static bool value_read(struct reader *reader, unsigned kind, const uint8_t **out_bytes,
                       size_t *out_length)
{
    uint64_t length = kind == 1 ? 8 : 4, value;

    *out_bytes = reader->at;
    if (kind == 0) {
        if (!varint_read(reader, &value)) {
            return false;
        }
        *out_length = (size_t)(reader->at - *out_bytes);
        return true;
    }
    if (kind == 2 && !varint_read(reader, &length)) {
        return false;
    }
    if ((kind != 1 && kind != 2 && kind != 5) ||
        length > (uint64_t)(reader->end - reader->at)) {
        return false;
    }
    *out_bytes  = reader->at;
    *out_length = (size_t)length;
    reader->at += length;
    return true;
}

plasmon_status_t check_lists(const ProtobufCMessageDescriptor *type,
                             const struct list_limit *limits, const uint8_t *bytes,
                             size_t length, struct pl_err *err)
{
    struct reader reader      = {.at = bytes, .end = bytes + length};
    size_t counts[FIELDS_MAX] = {0};
    plasmon_status_t status   = PLASMON_OK;
    const uint8_t *value;
    size_t value_length;
    uint64_t tag;

    while (varint_read(&reader, &tag) &&
           value_read(&reader, (unsigned)tag & 7u, &value, &value_length)) {
        if (tag >> 3 < FIELDS_MAX) {
            counts[tag >> 3] += elements(
                protobuf_c_message_descriptor_get_field(type, (unsigned)(tag >> 3)), value,
                value_length);
        }
    }
    for (; status == PLASMON_OK && limits->name != NULL; limits++) {
        const ProtobufCFieldDescriptor *field =
            protobuf_c_message_descriptor_get_field_by_name(type, limits->name);

        assert(field != NULL && field->id < FIELDS_MAX);
        status = check_count(counts[field->id], limits->max, limits->name, err);
    }
    return status;
}
