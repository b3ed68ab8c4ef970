/*
 * What kernels find wrong in data, told to the host: records in pinned memory that a kernel writes
 * and the worker reads when it looks for completed launches. A kernel's writes are seen before the
 * timeline word behind it, so a launch that counts as done has left its record.
 *
 * The record dies with the process. That the launch failed must not, so the kernel marks it first,
 * in memory that outlives us (struct kernel_marks): a worker that dies between the word and its
 * look leaves a launch that counts as failed, without its text.
 *
 * There are as many records as a device can have launches in flight (four windows of the head), and
 * a launch writes at most one, so none is overwritten before it is read.
 */
#ifndef KERNELS_CUDA_FAILURES_H
#define KERNELS_CUDA_FAILURES_H

#include "kernels/cuda_params.h"
#include "kernels/data_errors.h"

struct cuda_call;

struct cuda_failures {
    struct device *device;
    volatile struct cuda_failure *records; /* CUDA_FAILURES_MAX; NULL: not made */
    uint64_t address;                      /* of the records, for kernels */
    struct kernel_marks marks;             /* count 0: none */
    uint64_t read;                         /* how many were taken; one thread at a time */
};

plasmon_status_t cuda_failures_init(struct cuda_failures *failures, struct device *device,
                                    struct pl_err *err) PL_MUST_CHECK;
void cuda_failures_finish(struct cuda_failures *failures);
/* The oldest that was not taken yet; false: none. */
bool cuda_failures_take(struct cuda_failures *failures, uint64_t *out_tag,
                        struct pl_err *out_err);

/*
 * Enqueue: report the call if one of `count` words (up to two) is not `fine`, as that error with
 * the word's value. Words of 4 bytes are the info of a library: negative ones are arguments that it
 * refused.
 */
plasmon_status_t cuda_report(const struct cuda_call *call, const uint64_t *words,
                             const enum kernel_data_error *errors, uint32_t count,
                             uint32_t bytes, int64_t fine) PL_MUST_CHECK;

#endif
