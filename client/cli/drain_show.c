/* What a head says of a drain, for people and as JSON. */
#include <stdio.h>

#include "client/cli/cli.h"
#include "client/client_int.h"

void cli_drain_progress(const Plasmon__V1__DrainReply *reply, FILE *out)
{
    char safe[32], left[32];

    fprintf(
        out, "%llu objects (%s) are elsewhere, %llu (%s) are not yet, %llu tasks are left",
        (unsigned long long)reply->objects_safe, pl_format_bytes(reply->bytes_safe, safe),
        (unsigned long long)reply->objects_left, pl_format_bytes(reply->bytes_left, left),
        (unsigned long long)reply->tasks_left);
    fprintf(out, "%s%s\n", reply->text[0] != '\0' ? ": " : "", reply->text);
}

static void print_left(const Plasmon__V1__DrainReply *reply)
{
    char bytes[32];

    for (size_t i = 0; i < reply->n_left; i++) {
        const Plasmon__V1__DrainLeft *left = reply->left[i];

        if (left->name[0] != '\0') {
            printf("  %s of '%s'", pl_format_bytes(left->bytes, bytes), left->name);
        } else {
            printf("  %s of ref %llu of client %llx%s%s%s",
                   pl_format_bytes(left->bytes, bytes), (unsigned long long)left->ref,
                   (unsigned long long)left->client, left->label[0] != '\0' ? " (" : "",
                   left->label, left->label[0] != '\0' ? ")" : "");
        }
        printf(": %s\n", left->why);
    }
    if (reply->left_more > 0) {
        printf("  and %llu more\n", (unsigned long long)reply->left_more);
    }
}

static void append_left(struct pl_str *out, const Plasmon__V1__DrainLeft *left)
{
    pl_str_append(out, "{\"name\":");
    pl_str_append_json(out, left->name);
    pl_str_append(out, ",\"client\":\"%llx\",\"label\":", (unsigned long long)left->client);
    pl_str_append_json(out, left->label);
    pl_str_append(out,
                  ",\"ref\":%llu,\"bytes\":%llu,\"why\":", (unsigned long long)left->ref,
                  (unsigned long long)left->bytes);
    pl_str_append_json(out, left->why);
    pl_str_append(out, "}");
}

static void print_json(const Plasmon__V1__DrainReply *reply)
{
    struct pl_str text;

    pl_str_init(&text);
    pl_str_append_json(&text, reply->text);
    pl_str_append(&text, ",\"left\":[");
    for (size_t i = 0; i < reply->n_left; i++) {
        pl_str_append(&text, "%s", i > 0 ? "," : "");
        append_left(&text, reply->left[i]);
    }
    pl_str_append(&text, "],\"left_more\":%llu", (unsigned long long)reply->left_more);
    printf("{\"done\":%s,\"over\":%s,\"objects_safe\":%llu,\"bytes_safe\":%llu,"
           "\"objects_left\":%llu,\"bytes_left\":%llu,\"tasks_left\":%llu,\"text\":%s}\n",
           reply->done ? "true" : "false", reply->over ? "true" : "false",
           (unsigned long long)reply->objects_safe, (unsigned long long)reply->bytes_safe,
           (unsigned long long)reply->objects_left, (unsigned long long)reply->bytes_left,
           (unsigned long long)reply->tasks_left, pl_str_text(&text));
    pl_str_finish(&text);
}

void cli_drain_show(const Plasmon__V1__DrainReply *reply, bool json)
{
    if (json) {
        print_json(reply);
    } else {
        cli_drain_progress(reply, stdout);
        print_left(reply);
    }
}
