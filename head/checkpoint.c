/* Saving and loading the core; see checkpoint.h. Sections: counters, devices with their buffers, tiles, arrays, sessions, names, hosts,
 * namespaces. */
#include <string.h>

#include "head/checkpoint.h"
#include "head/core_int.h"

enum { SECTION_END = 0x5a };

/* ------------------------------------------------------------------------------------------ is it quiet? */

static const char *unquiet_client(const struct head_client *client)
{
    if (client->graphs.count != 0) {
        return "a client has recorded graphs";
    }
    if (client->functions.count != 0) {
        return "a client has defined functions";
    }
    if (client->tasks.count != 0 || client->groups.count != 0 || client->tasks_open != 0) {
        return "tasks are not done";
    }
    if (client->tracing) {
        return "a timeline is recorded";
    }
    for (size_t i = 0; i < client->refs.capacity; i++) {
        const struct head_ref *ref = client->refs.slots[i].value;

        if (client->refs.slots[i].key != 0 && ref->array->put_offset != UINT64_MAX) {
            return "a put is under way";
        }
    }
    return client->out.length != 0 || client->failed.count != 0 ||
                   client->done.items.count != 0
               ? "a client is yet to be told something"
               : NULL;
}

static const char *unquiet_device(const struct head_device *device)
{
    if (device->unfinished != 0 || device->seq_sent != device->seq_last ||
        device->seq_oldest != device->seq_last + 1) {
        return "launches are not done";
    }
    if (device->fencing || device->starved_seq != 0 || device->arriving ||
        device->draining) {
        return "a device is being changed";
    }
    if (device->told.count != 0 || device->bytes_graphs != 0) {
        return "a worker has recorded graphs or defined functions";
    }
    return device->out.length != 0 || device->early.count != 0 ||
                   device->out_free.count != 0 || device->out_retire.count != 0 ||
                   device->out_graph_free.count != 0 ||
                   device->out_function_free.count != 0 || device->out_cancel.count != 0 ||
                   device->out_force.count != 0
               ? "a worker is yet to be told something"
               : NULL;
}

static const char *unquiet_host(const struct head_spill_host *spill)
{
    return pl_list_empty(&spill->home.buffers) && pl_list_empty(&spill->requests) &&
                   pl_list_empty(&spill->queue) && spill->bound == 0 &&
                   spill->slab != HEAD_SLAB_ASKED && spill->file_bytes == 0
               ? NULL
               : "objects lie in host memory or files";
}

const char *head_core_unquiet(struct head_core *core)
{
    const char *why = NULL;
    struct pl_list *pos;

    if (!head_core_idle(core) || core->requests.count != 0 || core->ready.count != 0) {
        return "tasks are not done";
    }
    if (!pl_list_empty(&core->plans)) {
        return "a recorded graph is there";
    }
    if (!pl_list_empty(&core->functions)) {
        return "a defined function is there";
    }
    if (!pl_list_empty(&core->drains)) {
        return "a node is drained";
    }
    if (core->tracing != 0 || core->trace_waits.count != 0) {
        return "a timeline is recorded";
    }
    if (core->pairs.count != 0) {
        return "devices are paired";
    }
    if (core->lineage.records != 0 || core->lineage.descriptors != 0) {
        return "lineage is kept (--lineage-bytes)";
    }
    pl_list_for_each(pos, &core->clients) {
        why = why != NULL ? why
                          : unquiet_client(pl_container_of(pos, struct head_client, link));
    }
    pl_list_for_each(pos, &core->spill_hosts) {
        why = why != NULL
                  ? why
                  : unquiet_host(pl_container_of(pos, struct head_spill_host, link));
    }
    for (uint32_t i = 0; why == NULL && i < core->devices.count; i++) {
        why = unquiet_device(head_device_at(core, i));
    }
    return why;
}

/* ------------------------------------------------------------------------------------------ saving */

/* Things in the order in which they were met, and their numbers, from 1. */
struct numbering {
    struct pl_map numbers; /* address -> number */
    struct pl_vec items;   /* void * */
};

static uint64_t number_of(struct numbering *numbering, void *item)
{
    uint64_t number = (uint64_t)(uintptr_t)pl_map_get(&numbering->numbers, (uintptr_t)item);
    void **place;

    if (number == 0) {
        place = pl_vec_push(&numbering->items);
        PL_CHECK(place != NULL);
        *place = item;
        number = numbering->items.count;
        PL_CHECK(pl_map_set(&numbering->numbers, (uintptr_t)item,
                            (void *)(uintptr_t)number) == PLASMON_OK);
    }
    return number;
}

