#include "client/bulk.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"

#define IDLE_NS \
    UINT64_C(   \
        5000000000) /* the worker ends a connection that is silent for longer than that */
#define IDLE_MAX     16u
#define BAR_NS       UINT64_C(10000000000) /* after a worker could not be reached */
#define BUSY_NS      UINT64_C(1000000000)  /* after one had no room for us */
#define ATTEMPTS_MAX 4u                    /* in a row without a byte */
#define OWED_MAX     UINT64_C(33554432)    /* what may be on its way at a time */
#define LOOK_MS      100

/* A connection that nobody uses. */
struct bulk_idle {
    struct transfer_bulk_endpoint endpoint;
    struct bulk_link link;
    uint64_t since_ns;
};

struct bulk_bar {
    uint32_t device;
    uint64_t until_ns;
};

/* A transfer under way. */
struct moving {
    struct bulk_links *links;
    const struct bulk_transfer *transfer;
    struct bulk_link link;
    bool put;
    uint8_t *data;
    uint64_t done; /* on the device, or here */
    uint64_t rate; /* bytes a second that the deadline is made of */
    uint64_t heard_ns;
};

/* --------------------------------------------------------------------------------- life */

plasmon_status_t bulk_links_init(struct bulk_links *links)
{
    *links = (struct bulk_links){.idle   = PL_VEC_INIT(struct bulk_idle),
                                 .barred = PL_VEC_INIT(struct bulk_bar)};
    return pl_mutex_init(&links->lock, PL_RANK_LEAF);
}

plasmon_status_t bulk_links_trust(struct bulk_links *links, struct trust_source *source,
                                  struct pl_err *err)
{
    return bulk_tls_create_of(source, &links->tls, err);
}

void bulk_links_abandon(struct bulk_links *links)
{
    for (size_t i = 0; i < links->idle.count; i++) {
        bulk_link_close(&((struct bulk_idle *)pl_vec_at(&links->idle, i))->link);
    }
    pl_vec_finish(&links->idle);
    pl_vec_finish(&links->barred);
    bulk_tls_destroy(links->tls);
    links->tls = NULL;
}

void bulk_links_finish(struct bulk_links *links)
{
    bulk_links_abandon(links);
    pl_mutex_finish(&links->lock);
}

/* --------------------------------------------------------------------- who is not asked */

static struct bulk_bar *bar_locked(struct bulk_links *links, uint32_t device)
{
    for (size_t i = 0; i < links->barred.count; i++) {
        struct bulk_bar *bar = pl_vec_at(&links->barred, i);

        if (bar->device == device) {
            return bar;
        }
    }
    return NULL;
}

/* Without memory to remember it, it is asked again. */
static void bar_set(struct bulk_links *links, uint32_t device, uint64_t ns)
{
    struct bulk_bar *bar;

    pl_mutex_lock(&links->lock);
    bar = bar_locked(links, device);
    if (bar == NULL) {
        bar = pl_vec_push(&links->barred);
    }
    if (bar != NULL) {
        *bar = (struct bulk_bar){.device = device, .until_ns = pl_now_ns() + ns};
    }
    pl_mutex_unlock(&links->lock);
}

static bool is_barred(struct bulk_links *links, uint32_t device)
{
    const struct bulk_bar *bar;
    bool barred;

    pl_mutex_lock(&links->lock);
    bar    = bar_locked(links, device);
    barred = bar != NULL && pl_now_ns() < bar->until_ns;
    pl_mutex_unlock(&links->lock);
    return barred;
}

static void say(struct bulk_links *links, uint32_t device, uint64_t ns, const char *why)
{
    bar_set(links, device, ns);
    pl_warn("client",
            "bytes of device %u go through the head for the next %llu s, which is slow: %s",
            device, (unsigned long long)(ns / 1000000000), why);
}

