/*
 * Sending to one device: a ring of pinned slots that our device fills, and a thread that sends them in order.
 *
 * A slot is free when the receiver has answered its chunk, so that whatever was not answered can be
 * sent once more over the next connection. The receiver knows by number what it has. Items are
 * therefore kept until they are answered: `sent` of them are on the way, the first of the FIFO is
 * the oldest.
 *
 * STALLS. While something is owed, nothing may be unheard for longer than a second and four times
 * what the owed bytes should take; the receiver says a few times a second that it gets on, if it
 * does. When that is over the connection is, and the measured rate is halved, so that the next
 * deadline is longer: a network that is slower than we thought is not taken for dead for ever. Who
 * cannot be reached directly for so long is tried through a relay (bulk_relay.c) and directly in
 * turns.
 *
 * A peer that is gone answers nothing more: items are taken as answered as soon as our device has
 * done its half.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/log.h"
#include "transfer/bulk_int.h"

#define SLAB_BYTES     ((uint64_t)TRANSFER_BULK_OUT_SLOTS * STORE_STAGE_SLOT_BYTES)
#define WORDS_BYTES    4096u
#define ITEMS_OVER_MAX 1024u /* at the front of the FIFO before it is moved up */

/* then we look at everything else, whoever answers without an end */
#define ANSWERS_AT_ONCE 1024u

#define LOOK_MS  100 /* between looks at the clock while something is owed */
#define IDLE_MS  1000
#define RELAY_NS UINT64_C(30000000000)
#define PROBE_NS UINT64_C(1000000000)
/* A rate is measured over so long, or until nothing is under way; fewer bytes say nothing of it. */
#define MEASURE_NS    UINT64_C(20000000)
#define MEASURE_BYTES (UINT64_C(1) << 20)
/* The thread's own. */
struct sender {
    struct bulk_out *out;
    struct transfer_bulk_endpoint endpoint;
    uint32_t endpoint_version;
    struct bulk_link link;
    struct bulk_answer answer; /* of which answer_bytes have come */
    size_t answer_bytes;
    uint32_t sent;        /* items at the front of the FIFO that are on the way */
    uint64_t sent_bytes;  /* theirs */
    uint32_t retry_ms;    /* before the next connection */
    uint64_t heard_ns;    /* when the other side last got on */
    uint64_t timed_ns;    /* what is measured next began then; 0: it would not be right */
    uint64_t timed_bytes; /* answered since */
    bool timed_from_idle; /* nothing was under way then */
    uint64_t rate;        /* bytes a second */
    uint64_t down_ns;     /* nothing was answered since then; 0: all is well */
    uint32_t relay_last;  /* tried */
    bool relay_next;      /* at the next attempt */
    bool relayed;         /* this connection is */
    uint64_t relay_until_ns; /* until then the way through a relay is the first choice */
    bool late;               /* who cannot be reached was told of, and is a stall */
    /* nothing got on since then, of what could have; 0: all is well */
    uint64_t unreached_ns;
    /* what was enqueued when the attempt began ends there, in chunks of our own; 0: nothing */
    uint64_t tried_end;
    uint64_t tried_last; /* the last of these, in the receiver's ring */
    /* nothing is to be sent: the next attempt to see whether it could be */
    uint64_t probe_ns;
};

/* -------------------------------------------------------------------------------- items */

static bool item_at(struct bulk_out *out, uint32_t index, struct bulk_item *item)
{
    bool there;

    *item = (struct bulk_item){0};
    pl_mutex_lock(&out->lock);
    there = out->items_first + index < out->items.count;
    if (there) {
        *item = *(struct bulk_item *)pl_vec_at(&out->items, out->items_first + index);
    }
    pl_mutex_unlock(&out->lock);
    return there;
}

