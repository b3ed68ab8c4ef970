/*
 * Encoding of the batch. The task encoder writes protobuf by hand: it is the hot path of submit,
 * and what it may emit is small. tests/unit/client/test_frame.c holds every field against
 * protobuf-c.
 *
 * A nested message is written behind room for its length; when the length is known it moves down by
 * the bytes that the varint did not need. Payloads (TASK_PUT) come last in their message, so that
 * they are never moved.
 */
#include "client/frame.h"

#include <assert.h>
#include <string.h>

#include "base/alloc.h"

#define VARINT_MAX 10u

/* Tags: field number << 3 | wire type (0 varint, 1 fixed64, 2 bytes, 5 fixed32). */
enum {
    TAG_FRAME_TASKS     = 3 << 3 | 2,
    TAG_FRAME_RELEASE   = 4 << 3 | 2,
    TAG_RANGE_FIRST     = 1 << 3 | 0,
    TAG_RANGE_COUNT     = 2 << 3 | 0,
    TAG_TASK_ID         = 1 << 3 | 0,
    TAG_TASK_KIND       = 2 << 3 | 0,
    TAG_TASK_FUNCTION   = 3 << 3 | 5,
    TAG_TASK_ARGS       = 4 << 3 | 2,
    TAG_TASK_SCALARS    = 5 << 3 | 2,
    TAG_TASK_DATA       = 6 << 3 | 2,
    TAG_TASK_PUT_OFFSET = 7 << 3 | 0,
    TAG_TASK_LABEL      = 8 << 3 | 2,
    TAG_TASK_PLACE      = 9 << 3 | 0,
    TAG_TASK_RETRIES    = 10 << 3 | 0,
    TAG_TASK_DONATABLE  = 11 << 3 | 0,
    TAG_TASK_TIME_LIMIT = 20 << 3 | 0, /* two bytes */
    TAG_TASK_GRAPH      = 12 << 3 | 0,
    TAG_TASK_BIND       = 13 << 3 | 2,
    TAG_TASK_SET        = 14 << 3 | 2,
    TAG_TASK_INDEX      = 15 << 3 | 2,
    TAG_BIND_RECORDED   = 1 << 3 | 0,
    TAG_BIND_REF        = 2 << 3 | 0,
    TAG_SET_TASK        = 1 << 3 | 0,
    TAG_SET_POSITION    = 2 << 3 | 0,
    TAG_SET_VALUE       = 3 << 3 | 1,
    TAG_INDEX_COUNT     = 1 << 3 | 2,
    TAG_INDEX_SPREAD    = 2 << 3 | 0,
    TAG_INDEX_STEPS     = 3 << 3 | 2,
    TAG_INDEX_FLOATS    = 4 << 3 | 0,
    TAG_TASK_SUBMIT     = 21 << 3 | 1, /* two bytes */
    TAG_TASK_PRIORITY   = 22 << 3 | 0, /* two bytes */
    TAG_TASK_BUFFER     = 23 << 3 | 1, /* two bytes */
    TAG_TASK_OFFSET     = 24 << 3 | 0, /* two bytes */
    TAG_TASK_COLLECTIVE = 25 << 3 | 2, /* two bytes */
    TAG_TASK_REPLICA    = 26 << 3 | 0, /* two bytes */
    TAG_TASK_AGAIN      = 27 << 3 | 0, /* two bytes */
    TAG_COLLECTIVE_KIND = 1 << 3 | 0,
    TAG_COLLECTIVE_OP   = 2 << 3 | 0,
    TAG_COLLECTIVE_AT   = 3 << 3 | 2,
    TAG_COLLECTIVE_ROOT = 4 << 3 | 0,
    TAG_COLLECTIVE_WAY  = 5 << 3 | 0,
    TAG_ARG_MODE        = 1 << 3 | 0,
    TAG_ARG_REF         = 2 << 3 | 0,
    TAG_ARG_VIEW        = 4 << 3 | 2,
    TAG_ARG_SHAPE       = 5 << 3 | 2,
    TAG_ARG_REDUCE_OP   = 6 << 3 | 0,
    TAG_ARG_RELAXED     = 7 << 3 | 0,
    TAG_ARG_INDEX_STEP  = 8 << 3 | 2,
    TAG_ARG_DENSE       = 9 << 3 | 0,
    TAG_SHAPE_DTYPE     = 1 << 3 | 0,
    TAG_SHAPE_DIM       = 2 << 3 | 2,
};

