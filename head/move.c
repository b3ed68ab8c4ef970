/*
 * Bringing a box of an array to a device.
 *
 * The best case is that it is there: one buffer of the device already holds all of the box
 * (head_move_common). Otherwise a fresh buffer, just as large as the box, is filled from pieces:
 * local ones, peer copies of other devices' buffers, and what the host route delivers. The result
 * is registered as instances of the same tiles, a replica, so that the next reader finds it.
 *
 * A piece comes from another device
 *   peer route: as a piece of the COPY itself: the consumer pulls, one-sided host route: as a pair
 *   SEND (on the source) and RECV (here) that share one order number: each waits for the other's
 *   chunks, and
 *               for nothing that has a higher number. Both halves move dense buffers, so a piece
 *               that is only part of a buffer is first copied out on the source's device.
 *
 * Pieces that lie in more than there is room for at one time are brought in turns (spill.c says
 * when): each source may go as soon as the launch that copies from it has its number.
 */
#include "head/move_int.h"

/* By one of its devices. */
static bool home_possible(const struct head_device *home, const struct head_device *to)
{
    struct head_core *core = home->spill->core;

    for (uint32_t i = 0; i < core->devices.count; i++) {
        const struct head_device *device = head_device_at(core, i);

        if (!device->gone && device->joined && !head_device_apart(device, home) &&
            head_move_possible(device, to)) {
            return true;
        }
    }
    return false;
}

bool head_move_possible(const struct head_device *from, const struct head_device *to)
{
    if (head_device_is_home(from) && head_device_apart(from, to)) {
        return home_possible(from, to);
    }
    return from == to || !head_device_apart(from, to) ||
           (from->bulk_address[0] != '\0' && to->bulk_address[0] != '\0');
}

bool head_move_in_halves(const struct head_core *core, const struct head_device *from,
                         const struct head_device *to)
{
    if (core->config.transfer == HEAD_TRANSFER_HOST ||
        core->config.transfer == HEAD_TRANSFER_NCCL || head_device_apart(from, to)) {
        return true;
    }
    return !(from->kind == to->kind && from->peer_capable && to->peer_capable);
}

bool head_move_direct(const struct head_core *core, const struct head_device *from,
                      const struct head_device *to)
{
    return from == to || (!from->gone && !head_move_in_halves(core, from, to));
}

/* ------------------------------------------------------------------------ common buffer */

/* What a collective makes fails as a whole, whoever reads how much of it. */
static bool fails_as_one(const struct head_task *task)
{
    return task->group != NULL && task->group->whole;
}

bool head_move_joint(const struct head_buffer *buffer)
{
    const struct pl_list *pos;

    if (!head_places_copied_to(buffer)) {
        return false;
    }
    pl_list_for_each(pos, &buffer->writers) {
        const struct head_task *task = pl_container_of(pos, struct head_use, link)->task;

        if (task->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_COPY && task->use_count > 2 &&
            task->producers_open > 0 && !fails_as_one(task)) {
            return true;
        }
    }
    return false;
}

static bool buffer_serves(struct head_array *array, const struct pl_box *box,
                          struct head_buffer *buffer, bool exclusive)
{
    const struct head_fragment *fragment;

    if (!pl_box_contains(&buffer->frame, box) || (exclusive && !buffer->donatable)) {
        return false;
    }
    if (exclusive && head_buffer_mapped(buffer)) {
        return false;
    }
    if (!pl_box_equal(&buffer->frame, box) && head_move_joint(buffer)) {
        return false;
    }
    for (fragment = head_array_meet(array, box); fragment != NULL;
         fragment = fragment->met) {
        struct pl_box part;

        if (!pl_box_intersection(&fragment->box, box, &part)) {
            continue;
        }
        if (!head_tile_covered(fragment->tile, buffer, &part)) {
            return false;
        }
        if (exclusive && head_tile_held_elsewhere(fragment->tile, array, &part, buffer)) {
            return false;
        }
    }
    return true;
}

/* Whatever serves must serve the first fragment that meets the box: its instances are the candidates. */
static struct head_tile *first_tile(struct head_array *array, const struct pl_box *box)
{
    const struct head_fragment *fragment = head_array_meet_first(array, box);

    return fragment != NULL ? fragment->tile : NULL;
}

struct head_buffer *head_move_common(struct head_array *array, const struct pl_box *box,
                                     struct head_device *device, bool exclusive)
{
    struct head_tile *tile = first_tile(array, box);
    struct pl_list *pos;

