/*
 * Functions that a program defines, on real clusters of CPU devices: C text and libraries, what is
 * refused and when, who hears of it, and that they survive the death of a worker.
 */
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/integration/cluster.h"

#define COUNT 1000

static const char saxpy_signature[] =
    "saxpy(inout f32[n] y, in f32[n] x, f32 a, i64 n := n)";
static const char saxpy_text[] = "void saxpy(float *y, const float *x, float a, long n)\n"
                                 "{ for (long i = 0; i < n; i++) y[i] += a * x[i]; }\n";

static plasmon_status_t define(struct plasmon_client *client, const char *name,
                               const char *signature, const char *c_text)
{
    struct plasmon_source_options options = PLASMON_SOURCE_OPTIONS_INIT;

    options.c_text = c_text;
    return plasmon_function_source(client, name, NULL, signature, &options);
}

static plasmon_status_t saxpy(struct plasmon_client *client, struct plasmon_ref *y,
                              struct plasmon_ref *x, double a, int device)
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
    call.device       = device;
    return plasmon_submit(client, &call, NULL, NULL);
}

/* The ref must fail, with this status and every one of these words. */
static void expect_failed(struct plasmon_client *client, struct plasmon_ref *ref,
                          plasmon_status_t status, const char *first, const char *second)
{
    int ready = 0;

    CLUSTER_OK(plasmon_wait(client, &ref, 1, 1, CLUSTER_WAIT_MS, &ready, NULL));
    ASSERT_STATUS(plasmon_state(client, ref), status);
    ASSERT_CONTAINS(plasmon_error(client), first);
    ASSERT_CONTAINS(plasmon_error(client), second);
}

TEST(c_text_runs_on_every_device_after_calls_that_were_made_before_it)
{
    struct plasmon_client *client = cluster_start(2);
    struct plasmon_ref *x         = cluster_put(client, COUNT, 0, 0);
    struct plasmon_ref *y         = cluster_fill(client, COUNT, 1, 1);

    CLUSTER_OK(define(client, "saxpy", saxpy_signature, saxpy_text));
    for (int i = 0; i < 10; i++) {
        CLUSTER_OK(saxpy(client, y, x, 1, i % 2));
    }
    cluster_expect_ramp(client, y, COUNT, 1, 10);
    CLUSTER_OK(plasmon_function_wait(client, "saxpy", CLUSTER_WAIT_MS));
    plasmon_finish(client);
    cluster_expect_gone(CLUSTER_GONE_MS);
}

TEST(a_wrong_call_fails_at_submit)
{
    struct plasmon_client *client = cluster_start(1);
    struct plasmon_ref *x         = cluster_put(client, COUNT, 0, 0);
    struct plasmon_ref *y         = cluster_put(client, COUNT + 1, 0, 0);
    struct plasmon_call call      = PLASMON_CALL_INIT;

    ASSERT_STATUS(saxpy(client, x, y, 1, 0), PLASMON_ENOFUNCTION);
    CLUSTER_OK(define(client, "saxpy", saxpy_signature, saxpy_text));
    ASSERT_STATUS(saxpy(client, x, y, 1, 0), PLASMON_ESHAPE);
    ASSERT_CONTAINS(plasmon_error(client),
                    "saxpy: x is f32[1001], needs f32[1000]; n is 1000 by y");
    ASSERT_STATUS(saxpy(client, x, x, 1, 0), PLASMON_EINVAL); /* one array twice */
    call.function = "saxpy";
    ASSERT_STATUS(plasmon_submit(client, &call, NULL, NULL), PLASMON_EARITY);
    call.shared_bytes = UINT32_MAX;
    ASSERT_STATUS(plasmon_submit(client, &call, NULL, NULL), PLASMON_EINVAL);
    ASSERT_CONTAINS(plasmon_error(client), "no device has more than 16777216");
    call.shared_bytes = 0;
    call.function     = "noop";
    call.block[0]     = 32;
    ASSERT_STATUS(plasmon_submit(client, &call, NULL, NULL), PLASMON_EINVAL);
    ASSERT_CONTAINS(plasmon_error(client), "built in");
    plasmon_finish(client);
}

