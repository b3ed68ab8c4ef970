/*
 * Draining a node: what lies only there is copied to other nodes, and nothing new is placed there,
 * so that it can leave without a loss.
 *
 * WHAT IS MOVED. Every part of a value that an array shows and of which no whole copy is on a
 * device that stays. A move is a replica like any other (move.c), on the device with the most room;
 * it is no replica in the sense of memory pressure, for it is to be the only one. Nor is one that
 * was there already, from the moment that the drain counts on it: what lies on the node is the
 * replica then, and goes first when room is wanted there. A part that a task still writes, or a
 * client puts, waits for that: tasks that were placed there before run there. Partial results of a
 * REDUCE move as they are: to fold them early would give other bits (reduce.c).
 *
 * WHERE. A device that has room as it is. If none has, one that gets it by dropping its replicas,
 * and then by spilling what it did not use for the longest time (spill.c). What no device can take
 * even so stays where it is: it is lost when the node ends, and the report says so while the node
 * is still there.
 *
 * All of it is found by looking: now and then everything on the node is compared with what is
 * elsewhere, a bounded number of moves is started, and what is found is the report. So a move that
 * failed, or a device that left, needs nothing of its own: the next look finds that something is
 * still to be moved. Moves begin when the look is over, for what makes room for one changes what is
 * looked at.
 *
 * PROGRAMS ON THE NODE put from memory that its own devices alone can read, and would go on with
 * it, so that there is hardly a moment in which all is elsewhere. They are told to go other ways
 * (host_copy.c), and it is not done before they have answered: from then on nothing new comes, and
 * what came before has moved. One that does not answer, being stopped, is not waited for for long.
 *
 * When the deadline is over nothing more is started. The node stays closed to new work until that
 * is undone or it leaves.
 *
 * Seeded bug: head.drain_unrecorded (what no record says how to make is not looked at).
 */
#include "head/core_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOVING_MAX = 32, HEAR_MS = 2000 };
#define MOVING_BYTES_MAX (UINT64_C(1) << 30)

static struct head_drain *drain_of(struct head_core *core, const char *host)
{
    struct pl_list *pos;

    pl_list_for_each(pos, &core->drains) {
        struct head_drain *drain = pl_container_of(pos, struct head_drain, link);

        if (strcmp(drain->host, host) == 0) {
            return drain;
        }
    }
    return NULL;
}

/* ------------------------------------------------------------------------ what is where */

static bool stays(const struct head_device *device)
{
    return !device->gone && !device->draining;
}

static bool pending(const struct head_buffer *buffer, const struct pl_box *box)
{
    struct pl_list *pos;

    pl_list_for_each(pos, &buffer->writers) {
        if (pl_box_intersects(&pl_container_of(pos, struct head_use, link)->box, box)) {
            return true;
        }
    }
    return false;
}

enum elsewhere {
    ELSEWHERE_PLANNED, /* there, or on its way there */
    ELSEWHERE_SETTLED, /* no task is on its way there */
    ELSEWHERE_KEPT     /* .. and it is not dropped for want of memory */
};

/* Is every element of `box` of the tile on devices that stay? */
static bool elsewhere(const struct head_tile *tile, const struct pl_box *box,
                      enum elsewhere how)
{
    struct pl_list *pos;

    pl_list_for_each(pos, &tile->instances) {
        const struct head_instance *instance =
            pl_container_of(pos, struct head_instance, tile_link);
        struct pl_box rest[2 * PL_DIM_MAX];
        struct pl_box part;
        unsigned count;

        if (!stays(instance->buffer->device) ||
            !pl_box_intersection(&instance->box, box, &part) ||
            (how >= ELSEWHERE_SETTLED && pending(instance->buffer, &part)) ||
            (how >= ELSEWHERE_KEPT && instance->buffer->replica)) {
            continue;
        }
        count = pl_box_subtract(box, &part, rest);
        for (unsigned i = 0; i < count; i++) {
            if (!elsewhere(tile, &rest[i], how)) {
                return false;
            }
        }
        return true;
    }
    return false;
}

bool head_drain_elsewhere(const struct head_tile *tile, const struct pl_box *box)
{
    return elsewhere(tile, box, ELSEWHERE_SETTLED);
}

