/*
 * NCCL without a GPU: a libnccl.so.2 for the driver of fake_cuda.h, with NCCL's manners, so that
 * device/cuda/comm.c and all that is built on it runs where there is none.
 *
 * WHAT IS REAL
 *   bytes       go through a ring of shared memory for each way from one rank to another, a few of
 *               them at a time: a small send ends before it is received, a large one waits for its
 *               receiver
 *   calls       of a communicator that does not block, operations are put on their stream by a
 *               thread that each call makes, and the first of them waits there until all ranks have
 *               come; of one that blocks, the call does so itself. One split off another one shares
 *               its connections and its flag of abort
 *   abort       operations under way end as if all were well, and tell the other side so: it takes
 *               what lies in the ring. In a group that is all of it, and what follows comes with
 *               the group's end
 *   ending      frees page-locked memory: waits until nothing is on the device, and calls of the
 *               driver about memory wait for that
 *   misuse      two threads in one communicator, and one that is used after its end, stop the
 *               process with a word
 * WHAT IS NOT   other types than u8, i32, i64, f32, f64; communicators that share nothing with the
 * one that they are split off.
 *
 *   FAKE_NCCL_GATE=FILE   while there is such a file, calls that put an operation on a stream wait
 *                         in the call; an abort ends that
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "tests/harness/gpu/fake_nccl.h"

#define EXPORT __attribute__((visibility("default")))

#define VERSION    22809
#define RANKS_MAX  8
#define RING_BYTES (1u << 20)
#define LIVE       0x6e63636c6c697665ull
#define DEAD       0x6e63636c64656164ull

enum {
    SUCCESS          = 0,
    INTERNAL_ERROR   = 3,
    INVALID_ARGUMENT = 4,
    INVALID_USAGE    = 5,
    IN_PROGRESS      = 7
};
enum kind { SEND, RECV, ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER };

/* --------------------------------------------------------------------- what ranks share */

struct ring { /* bytes from one rank to another */
    _Atomic uint64_t put, taken;
    uint8_t bytes[RING_BYTES];
};

struct meeting {
    _Atomic uint32_t joined, split, connected; /* ranks, all that came together */
    struct ring ring[RANKS_MAX][RANKS_MAX];
};

struct id {
    uint64_t magic;
    int pid, fd; /* of the memory; who opens it by /proc needs no name for it */
};

/* What a communicator shares with those that are split off it. */
struct resources {
    _Atomic uint32_t refs; /* communicators, operations */
    _Atomic uint32_t under_way;
    atomic_bool aborted, connected;
    struct meeting *meeting;
};

struct fake_comm {
    uint64_t magic;
    atomic_bool busy; /* a thread is in it */
    struct resources *shared;
    int rank, ranks;
    bool blocks;
    uint32_t splits;
    bool has_job; /* to be joined */
    pthread_t thread;
    _Atomic int state; /* of the last call; IN_PROGRESS: its thread goes on */
};

static _Atomic uint64_t threads;

EXPORT uint64_t fake_nccl_threads(void)
{
    return threads;
}

static _Noreturn void misuse(const char *text)
{
    fprintf(stderr, "fake nccl: %s\n", text);
    abort();
}

static void enter(struct fake_comm *comm)
{
    if (comm->magic != LIVE) {
        misuse("a communicator that has ended is used");
    }
    if (atomic_exchange(&comm->busy, true)) {
        misuse("two threads use a communicator at once");
    }
}

static void leave(struct fake_comm *comm)
{
    atomic_store(&comm->busy, false);
}

static void nap(void)
{
    const struct timespec pause = {.tv_nsec = 20000};

    (void)nanosleep(&pause, NULL);
}

static void unref(struct resources *shared)
{
    if (atomic_fetch_sub(&shared->refs, 1) == 1) {
        (void)munmap(shared->meeting, sizeof(*shared->meeting));
        free(shared);
    }
}

/* Until `count` have come; false: aborted. */
static bool await(const struct resources *shared, _Atomic uint32_t *come, uint32_t count)
{
    while (atomic_load(come) < count) {
        if (atomic_load(&shared->aborted)) {
            return false;
        }
        nap();
    }
    return true;
}

/* ------------------------------------------------------------------------ on the device */

