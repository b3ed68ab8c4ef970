/*
 * Is an array dealt over the devices? A program that does the same for each part of an array names
 * the parts one after the other. So, while its tasks are being placed, the queue of the device with
 * the first parts is the longer one, and it is not when the last part has been named. Where each
 * device has about its share of an array, the others' parts will be worked on as well, and a queue
 * says little.
 *
 * All parts are looked at, and what was counted holds for as many calls in doubt as are a
 * STEADY_PARTSth of them: so few parts move meanwhile that it is still about right. Of an array in
 * more than PARTS_MAX parts nobody asks: one of so many is little beside what a device has in its
 * queue.
 *
 * Copies that were brought somewhere to be read do not count: one device often gathers what the
 * others made. What nobody wrote yet counts as if it lay elsewhere: parts are dealt when they are
 * written (place.c).
 */
#include "head/core_int.h"

#include <string.h>

#define PARTS_MAX    1024u
#define STEADY_PARTS 64u

/* Elements of an array that lie on each device, and on all of them; no copies. */
struct head_dealt {
    uint32_t calls; /* more, before it is counted anew */
    uint32_t device_count;
    uint64_t all;
    uint64_t there[];
};

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

static void count_elements(const struct head_array *array, struct head_dealt *out)
{
    const struct pl_list *pos, *it;

    memset(out->there, 0, out->device_count * sizeof(out->there[0]));
    out->all   = 0;
    out->calls = array->fragment_count / STEADY_PARTS;
    pl_list_for_each(pos, &array->fragments) {
        const struct head_fragment *fragment =
            pl_container_of(pos, const struct head_fragment, array_link);

        pl_list_for_each(it, &fragment->tile->instances) {
            const struct head_instance *instance =
                pl_container_of(it, const struct head_instance, tile_link);

            if (!instance->buffer->replica) {
                uint64_t elements = (uint64_t)pl_box_common(&fragment->box, &instance->box);

                out->all += elements;
                if (instance->buffer->device->index < out->device_count) {
                    out->there[instance->buffer->device->index] += elements;
                }
            }
        }
    }
}

static const struct head_dealt *counted(struct head_array *array, uint32_t device_count)
{
    struct head_dealt *dealt = array->dealt;

    if (dealt != NULL && dealt->calls > 0 && dealt->device_count == device_count) {
        dealt->calls--;
        return dealt;
    }
    if (dealt == NULL || dealt->device_count != device_count) {
        pl_free(dealt);
        dealt = head_alloc(sizeof(*dealt) + device_count * sizeof(dealt->there[0]));
        dealt->device_count = device_count;
        array->dealt        = dealt;
    }
    count_elements(array, dealt);
    return dealt;
}

uint64_t head_dealt(const struct head_core *core, const struct head_want *want,
                    const struct head_device *device, uint32_t devices)
{
    const struct head_dealt *dealt;
    uint64_t element, all;

    if (want->at != NULL) {
        return want->at == device
                   ? parts_of_share(want, want->at_bytes, want->at_whole, devices)
                   : 0;
    }
    if (want->array->fragment_count > PARTS_MAX) {
        return 0;
    }
    element = pl_dtype_bytes(want->array->shape.dtype);
    dealt   = counted(want->array, (uint32_t)core->devices.count);
    all     = pl_max_u64(dealt->all, (uint64_t)pl_box_elements(&want->array->extent));
    return parts_of_share(want, dealt->there[device->index] * element, all * element,
                          devices);
}