static void item_over(struct bulk_out *out, const struct bulk_item *item)
{
    struct bulk_item *items;

    pl_mutex_lock(&out->lock);
    out->stats.bytes += item->bytes;
    out->stats.bytes_queued -= item->bytes;
    items = out->items.items;
    if (++out->items_first == out->items.count || out->items_first >= ITEMS_OVER_MAX) {
        out->items.count -= out->items_first;
        memmove(items, items + out->items_first, out->items.count * sizeof(*items));
        out->items_first = 0;
    }
    pl_mutex_unlock(&out->lock);
    /* Release: nothing of the slot is read after this. */
    __atomic_store_n(&out->words->sent.value, item->own + 1, __ATOMIC_RELEASE);
    device_word_wake(&out->words->sent.value);
}

/* Our device has put it into its slot. */
static bool item_ready(const struct bulk_out *out, const struct bulk_item *item)
{
    return __atomic_load_n(&out->words->ready[item->own % TRANSFER_BULK_OUT_SLOTS].value,
                           __ATOMIC_ACQUIRE) > item->own;
}

/*
 * The first one was given up: nothing of it is to be sent. Chunks are enqueued in order, so what
 * lies before it is over.
 */
static bool first_given_up(struct bulk_out *out, struct bulk_item *out_item)
{
    bool given = false;

    pl_mutex_lock(&out->lock);
    if (out->given_up.count > 0 && out->items_first < out->items.count) {
        *out_item = *(struct bulk_item *)pl_vec_at(&out->items, out->items_first);
        for (size_t i = 0; i < out->given_up.count && !given;) {
            const struct bulk_fill *range = pl_vec_at(&out->given_up, i);

            if (out_item->chunk >= range->first + range->count) {
                pl_vec_remove_unordered(&out->given_up, i);
            } else {
                given = out_item->chunk >= range->first;
                i++;
            }
        }
    }
    pl_mutex_unlock(&out->lock);
    return given;
}

/* ----------------------------------------------------------------- whom nothing reaches */

/* What is enqueued now has an attempt of its own from here on. */
static void attempt_begins(struct sender *sender)
{
    struct bulk_out *out = sender->out;

    pl_mutex_lock(&out->lock);
    sender->tried_end = 0;
    if (out->items_first < out->items.count) {
        const struct bulk_item *last = pl_vec_at(&out->items, out->items.count - 1);

        sender->tried_end  = last->own + 1;
        sender->tried_last = last->chunk;
    }
    pl_mutex_unlock(&out->lock);
}

/* It failed. Who has no bytes ready to go misses nothing yet. */
static void attempt_failed(struct sender *sender, const char *why)
{
    struct bulk_out *out = sender->out;
    uint64_t now_ns      = pl_now_ns();
    struct bulk_item item;
    bool waits =
        item_at(out, 0, &item) && item_ready(out, &item) && item.own < sender->tried_end;

    sender->unreached_ns = sender->unreached_ns == 0 ? now_ns : sender->unreached_ns;
    pl_mutex_lock(&out->lock);
    out->stats.unreached_ms   = waits ? (now_ns - sender->unreached_ns) / 1000000 : 0;
    out->stats.unreached_last = sender->tried_last;
    (void)snprintf(out->stats.unreached_why, sizeof(out->stats.unreached_why), "%s", why);
    pl_mutex_unlock(&out->lock);
}

/* A connection moves bytes, waits for a device, or has nothing to move. */
static void gets_on(struct sender *sender)
{
    if (sender->unreached_ns == 0) {
        return;
    }
    sender->unreached_ns = 0;
    pl_mutex_lock(&sender->out->lock);
    sender->out->stats.unreached_ms     = 0;
    sender->out->stats.unreached_why[0] = '\0';
    pl_mutex_unlock(&sender->out->lock);
}

/* ----------------------------------------------------------------------- the connection */

