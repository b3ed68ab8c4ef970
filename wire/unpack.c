/*
 * The tasks of a client's frame and the launches of a worker's command, read by hand. There is one
 * for each call of a program, of 27 fields of which half a dozen are set, and protobuf-c looks up
 * each in the description of all and allocates as it goes: a fifth of what the head does for a
 * task, and 40 % of what a worker does.
 *
 * WHAT IS READ HERE is the form that clients and heads write: fields in increasing order, numbers
 * of repeated fields packed, nothing that this file does not know. A task or launch of any other
 * form, or with one of the rare fields, is protobuf-c's, byte by byte; so is all of the frame but
 * its tasks or launches. So what comes out is what protobuf-c makes of the bytes, whatever they
 * are, and what it refuses is refused (test_wire_unpack compares them).
 *
 * protobuf-c's answer does not depend on where among the other fields the tasks stand: those are
 * cut out, and the rest, in its order, is unpacked.
 *
 * MOST ARE LIKE ONE BEFORE THEM. A program makes the same few calls over and over, and each says
 * again, in the same bytes, which function it is, with what arguments, scalars and launch shape.
 * Fields that follow each other (a stretch) are compared with the same ones of an earlier item of
 * the message; where the bytes are equal, what they were read as serves both. So items share their
 * lists: nobody writes into a message that was decoded, and who has checked a list or copied it
 * need not do so again (check_again() in wire_int.h, worker/launch.c).
 */
#include "wire/wire_int.h"

#include <endian.h>
#include <string.h>

enum { VARINT = 0, FIXED64 = 1, LENGTH = 2, FIXED32 = 5 };

enum {
    FRAME_TASKS      = 3,
    COMMAND_LAUNCHES = 3,
    ARGS_MAX         = 16, /* of a task or launch that is read here; pieces, too */
    VARINT_MAX       = 10, /* bytes, and of one that is a length: */
    LENGTH_MAX       = 5
};

/* Fields by which a task or a launch falls into parts. */
enum {
    TASK_ID              = 1,
    TASK_ARGS            = 4,
    TASK_CALL_LAST       = 20, /* its time limit */
    LAUNCH_ORDER         = 2,
    LAUNCH_OPERANDS      = 5,
    LAUNCH_CALL_LAST     = 6, /* scalars */
    LAUNCH_PIECES        = 8,
    LAUNCH_TASK          = 15,
    LAUNCH_SETTINGS_LAST = 20, /* its time limit */
};

struct reader {
    struct wire_arena *arena;
    const uint8_t *at;
    const uint8_t *end;
};

/* Of the arena's block as a rule. */
static inline void *room(struct reader *reader, size_t bytes)
{
    return wire_arena_room(reader->arena, bytes);
}

/* ------------------------------------------------------------------------------- values */

/* Each is false for what is not of this form. */

static bool varint_of_many(struct reader *reader, uint64_t *out)
{
    const uint8_t *at = reader->at;
    uint64_t value    = 0;

    for (unsigned i = 0; i < VARINT_MAX - 1 && at < reader->end; i++) {
        uint8_t byte = *at++;

        value |= (uint64_t)(byte & 0x7f) << (7 * i);
        if (byte < 0x80) {
            *out       = value;
            reader->at = at;
            return true;
        }
    }
    if (at < reader->end && *at <= 1) { /* the tenth byte has the last bit */
        *out       = value | (uint64_t)*at << 63;
        reader->at = at + 1;
        return true;
    }
    return false;
}

/* Most are of one byte. */
static inline bool varint(struct reader *reader, uint64_t *out)
{
    if (reader->at < reader->end && *reader->at < 0x80) {
        *out = *reader->at++;
        return true;
    }
    return varint_of_many(reader, out);
}

static bool number32(struct reader *reader, uint32_t *out)
{
    uint64_t value;

    if (!varint(reader, &value) || value > UINT32_MAX) {
        return false;
    }
    *out = (uint32_t)value;
    return true;
}

static bool truth(struct reader *reader, protobuf_c_boolean *out)
{
    uint64_t value;

    if (!varint(reader, &value) || value > 1) {
        return false;
    }
    *out = (protobuf_c_boolean)value;
    return true;
}

static bool fixed32(struct reader *reader, uint32_t *out)
{
    if (reader->end - reader->at < (ptrdiff_t)sizeof(*out)) {
        return false;
    }
    memcpy(out, reader->at, sizeof(*out));
    *out = le32toh(*out);
    reader->at += sizeof(*out);
    return true;
}

