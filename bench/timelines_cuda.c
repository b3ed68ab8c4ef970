/*
 * Ways that only GPUs have, through the driver that device/cuda found, and the launches of
 * timelines_kernel.cu.
 *
 * WORDS IN DEVICE MEMORY lie in the side's exported chunk, which the peer maps read-only: the
 * writer writes at home, the waiter reads across the link. cuStreamWriteValue64 and
 * cuStreamWaitValue64 take any address that the device can reach.
 *
 * EVENTS. A wait for an event refers to the last record *that was called*. So the host of the
 * waiter must know that the host of the other side has called it: page->signalled says so, outside
 * of what is timed. One event a round of a group; they are used again in the next group, when all
 * work of this one is done. The events of one process are the same without the handles.
 */
#include <assert.h>
#include <string.h>

#include "base/alloc.h"
#include "bench/bench.h"
#include "bench/timelines.h"
#include "device/cuda/driver.h"

extern const unsigned char bench_timelines_fatbin[];
extern const size_t bench_timelines_fatbin_bytes;

/* Makes the context of the side's device current in this thread, which every call of device/ does. */
static plasmon_status_t enter(struct timelines_side *side, struct pl_err *err)
{
    return device_health(side->device, err);
}

static CUstream stream_of(struct timelines_side *side)
{
    return device_native_stream(side->stream);
}

/* --------------------------------------------------------------- words in device memory */

static plasmon_status_t device_words_init(struct timelines_side *side, struct pl_err *err)
{
    (void)side; /* the chunks are zero, and mapped */
    (void)err;
    return PLASMON_OK;
}

static plasmon_status_t device_words_signal(struct timelines_side *side, uint64_t n)
{
    return DEVICE_CU(NULL, cuStreamWriteValue64(stream_of(side),
                                                side->chunk.addr + TIMELINES_AT_WORD, n,
                                                CU_STREAM_WRITE_VALUE_DEFAULT));
}

static plasmon_status_t device_words_wait(struct timelines_side *side, uint64_t n)
{
    return DEVICE_CU(NULL, cuStreamWaitValue64(stream_of(side),
                                               side->peer.addr + TIMELINES_AT_WORD, n,
                                               CU_STREAM_WAIT_VALUE_GEQ));
}

const struct timelines_way_ops timelines_device_words = {.name   = "device words",
                                                         .init   = device_words_init,
                                                         .signal = device_words_signal,
                                                         .wait   = device_words_wait};

/* ------------------------------------------------------------------------------- events */

struct events {
    CUevent own[TIMELINES_ROUNDS];
    CUevent peer[TIMELINES_ROUNDS];
};

static_assert(sizeof(CUipcEventHandle) == TIMELINES_HANDLE, "a handle fits its place");

static plasmon_status_t events_create(struct timelines_side *side, unsigned flags,
                                      struct pl_err *err)
{
    struct events *events   = PL_NEW(struct events);
    plasmon_status_t status = enter(side, err);

    if (events == NULL) {
        return pl_err_set(err, PLASMON_ENOMEM, "out of host memory");
    }
    side->way = events;
    for (size_t i = 0; i < TIMELINES_ROUNDS && status == PLASMON_OK; i++) {
        status = DEVICE_CU(NULL,
                           cuEventCreate(&events->own[i], CU_EVENT_DISABLE_TIMING | flags));
    }
    return status == PLASMON_OK ? status
                                : pl_err_set(err, status, "%s", device_cuda_last_error());
}

static plasmon_status_t events_export(struct timelines_side *side)
{
    struct events *events   = side->way;
    plasmon_status_t status = PLASMON_OK;

    for (size_t i = 0; i < TIMELINES_ROUNDS && status == PLASMON_OK; i++) {
        CUipcEventHandle handle;

        status = DEVICE_CU(NULL, cuIpcGetEventHandle(&handle, events->own[i]));
        memcpy(side->page->handle[side->role][i], &handle, sizeof(handle));
    }
    return status;
}

static plasmon_status_t events_open(struct timelines_side *side)
{
    struct events *events   = side->way;
    plasmon_status_t status = PLASMON_OK;

    for (size_t i = 0; i < TIMELINES_ROUNDS && status == PLASMON_OK; i++) {
        CUipcEventHandle handle;

        memcpy(&handle, side->page->handle[1 - side->role][i], sizeof(handle));
        status = DEVICE_CU(NULL, cuIpcOpenEventHandle(&events->peer[i], handle));
    }
    return status;
}

