/*
 * Wrong calls fail at submit, with a text that says what is wrong; right ones reach the head as
 * they were meant.
 */
#include "tests/unit/client/calls.h"
#include "tests/unit/client/fake_head.h"

struct fixture {
    struct fake_head *head;
    struct plasmon_client *client;
    struct plasmon_ref *x; /* f32[100] */
};

static struct fixture begin(uint64_t device_bytes)
{
    struct fake_head_config config = {.end_tasks = true, .device_bytes = device_bytes};
    struct fixture fixture         = {.head = fake_head_start(&config)};

    fixture.client = fake_head_client(fixture.head);
    fixture.x      = call_fill(fixture.client, NULL, NULL);
    return fixture;
}

static void end(struct fixture *fixture)
{
    plasmon_finish(fixture->client);
    fake_head_stop(fixture->head);
}

static plasmon_status_t call(struct plasmon_client *client, const char *name,
                             const struct plasmon_arg *args, uint32_t arg_count,
                             uint32_t scalar_count, struct plasmon_ref **out_refs)
{
    plasmon_scalar_t scalars[8] = {{.i = 0}};
    struct plasmon_call wanted  = PLASMON_CALL_INIT;

    wanted.function     = name;
    wanted.args         = args;
    wanted.arg_count    = arg_count;
    wanted.scalars      = scalars;
    wanted.scalar_count = scalar_count;
    return plasmon_submit(client, &wanted, out_refs, NULL);
}

TEST(an_unknown_function_is_answered_with_the_nearest)
{
    struct fixture f = begin(0);

    ASSERT_STATUS(call(f.client, "gemmm", NULL, 0, 0, NULL), PLASMON_ENOFUNCTION);
    ASSERT_CONTAINS(plasmon_error(f.client), "did you mean \"gemm\"");
    ASSERT_STATUS(call(f.client, "zzzzzzzzzzzz", NULL, 0, 0, NULL), PLASMON_ENOFUNCTION);
    ASSERT_CONTAINS(plasmon_error(f.client), "plasmon functions");
    end(&f);
}

TEST(a_function_of_the_session_is_meant_as_well)
{
    struct fixture f                      = begin(0);
    struct plasmon_source_options options = PLASMON_SOURCE_OPTIONS_INIT;

    options.c_text = "void smooth_rows(float *y) { y[0] = 1; }";
    ASSERT_OK(plasmon_function_source(f.client, "smooth_rows", NULL,
                                      "smooth_rows(inout f32[n] y)", &options));
    ASSERT_STATUS(call(f.client, "smoth_rows", NULL, 0, 0, NULL), PLASMON_ENOFUNCTION);
    ASSERT_CONTAINS(plasmon_error(f.client), "did you mean \"smooth_rows\"");
    ASSERT_STATUS(call(f.client, "gemmm", NULL, 0, 0, NULL), PLASMON_ENOFUNCTION);
    ASSERT_CONTAINS(plasmon_error(f.client), "did you mean \"gemm\"");
    end(&f);
}

TEST(wrong_numbers_dtypes_and_shapes_fail_here)
{
    struct fixture f              = begin(0);
    struct plasmon_shape matrix   = {.dtype = PLASMON_F32, .ndim = 2, .dim = {10, 7}};
    struct plasmon_shape integers = {.dtype = PLASMON_I32, .ndim = 1, .dim = {100}};
    struct plasmon_arg one[]      = {{.mode = PLASMON_OUT}};
    struct plasmon_arg two[]      = {
             {.mode = PLASMON_OUT}, {.mode = PLASMON_IN, .ref = f.x}, {.mode = PLASMON_IN}};
    float zeros[100] = {0};
    struct plasmon_ref *a, *b, *made = NULL;

    CALL_OK(plasmon_put(f.client, zeros, &matrix, NULL, &a));
    CALL_OK(plasmon_put(f.client, zeros, &integers, NULL, &b));
    ASSERT_STATUS(call(f.client, "add", one, 1, 0, &made), PLASMON_EARITY);
    two[2].ref = b;
    ASSERT_STATUS(call(f.client, "add", two, 3, 0, &made), PLASMON_EDTYPE);
    two[1].ref = a;
    two[2].ref = a;
    ASSERT_STATUS(call(f.client, "gemm", two, 3, 3, &made),
                  PLASMON_ESHAPE); /* 10x7 by 10x7 */
    ASSERT_CONTAINS(plasmon_error(f.client), "gemm");
    ASSERT_NULL(made);
    fake_head_wait(f.head, seen_tasks, 3);
    ASSERT_EQ(fake_head_seen(f.head).tasks, 3); /* only the fill and the puts */
    end(&f);
}

