/*
 * Recorded graphs: a launch has to do what submitting the same calls again would do, to the bit,
 * whatever is slow, whatever is bound, and when workers die.
 *
 * Each program is a function that submits its calls on given arrays. It is called twice: inside a
 * recording, and plainly on other arrays with the same content.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include "tests/integration/cluster.h"

#define COUNT 1000

/* ----------------------------------------------------------------------------- programs */

static void submit(struct plasmon_client *client, const char *function,
                   const struct plasmon_arg *args, uint32_t arg_count,
                   const plasmon_scalar_t *scalars, uint32_t scalar_count, int device,
                   const char *label, struct plasmon_ref **out_refs)
{
    struct plasmon_call call = PLASMON_CALL_INIT;

    call.function     = function;
    call.args         = args;
    call.arg_count    = arg_count;
    call.scalars      = scalars;
    call.scalar_count = scalar_count;
    call.device       = device;
    call.label        = label;
    CLUSTER_OK(plasmon_submit(client, &call, out_refs, NULL));
}

/* y = a x, new. */
static struct plasmon_ref *scaled(struct plasmon_client *client, struct plasmon_ref *x,
                                  double a, int device, const char *label)
{
    struct plasmon_arg args[] = {{.mode = PLASMON_OUT}, {.mode = PLASMON_IN, .ref = x}};
    plasmon_scalar_t scalar   = {.f = a};
    struct plasmon_ref *y;

    submit(client, "multiply_scalar", args, 2, &scalar, 1, device, label, &y);
    return y;
}

/* y += a x */
static void add_to(struct plasmon_client *client, struct plasmon_ref *y,
                   struct plasmon_ref *x, double a, int device, const char *label)
{
    struct plasmon_arg args[] = {{.mode = PLASMON_INOUT, .ref = y},
                                 {.mode = PLASMON_IN, .ref = x}};
    plasmon_scalar_t scalar   = {.f = a};

    submit(client, "axpy", args, 2, &scalar, 1, device, label, NULL);
}

/*
 * A ring over three devices: each array takes something of the one before, the first of the last.
 * Two temporaries, one of which crosses devices; one new output. The coefficients keep the values
 * small.
 */
static struct plasmon_ref *ring(struct plasmon_client *client, struct plasmon_ref *const *x)
{
    struct plasmon_ref *t0 = scaled(client, x[0], 0.5, 0, "half");
    struct plasmon_ref *t1, *t2, *sum;

    add_to(client, x[1], t0, 0.25, 1, NULL);
    t1 = scaled(client, x[1], -0.5, 1, NULL);
    t2 = scaled(client, t1, 0.75, 1, NULL); /* one device's own */
    add_to(client, x[2], t2, 1, 2, NULL);
    add_to(client, x[0], x[2], -0.375, 0, "back");
    add_to(client, x[0], t1, 0.125, 0, NULL);
    {
        struct plasmon_arg args[] = {{.mode = PLASMON_OUT},
                                     {.mode = PLASMON_IN, .ref = x[0]},
                                     {.mode = PLASMON_IN, .ref = x[2]}};

        submit(client, "add", args, 3, NULL, 0, 1, NULL, &sum);
    }
    CLUSTER_OK(plasmon_release(client, t0));
    CLUSTER_OK(plasmon_release(client, t1));
    CLUSTER_OK(plasmon_release(client, t2));
    return sum;
}

static void get(struct plasmon_client *client, struct plasmon_ref *ref, float *out)
{
    CLUSTER_OK(plasmon_get(client, ref, out, COUNT * sizeof(float), CLUSTER_WAIT_MS));
}

static void expect_same(struct plasmon_client *client, struct plasmon_ref *a,
                        struct plasmon_ref *b, const char *what, int round)
{
    float left[COUNT], right[COUNT];

    get(client, a, left);
    get(client, b, right);
    for (int i = 0; i < COUNT; i++) {
        if (memcmp(&left[i], &right[i], sizeof(float)) != 0) {
            test_fail(__FILE__, __LINE__,
                      "round %d: %s: element %d is %.9g replayed and %.9g submitted", round,
                      what, i, (double)left[i], (double)right[i]);
            return;
        }
    }
}

static struct plasmon_graph *recorded_ring(struct plasmon_client *client,
                                           struct plasmon_ref *const *x,
                                           struct plasmon_ref **out_sum)
{
    struct plasmon_graph *graph;

    CLUSTER_OK(plasmon_graph_begin(client, &graph));
    *out_sum = ring(client, x);
    CLUSTER_OK(plasmon_graph_end(client, graph));
    return graph;
}

static void launch(struct plasmon_client *client, struct plasmon_graph *graph)
{
    CLUSTER_OK(plasmon_graph_launch(client, graph, NULL, 0, NULL, 0, NULL));
}

/* ---------------------------------------------------------------------------- semantics */

