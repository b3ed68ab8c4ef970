/* Waiting: for refs, by polling, by callback, by descriptor; and cancelling. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>

#include "base/alloc.h"
#include "base/linger.h"
#include "client/client_int.h"

/* The ref's state as a status with its text. */
static plasmon_status_t tell_state(const struct root *root, const struct pl_box *box)
{
    struct failure *failure = NULL;
    plasmon_status_t status = root_state(root, box, &failure);

    return failure != NULL ? error_set(status, "%s", failure->text) : status;
}

static plasmon_status_t tell_pending(const struct plasmon_client *client,
                                     const struct root *root, const struct pl_box *box)
{
    const struct session *session = &client->session;
    const struct task *writer     = root_writer(root, box);
    char who[64] = "another client's task", away[64] = "";

    if (!writer->foreign) {
        (void)snprintf(who, sizeof(who), "task %llu", (unsigned long long)writer->id);
    }
    if (session->state == SESSION_BROKEN) {
        (void)snprintf(
            away, sizeof(away), ", and we are without a connection to the head for %llu s",
            (unsigned long long)((pl_now_ns() - session->broken_at_ns) / 1000000000));
    }
    return error_set(PLASMON_ETIMEDOUT,
                     "the ref is still pending: %s is yet to write it%s%s%s", who, away,
                     away[0] != '\0' && session->dead_text[0] != '\0' ? ": " : "",
                     away[0] != '\0' ? session->dead_text : "");
}

plasmon_status_t client_tell_state_locked(const struct plasmon_client *client,
                                          const struct root *root, const struct pl_box *box,
                                          plasmon_status_t status)
{
    plasmon_status_t state = root_state(root, box, NULL);

    if (state == PLASMON_INPROGRESS) {
        return status == PLASMON_ETIMEDOUT ? tell_pending(client, root, box) : status;
    }
    return state == PLASMON_OK ? status : tell_state(root, box);
}

plasmon_status_t client_wait_ref_locked(struct plasmon_client *client, struct root *root,
                                        const struct pl_box *box, uint64_t deadline_ns)
{
    struct waiter waiter = {.need = 1};
    struct watch watch   = {.waiter = &waiter};
    uint64_t began_ns;
    plasmon_status_t status;

    status = root_state(root, box, NULL);
    if (status != PLASMON_INPROGRESS) {
        return tell_state(root, box);
    }
    if (client_on_loop_thread(client)) {
        return error_set(PLASMON_EINVAL,
                         "this call would wait and cannot be made in a callback");
    }
    session_flush_locked(client);
    began_ns = pl_now_ns();
    if (deadline_ns <= began_ns) {
        return error_set(PLASMON_ETIMEDOUT, "the ref is still pending");
    }
    status = pl_cond_init(&waiter.cond);
    if (status != PLASMON_OK) {
        return error_set(status, "%s", pl_status_text(status));
    }

    watch_start(&watch, root, box);
    while (watch.status == PLASMON_INPROGRESS) {
        if (!pl_linger_cond_wait(&waiter.cond, &client->lock, began_ns, deadline_ns) &&
            watch.status == PLASMON_INPROGRESS) {
            status = tell_pending(client, root, box);
            break;
        }
    }
    if (status == PLASMON_OK && watch.failure != NULL) {
        status = error_set(watch.status, "%s", watch.failure->text);
    } else if (status == PLASMON_OK && watch.status != PLASMON_OK) {
        status = error_set(watch.status, "the ref was released by another thread");
    }
    watch_stop(&watch);
    pl_cond_finish(&waiter.cond);
    return status;
}

plasmon_status_t plasmon_state(struct plasmon_client *client, struct plasmon_ref *ref)
{
    struct pl_err err = {0};
    struct ref_slot *slot;
    struct pl_box box;
    plasmon_status_t status = client_enter(client);

    if (status != PLASMON_OK) {
        return status;
    }
    pl_mutex_lock(&client->lock);
    status = refs_find(&client->refs, ref, &slot, &err);
    status = status == PLASMON_OK ? tell_state(slot->root, slot_box(slot, &box))
                                  : error_from(&err, status);
    pl_mutex_unlock(&client->lock);
    return status;
}

