/*
 * Index launch: the same as a loop of plasmon_submit() in index order, to the bit, with every kind
 * of argument; and a mapping that does not fit fails at the call, with the index in the text.
 */
#include <stdlib.h>

#include "tests/integration/cluster.h"

#define ROWS 12
#define COLS 30
#define ALL  (ROWS * COLS)

static struct plasmon_shape matrix(int64_t rows, int64_t cols)
{
    return (struct plasmon_shape){.dtype = PLASMON_F32, .ndim = 2, .dim = {rows, cols}};
}

static struct plasmon_ref *put_matrix(struct plasmon_client *client, int device)
{
    struct plasmon_shape shape         = matrix(ROWS, COLS);
    struct plasmon_put_options options = PLASMON_PUT_INIT;
    struct plasmon_ref *ref;
    float data[ALL];

    for (int i = 0; i < ALL; i++) {
        data[i] = (float)i * 0.37f - 20.0f;
    }
    options.device = device;
    CLUSTER_OK(plasmon_put(client, data, &shape, &options, &ref));
    return ref;
}

static struct plasmon_call call_of(const char *function, const struct plasmon_arg *args,
                                   uint32_t arg_count, const plasmon_scalar_t *scalars,
                                   uint32_t scalar_count)
{
    struct plasmon_call call = PLASMON_CALL_INIT;

    call.function     = function;
    call.args         = args;
    call.arg_count    = arg_count;
    call.scalars      = scalars;
    call.scalar_count = scalar_count;
    return call;
}

static void expect_same(struct plasmon_client *client, struct plasmon_ref *a,
                        struct plasmon_ref *b, size_t count, const char *what)
{
    float left[ALL], right[ALL];

    CLUSTER_OK(plasmon_get(client, a, left, count * sizeof(float), CLUSTER_WAIT_MS));
    CLUSTER_OK(plasmon_get(client, b, right, count * sizeof(float), CLUSTER_WAIT_MS));
    for (size_t i = 0; i < count; i++) {
        if (memcmp(&left[i], &right[i], sizeof(float)) != 0) {
            test_fail(__FILE__, __LINE__,
                      "%s: element %zu is %.9g by index and %.9g by loop", what, i,
                      (double)left[i], (double)right[i]);
            return;
        }
    }
}

/* Row r of a. */
static struct plasmon_ref *row_of(struct plasmon_client *client, struct plasmon_ref *a,
                                  int64_t row)
{
    int64_t start[] = {row, 0}, count[] = {1, COLS};
    struct plasmon_ref *view;

    CLUSTER_OK(plasmon_view(client, a, start, count, NULL, &view));
    return view;
}

static const struct plasmon_index_view row_view = {.count = {1, COLS}, .step_of = {{1}}};

