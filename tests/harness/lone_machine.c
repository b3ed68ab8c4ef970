#include "tests/harness/lone_machine.h"

static void send_to_client(void *user, uint64_t session, const uint8_t *bytes,
                           size_t length)
{
    (void)user;
    (void)session;
    (void)bytes;
    (void)length;
}

static void send_to_worker(void *user, uint32_t device, const uint8_t *bytes, size_t length)
{
    (void)user;
    (void)device;
    (void)bytes;
    (void)length;
}

static void fence(void *user, const char *host, uint32_t host_device, uint32_t incarnation)
{
    (void)user;
    (void)host;
    (void)host_device;
    (void)incarnation;
}

static void session_ended(void *user, uint64_t session)
{
    (void)user;
    (void)session;
}

static void worker_gone(void *user, uint32_t device, const char *why)
{
    struct lone_machine *lone = user;

    (void)device;
    (void)why;
    lone->workers_gone++;
}

static void node_gone(void *user, const char *host, const char *why)
{
    struct lone_machine *lone = user;

    (void)host;
    (void)why;
    lone->nodes_gone++;
}

static void spill(void *user, const char *host, const struct head_spill_op *op)
{
    (void)user;
    (void)host;
    (void)op;
}

static uint64_t random64(void *user)
{
    struct lone_machine *lone = user;

    return ++lone->drawn * UINT64_C(0x9e3779b97f4a7c15) | 1;
}

const struct head_machine_ops lone_machine_ops = {
    .client_send   = send_to_client,
    .worker_send   = send_to_worker,
    .fence         = fence,
    .session_ended = session_ended,
    .worker_gone   = worker_gone,
    .node_gone     = node_gone,
    .spill         = spill,
    .random64      = random64,
};
