/*
 * Loading the core from what checkpoint_save.c wrote; see checkpoint.h. All that is loaded is held
 * once until the end, when each thing is held by what names it and nothing else.
 */
#include <string.h>

#include "head/checkpoint_int.h"

/* A part of an array that a tile will be. */
struct wanted {
    struct head_array *array;
    struct pl_box box;
    uint64_t tile;
    bool partial;
};

void *head_loading_item(struct head_loading *loading, const struct pl_vec *items,
                        uint64_t number)
{
    if (number == 0 || number > items->count) {
        loading->in->bad = true;
        return NULL;
    }
    return *(void **)pl_vec_at(items, number - 1);
}

void head_loading_add(struct pl_vec *items, void *item)
{
    void **place = pl_vec_push(items);

    PL_CHECK(place != NULL);
    *place = item;
}

static void times(struct head_loading *loading, void (*load)(struct head_loading *loading))
{
    size_t count = head_load_count(loading->in);

    for (size_t i = 0; i < count && !loading->in->bad; i++) {
        load(loading);
    }
}

struct head_buffer *head_loading_buffer(struct head_loading *loading,
                                        struct head_device *device, uint64_t id)
{
    struct head_buffer *buffer;
    struct pl_box frame;
    uint32_t dtype;

    head_load_box(loading->in, &frame);
    dtype = (uint32_t)head_load_below(loading->in, UINT32_MAX);
    if (loading->in->bad || pl_dtype_bytes(dtype) == 0) {
        loading->in->bad = true;
        return NULL;
    }
    buffer = head_buffer_restore(loading->core, device, id, &frame, dtype);
    head_loading_add(&loading->buffers, buffer);
    return buffer;
}

static void load_buffer(struct head_loading *loading, struct head_device *device)
{
    struct head_reader *in = loading->in;
    uint64_t slot          = head_load_below(in, HEAD_SLOTS_MAX - 1);
    uint64_t generation    = head_load_below(in, 0xffffff);
    struct head_buffer *buffer;
    uint64_t flags;

    in->bad |= slot >= device->slot_next;
    buffer = head_loading_buffer(
        loading, device, wire_buffer(device->index, (uint32_t)slot, (uint32_t)generation));
    if (buffer == NULL) {
        return;
    }
    buffer->seq_last  = head_load_below(in, device->seq_last);
    flags             = head_load_below(in, 63);
    buffer->ends      = (flags & 1) != 0;
    buffer->retired   = (flags & 2) != 0;
    buffer->donatable = (flags & 4) != 0;
    if ((flags & 16) != 0) {
        head_buffer_replica_set(buffer, (flags & 32) != 0);
        head_buffer_tell(buffer);
    }
    head_buffer_replica_set(buffer, (flags & 8) != 0);
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

static void load_device(struct head_loading *loading)
{
    struct head_reader *in = loading->in;
    uint64_t flags         = head_load_below(in, 127);
    uint64_t numbers[17];
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
    device->bulk_since_ms               = numbers[15];
    device->teams_opened                = numbers[16];
    load_slots(in, device);
    head_functions_load_told(loading->core, device, in);
    count = head_load_count(in);
    for (size_t i = 0; i < count && !in->bad; i++) {
        load_buffer(loading, device);
    }
}

static void load_ref(struct head_loading *loading, uint64_t *out_array,
                     struct head_ref *out)
{
    *out_array = head_load_number(loading->in);
    *out       = (struct head_ref){.based = head_load_flag(loading->in)};
    if (out->based) {
        head_load_view(loading->in, &out->base);
    }
}

/* Refs name arrays by number; the arrays come later. */
struct owed {
    struct head_client *client; /* NULL: a name, or .. */
    struct head_name *name;     /* .. NULL: a slot of a graph */
    struct head_array **slot;
    uint64_t id;
    uint64_t array;
    struct head_ref ref;
};

static struct owed *owe(struct head_loading *loading)
{
    struct owed *place = pl_vec_push(&loading->owed);

    PL_CHECK(place != NULL);
    return place;
}

void head_loading_owe_slot(struct head_loading *loading, struct head_array **slot,
                           uint64_t array)
{
    if (array != 0) {
        *owe(loading) = (struct owed){.slot = slot, .array = array};
    }
}

static void load_space(struct head_loading *loading)
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
        head_loading_add(&loading->spaces, space);
        space->refused = numbers[5];
        if (numbers[0] != 0) {
            head_core_namespace_set(loading->core, name, &quota);
        }
    }
    pl_free(name);
}

