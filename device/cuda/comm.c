/*
 * Communicators of a CUDA device: NCCL, found at run time. What of its ABI is used is declared
 * here, so that a build needs no NCCL; a config says by its size and version what it holds, and
 * every NCCL since 2.18 takes this one.
 *
 * TWO OF THEM. What connects does not block: a peer that does not come must not hold a thread that
 * cannot be freed. But such a communicator makes a thread for every operation, 47 to 57 us of the
 * thread that enqueues; one that blocks, 8. So the `handle` is made without blocking, and the
 * `comm` that operations go by, which blocks, is split off it and shares its connections, its
 * streams and its flag of abort. The first operation of `comm` is the one that connects (and waits
 * for the others in the call): a thread of its own makes it, and whoever gives up aborts the
 * handle, which brings that call back. From then on operations find everything connected and only
 * enqueue (docs/transfers.md has what they could still wait for).
 *
 * ONE THREAD AT A TIME. NCCL's communicators are not to be used by two threads at once. `comm` is
 * its greeter's until it is open, then the worker's thread's. The watcher asks the handle, which
 * nobody else uses then, whether what ended may be believed: errors of the network are of what the
 * two share, and those of an operation's call are told by the call.
 *
 * FEW CHANNELS. A channel is a block of 640 threads and, in both communicators together, 13 MiB of
 * memory of who sends and 19 of who receives; with NCCL's own size of the buffers of a protocol
 * that sends do not use (NCCL_LL128_BUFFSIZE) 21. 16 give 361 of 371 GB/s over NVLink; over a
 * network few do, and buffers are a pool. A team may have what NCCL would take, up to 32: both
 * directions of every link are to be busy. cgaClusterSize 0: clusters of blocks would wait for a
 * free group of multiprocessors.
 *
 * RINGS ONLY. NCCL connects for an algorithm when that is first used, which blocks. So it may use
 * one (NCCL_ALGO), and the reduction that a team begins with connects it.
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
/* communicators split off others whose connections they share, and this config */
#define VERSION_MIN 21800
#define CLOSE_NS    UINT64_C(5000000000)
#define LL128_BYTES "2457600" /* NCCL's own is twice that */

/* --------------------------------------------------------------------------- NCCL's ABI */

typedef struct nccl_comm *nccl_comm_t;
struct nccl_id {
    char bytes[DEVICE_COMM_ID_BYTES];
};
enum { NCCL_SUCCESS = 0, NCCL_IN_PROGRESS = 7, NCCL_UINT8 = 1, NCCL_SUM = 0 };
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
    int (*ncclCommSplit)(nccl_comm_t comm, int color, int key, nccl_comm_t *made,
                         struct nccl_config *config);
    int (*ncclCommGetAsyncError)(nccl_comm_t comm, int *error);
    int (*ncclCommFinalize)(nccl_comm_t comm);
    int (*ncclCommDestroy)(nccl_comm_t comm);
    int (*ncclCommAbort)(nccl_comm_t comm);
    int (*ncclGroupStart)(void);
    int (*ncclGroupEnd)(void);
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
    XX(ncclCommSplit)          \
    XX(ncclCommGetAsyncError)  \
    XX(ncclCommFinalize)       \
    XX(ncclCommDestroy)        \
    XX(ncclCommAbort)          \
    XX(ncclGroupStart)         \
    XX(ncclGroupEnd)           \
    XX(ncclSend)               \
    XX(ncclRecv)               \
    XX(ncclAllReduce)          \
    XX(ncclReduceScatter)      \
    XX(ncclAllGather)          \
    XX(ncclGetErrorString)     \
    XX(ncclGetLastError)

/* ------------------------------------------------------------------------------ loading */

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

    /*
     * Multicast groups outlive a process that is killed, and on some machines block the next one.
     * Whatever the caller set.
     */
    (void)setenv("NCCL_NVLS_ENABLE", "0",
                 1); /* no memory: the first allocation below fails, too */
    (void)setenv("NCCL_ALGO", "Ring", 1);                /* likewise */
    (void)setenv("NCCL_LL128_BUFFSIZE", LL128_BYTES, 0); /* likewise */
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

/* ------------------------------------------------------------------------------ opening */

enum comm_state { COMM_INIT, COMM_SPLITTING, COMM_GREETING, COMM_OPEN };

struct cuda_comm {
    struct device_comm base;
    nccl_comm_t handle; /* connects, tells of errors, and ends what waits; does not block */
    nccl_comm_t comm;   /* split off it: operations. It blocks */
    struct device_cuda_stream *stream; /* for the byte that connects */
    enum comm_state state;
    bool team;
    int max_ctas;
    CUevent event;
    size_t free_before;

