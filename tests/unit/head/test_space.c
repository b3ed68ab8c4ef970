/*
 * Quotas of namespaces: what counts, what is refused, and that others are not hurt. On a head's
 * state machine alone; tasks are never done, so what is in flight stays there.
 */
#include <string.h>

#include "tests/harness/test.h"
#include "tests/unit/head/core.h"

enum { BYTES = 4000, ELEMENTS = 1000 };

/* What the sessions were told. */
struct heard {
    uint64_t failed;
    plasmon_status_t status;
    char text[1024];
    uint64_t replies;
    plasmon_status_t reply;
    char reply_text[512];
};

struct world {
    struct head_core *core;
    struct heard heard; /* of all sessions, the last one */
    struct wire_arena arena;
};

static void hear(void *user, uint64_t session, const uint8_t *body, size_t length)
{
    struct world *world = user;
    Plasmon__V1__HeadFrame *frame;
    struct pl_err err = {0};
    uint8_t *bytes;

    (void)session;
    wire_arena_reset(&world->arena);
    bytes = core_frame(&world->arena, body, &length);
    ASSERT_OK(wire_decode_head_frame(&world->arena, bytes, length, &frame, &err));
    for (size_t i = 0; i < frame->n_failed; i++) {
        world->heard.failed++;
        world->heard.status = (plasmon_status_t)frame->failed[i]->status;
        (void)snprintf(world->heard.text, sizeof(world->heard.text), "%s",
                       frame->failed[i]->text);
    }
    for (size_t i = 0; i < frame->n_replies; i++) {
        world->heard.replies++;
        world->heard.reply = (plasmon_status_t)frame->replies[i]->status;
        (void)snprintf(world->heard.reply_text, sizeof(world->heard.reply_text), "%s",
                       frame->replies[i]->text);
    }
    for (size_t i = 0; i < frame->n_data; i++) {
        world->heard.replies++;
        world->heard.reply = (plasmon_status_t)frame->data[i]->status;
    }
    for (size_t i = 0; i < frame->n_located; i++) {
        world->heard.replies++;
        world->heard.reply = (plasmon_status_t)frame->located[i]->status;
    }
}

static uint64_t count_up(void *user)
{
    (void)user;
    return core_count_up(NULL);
}

static const struct head_ops ops = {.client_frame   = hear,
                                    .worker_command = core_drop_command,
                                    .fence          = core_drop_fence,
                                    .session_ended  = core_drop_end,
                                    .random64       = count_up};

struct space {
    const char *name;
    struct head_quota quota;
};

static void world_init(struct world *world, const struct space *spaces, size_t count)
{
    struct head_config config = {
        .ops = &ops, .user = world, .retries = UINT32_MAX, .epoch = 1};

    memset(world, 0, sizeof(*world));
    ASSERT_OK(wire_arena_init(&world->arena, WIRE_ARENA_BYTES_MAX));
    ASSERT_OK(head_core_create(&config, &world->core));
    for (size_t i = 0; i < count; i++) {
        head_core_namespace_set(world->core, spaces[i].name, &spaces[i].quota);
    }
    head_core_tick(world->core, 1);
    core_announce(world->core, "host", 1);
    (void)core_join(world->core, "host", 0);
}

static void world_finish(struct world *world)
{
    head_core_check(world->core);
    head_core_destroy(world->core);
    wire_arena_finish(&world->arena);
}

static plasmon_status_t open_in(struct world *world, const char *name,
                                uint64_t *out_session, struct pl_err *err)
{
    Plasmon__V1__Hello hello = PLASMON__V1__HELLO__INIT;

    hello.protocol_min = hello.protocol_max = WIRE_PROTOCOL;
    hello.namespace_                        = (char *)(uintptr_t)name;
    return head_core_client_open(world->core, &hello, out_session, err);
}

static uint64_t session_in(struct world *world, const char *name)
{
    struct pl_err err = {0};
    uint64_t session;

    if (open_in(world, name, &session, &err) != PLASMON_OK) {
        test_fail(__FILE__, __LINE__, "%s", err.text);
    }
    return session;
}

static void send(struct world *world, uint64_t session,
                 const Plasmon__V1__ClientFrame *frame)
{
    struct pl_err err = {0};

    if (head_core_client_frame(world->core, session, frame, &err) != PLASMON_OK) {
        test_fail(__FILE__, __LINE__, "%s", err.text);
    }
    head_core_flush(world->core);
    head_core_check(world->core);
}

