#include "worker/lanes.h"

#include <stdatomic.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/log.h"

struct worker_lane {
    struct store_lane *shared;
    bool own; /* not a client's: who moves the bytes counts them */
    /* false: `closed`, and nothing of it is looked at until the store opens it */
    bool pinned;
    /* Of requests on the device: mask bits, and what they write. */
    uint32_t running;
    uint64_t asked[STORE_LANE_SLOTS];
    uint32_t written[STORE_LANE_SLOTS]; /* slot of the table; UINT32_MAX: a get */
};
static_assert(STORE_LANE_SLOTS <= 32, "a bit a slot");

#define WRITES_NOTHING UINT32_MAX

plasmon_status_t worker_lanes_init(struct worker_lanes *lanes, struct device *device,
                                   struct worker_shared *shared,
                                   struct worker_memory *memory,
                                   struct transfer_counters *counters)
{
    plasmon_status_t status;

    *lanes = (struct worker_lanes){.device   = device,
                                   .shared   = shared,
                                   .memory   = memory,
                                   .counters = counters,
                                   .lanes    = PL_VEC_INIT(struct worker_lane *),
                                   .lent     = PL_VEC_INIT(struct store_lane *)};
    status = pl_mutex_init(&lanes->lent_lock, PL_RANK_LEAF);
    if (status != PLASMON_OK) {
        lanes->device = NULL; /* nothing to finish */
    }
    return status;
}

static struct worker_lane *lane_at(const struct worker_lanes *lanes, size_t i)
{
    return *(struct worker_lane *const *)pl_vec_at(&lanes->lanes, i);
}

static void memory_drop(struct worker_lanes *lanes, struct store_lane *memory, bool pinned)
{
    if (pinned) {
        device_host_unregister(lanes->device, memory);
    }
    pl_fd_unmap(memory, STORE_LANE_BYTES);
}

void worker_lanes_finish(struct worker_lanes *lanes)
{
    if (lanes->device == NULL) {
        return;
    }
    if (lanes->in != NULL) {
        device_stream_destroy(lanes->in);
    }
    if (lanes->out != NULL) {
        device_stream_destroy(lanes->out);
    }
    for (size_t i = 0; i < lanes->lanes.count; i++) {
        struct worker_lane *lane = lane_at(lanes, i);

        memory_drop(lanes, lane->shared, lane->pinned);
        pl_free(lane);
    }
    for (size_t i = 0; i < lanes->lent.count; i++) {
        memory_drop(lanes, *(struct store_lane **)pl_vec_at(&lanes->lent, i), true);
    }
    pl_vec_finish(&lanes->lanes);
    pl_vec_finish(&lanes->lent);
    pl_mutex_finish(&lanes->lent_lock);
}

/* --------------------------------------------------------------------------- lanes come */

plasmon_status_t worker_lanes_open(struct worker_lanes *lanes)
{
    plasmon_status_t status = PLASMON_OK;

    if (lanes->in == NULL) {
        status =
            device_stream_create(lanes->device, DEVICE_STREAM_HIGH_PRIORITY, &lanes->in);
    }
    if (status == PLASMON_OK && lanes->out == NULL) {
        status =
            device_stream_create(lanes->device, DEVICE_STREAM_HIGH_PRIORITY, &lanes->out);
    }
    return status;
}

/* The whole of it: the device writes the mailboxes' words, too. */
static void lane_pin(struct worker_lanes *lanes, struct worker_lane *lane)
{
    plasmon_status_t status =
        pl_fault_point("worker.lane_register")
            ? PLASMON_ENOMEM
            : device_host_register(lanes->device, lane->shared, STORE_LANE_BYTES);

    lane->pinned = status == PLASMON_OK;
    if (!lane->pinned) {
        /* too much is pinned: its client uses messages, and everybody else goes on */
        pl_warn("worker", "a client's lane cannot be pinned: %s", pl_status_text(status));
    }
    __atomic_store_n(&lane->shared->closed, !lane->pinned, __ATOMIC_RELEASE);
}

static plasmon_status_t lane_add(struct worker_lanes *lanes, int fd)
{
    struct worker_lane *lane   = PL_NEW(struct worker_lane);
    struct worker_lane **place = NULL;
    void *memory;
    plasmon_status_t status;

    if (lane == NULL) {
        return PLASMON_ENOMEM;
    }
    status = pl_fd_map(fd, STORE_LANE_BYTES, 1, &memory);
    if (status != PLASMON_OK) {
        goto err_free;
    }
    lane->shared = memory;
    if (lane->shared->magic != STORE_LANE_MAGIC) {
        status = PLASMON_EVERSION;
        goto err_unmap;
    }
    place = pl_vec_push(&lanes->lanes);
    if (place == NULL) {
        status = PLASMON_ENOMEM;
        goto err_unmap;
    }
    *place = lane;
    lane_pin(lanes, lane);
    return PLASMON_OK;

err_unmap:
    pl_fd_unmap(memory, STORE_LANE_BYTES);
err_free:
    pl_free(lane);
    return status;
}

