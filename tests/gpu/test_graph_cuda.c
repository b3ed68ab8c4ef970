/*
 * Recorded graphs on the GPUs of this machine: bytes of replays against plain submission, on one
 * GPU and across two, with producers that are late, products (cuBLAS) inside, and scalars and
 * buffers that change; and what a node of a long chain costs, printed.
 */
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "tests/integration/cluster.h"

enum { SIDE = 96, COUNT = SIDE * SIDE, CHAIN = 10000, DEVICES_MAX = 16 };

/* A private cluster; skips unless it has `gpus` GPUs. */
static struct plasmon_client *start(uint32_t gpus)
{
    struct plasmon_options options = PLASMON_OPTIONS_INIT;
    struct plasmon_device_info infos[DEVICES_MAX];
    struct plasmon_client *client;
    uint32_t count = 0;

    cluster_tag();
    CLUSTER_OK(plasmon_init(&options, &client));
    CLUSTER_OK(plasmon_devices(client, infos, DEVICES_MAX, &count));
    if (count == 0 || infos[0].kind != 2 || count < gpus) {
        plasmon_finish(client);
        test_skip(gpus == 1 ? "no GPU" : "fewer than two GPUs");
    }
    return client;
}

static struct plasmon_ref *matrix(struct plasmon_client *client, double first, int device)
{
    struct plasmon_shape shape         = {PLASMON_F32, 2, {SIDE, SIDE}};
    struct plasmon_put_options options = PLASMON_PUT_INIT;
    float *data                        = malloc(COUNT * sizeof(float));
    struct plasmon_ref *ref;

    for (int i = 0; i < COUNT; i++) {
        data[i] = (float)(first + 0.001 * (i % 1013) - 0.5);
    }
    options.device    = device;
    options.donatable = 1;
    CLUSTER_OK(plasmon_put(client, data, &shape, &options, &ref));
    free(data);
    return ref;
}

static void submit(struct plasmon_client *client, const char *function,
                   const struct plasmon_arg *args, uint32_t arg_count,
                   const plasmon_scalar_t *scalars, uint32_t scalar_count, int device,
                   struct plasmon_ref **out_refs)
{
    struct plasmon_call call = PLASMON_CALL_INIT;

    call.function     = function;
    call.args         = args;
    call.arg_count    = arg_count;
    call.scalars      = scalars;
    call.scalar_count = scalar_count;
    call.device       = device;
    CLUSTER_OK(plasmon_submit(client, &call, out_refs, NULL));
}

static void add_to(struct plasmon_client *client, struct plasmon_ref *y,
                   struct plasmon_ref *x, double a, int device)
{
    struct plasmon_arg args[] = {{.mode = PLASMON_INOUT, .ref = y},
                                 {.mode = PLASMON_IN, .ref = x}};
    plasmon_scalar_t scalar   = {.f = a};

    submit(client, "axpy", args, 2, &scalar, 1, device, NULL);
}

static struct plasmon_ref *product(struct plasmon_client *client, struct plasmon_ref *a,
                                   struct plasmon_ref *b, double alpha, int device)
{
    struct plasmon_arg args[]  = {{.mode = PLASMON_OUT},
                                  {.mode = PLASMON_IN, .ref = a},
                                  {.mode = PLASMON_IN, .ref = b}};
    plasmon_scalar_t scalars[] = {{.f = alpha}, {.i = 0}, {.i = 0}};
    struct plasmon_ref *c;

    submit(client, "gemm", args, 3, scalars, 3, device, &c);
    return c;
}

/*
 * x on device 0 and y on `other` feed each other through products, small enough to stay small:
 * branches that are independent for a while, two temporaries of one device and one that crosses.
 * Returns a new output on `other`.
 */
static struct plasmon_ref *program(struct plasmon_client *client, struct plasmon_ref *x,
                                   struct plasmon_ref *y, int other)
{
    struct plasmon_ref *xx = product(client, x, x, 0.001, 0);
    struct plasmon_ref *yy = product(client, y, y, 0.001, other);
    struct plasmon_ref *xy, *out;

    add_to(client, x, xx, -0.5, 0);
    add_to(client, y, yy, 0.25, other);
    xy = product(client, x, y, 0.002, 0);
    add_to(client, y, xy, -0.125, other);
    out = product(client, xy, y, 0.003, other);
    CLUSTER_OK(plasmon_release(client, xx));
    CLUSTER_OK(plasmon_release(client, yy));
    CLUSTER_OK(plasmon_release(client, xy));
    return out;
}

