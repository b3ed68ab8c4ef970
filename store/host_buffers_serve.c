/*
 * Host buffers between a client that wants one and the workers of the host (host_buffers.h
 * decides): the memory is handed to every worker, and to the client when all have answered; it is
 * dropped when its client says so, or goes.
 */
#include <stdio.h>

#include "store/daemon_int.h"
#include "store/setup.h"
#include "store/spill.h"

/* Bit i: device i has a worker that will answer. */
static uint64_t present_workers(const struct store_daemon *daemon)
{
    uint64_t present = 0;

    for (uint32_t i = 0; i < daemon->host.device_count; i++) {
        const struct store_worker *worker = &daemon->workers[i];

        present |=
            (uint64_t)(worker->link.fd >= 0 && worker->proc.state == STORE_PROC_RUNNING)
            << i;
    }
    return present;
}

static void tell_holders(struct store_daemon *daemon,
                         const struct store_host_buffer *buffer, bool came)
{
    struct store_control drop = {.type   = STORE_CONTROL_HOST_BUFFER_DROP,
                                 .total  = daemon->host.device_count,
                                 .offset = buffer->id};
    uint64_t holders          = buffer->holders; /* telling one may end it */

    for (uint32_t i = 0; i < daemon->host.device_count; i++) {
        struct store_worker *worker = &daemon->workers[i];

        if ((holders & UINT64_C(1) << i) != 0 && worker->link.fd >= 0) {
            workers_sent(
                daemon, worker,
                came ? store_setup_host_buffer(&daemon->host, buffer, 0, &worker->link)
                     : store_link_send(&worker->link, &drop, NULL, 0));
        }
    }
}

void host_buffers_catch_up(struct store_daemon *daemon, struct store_worker *worker)
{
    const struct store_host_buffer *buffer;
    uint64_t bit = UINT64_C(1) << worker->host_device;

    for (size_t i = 0; (buffer = store_host_buffers_at(&daemon->host, i)) != NULL; i++) {
        if (buffer->fd >= 0 && (buffer->asked & bit) != 0) {
            workers_sent(daemon, worker,
                         store_setup_host_buffer(&daemon->host, buffer, 0, &worker->link));
        }
    }
}

/* The memory goes when the last worker has let go of it. */
static void host_buffer_drop(struct store_daemon *daemon, struct store_host_buffer *buffer)
{
    tell_holders(daemon, buffer, false);
    store_host_buffers_drop(&daemon->host, buffer);
}

void host_buffers_drop_of(struct store_daemon *daemon, uint32_t reader)
{
    const struct store_host_buffer *buffer;

    for (size_t i = 0; (buffer = store_host_buffers_at(&daemon->host, i)) != NULL;) {
        if (buffer->reader == reader && buffer->fd >= 0) {
            host_buffer_drop(daemon, store_host_buffers_find(&daemon->host, buffer->id));
            i = 0; /* others may have moved */
        } else {
            i++;
        }
    }
}

plasmon_status_t host_buffers_get(struct store_daemon *daemon, struct store_client *client,
                                  const struct store_control *message)
{
    struct store_host_buffer *buffer;
    struct pl_err err;
    plasmon_status_t status;

    if (!client->greeted) {
        return clients_error(client, message, PLASMON_EINVAL, "hello comes first");
    }
    if (!clients_files_left(daemon)) {
        return clients_error(client, message, PLASMON_ELIMIT, STORE_FEW_FILES);
    }
    status =
        store_host_buffers_make(&daemon->host, client->reader, message->chunk_id,
                                message->bytes, present_workers(daemon), &buffer, &err);
    if (status != PLASMON_OK) {
        return clients_error(client, message, status, err.text);
    }
    tell_holders(daemon, buffer, true);
    host_buffers_answer(daemon); /* there may be no worker to wait for */
    return PLASMON_OK;
}

