/*
 * What a worker says after a death of the launches that had not begun, held against what really
 * happened on the simulated device:
 *
 *   - a launch whose work was started, by any incarnation, is not said to be untouched
 *   - where the device tells the begin of each launch that overwrites (words_cheap), one whose
 *     stream never came so far must not be lost (sim_losses.c asks)
 *
 * What happened is remembered for all incarnations of a device: a launch keeps its number.
 */
#include "tests/sim/sim.h"

#include "store/timeline.h"

enum { STARTED = 1, REACHED = 2, TELLS = 4 };

static uintptr_t of(const struct sim_worker *worker, uint64_t seq)
{
    return (uintptr_t)pl_map_get(&worker->begun, seq);
}

static void learn(struct sim_worker *worker, uint64_t seq, uintptr_t what)
{
    PL_CHECK(pl_map_set(&worker->begun, seq, (void *)(of(worker, seq) | what)) ==
             PLASMON_OK);
}

static bool overwrites(const Plasmon__V1__Operand *operand)
{
    return !operand->fresh && operand->mode != PLASMON__V1__MODE__MODE_IN;
}

void sim_begun_note(struct sim_worker *worker, const Plasmon__V1__Launch *launch)
{
    bool function = launch->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_RUN ||
                    launch->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_GRAPH;

    for (size_t i = 0; function && worker->words_cheap && i < launch->n_operands; i++) {
        if (overwrites(launch->operands[i])) {
            learn(worker, launch->seq, TELLS);
        }
    }
}

void sim_begun_started(struct sim_worker *worker, const struct sim_op *op)
{
    if (op->tag != 0) {
        learn(worker, op->tag, STARTED);
    }
}

void sim_begun_reached(struct sim_worker *worker, uint64_t seq)
{
    learn(worker, seq, REACHED);
}

bool sim_begun_perhaps(const struct sim_worker *worker, uint64_t seq)
{
    return store_timeline_failed(worker->timeline, seq) || (of(worker, seq) & TELLS) == 0 ||
           (of(worker, seq) & (STARTED | REACHED)) != 0;
}

void sim_begun_check(struct sim_worker *worker)
{
    for (size_t i = 0; i < worker->recovered_untouched.items.count; i++) {
        const struct wire_range *range = pl_vec_at(&worker->recovered_untouched.items, i);

        for (uint64_t seq = range->first; seq < range->first + range->count; seq++) {
            if ((of(worker, seq) & STARTED) != 0) {
                sim_fail(
                    worker->sim,
                    "device %u: launch %llu has begun, and the worker says that it had "
                    "not",
                    worker->host_device, (unsigned long long)seq);
            }
        }
    }
}
