#include "worker/sources.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"

/*
 * An engine that is wanted for so much by both sides loses a fortieth of its time, and what
 * changing turns costs.
 */
#define SMALL_BYTES  (UINT64_C(1) << 30)
#define WINDOW_NS    UINT64_C(100000000)
#define COUNTS_NS    UINT64_C(1000000000)
#define PAUSE_MAX_NS UINT64_C(3200000000)
#define KERNEL_BYTES (UINT64_C(256) << 10) /* no engine's (device/cuda/copy.c) */
#define MEMORY_PART  32u
#define OTHERS_MAX   3u /* more is yet to be measured (docs/transfers.md) */

static struct store_table *own_table(const struct worker_sources *sources)
{
    return sources->shared->tables[sources->shared->host_device];
}

static void show(struct worker_sources *sources, enum store_engines state)
{
    sources->state = state;
    /* Relaxed: nothing else is told by it. */
    __atomic_store_n(&own_table(sources)->engines, (uint32_t)state, __ATOMIC_RELAXED);
}

/* That there is, and copies are made from. */
static bool is_sibling(const struct worker_sources *sources, uint32_t host_device)
{
    const struct worker_shared *shared = sources->shared;
    const struct device_info *info     = device_get_info(sources->device);
    const struct store_table *table    = shared->tables[host_device];

    return host_device != shared->host_device && table->kind == (uint32_t)info->kind &&
           table->ordinal != info->ordinal &&
           !store_timeline_is_released(shared->timelines[host_device]);
}

void worker_sources_init(struct worker_sources *sources, struct device *device,
                         const struct worker_shared *shared)
{
    const char *text = getenv("PLASMON_SOURCE_ENGINES");

    *sources = (struct worker_sources){
        .device = device,
        .shared = shared,
        .wanted = text == NULL || strcmp(text, "0") != 0,
        .always = text != NULL && strcmp(text, "1") == 0,
    };
    show(sources, sources->wanted ? STORE_ENGINES_IDLE : STORE_ENGINES_REFUSES);
    __atomic_store_n(&own_table(sources)->reads_until_ns, 0, __ATOMIC_RELAXED);
    for (uint32_t i = 0; i < STORE_HOST_DEVICE_MAX; i++) {
        __atomic_store_n(&own_table(sources)->engine_used[i], 0, __ATOMIC_RELAXED);
    }
}

bool worker_sources_by_default(const struct device_info *info, uint32_t others)
{
    return !info->mps && others <= OTHERS_MAX &&
           others * DEVICE_ENGINES_BYTES <= info->bytes_total / MEMORY_PART;
}

/* What is not open yet, or one of them, if none is being opened. */
static void open_some(struct worker_sources *sources, bool all)
{
    for (uint32_t i = 0; i < sources->shared->host_device_count; i++) {
        uint32_t ordinal            = sources->shared->tables[i]->ordinal;
        enum device_engines engines = is_sibling(sources, i)
                                          ? device_engines_state(sources->device, ordinal)
                                          : DEVICE_ENGINES_OPEN;

        if (engines == DEVICE_ENGINES_CLOSED) {
            device_engines_open(sources->device, ordinal);
        }
        if (!all &&
            (engines == DEVICE_ENGINES_CLOSED || engines == DEVICE_ENGINES_OPENING)) {
            return;
        }
    }
}

/* Who reads by its own engine is in the way of those who have that one write for them. */
static bool somebody_opens(const struct worker_sources *sources)
{
    for (uint32_t i = 0; i < sources->shared->host_device_count; i++) {
        uint32_t engines =
            __atomic_load_n(&sources->shared->tables[i]->engines, __ATOMIC_RELAXED);

        if (is_sibling(sources, i) &&
            (engines == STORE_ENGINES_OPENS || engines == STORE_ENGINES_OPENED)) {
            return true;
        }
    }
    return false;
}

/* So many, and it is time to think of it. */
static uint64_t bytes_much(const struct worker_sources *sources)
{
    return sources->always || somebody_opens(sources) ? WORKER_SOURCES_SOON_BYTES
           : sources->several                         ? WORKER_SOURCES_SEVERAL_BYTES
                                                      : WORKER_SOURCES_PAIR_BYTES;
}

/* So many that it pays, whatever else the host does. */
static bool hurries(const struct worker_sources *sources)
{
    return sources->always ||
           sources->copied >= (sources->several ? WORKER_SOURCES_SEVERAL_HURRY_BYTES
                                                : WORKER_SOURCES_PAIR_HURRY_BYTES);
}

