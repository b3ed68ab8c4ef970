/*
 * What a replay costs, in calls of the device: one, and the word, whatever the number of nodes; and
 * what differs from a recording is changed node by node, while it is little and the device can.
 *
 * The graph of these tests: t := 2 b, a number of times, each a node with a scalar of its own; then a += t.
 */
#include "base/alloc.h"
#include "tests/unit/worker/fake.h"
#include "worker/core_int.h"

#define GRAPH PLASMON__V1__LAUNCH_KIND__LAUNCH_GRAPH
#define COUNT 4
#define ID    9

struct wide_node {
    Plasmon__V1__GraphNode node;
    Plasmon__V1__Launch launch;
    Plasmon__V1__Operand operand[2], *operand_ptr[2];
};

struct wide {
    Plasmon__V1__GraphPart message;
    struct wide_node *nodes;
    Plasmon__V1__GraphNode **ptr;
    int64_t view[3], frame[2];
    uint64_t scalar[1];
};

static void node_init(struct wide *wide, struct wide_node *to, const char *function)
{
    plasmon__v1__graph_node__init(&to->node);
    plasmon__v1__launch__init(&to->launch);
    to->node.launch       = &to->launch;
    to->launch.function   = pl_hash_name(function);
    to->launch.n_operands = 2;
    to->launch.operands   = to->operand_ptr;
    for (size_t i = 0; i < 2; i++) {
        plasmon__v1__operand__init(&to->operand[i]);
        to->operand_ptr[i]    = &to->operand[i];
        to->operand[i].dtype  = PL_F32;
        to->operand[i].view   = wide->view;
        to->operand[i].n_view = 3;
    }
}

/* t, in the graph's memory. */
static void temporary(struct wide *wide, Plasmon__V1__Operand *operand, uint32_t mode)
{
    operand->mode    = mode;
    operand->frame   = wide->frame;
    operand->n_frame = 2;
}

static struct wide *wide_create(size_t count)
{
    struct wide *wide       = PL_NEW(struct wide);
    union kernel_scalar two = {.f = 2};

    ASSERT_NOT_NULL(wide);
    wide->nodes = PL_NEW_N(struct wide_node, count);
    wide->ptr   = PL_NEW_N(Plasmon__V1__GraphNode *, count);
    ASSERT_TRUE(wide->nodes != NULL && wide->ptr != NULL);
    plasmon__v1__graph_part__init(&wide->message);
    wide->view[1]   = COUNT;
    wide->view[2]   = 1;
    wide->frame[1]  = COUNT;
    wide->scalar[0] = two.bits;
    for (size_t i = 0; i < count; i++) {
        struct wide_node *node = &wide->nodes[i];
        bool last              = i + 1 == count;

        wide->ptr[i] = &node->node;
        node_init(wide, node, last ? "add_into" : "multiply_scalar");
        if (last) {
            node->operand[0].mode          = KERNEL_INOUT;
            node->operand[0].graph_operand = 1; /* a */
            temporary(wide, &node->operand[1], KERNEL_IN);
        } else {
            temporary(wide, &node->operand[0], KERNEL_OUT);
            node->operand[1].mode          = KERNEL_IN;
            node->operand[1].graph_operand = 2; /* b */
            node->launch.n_scalars         = 1;
            node->launch.scalars           = wide->scalar;
        }
    }
    wide->message.id       = ID;
    wide->message.n_nodes  = count;
    wide->message.nodes    = wide->ptr;
    wide->message.operands = 2;
    wide->message.branches = 1;
    wide->message.bytes    = COUNT * sizeof(float);
    wide->message.last     = true;
    return wide;
}

/* Slots 1 to 12 hold vectors; the device knows a graph of so many nodes. */
static struct fake *world(size_t nodes)
{
    struct fake *fake                  = fake_create();
    struct wide *wide                  = wide_create(nodes);
    Plasmon__V1__WorkerCommand command = PLASMON__V1__WORKER_COMMAND__INIT;
    Plasmon__V1__GraphPart *list[]     = {&wide->message};
    struct pl_err err                  = {.status = PLASMON_OK};

