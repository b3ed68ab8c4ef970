/*
 * `plasmon objects`: what refs and published names show, largest first; for people, or (--json) for scripts.
 *
 * The head lists in no order, a page at a time. Here the largest so far are kept (packed, for a
 * page is gone when the next one comes), and once there are as many as wanted the head is asked for
 * larger ones only.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "client/cli/list.h"
#include "client/client_int.h"

#define LIMIT_MAX 100000u

static const char *const states[] = {"ready", "pending", "failed"};

static const struct cli_option options[] = {
    {"--device", "N", CLI_TEXT, LIST_AT(device), "only what lies on this device"},
    {"--state", "STATE", CLI_TEXT, LIST_AT(state), "only ready, pending or failed ones"},
    {"--client", "ID", CLI_TEXT, LIST_AT(client), "only refs of this client"},
    {"--label", "TEXT", CLI_TEXT, LIST_AT(label),
     "only with this in the label of the value or the client, or in the name"},
    {"--limit", "N", CLI_COUNT, LIST_AT(limit), "the N largest; 0: all, in no order [50]"},
    CLI_ASKS_OPTIONS,
};

static int run(int argc, char **argv);
const struct cli_command cli_objects = {
    .name    = "objects",
    .summary = "values that refs and names show: shape, state, and where they lie",
    .usage   = "[options]",
    .text    = "pending: something is still to be written, by the launch that is named "
               "(device:launch). Refs that\n"
               "show the same value each have a line. age: of this version, or since the head "
               "was started. label:\n"
               "of the put or call that wrote the value; with a +, most of it. `plasmon "
               "memory` has the sums.\n",
    .options = options,
    .option_count = PL_COUNT(options),
    .run          = run,
};

/* --------------------------------------------------------------------------------- rows */

static const char *state_name(uint32_t state)
{
    return state < PL_COUNT(states) ? states[state] : "?";
}

static const char *second_name(uint32_t second)
{
    static const char *const names[] = {"", "missing", "near", "apart", "moving"};

    return second < PL_COUNT(names) ? names[second] : "?";
}

static const char *second_text(uint32_t second)
{
    static const char *const texts[] = {"", "its second copy is missing",
                                        "in two places on one host", "on two hosts",
                                        "its second copy is on its way"};

    return second < PL_COUNT(texts) ? texts[second] : "?";
}

/* "f32[1024,1024]" */
static const char *shape_text(const Plasmon__V1__Shape *shape, char out[160])
{
    size_t at;

    if (shape == NULL) {
        return "?";
    }
    at = (size_t)snprintf(out, 160, "%s", pl_dtype_name(shape->dtype));
    for (size_t i = 0; i < shape->n_dim && at < 130; i++) {
        at += (size_t)snprintf(out + at, 160 - at, "%s%" PRIu64, i == 0 ? "[" : ",",
                               shape->dim[i]);
    }
    (void)snprintf(out + at, 160 - at, "%s", shape->n_dim > 0 ? "]" : "");
    return out;
}

static void place_text(const Plasmon__V1__ObjectPlace *place)
{
    char bytes[32];

    if (place->device != 0) {
        printf(" device %u", place->device - 1);
    } else {
        printf(" %s of %.40s", cli_memory_state(place->state), place->node);
    }
    printf(" %s%s", pl_format_bytes(place->bytes, bytes),
           place->state == PLASMON__V1__MEMORY_STATE__MEMORY_REPLICA ? " (replica)" : "");
}

void list_object_text(const Plasmon__V1__ObjectRow *row)
{
    char bytes[32], shape[160], ref[24] = "published", client[24] = "-", age[32];
    char label[CLI_LABEL_COLUMN + 1];

    if (row->client != 0) {
        (void)snprintf(ref, sizeof(ref), "%" PRIu64, row->ref);
        (void)snprintf(client, sizeof(client), "%016" PRIx64, row->client);
    }
    printf("  %10s %-24s %-8s %9s %-16s %-20.20s %-9s %-24s",
           pl_format_bytes(row->bytes, bytes), shape_text(row->shape, shape),
           state_name(row->state), list_age(row->age_ms, age), client, row->label, ref,
           cli_label(row->value_label, row->more_labels, label));
    for (size_t i = 0; i < row->n_places; i++) {
        printf("%s", i > 0 ? "," : "");
        place_text(row->places[i]);
    }
    if (row->more) {
        printf(", and more");
    }
    if (row->second != PLASMON__V1__SECOND_COPY__SECOND_NOT_WANTED) {
        printf("; %s", second_text(row->second));
    }
    if (row->maker != 0) {
        printf("; written by %u:%" PRIu64, wire_point_device(row->maker),
               wire_point_seq(row->maker));
    }
    if (row->failure[0] != '\0') {
        printf("; %s", row->failure);
    }
    printf("\n");
}

