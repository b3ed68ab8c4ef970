/*
 * What is made beyond the plan: a new value of a client for which make_room() found no room,
 * because host memory and files have no more for new ones.
 *
 * There may be memory for it on the device all the same: the part that the plan keeps free, or what
 * will have been released until its turn. But so there may be because what comes back makes way
 * there, launch by launch: what has a copy in host memory too is dropped as soon as the plan says
 * so, and others are spilled into the room that is kept for that (room_for in spill_host.c). A new
 * value in front of the restore would take it, and after some of these nothing could come back any
 * more. So its launch is held, and everything behind it on its device:
 *
 *   sent     when the plan has room for it after all; or host memory and files have room for two of
 *            the largest, free or taken by copies of what is on devices, too. One at a time for a
 *            host, in the order of numbers: the next when that one is over. So whatever comes back
 *            meanwhile, and makes room on the device, one of the two is left
 *   refused  when neither is so and everything in the cluster with a smaller number is over: no
 *            launch will change it
 *
 * NOTHING HANGS. The oldest launch of the cluster is sent or refused when the input has run dry,
 * whatever was sent of its kind before: that had smaller numbers, so it is over. One that is not
 * the oldest waits for smaller numbers alone.
 */
#include "head/spill_int.h"

void head_excess_queue(struct head_core *core, struct head_task *task)
{
    struct head_spill_host *spill = head_spill_host_of(core, task->device->host);

    if (spill != NULL) {
        task->excess = HEAD_EXCESS_HELD;
        pl_list_add_tail(&spill->excess, &task->spill_link);
    }
}

bool head_excess_held(const struct head_task *task)
{
    return task->excess == HEAD_EXCESS_HELD && task->failure == NULL &&
           task->kind != PLASMON__V1__LAUNCH_KIND__LAUNCH_SKIP;
}

void head_excess_over(struct head_task *task)
{
    if (task->excess != HEAD_EXCESS_NONE) {
        task->excess = HEAD_EXCESS_NONE;
        pl_list_remove(&task->spill_link);
    }
}

void head_excess_host_gone(struct head_spill_host *spill)
{
    while (!pl_list_empty(&spill->excess)) {
        head_excess_over(pl_list_first(&spill->excess, struct head_task, spill_link));
    }
}

static uint64_t bytes_made(const struct head_task *task)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < task->use_count; i++) {
        const struct head_use *use = &task->uses[i];

        bytes += use->write && use->buffer->device == task->device ? use->buffer->bytes : 0;
    }
    return bytes;
}

static void refuse(struct head_spill_host *spill, struct head_task *task)
{
    const char *why = spill->files_full && spill->files_why != NULL ? spill->files_why : "";
    struct head_failure *failure;
    char what[160], want[32], all[32], memory[32], files[32];

    head_task_describe(task, what);
    failure = head_failure_create(
        PLASMON_EDEVMEM, task->id, task->client != NULL ? task->client->id : 0,
        "%s makes %s on device %u, and there is no room: its %s, %s of host memory for "
        "spilling and %s of files are taken, but for what is kept so that what was spilled "
        "can come back%s%s; release some refs, or give plasmon-store more "
        "--spill-memory or another --spill-dir",
        what, pl_format_bytes(bytes_made(task), want), task->device->index,
        pl_format_bytes(task->device->bytes_total, all),
        pl_format_bytes(spill->config.memory_bytes, memory),
        pl_format_bytes(spill->config.file_bytes, files), why[0] != '\0' ? ": " : "", why);
    head_task_doom(spill->core, task, failure);
    if (task->kind != PLASMON__V1__LAUNCH_KIND__LAUNCH_SKIP) {
        head_launch_skip(spill->core, task);
    }
    head_failure_release(failure);
}

/* The next of a host. */
static void decide(struct head_core *core, struct head_spill_host *spill)
{
    const struct head_task *oldest =
        pl_list_empty(&core->unfinished)
            ? NULL
            : pl_list_first(&core->unfinished, struct head_task, order_link);
    struct pl_list *pos, *tmp;

    pl_list_for_each_safe(pos, tmp, &spill->excess) {
        struct head_task *task = pl_container_of(pos, struct head_task, spill_link);

        if (task->excess == HEAD_EXCESS_SENT) {
            return;
        }
        if (!head_excess_held(task) || head_spill_within(task->device)) {
            head_excess_over(task);
        } else if (head_spill_room_kept(spill)) {
            task->excess = HEAD_EXCESS_SENT;
            return;
        } else if (task == oldest) {
            refuse(spill, task);
            head_excess_over(task);
        } else {
            return;
        }
    }
}

void head_excess_decide(struct head_core *core)
{
    const struct pl_list *pos;

    pl_list_for_each(pos, &core->spill_hosts) {
        struct head_spill_host *spill = pl_container_of(pos, struct head_spill_host, link);

        if (!pl_list_empty(&spill->excess)) {
            decide(core, spill);
        }
    }
}
