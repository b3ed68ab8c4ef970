/*
 * Recorded graphs in the worker: told once, recorded once for each set of places and scalars,
 * replayed; their memory; and what happens when the device does not record.
 *
 * The graph of these tests adds b to a (operand 1 to operand 0) through a temporary: t := 2 b on
 * branch 1; a += t on branch 0, after it.
 */
#include "tests/unit/worker/fake.h"
#include "worker/core_int.h"

#define GRAPH PLASMON__V1__LAUNCH_KIND__LAUNCH_GRAPH
#define COUNT 4
#define RECORDED \
    "record:2 run:65:multiply_scalar mark:1:0 after:0:0 run:64:add_into recorded:"

struct part {
    Plasmon__V1__GraphPart message;
    Plasmon__V1__GraphNode node[2], *node_ptr[2];
    Plasmon__V1__Launch launch[2];
    Plasmon__V1__Operand operand[2][2], *operand_ptr[2][2];
    int64_t view[3], frame[2];
    uint32_t after[1];
    uint64_t scalar[1];
};

static void part_init(struct part *part, uint64_t id)
{
    union kernel_scalar two = {.f = 2};

    memset(part, 0, sizeof(*part));
    plasmon__v1__graph_part__init(&part->message);
    part->view[1]   = COUNT;
    part->view[2]   = 1;
    part->frame[1]  = COUNT;
    part->scalar[0] = two.bits;
    for (size_t n = 0; n < 2; n++) {
        plasmon__v1__graph_node__init(&part->node[n]);
        plasmon__v1__launch__init(&part->launch[n]);
        part->node_ptr[n]          = &part->node[n];
        part->node[n].launch       = &part->launch[n];
        part->launch[n].n_operands = 2;
        part->launch[n].operands   = part->operand_ptr[n];
        for (size_t i = 0; i < 2; i++) {
            Plasmon__V1__Operand *operand = &part->operand[n][i];

            plasmon__v1__operand__init(operand);
            part->operand_ptr[n][i] = operand;
            operand->dtype          = PL_F32;
            operand->view           = part->view;
            operand->n_view         = 3;
        }
    }
    part->launch[0].function          = pl_hash_name("multiply_scalar");
    part->launch[0].n_scalars         = 1;
    part->launch[0].scalars           = part->scalar;
    part->operand[0][0].mode          = KERNEL_OUT; /* t, in the graph's memory */
    part->operand[0][0].frame         = part->frame;
    part->operand[0][0].n_frame       = 2;
    part->operand[0][1].mode          = KERNEL_IN;
    part->operand[0][1].graph_operand = 2; /* b */
    part->launch[1].function          = pl_hash_name("add_into");
    part->operand[1][0].mode          = KERNEL_INOUT;
    part->operand[1][0].graph_operand = 1; /* a */
    part->operand[1][1]               = part->operand[0][0];
    part->operand[1][1].mode          = KERNEL_IN;
    part->node[0].branch              = 1;
    part->node[1].after               = part->after;
    part->node[1].n_after             = 1;
    part->message.id                  = id;
    part->message.n_nodes             = 2;
    part->message.nodes               = part->node_ptr;
    part->message.operands            = 2;
    part->message.branches            = 2;
    part->message.bytes               = COUNT * sizeof(float);
    part->message.last                = true;
}

static plasmon_status_t tell(struct fake *fake, struct part *part)
{
    Plasmon__V1__WorkerCommand command = PLASMON__V1__WORKER_COMMAND__INIT;
    Plasmon__V1__GraphPart *list[]     = {&part->message};
    struct pl_err err                  = {.status = PLASMON_OK};

    command.n_graphs = 1;
    command.graphs   = list;
    return worker_core_command(fake->core, &command, &err);
}

static void forget(struct fake *fake, uint64_t id)
{
    Plasmon__V1__WorkerCommand command = PLASMON__V1__WORKER_COMMAND__INIT;

    command.n_graph_free = 1;
    command.graph_free   = &id;
    ASSERT_OK(worker_core_command(fake->core, &command, NULL));
}

/* a in slot `a` += 2 b, b in slot `b`. */
static void graph_launch(struct fake_launch *launch, uint64_t seq, uint64_t graph,
                         uint32_t a, uint32_t b)
{
    fake_launch_init(launch, seq, GRAPH);
    launch->message.graph                                        = graph;
    fake_launch_operand(launch, KERNEL_INOUT, a, COUNT)->consume = true;
    fake_launch_operand(launch, KERNEL_IN, b, COUNT);
}

