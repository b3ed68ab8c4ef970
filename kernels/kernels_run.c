/*
 * Running functions: a call is packed once and handed to the variant of the device's kind.
 *
 * On a CPU device a call travels to the stream's thread as a copy (struct kernel_call with its
 * arguments behind it). Calls of up to CALL_ARGS_INLINE arguments are packed on the stack, so that
 * submitting allocates nothing here; only a concatenate or fold of many arrays needs more. noop and
 * touch are no launch at all: what orders them is the worker.
 */
#include "kernels/kernel_int.h"

#include "base/alloc.h"
#include "base/fault.h"
#include "kernels/cpu.h"

#include <assert.h>
#include <cblas.h>
#include <math.h>
#include <pthread.h>
#include <string.h>

struct kernel_context {
    struct device *device;
    enum device_kind kind;
    struct kernel_cuda *cuda; /* NULL on CPU devices */
};

/* -------------------------------------------------------------------------------- calls */

#define CALL_ARGS_INLINE 8

static_assert(sizeof(struct kernel_call) % _Alignof(struct kernel_arg) == 0,
              "arguments follow the struct");

struct call_buffer {
    _Alignas(
        struct kernel_call) char inline_bytes[sizeof(struct kernel_call) +
                                              CALL_ARGS_INLINE * sizeof(struct kernel_arg)];
    void *heap; /* NULL: inline_bytes was enough */
};

static struct kernel_call *call_pack(struct call_buffer *buffer,
                                     const struct kernel_function *function,
                                     const struct kernel_arg *args, uint32_t arg_count,
                                     const union kernel_scalar *scalars,
                                     uint32_t scalar_count, size_t *out_bytes)
{
    size_t bytes = sizeof(struct kernel_call) + arg_count * sizeof(struct kernel_arg);
    struct kernel_call *call = (struct kernel_call *)(void *)buffer->inline_bytes;

    assert(scalar_count <= KERNEL_SCALARS_MAX);

    buffer->heap = NULL;
    if (bytes > sizeof(buffer->inline_bytes)) {
        buffer->heap = pl_alloc(bytes);
        call         = buffer->heap;
        if (call == NULL) {
            return NULL;
        }
    }
    *call = (struct kernel_call){
        .function = function, .arg_count = arg_count, .scalar_count = scalar_count};
    if (scalar_count > 0) {
        memcpy(call->scalar, scalars, scalar_count * sizeof(*scalars));
    }
    if (arg_count > 0) {
        memcpy(call + 1, args, arg_count * sizeof(*args));
    }
    *out_bytes = bytes;
    return call;
}

static plasmon_status_t cpu_trampoline(void *args, struct pl_err *err)
{
    const struct kernel_call *call = args;
    const struct kernel_cpu_variant *variant =
        &kernel_cpu_table[kernel_id_of(call->function)];

    return variant->run(call, variant->op, err);
}

/* Of who did not tell kernel_check() the operation of REDUCE arguments. */
static plasmon_status_t check_reduce_ops(const struct kernel_function *function,
                                         const struct kernel_arg *args, uint32_t arg_count,
                                         struct pl_err *err)
{
    bool any = kernel_id_of(function) == KERNEL_ID_accumulate;

    for (uint32_t i = 0; i < arg_count; i++) {
        if (args[i].mode != KERNEL_REDUCE || args[i].reduce_op == KERNEL_SUM ||
            (any && kernel_op_of_reduce(args[i].reduce_op) >= 0)) {
            continue;
        }
        return pl_err_set(
            err, PLASMON_EINVAL, "%s: argument %u is reduced by operation %u, needs %s",
            function->name, i, args[i].reduce_op, any ? "1 (sum) to 4 (max)" : "1 (sum)");
    }
    return PLASMON_OK;
}

/* ----------------------------------------------------------------------------- contexts */

/*
 * One thread a BLAS call unless the device is configured otherwise: streams are what runs at the
 * same time here.
 */
static pthread_once_t blas_once = PTHREAD_ONCE_INIT;

static void one_blas_thread(void)
{
    openblas_set_num_threads(1);
}

plasmon_status_t kernel_context_create(struct device *device,
                                       struct kernel_context **out_context,
                                       struct pl_err *err)
{
    const struct device_info *info = device_get_info(device);
    struct kernel_context *context;
    plasmon_status_t status = PLASMON_OK;

