/*
 * Records of calls: what they hold, when they go, how many bytes they may have.
 *
 * LIFE. A record is created just before its first launch starts and is held by that launch and by
 * each tile that it made. So it goes when nothing that it made can be reached: neither by an array
 * (the tile's refs) nor by the record of a later call that read it (the tile's kept). Then it lets
 * go of what it read itself, and so on down; a chain may be a million calls long, so that goes
 * through a list (`dying`) and not through the stack.
 *
 * No cycles: a record keeps tiles that existed when its call was made, so those were made by
 * records with lower serials.
 *
 * THE BOUND. All records together, and the descriptors that only they keep, may have
 * config.lineage_bytes. Counted is what was asked of the allocator. When a new record is too much,
 * those go that have had no launch for the longest time; what they made is then cut off
 * (HEAD_CUT_OLD), with everything that would have to be made from it. Records with an unfinished
 * launch are counted and not dropped: they are part of what a task in flight costs, and their
 * number is bounded like those are.
 *
 * WITHOUT --lineage-bytes (0) there are records nevertheless where the cluster has, or had, devices
 * of several hosts: a host may go in the middle of what it passes on, and who waits for that has
 * lost nothing. By the same bound they go when their last launch has ended. So what is under way is
 * run again, and what was made stays lost.
 *
 * INVARIANTS (head_lineage_check)
 *
 *   (1) A record's refs are the tiles that point to it and its unfinished launches; it is idle if
 *       and only if it has none of these launches.
 *   (2) A tile's kept is the number of inputs of records that name it. A tile has refs or is kept.
 *   (3) bytes is the sum over all records and over the tiles without refs.
 *   (4) What a record reads was made by records with lower serials.
 *
 * Seeded bug: head.lineage_free_early (a record goes while a descriptor still points to it).
 */
#include "head/core_int.h"

#include <string.h>

bool head_lineage_on(const struct head_core *core)
{
    return core->config.lineage_bytes != 0 || core->lineage.several_hosts;
}

void head_lineage_init(struct head_core *core)
{
    struct head_lineage *lineage = &core->lineage;

    pl_list_init(&lineage->all);
    pl_list_init(&lineage->idle);
    pl_list_init(&lineage->all_roots);
    lineage->dying = PL_VEC_INIT(struct head_record *);
    lineage->lost  = PL_VEC_INIT(struct head_loss);
    lineage->again = PL_VEC_INIT(struct head_record *);
    lineage->waits = PL_VEC_INIT(struct head_wait *);
    head_spared_init(core);
}

void head_lineage_finish(struct head_core *core)
{
    struct head_lineage *lineage = &core->lineage;

    PL_CHECK(pl_list_empty(&lineage->all) && lineage->bytes == 0 &&
             pl_list_empty(&lineage->all_roots));
    pl_vec_finish(&lineage->dying);
    pl_vec_finish(&lineage->lost);
    pl_vec_finish(&lineage->again);
    pl_vec_finish(&lineage->waits);
    head_spared_finish(core);
}

/* -------------------------------------------------------------------------------- tiles */

void head_tile_keep(struct head_core *core, struct head_tile *tile)
{
    (void)core;
    PL_CHECK(tile->refs > 0 || tile->kept > 0);
    tile->kept++;
}

static void detach(struct head_core *core, struct head_tile *tile)
{
    struct head_record *record = tile->record;

    if (record == NULL) {
        return;
    }
    for (uint32_t i = 0; i < record->arg_count; i++) {
        if (record->args[i].output == tile) {
            record->args[i].output = NULL;
        }
    }
    tile->record = NULL;
    head_record_release(core, record);
}

/* Nobody can reach it. */
static void descriptor_free(struct head_core *core, struct head_tile *tile)
{
    PL_CHECK(pl_list_empty(&tile->instances) && pl_list_empty(&tile->fragments));
    detach(core, tile);
    head_failure_release(tile->failure);
    head_tile_free(core, tile);
}

