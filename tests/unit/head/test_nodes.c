/*
 * Which store the head takes a hello for (machine_nodes.c): the one whose memory it names, whatever
 * was heard of earlier hellos and whichever head, process or socket it was then. And which workers
 * it takes for that store's.
 */
#include <string.h>

#include "head/machine.h"
#include "tests/harness/lone_machine.h"
#include "tests/harness/test.h"

#define MEMORY  UINT64_C(0x1111)
#define ANOTHER UINT64_C(0x2222)
#define LEASE   UINT64_C(10000)

static struct {
    struct head_machine *machine;
    struct lone_machine lone;
} world;

/* ---------------------------------------------------------------------- a machine alone */

static struct head_machine *machine_create(void)
{
    struct head_machine_config config = {.ops            = &lone_machine_ops,
                                         .user           = &world.lone,
                                         .record         = true,
                                         .digest         = true,
                                         .kept_bytes_max = 1 << 20};
    struct head_machine *machine;

    ASSERT_OK(head_machine_create(&config, &machine));
    return machine;
}

static void begin(void)
{
    struct head_settings settings = {
        .epoch = 77, .node_lease_ms = LEASE, .lineage_bytes = 1 << 20, .policy = "auto"};
    struct pl_err err;

    test_expect_log();
    world.machine = machine_create();
    ASSERT_OK(head_machine_begin(world.machine, &settings, &err));
    head_machine_tick(world.machine, 5);
}

static void end(void)
{
    head_machine_destroy(world.machine);
}

/* ----------------------------------------------------------------------- who says hello */

static plasmon_status_t store_hello(const char *socket, uint64_t memory,
                                    struct head_outcome *out, struct pl_err *err)
{
    Plasmon__V1__NodeFrame frame = PLASMON__V1__NODE_FRAME__INIT;
    Plasmon__V1__NodeHello hello = PLASMON__V1__NODE_HELLO__INIT;
    Plasmon__V1__Header header   = PLASMON__V1__HEADER__INIT;
    uint8_t bytes[512];
    struct head_input input = {.type = HEAD_INPUT_NODE_UP, .strings = {{bytes, 0}}};

    header.protocol         = WIRE_PROTOCOL;
    hello.host              = (char *)(uintptr_t) "host";
    hello.node              = (char *)(uintptr_t) "n";
    hello.store_socket      = (char *)(uintptr_t)socket;
    hello.devices           = 1;
    hello.memory            = memory;
    frame.header            = &header;
    frame.hello             = &hello;
    input.strings[0].length = plasmon__v1__node_frame__pack(&frame, bytes);
    *out                    = (struct head_outcome){0};
    return head_machine_input(world.machine, &input, out, err);
}

static plasmon_status_t worker_hello(uint64_t memory, uint32_t incarnation,
                                     struct head_outcome *out, struct pl_err *err)
{
    Plasmon__V1__WorkerFrame frame = PLASMON__V1__WORKER_FRAME__INIT;
    Plasmon__V1__WorkerHello hello = PLASMON__V1__WORKER_HELLO__INIT;
    Plasmon__V1__Header header     = PLASMON__V1__HEADER__INIT;
    uint8_t bytes[512];
    struct head_input input = {.type = HEAD_INPUT_WORKER_UP, .strings = {{bytes, 0}}};

    header.protocol         = WIRE_PROTOCOL;
    hello.host              = (char *)(uintptr_t) "host";
    hello.node              = (char *)(uintptr_t) "n";
    hello.kind              = 1;
    hello.bytes_total       = 1 << 20;
    hello.incarnation       = incarnation;
    hello.memory            = memory;
    frame.header            = &header;
    frame.hello             = &hello;
    input.strings[0].length = plasmon__v1__worker_frame__pack(&frame, bytes);
    *out                    = (struct head_outcome){0};
    return head_machine_input(world.machine, &input, out, err);
}

