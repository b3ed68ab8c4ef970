/*
 * QR, inverses and determinants by cuSOLVER: geqrf, orgqr, getrf, getrs, which enqueue and do not
 * wait. Its routines for singular values and eigenvalues look at their progress from the host
 * between steps: see cuda_jacobi.cuh.
 *
 * The handle is made with the first plan, off the order of enqueueing (cuda_plans.h), where the
 * sizes of workspaces are asked for too. Matrices are counted in columns: what is copied by rows is
 * the transpose, whose LU factor serves as well.
 *
 * Scratch: info (64 bytes), the copy of a, then what a routine wants, its workspace last.
 */
#include "kernels/cuda_int.h"

#include "base/alloc.h"
#include "kernels/cuda_matrix_params.h"
#include "kernels/matrix.h"

#include <assert.h>
#include <limits.h>

#define INFO_BYTES 64

/* Kinds of plans, beside those of transforms. */
#define KIND_QR 0x1000
#define KIND_LU 0x1001

/* cusolverStatus_t, cublasOperation_t */
#define SOLVER_SUCCESS      0
#define SOLVER_ALLOC_FAILED 2
#define SOLVER_N            0

/*
 * The functions that are used, as cusolverDn.h declares them but for the names of types; f32 first,
 * in the order of `names`.
 */
struct cuda_solver_library {
    void *library;
    void *handle; /* NULL: not made yet */
    union {
        struct {
            int (*create)(void **handle);
            int (*destroy)(void *handle);
            int (*set_stream)(void *handle, void *stream);
            int (*geqrf_size[2])(void *handle, int m, int n, void *a, int lda, int *count);
            int (*geqrf[2])(void *handle, int m, int n, void *a, int lda, void *tau,
                            void *work, int count, int *info);
            int (*orgqr_size[2])(void *handle, int m, int n, int k, const void *a, int lda,
                                 const void *tau, int *count);
            int (*orgqr[2])(void *handle, int m, int n, int k, void *a, int lda,
                            const void *tau, void *work, int count, int *info);
            int (*getrf_size[2])(void *handle, int m, int n, void *a, int lda, int *count);
            int (*getrf[2])(void *handle, int m, int n, void *a, int lda, void *work,
                            int *pivots, int *info);
            int (*getrs[2])(void *handle, int trans, int n, int columns, const void *a,
                            int lda, const int *pivots, void *b, int ldb, int *info);
        };
        void (*symbol[17])(void);
    };
};

static const char *const names[] = {"cusolverDnCreate",
                                    "cusolverDnDestroy",
                                    "cusolverDnSetStream",
                                    "cusolverDnSgeqrf_bufferSize",
                                    "cusolverDnDgeqrf_bufferSize",
                                    "cusolverDnSgeqrf",
                                    "cusolverDnDgeqrf",
                                    "cusolverDnSorgqr_bufferSize",
                                    "cusolverDnDorgqr_bufferSize",
                                    "cusolverDnSorgqr",
                                    "cusolverDnDorgqr",
                                    "cusolverDnSgetrf_bufferSize",
                                    "cusolverDnDgetrf_bufferSize",
                                    "cusolverDnSgetrf",
                                    "cusolverDnDgetrf",
                                    "cusolverDnSgetrs",
                                    "cusolverDnDgetrs"};

static plasmon_status_t solver_status(const struct cuda_call *call, int result,
                                      const char *what)
{
    if (result == SOLVER_SUCCESS) {
        return PLASMON_OK;
    }
    return pl_err_set(call->err,
                      result == SOLVER_ALLOC_FAILED ? PLASMON_EDEVMEM : PLASMON_EDEVICE,
                      "%s: %s: cuSOLVER error %d", call->function->name, what, result);
}

/* -------------------------------------------------------------------------------- plans */