/* It is settled elsewhere: as many replicas there as it takes are none from now on. */
static void keep_elsewhere(const struct head_tile *tile, const struct pl_box *box)
{
    struct pl_list *pos;

    pl_list_for_each(pos, &tile->instances) {
        const struct head_instance *instance =
            pl_container_of(pos, struct head_instance, tile_link);

        if (elsewhere(tile, box, ELSEWHERE_KEPT)) {
            return;
        }
        if (stays(instance->buffer->device) && pl_box_intersects(&instance->box, box)) {
            head_buffer_replica_set(instance->buffer, false);
        }
    }
}

/* All that is in it is: it is the one that goes when room is wanted. */
static void replica_if_kept_elsewhere(struct head_buffer *buffer)
{
    struct pl_list *pos;

    if (pl_list_empty(&buffer->instances) || !pl_list_empty(&buffer->writers)) {
        return;
    }
    pl_list_for_each(pos, &buffer->instances) {
        const struct head_instance *instance =
            pl_container_of(pos, struct head_instance, buffer_link);

        if (!elsewhere(instance->tile, &instance->box, ELSEWHERE_KEPT)) {
            return;
        }
    }
    head_buffer_replica_set(buffer, true);
}

/* ------------------------------------------------------------------------------- a look */

/* What is to be moved when the look is over. */
struct candidate {
    struct head_array *array; /* held */
    struct head_device *from; /* a device, or the memory of the host */
    struct head_tile *tile;   /* the array has it */
    struct pl_box box;
    uint64_t bytes;
};

struct look {
    struct head_core *core;
    struct head_drain *drain;
    struct head_drain_report report;
    struct candidate candidates[MOVING_MAX];
    uint32_t candidate_count;
    uint64_t bytes_moving;
    uint64_t *obtainable; /* a device; UINT64_MAX: not known */
    bool start;
};

static uint64_t obtainable(struct look *look, struct head_device *device)
{
    uint64_t *known = &look->obtainable[device->index];

    if (*known == UINT64_MAX) {
        *known = head_spill_obtainable(look->core, device, UINT64_MAX);
    }
    return *known;
}

/*
 * Where it finds the most room, if it can without anything being dropped or spilled; then where it
 * finds the most so. NULL: *out_why.
 */
static struct head_device *target(struct look *look, const struct head_device *from,
                                  uint64_t bytes, enum head_drain_why *out_why)
{
    struct head_device *best = NULL;
    uint64_t best_room       = 0;
    bool best_free           = false;

    *out_why = HEAD_DRAIN_NO_ROUTE;
    for (uint32_t i = 0; i < look->core->devices.count; i++) {
        struct head_device *device = head_device_at(look->core, i);
        uint64_t room;
        bool free;

        if (!stays(device) || !device->joined || !device->connected ||
            !head_move_possible(from, device) ||
            head_reach_apart(look->core, from, device)) {
            continue;
        }
        *out_why = HEAD_DRAIN_NO_ROOM;
        room     = head_spill_free(look->core, device);
        free     = room >= bytes;
        room     = free ? room : obtainable(look, device);
        if (room >= bytes && (best == NULL || (free && !best_free) ||
                              (free == best_free && room > best_room))) {
            best      = device;
            best_room = room;
            best_free = free;
        }
    }
    return best;
}

/* The furthest from leaving counts for a tile of several parts. */
static void note_why(struct look *look, const struct head_tile *tile,
                     enum head_drain_why why)
{
    uint64_t key    = (uint64_t)(uintptr_t)tile;
    uintptr_t known = (uintptr_t)pl_map_get(&look->drain->why, key);

    PL_CHECK(
        pl_map_set(&look->drain->why, key,
                   (void *)(known > (uintptr_t)why + 1 ? known : (uintptr_t)why + 1)) ==
        PLASMON_OK);
}

/* A client puts it piece by piece, and the rest comes to where the first piece went. */
static bool being_put(const struct head_tile *tile)
{
    const struct pl_list *pos;

    pl_list_for_each(pos, &tile->fragments) {
        if (pl_container_of(pos, struct head_fragment, tile_link)->array->put_offset !=
            UINT64_MAX) {
            return true;
        }
    }
    return false;
}

/* One part of a value, in a buffer of the node. */
static void part_look(struct look *look, const struct head_instance *instance,
                      struct head_array *array, const struct pl_box *box)
{
    struct head_drain_report *report = &look->report;
    struct head_tile *tile           = instance->tile;
    struct head_device *from         = instance->buffer->device;
    enum head_drain_why why          = HEAD_DRAIN_LATER;
    uint64_t bytes =
        (uint64_t)pl_box_elements(box) * pl_dtype_bytes(instance->buffer->dtype);