/* Bounds on what the encoder writes, so that room is checked once a task and not once a byte. */
#define SHAPE_BYTES_MAX (2 + VARINT_MAX + 3 + PL_DIM_MAX * VARINT_MAX)
#define ARG_BYTES_MAX \
    (128 + (3 + WIRE_INDEX_DIM_MAX) * PL_DIM_MAX * VARINT_MAX + SHAPE_BYTES_MAX)
#define TASK_BYTES_MAX       208
#define BIND_BYTES_MAX       (4 + 3 * VARINT_MAX)
#define SET_BYTES_MAX        (4 + 3 * VARINT_MAX + 8)
#define INDEX_BYTES_MAX      (64 + WIRE_INDEX_DIM_MAX * VARINT_MAX)
#define COLLECTIVE_BYTES_MAX (96 + WIRE_COLLECTIVE_MAX * VARINT_MAX)

void frame_init(struct frame *frame)
{
    *frame = (struct frame){.released = PL_VEC_INIT(struct wire_range), .empty = true};
}

void frame_finish(struct frame *frame)
{
    pl_free(frame->bytes);
    pl_vec_finish(&frame->released);
    frame_init(frame);
}

void frame_clear(struct frame *frame)
{
    frame->length     = 0;
    frame->task_count = 0;
    frame->last       = FRAME_TASK;
    frame->empty      = true;
    pl_vec_clear(&frame->released);
    frame->released_bytes = 0;
}

bool frame_admits(const struct frame *frame, enum frame_kind kind)
{
    if (frame->released_bytes >= FRAME_RELEASED_CUT && kind != FRAME_RELEASE) {
        return false;
    }
    return frame->empty || kind == frame->last || frame->last <= FRAME_RELEASE;
}

bool frame_full(const struct frame *frame)
{
    return frame->task_count >= FRAME_TASKS_CUT || frame->length >= FRAME_BYTES_CUT ||
           frame->released.count >= WIRE_RANGES_MAX / 2;
}

static void frame_note(struct frame *frame, enum frame_kind kind)
{
    assert(frame_admits(frame, kind));
    frame->empty = false;
    frame->last  = kind;
}

static plasmon_status_t frame_reserve(struct frame *frame, size_t bytes)
{
    size_t capacity = frame->capacity == 0 ? 4096 : frame->capacity;
    uint8_t *grown;

    if (frame->capacity - frame->length >= bytes) {
        return PLASMON_OK;
    }
    while (capacity - frame->length < bytes) {
        capacity *= 2;
    }
    grown = pl_realloc(frame->bytes, frame->capacity, capacity);
    if (grown == NULL) {
        return PLASMON_ENOMEM;
    }
    frame->bytes    = grown;
    frame->capacity = capacity;
    return PLASMON_OK;
}

/* --------------------------------------------------------------------------- primitives */

static inline uint8_t *put_varint(uint8_t *at, uint64_t value)
{
    while (value >= 0x80) {
        *at++ = (uint8_t)(value | 0x80);
        value >>= 7;
    }
    *at++ = (uint8_t)value;
    return at;
}

static inline uint8_t *put_number(uint8_t *at, uint32_t tag, uint64_t value)
{
    if (value == 0) {
        return at; /* proto3: zero is not sent */
    }
    return put_varint(put_varint(at, tag), value); /* a tag below field 16 is one byte */
}