void head_tile_unkeep(struct head_core *core, struct head_tile *tile)
{
    PL_CHECK(tile->kept > 0);
    if (--tile->kept > 0 || tile->refs > 0) {
        return;
    }
    core->lineage.bytes -= sizeof(*tile);
    core->lineage.descriptors--;
    descriptor_free(core, tile);
}

bool head_lineage_tile_left(struct head_core *core, struct head_tile *tile)
{
    head_found_settle(core, tile); /* nor can who looked it up reach it */
    if (tile->kept == 0) {
        descriptor_free(core, tile);
        return false;
    }
    if (pl_bug("head.lineage_free_early")) {
        detach(core, tile);
        tile->cut = HEAD_CUT_OLD;
    }
    core->lineage.bytes += sizeof(*tile);
    core->lineage.descriptors++;
    return true;
}

void head_lineage_tile_back(struct head_core *core, struct head_tile *tile)
{
    PL_CHECK(tile->kept > 0);
    core->lineage.bytes -= sizeof(*tile);
    core->lineage.descriptors--;
}

/* ------------------------------------------------------------------------------ records */

static bool reads(const struct head_arg *arg)
{
    return arg->array != NULL &&
           (arg->mode == PLASMON__V1__MODE__MODE_IN ||
            arg->mode == PLASMON__V1__MODE__MODE_INOUT ||
            (arg->mode == PLASMON__V1__MODE__MODE_OUT && !pl_view_dense(&arg->view)));
}

static struct head_record_sizes measure(const struct head_run *run)
{
    struct head_record_sizes sizes = {.args    = run->arg_count,
                                      .scalars = run->scalar_count,
                                      .label   = run->label != NULL ? strlen(run->label) + 1
                                                                    : (size_t)0,
                                      .shaped  = run->shaped};

    for (size_t i = 0; i < run->arg_count; i++) {
        const struct head_arg *arg = &run->args[i];
        const struct head_fragment *fragment;

        sizes.numbers += 3 * (size_t)arg->view.ndim;
        if (!reads(arg)) {
            continue;
        }
        for (fragment = head_array_meet(arg->array, &arg->hull); fragment != NULL;
             fragment = fragment->met) {
            sizes.inputs++;
            sizes.numbers += 2 * (size_t)arg->view.ndim;
        }
    }
    return sizes;
}

struct head_record *head_record_block(const struct head_record_sizes *sizes)
{
    size_t shape  = sizes->shaped ? WIRE_LAUNCH_SHAPE_COUNT * sizeof(uint32_t) : 0;
    size_t at     = sizeof(struct head_record);
    size_t args   = sizes->args * sizeof(struct head_record_arg);
    size_t inputs = sizes->inputs * sizeof(struct head_record_input);
    size_t bytes  = at + args + inputs + sizes->numbers * sizeof(int64_t) +
                   sizes->scalars * sizeof(uint64_t) + shape + sizes->label;
    struct head_record *record = head_alloc(bytes);
    uint8_t *block             = (uint8_t *)record;

    static_assert(sizeof(struct head_record) % 8 == 0 &&
                      sizeof(struct head_record_arg) % 8 == 0 &&
                      sizeof(struct head_record_input) % 8 == 0,
                  "what lies behind each other in the block is aligned");
    record->refs  = 1;
    record->bytes = bytes;
    record->args  = (struct head_record_arg *)(void *)(block + at);
    at += args;
    record->inputs = (struct head_record_input *)(void *)(block + at);
    at += inputs;
    record->numbers = (int64_t *)(void *)(block + at);
    at += sizes->numbers * sizeof(int64_t);
    record->scalars = (uint64_t *)(void *)(block + at);
    at += sizes->scalars * sizeof(uint64_t);
    if (sizes->shaped) {
        record->launch_shape = (uint32_t *)(void *)(block + at);
        at += shape;
    }
    if (sizes->label > 0) {
        record->label = (char *)(block + at);
    }
    record->arg_count    = (uint32_t)sizes->args;
    record->scalar_count = (uint32_t)sizes->scalars;
    pl_list_init(&record->link);
    pl_list_init(&record->all_link);
    return record;
}

