/*
 * CUDA devices: what they are, opening and closing, and whether the context still lives.
 *
 * Everything that blocks while some stream waits for a timeline happens in open: modules are
 * loaded, cuBLAS is created and called once (or in device_cublas_start(), for which the device must
 * have nothing to do). Later calls only enqueue.
 */
#include "device/cuda/cuda_int.h"

#include "base/alloc.h"
#include "base/log.h"
#include "base/numa.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EARLY_START_VERSION 12030 /* of the driver */

plasmon_status_t device_cuda_attribute(CUdevice device, CUdevice_attribute attribute,
                                       int *out_value)
{
    return DEVICE_CU(NULL, cuDeviceGetAttribute(out_value, attribute, device));
}

/* --------------------------------------------------------------------------------- info */

/* What we cannot do without, and how to say so. */
static const struct {
    CUdevice_attribute attribute;
    const char *name;
} required[] = {
    {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, "unified addresses"},
    {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, "virtual memory calls"},
    {CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
     "memory exported as descriptors"},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS,
     "64-bit waits and writes in streams"},
};

static plasmon_status_t check_required(CUdevice device, uint32_t ordinal,
                                       struct pl_err *err)
{
    for (size_t i = 0; i < PL_COUNT(required); i++) {
        int value = 0;
        plasmon_status_t status =
            device_cuda_attribute(device, required[i].attribute, &value);

        if (status != PLASMON_OK) {
            return pl_err_set(err, status, "%s", device_cuda_last_error());
        }
        if (value == 0) {
            return pl_err_set(err, PLASMON_ENOTSUP, "CUDA device %u has no %s", ordinal,
                              required[i].name);
        }
    }
    return PLASMON_OK;
}

/* In which no program may use it, whatever it asks for. */
static plasmon_status_t check_mode(CUdevice device, const struct device_info *info,
                                   struct pl_err *err)
{
    int mode = CU_COMPUTEMODE_DEFAULT;
    plasmon_status_t status =
        device_cuda_attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, &mode);

    if (status != PLASMON_OK) {
        return pl_err_set(err, status, "CUDA device %u: %s", info->ordinal,
                          device_cuda_last_error());
    }
    if (mode == CU_COMPUTEMODE_PROHIBITED) {
        return pl_err_set(
            err, PLASMON_EPERM,
            "CUDA device %u at %s is in compute mode PROHIBITED: no program "
            "may use it; `nvidia-smi -i %s -c DEFAULT` ends that, or leave it "
            "out with CUDA_VISIBLE_DEVICES",
            info->ordinal, info->pci, info->pci);
    }
    return PLASMON_OK;
}

/*
 * Kernels of capability 9.0 can wait for what is before them, and graphs know such edges since CUDA
 * 12.3. PLASMON_EARLY_START=0: no kernel begins early.
 */
static bool early_start(uint32_t compute_major)
{
    const char *text = getenv("PLASMON_EARLY_START");
    int version      = 0;

    return compute_major >= 9 && (text == NULL || strcmp(text, "0") != 0) &&
           DEVICE_CU(NULL, cuDriverGetVersion(&version)) == PLASMON_OK &&
           version >= EARLY_START_VERSION;
}

/* cuda.h of CUDA 12.0 does not name it, and a driver that does not know it has none to say. */
#define MPS_ENABLED ((CUdevice_attribute)133)

static bool is_mps(CUdevice device)
{
    int mps = 0;

    return device_cuda_driver.cuDeviceGetAttribute(&mps, MPS_ENABLED, device) ==
               CUDA_SUCCESS &&
           mps != 0;
}

