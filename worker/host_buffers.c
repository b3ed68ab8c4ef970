#include "worker/host_buffers.h"

#include <string.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "base/log.h"

enum host_buffer_state { BUFFER_REGISTERING, BUFFER_READY, BUFFER_FAILED };

struct worker_host_buffer {
    uint64_t id;
    uint64_t bytes;
    void *memory;
    /* bytes from the beginning; release by the thread, acquire by who names them */
    _Atomic uint64_t locked;
    uint64_t told; /* .. that the store knows of */
    enum host_buffer_state state;
    bool dropping;           /* or to be dropped as soon as the thread is through with it */
    struct pl_list link;     /* jobs, over or drops */
    plasmon_status_t status; /* of the thread's job */
    struct worker_host_buffers *buffers;
};

/* --------------------------------------------------------------------------- the thread */

static struct worker_host_buffer *job_take(struct worker_host_buffers *buffers)
{
    struct worker_host_buffer *buffer = NULL;

    pl_mutex_lock(&buffers->lock);
    while (!buffers->stop && pl_list_empty(&buffers->jobs)) {
        pl_cond_wait(&buffers->changed, &buffers->lock);
    }
    if (!buffers->stop) {
        buffer = pl_list_first(&buffers->jobs, struct worker_host_buffer, link);
        pl_list_remove(&buffer->link);
    }
    pl_mutex_unlock(&buffers->lock);
    return buffer;
}

static void piece_locked(void *user, uint64_t bytes)
{
    struct worker_host_buffer *buffer = user;

    atomic_store_explicit(&buffer->locked, bytes, memory_order_release);
    if (bytes < buffer->bytes) { /* else the job is over, which is told */
        atomic_store(&buffer->buffers->progress, true);
        pl_fd_raise(buffer->buffers->wake_fd);
    }
}

static void *thread_main(void *user)
{
    struct worker_host_buffers *buffers = user;
    struct worker_host_buffer *buffer;

    while ((buffer = job_take(buffers)) != NULL) {
        buffer->status = device_host_register_told(buffers->device, buffer->memory,
                                                   buffer->bytes, piece_locked, buffer);
        pl_mutex_lock(&buffers->lock);
        pl_list_add_tail(&buffers->over, &buffer->link);
        atomic_fetch_add(&buffers->over_count, 1);
        pl_cond_broadcast(&buffers->changed);
        pl_mutex_unlock(&buffers->lock);
        pl_fd_raise(buffers->wake_fd);
    }
    return NULL;
}

/* --------------------------------------------------------------------------------- life */

plasmon_status_t worker_host_buffers_init(struct worker_host_buffers *buffers,
                                          struct device *device,
                                          struct worker_shared *shared, int wake_fd)
{
    plasmon_status_t status;

    memset(buffers, 0, sizeof(*buffers));
    buffers->device  = device;
    buffers->shared  = shared;
    buffers->wake_fd = wake_fd;
    pl_map_init(&buffers->by_id);
    pl_list_init(&buffers->drops);
    pl_list_init(&buffers->jobs);
    pl_list_init(&buffers->over);
    status = pl_mutex_init(&buffers->lock, PL_RANK_KERNELS);
    if (status != PLASMON_OK) {
        return status;
    }
    status = pl_cond_init(&buffers->changed);
    if (status != PLASMON_OK) {
        pl_mutex_finish(&buffers->lock);
    }
    return status;
}

static void buffer_destroy(struct worker_host_buffers *buffers,
                           struct worker_host_buffer *buffer)
{
    (void)pl_map_remove(&buffers->by_id, buffer->id);
    pl_list_remove(&buffer->link);
    if (atomic_load(&buffer->locked) > 0) {
        device_host_unregister(buffers->device, buffer->memory);
    }
    pl_fd_unmap(buffer->memory, buffer->bytes);
    pl_free(buffer);
}

void worker_host_buffers_finish(struct worker_host_buffers *buffers)
{
    size_t index = 0;
    uint64_t id;
    void *value;

    if (buffers->started) {
        pl_mutex_lock(&buffers->lock);
        buffers->stop = true;
        pl_cond_broadcast(&buffers->changed);
        pl_mutex_unlock(&buffers->lock);
        (void)pthread_join(buffers->thread, NULL); /* it is ours, and was started */
    }
    while (pl_map_next(&buffers->by_id, &index, &id, &value)) {
        buffer_destroy(buffers, value);
        index = 0;
    }
    pl_map_finish(&buffers->by_id);
    pl_cond_finish(&buffers->changed);
    pl_mutex_finish(&buffers->lock);
}

/* ------------------------------------------------------------------ what the store says */

static plasmon_status_t thread_start(struct worker_host_buffers *buffers)
{
    if (!buffers->started) {
        buffers->started =
            pthread_create(&buffers->thread, NULL, thread_main, buffers) == 0;
    }
    return buffers->started ? PLASMON_OK : PLASMON_ELIMIT;
}