static void *numbered(const struct numbering *numbering, size_t index)
{
    return *(void **)pl_vec_at(&numbering->items, index);
}

static void numbering_init(struct numbering *numbering)
{
    pl_map_init(&numbering->numbers);
    numbering->items = PL_VEC_INIT(void *);
}

static void numbering_finish(struct numbering *numbering)
{
    pl_map_finish(&numbering->numbers);
    pl_vec_finish(&numbering->items);
}

struct saving {
    struct head_core *core;
    struct head_bytes *out;
    struct numbering buffers, tiles, arrays, spaces;
};

static void save_number(struct saving *saving, uint64_t number)
{
    head_bytes_varint(saving->out, number);
}

static void save_buffer(struct saving *saving, struct head_buffer *buffer)
{
    (void)number_of(&saving->buffers, buffer);
    save_number(saving, wire_buffer_slot(buffer->id));
    save_number(saving, wire_buffer_generation(buffer->id));
    head_save_box(saving->out, &buffer->frame);
    save_number(saving, buffer->dtype);
    save_number(saving, buffer->seq_last);
    save_number(saving, (uint64_t)buffer->ends | (uint64_t)buffer->retired << 1 |
                            (uint64_t)buffer->donatable << 2 |
                            (uint64_t)buffer->replica << 3);
}

static void save_slots(struct saving *saving, const struct head_device *device)
{
    save_number(saving, device->slot_next);
    save_number(saving, device->generations.count);
    for (size_t i = 0; i < device->generations.count; i++) {
        save_number(saving, *(uint32_t *)pl_vec_at(&device->generations, i));
    }
    save_number(saving, device->resting.count - device->resting_first);
    for (size_t i = device->resting_first; i < device->resting.count; i++) {
        save_number(saving, *(uint32_t *)pl_vec_at(&device->resting, i));
    }
}

static void save_device(struct saving *saving, const struct head_device *device)
{
    struct head_bytes *out   = saving->out;
    const uint64_t numbers[] = {
        device->comm_version, device->kind,          device->ordinal,
        device->host_device,  device->incarnation,   device->restarts,
        device->bytes_total,  device->seq_last,      device->stage_next,
        device->alone_until,  device->runs,          (uint32_t)device->death_status,
        device->bulk_tls,     device->bulk_clock_ms, device->bulk_heard_ms};
    struct pl_list *pos;
    uint64_t count = 0;

    save_number(saving, (uint64_t)device->joined | (uint64_t)device->connected << 1 |
                            (uint64_t)device->gone << 2 |
                            (uint64_t)device->peer_capable << 3 |
                            (uint64_t)device->comm_plain << 4 |
                            (uint64_t)(device->death != NULL) << 5 |
                            (uint64_t)(device->comm_missing != NULL) << 6);
    for (size_t i = 0; i < PL_COUNT(numbers); i++) {
        save_number(saving, numbers[i]);
    }
    head_save_text(out, device->host);
    head_save_text(out, device->node);
    head_save_text(out, device->name);
    head_save_text(out, device->bulk_address);
    head_save_text(out, device->death);
    head_save_text(out, device->comm_missing);
    head_save_bytes(out, device->bulk_secret, sizeof(device->bulk_secret));
    save_slots(saving, device);
    pl_list_for_each(pos, &device->recent) {
        count++;
    }
    save_number(saving, count);
    pl_list_for_each(pos, &device->recent) {
        save_buffer(saving, pl_container_of(pos, struct head_buffer, recent_link));
    }
}

static void save_array(struct saving *saving, const struct head_array *array)
{
    struct pl_list *pos;

    PL_CHECK(array->space !=
             NULL); /* the head's own are there while something is made again */
    save_number(saving, number_of(&saving->spaces, array->space));
    head_save_shape(saving->out, &array->shape);
    head_save_box(saving->out, &array->extent);
    save_number(saving, array->mapped);
    save_number(saving, array->partial_op);
    save_number(saving, array->fragment_count);
    pl_list_for_each(pos, &array->fragments) {
        const struct head_fragment *fragment =
            pl_container_of(pos, struct head_fragment, array_link);

        save_number(saving, number_of(&saving->tiles, fragment->tile));
        head_save_box(saving->out, &fragment->box);
    }
    save_number(saving, array->partials.count);
    for (size_t i = 0; i < array->partials.count; i++) {
        const struct head_partial *partial = pl_vec_at(&array->partials, i);

        save_number(saving, number_of(&saving->tiles, partial->tile));
        head_save_box(saving->out, &partial->box);
    }
}

