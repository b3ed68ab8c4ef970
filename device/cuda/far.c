/*
 * Copies by the engines of the device that the bytes come from.
 *
 * WHY. Who reads over NVLink sends requests the way of the bytes that are read from it, so a device
 * that reads and is read at once gets .945 of what one way gives. Who writes sends none. Four
 * H200s, by hand, a process a device: 16 MiB both ways 621 read, 712 GB/s written; all to all 906
 * and 1301; along a chain of three links 1 GiB takes 1.21 and 1.13 of one copy (docs/transfers.md).
 *
 * HOW. This process, which is the reader's, has a context on the other device, too, and its stream
 * goes on there. So it is still the reader who waits, copies into memory that is its own and writes
 * its own words: the other device's process takes no part, and when it dies this copy ends or not,
 * as one that reads does. When this process dies its work on the other device ends with it, before
 * its death is seen (the driver ends the channels when it closes the files, the parent hears of it
 * afterwards), so nobody writes into a buffer whose writer is dead. An error of the other process's
 * kernels is that process's alone.
 *
 * A STREAM IN TWO CONTEXTS is one stream. When it goes away, what comes there waits for a word that
 * is written at home; when it comes back, home is behind an event of its place there. (Out and back
 * by events would do, but one between two devices costs 20 us, and a word written and waited for
 * 5.) Only copies by engines, words, marks (which are a word, too) and waits can be put in where it
 * is away; for all else it comes home. Nothing is waited for that was not enqueued before, so what
 * docs/ordering.md says of hazards holds.
 *
 * WORDS AT HOME. Waits and copies go where the stream is. Its words do not: they are written at
 * home, behind an event of its place each time. For over there a stream that holds no copy is
 * served by the engine for kernels, and that takes turns of a millisecond or so between contexts:
 * where it waits for words, 16 MiB both ways go at 32 GB/s, and all-reduces on two H200s fell from
 * 328 to 144; where it waits for events only, and writes the words, each is late by up to 25 us,
 * now more, now less, and who waits for them along a chain loses the sum. Behind the copies in
 * their own stream a word costs the engine 3.5 us. So the other device is given copies and nothing
 * else, and what follows in the stream may begin before a word is written that comes before it.
 * That is all the same to who waits for the word; what it means for who looks at it after a death
 * says worker/begun.c.
 *
 * WHEN somebody says so (device_engines_open()): a context costs 524 MiB of the other device, and a
 * thread some seconds. Where it cannot be had (no room, a compute mode that is not DEFAULT, a
 * device that is hidden), this device reads.
 *
 * WHAT IT MAY REACH. This device's chunks, to write, and its own as they are mapped here, to read;
 * nobody else's.
 */
#include "device/cuda/cuda_int.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"

/* of the other device's memory that stays free, but not .. */
#define ROOM_BYTES  (UINT64_C(1) << 30)
#define ROOM_PART   8u /* .. more than such a part of it */
#define LINKS_BYTES 4096u
#define TURN_NS     20000 /* somebody who waits for the lock is awake by then */
#define WAYS \
    (LINKS_BYTES / sizeof(uint64_t) - DEVICE_CUDA_FAR_MAX) /* then words_work()'s */

enum far_state {
    FAR_OPENS,
    FAR_READY,
    FAR_REFUSED,
};

struct device_cuda_far {
    struct device_cuda *cuda;
    uint32_t ordinal;
    _Atomic enum far_state state;
    pthread_t thread;
    bool started; /* there is that thread: who finishes joins it */
    /* its thread's: what the context took, and opening the chunks that were there by then */
    uint64_t context_ns;
    uint64_t maps_ns;
    uint32_t maps_opened;

    /* Guarded by the device's `lock`. */
    struct device_cuda_stream *holders[DEVICE_CUDA_FAR_LANES]; /* NULL: it is free */

    /* The thread's, and constant when it is ready. */
    CUdevice device;
    CUcontext context; /* NULL: none */
    struct device_cuda_lane lanes[DEVICE_CUDA_FAR_LANES];
};

/* -------------------------------------------------------------------------------- lanes */