bool bulk_links_allow(struct bulk_links *links, uint32_t device, bool tls)
{
    if (is_barred(links, device)) {
        return false;
    }
    if (tls != (links->tls != NULL)) {
        say(links, device, BAR_NS,
            tls ? "its worker wants TLS: set PLASMON_TLS_CERT, PLASMON_TLS_KEY and "
                  "PLASMON_TLS_CA"
                : "its worker speaks without TLS, which this program does not");
        return false;
    }
    return true;
}

/* -------------------------------------------------------------------------- connections */

/* One that is left from before. */
static bool idle_take(struct bulk_links *links, const char *address,
                      struct bulk_link *out_link)
{
    uint64_t now_ns = pl_now_ns();
    bool found      = false;

    pl_mutex_lock(&links->lock);
    for (size_t i = 0; i < links->idle.count;) {
        struct bulk_idle *idle = pl_vec_at(&links->idle, i);
        bool stale             = now_ns - idle->since_ns > IDLE_NS;

        if (stale || (!found && strcmp(idle->endpoint.address, address) == 0)) {
            if (stale) {
                bulk_link_close(&idle->link);
            } else {
                *out_link = idle->link;
                found     = true;
            }
            pl_vec_remove_unordered(&links->idle, i);
        } else {
            i++;
        }
    }
    pl_mutex_unlock(&links->lock);
    return found;
}

void bulk_links_keep(struct bulk_links *links, const char *address, struct bulk_link *link)
{
    struct bulk_idle *idle = NULL;

    pl_mutex_lock(&links->lock);
    if (links->idle.count < IDLE_MAX) {
        idle = pl_vec_push(&links->idle);
    }
    if (idle != NULL) {
        *idle = (struct bulk_idle){.link = *link, .since_ns = pl_now_ns()};
        memcpy(idle->endpoint.address, address, sizeof(idle->endpoint.address));
    }
    pl_mutex_unlock(&links->lock);
    if (idle == NULL) {
        bulk_link_close(link);
    }
}

static plasmon_status_t link_open(struct moving *moving, struct pl_err *err)
{
    struct transfer_bulk_endpoint endpoint = {.address = ""};
    struct pl_err why                      = {.status = PLASMON_OK};
    plasmon_status_t status;

    memcpy(endpoint.address, moving->transfer->grant->address, sizeof(endpoint.address));
    status = bulk_connect(endpoint.address, -1, &moving->link.fd, &why);
    if (status != PLASMON_OK) {
        return pl_err_set(err, status,
                          "%s; does a firewall let this machine through to --bulk-address "
                          "and --bulk-ports of its store?",
                          why.text);
    }
    return bulk_link_introduce(&moving->link, moving->links->tls, BULK_CLIENT,
                               moving->transfer->device, &endpoint, err);
}

/* ------------------------------------------------------------------------------- moving */

/* Nothing was heard, or moved, for too long? */
static plasmon_status_t silence_check(struct moving *moving)
{
    uint64_t owed   = pl_min_u64(moving->transfer->bytes - moving->done, OWED_MAX);
    uint64_t now_ns = pl_now_ns();

    if (now_ns >= moving->transfer->deadline_ns) {
        return PLASMON_ETIMEDOUT;
    }
    return now_ns - moving->heard_ns > bulk_deadline_ns(owed, moving->rate)
               ? PLASMON_ECONNECT
               : PLASMON_OK;
}

/* Until it can get on. ECONNECT: it is stuck. */
static plasmon_status_t wait_for(struct moving *moving, short events)
{
    plasmon_status_t status = bulk_link_wait(&moving->link, events, LOOK_MS);

    return status == PLASMON_EAGAIN ? silence_check(moving) : status;
}