static void save_tile(struct saving *saving, const struct head_tile *tile)
{
    const struct head_failure *failure = tile->failure;
    struct pl_list *pos;
    uint64_t count = 0;

    head_save_box(saving->out, &tile->box);
    save_number(saving, tile->order);
    save_number(saving, failure != NULL);
    if (failure != NULL) {
        save_number(saving, (uint32_t)failure->status);
        save_number(saving, failure->first_task);
        save_number(saving, failure->first_client);
        head_save_text(saving->out, failure->text);
    }
    pl_list_for_each(pos, &tile->instances) {
        count++;
    }
    save_number(saving, count);
    pl_list_for_each(pos, &tile->instances) {
        const struct head_instance *instance =
            pl_container_of(pos, struct head_instance, tile_link);

        save_number(saving, number_of(&saving->buffers, instance->buffer));
        head_save_box(saving->out, &instance->box);
    }
}

static void save_ref(struct saving *saving, const struct head_ref *ref)
{
    save_number(saving, number_of(&saving->arrays, ref->array));
    save_number(saving, ref->based);
    if (ref->based) {
        head_save_view(saving->out, &ref->base);
    }
}

static void save_client(struct saving *saving, const struct head_client *client)
{
    uint64_t key;
    void *value;

    save_number(saving, client->session);
    save_number(saving, client->id);
    head_save_text(saving->out, client->space->name);
    head_save_text(saving->out, client->label);
    head_save_text(saving->out, client->host);
    save_number(saving, client->lost);
    save_number(saving, client->lost_ms);
    save_number(saving, client->ops_taken);
    save_number(saving, client->refs.count);
    for (size_t i = 0; pl_map_next(&client->refs, &i, &key, &value);) {
        save_number(saving, key);
        save_ref(saving, value);
    }
}

static void save_space(struct saving *saving, struct head_space *space)
{
    const uint64_t numbers[] = {space->configured,     space->quota.bytes,
                                space->quota.tasks,    space->quota.message_bytes,
                                space->quota.sessions, space->refused};

    (void)number_of(&saving->spaces, space);
    head_save_text(saving->out, space->name);
    for (size_t i = 0; i < PL_COUNT(numbers); i++) {
        save_number(saving, numbers[i]);
    }
}

static void save_spaces(struct saving *saving)
{
    struct pl_list *pos;
    uint64_t count = 0;

    save_number(saving, saving->core->namespaces_closed);
    pl_list_for_each(pos, &saving->core->spaces) {
        count++;
    }
    save_number(saving, count);
    pl_list_for_each(pos, &saving->core->spaces) {
        save_space(saving, pl_container_of(pos, struct head_space, link));
    }
}

static void save_host(struct saving *saving, const struct head_spill_host *spill)
{
    const uint64_t numbers[] = {spill->config.memory_bytes,
                                spill->config.file_bytes,
                                spill->slab,
                                spill->slab_buffer,
                                spill->files_full,
                                spill->op_last,
                                spill->spills,
                                spill->spill_bytes,
                                spill->restores,
                                spill->restore_bytes,
                                spill->writes,
                                spill->write_bytes,
                                spill->reads,
                                spill->read_bytes,
                                spill->config.life};

    head_save_text(saving->out, spill->home.host);
    for (size_t i = 0; i < PL_COUNT(numbers); i++) {
        save_number(saving, numbers[i]);
    }
    head_save_text(saving->out, spill->slab_why);
    head_save_text(saving->out, spill->files_why);
}

static void save_counters(struct saving *saving)
{
    const struct head_core *core = saving->core;
    const uint64_t numbers[]     = {core->now_ms,
                                    core->started_ms,
                                    core->order_last,
                                    core->request_last,
                                    core->round_robin,
                                    core->numbers_told,
                                    core->step_last,
                                    core->trace_last,
                                    core->function_last,
                                    core->tasks_done,
                                    core->tasks_failed,
                                    core->memory.most,
                                    core->memory.bytes_a_task,
                                    core->pair_uses,
                                    core->plan};

    save_number(saving, PL_COUNT(numbers));
    for (size_t i = 0; i < PL_COUNT(numbers); i++) {
        save_number(saving, numbers[i]);
    }
}

static uint64_t list_count(const struct pl_list *list)
{
    const struct pl_list *pos;
    uint64_t count = 0;

    pl_list_for_each(pos, list) {
        count++;
    }
    return count;
}

