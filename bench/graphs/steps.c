/*
 * The same CUDA graph, launched 100 times in a row in one process, each time with one thing more of
 * what a worker does:
 *
 *   raw        by hand: cuMemAlloc, a stream, cuGraphLaunch; nothing else in the process
 *   open       the same graph in a process that has a device of ours open: cuBLAS, a worker's
 *              streams, registered words
 *   chunk      its array in a chunk of exportable memory, as objects are
 *   word, word/8   and a word written by the stream behind each launch, behind every 8th
 *   layer      recorded and launched through device/, as a worker does
 *   layer+word, layer+word/8, watched   and the words; and a thread that looks at them all the
 *                                       time, as a worker does
 *
 * What is left between the last of these and chain.replay is the worker's own code, the head and
 * the client. Two graphs: a chain of 100 links of about 2 us, and three branches of 4. The host's
 * time to enqueue one launch is in the notes: where it comes near the figure, the host is what is
 * measured.
 */
#include "bench/graphs/steps.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "base/alloc.h"
#include "bench/graphs/chain.h"
#include "bench/graphs/nvrtc.h"
#include "bench/graphs/text.h"
#include "device/device.h"

#define LAUNCHES     100u
#define ROUNDS       9u
#define BRANCHES_MAX 3u
#define X_BYTES      (GRAPHS_CHAIN_ELEMENTS * sizeof(float))
#define WORDS_BYTES  4096u
#define STREAMS      9u /* as a worker has: functions, copies, urgent */

enum exec_kind { RAW, RAW_CHUNK, LAYER, EXEC_KINDS };

static const struct way {
    const char *name, *note;
    enum exec_kind exec;
    bool open;           /* with a device of ours in the process */
    uint32_t word_every; /* launches; 0: none */
    bool watched;
} ways[] = {
    {"raw", "by hand", RAW, false, 0, false},
    {"open", "and a device of ours open", RAW, true, 0, false},
    {"chunk", "and its array in exportable memory", RAW_CHUNK, true, 0, false},
    {"word", "by hand, a word behind each launch", RAW, true, 1, false},
    {"word/8", "by hand, a word behind every 8th", RAW, true, 8, false},
    {"layer", "through device/", LAYER, true, 0, false},
    {"layer+word", "and a word behind each", LAYER, true, 1, false},
    {"layer+word/8", "and a word behind every 8th", LAYER, true, 8, false},
    {"watched", "and a thread that watches the words", LAYER, true, 8, true},
};
static const struct shape {
    const char *name;
    uint32_t branches, links; /* of each branch */
} shapes[] = {{"chain", 1, 100}, {"fork", BRANCHES_MAX, 4}};

#define WAYS    PL_COUNT(ways)
#define SHAPES  PL_COUNT(shapes)
#define RESULTS (2 * WAYS * SHAPES) /* device, host: seconds a launch */

#ifdef PLASMON_HAVE_CUDA

#include "device/cuda/driver.h"

#define CU(call) DEVICE_CU(NULL, call)

struct steps {
    CUmodule module;
    CUfunction function;
    CUstream stream[BRANCHES_MAX];
    CUevent fork, join[BRANCHES_MAX];
    void *image;
    size_t image_bytes;
    CUdeviceptr x[EXEC_KINDS]; /* BRANCHES_MAX arrays, one behind the other */
    CUgraphExec raw[EXEC_KINDS];

    struct device *device; /* NULL: not open yet */
    struct device_module *layer_module;
    void *layer_function;
    struct device_stream *streams[STREAMS];
    struct device_graph *graph;
    struct device_exec *exec;
    uint64_t *words;
    uint64_t value;
    bool watching;
};

static plasmon_status_t fail(plasmon_status_t status, const char *what, struct pl_err *err)
{
    return status == PLASMON_OK
               ? status
               : pl_err_set(err, status, "%s: %s", what, device_cuda_last_error());
}

/* ------------------------------------------------------------------------------ by hand */

