/*
 * Functions that clients define, on this device: told by the head, built by a thread of their own,
 * looked up by id at each launch.
 *
 *   define -> [building] -> [built] -> [loading] -> [ready] -> free -> [dead] -> unloaded
 *                  \----------------------\-> [failed], with the compiler's words
 *
 * BUILDING goes on beside everything else, in the order in which they were defined. One that a
 * launch waits for is built before the others, and not behind the one that is being built either:
 * compilers take their time, and a worker that follows a dead one is given all functions at once.
 * There is a second thread for it, started when it is needed first, that does nothing else. LOADING
 * into a GPU waits while a stream of the context waits, and may hold up other calls of the driver
 * meanwhile: so it starts only when nothing is enqueued, and until it is over nothing is
 * (worker_core_hold). The same goes for unloading. docs/ordering.md shows why that hangs nothing.
 *
 * What functions of the catalogue need is PREPARED in the place of a load (kernels/kernels.h: plans
 * of cuFFT, the handle of cuSOLVER), by the same threads, one at a time, and under the same
 * condition. The front of the queue alone asks for it, so there is one at a time.
 *
 * Threads: owner only (the worker's lock); the threads inside touch nothing but their jobs.
 */
#ifndef WORKER_FUNCTIONS_H
#define WORKER_FUNCTIONS_H

#include <pthread.h>

#include "base/list.h"
#include "base/lock.h"
#include "base/map.h"
#include "kernels/code.h"
#include "worker/core.h"
#include "worker/suspects.h"

typedef void (*worker_function_report_fn)(void *user, uint32_t id, plasmon_status_t status,
                                          const char *text);

struct worker_functions {
    /* Constant after init. */
    struct device *device;
    struct kernel_code_policy policy;
    int wake_fd;                     /* an eventfd that is raised when a job is over */
    struct worker_core *const *core; /* of the executor; set before the first command */
    struct kernel_context *const *kernels; /* likewise */
    worker_function_report_fn report;
    void *report_user;
    struct store_suspects *suspects; /* of our timeline */

    struct pl_map by_id;    /* id -> struct worker_function */
    struct pl_list unloads; /* dead, and loaded into a GPU */
    uint32_t unload_count;
    struct worker_function *preparing; /* NULL: nothing is */
    bool started;                      /* the thread runs */
    bool second_started;               /* for what a launch waits for */
    pthread_t thread, second;
    /* when the last one that a launch had waited for was there; 0: none was */
    uint64_t awaited_ns;

    struct pl_mutex lock; /* rank PL_RANK_KERNELS */
    struct pl_cond changed;
    /* Guarded by `lock`. */
    struct pl_list jobs;        /* worker_function.link, oldest first */
    struct pl_list awaited;     /* likewise: to be built, and a launch waits */
    struct pl_list driver_jobs; /* likewise: to be loaded, unloaded or prepared */
    bool driver_busy;           /* a thread is at one of these: it calls the driver */
    struct pl_list over;        /* likewise: done, not collected */
    bool stop;
};

plasmon_status_t worker_functions_init(struct worker_functions *functions,
                                       struct device *device,
                                       struct worker_core *const *core,
                                       struct kernel_context *const *kernels, int wake_fd,
                                       worker_function_report_fn report, void *report_user,
                                       struct store_suspects *suspects,
                                       struct pl_err *err) PL_MUST_CHECK;
/* Waits for the threads, which may be at a compiler. */
void worker_functions_finish(struct worker_functions *functions);

/* EMALFORMED: the id has other content already. */
plasmon_status_t worker_functions_define(struct worker_functions *functions,
                                         const Plasmon__V1__FunctionDefine *define,
                                         struct pl_err *err) PL_MUST_CHECK;
void worker_functions_free(struct worker_functions *functions, uint32_t id);
void worker_functions_forget(struct worker_functions *functions); /* all of them */

/* worker_ops.function: NULL with EAGAIN while it is built and loaded; quiet: nothing is enqueued. */
const struct kernel_function *worker_functions_find(struct worker_functions *functions,
                                                    uint32_t id, bool quiet,
                                                    struct pl_err *err);
/* worker_ops.prepare. */
plasmon_status_t worker_functions_prepare(struct worker_functions *functions,
                                          const struct kernel_function *function,
                                          const struct kernel_arg *args, uint32_t arg_count,
                                          const union kernel_scalar *scalars,
                                          uint32_t scalar_count, bool keep, bool quiet,
                                          struct pl_err *err) PL_MUST_CHECK;
/* worker_ops.function_text: all there is to say about a function that failed; NULL. */
const char *worker_functions_text(const struct worker_functions *functions, uint32_t id);
/* Take what the thread has finished. */
void worker_functions_collect(struct worker_functions *functions);
/* Nothing is queued or enqueued: unload what is dead. */
void worker_functions_idle(struct worker_functions *functions);

#endif