    for (uint64_t i = 1; i <= 12; i++) {
        fake_fill(fake, i, (uint32_t)i, COUNT);
    }
    for (uint32_t i = 0; i < FAKE_RUN_STREAMS; i++) {
        fake_finish(fake, i, 12);
    }
    command.n_graphs = 1;
    command.graphs   = list;
    ASSERT_OK(worker_core_command(fake->core, &command, &err));
    (void)fake_calls(fake);
    (void)fake_reports(fake);
    fake->changes = true;
    pl_free(wide->nodes);
    pl_free(wide->ptr);
    pl_free(wide);
    return fake;
}

/* a in slot `a`, b in slot `b`; node `node`'s scalar is `value` for this launch, if it is not 0. */
static void launch_graph(struct fake *fake, uint64_t seq, uint32_t a, uint32_t b,
                         uint32_t node, double value)
{
    Plasmon__V1__GraphScalar set = PLASMON__V1__GRAPH_SCALAR__INIT, *list[] = {&set};
    union kernel_scalar scalar = {.f = value};
    struct fake_launch launch;

    fake_launch_init(&launch, seq, GRAPH);
    launch.message.graph                                          = ID;
    fake_launch_operand(&launch, KERNEL_INOUT, a, COUNT)->consume = true;
    fake_launch_operand(&launch, KERNEL_IN, b, COUNT);
    if (value > 0) {
        set.task             = node;
        set.value            = scalar.bits;
        launch.message.n_set = 1;
        launch.message.set   = list;
    }
    ASSERT_OK(fake_send(fake, &launch));
}

/* Done when this returns. */
static const char *go_with(struct fake *fake, uint64_t seq, uint32_t a, uint32_t b,
                           uint32_t node, double value)
{
    const char *calls;

    launch_graph(fake, seq, a, b, node, value);
    calls = fake_calls(fake);
    fake_finish(fake, 0, seq);
    return calls;
}

static const char *go(struct fake *fake, uint64_t seq, uint32_t a, uint32_t b)
{
    return go_with(fake, seq, a, b, 0, 0);
}

TEST(a_replay_costs_one_call_and_the_word_whatever_the_number_of_nodes)
{
    static const size_t nodes[] = {1, 8, 500};

    for (size_t i = 0; i < PL_COUNT(nodes); i++) {
        struct fake *fake = world(nodes[i]);

        ASSERT_CONTAINS(go(fake, 13, 1, 2), "recorded:1 replay:0:1 signal:0:13");
        for (uint64_t seq = 14; seq < 40; seq++) {
            char expected[64];

            (void)snprintf(expected, sizeof(expected), "replay:0:1 signal:0:%llu",
                           (unsigned long long)seq);
            ASSERT_STR(go(fake, seq, 1, 2), expected);
        }
        fake_destroy(fake);
    }
}

/* As if one had been opened; the core frees it. */
static void open_pair(struct fake *fake)
{
    struct worker_comm *pair = PL_NEW(struct worker_comm);

    ASSERT_NOT_NULL(pair);
    pair->key   = (struct worker_pair_key){.peer = FAKE_BASE + 2};
    pair->state = WORKER_PAIR_OPEN;
    ASSERT_OK(pl_map_set(&fake->core->comms, 1, pair));
}

/* NCCL's kernels wait for the other device, and the driver may wait for them when a graph is made. */
TEST(beside_pairs_a_graph_is_recorded_when_nothing_is_on_the_device_and_replayed_at_once)
{
    struct fake *fake = world(8);

    open_pair(fake);
    fake_fill(fake, 13, 13, COUNT);
    ASSERT_STR(fake_calls(fake), "run:0:fill signal:0:13");
    launch_graph(fake, 14, 1, 2, 0, 0);
    ASSERT_STR(fake_calls(fake), "");
    fake_finish(fake, 0, 13);
    ASSERT_CONTAINS(fake_calls(fake), "recorded:1 replay:0:1 signal:0:14");
    fake_finish(fake, 0, 14);
    fake_fill(fake, 15, 15, COUNT);
    (void)fake_calls(fake);
    ASSERT_CONTAINS(go(fake, 16, 1, 2), "replay:");
    fake_destroy(fake);
}

