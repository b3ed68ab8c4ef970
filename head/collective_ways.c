/*
 * Which device of a collective does what.
 *
 *   all-reduce      much: the array is cut into one segment a member. Each device brings its
 *                   segment of all members to itself and reduces it (collective_reduce), then
 *                   brings the others' reduced segments to its result (collective_copy). Large
 *                   segments are cut again, so that one chunk is reduced while the next one comes.
 *                   little: each device reduces all of it.
 *                   by NCCL, if the client wants that and the devices can: each device reduces all
 *                   of it, together with the others; likewise reduce-scatter, and all-gather.
 *   reduce          the same segments, brought to one device; little, or of two members: that
 *                   device reduces all of it.
 *   reduce-scatter  each device reduces its part
 *   all-gather, all-to-all   one copy on each device; what all devices of a host want comes to it
 *                            once (collective_hosts.c)
 *   broadcast       one copy on each device; much: along a chain of devices, part by part. Between
 *                   hosts as a tree, too: see struct broadcast
 *
 * ORDER OF REDUCTION. For each element one `fold`: member 0, then the tree over members 1, 2, ...
 * of kernels/cpu_elementwise.c. It does not depend on segments, devices or routes, so neither do
 * the bits.
 */
#include "head/collective.h"

#include <string.h>

enum {
    CHUNKS            = 4,    /* at most so many of a segment .. */
    CHUNK_SHOTS       = 64,   /* .. and none below this many times what goes in one step; */
    CHUNK_SHOTS_MANY  = 1024, /* of more than two GPUs: chunk_count() */
    SHOT_EXTRA        = 16,   /* see is_little() */
    KIND_CPU          = 1,    /* of a device */
    NCCL_PAYS_DEVICES = 5,    /* see nccl_pays() */
    /*
     * segments of long rows begin at multiples: of 16 bytes for every dtype but bool, and no two
     * share a line
     */
    ALIGNED_ROWS = 64
};

/* ----------------------------------------------------------------------------- geometry */

/* Where to cut: the slowest dimension that is long enough, else the longest. */
static uint32_t cut_dimension(const struct pl_box *box, uint32_t pieces)
{
    uint32_t longest = 0;

    for (uint32_t i = 0; i < box->ndim; i++) {
        if (box->count[i] >= 8 * (int64_t)pieces) {
            return i;
        }
        longest = box->count[i] > box->count[longest] ? i : longest;
    }
    return longest;
}

static int64_t cut_at(const struct pl_box *box, uint32_t dimension, uint32_t index,
                      uint32_t pieces)
{
    int64_t count = box->count[dimension];
    int64_t at    = count / pieces * index + count % pieces * index / pieces;

    if (dimension + 1 == box->ndim && index < pieces &&
        count >= 4 * ALIGNED_ROWS * (int64_t)pieces) {
        at -= at % ALIGNED_ROWS;
    }
    return at;
}

/* Piece number `index` of the box; false: there are not so many elements. */
static bool cut(const struct pl_box *box, uint32_t index, uint32_t pieces,
                struct pl_box *out)
{
    uint32_t d = cut_dimension(box, pieces);

    *out = *box;
    if (box->ndim == 0) {
        return index == 0;
    }
    out->start[d] = box->start[d] + cut_at(box, d, index, pieces);
    out->count[d] = box->start[d] + cut_at(box, d, index + 1, pieces) - out->start[d];
    return out->count[d] > 0;
}

static struct pl_box in_out(const struct collective_out *out, const struct pl_box *part)
{
    return collective_part_of(&out->made, part).box;
}

/* --------------------------------------------------------------------------- algorithms */

/*
 * out := one part of each member, in `cover`, each at its place; asked for from the one behind
 * out's own member on, its own last. So all devices begin with copies from each other, another one
 * each, and one launch brings them all: who needs a part of several devices' results has them at
 * one time, and the next copies are paired again (worker/streams.c). With a launch a part four
 * H200s had 144 GB/s of an all-reduce in a row, and 220 with one.
 */