/* One operation: a piece for each other rank, and one of each. */
struct operation {
    struct resources *shared;
    enum kind kind;
    int rank, ranks, peer; /* peer: of SEND and RECV */
    int type, op;
    const uint8_t *src;
    uint8_t *dst;
    uint64_t bytes; /* a piece */
    uint64_t sent[RANKS_MAX], got;
};

static uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static void ring_put(struct ring *ring, const uint8_t *from, uint64_t bytes)
{
    uint64_t at    = atomic_load(&ring->put) % RING_BYTES,
             first = min_u64(bytes, RING_BYTES - at);

    memcpy(ring->bytes + at, from, first);
    memcpy(ring->bytes, from + first, bytes - first);
    atomic_fetch_add(&ring->put, bytes);
}

static void ring_take(struct ring *ring, uint8_t *to, uint64_t bytes)
{
    uint64_t at    = atomic_load(&ring->taken) % RING_BYTES;
    uint64_t first = min_u64(bytes, RING_BYTES - at);

    memcpy(to, ring->bytes + at, first);
    memcpy(to + first, ring->bytes, bytes - first);
    atomic_fetch_add(&ring->taken, bytes);
}

/* An aborted one says that everything was put, and puts nothing. */
static bool send_some(struct operation *it, int to, const uint8_t *from)
{
    struct ring *ring = &it->shared->meeting->ring[it->rank][to];
    uint64_t left     = it->bytes - it->sent[to];
    uint64_t room     = RING_BYTES - (atomic_load(&ring->put) - atomic_load(&ring->taken));
    uint64_t now      = min_u64(left, room);

    if (atomic_load(&it->shared->aborted)) {
        atomic_fetch_add(&ring->put, left);
        it->sent[to] = it->bytes;
    } else if (now > 0) {
        ring_put(ring, from + it->sent[to], now);
        it->sent[to] += now;
    }
    return it->sent[to] == it->bytes;
}

static uint64_t there(const struct operation *it, int from)
{
    const struct ring *ring = &it->shared->meeting->ring[from][it->rank];

    return atomic_load(&ring->put) - atomic_load(&ring->taken);
}

#define REDUCE(type)                                                                      \
    for (uint64_t i = 0; i < bytes / sizeof(type); i++) {                                 \
        type x = ((const type *)(const void *)from)[i], *to = &((type *)(void *)into)[i]; \
        *to = (type)(op == 0   ? *to + x                                                  \
                     : op == 1 ? *to * x                                                  \
                     : op == 2 ? (x > *to ? x : *to)                                      \
                               : (x < *to ? x : *to));                                    \
    }

static void reduce(int type, int op, uint8_t *into, const uint8_t *from, uint64_t bytes)
{
    switch (type) {
    case 1:
        REDUCE(uint8_t);
        break;
    case 2:
        REDUCE(int32_t);
        break;
    case 4:
        REDUCE(int64_t);
        break;
    case 7:
        REDUCE(float);
        break;
    default:
        REDUCE(double);
        break;
    }
}

/* What rank i gives to `to`: all of it, or its part. */
static uint64_t offset_for(const struct operation *it, int to)
{
    return it->kind == REDUCE_SCATTER ? (uint64_t)to * it->bytes : 0;
}

/* A piece of all others is there: into the result, in the order of ranks. */
static void combine(struct operation *it, uint64_t bytes)
{
    static uint8_t piece[RING_BYTES]; /* the device is one thread */
    const uint8_t *mine = it->src + offset_for(it, it->rank) + it->got;

    for (int from = 0; from < it->ranks; from++) {
        const uint8_t *what = mine;
        uint8_t *to         = it->dst + it->got;

        if (from != it->rank) {
            ring_take(&it->shared->meeting->ring[from][it->rank], piece, bytes);
            what = piece;
        }
        if (it->kind == ALL_GATHER) {
            memmove(to + (uint64_t)from * it->bytes, what, bytes);
        } else if (from == 0) {
            memmove(to, what, bytes);
        } else {
            reduce(it->type, it->op, to, what, bytes);
        }
    }
    it->got += bytes;
}

