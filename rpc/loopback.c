/*
 * Streams inside one process, without gRPC, and a loop for them: the same face and the same order
 * of callbacks, on nothing but a mutex and posts, so that the thread sanitizer sees every access.
 * (gRPC is not built for it.)
 *
 * End a stands for a client, end b for a server, which matters only for what the other side hears of a close.
 *
 * Everything that an end's user hears comes from end_run() on that end's loop: the messages in its
 * inbox, `writable`, and last `closed`. Whoever changes something that concerns an end posts
 * end_run() for it. A message that was put into the other's inbox is "in flight" until it was
 * delivered there.
 *
 * `refs` counts the ends that have not closed and the posts that have not run; the last one frees both ends.
 */
#include "rpc/rpc_int.h"

#include <assert.h>

#include "base/alloc.h"

struct loopback;

struct loopback_end {
    struct rpc_stream base;
    struct loopback *pair;
    bool server;

    /* Guarded by pair->lock. */
    struct rpc_queue inbox;
    size_t in_flight; /* messages of ours in the other's inbox, or being delivered */
    bool posted;
    bool writable_due;
    bool closed_here;
    bool finished; /* closed() was called, or is being called */
    plasmon_status_t status;
    char *why; /* owned; NULL: "" */
};

struct loopback {
    struct pl_mutex lock; /* rank PL_RANK_RPC */
    unsigned refs;        /* guarded */
    struct loopback_end ends[2];
};

static const struct rpc_stream_impl loopback_impl;
static void end_run(void *user);

static struct loopback_end *end_of(struct rpc_stream *stream)
{
    assert(stream->impl == &loopback_impl);
    return pl_container_of(stream, struct loopback_end, base);
}

static struct loopback_end *end_other(struct loopback_end *end)
{
    return &end->pair->ends[end == &end->pair->ends[0]];
}

static void end_post_locked(struct loopback_end *end)
{
    pl_mutex_assert_held(&end->pair->lock);
    if (!end->posted && !end->finished) {
        end->posted = true;
        end->pair->refs++;
        rpc_loop_post(end->base.loop, end_run, end);
    }
}

static void pair_release_unlock(struct loopback *pair)
{
    bool last = --pair->refs == 0;

    pl_mutex_unlock(&pair->lock);
    if (!last) {
        return;
    }
    for (size_t i = 0; i < 2; i++) {
        rpc_queue_drop(&pair->ends[i].inbox);
        pl_free(pair->ends[i].why);
    }
    pl_mutex_finish(&pair->lock);
    pl_free(pair);
}

/* ---------------------------------------------------------------------- what users call */

static plasmon_status_t loopback_send(struct rpc_stream *stream, uint8_t *bytes,
                                      size_t length)
{
    struct loopback_end *end = end_of(stream), *other = end_other(end);
    plasmon_status_t status = PLASMON_OK;

    pl_mutex_lock(&end->pair->lock);
    if (end->closed_here || end->finished || other->closed_here || other->finished) {
        status = PLASMON_ECLOSED;
    } else if (length > RPC_MESSAGE_BYTES_DEFAULT) {
        status = PLASMON_ELIMIT;
    } else if (other->inbox.bytes > RPC_QUEUE_BYTES_MAX) {
        status = PLASMON_EAGAIN;
    } else {
        rpc_queue_push(&other->inbox, rpc_buffer_of(bytes));
        end->in_flight++;
        end_post_locked(other);
    }
    pl_mutex_unlock(&end->pair->lock);

    if (status != PLASMON_OK) {
        rpc_buffer_destroy(bytes);
    }
    return status;
}

static bool loopback_idle(struct rpc_stream *stream)
{
    struct loopback_end *end = end_of(stream);
    bool idle;

    pl_mutex_lock(&end->pair->lock);
    idle = end->in_flight == 0;
    pl_mutex_unlock(&end->pair->lock);
    return idle;
}

static bool loopback_by_memory(const struct rpc_stream *stream)
{
    (void)stream;
    return true;
}

static void loopback_close(struct rpc_stream *stream, plasmon_status_t status,
                           const char *why)
{
    struct loopback_end *end = end_of(stream), *other = end_other(end);

    pl_mutex_lock(&end->pair->lock);
    if (!end->closed_here && !end->finished) {
        end->closed_here = true;
        end->status      = status;
        end->why         = pl_strdup(why);
        if (!end->server && status != PLASMON_OK) {
            rpc_queue_drop(&other->inbox);
        }
        end_post_locked(other);
        end_post_locked(end);
    }
    pl_mutex_unlock(&end->pair->lock);
}

/* ---------------------------------------------------------------------- what users hear */

static void end_deliver_locked(struct loopback_end *end)
{
    struct loopback_end *other = end_other(end);
    struct rpc_buffer *buffer;

    while (!end->closed_here && (buffer = rpc_queue_pop(&end->inbox)) != NULL) {
        pl_mutex_unlock(&end->pair->lock);
        end->base.ops->message(end->base.user, &end->base, buffer->bytes, buffer->length);
        rpc_buffer_destroy(buffer->bytes);
        pl_mutex_lock(&end->pair->lock);

        other->in_flight--;
        if (other->in_flight == 0) {
            other->writable_due = true;
            end_post_locked(other);
        }
    }
}

static void end_writable_locked(struct loopback_end *end)
{
    bool writable = end->writable_due && end->in_flight == 0 && !end->closed_here;

    end->writable_due = false;
    if (writable && end->base.ops->writable != NULL) {
        pl_mutex_unlock(&end->pair->lock);
        end->base.ops->writable(end->base.user, &end->base);
        pl_mutex_lock(&end->pair->lock);
    }
}

