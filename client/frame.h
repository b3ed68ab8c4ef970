/*
 * The batch of operations that the next ClientFrame will carry, kept as the bytes of its fields.
 *
 * Protobuf fields of a message may be concatenated, so a task is encoded once, when it is
 * submitted, straight into the batch: no tree of structs, no second pass. The header is put before
 * them when the frame is cut.
 *
 * ORDER
 *
 * Inside a frame the head takes the tasks first and everything else after them, in no promised
 * order. So an operation may join a batch only if that changes nothing: tasks and releases (a task
 * cannot name a ref that was released before it), then operations of one other kind. frame_admits()
 * tells; when it says no, the session cuts the frame and starts the next.
 *
 * Tasks before releases also means that a frame needs memory for both. So behind the release of
 * much memory nothing is added that may want it: who lets 10 GiB go and makes 10 others needs room
 * for 10. Not behind every release, for a frame a task costs more than all else.
 *
 * Threads: the owner's lock.
 */
#ifndef CLIENT_FRAME_H
#define CLIENT_FRAME_H

#include <stdbool.h>

#include "wire/wire.h"

/* one message of 256 tasks costs 0.5 us a task in gRPC; more gains nothing */
#define FRAME_TASKS_CUT 256u
#define FRAME_BYTES_CUT (64u << 10) /* and 64 KiB bound the latency of what waits behind */
#define FRAME_RELEASED_CUT \
    (16u                   \
     << 20) /* bytes: what a device of 256 MiB or more keeps free anyhow (head/spill.c) */

enum frame_kind {
    FRAME_TASK          = 0,
    FRAME_RELEASE       = 1,
    FRAME_LOCATE        = 5, /* from here on: field numbers of ClientFrame */
    FRAME_READ          = 6,
    FRAME_CANCEL        = 7,
    FRAME_PUT_OPEN      = 8,
    FRAME_PUT_SEAL      = 9,
    FRAME_PUBLISH       = 10,
    FRAME_LOOKUP        = 11,
    FRAME_PING          = 12,
    FRAME_BYE           = 13,
    FRAME_CANCEL_FORCE  = 20,
    FRAME_GRAPH_RELEASE = 14,
    FRAME_TRACE         = 21,
    FRAME_HOST_COPIES   = 22,
    FRAME_DEFINE        = 15,
    FRAME_FUNCTION_WAIT = 16,
};

struct frame {
    uint8_t *bytes;
    size_t length;
    size_t capacity;
    uint32_t task_count;
    struct pl_vec released; /* struct wire_range */
    uint64_t released_bytes;
    enum frame_kind last; /* kind of what was added last */
    bool empty;
};

struct frame_arg {
    uint32_t mode;
    uint64_t ref;
    const struct pl_view *view;   /* NULL: the whole */
    const struct pl_shape *shape; /* NULL: not sent */
    uint32_t reduce_op;
    bool relaxed;
    bool dense;
    /* view->ndim numbers for each dimension of the task's index; NULL: none */
    const int64_t *index_step;
};

struct frame_binding {
    uint64_t recorded;
    uint64_t ref;
};
struct frame_scalar {
    uint32_t task;
    uint32_t position;
    uint64_t bits;
};
struct frame_index {
    uint32_t ndim;
    uint64_t count[WIRE_INDEX_DIM_MAX];
    uint32_t spread;
    const uint64_t *scalar_steps; /* ndim a scalar; NULL: none */
    uint64_t float_scalars;
};

/* What makes a task a collective; its arguments are the members, then the results. */
struct frame_collective {
    uint32_t kind; /* Plasmon__V1__CollectiveKind */
    uint32_t op;
    uint32_t root;
    uint32_t way;
    uint32_t place_count; /* results */
    uint32_t place[WIRE_COLLECTIVE_MAX];
};

struct frame_task {
    uint64_t id;
    uint32_t kind; /* Plasmon__V1__TaskKind */
    uint32_t function;
    const struct frame_arg *args;
    uint32_t arg_count;
    const uint64_t *scalars;
    uint32_t scalar_count;
    const void *data;
    size_t data_bytes;
    uint64_t put_offset;
    const char *label; /* NULL: none */
    uint32_t place;
    uint32_t retries;
    bool donatable;
    bool replica;
    uint32_t function_retries;
    uint32_t time_limit_ms; /* 0: none */
    uint64_t submit_ns;     /* 0: nobody wants to know */
    int32_t priority;
    uint64_t graph; /* 0: none */
    const struct frame_binding *bindings;
    uint32_t binding_count;
    const struct frame_scalar *set;
    uint32_t set_count;
    const struct frame_index *index; /* NULL: one instance */
    const uint32_t *launch_shape;    /* WIRE_LAUNCH_SHAPE_COUNT numbers; NULL: not sent */
    uint64_t host_buffer;            /* 0: none */
    uint64_t host_offset;
    const struct frame_collective *collective; /* NULL: it is none */
};

void frame_init(struct frame *frame);
void frame_finish(struct frame *frame);
void frame_clear(struct frame *frame); /* keeps the memory */
bool frame_admits(const struct frame *frame, enum frame_kind kind);
bool frame_full(const struct frame *frame);

/* ENOMEM leaves the batch as it was. */
plasmon_status_t frame_add_task(struct frame *frame,
                                const struct frame_task *task) PL_MUST_CHECK;
plasmon_status_t frame_add_release(struct frame *frame, uint64_t ref,
                                   uint64_t bytes) PL_MUST_CHECK;
/* The fields that are set in `fields` (no header, no tasks, no releases), all of one kind. */
plasmon_status_t frame_add_fields(struct frame *frame, enum frame_kind kind,
                                  const Plasmon__V1__ClientFrame *fields) PL_MUST_CHECK;

/* The whole message: header, then the batch; in memory from rpc_buffer_create-like `create`. */
plasmon_status_t frame_pack(struct frame *frame, const Plasmon__V1__Header *header,
                            uint8_t *(*create)(size_t length), uint8_t **out_bytes,
                            size_t *out_length) PL_MUST_CHECK;

#endif
