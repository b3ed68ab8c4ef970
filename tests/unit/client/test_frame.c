/*
 * The batch of operations: every byte that the hand-written encoder makes is what protobuf-c would
 * read and write.
 */
#include "base/alloc.h"
#include "client/frame.h"
#include "tests/harness/test.h"

static uint8_t *create(size_t length)
{
    return pl_alloc(length > 0 ? length : 1);
}

/* Pack the batch and decode it with wire's checks. The caller finishes the arena. */
static Plasmon__V1__ClientFrame *decode(struct frame *frame, struct wire_arena *arena)
{
    Plasmon__V1__Header header = PLASMON__V1__HEADER__INIT;
    Plasmon__V1__ClientFrame *out;
    struct pl_err err = {0};
    uint8_t *bytes;
    size_t length;

    header.protocol = WIRE_PROTOCOL;
    header.seq      = 7;
    ASSERT_OK(frame_pack(frame, &header, create, &bytes, &length));
    ASSERT_OK(wire_arena_init(arena, WIRE_ARENA_BYTES_MAX));
    if (wire_decode_client_frame(arena, bytes, length, &out, &err) != PLASMON_OK) {
        test_fail(__FILE__, __LINE__, "decode: %s", err.text);
    }
    pl_free(bytes);
    return out;
}

static struct pl_view view_of(int64_t start, int64_t count, int64_t step)
{
    return (struct pl_view){.ndim = 1, .start = {start}, .count = {count}, .step = {step}};
}

TEST(every_field_of_a_graph_and_of_an_index_arrives)
{
    struct pl_view view     = {.ndim = 2, .start = {1, 2}, .count = {3, 4}, .step = {1, 1}};
    int64_t steps[]         = {5, -6, 0, INT64_C(1) << 40};
    struct frame_arg args[] = {{.mode = 1, .ref = 1, .view = &view, .index_step = steps}};
    uint64_t scalars[]      = {7, 8};
    uint64_t scalar_steps[] = {1, 0, UINT64_MAX, 3};
    struct frame_index index        = {.ndim          = 2,
                                       .count         = {300, 2},
                                       .spread        = 2,
                                       .scalar_steps  = scalar_steps,
                                       .float_scalars = 2};
    struct frame_binding bindings[] = {{.recorded = 17, .ref = 1ull << 40}, {5, 6}};
    struct frame_scalar set[]       = {{.task = 3, .position = 1, .bits = UINT64_MAX},
                                       {.task = 0, .position = 0, .bits = 0}};
    struct frame_task indexed       = {.id           = 9,
                                       .args         = args,
                                       .arg_count    = 1,
                                       .scalars      = scalars,
                                       .scalar_count = 2,
                                       .index        = &index};
    struct frame_task launch        = {.id            = 10,
                                       .kind          = PLASMON__V1__TASK_KIND__TASK_GRAPH_LAUNCH,
                                       .graph         = 1ull << 33,
                                       .bindings      = bindings,
                                       .binding_count = 2,
                                       .set           = set,
                                       .set_count     = 2};
    Plasmon__V1__ClientFrame *got;
    struct wire_arena arena;
    struct frame frame;

    frame_init(&frame);
    ASSERT_OK(frame_add_task(&frame, &indexed));
    ASSERT_OK(frame_add_task(&frame, &launch));
    got = decode(&frame, &arena);
    ASSERT_EQ(got->n_tasks, 2);
    ASSERT_EQ(got->tasks[0]->args[0]->n_index_step, 4);
    ASSERT_EQ(memcmp(got->tasks[0]->args[0]->index_step, steps, sizeof(steps)), 0);
    ASSERT_EQ(got->tasks[0]->index->n_count, 2);
    ASSERT_EQ(got->tasks[0]->index->count[0], 300);
    ASSERT_EQ(got->tasks[0]->index->spread, 2);
    ASSERT_EQ(got->tasks[0]->index->n_scalar_step, 4);
    ASSERT_EQ(memcmp(got->tasks[0]->index->scalar_step, scalar_steps, sizeof(scalar_steps)),
              0);
    ASSERT_EQ(got->tasks[0]->index->float_scalars, 2);
    ASSERT_EQ(got->tasks[1]->graph, 1ull << 33);
    ASSERT_EQ(got->tasks[1]->n_bind, 2);
    ASSERT_EQ(got->tasks[1]->bind[0]->recorded, 17);
    ASSERT_EQ(got->tasks[1]->bind[0]->ref, 1ull << 40);
    ASSERT_EQ(got->tasks[1]->n_set, 2);
    ASSERT_EQ(got->tasks[1]->set[0]->task, 3);
    ASSERT_EQ(got->tasks[1]->set[0]->position, 1);
    ASSERT_EQ(got->tasks[1]->set[0]->value, UINT64_MAX);
    ASSERT_EQ(got->tasks[1]->set[1]->value, 0);
    wire_arena_finish(&arena);
    frame_finish(&frame);
}