TEST(a_released_or_foreign_ref_is_named_by_its_argument)
{
    struct fixture f = begin(0), other = begin(0);
    struct plasmon_ref *gone = call_fill(f.client, NULL, NULL);

    CALL_OK(plasmon_release(f.client, gone));
    ASSERT_STATUS(call_axpy(f.client, f.x, gone, NULL), PLASMON_ERELEASED);
    ASSERT_CONTAINS(plasmon_error(f.client), "args[1]");
    ASSERT_STATUS(call_axpy(f.client, other.x, f.x, NULL), PLASMON_EFOREIGN);
    ASSERT_CONTAINS(plasmon_error(f.client), "args[0]");
    end(&other);
    end(&f);
}

TEST(an_argument_that_is_written_may_not_overlap_another)
{
    struct fixture f         = begin(0);
    struct plasmon_ref *low  = call_part(f.client, f.x, 0, 50);
    struct plasmon_ref *mid  = call_part(f.client, f.x, 25, 50);
    struct plasmon_ref *high = call_part(f.client, f.x, 50, 50);

    ASSERT_STATUS(call_axpy(f.client, f.x, f.x, NULL), PLASMON_EINVAL);
    ASSERT_CONTAINS(plasmon_error(f.client), "args[0]");
    ASSERT_CONTAINS(plasmon_error(f.client), "args[1]");
    ASSERT_STATUS(call_axpy(f.client, low, mid, NULL), PLASMON_EINVAL);
    CALL_OK(call_axpy(f.client, low, high, NULL));
    end(&f);
}

TEST(a_view_outside_its_array_names_the_dimension)
{
    struct fixture f = begin(0);
    int64_t start = 90, count = 20, step = 3;
    struct plasmon_ref *view = NULL;
    struct plasmon_shape shape;

    ASSERT_STATUS(plasmon_view(f.client, f.x, &start, &count, NULL, &view), PLASMON_ERANGE);
    ASSERT_CONTAINS(plasmon_error(f.client), "dimension 0");
    start = 1;
    CALL_OK(plasmon_view(f.client, f.x, &start, &count, &step, &view));
    CALL_OK(plasmon_shape_of(f.client, view, &shape));
    ASSERT_EQ(shape.dim[0], 20);
    end(&f);
}

TEST(what_no_device_can_hold_fails_here)
{
    struct fixture f           = begin(1u << 20);
    struct plasmon_shape large = {.dtype = PLASMON_F32, .ndim = 1, .dim = {1 << 20}};
    struct plasmon_arg arg     = {.mode = PLASMON_OUT, .shape = &large};
    struct plasmon_ref *made   = NULL;
    float data                 = 0;

    ASSERT_STATUS(call(f.client, "fill", &arg, 1, 1, &made), PLASMON_ETOOBIG);
    ASSERT_CONTAINS(plasmon_error(f.client), "4.0 MiB");
    ASSERT_STATUS(plasmon_put(f.client, &data, &large, NULL, &made), PLASMON_ETOOBIG);
    ASSERT_NULL(made);
    end(&f);
}

TEST(a_label_must_be_short_text)
{
    struct fixture f         = begin(0);
    struct plasmon_call noop = PLASMON_CALL_INIT;
    char label[200];

    memset(label, 'x', sizeof(label) - 1);
    label[sizeof(label) - 1] = '\0';
    noop.function            = "noop";
    noop.label               = label;
    ASSERT_STATUS(plasmon_submit(f.client, &noop, NULL, NULL), PLASMON_ELIMIT);
    noop.label = "caf\xe9"; /* Latin-1 */
    ASSERT_STATUS(plasmon_submit(f.client, &noop, NULL, NULL), PLASMON_EINVAL);
    noop.label = "caf\n"; /* would begin a line of a log */
    ASSERT_STATUS(plasmon_submit(f.client, &noop, NULL, NULL), PLASMON_EINVAL);
    ASSERT_CONTAINS(plasmon_error(f.client), "control character at byte 3");
    noop.label = "caf\xc3\xa9";
    CALL_OK(plasmon_submit(f.client, &noop, NULL, NULL));
    end(&f);
}

