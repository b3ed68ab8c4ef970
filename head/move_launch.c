/*
 * The launches that fill a buffer from pieces: copies, a function that joins many small ones,
 * halves of transfers; and how what is large is cut.
 *
 * ONE TO MANY. A large piece is cut, and its parts are launches of their own: who reads a part
 * waits for that part alone, so the bytes run through a chain of devices, each part one behind the
 * last, and no source sends them more than once. When the first of several asks nobody knows of the
 * others, so how finely is decided by what was seen last: after a piece that was passed on while it
 * came the next ones are cut finely, too, until some were wanted by one device alone.
 *
 * MANY SMALL PARTS that lie one behind the other in what is read come by a function that reads them
 * where they are (`concatenate`; one kernel on a GPU) and not by a copy each. Where some are still
 * being made it waits for all of them, and fails with any. Whoever reads all of what it fills
 * would, too; others must not, so until its sources are made nobody finds a part of it
 * (head_move_joint).
 */
#include "head/move_int.h"

/*
 * Of pieces up to so much one kernel is sooner done than a copy each: at 350 GB/s a quarter of a
 * MiB takes less than what begins a copy.
 */
#define SMALL_BYTES     (UINT64_C(256) << 10)
#define SMALL_BYTES_ALL (UINT64_C(4) << 20)
#define JOIN_MAX        64u /* pieces of one function, as many as a kernel takes */
/* With so many more to come the first launch goes to its device by itself. */
#define GO_PARTS 8u
/*
 * So many large pieces that one device alone wanted, one after the other, and the next ones are cut
 * for one alone.
 */
#define CUT_FINELY 8u

void head_move_start_copy(struct head_core *core, struct head_buffer *dst,
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

/*
 * Each piece so small, and all of them together, that what begins their copies takes longer than
 * their bytes do.
 */
static bool all_small(const struct pl_vec *pieces)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < pieces->count; i++) {
        const struct head_piece *piece = pl_vec_at(pieces, i);
        uint64_t more = head_move_box_bytes(&piece->box, piece->src->dtype);

        bytes += more;
        if (more > SMALL_BYTES || bytes > SMALL_BYTES_ALL) {
            return false;
        }
    }
    return true;
}

/*
 * One behind the other along *out_axis, none of them cut, and such that a launch on dst's device
 * reads them where they lie; they are put in order.
 */
