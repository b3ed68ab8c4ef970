/*
 * Relays: a device that a sender cannot reach (its network is cut, a firewall is wrong) is reached
 * through a worker that can.
 *
 *   sender --X--> receiver          sender ----> relay ----> receiver
 *
 * The relay is a thread that copies bytes between two sockets. It has no part in the order of
 * launches, touches no device and no ring, and holds nothing but one buffer; when one side ends, it
 * ends the other. So for both ends it is a connection like any other, with the same deadlines; what
 * a relay loses is sent again. It knows where the receiver listens, and its secret, from the head.
 */
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include "base/alloc.h"
#include "base/fault.h"
#include "base/log.h"
#include "transfer/bulk_int.h"

#define RELAY_BYTES (1u << 18)

/* ---------------------------------------------------------------------------------- who */

static bool place_of(struct transfer_bulk *bulk, uint32_t peer,
                     struct transfer_bulk_endpoint *out)
{
    bool found = false;

    pl_mutex_lock(&bulk->lock);
    for (size_t i = 0; i < bulk->places.count && !found; i++) {
        const struct bulk_place *place = pl_vec_at(&bulk->places, i);

        found = place->peer == peer;
        if (found) {
            *out = place->endpoint;
        }
    }
    pl_mutex_unlock(&bulk->lock);
    return found;
}

bool bulk_relay_find(struct transfer_bulk *bulk, uint32_t to, const char *address,
                     uint32_t *io_last, struct transfer_bulk_endpoint *out)
{
    const struct bulk_place *next = NULL, *first = NULL;

    pl_mutex_lock(&bulk->lock);
    for (size_t i = 0; i < bulk->places.count; i++) {
        const struct bulk_place *place = pl_vec_at(&bulk->places, i);

        if (place->peer == to || bulk_same_place(address, place->endpoint.address)) {
            continue; /* where it is, we do not get either */
        }
        first = first == NULL || place->peer < first->peer ? place : first;
        if (place->peer > *io_last && (next == NULL || place->peer < next->peer)) {
            next = place;
        }
    }
    next = next != NULL ? next : first;
    if (next != NULL) {
        *io_last = next->peer;
        *out     = next->endpoint;
    }
    pl_mutex_unlock(&bulk->lock);
    return next != NULL;
}

/* --------------------------------------------------------------------------- passing on */

/* One direction. Bytes are in `buffer` from `sent` to `held`. */
struct pipe {
    struct bulk_link *from;
    struct bulk_link *to;
    uint8_t *buffer;
    size_t sent;
    size_t held;
};

static plasmon_status_t pipe_step(struct pipe *pipe)
{
    plasmon_status_t status = PLASMON_OK;
    size_t done;

    if (pipe->sent == pipe->held) {
        pipe->sent = 0;
        status     = bulk_link_try_read(pipe->from, pipe->buffer, RELAY_BYTES, &pipe->held);
    }
    if (status == PLASMON_OK) {
        status = bulk_link_try_write(pipe->to, pipe->buffer + pipe->sent,
                                     pipe->held - pipe->sent, &done);
        pipe->sent += done;
    }
    return status;
}

/* What each side must be ready for before one of the pipes gets on. */
static plasmon_status_t pipes_wait(const struct pipe pipes[2], int stop_fd)
{
    struct pollfd fds[3] = {{.fd = pipes[0].from->fd},
                            {.fd = pipes[1].from->fd},
                            {.fd = stop_fd, .events = POLLIN}};

    for (int i = 0; i < 2; i++) {
        if (pipes[i].sent < pipes[i].held) {
            fds[1 - i].events |= POLLOUT;
        } else {
            fds[i].events |= POLLIN;
        }
    }
    (void)poll(fds, 3, -1);
    return fds[2].revents != 0 || ((fds[0].revents | fds[1].revents) & POLLHUP) != 0
               ? PLASMON_ECLOSED
               : PLASMON_OK;
}

static void pass_on(struct bulk_in *in, struct bulk_link *out)
{
    uint8_t *buffers     = PL_NEW_N(uint8_t, 2 * RELAY_BYTES);
    struct pipe pipes[2] = {{.from = &in->link, .to = out}, {.from = out, .to = &in->link}};

    if (buffers == NULL) {
        return; /* the sender looks for another way */
    }
    pipes[0].buffer = buffers;
    pipes[1].buffer = buffers + RELAY_BYTES;
    while (!atomic_load(&in->closed) && pipes_wait(pipes, in->link.stop_fd) == PLASMON_OK) {
        plasmon_status_t there = pipe_step(&pipes[0]);
        plasmon_status_t back  = pipe_step(&pipes[1]);

        if (pl_fault_point("transfer.bulk_relay") ||
            (there != PLASMON_OK && there != PLASMON_EAGAIN) ||
            (back != PLASMON_OK && back != PLASMON_EAGAIN)) {
            break;
        }
    }
    pl_free(buffers);
}

/* There is room for one more, and it is one from now on. */
static bool relay_begin(struct bulk_in *in)
{
    struct transfer_bulk *bulk = in->bulk;
    uint32_t count             = 0;

    pl_mutex_lock(&bulk->lock);
    for (size_t i = 0; i < bulk->ins.count; i++) {
        const struct bulk_in *other = *(struct bulk_in **)pl_vec_at(&bulk->ins, i);

        count += other->relay && !other->ended;
    }
    in->relay = count < BULK_RELAY_MAX;
    pl_mutex_unlock(&bulk->lock);
    return in->relay;
}

void bulk_relay_through(struct bulk_in *in, const struct bulk_hello *hello,
                        const struct transfer_bulk_endpoint *endpoint,
                        struct bulk_link *out)
{
    struct pl_err err = {.status = PLASMON_OK};
    plasmon_status_t status =
        bulk_link_introduce(out, in->bulk->tls, hello->from, hello->to, endpoint, &err);

    if (bulk_in_welcome(in, status) == PLASMON_OK && status == PLASMON_OK) {
        pl_info("bulk", "passing on from device %u to device %u", hello->from, hello->to);
        pass_on(in, out);
    }
}

void bulk_relay_run(struct bulk_in *in, const struct bulk_hello *hello)
{
    struct transfer_bulk *bulk = in->bulk;
    struct bulk_link out       = {.fd = -1, .stop_fd = bulk->stop_fd};
    struct pl_err err          = {.status = PLASMON_OK};
    struct transfer_bulk_endpoint endpoint;
    plasmon_status_t status;

    if (!place_of(bulk, hello->to, &endpoint)) {
        status = PLASMON_EUNREACHABLE;
    } else if (!relay_begin(in)) {
        status = PLASMON_ELIMIT;
    } else {
        status = bulk_connect(endpoint.address, bulk->stop_fd, &out.fd, &err);
    }
    if (status == PLASMON_OK) {
        bulk_relay_through(in, hello, &endpoint, &out);
    } else {
        (void)bulk_in_welcome(in, status); /* it looks for another way, told or not */
    }
    bulk_link_close(&out);
}
