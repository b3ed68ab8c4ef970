/*
 * Bringing a box of an array to a device.
 *
 * The best case is that it is there: one buffer of the device already holds all of the box (head_move_common). Otherwise a fresh
 * buffer, just as large as the box, is filled from pieces: local ones, peer copies of other devices' buffers, and what the host
 * route delivers. The result is registered as instances of the same tiles, a replica, so that the next reader finds it.
 *
 * ONE TO MANY. Of several sources a large piece comes from the one that the fewest others read, and that may be a replica which is itself
 * being filled. A large piece is therefore cut, and its parts are launches of their own: who reads a part waits for that part alone,
 * so the bytes run through a chain of devices, each part one behind the last, and no source sends them more than once. Between hosts, where
 * what a source sends is less, that begins with smaller pieces; what is not cut there goes as a tree: from whoever will have sent it first.
 *
 * A piece comes from another device
 *   peer route: as a piece of the COPY itself: the consumer pulls, one-sided
 *   host route: as a pair SEND (on the source) and RECV (here) that share one order number: each waits for the other's chunks, and
 *               for nothing that has a higher number. Both halves move dense buffers, so a piece that is only part of a buffer
 *               is first copied out on the source's device.
 *
 * MANY SMALL PARTS that lie one behind the other in what is read come by a function that reads them where they are (`concatenate`; one
 * kernel on a GPU) and not by a copy each. Where some are still being made it waits for all of them, and fails with any. Whoever
 * reads all of what it fills would, too; others must not, so until its sources are made nobody finds a part of it (head_move_joint).
 */
#include "head/core_int.h"

/*
 * Of a large piece at most so many parts, and none below an eighth of config.chain_bytes (32 MiB). With n parts the last of k receivers has
 * its bytes after (n + k - 1) / n of one copy, and a part costs a copy about 2 us: 1 GiB for three devices is soonest there in some 50
 * parts, and for one alone each is a loss.
 */
#define PARTS 32u
/*
 * Between hosts large begins at a quarter of that (64 MiB), and parts at 8 MiB, one chunk of the ring: 1 ms at 100 Gbit/s, which is some times what
 * begins a part. Of a 256th (1 MiB) on, which takes longer than it takes to begin, it matters who else is sent to.
 */
#define HOSTS_FRACTION 4u
#define TREE_FRACTION  256u
#define HOPS_MAX       8u

/* Of pieces up to so much one kernel is sooner done than a copy each: at 350 GB/s a quarter of a MiB takes less than what begins a copy. */
#define SMALL_BYTES     (UINT64_C(256) << 10)
#define SMALL_BYTES_ALL (UINT64_C(4) << 20)
#define JOIN_MAX        64u /* pieces of one function, as many as a kernel takes */

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

/* In two halves: by a pair or by the host route. Otherwise the consumer copies. */
static bool in_halves(const struct head_core *core, const struct head_device *from,
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
    return from == to || (!from->gone && !in_halves(core, from, to));
}

/* -------------------------------------------------------------------------------------- common buffer */

bool head_move_joint(const struct head_buffer *buffer)
{
    const struct pl_list *pos;

    if (!buffer->replica) {
        return false;
    }
    pl_list_for_each(pos, &buffer->writers) {
        const struct head_task *task = pl_container_of(pos, struct head_use, link)->task;

        if (task->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_COPY && task->use_count > 2 &&
            task->producers_open > 0) {
            return true;
        }
    }
    return false;
}

static bool buffer_serves(struct head_array *array, const struct pl_box *box,
                          struct head_buffer *buffer, bool exclusive)
{
    struct pl_list *pos;

    if (!pl_box_contains(&buffer->frame, box) || (exclusive && !buffer->donatable)) {
        return false;
    }
    if (exclusive && head_buffer_mapped(buffer)) {
        return false;
    }
    if (!pl_box_equal(&buffer->frame, box) && head_move_joint(buffer)) {
        return false;
    }
    pl_list_for_each(pos, &array->fragments) {
        const struct head_fragment *fragment =
            pl_container_of(pos, struct head_fragment, array_link);
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
    struct pl_list *pos;

    pl_list_for_each(pos, &array->fragments) {
        const struct head_fragment *fragment =
            pl_container_of(pos, struct head_fragment, array_link);

        if (pl_box_intersects(&fragment->box, box)) {
            return fragment->tile;
        }
    }
    return NULL;
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

/* In C order, side by side. */
static bool box_dense(const struct pl_box *frame, const struct pl_box *box)
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
                       in_halves(core, buffer->device, device))) ||
            !box_dense(&buffer->frame, box) || !buffer_serves(array, box, buffer, false)) {
            continue;
        }
        best = buffer;
        if (here) {
            break;
        }
    }
    return best;
}