plasmon_status_t worker_lanes_take(struct worker_lanes *lanes, struct pl_err *err)
{
    struct pl_vec *fds      = &lanes->shared->lanes;
    plasmon_status_t status = fds->count > 0 ? worker_lanes_open(lanes) : PLASMON_OK;

    for (size_t i = 0; i < fds->count; i++) {
        int *fd = pl_vec_at(fds, i);

        if (status == PLASMON_OK) {
            status = lane_add(lanes, *fd);
        }
        pl_fd_close(fd);
    }
    pl_vec_clear(fds);
    return status == PLASMON_OK
               ? PLASMON_OK
               : pl_err_set(err, status, "a client's lane: %s", pl_status_text(status));
}

void worker_lanes_lend(struct worker_lanes *lanes, struct store_lane *memory)
{
    struct store_lane **place;

    pl_mutex_lock(&lanes->lent_lock);
    place = pl_vec_push(&lanes->lent);
    PL_CHECK(place != NULL); /* whoever lends it would wait for ever */
    *place = memory;
    pl_mutex_unlock(&lanes->lent_lock);
}

static plasmon_status_t own_add(struct worker_lanes *lanes, struct store_lane *memory)
{
    struct worker_lane *lane   = PL_NEW(struct worker_lane);
    struct worker_lane **place = lane != NULL ? pl_vec_push(&lanes->lanes) : NULL;

    if (place == NULL) {
        pl_free(lane);
        return PLASMON_ENOMEM;
    }
    lane->shared = memory;
    lane->own    = true;
    lane->pinned = true;
    *place       = lane;
    return PLASMON_OK;
}

/* Those that were lent. */
static void lent_take(struct worker_lanes *lanes)
{
    plasmon_status_t status = PLASMON_OK;
    bool any;

    pl_mutex_lock(&lanes->lent_lock);
    any = lanes->lent.count > 0;
    while (lanes->lent.count > 0 && status == PLASMON_OK) {
        status = own_add(
            lanes, *(struct store_lane **)pl_vec_at(&lanes->lent, lanes->lent.count - 1));
        lanes->lent.count -= status == PLASMON_OK;
    }
    pl_mutex_unlock(&lanes->lent_lock);
    if (status == PLASMON_OK && any) {
        status = worker_lanes_open(lanes);
    }
    if (status != PLASMON_OK) {
        lanes->broken = status; /* this process must end: somebody waits */
    }
}

/* ----------------------------------------------------------------------------- requests */

/* Where the request's bytes are on the device, if it makes sense. */
static plasmon_status_t request_check(const struct worker_lanes *lanes,
                                      const struct store_lane_slot *request,
                                      struct device_ptr *out_where)
{
    const struct store_table *table = lanes->shared->tables[lanes->shared->host_device];
    const struct store_entry *entry;
    uint32_t state;
    bool right;

    if (request->buffer_slot >= STORE_TABLE_SLOTS || request->bytes == 0 ||
        request->bytes > STORE_LANE_SLOT_BYTES) {
        return PLASMON_EMALFORMED;
    }
    entry = &table->entries[request->buffer_slot];
    state = atomic_load_explicit(&entry->state, memory_order_acquire);
    right = request->kind == STORE_LANE_PUT
                ? state == STORE_WRITING && (entry->flags & STORE_ENTRY_CLIENT_WRITES) != 0
                : request->kind == STORE_LANE_GET && state != STORE_FREE &&
                      state != STORE_WRITING;
    if (!right || entry->generation != request->generation) {
        return PLASMON_ELOST;
    }
    if (request->bytes > entry->bytes || request->offset > entry->bytes - request->bytes) {
        return PLASMON_ERANGE;
    }
    *out_where = worker_memory_own(lanes->memory, entry->offset + request->offset);
    return PLASMON_OK;
}

