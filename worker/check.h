/*
 * Checking what functions read and write, for those who write functions: plasmon-store
 * --check-functions. Slow; results do not change.
 *
 * Around each run, all of it in the run's own stream:
 *
 *   1. the content of every IN argument is hashed, and INOUT and REDUCE arguments are copied aside
 *   2. every OUT argument is filled with a pattern, the function runs, and what is in the OUT
 *      arguments is hashed
 *   3. if there are OUT arguments: INOUT and REDUCE are put back, OUT is filled with another
 *      pattern, the function runs again, and OUT is hashed again. An element that the function does
 *      not write holds one pattern now and had the other before: the hashes differ. So they do for
 *      a function whose results differ from run to run, which is told in the same words
 *   4. the IN arguments are hashed again: they must be what they were
 *
 * The hashes come to the host behind the run, and a launch that did wrong fails before its word is believed.
 *
 * Threads: owner only (the worker's lock).
 */
#ifndef WORKER_CHECK_H
#define WORKER_CHECK_H

#include "kernels/kernels.h"
#include "store/timeline.h"
#include "worker/core.h"
#include "worker/inline.h"

struct worker_check {
    bool on; /* constant after set-up */
    struct device *device;
    struct kernel_context *const *kernels;
    struct worker_core *const *core;
    bool ready[STORE_STREAM_MAX]; /* reads[i] was made */
    struct worker_inline reads[STORE_STREAM_MAX];
};

/* Put the function into the stream once. */
typedef plasmon_status_t (*worker_check_run_fn)(void *user, struct pl_err *err);

void worker_check_finish(struct worker_check *check);
/* Bytes on the device that a check of this call needs. */
uint64_t worker_check_scratch(const struct worker_check *check,
                              const struct kernel_arg *args, uint32_t arg_count);
/*
 * With a check a function goes in twice, and each argument is put aside, filled, brought back and
 * looked at.
 */
static inline uint64_t worker_check_operations(uint64_t operations, uint32_t arg_count)
{
    return 2 * operations + 8 * (uint64_t)arg_count + 3;
}
/* Addresses in args. */
plasmon_status_t worker_check_run(struct worker_check *check, uint32_t stream_number,
                                  struct device_stream *stream,
                                  const struct kernel_function *function,
                                  const struct kernel_arg *args, uint32_t arg_count,
                                  struct device_ptr scratch, uint64_t tag,
                                  worker_check_run_fn run, void *user, struct pl_err *err);
/* What came back: launches that did wrong fail. */
void worker_check_collect(struct worker_check *check);

#endif
