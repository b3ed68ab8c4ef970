/*
 * The label of a value is that of what wrote it, in every way in which a value is written, and for
 * as long as it is there.
 */
#include <stdio.h>
#include <string.h>

#include "head/checkpoint.h"
#include "head/core_int.h"
#include "tests/harness/test.h"
#include "tests/unit/head/core.h"

static struct head_core *core;
static uint64_t session;
static struct wire_arena arena;

/* What the last task that failed was told. */
static char said[1024];

static void take_frame(void *user, uint64_t to, const uint8_t *body, size_t length)
{
    static struct wire_arena frames;
    Plasmon__V1__HeadFrame *frame;
    struct pl_err err = {0};
    uint8_t *bytes;

    (void)user;
    (void)to;
    if (frames.bytes_max == 0) {
        ASSERT_OK(wire_arena_init(&frames, WIRE_ARENA_BYTES_MAX));
    }
    wire_arena_reset(&frames);
    bytes = core_frame(&frames, body, &length);
    ASSERT_OK(wire_decode_head_frame(&frames, bytes, length, &frame, &err));
    for (size_t i = 0; i < frame->n_failed; i++) {
        (void)snprintf(said, sizeof(said), "%s", frame->failed[i]->text);
    }
    for (size_t i = 0; i < frame->n_put_ready; i++) {
        (void)snprintf(said, sizeof(said), "%s", frame->put_ready[i]->text);
    }
}

static const struct head_ops ops = {.client_frame   = take_frame,
                                    .worker_command = core_drop_command,
                                    .fence          = core_drop_fence,
                                    .session_ended  = core_drop_end,
                                    .random64       = core_count_up,
                                    .spill          = core_drop_spill};

static struct head_core *core_with_lineage(void)
{
    const struct head_config config = {
        .ops = &ops, .retries = UINT32_MAX, .epoch = 1, .lineage_bytes = 1 << 20};
    struct head_core *made;

    ASSERT_OK(head_core_create(&config, &made));
    head_core_tick(made, 1);
    return made;
}

/* A device on each of two hosts that reach each other. */
static void begin(void)
{
    static const char *const hosts[] = {"a", "b"};

    ASSERT_OK(wire_arena_init(&arena, WIRE_ARENA_BYTES_MAX));
    core = core_with_lineage();
    for (uint32_t i = 0; i < 2; i++) {
        ASSERT_EQ(core_join_reachable(core, hosts[i], 0, 1 << 20), i);
    }
    session = core_client(core);
}

static void end(void)
{
    head_core_check(core);
    head_core_destroy(core);
    wire_arena_finish(&arena);
}

/* ------------------------------------------------------------------ what a client sends */

static uint64_t dim_of_8             = 8;
static Plasmon__V1__Shape shape_of_8 = {
    .base  = PROTOBUF_C_MESSAGE_INIT(&plasmon__v1__shape__descriptor),
    .dtype = PL_F32,
    .n_dim = 1,
    .dim   = &dim_of_8};

static void send_all(Plasmon__V1__ClientFrame *frame)
{
    struct pl_err err = {0};

    ASSERT_OK(head_core_client_frame(core, session, frame, &err));
    head_core_flush(core);
    head_core_check(core);
}

static void send(Plasmon__V1__Task *task, const char *label)
{
    static uint64_t last           = 1000;
    Plasmon__V1__ClientFrame frame = PLASMON__V1__CLIENT_FRAME__INIT;

    task->id      = last += 100; /* of the instances of an index launch, too */
    task->label   = (char *)(uintptr_t)label;
    frame.tasks   = &task;
    frame.n_tasks = 1;
    send_all(&frame);
}

/* f32[8] as `ref`. */
static void put(uint64_t ref, const char *label)
{
    Plasmon__V1__Arg arg = PLASMON__V1__ARG__INIT, *args[] = {&arg};
    Plasmon__V1__Task task = PLASMON__V1__TASK__INIT;
    uint8_t bytes[32]      = {1};

    arg.mode           = PLASMON__V1__MODE__MODE_OUT;
    arg.ref            = ref;
    arg.shape          = &shape_of_8;
    task.kind          = PLASMON__V1__TASK_KIND__TASK_PUT;
    task.args          = args;
    task.n_args        = 1;
    task.place         = 1;
    task.data.data     = bytes;
    task.data.len      = sizeof(bytes);
    task.put_donatable = true;
    send(&task, label);
}