static void store_lost(void)
{
    struct head_input input = {
        .type = HEAD_INPUT_NODE_LOST, .numbers = {6}, .strings = {head_string("host")}};
    struct pl_err err;

    ASSERT_OK(head_machine_input(world.machine, &input, NULL, &err));
}

/* ------------------------------------------------------------------------------- claims */

/* No session has ever come to it: neither it nor the one that takes over what it had can show one. */
TEST(a_store_whose_first_welcome_was_lost_is_the_one_that_comes_back)
{
    struct head_outcome first, worker, again;
    struct pl_err err = {0};

    begin();
    ASSERT_OK(store_hello("/a", MEMORY, &first, &err));
    ASSERT_TRUE(!first.resumed);
    ASSERT_OK(worker_hello(MEMORY, 1, &worker, &err));
    store_lost();
    /* another process, another socket */
    ASSERT_OK(store_hello("/b", MEMORY, &again, &err));
    ASSERT_TRUE(again.resumed);
    ASSERT_EQ(again.session, first.session);
    ASSERT_STR(head_machine_store_socket(world.machine, "host"), "/b");
    ASSERT_EQ(world.lone.nodes_gone + world.lone.workers_gone, 0);
    ASSERT_OK(worker_hello(MEMORY, 2, &again, &err));
    ASSERT_EQ(again.device, worker.device);
    end();
}

TEST(another_memory_is_another_store_even_at_the_same_socket)
{
    struct head_outcome first, worker, again;
    struct pl_err err = {0};

    begin();
    ASSERT_OK(store_hello("/a", MEMORY, &first, &err));
    ASSERT_OK(worker_hello(MEMORY, 1, &worker, &err));
    /* before anybody saw the first die */
    ASSERT_OK(store_hello("/a", ANOTHER, &again, &err));
    ASSERT_TRUE(!again.resumed);
    ASSERT_TRUE(again.session != first.session);
    ASSERT_EQ(world.lone.nodes_gone, 1);
    ASSERT_EQ(world.lone.workers_gone, 1);
    ASSERT_OK(worker_hello(ANOTHER, 1, &again, &err));
    ASSERT_TRUE(again.device != worker.device);
    end();
}

/* A client with a task that makes a value of 16 bytes. */
static void client_with_a_task(void)
{
    Plasmon__V1__ClientFrame frame = PLASMON__V1__CLIENT_FRAME__INIT;
    Plasmon__V1__Header header     = PLASMON__V1__HEADER__INIT;
    Plasmon__V1__Hello hello       = PLASMON__V1__HELLO__INIT;
    Plasmon__V1__Task task         = PLASMON__V1__TASK__INIT;
    Plasmon__V1__Task *tasks[1]    = {&task};
    Plasmon__V1__Arg arg           = PLASMON__V1__ARG__INIT;
    Plasmon__V1__Arg *args[1]      = {&arg};
    Plasmon__V1__Shape shape       = PLASMON__V1__SHAPE__INIT;
    uint64_t dim                   = 4;
    uint8_t bytes[512];
    struct head_input input     = {.type = HEAD_INPUT_CLIENT_OPEN, .strings = {{bytes, 0}}};
    struct head_outcome outcome = {0};
    struct pl_err err           = {0};

    header.protocol    = WIRE_PROTOCOL;
    hello.protocol_min = hello.protocol_max = WIRE_PROTOCOL;
    hello.label                             = (char *)(uintptr_t) "c";
    hello.host                              = (char *)(uintptr_t) "host";
    frame.header                            = &header;
    frame.hello                             = &hello;
    input.strings[0].length = plasmon__v1__client_frame__pack(&frame, bytes);
    ASSERT_OK(head_machine_input(world.machine, &input, &outcome, &err));

    shape.dtype             = PL_F32;
    shape.n_dim             = 1;
    shape.dim               = &dim;
    arg.mode                = PLASMON__V1__MODE__MODE_OUT;
    arg.ref                 = 1;
    arg.shape               = &shape;
    task.id                 = 1;
    task.function           = pl_hash_name("touch");
    task.args               = args;
    task.n_args             = 1;
    header.session          = outcome.session;
    header.seq              = 1;
    frame.hello             = NULL;
    frame.tasks             = tasks;
    frame.n_tasks           = 1;
    input.type              = HEAD_INPUT_CLIENT_FRAME;
    input.numbers[0]        = outcome.session;
    input.strings[0].length = plasmon__v1__client_frame__pack(&frame, bytes);
    ASSERT_OK(head_machine_input(world.machine, &input, &outcome, &err));
    head_machine_flush(world.machine);
}

