/*
 * Saving the core. Sections: counters, namespaces, functions, devices with their buffers, hosts
 * with theirs, sessions, names, arrays, their shadows, tiles, records, pairs, teams, rates, labels
 * of tiles. Each section is followed by those of what it numbers.
 */
#include "head/checkpoint_int.h"

uint64_t head_numbering_of(struct head_numbering *numbering, void *item)
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

static void *numbered(const struct head_numbering *numbering, size_t index)
{
    return *(void **)pl_vec_at(&numbering->items, index);
}

static void numbering_init(struct head_numbering *numbering)
{
    pl_map_init(&numbering->numbers);
    numbering->items = PL_VEC_INIT(void *);
}

static void numbering_finish(struct head_numbering *numbering)
{
    pl_map_finish(&numbering->numbers);
    pl_vec_finish(&numbering->items);
}

static void save_number(struct head_saving *saving, uint64_t number)
{
    head_bytes_varint(saving->out, number);
}

static void save_buffer(struct head_saving *saving, struct head_buffer *buffer)
{
    (void)head_numbering_of(&saving->buffers, buffer);
    save_number(saving, wire_buffer_slot(buffer->id));
    save_number(saving, wire_buffer_generation(buffer->id));
    head_save_box(saving->out, &buffer->frame);
    save_number(saving, buffer->dtype);
    save_number(saving, buffer->seq_last);
    save_number(saving, (uint64_t)buffer->ends | (uint64_t)buffer->retired << 1 |
                            (uint64_t)buffer->donatable << 2 |
                            (uint64_t)buffer->replica << 3 | (uint64_t)buffer->told << 4 |
                            (uint64_t)buffer->told_replica << 5);
}

static void save_slots(struct head_saving *saving, const struct head_device *device)
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

static void save_device(struct head_saving *saving, const struct head_device *device)
{
    struct head_bytes *out   = saving->out;
    const uint64_t numbers[] = {
        device->comm_version,  device->kind,          device->ordinal,
        device->host_device,   device->incarnation,   device->restarts,
        device->bytes_total,   device->seq_last,      device->stage_next,
        device->alone_until,   device->runs,          (uint32_t)device->death_status,
        device->bulk_tls,      device->bulk_clock_ms, device->bulk_heard_ms,
        device->bulk_since_ms, device->teams_opened};
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
    head_functions_save_told(device, out);
    pl_list_for_each(pos, &device->recent) {
        count++;
    }
    save_number(saving, count);
    pl_list_for_each(pos, &device->recent) {
        save_buffer(saving, pl_container_of(pos, struct head_buffer, recent_link));
    }
}

static void save_array(struct head_saving *saving, const struct head_array *array)
{
    struct pl_list *pos;

    /* 0: the head's own, a shadow */
    save_number(saving, array->space == NULL
                            ? 0
                            : head_numbering_of(&saving->spaces, array->space));
    head_save_shape(saving->out, &array->shape);
    head_save_box(saving->out, &array->extent);
    save_number(saving, (uint64_t)array->mapped | (uint64_t)array->apart << 1);
    save_number(saving, array->partial_op);
    save_number(saving, array->fragment_count);
    pl_list_for_each(pos, &array->fragments) {
        const struct head_fragment *fragment =
            pl_container_of(pos, struct head_fragment, array_link);

        save_number(saving, head_numbering_of(&saving->tiles, fragment->tile));
        head_save_box(saving->out, &fragment->box);
    }
    save_number(saving, array->partials.count);
    for (size_t i = 0; i < array->partials.count; i++) {
        const struct head_partial *partial = pl_vec_at(&array->partials, i);

        save_number(saving, head_numbering_of(&saving->tiles, partial->tile));
        head_save_box(saving->out, &partial->box);
    }
}

void head_save_failure(struct head_bytes *out, const struct head_failure *failure)
{
    head_bytes_varint(out, (uint32_t)failure->status);
    head_bytes_varint(out, failure->loss);
    head_bytes_varint(out, failure->first_task);
    head_bytes_varint(out, failure->first_client);
    head_save_text(out, failure->text);
}

static void save_tile(struct head_saving *saving, const struct head_tile *tile)
{
    const struct head_failure *failure = tile->failure;
    struct pl_list *pos;
    uint64_t count = 0;

    head_save_box(saving->out, &tile->box);
    save_number(saving, tile->order);
    save_number(saving, tile->cut);
    save_number(saving, tile->second != NULL);
    if (tile->second != NULL) {
        save_number(saving, tile->second->bytes);
        save_number(saving, tile->second->warned);
    }
    save_number(saving, failure != NULL);
    if (failure != NULL) {
        head_save_failure(saving->out, failure);
    }
    pl_list_for_each(pos, &tile->instances) {
        count++;
    }
    save_number(saving, count);
    pl_list_for_each(pos, &tile->instances) {
        const struct head_instance *instance =
            pl_container_of(pos, struct head_instance, tile_link);

        save_number(saving, head_numbering_of(&saving->buffers, instance->buffer));
        head_save_box(saving->out, &instance->box);
    }
}

static void save_ref(struct head_saving *saving, const struct head_ref *ref)
{
    save_number(saving, head_numbering_of(&saving->arrays, ref->array));
    save_number(saving, ref->based);
    if (ref->based) {
        head_save_view(saving->out, &ref->base);
    }
}