static void load_spaces(struct head_loading *loading)
{
    bool closed = head_load_flag(loading->in);

    times(loading, load_space);
    loading->core->namespaces_closed = closed;
}

static void load_client(struct head_loading *loading)
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

    client->host_copies       = head_load_number(in);
    client->host_copies_heard = head_load_number(in);

    count = head_load_count(in);
    for (size_t i = 0; i < count && !in->bad; i++) {
        struct owed *ref = owe(loading);

        ref->client = client;
        ref->id     = head_load_number(in);
        load_ref(loading, &ref->array, &ref->ref);
    }
    head_functions_load_client(loading->core, client, in);
    head_graphs_load(loading, client);
}

static void load_name(struct head_loading *loading)
{
    struct head_reader *in = loading->in;
    struct owed *ref       = owe(loading);
    size_t length;
    const uint8_t *key = head_load_bytes(in, &length);

    in->bad |= length == 0 || memchr(key, 0, length) == NULL;
    ref->name             = head_alloc(sizeof(*ref->name));
    ref->name->key        = head_alloc(length + 1);
    ref->name->key_length = length;
    if (length > 0) {
        memcpy(ref->name->key, key, length);
    }
    pl_list_init(&ref->name->link);
    load_ref(loading, &ref->array, &ref->ref);
}

static void load_parts(struct head_loading *loading, struct head_array *array, bool partial)
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

static void load_array(struct head_loading *loading)
{
    struct head_reader *in = loading->in;
    struct head_array *array;
    uint64_t number = head_load_number(in);
    struct head_space *space =
        number == 0 ? NULL : head_loading_item(loading, &loading->spaces, number);
    struct pl_shape shape;
    struct pl_box whole;
    uint64_t flags;

    head_load_shape(in, &shape);
    if (in->bad || (space == NULL && number != 0)) {
        in->bad = true;
        return;
    }
    array = head_array_create(loading->core, space, &shape);
    head_loading_add(&loading->arrays, array);
    whole = array->extent;
    head_load_box(in, &array->extent);
    if (in->bad || array->extent.ndim != whole.ndim ||
        !pl_box_contains(&whole, &array->extent)) {
        in->bad = true;
        return;
    }
    flags = head_load_below(in, 3);
    if ((flags & 1) != 0) {
        head_array_map(loading->core, array);
    }
    array->apart      = (flags & 2) != 0;
    array->partial_op = (uint32_t)head_load_below(in, UINT32_MAX);
    load_parts(loading, array, false);
    load_parts(loading, array, true);
}

/* One more reference to a version that is the head's own; 0: NULL. */
static struct head_array *load_version(struct head_loading *loading)
{
    uint64_t number = head_load_number(loading->in);
    struct head_array *version =
        number == 0 ? NULL : head_loading_item(loading, &loading->arrays, number);

    if (number == 0 || version == NULL || version->space != NULL) {
        loading->in->bad |= number != 0;
        return NULL;
    }
    version->refs++;
    return version;
}

static void load_shadow(struct head_loading *loading)
{
    struct head_reader *in = loading->in;
    struct head_array *owner =
        head_loading_item(loading, &loading->arrays, head_load_number(in));
    struct head_shadow *shadow;
    struct pl_box box;

    head_load_box(in, &box);
    if (in->bad || owner == NULL || owner->space == NULL || box.ndim != owner->shape.ndim) {
        in->bad = true;
        return;
    }
    shadow        = head_shadow_add(loading->core, owner, &box);
    shadow->bytes = head_load_number(in);
    shadow->kept  = load_version(loading);
    shadow->older = load_version(loading);
    in->bad |= shadow->older != NULL && shadow->kept == NULL;
}

