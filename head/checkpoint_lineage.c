/*
 * Records of calls in a checkpoint (lineage.h): all of them, in the order of their serials, then
 * which were idle for how long. The tiles that they read have numbers like those of arrays; those
 * that only records keep are saved with the others, without instances.
 *
 * Where the numbers of views and boxes lie in a record's block follows from their order, so it is not saved.
 */
#include "head/checkpoint_int.h"

#include <string.h>

/* ------------------------------------------------------------------------------- saving */

void head_lineage_number(struct head_saving *saving)
{
    const struct pl_list *pos;

    pl_list_for_each(pos, &saving->core->lineage.all) {
        const struct head_record *record =
            pl_container_of(pos, struct head_record, all_link);

        for (uint32_t i = 0; i < record->input_count; i++) {
            (void)head_numbering_of(&saving->tiles, record->inputs[i].tile);
        }
    }
}

static void save_arg(struct head_saving *saving, const struct head_record *record,
                     const struct head_record_arg *arg)
{
    struct head_bytes *out = saving->out;
    struct pl_view view    = head_record_view(record, arg);

    head_bytes_varint(out, arg->mode);
    head_bytes_varint(out, arg->dtype);
    head_bytes_varint(out, arg->reduce_op);
    head_bytes_varint(out, arg->dense);
    head_bytes_varint(
        out, arg->output == NULL ? 0 : head_numbering_of(&saving->tiles, arg->output));
    head_save_view(out, &view);
    head_bytes_varint(out, arg->input_count);
    for (uint32_t i = 0; i < arg->input_count; i++) {
        const struct head_record_input *input = &record->inputs[arg->input_first + i];
        struct pl_box box                     = head_record_box(record, arg, input);

        head_bytes_varint(out, head_numbering_of(&saving->tiles, input->tile));
        head_save_box(out, &box);
    }
}

static uint64_t numbers_of(const struct head_record *record)
{
    uint64_t count = 0;

    for (uint32_t i = 0; i < record->arg_count; i++) {
        count += (3 + 2 * (uint64_t)record->args[i].input_count) * record->args[i].ndim;
    }
    return count;
}

static void save_record(struct head_saving *saving, const struct head_record *record)
{
    struct head_bytes *out   = saving->out;
    const uint64_t numbers[] = {record->serial,
                                record->runs,
                                record->attempts,
                                record->kind,
                                record->function,
                                record->defined != NULL ? head_function_id(record->defined)
                                                        : 0,
                                record->place,
                                record->retries,
                                record->function_retries,
                                record->time_limit_ms,
                                (uint32_t)record->priority,
                                record->cost_bytes,
                                record->read_offset,
                                record->read_length,
                                record->host_buffer};

    head_bytes_varint(out, record->arg_count);
    head_bytes_varint(out, record->input_count);
    head_bytes_varint(out, numbers_of(record));
    head_bytes_varint(out, record->scalar_count);
    head_bytes_varint(out, record->label != NULL);
    head_save_text(out, record->label);
    head_bytes_varint(out, record->launch_shape != NULL);
    for (size_t i = 0; i < PL_COUNT(numbers); i++) {
        head_bytes_varint(out, numbers[i]);
    }
    for (uint32_t i = 0; i < record->scalar_count; i++) {
        head_bytes_varint(out, record->scalars[i]);
    }
    for (size_t i = 0; record->launch_shape != NULL && i < WIRE_LAUNCH_SHAPE_COUNT; i++) {
        head_bytes_varint(out, record->launch_shape[i]);
    }
    for (uint32_t i = 0; i < record->arg_count; i++) {
        save_arg(saving, record, &record->args[i]);
    }
}

void head_lineage_save(struct head_saving *saving)
{
    const struct head_lineage *lineage = &saving->core->lineage;
    const uint64_t numbers[]           = {lineage->serial_last,   lineage->dropped,
                                          lineage->rebuilt_tasks, lineage->rebuilt_bytes,
                                          lineage->rebuilt_never, lineage->shadows};
    const struct pl_list *pos;

    for (size_t i = 0; i < PL_COUNT(numbers); i++) {
        head_bytes_varint(saving->out, numbers[i]);
    }
    head_bytes_varint(saving->out, lineage->records);
    pl_list_for_each(pos, &lineage->all) {
        struct head_record *record = pl_container_of(pos, struct head_record, all_link);

        (void)head_numbering_of(&saving->records, record);
        save_record(saving, record);
    }
    pl_list_for_each(pos, &lineage->idle) {
        head_bytes_varint(
            saving->out, head_numbering_of(&saving->records,
                                           pl_container_of(pos, struct head_record, link)));
    }
}

