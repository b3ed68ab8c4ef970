/*
 * The host's shared memory, from the client's side: buffers that are pinned, mapped or written, and lanes. See shared.h.
 *
 * A table is written by another process, so each entry that is used is a checked copy.
 */
#include "client/shared_int.h"

#include <poll.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"

#define KIND_CPU         1u /* enum device_kind */
#define SETUP_TIMEOUT_NS 10000000000ull
#define CHUNK_TIMEOUT_NS 10000000000ull
#define LANE_AGAIN_NS    1000000000ull /* how often to ask a store that had none left */

plasmon_status_t shared_init(struct shared *shared)
{
    *shared = (struct shared){.control_fd = -1, .head_fd = -1};
    return pl_mutex_init(&shared->lock, PL_RANK_STORE);
}

void shared_abandon(struct shared *shared)
{
    for (uint32_t i = 0; i < STORE_HOST_DEVICE_MAX; i++) {
        chunks_destroy(shared->chunks[i]);
        shared->chunks[i] = NULL;
        lane_destroy(shared->lanes[i]);
        shared->lanes[i] = NULL;
    }
    for (uint32_t i = 0; i < shared->device_count; i++) {
        if (shared->tables[i] != NULL) {
            pl_fd_unmap((void *)shared->tables[i], shared->table_bytes);
        }
    }
    if (shared->pins != NULL) {
        pl_fd_unmap(shared->pins, shared->pins_bytes);
    }
    pl_fd_close(&shared->head_fd);
    pl_fd_close(&shared->control_fd);
}

void shared_finish(struct shared *shared)
{
    shared_abandon(shared);
    pl_mutex_finish(&shared->lock);
}

void shared_adopt(struct shared *shared, int control_fd)
{
    pl_mutex_lock(&shared->lock);
    shared->control_fd = control_fd;
    pl_mutex_unlock(&shared->lock);
}

/* ------------------------------------------------------------------------------------------------ set-up */

static plasmon_status_t ensure_locked(struct shared *shared, const char *path,
                                      struct pl_err *err)
{
    uint64_t deadline_ns    = pl_now_ns() + SETUP_TIMEOUT_NS;
    plasmon_status_t status = PLASMON_OK;

    if (shared->ready) {
        return PLASMON_OK;
    }
    if (shared->control_fd < 0) {
        if (path == NULL || path[0] == '\0') {
            return pl_err_set(err, PLASMON_EUNREACHABLE,
                              "no plasmon-store of the cluster runs on this host");
        }
        status = shared_control_connect(path, &shared->control_fd, err);
    }
    if (status == PLASMON_OK) {
        status = shared_control_send(
            shared, (struct store_control){.type = STORE_CONTROL_CLIENT_HELLO}, err);
    }
    while (status == PLASMON_OK && !shared->ready) {
        status = shared_control_step(shared, deadline_ns, err);
    }
    return status;
}

plasmon_status_t shared_ensure(struct shared *shared, const char *path, struct pl_err *err)
{
    plasmon_status_t status;

    pl_mutex_lock(&shared->lock);
    status = ensure_locked(shared, path, err);
    pl_mutex_unlock(&shared->lock);
    return status;
}

plasmon_status_t shared_take_head_fd(struct shared *shared, bool ask, uint64_t deadline_ns,
                                     int *out_fd, struct pl_err *err)
{
    plasmon_status_t status = PLASMON_OK;

    pl_mutex_lock(&shared->lock);
    if (ask && shared->head_fd < 0) {
        status = shared_control_send(
            shared, (struct store_control){.type = STORE_CONTROL_NEW_HEAD_FD}, err);
    }
    while (status == PLASMON_OK && shared->head_fd < 0) {
        status = shared_control_step(shared, deadline_ns, err);
    }
    if (status == PLASMON_OK) {
        *out_fd         = shared->head_fd;
        shared->head_fd = -1;
    }
    pl_mutex_unlock(&shared->lock);
    return status;
}

/* ------------------------------------------------------------------------------------------------ chunks */

static plasmon_status_t chunk_ask_locked(struct shared *shared, uint32_t host_device,
                                         uint32_t id, struct pl_err *err)
{
    return shared_control_send(shared,
                               (struct store_control){.type = STORE_CONTROL_GET_CHUNK,
                                                      .host_device = host_device,
                                                      .chunk_id    = id},
                               err);
}

/* Address of [offset, offset + bytes) of the device's arena in this process. */
static plasmon_status_t locate_locked(struct shared *shared, uint32_t host_device,
                                      uint64_t offset, uint64_t bytes, bool must_write,
                                      void **out_data, struct pl_err *err)
{
    uint64_t deadline_ns    = pl_now_ns() + CHUNK_TIMEOUT_NS;
    uint32_t asked          = UINT32_MAX;
    plasmon_status_t status = PLASMON_OK;
    uint32_t id;

    if (shared->chunks[host_device] == NULL) {
        status =
            chunks_create(shared->tables[host_device], &shared->chunks[host_device], err);
    }
    while (status == PLASMON_OK) {
        status = chunks_locate(shared->chunks[host_device], offset, bytes, must_write,
                               out_data, &id, err);
        if (status != PLASMON_EAGAIN) {
            return status;
        }
        status = id == asked ? PLASMON_OK : chunk_ask_locked(shared, host_device, id, err);
        asked  = id;
        if (status == PLASMON_OK) {
            status = shared_control_step(shared, deadline_ns, err);
        }
    }
    return status;
}

