/*
 * The CUDA variants by function, loading, and launching.
 *
 * Everything is loaded when the context is made: modules, kernels, the functions of cuBLAS. A first
 * launch that loads code would block while a stream waits, and a worker's streams wait all the
 * time. A cuBLAS that is to be started later (device.h) is what a call of a function that may need
 * it has to have prepared, like a plan: with nothing enqueued.
 */
#include "kernels/cuda_int.h"

#include "base/alloc.h"
#include "kernels/cuda_matrix_params.h"
#include "kernels/matrix.h"

#include <assert.h>
#include <string.h>

static_assert(CUDA_DIM_MAX == PL_DIM_MAX, "cuda_params.h repeats it for nvcc");
static_assert(CUDA_FOLD_MAX == KERNEL_FOLD_MAX, "cuda_params.h repeats it for nvcc");
static_assert(PL_BOOL == 1 && PL_U8 == 3 && PL_I32 == 6 && PL_U64 == 9 && PL_F16 == 10 &&
                  PL_BF16 == 11 && PL_F32 == 12 && PL_F64 == 13 && PL_C64 == 14 &&
                  PL_C128 == 15,
              "cuda_common.cuh repeats them for nvcc");
static_assert(sizeof(struct cuda_reduce) <= 4096, "kernel parameters of every driver");

/* ---------------------------------------------------------------------------- the table */

struct cuda_variant {
    plasmon_status_t (*run)(const struct cuda_call *call); /* NULL: nothing to do */
    kernel_cpu_scratch_fn scratch;
    plasmon_status_t (*look)(const struct cuda_call *call, bool keep); /* NULL: no plan */
    plasmon_status_t (*make)(const struct cuda_call *call);
    uint64_t (*work)(const struct cuda_call *call);
    bool blas; /* it may call cuBLAS */
};

