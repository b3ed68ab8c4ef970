/*
 * The host's shared memory, from the client's side. See shared.h.
 *
 * The store is trusted with descriptors, but its messages are checked all the same: counts, sizes, magic numbers, offsets
 * inside chunks. A table is written by another process, so each entry that is used is a checked copy.
 */
#include "client/shared.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"

#define KIND_CPU         1u /* enum device_kind */
#define SETUP_TIMEOUT_NS 10000000000ull
#define CHUNK_TIMEOUT_NS 10000000000ull
#define LANE_AGAIN_NS    1000000000ull /* how often to ask a store that had none left */

struct shared_chunk {
    uint64_t offset; /* in the arena */
    uint64_t bytes;
    void *data;
};

plasmon_status_t shared_init(struct shared *shared)
{
    *shared = (struct shared){.control_fd = -1, .head_fd = -1};
    pl_map_init(&shared->chunks);
    return pl_mutex_init(&shared->lock, PL_RANK_STORE);
}

void shared_abandon(struct shared *shared)
{
    size_t index = 0;
    uint64_t key;
    void *value;

    while (pl_map_next(&shared->chunks, &index, &key, &value)) {
        struct shared_chunk *chunk = value;

        pl_fd_unmap(chunk->data, chunk->bytes);
        pl_free(chunk);
    }
    pl_map_finish(&shared->chunks);
    for (uint32_t i = 0; i < STORE_HOST_DEVICE_MAX; i++) {
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

/* ------------------------------------------------------------------------------------------------ messages */

static plasmon_status_t control_send(struct shared *shared, struct store_control message,
                                     struct pl_err *err)
{
    plasmon_status_t status;

    message.version = STORE_CONTROL_VERSION;
    status          = pl_fd_send(shared->control_fd, &message, sizeof(message), NULL, 0);
    if (status != PLASMON_OK) {
        return pl_err_set(err, PLASMON_ECLOSED, "plasmon-store of this host is gone");
    }
    return PLASMON_OK;
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
            return pl_err_set(err, PLASMON_ETIMEDOUT,
                              "plasmon-store of this host did not answer in time");
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

    if (status != PLASMON_OK) {
        return status;
    }
    *out_count = PL_FD_MAX_PER_MESSAGE;
    status     = pl_fd_recv(shared->control_fd, out, &bytes, fds, out_count);
    if (status != PLASMON_OK) {
        return pl_err_set(err, PLASMON_ECLOSED, "plasmon-store of this host is gone");
    }
    if (bytes != sizeof(*out) || out->version != STORE_CONTROL_VERSION) {
        close_all(fds, *out_count);
        return pl_err_set(err, PLASMON_EVERSION,
                          "plasmon-store of this host is of another release");
    }
    out->text[sizeof(out->text) - 1] = '\0';
    return PLASMON_OK;
}

/* ------------------------------------------------------------------------------------------------ set-up */

static plasmon_status_t take_tables(struct shared *shared,
                                    const struct store_control *message, const int *fds,
                                    unsigned count, struct pl_err *err)
{
    if (count > STORE_HOST_DEVICE_MAX - shared->device_count ||
        message->bytes < sizeof(struct store_table)) {
        return pl_err_set(err, PLASMON_EMALFORMED,
                          "plasmon-store sent %u tables of %llu bytes", count,
                          (unsigned long long)message->bytes);
    }
    shared->table_bytes = message->bytes;
    for (unsigned i = 0; i < count; i++) {
        void *table;
        plasmon_status_t status = pl_fd_map(fds[i], message->bytes, 0, &table);

        if (status != PLASMON_OK) {
            return pl_err_set(err, status, "cannot map an object table: %s",
                              pl_status_text(status));
        }
        shared->tables[shared->device_count++] = table;
        if (((const struct store_table *)table)->magic != STORE_TABLE_MAGIC) {
            return pl_err_set(err, PLASMON_EVERSION,
                              "an object table is of another release");
        }
    }
    return PLASMON_OK;
}

static plasmon_status_t take_pins(struct shared *shared,
                                  const struct store_control *message, const int *fds,
                                  unsigned count, struct pl_err *err)
{
    void *pins;
    plasmon_status_t status;

    if (count != 1 || message->bytes < sizeof(struct store_pins) || shared->pins != NULL) {
        return pl_err_set(err, PLASMON_EMALFORMED, "plasmon-store sent %u pages of pins",
                          count);
    }
    status = pl_fd_map(fds[0], message->bytes, 1, &pins);
    if (status != PLASMON_OK) {
        return pl_err_set(err, status, "cannot map the page of pins: %s",
                          pl_status_text(status));
    }
    shared->pins       = pins;
    shared->pins_bytes = message->bytes;
    return PLASMON_OK;
}

static plasmon_status_t take_setup(struct shared *shared,
                                   const struct store_control *message, const int *fds,
                                   unsigned count, struct pl_err *err)
{
    switch (message->part) {
    case STORE_PART_TABLES:
        return take_tables(shared, message, fds, count, err);
    case STORE_PART_PINS:
        return take_pins(shared, message, fds, count, err);
    case STORE_PART_DONE:
        shared->ready = shared->pins != NULL;
        return shared->ready ? PLASMON_OK
                             : pl_err_set(err, PLASMON_EMALFORMED,
                                          "plasmon-store sent no page of pins");
    default:
        return PLASMON_OK; /* timelines: a client needs none */
    }
}

static uint64_t chunk_key(uint32_t host_device, uint32_t id, bool writable)
{
    return ((uint64_t)host_device << 33 | (uint64_t)id << 1 | (writable ? 1u : 0u)) + 1;
}

static plasmon_status_t take_chunk(struct shared *shared,
                                   const struct store_control *message, const int *fds,
                                   unsigned count, struct pl_err *err)
{
    bool writable = message->client_writable != 0;
    uint64_t key  = chunk_key(message->host_device, message->chunk_id, writable);
    struct shared_chunk *chunk = PL_NEW(struct shared_chunk);
    plasmon_status_t status;

    if (chunk == NULL) {
        return pl_err_set(err, PLASMON_ENOMEM, "out of host memory");
    }
    if (count != 1 || message->bytes == 0) {
        status = pl_err_set(err, PLASMON_EMALFORMED,
                            "plasmon-store sent a chunk with %u descriptors", count);
        goto err_free;
    }
    status = pl_fd_map(fds[0], message->bytes, writable, &chunk->data);
    if (status != PLASMON_OK) {
        (void)pl_err_set(err, status, "cannot map a chunk of %llu bytes: %s",
                         (unsigned long long)message->bytes, pl_status_text(status));
        goto err_free;
    }
    chunk->offset = message->offset;
    chunk->bytes  = message->bytes;
    status        = pl_map_set(&shared->chunks, key, chunk);
    if (status != PLASMON_OK) {
        goto err_unmap;
    }
    return PLASMON_OK;

err_unmap:
    pl_fd_unmap(chunk->data, chunk->bytes);
err_free:
    pl_free(chunk);
    return status;
}

/* Takes what it keeps of fds by setting it to -1. */
static plasmon_status_t take_lane(struct shared *shared,
                                  const struct store_control *message, int *fds,
                                  unsigned count, struct pl_err *err)
{
    struct lane *lane;
    plasmon_status_t status;

    if (count != 2 || message->bytes != STORE_LANE_BYTES ||
        message->host_device >= shared->device_count) {
        return pl_err_set(err, PLASMON_EMALFORMED,
                          "plasmon-store sent a lane of %llu bytes with %u descriptors",
                          (unsigned long long)message->bytes, count);
    }
    status = lane_create(fds[0], fds[1], &lane, err);
    fds[0] = -1;
    fds[1] = -1;
    if (status == PLASMON_OK) {
        lane_destroy(
            shared->lanes[message->host_device]); /* there is none: one asks at a time */
        shared->lanes[message->host_device] = lane;
    }
    return status;
}

/* Take one message, whatever it is. */
static plasmon_status_t control_step(struct shared *shared, uint64_t deadline_ns,
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

static plasmon_status_t connect_socket(const char *path, int *out_fd, struct pl_err *err)
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
    if (connect(fd, (const struct sockaddr *)&address, sizeof(address)) != 0) {
        (void)pl_err_set(err, PLASMON_EUNREACHABLE, "cannot reach plasmon-store at %s: %s",
                         path, strerror(errno));
        pl_fd_close(&fd);
        return PLASMON_EUNREACHABLE;
    }
    *out_fd = fd;
    return PLASMON_OK;
}

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
        status = connect_socket(path, &shared->control_fd, err);
    }
    if (status == PLASMON_OK) {
        status = control_send(
            shared, (struct store_control){.type = STORE_CONTROL_CLIENT_HELLO}, err);
    }
    while (status == PLASMON_OK && !shared->ready) {
        status = control_step(shared, deadline_ns, err);
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
        status = control_send(
            shared, (struct store_control){.type = STORE_CONTROL_NEW_HEAD_FD}, err);
    }
    while (status == PLASMON_OK && shared->head_fd < 0) {
        status = control_step(shared, deadline_ns, err);
    }
    if (status == PLASMON_OK) {
        *out_fd         = shared->head_fd;
        shared->head_fd = -1;
    }
    pl_mutex_unlock(&shared->lock);
    return status;
}