plasmon_status_t device_cuda_lane_create(struct device_cuda *cuda, CUcontext in,
                                         uint32_t ordinal, int priority,
                                         struct device_cuda_lane *out)
{
    struct device_cuda_lane lane = {.context = in, .ordinal = ordinal};
    plasmon_status_t status      = DEVICE_CU(
             cuda, cuStreamCreateWithPriority(&lane.stream, CU_STREAM_NON_BLOCKING, priority));

    if (status == PLASMON_OK) {
        status = DEVICE_CU(cuda, cuEventCreate(&lane.join_event, CU_EVENT_DISABLE_TIMING));
    }
    if (status != PLASMON_OK) {
        device_cuda_lane_destroy(cuda, &lane); /* the first error counts */
        return status;
    }
    *out = lane;
    return PLASMON_OK;
}

void device_cuda_lane_destroy(struct device_cuda *cuda, const struct device_cuda_lane *lane)
{
    if (lane->aside != NULL) {
        (void)DEVICE_CU(cuda,
                        cuStreamDestroy(lane->aside)); /* logged; nothing else to do */
    }
    if (lane->join_event != NULL) {
        (void)DEVICE_CU(cuda, cuEventDestroy(lane->join_event)); /* likewise */
    }
    if (lane->stream != NULL) {
        (void)DEVICE_CU(cuda, cuStreamDestroy(lane->stream)); /* likewise */
    }
}

static plasmon_status_t enter_lane(struct device_cuda_stream *stream,
                                   const struct device_cuda_lane *lane)
{
    if (stream->keep != NULL) {
        device_cuda_stream_flush(&stream->base);
    }
    return device_cuda_enter_context(device_cuda_of(stream->base.device), lane->context);
}

/* Where it is may be lost, or not reach all that is mapped: then it comes home. */
static void check(struct device_cuda_stream *stream)
{
    if (stream->at->far != NULL && atomic_load(&stream->at->far->state) != FAR_READY) {
        device_cuda_far_home(stream);
    }
}

plasmon_status_t device_cuda_here(struct device_cuda_stream *stream, CUstream *out_on)
{
    plasmon_status_t status;

    check(stream);
    status = enter_lane(stream, stream->at);

    stream->at->home_behind = false;
    *out_on                 = stream->at->stream;
    return status;
}

plasmon_status_t device_cuda_tail(struct device_cuda_stream *stream, CUstream *out_on)
{
    struct device_cuda *cuda = device_cuda_of(stream->base.device);
    bool behind              = !device_cuda_is_away(stream) || stream->at->home_behind;
    plasmon_status_t status  = behind ? PLASMON_OK : enter_lane(stream, stream->at);

    *out_on = stream->home.stream;
    if (status == PLASMON_OK && !behind) {
        status = DEVICE_CU(cuda, cuEventRecord(stream->at->join_event, stream->at->stream));
    }
    if (status == PLASMON_OK) {
        status = enter_lane(stream, &stream->home);
    }
    if (status == PLASMON_OK && !behind) {
        status = DEVICE_CU(cuda, cuStreamWaitEvent(*out_on, stream->at->join_event,
                                                   CU_EVENT_WAIT_DEFAULT));
        stream->at->home_behind = status == PLASMON_OK;
    }
    return status;
}

/*
 * All that it holds is over; an error is not. Where home is behind the other place that is not
 * asked: it may be lost by now.
 */
static bool is_idle(struct device_cuda_stream *stream)
{
    return (!device_cuda_is_away(stream) || stream->at->home_behind ||
            (enter_lane(stream, stream->at) == PLASMON_OK &&
             device_cuda_driver.cuStreamQuery(stream->at->stream) == CUDA_SUCCESS)) &&
           enter_lane(stream, &stream->home) == PLASMON_OK &&
           device_cuda_driver.cuStreamQuery(stream->home.stream) == CUDA_SUCCESS;
}

/*
 * The word that its order goes by: one of a page, for good, since somebody may still wait for what
 * it says. false: there is none left, or no page yet.
 */