static bool joint_some(struct operation *it)
{
    uint64_t now = it->bytes - it->got;
    bool sent    = true;

    for (int to = 0; to < it->ranks; to++) {
        sent &= to == it->rank || send_some(it, to, it->src + offset_for(it, to));
    }
    if (atomic_load(&it->shared->aborted)) {
        return true;
    }
    for (int from = 0; from < it->ranks; from++) {
        now = from == it->rank ? now : min_u64(now, there(it, from));
    }
    now -= now % (now == it->bytes - it->got ? 1 : 8); /* whole elements */
    if (now > 0) {
        combine(it, now);
    }
    return sent && it->got == it->bytes;
}

static bool recv_some(struct operation *it)
{
    struct ring *ring = &it->shared->meeting->ring[it->peer][it->rank];
    uint64_t now      = min_u64(it->bytes - it->got, there(it, it->peer));

    if (atomic_load(&it->shared->aborted)) {
        atomic_fetch_add(&ring->taken, it->bytes - it->got);
        return true;
    }
    if (now > 0) {
        ring_take(ring, it->dst + it->got, now);
        it->got += now;
    }
    return it->got == it->bytes;
}

/* By the device's thread, again and again. */
static bool operation_run(void *user)
{
    struct operation *it = user;
    bool over            = it->kind == SEND   ? send_some(it, it->peer, it->src)
                           : it->kind == RECV ? recv_some(it)
                                              : joint_some(it);

    if (over) {
        atomic_fetch_sub(&it->shared->under_way, 1);
        unref(it->shared);
        free(it);
    }
    return over;
}

/* -------------------------------------------------------------------------------- calls */

struct call {
    struct fake_comm *comm;
    fake_stream_poll_fn poll;
    CUstream stream;
    struct operation *operation; /* NULL: a split */
    struct fake_comm **made;
    bool blocks;
};

static bool gated(void)
{
    const char *gate = getenv("FAKE_NCCL_GATE");

    return gate != NULL && access(gate, F_OK) == 0;
}

static int put(struct call *call)
{
    struct resources *shared = call->comm->shared;

    while (gated() && !atomic_load(&shared->aborted)) {
        nap();
    }
    if (!atomic_exchange(&shared->connected, true)) {
        atomic_fetch_add(&shared->meeting->connected, 1);
        if (!await(shared, &shared->meeting->connected, (uint32_t)call->comm->ranks)) {
            free(call->operation);
            return INTERNAL_ERROR;
        }
    }
    atomic_fetch_add(&shared->refs, 1);
    atomic_fetch_add(&shared->under_way, 1);
    call->poll(call->stream, operation_run, call->operation);
    return SUCCESS;
}

static struct fake_comm *comm_make(struct resources *shared, int rank, int ranks,
                                   bool blocks)
{
    struct fake_comm *comm = calloc(1, sizeof(*comm));

    if (comm == NULL) {
        misuse("out of memory");
    }
    *comm = (struct fake_comm){
        .magic = LIVE, .shared = shared, .rank = rank, .ranks = ranks, .blocks = blocks};
    return comm;
}

static int split(struct call *call)
{
    struct fake_comm *comm = call->comm;
    uint32_t all           = ++comm->splits * (uint32_t)comm->ranks;

    atomic_fetch_add(&comm->shared->meeting->split, 1);
    if (!await(comm->shared, &comm->shared->meeting->split, all)) {
        return INTERNAL_ERROR;
    }
    atomic_fetch_add(&comm->shared->refs, 1);
    *call->made = comm_make(comm->shared, comm->rank, comm->ranks, call->blocks);
    return SUCCESS;
}

static int call_run(struct call *call)
{
    return call->made != NULL ? split(call) : put(call);
}

static void *job_run(void *user)
{
    struct call *call      = user;
    struct fake_comm *comm = call->comm;
    int result             = call_run(call);

    free(call);
    atomic_store(&comm->state, result);
    return NULL;
}

static void job_join(struct fake_comm *comm)
{
    if (comm->has_job) {
        comm->has_job = false;
        (void)pthread_join(comm->thread, NULL);
    }
}

static int job_start(struct fake_comm *comm, void *(*run)(void *), void *user)
{
    job_join(comm);
    atomic_store(&comm->state, IN_PROGRESS);
    atomic_fetch_add(&threads, 1);
    if (pthread_create(&comm->thread, NULL, run, user) != 0) {
        misuse("no thread");
    }
    comm->has_job = true;
    return IN_PROGRESS;
}