/* ------------------------------------------------------------------------------------------------ chunks */

/* Number of the chunk of this device in which [offset, offset + bytes) lies. */
static bool chunk_number(const struct store_table *table, uint64_t offset, uint64_t bytes,
                         uint32_t *out_id, bool *out_writable)
{
    /* acquire: pairs with the release in store_table_add_chunk(); the chunks up to count are right */
    uint32_t count = atomic_load_explicit(&table->chunk_count, memory_order_acquire);

    for (uint32_t i = 0; i < pl_min_u64(count, STORE_CHUNK_MAX); i++) {
        const struct store_chunk *chunk = &table->chunks[i];

        if (offset >= chunk->offset && offset - chunk->offset < chunk->bytes &&
            bytes <= chunk->bytes - (offset - chunk->offset)) {
            *out_id       = chunk->id;
            *out_writable = chunk->client_writable != 0;
            return true;
        }
    }
    return false;
}

static plasmon_status_t chunk_map_locked(struct shared *shared, uint32_t host_device,
                                         uint32_t id, bool writable,
                                         struct shared_chunk **out_chunk,
                                         struct pl_err *err)
{
    uint64_t deadline_ns    = pl_now_ns() + CHUNK_TIMEOUT_NS;
    uint64_t key            = chunk_key(host_device, id, writable);
    plasmon_status_t status = PLASMON_OK;