static bool fixed64(struct reader *reader, uint64_t *out)
{
    if (reader->end - reader->at < (ptrdiff_t)sizeof(*out)) {
        return false;
    }
    memcpy(out, reader->at, sizeof(*out));
    *out = le64toh(*out);
    reader->at += sizeof(*out);
    return true;
}

/* What a length says comes next; the reader is behind it then. */
static inline bool part(struct reader *reader, struct reader *out)
{
    const uint8_t *before = reader->at;
    uint64_t length;

    if (!varint(reader, &length) || reader->at - before > LENGTH_MAX ||
        length > (uint64_t)(reader->end - reader->at)) {
        return false;
    }
    *out = (struct reader){
        .arena = reader->arena, .at = reader->at, .end = reader->at + length};
    reader->at += length;
    return true;
}

static size_t left(const struct reader *reader)
{
    return (size_t)(reader->end - reader->at);
}

/* Numbers in a packed list: each ends with a byte below 0x80. */
static inline size_t varint_count(const struct reader *reader)
{
    size_t count = 0;

    for (const uint8_t *at = reader->at; at < reader->end; at++) {
        count += *at < 0x80;
    }
    return count;
}

static bool numbers64(struct reader *reader, size_t *out_count, uint64_t **out)
{
    struct reader list;
    size_t count;

    if (!part(reader, &list) || (count = varint_count(&list)) == 0) {
        return false;
    }
    *out = room(reader, count * sizeof(**out));
    if (*out == NULL) {
        return false;
    }
    *out_count = count;
    if (count == left(&list)) { /* all are small */
        for (size_t i = 0; i < count; i++) {
            (*out)[i] = list.at[i];
        }
        return true;
    }
    for (size_t i = 0; i < count; i++) {
        if (!varint(&list, &(*out)[i])) {
            return false;
        }
    }
    return left(&list) == 0;
}

static bool numbers32(struct reader *reader, size_t *out_count, uint32_t **out)
{
    struct reader list;
    size_t count;

    if (!part(reader, &list) || (count = varint_count(&list)) == 0) {
        return false;
    }
    *out = room(reader, count * sizeof(**out));
    if (*out == NULL) {
        return false;
    }
    *out_count = count;
    if (count == left(&list)) { /* all are small */
        for (size_t i = 0; i < count; i++) {
            (*out)[i] = list.at[i];
        }
        return true;
    }
    for (size_t i = 0; i < count; i++) {
        if (!number32(&list, &(*out)[i])) {
            return false;
        }
    }
    return left(&list) == 0;
}

static bool eights(struct reader *reader, size_t *out_count, uint64_t **out)
{
    struct reader list;
    size_t count;

    if (!part(reader, &list) || left(&list) == 0 || left(&list) % sizeof(**out) != 0) {
        return false;
    }
    count = left(&list) / sizeof(**out);
    *out  = room(reader, count * sizeof(**out));
    for (size_t i = 0; *out != NULL && i < count; i++) {
        if (!fixed64(&list, &(*out)[i])) {
            return false;
        }
    }
    *out_count = count;
    return *out != NULL;
}

static bool text(struct reader *reader, char **out)
{
    struct reader bytes;

    if (!part(reader, &bytes)) {
        return false;
    }
    *out = room(reader, left(&bytes) + 1);
    if (*out == NULL) {
        return false;
    }
    memcpy(*out, bytes.at, left(&bytes));
    (*out)[left(&bytes)] = '\0';
    return true;
}

/* The tag of the next field, of which there is one; 0: not of this form. */
static inline uint32_t tag_ahead(const struct reader *reader, size_t *out_bytes)
{
    uint32_t tag = *reader->at;

    *out_bytes = 1;
    if (tag >= 0x80) {
        if (left(reader) < 2 || reader->at[1] >= 0x80) {
            return 0;
        }
        tag        = (tag & 0x7f) | (uint32_t)reader->at[1] << 7;
        *out_bytes = 2;
    }
    return tag;
}

/* Is there a field up to this number? */
static inline bool more_until(const struct reader *reader, uint32_t number)
{
    size_t bytes;

    return left(reader) > 0 && tag_ahead(reader, &bytes) >> 3 <= number;
}