void list_object_json(const Plasmon__V1__ObjectRow *row, struct pl_str *out)
{
    json_next(out);
    pl_str_append(out, "{");
    json_number(out, "bytes", row->bytes);
    json_text(out, "dtype", row->shape != NULL ? pl_dtype_name(row->shape->dtype) : "?");
    json_open(out, "shape", '[');
    for (size_t i = 0; row->shape != NULL && i < row->shape->n_dim; i++) {
        json_next(out);
        pl_str_append(out, "%" PRIu64, row->shape->dim[i]);
    }
    pl_str_append(out, "]");
    json_text(out, "state", state_name(row->state));
    json_number(out, "age_ms", row->age_ms);
    if (row->client != 0) {
        json_id(out, "client", row->client);
        json_number(out, "ref", row->ref);
    }
    json_text(out, "label", row->value_label);
    json_flag(out, "more_labels", row->more_labels);
    json_text(out, row->client != 0 ? "client_label" : "name", row->label);
    json_text(out, "namespace", row->name_space);
    if (row->maker != 0) {
        json_open(out, "writer", '{');
        json_number(out, "device", wire_point_device(row->maker));
        json_number(out, "launch", wire_point_seq(row->maker));
        pl_str_append(out, "}");
    }
    if (row->second != PLASMON__V1__SECOND_COPY__SECOND_NOT_WANTED) {
        json_text(out, "second_copy", second_name(row->second));
    }
    json_text(out, "failure", row->failure);
    json_open(out, "places", '[');
    for (size_t i = 0; i < row->n_places; i++) {
        const Plasmon__V1__ObjectPlace *place = row->places[i];

        json_next(out);
        pl_str_append(out, "{");
        json_text(out, "node", place->node);
        if (place->device != 0) {
            json_number(out, "device", place->device - 1);
        }
        json_text(out, "state", cli_memory_state(place->state));
        json_number(out, "bytes", place->bytes);
        pl_str_append(out, "}");
    }
    pl_str_append(out, "]");
    json_flag(out, "more_places", row->more);
    pl_str_append(out, "}");
}

/* -------------------------------------------------------------------------- the largest */

struct kept {
    uint64_t bytes;
    uint64_t client;
    uint64_t ref;
    size_t length;
    uint8_t *packed;
};

struct largest {
    uint32_t limit; /* 0: rows are printed as they come */
    bool dropped;   /* there are more than limit */
    struct list_shown shown;
    struct pl_vec rows; /* struct kept */
};

static int compare(const void *a, const void *b)
{
    const struct kept *x = a, *y = b;
    int order = (x->bytes < y->bytes) - (x->bytes > y->bytes);

    if (order == 0) {
        order = (x->client > y->client) - (x->client < y->client);
    }
    return order != 0 ? order : (x->ref > y->ref) - (x->ref < y->ref);
}

static void cut(struct largest *largest)
{
    if (largest->rows.count > 1) {
        qsort(largest->rows.items, largest->rows.count, sizeof(struct kept), compare);
    }
    while (largest->rows.count > largest->limit) {
        pl_free(
            ((struct kept *)pl_vec_at(&largest->rows, largest->rows.count - 1))->packed);
        pl_vec_pop(&largest->rows);
        largest->dropped = true;
    }
}

static void print_row(struct largest *largest, const Plasmon__V1__ObjectRow *row)
{
    struct pl_str text;

    if (!largest->shown.json) {
        list_object_text(row);
        return;
    }
    pl_str_init(&text);
    list_object_json(row, &text);
    list_row_json(&largest->shown, &text);
    pl_str_finish(&text);
}

