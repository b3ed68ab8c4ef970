#include "tests/fuzz/head.h"

#include "wire/wire.h"

/* ---------------------------------------------------------------------- what it is told */

plasmon_status_t fuzz_head_tell(struct fuzz_head *head, const struct head_input *input,
                                struct head_outcome *out)
{
    struct pl_err err       = {.status = PLASMON_OK};
    plasmon_status_t status = head_machine_input(head->machine, input, out, &err);

    PL_CHECK(status == PLASMON_OK || err.text[0] != '\0');
    return status;
}

/* A first frame, as a store, worker or client says it. */
static struct head_outcome hello(struct fuzz_head *head, enum head_input_type type,
                                 const ProtobufCMessage *message)
{
    uint8_t bytes[512];
    struct head_outcome out = {0};
    struct head_input input = {.type = type};

    PL_CHECK(protobuf_c_message_get_packed_size(message) <= sizeof(bytes));
    input.strings[0].length = protobuf_c_message_pack(message, bytes);
    input.strings[0].bytes  = bytes;
    PL_CHECK(fuzz_head_tell(head, &input, &out) == PLASMON_OK);
    return out;
}

void fuzz_head_begin(struct fuzz_head *head)
{
    const struct head_machine_config config = {.ops            = &lone_machine_ops,
                                               .user           = &head->lone,
                                               .record         = true,
                                               .kept_bytes_max = 1 << 20};
    const struct head_settings settings     = {.epoch         = 5,
                                               .retries       = UINT32_MAX,
                                               .lineage_bytes = 1 << 20,
                                               .shadow_bytes  = 64,
                                               .node_lease_ms = 10000};
    Plasmon__V1__Header header              = PLASMON__V1__HEADER__INIT;
    Plasmon__V1__NodeFrame node             = PLASMON__V1__NODE_FRAME__INIT;
    Plasmon__V1__NodeHello node_hello       = PLASMON__V1__NODE_HELLO__INIT;
    Plasmon__V1__WorkerFrame work           = PLASMON__V1__WORKER_FRAME__INIT;
    Plasmon__V1__WorkerHello work_hello     = PLASMON__V1__WORKER_HELLO__INIT;
    Plasmon__V1__ClientFrame client         = PLASMON__V1__CLIENT_FRAME__INIT;
    Plasmon__V1__Hello client_hello         = PLASMON__V1__HELLO__INIT;
    struct head_input spill_up              = {.type    = HEAD_INPUT_SPILL_UP,
                                               .numbers = {1 << 20, 1 << 20, 7, 0, 75, 0},
                                               .strings = {head_string("h")}};
    struct pl_err err;

    *head = (struct fuzz_head){.now_ms = 1000};
    PL_CHECK(head_machine_create(&config, &head->machine) == PLASMON_OK);
    PL_CHECK(head_machine_begin(head->machine, &settings, &err) == PLASMON_OK);
    header.protocol    = WIRE_PROTOCOL;
    node_hello.host    = (char *)(uintptr_t) "h";
    node_hello.node    = (char *)(uintptr_t) "n";
    node_hello.devices = 2;
    node_hello.memory  = 7;
    node.header        = &header;
    node.hello         = &node_hello;
    (void)hello(head, HEAD_INPUT_NODE_UP, &node.base);
    PL_CHECK(fuzz_head_tell(head, &spill_up, NULL) == PLASMON_OK);
    work_hello.host         = node_hello.host;
    work_hello.node         = node_hello.node;
    work_hello.kind         = 1;
    work_hello.memory       = node_hello.memory;
    work_hello.bytes_total  = 1 << 20;
    work_hello.incarnation  = 1;
    work_hello.peer_capable = 1;
    work.header             = &header;
    work.hello              = &work_hello;
    for (uint32_t i = 0; i < 2; i++) {
        work_hello.host_device = i;
        head->device           = hello(head, HEAD_INPUT_WORKER_UP, &work.base).device;
        head_machine_worker_welcome(head->machine, head->device);
    }
    client_hello.protocol_min = client_hello.protocol_max = WIRE_PROTOCOL;
    client.header                                         = &header;
    client.hello                                          = &client_hello;
    head->session = hello(head, HEAD_INPUT_CLIENT_OPEN, &client.base).session;
    head_machine_client_welcome(head->machine, head->session, "h");
}