/* Row r becomes += (0.5 + 0.25 r) * row r of b; then a new array of negated rows. */
TEST(rows_by_index_are_rows_by_loop)
{
    struct plasmon_client *client = cluster_start(3);
    struct plasmon_ref *a = put_matrix(client, 0), *b = put_matrix(client, 1);
    struct plasmon_ref *c = put_matrix(client, 0), *negated, *expected, *task;
    const struct plasmon_index_view *views[] = {&row_view, &row_view};
    plasmon_scalar_t base = {.f = 0.5}, step = {.f = 0.25};
    struct plasmon_arg args[]  = {{.mode = PLASMON_INOUT, .ref = a},
                                  {.mode = PLASMON_IN, .ref = b}};
    struct plasmon_shape whole = matrix(ROWS, COLS);
    struct plasmon_arg makes[] = {{.mode = PLASMON_OUT, .shape = &whole},
                                  {.mode = PLASMON_IN, .ref = a}};

    for (int spread = 0; spread <= 2; spread++) {
        struct plasmon_call axpy         = call_of("axpy", args, 2, &base, 1);
        struct plasmon_call negative     = call_of("negative", makes, 2, NULL, 0);
        struct plasmon_index_space space = PLASMON_INDEX_SPACE_INIT;

        space.ndim         = 1;
        space.count[0]     = ROWS;
        space.views        = views;
        space.scalar_steps = &step;
        space.spread       = (plasmon_spread_t)spread;
        CLUSTER_OK(plasmon_submit_index(client, &axpy, &space, NULL, NULL));
        for (int64_t row = 0; row < ROWS; row++) {
            struct plasmon_ref *to = row_of(client, c, row), *from = row_of(client, b, row);

            CLUSTER_OK(
                cluster_axpy(client, to, from, 0.5 + 0.25 * (double)row, PLASMON_ANYWHERE));
            CLUSTER_OK(plasmon_release(client, to));
            CLUSTER_OK(plasmon_release(client, from));
        }
        expect_same(client, a, c, ALL, "axpy of rows");
        space.scalar_steps = NULL;
        CLUSTER_OK(plasmon_submit_index(client, &negative, &space, &negated, &task));
        CLUSTER_OK(plasmon_wait(client, &task, 1, 1, CLUSTER_WAIT_MS, NULL, NULL));
        CLUSTER_OK(plasmon_state(client, negated));
        CLUSTER_OK(plasmon_submit(client, &negative, &expected, NULL));
        expect_same(client, negated, expected, ALL, "a new array of rows");
        CLUSTER_OK(plasmon_release(client, negated));
        CLUSTER_OK(plasmon_release(client, expected));
        CLUSTER_OK(plasmon_release(client, task));
    }
    plasmon_finish(client);
    cluster_expect_gone(CLUSTER_GONE_MS);
}

/*
 * Two dimensions, a view of a view with steps, a negative step of the index, and instances that
 * depend on each other.
 */
TEST(a_two_dimensional_space_over_a_strided_view_is_the_loop)
{
    struct plasmon_client *client = cluster_start(2);
    struct plasmon_ref *arrays[2] = {put_matrix(client, 0), put_matrix(client, 0)};
    struct plasmon_ref *views[2];
    int64_t start[] = {1, 2}, count[] = {10, 14}, step[] = {1, 2};
    /* Instance (i, j): block at (8 - 2 i, 3 j) += block at (8 - 2 i, 3 j + 1), of 2 x 1. */
    struct plasmon_index_view to = {
        .start = {8, 0}, .count = {2, 1}, .step_of = {{-2, 0}, {0, 3}}};
    struct plasmon_index_view from = {
        .start = {8, 1}, .count = {2, 1}, .step_of = {{-2, 0}, {0, 3}}};
    const struct plasmon_index_view *maps[] = {&to, &from};
    struct plasmon_index_space space        = PLASMON_INDEX_SPACE_INIT;
    plasmon_scalar_t base = {.f = 1}, steps[] = {{.f = 0.1}, {.f = -0.3}};
    struct plasmon_arg args[2];
    struct plasmon_call call = call_of("axpy", args, 2, &base, 1);

    for (int k = 0; k < 2; k++) {
        CLUSTER_OK(plasmon_view(client, arrays[k], start, count, step, &views[k]));
    }
    args[0]            = (struct plasmon_arg){.mode = PLASMON_INOUT, .ref = views[0]};
    args[1]            = (struct plasmon_arg){.mode = PLASMON_IN, .ref = views[0]};
    space.ndim         = 2;
    space.count[0]     = 5;
    space.count[1]     = 4;
    space.views        = maps;
    space.scalar_steps = steps;
    CLUSTER_OK(plasmon_submit_index(client, &call, &space, NULL, NULL));
    for (int64_t i = 0; i < 5; i++) {
        for (int64_t j = 0; j < 4; j++) {
            int64_t at[] = {8 - 2 * i, 3 * j}, beside[] = {8 - 2 * i, 3 * j + 1};
            int64_t block[]            = {2, 1};
            plasmon_scalar_t now       = base;
            struct plasmon_arg one[2]  = {{.mode = PLASMON_INOUT}, {.mode = PLASMON_IN}};
            struct plasmon_call single = call_of("axpy", one, 2, &now, 1);

            now.f += 0.1 * (double)i;
            now.f += -0.3 * (double)j;
            CLUSTER_OK(plasmon_view(client, views[1], at, block, NULL, &one[0].ref));
            CLUSTER_OK(plasmon_view(client, views[1], beside, block, NULL, &one[1].ref));
            CLUSTER_OK(plasmon_submit(client, &single, NULL, NULL));
            CLUSTER_OK(plasmon_release(client, one[0].ref));
            CLUSTER_OK(plasmon_release(client, one[1].ref));
        }
    }
    expect_same(client, arrays[0], arrays[1], ALL, "the whole array");
    plasmon_finish(client);
}