static bool in_a_row(const struct head_buffer *dst, struct pl_vec *pieces,
                     uint64_t *out_axis)
{
    struct head_piece *items = pieces->items;
    uint32_t axis            = PL_DIM_MAX;

    if (pieces->count < 2 || pieces->count > JOIN_MAX) {
        return false;
    }
    for (size_t i = 0; i < pieces->count; i++) {
        if (items[i].part || !head_move_box_dense(&items[i].src->frame, &items[i].box) ||
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

void head_move_start_copies(struct head_core *core, struct head_buffer *dst,
                            struct pl_vec *pieces)
{
    uint64_t axis;

    if (all_small(pieces) && in_a_row(dst, pieces, &axis)) {
        head_move_start_copy(core, dst, &dst->frame, true, pieces->items, pieces->count,
                             &axis);
        return;
    }
    head_move_start_some(core, dst, pieces);
}

void head_move_start_some(struct head_core *core, struct head_buffer *dst,
                          struct pl_vec *pieces)
{
    struct head_piece *items = pieces->items;
    size_t together          = 0;

    for (size_t i = 0; i < pieces->count; i++) {
        if (!items[i].part && !head_move_box_pending(items[i].src, &items[i].box)) {
            struct head_piece piece = items[i];

            items[i]          = items[together];
            items[together++] = piece;
        }
    }
    if (together > 0) {
        head_move_start_copy(core, dst, &dst->frame, true, items, together, NULL);
    }
    for (size_t i = together; i < pieces->count; i++) {
        head_move_start_copy(core, dst, &items[i].box, i == 0, &items[i], 1, NULL);
        if (i == together && pieces->count - i > GO_PARTS) {
            head_devices_begin(core); /* it moves while the rest is worked out */
        }
    }
    if (pieces->count - together > GO_PARTS) { /* the first one is soon over */
        head_device_flush(core, dst->device);
    }
}

/* How often what this one gets could be passed on from device to device. */
static uint32_t links_possible(struct head_core *core, const struct head_device *to)
{
    uint32_t peers = 0;

    for (uint32_t i = 0; i < core->devices.count; i++) {
        const struct head_device *device = head_device_at(core, i);

        peers += !device->gone && device->peer_capable && device->kind == to->kind &&
                 !head_device_apart(device, to);
    }
    return peers > 2 ? peers - 2 : 0; /* not from the source, and not to it */
}

/* Could a third device want what comes from another host? One on any host but that. */
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

/* Between hosts; large: from so many bytes on it is. */
static uint32_t hosts_parts(uint64_t bytes, uint64_t large)
{
    return (uint32_t)pl_min_u64(HEAD_MOVE_HOSTS_PARTS, bytes / pl_max_u64(large / 8, 1));
}

/* Within one: see move_int.h. */
static uint32_t chain_parts(const struct head_core *core, uint64_t bytes, uint32_t links)
{
    uint64_t square = bytes / pl_max_u64(head_move_tree_bytes(core), 1) * links / 2;
    uint32_t parts  = 1;

    while (parts < HEAD_MOVE_PARTS_MAX && (uint64_t)(parts + 1) * (parts + 1) <= square) {
        parts++;
    }
    return parts;
}

uint32_t head_move_parts(const struct head_core *core, uint64_t bytes,
                         const struct head_device *from, const struct head_device *to,
                         uint32_t links)
{
    return head_device_apart(from, to) ? hosts_parts(bytes, head_move_large_bytes(core))
                                       : chain_parts(core, bytes, links);
}

/* Slabs of the box along its slowest dimension, into io_pieces. */
static void cut(const struct head_piece *piece, uint32_t parts, struct pl_vec *io_pieces)
{
    uint32_t dim = 0;
    int64_t rows, step;

    while (dim + 1 < piece->box.ndim && piece->box.count[dim] == 1) {
        dim++;
    }
    rows = piece->box.count[dim];
    step = (rows + parts - 1) / parts;
    for (int64_t first = 0; first < rows; first += step) {
        struct head_piece *part = pl_vec_push(io_pieces);

        PL_CHECK(part != NULL);
        *part                = *piece;
        part->part           = true;
        part->box.start[dim] = piece->box.start[dim] + first;
        part->box.count[dim] = step < rows - first ? step : rows - first;
    }
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

/* A copy that is itself on its way is read. */
static bool passed_on(const struct head_piece *piece)
{
    return piece->src->replica && head_move_box_pending(piece->src, &piece->box);
}

/* Are there likely to be others who want it while it comes? Notes whether this is one. */
static bool others_expected(struct head_core *core, const struct head_piece *piece)
{
    if (passed_on(piece)) {
        core->cut_finely = CUT_FINELY;
        return true;
    }
    if (core->cut_finely == 0) {
        return false;
    }
    core->cut_finely--;
    return true;
}

/* Into so many it is cut; 1: not. */
static uint32_t parts_of(struct head_core *core, const struct head_buffer *dst,
                         const struct head_piece *piece, uint32_t links)
{
    uint64_t bytes = head_move_box_bytes(&piece->box, piece->src->dtype);
    uint64_t large = head_move_large_bytes(core);
    uint32_t parts;

    if (piece->src->device == dst->device) {
        return 1;
    }
    if (received_in_parts(piece->src, &piece->box)) {
        return bytes >= large ? hosts_parts(bytes, large) : 1;
    }
    if (links == 0 || bytes < large) {
        return 1;
    }
    parts = chain_parts(core, bytes, links);
    return others_expected(core, piece)
               ? parts
               : (uint32_t)pl_min_u64(HEAD_MOVE_PARTS_ALONE,
                                      bytes / (core->config.chain_bytes / 2));
}

void head_move_cut(struct head_core *core, const struct head_buffer *dst,
                   struct pl_vec *io_pieces)
{
    struct pl_vec pieces = PL_VEC_INIT(struct head_piece);
    uint32_t links       = links_possible(core, dst->device);

    for (size_t i = 0; i < io_pieces->count; i++) {
        const struct head_piece *piece = pl_vec_at(io_pieces, i);
        uint32_t parts                 = parts_of(core, dst, piece, links);

        if (parts > 1) {
            cut(piece, parts, &pieces);
        } else {
            struct head_piece *same = pl_vec_push(&pieces);

            PL_CHECK(same != NULL);
            *same = *piece;
        }
    }
    pl_vec_finish(io_pieces);
    *io_pieces = pieces;
}

uint64_t head_move_chunks(uint64_t bytes)
{
    return (bytes + HEAD_STAGE_SLOT_BYTES - 1) / HEAD_STAGE_SLOT_BYTES;
}

/* `box` of both, which lies side by side in each. fresh: this makes dst. */
static void start_pair(struct head_core *core, struct head_buffer *src,
                       struct head_buffer *dst, const struct pl_box *box, bool fresh)
{
    struct head_operand from  = head_operand_whole(src, false, false);
    struct head_operand to    = head_operand_whole(dst, fresh, true);
    uint64_t bytes            = head_move_box_bytes(box, src->dtype);
    uint64_t chunks           = head_move_chunks(bytes);
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

void head_move_start_pairs(struct head_core *core, struct head_buffer *src,
                           struct head_buffer *dst)
{
    const struct head_piece whole = {.src = src, .box = dst->frame};
    struct pl_vec parts           = PL_VEC_INIT(struct head_piece);
    uint64_t large                = head_move_large_bytes(core);
    uint64_t bytes                = head_move_box_bytes(&dst->frame, dst->dtype);

    if (head_device_apart(src->device, dst->device) && bytes >= large &&
        hosts_chain_possible(core, src->device, dst->device)) {
        cut(&whole, hosts_parts(bytes, large), &parts);
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
