/*
 * Second copies of what was put: nobody but its client has the bytes, so a client may ask for two
 * (plasmon_put_options.replica).
 *
 * WHERE. The first of these that there is room for:
 *
 *   a device of another host     the only place that outlives the host; with what may be spilled
 *                                there spilled
 *   memory of its own host       the copy of a write-back, which is not dropped. It outlives every
 *                                device of the host as long as one is left to read it, and takes no
 *                                memory of devices, which is scarcer
 *   another device of its host   where there is no memory for spilling, or it is full
 *
 * SAFE. What counts is what may be lost (enum head_safety): for each device, and each host, that
 * has a copy of some of a box, is all of the box elsewhere? A value that lies in memory of a host
 * alone is safe from any device, so that is enough where there is one host. A replica does not
 * count, for it goes when room is wanted; one that is relied on becomes none.
 *
 * UNDER PRESSURE a copy goes from its device without a launch only if the value is as safe without
 * it (head_second_needs); else it goes to host memory, which is as safe as the device, and from
 * there to files. A copy in host memory that is needed so is not dropped because the value is on a
 * device, too.
 *
 * AGAIN. Whoever removes an instance says so (head_second_look), and so does whoever brings a
 * place: a device that joins, memory of a host, a drain. Before launches are sent, those that were
 * named are looked at, and what is missing is begun: at most MOVING_MAX copies and MOVING_BYTES_MAX
 * at a time, for they take links and memory from the program; those of puts do not wait for others.
 * One that fails is begun again after AGAIN_MS.
 *
 * NO PLACE. Values that found none wait in a list. Each second the first AGAIN_MAX are looked at
 * again and go to its end, so each has its turn; and for each copy that is begun one more is, so
 * all go on at once when there is room again. A place that must be made, on a device that is full,
 * is looked for on one after the other, at FULL_MAX in vain a second and PUT_MAX for a put; the
 * next search begins where the last one ended. So what the head does for them is the same however
 * many wait.
 *
 * A HOST THAT JOINS. Values whose copies are all on one host get one on another. The one on another
 * device of the first host is an ordinary replica from then on (one of memory of a host may be
 * dropped): so it has moved when somebody wants its room.
 *
 * Everything is in the order of inputs and lists, so a head that replays a journal does the same.
 * Of a checkpoint it knows who wants a second copy, and looks at all.
 *
 * INVARIANTS (head_seconds_check)
 *
 *   (1) What rests is as safe as it was when it came to rest.
 *   (2) The counts are those of the lists.
 *
 * Seeded bug: head.second_forgotten (a copy that went is not made again).
 */
#include "head/second_int.h"

#include "base/fault.h"

#include <string.h>

enum {
    MOVING_MAX = 32,
    LOOK_MAX   = 512,  /* in one go */
    VAIN_MAX   = 4,    /* that are still on their way, likewise */
    AGAIN_MAX  = 1024, /* of those that found no place, in a second */
    FULL_MAX   = 256,  /* full devices, in vain, in a second .. */
    PUT_MAX    = 4,    /* .. and for one put */
    PARTS_MAX  = 16,   /* of a value, in one go: the rest come when these are there */
    AGAIN_MS   = 1000
};
#define MOVING_BYTES_MAX (UINT64_C(1) << 30)

/* -------------------------------------------------------------------------------- lists */

void head_seconds_init(struct head_core *core)
{
    for (int i = 0; i < HEAD_SECOND_STATES; i++) {
        pl_list_init(&core->seconds.lists[i]);
    }
    core->seconds.looks = FULL_MAX;
}

static void take_off(struct head_seconds *seconds, const struct head_second *second)
{
    seconds->counts[second->state] -= pl_list_linked(&second->link) ? 1 : 0;
    if (second->state == HEAD_SECOND_MOVING) {
        seconds->moving_bytes -= second->bytes;
    }
}

static void put_to(struct head_core *core, struct head_second *second,
                   enum head_second_state state)
{
    struct head_seconds *seconds = &core->seconds;

    take_off(seconds, second);
    pl_list_remove(&second->link);
    second->state = state;
    pl_list_add_tail(&seconds->lists[state], &second->link);
    seconds->counts[state]++;
    if (state == HEAD_SECOND_MOVING) {
        seconds->moving_bytes += second->bytes;
    }
}