/* Sessions and names, which find the arrays; arrays, which find the tiles. */
static void save_objects(struct saving *saving)
{
    struct head_core *core = saving->core;
    struct pl_list *pos;

    save_number(saving, list_count(&core->clients));
    pl_list_for_each(pos, &core->clients) {
        save_client(saving, pl_container_of(pos, struct head_client, link));
    }
    save_number(saving, list_count(&core->names));
    pl_list_for_each(pos, &core->names) {
        const struct head_name *name = pl_container_of(pos, struct head_name, link);

        head_save_bytes(saving->out, name->key, name->key_length);
        save_ref(saving, &name->ref);
    }
    save_number(saving, saving->arrays.items.count);
    for (size_t i = 0; i < saving->arrays.items.count; i++) {
        save_array(saving, numbered(&saving->arrays, i));
    }
    save_number(saving, saving->tiles.items.count);
    for (size_t i = 0; i < saving->tiles.items.count; i++) {
        save_tile(saving, numbered(&saving->tiles, i));
    }
}

void head_core_save(struct head_core *core, struct head_bytes *out)
{
    struct saving saving = {.core = core, .out = out};
    struct pl_list *pos;

    PL_CHECK(head_core_unquiet(core) == NULL);
    numbering_init(&saving.buffers);
    numbering_init(&saving.tiles);
    numbering_init(&saving.arrays);
    numbering_init(&saving.spaces);
    save_counters(&saving);
    save_spaces(&saving);
    save_number(&saving, core->devices.count);
    for (uint32_t i = 0; i < core->devices.count; i++) {
        save_device(&saving, head_device_at(core, i));
    }
    PL_CHECK(saving.buffers.items.count == core->counts.buffers);
    save_objects(&saving);
    PL_CHECK(saving.buffers.items.count == core->counts.buffers &&
             saving.tiles.items.count == core->counts.tiles &&
             saving.arrays.items.count == core->counts.arrays);
    save_number(&saving, list_count(&core->spill_hosts));
    pl_list_for_each(pos, &core->spill_hosts) {
        save_host(&saving, pl_container_of(pos, struct head_spill_host, link));
    }
    save_number(&saving, SECTION_END);
    numbering_finish(&saving.buffers);
    numbering_finish(&saving.tiles);
    numbering_finish(&saving.arrays);
    numbering_finish(&saving.spaces);
}

/* ------------------------------------------------------------------------------------------ loading */

struct loading {
    struct head_core *core;
    struct head_reader *in;
    struct pl_vec buffers; /* struct head_buffer *; each held once, for the load */
    struct pl_vec arrays;  /* struct head_array *; likewise */
    struct pl_vec tiles;   /* struct head_tile *; likewise */
    struct pl_vec spaces;  /* struct head_space *; likewise */
    struct pl_vec
        wanted; /* struct wanted: fragments and partials, until the tiles are there */
};

/* A part of an array that a tile will be. */
struct wanted {
    struct head_array *array;
    struct pl_box box;
    uint64_t tile;
    bool partial;
};

static void *item_at(struct loading *loading, const struct pl_vec *items, uint64_t number)
{
    if (number == 0 || number > items->count) {
        loading->in->bad = true;
        return NULL;
    }
    return *(void **)pl_vec_at(items, number - 1);
}

static void item_add(struct pl_vec *items, void *item)
{
    void **place = pl_vec_push(items);

    PL_CHECK(place != NULL);
    *place = item;
}

static void times(struct loading *loading, void (*load)(struct loading *loading))
{
    size_t count = head_load_count(loading->in);

    for (size_t i = 0; i < count && !loading->in->bad; i++) {
        load(loading);
    }
}

static void load_buffer(struct loading *loading, struct head_device *device)
{
    struct head_reader *in = loading->in;
    uint64_t slot          = head_load_below(in, HEAD_SLOTS_MAX - 1);
    uint64_t generation    = head_load_below(in, 0xffffff);
    struct head_buffer *buffer;
    struct pl_box frame;
    uint32_t dtype;
    uint64_t flags;

    head_load_box(in, &frame);
    dtype = (uint32_t)head_load_below(in, UINT32_MAX);
    if (in->bad || pl_dtype_bytes(dtype) == 0 || slot >= device->slot_next) {
        in->bad = true;
        return;
    }
    buffer = head_buffer_restore(
        loading->core, device,
        wire_buffer(device->index, (uint32_t)slot, (uint32_t)generation), &frame, dtype);
    item_add(&loading->buffers, buffer);
    buffer->seq_last  = head_load_below(in, device->seq_last);
    flags             = head_load_below(in, 15);
    buffer->ends      = (flags & 1) != 0;
    buffer->retired   = (flags & 2) != 0;
    buffer->donatable = (flags & 4) != 0;
    buffer->replica   = (flags & 8) != 0;
}

