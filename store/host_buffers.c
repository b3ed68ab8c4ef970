#include "store/host_buffers.h"

#include <sys/random.h>

#include "base/alloc.h"
#include "base/fd.h"

#define PAGE_BYTES 4096u

static struct store_host_buffer *buffer_at(const struct store_host *host, size_t i)
{
    return *(struct store_host_buffer *const *)pl_vec_at(&host->buffers, i);
}

static struct store_host_buffer *buffer_find(const struct store_host *host, uint64_t id,
                                             size_t *out_index)
{
    for (size_t i = 0; i < host->buffers.count; i++) {
        if (buffer_at(host, i)->id == id) {
            *out_index = i;
            return buffer_at(host, i);
        }
    }
    return NULL;
}

struct store_host_buffer *store_host_buffers_find(const struct store_host *host,
                                                  uint64_t id)
{
    size_t index;
    struct store_host_buffer *buffer = buffer_find(host, id, &index);

    return buffer != NULL && buffer->fd >= 0 ? buffer : NULL;
}

const struct store_host_buffer *store_host_buffers_at(const struct store_host *host,
                                                      size_t i)
{
    return i < host->buffers.count ? buffer_at(host, i) : NULL;
}

/* --------------------------------------------------------------------------------- make */

/* Of the limit for clients. */
static uint64_t counted_bytes(const struct store_host_buffer *buffer)
{
    return buffer->reader == STORE_HOST_BUFFER_SPILL ? 0 : buffer->bytes;
}

static uint64_t bytes_dropping(const struct store_host *host)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < host->buffers.count; i++) {
        bytes += buffer_at(host, i)->fd < 0 ? counted_bytes(buffer_at(host, i)) : 0;
    }
    return bytes;
}

/* EAGAIN: there will be room when what is being dropped is gone. */
static plasmon_status_t limit_check(const struct store_host *host, uint64_t bytes,
                                    struct pl_err *err)
{
    uint64_t leaving = bytes_dropping(host), used = host->buffer_bytes;
    char want_text[32], used_text[32], limit_text[32], leaving_text[32];

    if (bytes == 0) {
        return pl_err_set(err, PLASMON_EINVAL, "a host buffer of 0 bytes");
    }
    if (host->buffers.count >= STORE_HOST_BUFFERS_MAX) {
        return pl_err_set(err, PLASMON_ELIMIT,
                          "this host has %u host buffers already; take few large ones",
                          STORE_HOST_BUFFERS_MAX);
    }
    if (used <= host->buffer_bytes_max && bytes <= host->buffer_bytes_max - used) {
        return PLASMON_OK;
    }
    used -= leaving;
    return pl_err_set(
        err,
        used <= host->buffer_bytes_max && bytes <= host->buffer_bytes_max - used
            ? PLASMON_EAGAIN
            : PLASMON_ELIMIT,
        "host memory of %s: of the %s that clients of this host may page-lock %s are in "
        "use%s%s%s; ask for less, free some, or give more (--host-memory of plasmon-store, "
        "options.host_memory of a private cluster)",
        pl_format_bytes(bytes, want_text),
        pl_format_bytes(host->buffer_bytes_max, limit_text),
        pl_format_bytes(used, used_text), leaving > 0 ? ", and " : "",
        leaving > 0 ? pl_format_bytes(leaving, leaving_text) : "",
        leaving > 0 ? " were freed but their devices have been too busy to let go of them"
                    : "");
}

static uint64_t number_draw(const struct store_host *host)
{
    uint64_t id = 0;
    size_t index;

    while (id == 0 || buffer_find(host, id, &index) != NULL) {
        if (getrandom(&id, sizeof(id), 0) != (ssize_t)sizeof(id)) {
            return 0;
        }
    }
    return id;
}

plasmon_status_t store_host_buffers_make(struct store_host *host, uint32_t reader,
                                         uint32_t request, uint64_t bytes, uint64_t workers,
                                         struct store_host_buffer **out_buffer,
                                         struct pl_err *err)
{
    struct store_host_buffer *buffer, **place;
    plasmon_status_t status;

    if (bytes <= UINT64_MAX - PAGE_BYTES) { /* beyond, it is over every limit */
        bytes = pl_round_up(bytes, PAGE_BYTES);
    }
    status = reader == STORE_HOST_BUFFER_SPILL ? PLASMON_OK : limit_check(host, bytes, err);
    if (status != PLASMON_OK) {
        return status;
    }
    buffer = PL_NEW(struct store_host_buffer);
    place  = buffer != NULL ? pl_vec_push(&host->buffers) : NULL;
    if (place == NULL) {
        pl_free(buffer);
        return pl_err_set(err, PLASMON_ENOMEM, "out of host memory");
    }
    *place  = buffer;
    *buffer = (struct store_host_buffer){.id      = number_draw(host),
                                         .bytes   = bytes,
                                         .fd      = -1,
                                         .reader  = reader,
                                         .request = request,
                                         .asked   = workers,
                                         .holders = workers,
                                         .counted = workers};
    status =
        buffer->id != 0 ? pl_memfd_create("plasmon-host", bytes, &buffer->fd) : PLASMON_EIO;
    if (status != PLASMON_OK) {
        pl_vec_pop(&host->buffers);
        pl_free(buffer);
        return pl_err_set(err, status, "host memory of %llu bytes: %s",
                          (unsigned long long)bytes, pl_status_text(status));
    }
    host->buffer_bytes += counted_bytes(buffer);
    *out_buffer = buffer;
    return PLASMON_OK;
}