/*
 * Close a nested message whose tag stands at `tag_at` and whose body was written VARINT_MAX bytes
 * behind it.
 */
static uint8_t *close_nested(uint8_t *tag_at, uint8_t *body, uint8_t *end)
{
    size_t length = (size_t)(end - body);
    uint8_t *at   = put_varint(tag_at + 1, length);

    memmove(at, body, length);
    return at + length;
}

static uint8_t *put_bytes(uint8_t *at, uint8_t tag, const void *bytes, size_t length)
{
    *at++ = tag;
    at    = put_varint(at, length);
    memcpy(at, bytes, length);
    return at + length;
}

static uint8_t *put_shape(uint8_t *at, uint8_t tag, const struct pl_shape *shape)
{
    uint8_t *tag_at = at, *body = at + 1 + VARINT_MAX;

    *tag_at = tag;
    at      = put_number(body, TAG_SHAPE_DTYPE, shape->dtype);
    if (shape->ndim > 0) {
        uint8_t *dims_at = at, *dims = at + 1 + VARINT_MAX;

        *dims_at = TAG_SHAPE_DIM;
        at       = dims;
        for (uint32_t i = 0; i < shape->ndim; i++) {
            at = put_varint(at, (uint64_t)shape->dim[i]);
        }
        at = close_nested(dims_at, dims, at);
    }
    return close_nested(tag_at, body, at);
}

static uint8_t *put_view(uint8_t *at, const struct pl_view *view)
{
    uint8_t *tag_at = at, *body = at + 1 + VARINT_MAX;

    *tag_at = TAG_ARG_VIEW;
    at      = body;
    for (uint32_t i = 0; i < view->ndim; i++) {
        at = put_varint(at, (uint64_t)view->start[i]);
        at = put_varint(at, (uint64_t)view->count[i]);
        at = put_varint(at, (uint64_t)view->step[i]);
    }
    return close_nested(tag_at, body, at);
}

/* Negative numbers take ten bytes, as int64 does on the wire. */
static uint8_t *put_index_step(uint8_t *at, const int64_t *steps, uint32_t count)
{
    uint8_t *tag_at = at, *body = at + 1 + VARINT_MAX;

    *tag_at = TAG_ARG_INDEX_STEP;
    at      = body;
    for (uint32_t i = 0; i < count; i++) {
        at = put_varint(at, (uint64_t)steps[i]);
    }
    return close_nested(tag_at, body, at);
}

static uint8_t *put_arg(uint8_t *at, const struct frame_arg *arg, uint32_t index_dims)
{
    uint8_t *tag_at = at, *body = at + 1 + VARINT_MAX;

    *tag_at = TAG_TASK_ARGS;
    at      = put_number(body, TAG_ARG_MODE, arg->mode);
    at      = put_number(at, TAG_ARG_REF, arg->ref);
    if (arg->view != NULL && arg->view->ndim > 0) {
        at = put_view(at, arg->view);
    }
    if (arg->shape != NULL) {
        at = put_shape(at, TAG_ARG_SHAPE, arg->shape);
    }
    at = put_number(at, TAG_ARG_REDUCE_OP, arg->reduce_op);
    at = put_number(at, TAG_ARG_RELAXED, arg->relaxed);
    if (arg->index_step != NULL && arg->view != NULL && arg->view->ndim > 0) {
        at = put_index_step(at, arg->index_step, arg->view->ndim * index_dims);
    }
    at = put_number(at, TAG_ARG_DENSE, arg->dense);
    return close_nested(tag_at, body, at);
}

static uint8_t *put_scalars(uint8_t *at, const uint64_t *scalars, uint32_t count)
{
    if (count == 0) {
        return at;
    }
    /* Little-endian, as the wire wants it: Plasmon runs on x86-64 and arm64 Linux only. */
    return put_bytes(at, TAG_TASK_SCALARS, scalars, count * sizeof(scalars[0]));
}

