/*
 * A pair's own thread: it makes the calls that block. It opens the pair, sleeps until the pair is
 * to end, and ends it.
 *
 * A sender waits for its receiver as long as that takes: the other side's launch may be behind much
 * work. A receiver knows that its sender is there, so if the communicator does not come up in time
 * it never will.
 */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/fd.h"
#include "transfer/pair_int.h"

void pair_notify(const struct transfer_pairs *pairs)
{
    pl_fd_raise(pairs->config.notify_fd);
}

void pair_tell_locked(struct pair *pair, struct transfer_pair_news *news)
{
    struct transfer_pair_news *place = pl_vec_push(&pair->pairs->news);

    PL_CHECK(place != NULL); /* news that is lost would stop the worker's queue for ever */
    news->key = pair->on.key;
    *place    = *news;
    pair_notify(pair->pairs);
}

static void tell(struct pair *pair, struct transfer_pair_news *news)
{
    pl_mutex_lock(&pair->pairs->lock);
    pair_tell_locked(pair, news);
    pl_mutex_unlock(&pair->pairs->lock);
}

static bool given_up(struct pair *pair)
{
    bool up;

    pl_mutex_lock(&pair->pairs->lock);
    up = pair->on.broken || pair->pairs->stop;
    pl_mutex_unlock(&pair->pairs->lock);
    return up;
}

static plasmon_status_t timed_out(const struct pair *pair, struct pl_err *err)
{
    const struct transfer_pair_key *key = &pair->on.key;

    return key->team != 0
               ? pl_err_set(err, PLASMON_ETIMEDOUT,
                            "not all devices of team %u came within %u ms", key->team,
                            pair->timeout_ms)
               : pl_err_set(err, PLASMON_ETIMEDOUT,
                            "device %u did not answer within %u ms: is its network address "
                            "reachable from here, and all ports?",
                            key->peer, pair->timeout_ms);
}

static plasmon_status_t wait_until_open(struct pair *pair, struct device_comm *comm,
                                        struct pl_err *err)
{
    uint64_t until_ns       = pl_now_ns() + pair->timeout_ms * UINT64_C(1000000);
    struct timespec nap     = {.tv_nsec = 200000};
    plasmon_status_t status = device_comm_poll(comm, err);

    while (status == PLASMON_EAGAIN) {
        if (given_up(pair)) {
            return pl_err_set(err, PLASMON_ECANCELLED, "given up");
        }
        if (pair->on.key.receives && pl_now_ns() > until_ns) {
            return timed_out(pair, err);
        }
        (void)nanosleep(&nap, NULL); /* cut short is as good */
        status = device_comm_poll(comm, err);
    }
    return status;
}

static plasmon_status_t pair_open(struct pair *pair, struct device_comm **out_comm,
                                  struct pl_err *err)
{
    struct transfer_pairs *pairs     = pair->pairs;
    struct device_comm_config config = {.rank    = pair->shape.rank,
                                        .ranks   = pair->shape.ranks,
                                        .remote  = pair->shape.remote,
                                        .address = pairs->config.address};
    struct transfer_pair_news made   = {.event = TRANSFER_PAIR_MADE};
    plasmon_status_t status          = PLASMON_OK;

    *out_comm = NULL;
    if (!pair->has_id) {
        status = device_comm_id(pairs->config.device, &config, pair->id, err);
        if (status == PLASMON_OK) {
            memcpy(made.id, pair->id, sizeof(made.id));
            tell(pair, &made);
        }
    }
    if (status == PLASMON_OK && pl_fault_point("pair.open")) {
        status = pl_err_set(err, PLASMON_EDEVICE, "a fault point");
    }
    if (status == PLASMON_OK) {
        status = device_comm_open(pairs->config.device, &config, pair->id,
                                  pairs->lanes[transfer_lane_of(&pair->on.key)].stream,
                                  out_comm, err);
    }
    return status == PLASMON_OK ? wait_until_open(pair, *out_comm, err) : status;
}

/* In time: the watcher looks. */
static void pair_call(struct pair *pair, void (*call)(struct device_comm *comm),
                      struct device_comm *comm)
{
    pl_mutex_lock(&pair->pairs->lock);
    pair->abort_since_ns = pl_now_ns();
    pl_mutex_unlock(&pair->pairs->lock);
    call(comm);
    pl_mutex_lock(&pair->pairs->lock);
    pair->abort_since_ns = 0;
    pl_mutex_unlock(&pair->pairs->lock);
}

/* Its operations end; its memory goes when nothing is on the device. */
static void pair_abort(struct pair *pair, struct device_comm *comm)
{
    struct transfer_pairs *pairs = pair->pairs;

    pair_call(pair, device_comm_cut, comm);
    pl_mutex_lock(&pairs->lock);
    pair->on.aborted = true;
    pair_watch_nudge_locked(pairs);
    while (!pair->free_asked && !pairs->stop && !pl_bug("transfer.free_at_once")) {
        pl_cond_wait(&pair->asked, &pairs->lock);
    }
    pl_mutex_unlock(&pairs->lock);
    pair_call(pair, device_comm_abort, comm);
}

/* Until it is to end; true: in good order. */
static bool pair_wait(struct pair *pair)
{
    struct transfer_pairs *pairs = pair->pairs;
    bool close;

    pl_mutex_lock(&pairs->lock);
    while (!pair->abort_asked && !pair->close_asked && !pairs->stop) {
        pl_cond_wait(&pair->asked, &pairs->lock);
    }
    close      = pair->close_asked && !pair->on.broken && !pairs->stop;
    pair->comm = NULL; /* nobody else uses it from here on */
    pl_mutex_unlock(&pairs->lock);
    return close;
}

static void pair_over(struct pair *pair)
{
    pl_mutex_lock(&pair->pairs->lock);
    pair->thread_over    = true;
    pair->on.aborted     = true;
    pair->abort_since_ns = 0;
    pair_watch_nudge_locked(pair->pairs);
    pl_cond_broadcast(&pair->pairs->changed); /* whoever waits until it is over */
    pl_mutex_unlock(&pair->pairs->lock);
}

void *pair_run(void *user)
{
    struct pair *pair                = user;
    struct pl_err err                = {.status = PLASMON_OK};
    struct transfer_pair_news opened = {.event = TRANSFER_PAIR_OPENED};
    struct transfer_pair_news closed = {.event = TRANSFER_PAIR_CLOSED};
    struct device_comm *comm;

    opened.status = pair_open(pair, &comm, &err);
    if (opened.status != PLASMON_OK) {
        (void)snprintf(opened.text, sizeof(opened.text), "%.199s", err.text);
        pair_call(pair, device_comm_abort, comm); /* nothing is on the device: OPEN waits */
        tell(pair, &opened);
        pair_over(pair);
        return NULL;
    }
    opened.bytes = device_comm_bytes(comm);
    pl_mutex_lock(&pair->pairs->lock);
    pair->comm         = comm;
    pair->on.uncertain = false;
    pair_tell_locked(pair, &opened);
    pl_mutex_unlock(&pair->pairs->lock);

    if (pair_wait(pair)) {
        device_comm_close(comm); /* waits for the other side: transfer_pair_break() */
        tell(pair, &closed);
    } else {
        pair_abort(pair, comm);
    }
    pair_over(pair);
    return NULL;
}
