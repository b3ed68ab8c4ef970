/*
 * What `plasmon tasks` and `plasmon objects` list, a page at a time. Reads only.
 *
 * A head with a million tasks goes on working while they are listed: a page looks at LOOKS things
 * and no more, wherever that is, and says where the next one begins. A place must therefore be
 * found again without a search, and mean something when what was there is gone:
 *
 *   tasks     device and number of the launch there, whose ring is indexed by it
 *   objects   client and a cursor of the map of its refs (pl_map_scan()); after the clients the
 *             published names, by number
 */
#include "base/text.h"
#include "head/core_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    ROWS_MAX     = 512,
    ROWS_OVER    = 64,    /* refs come by homes of a map: a few at a time */
    LOOKS        = 16384, /* about a millisecond */
    PARTS_MAX    = 1024,  /* of one object that are looked at */
    PARTS_A_LOOK = 8,     /* whose labels alone are looked at */
    PLACES_MAX   = 16,    /* of one object that are told */
    WRITERS_MAX  = 64,    /* of one buffer that are looked at */
    DECODE_UNIT  = 64,    /* bytes of a launch that are one look */
    TEXT_MAX     = 255,   /* of a failure */
};

struct page {
    struct head_core *core;
    const Plasmon__V1__ListRequest *request;
    const char *only; /* namespace; NULL: any */
    struct wire_arena *arena;
    Plasmon__V1__ListReply *out;
    size_t rows_max;
    int64_t looks; /* left */
    plasmon_status_t status;
    const struct head_client *client; /* whose refs are looked at; NULL: names */
};

static void page_begin(struct page *page, size_t row_bytes, void **out_rows)
{
    uint32_t asked = page->request->rows_max;

    page->looks    = LOOKS;
    page->rows_max = asked == 0 ? ROWS_MAX : pl_min_u64(asked, ROWS_MAX);
    *out_rows      = wire_arena_alloc(page->arena, (ROWS_MAX + ROWS_OVER) * row_bytes);
    page->status   = *out_rows != NULL ? PLASMON_OK : PLASMON_ENOMEM;
}

static bool page_full(const struct page *page)
{
    return page->looks <= 0 || page->status != PLASMON_OK ||
           page->out->n_tasks + page->out->n_objects >= page->rows_max;
}

static void page_next(struct page *page, uint64_t a, uint64_t b)
{
    Plasmon__V1__ListPlace *next = wire_arena_alloc(page->arena, sizeof(*next));

    if (next == NULL) {
        page->status = PLASMON_ENOMEM;
        return;
    }
    plasmon__v1__list_place__init(next);
    next->a         = a;
    next->b         = b;
    page->out->next = next;
}

static bool label_wanted(const struct page *page, const char *one, const char *other)
{
    const char *label = page->request->label;

    return label[0] == '\0' || (one != NULL && strstr(one, label) != NULL) ||
           (other != NULL && strstr(other, label) != NULL);
}

static char *lent(const char *text)
{
    return (char *)(uintptr_t)(text != NULL ? text : "");
}

/* -------------------------------------------------------------------------------- tasks */

static Plasmon__V1__TaskState task_state(const struct head_task *task)
{
    const struct head_device *device = task->device;

    if (task->failure != NULL) {
        return PLASMON__V1__TASK_STATE__TASK_FAILED;
    }
    if (task->ended) {
        return PLASMON__V1__TASK_STATE__TASK_ENDING;
    }
    for (uint32_t i = 0; i < device->wait_count; i++) {
        if (device->waits[i].row.seq == task->seq && device->waits[i].row.stream != 0) {
            return PLASMON__V1__TASK_STATE__TASK_RUNNING;
        }
    }
    return task->seq <= device->seq_sent ? PLASMON__V1__TASK_STATE__TASK_SENT
                                         : PLASMON__V1__TASK_STATE__TASK_QUEUED;
}

static bool task_wanted(const struct page *page, const struct head_task *task)
{
    const Plasmon__V1__ListRequest *request = page->request;
    const struct head_client *client        = task->client;

    return (page->only == NULL ||
            (client != NULL && strcmp(client->space->name, page->only) == 0)) &&
           (request->client == 0 || (client != NULL && client->id == request->client)) &&
           (request->state == 0 || task_state(task) == request->state - 1) &&
           label_wanted(page, task->label, client != NULL ? client->label : NULL);
}

