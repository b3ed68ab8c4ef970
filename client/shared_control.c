/*
 * The control socket to plasmon-store: tables, pins, chunks, lanes and a socket to the head come
 * over it, as descriptors.
 *
 * The store is trusted with descriptors, but its messages are checked all the same: counts, sizes,
 * magic numbers.
 */
#include "client/shared_int.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"

#define REST_NS_MIN      1000000000ull
#define SEND_TIMEOUT_NS  10000000000ull
#define AGAIN_TIMEOUT_NS 1000000000ull /* for one that was silent the last time */

/* ----------------------------------------------------------------------------- messages */

plasmon_status_t shared_control_send(struct shared *shared, struct store_control message,
                                     struct pl_err *err)
{
    plasmon_status_t status;

    message.version = STORE_CONTROL_VERSION;
    status          = pl_fd_send(shared->control_fd, &message, sizeof(message), NULL, 0);
    if (status == PLASMON_EAGAIN) {
        return pl_err_set(err, PLASMON_ETIMEDOUT,
                          "plasmon-store of this host does not read what it is sent");
    }
    if (status != PLASMON_OK) {
        return pl_err_set(err, PLASMON_ECLOSED, "plasmon-store of this host is gone");
    }
    return PLASMON_OK;
}

/* --------------------------------------------------------------- a store that is silent */

static void append_who(const struct shared *shared, char *out, size_t out_bytes)
{
    char who[160];

    out[0] = '\0';
    if (shared->silent.pid != 0) {
        (void)pl_pid_describe(shared->silent.pid, who, sizeof(who));
        (void)snprintf(out, out_bytes, ": %s", who);
    }
}

/*
 * What has come on that connection, without waiting: 0 is nothing, POLLHUP is among it when the
 * store's side is closed.
 */
static short witnessed(const struct shared *shared)
{
    struct pollfd poller = {.fd = shared->silent.witness, .events = POLLIN};

    return poller.fd >= 0 && poll(&poller, 1, 0) > 0 ? poller.revents : 0;
}

static void silence_is_over(struct shared *shared)
{
    shared->silent.rest_ns  = 0;
    shared->silent.until_ns = 0;
    shared->silent.owes     = false;
    pl_fd_close(&shared->silent.witness);
}

void shared_control_look(struct shared *shared)
{
    if ((witnessed(shared) & POLLHUP) != 0) {
        silence_is_over(shared); /* there may be another one, which owes nothing */
    }
}

/* It has said something, has ended, or was let go on. */
static bool silent_is_over(const struct shared *shared)
{
    return witnessed(shared) != 0 ||
           (shared->silent.stopped && !pl_pid_stopped(shared->silent.pid));
}

plasmon_status_t shared_control_rests(const struct shared *shared, struct pl_err *err)
{
    uint64_t now_ns = pl_now_ns();
    char who[200];

    if (now_ns >= shared->silent.until_ns || silent_is_over(shared)) {
        return PLASMON_OK;
    }
    append_who(shared, who, sizeof(who));
    return pl_err_set(err, PLASMON_ETIMEDOUT,
                      "plasmon-store of this host did not answer, and is asked again in "
                      "%llu ms%s",
                      (unsigned long long)(shared->silent.until_ns - now_ns) / 1000000,
                      who);
}

uint64_t shared_control_deadline(const struct shared *shared, uint64_t deadline_ns)
{
    return shared->silent.rest_ns == 0
               ? deadline_ns
               : pl_min_u64(deadline_ns, pl_now_ns() + AGAIN_TIMEOUT_NS);
}

