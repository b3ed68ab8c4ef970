/*
 * Accounts of namespaces.
 *
 * BYTES  A tile is content; what arrays show of it is charged, and at most all of it: charged =
 * min(bytes of the tile, sum of what its fragments and partial results show). So an array that is
 * written bit by bit costs its size, and one that is held in two versions costs what differs. (Two
 * snapshots of overlapping parts of something that is gone may be charged up to the whole of it.) A
 * tile that has failed when it is shown costs nothing: there is no memory behind it.
 *
 * INVARIANTS (head_spaces_check)
 *
 *   (1) bytes is the sum of `charged` of the tiles in `tiles`; a tile is in there exactly while
 *       something shows it.
 *   (2) tasks is the sum of tasks_open of its sessions, sessions is how many they are.
 */
#include "head/core_int.h"

#include <string.h>

/* Held once. */
static struct head_space *space_create(struct head_core *core, const char *name)
{
    struct head_space *space = head_alloc(sizeof(*space));

    space->refs = 1;
    space->name = head_strdup(name);
    pl_list_init(&space->link);
    pl_list_init(&space->tiles);
    pl_list_add_tail(&core->spaces, &space->link);
    return space;
}

static struct head_space *space_find(struct head_core *core, const char *name)
{
    struct pl_list *pos;

    pl_list_for_each(pos, &core->spaces) {
        struct head_space *space = pl_container_of(pos, struct head_space, link);

        if (strcmp(space->name, name) == 0) {
            return space;
        }
    }
    return NULL;
}

static const struct head_quota no_quota;

void head_core_namespaces_clear(struct head_core *core)
{
    struct pl_list *pos, *tmp;

    core->namespaces_closed = false;
    pl_list_for_each_safe(pos, tmp, &core->spaces) {
        struct head_space *space = pl_container_of(pos, struct head_space, link);

        space->quota = no_quota;
        if (space->configured) {
            space->configured = false;
            head_space_release(space); /* it goes when nothing is in it any more */
        }
    }
}

void head_core_namespace_set(struct head_core *core, const char *name,
                             const struct head_quota *quota)
{
    struct head_space *space = space_find(core, name);

    core->namespaces_closed = true;
    if (space == NULL) {
        space = space_create(core, name);
    } else if (!space->configured) {
        (void)head_space_hold(space);
    }
    space->configured = true;
    space->quota      = *quota;
}

void head_spaces_finish(struct head_core *core)
{
    head_core_namespaces_clear(core);
    PL_CHECK(pl_list_empty(&core->spaces));
}

plasmon_status_t head_space_open(struct head_core *core, const char *name,
                                 struct head_space **out_space, struct pl_err *err)
{
    const char *wanted       = name[0] != '\0' ? name : "default";
    struct head_space *space = space_find(core, wanted);

    if (core->namespaces_closed && (space == NULL || !space->configured) &&
        strcmp(wanted, "default") != 0) {
        return pl_err_set(
            err, PLASMON_ENOENT,
            "there is no namespace '%.64s': name one of the file that the head "
            "was given with --namespaces, or have it added there",
            wanted);
    }
    *out_space = head_space_take(core, wanted);
    return PLASMON_OK;
}

struct head_space *head_space_take(struct head_core *core, const char *name)
{
    struct head_space *space = space_find(core, name);

    return space != NULL ? head_space_hold(space) : space_create(core, name);
}

struct head_space *head_space_hold(struct head_space *space)
{
    space->refs++;
    return space;
}

void head_space_release(struct head_space *space)
{
    PL_CHECK(space->refs > 0);
    if (--space->refs > 0) {
        return;
    }
    PL_CHECK(space->bytes == 0 && space->tasks == 0 && space->sessions == 0);
    PL_CHECK(pl_list_empty(&space->tiles));
    pl_list_remove(&space->link);
    pl_free(space->name);
    pl_free(space);
}

/* ------------------------------------------------------------------------------- quotas */

plasmon_status_t head_space_admit_session(struct head_space *space, struct pl_err *err)
{
    if (space->quota.sessions == 0 || space->sessions < space->quota.sessions) {
        return PLASMON_OK;
    }
    space->refused++;
    return pl_err_set(err, PLASMON_EQUOTA,
                      "namespace '%s' has %llu session%s, its quota: end one "
                      "(`plasmon status` counts them), or raise `sessions` in the head's "
                      "--namespaces file",
                      space->name, (unsigned long long)space->sessions,
                      space->sessions == 1 ? "" : "s");
}

plasmon_status_t head_space_admit_task(struct head_space *space, struct pl_err *err)
{
    if (space->quota.tasks == 0 || space->tasks < space->quota.tasks) {
        return PLASMON_OK;
    }
    space->refused++;
    return pl_err_set(err, PLASMON_EQUOTA,
                      "namespace '%s' has %llu task%s in flight, its quota: wait for some "
                      "before submitting more, or raise `tasks` in the head's --namespaces "
                      "file",
                      space->name, (unsigned long long)space->tasks,
                      space->tasks == 1 ? "" : "s");
}

plasmon_status_t head_space_admit_bytes(struct head_space *space, uint64_t bytes,
                                        struct pl_err *err)
{
    char used[32], quota[32], wanted[32];