static plasmon_status_t check_device_locked(const struct shared *shared,
                                            uint32_t host_device, uint32_t slot, bool map,
                                            struct pl_err *err)
{
    if (!shared->ready || host_device >= shared->device_count ||
        (map && shared->tables[host_device]->kind != KIND_CPU)) {
        return pl_err_set(err, PLASMON_EUNREACHABLE,
                          "memory of device %u of this host cannot be mapped here",
                          host_device);
    }
    if (slot >= STORE_TABLE_SLOTS) {
        return pl_err_set(err, PLASMON_EMALFORMED, "there is no slot %u", slot);
    }
    return PLASMON_OK;
}

bool shared_serves(struct shared *shared, uint32_t host_device, uint32_t index)
{
    uint64_t said = 0;

    pl_mutex_lock(&shared->lock);
    if (shared->ready && host_device < shared->device_count) {
        said = __atomic_load_n(&shared->tables[host_device]->device, __ATOMIC_RELAXED);
    }
    pl_mutex_unlock(&shared->lock);
    return said == 0 || said == index + 1ull;
}

/*
 * The head tells of a buffer when its worker reported it, so what is missing is a store of another core on its way here:
 * back off gently, from a spin to a tenth of a millisecond.
 */
static bool back_off(unsigned *io_round, uint64_t deadline_ns)
{
    struct timespec pause = {.tv_nsec = 20000};

    if (pl_now_ns() >= deadline_ns) {
        return false;
    }
    if (++*io_round > 50) {
        pause.tv_nsec = 100000;
    }
    if (*io_round > 5) {
        (void)nanosleep(&pause, NULL);
    }
    return true;
}

static plasmon_status_t pin(struct shared *shared, uint32_t host_device, uint32_t slot,
                            uint32_t generation, bool map, uint64_t deadline_ns,
                            struct shared_pin *out_pin, struct pl_err *err)
{
    unsigned round = 0;
    plasmon_status_t status;

    pl_mutex_lock(&shared->lock);
    status = check_device_locked(shared, host_device, slot, map, err);
    pl_mutex_unlock(&shared->lock);
    if (status != PLASMON_OK) {
        return status;
    }

    do { /* tables and pins never change once ready: no lock, so that one slow buffer does not hold up others */
        status = store_table_pin(shared->tables[host_device], slot, generation,
                                 shared->pins, &out_pin->entry, &out_pin->pin);
    } while (status == PLASMON_EAGAIN && back_off(&round, deadline_ns));
    if (status != PLASMON_OK) {
        return pl_err_set(err, status == PLASMON_EAGAIN ? PLASMON_ETIMEDOUT : status,
                          status == PLASMON_ELIMIT
                              ? "too many mappings: unmap some (limit %u)"
                              : "the buffer could not be pinned (limit of pins %u)",
                          STORE_PIN_MAX);
    }
    out_pin->data = NULL;
    return PLASMON_OK;
}

plasmon_status_t shared_hold(struct shared *shared, uint32_t host_device, uint32_t slot,
                             uint32_t generation, uint64_t deadline_ns,
                             struct shared_pin *out_pin, struct pl_err *err)
{
    return pin(shared, host_device, slot, generation, false, deadline_ns, out_pin, err);
}

plasmon_status_t shared_pin(struct shared *shared, uint32_t host_device, uint32_t slot,
                            uint32_t generation, uint64_t deadline_ns,
                            struct shared_pin *out_pin, struct pl_err *err)
{
    void *data = NULL;
    plasmon_status_t status =
        pin(shared, host_device, slot, generation, true, deadline_ns, out_pin, err);

    if (status != PLASMON_OK) {
        return status;
    }
    pl_mutex_lock(&shared->lock);
    status = locate_locked(shared, host_device, out_pin->entry.offset, out_pin->entry.bytes,
                           false, &data, err);
    pl_mutex_unlock(&shared->lock);
    if (status != PLASMON_OK) {
        store_table_unpin(shared->pins, out_pin->pin);
        return status;
    }
    out_pin->data = data;
    return PLASMON_OK;
}

void shared_unpin(struct shared *shared, const struct shared_pin *pin)
{
    store_table_unpin(shared->pins, pin->pin);
}

/* A copy of an entry that is being written by us: state WRITING, our generation, and right. */
static bool entry_is_ours(const struct store_table *table, uint32_t slot,
                          uint32_t generation, struct store_entry *out)
{
    const struct store_entry *entry = &table->entries[slot];

    /* acquire: pairs with the release in store_table_alloc(); the fields before it are right */
    if (atomic_load_explicit(&entry->state, memory_order_acquire) != STORE_WRITING) {
        return false;
    }
    memcpy(out, entry, sizeof(*out));
    return (out->generation & 0xffffffu) == (generation & 0xffffffu) &&
           out->checksum == store_entry_checksum(out) &&
           (out->flags & STORE_ENTRY_CLIENT_WRITES) != 0;
}

