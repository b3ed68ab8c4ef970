/*
 * From the end of a worker until its successor has enqueued something: when each step of that was
 * over. The record lies in the device's timeline, so both processes write their part of it, and
 * whoever maps the timeline (the store's log, `plasmon bench chaos`) reads all of it.
 *
 * A phase has one moment, by pl_now_ns(), which all processes of a host share: when it was over.
 * How long it took is told against the latest moment before it in the order of enum store_phase, so
 * phases add up to the whole, and what was done ahead (by a spare, or beside something else) takes
 * no time. 0: it was not come to, or this worker has no such phase.
 *
 * WHO WRITES. The store: NOTICED, ENDED and STARTED, and it wipes the others before it starts the
 * next one, when nobody else is left who writes. The worker: the rest, once its set-up gave it the
 * memory; what came before is kept until then.
 */
#ifndef STORE_PHASES_H
#define STORE_PHASES_H

#include <stdint.h>

#include "base/str.h"

#define STORE_PHASE_MAP(XX)                                                              \
    XX(NOTICED, "noticed")      /* the store knows that the one before ends */           \
    XX(ENDED, "ended")          /* it is reaped: nothing of it runs any more */          \
    XX(STARTED, "paused")       /* the next process is started; a pause is over */       \
    XX(RUNNING, "exec")         /* its main function runs: linked and loaded */          \
    XX(DRIVER, "driver")        /* the device is found: its driver is initialised */     \
    XX(CONTEXT, "context")      /* a GPU's context is made */                            \
    XX(LIBRARIES, "libraries")  /* cuBLAS is loaded and was called */                    \
    XX(SET_UP, "set-up")        /* all that the store hands over came */                 \
    XX(STREAMS, "streams")      /* timelines are registered, streams are made */         \
    XX(CODE, "code")            /* the catalogue's kernels are loaded */                 \
    XX(MEMORY, "memory")        /* the device's chunks are mapped, its table read */     \
    XX(BUFFERS, "buffers")      /* lanes and clients' host memory are registered */      \
    XX(READY, "ready")          /* it has said so, and connects to the head */           \
    XX(WELCOME, "welcome")      /* the head knows it */                                  \
    XX(FUNCTIONS, "functions")  /* what clients defined and the first needs is built */  \
    XX(OTHERS, "other devices") /* they have enqueued what the first launch waits for */ \
    XX(FIRST, "first launch")   /* the first launch was enqueued */

enum store_phase {
#define XX(name, text) STORE_PHASE_##name,
    STORE_PHASE_MAP(XX)
#undef XX
        STORE_PHASES
};

#define STORE_PHASES_ROOM 24 /* in the timeline, whose size is frozen */

struct store_phases {
    uint64_t at_ns[STORE_PHASES_ROOM];
};

const char *store_phase_name(enum store_phase phase);
void store_phase_note(struct store_phases *phases, enum store_phase phase, uint64_t now_ns);
uint64_t store_phase_at(const struct store_phases *phases, enum store_phase phase);
/* How long it took; 0 as well for one that was not come to. */
uint64_t store_phase_took(const struct store_phases *phases, enum store_phase phase);
/*
 * The last step of the one that starts now that is over, in words; NULL: none is yet, as far as we
 * were told.
 */
const char *store_phases_last(const struct store_phases *phases);
/*
 * By the store, when the next one starts: that begins another record, of which `noticed` and
 * `ended` are known.
 */
void store_phases_begin(struct store_phases *phases, uint64_t now_ns);
/* "ended 52, exec 12, driver 210, .." of those from first to last that took at least 1 ms. */
void store_phases_describe(const struct store_phases *phases, enum store_phase first,
                           enum store_phase last, struct pl_str *out);

#endif