/* ------------------------------------------------------------------------------ loading */

/* How far the block is filled. */
struct filling {
    struct head_loading *loading;
    struct head_record *record;
    uint32_t inputs;  /* room for so many .. */
    uint32_t numbers; /* .. and these */
    uint32_t number;
};

static bool put_numbers(struct filling *filling, const int64_t *from, uint32_t count)
{
    if (count > filling->numbers - filling->number) {
        filling->loading->in->bad = true;
        return false;
    }
    memcpy(filling->record->numbers + filling->number, from, count * sizeof(int64_t));
    filling->number += count;
    return true;
}

static void load_input(struct filling *filling, struct head_record_arg *arg)
{
    struct head_loading *loading = filling->loading;
    struct head_record *record   = filling->record;
    struct head_tile *tile =
        head_loading_item(loading, &loading->tiles, head_load_number(loading->in));
    uint32_t at = filling->number;
    struct pl_box box;

    head_load_box(loading->in, &box);
    if (loading->in->bad || record->input_count == filling->inputs ||
        box.ndim != arg->ndim || box.ndim != tile->box.ndim ||
        !pl_box_contains(&tile->box, &box) || !put_numbers(filling, box.start, box.ndim) ||
        !put_numbers(filling, box.count, box.ndim)) {
        loading->in->bad = true;
        return;
    }
    record->inputs[record->input_count++] =
        (struct head_record_input){.tile = tile, .box_at = at};
    arg->input_count++;
    head_tile_keep(loading->core, tile);
}

static void load_arg(struct filling *filling, uint32_t index)
{
    struct head_loading *loading = filling->loading;
    struct head_reader *in       = loading->in;
    struct head_record *record   = filling->record;
    struct head_record_arg *arg  = &record->args[index];
    struct pl_view view;
    uint64_t output;
    size_t count;

    arg->mode      = (uint32_t)head_load_below(in, PLASMON__V1__MODE__MODE_SCRATCH);
    arg->dtype     = (uint32_t)head_load_below(in, UINT32_MAX);
    arg->reduce_op = (uint32_t)head_load_below(in, UINT32_MAX);
    arg->dense     = head_load_flag(in);
    output         = head_load_number(in);
    head_load_view(in, &view);
    arg->ndim        = view.ndim;
    arg->view_at     = filling->number;
    arg->input_first = record->input_count;
    if (in->bad || pl_dtype_bytes(arg->dtype) == 0 ||
        !put_numbers(filling, view.start, view.ndim) ||
        !put_numbers(filling, view.count, view.ndim) ||
        !put_numbers(filling, view.step, view.ndim)) {
        in->bad = true;
        return;
    }
    if (output != 0) {
        struct head_tile *tile = head_loading_item(loading, &loading->tiles, output);

        if (tile == NULL || tile->record != NULL) {
            in->bad = true;
            return;
        }
        head_record_made(record, index, tile);
    }
    count = head_load_count(in);
    for (size_t i = 0; i < count && !in->bad; i++) {
        load_input(filling, arg);
    }
}

static void load_settings(struct head_loading *loading, struct head_record *record)
{
    uint64_t numbers[15];
    bool defined;

    for (size_t i = 0; i < PL_COUNT(numbers); i++) {
        numbers[i] = head_load_number(loading->in);
    }
    defined = numbers[5] != 0 && numbers[5] <= UINT32_MAX;
    record->defined =
        defined ? head_function_by_id(loading->core, (uint32_t)numbers[5]) : NULL;
    if ((numbers[5] != 0 && record->defined == NULL) ||
        (numbers[3] != PLASMON__V1__LAUNCH_KIND__LAUNCH_RUN &&
         numbers[3] != PLASMON__V1__LAUNCH_KIND__LAUNCH_READ &&
         numbers[3] != PLASMON__V1__LAUNCH_KIND__LAUNCH_GET_HOST)) {
        loading->in->bad = true;
    }
    record->serial           = numbers[0];
    record->runs             = (uint32_t)numbers[1];
    record->attempts         = (uint8_t)numbers[2];
    record->kind             = (uint32_t)numbers[3];
    record->function         = (uint32_t)numbers[4];
    record->place            = (uint32_t)numbers[6];
    record->retries          = (uint32_t)numbers[7];
    record->function_retries = (uint32_t)numbers[8];
    record->time_limit_ms    = (uint32_t)numbers[9];
    record->priority         = (int32_t)(uint32_t)numbers[10];
    record->cost_bytes       = numbers[11];
    record->read_offset      = numbers[12];
    record->read_length      = numbers[13];
    record->host_buffer      = numbers[14];
}

