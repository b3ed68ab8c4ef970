/*
 * Functions of one's own on a GPU: CUDA text through NVRTC in a private cluster, what the compiler
 * and the device refuse, faults that name kernel and launch shape, the cache on disk, and checks.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "tests/integration/cluster.h"

#define COUNT   1000000
#define WAIT_MS 120000u

static struct plasmon_client *start(int check)
{
    struct plasmon_options options = PLASMON_OPTIONS_INIT;
    struct plasmon_device_info infos[16];
    struct plasmon_client *px;
    uint32_t count;

    cluster_tag();
    test_set_timeout(300);
    options.check_functions = check;
    CLUSTER_OK(plasmon_init(&options, &px));
    CLUSTER_OK(plasmon_devices(px, infos, 16, &count));
    if (count == 0 || infos[0].kind != 2) {
        plasmon_finish(px);
        test_skip("no GPU");
    }
    return px;
}

static void define(struct plasmon_client *px, const char *name, const char *signature,
                   const char *text)
{
    CLUSTER_OK(plasmon_function_source(px, name, text, signature, NULL));
}

/* One INOUT vector of floats, and scalars. */
static plasmon_status_t call(struct plasmon_client *px, const char *name,
                             struct plasmon_ref *x, uint32_t grid, uint32_t block,
                             uint32_t shared_bytes)
{
    struct plasmon_arg arg   = {.mode = PLASMON_INOUT, .ref = x};
    struct plasmon_call call = PLASMON_CALL_INIT;

    call.function     = name;
    call.args         = &arg;
    call.arg_count    = 1;
    call.grid[0]      = grid;
    call.block[0]     = block;
    call.shared_bytes = shared_bytes;
    call.retries      = 0;
    return plasmon_submit(px, &call, NULL, NULL);
}

static void expect_failed(struct plasmon_client *px, struct plasmon_ref *ref,
                          plasmon_status_t status, const char *first, const char *second)
{
    CLUSTER_OK(plasmon_wait(px, &ref, 1, 1, WAIT_MS, NULL, NULL));
    if (plasmon_state(px, ref) != status) {
        test_fail(__FILE__, __LINE__, "state is %s (%s), expected %s",
                  plasmon_status_name(plasmon_state(px, ref)), plasmon_error(px),
                  plasmon_status_name(status));
    }
    ASSERT_CONTAINS(plasmon_error(px), first);
    ASSERT_CONTAINS(plasmon_error(px), second);
}

static const char saxpy_text[] =
    "__global__ void saxpy(float *y, const float *x, float a, long long n)\n"
    "{ for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n;\n"
    "       i += (long long)gridDim.x * blockDim.x) y[i] += a * x[i]; }\n";
static const char saxpy_signature[] =
    "saxpy(inout f32[n] y, in f32[n] x, f32 a, i64 n := n)";

static void saxpy(struct plasmon_client *px, struct plasmon_ref *y, struct plasmon_ref *x,
                  double a, uint32_t grid, uint32_t block, int device)
{
    struct plasmon_arg args[] = {{.mode = PLASMON_INOUT, .ref = y},
                                 {.mode = PLASMON_IN, .ref = x}};
    plasmon_scalar_t scalar   = {.f = a};
    struct plasmon_call call  = PLASMON_CALL_INIT;

    call.function     = "saxpy";
    call.args         = args;
    call.arg_count    = 2;
    call.scalars      = &scalar;
    call.scalar_count = 1;
    call.grid[0]      = grid;
    call.block[0]     = block;
    call.device       = device;
    CLUSTER_OK(plasmon_submit(px, &call, NULL, NULL));
}

TEST(saxpy_runs_with_a_chosen_shape_a_block_alone_and_a_given_one)
{
    struct plasmon_client *px = start(0);
    struct plasmon_ref *x     = cluster_put(px, COUNT, 0, 0);
    struct plasmon_ref *y     = cluster_fill(px, COUNT, 1, 0);

    define(px, "saxpy", saxpy_signature, saxpy_text);
    CLUSTER_OK(plasmon_function_wait(px, "saxpy", WAIT_MS));
    saxpy(px, y, x, 1, 0, 0, PLASMON_ANYWHERE);
    saxpy(px, y, x, 1, 0, 128, PLASMON_ANYWHERE);
    saxpy(px, y, x, 1, 3, 32, PLASMON_ANYWHERE);
    cluster_expect_ramp(px, y, COUNT, 1, 3);
    plasmon_finish(px);
}