    if (tile == NULL) {
        return NULL;
    }
    pl_list_for_each(pos, &tile->instances) {
        const struct head_instance *instance =
            pl_container_of(pos, struct head_instance, tile_link);

        if (instance->buffer->device == device &&
            buffer_serves(array, box, instance->buffer, exclusive)) {
            return instance->buffer;
        }
    }
    return NULL;
}

bool head_move_box_dense(const struct pl_box *frame, const struct pl_box *box)
{
    uint32_t first = 0;

    while (first < box->ndim && box->count[first] == 1) {
        first++;
    }
    for (uint32_t i = first + 1; i < box->ndim; i++) {
        if (box->count[i] != frame->count[i]) {
            return false;
        }
    }
    return true;
}

struct head_buffer *head_move_reach(const struct head_core *core, struct head_array *array,
                                    const struct pl_box *box,
                                    const struct head_device *device)
{
    struct head_tile *tile   = first_tile(array, box);
    struct head_buffer *best = NULL;
    struct pl_list *pos;

    if (tile == NULL) {
        return NULL;
    }
    pl_list_for_each(pos, &tile->instances) {
        struct head_buffer *buffer =
            pl_container_of(pos, struct head_instance, tile_link)->buffer;
        bool here = buffer->device == device;

        if (buffer->spilled != NULL || (best != NULL && !here) ||
            (!here && (buffer->device->gone || !buffer->device->connected ||
                       head_move_in_halves(core, buffer->device, device))) ||
            !head_move_box_dense(&buffer->frame, box) ||
            !buffer_serves(array, box, buffer, false)) {
            continue;
        }
        best = buffer;
        if (here) {
            break;
        }
    }
    return best;
}

/* ------------------------------------------------------------------------------ filling */

/* What a fill is made of: (source buffer, box). */
struct plan {
    struct head_core *core;
    struct head_buffer *dst;
    struct pl_vec pieces; /* struct head_piece */
    struct pl_vec temps;  /* struct head_buffer *, owned references */
    struct pl_vec used;   /* struct head_buffer *: sources, kept until `turn_over` */
    bool no_direct;       /* dst itself must not be received into */
    bool dst_ready;       /* the RECV wrote the whole of it: no COPY is needed */
    struct head_failure *failure;
};

uint64_t head_move_box_bytes(const struct pl_box *box, uint32_t dtype)
{
    return (uint64_t)pl_box_elements(box) * pl_dtype_bytes(dtype);
}

bool head_move_box_pending(const struct head_buffer *buffer, const struct pl_box *box)
{
    struct pl_list *pos;

    pl_list_for_each(pos, &buffer->writers) {
        if (pl_box_intersects(&pl_container_of(pos, struct head_use, link)->box, box)) {
            return true;
        }
    }
    return false;
}

static struct head_buffer *temp_create(struct plan *plan, struct head_device *device,
                                       const struct pl_box *box)
{
    struct head_buffer *temp;
    struct head_buffer **place;

    (void)head_spill_room(plan->core, device,
                          head_spill_rounded(head_move_box_bytes(box, plan->dst->dtype)));
    temp = head_buffer_create(plan->core, device, box, plan->dst->dtype);
    if (temp == NULL) {
        plan->failure = head_failure_create(
            PLASMON_ELIMIT, 0, 0,
            "the object table of device %u is full (%d objects); release some refs",
            device->index, HEAD_SLOTS_MAX);
        return NULL;
    }
    place = pl_vec_push(&plan->temps);
    PL_CHECK(place != NULL);
    *place = temp;
    return temp;
}

static void keep_source(struct plan *plan, struct head_buffer *src)
{
    struct head_buffer **place = pl_vec_push(&plan->used);

    PL_CHECK(place != NULL);
    *place = src;
    head_spill_keep_buffer(plan->core, src);
}

static void add_piece(struct plan *plan, struct head_buffer *src, const struct pl_box *box)
{
    struct head_piece *piece = pl_vec_push(&plan->pieces);

    PL_CHECK(piece != NULL);
    *piece = (struct head_piece){.src = src, .box = *box};
    keep_source(plan, src);
}