static plasmon_status_t info_numbers(CUdevice device, struct device_info *info)
{
    CUmemAllocationProp properties = device_cuda_chunk_properties(device);
    int multiprocessors            = 0;
    int major                      = 0;
    int minor                      = 0;
    size_t bytes                   = 0;
    size_t granularity             = 0;
    plasmon_status_t status;

    status = device_cuda_attribute(device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
                                   &multiprocessors);
    if (status == PLASMON_OK) {
        status = device_cuda_attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                                       &major);
    }
    if (status == PLASMON_OK) {
        status = device_cuda_attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
                                       &minor);
    }
    if (status == PLASMON_OK) {
        status = DEVICE_CU(NULL, cuDeviceTotalMem(&bytes, device));
    }
    if (status == PLASMON_OK) {
        status = DEVICE_CU(
            NULL, cuMemGetAllocationGranularity(&granularity, &properties,
                                                CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
    }
    info->multiprocessors   = (uint32_t)multiprocessors;
    info->compute_major     = (uint32_t)major;
    info->compute_minor     = (uint32_t)minor;
    info->bytes_total       = bytes;
    info->chunk_granularity = granularity;
    info->mps               = is_mps(device);
    info->early_start       = status == PLASMON_OK && early_start(info->compute_major);
    return status;
}

static plasmon_status_t info_names(CUdevice device, struct device_info *info)
{
    CUuuid uuid;
    plasmon_status_t status =
        DEVICE_CU(NULL, cuDeviceGetName(info->name, (int)sizeof(info->name), device));

    if (status == PLASMON_OK) {
        status = DEVICE_CU(NULL, cuDeviceGetUuid(&uuid, device));
    }
    if (status == PLASMON_OK) {
        status =
            DEVICE_CU(NULL, cuDeviceGetPCIBusId(info->pci, (int)sizeof(info->pci), device));
    }
    if (status == PLASMON_OK) {
        memcpy(info->uuid, uuid.bytes, sizeof(info->uuid));
        info->numa_node = pl_numa_node_of_pci(pl_numa_root(), info->pci);
    }
    return status;
}

plasmon_status_t device_cuda_handle(uint32_t ordinal, CUdevice *out_device)
{
    int taken = device_slice_taken();

    if (taken >= 0 && ordinal != (uint32_t)taken) {
        return PLASMON_ENOENT;
    }
    return DEVICE_CU(NULL, cuDeviceGet(out_device, taken >= 0 ? 0 : (int)ordinal));
}

static plasmon_status_t cuda_probe(uint32_t ordinal, struct device_info *out_info,
                                   struct pl_err *err)
{
    struct device_info info = {
        .kind = DEVICE_CUDA, .ordinal = ordinal, .numa_node = -1, .notify_stalls = true};
    CUdevice device;
    plasmon_status_t status = device_cuda_handle(ordinal, &device);

    if (status == PLASMON_OK) {
        status = info_names(device, &info);
    }
    if (status == PLASMON_OK) {
        status = check_required(device, ordinal, err);
        if (status != PLASMON_OK) {
            return status;
        }
        status = check_mode(device, &info, err);
        if (status != PLASMON_OK) {
            return status;
        }
        status = info_numbers(device, &info);
    }
    if (status != PLASMON_OK) {
        return pl_err_set(err, status, "CUDA device %u: %s", ordinal,
                          device_cuda_last_error());
    }
    *out_info = info;
    return PLASMON_OK;
}

/* --------------------------------------------------------------------------------- open */

plasmon_status_t device_cuda_enter_context(struct device_cuda *cuda, CUcontext context)
{
    CUcontext current;

    if (device_cuda_driver.cuCtxGetCurrent(&current) == CUDA_SUCCESS &&
        current == context) {
        return PLASMON_OK;
    }
    return DEVICE_CU(cuda, cuCtxSetCurrent(context));
}

plasmon_status_t device_cuda_enter(struct device_cuda *cuda)
{
    return device_cuda_enter_context(cuda, cuda->context);
}

/* A kernel that is loaded on its first launch would block there: see design, one order. */
static void warn_if_lazy(void)
{
    CUmoduleLoadingMode mode;

    if (DEVICE_CU(NULL, cuModuleGetLoadingMode(&mode)) == PLASMON_OK &&
        mode == CU_MODULE_LAZY_LOADING) {
        pl_warn("device", "CUDA loads modules lazily: the driver was initialised before "
                          "CUDA_MODULE_LOADING=EAGER was set");
    }
}

/* With the context current. */
static plasmon_status_t open_constants(struct device_cuda *cuda)
{
    int pitch               = 0;
    plasmon_status_t status = DEVICE_CU(
        cuda, cuCtxGetStreamPriorityRange(&cuda->priority_low, &cuda->priority_high));

    /*
     * Of two levels or one, the normal one is the lowest, which is what CUDA gives a stream without
     * asking.
     */
    cuda->priority_normal =
        cuda->priority_low - (cuda->priority_low - cuda->priority_high) / 2;
    if (cuda->priority_normal == cuda->priority_high) {
        cuda->priority_normal = cuda->priority_low;
    }
    if (status == PLASMON_OK) {
        status = device_cuda_attribute(cuda->device, CU_DEVICE_ATTRIBUTE_MAX_PITCH, &pitch);
        cuda->pitch_max = (uint64_t)pitch;
    }
    if (status == PLASMON_OK) {
        status = DEVICE_CU(cuda, cuStreamCreateWithPriority(&cuda->idle_stream,
                                                            CU_STREAM_NON_BLOCKING, 0));
    }
    return status;
}

/* What to do about a context that cannot be had. */
static const char *context_remedy(const struct device_cuda *cuda, plasmon_status_t status)
{
    int mode = CU_COMPUTEMODE_DEFAULT;

    if (status == PLASMON_EDEVMEM) {
        return ": other programs fill its memory; `nvidia-smi` names them";
    }
    if (device_cuda_attribute(cuda->device, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, &mode) ==
            PLASMON_OK &&
        mode == CU_COMPUTEMODE_EXCLUSIVE_PROCESS) {
        return ": it is in compute mode EXCLUSIVE_PROCESS, and another process has it; "
               "`nvidia-smi` names that, `nvidia-smi -c DEFAULT` lets several in; "
               "--spare-workers context needs that, too";
    }
    return "";
}

static plasmon_status_t open_context(struct device_cuda *cuda, struct pl_err *err)
{
    char why[256];
    plasmon_status_t status;

    status = device_cuda_handle(cuda->base.info.ordinal, &cuda->device);
    if (status == PLASMON_OK) {
        status = DEVICE_CU(cuda, cuDevicePrimaryCtxRetain(&cuda->context, cuda->device));
    }
    if (status != PLASMON_OK) {
        (void)snprintf(why, sizeof(why), "%s", device_cuda_last_error());
        return pl_err_set(err, status, "no context on CUDA device %u: %s%s",
                          cuda->base.info.ordinal, why, context_remedy(cuda, status));
    }

    status = device_cuda_enter(cuda);
    if (status == PLASMON_OK) {
        status = open_constants(cuda);
    }
    if (status != PLASMON_OK) {
        /* the first error counts */
        (void)DEVICE_CU(cuda, cuDevicePrimaryCtxRelease(cuda->device));
        return pl_err_set(err, status, "CUDA device %u: %s", cuda->base.info.ordinal,
                          device_cuda_last_error());
    }
    return PLASMON_OK;
}

static void close_context(struct device_cuda *cuda)
{
    if (device_cuda_enter(cuda) == PLASMON_OK) {
        /* logged; nothing else to do */
        (void)DEVICE_CU(cuda, cuStreamDestroy(cuda->idle_stream));
    }
    (void)DEVICE_CU(cuda, cuDevicePrimaryCtxRelease(cuda->device)); /* likewise */
}

static void opened(const struct device_config *config, enum device_open_step step)
{
    if (config->opened != NULL) {
        config->opened(config->user, step);
    }
}

static plasmon_status_t cuda_open(uint32_t ordinal, const struct device_config *config,
                                  struct device **out_device, struct pl_err *err)
{
    struct device_cuda *cuda = PL_NEW(struct device_cuda);
    plasmon_status_t status;

    if (cuda == NULL) {
        return pl_err_set(err, PLASMON_ENOMEM, "no memory for CUDA device %u", ordinal);
    }
    cuda->base.ops = &device_cuda_ops;
    pl_list_init(&cuda->streams);
    pl_list_init(&cuda->failures);
    pl_list_init(&cuda->keeps);
    cuda->launch_failed      = config->launch_failed;
    cuda->launch_failed_user = config->user;

    status = cuda_probe(ordinal, &cuda->base.info, err);
    if (status != PLASMON_OK) {
        goto err_free;
    }
    status = pl_mutex_init(&cuda->lock, PL_RANK_DEVICE);
    if (status != PLASMON_OK) {
        (void)pl_err_set(err, status, "no lock for CUDA device %u", ordinal);
        goto err_free;
    }
    status = pl_mutex_init(&cuda->keeps_lock, PL_RANK_CHAINS);
    if (status != PLASMON_OK) {
        (void)pl_err_set(err, status, "no lock for CUDA device %u", ordinal);
        goto err_finish_lock;
    }
    status = device_cuda_far_init(cuda);
    if (status != PLASMON_OK) {
        (void)pl_err_set(err, status, "no lock for CUDA device %u", ordinal);
        goto err_finish_keeps_lock;
    }
    status = open_context(cuda, err);
    if (status != PLASMON_OK) {
        goto err_finish_far;
    }
    opened(config, DEVICE_OPENED_CONTEXT);
    warn_if_lazy();
    status = device_cuda_copy_init(cuda, err);
    if (status != PLASMON_OK) {
        goto err_close_context;
    }
    device_cuda_blas_init(cuda, config->cublas_later);
    opened(config, DEVICE_OPENED_LIBRARIES);

    *out_device = &cuda->base;
    return PLASMON_OK;

err_close_context:
    close_context(cuda);
err_finish_far:
    device_cuda_far_finish(cuda);
err_finish_keeps_lock:
    pl_mutex_finish(&cuda->keeps_lock);
err_finish_lock:
    pl_mutex_finish(&cuda->lock);
err_free:
    pl_free(cuda);
    return status;
}

static void cuda_close(struct device *device)
{
    struct device_cuda *cuda = device_cuda_of(device);
    struct pl_err err;
    uint64_t tag;

    while (!pl_list_empty(&cuda->streams)) {
        device_cuda_stream_destroy(
            &pl_list_first(&cuda->streams, struct device_cuda_stream, link)->base);
    }
    while (device_cuda_launch_failure(device, &tag, &err)) {
        pl_debug("device", "nobody asked what became of launch %llu: %s",
                 (unsigned long long)tag, err.text);
    }
    device_cuda_blas_finish(cuda);
    device_cuda_copy_finish(cuda);
    device_cuda_far_finish(cuda);
    device_cuda_host_finish(cuda);
    close_context(cuda);
    pl_mutex_finish(&cuda->keeps_lock);
    pl_mutex_finish(&cuda->lock);
    pl_free(cuda);
}

/* ------------------------------------------------------------------------------- health */

void device_cuda_lost(struct device_cuda *cuda, const char *text)
{
    bool first;

    pl_mutex_lock(&cuda->lock);
    first = cuda->lost.status == PLASMON_OK;
    if (first) {
        (void)pl_err_set(&cuda->lost, PLASMON_EDEVICE, "%s", text);
    }
    pl_mutex_unlock(&cuda->lock);

    /* Every later call on the context fails alike; once is enough. */
    if (first) {
        pl_error("device", "CUDA device %u lost its context: %s", cuda->base.info.ordinal,
                 text);
    }
}

/* The first stream's answer that is neither done nor running. Asking does not wait. */
static CUresult query_streams_locked(struct device_cuda *cuda)
{
    CUresult result = device_cuda_driver.cuStreamQuery(cuda->idle_stream);
    struct pl_list *pos;

    pl_mutex_assert_held(&cuda->lock);
    pl_list_for_each(pos, &cuda->streams) {
        if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY) {
            break;
        }
        result = device_cuda_driver.cuStreamQuery(
            pl_container_of(pos, struct device_cuda_stream, link)->home.stream);
    }
    return result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_READY
               ? device_cuda_far_query_locked(cuda)
               : result;
}