struct arg {
    uint32_t mode;
    uint64_t ref;
    bool fresh;
    int64_t count; /* of its first elements; 0: all */
};
#define NEW(id)                                    \
    {                                              \
        PLASMON__V1__MODE__MODE_OUT, (id), true, 0 \
    }
#define IN(id)                                     \
    {                                              \
        PLASMON__V1__MODE__MODE_IN, (id), false, 0 \
    }
#define INOUT(id, elements)                                    \
    {                                                          \
        PLASMON__V1__MODE__MODE_INOUT, (id), false, (elements) \
    }
#define ADD(id)                                        \
    {                                                  \
        PLASMON__V1__MODE__MODE_REDUCE, (id), false, 0 \
    }
#define CALL(label, ...)                                \
    call((label), 0, (const struct arg[]){__VA_ARGS__}, \
         sizeof((const struct arg[]){__VA_ARGS__}) / sizeof(struct arg))
#define RECORD(label, ...)                              \
    call((label), 7, (const struct arg[]){__VA_ARGS__}, \
         sizeof((const struct arg[]){__VA_ARGS__}) / sizeof(struct arg))

static void call(const char *label, uint64_t graph, const struct arg *args, size_t count)
{
    Plasmon__V1__Task task = PLASMON__V1__TASK__INIT;
    Plasmon__V1__Arg wire[4], *list[4];
    int64_t views[4][3];

    for (size_t i = 0; i < count; i++) {
        plasmon__v1__arg__init(&wire[i]);
        views[i][0]       = 0;
        views[i][1]       = args[i].count;
        views[i][2]       = 1;
        wire[i].mode      = args[i].mode;
        wire[i].ref       = args[i].ref;
        wire[i].shape     = args[i].fresh ? &shape_of_8 : NULL;
        wire[i].view      = views[i];
        wire[i].n_view    = args[i].count != 0 ? 3 : 0;
        wire[i].reduce_op = args[i].mode == PLASMON__V1__MODE__MODE_REDUCE;
        list[i]           = &wire[i];
    }
    task.function = pl_hash_name("touch");
    task.place    = 1;
    task.graph    = graph;
    task.args     = list;
    task.n_args   = count;
    send(&task, label);
}

static void snapshot(uint64_t ref, uint64_t of, const int64_t *view)
{
    Plasmon__V1__Arg args[2], *list[] = {&args[0], &args[1]};
    Plasmon__V1__Task task = PLASMON__V1__TASK__INIT;

    plasmon__v1__arg__init(&args[0]);
    plasmon__v1__arg__init(&args[1]);
    args[0].mode   = PLASMON__V1__MODE__MODE_IN;
    args[0].ref    = of;
    args[0].view   = (int64_t *)(uintptr_t)view;
    args[0].n_view = view != NULL ? 3 : 0;
    args[1].mode   = PLASMON__V1__MODE__MODE_OUT;
    args[1].ref    = ref;
    task.kind      = PLASMON__V1__TASK_KIND__TASK_SNAPSHOT;
    task.args      = list;
    task.n_args    = 2;
    send(&task, "");
}

static void release(uint64_t first, uint64_t count)
{
    Plasmon__V1__ClientFrame frame = PLASMON__V1__CLIENT_FRAME__INIT;
    Plasmon__V1__Range range = PLASMON__V1__RANGE__INIT, *ranges[] = {&range};

    range.first     = first;
    range.count     = count;
    frame.release   = ranges;
    frame.n_release = 1;
    send_all(&frame);
}

