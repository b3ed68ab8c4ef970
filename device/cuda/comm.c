/*
 * Communicators of a CUDA device: NCCL, found at run time. What of its ABI is used is declared here, so that a build needs no NCCL; a config
 * says by its size and version what it holds, and every NCCL since 2.18 takes this one.
 *
 * NOT BLOCKING. Communicators are made with blocking = 0: a peer that does not come must not hold a thread that cannot be freed. Then
 * every call may answer "in progress" and is finished by NCCL's own thread; a send or receive is waited for here, 30 to 40 us, because the
 * order on the device is the order in which operations are put there (docs/transfers.md).
 *
 * ONE THREAD AT A TIME. NCCL's communicators are not to be used by two threads at once, and ncclCommGetAsyncError is no exception: in versions
 * before 2.29 it also finishes the last operation's job (joins its thread, frees it), so two threads that ask at the same time free it twice, or
 * join what is no longer a thread of NCCL's. The worker's thread asks until an operation is on its stream, the watcher whether what ended may
 * be believed; a lock of the communicator keeps them apart. It is held from the operation until that has settled, so
 * that whoever asks then finds no job.
 *
 * FEW CHANNELS. A channel is a block of 640 threads and about 18 MiB of buffers. 16 give 361 of 371 GB/s over NVLink; over a network
 * few do, and buffers are a pool. A team may have what NCCL would take, up to 32: both directions of every link are to be busy.
 * cgaClusterSize 0: clusters of blocks would wait for a free group of multiprocessors.
 *
 * RINGS ONLY. NCCL connects for an algorithm when that is first used, which blocks. So it may use one (NCCL_ALGO), and the reduction that a team
 * begins with connects it.
 *
 * MEMORY. The byte that connects lies in memory that is made once a device: an abort must not free any.
 */
#include "device/cuda/cuda_int.h"

#include "base/alloc.h"
#include "base/log.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHANNELS_NVLINK 16
#define CHANNELS_REMOTE 4
#define CHANNELS_TEAM   32
#define VERSION_MIN \
    21800 /* point to point over communicators that do not block, and this config */
#define ENQUEUE_NS \
    UINT64_C(2000000000) /* a send that is not on its stream by then never will be */
#define CLOSE_NS UINT64_C(5000000000)

/* ------------------------------------------------------------------------------------------------ NCCL's ABI */

typedef struct nccl_comm *nccl_comm_t;
struct nccl_id {
    char bytes[DEVICE_COMM_ID_BYTES];
};
enum { NCCL_SUCCESS = 0, NCCL_IN_PROGRESS = 7, NCCL_UINT8 = 1, NCCL_SUM = 0 };
#define NCCL_UNDEFINED    INT32_MIN
#define NCCL_CONFIG_MAGIC 0xcafebeefu

struct nccl_config {
    size_t size;
    unsigned magic;
    unsigned version;
    int blocking;
    int cga_cluster_size;
    int min_ctas;
    int max_ctas;
    const char *net_name;
    int split_share;
};

static struct {
    pthread_once_t once;
    void *library;
    struct pl_err missing;
    int version;
    int (*ncclGetVersion)(int *version);
    int (*ncclGetUniqueId)(struct nccl_id *id);
    int (*ncclCommInitRankConfig)(nccl_comm_t *comm, int ranks, struct nccl_id id, int rank,
                                  struct nccl_config *config);
    int (*ncclCommGetAsyncError)(nccl_comm_t comm, int *error);
    int (*ncclCommFinalize)(nccl_comm_t comm);
    int (*ncclCommDestroy)(nccl_comm_t comm);
    int (*ncclCommAbort)(nccl_comm_t comm);
    int (*ncclSend)(const void *data, size_t count, int type, int peer, nccl_comm_t comm,
                    CUstream stream);
    int (*ncclRecv)(void *data, size_t count, int type, int peer, nccl_comm_t comm,
                    CUstream stream);
    int (*ncclAllReduce)(const void *src, void *dst, size_t count, int type, int op,
                         nccl_comm_t comm, CUstream stream);
    int (*ncclReduceScatter)(const void *src, void *dst, size_t dst_count, int type, int op,
                             nccl_comm_t comm, CUstream stream);
    int (*ncclAllGather)(const void *src, void *dst, size_t src_count, int type,
                         nccl_comm_t comm, CUstream stream);
    const char *(*ncclGetErrorString)(int error);
    const char *(*ncclGetLastError)(nccl_comm_t comm);
} nccl = {.once = PTHREAD_ONCE_INIT};

