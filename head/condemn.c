/*
 * Launches that must not go on: their worker is fenced, because nothing else ends a kernel.
 *
 * A worker tells of such a launch twice (worker/condemn.c). At first only that it is condemned: the
 * task fails there and then, and whoever needs its result. Then that the device has nothing else to
 * do: now the store is asked to kill that incarnation, and asked again until it is gone, for the
 * order may be lost with a connection.
 *
 * A death that we asked for is nobody's fault: no attempt is counted (worker.c).
 */
#include "head/core_int.h"

enum { FENCE_AGAIN_MS = 2000 };

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

bool head_device_fenced(struct head_device *device)
{
    bool asked = device->fencing;

    device->fencing = false;
    return asked;
}