static bool gather(struct collective *c, uint32_t number, const struct pl_box *cover,
                   const struct collective_part *parts, const struct pl_box *boxes,
                   uint32_t count)
{
    struct collective_part from[WIRE_COLLECTIVE_MAX];
    struct pl_box to[WIRE_COLLECTIVE_MAX];

    for (uint32_t i = 0; i < count; i++) {
        from[i] = parts[(number + 1 + i) % count];
        to[i]   = boxes[(number + 1 + i) % count];
    }
    return collective_copy(c, &c->outs[number], cover, from, to, count);
}

/* What NCCL reduces, and what stands in for it on CPU devices. */
static bool nccl_reduces(uint32_t kind, uint32_t dtype)
{
    switch (dtype) {
    case PL_F32:
    case PL_F64:
    case PL_I32:
    case PL_I64:
        return true;
    case PL_F16:
    case PL_BF16:
        return kind != KIND_CPU;
    default:
        return false;
    }
}

/*
 * Of two to four GPUs reading directly is faster than NCCL with a process a device, by a twentieth
 * in a row of 256 MiB and more. Of more it is not measured: then NCCL's rings, in which each device
 * sends to one other, may have what many readers of one device lose.
 */
static bool nccl_pays(const struct collective *c)
{
    return c->outs[0].device->kind != KIND_CPU && c->count >= NCCL_PAYS_DEVICES &&
           collective_bytes(&c->ins[0]) >= c->core->config.team_bytes;
}

/*
 * The same bits in whatever order: not of floats, whose sums are rounded, and whose NaNs and zeros
 * NCCL may choose otherwise.
 */
static bool order_is_free(uint32_t dtype)
{
    return dtype == PL_I32 || dtype == PL_I64;
}

/* The order of its sums is its own: the client's wish, or nobody can tell. */
static bool by_nccl(const struct collective *c)
{
    uint32_t dtype = c->ins[0].array->shape.dtype;

    if (!nccl_reduces(c->outs[0].device->kind, dtype)) {
        return false;
    }
    switch (c->task->collective->way) {
    case COLLECTIVE_NCCL:
        return true;
    case COLLECTIVE_FASTEST:
        return nccl_pays(c);
    case COLLECTIVE_AUTO:
        return order_is_free(dtype) && nccl_pays(c);
    default:
        return false;
    }
}

static bool all_gather(struct collective *c)
{
    struct pl_box boxes[WIRE_COLLECTIVE_MAX];
    bool done = false;
    bool ok =
        c->task->collective->way != COLLECTIVE_NCCL || collective_gather_together(c, &done);

    if (!ok || done) {
        return ok;
    }
    ok = collective_hosts_begin(c, c->ins, c->count);
    for (uint32_t i = 0; ok && i < c->out_count; i++) {
        for (uint32_t k = 0; k < c->count; k++) {
            boxes[k] = collective_slab(&c->outs[i].made.box, k, c->count);
        }
        ok = gather(c, i, &c->outs[i].made.box, c->ins, boxes, c->count);
    }
    collective_hosts_end(c);
    return ok;
}

static bool all_to_all(struct collective *c)
{
    struct collective_part parts[WIRE_COLLECTIVE_MAX];
    struct pl_box boxes[WIRE_COLLECTIVE_MAX];
    bool ok = true;

    for (uint32_t i = 0; ok && i < c->out_count; i++) {
        for (uint32_t k = 0; k < c->count; k++) {
            parts[k].array = c->ins[k].array;
            parts[k].box   = collective_slab(&c->ins[k].box, i, c->count);
            boxes[k]       = collective_slab(&c->outs[i].made.box, k, c->count);
        }
        ok = gather(c, i, &c->outs[i].made.box, parts, boxes, c->count);
    }
    return ok;
}

static bool reduce_scatter(struct collective *c)
{
    const struct pl_box whole = collective_at_zero(&c->ins[0].box);
    bool done                 = false;
    bool ok                   = !by_nccl(c) || collective_reduce_together(c, true, &done);

    for (uint32_t i = 0; ok && !done && i < c->out_count; i++) {
        struct pl_box part = collective_slab(&whole, i, c->count);

        ok = collective_reduce(c, c->outs[i].device, i, &part, &c->outs[i].made);
    }
    return ok;
}