    pthread_t greeter; /* makes the first operation */
    bool greets;       /* to be joined */
    bool cut;          /* by the thread that frees it, which is in a group */
    struct pl_err greeting;
    /* release: `greeting` says how it went, and the event is recorded */
    atomic_bool greeted;
};

static struct cuda_comm *comm_of(struct device_comm *comm)
{
    PL_CHECK(comm->device->ops == &device_cuda_ops);
    return (struct cuda_comm *)(void *)comm;
}

static plasmon_status_t fail(const struct cuda_comm *comm, int result, const char *call,
                             struct pl_err *err)
{
    const char *more = nccl.ncclGetLastError(comm != NULL ? comm->handle : NULL);

    return pl_err_set(
        err, PLASMON_EDEVICE, "%s: %s%s%.200s", call, nccl.ncclGetErrorString(result),
        more != NULL && more[0] != '\0' ? "; " : "", more != NULL ? more : "");
}

/* Of the handle. OK: it has settled. EAGAIN: not yet. */
static plasmon_status_t settled(struct cuda_comm *comm, const char *call,
                                struct pl_err *err)
{
    int error  = NCCL_SUCCESS;
    int result = nccl.ncclCommGetAsyncError(comm->handle, &error);

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

static struct nccl_config config_of(const struct cuda_comm *comm, bool blocks)
{
    return (struct nccl_config){.size             = sizeof(struct nccl_config),
                                .magic            = NCCL_CONFIG_MAGIC,
                                .version          = VERSION_MIN,
                                .blocking         = blocks,
                                .cga_cluster_size = 0,
                                .min_ctas         = 1,
                                .max_ctas         = comm->max_ctas,
                                .split_share      = 1};
}

static void comm_free(struct cuda_comm *comm)
{
    struct device_cuda *cuda = device_cuda_of(comm->base.device);

    if (device_cuda_enter(cuda) == PLASMON_OK && comm->event != NULL) {
        (void)DEVICE_CU(cuda, cuEventDestroy(comm->event)); /* logged */
    }
    pl_free(comm);
}

plasmon_status_t device_cuda_comm_open(struct device *device,
                                       const struct device_comm_config *config,
                                       const uint8_t *id, struct device_stream *stream,
                                       struct device_comm **out_comm, struct pl_err *err)
{
    struct device_cuda *cuda = device_cuda_of(device);
    plasmon_status_t status  = enter(device, err);
    struct nccl_config wanted;
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
    comm->base     = (struct device_comm){.device = device,
                                          .rank   = config->rank,
                                          .ranks  = config->ranks != 0 ? config->ranks : 2};
    comm->team     = config->ranks != 0;
    comm->max_ctas = config->remote ? CHANNELS_REMOTE
                     : comm->team   ? CHANNELS_TEAM
                                    : CHANNELS_NVLINK;
    comm->stream   = device_cuda_stream_of(stream);
    status         = greeting_of(cuda) == 0 ? PLASMON_EDEVMEM : PLASMON_OK;
    if (status == PLASMON_OK) {
        status = DEVICE_CU(cuda, cuMemGetInfo(&comm->free_before, &total));
    }
    if (status == PLASMON_OK) {
        status = DEVICE_CU(cuda, cuEventCreate(&comm->event, CU_EVENT_DISABLE_TIMING));
    }
    if (status != PLASMON_OK) {
        pl_free(comm);
        return pl_err_set(err, status, "a communicator: %s", device_cuda_last_error());
    }
    memcpy(copy.bytes, id, sizeof(copy.bytes));
    wanted = config_of(comm, false);
    result = nccl.ncclCommInitRankConfig(&comm->handle, (int)comm->base.ranks, copy,
                                         (int)config->rank, &wanted);
    if (result != NCCL_SUCCESS && result != NCCL_IN_PROGRESS) {
        status = fail(NULL, result, "ncclCommInitRankConfig", err);
        device_cuda_comm_abort(&comm->base);
        return status;
    }
    *out_comm = &comm->base;
    return PLASMON_OK;
}

static plasmon_status_t operation_put(struct cuda_comm *comm, CUstream stream,
                                      CUdeviceptr ptr, uint64_t bytes, struct pl_err *err)
{
    bool sends = comm->base.rank == 0;
    int result = sends ? nccl.ncclSend((const void *)(uintptr_t)ptr, bytes, NCCL_UINT8, 1,
                                       comm->comm, stream)
                       : nccl.ncclRecv((void *)(uintptr_t)ptr, bytes, NCCL_UINT8, 0,
                                       comm->comm, stream);

    return result == NCCL_SUCCESS
               ? PLASMON_OK
               : fail(comm, result, sends ? "ncclSend" : "ncclRecv", err);
}

static plasmon_status_t joint_put(struct cuda_comm *comm, CUstream stream,
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
    return result == NCCL_SUCCESS ? PLASMON_OK : fail(comm, result, "a collective", err);
}

/* The first operation connects, and waits for the others in the call. */
static plasmon_status_t greeting_put(struct cuda_comm *comm, struct pl_err *err)
{
    struct device_cuda *cuda                  = device_cuda_of(comm->base.device);
    CUdeviceptr memory                        = greeting_of(cuda);
    CUstream on                               = device_cuda_stream_on(comm->stream);
    const struct device_comm_collective first = {
        .src = {.addr = memory}, .dst = {.addr = memory + 128}, .elements = 1};
    plasmon_status_t status = enter(comm->base.device, err);

    if (status == PLASMON_OK) {
        status = comm->team ? joint_put(comm, on, &first, NCCL_UINT8, NCCL_SUM, err)
                            : operation_put(comm, on, memory, 1, err);
    }
    if (status == PLASMON_OK) {
        status = DEVICE_CU(cuda, cuEventRecord(comm->event, on));
        if (status != PLASMON_OK) {
            return pl_err_set(err, status, "%s", device_cuda_last_error());
        }
    }
    return status;
}

static void *greeter_run(void *user)
{
    struct cuda_comm *comm = user;

    comm->greeting.status = greeting_put(comm, &comm->greeting);
    atomic_store(&comm->greeted, true);
    return NULL;
}

static plasmon_status_t greeting_begin(struct cuda_comm *comm, struct pl_err *err)
{
    PL_CHECK(comm->comm != NULL); /* NCCL says that it has made it */
    if (pthread_create(&comm->greeter, NULL, greeter_run, comm) != 0) {
        return pl_err_set(err, PLASMON_EAGAIN, "no thread to open a communicator");
    }
    comm->greets = true;
    comm->state  = COMM_GREETING;
    return PLASMON_EAGAIN;
}

static void greeter_join(struct cuda_comm *comm)
{
    if (comm->greets) {
        (void)pthread_join(comm->greeter, NULL); /* cannot fail for a thread of ours */
        comm->greets = false;
    }
}

static plasmon_status_t greeting_end(struct cuda_comm *comm, struct pl_err *err)
{
    struct device_cuda *cuda = device_cuda_of(comm->base.device);
    plasmon_status_t status;
    CUresult result;
    size_t now, total;

    if (!atomic_load(&comm->greeted)) {
        status = settled(comm, "connecting", err);
        return status == PLASMON_OK ? PLASMON_EAGAIN : status;
    }
    if (comm->greeting.status != PLASMON_OK) {
        *err = comm->greeting;
        return err->status;
    }
    result = device_cuda_driver.cuEventQuery(comm->event);
    if (result == CUDA_ERROR_NOT_READY) {
        status = settled(comm, "connecting", err);
        return status == PLASMON_OK ? PLASMON_EAGAIN : status;
    }
    if (result != CUDA_SUCCESS) {
        return pl_err_set(err, device_cuda_fail(cuda, result, "cuEventQuery"), "%s",
                          device_cuda_last_error());
    }
    greeter_join(comm);
    if (DEVICE_CU(cuda, cuMemGetInfo(&now, &total)) == PLASMON_OK &&
        now < comm->free_before) {
        comm->base.bytes = comm->free_before - now; /* others may have taken some of it */
    }
    comm->state = COMM_OPEN;
    return PLASMON_OK;
}

static plasmon_status_t split_begin(struct cuda_comm *comm, struct pl_err *err)
{
    struct nccl_config wanted = config_of(comm, true);
    int result =
        nccl.ncclCommSplit(comm->handle, 0, (int)comm->base.rank, &comm->comm, &wanted);

    comm->state = COMM_SPLITTING;
    return result == NCCL_SUCCESS || result == NCCL_IN_PROGRESS
               ? PLASMON_EAGAIN
               : fail(comm, result, "ncclCommSplit", err);
}

plasmon_status_t device_cuda_comm_poll(struct device_comm *base, struct pl_err *err)
{
    struct cuda_comm *comm  = comm_of(base);
    plasmon_status_t status = enter(base->device, err);

    if (status != PLASMON_OK || comm->state == COMM_OPEN) {
        return status;
    }
    if (comm->state == COMM_GREETING) {
        return greeting_end(comm, err);
    }
    status = settled(
        comm, comm->state == COMM_INIT ? "ncclCommInitRankConfig" : "ncclCommSplit", err);
    if (status != PLASMON_OK) {
        return status;
    }
    return comm->state == COMM_INIT ? split_begin(comm, err) : greeting_begin(comm, err);
}

/* ------------------------------------------------------------------------------- moving */

plasmon_status_t device_cuda_comm_move(struct device_comm *base,
                                       struct device_stream *stream, struct device_ptr ptr,
                                       uint64_t bytes, struct pl_err *err)
{
    struct cuda_comm *comm  = comm_of(base);
    plasmon_status_t status = enter(base->device, err);

    if (status != PLASMON_OK) {
        return status;
    }
    return operation_put(comm, device_cuda_stream_on(device_cuda_stream_of(stream)),
                         ptr.addr, bytes, err);
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
    int type                = type_of(how->dtype);
    plasmon_status_t status = enter(base->device, err);

    if (type < 0 && how->kind != DEVICE_ALL_GATHER) {
        return pl_err_set(err, PLASMON_ENOTSUP, "NCCL has no reduction of %s",
                          pl_dtype_name(how->dtype));
    }
    if (status != PLASMON_OK) {
        return status;
    }
    return joint_put(comm, device_cuda_stream_on(device_cuda_stream_of(stream)), how, type,
                     operation_of(how->op), err);
}

plasmon_status_t device_cuda_comm_check(struct device_comm *base, struct pl_err *err)
{
    plasmon_status_t status = settled(comm_of(base), "a transfer", err);

    return status == PLASMON_EAGAIN ? PLASMON_OK : status;
}

/* ------------------------------------------------------------------------------- ending */

/* Of one that is open. */
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
    result = nccl.ncclCommDestroy(comm->comm);
    if (result != NCCL_SUCCESS) {
        pl_warn("device", "ncclCommDestroy: %s", nccl.ncclGetErrorString(result));
    }
    comm->comm = NULL;
    result     = nccl.ncclCommFinalize(comm->handle);
    do {
        status = settled(comm, "ncclCommFinalize", &err);
        pl_cpu_relax();
    } while (status == PLASMON_EAGAIN && pl_now_ns() - since_ns < CLOSE_NS);
    if ((result != NCCL_SUCCESS && result != NCCL_IN_PROGRESS) || status != PLASMON_OK) {
        device_cuda_comm_abort(base);
        return;
    }
    result = nccl.ncclCommDestroy(comm->handle);
    if (result != NCCL_SUCCESS && result != NCCL_IN_PROGRESS) {
        pl_warn("device", "ncclCommDestroy: %s", nccl.ncclGetErrorString(result));
    }
    comm_free(comm);
}

