/*
 * Kernels that must not go on, on a GPU: one that never ends and has a limit, one that is ended by
 * force, and one that faults. The task fails by name; sealed objects and the other work of the
 * device live on. With PLASMON_LIMITS_CPU set the first two run on a CPU device.
 */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/clock.h"
#include "tests/integration/cluster.h"
#include "tests/integration/started.h"

#define COUNT   (1 << 17) /* so that sums are exact in a float */
#define STEPS   100
#define FOREVER 3600000000ll
#define WAIT_MS 60000u

static void px_ok(struct plasmon_client *px, plasmon_status_t status, const char *what,
                  int line)
{
    if (status != PLASMON_OK) {
        test_fail(__FILE__, line, "%s: %s: %s", what, plasmon_status_name(status),
                  plasmon_error(px));
    }
}
#define PX_OK(px, call) px_ok(px, call, #call, __LINE__)

static struct plasmon_client *start(bool gpu_only)
{
    struct plasmon_options options = PLASMON_OPTIONS_INIT;
    bool cpu                       = getenv("PLASMON_LIMITS_CPU") != NULL;
    struct plasmon_device_info infos[16];
    struct plasmon_client *px;
    uint32_t count;

    cluster_tag();
    test_set_timeout(300);
    if (cpu && gpu_only) {
        test_skip("only on a GPU");
    }
    options.gpus        = cpu ? "none" : NULL;
    options.cpu_devices = 1;
    PX_OK(NULL, plasmon_init(&options, &px));
    PX_OK(px, plasmon_devices(px, infos, 16, &count));
    if (!cpu && (count == 0 || infos[0].kind != 2)) {
        plasmon_finish(px);
        test_skip("no GPU");
    }
    return px;
}

static struct plasmon_ref *call_inout(struct plasmon_client *px, const char *function,
                                      struct plasmon_ref *x, int64_t scalar,
                                      uint32_t limit_ms, int retries)
{
    struct plasmon_arg arg   = {.mode = PLASMON_INOUT, .ref = x};
    plasmon_scalar_t value   = {.i = scalar};
    struct plasmon_call call = PLASMON_CALL_INIT;
    struct plasmon_ref *task;

    call.function      = function;
    call.args          = &arg;
    call.arg_count     = 1;
    call.scalars       = &value;
    call.scalar_count  = scalar != 0;
    call.device        = 0;
    call.label         = "bad one";
    call.retries       = retries;
    call.time_limit_ms = limit_ms;
    PX_OK(px, plasmon_submit(px, &call, NULL, &task));
    return task;
}

static void expect_ends(struct plasmon_client *px, struct plasmon_ref *ref,
                        plasmon_status_t status)
{
    PX_OK(px, plasmon_wait(px, &ref, 1, 1, WAIT_MS, NULL, NULL));
    if (plasmon_state(px, ref) != status) {
        printf("# it ended with: %s\n", plasmon_error(px));
    }
    ASSERT_STATUS(plasmon_state(px, ref), status);
}

TEST(an_endless_kernel_ends_at_its_limit_and_nothing_else_does)
{
    struct plasmon_client *px = start(false);
    struct plasmon_ref *kept  = cluster_put(px, COUNT, 5, 0);
    struct plasmon_ref *x     = cluster_fill(px, COUNT, 0, 0);
    struct plasmon_ref *y     = cluster_fill(px, COUNT, 1, 0);
    struct plasmon_ref *z     = cluster_fill(px, COUNT, 2, 0);
    struct plasmon_ref *task;

    PX_OK(px, plasmon_wait(px, (struct plasmon_ref *[]){kept, x, y, z}, 4, 4, WAIT_MS, NULL,
                           NULL));
    task = call_inout(px, "spin", x, FOREVER, 400, -1);
    for (int i = 0; i < STEPS;
         i++) { /* beside it and, by their number, behind it: in place, once each */
        PX_OK(px, cluster_axpy(px, y, kept, 1, 0));
        PX_OK(px, cluster_axpy(px, z, kept, 1, 0));
    }
    expect_ends(px, task, PLASMON_ETIMELIMIT);
    ASSERT_CONTAINS(plasmon_error(px), "400 ms");
    ASSERT_CONTAINS(plasmon_error(px), "spin");
    cluster_expect_ramp(px, y, COUNT, 1 + STEPS * 5, STEPS);
    cluster_expect_ramp(px, z, COUNT, 2 + STEPS * 5, STEPS);
    cluster_expect_ramp(px, kept, COUNT, 5, 1);
    cluster_expect_all(px, cluster_fill(px, COUNT, 9, 0), COUNT, 9);
    plasmon_finish(px);
}

