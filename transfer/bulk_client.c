/*
 * Serving a client of another host: requests one after the other, each a series of pieces that go
 * round the slots of its access. See bulk_client.h for the rules, bulk_link.h for what is said.
 */
#include "transfer/bulk_client.h"

#include <poll.h>
#include <stdatomic.h>
#include <string.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "transfer/bulk_int.h"

#define IDLE_NS   UINT64_C(10000000000) /* between requests, and between parts of a put */
#define SEALED_NS UINT64_C(2000000000)  /* the head knows that it is sealed before we do */
#define LOOK_MS   1                     /* between parts, while the device works on some */

/* A request under way. */
struct serving {
    struct bulk_in *in;
    const struct transfer_bulk_access_ops *ops;
    void *user;
    struct transfer_bulk_access *access;
    uint64_t bytes; /* of the request */
    uint64_t begun; /* bytes in pieces so far */
    uint64_t done;  /* of those whose piece has ended */
    uint64_t first; /* pieces first .. next - 1 are under way, piece p in slot p % slots */
    uint64_t next;
    struct {
        uint8_t *memory;
        uint32_t bytes;
        bool committed; /* the device works on it */
    } pieces[TRANSFER_ACCESS_SLOTS_MAX];
};

static uint32_t slot_of(const struct serving *serving, uint64_t piece)
{
    return (uint32_t)(piece % serving->access->slots);
}

static bool closed(const struct serving *serving)
{
    return atomic_load(&serving->in->closed) || atomic_load(&serving->in->bulk->stop);
}

/* A part without bytes. */
static plasmon_status_t tell(struct bulk_in *in, uint64_t done, plasmon_status_t status)
{
    struct bulk_part part = {.offset = done, .status = status};

    in->spoken_ns = pl_now_ns();
    return bulk_link_write(&in->link, &part, sizeof(part), BULK_GRACE_NS, 0);
}

static plasmon_status_t say_alive(struct serving *serving)
{
    return pl_now_ns() - serving->in->spoken_ns < BULK_ALIVE_NS
               ? PLASMON_OK
               : tell(serving->in, serving->done, PLASMON_OK);
}

/* ------------------------------------------------------------------------------- pieces */

/* The next piece; waits while its buffer is not in the state that the head knows it to be in. */
static plasmon_status_t piece_begin(struct serving *serving, uint32_t bytes)
{
    uint32_t slot = slot_of(serving, serving->next), looks = 0;
    uint64_t until_ns       = pl_now_ns() + SEALED_NS;
    void *memory            = NULL;
    plasmon_status_t status = PLASMON_EAGAIN;

    while (status == PLASMON_EAGAIN) {
        status = serving->ops->begin(serving->user, serving->access, slot, serving->begun,
                                     bytes, &memory);
        if (status != PLASMON_EAGAIN) {
            break;
        }
        if (closed(serving)) {
            return PLASMON_ECLOSED;
        }
        if (pl_now_ns() > until_ns) {
            return PLASMON_ELOST;
        }
        bulk_pause(&looks);
        status = say_alive(serving);
        status = status == PLASMON_OK ? PLASMON_EAGAIN : status;
    }
    if (status != PLASMON_OK) {
        return status;
    }
    serving->pieces[slot].memory    = memory;
    serving->pieces[slot].bytes     = bytes;
    serving->pieces[slot].committed = false;
    serving->begun += bytes;
    serving->next++;
    return PLASMON_OK;
}

/* Is the device through with the oldest piece? */
static plasmon_status_t piece_poll(struct serving *serving)
{
    return serving->ops->poll(serving->user, serving->access,
                              slot_of(serving, serving->first));
}

static void piece_end(struct serving *serving)
{
    uint32_t slot = slot_of(serving, serving->first++);

    serving->done += serving->pieces[slot].bytes;
    serving->ops->end(serving->user, serving->access, slot);
}

static plasmon_status_t piece_wait(struct serving *serving)
{
    plasmon_status_t status = piece_poll(serving);
    uint32_t looks          = 0;

    while (status == PLASMON_EAGAIN) {
        if (closed(serving)) {
            return PLASMON_ECLOSED;
        }
        bulk_pause(&looks);
        status = say_alive(serving);
        status = status == PLASMON_OK ? piece_poll(serving) : status;
    }
    return status;
}

/*
 * The connection is of no more use, or the request was refused in the middle: what the device works
 * on is waited for all the same.
 */
static void pieces_drop(struct serving *serving)
{
    while (serving->first < serving->next) {
        uint32_t slot  = slot_of(serving, serving->first);
        uint32_t looks = 0;

        while (serving->pieces[slot].committed && piece_poll(serving) == PLASMON_EAGAIN &&
               !atomic_load(&serving->in->bulk->stop)) {
            bulk_pause(&looks);
        }
        piece_end(serving);
    }
}