plasmon_status_t shared_writable(struct shared *shared, uint32_t host_device, uint32_t slot,
                                 uint32_t generation, uint64_t bytes, uint64_t deadline_ns,
                                 void **out_data, struct pl_err *err)
{
    struct store_entry entry;
    unsigned round = 0;
    plasmon_status_t status;

    pl_mutex_lock(&shared->lock);
    status = check_device_locked(shared, host_device, slot, true, err);
    pl_mutex_unlock(&shared->lock);
    if (status != PLASMON_OK) {
        return status;
    }
    while (!entry_is_ours(shared->tables[host_device], slot, generation, &entry)) {
        if (!back_off(&round, deadline_ns)) {
            return pl_err_set(err, PLASMON_ETIMEDOUT,
                              "the buffer of a put did not appear in its device's table");
        }
    }
    if (entry.bytes < bytes) {
        return pl_err_set(err, PLASMON_EMALFORMED,
                          "the buffer of a put has %llu bytes, not %llu",
                          (unsigned long long)entry.bytes, (unsigned long long)bytes);
    }

    pl_mutex_lock(&shared->lock);
    status = locate_locked(shared, host_device, entry.offset, bytes, true, out_data, err);
    pl_mutex_unlock(&shared->lock);
    return status;
}

/* ------------------------------------------------------------------------------------------------ lanes */

static plasmon_status_t lane_ask_locked(struct shared *shared, uint32_t host_device,
                                        struct pl_err *err)
{
    uint64_t deadline_ns = pl_now_ns() + CHUNK_TIMEOUT_NS;
    plasmon_status_t status;

    if (shared->lane_refused_ns != 0 &&
        pl_now_ns() - shared->lane_refused_ns < LANE_AGAIN_NS) {
        return pl_err_set(err, PLASMON_EAGAIN, "the store had no lane left a moment ago");
    }
    status = shared_control_send(
        shared,
        (struct store_control){.type = STORE_CONTROL_GET_LANE, .host_device = host_device},
        err);
    while (status == PLASMON_OK && shared->lanes[host_device] == NULL) {
        status = shared_control_step(shared, deadline_ns, err);
    }
    shared->lane_refused_ns = status == PLASMON_EAGAIN ? pl_now_ns() : 0;
    return status;
}

plasmon_status_t shared_lane(struct shared *shared, uint32_t host_device,
                             struct lane **out_lane, struct pl_err *err)
{
    plasmon_status_t status;

    pl_mutex_lock(&shared->lock);
    status = check_device_locked(shared, host_device, 0, false, err);
    if (status == PLASMON_OK && shared->lanes[host_device] == NULL) {
        status = lane_ask_locked(shared, host_device, err);
    }
    if (status == PLASMON_OK) {
        *out_lane = shared->lanes[host_device];
    }
    pl_mutex_unlock(&shared->lock);
    return status;
}

/* ------------------------------------------------------------------------------------------------ host buffers */

plasmon_status_t shared_buffer_take(struct shared *shared, uint64_t bytes,
                                    uint64_t deadline_ns, uint64_t *out_id, void **out_data,
                                    struct pl_err *err)
{
    plasmon_status_t status;

    pl_mutex_lock(&shared->lock);
    shared->buffer_data  = NULL;
    shared->buffer.bytes = bytes;
    status =
        shared_control_send(shared,
                            (struct store_control){.type = STORE_CONTROL_GET_HOST_BUFFER,
                                                   .chunk_id = ++shared->buffer_request,
                                                   .bytes    = bytes},
                            err);
    while (status == PLASMON_OK && shared->buffer_data == NULL) {
        status = shared_control_step(shared, deadline_ns, err);
    }
    if (status == PLASMON_OK) {
        *out_id   = shared->buffer.id;
        *out_data = shared->buffer_data;
    }
    shared->buffer_request++; /* what may still come is nobody's */
    pl_mutex_unlock(&shared->lock);
    return status;
}

void shared_buffer_drop(struct shared *shared, uint64_t id)
{
    struct store_control drop = {.type = STORE_CONTROL_HOST_BUFFER_DROP, .offset = id};
    struct pl_err err         = {0};

    pl_mutex_lock(&shared->lock);
    if (shared_control_send(shared, drop, &err) != PLASMON_OK) {
        pl_debug("client", "host memory: %s", err.text); /* which has dropped it, then */
    }
    pl_mutex_unlock(&shared->lock);
}

bool shared_store_gone(struct shared *shared)
{
    struct pollfd poller = {.events = 0}; /* POLLHUP and POLLERR come unasked */

    pl_mutex_lock(&shared->lock);
    poller.fd = shared->control_fd;
    pl_mutex_unlock(&shared->lock);
    return poller.fd < 0 || (poll(&poller, 1, 0) > 0 && poller.revents != 0);
}