static uint64_t unfinished(struct head_machine *machine)
{
    struct head_core_counts counts;

    head_core_count(head_machine_core(machine), &counts);
    return counts.tasks;
}

/*
 * All devices there are: what they were to do waits for the store that comes, in this head and in
 * the next one.
 */
TEST(the_next_store_of_the_only_host_gets_what_the_last_one_took_along)
{
    struct head_outcome outcome, worker;
    struct head_machine *other;
    const uint8_t *bytes;
    struct pl_err err = {0};
    size_t length;

    begin();
    ASSERT_OK(store_hello("/a", MEMORY, &outcome, &err));
    ASSERT_OK(worker_hello(MEMORY, 1, &worker, &err));
    client_with_a_task();
    store_lost();
    head_machine_tick(world.machine, 6 + LEASE);
    ASSERT_EQ(world.lone.nodes_gone, 1);
    ASSERT_EQ(unfinished(world.machine), 1);
    ASSERT_OK(store_hello("/a", ANOTHER, &outcome, &err));
    ASSERT_TRUE(!outcome.resumed);
    ASSERT_OK(worker_hello(ANOTHER, 1, &outcome, &err));
    ASSERT_EQ(outcome.device, worker.device + 1);
    head_machine_flush(world.machine);
    ASSERT_EQ(unfinished(world.machine), 1);

    other = machine_create();
    ASSERT_TRUE(head_machine_batch_take(world.machine, &bytes, &length));
    ASSERT_OK(head_machine_replay(other, bytes, length, &err));
    ASSERT_EQ(head_machine_digest(other), head_machine_digest(world.machine));
    ASSERT_EQ(unfinished(other), 1);
    head_machine_destroy(other);
    end();
}

TEST(another_memory_beside_a_store_that_is_there_is_refused)
{
    struct head_outcome out;
    struct pl_err err = {0};

    begin();
    ASSERT_OK(store_hello("/a", MEMORY, &out, &err));
    ASSERT_STATUS(store_hello("/b", ANOTHER, &out, &err), PLASMON_EEXIST);
    ASSERT_EQ(world.lone.nodes_gone, 0);
    ASSERT_TRUE(head_machine_memory_known(world.machine, "host", MEMORY));
    ASSERT_TRUE(!head_machine_memory_known(world.machine, "host", ANOTHER));
    end();
}

TEST(a_store_that_was_given_up_comes_back_as_a_fresh_one)
{
    struct head_outcome first, again;
    struct pl_err err = {0};

    begin();
    ASSERT_OK(store_hello("/a", MEMORY, &first, &err));
    store_lost();
    head_machine_tick(world.machine, 6 + LEASE);
    ASSERT_EQ(world.lone.nodes_gone, 1);
    ASSERT_OK(store_hello("/a", MEMORY, &again, &err));
    ASSERT_TRUE(!again.resumed);
    ASSERT_TRUE(again.session != first.session);
    end();
}

static struct head_asked asked;

static Plasmon__V1__ListReply list_nodes(struct wire_arena *arena, const char *label)
{
    Plasmon__V1__ListRequest request = PLASMON__V1__LIST_REQUEST__INIT;
    Plasmon__V1__ListReply reply     = PLASMON__V1__LIST_REPLY__INIT;

    request.kind  = PLASMON__V1__LIST_KIND__LIST_NODES;
    request.label = (char *)(uintptr_t)label;
    wire_arena_reset(arena);
    ASSERT_OK(
        head_machine_list_nodes(world.machine, &request, &asked, false, arena, &reply));
    return reply;
}

