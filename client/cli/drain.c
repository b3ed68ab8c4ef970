/*
 * `plasmon drain NODE`: what lies only on a node is copied to others and nothing new is placed
 * there, so that it can be ended without a loss. The head does it; this asks how far it is until it
 * is done or the deadline is over. Interrupted, the head goes on.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "client/cli/cli.h"
#include "client/client_int.h"

#define DRAIN_PATH "/plasmon.v1.Plasmon/Drain"
#define LOOK_NS    200000000L

struct drain {
    bool json;
    bool undo;
    uint32_t deadline_s;
    struct cli_cluster cluster;
};

static const struct cli_option options[] = {
    {"--deadline", "S", CLI_COUNT, offsetof(struct drain, deadline_s),
     "give up after so many seconds; the node takes no new work all the same [60]"},
    {"--undo", NULL, CLI_FLAG, offsetof(struct drain, undo), "place work there again"},
    {"--json", NULL, CLI_FLAG, offsetof(struct drain, json), "the end as one JSON object"},
    CLI_CLUSTER_OPTIONS(struct drain),
};

static int run(int argc, char **argv);
const struct cli_command cli_drain = {
    .name    = "drain",
    .summary = "move what lies only on a node to others, so that it can be ended",
    .usage   = "[options] NODE",
    .text    = "NODE is a name as `plasmon status` shows it. Exit status 0: everything is "
               "elsewhere, too, and no\n"
               "task runs there; 1: the deadline was over before, or there is nowhere to go. "
               "plasmon-store does\n"
               "the same by itself on SIGTERM.\n",
    .options = options,
    .option_count = PL_COUNT(options),
    .operands_max = 1,
    .run          = run,
};

/* The reply lies in the arena, which the caller finishes. NULL, and the error is printed. */
static Plasmon__V1__DrainReply *ask(struct plasmon_client *client,
                                    Plasmon__V1__DrainRequest *request,
                                    struct wire_arena *arena)
{
    Plasmon__V1__DrainReply *reply;
    struct pl_err err = {.status = PLASMON_OK};
    plasmon_status_t status;
    uint8_t *bytes;
    size_t length;

    if (client_unary(client, DRAIN_PATH, &request->base, &bytes, &length) != PLASMON_OK) {
        (void)cli_fail(&cli_drain, "%s", plasmon_error(client));
        return NULL;
    }
    wire_arena_reset(arena);
    status = wire_decode_drain_reply(arena, bytes, length, &reply, &err);
    free(bytes);
    if (status != PLASMON_OK) {
        (void)cli_fail(&cli_drain, "the head's answer: %s", err.text);
        reply = NULL;
    } else if (reply->status != PLASMON_OK) {
        (void)cli_fail(&cli_drain, "%s", reply->text);
        reply = NULL;
    }
    return reply;
}

/* Until the head says that it is done or over. */
static int watch(struct plasmon_client *client, const struct drain *drain,
                 Plasmon__V1__DrainRequest *request, struct wire_arena *arena)
{
    const struct timespec pause = {.tv_nsec = LOOK_NS};
    const Plasmon__V1__DrainReply *reply;
    uint64_t left_before = UINT64_MAX;

    while ((reply = ask(client, request, arena)) != NULL) {
        request->start = false;
        if (reply->done || reply->over) {
            break;
        }
        if (reply->objects_left + reply->tasks_left != left_before) {
            left_before = reply->objects_left + reply->tasks_left;
            cli_drain_progress(reply, stderr);
        }
        (void)nanosleep(&pause, NULL); /* the head looks itself now and then */
    }
    if (reply == NULL) {
        return CLI_FAIL;
    }
    cli_drain_show(reply, drain->json);
    return reply->done ? CLI_OK : CLI_FAIL;
}

static int run(int argc, char **argv)
{
    Plasmon__V1__DrainRequest request = PLASMON__V1__DRAIN_REQUEST__INIT;
    struct drain drain                = {.deadline_s = 60};
    struct cli_parsed parsed          = cli_parse(&cli_drain, argc, argv, &drain);
    struct plasmon_client *client;
    struct wire_arena arena;
    int result;

    if (parsed.exit >= 0) {
        return parsed.exit;
    }
    if (parsed.operand_count != 1) {
        return cli_usage(&cli_drain, "which node? `plasmon status` has their names");
    }
    client = cli_ask(&cli_drain, &drain.cluster);
    if (client == NULL) {
        return CLI_FAIL;
    }
    if (wire_arena_init(&arena, WIRE_ARENA_BYTES_MAX) != PLASMON_OK) {
        plasmon_finish(client);
        return cli_fail(&cli_drain, "no memory");
    }
    request.node        = (char *)(uintptr_t)parsed.operands[0];
    request.start       = !drain.undo;
    request.undo        = drain.undo;
    request.deadline_ms = drain.deadline_s * UINT64_C(1000);
    if (drain.undo) {
        result = ask(client, &request, &arena) != NULL ? CLI_OK : CLI_FAIL;
        if (result == CLI_OK && !drain.json) {
            printf("work is placed on %s again\n", request.node);
        }
    } else {
        result = watch(client, &drain, &request, &arena);
    }
    wire_arena_finish(&arena);
    plasmon_finish(client);
    return result;
}