static void task_add(struct page *page, const struct head_task *task)
{
    Plasmon__V1__TaskRow *row            = wire_arena_alloc(page->arena, sizeof(*row));
    const struct head_function *function = NULL;

    if (row == NULL) {
        page->status = PLASMON_ENOMEM;
        return;
    }
    plasmon__v1__task_row__init(row);
    if (task->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_RUN) {
        row->function = task->function;
        function      = head_function_by_id(page->core, task->function);
    }
    row->client        = task->client != NULL ? task->client->id : 0;
    row->client_label  = lent(task->client != NULL ? task->client->label : "");
    row->task          = task->group != NULL ? task->group->id : task->id;
    row->what          = lent(head_task_kind(task));
    row->label         = lent(task->label);
    row->function_name = lent(function != NULL ? head_function_name(function) : "");
    row->device        = task->device->index;
    row->seq           = task->seq;
    row->state         = task_state(task);
    row->age_ms  = page->core->now_ms - pl_min_u64(page->core->now_ms, task->since_ms);
    page->status = head_task_after(page->core, page->arena, task, &row->after,
                                   &row->n_after, &row->after_more);
    page->looks -= task->bytes_length / DECODE_UNIT;
    page->out->tasks[page->out->n_tasks++] = row;
}

/* Launches of one device from a number on. false: the page is full. */
static bool tasks_of_device(struct page *page, struct head_device *device, uint64_t seq)
{
    for (seq = pl_max_u64(seq, device->seq_oldest); seq <= device->seq_last; seq++) {
        const struct head_task *task = head_device_task(device, seq);

        if (page_full(page)) {
            page_next(page, device->index, seq);
            return false;
        }
        page->looks--;
        if (task != NULL && task_wanted(page, task)) {
            task_add(page, task);
        }
    }
    return true;
}

plasmon_status_t head_core_list_tasks(struct head_core *core,
                                      const Plasmon__V1__ListRequest *request,
                                      const char *only, struct wire_arena *arena,
                                      Plasmon__V1__ListReply *out)
{
    const Plasmon__V1__ListPlace *from = request->from;
    struct page page                   = {
                          .core = core, .request = request, .only = only, .arena = arena, .out = out};
    uint64_t first = request->device != 0 ? request->device - 1
                     : from != NULL       ? from->a
                                          : 0;
    uint64_t end   = request->device != 0 ? request->device : core->devices.count;

    page_begin(&page, sizeof(*out->tasks), (void **)&out->tasks);
    for (uint64_t i = first; i < pl_min_u64(end, core->devices.count); i++) {
        uint64_t seq = from != NULL && from->a == i ? from->b : 0;

        page.looks--;
        if (page.status != PLASMON_OK ||
            !tasks_of_device(&page, head_device_at(core, (uint32_t)i), seq)) {
            break;
        }
    }
    return page.status;
}

/* ------------------------------------------------------------------------------ objects */

static Plasmon__V1__ObjectPlace *place_of(struct page *page, Plasmon__V1__ObjectRow *row,
                                          const struct head_buffer *buffer)
{
    uint32_t device = buffer->spilled == NULL ? buffer->device->index + 1 : 0;
    Plasmon__V1__MemoryState state = head_buffer_state(buffer);
    Plasmon__V1__ObjectPlace *place;

    for (size_t i = 0; i < row->n_places; i++) {
        place = row->places[i];
        if (place->device == device && place->state == state &&
            strcmp(place->node, buffer->device->node) == 0) {
            return place;
        }
    }
    place =
        row->n_places < PLACES_MAX ? wire_arena_alloc(page->arena, sizeof(*place)) : NULL;
    if (place == NULL) {
        row->more = true;
        return NULL;
    }
    plasmon__v1__object_place__init(place);
    place->node                  = buffer->device->node;
    place->device                = device;
    place->state                 = state;
    row->places[row->n_places++] = place;
    return place;
}

/* A launch that is to write it in this buffer. */
static uint64_t maker_in(const struct head_instance *instance)
{
    struct pl_list *pos;
    uint32_t looked = 0;

    pl_list_for_each(pos, &instance->buffer->writers) {
        const struct head_use *use = pl_container_of(pos, struct head_use, link);

        if (pl_box_intersects(&use->box, &instance->box) && !use->task->ended) {
            return wire_point(use->task->device->index, use->task->seq);
        }
        if (++looked == WRITERS_MAX) {
            break;
        }
    }
    return 0;
}

