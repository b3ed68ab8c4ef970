/*
 * The host's shared memory, from the client's side: buffers that are pinned, mapped or written, and
 * lanes. See shared.h.
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

/* ---------------------------------------------------------------- the memory of a store */

static plasmon_status_t memory_create_locked(struct shared *shared,
                                             struct shared_memory **out_memory)
{
    struct shared_memory *memory = PL_NEW(struct shared_memory);

    if (memory == NULL) {
        return PLASMON_ENOMEM;
    }
    memory->shared = shared;
    atomic_init(&memory->users, 1);
    pl_list_init(&memory->link);
    pl_list_add_tail(&shared->memories, &memory->link);
    *out_memory = memory;
    return PLASMON_OK;
}

static void memory_destroy(struct shared_memory *memory)
{
    for (uint32_t i = 0; i < STORE_HOST_DEVICE_MAX; i++) {
        chunks_destroy(memory->chunks[i]);
        lane_destroy(memory->lanes[i]);
    }
    for (uint32_t i = 0; i < memory->device_count; i++) {
        pl_fd_unmap((void *)(uintptr_t)memory->tables[i], memory->table_bytes);
    }
    if (memory->pins != NULL) {
        pl_fd_unmap(memory->pins, memory->pins_bytes);
    }
    pl_list_remove(&memory->link);
    pl_free(memory);
}

/* With the lock, for it is the present one. */
static struct shared_memory *memory_hold(struct shared_memory *memory)
{
    (void)atomic_fetch_add(&memory->users, 1);
    return memory;
}

void shared_memory_release_locked(struct shared_memory *memory)
{
    if (memory != NULL && atomic_fetch_sub(&memory->users, 1) == 1) {
        memory_destroy(memory);
    }
}

/* Whose last user goes is not the present one: nobody finds it any more. */
void shared_memory_release(struct shared_memory *memory)
{
    if (memory != NULL && atomic_fetch_sub(&memory->users, 1) == 1) {
        struct shared *shared = memory->shared;

        pl_mutex_lock(&shared->lock);
        memory_destroy(memory);
        pl_mutex_unlock(&shared->lock);
    }
}

plasmon_status_t shared_init(struct shared *shared)
{
    *shared = (struct shared){
        .control_fd = -1, .head_fd = -1, .asked_fd = -1, .silent.witness = -1};
    pl_list_init(&shared->memories);
    return pl_mutex_init(&shared->lock, PL_RANK_STORE);
}

