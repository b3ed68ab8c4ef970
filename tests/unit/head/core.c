#include "tests/unit/head/core.h"

#include "tests/harness/test.h"

static void drop_frame(void *user, uint64_t session, const uint8_t *body, size_t length)
{
    (void)user;
    (void)session;
    (void)body;
    (void)length;
}

static void drop_command(void *user, uint32_t device, const uint8_t *body, size_t length)
{
    (void)user;
    (void)device;
    (void)body;
    (void)length;
}

static void drop_fence(void *user, uint32_t device)
{
    (void)user;
    (void)device;
}

static void drop_session(void *user, uint64_t session)
{
    (void)user;
    (void)session;
}

static uint64_t count_up(void *user)
{
    static uint64_t last;

    (void)user;
    return ++last;
}

static const struct head_ops ops = {.client_frame   = drop_frame,
                                    .worker_command = drop_command,
                                    .fence          = drop_fence,
                                    .session_ended  = drop_session,
                                    .random64       = count_up};

struct head_core *core_make(void)
{
    struct head_config config = {.ops = &ops, .retries = UINT32_MAX, .epoch = 1};
    struct head_core *core;

    ASSERT_OK(head_core_create(&config, &core));
    head_core_tick(core, 1);
    return core;
}

void core_announce(struct head_core *core, const char *node, uint32_t devices)
{
    struct pl_err err = {0};

    ASSERT_OK(head_core_node_up(core, node, node, devices, &err));
}

uint32_t core_join(struct head_core *core, const char *node, uint32_t host_device)
{
    Plasmon__V1__WorkerHello hello = PLASMON__V1__WORKER_HELLO__INIT;
    struct pl_err err              = {0};
    uint32_t device;

    hello.host         = (char *)(uintptr_t)node;
    hello.node         = (char *)(uintptr_t)node;
    hello.name         = (char *)(uintptr_t) "test";
    hello.host_device  = host_device;
    hello.kind         = 1;
    hello.bytes_total  = 1 << 20;
    hello.incarnation  = 1;
    hello.peer_capable = true;
    ASSERT_OK(head_core_worker_up(core, &hello, &device, &err));
    return device;
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