/* One piece by the host route; it ends up as a local piece, or in dst itself when it is the whole of it. */
static bool stage_piece(struct plan *plan, struct head_buffer *src,
                        const struct pl_box *box)
{
    struct head_buffer *landing = plan->dst;

    keep_source(plan, src);
    if (!pl_box_equal(&src->frame, box)) {
        struct head_piece out     = {.src = src, .box = *box};
        struct head_buffer *dense = temp_create(plan, src->device, box);

        if (dense == NULL) {
            return false;
        }
        head_move_start_copy(plan->core, dense, box, true, &out, 1, NULL);
        src = dense;
    }
    if (plan->no_direct || !pl_box_equal(&plan->dst->frame, box)) {
        landing = temp_create(plan, plan->dst->device, box);
        if (landing == NULL) {
            return false;
        }
    } else {
        plan->dst_ready = true;
    }
    head_move_start_pairs(plan->core, src, landing);
    if (landing != plan->dst) {
        add_piece(plan, landing, box);
    }
    return true;
}

/* Where the operator wants NCCL and nothing else. */
static bool route_allowed(struct plan *plan, const struct head_device *from)
{
    const struct head_device *to = plan->dst->device;
    char why[HEAD_WHY_BYTES];
    const char *missing;

    if (plan->core->config.transfer != HEAD_TRANSFER_NCCL || from == to) {
        return true;
    }
    missing = head_pair_missing(from, to, why);
    if (missing == NULL) {
        return true;
    }
    plan->failure = head_failure_create(
        PLASMON_ENOTSUP, 0, 0,
        "--transfer nccl: nothing can go from device %u to device %u by NCCL: %s",
        from->index, to->index, missing);
    return false;
}

/* Nothing of the tile is where it could be read from. */
static struct head_failure *no_source(const struct head_tile *tile,
                                      const struct head_device *to)
{
    struct pl_list *pos;

    if (tile->failure != NULL) {
        return head_failure_hold(tile->failure);
    }
    pl_list_for_each(pos, &tile->instances) {
        if (pl_container_of(pos, struct head_instance, tile_link)->buffer->spilled !=
            NULL) {
            return head_failure_create(
                PLASMON_EDEVMEM, 0, 0,
                "an input was spilled, and there was no room to bring "
                "it back to device %u: release refs, use smaller "
                "blocks, or more devices",
                to->index);
        }
    }
    return head_failure_create(
        PLASMON_ENOTSUP, 0, 0,
        "an input lies on another host than device %u, and one of the "
        "two takes no part in transfers between hosts: start their "
        "stores with --bulk-address, or place the task where its "
        "inputs are",
        to->index);
}

/* All of `box` of the tile, from as many instances as it takes. */
static bool plan_tile(struct plan *plan, struct head_tile *tile, const struct pl_box *box)
{
    struct head_instance *source =
        head_move_source(plan->core, tile, box, plan->dst->device);
    struct pl_box rest[2 * PL_DIM_MAX];
    struct pl_box part;
    unsigned count;

    if (source == NULL) {
        plan->failure = no_source(tile, plan->dst->device);
        return false;
    }
    if (!route_allowed(plan, source->buffer->device)) {
        return false;
    }
    PL_CHECK(pl_box_intersection(&source->box, box, &part));
    count = pl_box_subtract(box, &part, rest);
    if (source->buffer->device != plan->dst->device &&
        head_move_in_halves(plan->core, source->buffer->device, plan->dst->device)) {
        if (!stage_piece(plan, source->buffer, &part)) {
            return false;
        }
    } else {
        add_piece(plan, source->buffer, &part);
    }
    for (unsigned i = 0; i < count; i++) {
        if (!plan_tile(plan, tile, &rest[i])) {
            return false;
        }
    }
    return true;
}

static bool plan_box(struct plan *plan, struct head_array *array, const struct pl_box *box)
{
    const struct head_fragment *fragment;

    for (fragment = head_array_meet(array, box); fragment != NULL;
         fragment = fragment->met) {
        struct pl_box part;

        if (pl_box_intersection(&fragment->box, box, &part) &&
            !plan_tile(plan, fragment->tile, &part)) {
            return false;
        }
    }
    return true;
}

static void release_all(struct head_core *core, struct pl_vec *buffers)
{
    for (size_t i = 0; i < buffers->count; i++) {
        head_buffer_release(core, *(struct head_buffer **)pl_vec_at(buffers, i));
    }
    pl_vec_clear(buffers);
}