    context = PL_NEW(struct kernel_context);
    if (context == NULL) {
        return pl_err_set(err, PLASMON_ENOMEM, "out of memory for the kernels of device %u",
                          info->ordinal);
    }
    context->device = device;
    context->kind   = info->kind;
    if (info->kind == DEVICE_CUDA) {
        status = kernel_cuda_create(device, &context->cuda, err);
    } else {
        (void)pthread_once(&blas_once, one_blas_thread); /* fails only for a bad control */
        openblas_set_num_threads((int)info->multiprocessors);
    }
    if (status != PLASMON_OK) {
        pl_free(context);
        return status;
    }
    *out_context = context;
    return PLASMON_OK;
}

void kernel_context_destroy(struct kernel_context *context)
{
    if (context == NULL) {
        return;
    }
    kernel_cuda_destroy(context->cuda);
    pl_free(context);
}

void kernel_context_set_marks(struct kernel_context *context,
                              const struct kernel_marks *marks)
{
    if (context->kind == DEVICE_CUDA) {
        kernel_cuda_set_marks(context->cuda, marks);
    }
}

bool kernel_failure(struct kernel_context *context, uint64_t *out_tag,
                    struct pl_err *out_err)
{
    return (context->kind == DEVICE_CUDA &&
            kernel_cuda_failure(context->cuda, out_tag, out_err)) ||
           device_launch_failure(context->device, out_tag, out_err);
}

/* ------------------------------------------------------------------------------ running */

static uint64_t cpu_scratch(const struct kernel_function *function,
                            const struct kernel_arg *args, uint32_t arg_count,
                            const union kernel_scalar *scalars)
{
    const struct kernel_cpu_variant *variant = &kernel_cpu_table[kernel_id_of(function)];

    return variant->scratch == NULL ? 0
                                    : variant->scratch(function, args, arg_count, scalars);
}

uint64_t kernel_scratch_bytes(struct kernel_context *context,
                              const struct kernel_function *function,
                              const struct kernel_arg *args, uint32_t arg_count,
                              const union kernel_scalar *scalars, uint32_t scalar_count)
{
    (void)scalar_count;
    if (context->kind == DEVICE_CUDA) {
        return kernel_cuda_scratch(context->cuda, function, args, arg_count, scalars);
    }
    return cpu_scratch(function, args, arg_count, scalars);
}

uint64_t kernel_operations(struct kernel_context *context,
                           const struct kernel_function *function,
                           const struct kernel_arg *args, uint32_t arg_count,
                           const union kernel_scalar *scalars, uint32_t scalar_count)
{
    (void)scalar_count;
    return context->kind == DEVICE_CUDA
               ? kernel_cuda_operations(function, args, arg_count, scalars)
               : 1;
}

plasmon_status_t kernel_prepared(struct kernel_context *context,
                                 const struct kernel_function *function,
                                 const struct kernel_arg *args, uint32_t arg_count,
                                 const union kernel_scalar *scalars, bool keep,
                                 struct pl_err *err)
{
    if (context->kind == DEVICE_CUDA) {
        return kernel_cuda_prepared(context->cuda, function, args, arg_count, scalars, keep,
                                    err);
    }
    return pl_fault_point("kernel.prepare") ? PLASMON_EAGAIN : PLASMON_OK;
}

plasmon_status_t kernel_prepare(struct kernel_context *context,
                                const struct kernel_function *function,
                                const struct kernel_arg *args, uint32_t arg_count,
                                const union kernel_scalar *scalars, struct pl_err *err)
{
    return context->kind == DEVICE_CUDA
               ? kernel_cuda_prepare(context->cuda, function, args, arg_count, scalars, err)
               : PLASMON_OK;
}

void kernel_release(struct kernel_context *context)
{
    if (context->kind == DEVICE_CUDA) {
        kernel_cuda_release(context->cuda);
    }
}

static plasmon_status_t run_on_cpu(struct device_stream *stream,
                                   const struct kernel_function *function,
                                   const struct kernel_arg *args, uint32_t arg_count,
                                   const union kernel_scalar *scalars,
                                   uint32_t scalar_count, struct device_ptr scratch,
                                   uint64_t scratch_bytes, uint64_t tag, struct pl_err *err)
{
    struct call_buffer buffer;
    struct kernel_call *call;
    plasmon_status_t status;
    size_t bytes;

    if (scratch_bytes < cpu_scratch(function, args, arg_count, scalars)) {
        return pl_err_set(
            err, PLASMON_EINTERNAL, "%s: got %llu bytes of scratch, needs %llu",
            function->name, (unsigned long long)scratch_bytes,
            (unsigned long long)cpu_scratch(function, args, arg_count, scalars));
    }
    call = call_pack(&buffer, function, args, arg_count, scalars, scalar_count, &bytes);
    if (call == NULL) {
        return pl_err_set(err, PLASMON_ENOMEM, "%s: out of memory for %u arguments",
                          function->name, arg_count);
    }
    call->scratch       = scratch;
    call->scratch_bytes = scratch_bytes;
    status              = device_cpu_launch(stream, cpu_trampoline, call, bytes, tag);
    pl_free(buffer.heap);
    if (status != PLASMON_OK) {
        return pl_err_set(err, status, "%s: cannot launch: %s", function->name,
                          pl_status_text(status));
    }
    return PLASMON_OK;
}