/* Slots 1 to 6 hold vectors; the graph is known. */
static struct fake *world(uint64_t id)
{
    struct fake *fake = fake_create();
    struct part part;

    for (uint64_t i = 1; i <= 6; i++) {
        fake_fill(fake, i, (uint32_t)i, COUNT);
    }
    for (uint32_t i = 0; i < FAKE_RUN_STREAMS; i++) {
        fake_finish(fake, i, 6);
    }
    part_init(&part, id);
    ASSERT_OK(tell(fake, &part));
    (void)fake_calls(fake);
    (void)fake_reports(fake);
    return fake;
}

static const char *go(struct fake *fake, uint64_t seq, uint32_t a, uint32_t b)
{
    struct fake_launch launch;

    graph_launch(&launch, seq, 9, a, b);
    ASSERT_OK(fake_send(fake, &launch));
    return fake_calls(fake);
}

/* Like go(), and done. */
static void go_and_finish(struct fake *fake, uint64_t seq, uint32_t a, uint32_t b,
                          const char *expected)
{
    ASSERT_STR(go(fake, seq, a, b), expected);
    fake_finish(fake, 0, seq);
}

/*
 * One of the next run must not wait behind another one of this run that waits for another device:
 * two streams are for single large functions.
 */
TEST(segments_that_wait_for_other_devices_are_dealt_over_all_streams)
{
    enum { LARGE = FAKE_SIGNAL_BYTES / 4, RUNS = 6 };
    struct fake *fake = fake_create_wide(4);
    struct fake_launch launch;
    uint32_t taken = 0;
    struct part part;

    for (uint64_t i = 1; i <= RUNS + 1; i++) {
        fake_fill(fake, i, (uint32_t)i, i <= RUNS ? LARGE : COUNT);
    }
    for (uint32_t i = 0; i < 4; i++) {
        fake_finish(fake, i, RUNS + 1);
    }
    for (uint64_t i = 0; i < RUNS; i++) {
        part_init(&part, 9 + i);
        ASSERT_OK(tell(fake, &part));
    }
    fake_peer_publish(fake, 0, 1, 0);
    for (uint64_t i = 0; i < 2 * RUNS; i++) { /* made ready, and then replayed */
        uint64_t seq = RUNS + 2 + i;

        fake_launch_init(&launch, seq, GRAPH);
        launch.message.graph = 9 + i % RUNS;
        fake_launch_operand(&launch, KERNEL_INOUT, 1 + (uint32_t)i % RUNS, LARGE)->consume =
            true;
        fake_launch_operand(&launch, KERNEL_IN, RUNS + 1, COUNT);
        if (i >= RUNS) {
            fake_launch_after(&launch, FAKE_BASE, 1);
        }
        ASSERT_OK(fake_send(fake, &launch));
        if (i < RUNS) {
            for (uint32_t stream = 0; stream < 4; stream++) {
                fake_finish(fake, stream, seq);
            }
        } else {
            taken |= 1u << store_ring_stream(fake->timelines[FAKE_US]->ring[seq]);
        }
    }
    ASSERT_EQ(taken, 0xfu);
    fake_destroy(fake);
}

TEST(a_graph_is_recorded_once_and_replayed)
{
    struct fake *fake = world(9);

    go_and_finish(fake, 7, 1, 2, RECORDED "1 replay:0:1 signal:0:7");
    ASSERT_STR(fake_reports(fake), "done:7+1");
    ASSERT_EQ(fake_state(fake, 1), STORE_SEALED);
    for (uint64_t seq = 8; seq < 20; seq++) {
        char expected[64];

        (void)snprintf(expected, sizeof(expected), "replay:0:1 signal:0:%llu",
                       (unsigned long long)seq);
        go_and_finish(fake, seq, 1, 2, expected);
    }
    fake_destroy(fake);
}

