/*
 * Events in virtual time: a heap ordered by time, then by the order in which they were added.
 * Random numbers. The first failure of a run.
 */
#include "tests/sim/sim.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "tests/harness/test.h"

void *sim_alloc(size_t bytes)
{
    void *ptr = pl_alloc(bytes);

    PL_CHECK(ptr != NULL);
    return ptr;
}

uint64_t sim_random(struct sim *sim)
{
    return test_random(&sim->random);
}

uint64_t sim_below(struct sim *sim, uint64_t bound)
{
    return sim_random(sim) % bound;
}

uint64_t sim_between(struct sim *sim, uint64_t low, uint64_t high)
{
    return low + sim_below(sim, high - low + 1);
}

bool sim_chance(struct sim *sim, uint64_t permille)
{
    return sim_below(sim, 1000) < permille;
}

void sim_fail(struct sim *sim, const char *format, ...)
{
    va_list args;

    if (sim->failed) {
        return;
    }
    sim->failed = true;
    va_start(args, format);
    (void)vsnprintf(sim->failure, sizeof(sim->failure), format, args); /* cut is fine */
    va_end(args);
}

void sim_trace(struct sim *sim, const char *format, ...)
{
    va_list args;

    if (!sim->trace) {
        return;
    }
    printf("%12llu ", (unsigned long long)sim->now_ns);
    va_start(args, format);
    (void)vprintf(format, args);
    va_end(args);
    printf("\n");
}

static bool before(const struct sim_event *a, const struct sim_event *b)
{
    return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->serial < b->serial;
}

void sim_after(struct sim *sim, uint64_t delay_ns, sim_fn fn, void *user, uint64_t arg,
               void *data)
{
    struct sim_event event = {.at_ns  = sim->now_ns + delay_ns,
                              .serial = ++sim->event_serial,
                              .fn     = fn,
                              .user   = user,
                              .arg    = arg,
                              .data   = data};
    struct sim_event *heap;
    size_t at;

    PL_CHECK(pl_vec_push(&sim->events) != NULL);
    heap = sim->events.items;
    for (at = sim->events.count - 1; at > 0 && before(&event, &heap[(at - 1) / 2]);
         at = (at - 1) / 2) {
        heap[at] = heap[(at - 1) / 2];
    }
    heap[at] = event;
}

bool sim_queue_pop(struct sim *sim, struct sim_event *out)
{
    struct sim_event *heap = sim->events.items;
    struct sim_event last;
    size_t count, at = 0;

    if (sim->events.count == 0) {
        return false;
    }
    *out = heap[0];
    last = heap[sim->events.count - 1];
    pl_vec_pop(&sim->events);
    count = sim->events.count;
    while (2 * at + 1 < count) {
        size_t child = 2 * at + 1;

        if (child + 1 < count && before(&heap[child + 1], &heap[child])) {
            child++;
        }
        if (!before(&heap[child], &last)) {
            break;
        }
        heap[at] = heap[child];
        at       = child;
    }
    if (count > 0) {
        heap[at] = last;
    }
    return true;
}