TEST(names_belong_to_one_content)
{
    struct plasmon_client *client = cluster_start(1);

    CLUSTER_OK(define(client, "saxpy", saxpy_signature, saxpy_text));
    /* the same: nothing */
    CLUSTER_OK(define(client, "saxpy", saxpy_signature, saxpy_text));
    ASSERT_STATUS(define(client, "saxpy", saxpy_signature, "void saxpy(void) {}"),
                  PLASMON_EEXIST);
    ASSERT_STATUS(define(client, "gemm", "gemm(in f32[n] x)", "void gemm(float *x) {}"),
                  PLASMON_EEXIST);
    ASSERT_STATUS(define(client, "f", "g(in f32[n] x)", "void f(float *x) {}"),
                  PLASMON_EINVAL);
    ASSERT_STATUS(define(client, "f", "f(in f32 x)", "void f(float *x) {}"),
                  PLASMON_EINVAL);
    ASSERT_CONTAINS(plasmon_error(client), "f: signature: at byte 9");
    ASSERT_STATUS(define(client, "f", "f(in f32[n] x)", NULL), PLASMON_EINVAL);
    ASSERT_STATUS(define(client, "a-b", "f(in f32[n] x)", "x"), PLASMON_EINVAL);
    ASSERT_STATUS(plasmon_function_wait(client, "f", 1000), PLASMON_ENOFUNCTION);
    plasmon_finish(client);
}

TEST(a_text_that_does_not_compile_fails_its_calls_and_their_dependants_with_the_log)
{
    struct plasmon_client *client = cluster_start(1);
    struct plasmon_ref *x         = cluster_put(client, COUNT, 0, 0);
    struct plasmon_ref *y         = cluster_put(client, COUNT, 0, 0);
    struct plasmon_ref *z;

    CLUSTER_OK(
        define(client, "saxpy", saxpy_signature, "void saxpy(float *y)\n{\n oops;\n}"));
    CLUSTER_OK(saxpy(client, y, x, 1, 0));
    z = cluster_copy(client, y, 0);
    expect_failed(client, y, PLASMON_ECOMPILE, "saxpy:3:", "oops");
    expect_failed(client, z, PLASMON_EDEPENDENCY, "saxpy:3:", "oops");
    ASSERT_STATUS(plasmon_function_wait(client, "saxpy", CLUSTER_WAIT_MS),
                  PLASMON_ECOMPILE);
    ASSERT_CONTAINS(plasmon_error(client), "saxpy:3:");
    cluster_expect_ramp(client, x, COUNT, 0, 1); /* nobody else is concerned */
    plasmon_finish(client);
}

TEST(what_a_function_returns_fails_it_and_its_dependants_by_name_and_shape)
{
    struct plasmon_client *client = cluster_start(1);
    struct plasmon_ref *x         = cluster_put(client, COUNT, 0, 0);
    struct plasmon_arg arg        = {.mode = PLASMON_INOUT, .ref = x};
    struct plasmon_call call      = PLASMON_CALL_INIT;
    struct plasmon_ref *copy;

    CLUSTER_OK(define(client, "fails", "fails(inout f32[n] x)",
                      "int fails(float *x) { x[0] = 1; return 5; }"));
    call.function  = "fails";
    call.args      = &arg;
    call.arg_count = 1;
    call.grid[0]   = 7;
    call.block[0]  = 64;
    CLUSTER_OK(plasmon_submit(client, &call, NULL, NULL));
    copy = cluster_copy(client, x, 0);
    expect_failed(client, copy, PLASMON_EDEPENDENCY, "fails (grid 7x1x1, block 64x1x1",
                  "returned 5");
    plasmon_finish(client);
}