TEST(a_graph_over_three_devices_is_what_its_calls_are_whoever_is_late)
{
    struct plasmon_client *client = cluster_start(3);
    struct plasmon_ref *x[3], *y[3], *sum, *plain = NULL;
    struct plasmon_graph *graph;

    for (int i = 0; i < 3; i++) {
        x[i] = cluster_put(client, COUNT, (float)i, i);
        y[i] = cluster_put(client, COUNT, (float)i, i);
    }
    graph = recorded_ring(client, x, &sum);
    for (int round = 0; round < 1000; round++) {
        /* Another producer is late each time. */
        cluster_spin(client, x[round % 3], round % 7 == 0 ? 1000 : 100, round % 3, NULL);
        launch(client, graph);
        CLUSTER_OK(plasmon_release(client, plain));
        plain = ring(client, y);
        if (round % 10 == 9) {
            expect_same(client, sum, plain, "sum", round);
            for (int i = 0; i < 3; i++) {
                expect_same(client, x[i], y[i], "an array of the ring", round);
            }
        }
    }
    CLUSTER_OK(plasmon_graph_release(client, graph));
    plasmon_finish(client);
    cluster_expect_gone(CLUSTER_GONE_MS);
}

TEST(other_scalars_hold_for_one_launch)
{
    struct plasmon_client *client       = cluster_start(3);
    struct plasmon_graph_scalar set[]   = {{.label = "half", .value = {.f = 4}},
                                           {.call = 1, .position = 0, .value = {.f = 2}}};
    struct plasmon_graph_scalar wrong[] = {
        {.call = 99, .value = {.f = 1}},
        {.call = 0, .position = 7, .value = {.f = 1}},
        {.label = "nobody", .value = {.f = 1}},
    };
    struct plasmon_ref *x[3], *sum;
    struct plasmon_graph *graph;
    float before[COUNT], after[COUNT], a[COUNT], b[COUNT];

    for (int i = 0; i < 3; i++) {
        x[i] = cluster_fill(client, COUNT, i + 1, i);
    }
    graph = recorded_ring(client, x, &sum);
    for (int round = 0; round < 20; round++) {
        bool changed = round % 3 == 1;

        get(client, x[0], a);
        get(client, x[1], before);
        CLUSTER_OK(plasmon_graph_launch(client, graph, NULL, 0, changed ? set : NULL,
                                        changed ? 2 : 0, NULL));
        get(client, x[1], after);
        for (int i = 0; i < COUNT; i++) {
            b[i] = before[i] + (changed ? 2.0f : 0.25f) * (a[i] * (changed ? 4.0f : 0.5f));
        }
        ASSERT_EQ(memcmp(after, b, sizeof(b)), 0);
    }
    for (int i = 0; i < 3; i++) {
        ASSERT_STATUS(plasmon_graph_launch(client, graph, NULL, 0, &wrong[i], 1, NULL),
                      PLASMON_EINVAL);
        ASSERT_CONTAINS(plasmon_error(client), "scalars[0]");
    }
    plasmon_finish(client);
}

TEST(other_refs_take_the_place_of_recorded_ones)
{
    struct plasmon_client *client = cluster_start(3);
    struct plasmon_ref *x[3], *y[3], *z[3], *w[3], *sum, *plain = NULL;
    struct plasmon_graph *graph;

    for (int i = 0; i < 3; i++) {
        x[i] = cluster_put(client, COUNT, (float)i, i);
        y[i] = cluster_put(client, COUNT, (float)i, i);
        z[i] = cluster_put(client, COUNT, (float)(10 + i), (i + 1) % 3);
        w[i] = cluster_put(client, COUNT, (float)(10 + i), (i + 1) % 3);
    }
    graph = recorded_ring(client, x, &sum);
    for (int round = 0; round < 30; round++) {
        bool other                              = round % 2 == 1;
        struct plasmon_graph_binding bindings[] = {
            {x[0], z[0]}, {x[1], z[1]}, {x[2], z[2]}};

        CLUSTER_OK(
            plasmon_graph_launch(client, graph, bindings, other ? 3 : 0, NULL, 0, NULL));
        CLUSTER_OK(plasmon_release(client, plain));
        plain = ring(client, other ? w : y);
        expect_same(client, sum, plain, "sum", round);
    }
    for (int i = 0; i < 3; i++) {
        expect_same(client, x[i], y[i], "recorded arrays", i);
        expect_same(client, z[i], w[i], "bound arrays", i);
    }
    plasmon_finish(client);
}

TEST(a_snapshot_of_a_view_can_be_bound_and_recorded)
{
    struct plasmon_client *client = cluster_start(2);
    struct plasmon_ref *big       = cluster_put(client, 4 * COUNT, 0, 0);
    struct plasmon_ref *x         = cluster_put(client, COUNT, 5, 1);
    struct plasmon_ref *view, *part, *y, *expected;
    struct plasmon_graph *graph;
    struct plasmon_graph_binding binding;
    int64_t start = 7, count = COUNT, step = 3;

    CLUSTER_OK(plasmon_view(client, big, &start, &count, &step, &view));
    CLUSTER_OK(plasmon_snapshot(client, view, &part));
    CLUSTER_OK(plasmon_graph_begin(client, &graph));
    y = scaled(client, x, 2, PLASMON_ANYWHERE, NULL);
    add_to(client, y, x, 1, PLASMON_ANYWHERE, NULL);
    CLUSTER_OK(plasmon_graph_end(client, graph));

    binding  = (struct plasmon_graph_binding){.recorded = x, .ref = part};
    expected = scaled(client, part, 2, PLASMON_ANYWHERE, NULL);
    add_to(client, expected, part, 1, PLASMON_ANYWHERE, NULL);
    CLUSTER_OK(plasmon_graph_launch(client, graph, &binding, 1, NULL, 0, NULL));
    expect_same(client, y, expected, "with the snapshot", 0);
    binding.ref = view;
    ASSERT_STATUS(plasmon_graph_launch(client, graph, &binding, 1, NULL, 0, NULL),
                  PLASMON_EINVAL);
    plasmon_finish(client);
}

