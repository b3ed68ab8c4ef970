#include "worker/phases.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/fault.h"

/* What it is for is =hang, =kill and =stop: nothing fails here. */
static void fault_pass(enum store_phase phase)
{
    char point[64];

    (void)snprintf(point, sizeof(point), "worker.start.%s", store_phase_name(phase));
    (void)pl_fault_point(point);
}

void worker_phases_beat(const struct worker_phases *phases)
{
    struct store_timeline *timeline = phases->timeline;

    __atomic_store_n(&timeline->beat, timeline->beat + 1, __ATOMIC_RELEASE);
}

void worker_phases_note(struct worker_phases *phases, enum store_phase phase)
{
    struct store_timeline *timeline = phases->timeline;

    if (phases->over && phase != STORE_PHASE_FIRST) {
        return; /* a head that welcomes it again */
    }
    store_phase_note(timeline != NULL ? &timeline->phases : &phases->early, phase,
                     pl_now_ns());
    if (timeline != NULL) {
        worker_phases_beat(phases);
    }
    fault_pass(phase);
}

void worker_phases_share(struct worker_phases *phases, struct store_timeline *timeline)
{
    for (int i = STORE_PHASE_STARTED + 1; i < STORE_PHASES; i++) {
        uint64_t at = store_phase_at(&phases->early, (enum store_phase)i);

        if (at != 0) {
            store_phase_note(&timeline->phases, (enum store_phase)i, at);
        }
    }
    phases->timeline = timeline;
}

void worker_phases_wait(struct worker_phases *phases, bool waits)
{
    if (phases->waited && !waits && phases->timeline != NULL) {
        store_phase_note(&phases->timeline->phases, STORE_PHASE_OTHERS, pl_now_ns());
    }
    phases->waited = waits;
}

bool worker_phases_end(struct worker_phases *phases, uint64_t functions_ns,
                       struct pl_str *out)
{
    if (phases->over || phases->timeline == NULL) {
        return false;
    }
    if (functions_ns != 0) {
        store_phase_note(&phases->timeline->phases, STORE_PHASE_FUNCTIONS, functions_ns);
    }
    worker_phases_wait(phases, false);
    phases->over = true;
    worker_phases_note(phases, STORE_PHASE_FIRST);
    store_phases_describe(&phases->timeline->phases, STORE_PHASE_NOTICED, STORE_PHASE_FIRST,
                          out);
    return true;
}
