/*
 * Launches, written by hand. A launch is encoded for each task, has 25 fields of which a dozen are
 * set, and protobuf-c goes through the descriptions of all of them twice, once for the size: half
 * of what the head did for a task. What is written here is what protobuf-c would write, to the
 * byte: fields by their numbers, zeros left out, numbers of repeated fields packed (test_wire_pack
 * compares them, with every field that the description has).
 */
#include "wire/wire.h"

#include <assert.h>
#include <endian.h>
#include <string.h>

/* some 140 operands; what is larger, and rare, is for protobuf-c */
#define SMALL_BYTES      32768
#define FIELD_BYTES_MAX  16 /* a tag and a number, or a tag and a length */
#define NUMBER_BYTES_MAX 10
#define LAUNCH_FIELDS    27
#define OPERAND_FIELDS   12
#define PIECE_FIELDS     4
#define SCALAR_BYTES_MAX (4 * FIELD_BYTES_MAX)
/* of one operand or piece whose numbers are at most NESTED_NUMBERS */
#define NESTED_BYTES_MAX   1024
#define NESTED_NUMBERS_MAX (6 * PL_DIM_MAX)

enum { VARINT = 0, FIXED64 = 1, LENGTH = 2, FIXED32 = 5 };

/* ------------------------------------------------------------------------------- fields */

/* Each returns where the next one goes. */

static uint8_t *put_varint(uint8_t *at, uint64_t value)
{
    while (value >= 0x80) {
        *at++ = (uint8_t)(value | 0x80);
        value >>= 7;
    }
    *at++ = (uint8_t)value;
    return at;
}

static uint8_t *put_tag(uint8_t *at, uint32_t field, uint32_t type)
{
    return put_varint(at, field << 3 | type);
}

static uint8_t *put_number(uint8_t *at, uint32_t field, uint64_t value)
{
    return value == 0 ? at : put_varint(put_tag(at, field, VARINT), value);
}

static uint8_t *put_signed(uint8_t *at, uint32_t field, int32_t value)
{
    uint32_t shifted = (uint32_t)value << 1;

    return put_number(at, field, value < 0 ? ~shifted : shifted);
}

static uint8_t *put_fixed32(uint8_t *at, uint32_t field, uint32_t value)
{
    const uint32_t little = htole32(value);

    if (value == 0) {
        return at;
    }
    at = put_tag(at, field, FIXED32);
    memcpy(at, &little, sizeof(little));
    return at + sizeof(little);
}

static uint8_t *put_eight(uint8_t *at, uint64_t value)
{
    const uint64_t little = htole64(value);

    memcpy(at, &little, sizeof(little));
    return at + sizeof(little);
}

static uint8_t *put_fixed64(uint8_t *at, uint32_t field, uint64_t value)
{
    return value == 0 ? at : put_eight(put_tag(at, field, FIXED64), value);
}

static uint8_t *put_bytes(uint8_t *at, uint32_t field, const void *bytes, size_t length)
{
    at = put_varint(put_tag(at, field, LENGTH), length);
    if (length > 0) {
        memcpy(at, bytes, length);
    }
    return at + length;
}

static uint8_t *put_fixed64s(uint8_t *at, uint32_t field, const uint64_t *values,
                             size_t count)
{
    if (count > 0) {
        at = put_varint(put_tag(at, field, LENGTH), count * sizeof(*values));
    }
    for (size_t i = 0; i < count; i++) {
        at = put_eight(at, values[i]);
    }
    return at;
}

static size_t varint_bytes(uint64_t value)
{
    size_t bytes = 1;

    while (value >= 0x80) {
        value >>= 7;
        bytes++;
    }
    return bytes;
}

/* So few that the bytes of the list are counted in one: they are written before they are counted. */
#define FEW (0x7f / NUMBER_BYTES_MAX)