TEST(a_running_kernel_is_ended_by_force)
{
    struct plasmon_client *px = start(false);
    struct plasmon_ref *kept  = cluster_put(px, COUNT, 5, 0);
    struct plasmon_ref *x     = cluster_fill(px, COUNT, 0, 0), *task;

    PX_OK(px, plasmon_wait(px, &x, 1, 1, WAIT_MS, NULL, NULL));
    task = call_inout(px, "spin", x, FOREVER, 0, -1);
    ASSERT_STATUS(plasmon_wait(px, &task, 1, 1, 500, NULL, NULL), PLASMON_ETIMEDOUT);
    PX_OK(px, plasmon_cancel_force(px, task));
    expect_ends(px, task, PLASMON_ECANCELLED);
    cluster_expect_ramp(px, kept, COUNT, 5, 1);
    cluster_expect_all(px, cluster_fill(px, COUNT, 9, 0), COUNT, 9);
    plasmon_finish(px);
}

/* It writes only what it makes, so it can be tried again; the others are never charged. */
TEST(a_kernel_that_faults_is_blamed_and_the_others_run)
{
    struct plasmon_client *px  = start(true);
    struct plasmon_ref *kept   = cluster_put(px, COUNT, 5, 0);
    struct plasmon_shape shape = cluster_vector(PLASMON_F32, 16);
    struct plasmon_arg arg     = {.mode = PLASMON_OUT, .shape = &shape};
    struct plasmon_call call   = PLASMON_CALL_INIT;
    struct plasmon_ref *others[20], *made, *task;

    call.function  = "test_illegal";
    call.args      = &arg;
    call.arg_count = 1;
    call.device    = 0;
    call.label     = "bad one";
    call.retries   = 1;
    PX_OK(px, plasmon_submit(px, &call, &made, &task));
    for (int i = 0; i < 20; i++) {
        others[i] = cluster_fill(px, COUNT, i, 0);
    }
    expect_ends(px, task, PLASMON_EDEVICE);
    ASSERT_CONTAINS(plasmon_error(px), "bad one");
    ASSERT_CONTAINS(plasmon_error(px), "test_illegal");
    for (int i = 0; i < 20; i++) {
        cluster_expect_all(px, others[i], COUNT, (float)i);
    }
    cluster_expect_ramp(px, kept, COUNT, 5, 1);
    plasmon_finish(px);
}

/*
 * The kernel marks the launch in the timeline before the word, so the next worker knows although
 * the record died with this one.
 */
TEST(a_failure_that_its_worker_did_not_live_to_tell_is_a_failure)
{
    struct plasmon_shape shape = {PLASMON_F32, 2, {8, 8}};
    float data[64]             = {0};
    bool told                  = true;
    struct plasmon_client *px;
    struct plasmon_ref *matrix;

    /* A worker dies of the second failure that it takes from its device. */
    ASSERT_EQ(setenv("PLASMON_FAULT", "worker.die_of_failure:1", 1), 0);
    test_expect_log();
    px = start(true);
    for (int i = 0; i < 8; i++) {
        data[9 * i] = -4;
    }
    PX_OK(px, plasmon_put(px, data, &shape, NULL, &matrix));
    for (int i = 0; i < 100 && told; i++) {
        struct plasmon_arg args[] = {{.mode = PLASMON_OUT},
                                     {.mode = PLASMON_IN, .ref = matrix}};
        struct plasmon_call call  = PLASMON_CALL_INIT;
        struct plasmon_ref *root;
        plasmon_status_t status;

        call.function  = "cholesky";
        call.args      = args;
        call.arg_count = 2;
        call.device    = 0;
        PX_OK(px, plasmon_submit(px, &call, &root, NULL));
        status = plasmon_get(px, root, data, sizeof(data), WAIT_MS);
        told   = status == PLASMON_ESINGULAR;
        if (!told) {
            printf("# call %d ended with: %s\n", i, plasmon_error(px));
            ASSERT_STATUS(status, PLASMON_EWORKER);
            ASSERT_CONTAINS(plasmon_error(px), "had failed when its worker died");
        }
        PX_OK(px, plasmon_release(px, root));
    }
    if (told) {
        test_skip("this build has no fault points");
    }
    plasmon_finish(px);
    cluster_expect_gone(WAIT_MS);
}