static void failed(struct page *page, Plasmon__V1__ObjectRow *row,
                   const struct head_failure *failure)
{
    char *text = wire_arena_alloc(page->arena, TEXT_MAX + 1);

    if (text == NULL) {
        page->status = PLASMON_ENOMEM;
        return;
    }
    (void)snprintf(text, TEXT_MAX + 1, "%s", failure->text);
    pl_text_mend(text);
    row->state   = PLASMON__V1__OBJECT_STATE__OBJECT_FAILED;
    row->failure = text;
}

/* What a failure is, it stays: one is told. */
static void tile_state(struct page *page, Plasmon__V1__ObjectRow *row,
                       const struct head_tile *tile)
{
    if (row->state == PLASMON__V1__OBJECT_STATE__OBJECT_FAILED) {
        return;
    }
    if (tile->failure != NULL) {
        failed(page, row, tile->failure);
    } else if (tile->makers > 0) {
        row->state = PLASMON__V1__OBJECT_STATE__OBJECT_PENDING;
    }
}

static int second_rank(uint32_t second)
{
    static const int ranks[] = {[PLASMON__V1__SECOND_COPY__SECOND_NOT_WANTED] = 4,
                                [PLASMON__V1__SECOND_COPY__SECOND_MISSING]    = 0,
                                [PLASMON__V1__SECOND_COPY__SECOND_MOVING]     = 1,
                                [PLASMON__V1__SECOND_COPY__SECOND_NEAR]       = 2,
                                [PLASMON__V1__SECOND_COPY__SECOND_APART]      = 3};

    return ranks[second];
}

/* Of a part that is to be in two places: how safe the least safe one is. */
static void second_look(Plasmon__V1__ObjectRow *row, const struct head_tile *tile,
                        const struct pl_box *box)
{
    uint32_t second = head_second_shown(tile, box);

    if (second_rank(second) < second_rank(row->second)) {
        row->second = (Plasmon__V1__SecondCopy)second;
    }
}

/* What of the part lies where; how many copies were looked at. */
static uint32_t part_places(struct page *page, Plasmon__V1__ObjectRow *row,
                            const struct head_fragment *fragment, const struct pl_box *box,
                            uint32_t element_bytes)
{
    uint32_t looked = 0;
    struct pl_list *pos;

    pl_list_for_each(pos, &fragment->tile->instances) {
        const struct head_instance *instance =
            pl_container_of(pos, struct head_instance, tile_link);
        Plasmon__V1__ObjectPlace *place;
        struct pl_box shared;

        looked++;
        if (!pl_box_intersection(&instance->box, box, &shared)) {
            continue;
        }
        place = place_of(page, row, instance->buffer);
        if (place != NULL) {
            place->bytes += (uint64_t)pl_box_elements(&shared) * element_bytes;
        }
        if (row->maker == 0 && fragment->tile->makers > 0) {
            row->maker = maker_in(instance);
        }
    }
    return looked;
}

/* Places, what they are in, and labels. A view with steps counts with what lies between its elements. */
static void array_look(struct page *page, Plasmon__V1__ObjectRow *row,
                       const struct head_array *array, const struct pl_box *hull,
                       struct head_labels_seen *seen)
{
    uint32_t element_bytes = pl_dtype_bytes(array->shape.dtype), looked = 0;
    struct pl_list *pos;

    if (array->put_offset != UINT64_MAX) {
        row->state = PLASMON__V1__OBJECT_STATE__OBJECT_PENDING;
    }
    pl_list_for_each(pos, &array->fragments) {
        const struct head_fragment *fragment =
            pl_container_of(pos, struct head_fragment, array_link);
        struct pl_box box;

        if (looked >= PARTS_MAX) {
            row->more = true;
            break;
        }
        looked++;
        if (pl_box_intersection(&fragment->box, hull, &box)) {
            tile_state(page, row, fragment->tile);
            head_labels_see(seen, fragment->tile,
                            (uint64_t)pl_box_elements(&box) * element_bytes);
            second_look(row, fragment->tile, &box);
            looked += part_places(page, row, fragment, &box, element_bytes);
        }
    }
    for (size_t i = 0; i < array->partials.count && i < PARTS_MAX; i++) {
        const struct head_partial *partial = pl_vec_at(&array->partials, i);

        tile_state(page, row, partial->tile);
        head_labels_see(seen, partial->tile,
                        (uint64_t)pl_box_elements(&partial->box) * element_bytes);
        looked++;
    }
    page->looks -= looked;
}