/* within 0: to the bit. */
static void expect_close(struct plasmon_client *client, struct plasmon_ref *a,
                         struct plasmon_ref *b, const char *what, int round, float within)
{
    float *left = malloc(COUNT * sizeof(float)), *right = malloc(COUNT * sizeof(float));

    CLUSTER_OK(plasmon_get(client, a, left, COUNT * sizeof(float), CLUSTER_WAIT_MS));
    CLUSTER_OK(plasmon_get(client, b, right, COUNT * sizeof(float), CLUSTER_WAIT_MS));
    for (int i = 0; i < COUNT; i++) {
        bool same = within == 0 ? memcmp(&left[i], &right[i], sizeof(float)) == 0
                                : fabsf(left[i] - right[i]) <= within;

        if (!same) {
            test_fail(__FILE__, __LINE__,
                      "round %d: %s: element %d is %.9g replayed and %.9g submitted", round,
                      what, i, (double)left[i], (double)right[i]);
            break;
        }
    }
    free(left);
    free(right);
}

static void expect_same(struct plasmon_client *client, struct plasmon_ref *a,
                        struct plasmon_ref *b, const char *what, int round)
{
    expect_close(client, a, b, what, round, 0);
}

static void compare_rounds(struct plasmon_client *client, int other, int rounds)
{
    struct plasmon_ref *x = matrix(client, 0, 0), *y = matrix(client, 0.3, other);
    struct plasmon_ref *a = matrix(client, 0, 0), *b = matrix(client, 0.3, other);
    struct plasmon_ref *out, *plain                  = NULL;
    struct plasmon_graph *graph;

    CLUSTER_OK(plasmon_graph_begin(client, &graph));
    out = program(client, x, y, other);
    CLUSTER_OK(plasmon_graph_end(client, graph));
    for (int round = 0; round < rounds; round++) {
        /* Now one producer is late, now the other. */
        cluster_spin(client, round % 2 == 0 ? x : y, round % 10 == 0 ? 3000 : 50,
                     round % 2 == 0 ? 0 : other, NULL);
        CLUSTER_OK(plasmon_graph_launch(client, graph, NULL, 0, NULL, 0, NULL));
        CLUSTER_OK(plasmon_release(client, plain));
        plain = program(client, a, b, other);
        if (round % 10 == 9) {
            expect_same(client, out, plain, "the output", round);
            expect_same(client, x, a, "x", round);
            expect_same(client, y, b, "y", round);
        }
    }
    CLUSTER_OK(plasmon_graph_release(client, graph));
}

TEST(a_graph_on_one_gpu_is_what_its_calls_are)
{
    struct plasmon_client *client = start(1);

    test_set_timeout(300);
    compare_rounds(client, 0, 200);
    plasmon_finish(client);
    cluster_expect_gone(CLUSTER_WAIT_MS);
}

TEST(a_graph_across_two_gpus_is_what_its_calls_are_whoever_is_late)
{
    struct plasmon_client *client = start(2);

    test_set_timeout(300);
    compare_rounds(client, 1, 1000);
    plasmon_finish(client);
    cluster_expect_gone(CLUSTER_WAIT_MS);
}

/*
 * There and back through a spectrum, and the product of a factor: plans, work areas and handles of
 * libraries, captured.
 */
static struct plasmon_ref *decompositions(struct plasmon_client *client,
                                          struct plasmon_ref *x)
{
    plasmon_scalar_t axes[]   = {{.i = 2}, {.i = SIDE}};
    struct plasmon_arg rfft[] = {{.mode = PLASMON_OUT}, {.mode = PLASMON_IN, .ref = x}};
    struct plasmon_arg qr[]   = {
          {.mode = PLASMON_OUT}, {.mode = PLASMON_OUT}, {.mode = PLASMON_IN, .ref = x}};
    struct plasmon_ref *spectrum, *back, *factors[2], *out;

    submit(client, "rfft", rfft, 2, axes, 1, 0, &spectrum);
    {
        struct plasmon_arg irfft[] = {{.mode = PLASMON_OUT},
                                      {.mode = PLASMON_IN, .ref = spectrum}};

        submit(client, "irfft", irfft, 2, axes, 2, 0, &back);
    }
    add_to(client, x, back, 0.001, 0);
    submit(client, "qr", qr, 3, NULL, 0, 0, factors);
    out = product(client, factors[0], factors[1], 0.5, 0);
    CLUSTER_OK(plasmon_release(client, spectrum));
    CLUSTER_OK(plasmon_release(client, back));
    CLUSTER_OK(plasmon_release(client, factors[0]));
    CLUSTER_OK(plasmon_release(client, factors[1]));
    return out;
}

