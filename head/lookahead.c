/*
 * What the tasks of a frame are about to read. They come together and are planned one after the
 * other, so when room is made for one of them it is known what the others name, and in which order:
 * what is needed last, or not at all, goes first (Belady's rule, as far as one sees), instead of
 * what was not used for the longest time. A program that goes round through more values than its
 * device has room for would otherwise lose each value just before it comes to it again.
 *
 * It is advice, and costs nothing where no memory is short: looked at are frames of several tasks,
 * while some device is half full, and plain refs. A ref that a task of the frame makes is looked
 * for when it is there. What a view shows counts, not all of its array.
 *
 * Nothing of it outlives the frame: a head that is made again from its journal sees the same frames.
 */
#include "head/spill_int.h"

/* One argument of one task. */
struct head_next {
    size_t number;               /* of the task, in its frame */
    const Plasmon__V1__Arg *arg; /* lent by the frame */
    struct head_next *later;     /* not there yet: of the same ref */
    struct pl_box hull;
    struct pl_list link; /* head_array.nexts */
};

static bool memory_is_short(struct head_core *core)
{
    for (uint32_t i = 0; i < core->devices.count; i++) {
        const struct head_device *device    = head_device_at(core, i);
        const struct head_spill_host *spill = device->bytes_live > device->bytes_total / 2
                                                  ? head_spill_host_of(core, device->host)
                                                  : NULL;

        if (spill != NULL && !spill->config.on_demand) {
            return true;
        }
    }
    return false;
}

static bool reads(const Plasmon__V1__Task *task, const Plasmon__V1__Arg *arg)
{
    return task->graph == 0 && arg->ref != 0 &&
           (arg->mode == PLASMON__V1__MODE__MODE_IN ||
            arg->mode == PLASMON__V1__MODE__MODE_INOUT);
}

static void watch(struct head_next *next, const struct head_ref *ref)
{
    struct pl_view view;

    if (head_ref_view(ref, next->arg->n_view, next->arg->view, &view, NULL) == PLASMON_OK) {
        next->hull = pl_view_hull(&view);
        pl_list_add_tail(&ref->array->nexts, &next->link);
    }
}

/* Behind the others of its ref. */
static void watch_unborn(struct head_lookahead *ahead, struct head_next *next)
{
    struct head_next *first = pl_map_get(&ahead->unborn, next->arg->ref);

    while (first != NULL && first->later != NULL) {
        first = first->later;
    }
    if (first != NULL) {
        first->later = next;
    } else {
        PL_CHECK(pl_map_set(&ahead->unborn, next->arg->ref, next) == PLASMON_OK);
    }
}

void head_lookahead_begin(struct head_core *core, struct head_client *client,
                          Plasmon__V1__Task *const *tasks, size_t count)
{
    struct head_lookahead *ahead = &core->lookahead;
    size_t total                 = 0;

    if (count < 2 || pl_list_empty(&core->spill_hosts) || !memory_is_short(core)) {
        return;
    }
    for (size_t i = 0; i < count; i++) {
        total += tasks[i]->n_args;
    }
    ahead->client = client;
    ahead->nexts  = head_alloc((total + 1) * sizeof(*ahead->nexts));
    for (size_t i = 1; i < count; i++) { /* the first is planned at once */
        for (size_t k = 0; k < tasks[i]->n_args; k++) {
            struct head_next *next = &ahead->nexts[ahead->count];
            struct head_ref *ref;

            if (!reads(tasks[i], tasks[i]->args[k])) {
                continue;
            }
            *next = (struct head_next){.number = i, .arg = tasks[i]->args[k]};
            pl_list_init(&next->link);
            ahead->count++;
            if (head_client_ref_get(client, next->arg->ref, next->arg->client, &ref,
                                    NULL) == PLASMON_OK) {
                watch(next, ref);
            } else if (next->arg->client == 0 || next->arg->client == client->id) {
                watch_unborn(ahead, next);
            }
        }
    }
}

void head_lookahead_born(struct head_core *core, const struct head_client *client,
                         uint64_t id, const struct head_ref *ref)
{
    struct head_lookahead *ahead = &core->lookahead;

    if (ahead->unborn.count == 0 || ahead->client != client) {
        return;
    }
    for (struct head_next *next = pl_map_remove(&ahead->unborn, id); next != NULL;
         next                   = next->later) {
        watch(next, ref);
    }
}

void head_lookahead_pass(struct head_core *core, size_t number)
{
    struct head_lookahead *ahead = &core->lookahead;

    while (ahead->passed < ahead->count && ahead->nexts[ahead->passed].number <= number) {
        pl_list_remove(&ahead->nexts[ahead->passed++].link);
    }
}

void head_lookahead_end(struct head_core *core)
{
    struct head_lookahead *ahead = &core->lookahead;

    if (ahead->nexts == NULL) {
        return;
    }
    head_lookahead_pass(core, SIZE_MAX);
    pl_map_finish(&ahead->unborn);
    pl_map_init(&ahead->unborn);
    pl_free(ahead->nexts);
    *ahead = (struct head_lookahead){.unborn = ahead->unborn};
}

bool head_lookahead_some(const struct head_core *core)
{
    return core->lookahead.passed < core->lookahead.count;
}

/* The first task that reads any of the box of the array; SIZE_MAX: none. */
static size_t next_reader(const struct head_array *array, const struct pl_box *box)
{
    const struct pl_list *pos;

    pl_list_for_each(pos, &array->nexts) {
        const struct head_next *next = pl_container_of(pos, struct head_next, link);

        if (pl_box_intersects(&next->hull, box)) {
            return next->number;
        }
    }
    return SIZE_MAX;
}

size_t head_lookahead_next(const struct head_buffer *buffer)
{
    const struct pl_list *pos, *it;
    size_t first = SIZE_MAX;

    pl_list_for_each(pos, &buffer->instances) {
        const struct head_instance *instance =
            pl_container_of(pos, struct head_instance, buffer_link);

        pl_list_for_each(it, &instance->tile->fragments) {
            const struct head_fragment *fragment =
                pl_container_of(it, struct head_fragment, tile_link);
            struct pl_box part;

            if (pl_box_intersection(&instance->box, &fragment->box, &part)) {
                first = pl_min_u64(first, next_reader(fragment->array, &part));
            }
        }
    }
    return first;
}
