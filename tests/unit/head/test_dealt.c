/*
 * Arrays that are dealt over the devices stay so: a program names its parts one after the other,
 * and that the device with the first ones has the longer queue until the others were named is no
 * reason to move anything.
 *
 * The program is VEC of `plasmon bench graphs --part multi`: of each part of two arrays a square,
 * then one number of both squares, in 16 parts of 40 MB, on GPUs that nobody has. What is not a
 * task is a transfer.
 */
#include "base/base.h"
#include "head/core_int.h"
#include "tests/harness/test.h"
#include "tests/unit/head/core.h"
#include "wire/wire.h"

#define PARTS       16
#define ELEMENTS    10000000 /* a part */
#define DEVICES_MAX 4u
#define GRAPH       7u

enum { INPUT = 1, SQUARE = 3, SUM = 5, TICKET = 6, SCORE = 7, ARRAYS = 8 };

static const int64_t elements_of[ARRAYS] = {0,        ELEMENTS, ELEMENTS, ELEMENTS,
                                            ELEMENTS, 1,        1,        ELEMENTS / 64};

static struct head_core *core;
static uint64_t session, last_task, last_seq[DEVICES_MAX];
static uint32_t transfers, runs[DEVICES_MAX], nodes[DEVICES_MAX];
static uint32_t devices;

static void count_command(void *user, uint32_t device, const uint8_t *body, size_t length)
{
    Plasmon__V1__WorkerCommand *command =
        plasmon__v1__worker_command__unpack(NULL, length, body);

    (void)user;
    ASSERT_TRUE(command != NULL);
    for (size_t i = 0; i < command->n_launches; i++) {
        bool is_run = command->launches[i]->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_RUN;
        bool is_graph =
            command->launches[i]->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_GRAPH;

        last_seq[device] = command->launches[i]->seq;
        runs[device] += is_run;
        transfers += !is_run && !is_graph;
    }
    for (size_t i = 0; i < command->n_graphs; i++) {
        nodes[device] += (uint32_t)command->graphs[i]->n_nodes;
    }
    plasmon__v1__worker_command__free_unpacked(command, NULL);
}

static const struct head_ops ops = {.client_frame   = core_drop_frame,
                                    .worker_command = count_command,
                                    .fence          = core_drop_fence,
                                    .session_ended  = core_drop_end,
                                    .random64       = core_count_up};

static void forget(void)
{
    transfers = 0;
    memset(runs, 0, sizeof(runs));
    memset(nodes, 0, sizeof(nodes));
}

static void gpu_joins(uint32_t host_device)
{
    Plasmon__V1__WorkerHello hello = PLASMON__V1__WORKER_HELLO__INIT;
    struct pl_err err              = {0};
    uint32_t device;

    hello.host         = (char *)(uintptr_t) "a";
    hello.node         = hello.host;
    hello.name         = hello.host;
    hello.host_device  = host_device;
    hello.kind         = 2;
    hello.bytes_total  = UINT64_C(1) << 37;
    hello.incarnation  = 1;
    hello.peer_capable = true;
    ASSERT_OK(head_core_worker_up(core, &hello, &device, &err));
    ASSERT_EQ(device, host_device);
}

static void begin(uint32_t count)
{
    struct head_config config = {.ops = &ops, .retries = UINT32_MAX, .epoch = 1};

    ASSERT_OK(head_core_create(&config, &core));
    head_core_tick(core, 1);
    core->policy = head_policy_find("auto");
    core_announce(core, "a", count);
    devices = count;
    memset(last_seq, 0, sizeof(last_seq));
    for (uint32_t i = 0; i < count; i++) {
        gpu_joins(i);
    }
    session = core_client(core);
    forget();
}

static void end(void)
{
    head_core_check(core);
    head_core_destroy(core);
}

static void send(Plasmon__V1__Task *task)
{
    Plasmon__V1__ClientFrame frame = PLASMON__V1__CLIENT_FRAME__INIT;
    struct pl_err err              = {0};

    task->id      = ++last_task;
    frame.n_tasks = 1;
    frame.tasks   = &task;
    ASSERT_OK(head_core_client_frame(core, session, &frame, &err));
}