static plasmon_status_t library_open(const struct cuda_call *call)
{
    static const char *const files[] = {"libcusolver.so.12", "libcusolver.so.11", NULL};
    static const char *const needs[] = {"libnvJitLink.so.13", "libnvJitLink.so.12",
                                        "libcublasLt.so.13",  "libcublasLt.so.12",
                                        "libcublas.so.13",    "libcublas.so.12",
                                        "libcusparse.so.12",  NULL};
    struct cuda_plans *plans         = &call->cuda->plans;
    struct cuda_solver_library *library;
    plasmon_status_t status;

    if (plans->solver != NULL) {
        return PLASMON_OK;
    }
    library = PL_NEW(struct cuda_solver_library);
    if (library == NULL) {
        return pl_err_set(call->err, PLASMON_ENOMEM, "no memory for cuSOLVER");
    }
    static_assert(PL_COUNT(names) == PL_COUNT(library->symbol), "a name a function");
    library->library =
        cuda_library_open(call->cuda->device, "cuSOLVER", files, needs, call->err);
    status = library->library == NULL
                 ? PLASMON_ENOLIB
                 : cuda_library_symbols(library->library, "cuSOLVER", names,
                                        library->symbol, PL_COUNT(names), call->err);
    if (status == PLASMON_OK) {
        status = solver_status(call, library->create(&library->handle), "cusolverDnCreate");
    }
    if (status != PLASMON_OK) {
        /* what was opened stays open, as other libraries of the toolkit do */
        pl_free(library);
        return status;
    }
    plans->solver = library;
    return PLASMON_OK;
}

void cuda_solver_close(struct cuda_solver_library *library)
{
    if (library != NULL) {
        (void)library->destroy(library->handle); /* fails only on a lost device */
        pl_free(library);
    }
}

/* A matrix as the routines count: m by n; f64 picks the second of two functions. */
struct size {
    int m;
    int n;
    int k;
    uint32_t f64;
    uint64_t bytes; /* of an element */
    bool fits;      /* their 32 bits */
};

static const struct kernel_arg *matrix_of(const struct cuda_call *call)
{
    return &call->args[call->arg_count - 1];
}

static struct size size_of(const struct kernel_arg *a)
{
    struct size s = {.m     = (int)a->dim[0],
                     .n     = (int)a->dim[1],
                     .f64   = a->dtype == PL_F64,
                     .bytes = pl_dtype_bytes(a->dtype),
                     .fits  = a->dim[0] <= INT_MAX && a->dim[1] <= INT_MAX};

    s.k = s.m < s.n ? s.m : s.n;
    return s;
}

/* Inverses and determinants share plans. */
static struct cuda_plan_key key_of(const struct cuda_call *call)
{
    const struct kernel_arg *a = matrix_of(call);
    bool is_qr                 = kernel_id_of(call->function) == KERNEL_ID_qr;

    return (struct cuda_plan_key){.kind  = is_qr ? KIND_QR : KIND_LU,
                                  .dtype = a->dtype,
                                  .rank  = 2,
                                  .dim   = {a->dim[0], a->dim[1], 0}};
}

static plasmon_status_t sizes_ask(const struct cuda_call *call, const struct size *s,
                                  struct cuda_library_plan *plan)
{
    const struct cuda_solver_library *library = call->cuda->plans.solver;
    plasmon_status_t status;
    int more = 0;

    if (plan->key.kind == KIND_LU) {
        return solver_status(call,
                             library->getrf_size[s->f64](library->handle, s->n, s->n, NULL,
                                                         s->n, &plan->work_count),
                             "getrf_bufferSize");
    }
    status = solver_status(call,
                           library->geqrf_size[s->f64](library->handle, s->m, s->n, NULL,
                                                       s->m, &plan->work_count),
                           "geqrf_bufferSize");
    if (status == PLASMON_OK) {
        status = solver_status(call,
                               library->orgqr_size[s->f64](library->handle, s->m, s->k,
                                                           s->k, NULL, s->m, NULL, &more),
                               "orgqr_bufferSize");
    }
    plan->work_count = more > plan->work_count ? more : plan->work_count;
    return status;
}

static plasmon_status_t plan_make(const struct cuda_call *call,
                                  struct cuda_library_plan *plan)
{
    struct size s = size_of(matrix_of(call));
    plasmon_status_t status;

    if (!s.fits) {
        return pl_err_set(call->err, PLASMON_ENOTSUP,
                          "%s: a dimension is beyond the 32 bits of cuSOLVER",
                          call->function->name);
    }
    status = library_open(call);
    if (status == PLASMON_OK) {
        status = sizes_ask(call, &s, plan);
    }
    plan->work_bytes = (uint64_t)plan->work_count * s.bytes;
    return status;
}

plasmon_status_t cuda_solver_look(const struct cuda_call *call, bool keep)
{
    struct cuda_plan_key key = key_of(call);

    return cuda_plans_look(call, &key, keep);
}

plasmon_status_t cuda_solver_make(const struct cuda_call *call)
{
    struct cuda_plan_key key = key_of(call);

    return cuda_plans_make(call, &key, plan_make);
}

/* ------------------------------------------------------------------------------ scratch */