static void load_slots(struct head_reader *in, struct head_device *device)
{
    size_t count;

    device->slot_next = (uint32_t)head_load_below(in, HEAD_SLOTS_MAX);
    count             = head_load_count(in);
    for (size_t i = 0; i < count && !in->bad; i++) {
        uint32_t *place = pl_vec_push(&device->generations);

        PL_CHECK(place != NULL);
        *place = (uint32_t)head_load_below(in, UINT32_MAX);
    }
    in->bad |= device->generations.count < device->slot_next;
    count = head_load_count(in);
    for (size_t i = 0; i < count && !in->bad; i++) {
        uint32_t *place = pl_vec_push(&device->resting);

        PL_CHECK(place != NULL);
        *place = (uint32_t)head_load_below(in, device->slot_next);
        in->bad |= *place >= device->slot_next;
    }
}

static void load_device(struct loading *loading)
{
    struct head_reader *in = loading->in;
    uint64_t flags         = head_load_below(in, 127);
    uint64_t numbers[15];
    char *texts[6];
    struct head_device *device;
    const uint8_t *secret;
    size_t length, count;

    for (size_t i = 0; i < PL_COUNT(numbers); i++) {
        numbers[i] = head_load_number(in);
    }
    for (size_t i = 0; i < PL_COUNT(texts); i++) {
        texts[i] = head_load_text(in);
    }
    secret = head_load_bytes(in, &length);
    device =
        in->bad || length != sizeof(device->bulk_secret) || numbers[7] >> 48 != 0
            ? NULL
            : head_device_restore(loading->core, texts[0], texts[1], (uint32_t)numbers[3]);
    if (device == NULL) {
        in->bad = true;
        for (size_t i = 0; i < PL_COUNT(texts); i++) {
            pl_free(texts[i]);
        }
        return;
    }
    pl_free(texts[0]);
    pl_free(texts[1]);
    pl_free(device->name);
    pl_free(device->bulk_address);
    device->name         = texts[2];
    device->bulk_address = texts[3];
    device->death        = texts[4];
    device->comm_missing = texts[5];
    memcpy(device->bulk_secret, secret, sizeof(device->bulk_secret));
    device->joined       = (flags & 1) != 0;
    device->connected    = (flags & 2) != 0;
    device->gone         = (flags & 4) != 0;
    device->peer_capable = (flags & 8) != 0;
    device->comm_plain   = (flags & 16) != 0;
    if ((flags & 32) == 0) {
        pl_free(device->death);
        device->death = NULL;
    }
    if ((flags & 64) == 0) {
        pl_free(device->comm_missing);
        device->comm_missing = NULL;
    }
    device->comm_version = (uint32_t)numbers[0];
    device->kind         = (uint32_t)numbers[1];
    device->ordinal      = (uint32_t)numbers[2];
    device->incarnation  = (uint32_t)numbers[4];
    device->restarts     = (uint32_t)numbers[5];
    device->bytes_total  = numbers[6];
    device->seq_last = device->seq_sent = numbers[7];
    device->seq_oldest                  = numbers[7] + 1;
    device->stage_next                  = numbers[8];
    device->alone_until                 = numbers[9];
    device->runs                        = (uint32_t)numbers[10];
    device->death_status                = (plasmon_status_t)(int32_t)numbers[11];
    device->bulk_tls                    = numbers[12] != 0;
    device->bulk_clock_ms               = numbers[13];
    device->bulk_heard_ms               = numbers[14];
    load_slots(in, device);
    count = head_load_count(in);
    for (size_t i = 0; i < count && !in->bad; i++) {
        load_buffer(loading, device);
    }
}

static void load_ref(struct loading *loading, uint64_t *out_array, struct head_ref *out)
{
    *out_array = head_load_number(loading->in);
    *out       = (struct head_ref){.based = head_load_flag(loading->in)};
    if (out->based) {
        head_load_view(loading->in, &out->base);
    }
}

/* Refs name arrays by number; the arrays come later. */
struct owed {
    struct head_client *client; /* NULL: a name */
    struct head_name *name;
    uint64_t id;
    uint64_t array;
    struct head_ref ref;
};

static struct owed *owe(struct pl_vec *owed)
{
    struct owed *place = pl_vec_push(owed);

    PL_CHECK(place != NULL);
    return place;
}