struct head_failure *head_load_failure(struct head_reader *in)
{
    uint64_t status = head_load_below(in, UINT32_MAX);
    bool loss       = head_load_flag(in);
    uint64_t task   = head_load_number(in);
    uint64_t client = head_load_number(in);
    char *text      = head_load_text(in);
    struct head_failure *failure =
        in->bad ? NULL
                : head_failure_create((plasmon_status_t)(int32_t)status, task, client, "%s",
                                      text);

    if (failure != NULL) {
        failure->loss = loss;
    }
    pl_free(text);
    return failure;
}

static void load_tile(struct head_loading *loading)
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
    head_loading_add(&loading->tiles, tile);
    tile->order = head_load_number(in);
    tile->cut   = (uint32_t)head_load_below(in, HEAD_CUT_COLLECTIVE);
    if (head_load_flag(in)) {
        uint64_t bytes = head_load_number(in);

        head_second_add(loading->core, tile, bytes, head_load_flag(in));
    }
    if (head_load_flag(in)) {
        tile->failure = head_load_failure(in);
    }
    count = head_load_count(in);
    for (size_t i = 0; i < count && !in->bad; i++) {
        struct head_buffer *buffer =
            head_loading_item(loading, &loading->buffers, head_load_number(in));

        head_load_box(in, &box);
        if (in->bad || box.ndim != tile->box.ndim || box.ndim != buffer->frame.ndim ||
            !pl_box_contains(&tile->box, &box) || !pl_box_contains(&buffer->frame, &box)) {
            in->bad = true;
            return;
        }
        head_instance_add(loading->core, tile, buffer, &box);
    }
}