void shared_abandon(struct shared *shared)
{
    struct pl_list *pos, *tmp;

    pl_list_for_each_safe(pos, tmp, &shared->memories) {
        memory_destroy(pl_container_of(pos, struct shared_memory, link));
    }
    shared->present = NULL;
    pl_fd_close(&shared->head_fd);
    pl_fd_close(&shared->control_fd);
    pl_fd_close(&shared->asked_fd);
    pl_fd_close(&shared->silent.witness);
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

uint32_t shared_device_count(struct shared *shared)
{
    uint32_t count;

    pl_mutex_lock(&shared->lock);
    count = shared->present != NULL ? shared->present->device_count : 0;
    pl_mutex_unlock(&shared->lock);
    return count;
}

static bool hung_up(int fd)
{
    struct pollfd poller = {.fd = fd}; /* POLLHUP and POLLERR come unasked */

    return fd < 0 || (poll(&poller, 1, 0) > 0 && poller.revents != 0);
}

static bool gone_locked(const struct shared *shared)
{
    return hung_up(shared->control_fd);
}

bool shared_memory_lives(struct shared *shared, const struct shared_memory *memory)
{
    bool lives;

    pl_mutex_lock(&shared->lock);
    lives = shared->present == memory && !gone_locked(shared);
    pl_mutex_unlock(&shared->lock);
    return lives;
}

uint64_t shared_number(struct shared *shared)
{
    uint64_t number = 0;

    pl_mutex_lock(&shared->lock);
    if (shared->present != NULL && !gone_locked(shared)) {
        number = shared->present->number;
    }
    pl_mutex_unlock(&shared->lock);
    return number;
}

/* ------------------------------------------------------------------------------- set-up */

static plasmon_status_t hello_locked(struct shared *shared, struct pl_err *err)
{
    struct store_control hello = {.type = STORE_CONTROL_CLIENT_HELLO};

    if (shared->present != NULL) {
        hello.offset = shared->present->number;
        hello.reader = shared->present->reader;
    }
    return shared_control_ask(shared, hello, err);
}

/*
 * What comes of a hello: another memory, or (there was one before) the same. On failure what was
 * there stays. *out_silent: the store may yet say that it is the same.
 */
static plasmon_status_t set_up_locked(struct shared *shared, bool asked, bool *out_silent,
                                      struct pl_err *err)
{
    uint64_t deadline_ns = shared_control_deadline(shared, pl_now_ns() + SETUP_TIMEOUT_NS);
    plasmon_status_t status = memory_create_locked(shared, &shared->coming);

    *out_silent = false;
    if (status != PLASMON_OK) {
        return pl_err_set(err, status, "out of host memory");
    }
    status = asked ? PLASMON_OK : hello_locked(shared, err);
    while (status == PLASMON_OK && shared->coming != NULL) {
        status = shared_control_step(shared, deadline_ns, err);
    }
    *out_silent = status == PLASMON_ETIMEDOUT && shared->present != NULL &&
                  shared->coming->device_count == 0 && shared->coming->pins == NULL;
    shared_memory_release_locked(shared->coming); /* what came of it when it failed */
    shared->coming = NULL;
    return status;
}

static plasmon_status_t connect_locked(struct shared *shared, const char *path,
                                       struct pl_err *err)
{
    plasmon_status_t status;
    bool asked, silent;
    int fd;

    if (path == NULL || path[0] == '\0') {
        return pl_err_set(err, PLASMON_EUNREACHABLE,
                          "no plasmon-store of the cluster runs on this host");
    }
    shared_control_look(shared);
    status = shared_control_rests(shared, err); /* it may be the same one */
    if (hung_up(shared->asked_fd)) {
        pl_fd_close(&shared->asked_fd);
    }
    asked = shared->asked_fd >= 0;
    fd    = shared->asked_fd;
    if (status == PLASMON_OK && !asked) {
        status = shared_control_connect(shared, path, &fd, err);
    }
    if (status != PLASMON_OK) {
        return status;
    }
    pl_fd_close(&shared->control_fd);
    shared->control_fd = fd;
    shared->asked_fd   = -1;
    status             = set_up_locked(shared, asked, &silent, err);
    if (status != PLASMON_OK && silent) {
        shared->asked_fd   = shared->control_fd; /* and the next one who asks waits on */
        shared->control_fd = -1;
    } else if (status != PLASMON_OK) {
        pl_fd_close(&shared->control_fd); /* the next one who asks tries again */
    }
    return status;
}

plasmon_status_t shared_ensure(struct shared *shared, const char *path, struct pl_err *err)
{
    plasmon_status_t status = PLASMON_OK;
    bool silent;

    pl_mutex_lock(&shared->lock);
    if (shared->present == NULL) {
        status = shared->control_fd >= 0 ? set_up_locked(shared, false, &silent, err)
                                         : connect_locked(shared, path, err);
    }
    pl_mutex_unlock(&shared->lock);
    return status;
}

plasmon_status_t shared_renew(struct shared *shared, const char *path, struct pl_err *err)
{
    plasmon_status_t status = PLASMON_OK;

    pl_mutex_lock(&shared->lock);
    if (gone_locked(shared)) {
        status = connect_locked(shared, path, err);
    }
    pl_mutex_unlock(&shared->lock);
    return status;
}

plasmon_status_t shared_take_head_fd(struct shared *shared, bool ask, uint64_t deadline_ns,
                                     int *out_fd, struct pl_err *err)
{
    plasmon_status_t status = PLASMON_OK;

    pl_mutex_lock(&shared->lock);
    if (ask && shared->head_fd < 0) {
        status = shared_control_ask(
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

/* ------------------------------------------------------------------------------- chunks */

static plasmon_status_t chunk_ask_locked(struct shared *shared, uint32_t host_device,
                                         uint32_t id, struct pl_err *err)
{
    return shared_control_ask(shared,
                              (struct store_control){.type        = STORE_CONTROL_GET_CHUNK,
                                                     .host_device = host_device,
                                                     .chunk_id    = id},
                              err);
}

/*
 * Address of [offset, offset + bytes) of the device's arena in this process. Only the present
 * memory's chunks can still be asked for: of one that was replaced meanwhile (ELOST) what is mapped
 * is all there is.
 */
static plasmon_status_t locate_locked(struct shared *shared, struct shared_memory *memory,
                                      uint32_t host_device, uint64_t offset, uint64_t bytes,
                                      bool must_write, void **out_data, struct pl_err *err)
{
    uint64_t deadline_ns = shared_control_deadline(shared, pl_now_ns() + CHUNK_TIMEOUT_NS);
    uint32_t asked       = UINT32_MAX;
    plasmon_status_t status = PLASMON_OK;
    uint32_t id;

    if (memory->chunks[host_device] == NULL) {
        status =
            chunks_create(memory->tables[host_device], &memory->chunks[host_device], err);
    }
    while (status == PLASMON_OK) {
        status = chunks_locate(memory->chunks[host_device], offset, bytes, must_write,
                               out_data, &id, err);
        if (status != PLASMON_EAGAIN) {
            return status;
        }
        if (memory != shared->present) {
            return pl_err_set(err, PLASMON_ELOST,
                              "plasmon-store of this host has another memory by now");
        }
        status = id == asked ? PLASMON_OK : chunk_ask_locked(shared, host_device, id, err);
        asked  = id;
        if (status == PLASMON_OK) {
            status = shared_control_step(shared, deadline_ns, err);
        }
    }
    return status;
}

static bool serves(const struct shared_memory *memory, uint32_t host_device,
                   uint32_t device)
{
    uint64_t said = 0;

    if (memory != NULL && host_device < memory->device_count) {
        said = __atomic_load_n(&memory->tables[host_device]->device, __ATOMIC_RELAXED);
    }
    return said == 0 || said == device + 1ull;
}

bool shared_serves(struct shared *shared, uint32_t host_device, uint32_t device)
{
    bool may;

    pl_mutex_lock(&shared->lock);
    may = serves(shared->present, host_device, device);
    pl_mutex_unlock(&shared->lock);
    return may;
}

/* The memory that has the buffer, held. */
static plasmon_status_t find_locked(struct shared *shared, const struct shared_key *key,
                                    bool map, struct shared_memory **out_memory,
                                    struct pl_err *err)
{
    struct shared_memory *memory = shared->present;

    if (memory == NULL || key->host_device >= memory->device_count ||
        (map && memory->tables[key->host_device]->kind != KIND_CPU) ||
        !serves(memory, key->host_device, key->device)) {
        return pl_err_set(err, PLASMON_EUNREACHABLE,
                          "memory of device %u of this host cannot be mapped here",
                          key->host_device);
    }
    if (key->slot >= STORE_TABLE_SLOTS) {
        return pl_err_set(err, PLASMON_EMALFORMED, "there is no slot %u", key->slot);
    }
    *out_memory = memory_hold(memory);
    return PLASMON_OK;
}

static plasmon_status_t find(struct shared *shared, const struct shared_key *key, bool map,
                             struct shared_memory **out_memory, struct pl_err *err)
{
    plasmon_status_t status;

    pl_mutex_lock(&shared->lock);
    status = find_locked(shared, key, map, out_memory, err);
    pl_mutex_unlock(&shared->lock);
    return status;
}

/*
 * The head tells of a buffer when its worker reported it, so what is missing is a store of another
 * core on its way here: back off gently, from a spin to a tenth of a millisecond.
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

static plasmon_status_t pin(struct shared *shared, const struct shared_key *key, bool map,
                            uint64_t deadline_ns, struct shared_pin *out_pin,
                            struct pl_err *err)
{
    unsigned round               = 0;
    struct shared_memory *memory = NULL;
    plasmon_status_t status      = find(shared, key, map, &memory, err);

    if (status != PLASMON_OK) {
        return status;
    }
    do {
        /*
         * tables and pins never change once set up: no lock, so that one slow buffer does not hold
         * up others
         */
        status =
            store_table_pin(memory->tables[key->host_device], key->slot, key->generation,
                            memory->pins, &out_pin->entry, &out_pin->pin);
    } while (status == PLASMON_EAGAIN && back_off(&round, deadline_ns));
    if (status != PLASMON_OK) {
        shared_memory_release(memory);
        return pl_err_set(err, status == PLASMON_EAGAIN ? PLASMON_ETIMEDOUT : status,
                          status == PLASMON_ELIMIT
                              ? "too many mappings: unmap some (limit %u)"
                              : "the buffer could not be pinned (limit of pins %u)",
                          STORE_PIN_MAX);
    }
    out_pin->data   = NULL;
    out_pin->memory = memory;
    return PLASMON_OK;
}

plasmon_status_t shared_hold(struct shared *shared, const struct shared_key *key,
                             uint64_t deadline_ns, struct shared_pin *out_pin,
                             struct pl_err *err)
{
    return pin(shared, key, false, deadline_ns, out_pin, err);
}

plasmon_status_t shared_pin(struct shared *shared, const struct shared_key *key,
                            uint64_t deadline_ns, struct shared_pin *out_pin,
                            struct pl_err *err)
{
    void *data              = NULL;
    plasmon_status_t status = pin(shared, key, true, deadline_ns, out_pin, err);

    if (status != PLASMON_OK) {
        return status;
    }
    pl_mutex_lock(&shared->lock);
    status = locate_locked(shared, out_pin->memory, key->host_device, out_pin->entry.offset,
                           out_pin->entry.bytes, false, &data, err);
    pl_mutex_unlock(&shared->lock);
    if (status != PLASMON_OK) {
        shared_unpin(out_pin);
        return status;
    }
    out_pin->data = data;
    return PLASMON_OK;
}

void shared_unpin(const struct shared_pin *pin)
{
    store_table_unpin(pin->memory->pins, pin->pin);
    shared_memory_release(pin->memory);
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

/*
 * Pinned like what is read: our session may end while we write (the process is stopped, say), and
 * then the worker frees the buffer, whose memory is somebody else's next.
 */
static plasmon_status_t pin_ours(const struct shared_memory *memory,
                                 const struct shared_key *key, uint64_t deadline_ns,
                                 struct shared_pin *out_pin, struct pl_err *err)
{
    const struct store_table *table = memory->tables[key->host_device];
    unsigned round                  = 0;
    plasmon_status_t status;

    do {
        status = entry_is_ours(table, key->slot, key->generation, &out_pin->entry)
                     ? store_table_pin_writing(table, key->slot, key->generation,
                                               memory->pins, &out_pin->entry, &out_pin->pin)
                     : PLASMON_ELOST;
    } while (status == PLASMON_ELOST && back_off(&round, deadline_ns));
    return status == PLASMON_OK ? status
           : status == PLASMON_ELOST
               ? pl_err_set(err, PLASMON_ETIMEDOUT,
                            "the buffer of a put did not appear in its device's table")
               : pl_err_set(err, status, "too many mappings: unmap some (limit %u)",
                            STORE_PIN_MAX);
}

static plasmon_status_t writable(struct shared *shared, const struct shared_key *key,
                                 uint64_t bytes, const struct shared_pin *pin,
                                 void **out_data, struct pl_err *err)
{
    plasmon_status_t status;

    if (pin->entry.bytes < bytes) {
        return pl_err_set(err, PLASMON_EMALFORMED,
                          "the buffer of a put has %llu bytes, not %llu",
                          (unsigned long long)pin->entry.bytes, (unsigned long long)bytes);
    }

    pl_mutex_lock(&shared->lock);
    status = locate_locked(shared, pin->memory, key->host_device, pin->entry.offset, bytes,
                           true, out_data, err);
    pl_mutex_unlock(&shared->lock);
    return status;
}

plasmon_status_t shared_writable(struct shared *shared, const struct shared_key *key,
                                 uint64_t bytes, uint64_t deadline_ns, void **out_data,
                                 struct shared_pin *out_pin, struct pl_err *err)
{
    struct shared_memory *memory = NULL;
    plasmon_status_t status      = find(shared, key, true, &memory, err);

    if (status != PLASMON_OK) {
        return status;
    }
    status = pin_ours(memory, key, deadline_ns, out_pin, err);
    if (status != PLASMON_OK) {
        shared_memory_release(memory);
        return status;
    }
    out_pin->memory = memory;
    status          = writable(shared, key, bytes, out_pin, out_data, err);
    if (status != PLASMON_OK) {
        shared_unpin(out_pin);
        return status;
    }
    out_pin->data = *out_data;
    return PLASMON_OK;
}

/* -------------------------------------------------------------------------------- lanes */

/*
 * Nobody else comes between: what comes over the socket is taken under the lock, so the memory
 * stays the present one.
 */
static plasmon_status_t lane_ask_locked(struct shared *shared, uint32_t host_device,
                                        struct pl_err *err)
{
    uint64_t deadline_ns = shared_control_deadline(shared, pl_now_ns() + CHUNK_TIMEOUT_NS);
    plasmon_status_t status;

    if (shared->lane_refused_ns != 0 &&
        pl_now_ns() - shared->lane_refused_ns < LANE_AGAIN_NS) {
        return pl_err_set(err, PLASMON_EAGAIN, "the store had no lane left a moment ago");
    }
    status = shared_control_ask(
        shared,
        (struct store_control){.type = STORE_CONTROL_GET_LANE, .host_device = host_device},
        err);
    while (status == PLASMON_OK && shared->present->lanes[host_device] == NULL) {
        status = shared_control_step(shared, deadline_ns, err);
    }
    shared->lane_refused_ns = status == PLASMON_EAGAIN ? pl_now_ns() : 0;
    return status;
}

plasmon_status_t shared_lane(struct shared *shared, uint32_t host_device, uint32_t device,
                             struct lane **out_lane, struct shared_memory **out_memory,
                             struct pl_err *err)
{
    struct shared_key key        = {.host_device = host_device, .device = device};
    struct shared_memory *memory = NULL;
    plasmon_status_t status;

    pl_mutex_lock(&shared->lock);
    status = find_locked(shared, &key, false, &memory, err);
    if (status == PLASMON_OK && memory->lanes[host_device] == NULL) {
        status = lane_ask_locked(shared, host_device, err);
    }
    if (status == PLASMON_OK) {
        *out_lane   = memory->lanes[host_device];
        *out_memory = memory;
    }
    pl_mutex_unlock(&shared->lock);
    if (status != PLASMON_OK) {
        shared_memory_release(memory);
    }
    return status;
}

/* ------------------------------------------------------------------------- host buffers */

plasmon_status_t shared_buffer_take(struct shared *shared, uint64_t bytes,
                                    uint64_t deadline_ns, uint64_t *out_id,
                                    uint64_t *out_memory, void **out_data,
                                    struct pl_err *err)
{
    plasmon_status_t status;

    pl_mutex_lock(&shared->lock);
    shared->buffer_data  = NULL;
    shared->buffer.bytes = bytes;
    status =
        shared_control_ask(shared,
                           (struct store_control){.type     = STORE_CONTROL_GET_HOST_BUFFER,
                                                  .chunk_id = ++shared->buffer_request,
                                                  .bytes    = bytes},
                           err);
    while (status == PLASMON_OK && shared->buffer_data == NULL) {
        status = shared_control_step(shared, deadline_ns, err);
    }
    if (status == PLASMON_OK) {
        *out_id     = shared->buffer.id;
        *out_memory = shared->present->number;
        *out_data   = shared->buffer_data;
    }
    shared->buffer_request++; /* what may still come is nobody's */
    pl_mutex_unlock(&shared->lock);
    return status;
}

void shared_buffer_drop(struct shared *shared, uint64_t memory, uint64_t id)
{
    struct store_control drop = {.type = STORE_CONTROL_HOST_BUFFER_DROP, .offset = id};
    struct pl_err err         = {0};

    pl_mutex_lock(&shared->lock);
    if (shared->present != NULL && shared->present->number == memory &&
        shared_control_send(shared, drop, &err) != PLASMON_OK) {
        pl_debug("client", "host memory: %s", err.text); /* which has dropped it, then */
    }
    pl_mutex_unlock(&shared->lock);
}
