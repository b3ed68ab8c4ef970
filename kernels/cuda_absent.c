/*
 * The CUDA side of a build without nvcc: a CUDA device cannot be opened then either, so this only says so.
 */
#include "kernels/kernel_int.h"

plasmon_status_t kernel_cuda_create(struct device *device, struct kernel_cuda **out_cuda,
                                    struct pl_err *err)
{
    (void)device;
    (void)out_cuda;
    return pl_err_set(err, PLASMON_ENOTSUP,
                      "this build has no CUDA kernels (no nvcc was found)");
}

void kernel_cuda_destroy(struct kernel_cuda *cuda)
{
    (void)cuda;
}

uint64_t kernel_cuda_scratch(struct kernel_cuda *cuda,
                             const struct kernel_function *function,
                             const struct kernel_arg *args, uint32_t arg_count,
                             const union kernel_scalar *scalars)
{
    (void)cuda;
    (void)function;
    (void)args;
    (void)arg_count;
    (void)scalars;
    return 0;
}

uint64_t kernel_cuda_operations(const struct kernel_function *function,
                                const struct kernel_arg *args, uint32_t arg_count,
                                const union kernel_scalar *scalars)
{
    (void)function;
    (void)args;
    (void)arg_count;
    (void)scalars;
    return 1;
}

plasmon_status_t kernel_cuda_run(struct kernel_cuda *cuda, struct device_stream *stream,
                                 const struct kernel_function *function,
                                 const struct kernel_arg *args, uint32_t arg_count,
                                 const union kernel_scalar *scalars,
                                 struct device_ptr scratch, uint64_t scratch_bytes,
                                 uint64_t tag, struct pl_err *err)
{
    (void)cuda;
    (void)tag;
    (void)stream;
    (void)args;
    (void)arg_count;
    (void)scalars;
    (void)scratch;
    (void)scratch_bytes;
    return pl_err_set(err, PLASMON_ENOTSUP, "%s: this build has no CUDA kernels",
                      function->name);
}

plasmon_status_t kernel_cuda_prepared(struct kernel_cuda *cuda,
                                      const struct kernel_function *function,
                                      const struct kernel_arg *args, uint32_t arg_count,
                                      const union kernel_scalar *scalars, bool keep,
                                      struct pl_err *err)
{
    (void)cuda;
    (void)args;
    (void)arg_count;
    (void)scalars;
    (void)keep;
    return pl_err_set(err, PLASMON_ENOTSUP, "%s: this build has no CUDA kernels",
                      function->name);
}

plasmon_status_t kernel_cuda_prepare(struct kernel_cuda *cuda,
                                     const struct kernel_function *function,
                                     const struct kernel_arg *args, uint32_t arg_count,
                                     const union kernel_scalar *scalars, struct pl_err *err)
{
    return kernel_cuda_prepared(cuda, function, args, arg_count, scalars, false, err);
}

void kernel_cuda_release(struct kernel_cuda *cuda)
{
    (void)cuda;
}

void kernel_cuda_set_marks(struct kernel_cuda *cuda, const struct kernel_marks *marks)
{
    (void)cuda;
    (void)marks;
}

bool kernel_cuda_failure(struct kernel_cuda *cuda, uint64_t *out_tag,
                         struct pl_err *out_err)
{
    (void)cuda;
    (void)out_tag;
    (void)out_err;
    return false;
}