static void load_wanted(struct head_loading *loading)
{
    for (size_t i = 0; i < loading->wanted.count && !loading->in->bad; i++) {
        const struct wanted *wanted = pl_vec_at(&loading->wanted, i);
        struct head_tile *tile = head_loading_item(loading, &loading->tiles, wanted->tile);

        if (tile == NULL || tile->box.ndim != wanted->box.ndim ||
            wanted->array->extent.ndim != wanted->box.ndim ||
            !pl_box_contains(&tile->box, &wanted->box) ||
            (tile->space != NULL && wanted->array->space != NULL &&
             tile->space != wanted->array->space)) {
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

/* Who was owed this array gets it. */
static void pay(struct head_loading *loading, struct owed *ref, struct head_array *array)
{
    struct pl_err err;

    if (array->space == NULL) {
        loading->in->bad = true; /* clients have none of the head's */
    }
    array->refs++;
    if (ref->slot != NULL) {
        *ref->slot = array;
        PL_CHECK(pl_map_set(&loading->loose, (uintptr_t)array, array) == PLASMON_OK);
    } else if (ref->name != NULL) {
        ref->name->ref       = ref->ref;
        ref->name->ref.array = array;
        loading->in->bad |= !head_name_add(loading->core, ref->name);
    } else if (head_client_ref_add(loading->core, ref->client, ref->id, array,
                                   ref->ref.based ? &ref->ref.base : NULL,
                                   &err) != PLASMON_OK) {
        loading->in->bad = true;
    }
}

/* A name that gets no array goes. */
static void settle(struct head_loading *loading)
{
    for (size_t i = 0; i < loading->owed.count; i++) {
        struct owed *ref = pl_vec_at(&loading->owed, i);
        struct head_array *array =
            loading->in->bad ? NULL
                             : head_loading_item(loading, &loading->arrays, ref->array);
        struct pl_err err;

        if (array != NULL && ref->ref.based &&
            pl_view_check(&ref->ref.base, &array->shape, &err) != PLASMON_OK) {
            loading->in->bad = true;
            array            = NULL;
        }
        if (array != NULL) {
            pay(loading, ref, array);
        } else if (ref->name != NULL) {
            pl_free(ref->name->key);
            pl_free(ref->name);
        }
    }
}

static void load_counters(struct head_loading *loading)
{
    struct head_core *core = loading->core;
    uint64_t numbers[15];

    loading->in->bad |= head_load_number(loading->in) != PL_COUNT(numbers);
    for (size_t i = 0; i < PL_COUNT(numbers); i++) {
        numbers[i] = head_load_number(loading->in);
    }
    core->now_ms        = numbers[0];
    core->started_ms    = numbers[1];
    core->order_last    = numbers[2];
    core->request_last  = numbers[3];
    core->round_robin   = (uint32_t)numbers[4];
    core->numbers_told  = numbers[5] != 0;
    core->step_last     = numbers[6];
    core->trace_last    = numbers[7];
    core->function_last = (uint32_t)numbers[8];
    core->tasks_done    = numbers[9];
    core->tasks_failed  = numbers[10];
    core->pair_uses     = numbers[11];
    core->plan          = numbers[12];
    core->seconds.made  = numbers[13];
    core->cut_finely    = (uint32_t)numbers[14];
}

/* Each is held by what names it now; what nothing names goes. */
static void let_go(struct head_loading *loading)
{
    struct head_core *core = loading->core;

    if (loading->in->bad) {
        head_lineage_untie(loading);
    }
    for (size_t i = 0; i < loading->arrays.count; i++) {
        head_array_release(core, *(struct head_array **)pl_vec_at(&loading->arrays, i));
    }
    for (size_t i = 0; i < loading->tiles.count; i++) {
        head_tile_release(core, *(struct head_tile **)pl_vec_at(&loading->tiles, i));
    }
    for (size_t i = 0; i < loading->buffers.count; i++) {
        head_buffer_release(core, *(struct head_buffer **)pl_vec_at(&loading->buffers, i));
    }
    for (size_t i = 0; i < loading->records.count; i++) {
        head_record_release(core, *(struct head_record **)pl_vec_at(&loading->records, i));
    }
    for (size_t i = 0; i < loading->spaces.count; i++) {
        head_space_release(*(struct head_space **)pl_vec_at(&loading->spaces, i));
    }
    pl_vec_finish(&loading->spaces);
    pl_vec_finish(&loading->records);
    pl_vec_finish(&loading->arrays);
    pl_vec_finish(&loading->tiles);
    pl_vec_finish(&loading->buffers);
    pl_vec_finish(&loading->wanted);
    pl_vec_finish(&loading->owed);
    pl_map_finish(&loading->loose);
}

/* Every array but those of slots is covered by its parts, and what it shows is somewhere or has failed. */
static bool makes_sense(const struct head_loading *loading)
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
        if ((covered != pl_box_elements(&array->extent) &&
             pl_map_get(&loading->loose, (uintptr_t)array) == NULL) ||
            array->refs < 2) {
            return false;
        }
    }
    return true;
}

plasmon_status_t head_core_load(struct head_core *core, struct head_reader *in,
                                struct pl_err *err)
{
    struct head_loading loading = {.core    = core,
                                   .in      = in,
                                   .buffers = PL_VEC_INIT(struct head_buffer *),
                                   .arrays  = PL_VEC_INIT(struct head_array *),
                                   .tiles   = PL_VEC_INIT(struct head_tile *),
                                   .spaces  = PL_VEC_INIT(struct head_space *),
                                   .records = PL_VEC_INIT(struct head_record *),
                                   .wanted  = PL_VEC_INIT(struct wanted),
                                   .owed    = PL_VEC_INIT(struct owed)};

    pl_map_init(&loading.loose);
    load_counters(&loading);
    load_spaces(&loading);
    head_functions_load(core, in);
    times(&loading, load_device);
    head_spill_load(&loading);
    times(&loading, load_client);
    times(&loading, load_name);
    times(&loading, load_array);
    times(&loading, load_shadow);
    times(&loading, load_tile);
    load_wanted(&loading);
    settle(&loading);
    if (!in->bad) {
        head_lineage_load(&loading);
    }
    head_pairs_load(core, in);
    head_teams_load(core, in);
    head_rates_load(core, in);
    in->bad |= head_labels_load(&loading) != HEAD_SECTION_END ||
               (!in->bad && !makes_sense(&loading));
    let_go(&loading);
    head_buffers_loosen(core);
    head_functions_settle(core);
    return in->bad ? pl_err_set(err, PLASMON_EMALFORMED,
                                "journal: the checkpoint is damaged or of another release")
                   : PLASMON_OK;
}