/* -------------------------------------------------------------------------------------------- filling */

/* What a fill is made of: (source buffer, box). */
struct plan {
    struct head_core *core;
    struct head_buffer *dst;
    struct pl_vec pieces; /* struct head_piece */
    struct pl_vec temps;  /* struct head_buffer *, owned references */
    bool no_direct;       /* dst itself must not be received into */
    bool dst_ready;       /* the RECV wrote the whole of it: no COPY is needed */
    struct head_failure *failure;
};

static uint64_t box_bytes(const struct pl_box *box, uint32_t dtype)
{
    return (uint64_t)pl_box_elements(box) * pl_dtype_bytes(dtype);
}

static bool box_pending(const struct head_buffer *buffer, const struct pl_box *box)
{
    struct pl_list *pos;

    pl_list_for_each(pos, &buffer->writers) {
        if (pl_box_intersects(&pl_container_of(pos, struct head_use, link)->box, box)) {
            return true;
        }
    }
    return false;
}

/* Pieces of so many bytes are cut. */
static uint64_t large_bytes(const struct head_core *core, const struct head_device *from,
                            const struct head_device *to)
{
    return core->config.chain_bytes / (head_device_apart(from, to) ? HOSTS_FRACTION : 1);
}

/* It comes from another host part by part. */
static bool received_in_parts(const struct head_buffer *buffer, const struct pl_box *box)
{
    unsigned parts = 0;
    struct pl_list *pos;

    pl_list_for_each(pos, &buffer->writers) {
        const struct head_use *use = pl_container_of(pos, struct head_use, link);

        parts += use->task->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_RECV &&
                 pl_box_intersects(&use->box, box);
        if (parts > 1) {
            return true;
        }
    }
    return false;
}

/* The buffer of another host that it is being received from; NULL: it is there, is made here, or has been sent. */
static const struct head_buffer *received_from(struct head_core *core,
                                               const struct head_buffer *buffer,
                                               const struct pl_box *box)
{
    struct pl_list *pos;

    pl_list_for_each(pos, &buffer->writers) {
        const struct head_use *use = pl_container_of(pos, struct head_use, link);
        const struct head_task *send;

        if (use->task->kind != PLASMON__V1__LAUNCH_KIND__LAUNCH_RECV ||
            !pl_box_intersects(&use->box, box)) {
            continue;
        }
        send = head_device_task(head_device_at(core, use->task->peer), use->task->twin_seq);
        return send != NULL && !send->finished && send->use_count > 0 ? send->uses[0].buffer
                                                                      : NULL;
    }
    return NULL;
}

/* How often it has yet to be sent until this buffer has it. */
static unsigned hops(struct head_core *core, const struct head_buffer *buffer,
                     const struct pl_box *box)
{
    unsigned count = 0;

    while (count < HOPS_MAX && buffer != NULL && box_pending(buffer, box)) {
        buffer = received_from(core, buffer, box);
        count++;
    }
    return count;
}

/* Bytes of the box that are on their way from this buffer to other devices. Looks at a few readers only: more are too many anyhow. */
static uint64_t leaving(const struct head_buffer *buffer, const struct pl_box *box)
{
    uint64_t bytes = 0;
    unsigned seen  = 0;
    struct pl_list *pos;

    pl_list_for_each(pos, &buffer->readers) {
        const struct head_use *use = pl_container_of(pos, struct head_use, link);
        struct pl_box part;

        if ((use->task->device != buffer->device ||
             use->task->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_SEND) &&
            pl_box_intersection(&use->box, box, &part)) {
            bytes += box_bytes(&part, buffer->dtype);
        }
        if (++seen == 4 * PARTS) {
            break;
        }
    }
    return bytes;
}

