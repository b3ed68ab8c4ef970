#include "worker/reports.h"

#include <string.h>

#include "base/alloc.h"
#include "base/text.h"

/*
 * Of one frame. Well below WIRE_MESSAGE_BYTES_MAX, and small enough that the first reports of a
 * burst are not late.
 */
#define FRAME_DATA_BYTES    (UINT64_C(4) << 20)
#define FRAME_ITEMS_MAX     4096u
#define FRAME_FUNCTIONS_MAX 256u /* 4 KiB of text each */

struct report_failure {
    uint64_t seq;
    plasmon_status_t status;
    char *text;
};

struct report_starved {
    uint64_t seq;
    uint64_t bytes;
    uint64_t largest_hole;
};

struct report_condemned {
    uint64_t seq;
    plasmon_status_t status;
    char *text;
    bool fence;
};

struct report_data {
    uint64_t request;
    plasmon_status_t status;
    uint8_t *bytes;
    uint64_t length;
};

struct report_function {
    uint32_t id;
    plasmon_status_t status;
    char *text;
};

struct report_pair {
    struct worker_pair_report report;
    bool has_id;
    uint8_t id[WIRE_PAIR_ID_BYTES];
    char *text;
};

void worker_report_batch_init(struct worker_report_batch *batch)
{
    memset(batch, 0, sizeof(*batch));
    wire_ranges_init(&batch->done);
    batch->failed    = PL_VEC_INIT(struct report_failure);
    batch->starved   = PL_VEC_INIT(struct report_starved);
    batch->data      = PL_VEC_INIT(struct report_data);
    batch->condemned = PL_VEC_INIT(struct report_condemned);
    batch->functions = PL_VEC_INIT(struct report_function);
    batch->pairs     = PL_VEC_INIT(struct report_pair);
}

static void remove_front(struct pl_vec *vec, size_t count)
{
    vec->count -= count;
    memmove(vec->items, (char *)vec->items + count * vec->item_bytes,
            vec->count * vec->item_bytes);
}

static void failed_forget(struct worker_report_batch *batch, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        pl_free(((struct report_failure *)pl_vec_at(&batch->failed, i))->text);
    }
    if (count != 0) {
        remove_front(&batch->failed, count);
    }
}

static void condemned_forget(struct worker_report_batch *batch, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct report_condemned *condemned = pl_vec_at(&batch->condemned, i);

        pl_free(condemned->text);
    }
    if (count != 0) {
        remove_front(&batch->condemned, count);
    }
}

static void data_forget(struct worker_report_batch *batch, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        pl_free(((struct report_data *)pl_vec_at(&batch->data, i))->bytes);
    }
    if (count != 0) {
        remove_front(&batch->data, count);
    }
}

static void functions_forget(struct worker_report_batch *batch, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        pl_free(((struct report_function *)pl_vec_at(&batch->functions, i))->text);
    }
    if (count != 0) {
        remove_front(&batch->functions, count);
    }
}

static void pairs_forget(struct worker_report_batch *batch, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        pl_free(((struct report_pair *)pl_vec_at(&batch->pairs, i))->text);
    }
    if (count != 0) {
        remove_front(&batch->pairs, count);
    }
}

static void batch_clear(struct worker_report_batch *batch)
{
    failed_forget(batch, batch->failed.count);
    data_forget(batch, batch->data.count);
    condemned_forget(batch, batch->condemned.count);
    functions_forget(batch, batch->functions.count);
    pairs_forget(batch, batch->pairs.count);
    wire_ranges_clear(&batch->done);
    pl_vec_clear(&batch->starved);
    batch->stats_request = 0;
}

void worker_report_batch_finish(struct worker_report_batch *batch)
{
    batch_clear(batch);
    wire_ranges_finish(&batch->done);
    pl_vec_finish(&batch->failed);
    pl_vec_finish(&batch->starved);
    pl_vec_finish(&batch->data);
    pl_vec_finish(&batch->condemned);
    pl_vec_finish(&batch->functions);
    pl_vec_finish(&batch->pairs);
}

bool worker_report_batch_empty(const struct worker_report_batch *batch)
{
    return batch->done.items.count == 0 && batch->failed.count == 0 &&
           batch->starved.count == 0 && batch->data.count == 0 &&
           batch->condemned.count == 0 && batch->functions.count == 0 &&
           batch->pairs.count == 0 && batch->stats_request == 0;
}

/* ---------------------------------------------------------------------------- gathering */

