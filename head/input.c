/* Records: encoding, and decoding of bytes that may be anything. */
#include "head/input.h"

#include <string.h>

enum { BATCH_HEADER = 12, BATCH_VERSION = 21 };

static const struct input_shape {
    const char *name;
    uint8_t numbers;
    uint8_t strings;
} shapes[HEAD_INPUT_TYPES] = {
    [HEAD_INPUT_BEGIN]         = {"begin", 12, 1},
    [HEAD_INPUT_RESTART]       = {"restart", 2, 0},
    [HEAD_INPUT_RANDOM]        = {"random", 1, 0},
    [HEAD_INPUT_TICK]          = {"tick", 1, 0},
    [HEAD_INPUT_FLUSH]         = {"flush", 0, 0},
    [HEAD_INPUT_TIME]          = {"time", 1, 0},
    [HEAD_INPUT_CLIENT_OPEN]   = {"client open", 0, 1},
    [HEAD_INPUT_CLIENT_FRAME]  = {"client frame", 1, 1},
    [HEAD_INPUT_CLIENT_LOST]   = {"client lost", 2, 0},
    [HEAD_INPUT_CLIENT_RESUME] = {"client resume", 2, 0},
    [HEAD_INPUT_CLIENT_CLOSE]  = {"client close", 1, 0},
    [HEAD_INPUT_NODE_UP]       = {"node up", 0, 1},
    [HEAD_INPUT_NODE_LOST]     = {"node lost", 1, 1},
    [HEAD_INPUT_NODE_LEAVE]    = {"node leave", 1, 1},
    [HEAD_INPUT_DRAIN]         = {"drain", 1, 1},
    [HEAD_INPUT_DRAIN_UNDO]    = {"drain undo", 0, 1},
    [HEAD_INPUT_WORKER_UP]     = {"worker up", 0, 1},
    [HEAD_INPUT_WORKER_FRAME]  = {"worker frame", 1, 1},
    [HEAD_INPUT_WORKER_LOST]   = {"worker lost", 1, 0},
    [HEAD_INPUT_WORKER_DOWN]   = {"worker down", 4, 2},
    [HEAD_INPUT_SPILL_UP]      = {"spill up", 6, 1},
    [HEAD_INPUT_SPILL_DONE]    = {"spill done", 4, 2},
    [HEAD_INPUT_NAMESPACES]    = {"namespaces", 0, 0},
    [HEAD_INPUT_NAMESPACE]     = {"namespace", 4, 1},
};

const char *head_input_name(enum head_input_type type)
{
    return (unsigned)type < HEAD_INPUT_TYPES && shapes[type].name != NULL
               ? shapes[type].name
               : "unknown";
}

/* ---------------------------------------------------------------------------- check sum */

/* CRC-32C (Castagnoli), four bits at a step. */
static uint32_t crc_nibbles(uint32_t crc, const uint8_t *bytes, size_t length)
{
    static const uint32_t table[16] = {0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1,
                                       0x417b1dbc, 0x5125dad3, 0x61c69362, 0x7198540d,
                                       0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9,
                                       0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75};

    for (size_t i = 0; i < length; i++) {
        crc ^= bytes[i];
        crc = crc >> 4 ^ table[crc & 15];
        crc = crc >> 4 ^ table[crc & 15];
    }
    return crc;
}

#if defined(__x86_64__)
/* The processor's own: eight bytes a step. */
__attribute__((target("sse4.2"))) static uint32_t
crc_words(uint32_t crc, const uint8_t *bytes, size_t length)
{
    uint64_t sum = crc;

    for (; length >= 8; bytes += 8, length -= 8) {
        uint64_t word;

        memcpy(&word, bytes, sizeof(word));
        sum = __builtin_ia32_crc32di(sum, word);
    }
    return crc_nibbles((uint32_t)sum, bytes, length);
}

static bool crc_by_words(void)
{
    return __builtin_cpu_supports("sse4.2") != 0;
}
#else
#define crc_words crc_nibbles
static bool crc_by_words(void)
{
    return false;
}
#endif

uint32_t head_crc32c(uint32_t crc, const uint8_t *bytes, size_t length)
{
    return ~(crc_by_words() ? crc_words(~crc, bytes, length)
                            : crc_nibbles(~crc, bytes, length));
}

/* ---------------------------------------------------------------------------------- out */

