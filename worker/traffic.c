/*
 * Transfers by pair of devices: what came from where on which route, how long it took, what is
 * under way, and what is late.
 *
 * COUNTED where the copy is enqueued, by the device that it comes to. Its time runs from then, or
 * from when what is before it in its stream was seen done, until it is seen done; so it holds what
 * the transfer waited for, and rates made of it are not too good.
 *
 * LATE. A transfer at the front of its stream for which all is there has a second and four times
 * what its bytes should take by the rate of its pair so far. All is there: what it names in `after`
 * is done and, for a half of a staged one, the other half has begun and moves chunks; each chunk
 * that moves begins the time anew. What is late is told in the log with what it waits for, and
 * counted. Nothing is done about it here, for each cause has its owner: a worker that is stopped,
 * dead or stuck in a call is replaced by its store, which also ends what a device does for ever on
 * behalf of a dead one; between hosts the channel connects again (transfer/bulk.h).
 */
#include "worker/core_int.h"

#include "base/alloc.h"
#include "base/log.h"

#define GRACE_NS   UINT64_C(1000000000)
#define LOOK_NS    UINT64_C(250000000)
#define RATE_GUESS UINT64_C(500000000) /* bytes a second, before anything was measured */

static struct worker_pair *pair_of(struct worker_core *core, uint32_t peer, uint32_t route)
{
    uint64_t key             = ((uint64_t)peer << 8 | route) + 1;
    struct worker_pair *pair = pl_map_get(&core->pairs, key);

    if (pair == NULL) {
        pair = PL_NEW(struct worker_pair);
        if (pair == NULL || pl_map_set(&core->pairs, key, pair) != PLASMON_OK) {
            pl_free(pair);
            return NULL; /* this one is not counted */
        }
        pair->peer  = peer;
        pair->route = route;
    }
    return pair;
}

void worker_traffic_count(struct worker_core *core, struct worker_launch *launch,
                          uint32_t peer, uint32_t route, uint64_t bytes)
{
    struct worker_pair *pair = pair_of(core, peer, route);

    if (pair == NULL) {
        return;
    }
    pair->bytes += bytes;
    pair->transfers += launch->pair != pair;
    if (worker_launch_is_function(launch)) {
        return; /* a piece of what it changes: its time is the function's */
    }
    if (launch->pair == NULL) {
        /* pieces from several devices: the first one has the time */
        pair->in_flight++;
        launch->pair      = pair;
        launch->moving_ns = worker_now(core);
        core->transfers_running++;
    }
    if (launch->pair == pair) {
        pair->bytes_in_flight += bytes;
        launch->pair_bytes += bytes;
    }
}

void worker_traffic_done(struct worker_core *core, struct worker_launch *launch,
                         struct worker_stream *stream)
{
    struct worker_pair *pair = launch->pair;
    uint64_t now_ns;

    if (pair == NULL) {
        return;
    }
    now_ns = worker_now(core);
    pl_histogram_add(&core->transfer_times[pair->route], now_ns - launch->moving_ns);
    pair->in_flight--;
    pair->bytes_in_flight -= launch->pair_bytes;
    /*
     * Not since before the last one: of this stream, which did that one meanwhile, or of this pair,
     * in the other copy stream.
     */
    pair->busy_ns += now_ns - pl_max_u64(launch->moving_ns,
                                         pl_max_u64(stream->moved_ns, pair->moved_ns));
    stream->moved_ns = now_ns;
    pair->moved_ns   = now_ns;
    core->transfers_running--;
}

/* --------------------------------------------------------------------------------- late */

static bool point_done(const struct worker_core *core, uint64_t point)
{
    uint32_t device = worker_host_device_of(core, wire_point_device(point));

    return device >= core->config.host_device_count ||
           core->config.timelines[device] == NULL ||
           store_timeline_done(core->config.timelines[device], wire_point_seq(point));
}

bool worker_inputs_done(const struct worker_core *core, const struct worker_launch *launch)
{
    for (uint32_t i = 0; i < launch->after_count; i++) {
        if (!point_done(core, launch->after[i])) {
            return false;
        }
    }
    return true;
}

bool worker_own_inputs_done(const struct worker_core *core,
                            const struct worker_launch *launch)
{
    for (uint32_t i = 0; i < launch->after_count; i++) {
        uint64_t point = launch->after[i];

        if (worker_host_device_of(core, wire_point_device(point)) ==
                core->config.host_device &&
            !point_done(core, point) &&
            !worker_joint_ahead(core, launch, wire_point_seq(point))) {
            return false;
        }
    }
    return true;
}