static void saw(struct head_core *core, struct head_second *second,
                enum head_safety safety_now)
{
    core->seconds.safe_count[second->safety]--;
    second->safety = safety_now;
    core->seconds.safe_count[second->safety]++;
}

void head_second_add(struct head_core *core, struct head_tile *tile, uint64_t bytes,
                     bool warned)
{
    struct head_second *second = head_alloc(sizeof(*second));

    second->tile   = tile;
    second->bytes  = bytes;
    second->warned = warned;
    tile->second   = second;
    core->seconds.safe_count[HEAD_SAFE_NOT]++;
    pl_list_init(&second->link);
    put_to(core, second, HEAD_SECOND_DUE);
}

void head_second_end(struct head_core *core, struct head_tile *tile)
{
    struct head_second *second = tile->second;

    take_off(&core->seconds, second);
    core->seconds.safe_count[second->safety]--;
    pl_list_remove(&second->link);
    pl_free(second);
    tile->second = NULL;
}

void head_second_look(struct head_core *core, struct head_tile *tile)
{
    if (tile->second->state != HEAD_SECOND_DUE && !pl_bug("head.second_forgotten")) {
        put_to(core, tile->second, HEAD_SECOND_DUE);
    }
}

/* It is the next one that is looked at of what moves. */
void head_seconds_arrived(struct head_core *core, const struct head_buffer *buffer)
{
    const struct pl_list *pos;

    pl_list_for_each(pos, &buffer->instances) {
        struct head_second *second =
            pl_container_of(pos, const struct head_instance, buffer_link)->tile->second;

        if (second != NULL && second->state == HEAD_SECOND_MOVING) {
            pl_list_remove(&second->link);
            pl_list_add_head(&core->seconds.lists[HEAD_SECOND_MOVING], &second->link);
        }
    }
}

/* The first so many. */
static void make_due(struct head_core *core, enum head_second_state state, uint64_t count)
{
    struct pl_list *list = &core->seconds.lists[state];

    for (uint64_t i = 0; i < count && !pl_list_empty(list); i++) {
        core->steps++;
        put_to(core, pl_list_first(list, struct head_second, link), HEAD_SECOND_DUE);
    }
}

void head_seconds_look(struct head_core *core)
{
    make_due(core, HEAD_SECOND_WANTING, UINT64_MAX);
    make_due(core, HEAD_SECOND_REST, UINT64_MAX);
}

void head_seconds_tick(struct head_core *core)
{
    if (core->now_ms - core->seconds.wanting_ms >= AGAIN_MS) {
        core->seconds.wanting_ms = core->now_ms;
        core->seconds.looks      = FULL_MAX;
        make_due(core, HEAD_SECOND_WANTING, AGAIN_MAX);
    }
}

bool head_seconds_settled(const struct head_core *core)
{
    return pl_list_empty(&core->seconds.lists[HEAD_SECOND_DUE]) &&
           pl_list_empty(&core->seconds.lists[HEAD_SECOND_MOVING]);
}

/* ---------------------------------------------------------------------------- one value */

static bool is_moving(const struct head_tile *tile)
{
    const struct pl_list *pos;

    pl_list_for_each(pos, &tile->instances) {
        if (!pl_list_empty(&pl_container_of(pos, const struct head_instance, tile_link)
                                ->buffer->writers)) {
            return true;
        }
    }
    return false;
}

/* By shadows, calls that are under way, or a copy in memory of a host, which can be dropped instead. */
static bool relied_on(const struct head_tile *tile)
{
    const struct pl_list *pos;

    pl_list_for_each(pos, &tile->instances) {
        if (pl_container_of(pos, const struct head_instance, tile_link)->buffer->spilled !=
            NULL) {
            return true;
        }
    }

    pl_list_for_each(pos, &tile->fragments) {
        const struct head_array *array =
            pl_container_of(pos, const struct head_fragment, tile_link)->array;

        if (array->root != NULL || array->apart) {
            return true;
        }
    }
    return false;
}

/*
 * A copy on a device that makes it no safer, of this value alone, is a replica like others: the
 * last one that was made.
 */