static plasmon_status_t raw_open(struct steps *steps)
{
    CUcontext context;
    plasmon_status_t status = CU(cuDevicePrimaryCtxRetain(&context, 0));

    if (status == PLASMON_OK) {
        status = CU(cuCtxSetCurrent(context));
    }
    if (status == PLASMON_OK) {
        status = CU(cuModuleLoadDataEx(&steps->module, steps->image, 0, NULL, NULL));
    }
    if (status == PLASMON_OK) {
        status = CU(cuModuleGetFunction(&steps->function, steps->module, "chain_link"));
    }
    for (uint32_t i = 0; i < BRANCHES_MAX && status == PLASMON_OK; i++) {
        status =
            CU(cuStreamCreateWithPriority(&steps->stream[i], CU_STREAM_NON_BLOCKING, 0));
        if (status == PLASMON_OK) {
            status = CU(cuEventCreate(&steps->join[i], CU_EVENT_DISABLE_TIMING));
        }
    }
    if (status == PLASMON_OK) {
        status = CU(cuEventCreate(&steps->fork, CU_EVENT_DISABLE_TIMING));
    }
    return status == PLASMON_OK ? CU(cuMemAlloc(&steps->x[RAW], BRANCHES_MAX * X_BYTES))
                                : status;
}

static plasmon_status_t raw_links(struct steps *steps, const struct shape *shape,
                                  CUdeviceptr x)
{
    int64_t n = GRAPHS_CHAIN_ELEMENTS, cycles = GRAPHS_CHAIN_CYCLES;
    plasmon_status_t status = PLASMON_OK;

    for (uint32_t i = 0; i < shape->links * shape->branches && status == PLASMON_OK; i++) {
        uint32_t branch   = i % shape->branches;
        CUdeviceptr array = x + branch * X_BYTES;
        void *params[]    = {&array, &n, &cycles};

        status = CU(cuLaunchKernel(steps->function, 1, 1, 1, 256, 1, 1, 0,
                                   steps->stream[branch], params, NULL));
    }
    return status;
}

static plasmon_status_t raw_capture(struct steps *steps, const struct shape *shape,
                                    enum exec_kind kind)
{
    CUgraph captured = NULL;
    plasmon_status_t status =
        CU(cuStreamBeginCapture(steps->stream[0], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));

    if (status == PLASMON_OK) {
        status = CU(cuEventRecord(steps->fork, steps->stream[0]));
    }
    for (uint32_t i = 1; i < shape->branches && status == PLASMON_OK; i++) {
        status = CU(cuStreamWaitEvent(steps->stream[i], steps->fork, 0));
    }
    if (status == PLASMON_OK) {
        status = raw_links(steps, shape, steps->x[kind]);
    }
    for (uint32_t i = 1; i < shape->branches && status == PLASMON_OK; i++) {
        status = CU(cuEventRecord(steps->join[i], steps->stream[i]));
        if (status == PLASMON_OK) {
            status = CU(cuStreamWaitEvent(steps->stream[0], steps->join[i], 0));
        }
    }
    if (status == PLASMON_OK) {
        status = CU(cuStreamEndCapture(steps->stream[0], &captured));
    }
    if (status == PLASMON_OK) {
        status = CU(cuGraphInstantiate(&steps->raw[kind], captured, 0));
    }
    return status == PLASMON_OK ? CU(cuGraphDestroy(captured)) : status;
}

/* ---------------------------------------------------------------------- through device/ */

static plasmon_status_t layer_memory(struct steps *steps)
{
    uint64_t bytes = device_get_info(steps->device)->chunk_granularity;
    struct device_ptr range;
    int fd                  = -1;
    plasmon_status_t status = device_range_reserve(steps->device, bytes, &range);

    if (status == PLASMON_OK) {
        status = device_chunk_create(steps->device, bytes, &fd);
    }
    if (status == PLASMON_OK) {
        status = device_chunk_map(steps->device, fd, bytes, 0, true, range);
    }
    steps->x[RAW_CHUNK] = range.addr;
    steps->x[LAYER]     = range.addr + BRANCHES_MAX * X_BYTES;
    return status;
}

