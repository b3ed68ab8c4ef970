/*
 * A step on the cluster: through the same calls that any program uses. What it
 * reads it compares at once with the model; what a failed read may say is in
 * stress.h.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/stress/stress.h"

static struct plasmon_shape shape_of(const struct stress_view *view)
{
    return (struct plasmon_shape){
        .dtype = PLASMON_I64, .ndim = 2, .dim = {view->count[0], view->count[1]}};
}

static bool is_whole(const struct stress_array *array, const struct stress_view *view)
{
    return view->count[0] == array->rows && view->count[1] == array->columns;
}

/* ----------------------------------------------------------------------------- operands */

/* The array's ref, or a view of it that end_operand() releases. */
static struct plasmon_ref *begin_operand(struct stress_thread *thread, uint32_t place,
                                         const struct stress_view *view)
{
    struct stress_array *array = &thread->array[place];
    struct plasmon_ref *ref;

    if (is_whole(array, view)) {
        return array->ref;
    }
    stress_must(thread,
                plasmon_view(thread->ground->client, array->ref, view->start, view->count,
                             view->step, &ref),
                "plasmon_view");
    return ref;
}

static void end_operand(struct stress_thread *thread, uint32_t place,
                        struct plasmon_ref *ref)
{
    if (ref != NULL && ref != thread->array[place].ref) {
        stress_must(thread, plasmon_release(thread->ground->client, ref),
                    "plasmon_release");
    }
}

static plasmon_mode_t mode_of(const struct stress_step *step)
{
    switch (step->kind) {
    case STRESS_ADD_INTO:
    case STRESS_SPIN:
        return PLASMON_INOUT;
    case STRESS_REDUCE:
        return PLASMON_REDUCE;
    default:
        return PLASMON_OUT;
    }
}

/* -------------------------------------------------------------------------------- tasks */

static void scalars_of(const struct stress_step *step, struct plasmon_call *call,
                       plasmon_scalar_t *scalar)
{
    call->scalars = scalar;
    if (step->kind == STRESS_FILL) {
        scalar->i          = (int64_t)step->number;
        call->scalar_count = 1;
    } else if (step->kind == STRESS_SPIN || step->kind == STRESS_SOURCE) {
        scalar->i          = step->delay_us;
        call->scalar_count = 1;
    }
}

/* The same task cut into one for each row, by one message. */
static plasmon_status_t submit_rows(struct stress_thread *thread,
                                    const struct stress_step *step,
                                    const struct plasmon_call *call,
                                    struct plasmon_ref **out_made)
{
    const struct plasmon_index_view row       = {.count   = {1, step->view[0].count[1]},
                                                 .step_of = {{1}}};
    const struct plasmon_index_view *views[3] = {&row, &row, &row};
    struct plasmon_index_space space          = PLASMON_INDEX_SPACE_INIT;

    space.ndim     = 1;
    space.count[0] = (uint32_t)step->view[0].count[0];
    space.views    = views;
    space.spread   = (plasmon_spread_t)(step->number % 3);
    return plasmon_submit_index(thread->ground->client, call, &space,
                                step->fresh ? out_made : NULL, NULL);
}

static void submit_once(struct stress_thread *thread, const struct stress_step *step,
                        const char *function, int device)
{
    const struct plasmon_shape shape = shape_of(&step->view[0]);
    struct plasmon_arg args[3]       = {{.mode = mode_of(step)}};
    struct plasmon_ref *ref[3] = {NULL, NULL, NULL}, *made = NULL;
    struct plasmon_call call = PLASMON_CALL_INIT;
    plasmon_scalar_t scalar;

    args[0].reduce_op = step->kind == STRESS_REDUCE ? PLASMON_REDUCE_SUM : 0;
    args[0].shape     = step->fresh ? &shape : NULL;
    for (uint32_t i = step->fresh ? 1 : 0; i < step->operands; i++) {
        ref[i]      = begin_operand(thread, step->array[i], &step->view[i]);
        args[i].ref = ref[i];
        if (i > 0) {
            args[i].mode = PLASMON_IN;
        }
    }
    call.function  = function;
    call.args      = args;
    call.arg_count = step->operands;
    call.device    = stress_device(thread, device);
    call.retries   = STRESS_RETRIES;
    call.priority  = step->priority;
    scalars_of(step, &call, &scalar);
    stress_must(thread,
                step->by_rows ? submit_rows(thread, step, &call, &made)
                              : plasmon_submit(thread->ground->client, &call,
                                               step->fresh ? &made : NULL, NULL),
                function);
    if (step->fresh) {
        thread->array[step->array[0]].ref = made;
    }
    for (uint32_t i = step->fresh ? 1 : 0; i < step->operands; i++) {
        end_operand(thread, step->array[i], ref[i]);
    }
}