    *out_chunk = pl_map_get(&shared->chunks, key);
    if (*out_chunk != NULL) {
        return PLASMON_OK;
    }
    status = control_send(shared,
                          (struct store_control){.type        = STORE_CONTROL_GET_CHUNK,
                                                 .host_device = host_device,
                                                 .chunk_id    = id},
                          err);
    while (status == PLASMON_OK &&
           (*out_chunk = pl_map_get(&shared->chunks, key)) == NULL) {
        status = control_step(shared, deadline_ns, err);
    }
    return status;
}

/* Address of [offset, offset + bytes) of the device's arena in this process. */
static plasmon_status_t locate_locked(struct shared *shared, uint32_t host_device,
                                      uint64_t offset, uint64_t bytes, bool must_write,
                                      void **out_data, struct pl_err *err)
{
    struct shared_chunk *chunk;
    bool writable;
    uint32_t id;
    plasmon_status_t status;

    if (!chunk_number(shared->tables[host_device], offset, bytes, &id, &writable)) {
        return pl_err_set(err, PLASMON_EUNREACHABLE,
                          "the buffer lies in no chunk of its device");
    }
    if (must_write && !writable) {
        return pl_err_set(err, PLASMON_EUNREACHABLE,
                          "the buffer lies in a chunk that clients may not write");
    }
    status = chunk_map_locked(shared, host_device, id, writable, &chunk, err);
    if (status != PLASMON_OK) {
        return status;
    }
    if (offset < chunk->offset || bytes > chunk->bytes ||
        offset - chunk->offset > chunk->bytes - bytes) {
        return pl_err_set(err, PLASMON_EMALFORMED, "the store's chunk is not the table's");
    }
    *out_data = (uint8_t *)chunk->data + (offset - chunk->offset);
    return PLASMON_OK;
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

uint32_t shared_device_kind(struct shared *shared, uint32_t host_device)
{
    uint32_t kind = 0;

    pl_mutex_lock(&shared->lock);
    if (shared->ready && host_device < shared->device_count) {
        kind = shared->tables[host_device]->kind;
    }
    pl_mutex_unlock(&shared->lock);
    return kind;
}

static plasmon_status_t lane_ask_locked(struct shared *shared, uint32_t host_device,
                                        struct pl_err *err)
{
    uint64_t deadline_ns = pl_now_ns() + CHUNK_TIMEOUT_NS;
    plasmon_status_t status;

    if (shared->lane_refused_ns != 0 &&
        pl_now_ns() - shared->lane_refused_ns < LANE_AGAIN_NS) {
        return pl_err_set(err, PLASMON_EAGAIN, "the store had no lane left a moment ago");
    }
    status = control_send(
        shared,
        (struct store_control){.type = STORE_CONTROL_GET_LANE, .host_device = host_device},
        err);
    while (status == PLASMON_OK && shared->lanes[host_device] == NULL) {
        status = control_step(shared, deadline_ns, err);
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

bool shared_store_gone(struct shared *shared)
{
    struct pollfd poller = {.events = 0}; /* POLLHUP and POLLERR come unasked */

    pl_mutex_lock(&shared->lock);
    poller.fd = shared->control_fd;
    pl_mutex_unlock(&shared->lock);
    return poller.fd < 0 || (poll(&poller, 1, 0) > 0 && poller.revents != 0);
}
