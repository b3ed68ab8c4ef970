/*
 * Defined functions: choosing what to build, packing parameters, launching. See code.h.
 */
#include "kernels/code_int.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fd.h"

/* ----------------------------------------------------------------------------- building */

uint32_t kernel_code_runs(enum device_kind kind, const struct kernel_code_policy *policy)
{
    uint32_t runs = policy->library_dir != NULL ? KERNEL_RUNS_LIBRARY : 0;

    if (kind == DEVICE_CUDA) {
        return runs | KERNEL_RUNS_CUDA_TEXT;
    }
    return runs | (policy->c_text ? KERNEL_RUNS_C_TEXT : 0);
}

static plasmon_status_t build(struct kernel_code *code,
                              const struct kernel_definition *definition,
                              const struct device_info *info,
                              const struct kernel_code_policy *policy, struct pl_str *log,
                              struct pl_err *err)
{
    if (code_has(definition->library)) {
        return code_build_library(code, definition, policy, err);
    }
    if (info->kind == DEVICE_CUDA) {
        return code_has(definition->cuda_text)
                   ? code_build_cuda(code, definition, info, policy, log, err)
                   : pl_err_set(err, PLASMON_ENOTSUP, "%s has no CUDA text",
                                definition->name);
    }
    if (!code_has(definition->c_text)) {
        return pl_err_set(err, PLASMON_ENOTSUP,
                          "%s has no C text, so no CPU device can run it",
                          definition->name);
    }
    if (!policy->c_text) {
        return pl_err_set(err, PLASMON_EPERM,
                          "%s: this worker runs no C text of clients (plasmon-store "
                          "--allow-source)",
                          definition->name);
    }
    return code_build_c(code, definition, policy, log, err);
}

plasmon_status_t kernel_code_build(const struct kernel_definition *definition,
                                   const struct device_info *info,
                                   const struct kernel_code_policy *policy,
                                   struct kernel_code **out_code, struct pl_str *log,
                                   struct pl_err *err)
{
    struct kernel_code *code = PL_NEW(struct kernel_code);
    plasmon_status_t status;

    if (code == NULL) {
        return pl_err_set(err, PLASMON_ENOMEM, "no memory for the code of %s",
                          definition->name);
    }
    code->fd              = -1;
    code->kind            = info->kind;
    code->ordinal         = info->ordinal;
    code->multiprocessors = info->multiprocessors;

    status = kernel_signature_parse(definition->signature, &code->signature, err);
    if (status == PLASMON_OK &&
        (strcmp(code->signature->function.name, definition->name) != 0 ||
         !kernel_name_ok(code_entry_name(definition)))) {
        status =
            pl_err_set(err, PLASMON_EINVAL,
                       "the name in the signature is %s, not %s; or the entry is no name",
                       code->signature->function.name, definition->name);
    }
    if (status == PLASMON_OK) {
        code->signature->function.code = code;
        status                         = build(code, definition, info, policy, log, err);
    }
    if (status != PLASMON_OK) {
        kernel_code_destroy(code);
        return status;
    }
    *out_code = code;
    return PLASMON_OK;
}

plasmon_status_t kernel_code_load(struct kernel_code *code, struct device *device,
                                  struct pl_err *err)
{
    plasmon_status_t status;

    if (code->prepare != NULL) {
        return code_library_call(code, code->prepare, NULL, NULL, 0, NULL, 0, NULL, err);
    }
    if (code->image == NULL) {
        return PLASMON_OK;
    }
    status = device_module_load(device, code->image, code->image_bytes, &code->module, err);
    if (status == PLASMON_OK) {
        status = device_module_function(code->module, code->symbol, &code->function, err);
    }
    if (status == PLASMON_OK) {
        status = device_function_limits(code->module, code->function, &code->limits, err);
    }
    if (status == PLASMON_OK) {
        code->suggested = PL_NEW(struct code_suggested);
        status          = code->suggested != NULL
                              ? PLASMON_OK
                              : pl_err_set(err, PLASMON_ENOMEM, "no memory for the code of %s",
                                           code->signature->function.name);
    }
    pl_free(code->image);
    code->image = NULL;
    return status;
}

/* A library may do anything when it is closed. */
bool kernel_code_loaded(const struct kernel_code *code)
{
    return code->module != NULL || (code->kind == DEVICE_CUDA && code->library != NULL);
}

void kernel_code_destroy(struct kernel_code *code)
{
    if (code == NULL) {
        return;
    }
    if (code->module != NULL) {
        device_module_unload(code->module);
    }
    if (code->library != NULL) {
        (void)dlclose(code->library); /* what it leaves is its own matter */
    }
    pl_fd_close(&code->fd);
    kernel_signature_destroy(code->signature);
    pl_free(code->image);
    pl_free(code->symbol);
    pl_free(code->suggested);
    pl_free(code);
}

