#include "client/cli/list.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "client/client_int.h"

#define LIST_PATH "/plasmon.v1.Plasmon/List"

const Plasmon__V1__ListReply *list_page(const struct cli_command *command,
                                        struct plasmon_client *client,
                                        const Plasmon__V1__ListRequest *request,
                                        struct wire_arena *arena)
{
    struct pl_err err = {.status = PLASMON_OK};
    Plasmon__V1__ListReply *reply;
    plasmon_status_t status;
    uint8_t *bytes;
    size_t length;

    if (client_unary(client, LIST_PATH, &request->base, &bytes, &length) != PLASMON_OK) {
        (void)cli_fail(command, "%s", plasmon_error(client));
        return NULL;
    }
    wire_arena_reset(arena);
    status = wire_decode_list_reply(arena, bytes, length, &reply, &err);
    pl_free(bytes);
    if (status != PLASMON_OK) {
        (void)cli_fail(command, "the head's answer: %s", err.text);
        return NULL;
    }
    return reply;
}

static bool number_read(const char *text, int base, uint64_t max, uint64_t *out)
{
    char *end;

    errno = 0;
    *out  = strtoull(text, &end, base);
    return text[0] != '-' && text[0] != '\0' && *end == '\0' && errno == 0 && *out <= max;
}

int list_filters(const struct cli_command *command, const struct list *list,
                 const char *const *states, size_t state_count,
                 Plasmon__V1__ListRequest *out)
{
    uint64_t number;

    out->label = (char *)(uintptr_t)(list->label != NULL ? list->label : "");
    if (list->client != NULL) {
        if (!number_read(list->client, 16, UINT64_MAX, &number) || number == 0) {
            return cli_usage(command,
                             "--client wants an id as it is listed (hexadecimal) and not "
                             "\"%s\"",
                             list->client);
        }
        out->client = number;
    }
    if (list->device != NULL) {
        if (!number_read(list->device, 10, WIRE_DEVICES_MAX - 1, &number)) {
            return cli_usage(command, "--device wants a number and not \"%s\"",
                             list->device);
        }
        out->device = (uint32_t)number + 1;
    }
    for (size_t i = 0; list->state != NULL && i < state_count; i++) {
        if (strcmp(states[i], list->state) == 0) {
            out->state = (uint32_t)i + 1;
        }
    }
    if (list->state != NULL && out->state == 0) {
        char known[128] = "";

        for (size_t i = 0; i < state_count; i++) {
            (void)snprintf(known + strlen(known), sizeof(known) - strlen(known), "%s%s",
                           i > 0 ? ", " : "", states[i]);
        }
        return cli_usage(command, "there is no state \"%s\"; there are %s", list->state,
                         known);
    }
    return CLI_OK;
}

int list_run(const struct cli_command *command, const struct list *list,
             int (*ask)(const struct list *list, struct plasmon_client *client,
                        struct wire_arena *arena))
{
    struct plasmon_client *client = cli_ask(command, &list->asks.cluster);
    struct wire_arena arena;
    int result;

    if (client == NULL) {
        return CLI_FAIL;
    }
    if (wire_arena_init(&arena, WIRE_ARENA_BYTES_MAX) != PLASMON_OK) {
        plasmon_finish(client);
        return cli_fail(command, "no memory");
    }
    result = ask(list, client, &arena);
    wire_arena_finish(&arena);
    plasmon_finish(client);
    return result;
}

void list_begin(struct list_shown *shown, const char *key, void (*header)(void))
{
    if (shown->begun) {
        return;
    }
    shown->begun = true;
    if (shown->json) {
        printf("{\"%s\":[", key);
    } else {
        header();
    }
}

void list_row_json(struct list_shown *shown, struct pl_str *text)
{
    printf("%s%s", shown->rows > 0 ? ",\n" : "", pl_str_text(text));
    pl_str_finish(text);
    pl_str_init(text);
    shown->rows++;
}

const char *list_age(uint64_t ms, char out[32])
{
    if (ms < 1000) {
        (void)snprintf(out, 32, "%llu ms", (unsigned long long)ms);
    } else if (ms < 120000) {
        (void)snprintf(out, 32, "%llu.%llu s", (unsigned long long)(ms / 1000),
                       (unsigned long long)(ms % 1000 / 100));
    } else if (ms < 7200000) {
        (void)snprintf(out, 32, "%llu min", (unsigned long long)(ms / 60000));
    } else if (ms < 172800000) {
        (void)snprintf(out, 32, "%llu h", (unsigned long long)(ms / 3600000));
    } else {
        (void)snprintf(out, 32, "%llu d", (unsigned long long)(ms / 86400000));
    }
    return out;
}