/*
 * Takes its tag; 0: not of this form, for its number must be above the last one, or the same one
 * `again`. false: there is none.
 */
static inline bool next_until(struct reader *reader, uint32_t number, uint32_t *io_last,
                              uint32_t again, uint32_t *out_tag)
{
    size_t bytes;
    uint32_t tag, field;

    if (left(reader) == 0) {
        return false;
    }
    tag   = tag_ahead(reader, &bytes);
    field = tag >> 3;
    if (field > number) {
        return false;
    }
    *out_tag = field < *io_last || (field == *io_last && field != again) ? 0 : tag;
    *io_last = field;
    reader->at += bytes;
    return true;
}

/* The same of a message that is read as a whole, and has a field left. */
static inline uint32_t next_tag(struct reader *reader, uint32_t *io_last, uint32_t again)
{
    uint32_t tag = 0;

    (void)next_until(reader, UINT32_MAX, io_last, again, &tag); /* there is one */
    return tag;
}

/* ---------------------------------------------------------------------------- stretches */

/* Of an item that was read. */
struct stretch {
    const uint8_t *at;
    size_t bytes;     /* 0: there is none */
    const void *item; /* which has what they say */
};

/* Of the last item whose call begins in the same way: with the function and the first argument. */
struct like {
    struct stretch call;
    struct stretch settings;
};

enum { LIKES = 16 };

/* Where the reader is, a call begins. */
static inline struct like *like_of(struct like *likes, const struct reader *reader)
{
    uint64_t words[2] = {0, 0};

    if (left(reader) >= sizeof(words)) {
        memcpy(words, reader->at, sizeof(words));
    }
    /* Odd numbers without a pattern; the top bits depend on all of both words. */
    return &likes[((words[0] * UINT64_C(0x9e3779b97f4a7c15)) ^
                   (words[1] * UINT64_C(0xc2b2ae3d27d4eb4f))) >>
                  60];
}
static_assert(LIKES == 1 << 4, "four bits choose");

/*
 * The same bytes come next, and nothing behind them that belongs to the stretch, whose last field
 * may have this number? They are taken.
 */
static inline bool same_again(struct reader *reader, const struct stretch *stretch,
                              uint32_t number)
{
    struct reader behind = *reader;

    if (stretch->bytes == 0 || stretch->bytes > left(reader) ||
        memcmp(reader->at, stretch->at, stretch->bytes) != 0) {
        return false;
    }
    behind.at += stretch->bytes;
    if (more_until(&behind, number)) {
        return false;
    }
    reader->at = behind.at;
    return true;
}

static inline void stretch_keep(struct stretch *stretch, const uint8_t *from,
                                const struct reader *reader, const void *item)
{
    *stretch =
        (struct stretch){.at = from, .bytes = (size_t)(reader->at - from), .item = item};
}

/* -------------------------------------------------------------------------------- parts */

#define OF(number, type) ((number) << 3 | (type))

static bool shape_read(struct reader *reader, Plasmon__V1__Shape **out)
{
    struct reader in;
    uint32_t last = 0;

    *out = room(reader, sizeof(**out));
    if (*out == NULL || !part(reader, &in)) {
        return false;
    }
    plasmon__v1__shape__init(*out);
    while (left(&in) > 0) {
        bool ok;

        switch (next_tag(&in, &last, 0)) {
        case OF(1, VARINT):
            ok = number32(&in, &(*out)->dtype);
            break;
        case OF(2, LENGTH):
            ok = numbers64(&in, &(*out)->n_dim, &(*out)->dim);
            break;
        default:
            return false;
        }
        if (!ok) {
            return false;
        }
    }
    return true;
}

static bool arg_field(struct reader *in, uint32_t tag, Plasmon__V1__Arg *out)
{
    switch (tag) {
    case OF(1, VARINT):
        return number32(in, &out->mode);
    case OF(2, VARINT):
        return varint(in, &out->ref);
    case OF(3, FIXED64):
        return fixed64(in, &out->client);
    case OF(4, LENGTH):
        return numbers64(in, &out->n_view, (uint64_t **)(void *)&out->view);
    case OF(5, LENGTH):
        return shape_read(in, &out->shape);
    case OF(6, VARINT):
        return number32(in, &out->reduce_op);
    case OF(7, VARINT):
        return truth(in, &out->relaxed);
    case OF(9, VARINT):
        return truth(in, &out->dense);
    default:
        return false;
    }
}

