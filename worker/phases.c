#include "worker/phases.h"

#include "base/clock.h"

void worker_phases_note(struct worker_phases *phases, enum store_phase phase)
{
    if (phases->over && phase != STORE_PHASE_FIRST) {
        return; /* a head that welcomes it again */
    }
    store_phase_note(phases->shared != NULL ? phases->shared : &phases->early, phase,
                     pl_now_ns());
}

void worker_phases_share(struct worker_phases *phases, struct store_phases *shared)
{
    for (int i = STORE_PHASE_STARTED + 1; i < STORE_PHASES; i++) {
        uint64_t at = store_phase_at(&phases->early, (enum store_phase)i);

        if (at != 0) {
            store_phase_note(shared, (enum store_phase)i, at);
        }
    }
    phases->shared = shared;
}

bool worker_phases_end(struct worker_phases *phases, struct pl_str *out)
{
    if (phases->over || phases->shared == NULL) {
        return false;
    }
    phases->over = true;
    worker_phases_note(phases, STORE_PHASE_FIRST);
    store_phases_describe(phases->shared, STORE_PHASE_NOTICED, STORE_PHASE_FIRST, out);
    return true;
}