/* All that was sent is done; nothing is queued any more. */
static void finish_all(void)
{
    head_core_flush(core);
    for (uint32_t i = 0; i < devices; i++) {
        Plasmon__V1__WorkerFrame frame = PLASMON__V1__WORKER_FRAME__INIT;
        Plasmon__V1__Range range = PLASMON__V1__RANGE__INIT, *list[] = {&range};
        struct pl_err err = {0};

        range.first  = 1;
        range.count  = last_seq[i];
        frame.n_done = last_seq[i] > 0;
        frame.done   = list;
        ASSERT_OK(head_core_worker_frame(core, i, &frame, &err));
    }
    head_core_flush(core);
    for (uint32_t i = 0; i < devices; i++) {
        ASSERT_EQ(head_device_at(core, i)->load_ns, 0);
    }
}

/* -------------------------------------------------------------------------- the program */

struct use {
    uint64_t ref;
    uint32_t mode;
};

/* A task on part number `part` of some arrays. place: device + 1, 0: wherever it should. */
static void run(uint64_t graph, uint32_t place, int64_t part, const struct use *uses,
                size_t count)
{
    Plasmon__V1__Arg args[4], *list[4];
    int64_t view[4][3];
    Plasmon__V1__Task task = PLASMON__V1__TASK__INIT;

    for (size_t i = 0; i < count; i++) {
        int64_t elements = elements_of[uses[i].ref];

        view[i][0] = elements * part;
        view[i][1] = elements;
        view[i][2] = 1;
        plasmon__v1__arg__init(&args[i]);
        args[i].mode   = uses[i].mode;
        args[i].ref    = uses[i].ref;
        args[i].n_view = 3;
        args[i].view   = view[i];
        list[i]        = &args[i];
    }
    task.function = pl_hash_name("touch");
    task.graph    = graph;
    task.place    = place;
    task.n_args   = count;
    task.args     = list;
    send(&task);
}

/* Zeros, on device 0: parts go elsewhere when they are written. */
static void make_whole(uint64_t ref)
{
    uint64_t dim             = (uint64_t)elements_of[ref] * PARTS;
    Plasmon__V1__Shape shape = PLASMON__V1__SHAPE__INIT;
    Plasmon__V1__Arg arg = PLASMON__V1__ARG__INIT, *list[] = {&arg};
    Plasmon__V1__Task task = PLASMON__V1__TASK__INIT;

    shape.dtype   = PL_F32;
    shape.n_dim   = 1;
    shape.dim     = &dim;
    arg.mode      = PLASMON__V1__MODE__MODE_OUT;
    arg.ref       = ref;
    arg.shape     = &shape;
    task.function = pl_hash_name("fill");
    task.place    = 1;
    task.n_args   = 1;
    task.args     = list;
    send(&task);
}

/*
 * Inputs are made where a person would have them. Nobody waits for that: device 0, which made zeros
 * too, has the longer queue.
 */
static void make_arrays(void)
{
    for (uint64_t ref = INPUT; ref < ARRAYS; ref++) {
        make_whole(ref);
    }
    for (int64_t part = 0; part < PARTS; part++) {
        for (uint64_t i = 0; i < 2; i++) {
            const struct use use = {INPUT + i, PLASMON__V1__MODE__MODE_OUT};

            run(0, (uint32_t)part * devices / PARTS + 1, part, &use, 1);
        }
    }
}

static void gather_on_device_0(uint64_t ref)
{
    Plasmon__V1__Arg arg = PLASMON__V1__ARG__INIT, *list[] = {&arg};
    Plasmon__V1__Task task = PLASMON__V1__TASK__INIT;

    arg.mode      = PLASMON__V1__MODE__MODE_IN;
    arg.ref       = ref;
    task.function = pl_hash_name("touch");
    task.place    = 1;
    task.n_args   = 1;
    task.args     = list;
    send(&task);
}

static void run_once(uint64_t graph)
{
    for (int64_t part = 0; part < PARTS; part++) {
        const struct use sum[] = {{SUM, PLASMON__V1__MODE__MODE_OUT},
                                  {SQUARE, PLASMON__V1__MODE__MODE_IN},
                                  {SQUARE + 1, PLASMON__V1__MODE__MODE_IN},
                                  {TICKET, PLASMON__V1__MODE__MODE_INOUT}};

        for (uint64_t i = 0; i < 2; i++) {
            const struct use square[] = {{SQUARE + i, PLASMON__V1__MODE__MODE_OUT},
                                         {INPUT + i, PLASMON__V1__MODE__MODE_IN}};

            run(graph, 0, part, square, PL_COUNT(square));
        }
        run(graph, 0, part, sum, PL_COUNT(sum));
    }
}

