/*
 * Fourier transforms by cuFFT: plans by shape (cuda_plans.h), work areas from scratch, dense operands.
 *
 * A plan is made for dense arrays, so that it serves every layout: what is strided or not aligned
 * goes through scratch, and so does the input of irfft, which cuFFT overwrites. Scratch: the copy
 * of x, the copy of y, the work area.
 *
 * cuFFT divides nothing; the factor of an inverse is one more pass, which also puts y into its layout.
 */
#include "kernels/cuda_int.h"

#include "base/alloc.h"

#include <assert.h>

/* cufftResult, cufftType, directions. */
#define FFT_SUCCESS       0
#define FFT_ALLOC_FAILED  2
#define FFT_INVALID_SIZE  8
#define FFT_NOT_SUPPORTED 16
#define FFT_R2C           0x2a
#define FFT_C2R           0x2c
#define FFT_C2C           0x29
#define FFT_D2Z           0x6a
#define FFT_Z2D           0x6c
#define FFT_Z2Z           0x69
#define FFT_FORWARD       (-1)
#define FFT_INVERSE       1

#define ALIGNMENT 256 /* of parts of scratch */

/*
 * The functions that are used, as cufft.h declares them but for the names of types; in this order
 * in `names`.
 */
struct cuda_fft_library {
    void *library;
    union {
        struct {
            int (*create)(int *handle);
            int (*destroy)(int handle);
            int (*auto_allocation)(int handle, int allocates);
            int (*make_plan)(int handle, int rank, long long *n, long long *in_embed,
                             long long in_stride, long long in_dist, long long *out_embed,
                             long long out_stride, long long out_dist, int type,
                             long long batch, size_t *work_bytes);
            int (*set_stream)(int handle, void *stream);
            int (*set_work_area)(int handle, void *work);
            int (*c2c)(int handle, void *in, void *out, int direction);
            int (*z2z)(int handle, void *in, void *out, int direction);
            int (*r2c)(int handle, void *in, void *out);
            int (*d2z)(int handle, void *in, void *out);
            int (*c2r)(int handle, void *in, void *out);
            int (*z2d)(int handle, void *in, void *out);
        };
        void (*symbol[12])(void);
    };
};

static const char *const names[] = {
    "cufftCreate",    "cufftDestroy",     "cufftSetAutoAllocation", "cufftMakePlanMany64",
    "cufftSetStream", "cufftSetWorkArea", "cufftExecC2C",           "cufftExecZ2Z",
    "cufftExecR2C",   "cufftExecD2Z",     "cufftExecC2R",           "cufftExecZ2D"};

static plasmon_status_t fft_status(const struct cuda_call *call, int result,
                                   const char *what)
{
    if (result == FFT_SUCCESS) {
        return PLASMON_OK;
    }
    return pl_err_set(
        call->err,
        result == FFT_ALLOC_FAILED                                  ? PLASMON_EDEVMEM
        : result == FFT_INVALID_SIZE || result == FFT_NOT_SUPPORTED ? PLASMON_ENOTSUP
                                                                    : PLASMON_EDEVICE,
        "%s: %s: cuFFT error %d%s", call->function->name, what, result,
        result == FFT_INVALID_SIZE ? ": cuFFT does not take this length" : "");
}

/* -------------------------------------------------------------------------------- plans */

static plasmon_status_t library_open(const struct cuda_call *call)
{
    static const char *const files[] = {"libcufft.so.12", "libcufft.so.11", NULL};
    static const char *const needs[] = {"libnvJitLink.so.13", "libnvJitLink.so.12", NULL};
    struct cuda_plans *plans         = &call->cuda->plans;
    struct cuda_fft_library *library;
    plasmon_status_t status;

    if (plans->fft != NULL) {
        return PLASMON_OK;
    }
    library = PL_NEW(struct cuda_fft_library);
    if (library == NULL) {
        return pl_err_set(call->err, PLASMON_ENOMEM, "no memory for cuFFT");
    }
    static_assert(PL_COUNT(names) == PL_COUNT(library->symbol), "a name a function");
    library->library =
        cuda_library_open(call->cuda->device, "cuFFT", files, needs, call->err);
    status = library->library == NULL
                 ? PLASMON_ENOLIB
                 : cuda_library_symbols(library->library, "cuFFT", names, library->symbol,
                                        PL_COUNT(names), call->err);
    if (status != PLASMON_OK) {
        /* what was opened stays open, as other libraries of the toolkit do */
        pl_free(library);
        return status;
    }
    plans->fft = library;
    return PLASMON_OK;
}

