/*
 * The worker's life: see worker_proc.h. One function a state; what is not listed in a state does
 * not matter there.
 */
#include "store/worker_proc.h"

#include <assert.h>

#include "base/fault.h"

void store_proc_init(struct store_proc *proc)
{
    *proc = (struct store_proc){.due_ns = UINT64_MAX};
}

bool store_proc_alive(const struct store_proc *proc)
{
    return proc->state == STORE_PROC_RUNNING || proc->state == STORE_PROC_FENCING;
}

static unsigned proc_spawn(struct store_proc *proc, uint64_t now_ns)
{
    proc->state      = STORE_PROC_RUNNING;
    proc->due_ns     = UINT64_MAX;
    proc->started_ns = now_ns;
    proc->incarnation++;
    proc->ready      = false;
    proc->hung       = false;
    proc->beat       = 0;
    proc->silence_ns = 0;
    return STORE_PROC_SPAWN;
}

static void proc_quarantine(struct store_proc *proc, const char *why)
{
    proc->state  = STORE_PROC_QUARANTINED;
    proc->due_ns = UINT64_MAX;
    proc->why    = why;
}

/* Deaths in the minute before now, the one that was just noted included; at most DEATHS_MAX + 1. */
static uint32_t proc_recent_deaths(const struct store_proc *proc, uint64_t now_ns)
{
    uint64_t kept  = pl_min_u64(proc->death_count, PL_COUNT(proc->deaths_ns));
    uint32_t count = 0;

    for (uint64_t i = 0; i < kept; i++) {
        count += now_ns - proc->deaths_ns[i] < STORE_PROC_WINDOW_NS;
    }
    return count;
}

static uint64_t proc_pause(uint32_t early)
{
    uint64_t pause = STORE_PROC_PAUSE_MIN_NS;

    if (early <= 1) {
        return 0;
    }
    for (uint32_t i = 2; i < early; i++) {
        pause = pl_min_u64(pause * 2, STORE_PROC_PAUSE_MAX_NS);
    }
    return pause;
}

static void proc_note_death(struct store_proc *proc, uint64_t now_ns)
{
    bool settled = proc->ready && now_ns - proc->started_ns >= STORE_PROC_SETTLED_NS;

    proc->deaths_ns[proc->death_count % PL_COUNT(proc->deaths_ns)] = now_ns;
    proc->death_count++;
    proc->early   = settled ? 0 : proc->early + 1;
    proc->unready = proc->ready ? 0 : proc->unready + 1;
    proc->hangs   = proc->hung ? proc->hangs + 1 : 0;
}

/* Is another one of no use? NULL: not yet. */
static const char *proc_hopeless(const struct store_proc *proc, uint64_t now_ns)
{
    if (proc->hangs >= STORE_PROC_HANGS_MAX) {
        return "3 starts of a worker in a row hung";
    }
    if (proc->unready > STORE_PROC_STARTS_MAX) {
        return "more than 10 starts of a worker in a row failed";
    }
    return proc_recent_deaths(proc, now_ns) > STORE_PROC_DEATHS_MAX
               ? "more than 10 workers died in a minute"
               : NULL;
}

static unsigned proc_died(struct store_proc *proc, uint64_t now_ns)
{
    const char *hopeless;

    proc_note_death(proc, now_ns);
    hopeless = proc_hopeless(proc, now_ns);
    if (hopeless != NULL) {
        proc_quarantine(proc, hopeless);
        return STORE_PROC_REPORT;
    }
    if (proc_pause(proc->early) == 0) {
        return STORE_PROC_REPORT | proc_spawn(proc, now_ns);
    }
    proc->state  = STORE_PROC_WAITING;
    proc->due_ns = now_ns + proc_pause(proc->early);
    return STORE_PROC_REPORT;
}

unsigned store_proc_adopt(struct store_proc *proc, uint32_t incarnation, bool came,
                          uint64_t now_ns)
{
    proc->state       = came ? STORE_PROC_RUNNING : STORE_PROC_FENCING;
    proc->ready       = true; /* it had been handed all of its device, long ago */
    proc->incarnation = incarnation;
    proc->started_ns  = 0; /* long ago */
    proc->due_ns      = came ? UINT64_MAX : now_ns + STORE_PROC_REAP_TIMEOUT_NS;
    if (!came && pl_bug("store.adopt_unfenced")) {
        return proc_died(proc, now_ns);
    }
    return came ? 0 : STORE_PROC_KILL;
}

static unsigned running_step(struct store_proc *proc, enum store_proc_event event,
                             uint64_t now_ns)
{
    switch (event) {
    case STORE_PROC_EXITED:
    case STORE_PROC_SPAWN_FAILED:
        return proc_died(proc, now_ns);
    case STORE_PROC_READY:
        proc->ready      = true;
        proc->silence_ns = 0;
        return 0;
    case STORE_PROC_FENCE:
    case STORE_PROC_HUNG:
    case STORE_PROC_END:
        if (pl_bug("store.spawn_before_reap")) {
            return STORE_PROC_KILL | proc_died(proc, now_ns);
        }
        proc->state     = STORE_PROC_FENCING;
        proc->blameless = event == STORE_PROC_END;
        proc->hung      = event == STORE_PROC_HUNG;
        proc->due_ns    = now_ns + STORE_PROC_REAP_TIMEOUT_NS;
        return STORE_PROC_KILL;
    default:
        return 0;
    }
}

static unsigned fencing_step(struct store_proc *proc, enum store_proc_event event,
                             uint64_t now_ns)
{
    if (event == STORE_PROC_EXITED) {
        return proc->blameless ? STORE_PROC_REPORT | proc_spawn(proc, now_ns)
                               : proc_died(proc, now_ns);
    }
    if (event == STORE_PROC_TICK && now_ns >= proc->due_ns) {
        proc_quarantine(proc, "it could not be reaped");
        return STORE_PROC_REPORT;
    }
    return 0;
}

bool store_proc_beat(struct store_proc *proc, uint64_t beat, uint64_t now_ns,
                     const struct store_proc_leases *leases)
{
    uint64_t lease_ns = proc->ready ? leases->run_ns : leases->start_ns;
    uint64_t gone_ns  = now_ns - proc->beat_ns;

    proc->beat_ns = now_ns;
    if (proc->state != STORE_PROC_RUNNING || beat != proc->beat) {
        proc->beat       = beat;
        proc->silence_ns = 0;
        return false;
    }
    proc->silence_ns +=
        pl_bug("store.own_silence") ? gone_ns : pl_min_u64(gone_ns, lease_ns / 4);
    return proc->silence_ns >= lease_ns;
}

unsigned store_proc_step(struct store_proc *proc, enum store_proc_event event,
                         uint64_t now_ns)
{
    if (event == STORE_PROC_SHUTDOWN) {
        unsigned actions = store_proc_alive(proc) ? STORE_PROC_TERM : 0;

        proc->state  = STORE_PROC_ENDING;
        proc->due_ns = UINT64_MAX;
        return actions;
    }

    switch (proc->state) {
    case STORE_PROC_IDLE:
        return event == STORE_PROC_START ? proc_spawn(proc, now_ns) : 0;
    case STORE_PROC_RUNNING:
        return running_step(proc, event, now_ns);
    case STORE_PROC_FENCING:
        return fencing_step(proc, event, now_ns);
    case STORE_PROC_WAITING:
        return event == STORE_PROC_TICK && now_ns >= proc->due_ns ? proc_spawn(proc, now_ns)
                                                                  : 0;
    case STORE_PROC_QUARANTINED:
    case STORE_PROC_ENDING:
        return 0;
    }
    return 0;
}
