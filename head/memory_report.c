/*
 * Who holds what memory, for people: for each ref of a client and each published name, how many bytes it shows in which place. Refs may show the
 * same bytes (a snapshot, a view), and then each counts them: the sums of places are in the devices' own figures.
 */
#include "head/core_int.h"

#include <stdlib.h>
#include <string.h>

enum { HOLDERS_MAX = 256 };

struct report {
    struct wire_arena *arena;
    struct pl_vec rows; /* Plasmon__V1__MemoryHolder */
    size_t ref_first;   /* rows of the ref that is being looked at begin there */
};

Plasmon__V1__MemoryState head_buffer_state(const struct head_buffer *buffer)
{
    return buffer->spilled == NULL ? buffer->replica
                                         ? PLASMON__V1__MEMORY_STATE__MEMORY_REPLICA
                                         : PLASMON__V1__MEMORY_STATE__MEMORY_USED
           : buffer->spilled->file != 0 && !buffer->spilled->placed
               ? PLASMON__V1__MEMORY_STATE__MEMORY_FILE
               : PLASMON__V1__MEMORY_STATE__MEMORY_SPILLED;
}

/* The row of this ref for the place of the buffer. */
static Plasmon__V1__MemoryHolder *row_of(struct report *report,
                                         const struct head_buffer *buffer)
{
    uint32_t device = buffer->spilled == NULL ? buffer->device->index + 1 : 0;
    Plasmon__V1__MemoryState state = head_buffer_state(buffer);
    Plasmon__V1__MemoryHolder *row;

    for (size_t i = report->ref_first; i < report->rows.count; i++) {
        row = pl_vec_at(&report->rows, i);
        if (row->device == device && row->state == state &&
            strcmp(row->node, buffer->device->node) == 0) {
            return row;
        }
    }
    row = pl_vec_push(&report->rows);
    PL_CHECK(row != NULL);
    plasmon__v1__memory_holder__init(row);
    row->node   = buffer->device->node;
    row->device = device;
    row->state  = state;
    return row;
}

static void array_look(struct report *report, const struct head_array *array,
                       uint64_t client, const char *label, uint64_t ref)
{
    uint64_t element = pl_dtype_bytes(array->shape.dtype);
    struct pl_list *pos, *it;

    report->ref_first = report->rows.count;
    pl_list_for_each(pos, &array->fragments) {
        const struct head_fragment *fragment =
            pl_container_of(pos, struct head_fragment, array_link);

        pl_list_for_each(it, &fragment->tile->instances) {
            const struct head_instance *instance =
                pl_container_of(it, struct head_instance, tile_link);
            struct pl_box part;

            if (pl_box_intersection(&instance->box, &fragment->box, &part)) {
                row_of(report, instance->buffer)->bytes +=
                    (uint64_t)pl_box_elements(&part) * element;
            }
        }
    }
    for (size_t i = report->ref_first; i < report->rows.count; i++) {
        Plasmon__V1__MemoryHolder *row = pl_vec_at(&report->rows, i);

        row->client = client;
        row->label  = (char *)(uintptr_t)label;
        row->ref    = ref;
    }
}

/* Largest first; then in an order that does not depend on maps. */
static int compare_rows(const void *a, const void *b)
{
    const Plasmon__V1__MemoryHolder *x = a, *y = b;
    int order = (x->bytes < y->bytes) - (x->bytes > y->bytes);

    if (order == 0) {
        order = (x->client > y->client) - (x->client < y->client);
    }
    if (order == 0) {
        order = (x->ref > y->ref) - (x->ref < y->ref);
    }
    if (order == 0) {
        order = (x->device > y->device) - (x->device < y->device);
    }
    return order != 0 ? order : strcmp(x->label, y->label);
}

static plasmon_status_t rows_out(struct report *report, Plasmon__V1__StatusReply *out)
{
    size_t count = pl_min_u64(report->rows.count, HOLDERS_MAX);
    Plasmon__V1__MemoryHolder *rows =
        wire_arena_alloc(report->arena, (count + 1) * sizeof(*rows));

    out->holders = wire_arena_alloc(report->arena, (count + 1) * sizeof(*out->holders));
    if (rows == NULL || out->holders == NULL) {
        return PLASMON_ENOMEM;
    }
    if (report->rows.count > 1) {
        qsort(report->rows.items, report->rows.count, sizeof(*rows), compare_rows);
    }
    for (size_t i = 0; i < count; i++) {
        rows[i]         = *(Plasmon__V1__MemoryHolder *)pl_vec_at(&report->rows, i);
        out->holders[i] = &rows[i];
    }
    out->n_holders    = count;
    out->holders_left = report->rows.count - count;
    return PLASMON_OK;
}