void head_record_add(struct head_core *core, struct head_record *record)
{
    if (record->defined != NULL) {
        head_function_hold(record->defined);
    }
    pl_list_add_tail(&core->lineage.all, &record->all_link);
    core->lineage.bytes += record->bytes;
    core->lineage.records++;
}

static void take_texts(struct head_record *record, const struct head_run *run)
{
    if (run->shaped) {
        memcpy(record->launch_shape, run->launch_shape, sizeof(run->launch_shape));
    }
    if (run->label != NULL) {
        memcpy(record->label, run->label, strlen(run->label) + 1);
    }
    if (run->scalar_count > 0) {
        memcpy(record->scalars, run->scalars, run->scalar_count * sizeof(uint64_t));
    }
}

static uint32_t put_numbers(int64_t *numbers, uint32_t at, const int64_t *from,
                            uint32_t ndim)
{
    memcpy(numbers + at, from, ndim * sizeof(int64_t));
    return at + ndim;
}

/* What the argument read, part by part. */
static uint32_t take_inputs(struct head_core *core, struct head_record *record,
                            struct head_record_arg *to, const struct head_arg *arg,
                            uint32_t at)
{
    const struct head_fragment *fragment;

    for (fragment = head_array_meet(arg->array, &arg->hull); fragment != NULL;
         fragment = fragment->met) {
        struct head_record_input *input;
        struct pl_box part;

        if (!pl_box_intersection(&fragment->box, &arg->hull, &part)) {
            continue;
        }
        input         = &record->inputs[record->input_count++];
        input->tile   = fragment->tile;
        input->box_at = at;
        at            = put_numbers(record->numbers, at, part.start, part.ndim);
        at            = put_numbers(record->numbers, at, part.count, part.ndim);
        head_tile_keep(core, fragment->tile);
        to->input_count++;
    }
    return at;
}

struct head_record *head_record_create(struct head_core *core, const struct head_run *run,
                                       uint32_t kind)
{
    struct head_record *record;
    struct head_record_sizes sizes;
    uint32_t at = 0;

    if (!head_lineage_on(core) && kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_RUN) {
        return NULL;
    }
    sizes                    = measure(run);
    record                   = head_record_block(&sizes);
    record->serial           = ++core->lineage.serial_last;
    record->kind             = kind;
    record->function         = run->function;
    record->defined          = run->defined;
    record->place            = run->place;
    record->retries          = run->retries;
    record->function_retries = run->function_retries;
    record->time_limit_ms    = run->time_limit_ms;
    record->priority         = run->priority;
    take_texts(record, run);
    for (size_t i = 0; i < run->arg_count; i++) {
        const struct head_arg *arg = &run->args[i];
        struct head_record_arg *to = &record->args[i];

        to->mode        = arg->mode;
        to->dtype       = arg->dtype;
        to->reduce_op   = arg->reduce_op;
        to->dense       = arg->dense;
        to->ndim        = arg->view.ndim;
        to->view_at     = at;
        to->input_first = record->input_count;
        at              = put_numbers(record->numbers, at, arg->view.start, arg->view.ndim);
        at              = put_numbers(record->numbers, at, arg->view.count, arg->view.ndim);
        at              = put_numbers(record->numbers, at, arg->view.step, arg->view.ndim);
        if (reads(arg)) {
            at = take_inputs(core, record, to, arg, at);
        }
        record->cost_bytes +=
            (uint64_t)pl_box_elements(&arg->hull) * pl_dtype_bytes(arg->dtype);
    }
    PL_CHECK(at == sizes.numbers && record->input_count == sizes.inputs);
    head_record_add(core, record);
    return record;
}

/* Whose inputs go; what they kept alone goes too, and perhaps the records of that (into `dying`). */
static void inputs_release(struct head_core *core, struct head_record *record)
{
    for (uint32_t i = 0; i < record->input_count; i++) {
        head_tile_unkeep(core, record->inputs[i].tile);
    }
    record->input_count = 0;
}