TEST(outputs_and_scratch_get_the_shapes_of_the_signature)
{
    struct plasmon_client *client = cluster_start(1);
    struct plasmon_ref *x         = cluster_put(client, 9, 1, 0);
    struct plasmon_arg args[]     = {
            {.mode = PLASMON_OUT}, {.mode = PLASMON_IN, .ref = x}, {.mode = PLASMON_SCRATCH}};
    plasmon_scalar_t k       = {.i = 2};
    struct plasmon_call call = PLASMON_CALL_INIT;
    struct plasmon_shape shape;
    struct plasmon_ref *y;
    double out[10][4];

    CLUSTER_OK(define(
        client, "outer",
        "outer(out f64[n+1,2*k] y, in f32[n] x, scratch f64[2*k] w, i64 k, i64 n := n)",
        "void outer(double *y, const float *x, double *w, long k, long n) {\n"
        "  for (long j = 0; j < 2 * k; j++) w[j] = 100 * j;\n"
        "  for (long i = 0; i <= n; i++) for (long j = 0; j < 2 * k; j++)\n"
        "    y[i * 2 * k + j] = w[j] + (i < n ? x[i] : -1); }"));
    call.function     = "outer";
    call.args         = args;
    call.arg_count    = 3;
    call.scalars      = &k;
    call.scalar_count = 1;
    CLUSTER_OK(plasmon_submit(client, &call, &y, NULL));
    CLUSTER_OK(plasmon_shape_of(client, y, &shape));
    ASSERT_TRUE(shape.dtype == PLASMON_F64 && shape.ndim == 2 && shape.dim[0] == 10 &&
                shape.dim[1] == 4);
    CLUSTER_OK(plasmon_get(client, y, out, sizeof(out), CLUSTER_WAIT_MS));
    ASSERT_TRUE(out[0][0] == 1 && out[8][3] == 309 && out[9][1] == 99);
    plasmon_finish(client);
}

static struct plasmon_ref *view(struct plasmon_client *client, struct plasmon_ref *ref,
                                int64_t row, int64_t column, int64_t rows, int64_t columns,
                                int64_t step)
{
    const int64_t start[] = {row, column}, count[] = {rows, columns}, steps[] = {1, step};
    struct plasmon_ref *part;

    CLUSTER_OK(plasmon_view(client, ref, start, count, steps, &part));
    return part;
}

TEST(a_part_of_an_array_comes_without_gaps_or_with_its_strides)
{
    struct plasmon_client *client = cluster_start(1);
    struct plasmon_shape shape    = {PLASMON_F32, 2, {8, 8}};
    struct plasmon_ref *a, *block, *odd;
    float values[64], out[64];
    struct plasmon_arg arg   = {.mode = PLASMON_INOUT};
    struct plasmon_call call = PLASMON_CALL_INIT;

    for (int i = 0; i < 64; i++) {
        values[i] = (float)i;
    }
    CLUSTER_OK(define(
        client, "number", "number(inout f32[m,n] x, i64 c := m * n)",
        "void number(float *x, long c) { for (long i = 0; i < c; i++) x[i] = 1000 + i; }"));
    CLUSTER_OK(define(client, "step", "step(inout f32[m,n]~ x, i64 m := m, i64 n := n)",
                      "void step(float *x, long s0, long s1, long m, long n) {\n"
                      "  for (long i = 0; i < m; i++) for (long j = 0; j < n; j++) x[i * "
                      "s0 + j * s1] = -1; }"));
    CLUSTER_OK(plasmon_put(client, values, &shape, NULL, &a));
    block          = view(client, a, 2, 3, 2, 4, 1);
    odd            = view(client, a, 0, 1, 8, 4, 2);
    call.function  = "number";
    call.args      = &arg;
    call.arg_count = 1;
    arg.ref        = block;
    CLUSTER_OK(plasmon_submit(client, &call, NULL, NULL));
    CLUSTER_OK(plasmon_get(client, a, out, sizeof(out), CLUSTER_WAIT_MS));
    for (int i = 0; i < 8; i++) {
        for (int j = 0; j < 8; j++) {
            bool inside = i >= 2 && i < 4 && j >= 3 && j < 7;

            ASSERT_TRUE(out[8 * i + j] ==
                        (inside ? (float)(1000 + (i - 2) * 4 + j - 3) : values[8 * i + j]));
        }
    }
    arg.ref = odd;
    ASSERT_STATUS(plasmon_submit(client, &call, NULL, NULL), PLASMON_ESHAPE);
    ASSERT_CONTAINS(plasmon_error(client), "number: x is a view with steps");
    call.function = "step";
    CLUSTER_OK(plasmon_submit(client, &call, NULL, NULL));
    CLUSTER_OK(plasmon_get(client, a, out, sizeof(out), CLUSTER_WAIT_MS));
    ASSERT_TRUE(out[1] == -1 && out[0] == 0 && out[2 * 8 + 3] == -1 &&
                out[2 * 8 + 4] == 1001);
    plasmon_finish(client);
}