plasmon_status_t plasmon_flush(struct plasmon_client *client)
{
    plasmon_status_t status = client_enter(client);

    if (status != PLASMON_OK) {
        return status;
    }
    pl_mutex_lock(&client->lock);
    session_flush_locked(client);
    if (client->session.state == SESSION_DEAD) {
        status = error_set(client->session.dead_status, "%s", client->session.dead_text);
    }
    pl_mutex_unlock(&client->lock);
    return status;
}

/* ------------------------------------------------------------------------------- k of n */

/* As plasmon_wait() says it. */
static int as_ready(plasmon_status_t status)
{
    return status == PLASMON_OK ? 1 : status == PLASMON_INPROGRESS ? 0 : (int)status;
}

static plasmon_status_t find_locked(struct plasmon_client *client,
                                    struct plasmon_ref *const *refs, uint32_t index,
                                    struct ref_slot **out_slot)
{
    struct pl_err err       = {0};
    plasmon_status_t status = refs_find(&client->refs, refs[index], out_slot, &err);

    return status == PLASMON_OK ? PLASMON_OK
                                : error_set(status, "refs[%u]: %s", index, err.text);
}

/* How each of them stands. out_ready may be NULL. */
static plasmon_status_t look_at_all_locked(struct plasmon_client *client,
                                           struct plasmon_ref *const *refs, uint32_t count,
                                           int *out_ready, uint32_t *out_decided)
{
    *out_decided = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct ref_slot *slot;
        struct pl_box box;
        plasmon_status_t status = find_locked(client, refs, i, &slot);

        if (status != PLASMON_OK) {
            return status;
        }
        status = root_state(slot->root, slot_box(slot, &box), NULL);
        *out_decided += status != PLASMON_INPROGRESS;
        if (out_ready != NULL) {
            out_ready[i] = as_ready(status);
        }
    }
    return PLASMON_OK;
}

static plasmon_status_t wait_enough_locked(struct plasmon_client *client,
                                           struct waiter *waiter, uint64_t deadline_ns)
{
    uint64_t began_ns = waiter->resolved < waiter->need ? pl_now_ns() : 0;

    while (waiter->resolved < waiter->need) {
        if (client_on_loop_thread(client)) {
            return error_set(PLASMON_EINVAL,
                             "this call would wait and cannot be made in a callback");
        }
        if (!pl_linger_cond_wait(&waiter->cond, &client->lock, began_ns, deadline_ns) &&
            waiter->resolved < waiter->need) {
            return error_set(PLASMON_ETIMEDOUT,
                             "%u refs are ready or failed so far; %u were asked for",
                             waiter->resolved, waiter->need);
        }
    }
    return PLASMON_OK;
}

/* A watch for each ref that is pending, in their order; there are `count` of these. */
static void watch_pending_locked(struct plasmon_client *client,
                                 struct plasmon_ref *const *refs, struct watch *watches,
                                 uint32_t count, struct waiter *waiter)
{
    for (uint32_t i = 0, started = 0; started < count; i++) {
        struct ref_slot *slot;
        struct pl_box box;

        PL_CHECK(find_locked(client, refs, i, &slot) == PLASMON_OK); /* it was, just now */
        watches[started].waiter = waiter;
        watch_start(&watches[started], slot->root, slot_box(slot, &box));
        started += watches[started].status == PLASMON_INPROGRESS;
    }
}