void worker_report_batch_done(struct worker_report_batch *batch, uint64_t first,
                              uint64_t count)
{
    struct pl_vec *ranges    = &batch->done.items;
    struct wire_range *range = NULL;

    if (ranges->count > 0) {
        range = pl_vec_at(ranges, ranges->count - 1);
    }
    if (range != NULL && range->first + range->count == first) {
        range->count += count;
        return;
    }
    range = pl_vec_push(ranges);
    if (range == NULL) {
        batch->incomplete = true;
        return;
    }
    *range = (struct wire_range){.first = first, .count = count};
}

/* The head takes UTF-8 and nothing else. NULL: no memory, and the status has to do. */
static char *text_copy(const char *text)
{
    char *copy = pl_strdup(text);

    if (copy != NULL) {
        pl_text_mend(copy);
    }
    return copy;
}

void worker_report_batch_failed(struct worker_report_batch *batch, uint64_t seq,
                                plasmon_status_t status, const char *text)
{
    struct report_failure *failure = pl_vec_push(&batch->failed);

    if (failure == NULL) {
        batch->incomplete = true;
        return;
    }
    /* Without a text the status has to do. */
    *failure =
        (struct report_failure){.seq = seq, .status = status, .text = text_copy(text)};
}

void worker_report_batch_starved(struct worker_report_batch *batch, uint64_t seq,
                                 uint64_t bytes, uint64_t largest_hole)
{
    struct report_starved *starved = pl_vec_push(&batch->starved);

    if (starved == NULL) {
        batch->incomplete = true;
        return;
    }
    *starved =
        (struct report_starved){.seq = seq, .bytes = bytes, .largest_hole = largest_hole};
}

void worker_report_batch_condemned(struct worker_report_batch *batch,
                                   const struct worker_condemned *condemned)
{
    struct report_condemned *report = pl_vec_push(&batch->condemned);

    if (report == NULL) {
        batch->incomplete = true;
        return;
    }
    *report = (struct report_condemned){.seq    = condemned->seq,
                                        .status = condemned->status,
                                        .text   = text_copy(condemned->text),
                                        .fence  = condemned->fence};
}

void worker_report_batch_data(struct worker_report_batch *batch, uint64_t request,
                              const uint8_t *bytes, uint64_t length)
{
    struct report_data *data = pl_vec_push(&batch->data);
    uint8_t *copy            = data == NULL ? NULL : pl_alloc(length == 0 ? 1 : length);

    if (copy == NULL) {
        batch->incomplete = true;
        if (data != NULL) {
            pl_vec_pop(&batch->data);
        }
        return;
    }
    memcpy(copy, bytes, length);
    *data = (struct report_data){.request = request, .bytes = copy, .length = length};
}

void worker_report_batch_refused(struct worker_report_batch *batch, uint64_t request,
                                 plasmon_status_t status, const uint64_t *buffers,
                                 size_t buffer_count)
{
    size_t count = batch->data.count;

    worker_report_batch_data(
        batch, request, buffer_count > 0 ? (const uint8_t *)buffers : (const uint8_t *)"",
        buffer_count * sizeof(*buffers));
    if (batch->data.count > count) {
        ((struct report_data *)pl_vec_at(&batch->data, count))->status = status;
    }
}

void worker_report_batch_function(struct worker_report_batch *batch, uint32_t id,
                                  plasmon_status_t status, const char *text)
{
    struct report_function *function = pl_vec_push(&batch->functions);

    if (function == NULL) {
        batch->incomplete = true;
        return;
    }
    *function =
        (struct report_function){.id = id, .status = status, .text = text_copy(text)};
}

void worker_report_batch_pair(struct worker_report_batch *batch,
                              const struct worker_pair_report *report)
{
    struct report_pair *pair = pl_vec_push(&batch->pairs);

    if (pair == NULL) {
        batch->incomplete = true;
        return;
    }
    *pair      = (struct report_pair){.report = *report, .has_id = report->id != NULL};
    pair->text = report->text != NULL ? text_copy(report->text) : NULL;
    if (report->id != NULL) {
        memcpy(pair->id, report->id, sizeof(pair->id));
    }
}

/* ------------------------------------------------------------------------------ a frame */

/* An array of `count` pointers to `count` structs of item_bytes each. */
static void **rows(struct wire_arena *arena, size_t count, size_t item_bytes)
{
    void **pointers = wire_arena_alloc(arena, count * sizeof(void *));
    char *items     = wire_arena_alloc(arena, count * item_bytes);

    if (pointers == NULL || items == NULL) {
        return NULL;
    }
    for (size_t i = 0; i < count; i++) {
        pointers[i] = items + i * item_bytes;
    }
    return pointers;
}

