/*
 * A host that takes what its devices have no room for: what it offers, and which buffers have a
 * copy there, planned or filled.
 *
 * How much may be copied is decided here, when a spill is planned (head_spill_copy): what was
 * spilled and not forgotten is never more than slab and files hold together, less what it takes to
 * bring any of it back when they are full (room_for). spill_places.c relies on it, which finds the
 * copies their places later; spill_store.c asks the store.
 *
 * Seeded bug: spill.count_coming (a value is taken for being on a device while it is on its way there).
 *
 * Deterministic: what is done depends on the order of inputs, on nothing else.
 */
#include "head/spill_int.h"

#include <string.h>

/* -------------------------------------------------------------------------------- hosts */

struct head_spill_host *head_spill_host_of(struct head_core *core, const char *host)
{
    struct pl_list *pos;

    pl_list_for_each(pos, &core->spill_hosts) {
        struct head_spill_host *spill = pl_container_of(pos, struct head_spill_host, link);

        if (strcmp(spill->home.host, host) == 0) {
            return spill;
        }
    }
    return NULL;
}

static const char *node_of(struct head_core *core, const char *host)
{
    for (uint32_t i = 0; i < core->devices.count; i++) {
        const struct head_device *device = head_device_at(core, i);

        if (!device->gone && strcmp(device->host, host) == 0) {
            return device->node;
        }
    }
    return host;
}

void head_spill_host_create(struct head_core *core, const char *host,
                            const struct head_spill_config *config)
{
    struct head_spill_host *spill = head_alloc(sizeof(*spill));

    spill->core           = core;
    spill->config         = *config;
    spill->home.index     = UINT32_MAX;
    spill->home.spill     = spill;
    spill->home.host      = head_host_name(core, host);
    spill->home.node      = head_strdup(node_of(core, host));
    spill->home.connected = true;
    spill->home.joined    = true;
    pl_map_init(&spill->sizes);
    pl_list_init(&spill->home.buffers);
    pl_list_init(&spill->home.ending);
    pl_list_init(&spill->home.recent);
    pl_list_init(&spill->home.loose);
    pl_list_init(&spill->ranges);
    pl_list_init(&spill->recent);
    pl_list_init(&spill->queue);
    pl_list_init(&spill->ahead);
    pl_list_init(&spill->excess);
    pl_list_init(&spill->requests);
    pl_list_init(&spill->link);
    pl_list_add_tail(&core->spill_hosts, &spill->link);
}

static void host_destroy(struct head_spill_host *spill)
{
    PL_CHECK(pl_list_empty(&spill->home.buffers) && pl_list_empty(&spill->requests));
    head_excess_host_gone(spill);
    pl_list_remove(&spill->link);
    pl_free(spill->home.node);
    pl_free(spill->slab_why);
    pl_free(spill->files_why);
    pl_map_finish(&spill->sizes);
    pl_free(spill);
}

/* -------------------------------------------------------------------------------- sizes */

void head_spill_size_add(struct head_spill_host *spill, uint64_t bytes)
{
    uintptr_t count = (uintptr_t)pl_map_get(&spill->sizes, bytes);

    PL_CHECK(pl_map_set(&spill->sizes, bytes, (void *)(count + 1)) == PLASMON_OK);
    spill->largest = pl_max_u64(spill->largest, bytes);
}

static void size_remove(struct head_spill_host *spill, uint64_t bytes)
{
    uintptr_t count = (uintptr_t)pl_map_get(&spill->sizes, bytes);
    uint64_t key;
    void *value;

    PL_CHECK(count > 0);
    if (count > 1) {
        PL_CHECK(pl_map_set(&spill->sizes, bytes, (void *)(count - 1)) == PLASMON_OK);
        return;
    }
    (void)pl_map_remove(&spill->sizes, bytes);
    if (bytes < spill->largest) {
        return;
    }
    spill->largest = 0;
    for (size_t i = 0; pl_map_next(&spill->sizes, &i, &key, &value);) {
        spill->largest = pl_max_u64(spill->largest, key);
    }
}

/* ------------------------------------------------------------------------------- copies */

/* By a launch that came after the one that made it. */
static bool is_being_brought(const struct head_instance *instance)
{
    size_t count;
    struct head_use *const *found =
        head_places_uses(instance->buffer, true, &instance->box, &count);

    for (size_t i = 0; i < count; i++) {
        if (found[i]->task->order > instance->tile->order) {
            return !pl_bug("spill.count_coming");
        }
    }
    return false;
}

