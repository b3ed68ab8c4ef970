/*
 * Kernels that follow each other in one stream, put into it as a few graphs.
 *
 * Functions of clients in text, and the kernels of the catalogue (kernels/cuda_run.c).
 *
 * WHY. A call of the driver for each of many small kernels takes the host longer than the kernels take the device (3.1 to 4.1 us for one of 2 us, on the
 * host of an H200). A graph that is a chain of 32 kernels, made once, whose kernels are replaced before each launch, takes .4 us a kernel.
 *
 * So a stream that was made with DEVICE_STREAM_KEEPS keeps what device_launch_soon() gives it, until it is told to flush, something else is to go into it or looks
 * at it (device_cuda_stream_on() is where all of them get the stream from), or there are as many as the longest chain has. Then what was kept
 * goes in: chains of 32, 16, 8 and 4, as they fit, and up to 3 launches as such. A launch of a graph costs about as much as two of kernels, so less than 4 are none.
 *
 * A CHAIN IS NOT MADE WHEN IT IS NEEDED: instantiating one was seen to wait for work of the device (docs/ordering.md). They are made with the stream, of kernels
 * that copy nothing, and launched once, for the first launch is what brings them to the device. Two of each length take turns. Kernels of a chain that is launched are
 * replaced for its next launch only: launches under way keep theirs (cuGraphExecKernelNodeSetParams).
 *
 * WHAT IS REFUSED LATE. Callers check what they keep, and the driver is asked only when it goes in. A chain that the driver refuses goes in launch by launch; a launch
 * that it refuses then is told by device_launch_failure(), and before that, before anything behind it is in the stream, by the device's `launch_failed`.
 * When the context is lost nothing is told of launches: the device's health says it, and what was kept has not begun.
 *
 * CODE THAT IS UNLOADED must not stay in a chain: device_cuda_chains_forget() puts the copying kernels back. It may run beside a flush of another stream's user,
 * so a lock guards what is in the chains. What is kept is the stream's user's alone.
 */
#include "device/cuda/cuda_int.h"

#include "base/alloc.h"
#include "device/cuda/copy_box.h"

#include <string.h>

enum { CHAIN_LENGTHS = 4, CHAIN_TURNS = 2, CHAIN_LONGEST = 32 };
static const uint32_t chain_lengths[CHAIN_LENGTHS] = {CHAIN_LONGEST, 16, 8, 4};

struct chain {
    CUgraph graph; /* nodes are named by it */
    CUgraphExec exec;
    CUgraphNode node[CHAIN_LONGEST];
};

struct kept {
    CUfunction function;
    struct device_launch_shape shape;
    uint64_t tag;
    uint32_t param_count;
    uint32_t param_each;                                /* bytes from one to the next */
    _Alignas(16) uint8_t params[DEVICE_SOON_BYTES_MAX]; /* as many as there are */
};

struct device_cuda_keep {
    struct pl_list link; /* of the device's `keeps` */
    uint32_t count;
    struct kept kept[CHAIN_LONGEST];
    uint32_t turn[CHAIN_LENGTHS];
    struct chain chains[CHAIN_LENGTHS][CHAIN_TURNS]; /* guarded by keeps_lock */
};

/* ------------------------------------------------------------------------------------------------ chains */

/* What a chain is made of, and becomes when code is unloaded: no words are copied. */
static struct device_copy_box_args idle_args;

static CUDA_KERNEL_NODE_PARAMS idle_node(const struct device_cuda *cuda, void **params)
{
    params[0] = &idle_args;
    return (CUDA_KERNEL_NODE_PARAMS){.func         = cuda->copy_functions[0],
                                     .gridDimX     = 1,
                                     .gridDimY     = 1,
                                     .gridDimZ     = 1,
                                     .blockDimX    = 1,
                                     .blockDimY    = 1,
                                     .blockDimZ    = 1,
                                     .kernelParams = params};
}

