/* A head's state machine alone: what it sends goes nowhere, and its workers never report. */
#ifndef TESTS_UNIT_HEAD_CORE_H
#define TESTS_UNIT_HEAD_CORE_H

#include "head/core.h"

/*
 * For a struct head_ops: what a test does not look at goes to these. Numbers, not random, are the
 * same in every run.
 */
void core_drop_frame(void *user, uint64_t session, const uint8_t *body, size_t length);
void core_drop_command(void *user, uint32_t device, const uint8_t *body, size_t length);
void core_drop_fence(void *user, uint32_t device);
void core_drop_end(void *user, uint64_t session);
void core_drop_spill(void *user, const char *host, const struct head_spill_op *op);
uint64_t core_count_up(void *user);
/*
 * What the head sends is a body; this is the frame, with a header, that the decoders of wire/ take.
 * In the arena.
 */
uint8_t *core_frame(struct wire_arena *arena, const uint8_t *body, size_t *io_length);

extern uint32_t core_commands; /* that went to workers, ever */
struct head_core *core_make(void);
/* The same, whose times go there. */
struct head_core *core_make_timed(struct head_times *times);
/* The store of a node (its host has the same name) announces its devices. */
void core_announce(struct head_core *core, const char *node, uint32_t devices);
/* A worker of 1 MiB, which others can map, says hello; its number in the cluster. */
uint32_t core_join(struct head_core *core, const char *node, uint32_t host_device);
/* One that other hosts reach, too, with so many bytes. */
uint32_t core_join_reachable(struct head_core *core, const char *node, uint32_t host_device,
                             uint64_t bytes);
/* A client's session. */
uint64_t core_client(struct head_core *core);
/* The worker of a device says that a launch has failed. */
void core_fail(struct head_core *core, uint32_t device, uint64_t seq,
               plasmon_status_t status, const char *text);
/*
 * Task `id` of that client on a device: ref 0 makes an array of f32 with these sides as ref id +
 * 100, another ref is read.
 */
void core_submit(struct head_core *core, uint64_t session, uint64_t id, uint32_t device,
                 uint64_t ref, uint64_t *dim, size_t ndim);
/* Bytes [offset, offset + bytes) of a put of four f32 as ref 1, on device 0, as task `id`. */
void core_put(uint64_t id, uint64_t offset, uint64_t bytes,
              void (*send)(Plasmon__V1__ClientFrame *frame));

#endif
