/*
 * Launches that must not go on, and who is blamed for a death: the head alone, with one device
 * whose worker is this test. What the head would send is decoded and written down: `sent` has
 * "2:run 3:skip ..", `told` has "7:ok 8:ETIMELIMIT ..".
 */
#include <string.h>

#include "head/core.h"
#include "tests/harness/test.h"
#include "tests/unit/head/core.h"

static struct {
    struct head_core *core;
    struct wire_arena arena;
    struct pl_str sent;
    struct pl_str told;
    uint64_t session;
    uint64_t last_id;
    unsigned fences;
    char text[1024]; /* of the last failure */
} head;

static void client_frame(void *user, uint64_t session, const uint8_t *body, size_t length)
{
    uint8_t *bytes = core_frame(&head.arena, body, &length);
    Plasmon__V1__HeadFrame *frame;
    struct pl_err err;

    (void)user;
    (void)session;
    ASSERT_OK(wire_decode_head_frame(&head.arena, bytes, length, &frame, &err));
    for (size_t i = 0; i < frame->n_done; i++) {
        for (uint64_t k = 0; k < frame->done[i]->count; k++) {
            pl_str_append(&head.told, "%llu:ok ",
                          (unsigned long long)(frame->done[i]->first + k));
        }
    }
    for (size_t i = 0; i < frame->n_failed; i++) {
        pl_str_append(&head.told, "%llu:%s ", (unsigned long long)frame->failed[i]->task,
                      pl_status_name((plasmon_status_t)frame->failed[i]->status));
        (void)snprintf(head.text, sizeof(head.text), "%s", frame->failed[i]->text);
    }
}

static void worker_command(void *user, uint32_t device, const uint8_t *body, size_t length)
{
    uint8_t *bytes = core_frame(&head.arena, body, &length);
    Plasmon__V1__WorkerCommand *command;
    struct pl_err err;

    (void)user;
    ASSERT_EQ(device, 0);
    ASSERT_OK(wire_decode_worker_command(&head.arena, bytes, length, &command, &err));
    for (size_t i = 0; i < command->n_launches; i++) {
        const Plasmon__V1__Launch *launch = command->launches[i];

        pl_str_append(&head.sent, "%llu:%s ", (unsigned long long)launch->seq,
                      launch->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_SKIP ? "skip"
                                                                            : "run");
    }
    for (size_t i = 0; i < command->n_cancel; i++) {
        pl_str_append(&head.sent, "cancel:%llu ", (unsigned long long)command->cancel[i]);
    }
    for (size_t i = 0; i < command->n_cancel_force; i++) {
        pl_str_append(&head.sent, "force:%llu ",
                      (unsigned long long)command->cancel_force[i]);
    }
}

static void fence(void *user, uint32_t device)
{
    (void)user;
    ASSERT_EQ(device, 0);
    head.fences++;
}

static const struct head_ops ops = {.client_frame   = client_frame,
                                    .worker_command = worker_command,
                                    .fence          = fence,
                                    .session_ended  = core_drop_end,
                                    .random64       = core_count_up};

/*
 * The worker's incarnation says hello: enqueued up to there, of which [first, first + count) are
 * not done; of these [still, still + spared) have not begun.
 */
static void hello_sparing(uint32_t incarnation, uint64_t enqueued, uint64_t first,
                          uint64_t count, uint64_t still, uint64_t spared)
{
    Plasmon__V1__WorkerHello hello = PLASMON__V1__WORKER_HELLO__INIT;
    Plasmon__V1__Range range       = PLASMON__V1__RANGE__INIT;
    Plasmon__V1__Range *ranges[1]  = {&range};
    Plasmon__V1__Range rest        = PLASMON__V1__RANGE__INIT;
    Plasmon__V1__Range *rests[1]   = {&rest};
    struct pl_err err              = {0};
    uint32_t device;

    range.first        = first;
    range.count        = count;
    rest.first         = still;
    rest.count         = spared;
    hello.n_untouched  = spared != 0;
    hello.untouched    = rests;
    hello.host         = "a";
    hello.node         = "a";
    hello.name         = "test";
    hello.kind         = 1;
    hello.bytes_total  = 1 << 30;
    hello.incarnation  = incarnation;
    hello.enqueued     = enqueued;
    hello.n_unfinished = count != 0;
    hello.unfinished   = ranges;
    ASSERT_OK(head_core_worker_up(head.core, &hello, &device, &err));
    head_core_flush(head.core);
}