#define NCCL_FUNCTIONS(XX)     \
    XX(ncclGetVersion)         \
    XX(ncclGetUniqueId)        \
    XX(ncclCommInitRankConfig) \
    XX(ncclCommGetAsyncError)  \
    XX(ncclCommFinalize)       \
    XX(ncclCommDestroy)        \
    XX(ncclCommAbort)          \
    XX(ncclSend)               \
    XX(ncclRecv)               \
    XX(ncclAllReduce)          \
    XX(ncclReduceScatter)      \
    XX(ncclAllGather)          \
    XX(ncclGetErrorString)     \
    XX(ncclGetLastError)

/* ------------------------------------------------------------------------------------------------ loading */

static void *library_find(void)
{
    static const char *const names[] = {"libnccl.so.2",
                                        "/usr/local/cuda/lib64/libnccl.so.2",
                                        "/usr/local/cuda/lib/libnccl.so.2"};
    const char *named                = getenv("PLASMON_NCCL_LIBRARY");
    void *library                    = NULL;

    if (named != NULL && named[0] != '\0') {
        return dlopen(named, RTLD_NOW | RTLD_LOCAL);
    }
    for (size_t i = 0; i < PL_COUNT(names) && library == NULL; i++) {
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    }
    return library;
}

static void functions_find(void)
{
    void *symbol;

#define XX(name)                                        \
    symbol = dlsym(nccl.library, #name);                \
    if (symbol == NULL) {                               \
        (void)pl_err_set(&nccl.missing, PLASMON_ENOLIB, \
                         "libnccl.so.2 has no %s; at "  \
                         "least NCCL 2.18 is needed",   \
                         #name);                        \
        return;                                         \
    }                                                   \
    memcpy(&nccl.name, &symbol, sizeof(symbol));
    NCCL_FUNCTIONS(XX)
#undef XX
}

static void nccl_load(void)
{
    int version = 0;

    /* Multicast groups outlive a process that is killed, and on some machines block the next one. Whatever the caller set. */
    (void)setenv("NCCL_NVLS_ENABLE", "0",
                 1); /* no memory: the first allocation below fails, too */
    (void)setenv("NCCL_ALGO", "Ring", 1); /* likewise */
    nccl.library = library_find();
    if (nccl.library == NULL) {
        (void)pl_err_set(&nccl.missing, PLASMON_ENOLIB,
                         "NCCL is not there (%s); install libnccl2, or name it in "
                         "PLASMON_NCCL_LIBRARY",
                         dlerror());
        return;
    }
    functions_find();
    if (nccl.missing.status != PLASMON_OK) {
        return;
    }
    if (nccl.ncclGetVersion(&version) != NCCL_SUCCESS || version < VERSION_MIN) {
        (void)pl_err_set(&nccl.missing, PLASMON_ENOLIB,
                         "NCCL %d.%d.%d is too old; at least 2.18 is needed",
                         version / 10000, version / 100 % 100, version % 100);
        return;
    }
    nccl.version = version;
}

uint32_t device_cuda_comm_version(struct device *device, struct pl_err *why)
{
    (void)device;
    (void)pthread_once(&nccl.once, nccl_load); /* cannot fail for a valid once */
    if (nccl.version == 0 && why != NULL) {
        *why = nccl.missing;
    }
    return (uint32_t)nccl.version;
}

/* ------------------------------------------------------------------------------------------------ opening */

enum comm_state { COMM_INIT, COMM_CONNECTING, COMM_GREETING, COMM_OPEN };

struct cuda_comm {
    struct device_comm base;
    struct pl_mutex lock; /* rank PL_RANK_COMM; calls about `comm`, but those that end it */
    atomic_bool
        enqueuing; /* the lock is held for long: an operation takes 30 us and more to settle */
    nccl_comm_t comm;
    struct device_cuda_stream *stream; /* for the byte that connects */
    enum comm_state state;
    bool team;
    CUevent event;
    size_t free_before;
};

static struct cuda_comm *comm_of(struct device_comm *comm)
{
    PL_CHECK(comm->device->ops == &device_cuda_ops);
    return (struct cuda_comm *)(void *)comm;
}

static plasmon_status_t fail(const struct cuda_comm *comm, int result, const char *call,
                             struct pl_err *err)
{
    const char *more = nccl.ncclGetLastError(comm != NULL ? comm->comm : NULL);

    return pl_err_set(
        err, PLASMON_EDEVICE, "%s: %s%s%.200s", call, nccl.ncclGetErrorString(result),
        more != NULL && more[0] != '\0' ? "; " : "", more != NULL ? more : "");
}

/* OK: it has settled. EAGAIN: not yet. */
static plasmon_status_t settled(struct cuda_comm *comm, const char *call,
                                struct pl_err *err)
{
    int error  = NCCL_SUCCESS;
    int result = nccl.ncclCommGetAsyncError(comm->comm, &error);

    if (result != NCCL_SUCCESS || error == NCCL_SUCCESS) {
        return result == NCCL_SUCCESS ? PLASMON_OK : fail(comm, result, call, err);
    }
    return error == NCCL_IN_PROGRESS ? PLASMON_EAGAIN : fail(comm, error, call, err);
}

static plasmon_status_t enter(struct device *device, struct pl_err *err)
{
    plasmon_status_t status;

    if (device_cuda_comm_version(device, err) == 0) {
        return PLASMON_ENOLIB;
    }
    status = device_cuda_enter(device_cuda_of(device));
    return status == PLASMON_OK ? status
                                : pl_err_set(err, status, "%s", device_cuda_last_error());
}

plasmon_status_t device_cuda_comm_id(struct device *device,
                                     const struct device_comm_config *config,
                                     uint8_t *out_id, struct pl_err *err)
{
    plasmon_status_t status = enter(device, err);
    struct nccl_id id;
    int result;

    (void)config; /* where it listens is NCCL_SOCKET_IFNAME's choice */
    if (status != PLASMON_OK) {
        return status;
    }
    result = nccl.ncclGetUniqueId(&id);
    if (result != NCCL_SUCCESS) {
        return fail(NULL, result, "ncclGetUniqueId", err);
    }
    memcpy(out_id, id.bytes, sizeof(id.bytes));
    return PLASMON_OK;
}

/* Made by whoever is first; never freed while the device is open. */
static CUdeviceptr greeting_of(struct device_cuda *cuda)
{
    CUdeviceptr made = 0, memory;

    pl_mutex_lock(&cuda->lock);
    memory = cuda->comm_memory;
    pl_mutex_unlock(&cuda->lock);
    if (memory != 0 || DEVICE_CU(cuda, cuMemAlloc(&made, 256)) != PLASMON_OK) {
        return memory;
    }
    pl_mutex_lock(&cuda->lock);
    if (cuda->comm_memory == 0) {
        cuda->comm_memory = made;
    }
    memory = cuda->comm_memory;
    pl_mutex_unlock(&cuda->lock);
    return memory;
}

plasmon_status_t device_cuda_comm_open(struct device *device,
                                       const struct device_comm_config *config,
                                       const uint8_t *id, struct device_stream *stream,
                                       struct device_comm **out_comm, struct pl_err *err)
{
    struct nccl_config wanted = {
        .size             = sizeof(wanted),
        .magic            = NCCL_CONFIG_MAGIC,
        .version          = VERSION_MIN,
        .cga_cluster_size = 0,
        .min_ctas         = 1,
        .max_ctas         = config->remote       ? CHANNELS_REMOTE
                            : config->ranks != 0 ? CHANNELS_TEAM
                                                 : CHANNELS_NVLINK,
        .split_share      = NCCL_UNDEFINED,
    };
    struct device_cuda *cuda = device_cuda_of(device);
    plasmon_status_t status  = enter(device, err);
    struct cuda_comm *comm;
    struct nccl_id copy;
    size_t total;
    int result;

    if (status != PLASMON_OK) {
        return status;
    }
    comm = PL_NEW(struct cuda_comm);
    if (comm == NULL) {
        return pl_err_set(err, PLASMON_ENOMEM, "no memory");
    }
    status = pl_mutex_init(&comm->lock, PL_RANK_COMM);
    if (status != PLASMON_OK) {
        pl_free(comm);
        return pl_err_set(err, status, "no lock for a communicator");
    }
    comm->base   = (struct device_comm){.device = device,
                                        .rank   = config->rank,
                                        .ranks  = config->ranks != 0 ? config->ranks : 2};
    comm->team   = config->ranks != 0;
    comm->stream = device_cuda_stream_of(stream);
    status       = greeting_of(cuda) == 0 ? PLASMON_EDEVMEM : PLASMON_OK;
    if (status == PLASMON_OK) {
        status = DEVICE_CU(cuda, cuMemGetInfo(&comm->free_before, &total));
    }
    if (status == PLASMON_OK) {
        status = DEVICE_CU(cuda, cuEventCreate(&comm->event, CU_EVENT_DISABLE_TIMING));
    }
    if (status != PLASMON_OK) {
        pl_mutex_finish(&comm->lock);
        pl_free(comm);
        return pl_err_set(err, status, "a communicator: %s", device_cuda_last_error());
    }
    memcpy(copy.bytes, id, sizeof(copy.bytes));
    result = nccl.ncclCommInitRankConfig(&comm->comm, (int)comm->base.ranks, copy,
                                         (int)config->rank, &wanted);
    if (result != NCCL_SUCCESS && result != NCCL_IN_PROGRESS) {
        status = fail(NULL, result, "ncclCommInitRankConfig", err);
        device_cuda_comm_abort(&comm->base);
        return status;
    }
    *out_comm = &comm->base;
    return PLASMON_OK;
}

/* In progress counts as well: NCCL's own thread goes on with it. */
static plasmon_status_t operation_begin(struct cuda_comm *comm, CUstream stream,
                                        CUdeviceptr ptr, uint64_t bytes, struct pl_err *err)
{
    bool sends = comm->base.rank == 0;
    int result = sends ? nccl.ncclSend((const void *)(uintptr_t)ptr, bytes, NCCL_UINT8, 1,
                                       comm->comm, stream)
                       : nccl.ncclRecv((void *)(uintptr_t)ptr, bytes, NCCL_UINT8, 0,
                                       comm->comm, stream);

    return result == NCCL_SUCCESS || result == NCCL_IN_PROGRESS
               ? PLASMON_OK
               : fail(comm, result, sends ? "ncclSend" : "ncclRecv", err);
}

static plasmon_status_t joint_begin(struct cuda_comm *comm, CUstream stream,
                                    const struct device_comm_collective *how, int type,
                                    int op, struct pl_err *err)
{
    const void *src = (const void *)(uintptr_t)how->src.addr;
    void *dst       = (void *)(uintptr_t)how->dst.addr;
    int result;

    switch (how->kind) {
    case DEVICE_REDUCE_SCATTER:
        result =
            nccl.ncclReduceScatter(src, dst, how->elements, type, op, comm->comm, stream);
        break;
    case DEVICE_ALL_GATHER:
        result = nccl.ncclAllGather(src, dst, how->elements * pl_dtype_bytes(how->dtype),
                                    NCCL_UINT8, comm->comm, stream);
        break;
    default:
        result = nccl.ncclAllReduce(src, dst, how->elements, type, op, comm->comm, stream);
        break;
    }
    return result == NCCL_SUCCESS || result == NCCL_IN_PROGRESS
               ? PLASMON_OK
               : fail(comm, result, "a collective", err);
}

static plasmon_status_t greeting_begin(struct cuda_comm *comm, CUdeviceptr memory,
                                       struct pl_err *err)
{
    const struct device_comm_collective first = {
        .src = {.addr = memory}, .dst = {.addr = memory + 128}, .elements = 1};

    return comm->team
               ? joint_begin(comm, device_cuda_stream_on(comm->stream), &first, NCCL_UINT8,
                             NCCL_SUM, err)
               : operation_begin(comm, device_cuda_stream_on(comm->stream), memory, 1, err);
}

static plasmon_status_t greeting_end(struct cuda_comm *comm, struct pl_err *err)
{
    struct device_cuda *cuda = device_cuda_of(comm->base.device);
    CUresult result          = device_cuda_driver.cuEventQuery(comm->event);
    plasmon_status_t status;
    size_t now, total;

    if (result == CUDA_ERROR_NOT_READY) {
        status = settled(comm, "connecting", err);
        return status == PLASMON_OK ? PLASMON_EAGAIN : status;
    }
    if (result != CUDA_SUCCESS) {
        return pl_err_set(err, device_cuda_fail(cuda, result, "cuEventQuery"), "%s",
                          device_cuda_last_error());
    }
    if (DEVICE_CU(cuda, cuMemGetInfo(&now, &total)) == PLASMON_OK &&
        now < comm->free_before) {
        comm->base.bytes = comm->free_before - now; /* others may have taken some of it */
    }
    comm->state = COMM_OPEN;
    return PLASMON_OK;
}

plasmon_status_t device_cuda_comm_poll(struct device_comm *base, struct pl_err *err)
{
    struct cuda_comm *comm   = comm_of(base);
    struct device_cuda *cuda = device_cuda_of(base->device);
    plasmon_status_t status  = enter(base->device, err);

    if (status != PLASMON_OK || comm->state == COMM_OPEN) {
        return status;
    }
    if (comm->state == COMM_GREETING) {
        return greeting_end(comm, err);
    }
    status = settled(comm, "ncclCommInitRankConfig", err);
    if (status != PLASMON_OK) {
        return status;
    }
    if (comm->state == COMM_INIT) {
        comm->state = COMM_CONNECTING;
        status      = greeting_begin(comm, greeting_of(cuda), err);
        return status == PLASMON_OK ? PLASMON_EAGAIN : status;
    }
    status =
        DEVICE_CU(cuda, cuEventRecord(comm->event, device_cuda_stream_on(comm->stream)));
    if (status != PLASMON_OK) {
        return pl_err_set(err, status, "%s", device_cuda_last_error());
    }
    comm->state = COMM_GREETING;
    return PLASMON_EAGAIN;
}

/* ------------------------------------------------------------------------------------------------ moving */

/* Until it is on its stream. */
static plasmon_status_t settle_locked(struct cuda_comm *comm, uint64_t since_ns,
                                      struct pl_err *err)
{
    plasmon_status_t status;

    do {
        status = settled(comm, "an operation", err);
        if (status != PLASMON_EAGAIN) {
            return status;
        }
        pl_cpu_relax();
    } while (pl_now_ns() - since_ns < ENQUEUE_NS);
    return pl_err_set(err, PLASMON_ETIMEDOUT, "NCCL did not enqueue an operation in 2 s");
}

static void enqueue_begin(struct cuda_comm *comm)
{
    atomic_store(&comm->enqueuing, true);
    pl_mutex_lock(&comm->lock);
}

static void enqueue_end(struct cuda_comm *comm)
{
    pl_mutex_unlock(&comm->lock);
    atomic_store(&comm->enqueuing, false);
}

plasmon_status_t device_cuda_comm_move(struct device_comm *base,
                                       struct device_stream *stream, struct device_ptr ptr,
                                       uint64_t bytes, struct pl_err *err)
{
    struct cuda_comm *comm  = comm_of(base);
    uint64_t since_ns       = pl_now_ns();
    plasmon_status_t status = enter(base->device, err);
    CUstream on;

    if (status != PLASMON_OK) {
        return status;
    }
    on = device_cuda_stream_on(device_cuda_stream_of(stream)); /* may take a lock */
    enqueue_begin(comm);
    status = operation_begin(comm, on, ptr.addr, bytes, err);
    if (status == PLASMON_OK) {
        status = settle_locked(comm, since_ns, err);
    }
    enqueue_end(comm);
    return status;
}

/* ncclDataType_t; -1: it has none. */
static int type_of(uint32_t dtype)
{
    switch (dtype) {
    case PL_I32:
        return 2;
    case PL_I64:
        return 4;
    case PL_F16:
        return 6;
    case PL_F32:
        return 7;
    case PL_F64:
        return 8;
    case PL_BF16:
        return 9;
    default:
        return -1;
    }
}

/* ncclRedOp_t */
static int operation_of(uint32_t op)
{
    return op == DEVICE_REDUCE_SUM    ? NCCL_SUM
           : op == DEVICE_REDUCE_PROD ? 1
           : op == DEVICE_REDUCE_MAX  ? 2
                                      : 3;
}

plasmon_status_t device_cuda_comm_join(struct device_comm *base,
                                       struct device_stream *stream,
                                       const struct device_comm_collective *how,
                                       struct pl_err *err)
{
    struct cuda_comm *comm  = comm_of(base);
    uint64_t since_ns       = pl_now_ns();
    int type                = type_of(how->dtype);
    plasmon_status_t status = enter(base->device, err);
    CUstream on;

    if (type < 0 && how->kind != DEVICE_ALL_GATHER) {
        return pl_err_set(err, PLASMON_ENOTSUP, "NCCL has no reduction of %s",
                          pl_dtype_name(how->dtype));
    }
    if (status != PLASMON_OK) {
        return status;
    }
    on = device_cuda_stream_on(device_cuda_stream_of(stream)); /* may take a lock */
    enqueue_begin(comm);
    status = joint_begin(comm, on, how, type, operation_of(how->op), err);
    if (status == PLASMON_OK) {
        status = settle_locked(comm, since_ns, err);
    }
    enqueue_end(comm);
    return status;
}

plasmon_status_t device_cuda_comm_check(struct device_comm *base, struct pl_err *err)
{
    struct cuda_comm *comm = comm_of(base);
    plasmon_status_t status;

    /* Else who asks would wait for that with locks that the one who enqueues needs next. */
    if (atomic_load(&comm->enqueuing)) {
        return PLASMON_EAGAIN;
    }
    pl_mutex_lock(&comm->lock);
    status = settled(comm, "a transfer", err);
    pl_mutex_unlock(&comm->lock);
    return status == PLASMON_EAGAIN ? PLASMON_OK : status;
}

/* ------------------------------------------------------------------------------------------------ ending */

static void comm_free(struct cuda_comm *comm)
{
    struct device_cuda *cuda = device_cuda_of(comm->base.device);

    if (device_cuda_enter(cuda) == PLASMON_OK && comm->event != NULL) {
        (void)DEVICE_CU(cuda, cuEventDestroy(comm->event)); /* logged */
    }
    pl_mutex_finish(&comm->lock);
    pl_free(comm);
}

void device_cuda_comm_close(struct device_comm *base)
{
    struct cuda_comm *comm = comm_of(base);
    struct pl_err err      = {.status = PLASMON_OK};
    uint64_t since_ns      = pl_now_ns();
    plasmon_status_t status;
    int result;

    if (enter(base->device, &err) != PLASMON_OK) {
        comm_free(comm);
        return;
    }
    result = nccl.ncclCommFinalize(comm->comm);
    do {
        status = settled(comm, "ncclCommFinalize", &err);
        pl_cpu_relax();
    } while (status == PLASMON_EAGAIN && pl_now_ns() - since_ns < CLOSE_NS);
    if ((result != NCCL_SUCCESS && result != NCCL_IN_PROGRESS) || status != PLASMON_OK) {
        device_cuda_comm_abort(base);
        return;
    }
    result = nccl.ncclCommDestroy(comm->comm);
    if (result != NCCL_SUCCESS && result != NCCL_IN_PROGRESS) {
        pl_warn("device", "ncclCommDestroy: %s", nccl.ncclGetErrorString(result));
    }
    comm_free(comm);
}

void device_cuda_comm_abort(struct device_comm *base)
{
    struct cuda_comm *comm = comm_of(base);
    struct pl_err err      = {.status = PLASMON_OK};
    int result;

    if (comm->comm != NULL && enter(base->device, &err) == PLASMON_OK) {
        result = nccl.ncclCommAbort(comm->comm);
        if (result != NCCL_SUCCESS && result != NCCL_IN_PROGRESS) {
            pl_warn("device", "ncclCommAbort: %s", nccl.ncclGetErrorString(result));
        }
    }
    comm_free(comm);
}