/* Each result by itself, on its device. */
static bool reduce_directly(struct collective *c)
{
    const struct pl_box whole = collective_at_zero(&c->ins[0].box);
    bool ok                   = collective_hosts_begin(c, c->ins, c->count);

    for (uint32_t i = 0; ok && i < c->out_count; i++) {
        ok = collective_reduce(c, c->outs[i].device, i, &whole, &c->outs[i].made);
    }
    collective_hosts_end(c);
    return ok;
}

/* One chunk of all segments, on its way. */
struct chunk {
    struct pl_box box; /* in coordinates that begin at 0 */
    uint32_t axis;     /* along which it is cut */
    uint32_t count;    /* of segments that are not empty */
    struct pl_box part[WIRE_COLLECTIVE_MAX];
    struct collective_part sum[WIRE_COLLECTIVE_MAX]; /* owned arrays */
};

static void chunk_release(struct collective *c, struct chunk *chunk)
{
    for (uint32_t i = 0; i < chunk->count; i++) {
        head_array_release(c->core, chunk->sum[i].array);
    }
    chunk->count = 0;
}

static bool chunk_reduce(struct collective *c, struct chunk *chunk,
                         struct head_device *const *owners)
{
    bool ok = true;

    chunk->count = 0;
    chunk->axis  = cut_dimension(&chunk->box, c->count);
    for (uint32_t i = 0; ok && i < c->count; i++) {
        struct collective_part *sum = &chunk->sum[chunk->count];
        struct pl_box *part         = &chunk->part[chunk->count];
        struct pl_shape shape       = c->ins[0].array->shape;

        if (!cut(&chunk->box, i, c->count, part)) {
            continue;
        }
        sum->box = collective_at_zero(part);
        memcpy(shape.dim, sum->box.count, sizeof(shape.dim));
        sum->array = head_array_create(c->core, c->ins[0].array->space, &shape);
        chunk->count++;
        ok = collective_reduce(c, owners[i], i, part, sum);
    }
    return ok;
}

/* Little, and read directly: then so are the reduced segments, by one launch instead of a copy each. */
static bool joins(const struct collective *c, const struct chunk *chunk)
{
    return c->direct && chunk->count > 1 &&
           collective_bytes(&chunk->sum[0]) <= SHOT_EXTRA * c->core->config.one_shot_bytes;
}

static bool chunk_gather(struct collective *c, const struct chunk *chunk)
{
    bool together = joins(c, chunk);
    bool ok       = collective_hosts_begin(c, chunk->sum, chunk->count);

    for (uint32_t i = 0; ok && i < c->out_count; i++) {
        struct pl_box boxes[WIRE_COLLECTIVE_MAX];
        struct pl_box cover = in_out(&c->outs[i], &chunk->box);

        for (uint32_t k = 0; k < chunk->count; k++) {
            boxes[k] = in_out(&c->outs[i], &chunk->part[k]);
        }
        ok = together ? collective_join(c, &c->outs[i], &cover, chunk->sum, boxes,
                                        chunk->count, chunk->axis)
                      : gather(c, i, &cover, chunk->sum, boxes, chunk->count);
    }
    collective_hosts_end(c);
    return ok;
}

/*
 * One chunk's fold hides behind the next one's copies; but those of several GPUs are paired only
 * while all of them begin at the same time (gather()), and chunks let them drift apart: so few of
 * them. What is read directly is one launch, and copies beside it would only slow it down.
 */
static uint32_t chunk_count(const struct collective *c)
{
    bool gpus      = c->outs[0].device->kind != KIND_CPU;
    uint64_t shots = gpus && c->count > 2 ? CHUNK_SHOTS_MANY : CHUNK_SHOTS;
    uint64_t least = shots * c->core->config.one_shot_bytes * c->count;

    if (c->direct && gpus) {
        return 1;
    }
    return (uint32_t)pl_max_u64(1,
                                pl_min_u64(CHUNKS, collective_bytes(&c->ins[0]) / least));
}