/* All of them, as long as some come. */
static plasmon_status_t read_all(struct moving *moving, void *data, size_t bytes)
{
    uint8_t *to             = data;
    plasmon_status_t status = PLASMON_OK;

    while (bytes > 0 && status == PLASMON_OK) {
        size_t some;

        status = bulk_link_try_read(&moving->link, to, bytes, &some);
        to += some;
        bytes -= some;
        if (some > 0) {
            moving->heard_ns = pl_now_ns();
        }
        if (status == PLASMON_EAGAIN) {
            status = wait_for(moving, POLLIN);
        }
    }
    return status;
}

/* What a worker refused with becomes ours, if it is a status at all. */
static plasmon_status_t refusal(int32_t status)
{
    switch (status) {
    case PLASMON_ELIMIT:
    case PLASMON_ENOTSUP:
    case PLASMON_ENOMEM:
        return (plasmon_status_t)status;
    default:
        return PLASMON_ELOST; /* the head may know better by now */
    }
}

static plasmon_status_t ask(struct moving *moving)
{
    const struct bulk_transfer *transfer = moving->transfer;
    struct bulk_request request          = {.kind   = moving->put ? BULK_PUT : BULK_GET,
                                            .offset = transfer->offset + moving->done,
                                            .bytes  = transfer->bytes - moving->done};

    memcpy(request.ticket, transfer->grant->ticket, sizeof(request.ticket));
    moving->heard_ns = pl_now_ns();
    return bulk_link_write(&moving->link, &request, sizeof(request), BULK_GRACE_NS, 0) ==
                   PLASMON_OK
               ? PLASMON_OK
               : PLASMON_ECONNECT;
}

static plasmon_status_t get_once(struct moving *moving)
{
    uint64_t first          = moving->done;
    plasmon_status_t status = ask(moving);

    while (status == PLASMON_OK && moving->done < moving->transfer->bytes) {
        uint64_t left = moving->transfer->bytes - moving->done;
        struct bulk_part part;

        status = read_all(moving, &part, sizeof(part));
        if (status != PLASMON_OK) {
            break;
        }
        if (part.status != PLASMON_OK) {
            return refusal(part.status);
        }
        if (part.offset != moving->done - first || part.bytes > left ||
            part.bytes > BULK_PART_BYTES) {
            return PLASMON_EMALFORMED;
        }
        status = pl_fault_point("client.bulk_get_part")
                     ? PLASMON_ECONNECT
                     : read_all(moving, moving->data + moving->done, part.bytes);
        moving->done += status == PLASMON_OK ? part.bytes : 0;
    }
    return status;
}

/* What goes out: the part's head, then its bytes. */
struct outgoing {
    struct bulk_part part;
    uint64_t next;   /* bytes of the request that are in parts before this one */
    uint32_t headed; /* of the part's own bytes */
    uint32_t sent;   /* of what follows them */
};

static void part_start(struct outgoing *out, uint64_t bytes)
{
    out->next += out->part.bytes;
    out->part = (struct bulk_part){
        .offset = out->next,
        .bytes  = (uint32_t)pl_min_u64(bytes - out->next, BULK_PART_BYTES)};
    out->headed = 0;
    out->sent   = 0;
}

/* As much as the socket takes. EAGAIN: no more just now. */
static plasmon_status_t parts_send(struct moving *moving, struct outgoing *out,
                                   uint64_t first)
{
    uint64_t bytes          = moving->transfer->bytes - first;
    plasmon_status_t status = PLASMON_OK;

    while (status == PLASMON_OK && out->next + out->sent < bytes) {
        const uint8_t *head = (const uint8_t *)&out->part;
        size_t some         = 0;

        if (out->headed < sizeof(out->part)) {
            status = bulk_link_try_write(&moving->link, head + out->headed,
                                         sizeof(out->part) - out->headed, &some);
            out->headed += (uint32_t)some;
        } else {
            status = bulk_link_try_write(&moving->link,
                                         moving->data + first + out->next + out->sent,
                                         out->part.bytes - out->sent, &some);
            out->sent += (uint32_t)some;
            if (out->sent > out->part.bytes / 2 && pl_fault_point("client.bulk_put_half")) {
                status = PLASMON_ECONNECT;
            }
        }
        moving->heard_ns = some > 0 ? pl_now_ns() : moving->heard_ns;
        if (out->sent == out->part.bytes && out->next + out->sent < bytes) {
            part_start(out, bytes);
        }
    }
    return status;
}