/* One call with one argument, and with it the ref `made` if the mode makes one. */
static void call(struct world *world, uint64_t session, uint64_t id, uint32_t mode,
                 uint64_t ref, bool fresh)
{
    Plasmon__V1__ClientFrame frame = PLASMON__V1__CLIENT_FRAME__INIT;
    Plasmon__V1__Task task = PLASMON__V1__TASK__INIT, *tasks[1] = {&task};
    Plasmon__V1__Arg arg = PLASMON__V1__ARG__INIT, *args[1] = {&arg};
    Plasmon__V1__Shape shape = PLASMON__V1__SHAPE__INIT;
    uint64_t dim[1]          = {ELEMENTS};

    shape.dtype   = PL_F32;
    shape.n_dim   = 1;
    shape.dim     = dim;
    arg.mode      = mode;
    arg.ref       = ref;
    arg.shape     = fresh ? &shape : NULL;
    task.id       = id;
    task.function = pl_hash_name("fill");
    task.args     = args;
    task.n_args   = 1;
    frame.tasks   = tasks;
    frame.n_tasks = 1;
    send(world, session, &frame);
}

static void make(struct world *world, uint64_t session, uint64_t id)
{
    call(world, session, id, PLASMON__V1__MODE__MODE_OUT, id + 100, true);
}

static void release(struct world *world, uint64_t session, uint64_t ref)
{
    Plasmon__V1__ClientFrame frame = PLASMON__V1__CLIENT_FRAME__INIT;
    Plasmon__V1__Range range = PLASMON__V1__RANGE__INIT, *ranges[1] = {&range};

    range.first     = ref;
    range.count     = 1;
    frame.release   = ranges;
    frame.n_release = 1;
    send(world, session, &frame);
}

static void snapshot(struct world *world, uint64_t session, uint64_t id, uint64_t from,
                     uint64_t to)
{
    Plasmon__V1__ClientFrame frame = PLASMON__V1__CLIENT_FRAME__INIT;
    Plasmon__V1__Task task = PLASMON__V1__TASK__INIT, *tasks[1] = {&task};
    Plasmon__V1__Arg arg[2]   = {PLASMON__V1__ARG__INIT, PLASMON__V1__ARG__INIT};
    Plasmon__V1__Arg *args[2] = {&arg[0], &arg[1]};

    arg[0].mode   = PLASMON__V1__MODE__MODE_IN;
    arg[0].ref    = from;
    arg[1].mode   = PLASMON__V1__MODE__MODE_OUT;
    arg[1].ref    = to;
    task.id       = id;
    task.kind     = PLASMON__V1__TASK_KIND__TASK_SNAPSHOT;
    task.args     = args;
    task.n_args   = 2;
    frame.tasks   = tasks;
    frame.n_tasks = 1;
    send(world, session, &frame);
}

static Plasmon__V1__NamespaceStats stats_of(struct world *world, const char *name)
{
    Plasmon__V1__StatusReply reply = PLASMON__V1__STATUS_REPLY__INIT;
    struct wire_arena arena;
    Plasmon__V1__NamespaceStats stats;

    ASSERT_OK(wire_arena_init(&arena, WIRE_ARENA_BYTES_MAX));
    ASSERT_OK(head_core_status_namespaces(world->core, name, &arena, &reply));
    ASSERT_EQ(reply.n_namespaces, 1);
    stats = *reply.namespaces[0];
    wire_arena_finish(&arena);
    return stats;
}

static const struct space two_arrays[] = {
    {.name = "a", .quota = {.bytes = 2 * BYTES + 100}}};

TEST(what_goes_over_the_bytes_is_refused_and_what_is_released_may_be_had_again)
{
    struct world world;
    uint64_t a, other;

    world_init(&world, two_arrays, 1);
    a     = session_in(&world, "a");
    other = session_in(&world, "");
    make(&world, a, 1);
    make(&world, a, 2);
    ASSERT_EQ(world.heard.failed, 0);
    ASSERT_EQ(stats_of(&world, "a").bytes, 2 * BYTES);
    make(&world, a, 3);
    ASSERT_EQ(world.heard.failed, 1);
    ASSERT_EQ(world.heard.status, PLASMON_EQUOTA);
    ASSERT_CONTAINS(world.heard.text, "namespace 'a' uses 7.8 KiB of its quota of 7.9 KiB");
    ASSERT_CONTAINS(world.heard.text, "device_bytes");
    ASSERT_EQ(stats_of(&world, "a").bytes, 2 * BYTES); /* what was refused costs nothing */
    ASSERT_EQ(stats_of(&world, "a").refused, 1);
    for (uint64_t id = 1; id <= 5; id++) { /* others have no quota */
        make(&world, other, id);
    }
    ASSERT_EQ(world.heard.failed, 1);
    release(&world, a, 101);
    ASSERT_EQ(stats_of(&world, "a").bytes, BYTES); /* though its task is still in flight */
    make(&world, a, 4);
    ASSERT_EQ(world.heard.failed, 1);
    world_finish(&world);
}