TEST(every_field_of_a_collective_arrives)
{
    struct pl_shape shape              = {.dtype = PL_F64, .ndim = 1, .dim = {300}};
    struct frame_arg args[]            = {{.mode = 1, .ref = 1},
                                          {.mode = 1, .ref = 2},
                                          {.mode = 2, .ref = 3, .shape = &shape},
                                          {.mode = 2, .ref = 4, .shape = &shape}};
    struct frame_collective collective = {
        .kind = 4, .op = 5, .place_count = 2, .place = {0, 65535}};
    struct frame_task task = {.id         = 7,
                              .kind       = PLASMON__V1__TASK_KIND__TASK_COLLECTIVE,
                              .args       = args,
                              .arg_count  = 4,
                              .label      = "scatter",
                              .collective = &collective};
    Plasmon__V1__ClientFrame *got;
    struct wire_arena arena;
    struct frame frame;

    frame_init(&frame);
    ASSERT_OK(frame_add_task(&frame, &task));
    collective = (struct frame_collective){.kind = 1, .op = 1, .root = 1, .place_count = 1};
    task.arg_count = 3;
    ASSERT_OK(frame_add_task(&frame, &task));
    got = decode(&frame, &arena);
    ASSERT_EQ(got->n_tasks, 2);
    ASSERT_EQ(got->tasks[0]->collective->kind, 4);
    ASSERT_EQ(got->tasks[0]->collective->op, 5);
    ASSERT_EQ(got->tasks[0]->collective->n_place, 2);
    ASSERT_EQ(got->tasks[0]->collective->place[0], 0);
    ASSERT_EQ(got->tasks[0]->collective->place[1], 65535);
    ASSERT_EQ(got->tasks[0]->collective->root, 0);
    ASSERT_EQ(got->tasks[1]->collective->root, 1);
    ASSERT_EQ(got->tasks[1]->n_args, 3);
    wire_arena_finish(&arena);
    frame_finish(&frame);
}

TEST(every_field_of_a_task_arrives)
{
    static const uint32_t launch_shape[WIRE_LAUNCH_SHAPE_COUNT] = {
        2147483647, 1, 65535, 1024, 1, 1, 232448};
    struct pl_shape shape   = {.dtype = PL_F64, .ndim = 3, .dim = {3, 1ll << 33, 5}};
    struct pl_view view     = view_of(1000000, 77, 3);
    struct frame_arg args[] = {
        {.mode = 1, .ref = 1, .view = &view},
        {.mode = 2, .ref = UINT64_MAX, .shape = &shape},
        {.mode = 4, .ref = 300, .reduce_op = 3, .relaxed = true, .dense = true},
    };
    uint64_t scalars[]     = {0, UINT64_MAX, 0x3ff0000000000000ull};
    struct frame_task task = {.id           = 0x123456789abcull,
                              .kind         = 0,
                              .function     = 0xdeadbeef,
                              .args         = args,
                              .arg_count    = 3,
                              .scalars      = scalars,
                              .scalar_count = 3,
                              .label        = "a label",
                              .place        = 4,
                              .retries      = 9,
                              .launch_shape = launch_shape};
    Plasmon__V1__ClientFrame *got;
    struct wire_arena arena;
    struct frame frame;

    frame_init(&frame);
    ASSERT_OK(frame_add_task(&frame, &task));
    got = decode(&frame, &arena);
    ASSERT_EQ(got->header->seq, 7);
    ASSERT_EQ(got->n_tasks, 1);
    ASSERT_TRUE(got->tasks[0]->id == task.id);
    ASSERT_EQ(got->tasks[0]->function, task.function);
    ASSERT_STR(got->tasks[0]->label, "a label");
    ASSERT_EQ(got->tasks[0]->place, 4);
    ASSERT_EQ(got->tasks[0]->retries, 9);
    ASSERT_EQ(got->tasks[0]->n_launch_shape, WIRE_LAUNCH_SHAPE_COUNT);
    for (uint32_t i = 0; i < WIRE_LAUNCH_SHAPE_COUNT; i++) {
        ASSERT_EQ(got->tasks[0]->launch_shape[i], launch_shape[i]);
    }
    ASSERT_EQ(got->tasks[0]->n_scalars, 3);
    ASSERT_TRUE(memcmp(got->tasks[0]->scalars, scalars, sizeof(scalars)) == 0);
    ASSERT_EQ(got->tasks[0]->n_args, 3);
    ASSERT_EQ(got->tasks[0]->args[0]->mode, 1);
    ASSERT_EQ(got->tasks[0]->args[0]->n_view, 3);
    ASSERT_EQ(got->tasks[0]->args[0]->view[0], 1000000);
    ASSERT_EQ(got->tasks[0]->args[0]->view[1], 77);
    ASSERT_EQ(got->tasks[0]->args[0]->view[2], 3);
    ASSERT_NULL(got->tasks[0]->args[0]->shape);
    ASSERT_TRUE(got->tasks[0]->args[1]->ref == UINT64_MAX);
    ASSERT_EQ(got->tasks[0]->args[1]->shape->dtype, PL_F64);
    ASSERT_EQ(got->tasks[0]->args[1]->shape->n_dim, 3);
    ASSERT_TRUE(got->tasks[0]->args[1]->shape->dim[1] == 1ull << 33);
    ASSERT_EQ(got->tasks[0]->args[2]->reduce_op, 3);
    ASSERT_TRUE(got->tasks[0]->args[2]->relaxed);
    ASSERT_TRUE(got->tasks[0]->args[2]->dense && !got->tasks[0]->args[1]->dense);
    wire_arena_finish(&arena);
    frame_finish(&frame);
}