static void sweep(struct head_core *core)
{
    struct head_lineage *lineage = &core->lineage;

    if (lineage->sweeping) {
        return;
    }
    lineage->sweeping = true;
    while (lineage->dying.count > 0) {
        struct head_record *record =
            *(struct head_record **)pl_vec_at(&lineage->dying, lineage->dying.count - 1);

        pl_vec_pop(&lineage->dying);
        inputs_release(core, record);
        if (record->defined != NULL) {
            head_function_release(core, record->defined);
        }
        pl_list_remove(&record->link);
        pl_list_remove(&record->all_link);
        lineage->bytes -= record->bytes;
        lineage->records--;
        pl_free(record);
    }
    lineage->sweeping = false;
}

void head_record_hold(struct head_record *record)
{
    record->refs++;
}

void head_record_release(struct head_core *core, struct head_record *record)
{
    struct head_record **place;

    PL_CHECK(record->refs > 0);
    if (--record->refs > 0) {
        return;
    }
    PL_CHECK(record->running == 0 && record->again == NULL);
    place = pl_vec_push(&core->lineage.dying);
    PL_CHECK(place != NULL);
    *place = record;
    sweep(core);
}

struct head_task *head_record_launch(const struct head_record *record)
{
    return record->task != NULL && record->task->failure == NULL ? record->task : NULL;
}

void head_record_started(struct head_record *record, struct head_task *task)
{
    task->record   = record;
    task->attempts = record->attempts;
    record->refs++;
    record->running++;
    pl_list_remove(&record->link);
    if (head_record_launch(record) == NULL) {
        record->task = task;
    }
}

void head_record_finished(struct head_core *core, struct head_task *task)
{
    struct head_record *record = task->record;

    if (record == NULL) {
        return;
    }
    task->record = NULL;
    if (record->task == task) {
        record->task = NULL;
    }
    if (task->failure == NULL) {
        record->apart = 0;
    }
    PL_CHECK(record->running > 0);
    if (--record->running == 0) {
        pl_list_add_tail(&core->lineage.idle, &record->link);
    }
    head_record_release(core, record);
}

void head_record_made(struct head_record *record, size_t arg, struct head_tile *tile)
{
    PL_CHECK(record->args[arg].output == NULL && tile->record == NULL);
    record->args[arg].output = tile;
    tile->record             = record;
    record->refs++;
}

struct pl_view head_record_view(const struct head_record *record,
                                const struct head_record_arg *arg)
{
    const int64_t *numbers = record->numbers + arg->view_at;
    struct pl_view view    = {.ndim = arg->ndim};

    memcpy(view.start, numbers, arg->ndim * sizeof(int64_t));
    memcpy(view.count, numbers + arg->ndim, arg->ndim * sizeof(int64_t));
    memcpy(view.step, numbers + 2 * (size_t)arg->ndim, arg->ndim * sizeof(int64_t));
    return view;
}

struct pl_box head_record_box(const struct head_record *record,
                              const struct head_record_arg *arg,
                              const struct head_record_input *input)
{
    const int64_t *numbers = record->numbers + input->box_at;
    struct pl_box box      = {.ndim = arg->ndim};

    memcpy(box.start, numbers, arg->ndim * sizeof(int64_t));
    memcpy(box.count, numbers + arg->ndim, arg->ndim * sizeof(int64_t));
    return box;
}

/* -------------------------------------------------------------------------------- bound */

static void drop(struct head_core *core, struct head_record *record)
{
    head_record_hold(record);
    for (uint32_t i = 0; i < record->arg_count; i++) {
        struct head_tile *tile = record->args[i].output;

        if (tile != NULL) {
            record->args[i].output = NULL;
            tile->record           = NULL;
            tile->cut              = HEAD_CUT_OLD;
            head_record_release(core, record);
        }
    }
    core->lineage.dropped++;
    head_record_release(core, record);
}

