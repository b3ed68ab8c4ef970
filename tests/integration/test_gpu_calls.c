/*
 * What a GPU's worker asks of the driver, and that the results are right: with real processes, and
 * a driver that counts and has no GPU (tests/harness/gpu/fake_cuda.h). What a call costs on a GPU
 * is for bench/; that there is none too many can be seen anywhere.
 */
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/harness/gpu/fake_counts.h"
#include "tests/integration/cluster.h"

enum { N = 256, LAUNCHES = 60, LINKS = 400, NODES = 20, REPLAYS = 15 };
enum { LARGE = 512 << 10, CHAINS = 4 }; /* 2 MiB */
enum { MANY = 10000 };
enum {
    SORTS        = 250,
    SORT_KERNELS = 14,
    QUEUED       = 800
}; /* kernels that are enqueued before any has run */

static const char link_text[] =
    "extern \"C\" __global__ void chain_link(float *x, long long n, long long cycles)\n"
    "{\n"
    "    if (threadIdx.x < n && cycles == 0) {\n"
    "        x[threadIdx.x] += 1;\n"
    "    }\n"
    "}\n";

struct gpu {
    struct plasmon_client *client;
    const struct fake_cuda_calls *calls; /* as they are now */
    struct fake_cuda_calls before;
    uint32_t devices;
    char path[256];
};

/* ----------------------------------------------------------------------------- counting */

/*
 * A GPU hears of the other's memory when that grows, and maps it beside its work. So nothing is
 * counted before each chunk that was made is mapped by both: a handle is released when a chunk is
 * made, and when it is mapped.
 */
static void wait_mapped(const struct gpu *gpu)
{
    const struct timespec pause = {.tv_nsec = 5000000};

    while (fake_counts_of(gpu->calls, "cuMemRelease") <
           (1 + gpu->devices) * fake_counts_of(gpu->calls, "cuMemCreate")) {
        (void)nanosleep(&pause,
                        NULL); /* nothing tells of it: the test's time-out ends this */
    }
}

static void count_begin(struct gpu *gpu)
{
    wait_mapped(gpu);
    gpu->before = *gpu->calls;
}

static uint64_t counted(const struct gpu *gpu, const char *name)
{
    return fake_counts_of(gpu->calls, name) - fake_counts_of(&gpu->before, name);
}

/*
 * Since count_begin() nothing was called but what the list names, and what asks without giving the
 * device anything to do.
 */
static void expect_only(const struct gpu *gpu, const char *const *allowed)
{
    static const char *const always[] = {"cuCtxGetCurrent", "cuCtxSetCurrent",
                                         "cuStreamQuery", "early", NULL};

    for (size_t i = 0; i < FAKE_CUDA_CALLS_MAX; i++) {
        const char *name = gpu->calls->functions[i].name;
        bool expected    = name[0] == '\0' || counted(gpu, name) == 0;

        for (size_t k = 0; always[k] != NULL; k++) {
            expected |= strcmp(name, always[k]) == 0;
        }
        for (size_t k = 0; allowed[k] != NULL; k++) {
            expected |= strcmp(name, allowed[k]) == 0;
        }
        if (!expected) {
            test_fail(__FILE__, __LINE__, "%s was called %llu times", name,
                      (unsigned long long)counted(gpu, name));
        }
    }
}

/* ---------------------------------------------------------------------------- a cluster */

static void start_by(struct gpu *gpu, uint32_t devices, const char *transfer)
{
    struct plasmon_options options = PLASMON_OPTIONS_INIT;
    struct plasmon_device_info infos[4];
    char number[16];
    uint32_t count = 0;

    if (cluster_folder()[0] == '\0') {
        cluster_tag();
    }
    (void)snprintf(number, sizeof(number), "%u", devices);
    (void)snprintf(gpu->path, sizeof(gpu->path), "%s/calls", cluster_folder());
    ASSERT_EQ(setenv("FAKE_CUDA_DEVICES", number, 1), 0);
    ASSERT_EQ(setenv("FAKE_CUDA_CALLS", gpu->path, 1), 0);
    options.gpus     = number;
    options.transfer = transfer;
    CLUSTER_OK(plasmon_init(&options, &gpu->client));
    cluster_watch(gpu->client);
    CLUSTER_OK(plasmon_devices(gpu->client, infos, 4, &count));
    ASSERT_EQ(count, devices);
    ASSERT_EQ(infos[0].kind, 2);

    gpu->calls   = fake_counts_open(gpu->path);
    gpu->devices = devices;
}

static void start(struct gpu *gpu, uint32_t devices)
{
    start_by(gpu, devices, NULL);
}

static void finish(struct gpu *gpu)
{
    plasmon_finish(gpu->client);
    fake_counts_close(gpu->calls);
    ASSERT_EQ(unlink(gpu->path), 0);
    cluster_expect_gone(CLUSTER_WAIT_MS);
}

