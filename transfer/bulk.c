/* The bulk channel: life, who sends to whom, and what our own device does for a transfer to another host. */
#include "transfer/bulk.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "transfer/bulk_int.h"

/* --------------------------------------------------------------------------------- life */

static plasmon_status_t open_all(struct transfer_bulk *bulk,
                                 struct transfer_bulk_endpoint *out_endpoint,
                                 struct pl_err *err)
{
    plasmon_status_t status;

    if (getrandom(bulk->secret, sizeof(bulk->secret), 0) != (ssize_t)sizeof(bulk->secret)) {
        return pl_err_set(err, PLASMON_EAGAIN, "no random numbers: %s", strerror(errno));
    }
    bulk->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (bulk->stop_fd < 0) {
        return pl_err_set(err, pl_status_from_errno(errno), "eventfd: %s", strerror(errno));
    }
    if (bulk->config.tls_cert != NULL) {
        status = bulk_tls_create(bulk->config.tls_cert, bulk->config.tls_key,
                                 bulk->config.tls_ca, &bulk->tls, err);
        if (status != PLASMON_OK) {
            return status;
        }
    }
    status =
        bulk_listen(bulk->config.listen, bulk->config.port_first, bulk->config.port_last,
                    &bulk->listen_fd, out_endpoint->address, err);
    memcpy(out_endpoint->secret, bulk->secret, sizeof(bulk->secret));
    return status;
}

plasmon_status_t transfer_bulk_create(const struct transfer_bulk_config *config,
                                      struct transfer_bulk **out_bulk,
                                      struct transfer_bulk_endpoint *out_endpoint,
                                      struct pl_err *err)
{
    struct transfer_bulk *bulk = PL_NEW(struct transfer_bulk);
    plasmon_status_t status;

    if (bulk == NULL) {
        return pl_err_set(err, PLASMON_ENOMEM, "no memory");
    }
    bulk->config    = *config;
    bulk->listen_fd = -1;
    bulk->stop_fd   = -1;
    bulk->ins       = PL_VEC_INIT(struct bulk_in *);
    bulk->fills     = PL_VEC_INIT(struct bulk_fill);
    bulk->places    = PL_VEC_INIT(struct bulk_place);
    atomic_init(&bulk->device, BULK_NOBODY);
    pl_map_init(&bulk->outs);
    pl_map_init(&bulk->gone);
    status = open_all(bulk, out_endpoint, err);
    if (status != PLASMON_OK) {
        goto err_close;
    }
    status = bulk_place_create(&bulk->board);
    if (status != PLASMON_OK) {
        goto err_close;
    }
    status = pl_mutex_init(&bulk->lock, PL_RANK_LEAF);
    if (status != PLASMON_OK) {
        goto err_close;
    }
    status = pl_cond_init(&bulk->changed);
    if (status != PLASMON_OK) {
        goto err_finish_lock;
    }
    if (pthread_create(&bulk->acceptor, NULL, bulk_accept_run, bulk) != 0) {
        status = pl_err_set(err, PLASMON_EAGAIN, "no thread");
        goto err_finish_cond;
    }
    if (pthread_create(&bulk->filler, NULL, bulk_fill_run, bulk) != 0) {
        status = pl_err_set(err, PLASMON_EAGAIN, "no thread");
        goto err_join;
    }
    *out_bulk = bulk;
    return PLASMON_OK;

err_join:
    atomic_store(&bulk->stop, true);
    pl_fd_raise(bulk->stop_fd);
    (void)pthread_join(bulk->acceptor, NULL);
err_finish_cond:
    pl_cond_finish(&bulk->changed);
err_finish_lock:
    pl_mutex_finish(&bulk->lock);
err_close:
    bulk_place_release(bulk->board);
    bulk_tls_destroy(bulk->tls);
    pl_fd_close(&bulk->listen_fd);
    pl_fd_close(&bulk->stop_fd);
    pl_free(bulk);
    return status;
}