static void disconnect(struct sender *sender, plasmon_status_t status)
{
    struct bulk_out *out = sender->out;

    if (sender->link.fd >= 0) {
        pl_debug("bulk", "connection to device %u ends: %s", out->peer,
                 pl_status_text(status));
    }
    bulk_link_close(&sender->link);
    if (sender->sent > 0 && status != PLASMON_OK) {
        char why[TRANSFER_BULK_WHY_BYTES];

        (void)snprintf(why, sizeof(why), "%s took what was sent and answered nothing",
                       sender->endpoint.address);
        attempt_failed(sender, why);
    }
    pl_mutex_lock(&out->lock);
    out->stats.retries += sender->sent; /* all that was not answered goes again */
    out->stats.stalls += status == PLASMON_ETIMEDOUT;
    pl_mutex_unlock(&out->lock);
    if (sender->sent > 0 && sender->down_ns == 0) {
        sender->down_ns = pl_now_ns();
    }
    sender->sent         = 0;
    sender->sent_bytes   = 0;
    sender->answer_bytes = 0;
    sender->relayed      = false;
}

static uint64_t deadline_ns(const struct sender *sender)
{
    return bulk_deadline_ns(sender->sent_bytes, sender->rate);
}

/* It did not come in time. */
static void stalled(struct sender *sender)
{
    pl_warn("bulk",
            "nothing was heard of device %u for %llu ms, which owes answers to %llu bytes: "
            "connecting again",
            sender->out->peer,
            (unsigned long long)((pl_now_ns() - sender->heard_ns) / 1000000),
            (unsigned long long)sender->sent_bytes);
    sender->rate = pl_max_u64(sender->rate / 2, BULK_RATE_MIN);
    disconnect(sender, PLASMON_ETIMEDOUT);
}

/* Directly, or through the next relay. */
static plasmon_status_t connect_once(struct sender *sender, struct pl_err *err)
{
    struct transfer_bulk *bulk = sender->out->bulk;
    uint64_t now_ns            = pl_now_ns();
    bool relay                 = sender->relay_next &&
                 (now_ns < sender->relay_until_ns ||
                  now_ns - sender->down_ns > bulk_deadline_ns(0, sender->rate));
    struct transfer_bulk_endpoint endpoint = sender->endpoint;
    plasmon_status_t status;

    relay = relay && bulk_relay_find(bulk, sender->out->peer, sender->endpoint.address,
                                     &sender->relay_last, &endpoint);
    sender->relay_next = !sender->relay_next;
    if (pl_fault_point("transfer.bulk_connect")) {
        return pl_err_set(err, PLASMON_ECONNECT, "fault point");
    }
    status = bulk_connect(endpoint.address, bulk->stop_fd, &sender->link.fd, err);
    if (status == PLASMON_OK) {
        status = bulk_link_introduce(&sender->link, bulk->tls, atomic_load(&bulk->device),
                                     sender->out->peer, &endpoint, err);
    }
    if (status == PLASMON_OK && relay) {
        pl_warn("bulk", "device %u is reached through device %u: directly it cannot be",
                sender->out->peer, sender->relay_last);
        pl_mutex_lock(&sender->out->lock);
        sender->out->stats.relays++;
        pl_mutex_unlock(&sender->out->lock);
        sender->relayed        = true;
        sender->relay_until_ns = pl_now_ns() + RELAY_NS;
    }
    return status;
}

/*
 * Nobody owes an answer who was never reached: the deadline is that of no bytes. Told once, where
 * people look.
 */
static void unreached(struct sender *sender, plasmon_status_t status, const char *why)
{
    uint64_t since_ns = pl_now_ns() - sender->down_ns;

    if (sender->late || since_ns <= bulk_deadline_ns(0, sender->rate)) {
        return;
    }
    sender->late = true;
    pl_warn("bulk",
            "device %u has not been reached for %llu ms: %s; does a firewall let machines "
            "through to --bulk-address and --bulk-ports of its store? Trying again",
            sender->out->peer, (unsigned long long)(since_ns / 1000000), why);
    pl_mutex_lock(&sender->out->lock);
    sender->out->stats.stalls += status != PLASMON_ETIMEDOUT; /* those are counted */
    pl_mutex_unlock(&sender->out->lock);
}

