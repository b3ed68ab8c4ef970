/*
 * Programs: one random step after another, and what each means.
 *
 * A step that writes takes its operands as boxes of one size, each somewhere in
 * its array and with its own steps, so that views meet each other in every way.
 * The written array is never among the read ones: that call would be refused.
 *
 * Weights are for trouble: much is read right after it was written, on another
 * device; much is released right after it was used, so that its memory goes to
 * somebody else while a delayed kernel still reads it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/stress/stress.h"

static const uint32_t weight[STRESS_KINDS] = {
    [STRESS_FILL] = 6,    [STRESS_PUT] = 6,       [STRESS_UNARY] = 14,
    [STRESS_BINARY] = 16, [STRESS_ADD_INTO] = 14, [STRESS_REDUCE] = 6,
    [STRESS_SOURCE] = 14, [STRESS_SPIN] = 14,     [STRESS_SNAPSHOT] = 5,
    [STRESS_RECORD] = 4,  [STRESS_GET] = 4,       [STRESS_MAP] = 3,
    [STRESS_UNMAP] = 3,   [STRESS_RELEASE] = 12,  [STRESS_LARGE] = 1,
    [STRESS_FLOOD] = 1,
};

static const char *const unary[]  = {"copy", "negative", "square"};
static const char *const binary[] = {"add", "subtract", "multiply", "minimum"};

/* SplitMix64. */
uint64_t stress_random(uint64_t *io_state)
{
    uint64_t z = (*io_state += 0x9e3779b97f4a7c15u);

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

uint64_t stress_draw(struct stress_thread *thread, uint64_t bound)
{
    return stress_random(&thread->random) % bound;
}

bool stress_chance(struct stress_thread *thread, uint32_t percent)
{
    return stress_draw(thread, 100) < percent;
}

/* --------------------------------------------------------------------- arrays and views */

static uint32_t live_count(const struct stress_thread *thread)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < STRESS_ARRAYS_MAX; i++) {
        count += thread->array[i].live;
    }
    return count;
}

/* A live one that is at least so large, not `other`; STRESS_ARRAYS_MAX: there
 * is none. */
static uint32_t pick_array(struct stress_thread *thread, int64_t rows, int64_t columns,
                           uint32_t other)
{
    uint32_t start = (uint32_t)stress_draw(thread, STRESS_ARRAYS_MAX);

    for (uint32_t k = 0; k < STRESS_ARRAYS_MAX; k++) {
        uint32_t i                       = (start + k) % STRESS_ARRAYS_MAX;
        const struct stress_array *array = &thread->array[i];

        if (array->live && i != other && array->rows >= rows && array->columns >= columns) {
            return i;
        }
    }
    return STRESS_ARRAYS_MAX;
}

static uint32_t free_place(const struct stress_thread *thread)
{
    uint32_t i = 0;

    while (i < STRESS_ARRAYS_MAX && thread->array[i].live) {
        i++;
    }
    return thread->fresh_count < STRESS_FRESH_MAX ? i : STRESS_ARRAYS_MAX;
}

/* A box of that size somewhere in the array, sometimes with steps. */
static struct stress_view view_of(struct stress_thread *thread,
                                  const struct stress_array *array, const int64_t count[2])
{
    const int64_t extent[2] = {array->rows, array->columns};
    struct stress_view view;

    for (int d = 0; d < 2; d++) {
        int64_t step_max = count[d] > 1 ? (extent[d] - 1) / (count[d] - 1) : 1;
        int64_t span;

        view.count[d] = count[d];
        view.step[d] =
            step_max > 1 && stress_chance(thread, 25)
                ? 1 + (int64_t)stress_draw(thread, (uint64_t)(step_max > 3 ? 3 : step_max))
                : 1;
        span          = (count[d] - 1) * view.step[d] + 1;
        view.start[d] = (int64_t)stress_draw(thread, (uint64_t)(extent[d] - span + 1));
    }
    return view;
}

static void random_count(struct stress_thread *thread, const struct stress_array *array,
                         int64_t out_count[2])
{
    out_count[0] = array->rows;
    out_count[1] = array->columns;
    if (stress_chance(thread, 45)) {
        out_count[0] = 1 + (int64_t)stress_draw(thread, (uint64_t)array->rows);
    }
    if (stress_chance(thread, 25)) {
        out_count[1] = 1 + (int64_t)stress_draw(thread, (uint64_t)array->columns);
    }
}

static uint64_t *at(const struct stress_array *array, const struct stress_view *view,
                    int64_t row, int64_t column)
{
    int64_t r = view->start[0] + row * view->step[0];
    int64_t c = view->start[1] + column * view->step[1];

    return &array->value[r * array->columns + c];
}