TEST(every_gpu_loads_it_in_the_middle_of_work_that_waits_for_other_gpus)
{
    struct plasmon_client *px = start(0);
    struct plasmon_device_info infos[16];
    struct plasmon_ref *x, *y;
    uint32_t count;
    char name[32], signature[80], text[300];

    CLUSTER_OK(plasmon_devices(px, infos, 16, &count));
    x = cluster_put(px, COUNT, 0, 0);
    y = cluster_fill(px, COUNT, 1, 0);
    for (int f = 0; f < 8;
         f++) { /* a new function on another device each time: the array goes round */
        (void)snprintf(name, sizeof(name), "add%d", f);
        (void)snprintf(signature, sizeof(signature), "add%d(inout f32[n] y, i64 n := n)",
                       f);
        (void)snprintf(
            text, sizeof(text),
            "__global__ void add%d(float *y, long long n) { for (long long i = "
            "blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += (long "
            "long)gridDim.x * blockDim.x) y[i] += 1; }",
            f);
        define(px, name, signature, text);
        for (uint32_t i = 0; i < 2 * count; i++) {
            struct plasmon_arg arg   = {.mode = PLASMON_INOUT, .ref = y};
            struct plasmon_call call = PLASMON_CALL_INIT;

            call.function  = name;
            call.args      = &arg;
            call.arg_count = 1;
            call.device    = (int)(i % count);
            CLUSTER_OK(plasmon_submit(px, &call, NULL, NULL));
        }
    }
    cluster_expect_ramp(px, y, COUNT, 1 + 16 * (float)count, 0);
    cluster_expect_ramp(px, x, COUNT, 0, 1);
    plasmon_finish(px);
}

TEST(what_nvrtc_refuses_comes_with_its_log)
{
    struct plasmon_client *px = start(0);
    struct plasmon_ref *x     = cluster_put(px, COUNT, 0, 0);

    define(px, "bad", "bad(inout f32[n] x)", "__global__ void bad(float *x)\n{\n  oops\n}");
    CLUSTER_OK(call(px, "bad", x, 0, 0, 0));
    expect_failed(px, x, PLASMON_ECOMPILE, "bad(3)", "NVRTC");
    ASSERT_STATUS(plasmon_function_wait(px, "bad", WAIT_MS), PLASMON_ECOMPILE);
    plasmon_finish(px);
}

TEST(shapes_that_the_device_does_not_take_are_refused_with_the_limits)
{
    struct plasmon_client *px = start(0);
    struct plasmon_ref *x     = cluster_put(px, COUNT, 0, 0);
    struct plasmon_ref *y     = cluster_put(px, COUNT, 0, 0);
    struct plasmon_ref *z     = cluster_put(px, COUNT, 0, 0);

    define(px, "touch1", "touch1(inout f32[n] x)",
           "__global__ void touch1(float *x) { if (threadIdx.x == 0) x[0] = 1; }");
    CLUSTER_OK(call(px, "touch1", x, 1, 2048, 0));
    expect_failed(px, x, PLASMON_EINVAL, "touch1 (grid 1x1x1, block 2048x1x1",
                  "at most 1024 a block");
    CLUSTER_OK(call(px, "touch1", y, 1, 32, 8u << 20));
    expect_failed(px, y, PLASMON_EINVAL, "touch1", "bytes of dynamic shared memory");
    CLUSTER_OK(call(px, "touch1", z, 1, 32, 0)); /* nothing was lost by it */
    CLUSTER_OK(plasmon_wait(px, &z, 1, 1, WAIT_MS, NULL, NULL));
    CLUSTER_OK(plasmon_state(px, z));
    plasmon_finish(px);
}

TEST(more_than_48_KiB_of_dynamic_shared_memory_are_there)
{
    struct plasmon_client *px = start(0);
    struct plasmon_ref *x     = cluster_put(px, COUNT, 0, 0);
    float out[4];
    struct plasmon_ref *part;
    const int64_t start_at = 0, count = 4;

    define(
        px, "large", "large(inout f32[n] x)",
        "__global__ void large(float *x) { extern __shared__ float s[];\n"
        "  s[threadIdx.x * 512] = (float)threadIdx.x; __syncthreads();\n"
        "  if (threadIdx.x == 0) for (int i = 0; i < 4; i++) x[i] = s[(i + 30) * 512]; }");
    CLUSTER_OK(call(px, "large", x, 1, 34, 35 * 512 * 4)); /* 70 KiB */
    CLUSTER_OK(plasmon_view(px, x, &start_at, &count, NULL, &part));
    CLUSTER_OK(plasmon_get(px, part, out, sizeof(out), WAIT_MS));
    for (int i = 0; i < 4; i++) {
        if (out[i] != (float)(30 + i)) {
            test_fail(__FILE__, __LINE__, "x[%d] is %g, expected %d", i, (double)out[i],
                      30 + i);
        }
    }
    plasmon_finish(px);
}