/* What the worker said by now; *io_held bytes of a part that is not complete are in *part. */
static plasmon_status_t progress_take(struct moving *moving, struct bulk_part *part,
                                      size_t *io_held, uint64_t first)
{
    for (;;) {
        size_t some;
        plasmon_status_t status = bulk_link_try_read(
            &moving->link, (uint8_t *)part + *io_held, sizeof(*part) - *io_held, &some);

        *io_held += some;
        if (status != PLASMON_OK) {
            return status == PLASMON_EAGAIN ? PLASMON_OK : status;
        }
        if (*io_held < sizeof(*part)) {
            continue;
        }
        *io_held         = 0;
        moving->heard_ns = pl_now_ns();
        if (part->status != PLASMON_OK) {
            return refusal(part->status);
        }
        if (part->bytes != 0 || part->offset > moving->transfer->bytes - first ||
            first + part->offset < moving->done) {
            return PLASMON_EMALFORMED;
        }
        moving->done = first + part->offset;
    }
}

static plasmon_status_t put_once(struct moving *moving)
{
    uint64_t first          = moving->done;
    uint64_t bytes          = moving->transfer->bytes - first;
    plasmon_status_t status = ask(moving);
    struct outgoing out     = {.next = 0};
    struct bulk_part told;
    size_t held = 0;

    part_start(&out, bytes);
    while (status == PLASMON_OK && moving->done < moving->transfer->bytes) {
        plasmon_status_t sent = parts_send(moving, &out, first);

        /* A worker that ends the connection has said why: read that before anything else. */
        status = progress_take(moving, &told, &held, first);
        if (status == PLASMON_OK && sent != PLASMON_OK && sent != PLASMON_EAGAIN) {
            status = sent;
        }
        if (status == PLASMON_OK && moving->done < moving->transfer->bytes) {
            status =
                wait_for(moving, (short)(POLLIN | (sent == PLASMON_EAGAIN ? POLLOUT : 0)));
        }
    }
    return status;
}

/* ----------------------------------------------------------------------------- attempts */

/*
 * OpenSSL writes without MSG_NOSIGNAL, in a thread that is the program's: a SIGPIPE of ours must
 * not reach it.
 */
struct broken_pipe {
    bool on;
    bool pending;
    sigset_t before;
};

static void pipe_guard(struct broken_pipe *guard, bool on)
{
    sigset_t set;

    guard->on = on;
    if (on) {
        sigemptyset(&set);
        sigaddset(&set, SIGPIPE);
        (void)pthread_sigmask(SIG_BLOCK, &set, &guard->before); /* cannot fail with these */
        (void)sigpending(&set);
        guard->pending = sigismember(&set, SIGPIPE) == 1;
    }
}

static void pipe_unguard(const struct broken_pipe *guard)
{
    const struct timespec now = {.tv_sec = 0};
    sigset_t set;

    if (guard->on) {
        sigemptyset(&set);
        sigaddset(&set, SIGPIPE);
        if (!guard->pending) {
            while (sigtimedwait(&set, NULL, &now) < 0 && errno == EINTR) {
            }
        }
        (void)pthread_sigmask(SIG_SETMASK, &guard->before, NULL);
    }
}

