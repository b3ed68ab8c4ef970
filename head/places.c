/* See places.h. */
#include "head/places.h"

#include <stdlib.h>

#include "base/pool.h"
#include "head/core_int.h"

#define KINDS 3u

struct head_placed {
    struct pl_span span;
    const struct pl_box *box; /* its own */
    void *what;               /* struct head_use, or head_instance */
    uint64_t number;          /* of an instance: in the order of the list */
    bool counted;             /* a use: in copy_writers, or ahead_readers */
};

struct head_places {
    struct pl_spans spans[KINDS];
    uint64_t number_last;
    uint32_t copy_writers;  /* that were copies when they came */
    uint32_t ahead_readers; /* copies to host memory before there is need */
};

#define FEW_MAX 40u

uint32_t head_places_few = FEW_MAX;

static _Thread_local struct pl_pool pool = PL_POOL_INIT(struct head_placed, 4096);

/* -------------------------------------------------------------------------------- where */

/* Of the part of the box that the buffer holds. false: it holds none of it. */
static bool span_of(const struct head_buffer *buffer, const struct pl_box *box,
                    struct pl_span_at *out_at)
{
    const struct pl_box *frame = &buffer->frame;
    struct pl_shape held       = {.ndim = frame->ndim};
    struct pl_box part;

    if (!pl_box_intersection(box, frame, &part)) {
        return false;
    }
    for (uint32_t d = 0; d < frame->ndim; d++) {
        held.dim[d] = frame->count[d];
        part.start[d] -= frame->start[d];
    }
    *out_at = pl_span_of_box(&held, &part);
    return true;
}

static struct head_placed *placed_add(struct head_buffer *buffer, enum head_place_kind kind,
                                      const struct pl_box *box, void *what)
{
    struct head_placed *placed = head_pool_get(&pool);
    struct pl_span_at at;

    placed->box    = box;
    placed->what   = what;
    placed->number = ++buffer->places->number_last;
    PL_CHECK(span_of(buffer, box, &at));
    PL_CHECK(pl_spans_add(&buffer->places->spans[kind], &placed->span, &at));
    return placed;
}

static void placed_remove(struct head_buffer *buffer, enum head_place_kind kind,
                          struct head_placed **io_placed)
{
    pl_spans_remove(&buffer->places->spans[kind], &(*io_placed)->span);
    pl_pool_put(&pool, *io_placed);
    *io_placed = NULL;
}

/* ---------------------------------------------------------------------------------- one */

static void instance_place(struct head_instance *instance)
{
    instance->placed =
        placed_add(instance->buffer, HEAD_PLACE_INSTANCE, &instance->box, instance);
}

static enum head_place_kind kind_of(bool write)
{
    return write ? HEAD_PLACE_WRITER : HEAD_PLACE_READER;
}

/* What its launch is may change; what is counted of it does not. */
static uint32_t *counter_of(const struct head_use *use)
{
    return use->write ? &use->buffer->places->copy_writers
                      : &use->buffer->places->ahead_readers;
}

static void use_place(struct head_use *use)
{
    use->placed          = placed_add(use->buffer, kind_of(use->write), &use->box, use);
    use->placed->counted = use->write
                               ? use->task->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_COPY
                               : use->task->ahead;
    *counter_of(use) += use->placed->counted;
}

static void use_displace(struct head_use *use)
{
    *counter_of(use) -= use->placed->counted;
    placed_remove(use->buffer, kind_of(use->write), &use->placed);
}

/* ---------------------------------------------------------------------------- many, few */

static void places_make(struct head_buffer *buffer)
{
    struct pl_list *pos;

    buffer->places = head_alloc(sizeof(*buffer->places));
    for (unsigned kind = 0; kind < KINDS; kind++) {
        pl_spans_init(&buffer->places->spans[kind]);
    }
    pl_list_for_each(pos, &buffer->instances) {
        instance_place(pl_container_of(pos, struct head_instance, buffer_link));
    }
    pl_list_for_each(pos, &buffer->readers) {
        use_place(pl_container_of(pos, struct head_use, link));
    }
    pl_list_for_each(pos, &buffer->writers) {
        use_place(pl_container_of(pos, struct head_use, link));
    }
}