static plasmon_status_t events_init(struct timelines_side *side, struct pl_err *err)
{
    plasmon_status_t status = events_create(side, CU_EVENT_INTERPROCESS, err);

    if (status != PLASMON_OK) {
        return status;
    }
    status = events_export(side);
    if (status == PLASMON_OK) {
        status = timelines_meet(side->page);
    }
    if (status == PLASMON_OK) {
        status = events_open(side);
    }
    return status == PLASMON_OK ? status
                                : pl_err_set(err, status, "%s", device_cuda_last_error());
}

static plasmon_status_t events_signal(struct timelines_side *side, uint64_t n)
{
    struct events *events = side->way;

    return DEVICE_CU(NULL,
                     cuEventRecord(events->own[n % TIMELINES_ROUNDS], stream_of(side)));
}

static plasmon_status_t events_wait(struct timelines_side *side, uint64_t n)
{
    struct events *events = side->way;

    return DEVICE_CU(NULL,
                     cuStreamWaitEvent(stream_of(side), events->peer[n % TIMELINES_ROUNDS],
                                       CU_EVENT_WAIT_DEFAULT));
}

const struct timelines_way_ops timelines_events = {.name        = "interprocess events",
                                                   .init        = events_init,
                                                   .signal      = events_signal,
                                                   .wait        = events_wait,
                                                   .needs_order = true};

/* Both sides are in this process; the second one to be set up connects the two. */
static plasmon_status_t one_process_init(struct timelines_side *side, struct pl_err *err)
{
    plasmon_status_t status = events_create(side, 0, err);
    struct events *here     = side->way;
    struct events *there    = side->other != NULL ? side->other->way : NULL;

    if (status == PLASMON_OK && there != NULL) {
        memcpy(here->peer, there->own, sizeof(here->peer));
        memcpy(there->peer, here->own, sizeof(there->peer));
    }
    return status;
}

const struct timelines_way_ops timelines_one_process = {.name   = "events in one process",
                                                        .init   = one_process_init,
                                                        .signal = events_signal,
                                                        .wait   = events_wait,
                                                        .needs_order = true};

/* ------------------------------------------------------------------------------ kernels */

plasmon_status_t timelines_cuda_spin(struct timelines_side *side, uint64_t units)
{
    static const struct device_launch_shape shape = {.grid = {1, 1, 1}, .block = {1, 1, 1}};
    void *params[]                                = {&units};

    return device_launch(side->stream, side->spin, &shape, params);
}

plasmon_status_t timelines_cuda_exchange(struct timelines_side *side,
                                         const struct timelines_exchange *args)
{
    struct timelines_exchange copy   = *args;
    struct device_launch_shape shape = {.block = {256, 1, 1}, .grid = {1, 1, 1}};
    void *params[] = {&copy.landing, &copy.payload, &copy.wrong, &copy.words,
                      &copy.expect,  &copy.round,   &copy.role};

    shape.grid[0] = (uint32_t)pl_min_u64(32, (args->words + 255) / 256);
    return device_launch(side->stream, side->exchange, &shape, params);
}

/* Cycles of TIMELINES_SPIN_NS, from one long spin; the one before it brings the clock up. */
static plasmon_status_t calibrate(struct timelines_side *side, struct pl_err *err)
{
    const uint64_t cycles   = 40000000; /* some 20 ms */
    uint64_t elapsed_ns     = 0;
    plasmon_status_t status = timelines_cuda_spin(side, cycles);

    if (status == PLASMON_OK) {
        status = device_event_record(side->begin, side->stream);
    }
    if (status == PLASMON_OK) {
        status = timelines_cuda_spin(side, cycles);
    }
    if (status == PLASMON_OK) {
        status = device_event_record(side->end, side->stream);
    }
    if (status == PLASMON_OK) {
        status = device_stream_sync(side->stream, err);
    }
    if (status == PLASMON_OK) {
        status = device_event_elapsed_ns(side->begin, side->end, &elapsed_ns);
    }
    if (status == PLASMON_OK && elapsed_ns == 0) {
        return pl_err_set(err, PLASMON_EDEVICE, "a spin of %llu cycles took no time",
                          (unsigned long long)cycles);
    }
    side->spin_units = status == PLASMON_OK ? cycles * TIMELINES_SPIN_NS / elapsed_ns : 0;
    return status;
}

plasmon_status_t timelines_cuda_init(struct timelines_side *side, struct pl_err *err)
{
    plasmon_status_t status =
        device_module_load(side->device, bench_timelines_fatbin,
                           bench_timelines_fatbin_bytes, &side->code, err);

    if (status == PLASMON_OK) {
        status = device_module_function(side->code, "timelines_spin", &side->spin, err);
    }
    if (status == PLASMON_OK) {
        status =
            device_module_function(side->code, "timelines_exchange", &side->exchange, err);
    }
    return status == PLASMON_OK ? calibrate(side, err) : status;
}
