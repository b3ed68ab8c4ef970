/*
 * Reductions of the members' same boxes.
 *
 * A REDUCTION of much is two launches: one copy of all that lies elsewhere into one buffer, its
 * landing, by the device's streams for copies, and one `fold` of what is here. So the functions of
 * other tasks never wait in a stream behind bytes of a slow member. What is little
 * (config.one_shot_bytes) comes as pieces of the fold itself, each into memory of its own: one
 * launch instead of two.
 *
 * DIRECTLY. If all members can be reached from the device (in mapped memory of others), a reduction
 * is one launch: a COPY whose pieces the function `combine` reads where they lie
 * (worker/combine.c). No memory to land in, no second launch; the bits are those of `fold`.
 */
#include "head/collective_int.h"

#include <string.h>

#include "head/spill.h"

/* Members from `first` on, round. */
static uint32_t turn(const struct collective_reduction *r, uint32_t i)
{
    return (r->first + i) % r->c->count;
}

/* What lies elsewhere comes to one buffer, side by side along the slowest dimension. */
static bool land(struct collective_reduction *r)
{
    struct collective *c = r->c;
    struct pl_box frame  = collective_at_zero(&r->to->box);
    int64_t rows         = frame.count[0];
    struct head_operand operand;
    bool ok = true;

    frame.count[0] = 0;
    for (uint32_t i = 0; i < c->count; i++) {
        if (r->local[i] == NULL) {
            r->slot[i]          = collective_at_zero(&r->to->box);
            r->slot[i].start[0] = frame.count[0];
            frame.count[0] += rows;
        }
    }
    if (frame.count[0] == 0) {
        return true;
    }
    collective_step_begin();
    r->landing = collective_fresh_buffer(c, r->device, &frame, r->to->array->shape.dtype);
    if (r->landing == NULL) {
        return false;
    }
    operand = head_operand_whole(r->landing, true, true);
    (void)collective_step_operand(&operand);
    for (uint32_t k = 0; ok && k < c->count; k++) {
        uint32_t i = turn(r, k);

        ok = r->local[i] != NULL ||
             collective_step_pieces(c, &r->from[i], &r->slot[i], r->landing, 0);
    }
    if (ok) {
        (void)collective_step_start(c, r->device, true, NULL, NULL); /* the core owns it */
    }
    collective_step_end(c);
    return ok;
}

static struct head_operand reads(struct head_buffer *buffer, const struct pl_box *box)
{
    struct head_operand operand = head_operand_whole(buffer, false, false);

    operand.box  = *box;
    operand.view = pl_view_of_box(box);
    return operand;
}

/*
 * The member's values for the fold: where they are, in the landing, or in memory that the fold's
 * pieces fill.
 */
static bool add_member(struct collective_reduction *r, uint32_t i)
{
    struct collective *c = r->c;
    struct head_operand operand;

    if (r->local[i] != NULL) {
        operand = reads(r->local[i], &r->from[i].box);
    } else if (!r->in_shot) {
        operand = reads(r->landing, &r->slot[i]);
    } else {
        struct head_buffer *own =
            collective_step_buffer(c, r->device, &r->to->box, r->to->array->shape.dtype);

        if (own == NULL) {
            return false;
        }
        operand       = head_operand_whole(own, true, false);
        operand.reads = false; /* its pieces do */
    }
    (void)collective_step_operand(&operand);
    return true;
}

/* The accumulator begins as member 0. */
static bool fill_accumulator(struct collective_reduction *r,
                             struct head_buffer *accumulator)
{
    if (r->in_shot || r->local[0] != NULL) {
        return collective_step_pieces(r->c, &r->from[0], &r->to->box, accumulator, 0);
    }
    collective_step_piece(r->landing, &r->slot[0], &r->to->box);
    return true;
}

/* The fold's operands, in the order of the members, then its pieces, from `first` on. */
static bool add_members(struct collective_reduction *r, struct head_buffer *accumulator)
{
    struct head_operand operand = head_operand_whole(accumulator, true, true);
    bool ok                     = true;

    operand.mode = PLASMON__V1__MODE__MODE_INOUT;
    (void)collective_step_operand(&operand);
    for (uint32_t i = 1; ok && i < r->c->count; i++) {
        ok = add_member(r, i);
    }
    for (uint32_t k = 0; ok && k < r->c->count; k++) {
        uint32_t i = turn(r, k);

        if (i == 0) {
            ok = fill_accumulator(r, accumulator);
        } else if (r->in_shot && r->local[i] == NULL) {
            ok = collective_step_pieces(r->c, &r->from[i], &r->to->box,
                                        collective_step_operand_buffer(i), i);
        }
    }
    return ok;
}

static uint64_t operation(const struct collective_reduction *r)
{
    return r->c->op == COLLECTIVE_AVG ? COLLECTIVE_SUM : r->c->op;
}

