/*
 * Recorded graphs in the head alone: where a recording is cut, what its workers are told, when they
 * are told again and when to forget.
 *
 * What the head sends to a worker is kept, decoded, in `told`; launches are reported done by hand.
 */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/alloc.h"
#include "head/checkpoint.h"
#include "tests/harness/test.h"
#include "tests/unit/head/core.h"
#include "wire/wire.h"

#define DEVICES  3u
#define SCALE    0x11u /* functions are numbers here: nobody runs them */
#define TOLD_MAX 256u

static struct pl_err err;

/* ---------------------------------------------------------------------------- the world */

struct told {
    uint32_t device;
    Plasmon__V1__WorkerCommand *command;
};
static struct told told[TOLD_MAX];
static uint32_t told_count;
static uint32_t failures;
static int32_t failure_status;

static void keep_command(void *user, uint32_t device, const uint8_t *body, size_t length)
{
    (void)user;
    ASSERT_TRUE(told_count < TOLD_MAX);
    told[told_count].device  = device;
    told[told_count].command = plasmon__v1__worker_command__unpack(NULL, length, body);
    ASSERT_TRUE(told[told_count].command != NULL);
    told_count++;
}

static void keep_frame(void *user, uint64_t session, const uint8_t *body, size_t length)
{
    Plasmon__V1__HeadFrame *frame = plasmon__v1__head_frame__unpack(NULL, length, body);

    (void)user;
    (void)session;
    ASSERT_TRUE(frame != NULL);
    failures += (uint32_t)frame->n_failed;
    for (size_t i = 0; i < frame->n_failed; i++) {
        failure_status = frame->failed[i]->status;
    }
    plasmon__v1__head_frame__free_unpacked(frame, NULL);
}

static const struct head_ops ops = {.client_frame   = keep_frame,
                                    .worker_command = keep_command,
                                    .fence          = core_drop_fence,
                                    .session_ended  = core_drop_end,
                                    .random64       = core_count_up};

static void forget_told(void)
{
    for (uint32_t i = 0; i < told_count; i++) {
        plasmon__v1__worker_command__free_unpacked(told[i].command, NULL);
    }
    told_count = 0;
}

static void worker_hello(struct head_core *core, uint32_t device, uint32_t incarnation,
                         uint64_t enqueued)
{
    Plasmon__V1__WorkerHello hello = PLASMON__V1__WORKER_HELLO__INIT;
    Plasmon__V1__Range range = PLASMON__V1__RANGE__INIT, *list[] = {&range};
    uint32_t index;

    hello.host        = (char *)(uintptr_t) "a";
    hello.node        = hello.host;
    hello.name        = hello.host;
    hello.host_device = device;
    hello.kind        = 1;
    hello.bytes_total = 1 << 26;
    hello.incarnation = incarnation;
    hello.enqueued    = enqueued;
    if (enqueued > 0) { /* none of it had completed */
        range.first        = 1;
        range.count        = enqueued;
        hello.n_unfinished = 1;
        hello.unfinished   = list;
    }
    ASSERT_OK(head_core_worker_up(core, &hello, &index, &err));
    ASSERT_EQ(index, device);
}

struct world {
    struct head_core *core;
    uint64_t session;
    uint64_t task; /* id of the last one */
};

/* What is 32 bytes, half of an array here, is worth a launch of its own. */
static const struct head_config head_config = {.ops         = &ops,
                                               .retries     = UINT32_MAX,
                                               .epoch       = 1,
                                               .chain_bytes = 32 * 256};

static struct world world_make(void)
{
    Plasmon__V1__Hello hello = PLASMON__V1__HELLO__INIT;
    struct world world       = {.task = 1000};

    failures = 0;
    ASSERT_OK(head_core_create(&head_config, &world.core));
    head_core_tick(world.core, 1);
    ASSERT_OK(head_core_node_up(world.core, "a", "a", DEVICES, false, &err));
    for (uint32_t i = 0; i < DEVICES; i++) {
        worker_hello(world.core, i, 1, 0);
    }
    hello.protocol_min = hello.protocol_max = WIRE_PROTOCOL;
    ASSERT_OK(head_core_client_open(world.core, &hello, &world.session, &err));
    return world;
}

static void world_end(struct world *world)
{
    head_core_check(world->core);
    head_core_destroy(world->core);
    forget_told();
}

/* --------------------------------------------------------------------------- the client */

static Plasmon__V1__Shape shape_of_16 = {
    .base  = PROTOBUF_C_MESSAGE_INIT(&plasmon__v1__shape__descriptor),
    .dtype = PL_F32,
    .n_dim = 1,
    .dim   = (uint64_t[]){16}};

static void send(struct world *world, Plasmon__V1__Task *task)
{
    Plasmon__V1__ClientFrame frame = PLASMON__V1__CLIENT_FRAME__INIT;

    task->id      = ++world->task;
    frame.n_tasks = 1;
    frame.tasks   = &task;
    ASSERT_OK(head_core_client_frame(world->core, world->session, &frame, &err));
    head_core_flush(world->core);
}

/*
 * y := f(x) on a device; y from GRAPH_REF on is made by its first use. x 0: no input. mode of y:
 * OUT, INOUT or REDUCE. graph 0: it runs.
 */
static void call(struct world *world, uint64_t graph, uint32_t device, uint32_t mode,
                 uint64_t y, bool fresh, uint64_t x)
{
    Plasmon__V1__Arg args[2], *list[] = {&args[0], &args[1]};
    Plasmon__V1__Task task = PLASMON__V1__TASK__INIT;

    plasmon__v1__arg__init(&args[0]);
    plasmon__v1__arg__init(&args[1]);
    args[0].mode  = mode;
    args[0].ref   = y;
    args[0].shape = fresh ? &shape_of_16 : NULL;
    if (mode == PLASMON__V1__MODE__MODE_REDUCE) {
        args[0].reduce_op = 1;
    }
    args[1].mode  = PLASMON__V1__MODE__MODE_IN;
    args[1].ref   = x;
    task.function = SCALE;
    task.graph    = graph;
    task.place    = device + 1;
    task.n_args   = x == 0 ? 1 : 2;
    task.args     = list;
    send(world, &task);
}

static void out(struct world *world, uint64_t graph, uint32_t device, uint64_t y,
                uint64_t x)
{
    call(world, graph, device, PLASMON__V1__MODE__MODE_OUT, y, true, x);
}

static void update(struct world *world, uint64_t graph, uint32_t device, uint64_t y,
                   uint64_t x)
{
    call(world, graph, device, PLASMON__V1__MODE__MODE_INOUT, y, false, x);
}

/* Recorded in graph 7: half of y is added to, written or read; x is only read by what adds, else updated. */
static void use_half(struct world *world, uint32_t device, uint32_t mode, uint64_t y,
                     int64_t half, uint64_t x)
{
    Plasmon__V1__Arg args[2], *list[] = {&args[0], &args[1]};
    Plasmon__V1__Task task = PLASMON__V1__TASK__INIT;
    int64_t view[]         = {8 * half, 8, 1};

    plasmon__v1__arg__init(&args[0]);
    plasmon__v1__arg__init(&args[1]);
    args[0].mode      = mode;
    args[0].ref       = y;
    args[0].n_view    = PL_COUNT(view);
    args[0].view      = view;
    args[0].reduce_op = mode == PLASMON__V1__MODE__MODE_REDUCE;
    args[1].mode      = mode == PLASMON__V1__MODE__MODE_REDUCE ? PLASMON__V1__MODE__MODE_IN
                                                               : PLASMON__V1__MODE__MODE_INOUT;
    args[1].ref       = x;
    task.function     = SCALE;
    task.graph        = 7;
    task.place        = device + 1;
    task.n_args       = PL_COUNT(args);
    task.args         = list;
    send(world, &task);
}

