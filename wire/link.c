/*
 * The reliable link: exactly once and in order over connections that break.
 *
 * Sender: every frame with ops has a number and a kept copy. Connections drop frames only from the
 * end (what was in flight when they broke), and after a reconnect the receiver says the last number
 * it took over; what follows it is sent again. So the receiver sees each number for the first time
 * in order, perhaps after repeats of lower ones, which it drops.
 *
 * INVARIANTS
 *   (1) The kept frames are exactly the numbers out_acked + 1 ... out_seq that were passed to
 *       wire_link_sent(), in order.
 *   (2) in_seq only grows, by one.
 *   (3) kept_bytes is the sum of their lengths, at most kept_bytes_max.
 */
#include "wire/wire_int.h"

#include <assert.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fault.h"

#define LINK_OWED_MANY 8u

struct wire_kept {
    struct wire_kept *next;
    uint64_t seq;
    size_t length;
    uint8_t bytes[];
};

void wire_link_init(struct wire_link *link, uint64_t kept_bytes_max)
{
    *link = (struct wire_link){.kept_bytes_max = kept_bytes_max};
}

static void link_drop_first(struct wire_link *link)
{
    struct wire_kept *kept = link->kept_first;

    link->kept_first = kept->next;
    if (link->kept_first == NULL) {
        link->kept_last = NULL;
    }
    assert(link->kept_bytes >= kept->length);
    link->kept_bytes -= kept->length;
    pl_free(kept);
}

void wire_link_finish(struct wire_link *link)
{
    while (link->kept_first != NULL) {
        link_drop_first(link);
    }
}

uint64_t wire_link_next_seq(struct wire_link *link)
{
    return ++link->out_seq;
}

bool wire_link_fits(const struct wire_link *link, size_t length)
{
    return length <= link->kept_bytes_max - link->kept_bytes;
}

uint8_t *wire_link_keep(struct wire_link *link, uint64_t seq, size_t length)
{
    struct wire_kept *kept;

    assert(seq > link->out_acked && seq <= link->out_seq);
    assert(link->kept_last == NULL || link->kept_last->seq < seq);

    if (!wire_link_fits(link, length)) {
        return NULL;
    }

    kept = pl_fault_point("wire.keep") ? NULL : pl_alloc(sizeof(*kept) + length);
    if (kept == NULL) {
        return NULL;
    }
    kept->seq    = seq;
    kept->length = length;

    if (link->kept_last == NULL) {
        link->kept_first = kept;
    } else {
        link->kept_last->next = kept;
    }
    link->kept_last = kept;
    link->kept_bytes += length;
    return kept->bytes;
}

plasmon_status_t wire_link_sent(struct wire_link *link, uint64_t seq, const uint8_t *bytes,
                                size_t length)
{
    bool fits     = wire_link_fits(link, length);
    uint8_t *kept = wire_link_keep(link, seq, length);

    if (kept == NULL) {
        return fits ? PLASMON_ENOMEM : PLASMON_ELIMIT;
    }
    memcpy(kept, bytes, length);
    return PLASMON_OK;
}

int wire_link_receive(struct wire_link *link, uint64_t seq)
{
    if (seq == 0) {
        return 1;
    }
    if (seq <= link->in_seq) {
        return 0;
    }
    if (seq != link->in_seq + 1) {
        return -1;
    }
    link->in_seq = seq;
    return 1;
}

void wire_link_acked(struct wire_link *link, uint64_t ack)
{
    if (ack > link->out_seq || ack <= link->out_acked) {
        return;
    }
    link->out_acked = ack;
    while (link->kept_first != NULL && link->kept_first->seq <= ack) {
        link_drop_first(link);
    }
}

void wire_link_resend(const struct wire_link *link, uint64_t from,
                      void (*fn)(void *user, const uint8_t *bytes, size_t length),
                      void *user)
{
    for (struct wire_kept *kept = link->kept_first; kept != NULL; kept = kept->next) {
        if (kept->seq == from + 1 && kept->next != NULL && pl_bug("wire.resend_less")) {
            continue;
        }
        if (kept->seq > from) {
            fn(user, kept->bytes, kept->length);
        }
    }
}

bool wire_link_owes_ack(const struct wire_link *link)
{
    return link->in_seq != link->in_acked;
}

bool wire_link_owes_many(const struct wire_link *link)
{
    return link->in_seq - link->in_acked >= LINK_OWED_MANY;
}

uint64_t wire_link_ack(struct wire_link *link)
{
    link->in_acked = link->in_seq;
    return link->in_seq;
}
