/*
 * Any bytes into one decoder of wire/ (FUZZ_DECODE). What it takes must encode again, and those
 * bytes must decode again and encode to themselves; what it refuses must come with a status and a
 * text, and cost no more memory than the cap.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "wire/wire.h"

#if defined(FUZZ_FRAME_client_frame)
typedef Plasmon__V1__ClientFrame fuzz_frame;
#elif defined(FUZZ_FRAME_head_frame)
typedef Plasmon__V1__HeadFrame fuzz_frame;
#elif defined(FUZZ_FRAME_worker_frame)
typedef Plasmon__V1__WorkerFrame fuzz_frame;
#elif defined(FUZZ_FRAME_worker_command)
typedef Plasmon__V1__WorkerCommand fuzz_frame;
#elif defined(FUZZ_FRAME_node_frame)
typedef Plasmon__V1__NodeFrame fuzz_frame;
#elif defined(FUZZ_FRAME_node_command)
typedef Plasmon__V1__NodeCommand fuzz_frame;
#endif

#define FUZZ_ARENA_BYTES ((size_t)4 << 20)

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);

static struct wire_arena arenas[2];

static uint8_t *create(size_t length)
{
    return pl_alloc(length);
}

/* Abort, also in a build without assertions. */
static void want(int condition)
{
    if (!condition) {
        abort();
    }
}

/*
 * Unknown fields are kept as they came, and some malformed ones cannot be written again: they go,
 * at every depth.
 */
static void drop_unknown(ProtobufCMessage *message)
{
    message->n_unknown_fields = 0;
    message->unknown_fields   = NULL;
    for (unsigned i = 0; i < message->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &message->descriptor->fields[i];
        uint8_t *member                       = (uint8_t *)message + field->offset;
        ProtobufCMessage *one, **list;
        size_t count = 1;

        if (field->type != PROTOBUF_C_TYPE_MESSAGE) {
            continue;
        }
        if (field->label == PROTOBUF_C_LABEL_REPEATED) {
            memcpy(&count, (uint8_t *)message + field->quantifier_offset, sizeof(count));
            memcpy(&list, member, sizeof(list));
        } else {
            memcpy(&one, member, sizeof(one));
            list  = &one;
            count = one != NULL;
        }
        for (size_t m = 0; m < count; m++) {
            drop_unknown(list[m]);
        }
    }
}

static void check_taken(fuzz_frame *frame)
{
    struct pl_err err       = {.status = PLASMON_OK};
    fuzz_frame *again_frame = NULL;
    uint8_t *once, *again;
    size_t once_length, again_length;

    drop_unknown(&frame->base);
    want(wire_encode(&frame->base, create, &once, &once_length) == PLASMON_OK);
    want(FUZZ_DECODE(&arenas[1], once, once_length, &again_frame, &err) == PLASMON_OK);

    want(wire_encode(&again_frame->base, create, &again, &again_length) == PLASMON_OK);
    want(once_length == again_length && memcmp(once, again, once_length) == 0);
    pl_free(once);
    pl_free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    struct pl_err err = {.status = PLASMON_OK};
    fuzz_frame *frame = NULL;
    plasmon_status_t status;

    for (size_t i = 0; i < 2; i++) {
        if (arenas[i].block == NULL && arenas[i].bytes_max == 0) {
            want(wire_arena_init(&arenas[i], FUZZ_ARENA_BYTES) == PLASMON_OK);
        }
        wire_arena_reset(&arenas[i]);
    }

    status = FUZZ_DECODE(&arenas[0], bytes, length, &frame, &err);
    want(arenas[0].total <= FUZZ_ARENA_BYTES);
    if (status == PLASMON_OK) {
        want(frame != NULL);
        check_taken(frame);
    } else {
        want(frame == NULL && err.status == status && err.text[0] != '\0');
    }
    return 0;
}