void transfer_bulk_destroy(struct transfer_bulk *bulk)
{
    size_t i = 0;
    uint64_t key;
    void *out;

    if (bulk == NULL) {
        return;
    }
    pl_mutex_lock(&bulk->lock);
    atomic_store(&bulk->stop, true);
    pl_cond_broadcast(&bulk->changed);
    pl_mutex_unlock(&bulk->lock);
    pl_fd_raise(bulk->stop_fd);
    (void)pthread_join(bulk->filler, NULL);
    (void)pthread_join(bulk->acceptor, NULL);
    while (pl_map_next(&bulk->outs, &i, &key, &out)) {
        bulk_out_destroy(out);
    }
    pl_map_finish(&bulk->outs);
    pl_map_finish(&bulk->gone);
    pl_vec_finish(&bulk->ins);
    pl_vec_finish(&bulk->fills);
    pl_vec_finish(&bulk->places);
    pl_cond_finish(&bulk->changed);
    pl_mutex_finish(&bulk->lock);
    bulk_place_release(bulk->board);
    bulk_tls_destroy(bulk->tls);
    pl_fd_close(&bulk->listen_fd);
    pl_fd_close(&bulk->stop_fd);
    pl_free(bulk);
}

void transfer_bulk_identify(struct transfer_bulk *bulk, uint32_t device)
{
    pl_mutex_lock(&bulk->lock);
    atomic_store(&bulk->device, device);
    pl_cond_broadcast(&bulk->changed);
    pl_mutex_unlock(&bulk->lock);
}

/* -------------------------------------------------------------------------------- peers */

static plasmon_status_t out_of(struct transfer_bulk *bulk, uint32_t peer,
                               struct bulk_out **out_out)
{
    struct bulk_out *out    = pl_map_get(&bulk->outs, peer + 1ull);
    plasmon_status_t status = PLASMON_OK;

    if (out == NULL) {
        status = bulk_out_create(bulk, peer, &out);
        if (status != PLASMON_OK) {
            return status;
        }
        status = pl_map_set(&bulk->outs, peer + 1ull, out);
        PL_CHECK(status == PLASMON_OK); /* a map that cannot grow ends the process */
    }
    *out_out = out;
    return PLASMON_OK;
}

static void place_forget_locked(struct transfer_bulk *bulk, uint32_t peer)
{
    for (size_t i = 0; i < bulk->places.count; i++) {
        if (((struct bulk_place *)pl_vec_at(&bulk->places, i))->peer == peer) {
            pl_vec_remove_unordered(&bulk->places, i);
            return;
        }
    }
}

/* For relays: one that is not known is not used. */
static void place_set(struct transfer_bulk *bulk, uint32_t peer,
                      const struct transfer_bulk_endpoint *endpoint)
{
    struct bulk_place *place;

    pl_mutex_lock(&bulk->lock);
    place_forget_locked(bulk, peer);
    place = pl_vec_push(&bulk->places);
    if (place != NULL) {
        *place = (struct bulk_place){.peer = peer, .endpoint = *endpoint};
    }
    pl_mutex_unlock(&bulk->lock);
}

plasmon_status_t transfer_bulk_peer(struct transfer_bulk *bulk, uint32_t peer,
                                    const struct transfer_bulk_endpoint *endpoint)
{
    struct bulk_out *out;
    plasmon_status_t status = out_of(bulk, peer, &out);

    if (status != PLASMON_OK) {
        return status;
    }
    pl_mutex_lock(&out->lock);
    out->endpoint = *endpoint;
    out->endpoint_version++;
    pl_mutex_unlock(&out->lock);
    pl_fd_raise(out->wake_fd);
    place_set(bulk, peer, endpoint);
    return PLASMON_OK;
}

plasmon_status_t transfer_bulk_gone(struct transfer_bulk *bulk, uint32_t peer)
{
    struct bulk_out *out;
    plasmon_status_t status = out_of(bulk, peer, &out);

    if (status != PLASMON_OK) {
        return status;
    }
    pl_mutex_lock(&out->lock);
    out->gone = true;
    pl_mutex_unlock(&out->lock);
    pl_fd_raise(out->wake_fd);
    pl_mutex_lock(&bulk->lock);
    PL_CHECK(pl_map_set(&bulk->gone, peer + 1ull, bulk) == PLASMON_OK);
    place_forget_locked(bulk, peer);
    bulk_in_end_locked(bulk, peer);
    pl_mutex_unlock(&bulk->lock);
    return PLASMON_OK;
}