static void link_define(struct gpu *gpu)
{
    struct plasmon_source_options options = PLASMON_SOURCE_OPTIONS_INIT;
    plasmon_status_t status;

    CLUSTER_OK(plasmon_function_source(gpu->client, "chain_link", link_text,
                                       "chain_link(inout f32[n] x, i64 n, i64 cycles)",
                                       &options));
    status = plasmon_function_wait(gpu->client, "chain_link", CLUSTER_WAIT_MS);
    if (status == PLASMON_ENOLIB) {
        finish(gpu);
        test_skip("no NVRTC");
    }
    CLUSTER_OK(status);
}

/*
 * times 0: by a call of its own. Else so many by one message, so that they come to the worker
 * together whatever the machine does.
 */
static void link_submit_sized(struct gpu *gpu, struct plasmon_ref *x, int64_t n, int device,
                              uint32_t times)
{
    const struct plasmon_arg arg      = {.mode = PLASMON_INOUT, .ref = x};
    const plasmon_scalar_t scalars[2] = {{.i = n}, {.i = 0}};
    struct plasmon_index_space space  = PLASMON_INDEX_SPACE_INIT;
    struct plasmon_call call          = PLASMON_CALL_INIT;

    call.function     = "chain_link";
    call.args         = &arg;
    call.arg_count    = 1;
    call.scalars      = scalars;
    call.scalar_count = 2;
    call.device       = device;
    call.grid[0]      = 1;
    call.block[0]     = N;
    space.ndim        = 1;
    space.count[0]    = times;
    CLUSTER_OK(times == 0 ? plasmon_submit(gpu->client, &call, NULL, NULL)
                          : plasmon_submit_index(gpu->client, &call, &space, NULL, NULL));
}

static void link_submit(struct gpu *gpu, struct plasmon_ref *x, int device)
{
    link_submit_sized(gpu, x, N, device, 0);
}

static void wait_for(struct gpu *gpu, struct plasmon_ref *ref)
{
    CLUSTER_OK(plasmon_wait(gpu->client, &ref, 1, 1, CLUSTER_WAIT_MS, NULL, NULL));
}

static void expect_values_sized(struct gpu *gpu, struct plasmon_ref *x, size_t n,
                                float first)
{
    float *got = malloc(n * sizeof(*got));

    ASSERT_NOT_NULL(got);
    CLUSTER_OK(plasmon_get(gpu->client, x, got, n * sizeof(*got), CLUSTER_WAIT_MS));
    for (size_t i = 0; i < n; i++) {
        float expected = first + (float)i;

        ASSERT_EQ(memcmp(&got[i], &expected, sizeof(expected)), 0);
    }
    free(got);
}

static void expect_values(struct gpu *gpu, struct plasmon_ref *x, float first)
{
    expect_values_sized(gpu, x, N, first);
}

/* -------------------------------------------------------------------------------- tests */

TEST(a_launch_is_its_kernel_and_one_word)
{
    static const char *const allowed[] = {"cuLaunchKernel", "cuStreamWriteValue64", NULL};
    struct gpu gpu;
    struct plasmon_ref *x;

    start(&gpu, 1);
    link_define(&gpu);
    x = cluster_put(gpu.client, N, 5, 0);
    link_submit(&gpu, x, 0);
    wait_for(&gpu, x);

    count_begin(&gpu);
    for (int i = 0; i < LAUNCHES; i++) {
        link_submit(&gpu, x, 0);
        wait_for(&gpu, x);
    }
    expect_only(&gpu, allowed);
    ASSERT_EQ(counted(&gpu, "cuLaunchKernel"), LAUNCHES);
    ASSERT_EQ(counted(&gpu, "cuStreamWriteValue64"), LAUNCHES);

    expect_values(&gpu, x, 5 + 1 + LAUNCHES);
    CLUSTER_OK(plasmon_release(gpu.client, x));
    finish(&gpu);
}

static const char *const chain_calls[] = {
    "cuLaunchKernel",       "cuLaunchKernelEx",
    "cuGraphLaunch",        "cuGraphExecKernelNodeSetParams",
    "cuStreamWriteValue64", NULL};

/* Each is launched, or replaces a kernel of a chain that is. */
static void expect_links(const struct gpu *gpu, uint64_t links)
{
    expect_only(gpu, chain_calls);
    ASSERT_EQ(counted(gpu, "cuLaunchKernel") + counted(gpu, "cuLaunchKernelEx") +
                  counted(gpu, "cuGraphExecKernelNodeSetParams"),
              links);
}

TEST(a_chain_has_no_word_for_each_of_its_launches)
{
    struct gpu gpu;
    struct plasmon_ref *x;

    start(&gpu, 1);
    link_define(&gpu);
    x = cluster_put(gpu.client, N, -1, 0);
    link_submit(&gpu, x, 0); /* loads the function */
    wait_for(&gpu, x);

    count_begin(&gpu);
    link_submit_sized(&gpu, x, N, 0, LINKS);
    wait_for(&gpu, x);
    expect_links(&gpu, LINKS);
    ASSERT_TRUE(counted(&gpu, "cuStreamWriteValue64") <= LINKS / 2);

    expect_values(&gpu, x, LINKS);
    CLUSTER_OK(plasmon_release(gpu.client, x));
    finish(&gpu);
}