TEST(views_reduce_and_rows_of_one_array_replay_to_the_bit)
{
    struct plasmon_client *client = cluster_start(2);
    struct plasmon_ref *arrays[2], *sums[2];
    struct plasmon_graph *graph = NULL;
    float a[COUNT], b[COUNT];

    for (int k = 0; k < 2; k++) {
        arrays[k] = cluster_put(client, COUNT, 1, 0);
        sums[k]   = cluster_fill(client, 100, 0, 1);
    }
    for (int round = 0; round < 40; round++) {
        for (int k = 0; k < 2; k++) {
            if (k == 0 && round > 0) {
                launch(client, graph);
                continue;
            }
            if (k == 0) {
                CLUSTER_OK(plasmon_graph_begin(client, &graph));
            }
            for (int64_t row = 0; row < 10; row++) {
                int64_t start = row * 100, count = 100;
                struct plasmon_ref *view;
                struct plasmon_arg args[] = {{.mode      = PLASMON_REDUCE,
                                              .reduce_op = PLASMON_REDUCE_SUM,
                                              .ref       = sums[k]},
                                             {.mode = PLASMON_IN}};
                plasmon_scalar_t scalar   = {.f = 0.01 * (double)(row + 1)};

                CLUSTER_OK(plasmon_view(client, arrays[k], &start, &count, NULL, &view));
                args[1].ref = view;
                submit(client, "axpy", args, 2, &scalar, 1, (int)(row % 2), NULL, NULL);
                add_to(client, view, sums[k], -0.001, (int)(row / 5), NULL);
                CLUSTER_OK(plasmon_release(client, view));
            }
            if (k == 0) {
                CLUSTER_OK(plasmon_graph_end(client, graph));
                launch(client, graph);
            }
        }
    }
    get(client, arrays[0], a);
    get(client, arrays[1], b);
    ASSERT_EQ(memcmp(a, b, sizeof(a)), 0);
    plasmon_finish(client);
}

static const char blend_cuda[] =
    "extern \"C\" __global__ void blend(float *y, const float *x, float a, long long n)\n"
    "{ for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += "
    "(long long)gridDim.x * blockDim.x) y[i] = a * x[i] + 0.5f * y[i]; }\n";
static const char blend_c[] =
    "void blend(float *y, const float *x, float a, long n)\n"
    "{ for (long i = 0; i < n; i++) y[i] = a * x[i] + 0.5f * y[i]; }\n";

static void blend(struct plasmon_client *client, struct plasmon_ref *y,
                  struct plasmon_ref *x, double a, int device)
{
    struct plasmon_arg args[] = {{.mode = PLASMON_INOUT, .ref = y},
                                 {.mode = PLASMON_IN, .ref = x}};
    plasmon_scalar_t scalar   = {.f = a};

    submit(client, "blend", args, 2, &scalar, 1, device, "blend", NULL);
}

TEST(functions_of_ones_own_are_recorded_like_built_in_ones)
{
    struct plasmon_client *client        = cluster_start(2);
    struct plasmon_source_options source = PLASMON_SOURCE_OPTIONS_INIT;
    struct plasmon_graph_scalar set      = {.label = "blend", .value = {.f = 0.125}};
    struct plasmon_ref *x[2], *y[2];
    struct plasmon_graph *graph;

    source.c_text = blend_c;
    CLUSTER_OK(plasmon_function_source(
        client, "blend", blend_cuda,
        "blend(inout f32[n] y, in f32[n] x, f32 a, i64 n := n)", &source));
    for (int i = 0; i < 2; i++) {
        x[i] = cluster_put(client, COUNT, (float)i, i);
        y[i] = cluster_put(client, COUNT, (float)i, i);
    }
    CLUSTER_OK(plasmon_graph_begin(client, &graph)); /* not even compiled yet */
    blend(client, x[0], x[1], 0.25, 0);
    add_to(client, x[1], x[0], -0.5, 1, NULL);
    blend(client, x[1], x[0], 0.25, 1);
    CLUSTER_OK(plasmon_graph_end(client, graph));
    for (int round = 0; round < 20; round++) {
        bool changed = round % 4 == 3;

        CLUSTER_OK(plasmon_graph_launch(client, graph, NULL, 0, changed ? &set : NULL,
                                        changed, NULL));
        blend(client, y[0], y[1], changed ? 0.125 : 0.25, 0);
        add_to(client, y[1], y[0], -0.5, 1, NULL);
        blend(client, y[1], y[0], changed ? 0.125 : 0.25, 1);
        expect_same(client, x[0], y[0], "x", round);
        expect_same(client, x[1], y[1], "y", round);
    }
    plasmon_finish(client);
    cluster_expect_gone(CLUSTER_GONE_MS);
}

