/*
 * Can a checkpoint be made now, and if not, why? What checkpoint_save.c knows nothing of must not
 * be there.
 */
#include "head/checkpoint_int.h"

static const char *unquiet_client(const struct head_client *client)
{
    if (client->tasks.count != 0 || client->groups.count != 0 || client->tasks_open != 0) {
        return "tasks are not done";
    }
    if (!pl_list_empty(&client->reads_late)) {
        return "reads wait for a client that does not acknowledge";
    }
    if (client->tracing) {
        return "a timeline is recorded";
    }
    for (size_t i = 0; i < client->refs.capacity; i++) {
        const struct head_ref *ref = client->refs.slots[i].value;

        if (client->refs.slots[i].key != 0 && ref->array->put_offset != UINT64_MAX) {
            return "a put is under way";
        }
    }
    return client->out.length != 0 || client->failed.count != 0 ||
                   client->done.items.count != 0
               ? "a client is yet to be told something"
               : NULL;
}

static const char *unquiet_device(const struct head_device *device)
{
    if (device->gone) { /* what was not sent to its worker, or told, never will be */
        return device->unfinished != 0 ? "launches are not done" : NULL;
    }
    if (device->unfinished != 0 || device->seq_sent != device->seq_last ||
        device->seq_oldest != device->seq_last + 1) {
        return "launches are not done";
    }
    if (device->expected_ms != 0) {
        return "a device is waited for";
    }
    if (device->fencing || device->starved_seq != 0 || device->relief.request != 0 ||
        device->arriving || device->draining) {
        return "a device is being changed";
    }
    return device->out.length != 0 || device->early.count != 0 ||
                   device->out_free.count != 0 || device->out_retire.count != 0 ||
                   device->out_graph_free.count != 0 ||
                   device->out_function_free.count != 0 || device->out_cancel.count != 0 ||
                   device->out_force.count != 0
               ? "a worker is yet to be told something"
               : NULL;
}

static const char *unquiet_host(const struct head_spill_host *spill)
{
    return pl_list_empty(&spill->requests) && pl_list_empty(&spill->queue) &&
                   spill->bound == 0 && spill->slab != HEAD_SLAB_ASKED
               ? NULL
               : "a store writes or reads what does not fit on its devices";
}

const char *head_core_unquiet(struct head_core *core)
{
    const char *why = NULL;
    struct pl_list *pos;

    if (!head_core_idle(core) || core->requests.count != 0 || core->ready.count != 0 ||
        !pl_list_empty(&core->found)) {
        return "tasks are not done";
    }
    if (head_functions_waited_for(core)) {
        return "a client waits for a function to be compiled";
    }
    if (!pl_list_empty(&core->drains)) {
        return "a node is drained";
    }
    if (core->tracing != 0 || core->trace_waits.count != 0) {
        return "a timeline is recorded";
    }
    if (head_pairs_change(core)) {
        return "a pair of devices is opened or closed";
    }
    if (head_teams_change(core)) {
        return "a team of devices is opened or closed";
    }
    pl_list_for_each(pos, &core->clients) {
        why = why != NULL ? why
                          : unquiet_client(pl_container_of(pos, struct head_client, link));
    }
    pl_list_for_each(pos, &core->spill_hosts) {
        why = why != NULL
                  ? why
                  : unquiet_host(pl_container_of(pos, struct head_spill_host, link));
    }
    for (uint32_t i = 0; why == NULL && i < core->devices.count; i++) {
        why = unquiet_device(head_device_at(core, i));
    }
    return why;
}

bool head_core_may_end(struct head_core *core)
{
    for (uint32_t i = 0; i < core->devices.count; i++) {
        const struct head_device *device = head_device_at(core, i);

        if (device->unfinished != 0 && !device->connected) {
            return false;
        }
    }
    return true;
}
