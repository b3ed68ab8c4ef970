/*
 * wire: encoding, decoding with checks, and the reliable link. Pure functions over bytes; no sockets.
 *
 *   wire_decode_*      bytes -> protobuf-c struct in a capped arena; every count, length, shape and id in it has been
 *                      checked against the limits in wire/limits.h before the caller sees it
 *   wire_encode        protobuf-c struct -> bytes
 *   struct wire_link   one direction-pair of a session: numbers frames, keeps what is not
 *                      acknowledged, drops repeats, resumes after a reconnect
 *   wire_box/view/shape_from_*  checked conversions to base/box.h
 */
#ifndef WIRE_WIRE_H
#define WIRE_WIRE_H

#include "base/box.h"
#include "base/histogram.h"
#include "base/str.h"
#include "base/vec.h"
#include "wire/plasmon.pb-c.h"
#include "wire/ticket.h"

#define WIRE_PROTOCOL 1u

/*
 * Limits on what comes from outside. A message over one of them is EMALFORMED or ELIMIT and names
 * the limit.
 */
#define WIRE_MESSAGE_BYTES_MAX      (8u << 20)
#define WIRE_ARENA_BYTES_MAX        (64u << 20)
#define WIRE_TASKS_MAX              4096u  /* a frame */
#define WIRE_ARGS_MAX               65536u /* a task */
#define WIRE_SCALARS_MAX            64u
#define WIRE_DATA_BYTES_MAX         (1u << 20)
#define WIRE_LABEL_BYTES_MAX        128u
#define WIRE_NAME_BYTES_MAX         256u
#define WIRE_RANGES_MAX             65536u
#define WIRE_PIECES_MAX             65536u
#define WIRE_GRAPH_NODES_MAX        (1u << 20) /* tasks of one recorded graph */
#define WIRE_GRAPH_BRANCHES_MAX     8u
#define WIRE_INDEX_MAX              65536u /* instances of one index launch */
#define WIRE_INDEX_DIM_MAX          3u
#define WIRE_TEAM_MAX               16u   /* devices with a communicator for collectives */
#define WIRE_COLLECTIVE_MAX         64u   /* members, and results, of one collective */
#define WIRE_COLLECTIVE_WAYS        5u    /* of enum plasmon_collective_way */
#define WIRE_TEXT_BYTES_MAX         4096u /* error texts, signatures */
#define WIRE_TOKEN_BYTES_MAX        4096u
#define WIRE_BULK_ADDRESS_BYTES_MAX 63u
#define WIRE_PAIR_ID_BYTES          128u
#define WIRE_BULK_SECRET_BYTES      16u
#define WIRE_DEVICES_MAX            65535u
/* STORE_HOST_DEVICE_MAX: workers keep sets of them in a word */
#define WIRE_HOST_DEVICES_MAX 64u
#define WIRE_SPILL_BYTES_MAX  (1ull << 56) /* of a host */
#define WIRE_SPILL_KIND_MAX   5u
#define WIRE_DRAIN_MS_MAX     86400000u
#define WIRE_WAIT_WHYS        14u          /* of enum WaitWhy */
#define WIRE_VALUE_BYTES_MAX  (1ull << 48) /* one array, as in pl_shape_check() */

/* Defined functions: their ids, and what a session may have. */
/* to the end of 32 bits; tests see that no built-in one is there */
#define WIRE_FUNCTION_FIRST     0xfff00000u
#define WIRE_FUNCTIONS_MAX      1024u /* of one session */
#define WIRE_SOURCE_BYTES_MAX   (1u << 20)
#define WIRE_HASH_BYTES         32u
#define WIRE_LAUNCH_SHAPE_COUNT 7u
#define WIRE_SHARED_BYTES_MAX   (1u << 24) /* of a launch; devices have far less */
enum {
    WIRE_RUNS_CUDA_TEXT = 1u << 0,
    WIRE_RUNS_C_TEXT    = 1u << 1,
    WIRE_RUNS_LIBRARY   = 1u << 2,
};