TEST(integer_scalars_reduce_and_many_instances)
{
    struct plasmon_client *client = cluster_start(2);
    struct plasmon_shape shape    = {.dtype = PLASMON_I64, .ndim = 1, .dim = {5000}};
    struct plasmon_index_view one = {.count = {1}, .step_of = {{1}}};
    const struct plasmon_index_view *views[] = {&one};
    struct plasmon_arg out                   = {.mode = PLASMON_OUT, .shape = &shape};
    plasmon_scalar_t base = {.i = -7}, step = {.i = 3};
    struct plasmon_call fill         = call_of("fill_int", &out, 1, &base, 1);
    struct plasmon_index_space space = PLASMON_INDEX_SPACE_INIT;
    struct plasmon_ref *ramp, *sum;
    struct plasmon_ref *a                   = put_matrix(client, 1), *plain;
    const struct plasmon_index_view *rows[] = {NULL, &row_view};
    struct plasmon_arg adds[] = {{.mode = PLASMON_REDUCE, .reduce_op = PLASMON_REDUCE_SUM},
                                 {.mode = PLASMON_IN, .ref = a}};
    plasmon_scalar_t half     = {.f = 0.5};
    struct plasmon_call axpy  = call_of("axpy", adds, 2, &half, 1);
    int64_t *got              = malloc(5000 * sizeof(*got));

    space.ndim         = 1;
    space.count[0]     = 5000;
    space.views        = views;
    space.scalar_steps = &step;
    CLUSTER_OK(plasmon_submit_index(client, &fill, &space, &ramp, NULL));
    CLUSTER_OK(plasmon_get(client, ramp, got, 5000 * sizeof(*got), CLUSTER_WAIT_MS));
    for (int64_t i = 0; i < 5000; i++) {
        ASSERT_EQ(got[i], 3 * i - 7);
    }

    {
        struct plasmon_shape line = matrix(1, COLS);
        struct plasmon_arg make   = {.mode = PLASMON_OUT, .shape = &line};
        plasmon_scalar_t zero     = {.f = 0};
        struct plasmon_call zeros = call_of("fill", &make, 1, &zero, 1);

        CLUSTER_OK(plasmon_submit(client, &zeros, &sum, NULL));
        CLUSTER_OK(plasmon_submit(client, &zeros, &plain, NULL));
    }
    space.count[0]     = ROWS;
    space.views        = rows;
    space.scalar_steps = NULL;
    adds[0].ref        = sum;
    CLUSTER_OK(plasmon_submit_index(client, &axpy, &space, NULL, NULL));
    for (int64_t row = 0; row < ROWS; row++) {
        struct plasmon_arg single[] = {
            {.mode = PLASMON_REDUCE, .reduce_op = PLASMON_REDUCE_SUM, .ref = plain},
            {.mode = PLASMON_IN, .ref = row_of(client, a, row)}};
        struct plasmon_call add = call_of("axpy", single, 2, &half, 1);

        CLUSTER_OK(plasmon_submit(client, &add, NULL, NULL));
        CLUSTER_OK(plasmon_release(client, single[1].ref));
    }
    expect_same(client, sum, plain, COLS, "partial sums");
    free(got);
    plasmon_finish(client);
}