static struct head_task *fold(struct collective_reduction *r,
                              struct head_buffer *accumulator)
{
    uint64_t op            = operation(r);
    struct head_task *task = NULL;

    collective_step_begin();
    if (add_members(r, accumulator)) {
        task = collective_step_start(r->c, r->device, false, "fold", &op);
    }
    collective_step_end(r->c);
    return task;
}

struct head_task *collective_reduction_combine(struct collective_reduction *r,
                                               struct head_buffer *out,
                                               const struct collective_joint *joint)
{
    struct head_operand operand = head_operand_whole(out, true, true);
    uint64_t op                 = operation(r);
    struct head_task *task;

    collective_step_begin();
    (void)collective_step_operand(&operand);
    for (uint32_t i = 0; i < r->c->count; i++) {
        collective_step_piece(r->source[i], &r->from[i].box, &r->to->box);
    }
    task = collective_step_start_as(r->c, r->device, true, "combine", &op, joint);
    collective_step_end(r->c);
    return task;
}

/* A sum becomes the average, in a buffer of its own, so that doing it again begins from the sum. */
static struct head_task *divide(struct collective_reduction *r, struct head_buffer *sum,
                                struct head_buffer *average)
{
    struct head_operand out = head_operand_whole(average, true, true);
    struct head_operand in  = reads(sum, &r->to->box);
    double factor           = 1.0 / r->c->count;
    struct head_task *task;
    uint64_t bits;

    memcpy(&bits, &factor, sizeof(bits));
    collective_step_begin();
    (void)collective_step_operand(&out);
    (void)collective_step_operand(&in);
    task = collective_step_start(r->c, r->device, false, "multiply_scalar", &bits);
    collective_step_end(r->c);
    return task;
}

bool collective_reduction_becomes(struct collective_reduction *r, struct head_task *task,
                                  struct head_buffer *accumulator)
{
    struct collective *c = r->c;
    struct head_buffer *average;

    if (c->op != COLLECTIVE_AVG) {
        collective_makes(c, task, r->to->array, &r->to->box, accumulator);
        return true;
    }
    average = collective_fresh_buffer(c, r->device, &r->to->box, r->to->array->shape.dtype);
    if (average == NULL) {
        return false;
    }
    collective_makes(c, divide(r, accumulator, average), r->to->array, &r->to->box,
                     average);
    head_buffer_release(c->core, average);
    return true;
}

/* What joins them, and what follows it, into new memory. */
static bool reduce_landed(struct collective_reduction *r)
{
    struct collective *c = r->c;
    struct head_buffer *accumulator =
        collective_fresh_buffer(c, r->device, &r->to->box, r->to->array->shape.dtype);
    struct head_task *task;
    bool ok;

    if (accumulator == NULL) {
        return false;
    }
    task = r->direct ? collective_reduction_combine(r, accumulator, &collective_alone)
                     : fold(r, accumulator);
    ok   = task != NULL && collective_reduction_becomes(r, task, accumulator);
    head_buffer_release(c->core, accumulator);
    return ok;
}

bool collective_reduction_find(struct collective_reduction *r, uint32_t i,
                               const struct pl_box *part)
{
    struct collective *c         = r->c;
    struct collective_part *from = &r->from[i];

    *from = collective_part_of(&c->ins[i], part);
    head_spill_keep(c->core, from->array, &from->box);
    if (!head_spill_bring(c->core, from->array, &from->box, r->device, &c->failure)) {
        return false;
    }
    r->local[i] = head_move_common(from->array, &from->box, r->device, false);
    return true;
}

bool collective_reduction_reached(struct collective_reduction *r)
{
    for (uint32_t i = 0; i < r->c->count; i++) {
        r->source[i] =
            head_move_reach(r->c->core, r->from[i].array, &r->from[i].box, r->device);
        if (r->source[i] == NULL) {
            return false;
        }
    }
    return true;
}

bool collective_reduce(struct collective *c, struct head_device *device, uint32_t first,
                       const struct pl_box *part, const struct collective_part *to)
{
    struct collective_reduction r = {
        .c      = c,
        .device = device,
        .first  = first,
        .to     = to,
        .in_shot =
            part->ndim == 0 || collective_bytes(to) <= c->core->config.one_shot_bytes,
    };
    bool ok = true;

    collective_plan_begin(c);
    for (uint32_t i = 0; ok && i < c->count; i++) {
        ok = collective_reduction_find(&r, i, part);
    }
    r.direct = ok && c->direct && collective_reduction_reached(&r);
    ok       = ok && (r.direct || r.in_shot || land(&r)) && reduce_landed(&r);
    if (r.landing != NULL) {
        head_buffer_release(c->core, r.landing); /* the launches use it */
    }
    return ok;
}