static void submit(struct stress_thread *thread, const struct stress_step *step)
{
    char name[32];

    if (step->kind == STRESS_SOURCE) {
        stress_source_ready(thread, step->source, name);
        submit_once(thread, step, name, step->device);
        return;
    }
    submit_once(thread, step, step->function, step->device);
    for (uint32_t i = 1; i < step->repeat; i++) {
        submit_once(thread, step, step->function,
                    (step->device + (int)i) % (int)thread->ground->devices);
    }
}

static void put(struct stress_thread *thread, const struct stress_step *step)
{
    const struct plasmon_shape shape   = shape_of(&step->view[0]);
    struct plasmon_put_options options = PLASMON_PUT_INIT;
    struct stress_array *array         = &thread->array[step->array[0]];
    uint64_t count = (uint64_t)(step->view[0].count[0] * step->view[0].count[1]);

    for (uint64_t i = 0; i < count; i++) {
        thread->scratch[i] = (step->number + i) * 0x9e3779b97f4a7c15u;
    }
    options.device    = stress_device(thread, step->device);
    options.donatable = step->donatable;
    stress_must(
        thread,
        plasmon_put(thread->ground->client, thread->scratch, &shape, &options, &array->ref),
        "plasmon_put");
    memset(thread->scratch, 0xa5, count * sizeof(uint64_t)); /* it may be changed at once */
}

static void snapshot(struct stress_thread *thread, const struct stress_step *step)
{
    struct plasmon_ref *from = begin_operand(thread, step->array[1], &step->view[1]);

    stress_must(
        thread,
        plasmon_snapshot(thread->ground->client, from, &thread->array[step->array[0]].ref),
        "plasmon_snapshot");
    end_operand(thread, step->array[1], from);
}

static void release(struct stress_thread *thread, uint32_t place)
{
    struct stress_array *array = &thread->array[place];

    stress_must(thread, plasmon_release(thread->ground->client, array->ref),
                "plasmon_release");
    atomic_fetch_add(&thread->ground->covered.frees, 1);
    stress_array_drop(array);
}

/* ------------------------------------------------------------------------------ reading */

/* May this read have failed so? */
static void judge(struct stress_thread *thread, const struct stress_array *array,
                  const struct stress_view *view, plasmon_status_t status, const char *what)
{
    stress_judge(thread, status, (array->ancestors & thread->consumable) != 0,
                 (uint64_t)(view->count[0] * view->count[1]) * sizeof(uint64_t), what);
}

static void compare(struct stress_thread *thread, const char *what,
                    const struct stress_view *view, const uint64_t *want,
                    const uint64_t *got, const int64_t strides[2])
{
    for (int64_t r = 0; r < view->count[0]; r++) {
        for (int64_t c = 0; c < view->count[1]; c++) {
            uint64_t value = got[r * strides[0] + c * strides[1]];

            if (value != *want) {
                stress_fail(thread,
                            "%s: element %lld, %lld is %016" PRIx64 ", not %016" PRIx64,
                            what, (long long)r, (long long)c, value, *want);
            }
            want++;
        }
    }
    atomic_fetch_add(&thread->ground->compared,
                     (uint64_t)(view->count[0] * view->count[1]));
}