static uint8_t *put_graph(uint8_t *at, const struct frame_task *task)
{
    at = put_number(at, TAG_TASK_GRAPH, task->graph);
    for (uint32_t i = 0; i < task->binding_count; i++) {
        uint8_t *tag_at = at, *body = at + 1 + VARINT_MAX;

        *tag_at = TAG_TASK_BIND;
        at      = put_number(body, TAG_BIND_RECORDED, task->bindings[i].recorded);
        at      = put_number(at, TAG_BIND_REF, task->bindings[i].ref);
        at      = close_nested(tag_at, body, at);
    }
    for (uint32_t i = 0; i < task->set_count; i++) {
        uint8_t *tag_at = at, *body = at + 1 + VARINT_MAX;

        *tag_at = TAG_TASK_SET;
        at      = put_number(body, TAG_SET_TASK, task->set[i].task);
        at      = put_number(at, TAG_SET_POSITION, task->set[i].position);
        if (task->set[i].bits != 0) {
            *at++ = TAG_SET_VALUE;
            memcpy(at, &task->set[i].bits, sizeof(task->set[i].bits));
            at += sizeof(task->set[i].bits);
        }
        at = close_nested(tag_at, body, at);
    }
    return at;
}

static uint8_t *put_index(uint8_t *at, const struct frame_task *task)
{
    const struct frame_index *index = task->index;
    uint8_t *tag_at = at, *body = at + 1 + VARINT_MAX, *count_at, *counts;

    if (index == NULL) {
        return at;
    }
    *tag_at   = TAG_TASK_INDEX;
    count_at  = body;
    counts    = body + 1 + VARINT_MAX;
    *count_at = TAG_INDEX_COUNT;
    at        = counts;
    for (uint32_t i = 0; i < index->ndim; i++) {
        at = put_varint(at, index->count[i]);
    }
    at = close_nested(count_at, counts, at);
    at = put_number(at, TAG_INDEX_SPREAD, index->spread);
    if (index->scalar_steps != NULL && task->scalar_count > 0) {
        at = put_bytes(at, TAG_INDEX_STEPS, index->scalar_steps,
                       (size_t)task->scalar_count * index->ndim * sizeof(uint64_t));
    }
    at = put_number(at, TAG_INDEX_FLOATS, index->float_scalars);
    return close_nested(tag_at, body, at);
}

/* Field 16: its tag takes two bytes. */
static uint8_t *put_launch_shape(uint8_t *at, const uint32_t *shape)
{
    uint8_t *tag_at = at, *body = at + 2 + VARINT_MAX;

    tag_at[0] = (uint8_t)((16 << 3 | 2) | 0x80);
    tag_at[1] = (16 << 3 | 2) >> 7;
    at        = body;
    for (uint32_t i = 0; i < WIRE_LAUNCH_SHAPE_COUNT; i++) {
        at = put_varint(at, shape[i]);
    }
    return close_nested(tag_at + 1, body, at);
}

static uint8_t *put_collective(uint8_t *at, const struct frame_collective *collective)
{
    uint8_t *tag_at = at, *body, *places_at, *places;

    if (collective == NULL) {
        return at;
    }
    tag_at    = put_varint(at, TAG_TASK_COLLECTIVE) - 1; /* its last byte */
    body      = tag_at + 1 + VARINT_MAX;
    at        = put_number(body, TAG_COLLECTIVE_KIND, collective->kind);
    at        = put_number(at, TAG_COLLECTIVE_OP, collective->op);
    places_at = at;
    places    = at + 1 + VARINT_MAX;
    *at       = TAG_COLLECTIVE_AT;
    at        = places;
    for (uint32_t i = 0; i < collective->place_count; i++) {
        at = put_varint(at, collective->place[i]);
    }
    at = close_nested(places_at, places, at);
    at = put_number(at, TAG_COLLECTIVE_ROOT, collective->root);
    at = put_number(at, TAG_COLLECTIVE_WAY, collective->way);
    return close_nested(tag_at, body, at);
}

