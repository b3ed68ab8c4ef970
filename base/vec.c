#include "vec.h"

#include "alloc.h"

#include <assert.h>
#include <string.h>

#define VEC_CAPACITY_MIN 8

static plasmon_status_t vec_reserve(struct pl_vec *vec, size_t count)
{
    size_t capacity = vec->capacity > 0 ? vec->capacity : VEC_CAPACITY_MIN;
    size_t bytes;
    void *items;

    if (count <= vec->capacity) {
        return PLASMON_OK;
    }
    while (capacity < count) {
        if (__builtin_mul_overflow(capacity, 2, &capacity)) {
            return PLASMON_ENOMEM;
        }
    }
    if (__builtin_mul_overflow(capacity, vec->item_bytes, &bytes)) {
        return PLASMON_ENOMEM;
    }

    items = pl_realloc(vec->items, vec->capacity * vec->item_bytes, bytes);
    if (items == NULL) {
        return PLASMON_ENOMEM;
    }
    vec->items    = items;
    vec->capacity = capacity;
    return PLASMON_OK;
}

/* Most are pushed where there is room. */
void *pl_vec_push(struct pl_vec *vec)
{
    char *item;

    if (vec->count == vec->capacity) {
        return pl_vec_push_n(vec, 1);
    }
    item = (char *)vec->items + vec->count++ * vec->item_bytes;
    if (vec->item_bytes == sizeof(uint64_t)) { /* pointers and numbers: without a call */
        memset(item, 0, sizeof(uint64_t));
    } else {
        memset(item, 0, vec->item_bytes);
    }
    return item;
}

void *pl_vec_push_n(struct pl_vec *vec, size_t count)
{
    char *first;
    size_t total;

    assert(vec->item_bytes > 0);
    assert(count > 0);

    if (__builtin_add_overflow(vec->count, count, &total) ||
        vec_reserve(vec, total) != PLASMON_OK) {
        return NULL;
    }

    /* Zeroed here and not only by the allocator: a pop leaves its item behind. */
    first = (char *)vec->items + vec->count * vec->item_bytes;
    memset(first, 0, count * vec->item_bytes);
    vec->count = total;
    return first;
}

void *pl_vec_at(const struct pl_vec *vec, size_t index)
{
    assert(index < vec->count);
    return (char *)vec->items + index * vec->item_bytes;
}

void pl_vec_pop(struct pl_vec *vec)
{
    assert(vec->count > 0);
    vec->count--;
}

void pl_vec_remove_unordered(struct pl_vec *vec, size_t index)
{
    size_t last = vec->count - 1;

    assert(index < vec->count);
    if (index != last) {
        memcpy(pl_vec_at(vec, index), pl_vec_at(vec, last), vec->item_bytes);
    }
    vec->count--;
}

void pl_vec_clear(struct pl_vec *vec)
{
    vec->count = 0;
}

void pl_vec_finish(struct pl_vec *vec)
{
    pl_free(vec->items);
    vec->items    = NULL;
    vec->count    = 0;
    vec->capacity = 0;
}
