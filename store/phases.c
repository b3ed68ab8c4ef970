/*
 * Phases of a worker's replacement: see phases.h. Each moment is one word, written with release and
 * read with acquire.
 */
#include "store/phases.h"

#include <assert.h>

#include "store/shared_int.h"

static_assert(STORE_PHASES <= STORE_PHASES_ROOM, "there is room for all of them");

const char *store_phase_name(enum store_phase phase)
{
    static const char *const names[STORE_PHASES] = {
#define XX(name, text) text,
        STORE_PHASE_MAP(XX)
#undef XX
    };

    return (unsigned)phase < STORE_PHASES ? names[phase] : "?";
}

void store_phase_note(struct store_phases *phases, enum store_phase phase, uint64_t now_ns)
{
    shared_store64(&phases->at_ns[phase], now_ns);
}

uint64_t store_phase_at(const struct store_phases *phases, enum store_phase phase)
{
    return shared_load64((uint64_t *)(uintptr_t)&phases->at_ns[phase]);
}

uint64_t store_phase_took(const struct store_phases *phases, enum store_phase phase)
{
    uint64_t at     = store_phase_at(phases, phase);
    uint64_t before = 0;

    for (int i = 0; i < (int)phase; i++) {
        before = pl_max_u64(before, store_phase_at(phases, (enum store_phase)i));
    }
    return before != 0 && at > before ? at - before : 0;
}

const char *store_phases_last(const struct store_phases *phases)
{
    const char *last = NULL;
    uint64_t last_ns = 0;

    for (int i = STORE_PHASE_RUNNING; i < STORE_PHASES; i++) {
        uint64_t at_ns = store_phase_at(phases, (enum store_phase)i);

        if (at_ns > last_ns) {
            last    = store_phase_name((enum store_phase)i);
            last_ns = at_ns;
        }
    }
    return last;
}

void store_phases_begin(struct store_phases *phases, uint64_t now_ns)
{
    for (int i = STORE_PHASE_STARTED; i < STORE_PHASES; i++) {
        store_phase_note(phases, (enum store_phase)i, 0);
    }
    store_phase_note(phases, STORE_PHASE_STARTED, now_ns);
}

void store_phases_describe(const struct store_phases *phases, enum store_phase first,
                           enum store_phase last, struct pl_str *out)
{
    const char *comma = "";

    for (int i = (int)first; i <= (int)last; i++) {
        uint64_t ms = store_phase_took(phases, (enum store_phase)i) / 1000000;

        if (ms > 0) {
            pl_str_append(out, "%s%s %llu", comma, store_phase_name((enum store_phase)i),
                          (unsigned long long)ms);
            comma = ", ";
        }
    }
}