TEST(transforms_and_factors_are_replayed_as_they_are_submitted)
{
    struct plasmon_client *client = start(1);
    struct plasmon_ref *x = matrix(client, 0, 0), *a = matrix(client, 0, 0);
    struct plasmon_ref *out, *plain                  = NULL;
    struct plasmon_graph *graph;

    test_set_timeout(300);
    CLUSTER_OK(plasmon_graph_begin(client, &graph));
    out = decompositions(client, x);
    CLUSTER_OK(plasmon_graph_end(client, graph));
    for (int round = 0; round < 30; round++) {
        CLUSTER_OK(plasmon_graph_launch(client, graph, NULL, 0, NULL, 0, NULL));
        CLUSTER_OK(plasmon_release(client, plain));
        plain = decompositions(client, a);
        if (round % 10 == 9) {
            expect_same(client, x, a, "x", round);
            expect_close(client, out, plain, "q r", round,
                         1e-5f); /* cuSOLVER promises no equal bits */
        }
    }
    CLUSTER_OK(plasmon_graph_release(client, graph));
    plasmon_finish(client);
    cluster_expect_gone(CLUSTER_WAIT_MS);
}

TEST(other_scalars_and_other_refs_change_what_is_replayed)
{
    struct plasmon_client *client = start(1);
    struct plasmon_ref *x[3], *p[3];
    struct plasmon_ref *one = matrix(client, 1, 0);
    struct plasmon_graph *graph;

    test_set_timeout(300);
    for (int i = 0; i < 3; i++) {
        x[i] = matrix(client, i, 0);
        p[i] = matrix(client, i, 0);
    }
    CLUSTER_OK(plasmon_graph_begin(client, &graph));
    for (int i = 0; i < 5; i++) {
        add_to(client, x[0], one, 0.5, 0);
    }
    CLUSTER_OK(plasmon_graph_end(client, graph));
    for (int round = 0; round < 60; round++) {
        struct plasmon_graph_binding binding = {x[0], x[round % 3]};
        double value                         = 0.25 * (round % 4);
        struct plasmon_graph_scalar set      = {.call = 3, .value = {.f = value}};
        bool changed                         = round % 4 != 2;

        CLUSTER_OK(plasmon_graph_launch(client, graph, &binding, round % 3 != 0, &set,
                                        changed, NULL));
        for (int i = 0; i < 5; i++) {
            add_to(client, p[round % 3], one, i == 3 && changed ? value : 0.5, 0);
        }
        if (round % 5 == 4) {
            for (int i = 0; i < 3; i++) {
                expect_same(client, x[i], p[i], "a bound array", round);
            }
        }
    }
    plasmon_finish(client);
    cluster_expect_gone(CLUSTER_WAIT_MS);
}

/*
 * A long graph of which one scalar is another at each launch, with many launches under way: each
 * must have had its own.
 */
TEST(a_scalar_that_changes_at_each_launch_is_each_launch_s_own)
{
    enum { CALLS = 40, LAUNCHES = 300 };
    struct plasmon_client *client = start(1);
    struct plasmon_ref *x = matrix(client, 0, 0), *p = matrix(client, 0, 0);
    struct plasmon_ref *one = matrix(client, 1, 0);
    struct plasmon_graph *graph;

    test_set_timeout(300);
    CLUSTER_OK(plasmon_graph_begin(client, &graph));
    for (int i = 0; i < CALLS; i++) {
        add_to(client, x, one, 0.001, 0);
    }
    CLUSTER_OK(plasmon_graph_end(client, graph));
    for (int round = 0; round < LAUNCHES; round++) {
        struct plasmon_graph_scalar set = {.call  = (uint32_t)(round * 7 % CALLS),
                                           .value = {.f = 0.002 * round}};

        CLUSTER_OK(plasmon_graph_launch(client, graph, NULL, 0, &set, 1, NULL));
    }
    for (int round = 0; round < LAUNCHES; round++) {
        for (int i = 0; i < CALLS; i++) {
            add_to(client, p, one, i == round * 7 % CALLS ? 0.002 * round : 0.001, 0);
        }
    }
    expect_same(client, x, p, "300 launches with a scalar each", LAUNCHES);
    plasmon_finish(client);
    cluster_expect_gone(CLUSTER_WAIT_MS);
}