/*
 * A chunk is gathered when the next one's reduction has been started: the device has something to
 * do while it waits for the others.
 */
static bool reduce_in_segments(struct collective *c, struct head_device *const *owners)
{
    const struct pl_box whole = collective_at_zero(&c->ins[0].box);
    uint32_t chunks           = chunk_count(c);
    struct chunk *two         = head_alloc(2 * sizeof(*two));
    struct chunk *last        = NULL;
    bool ok                   = true;

    for (uint32_t i = 0; ok && i <= chunks; i++) {
        struct chunk *next = &two[i % 2];
        bool some          = i < chunks && cut(&whole, i, chunks, &next->box);

        if (some) {
            ok = chunk_reduce(c, next, owners);
        }
        if (last != NULL) {
            ok = ok && chunk_gather(c, last);
            chunk_release(c, last);
        }
        last = some ? next : NULL;
    }
    if (last != NULL) {
        chunk_release(c, last);
    }
    pl_free(two);
    return ok;
}

static bool all_reached(const struct collective *c)
{
    for (uint32_t i = 0; i < c->out_count; i++) {
        for (uint32_t k = 0; k < c->count; k++) {
            if (head_move_reach(c->core, c->ins[k].array, &c->ins[k].box,
                                c->outs[i].device) == NULL) {
                return false;
            }
        }
    }
    return true;
}

/*
 * Is it done sooner in one step? Then each result's device reads n - 1 members, in segments 2 (n -
 * 1) / n of one. GPUs read what the second step takes: SHOT_EXTRA times one_shot_bytes. CPU devices
 * share their cores, and all would do the same work.
 */
static bool is_little(const struct collective *c)
{
    const struct head_config *config = &c->core->config;
    uint64_t bytes                   = collective_bytes(&c->ins[0]);

    if (c->ins[0].box.ndim == 0 || bytes <= config->one_shot_bytes) {
        return true;
    }
    return c->direct && c->outs[0].device->kind != KIND_CPU &&
           bytes <= config->direct_bytes &&
           bytes * (c->count - 1) / c->count * (c->count - 2) <=
               SHOT_EXTRA * config->one_shot_bytes &&
           all_reached(c);
}

static bool all_reduce(struct collective *c)
{
    struct head_device *owners[WIRE_COLLECTIVE_MAX];
    bool done = false, ok = !by_nccl(c) || collective_reduce_together(c, false, &done);

    if (!ok || done) {
        return ok;
    }

    if (is_little(c)) {
        return reduce_directly(c);
    }
    for (uint32_t i = 0; i < c->count; i++) {
        owners[i] = c->outs[i].device;
    }
    c->in_place = true;
    return reduce_in_segments(c, owners);
}

/* The device that has most of it; NULL: none has any. */
struct head_device *collective_home(struct head_core *core,
                                    const struct collective_part *part)
{
    struct head_device *best = NULL;
    uint64_t most            = 0;

    for (uint32_t i = 0; i < core->devices.count; i++) {
        struct head_device *device = head_device_at(core, i);
        uint64_t here              = 0;
        struct pl_list *pos, *it;
        struct pl_box box;

        if (device == NULL || device->gone || !device->joined || device->draining) {
            continue;
        }
        pl_list_for_each(pos, &part->array->fragments) {
            const struct head_fragment *fragment =
                pl_container_of(pos, struct head_fragment, array_link);

            pl_list_for_each(it, &fragment->tile->instances) {
                const struct head_instance *instance =
                    pl_container_of(it, struct head_instance, tile_link);

                if (instance->buffer->device == device &&
                    pl_box_intersection(&instance->box, &fragment->box, &box) &&
                    pl_box_intersection(&box, &part->box, &box)) {
                    here += (uint64_t)pl_box_elements(&box);
                }
            }
        }
        if (here > most) {
            best = device;
            most = here;
        }
    }
    return best;
}

static bool reduce(struct collective *c)
{
    struct head_device *owners[WIRE_COLLECTIVE_MAX];

    if (is_little(c) || c->count == 2) {
        return reduce_directly(c);
    }
    for (uint32_t i = 0; i < c->count; i++) {
        owners[i] = collective_home(c->core, &c->ins[i]);
        if (owners[i] == NULL) {
            owners[i] = c->outs[0].device;
        }
    }
    c->in_place = true;
    return reduce_in_segments(c, owners);
}