/* Returns when the head has all that was submitted: what a client asks comes behind what it has sent. */
static void head_has_all(struct gpu *gpu)
{
    struct plasmon_ref *none;

    ASSERT_EQ(plasmon_lookup(gpu->client, "nobody", &none), PLASMON_ENOENT);
}

/* A device that is behind: kernels take a while, and none begins while there is this file. */
static void slow_device(char gate[256])
{
    cluster_tag();
    (void)snprintf(gate, 256, "%s/gate", cluster_folder());
    ASSERT_EQ(setenv("FAKE_CUDA_KERNEL_NS", "20000", 1), 0);
    ASSERT_EQ(setenv("FAKE_CUDA_GATE", gate, 1), 0);
}

static void gate_close(const char *gate)
{
    int fd = open(gate, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);

    ASSERT_TRUE(fd >= 0);
    ASSERT_EQ(close(fd), 0);
}

static void expect_few_launches(const struct gpu *gpu)
{
    uint64_t calls = counted(gpu, "cuLaunchKernel") + counted(gpu, "cuLaunchKernelEx") +
                     counted(gpu, "cuGraphLaunch");

    printf("# %llu calls\n", (unsigned long long)calls);
    ASSERT_TRUE(calls <= MANY / 8);
}

/* While the device is behind, launches go in as chains of many kernels. */
TEST(a_long_chain_is_few_launches)
{
    struct gpu gpu;
    struct plasmon_ref *x;
    char gate[256];

    slow_device(gate);
    start(&gpu, 1);
    link_define(&gpu);
    x = cluster_put(gpu.client, N, -1, 0);
    link_submit(&gpu, x, 0); /* loads the function */
    wait_for(&gpu, x);

    gate_close(gate);
    count_begin(&gpu);
    link_submit_sized(&gpu, x, N, 0, MANY);
    head_has_all(&gpu);
    ASSERT_EQ(unlink(gate), 0);
    wait_for(&gpu, x);
    expect_links(&gpu, MANY);
    expect_few_launches(&gpu);

    expect_values(&gpu, x, MANY);
    CLUSTER_OK(plasmon_release(gpu.client, x));
    finish(&gpu);
}

/*
 * Of the launches of text each one in a chain but its first, and of a replay each one but its
 * first, may begin while the one before it runs.
 */
static void count_early(struct gpu *gpu, uint64_t *out_chain, uint64_t *out_replay)
{
    struct plasmon_graph *graph;
    struct plasmon_ref *x, *task;
    char gate[256];

    slow_device(gate);
    start(gpu, 1);
    link_define(gpu);
    x = cluster_put(gpu->client, N, -1, 0);
    link_submit(gpu, x, 0); /* loads the function */
    wait_for(gpu, x);

    gate_close(gate);
    count_begin(gpu);
    link_submit_sized(gpu, x, N, 0, MANY);
    head_has_all(gpu);
    ASSERT_EQ(unlink(gate), 0);
    wait_for(gpu, x);
    *out_chain = counted(gpu, "early");
    ASSERT_TRUE(*out_chain == 0 || *out_chain + counted(gpu, "cuLaunchKernel") +
                                           counted(gpu, "cuLaunchKernelEx") +
                                           counted(gpu, "cuGraphLaunch") ==
                                       MANY);

    CLUSTER_OK(plasmon_graph_begin(gpu->client, &graph));
    for (int i = 0; i < NODES; i++) {
        link_submit(gpu, x, 0);
    }
    CLUSTER_OK(plasmon_graph_end(gpu->client, graph));
    count_begin(gpu);
    CLUSTER_OK(plasmon_graph_launch(gpu->client, graph, NULL, 0, NULL, 0, &task));
    wait_for(gpu, task);
    *out_replay = counted(gpu, "early");
    expect_values(gpu, x, MANY + NODES);
    CLUSTER_OK(plasmon_release(gpu->client, task));
    CLUSTER_OK(plasmon_release(gpu->client, x));
    CLUSTER_OK(plasmon_graph_release(gpu->client, graph));
    finish(gpu);
}

TEST(links_of_text_may_begin_early_where_that_is_not_switched_off)
{
    struct gpu gpu;
    uint64_t chain, replays;

    count_early(&gpu, &chain, &replays);
    if (chain == 0) {
        test_skip("no nvJitLink");
    }
    ASSERT_TRUE(chain >= MANY / 2);
    ASSERT_EQ(replays, NODES - 1);
    ASSERT_EQ(setenv("PLASMON_EARLY_START", "0", 1), 0);
    count_early(&gpu, &chain, &replays);
    ASSERT_EQ(chain, 0);
    ASSERT_EQ(replays, 0);
}

