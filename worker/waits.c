/*
 * Who waits for what, as facts for the head (`plasmon doctor`): the front of the queue, and the
 * oldest launch of each stream that is not done. describe.c tells the same to whoever sends a
 * signal. Reads only, but for the clock: since when each of these has been the first in its place
 * is seen whenever the main loop comes by, which is at most half a second late.
 */
#include "worker/core_int.h"

#include <string.h>

static struct worker_launch *oldest_of(const struct worker_core *core, uint32_t stream)
{
    struct worker_launch *launch = core->streams[stream].running.first;
    uint64_t word                = worker_stream_word(core, stream);

    while (launch != NULL && launch->seq <= word) {
        launch = launch->next;
    }
    return launch;
}

static void watch(struct worker_watched *watched, const struct worker_launch *launch,
                  uint64_t now_ns)
{
    uint64_t seq = launch != NULL ? launch->seq : 0;

    if (watched->seq != seq) {
        *watched = (struct worker_watched){.seq = seq, .since_ns = now_ns};
    }
}

void worker_waits_look(struct worker_core *core, uint64_t now_ns)
{
    watch(&core->watched_front, core->queue.first, now_ns);
    for (uint32_t i = 0; i < core->stream_count; i++) {
        watch(&core->watched[i], oldest_of(core, i), now_ns);
    }
}

/* ---------------------------------------------------------------------------------- why */

static bool point_open(const struct worker_core *core, uint64_t point, uint32_t stream)
{
    uint32_t host_device = worker_host_device_of(core, wire_point_device(point));
    uint64_t seq         = wire_point_seq(point);
    struct store_timeline *timeline;

    if (host_device >= core->config.host_device_count) {
        return host_device == WORKER_DEVICE_PENDING;
    }
    timeline = core->config.timelines[host_device];
    if (host_device == core->config.host_device &&
        store_ring_stream(timeline->ring[seq % STORE_RING]) == stream) {
        return false; /* before it in its stream: then it would not be the oldest */
    }
    return timeline == NULL || !store_timeline_done(timeline, seq);
}

/* The first that it waits for and that is not done; 0: none. */
static uint64_t open_point(const struct worker_core *core,
                           const struct worker_launch *launch, uint32_t stream)
{
    for (uint32_t i = 0; i < launch->after_count; i++) {
        if (point_open(core, launch->after[i], stream)) {
            return launch->after[i];
        }
    }
    return 0;
}

static Plasmon__V1__WaitWhy why_on_device(const struct worker_launch *launch,
                                          uint64_t point)
{
    if (point != 0) {
        return PLASMON__V1__WAIT_WHY__WAIT_POINT;
    }
    return worker_launch_is_half(launch) ? PLASMON__V1__WAIT_WHY__WAIT_HALF
                                         : PLASMON__V1__WAIT_WHY__WAIT_RUNS;
}

Plasmon__V1__WaitWhy worker_waits_why(const struct worker_core *core,
                                      const struct worker_launch *launch)
{
    if (worker_condemn_frozen(core)) {
        return PLASMON__V1__WAIT_WHY__WAIT_ENDING;
    }
    if (core->waits_running) {
        return PLASMON__V1__WAIT_WHY__WAIT_ROOM;
    }
    if (core->waits_memory) {
        return PLASMON__V1__WAIT_WHY__WAIT_MEMORY;
    }
    if (core->waits_chunk) {
        return PLASMON__V1__WAIT_WHY__WAIT_STORE;
    }
    if (core->waits_host) { /* what it needs beside memory is being made ready */
        return PLASMON__V1__WAIT_WHY__WAIT_CODE;
    }
    if (core->waits_unpin) {
        return PLASMON__V1__WAIT_WHY__WAIT_READERS;
    }
    if (core->waits_for != 0) {
        return PLASMON__V1__WAIT_WHY__WAIT_PUBLISH;
    }
    if (core->waits_quiet) {
        return launch->checked || worker_launch_is_pairs(launch)
                   ? PLASMON__V1__WAIT_WHY__WAIT_QUIET
                   : PLASMON__V1__WAIT_WHY__WAIT_CODE;
    }
    return core->waits_pair ? PLASMON__V1__WAIT_WHY__WAIT_PAIR
                            : PLASMON__V1__WAIT_WHY__WAIT_NONE;
}