void cuda_fft_close(struct cuda_fft_library *library)
{
    pl_free(library);
}

void cuda_fft_plan_destroy(const struct cuda_fft_library *library,
                           struct cuda_library_plan *plan)
{
    (void)library->destroy(plan->handle); /* fails only on a lost device */
}

static int type_of(uint32_t x, uint32_t y)
{
    switch (x) {
    case PL_F32:
        return FFT_R2C;
    case PL_F64:
        return FFT_D2Z;
    case PL_C64:
        return y == PL_F32 ? FFT_C2R : FFT_C2C;
    default:
        return y == PL_F64 ? FFT_Z2D : FFT_Z2Z;
    }
}

/* Length of an axis of the transform; one array may have the half that is not symmetric. */
static int64_t length_of(const struct cuda_call *call, uint32_t axis)
{
    int64_t x = call->args[1].dim[axis];
    int64_t y = call->args[0].dim[axis];

    return x > y ? x : y;
}

static uint32_t first_axis(const struct cuda_call *call)
{
    return call->args[1].ndim - (uint32_t)call->scalars[0].i;
}

static double elements_of(const struct cuda_call *call)
{
    double count = 1;

    for (uint32_t d = first_axis(call); d < call->args[1].ndim; d++) {
        count *= (double)length_of(call, d);
    }
    return count;
}

/* A transform of single elements is a copy, for which no plan is made. */
static bool is_copy(const struct cuda_call *call)
{
    return elements_of(call) == 1;
}

/*
 * Forward and inverse transforms of complex numbers share plans. Axes of length 1 are left out, so
 * that cuFFT need not know them; but for the last one of a transform to or from real numbers, which
 * says which half there is.
 */
static struct cuda_plan_key key_of(const struct cuda_call *call)
{
    uint32_t x               = call->args[1].dtype;
    uint32_t y               = call->args[0].dtype;
    uint32_t ndim            = call->args[1].ndim;
    struct cuda_plan_key key = {.kind = (uint32_t)type_of(x, y), .dtype = x, .batch = 1};

    for (uint32_t d = 0; d < ndim; d++) {
        int64_t n = length_of(call, d);

        if (d < first_axis(call)) {
            key.batch *= n;
        } else if (n != 1 || (d == ndim - 1 && x != y)) {
            key.dim[key.rank++] = n;
        }
    }
    return key;
}

static plasmon_status_t plan_make(const struct cuda_call *call,
                                  struct cuda_library_plan *plan)
{
    const struct cuda_fft_library *library;
    plasmon_status_t status = library_open(call);
    size_t bytes            = 0;
    long long n[3];

    if (status != PLASMON_OK) {
        return status;
    }
    library = call->cuda->plans.fft;
    for (int i = 0; i < 3; i++) {
        n[i] = plan->key.dim[i];
    }
    status     = fft_status(call, library->create(&plan->handle), "cufftCreate");
    plan->made = status == PLASMON_OK;
    if (status == PLASMON_OK) {
        status = fft_status(call, library->auto_allocation(plan->handle, 0),
                            "cufftSetAutoAllocation");
    }
    if (status == PLASMON_OK) {
        status = fft_status(call,
                            library->make_plan(plan->handle, (int)plan->key.rank, n, NULL,
                                               1, 0, NULL, 1, 0, (int)plan->key.kind,
                                               plan->key.batch, &bytes),
                            "cufftMakePlanMany64");
    }
    plan->work_bytes = bytes;
    return status;
}

plasmon_status_t cuda_fft_look(const struct cuda_call *call, bool keep)
{
    struct cuda_plan_key key = key_of(call);

    return is_copy(call) ? PLASMON_OK : cuda_plans_look(call, &key, keep);
}

plasmon_status_t cuda_fft_make(const struct cuda_call *call)
{
    struct cuda_plan_key key = key_of(call);

    return cuda_plans_make(call, &key, plan_make);
}

/* ------------------------------------------------------------------------------ running */

struct operands {
    struct kernel_arg x;
    struct kernel_arg y;
    uint64_t work;
    uint64_t bytes; /* of scratch, without the work area */
};

static bool as_it_is(const struct kernel_arg *arg)
{
    return kernel_arg_dense(arg) && arg->data.addr % 16 == 0;
}

static struct operands operands_of(const struct kernel_arg *args, uint64_t scratch)
{
    struct operands o = {.x = args[1], .y = args[0]};
    bool overwritten =
        kernel_is_complex(args[1].dtype) && !kernel_is_complex(args[0].dtype);

