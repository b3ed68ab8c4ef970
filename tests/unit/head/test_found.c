/*
 * What one client looks up while another one's tasks are yet to make it: it is told how that ends,
 * once, and it counts for nothing else.
 */
#include <stdio.h>
#include <string.h>

#include "head/checkpoint.h"
#include "head/core_int.h"
#include "tests/harness/test.h"
#include "tests/unit/head/core.h"

enum {
    PLENTY   = 1 << 20,
    ELEMENTS = 4,
    TOLD_MAX = 8,
    MADE     = 900 /* the number of what is looked up */
};

/* What a session was told. */
struct told {
    uint64_t session;
    uint64_t done[TOLD_MAX], failed[TOLD_MAX];
    uint32_t done_count, failed_count, replies;
    uint32_t frames;
    bool pending;
    plasmon_status_t status; /* of the last failure */
    char text[512];
};

static struct world {
    struct wire_arena arena;
    struct head_core *core;
    struct told maker, seeker;
} world;

static void take_frame(void *user, uint64_t session, const uint8_t *body, size_t length)
{
    struct told *told = session == world.maker.session ? &world.maker : &world.seeker;
    Plasmon__V1__HeadFrame *frame;
    struct pl_err err = {0};
    uint8_t *bytes;

    (void)user;
    wire_arena_reset(&world.arena);
    bytes = core_frame(&world.arena, body, &length);
    ASSERT_OK(wire_decode_head_frame(&world.arena, bytes, length, &frame, &err));
    told->frames++;
    for (size_t i = 0; i < frame->n_done; i++) {
        for (uint64_t id = 0; id < frame->done[i]->count; id++) {
            ASSERT_TRUE(told->done_count < TOLD_MAX);
            told->done[told->done_count++] = frame->done[i]->first + id;
        }
    }
    for (size_t i = 0; i < frame->n_failed; i++) {
        ASSERT_TRUE(told->failed_count < TOLD_MAX);
        told->failed[told->failed_count++] = frame->failed[i]->task;
        told->status                       = (plasmon_status_t)frame->failed[i]->status;
        (void)snprintf(told->text, sizeof(told->text), "%s", frame->failed[i]->text);
    }
    for (size_t i = 0; i < frame->n_replies; i++) {
        ASSERT_EQ(frame->replies[i]->status, PLASMON_OK);
        told->replies++;
        told->pending = frame->replies[i]->pending;
    }
}

static const struct head_ops ops = {.client_frame   = take_frame,
                                    .worker_command = core_drop_command,
                                    .fence          = core_drop_fence,
                                    .session_ended  = core_drop_end,
                                    .random64       = core_count_up,
                                    .spill          = core_drop_spill};

/* Two hosts with a device each, and two clients. */
static void begin(uint64_t lineage_bytes)
{
    struct head_config config = {
        .ops = &ops, .retries = UINT32_MAX, .epoch = 1, .lineage_bytes = lineage_bytes};

    memset(&world, 0, sizeof(world));
    ASSERT_OK(wire_arena_init(&world.arena, WIRE_ARENA_BYTES_MAX));
    ASSERT_OK(head_core_create(&config, &world.core));
    head_core_tick(world.core, 1);
    (void)core_join_reachable(world.core, "a", 0, 1 << 20);
    (void)core_join_reachable(world.core, "b", 0, 1 << 20);
    world.maker.session  = core_client(world.core);
    world.seeker.session = core_client(world.core);
    head_core_flush(world.core);
}

static void end(void)
{
    head_core_destroy(world.core);
    wire_arena_finish(&world.arena);
}

static void settle(void)
{
    head_core_flush(world.core);
    head_core_check(world.core);
}

static void send(const struct told *to, Plasmon__V1__ClientFrame *frame)
{
    struct pl_err err = {0};

    if (head_core_client_frame(world.core, to->session, frame, &err) != PLASMON_OK) {
        test_fail(__FILE__, __LINE__, "%s", err.text);
    }
    settle();
}

