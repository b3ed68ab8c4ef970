/*
 * Who may send objects to whom between hosts. A worker says where it listens and what lets others
 * in; every worker of another host is told before the first launch that names it, as commands go
 * out in order. A device that is gone stays told: who waits for its half of a transfer must not
 * wait on.
 *
 * Clients are not told the secret but given a ticket for the one buffer that they asked about
 * (wire/ticket.h). It ends by the worker's clock, of which its hello told us the time; a worker
 * that connects again tells it again.
 */
#include "head/core_int.h"

#include <string.h>

#define FIELD_BULK_PEERS 13

static void tell(struct head_device *to, const struct head_device *device)
{
    Plasmon__V1__BulkPeer peer;

    plasmon__v1__bulk_peer__init(&peer);
    peer.device = device->index;
    peer.gone   = device->gone;
    if (!device->gone) {
        peer.address     = device->bulk_address;
        peer.secret.data = (uint8_t *)(uintptr_t)device->bulk_secret;
        peer.secret.len  = sizeof(device->bulk_secret);
    }
    head_bytes_message(&to->out, FIELD_BULK_PEERS, &peer.base);
}

/* It listens somewhere, or did until it was gone; and `to` is elsewhere. */
static bool concerns(const struct head_device *to, const struct head_device *device)
{
    return to != device && to->bulk_address[0] != '\0' && device->bulk_address[0] != '\0' &&
           head_device_apart(to, device);
}

void head_bulk_tell(struct head_core *core, const struct head_device *device)
{
    for (uint32_t i = 0; i < core->devices.count; i++) {
        struct head_device *to = head_device_at(core, i);

        if (to->joined && !to->gone && concerns(to, device)) {
            tell(to, device);
        }
    }
}

void head_bulk_tell_all(struct head_core *core, struct head_device *device)
{
    for (uint32_t i = 0; i < core->devices.count; i++) {
        const struct head_device *other = head_device_at(core, i);

        if (other->joined && concerns(device, other)) {
            tell(device, other);
        }
    }
}

void head_bulk_take(struct head_core *core, struct head_device *device,
                    const Plasmon__V1__WorkerHello *hello)
{
    bool same;

    device->bulk_tls      = hello->bulk_tls;
    device->bulk_clock_ms = hello->bulk_clock_ms;
    device->bulk_heard_ms = core->now_ms;
    same =
        strcmp(device->bulk_address, hello->bulk_address) == 0 &&
        (hello->bulk_secret.len == 0 || memcmp(device->bulk_secret, hello->bulk_secret.data,
                                               sizeof(device->bulk_secret)) == 0);

    if (same) {
        return;
    }
    pl_free(device->bulk_address);
    device->bulk_address  = head_strdup(hello->bulk_address);
    device->bulk_since_ms = core->now_ms;
    if (hello->bulk_secret.len == sizeof(device->bulk_secret)) {
        memcpy(device->bulk_secret, hello->bulk_secret.data, sizeof(device->bulk_secret));
    }
    head_bulk_tell(core, device);
}

Plasmon__V1__BulkAccess head_bulk_access(const struct head_device *device)
{
    if (!device->connected || device->bulk_address[0] == '\0') {
        return PLASMON__V1__BULK_ACCESS__BULK_ACCESS_NONE;
    }
    return device->bulk_tls ? PLASMON__V1__BULK_ACCESS__BULK_ACCESS_TLS
                            : PLASMON__V1__BULK_ACCESS__BULK_ACCESS_PLAIN;
}

Plasmon__V1__BulkGrant *head_bulk_grant(struct head_core *core, uint64_t buffer,
                                        uint64_t client, uint32_t rights)
{
    const struct head_device *device = head_device_at(core, wire_buffer_device(buffer));
    struct wire_ticket ticket = {.buffer = buffer, .client = client, .rights = rights};
    Plasmon__V1__BulkGrant *grant;

    if (head_bulk_access(device) == PLASMON__V1__BULK_ACCESS__BULK_ACCESS_NONE) {
        return NULL;
    }
    ticket.until_ms = device->bulk_clock_ms + (core->now_ms - device->bulk_heard_ms) +
                      WIRE_TICKET_LIFE_MS;
    grant = wire_arena_alloc(&core->arena, sizeof(*grant));
    PL_CHECK(grant != NULL);
    plasmon__v1__bulk_grant__init(grant);
    grant->address     = device->bulk_address;
    grant->tls         = device->bulk_tls;
    grant->ticket.len  = WIRE_TICKET_BYTES;
    grant->ticket.data = wire_arena_alloc(&core->arena, WIRE_TICKET_BYTES);
    PL_CHECK(grant->ticket.data != NULL);
    wire_ticket_make(&ticket, core->epoch, device->bulk_secret, sizeof(device->bulk_secret),
                     grant->ticket.data);
    return grant;
}