static plasmon_status_t buffer_add(struct worker_host_buffers *buffers,
                                   const struct worker_shared_buffer *given)
{
    struct worker_host_buffer *buffer;
    plasmon_status_t status;

    if (given->id == 0 || given->bytes == 0) {
        return PLASMON_EMALFORMED;
    }
    buffer = PL_NEW(struct worker_host_buffer);
    if (buffer == NULL) {
        return PLASMON_ENOMEM;
    }
    buffer->id      = given->id;
    buffer->bytes   = given->bytes;
    buffer->buffers = buffers;
    buffer->status  = PLASMON_EINTERNAL; /* until the thread says something else */
    pl_list_init(&buffer->link);
    status = pl_fd_map(given->fd, given->bytes, 1, &buffer->memory);
    if (status != PLASMON_OK) {
        goto err_free;
    }
    status = thread_start(buffers);
    if (status == PLASMON_OK) {
        status = pl_map_set(&buffers->by_id, buffer->id, buffer);
    }
    if (status != PLASMON_OK) {
        goto err_unmap;
    }
    pl_mutex_lock(&buffers->lock);
    pl_list_add_tail(&buffers->jobs, &buffer->link);
    pl_cond_broadcast(&buffers->changed);
    pl_mutex_unlock(&buffers->lock);
    return PLASMON_OK;

err_unmap:
    pl_fd_unmap(buffer->memory, buffer->bytes);
err_free:
    pl_free(buffer);
    return status;
}

/* locked: READY: so much of it, from the beginning. */
static plasmon_status_t say(struct worker_host_buffers *buffers, uint32_t type, uint64_t id,
                            uint64_t locked, plasmon_status_t said)
{
    struct store_control message = {
        .type = type, .offset = id, .bytes = locked, .status = (int32_t)said};

    return worker_shared_send(buffers->shared, &message, -1);
}

static plasmon_status_t buffer_drop(struct worker_host_buffers *buffers, uint64_t id)
{
    struct worker_host_buffer *buffer = pl_map_get(&buffers->by_id, id);

    if (buffer == NULL) { /* it could not even be mapped */
        return say(buffers, STORE_CONTROL_HOST_BUFFER_GONE, id, 0, PLASMON_OK);
    }
    if (!buffer->dropping) {
        buffer->dropping = true;
        if (buffer->state != BUFFER_REGISTERING) {
            pl_list_add_tail(&buffers->drops, &buffer->link);
        }
    }
    return PLASMON_OK;
}

/* A store that took over asks how far we are. With nothing yet, the first piece will be told. */
static plasmon_status_t buffer_again(struct worker_host_buffers *buffers,
                                     struct worker_host_buffer *buffer, uint64_t bytes)
{
    bool registering = buffer->state == BUFFER_REGISTERING;
    uint64_t locked  = atomic_load(&buffer->locked);

    if (bytes != buffer->bytes) {
        return PLASMON_EMALFORMED;
    }
    if (buffer->dropping) { /* the store before wanted that, and did not tell everybody */
        return say(buffers, STORE_CONTROL_HOST_BUFFER_READY, buffer->id, 0, PLASMON_ENOMEM);
    }
    if (registering && (locked == 0 || locked == buffer->bytes)) {
        return PLASMON_OK; /* what comes next is told in any case */
    }
    buffer->told = locked;
    return say(buffers, STORE_CONTROL_HOST_BUFFER_READY, buffer->id, locked,
               registering ? PLASMON_OK : buffer->status);
}

plasmon_status_t worker_host_buffers_take(struct worker_host_buffers *buffers,
                                          struct pl_err *err)
{
    struct pl_vec *given    = &buffers->shared->buffers;
    plasmon_status_t status = PLASMON_OK;

    for (size_t i = 0; i < given->count; i++) {
        struct worker_shared_buffer *one = pl_vec_at(given, i);
        struct worker_host_buffer *known = pl_map_get(&buffers->by_id, one->id);

        if (status == PLASMON_OK && one->fd < 0) {
            status = buffer_drop(buffers, one->id);
        } else if (status == PLASMON_OK && known != NULL) {
            status = buffer_again(buffers, known, one->bytes);
        } else if (status == PLASMON_OK) {
            status = buffer_add(buffers, one);
            if (status != PLASMON_OK && status != PLASMON_EMALFORMED) {
                /* There is no room for it: its client does without, and everybody else goes on. */
                status = say(buffers, STORE_CONTROL_HOST_BUFFER_READY, one->id, 0, status);
            }
        }
        pl_fd_close(&one->fd);
    }
    pl_vec_clear(given);
    return status == PLASMON_OK
               ? PLASMON_OK
               : pl_err_set(err, status, "host buffers: %s", pl_status_text(status));
}