static void hello(uint32_t incarnation, uint64_t enqueued, uint64_t first, uint64_t count)
{
    hello_sparing(incarnation, enqueued, first, count, 0, 0);
}

static void begin(uint32_t window)
{
    struct head_config config = {.ops = &ops, .retries = 1, .epoch = 1, .window = window};
    Plasmon__V1__Hello client = PLASMON__V1__HELLO__INIT;
    struct pl_err err         = {0};

    memset(&head, 0, sizeof(head));
    ASSERT_OK(wire_arena_init(&head.arena, WIRE_ARENA_BYTES_MAX));
    pl_str_init(&head.sent);
    pl_str_init(&head.told);
    ASSERT_OK(head_core_create(&config, &head.core));
    head_core_tick(head.core, 1);
    hello(1, 0, 0, 0);
    client.protocol_min = client.protocol_max = WIRE_PROTOCOL;
    ASSERT_OK(head_core_client_open(head.core, &client, &head.session, &err));
    test_expect_log(); /* devices that die are told */
}

static void end(void)
{
    head_core_check(head.core);
    head_core_destroy(head.core);
    wire_arena_finish(&head.arena);
    pl_str_finish(&head.sent);
    pl_str_finish(&head.told);
}

static const char *take(struct pl_str *text)
{
    static char taken[2][4096];
    static unsigned turn;
    char *out = taken[turn++ % 2];

    head_core_flush(head.core);
    (void)snprintf(out, sizeof(taken[0]), "%s", pl_str_text(text));
    pl_str_finish(text);
    pl_str_init(text);
    wire_arena_reset(&head.arena);
    return out;
}

static void frame_send(const Plasmon__V1__ClientFrame *frame)
{
    struct pl_err err = {0};

    ASSERT_OK(head_core_client_frame(head.core, head.session, frame, &err));
    head_core_flush(head.core);
}

/*
 * A task with id `id` that makes ref id + 100 (ref 0) or changes ref `ref`, and reads ref `reads`
 * if that is not 0.
 */
static void submit(uint64_t id, uint64_t ref, uint64_t reads)
{
    Plasmon__V1__ClientFrame frame = PLASMON__V1__CLIENT_FRAME__INIT;
    Plasmon__V1__Task task         = PLASMON__V1__TASK__INIT;
    Plasmon__V1__Arg arg[2]        = {PLASMON__V1__ARG__INIT, PLASMON__V1__ARG__INIT};
    Plasmon__V1__Shape shape       = PLASMON__V1__SHAPE__INIT;
    Plasmon__V1__Arg *args[2]      = {&arg[0], &arg[1]};
    Plasmon__V1__Task *tasks[1]    = {&task};
    uint64_t dim                   = 16;

    shape.dtype = PL_F32;
    shape.n_dim = 1;
    shape.dim   = &dim;
    arg[0].mode = ref == 0 ? PLASMON__V1__MODE__MODE_OUT : PLASMON__V1__MODE__MODE_INOUT;
    arg[0].ref  = ref == 0 ? id + 100 : ref;
    if (ref == 0) {
        arg[0].shape = &shape;
    }
    arg[1].mode   = PLASMON__V1__MODE__MODE_IN;
    arg[1].ref    = reads;
    task.id       = id;
    task.function = pl_hash_name("fill");
    task.label    = "labelled";
    task.args     = args;
    task.n_args   = reads == 0 ? 1 : 2;
    frame.tasks   = tasks;
    frame.n_tasks = 1;
    frame_send(&frame);
}

static void report(const Plasmon__V1__WorkerFrame *frame)
{
    struct pl_err err = {0};

    ASSERT_OK(head_core_worker_frame(head.core, 0, frame, &err));
    head_core_flush(head.core);
}

static void done(uint64_t seq)
{
    Plasmon__V1__WorkerFrame frame = PLASMON__V1__WORKER_FRAME__INIT;
    Plasmon__V1__Range range       = PLASMON__V1__RANGE__INIT;
    Plasmon__V1__Range *ranges[1]  = {&range};

    range.first  = seq;
    range.count  = 1;
    frame.done   = ranges;
    frame.n_done = 1;
    report(&frame);
}