static Plasmon__V1__Shape *shape_tell(struct wire_arena *arena,
                                      const struct pl_shape *shape)
{
    Plasmon__V1__Shape *out = wire_arena_alloc(arena, sizeof(*out));
    uint64_t *dims          = wire_arena_alloc(arena, PL_DIM_MAX * sizeof(*dims));

    if (out == NULL || dims == NULL) {
        return NULL;
    }
    plasmon__v1__shape__init(out);
    out->dtype = shape->dtype;
    out->n_dim = shape->ndim;
    out->dim   = dims;
    for (uint32_t i = 0; i < shape->ndim; i++) {
        dims[i] = (uint64_t)shape->dim[i];
    }
    return out;
}

static bool place_wanted(const struct page *page, const Plasmon__V1__ObjectRow *row)
{
    bool wanted = page->request->device == 0;

    for (size_t i = 0; i < row->n_places && !wanted; i++) {
        wanted = row->places[i]->device == page->request->device;
    }
    return wanted && (page->request->state == 0 || row->state == page->request->state - 1);
}

/* Has any part of it such a label? */
static bool value_wanted(struct page *page, const struct head_array *array,
                         const struct pl_box *hull)
{
    struct head_labels_seen seen = {.core = page->core, .wanted = page->request->label};
    uint32_t looked              = 0;
    struct pl_list *pos;

    pl_list_for_each(pos, &array->fragments) {
        const struct head_fragment *fragment =
            pl_container_of(pos, struct head_fragment, array_link);

        if (looked++ == PARTS_MAX) {
            break;
        }
        if (pl_box_intersects(&fragment->box, hull)) {
            head_labels_see(&seen, fragment->tile, 1);
        }
    }
    for (size_t i = 0; i < array->partials.count && i < PARTS_MAX; i++, looked++) {
        head_labels_see(&seen,
                        ((struct head_partial *)pl_vec_at(&array->partials, i))->tile, 1);
    }
    page->looks -= looked / PARTS_A_LOOK;
    return seen.found;
}

/* `ref` shows it to the client of the page, or under the name. */
static void object_look(struct page *page, const struct head_ref *ref, uint64_t id,
                        const char *label, const char *name_space)
{
    const struct head_array *array = ref->array;
    struct pl_shape shape =
        ref->based ? pl_view_shape(&ref->base, array->shape.dtype) : array->shape;
    struct pl_box hull           = ref->based ? pl_view_hull(&ref->base) : array->extent;
    struct head_labels_seen seen = {.core = page->core};
    Plasmon__V1__ObjectRow *row;
    bool more;

    page->looks--;
    if (page->status != PLASMON_OK || pl_shape_bytes(&shape) < page->request->bytes_min ||
        !(label_wanted(page, label, NULL) || value_wanted(page, array, &hull))) {
        return;
    }
    row = wire_arena_alloc(page->arena, sizeof(*row));
    if (row == NULL) {
        page->status = PLASMON_ENOMEM;
        return;
    }
    plasmon__v1__object_row__init(row);
    row->client     = page->client != NULL ? page->client->id : 0;
    row->label      = lent(label);
    row->name_space = lent(name_space);
    row->ref        = id;
    row->bytes      = pl_shape_bytes(&shape);
    row->age_ms     = page->core->now_ms - pl_min_u64(page->core->now_ms, array->since_ms);
    row->shape      = shape_tell(page->arena, &shape);
    row->places     = wire_arena_alloc(page->arena, PLACES_MAX * sizeof(*row->places));
    if (row->shape == NULL || row->places == NULL) {
        page->status = PLASMON_ENOMEM;
        return;
    }
    array_look(page, row, array, &hull, &seen);
    row->value_label = lent(head_labels_most(&seen, &more));
    row->more_labels = more;
    if (place_wanted(page, row) && page->out->n_objects < ROWS_MAX + ROWS_OVER) {
        page->out->objects[page->out->n_objects++] = row;
    }
}

static void ref_look(void *user, uint64_t id, void *value)
{
    struct page *page = user;

    object_look(page, value, id, page->client->label, page->client->space->name);
}