/* The block is left to the heuristic. */
static plasmon_status_t run_with_shared(struct gpu *gpu, uint32_t shared_bytes)
{
    struct plasmon_ref *x             = cluster_put(gpu->client, N, 1.0F, 0);
    const struct plasmon_arg arg      = {.mode = PLASMON_INOUT, .ref = x};
    const plasmon_scalar_t scalars[2] = {{.i = N}, {.i = 0}};
    struct plasmon_call call          = PLASMON_CALL_INIT;
    plasmon_status_t status;

    call.function     = "chain_link";
    call.args         = &arg;
    call.arg_count    = 1;
    call.scalars      = scalars;
    call.scalar_count = 2;
    call.shared_bytes = shared_bytes;
    CLUSTER_OK(plasmon_submit(gpu->client, &call, NULL, NULL));
    wait_for(gpu, x);
    status = plasmon_state(gpu->client, x);
    CLUSTER_OK(plasmon_release(gpu->client, x));
    return status;
}

/*
 * The driver without a GPU suggests 256 threads, and with 40000 bytes of shared memory 2048, which
 * no block has.
 */
TEST(the_block_that_is_chosen_suits_the_shared_memory_of_the_call)
{
    struct gpu gpu;
    uint64_t asked;

    start(&gpu, 1);
    link_define(&gpu);
    CLUSTER_OK(run_with_shared(&gpu, 0));
    CLUSTER_OK(run_with_shared(&gpu, 4096));
    asked = fake_counts_of(gpu.calls, "cuOccupancyMaxPotentialBlockSize");
    CLUSTER_OK(run_with_shared(&gpu, 4096));
    CLUSTER_OK(run_with_shared(&gpu, 0));
    ASSERT_EQ(fake_counts_of(gpu.calls, "cuOccupancyMaxPotentialBlockSize"), asked);
    ASSERT_EQ(run_with_shared(&gpu, 40000), PLASMON_EINVAL);
    ASSERT_NOT_NULL(
        strstr(plasmon_error(gpu.client), "block 2048x1x1, 40000 bytes of shared memory"));
    ASSERT_EQ(fake_counts_of(gpu.calls, "cuOccupancyMaxPotentialBlockSize"), asked + 1);
    /* Refused before anybody is asked. */
    ASSERT_EQ(run_with_shared(&gpu, 1 << 20), PLASMON_EINVAL);
    ASSERT_NOT_NULL(strstr(plasmon_error(gpu.client), "of dynamic shared memory here"));
    finish(&gpu);
}

static void sums_submit(struct gpu *gpu, struct plasmon_ref *y, struct plasmon_ref *x,
                        uint32_t times)
{
    const struct plasmon_arg args[]  = {{.mode = PLASMON_INOUT, .ref = y},
                                        {.mode = PLASMON_IN, .ref = x}};
    struct plasmon_index_space space = PLASMON_INDEX_SPACE_INIT;
    struct plasmon_call call         = PLASMON_CALL_INIT;

    call.function  = "add_into";
    call.args      = args;
    call.arg_count = 2;
    call.device    = 0;
    space.ndim     = 1;
    space.count[0] = times;
    CLUSTER_OK(plasmon_submit_index(gpu->client, &call, &space, NULL, NULL));
}

/*
 * The catalogue's own kernels, too. (The driver has no GPU to run them on: tests/gpu and bench/
 * look at their results.)
 */
TEST(a_long_chain_of_the_catalogue_is_few_launches)
{
    struct gpu gpu;
    struct plasmon_ref *x, *y;
    char gate[256];

    slow_device(gate);
    start(&gpu, 1);
    x = cluster_put(gpu.client, N, 1, 0);
    y = cluster_put(gpu.client, N, 1, 0);
    sums_submit(&gpu, y, x, 1);
    wait_for(&gpu, y);

    gate_close(gate);
    count_begin(&gpu);
    sums_submit(&gpu, y, x, MANY);
    head_has_all(&gpu);
    ASSERT_EQ(unlink(gate), 0);
    wait_for(&gpu, y);
    expect_links(&gpu, MANY);
    expect_few_launches(&gpu);

    CLUSTER_OK(plasmon_release(gpu.client, x));
    CLUSTER_OK(plasmon_release(gpu.client, y));
    finish(&gpu);
}

TEST(a_chain_is_a_launch_each_where_that_is_asked_for)
{
    static const char *const allowed[] = {"cuLaunchKernel", "cuStreamWriteValue64", NULL};
    struct gpu gpu;
    struct plasmon_ref *x;

    ASSERT_EQ(setenv("PLASMON_COALESCE", "0", 1), 0);
    start(&gpu, 1);
    link_define(&gpu);
    x = cluster_put(gpu.client, N, -1, 0);
    link_submit(&gpu, x, 0); /* loads the function */
    wait_for(&gpu, x);

    count_begin(&gpu);
    for (int i = 0; i < LINKS; i++) {
        link_submit(&gpu, x, 0);
    }
    wait_for(&gpu, x);
    expect_only(&gpu, allowed);
    ASSERT_EQ(counted(&gpu, "cuLaunchKernel"), LINKS);
    expect_values(&gpu, x, LINKS);
    CLUSTER_OK(plasmon_release(gpu.client, x));
    finish(&gpu);
}

