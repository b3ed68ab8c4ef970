/*
 * The memory of devices, in the order of the plan.
 *
 * The head numbers launches long before they run, and a device runs them in the order of their
 * numbers. So what lies on a device when a launch begins is known when it gets its number: every
 * buffer that somebody may still name (device->bytes_live). The head keeps that below what the
 * device has, as a compiler keeps values in registers: before a launch is numbered, room is made
 * for what it needs (head_spill_room), and what makes the room is numbered before it:
 *
 *   drop      what is a replica, or has a copy in host memory, needs no launch: its instances go,
 *             and its memory when its last use is over
 *   spill     a GET_HOST into the host's slab (spill_host.c) takes its place: the values' instances
 *             move to the copy at once, and the buffer lives until that launch is over, by the use
 *             that the launch is
 *   restore   when a value that has no instance on a device is to be read, a PUT_HOST into a fresh
 *             buffer comes first. The copy in host memory stays for as long as the value does:
 *             spilling it again costs nothing
 *
 * All three are ordinary launches: hazards order them, a worker that died does them again, nothing
 * is decided when memory runs out. What goes first is what no launch named for the longest time, in
 * the order of the plan; while more tasks of a frame are to be planned, what they need last
 * (lookahead.c). What is never taken: what the call that is planned uses itself (`kept`; but if
 * that is too much to be there at one time, it comes in turns), what a client maps or writes, what
 * a request of ours holds.
 *
 * So a front finds its memory when everything before it is over, but for what the plan does not
 * see: scratch, holes between blocks. A sixteenth of the device is kept for them. (A front that
 * finds none all the same starves as ever: device.c.)
 *
 * Seeded bugs: spill.drop_early (a buffer goes before its spill is done), spill.stale (a restore
 * does not wait for the spill; task.c).
 */
#include "head/spill_int.h"

#include <string.h>

enum {
    RESERVE_PART = 16,
    /* of the room, for what has to be there at one time: more may not fit between what else is there */
    AT_ONCE_PART = 2,
    /* buffers, for the one that is needed last; for small ones when host memory is nearly full */
    LOOK_MAX = 512
};

uint64_t head_spill_rounded(uint64_t bytes)
{
    uint64_t unit = bytes >= 16u << 20 ? 2u << 20 : bytes >= 64u << 10 ? 4096u : 256u;

    return pl_round_up(pl_max_u64(bytes, 1), unit);
}

/* ------------------------------------------------------------------------ what is where */

static bool is_on_a_device(const struct head_buffer *buffer, const void *user)
{
    (void)user;
    return buffer->spilled == NULL;
}

static bool on_devices(const struct head_tile *tile, const struct pl_box *box)
{
    return head_tile_covered_by(tile, is_on_a_device, NULL, box);
}

static bool is_on_one_that_stays(const struct head_buffer *buffer, const void *user)
{
    (void)user;
    return buffer->spilled == NULL && !buffer->device->draining;
}

static bool on_devices_that_stay(const struct head_tile *tile, const struct pl_box *box)
{
    return head_tile_covered_by(tile, is_on_one_that_stays, NULL, box);
}

/*
 * Is all of what it holds of the tile in one copy in host memory? Not that of a host that is
 * drained, for somebody who stays.
 */
static bool copied(const struct head_instance *instance)
{
    struct pl_list *pos;

    pl_list_for_each(pos, &instance->tile->instances) {
        const struct head_instance *other =
            pl_container_of(pos, struct head_instance, tile_link);

        if (other->buffer->spilled != NULL &&
            (!other->buffer->device->draining || instance->buffer->device->draining) &&
            pl_box_contains(&other->box, &instance->box)) {
            return true;
        }
    }
    return false;
}

bool head_spill_droppable(const struct head_buffer *buffer)
{
    struct pl_list *pos;

    if (buffer->replica) {
        return true;
    }
    pl_list_for_each(pos, &buffer->instances) {
        const struct head_instance *instance =
            pl_container_of(pos, struct head_instance, buffer_link);

        if (instance->tile->failure == NULL &&
            (!copied(instance) ||
             head_second_needs(instance->tile, buffer, &instance->box))) {
            return false;
        }
    }
    return !pl_list_empty(&buffer->instances);
}

void head_spill_keep_others(struct head_buffer *buffer)
{
    struct pl_list *pos;

    pl_list_for_each(pos, &buffer->instances) {
        head_tile_rely_on_others(
            pl_container_of(pos, struct head_instance, buffer_link)->tile, buffer);
    }
}

struct forgotten {
    struct head_tile *tile; /* kept */
    struct pl_box box;
};