/*
 * Bump arena with a cap; its ProtobufCAllocator makes decoding cost no malloc a message. Reset
 * between messages. It must not move after wire_arena_init(): the allocator points back to it.
 */
struct wire_arena {
    uint8_t *block; /* the newest block; grows by doubling */
    size_t block_bytes;
    size_t used; /* of the newest block */
    size_t bytes_max;
    size_t total;   /* over all blocks since reset */
    void *overflow; /* chain of older blocks */
    ProtobufCAllocator allocator;
    bool refused;       /* the cap was hit */
    bool out_of_memory; /* the system had no more */
};
plasmon_status_t wire_arena_init(struct wire_arena *arena, size_t bytes_max) PL_MUST_CHECK;
void wire_arena_finish(struct wire_arena *arena);
void wire_arena_reset(struct wire_arena *arena);
/* zeroed, 16-aligned; NULL over the cap */
void *wire_arena_alloc(struct wire_arena *arena, size_t bytes) PL_MUST_CHECK;
char *wire_arena_text(struct wire_arena *arena,
                      const char *text) PL_MUST_CHECK; /* a copy; NULL as above */

/* In the arena; NULL: it has no room. */
Plasmon__V1__Histogram *wire_histogram(const struct pl_histogram *histogram,
                                       struct wire_arena *arena) PL_MUST_CHECK;
/* Of a message that was checked, or of one of our own. */
void wire_histogram_read(const Plasmon__V1__Histogram *message, struct pl_histogram *out);

/*
 * Bytes of a launch, as protobuf-c would write them: in `room` if they fit (NULL with 0 bytes will
 * do), else in memory from `create`, which is the caller's; NULL when that gives none. Nothing in
 * the launch may lie in `room`.
 */
uint8_t *wire_launch_pack(const Plasmon__V1__Launch *launch, uint8_t *room,
                          size_t room_bytes, void *(*create)(size_t bytes),
                          size_t *out_length) PL_MUST_CHECK;

/*
 * Bytes of `message` in memory from `create` (rpc_buffer_create, or pl_alloc). ELIMIT: larger than
 * WIRE_MESSAGE_BYTES_MAX, which the other side would refuse.
 */
plasmon_status_t wire_encode(const ProtobufCMessage *message,
                             uint8_t *(*create)(size_t length), uint8_t **out_bytes,
                             size_t *out_length) PL_MUST_CHECK;

/*
 * Decode and check. The result lives in the arena until reset. EMALFORMED, ELIMIT (a message over a
 * limit), EVERSION (another protocol) or ENOMEM; err names the field: "client frame: tasks[3]:
 * args[0]: view has 4 numbers, not 3 a dimension".
 */
plasmon_status_t wire_decode_client_frame(struct wire_arena *arena, const uint8_t *bytes,
                                          size_t length, Plasmon__V1__ClientFrame **out,
                                          struct pl_err *err) PL_MUST_CHECK;
plasmon_status_t wire_decode_head_frame(struct wire_arena *arena, const uint8_t *bytes,
                                        size_t length, Plasmon__V1__HeadFrame **out,
                                        struct pl_err *err) PL_MUST_CHECK;
plasmon_status_t wire_decode_worker_frame(struct wire_arena *arena, const uint8_t *bytes,
                                          size_t length, Plasmon__V1__WorkerFrame **out,
                                          struct pl_err *err) PL_MUST_CHECK;
plasmon_status_t wire_decode_worker_command(struct wire_arena *arena, const uint8_t *bytes,
                                            size_t length, Plasmon__V1__WorkerCommand **out,
                                            struct pl_err *err) PL_MUST_CHECK;
plasmon_status_t wire_decode_node_frame(struct wire_arena *arena, const uint8_t *bytes,
                                        size_t length, Plasmon__V1__NodeFrame **out,
                                        struct pl_err *err) PL_MUST_CHECK;