plasmon_status_t kernel_run(struct kernel_context *context, struct device_stream *stream,
                            const struct kernel_function *function,
                            const struct kernel_arg *args, uint32_t arg_count,
                            const union kernel_scalar *scalars, uint32_t scalar_count,
                            struct device_ptr scratch, uint64_t scratch_bytes, uint64_t tag,
                            struct pl_err *err)
{
    plasmon_status_t status;

    assert(device_of_stream(stream) == context->device);

    if (kernel_cpu_table[kernel_id_of(function)].run == NULL) {
        return PLASMON_OK;
    }
    status = check_reduce_ops(function, args, arg_count, err);
    if (status != PLASMON_OK) {
        return status;
    }
    if (context->kind == DEVICE_CUDA) {
        return kernel_cuda_run(context->cuda, stream, function, args, arg_count, scalars,
                               scratch, scratch_bytes, tag, err);
    }
    return run_on_cpu(stream, function, args, arg_count, scalars, scalar_count, scratch,
                      scratch_bytes, tag, err);
}

plasmon_status_t kernel_fill_identity(struct kernel_context *context,
                                      struct device_stream *stream,
                                      const struct kernel_arg *arg, uint64_t tag)
{
    const struct kernel_function *fill;
    union kernel_scalar scalar;
    union kernel_value value;
    struct kernel_arg x;

    if (!kernel_identity(arg->dtype, arg->reduce_op, &value)) {
        return PLASMON_EINVAL;
    }
    /* The identities of integers may need all 64 bits; those of the others are 0, 1 and the infinities. */
    if (!kernel_is_integer(arg->dtype)) {
        fill     = kernel_at(KERNEL_ID_fill);
        scalar.f = arg->reduce_op == KERNEL_SUM    ? 0
                   : arg->reduce_op == KERNEL_PROD ? 1
                   : arg->reduce_op == KERNEL_MIN  ? (double)INFINITY
                                                   : -(double)INFINITY;
    } else {
        fill     = kernel_at(KERNEL_ID_fill_int);
        scalar.i = arg->dtype == PL_I32 ? value.i32 : value.i64;
    }
    x      = *arg;
    x.mode = KERNEL_OUT;
    return kernel_run(context, stream, fill, &x, 1, &scalar, 1, (struct device_ptr){0}, 0,
                      tag, NULL);
}

plasmon_status_t kernel_run_cpu_now(const struct kernel_function *function,
                                    const struct kernel_arg *args, uint32_t arg_count,
                                    const union kernel_scalar *scalars,
                                    uint32_t scalar_count, struct pl_err *err)
{
    struct call_buffer buffer;
    struct kernel_call *call;
    void *scratch = NULL;
    plasmon_status_t status;
    size_t bytes;

    if (kernel_cpu_table[kernel_id_of(function)].run == NULL) {
        return PLASMON_OK;
    }
    status = check_reduce_ops(function, args, arg_count, err);
    if (status != PLASMON_OK) {
        return status;
    }
    (void)pthread_once(&blas_once, one_blas_thread); /* fails only for a bad control */
    call = call_pack(&buffer, function, args, arg_count, scalars, scalar_count, &bytes);
    if (call == NULL) {
        return pl_err_set(err, PLASMON_ENOMEM, "%s: out of memory for %u arguments",
                          function->name, arg_count);
    }
    call->scratch_bytes = cpu_scratch(function, args, arg_count, scalars);
    if (call->scratch_bytes > 0) {
        scratch            = pl_alloc_aligned(64, call->scratch_bytes);
        call->scratch.addr = (uint64_t)(uintptr_t)scratch;
        if (scratch == NULL) {
            status = pl_err_set(err, PLASMON_ENOMEM,
                                "%s: out of memory for %llu bytes of scratch",
                                function->name, (unsigned long long)call->scratch_bytes);
            goto out;
        }
    }
    status = cpu_trampoline(call, err);
out:
    pl_free(scratch);
    pl_free(buffer.heap);
    return status;
}
