/*
 * Unary calls, from both sides. The first byte says which: what anybody may ask a head (status,
 * drain, a list), or what a head may answer to `plasmon status`, `memory`, `transfers`, `doctor`,
 * `drain`, `tasks`, `objects` and `nodes`. A request is refused with a reason, or the head, which
 * has a node, a worker and a client, answers it, and its answer can be read. Whatever is taken as
 * an answer is shown in every way that there is.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "client/cli/list.h"
#include "client/client_int.h"
#include "client/doctor.h"
#include "wire/metrics.h"
#include "tests/fuzz/head.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct fuzz_head head;
static struct wire_arena asked, answered;
static const struct head_asked questions = {.request = 1, .now_ms = 1};
static const Plasmon__V1__StatusReply *shown; /* what the next command shows */

/* -------------------------------------------------------------------- in node.c's place */

/* A command that has asked: both ways of showing the answer. */
int cli_show_asked(const struct cli_command *command, const struct cli_asks *asks,
                   const char *holders, void (*text)(const Plasmon__V1__StatusReply *reply),
                   void (*json)(const Plasmon__V1__StatusReply *reply))
{
    (void)command;
    (void)asks;
    (void)holders;
    text(shown);
    json(shown);
    return CLI_OK;
}

struct plasmon_client *cli_ask(const struct cli_command *command,
                               const struct cli_cluster *cluster)
{
    (void)command;
    (void)cluster;
    return NULL;
}

int cli_show_status(const struct cli_command *command, int argc, char **argv,
                    void (*text)(const Plasmon__V1__StatusReply *reply),
                    void (*json)(const Plasmon__V1__StatusReply *reply))
{
    (void)argc;
    (void)argv;
    return cli_show_asked(command, NULL, NULL, text, json);
}

/* ------------------------------------------------------------------------------ answers */

static void show(const Plasmon__V1__StatusReply *reply)
{
    static const struct cli_command *const commands[] = {&cli_status, &cli_memory,
                                                         &cli_transfers, &cli_transfers};
    struct pl_str text;

    shown = reply;
    for (size_t i = 0; i < PL_COUNT(commands); i++) {
        char *words[] = {(char *)(uintptr_t)commands[i]->name,
                         (char *)(uintptr_t) "--routes", NULL};

        PL_CHECK(commands[i]->run(i == 3 ? 2 : 1, words) == CLI_OK);
    }
    pl_str_init(&text);
    wire_metrics_text(reply, &text);
    pl_str_finish(&text);
    if (reply->waits == NULL) {
        return; /* plasmon_doctor() says so */
    }
    pl_str_init(&text);
    doctor_text(reply, &text);
    doctor_json(reply, &text);
    pl_str_finish(&text);
}

static void status_answer(const uint8_t *bytes, size_t length)
{
    struct pl_err err = {.status = PLASMON_OK};
    Plasmon__V1__StatusReply *reply;

    wire_arena_reset(&answered);
    if (wire_decode_status_reply(&answered, bytes, length, &reply, &err) == PLASMON_OK) {
        show(reply);
    } else {
        PL_CHECK(err.text[0] != '\0');
    }
}

static void drain_answer(const uint8_t *bytes, size_t length)
{
    struct pl_err err = {.status = PLASMON_OK};
    Plasmon__V1__DrainReply *reply;

    wire_arena_reset(&answered);
    if (wire_decode_drain_reply(&answered, bytes, length, &reply, &err) == PLASMON_OK) {
        PL_CHECK(strlen(reply->text) <= WIRE_TEXT_BYTES_MAX);
        cli_drain_show(reply, false);
        cli_drain_show(reply, true);
    } else {
        PL_CHECK(err.text[0] != '\0');
    }
}

static void list_answer(const uint8_t *bytes, size_t length)
{
    struct pl_err err = {.status = PLASMON_OK};
    Plasmon__V1__ListReply *reply;
    struct pl_str text;

    wire_arena_reset(&answered);
    if (wire_decode_list_reply(&answered, bytes, length, &reply, &err) != PLASMON_OK) {
        PL_CHECK(err.text[0] != '\0');
        return;
    }
    pl_str_init(&text);
    for (size_t i = 0; i < reply->n_tasks; i++) {
        list_task_text(reply->tasks[i]);
        list_task_json(reply->tasks[i], &text);
    }
    for (size_t i = 0; i < reply->n_objects; i++) {
        list_object_text(reply->objects[i]);
        list_object_json(reply->objects[i], &text);
    }
    for (size_t i = 0; i < reply->n_nodes; i++) {
        list_node_text(reply->nodes[i]);
        list_node_json(reply->nodes[i], &text);
    }
    pl_str_finish(&text);
}

/* ----------------------------------------------------------------------------- requests */

static uint8_t *create(size_t length)
{
    return pl_alloc(pl_max_u64(length, 1));
}

