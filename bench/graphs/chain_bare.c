/*
 * The chains by hand: launches in one stream, CUDA graphs, and two GPUs that hand 4 KiB to each
 * other with events.
 */
#include "bench/graphs/chain.h"

#include "base/alloc.h"
#include "bench/graphs/nvrtc.h"
#include "bench/graphs/text.h"

#define ROUNDS 5u

#ifdef PLASMON_HAVE_CUDA

#include "device/cuda/driver.h"

#define CU(call) DEVICE_CU(NULL, call)

/* What lets a link begin while the one before it ends, on devices that can. */
#define EARLY_MAJOR  9
#define EARLY_DRIVER 12030 /* graphs know such edges since then */
static const char early_begin[] =
    "#define CHAIN_BEGIN asm volatile(\"griddepcontrol.wait;\" ::: \"memory\"); "
    "asm volatile(\"griddepcontrol.launch_dependents;\" ::: \"memory\");\n";

struct side {
    CUcontext context;
    CUmodule module;
    CUfunction function, pull;
    CUstream stream;
    CUdeviceptr x;
    CUevent event;
};
struct bare {
    const struct graphs_chain *config;
    struct side side[2];
    CUgraphExec exec;
    unsigned arch;
    CUfunction early; /* NULL: no device of these can */
    int64_t cycles;
    float links; /* that x counted so far */
    bool peers;  /* kernels of one may read the other's memory */
};

static plasmon_status_t fail(plasmon_status_t status, const char *what, struct pl_err *err)
{
    return status == PLASMON_OK
               ? status
               : pl_err_set(err, status, "%s: %s", what, device_cuda_last_error());
}

/* ------------------------------------------------------- set-up; the process ends after */

static plasmon_status_t open_side(struct side *side, int index, const void *image)
{
    const size_t bytes      = GRAPHS_CHAIN_ELEMENTS * sizeof(float);
    plasmon_status_t status = CU(cuDevicePrimaryCtxRetain(&side->context, (CUdevice)index));

    if (status == PLASMON_OK) {
        status = CU(cuCtxSetCurrent(side->context));
    }
    if (status == PLASMON_OK) {
        status = CU(cuModuleLoadDataEx(&side->module, image, 0, NULL, NULL));
    }
    if (status == PLASMON_OK) {
        status = CU(cuModuleGetFunction(&side->function, side->module, "chain_link"));
    }
    if (status == PLASMON_OK) {
        status = CU(cuModuleGetFunction(&side->pull, side->module, "chain_pull"));
    }
    if (status == PLASMON_OK) {
        status = CU(cuStreamCreateWithPriority(&side->stream, CU_STREAM_NON_BLOCKING, 0));
    }
    if (status == PLASMON_OK) {
        status = CU(cuEventCreate(&side->event, CU_EVENT_DISABLE_TIMING));
    }
    if (status == PLASMON_OK) {
        status = CU(cuMemAlloc(&side->x, bytes));
    }
    if (status == PLASMON_OK) {
        status = CU(cuMemsetD8Async(side->x, 0, bytes, side->stream));
    }
    return status == PLASMON_OK ? CU(cuStreamSynchronize(side->stream)) : status;
}

/* Peers reach each other where they can; else the driver copies through the host. */
static plasmon_status_t open_peers(struct bare *bare)
{
    plasmon_status_t status = PLASMON_OK;

    bare->peers = true;
    for (int i = 0; i < 2 && status == PLASMON_OK; i++) {
        int possible = 0;

        status = CU(cuDeviceCanAccessPeer(&possible, i, 1 - i));
        bare->peers &= possible != 0;
        if (status == PLASMON_OK && possible) {
            status = CU(cuCtxSetCurrent(bare->side[i].context));
            if (status == PLASMON_OK) {
                status = CU(cuCtxEnablePeerAccess(bare->side[1 - i].context, 0));
            }
        }
    }
    return status;
}