TEST(another_scalar_changes_its_node_alone)
{
    struct fake *fake = world(8);

    (void)go(fake, 13, 1, 2);
    ASSERT_STR(go_with(fake, 14, 1, 2, 3, 5.0),
               "change:1 item:3 run:64:multiply_scalar changed replay:0:1 signal:0:14");
    ASSERT_STR(go_with(fake, 15, 1, 2, 3, 5.0), "replay:0:1 signal:0:15");
    ASSERT_STR(go_with(fake, 16, 1, 2, 3, 6.0),
               "change:1 item:3 run:64:multiply_scalar changed replay:0:1 signal:0:16");
    /* Another node's: that one, and the one before as it was recorded. */
    ASSERT_STR(
        go_with(fake, 17, 1, 2, 5, 7.0),
        "change:1 item:3 run:64:multiply_scalar item:5 run:64:multiply_scalar changed "
        "replay:0:1 signal:0:17");
    ASSERT_STR(go(fake, 18, 1, 2),
               "change:1 item:5 run:64:multiply_scalar changed replay:0:1 signal:0:18");
    ASSERT_STR(fake_reports(fake), "done:13+1 done:14+1 done:15+1 done:16+1 done:17+1 "
                                   "done:18+1");
    fake_destroy(fake);
}

TEST(another_array_changes_the_nodes_that_use_it)
{
    struct fake *fake = world(8);

    (void)go(fake, 13, 1, 2);
    ASSERT_STR(go(fake, 14, 3, 2),
               "change:1 item:7 run:64:add_into changed replay:0:1 signal:0:14");
    ASSERT_STR(go(fake, 15, 3, 2), "replay:0:1 signal:0:15");
    fake_destroy(fake);
}

/* Three of the four nodes read b; a recording is worth 8 changes of each. */
TEST(what_differs_much_is_changed_until_that_has_cost_as_much_as_one_more_recording)
{
    struct fake *fake = world(4);
    uint64_t seq      = 13;

    ASSERT_CONTAINS(go(fake, seq++, 1, 2), "recorded:1 replay:0:1");
    for (uint32_t i = 1; i <= 10; i++) {
        const char *calls = go(fake, seq++, 1, 2 + i % 2);

        ASSERT_CONTAINS(calls, "change:1 item:0 run:64:multiply_scalar item:1 ");
        ASSERT_CONTAINS(calls, "item:2 run:64:multiply_scalar changed replay:0:1");
    }
    ASSERT_CONTAINS(go(fake, seq++, 1, 3), "recorded:2 replay:0:2");
    ASSERT_STR(go(fake, 25, 1, 2), "replay:0:1 signal:0:25");
    ASSERT_STR(go(fake, 26, 1, 3), "replay:0:2 signal:0:26");
    /* Those two were paid for: what is new is changed again. */
    ASSERT_CONTAINS(go(fake, 27, 1, 4), "changed replay:0:");
    fake_destroy(fake);
}

TEST(where_there_is_no_room_for_a_recording_the_oldest_is_changed)
{
    struct fake *fake = world(4);
    uint64_t seq      = 13;
    uint32_t recorded = 0;

    for (; recorded < 4; seq++) {
        ASSERT_TRUE(seq < 13 + 50);
        recorded += strstr(go(fake, seq, 1, 2 + (uint32_t)(seq % 8)), "recorded:") != NULL;
    }
    for (uint32_t i = 0; i < 100; i++, seq += 2) {
        const char *calls = go(fake, seq, 1, 2 + i % 10);

        ASSERT_TRUE(strstr(calls, "recorded:") == NULL);
        ASSERT_CONTAINS(calls, "replay:0:");
        calls = go(fake, seq + 1, 1, 2 + i % 10);
        ASSERT_TRUE(strncmp(calls, "replay:0:", strlen("replay:0:")) == 0);
    }
    fake_destroy(fake);
}