/* What this end hears when the other one closed. */
static void end_take_status_locked(struct loopback_end *end)
{
    const struct loopback_end *other = end_other(end);

    if (end->closed_here) {
        return;
    }
    if (end->server && other->status != PLASMON_OK) {
        end->status = PLASMON_ECLOSED;
        end->why    = pl_strdup("the client cancelled");
        return;
    }
    end->status = other->status;
    end->why    = other->why != NULL ? pl_strdup(other->why) : NULL;
}

static void end_run(void *user)
{
    struct loopback_end *end   = user;
    struct loopback *pair      = end->pair;
    struct loopback_end *other = end_other(end);

    pl_mutex_lock(&pair->lock);
    end->posted = false;
    if (!end->finished) {
        end_deliver_locked(end);
        end_writable_locked(end);
    }

    /*
     * Ours comes after the other side's, unless the other side closed as well; and after what came
     * while `writable` ran, for which this is posted again.
     */
    if (!end->finished && (other->closed_here || other->finished) &&
        (end->closed_here || end->inbox.first == NULL)) {
        end->finished = true;
        end_take_status_locked(end);
        pl_mutex_unlock(&pair->lock);
        end->base.ops->closed(end->base.user, &end->base, end->status,
                              end->why != NULL ? end->why : "");
        pl_mutex_lock(&pair->lock);
        end_post_locked(other);
        pair->refs--; /* the end's own; the post's keeps the pair until below */
    }
    pair_release_unlock(pair);
}

static const struct rpc_stream_impl loopback_impl = {
    .send      = loopback_send,
    .idle      = loopback_idle,
    .by_memory = loopback_by_memory,
    .close     = loopback_close,
};

plasmon_status_t rpc_loopback_create(struct rpc_loop *loop_a, struct rpc_stream **out_a,
                                     struct rpc_loop *loop_b, struct rpc_stream **out_b)
{
    struct loopback *pair = PL_NEW(struct loopback);
    plasmon_status_t status;

    if (pair == NULL) {
        return PLASMON_ENOMEM;
    }
    status = pl_mutex_init(&pair->lock, PL_RANK_RPC);
    if (status != PLASMON_OK) {
        pl_free(pair);
        return status;
    }

    pair->refs = 2;
    for (size_t i = 0; i < 2; i++) {
        pair->ends[i].base.impl = &loopback_impl;
        pair->ends[i].base.loop = i == 0 ? loop_a : loop_b;
        pair->ends[i].pair      = pair;
        pair->ends[i].server    = i == 1;
    }
    *out_a = &pair->ends[0].base;
    *out_b = &pair->ends[1].base;
    return PLASMON_OK;
}

/* ----------------------------------------------------------------------------- the loop */

struct loopback_loop {
    struct rpc_loop base;
    struct pl_cond woken_cond;
    bool woken; /* guarded by base.lock */
};

static const struct rpc_loop_ops loopback_loop_ops;

static struct loopback_loop *loop_of(struct rpc_loop *loop)
{
    assert(loop->ops == &loopback_loop_ops);
    return pl_container_of(loop, struct loopback_loop, base);
}

static enum rpc_step loopback_loop_step(struct rpc_loop *base, uint64_t deadline_ns)
{
    struct loopback_loop *loop = loop_of(base);
    bool in_time               = true, woken;

    pl_mutex_lock(&base->lock);
    while (!loop->woken && in_time && deadline_ns != 0) {
        if (deadline_ns == RPC_NEVER_NS) {
            pl_cond_wait(&loop->woken_cond, &base->lock);
        } else {
            in_time = pl_cond_wait_until(&loop->woken_cond, &base->lock, deadline_ns) != 0;
        }
    }
    woken       = loop->woken;
    loop->woken = false;
    pl_mutex_unlock(&base->lock);
    return woken ? RPC_STEP_WAKE : RPC_STEP_TIMEOUT;
}

static void loopback_loop_wake(struct rpc_loop *base)
{
    struct loopback_loop *loop = loop_of(base);

    pl_mutex_lock(&base->lock);
    loop->woken = true;
    pl_cond_signal(&loop->woken_cond);
    pl_mutex_unlock(&base->lock);
}

static void loopback_loop_destroy(struct rpc_loop *base)
{
    struct loopback_loop *loop = loop_of(base);

    pl_cond_finish(&loop->woken_cond);
    rpc_loop_finish(base);
    pl_free(loop);
}

static const struct rpc_loop_ops loopback_loop_ops = {
    .step    = loopback_loop_step,
    .wake    = loopback_loop_wake,
    .destroy = loopback_loop_destroy,
};

plasmon_status_t rpc_loopback_loop_create(struct rpc_loop **out_loop)
{
    struct loopback_loop *loop = PL_NEW(struct loopback_loop);
    plasmon_status_t status;

    if (loop == NULL) {
        return PLASMON_ENOMEM;
    }
    status = rpc_loop_init(&loop->base, &loopback_loop_ops);
    if (status != PLASMON_OK) {
        goto err_free;
    }
    status = pl_cond_init(&loop->woken_cond);
    if (status != PLASMON_OK) {
        goto err_finish;
    }
    *out_loop = &loop->base;
    return PLASMON_OK;

err_finish:
    rpc_loop_finish(&loop->base);
err_free:
    pl_free(loop);
    return status;
}