struct layout {
    uint64_t info;
    uint64_t a;
    uint64_t other; /* tau; or the right sides, which become the inverse */
    uint64_t pivots;
    uint64_t work;
    uint64_t bytes;
};

static uint64_t take(struct layout *at, uint64_t base, uint64_t bytes)
{
    uint64_t address = base + at->bytes;

    at->bytes += pl_round_up(bytes, 256);
    return address;
}

static struct layout layout_of(const struct cuda_call *call,
                               const struct cuda_library_plan *plan)
{
    struct size s     = size_of(matrix_of(call));
    uint64_t base     = call->scratch.addr;
    uint64_t cells    = (uint64_t)s.m * (uint64_t)s.n;
    struct layout at  = {.bytes = 0};
    enum kernel_id id = kernel_id_of(call->function);

    at.info   = take(&at, base, INFO_BYTES);
    at.a      = take(&at, base, cells * s.bytes);
    at.other  = take(&at, base,
                     (id == KERNEL_ID_inverse ? cells
                      : id == KERNEL_ID_qr    ? (uint64_t)s.k
                                              : 0) *
                         s.bytes);
    at.pivots = take(&at, base, id == KERNEL_ID_qr ? 0 : (uint64_t)s.n * sizeof(int));
    at.work   = take(&at, base, plan == NULL ? 0 : plan->work_bytes);
    return at;
}

uint64_t cuda_solver_work(const struct cuda_call *call)
{
    struct cuda_plan_key key = key_of(call);

    return layout_of(call, cuda_plan_of(&call->cuda->plans, &key)).bytes;
}

/* ------------------------------------------------------------------------------ running */

static void *pointer(uint64_t address)
{
    return (void *)(uintptr_t)address;
}

/* One call of the library on the call's stream. */
struct step {
    const struct cuda_call *call;
    const struct cuda_solver_library *library;
    const struct cuda_library_plan *plan;
    struct size s;
    struct layout at;
};

static int step_geqrf(const struct step *w)
{
    return w->library->geqrf[w->s.f64](w->library->handle, w->s.m, w->s.n, pointer(w->at.a),
                                       w->s.m, pointer(w->at.other), pointer(w->at.work),
                                       w->plan->work_count, pointer(w->at.info));
}

static int step_orgqr(const struct step *w)
{
    return w->library->orgqr[w->s.f64](w->library->handle, w->s.m, w->s.k, w->s.k,
                                       pointer(w->at.a), w->s.m, pointer(w->at.other),
                                       pointer(w->at.work), w->plan->work_count,
                                       pointer(w->at.info));
}

static int step_getrf(const struct step *w)
{
    return w->library->getrf[w->s.f64](w->library->handle, w->s.n, w->s.n, pointer(w->at.a),
                                       w->s.n, pointer(w->at.work), pointer(w->at.pivots),
                                       pointer(w->at.info));
}

/* info of getrf stays: this one finds nothing wrong but arguments of ours. */
static int step_getrs(const struct step *w)
{
    return w->library->getrs[w->s.f64](w->library->handle, SOLVER_N, w->s.n, w->s.n,
                                       pointer(w->at.a), w->s.n, pointer(w->at.pivots),
                                       pointer(w->at.other), w->s.n,
                                       pointer(w->at.info + sizeof(int)));
}

static plasmon_status_t step_run(const struct step *w, int (*step)(const struct step *),
                                 const char *what)
{
    plasmon_status_t status;

    pl_mutex_lock(&w->call->cuda->blas_lock);
    status = device_enter(w->call->cuda->device);
    if (status == PLASMON_OK) {
        status =
            solver_status(w->call,
                          w->library->set_stream(w->library->handle,
                                                 device_native_stream(w->call->stream)),
                          "cusolverDnSetStream");
    }
    if (status == PLASMON_OK) {
        status = solver_status(w->call, step(w), what);
    }
    pl_mutex_unlock(&w->call->cuda->blas_lock);
    return status;
}

static plasmon_status_t begin(const struct cuda_call *call, struct step *out)
{
    struct cuda_plan_key key = key_of(call);

    *out = (struct step){.call    = call,
                         .library = call->cuda->plans.solver,
                         .plan    = cuda_plan_of(&call->cuda->plans, &key),
                         .s       = size_of(matrix_of(call))};
    if (out->plan == NULL) {
        return pl_err_set(call->err, PLASMON_EINTERNAL,
                          "%s: its plan was not made before it", call->function->name);
    }
    out->at = layout_of(call, out->plan);
    return PLASMON_OK;
}