static plasmon_status_t layer_open(struct steps *steps, struct pl_err *err)
{
    const struct device_config config = {0};
    plasmon_status_t status = device_open(DEVICE_CUDA, 0, &config, &steps->device, err);

    if (status != PLASMON_OK) {
        return status;
    }
    for (uint32_t i = 0; i < STREAMS && status == PLASMON_OK; i++) {
        status = device_stream_create(
            steps->device, i < 4 ? 0 : DEVICE_STREAM_HIGH_PRIORITY, &steps->streams[i]);
    }
    if (status == PLASMON_OK) {
        status = device_host_register(steps->device, steps->words, WORDS_BYTES);
    }
    if (status == PLASMON_OK) {
        status = layer_memory(steps);
    }
    if (status != PLASMON_OK) {
        return fail(status, "a device of ours", err);
    }
    status = device_module_load(steps->device, steps->image, steps->image_bytes,
                                &steps->layer_module, err);
    return status == PLASMON_OK ? device_module_function(steps->layer_module, "chain_link",
                                                         &steps->layer_function, err)
                                : status;
}

static plasmon_status_t layer_record(struct steps *steps, const struct shape *shape,
                                     struct pl_err *err)
{
    const struct device_launch_shape launch = {.grid = {1, 1, 1}, .block = {256, 1, 1}};
    int64_t n = GRAPHS_CHAIN_ELEMENTS, cycles = GRAPHS_CHAIN_CYCLES;
    plasmon_status_t status, ended;

    device_exec_destroy(steps->exec);
    device_graph_destroy(steps->graph);
    steps->exec  = NULL;
    steps->graph = NULL;
    status       = device_graph_create(steps->device, shape->branches, &steps->graph, err);
    if (status == PLASMON_OK) {
        status = device_graph_begin(steps->graph, err);
    }
    if (status != PLASMON_OK) {
        return status;
    }
    for (uint32_t i = 0; i < shape->links * shape->branches && status == PLASMON_OK; i++) {
        uint32_t branch = i % shape->branches;
        uint64_t array  = steps->x[LAYER] + branch * X_BYTES;
        void *params[]  = {&array, &n, &cycles};

        status = device_graph_item(steps->graph, i);
        if (status == PLASMON_OK) {
            status = device_launch(device_graph_branch(steps->graph, branch),
                                   steps->layer_function, &launch, params);
        }
    }
    ended = device_graph_end(steps->graph, status == PLASMON_OK, &steps->exec, err);
    return status == PLASMON_OK ? ended : fail(status, "recording", err);
}

/* --------------------------------------------------------------------------- one figure */

/* As a worker's main thread: it looks at the words until they are there. */
static void *watch(void *user)
{
    const struct steps *steps = user;
    uint64_t seen             = 0;

    while (__atomic_load_n(&steps->watching, __ATOMIC_ACQUIRE)) {
        seen += __atomic_load_n(&steps->words[0], __ATOMIC_RELAXED);
        pl_cpu_relax();
    }
    return (void *)(uintptr_t)(seen & 1); /* so that the looks are not optimised away */
}

static CUstream stream_of(const struct steps *steps, const struct way *way)
{
    return way->exec == LAYER ? device_native_stream(steps->streams[0]) : steps->stream[0];
}

static plasmon_status_t launch_once(struct steps *steps, const struct way *way, uint32_t i)
{
    plasmon_status_t status =
        way->exec == LAYER ? device_exec_launch(steps->streams[0], steps->exec, i)
                           : CU(cuGraphLaunch(steps->raw[way->exec], steps->stream[0]));
    struct device_ptr address;

    if (status != PLASMON_OK || way->word_every == 0 || (i + 1) % way->word_every != 0) {
        return status;
    }
    steps->value++;
    if (way->exec == LAYER) {
        return device_signal(steps->streams[0], &steps->words[0], steps->value);
    }
    status = device_host_address(steps->device, steps->words, 8, &address);
    return status == PLASMON_OK
               ? CU(cuStreamWriteValue64(steps->stream[0], address.addr, steps->value,
                                         CU_STREAM_WRITE_VALUE_DEFAULT))
               : status;
}