static plasmon_status_t fill_done(struct worker_report_batch *batch,
                                  struct wire_arena *arena, Plasmon__V1__WorkerFrame *frame)
{
    size_t count = pl_min_u64(batch->done.items.count, FRAME_ITEMS_MAX);

    frame->done = (Plasmon__V1__Range **)rows(arena, count, sizeof(**frame->done));
    if (frame->done == NULL) {
        return PLASMON_ENOMEM;
    }
    frame->n_done = count;
    for (size_t i = 0; i < count; i++) {
        const struct wire_range *range = pl_vec_at(&batch->done.items, i);

        plasmon__v1__range__init(frame->done[i]);
        frame->done[i]->first = range->first;
        frame->done[i]->count = range->count;
    }
    return PLASMON_OK;
}

static plasmon_status_t fill_failed(struct worker_report_batch *batch,
                                    struct wire_arena *arena,
                                    Plasmon__V1__WorkerFrame *frame)
{
    size_t count = pl_min_u64(batch->failed.count, FRAME_ITEMS_MAX);

    frame->failed =
        (Plasmon__V1__LaunchFailure **)rows(arena, count, sizeof(**frame->failed));
    if (frame->failed == NULL) {
        return PLASMON_ENOMEM;
    }
    frame->n_failed = count;
    for (size_t i = 0; i < count; i++) {
        const struct report_failure *failure = pl_vec_at(&batch->failed, i);

        plasmon__v1__launch_failure__init(frame->failed[i]);
        frame->failed[i]->seq    = failure->seq;
        frame->failed[i]->status = failure->status;
        frame->failed[i]->text   = failure->text != NULL
                                       ? failure->text
                                       : (char *)(uintptr_t)pl_status_text(failure->status);
    }
    return PLASMON_OK;
}

static plasmon_status_t fill_starved(struct worker_report_batch *batch,
                                     struct wire_arena *arena,
                                     Plasmon__V1__WorkerFrame *frame)
{
    size_t count = pl_min_u64(batch->starved.count, FRAME_ITEMS_MAX);

    frame->starved = (Plasmon__V1__Starved **)rows(arena, count, sizeof(**frame->starved));
    if (frame->starved == NULL) {
        return PLASMON_ENOMEM;
    }
    frame->n_starved = count;
    for (size_t i = 0; i < count; i++) {
        const struct report_starved *starved = pl_vec_at(&batch->starved, i);

        plasmon__v1__starved__init(frame->starved[i]);
        frame->starved[i]->seq          = starved->seq;
        frame->starved[i]->bytes        = starved->bytes;
        frame->starved[i]->largest_hole = starved->largest_hole;
    }
    return PLASMON_OK;
}

static plasmon_status_t fill_condemned(struct worker_report_batch *batch,
                                       struct wire_arena *arena,
                                       Plasmon__V1__WorkerFrame *frame)
{
    size_t count = pl_min_u64(batch->condemned.count, FRAME_ITEMS_MAX);

    frame->condemned =
        (Plasmon__V1__Condemned **)rows(arena, count, sizeof(**frame->condemned));
    if (frame->condemned == NULL) {
        return PLASMON_ENOMEM;
    }
    frame->n_condemned = count;
    for (size_t i = 0; i < count; i++) {
        const struct report_condemned *report = pl_vec_at(&batch->condemned, i);

        plasmon__v1__condemned__init(frame->condemned[i]);
        frame->condemned[i]->seq    = report->seq;
        frame->condemned[i]->status = report->status;
        frame->condemned[i]->text   = report->text != NULL ? report->text : "";
        frame->condemned[i]->fence  = report->fence;
    }
    return PLASMON_OK;
}

static size_t data_that_fits(const struct worker_report_batch *batch)
{
    uint64_t bytes = 0;
    size_t count   = 0;

    while (count < batch->data.count && count < FRAME_ITEMS_MAX &&
           bytes < FRAME_DATA_BYTES) {
        bytes += ((struct report_data *)pl_vec_at(&batch->data, count))->length;
        count++;
    }
    return count;
}

static plasmon_status_t fill_data(struct worker_report_batch *batch,
                                  struct wire_arena *arena, Plasmon__V1__WorkerFrame *frame)
{
    size_t count = data_that_fits(batch);

