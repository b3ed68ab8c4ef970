/*
 * What stands in for NCCL on CPU devices: a communicator over a TCP connection that keeps NCCL's manners, so that everything
 * which has to live with them is tested without a GPU.
 *
 *   meeting    an operation runs on its stream's thread and ends when the other side's has met it: a sender waits until the receiver has all
 *              the bytes. Behind it, its stream stands still. Operations of a communicator meet in their order, and must be of one size
 *   death      when the other process is gone, operations go on waiting. Only device_comm_check() can tell, and only when the
 *              other one is on another host, as with NCCL over NVLink and over a network
 *   abort      ends what waits, as if it were done; the bytes are rubbish
 *
 * The id names a listening socket of rank 0's process and a secret that the other one shows. Operations hold the communicator, so an
 * abort does not wait for those that are still queued: they find it aborted and do nothing.
 */
#include "device/cpu/cpu_int.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fault.h"
#include "base/fd.h"

#define COMM_VERSION    1u
#define COMM_MAGIC      0x316d6d6f636c7370ull /* "pslcomm1" */
#define COMM_SECRET     16u
#define COMM_IDS_MAX    64u
#define ABORT_LOOK_MS   20
#define ACKNOWLEDGEMENT 0x6bu

struct comm_id {
    uint64_t magic;
    uint32_t address_bytes;
    struct sockaddr_in6 address; /* or the shorter struct sockaddr_in */
    uint8_t secret[COMM_SECRET];
};
static_assert(sizeof(struct comm_id) <= DEVICE_COMM_ID_BYTES, "an id has room for it");

/* Made here, waiting for its communicator. */
struct comm_listener {
    struct pl_list link;
    struct comm_id id;
    int fd;
};

enum comm_state { COMM_CONNECTING, COMM_GREETING, COMM_OPEN };

struct cpu_comm {
    struct device_comm base;
    struct comm_id id;
    bool remote;
    _Atomic uint32_t refs; /* who opened it, and every operation under way */
    _Atomic bool aborted;
    _Atomic bool broken; /* the other side is gone, or does not keep to the order */
    enum comm_state state;
    int listen_fd; /* rank 0 */
    int fd;
};

struct comm_op {
    struct cpu_comm *comm;
    uint8_t *ptr;
    uint64_t bytes;
};

static struct cpu_comm *comm_of(struct device_comm *comm)
{
    PL_CHECK(comm->device->ops == &device_cpu_ops);
    return (struct cpu_comm *)(void *)comm;
}

static void comm_release(struct cpu_comm *comm)
{
    if (atomic_fetch_sub(&comm->refs, 1) == 1) {
        pl_fd_close(&comm->listen_fd);
        pl_fd_close(&comm->fd);
        pl_free(comm);
    }
}

uint32_t device_cpu_comm_version(struct device *device, struct pl_err *why)
{
    (void)device;
    (void)why;
    return COMM_VERSION;
}

/* ------------------------------------------------------------------------------------------------ ids */

static plasmon_status_t address_of(const char *text, struct comm_id *id, struct pl_err *err)
{
    struct addrinfo hints = {.ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_STREAM};
    char host[DEVICE_COMM_ADDRESS_BYTES];
    size_t length = strnlen(text, sizeof(host) - 1);
    struct addrinfo *found;

    if (text[0] == '[' && length > 2 && text[length - 1] == ']') {
        text++;
        length -= 2;
    }
    memcpy(host, text, length);
    host[length] = '\0';
    if (getaddrinfo(host, "0", &hints, &found) != 0) {
        return pl_err_set(err, PLASMON_EINVAL, "\"%s\" is not a numeric address", host);
    }
    id->address_bytes = (uint32_t)pl_min_u64(found->ai_addrlen, sizeof(id->address));
    memcpy(&id->address, found->ai_addr, id->address_bytes);
    freeaddrinfo(found);
    return PLASMON_OK;
}