void stress_show(const struct stress_array *array, const struct stress_view *view,
                 uint64_t *out)
{
    for (int64_t r = 0; r < view->count[0]; r++) {
        for (int64_t c = 0; c < view->count[1]; c++) {
            *out++ = *at(array, view, r, c);
        }
    }
}

void stress_array_drop(struct stress_array *array)
{
    free(array->value);
    memset(array, 0, sizeof(*array));
}

/* ------------------------------------------------------------------------------- making */

static bool make_fresh(struct stress_thread *thread, struct stress_step *step)
{
    static const int64_t columns[] = {16, 64, 100, 256, STRESS_COLUMNS_MAX};
    uint32_t place                 = free_place(thread);

    if (place == STRESS_ARRAYS_MAX) {
        return false;
    }
    step->fresh    = true;
    step->array[0] = place;
    step->operands = 1;
    step->view[0]  = (struct stress_view){
         .count = {1 + (int64_t)stress_draw(thread, STRESS_ROWS_MAX),
                   columns[stress_draw(thread, sizeof(columns) / sizeof(columns[0]))]},
         .step  = {1, 1}};
    return true;
}

/* Read operands for a destination of step->view[0].count. */
static bool add_sources(struct stress_thread *thread, struct stress_step *step,
                        uint32_t count)
{
    const int64_t *size = step->view[0].count;

    for (uint32_t i = 0; i < count; i++) {
        uint32_t array = pick_array(thread, size[0], size[1],
                                    step->fresh ? STRESS_ARRAYS_MAX : step->array[0]);

        if (array == STRESS_ARRAYS_MAX) {
            return false;
        }
        step->array[step->operands]  = array;
        step->view[step->operands++] = view_of(thread, &thread->array[array], size);
    }
    return true;
}

/* A destination in an array that exists. */
static bool make_target(struct stress_thread *thread, struct stress_step *step)
{
    int64_t count[2];
    uint32_t array = pick_array(thread, 1, 1, STRESS_ARRAYS_MAX);

    if (array == STRESS_ARRAYS_MAX) {
        return false;
    }
    random_count(thread, &thread->array[array], count);
    step->array[0] = array;
    step->view[0]  = view_of(thread, &thread->array[array], count);
    step->operands = 1;
    return true;
}

/* A new array, of the size of a part of one that exists; or a part of one that
 * exists. */
static bool make_destination(struct stress_thread *thread, struct stress_step *step)
{
    struct stress_view view;

    if (!make_target(thread, step)) {
        return false;
    }
    if (stress_chance(thread, 65) && free_place(thread) < STRESS_ARRAYS_MAX) {
        view           = step->view[0];
        step->fresh    = true;
        step->array[0] = free_place(thread);
        step->view[0] =
            (struct stress_view){.count = {view.count[0], view.count[1]}, .step = {1, 1}};
    }
    return true;
}

/* Mostly a known one, sometimes one that nobody has loaded yet. A C compiler
 * takes its time, and keeps nothing on disk. */
static uint32_t draw_source(struct stress_thread *thread)
{
    bool gpu = thread->ground->gpu;

    if (stress_chance(thread, gpu ? 10 : 2)) {
        return (uint32_t)stress_draw(thread, thread->ground->source_count);
    }
    return (uint32_t)stress_draw(thread, gpu ? 4 : 1);
}

static bool make_source(struct stress_thread *thread, struct stress_step *step)
{
    step->source = draw_source(thread);
    return thread->ground->sources && make_destination(thread, step) &&
           add_sources(thread, step, 2);
}

static bool make_map(struct stress_thread *thread, struct stress_step *step)
{
    for (uint32_t i = 0; i < STRESS_MAPPINGS_MAX; i++) {
        if (thread->mapping[i].mapping == NULL) {
            step->mapping = i;
            return !thread->ground->gpu && make_target(thread, step);
        }
    }
    return false;
}

static bool make_unmap(struct stress_thread *thread, struct stress_step *step)
{
    step->mapping = (uint32_t)stress_draw(thread, STRESS_MAPPINGS_MAX);
    return thread->mapping[step->mapping].mapping != NULL;
}

static bool make_snapshot(struct stress_thread *thread, struct stress_step *step)
{
    int64_t count[2];
    uint32_t place = free_place(thread);
    uint32_t from  = pick_array(thread, 1, 1, STRESS_ARRAYS_MAX);

    if (place == STRESS_ARRAYS_MAX || from == STRESS_ARRAYS_MAX) {
        return false;
    }
    random_count(thread, &thread->array[from], count);
    step->fresh    = true;
    step->array[0] = place;
    step->array[1] = from;
    step->view[1]  = view_of(thread, &thread->array[from], count);
    step->view[0]  = (struct stress_view){.count = {count[0], count[1]}, .step = {1, 1}};
    step->operands = 2;
    return true;
}

