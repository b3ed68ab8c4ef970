/*
 * Copies of boxes on a GPU. A plan (copy_plan.h) has a run and loops around it; there are two ways to do it:
 *
 *   engine   the copy engines take a run (1D), a run and one loop (2D, any pitch), or a run and two
 *            loops (3D, if a slice is a whole number of rows in both buffers); loops outside that
 *            are a call each, at most CALLS_MAX
 *   kernel   anything else, rows so short that an engine, which moves them one by one, would crawl,
 *            and little
 *
 * Engines are preferred because they use no multiprocessor and are faster over NVLink (256-byte
 * packets against 128). But between two kernels they cost more than the bytes: two GPUs that hand 4
 * KiB to each other take 20.3 us a time with an engine between their kernels, 8.7 with a kernel,
 * 256 KiB 22.7 and 10.2 (H200s; docs/measurements.md). So what is small goes by a kernel; it may
 * have to wait for a block of another one to end where an engine would not, which is why it is only
 * that.
 *
 * ASIDE. A word that is written behind a copy by an engine goes by that engine's queue, too, and
 * there behind the copy of another stream that has begun meanwhile: of two streams that take turns
 * each word was a whole copy late (H200, 32 MiB: 96 us). So a stream that is made for copies has
 * its large ones run in another one, which holds nothing else, and is behind that by an event,
 * which the engine itself writes: then what follows in the stream needs no engine.
 *
 * BY WHOM. Where the stream is now: on this device, or on the one that the bytes come from (far.c).
 * Kernels are this device's.
 *
 * ROW_MIN is a guess: 128 bytes is a warp's smallest full access. bench/ should settle it.
 */
#include "device/cuda/cuda_int.h"

#include "base/box.h"
#include "device/cuda/copy_box.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#define CALLS_MAX 64u
#define ROW_MIN   128u
/* so many short rows an engine still takes: a launch is no cheaper */
#define ROWS_SHORT_MAX   64u
#define LITTLE_BYTES     (256u << 10)
#define ASIDE_BYTES      (UINT64_C(2) << 20) /* of less a word is late by microseconds */
#define KERNEL_BLOCK     256u
#define KERNEL_BLOCKS_SM 16u

extern const unsigned char device_copy_box_fatbin[];
extern const size_t device_copy_box_fatbin_bytes;

plasmon_status_t device_cuda_copy_init(struct device_cuda *cuda, struct pl_err *err)
{
    plasmon_status_t status =
        device_cuda_module_load(&cuda->base, device_copy_box_fatbin,
                                device_copy_box_fatbin_bytes, &cuda->copy_module, err);

    if (status != PLASMON_OK) {
        return status;
    }
    for (unsigned i = 0; i < DEVICE_CUDA_COPY_WIDTHS; i++) {
        char name[32];
        void *function;

        (void)snprintf(name, sizeof(name), "device_copy_box_%u", 1u << i);
        status = device_cuda_module_function(cuda->copy_module, name, &function, err);
        if (status != PLASMON_OK) {
            device_cuda_copy_finish(cuda);
            return status;
        }
        cuda->copy_functions[i] = function;
    }
    return PLASMON_OK;
}

void device_cuda_copy_finish(struct device_cuda *cuda)
{
    device_cuda_module_unload(cuda->copy_module);
    cuda->copy_module = NULL;
}

/* ------------------------------------------------------------------------------ engines */

/* Is loop 1 a step over whole rows of loop 0, in both buffers? Then both fit into one 3D copy. */
static bool plan_is_3d(const struct device_copy_plan *plan)
{
    return plan->loop_count >= 2 && plan->dst_stride[1] % plan->dst_stride[0] == 0 &&
           plan->src_stride[1] % plan->src_stride[0] == 0 &&
           plan->dst_stride[1] / plan->dst_stride[0] >= plan->count[0] &&
           plan->src_stride[1] / plan->src_stride[0] >= plan->count[0];
}

/* How many loops one call to an engine takes. */
static uint32_t plan_engine_loops(const struct device_cuda *cuda,
                                  const struct device_copy_plan *plan)
{
    if (plan->dst_stride[0] > cuda->pitch_max || plan->src_stride[0] > cuda->pitch_max) {
        return 0;
    }
    return plan_is_3d(plan) ? 2 : 1;
}

static plasmon_status_t engine_2d(struct device_cuda *cuda, CUstream on,
                                  const struct device_copy_plan *plan, uint64_t dst,
                                  uint64_t src)
{
    CUDA_MEMCPY2D copy = {
        .srcMemoryType = CU_MEMORYTYPE_DEVICE,
        .srcDevice     = src + plan->src_offset,
        .srcPitch      = plan->src_stride[0],
        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
        .dstDevice     = dst + plan->dst_offset,
        .dstPitch      = plan->dst_stride[0],
        .WidthInBytes  = plan->run_bytes,
        .Height        = plan->count[0],
    };

    return DEVICE_CU(cuda, cuMemcpy2DAsync(&copy, on));
}

static plasmon_status_t engine_3d(struct device_cuda *cuda, CUstream on,
                                  const struct device_copy_plan *plan, uint64_t dst,
                                  uint64_t src)
{
    CUDA_MEMCPY3D copy = {
        .srcMemoryType = CU_MEMORYTYPE_DEVICE,
        .srcDevice     = src + plan->src_offset,
        .srcPitch      = plan->src_stride[0],
        .srcHeight     = plan->src_stride[1] / plan->src_stride[0],
        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
        .dstDevice     = dst + plan->dst_offset,
        .dstPitch      = plan->dst_stride[0],
        .dstHeight     = plan->dst_stride[1] / plan->dst_stride[0],
        .WidthInBytes  = plan->run_bytes,
        .Height        = plan->count[0],
        .Depth         = plan->count[1],
    };

    return DEVICE_CU(cuda, cuMemcpy3DAsync(&copy, on));
}