/* What the workers were told is done, and what follows from that. */
static void all_done(void)
{
    for (uint32_t i = 0; i < core->devices.count; i++) {
        const struct head_device *device = head_device_at(core, i);
        Plasmon__V1__WorkerFrame frame   = PLASMON__V1__WORKER_FRAME__INIT;
        Plasmon__V1__Range range = PLASMON__V1__RANGE__INIT, *ranges[] = {&range};
        struct pl_err err = {0};

        if (device->gone || device->seq_last == 0) {
            continue;
        }
        range.first  = 1;
        range.count  = device->seq_last;
        frame.done   = ranges;
        frame.n_done = 1;
        ASSERT_OK(head_core_worker_frame(core, i, &frame, &err));
        head_core_flush(core);
        head_core_check(core);
    }
}

/* ---------------------------------------------------------------------- what people see */

static Plasmon__V1__ListReply list(const char *label)
{
    Plasmon__V1__ListRequest request = PLASMON__V1__LIST_REQUEST__INIT;
    Plasmon__V1__ListReply reply     = PLASMON__V1__LIST_REPLY__INIT;

    wire_arena_reset(&arena);
    request.kind  = PLASMON__V1__LIST_KIND__LIST_OBJECTS;
    request.label = (char *)(uintptr_t)label;
    ASSERT_OK(head_core_list_objects(core, &request, NULL, &arena, &reply));
    ASSERT_NULL(reply.next);
    return reply;
}

static const Plasmon__V1__ObjectRow *row_of(uint64_t ref)
{
    Plasmon__V1__ListReply reply = list("");

    for (size_t i = 0; i < reply.n_objects; i++) {
        if (reply.objects[i]->client != 0 && reply.objects[i]->ref == ref) {
            return reply.objects[i];
        }
    }
    test_fail(__FILE__, __LINE__, "ref %llu is not listed", (unsigned long long)ref);
    return NULL;
}

#define ASSERT_LABEL(ref, label) ASSERT_STR(row_of(ref)->value_label, (label))

static Plasmon__V1__StatusReply memory(const char *label)
{
    Plasmon__V1__StatusReply reply = PLASMON__V1__STATUS_REPLY__INIT;
    struct head_holders *holders;

    wire_arena_reset(&arena);
    ASSERT_OK(head_holders_create(label, &holders));
    while (head_core_holders_look(core, holders, 3)) {
    }
    ASSERT_OK(head_core_status(core, &arena, &reply));
    ASSERT_OK(head_core_holders_tell(core, holders, &arena, &reply));
    for (size_t i = 0; i < reply.n_holders; i++) { /* lent by what goes now */
        Plasmon__V1__MemoryHolder *row = reply.holders[i];

        row->label       = wire_arena_text(&arena, row->label);
        row->value_label = wire_arena_text(&arena, row->value_label);
    }
    head_holders_destroy(holders);
    return reply;
}

/* Texts that the head has. */
static uint32_t texts(void)
{
    uint32_t count = 0;

    for (size_t i = 0; i < core->labels.items.count; i++) {
        count += ((struct head_label *)pl_vec_at(&core->labels.items, i))->uses > 0;
    }
    return count;
}

/* -------------------------------------------------------------------------------- tests */

TEST(a_value_has_the_label_of_the_put_or_call_that_wrote_it)
{
    begin();
    put(1, "weights epoch 3");
    CALL("gradient", NEW(2), IN(1));
    CALL("", NEW(3));
    ASSERT_LABEL(1, "weights epoch 3");
    ASSERT_LABEL(2, "gradient");
    ASSERT_LABEL(3, "");
    ASSERT_STR(row_of(1)->label, ""); /* the client's: it has none */
    ASSERT_TRUE(!row_of(1)->more_labels && !row_of(3)->more_labels);
    all_done();
    ASSERT_LABEL(1, "weights epoch 3");
    ASSERT_LABEL(2, "gradient");
    end();
}

/* A put through shared memory begins. */
static void open_put(uint64_t ref, const char *label)
{
    Plasmon__V1__ClientFrame frame = PLASMON__V1__CLIENT_FRAME__INIT;
    Plasmon__V1__PutOpen open = PLASMON__V1__PUT_OPEN__INIT, *opens[] = {&open};

    open.request     = 1;
    open.ref         = ref;
    open.shape       = &shape_of_8;
    open.label       = (char *)(uintptr_t)label;
    open.place       = 1; /* device 0 */
    frame.put_open   = opens;
    frame.n_put_open = 1;
    send_all(&frame);
}