    if (overwritten || !as_it_is(&args[1])) {
        o.x = kernel_arg_compact(&args[1], (struct device_ptr){scratch});
        o.bytes += kernel_fft_copy_bytes(&o.x);
    }
    if (!as_it_is(&args[0])) {
        o.y = kernel_arg_compact(&args[0], (struct device_ptr){scratch + o.bytes});
        o.bytes += kernel_fft_copy_bytes(&o.y);
    }
    o.work = scratch + o.bytes;
    return o;
}

uint64_t cuda_fft_work(const struct cuda_call *call)
{
    struct cuda_plan_key key             = key_of(call);
    const struct cuda_library_plan *plan = cuda_plan_of(&call->cuda->plans, &key);

    if (is_copy(call)) {
        return 0;
    }
    return operands_of(call->args, 0).bytes +
           (plan == NULL ? 0 : pl_round_up(plan->work_bytes, ALIGNMENT));
}

static int execute(const struct cuda_fft_library *library,
                   const struct cuda_library_plan *plan, const struct operands *o,
                   bool inverse)
{
    int direction = inverse ? FFT_INVERSE : FFT_FORWARD;
    void *x       = (void *)(uintptr_t)o->x.data.addr;
    void *y       = (void *)(uintptr_t)o->y.data.addr;

    switch (plan->key.kind) {
    case FFT_C2C:
        return library->c2c(plan->handle, x, y, direction);
    case FFT_Z2Z:
        return library->z2z(plan->handle, x, y, direction);
    case FFT_R2C:
        return library->r2c(plan->handle, x, y);
    case FFT_D2Z:
        return library->d2z(plan->handle, x, y);
    case FFT_C2R:
        return library->c2r(plan->handle, x, y);
    default:
        return library->z2d(plan->handle, x, y);
    }
}

static plasmon_status_t transform(const struct cuda_call *call, const struct operands *o,
                                  bool inverse)
{
    const struct cuda_fft_library *library = call->cuda->plans.fft;
    struct cuda_plan_key key               = key_of(call);
    const struct cuda_library_plan *plan   = cuda_plan_of(&call->cuda->plans, &key);
    plasmon_status_t status;

    if (plan == NULL) {
        return pl_err_set(call->err, PLASMON_EINTERNAL,
                          "%s: its plan was not made before it", call->function->name);
    }
    pl_mutex_lock(&call->cuda->blas_lock);
    status = device_enter(call->cuda->device);
    if (status == PLASMON_OK) {
        status = fft_status(
            call, library->set_stream(plan->handle, device_native_stream(call->stream)),
            "cufftSetStream");
    }
    if (status == PLASMON_OK && plan->work_bytes > 0) {
        status = fft_status(
            call, library->set_work_area(plan->handle, (void *)(uintptr_t)o->work),
            "cufftSetWorkArea");
    }
    if (status == PLASMON_OK) {
        status = fft_status(call, execute(library, plan, o, inverse), "cufftExec");
    }
    pl_mutex_unlock(&call->cuda->blas_lock);
    return status;
}

/* y = x / the number of elements of a transform. */
static plasmon_status_t scale(const struct cuda_call *call, const struct kernel_arg *x)
{
    struct kernel_arg args[2]  = {call->args[0], *x};
    union kernel_scalar factor = {.f = 1};
    struct cuda_call multiply  = *call;

    factor.f         = 1 / elements_of(call);
    multiply.args    = args;
    multiply.scalars = &factor;
    multiply.op      = KERNEL_OP_MULTIPLY_SCALAR;
    return cuda_scalar(&multiply);
}

static plasmon_status_t run(const struct cuda_call *call, bool inverse)
{
    struct operands o       = operands_of(call->args, call->scratch.addr);
    plasmon_status_t status = PLASMON_OK;

    if (is_copy(call)) {
        return cuda_convert(call, &call->args[0], &call->args[1]);
    }
    if (o.x.data.addr != call->args[1].data.addr) {
        status = cuda_copy(call, &o.x, &call->args[1]);
    }
    if (status == PLASMON_OK) {
        status = transform(call, &o, inverse);
    }
    if (status != PLASMON_OK) {
        return status;
    }
    if (inverse) {
        return scale(call, &o.y);
    }
    return o.y.data.addr == call->args[0].data.addr ? PLASMON_OK
                                                    : cuda_copy(call, &call->args[0], &o.y);
}

plasmon_status_t cuda_fft(const struct cuda_call *call)
{
    return run(call, false);
}

plasmon_status_t cuda_ifft(const struct cuda_call *call)
{
    return run(call, true);
}