TEST(content_that_several_versions_show_counts_once)
{
    struct world world;
    uint64_t a;

    world_init(&world, two_arrays, 1);
    a = session_in(&world, "a");
    make(&world, a, 1);
    for (uint64_t i = 0; i < 10; i++) {
        snapshot(&world, a, 10 + i, 101, 200 + i);
    }
    ASSERT_EQ(stats_of(&world, "a").bytes, BYTES);
    call(&world, a, 30, PLASMON__V1__MODE__MODE_INOUT, 101, false); /* now there are two */
    ASSERT_EQ(world.heard.failed, 0);
    ASSERT_EQ(stats_of(&world, "a").bytes, 2 * BYTES);
    call(&world, a, 31, PLASMON__V1__MODE__MODE_INOUT, 101, false); /* in place */
    ASSERT_EQ(world.heard.failed, 0);
    ASSERT_EQ(stats_of(&world, "a").bytes, 2 * BYTES);
    snapshot(&world, a, 32, 101, 300);
    call(&world, a, 33, PLASMON__V1__MODE__MODE_INOUT, 101, false); /* three would be */
    ASSERT_EQ(world.heard.failed, 1);
    ASSERT_EQ(world.heard.status, PLASMON_EQUOTA);
    for (uint64_t i = 0; i < 10; i++) {
        release(&world, a, 200 + i);
    }
    release(&world, a, 300);
    release(&world, a, 101);
    ASSERT_EQ(stats_of(&world, "a").bytes, 0);
    world_finish(&world);
}

TEST(a_session_that_ends_leaves_nothing_but_its_names)
{
    struct world world;
    uint64_t a, again;
    Plasmon__V1__ClientFrame frame = PLASMON__V1__CLIENT_FRAME__INIT;
    Plasmon__V1__Publish publish = PLASMON__V1__PUBLISH__INIT, *publishes[1] = {&publish};
    Plasmon__V1__Lookup lookup = PLASMON__V1__LOOKUP__INIT, *lookups[1] = {&lookup};

    world_init(&world, two_arrays, 1);
    a = session_in(&world, "a");
    make(&world, a, 1);
    make(&world, a, 2);
    publish.request = 7;
    publish.ref     = 101;
    publish.name    = (char *)(uintptr_t) "x";
    frame.publish   = publishes;
    frame.n_publish = 1;
    send(&world, a, &frame);
    ASSERT_EQ(stats_of(&world, "a").tasks, 2);
    head_core_client_close(world.core, a);
    head_core_check(world.core);
    ASSERT_EQ(stats_of(&world, "a").bytes, BYTES);
    ASSERT_EQ(stats_of(&world, "a").tasks, 0);
    ASSERT_EQ(stats_of(&world, "a").sessions, 0);

    frame          = (Plasmon__V1__ClientFrame)PLASMON__V1__CLIENT_FRAME__INIT;
    lookup.request = 8;
    lookup.name    = publish.name;
    lookup.new_ref = 500;
    frame.lookup   = lookups;
    frame.n_lookup = 1;
    again          = session_in(&world, "");
    send(&world, again, &frame); /* it is another namespace */
    ASSERT_EQ(world.heard.reply, PLASMON_ENOENT);
    again = session_in(&world, "a");
    send(&world, again, &frame);
    ASSERT_EQ(world.heard.reply, PLASMON_OK);
    ASSERT_EQ(stats_of(&world, "a").bytes, BYTES);
    world_finish(&world);
}

