/*
 * What was looked up before it was made: its client is told when it is, by a number that it drew
 * for that, as it is told of its tasks. To it this is a task of somebody else; nothing here counts
 * as one of its own.
 *
 * A value is made when no unfinished task makes any of its tiles. It is tiles that are awaited and
 * not tasks, because a tile stays the same when the launch that makes it is lost and the call runs
 * again (rebuild.c), or when it takes several (a put in pieces). It has failed with the first tile
 * that has.
 *
 * A tile says by a flag whether it is awaited, and core->awaited has by whom: hardly any is, and
 * nothing is asked for those that are not.
 *
 * INVARIANTS (head_found_check)
 *
 *   (1) A head_awaited has a tile that is neither made nor failed, and is in the chain of that tile.
 *   (2) `missing` of a head_found counts those of its parts, and is not 0.
 *
 * Nothing is held by being awaited: who looked it up has a ref that does, or does not care any
 * more. So what nobody can reach is over, too, as if it had been made: what is left of the ref does
 * not depend on it. A session that ends leaves what it awaits behind, for nobody.
 */
#include "head/core_int.h"

struct head_awaited {
    struct head_tile *tile; /* NULL: it is over */
    struct head_found *found;
    struct head_awaited *next; /* of the same tile */
};

struct head_found {
    uint64_t session;
    uint64_t task;
    struct pl_list link; /* core->found */
    size_t missing;      /* tiles */
    size_t count;
    struct head_awaited parts[];
};

static uint64_t key_of(const struct head_tile *tile)
{
    return (uint64_t)(uintptr_t)tile;
}

static bool is_over(const struct head_tile *tile)
{
    return tile->failure != NULL || tile->makers == 0;
}

/* The rest of its chain. */
static void chain_set(struct head_core *core, struct head_tile *tile,
                      struct head_awaited *first)
{
    tile->awaited = first != NULL;
    if (first == NULL) {
        (void)pl_map_remove(&core->awaited, key_of(tile));
    } else {
        PL_CHECK(pl_map_set(&core->awaited, key_of(tile), first) == PLASMON_OK);
    }
}

static void part_add(struct head_core *core, struct head_found *found,
                     struct head_tile *tile)
{
    struct head_awaited *part = &found->parts[found->count++];

    part->tile  = tile;
    part->found = found;
    part->next  = tile->awaited ? pl_map_get(&core->awaited, key_of(tile)) : NULL;
    found->missing++;
    chain_set(core, tile, part);
}

static void part_remove(struct head_core *core, struct head_awaited *part)
{
    struct head_awaited *at = pl_map_get(&core->awaited, key_of(part->tile));

    if (at == part) {
        chain_set(core, part->tile, part->next);
    } else {
        while (at->next != part) {
            at = at->next;
        }
        at->next = part->next;
    }
    part->tile = NULL;
    part->found->missing--;
}

static void found_free(struct head_core *core, struct head_found *found)
{
    for (size_t i = 0; i < found->count; i++) {
        if (found->parts[i].tile != NULL) {
            part_remove(core, &found->parts[i]);
        }
    }
    pl_list_remove(&found->link);
    pl_free(found);
}

/* failure NULL: it is made. */
static void found_end(struct head_core *core, struct head_found *found,
                      struct head_failure *failure)
{
    struct head_client *client = pl_map_get(&core->sessions, found->session);

    if (client != NULL && failure != NULL) {
        head_client_failed(core, client, found->task, failure);
    } else if (client != NULL) {
        head_client_done(core, client, found->task);
    }
    found_free(core, found);
}

static size_t count_unmade(const struct head_array *array)
{
    const struct pl_list *pos;
    size_t count = 0;

    pl_list_for_each(pos, &array->fragments) {
        count += !is_over(pl_container_of(pos, struct head_fragment, array_link)->tile);
    }
    return count;
}

bool head_found_await(struct head_core *core, struct head_client *client, uint64_t task,
                      struct head_array *array)
{
    struct head_failure *failure = head_array_failure(array, &array->extent);
    struct head_found *found;
    struct pl_list *pos;
    size_t count;

    if (task == 0) {
        return false;
    }
    if (failure != NULL) {
        head_client_failed(core, client, task, failure);
        return true;
    }
    count = count_unmade(array);
    if (count == 0) {
        return false;
    }
    found          = head_alloc(sizeof(*found) + count * sizeof(found->parts[0]));
    found->session = client->session;
    found->task    = task;
    pl_list_add_tail(&core->found, &found->link);
    pl_list_for_each(pos, &array->fragments) {
        struct head_tile *tile =
            pl_container_of(pos, struct head_fragment, array_link)->tile;

        if (!is_over(tile)) {
            part_add(core, found, tile);
        }
    }
    return true;
}

void head_found_settle(struct head_core *core, struct head_tile *tile)
{
    while (tile->awaited && is_over(tile)) {
        struct head_awaited *part = pl_map_get(&core->awaited, key_of(tile));
        struct head_found *found  = part->found;

        part_remove(core, part);
        if (tile->failure != NULL || found->missing == 0) {
            found_end(core, found, tile->failure);
        }
    }
}

void head_found_check(const struct head_core *core)
{
    const struct pl_list *pos;
    size_t parts = 0, chained = 0;
    uint64_t key;
    void *value;

    pl_list_for_each(pos, &core->found) {
        const struct head_found *found =
            pl_container_of(pos, const struct head_found, link);
        size_t missing = 0;

        for (size_t i = 0; i < found->count; i++) {
            const struct head_tile *tile = found->parts[i].tile;

            PL_CHECK(tile == NULL || (tile->awaited && !is_over(tile)));
            missing += tile != NULL;
        }
        PL_CHECK(missing > 0 && missing == found->missing);
        parts += missing;
    }
    for (size_t i = 0; pl_map_next(&core->awaited, &i, &key, &value);) {
        for (const struct head_awaited *at = value; at != NULL; at = at->next) {
            PL_CHECK(key_of(at->tile) == key);
            chained++;
        }
    }
    PL_CHECK(parts == chained);
}

void head_found_destroy(struct head_core *core)
{
    while (!pl_list_empty(&core->found)) {
        found_free(core, pl_list_first(&core->found, struct head_found, link));
    }
    pl_map_finish(&core->awaited);
}
