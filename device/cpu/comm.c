/*
 * What stands in for NCCL on CPU devices: communicators over TCP connections that keep NCCL's
 * manners, so that everything which has to live with them is tested without a GPU.
 *
 *   meeting    an operation runs on its stream's thread and ends when those of the other sides have
 *              met it: a sender waits until the receiver has all the bytes, an all-reduce until all
 *              have come. Behind it, its stream stands still. Operations of a communicator meet in
 *              their order, and must be of one size (comm_ops.c)
 *   death      when another process is gone, operations go on waiting. Only device_comm_check() can
 *              tell, and only when there is another host, as with NCCL over NVLink and over a
 *              network
 *   abort      ends what waits, as if it were done; the bytes are rubbish
 *
 * The id names a listening socket of rank 0's process and a secret that the others show. Operations
 * hold the communicator, so an abort does not wait for those that are still queued: they find it
 * aborted and do nothing.
 */
#include "device/cpu/comm_int.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fault.h"
#include "base/fd.h"

#define COMM_VERSION 2u
#define COMM_MAGIC   0x316d6d6f636c7370ull /* "pslcomm1" */
#define COMM_IDS_MAX 64u

/* Made here, waiting for its communicator. */
struct comm_listener {
    struct pl_list link;
    struct comm_id id;
    int fd;
};

struct cpu_comm *device_cpu_comm_of(struct device_comm *comm)
{
    PL_CHECK(comm->device->ops == &device_cpu_ops);
    return (struct cpu_comm *)(void *)comm;
}

void device_cpu_comm_release(struct cpu_comm *comm)
{
    if (atomic_fetch_sub(&comm->refs, 1) == 1) {
        pl_fd_close(&comm->listen_fd);
        for (uint32_t i = 0; i < DEVICE_COMM_RANKS_MAX; i++) {
            pl_fd_close(&comm->fd[i]);
            pl_fd_close(&comm->guest[i]);
        }
        pl_free(comm);
    }
}

uint32_t device_cpu_comm_version(struct device *device, struct pl_err *why)
{
    (void)device;
    (void)why;
    return COMM_VERSION;
}

/* ---------------------------------------------------------------------------------- ids */

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

/* ------------------------------------------------------------------------------ opening */

static plasmon_status_t connect_begin(struct cpu_comm *comm, struct pl_err *err)
{
    const struct sockaddr *name = (const struct sockaddr *)(const void *)&comm->id.address;

    comm->fd[0] = socket(name->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (comm->fd[0] < 0 ||
        (connect(comm->fd[0], name, comm->id.address_bytes) != 0 && errno != EINPROGRESS)) {
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
    comm->base      = (struct device_comm){.device = device,
                                           .rank   = config->rank,
                                           .ranks  = config->ranks != 0 ? config->ranks : 2};
    comm->remote    = config->remote;
    comm->refs      = 1;
    comm->listen_fd = -1;
    memset(comm->fd, 0xff, sizeof(comm->fd)); /* -1 */
    memset(comm->guest, 0xff, sizeof(comm->guest));
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
        device_cpu_comm_release(comm);
        return status;
    }
    *out_comm = &comm->base;
    return PLASMON_OK;
}

static void no_delay(int fd)
{
    int one = 1;

    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)); /* speed */
}

/* ---- rank 0: takes whoever comes, and answers when all have shown the secret */

static plasmon_status_t went_away(struct pl_err *err)
{
    return pl_err_set(err, PLASMON_ECONNECT,
                      "the other side of the communicator went away");
}