TEST(one_is_told_as_one)
{
    static const struct space few[] = {{.name = "a", .quota = {.tasks = 1, .sessions = 1}}};
    struct world world;
    uint64_t a, unused;
    struct pl_err err = {0};

    world_init(&world, few, 1);
    a = session_in(&world, "a");
    ASSERT_STATUS(open_in(&world, "a", &unused, &err), PLASMON_EQUOTA);
    ASSERT_CONTAINS(err.text, "namespace 'a' has 1 session, its quota");
    make(&world, a, 1);
    make(&world, a, 2);
    ASSERT_EQ(world.heard.status, PLASMON_EQUOTA);
    ASSERT_CONTAINS(world.heard.text, "1 task in flight, its quota");
    world_finish(&world);
}

TEST(tasks_sessions_and_messages_have_quotas_too)
{
    static const struct space few[] = {
        {.name = "a", .quota = {.tasks = 3, .sessions = 2, .message_bytes = 8192}}};
    struct world world;
    uint64_t a, unused;
    struct pl_err err = {0};

    world_init(&world, few, 1);
    a = session_in(&world, "a");
    (void)session_in(&world, "a");
    ASSERT_STATUS(open_in(&world, "a", &unused, &err), PLASMON_EQUOTA);
    ASSERT_CONTAINS(err.text, "namespace 'a' has 2 sessions, its quota");
    ASSERT_STATUS(open_in(&world, "b", &unused, &err), PLASMON_ENOENT);
    ASSERT_CONTAINS(err.text, "--namespaces");

    for (uint64_t id = 1; id <= 3; id++) {
        make(&world, a, id);
    }
    ASSERT_EQ(world.heard.failed, 0);
    make(&world, a, 4);
    ASSERT_EQ(world.heard.status, PLASMON_EQUOTA);
    ASSERT_CONTAINS(world.heard.text, "3 tasks in flight, its quota");
    ASSERT_EQ(stats_of(&world, "a").tasks, 3);

    ASSERT_OK(head_core_client_message(world.core, a, 64 << 10, &err));
    ASSERT_STATUS(head_core_client_message(world.core, a, 4 << 20, &err), PLASMON_EQUOTA);
    ASSERT_CONTAINS(err.text, "may send 8.0 KiB in a message");
    world_finish(&world);
}

static void put(struct world *world, uint64_t session, uint64_t id, uint64_t floats)
{
    static uint8_t bytes[16 << 10];
    Plasmon__V1__ClientFrame frame = PLASMON__V1__CLIENT_FRAME__INIT;
    Plasmon__V1__Task task = PLASMON__V1__TASK__INIT, *tasks[1] = {&task};
    Plasmon__V1__Arg arg = PLASMON__V1__ARG__INIT, *args[1] = {&arg};
    Plasmon__V1__Shape shape = PLASMON__V1__SHAPE__INIT;

    ASSERT_TRUE(4 * floats <= sizeof(bytes));
    shape.dtype    = PL_F32;
    shape.n_dim    = 1;
    shape.dim      = &floats;
    arg.mode       = PLASMON__V1__MODE__MODE_OUT;
    arg.ref        = id + 100;
    arg.shape      = &shape;
    task.id        = id;
    task.kind      = PLASMON__V1__TASK_KIND__TASK_PUT;
    task.args      = args;
    task.n_args    = 1;
    task.data.data = bytes;
    task.data.len  = 4 * floats;
    frame.tasks    = tasks;
    frame.n_tasks  = 1;
    send(world, session, &frame);
}

TEST(who_uses_a_put_that_was_too_large_for_a_message_is_told_that)
{
    static const struct space few[] = {{.name = "a", .quota = {.message_bytes = 8192}}};
    struct world world;
    uint64_t a;

    world_init(&world, few, 1);
    a = session_in(&world, "a");
    put(&world, a, 1, 2048);
    ASSERT_EQ(world.heard.failed, 0);
    put(&world, a, 2, 2049);
    ASSERT_EQ(world.heard.status, PLASMON_EQUOTA);
    call(&world, a, 3, PLASMON__V1__MODE__MODE_IN, 102, false);
    ASSERT_EQ(world.heard.failed, 2);
    ASSERT_EQ(world.heard.status, PLASMON_EDEPENDENCY);
    ASSERT_CONTAINS(world.heard.text, "may send 8.0 KiB in a message");
    ASSERT_EQ(stats_of(&world, "a").bytes, 8192); /* what has failed is not charged */
    world_finish(&world);
}

static void expect_reply(struct world *world, uint64_t session,
                         const Plasmon__V1__ClientFrame *frame, plasmon_status_t status)
{
    uint64_t before = world->heard.replies;

    send(world, session, frame);
    ASSERT_EQ(world->heard.replies, before + 1);
    ASSERT_EQ(world->heard.reply, status);
}