static bool keep(struct largest *largest, const Plasmon__V1__ObjectRow *row)
{
    struct kept *kept = pl_vec_push(&largest->rows);

    if (kept == NULL) {
        return false;
    }
    kept->bytes  = row->bytes;
    kept->client = row->client;
    kept->ref    = row->ref;
    kept->length = plasmon__v1__object_row__get_packed_size(row);
    kept->packed = pl_alloc(kept->length + 1);
    if (kept->packed == NULL) {
        pl_vec_pop(&largest->rows);
        return false;
    }
    (void)plasmon__v1__object_row__pack(row, kept->packed);
    return true;
}

/* One page. What is to be asked for from now on is at least so large: *io_bytes_min. */
static bool take(struct largest *largest, const Plasmon__V1__ListReply *reply,
                 uint64_t *io_bytes_min)
{
    for (size_t i = 0; i < reply->n_objects; i++) {
        if (largest->limit == 0) {
            print_row(largest, reply->objects[i]);
        } else if (!keep(largest, reply->objects[i])) {
            return false;
        }
    }
    if (largest->limit != 0 && largest->rows.count > largest->limit) {
        cut(largest);
        *io_bytes_min =
            ((struct kept *)pl_vec_at(&largest->rows, largest->rows.count - 1))->bytes;
    }
    return true;
}

static void print_kept(struct largest *largest)
{
    cut(largest);
    for (size_t i = 0; i < largest->rows.count; i++) {
        const struct kept *kept = pl_vec_at(&largest->rows, i);
        Plasmon__V1__ObjectRow *row =
            plasmon__v1__object_row__unpack(NULL, kept->length, kept->packed);

        if (row != NULL) {
            print_row(largest, row);
            plasmon__v1__object_row__free_unpacked(row, NULL);
        }
    }
}

static void print_header(void)
{
    printf("  %10s %-24s %-8s %9s %-16s %-20s %-9s %-24s %s\n", "bytes", "value", "state",
           "age", "client", "client label or name", "ref", "label", "where");
}

static void end(const struct largest *largest)
{
    if (largest->shown.json) {
        printf("],\"more\":%s}\n", largest->dropped ? "true" : "false");
    } else if (largest->dropped) {
        printf("  and smaller ones: --limit 0 has all\n");
    }
}

static int pages(struct plasmon_client *client, struct wire_arena *arena,
                 Plasmon__V1__ListRequest request, struct largest *largest)
{
    Plasmon__V1__ListPlace from = PLASMON__V1__LIST_PLACE__INIT;
    const Plasmon__V1__ListReply *reply;

    do {
        reply = list_page(&cli_objects, client, &request, arena);
        if (reply == NULL) {
            return CLI_FAIL;
        }
        list_begin(&largest->shown, "objects", print_header);
        if (!take(largest, reply, &request.bytes_min)) {
            return cli_fail(&cli_objects, "no memory");
        }
        if (reply->next != NULL) {
            from.a       = reply->next->a;
            from.b       = reply->next->b;
            request.from = &from;
        }
    } while (reply->next != NULL);
    return CLI_OK;
}

static int ask(const struct list *list, struct plasmon_client *client,
               struct wire_arena *arena)
{
    Plasmon__V1__ListRequest request = PLASMON__V1__LIST_REQUEST__INIT;
    struct largest largest           = {.limit = list->limit,
                                        .shown = {.json = list->asks.json},
                                        .rows  = PL_VEC_INIT(struct kept)};
    int result = list_filters(&cli_objects, list, states, PL_COUNT(states), &request);

    if (result != CLI_OK) {
        return result;
    }
    request.kind = PLASMON__V1__LIST_KIND__LIST_OBJECTS;
    result       = pages(client, arena, request, &largest);
    if (result == CLI_OK) {
        print_kept(&largest);
        end(&largest);
    }
    largest.limit = 0;
    cut(&largest);
    pl_vec_finish(&largest.rows);
    return result;
}

static int run(int argc, char **argv)
{
    struct list list         = {.limit = 50};
    struct cli_parsed parsed = cli_parse(&cli_objects, argc, argv, &list);

    if (parsed.exit >= 0) {
        return parsed.exit;
    }
    if (list.limit > LIMIT_MAX) {
        return cli_usage(&cli_objects, "--limit is at most %u, or 0", LIMIT_MAX);
    }
    return list_run(&cli_objects, &list, ask);
}