TEST(a_put_through_shared_memory_has_its_label_before_it_is_sealed)
{
    begin();
    open_put(1, "batch 7");
    ASSERT_LABEL(1, "batch 7");
    end();
}

TEST(what_writes_over_a_value_gives_it_its_own_label_and_older_versions_keep_theirs)
{
    begin();
    put(1, "weights epoch 3");
    snapshot(2, 1, NULL);
    CALL("step", INOUT(1, 0)); /* a fork: somebody has the old version */
    ASSERT_LABEL(1, "step");
    ASSERT_LABEL(2, "weights epoch 3");
    all_done();
    CALL("step 2", INOUT(1, 0)); /* in place */
    ASSERT_LABEL(1, "step 2");
    all_done();
    CALL("", INOUT(1, 0)); /* written by what says nothing */
    ASSERT_LABEL(1, "");
    ASSERT_LABEL(2, "weights epoch 3");
    all_done();
    release(1, 2); /* versions between them, which lineage had names for, go too */
    ASSERT_EQ(texts(), 0);
    end();
}

TEST(a_value_with_parts_has_the_label_of_most_of_it_and_a_view_that_of_what_it_shows)
{
    const int64_t first[] = {0, 2, 1}, last[] = {4, 4, 1};

    begin();
    put(1, "weights");
    CALL("patch", INOUT(1, 2));
    ASSERT_LABEL(1, "weights");
    ASSERT_TRUE(row_of(1)->more_labels);
    snapshot(2, 1, first);
    snapshot(3, 1, last);
    ASSERT_LABEL(2, "patch");
    ASSERT_LABEL(3, "weights");
    ASSERT_TRUE(!row_of(2)->more_labels && !row_of(3)->more_labels);
    CALL("larger patch", INOUT(1, 5));
    ASSERT_LABEL(1, "larger patch");
    CALL("", INOUT(1, 6)); /* most of it has none: that of the rest says more */
    ASSERT_LABEL(1, "weights");
    ASSERT_TRUE(row_of(1)->more_labels);
    end();
}

TEST(a_copy_of_a_view_with_gaps_that_is_looked_at_has_the_label_of_what_it_shows)
{
    Plasmon__V1__ClientFrame frame = PLASMON__V1__CLIENT_FRAME__INIT;
    Plasmon__V1__Locate locate = PLASMON__V1__LOCATE__INIT, *locates[] = {&locate};
    int64_t odd[] = {1, 4, 2};

    begin();
    put(1, "weights");
    locate.request  = 1;
    locate.ref      = 1;
    locate.view     = odd;
    locate.n_view   = 3;
    locate.hold_ref = 2;
    locate.compact  = true;
    frame.locate    = locates;
    frame.n_locate  = 1;
    send_all(&frame);
    ASSERT_LABEL(2, "weights");
    end();
}

TEST(of_more_labels_than_are_told_apart_the_filter_finds_all)
{
    enum { PARTS = HEAD_LABELS_SEEN_MAX };
    char label[16];

    begin();
    put(1, "part 8");
    for (int64_t count = PARTS - 1; count > 0; count--) {
        (void)snprintf(label, sizeof(label), "part %lld", (long long)count);
        CALL(label, INOUT(1, count));
    }
    put(2, "other");
    CALL("part 0", INOUT(1, 1));
    for (int part = 0; part <= PARTS; part++) {
        (void)snprintf(label, sizeof(label), "part %d", part);
        ASSERT_EQ(list(label).n_objects, part == 1 ? 0 : 1); /* that was written over */
    }
    ASSERT_TRUE(row_of(1)->more_labels);
    end();
}

TEST(partial_results_and_what_they_are_folded_into_have_the_label_of_their_calls)
{
    begin();
    put(1, "zero");
    for (uint32_t i = 0; i < HEAD_FOLD_MAX + 2; i++) {
        CALL(i == 0 ? "" : "histogram", ADD(1));
    }
    CALL("use", NEW(2), IN(1)); /* they are folded for it */
    ASSERT_LABEL(1, "histogram");
    all_done();
    ASSERT_LABEL(1, "histogram");
    end();
}