void head_lineage_bound(struct head_core *core)
{
    struct head_lineage *lineage = &core->lineage;

    while (!lineage->rebuilding && lineage->bytes > core->config.lineage_bytes &&
           !pl_list_empty(&lineage->idle)) {
        drop(core, pl_list_first(&lineage->idle, struct head_record, link));
    }
}

Plasmon__V1__Lineage *head_lineage_status(const struct head_core *core,
                                          struct wire_arena *arena)
{
    const struct head_lineage *lineage = &core->lineage;
    Plasmon__V1__Lineage *out          = wire_arena_alloc(arena, sizeof(*out));

    if (out == NULL) {
        return NULL;
    }
    plasmon__v1__lineage__init(out);
    out->bytes_max     = core->config.lineage_bytes;
    out->bytes         = lineage->bytes;
    out->records       = lineage->records;
    out->dropped       = lineage->dropped;
    out->rebuilt_tasks = lineage->rebuilt_tasks;
    out->rebuilt_bytes = lineage->rebuilt_bytes;
    out->never         = lineage->rebuilt_never;
    out->shadows       = lineage->shadows;
    head_seconds_status(core, out);
    return out;
}

void head_core_lineage(const struct head_core *core, struct head_lineage_counts *out)
{
    *out = (struct head_lineage_counts){.rebuilt_tasks = core->lineage.rebuilt_tasks,
                                        .never         = core->lineage.rebuilt_never,
                                        .shadows       = core->lineage.shadows,
                                        .given_back    = core->lineage.given_back};
}

/* -------------------------------------------------------------------------------- check */

static void check_record(const struct head_record *record, struct pl_map *kept)
{
    uint32_t made = 0;

    for (uint32_t i = 0; i < record->arg_count; i++) {
        const struct head_tile *tile = record->args[i].output;

        if (tile != NULL) {
            made++;
            PL_CHECK(tile->record == record);
            PL_CHECK(tile->refs > 0 || tile->kept > 0);
        }
    }
    PL_CHECK(record->refs == made + record->running);
    PL_CHECK(pl_list_empty(&record->link) == (record->running > 0));
    PL_CHECK(!record->planned && record->again == NULL);
    for (uint32_t i = 0; i < record->input_count; i++) {
        const struct head_tile *tile = record->inputs[i].tile;
        uint64_t key                 = (uint64_t)(uintptr_t)tile;
        uintptr_t count              = (uintptr_t)pl_map_get(kept, key);

        PL_CHECK(tile->record == NULL || tile->record->serial < record->serial);
        PL_CHECK(pl_map_set(kept, key, (void *)(count + 1)) == PLASMON_OK);
    }
}

void head_lineage_check(const struct head_core *core)
{
    const struct head_lineage *lineage = &core->lineage;
    uint64_t bytes = 0, records = 0, descriptors = 0;
    struct pl_list *pos;
    struct pl_map kept;
    uint64_t key;
    void *count;

    PL_CHECK(lineage->lost.count == 0 && lineage->again.count == 0 &&
             lineage->waits.count == 0 && lineage->dying.count == 0 &&
             lineage->spared.count == 0 && lineage->roots == NULL);
    PL_CHECK(!lineage->rebuilding && !lineage->sweeping);
    pl_map_init(&kept);
    pl_list_for_each(pos, &lineage->all) {
        const struct head_record *record =
            pl_container_of(pos, struct head_record, all_link);

        check_record(record, &kept);
        bytes += record->bytes;
        records++;
    }
    for (size_t i = 0; pl_map_next(&kept, &i, &key, &count);) {
        const struct head_tile *tile = (const struct head_tile *)(uintptr_t)key;

        PL_CHECK(tile->kept == (uintptr_t)count);
        if (tile->refs == 0) {
            PL_CHECK(pl_list_empty(&tile->instances));
            descriptors++;
        }
    }
    pl_map_finish(&kept);
    PL_CHECK(records == lineage->records && descriptors == lineage->descriptors);
    PL_CHECK(bytes + descriptors * sizeof(struct head_tile) == lineage->bytes);
}