static bool arg_read(struct reader *reader, Plasmon__V1__Arg **out)
{
    struct reader in;
    uint32_t last = 0;

    *out = room(reader, sizeof(**out));
    if (*out == NULL || !part(reader, &in)) {
        return false;
    }
    plasmon__v1__arg__init(*out);
    while (left(&in) > 0) {
        if (!arg_field(&in, next_tag(&in, &last, 0), *out)) {
            return false;
        }
    }
    return true;
}

/* As many pointers, where they stay. */
static void *pointers_keep(struct reader *in, const void *pointers, size_t count)
{
    void *kept = room(in, count * sizeof(void *));

    if (kept != NULL) {
        memcpy(kept, pointers, count * sizeof(void *));
    }
    return kept;
}

static bool task_field(struct reader *in, uint32_t tag, Plasmon__V1__Task *out)
{
    switch (tag) {
    case OF(1, VARINT):
        return varint(in, &out->id);
    case OF(3, FIXED32):
        return fixed32(in, &out->function);
    case OF(5, LENGTH):
        return eights(in, &out->n_scalars, &out->scalars);
    case OF(8, LENGTH):
        return text(in, &out->label);
    case OF(9, VARINT):
        return number32(in, &out->place);
    case OF(10, VARINT):
        return number32(in, &out->retries);
    case OF(16, LENGTH):
        return numbers32(in, &out->n_launch_shape, &out->launch_shape);
    case OF(20, VARINT):
        return number32(in, &out->time_limit_ms);
    case OF(21, FIXED64):
        return fixed64(in, &out->submit_ns);
    case OF(27, VARINT):
        return number32(in, &out->function_retries);
    default:
        return false;
    }
}

/* Fields up to this number. */
static bool task_fields(struct reader *in, uint32_t *io_last, uint32_t number,
                        Plasmon__V1__Task *out)
{
    Plasmon__V1__Arg *args[ARGS_MAX];
    uint32_t tag;

    while (next_until(in, number, io_last, TASK_ARGS, &tag)) {
        if (tag == OF(TASK_ARGS, LENGTH)) {
            if (out->n_args == ARGS_MAX || !arg_read(in, &args[out->n_args])) {
                return false;
            }
            out->n_args++;
        } else if (!task_field(in, tag, out)) {
            return false;
        }
    }
    if (out->n_args > 0 && out->args == NULL) {
        out->args = pointers_keep(in, args, out->n_args);
    }
    return out->n_args == 0 || out->args != NULL;
}

/* All but what is new with each task: its id, and when it was submitted. */
static bool task_call(struct reader *in, uint32_t *io_last, struct stretch *before,
                      Plasmon__V1__Task *out)
{
    const uint8_t *from              = in->at;
    const Plasmon__V1__Task *earlier = before->item;

    if (!same_again(in, before, TASK_CALL_LAST)) {
        bool ok = task_fields(in, io_last, TASK_CALL_LAST, out);

        if (ok) {
            stretch_keep(before, from, in, out);
        }
        return ok;
    }
    *io_last            = TASK_CALL_LAST;
    out->function       = earlier->function;
    out->args           = earlier->args;
    out->n_args         = earlier->n_args;
    out->scalars        = earlier->scalars;
    out->n_scalars      = earlier->n_scalars;
    out->label          = earlier->label;
    out->place          = earlier->place;
    out->retries        = earlier->retries;
    out->launch_shape   = earlier->launch_shape;
    out->n_launch_shape = earlier->n_launch_shape;
    out->time_limit_ms  = earlier->time_limit_ms;
    return true;
}

static void *task_read(struct reader *in, struct like *likes)
{
    Plasmon__V1__Task *out = room(in, sizeof(*out));
    uint32_t last          = 0;

    if (out == NULL) {
        return NULL;
    }
    plasmon__v1__task__init(out);
    return task_fields(in, &last, TASK_ID, out) &&
                   task_call(in, &last, &like_of(likes, in)->call, out) &&
                   task_fields(in, &last, UINT32_MAX, out)
               ? out
               : NULL;
}

/* ----------------------------------------------------------------------------- launches */