static struct plasmon_ref *sort_submit(struct gpu *gpu, struct plasmon_ref *x)
{
    const struct plasmon_arg args[] = {{.mode = PLASMON_OUT},
                                       {.mode = PLASMON_IN, .ref = x}};
    struct plasmon_call call        = PLASMON_CALL_INIT;
    struct plasmon_ref *y;

    call.function  = "sort";
    call.args      = args;
    call.arg_count = 2;
    call.device    = 0;
    CLUSTER_OK(plasmon_submit(gpu->client, &call, &y, NULL));
    return y;
}

/*
 * A sort is 14 kernels, so fewer sorts than launches may be on a device fill a stream: who enqueues
 * must stop before the driver stops him, for he also hears of ends and says that the worker is
 * well. (Each kernel is a launch: where they go in as chains, it takes a library's to fill one.)
 */
TEST(a_long_queue_of_heavy_calls_never_blocks_in_the_driver)
{
    struct gpu gpu;
    struct plasmon_ref *x, *y;
    char gate[256];

    slow_device(gate);
    ASSERT_EQ(setenv("FAKE_CUDA_KERNEL_NS", "0", 1), 0);
    ASSERT_EQ(setenv("PLASMON_COALESCE", "0", 1), 0);
    start(&gpu, 1);
    x = cluster_put(gpu.client, 1 << 16, 1, 0);
    y = sort_submit(&gpu, x);
    wait_for(&gpu, y);

    gate_close(gate);
    count_begin(&gpu);
    for (int i = 0; i < SORTS; i++) { /* each of the one before, so all in one stream */
        CLUSTER_OK(plasmon_release(gpu.client, x));
        x = y;
        y = sort_submit(&gpu, x);
    }
    head_has_all(&gpu);
    while (counted(&gpu, "cuLaunchKernel") < QUEUED) {
        usleep(1000);
    }
    usleep(200000); /* whoever puts in too many does it now */
    ASSERT_EQ(unlink(gate), 0);
    wait_for(&gpu, y);
    ASSERT_EQ(counted(&gpu, "cuLaunchKernel"), SORTS * SORT_KERNELS);
    ASSERT_EQ(counted(&gpu, "blocked"), 0);
    CLUSTER_OK(plasmon_release(gpu.client, x));
    CLUSTER_OK(plasmon_release(gpu.client, y));
    finish(&gpu);
}

static void replay(struct gpu *gpu, struct plasmon_graph *graph)
{
    struct plasmon_ref *task;

    CLUSTER_OK(plasmon_graph_launch(gpu->client, graph, NULL, 0, NULL, 0, &task));
    wait_for(gpu, task);
    CLUSTER_OK(plasmon_release(gpu->client, task));
}

TEST(a_replay_is_one_call_and_one_word)
{
    static const char *const allowed[] = {"cuGraphLaunch", "cuStreamWriteValue64", NULL};
    struct gpu gpu;
    struct plasmon_graph *graph;
    struct plasmon_ref *x;

    start(&gpu, 1);
    link_define(&gpu);
    x = cluster_put(gpu.client, N, 0, 0);
    CLUSTER_OK(plasmon_graph_begin(gpu.client, &graph));
    for (int i = 0; i < NODES; i++) {
        link_submit(&gpu, x, 0);
    }
    CLUSTER_OK(plasmon_graph_end(gpu.client, graph));

    for (int i = 0; i <= REPLAYS; i++) {
        if (i == 1) { /* the first one was captured */
            count_begin(&gpu);
        }
        replay(&gpu, graph);
    }
    expect_only(&gpu, allowed);
    ASSERT_EQ(counted(&gpu, "cuGraphLaunch"), REPLAYS);
    ASSERT_EQ(counted(&gpu, "cuStreamWriteValue64"), REPLAYS);

    expect_values(&gpu, x, (REPLAYS + 1) * NODES);
    CLUSTER_OK(plasmon_release(gpu.client, x));
    CLUSTER_OK(plasmon_graph_release(gpu.client, graph));
    finish(&gpu);
}

/*
 * Independent calls on large arrays of the other GPU: each has its own copy, and waits for no other
 * one's. Later all are there.
 */
