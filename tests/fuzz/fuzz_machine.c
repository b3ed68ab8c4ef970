/*
 * A whole head, without its sockets, and what any peer may tell it: frames of a client, a worker
 * and a store, in any order, after a beginning in which all three are welcome. The input is a
 * sequence of [who: 1 byte][length: 2 bytes, little-endian][body of a frame]; the header that makes
 * it that peer's is put before it. Whatever comes, the head refuses it or takes it, and no check of
 * its own fails.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "tests/fuzz/head.h"
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

static void frame(struct fuzz_head *fuzz, enum head_input_type type, uint64_t number,
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
    (void)fuzz_head_tell(fuzz, &input,
                         &out); /* refused: its stream would end, and it is told no more */
    pl_free(bytes);
}

/* As head/serve_nodes.c does with a frame of a store. */
static void node_frame(struct fuzz_head *fuzz, const uint8_t *body, size_t length)
{
    Plasmon__V1__NodeFrame *node = plasmon__v1__node_frame__unpack(NULL, length, body);

    for (size_t i = 0; node != NULL && i < node->n_down; i++) {
        const Plasmon__V1__WorkerDown *down = node->down[i];
        struct head_input input             = {.type    = HEAD_INPUT_WORKER_DOWN,
                                               .numbers = {down->host_device, down->incarnation,
                                                           down->quarantined != 0,
                                                           (uint32_t)down->status},
                                               .strings = {head_string("h"), head_string(down->text)}};

        (void)fuzz_head_tell(fuzz, &input, NULL);
    }
    for (size_t i = 0; node != NULL && i < node->n_spill_done; i++) {
        const Plasmon__V1__SpillDone *done = node->spill_done[i];
        struct head_input input            = {
                       .type    = HEAD_INPUT_SPILL_DONE,
                       .numbers = {done->id, (uint32_t)done->status, done->host_buffer, done->bytes},
                       .strings = {head_string("h"), head_string(done->text)}};

        (void)fuzz_head_tell(fuzz, &input, NULL);
    }
    if (node != NULL) {
        plasmon__v1__node_frame__free_unpacked(node, NULL);
    }
}

static void step(struct fuzz_head *fuzz, enum who who, const uint8_t *body, size_t length)
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
    (void)fuzz_head_tell(fuzz, &input, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_head fuzz;
    size_t at = 0;

    pl_log_set_level(PL_LOG_ERROR);
    fuzz_head_begin(&fuzz);
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