plasmon_status_t host_buffers_drop(struct store_daemon *daemon, struct store_client *client,
                                   const struct store_control *message)
{
    struct store_host_buffer *buffer =
        store_host_buffers_find(&daemon->host, message->offset);

    if (client->greeted && buffer != NULL && buffer->reader == client->reader) {
        host_buffer_drop(daemon, buffer);
    }
    return PLASMON_OK;
}

static struct store_client *client_of_reader(struct store_daemon *daemon, uint32_t reader)
{
    struct pl_list *pos;

    pl_list_for_each(pos, &daemon->clients) {
        struct store_client *client = pl_container_of(pos, struct store_client, list);

        if (client->greeted && client->reader == reader) {
            return client;
        }
    }
    return NULL;
}

static plasmon_status_t host_buffer_answer(struct store_daemon *daemon,
                                           struct store_client *client,
                                           struct store_host_buffer *buffer)
{
    const struct store_control request = {.chunk_id = buffer->request};
    char text[160];

    if (buffer->failed == PLASMON_OK) {
        return store_setup_host_buffer(&daemon->host, buffer, buffer->request,
                                       &client->link);
    }
    (void)snprintf(text, sizeof(text),
                   "the worker of device %u of this host cannot page-lock %llu bytes: %s",
                   buffer->failed_device, (unsigned long long)buffer->bytes,
                   pl_status_text(buffer->failed));
    return clients_error(client, &request, buffer->failed, text);
}

void host_buffers_spill(struct store_daemon *daemon)
{
    struct store_spill *spill = daemon->uplink->spill;
    struct store_host_buffer *buffer;
    struct pl_err err;
    plasmon_status_t status = store_host_buffers_make(
        &daemon->host, STORE_HOST_BUFFER_SPILL, 0, store_spill_memory_bytes(spill),
        present_workers(daemon), &buffer, &err);

    if (status != PLASMON_OK) {
        store_spill_slab_made(spill, status, -1, 0, 0, err.text);
        return;
    }
    tell_holders(daemon, buffer, true);
    host_buffers_answer(daemon); /* there may be no worker to wait for */
}

/* Every worker has more of the memory that is for spilling, or has answered for all of it. */
static void spill_answer(struct store_daemon *daemon, struct store_host_buffer *buffer)
{
    struct store_spill *spill = daemon->uplink->spill;
    uint64_t usable           = store_host_buffers_usable(buffer);
    char text[160];

    if (!buffer->given || buffer->failed == PLASMON_OK) {
        store_spill_slab_made(spill, PLASMON_OK, buffer->fd, buffer->id, usable, "");
        return;
    }
    (void)snprintf(text, sizeof(text),
                   "the worker of device %u of this host cannot page-lock more than %llu "
                   "of %llu bytes for spilling (%s); start plasmon-store with less "
                   "--spill-memory",
                   buffer->failed_device, (unsigned long long)usable,
                   (unsigned long long)buffer->bytes, pl_status_text(buffer->failed));
    store_spill_slab_made(spill, buffer->failed, buffer->fd, buffer->id, usable, text);
    if (store_spill_slab(spill) == 0) { /* else something may lie in it */
        host_buffer_drop(daemon, buffer);
    }
}

void host_buffers_answer(struct store_daemon *daemon)
{
    struct store_host_buffer *buffer;

    while ((buffer = store_host_buffers_decided(&daemon->host)) != NULL) {
        if (buffer->reader == STORE_HOST_BUFFER_SPILL) {
            spill_answer(daemon, buffer);
            continue;
        }
        struct store_client *client = client_of_reader(daemon, buffer->reader);
        bool keep                   = client != NULL && buffer->failed == PLASMON_OK;

        /* A client that cannot be told is found out when its socket is looked at. */
        if (client != NULL && host_buffer_answer(daemon, client, buffer) == PLASMON_OK) {
            (void)daemon_link_flush(daemon, &client->link, &client->control);
        }
        if (!keep) {
            host_buffer_drop(daemon, buffer);
        }
    }
}