plasmon_status_t store_host_buffers_keep(struct store_host *host, uint32_t device,
                                         uint64_t id, uint64_t bytes, uint32_t reader,
                                         int fd)
{
    struct store_host_buffer *buffer, **place;
    size_t index;

    buffer = buffer_find(host, id, &index);
    if (buffer != NULL) {
        pl_fd_close(&fd);
        buffer->holders |= UINT64_C(1) << device;
        return buffer->bytes == bytes ? PLASMON_OK : PLASMON_EMALFORMED;
    }
    if (!pl_fd_holds(fd, bytes)) {
        pl_fd_close(&fd);
        return PLASMON_EMALFORMED;
    }
    buffer = PL_NEW(struct store_host_buffer);
    place  = buffer != NULL ? pl_vec_push(&host->buffers) : NULL;
    if (place == NULL) {
        pl_free(buffer);
        pl_fd_close(&fd);
        return PLASMON_ENOMEM;
    }
    *place  = buffer;
    *buffer = (struct store_host_buffer){.id      = id,
                                         .bytes   = bytes,
                                         .fd      = fd,
                                         .reader  = reader,
                                         .given   = true,
                                         .holders = UINT64_C(1) << device};
    host->buffer_bytes += counted_bytes(buffer);
    return PLASMON_OK;
}

void store_host_buffers_ask(struct store_host_buffer *buffer, uint64_t workers)
{
    buffer->asked |= workers;
    buffer->holders |= workers;
    buffer->counted |= workers;
    buffer->given = false;
}

/* ------------------------------------------------------------------------------ answers */

void store_host_buffers_said(struct store_host *host, uint32_t device, uint64_t id,
                             uint64_t locked, plasmon_status_t status)
{
    size_t index;
    struct store_host_buffer *buffer = buffer_find(host, id, &index);
    uint64_t bit                     = UINT64_C(1) << device;

    if (buffer == NULL || (buffer->asked & bit) == 0) {
        return; /* of its set-up, or dropped meanwhile */
    }
    if (status == PLASMON_OK && locked == 0) {
        locked = buffer->bytes; /* a worker of another version, which says it once */
    }
    buffer->locked[device] = pl_min_u64(locked, buffer->bytes);
    if (status == PLASMON_OK && locked < buffer->bytes) {
        return;
    }
    buffer->asked &= ~bit;
    if (status != PLASMON_OK && buffer->failed == PLASMON_OK) {
        buffer->failed        = status;
        buffer->failed_device = device;
    }
}

uint64_t store_host_buffers_usable(const struct store_host_buffer *buffer)
{
    uint64_t bytes = buffer->bytes;

    for (uint32_t i = 0; i < PL_COUNT(buffer->locked); i++) {
        if ((buffer->counted & UINT64_C(1) << i) != 0) {
            bytes = pl_min_u64(bytes, buffer->locked[i]);
        }
    }
    return bytes;
}

struct store_host_buffer *store_host_buffers_decided(struct store_host *host)
{
    for (size_t i = 0; i < host->buffers.count; i++) {
        struct store_host_buffer *buffer = buffer_at(host, i);

        if (buffer->given || buffer->fd < 0) {
            continue;
        }
        if (buffer->asked == 0) {
            buffer->given = true;
            return buffer;
        }
        if (buffer->reader == STORE_HOST_BUFFER_SPILL &&
            store_host_buffers_usable(buffer) > buffer->told) {
            buffer->told = store_host_buffers_usable(buffer);
            return buffer;
        }
    }
    return NULL;
}

/* ------------------------------------------------------------------------------ the end */

/* It counts until nobody has it: page-locked memory does not go while a worker holds it. */
static void buffer_reap(struct store_host *host, size_t index)
{
    struct store_host_buffer *buffer = buffer_at(host, index);

    if (buffer->fd < 0 && buffer->holders == 0) {
        host->buffer_bytes -= counted_bytes(buffer);
        pl_vec_remove_unordered(&host->buffers, index);
        pl_free(buffer);
    }
}

void store_host_buffers_drop(struct store_host *host, struct store_host_buffer *buffer)
{
    size_t index;

    pl_fd_close(&buffer->fd);
    buffer->asked = 0;
    PL_CHECK(buffer_find(host, buffer->id, &index) == buffer);
    buffer_reap(host, index);
}

void store_host_buffers_handed(struct store_host *host, uint32_t device)
{
    for (size_t i = 0; i < host->buffers.count; i++) {
        if (buffer_at(host, i)->fd >= 0) {
            buffer_at(host, i)->holders |= UINT64_C(1) << device;
        }
    }
}

void store_host_buffers_gone(struct store_host *host, uint32_t device, uint64_t id)
{
    size_t index;
    struct store_host_buffer *buffer = buffer_find(host, id, &index);

    if (buffer != NULL && buffer->fd < 0) {
        buffer->holders &= ~(UINT64_C(1) << device);
        buffer_reap(host, index);
    }
}

void store_host_buffers_silent(struct store_host *host, uint32_t device)
{
    for (size_t i = 0; i < host->buffers.count; i++) {
        buffer_at(host, i)->asked &= ~(UINT64_C(1) << device);
        buffer_at(host, i)->counted &= ~(UINT64_C(1) << device);
    }
}

void store_host_buffers_down(struct store_host *host, uint32_t device)
{
    for (size_t i = host->buffers.count; i-- > 0;) {
        buffer_at(host, i)->asked &= ~(UINT64_C(1) << device);
        buffer_at(host, i)->holders &= ~(UINT64_C(1) << device);
        buffer_at(host, i)->counted &= ~(UINT64_C(1) << device);
        buffer_reap(host, i);
    }
}

void store_host_buffers_finish(struct store_host *host)
{
    for (size_t i = 0; i < host->buffers.count; i++) {
        pl_fd_close(&buffer_at(host, i)->fd);
        pl_free(buffer_at(host, i));
    }
    pl_vec_finish(&host->buffers);
}