/* After a failure, longer each time. */
static void connect_again(struct sender *sender)
{
    struct pollfd stop = {.fd = sender->link.stop_fd, .events = POLLIN};
    struct pl_err err  = {.status = PLASMON_OK};
    plasmon_status_t status;
    const char *why;

    sender->heard_ns = pl_now_ns();
    sender->down_ns  = sender->down_ns == 0 ? sender->heard_ns : sender->down_ns;
    attempt_begins(sender);
    status = connect_once(sender, &err);
    if (status == PLASMON_OK) {
        sender->retry_ms = 0;
        sender->late     = false;
        sender->heard_ns = pl_now_ns();
        return;
    }
    why = err.text[0] != '\0' ? err.text : pl_status_text(status);
    if (sender->retry_ms == 0 || sender->retry_ms >= BULK_RETRY_MAX_MS) {
        pl_info("bulk", "device %u cannot be reached: %s", sender->out->peer, why);
    }
    unreached(sender, status, why);
    attempt_failed(sender, why);
    disconnect(sender, status);
    sender->retry_ms = (uint32_t)pl_min_u64(
        pl_max_u64(sender->retry_ms * 2ull, BULK_RETRY_MIN_MS), BULK_RETRY_MAX_MS);
    sender->probe_ns = pl_now_ns() + PROBE_NS;
    (void)poll(&stop, 1, (int)sender->retry_ms);
}

/* Another endpoint (the peer's worker was restarted), or none at all any more. */
static bool news_taken(struct sender *sender)
{
    struct bulk_out *out = sender->out;
    bool gone, changed;

    pl_mutex_lock(&out->lock);
    gone    = out->gone;
    changed = out->endpoint_version != sender->endpoint_version;
    if (changed) {
        sender->endpoint         = out->endpoint;
        sender->endpoint_version = out->endpoint_version;
    }
    pl_mutex_unlock(&out->lock);
    if (changed || gone) {
        disconnect(sender, PLASMON_OK);
        gets_on(sender);
        sender->retry_ms       = 0;
        sender->down_ns        = 0;
        sender->late           = false;
        sender->relay_next     = false;
        sender->relay_until_ns = 0;
    }
    return gone;
}

/* -------------------------------------------------------------------------------- steps */

/* Measure from now on. idle: nothing is under way yet. */
static void measure_begin(struct sender *sender, uint64_t now_ns, bool idle)
{
    sender->timed_ns        = now_ns;
    sender->timed_bytes     = 0;
    sender->timed_from_idle = idle;
}

/*
 * What the connection does when it is busy; the receiver's waits for its own device do not count.
 * Answers come in bursts, so the time is taken over many of them, or over all that was under way
 * from the first byte to the last answer.
 */
static void measure(struct sender *sender, uint32_t bytes, uint64_t now_ns)
{
    bool whole = sender->sent == 0 && sender->timed_from_idle;
    uint64_t took_ns, rate;

    if (sender->timed_ns == 0) {
        measure_begin(sender, now_ns, false);
        return;
    }
    sender->timed_bytes += bytes;
    took_ns = now_ns - sender->timed_ns;
    if (took_ns == 0 || (took_ns < MEASURE_NS && !whole)) {
        return;
    }
    if (sender->timed_bytes >= MEASURE_BYTES) {
        rate = sender->timed_bytes * UINT64_C(1000000000) / took_ns;
        pl_mutex_lock(&sender->out->lock);
        rate         = sender->out->stats.rate == 0 ? rate : (3 * sender->rate + rate) / 4;
        sender->rate = pl_max_u64(rate, BULK_RATE_MIN);
        sender->out->stats.rate = sender->rate;
        pl_mutex_unlock(&sender->out->lock);
    }
    measure_begin(sender, now_ns, false);
}