/* It has made some large copies: whether it will open what it needs, which is seen at once, and when. */
static void decide(struct worker_sources *sources)
{
    const struct device_info *info = device_get_info(sources->device);
    uint32_t others                = 0;

    for (uint32_t i = 0; i < sources->shared->host_device_count; i++) {
        others += is_sibling(sources, i);
    }
    sources->several = others > 1;
    if (!sources->always && !worker_sources_by_default(info, others)) {
        pl_info("worker",
                "large copies are made by this GPU's own engines; PLASMON_SOURCE_ENGINES=1 "
                "has those of the others make them, which takes %llu MiB of each of %u",
                (unsigned long long)(DEVICE_ENGINES_BYTES >> 20), others);
        show(sources, STORE_ENGINES_REFUSES);
    } else if (sources->copied >= bytes_much(sources)) {
        show(sources, STORE_ENGINES_OPENS);
    }
}

/* What has become of opening, or of what was open. */
static void look(struct worker_sources *sources)
{
    enum store_engines state = STORE_ENGINES_OPENED;

    for (uint32_t i = 0; i < sources->shared->host_device_count; i++) {
        enum device_engines engines =
            is_sibling(sources, i)
                ? device_engines_state(sources->device, sources->shared->tables[i]->ordinal)
                : DEVICE_ENGINES_OPEN;

        if (engines == DEVICE_ENGINES_REFUSED) {
            state = STORE_ENGINES_REFUSES;
        } else if (engines != DEVICE_ENGINES_OPEN && state != STORE_ENGINES_REFUSES) {
            state = STORE_ENGINES_OPENS;
        }
    }
    if (state != sources->state) {
        show(sources, state);
        pl_info("worker", "device %u of this host: %s", sources->shared->host_device,
                state == STORE_ENGINES_OPENED
                    ? "GPUs copy what comes from them, while all others can have it so"
                    : "large copies are made by its own engines");
    }
}

static void have_all_read(struct worker_sources *sources, uint64_t until_ns)
{
    uint64_t *ours = &own_table(sources)->reads_until_ns;

    if (until_ns > __atomic_load_n(ours, __ATOMIC_RELAXED)) {
        __atomic_store_n(ours, until_ns, __ATOMIC_RELAXED);
    }
}

static void count_small(struct worker_sources *sources, uint64_t bytes)
{
    uint64_t now_ns = pl_now_ns();

    if (now_ns - sources->window_ns > WINDOW_NS) {
        sources->window_ns = now_ns;
        sources->small     = 0;
    }
    sources->small += bytes;
    if (sources->small >= SMALL_BYTES) {
        have_all_read(sources, now_ns + COUNTS_NS);
    }
}

enum store_engines worker_sources_stand(const struct worker_sources *sources)
{
    enum store_engines stand = sources->state;

    for (uint32_t i = 0;
         stand != STORE_ENGINES_IDLE && i < sources->shared->host_device_count; i++) {
        uint32_t engines =
            __atomic_load_n(&sources->shared->tables[i]->engines, __ATOMIC_RELAXED);

        if (is_sibling(sources, i) &&
            (engines == STORE_ENGINES_REFUSES ||
             (engines == STORE_ENGINES_OPENS && stand == STORE_ENGINES_OPENED))) {
            stand = engines;
        }
    }
    return stand;
}

/* By its engine, of what is not large. */
static bool somebody_reads_much(const struct worker_sources *sources)
{
    uint64_t now_ns = pl_now_ns();

    for (uint32_t i = 0; i < sources->shared->host_device_count; i++) {
        uint64_t until_ns =
            __atomic_load_n(&sources->shared->tables[i]->reads_until_ns, __ATOMIC_RELAXED);

        if (until_ns > now_ns &&
            (i == sources->shared->host_device || is_sibling(sources, i))) {
            return true;
        }
    }
    return false;
}

/* Somebody else has copies in it that are not over. */
static bool others_use(const struct worker_sources *sources, uint32_t engine)
{
    const struct worker_shared *shared = sources->shared;

    for (uint32_t i = 0; i < shared->host_device_count; i++) {
        uint64_t seq =
            __atomic_load_n(&shared->tables[i]->engine_used[engine], __ATOMIC_RELAXED);

        if (seq != 0 && is_sibling(sources, i) &&
            store_timeline_point(shared->timelines[i], seq, NULL, NULL) ==
                STORE_POINT_ENQUEUED) {
            return true;
        }
    }
    return false;
}

/*
 * Two want it: all read for a while. Twice as long as the last time if that was not long ago, since
 * whoever begins to write again has some copies wait for those that are read yet.
 */