/* It had its time. From now on, for a while, nobody waits for it. */
static plasmon_status_t control_silent(struct shared *shared, struct pl_err *err)
{
    struct ucred peer = {0};
    socklen_t bytes   = sizeof(peer);
    bool first        = shared->silent.rest_ns == 0;
    char who[200];

    if (getsockopt(shared->control_fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0) {
        shared->silent.pid     = peer.pid;
        shared->silent.stopped = peer.pid != 0 && pl_pid_stopped(peer.pid);
    }
    pl_fd_close(&shared->silent.witness);
    shared->silent.witness = fcntl(shared->control_fd, F_DUPFD_CLOEXEC, 0); /* -1: none */
    shared->silent.rest_ns =
        first ? REST_NS_MIN : pl_min_u64(2 * shared->silent.rest_ns, SHARED_REST_NS_MAX);
    shared->silent.until_ns = pl_now_ns() + shared->silent.rest_ns;
    append_who(shared, who, sizeof(who));
    if (first) {
        pl_warn("client",
                "plasmon-store of this host did not answer in time%s. Until it does, what "
                "needs it goes by messages, or fails",
                who);
    }
    return pl_err_set(err, PLASMON_ETIMEDOUT,
                      "plasmon-store of this host did not answer in time%s", who);
}

/* It takes no more connections. What we had is gone, so nothing is known of who it is. */
static plasmon_status_t queue_full(struct shared *shared, struct pl_err *err)
{
    pl_fd_close(&shared->control_fd);
    shared->silent.pid = 0;
    return control_silent(shared, err);
}

static void control_spoke(struct shared *shared)
{
    if (shared->silent.rest_ns != 0) {
        pl_info("client", "plasmon-store of this host answers again");
    }
    silence_is_over(shared);
}

static bool control_readable(const struct shared *shared)
{
    struct pollfd poller = {.fd = shared->control_fd, .events = POLLIN};

    return poll(&poller, 1, 0) > 0;
}

/* What it says late is an answer, too, or that it is gone: taken by who asks next. */
plasmon_status_t shared_control_ask(struct shared *shared, struct store_control message,
                                    struct pl_err *err)
{
    plasmon_status_t status =
        control_readable(shared) ? PLASMON_OK : shared_control_rests(shared, err);

    if (status == PLASMON_OK) {
        status              = shared_control_send(shared, message, err);
        shared->silent.owes = true;
    }
    return status;
}

static plasmon_status_t control_poll(struct shared *shared, uint64_t deadline_ns,
                                     struct pl_err *err)
{
    for (;;) {
        struct pollfd poller = {.fd = shared->control_fd, .events = POLLIN};
        uint64_t now_ns      = pl_now_ns();
        uint64_t left_ms =
            now_ns >= deadline_ns ? 0 : (deadline_ns - now_ns + 999999) / 1000000;
        int ready = poll(&poller, 1, (int)pl_min_u64(left_ms, 60000));

        if (ready > 0) {
            return PLASMON_OK;
        }
        if (ready < 0 && errno != EINTR) {
            return pl_err_set(err, PLASMON_EIO, "poll: %s", strerror(errno));
        }
        if (ready == 0 && pl_now_ns() >= deadline_ns) {
            return shared->silent.owes
                       ? control_silent(shared, err)
                       : pl_err_set(err, PLASMON_ETIMEDOUT,
                                    "plasmon-store of this host had nothing to say");
        }
    }
}

static void close_all(int *fds, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        pl_fd_close(&fds[i]);
    }
}

/* The next message, with its descriptors. */
static plasmon_status_t control_recv(struct shared *shared, uint64_t deadline_ns,
                                     struct store_control *out,
                                     int fds[PL_FD_MAX_PER_MESSAGE], unsigned *out_count,
                                     struct pl_err *err)
{
    plasmon_status_t status = control_poll(shared, deadline_ns, err);
    size_t bytes            = sizeof(*out);
    struct pl_err why       = {.status = PLASMON_OK};

    if (status != PLASMON_OK) {
        return status;
    }
    *out_count = PL_FD_MAX_PER_MESSAGE;
    memset(out, 0, sizeof(*out));
    status = pl_fd_recv(shared->control_fd, out, &bytes, fds, out_count);
    if (status == PLASMON_ELIMIT) {
        return pl_err_set(err, status, "shared memory of this host: %s", PL_FD_NONE_LEFT);
    }
    if (status != PLASMON_OK && status != PLASMON_EMALFORMED) {
        return pl_err_set(err, PLASMON_ECLOSED, "plasmon-store of this host is gone");
    }
    control_spoke(shared);
    status = store_control_check(out, bytes, status != PLASMON_OK, &why);
    if (status != PLASMON_OK) {
        close_all(fds, *out_count);
        return pl_err_set(err, status, "plasmon-store of this host: %s", why.text);
    }
    out->text[sizeof(out->text) - 1] = '\0';
    return PLASMON_OK;
}

/* ------------------------------------------------------------------------------- set-up */

static plasmon_status_t take_tables(struct shared_memory *memory,
                                    const struct store_control *message, const int *fds,
                                    unsigned count, struct pl_err *err)
{
    if (count > STORE_HOST_DEVICE_MAX - memory->device_count ||
        message->bytes < sizeof(struct store_table)) {
        return pl_err_set(err, PLASMON_EMALFORMED,
                          "plasmon-store sent %u tables of %llu bytes", count,
                          (unsigned long long)message->bytes);
    }
    memory->table_bytes = message->bytes;
    for (unsigned i = 0; i < count; i++) {
        void *table;
        plasmon_status_t status = pl_fd_map(fds[i], message->bytes, 0, &table);

        if (status != PLASMON_OK) {
            return pl_err_set(err, status, "cannot map an object table: %s",
                              pl_status_text(status));
        }
        memory->tables[memory->device_count++] = table;
        if (((const struct store_table *)table)->magic != STORE_TABLE_MAGIC) {
            return pl_err_set(err, PLASMON_EVERSION,
                              "an object table of plasmon-store of this host has another "
                              "layout than ours: all programs of a cluster must be of one "
                              "release");
        }
    }
    return PLASMON_OK;
}