static bool operand_field(struct reader *in, uint32_t tag, Plasmon__V1__Operand *out)
{
    switch (tag) {
    case OF(1, VARINT):
        return number32(in, &out->mode);
    case OF(2, FIXED64):
        return fixed64(in, &out->buffer);
    case OF(3, VARINT):
        return truth(in, &out->fresh);
    case OF(4, VARINT):
        return truth(in, &out->consume);
    case OF(5, VARINT):
        return number32(in, &out->dtype);
    case OF(6, LENGTH):
        return numbers64(in, &out->n_frame, (uint64_t **)(void *)&out->frame);
    case OF(7, LENGTH):
        return numbers64(in, &out->n_view, (uint64_t **)(void *)&out->view);
    case OF(8, VARINT):
        return number32(in, &out->reduce_op);
    case OF(9, VARINT):
        return truth(in, &out->writable_by_client);
    case OF(10, VARINT):
        return truth(in, &out->replica);
    default:
        return false;
    }
}

static bool operand_read(struct reader *reader, Plasmon__V1__Operand **out)
{
    struct reader in;
    uint32_t last = 0;

    *out = room(reader, sizeof(**out));
    if (*out == NULL || !part(reader, &in)) {
        return false;
    }
    plasmon__v1__operand__init(*out);
    while (left(&in) > 0) {
        if (!operand_field(&in, next_tag(&in, &last, 0), *out)) {
            return false;
        }
    }
    return true;
}

static bool piece_field(struct reader *in, uint32_t tag, Plasmon__V1__Piece *out)
{
    switch (tag) {
    case OF(1, FIXED64):
        return fixed64(in, &out->src);
    case OF(2, LENGTH):
        return numbers64(in, &out->n_src_frame, (uint64_t **)(void *)&out->src_frame);
    case OF(3, LENGTH):
        return numbers64(in, &out->n_box, (uint64_t **)(void *)&out->box);
    case OF(4, VARINT):
        return number32(in, &out->operand);
    default:
        return false;
    }
}

static bool piece_read(struct reader *reader, Plasmon__V1__Piece **out)
{
    struct reader in;
    uint32_t last = 0;

    *out = room(reader, sizeof(**out));
    if (*out == NULL || !part(reader, &in)) {
        return false;
    }
    plasmon__v1__piece__init(*out);
    while (left(&in) > 0) {
        if (!piece_field(&in, next_tag(&in, &last, 0), *out)) {
            return false;
        }
    }
    return true;
}

static bool kind_read(struct reader *reader, Plasmon__V1__LaunchKind *out)
{
    uint32_t number;

    if (!number32(reader, &number) || number > INT32_MAX) {
        return false;
    }
    *out = (Plasmon__V1__LaunchKind)number;
    return true;
}

static bool launch_field(struct reader *in, uint32_t tag, Plasmon__V1__Launch *out)
{
    switch (tag) {
    case OF(1, VARINT):
        return varint(in, &out->seq);
    case OF(2, VARINT):
        return varint(in, &out->order);
    case OF(3, VARINT):
        return kind_read(in, &out->kind);
    case OF(4, FIXED32):
        return fixed32(in, &out->function);
    case OF(6, LENGTH):
        return eights(in, &out->n_scalars, &out->scalars);
    case OF(7, LENGTH):
        return eights(in, &out->n_after, &out->after);
    case OF(10, VARINT):
        return varint(in, &out->offset);
    case OF(11, VARINT):
        return varint(in, &out->length);
    case OF(12, VARINT):
        return number32(in, &out->peer);
    case OF(13, VARINT):
        return varint(in, &out->request);
    case OF(14, FIXED64):
        return fixed64(in, &out->client);
    case OF(15, VARINT):
        return varint(in, &out->task);
    case OF(16, LENGTH):
        return text(in, &out->label);
    case OF(17, VARINT):
        return varint(in, &out->graph);
    case OF(19, LENGTH):
        return numbers32(in, &out->n_launch_shape, &out->launch_shape);
    case OF(20, VARINT):
        return number32(in, &out->time_limit_ms);
    case OF(21, FIXED64):
        return fixed64(in, &out->submit_ns);
    case OF(22, FIXED64):
        return fixed64(in, &out->placed_ns);
    case OF(24, FIXED64):
        return fixed64(in, &out->host_buffer);
    default:
        return false;
    }
}