static uint8_t *put_task_fields(uint8_t *at, const struct frame_task *task)
{
    at = put_number(at, TAG_TASK_ID, task->id);
    at = put_number(at, TAG_TASK_KIND, task->kind);
    if (task->function != 0) {
        *at++ = TAG_TASK_FUNCTION;
        memcpy(at, &task->function, sizeof(task->function));
        at += sizeof(task->function);
    }
    for (uint32_t i = 0; i < task->arg_count; i++) {
        at = put_arg(at, &task->args[i], task->index != NULL ? task->index->ndim : 0);
    }
    at = put_scalars(at, task->scalars, task->scalar_count);
    at = put_number(at, TAG_TASK_PUT_OFFSET, task->put_offset);
    if (task->label != NULL && task->label[0] != '\0') {
        at = put_bytes(at, TAG_TASK_LABEL, task->label, strlen(task->label));
    }
    at = put_number(at, TAG_TASK_PLACE, task->place);
    at = put_number(at, TAG_TASK_RETRIES, task->retries);
    at = put_number(at, TAG_TASK_DONATABLE, task->donatable);
    at = put_number(at, TAG_TASK_TIME_LIMIT, task->time_limit_ms);
    at = put_number(at, TAG_TASK_REPLICA, task->replica);
    at = put_number(at, TAG_TASK_AGAIN, task->function_retries);
    /* Zigzag, as sint32 is encoded. */
    at = put_number(at, TAG_TASK_PRIORITY,
                    (uint32_t)task->priority << 1 ^ (task->priority < 0 ? UINT32_MAX : 0));
    if (task->submit_ns != 0) {
        at = put_varint(at, TAG_TASK_SUBMIT);
        memcpy(at, &task->submit_ns, sizeof(task->submit_ns));
        at += sizeof(task->submit_ns);
    }
    if (task->host_buffer != 0) {
        at = put_varint(at, TAG_TASK_BUFFER);
        memcpy(at, &task->host_buffer, sizeof(task->host_buffer));
        at += sizeof(task->host_buffer);
        at = put_number(at, TAG_TASK_OFFSET, task->host_offset);
    }
    at = put_graph(at, task);
    at = put_index(at, task);
    at = put_collective(at, task->collective);
    return task->launch_shape == NULL ? at : put_launch_shape(at, task->launch_shape);
}

/* ------------------------------------------------------------------------------- adding */

plasmon_status_t frame_add_task(struct frame *frame, const struct frame_task *task)
{
    size_t room = TASK_BYTES_MAX + (size_t)task->arg_count * ARG_BYTES_MAX +
                  task->scalar_count * sizeof(uint64_t) + task->data_bytes +
                  (task->label != NULL ? strlen(task->label) : 0) +
                  (size_t)task->binding_count * BIND_BYTES_MAX +
                  (size_t)task->set_count * SET_BYTES_MAX;
    uint8_t *tag_at, *body, *at, data_head[1 + VARINT_MAX];
    size_t small, data_head_bytes = 0;

    if (task->index != NULL) {
        room += INDEX_BYTES_MAX +
                (size_t)task->scalar_count * WIRE_INDEX_DIM_MAX * sizeof(uint64_t);
    }
    if (task->collective != NULL) {
        room += COLLECTIVE_BYTES_MAX;
    }
    if (frame_reserve(frame, room) != PLASMON_OK) {
        return PLASMON_ENOMEM;
    }

    tag_at  = frame->bytes + frame->length;
    body    = tag_at + 1 + VARINT_MAX;
    *tag_at = TAG_FRAME_TASKS;
    small   = (size_t)(put_task_fields(body, task) - body);
    if (task->data_bytes > 0) {
        data_head[0]    = TAG_TASK_DATA;
        data_head_bytes = (size_t)(put_varint(data_head + 1, task->data_bytes) - data_head);
    }

    at = put_varint(tag_at + 1, small + data_head_bytes + task->data_bytes);
    memmove(at, body, small);
    at += small;
    if (task->data_bytes > 0) {
        memcpy(at, data_head, data_head_bytes);
        memcpy(at + data_head_bytes, task->data, task->data_bytes);
        at += data_head_bytes + task->data_bytes;
    }

    frame->length = (size_t)(at - frame->bytes);
    assert(frame->length <= frame->capacity);
    frame->task_count++;
    frame_note(frame, FRAME_TASK);
    return PLASMON_OK;
}

