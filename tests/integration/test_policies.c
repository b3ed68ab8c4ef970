/*
 * Placement and priorities choose where and when, and never what comes out: one program, with every
 * policy and with priorities drawn anew each time, gives the same bits.
 */
#include <stdlib.h>

#include "tests/integration/cluster.h"

enum { ARRAYS = 6, N = 2048, STEPS = 200, DEVICES = 3 };

static uint32_t random_next(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static struct plasmon_client *start(const char *policy)
{
    struct plasmon_options options = PLASMON_OPTIONS_INIT;
    struct plasmon_client *client;

    cluster_tag();
    options.cpu_devices = DEVICES;
    options.gpus        = "none";
    options.policy      = policy;
    CLUSTER_OK(plasmon_init(&options, &client));
    return client;
}

/* A program drawn from `seed`; what comes out depends on the order of its steps. */
static void program(struct plasmon_client *client, uint32_t seed, uint32_t priority_seed,
                    float out[ARRAYS][N])
{
    struct plasmon_ref *x[ARRAYS];
    struct plasmon_call call = PLASMON_CALL_INIT;

    for (int i = 0; i < ARRAYS; i++) {
        x[i] = cluster_put(client, N, (float)i, PLASMON_ANYWHERE);
    }
    for (int step = 0; step < STEPS; step++) {
        uint32_t y                = random_next(&seed) % ARRAYS;
        uint32_t z                = (y + 1 + random_next(&seed) % (ARRAYS - 1)) % ARRAYS;
        struct plasmon_arg args[] = {{.mode = PLASMON_INOUT, .ref = x[y]},
                                     {.mode = PLASMON_IN, .ref = x[z]}};
        plasmon_scalar_t scalar   = {.f = (double)(random_next(&seed) % 5) * 0.125 - 0.25};

        call.function     = "axpy";
        call.args         = args;
        call.arg_count    = 2;
        call.scalars      = &scalar;
        call.scalar_count = 1;
        call.priority     = (int)(random_next(&priority_seed) % 3) - 1;
        call.device =
            random_next(&seed) % 8 == 0 ? (int)(step % DEVICES) : PLASMON_ANYWHERE;
        CLUSTER_OK(plasmon_submit(client, &call, NULL, NULL));
    }
    for (int i = 0; i < ARRAYS; i++) {
        CLUSTER_OK(plasmon_get(client, x[i], out[i], sizeof(out[i]), CLUSTER_WAIT_MS));
        CLUSTER_OK(plasmon_release(client, x[i]));
    }
}

TEST(no_policy_and_no_priority_changes_a_result)
{
    static const char *const policies[] = {"auto", "locality", "round-robin", "pinned"};
    static float expected[ARRAYS][N], seen[ARRAYS][N];

    for (size_t p = 0; p < sizeof(policies) / sizeof(policies[0]); p++) {
        struct plasmon_client *client = start(policies[p]);

        for (uint32_t round = 0; round < 3; round++) {
            program(client, 77, (uint32_t)p * 100 + round, seen);
            if (p == 0 && round == 0) {
                memcpy(expected, seen, sizeof(expected));
            }
            ASSERT_TRUE(memcmp(expected, seen, sizeof(expected)) == 0);
        }
        plasmon_finish(client);
    }
}

static unsigned on_device(struct plasmon_client *client, int device, unsigned *out_count)
{
    static struct plasmon_span spans[1000];
    unsigned found = 0;
    size_t count;

    CLUSTER_OK(plasmon_timeline_spans(client, spans, 1000, &count, NULL));
    *out_count = 0;
    for (size_t i = 0; i < count; i++) {
        *out_count += spans[i].kind == PLASMON_SPAN_RUN;
        found += spans[i].kind == PLASMON_SPAN_RUN && (int)spans[i].device == device;
    }
    return found;
}

TEST(pinned_runs_everything_on_device_0_but_what_has_a_hint)
{
    struct plasmon_client *client = start("pinned");
    struct plasmon_ref *x[20];
    unsigned count;

    CLUSTER_OK(plasmon_timeline_start(client, NULL));
    for (int i = 0; i < 20; i++) {
        x[i] = cluster_fill(client, 16, i, i == 7 ? 2 : PLASMON_ANYWHERE);
    }
    CLUSTER_OK(plasmon_wait(client, x, 20, 20, CLUSTER_WAIT_MS, NULL, NULL));
    CLUSTER_OK(plasmon_timeline_stop(client));
    ASSERT_EQ(on_device(client, 0, &count), 19);
    ASSERT_EQ(on_device(client, 2, &count), 1);
    ASSERT_EQ(count, 20);
    plasmon_finish(client);
}

TEST(round_robin_uses_every_device)
{
    struct plasmon_client *client = start("round-robin");
    struct plasmon_ref *x[21];
    unsigned count;

    CLUSTER_OK(plasmon_timeline_start(client, NULL));
    for (int i = 0; i < 21; i++) {
        x[i] = cluster_fill(client, 16, i, PLASMON_ANYWHERE);
    }
    CLUSTER_OK(plasmon_wait(client, x, 21, 21, CLUSTER_WAIT_MS, NULL, NULL));
    CLUSTER_OK(plasmon_timeline_stop(client));
    for (int device = 0; device < DEVICES; device++) {
        ASSERT_EQ(on_device(client, device, &count), 7);
    }
    plasmon_finish(client);
}

/*
 * A long queue of other work on the device does not keep an urgent task waiting: it has a stream of
 * its own.
 */
TEST(an_urgent_task_does_not_queue_behind_others)
{
    struct plasmon_client *client = start(NULL);
    struct plasmon_ref *busy[8], *x, *urgent, *last;
    struct plasmon_arg arg   = {.mode = PLASMON_INOUT};
    plasmon_scalar_t scalar  = {.i = 100000};
    struct plasmon_call call = PLASMON_CALL_INIT;

    call.function     = "spin";
    call.args         = &arg;
    call.arg_count    = 1;
    call.scalars      = &scalar;
    call.scalar_count = 1;
    call.device       = 0;
    x                 = cluster_fill(client, 16, 0, 0);
    CLUSTER_OK(plasmon_wait(client, &x, 1, 1, CLUSTER_WAIT_MS, NULL, NULL));
    for (int i = 0; i < 8; i++) {
        busy[i] = cluster_fill(client, 16, i, 0);
        arg.ref = busy[i];
        for (int k = 0; k < 10; k++) { /* 8 seconds of spinning, over two streams */
            CLUSTER_OK(plasmon_submit(client, &call, NULL, &last));
        }
    }
    arg.ref       = x;
    scalar.i      = 1;
    call.priority = 1;
    CLUSTER_OK(plasmon_submit(client, &call, NULL, &urgent));
    CLUSTER_OK(plasmon_wait(client, &urgent, 1, 1, CLUSTER_WAIT_MS, NULL, NULL));
    ASSERT_STATUS(plasmon_state(client, last), PLASMON_INPROGRESS);
    plasmon_finish(client);
}

/* Nor a recorded one: its launches go to that stream as its calls would. */
TEST(an_urgent_graph_does_not_queue_behind_others)
{
    struct plasmon_client *client = start(NULL);
    struct plasmon_ref *busy[8], *x, *urgent, *last;
    struct plasmon_arg arg   = {.mode = PLASMON_INOUT};
    plasmon_scalar_t scalar  = {.i = 1};
    struct plasmon_call call = PLASMON_CALL_INIT;
    struct plasmon_graph *graph;

    call.function     = "spin";
    call.args         = &arg;
    call.arg_count    = 1;
    call.scalars      = &scalar;
    call.scalar_count = 1;
    call.device       = 0;
    call.priority     = 1;
    x                 = cluster_fill(client, 16, 0, 0);
    arg.ref           = x;
    CLUSTER_OK(plasmon_graph_begin(client, &graph));
    for (int i = 0; i < 3; i++) {
        CLUSTER_OK(plasmon_submit(client, &call, NULL, NULL));
    }
    CLUSTER_OK(plasmon_graph_end(client, graph));
    CLUSTER_OK(plasmon_graph_launch(client, graph, NULL, 0, NULL, 0, &urgent));
    CLUSTER_OK(plasmon_wait(client, &urgent, 1, 1, CLUSTER_WAIT_MS, NULL, NULL));
    CLUSTER_OK(plasmon_release(client, urgent));

    call.priority = 0;
    scalar.i      = 100000;
    for (int i = 0; i < 8; i++) {
        busy[i] = cluster_fill(client, 16, i, 0);
        arg.ref = busy[i];
        for (int k = 0; k < 10; k++) { /* 8 seconds of spinning, over two streams */
            CLUSTER_OK(plasmon_submit(client, &call, NULL, &last));
        }
    }
    CLUSTER_OK(plasmon_graph_launch(client, graph, NULL, 0, NULL, 0, &urgent));
    CLUSTER_OK(plasmon_wait(client, &urgent, 1, 1, CLUSTER_WAIT_MS, NULL, NULL));
    ASSERT_STATUS(plasmon_state(client, last), PLASMON_INPROGRESS);
    plasmon_finish(client);
}

TEST(a_priority_a_number_of_retries_and_scalars_that_do_not_exist_are_refused)
{
    struct plasmon_client *client = start(NULL);
    struct plasmon_ref *x         = cluster_fill(client, 16, 0, 0);
    struct plasmon_arg arg        = {.mode = PLASMON_INOUT, .ref = x};
    plasmon_scalar_t scalar       = {.i = 1};
    struct plasmon_call call      = PLASMON_CALL_INIT;

    call.function     = "spin";
    call.args         = &arg;
    call.arg_count    = 1;
    call.scalars      = &scalar;
    call.scalar_count = 1;
    call.priority     = 2;
    ASSERT_STATUS(plasmon_submit(client, &call, NULL, NULL), PLASMON_EINVAL);
    ASSERT_CONTAINS(plasmon_error(client), "priority is 2; it is -1, 0 or 1");
    call.priority = 0;
    call.retries  = -2;
    ASSERT_STATUS(plasmon_submit(client, &call, NULL, NULL), PLASMON_EINVAL);
    ASSERT_CONTAINS(plasmon_error(client), "retries is -2");
    call.retries = -1;
    call.scalars = NULL;
    ASSERT_STATUS(plasmon_submit(client, &call, NULL, NULL), PLASMON_EINVAL);
    ASSERT_CONTAINS(plasmon_error(client), "scalars is NULL, and scalar_count 1");
    plasmon_finish(client);
}

TEST_MAIN()
