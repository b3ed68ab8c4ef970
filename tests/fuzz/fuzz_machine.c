/*
 * A whole head, without its sockets, and what any peer may tell it: frames of a client, a worker and a store, in any order, after a beginning in
 * which all three are welcome. The input is a sequence of [who: 1 byte][length: 2 bytes, little-endian][body of a frame]; the header that
 * makes it that peer's is put before it. Whatever comes, the head refuses it or takes it, and no check of its own fails.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "head/machine.h"
#include "wire/wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define FRAMES_MAX 32

enum who {
    CLIENT,
    WORKER,
    NODE,
    CLIENT_GONE,
    WORKER_GONE,
    NODE_GONE,
    TICK,
    FLUSH,
    WHO_COUNT
};

struct fuzz {
    struct head_machine *machine;
    uint64_t session;
    uint32_t device;
    uint64_t now_ms;
    uint64_t drawn;
};

/* ------------------------------------------------------------------------------------------------ what it puts out */

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
    (void)user;
    (void)device;
    (void)why;
}

static void node_gone(void *user, const char *host, const char *why)
{
    (void)user;
    (void)host;
    (void)why;
}

static void spill(void *user, const char *host, const struct head_spill_op *op)
{
    (void)user;
    (void)host;
    (void)op;
}

/* The same at every run. */
static uint64_t random64(void *user)
{
    struct fuzz *fuzz = user;

    return ++fuzz->drawn * UINT64_C(0x9e3779b97f4a7c15) | 1;
}

static const struct head_machine_ops ops = {
    .client_send   = send_to_client,
    .worker_send   = send_to_worker,
    .fence         = fence,
    .session_ended = session_ended,
    .worker_gone   = worker_gone,
    .node_gone     = node_gone,
    .spill         = spill,
    .random64      = random64,
};

/* ------------------------------------------------------------------------------------------------ what it is told */

static plasmon_status_t tell(struct fuzz *fuzz, const struct head_input *input,
                             struct head_outcome *out)
{
    struct pl_err err       = {.status = PLASMON_OK};
    plasmon_status_t status = head_machine_input(fuzz->machine, input, out, &err);

    PL_CHECK(status == PLASMON_OK || err.text[0] != '\0');
    return status;
}

/* A first frame, as a store, worker or client says it. */
static struct head_outcome hello(struct fuzz *fuzz, enum head_input_type type,
                                 const ProtobufCMessage *message)
{
    uint8_t bytes[512];
    struct head_outcome out = {0};
    struct head_input input = {.type = type};

    PL_CHECK(protobuf_c_message_get_packed_size(message) <= sizeof(bytes));
    input.strings[0].length = protobuf_c_message_pack(message, bytes);
    input.strings[0].bytes  = bytes;
    PL_CHECK(tell(fuzz, &input, &out) == PLASMON_OK);
    return out;
}

static void begin(struct fuzz *fuzz)
{
    const struct head_machine_config config = {
        .ops = &ops, .user = fuzz, .record = true, .kept_bytes_max = 1 << 20};
    const struct head_settings settings = {.epoch         = 5,
                                           .retries       = UINT32_MAX,
                                           .lineage_bytes = 1 << 20,
                                           .node_lease_ms = 10000};
    Plasmon__V1__Header header          = PLASMON__V1__HEADER__INIT;
    Plasmon__V1__NodeFrame node         = PLASMON__V1__NODE_FRAME__INIT;
    Plasmon__V1__NodeHello node_hello   = PLASMON__V1__NODE_HELLO__INIT;
    Plasmon__V1__WorkerFrame work       = PLASMON__V1__WORKER_FRAME__INIT;
    Plasmon__V1__WorkerHello work_hello = PLASMON__V1__WORKER_HELLO__INIT;
    Plasmon__V1__ClientFrame client     = PLASMON__V1__CLIENT_FRAME__INIT;
    Plasmon__V1__Hello client_hello     = PLASMON__V1__HELLO__INIT;
    struct head_input spill_up          = {.type    = HEAD_INPUT_SPILL_UP,
                                           .numbers = {1 << 20, 1 << 20, 7, 0},
                                           .strings = {head_string("h")}};
    struct pl_err err;

    PL_CHECK(head_machine_create(&config, &fuzz->machine) == PLASMON_OK);
    PL_CHECK(head_machine_begin(fuzz->machine, &settings, &err) == PLASMON_OK);
    header.protocol    = WIRE_PROTOCOL;
    node_hello.host    = (char *)(uintptr_t) "h";
    node_hello.node    = (char *)(uintptr_t) "n";
    node_hello.devices = 2;
    node.header        = &header;
    node.hello         = &node_hello;
    (void)hello(fuzz, HEAD_INPUT_NODE_UP, &node.base);
    PL_CHECK(tell(fuzz, &spill_up, NULL) == PLASMON_OK);
    work_hello.host         = node_hello.host;
    work_hello.node         = node_hello.node;
    work_hello.kind         = 1;
    work_hello.bytes_total  = 1 << 20;
    work_hello.incarnation  = 1;
    work_hello.peer_capable = 1;
    work.header             = &header;
    work.hello              = &work_hello;
    for (uint32_t i = 0; i < 2; i++) {
        work_hello.host_device = i;
        fuzz->device           = hello(fuzz, HEAD_INPUT_WORKER_UP, &work.base).device;
        head_machine_worker_welcome(fuzz->machine, fuzz->device);
    }
    client_hello.protocol_min = client_hello.protocol_max = WIRE_PROTOCOL;
    client.header                                         = &header;
    client.hello                                          = &client_hello;
    fuzz->session = hello(fuzz, HEAD_INPUT_CLIENT_OPEN, &client.base).session;
    head_machine_client_welcome(fuzz->machine, fuzz->session, "h");
}

