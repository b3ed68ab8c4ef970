/*
 * Copies between objects and memory of a client's host: where they go, in which order, and when the
 * client is told. The head alone, with a device on host "a", two on host "b", and a client on
 * either. `sent` has "device:seq:kind@offset ..", `told` has "7:ok 8:EWORKER ..".
 */
#include <string.h>

#include "head/checkpoint.h"
#include "head/core.h"
#include "tests/harness/test.h"
#include "tests/unit/head/core.h"

#define PUT    PLASMON__V1__TASK_KIND__TASK_PUT_HOST
#define GET    PLASMON__V1__TASK_KIND__TASK_GET_HOST
#define BUFFER 0x8877665544332211u

static struct {
    struct head_core *core;
    struct wire_arena arena;
    struct pl_str sent;
    struct pl_str told;
    uint64_t session;
    uint64_t copies; /* HeadFrame.host_copies, last */
} head;

static void client_frame(void *user, uint64_t session, const uint8_t *body, size_t length)
{
    uint8_t *bytes = core_frame(&head.arena, body, &length);
    Plasmon__V1__HeadFrame *frame;
    struct pl_err err;

    (void)user;
    (void)session;
    ASSERT_OK(wire_decode_head_frame(&head.arena, bytes, length, &frame, &err));
    if (frame->host_copies != 0) {
        head.copies = frame->host_copies;
    }
    for (size_t i = 0; i < frame->n_done; i++) {
        for (uint64_t k = 0; k < frame->done[i]->count; k++) {
            pl_str_append(&head.told, "%llu:ok ",
                          (unsigned long long)(frame->done[i]->first + k));
        }
    }
    for (size_t i = 0; i < frame->n_failed; i++) {
        pl_str_append(&head.told, "%llu:%s ", (unsigned long long)frame->failed[i]->task,
                      pl_status_name((plasmon_status_t)frame->failed[i]->status));
    }
}

static const char *kind_name(const Plasmon__V1__Launch *launch)
{
    switch (launch->kind) {
    case PLASMON__V1__LAUNCH_KIND__LAUNCH_PUT_HOST:
        return "put";
    case PLASMON__V1__LAUNCH_KIND__LAUNCH_GET_HOST:
        return "get";
    case PLASMON__V1__LAUNCH_KIND__LAUNCH_SKIP:
        return "skip";
    case PLASMON__V1__LAUNCH_KIND__LAUNCH_RUN:
        return "run";
    default:
        return "move";
    }
}

static void worker_command(void *user, uint32_t device, const uint8_t *body, size_t length)
{
    uint8_t *bytes = core_frame(&head.arena, body, &length);
    Plasmon__V1__WorkerCommand *command;
    struct pl_err err;

    (void)user;
    ASSERT_OK(wire_decode_worker_command(&head.arena, bytes, length, &command, &err));
    for (size_t i = 0; i < command->n_launches; i++) {
        const Plasmon__V1__Launch *launch = command->launches[i];

        pl_str_append(&head.sent, "%u:%llu:%s", device, (unsigned long long)launch->seq,
                      kind_name(launch));
        if (launch->host_buffer != 0) {
            ASSERT_EQ(launch->host_buffer, BUFFER);
            ASSERT_EQ(launch->n_operands, 1);
            pl_str_append(&head.sent, "@%llu", (unsigned long long)launch->offset);
        }
        pl_str_append(&head.sent, " ");
    }
}

static const struct head_ops ops = {.client_frame   = client_frame,
                                    .worker_command = worker_command,
                                    .fence          = core_drop_fence,
                                    .session_ended  = core_drop_end,
                                    .random64       = core_count_up};

static void join(const char *host, uint32_t host_device, bool reach)
{
    Plasmon__V1__WorkerHello hello = PLASMON__V1__WORKER_HELLO__INIT;
    struct pl_err err              = {0};
    uint32_t device;

    hello.host         = (char *)(uintptr_t)host;
    hello.node         = (char *)(uintptr_t)host;
    hello.name         = (char *)(uintptr_t) "test";
    hello.host_device  = host_device;
    hello.kind         = 1;
    hello.bytes_total  = 1 << 30;
    hello.incarnation  = 1;
    hello.peer_capable = true;
    hello.bulk_address = (char *)(uintptr_t)(reach ? host : "");
    ASSERT_OK(head_core_worker_up(head.core, &hello, &device, &err));
}