/*
 * Which call of a launch it was nobody can tell; what there is to know is in the text: which
 * launch, of what, where, and which of its calls that was.
 */
TEST(of_a_launch_that_ends_its_worker_it_is_said_which_calls_it_is)
{
    static const char illegal_cuda[] =
        "extern \"C\" __global__ void illegal(float *y, long long n) { "
        "*(float *)(n & 1) = 1; }\n";
    static const char illegal_c[] =
        "void illegal(float *y, long n) { *(volatile float *)(n & 1) = 1; }\n";
    struct plasmon_client *client        = cluster_start(2);
    struct plasmon_source_options source = PLASMON_SOURCE_OPTIONS_INIT;
    struct plasmon_arg out               = {.mode = PLASMON_OUT};
    struct plasmon_ref *x[2], *task;
    struct plasmon_graph *graph;
    float got[COUNT];

    source.c_text = illegal_c;
    CLUSTER_OK(plasmon_function_source(client, "illegal", illegal_cuda,
                                       "illegal(out f32[n] y, i64 n := n)", &source));
    for (int i = 0; i < 2; i++) {
        x[i] = cluster_put(client, COUNT, (float)i, i);
    }
    CLUSTER_OK(plasmon_graph_begin(client, &graph));
    add_to(client, x[0], x[1], 0.5, 0, NULL);
    add_to(client, x[1], x[0], 0.5, 1, NULL);
    out.ref = x[1];
    submit(client, "illegal", &out, 1, NULL, 0, 1, NULL, NULL);
    CLUSTER_OK(plasmon_graph_end(client, graph));
    CLUSTER_OK(plasmon_graph_launch(client, graph, NULL, 0, NULL, 0, &task));
    (void)plasmon_get(
        client, x[1], got, sizeof(got),
        CLUSTER_WAIT_MS); /* ECONSUMED, or EWORKER: it also updates in place */
    ASSERT_TRUE(plasmon_state(client, task) < 0);
    ASSERT_CONTAINS(plasmon_error(client),
                    "(graph of 3 calls: axpy, illegal) on device 1 (graph, calls 1 to 2 of "
                    "3): the worker of device 1 died");
    plasmon_finish(client);
}

/* A matrix that is `value` times the identity. */
static struct plasmon_ref *diagonal(struct plasmon_client *client, float value)
{
    struct plasmon_shape shape = {PLASMON_F32, 2, {8, 8}};
    struct plasmon_ref *ref;
    float data[64] = {0};

    for (int i = 0; i < 8; i++) {
        data[9 * i] = value;
    }
    CLUSTER_OK(plasmon_put(client, data, &shape, NULL, &ref));
    return ref;
}

TEST(a_function_that_refuses_its_data_fails_its_launch_and_no_other)
{
    struct plasmon_client *client = cluster_start(1);
    struct plasmon_ref *good = diagonal(client, 4), *bad = diagonal(client, -4), *root;
    struct plasmon_arg args[] = {{.mode = PLASMON_OUT}, {.mode = PLASMON_IN, .ref = good}};
    struct plasmon_graph *graph;
    float out[64];

    CLUSTER_OK(plasmon_graph_begin(client, &graph));
    submit(client, "cholesky", args, 2, NULL, 0, 0, NULL, &root);
    CLUSTER_OK(plasmon_graph_end(client, graph));
    for (int round = 0; round < 12; round++) {
        bool wrong                           = round % 4 == 2;
        struct plasmon_graph_binding binding = {good, wrong ? bad : good};
        struct plasmon_ref *task;

        CLUSTER_OK(plasmon_graph_launch(client, graph, &binding, 1, NULL, 0, &task));
        if (wrong) {
            ASSERT_STATUS(plasmon_get(client, root, out, sizeof(out), CLUSTER_WAIT_MS),
                          PLASMON_ESINGULAR);
            ASSERT_STATUS(plasmon_state(client, task), PLASMON_ESINGULAR);
        } else {
            CLUSTER_OK(plasmon_get(client, root, out, sizeof(out), CLUSTER_WAIT_MS));
            ASSERT_TRUE(out[0] == 2 && out[63] == 2);
        }
        CLUSTER_OK(plasmon_release(client, task));
    }
    plasmon_finish(client);
    cluster_expect_gone(CLUSTER_GONE_MS);
}

static struct plasmon_ref *part_of(struct plasmon_client *client, struct plasmon_ref *ref,
                                   int64_t start, int64_t count)
{
    struct plasmon_ref *view;

    CLUSTER_OK(plasmon_view(client, ref, &start, &count, NULL, &view));
    return view;
}