static void plan_finish(struct plan *plan)
{
    release_all(plan->core, &plan->temps); /* their tasks hold them */
    pl_vec_finish(&plan->temps);
    pl_vec_finish(&plan->pieces);
    pl_vec_finish(&plan->used);
}

/* ----------------------------------------------------------------------------- in turns */

/* A part of the box, and the tile that it is of. */
struct rest {
    struct head_tile *tile;
    struct pl_box box;
};

static void rest_collect(struct head_array *array, const struct pl_box *box,
                         struct pl_vec *out_rest)
{
    const struct head_fragment *fragment;

    for (fragment = head_array_meet(array, box); fragment != NULL;
         fragment = fragment->met) {
        struct pl_box part;

        if (pl_box_intersection(&fragment->box, box, &part)) {
            struct rest *rest = pl_vec_push(out_rest);

            PL_CHECK(rest != NULL);
            *rest = (struct rest){.tile = fragment->tile, .box = part};
        }
    }
}

/* Of the rest what is on devices becomes pieces. */
static bool plan_present(struct plan *plan, struct pl_vec *io_rest)
{
    struct rest *items = io_rest->items;
    size_t left        = 0;

    for (size_t i = 0; i < io_rest->count; i++) {
        if (head_spill_part_missing(items[i].tile, &items[i].box, plan->dst->device)) {
            items[left++] = items[i];
        } else if (!plan_tile(plan, items[i].tile, &items[i].box)) {
            return false;
        }
    }
    io_rest->count = left;
    return true;
}

/* The launches that read the sources have their numbers: now these may go. */
static void turn_over(struct plan *plan, bool first, bool last)
{
    head_move_cut(plan->core, plan->dst, &plan->pieces);
    if (first) {
        (last ? head_move_start_copies : head_move_start_some)(plan->core, plan->dst,
                                                               &plan->pieces);
    }
    for (size_t i = 0; i < plan->pieces.count && !first; i++) {
        const struct head_piece *piece = pl_vec_at(&plan->pieces, i);

        head_move_start_copy(plan->core, plan->dst, &piece->box, false, piece, 1, NULL);
    }
    for (size_t i = 0; i < plan->used.count; i++) {
        (*(struct head_buffer **)pl_vec_at(&plan->used, i))->kept = 0;
    }
    pl_vec_clear(&plan->used);
    pl_vec_clear(&plan->pieces);
    release_all(plan->core, &plan->temps);
}

/*
 * Fill a fresh replica of what lies in more buffers than the device has room for: first from those
 * that are on devices, then from those that come back, one after the other, each of which may go
 * again when what it has of the box was copied.
 */
static bool fill_in_turns(struct head_core *core, struct head_array *array,
                          const struct pl_box *box, struct head_buffer *dst,
                          struct head_failure **out_failure)
{
    struct plan plan   = {.core      = core,
                          .dst       = dst,
                          .pieces    = PL_VEC_INIT(struct head_piece),
                          .temps     = PL_VEC_INIT(struct head_buffer *),
                          .used      = PL_VEC_INIT(struct head_buffer *),
                          .no_direct = true};
    struct pl_vec rest = PL_VEC_INIT(struct rest);
    bool ok = true, first = true;

    rest_collect(array, box, &rest);
    while (ok && rest.count > 0) {
        ok = plan_present(&plan, &rest);
        if (ok && plan.pieces.count > 0) {
            turn_over(&plan, first, rest.count == 0);
            first = false;
        }
        if (ok && rest.count > 0) {
            const struct rest *next = pl_vec_at(&rest, 0);

            ok = head_spill_part_bring(core, next->tile, &next->box, dst->device,
                                       &plan.failure);
        }
    }
    plan_finish(&plan);
    pl_vec_finish(&rest);
    if (!ok) {
        *out_failure = plan.failure;
    }
    return ok;
}

/* There is no room for its pieces at one time: it is gathered, and that is the one piece. */
static bool whole_as_piece(struct head_core *core, struct head_array *array,
                           const struct pl_box *box, const struct head_buffer *dst,
                           uint32_t operand, struct pl_vec *io_pieces,
                           struct pl_vec *io_held, struct head_failure **out_failure)
{
    struct head_buffer *whole =
        head_move_read(core, array, box, dst->device, false, out_failure);
    struct head_piece *piece;
    struct head_buffer **held;

