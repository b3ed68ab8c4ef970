/* Random messages by their description; see random_message.h. */
#include "tests/unit/wire/random_message.h"

#include <string.h>

#include "base/alloc.h"
#include "tests/harness/test.h"

#define NUMBERS_MAX  40u
#define PARTS_MAX    4u
#define STRING_BYTES 64u

uint64_t draw(struct rng *rng)
{
    rng->state ^= rng->state << 13;
    rng->state ^= rng->state >> 7;
    rng->state ^= rng->state << 17;
    return rng->state;
}

/* Numbers of every length, 0 among them. */
static uint64_t draw_number(struct rng *rng)
{
    uint64_t value = draw(rng) >> (draw(rng) % 64);

    return draw(rng) % 4 == 0 ? 0 : draw(rng) % 8 == 0 ? ~value : value;
}

static size_t element_bytes(const ProtobufCFieldDescriptor *field)
{
    switch (field->type) {
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
        return sizeof(uint64_t);
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_SINT32:
    case PROTOBUF_C_TYPE_FIXED32:
        return sizeof(uint32_t);
    case PROTOBUF_C_TYPE_BOOL:
        return sizeof(protobuf_c_boolean);
    case PROTOBUF_C_TYPE_ENUM:
        return sizeof(int);
    case PROTOBUF_C_TYPE_MESSAGE:
        return sizeof(void *);
    default:
        test_fail(__FILE__, __LINE__, "%s is of a type that this test does not know",
                  field->name);
    }
}

static void *message_new(struct rng *rng, const ProtobufCFieldDescriptor *field)
{
    const ProtobufCMessageDescriptor *descriptor = field->descriptor;
    ProtobufCMessage *message                    = pl_alloc(descriptor->sizeof_message);

    ASSERT_NOT_NULL(message);
    descriptor->message_init(message);
    message_fill(rng, message);
    return message;
}

static void element_fill(struct rng *rng, const ProtobufCFieldDescriptor *field, void *at)
{
    uint64_t value = draw_number(rng);
    uint32_t low   = (uint32_t)value;
    int kind       = (int)(value % 12);
    void *message;

    switch (field->type) {
    case PROTOBUF_C_TYPE_MESSAGE:
        message = message_new(rng, field);
        memcpy(at, &message, sizeof(message));
        break;
    case PROTOBUF_C_TYPE_BOOL:
        *(protobuf_c_boolean *)at = value & 1;
        break;
    case PROTOBUF_C_TYPE_ENUM:
        memcpy(at, &kind, sizeof(kind));
        break;
    default:
        memcpy(at, element_bytes(field) == 4 ? (void *)&low : (void *)&value,
               element_bytes(field));
    }
}

static void repeated_fill(struct rng *rng, const ProtobufCFieldDescriptor *field,
                          char *message)
{
    bool messages = field->type == PROTOBUF_C_TYPE_MESSAGE;
    size_t count  = draw(rng) % (messages ? PARTS_MAX : NUMBERS_MAX / 2);
    char *items;

    if (count == 0 || draw(rng) % 3 == 0) {
        return;
    }
    items = pl_alloc(count * element_bytes(field));
    ASSERT_NOT_NULL(items);
    for (size_t i = 0; i < count; i++) {
        element_fill(rng, field, items + i * element_bytes(field));
    }
    memcpy(message + field->offset, &items, sizeof(items));
    memcpy(message + field->quantifier_offset, &count, sizeof(count));
}

static char *draw_string(struct rng *rng, size_t length)
{
    char *string = pl_alloc(length + 1);

    ASSERT_NOT_NULL(string);
    for (size_t i = 0; i < length; i++) {
        string[i] = (char)('a' + draw(rng) % 26);
    }
    return string;
}

void message_field_fill(struct rng *rng, const ProtobufCFieldDescriptor *field,
                        char *message)
{
    void *at = message + field->offset;

    if (field->label == PROTOBUF_C_LABEL_REPEATED) {
        repeated_fill(rng, field, message);
    } else if (field->type == PROTOBUF_C_TYPE_STRING) {
        char *string = draw_string(rng, draw(rng) % STRING_BYTES);

        memcpy(at, &string, sizeof(string));
    } else if (field->type == PROTOBUF_C_TYPE_BYTES) {
        /* Now and then more than is packed by hand. */
        size_t length            = draw(rng) % (draw(rng) % 4 == 0 ? 10000 : STRING_BYTES);
        ProtobufCBinaryData data = {.data = (uint8_t *)draw_string(rng, length),
                                    .len  = length};

        memcpy(at, &data, sizeof(data));
    } else {
        element_fill(rng, field, at);
    }
}

void message_fill(struct rng *rng, ProtobufCMessage *message)
{
    bool all = draw(rng) % 8 == 0;

    for (unsigned i = 0; i < message->descriptor->n_fields; i++) {
        if (all || draw(rng) % 3 == 0) {
            message_field_fill(rng, &message->descriptor->fields[i], (char *)message);
        }
    }
}

void message_free(ProtobufCMessage *message)
{
    for (unsigned i = 0; i < message->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &message->descriptor->fields[i];
        char *at                              = (char *)message + field->offset;
        size_t count;
        void *items = NULL;

        if (field->label == PROTOBUF_C_LABEL_REPEATED ||
            field->type == PROTOBUF_C_TYPE_STRING ||
            field->type == PROTOBUF_C_TYPE_MESSAGE) {
            memcpy(&items, at, sizeof(items));
        }
        if (field->label == PROTOBUF_C_LABEL_REPEATED) {
            memcpy(&count, (char *)message + field->quantifier_offset, sizeof(count));
            for (size_t k = 0; field->type == PROTOBUF_C_TYPE_MESSAGE && k < count; k++) {
                message_free(((ProtobufCMessage **)items)[k]);
                pl_free(((ProtobufCMessage **)items)[k]);
            }
            pl_free(items);
        } else if (field->type == PROTOBUF_C_TYPE_MESSAGE && items != NULL) {
            message_free(items);
            pl_free(items);
        } else if (field->type == PROTOBUF_C_TYPE_STRING &&
                   items != (const void *)field->default_value &&
                   items != (const void *)protobuf_c_empty_string) {
            pl_free(items);
        } else if (field->type == PROTOBUF_C_TYPE_BYTES) {
            pl_free(((ProtobufCBinaryData *)(void *)at)->data);
        }
    }
}