static void frame(struct fuzz *fuzz, enum head_input_type type, uint64_t number,
                  uint64_t session, const uint8_t *body, size_t length)
{
    Plasmon__V1__Header header = PLASMON__V1__HEADER__INIT;
    struct head_input input    = {.type = type, .numbers = {number}};
    struct head_outcome out    = {0};
    uint8_t *bytes             = pl_alloc(length + 128);
    size_t header_bytes;

    PL_CHECK(bytes != NULL);
    header.protocol = WIRE_PROTOCOL;
    header.epoch    = 5;
    header.session  = session;
    header_bytes    = plasmon__v1__header__pack(&header, bytes + 2);
    bytes[0]        = 1 << 3 | 2;
    bytes[1]        = (uint8_t)header_bytes;
    memcpy(bytes + 2 + header_bytes, body, length);
    input.strings[0] = (struct head_string){bytes, 2 + header_bytes + length};
    (void)tell(fuzz, &input,
               &out); /* refused: its stream would end, and it is told no more */
    pl_free(bytes);
}

/* As head/serve_nodes.c does with a frame of a store. */
static void node_frame(struct fuzz *fuzz, const uint8_t *body, size_t length)
{
    Plasmon__V1__NodeFrame *node = plasmon__v1__node_frame__unpack(NULL, length, body);

    for (size_t i = 0; node != NULL && i < node->n_down; i++) {
        const Plasmon__V1__WorkerDown *down = node->down[i];
        struct head_input input             = {.type    = HEAD_INPUT_WORKER_DOWN,
                                               .numbers = {down->host_device, down->incarnation,
                                                           down->quarantined != 0,
                                                           (uint32_t)down->status},
                                               .strings = {head_string("h"), head_string(down->text)}};

        (void)tell(fuzz, &input, NULL);
    }
    for (size_t i = 0; node != NULL && i < node->n_spill_done; i++) {
        const Plasmon__V1__SpillDone *done = node->spill_done[i];
        struct head_input input            = {
                       .type    = HEAD_INPUT_SPILL_DONE,
                       .numbers = {done->id, (uint32_t)done->status, done->host_buffer},
                       .strings = {head_string("h"), head_string(done->text)}};

        (void)tell(fuzz, &input, NULL);
    }
    if (node != NULL) {
        plasmon__v1__node_frame__free_unpacked(node, NULL);
    }
}

static void step(struct fuzz *fuzz, enum who who, const uint8_t *body, size_t length)
{
    struct head_input input = {.numbers = {fuzz->session, fuzz->now_ms}};

    switch (who) {
    case CLIENT:
        frame(fuzz, HEAD_INPUT_CLIENT_FRAME, fuzz->session, fuzz->session, body, length);
        return;
    case WORKER:
        frame(fuzz, HEAD_INPUT_WORKER_FRAME, fuzz->device, 0, body, length);
        return;
    case NODE:
        node_frame(fuzz, body, length);
        return;
    case CLIENT_GONE:
        input.type = HEAD_INPUT_CLIENT_LOST;
        break;
    case WORKER_GONE:
        input.type       = HEAD_INPUT_WORKER_LOST;
        input.numbers[0] = fuzz->device;
        break;
    case NODE_GONE:
        input.type       = HEAD_INPUT_NODE_LOST;
        input.numbers[0] = fuzz->now_ms;
        input.strings[0] = head_string("h");
        break;
    case TICK:
        fuzz->now_ms += 20000;
        head_machine_tick(fuzz->machine, fuzz->now_ms);
        return;
    case FLUSH:
    case WHO_COUNT:
        head_machine_flush(fuzz->machine);
        return;
    }
    (void)tell(fuzz, &input, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz fuzz = {.now_ms = 1000};
    size_t at        = 0;

    pl_log_set_level(PL_LOG_ERROR);
    begin(&fuzz);
    for (unsigned i = 0; i < FRAMES_MAX && at + 3 <= size; i++) {
        enum who who  = (enum who)(data[at] % WHO_COUNT);
        size_t length = data[at + 1] | (size_t)data[at + 2] << 8;

        at += 3;
        length = pl_min_u64(length, size - at);
        step(&fuzz, who, data + at, length);
        head_machine_flush(fuzz.machine);
        at += length;
    }
    step(&fuzz, TICK, NULL, 0);
    head_machine_flush(fuzz.machine);
    head_machine_destroy(fuzz.machine);
    return 0;
}