/* Symmetric and positive definite: all that follows is defined. */
static struct plasmon_ref *definite(struct plasmon_client *client)
{
    struct plasmon_shape shape = {PLASMON_F32, 2, {SIDE, SIDE}};
    float *data                = malloc(COUNT * sizeof(float));
    struct plasmon_ref *ref;

    for (int i = 0; i < SIDE; i++) {
        for (int k = 0; k < SIDE; k++) {
            int meets = (i * k + i + k) % 17;

            data[i * SIDE + k] = i == k ? (float)(SIDE + i % 7) : (float)meets / 17;
        }
    }
    CLUSTER_OK(plasmon_put(client, data, &shape, NULL, &ref));
    free(data);
    return ref;
}

enum { JUDGED = 4 };

/* Functions that look at their data and may refuse it: each reports which launch it is in. */
static void judged(struct plasmon_client *client, struct plasmon_ref *a,
                   struct plasmon_ref **out)
{
    struct plasmon_arg svd[]  = {{.mode = PLASMON_OUT},
                                 {.mode = PLASMON_OUT},
                                 {.mode = PLASMON_OUT},
                                 {.mode = PLASMON_IN, .ref = a}};
    struct plasmon_arg eigh[] = {
        {.mode = PLASMON_OUT}, {.mode = PLASMON_OUT}, {.mode = PLASMON_IN, .ref = a}};
    struct plasmon_arg one[] = {{.mode = PLASMON_OUT}, {.mode = PLASMON_IN, .ref = a}};
    struct plasmon_ref *parts[3];

    submit(client, "svd", svd, 4, NULL, 0, 0, parts);
    out[0] = parts[0];
    CLUSTER_OK(plasmon_release(client, parts[1]));
    CLUSTER_OK(plasmon_release(client, parts[2]));
    submit(client, "eigh", eigh, 3, NULL, 0, 0, parts);
    CLUSTER_OK(plasmon_release(client, parts[0]));
    out[1] = parts[1];
    submit(client, "cholesky", one, 2, NULL, 0, 0, &out[2]);
    submit(client, "inverse", one, 2, NULL, 0, 0, &out[3]);
}

TEST(functions_that_judge_their_data_are_replayed_as_they_are_submitted)
{
    static const char *const names[JUDGED] = {"u of svd", "v of eigh", "cholesky",
                                              "inverse"};
    struct plasmon_client *client          = start(1);
    struct plasmon_ref *a                  = definite(client);
    struct plasmon_ref *out[JUDGED], *plain[JUDGED];
    struct plasmon_graph *graph;

    test_set_timeout(300);
    judged(client, a, plain);
    CLUSTER_OK(plasmon_graph_begin(client, &graph));
    judged(client, a, out);
    CLUSTER_OK(plasmon_graph_end(client, graph));
    for (int round = 0; round < 20; round++) {
        CLUSTER_OK(plasmon_graph_launch(client, graph, NULL, 0, NULL, 0, NULL));
        for (int i = 0; round % 5 == 4 && i < JUDGED; i++) {
            expect_close(client, out[i], plain[i], names[i], round, 1e-5f);
        }
    }
    CLUSTER_OK(plasmon_graph_release(client, graph));
    plasmon_finish(client);
    cluster_expect_gone(CLUSTER_WAIT_MS);
}

/*
 * One at a time, then all under way together: each report bears the number of the launch that it
 * was made in.
 */
