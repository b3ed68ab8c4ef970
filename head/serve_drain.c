/* Drain: a unary call that starts, undoes or asks; and stores that are about to leave and ask for the same. */
#include "head/serve.h"

#include "base/alloc.h"
#include "base/log.h"

static void report_fill(const struct head_drain_report *report,
                        Plasmon__V1__DrainReply *out)
{
    out->done           = report->done;
    out->over           = report->over;
    out->objects_safe   = report->objects_safe;
    out->bytes_safe     = report->bytes_safe;
    out->objects_left   = report->objects_left;
    out->bytes_left     = report->bytes_left;
    out->objects_moving = report->objects_moving;
    out->tasks_left     = report->tasks_left;
    out->text           = (char *)(uintptr_t)report->why;
}

static plasmon_status_t act(struct serve *serve, const Plasmon__V1__DrainRequest *request,
                            struct head_drain_report *out, struct pl_err *err)
{
    struct head_input input = {.type    = HEAD_INPUT_DRAIN_UNDO,
                               .strings = {head_string(request->node)}};
    plasmon_status_t status = PLASMON_OK;

    *out = (struct head_drain_report){.done = true};
    if (request->undo) {
        return serve_input(serve, &input, NULL, err);
    }
    if (request->start) {
        input.type       = HEAD_INPUT_DRAIN;
        input.numbers[0] = request->deadline_ms;
        status           = serve_input(serve, &input, NULL, err);
    }
    return status == PLASMON_OK
               ? head_core_drain_report(serve->core, request->node, out, err)
               : status;
}

void serve_drain_call(void *user, struct rpc_unary *call, const uint8_t *bytes,
                      size_t length)
{
    struct serve *serve         = user;
    Plasmon__V1__DrainReply out = PLASMON__V1__DRAIN_REPLY__INIT;
    struct pl_err err           = {.status = PLASMON_OK};
    struct head_drain_report report;
    Plasmon__V1__DrainRequest *request;
    plasmon_status_t status;

    wire_arena_reset(&serve->arena);
    status = wire_decode_drain_request(&serve->arena, bytes, length, &request, &err);
    if (status != PLASMON_OK) {
        rpc_unary_fail(call, status, err.text);
        return;
    }
    status     = act(serve, request, &report, &err);
    out.status = status;
    if (status == PLASMON_OK) {
        report_fill(&report, &out);
    } else {
        out.text = err.text;
    }
    serve_reply(serve, call, &out.base, true);
}

void serve_node_leave(struct serve_node *node, uint32_t deadline_ms)
{
    struct head_input input = {.type    = HEAD_INPUT_NODE_LEAVE,
                               .numbers = {deadline_ms},
                               .strings = {head_string(node->host)}};
    struct pl_err err       = {.status = PLASMON_OK};

    if (serve_input(node->serve, &input, NULL, &err) != PLASMON_OK) {
        pl_info("head", "node %s leaves: %s", node->name, err.text);
    }
    serve_drain_tick(node->serve);
}

/* Those that may go now are told so. */
void serve_drain_tick(struct serve *serve)
{
    struct pl_list *pos;

    pl_list_for_each(pos, &serve->nodes) {
        struct serve_node *node = pl_container_of(pos, struct serve_node, link);
        struct pl_err err       = {.status = PLASMON_OK};
        struct head_drain_report report;

        if (node->host == NULL || node->left_told ||
            !head_machine_node_leaving(serve->machine, node->host)) {
            continue;
        }
        if (head_core_drain_report(serve->core, node->host, &report, &err) == PLASMON_OK &&
            !report.done && !report.over) {
            continue;
        }
        node->left_told = true;
        if (report.objects_left > 0) {
            pl_warn("head", "node %s leaves with %llu objects that are nowhere else: %s",
                    node->name, (unsigned long long)report.objects_left, report.why);
        }
        serve_node_tell_left(node, &report);
    }
}
