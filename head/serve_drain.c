/*
 * Drain: a unary call that starts, undoes or asks; and stores that are about to leave and ask for
 * the same.
 */
#include "head/serve.h"

#include "base/alloc.h"
#include "base/log.h"

#include <stdio.h>

enum { DRAIN_TEXT_BYTES = 160 };

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

static const char *why_text(enum head_drain_why why)
{
    switch (why) {
    case HEAD_DRAIN_WRITTEN:
        return "a task that runs there, or a put, has yet to write it";
    case HEAD_DRAIN_NO_ROOM:
        return "no other node has room for it";
    case HEAD_DRAIN_NO_ROUTE:
        return "no device of another node can be reached from there";
    case HEAD_DRAIN_REFUSED:
        return "the copy could not be planned";
    case HEAD_DRAIN_DEADLINE:
        return "the deadline was over before its turn";
    case HEAD_DRAIN_LATER:
        break;
    }
    return "it is on its way, or waits for its turn";
}

/* In the arena; without them if there is no memory. */
static void left_fill(struct serve *serve, const char *node, Plasmon__V1__DrainReply *out)
{
    struct head_drain_left left[HEAD_DRAIN_LEFT_MAX];
    uint32_t all   = head_core_drain_left(serve->core, node, left);
    uint32_t count = (uint32_t)pl_min_u64(all, HEAD_DRAIN_LEFT_MAX);
    Plasmon__V1__DrainLeft *rows =
        wire_arena_alloc(&serve->arena, (count + 1) * sizeof(*rows));

    out->left = wire_arena_alloc(&serve->arena, (count + 1) * sizeof(*out->left));
    if (rows == NULL || out->left == NULL) {
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        plasmon__v1__drain_left__init(&rows[i]);
        rows[i].name   = (char *)(uintptr_t)left[i].name;
        rows[i].client = left[i].client;
        rows[i].label  = (char *)(uintptr_t)left[i].label;
        rows[i].ref    = left[i].ref;
        rows[i].bytes  = left[i].bytes;
        rows[i].why    = (char *)(uintptr_t)why_text(left[i].why);
        out->left[i]   = &rows[i];
    }
    out->n_left    = count;
    out->left_more = all - count;
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

/*
 * Whoever hears that a node is drained may end it: that must be stored. As long as the journal
 * stores nothing the answer is not held back, but says so; it is asked again.
 */
static void hold_back(const struct serve *serve, Plasmon__V1__DrainReply *out,
                      char text[static DRAIN_TEXT_BYTES])
{
    Plasmon__V1__Waits waits = PLASMON__V1__WAITS__INIT;

    serve_gate_tell(serve, &waits);
    if (out->status != PLASMON_OK || waits.journal_ms < SERVE_JOURNAL_SILENT_MS) {
        return;
    }
    (void)snprintf(
        text, DRAIN_TEXT_BYTES,
        "the journal has stored nothing for %llu ms, so nothing is moved: is Redis "
        "up?",
        (unsigned long long)waits.journal_ms);
    out->done = false;
    out->text = text;
}

void serve_drain_call(void *user, struct rpc_unary *call, const uint8_t *bytes,
                      size_t length)
{
    struct serve *serve         = user;
    Plasmon__V1__DrainReply out = PLASMON__V1__DRAIN_REPLY__INIT;
    struct pl_err err           = {.status = PLASMON_OK};
    struct head_drain_report report;
    Plasmon__V1__DrainRequest *request;
    char journal[DRAIN_TEXT_BYTES];
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
        if (report.objects_left > 0) {
            left_fill(serve, request->node, &out);
        }
    } else {
        out.text = err.text;
    }
    hold_back(serve, &out, journal);
    /* What is under way is looked at while the journal is away, too. */
    serve_reply(serve, call, &out.base, request->undo || out.done);
}

void serve_node_leave(struct serve_node *node, uint32_t deadline_ms)
{
    struct head_input input = {.type    = HEAD_INPUT_NODE_LEAVE,
                               .numbers = {deadline_ms},
                               .strings = {head_string(node->host)}};
    struct pl_err err       = {.status = PLASMON_OK};

    if (serve_input(node->serve, &input, NULL, &err) != PLASMON_OK) {
        pl_info("head", "node %s leaves: %s", node->name,
                err.status == PLASMON_ENOENT ? "it has no devices" : err.text);
    }
    serve_drain_tick(node->serve);
}

static void left_warn(struct serve *serve, const struct serve_node *node,
                      const struct head_drain_report *report)
{
    struct head_drain_left left[HEAD_DRAIN_LEFT_MAX];
    uint32_t all = head_core_drain_left(serve->core, node->host, left);
    char bytes[32];

    pl_warn("head", "node %s leaves with %llu objects (%s) that are nowhere else: %s",
            node->name, (unsigned long long)report->objects_left,
            pl_format_bytes(report->bytes_left, bytes), report->why);
    for (uint32_t i = 0; i < all && i < HEAD_DRAIN_LEFT_MAX; i++) {
        char whose[DRAIN_TEXT_BYTES];

        if (left[i].name[0] != '\0') {
            (void)snprintf(whose, sizeof(whose), "the name '%s'", left[i].name);
        } else {
            (void)snprintf(whose, sizeof(whose), "ref %llu of client %llx",
                           (unsigned long long)left[i].ref,
                           (unsigned long long)left[i].client);
        }
        pl_warn("head", "node %s leaves with %s of %s: %s", node->name,
                pl_format_bytes(left[i].bytes, bytes), whose, why_text(left[i].why));
    }
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
            left_warn(serve, node, &report);
        }
        serve_node_tell_left(node, &report);
    }
}