static bool way_take(struct device_cuda_stream *stream)
{
    struct device_cuda *cuda = device_cuda_of(stream->base.device);
    uint32_t slot            = WAYS;

    if (stream->way != NULL) {
        return true;
    }
    pl_mutex_lock(&cuda->lock);
    if (cuda->links != NULL && cuda->way_count < WAYS) {
        slot = cuda->way_count++;
    }
    pl_mutex_unlock(&cuda->lock);
    if (slot == WAYS ||
        device_cuda_host_address(cuda, &cuda->links[slot], sizeof(*cuda->links),
                                 &stream->way_at) != PLASMON_OK) {
        return false;
    }
    stream->way = &cuda->links[slot];
    return true;
}

/* It has the next value when all that the stream holds is over. */
static plasmon_status_t way_write(struct device_cuda_stream *stream)
{
    CUstream on;
    plasmon_status_t status = device_cuda_tail(stream, &on);

    return status == PLASMON_OK
               ? DEVICE_CU(device_cuda_of(stream->base.device),
                           cuStreamWriteValue64(on, stream->way_at, ++stream->way_value,
                                                CU_STREAM_WRITE_VALUE_DEFAULT))
               : status;
}

/* What `lane` holds from now on comes behind what the stream holds, by the stream's word. */
static plasmon_status_t lane_behind(struct device_cuda_stream *stream,
                                    struct device_cuda_lane *lane)
{
    struct device_cuda *cuda = device_cuda_of(stream->base.device);
    plasmon_status_t status  = way_write(stream);

    if (status == PLASMON_OK) {
        status = device_cuda_enter_context(cuda, lane->context);
    }
    lane->home_behind = false;
    if (status == PLASMON_OK) {
        status = DEVICE_CU(cuda, cuStreamWaitValue64(lane->stream, stream->way_at,
                                                     stream->way_value,
                                                     CU_STREAM_WAIT_VALUE_GEQ));
    }
    if (status != PLASMON_OK) { /* its order is lost */
        device_cuda_lost(cuda, device_cuda_last_error());
    }
    return status;
}

static plasmon_status_t go(struct device_cuda_stream *stream, struct device_cuda_lane *to)
{
    plasmon_status_t status = PLASMON_OK;

    if (to == stream->at) {
        return PLASMON_OK;
    }
    if (is_idle(stream)) {
        to->home_behind = false;
    } else if (to == &stream->home) {
        status = way_write(stream); /* home is behind then, and the word says until when */
        if (status != PLASMON_OK) {
            device_cuda_lost(device_cuda_of(stream->base.device), device_cuda_last_error());
        }
    } else {
        status = lane_behind(stream, to);
    }
    if (status == PLASMON_OK) {
        stream->at = to;
    }
    return status;
}

void device_cuda_far_home(struct device_cuda_stream *stream)
{
    (void)go(stream, &stream->home); /* the device is lost, which its health says */
}

plasmon_status_t device_cuda_far_mark(struct device_cuda_stream *stream,
                                      uint64_t *out_value)
{
    plasmon_status_t status = way_write(stream);

    *out_value = stream->way_value;
    return status;
}

plasmon_status_t device_cuda_far_join(struct device_cuda_stream *stream,
                                      struct device_cuda_stream *other)
{
    CUstream on, there;
    plasmon_status_t status;

    if (way_take(other)) { /* its own word: several writers of one would not be in order */
        return lane_behind(other, stream->at);
    }
    device_cuda_far_home(stream);
    status = device_cuda_here(stream, &on);
    if (status == PLASMON_OK) {
        status = device_cuda_tail(other, &there);
    }
    return status == PLASMON_OK ? device_cuda_go_behind(stream, on, there) : status;
}

/* ------------------------------------------------------------------------------ opening */

