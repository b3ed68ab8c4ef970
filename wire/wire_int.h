/*
 * Inside wire/: the checks that a decoded message must pass. Each check_* looks at one message and
 * everything below it, touches every field once and allocates nothing; the text of an error is made
 * only when there is one, from the inside out: the innermost check says what is wrong, and each
 * level above puts its own place before it.
 */
#ifndef WIRE_WIRE_INT_H
#define WIRE_WIRE_INT_H

#include "wire/wire.h"

#include <string.h>

/* A ProtobufCMessage field that is text in the arena: its length was kept by the allocator. */
size_t wire_arena_text_length(const char *text);

/* What the arena's allocator gives, without a call as long as its block has room. */
static inline void *wire_arena_room(struct wire_arena *arena, size_t bytes)
{
    uint64_t asked = bytes; /* before them: wire_arena_text_length() */
    size_t taken   = ((bytes + 7) & ~(size_t)7) + sizeof(asked);
    uint8_t *at;

    if (bytes > arena->bytes_max || taken > arena->bytes_max - arena->total ||
        taken > arena->block_bytes - arena->used) {
        return arena->allocator.alloc(arena->allocator.allocator_data, bytes);
    }
    at = arena->block + arena->used;
    arena->used += taken;
    arena->total += taken;
    memcpy(at, &asked, sizeof(asked));
    return at + sizeof(asked);
}

/*
 * Items that say the same share their lists (unpack.c): one that was checked, in the same message,
 * need not be again. Forgets most of what it saw before the last few lists; then the answer is
 * false. NULL is none.
 */
struct check_seen {
    const void *lists[16];
};
static inline bool check_again(struct check_seen *seen, const void *list)
{
    const void **place = &seen->lists[(uintptr_t)list / 16 % PL_COUNT(seen->lists)];
    bool again         = list != NULL && *place == list;

    *place = list;
    return again;
}

/* Puts "name[index]: " (index < 0: "name: ") before the text in err; returns err's status as given. */
plasmon_status_t check_below(struct pl_err *err, plasmon_status_t status, const char *name,
                             long index);

plasmon_status_t check_histogram(const Plasmon__V1__Histogram *histogram,
                                 struct pl_err *err) PL_MUST_CHECK;
plasmon_status_t check_count(size_t count, size_t max, const char *name,
                             struct pl_err *err);
/*
 * lists.c: lists of the outermost level of a message that is not decoded yet; the table ends with a
 * name that is NULL.
 */
struct list_limit {
    const char *name;
    size_t max;
};
plasmon_status_t check_lists(const ProtobufCMessageDescriptor *type,
                             const struct list_limit *limits, const uint8_t *bytes,
                             size_t length, struct pl_err *err);
/* unpack.c: as protobuf_c_message_unpack(), NULL included. */
ProtobufCMessage *wire_unpack_client_frame(struct wire_arena *arena, const uint8_t *bytes,
                                           size_t length);
ProtobufCMessage *wire_unpack_worker_command(struct wire_arena *arena, const uint8_t *bytes,
                                             size_t length);
plasmon_status_t check_bytes(const ProtobufCBinaryData *data, size_t max, const char *name,
                             struct pl_err *err);
/* UTF-8, no NUL inside, at most `max` bytes. */
plasmon_status_t check_text(const char *text, size_t max, const char *name,
                            struct pl_err *err);
/*
 * The same of what stands in logs and tables of operators: no control characters, which would end a
 * line there, or tell a terminal what to do.
 */
plasmon_status_t check_name(const char *text, size_t max, const char *name,
                            struct pl_err *err) PL_MUST_CHECK;
plasmon_status_t check_header(const Plasmon__V1__Header *header, struct pl_err *err);
plasmon_status_t check_ranges(size_t n, Plasmon__V1__Range *const *ranges, const char *name,
                              struct pl_err *err);
plasmon_status_t check_shape(const Plasmon__V1__Shape *shape, struct pl_err *err);
/* (start, count, step) or (start, count) a dimension; starts >= 0, counts and steps >= 1, no overflow. */
plasmon_status_t check_view_numbers(size_t n, const int64_t *numbers, const char *name,
                                    struct pl_err *err);
plasmon_status_t check_box_numbers(size_t n, const int64_t *numbers, const char *name,
                                   struct pl_err *err);
/* A box in somebody else's coordinates: its starts may be below 0. */
plasmon_status_t check_source_numbers(size_t n, const int64_t *numbers, const char *name,
                                      struct pl_err *err);
plasmon_status_t check_mode(uint32_t mode, struct pl_err *err);
plasmon_status_t check_graph_scalars(size_t n, Plasmon__V1__GraphScalar *const *scalars,
                                     struct pl_err *err);

/* function.c */
plasmon_status_t check_function_defines(size_t n,
                                        Plasmon__V1__FunctionDefine *const *defines,
                                        const char *name, struct pl_err *err);
plasmon_status_t check_launch_shape(size_t n, const uint32_t *shape, struct pl_err *err);

plasmon_status_t check_client_frame(const Plasmon__V1__ClientFrame *frame,
                                    struct pl_err *err);
plasmon_status_t check_head_frame(const Plasmon__V1__HeadFrame *frame, struct pl_err *err);
plasmon_status_t check_worker_frame(const Plasmon__V1__WorkerFrame *frame,
                                    struct pl_err *err);
plasmon_status_t check_worker_command(const Plasmon__V1__WorkerCommand *command,
                                      struct pl_err *err);
plasmon_status_t check_node_frame(const Plasmon__V1__NodeFrame *frame, struct pl_err *err);
plasmon_status_t check_node_command(const Plasmon__V1__NodeCommand *command,
                                    struct pl_err *err);

plasmon_status_t check_status_request(const Plasmon__V1__StatusRequest *request,
                                      struct pl_err *err);
plasmon_status_t check_status_reply(const Plasmon__V1__StatusReply *reply,
                                    struct pl_err *err);
plasmon_status_t check_drain_request(const Plasmon__V1__DrainRequest *request,
                                     struct pl_err *err);
plasmon_status_t check_drain_reply(const Plasmon__V1__DrainReply *reply,
                                   struct pl_err *err);
plasmon_status_t check_list_request(const Plasmon__V1__ListRequest *request,
                                    struct pl_err *err);
plasmon_status_t check_list_reply(const Plasmon__V1__ListReply *reply, struct pl_err *err);

plasmon_status_t check_span_batches(size_t count, Plasmon__V1__SpanBatch *const *batches,
                                    struct pl_err *err);

/*
 * texts.c: nothing in its texts, nor in those of messages inside, is a control character. They are
 * the arena's, and changed.
 */
void wire_texts_clean(ProtobufCMessage *message);

#endif