void head_input_append(struct head_bytes *out, const struct head_input *input)
{
    const struct input_shape *shape = &shapes[input->type];
    uint8_t type                    = (uint8_t)input->type;

    head_bytes_append(out, &type, 1);
    for (uint32_t i = 0; i < shape->numbers; i++) {
        head_bytes_varint(out, input->numbers[i]);
    }
    for (uint32_t i = 0; i < shape->strings; i++) {
        head_bytes_varint(out, input->strings[i].length);
        head_bytes_append(out, input->strings[i].bytes, input->strings[i].length);
    }
}

static void put32(uint8_t *out, uint32_t value)
{
    for (int i = 0; i < 4; i++) {
        out[i] = (uint8_t)(value >> 8 * i);
    }
}

static uint32_t get32(const uint8_t *in)
{
    return (uint32_t)in[0] | (uint32_t)in[1] << 8 | (uint32_t)in[2] << 16 |
           (uint32_t)in[3] << 24;
}

void head_blob_begin(struct head_bytes *out)
{
    static const uint8_t room[BATCH_HEADER];

    out->length = 0;
    head_bytes_append(out, room, sizeof(room));
}

void head_blob_end(struct head_bytes *out, char kind)
{
    const uint8_t *content = out->data + BATCH_HEADER;
    size_t length          = out->length - BATCH_HEADER;

    PL_CHECK(out->length >= BATCH_HEADER && length <= UINT32_MAX);
    memcpy(out->data, (uint8_t[]){'P', (uint8_t)kind, BATCH_VERSION, 0}, 4);
    put32(out->data + 4, (uint32_t)length);
    put32(out->data + 8, head_crc32c(0, content, length));
}

bool head_input_batch_empty(const struct head_bytes *out)
{
    return out->length <= BATCH_HEADER;
}

/* ----------------------------------------------------------------------------------- in */

plasmon_status_t head_blob_open(const uint8_t *bytes, size_t length, char kind,
                                struct head_input_reader *out, struct pl_err *err)
{
    if (length < BATCH_HEADER || bytes[0] != 'P' || bytes[1] != (uint8_t)kind) {
        return pl_err_set(err, PLASMON_EMALFORMED,
                          "journal: this is not a %s of a journal of Plasmon",
                          kind == HEAD_BLOB_BATCH ? "batch" : "checkpoint");
    }
    if (bytes[2] != BATCH_VERSION || bytes[3] != 0) {
        return pl_err_set(err, PLASMON_EVERSION,
                          "journal: it was written in format %u, this head reads format "
                          "%u; start the head of the release that wrote it",
                          (unsigned)bytes[2], (unsigned)BATCH_VERSION);
    }
    if (get32(bytes + 4) != length - BATCH_HEADER ||
        get32(bytes + 8) != head_crc32c(0, bytes + BATCH_HEADER, length - BATCH_HEADER)) {
        return pl_err_set(err, PLASMON_EMALFORMED,
                          "journal: %zu bytes are damaged (check sum wrong)", length);
    }
    *out = (struct head_input_reader){bytes + BATCH_HEADER, bytes + length};
    return PLASMON_OK;
}

static bool take_varint(struct head_input_reader *reader, uint64_t *out)
{
    uint64_t value = 0;

    for (unsigned shift = 0; shift < 64 && reader->at < reader->end; shift += 7) {
        uint8_t byte = *reader->at++;

        if (shift == 63 && byte > 1) {
            return false;
        }
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            *out = value;
            return true;
        }
    }
    return false;
}

plasmon_status_t head_input_next(struct head_input_reader *reader, struct head_input *out,
                                 struct pl_err *err)
{
    const struct input_shape *shape;
    uint8_t type = reader->at < reader->end ? *reader->at++ : 0;

    if (type == 0 || type >= HEAD_INPUT_TYPES) {
        return pl_err_set(err, PLASMON_EMALFORMED,
                          "journal: a record of the unknown type %u", (unsigned)type);
    }
    shape = &shapes[type];
    *out  = (struct head_input){.type = (enum head_input_type)type};
    for (uint32_t i = 0; i < shape->numbers; i++) {
        if (!take_varint(reader, &out->numbers[i])) {
            return pl_err_set(err, PLASMON_EMALFORMED,
                              "journal: number %u of a record '%s' is cut off", i,
                              shape->name);
        }
    }
    for (uint32_t i = 0; i < shape->strings; i++) {
        uint64_t length;

        if (!take_varint(reader, &length) ||
            length > (uint64_t)(reader->end - reader->at)) {
            return pl_err_set(err, PLASMON_EMALFORMED,
                              "journal: string %u of a record '%s' is cut off", i,
                              shape->name);
        }
        out->strings[i] = (struct head_string){reader->at, (size_t)length};
        reader->at += length;
    }
    return PLASMON_OK;
}
