/*
 * What goes through a communicator of CPU devices: moves of a pair, collectives of a team. Each
 * runs on its stream's thread and waits there for the other sides (comm.c has the manners that are
 * kept).
 *
 * WHAT A TEAM DOES goes through rank 0, which takes the others' arrays one after the other, reduces
 * them in the order of `fold` over the ranks (docs/collectives.md), or leaves them side by side,
 * and sends everybody what is its. Nobody is through before all have come.
 */
#include "device/cpu/comm_int.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include "base/alloc.h"
#include "base/box.h"
#include "base/fault.h"

#define ABORT_LOOK_MS 20

struct comm_op {
    struct cpu_comm *comm;
    uint8_t *ptr;   /* a move */
    uint64_t bytes; /* .. or what each rank gives */
    uint64_t gets;
    struct device_comm_collective how; /* elements 0: a move */
};

/* ------------------------------------------------------------------------------- moving */

static void wait_for_abort(struct cpu_comm *comm)
{
    while (!atomic_load(&comm->aborted)) {
        (void)poll(NULL, 0, ABORT_LOOK_MS); /* a pause */
    }
}

/* false: it ends here; aborted, or the other side is gone. */
static bool pass(struct cpu_comm *comm, int fd, void *data, uint64_t bytes, bool out)
{
    struct pollfd look = {.fd = fd, .events = out ? POLLOUT : POLLIN};
    uint8_t *at        = data;

    while (bytes > 0 && !atomic_load(&comm->aborted)) {
        ssize_t done = out ? send(fd, at, bytes, MSG_NOSIGNAL) : recv(fd, at, bytes, 0);

        if (done > 0) {
            at += done;
            bytes -= (size_t)done;
        } else if (done < 0 && (errno == EAGAIN || errno == EINTR)) {
            (void)poll(&look, 1, ABORT_LOOK_MS);
        } else {
            atomic_store(&comm->broken, true);
            return false;
        }
    }
    return bytes == 0;
}

static bool meet_move(struct comm_op *op)
{
    struct cpu_comm *comm = op->comm;
    int fd                = comm->fd[comm->base.rank == 0];
    uint64_t bytes        = op->bytes;
    uint8_t end           = COMM_ACKNOWLEDGEMENT;

    if (comm->base.rank == 0) {
        return pass(comm, fd, &bytes, sizeof(bytes), true) &&
               pass(comm, fd, op->ptr, op->bytes, true) && pass(comm, fd, &end, 1, false);
    }
    if (!pass(comm, fd, &bytes, sizeof(bytes), false)) {
        return false;
    }
    if (bytes != op->bytes) { /* what NCCL makes of it is not defined */
        atomic_store(&comm->broken, true);
        return false;
    }
    return pass(comm, fd, op->ptr, op->bytes, false) && pass(comm, fd, &end, 1, true);
}

/* ----------------------------------------------------------------------------- reducing */

#define JOIN(type, name)                                                         \
    static void join_##name(uint32_t op, type *x, const type *y, uint64_t count) \
    {                                                                            \
        for (uint64_t i = 0; i < count; i++) {                                   \
            switch (op) {                                                        \
            case DEVICE_REDUCE_SUM:                                              \
                x[i] = (type)(x[i] + y[i]);                                      \
                break;                                                           \
            case DEVICE_REDUCE_PROD:                                             \
                x[i] = (type)(x[i] * y[i]);                                      \
                break;                                                           \
            case DEVICE_REDUCE_MIN:                                              \
                x[i] = y[i] < x[i] ? y[i] : x[i];                                \
                break;                                                           \
            default:                                                             \
                x[i] = y[i] > x[i] ? y[i] : x[i];                                \
                break;                                                           \
            }                                                                    \
        }                                                                        \
    }
JOIN(float, f32)
JOIN(double, f64)
JOIN(uint32_t, u32) /* sums and products of integers go round */
JOIN(uint64_t, u64)
JOIN(int32_t, i32)
JOIN(int64_t, i64)

static bool reducible(uint32_t dtype)
{
    return dtype == PL_F32 || dtype == PL_F64 || dtype == PL_I32 || dtype == PL_I64;
}

static void join(const struct device_comm_collective *how, void *x, const void *y,
                 uint64_t count)
{
    bool orders = how->op == DEVICE_REDUCE_MIN || how->op == DEVICE_REDUCE_MAX;

    switch (how->dtype) {
    case PL_F32:
        join_f32(how->op, x, y, count);
        break;
    case PL_F64:
        join_f64(how->op, x, y, count);
        break;
    case PL_I32:
        (orders ? join_i32(how->op, x, y, count) : join_u32(how->op, x, y, count));
        break;
    default:
        (orders ? join_i64(how->op, x, y, count) : join_u64(how->op, x, y, count));
        break;
    }
}

/* Array 0 op tree(array 1, array 2, ..), into array 0. */
static void fold(const struct device_comm_collective *how, uint8_t **arrays, uint32_t count,
                 uint64_t bytes)
{
    const uint64_t elements = bytes / pl_dtype_bytes(how->dtype);
    uint8_t *level[DEVICE_COMM_RANKS_MAX];

    memcpy(level, arrays + 1, (count - 1) * sizeof(*level));
    for (uint32_t width = count - 1; width > 1; width = (width + 1) / 2) {
        for (uint32_t i = 0; i < width / 2; i++) {
            join(how, level[2 * i], level[2 * i + 1], elements);
            level[i] = level[2 * i];
        }
        if (width % 2 != 0) {
            level[width / 2] = level[width - 1];
        }
    }
    join(how, arrays[0], level[0], elements);
}

