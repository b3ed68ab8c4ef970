/*
 * What the head says, told to whom it concerns. One frame, checked by wire, on the loop's thread,
 * under the client's lock.
 *
 * Answers to requests nobody waits for any more (they timed out) are dropped; so are ends of tasks
 * that ended already.
 */
#include "client/client_int.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The request, if somebody waits for it. status and text are filled in; the caller adds what came with it. */
static struct request *answer(struct plasmon_client *client, uint64_t number,
                              int32_t status, const char *text)
{
    struct request *request =
        number == 0 ? NULL : pl_map_get(&client->session.requests, number);

    if (request == NULL || request->answered) {
        return NULL;
    }
    request->answered = true;
    request->status   = status > 0 ? PLASMON_EMALFORMED : (plasmon_status_t)status;
    (void)snprintf(request->text, sizeof(request->text), "%s", text != NULL ? text : "");
    pl_cond_signal(request->cond);
    return request;
}

static void refuse(struct request *request, plasmon_status_t status, const char *text)
{
    request->status = status;
    (void)snprintf(request->text, sizeof(request->text), "the head's answer: %s", text);
}

static void take_shape(struct request *request, const Plasmon__V1__Shape *shape)
{
    struct pl_err err = {0};

    if (shape == NULL) {
        refuse(request, PLASMON_EMALFORMED, "it has no shape");
    } else if (wire_shape_get(shape, &request->shape, &err) != PLASMON_OK) {
        refuse(request, PLASMON_EMALFORMED, err.text);
    }
}

/* Its fields were checked. */
static void take_grant(const Plasmon__V1__BulkGrant *from, struct bulk_grant *out)
{
    *out = (struct bulk_grant){.tls = from != NULL && from->tls};
    if (from != NULL) {
        (void)snprintf(out->address, sizeof(out->address), "%s", from->address);
        memcpy(out->ticket, from->ticket.data, sizeof(out->ticket));
    }
}

static void take_located(struct plasmon_client *client, const Plasmon__V1__Located *located)
{
    struct request *request =
        answer(client, located->request, located->status, located->text);

    if (request == NULL || request->status != PLASMON_OK) {
        return;
    }
    take_shape(request, located->shape);
    for (size_t i = 0; i < located->n_locations && request->status == PLASMON_OK; i++) {
        const Plasmon__V1__Location *from = located->locations[i];
        struct place *place               = pl_vec_push(&request->places);
        struct pl_err err                 = {0};

        if (place == NULL) {
            refuse(request, PLASMON_ENOMEM, "out of host memory");
            return;
        }
        place->buffer       = from->buffer;
        place->producer_seq = from->producer_seq;
        take_grant(from->bulk, &place->bulk);
        if (wire_box_get(from->n_box, from->box, &place->box, &err) != PLASMON_OK ||
            wire_box_get(from->n_frame, from->frame, &place->frame, &err) != PLASMON_OK) {
            refuse(request, PLASMON_EMALFORMED, err.text);
        } else if (place->box.ndim != request->shape.ndim ||
                   place->frame.ndim != request->shape.ndim ||
                   !pl_box_contains(&place->frame, &place->box)) {
            refuse(request, PLASMON_EMALFORMED, "a location is not inside its buffer");
        }
    }
}

static void take_data(struct plasmon_client *client, const Plasmon__V1__Data *data)
{
    struct request *request = answer(client, data->request, data->status, data->text);

    if (request == NULL || request->status != PLASMON_OK) {
        return;
    }
    if (data->bytes.len != request->data_bytes) {
        refuse(request, PLASMON_EMALFORMED, "not as many bytes as were asked for");
        return;
    }
    if (data->bytes.len > 0) {
        memcpy(request->data, data->bytes.data, data->bytes.len);
    }
}

static void take_reply(struct plasmon_client *client, const Plasmon__V1__Reply *reply)
{
    struct request *request = answer(client, reply->request, reply->status, reply->text);

    if (request != NULL && request->status == PLASMON_OK && reply->shape != NULL) {
        take_shape(request, reply->shape);
        request->pending = reply->pending;
    }
}

static void take_failure(struct plasmon_client *client, const Plasmon__V1__Failure *failure)
{
    uint64_t first =
        failure->first_client == 0 || failure->first_client == client->session.client
            ? failure->first_task
            : 0;
    plasmon_status_t status =
        failure->status < 0 ? (plasmon_status_t)failure->status : PLASMON_EINTERNAL;
    struct failure *described =
        refs_describe_failure(&client->refs, failure->task, status, failure->text, first);

    refs_resolve(&client->refs, failure->task, described);
    failure_release(described);
}

/* A range may be far longer than what we know of: walk what is live, not what is claimed. */
static void take_done(struct plasmon_client *client, const Plasmon__V1__Range *range)
{
    refs_resolve_range(&client->refs, range->first, range->count);
}

void client_tell_ready_fd(struct plasmon_client *client)
{
    const uint64_t one = 1;

    if (client->ready_fd >= 0) {
        (void)!write(client->ready_fd, &one, sizeof(one)); /* full: it is readable anyway */
    }
}

void dispatch_head_frame_locked(struct plasmon_client *client,
                                const Plasmon__V1__HeadFrame *frame)
{
    struct session *session = &client->session;
    uint64_t resolved       = client->refs.resolved_count;

    for (size_t i = 0; i < frame->n_done; i++) {
        take_done(client, frame->done[i]);
    }
    for (size_t i = 0; i < frame->n_failed; i++) {
        take_failure(client, frame->failed[i]);
    }
    for (size_t i = 0; i < frame->n_located; i++) {
        take_located(client, frame->located[i]);
    }
    for (size_t i = 0; i < frame->n_data; i++) {
        take_data(client, frame->data[i]);
    }
    for (size_t i = 0; i < frame->n_put_ready; i++) {
        const Plasmon__V1__PutReady *ready = frame->put_ready[i];
        struct request *request =
            answer(client, ready->request, ready->status, ready->text);

        if (request != NULL) {
            request->buffer = ready->buffer;
            take_grant(ready->bulk, &request->bulk);
        }
    }
    for (size_t i = 0; i < frame->n_spans; i++) {
        trace_take(&client->trace, frame->spans[i]);
    }
    for (size_t i = 0; i < frame->n_replies; i++) {
        take_reply(client, frame->replies[i]);
    }
    if (frame->host_copies != 0) {
        client->memory.told = frame->host_copies;
        session_heard_locked(client, frame->host_copies);
    }
    session->pong_last = pl_max_u64(session->pong_last, frame->pong);
    if (client->refs.resolved_count != resolved) {
        client_tell_ready_fd(client);
    }
    if (frame->fatal != NULL) {
        session_die_locked(client,
                           frame->fatal->status < 0 ? (plasmon_status_t)frame->fatal->status
                                                    : PLASMON_ECLOSED,
                           frame->fatal->text);
    }
}
