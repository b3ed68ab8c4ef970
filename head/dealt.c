/*
 * Is an array dealt over the devices? A program that does the same for each part of an array names the parts one after the other. So, while
 * its tasks are being placed, the queue of the device with the first parts is the longer one, and it is not when the last part has been
 * named. Where each device has about its share of an array, the others' parts will be worked on as well, and a queue says little.
 *
 * All parts are looked at, for each call in doubt. Of an array in more than PARTS_MAX parts nobody asks: one of so many is little beside what a device has in its queue.
 *
 * Copies that were brought somewhere to be read do not count: one device often gathers what the others made. What nobody wrote yet counts as if it lay elsewhere: parts are dealt when they are
 * written (place.c).
 */
#include "head/core_int.h"

#define PARTS_MAX 1024u

/* A device has its share, and half as much again at most: parts need not come out even. */
static bool is_share(uint64_t there, uint64_t all, uint32_t devices)
{
    return there > 0 && (double)there * 2 * devices <= (double)all * 3;
}

/* How many parts like the one that is wanted the share is; 0: it is no share. */
static uint64_t parts_of_share(const struct head_want *want, uint64_t there, uint64_t all,
                               uint32_t devices)
{
    return is_share(there, all, devices) ? pl_max_u64(there / pl_max_u64(want->bytes, 1), 1)
                                         : 0;
}

/* Elements of the array that lie on the device, and on all of them; no copies. */
static void count_elements(const struct head_array *array, const struct head_device *device,
                           uint64_t *out_there, uint64_t *out_all)
{
    const struct pl_list *pos, *it;

    *out_there = 0;
    *out_all   = 0;
    pl_list_for_each(pos, &array->fragments) {
        const struct head_fragment *fragment =
            pl_container_of(pos, const struct head_fragment, array_link);

        pl_list_for_each(it, &fragment->tile->instances) {
            const struct head_instance *instance =
                pl_container_of(it, const struct head_instance, tile_link);

            if (!instance->buffer->replica) {
                uint64_t elements = (uint64_t)pl_box_common(&fragment->box, &instance->box);

                *out_all += elements;
                *out_there += instance->buffer->device == device ? elements : 0;
            }
        }
    }
}

uint64_t head_dealt(const struct head_want *want, const struct head_device *device,
                    uint32_t devices)
{
    uint64_t element, there, all;

    if (want->at != NULL) {
        return want->at == device
                   ? parts_of_share(want, want->at_bytes, want->at_whole, devices)
                   : 0;
    }
    if (want->array->fragment_count > PARTS_MAX) {
        return 0;
    }
    element = pl_dtype_bytes(want->array->shape.dtype);
    count_elements(want->array, device, &there, &all);
    all = pl_max_u64(all, (uint64_t)pl_box_elements(&want->array->extent));
    return parts_of_share(want, there * element, all * element, devices);
}
