/*
 * Draining a node: what lies only there is copied to other nodes, and nothing new is placed there, so that it can leave without a loss.
 *
 * WHAT IS MOVED. Every part of a value that an array shows and of which no whole copy is on a device that stays. A move is a replica like any
 * other (move.c), on the device with the most room; it is no replica in the sense of memory pressure, for it is to be the only one. A part that a
 * task still writes waits for that task: tasks that were placed there before run there. Partial results of a REDUCE are folded, elsewhere.
 *
 * All of it is found by looking: now and then everything on the node is compared with what is elsewhere, a bounded number of moves is
 * started, and what is found is the report. So a move that failed, or a device that left, needs nothing of its own: the next look finds
 * that something is still to be moved.
 *
 * When the deadline is over nothing more is started. The node stays closed to new work until that is undone or it leaves.
 */
#include "head/core_int.h"

#include <stdio.h>
#include <string.h>

enum { LOOK_MS = 100, MOVING_MAX = 32 };
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

/* ------------------------------------------------------------------------------------------ what is where */

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

/* Is every element of `box` of the tile on devices that stay? settled: and no task is on its way there. */
static bool elsewhere(const struct head_tile *tile, const struct pl_box *box, bool settled)
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
            (settled && pending(instance->buffer, &part))) {
            continue;
        }
        count = pl_box_subtract(box, &part, rest);
        for (unsigned i = 0; i < count; i++) {
            if (!elsewhere(tile, &rest[i], settled)) {
                return false;
            }
        }
        return true;
    }
    return false;
}

/* Where there is the most room for it. */
static struct head_device *target(struct head_core *core, const struct head_device *from,
                                  uint64_t bytes)
{
    struct head_device *best = NULL;
    uint64_t best_room       = 0;

    for (uint32_t i = 0; i < core->devices.count; i++) {
        struct head_device *device = head_device_at(core, i);
        uint64_t room =
            device->bytes_total - pl_min_u64(device->bytes_total, device->bytes_planned);

        if (stays(device) && device->joined && device->connected && room >= bytes &&
            room > best_room && head_move_possible(from, device)) {
            best      = device;
            best_room = room;
        }
    }
    return best;
}

/* ------------------------------------------------------------------------------------------ a look */

struct look {
    struct head_core *core;
    struct head_drain *drain;
    struct head_drain_report report;
    uint64_t bytes_moving;
    bool start;
};

static void move(struct look *look, const struct head_instance *instance,
                 struct head_array *array, const struct pl_box *box, uint64_t bytes)
{
    struct head_device *to       = target(look->core, instance->buffer->device, bytes);
    struct head_failure *failure = NULL;
    struct head_buffer *copy;
    char text[32];

    if (to == NULL) {
        (void)snprintf(look->report.why, sizeof(look->report.why),
                       "no device of another node has room for %s and can be reached",
                       pl_format_bytes(bytes, text));
        return;
    }
    head_spill_plan_begin(look->core);
    copy = head_move_read(look->core, array, box, to, false, &failure);
    if (copy == NULL) {
        (void)snprintf(look->report.why, sizeof(look->report.why), "%.*s",
                       (int)sizeof(look->report.why) - 1, failure->text);
        head_failure_release(failure);
        return;
    }
    copy->replica = false;
    head_buffer_release(look->core, copy);
    look->report.objects_moving++;
    look->bytes_moving += bytes;
}

/* One part of a value, in a buffer of the node. */
static void part_look(struct look *look, const struct head_instance *instance,
                      struct head_array *array, const struct pl_box *box)
{
    struct head_drain_report *report = &look->report;
    const struct head_tile *tile     = instance->tile;
    uint64_t bytes =
        (uint64_t)pl_box_elements(box) * pl_dtype_bytes(instance->buffer->dtype);

    if (elsewhere(tile, box, true)) {
        report->objects_safe++;
        report->bytes_safe += bytes;
        return;
    }
    report->objects_left++;
    report->bytes_left += bytes;
    if (elsewhere(tile, box, false)) {
        report->objects_moving++;
        look->bytes_moving += bytes;
    } else if (look->start && !pending(instance->buffer, box) &&
               report->objects_moving < MOVING_MAX &&
               look->bytes_moving < MOVING_BYTES_MAX) {
        move(look, instance, array, box, bytes);
    }
}

/* The first array that shows a part of it: the others show the same bytes. */
static void instance_look(struct look *look, const struct head_instance *instance)
{
    struct pl_list *pos;

    if (instance->tile->failure != NULL) {
        return;
    }
    pl_list_for_each(pos, &instance->tile->fragments) {
        const struct head_fragment *fragment =
            pl_container_of(pos, struct head_fragment, tile_link);
        struct pl_box part;

        if (pl_box_intersection(&fragment->box, &instance->box, &part)) {
            part_look(look, instance, fragment->array, &part);
            return;
        }
    }
}

