/*
 * GPU code: fatbins, cubins and PTX, and launches of what is in them.
 *
 * With CUDA_MODULE_LOADING=EAGER (driver.c) loading a module loads all its functions, so no first
 * launch blocks. Loading and unloading do block while a stream waits: never on the thread that
 * enqueues.
 */
#include "device/cuda/cuda_int.h"

#include "base/alloc.h"

#include <string.h>

/* more dynamic shared memory must be asked for, by function */
#define SHARED_BYTES_DEFAULT_MAX 49152u
#define FATBIN_MAGIC             0xba55ed50u
#define ELF_MAGIC                0x464c457fu /* "\x7f" "ELF", little endian */

struct cuda_module {
    struct device_module base;
    CUmodule module;
    bool early; /* DEVICE_EARLY_MARK, on a device that can */
};

static struct cuda_module *module_of(struct device_module *module)
{
    PL_CHECK(module->device->ops == &device_cuda_ops);
    return (struct cuda_module *)(void *)module;
}

/* PTX is text and must end in a zero, which the caller's bytes need not. NULL: out of memory. Free it. */
static char *ptx_terminated(const void *image, size_t image_bytes)
{
    char *text = pl_alloc(image_bytes + 1);

    if (text != NULL) {
        memcpy(text, image, image_bytes);
    }
    return text;
}

static bool image_is_binary(const void *image, size_t image_bytes)
{
    uint32_t magic = 0;

    if (image_bytes < sizeof(magic)) {
        return false;
    }
    memcpy(&magic, image, sizeof(magic));
    return magic == FATBIN_MAGIC || magic == ELF_MAGIC;
}

/* The driver's compiler says more than its error code. */
static plasmon_status_t image_load(struct device_cuda *cuda, const void *image,
                                   CUmodule *out_module, struct pl_err *err)
{
    char log[384]           = "";
    CUjit_option options[]  = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void *values[]          = {log, (void *)(uintptr_t)(sizeof(log) - 1)};
    plasmon_status_t status = DEVICE_CU(
        cuda, cuModuleLoadDataEx(out_module, image, PL_COUNT(options), options, values));

    if (status == PLASMON_OK) {
        return PLASMON_OK;
    }
    return pl_err_set(err, status, "cannot load GPU code: %s%s%.300s",
                      device_cuda_last_error(), log[0] != '\0' ? ": " : "", log);
}

/* That there is no such name is what most modules answer, and no event for the log. */
static bool is_early(const struct device_cuda *cuda, CUmodule module)
{
    CUdeviceptr at;
    size_t bytes;

    return cuda->base.info.early_start &&
           device_cuda_driver.cuModuleGetGlobal(&at, &bytes, module, DEVICE_EARLY_MARK) ==
               CUDA_SUCCESS;
}

plasmon_status_t device_cuda_module_load(struct device *device, const void *image,
                                         size_t image_bytes,
                                         struct device_module **out_module,
                                         struct pl_err *err)
{
    struct device_cuda *cuda   = device_cuda_of(device);
    struct cuda_module *module = PL_NEW(struct cuda_module);
    char *ptx                  = NULL;
    plasmon_status_t status;

    if (module == NULL) {
        return pl_err_set(err, PLASMON_ENOMEM, "no memory for a module");
    }
    module->base.device = device;

    if (!image_is_binary(image, image_bytes)) {
        ptx = ptx_terminated(image, image_bytes);
        if (ptx == NULL) {
            status = pl_err_set(err, PLASMON_ENOMEM, "no memory for %zu bytes of PTX",
                                image_bytes);
            goto err_free;
        }
        image = ptx;
    }
    status = device_cuda_enter(cuda);
    if (status != PLASMON_OK) {
        (void)pl_err_set(err, status, "%s", device_cuda_last_error());
        goto err_free;
    }
    status = image_load(cuda, image, &module->module, err);
    if (status != PLASMON_OK) {
        goto err_free;
    }
    pl_free(ptx);
    module->early = is_early(cuda, module->module);
    *out_module   = &module->base;
    return PLASMON_OK;

err_free:
    pl_free(ptx);
    pl_free(module);
    return status;
}

void device_cuda_module_unload(struct device_module *base)
{
    struct cuda_module *module = module_of(base);
    struct device_cuda *cuda   = device_cuda_of(base->device);

    if (device_cuda_enter(cuda) == PLASMON_OK) {
        device_cuda_chains_forget(cuda);
        (void)DEVICE_CU(cuda,
                        cuModuleUnload(module->module)); /* logged; nothing else to do */
    }
    pl_free(module);
}