static void spare_one(struct head_tile *tile)
{
    const struct head_counted all = {.settled = true};
    struct pl_list *pos;

    if (relied_on(tile)) {
        return;
    }
    for (pos = tile->instances.prev; pos != &tile->instances; pos = pos->prev) {
        const struct head_instance *instance =
            pl_container_of(pos, struct head_instance, tile_link);
        struct head_buffer *buffer = instance->buffer;
        struct head_counted others = {.but = buffer, .settled = true};

        if (buffer->spilled == NULL && head_second_counts(buffer, &all) &&
            instance->buffer_link.next == &buffer->instances &&
            instance->buffer_link.prev == &buffer->instances &&
            head_second_safety_of(tile, &instance->box, &others) == HEAD_SAFE_APART) {
            head_buffer_replica_set(buffer, true);
            return;
        }
    }
}

/* A device that may get one lies on another host. */
static bool hosts_beyond(struct head_core *core, const struct head_tile *tile)
{
    const struct pl_list *pos;

    pl_list_for_each(pos, &tile->instances) {
        const struct head_device *from =
            pl_container_of(pos, const struct head_instance, tile_link)->buffer->device;

        for (uint32_t i = 0; i < core->devices.count; i++) {
            const struct head_device *device = head_device_at(core, i);

            if (device->joined && device->expected_ms == 0 && !device->gone &&
                !device->draining && head_device_apart(device, from)) {
                return true;
            }
        }
    }
    return false;
}

static void say(struct head_second *second)
{
    if (second->safety > HEAD_SAFE_ONE) {
        second->warned = false;
    } else if (!second->warned && second->tile->failure == NULL) {
        char bytes[32];

        pl_warn("head",
                "a value of %s that asked for a second copy has one only: no other device "
                "has room, and no host memory for spilling",
                pl_format_bytes(second->bytes, bytes));
        second->warned = true;
    }
}

/* Where it stands; nothing is begun. */
static void settle(struct head_core *core, struct head_second *second)
{
    struct head_tile *tile = second->tile;

    if (!head_second_wanted(tile)) {
        saw(core, second, HEAD_SAFE_APART);
        put_to(core, second, HEAD_SECOND_REST);
        return;
    }
    saw(core, second, head_second_safety_shown(tile, false));
    if (is_moving(tile)) {
        put_to(core, second, HEAD_SECOND_MOVING);
        return;
    }
    second->tries = 0;
    if (second->safety == HEAD_SAFE_APART) {
        spare_one(tile);
    }
    put_to(core, second,
           second->safety == HEAD_SAFE_APART ||
                   (second->safety == HEAD_SAFE_NEAR && !hosts_beyond(core, tile))
               ? HEAD_SECOND_REST
               : HEAD_SECOND_WANTING);
    say(second);
}

/* Arrays are held: what makes room may let go of others that show it. */
static uint32_t parts_of(struct head_tile *tile, struct head_second_part out[PARTS_MAX])
{
    struct pl_list *pos;
    uint32_t count = 0;

    pl_list_for_each(pos, &tile->fragments) {
        const struct head_fragment *fragment =
            pl_container_of(pos, struct head_fragment, tile_link);

        if (count < PARTS_MAX && fragment->array->space != NULL) {
            out[count++] = (struct head_second_part){
                .array = fragment->array,
                .tile  = tile,
                .box   = fragment->box,
                .bytes = head_second_bytes(fragment->array, &fragment->box)};
            fragment->array->refs++;
        }
    }
    return count;
}

/* false: nothing was begun. */
static bool make(struct head_core *core, struct head_second *second, uint32_t *io_looks)
{
    struct head_second_part parts[PARTS_MAX];
    uint32_t count = head_second_wanted(second->tile) ? parts_of(second->tile, parts) : 0;
    bool begun     = false;

    for (uint32_t i = 0; i < count; i++) {
        begun |= head_second_part_make(core, &parts[i], io_looks);
    }
    settle(core, second);
    if (second->state == HEAD_SECOND_MOVING) {
        second->tries += begun;
        second->tried_ms = core->now_ms;
    }
    for (uint32_t i = 0; i < count; i++) {
        head_array_release(core, parts[i].array);
    }
    core->seconds.made += begun;
    return begun;
}

void head_second_want(struct head_core *core, struct head_array *array)
{
    struct head_tile *tile =
        pl_list_first(&array->fragments, struct head_fragment, array_link)->tile;
    uint32_t looks = PUT_MAX;

    if (!array->put_replica || pl_list_empty(&tile->instances) || tile->failure != NULL ||
        tile->second != NULL) {
        return;
    }
    head_second_add(core, tile, head_second_bytes(array, &array->extent), false);
    (void)make(core, tile->second, &looks);
}

/* -------------------------------------------------------------------------- all of them */