/* Ref 1: on device 0, whole (count 0) or a part of it. */
static void run(uint64_t id, uint32_t mode, int64_t first, int64_t count)
{
    Plasmon__V1__ClientFrame frame = PLASMON__V1__CLIENT_FRAME__INIT;
    Plasmon__V1__Task task = PLASMON__V1__TASK__INIT, *tasks[1] = {&task};
    Plasmon__V1__Arg arg = PLASMON__V1__ARG__INIT, *args[1] = {&arg};
    Plasmon__V1__Shape shape = PLASMON__V1__SHAPE__INIT;
    uint64_t dim             = ELEMENTS;
    int64_t view[3]          = {first, count, 1};

    shape.dtype   = PL_F32;
    shape.n_dim   = 1;
    shape.dim     = &dim;
    arg.mode      = mode;
    arg.ref       = 1;
    arg.shape     = mode == PLASMON__V1__MODE__MODE_OUT && count == 0 ? &shape : NULL;
    arg.view      = view;
    arg.n_view    = count == 0 ? 0 : 3;
    task.id       = id;
    task.place    = 1;
    task.function = pl_hash_name("touch");
    task.args     = args;
    task.n_args   = 1;
    frame.tasks   = tasks;
    frame.n_tasks = 1;
    send(&world.maker, &frame);
}

static void make(void)
{
    run(10, PLASMON__V1__MODE__MODE_OUT, 0, 0);
}

static void send_maker(Plasmon__V1__ClientFrame *frame)
{
    send(&world.maker, frame);
}

/* Of the whole array. */
static void put(uint64_t id, uint64_t offset, uint64_t bytes)
{
    core_put(id, offset, bytes, send_maker);
}

static void publish(uint64_t ref)
{
    Plasmon__V1__ClientFrame frame = PLASMON__V1__CLIENT_FRAME__INIT;
    Plasmon__V1__Publish publish = PLASMON__V1__PUBLISH__INIT, *publishes[1] = {&publish};

    publish.request = 7;
    publish.name    = (char *)(uintptr_t) "x";
    publish.ref     = ref;
    frame.publish   = publishes;
    frame.n_publish = 1;
    send(&world.maker, &frame);
}

static void look_up(uint64_t ref, uint64_t task)
{
    Plasmon__V1__ClientFrame frame = PLASMON__V1__CLIENT_FRAME__INIT;
    Plasmon__V1__Lookup lookup = PLASMON__V1__LOOKUP__INIT, *lookups[1] = {&lookup};

    lookup.request = 8;
    lookup.name    = (char *)(uintptr_t) "x";
    lookup.new_ref = ref;
    lookup.task    = task;
    frame.lookup   = lookups;
    frame.n_lookup = 1;
    send(&world.seeker, &frame);
}

static void release(const struct told *of, uint64_t ref)
{
    Plasmon__V1__ClientFrame frame = PLASMON__V1__CLIENT_FRAME__INIT;
    Plasmon__V1__Range range = PLASMON__V1__RANGE__INIT, *ranges[1] = {&range};

    range.first     = ref;
    range.count     = 1;
    frame.release   = ranges;
    frame.n_release = 1;
    send(of, &frame);
}

/* All up to there. */
static void done(uint32_t device, uint64_t seq)
{
    Plasmon__V1__WorkerFrame frame = PLASMON__V1__WORKER_FRAME__INIT;
    Plasmon__V1__Range range = PLASMON__V1__RANGE__INIT, *ranges[1] = {&range};
    struct pl_err err = {0};

    range.first  = 1;
    range.count  = seq;
    frame.done   = ranges;
    frame.n_done = 1;
    ASSERT_OK(head_core_worker_frame(world.core, device, &frame, &err));
    settle();
}

static void lose_host(void)
{
    test_expect_log();
    head_core_node_gone(world.core, "a", "it burns");
    settle();
}

static void expect_waiting(void)
{
    ASSERT_EQ(world.seeker.replies, 1);
    ASSERT_TRUE(world.seeker.pending);
    ASSERT_EQ(world.seeker.done_count + world.seeker.failed_count, 0);
}

static void expect_made(void)
{
    ASSERT_EQ(world.seeker.failed_count, 0);
    ASSERT_EQ(world.seeker.done_count, 1);
    ASSERT_EQ(world.seeker.done[0], MADE);
}

