/*
 * Hash map from a non-zero uint64_t to a pointer: open addressing, linear probing, backward-shift
 * deletion. Under 0 nothing is ever found: keys may come from others.
 */
#ifndef BASE_MAP_H
#define BASE_MAP_H

#include <stdbool.h>

#include "base.h"

struct pl_map_slot {
    uint64_t key; /* 0: empty */
    void *value;
};
struct pl_map {
    struct pl_map_slot *slots;
    size_t capacity; /* power of two, or 0 */
    size_t count;
};

void pl_map_init(struct pl_map *map); /* allocates nothing */
void pl_map_finish(struct pl_map *map);
void *pl_map_get(const struct pl_map *map, uint64_t key); /* NULL: absent */
/* The key is asked for, put in or removed soon: its slot is on its way to the processor meanwhile. */
void pl_map_expect(const struct pl_map *map, uint64_t key);
plasmon_status_t pl_map_set(struct pl_map *map, uint64_t key,
                            void *value) PL_MUST_CHECK; /* value not NULL */
void *pl_map_remove(struct pl_map *map, uint64_t key);  /* what was there, or NULL */
/* for (size_t i = 0; pl_map_next(map, &i, &key, &value);) ; the map must not change inside. */
int pl_map_next(const struct pl_map *map, size_t *io_index, uint64_t *out_key,
                void **out_value);
/*
 * The entries whose home is one slot, and on to the next: a pass over a map that changes between
 * the steps. *io_cursor is 0 before the first one; false: that was the last one. What is there all
 * the time is seen once; what comes or goes meanwhile, once or not at all.
 */
typedef void (*pl_map_fn)(void *user, uint64_t key, void *value);
bool pl_map_scan(const struct pl_map *map, uint64_t *io_cursor, pl_map_fn fn, void *user);
/*
 * Some entry; NULL: there is none. *io_index says where to look first, and where it was found: who
 * begins with 0 and removes all, one after the other, passes over the map once.
 */
void *pl_map_some(const struct pl_map *map, size_t *io_index, uint64_t *out_key);

#endif