TEST(the_largest_task_fits_into_the_room_that_the_encoder_reserves)
{
    static const uint32_t launch_shape[WIRE_LAUNCH_SHAPE_COUNT] = {
        UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX};
    struct pl_shape shape   = {.dtype = PL_C128, .ndim = 8};
    struct pl_view view     = {.ndim = 8};
    struct frame_arg args[] = {{.mode      = 8,
                                .ref       = UINT64_MAX,
                                .view      = &view,
                                .shape     = &shape,
                                .reduce_op = UINT32_MAX,
                                .relaxed   = true,
                                .dense     = true}};
    char label[129];
    struct frame_task task = {.id           = UINT64_MAX,
                              .kind         = UINT32_MAX,
                              .function     = UINT32_MAX,
                              .args         = args,
                              .arg_count    = 1,
                              .put_offset   = UINT64_MAX,
                              .label        = label,
                              .place        = UINT32_MAX,
                              .retries      = UINT32_MAX,
                              .donatable    = true,
                              .launch_shape = launch_shape,
                              .host_buffer  = UINT64_MAX,
                              .host_offset  = UINT64_MAX};
    struct frame frame;

    memset(label, 'x', sizeof(label) - 1);
    label[sizeof(label) - 1] = '\0';
    for (int i = 0; i < 8; i++) {
        shape.dim[i]  = INT64_MAX;
        view.start[i] = INT64_MAX;
        view.count[i] = -1; /* ten bytes, the longest varint */
        view.step[i]  = -1;
    }
    for (
        int i = 0; i < 100;
        i++) { /* the encoder asserts that it stayed inside; a sanitizer sees if it did not */
        frame_init(&frame);
        for (int k = 0; k <= i % 13; k++) {
            ASSERT_OK(frame_add_task(&frame, &task));
        }
        frame_finish(&frame);
    }
}

TEST(a_payload_arrives_whole)
{
    size_t bytes           = 300000;
    uint8_t *data          = pl_alloc(bytes);
    struct pl_shape shape  = {.dtype = PL_U8, .ndim = 1, .dim = {300000}};
    struct frame_arg arg   = {.mode = 2, .ref = 5, .shape = &shape};
    struct frame_task task = {.id         = 6,
                              .kind       = PLASMON__V1__TASK_KIND__TASK_PUT,
                              .args       = &arg,
                              .arg_count  = 1,
                              .data       = data,
                              .data_bytes = bytes,
                              .put_offset = 12345,
                              .donatable  = true};
    Plasmon__V1__ClientFrame *got;
    struct wire_arena arena;
    struct frame frame;

    ASSERT_NOT_NULL(data);
    for (size_t i = 0; i < bytes; i++) {
        data[i] = (uint8_t)(i * 7);
    }
    frame_init(&frame);
    ASSERT_OK(frame_add_task(&frame, &task));
    ASSERT_TRUE(frame_full(&frame));
    got = decode(&frame, &arena);
    ASSERT_EQ(got->tasks[0]->data.len, bytes);
    ASSERT_TRUE(memcmp(got->tasks[0]->data.data, data, bytes) == 0);
    ASSERT_EQ(got->tasks[0]->put_offset, 12345);
    ASSERT_TRUE(got->tasks[0]->put_donatable);
    wire_arena_finish(&arena);
    frame_finish(&frame);
    pl_free(data);
}

