/*
 * Tickets: how the head lets a client move the bytes of one buffer directly between itself and the
 * worker that has it, over the bulk channel (transfer/bulk_client.h), without either of them asking
 * the head once more.
 *
 *   bytes 0..31   buffer, the end of its time, the client, rights and zeros: little-endian
 *   bytes 32..63  HMAC-SHA256 of those and the head's epoch, under the secret that the worker made
 *                 and told the head
 *
 * A client can read a ticket and cannot change it; it never sees the secret, which would let it
 * write into the staging ring. A ticket is good for one buffer (a device, a slot and its
 * generation), for reading or for writing, of one worker process (the next one has another secret)
 * in one epoch, and until a time by the worker's own clock, so that clocks of machines need not
 * agree. The worker keeps nothing of a ticket. What it allows, the state of the buffer allows as
 * well, or it is not done: writing only what a put opened and did not seal, reading only what is
 * sealed.
 *
 * Pure functions. Threads: any.
 */
#ifndef WIRE_TICKET_H
#define WIRE_TICKET_H

#include "base/base.h"

#define WIRE_TICKET_BYTES   64u
#define WIRE_TICKET_LIFE_MS UINT64_C(600000) /* within which a transfer must begin */

enum wire_ticket_rights {
    WIRE_TICKET_READ  = 1,
    WIRE_TICKET_WRITE = 2,
};

struct wire_ticket {
    uint64_t buffer;
    uint64_t until_ms; /* the worker's clock */
    uint64_t client;   /* for people */
    uint32_t rights;   /* enum wire_ticket_rights: one of them */
};

void wire_ticket_make(const struct wire_ticket *ticket, uint64_t epoch,
                      const uint8_t *secret, size_t secret_bytes,
                      uint8_t out[WIRE_TICKET_BYTES]);
/* EAUTH: not made with this secret in this epoch. Whether its time is over is the caller's to see. */
plasmon_status_t wire_ticket_open(const uint8_t bytes[WIRE_TICKET_BYTES], uint64_t epoch,
                                  const uint8_t *secret, size_t secret_bytes,
                                  struct wire_ticket *out) PL_MUST_CHECK;

#endif