void transfer_bulk_rest(struct transfer_bulk *bulk)
{
    size_t i = 0;
    uint64_t key;
    void *out;

    while (pl_map_next(&bulk->outs, &i, &key, &out)) {
        bulk_out_rest(out);
    }
}

static plasmon_status_t fill_add(struct pl_vec *fills, uint64_t first, uint64_t count)
{
    struct bulk_fill *fill = pl_vec_push(fills);

    if (fill == NULL) {
        return PLASMON_ENOMEM;
    }
    *fill = (struct bulk_fill){.first = first, .count = count};
    return PLASMON_OK;
}

plasmon_status_t transfer_bulk_give_up(struct transfer_bulk *bulk, uint32_t peer,
                                       bool receives, uint64_t first, uint64_t count)
{
    struct bulk_out *out;
    plasmon_status_t status;

    if (receives) {
        /*
         * In this order and under one lock: whichever connection reads one of these chunks later
         * sees that it is given up (bulk_in.c), and so the filler is alone with their slots.
         */
        pl_mutex_lock(&bulk->lock);
        bulk_in_end_locked(bulk, peer);
        status = fill_add(&bulk->fills, first, count);
        pl_cond_broadcast(&bulk->changed);
        pl_mutex_unlock(&bulk->lock);
        return status;
    }
    status = out_of(bulk, peer, &out);
    if (status == PLASMON_OK) {
        pl_mutex_lock(&out->lock);
        status = fill_add(&out->given_up, first, count);
        pl_mutex_unlock(&out->lock);
        pl_fd_raise(out->wake_fd);
    }
    return status;
}

plasmon_status_t transfer_bulk_expect(struct transfer_bulk *bulk, uint32_t peer,
                                      uint64_t first, uint64_t count)
{
    plasmon_status_t status = PLASMON_OK;

    pl_mutex_lock(&bulk->lock);
    if (pl_map_get(&bulk->gone, peer + 1ull) != NULL) {
        status = fill_add(&bulk->fills, first, count);
        pl_cond_broadcast(&bulk->changed);
    }
    pl_mutex_unlock(&bulk->lock);
    return status;
}

/* -------------------------------------------------------------------- our device's half */

/* Host memory that needs no copy: on a CPU device all of it. NULL: bytes go through slots. */
static uint8_t *in_place(const struct transfer_bulk *bulk, struct device_ptr ptr)
{
    return !bulk->config.staged && device_get_info(bulk->config.device)->kind == DEVICE_CPU
               ? device_ptr_host(bulk->config.device, ptr)
               : NULL;
}

/* Known to the thread before the device is done with it: it looks at the word. */
static plasmon_status_t item_add(struct bulk_out *out, uint64_t chunk, const uint8_t *data,
                                 uint32_t bytes)
{
    struct bulk_item *item;

    pl_mutex_lock(&out->lock);
    item = pl_vec_push(&out->items);
    if (item != NULL) {
        *item = (struct bulk_item){
            .chunk = chunk, .own = out->own_next, .data = data, .bytes = bytes};
        out->stats.bytes_queued += bytes;
    }
    pl_mutex_unlock(&out->lock);
    return item != NULL ? PLASMON_OK : PLASMON_ENOMEM;
}

static uint8_t *own_slot(const struct bulk_out *out)
{
    return out->slab +
           out->own_next % TRANSFER_BULK_OUT_SLOTS * (uint64_t)STORE_STAGE_SLOT_BYTES;
}

/* bytes: to be copied into the slot first. */
static plasmon_status_t chunk_enqueue(struct bulk_out *out, struct device_stream *stream,
                                      struct device_ptr src, uint64_t bytes)
{
    uint64_t host           = (uint64_t)(uintptr_t)own_slot(out);
    uint64_t own            = out->own_next++;
    uint64_t slot           = own % TRANSFER_BULK_OUT_SLOTS;
    plasmon_status_t status = PLASMON_OK;

