/*
 * List: a unary call for people and scripts, a page of tasks, objects or nodes. What a caller who
 * is confined to a namespace sees is of that one.
 */
#include "head/serve.h"

/* It was decoded before, so it can be. */
void serve_list_nodes(struct serve *serve, const struct serve_status *status)
{
    const struct head_asked asked = {status->request, serve_now_ms(serve)};
    Plasmon__V1__ListReply out    = PLASMON__V1__LIST_REPLY__INIT;
    struct pl_err err             = {.status = PLASMON_OK};
    Plasmon__V1__ListRequest *request;

    wire_arena_reset(&serve->arena);
    if (wire_decode_list_request(&serve->arena, status->list, status->list_length, &request,
                                 &err) == PLASMON_OK &&
        head_machine_list_nodes(serve->machine, request, &asked, status->only != NULL,
                                &serve->arena, &out) == PLASMON_OK) {
        serve_reply(serve, status->call, &out.base, false);
    } else {
        rpc_unary_fail(status->call, PLASMON_ENOMEM, "the head is out of memory");
    }
}

void serve_list_call(void *user, struct rpc_unary *call, const uint8_t *bytes,
                     size_t length)
{
    struct serve *serve        = user;
    Plasmon__V1__ListReply out = PLASMON__V1__LIST_REPLY__INIT;
    struct pl_err err          = {.status = PLASMON_OK};
    Plasmon__V1__ListRequest *request;
    const char *only;
    plasmon_status_t status;

    wire_arena_reset(&serve->arena);
    if (serve_confined(serve, rpc_unary_token_index(call), rpc_unary_identity(call), &only,
                       &err) != PLASMON_OK ||
        wire_decode_list_request(&serve->arena, bytes, length, &request, &err) !=
            PLASMON_OK) {
        rpc_unary_fail(call, err.status, err.text);
        return;
    }
    if (request->kind == PLASMON__V1__LIST_KIND__LIST_NODES) {
        serve_status_nodes(serve, call, only, bytes, length);
        return;
    }
    if (request->device > head_core_device_count(serve->core)) {
        (void)pl_err_set(
            &err, PLASMON_ENOENT,
            "there is no device %u (`plasmon status` has those that there are)",
            request->device - 1);
        rpc_unary_fail(call, err.status, err.text);
        return;
    }
    status = (request->kind == PLASMON__V1__LIST_KIND__LIST_TASKS ? head_core_list_tasks
                                                                  : head_core_list_objects)(
        serve->core, request, only, &serve->arena, &out);
    if (status == PLASMON_OK) {
        serve_reply(serve, call, &out.base, false);
    } else {
        rpc_unary_fail(call, status, "the head is out of memory");
    }
}
