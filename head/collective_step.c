/*
 * The launches that a collective is made of: copies of many boxes into one result, and reductions of the members' same boxes.
 *
 * A REDUCTION of much is two launches: one copy of all that lies elsewhere into one buffer, its landing, by the device's streams for copies,
 * and one `fold` of what is here. So the functions of other tasks never wait in a stream behind bytes of a slow member. What is little
 * (config.one_shot_bytes) comes as pieces of the fold itself, each into memory of its own: one launch instead of two.
 *
 * DIRECTLY. If all members can be reached from the device (in mapped memory of others), a reduction is one launch: a COPY whose pieces the
 * function `combine` reads where they lie (worker/combine.c). No memory to land in, no second launch; the bits are those of `fold`.
 *
 * TOGETHER. The devices of all results may have a communicator (team.c). Then each has one launch that reduces all of the members, and all of
 * these have one number. Such a launch is one that reads directly, and names the team: what the team does not do, because it broke, its
 * device does alone, and nobody else has to know. So results have memory of their own, and all members are kept until all launches are over.
 *
 * Bytes change their coordinates on the way: a piece's `shift` is where its box of the source comes to lie in what is filled.
 *
 * Each launch that fills something begins from sources that it does not write, so it can be done again after a crash.
 */
#include "head/collective.h"

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

static void step_begin(void)
{
    pl_vec_clear(&step.operands);
    pl_vec_clear(&step.pieces);
    pl_vec_clear(&step.held);
}

static void step_end(struct collective *c)
{
    for (size_t i = 0; i < step.held.count; i++) {
        head_buffer_release(c->core, *(struct head_buffer **)pl_vec_at(&step.held, i));
    }
    step_begin();
}

static uint32_t step_operand(const struct head_operand *operand)
{
    struct head_operand *place = pl_vec_push(&step.operands);

    PL_CHECK(place != NULL);
    *place = *operand;
    return (uint32_t)step.operands.count - 1;
}

/* What was kept apart for the step before may be spilled, but not results that are half made. */
static void plan_begin(struct collective *c)
{
    head_spill_plan_begin(c->core);
    for (uint32_t i = 0; i < c->out_count; i++) {
        if (c->outs[i].buffer != NULL) {
            head_spill_keep_buffer(c->core, c->outs[i].buffer);
        }
    }
}