static plasmon_status_t listener_open(struct comm_listener *listener, struct pl_err *err)
{
    struct comm_id *id    = &listener->id;
    struct sockaddr *name = (struct sockaddr *)(void *)&id->address;
    socklen_t bytes       = id->address_bytes;

    listener->fd = socket(name->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (listener->fd < 0 || bind(listener->fd, name, bytes) != 0 ||
        listen(listener->fd, 4) != 0 || getsockname(listener->fd, name, &bytes) != 0) {
        plasmon_status_t status = pl_status_from_errno(errno);

        (void)pl_err_set(err, status, "a socket for a communicator: %s", strerror(errno));
        pl_fd_close(&listener->fd);
        return status;
    }
    return PLASMON_OK;
}

static void listener_free(struct comm_listener *listener)
{
    pl_fd_close(&listener->fd);
    pl_free(listener);
}

/* One that was never used makes room: its communicator will not be opened any more. */
static void listener_add(struct device_cpu *cpu, struct comm_listener *listener)
{
    struct comm_listener *oldest = NULL;
    struct pl_list *pos;
    uint32_t count = 0;

    pl_mutex_lock(&cpu->lock);
    pl_list_add_tail(&cpu->comm_ids, &listener->link);
    pl_list_for_each(pos, &cpu->comm_ids) {
        count++;
    }
    if (count > COMM_IDS_MAX) {
        oldest = pl_list_first(&cpu->comm_ids, struct comm_listener, link);
        pl_list_remove(&oldest->link);
    }
    pl_mutex_unlock(&cpu->lock);
    if (oldest != NULL) {
        listener_free(oldest);
    }
}

plasmon_status_t device_cpu_comm_id(struct device *device,
                                    const struct device_comm_config *config,
                                    uint8_t *out_id, struct pl_err *err)
{
    struct comm_listener *listener = PL_NEW(struct comm_listener);
    plasmon_status_t status;

    if (listener == NULL) {
        return pl_err_set(err, PLASMON_ENOMEM, "no memory");
    }
    pl_list_init(&listener->link);
    listener->id.magic = COMM_MAGIC;
    status             = address_of(config->address != NULL ? config->address : "127.0.0.1",
                        &listener->id, err);
    if (status == PLASMON_OK &&
        getrandom(listener->id.secret, COMM_SECRET, 0) != (ssize_t)COMM_SECRET) {
        status = pl_err_set(err, PLASMON_EAGAIN, "no random numbers: %s", strerror(errno));
    }
    if (status == PLASMON_OK) {
        status = listener_open(listener, err);
    }
    if (status != PLASMON_OK) {
        pl_free(listener);
        return status;
    }
    memset(out_id, 0, DEVICE_COMM_ID_BYTES);
    memcpy(out_id, &listener->id, sizeof(listener->id));
    listener_add(device_cpu_of(device), listener);
    return PLASMON_OK;
}

static int listener_take(struct device_cpu *cpu, const struct comm_id *id)
{
    struct comm_listener *found = NULL;
    struct pl_list *pos;
    int fd = -1;

    pl_mutex_lock(&cpu->lock);
    pl_list_for_each(pos, &cpu->comm_ids) {
        struct comm_listener *listener = pl_container_of(pos, struct comm_listener, link);

        if (memcmp(listener->id.secret, id->secret, COMM_SECRET) == 0) {
            found = listener;
            break;
        }
    }
    if (found != NULL) {
        pl_list_remove(&found->link);
        fd = found->fd;
    }
    pl_mutex_unlock(&cpu->lock);
    pl_free(found);
    return fd;
}

void device_cpu_comm_finish(struct device_cpu *cpu)
{
    while (!pl_list_empty(&cpu->comm_ids)) {
        struct comm_listener *listener =
            pl_list_first(&cpu->comm_ids, struct comm_listener, link);

        pl_list_remove(&listener->link);
        listener_free(listener);
    }
}

/* ------------------------------------------------------------------------------------------------ opening */

static plasmon_status_t connect_begin(struct cpu_comm *comm, struct pl_err *err)
{
    const struct sockaddr *name = (const struct sockaddr *)(const void *)&comm->id.address;

    comm->fd = socket(name->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (comm->fd < 0 ||
        (connect(comm->fd, name, comm->id.address_bytes) != 0 && errno != EINPROGRESS)) {
        return pl_err_set(err, PLASMON_ECONNECT, "the other side's communicator: %s",
                          strerror(errno));
    }
    return PLASMON_OK;
}

plasmon_status_t device_cpu_comm_open(struct device *device,
                                      const struct device_comm_config *config,
                                      const uint8_t *id, struct device_stream *stream,
                                      struct device_comm **out_comm, struct pl_err *err)
{
    struct cpu_comm *comm = PL_NEW(struct cpu_comm);
    plasmon_status_t status;

    (void)stream; /* what greets is the connection */
    if (comm == NULL) {
        return pl_err_set(err, PLASMON_ENOMEM, "no memory");
    }
    comm->base      = (struct device_comm){.device = device, .rank = config->rank};
    comm->remote    = config->remote;
    comm->refs      = 1;
    comm->fd        = -1;
    comm->listen_fd = -1;
    memcpy(&comm->id, id, sizeof(comm->id));
    if (comm->id.magic != COMM_MAGIC || comm->id.address_bytes > sizeof(comm->id.address) ||
        pl_fault_point("comm.open")) {
        status = pl_err_set(err, PLASMON_EINVAL, "that is no communicator's id");
    } else if (config->rank == 0) {
        comm->listen_fd = listener_take(device_cpu_of(device), &comm->id);
        status          = comm->listen_fd >= 0
                              ? PLASMON_OK
                              : pl_err_set(err, PLASMON_EINVAL, "the id was not made here");
    } else {
        status = connect_begin(comm, err);
    }
    if (status != PLASMON_OK) {
        comm_release(comm);
        return status;
    }
    *out_comm = &comm->base;
    return PLASMON_OK;
}

/* Both sides: the connection stands. The receiver shows the secret. */
static plasmon_status_t connected(struct cpu_comm *comm, struct pl_err *err)
{
    struct pollfd look = {.fd = comm->fd, .events = POLLOUT};
    int error = 0, one = 1;
    socklen_t bytes = sizeof(error);

    if (comm->base.rank == 0) {
        comm->fd = accept4(comm->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (comm->fd < 0) {
            return PLASMON_EAGAIN;
        }
    } else {
        if (poll(&look, 1, 0) <= 0) {
            return PLASMON_EAGAIN;
        }
        if (getsockopt(comm->fd, SOL_SOCKET, SO_ERROR, &error, &bytes) != 0 || error != 0 ||
            send(comm->fd, comm->id.secret, COMM_SECRET, MSG_NOSIGNAL) !=
                (ssize_t)COMM_SECRET) {
            return pl_err_set(err, PLASMON_ECONNECT, "the other side's communicator: %s",
                              strerror(error != 0 ? error : errno));
        }
    }
    (void)setsockopt(comm->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)); /* speed */
    comm->state = COMM_GREETING;
    return PLASMON_EAGAIN;
}

static plasmon_status_t greeted(struct cpu_comm *comm, struct pl_err *err)
{
    uint8_t seen[COMM_SECRET], mine = ACKNOWLEDGEMENT;
    size_t wanted = comm->base.rank == 0 ? COMM_SECRET : 1;
    ssize_t got   = recv(comm->fd, seen, wanted, MSG_PEEK);

    if (got < 0 ? errno == EAGAIN || errno == EINTR : got != 0 && (size_t)got < wanted) {
        return PLASMON_EAGAIN;
    }
    if (got > 0) {
        got = recv(comm->fd, seen, wanted, 0);
    }
    if (got != (ssize_t)wanted ||
        (comm->base.rank == 0 &&
         (memcmp(seen, comm->id.secret, COMM_SECRET) != 0 ||
          send(comm->fd, &mine, sizeof(mine), MSG_NOSIGNAL) != (ssize_t)sizeof(mine)))) {
        return pl_err_set(err, PLASMON_ECONNECT,
                          "the other side of the communicator went away");
    }
    comm->state = COMM_OPEN;
    return PLASMON_OK;
}

plasmon_status_t device_cpu_comm_poll(struct device_comm *base, struct pl_err *err)
{
    struct cpu_comm *comm = comm_of(base);

    switch (comm->state) {
    case COMM_CONNECTING:
        return connected(comm, err);
    case COMM_GREETING:
        return greeted(comm, err);
    default:
        return PLASMON_OK;
    }
}

/* ------------------------------------------------------------------------------------------------ moving */

static void wait_for_abort(struct cpu_comm *comm)
{
    while (!atomic_load(&comm->aborted)) {
        (void)poll(NULL, 0, ABORT_LOOK_MS); /* a pause */
    }
}

/* false: it ends here; aborted, or the other side is gone. */
static bool pass(struct cpu_comm *comm, void *data, size_t bytes, bool out)
{
    struct pollfd look = {.fd = comm->fd, .events = out ? POLLOUT : POLLIN};
    uint8_t *at        = data;

    while (bytes > 0 && !atomic_load(&comm->aborted)) {
        ssize_t done =
            out ? send(comm->fd, at, bytes, MSG_NOSIGNAL) : recv(comm->fd, at, bytes, 0);

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

static bool meet(struct comm_op *op)
{
    struct cpu_comm *comm = op->comm;
    uint64_t bytes        = op->bytes;
    uint8_t end           = ACKNOWLEDGEMENT;

    if (comm->base.rank == 0) {
        return pass(comm, &bytes, sizeof(bytes), true) &&
               pass(comm, op->ptr, op->bytes, true) && pass(comm, &end, 1, false);
    }
    if (!pass(comm, &bytes, sizeof(bytes), false)) {
        return false;
    }
    if (bytes != op->bytes) { /* what NCCL makes of it is not defined */
        atomic_store(&comm->broken, true);
        return false;
    }
    return pass(comm, op->ptr, op->bytes, false) && pass(comm, &end, 1, true);
}

static plasmon_status_t op_run(void *args, struct pl_err *err)
{
    struct comm_op *op = args;

    (void)err;
    if (!atomic_load(&op->comm->aborted) && (pl_fault_point("comm.stall") || !meet(op))) {
        wait_for_abort(op->comm);
    }
    comm_release(op->comm);
    return PLASMON_OK;
}

plasmon_status_t device_cpu_comm_move(struct device_comm *base,
                                      struct device_stream *stream, struct device_ptr ptr,
                                      uint64_t bytes, struct pl_err *err)
{
    struct cpu_comm *comm = comm_of(base);
    struct comm_op op     = {
            .comm = comm, .ptr = (uint8_t *)(uintptr_t)ptr.addr, .bytes = bytes};
    plasmon_status_t status;

    PL_CHECK(comm->state == COMM_OPEN);
    atomic_fetch_add(&comm->refs, 1);
    status = device_cpu_launch_enqueue(stream, op_run, &op, sizeof(op), 0);
    if (status != PLASMON_OK) {
        comm_release(comm);
        (void)pl_err_set(err, status, "%s", pl_status_text(status));
    }
    return status;
}

plasmon_status_t device_cpu_comm_check(struct device_comm *base, struct pl_err *err)
{
    struct cpu_comm *comm = comm_of(base);

    return comm->remote && atomic_load(&comm->broken)
               ? pl_err_set(err, PLASMON_ECONNECT, "the other side is gone")
               : PLASMON_OK;
}

void device_cpu_comm_close(struct device_comm *base)
{
    comm_release(comm_of(base));
}

void device_cpu_comm_abort(struct device_comm *base)
{
    struct cpu_comm *comm = comm_of(base);

    atomic_store(&comm->aborted, true);
    if (comm->fd >= 0) {
        (void)shutdown(comm->fd,
                       SHUT_RDWR); /* wakes who waits; not connected: nobody does */
    }
    comm_release(comm);
}