TEST(a_change_that_the_device_refuses_ends_in_a_recording)
{
    struct fake *fake = world(8);

    (void)go(fake, 13, 1, 2);
    fake->refuse = "changed"; /* not as many launches as before, say: the exec is spoiled */
    ASSERT_CONTAINS(go_with(fake, 14, 1, 2, 3, 5.0), "recorded:1! replay:0:1 signal:0:14");
    fake->refuse = NULL;
    /* That one is not tried again, and there is room for another. */
    ASSERT_CONTAINS(go(fake, 15, 1, 2), "recorded:2 replay:0:2 signal:0:15");
    ASSERT_STR(go_with(fake, 16, 1, 2, 3, 5.0), "replay:0:1 signal:0:16");
    fake_destroy(fake);
}

TEST(a_device_that_changes_nothing_records)
{
    struct fake *fake = world(8);

    fake->changes = false;
    (void)go(fake, 13, 1, 2);
    ASSERT_CONTAINS(go_with(fake, 14, 1, 2, 3, 5.0), "recorded:2 replay:0:2 signal:0:14");
    ASSERT_STR(go(fake, 15, 1, 2), "replay:0:1 signal:0:15");
    fake_destroy(fake);
}

/* `slot` is made when device 0 has published `peer_seq`, and the graph, which is sent at once, reads it. */
static const char *go_after_peer(struct fake *fake, uint64_t seq, uint32_t slot,
                                 uint64_t peer_seq)
{
    struct fake_launch launch;

    fake_launch_init(&launch, seq, PLASMON__V1__LAUNCH_KIND__LAUNCH_RUN);
    fake_launch_function(&launch, "fill");
    fake_launch_scalar(&launch, 1.0);
    fake_launch_fresh(&launch, slot, COUNT);
    fake_launch_after(&launch, FAKE_BASE, peer_seq);
    ASSERT_OK(fake_send(fake, &launch));
    launch_graph(fake, seq + 1, 1, slot, 0, 0);
    ASSERT_STR(fake_calls(fake), "");
    fake_peer_publish(fake, 0, peer_seq, 0);
    return fake_calls(fake);
}

static uint64_t offset_of(const struct fake *fake, uint32_t slot)
{
    return fake->tables[FAKE_US]->entries[slot].offset;
}

/*
 * Slots 20 and 22 are free in the end, and the arena would give 22's memory first; 21 and 23 keep
 * the holes apart.
 */
static struct fake *world_with_holes(void)
{
    struct fake *fake = world(8);

    for (uint32_t slot = 20; slot <= 23; slot++) {
        fake_fill(fake, slot - 7, slot, COUNT);
    }
    launch_graph(fake, 17, 1, 20, 0, 0);
    ASSERT_CONTAINS(fake_calls(fake), "recorded:1 replay:");
    for (uint32_t i = 0; i < FAKE_RUN_STREAMS; i++) {
        fake_finish(fake, i, 17);
    }
    fake_free(fake, 20);
    fake_free(fake, 22);
    return fake;
}

TEST(what_is_made_for_a_graph_is_put_where_it_was_recorded_if_that_is_free)
{
    struct fake *fake = world_with_holes();
    uint64_t recorded = offset_of(fake, 20), other = offset_of(fake, 22);
    const char *calls;

    calls = go_after_peer(fake, 18, 24, 1);
    ASSERT_EQ(offset_of(fake, 24), recorded);
    ASSERT_CONTAINS(calls, "replay:");
    ASSERT_TRUE(strstr(calls, "change") == NULL && strstr(calls, "record") == NULL);
    for (uint32_t i = 0; i < FAKE_RUN_STREAMS; i++) {
        fake_finish(fake, i, 19);
    }
    /* Somebody has that: elsewhere, and the nodes that read it are changed. */
    calls = go_after_peer(fake, 20, 25, 2);
    ASSERT_EQ(offset_of(fake, 25), other);
    ASSERT_CONTAINS(calls, "change:1 ");
    ASSERT_CONTAINS(calls, "replay:");
    fake_destroy(fake);
}

TEST_MAIN()