static plasmon_status_t cuda_health(struct device *device, struct pl_err *err)
{
    struct device_cuda *cuda = device_cuda_of(device);
    struct pl_err lost;
    CUresult result;

    if (device_cuda_enter(cuda) == PLASMON_OK) {
        pl_mutex_lock(&cuda->lock);
        result = query_streams_locked(cuda);
        pl_mutex_unlock(&cuda->lock);
        if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY) {
            (void)device_cuda_fail(cuda, result, "cuStreamQuery");
            device_cuda_lost(cuda, device_cuda_last_error()); /* whatever it is called */
        }
    }

    pl_mutex_lock(&cuda->lock);
    lost = cuda->lost;
    pl_mutex_unlock(&cuda->lock);
    return lost.status == PLASMON_OK ? PLASMON_OK
                                     : pl_err_set(err, lost.status, "%s", lost.text);
}

/* ---------------------------------------------------------------------------------- ops */

static void *cuda_ptr_host(struct device_ptr ptr)
{
    (void)ptr;
    return NULL;
}

static void *cuda_native_stream(struct device_stream *stream)
{
    struct device_cuda *cuda = device_cuda_of(stream->device);
    CUstream on              = device_cuda_stream_on(device_cuda_stream_of(stream));

    if (device_cuda_enter(cuda) != PLASMON_OK) {
        /* what its user calls would go elsewhere */
        device_cuda_lost(cuda, device_cuda_last_error());
    }
    return on;
}