TEST(results_of_a_collective_have_its_label)
{
    Plasmon__V1__Collective collective = PLASMON__V1__COLLECTIVE__INIT;
    Plasmon__V1__Task task             = PLASMON__V1__TASK__INIT;
    Plasmon__V1__Arg wire[4], *args[4];
    uint32_t nowhere[2] = {0};

    begin();
    put(1, "member");
    put(2, "member");
    for (uint32_t i = 0; i < 4; i++) {
        plasmon__v1__arg__init(&wire[i]);
        args[i]       = &wire[i];
        wire[i].mode  = i < 2 ? PLASMON__V1__MODE__MODE_IN : PLASMON__V1__MODE__MODE_OUT;
        wire[i].ref   = 1 + i;
        wire[i].shape = i < 2 ? NULL : &shape_of_8;
    }
    collective.kind    = PLASMON__V1__COLLECTIVE_KIND__ALL_REDUCE;
    collective.op      = 1;
    collective.n_place = 2;
    collective.place   = nowhere;
    task.kind          = PLASMON__V1__TASK_KIND__TASK_COLLECTIVE;
    task.collective    = &collective;
    task.args          = args;
    task.n_args        = 4;
    send(&task, "sum of gradients");
    ASSERT_LABEL(3, "sum of gradients");
    ASSERT_LABEL(4, "sum of gradients");
    ASSERT_LABEL(1, "member");
    end();
}

TEST(all_parts_that_an_index_launch_makes_have_its_label)
{
    Plasmon__V1__Index index = PLASMON__V1__INDEX__INIT;
    Plasmon__V1__Task task   = PLASMON__V1__TASK__INIT;
    Plasmon__V1__Arg arg = PLASMON__V1__ARG__INIT, *args[] = {&arg};
    uint64_t count = 3; /* of 4: no instance writes the last part */
    int64_t step   = 2;
    int64_t view[] = {0, 2, 1};

    begin();
    index.count      = &count;
    index.n_count    = 1;
    arg.mode         = PLASMON__V1__MODE__MODE_OUT;
    arg.ref          = 1;
    arg.shape        = &shape_of_8;
    arg.view         = view;
    arg.n_view       = 3;
    arg.index_step   = &step;
    arg.n_index_step = 1;
    task.function    = pl_hash_name("touch");
    task.index       = &index;
    task.args        = args;
    task.n_args      = 1;
    send(&task, "tiles");
    ASSERT_LABEL(1, "tiles");
    ASSERT_TRUE(!row_of(1)->more_labels);
    ASSERT_EQ(texts(), 1);
    end();
}

/* Not "graph", which is what its launches are called. */
static void graph_launch(void)
{
    Plasmon__V1__Task task = PLASMON__V1__TASK__INIT;

    task.kind  = PLASMON__V1__TASK_KIND__TASK_GRAPH_LAUNCH;
    task.graph = 7;
    send(&task, "");
}

static void graph_record(void)
{
    Plasmon__V1__Task task = PLASMON__V1__TASK__INIT;
    Plasmon__V1__Arg args[2], *list_of[] = {&args[0], &args[1]};

    RECORD("embed", NEW(2), IN(1));
    RECORD("attend", NEW(3), IN(2));
    RECORD("normalize", INOUT(3, 0));
    for (uint32_t i = 0; i < 2; i++) {
        plasmon__v1__arg__init(&args[i]);
        args[i].mode  = PLASMON__V1__MODE__MODE_OUT;
        args[i].ref   = 2 + i;
        args[i].shape = &shape_of_8;
    }
    task.kind   = PLASMON__V1__TASK_KIND__TASK_GRAPH_END;
    task.graph  = 7;
    task.args   = list_of;
    task.n_args = 2;
    send(&task, "");
}

TEST(outputs_of_a_recorded_graph_have_the_label_of_the_last_call_that_writes_them)
{
    begin();
    put(1, "tokens");
    graph_record();
    graph_launch();
    ASSERT_LABEL(2, "embed");
    ASSERT_LABEL(3, "normalize");
    all_done();
    CALL("other", INOUT(3, 0));
    ASSERT_LABEL(3, "other");
    graph_launch();
    ASSERT_LABEL(3, "normalize");
    end();
}