/*
 * Does somebody who shows the tile lack some of the box? What has been written over in all that
 * show it may be nowhere; what nobody shows any more may, too, and does not fail: a call that is
 * run again may want it, and have it made again.
 */
static bool is_lacked(const struct head_tile *tile, const struct pl_box *box)
{
    const struct pl_list *pos;

    if (pl_list_empty(&tile->fragments)) {
        return head_tile_shown(tile) && !head_tile_covered(tile, NULL, box);
    }
    pl_list_for_each(pos, &tile->fragments) {
        struct pl_box part;

        if (pl_box_intersection(
                &pl_container_of(pos, const struct head_fragment, tile_link)->box, box,
                &part) &&
            !head_tile_covered(tile, NULL, &part)) {
            return true;
        }
    }
    return false;
}

void head_spill_forget(struct head_core *core, struct head_buffer *buffer,
                       const struct pl_box *box, uint64_t before,
                       struct head_failure *failure)
{
    struct pl_vec forgotten = PL_VEC_INIT(struct forgotten);
    struct pl_list *pos;

    if (!buffer->replica) {
        head_spill_keep_others(buffer);
    }
    pl_list_for_each(pos, &buffer->instances) {
        const struct head_instance *instance =
            pl_container_of(pos, struct head_instance, buffer_link);
        struct pl_box part;

        if (instance->tile->order < before &&
            pl_box_intersection(&instance->box, box, &part)) {
            struct forgotten *place = pl_vec_push(&forgotten);

            PL_CHECK(place != NULL);
            *place = (struct forgotten){.tile = instance->tile, .box = part};
            head_tile_keep(core, instance->tile);
        }
    }
    head_buffer_forget(core, buffer, box, before);
    for (size_t i = 0; i < forgotten.count; i++) {
        const struct forgotten *one = pl_vec_at(&forgotten, i);

        head_shadow_fail(core, one->tile, &one->box, failure);
        if (one->tile->failure == NULL && is_lacked(one->tile, &one->box)) {
            head_tile_lose(core, one->tile, failure);
        }
        head_tile_unkeep(core, one->tile);
    }
    pl_vec_finish(&forgotten);
}

/* ------------------------------------------------------------------------- what is kept */

void head_spill_plan_begin(struct head_core *core)
{
    core->plan++;
}

void head_spill_keep_buffer(struct head_core *core, struct head_buffer *buffer)
{
    buffer->kept = core->plan;
}

void head_spill_keep(struct head_core *core, struct head_array *array,
                     const struct pl_box *box)
{
    const struct head_fragment *fragment;
    struct pl_list *it;

    for (fragment = head_array_meet(array, box); fragment != NULL;
         fragment = fragment->met) {
        pl_list_for_each(it, &fragment->tile->instances) {
            struct head_buffer *buffer =
                pl_container_of(it, struct head_instance, tile_link)->buffer;

            if (buffer->spilled == NULL) {
                buffer->kept = core->plan;
            }
        }
    }
}

/* -------------------------------------------------------------------------- making room */

static uint64_t room_of(const struct head_device *device)
{
    uint64_t kept = device->bytes_total / RESERVE_PART + device->bytes_graphs;

    return device->bytes_total - pl_min_u64(kept, device->bytes_total);
}

/* Somebody writes it by other means than launches, or looks at it. */
static bool in_use_outside(const struct head_buffer *buffer)
{
    struct pl_list *pos, *it;

    pl_list_for_each(pos, &buffer->instances) {
        const struct head_instance *instance =
            pl_container_of(pos, struct head_instance, buffer_link);

        pl_list_for_each(it, &instance->tile->fragments) {
            const struct head_array *array =
                pl_container_of(it, struct head_fragment, tile_link)->array;

            if (array->mapped || array->put_offset != UINT64_MAX) {
                return true;
            }
        }
    }
    return false;
}

/*
 * A spill reads all of the buffer, so it depends on whoever still writes any of it, and so does who
 * reads a value when it is back. Is that no more than who reads the value here depends on? Nothing
 * is being written, or one value is there and one launch makes it, which has not failed. What else
 * lies in such a buffer, of values that have gone or failed, would take this one with it: it is
 * spilled when it is there.
 */
static bool writers_are_its_own(const struct head_buffer *buffer)
{
    const struct head_instance *instance =
        pl_list_first(&buffer->instances, struct head_instance, buffer_link);
    const struct head_use *use;

    if (pl_list_empty(&buffer->writers)) {
        return true;
    }
    use = pl_list_first(&buffer->writers, struct head_use, link);
    return instance->buffer_link.next == &buffer->instances &&
           use->link.next == &buffer->writers && use->task->failure == NULL &&
           pl_box_intersects(&use->box, &instance->box);
}