static void fill_part(struct plasmon_client *client, struct plasmon_ref *part, double value)
{
    struct plasmon_arg arg  = {.mode = PLASMON_OUT, .ref = part};
    plasmon_scalar_t scalar = {.f = value};

    submit(client, "fill", &arg, 1, &scalar, 1, PLASMON_ANYWHERE, NULL, NULL);
}

/* As when the calls are submitted: what failed before does not speak for what was written since. */
TEST(parts_that_had_failed_are_well_when_a_launch_has_overwritten_them)
{
    enum { PARTS = 100, LONG = COUNT / PARTS };
    struct plasmon_client *client = cluster_start(2);
    struct plasmon_ref *x         = cluster_put(client, COUNT, 0, 0);
    struct plasmon_ref *part[PARTS], *read;
    struct plasmon_arg out        = {.mode = PLASMON_OUT};
    struct plasmon_arg negative[] = {{.mode = PLASMON_OUT}, {.mode = PLASMON_IN}};
    plasmon_scalar_t code         = {.i = 7};
    float got[COUNT];

    for (int i = 0; i < PARTS; i++) {
        part[i] = part_of(client, x, i * LONG, LONG);
    }
    for (int round = 0; round < 2; round++) {
        struct plasmon_graph *graph;

        out.ref = part[round == 0 ? 3 : PARTS / 2];
        submit(client, "test_fail", &out, 1, &code, 1, PLASMON_ANYWHERE, NULL, NULL);
        ASSERT_STATUS(plasmon_get(client, x, got, sizeof(got), CLUSTER_WAIT_MS),
                      PLASMON_EFUNCTION);
        CLUSTER_OK(plasmon_graph_begin(client, &graph));
        if (round == 0) { /* another part is read before */
            negative[1].ref = part[5];
            submit(client, "negative", negative, 2, NULL, 0, PLASMON_ANYWHERE, NULL, &read);
            fill_part(client, part[3], 1);
        } else { /* many, in any order */
            for (int i = 0; i < PARTS; i++) {
                fill_part(client, part[i * 7 % PARTS], 1);
            }
        }
        CLUSTER_OK(plasmon_graph_end(client, graph));
        launch(client, graph);
        CLUSTER_OK(plasmon_get(client, x, got, sizeof(got), CLUSTER_WAIT_MS));
        for (int i = 0; i < COUNT; i++) {
            float want = round > 0 || i / LONG == 3 ? 1 : (float)i;

            ASSERT_EQ(memcmp(&got[i], &want, sizeof(want)), 0);
        }
        CLUSTER_OK(plasmon_graph_release(client, graph));
    }
    plasmon_finish(client);
}

/* A part of y, or all of it, is overwritten; then all of it is updated in place. */
static void overwrite_and_update(struct plasmon_client *client, struct plasmon_ref *y,
                                 struct plasmon_ref *part, struct plasmon_ref *x,
                                 int device)
{
    fill_part(client, part, 3);
    add_to(client, y, x, 0.5, device, NULL);
}

/* late: the failure comes when what is launched behind it is on its way. */
static void fail_part(struct plasmon_client *client, struct plasmon_ref *part,
                      int64_t count, bool late)
{
    struct plasmon_arg out = {.mode = PLASMON_OUT, .ref = part};
    plasmon_scalar_t code  = {.i = 7};
    float got[COUNT];

    if (late) {
        cluster_spin(client, part, 100000, 0, NULL);
    }
    submit(client, "test_fail", &out, 1, &code, 1, 0, NULL, NULL);
    if (!late) {
        ASSERT_STATUS(
            plasmon_get(client, part, got, (size_t)count * sizeof(float), CLUSTER_WAIT_MS),
            PLASMON_EFUNCTION);
    }
}

/*
 * What is overwritten before it is read is no input, of a launch as of calls: that it failed is
 * nothing to it.
 */
TEST(a_launch_updates_in_place_what_had_failed_and_it_overwrites_first)
{
    struct plasmon_client *client = cluster_start(2);
    struct plasmon_ref *x         = cluster_put(client, COUNT, 1, 0);

    for (int round = 0; round < 8; round++) {
        bool whole = round % 2 == 1, late = round / 2 % 2 == 1;
        int device    = round / 4; /* where it is; elsewhere */
        int64_t count = whole ? COUNT : 400;
        struct plasmon_ref *y[2], *part[2];
        struct plasmon_graph *graph;

        for (int k = 0; k < 2; k++) {
            y[k]    = cluster_put(client, COUNT, 0, 0);
            part[k] = part_of(client, y[k], whole ? 0 : 300, count);
        }
        CLUSTER_OK(plasmon_graph_begin(client, &graph));
        overwrite_and_update(client, y[0], part[0], x, device);
        CLUSTER_OK(plasmon_graph_end(client, graph));
        for (int k = 0; k < 2; k++) {
            fail_part(client, part[k], count, late);
        }
        launch(client, graph);
        overwrite_and_update(client, y[1], part[1], x, device);
        expect_same(client, y[0], y[1], "what had failed", round);
        launch(client, graph); /* nothing has failed now */
        overwrite_and_update(client, y[1], part[1], x, device);
        expect_same(client, y[0], y[1], "the same again", round);
        CLUSTER_OK(plasmon_graph_release(client, graph));
    }
    plasmon_finish(client);
}