static void load_record(struct head_loading *loading)
{
    struct head_reader *in         = loading->in;
    struct head_record_sizes sizes = {0};
    struct filling filling         = {.loading = loading};
    bool labelled;
    char *label;

    sizes.args    = head_load_count(in);
    sizes.inputs  = head_load_count(in);
    sizes.numbers = head_load_count(in);
    sizes.scalars = head_load_below(in, WIRE_SCALARS_MAX);
    labelled      = head_load_flag(in);
    label         = head_load_text(in);
    sizes.label   = labelled ? strlen(label) + 1 : 0;
    sizes.shaped  = head_load_flag(in);
    if (in->bad) {
        pl_free(label);
        return;
    }
    filling.record  = head_record_block(&sizes);
    filling.inputs  = (uint32_t)sizes.inputs;
    filling.numbers = (uint32_t)sizes.numbers;
    if (labelled) {
        memcpy(filling.record->label, label, sizes.label);
    }
    pl_free(label);
    load_settings(loading, filling.record);
    head_record_add(loading->core, filling.record);
    head_loading_add(&loading->records, filling.record);
    for (size_t i = 0; i < sizes.scalars; i++) {
        filling.record->scalars[i] = head_load_number(in);
    }
    for (size_t i = 0; sizes.shaped && i < WIRE_LAUNCH_SHAPE_COUNT; i++) {
        filling.record->launch_shape[i] = (uint32_t)head_load_below(in, UINT32_MAX);
    }
    for (uint32_t i = 0; i < sizes.args && !in->bad; i++) {
        load_arg(&filling, i);
    }
    in->bad |=
        filling.number != filling.numbers || filling.record->input_count != filling.inputs;
}

static void load_idle(struct head_loading *loading)
{
    for (size_t i = 0; i < loading->records.count && !loading->in->bad; i++) {
        struct head_record *record =
            head_loading_item(loading, &loading->records, head_load_number(loading->in));

        if (record == NULL || !pl_list_empty(&record->link)) {
            loading->in->bad = true;
            return;
        }
        pl_list_add_tail(&loading->core->lineage.idle, &record->link);
    }
}

/* Each made something, and what it read was made before. */
static bool makes_sense(const struct head_loading *loading)
{
    uint64_t serial = 0;

    for (size_t i = 0; i < loading->records.count; i++) {
        const struct head_record *record =
            *(struct head_record *const *)pl_vec_at(&loading->records, i);

        if (record->serial <= serial || record->refs < 2 ||
            (!head_lineage_on(loading->core) &&
             record->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_RUN)) {
            return false;
        }
        serial = record->serial;
        for (uint32_t k = 0; k < record->input_count; k++) {
            const struct head_record *made = record->inputs[k].tile->record;

            if (made != NULL && made->serial >= record->serial) {
                return false;
            }
        }
    }
    return serial <= loading->core->lineage.serial_last;
}

void head_lineage_load(struct head_loading *loading)
{
    struct head_lineage *lineage = &loading->core->lineage;
    size_t count;

    lineage->serial_last   = head_load_number(loading->in);
    lineage->dropped       = head_load_number(loading->in);
    lineage->rebuilt_tasks = head_load_number(loading->in);
    lineage->rebuilt_bytes = head_load_number(loading->in);
    lineage->rebuilt_never = head_load_number(loading->in);
    lineage->shadows       = head_load_number(loading->in);
    count                  = head_load_count(loading->in);
    for (size_t i = 0; i < count && !loading->in->bad; i++) {
        load_record(loading);
    }
    load_idle(loading);
    loading->in->bad |= !loading->in->bad && !makes_sense(loading);
}

void head_lineage_untie(struct head_loading *loading)
{
    for (size_t i = 0; i < loading->records.count; i++) {
        struct head_record *record =
            *(struct head_record **)pl_vec_at(&loading->records, i);

        for (uint32_t k = 0; k < record->input_count; k++) {
            head_tile_unkeep(loading->core, record->inputs[k].tile);
        }
        record->input_count = 0;
    }
}