TEST(partial_results_are_reduced)
{
    struct plasmon_client *client = cluster_start(2);
    struct plasmon_ref *sum       = cluster_fill(client, COUNT, 0, 0);
    struct plasmon_arg arg        = {
               .mode = PLASMON_REDUCE, .ref = sum, .reduce_op = PLASMON_REDUCE_SUM};
    struct plasmon_call call = PLASMON_CALL_INIT;

    CLUSTER_OK(
        define(client, "one", "one(reduce(sum) f32[n] y, i64 n := n)",
               "void one(float *y, long n) { for (long i = 0; i < n; i++) y[i] += 1; }"));
    call.function  = "one";
    call.args      = &arg;
    call.arg_count = 1;
    for (int i = 0; i < 20; i++) {
        call.device = i % 2;
        CLUSTER_OK(plasmon_submit(client, &call, NULL, NULL));
    }
    cluster_expect_all(client, sum, COUNT, 20);
    arg.reduce_op = PLASMON_REDUCE_MAX;
    ASSERT_STATUS(plasmon_submit(client, &call, NULL, NULL), PLASMON_EINVAL);
    plasmon_finish(client);
}

TEST(cuda_text_alone_finds_no_device_here)
{
    struct plasmon_client *client = cluster_start(1);
    struct plasmon_ref *x         = cluster_put(client, COUNT, 0, 0);
    struct plasmon_ref *y         = cluster_put(client, COUNT, 0, 0);

    CLUSTER_OK(plasmon_function_source(client, "saxpy", "__global__ void saxpy() {}",
                                       saxpy_signature, NULL));
    CLUSTER_OK(saxpy(client, y, x, 1, PLASMON_ANYWHERE));
    expect_failed(client, y, PLASMON_ENOTSUP, "saxpy", "give it C text");
    ASSERT_STATUS(plasmon_function_wait(client, "saxpy", CLUSTER_WAIT_MS), PLASMON_ENOTSUP);
    plasmon_finish(client);
}

TEST(a_worker_that_was_replaced_is_told_again)
{
    struct plasmon_client *client = cluster_start(1);
    struct plasmon_ref *x         = cluster_put(client, COUNT, 0, 0);
    struct plasmon_ref *y         = cluster_fill(client, COUNT, 1, 0);

    CLUSTER_OK(define(client, "saxpy", saxpy_signature, saxpy_text));
    CLUSTER_OK(saxpy(client, y, x, 1, 0));
    cluster_expect_ramp(client, y, COUNT, 1, 1);
    cluster_kill(cluster_worker(client, 0));
    CLUSTER_OK(saxpy(client, y, x, 2, 0));
    cluster_expect_ramp(client, y, COUNT, 1, 3);
    plasmon_finish(client);
}

/* A compiler that writes down each text, and takes its time: until somebody says go. */
struct slow {
    char dir[64];
    char compiler[128], count[128], go[128];
};

static void slow_begin(struct slow *slow)
{
    char cache[128];
    FILE *file;

    (void)snprintf(slow->dir, sizeof(slow->dir), "/tmp/plasmon-slow-XXXXXX");
    ASSERT_TRUE(mkdtemp(slow->dir) != NULL);
    (void)snprintf(slow->compiler, sizeof(slow->compiler), "%s/cc", slow->dir);
    (void)snprintf(slow->count, sizeof(slow->count), "%s/count", slow->dir);
    (void)snprintf(slow->go, sizeof(slow->go), "%s/go", slow->dir);
    (void)snprintf(cache, sizeof(cache), "%s/cache", slow->dir);
    file = fopen(slow->compiler, "we");
    ASSERT_TRUE(file != NULL);
    (void)fprintf(file,
                  "#!/bin/sh\ncase \"$*\" in *' -S '*) echo >>%s\n"
                  "while [ -d %s ] && [ ! -e %s ]; do sleep .02; done ;; esac\n"
                  "exec cc \"$@\"\n",
                  slow->count, slow->dir, slow->go);
    ASSERT_EQ(fchmod(fileno(file), 0700), 0);
    ASSERT_EQ(fclose(file), 0);
    ASSERT_EQ(setenv("PLASMON_CC", slow->compiler, 1), 0);
    ASSERT_EQ(setenv("PLASMON_CACHE_DIR", cache, 1), 0);
}

static void slow_go(const struct slow *slow)
{
    FILE *file = fopen(slow->go, "we");

    ASSERT_TRUE(file != NULL);
    ASSERT_EQ(fclose(file), 0);
}