/* ----------------------------------------------------------------------------- refusals */

TEST(what_does_not_fit_the_recording_is_refused_at_the_call)
{
    struct plasmon_client *client = cluster_start(3);
    struct plasmon_shape wide     = cluster_vector(PLASMON_F64, COUNT);
    struct plasmon_arg out        = {.mode = PLASMON_OUT, .shape = &wide};
    plasmon_scalar_t zero         = {.f = 0};
    struct plasmon_ref *x[3], *sum, *shorter, *doubles, *spare, *stranger;
    struct plasmon_graph *graph;
    struct plasmon_graph_binding binding[2];
    float bytes[COUNT];

    for (int i = 0; i < 3; i++) {
        x[i] = cluster_put(client, COUNT, (float)i, i);
    }
    shorter  = cluster_put(client, COUNT - 1, 0, 0);
    spare    = cluster_put(client, COUNT, 0, 0);
    stranger = cluster_put(client, COUNT, 0, 0);
    submit(client, "fill", &out, 1, &zero, 1, 0, NULL, &doubles);
    graph = recorded_ring(client, x, &sum);

    ASSERT_STATUS(plasmon_state(client, sum), PLASMON_EGRAPH); /* not launched */
    ASSERT_STATUS(plasmon_get(client, sum, bytes, sizeof(bytes), CLUSTER_WAIT_MS),
                  PLASMON_EGRAPH);

    binding[0] = (struct plasmon_graph_binding){.recorded = x[0], .ref = shorter};
    ASSERT_STATUS(plasmon_graph_launch(client, graph, binding, 1, NULL, 0, NULL),
                  PLASMON_ESHAPE);
    ASSERT_CONTAINS(plasmon_error(client), "f32[999]");
    ASSERT_CONTAINS(plasmon_error(client), "f32[1000]");
    binding[0].ref = doubles;
    ASSERT_STATUS(plasmon_graph_launch(client, graph, binding, 1, NULL, 0, NULL),
                  PLASMON_EDTYPE);
    binding[0] = (struct plasmon_graph_binding){.recorded = stranger, .ref = spare};
    ASSERT_STATUS(plasmon_graph_launch(client, graph, binding, 1, NULL, 0, NULL),
                  PLASMON_EGRAPH);
    binding[0] = (struct plasmon_graph_binding){.recorded = x[0], .ref = x[1]};
    ASSERT_STATUS(plasmon_graph_launch(client, graph, binding, 1, NULL, 0, NULL),
                  PLASMON_EGRAPH);
    ASSERT_CONTAINS(plasmon_error(client), "one array");
    binding[0] = (struct plasmon_graph_binding){.recorded = x[0], .ref = spare};
    binding[1] = (struct plasmon_graph_binding){.recorded = x[1], .ref = spare};
    ASSERT_STATUS(plasmon_graph_launch(client, graph, binding, 2, NULL, 0, NULL),
                  PLASMON_EGRAPH);
    ASSERT_STATUS(plasmon_graph_end(client, graph), PLASMON_EGRAPH);
    launch(client, graph); /* nothing of that did harm */
    get(client, sum, bytes);
    CLUSTER_OK(plasmon_graph_release(client, graph));
    ASSERT_STATUS(plasmon_graph_launch(client, graph, NULL, 0, NULL, 0, NULL),
                  PLASMON_EINVAL);
    get(client, sum, bytes); /* what it made is ours */
    plasmon_finish(client);
}

static void *submit_elsewhere(void *user)
{
    struct plasmon_ref **refs     = user; /* [0] plain, [1] made in the recording */
    struct plasmon_client *client = (struct plasmon_client *)(void *)refs[2];
    struct plasmon_arg args[]     = {{.mode = PLASMON_INOUT, .ref = refs[0]},
                                     {.mode = PLASMON_IN, .ref = refs[1]}};
    plasmon_scalar_t scalar       = {.f = 1};
    struct plasmon_call call      = PLASMON_CALL_INIT;

    call.function     = "axpy";
    call.args         = args;
    call.arg_count    = 2;
    call.scalars      = &scalar;
    call.scalar_count = 1;
    ASSERT_STATUS(plasmon_submit(client, &call, NULL, NULL), PLASMON_EGRAPH);
    CLUSTER_OK(cluster_axpy(client, refs[0], refs[0 + 3], 2, PLASMON_ANYWHERE));
    return NULL;
}