/* Fields up to this number. */
static bool launch_fields(struct reader *in, uint32_t *io_last, uint32_t number,
                          Plasmon__V1__Launch *out)
{
    Plasmon__V1__Operand *operands[ARGS_MAX];
    Plasmon__V1__Piece *pieces[ARGS_MAX];
    uint32_t tag;
    bool ok = true;

    while (ok &&
           next_until(in, number, io_last,
                      *io_last == LAUNCH_PIECES ? LAUNCH_PIECES : LAUNCH_OPERANDS, &tag)) {
        if (tag == OF(LAUNCH_OPERANDS, LENGTH)) {
            ok = out->n_operands < ARGS_MAX &&
                 operand_read(in, &operands[out->n_operands++]);
        } else if (tag == OF(LAUNCH_PIECES, LENGTH)) {
            ok = out->n_pieces < ARGS_MAX && piece_read(in, &pieces[out->n_pieces++]);
        } else {
            ok = launch_field(in, tag, out);
        }
    }
    if (ok && out->n_operands > 0 && out->operands == NULL) {
        out->operands = pointers_keep(in, operands, out->n_operands);
        ok            = out->operands != NULL;
    }
    if (ok && out->n_pieces > 0 && out->pieces == NULL) {
        out->pieces = pointers_keep(in, pieces, out->n_pieces);
        ok          = out->pieces != NULL;
    }
    return ok;
}

/* What is to be done with what. */
static bool launch_call(struct reader *in, uint32_t *io_last, struct stretch *before,
                        Plasmon__V1__Launch *out)
{
    const uint8_t *from                = in->at;
    const Plasmon__V1__Launch *earlier = before->item;

    if (!same_again(in, before, LAUNCH_CALL_LAST)) {
        bool ok = launch_fields(in, io_last, LAUNCH_CALL_LAST, out);

        if (ok) {
            stretch_keep(before, from, in, out);
        }
        return ok;
    }
    *io_last        = LAUNCH_CALL_LAST;
    out->kind       = earlier->kind;
    out->function   = earlier->function;
    out->operands   = earlier->operands;
    out->n_operands = earlier->n_operands;
    out->scalars    = earlier->scalars;
    out->n_scalars  = earlier->n_scalars;
    return true;
}

/* What it is called, and in what shape and how long it may run. */
static bool launch_settings(struct reader *in, uint32_t *io_last, struct stretch *before,
                            Plasmon__V1__Launch *out)
{
    const uint8_t *from                = in->at;
    const Plasmon__V1__Launch *earlier = before->item;

    if (!same_again(in, before, LAUNCH_SETTINGS_LAST)) {
        bool ok = launch_fields(in, io_last, LAUNCH_SETTINGS_LAST, out);

        if (ok) {
            stretch_keep(before, from, in, out);
        }
        return ok;
    }
    *io_last            = LAUNCH_SETTINGS_LAST;
    out->label          = earlier->label;
    out->graph          = earlier->graph;
    out->launch_shape   = earlier->launch_shape;
    out->n_launch_shape = earlier->n_launch_shape;
    out->time_limit_ms  = earlier->time_limit_ms;
    return true;
}

static void *launch_read(struct reader *in, struct like *likes)
{
    Plasmon__V1__Launch *out = room(in, sizeof(*out));
    struct like *like;
    uint32_t last = 0;

    if (out == NULL) {
        return NULL;
    }
    plasmon__v1__launch__init(out);
    if (!launch_fields(in, &last, LAUNCH_ORDER, out)) {
        return NULL;
    }
    like = like_of(likes, in);
    return launch_call(in, &last, &like->call, out) &&
                   launch_fields(in, &last, LAUNCH_TASK, out) &&
                   launch_settings(in, &last, &like->settings, out) &&
                   launch_fields(in, &last, UINT32_MAX, out)
               ? out
               : NULL;
}

/* ---------------------------------------------------------------------------- the frame */

/* What is cut out of a frame. */
struct kind {
    uint32_t field;
    void *(*read)(struct reader *in,
                  struct like *likes); /* NULL: of another form, or no room */
    const ProtobufCMessageDescriptor *item;
    const ProtobufCMessageDescriptor *frame;
};

struct cut {
    const struct kind *kind;
    struct reader frame;
    size_t count;
    void **items;      /* as protobuf-c has them: pointers to messages */
    size_t rest_bytes; /* all but the items */
    uint8_t *rest;
    struct like likes[LIKES];
};

/* What follows a tag is passed over. false: cut off, or of no kind. */
static bool pass(struct reader *in, uint32_t type)
{
    uint64_t value;
    uint32_t half;
    struct reader bytes;

    switch (type) {
    case VARINT:
        return varint(in, &value);
    case FIXED64:
        return fixed64(in, &value);
    case LENGTH:
        return part(in, &bytes);
    case FIXED32:
        return fixed32(in, &half);
    default:
        return false;
    }
}