    if (!being_put(tile) && (elsewhere(tile, box, ELSEWHERE_SETTLED) ||
                             (tile->record == NULL && pl_bug("head.drain_unrecorded")))) {
        keep_elsewhere(tile, box);
        report->objects_safe++;
        report->bytes_safe += bytes;
        return;
    }
    report->objects_left++;
    report->bytes_left += bytes;
    if (being_put(tile)) {
        why = HEAD_DRAIN_WRITTEN;
    } else if (elsewhere(tile, box, ELSEWHERE_PLANNED)) {
        report->objects_moving++;
        look->bytes_moving += bytes;
    } else if (pending(instance->buffer, box)) {
        why = HEAD_DRAIN_WRITTEN;
    } else if (target(look, from, head_spill_rounded(bytes), &why) == NULL) {
        report->bytes_no_room += why == HEAD_DRAIN_NO_ROOM ? bytes : 0;
    } else if (!look->start) {
        why = HEAD_DRAIN_DEADLINE;
    } else if (report->objects_moving + look->candidate_count < MOVING_MAX &&
               look->bytes_moving < MOVING_BYTES_MAX) {
        look->candidates[look->candidate_count++] = (struct candidate){
            .array = array, .from = from, .tile = tile, .box = *box, .bytes = bytes};
        array->refs++;
        look->bytes_moving += bytes;
        why = HEAD_DRAIN_LATER;
    } else {
        why = HEAD_DRAIN_LATER;
    }
    note_why(look, tile, why);
}

/* What fragments from `pos` on show of it, each element once: the others show the same bytes. */
static void box_look(struct look *look, const struct head_instance *instance,
                     const struct pl_list *pos, const struct pl_box *box)
{
    for (; pos != &instance->tile->fragments; pos = pos->next) {
        const struct head_fragment *fragment =
            pl_container_of(pos, struct head_fragment, tile_link);
        struct pl_box rest[2 * PL_DIM_MAX];
        struct pl_box part;
        unsigned count;

        if (!pl_box_intersection(&fragment->box, box, &part)) {
            continue;
        }
        part_look(look, instance, fragment->array, &part);
        count = pl_box_subtract(box, &part, rest);
        for (unsigned i = 0; i < count; i++) {
            box_look(look, instance, pos->next, &rest[i]);
        }
        return;
    }
}

static void device_look(struct look *look, const struct head_device *device)
{
    struct pl_list *pos, *it;

    look->report.tasks_left += device->unfinished;
    pl_list_for_each(pos, &device->buffers) {
        struct head_buffer *buffer = pl_container_of(pos, struct head_buffer, device_link);

        pl_list_for_each(it, &buffer->instances) {
            const struct head_instance *instance =
                pl_container_of(it, struct head_instance, buffer_link);

            if (instance->tile->failure == NULL) {
                box_look(look, instance, instance->tile->fragments.next, &instance->box);
            }
        }
        if (buffer->spilled == NULL) {
            replica_if_kept_elsewhere(buffer);
        }
    }
}

/* ------------------------------------------------------------------------------- moving */

static void refused(struct look *look, const struct candidate *candidate,
                    enum head_drain_why why, const char *text)
{
    note_why(look, candidate->tile, why);
    look->report.bytes_no_room += why == HEAD_DRAIN_NO_ROOM ? candidate->bytes : 0;
    if (text != NULL) {
        (void)snprintf(look->report.why, sizeof(look->report.why), "%.*s",
                       (int)sizeof(look->report.why) - 1, text);
    }
}

/*
 * A copy of the box there, which counts as the others do. false: *out_why, and *out_failure has a
 * text or is NULL.
 */
static bool copy_onto(struct head_core *core, struct head_array *array,
                      const struct pl_box *box, uint64_t bytes, struct head_device *to,
                      enum head_drain_why *out_why, struct head_failure **out_failure)
{
    struct head_buffer *copy;

    *out_failure = NULL;
    if (!head_spill_obtain(core, to, head_spill_rounded(bytes))) {
        *out_why = HEAD_DRAIN_NO_ROOM;
        return false;
    }
    copy = head_move_read(core, array, box, to, false, out_failure);
    if (copy == NULL) {
        *out_why = HEAD_DRAIN_REFUSED;
        return false;
    }
    head_buffer_replica_set(copy, false);
    head_buffer_release(core, copy);
    return true;
}