TEST(what_fails_has_the_label_of_what_was_to_write_it)
{
    begin();
    CALL("never made", NEW(1), IN(99)); /* there is no such ref */
    ASSERT_LABEL(1, "never made");
    ASSERT_EQ((int)row_of(1)->state, PLASMON__V1__OBJECT_STATE__OBJECT_FAILED);
    end();
}

TEST(what_is_made_again_after_a_loss_has_its_label)
{
    begin();
    CALL("activations", NEW(1));
    all_done();
    test_expect_log();
    head_core_node_gone(core, "a", "it burns");
    head_core_flush(core);
    ASSERT_LABEL(1, "activations");
    all_done();
    ASSERT_EQ((int)row_of(1)->state, PLASMON__V1__OBJECT_STATE__OBJECT_READY);
    ASSERT_EQ(row_of(1)->places[0]->device, 2);
    ASSERT_LABEL(1, "activations");
    end();
}

TEST(a_filter_finds_labels_of_values_and_clients_and_names)
{
    Plasmon__V1__ClientFrame frame = PLASMON__V1__CLIENT_FRAME__INIT;
    Plasmon__V1__Publish publish = PLASMON__V1__PUBLISH__INIT, *publishes[] = {&publish};
    Plasmon__V1__StatusReply held;

    begin();
    put(1, "weights epoch 3");
    put(2, "weights epoch 4");
    put(3, "");
    publish.request = 1;
    publish.ref     = 2;
    publish.name    = (char *)(uintptr_t) "model";
    frame.publish   = publishes;
    frame.n_publish = 1;
    send_all(&frame);
    ASSERT_EQ(list("").n_objects, 4);
    ASSERT_EQ(list("epoch 3").n_objects, 1);
    ASSERT_EQ(list("epoch").n_objects, 3); /* the name shows such a value, too */
    ASSERT_EQ(list("model").n_objects, 1);
    ASSERT_EQ(list("nothing has this").n_objects, 0);

    held = memory("");
    ASSERT_EQ(held.n_holders, 4);
    held = memory("epoch 3");
    ASSERT_EQ(held.n_holders, 1);
    ASSERT_EQ(held.holders[0]->ref, 1);
    ASSERT_STR(held.holders[0]->value_label, "weights epoch 3");
    held = memory("model");
    ASSERT_EQ(held.n_holders, 1);
    ASSERT_EQ(held.holders[0]->client, 0);
    ASSERT_STR(held.holders[0]->label, "model");
    ASSERT_STR(held.holders[0]->value_label, "weights epoch 4");
    ASSERT_EQ(memory("nothing has this").holders_left, 0);
    end();
}

/* A hundred thousand values of ten kinds cost ten texts; and a tile is as large as without. */
TEST(texts_are_shared_and_go_with_the_last_value)
{
    enum { COUNT = 20000 };
    char label[32];

    begin();
    for (uint64_t ref = 1; ref <= COUNT; ref++) {
        Plasmon__V1__Arg arg = PLASMON__V1__ARG__INIT, *args[] = {&arg};
        Plasmon__V1__Task task = PLASMON__V1__TASK__INIT, *tasks[] = {&task};
        Plasmon__V1__ClientFrame calls = PLASMON__V1__CLIENT_FRAME__INIT;
        struct pl_err err              = {0};

        (void)snprintf(label, sizeof(label), "layer %u", (unsigned)(ref % 10));
        arg.mode      = PLASMON__V1__MODE__MODE_OUT;
        arg.ref       = ref;
        arg.shape     = &shape_of_8;
        task.id       = UINT64_C(10000000) + ref;
        task.function = pl_hash_name("touch");
        task.label    = label;
        task.args     = args;
        task.n_args   = 1;
        calls.tasks   = tasks;
        calls.n_tasks = 1;
        ASSERT_OK(head_core_client_frame(core, session, &calls, &err));
    }
    ASSERT_EQ(texts(), 10);
    ASSERT_TRUE(core->labels.items.count <= 16);
    ASSERT_TRUE(offsetof(struct head_tile, order) == 24); /* it lies in padding */

    head_core_flush(core);
    all_done();
    release(1, COUNT);
    ASSERT_EQ(texts(), 0);
    put(1, "another");
    ASSERT_EQ(core->labels.items.count, 10); /* in a place of one that went */
    end();
}