/* How much of each there is, and room for it. false: that is for protobuf-c. */
static bool cut_measure(struct cut *cut)
{
    struct reader in = cut->frame;
    size_t items = 0, rest = 0;

    while (left(&in) > 0) {
        const uint8_t *before = in.at;
        uint32_t tag;

        if (!number32(&in, &tag) || !pass(&in, tag & 7)) {
            return false;
        }
        if (*before == OF(cut->kind->field, LENGTH)) {
            items++;
        } else if (tag >> 3 == cut->kind->field) {
            return false;
        } else {
            rest += (size_t)(in.at - before);
        }
    }
    if (items == 0) {
        return false;
    }
    cut->items = room(&cut->frame, items * sizeof(void *));
    cut->rest  = room(&cut->frame, rest + 1);
    return cut->items != NULL && cut->rest != NULL;
}

/* An item of another form is protobuf-c's; so is one that there is no room for, which that finds, too. */
static bool cut_item(struct cut *cut)
{
    struct wire_arena *arena = cut->frame.arena;
    struct reader in, once;
    void *item;

    cut->frame.at++; /* the tag */
    if (!part(&cut->frame, &in)) {
        return false;
    }
    once = in;
    item = cut->kind->read(&once, cut->likes);
    if (item == NULL) {
        item =
            protobuf_c_message_unpack(cut->kind->item, &arena->allocator, left(&in), in.at);
    }
    cut->items[cut->count++] = item;
    return item != NULL;
}

static bool cut_other(struct cut *cut)
{
    const uint8_t *before = cut->frame.at;
    size_t bytes;
    uint32_t tag;

    if (!number32(&cut->frame, &tag) || !pass(&cut->frame, tag & 7)) {
        return false;
    }
    bytes = (size_t)(cut->frame.at - before);
    memcpy(cut->rest + cut->rest_bytes, before, bytes);
    cut->rest_bytes += bytes;
    return true;
}

/* The frame without the items, which are in *cut; or with them, and none there. */
static ProtobufCMessage *cut_up(struct cut *cut)
{
    struct wire_arena *arena = cut->frame.arena;

    if (!cut_measure(cut)) {
        return protobuf_c_message_unpack(cut->kind->frame, &arena->allocator,
                                         left(&cut->frame), cut->frame.at);
    }
    while (left(&cut->frame) > 0) {
        if (!(*cut->frame.at == OF(cut->kind->field, LENGTH) ? cut_item(cut)
                                                             : cut_other(cut))) {
            return NULL; /* an item that is none */
        }
    }
    return protobuf_c_message_unpack(cut->kind->frame, &arena->allocator, cut->rest_bytes,
                                     cut->rest);
}

ProtobufCMessage *wire_unpack_client_frame(struct wire_arena *arena, const uint8_t *bytes,
                                           size_t length)
{
    static const struct kind tasks = {FRAME_TASKS, task_read,
                                      &plasmon__v1__task__descriptor,
                                      &plasmon__v1__client_frame__descriptor};
    struct cut cut                 = {.kind  = &tasks,
                                      .frame = {.arena = arena, .at = bytes, .end = bytes + length}};
    ProtobufCMessage *message      = cut_up(&cut);

    if (message != NULL && cut.count > 0) {
        Plasmon__V1__ClientFrame *frame = (void *)message;

        frame->n_tasks = cut.count;
        frame->tasks   = (void *)cut.items;
    }
    return message;
}

ProtobufCMessage *wire_unpack_worker_command(struct wire_arena *arena, const uint8_t *bytes,
                                             size_t length)
{
    static const struct kind launches = {COMMAND_LAUNCHES, launch_read,
                                         &plasmon__v1__launch__descriptor,
                                         &plasmon__v1__worker_command__descriptor};
    struct cut cut                    = {.kind  = &launches,
                                         .frame = {.arena = arena, .at = bytes, .end = bytes + length}};
    ProtobufCMessage *message         = cut_up(&cut);

    if (message != NULL && cut.count > 0) {
        Plasmon__V1__WorkerCommand *command = (void *)message;

        command->n_launches = cut.count;
        command->launches   = (void *)cut.items;
    }
    return message;
}