bool head_spill_lies_still(struct head_buffer *buffer)
{
    const struct pl_list *pos;
    uint32_t instances = 0;

    if (head_buffer_leaves(buffer)) {
        return false;
    }
    pl_list_for_each(pos, &buffer->instances) {
        instances++;
    }
    return instances > 0 && buffer->refs == buffer->uses + instances &&
           !in_use_outside(buffer);
}

static bool may_go(const struct head_core *core, struct head_buffer *buffer)
{
    return buffer->kept != core->plan && head_spill_lies_still(buffer);
}

static struct head_launch launch_between(struct head_buffer *spilled,
                                         const struct head_operand *operand, uint32_t kind,
                                         const char *label)
{
    return (struct head_launch){
        .kind          = kind,
        .device        = operand->buffer->device,
        .label         = label,
        .operands      = operand,
        .operand_count = 1,
        .spilled       = spilled,
        .retries_max   = 250,
    };
}

bool head_spill_copyable(struct head_buffer *buffer)
{
    return !head_buffer_leaves(buffer) && writers_are_its_own(buffer);
}

bool head_spill_out(struct head_core *core, struct head_buffer *buffer,
                    enum head_spill_reason reason, enum head_spill_for purpose)
{
    static const char *const labels[] = {"spill", "write-back", "second copy"};
    struct head_spill_host *spill     = head_spill_host_of(core, buffer->device->host);
    struct head_buffer *copy          = head_spill_copy(core, spill, buffer, purpose);
    struct head_operand operand;
    struct head_launch launch;
    struct pl_list *pos;

    if (copy == NULL) {
        return false;
    }
    operand      = head_operand_whole(buffer, false, false);
    launch       = launch_between(copy, &operand, PLASMON__V1__LAUNCH_KIND__LAUNCH_GET_HOST,
                                  labels[reason]);
    launch.ahead = reason != HEAD_SPILL_ROOM;
    pl_list_for_each(pos, &buffer->instances) {
        const struct head_instance *instance =
            pl_container_of(pos, struct head_instance, buffer_link);

        head_instance_add(core, instance->tile, copy, &instance->box);
    }
    (void)head_task_start(core, &launch); /* the core owns it */
    if (pl_bug("spill.drop_early") && reason == HEAD_SPILL_ROOM) {
        uint64_t *freed = pl_vec_push(&buffer->device->out_free);

        PL_CHECK(freed != NULL);
        *freed = buffer->id;
    }
    head_buffer_release(core, copy); /* its instances and the launch hold it */
    return true;
}

/* Somebody may still read some of it. */
static bool holds_values(const struct head_buffer *buffer)
{
    const struct pl_list *pos;

    pl_list_for_each(pos, &buffer->instances) {
        if (pl_container_of(pos, const struct head_instance, buffer_link)->tile->failure ==
            NULL) {
            return true;
        }
    }
    return false;
}

bool head_spill_may_drop(struct head_core *core, struct head_buffer *buffer,
                         enum head_spill_for purpose)
{
    struct head_spill_host *spill;

    if (!head_spill_droppable(buffer)) {
        return false;
    }
    if (buffer->replica || !holds_values(buffer)) {
        return true;
    }
    spill = head_spill_host_of(core, buffer->device->host);
    /* Without one, what lies in memory of another host is not for this one to count on. */
    return spill != NULL && head_spill_reserve(core, spill, 0, purpose) &&
           head_spill_droppable(buffer);
}

/* It goes, if it may; the buffer may be freed. *io_refused: host memory had no room for so much. */
static bool let_go(struct head_core *core, struct head_buffer *buffer,
                   enum head_spill_for purpose, uint64_t *io_refused)
{
    struct pl_box frame = buffer->frame;
    uint64_t bytes      = head_spill_rounded(buffer->bytes);

    core->steps++;
    if (!may_go(core, buffer)) {
        return false;
    }
    if (!head_spill_may_drop(core, buffer, purpose)) {
        if (bytes >= *io_refused || !writers_are_its_own(buffer)) {
            return false;
        }
        if (!head_spill_out(core, buffer, HEAD_SPILL_ROOM, purpose)) {
            *io_refused = bytes;
            return false;
        }
    }
    head_buffer_forget(core, buffer, &frame, UINT64_MAX);
    return true;
}

/*
 * What may be dropped goes, in the order of its use, until so much is free there. What it turns out
 * that may not is not looked at again before something has changed (loose.c).
 */
static void drop_until(struct head_core *core, struct head_device *device,
                       enum head_spill_for purpose, uint64_t live_max)
{
    struct pl_list *pos, *tmp;

