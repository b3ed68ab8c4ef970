/*
 * Who waits for what: the oldest unfinished launches and what each still waits for, what the
 * workers said of the fronts of their queues, and how bytes would go between two devices. Reads
 * only; `plasmon doctor` puts it together.
 *
 * The oldest are enough. What a launch waits for has a smaller number (docs/ordering.md), so among
 * the first TASKS_MAX in order is everything that these wait for, down to what holds up all of
 * them.
 */
#include "base/text.h"
#include "head/core_int.h"

#include <stdio.h>

enum {
    TASKS_MAX         = 64,
    AFTER_MAX         = 4,
    ROUTE_DEVICES_MAX = 16, /* a table of more than that nobody reads */
};

/* -------------------------------------------------------------------- what workers said */

static void text_take(char *out, size_t bytes, const char *text)
{
    (void)snprintf(out, bytes, "%s", text);
    pl_text_mend(out);
}

void head_waits_take(struct head_device *device, const Plasmon__V1__WorkerStats *stats)
{
    device->wait_count = 0;
    device->numa_told  = stats->numa != NULL;
    if (device->numa_told) {
        device->numa                       = *stats->numa;
        device->numa.base.n_unknown_fields = 0;
        device->numa.base.unknown_fields   = NULL;
        device->numa.device                = device->index;
    }
    plasmon__v1__comms_left__init(&device->left);
    if (stats->left != NULL) {
        device->left                       = *stats->left;
        device->left.base.n_unknown_fields = 0;
        device->left.base.unknown_fields   = NULL;
        device->left.device                = device->index;
    }
    for (size_t i = 0; i < stats->n_waits && device->wait_count < PL_COUNT(device->waits);
         i++) {
        struct head_launch_wait *to         = &device->waits[device->wait_count++];
        const Plasmon__V1__LaunchWait *from = stats->waits[i];

        to->row                       = *from;
        to->row.base.n_unknown_fields = 0;
        to->row.base.unknown_fields   = NULL;
        text_take(to->function, sizeof(to->function), from->function);
        text_take(to->label, sizeof(to->label), from->label);
        text_take(to->text, sizeof(to->text), from->text);
        to->row.device   = device->index;
        to->row.function = to->function;
        to->row.label    = to->label;
        to->row.text     = to->text;
    }
}

static plasmon_status_t launches_tell(struct head_core *core, struct wire_arena *arena,
                                      Plasmon__V1__Waits *out)
{
    size_t count = 0;

    for (uint32_t i = 0; i < core->devices.count; i++) {
        count += head_device_at(core, i)->wait_count;
    }
    out->launches = wire_arena_alloc(arena, (count + 1) * sizeof(*out->launches));
    if (out->launches == NULL) {
        return PLASMON_ENOMEM;
    }
    for (uint32_t i = 0; i < core->devices.count; i++) {
        struct head_device *device = head_device_at(core, i);

        for (uint32_t k = 0; k < device->wait_count && !device->gone; k++) {
            out->launches[out->n_launches++] = &device->waits[k].row;
        }
    }
    return PLASMON_OK;
}

static plasmon_status_t numa_tell(struct head_core *core, struct wire_arena *arena,
                                  Plasmon__V1__Waits *out)
{
    out->numa = wire_arena_alloc(arena, (core->devices.count + 1) * sizeof(*out->numa));
    if (out->numa == NULL) {
        return PLASMON_ENOMEM;
    }
    for (uint32_t i = 0; i < core->devices.count; i++) {
        struct head_device *device = head_device_at(core, i);

        if (device->numa_told && !device->gone) {
            out->numa[out->n_numa++] = &device->numa;
        }
    }
    return PLASMON_OK;
}

static plasmon_status_t left_tell(struct head_core *core, struct wire_arena *arena,
                                  Plasmon__V1__Waits *out)
{
    out->left = wire_arena_alloc(arena, (core->devices.count + 1) * sizeof(*out->left));
    if (out->left == NULL) {
        return PLASMON_ENOMEM;
    }
    for (uint32_t i = 0; i < core->devices.count; i++) {
        struct head_device *device = head_device_at(core, i);

        if (device->left.communicators != 0 && !device->gone) {
            out->left[out->n_left++] = &device->left;
        }
    }
    return PLASMON_OK;
}

