/*
 * kernels: the functions that run on devices. One table of signatures is the source of everything:
 * the client's shape rules, the worker's checks, `plasmon functions`. Each function has a CPU and a
 * CUDA variant.
 *
 * A function sees its arguments as strided arrays. Outputs are allocated (or donated) by the
 * caller; a function is stateless and may write only its OUT, INOUT and REDUCE arguments.
 *
 * This header and kernels_table.c need no device: the client links only those (target plasmon_signatures).
 */
#ifndef KERNELS_KERNELS_H
#define KERNELS_KERNELS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/box.h"
#include "base/str.h"
#include "device/device.h"

#define KERNEL_SCALARS_MAX 16

/* Same bits as on the wire (enum Mode). */
enum kernel_mode {
    KERNEL_IN      = 1,
    KERNEL_OUT     = 2,
    KERNEL_INOUT   = 3,
    KERNEL_REDUCE  = 4,
    KERNEL_SCRATCH = 8,
};
enum kernel_reduce_op {
    KERNEL_SUM  = 1,
    KERNEL_PROD = 2,
    KERNEL_MIN  = 3,
    KERNEL_MAX  = 4,
};

/* Sets of dtypes a parameter takes. */
#define KERNEL_DTYPE(d) (1u << (d))
#define KERNEL_HALVES   (KERNEL_DTYPE(PL_F16) | KERNEL_DTYPE(PL_BF16))
#define KERNEL_SINGLES  (KERNEL_DTYPE(PL_F32) | KERNEL_DTYPE(PL_F64)) /* that LAPACK takes */
#define KERNEL_FLOATS   (KERNEL_HALVES | KERNEL_SINGLES)
#define KERNEL_PAIRS    (KERNEL_DTYPE(PL_C64) | KERNEL_DTYPE(PL_C128))
#define KERNEL_REALS    (KERNEL_FLOATS | KERNEL_DTYPE(PL_I32) | KERNEL_DTYPE(PL_I64))
#define KERNEL_NUMBERS  (KERNEL_REALS | KERNEL_PAIRS)

struct kernel_param {
    const char *name;
    /*
     * one of enum kernel_mode; or KERNEL_INOUT | KERNEL_REDUCE: either of them, reduced by the sum
     */
    uint32_t modes;
    uint32_t dtypes; /* set of KERNEL_DTYPE */
    bool variadic;   /* the last tensor parameter: one or more arguments */
    bool scalar;     /* goes in scalars, not in arguments */
    bool is_integer; /* scalar: int64; otherwise a double */
    bool is_flag;    /* an integer that is 0 or 1 */
};

/* What the shape rule and the checks see of an argument. */
struct kernel_arg_shape {
    uint32_t mode;
    struct pl_shape shape; /* of what the function sees: the view's shape */
    bool given; /* OUT, SCRATCH: the caller stated it; otherwise infer fills it in */
    uint32_t reduce_op; /* REDUCE only */
};
union kernel_scalar {
    int64_t i;
    double f;
    uint64_t bits;
};

struct kernel_function {
    const char *name; /* "gemm" */
    /*
     * "gemm(out T[m,n] c, in T[m,k] a, in T[k,n] b, f64 alpha, f64 beta)": text for people, parsed
     * by tests
     */
    const char *signature;
    const char *doc; /* one or two sentences */
    const struct kernel_param *params;
    uint32_t param_count;
    /*
     * The shape rule: checks inputs and scalars and fills shapes of outputs that were not given;
     * checks those that were.
     */
    plasmon_status_t (*infer)(const struct kernel_function *self,
                              struct kernel_arg_shape *args, uint32_t arg_count,
                              const union kernel_scalar *scalars, uint32_t scalar_count,
                              struct pl_err *err);
    /* By a client: part of a struct kernel_signature; on workers with the code behind it (code.h). */
    bool defined;
    struct kernel_code *code;
};

/*
 * How a defined function is launched. All 0: chosen where it runs; block alone: as many blocks as
 * the largest tensor needs.
 */
struct kernel_launch_shape {
    uint32_t grid[3];
    uint32_t block[3];
    uint32_t shared_bytes;
};

uint32_t kernel_count(void);
const struct kernel_function *kernel_at(uint32_t index);
const struct kernel_function *kernel_by_id(uint32_t id); /* pl_hash_name(name) */
const struct kernel_function *kernel_by_name(const char *name);
/*
 * For "did you mean": of the names that were looked at, and then of the catalogue, the one that
 * differs least from `name`, or one that begins alike; NULL: none does. Capitals are no difference.
 * Names are borrowed for as long as the answer is used.
 */
struct kernel_meant {
    const char *name;
    unsigned edits; /* of nearest; before: as many as may be */
    const char *nearest, *begun;
};
void kernel_meant_init(struct kernel_meant *meant, const char *name);
void kernel_meant_look(struct kernel_meant *meant, const char *known);
const char *kernel_meant(struct kernel_meant *meant);
/* The same of the catalogue alone. */
const char *kernel_suggest(const char *name);
/*
 * Arity, modes, dtypes and shapes; the same in client and worker. Tensor arguments in the order of
 * the signature, scalars apart. EARITY, EDTYPE, ESHAPE, EINVAL; err names function, argument, what
 * was given and what would fit.
 */