    pl_list_for_each_safe(pos, tmp, &device->loose) {
        struct head_buffer *buffer = pl_container_of(pos, struct head_buffer, loose_link);
        struct pl_box frame        = buffer->frame;

        if (device->bytes_live <= live_max) {
            return;
        }
        core->steps++;
        if (!head_spill_droppable(buffer)) {
            pl_list_remove(&buffer->loose_link);
        } else if (may_go(core, buffer) && head_spill_may_drop(core, buffer, purpose)) {
            head_buffer_forget(core, buffer, &frame, UINT64_MAX); /* may free it */
        }
    }
}

/*
 * Of the least recently used ones that may go, what is needed last; one that is not needed at all,
 * as far as one sees, at once.
 */
static struct head_buffer *needed_last(struct head_core *core, struct head_device *device)
{
    struct head_buffer *last = NULL;
    size_t last_next         = 0;
    uint32_t looked          = 0;
    struct pl_list *pos;

    pl_list_for_each(pos, &device->recent) {
        struct head_buffer *buffer = pl_container_of(pos, struct head_buffer, recent_link);
        size_t next;

        if (looked++ == LOOK_MAX || last_next == SIZE_MAX) {
            break;
        }
        if (!may_go(core, buffer)) {
            continue;
        }
        next = head_lookahead_next(buffer);
        if (next > last_next) {
            last      = buffer;
            last_next = next;
        }
    }
    return last;
}

static bool make_room(struct head_core *core, struct head_device *device, uint64_t bytes,
                      enum head_spill_for purpose)
{
    uint64_t room = room_of(device), refused = UINT64_MAX;
    struct pl_list *pos, *tmp;
    uint32_t in_vain = 0;

    if (device->bytes_live + bytes > room) {
        head_shadow_give_way(core, device, device->bytes_live + bytes - room);
    }
    if (device->bytes_live + bytes <= room ||
        head_spill_host_of(core, device->host) == NULL) {
        return true;
    }
    while (head_lookahead_some(core) && device->bytes_live + bytes > room) {
        struct head_buffer *buffer = needed_last(core, device);

        if (buffer == NULL || !let_go(core, buffer, purpose, &refused)) {
            break; /* nothing more is to be gained by looking ahead */
        }
    }
    pl_list_for_each_safe(pos, tmp, &device->recent) {
        if (device->bytes_live + bytes <= room || in_vain == LOOK_MAX) {
            break;
        }
        in_vain += !let_go(core, pl_container_of(pos, struct head_buffer, recent_link),
                           purpose, &refused) &&
                   refused != UINT64_MAX;
    }
    if (in_vain == LOOK_MAX) { /* of the rest, what needs no host memory */
        drop_until(core, device, purpose, room - pl_min_u64(bytes, room));
    }
    return device->bytes_live + bytes <= room;
}

bool head_spill_room(struct head_core *core, struct head_device *device, uint64_t bytes)
{
    return make_room(core, device, bytes, HEAD_SPILL_FOR_NEW);
}

bool head_spill_within(const struct head_device *device)
{
    return device->bytes_live <= room_of(device);
}

static bool is_full(struct head_core *core, const struct head_device *device,
                    uint64_t bytes)
{
    const struct head_spill_host *spill = head_spill_host_of(core, device->host);

    return spill != NULL && spill->slab != HEAD_SLAB_FAILED &&
           !head_spill_room_free(spill, bytes);
}

bool head_spill_room_excess(struct head_core *core, struct head_device *device,
                            uint64_t bytes)
{
    return !head_spill_room(core, device, bytes) && is_full(core, device, bytes);
}

/* As the order of use has them, of the first so many. */
static uint64_t largest_of(struct head_core *core, const struct head_device *device,
                           uint64_t looks)
{
    const struct pl_list *pos;
    uint64_t largest = 0;

    pl_list_for_each(pos, &device->recent) {
        const struct head_buffer *buffer =
            pl_container_of(pos, const struct head_buffer, recent_link);

        if (looks-- == 0) {
            break;
        }
        core->steps++;
        largest = pl_max_u64(largest, head_spill_rounded(buffer->bytes));
    }
    return largest;
}

/* What may be dropped: so much, or as far as it is enough. */
static uint64_t may_be_dropped_bytes(struct head_core *core, struct head_device *device,
                                     uint64_t enough)
{
    struct pl_list *pos, *tmp;
    uint64_t free = 0;

    pl_list_for_each_safe(pos, tmp, &device->loose) {
        struct head_buffer *buffer = pl_container_of(pos, struct head_buffer, loose_link);

        if (free >= enough) {
            break;
        }
        core->steps++;
        if (!head_spill_droppable(buffer)) {
            pl_list_remove(&buffer->loose_link);
        } else if (may_go(core, buffer)) {
            free += head_spill_rounded(buffer->bytes);
        }
    }
    return free;
}

