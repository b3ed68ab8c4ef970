/*
 * Questions to the head that somebody waits for. A request lives on the asking thread's stack and
 * is found by its number; once it is closed, an answer that comes late finds nobody and is dropped
 * (dispatch.c).
 */
#include <assert.h>
#include <stdio.h>

#include "base/linger.h"
#include "client/client_int.h"

void request_init(struct request *request, struct pl_cond *cond)
{
    *request = (struct request){.cond = cond, .places = PL_VEC_INIT(struct place)};
}

plasmon_status_t request_open_locked(struct plasmon_client *client, struct request *request)
{
    struct session *session = &client->session;
    uint64_t number         = session->request_last + 1;

    if (client_on_loop_thread(client)) {
        return error_set(PLASMON_EINVAL,
                         "this call waits for the head and cannot be made in a callback");
    }
    if (pl_map_set(&session->requests, number, request) != PLASMON_OK) {
        return error_set(PLASMON_ENOMEM, "out of host memory");
    }
    session->request_last = number;
    request->number       = number;
    request->answered     = false;
    return PLASMON_OK;
}

plasmon_status_t request_send_locked(struct plasmon_client *client, struct request *request,
                                     enum frame_kind kind,
                                     const Plasmon__V1__ClientFrame *fields)
{
    plasmon_status_t status = session_room_locked(client, 0, kind);

    assert(request == NULL || request->number != 0);
    (void)request; /* without assertions */
    if (status != PLASMON_OK) {
        return status;
    }
    if (frame_add_fields(&client->session.frame, kind, fields) != PLASMON_OK) {
        return error_set(PLASMON_ENOMEM, "out of host memory");
    }
    session_flush_locked(client);
    return PLASMON_OK;
}

plasmon_status_t request_wait_locked(struct plasmon_client *client, struct request *request,
                                     uint64_t deadline_ns)
{
    uint64_t began_ns = pl_now_ns();

    while (!request->answered) {
        if (!pl_linger_cond_wait(request->cond, &client->lock, began_ns, deadline_ns) &&
            !request->answered) {
            return error_set(PLASMON_ETIMEDOUT, "the head has not answered in time");
        }
    }
    if (request->status != PLASMON_OK) {
        return error_set(request->status, "%s",
                         request->text[0] != '\0' ? request->text
                                                  : pl_status_text(request->status));
    }
    return PLASMON_OK;
}

void request_close_locked(struct plasmon_client *client, struct request *request)
{
    if (request->number != 0) {
        (void)pl_map_remove(&client->session.requests, request->number);
        request->number = 0;
    }
    pl_vec_finish(&request->places);
}

void requests_fail_locked(struct session *session, plasmon_status_t status,
                          const char *text)
{
    size_t index = 0;
    uint64_t number;
    void *value;

    while (pl_map_next(&session->requests, &index, &number, &value)) {
        struct request *request = value;

        if (!request->answered) {
            request->answered = true;
            request->status   = status;
            (void)snprintf(request->text, sizeof(request->text), "%s", text);
            pl_cond_signal(request->cond);
        }
    }
}
