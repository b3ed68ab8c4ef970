#include "wire/ticket.h"

#include <assert.h>
#include <string.h>

#include "base/sha256.h"

#define BODY_BYTES (WIRE_TICKET_BYTES - PL_SHA256_BYTES)
static_assert(BODY_BYTES == 32, "wire format");

static void put64(uint8_t *out, uint64_t value)
{
    for (unsigned i = 0; i < 8; i++) {
        out[i] = (uint8_t)(value >> (8 * i));
    }
}

static uint64_t get64(const uint8_t *bytes)
{
    uint64_t value = 0;

    for (unsigned i = 0; i < 8; i++) {
        value |= (uint64_t)bytes[i] << (8 * i);
    }
    return value;
}

static void sign(const uint8_t body[BODY_BYTES], uint64_t epoch, const uint8_t *secret,
                 size_t secret_bytes, uint8_t out[PL_SHA256_BYTES])
{
    uint8_t text[BODY_BYTES + 8];

    memcpy(text, body, BODY_BYTES);
    put64(text + BODY_BYTES, epoch);
    pl_hmac_sha256(secret, secret_bytes, text, sizeof(text), out);
}

void wire_ticket_make(const struct wire_ticket *ticket, uint64_t epoch,
                      const uint8_t *secret, size_t secret_bytes,
                      uint8_t out[WIRE_TICKET_BYTES])
{
    put64(out, ticket->buffer);
    put64(out + 8, ticket->until_ms);
    put64(out + 16, ticket->client);
    put64(out + 24, ticket->rights);
    sign(out, epoch, secret, secret_bytes, out + BODY_BYTES);
}

plasmon_status_t wire_ticket_open(const uint8_t bytes[WIRE_TICKET_BYTES], uint64_t epoch,
                                  const uint8_t *secret, size_t secret_bytes,
                                  struct wire_ticket *out)
{
    uint8_t expected[PL_SHA256_BYTES], difference = 0;

    sign(bytes, epoch, secret, secret_bytes, expected);
    for (size_t i = 0; i < sizeof(expected);
         i++) { /* no early end: its time tells nothing */
        difference |= (uint8_t)(expected[i] ^ bytes[BODY_BYTES + i]);
    }
    if (difference != 0) {
        return PLASMON_EAUTH;
    }
    *out = (struct wire_ticket){.buffer   = get64(bytes),
                                .until_ms = get64(bytes + 8),
                                .client   = get64(bytes + 16),
                                .rights   = (uint32_t)get64(bytes + 24)};
    return PLASMON_OK;
}