plasmon_status_t wire_decode_node_command(struct wire_arena *arena, const uint8_t *bytes,
                                          size_t length, Plasmon__V1__NodeCommand **out,
                                          struct pl_err *err) PL_MUST_CHECK;

/* Unary calls. */
plasmon_status_t wire_decode_status_request(struct wire_arena *arena, const uint8_t *bytes,
                                            size_t length, Plasmon__V1__StatusRequest **out,
                                            struct pl_err *err) PL_MUST_CHECK;
plasmon_status_t wire_decode_status_reply(struct wire_arena *arena, const uint8_t *bytes,
                                          size_t length, Plasmon__V1__StatusReply **out,
                                          struct pl_err *err) PL_MUST_CHECK;
plasmon_status_t wire_decode_drain_request(struct wire_arena *arena, const uint8_t *bytes,
                                           size_t length, Plasmon__V1__DrainRequest **out,
                                           struct pl_err *err) PL_MUST_CHECK;
plasmon_status_t wire_decode_drain_reply(struct wire_arena *arena, const uint8_t *bytes,
                                         size_t length, Plasmon__V1__DrainReply **out,
                                         struct pl_err *err) PL_MUST_CHECK;
plasmon_status_t wire_decode_list_request(struct wire_arena *arena, const uint8_t *bytes,
                                          size_t length, Plasmon__V1__ListRequest **out,
                                          struct pl_err *err) PL_MUST_CHECK;
plasmon_status_t wire_decode_list_reply(struct wire_arena *arena, const uint8_t *bytes,
                                        size_t length, Plasmon__V1__ListReply **out,
                                        struct pl_err *err) PL_MUST_CHECK;

/*
 * What identifies the content of a definition: everything but its id. Both sides compute it, so
 * that a damaged text never runs under a good name.
 */
void wire_function_hash(const Plasmon__V1__FunctionDefine *define,
                        uint8_t out_hash[WIRE_HASH_BYTES]);
static inline bool wire_function_defined(uint32_t function)
{
    return function >= WIRE_FUNCTION_FIRST;
}

/* Geometry. Lists of numbers as they are on the wire. */
plasmon_status_t wire_shape_get(const Plasmon__V1__Shape *shape, struct pl_shape *out,
                                struct pl_err *err) PL_MUST_CHECK;
void wire_shape_put(const struct pl_shape *shape, Plasmon__V1__Shape *out,
                    uint64_t dims[PL_DIM_MAX]); /* dims is lent to *out */
plasmon_status_t wire_view_get(size_t n, const int64_t *numbers,
                               const struct pl_shape *root, struct pl_view *out,
                               struct pl_err *err) PL_MUST_CHECK; /* n == 0: whole */
size_t wire_view_put(const struct pl_view *view, int64_t out[3 * PL_DIM_MAX]);
plasmon_status_t wire_box_get(size_t n, const int64_t *numbers, struct pl_box *out,
                              struct pl_err *err) PL_MUST_CHECK;
size_t wire_box_put(const struct pl_box *box, int64_t out[2 * PL_DIM_MAX]);

/* Buffers. */
static inline uint64_t wire_buffer(uint32_t device, uint32_t slot, uint32_t generation)
{
    return (uint64_t)device << 48 | (uint64_t)(slot & 0xffffffu) << 24 |
           (generation & 0xffffffu);
}
static inline uint32_t wire_buffer_device(uint64_t buffer)
{
    return (uint32_t)(buffer >> 48);
}
static inline uint32_t wire_buffer_slot(uint64_t buffer)
{
    return (uint32_t)(buffer >> 24) & 0xffffffu;
}
static inline uint32_t wire_buffer_generation(uint64_t buffer)
{
    return (uint32_t)buffer & 0xffffffu;
}
/* Of a launch: a point has no room for a larger one, nor for the one after the last. */
#define WIRE_SEQ_MAX ((UINT64_C(1) << 48) - 2)
static inline uint64_t wire_point(uint32_t device, uint64_t seq)
{
    return (uint64_t)device << 48 | (seq & 0xffffffffffffu);
}
static inline uint32_t wire_point_device(uint64_t point)
{
    return (uint32_t)(point >> 48);
}
static inline uint64_t wire_point_seq(uint64_t point)
{
    return point & 0xffffffffffffu;
}