static plasmon_status_t round_once(struct steps *steps, const struct way *way,
                                   double *out_device, double *out_host)
{
    uint64_t began          = pl_now_ns();
    plasmon_status_t status = PLASMON_OK;

    for (uint32_t i = 0; i < LAUNCHES && status == PLASMON_OK; i++) {
        status = launch_once(steps, way, i);
    }
    *out_host = (double)(pl_now_ns() - began) * 1e-9 / LAUNCHES;
    if (status == PLASMON_OK) {
        status = CU(cuStreamSynchronize(stream_of(steps, way)));
    }
    *out_device = (double)(pl_now_ns() - began) * 1e-9 / LAUNCHES;
    return status;
}

/* Right before fast: each element counts the links that ran. */
static plasmon_status_t counts_check(struct steps *steps, const struct shape *shape,
                                     const struct way *way, float expected,
                                     struct pl_err *err)
{
    float got[BRANCHES_MAX * GRAPHS_CHAIN_ELEMENTS];
    plasmon_status_t status = CU(cuMemcpyDtoHAsync(
        got, steps->x[way->exec], shape->branches * X_BYTES, stream_of(steps, way)));

    if (status == PLASMON_OK) {
        status = CU(cuStreamSynchronize(stream_of(steps, way)));
    }
    for (uint32_t i = 0;
         i < shape->branches * GRAPHS_CHAIN_ELEMENTS && status == PLASMON_OK; i++) {
        if (got[i] < expected || got[i] > expected) {
            return pl_err_set(err, PLASMON_EDEVICE,
                              "%s.%s: element %u counted %g of %g links", shape->name,
                              way->name, i, (double)got[i], (double)expected);
        }
    }
    return fail(status, "looking at the counts", err);
}

static plasmon_status_t measure(struct steps *steps, const struct shape *shape,
                                const struct way *way, double *out, struct pl_err *err)
{
    double device[ROUNDS + 1], host[ROUNDS + 1]; /* the first is not counted */
    pthread_t watcher;
    plasmon_status_t status = CU(cuMemsetD8Async(
        steps->x[way->exec], 0, BRANCHES_MAX * X_BYTES, stream_of(steps, way)));

    steps->watching = way->watched;
    if (way->watched && pthread_create(&watcher, NULL, watch, steps) != 0) {
        return pl_err_set(err, PLASMON_ELIMIT, "no thread to watch the words");
    }
    for (uint32_t i = 0; i <= ROUNDS && status == PLASMON_OK; i++) {
        status = round_once(steps, way, &device[i], &host[i]);
    }
    if (way->watched) {
        __atomic_store_n(&steps->watching, false, __ATOMIC_RELEASE);
        (void)pthread_join(watcher, NULL); /* fails for no thread that was made */
    }
    if (status != PLASMON_OK) {
        return fail(status, way->name, err);
    }
    out[0] = bench_percentile(device + 1, ROUNDS, 0.5);
    out[1] = bench_percentile(host + 1, ROUNDS, 0.5);
    return counts_check(steps, shape, way, (float)((ROUNDS + 1) * LAUNCHES * shape->links),
                        err);
}

/* ---------------------------------------------------------------------------- all of it */