TEST(buffers_that_take_turns_are_recorded_once_each)
{
    struct fake *fake = world(9);

    go_and_finish(fake, 7, 1, 2, RECORDED "1 replay:0:1 signal:0:7");
    go_and_finish(fake, 8, 2, 1, RECORDED "2 replay:0:2 signal:0:8");
    go_and_finish(fake, 9, 3, 4, RECORDED "3 replay:0:3 signal:0:9");
    go_and_finish(fake, 10, 4, 3, RECORDED "4 replay:0:4 signal:0:10");
    go_and_finish(fake, 11, 1, 2, "replay:0:1 signal:0:11");
    go_and_finish(fake, 12, 5, 6,
                  RECORDED "2! replay:0:2 signal:0:12"); /* used longest ago */
    go_and_finish(fake, 13, 1, 2, "replay:0:1 signal:0:13");
    go_and_finish(fake, 14, 5, 6, "replay:0:2 signal:0:14");
    fake_destroy(fake);
}

TEST(other_scalars_are_another_recording_and_hold_for_one_launch)
{
    struct fake *fake            = world(9);
    Plasmon__V1__GraphScalar set = PLASMON__V1__GRAPH_SCALAR__INIT, *list[] = {&set};
    union kernel_scalar three = {.f = 3};
    struct fake_launch launch;

    go_and_finish(fake, 7, 1, 2, RECORDED "1 replay:0:1 signal:0:7");
    set.task  = 0;
    set.value = three.bits;
    graph_launch(&launch, 8, 9, 1, 2);
    launch.message.n_set = 1;
    launch.message.set   = list;
    ASSERT_OK(fake_send(fake, &launch));
    ASSERT_STR(fake_calls(fake), RECORDED "2 replay:0:2 signal:0:8");
    fake_finish(fake, 0, 8);
    go_and_finish(fake, 9, 1, 2, "replay:0:1 signal:0:9"); /* as recorded again */
    set.position = 1;
    graph_launch(&launch, 10, 9, 1, 2);
    launch.message.n_set = 1;
    launch.message.set   = list;
    ASSERT_STATUS(fake_send(fake, &launch), PLASMON_EMALFORMED);
    fake_destroy(fake);
}

TEST(launches_of_one_graph_follow_each_other)
{
    struct fake *fake = world(9);
    struct fake_launch launch;

    ASSERT_STR(go(fake, 7, 1, 2), RECORDED "1 replay:0:1 signal:0:7");
    /* Nothing that it names orders it behind the first, but its memory is the same: the same stream. */
    ASSERT_STR(go(fake, 8, 3, 4), RECORDED "2 replay:0:2 signal:0:8");
    fake_noop(fake, 9);
    (void)fake_calls(fake);
    /* After something in the other stream: still behind the launch before. */
    fake_fill(fake, 10, 20, COUNT);
    (void)fake_calls(fake);
    graph_launch(&launch, 11, 9, 5, 6);
    fake_launch_after(&launch, FAKE_BASE + FAKE_US, 10);
    ASSERT_OK(fake_send(fake, &launch));
    ASSERT_CONTAINS(fake_calls(fake), "replay:0:3");
    fake_destroy(fake);
}

/* Two fills and the graph, in one command. */
static const char *fills_and_graph(struct fake *fake, uint64_t seq)
{
    Plasmon__V1__WorkerCommand command = PLASMON__V1__WORKER_COMMAND__INIT;
    struct fake_launch launch[3];
    Plasmon__V1__Launch *launches[3];

    for (uint32_t i = 0; i < 3; i++) {
        if (i == 2) {
            graph_launch(&launch[i], seq + i, 9, 1, 2);
        } else {
            fake_launch_init(&launch[i], seq + i, PLASMON__V1__LAUNCH_KIND__LAUNCH_RUN);
            fake_launch_function(&launch[i], "fill");
            fake_launch_scalar(&launch[i], 1.0);
            fake_launch_fresh(&launch[i], (uint32_t)(seq + i), COUNT);
        }
        launches[i] = &launch[i].message;
    }
    command.launches   = launches;
    command.n_launches = 3;
    ASSERT_OK(worker_core_command(fake->core, &command, NULL));
    worker_core_advance(fake->core);
    return fake_calls(fake);
}

/* To instantiate a graph may take until another device goes on, and that until it has seen these words. */
TEST(the_words_of_what_is_enqueued_are_written_before_a_graph_is_recorded)
{
    struct fake *fake = world(9);

    ASSERT_STR(fills_and_graph(fake, 7),
               "run:0:fill run:1:fill signal:0:7 signal:1:8 " RECORDED
               "1 replay:0:1 signal:0:9");
    for (uint32_t i = 0; i < FAKE_RUN_STREAMS; i++) {
        fake_finish(fake, i, 9);
    }
    ASSERT_STR(fills_and_graph(fake, 10),
               "run:0:fill run:1:fill replay:0:1 signal:0:12 signal:1:11"); /* at the end */
    fake_destroy(fake);
}