/* Bytes that a link has to carry before it can carry this box from here. What is cut does not wait until all of it is here. 0: so few that it does not matter. */
static uint64_t bytes_before(struct head_core *core, const struct head_buffer *from,
                             const struct pl_box *box, const struct head_device *to)
{
    uint64_t bytes = box_bytes(box, from->dtype);

    if (bytes >= large_bytes(core, from->device, to)) {
        return leaving(from, box);
    }
    if (!head_device_apart(from->device, to) ||
        bytes < core->config.chain_bytes / TREE_FRACTION) {
        return 0;
    }
    return leaving(from, box) + hops(core, from, box) * bytes;
}

/*
 * One whose worker is there, then one on a node that stays, then one that holds all of it, then one on the same host, then, unless it is small, the one that can send it first; then one that is
 * there already, then the device with the least to do.
 */
static bool better_source(struct head_core *core, const struct head_instance *a,
                          const struct head_instance *b, const struct pl_box *box,
                          const struct head_device *to)
{
    const struct head_buffer *from_a = a->buffer, *from_b = b->buffer;
    bool whole_a = pl_box_contains(&a->box, box), whole_b = pl_box_contains(&b->box, box);
    bool near_a = !head_device_apart(from_a->device, to);
    bool near_b = !head_device_apart(from_b->device, to);
    uint64_t before_a, before_b;
    bool pending_a, pending_b;

    if (from_a->device->connected != from_b->device->connected) {
        return from_a->device->connected; /* the other one may never come back */
    }
    if (!to->draining && from_a->device->draining != from_b->device->draining) {
        return from_b->device->draining; /* it may end while it sends */
    }
    if (whole_a != whole_b) {
        return whole_a;
    }
    if (near_a != near_b) {
        return near_a;
    }
    before_a = bytes_before(core, from_a, box, to);
    before_b = bytes_before(core, from_b, box, to);
    if (before_a != before_b) {
        return before_a < before_b;
    }
    pending_a = box_pending(from_a, box);
    pending_b = box_pending(from_b, box);
    if (pending_a != pending_b) {
        return pending_b;
    }
    return from_a->device->unfinished < from_b->device->unfinished;
}

static struct head_instance *best_source(struct head_core *core, struct head_tile *tile,
                                         const struct pl_box *box,
                                         const struct head_device *to)
{
    struct head_instance *best = NULL, *joint = NULL;
    struct pl_list *pos;

    pl_list_for_each(pos, &tile->instances) {
        struct head_instance *instance =
            pl_container_of(pos, struct head_instance, tile_link);

        if (!pl_box_intersects(&instance->box, box) || instance->buffer->spilled != NULL ||
            !head_move_possible(instance->buffer->device, to)) {
            continue;
        }
        if (head_move_joint(instance->buffer)) {
            joint = instance; /* only where there is no other */
            continue;
        }
        if (instance->buffer->device == to) {
            return instance;
        }
        if (best == NULL || better_source(core, instance, best, box, to)) {
            best = instance;
        }
    }
    return best != NULL ? best : joint;
}

static struct head_buffer *temp_create(struct plan *plan, struct head_device *device,
                                       const struct pl_box *box)
{
    struct head_buffer *temp;
    struct head_buffer **place;

    (void)head_spill_room(plan->core, device,
                          head_spill_rounded(box_bytes(box, plan->dst->dtype)));
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

/*
 * Fill `box` of dst. fresh: this launch makes dst, and its use covers all of it. axis: the pieces lie one behind the other along it, and a
 * function joins them; NULL: they are copied.
 */
static void start_copy(struct head_core *core, struct head_buffer *dst,
                       const struct pl_box *box, bool fresh,
                       const struct head_piece *pieces, size_t piece_count,
                       const uint64_t *axis)
{
    struct head_operand operand = head_operand_whole(dst, fresh, true);
    struct head_launch launch   = {
          .kind          = PLASMON__V1__LAUNCH_KIND__LAUNCH_COPY,
          .device        = dst->device,
          .operands      = &operand,
          .operand_count = 1,
          .pieces        = pieces,
          .piece_count   = piece_count,
          .function      = axis != NULL ? pl_hash_name("concatenate") : 0,
          .scalars       = axis,
          .scalar_count  = axis != NULL,
          .retries_max   = 250,
    };

    operand.consume = !fresh;
    operand.box     = *box;
    (void)head_task_start(core, &launch); /* the core owns it */
}

/* In every dimension but one the piece is as large as dst. *io_axis: which one; PL_DIM_MAX: not known yet. */
static bool along_axis(const struct pl_box *frame, const struct pl_box *box,
                       uint32_t *io_axis)
{
    for (uint32_t d = 0; d < frame->ndim; d++) {
        if (box->count[d] == frame->count[d]) {
            continue;
        }
        if (*io_axis != PL_DIM_MAX && *io_axis != d) {
            return false;
        }
        *io_axis = d;
    }
    return true;
}

/* Each piece so small, and all of them together, that what begins their copies takes longer than their bytes do. */
static bool all_small(const struct pl_vec *pieces)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < pieces->count; i++) {
        const struct head_piece *piece = pl_vec_at(pieces, i);
        uint64_t more                  = box_bytes(&piece->box, piece->src->dtype);

        bytes += more;
        if (more > SMALL_BYTES || bytes > SMALL_BYTES_ALL) {
            return false;
        }
    }
    return true;
}