/* There is one page, whoever opens first. */
static plasmon_status_t links_make(struct device_cuda *cuda)
{
    plasmon_status_t status = PLASMON_OK;
    void *links             = MAP_FAILED;

    pl_mutex_lock(&cuda->maps_lock);
    if (cuda->links == NULL) {
        links = mmap(NULL, LINKS_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                     -1, 0);
        status = links != MAP_FAILED
                     ? device_cuda_host_register(&cuda->base, links, 0, LINKS_BYTES)
                     : PLASMON_ENOMEM;
    }
    if (links != MAP_FAILED && status == PLASMON_OK) {
        pl_mutex_lock(&cuda->lock);
        cuda->links = links;
        pl_mutex_unlock(&cuda->lock);
    } else if (links != MAP_FAILED) {
        (void)munmap(links, LINKS_BYTES);
    }
    pl_mutex_unlock(&cuda->maps_lock);
    return status;
}

/* Memory that was registered before there was this context is seen from it, too. */
static plasmon_status_t words_work(struct device_cuda_far *far)
{
    uint64_t *word          = &far->cuda->links[WAYS + far->ordinal];
    const uint64_t expected = far->ordinal + 1ull;
    CUdeviceptr at          = 0;
    plasmon_status_t status = device_cuda_host_address(far->cuda, word, sizeof(*word), &at);

    if (status == PLASMON_OK) {
        status = DEVICE_CU(NULL, cuStreamWriteValue64(far->lanes[0].stream, at, expected,
                                                      CU_STREAM_WRITE_VALUE_DEFAULT));
    }
    if (status == PLASMON_OK) {
        status = DEVICE_CU(NULL, cuStreamSynchronize(far->lanes[0].stream));
    }
    return status == PLASMON_OK && __atomic_load_n(word, __ATOMIC_ACQUIRE) !=
                                       expected /* pairs with the device's */
               ? PLASMON_ENOTSUP
               : status;
}

static plasmon_status_t map_open(const struct device_cuda_far *far,
                                 const struct device_cuda_map *map)
{
    bool own                     = map->owner == far->cuda->base.info.ordinal;
    const CUmemAccessDesc access = {
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = (int)far->device},
        .flags = own ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_READ,
    };

    return own || map->owner == far->ordinal
               ? DEVICE_CU(NULL, cuMemSetAccess(map->where, map->bytes, &access, 1))
               : PLASMON_OK;
}

void device_cuda_far_open_map(struct device_cuda *cuda, const struct device_cuda_map *map)
{
    struct device_cuda_far *far[DEVICE_CUDA_FAR_MAX];

    pl_mutex_assert_held(&cuda->maps_lock);
    pl_mutex_lock(&cuda->lock);
    memcpy(far, cuda->far, sizeof(far));
    pl_mutex_unlock(&cuda->lock);
    for (uint32_t i = 0; i < DEVICE_CUDA_FAR_MAX; i++) {
        if (far[i] != NULL && atomic_load(&far[i]->state) == FAR_READY &&
            map_open(far[i], map) != PLASMON_OK) {
            /* A stream that is there comes home before its next copy. */
            atomic_store(&far[i]->state, FAR_REFUSED);
            pl_warn("device",
                    "GPU %u: what comes from GPU %u is copied by its own engines from now "
                    "on: %s",
                    cuda->base.info.ordinal, far[i]->ordinal, device_cuda_last_error());
        }
    }
}

/*
 * In another mode than DEFAULT its own worker must have it alone, also one that is about to follow
 * a dead one.
 */
static plasmon_status_t may_enter(const struct device_cuda_far *far)
{
    int mode = CU_COMPUTEMODE_PROHIBITED;
    int can  = 0;
    plasmon_status_t status =
        device_cuda_attribute(far->device, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, &mode);

    if (status == PLASMON_OK && mode != CU_COMPUTEMODE_DEFAULT) {
        return PLASMON_EPERM;
    }
    if (status == PLASMON_OK) {
        status =
            DEVICE_CU(NULL, cuDeviceCanAccessPeer(&can, far->device, far->cuda->device));
    }
    return status == PLASMON_OK && can == 0 ? PLASMON_EUNREACHABLE : status;
}

static plasmon_status_t has_room(void)
{
    size_t left = 0, total = 0;
    plasmon_status_t status = DEVICE_CU(NULL, cuMemGetInfo(&left, &total));

    return status == PLASMON_OK && left < pl_min_u64(ROOM_BYTES, total / ROOM_PART)
               ? PLASMON_EDEVMEM
               : status;
}