/* Chunks of our ring that have come or gone since this half's turn: 0 if the other half has not begun. */
static uint64_t chunks_moved(const struct worker_core *core,
                             const struct worker_launch *launch)
{
    const struct store_timeline *timeline = core->timeline;
    uint64_t count                        = 0;

    for (uint32_t i = 0; i < STORE_STAGE_SLOTS; i++) {
        uint64_t ready = __atomic_load_n(&timeline->stage_ready[i].value, __ATOMIC_ACQUIRE);

        count += ready > launch->offset ? ready - launch->offset : 0;
    }
    return count + __atomic_load_n(&timeline->stage_taken.value, __ATOMIC_ACQUIRE);
}

static bool other_half_begun(const struct worker_core *core,
                             const struct worker_launch *launch)
{
    const struct store_word *ready =
        &core->timeline->stage_ready[launch->offset % STORE_STAGE_SLOTS];

    return __atomic_load_n(&ready->value, __ATOMIC_ACQUIRE) > launch->offset;
}

static uint64_t deadline_ns(const struct worker_launch *launch)
{
    const struct worker_pair *pair = launch->pair;
    uint64_t done                  = pair->bytes - pair->bytes_in_flight;
    uint64_t rate                  = RATE_GUESS;

    if (done > 0 && pair->busy_ns > 1000) {
        rate = pl_max_u64(done / (pair->busy_ns / 1000) * 1000000, 1000000);
    }
    return GRACE_NS + 4 * (launch->pair_bytes / pl_max_u64(rate / 1000000, 1) * 1000);
}

static void late(struct worker_core *core, struct worker_launch *launch, uint64_t waited_ns)
{
    struct pl_str text;

    launch->late = true;
    launch->pair->stalls++;
    pl_str_init(&text);
    worker_core_describe(core, &text);
    pl_warn(
        "worker", "launch %llu, %llu bytes from device %u, has not got on for %llu ms\n%s",
        (unsigned long long)launch->seq, (unsigned long long)launch->pair_bytes,
        launch->pair->peer, (unsigned long long)(waited_ns / 1000000), pl_str_text(&text));
    pl_str_finish(&text);
}

static void stream_look(struct worker_core *core, struct worker_stream *stream,
                        uint64_t word, uint64_t now_ns)
{
    struct worker_launch *launch = stream->running.first;
    bool half;
    uint64_t moved;

    if (launch == NULL || launch->pair == NULL || launch->seq <= word || launch->late ||
        launch->comm != 0) { /* NCCL has a watch of its own (transfer/pair_watch.c) */
        return;
    }
    half  = worker_launch_is_half(launch);
    moved = half ? chunks_moved(core, launch) : 0;
    if (launch->front_ns == 0 || moved != launch->front_moved ||
        !worker_inputs_done(core, launch) || (half && !other_half_begun(core, launch))) {
        launch->front_ns    = now_ns;
        launch->front_moved = moved;
    } else if (now_ns - launch->front_ns > deadline_ns(launch)) {
        late(core, launch, now_ns - launch->front_ns);
    }
}

uint64_t worker_traffic_look(struct worker_core *core, uint64_t now_ns)
{
    if (core->transfers_running == 0) {
        return UINT64_MAX;
    }
    for (uint32_t i = 0; i < core->stream_count; i++) {
        stream_look(core, &core->streams[i], worker_stream_word(core, i), now_ns);
    }
    return now_ns + LOOK_NS;
}

/* ------------------------------------------------------------------------------ figures */

bool worker_core_pair_next(const struct worker_core *core, size_t *io_index,
                           struct worker_pair *out)
{
    uint64_t key;
    void *pair;

    if (!pl_map_next(&core->pairs, io_index, &key, &pair)) {
        return false;
    }
    *out = *(const struct worker_pair *)pair;
    return true;
}

void worker_core_transfer_times(const struct worker_core *core, struct wire_arena *arena,
                                Plasmon__V1__WorkerStats *out)
{
    size_t count = 0;

    out->transfers =
        wire_arena_alloc(arena, PL_COUNT(core->transfer_times) * sizeof(*out->transfers));
    for (uint32_t i = 0; out->transfers != NULL && i < PL_COUNT(core->transfer_times);
         i++) {
        if (pl_histogram_count(&core->transfer_times[i]) > 0) {
            Plasmon__V1__Histogram *one = wire_histogram(&core->transfer_times[i], arena);

            if (one == NULL) {
                return;
            }
            one->of                 = PLASMON__V1__TIME_OF__TIME_TRANSFER;
            one->route              = i;
            out->transfers[count++] = one;
        }
    }
    out->n_transfers = count;
}

void worker_traffic_finish(struct worker_core *core)
{
    size_t i = 0;
    uint64_t key;
    void *pair;

    while (pl_map_next(&core->pairs, &i, &key, &pair)) {
        pl_free(pair);
    }
    pl_map_finish(&core->pairs);
}