static void places_drop(struct head_buffer *buffer)
{
    struct pl_list *pos;

    pl_list_for_each(pos, &buffer->instances) {
        placed_remove(buffer, HEAD_PLACE_INSTANCE,
                      &pl_container_of(pos, struct head_instance, buffer_link)->placed);
    }
    pl_list_for_each(pos, &buffer->readers) {
        use_displace(pl_container_of(pos, struct head_use, link));
    }
    pl_list_for_each(pos, &buffer->writers) {
        use_displace(pl_container_of(pos, struct head_use, link));
    }
    for (unsigned kind = 0; kind < KINDS; kind++) {
        pl_spans_finish(&buffer->places->spans[kind]);
    }
    pl_free(buffer->places);
    buffer->places = NULL;
}

/* One came. */
static void grown(struct head_buffer *buffer)
{
    if (buffer->places == NULL && buffer->placed_count > head_places_few) {
        places_make(buffer);
    }
}

/* One went. */
static void shrunk(struct head_buffer *buffer)
{
    if (buffer->places != NULL && buffer->placed_count < head_places_few / 2) {
        places_drop(buffer);
    }
}

void head_places_instance_add(struct head_instance *instance)
{
    struct head_buffer *buffer = instance->buffer;

    buffer->placed_count++;
    if (buffer->places != NULL) {
        instance_place(instance);
    }
    grown(buffer);
}

void head_places_instance_remove(struct head_instance *instance)
{
    struct head_buffer *buffer = instance->buffer;

    buffer->placed_count--;
    if (buffer->places != NULL) {
        placed_remove(buffer, HEAD_PLACE_INSTANCE, &instance->placed);
    }
    shrunk(buffer);
}

void head_places_use_add(struct head_use *use)
{
    struct head_buffer *buffer = use->buffer;

    buffer->placed_count++;
    if (buffer->places != NULL) {
        use_place(use);
    }
    grown(buffer);
}

void head_places_use_remove(struct head_use *use)
{
    struct head_buffer *buffer = use->buffer;

    buffer->placed_count--;
    if (buffer->places != NULL) {
        use_displace(use);
    }
    shrunk(buffer);
}

/* ------------------------------------------------------------------------------ finding */

struct meeting {
    const struct pl_box *box;
    struct pl_vec *found; /* struct head_placed * */
};

static bool meeting_take(void *user, struct pl_span *span)
{
    const struct meeting *meeting = user;
    struct head_placed *placed    = pl_container_of(span, struct head_placed, span);
    struct head_placed **place;

    if (pl_box_intersects(placed->box, meeting->box)) {
        place = pl_vec_push(meeting->found);
        PL_CHECK(place != NULL);
        *place = placed;
    }
    return false;
}

static int compare_instances(const void *a, const void *b)
{
    uint64_t x = (*(struct head_placed *const *)a)->number;
    uint64_t y = (*(struct head_placed *const *)b)->number;

    return (x > y) - (x < y);
}

/*
 * As they were planned, which for writers is the order of the list; those of one launch lie one
 * behind the other.
 */
static int compare_uses(const void *a, const void *b)
{
    const struct head_use *x = (*(struct head_placed *const *)a)->what;
    const struct head_use *y = (*(struct head_placed *const *)b)->what;

    return x->task->order != y->task->order
               ? (x->task->order > y->task->order) - (x->task->order < y->task->order)
               : (x > y) - (x < y);
}

/* What meets the box, in order: pointers to uses or instances. */
static void *find(const struct head_buffer *buffer, enum head_place_kind kind,
                  const struct pl_box *box, size_t *out_count)
{
    static _Thread_local struct pl_vec founds[KINDS] = {{.item_bytes = sizeof(void *)},
                                                        {.item_bytes = sizeof(void *)},
                                                        {.item_bytes = sizeof(void *)}};
    struct pl_vec *found                             = &founds[kind];
    struct meeting meeting                           = {.box = box, .found = found};
    struct pl_span_at at;

    pl_vec_clear(found);
    if (span_of(buffer, box, &at)) {
        (void)pl_spans_meet(&buffer->places->spans[kind], &at, meeting_take, &meeting);
    }
    if (found->count > 1) {
        qsort(found->items, found->count, sizeof(void *),
              kind == HEAD_PLACE_INSTANCE ? compare_instances : compare_uses);
    }
    for (size_t i = 0; i < found->count; i++) {
        void **place = pl_vec_at(found, i);

        *place = ((struct head_placed *)*place)->what;
    }
    *out_count = found->count;
    return found->items;
}