static void condemned(uint64_t seq, bool fence_now)
{
    Plasmon__V1__WorkerFrame frame   = PLASMON__V1__WORKER_FRAME__INIT;
    Plasmon__V1__Condemned condemned = PLASMON__V1__CONDEMNED__INIT;
    Plasmon__V1__Condemned *list[1]  = {&condemned};

    condemned.seq     = seq;
    condemned.status  = PLASMON_ETIMELIMIT;
    condemned.text    = "it ran longer than its limit of 9 ms: spin";
    condemned.fence   = fence_now;
    frame.condemned   = list;
    frame.n_condemned = 1;
    report(&frame);
}

static void cancel(uint64_t id, bool force)
{
    Plasmon__V1__ClientFrame frame = PLASMON__V1__CLIENT_FRAME__INIT;

    if (force) {
        frame.cancel_force   = &id;
        frame.n_cancel_force = 1;
    } else {
        frame.cancel   = &id;
        frame.n_cancel = 1;
    }
    frame_send(&frame);
}

TEST(a_condemned_task_fails_at_once_and_so_does_who_needs_it)
{
    begin(0);
    submit(1, 0, 0);
    submit(2, 0, 101); /* reads what 1 makes */
    submit(3, 0, 0);
    ASSERT_STR(take(&head.sent), "1:run 2:run 3:run ");
    condemned(1, false);
    ASSERT_STR(take(&head.told), "1:ETIMELIMIT 2:EDEPENDENCY ");
    ASSERT_CONTAINS(head.text, "limit of 9 ms");
    ASSERT_EQ(head.fences, 0);
    condemned(1, true);
    ASSERT_EQ(head.fences, 1);
    hello(2, 3, 1, 3);
    ASSERT_STR(take(&head.sent), "1:skip 2:skip 3:run ");
    ASSERT_STR(take(&head.told), "");
    done(1);
    done(2);
    done(3);
    ASSERT_STR(take(&head.told), "3:ok ");
    end();
}

TEST(what_had_not_begun_runs_again_even_in_place)
{
    begin(0);
    submit(1, 0, 0);
    submit(2, 0, 0);   /* seq 2 makes 102 */
    submit(3, 102, 0); /* seq 3 overwrites it, and has not begun */
    submit(4, 0, 0);
    submit(5, 104, 0); /* seq 5 overwrites 104, and is not said to be untouched */
    done(2);
    done(4);
    (void)take(&head.sent);
    (void)take(&head.told);
    hello_sparing(2, 5, 1, 5, 3, 1); /* for the head 2 and 4 are done already */
    ASSERT_STR(take(&head.sent), "1:run 3:run 5:skip ");
    ASSERT_STR(take(&head.told), "5:ECONSUMED ");
    done(1);
    done(3);
    done(5);
    ASSERT_STR(take(&head.told), "1:ok 3:ok ");
    end();
}

TEST(what_read_the_old_bytes_runs_again_if_they_were_not_overwritten)
{
    begin(0);
    submit(1, 0, 0); /* seq 1 makes 101 */
    done(1);
    submit(2, 0, 101); /* reads it */
    submit(3, 101, 0); /* overwrites it behind the reader */
    (void)take(&head.sent);
    (void)take(&head.told);
    hello_sparing(2, 3, 2, 2, 3, 1);
    ASSERT_STR(take(&head.sent), "2:run 3:run ");
    hello_sparing(3, 3, 2, 2, 0, 0); /* the next one dies when 3 has begun */
    ASSERT_STR(take(&head.sent), "2:skip 3:skip ");
    ASSERT_STR(take(&head.told), "2:ECONSUMED 3:ECONSUMED ");
    done(2);
    done(3);
    end();
}

TEST(what_has_not_begun_is_not_blamed)
{
    begin(0); /* one retry */
    submit(1, 0, 0);
    submit(2, 101, 0);
    done(1);
    (void)take(&head.sent);
    (void)take(&head.told);
    for (uint32_t incarnation = 2; incarnation < 7; incarnation++) {
        hello_sparing(incarnation, 2, 2, 1, 2, 1);
        ASSERT_STR(take(&head.sent), "2:run ");
    }
    ASSERT_STR(take(&head.told), "");
    done(2);
    ASSERT_STR(take(&head.told), "2:ok ");
    end();
}