uint64_t head_spill_memory_used(const struct head_spill_host *spill)
{
    const struct pl_list *pos;
    uint64_t bytes = 0;

    pl_list_for_each(pos, &spill->ranges) {
        bytes += pl_container_of(pos, struct head_spilled, range_link)->bytes;
    }
    return bytes;
}

static Plasmon__V1__SpillHost *spill_host(const struct head_spill_host *spill,
                                          struct wire_arena *arena)
{
    Plasmon__V1__SpillHost *out = wire_arena_alloc(arena, sizeof(*out));

    if (out == NULL) {
        return NULL;
    }
    plasmon__v1__spill_host__init(out);
    out->memory_used        = head_spill_memory_used(spill);
    out->node               = spill->home.node;
    out->memory_bytes       = spill->config.memory_bytes;
    out->file_bytes         = spill->config.file_bytes;
    out->file_used          = spill->file_bytes;
    out->spills             = spill->spills;
    out->spill_bytes        = spill->spill_bytes;
    out->restores           = spill->restores;
    out->restore_bytes      = spill->restore_bytes;
    out->write_backs        = spill->write_backs;
    out->write_back_bytes   = spill->write_back_bytes;
    out->write_back_cancels = spill->cancels;
    out->writes             = spill->writes;
    out->write_bytes        = spill->write_bytes;
    out->reads              = spill->reads;
    out->read_bytes         = spill->read_bytes;
    return out;
}

plasmon_status_t head_spill_status(struct head_core *core, struct wire_arena *arena,
                                   Plasmon__V1__StatusReply *out)
{
    struct pl_list *pos;
    size_t count = 0;

    pl_list_for_each(pos, &core->spill_hosts) {
        count++;
    }
    out->spill_hosts = wire_arena_alloc(arena, (count + 1) * sizeof(*out->spill_hosts));
    if (out->spill_hosts == NULL) {
        return PLASMON_ENOMEM;
    }
    pl_list_for_each(pos, &core->spill_hosts) {
        Plasmon__V1__SpillHost *one =
            spill_host(pl_container_of(pos, struct head_spill_host, link), arena);

        if (one == NULL) {
            return PLASMON_ENOMEM;
        }
        out->spill_hosts[out->n_spill_hosts++] = one;
    }
    return PLASMON_OK;
}

/* What may not go now, because somebody is at it. */
static uint64_t bytes_pinned(const struct head_device *device)
{
    uint64_t bytes = 0;
    struct pl_list *pos;

    pl_list_for_each(pos, &device->buffers) {
        const struct head_buffer *buffer =
            pl_container_of(pos, struct head_buffer, device_link);

        bytes += buffer->uses > 0 || head_buffer_mapped(buffer)
                     ? head_spill_rounded(buffer->bytes)
                     : 0;
    }
    return bytes;
}

plasmon_status_t head_core_status_memory(struct head_core *core, struct wire_arena *arena,
                                         Plasmon__V1__StatusReply *out)
{
    struct report report = {.arena = arena, .rows = PL_VEC_INIT(Plasmon__V1__MemoryHolder)};
    plasmon_status_t status;
    struct pl_list *pos;
    uint64_t key;
    void *ref;

    for (size_t i = 0; i < out->n_devices; i++) {
        out->devices[i]->bytes_pinned =
            bytes_pinned(head_device_at(core, out->devices[i]->index));
    }
    pl_list_for_each(pos, &core->clients) {
        const struct head_client *client = pl_container_of(pos, struct head_client, link);

        for (size_t i = 0; pl_map_next(&client->refs, &i, &key, &ref);) {
            array_look(&report, ((struct head_ref *)ref)->array, client->id, client->label,
                       key);
        }
    }
    pl_list_for_each(pos, &core->names) {
        const struct head_name *name = pl_container_of(pos, struct head_name, link);

        array_look(&report, name->ref.array, 0, name->key + strlen(name->key) + 1, 0);
    }
    status = rows_out(&report, out);
    pl_vec_finish(&report.rows);
    return status;
}