static bool waits(enum stress_kind kind)
{
    return kind == STRESS_GET || kind == STRESS_MAP || kind == STRESS_LARGE ||
           kind == STRESS_FLOOD;
}

static bool make_kind(struct stress_thread *thread, struct stress_step *step)
{
    switch (step->kind) {
    case STRESS_FILL:
        step->function = "fill_int";
        step->number   = stress_draw(thread, UINT64_MAX);
        return stress_chance(thread, 50) ? make_fresh(thread, step)
                                         : make_target(thread, step);
    case STRESS_PUT:
        step->number    = stress_draw(thread, UINT64_MAX);
        step->donatable = stress_chance(thread, 50);
        return make_fresh(thread, step);
    case STRESS_UNARY:
        step->function = unary[stress_draw(thread, sizeof(unary) / sizeof(unary[0]))];
        step->by_rows  = stress_chance(thread, 15);
        return make_destination(thread, step) && add_sources(thread, step, 1);
    case STRESS_BINARY:
        step->function = binary[stress_draw(thread, sizeof(binary) / sizeof(binary[0]))];
        step->by_rows  = stress_chance(thread, 15);
        return make_destination(thread, step) && add_sources(thread, step, 2);
    case STRESS_ADD_INTO:
        step->function = "add_into";
        return make_target(thread, step) && add_sources(thread, step, 1);
    case STRESS_REDUCE:
        step->function = stress_chance(thread, 50) ? "add_into" : "accumulate";
        step->repeat   = 1 + (uint32_t)stress_draw(thread, 4);
        return make_target(thread, step) && add_sources(thread, step, 1);
    case STRESS_SPIN:
        step->function = "spin";
        return make_target(thread, step);
    case STRESS_SOURCE:
        return make_source(thread, step);
    case STRESS_SNAPSHOT:
        return make_snapshot(thread, step);
    case STRESS_RECORD:
        step->repeat = 1 + (uint32_t)stress_draw(thread, 3);
        return thread->fresh_count + 3 * STRESS_RECORD_MAX < STRESS_FRESH_MAX;
    case STRESS_GET:
        return make_target(thread, step);
    case STRESS_MAP:
        return make_map(thread, step);
    case STRESS_UNMAP:
        return make_unmap(thread, step);
    case STRESS_RELEASE:
        step->array[0] = pick_array(thread, 1, 1, STRESS_ARRAYS_MAX);
        return live_count(thread) > 3;
    case STRESS_LARGE:
        step->number =
            (1u << 20) + stress_draw(thread, thread->ground->large_bytes - (1u << 20));
        return !thread->ground->scarce;
    case STRESS_FLOOD:
        step->repeat = 4 + (uint32_t)stress_draw(thread, STRESS_FLOOD_MAX - 3);
        return thread->ground->scarce;
    case STRESS_KINDS:
        break;
    }
    return false;
}

static enum stress_kind draw_kind(struct stress_thread *thread)
{
    uint32_t sum = 0, drawn;

    for (uint32_t i = 0; i < STRESS_KINDS; i++) {
        sum += weight[i];
    }
    drawn = (uint32_t)stress_draw(thread, sum);
    for (uint32_t i = 0; i < STRESS_KINDS; i++) {
        if (drawn < weight[i]) {
            return (enum stress_kind)i;
        }
        drawn -= weight[i];
    }
    return STRESS_GET;
}

/* Mostly short, sometimes long enough that a chain of waits builds up behind
 * it. */
static uint32_t draw_delay(struct stress_thread *thread)
{
    return (uint32_t)stress_draw(thread, stress_chance(thread, 5) ? 10000 : 500);
}

void stress_step_make(struct stress_thread *thread, struct stress_step *out_step)
{
    do {
        memset(out_step, 0, sizeof(*out_step));
        out_step->kind     = live_count(thread) < 3 ? STRESS_PUT : draw_kind(thread);
        out_step->device   = stress_chance(thread, 80)
                                 ? (int)stress_draw(thread, thread->ground->devices)
                                 : PLASMON_ANYWHERE;
        out_step->delay_us = draw_delay(thread);
        out_step->priority =
            stress_chance(thread, 30) ? (int)stress_draw(thread, 3) - 1 : 0;
    } while ((thread->quiet && waits(out_step->kind)) || !make_kind(thread, out_step));
}

bool stress_step_make_recorded(struct stress_thread *thread, struct stress_step *out_step)
{
    static const enum stress_kind kinds[] = {STRESS_FILL,     STRESS_UNARY, STRESS_BINARY,
                                             STRESS_ADD_INTO, STRESS_SPIN,  STRESS_REDUCE,
                                             STRESS_SOURCE};

    for (uint32_t attempts = 0; attempts < 20; attempts++) {
        memset(out_step, 0, sizeof(*out_step));
        out_step->kind     = kinds[stress_draw(thread, sizeof(kinds) / sizeof(kinds[0]))];
        out_step->device   = (int)stress_draw(thread, thread->ground->devices);
        out_step->delay_us = draw_delay(thread) / 4;
        if (make_kind(thread, out_step)) {
            out_step->by_rows = false; /* is not recorded */
            return true;
        }
    }
    return false;
}