/* -------------------------------------------------------------------------- what we say */

/* Of those that the thread is at; what it is through with is said below. */
static plasmon_status_t progress_tell(struct worker_host_buffers *buffers)
{
    plasmon_status_t status = PLASMON_OK;
    uint64_t id;
    void *value;

    if (!atomic_exchange(&buffers->progress, false)) {
        return PLASMON_OK;
    }
    for (size_t i = 0;
         status == PLASMON_OK && pl_map_next(&buffers->by_id, &i, &id, &value);) {
        struct worker_host_buffer *buffer = value;
        uint64_t locked                   = atomic_load(&buffer->locked);

        if (buffer->state == BUFFER_REGISTERING && locked > buffer->told &&
            locked < buffer->bytes) {
            buffer->told = locked;
            status = say(buffers, STORE_CONTROL_HOST_BUFFER_READY, id, locked, PLASMON_OK);
        }
    }
    return status;
}

plasmon_status_t worker_host_buffers_tell(struct worker_host_buffers *buffers)
{
    plasmon_status_t status = progress_tell(buffers);

    while (atomic_load(&buffers->over_count) > 0) {
        struct worker_host_buffer *buffer;

        pl_mutex_lock(&buffers->lock);
        buffer = pl_list_first(&buffers->over, struct worker_host_buffer, link);
        pl_list_remove(&buffer->link);
        atomic_fetch_sub(&buffers->over_count, 1);
        pl_mutex_unlock(&buffers->lock);
        buffer->state = buffer->status == PLASMON_OK ? BUFFER_READY : BUFFER_FAILED;
        if (buffer->state == BUFFER_FAILED) {
            pl_warn("worker",
                    "%llu bytes of a host buffer of %llu cannot be page-locked: %s",
                    (unsigned long long)(buffer->bytes - atomic_load(&buffer->locked)),
                    (unsigned long long)buffer->bytes, pl_status_text(buffer->status));
        }
        if (buffer->dropping) {
            pl_list_add_tail(&buffers->drops, &buffer->link);
        }
        if (status == PLASMON_OK) {
            status = say(buffers, STORE_CONTROL_HOST_BUFFER_READY, buffer->id,
                         atomic_load(&buffer->locked), buffer->status);
        }
    }
    return status;
}

plasmon_status_t worker_host_buffers_idle(struct worker_host_buffers *buffers)
{
    plasmon_status_t status = PLASMON_OK;

    while (status == PLASMON_OK && !pl_list_empty(&buffers->drops)) {
        struct worker_host_buffer *buffer =
            pl_list_first(&buffers->drops, struct worker_host_buffer, link);
        uint64_t id = buffer->id;

        buffer_destroy(buffers, buffer);
        status = say(buffers, STORE_CONTROL_HOST_BUFFER_GONE, id, 0, PLASMON_OK);
    }
    return status;
}

/* ----------------------------------------------------------------------------- launches */

static bool inside(uint64_t limit, uint64_t offset, uint64_t bytes)
{
    return bytes <= limit && offset <= limit - bytes;
}

bool worker_host_buffers_locking(const struct worker_host_buffers *buffers, uint64_t id,
                                 uint64_t offset, uint64_t bytes)
{
    struct worker_host_buffer *buffer = pl_map_get(&buffers->by_id, id);

    return buffer != NULL && buffer->state == BUFFER_REGISTERING &&
           inside(buffer->bytes, offset, bytes) &&
           !inside(atomic_load_explicit(&buffer->locked, memory_order_acquire), offset,
                   bytes);
}

void *worker_host_buffers_at(const struct worker_host_buffers *buffers, uint64_t id,
                             uint64_t offset, uint64_t bytes, struct pl_err *err)
{
    struct worker_host_buffer *buffer = pl_map_get(&buffers->by_id, id);

    if (buffer == NULL) {
        (void)pl_err_set(
            err, PLASMON_ENOENT,
            "the host memory that it names is gone: it was freed, or its client "
            "ended");
        return NULL;
    }
    if (!inside(buffer->bytes, offset, bytes)) {
        (void)pl_err_set(err, PLASMON_ERANGE,
                         "%llu bytes from %llu on of %llu bytes of host memory",
                         (unsigned long long)bytes, (unsigned long long)offset,
                         (unsigned long long)buffer->bytes);
        return NULL;
    }
    if (!inside(atomic_load_explicit(&buffer->locked, memory_order_acquire), offset,
                bytes)) {
        (void)pl_err_set(err, PLASMON_ENOMEM,
                         "this device's worker cannot page-lock the %llu bytes of host "
                         "memory: %s",
                         (unsigned long long)buffer->bytes, pl_status_text(buffer->status));
        return NULL;
    }
    return (uint8_t *)buffer->memory + offset;
}