const struct kernel_function *kernel_code_function(const struct kernel_code *code)
{
    return &code->signature->function;
}

struct kernel_code *kernel_code_of(const struct kernel_function *function)
{
    return function->code;
}

/* --------------------------------------------------------------------------- parameters */

/* What the kernel gets, 8 bytes each, and where each is: as cuLaunchKernel() wants it. */
struct packed {
    uint64_t value[KERNEL_VALUES_MAX];
    uint32_t count;
};

static uint64_t pack_scalar(uint32_t dtype, union kernel_scalar scalar)
{
    uint64_t bits = 0;
    float single;

    switch (dtype) {
    case PL_BOOL:
        return scalar.i != 0;
    case PL_F32:
        single = (float)scalar.f;
        memcpy(&bits, &single, sizeof(single));
        return bits;
    default: /* integers: the low bytes are the number; f64: all of them */
        return scalar.bits;
    }
}

static plasmon_status_t pack_tensor(const struct kernel_signature *signature,
                                    const struct kernel_slot *slot,
                                    const struct kernel_arg *arg, struct packed *packed,
                                    struct pl_err *err)
{
    packed->value[packed->count++] = arg->data.addr;
    if (slot->strided) {
        for (uint32_t i = 0; i < slot->ndim; i++) {
            packed->value[packed->count++] = (uint64_t)arg->stride[i];
        }
        return PLASMON_OK;
    }
    if (kernel_arg_dense(arg)) {
        return PLASMON_OK;
    }
    return pl_err_set(
        err, PLASMON_EINVAL,
        "%s: %s has gaps here; write %s[..]~ in the signature to get its strides",
        signature->function.name, slot->name, pl_dtype_name(slot->dtype));
}

static plasmon_status_t pack(const struct kernel_signature *signature,
                             const struct kernel_arg *args, uint32_t arg_count,
                             const union kernel_scalar *scalars, struct packed *packed,
                             struct pl_err *err)
{
    plasmon_status_t status = PLASMON_OK;
    struct kernel_scope scope;
    int64_t value;

    packed->count = 0;
    if (signature->computed) {
        kernel_scope_init(signature, scalars, &scope);
        for (uint32_t i = 0; i < arg_count; i++) {
            kernel_scope_bind(signature, &scope, i, args[i].dim);
        }
    }
    for (uint32_t i = 0; status == PLASMON_OK && i < signature->slot_count; i++) {
        const struct kernel_slot *slot = &signature->slots[i];

        switch (slot->kind) {
        case KERNEL_SLOT_TENSOR:
            status = pack_tensor(signature, slot, &args[slot->index], packed, err);
            break;
        case KERNEL_SLOT_SCALAR:
            packed->value[packed->count++] = pack_scalar(slot->dtype, scalars[slot->index]);
            break;
        default:
            status = kernel_scope_value(signature, &scope, slot->dim[0], &value, err);
            packed->value[packed->count++] = (uint64_t)value;
        }
    }
    return status;
}

/* ------------------------------------------------------------------------------- shapes */

/* "grid 4x1x1, block 256x1x1, 0 bytes of shared memory"; "" when all of it is 0. */
static const char *launch_shape_format(const struct kernel_launch_shape *shape,
                                       char out[96])
{
    out[0] = '\0';
    if (shape->block[0] != 0) {
        (void)snprintf(out, 96, "grid %ux%ux%u, block %ux%ux%u, %u bytes of shared memory",
                       shape->grid[0], shape->grid[1], shape->grid[2], shape->block[0],
                       shape->block[1], shape->block[2], shape->shared_bytes);
    }
    return out;
}

static int64_t largest_tensor(const struct kernel_arg *args, uint32_t arg_count)
{
    int64_t largest = 1;

    for (uint32_t i = 0; i < arg_count; i++) {
        int64_t elements = kernel_arg_elements(&args[i]);

        largest = elements > largest ? elements : largest;
    }
    return largest;
}

/* Blocks that a kernel with a grid-stride loop keeps a device busy with. */
#define BLOCKS_A_MULTIPROCESSOR 32

/* With more shared memory than there is: any, for the launch is refused. */
static uint32_t suggested_block(const struct kernel_code *code, uint32_t shared_bytes)
{
    struct code_suggested *suggested = code->suggested;

    if (shared_bytes == 0 || shared_bytes > code->limits.shared_max) {
        return code->limits.suggested_block;
    }
    if (suggested->shared_bytes != shared_bytes) {
        uint32_t block;

        if (device_function_block(code->module, code->function, shared_bytes, &block,
                                  NULL) != PLASMON_OK ||
            block == 0) {
            return code->limits.suggested_block;
        }
        *suggested = (struct code_suggested){.shared_bytes = shared_bytes, .block = block};
    }
    return suggested->block;
}

