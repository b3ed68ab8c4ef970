/*
 * The launches that a collective is made of, while they are put together; and those that copy many
 * boxes into one result.
 *
 * Bytes change their coordinates on the way: a piece's `shift` is where its box of the source comes
 * to lie in what is filled.
 *
 * Each launch that fills something begins from sources that it does not write, so it can be done
 * again after a crash.
 */
#include "head/collective_int.h"

#include <string.h>

#include "head/spill.h"

/* One launch while it is put together. */
struct step {
    struct pl_vec operands; /* struct head_operand */
    struct pl_vec pieces;   /* struct head_piece */
    struct pl_vec held;     /* struct head_buffer *, released when the launch uses them */
};
static _Thread_local struct step step = {
    .operands = {.item_bytes = sizeof(struct head_operand)},
    .pieces   = {.item_bytes = sizeof(struct head_piece)},
    .held     = {.item_bytes = sizeof(struct head_buffer *)},
};

void collective_step_begin(void)
{
    pl_vec_clear(&step.operands);
    pl_vec_clear(&step.pieces);
    pl_vec_clear(&step.held);
}

void collective_step_end(struct collective *c)
{
    for (size_t i = 0; i < step.held.count; i++) {
        head_buffer_release(c->core, *(struct head_buffer **)pl_vec_at(&step.held, i));
    }
    collective_step_begin();
}

uint32_t collective_step_operand(const struct head_operand *operand)
{
    struct head_operand *place = pl_vec_push(&step.operands);

    PL_CHECK(place != NULL);
    *place = *operand;
    return (uint32_t)step.operands.count - 1;
}

struct head_buffer *collective_step_operand_buffer(uint32_t operand)
{
    return ((struct head_operand *)pl_vec_at(&step.operands, operand))->buffer;
}

void collective_plan_begin(struct collective *c)
{
    head_spill_plan_begin(c->core);
    for (uint32_t i = 0; i < c->out_count; i++) {
        if (c->outs[i].buffer != NULL) {
            head_spill_keep_buffer(c->core, c->outs[i].buffer);
        }
    }
    for (size_t i = 0; i < c->landed.count; i++) {
        head_spill_keep_buffer(c->core, *(struct head_buffer **)pl_vec_at(&c->landed, i));
    }
}

struct head_buffer *collective_fresh_buffer(struct collective *c,
                                            struct head_device *device,
                                            const struct pl_box *frame, uint32_t dtype)
{
    uint64_t bytes = (uint64_t)pl_box_elements(frame) * pl_dtype_bytes(dtype);
    struct head_buffer *buffer;

    (void)head_spill_room(c->core, device, head_spill_rounded(bytes)); /* or it waits */
    buffer = head_buffer_create(c->core, device, frame, dtype);
    if (buffer != NULL) {
        head_spill_keep_buffer(c->core, buffer);
    }
    if (buffer == NULL) {
        c->failure = head_failure_create(
            PLASMON_ELIMIT, c->task->id, c->client->id,
            "the object table of device %u is full (%d objects); release some refs",
            device->index, HEAD_SLOTS_MAX);
    }
    return buffer;
}

struct head_buffer *collective_step_buffer(struct collective *c, struct head_device *device,
                                           const struct pl_box *frame, uint32_t dtype)
{
    struct head_buffer *buffer = collective_fresh_buffer(c, device, frame, dtype);

    if (buffer != NULL) {
        struct head_buffer **held = pl_vec_push(&step.held);

        PL_CHECK(held != NULL);
        *held = buffer;
    }
    return buffer;
}

static void shift_to(struct head_piece *piece, const struct pl_box *from,
                     const struct pl_box *to)
{
    for (uint32_t i = 0; i < from->ndim; i++) {
        piece->shift[i] = to->start[i] - from->start[i];
    }
}

void collective_step_piece(struct head_buffer *source, const struct pl_box *from,
                           const struct pl_box *to)
{
    struct head_piece *piece = pl_vec_push(&step.pieces);

    PL_CHECK(piece != NULL);
    *piece = (struct head_piece){.src = source, .box = *from};
    shift_to(piece, from, to);
}

bool collective_step_pieces(struct collective *c, const struct collective_part *from,
                            const struct pl_box *to, struct head_buffer *dst,
                            uint32_t operand)
{
    size_t first = step.pieces.count;

    if (!head_move_pieces(c->core, from->array, &from->box, dst, operand, &step.pieces,
                          &step.held, &c->failure)) {
        return false;
    }
    for (size_t i = first; i < step.pieces.count; i++) {
        shift_to(pl_vec_at(&step.pieces, i), &from->box, to);
    }
    return true;
}

const struct collective_joint collective_alone = {.team = NULL};

struct head_task *collective_step_start_as(struct collective *c, struct head_device *device,
                                           bool copies, const char *function,
                                           const uint64_t *scalar,
                                           const struct collective_joint *joint)
{
    const Plasmon__V1__Task *task = c->task;
    struct head_launch launch     = {
            .kind          = copies ? PLASMON__V1__LAUNCH_KIND__LAUNCH_COPY
                                    : PLASMON__V1__LAUNCH_KIND__LAUNCH_RUN,
            .device        = device,
            .client        = c->client,
            .id            = task->id,
            .function      = function == NULL ? 0 : pl_hash_name(function),
            .label         = task->label,
            .operands      = step.operands.items,
            .operand_count = step.operands.count,
            .pieces        = step.pieces.items,
            .piece_count   = step.pieces.count,
            .scalars       = scalar,
            .scalar_count  = function == NULL ? 0 : 1,
            .retries_max   = copies               ? 250
                             : task->retries == 0 ? c->core->config.retries
                                                  : task->retries - 1,
            .submit_ns     = task->submit_ns != 0    ? task->submit_ns
                             : c->core->tracing != 0 ? c->core->trace_ns
                                                     : 0,
            .group         = c->group,
            .order         = joint->order,
            .length        = joint->rank,
            .team          = joint->team != NULL ? joint->team->number : 0,
            .pair          = joint->team != NULL ? joint->team->epoch : 0,
    };

    return head_task_start(c->core, &launch);
}

