/* The accesses of `plasmon bench spill`, and the least that they can move. */
#include "bench/spill.h"

#include <stdbool.h>

#include "base/alloc.h"
#include "bench/bench.h"

enum { TIMES = 4 }; /* that a value is used in a row, in sequence */

const char *spill_pattern_name(enum spill_pattern pattern)
{
    static const char *const names[] = {"sequential", "random", "rounds", "bursts"};

    return names[pattern];
}

static uint64_t mixed(uint64_t number) /* splitmix64 */
{
    number += UINT64_C(0x9e3779b97f4a7c15);
    number = (number ^ (number >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    number = (number ^ (number >> 27)) * UINT64_C(0x94d049bb133111eb);
    return number ^ (number >> 31);
}

uint32_t spill_access(enum spill_pattern pattern, uint32_t values, uint32_t n)
{
    switch (pattern) {
    case SPILL_SEQUENTIAL:
        return n / TIMES % values;
    case SPILL_RANDOM:
        return (uint32_t)(mixed(n) % values);
    default:
        return n % values;
    }
}

/* The next access of the value after the n-th; count: there is none. */
static uint32_t next_access(enum spill_pattern pattern, uint32_t values, uint32_t value,
                            uint32_t n, uint32_t count)
{
    do {
        n++;
    } while (n < count && spill_access(pattern, values, n) != value);
    return n;
}

uint32_t spill_misses_least(enum spill_pattern pattern, uint32_t values, uint32_t room,
                            uint32_t count)
{
    bool *there     = bench_must_alloc(values * sizeof(*there));
    uint32_t misses = 0;

    for (uint32_t i = values - (uint32_t)pl_min_u64(room, values); i < values; i++) {
        there[i] = true;
    }
    for (uint32_t n = 0; n < count; n++) {
        uint32_t value = spill_access(pattern, values, n);
        uint32_t last = value, last_next = 0;

        if (there[value]) {
            continue;
        }
        misses++;
        for (uint32_t i = 0; i < values; i++) {
            uint32_t next = there[i] ? next_access(pattern, values, i, n, count) : 0;

            if (next > last_next) {
                last      = i;
                last_next = next;
            }
        }
        there[last]  = false;
        there[value] = true;
    }
    pl_free(there);
    return misses;
}