/* One behind the other along *out_axis, none of them cut, and such that a launch on dst's device reads them where they lie; they are put in order. */
static bool in_a_row(const struct head_buffer *dst, struct pl_vec *pieces,
                     uint64_t *out_axis)
{
    struct head_piece *items = pieces->items;
    uint32_t axis            = PL_DIM_MAX;

    if (pieces->count < 2 || pieces->count > JOIN_MAX) {
        return false;
    }
    for (size_t i = 0; i < pieces->count; i++) {
        if (items[i].part || !box_dense(&items[i].src->frame, &items[i].box) ||
            !along_axis(&dst->frame, &items[i].box, &axis)) {
            return false;
        }
    }
    if (axis == PL_DIM_MAX) {
        return false;
    }
    for (size_t i = 1; i < pieces->count; i++) { /* few, and nearly always in order */
        for (size_t k = i; k > 0 && items[k].box.start[axis] < items[k - 1].box.start[axis];
             k--) {
            struct head_piece piece = items[k];

            items[k]     = items[k - 1];
            items[k - 1] = piece;
        }
    }
    *out_axis = axis;
    return true;
}

/*
 * Fill dst from pieces. Small ones that a function joins, and what is there already, go in one launch. What else is still being made goes piece by piece: a launch
 * fails as a whole, and who reads another part of dst must not fail because of a part that it does not read. Parts go one by one too.
 */
static void start_copies(struct head_core *core, struct head_buffer *dst,
                         struct pl_vec *pieces)
{
    struct head_piece *items = pieces->items;
    size_t together          = 0;
    uint64_t axis;

    if (all_small(pieces) && in_a_row(dst, pieces, &axis)) {
        start_copy(core, dst, &dst->frame, true, items, pieces->count, &axis);
        return;
    }
    for (size_t i = 0; i < pieces->count; i++) {
        if (!items[i].part && !box_pending(items[i].src, &items[i].box)) {
            struct head_piece piece = items[i];

            items[i]          = items[together];
            items[together++] = piece;
        }
    }
    if (together > 0) {
        start_copy(core, dst, &dst->frame, true, items, together, NULL);
    }
    for (size_t i = together; i < pieces->count; i++) {
        start_copy(core, dst, &items[i].box, i == 0, &items[i], 1, NULL);
    }
}

/* Could a third device want what this one gets? */
static bool chain_possible(struct head_core *core, const struct head_device *to)
{
    uint32_t peers = 0;

    for (uint32_t i = 0; i < core->devices.count; i++) {
        const struct head_device *device = head_device_at(core, i);

        peers += !device->gone && device->peer_capable && device->kind == to->kind &&
                 !head_device_apart(device, to);
    }
    return peers >= 3;
}

/* Likewise, of what comes from another host: one on any host but that. */
static bool hosts_chain_possible(struct head_core *core, const struct head_device *from,
                                 const struct head_device *to)
{
    for (uint32_t i = 0; i < core->devices.count; i++) {
        const struct head_device *device = head_device_at(core, i);

        if (device != to && !device->gone && device->joined &&
            head_device_apart(device, from) && head_move_possible(to, device)) {
            return true;
        }
    }
    return false;
}