static void move(struct look *look, const struct candidate *candidate)
{
    struct head_failure *failure;
    enum head_drain_why why;
    struct head_device *to;

    head_spill_plan_begin(look->core);
    head_spill_keep(look->core, candidate->array, &candidate->box);
    if (elsewhere(candidate->tile, &candidate->box, ELSEWHERE_PLANNED)) {
        look->report.objects_moving++; /* it lay on two devices of the node */
        return;
    }
    to = target(look, candidate->from, head_spill_rounded(candidate->bytes), &why);
    if (to == NULL) { /* those before it took it */
        refused(look, candidate, why, NULL);
        return;
    }
    look->obtainable[to->index] = UINT64_MAX;
    if (!copy_onto(look->core, candidate->array, &candidate->box, candidate->bytes, to,
                   &why, &failure)) {
        refused(look, candidate, why, failure != NULL ? failure->text : NULL);
        head_failure_release(failure);
        return;
    }
    look->report.objects_moving++;
}

static void candidates_move(struct look *look)
{
    for (uint32_t i = 0; i < look->candidate_count; i++) {
        move(look, &look->candidates[i]);
    }
    for (uint32_t i = 0; i < look->candidate_count; i++) {
        head_array_release(look->core, look->candidates[i].array);
    }
}

/* Whose worker is being replaced, say, or who cannot be reached for the moment, too. */
static bool may_take(struct head_core *core, const struct head_device *from)
{
    for (uint32_t i = 0; i < core->devices.count; i++) {
        const struct head_device *device = head_device_at(core, i);

        if (stays(device) && device->joined && head_move_possible(from, device)) {
            return true;
        }
    }
    return false;
}

struct head_device *head_drain_onward(struct head_core *core,
                                      const struct head_device *from, uint64_t bytes,
                                      struct head_failure **out_failure)
{
    struct look look = {.core = core};
    size_t size      = core->devices.count * sizeof(*look.obtainable);
    enum head_drain_why why;
    struct head_device *to;
    char text[32];

    look.obtainable = head_alloc(size);
    memset(look.obtainable, 0xff, size);
    head_spill_plan_begin(core);
    to = target(&look, from, head_spill_rounded(bytes), &why);
    pl_free(look.obtainable);
    if (to == NULL && (why == HEAD_DRAIN_NO_ROOM || !may_take(core, from))) {
        *out_failure = head_failure_create(
            why == HEAD_DRAIN_NO_ROOM ? PLASMON_EDEVMEM : PLASMON_EWORKER, 0, 0,
            "node %s, whose host memory it is in, is being drained, and no other node %s "
            "the %s: start a store with `plasmon start --address`, release refs, or "
            "`plasmon drain %s --undo`",
            from->node,
            why == HEAD_DRAIN_NO_ROOM ? "has room for" : "can be reached to take",
            pl_format_bytes(bytes, text), from->node);
    }
    return to;
}

void head_drain_go_on(struct head_core *core, struct head_array *array,
                      struct head_device *to)
{
    uint64_t bytes =
        (uint64_t)pl_box_elements(&array->extent) * pl_dtype_bytes(array->shape.dtype);
    struct head_failure *failure;
    enum head_drain_why unused;

    head_spill_plan_begin(core);
    head_spill_keep(core, array, &array->extent);
    (void)copy_onto(core, array, &array->extent, bytes, to, &unused, &failure);
    head_failure_release(failure); /* the next look tries again */
}

/* What no array shows until it is folded: by one that is made for the move. */
static void partial_look(struct look *look, struct head_array *array,
                         const struct head_partial *partial)
{
    struct pl_list *pos, *tmp;

    if (partial->tile->failure != NULL) {
        return;
    }
    pl_list_for_each_safe(pos, tmp, &partial->tile->instances) {
        const struct head_instance *instance =
            pl_container_of(pos, struct head_instance, tile_link);
        struct head_array *shown;
        struct pl_box part;

        if (strcmp(instance->buffer->device->host, look->drain->host) != 0 ||
            !pl_box_intersection(&instance->box, &partial->box, &part)) {
            continue;
        }
        shown         = head_array_create(look->core, array->space, &array->shape);
        shown->extent = partial->box;
        head_array_set(look->core, shown, &partial->box, partial->tile);
        part_look(look, instance, shown, &part);
        head_array_release(look->core, shown);
    }
}