plasmon_status_t device_cuda_module_function(struct device_module *base, const char *name,
                                             void **out_function, struct pl_err *err)
{
    struct device_cuda *cuda = device_cuda_of(base->device);
    CUfunction function;
    plasmon_status_t status = device_cuda_enter(cuda);
    CUresult result;

    if (status != PLASMON_OK) {
        return pl_err_set(err, status, "%s", device_cuda_last_error());
    }

    /* A name that is not there is the caller's business, not an event for the log. */
    result =
        device_cuda_driver.cuModuleGetFunction(&function, module_of(base)->module, name);
    if (result == CUDA_ERROR_NOT_FOUND) {
        return pl_err_set(err, PLASMON_ENOENT, "the GPU code has no function %s", name);
    }
    if (result != CUDA_SUCCESS) {
        status = device_cuda_fail(cuda, result, "cuModuleGetFunction");
        return pl_err_set(err, status, "%s", device_cuda_last_error());
    }
    *out_function = function;
    return PLASMON_OK;
}

/* Attributes of the device, in the order of struct device_function_limits. */
static plasmon_status_t device_limits(struct device_cuda *cuda,
                                      struct device_function_limits *out)
{
    const struct {
        CUdevice_attribute attribute;
        uint32_t *limit;
    } wanted[] = {
        {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, &out->shared_max},
        {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, &out->block_max[0]},
        {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, &out->block_max[1]},
        {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, &out->block_max[2]},
        {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, &out->grid_max[0]},
        {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, &out->grid_max[1]},
        {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, &out->grid_max[2]},
    };
    plasmon_status_t status = PLASMON_OK;

    for (size_t i = 0; status == PLASMON_OK && i < PL_COUNT(wanted); i++) {
        int value = 0;

        status           = device_cuda_attribute(cuda->device, wanted[i].attribute, &value);
        *wanted[i].limit = (uint32_t)value;
    }
    return status;
}

static plasmon_status_t function_attribute(struct device_cuda *cuda, CUfunction function,
                                           CUfunction_attribute attribute, uint32_t *out)
{
    int value = 0;
    plasmon_status_t status =
        DEVICE_CU(cuda, cuFuncGetAttribute(&value, attribute, function));

    *out = (uint32_t)value;
    return status;
}

/* 0 from a driver that does not know the attribute: no function is launched with it. */
static plasmon_status_t launch_attribute(struct device_cuda *cuda, CUfunction function,
                                         CUfunction_attribute attribute, uint32_t *out)
{
    int value = 0;
    CUresult result;

    device_cuda_call_begin();
    result = device_cuda_driver.cuFuncGetAttribute(&value, attribute, function);
    device_cuda_call_over();
    *out = result == CUDA_SUCCESS ? (uint32_t)value : 0;
    return result == CUDA_SUCCESS || result == CUDA_ERROR_INVALID_VALUE
               ? PLASMON_OK
               : device_cuda_fail(cuda, result, "cuFuncGetAttribute");
}

/*
 * Can it take another function's place in a graph, whatever that was? Not if it must be launched
 * with attributes of its own; and its first launch should not make the driver look for memory.
 */
static plasmon_status_t limits_soon(struct device_cuda *cuda, CUfunction function,
                                    struct device_function_limits *out)
{
    static const CUfunction_attribute unusual[] = {
        CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET,
        CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES};
    plasmon_status_t status = PLASMON_OK;

    out->soon            = out->shared_static <= SHARED_BYTES_DEFAULT_MAX;
    out->soon_shared_max = out->soon ? SHARED_BYTES_DEFAULT_MAX - out->shared_static : 0;
    for (size_t i = 0; status == PLASMON_OK && i < PL_COUNT(unusual); i++) {
        uint32_t value = 0;

        status = launch_attribute(cuda, function, unusual[i], &value);
        out->soon &= value == 0;
    }
    return status;
}

/* Above what any block may have the function must have been told, for the heuristic as for a launch. */
static plasmon_status_t ask_shared(struct device_cuda *cuda, CUfunction function,
                                   uint32_t shared_bytes)
{
    return shared_bytes <= SHARED_BYTES_DEFAULT_MAX
               ? PLASMON_OK
               : DEVICE_CU(cuda,
                           cuFuncSetAttribute(
                               function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                               (int)shared_bytes));
}

static plasmon_status_t suggest(struct device_cuda *cuda, CUfunction function,
                                uint32_t shared_bytes, uint32_t *out_block)
{
    int blocks = 0;
    int block  = 0;
    plasmon_status_t status =
        DEVICE_CU(cuda, cuOccupancyMaxPotentialBlockSize(&blocks, &block, function, NULL,
                                                         shared_bytes, 0));

    *out_block = (uint32_t)block;
    return status;
}

