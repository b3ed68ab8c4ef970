/*
 * Which blocks have to go so that there is a hole for so many bytes? Those of a window, a row of
 * blocks side by side that may all go; the free ones among them cost nothing. Both ends move along
 * the order once: when the window is wide enough its beginning follows as far as it stays so.
 */
#include "store/arena_int.h"

struct window {
    const struct arena_block *first, *last;
    uint64_t used; /* bytes that have to go */
    uint32_t count;
};

static uint64_t cost(const struct arena_block *block)
{
    return block->used ? block->bytes : 0;
}

static bool is_enough(const struct window *window, uint64_t rounded)
{
    uint64_t at = pl_round_up(window->first->offset, arena_alignment_of(rounded));

    return at + rounded <= window->last->offset + window->last->bytes;
}

static void shrink(const struct store_arena *arena, struct window *window)
{
    window->used -= cost(window->first);
    window->count -= window->first->used;
    window->first = arena_block_after(arena, window->first);
}

static bool goes_on(const struct window *window, const struct arena_block *block)
{
    return window->first != NULL && window->last->pool == block->pool &&
           window->last->offset + window->last->bytes == block->offset;
}

static plasmon_status_t offsets_take(const struct store_arena *arena,
                                     const struct window *window, struct pl_vec *out)
{
    const struct arena_block *block = window->first;

    for (;; block = arena_block_after(arena, block)) {
        if (block->used) {
            uint64_t *place = pl_vec_push(out);

            if (place == NULL) {
                return PLASMON_ENOMEM;
            }
            *place = block->offset;
        }
        if (block == window->last) {
            return PLASMON_OK;
        }
    }
}

plasmon_status_t store_arena_window(const struct store_arena *arena, uint64_t bytes,
                                    uint32_t count_max, store_arena_may_go_fn may_go,
                                    void *user, struct pl_vec *out_offsets)
{
    uint64_t rounded     = store_arena_rounded(bytes);
    struct window window = {.first = NULL}, best = {.first = NULL};
    const struct pl_list *pos;

    pl_list_for_each(pos, &arena->order) {
        const struct arena_block *block =
            pl_container_of(pos, const struct arena_block, order);

        if (block->used && !may_go(user, block->offset)) {
            window.first = NULL;
            continue;
        }
        if (!goes_on(&window, block)) {
            window = (struct window){.first = block};
        }
        window.last = block;
        window.used += cost(block);
        window.count += block->used;
        while (window.first != block && window.count > count_max) {
            shrink(arena, &window);
        }
        while (is_enough(&window, rounded)) {
            if (window.count <= count_max &&
                (best.first == NULL || window.used < best.used)) {
                best = window;
            }
            if (window.first == block) {
                break;
            }
            shrink(arena, &window);
        }
    }
    return best.first != NULL ? offsets_take(arena, &best, out_offsets) : PLASMON_EDEVMEM;
}