/* And of what is not, what may be spilled, as let_go() does it. */
static uint64_t may_be_spilled_bytes(struct head_core *core,
                                     const struct head_device *device, uint64_t enough)
{
    struct head_spill_host *spill = head_spill_host_of(core, device->host);
    uint64_t looks = enough == UINT64_MAX ? UINT64_MAX : LOOK_MAX, free = 0, left = 0;
    const struct pl_list *pos;

    if (spill != NULL && enough > 0 && head_spill_host_room(spill, 1, 1) > 0) {
        left = head_spill_host_room(spill, largest_of(core, device, looks), enough);
    }
    pl_list_for_each(pos, &device->recent) {
        struct head_buffer *buffer = pl_container_of(pos, struct head_buffer, recent_link);
        uint64_t bytes             = head_spill_rounded(buffer->bytes);

        if (free >= enough || left == 0 || looks-- == 0) {
            break;
        }
        core->steps++;
        if (bytes <= left && bytes <= spill->config.memory_bytes && may_go(core, buffer) &&
            writers_are_its_own(buffer) && !head_spill_droppable(buffer)) {
            free += bytes;
            left -= bytes;
        }
    }
    return free;
}

/* Without the part that spilling keeps, where nothing is spilled. */
static uint64_t room_there(struct head_core *core, const struct head_device *device)
{
    return head_spill_host_of(core, device->host) != NULL
               ? room_of(device)
               : device->bytes_total -
                     pl_min_u64(device->bytes_graphs, device->bytes_total);
}

uint64_t head_spill_free(struct head_core *core, const struct head_device *device)
{
    uint64_t room = room_there(core, device);

    return room - pl_min_u64(device->bytes_live, room);
}

uint64_t head_spill_obtainable(struct head_core *core, struct head_device *device,
                               uint64_t enough)
{
    uint64_t free = head_spill_free(core, device) + head_shadow_bytes(core, device);

    free += may_be_dropped_bytes(core, device, enough - pl_min_u64(free, enough));
    return free + may_be_spilled_bytes(core, device, enough - pl_min_u64(free, enough));
}

bool head_spill_obtain(struct head_core *core, struct head_device *device, uint64_t bytes)
{
    uint64_t room = room_there(core, device);

    if (head_spill_free(core, device) < bytes) {
        head_shadow_give_way(core, device, bytes);
    }
    if (bytes <= room) {
        drop_until(core, device, HEAD_SPILL_FOR_NEW, room - bytes);
    }
    return head_spill_room(core, device, bytes) && head_spill_free(core, device) >= bytes;
}

/* ------------------------------------------------------------------------ bringing back */

/*
 * The device whose spill into the copy may yet be taken back (spill_undo.c), which it may until it
 * is bound; NULL: that cannot be. Whether host memory has room for it says nothing: others that are
 * planned later may have taken that by then.
 */
static struct head_device *undecided(const struct head_buffer *copy)
{
    const struct pl_list *pos;

    pl_list_for_each(pos, &copy->writers) {
        const struct head_task *task = pl_container_of(pos, struct head_use, link)->task;

        if (!task->bound && !task->device->gone) {
            return task->device;
        }
    }
    return NULL;
}

/*
 * A device that the bytes can go to from host memory: `to`, or one of their host with the most
 * room. If the spill may be taken back, one that can then copy from where the values stayed: where
 * there is no direct way from there, that device itself, from which they go on by the ordinary
 * routes.
 */
static struct head_device *landing(struct head_core *core, const struct head_buffer *copy,
                                   struct head_device *to)
{
    const struct head_spill_host *spill = copy->device->spill;
    struct head_device *source          = undecided(copy);
    struct head_device *best            = NULL;
    uint64_t best_room                  = 0;

    if (strcmp(to->host, spill->home.host) == 0) {
        return source == NULL || head_move_direct(core, source, to) ? to : source;
    }
    for (uint32_t i = 0; i < core->devices.count; i++) {
        struct head_device *device = head_device_at(core, i);
        uint64_t room =
            device->bytes_total - pl_min_u64(device->bytes_total, device->bytes_live);

        if (!device->gone && device->joined &&
            strcmp(device->host, spill->home.host) == 0 && head_move_possible(device, to) &&
            (source == NULL || head_move_direct(core, source, device)) &&
            (best == NULL || room > best_room)) {
            best      = device;
            best_room = room;
        }
    }
    return best;
}

static bool restore(struct head_core *core, struct head_buffer *copy,
                    struct head_device *to, struct head_failure **out_failure)
{
    struct head_device *device = landing(core, copy, to);
    struct head_buffer *buffer;
    struct head_operand operand;
    struct head_launch launch;
    struct pl_list *pos;

