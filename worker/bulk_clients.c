#include "worker/bulk_clients.h"

#include <sys/mman.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "wire/wire.h"

static_assert(BULK_TICKET_BYTES == WIRE_TICKET_BYTES, "a request carries a ticket");
static_assert(BULK_PART_BYTES <= STORE_LANE_SLOT_BYTES, "a piece fits into a slot");

#define PLACES_A_LANE (STORE_LANE_SLOTS / TRANSFER_ACCESS_SLOTS_MAX)
#define DIRECT_SLOTS  1u

/* TRANSFER_ACCESS_SLOTS_MAX slots of a lane, for one connection at a time. */
struct place {
    struct store_lane *lane;
    uint32_t first;
    bool taken;
};

struct access {
    struct transfer_bulk_access base;
    uint32_t kind; /* enum bulk_request_kind */
    uint32_t slot; /* of the table */
    uint32_t generation;
    uint64_t offset;
    struct store_lane *lane; /* NULL: direct */
    uint32_t lane_first;
    struct {
        uint32_t pin;
        uint64_t offset; /* in the buffer */
        uint64_t bytes;
    } pieces[TRANSFER_ACCESS_SLOTS_MAX];
};

/* --------------------------------------------------------------------------------- life */

plasmon_status_t worker_bulk_clients_init(struct worker_bulk_clients *clients,
                                          struct device *device,
                                          const struct worker_memory *memory,
                                          struct worker_lanes *lanes, bool staged,
                                          const uint8_t *secret)
{
    const struct worker_shared *shared = lanes->shared;
    plasmon_status_t status;

    *clients = (struct worker_bulk_clients){
        .device   = device,
        .table    = shared->tables[shared->host_device],
        .memory   = memory,
        .lanes    = lanes,
        .doorbell = shared->doorbells[shared->host_device],
        .secret   = secret,
        .direct   = !staged && device_get_info(device)->kind == DEVICE_CPU,
        .places   = PL_VEC_INIT(struct place),
    };
    clients->pins = PL_NEW(struct store_pins);
    if (clients->pins == NULL) {
        return PLASMON_ENOMEM;
    }
    store_pins_init(clients->pins, (uint64_t)getpid());
    status = pl_mutex_init(&clients->lock, PL_RANK_LEAF);
    if (status != PLASMON_OK) {
        goto err_free;
    }
    status = pl_cond_init(&clients->made);
    if (status != PLASMON_OK) {
        goto err_finish_lock;
    }
    return PLASMON_OK;

err_finish_lock:
    pl_mutex_finish(&clients->lock);
err_free:
    pl_free(clients->pins);
    clients->pins = NULL;
    return status;
}

void worker_bulk_clients_finish(struct worker_bulk_clients *clients)
{
    if (clients->pins == NULL) {
        return;
    }
    pl_vec_finish(&clients->places);
    pl_cond_finish(&clients->made);
    pl_mutex_finish(&clients->lock);
    pl_free(clients->pins);
    clients->pins = NULL;
}

void worker_bulk_clients_identify(struct worker_bulk_clients *clients, uint64_t epoch,
                                  uint32_t index)
{
    atomic_store(&clients->index, index);
    atomic_store(&clients->epoch, epoch);
}

bool worker_bulk_clients_hold(const struct worker_bulk_clients *clients, uint32_t slot)
{
    return clients->pins != NULL &&
           store_table_pinned((struct store_table *)(uintptr_t)clients->table, slot,
                              &clients->pins, 1);
}

/* ----------------------------------------------------------------------- slots of lanes */

static bool place_take_locked(struct worker_bulk_clients *clients, struct access *access)
{
    for (size_t i = 0; i < clients->places.count; i++) {
        struct place *place = pl_vec_at(&clients->places, i);

        if (!place->taken) {
            place->taken       = true;
            access->lane       = place->lane;
            access->lane_first = place->first;
            return true;
        }
    }
    return false;
}