/* Over one connection. *out_kept: it was one from before, which the worker may have ended meanwhile. */
static plasmon_status_t attempt(struct moving *moving, bool *out_kept, struct pl_err *err)
{
    const char *address     = moving->transfer->grant->address;
    plasmon_status_t status = PLASMON_OK;

    moving->link = (struct bulk_link){.fd = -1, .stop_fd = -1};
    *out_kept    = idle_take(moving->links, address, &moving->link);
    if (!*out_kept) {
        status = link_open(moving, err);
        if (status != PLASMON_OK) {
            bulk_link_close(&moving->link);
            return PLASMON_EUNREACHABLE;
        }
    }
    status = moving->put ? put_once(moving) : get_once(moving);
    if (status == PLASMON_OK) {
        bulk_links_keep(moving->links, address, &moving->link);
    } else {
        bulk_link_close(&moving->link);
        (void)pl_err_set(err, status, "%s: %s", address, pl_status_text(status));
    }
    return status;
}

/* Is there any point in another attempt? OK: yes. */
static plasmon_status_t hope_check(const struct moving *moving, struct pl_err *err)
{
    if (pl_now_ns() >= moving->transfer->deadline_ns) {
        return pl_err_set(err, PLASMON_ETIMEDOUT, "not all bytes came in time");
    }
    return moving->transfer->hope != NULL
               ? moving->transfer->hope(moving->transfer->user, err)
               : PLASMON_OK;
}

/* What failed is not to be tried again over another connection. */
static bool is_final(plasmon_status_t status)
{
    return status == PLASMON_OK || status == PLASMON_ELOST || status == PLASMON_ELIMIT ||
           status == PLASMON_ENOTSUP || status == PLASMON_ENOMEM ||
           status == PLASMON_EMALFORMED || status == PLASMON_ETIMEDOUT;
}

static plasmon_status_t attempts_run(struct moving *moving, struct pl_err *err)
{
    plasmon_status_t status = PLASMON_EUNREACHABLE;
    uint32_t failed         = 0;
    bool ever               = false; /* somebody was there */

    while (failed < ATTEMPTS_MAX) {
        uint64_t before = moving->done;
        bool kept;

        status = attempt(moving, &kept, err);
        if (is_final(status) || (status == PLASMON_EUNREACHABLE && !ever)) {
            break;
        }
        ever         = ever || status != PLASMON_EUNREACHABLE;
        moving->rate = pl_max_u64(moving->rate / 2, BULK_RATE_MIN);
        failed       = moving->done > before ? 0 : failed + !kept;
        status       = hope_check(moving, err);
        if (status != PLASMON_OK) {
            break;
        }
        if (failed > 0) { /* it may be coming back */
            (void)poll(NULL, 0, BULK_RETRY_MIN_MS << (2 * failed));
        }
        status = PLASMON_ELOST;
    }
    return status;
}

static plasmon_status_t move(struct bulk_links *links, const struct bulk_transfer *transfer,
                             uint8_t *data, bool put, struct pl_err *err)
{
    struct moving moving = {.links    = links,
                            .transfer = transfer,
                            .put      = put,
                            .data     = data,
                            .rate     = BULK_RATE_GUESS};
    struct broken_pipe guard;
    plasmon_status_t status;

    pipe_guard(&guard, links->tls != NULL);
    status = attempts_run(&moving, err);
    pipe_unguard(&guard);
    if (status == PLASMON_EUNREACHABLE || status == PLASMON_ENOTSUP ||
        status == PLASMON_EMALFORMED) {
        say(links, transfer->device, BAR_NS, err->text);
        return PLASMON_EUNREACHABLE;
    }
    if (status == PLASMON_ELIMIT || status == PLASMON_ENOMEM) {
        say(links, transfer->device, BUSY_NS, "its worker has no room for one more client");
        return PLASMON_EUNREACHABLE;
    }
    return status;
}

plasmon_status_t bulk_put(struct bulk_links *links, const struct bulk_transfer *transfer,
                          const void *data, struct pl_err *err)
{
    return move(links, transfer, (uint8_t *)(uintptr_t)data, true, err);
}

plasmon_status_t bulk_get(struct bulk_links *links, const struct bulk_transfer *transfer,
                          void *data, struct pl_err *err)
{
    return move(links, transfer, data, false, err);
}