#define ROW(id, fn) [KERNEL_ID_##id] = {.run = cuda_##fn}
#define ROW_SCRATCH(id, fn) \
    [KERNEL_ID_##id] = {.run = cuda_##fn, .scratch = cuda_##fn##_scratch}

#define ROW_BLAS(id, fn) \
    [KERNEL_ID_##id] = {.run = cuda_##fn, .scratch = cuda_##fn##_scratch, .blas = true}

#define ROW_PLANNED(id, fn, plan)                   \
    [KERNEL_ID_##id] = {.run  = cuda_##fn,          \
                        .look = cuda_##plan##_look, \
                        .make = cuda_##plan##_make, \
                        .work = cuda_##plan##_work}

static const struct cuda_variant variants[KERNEL_ID_COUNT] = {
    [KERNEL_ID_noop]  = {.run = NULL},
    [KERNEL_ID_touch] = {.run = NULL},
    ROW(fill, fill_f64),
    ROW(fill_int, fill_i64),
    ROW(copy, move),
    ROW(cast, cast),
    ROW(arange, generate),
    ROW(random_uniform, generate),
    ROW(random_normal, generate),
    ROW(negative, unary),
    ROW(abs, part),
    ROW(sign, unary),
    ROW(square, unary),
    ROW(sqrt, unary),
    ROW(reciprocal, unary),
    ROW(exp, unary),
    ROW(log, unary),
    ROW(sin, unary),
    ROW(cos, unary),
    ROW(tanh, unary),
    ROW(sigmoid, unary),
    ROW(floor, unary),
    ROW(ceil, unary),
    ROW(conj, unary),
    ROW(real, part),
    ROW(imag, part),
    ROW(not, logical),
    ROW(add, binary),
    ROW(subtract, binary),
    ROW(multiply, binary),
    ROW(divide, binary),
    ROW(minimum, binary),
    ROW(maximum, binary),
    ROW(power, binary),
    ROW(equal, compare),
    ROW(less, compare),
    ROW(less_equal, compare),
    ROW(logical_and, compare),
    ROW(logical_or, compare),
    ROW(add_scalar, scalar),
    ROW(multiply_scalar, scalar),
    ROW(axpy, into),
    ROW(add_into, into),
    ROW(accumulate, into),
    ROW_SCRATCH(fold, fold),
    ROW_SCRATCH(combine, combine),
    ROW_SCRATCH(sum, reduce),
    ROW_SCRATCH(prod, reduce),
    ROW_SCRATCH(min, reduce),
    ROW_SCRATCH(max, reduce),
    ROW_SCRATCH(mean, reduce),
    ROW_SCRATCH(argmin, arg_reduce),
    ROW_SCRATCH(argmax, arg_reduce),
    ROW_SCRATCH(norm, norm),
    ROW_SCRATCH(softmax, softmax),
    ROW_SCRATCH(log_softmax, softmax),
    ROW_SCRATCH(cumsum, scan),
    ROW_SCRATCH(cumprod, scan),
    ROW_SCRATCH(sort, sort),
    ROW_SCRATCH(argsort, sort),
    ROW_SCRATCH(sort_into, sort),
    ROW(where, where),
    ROW_BLAS(gemm_batched, gemm_batched),
    ROW_BLAS(einsum, einsum),
    ROW_SCRATCH(spmv, spmv),
    ROW_BLAS(solve_triangular, solve),
    ROW_BLAS(cholesky, cholesky),
    ROW_BLAS(cholesky_solve, solve),
    ROW_PLANNED(qr, qr, solver),
    ROW_SCRATCH(svd, svd),
    ROW_SCRATCH(eigh, eigh),
    ROW_PLANNED(inverse, inverse, solver),
    ROW_PLANNED(determinant, determinant, solver),
    ROW_PLANNED(fft, fft, fft),
    ROW_PLANNED(ifft, ifft, fft),
    ROW_PLANNED(rfft, fft, fft),
    ROW_PLANNED(irfft, ifft, fft),
    ROW_SCRATCH(dot, dot),
    ROW_BLAS(gemv, gemv),
    ROW_BLAS(gemm, gemm),
    ROW_BLAS(gemm_into, gemm),
    ROW(transpose, transpose),
    ROW(permute, permute),
    ROW(concatenate, concatenate),
    ROW_BLAS(pairwise_distance, pairwise),
    ROW(topk_min, topk_min),
    ROW(topk_merge, topk_merge),
    ROW(vote, vote),
    ROW(checksum, checksum),
    ROW(spin, spin),
    ROW(test_fail, fail),
    ROW(test_illegal, illegal),
};

/* --------------------------------------------------------------------------- operations */

/*
 * Who counts too little here lets a full stream block who enqueues; who counts too much has the
 * device wait between two calls for as long as the host takes to see the first one's end, and what
 * follows that call with it. cuSOLVER's geqrf, orgqr, getrf and getrs: some kernels for each panel
 * of columns.
 */
#define OPERATIONS_FFT    48u
#define OPERATIONS_SOLVER 128u
#define OPERATIONS_PANEL  8u /* of a Cholesky factor: ours, trsm, syrk */
#define OPERATIONS_BYTE   3u /* of a long sort's keys */
#define OPERATIONS_JACOBI 12u
#define OPERATIONS_BLAS   8u
#define OPERATIONS_FEW    3u /* of one product: as many where it is cut along k */

static uint64_t columns(const struct kernel_arg *a)
{
    return (uint64_t)(a->dim[0] < a->dim[1] ? a->dim[0] : a->dim[1]);
}

/*
 * cuSOLVER's geqrf and orgqr, or getrf and getrs, recorded on an H200: of a square matrix of n up
 * to 22 % of n and 80 at the least, of one of 16,384 by 512 twice its columns, of 100,000 by 64
 * 151.
 */
static uint64_t solver_operations(const struct kernel_arg *a)
{
    return OPERATIONS_SOLVER +
           (a->dim[0] == a->dim[1] ? columns(a) / 4 : 5 * columns(a) / 2);
}

/* Keys, a pass for each byte of theirs, and what they are the keys of. */
static uint64_t sort_operations(uint32_t dtype)
{
    return OPERATIONS_BYTE * (pl_dtype_bytes(dtype) == 8 ? 8 : 4) + 2;
}

uint64_t kernel_cuda_operations(const struct kernel_function *function,
                                const struct kernel_arg *args, uint32_t arg_count,
                                const union kernel_scalar *scalars)
{
    const struct cuda_variant *variant = &variants[kernel_id_of(function)];
    bool scratch                       = variant->scratch != NULL &&
                   variant->scratch(function, args, arg_count, scalars) != 0;

    switch (kernel_id_of(function)) {
    case KERNEL_ID_noop:
    case KERNEL_ID_touch:
        return 0;
    case KERNEL_ID_qr:
    case KERNEL_ID_inverse:
    case KERNEL_ID_determinant:
        return solver_operations(&args[arg_count - 1]);
    case KERNEL_ID_cholesky:
    case KERNEL_ID_cholesky_solve:
    case KERNEL_ID_solve_triangular: /* two trsm, each by blocks */
        return OPERATIONS_PANEL * (columns(&args[1]) / CUDA_PANEL + 2);
    case KERNEL_ID_svd:
    case KERNEL_ID_eigh:
        return OPERATIONS_JACOBI;
    case KERNEL_ID_sort:
    case KERNEL_ID_argsort:
        return scratch ? sort_operations(args[1].dtype) : 1;
    case KERNEL_ID_sort_into:
        return 1 + (scratch ? sort_operations(args[0].dtype) : 1);
    case KERNEL_ID_fft:
    case KERNEL_ID_ifft:
    case KERNEL_ID_rfft:
    case KERNEL_ID_irfft:
        return OPERATIONS_FFT;
    case KERNEL_ID_fold:
    case KERNEL_ID_combine:
        return scratch ? arg_count : 1; /* each is packed */
    case KERNEL_ID_concatenate:
    case KERNEL_ID_topk_merge:
        return arg_count;
    case KERNEL_ID_topk_min:
    case KERNEL_ID_vote:
    case KERNEL_ID_checksum:
        return OPERATIONS_FEW;
    case KERNEL_ID_gemm:
    case KERNEL_ID_gemm_into:
    case KERNEL_ID_gemv:
        return scratch ? 2 * OPERATIONS_BLAS : OPERATIONS_FEW;
    default:
        return variant->blas ? OPERATIONS_BLAS * (scratch ? 2 : 1)
               : scratch     ? OPERATIONS_FEW
                             : 1;
    }
}

/* ------------------------------------------------------------------------------ loading */

#define XX(name)                                      \
    extern const unsigned char kernels_cuda_##name[]; \
    extern const size_t kernels_cuda_##name##_bytes;
CUDA_MODULES(XX)
#undef XX

static plasmon_status_t load_modules(struct kernel_cuda *cuda, struct pl_err *err)
{
    static const struct {
        const unsigned char *image;
        const size_t *bytes;
    } images[CUDA_MODULE_COUNT] = {
#define XX(name) [CUDA_MODULE_##name] = {kernels_cuda_##name, &kernels_cuda_##name##_bytes},
        CUDA_MODULES(XX)
#undef XX
    };

    for (uint32_t i = 0; i < CUDA_MODULE_COUNT; i++) {
        plasmon_status_t status = device_module_load(
            cuda->device, images[i].image, *images[i].bytes, &cuda->module[i], err);

        if (status != PLASMON_OK) {
            return status;
        }
    }
    return PLASMON_OK;
}

static plasmon_status_t find_kernels(struct kernel_cuda *cuda, struct pl_err *err)
{
    static const struct {
        enum cuda_module module;
        const char *name;
    } names[CUDA_KERNEL_COUNT] = {
#define XX(module_name, kernel_name) \
    [CUDA_##kernel_name] = {CUDA_MODULE_##module_name, "plasmon_" #kernel_name},
        CUDA_KERNELS(XX)
#undef XX
    };

    for (uint32_t i = 0; i < CUDA_KERNEL_COUNT; i++) {
        struct device_module *module         = cuda->module[names[i].module];
        struct device_function_limits limits = {.soon = false};
        plasmon_status_t status =
            device_module_function(module, names[i].name, &cuda->kernel[i], err);

        if (status == PLASMON_OK) {
            status = device_function_limits(module, cuda->kernel[i], &limits, err);
        }
        if (status != PLASMON_OK) {
            return status;
        }
        cuda->soon[i] = limits.soon;
    }
    return PLASMON_OK;
}

/* A missing cuBLAS is no error until a product of floats asks for it: then all of these are NULL. */
static void find_blas(struct kernel_cuda *cuda)
{
    cuda->sgemm = (cuda_sgemm_fn)device_cublas_symbol(cuda->device, "cublasSgemm_v2");
    cuda->dgemm = (cuda_dgemm_fn)device_cublas_symbol(cuda->device, "cublasDgemm_v2");
    cuda->sgemv = (cuda_sgemv_fn)device_cublas_symbol(cuda->device, "cublasSgemv_v2");
    cuda->dgemv = (cuda_dgemv_fn)device_cublas_symbol(cuda->device, "cublasDgemv_v2");
    cuda->strsm = (cuda_strsm_fn)device_cublas_symbol(cuda->device, "cublasStrsm_v2");
    cuda->dtrsm = (cuda_dtrsm_fn)device_cublas_symbol(cuda->device, "cublasDtrsm_v2");
    cuda->ssyrk = (cuda_ssyrk_fn)device_cublas_symbol(cuda->device, "cublasSsyrk_v2");
    cuda->dsyrk = (cuda_dsyrk_fn)device_cublas_symbol(cuda->device, "cublasDsyrk_v2");
    cuda->gemm_batched = (cuda_gemm_batched_fn)device_cublas_symbol(
        cuda->device, "cublasGemmStridedBatchedEx");
}

void cuda_blas_need(struct kernel_cuda *cuda)
{
    if (device_cublas_pending(cuda->device)) {
        device_cublas_start(cuda->device);
        find_blas(cuda);
    }
}

plasmon_status_t kernel_cuda_create(struct device *device, struct kernel_cuda **out_cuda,
                                    struct pl_err *err)
{
    struct kernel_cuda *cuda;
    plasmon_status_t status;

    cuda = PL_NEW(struct kernel_cuda);
    if (cuda == NULL) {
        return pl_err_set(err, PLASMON_ENOMEM, "out of memory for the CUDA kernels");
    }
    cuda_plans_init(&cuda->plans);
    cuda->device          = device;
    cuda->multiprocessors = device_get_info(device)->multiprocessors;
    status                = pl_mutex_init(&cuda->blas_lock, PL_RANK_KERNELS);
    if (status != PLASMON_OK) {
        pl_free(cuda);
        return pl_err_set(err, status, "cannot make the lock of cuBLAS");
    }
    status = load_modules(cuda, err);
    if (status == PLASMON_OK) {
        status = cuda_failures_init(&cuda->failures, device, err);
    }
    if (status == PLASMON_OK) {
        status = find_kernels(cuda, err);
    }
    if (status != PLASMON_OK) {
        kernel_cuda_destroy(cuda);
        return status;
    }
    if (!device_cublas_pending(device)) {
        find_blas(cuda);
    }
    *out_cuda = cuda;
    return PLASMON_OK;
}

void kernel_cuda_destroy(struct kernel_cuda *cuda)
{
    if (cuda == NULL) {
        return;
    }
    cuda_plans_finish(&cuda->plans);
    for (uint32_t i = 0; i < CUDA_MODULE_COUNT; i++) {
        if (cuda->module[i] != NULL) {
            device_module_unload(cuda->module[i]);
        }
    }
    cuda_failures_finish(&cuda->failures);
    pl_mutex_finish(&cuda->blas_lock);
    pl_free(cuda);
}

void kernel_cuda_set_marks(struct kernel_cuda *cuda, const struct kernel_marks *marks)
{
    cuda->failures.marks = *marks;
}

bool kernel_cuda_failure(struct kernel_cuda *cuda, uint64_t *out_tag,
                         struct pl_err *out_err)
{
    return cuda_failures_take(&cuda->failures, out_tag, out_err);
}

/* ------------------------------------------------------------------------------ running */

static struct cuda_call call_of(struct kernel_cuda *cuda,
                                const struct kernel_function *function,
                                const struct kernel_arg *args, uint32_t arg_count,
                                const union kernel_scalar *scalars, struct pl_err *err)
{
    return (struct cuda_call){.cuda      = cuda,
                              .function  = function,
                              .args      = args,
                              .arg_count = arg_count,
                              .scalars   = scalars,
                              .op        = kernel_cpu_table[kernel_id_of(function)].op,
                              .err       = err};
}

plasmon_status_t kernel_cuda_prepared(struct kernel_cuda *cuda,
                                      const struct kernel_function *function,
                                      const struct kernel_arg *args, uint32_t arg_count,
                                      const union kernel_scalar *scalars, bool keep,
                                      struct pl_err *err)
{
    const struct cuda_variant *variant = &variants[kernel_id_of(function)];
    struct cuda_call call = call_of(cuda, function, args, arg_count, scalars, err);

    if (variant->blas && device_cublas_pending(cuda->device)) {
        return PLASMON_EAGAIN;
    }
    return variant->look == NULL ? PLASMON_OK : variant->look(&call, keep);
}

plasmon_status_t kernel_cuda_prepare(struct kernel_cuda *cuda,
                                     const struct kernel_function *function,
                                     const struct kernel_arg *args, uint32_t arg_count,
                                     const union kernel_scalar *scalars, struct pl_err *err)
{
    const struct cuda_variant *variant = &variants[kernel_id_of(function)];
    struct cuda_call call = call_of(cuda, function, args, arg_count, scalars, err);

    if (variant->blas) {
        cuda_blas_need(cuda);
    }
    return variant->make == NULL ? PLASMON_OK : variant->make(&call);
}

void kernel_cuda_release(struct kernel_cuda *cuda)
{
    cuda_plans_release(&cuda->plans);
}

uint64_t kernel_cuda_scratch(struct kernel_cuda *cuda,
                             const struct kernel_function *function,
                             const struct kernel_arg *args, uint32_t arg_count,
                             const union kernel_scalar *scalars)
{
    const struct cuda_variant *variant = &variants[kernel_id_of(function)];
    struct cuda_call call = call_of(cuda, function, args, arg_count, scalars, NULL);

    if (variant->work != NULL) {
        return variant->work(&call);
    }
    return variant->scratch == NULL ? 0
                                    : variant->scratch(function, args, arg_count, scalars);
}

plasmon_status_t kernel_cuda_run(struct kernel_cuda *cuda, struct device_stream *stream,
                                 const struct kernel_function *function,
                                 const struct kernel_arg *args, uint32_t arg_count,
                                 const union kernel_scalar *scalars,
                                 struct device_ptr scratch, uint64_t scratch_bytes,
                                 uint64_t tag, struct pl_err *err)
{
    const struct cuda_variant *variant = &variants[kernel_id_of(function)];
    struct cuda_call call = call_of(cuda, function, args, arg_count, scalars, err);
    uint64_t needed       = kernel_cuda_scratch(cuda, function, args, arg_count, scalars);

    call.stream  = stream;
    call.scratch = scratch;
    call.tag     = tag;
    /* A library puts its work straight into the stream that it was given, and does not flush it. */
    call.kept       = !variant->blas && variant->look == NULL;
    cuda->plans.run = cuda->plans.clock;
    if (variant->run == NULL) {
        /* noop and touch ended in kernel_run(): this is a missing row */
        return pl_err_set(err, PLASMON_ENOTSUP, "%s has no CUDA variant", function->name);
    }
    if (scratch_bytes < needed) {
        return pl_err_set(err, PLASMON_EINTERNAL,
                          "%s: got %llu bytes of scratch, needs %llu", function->name,
                          (unsigned long long)scratch_bytes, (unsigned long long)needed);
    }
    return variant->run(&call);
}

/* -------------------------------------------------------------------------------- tools */

uint32_t cuda_type_index(uint32_t dtype)
{
    switch (dtype) {
    case PL_F32:
        return 0;
    case PL_F64:
        return 1;
    case PL_I32:
        return 2;
    case PL_I64:
        return 3;
    case PL_F16:
        return 4;
    case PL_BF16:
        return 5;
    case PL_C64:
        return 6;
    default:
        assert(dtype == PL_C128);
        return 7;
    }
}

uint32_t cuda_float_index(uint32_t dtype)
{
    uint32_t index = cuda_type_index(dtype);

    assert(index < 2 || index > 3);
    return index < 2 ? index : index - 2;
}

plasmon_status_t cuda_launch_sized(const struct cuda_call *call, uint32_t kernel,
                                   int64_t blocks, uint32_t threads_x, uint32_t threads_y,
                                   void *params, size_t bytes)
{
    struct device_launch_shape shape = {.grid  = {(uint32_t)blocks, 1, 1},
                                        .block = {threads_x, threads_y, 1}};
    void *list[]                     = {params};
    plasmon_status_t status          = PLASMON_ENOTSUP;

    assert(blocks >= 1 && blocks <= INT32_MAX);
    assert(kernel < CUDA_KERNEL_COUNT);
    assert(bytes >= sizeof(uint64_t)); /* of what is passed, not of a void */

    if (call->kept && call->cuda->soon[kernel] && bytes <= DEVICE_SOON_BYTES_MAX) {
        const struct device_params one = {params, 1, (uint32_t)bytes};

        status = device_launch_soon(call->stream, call->cuda->kernel[kernel], &shape, &one,
                                    call->tag);
    }
    if (status == PLASMON_ENOTSUP) {
        status = device_launch(call->stream, call->cuda->kernel[kernel], &shape, list);
    }
    if (status != PLASMON_OK) {
        return pl_err_set(call->err, status, "%s: cannot launch: %s", call->function->name,
                          pl_status_text(status));
    }
    return PLASMON_OK;
}

int64_t cuda_blocks(const struct cuda_call *call, int64_t items)
{
    int64_t most   = (int64_t)call->cuda->multiprocessors * 32;
    int64_t blocks = (items + 255) / 256;

    return blocks < most ? blocks : most;
}

struct cuda_walk cuda_walk_of(struct kernel_walk *walk, uint32_t element_bytes)
{
    struct cuda_walk result = {.count = 1};

    kernel_walk_merge(walk);
    result.ndim  = walk->ndim;
    result.dense = walk->ndim == 1 && element_bytes > 0;
    for (uint32_t d = 0; d < walk->ndim; d++) {
        result.dim[d] = walk->dim[d];
        result.count *= walk->dim[d];
    }
    for (uint32_t i = 0; i < walk->count; i++) {
        result.base[i] = (uint64_t)(uintptr_t)walk->base[i];
        memcpy(result.stride[i], walk->stride[i], walk->ndim * sizeof(int64_t));
        if (walk->stride[i][0] != (int64_t)element_bytes || result.base[i] % 16 != 0) {
            result.dense = 0;
        }
    }
    return result;
}

void cuda_scalar_bits(uint32_t dtype, double value, uint64_t out[2])
{
    union kernel_value bits = kernel_value_of_f64(dtype, value);

    memcpy(out, bits.bytes, sizeof(bits.bytes));
}

uint64_t cuda_scalar_f64(uint32_t dtype, double value)
{
    uint64_t bits[2];

    cuda_scalar_bits(dtype, value, bits);
    return bits[0];
}
