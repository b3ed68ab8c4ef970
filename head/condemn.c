/*
 * Launches that must not go on: their worker is fenced, because nothing else ends a kernel.
 *
 * A worker tells of such a launch twice (worker/condemn.c). At first only that it is condemned: the task fails there and then, and whoever
 * needs its result. Then that the device has nothing else to do: now the store is asked to kill that incarnation, and asked again until
 * it is gone, for the order may be lost with a connection. What the worker says has not begun behind the launch may run again although it
 * overwrites its input, if the barrier is still not done when the next incarnation reads the timeline.
 *
 * A death that we asked for is nobody's fault: no attempt is counted (worker.c).
 */
#include "head/core_int.h"

enum { FENCE_AGAIN_MS = 2000 };

static void untouched_take(struct head_device *device, const Plasmon__V1__Condemned *report)
{
    wire_ranges_clear(&device->untouched);
    for (size_t i = 0; i < report->n_untouched; i++) {
        struct wire_range *range = pl_vec_push(&device->untouched.items);

        PL_CHECK(range != NULL);
        range->first = report->untouched[i]->first;
        range->count = report->untouched[i]->count;
    }
    device->barrier = report->barrier;
}

static void fence(struct head_core *core, struct head_device *device)
{
    device->fencing  = true;
    device->fence_ms = core->now_ms;
    core->config.ops->fence(core->config.user, device->index);
}

void head_device_condemned(struct head_core *core, struct head_device *device,
                           const Plasmon__V1__Condemned *report)
{
    struct head_task *task = head_device_task(device, report->seq);
    struct head_failure *failure;
    char what[160];

    if (task != NULL && task->failure == NULL) {
        head_task_describe(task, what);
        failure = head_failure_create((plasmon_status_t)report->status, task->id,
                                      task->client != NULL ? task->client->id : 0,
                                      "%s was ended: %s", what, report->text);
        head_task_doom(core, task, failure);
        head_failure_release(failure);
    }
    if (report->fence && !device->fencing) {
        pl_warn("head", "device %u: its worker is fenced to end launch %llu", device->index,
                (unsigned long long)report->seq);
        untouched_take(device, report);
        fence(core, device);
    }
}

void head_device_fence_again(struct head_core *core)
{
    for (uint32_t i = 0; i < core->devices.count; i++) {
        struct head_device *device = head_device_at(core, i);

        if (device->fencing && !device->gone && !pl_bug("head.fence_once") &&
            core->now_ms - device->fence_ms >= FENCE_AGAIN_MS) {
            fence(core, device);
        }
    }
}

static bool unfinished(const Plasmon__V1__WorkerHello *hello, uint64_t seq)
{
    for (size_t i = 0; i < hello->n_unfinished; i++) {
        if (seq - hello->unfinished[i]->first < hello->unfinished[i]->count) {
            return true;
        }
    }
    return false;
}

bool head_device_fenced(struct head_device *device, const Plasmon__V1__WorkerHello *hello)
{
    bool asked = device->fencing;

    if (!asked || !unfinished(hello, device->barrier)) {
        wire_ranges_clear(&device->untouched);
    }
    device->fencing = false;
    return asked;
}

bool head_device_untouched(const struct head_device *device, uint64_t seq)
{
    if (pl_bug("head.untouched_forgotten")) {
        return false;
    }
    for (size_t i = 0; i < device->untouched.items.count; i++) {
        const struct wire_range *range = pl_vec_at(&device->untouched.items, i);

        if (seq - range->first < range->count) {
            return true;
        }
    }
    return false;
}