    if (device == NULL) {
        *out_failure = head_failure_create(
            PLASMON_EUNREACHABLE, 0, 0,
            "a value that was spilled on %s cannot be brought to device %u: no device of "
            "that host can send it there",
            copy->device->node, to->index);
        return false;
    }
    head_buffer_hold(copy);
    (void)make_room(core, device, head_spill_rounded(copy->bytes), HEAD_SPILL_FOR_RETURN);
    buffer = head_buffer_create(core, device, &copy->frame, copy->dtype);
    if (buffer == NULL) {
        head_buffer_release(core, copy);
        *out_failure = head_failure_create(
            PLASMON_ELIMIT, 0, 0,
            "the object table of device %u is full (%d objects); release some refs",
            device->index, HEAD_SLOTS_MAX);
        return false;
    }
    buffer->donatable = copy->donatable;
    buffer->kept      = core->plan;
    operand           = head_operand_whole(buffer, true, true);
    launch = launch_between(copy, &operand, PLASMON__V1__LAUNCH_KIND__LAUNCH_PUT_HOST,
                            "restore");
    pl_list_for_each(pos, &copy->instances) {
        const struct head_instance *instance =
            pl_container_of(pos, struct head_instance, buffer_link);

        head_instance_add(core, instance->tile, buffer, &instance->box);
    }
    (void)head_task_start(core, &launch); /* the core owns it */
    head_buffer_release(core, buffer);    /* its instances and the launch hold it */
    head_buffer_release(core, copy);
    return true;
}

/* A device that can read there. */
static bool is_readable(const struct head_buffer *copy)
{
    struct head_core *core = copy->device->spill->core;

    for (uint32_t i = 0; i < core->devices.count; i++) {
        const struct head_device *device = head_device_at(core, i);

        if (device->joined && !device->gone &&
            strcmp(device->host, copy->device->host) == 0) {
            return true;
        }
    }
    return false;
}

/* The greatest is brought back from: one that can be read, of a host that stays, of that one. */
static uint32_t copy_rank(const struct head_buffer *copy, const char *host)
{
    return !is_readable(copy)
               ? 1
               : 2 + 2 * (uint32_t)!copy->device->draining +
                     (uint32_t)(host != NULL && strcmp(copy->device->host, host) == 0);
}

/*
 * A copy that has some of the box, where no device has it, or where those that have it are drained
 * and the copy and `to` stay: they may end while they send. NULL: none is needed. `to` NULL: nobody
 * is to get it yet.
 */
static struct head_buffer *copy_needed(const struct head_tile *tile,
                                       const struct pl_box *box,
                                       const struct head_device *to)
{
    bool stays               = to != NULL && !to->draining;
    struct head_buffer *best = NULL;
    uint32_t best_rank       = 0;
    struct pl_list *pos;

    if (tile->failure != NULL || (stays ? on_devices_that_stay : on_devices)(tile, box)) {
        return NULL;
    }
    pl_list_for_each(pos, &tile->instances) {
        const struct head_instance *instance =
            pl_container_of(pos, struct head_instance, tile_link);
        struct head_buffer *copy = instance->buffer;
        struct pl_box part;

        if (copy->spilled != NULL && pl_box_intersection(&instance->box, box, &part) &&
            !(stays && !copy->device->draining && is_readable(copy)
                  ? on_devices_that_stay
                  : on_devices)(tile, &part)) {
            uint32_t rank = copy_rank(copy, to != NULL ? to->host : NULL);

            if (rank > best_rank) {
                best      = copy;
                best_rank = rank;
            }
        }
    }
    return best;
}

struct head_failure *head_spill_stranded(struct head_array *array, const struct pl_box *box)
{
    const struct head_fragment *fragment;

    for (fragment = head_array_meet(array, box); fragment != NULL;
         fragment = fragment->met) {
        const struct head_buffer *copy;
        struct pl_box part;

        if (pl_box_intersection(&fragment->box, box, &part) &&
            (copy = copy_needed(fragment->tile, &part, NULL)) != NULL &&
            !is_readable(copy)) {
            return head_failure_create(
                PLASMON_EUNREACHABLE, 0, 0,
                "the only copy of a value is in host memory of %s, which has no device "
                "left, and no other host's can read there; release it and put it again",
                copy->device->node);
        }
    }
    return NULL;
}

bool head_spill_part_missing(const struct head_tile *tile, const struct pl_box *box,
                             const struct head_device *to)
{
    return copy_needed(tile, box, to) != NULL;
}

