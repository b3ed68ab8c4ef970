#include "tests/unit/head/core.h"

#include <string.h>

#include "tests/harness/test.h"

void core_drop_frame(void *user, uint64_t session, const uint8_t *body, size_t length)
{
    (void)user;
    (void)session;
    (void)body;
    (void)length;
}

uint32_t core_commands;

void core_drop_command(void *user, uint32_t device, const uint8_t *body, size_t length)
{
    (void)user;
    (void)device;
    (void)body;
    (void)length;
    core_commands++;
}

void core_drop_fence(void *user, uint32_t device)
{
    (void)user;
    (void)device;
}

void core_drop_end(void *user, uint64_t session)
{
    (void)user;
    (void)session;
}

void core_drop_spill(void *user, const char *host, const struct head_spill_op *op)
{
    (void)user;
    (void)host;
    (void)op;
}

uint64_t core_count_up(void *user)
{
    static uint64_t last = 1000;

    (void)user;
    return ++last;
}

uint8_t *core_frame(struct wire_arena *arena, const uint8_t *body, size_t *io_length)
{
    Plasmon__V1__Header header = PLASMON__V1__HEADER__INIT;
    size_t bytes;
    uint8_t *frame;

    header.protocol = WIRE_PROTOCOL;
    header.epoch    = 1;
    header.seq      = 1;
    bytes           = plasmon__v1__header__get_packed_size(&header);
    frame           = wire_arena_alloc(arena, 2 + bytes + *io_length);
    PL_CHECK(frame != NULL && bytes < 128);
    frame[0] = 1 << 3 | 2;
    frame[1] = (uint8_t)bytes;
    (void)plasmon__v1__header__pack(&header, frame + 2);
    memcpy(frame + 2 + bytes, body, *io_length);
    *io_length += 2 + bytes;
    return frame;
}

static const struct head_ops ops = {.client_frame   = core_drop_frame,
                                    .worker_command = core_drop_command,
                                    .fence          = core_drop_fence,
                                    .session_ended  = core_drop_end,
                                    .random64       = core_count_up,
                                    .spill          = core_drop_spill};

struct head_core *core_make(void)
{
    return core_make_timed(NULL);
}

struct head_core *core_make_timed(struct head_times *times)
{
    struct head_config config = {
        .ops = &ops, .retries = UINT32_MAX, .epoch = 1, .times = times};
    struct head_core *core;

    ASSERT_OK(head_core_create(&config, &core));
    head_core_tick(core, 1);
    return core;
}

void core_announce(struct head_core *core, const char *node, uint32_t devices)
{
    struct pl_err err = {0};

    ASSERT_OK(head_core_node_up(core, node, node, devices, false, &err));
}

static uint32_t worker_up(struct head_core *core, const char *node, uint32_t host_device,
                          uint64_t bytes, bool reachable)
{
    Plasmon__V1__WorkerHello hello         = PLASMON__V1__WORKER_HELLO__INIT;
    uint8_t secret[WIRE_BULK_SECRET_BYTES] = {1};
    struct pl_err err                      = {0};
    uint32_t device;

    hello.host         = (char *)(uintptr_t)node;
    hello.node         = (char *)(uintptr_t)node;
    hello.name         = (char *)(uintptr_t) "test";
    hello.host_device  = host_device;
    hello.kind         = 1;
    hello.bytes_total  = bytes;
    hello.incarnation  = 1;
    hello.peer_capable = true;
    if (reachable) {
        hello.bulk_address     = (char *)(uintptr_t) "127.0.0.1:1";
        hello.bulk_secret.data = secret;
        hello.bulk_secret.len  = sizeof(secret);
    }
    ASSERT_OK(head_core_worker_up(core, &hello, &device, &err));
    return device;
}

uint32_t core_join(struct head_core *core, const char *node, uint32_t host_device)
{
    return worker_up(core, node, host_device, 1 << 20, false);
}

uint32_t core_join_reachable(struct head_core *core, const char *node, uint32_t host_device,
                             uint64_t bytes)
{
    return worker_up(core, node, host_device, bytes, true);
}