    frame->data = (Plasmon__V1__WorkerData **)rows(arena, count, sizeof(**frame->data));
    if (frame->data == NULL) {
        return PLASMON_ENOMEM;
    }
    frame->n_data = count;
    for (size_t i = 0; i < count; i++) {
        const struct report_data *data = pl_vec_at(&batch->data, i);

        plasmon__v1__worker_data__init(frame->data[i]);
        frame->data[i]->request    = data->request;
        frame->data[i]->status     = data->status;
        frame->data[i]->bytes.data = data->bytes;
        frame->data[i]->bytes.len  = data->length;
    }
    return PLASMON_OK;
}

static plasmon_status_t fill_functions(struct worker_report_batch *batch,
                                       struct wire_arena *arena,
                                       Plasmon__V1__WorkerFrame *frame)
{
    size_t count = pl_min_u64(batch->functions.count, FRAME_FUNCTIONS_MAX);

    frame->functions =
        (Plasmon__V1__FunctionReport **)rows(arena, count, sizeof(**frame->functions));
    if (frame->functions == NULL) {
        return PLASMON_ENOMEM;
    }
    frame->n_functions = count;
    for (size_t i = 0; i < count; i++) {
        const struct report_function *function = pl_vec_at(&batch->functions, i);

        plasmon__v1__function_report__init(frame->functions[i]);
        frame->functions[i]->id     = function->id;
        frame->functions[i]->status = function->status;
        if (function->text != NULL) {
            frame->functions[i]->text = function->text;
        }
    }
    return PLASMON_OK;
}

static plasmon_status_t fill_pairs(struct worker_report_batch *batch,
                                   struct wire_arena *arena,
                                   Plasmon__V1__WorkerFrame *frame)
{
    size_t count = pl_min_u64(batch->pairs.count, FRAME_FUNCTIONS_MAX);

    frame->pairs = (Plasmon__V1__PairReport **)rows(arena, count, sizeof(**frame->pairs));
    if (frame->pairs == NULL) {
        return PLASMON_ENOMEM;
    }
    frame->n_pairs = count;
    for (size_t i = 0; i < count; i++) {
        struct report_pair *pair = pl_vec_at(&batch->pairs, i);

        plasmon__v1__pair_report__init(frame->pairs[i]);
        frame->pairs[i]->peer     = pair->report.key.peer;
        frame->pairs[i]->receives = pair->report.key.receives;
        frame->pairs[i]->team     = pair->report.key.team;
        frame->pairs[i]->epoch    = pair->report.key.epoch;
        frame->pairs[i]->event    = (Plasmon__V1__PairEvent)pair->report.event;
        frame->pairs[i]->bytes    = pair->report.bytes;
        frame->pairs[i]->chunk    = pair->report.chunk;
        if (pair->has_id) {
            frame->pairs[i]->id.data = pair->id;
            frame->pairs[i]->id.len  = sizeof(pair->id);
        }
        if (pair->text != NULL) {
            frame->pairs[i]->text = pair->text;
        }
    }
    return PLASMON_OK;
}

plasmon_status_t worker_report_batch_fill(struct worker_report_batch *batch,
                                          struct wire_arena *arena,
                                          Plasmon__V1__WorkerFrame *frame)
{
    plasmon_status_t status = fill_data(batch, arena, frame);

    if (status == PLASMON_OK) {
        status = fill_failed(batch, arena, frame);
    }
    /* What a relief needs no more is told before what needs memory again. */
    if (status == PLASMON_OK && frame->n_data == batch->data.count) {
        status = fill_starved(batch, arena, frame);
    }
    if (status == PLASMON_OK) {
        status = fill_condemned(batch, arena, frame);
    }
    if (status == PLASMON_OK) {
        status = fill_functions(batch, arena, frame);
    }
    /* A read's bytes are told before or together with its end. */
    if (status == PLASMON_OK && frame->n_data == batch->data.count) {
        status = fill_done(batch, arena, frame);
    }
    /* That a pair is quiet, after all that came by it. */
    if (status == PLASMON_OK && frame->n_done == batch->done.items.count) {
        status = fill_pairs(batch, arena, frame);
    }
    return status;
}

void worker_report_batch_sent(struct worker_report_batch *batch,
                              const Plasmon__V1__WorkerFrame *frame)
{
    data_forget(batch, frame->n_data);
    failed_forget(batch, frame->n_failed);
    condemned_forget(batch, frame->n_condemned);
    functions_forget(batch, frame->n_functions);
    pairs_forget(batch, frame->n_pairs);
    if (frame->n_starved != 0) {
        remove_front(&batch->starved, frame->n_starved);
    }
    if (frame->n_done != 0) {
        remove_front(&batch->done.items, frame->n_done);
    }
    batch->stats_request = 0;
}