static plasmon_status_t cuda_host_address(struct device *device, const void *ptr,
                                          uint64_t bytes, struct device_ptr *out_address)
{
    CUdeviceptr address;
    plasmon_status_t status =
        device_cuda_host_address(device_cuda_of(device), ptr, bytes, &address);

    if (status == PLASMON_OK) {
        out_address->addr = address;
    }
    return status;
}

static plasmon_status_t enter(struct device *device)
{
    return device_cuda_enter(device_cuda_of(device));
}

const struct device_ops device_cuda_ops = {
    .kind               = DEVICE_CUDA,
    .count              = device_cuda_driver_load,
    .preload            = device_cuda_blas_preload,
    .probe              = cuda_probe,
    .open               = cuda_open,
    .close              = cuda_close,
    .range_reserve      = device_cuda_range_reserve,
    .range_release      = device_cuda_range_release,
    .chunk_create       = device_cuda_chunk_create,
    .chunk_map          = device_cuda_chunk_map,
    .chunk_unmap        = device_cuda_chunk_unmap,
    .can_peer           = device_cuda_can_peer,
    .host_register      = device_cuda_host_register,
    .host_unregister    = device_cuda_host_unregister,
    .host_address       = cuda_host_address,
    .ptr_host           = cuda_ptr_host,
    .stream_create      = device_cuda_stream_create,
    .stream_destroy     = device_cuda_stream_destroy,
    .stream_flush       = device_cuda_stream_flush,
    .stream_sync        = device_cuda_stream_sync,
    .engines_open       = device_cuda_engines_open,
    .engines_state      = device_cuda_engines_state,
    .source             = device_cuda_source,
    .words_late         = device_cuda_words_late,
    .settle             = device_cuda_settle,
    .engines            = device_cuda_engines,
    .health             = cuda_health,
    .copy               = device_cuda_copy,
    .copy_planned       = device_cuda_copy_planned,
    .fill8              = device_cuda_fill8,
    .signal             = device_cuda_signal,
    .words              = device_cuda_words,
    .wait               = device_cuda_wait,
    .notify             = device_cuda_notify,
    .join               = device_cuda_join,
    .event_create       = device_cuda_event_create,
    .event_destroy      = device_cuda_event_destroy,
    .event_record       = device_cuda_event_record,
    .event_elapsed_ns   = device_cuda_event_elapsed_ns,
    .event_done         = device_cuda_event_done,
    .event_behind       = device_cuda_event_behind,
    .graph_create       = device_cuda_graph_create,
    .graph_destroy      = device_cuda_graph_destroy,
    .graph_begin        = device_cuda_graph_begin,
    .graph_mark         = device_cuda_graph_mark,
    .graph_after        = device_cuda_graph_after,
    .graph_end          = device_cuda_graph_end,
    .graph_item         = device_cuda_graph_item,
    .graph_change_begin = device_cuda_graph_change_begin,
    .graph_change_end   = device_cuda_graph_change_end,
    .exec_launch        = device_cuda_exec_launch,
    .exec_destroy       = device_cuda_exec_destroy,
    .comm_version       = device_cuda_comm_version,
    .comm_id            = device_cuda_comm_id,
    .comm_open          = device_cuda_comm_open,
    .comm_poll          = device_cuda_comm_poll,
    .comm_move          = device_cuda_comm_move,
    .comm_join          = device_cuda_comm_join,
    .comm_check         = device_cuda_comm_check,
    .comm_close         = device_cuda_comm_close,
    .comm_cut           = device_cuda_comm_cut,
    .comm_abort         = device_cuda_comm_abort,
    .module_load        = device_cuda_module_load,
    .module_unload      = device_cuda_module_unload,
    .module_function    = device_cuda_module_function,
    .function_limits    = device_cuda_function_limits,
    .function_block     = device_cuda_function_block,
    .launch             = device_cuda_launch,
    .launch_soon        = device_cuda_launch_soon,
    .launch_failure     = device_cuda_launch_failure,
    .enter              = enter,
    .cublas_pending     = device_cuda_blas_pending,
    .cublas_start       = device_cuda_blas_start,
    .cublas             = device_cuda_blas_handle,
    .cublas_on          = device_cuda_blas_on,
    .cublas_symbol      = device_cuda_blas_symbol,
    .native_stream      = cuda_native_stream,
};