/* How many texts it was given. */
static long slow_count(const struct slow *slow)
{
    struct stat at;

    return stat(slow->count, &at) == 0 ? (long)at.st_size : 0;
}

static void slow_wait(const struct slow *slow)
{
    for (unsigned i = 0; slow_count(slow) == 0; i++) {
        ASSERT_TRUE(i < CLUSTER_WAIT_MS / 20);
        (void)poll(NULL, 0, 20);
    }
}

static void slow_end(const struct slow *slow)
{
    char command[160];

    (void)snprintf(command, sizeof(command), "rm -rf '%s'", slow->dir);
    ASSERT_EQ(system(command), 0);
}

TEST(a_text_is_compiled_once_for_all_workers_of_a_host)
{
    struct plasmon_client *client;
    struct plasmon_ref *x, *y[2];
    struct slow slow;

    slow_begin(&slow);
    client = cluster_start(2);
    CLUSTER_OK(define(client, "saxpy", saxpy_signature, saxpy_text));
    x = cluster_put(client, COUNT, 0, 0);
    for (int i = 0; i < 2; i++) {
        y[i] = cluster_fill(client, COUNT, 1, i);
        CLUSTER_OK(saxpy(client, y[i], x, 2, i));
    }
    slow_wait(&slow);
    (void)poll(NULL, 0, 300); /* for the other one to come as far */
    slow_go(&slow);
    for (int i = 0; i < 2; i++) {
        cluster_expect_ramp(client, y[i], COUNT, 1, 2);
    }
    ASSERT_EQ(slow_count(&slow), 1);
    plasmon_finish(client);
    slow_end(&slow);
}

TEST(what_is_being_compiled_when_its_worker_dies_is_not_begun_again)
{
    struct plasmon_client *client;
    struct plasmon_ref *x, *y;
    struct slow slow;

    test_expect_log(); /* that a worker was killed */
    slow_begin(&slow);
    client = cluster_start(1);
    x      = cluster_put(client, COUNT, 0, 0);
    y      = cluster_fill(client, COUNT, 1, 0);
    CLUSTER_OK(plasmon_wait(client, &y, 1, 1, CLUSTER_WAIT_MS, NULL, NULL));
    CLUSTER_OK(define(client, "saxpy", saxpy_signature, saxpy_text));
    CLUSTER_OK(saxpy(client, y, x, 2, 0));
    slow_wait(&slow);
    cluster_kill(cluster_worker(client, 0));
    (void)cluster_worker(client, 0); /* the next one is there */
    (void)poll(NULL, 0, 300);        /* and asks for it, too */
    slow_go(&slow);
    cluster_expect_ramp(client, y, COUNT, 1, 2);
    ASSERT_EQ(slow_count(&slow), 1);
    plasmon_finish(client);
    slow_end(&slow);
}

TEST(graphs_and_index_launches_take_defined_functions)
{
    struct plasmon_client *client = cluster_start(2);
    struct plasmon_ref *x         = cluster_put(client, COUNT, 0, 0);
    struct plasmon_ref *y         = cluster_fill(client, COUNT, 1, 0);
    struct plasmon_graph *graph;

    CLUSTER_OK(define(client, "saxpy", saxpy_signature, saxpy_text));
    CLUSTER_OK(plasmon_graph_begin(client, &graph));
    for (int i = 0; i < 5; i++) {
        CLUSTER_OK(saxpy(client, y, x, 1, PLASMON_ANYWHERE));
    }
    CLUSTER_OK(plasmon_graph_end(client, graph));
    for (int i = 0; i < 4; i++) {
        CLUSTER_OK(plasmon_graph_launch(client, graph, NULL, 0, NULL, 0, NULL));
    }
    cluster_expect_ramp(client, y, COUNT, 1, 20);
    CLUSTER_OK(plasmon_graph_release(client, graph));
    plasmon_finish(client);
}

/* A private cluster of CPU devices (0: as many as ever) with the folder of the tests' libraries. */
static struct plasmon_client *start_with_libraries(uint32_t cpu_devices)
{
    struct plasmon_options options = PLASMON_OPTIONS_INIT;
    struct plasmon_client *client;