static plasmon_status_t open_all(struct bare *bare, struct pl_err *err)
{
    int major = 0, minor = 0;
    void *image = NULL;
    size_t bytes;
    plasmon_status_t status;

    if (device_cuda_driver_load(err) < bare->config->devices) {
        return pl_err_set(err, PLASMON_ENOTSUP, "there are no %u GPUs here",
                          bare->config->devices);
    }
    status =
        CU(cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0));
    if (status == PLASMON_OK) {
        status = CU(
            cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0));
    }
    if (status != PLASMON_OK) {
        return fail(status, "asking the GPU", err);
    }
    bare->arch = (unsigned)(10 * major + minor);
    status     = graphs_nvrtc(graphs_text_chain_cu(), bare->arch, &image, &bytes, err);
    if (status != PLASMON_OK) {
        return status;
    }
    for (int i = 0; i < (bare->config->devices > 1 ? 2 : 1) && status == PLASMON_OK; i++) {
        status = open_side(&bare->side[i], i, image);
    }
    if (status == PLASMON_OK && bare->config->devices > 1) {
        status = open_peers(bare);
    }
    pl_free(image);
    return fail(status, "opening the GPUs", err);
}

/* --------------------------------------------------------------------------- one device */

static plasmon_status_t launch(struct bare *bare, struct side *side)
{
    int64_t n      = GRAPHS_CHAIN_ELEMENTS;
    void *params[] = {&side->x, &n, &bare->cycles};

    return CU(
        cuLaunchKernel(side->function, 1, 1, 1, 256, 1, 1, 0, side->stream, params, NULL));
}

static plasmon_status_t launch_many(struct bare *bare, uint32_t count)
{
    plasmon_status_t status = PLASMON_OK;

    for (uint32_t i = 0; i < count && status == PLASMON_OK; i++) {
        status = launch(bare, &bare->side[0]);
    }
    return status;
}

static plasmon_status_t run_launches(struct bare *bare)
{
    plasmon_status_t status = launch_many(bare, bare->config->links);

    bare->links += (float)bare->config->links;
    return status == PLASMON_OK ? CU(cuStreamSynchronize(bare->side[0].stream)) : status;
}

static plasmon_status_t run_graph(struct bare *bare)
{
    plasmon_status_t status = PLASMON_OK;

    for (uint32_t i = 0;
         i < bare->config->links / GRAPHS_CHAIN_RECORDED && status == PLASMON_OK; i++) {
        status = CU(cuGraphLaunch(bare->exec, bare->side[0].stream));
    }
    bare->links += (float)bare->config->links;
    return status == PLASMON_OK ? CU(cuStreamSynchronize(bare->side[0].stream)) : status;
}

static plasmon_status_t capture(struct bare *bare)
{
    CUgraph graph = NULL;
    plasmon_status_t status =
        CU(cuStreamBeginCapture(bare->side[0].stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));

    if (status == PLASMON_OK) {
        status = launch_many(bare, GRAPHS_CHAIN_RECORDED);
    }
    if (status == PLASMON_OK) {
        status = CU(cuStreamEndCapture(bare->side[0].stream, &graph));
    }
    return status == PLASMON_OK ? CU(cuGraphInstantiate(&bare->exec, graph, 0)) : status;
}

/* The link that begins early, on the first device. */
static plasmon_status_t early_open(struct bare *bare, struct pl_err *err)
{
    struct pl_str text;
    CUmodule module;
    void *image = NULL;
    size_t bytes;
    int version             = 0;
    plasmon_status_t status = CU(cuDriverGetVersion(&version));

    if (status != PLASMON_OK || bare->arch < 10 * EARLY_MAJOR || version < EARLY_DRIVER) {
        return fail(status, "asking the driver", err);
    }
    pl_str_init(&text);
    pl_str_append(&text, "%s%s", early_begin, graphs_text_chain_cu());
    status = graphs_nvrtc(pl_str_text(&text), bare->arch, &image, &bytes, err);
    pl_str_finish(&text);
    if (status != PLASMON_OK) {
        return status;
    }
    status = CU(cuModuleLoadDataEx(&module, image, 0, NULL, NULL));
    if (status == PLASMON_OK) {
        status = CU(cuModuleGetFunction(&bare->early, module, "chain_link"));
    }
    pl_free(image);
    return fail(status, "a link that begins early", err);
}