    if (own >= TRANSFER_BULK_OUT_SLOTS) {
        status =
            device_wait(stream, &out->words->sent.value, own + 1 - TRANSFER_BULK_OUT_SLOTS);
    }
    if (status == PLASMON_OK && bytes != 0) {
        status = device_copy(stream, DEVICE_COPY_DEVICE_TO_HOST, host, src.addr, bytes);
    }
    return status == PLASMON_OK
               ? device_signal(stream, &out->words->ready[slot].value, own + 1)
               : status;
}

plasmon_status_t transfer_bulk_prepare(struct transfer_bulk *bulk, uint32_t peer)
{
    struct bulk_out *out = pl_map_get(&bulk->outs, peer + 1ull);

    return out == NULL || out->slab != NULL ? PLASMON_OK : bulk_out_start(out);
}

plasmon_status_t transfer_bulk_send(struct transfer_bulk *bulk,
                                    struct device_stream *stream, uint32_t peer,
                                    uint64_t first, struct device_ptr src, uint64_t bytes,
                                    bool with_bytes)
{
    struct bulk_out *out    = pl_map_get(&bulk->outs, peer + 1ull);
    const uint8_t *data     = with_bytes ? in_place(bulk, src) : NULL;
    plasmon_status_t status = PLASMON_OK;

    if (out == NULL) {
        return PLASMON_EUNREACHABLE;
    }
    if (out->slab == NULL) {
        status = bulk_out_start(out);
    }
    for (uint64_t i = 0; status == PLASMON_OK && i < transfer_chunks(bytes); i++) {
        uint64_t done   = i * STORE_STAGE_SLOT_BYTES;
        uint64_t length = with_bytes ? pl_min_u64(bytes - done, STORE_STAGE_SLOT_BYTES) : 0;

        status = item_add(out, first + i, data != NULL ? data + done : own_slot(out),
                          (uint32_t)length);
        if (status == PLASMON_OK) {
            status = chunk_enqueue(out, stream, device_ptr_add(src, done),
                                   data != NULL ? 0 : length);
        }
    }
    if (status == PLASMON_OK) {
        /*
         * Over means answered: what only lies in our slots is lost with this process, and nobody
         * would send it again.
         */
        status = device_wait(stream, &out->words->sent.value, out->own_next);
    }
    pl_mutex_lock(&out->lock);
    out->stats.transfers++;
    pl_mutex_unlock(&out->lock);
    pl_fd_raise(out->wake_fd);
    return status;
}

plasmon_status_t transfer_bulk_recv(struct transfer_bulk *bulk,
                                    struct device_stream *stream, uint32_t peer,
                                    uint64_t first, struct device_ptr dst, uint64_t bytes,
                                    bool with_bytes, struct transfer_counters *counters)
{
    uint8_t *data = with_bytes ? in_place(bulk, dst) : NULL;
    plasmon_status_t status =
        transfer_bulk_expect(bulk, peer, first, transfer_chunks(bytes));

    if (status != PLASMON_OK || data == NULL) {
        return status != PLASMON_OK ? status
                                    : transfer_stage_recv(stream, &bulk->config.ring, first,
                                                          dst, bytes, with_bytes, counters);
    }
    status =
        bulk_place_recv(bulk->board, &bulk->config.ring, stream, peer, first, data, bytes);
    if (status == PLASMON_OK) {
        transfer_count(counters, TRANSFER_HOST, bytes);
    }
    return status;
}

bool transfer_bulk_next_stats(struct transfer_bulk *bulk, size_t *io_index,
                              uint32_t *out_peer, struct transfer_bulk_stats *out)
{
    uint64_t key;
    void *value;

    while (pl_map_next(&bulk->outs, io_index, &key, &value)) {
        struct bulk_out *to = value;

        if (!to->sent_to) {
            continue; /* known, and never sent to */
        }
        *out_peer = to->peer;
        pl_mutex_lock(&to->lock);
        *out = to->stats;
        pl_mutex_unlock(&to->lock);
        return true;
    }
    return false;
}