bool head_spill_missing(struct head_array *array, const struct pl_box *box)
{
    const struct head_fragment *fragment;

    for (fragment = head_array_meet(array, box); fragment != NULL;
         fragment = fragment->met) {
        struct pl_box part;

        if (pl_box_intersection(&fragment->box, box, &part) &&
            copy_needed(fragment->tile, &part, NULL) != NULL) {
            return true;
        }
    }
    return false;
}

/* Nothing is in host memory or files, or on its way there. */
static bool nothing_spilled(const struct head_core *core)
{
    const struct pl_list *pos;

    pl_list_for_each(pos, &core->spill_hosts) {
        if (!pl_list_empty(
                &pl_container_of(pos, const struct head_spill_host, link)->home.buffers)) {
            return false;
        }
    }
    return true;
}

bool head_spill_part_bring(struct head_core *core, const struct head_tile *tile,
                           const struct pl_box *box, struct head_device *device,
                           struct head_failure **out_failure)
{
    struct head_buffer *copy;

    while ((copy = copy_needed(tile, box, device)) != NULL) {
        if (!restore(core, copy, device, out_failure)) {
            return false;
        }
    }
    return true;
}

bool head_spill_bring(struct head_core *core, struct head_array *array,
                      const struct pl_box *box, struct head_device *device,
                      struct head_failure **out_failure)
{
    struct pl_list *pos;

    if (nothing_spilled(core)) {
        return true;
    }
    pl_list_for_each(pos, &array->fragments) {
        const struct head_fragment *fragment =
            pl_container_of(pos, struct head_fragment, array_link);
        struct pl_box part;

        if (pl_box_intersection(&fragment->box, box, &part) &&
            !head_spill_part_bring(core, fragment->tile, &part, device, out_failure)) {
            return false;
        }
    }
    return true;
}

/* ------------------------------------------------------------------ all at once, or not */

/*
 * What of the device gathering the box there takes while it is planned: the buffers that it is in
 * or comes back to, each as a whole and once, and the one that it is gathered in.
 */
static uint64_t bytes_gathered(struct head_core *core, struct head_array *array,
                               const struct pl_box *box, const struct head_device *device)
{
    uint64_t bytes = head_spill_rounded((uint64_t)pl_box_elements(box) *
                                        pl_dtype_bytes(array->shape.dtype));
    const struct head_fragment *fragment;
    const struct pl_list *it;

    core->counted_last++;
    for (fragment = head_array_meet(array, box); fragment != NULL;
         fragment = fragment->met) {
        struct pl_box part;
        bool missing = pl_box_intersection(&fragment->box, box, &part) &&
                       head_spill_part_missing(fragment->tile, &part, device);

        pl_list_for_each(it, &fragment->tile->instances) {
            struct head_buffer *buffer =
                pl_container_of(it, struct head_instance, tile_link)->buffer;

            if ((buffer->spilled != NULL ? missing : buffer->device == device) &&
                buffer->counted != core->counted_last) {
                buffer->counted = core->counted_last;
                bytes += head_spill_rounded(buffer->bytes);
            }
        }
    }
    return bytes;
}

/* It is in several buffers, and has to be put together. */
static bool is_scattered(struct head_array *array, const struct pl_box *box,
                         struct head_device *device)
{
    return array->fragment_count > 1 && head_move_common(array, box, device, false) == NULL;
}

bool head_spill_at_once(struct head_core *core, struct head_array *array,
                        const struct pl_box *box, struct head_device *device)
{
    return head_spill_host_of(core, device->host) == NULL ||
           !is_scattered(array, box, device) ||
           (core->in_turns != core->plan &&
            bytes_gathered(core, array, box, device) <= room_of(device) / AT_ONCE_PART);
}

/* --------------------------------------------------------------------------- for a call */

static bool reads_array(const struct head_arg *arg)
{
    return arg->array != NULL && (arg->mode == PLASMON__V1__MODE__MODE_IN ||
                                  arg->mode == PLASMON__V1__MODE__MODE_INOUT ||
                                  (arg->mode == PLASMON__V1__MODE__MODE_OUT &&
                                   (!pl_box_equal(&arg->hull, &arg->array->extent) ||
                                    !pl_view_dense(&arg->view))));
}

/* Bytes that bringing the box to the device makes there: copies that come back, each once a call. */
static uint64_t bytes_back(struct head_core *core, struct head_array *array,
                           const struct pl_box *box, const struct head_device *device)
{
    const struct head_fragment *fragment;
    struct pl_list *it;
    uint64_t bytes = 0;

    for (fragment = head_array_meet(array, box); fragment != NULL;
         fragment = fragment->met) {
        struct pl_box part;

        if (!pl_box_intersection(&fragment->box, box, &part) ||
            copy_needed(fragment->tile, &part, device) == NULL) {
            continue;
        }
        pl_list_for_each(it, &fragment->tile->instances) {
            struct head_buffer *buffer =
                pl_container_of(it, struct head_instance, tile_link)->buffer;

            if (buffer->spilled != NULL && buffer->kept != core->plan) {
                buffer->kept = core->plan;
                bytes += head_spill_rounded(buffer->bytes);
            }
        }
    }
    return bytes;
}