/* Some of what the buffer is to hold of the value may yet not come, for want of memory or of a way. */
static bool is_coming(const struct head_buffer *buffer, const struct head_instance *copied)
{
    struct pl_list *pos;

    if (pl_list_empty(&buffer->writers)) {
        return false;
    }
    pl_list_for_each(pos, &copied->tile->instances) {
        const struct head_instance *instance =
            pl_container_of(pos, struct head_instance, tile_link);

        if (instance->buffer == buffer && pl_box_intersects(&instance->box, &copied->box) &&
            is_being_brought(instance)) {
            return true;
        }
    }
    return false;
}

/* A device that has it, and is as likely to stay as the host whose memory the copy is in. */
static bool device_counts(const struct head_buffer *buffer, const void *user)
{
    const struct head_instance *copied = user;

    return buffer->spilled == NULL &&
           (!buffer->device->draining || copied->buffer->device->draining) &&
           !is_coming(buffer, copied);
}

/* Another copy in memory of the same host, which is there. */
static bool is_other_copy(const struct head_buffer *buffer, const void *user)
{
    const struct head_buffer *copy = user;

    return buffer != copy && buffer->device == copy->device && buffer->spilled->filled;
}

/* Is all that is in it elsewhere, where it is as safe? */
static bool copy_droppable(const struct head_buffer *copy)
{
    struct pl_list *pos;

    if (copy->leaving || pl_list_empty(&copy->instances)) {
        return false;
    }
    pl_list_for_each(pos, &copy->instances) {
        const struct head_instance *instance =
            pl_container_of(pos, struct head_instance, buffer_link);

        if (!head_tile_covered_by(instance->tile, device_counts, instance,
                                  &instance->box) &&
            (instance->tile->second == NULL ||
             !head_tile_covered_by(instance->tile, is_other_copy, copy, &instance->box))) {
            return false;
        }
        if (head_second_needs(instance->tile, copy, &instance->box)) {
            return false;
        }
    }
    return true;
}

bool head_spill_copy_drop(struct head_core *core, struct head_buffer *copy)
{
    struct pl_box frame = copy->frame;

    if (!copy_droppable(copy)) {
        return false;
    }
    head_spill_keep_others(copy);
    head_buffer_forget(core, copy, &frame, UINT64_MAX); /* may free it */
    return true;
}

/*
 * Copies of what is on a device, too, go until so much of what is planned there is free. false:
 * there are too few.
 */
static bool drop_copies(struct head_core *core, struct head_spill_host *spill,
                        uint64_t bytes)
{
    struct pl_list *pos, *tmp;
    uint64_t dropped = 0;

    pl_list_for_each_safe(pos, tmp, &spill->home.loose) {
        struct head_buffer *copy = pl_container_of(pos, struct head_buffer, loose_link);
        uint64_t size            = copy->spilled->bytes;

        if (dropped >= bytes) {
            break;
        }
        core->steps++;
        pl_list_remove(&copy->loose_link); /* it goes, or may not */
        dropped += head_spill_copy_drop(core, copy) ? size : 0;
    }
    return dropped >= bytes;
}

void head_spill_slab_want(struct head_spill_host *spill)
{
    spill->slab = HEAD_SLAB_ASKED;
    head_spill_ask(spill, HEAD_SPILL_SLAB, NULL, 0);
}

bool head_spill_slab_grow(struct head_spill_host *spill)
{
    if (spill->slab_bytes == spill->config.memory_bytes) {
        return false;
    }
    if (!spill->slab_growing) {
        spill->slab_growing = true;
        head_spill_ask(spill, HEAD_SPILL_SLAB, NULL, 0);
    }
    return true;
}

/*
 * What is kept free, so that everything that was spilled can be read again when all is full. Let L
 * be the largest:
 *
 *   2 L of slab and files  a value that is in a file alone needs a place in the slab, and what lies
 *                          there must go to a file first. That works, of whatever sizes they are,
 *                          unless less than L is free in the slab and less than L in the files.
 *                          What fits into the slab needs no file
 *   2 L of what is left    a device that is full must send others here before a value can come
 *                          back: as much, and up to one more, whose size was not the right one.
 *                          Then the place of that value can be given up. So only what comes back
 *                          may take this; not more than half, or little memory would be none
 */
static uint64_t room_for(const struct head_spill_host *spill, uint64_t bytes,
                         enum head_spill_for purpose)
{
    uint64_t memory  = spill->config.memory_bytes;
    uint64_t files   = spill->files_full ? spill->file_bytes - spill->files_try_bytes
                                         : spill->config.file_bytes;
    uint64_t largest = pl_max_u64(bytes, spill->largest);
    uint64_t room    = memory + files - pl_min_u64(2 * largest, files);

