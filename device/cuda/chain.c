/*
 * Kernels that follow each other in one stream, put into it as a few graphs.
 *
 * Functions of clients in text, and the kernels of the catalogue (kernels/cuda_run.c).
 *
 * WHY. A call of the driver for each of many small kernels takes the host longer than the kernels
 * take the device (3.1 to 4.1 us for one of 2 us, on the host of an H200). A graph that is a chain
 * of 32 kernels, made once, whose kernels are replaced before each launch, takes .4 us a kernel.
 *
 * So a stream that was made with DEVICE_STREAM_KEEPS keeps what device_launch_soon() gives it,
 * until it is told to flush, something else is to go into it or looks at it
 * (device_cuda_stream_on() is where all of them get the stream from), or there are as many as the
 * longest chain has. Then what was kept goes in: chains of 32, 16, 8 and 4, as they fit, and up to
 * 3 launches as such. A launch of a graph costs about as much as two of kernels, so less than 4 are
 * none.
 *
 * A CHAIN IS NOT MADE WHEN IT IS NEEDED: instantiating one was seen to wait for work of the device
 * (docs/ordering.md). They are made with the stream, of kernels that copy nothing, and launched
 * once, for the first launch is what brings them to the device. Two of each length take turns.
 * Kernels of a chain that is launched are replaced for its next launch only: launches under way
 * keep theirs (cuGraphExecKernelNodeSetParams).
 *
 * EARLY STARTS. Kernels that wait by themselves for what is before them (DEVICE_EARLY_MARK) go into
 * chains whose edges let each begin early; as soon as one of those at hand does not, they go into a
 * chain with full edges. What chains are made of does not wait, and copies nothing: in neither kind
 * does it matter when it runs.
 *
 * WHAT IS REFUSED LATE. Callers check what they keep, and the driver is asked only when it goes in.
 * A chain that the driver refuses goes in launch by launch; a launch that it refuses then is told
 * by device_launch_failure(), and before that, before anything behind it is in the stream, by the
 * device's `launch_failed`. When the context is lost nothing is told of launches: the device's
 * health says it, and what was kept has not begun.
 *
 * CODE THAT IS UNLOADED must not stay in a chain: device_cuda_chains_forget() puts the copying
 * kernels back. It may run beside a flush of another stream's user, so a lock guards what is in the
 * chains. What is kept is the stream's user's alone.
 */
#include "device/cuda/cuda_int.h"

#include "base/alloc.h"
#include "device/cuda/copy_box.h"

#include <string.h>

enum { CHAIN_LENGTHS = 4, CHAIN_TURNS = 2, CHAIN_LONGEST = 32 };
enum chain_kind { CHAIN_FULL, CHAIN_EARLY, CHAIN_KINDS };
static const uint32_t chain_lengths[CHAIN_LENGTHS] = {CHAIN_LONGEST, 16, 8, 4};

struct chain {
    CUgraph graph; /* nodes are named by it */
    CUgraphExec exec;
    CUgraphNode node[CHAIN_LONGEST];
};

struct chains {
    uint32_t turn[CHAIN_LENGTHS];
    struct chain chain[CHAIN_LENGTHS][CHAIN_TURNS]; /* guarded by keeps_lock */
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
    /* on a device without early starts there are none of the other kind */
    struct chains chains[CHAIN_KINDS];
};

/* ------------------------------------------------------------------------------- chains */

/* All chains of a stream, by one number. */
#define CHAINS (CHAIN_KINDS * CHAIN_LENGTHS * CHAIN_TURNS)

static enum chain_kind chain_kind(uint32_t i)
{
    return (enum chain_kind)(i / (CHAIN_LENGTHS * CHAIN_TURNS));
}

static uint32_t chain_length(uint32_t i)
{
    return chain_lengths[i / CHAIN_TURNS % CHAIN_LENGTHS];
}

static struct chain *chain_at(struct device_cuda_keep *keep, uint32_t i)
{
    return &keep->chains[chain_kind(i)]
                .chain[i / CHAIN_TURNS % CHAIN_LENGTHS][i % CHAIN_TURNS];
}

/* What a chain is made of, and becomes when code is unloaded: no words are copied. */
static struct device_copy_box_args idle_args;

static const struct device_launch_shape idle_shape = {.grid  = {1, 1, 1},
                                                      .block = {1, 1, 1}};

