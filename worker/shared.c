/*
 * The control socket: set-up and what comes later. The store is trusted as far as its messages are
 * well formed; what is not is an error that ends the worker, for it cannot know what it maps.
 */
#include "worker/shared.h"

#include <poll.h>
#include <string.h>

#include "base/fd.h"
#include "base/log.h"

void worker_shared_init(struct worker_shared *shared, int control_fd)
{
    memset(shared, 0, sizeof(*shared));
    shared->control_fd = control_fd;
    shared->head_fd    = -1;
    worker_handback_init(&shared->handback);
    shared->chunks  = PL_VEC_INIT(struct worker_shared_chunk);
    shared->lanes   = PL_VEC_INIT(int);
    shared->buffers = PL_VEC_INIT(struct worker_shared_buffer);
    for (uint32_t i = 0; i < STORE_HOST_DEVICE_MAX; i++) {
        shared->doorbells[i] = -1;
    }
}

void worker_shared_finish(struct worker_shared *shared)
{
    for (uint32_t i = 0; i < STORE_HOST_DEVICE_MAX; i++) {
        pl_fd_unmap(shared->timelines[i], shared->timeline_bytes);
        pl_fd_unmap(shared->tables[i], sizeof(struct store_table));
        pl_fd_unmap(shared->slabs[i], shared->slab_bytes);
        pl_fd_close(&shared->doorbells[i]);
    }
    for (uint32_t i = 0; i < STORE_READER_MAX; i++) {
        pl_fd_unmap(shared->readers[i], shared->pins_bytes);
    }
    for (size_t i = 0; i < shared->chunks.count; i++) {
        struct worker_shared_chunk *chunk = pl_vec_at(&shared->chunks, i);

        pl_fd_close(&chunk->fd);
    }
    pl_vec_finish(&shared->chunks);
    for (size_t i = 0; i < shared->lanes.count; i++) {
        pl_fd_close(pl_vec_at(&shared->lanes, i));
    }
    pl_vec_finish(&shared->lanes);
    for (size_t i = 0; i < shared->buffers.count; i++) {
        pl_fd_close(&((struct worker_shared_buffer *)pl_vec_at(&shared->buffers, i))->fd);
    }
    pl_vec_finish(&shared->buffers);
    pl_fd_close(&shared->head_fd);
    worker_handback_finish(&shared->handback);
}

/* Its end is noticed by the next look for messages. */
static bool store_may_come(const struct worker_shared *shared)
{
    return shared->handback.socket_path != NULL && !shared->handback.incomplete;
}

plasmon_status_t worker_shared_send(struct worker_shared *shared,
                                    struct store_control *message, int fd)
{
    plasmon_status_t status = PLASMON_ECLOSED;

    message->version     = STORE_CONTROL_VERSION;
    message->host_device = shared->host_device;
    worker_handback_note(&shared->handback, message, &fd, fd >= 0 ? 1 : 0);
    if (shared->control_fd >= 0) {
        status =
            pl_fd_send(shared->control_fd, message, sizeof(*message), &fd, fd >= 0 ? 1 : 0);
    }
    if (status == PLASMON_ECLOSED && store_may_come(shared)) {
        return PLASMON_OK; /* the next one is told */
    }
    if (status != PLASMON_OK && message->type == STORE_CONTROL_CHUNK_ADD) {
        worker_handback_forget_chunk(&shared->handback, message);
    }
    return status;
}

/* ------------------------------------------------------------------ parts of the set-up */

static plasmon_status_t map_one(int fd, uint64_t bytes, bool writable, uint64_t bytes_min,
                                void **out_ptr)
{
    if (bytes < bytes_min) {
        return PLASMON_EVERSION; /* its structs are not ours */
    }
    return pl_fd_map(fd, bytes, writable, out_ptr);
}

static plasmon_status_t part_map(struct worker_shared *shared,
                                 const struct store_control *message, const int *fds,
                                 uint32_t i)
{
    bool own = i == message->host_device;

    switch (message->part) {
    case STORE_PART_TIMELINES:
        shared->timeline_bytes = message->bytes;
        return map_one(fds[i], message->bytes, true, sizeof(struct store_timeline),
                       (void **)&shared->timelines[i]);
    case STORE_PART_TABLES:
        return map_one(fds[i], message->bytes, own, sizeof(struct store_table),
                       (void **)&shared->tables[i]);
    case STORE_PART_STAGES:
        shared->slab_bytes = message->bytes;
        return map_one(fds[i], message->bytes, true,
                       (uint64_t)STORE_STAGE_SLOTS * STORE_STAGE_SLOT_BYTES,
                       &shared->slabs[i]);
    default:
        return PLASMON_EMALFORMED;
    }
}

