/*
 * What changes the head: everything that its state machine (machine.h) is told, as records. The
 * state of the head is a function of the sequence of its inputs and of nothing else; who has the
 * records can make the head again.
 *
 * A record is a type, as many numbers (varints) and as many strings (length, bytes) as the type
 * says; a batch is a checked sequence of records. Frames of clients, workers and stores are in
 * there as they came, so they are versioned by the protocol.
 *
 *   batch: "PJ", version (BATCH_VERSION in input.c), 0, length of the records (u32), CRC-32C of
 *          them (u32), records (all little-endian)
 *
 * Decoding never reads outside the batch, whatever is in it; it knows nothing of what the records mean.
 */
#ifndef HEAD_INPUT_H
#define HEAD_INPUT_H

#include <string.h>

#include "head/bytes.h"

enum head_input_type {
    /*
     * epoch, transfer, window, retries, credit, lease_ms, chain_bytes, node_lease_ms,
     * lineage_bytes, shadow_bytes, nccl_bytes, reach_wait_ms; policy
     */
    HEAD_INPUT_BEGIN = 1,
    HEAD_INPUT_RESTART, /* now_ms, grace_ms: another process goes on; every connection is gone */
    HEAD_INPUT_RANDOM,        /* a number that was drawn by the input before it */
    HEAD_INPUT_TICK,          /* now_ms */
    HEAD_INPUT_FLUSH,         /* the input ran dry */
    HEAD_INPUT_TIME,          /* realtime_ns */
    HEAD_INPUT_CLIENT_OPEN,   /* the hello's frame */
    HEAD_INPUT_CLIENT_FRAME,  /* session; frame */
    HEAD_INPUT_CLIENT_LOST,   /* session, now_ms */
    HEAD_INPUT_CLIENT_RESUME, /* session, what it has of us */
    HEAD_INPUT_CLIENT_CLOSE,  /* session */
    HEAD_INPUT_NODE_UP,       /* the hello's frame */
    HEAD_INPUT_NODE_LOST,     /* now_ms; host */
    HEAD_INPUT_NODE_LEAVE,    /* deadline_ms; host */
    HEAD_INPUT_DRAIN,         /* deadline_ms; node */
    HEAD_INPUT_DRAIN_UNDO,    /* node */
    HEAD_INPUT_WORKER_UP,     /* the hello's frame */
    HEAD_INPUT_WORKER_FRAME,  /* device; frame */
    HEAD_INPUT_WORKER_LOST,   /* device */
    HEAD_INPUT_WORKER_DOWN,   /* host device, incarnation, final, status; host, why */
    HEAD_INPUT_SPILL_UP, /* memory_bytes, file_bytes, life, slab, write_back, on_demand; host */
    HEAD_INPUT_SPILL_DONE, /* id, status, host buffer, bytes of it; host, text */
    HEAD_INPUT_NAMESPACES, /* there are none but those that follow; none follow: any may be named */
    HEAD_INPUT_NAMESPACE, /* quotas: bytes, tasks, message_bytes, sessions; name */
    HEAD_INPUT_TYPES,
};

enum { HEAD_INPUT_NUMBERS_MAX = 12, HEAD_INPUT_STRINGS_MAX = 2 };

struct head_string {
    const uint8_t *bytes; /* borrowed */
    size_t length;
};

struct head_input {
    enum head_input_type type;
    uint64_t numbers[HEAD_INPUT_NUMBERS_MAX];
    struct head_string strings[HEAD_INPUT_STRINGS_MAX];
};

static inline struct head_string head_string(const char *text)
{
    return (struct head_string){.bytes = (const uint8_t *)text, .length = strlen(text)};
}

void head_input_append(struct head_bytes *out, const struct head_input *input);

/* The records of a batch, one after the other. */
struct head_input_reader {
    const uint8_t *at;
    const uint8_t *end;
};
/*
 * A batch, or a checkpoint (checkpoint.h), in a head of 12 bytes: room for it first, at last the
 * head itself.
 */
#define HEAD_BLOB_BATCH      'J'
#define HEAD_BLOB_CHECKPOINT 'C'
void head_blob_begin(struct head_bytes *out);
void head_blob_end(struct head_bytes *out, char kind);
/* EMALFORMED, EVERSION: not such a one, damaged, or of another version. */
plasmon_status_t head_blob_open(const uint8_t *bytes, size_t length, char kind,
                                struct head_input_reader *out,
                                struct pl_err *err) PL_MUST_CHECK;
bool head_input_batch_empty(const struct head_bytes *out);
static inline bool head_input_end(const struct head_input_reader *reader)
{
    return reader->at == reader->end;
}
/* Strings point into the batch. EMALFORMED. */
plasmon_status_t head_input_next(struct head_input_reader *reader, struct head_input *out,
                                 struct pl_err *err) PL_MUST_CHECK;
const char *head_input_name(enum head_input_type type);

uint32_t head_crc32c(uint32_t crc, const uint8_t *bytes, size_t length);

#endif
