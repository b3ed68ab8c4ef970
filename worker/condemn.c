/*
 * Launches that must not go on: those that run over their limit, and those that a client ends by force.
 *
 * THE CLOCK starts when the launch begins on the device, not when it is enqueued: the stream writes `begun` when everything before the
 * launch in its stream is done, and we, who have no clock, are told the time when we see that. Seeing it late gives a launch more
 * time, never less. (A GPU may begin a kernel later still, when kernels of other streams fill it.)
 *
 * NOTHING BUT A DEATH ENDS A KERNEL. So the launch is condemned: it is told to the head, which fails it at once, and nothing more is
 * enqueued here. What else is on the device may finish; when all of it is done, or waits for the condemned launch, or a second is over,
 * the head is asked to have this worker fenced. Then the only work that is cut short is the condemned launch's, and whatever took
 * longer than that second.
 *
 * UNTOUCHED. What waits behind the condemned launch has not begun, so it may run again even if it overwrites its input in place. That
 * must still be true when the worker is dead, and the launch may end in the moment before. So the claim is: as long as the word
 * does not show the *barrier* done, these have not begun. The barrier is the first launch from the condemned one on with its word
 * right behind it: a launch with a limit itself. If it ends in time after all, nobody is fenced.
 */
#include "base/fault.h"
#include "worker/core_int.h"

#define POLL_NS  (5ull * 1000000u)    /* how late a begin may be seen */
#define DRAIN_NS (1000ull * 1000000u) /* for what else is on the device */

#define FOLLOWED_STUCK     0x2u /* bits of core->followed besides streams.c's */
#define FOLLOWED_UNTOUCHED 0x4u

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

/* ------------------------------------------------------------------------------------------------ what waits for it */

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

/* Bits of the launches of ours that it waits for. */
static uint8_t inherited(const struct worker_core *core, const struct worker_launch *launch)
{
    uint8_t bits = 0;

    for (uint32_t i = 0; i < launch->after_count; i++) {
        uint64_t seq = wire_point_seq(launch->after[i]);

        if (worker_host_device_of(core, wire_point_device(launch->after[i])) ==
                core->config.host_device &&
            !store_timeline_done(core->timeline, seq)) {
            bits |= core->followed[seq % STORE_RING];
        }
    }
    return bits & (FOLLOWED_STUCK | FOLLOWED_UNTOUCHED);
}

static uint64_t barrier_find(const struct worker_core *core)
{
    const struct worker_launch *launch =
        launch_find(core, core->condemned.stream, core->condemned.seq);

    while (launch != NULL && !launch->signalled) {
        launch = launch->next;
    }
    return launch != NULL ? launch->seq : UINT64_MAX;
}

/*
 * Fills `untouched` (cleared first) with what has not begun while `barrier` is not done. True: everything else that is unfinished
 * waits for the condemned launch.
 */
static bool survey(struct worker_core *core, uint64_t barrier,
                   struct wire_ranges *untouched)
{
    struct worker_launch *cursors[STORE_STREAM_MAX];
    uint8_t of_stream[STORE_STREAM_MAX] = {0};
    struct worker_launch *launch;
    bool drained = true;
    uint32_t stream;

    wire_ranges_clear(untouched);
    for (uint32_t i = 0; i < core->stream_count; i++) {
        cursors[i] = core->streams[i].running.first;
    }
    while ((launch = next_in_order(core, cursors, &stream)) != NULL) {
        uint8_t *bits = &core->followed[launch->seq % STORE_RING];

        *bits &= (uint8_t) ~(FOLLOWED_STUCK | FOLLOWED_UNTOUCHED);
        if (launch->seq <= worker_stream_word(core, stream)) {
            continue;
        }
        if (stream == core->condemned.stream && launch->seq >= core->condemned.seq) {
            of_stream[stream] |= FOLLOWED_STUCK;
        }
        of_stream[stream] |= inherited(core, launch);
        *bits |= of_stream[stream];
        if ((*bits & FOLLOWED_UNTOUCHED) != 0 &&
            wire_ranges_add(untouched, launch->seq) != PLASMON_OK) {
            return drained; /* fewer may be spared, and no wrong one */
        }
        drained &= (*bits & FOLLOWED_STUCK) != 0;
        if (launch->seq == barrier || pl_bug("worker.untouched_early")) {
            of_stream[stream] |= FOLLOWED_UNTOUCHED; /* from the next one on */
        }
    }
    return drained;
}

/* ------------------------------------------------------------------------------------------------ condemning */

static void report(struct worker_core *core, const char *text, uint64_t barrier,
                   const struct wire_ranges *untouched)
{
    struct worker_condemned condemned = {.seq       = core->condemned.seq,
                                         .status    = core->condemned.status,
                                         .text      = text,
                                         .fence     = untouched != NULL,
                                         .barrier   = barrier,
                                         .untouched = untouched};

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
    report(core, pl_str_text(&text), 0, NULL);
    pl_str_finish(&text);
}

static uint64_t condemned_look(struct worker_core *core, uint64_t now_ns)
{
    struct worker_condemning *condemned = &core->condemned;
    struct wire_ranges untouched;
    uint64_t barrier;
    bool drained;

    if (condemned->fence_asked) {
        return UINT64_MAX;
    }
    wire_ranges_init(&untouched);
    barrier = barrier_find(core);
    drained = survey(core, barrier, &untouched);
    if (drained || now_ns - condemned->since_ns >= DRAIN_NS) {
        condemned->fence_asked = true;
        report(core, "", barrier, &untouched);
    }
    wire_ranges_finish(&untouched);
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

/* ------------------------------------------------------------------------------------------------ limits */

/* Is its running launch over its limit? Then it is condemned. */
static void stream_look(struct worker_core *core, uint32_t stream, uint64_t now_ns)
{
    struct worker_stream *mine = &core->streams[stream];
    /* Acquire: pairs with the device's write; the host need not see more than the number. */
    uint64_t begun =
        __atomic_load_n(&core->timeline->begun[stream].value, __ATOMIC_ACQUIRE);
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
    if (launch == NULL ||
        now_ns - mine->watched_ns < launch->time_limit_ms * UINT64_C(1000000)) {
        return;
    }
    condemn(core, launch, stream, PLASMON_ETIMELIMIT, now_ns);
}

uint64_t worker_core_tick(struct worker_core *core, uint64_t now_ns)
{
    bool limited = false;
    uint64_t due_ns;

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
