/*
 * Memory of a CUDA device, by the virtual memory calls.
 *
 * A chunk is one cuMemCreate, exported at once as a descriptor; the handle is released again, so
 * the descriptor alone keeps the memory alive (measured: also after the maker was killed). Mapping
 * always imports a descriptor, whoever made the chunk, and drops the handle as soon as the mapping
 * holds the memory.
 *
 * What is mapped is accessible to THIS device, read-only if asked for, and to those whose engines
 * copy for it (far.c); where the memory lies is in the handle. That also works for a device that
 * CUDA_VISIBLE_DEVICES hides, so an ordinal that is not visible here is not taken for an error
 * before the driver said so.
 *
 * None of these calls waits for a stream (measured), but cuMemHostUnregister does.
 */
#include "device/cuda/cuda_int.h"

#include "base/fd.h"

#include <fcntl.h>

CUmemAllocationProp device_cuda_chunk_properties(CUdevice device)
{
    return (CUmemAllocationProp){
        .type                 = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location             = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = (int)device},
    };
}

plasmon_status_t device_cuda_range_reserve(struct device *device, uint64_t bytes,
                                           struct device_ptr *out_base)
{
    struct device_cuda *cuda = device_cuda_of(device);
    CUdeviceptr base         = 0;
    plasmon_status_t status  = device_cuda_enter(cuda);

    if (status == PLASMON_OK) {
        status = DEVICE_CU(cuda, cuMemAddressReserve(&base, bytes, 0, 0, 0));
    }
    if (status == PLASMON_OK) {
        *out_base = (struct device_ptr){.addr = base};
    }
    return status;
}

void device_cuda_range_release(struct device *device, struct device_ptr base,
                               uint64_t bytes)
{
    struct device_cuda *cuda = device_cuda_of(device);

    if (device_cuda_enter(cuda) == PLASMON_OK) {
        /* logged; nothing else to do */
        (void)DEVICE_CU(cuda, cuMemAddressFree(base.addr, bytes));
    }
}

