/*
 * Which buffers are retired, and when: the head alone, with two devices whose workers are this
 * test. What it would send is written down, a device each: "run:1 retire:0" are a launch and a
 * slot.
 */
#include <string.h>

#include "head/core.h"
#include "tests/harness/test.h"
#include "tests/unit/head/core.h"

#define DEVICES 2u

static struct {
    struct head_core *core;
    struct wire_arena arena;
    struct pl_str sent[DEVICES];
    uint64_t session;
} head;

static void worker_command(void *user, uint32_t device, const uint8_t *body, size_t length)
{
    uint8_t *bytes = core_frame(&head.arena, body, &length);
    Plasmon__V1__WorkerCommand *command;
    struct pl_err err;

    (void)user;
    ASSERT_TRUE(device < DEVICES);
    ASSERT_OK(wire_decode_worker_command(&head.arena, bytes, length, &command, &err));
    for (size_t i = 0; i < command->n_launches; i++) {
        pl_str_append(&head.sent[device], "run:%llu ",
                      (unsigned long long)command->launches[i]->seq);
    }
    for (size_t i = 0; i < command->n_retire; i++) {
        pl_str_append(&head.sent[device], "retire:%u ",
                      wire_buffer_slot(command->retire[i]));
    }
    for (size_t i = 0; i < command->n_free; i++) {
        pl_str_append(&head.sent[device], "free:%u ", wire_buffer_slot(command->free[i]));
    }
}

static const struct head_ops ops = {.client_frame   = core_drop_frame,
                                    .worker_command = worker_command,
                                    .fence          = core_drop_fence,
                                    .session_ended  = core_drop_end,
                                    .random64       = core_count_up};

static void hello(uint32_t host_device, uint32_t incarnation)
{
    Plasmon__V1__WorkerHello hello = PLASMON__V1__WORKER_HELLO__INIT;
    struct pl_err err              = {0};
    uint32_t device;

    hello.host         = "a";
    hello.node         = "a";
    hello.name         = "test";
    hello.host_device  = host_device;
    hello.kind         = 1;
    hello.bytes_total  = 1 << 30;
    hello.incarnation  = incarnation;
    hello.peer_capable = 1;
    ASSERT_OK(head_core_worker_up(head.core, &hello, &device, &err));
    ASSERT_EQ(device, host_device);
    head_core_flush(head.core);
}

static void begin(uint32_t window)
{
    struct head_config config = {.ops = &ops, .retries = 1, .epoch = 1, .window = window};
    Plasmon__V1__Hello client = PLASMON__V1__HELLO__INIT;
    struct pl_err err         = {0};

    memset(&head, 0, sizeof(head));
    ASSERT_OK(wire_arena_init(&head.arena, WIRE_ARENA_BYTES_MAX));
    ASSERT_OK(head_core_create(&config, &head.core));
    for (uint32_t i = 0; i < DEVICES; i++) {
        pl_str_init(&head.sent[i]);
        hello(i, 1);
    }
    client.protocol_min = client.protocol_max = WIRE_PROTOCOL;
    ASSERT_OK(head_core_client_open(head.core, &client, &head.session, &err));
}

static void end(void)
{
    head_core_check(head.core);
    head_core_destroy(head.core);
    wire_arena_finish(&head.arena);
    for (uint32_t i = 0; i < DEVICES; i++) {
        pl_str_finish(&head.sent[i]);
    }
}

static const char *sent(uint32_t device)
{
    static char taken[4][1024];
    static unsigned turn;
    char *out = taken[turn++ % PL_COUNT(taken)];

    (void)snprintf(out, sizeof(taken[0]), "%s", pl_str_text(&head.sent[device]));
    pl_str_finish(&head.sent[device]);
    pl_str_init(&head.sent[device]);
    wire_arena_reset(&head.arena);
    return out;
}