TEST(a_replay_whose_inputs_come_is_a_call_for_each_component_and_then_one)
{
    static const char *const allowed[] = {"cuGraphLaunch", "cuStreamWriteValue64", NULL};
    struct gpu gpu;
    struct plasmon_graph *graph;
    struct plasmon_ref *x[CHAINS], *y;

    start(&gpu, 2);
    link_define(&gpu);
    y = cluster_put(gpu.client, N, 0, 0);
    link_submit(&gpu, y, 0); /* loads the function */
    wait_for(&gpu, y);
    for (int i = 0; i < CHAINS; i++) {
        x[i] = cluster_put(gpu.client, LARGE, (float)(100 * i), 1);
        wait_for(&gpu, x[i]);
    }
    CLUSTER_OK(plasmon_graph_begin(gpu.client, &graph));
    for (int i = 0; i < CHAINS; i++) {
        link_submit_sized(&gpu, x[i], LARGE, 0, 0);
    }
    CLUSTER_OK(plasmon_graph_end(gpu.client, graph));

    count_begin(&gpu);
    replay(&gpu, graph);
    ASSERT_EQ(counted(&gpu, "cuMemcpyDtoDAsync"), CHAINS);
    ASSERT_EQ(counted(&gpu, "cuLaunchKernel"),
              CHAINS); /* nothing is captured for one call */
    ASSERT_EQ(counted(&gpu, "cuGraphLaunch"), 0);
    replay(&gpu, graph);

    count_begin(&gpu);
    for (int i = 0; i < REPLAYS; i++) {
        replay(&gpu, graph);
    }
    expect_only(&gpu, allowed);
    ASSERT_EQ(counted(&gpu, "cuGraphLaunch"), REPLAYS);
    ASSERT_EQ(counted(&gpu, "cuStreamWriteValue64"), REPLAYS);

    for (int i = 0; i < CHAINS; i++) {
        expect_values_sized(&gpu, x[i], LARGE, (float)(100 * i + 2 + REPLAYS));
        CLUSTER_OK(plasmon_release(gpu.client, x[i]));
    }
    CLUSTER_OK(plasmon_release(gpu.client, y));
    CLUSTER_OK(plasmon_graph_release(gpu.client, graph));
    finish(&gpu);
}

/*
 * Its report must say which launch it is: that costs each replay one word more, and is no reason
 * not to capture it.
 */
TEST(a_replay_of_a_function_that_judges_its_data_is_one_call_and_two_words)
{
    static const char *const allowed[] = {"cuGraphLaunch", "cuStreamWriteValue64", NULL};
    const struct plasmon_shape shape   = {PLASMON_F32, 2, {8, 8}};
    const float zeros[64]              = {0};
    struct plasmon_call call           = PLASMON_CALL_INIT;
    struct plasmon_arg args[]          = {
                 {.mode = PLASMON_OUT}, {.mode = PLASMON_OUT}, {.mode = PLASMON_IN}};
    struct plasmon_ref *results[2];
    struct plasmon_graph *graph;
    struct gpu gpu;

    start(&gpu, 1);
    CLUSTER_OK(plasmon_put(gpu.client, zeros, &shape, NULL, &args[2].ref));
    call.function  = "eigh";
    call.args      = args;
    call.arg_count = 3;
    CLUSTER_OK(plasmon_graph_begin(gpu.client, &graph));
    CLUSTER_OK(plasmon_submit(gpu.client, &call, results, NULL));
    CLUSTER_OK(plasmon_graph_end(gpu.client, graph));
    replay(&gpu, graph); /* is captured */
    replay(&gpu,
           /*
         * is the first that overwrites something behind a join, and says that it begins
         * (worker/begun.c)
         */
           graph);

    count_begin(&gpu);
    for (int i = 0; i < REPLAYS; i++) {
        replay(&gpu, graph);
    }
    expect_only(&gpu, allowed);
    ASSERT_EQ(counted(&gpu, "cuGraphLaunch"), REPLAYS);
    ASSERT_EQ(counted(&gpu, "cuStreamWriteValue64"), 2 * REPLAYS);

    CLUSTER_OK(plasmon_release(gpu.client, results[0]));
    CLUSTER_OK(plasmon_release(gpu.client, results[1]));
    CLUSTER_OK(plasmon_release(gpu.client, args[2].ref));
    CLUSTER_OK(plasmon_graph_release(gpu.client, graph));
    finish(&gpu);
}

/*
 * To the other device, which makes one copy of it: by an engine, or, of little, by a kernel beside
 * its own.
 */
static void goes_in_one_copy(int64_t n, uint64_t engine, uint64_t kernels)
{
    struct gpu gpu;
    struct plasmon_ref *x;

    start(&gpu, 2);
    link_define(&gpu);
    x = cluster_put(gpu.client, n, 0, 0);
    link_submit_sized(&gpu, x, n, 0, 0);
    wait_for(&gpu, x);

    count_begin(&gpu);
    link_submit_sized(&gpu, x, n, 1, 0);
    wait_for(&gpu, x);
    ASSERT_EQ(counted(&gpu, "cuMemcpyDtoDAsync"), engine);
    ASSERT_EQ(counted(&gpu, "cuLaunchKernel"), kernels);
    ASSERT_EQ(counted(&gpu, "cuMemcpyHtoDAsync"), 0);
    ASSERT_EQ(counted(&gpu, "cuMemcpyDtoHAsync"), 0);

    expect_values_sized(&gpu, x, (size_t)n, 2);
    CLUSTER_OK(plasmon_release(gpu.client, x));
    finish(&gpu);
}