static void expect_failed(plasmon_status_t status)
{
    ASSERT_EQ(world.seeker.done_count, 0);
    ASSERT_EQ(world.seeker.failed_count, 1);
    ASSERT_EQ(world.seeker.failed[0], MADE);
    ASSERT_EQ(world.seeker.status, status);
}

TEST(what_is_there_is_told_by_the_answer_alone)
{
    begin(0);
    make();
    done(0, 1);
    publish(1);
    look_up(500, MADE);
    ASSERT_EQ(world.seeker.replies, 1);
    ASSERT_EQ(world.seeker.frames, 1);
    ASSERT_TRUE(!world.seeker.pending);
    ASSERT_EQ(world.seeker.done_count + world.seeker.failed_count, 0);
    end();
}

TEST(what_is_not_made_yet_is_told_when_it_is)
{
    begin(0);
    make();
    publish(1);
    look_up(500, MADE);
    expect_waiting();
    ASSERT_NOT_NULL(head_core_unquiet(world.core));
    done(0, 1);
    expect_made();
    ASSERT_NULL(head_core_unquiet(world.core));
    end();
}

TEST(who_does_not_ask_is_not_told)
{
    begin(0);
    make();
    publish(1);
    look_up(500, 0);
    ASSERT_TRUE(!world.seeker.pending);
    done(0, 1);
    ASSERT_EQ(world.seeker.done_count, 0);
    end();
}

TEST(it_is_no_task_of_who_looks)
{
    const struct head_client *seeker;
    uint64_t credit;

    begin(0);
    credit = head_core_client_credit(world.core, world.seeker.session);
    make();
    publish(1);
    look_up(500, MADE);
    seeker = pl_map_get(&world.core->sessions, world.seeker.session);
    ASSERT_EQ(seeker->tasks_open, 0);
    ASSERT_EQ(head_core_client_credit(world.core, world.seeker.session), credit);
    done(0, 1);
    ASSERT_EQ(head_core_client_credit(world.core, world.seeker.session), credit);
    ASSERT_EQ(world.core->tasks_done, 1);
    end();
}

TEST(what_fails_is_told_with_the_failure_of_the_task)
{
    begin(0);
    make();
    publish(1);
    look_up(500, MADE);
    core_fail(world.core, 0, 1, PLASMON_EFUNCTION, "no");
    expect_failed(PLASMON_EFUNCTION);
    ASSERT_CONTAINS(world.seeker.text, "task 10");
    ASSERT_EQ(world.maker.failed_count, 1);
    end();
}

/* Its own launch is still under way. */
TEST(what_fails_with_its_input_is_told_at_once)
{
    begin(0);
    make();
    run(11, PLASMON__V1__MODE__MODE_INOUT, 0, 0);
    publish(1);
    look_up(500, MADE);
    core_fail(world.core, 0, 1, PLASMON_EFUNCTION, "no");
    expect_failed(PLASMON_EDEPENDENCY);
    done(0, 2);
    expect_failed(PLASMON_EDEPENDENCY);
    end();
}

TEST(what_has_failed_is_told_with_the_answer)
{
    begin(0);
    make();
    publish(1);
    core_fail(world.core, 0, 1, PLASMON_EFUNCTION, "no");
    look_up(500, MADE);
    ASSERT_TRUE(world.seeker.pending);
    ASSERT_EQ(world.seeker.frames, 1);
    expect_failed(PLASMON_EFUNCTION);
    end();
}

/* A task makes it, and two more write a half of it each: launches 1, 2 and 3. */
static void look_up_of_three(void)
{
    begin(0);
    make();
    run(11, PLASMON__V1__MODE__MODE_INOUT, 0, 2);
    run(12, PLASMON__V1__MODE__MODE_INOUT, 2, 2);
    publish(1);
    look_up(500, MADE);
}

TEST(what_several_tasks_make_is_made_when_the_last_one_has)
{
    look_up_of_three();
    done(0, 2);
    expect_waiting();
    done(0, 3);
    expect_made();
    end();
}