    cluster_tag();
    options.gpus        = "none";
    options.cpu_devices = cpu_devices;
    options.library_dir = TEST_LIBRARY_DIR;
    CLUSTER_OK(plasmon_init(&options, &client));
    return client;
}

TEST(a_library_runs_from_its_folder_and_from_nowhere_else)
{
    struct plasmon_client *client = start_with_libraries(0);
    struct plasmon_shape shape    = {PLASMON_F64, 1, {4}};
    double values[]               = {1, 2, 3, 4};
    struct plasmon_arg arg        = {.mode = PLASMON_INOUT};
    plasmon_scalar_t factor       = {.f = 3};
    struct plasmon_call call      = PLASMON_CALL_INIT;

    CLUSTER_OK(plasmon_function_library(client, "scale", TEST_LIBRARY_NAME, "scale_entry",
                                        "scale(inout f64[n] x, f64 a)"));
    CLUSTER_OK(plasmon_function_library(client, "escape", "../../../../../../bin/sh",
                                        "main", "escape(inout f64[n] x, f64 a)"));
    CLUSTER_OK(plasmon_put(client, values, &shape, NULL, &arg.ref));
    call.function     = "scale";
    call.args         = &arg;
    call.arg_count    = 1;
    call.scalars      = &factor;
    call.scalar_count = 1;
    CLUSTER_OK(plasmon_submit(client, &call, NULL, NULL));
    CLUSTER_OK(plasmon_get(client, arg.ref, values, sizeof(values), CLUSTER_WAIT_MS));
    ASSERT_TRUE(values[0] == 3 && values[3] == 12);
    factor.f = -1;
    CLUSTER_OK(plasmon_submit(client, &call, NULL, NULL));
    expect_failed(client, arg.ref, PLASMON_EFUNCTION, "scale answered 2", "-1 is negative");
    ASSERT_TRUE(plasmon_function_wait(client, "escape", CLUSTER_WAIT_MS) != PLASMON_OK);
    plasmon_finish(client);

    client = cluster_start(1); /* without a folder */
    CLUSTER_OK(plasmon_function_library(client, "scale", TEST_LIBRARY_NAME, "scale_entry",
                                        "scale(inout f64[n] x, f64 a)"));
    ASSERT_STATUS(plasmon_function_wait(client, "scale", CLUSTER_WAIT_MS), PLASMON_EPERM);
    ASSERT_CONTAINS(plasmon_error(client), "--library-dir");
    plasmon_finish(client);
}

TEST(who_waits_for_a_function_too_shortly_is_told_what_it_does)
{
    struct plasmon_source_options options = PLASMON_SOURCE_OPTIONS_INIT;
    struct plasmon_client *client         = cluster_start(1);

    options.c_text = "void slow(float *x) { x[0] = 5; }";
    CLUSTER_OK(
        plasmon_function_source(client, "slow", NULL, "slow(inout f32[n] x)", &options));
    ASSERT_STATUS(plasmon_function_wait(client, "slow", 0), PLASMON_ETIMEDOUT);
    ASSERT_CONTAINS(plasmon_error(client), "no device has said yet that it built slow");
    plasmon_finish(client);
}

/* A function of one array, by its name in bad.so, is called with that one. */
static void call_bad(struct plasmon_client *client, const char *name, const char *signature,
                     struct plasmon_ref *ref)
{
    struct plasmon_call call = PLASMON_CALL_INIT;
    struct plasmon_arg arg   = {.mode = PLASMON_INOUT, .ref = ref};

    CLUSTER_OK(plasmon_function_library(client, name, "bad.so", name, signature));
    call.function  = name;
    call.args      = &arg;
    call.arg_count = 1;
    CLUSTER_OK(plasmon_submit(client, &call, NULL, NULL));
}

TEST(what_a_library_says_need_not_be_utf8)
{
    struct plasmon_client *client = start_with_libraries(0);
    struct plasmon_ref *ref       = cluster_put(client, COUNT, 0, 0);

    call_bad(client, "says_latin1", "says_latin1(inout f32[n] x)", ref);
    expect_failed(client, ref, PLASMON_EFUNCTION, "says_latin1 answered 1",
                  "caf? is closed");
    plasmon_finish(client);
}