/* ------------------------------------------------------------------------------ meaning */

static uint64_t combine(const char *function, uint64_t x, uint64_t z)
{
    switch (function[0]) {
    case 'c':
        return x;
    case 'n':
        return 0 - x;
    case 'a':
        return x + z;
    case 's':
        return function[1] == 'q' ? x * x : x - z;
    default:
        break;
    }
    if (function[1] == 'u') {
        return x * z;
    }
    return (int64_t)x < (int64_t)z ? x : z; /* minimum */
}

static uint64_t element(const struct stress_thread *thread, const struct stress_step *step,
                        int64_t r, int64_t c)
{
    const uint64_t *operand[3] = {NULL, NULL, NULL};

    for (uint32_t i = step->fresh ? 1 : 0; i < step->operands; i++) {
        operand[i] = at(&thread->array[step->array[i]], &step->view[i], r, c);
    }
    switch (step->kind) {
    case STRESS_FILL:
        return step->number;
    case STRESS_PUT:
        return (step->number + (uint64_t)(r * step->view[0].count[1] + c)) *
               0x9e3779b97f4a7c15u;
    case STRESS_ADD_INTO:
        return *operand[0] + *operand[1];
    case STRESS_REDUCE:
        return *operand[0] + step->repeat * *operand[1];
    case STRESS_SPIN:
        return *operand[0];
    case STRESS_SNAPSHOT:
        return *operand[1];
    case STRESS_SOURCE:
        return stress_source_value(step->source, *operand[1], *operand[2]);
    default:
        return combine(step->function, *operand[1], step->operands > 2 ? *operand[2] : 0);
    }
}

static bool writes(enum stress_kind kind)
{
    return kind <= STRESS_SNAPSHOT;
}

static void apply_write(struct stress_thread *thread, const struct stress_step *step)
{
    struct stress_array *array = &thread->array[step->array[0]];

    if (step->fresh) {
        array->rows      = step->view[0].count[0];
        array->columns   = step->view[0].count[1];
        array->value     = calloc((size_t)(array->rows * array->columns), sizeof(uint64_t));
        array->bit       = thread->fresh_count++;
        array->ancestors = 1ull << array->bit;
        if (array->value == NULL) {
            stress_fail(thread, "out of host memory");
        }
    } else {
        thread->consumable |= 1ull << array->bit;
    }
    for (uint32_t i = 1; i < step->operands; i++) {
        array->ancestors |= thread->array[step->array[i]].ancestors;
    }
    for (int64_t r = 0; r < step->view[0].count[0]; r++) {
        for (int64_t c = 0; c < step->view[0].count[1]; c++) {
            *at(array, &step->view[0], r, c) = element(thread, step, r, c);
        }
    }
    array->live = true;
}

void stress_step_apply(struct stress_thread *thread, const struct stress_step *step)
{
    if (writes(step->kind)) {
        apply_write(thread, step);
    }
}

/* ----------------------------------------------------------------------------- in words */

static int put_view(char *out, size_t size, uint32_t array, const struct stress_view *view)
{
    return snprintf(out, size, " a%u[%lld:%lld:%lld,%lld:%lld:%lld]", array,
                    (long long)view->start[0], (long long)view->count[0],
                    (long long)view->step[0], (long long)view->start[1],
                    (long long)view->count[1], (long long)view->step[1]);
}

void stress_describe(const struct stress_step *step, char out[STRESS_LINE_BYTES])
{
    size_t used = 0;
    int wrote   = snprintf(out, STRESS_LINE_BYTES, "%s%s%s on %d%s,",
                           stress_kind_name(step->kind), step->function != NULL ? " " : "",
                         step->function != NULL ? step->function : "", step->device,
                         step->fresh ? ", new" : "");

    used = wrote > 0 ? (size_t)wrote : 0;
    if (step->kind == STRESS_RELEASE) {
        (void)snprintf(out + used, STRESS_LINE_BYTES - used, " a%u", step->array[0]);
    }
    for (uint32_t i = 0; i < step->operands && used < STRESS_LINE_BYTES - 1; i++) {
        wrote =
            put_view(out + used, STRESS_LINE_BYTES - used, step->array[i], &step->view[i]);
        used += wrote > 0 ? (size_t)wrote : 0;
    }
    if (used < STRESS_LINE_BYTES - 1 &&
        (step->kind == STRESS_SPIN || step->kind == STRESS_SOURCE)) {
        (void)snprintf(out + used, STRESS_LINE_BYTES - used, " %u us", step->delay_us);
    }
}