TEST(of_several_tasks_the_first_that_fails_is_told_and_no_other)
{
    look_up_of_three();
    done(0, 1);
    core_fail(world.core, 0, 3, PLASMON_EFUNCTION, "no");
    expect_failed(PLASMON_EFUNCTION);
    ASSERT_CONTAINS(world.seeker.text, "task 12");
    core_fail(world.core, 0, 2, PLASMON_EFUNCTION, "no");
    expect_failed(PLASMON_EFUNCTION);
    end();
}

TEST(a_put_in_pieces_is_made_when_all_of_them_are)
{
    begin(0);
    put(20, 0, 8);
    put(21, 8, 8);
    publish(1);
    look_up(500, MADE);
    done(0, 1);
    expect_waiting();
    done(0, 2);
    expect_made();
    end();
}

TEST(a_piece_that_does_not_fit_fails_it)
{
    begin(0);
    put(20, 0, 8);
    publish(1);
    look_up(500, MADE);
    expect_waiting();
    put(21, 8, 16);
    expect_failed(PLASMON_ESHAPE);
    done(0, 1);
    expect_failed(PLASMON_ESHAPE);
    end();
}

TEST(many_who_look_are_all_told)
{
    begin(0);
    make();
    publish(1);
    for (uint64_t i = 0; i < 5; i++) {
        look_up(500 + i, MADE + i);
    }
    release(&world.seeker, 502); /* it does not care any more: it is told all the same */
    done(0, 1);
    ASSERT_EQ(world.seeker.done_count, 5);
    end();
}

TEST(later_writes_of_who_published_it_are_not_waited_for)
{
    begin(0);
    make();
    publish(1);
    look_up(500, MADE);
    run(11, PLASMON__V1__MODE__MODE_INOUT, 0, 0);
    done(0, 1);
    expect_made();
    end();
}

TEST(a_session_that_ends_is_told_nothing)
{
    begin(0);
    make();
    publish(1);
    look_up(500, MADE);
    head_core_client_close(world.core, world.seeker.session);
    settle();
    done(0, 1);
    ASSERT_EQ(world.seeker.done_count, 0);
    ASSERT_NULL(head_core_unquiet(world.core));
    end();
}

TEST(what_nobody_can_reach_any_more_is_over)
{
    begin(0);
    make();
    publish(1);
    look_up(500, MADE);
    release(&world.seeker, 500);
    release(&world.maker, 1);
    publish(0);
    done(0, 1);
    ASSERT_EQ(world.seeker.done_count, 1);
    end();
}

TEST(a_launch_that_is_lost_and_run_again_is_waited_for)
{
    begin(PLENTY);
    make();
    publish(1);
    look_up(500, MADE);
    lose_host();
    expect_waiting();
    ASSERT_EQ(world.maker.done_count + world.maker.failed_count, 0);
    done(1, 1);
    expect_made();
    end();
}

TEST(what_was_lost_is_not_there_until_it_is_made_again)
{
    begin(PLENTY);
    make();
    done(0, 1);
    publish(1);
    lose_host();
    look_up(500, MADE);
    expect_waiting();
    done(1, 1);
    expect_made();
    end();
}

TEST(what_cannot_be_made_again_fails)
{
    begin(PLENTY);
    put(20, 0, 8);
    put(21, 8, 8);
    publish(1);
    look_up(500, MADE);
    lose_host();
    ASSERT_EQ(world.seeker.done_count, 0);
    ASSERT_EQ(world.seeker.failed_count, 1);
    ASSERT_EQ(world.maker.failed_count, 2);
    end();
}

TEST(what_is_lost_and_wanted_by_nobody_is_over)
{
    begin(PLENTY);
    make();
    publish(1);
    look_up(500, MADE);
    release(&world.seeker, 500);
    release(&world.maker, 1);
    publish(0);
    lose_host();
    done(1, head_device_at(world.core, 1)->seq_last);
    ASSERT_EQ(world.seeker.done_count + world.seeker.failed_count, 1);
    ASSERT_NULL(head_core_unquiet(world.core));
    end();
}

TEST(a_head_that_ends_leaves_nothing)
{
    begin(0);
    make();
    publish(1);
    look_up(500, MADE);
    end();
}

TEST_MAIN()