TEST(an_object_goes_to_another_gpu_in_one_copy)
{
    goes_in_one_copy(LARGE, 1, 1);
}

TEST(a_small_object_goes_to_another_gpu_by_one_kernel)
{
    goes_in_one_copy(N, 0, 2);
}

static void fill_and_multiply(struct gpu *gpu)
{
    struct plasmon_shape shape = {.dtype = PLASMON_F32, .ndim = 2, .dim = {NODES, NODES}};
    struct plasmon_arg args[]  = {{.mode = PLASMON_OUT}, {.mode = PLASMON_IN}, {0}};
    plasmon_scalar_t scalars[] = {{.f = 1}, {.i = 0}, {.i = 0}};
    struct plasmon_arg out     = {.mode = PLASMON_OUT, .shape = &shape};
    struct plasmon_call call   = PLASMON_CALL_INIT;
    struct plasmon_ref *x, *y;

    call.function     = "fill";
    call.args         = &out;
    call.arg_count    = 1;
    call.scalars      = scalars;
    call.scalar_count = 1;
    CLUSTER_OK(plasmon_submit(gpu->client, &call, &x, NULL));
    args[1].ref       = x;
    args[2]           = args[1];
    call.function     = "gemm";
    call.args         = args;
    call.arg_count    = 3;
    call.scalar_count = 3;
    CLUSTER_OK(plasmon_submit(gpu->client, &call, &y, NULL));
    wait_for(gpu, y);
    CLUSTER_OK(plasmon_state(gpu->client, y));
    CLUSTER_OK(plasmon_release(gpu->client, x));
    CLUSTER_OK(plasmon_release(gpu->client, y));
}

/* Starting cuBLAS takes longer than all else that a GPU's worker does before its first launch. */
TEST(a_worker_that_follows_a_dead_one_starts_cublas_when_a_product_wants_it)
{
    struct gpu gpu;
    struct plasmon_ref *x;

    test_expect_log();
    start(&gpu, 1);
    ASSERT_EQ(fake_counts_of(gpu.calls, "cublasCreate"), 1);
    link_define(&gpu);
    x = cluster_put(gpu.client, N, 5, 0);
    link_submit(&gpu, x, 0);
    wait_for(&gpu, x);

    for (int life = 2; life <= 3;
         life++) { /* one that was begun while the one before it ended, too */
        cluster_kill(cluster_worker(gpu.client, 0));
        link_submit(&gpu, x, 0);
        wait_for(&gpu, x);
        ASSERT_EQ(fake_counts_of(gpu.calls, "cublasCreate"), life - 1);
        fill_and_multiply(&gpu);
        fill_and_multiply(&gpu);
        ASSERT_EQ(fake_counts_of(gpu.calls, "cublasCreate"), life);
    }
    expect_values(&gpu, x, 5 + 3);
    CLUSTER_OK(plasmon_release(gpu.client, x));
    finish(&gpu);
}

/*
 * Large host memory is registered in pieces, between which others' launches get their turn, and a
 * copy may not reach over the end of one: the driver refuses it. So it is cut there.
 */
TEST(a_copy_of_large_host_memory_is_cut_where_a_registered_piece_ends)
{
    enum { MIB = 1 << 20, ALL = 160 * MIB, FROM = 96 * MIB, COPIED = 48 * MIB };
    const struct plasmon_shape shape   = {PLASMON_I64, 1, {COPIED / 8}};
    struct plasmon_put_options options = PLASMON_PUT_INIT;
    struct plasmon_ref *x, *task;
    int64_t *memory, *from;
    struct gpu gpu;

    start(&gpu, 1);
    count_begin(&gpu);
    CLUSTER_OK(plasmon_host_alloc(gpu.client, ALL, (void **)&memory));
    ASSERT_EQ(counted(&gpu, "cuMemHostRegister"), 2);
    from = memory + FROM / 8;
    for (int64_t i = 0; i < COPIED / 8; i++) {
        from[i] = 3 * i + 1;
    }
    count_begin(&gpu);
    options.device = 0;
    CLUSTER_OK(plasmon_put_async(gpu.client, from, &shape, &options, &x));
    wait_for(&gpu, x);
    ASSERT_EQ(counted(&gpu, "cuMemcpyHtoDAsync"), 2);
    CLUSTER_OK(plasmon_state(gpu.client, x));
    memset(memory, 0, ALL);
    count_begin(&gpu);
    CLUSTER_OK(plasmon_get_async(gpu.client, x, from, COPIED, &task));
    wait_for(&gpu, task);
    ASSERT_EQ(counted(&gpu, "cuMemcpyDtoHAsync"), 2);
    ASSERT_EQ(from[-1], 0);
    for (int64_t i = 0; i < COPIED / 8; i++) {
        ASSERT_EQ(from[i], 3 * i + 1);
    }
    CLUSTER_OK(plasmon_get_async(gpu.client, x, memory, COPIED, &task)); /* in one piece */
    wait_for(&gpu, task);
    ASSERT_EQ(counted(&gpu, "cuMemcpyDtoHAsync"), 3);
    CLUSTER_OK(plasmon_release(gpu.client, x));
    CLUSTER_OK(plasmon_host_free(gpu.client, memory));
    finish(&gpu);
}