static plasmon_status_t capture_early(struct bare *bare)
{
    CUlaunchAttribute attribute = {
        .id    = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
        .value = {.programmaticStreamSerializationAllowed = 1}};
    const CUlaunchConfig config = {.gridDimX  = 1,
                                   .gridDimY  = 1,
                                   .gridDimZ  = 1,
                                   .blockDimX = 256,
                                   .blockDimY = 1,
                                   .blockDimZ = 1,
                                   .hStream   = bare->side[0].stream,
                                   .attrs     = &attribute,
                                   .numAttrs  = 1};
    int64_t n                   = GRAPHS_CHAIN_ELEMENTS;
    void *params[]              = {&bare->side[0].x, &n, &bare->cycles};
    CUgraph graph               = NULL;
    plasmon_status_t status =
        CU(cuStreamBeginCapture(bare->side[0].stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));

    for (uint32_t i = 0; i < GRAPHS_CHAIN_RECORDED && status == PLASMON_OK; i++) {
        status = CU(cuLaunchKernelEx(&config, bare->early, params, NULL));
    }
    if (status == PLASMON_OK) {
        status = CU(cuStreamEndCapture(bare->side[0].stream, &graph));
    }
    return status == PLASMON_OK ? CU(cuGraphInstantiate(&bare->exec, graph, 0)) : status;
}

/* -------------------------------------------------------------------------- two devices */

static plasmon_status_t copy(struct side *to, struct side *from, CUstream stream)
{
    return CU(cuMemcpyPeerAsync(to->x, to->context, from->x, from->context,
                                GRAPHS_CHAIN_ELEMENTS * sizeof(float), stream));
}

static plasmon_status_t pull(struct side *to, struct side *from)
{
    int64_t n      = GRAPHS_CHAIN_ELEMENTS;
    void *params[] = {&to->x, &from->x, &n};

    return CU(cuLaunchKernel(to->pull, 1, 1, 1, 256, 1, 1, 0, to->stream, params, NULL));
}

enum way { PUSH, PULL, PULL_KERNEL };

/* The other side's kernel has run; its 4 KiB come here, and the next kernel with them. */
static plasmon_status_t hop(struct side *from, struct side *to, enum way way)
{
    plasmon_status_t status = PLASMON_OK;

    if (way == PUSH) {
        status = CU(cuCtxSetCurrent(from->context));
        if (status == PLASMON_OK) {
            status = copy(to, from, from->stream);
        }
    }
    if (status == PLASMON_OK) {
        status = CU(cuEventRecord(from->event, from->stream));
    }
    if (status == PLASMON_OK) {
        status = CU(cuCtxSetCurrent(to->context));
    }
    if (status == PLASMON_OK) {
        status = CU(cuStreamWaitEvent(to->stream, from->event, 0));
    }
    if (status != PLASMON_OK || way == PUSH) {
        return status;
    }
    return way == PULL ? copy(to, from, to->stream) : pull(to, from);
}

static plasmon_status_t run_hops(struct bare *bare, enum way way)
{
    plasmon_status_t status = PLASMON_OK;

    for (uint32_t i = 0; i < bare->config->hops && status == PLASMON_OK; i++) {
        struct side *from = &bare->side[i % 2], *to = &bare->side[1 - i % 2];

        status = hop(from, to, way);
        if (status == PLASMON_OK) {
            status = launch(bare, to);
        }
    }
    bare->links += (float)bare->config->hops;
    return status == PLASMON_OK ? CU(cuStreamSynchronize(bare->side[0].stream)) : status;
}

static plasmon_status_t run_push(struct bare *bare)
{
    return run_hops(bare, PUSH);
}

static plasmon_status_t run_pull(struct bare *bare)
{
    return run_hops(bare, PULL);
}

static plasmon_status_t run_pull_kernel(struct bare *bare)
{
    return run_hops(bare, PULL_KERNEL);
}

/* -------------------------------------------------------------------- right before fast */

/* Counts begin anew: fp32 is exact up to 16 million. */
static plasmon_status_t reset(struct bare *bare)
{
    plasmon_status_t status = CU(cuCtxSetCurrent(bare->side[0].context));

    bare->links = 0;
    if (status == PLASMON_OK) {
        status =
            CU(cuMemsetD8Async(bare->side[0].x, 0, GRAPHS_CHAIN_ELEMENTS * sizeof(float),
                               bare->side[0].stream));
    }
    return status == PLASMON_OK ? CU(cuStreamSynchronize(bare->side[0].stream)) : status;
}