/* As head/serve_status.c answers, and as a client reads that. */
static void status_ask(const uint8_t *bytes, size_t length)
{
    Plasmon__V1__StatusReply out = PLASMON__V1__STATUS_REPLY__INIT;
    Plasmon__V1__Waits waits     = PLASMON__V1__WAITS__INIT;
    struct head_core *core       = head_machine_core(head.machine);
    struct pl_err err            = {.status = PLASMON_OK};
    Plasmon__V1__StatusRequest *request;
    struct head_holders *holders = NULL;
    uint8_t *encoded;
    size_t encoded_length;

    wire_arena_reset(&asked);
    if (wire_decode_status_request(&asked, bytes, length, &request, &err) != PLASMON_OK) {
        PL_CHECK(err.text[0] != '\0');
        return;
    }
    PL_CHECK(head_core_status(core, &asked, &out) == PLASMON_OK);
    PL_CHECK(head_core_status_namespaces(core, NULL, &asked, &out) == PLASMON_OK);
    if (request->detail) {
        PL_CHECK(head_core_status_pairs(core, &asked, &out) == PLASMON_OK);
    }
    if (request->detail && !request->no_holders) {
        PL_CHECK(head_holders_create(request->label, &holders) == PLASMON_OK);
        while (head_core_holders_look(core, holders, 16)) {
        }
        PL_CHECK(head_core_holders_tell(core, holders, &asked, &out) == PLASMON_OK);
    }
    if (request->waits) {
        PL_CHECK(head_machine_waits(head.machine, &asked, &questions, "host", &waits) ==
                 PLASMON_OK);
        out.waits = &waits;
    }
    PL_CHECK(wire_encode(&out.base, create, &encoded, &encoded_length) == PLASMON_OK);
    head_holders_destroy(holders);
    status_answer(encoded, encoded_length);
    pl_free(encoded);
}

/* As head/serve_drain.c does. */
static void drain_ask(const uint8_t *bytes, size_t length)
{
    struct pl_err err = {.status = PLASMON_OK};
    Plasmon__V1__DrainRequest *request;
    struct head_drain_report report;
    struct head_input input = {.type = HEAD_INPUT_DRAIN};

    wire_arena_reset(&asked);
    if (wire_decode_drain_request(&asked, bytes, length, &request, &err) != PLASMON_OK) {
        PL_CHECK(err.text[0] != '\0');
        return;
    }
    input.type       = request->undo ? HEAD_INPUT_DRAIN_UNDO : HEAD_INPUT_DRAIN;
    input.numbers[0] = request->undo ? 0 : request->deadline_ms;
    input.strings[0] = head_string(request->node);
    if (request->undo || request->start) {
        (void)fuzz_head_tell(&head, &input, NULL);
    }
    if (head_core_drain_report(head_machine_core(head.machine), request->node, &report,
                               &err) != PLASMON_OK) {
        PL_CHECK(err.text[0] != '\0');
    }
}

/* As head/serve_list.c does. */
static void list_ask(const uint8_t *bytes, size_t length)
{
    Plasmon__V1__ListReply out = PLASMON__V1__LIST_REPLY__INIT;
    struct head_core *core     = head_machine_core(head.machine);
    struct pl_err err          = {.status = PLASMON_OK};
    Plasmon__V1__ListRequest *request;
    uint8_t *encoded;
    size_t encoded_length;

    wire_arena_reset(&asked);
    if (wire_decode_list_request(&asked, bytes, length, &request, &err) != PLASMON_OK) {
        PL_CHECK(err.text[0] != '\0');
        return;
    }
    switch (request->kind) {
    case PLASMON__V1__LIST_KIND__LIST_TASKS:
        PL_CHECK(head_core_list_tasks(core, request, NULL, &asked, &out) == PLASMON_OK);
        break;
    case PLASMON__V1__LIST_KIND__LIST_OBJECTS:
        PL_CHECK(head_core_list_objects(core, request, NULL, &asked, &out) == PLASMON_OK);
        break;
    default:
        PL_CHECK(head_machine_list_nodes(head.machine, request, &questions, false, &asked,
                                         &out) == PLASMON_OK);
    }
    PL_CHECK(wire_encode(&out.base, create, &encoded, &encoded_length) == PLASMON_OK);
    list_answer(encoded, encoded_length);
    pl_free(encoded);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const ways[])(const uint8_t *bytes, size_t length) = {
        status_answer, status_ask, drain_ask, drain_answer, list_ask, list_answer};

    if (size == 0) {
        return 0;
    }
    if (asked.bytes_max == 0) {
        pl_log_set_level(PL_LOG_ERROR);
        PL_CHECK(freopen("/dev/null", "w", stdout) != NULL);
        PL_CHECK(wire_arena_init(&asked, WIRE_ARENA_BYTES_MAX) == PLASMON_OK);
        PL_CHECK(wire_arena_init(&answered, WIRE_ARENA_BYTES_MAX) == PLASMON_OK);
    }
    /* a new one: what one input drains is not drained for the next */
    fuzz_head_begin(&head);
    ways[data[0] % PL_COUNT(ways)](data + 1, size - 1);
    head_machine_destroy(head.machine);
    return 0;
}