/*
 * Who gives a broadcast's results their bytes. A result has the member's, or those of one that
 * comes before it in `order`.
 *
 * The devices of the member's host come first, then host after host. The first result of another
 * host, its lead, gets them over the network, and gives them to the others of its host, so that
 * they come to a host once. No host sends them to all others:
 *
 *   much       along a chain of the leads, part by part; very much within a host, too
 *   less       as a tree: each lead that has them sends them on, while the member is sent to the next one
 *   little     from where the member is: a tree would add its links to the time that it takes to begin
 *
 * What a host has a copy of already comes from there. A host that was measured to be slow comes
 * late: there is nobody behind it that would wait.
 */
struct broadcast {
    struct head_device *home; /* has the member, or most of it */
    uint32_t parts;
    uint32_t order[WIRE_COLLECTIVE_MAX];
    const struct collective_part *from[WIRE_COLLECTIVE_MAX]; /* of order[i] */
};

/*
 * Of another host than those taken: the first one whose bytes are there soonest, as far as that is
 * known. UINT32_MAX: there is none.
 */
static uint32_t next_host(const struct collective *c, const struct head_device *home,
                          const bool *taken)
{
    uint64_t bytes = collective_bytes(&c->ins[0]), best_ns = 0;
    uint32_t best = UINT32_MAX;

    for (uint32_t i = 0; i < c->out_count; i++) {
        uint64_t ns;

        if (taken[i]) {
            continue;
        }
        ns = head_rates_known_ns(c->core, home, c->outs[i].device, bytes);
        if (best == UINT32_MAX || ns < best_ns) {
            best    = i;
            best_ns = ns;
        }
    }
    return best;
}

static void broadcast_order(const struct collective *c, struct broadcast *b)
{
    bool taken[WIRE_COLLECTIVE_MAX] = {false};
    const char *host                = b->home->host;
    uint32_t count                  = 0;

    while (count < c->out_count) {
        for (uint32_t i = 0; i < c->out_count; i++) {
            if (!taken[i] && strcmp(c->outs[i].device->host, host) == 0) {
                taken[i]          = true;
                b->order[count++] = i;
            }
        }
        if (count < c->out_count) {
            host = c->outs[next_host(c, b->home, taken)].device->host;
        }
    }
}

/*
 * Number `lead` of those that are sent to, from 1 on, of which 0 is the member: who has them when
 * it is this one's turn.
 */
static uint32_t tree_parent(uint32_t lead)
{
    uint32_t bit = 1;

    while (bit <= lead / 2) {
        bit *= 2;
    }
    return lead - bit;
}

/* From whom the lead of a host that is not the member's gets them; leads: those before it. */
static const struct collective_out *lead_source(const struct collective *c,
                                                const struct collective_out *out,
                                                const struct collective_out *before,
                                                const struct collective_out *const *leads,
                                                uint32_t lead_count)
{
    uint64_t bytes = collective_bytes(&c->ins[0]);
    uint32_t parent;

    if (head_move_reach(c->core, c->ins[0].array, &c->ins[0].box, out->device) != NULL) {
        return NULL;
    }
    if (bytes >= c->core->config.chain_bytes) {
        return before;
    }
    if (bytes >= head_move_large_bytes(c->core)) {
        return lead_count > 0 ? leads[lead_count - 1] : NULL;
    }
    parent = bytes >= head_move_tree_bytes(c->core) ? tree_parent(lead_count + 1) : 0;
    return parent > 0 ? leads[parent - 1] : NULL;
}