static bool client_wanted(const struct page *page, const struct head_client *client)
{
    return client->id >= (page->request->from != NULL ? page->request->from->a : 0) &&
           (page->request->client == 0 || page->request->client == client->id) &&
           (page->only == NULL || strcmp(client->space->name, page->only) == 0);
}

static int compare_clients(const void *a, const void *b)
{
    uint64_t x = (*(struct head_client *const *)a)->id;
    uint64_t y = (*(struct head_client *const *)b)->id;

    return (x > y) - (x < y);
}

/* By id: that of one that has gone since is still a place. The caller finishes it. */
static struct pl_vec clients_wanted(struct page *page)
{
    struct pl_vec clients = PL_VEC_INIT(struct head_client *);
    struct pl_list *pos;

    pl_list_for_each(pos, &page->core->clients) {
        struct head_client *client = pl_container_of(pos, struct head_client, link);
        struct head_client **slot =
            client_wanted(page, client) ? pl_vec_push(&clients) : NULL;

        if (slot != NULL) {
            *slot = client;
        } else if (client_wanted(page, client)) {
            page->status = PLASMON_ENOMEM;
        }
    }
    if (clients.count > 1) {
        qsort(clients.items, clients.count, sizeof(struct head_client *), compare_clients);
    }
    return clients;
}

/* false: the page is full. Who chose ids so that more than ROWS_OVER have one home misses some of his own. */
static bool refs_of_client(struct page *page, uint64_t cursor)
{
    do {
        if (page_full(page)) {
            page_next(page, page->client->id, cursor);
            return false;
        }
        page->looks--;
    } while (pl_map_scan(&page->client->refs, &cursor, ref_look, page));
    return true;
}

static void names_look(struct page *page, uint64_t first)
{
    page->client = NULL;
    for (const struct head_name *name = head_name_from(page->core, first); name != NULL;
         name                         = head_name_next(page->core, name)) {
        const char *text = name->key + strlen(name->key) + 1;

        if (page_full(page)) {
            page_next(page, UINT64_MAX, name->number);
            return;
        }
        page->looks--;
        if (page->only == NULL || strcmp(name->key, page->only) == 0) {
            object_look(page, &name->ref, 0, text, name->key);
        }
    }
}

plasmon_status_t head_core_list_objects(struct head_core *core,
                                        const Plasmon__V1__ListRequest *request,
                                        const char *only, struct wire_arena *arena,
                                        Plasmon__V1__ListReply *out)
{
    const Plasmon__V1__ListPlace *from = request->from;
    struct page page                   = {
                          .core = core, .request = request, .only = only, .arena = arena, .out = out};
    struct pl_vec clients;
    bool full = false;

    page_begin(&page, sizeof(*out->objects), (void **)&out->objects);
    clients = clients_wanted(&page);
    for (size_t i = 0; i < clients.count && !full; i++) {
        page.client = *(struct head_client **)pl_vec_at(&clients, i);
        full        = !refs_of_client(&page,
                               from != NULL && from->a == page.client->id ? from->b : 0);
    }
    pl_vec_finish(&clients);
    if (!full && request->client == 0) {
        names_look(&page, from != NULL && from->a == UINT64_MAX ? from->b : 0);
    }
    return page.status;
}

/* -------------------------------------------------------------------------------- nodes */

void head_core_list_node(struct head_core *core, const char *host,
                         Plasmon__V1__NodeRow *row)
{
    struct pl_list *pos;

    for (uint32_t i = 0; i < core->devices.count; i++) {
        const struct head_device *device = head_device_at(core, i);

        if (strcmp(device->host, host) != 0) {
            continue;
        }
        row->devices++;
        row->devices_up += device->connected;
        row->devices_gone += device->gone;
        row->bytes_total += device->gone ? 0 : device->bytes_total;
        row->bytes_used += device->connected ? device->stats.bytes_used : 0;
        row->queued += device->unfinished;
        row->launches += device->seq_oldest - 1;
        row->restarts += device->restarts;
    }
    pl_list_for_each(pos, &core->spill_hosts) {
        const struct head_spill_host *spill =
            pl_container_of(pos, struct head_spill_host, link);

        if (strcmp(spill->home.host, host) == 0) {
            row->spill_memory      = spill->config.memory_bytes;
            row->spill_memory_used = head_spill_memory_used(spill);
            row->spill_files       = spill->config.file_bytes;
            row->spill_files_used  = spill->file_bytes;
        }
    }
}