static void end(struct world *world, uint64_t graph, uint64_t kept)
{
    Plasmon__V1__Arg arg, *list[] = {&arg};
    Plasmon__V1__Task task = PLASMON__V1__TASK__INIT;

    plasmon__v1__arg__init(&arg);
    arg.mode    = PLASMON__V1__MODE__MODE_OUT;
    arg.ref     = kept;
    arg.shape   = &shape_of_16;
    task.kind   = PLASMON__V1__TASK_KIND__TASK_GRAPH_END;
    task.graph  = graph;
    task.n_args = kept == 0 ? 0 : 1;
    task.args   = list;
    send(world, &task);
}

static void launch(struct world *world, uint64_t graph)
{
    Plasmon__V1__Task task = PLASMON__V1__TASK__INIT;

    task.kind  = PLASMON__V1__TASK_KIND__TASK_GRAPH_LAUNCH;
    task.graph = graph;
    send(world, &task);
}

static void release(struct world *world, uint64_t graph)
{
    Plasmon__V1__ClientFrame frame = PLASMON__V1__CLIENT_FRAME__INIT;

    frame.n_graph_release = 1;
    frame.graph_release   = &graph;
    ASSERT_OK(head_core_client_frame(world->core, world->session, &frame, &err));
    head_core_flush(world->core);
}

/* Every launch that was told so far is done. */
static void all_done(struct world *world)
{
    for (uint32_t d = 0; d < DEVICES; d++) {
        Plasmon__V1__WorkerFrame frame = PLASMON__V1__WORKER_FRAME__INIT;
        Plasmon__V1__Range range = PLASMON__V1__RANGE__INIT, *list[] = {&range};
        uint64_t last = 0;

        for (uint32_t i = 0; i < told_count; i++) {
            const Plasmon__V1__WorkerCommand *command = told[i].command;

            if (told[i].device == d && command->n_launches > 0) {
                last = pl_max_u64(last, command->launches[command->n_launches - 1]->seq);
            }
        }
        range.first  = 1;
        range.count  = last;
        frame.n_done = last > 0;
        frame.done   = list;
        ASSERT_OK(head_core_worker_frame(world->core, d, &frame, &err));
    }
    head_core_flush(world->core);
}

/* ------------------------------------------------------------------------ what was told */

/* Segments of a device, in the order in which it was told them; NULL past the end. */
static const Plasmon__V1__GraphPart *segment(uint32_t device, uint32_t number)
{
    for (uint32_t i = 0; i < told_count; i++) {
        for (size_t k = 0; told[i].device == device && k < told[i].command->n_graphs; k++) {
            if (number-- == 0) {
                return told[i].command->graphs[k];
            }
        }
    }
    return NULL;
}

static uint32_t count_of_kind(uint32_t device, Plasmon__V1__LaunchKind kind)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < told_count; i++) {
        for (size_t k = 0; told[i].device == device && k < told[i].command->n_launches;
             k++) {
            count += told[i].command->launches[k]->kind == kind;
        }
    }
    return count;
}

static const Plasmon__V1__Launch *graph_launch(uint32_t device, uint32_t number)
{
    for (uint32_t i = 0; i < told_count; i++) {
        for (size_t k = 0; told[i].device == device && k < told[i].command->n_launches;
             k++) {
            const Plasmon__V1__Launch *one = told[i].command->launches[k];

            if (one->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_GRAPH && number-- == 0) {
                return one;
            }
        }
    }
    return NULL;
}

/* Folds of `partials` partial results, on whichever device. */
static uint32_t folds_of(uint32_t partials)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < told_count; i++) {
        for (size_t k = 0; k < told[i].command->n_launches; k++) {
            const Plasmon__V1__Launch *one = told[i].command->launches[k];

            count += one->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_RUN &&
                     one->function == pl_hash_name("fold") &&
                     one->n_operands == partials + 1;
        }
    }
    return count;
}

static uint32_t freed_graphs(uint32_t device)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < told_count; i++) {
        count += told[i].device == device ? (uint32_t)told[i].command->n_graph_free : 0;
    }
    return count;
}

#define EXPECT_SEGMENT(device, number, nodes)                          \
    do {                                                               \
        const Plasmon__V1__GraphPart *part_ = segment(device, number); \
        ASSERT_TRUE(part_ != NULL);                                    \
        ASSERT_EQ(part_->n_nodes, nodes);                              \
        ASSERT_TRUE(part_->last);                                      \
    } while (0)

/* ------------------------------------------------------------------------------ cutting */

TEST(one_device_is_one_segment_and_one_launch)
{
    struct world world = world_make();

    out(&world, 0, 0, 1, 0);
    forget_told();
    for (int i = 0; i < 100; i++) {
        update(&world, 7, 0, 1, 0);
    }
    end(&world, 7, 0);
    EXPECT_SEGMENT(0, 0, 100);
    ASSERT_TRUE(segment(0, 1) == NULL);
    ASSERT_EQ(segment(0, 0)->branches, 1);
    ASSERT_EQ(segment(0, 0)->operands, 1);
    for (int i = 0; i < 3; i++) {
        launch(&world, 7);
    }
    ASSERT_EQ(count_of_kind(0, PLASMON__V1__LAUNCH_KIND__LAUNCH_GRAPH), 3);
    ASSERT_EQ(count_of_kind(0, PLASMON__V1__LAUNCH_KIND__LAUNCH_RUN), 0);
    ASSERT_EQ(graph_launch(0, 0)->n_operands, 1);
    ASSERT_EQ(graph_launch(0, 0)->operands[0]->mode, PLASMON__V1__MODE__MODE_INOUT);
    ASSERT_TRUE(segment(0, 1) == NULL); /* told once */
    all_done(&world);
    ASSERT_EQ(failures, 0);
    world_end(&world);
}

/* For who reads that a launch of a graph has killed its worker. */
TEST(a_launch_is_labelled_with_the_calls_that_it_is)
{
    struct world world = world_make();

    for (uint64_t i = 1; i <= 3; i++) {
        out(&world, 0, 0, i, 0);
    }
    forget_told();
    update(&world, 7, 0, 1, 2);
    update(&world, 7, 1, 3, 1);
    update(&world, 7, 1, 3, 1);
    update(&world, 7, 0, 2, 3);
    end(&world, 7, 0);
    update(&world, 8, 2, 2, 3);
    update(&world, 8, 2, 2, 3);
    end(&world, 8, 0);
    launch(&world, 7);
    launch(&world, 8);
    ASSERT_STR(graph_launch(0, 0)->label, "call 0 of 4");
    ASSERT_STR(graph_launch(0, 1)->label, "call 3 of 4");
    ASSERT_STR(graph_launch(1, 0)->label, "calls 1 to 2 of 4");
    ASSERT_STR(graph_launch(2, 0)->label, "all 2 calls");
    world_end(&world);
}

TEST(a_segment_has_the_highest_priority_of_its_calls)
{
    static const struct {
        int32_t calls[3], segment;
    } cases[] = {{{0, 0, 0}, 0}, {{0, 1, -1}, 1}, {{-1, -1, -1}, -1}, {{-1, 0, -1}, 0}};

    for (size_t c = 0; c < PL_COUNT(cases); c++) {
        struct world world = world_make();

        out(&world, 0, 0, 1, 0);
        forget_told();
        for (size_t i = 0; i < 3; i++) {
            Plasmon__V1__Arg arg = PLASMON__V1__ARG__INIT, *list[] = {&arg};
            Plasmon__V1__Task task = PLASMON__V1__TASK__INIT;

            arg.mode      = PLASMON__V1__MODE__MODE_INOUT;
            arg.ref       = 1;
            task.function = SCALE;
            task.graph    = 7;
            task.place    = 1;
            task.priority = cases[c].calls[i];
            task.n_args   = 1;
            task.args     = list;
            send(&world, &task);
        }
        end(&world, 7, 0);
        EXPECT_SEGMENT(0, 0, 3);
        launch(&world, 7);
        ASSERT_TRUE(graph_launch(0, 0) != NULL);
        ASSERT_EQ(graph_launch(0, 0)->priority, cases[c].segment);
        all_done(&world);
        world_end(&world);
    }
}