static plasmon_status_t answer_take(struct sender *sender)
{
    struct bulk_item item;

    sender->heard_ns = pl_now_ns();
    gets_on(sender);
    if (sender->answer.chunk == BULK_WAITING) {
        sender->timed_ns = 0; /* that says nothing of the connection */
        return PLASMON_OK;
    }
    if (sender->answer.chunk == BULK_ALIVE) {
        return PLASMON_OK;
    }
    if (sender->sent == 0 || !item_at(sender->out, 0, &item) ||
        sender->answer.chunk != item.chunk) {
        return PLASMON_EMALFORMED;
    }
    if (pl_fault_point("transfer.bulk_out_answered")) {
        return PLASMON_ECONNECT;
    }
    sender->sent--;
    sender->sent_bytes -= item.bytes;
    sender->down_ns    = 0;
    sender->relay_next = sender->relayed;
    measure(sender, item.bytes, sender->heard_ns);
    item_over(sender->out, &item); /* whoever hears of its end finds the rate */
    return PLASMON_OK;
}

/* Answers that are there, or many of them. ETIMEDOUT: none came for too long. */
static plasmon_status_t answers_take(struct sender *sender)
{
    plasmon_status_t status = PLASMON_OK;

    for (uint32_t reads = 0; status == PLASMON_OK && reads < ANSWERS_AT_ONCE; reads++) {
        size_t done;

        status = bulk_link_try_read(&sender->link,
                                    (uint8_t *)&sender->answer + sender->answer_bytes,
                                    sizeof(sender->answer) - sender->answer_bytes, &done);
        sender->answer_bytes += done;
        if (status == PLASMON_OK && sender->answer_bytes == sizeof(sender->answer)) {
            sender->answer_bytes = 0;
            status               = answer_take(sender);
        }
    }
    if (status == PLASMON_EAGAIN) {
        bool late =
            sender->sent > 0 && pl_now_ns() - sender->heard_ns > deadline_ns(sender);

        return late ? PLASMON_ETIMEDOUT : PLASMON_OK;
    }
    return status;
}

/* Somebody else listens there by now, or nobody is to be sent anything. */
static bool news_there(const struct sender *sender)
{
    struct bulk_out *out = sender->out;
    bool there;

    pl_mutex_lock(&out->lock);
    there = out->gone || out->endpoint_version != sender->endpoint_version;
    pl_mutex_unlock(&out->lock);
    return there;
}

/*
 * All of it, while answers to what went before come in. Who takes nothing and says that its device
 * has not made room may do so for ever: one that the head has given up is not waited for.
 */
static plasmon_status_t write_all(struct sender *sender, const void *data, size_t bytes)
{
    const uint8_t *from     = data;
    plasmon_status_t status = PLASMON_OK;

    while (status == PLASMON_OK && bytes > 0) {
        size_t done;

        status = bulk_link_try_lend(&sender->link, from, bytes, &done);
        from += done;
        bytes -= done;
        if (status == PLASMON_EAGAIN) {
            status = bulk_link_wait(&sender->link, POLLOUT | POLLIN, LOOK_MS);
            status = status == PLASMON_EAGAIN ? PLASMON_OK : status;
            if (status == PLASMON_OK) {
                status = news_there(sender) ? PLASMON_ECLOSED : answers_take(sender);
            }
        }
    }
    return status;
}

static plasmon_status_t item_send(struct sender *sender, const struct bulk_item *item)
{
    struct bulk_frame frame = {.chunk = item->chunk, .bytes = item->bytes};
    uint32_t half           = item->bytes / 2;
    plasmon_status_t status;

    if (sender->sent == 0) {
        sender->heard_ns = pl_now_ns();
        measure_begin(sender, sender->heard_ns, true);
    }
    sender->sent++; /* answered only when all of it is there */
    sender->sent_bytes += item->bytes;
    status = pl_fault_point("transfer.bulk_out_begin")
                 ? PLASMON_ECONNECT
                 : write_all(sender, &frame, sizeof(frame));
    if (status == PLASMON_OK) {
        status = write_all(sender, item->data, half);
    }
    if (status == PLASMON_OK && pl_fault_point("transfer.bulk_out_half")) {
        status = PLASMON_ECONNECT;
    }
    if (status == PLASMON_OK) {
        status = write_all(sender, item->data + half, item->bytes - half);
    }
    if (status == PLASMON_OK && pl_fault_point("transfer.bulk_out_sent")) {
        status = PLASMON_ECONNECT;
    }
    return status;
}

