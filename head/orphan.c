/*
 * Functions that run for nobody.
 *
 * When a session ends, its tasks that nobody else needs are marked: no ref, name, record or copy
 * shows what they make, and whoever was to read it is marked, too. What has not been sent is
 * skipped at once. What has been sent runs, since it is on its way or on the device, and mostly
 * ends before anybody could stop it.
 *
 * One that does not end would keep its stream, and whatever needs a quiet device (code that is to
 * be loaded, a graph that is to be recorded, a checkpoint of the journal), from everybody else, and
 * nobody is left who could cancel it. So:
 *
 *   - When its worker dies it is not run again (worker_back.c).
 *   - When it has been the oldest unfinished launch of its device for HEAD_ORPHAN_MS, with all that
 *     it waits for on other devices done, it is cancelled by force, as its client could have done.
 *     The oldest, because then nothing before it on the device is what takes so long: a launch of
 *     somebody else is never ended for one that only waits behind it.
 *
 * The clock is that of ticks, which are inputs of the machine: a head that is started again from
 * its journal comes to the same decisions. It needs no place in a checkpoint, for one is made only
 * when nothing is unfinished.
 */
#include "base/log.h"
#include "head/core_int.h"

/* Has it been sent, and does it wait for nothing that we know of? */
static bool may_run(const struct head_device *device, const struct head_task *task)
{
    return device->connected && task->seq <= device->seq_sent &&
           task->producers_open == 0 && !task->ended && !task->finished &&
           task->failure == NULL && !task->forced;
}

static void look(struct head_core *core, struct head_device *device)
{
    struct head_task *task = head_device_task(device, device->seq_oldest);

    if (task == NULL || !task->unwanted || !head_task_is_function(task) ||
        !may_run(device, task)) {
        device->orphan_seq = 0;
        return;
    }
    if (device->orphan_seq != task->seq) {
        device->orphan_seq      = task->seq;
        device->orphan_since_ms = core->now_ms;
        return;
    }
    if (core->now_ms < device->orphan_since_ms + HEAD_ORPHAN_MS) {
        return;
    }
    pl_info(
        "head",
        "launch %llu%s%s on device %u has run for %d s for a client that has ended, and "
        "nobody needs what it makes: it is ended by force",
        (unsigned long long)task->seq, task->label != NULL ? " " : "",
        task->label != NULL ? task->label : "", device->index, HEAD_ORPHAN_MS / 1000);
    head_task_cancel(core, task, true);
}

void head_orphans_tick(struct head_core *core)
{
    for (uint32_t i = 0; i < core->devices.count; i++) {
        look(core, head_device_at(core, i));
    }
}