plasmon_status_t kernel_check(const struct kernel_function *function,
                              struct kernel_arg_shape *args, uint32_t arg_count,
                              const union kernel_scalar *scalars, uint32_t scalar_count,
                              struct pl_err *err) PL_MUST_CHECK;

/* ------------------------------------------------------------------------------ running */

/* One argument at run time: element (i0, i1, ..) is at data + sum(i * stride) * dtype bytes. */
struct kernel_arg {
    uint32_t mode;
    uint32_t dtype;
    uint32_t ndim;
    uint32_t reduce_op;
    int64_t dim[PL_DIM_MAX];
    /* elements; row-major contiguous or a view of a larger buffer */
    int64_t stride[PL_DIM_MAX];
    struct device_ptr data;
};

/*
 * A device's loaded functions: modules, cuBLAS workspace. Made once at start-up; everything is
 * loaded then.
 */
struct kernel_context;
plasmon_status_t kernel_context_create(struct device *device,
                                       struct kernel_context **out_context,
                                       struct pl_err *err) PL_MUST_CHECK;
void kernel_context_destroy(struct kernel_context *context);
/*
 * Some functions need a thing that only calls can make that allocate, load code and wait for the
 * device (a plan of cuFFT, the handle of cuSOLVER). kernel_prepared() says whether it is at hand:
 * PLASMON_OK, and it stays so until another call has run; EAGAIN: kernel_prepare() must be called,
 * with nothing enqueued on the device; anything else: why it cannot be made. keep: it stays until
 * kernel_release(), for a recorded graph. Always OK on CPU devices. One thread at a time.
 */
plasmon_status_t kernel_prepared(struct kernel_context *context,
                                 const struct kernel_function *function,
                                 const struct kernel_arg *args, uint32_t arg_count,
                                 const union kernel_scalar *scalars, bool keep,
                                 struct pl_err *err) PL_MUST_CHECK;
/* What goes wrong is what the next kernel_prepared() answers. */
plasmon_status_t kernel_prepare(struct kernel_context *context,
                                const struct kernel_function *function,
                                const struct kernel_arg *args, uint32_t arg_count,
                                const union kernel_scalar *scalars,
                                struct pl_err *err) PL_MUST_CHECK;
void kernel_release(struct kernel_context *context); /* no recorded graph is left */
/*
 * On a GPU: where a launch that fails because of its data is marked before its stream's word can
 * say that it is over, so that whoever comes after this process knows. Entry tag % count, if it is
 * (tag << shift | ..), gets `bit`. The entries are registered host memory that outlives the
 * process; set once, before anything runs. On a CPU device the device's `launch_failed` does that.
 */
struct kernel_marks {
    struct device_ptr entries; /* uint64_t */
    uint64_t count;
    uint64_t bit;
    uint32_t shift;
};
void kernel_context_set_marks(struct kernel_context *context,
                              const struct kernel_marks *marks);
/*
 * Bytes of scratch on the device that run() needs for this call (for strided BLAS operands,
 * reductions, top-k ..); the caller allocates it before enqueuing. 0: none.
 */
uint64_t kernel_scratch_bytes(struct kernel_context *context,
                              const struct kernel_function *function,
                              const struct kernel_arg *args, uint32_t arg_count,
                              const union kernel_scalar *scalars, uint32_t scalar_count);
/*
 * How many operations (kernels, copies, fills) run() puts into the stream for this call, at most: a
 * stream takes so many that are not done and no more. Of what a library does inside it is an
 * estimate on the high side. 1 on CPU devices. args as for the scratch.
 */
uint64_t kernel_operations(struct kernel_context *context,
                           const struct kernel_function *function,
                           const struct kernel_arg *args, uint32_t arg_count,
                           const union kernel_scalar *scalars, uint32_t scalar_count);
/*
 * Enqueue on the stream; returns before the work is done. The args were checked. REDUCE arguments
 * accumulate into data (which holds the identity or a partial). Errors found now are returned;
 * errors found when it runs go where the device reports failures (tag on CPU devices).
 */
plasmon_status_t kernel_run(struct kernel_context *context, struct device_stream *stream,
                            const struct kernel_function *function,
                            const struct kernel_arg *args, uint32_t arg_count,
                            const union kernel_scalar *scalars, uint32_t scalar_count,
                            struct device_ptr scratch, uint64_t scratch_bytes, uint64_t tag,
                            struct pl_err *err) PL_MUST_CHECK;
/*
 * Launches that failed when they ran because of their data (a singular matrix, a column out of
 * range ..), oldest first; false: none. On CPU devices every failure of a function comes this way.
 * A launch whose completion was seen on its stream has left its failure. One thread at a time.
 */
bool kernel_failure(struct kernel_context *context, uint64_t *out_tag,
                    struct pl_err *out_err);
/* Enqueue: fill a strided array with the identity of the reduction. */
plasmon_status_t kernel_fill_identity(struct kernel_context *context,
                                      struct device_stream *stream,
                                      const struct kernel_arg *arg,
                                      uint64_t tag) PL_MUST_CHECK;
/*
 * Run a CPU function now in the calling thread (same code as on the stream); for tests, references
 * and tiny tasks.
 */
plasmon_status_t kernel_run_cpu_now(const struct kernel_function *function,
                                    const struct kernel_arg *args, uint32_t arg_count,
                                    const union kernel_scalar *scalars,
                                    uint32_t scalar_count,
                                    struct pl_err *err) PL_MUST_CHECK;

#endif