/* The last launch of device 0 has no memory. */
static void starves(void)
{
    const struct head_device *device    = head_device_at(core, 0);
    Plasmon__V1__WorkerFrame frame      = PLASMON__V1__WORKER_FRAME__INIT;
    Plasmon__V1__LaunchFailure failure  = PLASMON__V1__LAUNCH_FAILURE__INIT;
    Plasmon__V1__LaunchFailure *list_of = &failure;
    struct pl_err err                   = {0};

    failure.seq    = device->seq_last;
    failure.status = PLASMON_EDEVMEM;
    failure.text   = (char *)(uintptr_t) "it needs much";
    frame.failed   = &list_of;
    frame.n_failed = 1;
    said[0]        = '\0';
    ASSERT_OK(head_core_worker_frame(core, 0, &frame, &err));
    head_core_flush(core);
}

TEST(who_has_no_memory_is_told_what_is_there_by_its_labels)
{
    begin();
    put(2, "batch");
    put(1, "weights");
    put(3, "weights");
    all_done();
    CALL("later", INOUT(2, 0)); /* where the batch is */
    CALL("too much", NEW(4));
    starves();
    ASSERT_CONTAINS(said, "'too much'");
    ASSERT_CONTAINS(said,
                    "it needs much; of what is there: \"weights\" 64 B, \"later\" 32 B");
    ASSERT_NULL(strstr(said, "\"too much\"")); /* which is not there */
    end();
}

TEST(who_has_no_memory_for_a_put_through_shared_memory_is_told_it_too)
{
    begin();
    put(1, "weights");
    all_done();
    open_put(2, "batch 7");
    starves();
    ASSERT_CONTAINS(said, "'batch 7'");
    ASSERT_CONTAINS(said, "it needs much; of what is there: \"weights\" 32 B");
    end();
}

TEST(who_has_no_memory_is_told_the_largest_however_many_there_are)
{
    char label[16];

    begin();
    for (uint64_t ref = 10; ref < 10 + 2 * HEAD_LABELS_SEEN_MAX; ref++) {
        (void)snprintf(label, sizeof(label), "batch %u", (unsigned)ref);
        put(ref, label);
    }
    dim_of_8 = 64;
    CALL("weights", NEW(1));
    dim_of_8 = 8;
    all_done();
    CALL("too much", NEW(4));
    starves();
    ASSERT_CONTAINS(said, "of what is there: \"weights\" 256 B, \"batch ");
    end();
}

TEST(who_has_no_memory_is_told_nothing_where_there_are_no_labels)
{
    begin();
    put(1, "");
    all_done();
    CALL("", NEW(4));
    starves();
    ASSERT_CONTAINS(said, "it needs much");
    ASSERT_NULL(strstr(said, "of what is there"));
    end();
}

TEST(who_has_no_memory_is_told_nothing_of_other_namespaces)
{
    Plasmon__V1__Hello hello = PLASMON__V1__HELLO__INIT;
    struct pl_err err        = {0};

    begin();
    put(1, "secret of others");
    all_done();
    hello.protocol_min = hello.protocol_max = WIRE_PROTOCOL;
    hello.namespace_                        = (char *)(uintptr_t) "mine";
    ASSERT_OK(head_core_client_open(core, &hello, &session, &err));
    put(1, "my own");
    all_done();
    CALL("too much", NEW(4));
    starves();
    ASSERT_CONTAINS(said, "of what is there: \"my own\" 32 B");
    ASSERT_NULL(strstr(said, "secret"));
    end();
}

/* -------------------------------------------------------------------------- checkpoints */

static struct head_bytes saved_of(struct head_core *from)
{
    struct head_bytes saved = {0};