TEST(a_run_is_cut_where_it_would_wait_for_another_device)
{
    struct world world = world_make();

    out(&world, 0, 0, 1, 0);
    forget_told();
    out(&world, 7, 0, 100, 1);   /* device 0 .. */
    out(&world, 7, 1, 101, 100); /* .. is read on device 1 .. */
    out(&world, 7, 1, 102, 101);
    out(&world, 7, 0, 103, 102); /* .. which device 0 waits for */
    out(&world, 7, 0, 104, 103);
    end(&world, 7, 104);
    EXPECT_SEGMENT(0, 0, 1);
    EXPECT_SEGMENT(0, 1, 2);
    ASSERT_TRUE(segment(0, 2) == NULL);
    EXPECT_SEGMENT(1, 0, 2);
    ASSERT_TRUE(segment(1, 1) == NULL);
    launch(&world, 7);
    ASSERT_EQ(count_of_kind(0, PLASMON__V1__LAUNCH_KIND__LAUNCH_GRAPH), 2);
    ASSERT_EQ(count_of_kind(1, PLASMON__V1__LAUNCH_KIND__LAUNCH_GRAPH), 1);
    ASSERT_TRUE(graph_launch(0, 0)->order < graph_launch(1, 0)->order);
    ASSERT_TRUE(graph_launch(1, 0)->order < graph_launch(0, 1)->order);
    all_done(&world);
    ASSERT_EQ(failures, 0);
    world_end(&world);
}

TEST(who_waits_for_a_result_does_not_wait_for_what_comes_after_it)
{
    struct world world = world_make();

    out(&world, 0, 0, 1, 0);
    out(&world, 0, 0, 2, 0);
    forget_told();
    out(&world, 7, 0, 100, 1); /* two results for device 1 .. */
    out(&world, 7, 0, 101, 1);
    for (int i = 0; i < 10; i++) {
        update(&world, 7, 0, 2, 0); /* .. and work that it does not need */
    }
    out(&world, 7, 1, 102, 100);
    update(&world, 7, 1, 102, 101);
    end(&world, 7, 102);
    EXPECT_SEGMENT(0, 0, 2);
    EXPECT_SEGMENT(0, 1, 10);
    EXPECT_SEGMENT(1, 0, 2);
    launch(&world, 7);
    all_done(&world);
    ASSERT_EQ(failures, 0);
    world_end(&world);
}

/* A call is some 2 us here, so what is worth a cut is ten of them. */
TEST(who_waits_for_a_result_does_not_wait_for_long_work_for_those_who_come_later)
{
    struct world world = world_make();

    out(&world, 0, 0, 1, 0);
    forget_told();
    out(&world, 7, 0, 100, 1);
    for (int i = 0; i < 10; i++) {
        update(&world, 7, 0, 100, 0);
    }
    out(&world, 7, 0, 101, 1); /* needed later than 100, which took long enough */
    out(&world, 7, 1, 200, 100);
    out(&world, 7, 1, 201, 101);
    end(&world, 7, 200);
    EXPECT_SEGMENT(0, 0, 11);
    EXPECT_SEGMENT(0, 1, 1);
    EXPECT_SEGMENT(1, 0, 1);
    EXPECT_SEGMENT(1, 1, 1);
    launch(&world, 7);
    all_done(&world);
    ASSERT_EQ(failures, 0);
    world_end(&world);
}

TEST(who_only_writes_over_what_was_read_is_not_waiting_for_a_result)
{
    struct world world = world_make();

    out(&world, 0, 0, 1, 0);
    out(&world, 0, 0, 2, 0);
    forget_told();
    out(&world, 7, 0, 100, 1); /* reads what device 1 has anew later */
    update(&world, 7, 0, 2, 0);
    call(&world, 7, 1, PLASMON__V1__MODE__MODE_OUT, 1, false, 0);
    end(&world, 7, 100);
    EXPECT_SEGMENT(0, 0, 2);
    EXPECT_SEGMENT(1, 0, 1);
    launch(&world, 7);
    all_done(&world);
    ASSERT_EQ(failures, 0);
    world_end(&world);
}

/*
 * Of many tasks that come by one message: the first one for each device that is idle, then up to
 * the 4th, 4 more, and the rest.
 */
TEST(a_device_begins_while_later_tasks_of_a_frame_are_being_placed)
{
    enum { TASKS = 12 };
    struct world world             = world_make();
    Plasmon__V1__ClientFrame frame = PLASMON__V1__CLIENT_FRAME__INIT;
    Plasmon__V1__Task tasks[TASKS], *list[TASKS];
    Plasmon__V1__Arg args[TASKS], *arg_list[TASKS];
    static const size_t expected[] = {1, 3, 3, 1, 4};
    static const uint32_t device[] = {0, 0, 0, 1, 1};
    uint32_t sent                  = 0;

    for (uint32_t i = 0; i < TASKS; i++) {
        plasmon__v1__task__init(&tasks[i]);
        plasmon__v1__arg__init(&args[i]);
        args[i].mode      = PLASMON__V1__MODE__MODE_OUT;
        args[i].ref       = 1 + i;
        args[i].shape     = &shape_of_16;
        arg_list[i]       = &args[i];
        tasks[i].id       = ++world.task;
        tasks[i].function = SCALE;
        tasks[i].place    = i < 7 ? 1 : 2;
        tasks[i].n_args   = 1;
        tasks[i].args     = &arg_list[i];
        list[i]           = &tasks[i];
    }
    frame.n_tasks = TASKS;
    frame.tasks   = list;
    ASSERT_OK(head_core_client_frame(world.core, world.session, &frame, &err));
    head_core_flush(world.core);
    for (uint32_t i = 0; i < told_count; i++) {
        if (told[i].command->n_launches > 0) {
            ASSERT_TRUE(sent < PL_COUNT(expected));
            ASSERT_EQ(told[i].device, device[sent]);
            ASSERT_EQ(told[i].command->n_launches, expected[sent++]);
        }
    }
    ASSERT_EQ(sent, PL_COUNT(expected));
    all_done(&world);
    ASSERT_EQ(failures, 0);
    world_end(&world);
}

/*
 * Two devices work on their own, then each on what the other one made: the first step of both goes
 * before what comes behind is started.
 */
TEST(each_idle_device_begins_as_soon_as_its_first_step_is_started)
{
    static const uint32_t device[] = {0, 1};
    struct world world             = world_make();
    uint32_t sent                  = 0;

    out(&world, 0, 0, 1, 0);
    out(&world, 0, 1, 2, 0);
    all_done(&world);
    for (uint32_t i = 0; i < 2; i++) {
        out(&world, 7, i, 100 + i, 1 + i);
    }
    for (uint32_t i = 0; i < 2; i++) {
        out(&world, 7, i, 102 + i, 101 - i);
    }
    end(&world, 7, 103);
    forget_told();
    launch(&world, 7);
    for (uint32_t i = 0; i < told_count && sent < PL_COUNT(device); i++) {
        if (told[i].command->n_launches > 0) {
            ASSERT_EQ(told[i].device, device[sent]);
            ASSERT_EQ(told[i].command->n_launches, 1);
            sent++;
        }
    }
    ASSERT_EQ(sent, PL_COUNT(device));
    all_done(&world);
    ASSERT_EQ(failures, 0);
    world_end(&world);
}

/* Of many steps that are started by one message. */
TEST(devices_begin_while_later_steps_are_being_started)
{
    struct world world = world_make();
    uint32_t sent      = 0;

    out(&world, 0, 0, 1, 0);
    all_done(&world);
    forget_told();
    for (uint32_t i = 0; i < 40; i++) { /* to and fro */
        out(&world, 7, i % 2, 100 + i, i == 0 ? 1 : 99 + i);
    }
    end(&world, 7, 139);
    forget_told();
    launch(&world, 7);
    for (uint32_t i = 0; i < told_count; i++) {
        size_t launches = told[i].command->n_launches;

        if (sent == 0 && launches > 0) {
            ASSERT_EQ(told[i].device, 0);
            ASSERT_EQ(launches, 1);
        }
        sent += launches > 0;
    }
    ASSERT_TRUE(sent > 4 && sent < 20); /* and not each by itself */
    all_done(&world);
    ASSERT_EQ(failures, 0);
    world_end(&world);
}