/* Too few are decided. What is decided meanwhile is added to both outputs. */
static plasmon_status_t wait_for_pending_locked(struct plasmon_client *client,
                                                struct plasmon_ref *const *refs,
                                                uint32_t pending, uint32_t need,
                                                uint64_t deadline_ns, int *out_ready,
                                                uint32_t *io_decided)
{
    struct waiter waiter    = {.need = need, .resolved = *io_decided};
    struct watch *watches   = PL_NEW_N(struct watch, pending);
    plasmon_status_t status = PLASMON_ENOMEM;

    if (watches == NULL) {
        return error_set(status, "out of host memory");
    }
    status = pl_cond_init(&waiter.cond);
    if (status != PLASMON_OK) {
        pl_free(watches);
        return error_set(status, "%s", pl_status_text(status));
    }
    watch_pending_locked(client, refs, watches, pending, &waiter);
    status = wait_enough_locked(client, &waiter, deadline_ns);
    for (uint32_t i = 0; i < pending; i++) {
        if (out_ready != NULL) {
            while (*out_ready != 0) { /* it was decided at once, and has no watch */
                out_ready++;
            }
            *out_ready++ = as_ready(watches[i].status);
        }
        watch_stop(&watches[i]);
    }
    *io_decided = waiter.resolved;
    pl_cond_finish(&waiter.cond);
    pl_free(watches);
    return status;
}

plasmon_status_t plasmon_wait(struct plasmon_client *client,
                              struct plasmon_ref *const *refs, uint32_t count,
                              uint32_t need, uint32_t timeout_ms, int *out_ready,
                              uint32_t *out_count)
{
    uint64_t deadline_ns    = client_deadline(timeout_ms);
    uint32_t decided        = 0;
    plasmon_status_t status = client_enter(client);

    if (status != PLASMON_OK) {
        return status;
    }
    if (count > 0 && refs == NULL) {
        return error_set(PLASMON_EINVAL, "refs is NULL");
    }
    if (need > count) {
        return error_set(PLASMON_EINVAL, "need is %u, more than the %u refs", need, count);
    }

    pl_mutex_lock(&client->lock);
    session_flush_locked(client);
    status = look_at_all_locked(client, refs, count, out_ready, &decided);
    if (status == PLASMON_OK && decided < need) {
        status = wait_for_pending_locked(client, refs, count - decided, need, deadline_ns,
                                         out_ready, &decided);
    }
    pl_mutex_unlock(&client->lock);

    if (out_count != NULL && (status == PLASMON_OK || status == PLASMON_ETIMEDOUT)) {
        *out_count = decided;
    }
    return status;
}

/* ---------------------------------------------------------------- callbacks, descriptor */

plasmon_status_t plasmon_on_ready(struct plasmon_client *client, struct plasmon_ref *ref,
                                  plasmon_ready_fn fn, void *user)
{
    struct pl_err err = {0};
    struct ref_slot *slot;
    struct watch *watch;
    struct pl_box box;
    plasmon_status_t status = client_enter(client), decided = PLASMON_INPROGRESS;

    if (status != PLASMON_OK) {
        return status;
    }
    if (fn == NULL) {
        return error_set(PLASMON_EINVAL, "fn is NULL");
    }
    watch = PL_NEW(struct watch);
    if (watch == NULL) {
        return error_set(PLASMON_ENOMEM, "out of host memory");
    }
    watch->fn   = fn;
    watch->user = user;

    pl_mutex_lock(&client->lock);
    status = refs_find(&client->refs, ref, &slot, &err);
    if (status == PLASMON_OK) {
        watch_start(watch, slot->root, slot_box(slot, &box));
        decided = watch->status;
        session_flush_locked(client);
    }
    pl_mutex_unlock(&client->lock);

    if (status != PLASMON_OK) {
        pl_free(watch);
        return error_from(&err, status);
    }
    if (decided != PLASMON_INPROGRESS) {
        pl_free(watch);
        fn(user, decided);
    }
    return PLASMON_OK;
}

