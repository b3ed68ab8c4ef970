/*
 * Launches that must not go on: those that run over their limit, and those that a client ends by force.
 *
 * THE CLOCK starts when the launch begins on the device, not when it is enqueued: the stream writes
 * `begun` when everything before the launch in its stream is done, and we, who have no clock, are
 * told the time when we see that. Seeing it late gives a launch more time, never less. (A GPU may
 * begin a kernel later still, when kernels of other streams fill it.)
 *
 * NOTHING BUT A DEATH ENDS A KERNEL. So the launch is condemned: it is told to the head, which
 * fails it at once, and nothing more is enqueued here. What else is on the device may finish; when
 * all of it is done, or waits for the condemned launch, or a second is over, the head is asked to
 * have this worker fenced. Then the only work that is cut short is the condemned launch's, and
 * whatever took longer than that second.
 *
 * What waits behind the condemned launch has not begun, so it may run again even if it overwrites
 * its input in place: begun.c knows that of every launch, when the worker is dead. If the condemned
 * one ends in time after all, nobody is fenced.
 */
#include "base/fault.h"
#include "worker/core_int.h"

#define POLL_NS  (5ull * 1000000u)    /* how late a begin may be seen */
#define DRAIN_NS (1000ull * 1000000u) /* for what else is on the device */

#define FOLLOWED_STUCK 0x2u /* a bit of core->followed besides streams.c's */

bool worker_condemn_frozen(const struct worker_core *core)
{
    return core->condemned.seq != 0;
}

void worker_condemn_done(struct worker_core *core, const struct worker_launch *launch,
                         struct worker_stream *stream)
{
    core->running_count--;
    stream->limited -= launch->time_limit_ms != 0;
    core->forced -= launch->forced;
    if (core->condemned.seq == launch->seq) {
        core->condemned     = (struct worker_condemning){.seq = 0};
        core->waits_running = true; /* so that the queue goes on */
    }
}

static struct worker_launch *launch_find(const struct worker_core *core, uint32_t stream,
                                         uint64_t seq)
{
    struct worker_launch *launch = core->streams[stream].running.first;

    while (launch != NULL && launch->seq < seq) {
        launch = launch->next;
    }
    return launch != NULL && launch->seq == seq ? launch : NULL;
}

/* -------------------------------------------------------------------- what waits for it */

/* The unfinished launch with the smallest seq that the cursors have not passed, and its stream. */
static struct worker_launch *next_in_order(const struct worker_core *core,
                                           struct worker_launch **cursors,
                                           uint32_t *out_stream)
{
    struct worker_launch *best = NULL;

    for (uint32_t i = 0; i < core->stream_count; i++) {
        if (cursors[i] != NULL && (best == NULL || cursors[i]->seq < best->seq)) {
            best        = cursors[i];
            *out_stream = i;
        }
    }
    if (best != NULL) {
        cursors[*out_stream] = best->next;
    }
    return best;
}

/* Does it wait for one of ours that is stuck? */
static bool waits_for_stuck(const struct worker_core *core,
                            const struct worker_launch *launch)
{
    for (uint32_t i = 0; i < launch->after_count; i++) {
        uint64_t seq = wire_point_seq(launch->after[i]);

        if (worker_host_device_of(core, wire_point_device(launch->after[i])) ==
                core->config.host_device &&
            !store_timeline_done(core->timeline, seq) &&
            (core->followed[seq % STORE_RING] & FOLLOWED_STUCK) != 0) {
            return true;
        }
    }
    return false;
}

/* Acquire: pairs with the device's write; the host need not see more than the number. */
static uint64_t begun_in(const struct worker_core *core, uint32_t stream)
{
    return __atomic_load_n(&core->timeline->begun[stream].value, __ATOMIC_ACQUIRE);
}

/*
 * Over, as far as the device is concerned: its word is there, or is still to come behind one that
 * has begun, for one word may speak for several.
 */
static bool is_over(const struct worker_core *core, const struct worker_launch *launch,
                    uint32_t stream)
{
    return launch->seq <= worker_stream_word(core, stream) ||
           launch->seq < begun_in(core, stream);
}

/* Does everything else that is unfinished wait for the condemned launch? */
static bool drained(struct worker_core *core)
{
    struct worker_launch *cursors[STORE_STREAM_MAX];
    bool stuck[STORE_STREAM_MAX] = {false};
    struct worker_launch *launch;
    bool all = true;
    uint32_t stream;

    for (uint32_t i = 0; i < core->stream_count; i++) {
        cursors[i] = core->streams[i].running.first;
    }
    while ((launch = next_in_order(core, cursors, &stream)) != NULL) {
        uint8_t *bits = &core->followed[launch->seq % STORE_RING];

        *bits &= (uint8_t)~FOLLOWED_STUCK;
        if (is_over(core, launch, stream)) {
            continue;
        }
        stuck[stream] |=
            stream == core->condemned.stream && launch->seq >= core->condemned.seq;
        stuck[stream] |= waits_for_stuck(core, launch);
        *bits |= stuck[stream] ? FOLLOWED_STUCK : 0;
        all &= stuck[stream];
    }
    return all;
}

