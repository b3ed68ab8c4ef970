/*
 * Plans: what a call of cuFFT or cuSOLVER needs before it is enqueued, and what only calls can make
 * that allocate, load code and synchronise: a cuFFT plan, the handle of cuSOLVER, the size of a
 * workspace.
 *
 *   looked up (cuda_plans_look)  ->  at hand
 *                                ->  EAGAIN: cuda_plans_make(), with nothing enqueued on the device  ->  looked up again
 *
 * A plan is kept by the shape of the call. There are CUDA_PLANS_MAX at most, and the one that was
 * used longest ago goes, but:
 *
 *   (1) what was looked up since the last run is for the launch at hand, which may be a graph of
 *       many calls: it stays
 *   (2) what is kept for recorded graphs stays until cuda_plans_release(): a captured graph has the
 *       plan's tables in it
 *
 * so there are more of them only while recorded graphs want more. Plans are destroyed only by
 * cuda_plans_make() and at the end, when nothing that uses them can be on the device.
 *
 * Work areas are not the plan's: they are scratch of the launch, so that one plan may run on two
 * streams at the same time.
 *
 * Threads: one at a time; the worker's owner, or another while the core is held (worker/functions.h).
 */
#ifndef KERNELS_CUDA_PLANS_H
#define KERNELS_CUDA_PLANS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "base/str.h"

#define CUDA_PLANS_MAX 64

struct cuda_call;
struct cuda_fft_library;
struct cuda_solver_library;

/* What tells plans apart; compared as bytes, so unused parts are 0. */
struct cuda_plan_key {
    uint32_t kind; /* a cufftType, or KIND_QR, KIND_LU (cuda_solver.c) */
    uint32_t dtype;
    int64_t rank;
    int64_t batch;
    int64_t dim[3];
};

struct cuda_library_plan {
    struct pl_list link;
    struct cuda_plan_key key;
    uint64_t used; /* the cache's clock when it was looked up last */
    bool kept;     /* for recorded graphs */
    /* status not OK: it could not be made; told once, then forgotten */
    struct pl_err failure;
    int handle; /* cufftHandle; 0: none */
    bool made;  /* there is a handle to be destroyed */
    uint64_t work_bytes;
    int work_count; /* cuSOLVER: elements of the workspace */
};

struct cuda_plans {
    struct pl_list list;
    uint32_t count;
    uint64_t clock;
    uint64_t run;                       /* the clock when something was run last */
    struct cuda_fft_library *fft;       /* NULL: not opened yet */
    struct cuda_solver_library *solver; /* likewise */
};

void cuda_plans_init(struct cuda_plans *plans);
void cuda_plans_finish(struct cuda_plans *plans);
/* OK: at hand. EAGAIN: to be made. Otherwise why it could not be made. */
plasmon_status_t cuda_plans_look(const struct cuda_call *call,
                                 const struct cuda_plan_key *key, bool keep) PL_MUST_CHECK;
/* make() fills in a plan; what it answers is told by the next look. Nothing is enqueued on the device. */
typedef plasmon_status_t (*cuda_plan_make_fn)(const struct cuda_call *call,
                                              struct cuda_library_plan *plan);
plasmon_status_t cuda_plans_make(const struct cuda_call *call,
                                 const struct cuda_plan_key *key,
                                 cuda_plan_make_fn make) PL_MUST_CHECK;
void cuda_plans_release(struct cuda_plans *plans);
/* NULL: not at hand, which is a bug of ours in a run. */
const struct cuda_library_plan *cuda_plan_of(const struct cuda_plans *plans,
                                             const struct cuda_plan_key *key);

/* ---- libraries */

/*
 * A library of the toolkit that `device` has cuBLAS from: beside that, where the loader looks, in
 * CUDA_HOME, CUDA_PATH and /usr/local/cuda. names: file names, newest first; each may need `needs`,
 * which are opened before. NULL: err says what to install.
 */
struct device;
void *cuda_library_open(struct device *device, const char *title, const char *const *names,
                        const char *const *needs, struct pl_err *err);
/* Its functions by name into an array of pointers; ENOLIB names one that is missing. */
plasmon_status_t cuda_library_symbols(void *library, const char *title,
                                      const char *const *names, void (**out)(void),
                                      uint32_t count, struct pl_err *err) PL_MUST_CHECK;

void cuda_fft_plan_destroy(const struct cuda_fft_library *library,
                           struct cuda_library_plan *plan);
void cuda_fft_close(struct cuda_fft_library *library);
void cuda_solver_close(struct cuda_solver_library *library);

#endif
