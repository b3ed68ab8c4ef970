/*
 * From which of the buffers that have it a box is brought to a device (head_move_source).
 *
 * Of several sources a large piece comes from the one that the fewest others read, and that may be
 * a replica which is itself being filled. Between hosts, where what a source sends is less, that
 * begins with smaller pieces; what is not cut there goes as a tree: from whoever will have sent it
 * first.
 *
 * What is small and still to be made comes from who makes it, not from who will copy it. That one
 * often has the least to do, and so each of three devices that want the same 240 KB would have it a
 * copy later than the one before.
 */
#include "head/move_int.h"

/*
 * Of a 256th of config.chain_bytes (1 MiB) on, which takes longer than it takes to begin, it
 * matters who else is sent to.
 */
#define TREE_FRACTION 256u
#define HOPS_MAX      8u

uint64_t head_move_large_bytes(const struct head_core *core)
{
    return core->config.chain_bytes / HEAD_MOVE_LARGE_FRACTION;
}

uint64_t head_move_tree_bytes(const struct head_core *core)
{
    return core->config.chain_bytes / TREE_FRACTION;
}

/*
 * The buffer of another host that it is being received from; NULL: it is there, is made here, or
 * has been sent.
 */
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

    while (count < HOPS_MAX && buffer != NULL && head_move_box_pending(buffer, box)) {
        buffer = received_from(core, buffer, box);
        count++;
    }
    return count;
}

/*
 * Bytes of the box that are on their way from this buffer to other devices. Looks at a few readers
 * only: more are too many anyhow.
 */
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
            bytes += head_move_box_bytes(&part, buffer->dtype);
        }
        if (++seen == 2 * HEAD_MOVE_PARTS_MAX) {
            break;
        }
    }
    return bytes;
}

/* So few bytes that all who want them have them in the time that begins a copy. */
static bool is_small(const struct head_core *core, const struct pl_box *box, uint32_t dtype)
{
    return head_move_box_bytes(box, dtype) < head_move_tree_bytes(core);
}

/*
 * Bytes that a link has to carry before it can carry this box from here. What is cut does not wait
 * until all of it is here. 0: so few that it does not matter.
 */
static uint64_t bytes_before(struct head_core *core, const struct head_buffer *from,
                             const struct pl_box *box, const struct head_device *to)
{
    uint64_t bytes = head_move_box_bytes(box, from->dtype);

    if (bytes >= head_move_large_bytes(core)) {
        return leaving(from, box);
    }
    if (!head_device_apart(from->device, to) || is_small(core, box, from->dtype)) {
        return 0;
    }
    return leaving(from, box) + hops(core, from, box) * bytes;
}

/*
 * Between hosts: how long until all of the box has come from here, by what was measured: behind
 * what leaves this buffer before, and not before it came here, which is at the same time for what
 * is cut, and one after the other else. 0: too little was measured.
 */
static uint64_t arrival_ns(struct head_core *core, const struct head_buffer *from,
                           const struct pl_box *box, const struct head_device *to)
{
    uint64_t bytes = head_move_box_bytes(box, from->dtype);
    bool cut       = bytes >= head_move_large_bytes(core);
    uint64_t ns = head_rates_known_ns(core, from->device, to, leaving(from, box) + bytes);

    for (unsigned i = 0; i < HOPS_MAX && ns != 0 && head_move_box_pending(from, box); i++) {
        const struct head_buffer *before = received_from(core, from, box);
        uint64_t link_ns;

        if (before == NULL) {
            break;
        }
        link_ns = head_rates_known_ns(core, before->device, from->device, bytes);
        ns      = link_ns == 0 ? 0 : cut ? pl_max_u64(ns, link_ns) : ns + link_ns;
        from    = before;
    }
    return ns;
}

/*
 * By what was measured it is there in less than two thirds of the time: a host with a slow network
 * is not the link that others wait for, and figures of one network differ by less.
 */
static bool much_sooner(uint64_t ns, uint64_t than_ns)
{
    return ns != 0 && ns < than_ns / 3 * 2;
}

/*
 * One whose worker is there, then one from which something gets through, then one on a node that
 * stays, then one that holds all of it, then one on the same host, then, unless it is small, the
 * one whose bytes are there much sooner, then the one that can send it first; then one that is
 * there already, then, if it is small, one that is no copy of another, then the device with the
 * least to do.
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
    bool pending_a, pending_b, apart_a, apart_b;

    if (from_a->device->connected != from_b->device->connected) {
        return from_a->device->connected; /* the other one may never come back */
    }
    apart_a = !near_a && head_reach_apart(core, from_a->device, to);
    apart_b = !near_b && head_reach_apart(core, from_b->device, to);
    if (apart_a != apart_b) {
        return apart_b;
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
    if (!near_a && !is_small(core, box, from_a->dtype)) {
        uint64_t ns_a = arrival_ns(core, from_a, box, to);
        uint64_t ns_b = arrival_ns(core, from_b, box, to);

        if (much_sooner(ns_a, ns_b) || much_sooner(ns_b, ns_a)) {
            return ns_a < ns_b;
        }
    }
    before_a = bytes_before(core, from_a, box, to);
    before_b = bytes_before(core, from_b, box, to);
    if (before_a != before_b) {
        return before_a < before_b;
    }
    pending_a = head_move_box_pending(from_a, box);
    pending_b = head_move_box_pending(from_b, box);
    if (pending_a != pending_b) {
        return pending_b;
    }
    if (pending_a && is_small(core, box, from_a->dtype) &&
        from_a->replica != from_b->replica) {
        return from_b->replica;
    }
    return from_a->device->unfinished < from_b->device->unfinished;
}

struct head_instance *head_move_source(struct head_core *core, struct head_tile *tile,
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

bool head_move_from_afar(struct head_core *core, struct head_tile *tile,
                         const struct pl_box *box, const struct head_device *to)
{
    const struct head_instance *source = head_move_source(core, tile, box, to);

    return source != NULL && (head_device_apart(source->buffer->device, to) ||
                              !pl_box_contains(&source->box, box));
}