static void broadcast_sources(const struct collective *c, struct broadcast *b)
{
    const struct collective_out *leads[WIRE_COLLECTIVE_MAX];
    bool chain          = collective_bytes(&c->ins[0]) >= head_move_large_bytes(c->core);
    uint32_t lead_count = 0;

    for (uint32_t i = 0; i < c->out_count; i++) {
        const struct collective_out *out    = &c->outs[b->order[i]];
        const struct collective_out *before = i > 0 ? &c->outs[b->order[i - 1]] : NULL;
        const struct collective_out *source;

        if (out->device == b->home) {
            source = NULL;
        } else if (!head_device_apart(out->device, b->home)) {
            source = chain ? before : NULL;
        } else if (before != NULL && !head_device_apart(before->device, out->device)) {
            source = before;
        } else {
            source              = lead_source(c, out, before, leads, lead_count);
            leads[lead_count++] = out;
        }
        if (source != NULL && !head_move_possible(source->device, out->device)) {
            source = NULL;
        }
        b->from[i] = source != NULL ? &source->made : &c->ins[0];
    }
}

/* Large ones are cut, so that who has a part can send it on. */
static void broadcast_parts(const struct collective *c, struct broadcast *b)
{
    const struct head_device *to = b->home;
    uint64_t bytes               = collective_bytes(&c->ins[0]);
    uint32_t others              = 0;

    for (uint32_t i = 0; i < c->out_count; i++) {
        others += c->outs[i].device != b->home;
        if (head_device_apart(b->home, c->outs[i].device)) {
            to = c->outs[i].device;
        }
    }
    b->parts = others > 1 && bytes >= head_move_large_bytes(c->core)
                   ? head_move_parts(c->core, bytes, b->home, to, others - 1)
                   : 1;
}

static bool broadcast(struct collective *c)
{
    const struct pl_box whole = collective_at_zero(&c->ins[0].box);
    struct broadcast b        = {.home = collective_home(c->core, &c->ins[0])};
    bool ok                   = true;

    if (b.home == NULL) {
        b.home = c->outs[0].device;
    }
    broadcast_order(c, &b);
    broadcast_sources(c, &b);
    broadcast_parts(c, &b);
    for (uint32_t p = 0; ok && p < b.parts; p++) {
        struct pl_box part;

        if (!cut(&whole, p, b.parts, &part)) {
            continue;
        }
        for (uint32_t i = 0; ok && i < c->out_count; i++) {
            struct collective_out *out  = &c->outs[b.order[i]];
            struct collective_part from = collective_part_of(b.from[i], &part);
            struct pl_box box           = in_out(out, &part);

            ok = collective_copy(c, out, &box, &from, &box, 1);
        }
    }
    return ok;
}

/*
 * Does who reduces read the members where they lie? Engines that copy bring much faster than
 * multiprocessors read, and reducing hides behind that; of less, starting one thing after the other
 * is what takes the time.
 */
static bool reads_directly(const struct collective *c)
{
    switch (c->task->collective->way) {
    case COLLECTIVE_DIRECT:
        return true;
    case COLLECTIVE_COPIES:
        return false;
    default:
        /* Of two, what is read is as much as what is copied, and one launch does it: faster at 1 GiB, too. */
        return (c->count == 2 && c->outs[0].device->kind != KIND_CPU) ||
               collective_bytes(&c->ins[0]) / c->count <= c->core->config.direct_bytes;
    }
}

bool collective_run(struct collective *c)
{
    enum _Plasmon__V1__CollectiveKind kind = c->task->collective->kind;

    if (c->count == 1 && kind != PLASMON__V1__COLLECTIVE_KIND__BROADCAST) {
        kind = PLASMON__V1__COLLECTIVE_KIND__BROADCAST; /* of one member all are that */
    }
    c->direct = reads_directly(c);
    switch (kind) {
    case PLASMON__V1__COLLECTIVE_KIND__ALL_REDUCE:
        return all_reduce(c);
    case PLASMON__V1__COLLECTIVE_KIND__REDUCE:
        return reduce(c);
    case PLASMON__V1__COLLECTIVE_KIND__ALL_GATHER:
        return all_gather(c);
    case PLASMON__V1__COLLECTIVE_KIND__REDUCE_SCATTER:
        return reduce_scatter(c);
    case PLASMON__V1__COLLECTIVE_KIND__ALL_TO_ALL:
        return all_to_all(c);
    default:
        return broadcast(c);
    }
}