/* Nothing to send just now: until an answer, news, or (a device is filling a slot) a moment is over. */
static void rest(struct sender *sender, bool device_busy, uint32_t *io_looks)
{
    struct bulk_out *out = sender->out;
    struct pollfd fds[3] = {{.fd = out->wake_fd, .events = POLLIN},
                            {.fd = out->bulk->stop_fd, .events = POLLIN},
                            {.fd = sender->link.fd, .events = POLLIN}};

    if (device_busy && *io_looks < 20000) {
        bulk_pause(io_looks);
        if (*io_looks % 64 != 0) {
            return;
        }
        (void)poll(fds, 3, 0);
    } else {
        (void)poll(fds, 3, device_busy ? 1 : sender->sent > 0 ? LOOK_MS : IDLE_MS);
    }
    if (fds[0].revents != 0) {
        (void)pl_fd_lower(out->wake_fd);
    }
}

/* Over a connection that is there. Not OK: how it ended. */
static plasmon_status_t connected_step(struct sender *sender, uint32_t *io_looks)
{
    plasmon_status_t status = answers_take(sender);
    struct bulk_item item;
    bool there = item_at(sender->out, sender->sent, &item);

    if (status == PLASMON_OK && there && item_ready(sender->out, &item)) {
        *io_looks = 0;
        attempt_begins(sender);
        status = item_send(sender, &item);
    } else if (status == PLASMON_OK) {
        if (sender->sent == 0) {
            gets_on(sender); /* it is there, and nothing could have been answered */
        }
        rest(sender, there, io_looks);
    }
    return status;
}

static void send_step(struct sender *sender, uint32_t *io_looks)
{
    plasmon_status_t status;
    struct bulk_item item;
    bool there = item_at(sender->out, sender->sent, &item);

    if (sender->link.fd < 0) {
        if (there || (sender->unreached_ns != 0 && pl_now_ns() >= sender->probe_ns)) {
            connect_again(sender); /* or to know when it can be reached again */
        } else {
            rest(sender, false, io_looks);
        }
        return;
    }
    status = connected_step(sender, io_looks);
    if (status == PLASMON_ETIMEDOUT) {
        stalled(sender);
    } else if (status != PLASMON_OK) {
        disconnect(sender, status);
    } else if (sender->relayed && sender->sent == 0 && !there &&
               pl_now_ns() > sender->relay_until_ns) {
        sender->relay_next = false;
        disconnect(sender, PLASMON_OK); /* perhaps it can be reached again */
    }
}

/* The first item was given up: our device's half goes on without its bytes. */
static bool given_up_step(struct sender *sender, uint32_t *io_looks)
{
    struct bulk_item item;

    if (!first_given_up(sender->out, &item)) {
        return false;
    }
    if (sender->sent > 0) {
        disconnect(sender,
                   PLASMON_OK); /* an answer to it would be one to what comes next */
    }
    if (item_ready(sender->out, &item)) {
        *io_looks = 0;
        item_over(sender->out, &item);
    } else {
        rest(sender, true, io_looks);
    }
    return true;
}

/* The peer is gone: our device's half goes on without it. */
static void drain_step(struct sender *sender, uint32_t *io_looks)
{
    struct bulk_item item;
    bool there = item_at(sender->out, 0, &item);

    if (there && item_ready(sender->out, &item)) {
        *io_looks = 0;
        item_over(sender->out, &item);
    } else {
        rest(sender, there, io_looks);
    }
}

static bool stopped(struct bulk_out *out)
{
    return atomic_load(&out->bulk->stop) || atomic_load(&out->end);
}

plasmon_status_t bulk_out_serve(struct bulk_out *out, const struct bulk_link *link)
{
    struct sender sender    = {.out = out, .link = *link, .rate = BULK_RATE_GUESS};
    plasmon_status_t status = PLASMON_OK;
    uint32_t looks          = 0;

    while (status == PLASMON_OK && !stopped(out)) {
        status = connected_step(&sender, &looks);
    }
    disconnect(&sender, status);
    return status;
}