    if (head_core_unquiet(from) != NULL) {
        test_fail(__FILE__, __LINE__, "%s", head_core_unquiet(from));
    }
    head_core_save(from, &saved);
    return saved;
}

static plasmon_status_t load(const struct head_bytes *saved, struct head_core **out_core)
{
    struct head_reader in = {.at = saved->data, .end = saved->data + saved->length};
    struct pl_err err     = {0};

    *out_core = core_with_lineage();
    return head_core_load(*out_core, &in, &err);
}

TEST(labels_are_in_a_checkpoint)
{
    struct head_bytes saved;
    struct head_core *next;

    begin();
    put(1, "tokens");
    put(4, "weights");
    CALL("patch", INOUT(4, 2));
    CALL("", NEW(5));
    graph_record();
    graph_launch();
    all_done();
    saved = saved_of(core);
    ASSERT_OK(load(&saved, &next));
    head_core_check(next);
    head_core_destroy(core);
    core = next;
    pl_free(saved.data);
    ASSERT_LABEL(1, "tokens");
    ASSERT_LABEL(2, "embed");
    ASSERT_LABEL(3, "normalize");
    ASSERT_LABEL(4, "weights");
    ASSERT_TRUE(row_of(4)->more_labels);
    ASSERT_LABEL(5, "");
    ASSERT_EQ(texts(), 5);
    CALL("other", INOUT(3, 0));
    graph_launch(); /* its plan is made from the checkpoint, too */
    ASSERT_LABEL(3, "normalize");
    all_done();

    /* Bytes that are read from one are made again, labels included. */
    saved = saved_of(core);
    head_core_destroy(core);
    ASSERT_OK(load(&saved, &core));
    pl_free(saved.data);
    test_expect_log();
    head_core_node_gone(core, "a", "it burns");
    head_core_flush(core);
    ASSERT_LABEL(5, "");
    ASSERT_LABEL(3, "normalize");
    end();
}

/* A head of before labels wrote just that; and its checkpoints are read. */
TEST(without_labels_a_checkpoint_is_as_it_was)
{
    struct head_bytes plain, labelled;
    struct head_core *next;

    begin();
    put(1, "");
    all_done();
    plain = saved_of(core);
    ASSERT_EQ(plain.data[plain.length - 1], HEAD_SECTION_END);
    ASSERT_OK(load(&plain, &next));
    head_core_destroy(next);
    put(2, "x");
    all_done();
    labelled = saved_of(core);
    /* section, texts, "x", tiles, number, end */
    ASSERT_EQ(labelled.data[labelled.length - 7], HEAD_SECTION_LABELS);
    ASSERT_EQ(plain.data[plain.length - 7] == HEAD_SECTION_LABELS, false);

    labelled.data[labelled.length - 7] = HEAD_SECTION_END; /* as if it were without */
    labelled.length -= 6;
    ASSERT_OK(load(&labelled, &next));
    head_core_destroy(core);
    core = next;
    ASSERT_LABEL(2, "");
    pl_free(plain.data);
    pl_free(labelled.data);
    end();
}

TEST(a_checkpoint_of_labels_with_any_bit_changed_is_taken_or_refused)
{
    struct head_bytes saved;
    struct head_core *next;
    uint32_t refused = 0;
    size_t first;

    begin();
    put(1, "tokens");
    put(2, "tokens");
    put(3, "weights");
    all_done();
    saved = saved_of(core);
    first = saved.length - 1;
    while (saved.data[first] != HEAD_SECTION_LABELS) {
        first--;
    }
    for (size_t bit = first * 8; bit < saved.length * 8; bit++) {
        saved.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
        refused += load(&saved, &next) != PLASMON_OK;
        head_core_destroy(next);
        saved.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    ASSERT_TRUE(refused > 50);
    for (; saved.length > first; saved.length--) { /* cut anywhere */
        struct head_bytes cut = {.data = saved.data, .length = saved.length - 1};

        ASSERT_STATUS(load(&cut, &next), PLASMON_EMALFORMED);
        head_core_destroy(next);
    }
    pl_free(saved.data);
    end();
}

TEST_MAIN()