TEST(memory_of_a_graph_stays_with_it_until_it_is_forgotten)
{
    struct fake *fake = world(9);
    uint64_t before   = fake_memory(fake).bytes_used;
    uint64_t held;

    fake->scratch = 512;
    go_and_finish(fake, 7, 1, 2, RECORDED "1 replay:0:1 signal:0:7");
    held = fake_memory(fake).bytes_used - before;
    /* a branch's scratch is its own */
    ASSERT_TRUE(held >= COUNT * sizeof(float) + 2 * 512);
    go_and_finish(fake, 8, 1, 2, "replay:0:1 signal:0:8");
    ASSERT_EQ(fake_memory(fake).bytes_used - before, held);
    forget(fake, 9);
    ASSERT_STR(fake_calls(fake), "drop:1 norecorder");
    ASSERT_EQ(fake_memory(fake).bytes_used, before);
    fake_destroy(fake);
}

TEST(a_graph_that_is_forgotten_under_way_goes_with_its_launch)
{
    struct fake *fake = world(9);
    uint64_t before   = fake_memory(fake).bytes_used;

    ASSERT_STR(go(fake, 7, 1, 2), RECORDED "1 replay:0:1 signal:0:7");
    forget(fake, 9);
    ASSERT_STR(fake_calls(fake), "");
    ASSERT_TRUE(fake_memory(fake).bytes_used > before);
    fake_finish(fake, 0, 7);
    ASSERT_STR(fake_calls(fake), "drop:1 norecorder");
    ASSERT_EQ(fake_memory(fake).bytes_used, before);
    fake_destroy(fake);
}

/*
 * Its memory comes back at once. What was recorded may have to wait for the device in the driver,
 * so that waits here.
 */
TEST(what_was_recorded_goes_when_nothing_is_on_the_device)
{
    struct fake *fake = world(9);
    uint64_t before   = fake_memory(fake).bytes_used;

    go_and_finish(fake, 7, 1, 2, RECORDED "1 replay:0:1 signal:0:7");
    fake_fill(fake, 8, 7, COUNT);
    (void)fake_calls(fake);
    forget(fake, 9);
    ASSERT_STR(fake_calls(fake), "");
    ASSERT_TRUE(fake_memory(fake).bytes_used > before); /* what was filled */
    fake_finish(fake, 0, 8);
    ASSERT_STR(fake_calls(fake), "drop:1 norecorder");
    fake_destroy(fake);
}

/*
 * Something is always on the device, and graphs come and go: the front waits for a quiet device
 * once in so many.
 */
TEST(recordings_that_wait_to_be_destroyed_are_bounded)
{
    struct fake *fake = world(9);
    uint64_t seq      = 7;
    struct fake_launch launch;
    struct part part;

    fake_fill(fake, seq, 7, COUNT); /* is not over */
    for (uint64_t i = 0; i <= WORKER_GRAPHS_GONE; i++) {
        seq++;
        graph_launch(&launch, seq, 9 + i, 1, 2);
        ASSERT_OK(fake_send(fake, &launch));
        ASSERT_CONTAINS(fake_calls(fake), "replay:1:");
        fake_finish(fake, 1, seq);
        forget(fake, 9 + i);
        part_init(&part, 10 + i);
        ASSERT_OK(tell(fake, &part));
        ASSERT_STR(fake_calls(fake), "");
    }
    graph_launch(&launch, ++seq, 10 + WORKER_GRAPHS_GONE, 1, 2);
    ASSERT_OK(fake_send(fake, &launch));
    ASSERT_STR(fake_calls(fake), "");
    fake_finish(fake, 0, 7);
    ASSERT_CONTAINS(fake_calls(fake), "drop:65 norecorder");
    fake_destroy(fake);
}

TEST(an_idle_graph_gives_its_memory_to_who_finds_none)
{
    struct fake *fake = world(9);
    struct store_arena_stats stats;
    struct fake_launch launch;
    int64_t rest;

    fake->scratch = 256u << 10;
    go_and_finish(fake, 7, 1, 2, RECORDED "1 replay:0:1 signal:0:7");
    fake->scratch    = 0;
    fake->grow_bytes = 0; /* the device is full */
    stats            = fake_memory(fake);
    rest             = (int64_t)(stats.largest_hole / sizeof(float)) + 1024;
    fake_launch_init(&launch, 8, PLASMON__V1__LAUNCH_KIND__LAUNCH_RUN);
    fake_launch_function(&launch, "fill");
    fake_launch_scalar(&launch, 1.0);
    fake_launch_fresh(&launch, 30, rest);
    ASSERT_OK(fake_send(fake, &launch));
    ASSERT_STR(fake_reports(fake), "done:7+1"); /* and nobody starved */
    fake_destroy(fake);
}