/* Not its devices, which are given up when their workers die again and again. */
TEST(a_library_that_ends_its_worker_when_it_is_loaded_fails_and_nothing_else)
{
    struct plasmon_client *client = start_with_libraries(1);
    struct plasmon_ref *x         = cluster_put(client, COUNT, 0, 0);
    struct plasmon_ref *ref       = cluster_put(client, COUNT, 0, 0);
    struct plasmon_call call      = PLASMON_CALL_INIT;
    struct plasmon_arg arg        = {.mode = PLASMON_INOUT, .ref = x};
    plasmon_scalar_t factor       = {.f = 3};

    call_bad(client, "crashes", "crashes(inout f32[n] x)", ref);
    expect_failed(client, ref, PLASMON_EWORKER, "crashes: bad.so ended 2 workers",
                  "crashes_prepare");
    ASSERT_STATUS(plasmon_function_wait(client, "crashes", CLUSTER_WAIT_MS),
                  PLASMON_EWORKER);
    cluster_expect_ramp(client, x, COUNT, 0, 1);

    call.function     = "multiply_in_place";
    call.args         = &arg;
    call.arg_count    = 1;
    call.scalars      = &factor;
    call.scalar_count = 1;
    CLUSTER_OK(plasmon_function_library(client, "multiply_in_place", "bad.so", "multiply",
                                        "multiply_in_place(inout f32[n] x, f64 a)"));
    CLUSTER_OK(plasmon_submit(client, &call, NULL, NULL));
    cluster_expect_ramp(client, x, COUNT, 0, 3);
    plasmon_finish(client);
}

/* Not two workers for each of them: ten in a minute are a device. */
TEST(a_library_that_ends_who_opens_it_does_so_twice_for_all_of_its_functions)
{
    struct plasmon_client *client = start_with_libraries(1);
    struct plasmon_ref *x         = cluster_put(client, COUNT, 0, 0);
    char name[16], signature[64];

    for (int i = 0; i < 7; i++) {
        (void)snprintf(name, sizeof(name), "ends%d", i);
        (void)snprintf(signature, sizeof(signature), "%s(inout f32[n] x)", name);
        CLUSTER_OK(
            plasmon_function_library(client, name, "ends.so", "anything", signature));
    }
    for (int i = 0; i < 7; i++) {
        (void)snprintf(name, sizeof(name), "ends%d", i);
        ASSERT_STATUS(plasmon_function_wait(client, name, CLUSTER_WAIT_MS),
                      PLASMON_EWORKER);
        ASSERT_CONTAINS(plasmon_error(client), "ends.so ended 2 workers");
    }
    cluster_expect_ramp(client, x, COUNT, 0, 1);
    plasmon_finish(client);
}

TEST(a_session_may_define_a_thousand_and_no_text_over_a_mebibyte)
{
    struct plasmon_client *client = cluster_start(1);
    char name[32], signature[64];
    char *large = malloc((1u << 20) + 2);

    ASSERT_TRUE(large != NULL);
    for (int i = 0; i < 1024; i++) {
        (void)snprintf(name, sizeof(name), "f%d", i);
        (void)snprintf(signature, sizeof(signature), "f%d(in f32[n] x)", i);
        CLUSTER_OK(define(client, name, signature, "x"));
    }
    ASSERT_STATUS(define(client, "more", "more(in f32[n] x)", "x"), PLASMON_ELIMIT);
    memset(large, ' ', (1u << 20) + 1);
    large[(1u << 20) + 1] = '\0';
    ASSERT_STATUS(define(client, "large", "large(in f32[n] x)", large), PLASMON_ELIMIT);
    free(large);
    plasmon_finish(client);
}

/* ------------------------------------------------------------------------------- checks */

static struct plasmon_client *checked(void)
{
    struct plasmon_options options = PLASMON_OPTIONS_INIT;
    struct plasmon_client *client;

    cluster_tag();
    options.gpus            = "none";
    options.cpu_devices     = 1;
    options.check_functions = 1;
    CLUSTER_OK(plasmon_init(&options, &client));
    return client;
}

/* y = f(x), new; or z += x as well when z is not NULL. */
static struct plasmon_ref *apply(struct plasmon_client *client, const char *name,
                                 struct plasmon_ref *x, struct plasmon_ref *z)
{
    struct plasmon_arg args[] = {{.mode = PLASMON_OUT},
                                 {.mode = PLASMON_IN, .ref = x},
                                 {.mode = PLASMON_INOUT, .ref = z}};
    struct plasmon_call call  = PLASMON_CALL_INIT;
    struct plasmon_ref *y;

