/*
 * Who holds what memory, for people: for each ref of a client and each published name, how many
 * bytes it shows in which place. Refs may show the same bytes (a snapshot, a view), and then each
 * counts them: the sums of places are in the devices' own figures.
 *
 * There may be millions of them, and the head has other things to do: head_holders_look() looks at
 * so many and comes back. What it must remember between two looks is no pointer into the core but a
 * place that is found again: a cursor in the map of sessions, one in the map of a session's refs
 * (pl_map_scan()), and the number of a name (name.c). So each ref and name that is there all the
 * time is looked at once, as it is at that moment; what comes or goes meanwhile, once or not at
 * all; and a version that goes from one ref to another in between may be told twice, or not. Only
 * the largest rows are kept, whatever there is of them.
 *
 * One array is looked at in one go, however many parts it has.
 */
#include "head/core_int.h"

#include <stdlib.h>
#include <string.h>

enum { HOLDERS_MAX = 256 };

/* Texts are copies: who had them may go. */
struct holder {
    uint64_t client;
    uint64_t ref;
    uint64_t bytes;
    uint32_t device;
    Plasmon__V1__MemoryState state;
    bool more_labels;
    char label[WIRE_NAME_BYTES_MAX + 1];
    char value_label[WIRE_LABEL_BYTES_MAX + 1];
    char node[WIRE_NAME_BYTES_MAX + 1];
};

/* What the array that is being looked at shows in one place. */
struct holder_place {
    const char *node;
    uint32_t device;
    Plasmon__V1__MemoryState state;
    uint64_t bytes;
};

struct head_holders {
    int64_t looks;         /* left of this time */
    uint64_t sessions_at;  /* cursor of core->sessions */
    bool sessions_over;    /* it has been through */
    struct pl_vec pending; /* uint64_t: sessions whose refs come next */
    uint64_t session;      /* whose refs it is at; 0: none's */
    uint64_t refs_at;      /* cursor of these */
    uint64_t name_next;    /* number; 0: all names have been looked at */
    struct pl_vec places;  /* struct holder_place, of one array */
    uint64_t found;        /* rows, those that were not kept too */
    uint32_t kept;
    struct holder *rows[HOLDERS_MAX]; /* largest first */
    /* Of the ref that is looked at. */
    uint64_t client;
    const char *label;
    const char *value_label; /* of most of it; NULL: none */
    bool more_labels;
    /* Constant. */
    char *wanted; /* in a label, or the name; "": all rows are */
};

Plasmon__V1__MemoryState head_buffer_state(const struct head_buffer *buffer)
{
    return buffer->spilled == NULL ? buffer->replica
                                         ? PLASMON__V1__MEMORY_STATE__MEMORY_REPLICA
                                         : PLASMON__V1__MEMORY_STATE__MEMORY_USED
           : buffer->spilled->file != 0 && !buffer->spilled->placed
               ? PLASMON__V1__MEMORY_STATE__MEMORY_FILE
               : PLASMON__V1__MEMORY_STATE__MEMORY_SPILLED;
}

plasmon_status_t head_holders_create(const char *label, struct head_holders **out_holders)
{
    struct head_holders *holders = PL_NEW(struct head_holders);

    if (holders == NULL) {
        return PLASMON_ENOMEM;
    }
    holders->pending   = PL_VEC_INIT(uint64_t);
    holders->places    = PL_VEC_INIT(struct holder_place);
    holders->name_next = 1;
    holders->wanted    = head_strdup(label);
    *out_holders       = holders;
    return PLASMON_OK;
}

void head_holders_destroy(struct head_holders *holders)
{
    if (holders == NULL) {
        return;
    }
    for (uint32_t i = 0; i < holders->kept; i++) {
        pl_free(holders->rows[i]);
    }
    pl_vec_finish(&holders->pending);
    pl_vec_finish(&holders->places);
    pl_free(holders->wanted);
    pl_free(holders);
}

/* --------------------------------------------------------------------- the largest rows */

static int compare_numbers(uint64_t x, uint64_t y)
{
    return (x > y) - (x < y);
}