static plasmon_status_t take_pins(struct shared_memory *memory,
                                  const struct store_control *message, const int *fds,
                                  unsigned count, struct pl_err *err)
{
    void *pins;
    plasmon_status_t status;

    if (count != 1 || message->bytes < sizeof(struct store_pins) || memory->pins != NULL) {
        return pl_err_set(err, PLASMON_EMALFORMED, "plasmon-store sent %u pages of pins",
                          count);
    }
    status = pl_fd_map(fds[0], message->bytes, 1, &pins);
    if (status != PLASMON_OK) {
        return pl_err_set(err, status, "cannot map the page of pins: %s",
                          pl_status_text(status));
    }
    memory->pins       = pins;
    memory->pins_bytes = message->bytes;
    memory->reader     = message->reader;
    return PLASMON_OK;
}

/* All of it came: another memory. Or nothing did, for it is the one that we have. */
static plasmon_status_t take_done(struct shared *shared,
                                  const struct store_control *message, struct pl_err *err)
{
    struct shared_memory *coming = shared->coming, *present = shared->present;
    bool same = present != NULL && present->number != 0 &&
                message->offset == present->number && message->reader == present->reader;

    if (coming->pins == NULL && !same) {
        return pl_err_set(err, PLASMON_EMALFORMED, "plasmon-store sent no page of pins");
    }
    shared->coming = NULL;
    if (coming->pins == NULL) {
        shared_memory_release_locked(coming);
        return PLASMON_OK;
    }
    coming->number  = message->offset;
    shared->present = coming;
    shared_memory_release_locked(present); /* stays until the last pin in it goes */
    return PLASMON_OK;
}

static plasmon_status_t take_setup(struct shared *shared,
                                   const struct store_control *message, const int *fds,
                                   unsigned count, struct pl_err *err)
{
    if (shared->coming == NULL && shared->present != NULL) {
        return PLASMON_OK; /* the answer to a question that nobody waited for */
    }
    if (shared->coming == NULL) {
        return pl_err_set(err, PLASMON_EMALFORMED,
                          "plasmon-store sent a set-up that nobody asked for");
    }
    switch (message->part) {
    case STORE_PART_TABLES:
        return take_tables(shared->coming, message, fds, count, err);
    case STORE_PART_PINS:
        return take_pins(shared->coming, message, fds, count, err);
    case STORE_PART_DONE:
        return take_done(shared, message, err);
    default:
        return PLASMON_OK; /* timelines: a client needs none */
    }
}

static plasmon_status_t take_chunk(struct shared *shared,
                                   const struct store_control *message, const int *fds,
                                   unsigned count, struct pl_err *err)
{
    const struct shared_memory *memory = shared->present;
    struct chunks *chunks = memory != NULL && message->host_device < memory->device_count
                                ? memory->chunks[message->host_device]
                                : NULL;

    if (count != 1 || chunks == NULL) {
        return pl_err_set(err, PLASMON_EMALFORMED,
                          "plasmon-store sent a chunk of device %u with %u descriptors",
                          message->host_device, count);
    }
    return chunks_map(chunks, message, fds[0], err);
}

/* Takes what it keeps of fds by setting it to -1. */
static plasmon_status_t take_lane(struct shared *shared,
                                  const struct store_control *message, int *fds,
                                  unsigned count, struct pl_err *err)
{
    struct shared_memory *memory = shared->present;
    struct lane *lane;
    plasmon_status_t status;

    if (count != 2 || message->bytes != STORE_LANE_BYTES || memory == NULL ||
        message->host_device >= memory->device_count) {
        return pl_err_set(err, PLASMON_EMALFORMED,
                          "plasmon-store sent a lane of %llu bytes with %u descriptors",
                          (unsigned long long)message->bytes, count);
    }
    if (memory->lanes[message->host_device] != NULL) {
        return PLASMON_OK; /* the answer to a question that nobody waited for */
    }
    status = lane_create(fds[0], fds[1], &lane, err);
    fds[0] = -1;
    fds[1] = -1;
    if (status == PLASMON_OK) {
        memory->lanes[message->host_device] = lane;
    }
    return status;
}