/* The last task's arguments as they came. */
struct came {
    uint32_t function;
    uint64_t refs[3];
    uint32_t modes[3];
    int64_t view[3];
    size_t view_count;
    int64_t made_dim;
    uint32_t place, retries;
    char label[32];
};

static void note(void *user, struct fake_head *head, const Plasmon__V1__ClientFrame *frame)
{
    struct came *came = user;

    (void)head;
    for (size_t i = 0; i < frame->n_tasks; i++) {
        const Plasmon__V1__Task *task = frame->tasks[i];

        if (task->n_args != 3) {
            continue;
        }
        for (size_t k = 0; k < 3; k++) {
            came->refs[k]  = task->args[k]->ref;
            came->modes[k] = task->args[k]->mode;
        }
        came->function   = task->function;
        came->view_count = task->args[1]->n_view;
        memcpy(came->view, task->args[1]->view, came->view_count * sizeof(int64_t));
        came->made_dim =
            task->args[0]->shape != NULL ? (int64_t)task->args[0]->shape->dim[0] : -1;
        came->place   = task->place;
        came->retries = task->retries;
        (void)snprintf(came->label, sizeof(came->label), "%s", task->label);
    }
}

TEST(a_call_arrives_as_it_was_meant)
{
    struct came came               = {.function = 0};
    struct fake_head_config config = {.end_tasks = true, .frame = note, .user = &came};
    struct fake_head *head         = fake_head_start(&config);
    struct plasmon_client *client  = fake_head_client(head);
    struct plasmon_ref *x          = call_fill(client, NULL, NULL), *y, *part;
    struct plasmon_call add        = PLASMON_CALL_INIT;
    struct plasmon_arg args[3]     = {{.mode = PLASMON_OUT}};
    int64_t start = 10, count = 30, step = 2;
    struct plasmon_shape shape;

    CALL_OK(plasmon_view(client, x, &start, &count, &step, &part));
    args[1]       = (struct plasmon_arg){.mode = PLASMON_IN, .ref = part};
    args[2]       = args[1];
    add.function  = "add";
    add.args      = args;
    add.arg_count = 3;
    add.label     = "sum";
    add.device    = 0;
    add.retries   = 0;
    CALL_OK(plasmon_submit(client, &add, &y, NULL));
    CALL_OK(plasmon_shape_of(client, y, &shape));
    ASSERT_EQ(shape.dim[0], 30);
    CALL_OK(plasmon_wait(client, &y, 1, 1, 10000, NULL, NULL));
    ASSERT_EQ(came.function, pl_hash_name("add"));
    ASSERT_EQ(came.modes[0], PLASMON_OUT);
    ASSERT_EQ(came.refs[1], came.refs[2]);
    ASSERT_TRUE(came.refs[0] != came.refs[1]);
    ASSERT_EQ(came.view_count, 3);
    ASSERT_EQ(came.view[0], 10);
    ASSERT_EQ(came.view[1], 30);
    ASSERT_EQ(came.view[2], 2);
    ASSERT_EQ(came.made_dim, 30);
    ASSERT_EQ(came.place, 1);
    ASSERT_EQ(came.retries, 1);
    ASSERT_STR(came.label, "sum");
    plasmon_finish(client);
    fake_head_stop(head);
}

TEST(what_a_device_that_has_not_come_yet_can_hold_is_for_the_head_to_say)
{
    struct fake_head_config config   = {.end_tasks = true, .device_late = true};
    struct fake_head *head           = fake_head_start(&config);
    struct plasmon_client *client    = fake_head_client(head);
    const struct plasmon_shape shape = {PLASMON_F32, 1, {100}};
    struct plasmon_arg arg           = {.mode = PLASMON_OUT, .shape = &shape};
    struct plasmon_ref *made, *put, *both[2];
    const float data[100] = {0};

    CALL_OK(call(client, "fill", &arg, 1, 1, &made));
    CALL_OK(plasmon_put(client, data, &shape, NULL, &put));
    CALL_OK(plasmon_all_gather(client, (struct plasmon_ref *[]){made, put}, 2, NULL, both,
                               NULL));
    plasmon_finish(client);
    fake_head_stop(head);
}

TEST_MAIN()
