/* See places.h. */
#include "head/places.h"

#include <stdlib.h>

#include "base/pool.h"
#include "head/core_int.h"

#define KINDS 3u

struct head_placed {
    struct pl_span span;
    void *what;      /* struct head_use, or head_instance */
    uint64_t number; /* of an instance: in the order of the list */
    bool counted;    /* a use: in copy_writers, or ahead_readers */
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

/* ---------------------------------------------------------------------------------------- where */

/* Numbers of the first and last element of the box, of those that the buffer holds. false: it holds none of it. */
static bool span_of(const struct head_buffer *buffer, const struct pl_box *box,
                    uint64_t *out_first, uint64_t *out_last)
{
    const struct pl_box *frame = &buffer->frame;
    uint64_t first = 0, last = 0;
    struct pl_box part;

    if (!pl_box_intersection(box, frame, &part)) {
        return false;
    }
    for (uint32_t d = 0; d < frame->ndim; d++) {
        uint64_t start = (uint64_t)(part.start[d] - frame->start[d]);

        first = first * (uint64_t)frame->count[d] + start;
        last  = last * (uint64_t)frame->count[d] + start + (uint64_t)part.count[d] - 1;
    }
    *out_first = first;
    *out_last  = last;
    return true;
}

static struct head_placed *placed_add(struct head_buffer *buffer, enum head_place_kind kind,
                                      const struct pl_box *box, void *what)
{
    struct head_placed *placed = head_pool_get(&pool);
    uint64_t first, last;

    placed->what   = what;
    placed->number = ++buffer->places->number_last;
    PL_CHECK(span_of(buffer, box, &first, &last));
    PL_CHECK(pl_spans_add(&buffer->places->spans[kind], &placed->span, first, last));
    return placed;
}

static void placed_remove(struct head_buffer *buffer, enum head_place_kind kind,
                          struct head_placed **io_placed)
{
    pl_spans_remove(&buffer->places->spans[kind], &(*io_placed)->span);
    pl_pool_put(&pool, *io_placed);
    *io_placed = NULL;
}

/* ---------------------------------------------------------------------------------------- one */

static void instance_place(struct head_instance *instance)
{
    instance->placed =
        placed_add(instance->buffer, HEAD_PLACE_INSTANCE, &instance->box, instance);
}

/* What its launch is may change; what is counted of it does not. */
static uint32_t *counter_of(const struct head_use *use)
{
    return use->write ? &use->buffer->places->copy_writers
                      : &use->buffer->places->ahead_readers;
}

static void use_place(struct head_use *use)
{
    use->placed = placed_add(
        use->buffer, use->write ? HEAD_PLACE_WRITER : HEAD_PLACE_READER, &use->box, use);
    use->placed->counted = use->write
                               ? use->task->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_COPY
                               : use->task->ahead;
    *counter_of(use) += use->placed->counted;
}

static void use_displace(struct head_use *use)
{
    *counter_of(use) -= use->placed->counted;
    placed_remove(use->buffer, use->write ? HEAD_PLACE_WRITER : HEAD_PLACE_READER,
                  &use->placed);
}

/* ---------------------------------------------------------------------------------------- many, few */

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

/* One came. true: and has its place, with all that were there. */
static bool grown(struct head_buffer *buffer)
{
    if (++buffer->placed_count <= head_places_few || buffer->places != NULL) {
        return false;
    }
    places_make(buffer);
    return true;
}

static void shrunk(struct head_buffer *buffer)
{
    if (--buffer->placed_count < head_places_few / 2 && buffer->places != NULL) {
        places_drop(buffer);
    }
}

void head_places_instance_add(struct head_instance *instance)
{
    if (!grown(instance->buffer) && instance->buffer->places != NULL) {
        instance_place(instance);
    }
}

void head_places_instance_remove(struct head_instance *instance)
{
    if (instance->buffer->places != NULL) {
        placed_remove(instance->buffer, HEAD_PLACE_INSTANCE, &instance->placed);
    }
    shrunk(instance->buffer);
}

void head_places_use_add(struct head_use *use)
{
    if (!grown(use->buffer) && use->buffer->places != NULL) {
        use_place(use);
    }
}

void head_places_use_remove(struct head_use *use)
{
    if (use->buffer->places != NULL) {
        use_displace(use);
    }
    shrunk(use->buffer);
}

/* ---------------------------------------------------------------------------------------- finding */

struct meeting {
    const struct pl_box *box;
    struct pl_vec *found; /* struct head_placed * */
};

static bool meeting_take(void *user, struct pl_span *span)
{
    const struct meeting *meeting = user;
    struct head_placed **place    = pl_vec_push(meeting->found);

    PL_CHECK(place != NULL);
    *place = pl_container_of(span, struct head_placed, span);
    return false;
}

static int compare_instances(const void *a, const void *b)
{
    const struct head_instance *x = *(struct head_instance *const *)a;
    const struct head_instance *y = *(struct head_instance *const *)b;

    return (x->placed->number > y->placed->number) -
           (x->placed->number < y->placed->number);
}

/* As they were planned, which for writers is the order of the list; those of one launch lie one behind the other. */
static int compare_uses(const void *a, const void *b)
{
    const struct head_use *x = *(struct head_use *const *)a;
    const struct head_use *y = *(struct head_use *const *)b;

    return x->task->order != y->task->order
               ? (x->task->order > y->task->order) - (x->task->order < y->task->order)
               : (x > y) - (x < y);
}

/* What spans meet, into a vector of pointers to what they are of. */
static void find(const struct head_buffer *buffer, enum head_place_kind kind,
                 const struct pl_box *box, struct pl_vec *found)
{
    struct meeting meeting = {.box = box, .found = found};
    uint64_t first, last;

    pl_vec_clear(found);
    if (span_of(buffer, box, &first, &last)) {
        (void)pl_spans_meet(&buffer->places->spans[kind], first, last, meeting_take,
                            &meeting);
    }
    for (size_t i = 0; i < found->count; i++) {
        void **place = pl_vec_at(found, i);

        *place = ((struct head_placed *)*place)->what;
    }
}

static struct head_instance *const *instances_find(const struct head_buffer *buffer,
                                                   const struct pl_box *box,
                                                   size_t *out_count)
{
    static _Thread_local struct pl_vec found = {.item_bytes = sizeof(void *)};
    struct head_instance **instances;
    size_t count = 0;

    find(buffer, HEAD_PLACE_INSTANCE, box, &found);
    instances = found.items;
    for (size_t i = 0; i < found.count; i++) {
        if (pl_box_intersects(&instances[i]->box, box)) {
            instances[count++] = instances[i];
        }
    }
    if (count > 1) {
        qsort(instances, count, sizeof(struct head_instance *), compare_instances);
    }
    *out_count = count;
    return instances;
}

struct head_instance *const *head_places_instances(const struct head_buffer *buffer,
                                                   const struct pl_box *box,
                                                   size_t *out_count)
{
    static _Thread_local struct head_instance *few[FEW_MAX];
    struct pl_list *pos;
    size_t count = 0;

    if (buffer->places != NULL) {
        return instances_find(buffer, box, out_count);
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

static struct head_use *const *uses_find(const struct head_buffer *buffer, bool write,
                                         const struct pl_box *box, size_t *out_count)
{
    static _Thread_local struct pl_vec found = {.item_bytes = sizeof(void *)};
    struct head_use **uses;
    size_t count = 0;

    find(buffer, write ? HEAD_PLACE_WRITER : HEAD_PLACE_READER, box, &found);
    uses = found.items;
    for (size_t i = 0; i < found.count; i++) {
        if (pl_box_intersects(&uses[i]->box, box)) {
            uses[count++] = uses[i];
        }
    }
    if (count > 1) {
        qsort(uses, count, sizeof(struct head_use *), compare_uses);
    }
    *out_count = count;
    return uses;
}

struct head_use *const *head_places_uses(const struct head_buffer *buffer, bool write,
                                         const struct pl_box *box, size_t *out_count)
{
    static _Thread_local struct head_use *few[FEW_MAX];
    const struct pl_list *uses = write ? &buffer->writers : &buffer->readers;
    struct pl_list *pos;
    size_t count = 0;

    if (buffer->places != NULL) {
        return uses_find(buffer, write, box, out_count);
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

/* ---------------------------------------------------------------------------------------- invariants */

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
