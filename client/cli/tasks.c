/*
 * `plasmon tasks`: the unfinished launches of each device, in the order in which it runs them, and
 * what each waits for; for people, or (--json) for scripts. A limit is of each device: what the one
 * with the longest queue does must not hide the others.
 */
#include <inttypes.h>
#include <stdio.h>

#include "client/cli/list.h"
#include "client/client_int.h"
#include "kernels/kernels.h"

static const char *const states[] = {"queued", "sent", "running", "ending", "failed"};

static const struct cli_option options[] = {
    {"--device", "N", CLI_TEXT, LIST_AT(device), "only of this device"},
    {"--state", "STATE", CLI_TEXT, LIST_AT(state),
     "only queued, sent, running, ending or failed ones"},
    {"--client", "ID", CLI_TEXT, LIST_AT(client), "only of this client"},
    {"--label", "TEXT", CLI_TEXT, LIST_AT(label),
     "only with this in their label or their client's"},
    {"--limit", "N", CLI_COUNT, LIST_AT(limit), "at most so many of a device; 0: all [20]"},
    CLI_ASKS_OPTIONS,
};

static int run(int argc, char **argv);
const struct cli_command cli_tasks = {
    .name    = "tasks",
    .summary = "what each device runs and is to run, and what waits for what",
    .usage   = "[options]",
    .text = "queued: at the head; sent: its worker has it; running: first of its stream; "
            "ending: done, but\n"
            "others have not reported yet; failed: its launch is still to go by. Tasks "
            "without a number are the\n"
            "head's own (copies, reads). after: launches that it waits for, as "
            "device:launch. `plasmon doctor\n"
            "--cluster` says what holds up the oldest.\n",
    .options      = options,
    .option_count = PL_COUNT(options),
    .run          = run,
};

static const char *state_name(uint32_t state)
{
    return state < PL_COUNT(states) ? states[state] : "?";
}

static const char *function_of(const Plasmon__V1__TaskRow *row)
{
    const struct kernel_function *function =
        row->function != 0 ? kernel_by_id(row->function) : NULL;

    return row->function_name[0] != '\0' ? row->function_name
           : function != NULL            ? function->name
                                         : row->what;
}

void list_task_text(const Plasmon__V1__TaskRow *row)
{
    char task[24] = "-", client[24] = "-", age[32];

    if (row->task != 0) {
        (void)snprintf(task, sizeof(task), "%" PRIu64, row->task);
    }
    if (row->client != 0) {
        (void)snprintf(client, sizeof(client), "%016" PRIx64, row->client);
    }
    printf("  %-6u %-9" PRIu64 " %-8s %9s %-9s %-18.18s %-16.16s %-16s %-14.14s",
           row->device, row->seq, state_name(row->state), list_age(row->age_ms, age), task,
           function_of(row), row->label[0] != '\0' ? row->label : "-", client,
           row->client_label[0] != '\0' ? row->client_label : "-");
    for (size_t i = 0; i < row->n_after; i++) {
        printf(" %u:%" PRIu64, wire_point_device(row->after[i]),
               wire_point_seq(row->after[i]));
    }
    if (row->after_more > 0) {
        printf(" and %u more", row->after_more);
    }
    printf("\n");
}

void list_task_json(const Plasmon__V1__TaskRow *row, struct pl_str *out)
{
    json_next(out);
    pl_str_append(out, "{");
    json_number(out, "device", row->device);
    json_number(out, "launch", row->seq);
    json_text(out, "state", state_name(row->state));
    json_number(out, "age_ms", row->age_ms);
    json_number(out, "task", row->task);
    json_text(out, "kind", row->what);
    json_text(out, "function", function_of(row));
    json_text(out, "label", row->label);
    json_id(out, "client", row->client);
    json_text(out, "client_label", row->client_label);
    json_open(out, "after", '[');
    for (size_t i = 0; i < row->n_after; i++) {
        json_next(out);
        pl_str_append(out, "{");
        json_number(out, "device", wire_point_device(row->after[i]));
        json_number(out, "launch", wire_point_seq(row->after[i]));
        pl_str_append(out, "}");
    }
    pl_str_append(out, "]");
    json_number(out, "after_more", row->after_more);
    pl_str_append(out, "}");
}