static plasmon_status_t chain_make(struct device_cuda *cuda, CUstream stream,
                                   struct chain *chain, uint32_t length)
{
    void *params[1];
    CUDA_KERNEL_NODE_PARAMS node = idle_node(cuda, params);
    plasmon_status_t status      = DEVICE_CU(cuda, cuGraphCreate(&chain->graph, 0));

    for (uint32_t i = 0; status == PLASMON_OK && i < length; i++) {
        status = DEVICE_CU(cuda, cuGraphAddKernelNode(&chain->node[i], chain->graph,
                                                      i > 0 ? &chain->node[i - 1] : NULL,
                                                      i > 0 ? 1 : 0, &node));
    }
    if (status == PLASMON_OK) {
        status = DEVICE_CU(cuda, cuGraphInstantiate(&chain->exec, chain->graph, 0));
    }
    if (status == PLASMON_OK) {
        status = DEVICE_CU(cuda, cuGraphLaunch(chain->exec, stream));
    }
    return status;
}

static void chain_finish(struct device_cuda *cuda, struct chain *chain)
{
    if (chain->exec != NULL) {
        (void)DEVICE_CU(cuda, cuGraphExecDestroy(chain->exec)); /* logged */
    }
    if (chain->graph != NULL) {
        (void)DEVICE_CU(cuda, cuGraphDestroy(chain->graph)); /* logged */
    }
}

static void kept_params(struct kept *kept, void **params)
{
    for (uint32_t i = 0; i < kept->param_count; i++) {
        params[i] = &kept->params[i * kept->param_each];
    }
}

static CUDA_KERNEL_NODE_PARAMS kept_node(struct kept *kept, void **params)
{
    const struct device_launch_shape *shape = &kept->shape;

    kept_params(kept, params);
    return (CUDA_KERNEL_NODE_PARAMS){.func           = kept->function,
                                     .gridDimX       = shape->grid[0],
                                     .gridDimY       = shape->grid[1],
                                     .gridDimZ       = shape->grid[2],
                                     .blockDimX      = shape->block[0],
                                     .blockDimY      = shape->block[1],
                                     .blockDimZ      = shape->block[2],
                                     .sharedMemBytes = shape->shared_bytes,
                                     .kernelParams   = params};
}

/* false: nothing of it is in the stream. What the driver does not put into a chain it may still take as a launch, so it is no event for the log. */
static bool chain_launch(struct device_cuda *cuda, CUstream stream, struct chain *chain,
                         struct kept *kept, uint32_t length)
{
    void *params[DEVICE_SOON_PARAMS_MAX];
    CUresult result = CUDA_SUCCESS;

    pl_mutex_lock(&cuda->keeps_lock);
    for (uint32_t i = 0; result == CUDA_SUCCESS && i < length; i++) {
        CUDA_KERNEL_NODE_PARAMS node = kept_node(&kept[i], params);

        device_cuda_call_begin();
        result = device_cuda_driver.cuGraphExecKernelNodeSetParams(chain->exec,
                                                                   chain->node[i], &node);
        device_cuda_call_over();
    }
    if (result == CUDA_SUCCESS) {
        device_cuda_call_begin();
        result = device_cuda_driver.cuGraphLaunch(chain->exec, stream);
        device_cuda_call_over();
    }
    pl_mutex_unlock(&cuda->keeps_lock);
    return result == CUDA_SUCCESS;
}

void device_cuda_chains_forget(struct device_cuda *cuda)
{
    void *params[1];
    CUDA_KERNEL_NODE_PARAMS node = idle_node(cuda, params);
    struct pl_list *pos;

    pl_mutex_lock(&cuda->keeps_lock);
    pl_list_for_each(pos, &cuda->keeps) {
        struct device_cuda_keep *keep = pl_container_of(pos, struct device_cuda_keep, link);

        for (uint32_t i = 0; i < CHAIN_LENGTHS * CHAIN_TURNS; i++) {
            struct chain *chain = &keep->chains[i / CHAIN_TURNS][i % CHAIN_TURNS];

            for (uint32_t k = 0; k < chain_lengths[i / CHAIN_TURNS]; k++) {
                (void)DEVICE_CU(cuda, cuGraphExecKernelNodeSetParams(
                                          chain->exec, chain->node[k], &node)); /* logged */
            }
        }
    }
    pl_mutex_unlock(&cuda->keeps_lock);
}