TEST(a_listing_says_whether_a_store_is_there_and_when_it_is_given_up)
{
    struct head_outcome out;
    struct pl_err err = {0};
    struct wire_arena arena;
    Plasmon__V1__ListReply reply;

    begin();
    ASSERT_OK(wire_arena_init(&arena, 1 << 20));
    ASSERT_EQ(list_nodes(&arena, "").n_nodes, 0);
    ASSERT_OK(store_hello("/a", MEMORY, &out, &err));
    ASSERT_OK(worker_hello(MEMORY, 1, &out, &err));
    head_machine_tick(world.machine, 5);
    reply = list_nodes(&arena, "");
    ASSERT_EQ(reply.n_nodes, 1);
    ASSERT_NULL(reply.next);
    ASSERT_TRUE(reply.nodes[0]->connected);
    ASSERT_EQ(reply.nodes[0]->devices_up, 1);
    ASSERT_EQ(reply.nodes[0]->lease_ms, LEASE);
    ASSERT_STR(reply.nodes[0]->host, "host");
    ASSERT_EQ(list_nodes(&arena, "another name").n_nodes, 0);
    store_lost();
    head_machine_tick(world.machine, 5 + LEASE / 2);
    reply = list_nodes(&arena, "");
    ASSERT_EQ(reply.n_nodes, 1);
    ASSERT_TRUE(!reply.nodes[0]->connected);
    ASSERT_TRUE(reply.nodes[0]->away_ms > 0 && reply.nodes[0]->away_ms < LEASE);
    wire_arena_finish(&arena);
    end();
}

TEST(a_store_that_does_not_answer_is_silent_until_it_does)
{
    struct head_outcome out;
    struct pl_err err = {0};
    struct wire_arena arena;

    begin();
    ASSERT_OK(wire_arena_init(&arena, 1 << 20));
    ASSERT_OK(store_hello("/a", MEMORY, &out, &err));
    ASSERT_TRUE(!head_machine_node_heard(world.machine, "host", 0, 100));
    asked = (struct head_asked){.request = 7, .now_ms = 1100};
    ASSERT_EQ(list_nodes(&arena, "").nodes[0]->silent_ms, 1000);
    ASSERT_TRUE(head_machine_node_heard(world.machine, "host", 7, 1200));
    ASSERT_TRUE(!head_machine_node_heard(world.machine, "host", 7, 1200));
    ASSERT_EQ(list_nodes(&arena, "").nodes[0]->silent_ms, 0);
    asked.request = 8;
    ASSERT_TRUE(list_nodes(&arena, "").nodes[0]->silent_ms > 0);
    store_lost(); /* then it is away, and nobody waits for its answer */
    ASSERT_EQ(list_nodes(&arena, "").nodes[0]->silent_ms, 0);
    ASSERT_TRUE(!head_machine_node_heard(world.machine, "another", 9, 1300));
    asked = (struct head_asked){0};
    wire_arena_finish(&arena);
    end();
}

TEST(a_node_that_left_is_listed_for_an_hour_or_until_its_host_has_a_store_again)
{
    struct head_outcome out;
    struct pl_err err = {0};
    struct wire_arena arena;
    Plasmon__V1__ListReply reply;

    begin();
    ASSERT_OK(wire_arena_init(&arena, 1 << 20));
    ASSERT_OK(store_hello("/a", MEMORY, &out, &err));
    ASSERT_OK(worker_hello(MEMORY, 1, &out, &err));
    store_lost();
    head_machine_tick(world.machine, 6 + LEASE);
    head_machine_tick(world.machine, 60 + LEASE);
    reply = list_nodes(&arena, "");
    ASSERT_EQ(reply.n_nodes, 1);
    ASSERT_TRUE(reply.nodes[0]->gone);
    ASSERT_EQ(reply.nodes[0]->away_ms, 54);
    ASSERT_EQ(reply.nodes[0]->devices, 1);
    ASSERT_EQ(reply.nodes[0]->devices_up, 0);
    ASSERT_NOT_NULL(strstr(reply.nodes[0]->why, "did not come back"));
    ASSERT_EQ(list_nodes(&arena, "another name").n_nodes, 0);

    ASSERT_OK(store_hello("/a", ANOTHER, &out, &err));
    reply = list_nodes(&arena, "");
    ASSERT_EQ(reply.n_nodes, 1);
    ASSERT_TRUE(!reply.nodes[0]->gone);
    store_lost();
    head_machine_tick(world.machine, 100 + 2 * LEASE);
    ASSERT_TRUE(list_nodes(&arena, "").nodes[0]->gone);
    head_machine_tick(world.machine, 100 + 2 * LEASE + 3600000);
    ASSERT_EQ(list_nodes(&arena, "").n_nodes, 0);
    wire_arena_finish(&arena);
    end();
}