static void partials_look(struct look *look)
{
    struct pl_list *pos;

    pl_list_for_each(pos, &look->core->clients) {
        struct head_client *client = pl_container_of(pos, struct head_client, link);
        uint64_t key;
        void *value;

        for (size_t i = 0; pl_map_next(&client->refs, &i, &key, &value);) {
            struct head_array *array = ((struct head_ref *)value)->array;

            for (size_t p = 0; p < array->partials.count; p++) {
                partial_look(look, array, pl_vec_at(&array->partials, p));
            }
        }
    }
}

static bool anywhere_to_go(struct head_core *core)
{
    for (uint32_t i = 0; i < core->devices.count; i++) {
        const struct head_device *device = head_device_at(core, i);

        if (stays(device) && device->joined) {
            return true;
        }
    }
    return false;
}

/* What stands in the way, if nothing was said of it yet. */
static void say_why(struct look *look)
{
    struct head_drain_report *report = &look->report;
    char bytes[32];

    if (report->why[0] != '\0') {
        return;
    }
    if (report->bytes_no_room > 0) {
        (void)snprintf(
            report->why, sizeof(report->why),
            "no other node has room for %s of it, with all dropped and spilled there "
            "that may be: add a node, release refs, or give a store more "
            "--spill-memory or a --spill-dir",
            pl_format_bytes(report->bytes_no_room, bytes));
    } else if (report->over && report->objects_left > 0) {
        (void)snprintf(report->why, sizeof(report->why), "the deadline is over");
    } else if (report->tasks_left > 0) {
        (void)snprintf(report->why, sizeof(report->why),
                       "tasks that were placed there are not done");
    } else if (!report->done) {
        (void)snprintf(report->why, sizeof(report->why),
                       "programs on that machine have not been told yet");
    }
}

static void drain_look(struct head_core *core, struct head_drain *drain)
{
    struct look look = {.core = core, .drain = drain};

    drain->looked_ms = core->now_ms;
    look.report.over = core->now_ms >= drain->until_ms;
    look.start       = !look.report.over;
    look.obtainable  = head_alloc((core->devices.count + 1) * sizeof(*look.obtainable));
    memset(look.obtainable, 0xff, core->devices.count * sizeof(*look.obtainable));
    pl_map_finish(&drain->why);
    pl_map_init(&drain->why);
    if (!anywhere_to_go(core)) {
        look.report.over = true;
        look.start       = false;
        (void)snprintf(look.report.why, sizeof(look.report.why),
                       "there is no other node to move anything to");
    }
    /* so that nothing counts as kept for what was planned last */
    head_spill_plan_begin(core);
    for (uint32_t i = 0; i < core->devices.count; i++) {
        const struct head_device *device = head_device_at(core, i);

        if (!device->gone && strcmp(device->host, drain->host) == 0) {
            device_look(&look, device);
        }
    }
    if (head_spill_host_of(core, drain->host) != NULL) {
        device_look(&look, &head_spill_host_of(core, drain->host)->home);
    }
    partials_look(&look);
    candidates_move(&look);
    pl_free(look.obtainable);
    look.report.done =
        look.report.objects_left == 0 && look.report.tasks_left == 0 &&
        (core->now_ms >= drain->hear_until_ms || head_host_copies_heard(core, drain->host));
    say_why(&look);
    drain->report = look.report;
}

void head_drain_tick(struct head_core *core)
{
    struct pl_list *pos;

    pl_list_for_each(pos, &core->drains) {
        struct head_drain *drain = pl_container_of(pos, struct head_drain, link);

        if (core->now_ms - drain->looked_ms >= HEAD_DRAIN_LOOK_MS) {
            drain_look(core, drain);
        }
    }
}

/* ------------------------------------------------------------------------- from outside */

static void devices_set(struct head_core *core, const char *host, bool draining)
{
    for (uint32_t i = 0; i < core->devices.count; i++) {
        struct head_device *device = head_device_at(core, i);

        if (strcmp(device->host, host) == 0) {
            device->draining = draining;
        }
    }
    if (head_spill_host_of(core, host) != NULL) {
        head_spill_host_of(core, host)->home.draining = draining;
    }
    head_buffers_loosen(core);
    head_seconds_look(core);
    head_host_copies_tell(core, host);
}