/* In the call, or by a thread. */
static int call_go(const struct call *call)
{
    struct fake_comm *comm = call->comm;
    struct call *copy;
    int result;

    enter(comm);
    if (atomic_load(&comm->state) == IN_PROGRESS) {
        leave(comm);
        return INVALID_ARGUMENT;
    }
    if (comm->blocks) {
        struct call here = *call;

        result = call_run(&here);
    } else {
        copy = malloc(sizeof(*copy));
        if (copy == NULL) {
            misuse("out of memory");
        }
        *copy  = *call;
        result = job_start(comm, job_run, copy);
    }
    leave(comm);
    return result;
}

static void *driver_symbol(const char *name)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    void *symbol = driver != NULL ? dlsym(driver, name) : NULL;

    if (symbol == NULL) {
        misuse("this is not the driver without a GPU");
    }
    (void)dlclose(driver); /* who opened it first keeps it */
    return symbol;
}

static int operate(struct fake_comm *comm, const struct operation *wanted, CUstream stream)
{
    struct operation *it = malloc(sizeof(*it));
    struct call call     = {.comm = comm, .stream = stream, .operation = it};
    void *symbol         = driver_symbol("fake_stream_poll");

    if (it == NULL) {
        misuse("out of memory");
    }
    memcpy(&call.poll, &symbol, sizeof(symbol));
    *it        = *wanted;
    it->shared = comm->shared;
    it->rank   = comm->rank;
    it->ranks  = comm->ranks;
    return call_go(&call);
}

/* --------------------------------------------------------------------- what is exported */

EXPORT int ncclGetVersion(int *version)
{
    *version = VERSION;
    return SUCCESS;
}

EXPORT int ncclGetUniqueId(struct fake_nccl_id *out)
{
    struct id id = {.magic = LIVE, .pid = (int)getpid()};

    id.fd = memfd_create("fake-nccl", MFD_CLOEXEC);
    if (id.fd < 0 || ftruncate(id.fd, sizeof(struct meeting)) != 0) {
        return INTERNAL_ERROR;
    }
    memset(out, 0, sizeof(*out));
    memcpy(out, &id, sizeof(id));
    return SUCCESS;
}

struct opening {
    struct fake_comm *comm;
    struct id id;
};

static void *opening_run(void *user)
{
    struct opening *opening  = user;
    struct fake_comm *comm   = opening->comm;
    struct resources *shared = comm->shared;
    int result               = INTERNAL_ERROR;

    atomic_fetch_add(&shared->meeting->joined, 1);
    if (await(shared, &shared->meeting->joined, (uint32_t)comm->ranks)) {
        result = SUCCESS;
    }
    if (comm->rank == 0) { /* all have it open */
        (void)close(opening->id.fd);
    }
    free(opening);
    atomic_store(&comm->state, result);
    return NULL;
}

EXPORT int ncclCommInitRankConfig(struct fake_comm **out, int ranks, struct fake_nccl_id id,
                                  int rank, const struct fake_nccl_config *config)
{
    struct resources *shared = calloc(1, sizeof(*shared));
    struct opening *opening  = malloc(sizeof(*opening));
    char path[64];
    int fd;

    if (shared == NULL || opening == NULL) {
        misuse("out of memory");
    }
    memcpy(&opening->id, &id, sizeof(opening->id));
    if (opening->id.magic != LIVE || ranks > RANKS_MAX || config->blocking != 0) {
        misuse("a communicator that is opened like this is not supported");
    }
    (void)snprintf(path, sizeof(path), "/proc/%d/fd/%d", opening->id.pid, opening->id.fd);
    fd = open(path, O_RDWR | O_CLOEXEC);
    shared->meeting =
        mmap(NULL, sizeof(*shared->meeting), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0) {
        (void)close(fd);
    }
    if (shared->meeting == MAP_FAILED) {
        free(shared);
        free(opening);
        return INTERNAL_ERROR;
    }
    shared->refs  = 1;
    *out          = comm_make(shared, rank, ranks, false);
    opening->comm = *out;
    return job_start(*out, opening_run, opening);
}

EXPORT int ncclCommSplit(struct fake_comm *comm, int color, int key,
                         struct fake_comm **made, const struct fake_nccl_config *config)
{
    const struct call call = {.comm = comm, .made = made, .blocks = config->blocking != 0};

    if (color != 0 || key != comm->rank || config->split_share != 1) {
        misuse("a communicator that is split like this is not supported");
    }
    *made = NULL;
    return call_go(&call);
}

