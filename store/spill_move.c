/*
 * Moving bytes so that a kill in the middle loses none: see spill_index.h.
 *
 * A piece is never longer than the way it goes, so it does not overwrite what it is read from: a
 * piece that was begun and not recorded is done again with the same result. A piece overwrites the
 * source only of pieces before it, which are recorded.
 *
 * The word has the low 24 bits of the move's id above the count of its pieces that are done, so
 * that both change at once. Pure function.
 */
#include "store/spill_index.h"

#include <string.h>

#include "base/base.h"
#include "base/fault.h"

#define COUNT_BITS  40
#define PIECE_BYTES (UINT64_C(8) << 20)

bool store_spill_move(uint8_t *memory, uint64_t id, uint64_t from, uint64_t to,
                      uint64_t bytes, uint64_t *progress, uint64_t steps_max)
{
    uint64_t piece = pl_min_u64(from - to, PIECE_BYTES);
    uint64_t count = from == to ? 0 : (bytes + piece - 1) / piece;
    uint64_t mark  = id << COUNT_BITS;
    uint64_t word  = __atomic_load_n(progress, __ATOMIC_ACQUIRE);
    uint64_t done  = 0;

    if (word >> COUNT_BITS == mark >> COUNT_BITS && !pl_bug("store.spill_move_again")) {
        done = word - mark;
    } else {
        __atomic_store_n(progress, mark, __ATOMIC_RELEASE);
    }
    for (; done < count; done++) {
        uint64_t at = done * piece;

        if (steps_max-- == 0) {
            return false;
        }
        memmove(memory + to + at, memory + from + at, pl_min_u64(piece, bytes - at));
        __atomic_store_n(progress, mark + done + 1, __ATOMIC_RELEASE);
    }
    return true;
}