plasmon_status_t device_cuda_function_block(struct device_module *base, void *function,
                                            uint32_t shared_bytes, uint32_t *out_block,
                                            struct pl_err *err)
{
    struct device_cuda *cuda = device_cuda_of(base->device);
    plasmon_status_t status  = device_cuda_enter(cuda);

    if (status == PLASMON_OK) {
        status = ask_shared(cuda, function, shared_bytes);
    }
    if (status == PLASMON_OK) {
        status = suggest(cuda, function, shared_bytes, out_block);
    }
    return status == PLASMON_OK ? PLASMON_OK
                                : pl_err_set(err, status, "%s", device_cuda_last_error());
}

plasmon_status_t device_cuda_function_limits(struct device_module *base, void *function,
                                             struct device_function_limits *out_limits,
                                             struct pl_err *err)
{
    struct device_cuda *cuda          = device_cuda_of(base->device);
    struct device_function_limits out = {.threads_max = 0};
    plasmon_status_t status           = device_cuda_enter(cuda);

    if (status == PLASMON_OK) {
        status = device_limits(cuda, &out);
    }
    if (status == PLASMON_OK) {
        status = function_attribute(cuda, function, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
                                    &out.threads_max);
    }
    if (status == PLASMON_OK) {
        status =
            function_attribute(cuda, function, CU_FUNC_ATTRIBUTE_NUM_REGS, &out.registers);
    }
    if (status == PLASMON_OK) {
        status = function_attribute(cuda, function, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES,
                                    &out.shared_static);
    }
    if (status == PLASMON_OK) {
        status = limits_soon(cuda, function, &out);
    }
    if (status == PLASMON_OK) {
        status = suggest(cuda, function, 0, &out.suggested_block);
    }
    if (status != PLASMON_OK) {
        return pl_err_set(err, status, "%s", device_cuda_last_error());
    }
    out.shared_max -=
        out.shared_static < out.shared_max ? out.shared_static : out.shared_max;
    out.early   = module_of(base)->early;
    *out_limits = out;
    return PLASMON_OK;
}

plasmon_status_t device_cuda_launch_early(struct device_cuda *cuda, CUstream stream,
                                          CUfunction function,
                                          const struct device_launch_shape *shape,
                                          void **params, bool early)
{
    CUlaunchAttribute attribute = {
        .id    = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
        .value = {.programmaticStreamSerializationAllowed = 1}};
    const CUlaunchConfig config = {.gridDimX       = shape->grid[0],
                                   .gridDimY       = shape->grid[1],
                                   .gridDimZ       = shape->grid[2],
                                   .blockDimX      = shape->block[0],
                                   .blockDimY      = shape->block[1],
                                   .blockDimZ      = shape->block[2],
                                   .sharedMemBytes = shape->shared_bytes,
                                   .hStream        = stream,
                                   .attrs          = &attribute,
                                   .numAttrs       = 1};

    return early
               ? DEVICE_CU(cuda, cuLaunchKernelEx(&config, function, params, NULL))
               : DEVICE_CU(cuda, cuLaunchKernel(function, shape->grid[0], shape->grid[1],
                                                shape->grid[2], shape->block[0],
                                                shape->block[1], shape->block[2],
                                                shape->shared_bytes, stream, params, NULL));
}

plasmon_status_t device_cuda_launch(struct device_stream *base, void *function,
                                    const struct device_launch_shape *shape, void **params)
{
    struct device_cuda_stream *stream = device_cuda_stream_of(base);
    struct device_cuda *cuda          = device_cuda_of(base->device);
    plasmon_status_t status           = device_cuda_enter(cuda);

    if (status == PLASMON_OK) {
        status = ask_shared(cuda, function, shape->shared_bytes);
    }
    if (status == PLASMON_OK && stream->graph != NULL && !shape->cooperative) {
        return device_cuda_graph_launch(stream, function, shape, params);
    }
    if (stream->graph != NULL && stream->graph->change != NULL) {
        return PLASMON_ENOTSUP; /* a node that items.c does not know */
    }
    if (status == PLASMON_OK && shape->cooperative) {
        return DEVICE_CU(cuda,
                         cuLaunchCooperativeKernel(
                             function, shape->grid[0], shape->grid[1], shape->grid[2],
                             shape->block[0], shape->block[1], shape->block[2],
                             shape->shared_bytes, device_cuda_stream_on(stream), params));
    }
    if (status == PLASMON_OK) {
        status = device_cuda_launch_early(cuda, device_cuda_stream_on(stream), function,
                                          shape, params, false);
    }
    return status;
}