TEST(what_a_node_needs_is_prepared_before_and_kept_until_no_graph_is_left)
{
    struct fake *fake = world(9);
    struct part part;

    part_init(&part, 10);
    ASSERT_OK(tell(fake, &part));
    fake->prepare_of     = "add_into";
    fake->prepare_status = PLASMON_EAGAIN;
    ASSERT_STR(go(fake, 7, 1, 2), "");
    ASSERT_TRUE(fake->prepare_quiet && fake->prepare_keep);
    fake->prepare_status = PLASMON_OK;
    worker_core_advance(fake->core);
    ASSERT_STR(fake_calls(fake), RECORDED "1 replay:0:1 signal:0:7");
    forget(fake, 10);
    forget(fake, 9);
    ASSERT_EQ(fake->prepared_released, 0); /* the launch has it still */
    fake_finish(fake, 0, 7);
    ASSERT_EQ(fake->prepared_released, 1);
    fake_destroy(fake);
}

TEST(what_cannot_be_recorded_is_enqueued_node_by_node)
{
    struct fake *fake = world(9);

    fake->refuse = "record";
    go_and_finish(fake, 7, 1, 2, "run:0:multiply_scalar run:0:add_into signal:0:7");
    fake->refuse = NULL; /* it is not tried again */
    go_and_finish(fake, 8, 1, 2, "run:0:multiply_scalar run:0:add_into signal:0:8");
    ASSERT_STR(fake_reports(fake), "done:7+1 done:8+1");
    fake_destroy(fake);
}

TEST(a_node_that_is_refused_fails_the_launch_and_names_the_call)
{
    struct fake *fake = world(9);

    fake->refuse = "run";
    (void)go(fake, 7, 1, 2);
    fake_finish(fake, 0, 7);
    ASSERT_STR(fake_reports(fake), "failed:7:EDEVICE");
    ASSERT_CONTAINS(fake->last_text, "recorded call 0 (multiply_scalar)");
    fake_destroy(fake);
}

TEST(a_launch_that_fits_no_graph_is_malformed)
{
    struct fake *fake = world(9);
    struct fake_launch launch;
    struct part part;

    graph_launch(&launch, 7, 8, 1, 2); /* nobody told of 8 */
    ASSERT_STATUS(fake_send(fake, &launch), PLASMON_EMALFORMED);
    graph_launch(&launch, 7, 9, 1, 2);
    launch.message.n_operands = 1;
    ASSERT_STATUS(fake_send(fake, &launch), PLASMON_EMALFORMED);
    part_init(&part, 9); /* again, from the beginning */
    ASSERT_STATUS(tell(fake, &part), PLASMON_EMALFORMED);
    part_init(&part, 10);
    part.message.first = 5; /* its beginning never came */
    ASSERT_STATUS(tell(fake, &part), PLASMON_EMALFORMED);
    part_init(&part, 11);
    part.message.last = false;
    ASSERT_OK(tell(fake, &part));
    graph_launch(&launch, 7, 11, 1, 2); /* its end did not */
    ASSERT_STATUS(fake_send(fake, &launch), PLASMON_EMALFORMED);
    go_and_finish(fake, 7, 1, 2, RECORDED "1 replay:0:1 signal:0:7");
    fake_destroy(fake);
}

TEST(a_view_outside_of_the_operand_fails_the_launch)
{
    struct fake *fake = world(9);
    struct fake_launch launch;

    graph_launch(&launch, 7, 9, 1, 2);
    launch.frame[1][1] = COUNT - 1; /* b is shorter than what the node shows of it */
    ASSERT_OK(fake_send(fake, &launch));
    fake_finish(fake, 0, 7);
    ASSERT_STR(fake_reports(fake), "failed:7:EINTERNAL");
    go_and_finish(fake, 8, 1, 2, RECORDED "1 replay:0:1 signal:0:8");
    fake_destroy(fake);
}

TEST_MAIN()