plasmon_status_t frame_add_release(struct frame *frame, uint64_t ref, uint64_t bytes)
{
    struct wire_range *last;

    frame->released_bytes += bytes;
    if (frame->released.count > 0) {
        last = pl_vec_at(&frame->released, frame->released.count - 1);
        if (ref == last->first + last->count || ref + 1 == last->first) {
            last->first = ref < last->first ? ref : last->first;
            last->count++;
            frame_note(frame, FRAME_RELEASE);
            return PLASMON_OK;
        }
    }

    last = pl_vec_push(&frame->released);
    if (last == NULL) {
        return PLASMON_ENOMEM;
    }
    *last = (struct wire_range){.first = ref, .count = 1};
    frame_note(frame, FRAME_RELEASE);
    return PLASMON_OK;
}

plasmon_status_t frame_add_fields(struct frame *frame, enum frame_kind kind,
                                  const Plasmon__V1__ClientFrame *fields)
{
    size_t bytes = protobuf_c_message_get_packed_size(&fields->base);

    if (frame_reserve(frame, bytes) != PLASMON_OK) {
        return PLASMON_ENOMEM;
    }
    frame->length += protobuf_c_message_pack(&fields->base, frame->bytes + frame->length);
    frame_note(frame, kind);
    return PLASMON_OK;
}

/* ------------------------------------------------------------------------------ cutting */

static plasmon_status_t frame_close_releases(struct frame *frame)
{
    if (frame_reserve(frame, frame->released.count * (4 + 3 * VARINT_MAX)) != PLASMON_OK) {
        return PLASMON_ENOMEM;
    }
    for (size_t i = 0; i < frame->released.count; i++) {
        const struct wire_range *range = pl_vec_at(&frame->released, i);
        uint8_t *tag_at = frame->bytes + frame->length, *body = tag_at + 1 + VARINT_MAX,
                *at;

        *tag_at       = TAG_FRAME_RELEASE;
        at            = put_number(body, TAG_RANGE_FIRST, range->first);
        at            = put_number(at, TAG_RANGE_COUNT, range->count);
        at            = close_nested(tag_at, body, at);
        frame->length = (size_t)(at - frame->bytes);
    }
    pl_vec_clear(&frame->released);
    return PLASMON_OK;
}

plasmon_status_t frame_pack(struct frame *frame, const Plasmon__V1__Header *header,
                            uint8_t *(*create)(size_t length), uint8_t **out_bytes,
                            size_t *out_length)
{
    Plasmon__V1__ClientFrame head = PLASMON__V1__CLIENT_FRAME__INIT;
    Plasmon__V1__Header copy      = *header;
    size_t head_bytes, length;
    uint8_t *bytes;

    if (frame_close_releases(frame) != PLASMON_OK) {
        return PLASMON_ENOMEM;
    }

    head.header = &copy;
    head_bytes  = protobuf_c_message_get_packed_size(&head.base);
    length      = head_bytes + frame->length;
    bytes       = create(length);
    if (bytes == NULL) {
        return PLASMON_ENOMEM;
    }
    (void)protobuf_c_message_pack(&head.base, bytes);
    if (frame->length > 0) {
        memcpy(bytes + head_bytes, frame->bytes, frame->length);
    }

    *out_bytes  = bytes;
    *out_length = length;
    return PLASMON_OK;
}