static void one_abort(nccl_comm_t comm)
{
    int result = comm != NULL ? nccl.ncclCommAbort(comm) : NCCL_SUCCESS;

    if (result != NCCL_SUCCESS && result != NCCL_IN_PROGRESS) {
        pl_warn("device", "ncclCommAbort: %s", nccl.ncclGetErrorString(result));
    }
}

/*
 * The handle first: its flag is the other one's, too, so a greeter that waits for a peer in a call
 * comes back, and only then is that one free. In a group NCCL raises the flag at once, and leaves
 * what frees for the group's end (since 2.23; an earlier one does it here).
 */
void device_cuda_comm_cut(struct device_comm *base)
{
    struct cuda_comm *comm = comm_of(base);
    struct pl_err err      = {.status = PLASMON_OK};

    if (enter(base->device, &err) == PLASMON_OK) {
        comm->cut = nccl.ncclGroupStart() == NCCL_SUCCESS;
        one_abort(comm->handle);
        greeter_join(comm);
        comm->handle = NULL;
    }
}

void device_cuda_comm_abort(struct device_comm *base)
{
    struct cuda_comm *comm = comm_of(base);
    struct pl_err err      = {.status = PLASMON_OK};
    int result             = NCCL_SUCCESS;

    if (enter(base->device, &err) == PLASMON_OK) {
        if (comm->cut) {
            result = nccl.ncclGroupEnd();
        }
        if (result != NCCL_SUCCESS && result != NCCL_IN_PROGRESS) {
            pl_warn("device", "ncclCommAbort: %s", nccl.ncclGetErrorString(result));
        }
        one_abort(comm->handle);
        greeter_join(comm);
        one_abort(comm->comm);
    }
    if (!comm->greets) { /* else it is lost with the context */
        comm_free(comm);
    }
}