static uint32_t parts_of(uint64_t bytes, uint64_t large)
{
    return (uint32_t)pl_min_u64(PARTS, bytes / pl_max_u64(large / 8, 1));
}

uint32_t head_move_parts(const struct head_core *core, uint64_t bytes)
{
    return parts_of(bytes, core->config.chain_bytes);
}

/* Slabs of the box along its slowest dimension, into io_pieces; large: from so many bytes on pieces are. */
static void cut(const struct head_piece *piece, uint64_t large, struct pl_vec *io_pieces)
{
    uint64_t bytes = box_bytes(&piece->box, piece->src->dtype);
    uint64_t parts = parts_of(bytes, large);
    uint32_t dim   = 0;
    int64_t rows, step;

    while (dim + 1 < piece->box.ndim && piece->box.count[dim] == 1) {
        dim++;
    }
    rows = piece->box.count[dim];
    step = (int64_t)(((uint64_t)rows + parts - 1) / parts);
    for (int64_t first = 0; first < rows; first += step) {
        struct head_piece *part = pl_vec_push(io_pieces);

        PL_CHECK(part != NULL);
        *part                = *piece;
        part->part           = true;
        part->box.start[dim] = piece->box.start[dim] + first;
        part->box.count[dim] = step < rows - first ? step : rows - first;
    }
}

/* chain: others may want them from here. Without, what comes to their source from another host in parts is taken on in such parts. */
static void cut_large(struct plan *plan, bool chain)
{
    struct pl_vec pieces = PL_VEC_INIT(struct head_piece);

    for (size_t i = 0; i < plan->pieces.count; i++) {
        const struct head_piece *piece = pl_vec_at(&plan->pieces, i);
        bool relayed                   = received_in_parts(piece->src, &piece->box);
        uint64_t large = plan->core->config.chain_bytes / (relayed ? HOSTS_FRACTION : 1);

        if (piece->src->device != plan->dst->device && (chain || relayed) &&
            box_bytes(&piece->box, piece->src->dtype) >= large) {
            cut(piece, large, &pieces);
        } else {
            struct head_piece *same = pl_vec_push(&pieces);

            PL_CHECK(same != NULL);
            *same = *piece;
        }
    }
    pl_vec_finish(&plan->pieces);
    plan->pieces = pieces;
}

/* `box` of both, which lies side by side in each. fresh: this makes dst. */
static void start_pair(struct head_core *core, struct head_buffer *src,
                       struct head_buffer *dst, const struct pl_box *box, bool fresh)
{
    struct head_operand from  = head_operand_whole(src, false, false);
    struct head_operand to    = head_operand_whole(dst, fresh, true);
    uint64_t bytes            = box_bytes(box, src->dtype);
    uint64_t chunks           = (bytes + HEAD_STAGE_SLOT_BYTES - 1) / HEAD_STAGE_SLOT_BYTES;
    struct head_launch launch = {
        .kind          = PLASMON__V1__LAUNCH_KIND__LAUNCH_SEND,
        .device        = src->device,
        .operands      = &from,
        .operand_count = 1,
        .offset        = dst->device->stage_next,
        .peer          = dst->device->index,
        .pair          = head_pair_route(core, src->device, dst->device, bytes),
        .retries_max   = 250,
    };

    from.box = to.box = *box;
    from.view = to.view = pl_view_of_box(box);
    to.consume          = !fresh;
    dst->device->stage_next += chunks;
    launch.order    = ++core->order_last; /* behind the OPEN of its pair */
    launch.twin     = head_task_start(core, &launch);
    launch.kind     = PLASMON__V1__LAUNCH_KIND__LAUNCH_RECV;
    launch.device   = dst->device;
    launch.operands = &to;
    launch.peer     = src->device->index;
    (void)head_task_start(core, &launch); /* the core owns it */
}

/* All of dst, whole or cut. */
static void start_pairs(struct head_core *core, struct head_buffer *src,
                        struct head_buffer *dst)
{
    const struct head_piece whole = {.src = src, .box = dst->frame};
    struct pl_vec parts           = PL_VEC_INIT(struct head_piece);
    uint64_t large                = large_bytes(core, src->device, dst->device);