/* Captured, and how its nodes are called. */
static plasmon_status_t chain_capture(struct device_cuda *cuda, CUstream stream,
                                      struct chain *chain, uint32_t length, bool early)
{
    void *params[]   = {&idle_args};
    CUgraph captured = NULL;
    plasmon_status_t status =
        DEVICE_CU(cuda, cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    plasmon_status_t ended;

    if (status != PLASMON_OK) {
        return status;
    }
    for (uint32_t i = 0; status == PLASMON_OK && i < length; i++) {
        CUstreamCaptureStatus capturing;
        const CUgraphNode *last = NULL;
        size_t count            = 0;

        status = device_cuda_launch_early(cuda, stream, cuda->copy_functions[0],
                                          &idle_shape, params, early && i > 0);
        if (status == PLASMON_OK) {
            status = DEVICE_CU(
                cuda, capture_info(stream, &capturing, NULL, &captured, &last, &count));
        }
        chain->node[i] = status == PLASMON_OK && count == 1 ? last[0] : NULL;
    }
    ended = DEVICE_CU(cuda, cuStreamEndCapture(stream, &chain->graph));
    return status == PLASMON_OK ? ended : status;
}

static plasmon_status_t chain_make(struct device_cuda *cuda, CUstream stream,
                                   struct chain *chain, uint32_t length, bool early)
{
    plasmon_status_t status = chain_capture(cuda, stream, chain, length, early);

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

/*
 * false: nothing of it is in the stream. What the driver does not put into a chain it may still
 * take as a launch, so it is no event for the log.
 */
static bool chain_launch(struct device_cuda *cuda, CUstream stream, struct chain *chain,
                         struct kept *kept, uint32_t length)
{
    void *params[DEVICE_SOON_PARAMS_MAX];
    CUresult result = CUDA_SUCCESS;

    pl_mutex_lock(&cuda->keeps_lock);
    for (uint32_t i = 0; result == CUDA_SUCCESS && i < length; i++) {
        CUDA_KERNEL_NODE_PARAMS node =
            device_cuda_kernel_node(kept[i].function, &kept[i].shape, params);

        kept_params(&kept[i], params);
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
    void *params[] = {&idle_args};
    CUDA_KERNEL_NODE_PARAMS node =
        device_cuda_kernel_node(cuda->copy_functions[0], &idle_shape, params);
    struct pl_list *pos;

    pl_mutex_lock(&cuda->keeps_lock);
    pl_list_for_each(pos, &cuda->keeps) {
        struct device_cuda_keep *keep = pl_container_of(pos, struct device_cuda_keep, link);

        for (uint32_t i = 0; i < CHAINS; i++) {
            struct chain *chain = chain_at(keep, i);

            for (uint32_t k = 0; k < chain_length(i) && chain->exec != NULL; k++) {
                (void)DEVICE_CU(cuda, cuGraphExecKernelNodeSetParams(
                                          chain->exec, chain->node[k], &node)); /* logged */
            }
        }
    }
    pl_mutex_unlock(&cuda->keeps_lock);
}

/* ----------------------------------------------------------------------------- failures */

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

/* ------------------------------------------------------------------------------ keeping */

static void keep_free(struct device_cuda *cuda, struct device_cuda_keep *keep)
{
    for (uint32_t i = 0; i < CHAINS; i++) {
        chain_finish(cuda, chain_at(keep, i));
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
    for (uint32_t i = 0; status == PLASMON_OK && i < CHAINS; i++) {
        if (chain_kind(i) == CHAIN_FULL || cuda->base.info.early_start) {
            status = chain_make(cuda, stream->home.stream, chain_at(keep, i),
                                chain_length(i), chain_kind(i) == CHAIN_EARLY);
        }
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
                                   struct kept *kept, bool early)
{
    void *params[DEVICE_SOON_PARAMS_MAX];

    kept_params(kept, params);
    return device_cuda_launch_early(cuda, stream, kept->function, &kept->shape, params,
                                    early);
}

/* May the second of two that follow each other begin beside the first? */
static bool begins_beside(const struct kept *first, const struct kept *then)
{
    return first->shape.early && then->shape.early &&
           device_cuda_beside(device_cuda_small(&first->shape),
                              device_cuda_small(&then->shape));
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
    plasmon_status_t status = PLASMON_EDEVICE; /* of the one before: there is none */

    for (uint32_t i = 0; i < count; i++) {
        status = launch_now(cuda, stream, &kept[i],
                            status == PLASMON_OK && begins_beside(&kept[i - 1], &kept[i]));
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

static enum chain_kind kind_for(const struct kept *kept, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++) {
        if (!begins_beside(&kept[i - 1], &kept[i])) {
            return CHAIN_FULL;
        }
    }
    return CHAIN_EARLY;
}

static void keep_flush(struct device_cuda *cuda, CUstream stream,
                       struct device_cuda_keep *keep)
{
    uint32_t done = 0;

    while (done < keep->count) {
        uint32_t which = length_for(keep->count - done);
        uint32_t count = which < CHAIN_LENGTHS ? chain_lengths[which] : keep->count - done;
        struct chains *chains = &keep->chains[kind_for(&keep->kept[done], count)];

        if (which == CHAIN_LENGTHS ||
            !chain_launch(cuda, stream,
                          &chains->chain[which][chains->turn[which]++ % CHAIN_TURNS],
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
        keep_flush(cuda, stream->home.stream, stream->keep);
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