/* ------------------------------------------------------------------------------------------------ failures */

struct launch_failure {
    struct pl_list link;
    uint64_t tag;
    struct pl_err err;
};

static void failure_add(struct device_cuda *cuda, uint64_t tag, plasmon_status_t status)
{
    struct launch_failure *failure = PL_NEW(struct launch_failure);

    PL_CHECK(failure != NULL); /* a failure that is lost would pass for success */
    if (cuda->launch_failed != NULL) {
        cuda->launch_failed(cuda->launch_failed_user, tag);
    }
    failure->tag = tag;
    (void)pl_err_set(&failure->err, status, "the device refused the launch: %s",
                     device_cuda_last_error());
    pl_mutex_lock(&cuda->lock);
    pl_list_add_tail(&cuda->failures, &failure->link);
    atomic_store_explicit(&cuda->failed, true, memory_order_relaxed);
    pl_mutex_unlock(&cuda->lock);
}

bool device_cuda_launch_failure(struct device *device, uint64_t *out_tag,
                                struct pl_err *out_err)
{
    struct device_cuda *cuda = device_cuda_of(device);
    struct launch_failure *failure;

    /* Relaxed: who asks for the failures of his own flushes sees what he stored. */
    if (!atomic_load_explicit(&cuda->failed, memory_order_relaxed)) {
        return false;
    }
    pl_mutex_lock(&cuda->lock);
    failure = pl_list_first(&cuda->failures, struct launch_failure, link);
    if (failure != NULL) {
        pl_list_remove(&failure->link);
    }
    atomic_store_explicit(&cuda->failed, !pl_list_empty(&cuda->failures),
                          memory_order_relaxed);
    pl_mutex_unlock(&cuda->lock);
    if (failure == NULL) {
        return false;
    }
    *out_tag = failure->tag;
    if (out_err != NULL) {
        *out_err = failure->err;
    }
    pl_free(failure);
    return true;
}

/* ------------------------------------------------------------------------------------------------ keeping */

static void keep_free(struct device_cuda *cuda, struct device_cuda_keep *keep)
{
    for (uint32_t i = 0; i < CHAIN_LENGTHS * CHAIN_TURNS; i++) {
        chain_finish(cuda, &keep->chains[i / CHAIN_TURNS][i % CHAIN_TURNS]);
    }
    pl_free(keep);
}

plasmon_status_t device_cuda_keep_create(struct device_cuda_stream *stream)
{
    struct device_cuda *cuda      = device_cuda_of(stream->base.device);
    struct device_cuda_keep *keep = PL_NEW(struct device_cuda_keep);
    plasmon_status_t status       = PLASMON_OK;

    if (keep == NULL) {
        return PLASMON_ENOMEM;
    }
    for (uint32_t i = 0; status == PLASMON_OK && i < CHAIN_LENGTHS * CHAIN_TURNS; i++) {
        status = chain_make(cuda, stream->stream,
                            &keep->chains[i / CHAIN_TURNS][i % CHAIN_TURNS],
                            chain_lengths[i / CHAIN_TURNS]);
    }
    if (status != PLASMON_OK) {
        keep_free(cuda, keep);
        return status;
    }
    pl_mutex_lock(&cuda->keeps_lock);
    pl_list_add_tail(&cuda->keeps, &keep->link);
    pl_mutex_unlock(&cuda->keeps_lock);
    stream->keep = keep;
    return PLASMON_OK;
}

void device_cuda_keep_destroy(struct device_cuda_stream *stream)
{
    struct device_cuda *cuda      = device_cuda_of(stream->base.device);
    struct device_cuda_keep *keep = stream->keep;

    if (keep == NULL) {
        return;
    }
    pl_mutex_lock(&cuda->keeps_lock);
    pl_list_remove(&keep->link);
    pl_mutex_unlock(&cuda->keeps_lock);
    keep_free(cuda, keep);
    stream->keep = NULL;
}