    if (whole == NULL) {
        return false;
    }
    piece = pl_vec_push(io_pieces);
    held  = pl_vec_push(io_held);
    PL_CHECK(piece != NULL && held != NULL);
    *piece = (struct head_piece){.src = whole, .box = *box, .operand = operand};
    *held  = whole;
    return true;
}

bool head_move_pieces(struct head_core *core, struct head_array *array,
                      const struct pl_box *box, struct head_buffer *dst, uint32_t operand,
                      struct pl_vec *io_pieces, struct pl_vec *io_held,
                      struct head_failure **out_failure)
{
    struct plan plan = {
        .core      = core,
        .dst       = dst,
        .pieces    = PL_VEC_INIT(struct head_piece),
        .temps     = PL_VEC_INIT(struct head_buffer *),
        .used      = PL_VEC_INIT(struct head_buffer *),
        .no_direct = true,
    };
    bool ok;

    if (!head_spill_at_once(core, array, box, dst->device)) {
        return whole_as_piece(core, array, box, dst, operand, io_pieces, io_held,
                              out_failure);
    }
    head_spill_keep(core, array, box);
    ok = head_spill_bring(core, array, box, dst->device, &plan.failure) &&
         plan_box(&plan, array, box);

    for (size_t i = 0; ok && i < plan.pieces.count; i++) {
        struct head_piece *piece  = pl_vec_push(io_pieces);
        struct head_buffer **held = pl_vec_push(io_held);

        PL_CHECK(piece != NULL && held != NULL);
        *piece         = *(struct head_piece *)pl_vec_at(&plan.pieces, i);
        piece->operand = operand;
        *held          = piece->src;
        head_buffer_hold(piece->src);
    }
    plan_finish(&plan);
    if (!ok) {
        *out_failure = plan.failure;
    }
    return ok;
}

/* Fill a fresh replica (frame == box). */
static bool fill(struct head_core *core, struct head_array *array, const struct pl_box *box,
                 struct head_buffer *dst, struct head_failure **out_failure)
{
    struct plan plan = {
        .core   = core,
        .dst    = dst,
        .pieces = PL_VEC_INIT(struct head_piece),
        .temps  = PL_VEC_INIT(struct head_buffer *),
        .used   = PL_VEC_INIT(struct head_buffer *),
    };
    bool ok = plan_box(&plan, array, box);

    if (ok) {
        head_move_cut(core, dst, &plan.pieces);
    }
    if (ok && !plan.dst_ready) {
        head_move_start_copies(core, dst, &plan.pieces);
    }
    plan_finish(&plan);
    if (!ok) {
        *out_failure = plan.failure;
    }
    return ok;
}

struct head_buffer *head_move_read(struct head_core *core, struct head_array *array,
                                   const struct pl_box *box, struct head_device *device,
                                   bool exact, struct head_failure **out_failure)
{
    const struct head_fragment *fragment;
    struct head_buffer *buffer = head_move_common(array, box, device, false);
    bool at_once = buffer != NULL || head_spill_at_once(core, array, box, device);

    if (at_once) {
        head_spill_keep(core, array, box);
    }
    if (at_once && buffer == NULL) {
        if (!head_spill_bring(core, array, box, device, out_failure)) {
            return NULL;
        }
        buffer = head_move_common(array, box, device, false);
    }
    if (buffer != NULL && (!exact || pl_box_equal(&buffer->frame, box))) {
        head_buffer_hold(buffer);
        return buffer;
    }

    (void)head_spill_room(core, device,
                          head_spill_rounded(head_move_box_bytes(box, array->shape.dtype)));
    buffer = head_buffer_create(core, device, box, array->shape.dtype);
    if (buffer == NULL) {
        *out_failure = head_failure_create(
            PLASMON_ELIMIT, 0, 0,
            "the object table of device %u is full (%d objects); release some refs",
            device->index, HEAD_SLOTS_MAX);
        return NULL;
    }
    head_buffer_replica_set(buffer, true);
    if (!(at_once ? fill : fill_in_turns)(core, array, box, buffer, out_failure)) {
        /*
         * If it was never allocated at the worker: a free of something that it does not have is
         * ignored there.
         */
        head_buffer_release(core, buffer);
        return NULL;
    }
    for (fragment = head_array_meet(array, box); fragment != NULL;
         fragment = fragment->met) {
        struct pl_box part;

        if (pl_box_intersection(&fragment->box, box, &part)) {
            head_instance_add(core, fragment->tile, buffer, &part);
        }
    }
    return buffer;
}