/* Those whose copy has come: they are the first. */
static void moving_look(struct head_core *core)
{
    struct pl_list *list = &core->seconds.lists[HEAD_SECOND_MOVING];
    uint32_t in_vain     = 0;

    while (in_vain < VAIN_MAX && !pl_list_empty(list)) {
        struct head_second *second = pl_list_first(list, struct head_second, link);

        core->steps++;
        settle(core, second); /* to the end, or off */
        in_vain += second->state == HEAD_SECOND_MOVING;
    }
}

/*
 * A place was found, so perhaps there is one for the next value that waits; not for one whose copy
 * failed a moment ago.
 */
static void next_due(struct head_core *core)
{
    const struct head_second *next =
        pl_list_first(&core->seconds.lists[HEAD_SECOND_WANTING], struct head_second, link);

    if (next != NULL &&
        (next->tried_ms == 0 || core->now_ms - next->tried_ms >= AGAIN_MS)) {
        make_due(core, HEAD_SECOND_WANTING, 1);
    }
}

void head_seconds_make(struct head_core *core)
{
    struct head_seconds *seconds = &core->seconds;
    struct pl_list *due          = &seconds->lists[HEAD_SECOND_DUE];

    moving_look(core);
    for (uint32_t i = 0; i < LOOK_MAX && !pl_list_empty(due) &&
                         seconds->counts[HEAD_SECOND_MOVING] < MOVING_MAX &&
                         seconds->moving_bytes < MOVING_BYTES_MAX;
         i++) {
        struct head_second *second = pl_list_first(due, struct head_second, link);

        core->steps++;
        if (second->tries > 0 && core->now_ms - second->tried_ms < AGAIN_MS) {
            settle(core, second); /* the last one failed */
        } else {
            if (make(core, second, &seconds->looks)) {
                next_due(core);
            }
        }
    }
}

/* Somebody is still putting something. */
static bool being_put(const struct head_core *core)
{
    const struct pl_list *pos;

    pl_list_for_each(pos, &core->clients) {
        const struct head_client *client =
            pl_container_of(pos, const struct head_client, link);
        uint64_t key;
        void *value;

        for (size_t i = 0; pl_map_next(&client->refs, &i, &key, &value);) {
            if (((const struct head_ref *)value)->array->put_offset != UINT64_MAX) {
                return true;
            }
        }
    }
    return false;
}

void head_seconds_status(const struct head_core *core, Plasmon__V1__Lineage *out)
{
    const struct head_seconds *seconds = &core->seconds;

    out->second_apart = seconds->safe_count[HEAD_SAFE_APART];
    out->second_near  = seconds->safe_count[HEAD_SAFE_NEAR];
    out->second_missing =
        seconds->safe_count[HEAD_SAFE_NOT] + seconds->safe_count[HEAD_SAFE_ONE];
    out->second_moving =
        seconds->counts[HEAD_SECOND_DUE] + seconds->counts[HEAD_SECOND_MOVING];
    out->second_made = seconds->made;
}

bool head_core_twice(const struct head_core *core, bool apart)
{
    const uint64_t *safe = core->seconds.safe_count;

    return head_seconds_settled(core) && safe[HEAD_SAFE_NOT] + safe[HEAD_SAFE_ONE] == 0 &&
           (!apart || safe[HEAD_SAFE_NEAR] == 0) && !being_put(core);
}

void head_seconds_check(const struct head_core *core)
{
    uint64_t safe[HEAD_SAFE_COUNT] = {0}, bytes = 0;

    for (int state = 0; state < HEAD_SECOND_STATES; state++) {
        const struct pl_list *pos;
        uint64_t count = 0;

        pl_list_for_each(pos, &core->seconds.lists[state]) {
            const struct head_second *second =
                pl_container_of(pos, const struct head_second, link);

            PL_CHECK(second->tile->second == second && (int)second->state == state);
            safe[second->safety]++;
            count++;
            bytes += state == HEAD_SECOND_MOVING ? second->bytes : 0;
            PL_CHECK(state != HEAD_SECOND_REST || !head_second_wanted(second->tile) ||
                     head_second_safety_shown(second->tile, false) >= second->safety);
        }
        PL_CHECK(count == core->seconds.counts[state]);
    }
    PL_CHECK(memcmp(safe, core->seconds.safe_count, sizeof(safe)) == 0);
    PL_CHECK(bytes == core->seconds.moving_bytes);
}