static struct kernel_arg view(const struct step *w, uint64_t data, int64_t rows,
                              int64_t columns, int64_t row_stride, int64_t column_stride)
{
    struct kernel_matrix m = {data, rows, columns, row_stride, column_stride};

    return kernel_matrix_arg(&m, matrix_of(w->call)->dtype);
}

static plasmon_status_t copy_triangle(const struct step *w)
{
    const struct kernel_arg *r = &w->call->args[1];
    int64_t bytes              = (int64_t)w->s.bytes;
    struct cuda_upper params   = {.rows        = w->s.k,
                                  .columns     = w->s.n,
                                  .stride      = {r->stride[0] * bytes, r->stride[1] * bytes},
                                  .from_stride = {bytes, w->s.m * bytes},
                                  .data        = r->data.addr,
                                  .from        = w->at.a};

    return cuda_launch(w->call, CUDA_upper_f32 + w->s.f64,
                       cuda_blocks(w->call, params.rows * params.columns), 256, 1, &params);
}

plasmon_status_t cuda_qr(const struct cuda_call *call)
{
    struct step w;
    struct kernel_arg a, q;
    plasmon_status_t status = begin(call, &w);

    if (status != PLASMON_OK) {
        return status;
    }
    a      = view(&w, w.at.a, w.s.m, w.s.n, 1, w.s.m);
    q      = view(&w, w.at.a, w.s.m, w.s.k, 1, w.s.m);
    status = cuda_copy(call, &a, matrix_of(call));
    if (status == PLASMON_OK) {
        status = step_run(&w, step_geqrf, "geqrf");
    }
    if (status == PLASMON_OK) {
        status = copy_triangle(&w);
    }
    if (status == PLASMON_OK) {
        status = step_run(&w, step_orgqr, "orgqr");
    }
    return status == PLASMON_OK ? cuda_copy(call, &call->args[0], &q) : status;
}

/* The LU factor of the transpose of a. */
static plasmon_status_t factor(const struct step *w)
{
    struct kernel_arg a     = view(w, w->at.a, w->s.n, w->s.n, w->s.n, 1);
    plasmon_status_t status = cuda_copy(w->call, &a, matrix_of(w->call));

    return status == PLASMON_OK ? step_run(w, step_getrf, "getrf") : status;
}

static plasmon_status_t fill(const struct step *w, const struct kernel_arg *x, double value)
{
    union kernel_scalar scalar = {.f = value};
    struct cuda_call call      = *w->call;

    call.args    = x;
    call.scalars = &scalar;
    return cuda_fill_f64(&call);
}

static plasmon_status_t fill_identity(const struct step *w)
{
    struct kernel_arg all      = view(w, w->at.other, w->s.n, w->s.n, w->s.n, 1);
    struct kernel_arg diagonal = view(w, w->at.other, w->s.n, 1, w->s.n + 1, 1);
    plasmon_status_t status    = fill(w, &all, 0);

    return status == PLASMON_OK ? fill(w, &diagonal, 1) : status;
}

plasmon_status_t cuda_inverse(const struct cuda_call *call)
{
    const enum kernel_data_error error = KERNEL_DATA_SINGULAR;
    struct step w;
    struct kernel_arg y;
    plasmon_status_t status = begin(call, &w);

    if (status == PLASMON_OK) {
        status = factor(&w);
    }
    if (status == PLASMON_OK) {
        status = fill_identity(&w);
    }
    if (status == PLASMON_OK) {
        status = step_run(&w, step_getrs, "getrs");
    }
    if (status == PLASMON_OK) {
        /* by columns it is the transpose's inverse, so by rows a's */
        y      = view(&w, w.at.other, w.s.n, w.s.n, w.s.n, 1);
        status = cuda_copy(call, &call->args[0], &y);
    }
    return status == PLASMON_OK ? cuda_report(call, &w.at.info, &error, 1, sizeof(int), 0)
                                : status;
}

plasmon_status_t cuda_determinant(const struct cuda_call *call)
{
    struct cuda_pivots params;
    struct step w;
    plasmon_status_t status = begin(call, &w);

    if (status == PLASMON_OK) {
        status = factor(&w);
    }
    if (status != PLASMON_OK) {
        return status;
    }
    params = (struct cuda_pivots){.n      = w.s.n,
                                  .factor = w.at.a,
                                  .pivots = w.at.pivots,
                                  .info   = w.at.info,
                                  .result = call->args[0].data.addr};
    return cuda_launch(call, CUDA_pivots_product_f32 + w.s.f64, 1, 256, 1, &params);
}