/* Rank 0's; false: it ends here. */
static bool arrays_take(struct cpu_comm *comm, uint8_t **arrays, uint64_t bytes)
{
    for (uint32_t i = 1; i < comm->base.ranks; i++) {
        uint64_t said;

        if (!pass(comm, comm->fd[i], &said, sizeof(said), false)) {
            return false;
        }
        if (said != bytes) {
            atomic_store(&comm->broken, true);
            return false;
        }
        if (!pass(comm, comm->fd[i], arrays[i], bytes, false)) {
            return false;
        }
    }
    return true;
}

/* Where in what rank 0 has made that rank's result begins. */
static uint8_t *part_of(const struct comm_op *op, uint8_t *made, uint32_t rank)
{
    return op->how.kind == DEVICE_REDUCE_SCATTER ? made + rank * op->gets : made;
}

static bool join_at_root(const struct comm_op *op)
{
    struct cpu_comm *comm = op->comm;
    uint32_t ranks        = comm->base.ranks;
    uint8_t *arrays[DEVICE_COMM_RANKS_MAX];
    uint8_t *memory = pl_alloc(ranks * op->bytes);
    bool ok         = memory != NULL;

    for (uint32_t i = 0; ok && i < ranks; i++) {
        arrays[i] = memory + i * op->bytes;
    }
    if (ok) {
        memcpy(arrays[0], (const void *)(uintptr_t)op->how.src.addr, op->bytes);
        ok = arrays_take(comm, arrays, op->bytes);
    }
    if (ok && op->how.kind != DEVICE_ALL_GATHER) {
        fold(&op->how, arrays, ranks, op->bytes);
    }
    for (uint32_t i = 1; ok && i < ranks; i++) {
        ok = pass(comm, comm->fd[i], part_of(op, memory, i), op->gets, true);
    }
    if (ok) {
        memcpy((void *)(uintptr_t)op->how.dst.addr, part_of(op, memory, 0), op->gets);
    }
    pl_free(memory);
    return ok;
}

static bool meet_join(struct comm_op *op)
{
    struct cpu_comm *comm = op->comm;

    if (comm->base.rank == 0) {
        return join_at_root(op);
    }
    return pass(comm, comm->fd[0], &op->bytes, sizeof(op->bytes), true) &&
           pass(comm, comm->fd[0], (void *)(uintptr_t)op->how.src.addr, op->bytes, true) &&
           pass(comm, comm->fd[0], (void *)(uintptr_t)op->how.dst.addr, op->gets, false);
}

/* -------------------------------------------------------------------------- on a stream */

static bool meet(struct comm_op *op)
{
    return op->how.elements != 0 ? meet_join(op) : meet_move(op);
}

static plasmon_status_t op_run(void *args, struct pl_err *err)
{
    struct comm_op *op = args;

    (void)err;
    if (!atomic_load(&op->comm->aborted) && (pl_fault_point("comm.stall") || !meet(op))) {
        wait_for_abort(op->comm);
    }
    device_cpu_comm_release(op->comm);
    return PLASMON_OK;
}

static plasmon_status_t op_put(struct comm_op *op, struct device_stream *stream,
                               struct pl_err *err)
{
    plasmon_status_t status;

    PL_CHECK(op->comm->state == COMM_OPEN);
    atomic_fetch_add(&op->comm->refs, 1);
    status = device_cpu_launch_enqueue(stream, op_run, op, sizeof(*op), 0);
    if (status != PLASMON_OK) {
        device_cpu_comm_release(op->comm);
        (void)pl_err_set(err, status, "%s", pl_status_text(status));
    }
    return status;
}

plasmon_status_t device_cpu_comm_move(struct device_comm *base,
                                      struct device_stream *stream, struct device_ptr ptr,
                                      uint64_t bytes, struct pl_err *err)
{
    struct comm_op op = {.comm  = device_cpu_comm_of(base),
                         .ptr   = (uint8_t *)(uintptr_t)ptr.addr,
                         .bytes = bytes};

    return op_put(&op, stream, err);
}

plasmon_status_t device_cpu_comm_join(struct device_comm *base,
                                      struct device_stream *stream,
                                      const struct device_comm_collective *how,
                                      struct pl_err *err)
{
    uint64_t bytes    = how->elements * pl_dtype_bytes(how->dtype);
    struct comm_op op = {
        .comm  = device_cpu_comm_of(base),
        .bytes = how->kind == DEVICE_REDUCE_SCATTER ? base->ranks * bytes : bytes,
        .gets  = how->kind == DEVICE_ALL_GATHER ? base->ranks * bytes : bytes,
        .how   = *how};

    if (how->kind != DEVICE_ALL_GATHER && !reducible(how->dtype)) {
        return pl_err_set(err, PLASMON_ENOTSUP, "no reduction of %s on CPU devices",
                          pl_dtype_name(how->dtype));
    }
    return op_put(&op, stream, err);
}