plasmon_status_t plasmon_ready_fd(struct plasmon_client *client, int *out_fd)
{
    plasmon_status_t status = client_enter(client);

    if (status != PLASMON_OK) {
        return status;
    }
    if (out_fd == NULL) {
        return error_set(PLASMON_EINVAL, "out_fd is NULL");
    }
    pl_mutex_lock(&client->lock);
    if (client->ready_fd < 0) {
        client->ready_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (client->session.state == SESSION_DEAD) {
            client_tell_ready_fd(client); /* nothing will */
        }
    }
    *out_fd = client->ready_fd;
    pl_mutex_unlock(&client->lock);
    return *out_fd >= 0
               ? PLASMON_OK
               : error_set(PLASMON_ELIMIT, "cannot make an eventfd: too many descriptors");
}

/* Appends the task that makes this ref, if it is not known to be over: too late is no error. */
static plasmon_status_t cancel_collect(struct plasmon_client *client,
                                       struct plasmon_ref *ref, struct pl_vec *writers)
{
    struct pl_err err = {0};
    struct ref_slot *slot;
    struct pl_box box;
    const struct task *writer;
    uint64_t *place;
    plasmon_status_t status = refs_find(&client->refs, ref, &slot, &err);

    if (status != PLASMON_OK) {
        return error_from(&err, status);
    }
    writer = root_writer(slot->root, slot_box(slot, &box));
    if (writer == NULL) {
        return PLASMON_OK;
    }
    if (writer->foreign) {
        return error_set(
            PLASMON_EFOREIGN,
            "the ref was found under \"%.64s\": what makes it can be cancelled "
            "by the client alone that submitted it, by its own ref",
            writer->label);
    }
    place = pl_vec_push(writers);
    if (place == NULL) {
        return error_set(PLASMON_ENOMEM, "out of host memory");
    }
    *place = writer->id;
    return PLASMON_OK;
}

static plasmon_status_t cancel_send(struct plasmon_client *client,
                                    const struct pl_vec *writers, bool force)
{
    plasmon_status_t status = PLASMON_OK;

    for (size_t i = 0; i < writers->count && status == PLASMON_OK; i += WIRE_RANGES_MAX) {
        Plasmon__V1__ClientFrame fields = PLASMON__V1__CLIENT_FRAME__INIT;
        size_t count                    = pl_min_u64(writers->count - i, WIRE_RANGES_MAX);
        uint64_t *first                 = pl_vec_at(writers, i);

        if (force) {
            fields.n_cancel_force = count;
            fields.cancel_force   = first;
        } else {
            fields.n_cancel = count;
            fields.cancel   = first;
        }
        status = request_send_locked(client, NULL,
                                     force ? FRAME_CANCEL_FORCE : FRAME_CANCEL, &fields);
    }
    return status;
}

static plasmon_status_t cancel(struct plasmon_client *client,
                               struct plasmon_ref *const *refs, uint32_t count, bool force)
{
    struct pl_vec writers   = PL_VEC_INIT(uint64_t);
    plasmon_status_t status = client_enter(client);

    if (status != PLASMON_OK) {
        return status;
    }
    if (refs == NULL && count > 0) {
        return error_set(PLASMON_EINVAL, "refs is NULL");
    }
    pl_mutex_lock(&client->lock);
    for (uint32_t i = 0; i < count && status == PLASMON_OK; i++) {
        status = cancel_collect(client, refs[i], &writers);
    }
    if (status == PLASMON_OK) {
        status = cancel_send(client, &writers, force);
    }
    pl_mutex_unlock(&client->lock);
    pl_vec_finish(&writers);
    return status;
}

plasmon_status_t plasmon_cancel(struct plasmon_client *client, struct plasmon_ref *ref)
{
    return cancel(client, &ref, 1, false);
}

plasmon_status_t plasmon_cancel_many(struct plasmon_client *client,
                                     struct plasmon_ref *const *refs, uint32_t count)
{
    return cancel(client, refs, count, false);
}

plasmon_status_t plasmon_cancel_force(struct plasmon_client *client,
                                      struct plasmon_ref *ref)
{
    return cancel(client, &ref, 1, true);
}