EXPORT int ncclCommGetAsyncError(struct fake_comm *comm, int *error)
{
    enter(comm);
    *error = atomic_load(&comm->state);
    if (*error != IN_PROGRESS) {
        job_join(comm);
    }
    leave(comm);
    return SUCCESS;
}

EXPORT int ncclCommFinalize(struct fake_comm *comm)
{
    enter(comm);
    leave(comm);
    return SUCCESS;
}

static int end(struct fake_comm *comm)
{
    void *symbol = driver_symbol("fake_host_free");
    void (*host_free)(void);

    memcpy(&host_free, &symbol, sizeof(symbol));
    enter(comm);
    job_join(comm);
    while (atomic_load(&comm->shared->under_way) > 0) { /* as NCCL waits for its streams */
        nap();
    }
    host_free();
    unref(comm->shared);
    comm->magic = DEAD;
    free(comm);
    return SUCCESS;
}

EXPORT int ncclCommDestroy(struct fake_comm *comm)
{
    return end(comm);
}

static _Thread_local struct {
    uint32_t depth;
    struct fake_comm *ends; /* with the group */
} group;

EXPORT int ncclGroupStart(void)
{
    group.depth++;
    return SUCCESS;
}

EXPORT int ncclGroupEnd(void)
{
    struct fake_comm *comm = group.ends;

    if (group.depth == 0) {
        return INVALID_USAGE;
    }
    if (--group.depth > 0 || comm == NULL) {
        return SUCCESS;
    }
    group.ends = NULL;
    return end(comm);
}

EXPORT int ncclCommAbort(struct fake_comm *comm)
{
    atomic_store(&comm->shared->aborted, true);
    if (group.depth == 0) {
        return end(comm);
    }
    if (group.ends != NULL) {
        misuse("a group that ends several communicators is not supported");
    }
    enter(comm); /* nobody else is in it, nor comes */
    leave(comm);
    group.ends = comm;
    return SUCCESS;
}

EXPORT int ncclSend(const void *data, size_t count, int type, int peer,
                    struct fake_comm *comm, CUstream stream)
{
    const struct operation it = {.kind = SEND, .peer = peer, .src = data, .bytes = count};

    return type != 1 ? INVALID_ARGUMENT : operate(comm, &it, stream);
}

EXPORT int ncclRecv(void *data, size_t count, int type, int peer, struct fake_comm *comm,
                    CUstream stream)
{
    const struct operation it = {.kind = RECV, .peer = peer, .dst = data, .bytes = count};

    return type != 1 ? INVALID_ARGUMENT : operate(comm, &it, stream);
}

static int joint(enum kind kind, const void *src, void *dst, size_t count, int type, int op,
                 struct fake_comm *comm, CUstream stream)
{
    static const uint64_t bytes[] = {[1] = 1, [2] = 4, [4] = 8, [7] = 4, [8] = 8};
    const struct operation it     = {.kind  = kind,
                                     .src   = src,
                                     .dst   = dst,
                                     .bytes = type < 9 ? count * bytes[type] : 0,
                                     .type  = type,
                                     .op    = op};

    return it.bytes == 0 ? INVALID_ARGUMENT : operate(comm, &it, stream);
}

EXPORT int ncclAllReduce(const void *src, void *dst, size_t count, int type, int op,
                         struct fake_comm *comm, CUstream stream)
{
    return joint(ALL_REDUCE, src, dst, count, type, op, comm, stream);
}

EXPORT int ncclReduceScatter(const void *src, void *dst, size_t count, int type, int op,
                             struct fake_comm *comm, CUstream stream)
{
    return joint(REDUCE_SCATTER, src, dst, count, type, op, comm, stream);
}

EXPORT int ncclAllGather(const void *src, void *dst, size_t count, int type,
                         struct fake_comm *comm, CUstream stream)
{
    return joint(ALL_GATHER, src, dst, count, type, 0, comm, stream);
}

EXPORT const char *ncclGetErrorString(int error)
{
    return error == SUCCESS          ? "no error"
           : error == IN_PROGRESS    ? "in progress"
           : error == INTERNAL_ERROR ? "aborted, or a peer is gone"
                                     : "invalid use";
}

EXPORT const char *ncclGetLastError(const struct fake_comm *comm)
{
    (void)comm;
    return "";
}
