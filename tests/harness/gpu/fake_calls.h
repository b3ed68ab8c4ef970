/*
 * The calls of the driver that device/cuda makes, in the files that implement them: fake_cuda.c
 * (devices, contexts, and what is exported), fake_memory.c, fake_streams.c (copies, words, streams,
 * events), fake_graphs.c (code, graphs). Each call is counted.
 */
#ifndef TESTS_HARNESS_GPU_FAKE_CALLS_H
#define TESTS_HARNESS_GPU_FAKE_CALLS_H

#include <assert.h>

#include "device/cuda/driver.h"
#include "tests/harness/gpu/fake_cuda.h"
#include "tests/harness/gpu/fake_int.h"

#define FAKE_DEVICE_BYTES (UINT64_C(1) << 30)
#define FAKE_DEVICES_MAX  8

/* Names in the list of device/cuda/driver.h are not those of cuda.h's macros: ## and # do not expand. */
#define XX(name) __typeof__(name) fake_##name;
DEVICE_CUDA_FUNCTIONS(XX)
#undef XX
__typeof__(*(device_cuda_capture_info_fn)NULL) fake_cuStreamGetCaptureInfo;

enum fake_call {
#define XX(name) FAKE_CALL_##name,
    DEVICE_CUDA_FUNCTIONS(XX)
#undef XX
        FAKE_CALL_cuStreamGetCaptureInfo,
    FAKE_CALL_blocked, /* a call that found its stream's queue full */
    FAKE_CALL_early,   /* a kernel of a launched graph that may begin early */
    FAKE_CALL_refused, /* a context on a GPU that another process has for itself */
    FAKE_CALL_far, /* a copy by another GPU than the first that the process had a context on */
    FAKE_CALLS
};

static_assert(FAKE_CALLS <= FAKE_CUDA_CALLS_MAX, "room in the file");

void fake_count(enum fake_call call);
#define COUNT(name) fake_count(FAKE_CALL_##name)

/* Handles are pointers to our structs. */
static inline struct fake_stream *fake_stream_of(CUstream stream)
{
    return (struct fake_stream *)(void *)stream;
}

static inline struct fake_event *fake_event_of(CUevent event)
{
    return (struct fake_event *)(void *)event;
}

/* Nodes of a graph are called by their place in it, from 1 on. */
static inline CUgraphNode fake_node_at(size_t place)
{
    return (CUgraphNode)(void *)(uintptr_t)(place + 1);
}

static inline void *fake_pointer(CUdeviceptr address)
{
    return (void *)(uintptr_t)address;
}

/* Into the stream, or into what it is captured into. */
CUresult fake_put(CUstream to, const struct fake_op *op);

#endif
