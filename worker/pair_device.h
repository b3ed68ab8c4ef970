/*
 * Pairs on a real device: the core's ops over transfer/pair.h, and what came of them back to the core.
 *
 * Threads: owner only (the worker's lock).
 */
#ifndef WORKER_PAIR_DEVICE_H
#define WORKER_PAIR_DEVICE_H

#include "transfer/pair.h"
#include "worker/core.h"

struct worker_executor;

/*
 * This device takes part in pairs from now on. Before the core is made.
 * @param address  where workers of other hosts reach this one; numeric, or NULL.
 */
plasmon_status_t worker_pairs_start(struct worker_executor *executor, const char *address,
                                    struct pl_err *err) PL_MUST_CHECK;
/* What happened since: the core is told, and through it the head. */
void worker_pairs_collect(struct worker_executor *executor);
/*
 * NCCL reads its settings from the environment when it is loaded; before any thread is there.
 * address as above. What the operator set stays, but for NCCL_NVLS_ENABLE.
 */
void worker_pairs_environment(const char *address, uint32_t host_device);

/* The core's ops. */
plasmon_status_t worker_pair_op_open(void *user, const struct worker_pair_key *key,
                                     const struct worker_pair_shape *shape,
                                     const uint8_t *id);
void worker_pair_op_close(void *user, const struct worker_pair_key *key);
void worker_pair_op_break(void *user, const struct worker_pair_key *key);
void worker_pair_op_abort(void *user, const struct worker_pair_key *key);
void worker_pair_op_free(void *user, const struct worker_pair_key *key);
bool worker_pair_op_room(void *user, uint32_t lane);
bool worker_pair_op_settled(void *user, uint32_t lane);
plasmon_status_t worker_pair_op_move(void *user, uint32_t stream,
                                     const struct worker_half *half);
plasmon_status_t worker_pair_op_stage(void *user, const struct worker_pair_key *key,
                                      uint64_t *out_first);
void worker_pair_op_sent(void *user, uint64_t seq);
void worker_pair_op_report(void *user, const struct worker_pair_report *report);

#endif