struct head_instance *const *head_places_instances(const struct head_buffer *buffer,
                                                   const struct pl_box *box,
                                                   size_t *out_count)
{
    static _Thread_local struct head_instance *few[FEW_MAX];
    struct pl_list *pos;
    size_t count = 0;

    if (buffer->places != NULL) {
        return find(buffer, HEAD_PLACE_INSTANCE, box, out_count);
    }
    pl_list_for_each(pos, &buffer->instances) {
        struct head_instance *instance =
            pl_container_of(pos, struct head_instance, buffer_link);

        if (pl_box_intersects(&instance->box, box)) {
            few[count++] = instance;
        }
    }
    *out_count = count;
    return few;
}

struct head_use *const *head_places_uses(const struct head_buffer *buffer, bool write,
                                         const struct pl_box *box, size_t *out_count)
{
    static _Thread_local struct head_use *few[FEW_MAX];
    const struct pl_list *uses = write ? &buffer->writers : &buffer->readers;
    struct pl_list *pos;
    size_t count = 0;

    if (buffer->places != NULL) {
        return find(buffer, kind_of(write), box, out_count);
    }
    pl_list_for_each(pos, uses) {
        struct head_use *use = pl_container_of(pos, struct head_use, link);

        if (pl_box_intersects(&use->box, box)) {
            few[count++] = use;
        }
    }
    *out_count = count;
    return few;
}

bool head_places_copied_to(const struct head_buffer *buffer)
{
    return buffer->places == NULL || buffer->places->copy_writers > 0;
}

bool head_places_copied_ahead(const struct head_buffer *buffer)
{
    return buffer->places == NULL || buffer->places->ahead_readers > 0;
}

uint64_t head_places_looked(const struct head_buffer *buffer)
{
    uint64_t looked = 0;

    for (unsigned kind = 0; kind < KINDS && buffer->places != NULL; kind++) {
        looked += buffer->places->spans[kind].looked;
    }
    return looked;
}

/* --------------------------------------------------------------------------- invariants */

static uint32_t length(const struct pl_list *list)
{
    struct pl_list *pos;
    uint32_t count = 0;

    pl_list_for_each(pos, list) {
        count++;
    }
    return count;
}

static void check_uses(const struct head_buffer *buffer, const struct pl_list *uses,
                       bool write)
{
    struct pl_list *pos;
    uint32_t counted = 0;

    pl_list_for_each(pos, uses) {
        const struct head_use *use = pl_container_of(pos, struct head_use, link);

        PL_CHECK(use->buffer == buffer && use->write == write);
        PL_CHECK((use->placed != NULL) == (buffer->places != NULL));
        counted += use->placed != NULL && use->placed->counted;
    }
    PL_CHECK(buffer->places == NULL || counted == (write ? buffer->places->copy_writers
                                                         : buffer->places->ahead_readers));
}

void head_places_check(const struct head_buffer *buffer)
{
    uint32_t readers   = length(&buffer->readers);
    uint32_t writers   = length(&buffer->writers);
    uint32_t instances = length(&buffer->instances);

    PL_CHECK(buffer->placed_count == readers + writers + instances);
    PL_CHECK(buffer->places == NULL ||
             (buffer->places->spans[HEAD_PLACE_READER].count == readers &&
              buffer->places->spans[HEAD_PLACE_WRITER].count == writers &&
              buffer->places->spans[HEAD_PLACE_INSTANCE].count == instances));
    check_uses(buffer, &buffer->readers, false);
    check_uses(buffer, &buffer->writers, true);
}
