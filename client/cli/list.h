/* What `plasmon tasks`, `objects` and `nodes` share: pages of a listing, and how it is told. */
#ifndef CLIENT_CLI_LIST_H
#define CLIENT_CLI_LIST_H

#include "client/cli/cli.h"
#include "client/json.h"

struct plasmon_client;

struct list {
    struct cli_asks asks; /* first: CLI_ASKS_OPTIONS */
    uint32_t limit;
    const char *label;
    const char *client; /* 16 hexadecimal digits */
    const char *device;
    const char *state;
};
#define LIST_AT(field) offsetof(struct list, field)

/* One page. The reply lies in the arena until the next one. NULL: it is printed why not. */
const Plasmon__V1__ListReply *list_page(const struct cli_command *command,
                                        struct plasmon_client *client,
                                        const Plasmon__V1__ListRequest *request,
                                        struct wire_arena *arena);
/* The filters into a request, whose states have these names. CLI_OK or CLI_USAGE. */
int list_filters(const struct cli_command *command, const struct list *list,
                 const char *const *states, size_t state_count,
                 Plasmon__V1__ListRequest *out);
/* All of a command after parsing: asks, with a client and an arena. */
int list_run(const struct cli_command *command, const struct list *list,
             int (*ask)(const struct list *list, struct plasmon_client *client,
                        struct wire_arena *arena));

/* What was printed of a list. */
struct list_shown {
    bool json;
    bool begun;
    uint64_t rows; /* as JSON */
    bool some;     /* for people */
};
/*
 * When a page is there, and not before: an error of the first one stands alone. key: of the array
 * in JSON; header: for people.
 */
void list_begin(struct list_shown *shown, const char *key, void (*header)(void));
/* A row in JSON; takes what is in `text`, which may be used again. */
void list_row_json(struct list_shown *shown, struct pl_str *text);

/* tasks.c, objects.c, nodes.c: a row for people, and as a JSON object. */
void list_task_text(const Plasmon__V1__TaskRow *row);
void list_task_json(const Plasmon__V1__TaskRow *row, struct pl_str *out);
void list_object_text(const Plasmon__V1__ObjectRow *row);
void list_object_json(const Plasmon__V1__ObjectRow *row, struct pl_str *out);
void list_node_text(const Plasmon__V1__NodeRow *row);
void list_node_json(const Plasmon__V1__NodeRow *row, struct pl_str *out);

/* "850 ms", "12.3 s", "4 min", "7 h", "3 d". */
const char *list_age(uint64_t ms, char out[32]);

#endif