TEST(a_host_copy_names_its_memory)
{
    struct pl_shape shape  = {.dtype = PL_U8, .ndim = 1, .dim = {1 << 20}};
    struct frame_arg arg   = {.mode = 2, .ref = 5, .shape = &shape};
    struct frame_task task = {.id          = 6,
                              .kind        = PLASMON__V1__TASK_KIND__TASK_PUT_HOST,
                              .args        = &arg,
                              .arg_count   = 1,
                              .host_buffer = 0x8000000000000001,
                              .host_offset = 1ull << 40};
    Plasmon__V1__ClientFrame *got;
    struct wire_arena arena;
    struct frame frame;

    frame_init(&frame);
    ASSERT_OK(frame_add_task(&frame, &task));
    got = decode(&frame, &arena);
    ASSERT_EQ(got->tasks[0]->kind, PLASMON__V1__TASK_KIND__TASK_PUT_HOST);
    ASSERT_EQ(got->tasks[0]->host_buffer, task.host_buffer);
    ASSERT_EQ(got->tasks[0]->host_offset, task.host_offset);
    wire_arena_finish(&arena);
    frame_finish(&frame);
}

TEST(releases_of_neighbours_become_one_range)
{
    Plasmon__V1__ClientFrame *got;
    struct wire_arena arena;
    struct frame frame;

    frame_init(&frame);
    for (uint64_t ref = 10; ref < 20; ref++) {
        ASSERT_OK(frame_add_release(&frame, ref, 0));
    }
    ASSERT_OK(frame_add_release(&frame, 9, 0)); /* downwards too */
    ASSERT_OK(frame_add_release(&frame, 40, 0));
    got = decode(&frame, &arena);
    ASSERT_EQ(got->n_release, 2);
    ASSERT_EQ(got->release[0]->first, 9);
    ASSERT_EQ(got->release[0]->count, 11);
    ASSERT_EQ(got->release[1]->first, 40);
    ASSERT_EQ(got->release[1]->count, 1);
    wire_arena_finish(&arena);
    frame_finish(&frame);
}

TEST(what_wants_memory_goes_in_another_frame_than_the_release_of_much)
{
    struct frame_task task = {.id = 1};
    struct frame frame;

    frame_init(&frame);
    ASSERT_OK(frame_add_task(&frame, &task));
    ASSERT_OK(frame_add_release(&frame, 3, FRAME_RELEASED_CUT - 1));
    ASSERT_TRUE(frame_admits(&frame, FRAME_TASK));
    ASSERT_TRUE(frame_admits(&frame, FRAME_PUT_OPEN));
    ASSERT_OK(frame_add_release(&frame, 4, 1));
    ASSERT_TRUE(frame_admits(&frame, FRAME_RELEASE));
    ASSERT_TRUE(!frame_admits(&frame, FRAME_TASK));
    ASSERT_TRUE(!frame_admits(&frame, FRAME_PUT_OPEN));
    frame_clear(&frame);
    ASSERT_TRUE(frame_admits(&frame, FRAME_TASK));
    frame_finish(&frame);
}

TEST(operations_that_could_be_reordered_do_not_share_a_frame)
{
    Plasmon__V1__ClientFrame fields = PLASMON__V1__CLIENT_FRAME__INIT;
    uint64_t number                 = 1;
    struct frame_task task          = {.id = 1};
    struct frame frame;

    frame_init(&frame);
    ASSERT_TRUE(frame_admits(&frame, FRAME_LOCATE));
    ASSERT_OK(frame_add_task(&frame, &task));
    ASSERT_OK(frame_add_release(&frame, 3, 0));
    ASSERT_TRUE(frame_admits(&frame, FRAME_TASK));
    ASSERT_TRUE(frame_admits(&frame, FRAME_CANCEL));

    fields.n_cancel = 1;
    fields.cancel   = &number;
    ASSERT_OK(frame_add_fields(&frame, FRAME_CANCEL, &fields));
    ASSERT_TRUE(frame_admits(&frame, FRAME_CANCEL));
    ASSERT_TRUE(!frame_admits(&frame, FRAME_TASK));
    ASSERT_TRUE(!frame_admits(&frame, FRAME_RELEASE));
    ASSERT_TRUE(!frame_admits(&frame, FRAME_LOCATE));
    frame_clear(&frame);
    ASSERT_TRUE(frame_admits(&frame, FRAME_TASK));
    frame_finish(&frame);
}

TEST(a_frame_is_full_after_256_tasks)
{
    struct frame_task task = {.id = 1};
    struct frame frame;

    frame_init(&frame);
    for (unsigned i = 0; i < FRAME_TASKS_CUT; i++) {
        ASSERT_TRUE(!frame_full(&frame));
        ASSERT_OK(frame_add_task(&frame, &task));
    }
    ASSERT_TRUE(frame_full(&frame));
    frame_finish(&frame);
}

TEST_MAIN()