static plasmon_status_t buffer_refuse(struct shared *shared, uint64_t id,
                                      struct pl_err *err)
{
    return shared_control_send(
        shared,
        (struct store_control){.type = STORE_CONTROL_HOST_BUFFER_DROP, .offset = id}, err);
}

/* An answer that came too late is given back. */
static plasmon_status_t take_buffer(struct shared *shared,
                                    const struct store_control *message, const int *fds,
                                    unsigned count, struct pl_err *err)
{
    struct pl_err unused = {0};
    plasmon_status_t status;

    if (message->chunk_id != shared->buffer_request || shared->buffer_data != NULL) {
        return buffer_refuse(shared, message->offset, err);
    }
    if (count != 1 || message->bytes != shared->buffer.bytes || message->offset == 0) {
        return pl_err_set(
            err, PLASMON_EMALFORMED,
            "plasmon-store sent a host buffer of %llu bytes with %u descriptors",
            (unsigned long long)message->bytes, count);
    }
    status = pl_fd_map(fds[0], message->bytes, 1, &shared->buffer_data);
    if (status != PLASMON_OK) {
        (void)buffer_refuse(shared, message->offset, &unused); /* the first error counts */
        return pl_err_set(err, status, "cannot map host memory of %llu bytes: %s",
                          (unsigned long long)message->bytes, pl_status_text(status));
    }
    shared->buffer.id = message->offset;
    return PLASMON_OK;
}

plasmon_status_t shared_control_step(struct shared *shared, uint64_t deadline_ns,
                                     struct pl_err *err)
{
    struct store_control message;
    int fds[PL_FD_MAX_PER_MESSAGE];
    unsigned count;
    plasmon_status_t status = control_recv(shared, deadline_ns, &message, fds, &count, err);

    if (status != PLASMON_OK) {
        return status;
    }
    switch (message.type) {
    case STORE_CONTROL_CLIENT_SETUP:
        status = take_setup(shared, &message, fds, count, err);
        break;
    case STORE_CONTROL_CHUNK:
        status = take_chunk(shared, &message, fds, count, err);
        break;
    case STORE_CONTROL_LANE:
        status = take_lane(shared, &message, fds, count, err);
        break;
    case STORE_CONTROL_HOST_BUFFER:
        status = take_buffer(shared, &message, fds, count, err);
        break;
    case STORE_CONTROL_HEAD_FD:
        if (count == 1) {
            pl_fd_close(&shared->head_fd);
            shared->head_fd = fds[0];
            fds[0]          = -1;
        }
        break;
    case STORE_CONTROL_ERROR:
        status = pl_err_set(
            err, message.status < 0 ? (plasmon_status_t)message.status : PLASMON_EINTERNAL,
            "%s", message.text);
        break;
    default:
        break; /* for others, or newer than this library */
    }
    close_all(fds, count);
    return status;
}

/*
 * One that is stopped takes nobody from its queue, which is full at some time: then a connection
 * waits, and so does what is sent over one that nobody reads.
 */
static bool limit_waits(const struct shared *shared, int fd)
{
    uint64_t now_ns = pl_now_ns();
    uint64_t ns     = shared_control_deadline(shared, now_ns + SEND_TIMEOUT_NS) - now_ns;
    const struct timeval patience = {.tv_sec  = (time_t)(ns / 1000000000),
                                     .tv_usec = (suseconds_t)(ns % 1000000000 / 1000)};

    return setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience)) == 0;
}

plasmon_status_t shared_control_connect(struct shared *shared, const char *path,
                                        int *out_fd, struct pl_err *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd;

    if (strlen(path) >= sizeof(address.sun_path)) {
        return pl_err_set(err, PLASMON_EINVAL,
                          "the path of the store's socket is too long: %s", path);
    }
    memcpy(address.sun_path, path, strlen(path) + 1);
    fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return pl_err_set(err, pl_status_from_errno(errno), "socket: %s", strerror(errno));
    }
    if (!limit_waits(shared, fd) ||
        connect(fd, (const struct sockaddr *)&address, sizeof(address)) != 0) {
        bool silent = errno == EAGAIN;

        (void)pl_err_set(err, PLASMON_EUNREACHABLE, "cannot reach plasmon-store at %s: %s",
                         path, strerror(errno));
        pl_fd_close(&fd);
        return silent ? queue_full(shared, err) : PLASMON_EUNREACHABLE;
    }
    *out_fd = fd;
    return PLASMON_OK;
}