/* --------------------------------------------------------------------------- condemning */

static void report(struct worker_core *core, const char *text, bool fence)
{
    struct worker_condemned condemned = {.seq    = core->condemned.seq,
                                         .status = core->condemned.status,
                                         .text   = text,
                                         .fence  = fence};

    core->config.ops->report_condemned(core->config.user, &condemned);
}

static void condemn(struct worker_core *core, struct worker_launch *launch, uint32_t stream,
                    plasmon_status_t status, uint64_t now_ns)
{
    struct pl_str text;

    core->condemned = (struct worker_condemning){
        .seq = launch->seq, .stream = stream, .status = status, .since_ns = now_ns};
    pl_str_init(&text);
    if (status == PLASMON_ETIMELIMIT) {
        pl_str_append(&text,
                      "it ran longer than its limit of %u ms: ", launch->time_limit_ms);
    } else {
        pl_str_append(&text, "cancelled by force while it ran: ");
    }
    worker_launch_describe(launch, &text);
    worker_launch_fail(launch, status, "%s", pl_str_text(&text)); /* if it ends after all */
    store_timeline_mark(core->timeline, launch->seq, true);
    report(core, pl_str_text(&text), false);
    pl_str_finish(&text);
}

static uint64_t condemned_look(struct worker_core *core, uint64_t now_ns)
{
    struct worker_condemning *condemned = &core->condemned;

    if (condemned->fence_asked) {
        return UINT64_MAX;
    }
    if (drained(core) || now_ns - condemned->since_ns >= DRAIN_NS) {
        condemned->fence_asked = true;
        report(core, "", true);
    }
    return condemned->fence_asked ? UINT64_MAX : now_ns + POLL_NS;
}

void worker_condemn_force(struct worker_core *core, uint64_t seq)
{
    for (uint32_t i = 0; i < core->stream_count; i++) {
        struct worker_launch *launch = launch_find(core, i, seq);

        if (launch != NULL && !launch->forced && worker_launch_is_function(launch)) {
            launch->forced = true;
            core->forced++;
        }
    }
}

/* The first forced one that is not done. One at a time: after a fence the others do not come again. */
static void forced_condemn(struct worker_core *core, uint64_t now_ns)
{
    for (uint32_t i = 0; i < core->stream_count && core->condemned.seq == 0; i++) {
        struct worker_launch *launch = core->streams[i].running.first;

        while (launch != NULL &&
               (!launch->forced || launch->seq <= worker_stream_word(core, i))) {
            launch = launch->next;
        }
        if (launch != NULL) {
            condemn(core, launch, i, PLASMON_ECANCELLED, now_ns);
        }
    }
}

/* ------------------------------------------------------------------------------- limits */

/* Is its running launch over its limit? Then it is condemned. */
static void stream_look(struct worker_core *core, uint32_t stream, uint64_t now_ns)
{
    struct worker_stream *mine = &core->streams[stream];
    uint64_t begun             = begun_in(core, stream);
    struct worker_launch *launch;

    if (begun <= worker_stream_word(core, stream)) {
        return;
    }
    if (mine->watched != begun) {
        mine->watched    = begun;
        mine->watched_ns = pl_bug("worker.limit_early") ? 0 : now_ns;
        return;
    }
    launch = launch_find(core, stream, begun);
    if (launch == NULL || launch->time_limit_ms == 0 ||
        now_ns - mine->watched_ns < launch->time_limit_ms * UINT64_C(1000000)) {
        return;
    }
    condemn(core, launch, stream, PLASMON_ETIMELIMIT, now_ns);
}

uint64_t worker_core_tick(struct worker_core *core, uint64_t now_ns)
{
    bool limited = false;
    uint64_t due_ns;

    worker_waits_look(core, now_ns);
    for (uint32_t i = 0; i < core->stream_count && core->condemned.seq == 0; i++) {
        if (core->streams[i].limited != 0) {
            limited = true;
            stream_look(core, i, now_ns);
        }
    }
    if (core->forced != 0) {
        forced_condemn(core, now_ns);
    }
    if (core->condemned.seq != 0) {
        return condemned_look(core, now_ns);
    }
    due_ns = worker_traffic_look(core, now_ns);
    return limited ? now_ns + POLL_NS : due_ns;
}