static void guests_accept(struct cpu_comm *comm)
{
    while (comm->guests < comm->base.ranks - 1) {
        int fd = accept4(comm->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

        if (fd < 0) {
            return;
        }
        no_delay(fd);
        comm->guest[comm->guests++] = fd;
    }
}

/* EAGAIN: it has not said all. */
static plasmon_status_t guest_greets(struct cpu_comm *comm, int *io_guest,
                                     struct pl_err *err)
{
    struct comm_greeting greeting;
    ssize_t got = recv(*io_guest, &greeting, sizeof(greeting), MSG_PEEK);

    if (got < 0 ? errno == EAGAIN || errno == EINTR
                : got > 0 && (size_t)got < sizeof(greeting)) {
        return PLASMON_EAGAIN;
    }
    if (got > 0) {
        got = recv(*io_guest, &greeting, sizeof(greeting), 0);
    }
    if (got != (ssize_t)sizeof(greeting) ||
        memcmp(greeting.secret, comm->id.secret, COMM_SECRET) != 0 || greeting.rank == 0 ||
        greeting.rank >= comm->base.ranks || comm->fd[greeting.rank] >= 0) {
        return went_away(err);
    }
    comm->fd[greeting.rank] = *io_guest;
    *io_guest               = -1;
    comm->greeted++;
    return PLASMON_OK;
}

static plasmon_status_t host_poll(struct cpu_comm *comm, struct pl_err *err)
{
    const uint8_t mine      = COMM_ACKNOWLEDGEMENT;
    plasmon_status_t status = PLASMON_OK;

    guests_accept(comm);
    for (uint32_t i = 0; i < comm->guests; i++) {
        status = comm->guest[i] >= 0 ? guest_greets(comm, &comm->guest[i], err) : status;
        if (status != PLASMON_OK && status != PLASMON_EAGAIN) {
            return status;
        }
    }
    if (comm->greeted < comm->base.ranks - 1) {
        return PLASMON_EAGAIN;
    }
    for (uint32_t i = 1; i < comm->base.ranks; i++) {
        if (send(comm->fd[i], &mine, sizeof(mine), MSG_NOSIGNAL) != (ssize_t)sizeof(mine)) {
            return went_away(err);
        }
    }
    comm->state = COMM_OPEN;
    return PLASMON_OK;
}

/* ---- the others: connected, they show the secret, and wait for the answer */

static plasmon_status_t guest_connected(struct cpu_comm *comm, struct pl_err *err)
{
    struct pollfd look            = {.fd = comm->fd[0], .events = POLLOUT};
    struct comm_greeting greeting = {.rank = (uint8_t)comm->base.rank};
    int error                     = 0;
    socklen_t bytes               = sizeof(error);

    if (poll(&look, 1, 0) <= 0) {
        return PLASMON_EAGAIN;
    }
    memcpy(greeting.secret, comm->id.secret, COMM_SECRET);
    if (getsockopt(comm->fd[0], SOL_SOCKET, SO_ERROR, &error, &bytes) != 0 || error != 0 ||
        send(comm->fd[0], &greeting, sizeof(greeting), MSG_NOSIGNAL) !=
            (ssize_t)sizeof(greeting)) {
        return pl_err_set(err, PLASMON_ECONNECT, "the other side's communicator: %s",
                          strerror(error != 0 ? error : errno));
    }
    no_delay(comm->fd[0]);
    comm->state = COMM_GREETING;
    return PLASMON_EAGAIN;
}

static plasmon_status_t guest_answered(struct cpu_comm *comm, struct pl_err *err)
{
    uint8_t answer;
    ssize_t got = recv(comm->fd[0], &answer, sizeof(answer), 0);

    if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
        return PLASMON_EAGAIN;
    }
    if (got != (ssize_t)sizeof(answer)) {
        return went_away(err);
    }
    comm->state = COMM_OPEN;
    return PLASMON_OK;
}

plasmon_status_t device_cpu_comm_poll(struct device_comm *base, struct pl_err *err)
{
    struct cpu_comm *comm = device_cpu_comm_of(base);

    if (comm->state == COMM_OPEN) {
        return PLASMON_OK;
    }
    if (comm->base.rank == 0) {
        return host_poll(comm, err);
    }
    return comm->state == COMM_CONNECTING ? guest_connected(comm, err)
                                          : guest_answered(comm, err);
}

/* ------------------------------------------------------------------------------- ending */

plasmon_status_t device_cpu_comm_check(struct device_comm *base, struct pl_err *err)
{
    struct cpu_comm *comm = device_cpu_comm_of(base);

    return comm->remote && atomic_load(&comm->broken)
               ? pl_err_set(err, PLASMON_ECONNECT, "the other side is gone")
               : PLASMON_OK;
}

void device_cpu_comm_close(struct device_comm *base)
{
    device_cpu_comm_release(device_cpu_comm_of(base));
}

void device_cpu_comm_cut(struct device_comm *base)
{
    struct cpu_comm *comm = device_cpu_comm_of(base);

    atomic_store(&comm->aborted, true);
    for (uint32_t i = 0; i < DEVICE_COMM_RANKS_MAX; i++) {
        if (comm->fd[i] >= 0) {
            (void)shutdown(comm->fd[i],
                           SHUT_RDWR); /* wakes who waits; not connected: nobody does */
        }
    }
}

void device_cpu_comm_abort(struct device_comm *base)
{
    device_cpu_comm_cut(base);
    device_cpu_comm_release(device_cpu_comm_of(base));
}