    return purpose == HEAD_SPILL_FOR_RETURN || spill->home.bytes_live == 0
               ? room
               : room - pl_min_u64(2 * largest, room / 2);
}

bool head_spill_room_free(const struct head_spill_host *spill, uint64_t bytes)
{
    return spill->home.bytes_live + bytes <= room_for(spill, bytes, HEAD_SPILL_FOR_NEW);
}

bool head_spill_reserve(struct head_core *core, struct head_spill_host *spill,
                        uint64_t bytes, enum head_spill_for purpose)
{
    uint64_t room  = room_for(spill, bytes, purpose);
    uint64_t taken = spill->home.bytes_live + bytes;

    return taken <= room || drop_copies(core, spill, taken - room);
}

/* What would be taken if copies of what is on a device, too, went: as far as it is above `most`. */
static uint64_t taken_alone(struct head_spill_host *spill, uint64_t most)
{
    uint64_t taken = spill->home.bytes_live;
    struct pl_list *pos, *tmp;

    pl_list_for_each_safe(pos, tmp, &spill->home.loose) {
        struct head_buffer *copy = pl_container_of(pos, struct head_buffer, loose_link);

        if (taken <= most) {
            break;
        }
        spill->core->steps++;
        if (copy_droppable(copy)) {
            taken -= copy->spilled->bytes;
        } else {
            pl_list_remove(&copy->loose_link);
        }
    }
    return taken;
}

uint64_t head_spill_host_room(struct head_spill_host *spill, uint64_t largest,
                              uint64_t enough)
{
    uint64_t room =
        spill->slab != HEAD_SLAB_FAILED ? room_for(spill, largest, HEAD_SPILL_FOR_NEW) : 0;

    return room - pl_min_u64(taken_alone(spill, room - pl_min_u64(enough, room)), room);
}

bool head_spill_room_kept(struct head_spill_host *spill)
{
    uint64_t room  = room_for(spill, 0, HEAD_SPILL_FOR_RETURN);
    uint64_t most  = room - pl_min_u64(2 * spill->largest, room);
    uint64_t alone = taken_alone(spill, most);

    return alone <= most || alone == 0;
}

struct head_buffer *head_spill_copy(struct head_core *core, struct head_spill_host *spill,
                                    const struct head_buffer *buffer,
                                    enum head_spill_for purpose)
{
    uint64_t bytes = head_spill_rounded(buffer->bytes);
    struct head_buffer *copy;

    if (spill->slab == HEAD_SLAB_FAILED || bytes > spill->config.memory_bytes) {
        return NULL;
    }
    if (!head_spill_reserve(core, spill, bytes, purpose)) {
        return NULL;
    }
    if (spill->slab == HEAD_SLAB_NONE) {
        head_spill_slab_want(spill);
    }
    copy            = head_buffer_create(core, &spill->home, &buffer->frame, buffer->dtype);
    copy->donatable = buffer->donatable;
    copy->spilled   = head_alloc(sizeof(*copy->spilled));
    copy->spilled->buffer = copy;
    copy->spilled->bytes  = bytes;
    head_spill_size_add(spill, bytes);
    pl_list_init(&copy->spilled->range_link);
    pl_list_init(&copy->spilled->recent_link);
    return copy;
}

void head_spill_freed(struct head_core *core, struct head_buffer *buffer)
{
    struct head_spill_host *spill = buffer->device->spill;
    struct head_spilled *spilled  = buffer->spilled;

    (void)core;
    PL_CHECK(spilled->pins == 0 && !spilled->busy);
    if (spilled->placed) {
        head_spill_place_leave(spilled);
    }
    if (spilled->file != 0) {
        head_spill_ask(spill, HEAD_SPILL_FORGET, NULL, spilled->file);
        spill->file_bytes -= spilled->bytes;
        spill->files_full = false; /* it may do now */
    }
    size_remove(spill, spilled->bytes);
    pl_free(spilled);
    buffer->spilled = NULL;
}