/* Device 0 has work of its own beside what waits, step by step, for device 1. */
static void record_beside_a_wait(struct world *world, int work)
{
    *world = world_make();
    out(world, 0, 0, 1, 0);
    out(world, 0, 1, 2, 0);
    all_done(world);
    forget_told();
    out(world, 7, 1, 100, 2);
    out(world, 7, 0, 101, 100); /* waits for device 1, and device 1 for it */
    for (int i = 0; i < work; i++) {
        update(world, 7, 0, 1, 0);
    }
    update(world, 7, 0, 1, 101);
    out(world, 7, 1, 102, 101);
    end(world, 7, 102);
}

TEST(long_work_does_not_wait_for_what_only_calls_behind_it_wait_for)
{
    struct world world;

    record_beside_a_wait(&world, 11);
    EXPECT_SEGMENT(0, 0, 1);
    EXPECT_SEGMENT(0, 1, 11);
    EXPECT_SEGMENT(0, 2, 1);
    launch(&world, 7);
    ASSERT_EQ(graph_launch(0, 1)->n_after, 0);
    ASSERT_TRUE(graph_launch(0, 2)->n_after > 0);
    all_done(&world);
    ASSERT_EQ(failures, 0);
    world_end(&world);

    record_beside_a_wait(&world, 2); /* not worth a launch */
    EXPECT_SEGMENT(0, 0, 1);
    EXPECT_SEGMENT(0, 1, 3);
    launch(&world, 7);
    all_done(&world);
    ASSERT_EQ(failures, 0);
    world_end(&world);
}

TEST(devices_that_need_nothing_of_each_other_are_not_cut_by_each_other)
{
    struct world world = world_make();

    out(&world, 0, 0, 1, 0);
    out(&world, 0, 1, 2, 0);
    forget_told();
    for (int i = 0; i < 20; i++) {
        update(&world, 7, (uint32_t)i % 2, 1 + (uint64_t)(i % 2), 0);
    }
    end(&world, 7, 0);
    EXPECT_SEGMENT(0, 0, 10);
    EXPECT_SEGMENT(1, 0, 10);
    world_end(&world);
}

TEST(a_task_with_partial_results_is_a_step_by_itself)
{
    struct world world = world_make();

    out(&world, 0, 0, 1, 0);
    out(&world, 0, 0, 2, 0);
    forget_told();
    update(&world, 7, 0, 2, 0);
    call(&world, 7, 0, PLASMON__V1__MODE__MODE_REDUCE, 1, false, 2);
    update(&world, 7, 0, 2, 1);
    end(&world, 7, 0);
    EXPECT_SEGMENT(0, 0, 1);
    EXPECT_SEGMENT(0, 1, 1);
    launch(&world, 7);
    ASSERT_EQ(count_of_kind(0, PLASMON__V1__LAUNCH_KIND__LAUNCH_GRAPH), 2);
    /* and a fold */
    ASSERT_TRUE(count_of_kind(0, PLASMON__V1__LAUNCH_KIND__LAUNCH_RUN) >= 2);
    all_done(&world);
    ASSERT_EQ(failures, 0);
    world_end(&world);
}

TEST(a_recorded_reader_of_another_part_folds_after_the_partial_results_before_it)
{
    struct world world = world_make();

    for (uint64_t i = 1; i <= 3; i++) {
        out(&world, 0, 0, i, 0);
    }
    forget_told();
    update(&world, 7, 0, 2, 0); /* opens a segment, which the readers must not join */
    for (int i = 0; i < 2; i++) {
        use_half(&world, 1, PLASMON__V1__MODE__MODE_REDUCE, 1, 0, 3);
        use_half(&world, 0, PLASMON__V1__MODE__MODE_IN, 1, 1, 2);
    }
    end(&world, 7, 0);
    launch(&world, 7);
    ASSERT_EQ(folds_of(1), 2);
    ASSERT_EQ(folds_of(2), 0);
    all_done(&world);
    ASSERT_EQ(failures, 0);
    world_end(&world);
}

TEST(a_recorded_reader_of_another_part_folds_not_between_partial_results_before_it)
{
    struct world world = world_make();

    for (uint64_t i = 1; i <= 4; i++) {
        out(&world, 0, 0, i, 0);
    }
    forget_told();
    use_half(&world, 0, PLASMON__V1__MODE__MODE_REDUCE, 1, 0, 2);
    update(&world, 7, 1, 3, 0); /* a segment on device 1, between the two */
    use_half(&world, 0, PLASMON__V1__MODE__MODE_REDUCE, 1, 0, 2);
    use_half(&world, 0, PLASMON__V1__MODE__MODE_IN, 1, 1, 4); /* this one folds both */
    use_half(&world, 1, PLASMON__V1__MODE__MODE_IN, 1, 1, 3);
    end(&world, 7, 0);
    for (uint32_t i = 1; i <= 3; i++) {
        launch(&world, 7);
        ASSERT_EQ(folds_of(1), 0);
        ASSERT_EQ(folds_of(2), i);
    }
    all_done(&world);
    ASSERT_EQ(failures, 0);
    world_end(&world);
}

/* -------------------------------------------------------------------------------- nodes */

TEST(independent_chains_are_branches_and_a_join_waits_for_the_ends)
{
    struct world world = world_make();
    const Plasmon__V1__GraphPart *part;
    uint32_t waits = 0;

    out(&world, 0, 0, 1, 0);
    for (uint64_t i = 2; i <= 5; i++) {
        out(&world, 0, 0, i, 0);
    }
    forget_told();
    for (int round = 0; round < 5; round++) { /* four chains of five */
        for (uint64_t i = 2; i <= 5; i++) {
            update(&world, 7, 0, i, 0);
        }
    }
    for (uint64_t i = 2; i <= 5; i++) { /* and their sum */
        update(&world, 7, 0, 1, i);
    }
    end(&world, 7, 0);
    EXPECT_SEGMENT(0, 0, 24);
    part = segment(0, 0);
    ASSERT_EQ(part->branches, 4);
    for (uint32_t n = 0; n < 20; n++) {
        ASSERT_EQ(part->nodes[n]->branch, n % 4);
        ASSERT_EQ(part->nodes[n]->n_after, 0);
    }
    for (uint32_t n = 20; n < 24; n++) {
        ASSERT_EQ(part->nodes[n]->branch, part->nodes[20]->branch);
        waits += (uint32_t)part->nodes[n]->n_after;
    }
    ASSERT_EQ(waits, 3); /* its own branch's end needs no wait */
    world_end(&world);
}

TEST(temporaries_take_the_memory_of_those_that_are_over)
{
    struct world world = world_make();

    out(&world, 0, 0, 1, 0);
    forget_told();
    out(&world, 7, 0, 100, 1);
    for (uint64_t i = 1; i < 50; i++) {
        out(&world, 7, 0, 100 + i, 100 + i - 1);
    }
    update(&world, 7, 0, 1, 149);
    end(&world, 7, 0);
    EXPECT_SEGMENT(0, 0, 51);
    ASSERT_EQ(segment(0, 0)->bytes, 512); /* two of 64 bytes, aligned to 256 */
    ASSERT_EQ(segment(0, 0)->operands, 1);
    launch(&world, 7);
    ASSERT_EQ(graph_launch(0, 0)->n_operands, 1);
    world_end(&world);
}

