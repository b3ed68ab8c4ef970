/*
 * The arena that messages are decoded into.
 *
 * protobuf-c asks its allocator for every sub-message, string and list; here that is a bump in a
 * block. Freeing is nothing; reset starts over. When a block is full a new one of twice the size
 * takes its place and the old one goes onto a chain; reset keeps only the newest, so that after a
 * few messages the arena has the size that its messages need.
 *
 * WHY THE CAP  Four MiB of empty sub-messages decode into hundreds of MiB of structs. `total`
 * counts what was handed out since reset, and nothing past bytes_max is: decoding fails, `refused`
 * says why.
 *
 * WHY THE LENGTH BEFORE EACH ALLOCATION  protobuf-c gives strings without their length, so a NUL
 * inside one would hide the rest of it from us. The eight bytes before an allocation hold the bytes
 * asked for: for a string, its length and one.
 */
#include "wire/wire_int.h"

#include <assert.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fault.h"

#define ARENA_BLOCK_BYTES_MIN ((size_t)64 << 10)
/* reset gives back what a rare giant needed */
#define ARENA_BLOCK_BYTES_KEPT ((size_t)4 << 20)
#define ARENA_HEADER_BYTES     16u /* of a block: pointer to the older one */

static plasmon_status_t arena_grow(struct wire_arena *arena, size_t bytes)
{
    size_t block_bytes =
        arena->block == NULL ? ARENA_BLOCK_BYTES_MIN : 2 * arena->block_bytes;
    uint8_t *block;

    while (block_bytes < bytes + 2 * ARENA_HEADER_BYTES) {
        block_bytes *= 2;
    }

    block = pl_fault_point("wire.arena") ? NULL : pl_alloc_aligned(16, block_bytes);
    if (block == NULL) {
        return PLASMON_ENOMEM;
    }

    if (arena->block != NULL) {
        memcpy(arena->block, &arena->overflow, sizeof(arena->overflow));
        arena->overflow = arena->block;
    }
    arena->block       = block;
    arena->block_bytes = block_bytes;
    arena->used        = ARENA_HEADER_BYTES;
    return PLASMON_OK;
}

/* `bytes` is a multiple of 8, as is `used`. */
static uint8_t *arena_bump(struct wire_arena *arena, size_t bytes)
{
    uint8_t *ptr;

    if (bytes > arena->bytes_max - arena->total) {
        arena->refused = true;
        return NULL;
    }
    if (bytes > arena->block_bytes - arena->used &&
        arena_grow(arena, bytes) != PLASMON_OK) {
        arena->out_of_memory = true;
        return NULL;
    }

    ptr = arena->block + arena->used;
    arena->used += bytes;
    arena->total += bytes;
    return ptr;
}

static void *arena_proto_alloc(void *user, size_t bytes)
{
    struct wire_arena *arena = user;
    uint64_t asked           = bytes;
    uint8_t *ptr;

    if (bytes > arena->bytes_max) {
        arena->refused = true;
        return NULL;
    }

    ptr = arena_bump(arena, ((bytes + 7) & ~(size_t)7) + sizeof(asked));
    if (ptr == NULL) {
        return NULL;
    }
    memcpy(ptr, &asked, sizeof(asked));
    return ptr + sizeof(asked);
}

static void arena_proto_free(void *user, void *ptr)
{
    (void)user;
    (void)ptr;
}

static void arena_free_overflow(struct wire_arena *arena)
{
    void *block = arena->overflow;

    while (block != NULL) {
        void *older;

        memcpy(&older, block, sizeof(older));
        pl_free(block);
        block = older;
    }
    arena->overflow = NULL;
}

plasmon_status_t wire_arena_init(struct wire_arena *arena, size_t bytes_max)
{
    assert(bytes_max > 0 && bytes_max < SIZE_MAX / 8);

    *arena = (struct wire_arena){
        .bytes_max = bytes_max,
        .allocator = {.alloc          = arena_proto_alloc,
                      .free           = arena_proto_free,
                      .allocator_data = arena},
    };
    return arena_grow(arena, 0);
}

void wire_arena_finish(struct wire_arena *arena)
{
    arena_free_overflow(arena);
    pl_free(arena->block);
    *arena = (struct wire_arena){.bytes_max = 0};
}

void wire_arena_reset(struct wire_arena *arena)
{
    arena_free_overflow(arena);
    if (arena->block_bytes > ARENA_BLOCK_BYTES_KEPT) {
        pl_free(arena->block);
        arena->block       = NULL;
        arena->block_bytes = 0;
    }
    arena->used          = arena->block == NULL ? 0 : ARENA_HEADER_BYTES;
    arena->total         = 0;
    arena->refused       = false;
    arena->out_of_memory = false;
}

void *wire_arena_alloc(struct wire_arena *arena, size_t bytes)
{
    uint8_t *ptr;

    if (bytes > arena->bytes_max) {
        arena->refused = true;
        return NULL;
    }

    /* Eight bytes more than needed, so that an address on 16 is among them. */
    ptr = arena_bump(arena, ((bytes + 15) & ~(size_t)15) + 8);
    if (ptr == NULL) {
        return NULL;
    }
    ptr += (uintptr_t)ptr & 8;
    memset(ptr, 0, bytes);
    return ptr;
}

char *wire_arena_text(struct wire_arena *arena, const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy   = wire_arena_alloc(arena, bytes);

    if (copy != NULL) {
        memcpy(copy, text, bytes);
    }
    return copy;
}

size_t wire_arena_text_length(const char *text)
{
    uint64_t asked;

    if (text == NULL || text == protobuf_c_empty_string) {
        return 0;
    }
    memcpy(&asked, text - sizeof(asked), sizeof(asked));
    return (size_t)asked - 1;
}