void head_core_spill_count(const struct head_core *core, struct head_spill_counts *out)
{
    const struct pl_list *pos, *it;

    memset(out, 0, sizeof(*out));
    pl_list_for_each(pos, &core->spill_hosts) {
        const struct head_spill_host *spill =
            pl_container_of(pos, struct head_spill_host, link);

        out->memory_bytes += spill->config.memory_bytes;
        out->file_bytes += spill->config.file_bytes;
        out->file_used += spill->file_bytes;
        out->spills += spill->spills;
        out->spill_bytes += spill->spill_bytes;
        out->restores += spill->restores;
        out->restore_bytes += spill->restore_bytes;
        out->write_backs += spill->write_backs;
        out->write_back_bytes += spill->write_back_bytes;
        out->write_back_cancels += spill->cancels;
        out->undone += spill->undone;
        out->relieved += spill->relieved;
        out->relieved_spills += spill->relieved_spills;
        out->relieved_in_vain += spill->relieved_in_vain;
        out->stranded += spill->stranded;
        out->writes += spill->writes;
        out->write_bytes += spill->write_bytes;
        out->reads += spill->reads;
        out->read_bytes += spill->read_bytes;
        pl_list_for_each(it, &spill->ranges) {
            out->memory_used += pl_container_of(it, struct head_spilled, range_link)->bytes;
        }
    }
}

/* ------------------------------------------------------------------------------ the end */

void head_spill_host_gone(struct head_core *core, const char *host, const char *text)
{
    struct head_spill_host *spill = head_spill_host_of(core, host);

    if (spill == NULL) {
        return;
    }
    head_relief_cancel_host(core, spill);
    head_spill_requests_drop(core, spill);
    while (!pl_list_empty(&spill->home.buffers)) {
        struct head_buffer *buffer =
            pl_list_first(&spill->home.buffers, struct head_buffer, device_link);

        buffer->spilled->file = 0; /* nobody is to be asked to forget it */
        head_buffer_hold(buffer);
        head_buffer_lose(core, buffer, text);
        PL_CHECK(buffer->refs == 1);
        head_buffer_release(core, buffer);
    }
    host_destroy(spill);
}

void head_spill_hosts_finish(struct head_core *core)
{
    while (!pl_list_empty(&core->spill_hosts)) {
        struct head_spill_host *spill =
            pl_list_first(&core->spill_hosts, struct head_spill_host, link);

        head_spill_requests_drop(core, spill);
        host_destroy(spill);
    }
}

void head_spill_check(const struct head_core *core)
{
    struct pl_list *pos, *it;

    pl_list_for_each(pos, &core->spill_hosts) {
        const struct head_spill_host *spill =
            pl_container_of(pos, struct head_spill_host, link);
        uint64_t live = 0, planned = 0, files = 0, pins = 0, held = 0;
        uint64_t ahead = 0, largest = 0;

        head_spill_places_check(spill);
        PL_CHECK(spill->slab_bytes <= spill->config.memory_bytes);
        PL_CHECK(!spill->slab_growing || spill->slab == HEAD_SLAB_READY);
        pl_list_for_each(it, &spill->home.buffers) {
            const struct head_buffer *buffer =
                pl_container_of(it, struct head_buffer, device_link);
            const struct head_spilled *spilled = buffer->spilled;

            PL_CHECK(spilled != NULL && spilled->buffer == buffer);
            PL_CHECK(spilled->pins == 0 || spilled->placed);
            PL_CHECK(!spilled->filled || spilled->placed || spilled->file != 0);
            PL_CHECK(pl_list_linked(&buffer->loose_link) || !copy_droppable(buffer));
            largest = pl_max_u64(largest, spilled->bytes);
            planned += buffer->bytes;
            live += buffer->leaving ? 0 : spilled->bytes;
            files += spilled->file != 0 ? spilled->bytes : 0;
            pins += spilled->pins;
        }
        pl_list_for_each(it, &spill->requests) {
            const struct head_spill_request *request =
                pl_container_of(it, struct head_spill_request, link);

            files +=
                request->op.kind == HEAD_SPILL_WRITE ? request->buffer->spilled->bytes : 0;
        }
        pl_list_for_each(it, &core->unfinished) {
            held +=
                pl_container_of(it, struct head_task, order_link)->bound &&
                pl_container_of(it, struct head_task, order_link)->spilled->device->spill ==
                    spill;
        }
        pl_list_for_each(it, &spill->ahead) {
            const struct head_task *task =
                pl_container_of(it, struct head_task, spill_link);

            PL_CHECK(task->bound && task->ahead);
            ahead++;
        }
        PL_CHECK(largest == spill->largest);
        PL_CHECK(ahead == spill->ahead_bound && ahead <= spill->bound);
        PL_CHECK(planned == spill->home.bytes_planned && live == spill->home.bytes_live);
        held += head_relief_count(core, spill);
        PL_CHECK(files == spill->file_bytes && pins == spill->bound && held == pins);
    }
}