TEST(an_operand_is_out_when_all_of_it_is_written_before_it_is_read)
{
    struct world world = world_make();

    for (uint64_t i = 1; i <= 3; i++) {
        out(&world, 0, 0, i, 0);
    }
    forget_told();
    call(&world, 7, 0, PLASMON__V1__MODE__MODE_OUT, 1, false, 2); /* 1 is overwritten .. */
    update(&world, 7, 0, 3, 1);                                   /* .. and then read */
    end(&world, 7, 0);
    launch(&world, 7);
    ASSERT_EQ(graph_launch(0, 0)->n_operands, 3);
    ASSERT_EQ(graph_launch(0, 0)->operands[0]->mode, PLASMON__V1__MODE__MODE_OUT);
    ASSERT_EQ(graph_launch(0, 0)->operands[1]->mode, PLASMON__V1__MODE__MODE_IN);
    ASSERT_EQ(graph_launch(0, 0)->operands[2]->mode, PLASMON__V1__MODE__MODE_INOUT);
    world_end(&world);
}

TEST(a_long_recording_is_told_in_parts)
{
    struct world world = world_make();
    uint32_t nodes     = 0;

    out(&world, 0, 0, 1, 0);
    forget_told();
    for (int i = 0; i < 5000; i++) {
        update(&world, 7, 0, 1, 0);
        forget_told();
    }
    end(&world, 7, 0);
    for (uint32_t i = 0; segment(0, i) != NULL; i++) {
        ASSERT_EQ(segment(0, i)->first, nodes);
        ASSERT_EQ(segment(0, i)->id, segment(0, 0)->id);
        nodes += (uint32_t)segment(0, i)->n_nodes;
        ASSERT_EQ(segment(0, i)->last, nodes == 5000);
    }
    ASSERT_EQ(nodes, 5000);
    world_end(&world);
}

/* --------------------------------------------------------------------------------- life */

TEST(a_worker_that_began_anew_is_told_before_its_launches)
{
    struct world world = world_make();
    const Plasmon__V1__Launch *again;

    test_expect_log();
    out(&world, 0, 0, 1, 0);
    all_done(&world);
    forget_told();
    out(&world, 7, 0, 100, 1);
    end(&world, 7, 100);
    launch(&world, 7);
    again = graph_launch(0, 0);
    ASSERT_TRUE(again != NULL);
    {
        uint64_t seq = again->seq;

        forget_told();
        head_core_worker_down(world.core, "a", 0, false, PLASMON_OK, "killed");
        worker_hello(world.core, 0, 2, seq);
        head_core_flush(world.core);
        EXPECT_SEGMENT(0, 0, 1);
        again = graph_launch(0, 0);
        ASSERT_TRUE(again != NULL);
        ASSERT_EQ(again->seq, seq);
        ASSERT_EQ(again->graph, segment(0, 0)->id);
        ASSERT_TRUE(told[0].command->n_graphs == 1); /* in the first message, or before */
    }
    world_end(&world);
}

TEST(a_worker_forgets_a_graph_after_its_last_launch)
{
    struct world world = world_make();

    out(&world, 0, 0, 1, 0);
    update(&world, 7, 0, 1, 0);
    end(&world, 7, 0);
    launch(&world, 7);
    release(&world, 7);
    ASSERT_EQ(freed_graphs(0), 0); /* a launch is under way */
    all_done(&world);
    ASSERT_EQ(freed_graphs(0), 1);
    launch(&world, 7);
    ASSERT_EQ(failures, 1);
    ASSERT_EQ(failure_status, PLASMON_EGRAPH);
    world_end(&world);
}

TEST(a_graph_outlives_a_device_of_its_plan)
{
    struct world world = world_make();

    test_expect_log();
    out(&world, 0, 2, 1, 0);
    forget_told();
    {
        Plasmon__V1__Arg arg, *list[] = {&arg};
        Plasmon__V1__Task task = PLASMON__V1__TASK__INIT;

        /* Where it likes: the policy takes a device, which then goes. */
        plasmon__v1__arg__init(&arg);
        arg.mode      = PLASMON__V1__MODE__MODE_OUT;
        arg.ref       = 100;
        arg.shape     = &shape_of_16;
        task.function = SCALE;
        task.graph    = 7;
        task.n_args   = 1;
        task.args     = list;
        send(&world, &task);
    }
    end(&world, 7, 100);
    for (uint32_t d = 0; d < DEVICES; d++) {
        if (segment(d, 0) != NULL) {
            head_core_worker_down(world.core, "a", d, true, PLASMON_OK, "gone for good");
            break;
        }
    }
    forget_told();
    launch(&world, 7);
    ASSERT_EQ(failures, 0);
    ASSERT_EQ(count_of_kind(0, PLASMON__V1__LAUNCH_KIND__LAUNCH_GRAPH) +
                  count_of_kind(1, PLASMON__V1__LAUNCH_KIND__LAUNCH_GRAPH) +
                  count_of_kind(2, PLASMON__V1__LAUNCH_KIND__LAUNCH_GRAPH),
              1);
    all_done(&world);
    world_end(&world);
}

/* --------------------------------------------------------------------------- components */

static uint32_t graph_launches(uint32_t device)
{
    return count_of_kind(device, PLASMON__V1__LAUNCH_KIND__LAUNCH_GRAPH);
}

/* Refs 1 and 2 on a device, and graph 7 on device 0: two calls, each of which reads one of them. */
static struct world world_of_two(uint32_t device)
{
    struct world world = world_make();

    out(&world, 0, device, 1, 0);
    out(&world, 0, device, 2, 0);
    all_done(&world);
    forget_told();
    out(&world, 7, 0, 100, 1);
    out(&world, 7, 0, 101, 2);
    end(&world, 7, 0);
    return world;
}

TEST(calls_with_nothing_in_common_are_launched_each_when_its_own_input_comes)
{
    struct world world = world_of_two(1);

    EXPECT_SEGMENT(0, 0, 2);
    EXPECT_SEGMENT(0, 1, 1);
    EXPECT_SEGMENT(0, 2, 1);
    ASSERT_TRUE(segment(0, 3) == NULL);
    launch(&world, 7); /* both must be copied .. */
    ASSERT_EQ(count_of_kind(0, PLASMON__V1__LAUNCH_KIND__LAUNCH_RECV), 2);
    ASSERT_EQ(graph_launches(0), 2);
    for (uint32_t i = 0; i < 2; i++) {
        const Plasmon__V1__Launch *one = graph_launch(0, i);

        ASSERT_EQ(one->graph, segment(0, 1 + i)->id);
        ASSERT_EQ(one->n_operands, 1);
        ASSERT_EQ(one->n_after, 1);
    }
    ASSERT_TRUE(graph_launch(0, 0)->after[0] != graph_launch(0, 1)->after[0]);
    launch(&world, 7); /* .. are being copied .. */
    ASSERT_EQ(count_of_kind(0, PLASMON__V1__LAUNCH_KIND__LAUNCH_RECV), 2);
    ASSERT_EQ(graph_launches(0), 4);
    all_done(&world);
    launch(&world, 7); /* .. and are there */
    ASSERT_EQ(graph_launches(0), 5);
    ASSERT_EQ(graph_launch(0, 4)->graph, segment(0, 0)->id);
    ASSERT_EQ(graph_launch(0, 4)->n_operands, 2);
    all_done(&world);
    ASSERT_EQ(failures, 0);
    world_end(&world);
}

TEST(calls_whose_inputs_are_there_are_one_launch)
{
    struct world world = world_of_two(0);

    launch(&world, 7);
    launch(&world, 7);
    ASSERT_EQ(graph_launches(0), 2);
    ASSERT_EQ(graph_launch(0, 0)->n_operands, 2);
    all_done(&world);
    world_end(&world);
}

TEST(calls_that_all_wait_for_the_same_input_are_one_launch)
{
    struct world world = world_make();

    out(&world, 0, 1, 1, 0);
    forget_told();
    for (uint64_t i = 0; i < 10; i++) {
        out(&world, 7, 0, 100 + i, 1);
    }
    end(&world, 7, 0);
    launch(&world, 7);
    ASSERT_EQ(count_of_kind(0, PLASMON__V1__LAUNCH_KIND__LAUNCH_RECV), 1);
    ASSERT_EQ(graph_launches(0), 1);
    all_done(&world);
    world_end(&world);
}