static void read_and_compare(struct stress_thread *thread, uint32_t place,
                             const struct stress_view *view, const char *what)
{
    const struct stress_array *array = &thread->array[place];
    const int64_t strides[2]         = {view->count[1], 1};
    size_t bytes            = (size_t)(view->count[0] * view->count[1]) * sizeof(uint64_t);
    struct plasmon_ref *ref = begin_operand(thread, place, view);
    plasmon_status_t status;

    status = plasmon_get(thread->ground->client, ref, thread->scratch, bytes,
                         STRESS_READ_TIMEOUT_MS);
    if (status == PLASMON_OK) {
        stress_show(array, view, thread->want);
        compare(thread, what, view, thread->want, thread->scratch, strides);
    } else {
        judge(thread, array, view, status, what);
    }
    end_operand(thread, place, ref);
}

/* ----------------------------------------------------------------------------- mappings */

static void map(struct stress_thread *thread, const struct stress_step *step)
{
    struct stress_mapping *mapping = &thread->mapping[step->mapping];
    struct stress_array *array     = &thread->array[step->array[0]];
    struct plasmon_ref *ref        = begin_operand(thread, step->array[0], &step->view[0]);
    size_t count = (size_t)(step->view[0].count[0] * step->view[0].count[1]);
    plasmon_status_t status;

    status =
        plasmon_map(thread->ground->client, ref, STRESS_READ_TIMEOUT_MS, &mapping->mapping);
    if (status != PLASMON_OK) {
        mapping->mapping = NULL;
        judge(thread, array, &step->view[0], status, "plasmon_map");
    } else {
        mapping->view  = step->view[0];
        mapping->value = calloc(count, sizeof(uint64_t));
        if (mapping->value == NULL) {
            stress_fail(thread, "out of host memory");
        }
        stress_show(array, &step->view[0], mapping->value);
        compare(thread, "just mapped", &mapping->view, mapping->value,
                plasmon_mapping_data(mapping->mapping),
                plasmon_mapping_strides(mapping->mapping));
    }
    end_operand(thread, step->array[0], ref);
}

/* Its bytes must be what they were, whatever was written since. */
static void unmap(struct stress_thread *thread, struct stress_mapping *mapping)
{
    compare(thread, "mapped for a while", &mapping->view, mapping->value,
            plasmon_mapping_data(mapping->mapping),
            plasmon_mapping_strides(mapping->mapping));
    plasmon_unmap(mapping->mapping);
    free(mapping->value);
    memset(mapping, 0, sizeof(*mapping));
}

/* ---------------------------------------------------------------------------------- all */

void stress_step_play(struct stress_thread *thread, const struct stress_step *step)
{
    switch (step->kind) {
    case STRESS_FILL:
    case STRESS_UNARY:
    case STRESS_BINARY:
    case STRESS_ADD_INTO:
    case STRESS_REDUCE:
    case STRESS_SPIN:
    case STRESS_SOURCE:
        submit(thread, step);
        break;
    case STRESS_PUT:
        put(thread, step);
        break;
    case STRESS_RECORD:
        stress_record_play(thread, step);
        break;
    case STRESS_SNAPSHOT:
        snapshot(thread, step);
        break;
    case STRESS_GET:
        read_and_compare(thread, step->array[0], &step->view[0], "get on the way");
        break;
    case STRESS_MAP:
        map(thread, step);
        break;
    case STRESS_UNMAP:
        unmap(thread, &thread->mapping[step->mapping]);
        break;
    case STRESS_RELEASE:
        release(thread, step->array[0]);
        break;
    case STRESS_LARGE:
        stress_large_play(thread, step);
        break;
    case STRESS_FLOOD:
        stress_flood_play(thread, step);
        break;
    case STRESS_KINDS:
        break;
    }
}

void stress_graph_end(struct stress_thread *thread)
{
    for (uint32_t i = 0; i < STRESS_MAPPINGS_MAX; i++) {
        if (thread->mapping[i].mapping != NULL) {
            unmap(thread, &thread->mapping[i]);
        }
    }
    for (uint32_t i = 0; i < STRESS_ARRAYS_MAX; i++) {
        struct stress_array *array = &thread->array[i];

        if (array->live) {
            const struct stress_view all = {.count = {array->rows, array->columns},
                                            .step  = {1, 1}};
            char what[48];

            (void)snprintf(what, sizeof(what), "get of a%u at the end", i);
            read_and_compare(thread, i, &all, what);
            release(thread, i);
        }
    }
}