struct shown {
    struct list_shown list;
    bool more; /* there are more of a device than the limit */
};

static void print_header(void)
{
    printf("  %-6s %-9s %-8s %9s %-9s %-18s %-16s %-16s %-14s %s\n", "device", "launch",
           "state", "age", "task", "function", "label", "client", "", "after");
}

static void print_rows(const Plasmon__V1__ListReply *reply, struct list_shown *shown)
{
    struct pl_str text;

    pl_str_init(&text);
    for (size_t i = 0; i < reply->n_tasks; i++) {
        if (shown->json) {
            list_task_json(reply->tasks[i], &text);
            list_row_json(shown, &text);
        } else {
            list_task_text(reply->tasks[i]);
            shown->rows++;
        }
    }
    pl_str_finish(&text);
}

/* Of one device. false: it is printed why not. */
static bool device_list(const struct list *list, struct plasmon_client *client,
                        struct wire_arena *arena, Plasmon__V1__ListRequest request,
                        struct shown *shown)
{
    Plasmon__V1__ListPlace from = PLASMON__V1__LIST_PLACE__INIT;
    uint64_t before             = shown->list.rows;

    for (;;) {
        const Plasmon__V1__ListReply *reply;

        request.rows_max =
            list->limit != 0 ? list->limit - (uint32_t)(shown->list.rows - before) : 0;
        reply = list_page(&cli_tasks, client, &request, arena);
        if (reply == NULL) {
            return false;
        }
        list_begin(&shown->list, "tasks", print_header);
        print_rows(reply, &shown->list);
        if (reply->next == NULL) {
            return true;
        }
        if (list->limit != 0 && shown->list.rows - before >= list->limit) {
            shown->more = true;
            return true;
        }
        from.a       = reply->next->a;
        from.b       = reply->next->b;
        request.from = &from;
    }
}

/* The status first: it has workers say what they are at, and which devices have anything to do. */
static int ask(const struct list *list, struct plasmon_client *client,
               struct wire_arena *arena)
{
    Plasmon__V1__ListRequest request = PLASMON__V1__LIST_REQUEST__INIT;
    Plasmon__V1__StatusReply *status;
    struct wire_arena status_arena;
    struct shown shown = {.list.json = list->asks.json};
    uint32_t only;
    bool good  = true;
    int result = list_filters(&cli_tasks, list, states, PL_COUNT(states), &request);

    if (result != CLI_OK) {
        return result;
    }
    if (client_status(client, CLIENT_STATUS_PLAIN, &status_arena, &status) != PLASMON_OK) {
        return cli_fail(&cli_tasks, "%s", plasmon_error(client));
    }
    only         = request.device;
    request.kind = PLASMON__V1__LIST_KIND__LIST_TASKS;
    for (size_t i = 0; good && i < status->n_devices; i++) {
        request.device = status->devices[i]->index + 1;
        if (only == request.device || (only == 0 && status->devices[i]->queued > 0)) {
            good = device_list(list, client, arena, request, &shown);
        }
    }
    if (only > status->n_devices) {
        request.device = only; /* the head says that there is none */
        good           = device_list(list, client, arena, request, &shown);
    }
    if (good) {
        list_begin(&shown.list, "tasks", print_header); /* nothing to show */
    }
    if (good && list->asks.json) {
        printf("],\"more\":%s}\n", shown.more ? "true" : "false");
    } else if (good && shown.more) {
        printf("  more: --limit 0 has all, %llu launches are unfinished\n",
               (unsigned long long)status->tasks_queued);
    }
    wire_arena_finish(&status_arena);
    return good ? CLI_OK : CLI_FAIL;
}

static int run(int argc, char **argv)
{
    struct list list         = {.limit = 20};
    struct cli_parsed parsed = cli_parse(&cli_tasks, argc, argv, &list);

    return parsed.exit >= 0 ? parsed.exit : list_run(&cli_tasks, &list, ask);
}