static plasmon_status_t engine_1d(struct device_cuda *cuda, CUstream on,
                                  const struct device_copy_plan *plan, uint64_t dst,
                                  uint64_t src)
{
    return DEVICE_CU(cuda, cuMemcpyDtoDAsync(dst + plan->dst_offset, src + plan->src_offset,
                                             plan->run_bytes, on));
}

/* Where a copy of so many bytes runs. */
static plasmon_status_t engine_begin(struct device_cuda_stream *stream, uint64_t bytes,
                                     CUstream *out)
{
    CUstream on;
    plasmon_status_t status = device_cuda_here(stream, &on);
    CUstream aside          = bytes >= ASIDE_BYTES ? stream->at->aside : NULL;

    *out = aside != NULL ? aside : on;
    return status == PLASMON_OK && aside != NULL ? device_cuda_go_behind(stream, aside, on)
                                                 : status;
}

static plasmon_status_t engine_end(struct device_cuda_stream *stream, CUstream on,
                                   plasmon_status_t status)
{
    if (on != stream->at->aside) {
        return status;
    }
    /* Also behind a part of it: none of that may run when the stream goes on. */
    plasmon_status_t behind = device_cuda_go_behind(stream, stream->at->stream, on);

    if (behind != PLASMON_OK) { /* its order is lost */
        device_cuda_lost(device_cuda_of(stream->base.device), device_cuda_last_error());
    }
    return status == PLASMON_OK ? behind : status;
}

static plasmon_status_t engine_copy(struct device_cuda_stream *stream,
                                    struct device_copy_plan plan, uint32_t engine_loops,
                                    uint64_t dst, uint64_t src)
{
    struct device_cuda *cuda              = device_cuda_of(stream->base.device);
    uint64_t index[DEVICE_COPY_LOOPS_MAX] = {0};
    CUstream on;
    plasmon_status_t status =
        engine_begin(stream, plan.run_bytes * device_copy_plan_runs(&plan, 0), &on);

    if (status != PLASMON_OK) {
        return status;
    }
    do {
        switch (engine_loops) {
        case 0:
            status = engine_1d(cuda, on, &plan, dst, src);
            break;
        case 1:
            status = engine_2d(cuda, on, &plan, dst, src);
            break;
        default:
            status = engine_3d(cuda, on, &plan, dst, src);
            break;
        }
    } while (status == PLASMON_OK && device_copy_plan_step(&plan, engine_loops, index));
    return engine_end(stream, on, status);
}

/* ------------------------------------------------------------------------------- kernel */

static plasmon_status_t kernel_copy(struct device_cuda_stream *stream,
                                    const struct device_copy_plan *plan, uint64_t dst,
                                    uint64_t src)
{
    struct device_cuda *cuda         = device_cuda_of(stream->base.device);
    uint32_t width                   = device_copy_plan_width(plan, dst, src);
    struct device_copy_box_args args = {
        .plan          = *plan,
        .dst           = dst,
        .src           = src,
        .words_per_run = plan->run_bytes / width,
        .words         = plan->run_bytes / width * device_copy_plan_runs(plan, 0),
    };
    uint64_t blocks_max = (uint64_t)cuda->base.info.multiprocessors * KERNEL_BLOCKS_SM;
    uint64_t blocks     = (args.words + KERNEL_BLOCK - 1) / KERNEL_BLOCK;
    struct device_launch_shape shape = {
        .grid  = {(uint32_t)pl_min_u64(blocks, blocks_max), 1, 1},
        .block = {KERNEL_BLOCK, 1, 1},
    };
    void *params[] = {&args};

    assert(width <= 1u << (DEVICE_CUDA_COPY_WIDTHS - 1));
    return device_cuda_launch(&stream->base, cuda->copy_functions[__builtin_ctz(width)],
                              &shape, params);
}

plasmon_status_t device_cuda_copy_run(struct device_stream *base, uint64_t dst,
                                      uint64_t src, uint64_t bytes)
{
    struct device_cuda_stream *stream   = device_cuda_stream_of(base);
    const struct device_copy_plan whole = {.run_bytes = bytes};

    return bytes <= LITTLE_BYTES ? kernel_copy(stream, &whole, dst, src)
                                 : engine_copy(stream, whole, 0, dst, src);
}

plasmon_status_t device_cuda_copy_planned(struct device_stream *base,
                                          const struct device_copy_plan *plan,
                                          struct device_ptr dst, struct device_ptr src)
{
    struct device_cuda_stream *stream = device_cuda_stream_of(base);
    struct device_cuda *cuda          = device_cuda_of(base->device);
    uint32_t engine_loops             = plan_engine_loops(cuda, plan);
    plasmon_status_t status           = device_cuda_enter(cuda);

    if (status != PLASMON_OK) {
        return status;
    }
    if (device_copy_plan_runs(plan, 0) * plan->run_bytes <= LITTLE_BYTES ||
        device_copy_plan_runs(plan, engine_loops) > CALLS_MAX ||
        (plan->run_bytes < ROW_MIN && device_copy_plan_runs(plan, 0) > ROWS_SHORT_MAX)) {
        return kernel_copy(stream, plan, dst.addr, src.addr);
    }
    return engine_copy(stream, *plan, engine_loops, dst.addr, src.addr);
}