    call.function  = name;
    call.args      = args;
    call.arg_count = z == NULL ? 2 : 3;
    CLUSTER_OK(plasmon_submit(client, &call, &y, NULL));
    return y;
}

/* What the head has functions do by itself reads where it lies, and is not checked: it is done all the same. */
TEST(with_checks_parts_are_joined_and_members_reduced)
{
    struct plasmon_client *client = checked();
    struct plasmon_ref *x         = cluster_put(client, COUNT, 1, 0);
    struct plasmon_ref *y = cluster_put(client, COUNT, 0, 0), *sum[2], *kept[2], *copy;
    struct plasmon_ref *const members[] = {x, y};

    CLUSTER_OK(plasmon_all_reduce(client, PLASMON_REDUCE_SUM, members, 2, NULL, sum, NULL));
    cluster_expect_ramp(client, sum[0], COUNT, 1, 2);
    cluster_expect_ramp(client, sum[1], COUNT, 1, 2);
    for (int64_t i = 0; i < 2; i++) { /* in two buffers, for each is kept as it was */
        struct plasmon_ref *half, *other;
        int64_t first = i * (COUNT / 2), count = COUNT / 2;

        CLUSTER_OK(plasmon_snapshot(client, y, &kept[i]));
        CLUSTER_OK(plasmon_view(client, y, &first, &count, NULL, &half));
        CLUSTER_OK(plasmon_view(client, x, &first, &count, NULL, &other));
        CLUSTER_OK(cluster_axpy(client, half, other, 1, 0));
    }
    copy = cluster_copy(client, y, 0);
    cluster_expect_ramp(client, copy, COUNT, 1, 2);
    plasmon_finish(client);
}

TEST(checks_find_an_input_that_is_written_and_an_output_that_is_not)
{
    struct plasmon_client *client = checked();
    struct plasmon_ref *x         = cluster_put(client, COUNT, 1, 0);
    struct plasmon_ref *z         = cluster_put(client, COUNT, 0, 0);

    CLUSTER_OK(define(
        client, "good", "good(out f32[n] y, in f32[n] x, inout f32[n] z, i64 n := n)",
        "void good(float *y, const float *x, float *z, long n)\n"
        "{ for (long i = 0; i < n; i++) { z[i] += x[i]; y[i] = 2 * x[i]; } }"));
    CLUSTER_OK(define(client, "writes", "writes(out f32[n] y, in f32[n] x, i64 n := n)",
                      "void writes(float *y, float *x, long n)\n"
                      "{ for (long i = 0; i < n; i++) y[i] = x[i]; x[n - 1] = 0; }"));
    CLUSTER_OK(define(client, "misses", "misses(out f32[n] y, in f32[n] x, i64 n := n)",
                      "void misses(float *y, const float *x, long n)\n"
                      "{ for (long i = 1; i < n; i++) y[i] = x[i]; }"));
    cluster_expect_ramp(client, apply(client, "good", x, z), COUNT, 2, 2);
    cluster_expect_ramp(client, z, COUNT, 1, 2); /* added once, though it ran twice */
    expect_failed(client, apply(client, "misses", x, NULL), PLASMON_EFUNCTION,
                  "check: misses left elements of y unwritten", "");
    expect_failed(client, apply(client, "writes", x, NULL), PLASMON_EFUNCTION,
                  "check: writes wrote into x", "in");
    plasmon_finish(client);
}

TEST(checks_have_nothing_against_built_in_functions)
{
    struct plasmon_client *client = checked();
    struct plasmon_ref *x         = cluster_put(client, COUNT, 1, 0);
    struct plasmon_ref *y         = cluster_fill(client, COUNT, 2, 0);
    struct plasmon_ref *part, *copy;
    const int64_t start = 1, count = COUNT / 2, step = 2;

    CLUSTER_OK(cluster_axpy(client, y, x, 1, 0));
    cluster_expect_ramp(client, y, COUNT, 3, 1);
    CLUSTER_OK(plasmon_view(client, y, &start, &count, &step, &part));
    copy = cluster_copy(client, part, 0); /* an input with gaps */
    cluster_expect_ramp(client, copy, COUNT / 2, 4, 2);
    plasmon_finish(client);
}

TEST_MAIN()