static void load_space(struct loading *loading)
{
    struct head_reader *in = loading->in;
    char *name             = head_load_text(in);
    uint64_t numbers[6];
    struct head_space *space;

    for (size_t i = 0; i < PL_COUNT(numbers); i++) {
        numbers[i] = head_load_number(in);
    }
    if (!in->bad &&
        (name[0] == '\0' || strlen(name) > WIRE_NAME_BYTES_MAX || numbers[0] > 1)) {
        in->bad = true;
    }
    if (!in->bad) {
        const struct head_quota quota = {.bytes         = numbers[1],
                                         .tasks         = numbers[2],
                                         .message_bytes = numbers[3],
                                         .sessions      = numbers[4]};

        space = head_space_take(loading->core, name);
        item_add(&loading->spaces, space);
        space->refused = numbers[5];
        if (numbers[0] != 0) {
            head_core_namespace_set(loading->core, name, &quota);
        }
    }
    pl_free(name);
}

static void load_spaces(struct loading *loading)
{
    bool closed = head_load_flag(loading->in);

    times(loading, load_space);
    loading->core->namespaces_closed = closed;
}

static void load_client(struct loading *loading, struct pl_vec *owed)
{
    struct head_reader *in = loading->in;
    uint64_t session       = head_load_number(in);
    uint64_t id            = head_load_number(in);
    char *texts[3];
    struct head_client *client;
    size_t count;

    for (size_t i = 0; i < PL_COUNT(texts); i++) {
        texts[i] = head_load_text(in);
    }
    client =
        in->bad || session == 0 || id == 0
            ? NULL
            : head_client_restore(loading->core, session, id, texts[0], texts[1], texts[2]);
    for (size_t i = 0; i < PL_COUNT(texts); i++) {
        pl_free(texts[i]);
    }
    if (client == NULL) {
        in->bad = true;
        return;
    }
    client->lost      = head_load_flag(in);
    client->lost_ms   = head_load_number(in);
    client->ops_taken = head_load_number(in);
    count             = head_load_count(in);
    for (size_t i = 0; i < count && !in->bad; i++) {
        struct owed *ref = owe(owed);

        ref->client = client;
        ref->id     = head_load_number(in);
        load_ref(loading, &ref->array, &ref->ref);
    }
}

static void load_name(struct loading *loading, struct pl_vec *owed)
{
    struct head_reader *in = loading->in;
    struct owed *ref       = owe(owed);
    size_t length;
    const uint8_t *key = head_load_bytes(in, &length);

    ref->name             = head_alloc(sizeof(*ref->name));
    ref->name->key        = head_alloc(length + 1);
    ref->name->key_length = length;
    if (length > 0) {
        memcpy(ref->name->key, key, length);
    }
    pl_list_init(&ref->name->link);
    load_ref(loading, &ref->array, &ref->ref);
}

static void load_parts(struct loading *loading, struct head_array *array, bool partial)
{
    struct head_reader *in = loading->in;
    size_t count           = head_load_count(in);

    for (size_t i = 0; i < count && !in->bad; i++) {
        struct wanted *wanted = pl_vec_push(&loading->wanted);

        PL_CHECK(wanted != NULL);
        wanted->array   = array;
        wanted->partial = partial;
        wanted->tile    = head_load_number(in);
        head_load_box(in, &wanted->box);
    }
}

static void load_array(struct loading *loading)
{
    struct head_reader *in = loading->in;
    struct head_array *array;
    struct head_space *space = item_at(loading, &loading->spaces, head_load_number(in));
    struct pl_shape shape;
    struct pl_box whole;

    head_load_shape(in, &shape);
    if (in->bad || space == NULL) {
        in->bad = true;
        return;
    }
    array = head_array_create(loading->core, space, &shape);
    item_add(&loading->arrays, array);
    whole = array->extent;
    head_load_box(in, &array->extent);
    if (in->bad || array->extent.ndim != whole.ndim ||
        !pl_box_contains(&whole, &array->extent)) {
        in->bad = true;
        return;
    }
    if (head_load_flag(in)) {
        head_array_map(loading->core, array);
    }
    array->partial_op = (uint32_t)head_load_below(in, UINT32_MAX);
    load_parts(loading, array, false);
    load_parts(loading, array, true);
}