static plasmon_status_t launch_now(struct device_cuda *cuda, CUstream stream,
                                   struct kept *kept)
{
    const struct device_launch_shape *shape = &kept->shape;
    void *params[DEVICE_SOON_PARAMS_MAX];

    kept_params(kept, params);
    return DEVICE_CU(cuda, cuLaunchKernel(kept->function, shape->grid[0], shape->grid[1],
                                          shape->grid[2], shape->block[0], shape->block[1],
                                          shape->block[2], shape->shared_bytes, stream,
                                          params, NULL));
}

static bool context_lost(struct device_cuda *cuda)
{
    bool lost;

    pl_mutex_lock(&cuda->lock);
    lost = cuda->lost.status != PLASMON_OK;
    pl_mutex_unlock(&cuda->lock);
    return lost;
}

static void launch_each(struct device_cuda *cuda, CUstream stream, struct kept *kept,
                        uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        plasmon_status_t status = launch_now(cuda, stream, &kept[i]);

        if (status != PLASMON_OK && !context_lost(cuda)) {
            failure_add(cuda, kept[i].tag, status);
        }
    }
}

/* The longest chain that has no more kernels than these; CHAIN_LENGTHS: none. */
static uint32_t length_for(uint32_t count)
{
    uint32_t i = 0;

    while (i < CHAIN_LENGTHS && chain_lengths[i] > count) {
        i++;
    }
    return i;
}

static void keep_flush(struct device_cuda *cuda, CUstream stream,
                       struct device_cuda_keep *keep)
{
    uint32_t done = 0;

    while (done < keep->count) {
        uint32_t which = length_for(keep->count - done);
        uint32_t count = which < CHAIN_LENGTHS ? chain_lengths[which] : keep->count - done;

        if (which == CHAIN_LENGTHS ||
            !chain_launch(cuda, stream,
                          &keep->chains[which][keep->turn[which]++ % CHAIN_TURNS],
                          &keep->kept[done], count)) {
            launch_each(cuda, stream, &keep->kept[done], count);
        }
        done += count;
    }
    keep->count = 0;
}

static void keep_fail(struct device_cuda *cuda, struct device_cuda_keep *keep)
{
    for (uint32_t i = 0; i < keep->count && !context_lost(cuda); i++) {
        failure_add(cuda, keep->kept[i].tag, PLASMON_EDEVICE);
    }
    keep->count = 0;
}

void device_cuda_stream_flush(struct device_stream *base)
{
    struct device_cuda_stream *stream = device_cuda_stream_of(base);
    struct device_cuda *cuda          = device_cuda_of(base->device);
    uint64_t outer_ns                 = device_cuda_call_begin_ns;

    if (stream->keep == NULL || stream->keep->count == 0) {
        return;
    }
    device_cuda_call_begin_ns = 0;
    if (device_cuda_enter(cuda) == PLASMON_OK) {
        keep_flush(cuda, stream->stream, stream->keep);
    } else {
        keep_fail(cuda, stream->keep);
    }
    if (outer_ns != 0) { /* among the arguments of a call, which begins only now */
        device_cuda_call_begin();
    }
}

plasmon_status_t device_cuda_launch_soon(struct device_stream *base, void *function,
                                         const struct device_launch_shape *shape,
                                         const struct device_params *params, uint64_t tag)
{
    struct device_cuda_keep *keep = device_cuda_stream_of(base)->keep;
    struct kept *kept;

    if (keep == NULL) {
        return PLASMON_ENOTSUP;
    }
    kept              = &keep->kept[keep->count++];
    kept->function    = function;
    kept->shape       = *shape;
    kept->tag         = tag;
    kept->param_count = params->count;
    kept->param_each  = params->each;
    if (params->count > 0) {
        memcpy(kept->params, params->bytes, (size_t)params->count * params->each);
    }
    if (keep->count == CHAIN_LONGEST) {
        device_cuda_stream_flush(base);
    }
    return PLASMON_OK;
}