/*
 * 64 values in registers at once, so that blocks of 1024 threads are not what fills a
 * multiprocessor; with so much shared memory one block fits, and then the largest is best.
 */
TEST(a_shape_that_is_left_open_knows_of_the_dynamic_shared_memory)
{
    struct plasmon_client *px = start(0);
    float blocks[2];

    define(
        px, "heavy", "heavy(inout f32[n] x, i64 n := n)",
        "__global__ void heavy(float *x, long long n) { extern __shared__ float s[];\n"
        "  float v[64]; for (int i = 0; i < 64; i++) v[i] = x[(threadIdx.x + i) % n];\n"
        "  for (int k = 0; k < 3; k++) {\n"
        "    _Pragma(\"unroll\") for (int i = 0; i < 64; i++) v[i] = v[i] * v[(i + 7) % "
        "64]; }\n"
        "  float sum = 0; _Pragma(\"unroll\") for (int i = 0; i < 64; i++) sum += v[i];\n"
        "  long long at = blockIdx.x * (long long)blockDim.x + threadIdx.x;\n"
        "  __syncthreads(); if (sum != sum) s[0] = sum;\n"
        "  if (at < n) x[at] = (float)blockDim.x; }");
    for (uint32_t i = 0; i < 2; i++) {
        struct plasmon_ref *x = cluster_put(px, COUNT, 0, 0);
        const int64_t first = 0, count = 1;
        struct plasmon_ref *part;

        CLUSTER_OK(call(px, "heavy", x, 0, 0, i * (120u << 10)));
        CLUSTER_OK(plasmon_view(px, x, &first, &count, NULL, &part));
        CLUSTER_OK(plasmon_get(px, part, &blocks[i], sizeof(blocks[i]), WAIT_MS));
        ASSERT_TRUE(blocks[i] >= 32 && blocks[i] <= 1024);
    }
    printf("# blocks of %g threads, with 120 KiB of shared memory of %g\n",
           (double)blocks[0], (double)blocks[1]);
    ASSERT_TRUE(blocks[1] >= blocks[0]);
    plasmon_finish(px);
}

TEST(an_illegal_access_names_kernel_and_shape)
{
    struct plasmon_client *px = start(0);
    struct plasmon_ref *x     = cluster_put(px, COUNT, 0, 0);

    define(px, "wild", "wild(inout f32[n] x)",
           "__global__ void wild(float *x) { *(volatile float *)0x10 = x[0]; }");
    CLUSTER_OK(call(px, "wild", x, 5, 64, 0));
    CLUSTER_OK(plasmon_wait(px, &x, 1, 1, WAIT_MS, NULL, NULL));
    ASSERT_TRUE(plasmon_state(px, x) != PLASMON_OK);
    printf("# %s\n", plasmon_error(px));
    ASSERT_CONTAINS(plasmon_error(px), "wild");
    ASSERT_CONTAINS(plasmon_error(px), "grid 5x1x1, block 64x1x1");
    x = cluster_fill(px, COUNT, 3, 0); /* the worker is replaced */
    cluster_expect_all(px, x, COUNT, 3);
    plasmon_finish(px);
}

static unsigned files_in(const char *path)
{
    DIR *dir       = opendir(path);
    unsigned count = 0;

    while (dir != NULL && readdir(dir) != NULL) {
        count++;
    }
    if (dir != NULL) {
        (void)closedir(dir);
    }
    return count < 2 ? 0 : count - 2; /* . and .. */
}

TEST(a_second_cluster_takes_compiled_text_from_the_disk)
{
    char folder[400];
    struct plasmon_client *px;
    uint64_t took[2];

    cluster_tag();
    (void)snprintf(folder, sizeof(folder), "%s/cache", cluster_folder());
    ASSERT_EQ(setenv("PLASMON_CACHE_DIR", folder, 1), 0);
    for (int i = 0; i < 2; i++) {
        px = start(0);
        define(px, "saxpy", saxpy_signature, saxpy_text);
        took[i] = pl_now_ns();
        CLUSTER_OK(plasmon_function_wait(px, "saxpy", WAIT_MS));
        took[i] = pl_now_ns() - took[i];
        plasmon_finish(px);
        ASSERT_EQ(files_in(folder), 1);
    }
    printf("# compiled in %.1f ms, from the disk in %.1f ms\n", (double)took[0] / 1e6,
           (double)took[1] / 1e6);
    cluster_remove();
}