/* Each looked at all others, here and in the head: after a quarter of an hour the session was lost. */
TEST(as_many_instances_as_are_allowed_write_one_array)
{
    enum { MANY = 65536 };
    struct plasmon_client *client = cluster_start(2);
    struct plasmon_shape shape    = {.dtype = PLASMON_I64, .ndim = 1, .dim = {MANY}};
    struct plasmon_index_view one = {.count = {1}, .step_of = {{1}}};
    const struct plasmon_index_view *views[] = {&one, &one};
    struct plasmon_arg out                   = {.mode = PLASMON_OUT, .shape = &shape};
    struct plasmon_arg adds[] = {{.mode = PLASMON_INOUT}, {.mode = PLASMON_IN}};
    plasmon_scalar_t base = {.i = 5}, step = {.i = 2}, minus = {.f = -1};
    struct plasmon_call fill         = call_of("fill_int", &out, 1, &base, 1);
    struct plasmon_call axpy         = call_of("axpy", adds, 2, &minus, 1);
    struct plasmon_index_space space = PLASMON_INDEX_SPACE_INIT;
    int64_t *got                     = malloc(MANY * sizeof(*got));

    ASSERT_NOT_NULL(got);
    space.ndim         = 1;
    space.count[0]     = MANY;
    space.views        = views;
    space.scalar_steps = &step;
    CLUSTER_OK(plasmon_submit_index(client, &fill, &space, &adds[0].ref, NULL));
    CLUSTER_OK(plasmon_snapshot(client, adds[0].ref, &adds[1].ref));
    space.scalar_steps = NULL;
    space.count[0]     = MANY / 2;
    CLUSTER_OK(plasmon_submit_index(client, &axpy, &space, NULL, NULL));
    CLUSTER_OK(plasmon_get(client, adds[0].ref, got, MANY * sizeof(*got), CLUSTER_WAIT_MS));
    for (int64_t i = 0; i < MANY; i++) {
        ASSERT_EQ(got[i], i < MANY / 2 ? 0 : 5 + 2 * i);
    }
    free(got);
    plasmon_finish(client);
}

/*
 * Row r becomes += a + step * r: a function of the client's own, by index as by loop; one that
 * cannot step is refused with the remedy.
 */
TEST(a_source_function_by_index_is_the_loop_and_gaps_need_strides)
{
    static const char text[]              = "void lift(float *x, float a, long n)\n"
                                            "{ for (long i = 0; i < n; i++) x[i] += a; }\n";
    struct plasmon_client *client         = cluster_start(2);
    struct plasmon_source_options options = PLASMON_SOURCE_OPTIONS_INIT;
    struct plasmon_ref *a = put_matrix(client, 0), *b = put_matrix(client, 0);
    const struct plasmon_index_view odd = {
        .count = {1, COLS / 2}, .step = {1, 2}, .step_of = {{1}}};
    const struct plasmon_index_view *views[] = {&row_view};
    plasmon_scalar_t base = {.f = 0.5}, step = {.f = 0.25};
    struct plasmon_arg arg           = {.mode = PLASMON_INOUT, .ref = a};
    struct plasmon_call call         = call_of("lift", &arg, 1, &base, 1);
    struct plasmon_index_space space = PLASMON_INDEX_SPACE_INIT;

    options.c_text = text;
    CLUSTER_OK(plasmon_function_source(
        client, "lift", NULL, "lift(inout f32[r,c] x, f32 a, i64 n := r * c)", &options));
    space.ndim         = 1;
    space.count[0]     = ROWS;
    space.views        = views;
    space.scalar_steps = &step;
    for (int spread = 0; spread <= 2; spread++) {
        space.spread = (plasmon_spread_t)spread;
        arg.ref      = a;
        CLUSTER_OK(plasmon_submit_index(client, &call, &space, NULL, NULL));
        for (int64_t row = 0; row < ROWS; row++) {
            plasmon_scalar_t value  = {.f = 0.5 + 0.25 * (double)row};
            struct plasmon_call one = call_of("lift", &arg, 1, &value, 1);

            arg.ref = row_of(client, b, row);
            CLUSTER_OK(plasmon_submit(client, &one, NULL, NULL));
            CLUSTER_OK(plasmon_release(client, arg.ref));
        }
        expect_same(client, a, b, ALL, "a source function on rows");
    }
    /* Every other element of a row: nothing lays those side by side for it. */
    arg.ref  = a;
    views[0] = &odd;
    ASSERT_STATUS(plasmon_submit_index(client, &call, &space, NULL, NULL), PLASMON_ESHAPE);
    ASSERT_CONTAINS(plasmon_error(client), "without gaps: write f32[..]~ x");
    ASSERT_CONTAINS(plasmon_error(client), "or copy it first");
    expect_same(client, a, b, ALL, "nothing of it ran");
    plasmon_finish(client);
    cluster_expect_gone(CLUSTER_GONE_MS);
}

