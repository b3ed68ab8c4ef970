/*
 * What the executor's files share. executor.c: order, reports, life; executor_move.c: copies;
 * executor_run.c: functions and recorded graphs.
 */
#ifndef WORKER_EXECUTOR_INT_H
#define WORKER_EXECUTOR_INT_H

#include "worker/executor.h"

/* Entries of worker_executor_ops (worker/core.h says what each must do). */

/* executor_move.c */
plasmon_status_t worker_op_copy(void *user, uint32_t stream, const struct pl_box *box,
                                uint32_t element_bytes, uint64_t dst_offset,
                                const struct pl_box *dst_frame, uint32_t src_host_device,
                                uint64_t src_offset, const struct pl_box *src_frame,
                                uint64_t seq);
plasmon_status_t worker_op_stage_send(void *user, uint32_t stream, uint32_t to,
                                      uint64_t first_chunk, uint64_t offset,
                                      uint64_t bytes);
plasmon_status_t worker_op_stage_recv(void *user, uint32_t stream, uint32_t from,
                                      uint64_t first_chunk, uint64_t offset,
                                      uint64_t bytes);
plasmon_status_t worker_op_bulk_peer(void *user, uint32_t device, const char *address,
                                     const uint8_t *secret);
plasmon_status_t worker_op_bulk_gone(void *user, uint32_t device);
plasmon_status_t worker_op_bulk_give_up(void *user, uint32_t device, bool receives,
                                        uint64_t first, uint64_t count);
plasmon_status_t worker_op_bulk_send(void *user, uint32_t stream, uint32_t to,
                                     uint64_t first_chunk, uint64_t offset, uint64_t bytes);
plasmon_status_t worker_op_bulk_recv(void *user, uint32_t stream, uint32_t from,
                                     uint64_t first_chunk, uint64_t offset, uint64_t bytes);
plasmon_status_t worker_op_bulk_expect(void *user, uint32_t from, uint64_t first_chunk,
                                       uint64_t bytes);
plasmon_status_t worker_op_put(void *user, uint32_t stream, uint64_t dst_offset,
                               const uint8_t *bytes, uint64_t length);
plasmon_status_t worker_op_read(void *user, uint32_t stream, uint64_t src_offset,
                                uint64_t length, uint64_t request);
plasmon_status_t worker_op_put_host(void *user, uint32_t stream, uint64_t dst_offset,
                                    uint64_t host_buffer, uint64_t host_offset,
                                    uint64_t length, struct pl_err *err);
bool worker_op_host_ready(void *user, uint64_t host_buffer, uint64_t host_offset,
                          uint64_t length);
plasmon_status_t worker_op_get_host(void *user, uint32_t stream, uint64_t src_offset,
                                    uint64_t host_buffer, uint64_t host_offset,
                                    uint64_t length, struct pl_err *err);

/* executor_run.c */
uint64_t worker_op_operations(void *user, const struct kernel_function *function,
                              const struct kernel_arg *args, uint32_t arg_count,
                              const union kernel_scalar *scalars, uint32_t scalar_count);
uint64_t worker_op_scratch_bytes(void *user, const struct kernel_function *function,
                                 const struct kernel_arg *args, uint32_t arg_count,
                                 const union kernel_scalar *scalars, uint32_t scalar_count);
uint64_t worker_op_own_scratch_bytes(void *user, const struct kernel_function *function,
                                     const struct kernel_arg *args, uint32_t arg_count,
                                     const union kernel_scalar *scalars,
                                     uint32_t scalar_count);
plasmon_status_t worker_op_run(void *user, uint32_t stream,
                               const struct kernel_function *function,
                               const struct kernel_arg *args, uint32_t arg_count,
                               const union kernel_scalar *scalars, uint32_t scalar_count,
                               uint64_t scratch_offset, uint64_t scratch_bytes,
                               uint64_t tag, struct pl_err *err);
plasmon_status_t worker_op_combine(void *user, uint32_t stream,
                                   const struct kernel_function *function,
                                   const struct kernel_arg *args,
                                   const struct worker_source *sources, uint32_t arg_count,
                                   const union kernel_scalar *scalars,
                                   uint32_t scalar_count, uint64_t tag, struct pl_err *err);
plasmon_status_t worker_op_prepare(void *user, const struct kernel_function *function,
                                   const struct kernel_arg *args, uint32_t arg_count,
                                   const union kernel_scalar *scalars,
                                   uint32_t scalar_count, bool keep, bool quiet,
                                   struct pl_err *err);
void worker_op_prepared_release(void *user);
const struct kernel_function *worker_op_function(void *user, uint32_t id, bool quiet,
                                                 struct pl_err *err);
const char *worker_op_function_text(void *user, uint32_t id);
plasmon_status_t worker_op_run_defined(void *user, uint32_t stream,
                                       const struct kernel_function *function,
                                       const struct kernel_arg *args, uint32_t arg_count,
                                       const union kernel_scalar *scalars,
                                       uint32_t scalar_count, uint64_t scratch_offset,
                                       struct kernel_launch_shape *io_shape, uint64_t tag,
                                       struct pl_err *err);
plasmon_status_t worker_op_fill_identity(void *user, uint32_t stream,
                                         const struct kernel_arg *arg, uint64_t tag);
plasmon_status_t worker_op_record_begin(void *user, void **io_recorder, uint32_t branches,
                                        uint64_t tag_offset, struct pl_err *err);
plasmon_status_t worker_op_record_mark(void *user, uint32_t branch, uint32_t mark);
plasmon_status_t worker_op_record_after(void *user, uint32_t branch, uint32_t mark);
plasmon_status_t worker_op_record_end(void *user, bool keep, void **io_exec,
                                      struct pl_err *err);
plasmon_status_t worker_op_record_item(void *user, uint32_t item);
plasmon_status_t worker_op_change_begin(void *user, void *recorder, void *exec,
                                        struct pl_err *err);
plasmon_status_t worker_op_change_end(void *user);
plasmon_status_t worker_op_replay(void *user, uint32_t stream, void *exec, uint64_t tag);
void worker_op_record_drop(void *user, void *recorder, void *exec);

#endif