/* Its incarnation may be that of a worker that is there: they count from 1 in each memory. */
TEST(a_worker_of_another_memory_is_refused_and_the_one_that_is_there_stays)
{
    struct head_outcome worker, again;
    struct pl_err err = {0};

    begin();
    ASSERT_OK(store_hello("/a", MEMORY, &again, &err));
    ASSERT_OK(worker_hello(MEMORY, 1, &worker, &err));
    for (uint32_t incarnation = 1; incarnation < 4; incarnation++) {
        ASSERT_STATUS(worker_hello(ANOTHER, incarnation, &again, &err), PLASMON_EHEADLOST);
        ASSERT_NOT_NULL(strstr(err.text, "0000000000002222"));
    }
    ASSERT_EQ(world.lone.workers_gone, 0);
    ASSERT_OK(worker_hello(MEMORY, 1, &again, &err));
    ASSERT_EQ(again.device, worker.device);
    end();
}

TEST(who_does_not_say_which_memory_it_has_is_of_an_older_release)
{
    struct head_outcome out;
    struct pl_err err = {0};

    begin();
    ASSERT_STATUS(store_hello("/a", 0, &out, &err), PLASMON_EVERSION);
    ASSERT_NOT_NULL(strstr(err.text, "of one release"));
    ASSERT_OK(store_hello("/a", MEMORY, &out, &err));
    ASSERT_STATUS(worker_hello(0, 1, &out, &err), PLASMON_EVERSION);
    end();
}

static const uint8_t *checkpoint(size_t *out_length)
{
    const char *why = NULL;
    const uint8_t *bytes;

    head_machine_flush(world.machine);
    (void)head_machine_batch_take(world.machine, &bytes, out_length);
    bytes = head_machine_checkpoint(world.machine, out_length, &why);
    if (bytes == NULL) {
        test_fail(__FILE__, __LINE__, "%s", why);
    }
    return bytes;
}

/* By its records and by a checkpoint. */
TEST(the_next_head_knows_a_store_by_its_memory)
{
    const struct head_input restarted = {.type    = HEAD_INPUT_RESTART,
                                         .numbers = {100, 1000}};
    struct head_machine *first, *other;
    struct head_outcome before, out;
    struct pl_err err = {0};
    const uint8_t *bytes;
    size_t length;

    for (int by_checkpoint = 0; by_checkpoint < 2; by_checkpoint++) {
        begin();
        first = world.machine;
        other = machine_create();
        ASSERT_OK(store_hello("/a", MEMORY, &before, &err));
        if (by_checkpoint) {
            bytes = checkpoint(&length);
            ASSERT_OK(head_machine_load(other, bytes, length, &err));
        } else {
            ASSERT_TRUE(head_machine_batch_take(first, &bytes, &length));
            ASSERT_OK(head_machine_replay(other, bytes, length, &err));
        }
        ASSERT_OK(head_machine_input(other, &restarted, NULL, &err));
        world.machine = other;
        ASSERT_STATUS(worker_hello(ANOTHER, 1, &out, &err), PLASMON_EHEADLOST);
        ASSERT_OK(store_hello("/a", MEMORY, &out, &err));
        ASSERT_TRUE(out.resumed);
        ASSERT_EQ(out.session, before.session);
        ASSERT_EQ(world.lone.nodes_gone, 0);
        head_machine_destroy(first);
        end();
    }
}