TEST(a_recording_is_of_one_thread_and_others_go_on)
{
    struct plasmon_client *client = cluster_start(2);
    struct plasmon_ref *x         = cluster_fill(client, COUNT, 1, 0);
    struct plasmon_ref *y         = cluster_fill(client, COUNT, 1, 1);
    struct plasmon_ref *refs[4], *made, *task;
    struct plasmon_graph *graph, *second;
    struct plasmon_arg arg   = {.mode = PLASMON_IN, .ref = x};
    struct plasmon_call call = PLASMON_CALL_INIT;
    pthread_t thread;
    void *memory;

    CLUSTER_OK(plasmon_graph_begin(client, &graph));
    ASSERT_STATUS(plasmon_graph_begin(client, &second), PLASMON_EGRAPH);
    ASSERT_STATUS(plasmon_graph_end(client, graph), PLASMON_EGRAPH); /* nothing recorded */
    made    = scaled(client, x, 3, 0, NULL);
    refs[0] = y;
    refs[1] = made;
    refs[2] = (struct plasmon_ref *)(void *)client;
    refs[3] = x;
    ASSERT_STATUS(plasmon_snapshot(client, made, &task), PLASMON_EGRAPH); /* of no value */
    ASSERT_STATUS(plasmon_publish(client, "made", made), PLASMON_EGRAPH);
    ASSERT_CONTAINS(plasmon_error(client), "end the recording and launch it first");
    CLUSTER_OK(plasmon_host_alloc(client, sizeof(float[COUNT]), &memory));
    ASSERT_STATUS(plasmon_get_async(client, made, memory, sizeof(float[COUNT]), &task),
                  PLASMON_EGRAPH);
    ASSERT_EQ(pthread_create(&thread, NULL, submit_elsewhere, refs), 0);
    ASSERT_EQ(pthread_join(thread, NULL), 0);
    cluster_expect_all(client, y, COUNT, 3); /* that ran; what is recorded did not */
    call.function  = "touch";
    call.args      = &arg;
    call.arg_count = 1;
    ASSERT_STATUS(plasmon_submit(client, &call, NULL, &task), PLASMON_EINVAL);
    ASSERT_STATUS(plasmon_graph_launch(client, graph, NULL, 0, NULL, 0, NULL),
                  PLASMON_EGRAPH);
    CLUSTER_OK(plasmon_graph_end(client, graph));
    CLUSTER_OK(plasmon_graph_launch(client, graph, NULL, 0, NULL, 0, &task));
    CLUSTER_OK(plasmon_wait(client, &task, 1, 1, CLUSTER_WAIT_MS, NULL, NULL));
    cluster_expect_all(client, made, COUNT, 3);
    CLUSTER_OK(plasmon_graph_begin(client, &second)); /* thrown away */
    (void)scaled(client, x, 4, 0, NULL);
    CLUSTER_OK(plasmon_graph_release(client, second));
    cluster_expect_all(client, x, COUNT, 1);
    plasmon_finish(client);
    cluster_expect_gone(CLUSTER_GONE_MS);
}

static void expect_never(struct plasmon_client *client, struct plasmon_ref *ref)
{
    float data[COUNT];

    ASSERT_STATUS(plasmon_get(client, ref, data, sizeof(data), CLUSTER_WAIT_MS),
                  PLASMON_EGRAPH);
    ASSERT_CONTAINS(plasmon_error(client), "released before it was launched");
}

/* "end the recording and launch it first" cannot be done any more. */
TEST(what_a_graph_made_that_was_thrown_away_says_so)
{
    struct plasmon_client *client = cluster_start(1);
    struct plasmon_ref *x         = cluster_fill(client, COUNT, 1, 0);
    struct plasmon_arg args[]     = {{.mode = PLASMON_OUT}, {.mode = PLASMON_IN}};
    struct plasmon_call call      = PLASMON_CALL_INIT;
    plasmon_scalar_t scalar       = {.f = 2};
    struct plasmon_ref *made, *kept;
    struct plasmon_graph *graph;
    float data[COUNT];

    call.function     = "multiply_scalar";
    call.args         = args;
    call.arg_count    = 2;
    call.scalars      = &scalar;
    call.scalar_count = 1;

    CLUSTER_OK(plasmon_graph_begin(client, &graph));
    made = scaled(client, x, 3, 0, NULL);
    CLUSTER_OK(plasmon_graph_release(client, graph));
    expect_never(client, made);
    ASSERT_STATUS(plasmon_snapshot(client, made, &kept), PLASMON_EGRAPH);
    ASSERT_CONTAINS(plasmon_error(client), "released before it was launched");
    ASSERT_STATUS(plasmon_publish(client, "made", made), PLASMON_EGRAPH);
    args[1].ref = made;
    ASSERT_STATUS(plasmon_submit(client, &call, &kept, NULL), PLASMON_EGRAPH);
    ASSERT_CONTAINS(plasmon_error(client), "released before it was launched");
    plasmon_release(client, made);

    CLUSTER_OK(plasmon_graph_begin(client, &graph));
    made = scaled(client, x, 3, 0, NULL);
    kept = scaled(client, made, 3, 0, NULL);
    CLUSTER_OK(plasmon_graph_end(client, graph));
    ASSERT_STATUS(plasmon_get(client, made, data, sizeof(data), CLUSTER_WAIT_MS),
                  PLASMON_EGRAPH);
    ASSERT_CONTAINS(plasmon_error(client), "launch it first");
    CLUSTER_OK(plasmon_graph_release(client, graph));
    expect_never(client, made);
    expect_never(client, kept);
    kept = scaled(client, made, 2, 0, NULL);
    ASSERT_STATUS(plasmon_get(client, kept, data, sizeof(data), CLUSTER_WAIT_MS),
                  PLASMON_EDEPENDENCY);
    ASSERT_CONTAINS(plasmon_error(client), "not launched before the ref was used");

    CLUSTER_OK(plasmon_graph_begin(client, &graph));
    made = scaled(client, x, 3, 0, NULL);
    CLUSTER_OK(plasmon_graph_end(client, graph));
    CLUSTER_OK(plasmon_graph_launch(client, graph, NULL, 0, NULL, 0, NULL));
    CLUSTER_OK(plasmon_graph_release(client, graph));
    cluster_expect_all(client, made, COUNT, 3);
    plasmon_finish(client);
    cluster_expect_gone(CLUSTER_GONE_MS);
}