static void choose_shape(const struct kernel_code *code, const struct kernel_arg *args,
                         uint32_t arg_count, struct kernel_launch_shape *io_shape)
{
    uint64_t block, blocks, most;

    if (io_shape->block[0] == 0) {
        io_shape->block[0] = suggested_block(code, io_shape->shared_bytes);
        io_shape->block[1] = io_shape->block[2] = 1;
    }
    if (io_shape->grid[0] != 0) {
        return;
    }
    block  = (uint64_t)io_shape->block[0] * io_shape->block[1] * io_shape->block[2];
    blocks = ((uint64_t)largest_tensor(args, arg_count) + block - 1) / block;
    most   = (uint64_t)code->multiprocessors * BLOCKS_A_MULTIPROCESSOR;
    io_shape->grid[0] = (uint32_t)(blocks < most ? blocks : most);
    io_shape->grid[1] = io_shape->grid[2] = 1;
}

static plasmon_status_t check_shape(const struct kernel_code *code,
                                    const struct kernel_launch_shape *shape,
                                    struct pl_err *err)
{
    const struct device_function_limits *limits = &code->limits;
    const char *name                            = code->signature->function.name;
    uint64_t threads = (uint64_t)shape->block[0] * shape->block[1] * shape->block[2];
    char text[96];

    if (threads == 0 || threads > limits->threads_max) {
        return pl_err_set(err, PLASMON_EINVAL,
                          "%s (%s): a block has %llu threads; with the %u registers that "
                          "each takes, this device runs at most %u a block",
                          name, launch_shape_format(shape, text),
                          (unsigned long long)threads, limits->registers,
                          limits->threads_max);
    }
    for (unsigned i = 0; i < 3; i++) {
        if (shape->block[i] > limits->block_max[i] || shape->grid[i] == 0 ||
            shape->grid[i] > limits->grid_max[i]) {
            return pl_err_set(
                err, PLASMON_EINVAL,
                "%s (%s): the device takes grids up to %ux%ux%u and blocks up "
                "to %ux%ux%u",
                name, launch_shape_format(shape, text), limits->grid_max[0],
                limits->grid_max[1], limits->grid_max[2], limits->block_max[0],
                limits->block_max[1], limits->block_max[2]);
        }
    }
    if (shape->shared_bytes > limits->shared_max) {
        return pl_err_set(
            err, PLASMON_EINVAL,
            "%s (%s): a block can have %u bytes of dynamic shared memory here, "
            "beside the %u that the kernel has already",
            name, launch_shape_format(shape, text), limits->shared_max,
            limits->shared_static);
    }
    return PLASMON_OK;
}

/* ---------------------------------------------------------------------------- launching */

/* What travels to the stream's thread of a CPU device; as many values as there are. */
struct c_call {
    const struct kernel_code *code;
    struct plasmon_launch_shape shape;
    struct kernel_launch_shape given; /* the same, in our words */
    uint32_t count;
    uint64_t value[KERNEL_VALUES_MAX];
};

static plasmon_status_t c_trampoline(void *args, struct pl_err *err)
{
    struct c_call *call = args;
    void *params[KERNEL_VALUES_MAX];
    char text[96];
    int answer;

    for (uint32_t i = 0; i < call->count; i++) {
        params[i] = &call->value[i];
    }
    answer = call->code->c_entry(params, &call->shape);
    if (answer == 0) {
        return PLASMON_OK;
    }
    (void)launch_shape_format(&call->given, text);
    return pl_err_set(err, PLASMON_EFUNCTION, "%s%s%s%s returned %d",
                      call->code->signature->function.name, text[0] != '\0' ? " (" : "",
                      text, text[0] != '\0' ? ")" : "", answer);
}

static plasmon_status_t run_c(const struct kernel_code *code, struct device_stream *stream,
                              const struct kernel_arg *args, uint32_t arg_count,
                              const union kernel_scalar *scalars,
                              const struct kernel_launch_shape *shape, uint64_t tag,
                              struct pl_err *err)
{
    struct packed packed;
    struct c_call call;
    plasmon_status_t status = pack(code->signature, args, arg_count, scalars, &packed, err);

    if (status != PLASMON_OK) {
        return status;
    }
    call.code  = code;
    call.count = packed.count;
    memcpy(call.shape.grid, shape->grid, sizeof(call.shape.grid));
    memcpy(call.shape.block, shape->block, sizeof(call.shape.block));
    call.shape.shared_bytes = shape->shared_bytes;
    call.given              = *shape;
    memcpy(call.value, packed.value, packed.count * sizeof(packed.value[0]));
    return device_cpu_launch(
        stream, c_trampoline, &call,
        offsetof(struct c_call, value) + packed.count * sizeof(call.value[0]), tag);
}

