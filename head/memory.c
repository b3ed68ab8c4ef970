/*
 * What tasks in flight cost the head: every unfinished task counts the blocks that exist for it -
 * itself with its uses, its encoded launch, its label, its lists - and for each output what was
 * made for it. Tables that grow with the tasks (the ring of a device's launches, a client's ids)
 * are added when somebody asks. They never shrink, so a figure a task only means something while
 * there are many: it is taken whenever there are more than there ever were.
 */
#include "head/checkpoint.h"
#include "head/core_int.h"

#include <string.h>

/*
 * About what the allocator takes for so many, its own word included. It is not asked: that word
 * lies in memory that nobody else needs then.
 */
static uint64_t block_bytes(uint64_t bytes)
{
    return bytes != 0 ? (bytes + sizeof(size_t) + 15) / 16 * 16 : 0;
}

static uint64_t list_bytes(const struct pl_vec *list)
{
    return block_bytes(list->capacity * list->item_bytes);
}

enum {
    OUTPUT_BYTES = sizeof(struct head_array) + sizeof(struct head_fragment) +
                   sizeof(struct head_tile) + sizeof(struct head_instance) +
                   sizeof(struct head_buffer) + sizeof(struct head_ref) +
                   6 * sizeof(size_t) + 2 * sizeof(struct pl_map_slot)
};

void head_memory_count(struct head_core *core, struct head_task *task)
{
    uint64_t bytes = block_bytes(head_task_bytes(task->use_count)) +
                     block_bytes(task->bytes != task->small ? task->bytes_length : 0) +
                     block_bytes(task->label != NULL ? strlen(task->label) + 1 : 0) +
                     list_bytes(&task->dependents) + list_bytes(&task->outputs) +
                     list_bytes(&task->waits) +
                     task->outputs.count * (uint64_t)OUTPUT_BYTES;

    core->memory.bytes += bytes - task->counted_bytes;
    task->counted_bytes = bytes;
}

void head_memory_output(struct head_core *core, struct head_task *task)
{
    core->memory.bytes += OUTPUT_BYTES;
    task->counted_bytes += OUTPUT_BYTES;
}

void head_memory_forget(struct head_core *core, const struct head_task *task)
{
    PL_CHECK(core->memory.bytes >= task->counted_bytes);
    core->memory.bytes -= task->counted_bytes;
}

static uint64_t tables_bytes(struct head_core *core)
{
    struct pl_list *pos;
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < core->devices.count; i++) {
        const struct head_device *device = head_device_at(core, i);

        bytes += device->by_seq != NULL
                     ? block_bytes((device->by_seq_mask + 1) * sizeof(*device->by_seq))
                     : 0;
    }
    pl_list_for_each(pos, &core->clients) {
        const struct pl_map *tasks = &pl_container_of(pos, struct head_client, link)->tasks;

        bytes += block_bytes(tasks->capacity * sizeof(*tasks->slots));
    }
    return bytes;
}

void head_core_figures_take(struct head_core *core, const struct head_core *before)
{
    core->memory.most         = before->memory.most;
    core->memory.bytes_a_task = before->memory.bytes_a_task;
}

void head_memory_note(struct head_core *core)
{
    struct head_memory *memory = &core->memory;

    if (core->counts.tasks > memory->most) {
        memory->most         = core->counts.tasks;
        memory->bytes_a_task = (memory->bytes + tables_bytes(core)) / memory->most;
    }
}