/* Device 0 is on host a, 1 and 2 on host b; the client is on `host`. */
static void begin_so(const char *host, uint32_t window, bool reach)
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
    join("a", 0, reach);
    join("b", 0, reach);
    join("b", 1, reach);
    client.protocol_min = client.protocol_max = WIRE_PROTOCOL;
    client.host                               = (char *)(uintptr_t)host;
    ASSERT_OK(head_core_client_open(head.core, &client, &head.session, &err));
    head_core_flush(head.core);
}

static void begin(const char *host, uint32_t window)
{
    begin_so(host, window, false);
}

/* .. and a and b send each other bytes. */
static void begin_within_reach(const char *host)
{
    begin_so(host, 64, true);
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

/* A task with one argument: ref, of 16 by 16 floats if it is new, and what of it (NULL: all). */
static void submit(uint64_t id, int kind, uint64_t ref, const int64_t *view, uint32_t place)
{
    Plasmon__V1__ClientFrame frame = PLASMON__V1__CLIENT_FRAME__INIT;
    Plasmon__V1__Task task         = PLASMON__V1__TASK__INIT;
    Plasmon__V1__Arg arg           = PLASMON__V1__ARG__INIT;
    Plasmon__V1__Shape shape       = PLASMON__V1__SHAPE__INIT;
    Plasmon__V1__Arg *args[1]      = {&arg};
    Plasmon__V1__Task *tasks[1]    = {&task};
    uint64_t dims[2]               = {16, 16};
    struct pl_err err              = {0};

    shape.dtype      = PL_F32;
    shape.n_dim      = 2;
    shape.dim        = dims;
    arg.ref          = ref;
    arg.mode         = kind == GET   ? PLASMON__V1__MODE__MODE_IN
                       : kind == PUT ? PLASMON__V1__MODE__MODE_OUT
                                     : PLASMON__V1__MODE__MODE_INOUT;
    arg.shape        = kind == PUT ? &shape : NULL;
    arg.n_view       = view != NULL ? 6 : 0;
    arg.view         = (int64_t *)(uintptr_t)view;
    task.id          = id;
    task.kind        = (Plasmon__V1__TaskKind)kind;
    task.function    = kind == PUT || kind == GET ? 0 : pl_hash_name("fill");
    task.host_buffer = kind == PUT || kind == GET ? BUFFER : 0;
    task.host_offset = kind == PUT || kind == GET ? 64 * id : 0;
    task.place       = place;
    task.args        = args;
    task.n_args      = 1;
    frame.tasks      = tasks;
    frame.n_tasks    = 1;
    ASSERT_OK(head_core_client_frame(head.core, head.session, &frame, &err));
    head_core_flush(head.core);
}

/* What a worker reports of one launch. */
static void report(uint32_t device, uint64_t seq, plasmon_status_t status)
{
    Plasmon__V1__WorkerFrame frame          = PLASMON__V1__WORKER_FRAME__INIT;
    Plasmon__V1__Range range                = PLASMON__V1__RANGE__INIT;
    Plasmon__V1__LaunchFailure failure      = PLASMON__V1__LAUNCH_FAILURE__INIT;
    Plasmon__V1__Range *ranges[1]           = {&range};
    Plasmon__V1__LaunchFailure *failures[1] = {&failure};
    struct pl_err err                       = {0};

    range.first    = seq;
    range.count    = 1;
    failure.seq    = seq;
    failure.status = status;
    frame.n_done   = status == PLASMON_OK;
    frame.done     = ranges;
    frame.n_failed = status != PLASMON_OK;
    frame.failed   = failures;
    ASSERT_OK(head_core_worker_frame(head.core, device, &frame, &err));
    head_core_flush(head.core);
}

TEST(a_put_a_call_and_a_get_are_sent_together_and_told_as_they_end)
{
    begin("a", 64);
    submit(1, PUT, 101, NULL, 0);
    submit(2, PLASMON__V1__TASK_KIND__TASK_RUN, 101, NULL, 1);
    submit(3, GET, 101, NULL, 0);
    ASSERT_STR(take(&head.sent), "0:1:put@64 0:2:run 0:3:get@192 ");
    ASSERT_STR(take(&head.told), "");
    report(0, 1, PLASMON_OK);
    ASSERT_STR(take(&head.told), "1:ok ");
    report(0, 2, PLASMON_OK);
    report(0, 3, PLASMON_OK);
    ASSERT_STR(take(&head.told), "2:ok 3:ok ");
    end();
}

TEST(copies_go_to_devices_of_the_clients_host)
{
    begin("a", 64);
    for (uint64_t id = 1; id <= 3; id++) { /* however busy that one is */
        submit(id, PUT, 100 + id, NULL, 0);
    }
    ASSERT_STR(take(&head.sent), "0:1:put@64 0:2:put@128 0:3:put@192 ");
    submit(4, PUT, 104, NULL, 2); /* device 1 is on b */
    ASSERT_STR(take(&head.told), "4:EUNREACHABLE ");
    end();

    begin("nowhere", 64);
    submit(1, PUT, 101, NULL, 0);
    ASSERT_STR(take(&head.told), "1:EUNREACHABLE ");
    submit(2, GET, 101, NULL, 0);
    ASSERT_STR(take(&head.told), "2:EDEPENDENCY ");
    ASSERT_STR(take(&head.sent), "");
    end();
}

static void drain(const char *node, bool undo)
{
    struct pl_err err = {0};

    ASSERT_OK(undo ? head_core_drain_undo(head.core, node, &err)
                   : head_core_drain(head.core, node, 10000, &err));
}

/* The client goes by what it was told last. */
static void answer(void)
{
    Plasmon__V1__ClientFrame frame = PLASMON__V1__CLIENT_FRAME__INIT;
    struct pl_err err              = {0};

    frame.host_copies_heard = head.copies;
    ASSERT_OK(head_core_client_frame(head.core, head.session, &frame, &err));
}

static bool is_drained(const char *node, uint64_t now_ms)
{
    struct head_drain_report report;
    struct pl_err err = {0};

    head_core_tick(head.core, now_ms);
    head_core_flush(head.core);
    ASSERT_OK(head_core_drain_report(head.core, node, &report, &err));
    return report.done;
}

static uint64_t welcomed_with(void)
{
    Plasmon__V1__Welcome welcome = PLASMON__V1__WELCOME__INIT;

    ASSERT_OK(head_core_client_welcome(head.core, head.session, &head.arena, &welcome));
    return welcome.host_copies;
}

TEST(a_host_is_not_drained_before_its_clients_have_heard_that_it_copies_no_more)
{
    test_expect_log();
    begin_within_reach("a");
    ASSERT_EQ(welcomed_with(), 0);
    drain("b", false);
    ASSERT_TRUE(is_drained("b", 2)); /* it has none */
    ASSERT_EQ(head.copies, 0);
    drain("b", true);

    drain("a", false);
    ASSERT_TRUE(!is_drained("a", 200)); /* empty as it is */
    ASSERT_EQ(head.copies, 2);
    ASSERT_EQ(welcomed_with(), 2); /* who connects again */
    submit(1, PUT, 101, NULL, 0);  /* it had not heard */
    ASSERT_STR(take(&head.sent), "0:1:put@64 0:2:move 1:1:move ");
    answer();
    ASSERT_TRUE(!is_drained("a", 400));
    report(0, 1, PLASMON_OK);
    report(0, 2, PLASMON_OK);
    report(1, 1, PLASMON_OK);
    ASSERT_TRUE(is_drained("a", 600));

    drain("a", true);
    head_core_flush(head.core);
    ASSERT_EQ(head.copies, 3);
    drain("a", false); /* and what it says to that is no answer to this */
    answer();
    ASSERT_TRUE(!is_drained("a", 800));
    ASSERT_EQ(head.copies, 4);
    ASSERT_TRUE(!is_drained("a", 2500));
    ASSERT_TRUE(is_drained("a", 2700)); /* it is stopped, say */
    end();
}

/* Else an answer that is under way would be one to a later question. */
TEST(behind_a_checkpoint_the_numbers_go_on)
{
    struct head_config config = {.ops = &ops, .retries = 1, .epoch = 2, .window = 64};
    struct head_bytes saved   = {.data = NULL};
    struct head_reader in;
    struct head_core *next;
    struct pl_err err = {0};

    test_expect_log();
    begin_within_reach("a");
    for (uint64_t told = 2; told <= 3; told++) {
        drain("a", told == 3);
        head_core_flush(head.core);
        ASSERT_EQ(head.copies, told);
        answer();
    }
    head_core_save(head.core, &saved);
    in = (struct head_reader){.at = saved.data, .end = saved.data + saved.length};
    ASSERT_OK(head_core_create(&config, &next));
    ASSERT_OK(head_core_load(next, &in, &err));
    head_core_destroy(head.core);
    head.core = next;
    ASSERT_EQ(welcomed_with(), 3);
    pl_free(saved.data);
    end();
}

TEST(clients_of_a_host_whose_devices_are_all_gone_are_told_and_again_when_one_comes)
{
    test_expect_log();
    begin_within_reach("b");
    head_core_worker_down(head.core, "b", 0, true, PLASMON_EDEVICE, "broken");
    head_core_flush(head.core);
    ASSERT_EQ(head.copies, 0); /* there is another one */
    head_core_worker_down(head.core, "b", 1, true, PLASMON_EDEVICE, "broken");
    head_core_flush(head.core);
    ASSERT_EQ(head.copies, 2);
    core_announce(head.core, "b", 1); /* a store that is started anew */
    head_core_flush(head.core);
    ASSERT_EQ(head.copies, 2);
    join("b", 0, true);
    head_core_flush(head.core);
    ASSERT_EQ(head.copies, 3);
    end();
}

TEST(a_host_that_is_drained_still_copies_from_and_to_its_memory_and_keeps_nothing)
{
    struct head_drain_report drained;
    struct pl_err err = {0};

    test_expect_log();
    begin_within_reach("a");
    drain("a", false);
    head_core_flush(head.core);
    answer();                     /* what comes now had been sent before */
    submit(1, PUT, 101, NULL, 0); /* its move goes to b in the same breath */
    ASSERT_STR(take(&head.sent), "0:1:put@64 0:2:move 1:1:move ");
    ASSERT_OK(head_core_drain_report(head.core, "a", &drained, &err));
    submit(2, PUT, 102, NULL,
           1); /* who names the device still hears that it takes nothing */
    ASSERT_STR(take(&head.told), "2:EWORKER ");
    report(0, 1, PLASMON_OK);
    report(0, 2, PLASMON_OK);
    report(1, 1, PLASMON_OK);
    ASSERT_STR(take(&head.told), "1:ok ");
    head_core_tick(head.core, 200);
    ASSERT_OK(head_core_drain_report(head.core, "a", &drained, &err));
    ASSERT_TRUE(drained.done);
    ASSERT_EQ(drained.objects_safe, 1);

    /* What lies on b comes to a device of a on its way to the client. */
    submit(3, PLASMON__V1__TASK_KIND__TASK_RUN, 101, NULL, 0);
    ASSERT_STR(take(&head.sent), "1:2:run ");
    submit(4, GET, 101, NULL, 0);
    ASSERT_STR(take(&head.sent), "0:3:move 0:4:get@256 1:3:move ");

    drain("b", false); /* nobody is left to keep anything */
    submit(5, PUT, 103, NULL, 0);
    ASSERT_STR(take(&head.told), "5:EWORKER ");
    ASSERT_STR(take(&head.sent), "");
    drain("b", true);
    drain("a", true);
    submit(6, PUT, 104, NULL, 0);
    ASSERT_STR(take(&head.sent), "0:5:put@384 ");
    end();
}

/* Nobody else takes it at the moment, but somebody will. */
TEST(what_is_put_on_a_host_that_is_drained_waits_there_for_another_one_to_come_back)
{
    test_expect_log();
    begin_within_reach("a");
    head_core_worker_lost(head.core, 1);
    head_core_worker_lost(head.core, 2);
    drain("a", false);
    submit(1, PUT, 101, NULL, 0); /* it had not heard */
    ASSERT_STR(take(&head.sent), "0:1:put@64 ");
    answer();
    report(0, 1, PLASMON_OK);
    ASSERT_STR(take(&head.told), "1:ok ");
    ASSERT_TRUE(!is_drained("a", 200));
    ASSERT_STR(take(&head.sent), "");
    join("b", 0, true);
    ASSERT_TRUE(!is_drained("a", 400));
    ASSERT_STR(take(&head.sent), "0:2:move 1:1:move ");
    report(0, 2, PLASMON_OK);
    report(1, 1, PLASMON_OK);
    ASSERT_TRUE(is_drained("a", 600));
    end();
}

/* It had not heard of it: nobody else reaches that memory, so the host's own device does that, too. */
TEST(a_part_is_copied_together_on_a_host_that_is_drained_too)
{
    const int64_t steps[] = {0, 8, 2, 0, 16, 1};

    test_expect_log();
    begin_within_reach("a");
    submit(1, PUT, 101, NULL, 0);
    report(0, 1, PLASMON_OK);
    ASSERT_STR(take(&head.sent), "0:1:put@64 ");
    drain("a", false);
    head_core_flush(head.core);
    ASSERT_STR(take(&head.sent), "0:2:move 1:1:move ");
    submit(2, GET, 101, steps, 0);
    ASSERT_STR(take(&head.told), "1:ok ");
    ASSERT_STR(take(&head.sent), "0:3:run 0:4:get@128 ");
    end();
}

TEST(a_part_that_does_not_lie_side_by_side_is_copied_together_first)
{
    const int64_t rows[] = {4, 4, 1, 0, 16, 1}, block[] = {4, 4, 1, 2, 8, 1},
                  steps[] = {0, 8, 2, 0, 16, 1};

    begin("a", 64);
    submit(1, PUT, 101, NULL, 0);
    submit(2, GET, 101, rows, 0);
    ASSERT_STR(take(&head.sent), "0:1:put@64 0:2:get@128 ");
    submit(3, GET, 101, block, 0);
    ASSERT_STR(take(&head.sent), "0:3:move 0:4:get@192 ");
    submit(4, GET, 101, steps, 0);
    ASSERT_STR(take(&head.sent), "0:5:run 0:6:get@256 ");
    end();
}

TEST(a_copy_that_was_sent_is_told_when_it_is_over_and_not_when_its_input_failed)
{
    test_expect_log();
    begin("a", 3);
    submit(1, PUT, 101, NULL, 0);
    submit(2, PLASMON__V1__TASK_KIND__TASK_RUN, 101, NULL, 1);
    submit(3, GET, 101, NULL, 0);
    submit(4, GET, 101, NULL, 0); /* the window has no room for it */
    ASSERT_STR(take(&head.sent), "0:1:put@64 0:2:run 0:3:get@192 ");
    report(0, 1, PLASMON_OK);
    ASSERT_STR(take(&head.sent), "0:4:get@256 ");
    submit(5, GET, 101, NULL, 0);
    submit(6, GET, 101, NULL, 0);
    report(0, 2, PLASMON_EFUNCTION);
    /*
     * 3 and 4 may be writing; 5 took the place of 2; 6 was not sent, and never will be anything but
     * a number.
     */
    ASSERT_STR(take(&head.told), "1:ok 2:EFUNCTION 5:EDEPENDENCY 6:EDEPENDENCY ");
    ASSERT_STR(take(&head.sent), "0:5:skip ");
    report(0, 3, PLASMON_OK);
    ASSERT_STR(take(&head.told), "3:EDEPENDENCY ");
    report(0, 4, PLASMON_EWORKER);
    ASSERT_STR(take(&head.told), "4:EDEPENDENCY ");
    end();
}

TEST_MAIN()