/* Task `id` makes ref id + 100 on this device, out of ref `reads` (0: of nothing). */
static void submit(uint64_t id, uint64_t reads, uint32_t device)
{
    Plasmon__V1__ClientFrame frame = PLASMON__V1__CLIENT_FRAME__INIT;
    Plasmon__V1__Task task         = PLASMON__V1__TASK__INIT;
    Plasmon__V1__Arg arg[2]        = {PLASMON__V1__ARG__INIT, PLASMON__V1__ARG__INIT};
    Plasmon__V1__Shape shape       = PLASMON__V1__SHAPE__INIT;
    Plasmon__V1__Arg *args[2]      = {&arg[0], &arg[1]};
    Plasmon__V1__Task *tasks[1]    = {&task};
    struct pl_err err              = {0};
    uint64_t dim                   = 16;

    shape.dtype   = PL_F32;
    shape.n_dim   = 1;
    shape.dim     = &dim;
    arg[0].mode   = PLASMON__V1__MODE__MODE_OUT;
    arg[0].ref    = id + 100;
    arg[0].shape  = &shape;
    arg[1].mode   = PLASMON__V1__MODE__MODE_IN;
    arg[1].ref    = reads;
    task.id       = id;
    task.place    = device + 1;
    task.function = pl_hash_name(reads == 0 ? "fill" : "copy");
    task.args     = args;
    task.n_args   = reads == 0 ? 1 : 2;
    frame.tasks   = tasks;
    frame.n_tasks = 1;
    ASSERT_OK(head_core_client_frame(head.core, head.session, &frame, &err));
    head_core_flush(head.core);
}

static void release(uint64_t ref)
{
    Plasmon__V1__ClientFrame frame = PLASMON__V1__CLIENT_FRAME__INIT;
    Plasmon__V1__Range range       = PLASMON__V1__RANGE__INIT;
    Plasmon__V1__Range *ranges[1]  = {&range};
    struct pl_err err              = {0};

    range.first     = ref;
    range.count     = 1;
    frame.release   = ranges;
    frame.n_release = 1;
    ASSERT_OK(head_core_client_frame(head.core, head.session, &frame, &err));
    head_core_flush(head.core);
}

static void done(uint32_t device, uint64_t seq)
{
    Plasmon__V1__WorkerFrame frame = PLASMON__V1__WORKER_FRAME__INIT;
    Plasmon__V1__Range range       = PLASMON__V1__RANGE__INIT;
    Plasmon__V1__Range *ranges[1]  = {&range};
    struct pl_err err              = {0};

    range.first  = seq;
    range.count  = 1;
    frame.done   = ranges;
    frame.n_done = 1;
    ASSERT_OK(head_core_worker_frame(head.core, device, &frame, &err));
    head_core_flush(head.core);
}

TEST(a_buffer_is_retired_when_its_last_ref_goes_though_nothing_is_done)
{
    begin(0);
    submit(1, 0, 0);
    submit(2, 101, 0);
    ASSERT_STR(sent(0), "run:1 run:2 ");
    release(101);
    ASSERT_STR(sent(0), "retire:0 ");
    done(0, 1);
    ASSERT_STR(sent(0), "");
    done(0, 2);
    ASSERT_STR(sent(0), "free:0 ");
    end();
}

TEST(what_somebody_can_still_name_is_not_retired)
{
    begin(0);
    submit(1, 0, 0);
    submit(2, 101, 0);
    done(0, 1);
    ASSERT_STR(sent(0), "run:1 run:2 ");
    submit(3, 101, 0);
    release(101);
    ASSERT_STR(sent(0), "run:3 retire:0 ");
    release(102); /* nobody will read it, but who makes it is at it */
    ASSERT_STR(sent(0), "retire:1 ");
    done(0, 2);
    ASSERT_STR(sent(0), "free:1 ");
    done(0, 3);
    ASSERT_STR(sent(0), "free:0 ");
    end();
}

TEST(what_another_device_reads_is_only_freed)
{
    begin(0);
    submit(1, 0, 0);
    submit(2, 101, 1); /* a copy on device 1, and its reader */
    release(101);
    ASSERT_STR(sent(0), "run:1 ");
    ASSERT_STR(sent(1), "run:1 run:2 retire:1 "); /* the copy is of its own device */
    done(0, 1);
    done(1, 1);
    ASSERT_STR(sent(0), "free:0 ");
    ASSERT_STR(sent(1), "");
    done(1, 2);
    ASSERT_STR(sent(1), "free:1 ");
    end();
}

TEST(it_is_told_with_its_last_launch_and_not_before)
{
    begin(2);
    submit(1, 0, 0);
    submit(2, 101, 0);
    submit(3, 101, 0); /* waits here: the window is full */
    release(101);
    ASSERT_STR(sent(0), "run:1 run:2 ");
    done(0, 1);
    ASSERT_STR(sent(0), "run:3 retire:0 ");
    done(0, 2);
    done(0, 3);
    ASSERT_STR(sent(0), "free:0 ");
    end();
}

TEST_MAIN()