/*
 * Calls of a library that put hundreds of kernels each into a stream: if more went in than a stream
 * takes, the worker would sit in a call of the driver until most of them are over, and be taken for
 * stuck. Twice, for the first calls bring the library.
 */
TEST(long_queues_of_heavy_calls_do_not_hold_up_the_worker)
{
    enum { CALLS = 300, N = 1024 };
    struct plasmon_shape shape = {PLASMON_F32, 2, {N, N}};
    float *data                = malloc(sizeof(*data) * N * N);
    struct plasmon_client *px;
    struct plasmon_ref *matrix, *tasks[CALLS];
    uint64_t slowest_ns = 0;
    char target[160];

    plasmon_finish(start(true)); /* skips without a GPU */
    test_set_timeout(240);
    started_begin();
    (void)snprintf(target, sizeof(target), "unix:%s/h.sock", cluster_folder());
    (void)STARTED_DAEMON("head.log", "plasmon-head", "--listen", target);
    (void)STARTED_DAEMON("store.log", "plasmon-store", "--head", target, "--gpus", "1",
                         "--cpu-devices", "0", "--socket-dir", cluster_folder(),
                         "--bulk-address", "none", "--worker-lease", "2000");
    px = started_join_knowing(target, 1);
    for (int i = 0; i < N * N; i++) {
        data[i] = (float)(i % 1013 * 7919 % 1013) / 1013 + (i % (N + 1) == 0 ? 4 : 0);
    }
    PX_OK(px, plasmon_put(px, data, &shape, NULL, &matrix));
    free(data);
    for (int round = 0; round < 2; round++) {
        uint64_t begin = pl_now_ns();

        for (int i = 0; i < CALLS; i++) {
            struct plasmon_arg args[]   = {{.mode = PLASMON_OUT},
                                           {.mode = PLASMON_OUT},
                                           {.mode = PLASMON_IN, .ref = matrix}};
            struct plasmon_call call    = PLASMON_CALL_INIT;
            struct plasmon_ref *made[2] = {NULL, NULL};

            call.function  = "qr";
            call.args      = args;
            call.arg_count = 3;
            call.device    = 0;
            PX_OK(px, plasmon_submit(px, &call, made, &tasks[i]));
            PX_OK(px, plasmon_release(px, made[0]));
            PX_OK(px, plasmon_release(px, made[1]));
        }
        while (plasmon_wait(px, &tasks[CALLS - 1], 1, 1, 20, NULL, NULL) != PLASMON_OK) {
            uint64_t asked = pl_now_ns();
            char *text;

            PX_OK(px, plasmon_status_json(px, &text));
            free(text);
            slowest_ns = pl_max_u64(slowest_ns, pl_now_ns() - asked);
        }
        printf("# %d calls in %.0f ms; a status in at most %.0f ms\n", CALLS,
               (double)(pl_now_ns() - begin) / 1e6, (double)slowest_ns / 1e6);
        for (int i = 0; i < CALLS; i++) {
            expect_ends(px, tasks[i], PLASMON_OK);
            PX_OK(px, plasmon_release(px, tasks[i]));
        }
    }
    ASSERT_TRUE(slowest_ns < UINT64_C(1000000000));
    {
        char *text;

        PX_OK(px, plasmon_status_json(px, &text));
        ASSERT_CONTAINS(text, "\"restarts\":0");
        free(text);
    }
    plasmon_finish(px);
}

TEST_MAIN()