TEST(a_mapping_that_does_not_fit_fails_at_the_call_and_names_the_index)
{
    struct plasmon_client *client            = cluster_start(1);
    struct plasmon_ref *a                    = put_matrix(client, 0), *made;
    struct plasmon_shape whole               = matrix(ROWS, COLS);
    struct plasmon_index_view half           = {.count = {1, 7}, .step_of = {{1}}};
    const struct plasmon_index_view *views[] = {&row_view, &row_view};
    struct plasmon_arg args[]                = {{.mode = PLASMON_OUT, .shape = &whole},
                                                {.mode = PLASMON_IN, .ref = a}};
    struct plasmon_call call                 = call_of("negative", args, 2, NULL, 0);
    struct plasmon_index_space space         = PLASMON_INDEX_SPACE_INIT;
    float bytes[ALL];

    space.ndim     = 1;
    space.count[0] = ROWS + 1; /* one row too many */
    space.views    = views;
    ASSERT_STATUS(plasmon_submit_index(client, &call, &space, &made, NULL), PLASMON_ERANGE);
    ASSERT_CONTAINS(plasmon_error(client), "index (12)");
    space.count[0] = 3;
    views[0]       = &half; /* another shape than what is read */
    ASSERT_STATUS(plasmon_submit_index(client, &call, &space, &made, NULL), PLASMON_ESHAPE);
    ASSERT_CONTAINS(plasmon_error(client), "index (0)");
    views[0] = NULL; /* what does each instance write? */
    ASSERT_STATUS(plasmon_submit_index(client, &call, &space, &made, NULL), PLASMON_EINVAL);
    views[0]    = &row_view;
    args[0].ref = a; /* INOUT in disguise: it overlaps what is read */
    ASSERT_STATUS(plasmon_submit_index(client, &call, &space, &made, NULL), PLASMON_EINVAL);
    args[0].ref    = NULL;
    space.count[0] = 0;
    ASSERT_STATUS(plasmon_submit_index(client, &call, &space, &made, NULL), PLASMON_ELIMIT);
    space.count[0] = 70000;
    ASSERT_STATUS(plasmon_submit_index(client, &call, &space, &made, NULL), PLASMON_ELIMIT);
    space.ndim = 4;
    ASSERT_STATUS(plasmon_submit_index(client, &call, &space, &made, NULL), PLASMON_EINVAL);
    space.ndim     = 1;
    space.count[0] = 5; /* five of twelve rows: the others have no content */
    CLUSTER_OK(plasmon_submit_index(client, &call, &space, &made, NULL));
    ASSERT_STATUS(plasmon_get(client, made, bytes, sizeof(bytes), CLUSTER_WAIT_MS),
                  PLASMON_EINVAL);
    {
        struct plasmon_ref *row = row_of(client, made, 4);

        CLUSTER_OK(plasmon_get(client, row, bytes, COLS * sizeof(float), CLUSTER_WAIT_MS));
    }
    plasmon_finish(client);
}

TEST_MAIN()