static uint8_t *put_int64s(uint8_t *at, uint32_t field, const int64_t *values, size_t count)
{
    size_t length = 0;

    if (count == 0) {
        return at;
    }
    if (count <= FEW) {
        uint8_t *length_at = put_tag(at, field, LENGTH);

        at = length_at + 1;
        for (size_t i = 0; i < count; i++) {
            at = put_varint(at, (uint64_t)values[i]);
        }
        *length_at = (uint8_t)(at - length_at - 1);
        return at;
    }
    for (size_t i = 0; i < count; i++) {
        length += varint_bytes((uint64_t)values[i]);
    }
    at = put_varint(put_tag(at, field, LENGTH), length);
    for (size_t i = 0; i < count; i++) {
        at = put_varint(at, (uint64_t)values[i]);
    }
    return at;
}

/* Of a launch shape. */
static uint8_t *put_uint32s(uint8_t *at, uint32_t field, const uint32_t *values,
                            size_t count)
{
    int64_t numbers[WIRE_LAUNCH_SHAPE_COUNT];

    for (size_t i = 0; i < count; i++) {
        numbers[i] = values[i];
    }
    return put_int64s(at, field, numbers, count);
}

/* -------------------------------------------------------------------------------- parts */

static uint8_t *put_operand(uint8_t *at, const Plasmon__V1__Operand *operand)
{
    uint8_t body[NESTED_BYTES_MAX];
    uint8_t *end = body;

    end = put_number(end, 1, operand->mode);
    end = put_fixed64(end, 2, operand->buffer);
    end = put_number(end, 3, operand->fresh != 0);
    end = put_number(end, 4, operand->consume != 0);
    end = put_number(end, 5, operand->dtype);
    end = put_int64s(end, 6, operand->frame, operand->n_frame);
    end = put_int64s(end, 7, operand->view, operand->n_view);
    end = put_number(end, 8, operand->reduce_op);
    end = put_number(end, 9, operand->writable_by_client != 0);
    end = put_number(end, 10, operand->replica != 0);
    end = put_number(end, 11, operand->graph_operand);
    end = put_number(end, 12, operand->graph_offset);
    return put_bytes(at, 5, body, (size_t)(end - body));
}

static uint8_t *put_piece(uint8_t *at, const Plasmon__V1__Piece *piece)
{
    uint8_t body[NESTED_BYTES_MAX];
    uint8_t *end = body;

    end = put_fixed64(end, 1, piece->src);
    end = put_int64s(end, 2, piece->src_frame, piece->n_src_frame);
    end = put_int64s(end, 3, piece->box, piece->n_box);
    end = put_number(end, 4, piece->operand);
    return put_bytes(at, 8, body, (size_t)(end - body));
}

static uint8_t *put_scalar(uint8_t *at, const Plasmon__V1__GraphScalar *scalar)
{
    uint8_t body[SCALAR_BYTES_MAX];
    uint8_t *end = body;

    end = put_number(end, 1, scalar->task);
    end = put_number(end, 2, scalar->position);
    end = put_fixed64(end, 3, scalar->value);
    return put_bytes(at, 18, body, (size_t)(end - body));
}

/* ----------------------------------------------------------------------------- a launch */

static_assert(OPERAND_FIELDS * FIELD_BYTES_MAX + NESTED_NUMBERS_MAX * NUMBER_BYTES_MAX <=
                  NESTED_BYTES_MAX,
              "an operand fits");

/* 0: a part has more numbers than there are dimensions for, and is for protobuf-c. */
static size_t parts_bytes_max(const Plasmon__V1__Launch *launch)
{
    size_t bytes = FIELD_BYTES_MAX + launch->n_set * SCALAR_BYTES_MAX;

    for (size_t i = 0; i < launch->n_operands; i++) {
        size_t numbers = launch->operands[i]->n_frame + launch->operands[i]->n_view;

        if (numbers > NESTED_NUMBERS_MAX) {
            return 0;
        }
        bytes += (OPERAND_FIELDS + 1) * FIELD_BYTES_MAX + numbers * NUMBER_BYTES_MAX;
    }
    for (size_t i = 0; i < launch->n_pieces; i++) {
        size_t numbers = launch->pieces[i]->n_src_frame + launch->pieces[i]->n_box;

        if (numbers > NESTED_NUMBERS_MAX) {
            return 0;
        }
        bytes += (PIECE_FIELDS + 1) * FIELD_BYTES_MAX + numbers * NUMBER_BYTES_MAX;
    }
    return bytes;
}

