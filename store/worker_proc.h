/*
 * The life of one worker process, as decisions only: events and the time go in, actions come out.
 * The daemon does the actions.
 *
 *   IDLE -> RUNNING -> (FENCING ->) WAITING -> RUNNING with the next incarnation
 *                              \-> QUARANTINED: it could not be reaped, died too often, or its starts fail
 *
 * A death is reported to the head once. A worker that was up for 3 s after its start is replaced at
 * once, and so is the first that was not; then the pause is 0.1 s, doubling up to 5 s, by how many
 * in a row did not come that far. More than 10 deaths in a minute quarantine the device, and so do
 * more than 10 starts in a row, however long each took, after which no worker was ready. A worker
 * that stopped (SIGSTOP, a debugger), that broke the control protocol, or that the head wants
 * fenced, is killed; nothing replaces it before it was reaped, because its kernels may write until
 * then. 10 s without being reaped quarantine the device. What the head wants ended does not count
 * as a death: tasks may run into their time limits as often as they like.
 *
 * LEASE. A worker counts up a beat (store/timeline.h) in its main loop, and before that with each
 * step of its start. One whose beat stands still for the length of its lease is stopped, or stuck
 * in a call that does not return; it is fenced like any other. Until it has said that it is ready
 * its lease is the longer one of a start, whose steps wait for a driver, for memory to be pinned,
 * for a disk; three starts in a row that hung quarantine the device, because each took that long.
 * Time counts only as we see it go by: a store that was itself stopped for an hour does not kill
 * everybody when it goes on.
 *
 * Threads: owner only.
 */
#ifndef STORE_WORKER_PROC_H
#define STORE_WORKER_PROC_H

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"

#define STORE_PROC_DEATHS_MAX      10u
#define STORE_PROC_WINDOW_NS       (60ull * 1000000000u)
#define STORE_PROC_SETTLED_NS      (3ull * 1000000000u)
#define STORE_PROC_PAUSE_MIN_NS    (100ull * 1000000u)
#define STORE_PROC_PAUSE_MAX_NS    (5ull * 1000000000u)
#define STORE_PROC_REAP_TIMEOUT_NS (10ull * 1000000000u)
#define STORE_PROC_STARTS_MAX      10u /* in a row, after which none was ready */
#define STORE_PROC_HANGS_MAX       3u  /* of these, that hung */

enum store_proc_state {
    STORE_PROC_IDLE = 0,
    STORE_PROC_RUNNING,
    STORE_PROC_FENCING,     /* killed, not reaped yet */
    STORE_PROC_WAITING,     /* dead; starts at due_ns */
    STORE_PROC_QUARANTINED, /* for good */
    STORE_PROC_ENDING,      /* the store shuts down: no replacement */
};

enum store_proc_event {
    STORE_PROC_START,
    STORE_PROC_EXITED,       /* reaped */
    STORE_PROC_SPAWN_FAILED, /* the SPAWN action could not be done */
    STORE_PROC_READY,        /* it has said so: its start is over */
    STORE_PROC_FENCE,        /* stopped, stuck, or it broke the protocol */
    STORE_PROC_HUNG,         /* stuck in its start: FENCE, and remembered */
    STORE_PROC_END,          /* the head ends what runs in it: no fault of its own */
    STORE_PROC_TICK,         /* time went by */
    STORE_PROC_SHUTDOWN,
};

enum store_proc_action {
    STORE_PROC_SPAWN  = 1u << 0, /* start `incarnation` */
    STORE_PROC_KILL   = 1u << 1, /* SIGKILL through the pidfd; EXITED follows */
    STORE_PROC_REPORT = 1u << 2, /* WorkerDown; quarantined if that is the state now */
    STORE_PROC_TERM   = 1u << 3, /* ask it to end */
};

/* How long a beat may stand still. */
struct store_proc_leases {
    uint64_t start_ns; /* until it is ready */
    uint64_t run_ns;
};

struct store_proc {
    enum store_proc_state state;
    uint32_t incarnation; /* of the running or last worker; 0: none yet */
    uint64_t due_ns;      /* WAITING: start; FENCING: give up; otherwise UINT64_MAX */
    uint64_t deaths_ns[STORE_PROC_DEATHS_MAX + 1]; /* ring of the latest */
    uint64_t death_count;
    uint64_t started_ns; /* of the running or last worker */
    uint32_t early;      /* deaths in a row before it had settled */
    uint32_t unready;    /* of these, in a row, before it was ready */
    uint32_t hangs;      /* of these, in a row, that hung */
    bool ready;          /* the running worker has said so */
    bool hung;           /* FENCING: in its start */
    bool blameless;      /* FENCING: this death does not count */
    const char *why;     /* QUARANTINED */
    uint64_t beat;       /* last seen; 0: none of this worker yet */
    uint64_t beat_ns;    /* when it was last looked at */
    uint64_t silence_ns; /* for how long it stood still */
};

void store_proc_init(struct store_proc *proc);
/*
 * A worker of the store before us, as this incarnation; instead of START. came: it handed back what
 * it has, and runs. Otherwise nobody knows whether it lives, so it is killed, by the number that
 * its timeline has, and waited for: EXITED, or it cannot be reaped. Returns actions.
 */
unsigned store_proc_adopt(struct store_proc *proc, uint32_t incarnation, bool came,
                          uint64_t now_ns);
/* Returns the actions as bits of enum store_proc_action. */
unsigned store_proc_step(struct store_proc *proc, enum store_proc_event event,
                         uint64_t now_ns);
/*
 * What its beat is now. True: its lease is over, of its start or of its main loop (proc->ready). To
 * be asked several times a lease.
 */
bool store_proc_beat(struct store_proc *proc, uint64_t beat, uint64_t now_ns,
                     const struct store_proc_leases *leases);
/* Is there a process that has not been reaped (as far as we decided)? */
bool store_proc_alive(const struct store_proc *proc);

#endif