TEST(calls_that_wait_for_parts_of_one_array_wait_each_for_its_own)
{
    struct world world = world_make();

    out(&world, 0, 1, 1, 0);
    out(&world, 0, 0, 2, 0);
    out(&world, 0, 0, 3, 0);
    all_done(&world);
    forget_told();
    use_half(&world, 0, PLASMON__V1__MODE__MODE_IN, 1, 0, 2);
    use_half(&world, 0, PLASMON__V1__MODE__MODE_IN, 1, 1, 3);
    end(&world, 7, 0);
    launch(&world, 7);
    ASSERT_EQ(graph_launches(0), 2);
    for (uint32_t i = 0; i < 2; i++) {
        ASSERT_EQ(graph_launch(0, i)->n_after, 1);
    }
    ASSERT_TRUE(graph_launch(0, 0)->after[0] != graph_launch(0, 1)->after[0]);
    all_done(&world);
    ASSERT_EQ(failures, 0);
    world_end(&world);
}

TEST(calls_that_write_parts_of_one_array_stay_together)
{
    struct world world = world_make();

    for (uint64_t i = 1; i <= 3; i++) {
        out(&world, 0, 1, i, 0);
    }
    forget_told();
    use_half(&world, 0, PLASMON__V1__MODE__MODE_OUT, 1, 0, 2);
    use_half(&world, 0, PLASMON__V1__MODE__MODE_OUT, 1, 1, 3);
    end(&world, 7, 0);
    EXPECT_SEGMENT(0, 0, 2);
    ASSERT_TRUE(segment(0, 1) == NULL);
    launch(&world, 7);
    ASSERT_EQ(graph_launches(0), 1);
    all_done(&world);
    ASSERT_EQ(failures, 0);
    world_end(&world);
}

/*
 * Recorded in graph 7: one half of y, which has `elements` and is made by its first use, is written
 * on device 0.
 */
static void write_half(struct world *world, uint64_t y, uint64_t elements, uint64_t half)
{
    Plasmon__V1__Shape shape = PLASMON__V1__SHAPE__INIT;
    Plasmon__V1__Arg arg, *list[] = {&arg};
    Plasmon__V1__Task task = PLASMON__V1__TASK__INIT;
    int64_t view[]         = {(int64_t)(elements / 2 * half), (int64_t)(elements / 2), 1};

    shape.dtype = PL_F32;
    shape.n_dim = 1;
    shape.dim   = &elements;
    plasmon__v1__arg__init(&arg);
    arg.mode      = PLASMON__V1__MODE__MODE_OUT;
    arg.ref       = y;
    arg.n_view    = half == 2 ? 0 : PL_COUNT(view);
    arg.view      = half == 2 ? NULL : view;
    arg.shape     = half == 2 ? &shape : NULL; /* all of it, not recorded */
    task.function = SCALE;
    task.graph    = half == 2 ? 0 : 7;
    task.place    = 1;
    task.n_args   = 1;
    task.args     = list;
    send(world, &task);
}

static void expect_operands(uint64_t elements, size_t operands)
{
    struct world world = world_make();

    write_half(&world, 1, elements, 2);
    forget_told();
    write_half(&world, 1, elements, 1);
    write_half(&world, 1, elements, 0);
    end(&world, 7, 0);
    EXPECT_SEGMENT(0, 0, 2);
    launch(&world, 7);
    ASSERT_EQ(graph_launch(0, 0)->n_operands, operands);
    ASSERT_EQ(graph_launch(0, 0)->operands[0]->mode, PLASMON__V1__MODE__MODE_OUT);
    if (operands == 1) { /* all of it, where it is */
        ASSERT_EQ(graph_launch(0, 0)->operands[0]->frame[0], 0);
        ASSERT_EQ(graph_launch(0, 0)->operands[0]->frame[1], (int64_t)elements);
        ASSERT_TRUE(!graph_launch(0, 0)->operands[0]->fresh);
    }
    all_done(&world);
    ASSERT_EQ(failures, 0);
    world_end(&world);
}

TEST(small_parts_that_are_written_side_by_side_are_one_operand)
{
    expect_operands(16, 1);
    expect_operands(4 << 20, 1);
    expect_operands((4 << 20) + 1024, 2); /* more than 16 MiB: part by part */
}

/* Half of y is overwritten, from nothing. */
static void overwrite_half(struct world *world, uint64_t graph, uint32_t device, uint64_t y,
                           int64_t half, uint32_t function)
{
    Plasmon__V1__Arg arg, *list[] = {&arg};
    Plasmon__V1__Task task = PLASMON__V1__TASK__INIT;
    int64_t view[]         = {8 * half, 8, 1};

    plasmon__v1__arg__init(&arg);
    arg.mode      = PLASMON__V1__MODE__MODE_OUT;
    arg.ref       = y;
    arg.n_view    = PL_COUNT(view);
    arg.view      = view;
    task.function = function;
    task.graph    = graph;
    task.place    = device + 1;
    task.n_args   = 1;
    task.args     = list;
    send(world, &task);
}

/* which nobody has defined: a call of it fails at once */
#define UNKNOWN WIRE_FUNCTION_FIRST

/* Overwrites one half of y, then updates all of it; as a graph, or call by call. */
static void overwrite_and_update(struct world *world, uint64_t graph)
{
    overwrite_half(world, graph, 0, 1, 1, SCALE);
    call(world, graph, 0, PLASMON__V1__MODE__MODE_INOUT, 1, false, 0);
    if (graph != 0) {
        end(world, graph, 0);
        launch(world, graph);
    }
}

TEST(a_launch_does_not_need_what_it_overwrites_before_it_reads_it)
{
    for (uint64_t graph = 0; graph <= 7; graph += 7) {
        struct world world = world_make();

        out(&world, 0, 0, 1, 0);
        overwrite_half(&world, 0, 0, 1, 1, UNKNOWN);
        ASSERT_EQ(failures, 1);
        overwrite_and_update(&world, graph);
        all_done(&world);
        ASSERT_EQ(failures, 1); /* that one alone */
        if (graph != 0) {
            const Plasmon__V1__Launch *first = graph_launch(0, 0);

            ASSERT_EQ(first->n_pieces, 1); /* of the old one, the other half */
            ASSERT_EQ(first->pieces[0]->box[0], 0);
            ASSERT_EQ(first->pieces[0]->box[1], 8);
            launch(&world, 7); /* it is all there now, and stays where it is */
            ASSERT_TRUE(!graph_launch(0, 1)->operands[0]->fresh);
            ASSERT_EQ(graph_launch(0, 1)->n_pieces, 0);
            all_done(&world);
            ASSERT_EQ(failures, 1);
        }
        world_end(&world);
    }
}

TEST(a_launch_fails_with_what_it_reads_before_it_overwrites_it)
{
    struct world world = world_make();

    out(&world, 0, 0, 1, 0);
    overwrite_half(&world, 0, 0, 1, 0, UNKNOWN);
    overwrite_and_update(&world, 7);
    ASSERT_EQ(failures, 2);
    ASSERT_EQ(failure_status, PLASMON_EDEPENDENCY);
    world_end(&world);
}

/* The front launch of a device is reported failed, all others behind it done. */
/* The failure comes when the launch is on its way: the outcome is the same. */
TEST(a_launch_does_not_fail_with_what_it_overwrites_before_it_reads_it)
{
    for (uint32_t device = 0; device < 2; device++) { /* in place; in fresh memory */
        struct world world = world_make();

        out(&world, 0, device, 1, 0);
        overwrite_half(&world, 0, device, 1, 1, SCALE);
        overwrite_and_update(&world, 7);
        core_fail(world.core, device, 2, PLASMON_EFUNCTION, "no");
        all_done(&world);
        ASSERT_EQ(failures, 1);
        world_end(&world);
    }
}