/* One that is not open to it yet. */
static struct device_cuda_map *map_closed_locked(const struct device_cuda_far *far)
{
    struct device_cuda *cuda = far->cuda;

    pl_mutex_assert_held(&cuda->maps_lock);
    for (size_t i = 0; i < cuda->maps.count; i++) {
        struct device_cuda_map *map = pl_vec_at(&cuda->maps, i);

        if ((map->opened >> far->ordinal & 1) == 0) {
            return map;
        }
    }
    return NULL;
}

/*
 * A call of the driver each: the worker's main thread, which may map one meanwhile, waits for one
 * of them and not for hundreds.
 */
static plasmon_status_t maps_open(struct device_cuda_far *far)
{
    const struct timespec turn = {.tv_nsec = TURN_NS};
    struct device_cuda *cuda   = far->cuda;
    uint64_t begun_ns          = pl_now_ns();
    plasmon_status_t status    = PLASMON_OK;
    bool more                  = true;

    while (status == PLASMON_OK && more) {
        struct device_cuda_map *map;

        pl_mutex_lock(&cuda->maps_lock);
        map  = map_closed_locked(far);
        more = map != NULL;
        if (more) {
            map->opened |= UINT64_C(1) << far->ordinal;
            status = map_open(far, map);
            far->maps_opened++;
        } else { /* what is mapped next sees it */
            atomic_store(&far->state, FAR_READY);
        }
        pl_mutex_unlock(&cuda->maps_lock);
        if (more) { /* who unlocks is the next one to lock, else */
            (void)nanosleep(&turn, NULL);
        }
    }
    far->maps_ns = pl_now_ns() - begun_ns;
    return status;
}

static plasmon_status_t far_open(struct device_cuda_far *far)
{
    plasmon_status_t status = device_cuda_handle(far->ordinal, &far->device);
    uint64_t begun_ns;

    if (status == PLASMON_OK) {
        status = may_enter(far);
    }
    if (status == PLASMON_OK) {
        status = links_make(far->cuda);
    }
    begun_ns = pl_now_ns();
    if (status == PLASMON_OK) {
        status = DEVICE_CU(NULL, cuDevicePrimaryCtxRetain(&far->context, far->device));
    }
    far->context_ns = pl_now_ns() - begun_ns;
    if (status == PLASMON_OK) {
        status = DEVICE_CU(NULL, cuCtxSetCurrent(far->context));
    }
    if (status == PLASMON_OK) {
        status = has_room();
    }
    for (uint32_t i = 0; status == PLASMON_OK && i < DEVICE_CUDA_FAR_LANES; i++) {
        struct device_cuda_lane *lane = &far->lanes[i];
        int priority                  = far->cuda->priority_high;

        status = device_cuda_lane_create(NULL, far->context, far->ordinal, priority, lane);
        lane->far = far;
    }
    if (status == PLASMON_OK) {
        status = words_work(far);
    }
    return status == PLASMON_OK ? maps_open(far) : status;
}

static void far_close(struct device_cuda_far *far)
{
    if (far->context == NULL) {
        return;
    }
    if (DEVICE_CU(NULL, cuCtxSetCurrent(far->context)) == PLASMON_OK) {
        for (uint32_t i = 0; i < DEVICE_CUDA_FAR_LANES; i++) {
            device_cuda_lane_destroy(NULL, &far->lanes[i]);
        }
    }
    (void)DEVICE_CU(NULL, cuDevicePrimaryCtxRelease(far->device)); /* logged */
    far->context = NULL;
}

static void *far_run(void *user)
{
    struct device_cuda_far *far = user;
    uint64_t begun_ns           = pl_now_ns();
    plasmon_status_t status     = far_open(far);

    if (status == PLASMON_OK) {
        pl_info("device",
                "GPU %u: what comes from GPU %u is copied by the engines of that; to open "
                "it took %llu ms, the context %llu of them and %llu the %u chunks",
                far->cuda->base.info.ordinal, far->ordinal,
                (unsigned long long)((pl_now_ns() - begun_ns) / 1000000),
                (unsigned long long)(far->context_ns / 1000000),
                (unsigned long long)(far->maps_ns / 1000000), far->maps_opened);
        return NULL;
    }
    pl_info("device", "GPU %u: what comes from GPU %u is copied by its own engines: %s",
            far->cuda->base.info.ordinal, far->ordinal, pl_status_text(status));
    far_close(far);
    atomic_store(&far->state, FAR_REFUSED);
    return NULL;
}