/* One more lane: as many connections as there may be need at most 8 of them. */
static plasmon_status_t lane_make(struct worker_bulk_clients *clients)
{
    struct store_lane *lane = mmap(NULL, STORE_LANE_BYTES, PROT_READ | PROT_WRITE,
                                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    plasmon_status_t status;

    if (lane == MAP_FAILED) {
        return PLASMON_ENOMEM;
    }
    lane->magic = STORE_LANE_MAGIC;
    status      = device_host_register(clients->device, lane, STORE_LANE_BYTES);
    if (status != PLASMON_OK) {
        pl_warn("bulk", "memory for clients of other hosts cannot be pinned: %s",
                pl_status_text(status));
        pl_fd_unmap(lane, STORE_LANE_BYTES);
        return PLASMON_ELIMIT;
    }
    worker_lanes_lend(clients->lanes, lane);
    pl_mutex_lock(&clients->lock);
    for (uint32_t i = 0; i < PLACES_A_LANE && status == PLASMON_OK; i++) {
        struct place *place = pl_vec_push(&clients->places);

        status = place != NULL ? PLASMON_OK : PLASMON_ENOMEM;
        if (place != NULL) {
            *place = (struct place){.lane = lane, .first = i * TRANSFER_ACCESS_SLOTS_MAX};
        }
    }
    pl_mutex_unlock(&clients->lock);
    return status;
}

/* One thread makes a lane at a time: many that come at once need no more than their number. */
static plasmon_status_t place_take(struct worker_bulk_clients *clients,
                                   struct access *access)
{
    plasmon_status_t status = PLASMON_OK;

    pl_mutex_lock(&clients->lock);
    while (status == PLASMON_OK && !place_take_locked(clients, access)) {
        if (clients->making) {
            pl_cond_wait(&clients->made, &clients->lock);
            continue;
        }
        clients->making = true;
        pl_mutex_unlock(&clients->lock);
        status = lane_make(clients);
        pl_mutex_lock(&clients->lock);
        clients->making = false;
        pl_cond_broadcast(&clients->made);
    }
    pl_mutex_unlock(&clients->lock);
    return status;
}

static void place_give_back(struct worker_bulk_clients *clients,
                            const struct access *access)
{
    pl_mutex_lock(&clients->lock);
    for (size_t i = 0; i < clients->places.count; i++) {
        struct place *place = pl_vec_at(&clients->places, i);

        if (place->lane == access->lane && place->first == access->lane_first) {
            place->taken = false;
        }
    }
    pl_mutex_unlock(&clients->lock);
}

static void slot_ask(const struct worker_bulk_clients *clients, const struct access *access,
                     uint32_t slot)
{
    uint32_t number                 = access->lane_first + slot;
    struct store_lane_slot *mailbox = &access->lane->slot[number];

    mailbox->kind        = access->kind == BULK_PUT ? STORE_LANE_PUT : STORE_LANE_GET;
    mailbox->buffer_slot = access->slot;
    mailbox->generation  = access->generation;
    mailbox->offset      = access->pieces[slot].offset;
    mailbox->bytes       = access->pieces[slot].bytes;
    /* Release: the request and the bytes are there before it. */
    __atomic_store_n(&mailbox->asked, store_lane_done(access->lane, number) + 1,
                     __ATOMIC_RELEASE);
    pl_fd_raise(clients->doorbell);
}

/* ----------------------------------------------------------------------------- requests */

static plasmon_status_t ticket_check(const struct worker_bulk_clients *clients,
                                     const struct bulk_request *request,
                                     struct wire_ticket *out, struct pl_err *err)
{
    uint64_t epoch = atomic_load(&clients->epoch);
    plasmon_status_t status =
        epoch == 0 ? PLASMON_EAUTH
                   : wire_ticket_open(request->ticket, epoch, clients->secret,
                                      WIRE_BULK_SECRET_BYTES, out);

    if (status != PLASMON_OK || wire_buffer_device(out->buffer) != clients->index ||
        out->rights != (request->kind == BULK_PUT ? WIRE_TICKET_WRITE : WIRE_TICKET_READ)) {
        return pl_err_set(err, PLASMON_EAUTH,
                          "its ticket is not of the head, or not for this");
    }
    if (pl_now_ns() / 1000000 > out->until_ms) {
        return pl_err_set(err, PLASMON_EAUTH, "the time of its ticket is over");
    }
    return PLASMON_OK;
}

static plasmon_status_t access_open(void *user, const struct bulk_request *request,
                                    struct transfer_bulk_access **out_access,
                                    struct pl_err *err)
{
    struct worker_bulk_clients *clients = user;
    struct wire_ticket ticket;
    struct access *access;
    plasmon_status_t status = ticket_check(clients, request, &ticket, err);

    if (status != PLASMON_OK) {
        return status;
    }
    if (request->offset > WIRE_VALUE_BYTES_MAX || request->bytes > WIRE_VALUE_BYTES_MAX) {
        return pl_err_set(err, PLASMON_ERANGE, "%llu bytes from %llu on",
                          (unsigned long long)request->bytes,
                          (unsigned long long)request->offset);
    }
    access = PL_NEW(struct access);
    if (access == NULL) {
        return PLASMON_ENOMEM;
    }
    access->kind       = request->kind;
    access->slot       = wire_buffer_slot(ticket.buffer);
    access->generation = wire_buffer_generation(ticket.buffer);
    access->offset     = request->offset;
    access->base.slots = clients->direct ? DIRECT_SLOTS : TRANSFER_ACCESS_SLOTS_MAX;
    *out_access        = &access->base;
    return PLASMON_OK;
}

static struct access *access_of(struct transfer_bulk_access *base)
{
    return pl_container_of(base, struct access, base);
}

static void access_close(void *user, struct transfer_bulk_access *base, uint64_t bytes,
                         bool whole)
{
    struct worker_bulk_clients *clients = user;
    struct access *access               = access_of(base);

    atomic_fetch_add(&clients->bytes, bytes);
    atomic_fetch_add(&clients->transfers, whole); /* last: who sees it sees the bytes */
    if (access->lane != NULL) {
        place_give_back(clients, access);
    }
    pl_free(access);
}

static plasmon_status_t access_begin(void *user, struct transfer_bulk_access *base,
                                     uint32_t slot, uint64_t offset, uint32_t bytes,
                                     void **out_memory)
{
    struct worker_bulk_clients *clients = user;
    struct access *access               = access_of(base);
    plasmon_status_t status             = PLASMON_OK;
    struct store_entry entry;
    uint32_t pin;

    if (!clients->direct && access->lane == NULL) {
        /* now: only so many accesses get here, while any number may be opened */
        status = place_take(clients, access);
    }
    if (status == PLASMON_OK) {
        status = (access->kind == BULK_PUT ? store_table_pin_writing : store_table_pin)(
            clients->table, access->slot, access->generation, clients->pins, &entry, &pin);
    }
    if (status != PLASMON_OK) {
        return status;
    }
    offset += access->offset;
    if (bytes > entry.bytes || offset > entry.bytes - bytes) {
        store_table_unpin(clients->pins, pin);
        return PLASMON_ERANGE;
    }
    access->pieces[slot].pin    = pin;
    access->pieces[slot].offset = offset;
    access->pieces[slot].bytes  = bytes;
    if (access->lane == NULL) {
        *out_memory = device_ptr_host(
            clients->device, worker_memory_own(clients->memory, entry.offset + offset));
        return PLASMON_OK;
    }
    *out_memory = store_lane_data(access->lane, access->lane_first + slot);
    if (access->kind == BULK_GET) {
        slot_ask(clients, access, slot);
    }
    return PLASMON_OK;
}

static void access_commit(void *user, struct transfer_bulk_access *base, uint32_t slot)
{
    struct access *access = access_of(base);

    if (access->lane != NULL) {
        slot_ask(user, access, slot);
    }
}

static plasmon_status_t access_poll(void *user, struct transfer_bulk_access *base,
                                    uint32_t slot)
{
    const struct access *access = access_of(base);
    uint32_t number             = access->lane_first + slot;

    (void)user;
    if (access->lane == NULL) {
        return PLASMON_OK;
    }
    return store_lane_quiet(access->lane, number)
               ? (plasmon_status_t)access->lane->slot[number].status
               : PLASMON_EAGAIN;
}

static void access_end(void *user, struct transfer_bulk_access *base, uint32_t slot)
{
    struct worker_bulk_clients *clients = user;

    store_table_unpin(clients->pins, access_of(base)->pieces[slot].pin);
}

const struct transfer_bulk_access_ops worker_bulk_clients_ops = {
    .open   = access_open,
    .close  = access_close,
    .begin  = access_begin,
    .commit = access_commit,
    .poll   = access_poll,
    .end    = access_end,
};
