/*
 * A set of numbers as ranges; see wire.h. Numbers that come in order, or one before the last range,
 * cost no new range.
 */
#include "wire/wire_int.h"

void wire_ranges_init(struct wire_ranges *ranges)
{
    ranges->items = PL_VEC_INIT(struct wire_range);
}

void wire_ranges_finish(struct wire_ranges *ranges)
{
    pl_vec_finish(&ranges->items);
}

plasmon_status_t wire_ranges_add(struct wire_ranges *ranges, uint64_t number)
{
    struct wire_range *range;

    if (ranges->items.count > 0) {
        range = pl_vec_at(&ranges->items, ranges->items.count - 1);
        if (number - range->first < range->count) {
            /* it is there; wraps to a large number when below */
            return PLASMON_OK;
        }
        if (number - range->first == range->count) {
            range->count++;
            return PLASMON_OK;
        }
        if (range->first - number == 1) {
            range->first--;
            range->count++;
            return PLASMON_OK;
        }
    }

    range = pl_vec_push(&ranges->items);
    if (range == NULL) {
        return PLASMON_ENOMEM;
    }
    *range = (struct wire_range){.first = number, .count = 1};
    return PLASMON_OK;
}

void wire_ranges_clear(struct wire_ranges *ranges)
{
    pl_vec_clear(&ranges->items);
}