    if (space->quota.bytes == 0 || bytes == 0 ||
        (space->bytes <= space->quota.bytes &&
         bytes <= space->quota.bytes - space->bytes)) {
        return PLASMON_OK;
    }
    space->refused++;
    return pl_err_set(err, PLASMON_EQUOTA,
                      "namespace '%s' uses %s of its quota of %s, and %s more are wanted: "
                      "release refs or names, or raise `device_bytes` in the head's "
                      "--namespaces file",
                      space->name, pl_format_bytes(space->bytes, used),
                      pl_format_bytes(space->quota.bytes, quota),
                      pl_format_bytes(bytes, wanted));
}

plasmon_status_t head_space_admit_message(struct head_space *space, uint64_t bytes,
                                          const char *what, struct pl_err *err)
{
    char quota[32], wanted[32];

    if (space->quota.message_bytes == 0 || bytes <= space->quota.message_bytes) {
        return PLASMON_OK;
    }
    space->refused++;
    return pl_err_set(
        err, PLASMON_EQUOTA,
        "%s has %s, and namespace '%s' may send %s in a message: send less at "
        "a time, or raise `message_bytes` in the head's --namespaces file",
        what, pl_format_bytes(bytes, wanted), space->name,
        pl_format_bytes(space->quota.message_bytes, quota));
}

/* What writing the box anew adds: all of it, less what nobody shows any more then. */
static uint64_t growth(const struct head_array *array, const struct pl_box *box)
{
    uint64_t elements = (uint64_t)pl_box_elements(box);
    const struct head_fragment *fragment;

    for (fragment = head_array_meet(array, box); fragment != NULL;
         fragment = fragment->met) {
        struct pl_box part;

        if (fragment->tile->charged > 0 &&
            pl_box_intersection(&fragment->box, box, &part) &&
            !head_tile_held_elsewhere(fragment->tile, array, &part, NULL)) {
            elements -= (uint64_t)pl_box_elements(&part);
        }
    }
    return elements * pl_dtype_bytes(array->shape.dtype);
}

plasmon_status_t head_space_admit_run(const struct head_run *run, struct pl_err *err)
{
    struct head_space *space = run->client != NULL ? run->client->space : NULL;
    uint64_t bytes           = 0;

    if (space == NULL || space->quota.bytes == 0) {
        return PLASMON_OK;
    }
    for (size_t i = 0; i < run->arg_count; i++) {
        const struct head_arg *arg = &run->args[i];

        if (arg->array == NULL) {
            continue;
        }
        if (head_mode_writes(arg->mode)) {
            bytes += growth(arg->array, &arg->hull);
        } else if (arg->mode == PLASMON__V1__MODE__MODE_REDUCE) {
            bytes += (uint64_t)pl_box_elements(&arg->hull) * pl_dtype_bytes(arg->dtype);
        }
    }
    return head_space_admit_bytes(space, bytes, err);
}

/* ----------------------------------------------------------------------------- accounts */

static uint64_t due(const struct head_tile *tile)
{
    return tile->failure != NULL ? 0 : pl_min_u64(tile->bytes, tile->shown);
}

void head_space_show(struct head_array *array, struct head_tile *tile, uint64_t bytes)
{
    uint64_t now;

    if (array->space == NULL) {
        return;
    }
    if (tile->space == NULL) {
        /* which the array holds, and arrays of no other show it */
        tile->space = array->space;
        tile->bytes =
            (uint64_t)pl_box_elements(&tile->box) * pl_dtype_bytes(array->shape.dtype);
        pl_list_add_tail(&tile->space->tiles, &tile->space_link);
    }
    PL_CHECK(tile->space == array->space);
    tile->showing++;
    tile->shown += bytes;
    now = due(tile);
    tile->space->bytes += now - tile->charged;
    tile->charged = now;
}

void head_space_hide(struct head_array *array, struct head_tile *tile, uint64_t bytes)
{
    uint64_t now;

    if (array->space == NULL) {
        return;
    }
    PL_CHECK(tile->showing > 0 && tile->shown >= bytes);
    tile->showing--;
    tile->shown -= bytes;
    now = pl_bug("head.quota_leak") && tile->showing == 0 ? tile->charged : due(tile);
    tile->space->bytes += now - tile->charged;
    tile->charged = now;
    if (tile->showing == 0) {
        pl_list_remove(&tile->space_link);
        tile->space = NULL;
        if (tile->second != NULL) {
            head_tile_loosen(tile);
        }
    }
}

void head_spaces_check(const struct head_core *core)
{
    struct pl_list *pos, *it;

    pl_list_for_each(pos, &core->spaces) {
        const struct head_space *space = pl_container_of(pos, struct head_space, link);
        uint64_t bytes = 0, tasks = 0, sessions = 0;

        pl_list_for_each(it, &space->tiles) {
            const struct head_tile *tile =
                pl_container_of(it, struct head_tile, space_link);

            PL_CHECK(tile->space == space && tile->showing > 0);
            /* Less when it had failed when it was last looked at. */
            PL_CHECK(tile->charged <= pl_min_u64(tile->bytes, tile->shown));
            bytes += tile->charged;
        }
        pl_list_for_each(it, &core->clients) {
            const struct head_client *client =
                pl_container_of(it, struct head_client, link);

            if (client->space == space) {
                tasks += client->tasks_open;
                sessions++;
            }
        }
        PL_CHECK(bytes == space->bytes);
        PL_CHECK(tasks == space->tasks);
        PL_CHECK(sessions == space->sessions);
    }
}