struct head_task *collective_step_start(struct collective *c, struct head_device *device,
                                        bool copies, const char *function,
                                        const uint64_t *scalar)
{
    return collective_step_start_as(c, device, copies, function, scalar, &collective_alone);
}

void collective_makes(struct collective *c, struct head_task *task,
                      struct head_array *array, const struct pl_box *box,
                      struct head_buffer *buffer)
{
    struct head_tile *tile = head_tile_create(c->core, box);

    tile->cut = HEAD_CUT_COLLECTIVE;
    head_tile_label_set(c->core, tile, c->task->label);
    head_instance_add(c->core, tile, buffer, box);
    head_task_makes(c->core, task, tile);
    head_array_set(c->core, array, box, tile);
    head_tile_release(c->core, tile);
}

struct collective_part collective_part_of(const struct collective_part *whole,
                                          const struct pl_box *part)
{
    struct collective_part out = {.array = whole->array, .box = *part};

    for (uint32_t i = 0; i < part->ndim; i++) {
        out.box.start[i] += whole->box.start[i];
    }
    return out;
}

/* ------------------------------------------------------------------------------- copies */

/*
 * A chunk is written before the next but one is read: so no member may lie in its way, but where it
 * is the same part of both.
 */
static bool clear_of_members(const struct collective *c, const struct head_arg *arg)
{
    for (uint32_t i = 0; i < c->count; i++) {
        if (c->ins[i].array == arg->array &&
            pl_box_intersects(&c->ins[i].box, &arg->hull) &&
            !pl_box_equal(&c->ins[i].box, &arg->hull)) {
            return false;
        }
    }
    return true;
}

/*
 * Where the result is made: in the buffer of what it takes the place of, if that lies here in one
 * and nobody else needs it; else in new memory. Sets *out_fresh.
 */
static bool out_open(struct collective *c, struct collective_out *out, bool *out_fresh)
{
    const struct head_arg *arg = out->arg;

    *out_fresh = false;
    if (out->buffer != NULL) {
        return true;
    }
    if (c->in_place && pl_view_dense(&arg->view) && clear_of_members(c, arg)) {
        out->buffer = head_move_common(arg->array, &arg->hull, out->device, true);
    }
    if (out->buffer != NULL) {
        head_buffer_hold(out->buffer);
        head_spill_keep_buffer(c->core, out->buffer);
        return true;
    }
    *out_fresh  = true;
    out->buffer = collective_fresh_buffer(c, out->device, &out->made.box, arg->dtype);
    return out->buffer != NULL;
}

/* One piece each, read where it lies. false: one cannot be. */
static bool pieces_in_reach(struct collective *c, const struct head_device *device,
                            const struct collective_part *from, const struct pl_box *boxes,
                            uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        struct head_buffer *source =
            head_move_reach(c->core, from[i].array, &from[i].box, device);

        if (source == NULL) {
            pl_vec_clear(&step.pieces);
            return false;
        }
        collective_step_piece(source, &from[i].box, &boxes[i]);
    }
    return true;
}

/* axis NULL: copies. */
static bool out_fill(struct collective *c, struct collective_out *out,
                     const struct pl_box *cover, const struct collective_part *from,
                     const struct pl_box *boxes, uint32_t count, const uint64_t *axis)
{
    struct head_operand operand;
    struct head_task *task;
    bool fresh, together;
    bool ok = true;

    collective_plan_begin(c);
    collective_step_begin();
    for (uint32_t i = 0; axis != NULL && i < count; i++) {
        head_spill_keep(c->core, from[i].array, &from[i].box);
    }
    if (!out_open(c, out, &fresh)) {
        return false;
    }
    operand         = head_operand_whole(out->buffer, fresh, true);
    operand.consume = !fresh;
    operand.box     = *cover;
    operand.view    = pl_view_of_box(cover);
    (void)collective_step_operand(&operand);
    together = axis != NULL && pieces_in_reach(c, out->device, from, boxes, count);
    for (uint32_t i = 0; ok && !together && i < count; i++) {
        ok = collective_step_pieces(c, &from[i], &boxes[i], out->buffer, 0);
    }
    if (ok) {
        task = collective_step_start(c, out->device, true, together ? "concatenate" : NULL,
                                     axis);
        if (!fresh) {
            head_buffer_overwrite(c->core, out->buffer, cover);
        }
        collective_makes(c, task, out->made.array, cover, out->buffer);
    }
    collective_step_end(c);
    return ok;
}

bool collective_copy(struct collective *c, struct collective_out *out,
                     const struct pl_box *cover, const struct collective_part *from,
                     const struct pl_box *boxes, uint32_t count)
{
    return out_fill(c, out, cover, from, boxes, count, NULL);
}

bool collective_join(struct collective *c, struct collective_out *out,
                     const struct pl_box *cover, const struct collective_part *from,
                     const struct pl_box *boxes, uint32_t count, uint32_t axis)
{
    const uint64_t scalar = axis;

    return out_fill(c, out, cover, from, boxes, count, &scalar);
}