static void load_tile(struct loading *loading)
{
    struct head_reader *in = loading->in;
    struct head_tile *tile;
    struct pl_box box;
    size_t count;

    head_load_box(in, &box);
    if (in->bad) {
        return;
    }
    tile = head_tile_create(loading->core, &box);
    item_add(&loading->tiles, tile);
    tile->order = head_load_number(in);
    tile->cut   = HEAD_CUT_CHECKPOINT;
    if (head_load_flag(in)) {
        uint64_t status = head_load_below(in, UINT32_MAX);
        uint64_t task   = head_load_number(in);
        uint64_t client = head_load_number(in);
        char *text      = head_load_text(in);

        tile->failure = head_failure_create((plasmon_status_t)(int32_t)status, task, client,
                                            "%s", text);
        pl_free(text);
    }
    count = head_load_count(in);
    for (size_t i = 0; i < count && !in->bad; i++) {
        struct head_buffer *buffer =
            item_at(loading, &loading->buffers, head_load_number(in));

        head_load_box(in, &box);
        if (in->bad || box.ndim != tile->box.ndim || box.ndim != buffer->frame.ndim ||
            !pl_box_contains(&tile->box, &box) || !pl_box_contains(&buffer->frame, &box)) {
            in->bad = true;
            return;
        }
        head_instance_add(loading->core, tile, buffer, &box);
    }
}

static void load_wanted(struct loading *loading)
{
    for (size_t i = 0; i < loading->wanted.count && !loading->in->bad; i++) {
        const struct wanted *wanted = pl_vec_at(&loading->wanted, i);
        struct head_tile *tile      = item_at(loading, &loading->tiles, wanted->tile);

        if (tile == NULL || tile->box.ndim != wanted->box.ndim ||
            wanted->array->extent.ndim != wanted->box.ndim ||
            !pl_box_contains(&tile->box, &wanted->box) ||
            (tile->space != NULL && tile->space != wanted->array->space)) {
            loading->in->bad = true;
        } else if (wanted->partial) {
            struct head_partial *partial = pl_vec_push(&wanted->array->partials);

            PL_CHECK(partial != NULL);
            *partial = (struct head_partial){.box = wanted->box, .tile = tile};
            tile->refs++;
            head_space_show(wanted->array, tile,
                            (uint64_t)pl_box_elements(&wanted->box) *
                                pl_dtype_bytes(wanted->array->shape.dtype));
        } else {
            head_array_set(loading->core, wanted->array, &wanted->box, tile);
        }
    }
}

/* What was owed an array gets it; a name that gets none goes. */
static void settle(struct loading *loading, struct pl_vec *owed)
{
    for (size_t i = 0; i < owed->count; i++) {
        struct owed *ref = pl_vec_at(owed, i);
        struct head_array *array =
            loading->in->bad ? NULL : item_at(loading, &loading->arrays, ref->array);
        struct pl_err err;

        if (array != NULL && ref->ref.based &&
            pl_view_check(&ref->ref.base, &array->shape, &err) != PLASMON_OK) {
            loading->in->bad = true;
            array            = NULL;
        }
        if (array == NULL) {
            if (ref->name != NULL) {
                pl_free(ref->name->key);
                pl_free(ref->name);
            }
            continue;
        }
        array->refs++;
        if (ref->name != NULL) {
            ref->name->ref       = ref->ref;
            ref->name->ref.array = array;
            pl_list_add_tail(&loading->core->names, &ref->name->link);
        } else if (head_client_ref_add(loading->core, ref->client, ref->id, array,
                                       ref->ref.based ? &ref->ref.base : NULL,
                                       &err) != PLASMON_OK) {
            loading->in->bad = true;
        }
    }
}

static void load_host(struct loading *loading)
{
    struct head_reader *in = loading->in;
    char *host             = head_load_text(in);
    uint64_t numbers[15];
    char *slab_why, *files_why;
    struct head_spill_host *spill = NULL;

    for (size_t i = 0; i < PL_COUNT(numbers); i++) {
        numbers[i] = head_load_number(in);
    }
    slab_why  = head_load_text(in);
    files_why = head_load_text(in);
    if (!in->bad && numbers[0] != 0 && head_spill_host_of(loading->core, host) == NULL) {
        head_core_spill_up(loading->core, host,
                           &(struct head_spill_config){.memory_bytes = numbers[0],
                                                       .file_bytes   = numbers[1],
                                                       .life         = numbers[14]});
        spill = head_spill_host_of(loading->core, host);
    }
    pl_free(host);
    if (spill == NULL || numbers[2] > HEAD_SLAB_FAILED || numbers[2] == HEAD_SLAB_ASKED) {
        in->bad = true;
        pl_free(slab_why);
        pl_free(files_why);
        return;
    }
    spill->slab          = (enum head_slab_state)numbers[2];
    spill->slab_buffer   = numbers[3];
    spill->files_full    = numbers[4] != 0;
    spill->op_last       = numbers[5];
    spill->spills        = numbers[6];
    spill->spill_bytes   = numbers[7];
    spill->restores      = numbers[8];
    spill->restore_bytes = numbers[9];
    spill->writes        = numbers[10];
    spill->write_bytes   = numbers[11];
    spill->reads         = numbers[12];
    spill->read_bytes    = numbers[13];
    spill->slab_why      = slab_why;
    spill->files_why     = files_why;
}