static void take_turns(struct worker_sources *sources)
{
    uint64_t now_ns = pl_now_ns();
    uint64_t until_ns =
        __atomic_load_n(&own_table(sources)->reads_until_ns, __ATOMIC_RELAXED);

    if (now_ns < until_ns) {
        return;
    }
    sources->pause_ns = now_ns - until_ns > sources->pause_ns
                            ? WINDOW_NS
                            : pl_min_u64(2 * sources->pause_ns, PAUSE_MAX_NS);
    have_all_read(sources, now_ns + sources->pause_ns);
}

/*
 * Will others have copies in it, too? If not, ours for that launch are shown there. What others read
 * by their own does not count, if it is large: they will write, too.
 */
static bool is_shared(struct worker_sources *sources, uint32_t engine, uint64_t seq)
{
    if (!sources->several || sources->state != STORE_ENGINES_OPENED) {
        return false;
    }
    if (others_use(sources, engine)) {
        take_turns(sources);
        return true;
    }
    __atomic_store_n(&own_table(sources)->engine_used[engine], seq, __ATOMIC_RELAXED);
    return false;
}

/* Large: whose engine is to make it. */
static uint32_t wanted_engine(struct worker_sources *sources, uint32_t host_device,
                              uint64_t bytes)
{
    sources->copied += bytes;
    if (sources->state == STORE_ENGINES_IDLE &&
        sources->copied >= WORKER_SOURCES_SOON_BYTES) {
        decide(sources);
    }
    if (sources->state == STORE_ENGINES_OPENS && hurries(sources)) {
        open_some(sources, true);
    }
    if (sources->state == STORE_ENGINES_OPENS || sources->state == STORE_ENGINES_OPENED) {
        look(sources);
    }
    return worker_sources_stand(sources) == STORE_ENGINES_OPENED &&
                   !somebody_reads_much(sources)
               ? host_device
               : sources->shared->host_device;
}

uint32_t worker_sources_engines(struct worker_sources *sources, uint32_t host_device,
                                uint64_t bytes, uint64_t seq)
{
    uint32_t engine = sources->shared->host_device;

    if (sources->wanted && is_sibling(sources, host_device)) {
        uint32_t other = wanted_engine(sources, host_device, bytes);

        engine = other == engine || is_shared(sources, other, seq) ? engine : other;
    } else if (sources->wanted && bytes > KERNEL_BYTES) {
        count_small(sources, bytes);
        (void)is_shared(sources, engine, seq);
    }
    return engine == sources->shared->host_device
               ? device_get_info(sources->device)->ordinal
               : sources->shared->tables[engine]->ordinal;
}

/* For a moment nothing has been given to a GPU of the host, and none has anything to do. */
static bool host_rests(struct worker_sources *sources)
{
    const struct worker_shared *shared = sources->shared;
    uint64_t now_ns = pl_now_ns(), launches = 0;
    bool busy = false;

    for (uint32_t i = 0; i < shared->host_device_count; i++) {
        if (i == shared->host_device || is_sibling(sources, i)) {
            /* Relaxed: what it leads to is only more or less welcome. */
            uint64_t last =
                __atomic_load_n(&shared->timelines[i]->enqueued, __ATOMIC_RELAXED);

            launches += last;
            busy =
                busy || (last != 0 && store_timeline_point(shared->timelines[i], last, NULL,
                                                           NULL) == STORE_POINT_ENQUEUED);
        }
    }
    if (busy) {
        sources->rests_since_ns = 0;
    } else if (sources->rests_since_ns == 0 || launches != sources->rests_launches) {
        sources->rests_since_ns = now_ns;
    }
    sources->rests_launches = launches;
    return !busy && now_ns - sources->rests_since_ns >= WORKER_SOURCES_REST_NS;
}

/* Those before us open theirs first. */
static bool is_our_turn(const struct worker_sources *sources)
{
    const struct worker_shared *shared = sources->shared;

    for (uint32_t i = 0; i < shared->host_device; i++) {
        if (is_sibling(sources, i) &&
            __atomic_load_n(&shared->tables[i]->engines, __ATOMIC_RELAXED) ==
                STORE_ENGINES_OPENS) {
            return false;
        }
    }
    return true;
}

void worker_sources_tick(struct worker_sources *sources)
{
    if (sources->state != STORE_ENGINES_OPENS) {
        return;
    }
    if (host_rests(sources) && is_our_turn(sources)) {
        open_some(sources, false);
    }
    look(sources);
}