    if (head_device_apart(src->device, dst->device) &&
        box_bytes(&dst->frame, dst->dtype) >= large &&
        hosts_chain_possible(core, src->device, dst->device)) {
        cut(&whole, large, &parts);
    }
    if (parts.count == 0) {
        start_pair(core, src, dst, &dst->frame, true);
    }
    for (size_t i = 0; i < parts.count; i++) {
        start_pair(core, src, dst, &((struct head_piece *)pl_vec_at(&parts, i))->box,
                   i == 0);
    }
    pl_vec_finish(&parts);
}

static void add_piece(struct plan *plan, struct head_buffer *src, const struct pl_box *box)
{
    struct head_piece *piece = pl_vec_push(&plan->pieces);

    PL_CHECK(piece != NULL);
    *piece = (struct head_piece){.src = src, .box = *box};
    head_spill_keep_buffer(plan->core, src);
}

/* One piece by the host route; it ends up as a local piece, or in dst itself when it is the whole of it. */
static bool stage_piece(struct plan *plan, struct head_buffer *src,
                        const struct pl_box *box)
{
    struct head_buffer *landing = plan->dst;

    head_spill_keep_buffer(plan->core, src);
    if (!pl_box_equal(&src->frame, box)) {
        struct head_piece out     = {.src = src, .box = *box};
        struct head_buffer *dense = temp_create(plan, src->device, box);

        if (dense == NULL) {
            return false;
        }
        start_copy(plan->core, dense, box, true, &out, 1, NULL);
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
    start_pairs(plan->core, src, landing);
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
    struct head_instance *source = best_source(plan->core, tile, box, plan->dst->device);
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
        in_halves(plan->core, source->buffer->device, plan->dst->device)) {
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
    struct pl_list *pos;

    pl_list_for_each(pos, &array->fragments) {
        const struct head_fragment *fragment =
            pl_container_of(pos, struct head_fragment, array_link);
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
    pl_vec_finish(buffers);
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
        .no_direct = true,
    };
    bool ok;

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
    release_all(core, &plan.temps);
    pl_vec_finish(&plan.pieces);
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
    };
    bool ok = plan_box(&plan, array, box);

    if (ok) {
        cut_large(&plan, chain_possible(core, dst->device));
    }
    if (ok && !plan.dst_ready) {
        start_copies(core, dst, &plan.pieces);
    }
    release_all(core, &plan.temps); /* their tasks hold them */
    pl_vec_finish(&plan.pieces);
    if (!ok) {
        *out_failure = plan.failure;
    }
    return ok;
}

struct head_buffer *head_move_read(struct head_core *core, struct head_array *array,
                                   const struct pl_box *box, struct head_device *device,
                                   bool exact, struct head_failure **out_failure)
{
    struct head_buffer *buffer;
    struct pl_list *pos;

    head_spill_keep(core, array, box);
    if (!head_spill_bring(core, array, box, device, out_failure)) {
        return NULL;
    }
    buffer = head_move_common(array, box, device, false);
    if (buffer != NULL && (!exact || pl_box_equal(&buffer->frame, box))) {
        head_buffer_hold(buffer);
        return buffer;
    }

    (void)head_spill_room(core, device,
                          head_spill_rounded(box_bytes(box, array->shape.dtype)));
    buffer = head_buffer_create(core, device, box, array->shape.dtype);
    if (buffer == NULL) {
        *out_failure = head_failure_create(
            PLASMON_ELIMIT, 0, 0,
            "the object table of device %u is full (%d objects); release some refs",
            device->index, HEAD_SLOTS_MAX);
        return NULL;
    }
    buffer->replica = true;
    if (!fill(core, array, box, buffer, out_failure)) {
        /* Never allocated at the worker: a free of something that it does not have is ignored there. */
        head_buffer_release(core, buffer);
        return NULL;
    }
    pl_list_for_each(pos, &array->fragments) {
        const struct head_fragment *fragment =
            pl_container_of(pos, struct head_fragment, array_link);
        struct pl_box part;

        if (pl_box_intersection(&fragment->box, box, &part)) {
            head_instance_add(core, fragment->tile, buffer, &part);
        }
    }
    return buffer;
}
