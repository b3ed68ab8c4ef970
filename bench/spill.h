/*
 * `plasmon bench spill`, its parts: spill.c runs the programs, spill_plan.c says which accesses
 * they are and what they must cost.
 */
#ifndef BENCH_SPILL_H
#define BENCH_SPILL_H

#include <stdint.h>

enum spill_pattern {
    SPILL_SEQUENTIAL, /* each value several times, then the next one, round and round */
    SPILL_RANDOM,     /* any of them, by a fixed seed */
    SPILL_ROUNDS, /* each once, round and round: what was not used for the longest time is needed soonest */
    SPILL_BURSTS, /* the same, but some at a time, with other work for the device between */
    SPILL_PATTERNS
};

const char *spill_pattern_name(enum spill_pattern pattern);
/* Which of `values` is accessed n-th. */
uint32_t spill_access(enum spill_pattern pattern, uint32_t values, uint32_t n);
/*
 * How many of the first `count` accesses must bring their value back where `room` of them fit, if
 * everything is known beforehand (Belady). All values have been made in the order of their numbers,
 * so the last ones are there.
 */
uint32_t spill_misses_least(enum spill_pattern pattern, uint32_t values, uint32_t room,
                            uint32_t count);

#endif