/* ------------------------------------------------------------------------------ sources */

static struct device_cuda_far *far_find(struct device_cuda *cuda, uint32_t ordinal)
{
    struct device_cuda_far *far = NULL;

    if (ordinal < DEVICE_CUDA_FAR_MAX) {
        pl_mutex_lock(&cuda->lock);
        far = cuda->far[ordinal];
        pl_mutex_unlock(&cuda->lock);
    }
    return far;
}

/* NULL: there is one already, or no memory for it. */
static struct device_cuda_far *far_add(struct device_cuda *cuda, uint32_t ordinal)
{
    struct device_cuda_far *far = NULL;

    pl_mutex_lock(&cuda->lock);
    if (cuda->far[ordinal] == NULL) {
        far = PL_NEW(struct device_cuda_far);
    }
    if (far != NULL) {
        far->cuda    = cuda;
        far->ordinal = ordinal;
        atomic_init(&far->state, FAR_OPENS);
        cuda->far[ordinal] = far;
    }
    pl_mutex_unlock(&cuda->lock);
    return far;
}

void device_cuda_engines_open(struct device *device, uint32_t ordinal)
{
    struct device_cuda *cuda = device_cuda_of(device);
    struct device_cuda_far *far =
        ordinal < DEVICE_CUDA_FAR_MAX && ordinal < device_cuda_driver_load(NULL)
            ? far_add(cuda, ordinal)
            : NULL;

    if (far == NULL) {
        return;
    }
    far->started = pthread_create(&far->thread, NULL, far_run, far) == 0;
    if (!far->started) {
        pl_warn("device", "no thread that opens GPU %u", ordinal);
        atomic_store(&far->state, FAR_REFUSED);
    }
}

enum device_engines device_cuda_engines_state(struct device *device, uint32_t ordinal)
{
    const struct device_cuda_far *far = far_find(device_cuda_of(device), ordinal);

    if (far == NULL) {
        return ordinal < DEVICE_CUDA_FAR_MAX && ordinal < device_cuda_driver_load(NULL)
                   ? DEVICE_ENGINES_CLOSED
                   : DEVICE_ENGINES_REFUSED;
    }
    switch (atomic_load(&far->state)) {
    case FAR_OPENS:
        return DEVICE_ENGINES_OPENING;
    case FAR_READY:
        return DEVICE_ENGINES_OPEN;
    default:
        return DEVICE_ENGINES_REFUSED;
    }
}

/* Its lane there; NULL: others have them all. */
static struct device_cuda_lane *lane_of(struct device_cuda *cuda,
                                        struct device_cuda_far *far,
                                        struct device_cuda_stream *stream)
{
    struct device_cuda_lane *lane = NULL;

    pl_mutex_lock(&cuda->lock);
    for (uint32_t i = 0; lane == NULL && i < DEVICE_CUDA_FAR_LANES; i++) {
        if (far->holders[i] == stream) {
            lane = &far->lanes[i];
        }
    }
    for (uint32_t i = 0; lane == NULL && i < DEVICE_CUDA_FAR_LANES; i++) {
        if (far->holders[i] == NULL) {
            far->holders[i] = stream;
            lane            = &far->lanes[i];
        }
    }
    pl_mutex_unlock(&cuda->lock);
    return lane;
}

plasmon_status_t device_cuda_source(struct device_stream *base, uint32_t ordinal)
{
    struct device_cuda_stream *stream = device_cuda_stream_of(base);
    struct device_cuda *cuda          = device_cuda_of(base->device);
    struct device_cuda_lane *lane     = NULL;
    struct device_cuda_far *far =
        ordinal != cuda->base.info.ordinal ? far_find(cuda, ordinal) : NULL;

    if (stream->home.aside == NULL) {
        return PLASMON_OK; /* not for copies */
    }
    if (far != NULL && atomic_load(&far->state) == FAR_READY && way_take(stream)) {
        lane = lane_of(cuda, far, stream);
    }
    return go(stream, lane != NULL ? lane : &stream->home);
}