/* ------------------------------------------------------------------------------ telling */

static char *dup_text(struct wire_arena *arena, const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy   = wire_arena_alloc(arena, bytes);

    if (copy != NULL) {
        memcpy(copy, text, bytes);
    }
    return copy != NULL ? copy : (char *)(uintptr_t) "";
}

static Plasmon__V1__LaunchWait *tell(struct wire_arena *arena,
                                     const struct worker_launch *launch,
                                     const struct worker_watched *watched, uint64_t now_ns,
                                     Plasmon__V1__WorkerStats *out)
{
    Plasmon__V1__LaunchWait *wait = wire_arena_alloc(arena, sizeof(*wait));

    if (wait == NULL) {
        return NULL;
    }
    plasmon__v1__launch_wait__init(wait);
    wait->seq      = launch->seq;
    wait->function = dup_text(arena, worker_launch_name(launch));
    wait->label    = dup_text(arena, launch->label);
    wait->client   = launch->client;
    wait->task     = launch->task;
    wait->peer     = launch->team == 0 &&
                         (worker_launch_is_half(launch) || worker_launch_is_pairs(launch))
                         ? launch->peer + 1
                         : 0;
    if (watched->seq == launch->seq && now_ns > watched->since_ns) {
        wait->since_ms = (now_ns - watched->since_ns) / 1000000;
    }
    out->waits[out->n_waits++] = wait;
    return wait;
}

static void tell_front(const struct worker_core *core, struct wire_arena *arena,
                       uint64_t now_ns, Plasmon__V1__WorkerStats *out)
{
    const struct worker_launch *launch = core->queue.first;
    Plasmon__V1__LaunchWait *wait;
    struct pl_str text;

    if (launch == NULL) {
        return;
    }
    wait = tell(arena, launch, &core->watched_front, now_ns, out);
    if (wait == NULL) {
        return;
    }
    wait->behind = core->queue.count - 1;
    wait->why    = worker_waits_why(core, launch);
    pl_str_init(&text);
    if (wait->why == PLASMON__V1__WAIT_WHY__WAIT_PUBLISH) {
        wait->point = open_point(core, launch, UINT32_MAX);
    } else if (wait->why == PLASMON__V1__WAIT_WHY__WAIT_MEMORY) {
        worker_front_memory_say(core, launch, &text);
    } else if (wait->why == PLASMON__V1__WAIT_WHY__WAIT_PAIR) {
        worker_pair_describe(core, launch, &text);
    }
    wait->text = dup_text(arena, pl_str_text(&text));
    pl_str_finish(&text);
}

static void tell_stream(const struct worker_core *core, uint32_t stream,
                        struct wire_arena *arena, uint64_t now_ns,
                        Plasmon__V1__WorkerStats *out)
{
    const struct worker_launch *launch = oldest_of(core, stream);
    Plasmon__V1__LaunchWait *wait;
    struct pl_str text;

    if (launch == NULL) {
        return;
    }
    wait = tell(arena, launch, &core->watched[stream], now_ns, out);
    if (wait == NULL) {
        return;
    }
    wait->stream = stream + 1;
    wait->behind = core->streams[stream].running.count - 1;
    wait->point  = open_point(core, launch, stream);
    wait->why    = why_on_device(launch, wait->point);
    pl_str_init(&text);
    if (wait->why == PLASMON__V1__WAIT_WHY__WAIT_HALF) {
        worker_pair_describe(core, launch, &text);
    }
    wait->text = dup_text(arena, pl_str_text(&text));
    pl_str_finish(&text);
}

void worker_core_waits(const struct worker_core *core, struct wire_arena *arena,
                       uint64_t now_ns, Plasmon__V1__WorkerStats *out)
{
    out->left  = worker_pairs_left(core, arena, now_ns);
    out->waits = wire_arena_alloc(arena, (core->stream_count + 1) * sizeof(*out->waits));
    if (out->waits == NULL) {
        return; /* the figures without it */
    }
    tell_front(core, arena, now_ns, out);
    for (uint32_t i = 0; i < core->stream_count; i++) {
        tell_stream(core, i, arena, now_ns, out);
    }
}