static void save_client(struct head_saving *saving, const struct head_client *client)
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
    save_number(saving, client->host_copies);
    save_number(saving, client->host_copies_heard);
    save_number(saving, client->refs.count);
    for (size_t i = 0; pl_map_next(&client->refs, &i, &key, &value);) {
        save_number(saving, key);
        save_ref(saving, value);
    }
    head_functions_save_client(client, saving->out);
    head_graphs_save(saving, client);
}

static void save_space(struct head_saving *saving, struct head_space *space)
{
    const uint64_t numbers[] = {space->configured,     space->quota.bytes,
                                space->quota.tasks,    space->quota.message_bytes,
                                space->quota.sessions, space->refused};

    (void)head_numbering_of(&saving->spaces, space);
    head_save_text(saving->out, space->name);
    for (size_t i = 0; i < PL_COUNT(numbers); i++) {
        save_number(saving, numbers[i]);
    }
}

static void save_spaces(struct head_saving *saving)
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

static void save_counters(struct head_saving *saving)
{
    const struct head_core *core = saving->core;
    const uint64_t numbers[] = {core->now_ms,       core->started_ms,   core->order_last,
                                core->request_last, core->round_robin,  core->numbers_told,
                                core->step_last,    core->trace_last,   core->function_last,
                                core->tasks_done,   core->tasks_failed, core->pair_uses,
                                core->plan,         core->seconds.made, core->cut_finely};

    save_number(saving, PL_COUNT(numbers));
    for (size_t i = 0; i < PL_COUNT(numbers); i++) {
        save_number(saving, numbers[i]);
    }
}

uint64_t head_list_count(const struct pl_list *list)
{
    const struct pl_list *pos;
    uint64_t count = 0;

    pl_list_for_each(pos, list) {
        count++;
    }
    return count;
}

/* 0: NULL */
static uint64_t array_number(struct head_saving *saving, struct head_array *array)
{
    return array == NULL ? 0 : head_numbering_of(&saving->arrays, array);
}

static void save_shadows(struct head_saving *saving)
{
    const struct pl_list *pos;

    save_number(saving, head_list_count(&saving->core->shadows));
    pl_list_for_each(pos, &saving->core->shadows) {
        const struct head_shadow *shadow =
            pl_container_of(pos, const struct head_shadow, link);

        save_number(saving, array_number(saving, shadow->owner));
        head_save_box(saving->out, &shadow->box);
        save_number(saving, shadow->bytes);
        save_number(saving, array_number(saving, shadow->kept));
        save_number(saving, array_number(saving, shadow->older));
    }
}

/* Sessions and names, which find the arrays; arrays, which find the tiles. */
static void save_objects(struct head_saving *saving)
{
    struct head_core *core = saving->core;
    struct pl_list *pos;

    save_number(saving, head_list_count(&core->clients));
    pl_list_for_each(pos, &core->clients) {
        save_client(saving, pl_container_of(pos, struct head_client, link));
    }
    save_number(saving, head_list_count(&core->names));
    pl_list_for_each(pos, &core->names) {
        const struct head_name *name = pl_container_of(pos, struct head_name, link);

        head_save_bytes(saving->out, name->key, name->key_length);
        save_ref(saving, &name->ref);
    }
    pl_list_for_each(pos, &core->shadows) {
        const struct head_shadow *shadow = pl_container_of(pos, struct head_shadow, link);

        (void)array_number(saving, shadow->kept);
        (void)array_number(saving, shadow->older);
    }
    save_number(saving, saving->arrays.items.count);
    for (size_t i = 0; i < saving->arrays.items.count; i++) {
        save_array(saving, numbered(&saving->arrays, i));
    }
    save_shadows(saving);
    head_lineage_number(saving);
    save_number(saving, saving->tiles.items.count);
    for (size_t i = 0; i < saving->tiles.items.count; i++) {
        save_tile(saving, numbered(&saving->tiles, i));
    }
}

void head_core_save(struct head_core *core, struct head_bytes *out)
{
    struct head_saving saving = {.core = core, .out = out};

    PL_CHECK(head_core_unquiet(core) == NULL);
    numbering_init(&saving.buffers);
    numbering_init(&saving.tiles);
    numbering_init(&saving.arrays);
    numbering_init(&saving.spaces);
    numbering_init(&saving.records);
    save_counters(&saving);
    save_spaces(&saving);
    head_functions_save(core, out);
    save_number(&saving, core->devices.count);
    for (uint32_t i = 0; i < core->devices.count; i++) {
        save_device(&saving, head_device_at(core, i));
    }
    head_spill_save(&saving);
    PL_CHECK(saving.buffers.items.count == core->counts.buffers);
    save_objects(&saving);
    PL_CHECK(saving.buffers.items.count == core->counts.buffers &&
             saving.tiles.items.count == core->counts.tiles + core->lineage.descriptors &&
             saving.arrays.items.count == core->counts.arrays);
    head_lineage_save(&saving);
    head_pairs_save(core, out);
    head_teams_save(core, out);
    head_rates_save(core, out);
    head_labels_save(&saving);
    save_number(&saving, HEAD_SECTION_END);
    numbering_finish(&saving.buffers);
    numbering_finish(&saving.tiles);
    numbering_finish(&saving.arrays);
    numbering_finish(&saving.spaces);
    numbering_finish(&saving.records);
}