bool device_cuda_words_late(const struct device_stream *base)
{
    const struct device_cuda_stream *stream = (const void *)base;

    return device_cuda_is_away(stream);
}

plasmon_status_t device_cuda_settle(struct device_stream *base)
{
    struct device_cuda_stream *stream = device_cuda_stream_of(base);

    check(stream);
    return device_cuda_is_away(stream) ? lane_behind(stream, stream->at) : PLASMON_OK;
}

uint32_t device_cuda_engines(const struct device_stream *base)
{
    const struct device_cuda_stream *stream = (const void *)base;

    return stream->at->ordinal;
}

void device_cuda_far_leave(struct device_cuda_stream *stream)
{
    struct device_cuda *cuda = device_cuda_of(stream->base.device);

    pl_mutex_lock(&cuda->lock);
    for (uint32_t i = 0; i < DEVICE_CUDA_FAR_MAX; i++) {
        for (uint32_t k = 0; cuda->far[i] != NULL && k < DEVICE_CUDA_FAR_LANES; k++) {
            if (cuda->far[i]->holders[k] == stream) {
                cuda->far[i]->holders[k] = NULL;
            }
        }
    }
    pl_mutex_unlock(&cuda->lock);
}

/*
 * What the stream holds where it is, or who joined it, waits for a word that is not there yet; or
 * something that it holds in this lane is not over.
 */
static bool is_owed(const struct device_cuda_stream *stream,
                    const struct device_cuda_lane *lane)
{
    return (stream->way != NULL &&
            __atomic_load_n(stream->way, __ATOMIC_RELAXED) < stream->way_value) ||
           (stream->at == lane &&
            (!lane->home_behind ||
             device_cuda_driver.cuStreamQuery(stream->home.stream) != CUDA_SUCCESS));
}

CUresult device_cuda_far_query_locked(struct device_cuda *cuda)
{
    pl_mutex_assert_held(&cuda->lock);
    for (uint32_t i = 0; i < DEVICE_CUDA_FAR_MAX; i++) {
        struct device_cuda_far *far = cuda->far[i];

        for (uint32_t k = 0; far != NULL && k < DEVICE_CUDA_FAR_LANES; k++) {
            const struct device_cuda_stream *holder = far->holders[k];
            CUresult result                         = CUDA_SUCCESS;

            if (holder != NULL) { /* so there is that lane */
                result = device_cuda_driver.cuStreamQuery(far->lanes[k].stream);
            }
            if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY) {
                atomic_store(&far->state, FAR_REFUSED); /* its device is lost, .. */
                if (is_owed(holder, &far->lanes[k])) {
                    return result; /* .. and so is what was put in there */
                }
            }
        }
    }
    return CUDA_SUCCESS;
}

/* --------------------------------------------------------------------------------- life */

plasmon_status_t device_cuda_far_init(struct device_cuda *cuda)
{
    cuda->maps = PL_VEC_INIT(struct device_cuda_map);
    return pl_mutex_init(&cuda->maps_lock, PL_RANK_CHAINS);
}

void device_cuda_far_finish(struct device_cuda *cuda)
{
    for (uint32_t i = 0; i < DEVICE_CUDA_FAR_MAX; i++) {
        struct device_cuda_far *far = cuda->far[i];

        if (far != NULL && far->started) {
            (void)pthread_join(far->thread, NULL); /* cannot fail: it is joinable */
        }
        if (far != NULL) {
            far_close(far);
            pl_free(far);
            cuda->far[i] = NULL;
        }
    }
    if (cuda->links != NULL) {
        device_cuda_host_unregister(&cuda->base, cuda->links);
        (void)munmap(cuda->links, LINKS_BYTES);
        cuda->links = NULL;
    }
    pl_vec_finish(&cuda->maps);
    pl_mutex_finish(&cuda->maps_lock);
}
