/*
 * Transfers with devices of other hosts: the worker's side of the bulk channel (transfer/bulk.h).
 * The head tells where each of them listens before it sends a launch that names it, again when its
 * worker was restarted, and that it is gone when it is.
 *
 * A receive from a device that is gone gets no bytes: its words are moved here, for those that are
 * enqueued when we hear of it (worker_core_release_receives) and for those that come later.
 */
#include "worker/bulk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/ports.h"

void worker_bulk_init(struct worker_bulk *bulk)
{
    *bulk = (struct worker_bulk){.channel = NULL};
}

plasmon_status_t worker_bulk_start(struct worker_bulk *bulk, struct device *device,
                                   struct worker_memory *memory, struct worker_lanes *lanes,
                                   const struct worker_options *options, struct pl_err *err)
{
    const struct worker_shared *shared = lanes->shared;
    const char *listen                 = options->bulk_address;
    const char *ports                  = options->bulk_ports;
    struct transfer_bulk_config config = {
        .device      = device,
        .ring        = {.timeline = shared->timelines[shared->host_device],
                        .slab     = shared->slabs[shared->host_device]},
        .listen      = listen,
        .tls_cert    = options->tls_cert,
        .tls_key     = options->tls_key,
        .tls_ca      = options->tls_ca,
        .access      = &worker_bulk_clients_ops,
        .access_user = &bulk->clients,
        .staged      = getenv("PLASMON_BULK_STAGED") != NULL,
    };
    plasmon_status_t status;

    if (listen == NULL || strcmp(listen, "none") == 0) {
        return PLASMON_OK;
    }
    if (!pl_parse_ports(ports, &config.port_first, &config.port_last)) {
        return pl_err_set(err, PLASMON_EINVAL,
                          "--bulk-ports is FIRST-LAST, each from 1 to 65535, and not "
                          "\"%s\"",
                          ports);
    }
    status = worker_bulk_clients_init(&bulk->clients, device, memory, lanes, config.staged,
                                      bulk->endpoint.secret);
    if (status != PLASMON_OK) {
        return pl_err_set(err, status, "no memory for the bulk channel's clients");
    }
    bulk->tls = options->tls_cert != NULL;
    status    = transfer_bulk_create(&config, &bulk->channel, &bulk->endpoint, err);
    if (status != PLASMON_OK) {
        worker_bulk_clients_finish(&bulk->clients);
    }
    return status;
}

void worker_bulk_identify(struct worker_bulk *bulk, uint64_t epoch, uint32_t device)
{
    if (bulk->channel != NULL) {
        worker_bulk_clients_identify(&bulk->clients, epoch, device);
    }
}

void worker_bulk_begin(struct worker_bulk *bulk, uint32_t device)
{
    if (bulk->channel != NULL) {
        transfer_bulk_identify(bulk->channel, device);
    }
}

void worker_bulk_finish(struct worker_bulk *bulk)
{
    transfer_bulk_destroy(bulk->channel);
    worker_bulk_clients_finish(&bulk->clients);
}

plasmon_status_t worker_bulk_peer(struct worker_bulk *bulk, uint32_t device,
                                  const char *address, const uint8_t *secret)
{
    struct transfer_bulk_endpoint endpoint;

    if (bulk->channel == NULL) {
        return PLASMON_OK; /* nothing will be sent there from here */
    }
    (void)snprintf(endpoint.address, sizeof(endpoint.address), "%s", address);
    memcpy(endpoint.secret, secret, sizeof(endpoint.secret));
    return transfer_bulk_peer(bulk->channel, device, &endpoint);
}

plasmon_status_t worker_bulk_gone(struct worker_bulk *bulk, uint32_t device)
{
    return bulk->channel == NULL ? PLASMON_OK : transfer_bulk_gone(bulk->channel, device);
}

void worker_bulk_rest(struct worker_bulk *bulk)
{
    if (bulk->channel != NULL) {
        transfer_bulk_rest(bulk->channel);
    }
}

plasmon_status_t worker_bulk_give_up(struct worker_bulk *bulk, uint32_t device,
                                     bool receives, uint64_t first, uint64_t count)
{
    return bulk->channel == NULL
               ? PLASMON_OK
               : transfer_bulk_give_up(bulk->channel, device, receives, first, count);
}

bool worker_bulk_stats(const struct worker_bulk *bulk, size_t *io_index, uint32_t *out_peer,
                       struct transfer_bulk_stats *out)
{
    return bulk->channel != NULL &&
           transfer_bulk_next_stats(bulk->channel, io_index, out_peer, out);
}

plasmon_status_t worker_bulk_prepare(struct worker_bulk *bulk, uint32_t to)
{
    return bulk->channel == NULL ? PLASMON_OK : transfer_bulk_prepare(bulk->channel, to);
}

plasmon_status_t worker_bulk_send(struct worker_bulk *bulk, struct device_stream *stream,
                                  uint32_t to, uint64_t first_chunk, struct device_ptr src,
                                  uint64_t bytes, bool with_bytes)
{
    return bulk->channel == NULL ? PLASMON_EUNREACHABLE
                                 : transfer_bulk_send(bulk->channel, stream, to,
                                                      first_chunk, src, bytes, with_bytes);
}

plasmon_status_t worker_bulk_recv(struct worker_bulk *bulk, struct device_stream *stream,
                                  uint32_t from, uint64_t first_chunk,
                                  struct device_ptr dst, uint64_t bytes, bool with_bytes,
                                  struct transfer_counters *counters)
{
    return bulk->channel == NULL
               ? PLASMON_EUNREACHABLE
               : transfer_bulk_recv(bulk->channel, stream, from, first_chunk, dst, bytes,
                                    with_bytes, counters);
}

plasmon_status_t worker_bulk_expect(struct worker_bulk *bulk, uint32_t from,
                                    uint64_t first_chunk, uint64_t bytes)
{
    return bulk->channel == NULL ? PLASMON_EUNREACHABLE
                                 : transfer_bulk_expect(bulk->channel, from, first_chunk,
                                                        transfer_chunks(bytes));
}
