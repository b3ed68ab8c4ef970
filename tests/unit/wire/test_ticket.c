/*
 * Tickets: who made one can tell, whoever changes one is found out, and none is good in another
 * epoch or with another secret.
 */
#include <string.h>

#include "tests/harness/test.h"
#include "wire/ticket.h"

static const uint8_t secret[16] = "sixteen bytes !";
#define EPOCH UINT64_C(0x1122334455667788)

static void make(uint8_t out[WIRE_TICKET_BYTES])
{
    struct wire_ticket ticket = {.buffer   = UINT64_C(0x0003000007000009),
                                 .until_ms = 1234567,
                                 .client   = UINT64_C(0xfedcba9876543210),
                                 .rights   = WIRE_TICKET_READ};

    wire_ticket_make(&ticket, EPOCH, secret, sizeof(secret), out);
}

TEST(what_a_ticket_says_is_what_it_was_made_of)
{
    uint8_t bytes[WIRE_TICKET_BYTES];
    struct wire_ticket ticket;

    make(bytes);
    ASSERT_OK(wire_ticket_open(bytes, EPOCH, secret, sizeof(secret), &ticket));
    ASSERT_EQ(ticket.buffer, UINT64_C(0x0003000007000009));
    ASSERT_EQ(ticket.until_ms, 1234567);
    ASSERT_EQ(ticket.client, UINT64_C(0xfedcba9876543210));
    ASSERT_EQ(ticket.rights, WIRE_TICKET_READ);
}

TEST(a_ticket_with_any_bit_changed_is_refused)
{
    uint8_t bytes[WIRE_TICKET_BYTES];
    struct wire_ticket ticket;

    make(bytes);
    for (size_t bit = 0; bit < 8 * sizeof(bytes); bit++) {
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        ASSERT_EQ(wire_ticket_open(bytes, EPOCH, secret, sizeof(secret), &ticket),
                  PLASMON_EAUTH);
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
}

TEST(a_ticket_is_no_good_in_another_epoch_or_at_another_worker)
{
    uint8_t bytes[WIRE_TICKET_BYTES], other[16];
    struct wire_ticket ticket;

    make(bytes);
    memcpy(other, secret, sizeof(other));
    other[15] ^= 1;
    ASSERT_EQ(wire_ticket_open(bytes, EPOCH + 1, secret, sizeof(secret), &ticket),
              PLASMON_EAUTH);
    ASSERT_EQ(wire_ticket_open(bytes, EPOCH, other, sizeof(other), &ticket), PLASMON_EAUTH);
}

TEST_MAIN()
