/*
 * Which buffers lie side by side so that, when they have gone, there is one hole for what the front
 * wants? The head knows who uses a buffer, and not where it lies. It asks when no single buffer is
 * enough (head/relief.c), and takes from the answer what nobody uses; so here only those are left
 * out that somebody in the queue names, but for a spill, and what is not sealed.
 */
#include "worker/core_int.h"

/* Of so many buffers: they go one after the other (head/relief.c takes no more, either). */
#define WINDOW_MAX 64u

static bool may_go(void *user, uint64_t offset)
{
    return pl_map_get(user, offset + 1) != NULL;
}

static void leave_out(const struct worker_core *core, struct pl_map *movable, uint32_t slot,
                      uint32_t generation)
{
    const struct store_entry *entry =
        worker_buffer_find(core, core->config.host_device, slot, generation);

    if (entry != NULL) {
        (void)pl_map_remove(movable, entry->offset + 1);
    }
}

static void leave_out_all(const struct worker_core *core, struct pl_map *movable,
                          const struct worker_launch *launch)
{
    for (uint32_t i = 0; i < launch->operand_count; i++) {
        leave_out(core, movable, launch->operands[i].slot, launch->operands[i].generation);
    }
    for (uint32_t i = 0; i < launch->piece_count; i++) {
        uint64_t src = launch->pieces[i].src;

        if (worker_host_device_of(core, wire_buffer_device(src)) ==
            core->config.host_device) {
            leave_out(core, movable, wire_buffer_slot(src), wire_buffer_generation(src));
        }
    }
}

/* Offset + 1 -> slot + 1, as a pointer. */
static plasmon_status_t movable_find(const struct worker_core *core, struct pl_map *movable)
{
    uint32_t end            = worker_slot_end(core);
    plasmon_status_t status = PLASMON_OK;

    for (uint32_t slot = 0; slot < end && status == PLASMON_OK; slot++) {
        const struct store_entry *entry = &core->table->entries[slot];

        if (worker_entry_state(entry) == STORE_SEALED) {
            status = pl_map_set(movable, entry->offset + 1, (void *)((uintptr_t)slot + 1));
        }
    }
    for (const struct worker_launch *launch = core->queue.first; launch != NULL;
         launch                             = launch->next) {
        if (launch->kind != PLASMON__V1__LAUNCH_KIND__LAUNCH_GET_HOST) {
            leave_out_all(core, movable, launch);
        }
    }
    return status;
}

plasmon_status_t worker_window_find(const struct worker_core *core, uint64_t bytes,
                                    struct pl_vec *out_buffers)
{
    struct pl_map movable;
    plasmon_status_t status;

    pl_map_init(&movable);
    status = movable_find(core, &movable);
    if (status == PLASMON_OK) {
        status = store_arena_window(core->arena, bytes, WINDOW_MAX, may_go, &movable,
                                    out_buffers);
    }
    for (size_t i = 0; i < out_buffers->count; i++) {
        uint64_t *place = pl_vec_at(out_buffers, i);
        uint32_t slot   = (uint32_t)((uintptr_t)pl_map_get(&movable, *place + 1) - 1);

        *place = wire_buffer(0, slot, core->table->entries[slot].generation);
    }
    pl_map_finish(&movable);
    return status;
}