TEST(a_function_that_refuses_its_data_fails_its_launch_and_no_other)
{
    enum { ROUNDS = 12 };
    struct plasmon_client *client = start(1);
    struct plasmon_shape shape    = {PLASMON_F32, 2, {8, 8}};
    struct plasmon_ref *matrices[2], *root, *scaled, *tasks[ROUNDS];
    struct plasmon_graph *graph;
    float data[64] = {0};

    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < 8; i++) {
            data[9 * i] = k == 0 ? 4 : -4;
        }
        CLUSTER_OK(plasmon_put(client, data, &shape, NULL, &matrices[k]));
    }
    CLUSTER_OK(plasmon_graph_begin(client, &graph));
    {
        struct plasmon_arg args[] = {{.mode = PLASMON_OUT},
                                     {.mode = PLASMON_IN, .ref = matrices[0]}};

        submit(client, "cholesky", args, 2, NULL, 0, 0, &root);
        scaled = product(client, root, root, 1, 0);
    }
    CLUSTER_OK(plasmon_graph_end(client, graph));
    for (int round = 0; round < ROUNDS; round++) {
        int wrong                            = round % 4 == 2;
        struct plasmon_graph_binding binding = {matrices[0], matrices[wrong]};

        CLUSTER_OK(plasmon_graph_launch(client, graph, &binding, 1, NULL, 0, NULL));
        ASSERT_STATUS(plasmon_get(client, root, data, sizeof(data), CLUSTER_WAIT_MS),
                      wrong ? PLASMON_ESINGULAR : PLASMON_OK);
    }
    for (int round = 0; round < ROUNDS; round++) {
        struct plasmon_graph_binding binding = {matrices[0], matrices[round % 3 == 1]};

        CLUSTER_OK(
            plasmon_graph_launch(client, graph, &binding, 1, NULL, 0, &tasks[round]));
    }
    CLUSTER_OK(plasmon_wait(client, tasks, ROUNDS, ROUNDS, CLUSTER_WAIT_MS, NULL, NULL));
    for (int round = 0; round < ROUNDS; round++) {
        plasmon_status_t state = plasmon_state(client, tasks[round]);

        if (state != (round % 3 == 1 ? PLASMON_ESINGULAR : PLASMON_OK)) {
            test_fail(__FILE__, __LINE__, "launch %d of %d is %s", round, ROUNDS,
                      plasmon_status_name(state));
        }
    }
    CLUSTER_OK(plasmon_release(client, scaled));
    plasmon_finish(client);
    cluster_expect_gone(CLUSTER_WAIT_MS);
}

TEST(a_worker_killed_between_launches_of_a_graph_is_replaced)
{
    struct plasmon_client *client = start(1);
    struct plasmon_ref *x         = matrix(client, 0, 0), *out, *expected;
    struct plasmon_graph *graph;

    test_set_timeout(300);
    expected = product(client, x, x, 0.5, 0);
    CLUSTER_OK(plasmon_graph_begin(client, &graph));
    out = product(client, x, x, 0.5, 0);
    CLUSTER_OK(plasmon_graph_end(client, graph));
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 20; i++) {
            CLUSTER_OK(plasmon_graph_launch(client, graph, NULL, 0, NULL, 0, NULL));
        }
        expect_same(client, out, expected, "a product", round);
        if (round < 2) {
            cluster_kill(cluster_worker(client, 0));
        }
    }
    plasmon_finish(client);
    cluster_expect_gone(CLUSTER_WAIT_MS);
}

/* ------------------------------------------------------------------------------ figures */

static double us_a_node(struct plasmon_client *client, struct plasmon_ref *x,
                        struct plasmon_graph *graph, struct plasmon_ref *one, int launches)
{
    uint64_t begin_ns = pl_now_ns();

    for (int k = 0; k < launches; k++) {
        if (graph != NULL) {
            CLUSTER_OK(plasmon_graph_launch(client, graph, NULL, 0, NULL, 0, NULL));
            continue;
        }
        for (int i = 0; i < CHAIN; i++) {
            add_to(client, x, one, 1, 0);
        }
    }
    CLUSTER_OK(plasmon_wait(client, &x, 1, 1, PLASMON_FOREVER, NULL, NULL));
    return (double)(pl_now_ns() - begin_ns) / 1000.0 / ((double)CHAIN * launches);
}

TEST(what_a_node_of_a_long_chain_costs)
{
    struct plasmon_client *client = start(1);
    struct plasmon_ref *x = matrix(client, 0, 0), *one = matrix(client, 1, 0);
    struct plasmon_graph *graph;
    double plain, first, again, row;

    test_set_timeout(300);
    (void)us_a_node(client, x, NULL, one, 1); /* warm */
    plain = us_a_node(client, x, NULL, one, 1);
    CLUSTER_OK(plasmon_graph_begin(client, &graph));
    for (int i = 0; i < CHAIN; i++) {
        add_to(client, x, one, 1, 0);
    }
    CLUSTER_OK(plasmon_graph_end(client, graph));
    first = us_a_node(client, x, graph, one, 1);
    again = us_a_node(client, x, graph, one, 1);
    row   = us_a_node(client, x, graph, one, 50);
    printf("# a chain of %d nodes, us a node: submitted %.3f, first launch %.3f, replayed "
           "%.3f, 50 launches in a row %.3f\n",
           CHAIN, plain, first, again, row);
    plasmon_finish(client);
    cluster_expect_gone(CLUSTER_WAIT_MS);
}

TEST_MAIN()