TEST(checks_catch_a_kernel_that_writes_its_input_or_not_all_of_its_output)
{
    struct plasmon_client *px = start(1);
    struct plasmon_ref *x     = cluster_put(px, COUNT, 1, 0);
    struct plasmon_arg args[] = {{.mode = PLASMON_OUT}, {.mode = PLASMON_IN, .ref = x}};
    struct plasmon_call call  = PLASMON_CALL_INIT;
    const char *names[]       = {"good", "misses", "writes"};
    struct plasmon_ref *y[3];

    define(px, "good", "good(out f32[n] y, in f32[n] x, i64 n := n)",
           "__global__ void good(float *y, const float *x, long long n)\n"
           "{ for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n;\n"
           "  i += (long long)gridDim.x * blockDim.x) y[i] = 2 * x[i]; }");
    define(px, "misses", "misses(out f32[n] y, in f32[n] x, i64 n := n)",
           "__global__ void misses(float *y, const float *x, long long n)\n"
           "{ for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n;\n"
           "  i += (long long)gridDim.x * blockDim.x) if (i != 77777) y[i] = 2 * x[i]; }");
    define(px, "writes", "writes(out f32[n] y, in f32[n] x, i64 n := n)",
           "__global__ void writes(float *y, float *x, long long n)\n"
           "{ for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n;\n"
           "  i += (long long)gridDim.x * blockDim.x) { y[i] = x[i]; if (i == 5) x[i] = "
           "-1; } }");
    call.args      = args;
    call.arg_count = 2;
    for (int i = 0; i < 3; i++) {
        call.function = names[i];
        CLUSTER_OK(plasmon_submit(px, &call, &y[i], NULL));
    }
    cluster_expect_ramp(px, y[0], COUNT, 2, 2);
    expect_failed(px, y[1], PLASMON_EFUNCTION, "check: misses left elements of y", "");
    expect_failed(px, y[2], PLASMON_EFUNCTION, "check: writes wrote into x", "");
    plasmon_finish(px);
}

/* Row r of a matrix is y[r] += (0.5 + 0.25 r) x[r], once by index and once by a loop. */
TEST(a_source_function_by_index_is_the_loop)
{
    enum { ROWS = 24, COLS = 1000 };
    struct plasmon_client *px                = start(0);
    struct plasmon_shape shape               = {PLASMON_F32, 2, {ROWS, COLS}};
    struct plasmon_index_view row            = {.count = {1, COLS}, .step_of = {{1}}};
    const struct plasmon_index_view *views[] = {&row, &row};
    struct plasmon_index_space space         = PLASMON_INDEX_SPACE_INIT;
    struct plasmon_call call                 = PLASMON_CALL_INIT;
    plasmon_scalar_t base = {.f = 0.5}, step = {.f = 0.25};
    float *left  = malloc(ROWS * COLS * sizeof(float));
    float *right = malloc(ROWS * COLS * sizeof(float));
    struct plasmon_ref *ref[3];
    struct plasmon_arg args[2];

    for (int i = 0; i < ROWS * COLS; i++) {
        left[i] = (float)(i % 977) * 0.25f - 100;
    }
    for (int i = 0; i < 3; i++) {
        CLUSTER_OK(plasmon_put(px, left, &shape, NULL, &ref[i]));
    }
    define(px, "saxpy2", "saxpy2(inout f32[r,c] y, in f32[r,c] x, f32 a, i64 n := r * c)",
           "__global__ void saxpy2(float *y, const float *x, float a, long long n)\n"
           "{ for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n;\n"
           "       i += (long long)gridDim.x * blockDim.x) y[i] += a * x[i]; }\n");
    args[0]            = (struct plasmon_arg){.mode = PLASMON_INOUT, .ref = ref[0]};
    args[1]            = (struct plasmon_arg){.mode = PLASMON_IN, .ref = ref[2]};
    call.function      = "saxpy2";
    call.args          = args;
    call.arg_count     = 2;
    call.scalars       = &base;
    call.scalar_count  = 1;
    space.ndim         = 1;
    space.count[0]     = ROWS;
    space.views        = views;
    space.scalar_steps = &step;
    CLUSTER_OK(plasmon_submit_index(px, &call, &space, NULL, NULL));
    for (int64_t r = 0; r < ROWS; r++) {
        int64_t first[] = {r, 0}, count[] = {1, COLS};
        plasmon_scalar_t value = {.f = 0.5 + 0.25 * (double)r};

        CLUSTER_OK(plasmon_view(px, ref[1], first, count, NULL, &args[0].ref));
        CLUSTER_OK(plasmon_view(px, ref[2], first, count, NULL, &args[1].ref));
        call.scalars = &value;
        CLUSTER_OK(plasmon_submit(px, &call, NULL, NULL));
    }
    CLUSTER_OK(plasmon_get(px, ref[0], left, ROWS * COLS * sizeof(float), WAIT_MS));
    CLUSTER_OK(plasmon_get(px, ref[1], right, ROWS * COLS * sizeof(float), WAIT_MS));
    for (int i = 0; i < ROWS * COLS; i++) {
        if (memcmp(&left[i], &right[i], sizeof(float)) != 0) {
            test_fail(__FILE__, __LINE__,
                      "row %d, column %d is %.9g by index and %.9g by loop", i / COLS,
                      i % COLS, (double)left[i], (double)right[i]);
            break;
        }
    }
    free(left);
    free(right);
    plasmon_finish(px);
}