static plasmon_status_t measure_shape(struct steps *steps, const struct shape *shape,
                                      bool open, double *result, struct pl_err *err)
{
    plasmon_status_t status = PLASMON_OK;

    for (enum exec_kind kind = RAW;
         status == PLASMON_OK && kind <= (open ? RAW_CHUNK : RAW); kind++) {
        status = fail(raw_capture(steps, shape, kind), "capturing", err);
    }
    if (status == PLASMON_OK && open) {
        status = layer_record(steps, shape, err);
    }
    for (size_t i = 0; i < WAYS && status == PLASMON_OK; i++) {
        if (ways[i].open == open) {
            status = measure(steps, shape, &ways[i], &result[2 * i], err);
        }
    }
    for (enum exec_kind kind = RAW;
         status == PLASMON_OK && kind <= (open ? RAW_CHUNK : RAW); kind++) {
        status = fail(CU(cuGraphExecDestroy(steps->raw[kind])), "the end of a graph", err);
    }
    return status;
}

static plasmon_status_t image_compile(struct steps *steps, struct pl_err *err)
{
    int major = 0, minor = 0;
    plasmon_status_t status =
        CU(cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0));

    if (status == PLASMON_OK) {
        status = CU(
            cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0));
    }
    return status != PLASMON_OK
               ? fail(status, "asking the GPU", err)
               : graphs_nvrtc(graphs_text_chain_cu(), (unsigned)(10 * major + minor),
                              &steps->image, &steps->image_bytes, err);
}

/* In a child, which ends after it: nothing is given back. */
static plasmon_status_t run_cuda(const void *user, double *result, size_t count,
                                 struct pl_err *err)
{
    struct steps steps = {.words = mmap(NULL, WORDS_BYTES, PROT_READ | PROT_WRITE,
                                        MAP_SHARED | MAP_ANONYMOUS, -1, 0)};
    plasmon_status_t status;

    (void)user;
    for (size_t i = 0; i < count; i++) {
        result[i] = -1;
    }
    if (device_cuda_driver_load(err) == 0 || steps.words == MAP_FAILED) {
        return pl_err_set(err, PLASMON_ENOTSUP, "there is no GPU here, or no memory");
    }
    status = image_compile(&steps, err);
    if (status == PLASMON_OK) {
        status = fail(raw_open(&steps), "opening the GPU", err);
    }
    for (size_t s = 0; s < SHAPES && status == PLASMON_OK; s++) {
        status = measure_shape(&steps, &shapes[s], false, &result[2 * WAYS * s], err);
    }
    if (status == PLASMON_OK) {
        status = layer_open(&steps, err);
    }
    for (size_t s = 0; s < SHAPES && status == PLASMON_OK; s++) {
        status = measure_shape(&steps, &shapes[s], true, &result[2 * WAYS * s], err);
    }
    return status;
}

#else

static plasmon_status_t run_cuda(const void *user, double *result, size_t count,
                                 struct pl_err *err)
{
    (void)user;
    (void)result;
    (void)count;
    return pl_err_set(err, PLASMON_ENOTSUP, "this build has no CUDA");
}

#endif

static void report_row(struct bench_report *report, const struct shape *shape,
                       const struct way *way, const double *figure, double raw)
{
    struct bench_row row = {.value      = figure[0] * 1e6,
                            .unit       = "us",
                            .limit      = way == &ways[0] ? 0 : raw * 1e6,
                            .limit_name = way == &ways[0] ? NULL : "by hand"};

    (void)snprintf(row.name, sizeof(row.name), "steps.%s.%s", shape->name, way->name);
    (void)snprintf(row.note, sizeof(row.note), "%s; host %.1f us a launch", way->note,
                   figure[1] * 1e6);
    bench_report_add(report, &row);
}

bool graphs_steps_measure(bool cuda, struct bench_report *report)
{
    double result[RESULTS];
    struct pl_err err = {0};

    if (!cuda) {
        return true;
    }
    if (bench_run_raw(run_cuda, NULL, result, RESULTS, &err) != PLASMON_OK) {
        bench_report_remark(report, "steps: %s", err.text);
        return false;
    }
    for (size_t s = 0; s < SHAPES; s++) {
        for (size_t i = 0; i < WAYS; i++) {
            const double *figure = &result[2 * (WAYS * s + i)];

            report_row(report, &shapes[s], &ways[i], figure, result[2 * WAYS * s]);
        }
    }
    return true;
}