TEST(a_launch_fails_when_what_it_reads_before_it_overwrites_it_does)
{
    for (uint32_t device = 0; device < 2; device++) {
        struct world world = world_make();

        out(&world, 0, device, 1, 0);
        overwrite_half(&world, 0, device, 1, 0, SCALE);
        overwrite_and_update(&world, 7);
        core_fail(world.core, device, 2, PLASMON_EFUNCTION, "no");
        all_done(&world);
        ASSERT_EQ(failures, 2);
        ASSERT_EQ(failure_status, PLASMON_EDEPENDENCY);
        world_end(&world);
    }
}

/* Every other row first: so many parts are open meanwhile. */
TEST(a_launch_may_overwrite_an_array_that_failed_in_many_parts)
{
    uint64_t elements[]      = {400, 4};
    Plasmon__V1__Shape shape = PLASMON__V1__SHAPE__INIT;
    struct world world       = world_make();

    shape.dtype = PL_F32;
    shape.n_dim = 2;
    shape.dim   = elements;
    for (int64_t i = -1; i <= 400; i++) {
        int64_t row    = i < 200 ? 2 * i : 2 * (i - 200) + 1;
        int64_t view[] = {row, 1, 1, 0, 4, 1};
        bool rows      = i >= 0 && i < 400;
        Plasmon__V1__Arg arg, *list[] = {&arg};
        Plasmon__V1__Task task = PLASMON__V1__TASK__INIT;

        plasmon__v1__arg__init(&arg);
        arg.mode   = i < 400 ? PLASMON__V1__MODE__MODE_OUT : PLASMON__V1__MODE__MODE_INOUT;
        arg.ref    = 1;
        arg.n_view = rows ? PL_COUNT(view) : 0;
        arg.view   = view;
        arg.shape  = i < 0 ? &shape : NULL;
        task.function = i < 0 ? UNKNOWN : SCALE;
        task.graph    = i < 0 ? 0 : 7;
        task.place    = 1;
        task.n_args   = 1;
        task.args     = list;
        send(&world, &task);
    }
    end(&world, 7, 0);
    ASSERT_EQ(failures, 1);
    launch(&world, 7);
    ASSERT_EQ(failures, 1);
    ASSERT_EQ(graph_launch(0, 0)->operands[0]->mode, PLASMON__V1__MODE__MODE_OUT);
    all_done(&world);
    ASSERT_EQ(failures, 1);
    world_end(&world);
}

/* A chain is a component however long it is; of a hundred of them some go together. */
TEST(a_hundred_chains_are_launched_in_a_few_groups)
{
    struct world world = world_make();
    uint32_t groups    = 0;
    uint32_t nodes     = 0;

    for (uint64_t i = 0; i < 100; i++) {
        out(&world, 0, 1, 1 + i, 0);
    }
    all_done(&world);
    forget_told();
    for (uint64_t i = 0; i < 300; i++) {
        if (i < 100) {
            out(&world, 7, 0, 1000 + i, 1 + i);
        } else {
            update(&world, 7, 0, 1000 + i % 100, 0);
        }
    }
    end(&world, 7, 0);
    EXPECT_SEGMENT(0, 0, 300);
    for (; segment(0, 1 + groups) != NULL; groups++) {
        nodes += (uint32_t)segment(0, 1 + groups)->n_nodes;
    }
    ASSERT_EQ(groups, 25);
    ASSERT_EQ(nodes, 300);
    launch(&world, 7);
    ASSERT_EQ(graph_launches(0), groups);
    ASSERT_EQ(graph_launch(0, 0)->n_operands, 4);
    all_done(&world);
    release(&world, 7);
    ASSERT_EQ(freed_graphs(0), 1 + groups);
    world_end(&world);
}

TEST(scalars_of_a_launch_go_to_the_component_that_has_the_call)
{
    struct world world = world_make();
    Plasmon__V1__GraphScalar set[2], *list[] = {&set[0], &set[1]};
    Plasmon__V1__Task task = PLASMON__V1__TASK__INIT;

    for (uint64_t i = 1; i <= 2; i++) {
        out(&world, 0, 1, i, 0);
    }
    all_done(&world);
    forget_told();
    for (uint64_t i = 0; i < 4; i++) { /* calls 0 and 2 are one chain, 1 and 3 another */
        Plasmon__V1__Arg args[2], *arg_list[] = {&args[0], &args[1]};
        Plasmon__V1__Task call_of = PLASMON__V1__TASK__INIT;
        uint64_t scalar           = 40 + i;

        plasmon__v1__arg__init(&args[0]);
        plasmon__v1__arg__init(&args[1]);
        args[0].mode  = i < 2 ? PLASMON__V1__MODE__MODE_OUT : PLASMON__V1__MODE__MODE_INOUT;
        args[0].ref   = 100 + i % 2;
        args[0].shape = i < 2 ? &shape_of_16 : NULL;
        args[1].mode  = PLASMON__V1__MODE__MODE_IN;
        args[1].ref   = 1 + i % 2;
        call_of.function  = SCALE;
        call_of.graph     = 7;
        call_of.place     = 1;
        call_of.n_args    = 2;
        call_of.args      = arg_list;
        call_of.n_scalars = 1;
        call_of.scalars   = &scalar;
        send(&world, &call_of);
    }
    end(&world, 7, 0);
    for (uint32_t i = 0; i < 2; i++) {
        plasmon__v1__graph_scalar__init(&set[i]);
        set[i].task  = 3 - 3 * i;
        set[i].value = 90 + i;
    }
    task.kind  = PLASMON__V1__TASK_KIND__TASK_GRAPH_LAUNCH;
    task.graph = 7;
    task.n_set = 2;
    task.set   = list;
    send(&world, &task);
    ASSERT_EQ(graph_launches(0), 2);
    for (uint32_t i = 0; i < 2; i++) { /* the first has call 0, the second call 3 */
        const Plasmon__V1__Launch *one = graph_launch(0, i);

        ASSERT_EQ(one->n_set, 1);
        ASSERT_EQ(one->set[0]->task, i);
        ASSERT_EQ(one->set[0]->value, i == 0 ? 91 : 90);
    }
    all_done(&world);
    ASSERT_EQ(failures, 0);
    world_end(&world);
}

/* Another head, made from a checkpoint; the old one stays. */
static struct world restored(const struct world *world)
{
    struct world next       = *world;
    struct head_bytes saved = {0};
    struct head_reader in;

    if (head_core_unquiet(world->core) != NULL) {
        test_fail(__FILE__, __LINE__, "%s", head_core_unquiet(world->core));
    }
    head_core_save(world->core, &saved);
    in = (struct head_reader){.at = saved.data, .end = saved.data + saved.length};
    ASSERT_OK(head_core_create(&head_config, &next.core));
    ASSERT_OK(head_core_load(next.core, &in, &err));
    head_core_check(next.core);
    pl_free(saved.data);
    return next;
}

/* All that was told since it was forgotten, as a number. */
static uint64_t told_hash(void)
{
    uint64_t hash = told_count;

    for (uint32_t i = 0; i < told_count; i++) {
        size_t length  = plasmon__v1__worker_command__get_packed_size(told[i].command);
        uint8_t *bytes = pl_alloc(length + 1);

        ASSERT_TRUE(bytes != NULL);
        (void)plasmon__v1__worker_command__pack(told[i].command, bytes);
        for (size_t k = 0; k < length; k++) {
            hash = (hash ^ bytes[k]) * UINT64_C(0x100000001b3);
        }
        pl_free(bytes);
    }
    return hash;
}

static uint64_t killed_and_told_again(struct world *world)
{
    forget_told();
    head_core_worker_down(world->core, "a", 1, false, PLASMON_OK, "killed");
    worker_hello(world->core, 1, 2, 0);
    head_core_flush(world->core);
    return told_hash();
}