/* -------------------------------------------------------------------------------- tasks */

const char *head_task_kind(const struct head_task *task)
{
    static const char *const kinds[] = {
        "task", "copy", "send",  "receive", "put", "read",        "put",
        "put",  "skip", "graph", "put",     "get", "open a pair", "close a pair"};

    if (task->spilled != NULL && task->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_GET_HOST) {
        return task->ahead ? "write-back" : "spill";
    }
    if (task->spilled != NULL && task->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_PUT_HOST) {
        return "restore";
    }
    return task->kind < PL_COUNT(kinds) ? kinds[task->kind] : "task";
}

plasmon_status_t head_task_after(struct head_core *core, struct wire_arena *arena,
                                 const struct head_task *task, uint64_t **out_points,
                                 size_t *out_count, uint32_t *out_more)
{
    Plasmon__V1__Launch *launch =
        task->bytes == NULL ? NULL
                            : plasmon__v1__launch__unpack(&arena->allocator,
                                                          task->bytes_length, task->bytes);

    *out_points = wire_arena_alloc(arena, AFTER_MAX * sizeof(**out_points));
    *out_count  = 0;
    *out_more   = 0;
    if (*out_points == NULL) {
        return PLASMON_ENOMEM;
    }
    for (size_t i = 0; launch != NULL && i < launch->n_after; i++) {
        struct head_device *device =
            head_device_at(core, wire_point_device(launch->after[i]));
        const struct head_task *before =
            device == NULL ? NULL
                           : head_device_task(device, wire_point_seq(launch->after[i]));

        if (before == NULL || before->ended) {
            continue;
        }
        if (*out_count < AFTER_MAX) {
            (*out_points)[(*out_count)++] = launch->after[i];
        } else {
            (*out_more)++;
        }
    }
    return PLASMON_OK;
}

/* It makes what there is no room for: until the oldest of all is over, at least. */
static void hold_tell(const struct head_core *core, const struct head_task *task,
                      Plasmon__V1__TaskWait *out)
{
    const struct head_task *oldest;

    if (out->sent || !head_excess_held(task)) {
        return;
    }
    oldest        = pl_list_first(&core->unfinished, struct head_task, order_link);
    out->hold     = PLASMON__V1__TASK_HOLD__HOLD_TURN;
    out->n_after  = oldest != task; /* `after` has room for AFTER_MAX */
    out->after[0] = wire_point(oldest->device->index, oldest->seq);
}

/* Of a copy to host memory for spilling, or from it: which, how much, and why it has not been sent. */
static bool spill_tell(struct head_core *core, struct wire_arena *arena,
                       const struct head_task *task, Plasmon__V1__TaskWait *out)
{
    const struct head_task *first;
    char text[256];

    if (task->spilled == NULL) {
        hold_tell(core, task, out);
        return true;
    }
    out->bytes = task->spilled->bytes;
    out->node  = task->spilled->device->node; /* lives as long as the core */
    if (out->sent) {
        return true;
    }
    out->hold      = head_spill_hold(task, &first, text);
    out->hold_text = wire_arena_text(arena, text);
    if (first != NULL) { /* `after` has room for AFTER_MAX */
        out->n_after  = 1;
        out->after[0] = wire_point(first->device->index, first->seq);
    }
    return out->hold_text != NULL;
}