/* What an argument needs on the device besides what is kept there; *io_back: and of that, what comes back. */
static uint64_t bytes_for(struct head_core *core, const struct head_arg *arg,
                          struct head_device *device, uint64_t *io_back)
{
    uint64_t whole = head_spill_rounded((uint64_t)pl_box_elements(&arg->hull) *
                                        pl_dtype_bytes(arg->dtype));
    uint64_t back;

    if (!reads_array(arg)) {
        return whole;
    }
    back = bytes_back(core, arg->array, &arg->hull, device);
    *io_back += back;
    if (head_move_common(arg->array, &arg->hull, device,
                         arg->mode != PLASMON__V1__MODE__MODE_IN) != NULL ||
        (back == whole && arg->array->fragment_count == 1)) {
        return back; /* as it is, or as it comes back */
    }
    return back + whole;
}

/*
 * Is there so much room that nothing has to go whatever the call makes on the device: what it
 * writes, a replica of what it reads, what one is put together from, a shadow? Then what is to be
 * kept need not be known either.
 */
#define COPIES_OF_AN_ARGUMENT 4u

static bool room_for_all(const struct head_run *run, const struct head_device *device)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < run->arg_count; i++) {
        bytes += head_spill_rounded((uint64_t)pl_box_elements(&run->args[i].hull) *
                                    pl_dtype_bytes(run->args[i].dtype));
    }
    return device->bytes_live + COPIES_OF_AN_ARGUMENT * bytes <= room_of(device);
}

static bool bring_kept(struct head_core *core, const struct head_arg *arg,
                       struct head_device *device, struct head_failure **out_failure)
{
    const struct pl_box *box;

    for (size_t i = 0; (box = head_arg_kept(arg, i)) != NULL; i++) {
        if (!head_spill_bring(core, arg->array, box, device, out_failure)) {
            return false;
        }
    }
    return true;
}

/* There is never room for all that its arguments are in: what is scattered is gathered in turns. */
static bool goes_in_turns(struct head_core *core, const struct head_run *run,
                          struct head_device *device)
{
    uint64_t bytes = 0;
    bool scattered = false;

    for (size_t i = 0; i < run->arg_count; i++) {
        const struct head_arg *arg = &run->args[i];

        if (reads_array(arg)) {
            bytes += bytes_gathered(core, arg->array, &arg->hull, device);
            scattered = scattered || is_scattered(arg->array, &arg->hull, device);
        }
    }
    return scattered && bytes > room_of(device) / AT_ONCE_PART;
}

static bool brought_in_turns(struct head_core *core, const struct head_arg *arg,
                             struct head_device *device)
{
    return core->in_turns == core->plan && is_scattered(arg->array, &arg->hull, device);
}

bool head_spill_for_run(struct head_core *core, const struct head_run *run,
                        struct head_device *device, bool *out_excess,
                        struct head_failure **out_failure)
{
    uint64_t bytes = 0, back = 0;

    *out_excess = false;
    if (head_spill_host_of(core, device->host) == NULL) {
        return true;
    }
    head_spill_plan_begin(core);
    if (nothing_spilled(core) && room_for_all(run, device)) {
        return true;
    }
    if (goes_in_turns(core, run, device)) {
        core->in_turns = core->plan;
    }
    for (size_t i = 0; i < run->arg_count; i++) {
        if (reads_array(&run->args[i]) && !brought_in_turns(core, &run->args[i], device)) {
            head_spill_keep(core, run->args[i].array, &run->args[i].hull);
        }
    }
    for (size_t i = 0; i < run->arg_count; i++) {
        if (!reads_array(&run->args[i]) || !brought_in_turns(core, &run->args[i], device)) {
            bytes += bytes_for(core, &run->args[i], device, &back);
        }
    }
    if (bytes == back) {
        (void)make_room(core, device, bytes, HEAD_SPILL_FOR_RETURN);
    } else {
        *out_excess = head_spill_room_excess(core, device, bytes);
    }
    for (size_t i = 0; i < run->arg_count; i++) {
        if (reads_array(&run->args[i]) && !brought_in_turns(core, &run->args[i], device) &&
            !bring_kept(core, &run->args[i], device, out_failure)) {
            return false;
        }
    }
    return true;
}
