/*
 * How safe a value is: for each device, and each host, that has a copy of some of a box, is all of
 * the box elsewhere? Replicas, and what lies on a device that is gone or a host that is drained,
 * are no copies; memory of a host goes with the host and with no device.
 */
#include "head/second_int.h"

#include <string.h>

bool head_second_counts(const struct head_buffer *buffer, const void *user)
{
    const struct head_counted *counted = user;

    return buffer != counted->but && buffer->device != counted->device &&
           !buffer->replica && !buffer->device->gone && !buffer->device->draining &&
           (!counted->settled || pl_list_empty(&buffer->writers)) &&
           (counted->host == NULL || strcmp(buffer->device->host, counted->host) != 0);
}

bool head_second_covered(const struct head_tile *tile, const struct pl_box *box,
                         const struct head_counted *counted)
{
    return head_tile_covered_by(tile, head_second_counts, counted, box);
}

enum head_safety head_second_safety_of(const struct head_tile *tile,
                                       const struct pl_box *box,
                                       const struct head_counted *counted)
{
    enum head_safety safe = HEAD_SAFE_APART;
    const struct pl_list *pos;

    if (!head_second_covered(tile, box, counted)) {
        return HEAD_SAFE_NOT;
    }
    pl_list_for_each(pos, &tile->instances) {
        const struct head_instance *instance =
            pl_container_of(pos, const struct head_instance, tile_link);
        struct head_counted without = *counted;

        if (!head_second_counts(instance->buffer, counted) ||
            !pl_box_intersects(&instance->box, box)) {
            continue;
        }
        without.device = instance->buffer->device;
        if (instance->buffer->spilled == NULL &&
            !head_second_covered(tile, box, &without)) {
            return HEAD_SAFE_ONE;
        }
        without.host = instance->buffer->device->host;
        if (safe == HEAD_SAFE_APART && !head_second_covered(tile, box, &without)) {
            safe = HEAD_SAFE_NEAR;
        }
    }
    return safe;
}

bool head_second_wanted(const struct head_tile *tile)
{
    return tile->second != NULL && tile->space != NULL && tile->failure == NULL;
}

bool head_second_needs(const struct head_tile *tile, const struct head_buffer *buffer,
                       const struct pl_box *box)
{
    const struct head_counted all  = {.settled = false};
    const struct head_counted rest = {.but = buffer, .settled = true};

    return head_second_wanted(tile) && !buffer->replica &&
           head_second_safety_of(tile, box, &rest) < head_second_safety_of(tile, box, &all);
}

uint32_t head_second_shown(const struct head_tile *tile, const struct pl_box *box)
{
    static const Plasmon__V1__SecondCopy shown[] = {
        PLASMON__V1__SECOND_COPY__SECOND_MISSING, PLASMON__V1__SECOND_COPY__SECOND_MISSING,
        PLASMON__V1__SECOND_COPY__SECOND_NEAR, PLASMON__V1__SECOND_COPY__SECOND_APART};
    const struct head_counted all = {.settled = false};
    uint32_t now;

    if (!head_second_wanted(tile)) {
        return PLASMON__V1__SECOND_COPY__SECOND_NOT_WANTED;
    }
    now = shown[head_second_safety(tile, box)];
    return now == PLASMON__V1__SECOND_COPY__SECOND_MISSING &&
                   head_second_safety_of(tile, box, &all) > HEAD_SAFE_ONE
               ? PLASMON__V1__SECOND_COPY__SECOND_MOVING
               : now;
}

enum head_safety head_second_safety(const struct head_tile *tile, const struct pl_box *box)
{
    return head_second_safety_of(tile, box, &(struct head_counted){.settled = true});
}

enum head_safety head_second_safety_shown(const struct head_tile *tile, bool settled)
{
    const struct head_counted counted = {.settled = settled};
    enum head_safety least            = HEAD_SAFE_APART;
    const struct pl_list *pos;

    pl_list_for_each(pos, &tile->fragments) {
        const struct head_fragment *fragment =
            pl_container_of(pos, const struct head_fragment, tile_link);

        if (fragment->array->space != NULL) {
            enum head_safety one = head_second_safety_of(tile, &fragment->box, &counted);

            least = one < least ? one : least;
        }
    }
    return least;
}
