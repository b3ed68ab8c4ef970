/* Messages at random, from their descriptors. */
#include "tests/integration/hostile.h"

#include <stdlib.h>

#include "base/base.h"

#define DEPTH_MAX 4

void hostile_know(struct hostile_words *words, uint64_t number)
{
    if (words->known_count < HOSTILE_KNOWN_MAX) {
        words->known[words->known_count++] = number;
    } else {
        words->known[hostile_below(words, HOSTILE_KNOWN_MAX)] = number;
    }
}

uint64_t hostile_below(struct hostile_words *words, uint64_t limit)
{
    return test_random(&words->rng) % limit;
}

static bool chance(struct hostile_words *words, unsigned percent)
{
    return hostile_below(words, 100) < percent;
}

static uint64_t number(struct hostile_words *words)
{
    static const uint64_t edges[] = {0,          1,          127,        128,
                                     4095,       4096,       65535,      65536,
                                     0x7fffffff, 0x80000000, 0xffffffff, 0x100000000,
                                     INT64_MAX,  1ull << 63, UINT64_MAX, 1ull << 48};

    switch (hostile_below(words, 4)) {
    case 0:
        return words->known_count > 0
                   ? words->known[hostile_below(words, words->known_count)]
                   : 1;
    case 1:
        return edges[hostile_below(words, PL_COUNT(edges))] + hostile_below(words, 3) - 1;
    case 2:
        return test_random(&words->rng);
    default:
        return hostile_below(words, 8);
    }
}

static void *must(void *memory)
{
    ASSERT_NOT_NULL(memory);
    return memory;
}

static char *text(struct hostile_words *words)
{
    unsigned count = 0;
    size_t length;
    char *made;

    while (words->texts != NULL && words->texts[count] != NULL) {
        count++;
    }
    if (count > 0 && chance(words, 60)) {
        return must(strdup(words->texts[hostile_below(words, count)]));
    }
    length = chance(words, 10) ? 5000 : hostile_below(words, 300);
    made   = must(malloc(length + 1));
    for (size_t i = 0; i < length; i++) {
        made[i] = (char)(chance(words, 95) ? 'a' + (int)hostile_below(words, 26)
                                           : (int)(1 + hostile_below(words, 255)));
    }
    made[length] = '\0';
    return made;
}

static ProtobufCBinaryData bytes(struct hostile_words *words)
{
    static const size_t lengths[] = {0, 1, 16, 32, 64, 128, 256, 1000, 4096, 1 << 20};
    ProtobufCBinaryData made = {.len = lengths[hostile_below(words, PL_COUNT(lengths))]};

    made.data = must(malloc(made.len + 1));
    memset(made.data, (int)hostile_below(words, 256), made.len);
    return made;
}

static ProtobufCMessage *make(struct hostile_words *words,
                              const ProtobufCMessageDescriptor *descriptor, unsigned depth);

/* One value of the field, at `out`; its size. Depth: of the message that has it. */
static size_t one(struct hostile_words *words, const ProtobufCFieldDescriptor *field,
                  void *out, unsigned depth)
{
    uint64_t drawn = number(words);
    uint32_t small = (uint32_t)drawn;
    int boolean    = (int)(drawn & 1);
    int enumerator = (int)hostile_below(words, 18);
    char *string;
    ProtobufCBinaryData data;
    ProtobufCMessage *message;

    switch (field->type) {
    case PROTOBUF_C_TYPE_BOOL:
        memcpy(out, &boolean, sizeof(boolean));
        return sizeof(protobuf_c_boolean);
    case PROTOBUF_C_TYPE_ENUM:
        memcpy(out, &enumerator, sizeof(enumerator));
        return sizeof(enumerator);
    case PROTOBUF_C_TYPE_STRING:
        string = text(words);
        memcpy(out, &string, sizeof(string));
        return sizeof(string);
    case PROTOBUF_C_TYPE_BYTES:
        data = bytes(words);
        memcpy(out, &data, sizeof(data));
        return sizeof(data);
    case PROTOBUF_C_TYPE_MESSAGE:
        message = make(words, field->descriptor, depth + 1);
        memcpy(out, &message, sizeof(message));
        return sizeof(message);
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64:
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
    case PROTOBUF_C_TYPE_DOUBLE:
        memcpy(out, &drawn, sizeof(drawn));
        return sizeof(drawn);
    default:
        memcpy(out, &small, sizeof(small));
        return sizeof(small);
    }
}

static size_t how_many(struct hostile_words *words, const ProtobufCFieldDescriptor *field)
{
    bool nested = field->type == PROTOBUF_C_TYPE_MESSAGE ||
                  field->type == PROTOBUF_C_TYPE_STRING ||
                  field->type == PROTOBUF_C_TYPE_BYTES;

    if (chance(words, 2)) {
        return nested ? 5000 / 16 : 70000; /* beyond the limits of most lists */
    }
    return nested ? hostile_below(words, 4) : hostile_below(words, 26);
}

static void repeated(struct hostile_words *words, const ProtobufCFieldDescriptor *field,
                     ProtobufCMessage *message, unsigned depth)
{
    size_t count = how_many(words, field);
    char *list, *pos;

    if (count == 0) {
        return;
    }
    list = pos = must(calloc(count, sizeof(ProtobufCBinaryData)));
    for (size_t i = 0; i < count; i++) {
        pos += one(words, field, pos, depth);
    }
    memcpy((char *)message + field->offset, &list, sizeof(list));
    memcpy((char *)message + field->quantifier_offset, &count, sizeof(count));
}

static ProtobufCMessage *make(struct hostile_words *words,
                              const ProtobufCMessageDescriptor *descriptor, unsigned depth)
{
    ProtobufCMessage *message = must(malloc(descriptor->sizeof_message));
    unsigned percent          = depth == 0 ? 15 : 45;

    protobuf_c_message_init(descriptor, message);
    for (unsigned i = 0; i < descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &descriptor->fields[i];

        if (!chance(words, percent) || (depth == 0 && strcmp(field->name, "header") == 0) ||
            (depth == DEPTH_MAX && field->type == PROTOBUF_C_TYPE_MESSAGE)) {
            continue;
        }
        if (field->label == PROTOBUF_C_LABEL_REPEATED) {
            repeated(words, field, message, depth);
        } else {
            (void)one(words, field, (char *)message + field->offset, depth);
        }
    }
    return message;
}

ProtobufCMessage *hostile_message(struct hostile_words *words,
                                  const ProtobufCMessageDescriptor *descriptor)
{
    return make(words, descriptor, 0);
}

void hostile_scramble(struct hostile_words *words, uint8_t *message, size_t *io_length)
{
    for (uint64_t changes = 1 + hostile_below(words, 4); changes > 0 && *io_length > 0;
         changes--) {
        size_t at = (size_t)hostile_below(words, *io_length);

        switch (hostile_below(words, 4)) {
        case 0:
            message[at] ^= (uint8_t)(1u << hostile_below(words, 8));
            break;
        case 1:
            message[at] = (uint8_t)test_random(&words->rng);
            break;
        case 2:
            memset(message + at, 0xff,
                   (size_t)pl_min_u64(*io_length - at, 1 + hostile_below(words, 10)));
            break;
        default:
            *io_length = at;
        }
    }
}