/* ---------------------------------------------------------------------------------- put */

/*
 * Right into the piece. In the middle of one the client may be silent for its deadline only: the
 * piece holds the buffer.
 */
static plasmon_status_t piece_receive(struct serving *serving, uint32_t slot)
{
    struct bulk_in *in = serving->in;
    uint32_t bytes = serving->pieces[slot].bytes, done = 0;
    int patience_ms         = (int)(bulk_deadline_ns(bytes, BULK_RATE_GUESS) / 1000000);
    plasmon_status_t status = PLASMON_OK;

    while (status == PLASMON_OK && done < bytes) {
        size_t some;

        status = bulk_link_try_read(&in->link, serving->pieces[slot].memory + done,
                                    bytes - done, &some);
        done += (uint32_t)some;
        if (status == PLASMON_EAGAIN) {
            status = bulk_link_wait(&in->link, POLLIN, patience_ms);
            status = status == PLASMON_EAGAIN ? PLASMON_ETIMEDOUT : status;
        }
        if (status == PLASMON_OK) {
            status = say_alive(serving);
        }
        if (done > bytes / 2 && pl_fault_point("transfer.bulk_client_half")) {
            status = PLASMON_ECONNECT;
        }
    }
    return status;
}

/* Pieces that the device is through with, and the client hears so. */
static plasmon_status_t pieces_end(struct serving *serving)
{
    plasmon_status_t status = PLASMON_OK;

    while (status == PLASMON_OK && serving->first < serving->next) {
        status = piece_poll(serving);
        if (status == PLASMON_OK) {
            piece_end(serving);
            status = say_alive(serving);
        }
    }
    return status == PLASMON_EAGAIN ? PLASMON_OK : status;
}

/*
 * What the next part says of itself. Between parts a client may be silent for long, and meanwhile
 * nothing holds its buffer that the device is through with.
 */
static plasmon_status_t head_receive(struct serving *serving, struct bulk_part *out)
{
    struct bulk_link *link  = &serving->in->link;
    uint8_t *to             = (uint8_t *)out;
    size_t left             = sizeof(*out);
    uint64_t heard_ns       = pl_now_ns();
    plasmon_status_t status = PLASMON_OK;

    while (status == PLASMON_OK && left > 0) {
        size_t some;

        status = bulk_link_try_read(link, to, left, &some);
        to += some;
        left -= some;
        heard_ns = some > 0 ? pl_now_ns() : heard_ns;
        if (status == PLASMON_EAGAIN) {
            status = pieces_end(serving);
        }
        if (status == PLASMON_OK && some == 0) {
            status = bulk_link_wait(
                link, POLLIN,
                serving->first < serving->next ? LOOK_MS : (int)(IDLE_NS / 1000000));
        }
        if (status == PLASMON_EAGAIN) {
            status = pl_now_ns() - heard_ns < IDLE_NS ? PLASMON_OK : PLASMON_ETIMEDOUT;
        }
    }
    return status;
}

static plasmon_status_t part_receive(struct serving *serving)
{
    uint32_t slot = slot_of(serving, serving->next);
    struct bulk_part part;
    plasmon_status_t status = head_receive(serving, &part);

    if (status != PLASMON_OK) {
        return status;
    }
    if (part.offset != serving->begun || part.bytes == 0 || part.bytes > BULK_PART_BYTES ||
        part.bytes > serving->bytes - serving->begun || part.status != PLASMON_OK) {
        return PLASMON_EMALFORMED;
    }
    status = piece_begin(serving, part.bytes);
    if (status == PLASMON_OK) {
        status = piece_receive(serving, slot);
        if (status == PLASMON_OK) {
            serving->ops->commit(serving->user, serving->access, slot);
            serving->pieces[slot].committed = true;
        }
    }
    return status;
}

static plasmon_status_t serve_put(struct serving *serving)
{
    plasmon_status_t status = PLASMON_OK;

    while (status == PLASMON_OK && serving->done < serving->bytes) {
        bool full = serving->next - serving->first == serving->access->slots ||
                    serving->begun == serving->bytes;

        if (!full) {
            status = part_receive(serving);
        }
        if (status == PLASMON_OK && serving->first < serving->next) {
            status = full ? piece_wait(serving) : piece_poll(serving);
            if (status == PLASMON_OK) {
                piece_end(serving);
                status = serving->done == serving->bytes ? PLASMON_OK : say_alive(serving);
            } else if (status == PLASMON_EAGAIN) {
                status = PLASMON_OK;
            }
        }
    }
    if (status == PLASMON_OK && pl_fault_point("transfer.bulk_client_done")) {
        status = PLASMON_ECONNECT;
    }
    return status == PLASMON_OK ? tell(serving->in, serving->done, PLASMON_OK) : status;
}