static plasmon_status_t check(struct bare *bare, struct pl_err *err)
{
    float got[GRAPHS_CHAIN_ELEMENTS];
    plasmon_status_t status = CU(cuCtxSetCurrent(bare->side[0].context));

    if (status == PLASMON_OK) {
        status =
            CU(cuMemcpyDtoHAsync(got, bare->side[0].x, sizeof(got), bare->side[0].stream));
    }
    if (status == PLASMON_OK) {
        status = CU(cuStreamSynchronize(bare->side[0].stream));
    }
    for (size_t i = 0; i < GRAPHS_CHAIN_ELEMENTS && status == PLASMON_OK; i++) {
        if (got[i] < bare->links || got[i] > bare->links) {
            return pl_err_set(err, PLASMON_EDEVICE,
                              "a chain by hand counted %g of %g links", (double)got[i],
                              (double)bare->links);
        }
    }
    return fail(status, "copying a count", err);
}

/* Seconds a link, the median of a few rounds after one that is checked. */
static plasmon_status_t measure(struct bare *bare,
                                plasmon_status_t (*run)(struct bare *bare), uint32_t links,
                                double *out, struct pl_err *err)
{
    plasmon_status_t status = fail(reset(bare), "a chain", err);
    double seconds[ROUNDS];

    if (status == PLASMON_OK) {
        status = fail(run(bare), "a chain", err);
    }
    if (status == PLASMON_OK) {
        status = check(bare, err);
    }
    for (uint32_t i = 0; i < ROUNDS && status == PLASMON_OK; i++) {
        uint64_t began = pl_now_ns();

        status     = fail(run(bare), "a chain", err);
        seconds[i] = (double)(pl_now_ns() - began) * 1e-9;
    }
    *out = bench_percentile(seconds, ROUNDS, 0.5) / links;
    return status;
}

static plasmon_status_t run_cuda(const struct graphs_chain *config, double *result,
                                 struct pl_err *err)
{
    struct bare bare        = {.config = config, .cycles = GRAPHS_CHAIN_CYCLES};
    plasmon_status_t status = open_all(&bare, err);

    if (status == PLASMON_OK) {
        status = fail(CU(cuCtxSetCurrent(bare.side[0].context)), "a context", err);
    }
    if (status == PLASMON_OK) {
        status = measure(&bare, run_launches, config->links, &result[GRAPHS_CHAIN_LAUNCHES],
                         err);
    }
    if (status == PLASMON_OK) {
        status = fail(capture(&bare), "capturing a chain", err);
    }
    if (status == PLASMON_OK) {
        status = measure(&bare, run_graph, config->links, &result[GRAPHS_CHAIN_GRAPH], err);
    }
    if (status == PLASMON_OK) {
        status = early_open(&bare, err);
    }
    if (status == PLASMON_OK && bare.early != NULL) {
        status = fail(capture_early(&bare), "capturing a chain", err);
        if (status == PLASMON_OK) {
            status = measure(&bare, run_graph, config->links,
                             &result[GRAPHS_CHAIN_GRAPH_EARLY], err);
        }
    }
    bare.cycles = 0;
    if (status == PLASMON_OK && config->devices > 1) {
        status = measure(&bare, run_push, config->hops, &result[GRAPHS_CHAIN_PUSH], err);
    }
    if (status == PLASMON_OK && config->devices > 1) {
        status = measure(&bare, run_pull, config->hops, &result[GRAPHS_CHAIN_PULL], err);
    }
    if (status == PLASMON_OK && config->devices > 1 && bare.peers) {
        status = measure(&bare, run_pull_kernel, config->hops,
                         &result[GRAPHS_CHAIN_PULL_KERNEL], err);
    }
    return status;
}

#else

static plasmon_status_t run_cuda(const struct graphs_chain *config, double *result,
                                 struct pl_err *err)
{
    (void)config;
    (void)result;
    return pl_err_set(err, PLASMON_ENOTSUP, "this build has no CUDA");
}

#endif

plasmon_status_t graphs_chain_bare_run(const void *user, double *result, size_t count,
                                       struct pl_err *err)
{
    const struct graphs_chain *config = user;

    for (size_t i = 0; i < count; i++) {
        result[i] = -1;
    }
    /* A function call on a CPU is no yardstick for a launch. */
    return config->cuda ? run_cuda(config, result, err) : PLASMON_OK;
}