/* Behind a reader lies one that would have overwritten what it reads, and was cancelled in time. */
TEST(a_launch_that_was_to_be_skipped_has_overwritten_nothing)
{
    begin(2);
    submit(1, 0, 0);
    done(1);
    submit(2, 0, 0);
    submit(3, 0, 101); /* reads what 1 made */
    submit(4, 101, 0); /* would overwrite it, and is not sent yet */
    cancel(4, false);
    done(2);
    ASSERT_STR(take(&head.sent), "1:run 2:run 3:run 4:skip ");
    ASSERT_STR(take(&head.told), "1:ok 4:ECANCELLED 2:ok ");
    hello(2, 4, 3, 2);
    ASSERT_STR(take(&head.sent), "3:run 4:skip ");
    ASSERT_STR(take(&head.told), "");
    done(3);
    done(4);
    ASSERT_STR(take(&head.told), "3:ok ");
    end();
}

TEST(the_store_is_asked_again_until_the_worker_is_gone)
{
    begin(0);
    submit(1, 0, 0);
    condemned(1, true);
    ASSERT_EQ(head.fences, 1);
    head_core_tick(head.core, 100);
    ASSERT_EQ(head.fences, 1);
    head_core_tick(head.core, 2100);
    ASSERT_EQ(head.fences, 2);
    hello(2, 1, 1, 1);
    head_core_tick(head.core, 10000);
    ASSERT_EQ(head.fences, 2);
    done(1);
    end();
}

TEST(a_first_death_with_many_launches_blames_nobody_and_the_second_the_first_of_them)
{
    begin(0); /* one retry */
    for (uint64_t id = 1; id <= 3; id++) {
        submit(id, 0, 0);
    }
    (void)take(&head.sent);
    hello(2, 3, 1, 3); /* nobody is counted */
    ASSERT_STR(take(&head.sent), "1:run 2:run 3:run ");
    hello(3, 3, 1, 3); /* 1 ran alone */
    ASSERT_STR(take(&head.sent), "1:run 2:run 3:run ");
    head_core_worker_down(head.core, "a", 0, false, PLASMON_EDEVICE,
                          "CUDA_ERROR_ILLEGAL_ADDRESS; running were: spin");
    hello(4, 3, 1, 3); /* its second attempt that counts */
    ASSERT_STR(take(&head.sent), "1:skip 2:run 3:run ");
    ASSERT_STR(take(&head.told), "1:EDEVICE ");
    ASSERT_CONTAINS(head.text, "CUDA_ERROR_ILLEGAL_ADDRESS");
    ASSERT_CONTAINS(head.text, "labelled");
    done(1);
    done(2);
    done(3);
    ASSERT_STR(take(&head.told), "2:ok 3:ok ");
    end();
}

TEST(the_only_launch_on_the_device_is_blamed_at_once)
{
    begin(0);
    submit(1, 0, 0);
    (void)take(&head.sent);
    hello(2, 1, 1, 1);
    ASSERT_STR(take(&head.sent), "1:run ");
    hello(3, 1, 1, 1);
    ASSERT_STR(take(&head.sent), "1:skip ");
    ASSERT_STR(take(&head.told), "1:EWORKER ");
    done(1);
    end();
}

TEST(a_death_that_was_ordered_is_charged_to_nobody)
{
    begin(0);
    submit(1, 0, 0);
    submit(2, 0, 0);
    (void)take(&head.sent);
    for (uint32_t i = 2; i < 12; i++) {
        condemned(1, true);
        hello(i, 2, 1, 2);
        ASSERT_STR(take(&head.sent), "1:skip 2:run ");
    }
    ASSERT_STR(take(&head.told), "1:ETIMELIMIT ");
    done(1);
    done(2);
    ASSERT_STR(take(&head.told), "2:ok ");
    end();
}

TEST(what_is_cancelled_before_it_is_sent_is_not_run_nor_is_what_needs_it)
{
    begin(2); /* two launches at the worker, at most */
    submit(1, 0, 0);
    submit(2, 0, 0);
    submit(3, 0, 0);
    submit(4, 0, 103); /* reads what 3 makes */
    (void)take(&head.sent);
    cancel(3, false);
    ASSERT_STR(take(&head.told), "3:ECANCELLED 4:EDEPENDENCY ");
    for (uint64_t seq = 1; seq <= 4; seq++) {
        done(seq);
    }
    ASSERT_CONTAINS(take(&head.sent), "3:skip 4:skip ");
    end();
}