static void load_counters(struct loading *loading)
{
    struct head_core *core = loading->core;
    uint64_t numbers[15];

    loading->in->bad |= head_load_number(loading->in) != PL_COUNT(numbers);
    for (size_t i = 0; i < PL_COUNT(numbers); i++) {
        numbers[i] = head_load_number(loading->in);
    }
    core->now_ms              = numbers[0];
    core->started_ms          = numbers[1];
    core->order_last          = numbers[2];
    core->request_last        = numbers[3];
    core->round_robin         = (uint32_t)numbers[4];
    core->numbers_told        = numbers[5] != 0;
    core->step_last           = numbers[6];
    core->trace_last          = numbers[7];
    core->function_last       = (uint32_t)numbers[8];
    core->tasks_done          = numbers[9];
    core->tasks_failed        = numbers[10];
    core->memory.most         = numbers[11];
    core->memory.bytes_a_task = numbers[12];
    core->pair_uses           = numbers[13];
    core->plan                = numbers[14];
}

/* Each is held by what names it now; what nothing names goes. */
static void let_go(struct loading *loading)
{
    struct head_core *core = loading->core;

    for (size_t i = 0; i < loading->arrays.count; i++) {
        head_array_release(core, *(struct head_array **)pl_vec_at(&loading->arrays, i));
    }
    for (size_t i = 0; i < loading->tiles.count; i++) {
        head_tile_release(core, *(struct head_tile **)pl_vec_at(&loading->tiles, i));
    }
    for (size_t i = 0; i < loading->buffers.count; i++) {
        head_buffer_release(core, *(struct head_buffer **)pl_vec_at(&loading->buffers, i));
    }
    for (size_t i = 0; i < loading->spaces.count; i++) {
        head_space_release(*(struct head_space **)pl_vec_at(&loading->spaces, i));
    }
    pl_vec_finish(&loading->spaces);
    pl_vec_finish(&loading->arrays);
    pl_vec_finish(&loading->tiles);
    pl_vec_finish(&loading->buffers);
    pl_vec_finish(&loading->wanted);
}

/* Every array is covered by its parts, and what it shows is somewhere or has failed. */
static bool makes_sense(const struct loading *loading)
{
    for (size_t i = 0; i < loading->arrays.count; i++) {
        const struct head_array *array =
            *(struct head_array *const *)pl_vec_at(&loading->arrays, i);
        int64_t covered = 0;
        struct pl_list *pos;

        pl_list_for_each(pos, &array->fragments) {
            const struct head_fragment *fragment =
                pl_container_of(pos, struct head_fragment, array_link);

            if (!pl_box_contains(&array->extent, &fragment->box) ||
                (fragment->tile->failure == NULL &&
                 !head_tile_covered(fragment->tile, NULL, &fragment->box))) {
                return false;
            }
            covered += pl_box_elements(&fragment->box);
        }
        if (covered != pl_box_elements(&array->extent) || array->refs < 2) {
            return false;
        }
    }
    return true;
}

plasmon_status_t head_core_load(struct head_core *core, struct head_reader *in,
                                struct pl_err *err)
{
    struct loading loading = {.core    = core,
                              .in      = in,
                              .buffers = PL_VEC_INIT(struct head_buffer *),
                              .arrays  = PL_VEC_INIT(struct head_array *),
                              .tiles   = PL_VEC_INIT(struct head_tile *),
                              .spaces  = PL_VEC_INIT(struct head_space *),
                              .wanted  = PL_VEC_INIT(struct wanted)};
    struct pl_vec owed     = PL_VEC_INIT(struct owed);
    size_t count;

    load_counters(&loading);
    load_spaces(&loading);
    times(&loading, load_device);
    count = head_load_count(in);
    for (size_t i = 0; i < count && !in->bad; i++) {
        load_client(&loading, &owed);
    }
    count = head_load_count(in);
    for (size_t i = 0; i < count && !in->bad; i++) {
        load_name(&loading, &owed);
    }
    times(&loading, load_array);
    times(&loading, load_tile);
    load_wanted(&loading);
    settle(&loading, &owed);
    times(&loading, load_host);
    in->bad |= head_load_number(in) != SECTION_END || (!in->bad && !makes_sense(&loading));
    pl_vec_finish(&owed);
    let_go(&loading);
    return in->bad ? pl_err_set(err, PLASMON_EMALFORMED,
                                "journal: the checkpoint is damaged or of another release")
                   : PLASMON_OK;
}