/* Moving adds buffers to other devices and instances to tiles, never to this device. */
static void device_look(struct look *look, const struct head_device *device)
{
    struct pl_list *pos, *it;

    look->report.tasks_left += device->unfinished;
    pl_list_for_each(pos, &device->buffers) {
        const struct head_buffer *buffer =
            pl_container_of(pos, struct head_buffer, device_link);

        pl_list_for_each(it, &buffer->instances) {
            instance_look(look, pl_container_of(it, struct head_instance, buffer_link));
        }
    }
}

static bool lies_on(const struct head_tile *tile, const char *host)
{
    struct pl_list *pos;

    pl_list_for_each(pos, &tile->instances) {
        const struct head_instance *instance =
            pl_container_of(pos, struct head_instance, tile_link);

        if (strcmp(instance->buffer->device->host, host) == 0) {
            return true;
        }
    }
    return false;
}

static void fold_partials(struct head_core *core, const char *host)
{
    struct pl_list *pos;

    pl_list_for_each(pos, &core->clients) {
        struct head_client *client = pl_container_of(pos, struct head_client, link);
        uint64_t key;
        void *value;

        for (size_t i = 0; pl_map_next(&client->refs, &i, &key, &value);) {
            struct head_array *array = ((struct head_ref *)value)->array;
            bool here                = false;

            for (size_t p = 0; p < array->partials.count && !here; p++) {
                here = lies_on(
                    ((struct head_partial *)pl_vec_at(&array->partials, p))->tile, host);
            }
            if (here) {
                head_reduce_fold(core, array);
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

static void drain_look(struct head_core *core, struct head_drain *drain)
{
    struct look look = {.core = core, .drain = drain};

    drain->looked_ms = core->now_ms;
    look.report.over = core->now_ms >= drain->until_ms;
    look.start       = !look.report.over;
    if (!anywhere_to_go(core)) {
        look.report.over = true;
        look.start       = false;
        (void)snprintf(look.report.why, sizeof(look.report.why),
                       "there is no other node to move anything to");
    }
    if (look.start) {
        fold_partials(core, drain->host);
    }
    for (uint32_t i = 0; i < core->devices.count; i++) {
        const struct head_device *device = head_device_at(core, i);

        if (!device->gone && strcmp(device->host, drain->host) == 0) {
            device_look(&look, device);
        }
    }
    if (head_spill_host_of(core, drain->host) != NULL) {
        device_look(&look, &head_spill_host_of(core, drain->host)->home);
    }
    look.report.done = look.report.objects_left == 0 && look.report.tasks_left == 0;
    if (!look.report.over && look.report.why[0] == '\0' && look.report.tasks_left > 0) {
        (void)snprintf(look.report.why, sizeof(look.report.why),
                       "tasks that were placed there are not done");
    }
    drain->report = look.report;
}

void head_drain_tick(struct head_core *core)
{
    struct pl_list *pos;

    pl_list_for_each(pos, &core->drains) {
        struct head_drain *drain = pl_container_of(pos, struct head_drain, link);

        if (core->now_ms - drain->looked_ms >= LOOK_MS) {
            drain_look(core, drain);
        }
    }
}

/* ------------------------------------------------------------------------------------------ from outside */

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
}

/* The host that is meant by a node's name or by its own id. */
static const char *host_of(struct head_core *core, const char *node, struct pl_err *err)
{
    const char *found = NULL;

    for (uint32_t i = 0; i < core->devices.count; i++) {
        const struct head_device *device = head_device_at(core, i);

        if (device->gone ||
            (strcmp(device->node, node) != 0 && strcmp(device->host, node) != 0)) {
            continue;
        }
        if (found != NULL && strcmp(found, device->host) != 0) {
            (void)pl_err_set(err, PLASMON_EINVAL,
                             "more than one node is named '%s'; start their stores with "
                             "names of their own (--node)",
                             node);
            return NULL;
        }
        found = device->host;
    }
    if (found == NULL) {
        (void)pl_err_set(err, PLASMON_ENOENT,
                         "no node with devices is named '%s'; `plasmon status` has their "
                         "names",
                         node);
    }
    return found;
}

plasmon_status_t head_core_drain(struct head_core *core, const char *node,
                                 uint64_t deadline_ms, struct pl_err *err)
{
    const char *host = host_of(core, node, err);
    struct head_drain *drain;

    if (host == NULL) {
        return err->status;
    }
    drain = drain_of(core, host);
    if (drain == NULL) {
        drain       = head_alloc(sizeof(*drain));
        drain->host = head_strdup(host);
        pl_list_init(&drain->link);
        pl_list_add_tail(&core->drains, &drain->link);
        pl_info("head", "node %s is drained, within %llu ms", node,
                (unsigned long long)deadline_ms);
    }
    drain->until_ms = core->now_ms + deadline_ms;
    devices_set(core, host, true);
    drain_look(core, drain);
    return PLASMON_OK;
}

static void drain_destroy(struct head_drain *drain)
{
    pl_list_remove(&drain->link);
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