/* Largest first; then in an order that does not depend on maps. */
static int compare_rows(const struct holder *x, const struct holder *y)
{
    int order = compare_numbers(y->bytes, x->bytes);

    order = order != 0 ? order : compare_numbers(x->client, y->client);
    order = order != 0 ? order : compare_numbers(x->ref, y->ref);
    order = order != 0 ? order : compare_numbers(x->device, y->device);
    order = order != 0 ? order : compare_numbers(x->state, y->state);
    order = order != 0 ? order : strcmp(x->label, y->label);
    return order != 0 ? order : strcmp(x->node, y->node);
}

/* Before which of the rows that are kept it belongs. */
static uint32_t row_rank(const struct head_holders *holders, const struct holder *row)
{
    uint32_t low = 0, high = holders->kept;

    while (low < high) {
        uint32_t middle = (low + high) / 2;

        if (compare_rows(holders->rows[middle], row) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* NULL: as "". */
static void text_copy(char *out, size_t bytes_max, const char *text)
{
    size_t length = text != NULL ? strnlen(text, bytes_max) : 0;

    if (length > 0) {
        memcpy(out, text, length);
    }
    out[length] = '\0';
}

static void row_add(struct head_holders *holders, uint64_t ref,
                    const struct holder_place *place)
{
    struct holder row, *slot;
    uint32_t rank;

    holders->found++;
    if (holders->kept == HOLDERS_MAX &&
        place->bytes < holders->rows[HOLDERS_MAX - 1]->bytes) {
        return;
    }
    row.client      = holders->client;
    row.ref         = ref;
    row.bytes       = place->bytes;
    row.device      = place->device;
    row.state       = place->state;
    row.more_labels = holders->more_labels;
    text_copy(row.label, WIRE_NAME_BYTES_MAX, holders->label);
    text_copy(row.value_label, WIRE_LABEL_BYTES_MAX, holders->value_label);
    text_copy(row.node, WIRE_NAME_BYTES_MAX, place->node);
    rank = row_rank(holders, &row);
    if (rank == HOLDERS_MAX) {
        return;
    }
    if (holders->kept == HOLDERS_MAX) {
        slot = holders->rows[HOLDERS_MAX - 1];
    } else {
        slot = head_alloc(sizeof(*slot));
        holders->kept++;
    }
    memmove(&holders->rows[rank + 1], &holders->rows[rank],
            (holders->kept - 1 - rank) * sizeof(struct holder *));
    *slot               = row;
    holders->rows[rank] = slot;
}

/* ------------------------------------------------------------------------------ looking */

static struct holder_place *place_of(struct head_holders *holders,
                                     const struct head_buffer *buffer)
{
    uint32_t device = buffer->spilled == NULL ? buffer->device->index + 1 : 0;
    Plasmon__V1__MemoryState state = head_buffer_state(buffer);
    struct holder_place *place;

    for (size_t i = 0; i < holders->places.count; i++) {
        place = pl_vec_at(&holders->places, i);
        if (place->device == device && place->state == state &&
            strcmp(place->node, buffer->device->node) == 0) {
            return place;
        }
    }
    place = pl_vec_push(&holders->places);
    PL_CHECK(place != NULL);
    *place = (struct holder_place){
        .node = buffer->device->node, .device = device, .state = state};
    return place;
}

/* Does the label of what is being looked at, its client's or its name have what is wanted? */
static bool is_wanted(const struct head_holders *holders,
                      const struct head_labels_seen *seen)
{
    return seen->found || strstr(holders->label, holders->wanted) != NULL;
}

static void array_look(const struct head_core *core, struct head_holders *holders,
                       const struct head_array *array, uint64_t ref)
{
    struct head_labels_seen seen = {.core = core, .wanted = holders->wanted};
    uint64_t element             = pl_dtype_bytes(array->shape.dtype);
    struct pl_list *pos, *it;

    pl_vec_clear(&holders->places);
    holders->looks--;
    pl_list_for_each(pos, &array->fragments) {
        const struct head_fragment *fragment =
            pl_container_of(pos, struct head_fragment, array_link);

        head_labels_see(&seen, fragment->tile,
                        (uint64_t)pl_box_elements(&fragment->box) * element);
        pl_list_for_each(it, &fragment->tile->instances) {
            const struct head_instance *instance =
                pl_container_of(it, struct head_instance, tile_link);
            struct pl_box part;

            holders->looks--;
            if (pl_box_intersection(&instance->box, &fragment->box, &part)) {
                place_of(holders, instance->buffer)->bytes +=
                    (uint64_t)pl_box_elements(&part) * element;
            }
        }
    }
    holders->value_label = head_labels_most(&seen, &holders->more_labels);
    for (size_t i = 0; is_wanted(holders, &seen) && i < holders->places.count; i++) {
        row_add(holders, ref, pl_vec_at(&holders->places, i));
    }
}

struct refs_look {
    const struct head_core *core;
    struct head_holders *holders;
};

static void ref_look(void *user, uint64_t id, void *value)
{
    const struct refs_look *look = user;

    array_look(look->core, look->holders, ((const struct head_ref *)value)->array, id);
}

static void session_note(void *user, uint64_t session, void *client)
{
    struct head_holders *holders = user;
    uint64_t *place              = pl_vec_push(&holders->pending);

    (void)client;
    PL_CHECK(place != NULL);
    *place = session;
}

/* false: there is none left. */
static bool session_next(const struct head_core *core, struct head_holders *holders)
{
    holders->looks--;
    if (holders->pending.count > 0) {
        holders->session =
            *(uint64_t *)pl_vec_at(&holders->pending, holders->pending.count - 1);
        pl_vec_pop(&holders->pending);
        holders->refs_at = 0;
        return true;
    }
    if (!holders->sessions_over) {
        holders->sessions_over =
            !pl_map_scan(&core->sessions, &holders->sessions_at, session_note, holders);
        return true;
    }
    return false;
}

/* A few of its refs; or it is over, or gone. */
static void session_look(const struct head_core *core, struct head_holders *holders)
{
    const struct head_client *client = pl_map_get(&core->sessions, holders->session);
    struct refs_look look            = {.core = core, .holders = holders};

    holders->looks--;
    if (client == NULL) {
        holders->session = 0;
        return;
    }
    holders->client = client->id;
    holders->label  = client->label;
    if (!pl_map_scan(&client->refs, &holders->refs_at, ref_look, &look)) {
        holders->session = 0;
    }
}

static void names_look(const struct head_core *core, struct head_holders *holders)
{
    const struct head_name *name = head_name_from(core, holders->name_next);

    holders->client = 0;
    for (; name != NULL && holders->looks > 0; name = head_name_next(core, name)) {
        holders->label = name->key + strlen(name->key) + 1;
        array_look(core, holders, name->ref.array, 0);
    }
    holders->name_next = name != NULL ? name->number : 0;
}

bool head_core_holders_look(const struct head_core *core, struct head_holders *holders,
                            uint32_t looks)
{
    holders->looks = looks;
    while (holders->looks > 0 && (holders->session != 0 || session_next(core, holders))) {
        if (holders->session != 0) {
            session_look(core, holders);
        }
    }
    if (holders->looks > 0 && holders->name_next != 0) {
        names_look(core, holders);
    }
    return holders->session != 0 || holders->pending.count > 0 || !holders->sessions_over ||
           holders->name_next != 0;
}

static plasmon_status_t rows_out(const struct head_holders *holders,
                                 struct wire_arena *arena, Plasmon__V1__StatusReply *out)
{
    Plasmon__V1__MemoryHolder *rows =
        wire_arena_alloc(arena, (holders->kept + 1) * sizeof(*rows));

    out->holders = wire_arena_alloc(arena, (holders->kept + 1) * sizeof(*out->holders));
    if (rows == NULL || out->holders == NULL) {
        return PLASMON_ENOMEM;
    }
    for (uint32_t i = 0; i < holders->kept; i++) {
        struct holder *row = holders->rows[i];

        plasmon__v1__memory_holder__init(&rows[i]);
        rows[i].client      = row->client;
        rows[i].ref         = row->ref;
        rows[i].label       = row->label;
        rows[i].node        = row->node;
        rows[i].device      = row->device;
        rows[i].state       = row->state;
        rows[i].bytes       = row->bytes;
        rows[i].value_label = row->value_label;
        rows[i].more_labels = row->more_labels;
        out->holders[i]     = &rows[i];
    }
    out->n_holders    = holders->kept;
    out->holders_left = holders->found - holders->kept;
    return PLASMON_OK;
}

uint64_t head_spill_memory_used(const struct head_spill_host *spill)
{
    const struct pl_list *pos;
    uint64_t bytes = 0;

    pl_list_for_each(pos, &spill->ranges) {
        bytes += pl_container_of(pos, struct head_spilled, range_link)->bytes;
    }
    return bytes;
}

static Plasmon__V1__SpillHost *spill_host(const struct head_spill_host *spill,
                                          struct wire_arena *arena)
{
    Plasmon__V1__SpillHost *out = wire_arena_alloc(arena, sizeof(*out));

    if (out == NULL) {
        return NULL;
    }
    plasmon__v1__spill_host__init(out);
    out->memory_used        = head_spill_memory_used(spill);
    out->node               = spill->home.node;
    out->memory_bytes       = spill->config.memory_bytes;
    out->file_bytes         = spill->config.file_bytes;
    out->file_used          = spill->file_bytes;
    out->spills             = spill->spills;
    out->spill_bytes        = spill->spill_bytes;
    out->restores           = spill->restores;
    out->restore_bytes      = spill->restore_bytes;
    out->write_backs        = spill->write_backs;
    out->write_back_bytes   = spill->write_back_bytes;
    out->write_back_cancels = spill->cancels;
    out->writes             = spill->writes;
    out->write_bytes        = spill->write_bytes;
    out->reads              = spill->reads;
    out->read_bytes         = spill->read_bytes;
    return out;
}

plasmon_status_t head_spill_status(struct head_core *core, struct wire_arena *arena,
                                   Plasmon__V1__StatusReply *out)
{
    struct pl_list *pos;
    size_t count = 0;

    pl_list_for_each(pos, &core->spill_hosts) {
        count++;
    }
    out->spill_hosts = wire_arena_alloc(arena, (count + 1) * sizeof(*out->spill_hosts));
    if (out->spill_hosts == NULL) {
        return PLASMON_ENOMEM;
    }
    pl_list_for_each(pos, &core->spill_hosts) {
        Plasmon__V1__SpillHost *one =
            spill_host(pl_container_of(pos, struct head_spill_host, link), arena);

        if (one == NULL) {
            return PLASMON_ENOMEM;
        }
        out->spill_hosts[out->n_spill_hosts++] = one;
    }
    return PLASMON_OK;
}

/* ------------------------------------------------------------------------------- pinned */

/* Of what is mapped and unused: buffers are marked, for arrays may show the same. */
static void mapped_add(const struct head_array *array, uint64_t mark,
                       Plasmon__V1__StatusReply *out)
{
    struct pl_list *pos, *it;

    pl_list_for_each(pos, &array->fragments) {
        const struct head_fragment *fragment =
            pl_container_of(pos, struct head_fragment, array_link);

        pl_list_for_each(it, &fragment->tile->instances) {
            struct head_buffer *buffer =
                pl_container_of(it, struct head_instance, tile_link)->buffer;

            if (buffer->uses == 0 && buffer->spilled == NULL && buffer->counted != mark) {
                buffer->counted = mark;
                out->devices[buffer->device->index]->bytes_pinned +=
                    head_spill_rounded(buffer->bytes);
            }
        }
    }
}

plasmon_status_t head_core_holders_tell(struct head_core *core,
                                        const struct head_holders *holders,
                                        struct wire_arena *arena,
                                        Plasmon__V1__StatusReply *out)
{
    struct pl_list *pos;

    core->counted_last++;
    for (size_t i = 0; i < out->n_devices; i++) {
        out->devices[i]->bytes_pinned =
            head_device_at(core, out->devices[i]->index)->bytes_in_use;
    }
    pl_list_for_each(pos, &core->mapped) {
        mapped_add(pl_container_of(pos, struct head_array, mapped_link), core->counted_last,
                   out);
    }
    return rows_out(holders, arena, out);
}