static void reader_set(struct worker_shared *shared, uint32_t reader,
                       struct store_pins *page)
{
    pl_fd_unmap(shared->readers[reader], shared->pins_bytes);
    shared->readers[reader] = page;
    if (reader >= shared->readers_end) {
        shared->readers_end = reader + 1;
    }
    while (shared->readers_end > 0 && shared->readers[shared->readers_end - 1] == NULL) {
        shared->readers_end--;
    }
}

static plasmon_status_t reader_map(struct worker_shared *shared, uint32_t reader,
                                   uint64_t bytes, int fd)
{
    void *page;
    plasmon_status_t status;

    if (reader >= STORE_READER_MAX) {
        return PLASMON_EMALFORMED;
    }
    status = map_one(fd, bytes, false, sizeof(struct store_pins), &page);
    if (status == PLASMON_OK) {
        reader_set(shared, reader, page);
        shared->pins_bytes = bytes;
    }
    return status;
}

static plasmon_status_t setup_part(struct worker_shared *shared,
                                   const struct store_control *message, int *fds)
{
    plasmon_status_t status = PLASMON_OK;

    if (message->total > STORE_HOST_DEVICE_MAX || message->host_device >= message->total) {
        return PLASMON_EMALFORMED;
    }
    shared->host_device       = message->host_device;
    shared->host_device_count = message->total;

    if (message->part == STORE_PART_PINS) {
        shared->reader_epoch = message->offset;
    }
    for (uint32_t i = 0; status == PLASMON_OK && i < message->count; i++) {
        if (message->part == STORE_PART_PINS || message->part == STORE_PART_READERS) {
            status = reader_map(shared, message->reader + i, message->bytes, fds[i]);
        } else if (i >= message->total) {
            status = PLASMON_EMALFORMED;
        } else if (message->part == STORE_PART_DOORBELLS) {
            shared->doorbells[i] = fds[i];
            fds[i]               = -1;
        } else {
            status = part_map(shared, message, fds, i);
        }
    }
    return status;
}

/* ----------------------------------------------------------------------------- messages */

/* Handed over with a descriptor, or to be dropped. */
static plasmon_status_t buffer_note(struct worker_shared *shared,
                                    const struct store_control *message, int *fds,
                                    unsigned fd_count)
{
    bool drop = message->type == STORE_CONTROL_HOST_BUFFER_DROP;
    struct worker_shared_buffer *buffer;

    if (fd_count != (drop ? 0u : 1u)) {
        return PLASMON_EMALFORMED;
    }
    buffer = pl_vec_push(&shared->buffers);
    if (buffer == NULL) {
        return PLASMON_ENOMEM;
    }
    *buffer = (struct worker_shared_buffer){
        .id = message->offset, .bytes = message->bytes, .fd = drop ? -1 : fds[0]};
    if (!drop) {
        fds[0] = -1;
    }
    return PLASMON_OK;
}

/* Takes what it keeps of fds by setting it to -1. */
static plasmon_status_t message_take(struct worker_shared *shared,
                                     const struct store_control *message, int *fds,
                                     unsigned fd_count)
{
    struct worker_shared_chunk *chunk;
    int *lane;
    plasmon_status_t status;

    switch (message->type) {
    case STORE_CONTROL_SETUP:
        return fd_count == message->count ? setup_part(shared, message, fds)
                                          : PLASMON_EMALFORMED;
    case STORE_CONTROL_CHUNK:
        chunk = fd_count == 1 ? pl_vec_push(&shared->chunks) : NULL;
        if (chunk == NULL) {
            return fd_count == 1 ? PLASMON_ENOMEM : PLASMON_EMALFORMED;
        }
        *chunk = (struct worker_shared_chunk){.message = *message, .fd = fds[0]};
        fds[0] = -1;
        return PLASMON_OK;
    case STORE_CONTROL_CHUNKS_KEPT:
        shared->chunks_kept = message->chunk_id;
        return PLASMON_OK;
    case STORE_CONTROL_LANE:
        if (fd_count != 1 || message->bytes != STORE_LANE_BYTES) {
            return PLASMON_EMALFORMED;
        }
        if (message->host_device != shared->host_device) {
            return PLASMON_OK; /* to be kept for the next store (handback.c), no more */
        }
        lane = pl_vec_push(&shared->lanes);
        if (lane == NULL) {
            return PLASMON_ENOMEM;
        }
        *lane  = fds[0];
        fds[0] = -1;
        return PLASMON_OK;
    case STORE_CONTROL_HOST_BUFFER:
    case STORE_CONTROL_HOST_BUFFER_DROP:
        return buffer_note(shared, message, fds, fd_count);
    case STORE_CONTROL_PINS_ADD:
        status = fd_count == 1 ? reader_map(shared, message->reader, message->bytes, fds[0])
                               : PLASMON_EMALFORMED;
        if (status == PLASMON_OK) {
            shared->reader_epoch = pl_max_u64(shared->reader_epoch, message->offset);
        }
        return status;
    case STORE_CONTROL_PINS_REMOVE:
        if (message->reader < STORE_READER_MAX) {
            reader_set(shared, message->reader, NULL);
        }
        return PLASMON_OK;
    case STORE_CONTROL_HEAD_FD:
        pl_fd_close(&shared->head_fd);
        if (fd_count == 1) {
            shared->head_fd = fds[0];
            fds[0]          = -1;
        }
        return PLASMON_OK;
    case STORE_CONTROL_ERROR:
        pl_warn("worker", "the store says: %s (%s)", message->text,
                pl_status_name((plasmon_status_t)message->status));
        return PLASMON_OK;
    default:
        return PLASMON_OK; /* PEER_UP, and what a newer store may say */
    }
}