/*
 * A set of numbers as ranges; adds of neighbours merge with the last range, so that a run of
 * completions stays one range. Iterate ranges.items as Plasmon-independent pairs.
 */
struct wire_range {
    uint64_t first;
    uint64_t count;
};
struct wire_ranges {
    struct pl_vec items; /* struct wire_range */
};
void wire_ranges_init(struct wire_ranges *ranges);
void wire_ranges_finish(struct wire_ranges *ranges);
plasmon_status_t wire_ranges_add(struct wire_ranges *ranges, uint64_t number) PL_MUST_CHECK;
void wire_ranges_clear(struct wire_ranges *ranges);

/*
 * The reliable link. The sender numbers every frame that carries ops and keeps its bytes until
 * acknowledged; the receiver takes frames in order, exactly once. After a reconnect each side says
 * what it has taken over and the other sends the rest again.
 *
 *   out: wire_link_next_seq() -> fill Header -> encode -> wire_link_sent(link, seq, bytes) keeps a copy
 *   in:  wire_link_receive(link, seq): 1 take it, 0 a repeat: drop it, -1 a gap: the connection is broken.
 *        seq 0 (a frame outside the sequence) is always taken
 *        wire_link_acked(link, ack) frees what the other side has; an ack of what was never sent is ignored
 *   ack: wire_link_ack(link) is the value for Header.ack; from then on nothing is owed
 *   reconnect: wire_link_resend(link, from, fn) walks what must be sent again
 */
struct wire_link {
    uint64_t out_seq; /* last number given out */
    uint64_t out_acked;
    uint64_t in_seq;   /* last number taken over */
    uint64_t in_acked; /* last number that we told the other side */
    uint64_t kept_bytes;
    uint64_t kept_bytes_max;
    struct wire_kept *kept_first; /* oldest first */
    struct wire_kept *kept_last;
};
void wire_link_init(struct wire_link *link, uint64_t kept_bytes_max);
void wire_link_finish(struct wire_link *link);
uint64_t wire_link_next_seq(struct wire_link *link);
plasmon_status_t
wire_link_sent(struct wire_link *link, uint64_t seq, const uint8_t *bytes,
               size_t length) PL_MUST_CHECK; /* ELIMIT: too much unacknowledged */
/* Not too much unacknowledged for one more of that length. */
bool wire_link_fits(const struct wire_link *link, size_t length);
/*
 * The same, but the caller fills the bytes in, before anything else happens to the link. NULL: too
 * much unacknowledged, or no memory.
 */
uint8_t *wire_link_keep(struct wire_link *link, uint64_t seq, size_t length) PL_MUST_CHECK;
int wire_link_receive(struct wire_link *link, uint64_t seq);
void wire_link_acked(struct wire_link *link, uint64_t ack);
/*
 * Calls fn for each kept frame after `from`, oldest first. They stay kept: what was sent up to
 * `from` need not have arrived.
 */
void wire_link_resend(const struct wire_link *link, uint64_t from,
                      void (*fn)(void *user, const uint8_t *bytes, size_t length),
                      void *user);
/*
 * An acknowledgement rides on the next frame back and costs nothing. Frames of their own are for
 * when nothing goes back: at once when several frames are owed one (a sender that keeps much is let
 * go on), at a tick whenever one is owed.
 */
bool wire_link_owes_ack(const struct wire_link *link);
bool wire_link_owes_many(const struct wire_link *link);
uint64_t wire_link_ack(struct wire_link *link);

#endif