static size_t launch_bytes_max(const Plasmon__V1__Launch *launch)
{
    size_t parts = parts_bytes_max(launch);

    return parts == 0 || launch->n_launch_shape > WIRE_LAUNCH_SHAPE_COUNT
               ? SIZE_MAX
               : parts + LAUNCH_FIELDS * FIELD_BYTES_MAX + launch->data.len +
                     (launch->label != NULL ? strlen(launch->label) : 0) +
                     (launch->n_scalars + launch->n_after) * sizeof(uint64_t) +
                     launch->n_launch_shape * NUMBER_BYTES_MAX;
}

static uint8_t *put_parts(uint8_t *at, const Plasmon__V1__Launch *launch)
{
    for (size_t i = 0; i < launch->n_operands; i++) {
        at = put_operand(at, launch->operands[i]);
    }
    at = put_fixed64s(at, 6, launch->scalars, launch->n_scalars);
    at = put_fixed64s(at, 7, launch->after, launch->n_after);
    for (size_t i = 0; i < launch->n_pieces; i++) {
        at = put_piece(at, launch->pieces[i]);
    }
    return launch->data.len == 0 ? at
                                 : put_bytes(at, 9, launch->data.data, launch->data.len);
}

static uint8_t *put_launch(uint8_t *at, const Plasmon__V1__Launch *launch)
{
    size_t label_length = launch->label != NULL ? strlen(launch->label) : 0;

    at = put_number(at, 1, launch->seq);
    at = put_number(at, 2, launch->order);
    at = put_number(at, 3, (uint64_t)(int64_t)launch->kind);
    at = put_fixed32(at, 4, launch->function);
    at = put_parts(at, launch);
    at = put_number(at, 10, launch->offset);
    at = put_number(at, 11, launch->length);
    at = put_number(at, 12, launch->peer);
    at = put_number(at, 13, launch->request);
    at = put_fixed64(at, 14, launch->client);
    at = put_number(at, 15, launch->task);
    at = label_length == 0 ? at : put_bytes(at, 16, launch->label, label_length);
    at = put_number(at, 17, launch->graph);
    for (size_t i = 0; i < launch->n_set; i++) {
        at = put_scalar(at, launch->set[i]);
    }
    at = put_uint32s(at, 19, launch->launch_shape, launch->n_launch_shape);
    at = put_number(at, 20, launch->time_limit_ms);
    at = put_fixed64(at, 21, launch->submit_ns);
    at = put_fixed64(at, 22, launch->placed_ns);
    at = put_signed(at, 23, launch->priority);
    at = put_fixed64(at, 24, launch->host_buffer);
    at = put_number(at, 25, launch->pair);
    at = put_number(at, 26, launch->team);
    return put_number(at, 27, launch->ranks);
}

uint8_t *wire_launch_pack(const Plasmon__V1__Launch *launch, uint8_t *room,
                          size_t room_bytes, void *(*create)(size_t bytes),
                          size_t *out_length)
{
    uint8_t small[SMALL_BYTES];
    bool fits = launch_bytes_max(launch) <= sizeof(small);
    uint8_t *out;

    *out_length = fits ? (size_t)(put_launch(small, launch) - small)
                       : plasmon__v1__launch__get_packed_size(launch);
    out         = room != NULL && *out_length <= room_bytes ? room : create(*out_length);
    if (out == NULL) {
        return NULL;
    }
    if (fits) {
        memcpy(out, small, *out_length);
    } else {
        (void)plasmon__v1__launch__pack(launch, out); /* its size was just computed */
    }
    return out;
}