static void paint(struct plasmon_client *px, struct plasmon_ref *x, double value)
{
    struct plasmon_arg arg   = {.mode = PLASMON_OUT, .ref = x};
    plasmon_scalar_t scalar  = {.f = value};
    struct plasmon_call call = PLASMON_CALL_INIT;

    call.function     = "paint";
    call.args         = &arg;
    call.arg_count    = 1;
    call.scalars      = &scalar;
    call.scalar_count = 1;
    call.device       = 0;
    CLUSTER_OK(plasmon_submit(px, &call, NULL, NULL));
}

/* Beside this program, wherever it was carried. */
static const char *library_dir(void)
{
    static char path[4096];
    ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 16);

    ASSERT_TRUE(length > 0);
    path[length] = '\0';
    (void)snprintf(strrchr(path, '/'), 16, "/libraries");
    return path;
}

/* It puts its work into the stream that it is given: in order with others, and into a recorded graph. */
TEST(a_library_puts_its_work_into_the_stream_alone_and_recorded)
{
    struct plasmon_options options = PLASMON_OPTIONS_INIT;
    struct plasmon_device_info infos[16];
    struct plasmon_client *px;
    struct plasmon_ref *x, *y;
    struct plasmon_graph *graph;
    uint32_t count;

    cluster_tag();
    test_set_timeout(300);
    options.library_dir = library_dir();
    CLUSTER_OK(plasmon_init(&options, &px));
    CLUSTER_OK(plasmon_devices(px, infos, 16, &count));
    if (count == 0 || infos[0].kind != 2) {
        plasmon_finish(px);
        test_skip("no GPU");
    }
    CLUSTER_OK(plasmon_function_library(px, "paint", TEST_LIBRARY_NAME, "paint_entry",
                                        "paint(out f32[n] x, f32 a)"));
    define(px, "saxpy", saxpy_signature, saxpy_text);
    CLUSTER_OK(plasmon_function_wait(px, "paint", WAIT_MS));
    CLUSTER_OK(plasmon_function_wait(px, "saxpy", WAIT_MS));
    x = cluster_fill(px, COUNT, 0, 0);
    y = cluster_fill(px, COUNT, 1, 0);
    for (int i = 1; i <= 10; i++) { /* y += 1 + 2 + .. + 10 */
        paint(px, x, i);
        saxpy(px, y, x, 1, 0, 0, 0);
    }
    cluster_expect_ramp(px, y, COUNT, 56, 0);
    CLUSTER_OK(plasmon_graph_begin(px, &graph));
    paint(px, x, 3);
    saxpy(px, y, x, 2, 0, 0, 0);
    CLUSTER_OK(plasmon_graph_end(px, graph));
    for (int i = 0; i < 20; i++) { /* the library's scalar is another each time: y += 2 i */
        struct plasmon_graph_scalar set = {.call = 0, .value = {.f = i}};

        CLUSTER_OK(plasmon_graph_launch(px, graph, NULL, 0, &set, 1, NULL));
    }
    cluster_expect_ramp(px, y, COUNT, 56 + 2 * 190, 0);
    paint(px, x, -1);
    expect_failed(px, x, PLASMON_EFUNCTION, "paint answered 2", "-1 is negative");
    plasmon_finish(px);
}

TEST_MAIN()