static plasmon_status_t request_enqueue(struct worker_lanes *lanes,
                                        const struct worker_lane *lane, uint32_t slot,
                                        const struct store_lane_slot *request)
{
    uint64_t host                = (uint64_t)(uintptr_t)store_lane_data(lane->shared, slot);
    bool put                     = request->kind == STORE_LANE_PUT;
    struct device_stream *stream = put ? lanes->in : lanes->out;
    struct device_ptr where      = {.addr = 0};
    plasmon_status_t status      = request_check(lanes, request, &where);

    if (status != PLASMON_OK) {
        return status;
    }
    status = put ? device_copy(stream, DEVICE_COPY_HOST_TO_DEVICE, where.addr, host,
                               request->bytes)
                 : device_copy(stream, DEVICE_COPY_DEVICE_TO_HOST, host, where.addr,
                               request->bytes);
    if (status == PLASMON_OK) {
        status = device_signal(stream, &lane->shared->slot[slot].done, request->asked);
    }
    if (status != PLASMON_OK) {
        lanes->broken = status; /* the word may never come: this process must end */
        return PLASMON_OK;
    }
    if (!lane->own) {
        transfer_count(lanes->counters, TRANSFER_LANE, request->bytes);
    }
    return PLASMON_OK;
}

static void request_take(struct worker_lanes *lanes, struct worker_lane *lane,
                         uint32_t slot, uint64_t asked)
{
    struct store_lane_slot *mailbox = &lane->shared->slot[slot];
    struct store_lane_slot request  = {.asked       = asked,
                                       .kind        = mailbox->kind,
                                       .buffer_slot = mailbox->buffer_slot,
                                       .generation  = mailbox->generation,
                                       .offset      = mailbox->offset,
                                       .bytes       = mailbox->bytes};
    plasmon_status_t status;

    mailbox->status = PLASMON_OK; /* before the device says done */
    status          = request_enqueue(lanes, lane, slot, &request);
    if (status != PLASMON_OK) {
        mailbox->status = status;
        __atomic_store_n(&mailbox->done, asked, __ATOMIC_RELEASE);
        device_word_wake(&mailbox->done);
        return;
    }
    lane->running |= 1u << slot;
    lane->asked[slot] = asked;
    lane->written[slot] =
        request.kind == STORE_LANE_PUT ? request.buffer_slot : WRITES_NOTHING;
    lanes->running++;
}

/* What the device is through with. */
static void lane_collect(struct worker_lanes *lanes, struct worker_lane *lane)
{
    for (uint32_t i = 0; lane->running != 0 && i < STORE_LANE_SLOTS; i++) {
        if ((lane->running & 1u << i) != 0 &&
            store_lane_done(lane->shared, i) >= lane->asked[i]) {
            lane->running &= ~(1u << i);
            lanes->running--;
        }
    }
}

/* The store has opened one that could not be pinned, for its next client: perhaps it can by now. */
static bool lane_serves(struct worker_lanes *lanes, struct worker_lane *lane)
{
    if (!lane->pinned && __atomic_load_n(&lane->shared->closed, __ATOMIC_ACQUIRE) == 0) {
        lane_pin(lanes, lane);
    }
    return lane->pinned;
}

void worker_lanes_serve(struct worker_lanes *lanes)
{
    lent_take(lanes);
    for (size_t k = 0; k < lanes->lanes.count; k++) {
        struct worker_lane *lane = lane_at(lanes, k);

        if (!lane_serves(lanes, lane)) {
            continue;
        }
        lane_collect(lanes, lane);
        for (uint32_t i = 0; i < STORE_LANE_SLOTS; i++) {
            uint64_t asked = store_lane_asked(lane->shared, i);

            /*
             * While one is on the device its client has nothing to say: two writes to one word
             * could cross.
             */
            if ((lane->running & 1u << i) == 0 &&
                asked > store_lane_done(lane->shared, i)) {
                request_take(lanes, lane, i, asked);
            }
        }
    }
}

/* ---------------------------------------------------------------------------- questions */

bool worker_lanes_busy(struct worker_lanes *lanes)
{
    for (size_t k = 0; lanes->running > 0 && k < lanes->lanes.count; k++) {
        lane_collect(lanes, lane_at(lanes, k));
    }
    return lanes->running > 0;
}

bool worker_lanes_write(struct worker_lanes *lanes, uint32_t buffer_slot)
{
    if (!worker_lanes_busy(lanes)) {
        return false;
    }
    for (size_t k = 0; k < lanes->lanes.count; k++) {
        const struct worker_lane *lane = lane_at(lanes, k);

        for (uint32_t i = 0; lane->running != 0 && i < STORE_LANE_SLOTS; i++) {
            if ((lane->running & 1u << i) != 0 && lane->written[i] == buffer_slot) {
                return true;
            }
        }
    }
    return false;
}

plasmon_status_t worker_lanes_health(const struct worker_lanes *lanes)
{
    return lanes->broken;
}
