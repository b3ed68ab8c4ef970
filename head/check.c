/*
 * The invariants of the head's state (object.c, device.c), walked in full. For tests: slow, aborts
 * at the first broken one.
 */
#include "head/core_int.h"

static void check_array(const struct head_array *array)
{
    struct pl_list *pos, *other;
    int64_t covered = 0;
    uint32_t count  = 0;

    pl_list_for_each(pos, &array->fragments) {
        const struct head_fragment *fragment =
            pl_container_of(pos, struct head_fragment, array_link);

        PL_CHECK(fragment->array == array);
        PL_CHECK(pl_box_contains(&fragment->tile->box, &fragment->box));
        PL_CHECK(pl_box_contains(&array->extent, &fragment->box));
        covered += pl_box_elements(&fragment->box);
        count++;
        for (other = pos->next; other != &array->fragments; other = other->next) {
            const struct head_fragment *second =
                pl_container_of(other, struct head_fragment, array_link);

            PL_CHECK(!pl_box_intersects(&fragment->box, &second->box));
        }
        PL_CHECK(pos->next == &array->fragments ||
                 fragment->number <
                     pl_container_of(pos->next, struct head_fragment, array_link)->number);
        PL_CHECK(head_array_meet(array, &fragment->box) == fragment &&
                 fragment->met == NULL);
        /* What it shows must be somewhere, or known to be lost. */
        PL_CHECK(fragment->tile->failure != NULL ||
                 head_tile_covered(fragment->tile, NULL, &fragment->box));
    }
    PL_CHECK(count == array->fragment_count);
    PL_CHECK(array->spans == NULL || array->spans->count == count);
    PL_CHECK(covered == pl_box_elements(&array->extent));
}

static bool is_no_replica(const struct head_buffer *buffer, const void *user)
{
    (void)user;
    return !buffer->replica;
}

/* What may be dropped at any time is elsewhere: in what may not. */
static void check_replica(const struct head_instance *instance)
{
    const struct pl_list *pos;

    pl_list_for_each(pos, &instance->tile->fragments) {
        const struct head_fragment *fragment =
            pl_container_of(pos, const struct head_fragment, tile_link);
        struct pl_box part;

        PL_CHECK(instance->tile->failure != NULL ||
                 !pl_box_intersection(&fragment->box, &instance->box, &part) ||
                 head_tile_covered_by(instance->tile, is_no_replica, NULL, &part));
    }
}

static void check_buffer(const struct head_buffer *buffer)
{
    struct pl_list *pos, *other;
    uint32_t refs = 0;

    pl_list_for_each(pos, &buffer->instances) {
        const struct head_instance *instance =
            pl_container_of(pos, struct head_instance, buffer_link);

        refs++;
        PL_CHECK(instance->buffer == buffer);
        PL_CHECK(pl_box_contains(&buffer->frame, &instance->box));
        PL_CHECK(pl_box_contains(&instance->tile->box, &instance->box));
        if (buffer->replica) {
            check_replica(instance);
        }
        for (other = pos->next; other != &buffer->instances; other = other->next) {
            const struct head_instance *second =
                pl_container_of(other, struct head_instance, buffer_link);

            PL_CHECK(second->tile == instance->tile ||
                     !pl_box_intersects(&instance->box, &second->box));
        }
    }
    head_places_check(buffer);
    PL_CHECK(buffer->refs >= refs); /* the rest are uses, counted below */
    PL_CHECK(buffer->refs > 0);
}

static void check_device(const struct head_device *device)
{
    struct pl_list *pos;
    uint64_t bytes      = 0;
    uint64_t live       = 0;
    uint64_t in_use     = 0;
    int64_t off         = 0;
    uint64_t unfinished = 0;

    pl_list_for_each(pos, &device->buffers) {
        const struct head_buffer *buffer =
            pl_container_of(pos, struct head_buffer, device_link);

        PL_CHECK(buffer->device == device);
        bytes += buffer->bytes;
        live += buffer->leaving ? 0 : head_spill_rounded(buffer->bytes);
        in_use += buffer->uses > 0 ? head_spill_rounded(buffer->bytes) : 0;
        if (buffer->told && buffer->replica != buffer->told_replica) {
            off += buffer->replica ? (int64_t)buffer->bytes : -(int64_t)buffer->bytes;
        }
        check_buffer(buffer);
        PL_CHECK(pl_list_linked(&buffer->loose_link) || !head_spill_droppable(buffer));
    }
    PL_CHECK(off == device->replica_off);
    PL_CHECK(bytes == device->bytes_planned && live == device->bytes_live);
    PL_CHECK(in_use == device->bytes_in_use);
    for (uint64_t seq = device->seq_oldest; seq <= device->seq_last; seq++) {
        const struct head_task *task = device->by_seq[seq & device->by_seq_mask];

        if (task != NULL) {
            PL_CHECK(task->seq == seq && task->device == device && !task->finished);
            unfinished++;
        }
    }
    PL_CHECK(unfinished == device->unfinished);
}

/* Versions that are kept for what may come: older ones, and what calls read that nobody can make again. */
static void check_kept(const struct head_core *core)
{
    const struct pl_list *pos;

    pl_list_for_each(pos, &core->shadows) {
        const struct head_shadow *shadow =
            pl_container_of(pos, const struct head_shadow, link);

        PL_CHECK(shadow->kept != NULL || shadow->older == NULL);
        if (shadow->kept != NULL) {
            check_array(shadow->kept);
        }
        if (shadow->older != NULL) {
            check_array(shadow->older);
        }
    }
}

void head_core_check(const struct head_core *core)
{
    struct pl_list *pos;
    uint64_t tasks         = 0;
    uint64_t clients_tasks = 0; /* that are in no list of their client */
    uint64_t order         = 0;

    for (uint32_t i = 0; i < core->devices.count; i++) {
        check_device(head_device_at(core, i));
    }
    head_spill_check(core);
    head_seconds_check(core);
    head_reach_check(core);
    head_teams_check(core);
    pl_list_for_each(pos, &core->unfinished) {
        const struct head_task *task = pl_container_of(pos, struct head_task, order_link);

        PL_CHECK(task->order >= order); /* equal: the halves of a transfer */
        order = task->order;
        tasks++;
        clients_tasks += task->client != NULL;
        for (uint32_t i = 0; i < task->use_count; i++) {
            PL_CHECK(task->uses[i].buffer != NULL && task->uses[i].buffer->refs > 0);
        }
    }
    PL_CHECK(tasks == core->counts.tasks);
    head_lineage_check(core);
    check_kept(core);
    head_spaces_check(core);
    head_names_check(core);
    head_found_check(core);
    pl_list_for_each(pos, &core->clients) {
        const struct head_client *client = pl_container_of(pos, struct head_client, link);
        struct pl_list *link;
        uint64_t key;
        void *value;

        pl_list_for_each(link, &client->unfinished) {
            PL_CHECK(pl_container_of(link, struct head_task, client_link)->client ==
                     client);
            clients_tasks--;
        }
        for (size_t i = 0; pl_map_next(&client->refs, &i, &key, &value);) {
            const struct head_ref *ref = value;

            PL_CHECK(ref->array->refs > 0);
            if (ref->array->put_offset == UINT64_MAX) {
                check_array(ref->array);
            }
        }
    }
    PL_CHECK(clients_tasks == 0);
}