TEST(a_ref_of_another_namespace_is_refused_in_every_use)
{
    struct world world;
    uint64_t a, b;
    Plasmon__V1__ClientFrame frame;
    Plasmon__V1__Locate locate = PLASMON__V1__LOCATE__INIT, *locates[1] = {&locate};
    Plasmon__V1__Read read = PLASMON__V1__READ__INIT, *reads[1] = {&read};
    Plasmon__V1__Publish publish = PLASMON__V1__PUBLISH__INIT, *publishes[1] = {&publish};

    world_init(&world, two_arrays, 1);
    a = session_in(&world, "a");
    b = session_in(&world, "");
    make(&world, a, 1);
    for (uint32_t mode = PLASMON__V1__MODE__MODE_IN; mode <= PLASMON__V1__MODE__MODE_REDUCE;
         mode++) {
        uint64_t before = world.heard.failed;

        call(&world, b, 10 + mode, mode, 101, false);
        ASSERT_EQ(world.heard.failed, before + 1);
        ASSERT_EQ(world.heard.status, PLASMON_ERELEASED); /* it is no ref of theirs */
    }
    for (int owner = 0; owner < 2; owner++) { /* as their own, and as whose it is */
        plasmon_status_t want = owner == 0 ? PLASMON_ERELEASED : PLASMON_EFOREIGN;

        frame           = (Plasmon__V1__ClientFrame)PLASMON__V1__CLIENT_FRAME__INIT;
        locate.request  = 20 + (uint64_t)owner;
        locate.ref      = 101;
        locate.client   = owner == 0 ? 0 : 4711;
        locate.hold_ref = 900 + (uint64_t)owner;
        frame.locate    = locates;
        frame.n_locate  = 1;
        expect_reply(&world, b, &frame, want);
        frame        = (Plasmon__V1__ClientFrame)PLASMON__V1__CLIENT_FRAME__INIT;
        read.request = 30 + (uint64_t)owner;
        read.ref     = 101;
        read.client  = owner == 0 ? 0 : 4711;
        read.length  = 4;
        frame.read   = reads;
        frame.n_read = 1;
        expect_reply(&world, b, &frame, want);
    }
    frame           = (Plasmon__V1__ClientFrame)PLASMON__V1__CLIENT_FRAME__INIT;
    publish.request = 40;
    publish.ref     = 101;
    publish.name    = (char *)(uintptr_t) "mine";
    frame.publish   = publishes;
    frame.n_publish = 1;
    expect_reply(&world, b, &frame, PLASMON_ERELEASED);
    snapshot(&world, b, 50, 101, 901);
    ASSERT_EQ(world.heard.status, PLASMON_ERELEASED);
    release(&world, b, 101); /* nothing of theirs */
    ASSERT_EQ(stats_of(&world, "a").bytes, BYTES);
    world_finish(&world);
}

TEST(quotas_may_be_set_anew_and_what_is_there_stays)
{
    const struct head_quota small = {.bytes = 100};
    struct world world;
    uint64_t a, unused;
    struct pl_err err = {0};

    world_init(&world, two_arrays, 1);
    a = session_in(&world, "a");
    make(&world, a, 1);
    head_core_namespaces_clear(world.core);
    head_core_namespace_set(world.core, "b", &small);
    head_core_check(world.core);
    ASSERT_STATUS(open_in(&world, "a", &unused, &err), PLASMON_ENOENT);
    make(&world, a, 2); /* it was let in, and has no quota any more */
    make(&world, a, 3);
    ASSERT_EQ(world.heard.failed, 0);
    ASSERT_EQ(stats_of(&world, "a").bytes, 3 * BYTES);
    head_core_namespace_set(world.core, "a", &small);
    make(&world, a, 4);
    ASSERT_EQ(world.heard.failed, 1);
    ASSERT_EQ(stats_of(&world, "a").bytes, 3 * BYTES);
    world_finish(&world);
}

TEST(without_a_configuration_any_namespace_may_be_named)
{
    struct world world;

    world_init(&world, NULL, 0);
    (void)session_in(&world, "whatever");
    ASSERT_EQ(stats_of(&world, "whatever").sessions, 1);
    ASSERT_EQ(stats_of(&world, "whatever").bytes_quota, 0);
    world_finish(&world);
}

TEST_MAIN()