TEST(a_graph_can_be_released_while_it_runs)
{
    struct plasmon_client *client = cluster_start(3);
    struct plasmon_ref *x[3], *y[3], *sum, *plain = NULL;
    struct plasmon_graph *graph;

    for (int i = 0; i < 3; i++) {
        x[i] = cluster_put(client, COUNT, (float)i, i);
        y[i] = cluster_put(client, COUNT, (float)i, i);
    }
    for (int round = 0; round < 5; round++) {
        graph = recorded_ring(client, x, &sum);
        cluster_spin(client, x[0], 50000, 0, NULL); /* so that all launches still wait */
        for (int i = 0; i < 5; i++) {
            launch(client, graph);
            CLUSTER_OK(plasmon_release(client, plain));
            plain = ring(client, y);
        }
        CLUSTER_OK(plasmon_graph_release(client, graph));
        expect_same(client, sum, plain, "sum", round);
        CLUSTER_OK(plasmon_release(client, sum));
    }
    plasmon_finish(client);
    cluster_expect_gone(CLUSTER_GONE_MS);
}

/* ------------------------------------------------------------------------------- deaths */

TEST(a_replay_that_overwrites_nothing_survives_its_workers_death)
{
    struct plasmon_client *client = cluster_start(2);
    struct plasmon_ref *x         = cluster_put(client, COUNT, 1, 0);
    struct plasmon_ref *t, *y, *expected;
    struct plasmon_graph *graph;

    t        = scaled(client, x, 2, 0, NULL);
    expected = scaled(client, t, 3, 1, NULL);
    CLUSTER_OK(plasmon_release(client, t));
    CLUSTER_OK(plasmon_graph_begin(client, &graph));
    t = scaled(client, x, 2, 0, NULL);
    y = scaled(client, t, 3, 1, NULL);
    CLUSTER_OK(plasmon_release(client, t));
    CLUSTER_OK(plasmon_graph_end(client, graph));
    for (int round = 0; round < 4; round++) {
        pid_t old = cluster_worker(client, round % 2);

        for (int i = 0; i < 50; i++) {
            launch(client, graph);
            if (i == 25) {
                CLUSTER_OK(plasmon_flush(client));
                cluster_kill(old);
            }
        }
        expect_same(client, y, expected, "made again", round);
        ASSERT_TRUE(cluster_worker(client, round % 2) != old);
    }
    plasmon_finish(client);
    cluster_expect_gone(CLUSTER_GONE_MS);
}

TEST(a_replay_in_place_is_right_or_consumed_when_its_worker_dies)
{
    struct plasmon_client *client = cluster_start(2);
    struct plasmon_ref *x         = cluster_fill(client, COUNT, 1, 0);
    struct plasmon_ref *one       = cluster_fill(client, COUNT, 1, 0);
    struct plasmon_graph *graph;
    float bytes[COUNT];
    plasmon_status_t status;

    CLUSTER_OK(plasmon_graph_begin(client, &graph));
    for (int i = 0; i < 10; i++) {
        add_to(client, x, one, 1, 0, NULL);
    }
    CLUSTER_OK(plasmon_graph_end(client, graph));
    for (int round = 0; round < 4; round++) {
        struct plasmon_arg out = {.mode = PLASMON_OUT, .ref = x};
        plasmon_scalar_t zero  = {.f = 0};

        submit(client, "fill", &out, 1, &zero, 1, 0, NULL, NULL);
        for (int i = 0; i < 100; i++) {
            launch(client, graph);
            if (i == 50) {
                CLUSTER_OK(plasmon_flush(client));
                cluster_kill(cluster_worker(client, 0));
            }
        }
        status = plasmon_get(client, x, bytes, sizeof(bytes), CLUSTER_WAIT_MS);
        if (status == PLASMON_OK) {
            for (int i = 0; i < COUNT; i++) {
                ASSERT_EQ((int)bytes[i], 1000);
            }
        } else if (status != PLASMON_ECONSUMED && status != PLASMON_EDEPENDENCY) {
            test_fail(__FILE__, __LINE__, "round %d: %s: %s", round,
                      plasmon_status_name(status), plasmon_error(client));
        }
    }
    plasmon_finish(client);
    cluster_expect_gone(CLUSTER_GONE_MS);
}

TEST_MAIN()