plasmon_status_t device_cuda_chunk_create(struct device *device, uint64_t bytes,
                                          int *out_fd)
{
    struct device_cuda *cuda       = device_cuda_of(device);
    CUmemAllocationProp properties = device_cuda_chunk_properties(cuda->device);
    CUmemGenericAllocationHandle handle;
    int fd                  = -1;
    plasmon_status_t status = device_cuda_enter(cuda);

    if (status != PLASMON_OK) {
        return status;
    }
    status = DEVICE_CU(cuda, cuMemCreate(&handle, bytes, &properties, 0));
    if (status != PLASMON_OK) {
        return status;
    }
    status = DEVICE_CU(cuda, cuMemExportToShareableHandle(
                                 &fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    /* logged; the memory stays with the descriptor */
    (void)DEVICE_CU(cuda, cuMemRelease(handle));
    if (status == PLASMON_OK) {
        *out_fd = fd;
    }
    return status;
}

/* Map the handle and open it for this device. */
static plasmon_status_t handle_map(struct device_cuda *cuda,
                                   CUmemGenericAllocationHandle handle, uint64_t bytes,
                                   bool writable, CUdeviceptr where)
{
    CUmemAccessDesc access = {
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = (int)cuda->device},
        .flags =
            writable ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_READ,
    };
    plasmon_status_t status = DEVICE_CU(cuda, cuMemMap(where, bytes, 0, handle, 0));

    if (status != PLASMON_OK) {
        return status;
    }
    status = DEVICE_CU(cuda, cuMemSetAccess(where, bytes, &access, 1));
    if (status != PLASMON_OK) {
        (void)DEVICE_CU(cuda, cuMemUnmap(where, bytes)); /* the first error counts */
    }
    return status;
}

static plasmon_status_t map_add_locked(struct device_cuda *cuda,
                                       const struct device_cuda_map *map)
{
    struct device_cuda_map *kept = pl_vec_push(&cuda->maps);

    pl_mutex_assert_held(&cuda->maps_lock);
    if (kept == NULL) {
        (void)DEVICE_CU(cuda, cuMemUnmap(map->where, map->bytes)); /* logged */
        return PLASMON_ENOMEM;
    }
    *kept = *map;
    device_cuda_far_open_map(cuda, map);
    return PLASMON_OK;
}

static void map_forget_locked(struct device_cuda *cuda, CUdeviceptr where)
{
    pl_mutex_assert_held(&cuda->maps_lock);
    for (size_t i = 0; i < cuda->maps.count; i++) {
        const struct device_cuda_map *map = pl_vec_at(&cuda->maps, i);

        if (map->where == where) {
            pl_vec_remove_unordered(&cuda->maps, i);
            return;
        }
    }
}

plasmon_status_t device_cuda_chunk_map(struct device *device, int fd, uint64_t bytes,
                                       uint32_t owner_ordinal, bool writable,
                                       struct device_ptr where)
{
    struct device_cuda *cuda = device_cuda_of(device);
    CUmemGenericAllocationHandle handle;
    plasmon_status_t status = device_cuda_enter(cuda);

    if (status != PLASMON_OK) {
        return status;
    }
    if (owner_ordinal != device->info.ordinal &&
        owner_ordinal < device_cuda_driver_load(NULL) &&
        !device_cuda_can_peer(device, owner_ordinal)) {
        return PLASMON_EUNREACHABLE;
    }

    status = DEVICE_CU(
        cuda, cuMemImportFromShareableHandle(&handle, (void *)(uintptr_t)(unsigned)fd,
                                             CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    if (status != PLASMON_OK) {
        return status;
    }
    pl_mutex_lock(&cuda->maps_lock);
    status = handle_map(cuda, handle, bytes, writable, where.addr);
    if (status == PLASMON_OK) {
        status = map_add_locked(cuda, &(struct device_cuda_map){.where = where.addr,
                                                                .bytes = bytes,
                                                                .owner = owner_ordinal});
    }
    pl_mutex_unlock(&cuda->maps_lock);
    (void)DEVICE_CU(cuda, cuMemRelease(handle)); /* logged; the mapping holds the memory */
    return status;
}

void device_cuda_chunk_unmap(struct device *device, struct device_ptr where, uint64_t bytes)
{
    struct device_cuda *cuda = device_cuda_of(device);

    pl_mutex_lock(&cuda->maps_lock);
    map_forget_locked(cuda, where.addr);
    if (device_cuda_enter(cuda) == PLASMON_OK) {
        (void)DEVICE_CU(cuda,
                        cuMemUnmap(where.addr, bytes)); /* logged; nothing else to do */
    }
    pl_mutex_unlock(&cuda->maps_lock);
}

bool device_cuda_can_peer(struct device *device, uint32_t peer_ordinal)
{
    struct device_cuda *cuda = device_cuda_of(device);
    CUdevice peer;
    int can = 0;

    if (peer_ordinal >= device_cuda_driver_load(NULL) ||
        device_cuda_handle(peer_ordinal, &peer) != PLASMON_OK ||
        DEVICE_CU(cuda, cuDeviceCanAccessPeer(&can, cuda->device, peer)) != PLASMON_OK) {
        return false;
    }
    return can != 0;
}

/* -------------------------------------------------------------------------- host memory */

/*
 * Memory that is mapped read-only here (another device's timeline) can only be registered as such;
 * whether it is so shows when the ordinary way is refused. Portable memory is registered for every
 * device of the process at once, so a second device finds it registered already: it then only looks
 * up the address, and the first one must outlive it.
 */
static CUresult host_register(void *ptr, uint64_t bytes, bool *out_owned)
{
    unsigned flags  = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
    CUresult result = device_cuda_driver.cuMemHostRegister(ptr, bytes, flags);

    *out_owned = result != CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    if (!*out_owned) {
        return CUDA_SUCCESS;
    }

    if (result == CUDA_ERROR_INVALID_VALUE || result == CUDA_ERROR_NOT_SUPPORTED ||
        result == CUDA_ERROR_NOT_PERMITTED) {
        if (device_cuda_driver.cuMemHostRegister(
                ptr, bytes, flags | CU_MEMHOSTREGISTER_READ_ONLY) == CUDA_SUCCESS) {
            return CUDA_SUCCESS;
        }
    }
    return result;
}

/*
 * PIECES. While memory is being registered, every call of other threads that gives the device
 * something to do waits: on an H200 for 95 ms a GiB whose pages are there, and half a second a GiB
 * whose pages are still to be made. So pages are made first, which concerns nobody else, and
 * registered a piece at a time (device.c).
 */
/* Whatever cannot be said is logged. */
static void pieces_unregister(struct device_cuda *cuda,
                              const struct device_cuda_host_range *range)
{
    for (uint64_t at = 0; at < range->bytes; at += device_host_run(at, range->bytes - at)) {
        (void)DEVICE_CU(cuda, cuMemHostUnregister((void *)(range->host + at)));
    }
}

static struct device_cuda_host_range *host_range_find_locked(struct device_cuda *cuda,
                                                             const void *ptr)
{
    for (unsigned i = 0; i < cuda->host_range_count; i++) {
        if (cuda->host_ranges[i].host == (uintptr_t)ptr) {
            return &cuda->host_ranges[i];
        }
    }
    return NULL;
}

static plasmon_status_t host_range_add(struct device_cuda *cuda,
                                       const struct device_cuda_host_range *range)
{
    plasmon_status_t status = PLASMON_OK;

    pl_mutex_lock(&cuda->lock);
    if (cuda->host_range_count == DEVICE_CUDA_HOST_RANGES_MAX) {
        status = PLASMON_ELIMIT;
    } else {
        cuda->host_ranges[cuda->host_range_count++] = *range;
    }
    pl_mutex_unlock(&cuda->lock);
    return status;
}

static void host_range_grow(struct device_cuda *cuda, const void *ptr, uint64_t bytes)
{
    struct device_cuda_host_range *range;

    pl_mutex_lock(&cuda->lock);
    range = host_range_find_locked(cuda, ptr);
    PL_CHECK(range != NULL); /* else: its first piece was never registered */
    range->bytes += bytes;
    pl_mutex_unlock(&cuda->lock);
}

plasmon_status_t device_cuda_host_register(struct device *device, void *ptr,
                                           uint64_t offset, uint64_t bytes)
{
    struct device_cuda *cuda            = device_cuda_of(device);
    struct device_cuda_host_range range = {.host = (uintptr_t)ptr, .bytes = bytes};
    void *piece                         = (uint8_t *)ptr + offset;
    plasmon_status_t status             = device_cuda_enter(cuda);
    CUresult result;

    if (status != PLASMON_OK) {
        return status;
    }
    pl_fd_make_pages(piece, bytes);
    result = host_register(piece, bytes, &range.owned);
    if (result != CUDA_SUCCESS) {
        return device_cuda_fail(cuda, result, "cuMemHostRegister");
    }
    if (offset > 0) { /* all pieces are owned, or none */
        host_range_grow(cuda, ptr, bytes);
        return PLASMON_OK;
    }
    status = DEVICE_CU(cuda, cuMemHostGetDevicePointer(&range.device, ptr, 0));
    if (status == PLASMON_OK) {
        status = host_range_add(cuda, &range);
    }
    if (status != PLASMON_OK && range.owned) {
        pieces_unregister(cuda, &range); /* the first error counts */
    }
    return status;
}

void device_cuda_host_unregister(struct device *device, void *ptr)
{
    struct device_cuda *cuda = device_cuda_of(device);
    struct device_cuda_host_range *found, range;

    pl_mutex_lock(&cuda->lock);
    found = host_range_find_locked(cuda, ptr);
    PL_CHECK(found != NULL); /* else: never registered here */
    range  = *found;
    *found = cuda->host_ranges[--cuda->host_range_count];
    pl_mutex_unlock(&cuda->lock);

    if (range.owned && device_cuda_enter(cuda) == PLASMON_OK) {
        pieces_unregister(cuda, &range);
    }
}

void device_cuda_host_finish(struct device_cuda *cuda)
{
    while (cuda->host_range_count > 0) {
        device_cuda_host_unregister(
            &cuda->base, (void *)cuda->host_ranges[cuda->host_range_count - 1].host);
    }
}

plasmon_status_t device_cuda_host_address(struct device_cuda *cuda, const void *ptr,
                                          uint64_t bytes, CUdeviceptr *out_address)
{
    uintptr_t at            = (uintptr_t)ptr;
    plasmon_status_t status = PLASMON_EINVAL;

    pl_mutex_lock(&cuda->lock);
    for (unsigned i = 0; i < cuda->host_range_count; i++) {
        const struct device_cuda_host_range *range = &cuda->host_ranges[i];

        if (at >= range->host && bytes <= range->bytes &&
            at - range->host <= range->bytes - bytes) {
            *out_address = range->device + (at - range->host);
            status       = PLASMON_OK;
            break;
        }
    }
    pl_mutex_unlock(&cuda->lock);
    return status;
}