/* Its hello was on its way when it died, and came to a head that was made again, or to this one. */
TEST(a_worker_that_its_store_saw_end_is_not_welcomed)
{
    const struct head_input down = {
        .type    = HEAD_INPUT_WORKER_DOWN,
        .numbers = {0, 1},
        .strings = {head_string("host"), head_string("killed by signal 9")}};
    struct head_machine *first, *other;
    struct head_outcome worker, out;
    struct pl_err err = {0};
    const uint8_t *bytes;
    const char *why;
    size_t length;

    begin();
    first = world.machine;
    other = machine_create();
    ASSERT_OK(store_hello("/a", MEMORY, &out, &err));
    ASSERT_OK(worker_hello(MEMORY, 1, &worker, &err));
    ASSERT_OK(worker_hello(MEMORY, 1, &out, &err)); /* it lives */
    ASSERT_OK(head_machine_input(first, &down, NULL, &err));
    ASSERT_STATUS(worker_hello(MEMORY, 1, &out, &err), PLASMON_EEXIST);
    ASSERT_CONTAINS(err.text, "incarnation 1 of device 0 is over");
    head_machine_flush(first);
    ASSERT_NULL(head_machine_checkpoint(first, &length, &why)); /* which does not have it */
    ASSERT_TRUE(head_machine_batch_take(first, &bytes, &length));
    ASSERT_OK(head_machine_replay(other, bytes, length, &err));
    world.machine = other;
    ASSERT_STATUS(worker_hello(MEMORY, 1, &out, &err), PLASMON_EEXIST);
    ASSERT_OK(worker_hello(MEMORY, 2, &out, &err));
    ASSERT_EQ(out.device, worker.device);
    head_machine_destroy(first);
    end();
}

TEST(nodes_that_left_are_remembered_by_who_goes_on_from_a_checkpoint)
{
    struct head_machine *first, *other;
    struct head_outcome out;
    struct pl_err err = {0};
    struct wire_arena arena;
    Plasmon__V1__ListReply reply;
    const uint8_t *bytes;
    size_t length;

    begin();
    ASSERT_OK(wire_arena_init(&arena, 1 << 20));
    ASSERT_OK(store_hello("/a", MEMORY, &out, &err));
    store_lost();
    head_machine_tick(world.machine, 6 + LEASE);
    bytes = checkpoint(&length);
    first = world.machine;
    other = machine_create();
    ASSERT_OK(head_machine_load(other, bytes, length, &err));
    world.machine = other;
    reply         = list_nodes(&arena, "");
    ASSERT_EQ(reply.n_nodes, 1);
    ASSERT_TRUE(reply.nodes[0]->gone);
    ASSERT_STR(reply.nodes[0]->name, "n");
    ASSERT_NOT_NULL(strstr(reply.nodes[0]->why, "did not come back"));
    head_machine_destroy(first);
    wire_arena_finish(&arena);
    end();
}

/* Nothing in it says which memory its stores have. */
TEST(a_journal_of_the_format_before_is_refused_with_the_remedy)
{
    struct head_machine *other = machine_create();
    struct head_outcome out;
    struct pl_err err = {0};
    const uint8_t *bytes;
    uint8_t *older;
    size_t length;

    begin();
    ASSERT_OK(store_hello("/a", MEMORY, &out, &err));
    bytes = checkpoint(&length);
    older = pl_alloc(length);
    ASSERT_NOT_NULL(older);
    memcpy(older, bytes, length);
    older[2] = 2; /* its format */
    ASSERT_STATUS(head_machine_load(other, older, length, &err), PLASMON_EVERSION);
    ASSERT_NOT_NULL(strstr(err.text, "start the head of the release that wrote it"));
    pl_free(older);
    head_machine_destroy(other);
    end();
}

TEST_MAIN()