static void *out_run(void *user)
{
    struct bulk_out *out = user;
    struct sender sender = {.out  = out,
                            .link = {.fd = -1, .stop_fd = out->bulk->stop_fd},
                            .rate = BULK_RATE_GUESS};
    uint32_t looks       = 0;

    bulk_tls_thread();
    while (!stopped(out)) {
        if (news_taken(&sender)) {
            atomic_store(&out->drained, true);
            drain_step(&sender, &looks);
        } else if (!given_up_step(&sender, &looks)) {
            send_step(&sender, &looks);
        }
    }
    disconnect(&sender, PLASMON_OK);
    return NULL;
}

/* --------------------------------------------------------------------------------- life */

plasmon_status_t bulk_out_create(struct transfer_bulk *bulk, uint32_t peer,
                                 struct bulk_out **out_out)
{
    struct bulk_out *out = PL_NEW(struct bulk_out);
    plasmon_status_t status;

    if (out == NULL) {
        return PLASMON_ENOMEM;
    }
    out->bulk    = bulk;
    out->peer    = peer;
    out->wake_fd = -1;
    atomic_init(&out->end, false);
    atomic_init(&out->drained, false);
    out->items    = PL_VEC_INIT(struct bulk_item);
    out->given_up = PL_VEC_INIT(struct bulk_fill);
    status        = pl_mutex_init(&out->lock, PL_RANK_LEAF);
    if (status != PLASMON_OK) {
        pl_free(out);
        return status;
    }
    *out_out = out;
    return PLASMON_OK;
}

/* With the first transfer: 64 MiB of pinned memory and a thread are not for peers that nothing is sent to. */
plasmon_status_t bulk_out_start(struct bulk_out *out)
{
    struct device *device = out->bulk->config.device;
    uint8_t *slab         = mmap(NULL, SLAB_BYTES + WORDS_BYTES, PROT_READ | PROT_WRITE,
                                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    plasmon_status_t status;

    if (slab == MAP_FAILED) {
        return PLASMON_ENOMEM;
    }
    status = device_host_register(device, slab, SLAB_BYTES + WORDS_BYTES);
    if (status != PLASMON_OK) {
        goto err_unmap;
    }
    out->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (out->wake_fd < 0) {
        status = pl_status_from_errno(errno);
        goto err_unregister;
    }
    out->slab    = slab;
    out->sent_to = true;
    out->words   = (struct bulk_words *)(void *)(slab + SLAB_BYTES);
    if (pthread_create(&out->thread, NULL, out_run, out) != 0) {
        status = PLASMON_EAGAIN;
        goto err_close;
    }
    return PLASMON_OK;

err_close:
    out->slab = NULL;
    pl_fd_close(&out->wake_fd);
err_unregister:
    device_host_unregister(device, slab);
err_unmap:
    (void)munmap(slab, SLAB_BYTES + WORDS_BYTES);
    return status;
}

static void out_stop(struct bulk_out *out)
{
    atomic_store(&out->end, true);
    pl_fd_raise(out->wake_fd);
    (void)pthread_join(out->thread, NULL);
    pl_fd_close(&out->wake_fd);
    device_host_unregister(out->bulk->config.device, out->slab);
    (void)munmap(out->slab, SLAB_BYTES + WORDS_BYTES);
    out->slab     = NULL;
    out->words    = NULL;
    out->own_next = 0; /* as the words of the next ones */
    atomic_store(&out->end, false);
    atomic_store(&out->drained, false);
}

void bulk_out_rest(struct bulk_out *out)
{
    bool over;

    pl_mutex_lock(&out->lock);
    over = out->gone && out->items_first == out->items.count;
    pl_mutex_unlock(&out->lock);
    if (over && out->slab != NULL && atomic_load(&out->drained)) {
        out_stop(out);
    }
}

void bulk_out_destroy(struct bulk_out *out)
{
    if (out->slab != NULL) {
        out_stop(out);
    }
    pl_mutex_finish(&out->lock);
    pl_vec_finish(&out->items);
    pl_vec_finish(&out->given_up);
    pl_free(out);
}