TEST(force_fails_a_sent_task_at_once_and_a_request_leaves_it_to_the_worker)
{
    begin(0);
    submit(1, 0, 0);
    submit(2, 0, 0);
    (void)take(&head.sent);
    cancel(1, false);
    ASSERT_STR(take(&head.sent), "cancel:1 ");
    ASSERT_STR(take(&head.told), "");
    cancel(2, true);
    ASSERT_STR(take(&head.sent), "force:2 ");
    ASSERT_STR(take(&head.told), "2:ECANCELLED ");
    cancel(2, true);
    cancel(1, true);
    ASSERT_STR(take(&head.sent), "force:1 ");
    done(1);
    done(2);
    end();
}

/* The worker dies when it has enqueued the first of four: it had not heard of the others for good. */
TEST(what_is_cancelled_and_was_not_enqueued_is_not_run_by_the_next_worker)
{
    begin(0);
    submit(1, 0, 0);
    submit(2, 0, 0);
    submit(3, 0, 0);
    submit(4, 0, 103); /* reads what 3 makes */
    (void)take(&head.sent);
    cancel(2, true);
    cancel(3, false);
    ASSERT_STR(take(&head.sent), "force:2 cancel:3 ");
    ASSERT_STR(take(&head.told), "2:ECANCELLED ");
    hello(2, 1, 1, 1);
    ASSERT_STR(take(&head.sent), "1:run 2:skip 3:skip 4:skip ");
    ASSERT_STR(take(&head.told), "3:ECANCELLED 4:EDEPENDENCY ");
    for (uint64_t seq = 1; seq <= 4; seq++) {
        done(seq);
    }
    ASSERT_STR(take(&head.told), "1:ok ");
    end();
}

static void client_ends(void)
{
    Plasmon__V1__Hello client = PLASMON__V1__HELLO__INIT;
    struct pl_err err         = {0};

    head_core_client_close(head.core, head.session);
    client.protocol_min = client.protocol_max = WIRE_PROTOCOL;
    ASSERT_OK(head_core_client_open(head.core, &client, &head.session, &err));
    head_core_flush(head.core);
}

static void tick(uint64_t now_ms)
{
    head_core_tick(head.core, now_ms);
    head_core_flush(head.core);
}

TEST(a_function_that_nobody_needs_is_ended_when_it_has_been_the_oldest_for_half_a_minute)
{
    begin(0);
    submit(1, 0, 0);
    submit(2, 0, 101); /* reads what 1 makes, and is needed as little */
    submit(3, 0, 0);
    (void)take(&head.sent);
    tick(1000);
    client_ends();
    tick(2000);
    tick(31999);
    ASSERT_STR(take(&head.sent), "");
    tick(32000);
    ASSERT_STR(take(&head.sent), "force:1 ");
    tick(90000); /* once; and what is behind it waits for it */
    ASSERT_STR(take(&head.sent), "");
    done(1);
    done(2);
    tick(100000); /* now the third one is the oldest, from here on */
    tick(129999);
    ASSERT_STR(take(&head.sent), "");
    tick(130000);
    ASSERT_STR(take(&head.sent), "force:3 ");
    done(3);
    end();
}

TEST(a_function_that_nobody_needs_is_not_ended_behind_one_of_somebody_else)
{
    begin(0);
    submit(1, 0, 0);
    client_ends();
    submit(2, 0, 0);
    (void)take(&head.sent);
    tick(1000);
    tick(20000);
    done(1);
    tick(200000);
    tick(400000);
    ASSERT_STR(take(&head.sent), ""); /* somebody waits for the second one */
    submit(3, 0, 0);
    client_ends(); /* both are nobody's, and the second is the oldest */
    tick(400001);
    tick(430001);
    ASSERT_STR(take(&head.sent), "3:run force:2 ");
    done(2);
    done(3);
    end();
}

TEST(a_function_that_nobody_needs_is_not_run_again)
{
    begin(0);
    submit(1, 0, 0);
    (void)take(&head.sent);
    client_ends();
    submit(2, 0, 0);
    (void)take(&head.sent);
    head_core_worker_down(head.core, "a", 0, false, PLASMON_EWORKER, "killed by signal 9");
    hello(2, 2, 1, 2);
    ASSERT_STR(take(&head.sent), "1:skip 2:run ");
    done(1);
    done(2);
    ASSERT_STR(take(&head.told), "2:ok ");
    end();
}

TEST_MAIN()
