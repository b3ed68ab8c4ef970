/*
 * What all results' devices read comes to each of their hosts once: members that are gathered,
 * little ones that each device reduces, reduced segments of an all-reduce.
 *
 * Before the launches that read them, the parts that a host has nowhere are brought to one of its
 * devices each, as what a task there would read (head_move_read): so large ones go along a chain of
 * hosts, others as a tree. The launches find them on their host then, and read them as what is made
 * there. What was brought is let go when all of them have been started; they hold it.
 *
 * AROUND A RING. In round r the members of each host go to the one that is r behind it in the order
 * of the results. So each host sends and receives in each round as much as the others, and a chain
 * is one link longer with each round: when a member's turn comes to be sent on, it has just come.
 * The devices of a host take turns, so that all of them receive about as much.
 *
 * These are ordinary launches with smaller numbers than those that read from them. Of what comes
 * from other hosts a device holds its share, where it would hold all of it if each brought its own.
 */
#include "head/collective_int.h"
#include "head/spill.h"

/* The results' devices by their hosts. */
struct hosts {
    uint32_t count;
    struct head_device *devices[WIRE_COLLECTIVE_MAX];
    uint32_t first[WIRE_COLLECTIVE_MAX + 1]; /* of a host, in devices */
    uint32_t next[WIRE_COLLECTIVE_MAX];      /* whose turn it is there */
};

static bool is_one_host(const struct collective *c)
{
    for (uint32_t i = 0; i < c->core->devices.count; i++) {
        const struct head_device *device = head_device_at(c->core, i);

        if (!device->gone && head_device_apart(device, c->outs[0].device)) {
            return false;
        }
    }
    return true;
}

static void hosts_find(const struct collective *c, struct hosts *hosts)
{
    bool taken[WIRE_COLLECTIVE_MAX] = {false};
    uint32_t devices                = 0;

    for (uint32_t i = 0; i < c->out_count; i++) {
        if (taken[i]) {
            continue;
        }
        hosts->first[hosts->count++] = devices;
        for (uint32_t k = i; k < c->out_count; k++) {
            if (!head_device_apart(c->outs[k].device, c->outs[i].device)) {
                taken[k]                  = true;
                hosts->devices[devices++] = c->outs[k].device;
            }
        }
    }
    hosts->first[hosts->count] = devices;
}

/*
 * Where the part's way around the ring begins: behind its own host. One that is on no result's host
 * may begin anywhere.
 */
static uint32_t host_behind(const struct collective *c, const struct hosts *hosts,
                            const struct collective_part *part, uint32_t number)
{
    const struct head_device *home = collective_home(c->core, part);

    for (uint32_t i = 0; home != NULL && i < hosts->count; i++) {
        if (!head_device_apart(hosts->devices[hosts->first[i]], home)) {
            return (i + 1) % hosts->count;
        }
    }
    return number % hosts->count;
}

/* Boxes of the part that the device would have from another host, one of a tile each, into out_boxes. */
static void boxes_from_afar(const struct collective *c, const struct collective_part *part,
                            const struct head_device *device, struct pl_vec *out_boxes)
{
    const struct head_fragment *fragment;

    for (fragment = head_array_meet(part->array, &part->box); fragment != NULL;
         fragment = fragment->met) {
        struct pl_box box, *place;

        if (pl_box_intersection(&fragment->box, &part->box, &box) &&
            head_move_from_afar(c->core, fragment->tile, &box, device)) {
            place = pl_vec_push(out_boxes);
            PL_CHECK(place != NULL);
            *place = box;
        }
    }
}

/* What of it the host has nowhere, to the device. *out_some: there was some. */
static bool land(struct collective *c, const struct collective_part *part,
                 struct head_device *device, bool *out_some)
{
    struct pl_vec boxes = PL_VEC_INIT(struct pl_box);
    bool ok;

    collective_plan_begin(c);
    head_spill_keep(c->core, part->array, &part->box);
    ok = head_spill_bring(c->core, part->array, &part->box, device, &c->failure);
    if (ok) {
        boxes_from_afar(c, part, device, &boxes);
    }
    for (size_t i = 0; ok && i < boxes.count; i++) {
        struct head_buffer *buffer = head_move_read(
            c->core, part->array, pl_vec_at(&boxes, i), device, false, &c->failure);
        struct head_buffer **landed;

        ok = buffer != NULL;
        if (ok) {
            landed = pl_vec_push(&c->landed);
            PL_CHECK(landed != NULL);
            *landed = buffer;
        }
    }
    *out_some = boxes.count > 0;
    pl_vec_finish(&boxes);
    return ok;
}

bool collective_hosts_begin(struct collective *c, const struct collective_part *parts,
                            uint32_t count)
{
    struct hosts hosts = {.count = 0};
    uint32_t behind[WIRE_COLLECTIVE_MAX];
    bool ok = true;

    if (is_one_host(c)) {
        return true;
    }
    hosts_find(c, &hosts);
    for (uint32_t k = 0; k < count; k++) {
        behind[k] = host_behind(c, &hosts, &parts[k], k);
    }
    for (uint32_t round = 0; ok && round < hosts.count; round++) {
        for (uint32_t k = 0; ok && k < count; k++) {
            uint32_t host  = (behind[k] + round) % hosts.count;
            uint32_t first = hosts.first[host];
            uint32_t turn  = hosts.next[host] % (hosts.first[host + 1] - first);
            bool some      = false;

            ok = land(c, &parts[k], hosts.devices[first + turn], &some);
            hosts.next[host] += some;
        }
    }
    return ok;
}

void collective_hosts_end(struct collective *c)
{
    for (size_t i = 0; i < c->landed.count; i++) {
        struct head_buffer *buffer = *(struct head_buffer **)pl_vec_at(&c->landed, i);
        struct pl_box frame        = buffer->frame;

        if (buffer->replica) { /* nobody has come to rely on it */
            head_buffer_forget(c->core, buffer, &frame, UINT64_MAX);
        }
        head_buffer_release(c->core, buffer);
    }
    pl_vec_finish(&c->landed);
}