/* ---------------------------------------------------------------------------------- get */

static plasmon_status_t part_send(struct serving *serving)
{
    uint32_t slot           = slot_of(serving, serving->first);
    uint32_t bytes          = serving->pieces[slot].bytes;
    uint64_t patience_ns    = bulk_deadline_ns(bytes, BULK_RATE_GUESS);
    struct bulk_part part   = {.offset = serving->done, .bytes = bytes};
    struct bulk_link *link  = &serving->in->link;
    plasmon_status_t status = bulk_link_write(link, &part, sizeof(part), patience_ns, 0);

    if (status == PLASMON_OK && pl_fault_point("transfer.bulk_client_part")) {
        status = PLASMON_ECONNECT;
    }
    serving->in->spoken_ns = pl_now_ns();
    return status == PLASMON_OK
               ? bulk_link_write(link, serving->pieces[slot].memory, bytes, patience_ns, 0)
               : status;
}

static plasmon_status_t serve_get(struct serving *serving)
{
    plasmon_status_t status = PLASMON_OK;

    while (status == PLASMON_OK && serving->done < serving->bytes) {
        while (status == PLASMON_OK && serving->begun < serving->bytes &&
               serving->next - serving->first < serving->access->slots) {
            uint32_t slot = slot_of(serving, serving->next);

            status =
                piece_begin(serving, (uint32_t)pl_min_u64(serving->bytes - serving->begun,
                                                          BULK_PART_BYTES));
            serving->pieces[slot].committed = status == PLASMON_OK;
        }
        if (status == PLASMON_OK) {
            status = piece_wait(serving);
        }
        if (status == PLASMON_OK) {
            status = part_send(serving);
        }
        if (status == PLASMON_OK) {
            piece_end(serving);
        }
    }
    return status;
}

/* ------------------------------------------------------------------------- a connection */

/* From now on it is no stranger, if there is room. */
static plasmon_status_t client_register(struct bulk_in *in)
{
    struct transfer_bulk *bulk = in->bulk;
    uint32_t count             = 0;

    if (in->client) {
        return PLASMON_OK;
    }
    pl_mutex_lock(&bulk->lock);
    for (size_t i = 0; i < bulk->ins.count; i++) {
        const struct bulk_in *other = *(struct bulk_in **)pl_vec_at(&bulk->ins, i);

        count += other->client && !other->ended;
    }
    in->client = count < BULK_CLIENTS_MAX;
    pl_mutex_unlock(&bulk->lock);
    return in->client ? PLASMON_OK : PLASMON_ELIMIT;
}

static plasmon_status_t request_serve(struct bulk_in *in,
                                      const struct bulk_request *request)
{
    const struct transfer_bulk_config *config = &in->bulk->config;
    struct serving serving                    = {.in    = in,
                                                 .ops   = config->access,
                                                 .user  = config->access_user,
                                                 .bytes = request->bytes};
    uint64_t moved                            = 0;
    bool kind_known = request->kind == BULK_PUT || request->kind == BULK_GET;
    plasmon_status_t status =
        kind_known && request->bytes > 0
            ? serving.ops->open(serving.user, request, &serving.access, &in->why)
            : PLASMON_EMALFORMED;

    if (status == PLASMON_OK) {
        status = client_register(in);
        if (status == PLASMON_OK) {
            in->spoken_ns = pl_now_ns();
            status = request->kind == BULK_PUT ? serve_put(&serving) : serve_get(&serving);
        }
        moved = serving.done;
        pieces_drop(&serving);
        serving.ops->close(serving.user, serving.access, moved, moved == serving.bytes);
    }
    if (status != PLASMON_OK && status != PLASMON_ECONNECT && status != PLASMON_ETIMEDOUT &&
        status != PLASMON_ECLOSED) {
        pl_debug("bulk", "a client's request was refused: %s %s", pl_status_text(status),
                 in->why.text);
        (void)tell(in, 0, status); /* the connection ends with it */
    }
    return status;
}

plasmon_status_t bulk_client_run(struct bulk_in *in, uint64_t until_ns)
{
    struct bulk_request request;
    plasmon_status_t status;

    if (in->bulk->config.access == NULL) {
        return bulk_in_welcome(in, PLASMON_ENOTSUP);
    }
    status = bulk_in_welcome(in, PLASMON_OK);
    while (status == PLASMON_OK && !atomic_load(&in->closed)) {
        status = bulk_link_read(&in->link, &request, sizeof(request),
                                in->client ? IDLE_NS : 0, in->client ? 0 : until_ns);
        if (status == PLASMON_OK) {
            status = request_serve(in, &request);
        }
    }
    return status;
}