/* New memory, the caller's. */
static struct head_buffer *fresh_buffer(struct collective *c, struct head_device *device,
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

/* The same, until the launch uses it. */
static struct head_buffer *step_buffer(struct collective *c, struct head_device *device,
                                       const struct pl_box *frame, uint32_t dtype)
{
    struct head_buffer *buffer = fresh_buffer(c, device, frame, dtype);

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

/* Pieces that bring `from` to box `to` of an operand, which is `dst`. */
static bool step_pieces(struct collective *c, const struct collective_part *from,
                        const struct pl_box *to, struct head_buffer *dst, uint32_t operand)
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

/* What is done together with others: by which team, as which rank, under which number. */
struct joint {
    const struct head_team *team; /* NULL: it is done alone */
    uint32_t rank;
    uint64_t order;
};
static const struct joint alone = {.team = NULL};

/* copies: a COPY, of the pieces or by the function; else a RUN. */
static struct head_task *step_start_as(struct collective *c, struct head_device *device,
                                       bool copies, const char *function,
                                       const uint64_t *scalar, const struct joint *joint)
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

static struct head_task *step_start(struct collective *c, struct head_device *device,
                                    bool copies, const char *function,
                                    const uint64_t *scalar)
{
    return step_start_as(c, device, copies, function, scalar, &alone);
}

/* `box` of the array is from now on what the task makes in the buffer. */
static void makes(struct collective *c, struct head_task *task, struct head_array *array,
                  const struct pl_box *box, struct head_buffer *buffer)
{
    struct head_tile *tile = head_tile_create(c->core, box);

    tile->cut = HEAD_CUT_COLLECTIVE;
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

/* ------------------------------------------------------------------------------------------------ copies */

/*
 * Where the result is made: in the buffer of what it takes the place of, if that lies here in one and nobody else needs it; else in new
 * memory. Sets *out_fresh.
 */
static bool out_open(struct collective *c, struct collective_out *out, bool *out_fresh)
{
    const struct head_arg *arg = out->arg;

    *out_fresh = false;
    if (out->buffer != NULL) {
        return true;
    }
    if (c->in_place && pl_view_dense(&arg->view)) {
        out->buffer = head_move_common(arg->array, &arg->hull, out->device, true);
    }
    if (out->buffer != NULL) {
        head_buffer_hold(out->buffer);
        head_spill_keep_buffer(c->core, out->buffer);
        return true;
    }
    *out_fresh  = true;
    out->buffer = fresh_buffer(c, out->device, &out->made.box, arg->dtype);
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
        struct head_piece *piece;

        if (source == NULL) {
            pl_vec_clear(&step.pieces);
            return false;
        }
        piece = pl_vec_push(&step.pieces);
        PL_CHECK(piece != NULL);
        *piece = (struct head_piece){.src = source, .box = from[i].box};
        shift_to(piece, &from[i].box, &boxes[i]);
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

    plan_begin(c);
    step_begin();
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
    (void)step_operand(&operand);
    together = axis != NULL && pieces_in_reach(c, out->device, from, boxes, count);
    for (uint32_t i = 0; ok && !together && i < count; i++) {
        ok = step_pieces(c, &from[i], &boxes[i], out->buffer, 0);
    }
    if (ok) {
        task = step_start(c, out->device, true, together ? "concatenate" : NULL, axis);
        if (!fresh) {
            head_buffer_overwrite(c->core, out->buffer, cover);
        }
        makes(c, task, out->made.array, cover, out->buffer);
    }
    step_end(c);
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

/* ------------------------------------------------------------------------------------------------ reductions */

struct reduction {
    struct collective *c;
    struct head_device *device;
    uint32_t first;
    bool in_shot; /* members come as pieces of the fold */
    bool direct;  /* all are read where they lie */
    const struct collective_part *to;
    struct collective_part from[WIRE_COLLECTIVE_MAX];
    struct head_buffer *source[WIRE_COLLECTIVE_MAX]; /* direct: where that is */
    struct head_buffer
        *local[WIRE_COLLECTIVE_MAX];         /* in which it lies here; NULL: elsewhere */
    struct pl_box slot[WIRE_COLLECTIVE_MAX]; /* of the landing, if not local */
    struct head_buffer *landing;             /* the reduction's; NULL: none is needed */
};

/* Members from `first` on, round. */
static uint32_t turn(const struct reduction *r, uint32_t i)
{
    return (r->first + i) % r->c->count;
}

/* What lies elsewhere comes to one buffer, side by side along the slowest dimension. */
static bool land(struct reduction *r)
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
    step_begin();
    r->landing = fresh_buffer(c, r->device, &frame, r->to->array->shape.dtype);
    if (r->landing == NULL) {
        return false;
    }
    operand = head_operand_whole(r->landing, true, true);
    (void)step_operand(&operand);
    for (uint32_t k = 0; ok && k < c->count; k++) {
        uint32_t i = turn(r, k);

        ok = r->local[i] != NULL || step_pieces(c, &r->from[i], &r->slot[i], r->landing, 0);
    }
    if (ok) {
        (void)step_start(c, r->device, true, NULL, NULL); /* the core owns it */
    }
    step_end(c);
    return ok;
}

static struct head_operand reads(struct head_buffer *buffer, const struct pl_box *box)
{
    struct head_operand operand = head_operand_whole(buffer, false, false);

    operand.box  = *box;
    operand.view = pl_view_of_box(box);
    return operand;
}

/* The member's values for the fold: where they are, in the landing, or in memory that the fold's pieces fill. */
static bool add_member(struct reduction *r, uint32_t i)
{
    struct collective *c = r->c;
    struct head_operand operand;

    if (r->local[i] != NULL) {
        operand = reads(r->local[i], &r->from[i].box);
    } else if (!r->in_shot) {
        operand = reads(r->landing, &r->slot[i]);
    } else {
        struct head_buffer *own =
            step_buffer(c, r->device, &r->to->box, r->to->array->shape.dtype);

        if (own == NULL) {
            return false;
        }
        operand       = head_operand_whole(own, true, false);
        operand.reads = false; /* its pieces do */
    }
    (void)step_operand(&operand);
    return true;
}

/* The accumulator begins as member 0. */
static bool fill_accumulator(struct reduction *r, struct head_buffer *accumulator)
{
    struct head_piece *piece;

    if (r->in_shot || r->local[0] != NULL) {
        return step_pieces(r->c, &r->from[0], &r->to->box, accumulator, 0);
    }
    piece = pl_vec_push(&step.pieces);
    PL_CHECK(piece != NULL);
    *piece = (struct head_piece){.src = r->landing, .box = r->slot[0]};
    shift_to(piece, &r->slot[0], &r->to->box);
    return true;
}

/* The fold's operands, in the order of the members, then its pieces, from `first` on. */
static bool add_members(struct reduction *r, struct head_buffer *accumulator)
{
    struct head_operand operand = head_operand_whole(accumulator, true, true);
    bool ok                     = true;

    operand.mode = PLASMON__V1__MODE__MODE_INOUT;
    (void)step_operand(&operand);
    for (uint32_t i = 1; ok && i < r->c->count; i++) {
        ok = add_member(r, i);
    }
    for (uint32_t k = 0; ok && k < r->c->count; k++) {
        uint32_t i = turn(r, k);

        if (i == 0) {
            ok = fill_accumulator(r, accumulator);
        } else if (r->in_shot && r->local[i] == NULL) {
            struct head_operand *own = pl_vec_at(&step.operands, i);

            ok = step_pieces(r->c, &r->from[i], &r->to->box, own->buffer, i);
        }
    }
    return ok;
}

static uint64_t operation(const struct reduction *r)
{
    return r->c->op == COLLECTIVE_AVG ? COLLECTIVE_SUM : r->c->op;
}

static struct head_task *fold(struct reduction *r, struct head_buffer *accumulator)
{
    uint64_t op            = operation(r);
    struct head_task *task = NULL;

    step_begin();
    if (add_members(r, accumulator)) {
        task = step_start(r->c, r->device, false, "fold", &op);
    }
    step_end(r->c);
    return task;
}

/* The members where they lie, in their order. */
static struct head_task *combine(struct reduction *r, struct head_buffer *out,
                                 const struct joint *joint)
{
    struct head_operand operand = head_operand_whole(out, true, true);
    uint64_t op                 = operation(r);
    struct head_task *task;

    step_begin();
    (void)step_operand(&operand);
    for (uint32_t i = 0; i < r->c->count; i++) {
        struct head_piece *piece = pl_vec_push(&step.pieces);

        PL_CHECK(piece != NULL);
        *piece = (struct head_piece){.src = r->source[i], .box = r->from[i].box};
        shift_to(piece, &r->from[i].box, &r->to->box);
    }
    task = step_start_as(r->c, r->device, true, "combine", &op, joint);
    step_end(r->c);
    return task;
}

/* A sum becomes the average, in a buffer of its own, so that doing it again begins from the sum. */
static struct head_task *divide(struct reduction *r, struct head_buffer *sum,
                                struct head_buffer *average)
{
    struct head_operand out = head_operand_whole(average, true, true);
    struct head_operand in  = reads(sum, &r->to->box);
    double factor           = 1.0 / r->c->count;
    struct head_task *task;
    uint64_t bits;

    memcpy(&bits, &factor, sizeof(bits));
    step_begin();
    (void)step_operand(&out);
    (void)step_operand(&in);
    task = step_start(r->c, r->device, false, "multiply_scalar", &bits);
    step_end(r->c);
    return task;
}

/* The task makes it in there; of an average the sum. false: no memory for the rest. */
static bool becomes(struct reduction *r, struct head_task *task,
                    struct head_buffer *accumulator)
{
    struct collective *c = r->c;
    struct head_buffer *average;

    if (c->op != COLLECTIVE_AVG) {
        makes(c, task, r->to->array, &r->to->box, accumulator);
        return true;
    }
    average = fresh_buffer(c, r->device, &r->to->box, r->to->array->shape.dtype);
    if (average == NULL) {
        return false;
    }
    makes(c, divide(r, accumulator, average), r->to->array, &r->to->box, average);
    head_buffer_release(c->core, average);
    return true;
}

/* What joins them, and what follows it, into new memory. */
static bool reduce_landed(struct reduction *r)
{
    struct collective *c = r->c;
    struct head_buffer *accumulator =
        fresh_buffer(c, r->device, &r->to->box, r->to->array->shape.dtype);
    struct head_task *task;
    bool ok;

    if (accumulator == NULL) {
        return false;
    }
    task = r->direct ? combine(r, accumulator, &alone) : fold(r, accumulator);
    ok   = task != NULL && becomes(r, task, accumulator);
    head_buffer_release(c->core, accumulator);
    return ok;
}

/* What of it lies in host memory only is brought here. */
static bool find_member(struct reduction *r, uint32_t i, const struct pl_box *part)
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

/* When all of them have been found, and nothing is brought any more. */
static bool all_reached(struct reduction *r)
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
    struct reduction r = {
        .c      = c,
        .device = device,
        .first  = first,
        .to     = to,
        .in_shot =
            part->ndim == 0 || collective_bytes(to) <= c->core->config.one_shot_bytes,
    };
    bool ok = true;

    plan_begin(c);
    for (uint32_t i = 0; ok && i < c->count; i++) {
        ok = find_member(&r, i, part);
    }
    r.direct = ok && c->direct && all_reached(&r);
    ok       = ok && (r.direct || r.in_shot || land(&r)) && reduce_landed(&r);
    if (r.landing != NULL) {
        head_buffer_release(c->core, r.landing); /* the launches use it */
    }
    return ok;
}

/* ------------------------------------------------------------------------------------------------ together */

/* One device's part. */
struct part {
    struct reduction r;
    struct head_buffer *accumulator; /* held */
    uint32_t rank;
};

/* A part reads `box` of all members where they lie, and its own is all of a buffer. */
static bool part_find(struct part *part, const struct pl_box *box, bool *out)
{
    struct reduction *r = &part->r;
    uint32_t own        = 0;
    bool ok             = true;

    for (uint32_t k = 0; ok && k < r->c->count; k++) {
        ok = find_member(r, k, box);
    }
    *out = ok && all_reached(r);
    for (uint32_t k = 0; *out && k < r->c->count; k++) {
        if (r->source[k]->device == r->device) {
            own += pl_box_equal(&r->source[k]->frame, &r->c->ins[k].box) ? 1 : 2;
        }
    }
    *out = *out && own == 1;
    return ok;
}

/* Ranks by index; false: two are of one device, or they are not in the order of the results, and are to be. */
static bool ranks_give(struct part *parts, uint32_t count, bool in_order,
                       struct head_device **out)
{
    for (uint32_t i = 0; i < count; i++) {
        parts[i].rank = 0;
        for (uint32_t k = 0; k < count; k++) {
            if (k != i && parts[k].r.device == parts[i].r.device) {
                return false;
            }
            parts[i].rank += parts[k].r.device->index < parts[i].r.device->index;
        }
        if (in_order && parts[i].rank != i) {
            return false;
        }
        out[parts[i].rank] = parts[i].r.device;
    }
    return true;
}

/* All memory first: between launches of one number there may be no others. */
static bool parts_start(struct collective *c, struct part *parts,
                        const struct head_team *team)
{
    struct joint joint = {.team = team};
    struct head_task *task[WIRE_TEAM_MAX];
    bool ok = true;

    for (uint32_t i = 0; ok && i < c->out_count; i++) {
        struct reduction *r = &parts[i].r;

        parts[i].accumulator =
            fresh_buffer(c, r->device, &r->to->box, r->to->array->shape.dtype);
        ok = parts[i].accumulator != NULL;
    }
    joint.order = ok ? ++c->core->order_last : 0;
    for (uint32_t i = 0; ok && i < c->out_count; i++) {
        joint.rank = parts[i].rank;
        task[i]    = combine(&parts[i].r, parts[i].accumulator, &joint);
    }
    for (uint32_t i = 0; ok && i < c->out_count; i++) {
        ok = becomes(&parts[i].r, task[i], parts[i].accumulator);
    }
    return ok;
}

bool collective_reduce_together(struct collective *c, bool scattered, bool *out_done)
{
    const struct pl_box whole    = collective_at_zero(&c->ins[0].box);
    struct part *parts           = head_alloc(c->out_count * sizeof(*parts));
    const struct head_team *team = NULL;
    struct head_device *devices[WIRE_COLLECTIVE_MAX];
    bool ok = true, possible = c->count == c->out_count && c->count <= WIRE_TEAM_MAX;
    struct pl_box box;

    plan_begin(c);
    for (uint32_t i = 0; ok && possible && i < c->out_count; i++) {
        parts[i].r =
            (struct reduction){.c = c, .device = c->outs[i].device, .to = &c->outs[i].made};
        box = scattered ? collective_slab(&whole, i, c->count) : whole;
        ok  = part_find(&parts[i], &box, &possible);
    }
    possible = ok && possible && ranks_give(parts, c->out_count, scattered, devices);
    if (possible) {
        team = head_team_take(c->core, devices, c->out_count, collective_bytes(&c->ins[0]),
                              c->task->collective->way == COLLECTIVE_NCCL);
    }
    *out_done = team != NULL;
    ok        = ok && (team == NULL || parts_start(c, parts, team));
    for (uint32_t i = 0; i < c->out_count; i++) {
        if (parts[i].accumulator != NULL) {
            head_buffer_release(c->core, parts[i].accumulator);
        }
    }
    pl_free(parts);
    return ok;
}

/* The members where they lie, for result i; its own is all of a buffer, and number i. */
static bool sources_find(struct collective *c, uint32_t i, struct head_buffer **out)
{
    const struct head_device *device = c->outs[i].device;

    for (uint32_t k = 0; k < c->count; k++) {
        const struct pl_box *box = &c->ins[k].box;

        head_spill_keep(c->core, c->ins[k].array, box);
        out[k] = head_move_reach(c->core, c->ins[k].array, box, device);
        if (out[k] == NULL || (out[k]->device == device) != (k == i) ||
            (k == i && !pl_box_equal(&out[k]->frame, box))) {
            return false;
        }
    }
    return i == 0 || c->outs[i - 1].device->index < device->index;
}

static struct head_task *gather_start(struct collective *c, uint32_t i,
                                      struct head_buffer *const *sources,
                                      struct head_buffer *to, const struct joint *joint)
{
    struct head_operand operand = head_operand_whole(to, true, true);
    const uint64_t axis         = 0;
    struct head_task *task;

    step_begin();
    (void)step_operand(&operand);
    for (uint32_t k = 0; k < c->count; k++) {
        struct head_piece *piece = pl_vec_push(&step.pieces);
        struct pl_box place      = collective_slab(&c->outs[i].made.box, k, c->count);

        PL_CHECK(piece != NULL);
        *piece = (struct head_piece){.src = sources[k], .box = c->ins[k].box};
        shift_to(piece, &c->ins[k].box, &place);
    }
    task = step_start_as(c, c->outs[i].device, true, "concatenate", &axis, joint);
    step_end(c);
    return task;
}

bool collective_gather_together(struct collective *c, bool *out_done)
{
    struct head_buffer *sources[WIRE_TEAM_MAX][WIRE_TEAM_MAX];
    struct head_buffer *made[WIRE_TEAM_MAX] = {NULL};
    struct head_device *devices[WIRE_TEAM_MAX];
    struct joint joint = {.team = NULL};
    bool ok = true, possible = c->count == c->out_count && c->count <= WIRE_TEAM_MAX;

    plan_begin(c);
    for (uint32_t i = 0; possible && i < c->out_count; i++) {
        devices[i] = c->outs[i].device;
        possible   = sources_find(c, i, sources[i]);
    }
    if (possible) {
        joint.team = head_team_take(c->core, devices, c->out_count,
                                    c->count * collective_bytes(&c->ins[0]), true);
    }
    *out_done = joint.team != NULL;
    for (uint32_t i = 0; *out_done && ok && i < c->out_count; i++) {
        made[i] =
            fresh_buffer(c, devices[i], &c->outs[i].made.box, c->ins[0].array->shape.dtype);
        ok = made[i] != NULL;
    }
    joint.order = *out_done && ok ? ++c->core->order_last : 0;
    for (uint32_t i = 0; *out_done && ok && i < c->out_count; i++) {
        joint.rank = i;
        makes(c, gather_start(c, i, sources[i], made[i], &joint), c->outs[i].made.array,
              &c->outs[i].made.box, made[i]);
    }
    for (uint32_t i = 0; *out_done && i < c->out_count; i++) {
        if (made[i] != NULL) {
            head_buffer_release(c->core, made[i]);
        }
    }
    return ok;
}