static Plasmon__V1__TaskWait *task_tell(struct head_core *core, struct wire_arena *arena,
                                        const struct head_task *task)
{
    Plasmon__V1__TaskWait *out      = wire_arena_alloc(arena, sizeof(*out));
    const struct head_function *own = NULL; /* one that its client defined */
    uint32_t more;

    if (out == NULL) {
        return NULL;
    }
    plasmon__v1__task_wait__init(out);
    out->client = task->client != NULL ? task->client->id : 0;
    out->task   = task->id;
    out->label  = wire_arena_text(arena, task->label != NULL ? task->label : "");
    if (task->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_RUN) {
        out->function = task->function;
        own           = head_function_by_id(core, task->function);
    }
    out->what   = wire_arena_text(arena, own != NULL ? head_function_name(own)
                                                     : head_task_kind(task));
    out->device = task->device->index;
    out->seq    = task->seq;
    out->age_ms = core->now_ms - pl_min_u64(core->now_ms, task->since_ms);
    out->sent   = task->seq <= task->device->seq_sent;
    if (out->what == NULL || out->label == NULL ||
        head_task_after(core, arena, task, &out->after, &out->n_after, &more) !=
            PLASMON_OK ||
        !spill_tell(core, arena, task, out)) {
        return NULL;
    }
    return out;
}

static plasmon_status_t tasks_tell(struct head_core *core, struct wire_arena *arena,
                                   Plasmon__V1__Waits *out)
{
    struct pl_list *pos;

    out->tasks = wire_arena_alloc(arena, TASKS_MAX * sizeof(*out->tasks));
    if (out->tasks == NULL) {
        return PLASMON_ENOMEM;
    }
    pl_list_for_each(pos, &core->unfinished) {
        const struct head_task *task = pl_container_of(pos, struct head_task, order_link);

        if (out->n_tasks == TASKS_MAX) {
            break;
        }
        if (task->ended) {
            continue; /* it waits for reports alone */
        }
        out->tasks[out->n_tasks] = task_tell(core, arena, task);
        if (out->tasks[out->n_tasks] == NULL) {
            return PLASMON_ENOMEM;
        }
        out->n_tasks++;
    }
    return PLASMON_OK;
}

/* ------------------------------------------------------------------------------- routes */

static plasmon_status_t routes_tell(struct head_core *core, struct wire_arena *arena,
                                    Plasmon__V1__Waits *out)
{
    uint32_t count = (uint32_t)pl_min_u64(core->devices.count, ROUTE_DEVICES_MAX);
    char why[HEAD_WHY_BYTES];

    out->routes = wire_arena_alloc(arena, (count * count + 1) * sizeof(*out->routes));
    if (out->routes == NULL) {
        return PLASMON_ENOMEM;
    }
    for (uint32_t i = 0; i < count * count; i++) {
        const struct head_device *from = head_device_at(core, i / count);
        const struct head_device *to   = head_device_at(core, i % count);
        Plasmon__V1__RoutePlan *plan;

        if (from == to || from->gone || to->gone || !from->joined || !to->joined) {
            continue;
        }
        plan = wire_arena_alloc(arena, sizeof(*plan));
        if (plan == NULL) {
            return PLASMON_ENOMEM;
        }
        plasmon__v1__route_plan__init(plan);
        plan->from  = from->index;
        plan->to    = to->index;
        plan->route = head_route_plan(core, from, to, why);
        plan->why   = wire_arena_text(arena, why);
        if (plan->why == NULL) {
            return PLASMON_ENOMEM;
        }
        out->routes[out->n_routes++] = plan;
    }
    return PLASMON_OK;
}

void head_core_client_name(struct head_core *core, uint64_t session, uint64_t *out_id,
                           char **out_label)
{
    const struct head_client *client = pl_map_get(&core->sessions, session);

    *out_id = client != NULL ? client->id : 0;
    *out_label =
        client != NULL && client->label != NULL ? client->label : (char *)(uintptr_t) "";
}

plasmon_status_t head_core_waits(struct head_core *core, struct wire_arena *arena,
                                 Plasmon__V1__Waits *out)
{
    plasmon_status_t status = launches_tell(core, arena, out);

    if (status == PLASMON_OK) {
        status = numa_tell(core, arena, out);
    }
    if (status == PLASMON_OK) {
        status = left_tell(core, arena, out);
    }
    if (status == PLASMON_OK) {
        status = tasks_tell(core, arena, out);
    }
    return status == PLASMON_OK ? routes_tell(core, arena, out) : status;
}