static void expect_even(const uint32_t *tasks)
{
    for (uint32_t i = 0; i < devices; i++) {
        ASSERT_EQ(tasks[i], 3 * PARTS / devices);
    }
}

static const uint32_t counts[] = {2, 4};

TEST(parts_stay_where_they_were_dealt_to)
{
    for (size_t i = 0; i < PL_COUNT(counts); i++) {
        begin(counts[i]);
        make_arrays();
        for (int again = 0; again < 4; again++) {
            head_core_flush(core);
            forget();
            run_once(0);
            finish_all();
            if (again > 0) { /* first, what was all on device 0 is dealt */
                expect_even(runs);
            }
            ASSERT_TRUE(again < 2 || transfers == 0); /* then tickets follow */
        }
        end();
    }
}

TEST(and_in_a_recorded_graph)
{
    for (size_t i = 0; i < PL_COUNT(counts); i++) {
        Plasmon__V1__Task task = PLASMON__V1__TASK__INIT;

        begin(counts[i]);
        make_arrays();
        for (int again = 0; again < 2; again++) {
            run_once(0);
            finish_all();
        }
        forget();
        run_once(GRAPH);
        task.kind  = PLASMON__V1__TASK_KIND__TASK_GRAPH_END;
        task.graph = GRAPH;
        send(&task);
        task.kind = PLASMON__V1__TASK_KIND__TASK_GRAPH_LAUNCH;
        send(&task);
        finish_all();
        expect_even(nodes);
        ASSERT_EQ(transfers, 0);
        end();
    }
}

/*
 * One device gathers all that the others made; who updates a part then stays with it, though that
 * device has the longest queue.
 */
TEST(what_is_gathered_on_one_device_is_dealt_still)
{
    for (size_t i = 0; i < PL_COUNT(counts); i++) {
        begin(counts[i]);
        make_arrays();
        finish_all();
        forget();
        gather_on_device_0(INPUT);
        finish_all();
        ASSERT_TRUE(transfers > 0);
        forget();
        head_device_at(core, 0)->load_ns = 2000000;
        for (int64_t part = 0; part < PARTS; part++) {
            const struct use use = {INPUT, PLASMON__V1__MODE__MODE_INOUT};

            run(0, 0, part, &use, 1);
        }
        head_core_flush(core);
        for (uint32_t d = 0; d < devices; d++) {
            ASSERT_EQ(runs[d], PARTS / devices);
        }
        head_device_at(core, 0)->load_ns -= 2000000;
        finish_all();
        end();
    }
}

/*
 * What is made of a part may be much smaller than it, and soon brought elsewhere. It stays with the
 * part all the same, however long the queue is that the parts of one device make: the other device
 * is as busy with its own.
 */
TEST(what_is_made_of_parts_stays_with_them)
{
    const struct use score[] = {{SCORE, PLASMON__V1__MODE__MODE_OUT},
                                {INPUT, PLASMON__V1__MODE__MODE_IN}};
    const struct use scale   = {SCORE, PLASMON__V1__MODE__MODE_INOUT};

    for (size_t i = 0; i < PL_COUNT(counts); i++) {
        begin(counts[i]);
        make_arrays();
        for (int again = 0; again < 3; again++) {
            finish_all();
            forget();
            for (int64_t part = 0; part < PARTS; part++) {
                for (int k = 0; k < 40; k++) {
                    run(0, 0, part, score, PL_COUNT(score));
                }
                run(0, 0, part, &scale, 1);
            }
            head_core_flush(core);
            for (uint32_t d = 0; d < devices && again > 0; d++) {
                ASSERT_EQ(runs[d], 41 * PARTS / devices);
            }
            ASSERT_TRUE(again == 0 || transfers == 0);
        }
        finish_all();
        end();
    }
}

/* All parts on one device: they are spread, or the others would have nothing to do. */
TEST(an_array_on_one_device_is_spread)
{
    uint32_t busy = 0;

    begin(4);
    for (uint64_t ref = INPUT; ref < ARRAYS; ref++) {
        make_whole(ref);
    }
    finish_all();
    forget();
    for (int again = 0; again < 4; again++) {
        run_once(0);
    }
    head_core_flush(core);
    for (uint32_t i = 0; i < devices; i++) {
        busy += runs[i] > 0;
    }
    ASSERT_TRUE(busy > 1);
    ASSERT_TRUE(transfers > 0);
    end();
}

TEST_MAIN()
