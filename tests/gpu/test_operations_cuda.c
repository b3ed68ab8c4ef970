/*
 * How many operations a call of the catalogue puts into a stream, and how many it says
 * (kernel_operations()): by recording it and counting the nodes, those of libraries too. A worker
 * that trusted a figure that is too low would block in a call of the driver. Skipped where there is
 * no GPU; tests/unit/kernels runs it on the driver without one, where cuBLAS does nothing, and
 * cuSOLVER and cuFFT are not there.
 */
#include "device/cuda/cuda_int.h"
#include "device/cuda/driver.h"
#include "tests/unit/kernels/cases.h"
#include "tests/unit/kernels/runner.h"

#include <stdio.h>

#include "tests/harness/test.h"

#define ROUNDS 6

struct count {
    struct runner runner;
    struct device_graph *graph;
    uint32_t refused; /* by a library that cannot be captured */
    uint32_t calls;
};

static void count_open(struct count *count)
{
    struct pl_err why = {0};

    if (device_count(DEVICE_CUDA, &why) == 0) {
        test_skip("no GPU: %s", why.text);
    }
    *count = (struct count){.calls = 0};
    runner_open(&count->runner, DEVICE_CUDA);
    if (device_graph_create(count->runner.device, 1, &count->graph, &why) != PLASMON_OK) {
        test_fail(__FILE__, __LINE__, "device_graph_create: %s", why.text);
    }
}

static void count_close(struct count *count)
{
    printf("# %u calls, %u could not be recorded\n", count->calls, count->refused);
    device_graph_destroy(count->graph);
    runner_close(&count->runner);
}

static uint64_t nodes_of(const struct device_exec *exec)
{
    size_t nodes = 0;

    ASSERT_OK(DEVICE_CU(
        NULL, cuGraphGetNodes(device_cuda_exec_of((struct device_exec *)exec)->graph, NULL,
                              &nodes)));
    return nodes;
}

static void count_call(const struct kernel_case *kase, struct trial *trial, void *user)
{
    struct count *count      = user;
    struct device_exec *exec = NULL;
    struct pl_err err        = {0};
    uint64_t said;
    plasmon_status_t status;

    (void)kase;
    status = runner_record(&count->runner, trial, count->graph, &exec, &said, &err);
    if (status == PLASMON_ENOLIB) { /* cuSOLVER or cuFFT is not here */
        count->refused++;
        return;
    }
    count->calls++;
    if (status != PLASMON_OK) {
        printf("# %s %s: %s\n", trial->function->name, pl_dtype_name(trial->dtype),
               err.text);
        count->refused++;
        return;
    }
    if (nodes_of(exec) > said) {
        test_fail(__FILE__, __LINE__, "%s %s: %llu operations, and it says %llu",
                  trial->function->name, pl_dtype_name(trial->dtype),
                  (unsigned long long)nodes_of(exec), (unsigned long long)said);
    }
    if (kase == NULL) {
        printf("# %s: %llu operations, at most %llu\n", trial->function->name,
               (unsigned long long)nodes_of(exec), (unsigned long long)said);
    }
    device_exec_destroy(exec);
}

TEST(no_call_has_more_operations_than_it_says)
{
    struct count count;

    test_set_timeout(300);
    count_open(&count);
    kernel_cases_each(ROUNDS, test_seed(), count_call, &count);
    ASSERT_TRUE(count.calls > 1000);
    count_close(&count);
}

/*
 * `outputs` whose shapes the rules give, then an input of m by n, or m; axis: a scalar of the call,
 * or none below 0.
 */
static void count_large(struct count *count, const char *name, uint32_t outputs, int64_t m,
                        int64_t n, int64_t axis)
{
    struct trial trial;

    trial_begin(&trial, name, PL_F32, test_seed());
    for (uint32_t i = 0; i < outputs; i++) {
        trial_out(&trial);
    }
    (void)trial_array(&trial, KERNEL_IN, PL_F32, n > 0 ? 2 : 1, (int64_t[]){m, n}, 1, 2);
    if (axis >= 0) {
        trial_i64(&trial, axis);
    }
    trial_prepare(&trial);
    count_call(NULL, &trial, count);
    trial_end(&trial);
}

TEST(nor_has_a_large_one)
{
    static const int64_t sizes[] = {33, 250, 700, 1500};
    struct count count;

    test_set_timeout(300);
    count_open(&count);
    for (size_t i = 0; i < PL_COUNT(sizes); i++) {
        int64_t n = sizes[i];

        count_large(&count, "qr", 2, n, n, -1);
        count_large(&count, "inverse", 1, n, n, -1);
        count_large(&count, "determinant", 1, n, n, -1);
        count_large(&count, "cholesky", 1, n, n, -1);
        count_large(&count, "svd", 3, n, n, -1);
        count_large(&count, "eigh", 2, n, n, -1);
        count_large(&count, "sort", 1, 1000 * n, 0, -1);
        count_large(&count, "rfft", 1, 1000 * n + 7, 0, 1);
    }
    count_large(&count, "qr", 2, 40000, 60, -1);
    count_large(&count, "qr", 2, 4000, 500, -1);
    count_large(&count, "qr", 2, 300, 2000, -1);
    count_large(&count, "sort", 1, 30, 50000, -1);
    count_large(&count, "checksum", 1, 35, 1000000,
                -1); /* over the end of a piece (device.h) */
    count_close(&count);
}

TEST_MAIN()
