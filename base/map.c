/*
 * INVARIANTS
 *
 *   (1) Between a key's home slot and the slot it is in there is no empty slot. So a lookup may
 *       stop at the first one.
 *   (2) At most 3/4 of the slots are used. So there always is an empty slot, and lookups end.
 *
 * Removal keeps (1) without tombstones: it walks on and moves back each entry that may stand in the hole.
 */
#include "map.h"

#include "alloc.h"
#include "expect.h"

#include <assert.h>

#define MAP_CAPACITY_MIN 16

/* Keys are often small counters, so they are mixed (the end of splitmix64) before the low bits are taken. */
static size_t map_home(const struct pl_map *map, uint64_t key)
{
    key = (key ^ (key >> 30)) * 0xbf58476d1ce4e5b9u;
    key = (key ^ (key >> 27)) * 0x94d049bb133111ebu;
    key ^= key >> 31;
    return (size_t)key & (map->capacity - 1);
}

/* The slot that has `key`, or the empty one where it would go. There must be slots. */
static struct pl_map_slot *map_find(const struct pl_map *map, uint64_t key)
{
    size_t i = map_home(map, key);

    while (map->slots[i].key != 0 && map->slots[i].key != key) {
        i = (i + 1) & (map->capacity - 1);
    }
    return &map->slots[i];
}

static plasmon_status_t map_grow(struct pl_map *map)
{
    struct pl_map grown = {
        .capacity = map->capacity > 0 ? map->capacity * 2 : MAP_CAPACITY_MIN,
        .count    = map->count,
    };

    grown.slots = PL_NEW_N(struct pl_map_slot, grown.capacity);
    if (grown.slots == NULL) {
        return PLASMON_ENOMEM;
    }

    for (size_t i = 0; i < map->capacity; i++) {
        if (map->slots[i].key != 0) {
            *map_find(&grown, map->slots[i].key) = map->slots[i];
        }
    }
    pl_free(map->slots);
    *map = grown;
    return PLASMON_OK;
}

void pl_map_init(struct pl_map *map)
{
    *map = (struct pl_map){0};
}

void pl_map_finish(struct pl_map *map)
{
    pl_free(map->slots);
    *map = (struct pl_map){0};
}

void *pl_map_get(const struct pl_map *map, uint64_t key)
{
    return map->count > 0 && key != 0 ? map_find(map, key)->value : NULL;
}

void pl_map_expect(const struct pl_map *map, uint64_t key)
{
    if (map->capacity > 0) {
        pl_expect(&map->slots[map_home(map, key)], sizeof(*map->slots));
    }
}

plasmon_status_t pl_map_set(struct pl_map *map, uint64_t key, void *value)
{
    struct pl_map_slot *slot = NULL;

    assert(key != 0);
    assert(value != NULL);

    if (map->capacity > 0) {
        slot = map_find(map, key);
        if (slot->key == key) {
            slot->value = value;
            return PLASMON_OK;
        }
    }
    if ((map->count + 1) * 4 > map->capacity * 3) {
        plasmon_status_t status = map_grow(map);

        if (status != PLASMON_OK) {
            return status;
        }
        slot = map_find(map, key);
    }

    slot->key   = key;
    slot->value = value;
    map->count++;
    return PLASMON_OK;
}

/* Empty slot `hole` and move later entries of its chain back, so that invariant (1) holds. */
static void map_close_hole(struct pl_map *map, size_t hole)
{
    size_t mask = map->capacity - 1;

    for (size_t i = (hole + 1) & mask; map->slots[i].key != 0; i = (i + 1) & mask) {
        size_t from_home = (i - map_home(map, map->slots[i].key)) & mask;
        size_t from_hole = (i - hole) & mask;

        /* Its home is at or before the hole: it may stand there. */
        if (from_home >= from_hole) {
            map->slots[hole] = map->slots[i];
            hole             = i;
        }
    }
    map->slots[hole] = (struct pl_map_slot){0};
}

void *pl_map_remove(struct pl_map *map, uint64_t key)
{
    struct pl_map_slot *slot;
    void *value;

    if (map->count == 0 || key == 0) {
        return NULL;
    }
    slot = map_find(map, key);
    if (slot->key == 0) {
        return NULL;
    }

    value = slot->value;
    map_close_hole(map, (size_t)(slot - map->slots));
    map->count--;
    return value;
}

int pl_map_next(const struct pl_map *map, size_t *io_index, uint64_t *out_key,
                void **out_value)
{
    for (; *io_index < map->capacity; (*io_index)++) {
        const struct pl_map_slot *slot = &map->slots[*io_index];

        if (slot->key != 0) {
            *out_key   = slot->key;
            *out_value = slot->value;
            (*io_index)++;
            return 1;
        }
    }
    return 0;
}

static uint64_t reversed(uint64_t x)
{
    uint64_t out = 0;

    for (unsigned i = 0; i < 64; i++) {
        out = out << 1 | (x >> i & 1);
    }
    return out;
}

/*
 * The homes are counted with their bits reversed (an idea of Redis's SCAN): when the map grows, a
 * home becomes two that have the same low bits, and so both lie behind the cursor, or both before
 * it.
 */
bool pl_map_scan(const struct pl_map *map, uint64_t *io_cursor, pl_map_fn fn, void *user)
{
    uint64_t mask = map->capacity - 1;
    size_t home   = (size_t)(*io_cursor & mask);

    if (map->count == 0) {
        return false;
    }
    for (size_t i = home; map->slots[i].key != 0; i = (i + 1) & mask) {
        if (map_home(map, map->slots[i].key) == home) {
            fn(user, map->slots[i].key, map->slots[i].value);
        }
    }
    *io_cursor = reversed(reversed(home | ~mask) + 1);
    return *io_cursor != 0;
}

void *pl_map_some(const struct pl_map *map, size_t *io_index, uint64_t *out_key)
{
    for (size_t i = 0; i < map->capacity; i++) {
        size_t at = (*io_index + i) & (map->capacity - 1);

        if (map->slots[at].key != 0) {
            *io_index = at;
            *out_key  = map->slots[at].key;
            return map->slots[at].value;
        }
    }
    return NULL;
}
