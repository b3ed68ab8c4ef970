/*
 * How long each kernel of a graph takes alone, and how fast the device copies: what room.c computes with.
 *
 * KERNELS    run one after the other in one stream with an event after each, all of them enqueued
 *            behind a gate, so that the host's speed does not show. A time is the least of a few
 *            rounds; it has the device's own pause between two kernels in it, about a microsecond,
 *            as every schedule has.
 * BANDWIDTH  copies between two halves of as many bytes as the graph's arrays have, a few in a row:
 * read and written bytes a second.
 */
#include "bench/graphs/bare.h"

#ifdef PLASMON_HAVE_CUDA

#include <math.h>

#include "base/alloc.h"
#include "bench/graphs/bare_cuda.h"

#define ROUNDS   5u
#define COPIES   8u
#define HALF_MIN (4ull << 20)
#define HALF_MAX (1ull << 30)

struct gate {
    uint64_t *word; /* pinned; the stream waits until it is 1 */
    CUdeviceptr address;
};

static plasmon_status_t open_gate(struct gate *gate)
{
    plasmon_status_t status;

    gate->word = bench_must_alloc(4096);
    status     = CU(cuMemHostRegister(gate->word, 4096, CU_MEMHOSTREGISTER_DEVICEMAP));
    return status == PLASMON_OK
               ? CU(cuMemHostGetDevicePointer(&gate->address, gate->word, 0))
               : status;
}

static plasmon_status_t close_stream(struct gate *gate, CUstream stream)
{
    __atomic_store_n(gate->word, 0, __ATOMIC_SEQ_CST);
    return CU(cuStreamWaitValue64(stream, gate->address, 1, CU_STREAM_WAIT_VALUE_EQ));
}

static plasmon_status_t seconds_between(CUevent begin, CUevent end, double *out_seconds)
{
    float ms                = 0;
    plasmon_status_t status = CU(cuEventElapsedTime(&ms, begin, end));

    *out_seconds = (double)ms * 1e-3;
    return status;
}

/* ------------------------------------------------------------------------------ kernels */

/* event[i] lies before step i, event[steps] after the last. */
static plasmon_status_t time_round(struct bare *bare, struct gate *gate, CUevent *event)
{
    CUstream stream         = bare->stream[0];
    plasmon_status_t status = close_stream(gate, stream);

    if (status == PLASMON_OK) {
        status = CU(cuEventRecord(event[0], stream));
    }
    for (uint32_t i = 0; i < bare->graph->steps.count && status == PLASMON_OK; i++) {
        status = graphs_bare_launch(bare, i, stream);
        if (status == PLASMON_OK) {
            status = CU(cuEventRecord(event[i + 1], stream));
        }
    }
    __atomic_store_n(gate->word, 1, __ATOMIC_SEQ_CST); /* also when something failed */
    return status == PLASMON_OK ? CU(cuStreamSynchronize(stream)) : status;
}

static plasmon_status_t time_steps(struct bare *bare, struct gate *gate, double *seconds)
{
    uint32_t count          = (uint32_t)bare->graph->steps.count;
    CUevent *event          = bench_must_alloc((count + 1) * sizeof(CUevent));
    plasmon_status_t status = PLASMON_OK;

    for (uint32_t i = 0; i <= count && status == PLASMON_OK; i++) {
        status = CU(cuEventCreate(&event[i], CU_EVENT_DEFAULT));
    }
    for (uint32_t round = 0; round < ROUNDS && status == PLASMON_OK; round++) {
        status = time_round(bare, gate, event);
        for (uint32_t i = 0; i < count && status == PLASMON_OK; i++) {
            double now = 0;

            status     = seconds_between(event[i], event[i + 1], &now);
            seconds[i] = round == 0 ? now : fmin(seconds[i], now);
        }
    }
    pl_free(event); /* the events end with the process */
    return status;
}

/* ---------------------------------------------------------------------------- bandwidth */

static plasmon_status_t copy_round(struct gate *gate, CUdeviceptr memory, uint64_t half,
                                   CUstream stream, CUevent event[2])
{
    plasmon_status_t status = close_stream(gate, stream);

    if (status == PLASMON_OK) {
        status = CU(cuEventRecord(event[0], stream));
    }
    for (uint32_t i = 0; i < COPIES && status == PLASMON_OK; i++) {
        status = CU(cuMemcpyDtoDAsync(memory + (i % 2 == 0 ? half : 0),
                                      memory + (i % 2 == 0 ? 0 : half), half, stream));
    }
    if (status == PLASMON_OK) {
        status = CU(cuEventRecord(event[1], stream));
    }
    __atomic_store_n(gate->word, 1, __ATOMIC_SEQ_CST);
    return status == PLASMON_OK ? CU(cuStreamSynchronize(stream)) : status;
}

static plasmon_status_t measure_bandwidth(struct bare *bare, struct gate *gate,
                                          double *out_bytes_per_second)
{
    uint64_t half = 0;
    CUdeviceptr memory;
    CUevent event[2];
    double least = INFINITY;
    plasmon_status_t status;

    for (uint32_t i = 0; i < bare->graph->arrays.count; i++) {
        half += graphs_array_at(bare->graph, i)->bytes / 2;
    }
    half   = pl_min_u64(pl_max_u64(half, HALF_MIN), HALF_MAX) & ~(uint64_t)4095;
    status = CU(cuMemAlloc(&memory, 2 * half));
    while (status == PLASMON_EDEVMEM && half > HALF_MIN) { /* beside the graph's arrays */
        half   = (half / 2) & ~(uint64_t)4095;
        status = CU(cuMemAlloc(&memory, 2 * half));
    }
    for (uint32_t i = 0; i < 2 && status == PLASMON_OK; i++) {
        status = CU(cuEventCreate(&event[i], CU_EVENT_DEFAULT));
    }
    for (uint32_t round = 0; round < ROUNDS && status == PLASMON_OK; round++) {
        double now = 0;

        status = copy_round(gate, memory, half, bare->stream[0], event);
        if (status == PLASMON_OK) {
            status = seconds_between(event[0], event[1], &now);
            least  = fmin(least, now);
        }
    }
    *out_bytes_per_second = 2.0 * (double)half * COPIES / least; /* read and written */
    return status;
}

plasmon_status_t graphs_bare_room(struct bare *bare, double *result, struct pl_err *err)
{
    double *seconds  = bench_must_alloc(bare->graph->steps.count * sizeof(*seconds));
    double bandwidth = 0;
    struct gate gate;
    plasmon_status_t status = open_gate(&gate);

    if (status == PLASMON_OK) {
        status = time_steps(bare, &gate, seconds);
    }
    if (status == PLASMON_OK) {
        status = measure_bandwidth(bare, &gate, &bandwidth);
    }
    if (status == PLASMON_OK) {
        result[GRAPHS_PATH]      = graphs_critical_path(bare->graph, seconds);
        result[GRAPHS_BANDWIDTH] = bandwidth;
    }
    pl_free(seconds);
    return graphs_bare_fail(status, "timing each kernel alone", err);
}

#endif