/*
 * x on one GPU and y on the other, each added to the other one in turn. Before it changes, each
 * would have to wait for the other GPU's copy of it; but it waits for what was made of that, and
 * its GPU says that its copy was seen to be done before.
 */
TEST(what_another_gpu_has_read_is_not_waited_for_when_what_it_made_of_that_is)
{
    enum { ROUNDS = 20 };
    struct gpu gpu;
    struct plasmon_ref *x, *y;
    char gate[256];

    slow_device(gate);
    ASSERT_EQ(setenv("PLASMON_COALESCE", "0", 1), 0);
    start(&gpu, 2);
    x = cluster_put(gpu.client, N, 1, 0);
    y = cluster_put(gpu.client, N, 1, 1);
    wait_for(&gpu, x);
    wait_for(&gpu, y);

    gate_close(gate);
    count_begin(&gpu);
    for (int i = 0; i < ROUNDS; i++) {
        CLUSTER_OK(cluster_axpy(gpu.client, y, x, 1, 1));
        CLUSTER_OK(cluster_axpy(gpu.client, x, y, 1, 0));
    }
    head_has_all(&gpu);
    while (counted(&gpu, "cuLaunchKernel") < 4 * ROUNDS) { /* and two copies a round */
        usleep(1000);
    }
    /*
     * One for each copy, and a few where a launch was looked at a moment before it said what it
     * stands for; without that there are nearly 4 a round.
     */
    ASSERT_TRUE(counted(&gpu, "cuStreamWaitValue64") < 3 * ROUNDS);
    ASSERT_EQ(unlink(gate), 0);
    wait_for(&gpu, x);
    wait_for(&gpu, y);
    CLUSTER_OK(plasmon_release(gpu.client, x));
    CLUSTER_OK(plasmon_release(gpu.client, y));
    finish(&gpu);
}

static struct plasmon_ref *touch(struct gpu *gpu, struct plasmon_ref *ref, int device)
{
    const struct plasmon_arg arg = {.mode = PLASMON_IN, .ref = ref};
    struct plasmon_call call     = PLASMON_CALL_INIT;
    struct plasmon_ref *task;

    call.function  = "touch";
    call.args      = &arg;
    call.arg_count = 1;
    call.device    = device;
    CLUSTER_OK(plasmon_submit(gpu->client, &call, NULL, &task));
    return task;
}

/*
 * Beside NCCL's own calls. A send: what it did is noted, and written beside the lane; its launch
 * waits, and writes its word, in one call. A receive notes, waits for that, and has one call for
 * five words. The function waits for the receive, begins, and has a word.
 */
TEST(half_of_a_transfer_by_a_pair_is_a_few_calls)
{
    static const char *const allowed[] = {"cuLaunchKernel",       "cuEventRecord",
                                          "cuStreamWaitEvent",    "cuStreamBatchMemOp",
                                          "cuStreamWriteValue64", NULL};
    enum { MOVES = 40 };
    struct plasmon_ref *moved[MOVES], *task[MOVES];
    struct gpu gpu;

    start_by(&gpu, 2, "nccl");
    for (int i = 0; i < MOVES; i++) {
        moved[i] = cluster_put(gpu.client, N, (float)i, 0);
    }
    task[0] = touch(&gpu, moved[0], 1); /* opens the pair */
    wait_for(&gpu, task[0]);
    CLUSTER_OK(plasmon_release(gpu.client, task[0]));

    count_begin(&gpu);
    for (int i = 1; i < MOVES; i++) {
        task[i] = touch(&gpu, moved[i], 1);
    }
    for (int i = 1; i < MOVES; i++) {
        wait_for(&gpu, task[i]);
    }
    ASSERT_EQ(counted(&gpu, "cuStreamBatchMemOp"), 2 * (MOVES - 1));
    expect_only(&gpu, allowed);
    ASSERT_TRUE(counted(&gpu, "cuStreamWriteValue64") <= 2 * (MOVES - 1));
    ASSERT_TRUE(counted(&gpu, "cuEventRecord") <= 3 * (MOVES - 1));
    ASSERT_TRUE(counted(&gpu, "cuStreamWaitEvent") <= 3 * (MOVES - 1));
    for (int i = 0; i < MOVES; i++) {
        expect_values(&gpu, moved[i], (float)i);
        CLUSTER_OK(plasmon_release(gpu.client, moved[i]));
    }
    for (int i = 1; i < MOVES; i++) {
        CLUSTER_OK(plasmon_release(gpu.client, task[i]));
    }
    finish(&gpu);
}

TEST_MAIN()