static plasmon_status_t receive_blocking(struct worker_shared *shared,
                                         struct store_control *message, struct pl_err *err)
{
    size_t bytes      = sizeof(*message);
    unsigned fd_count = PL_FD_MAX_PER_MESSAGE;
    int fds[PL_FD_MAX_PER_MESSAGE];
    struct pl_err why = {.status = PLASMON_OK};
    plasmon_status_t status;

    memset(message, 0, sizeof(*message));
    status = pl_fd_recv(shared->control_fd, message, &bytes, fds, &fd_count);

    if (status != PLASMON_OK && status != PLASMON_EMALFORMED) {
        return pl_err_set(err, status, "control socket: %s",
                          status == PLASMON_ELIMIT ? PL_FD_NONE_LEFT
                                                   : pl_status_text(status));
    }
    message->text[sizeof(message->text) - 1] = '\0';
    status = store_control_check(message, bytes, status != PLASMON_OK, &why);
    if (status != PLASMON_OK) {
        (void)pl_err_set(err, status, "plasmon-store of this host: %s", why.text);
    } else {
        worker_handback_note(&shared->handback, message, fds, fd_count);
        status = message_take(shared, message, fds, fd_count);
        if (status != PLASMON_OK) {
            (void)pl_err_set(err, status, "control message %u, part %u: %s", message->type,
                             message->part, pl_status_text(status));
        }
    }
    for (unsigned i = 0; i < fd_count; i++) {
        pl_fd_close(&fds[i]);
    }
    return status;
}

plasmon_status_t worker_shared_receive(struct worker_shared *shared, struct pl_err *err)
{
    struct store_control message;
    plasmon_status_t status = PLASMON_ECLOSED;
    struct pollfd poll_fd;

    if (shared->control_fd >= 0) {
        poll_fd = (struct pollfd){.fd = shared->control_fd, .events = POLLIN};
        if (poll(&poll_fd, 1, 0) <= 0) {
            return PLASMON_EAGAIN;
        }
        status = receive_blocking(shared, &message, err);
        if (status == PLASMON_ECLOSED && store_may_come(shared)) {
            pl_fd_close(&shared->control_fd);
        }
    }
    if (status == PLASMON_ECLOSED && shared->control_fd < 0) {
        status = worker_handback_try(&shared->handback, shared->host_device,
                                     shared->host_device_count, &shared->control_fd);
        if (status != PLASMON_OK) {
            return pl_err_set(err, status, "there is no store");
        }
    }
    return status;
}

plasmon_status_t worker_shared_await_begin(struct worker_shared *shared,
                                           uint32_t *out_incarnation, struct pl_err *err)
{
    struct store_control message;
    plasmon_status_t status = receive_blocking(shared, &message, err);

    if (status == PLASMON_OK &&
        (message.type != STORE_CONTROL_BEGIN || message.reader == 0)) {
        status = pl_err_set(err, PLASMON_EMALFORMED,
                            "a spare worker was sent control message %u before its turn",
                            message.type);
    }
    if (status == PLASMON_OK) {
        *out_incarnation = message.reader;
    }
    return status;
}

plasmon_status_t worker_shared_receive_setup(struct worker_shared *shared,
                                             struct pl_err *err)
{
    struct store_control message;
    plasmon_status_t status;

    do {
        status = receive_blocking(shared, &message, err);
    } while (status == PLASMON_OK &&
             (message.type != STORE_CONTROL_SETUP || message.part != STORE_PART_DONE));
    if (status != PLASMON_OK) {
        return status;
    }
    for (uint32_t i = 0; i < shared->host_device_count; i++) {
        if (shared->timelines[i] == NULL || shared->tables[i] == NULL ||
            shared->slabs[i] == NULL || shared->doorbells[i] < 0 ||
            shared->timelines[i]->magic != STORE_TIMELINE_MAGIC ||
            shared->tables[i]->magic != STORE_TABLE_MAGIC) {
            return pl_err_set(err, PLASMON_EMALFORMED,
                              "the store did not hand over all of device %u", i);
        }
    }
    return PLASMON_OK;
}