static plasmon_status_t launch(const struct kernel_code *code, struct device_stream *stream,
                               const struct device_launch_shape *shape,
                               struct packed *packed, uint64_t tag)
{
    void *params[KERNEL_VALUES_MAX];
    plasmon_status_t status = PLASMON_ENOTSUP;

    if (code->limits.soon && shape->shared_bytes <= code->limits.soon_shared_max &&
        packed->count <= DEVICE_SOON_PARAMS_MAX) {
        const struct device_params values = {.bytes = packed->value,
                                             .count = packed->count,
                                             .each  = sizeof(packed->value[0])};

        status = device_launch_soon(stream, code->function, shape, &values, tag);
    }
    if (status != PLASMON_ENOTSUP) {
        return status;
    }
    for (uint32_t i = 0; i < packed->count; i++) {
        params[i] = &packed->value[i];
    }
    return device_launch(stream, code->function, shape, params);
}

static plasmon_status_t run_cuda(const struct kernel_code *code,
                                 struct device_stream *stream,
                                 const struct kernel_arg *args, uint32_t arg_count,
                                 const union kernel_scalar *scalars,
                                 struct kernel_launch_shape *io_shape, uint64_t tag,
                                 struct pl_err *err)
{
    struct device_launch_shape shape = {.early = code->limits.early};
    struct packed packed;
    plasmon_status_t status = pack(code->signature, args, arg_count, scalars, &packed, err);
    char text[96];

    if (status != PLASMON_OK) {
        return status;
    }
    choose_shape(code, args, arg_count, io_shape);
    status = check_shape(code, io_shape, err);
    if (status != PLASMON_OK) {
        return status;
    }
    memcpy(shape.grid, io_shape->grid, sizeof(shape.grid));
    memcpy(shape.block, io_shape->block, sizeof(shape.block));
    shape.shared_bytes = io_shape->shared_bytes;
    status             = launch(code, stream, &shape, &packed, tag);
    return status == PLASMON_OK
               ? PLASMON_OK
               : pl_err_set(err, status, "%s (%s): the device refused the launch: %s",
                            code->signature->function.name,
                            launch_shape_format(io_shape, text), pl_status_text(status));
}

/* A library on a CPU device: the call travels as it is. */
struct library_call {
    const struct kernel_code *code;
    struct kernel_launch_shape shape;
    uint32_t arg_count;
    uint32_t scalar_count;
    union kernel_scalar scalars[KERNEL_SCALARS_MAX];
    struct kernel_arg args[KERNEL_SLOTS_MAX];
};

static plasmon_status_t library_trampoline(void *args, struct pl_err *err)
{
    const struct library_call *call = args;

    return code_library_call(call->code, call->code->entry, NULL, call->args,
                             call->arg_count, call->scalars, call->scalar_count,
                             &call->shape, err);
}

static plasmon_status_t
run_library(const struct kernel_code *code, struct device_stream *stream,
            const struct kernel_arg *args, uint32_t arg_count,
            const union kernel_scalar *scalars, uint32_t scalar_count,
            const struct kernel_launch_shape *shape, uint64_t tag, struct pl_err *err)
{
    struct library_call call;

    if (code->kind == DEVICE_CUDA) {
        return code_library_call(code, code->entry, device_native_stream(stream), args,
                                 arg_count, scalars, scalar_count, shape, err);
    }
    call.code         = code;
    call.shape        = *shape;
    call.arg_count    = arg_count;
    call.scalar_count = scalar_count;
    if (scalar_count > 0) {
        memcpy(call.scalars, scalars, scalar_count * sizeof(*scalars));
    }
    if (arg_count > 0) {
        memcpy(call.args, args, arg_count * sizeof(*args));
    }
    return device_cpu_launch(
        stream, library_trampoline, &call,
        offsetof(struct library_call, args) + arg_count * sizeof(call.args[0]), tag);
}

plasmon_status_t kernel_code_run(const struct kernel_code *code,
                                 struct device_stream *stream,
                                 const struct kernel_arg *args, uint32_t arg_count,
                                 const union kernel_scalar *scalars, uint32_t scalar_count,
                                 struct kernel_launch_shape *io_shape, uint64_t tag,
                                 struct pl_err *err)
{
    if (code->entry != NULL) {
        return run_library(code, stream, args, arg_count, scalars, scalar_count, io_shape,
                           tag, err);
    }
    if (code->kind == DEVICE_CUDA) {
        return run_cuda(code, stream, args, arg_count, scalars, io_shape, tag, err);
    }
    return run_c(code, stream, args, arg_count, scalars, io_shape, tag, err);
}
