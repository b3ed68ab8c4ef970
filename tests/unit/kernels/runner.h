/*
 * Runs trials on a device: arrays are copied to its memory, the function is enqueued on a stream,
 * and what it left is copied back into the trial. Scratch is filled with a pattern before, and
 * checked behind its end after.
 */
#ifndef TESTS_KERNELS_RUNNER_H
#define TESTS_KERNELS_RUNNER_H

#include "trial.h"

struct runner {
    struct device *device;
    struct device_stream *stream;
    struct kernel_context *context;
    struct device_ptr arena; /* all of the test's memory on the device */
    uint64_t arena_bytes;
    uint64_t scratch_end; /* of the last call, in the arena */
    char *staging;        /* as much host memory that the device can copy from */
    int fd;
};

/* Fails the test when the device cannot be opened. */
void runner_open(struct runner *runner, enum device_kind kind);
void runner_close(struct runner *runner);
/* The status of the launch; what fails later is in err after runner_wait(). */
plasmon_status_t runner_enqueue(struct runner *runner, struct trial *trial,
                                struct pl_err *err);
plasmon_status_t runner_wait(struct runner *runner, struct pl_err *err);
/*
 * The call alone, recorded: where it would be enqueued. *out_operations: what kernel_operations()
 * says of it. A status that is not OK: of what the call needs, or of recording it.
 */
plasmon_status_t runner_record(struct runner *runner, struct trial *trial,
                               struct device_graph *graph, struct device_exec **out_exec,
                               uint64_t *out_operations, struct pl_err *err);
/* Both, copies back, and fails the test unless all is well. */
void runner_run(struct runner *runner, struct trial *trial);

#endif