uint64_t core_client(struct head_core *core)
{
    Plasmon__V1__Hello hello = PLASMON__V1__HELLO__INIT;
    struct pl_err err        = {0};
    uint64_t session;

    hello.protocol_min = hello.protocol_max = WIRE_PROTOCOL;
    ASSERT_OK(head_core_client_open(core, &hello, &session, &err));
    return session;
}

void core_fail(struct head_core *core, uint32_t device, uint64_t seq,
               plasmon_status_t status, const char *text)
{
    Plasmon__V1__WorkerFrame frame     = PLASMON__V1__WORKER_FRAME__INIT;
    Plasmon__V1__LaunchFailure failure = PLASMON__V1__LAUNCH_FAILURE__INIT;
    Plasmon__V1__LaunchFailure *list[] = {&failure};
    struct pl_err err                  = {0};

    failure.seq    = seq;
    failure.status = (int32_t)status;
    failure.text   = (char *)(uintptr_t)text;
    frame.failed   = list;
    frame.n_failed = 1;
    ASSERT_OK(head_core_worker_frame(core, device, &frame, &err));
    head_core_flush(core);
    head_core_check(core);
}

void core_submit(struct head_core *core, uint64_t session, uint64_t id, uint32_t device,
                 uint64_t ref, uint64_t *dim, size_t ndim)
{
    Plasmon__V1__ClientFrame frame = PLASMON__V1__CLIENT_FRAME__INIT;
    Plasmon__V1__Task task         = PLASMON__V1__TASK__INIT;
    Plasmon__V1__Arg arg           = PLASMON__V1__ARG__INIT;
    Plasmon__V1__Shape shape       = PLASMON__V1__SHAPE__INIT;
    Plasmon__V1__Arg *args[1]      = {&arg};
    Plasmon__V1__Task *tasks[1]    = {&task};
    struct pl_err err              = {0};

    shape.dtype   = PL_F32;
    shape.n_dim   = ndim;
    shape.dim     = dim;
    arg.mode      = ref == 0 ? PLASMON__V1__MODE__MODE_OUT : PLASMON__V1__MODE__MODE_IN;
    arg.ref       = ref == 0 ? id + 100 : ref;
    arg.shape     = ref == 0 ? &shape : NULL;
    task.id       = id;
    task.place    = device + 1;
    task.function = pl_hash_name(ref == 0 ? "fill" : "touch");
    task.args     = args;
    task.n_args   = 1;
    frame.tasks   = tasks;
    frame.n_tasks = 1;
    ASSERT_OK(head_core_client_frame(core, session, &frame, &err));
    head_core_flush(core);
}

void core_put(uint64_t id, uint64_t offset, uint64_t bytes,
              void (*send)(Plasmon__V1__ClientFrame *frame))
{
    static uint8_t data[4 * sizeof(float)];
    Plasmon__V1__ClientFrame frame = PLASMON__V1__CLIENT_FRAME__INIT;
    Plasmon__V1__Task task = PLASMON__V1__TASK__INIT, *tasks[1] = {&task};
    Plasmon__V1__Arg arg = PLASMON__V1__ARG__INIT, *args[1] = {&arg};
    Plasmon__V1__Shape shape = PLASMON__V1__SHAPE__INIT;
    uint64_t dim             = PL_COUNT(data) / sizeof(float);

    shape.dtype     = PL_F32;
    shape.n_dim     = 1;
    shape.dim       = &dim;
    arg.mode        = PLASMON__V1__MODE__MODE_OUT;
    arg.ref         = 1;
    arg.shape       = &shape;
    task.id         = id;
    task.kind       = PLASMON__V1__TASK_KIND__TASK_PUT;
    task.args       = args;
    task.n_args     = 1;
    task.place      = 1;
    task.data.data  = data;
    task.data.len   = bytes;
    task.put_offset = offset;
    frame.tasks     = tasks;
    frame.n_tasks   = 1;
    send(&frame);
}