/* A device of the host that is meant by a node's name or by the host's own id. */
static const struct head_device *device_of(struct head_core *core, const char *node,
                                           struct pl_err *err)
{
    const struct head_device *found = NULL;

    for (uint32_t i = 0; i < core->devices.count; i++) {
        const struct head_device *device = head_device_at(core, i);

        if (device->gone ||
            (strcmp(device->node, node) != 0 && strcmp(device->host, node) != 0)) {
            continue;
        }
        if (found != NULL && strcmp(found->host, device->host) != 0) {
            (void)pl_err_set(err, PLASMON_EINVAL,
                             "more than one node is named '%s'; start their stores with "
                             "names of their own (--node)",
                             node);
            return NULL;
        }
        found = device;
    }
    if (found == NULL) {
        (void)pl_err_set(err, PLASMON_ENOENT,
                         "no node with devices is named '%s'; `plasmon status` has their "
                         "names",
                         node);
    }
    return found;
}

static const char *host_of(struct head_core *core, const char *node, struct pl_err *err)
{
    const struct head_device *device = device_of(core, node, err);

    return device != NULL ? device->host : NULL;
}

plasmon_status_t head_core_drain(struct head_core *core, const char *node,
                                 uint64_t deadline_ms, struct pl_err *err)
{
    const struct head_device *device = device_of(core, node, err);
    struct head_drain *drain;

    if (device == NULL) {
        return err->status;
    }
    drain = drain_of(core, device->host);
    if (drain == NULL) {
        drain                = head_alloc(sizeof(*drain));
        drain->host          = head_strdup(device->host);
        drain->hear_until_ms = core->now_ms + HEAR_MS;
        pl_map_init(&drain->why);
        pl_list_init(&drain->link);
        pl_list_add_tail(&core->drains, &drain->link);
        pl_info("head", "node %s is drained, within %llu ms", device->node,
                (unsigned long long)deadline_ms);
    }
    drain->until_ms = core->now_ms + deadline_ms;
    devices_set(core, device->host, true);
    drain_look(core, drain);
    return PLASMON_OK;
}

static void drain_destroy(struct head_drain *drain)
{
    pl_list_remove(&drain->link);
    pl_map_finish(&drain->why);
    head_drain_left_forget(drain);
    pl_free(drain->host);
    pl_free(drain);
}

plasmon_status_t head_core_drain_undo(struct head_core *core, const char *node,
                                      struct pl_err *err)
{
    const char *host = host_of(core, node, err);
    struct head_drain *drain;

    if (host == NULL) {
        return err->status;
    }
    drain = drain_of(core, host);
    if (drain != NULL) {
        devices_set(core, host, false);
        drain_destroy(drain);
    }
    return PLASMON_OK;
}

plasmon_status_t head_core_drain_report(struct head_core *core, const char *node,
                                        struct head_drain_report *out, struct pl_err *err)
{
    const char *host = host_of(core, node, err);
    struct head_drain *drain;

    memset(out, 0, sizeof(*out));
    if (host == NULL) {
        return err->status;
    }
    drain = drain_of(core, host);
    if (drain == NULL) {
        return pl_err_set(err, PLASMON_ENOENT, "node '%s' is not being drained", node);
    }
    *out = drain->report;
    return PLASMON_OK;
}

uint32_t head_core_drain_left(struct head_core *core, const char *node,
                              struct head_drain_left out[HEAD_DRAIN_LEFT_MAX])
{
    struct pl_err err      = {.status = PLASMON_OK};
    const char *host       = host_of(core, node, &err);
    struct head_drain *one = host != NULL ? drain_of(core, host) : NULL;

    if (one == NULL || one->report.objects_left == 0) {
        return 0;
    }
    if (core->now_ms >= one->left_until_ms || one->left_over != one->report.over) {
        head_drain_left_find(core, one);
    }
    memcpy(out, one->left, sizeof(one->left));
    return one->left_all;
}

void head_drain_forget(struct head_core *core, const char *host)
{
    struct head_drain *drain = drain_of(core, host);

    if (drain != NULL) {
        drain_destroy(drain);
    }
}

void head_drains_finish(struct head_core *core)
{
    while (!pl_list_empty(&core->drains)) {
        drain_destroy(pl_list_first(&core->drains, struct head_drain, link));
    }
}