TEST(graphs_are_launched_by_a_head_that_is_made_from_a_checkpoint_as_they_were)
{
    struct world world = world_make(), next;
    uint64_t hash;

    test_expect_log();
    out(&world, 0, 0, 1, 0);
    out(&world, 7, 0, 100, 1);
    out(&world, 7, 1, 101, 100);
    out(&world, 7, 1, 102, 101);
    out(&world, 7, 0, 103, 102);
    end(&world, 7, 103);
    out(&world, 8, 1, 200, 1); /* another, which is never launched .. */
    update(&world, 8, 2, 200, 1);
    end(&world, 8, 200);
    out(&world, 9, 1, 300, 1); /* .. and one that is still recorded */
    launch(&world, 7);
    all_done(&world);
    next = restored(&world);

    forget_told();
    launch(&world, 7);
    launch(&world, 8);
    hash = told_hash();
    ASSERT_TRUE(graph_launch(0, 0) != NULL && graph_launch(1, 0) != NULL);
    ASSERT_TRUE(segment(0, 0) == NULL); /* its workers know it */
    forget_told();
    launch(&next, 7);
    launch(&next, 8);
    ASSERT_EQ(told_hash(), hash);
    all_done(&world);
    all_done(&next);
    hash = killed_and_told_again(&world);
    ASSERT_TRUE(segment(1, 0) != NULL);
    ASSERT_EQ(killed_and_told_again(&next), hash);

    forget_told();
    end(&next, 9, 300);
    EXPECT_SEGMENT(1, 0, 1);
    launch(&next, 9);
    all_done(&next);
    ASSERT_EQ(failures, 0);
    head_core_destroy(next.core);
    world_end(&world);
}

TEST(components_are_launched_by_a_head_that_is_made_from_a_checkpoint_as_they_were)
{
    struct world world = world_of_two(1), next;
    uint64_t hash;

    test_expect_log();
    next = restored(&world);
    forget_told();
    launch(&world, 7);
    ASSERT_EQ(graph_launches(0), 2);
    all_done(&world);
    hash = told_hash();
    forget_told();
    launch(&next, 7);
    all_done(&next);
    ASSERT_EQ(told_hash(), hash);

    for (uint32_t i = 0; i < 2; i++) { /* a worker that begins anew is told all of them */
        struct head_core *core = i == 0 ? world.core : next.core;

        forget_told();
        head_core_worker_down(core, "a", 0, false, PLASMON_OK, "killed");
        worker_hello(core, 0, 2, 0);
        head_core_flush(core);
        EXPECT_SEGMENT(0, 0, 2);
        EXPECT_SEGMENT(0, 2, 1);
        ASSERT_TRUE(i == 0 || told_hash() == hash);
        hash = told_hash();
    }
    head_core_destroy(next.core);
    world_end(&world);
}

/* Check sums are the machine's: the core gets whatever it is. */
TEST(a_checkpoint_of_graphs_with_any_bit_changed_is_taken_or_refused)
{
    struct world world      = world_make();
    struct head_bytes saved = {0};
    uint32_t refused        = 0;

    test_expect_log();
    out(&world, 0, 0, 1, 0);
    out(&world, 7, 0, 100, 1);
    out(&world, 7, 1, 101, 100);
    end(&world, 7, 101);
    launch(&world, 7);
    all_done(&world);
    head_core_save(world.core, &saved);
    for (size_t i = 0; i < 8 * saved.length; i++) {
        struct head_reader in = {.at = saved.data, .end = saved.data + saved.length};
        struct head_core *core;

        saved.data[i / 8] ^= (uint8_t)(1u << i % 8);
        ASSERT_OK(head_core_create(&head_config, &core));
        refused += head_core_load(core, &in, &err) != PLASMON_OK;
        head_core_destroy(core);
        saved.data[i / 8] ^= (uint8_t)(1u << i % 8);
    }
    ASSERT_TRUE(refused > saved.length);
    pl_free(saved.data);
    world_end(&world);
}

/*
 * The library looks for it, too; a client that is none of ours may not. There would be no edge
 * between the two.
 */
TEST(a_launch_on_one_array_for_two_of_which_one_is_written_is_refused)
{
    Plasmon__V1__GraphBinding bind = PLASMON__V1__GRAPH_BINDING__INIT, *list[] = {&bind};
    Plasmon__V1__Task task = PLASMON__V1__TASK__INIT;
    struct world world     = world_make();

    out(&world, 0, 0, 1, 0);
    out(&world, 0, 0, 2, 0);
    out(&world, 0, 0, 3, 0);
    update(&world, 7, 0, 2, 1);
    end(&world, 7, 0);
    forget_told();
    task.kind     = PLASMON__V1__TASK_KIND__TASK_GRAPH_LAUNCH;
    task.graph    = 7;
    task.n_bind   = 1;
    task.bind     = list;
    bind.recorded = 1;
    bind.ref      = 2;
    send(&world, &task);
    ASSERT_EQ(count_of_kind(0, PLASMON__V1__LAUNCH_KIND__LAUNCH_GRAPH), 0);
    ASSERT_EQ(failures, 1);
    ASSERT_EQ(failure_status, PLASMON_EGRAPH);
    launch(&world, 7); /* what it was to write has failed */
    ASSERT_EQ(failures, 2);
    ASSERT_EQ(failure_status, PLASMON_EDEPENDENCY);
    world_end(&world);
}

/* Half of y is read. */
static void read_half(struct world *world, uint64_t y, int64_t half)
{
    Plasmon__V1__Arg arg, *list[] = {&arg};
    Plasmon__V1__Task task = PLASMON__V1__TASK__INIT;
    int64_t view[]         = {8 * half, 8, 1};

    plasmon__v1__arg__init(&arg);
    arg.mode      = PLASMON__V1__MODE__MODE_IN;
    arg.ref       = y;
    arg.n_view    = PL_COUNT(view);
    arg.view      = view;
    task.function = SCALE;
    task.place    = 1;
    task.n_args   = 1;
    task.args     = list;
    send(world, &task);
}

TEST(what_a_refused_launch_would_have_written_has_failed_and_nothing_else)
{
    Plasmon__V1__GraphBinding bind = PLASMON__V1__GRAPH_BINDING__INIT, *list[] = {&bind};
    Plasmon__V1__Task task = PLASMON__V1__TASK__INIT;
    struct world world     = world_make();

    out(&world, 0, 0, 1, 0);
    out(&world, 0, 0, 2, 0);
    overwrite_half(&world, 7, 0, 1, 1, SCALE);
    overwrite_half(&world, 7, 0, 2, 1, SCALE);
    end(&world, 7, 0);
    for (uint32_t wrong = 1; wrong <= 2; wrong++) {
        task.kind     = PLASMON__V1__TASK_KIND__TASK_GRAPH_LAUNCH;
        task.graph    = 7;
        task.n_bind   = 1;
        task.bind     = list;
        bind.recorded = wrong == 1 ? 1 : 99; /* no ref 99 is used in it; .. */
        bind.ref      = 98;                  /* .. there is no ref 98 */
        failures      = 0;
        send(&world, &task);
        ASSERT_EQ(failures, 1);
        read_half(&world, 1, 0);
        read_half(&world, 2, 0);
        ASSERT_EQ(failures, 1);
        read_half(&world, 2, 1);
        ASSERT_EQ(failures, 2);
        ASSERT_EQ(failure_status, PLASMON_EDEPENDENCY);
        launch(&world, 7); /* which needs nothing of it */
        ASSERT_EQ(failures, 2);
        read_half(&world, 2, 1);
        ASSERT_EQ(failures, 2);
    }
    world_end(&world);
}

TEST(a_recording_with_a_wrong_call_refuses_every_launch_and_says_why)
{
    struct world world = world_make();

    out(&world, 7, 0, 100, 55); /* there is no ref 55 */
    end(&world, 7, 0);
    for (uint32_t i = 1; i <= 2; i++) {
        launch(&world, 7);
        ASSERT_EQ(failures, i);
        ASSERT_EQ(failure_status, PLASMON_ERELEASED);
    }
    world_end(&world);
}

TEST_MAIN()
