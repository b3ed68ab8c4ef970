#include "worker/suspects.h"

#include <assert.h>

void worker_suspects_count(struct store_suspects *suspects)
{
    for (uint32_t i = 0; i < STORE_LOADING_MAX; i++) {
        uint64_t library = suspects->loading[i];
        uint32_t place   = 0;

        for (uint32_t k = 1; k < STORE_SUSPECTS; k++) {
            bool known = suspects->of[place].library == library;

            if (suspects->of[k].library == library ||
                (!known && suspects->of[k].deaths < suspects->of[place].deaths)) {
                place = k;
            }
        }
        if (library != 0 && suspects->of[place].library != library) {
            suspects->of[place].library = library;
            suspects->of[place].deaths  = 0;
        }
        suspects->of[place].deaths += library != 0;
        suspects->loading[i] = 0;
    }
}

uint64_t worker_suspects_deaths(const struct store_suspects *suspects, uint64_t library)
{
    for (uint32_t i = 0; i < STORE_SUSPECTS && library != 0; i++) {
        if (suspects->of[i].library == library) {
            return suspects->of[i].deaths;
        }
    }
    return 0;
}

void worker_suspects_note(struct store_suspects *suspects, uint32_t thread,
                          uint64_t library)
{
    assert(thread < STORE_LOADING_MAX);
    __atomic_store_n(&suspects->loading[thread], library, __ATOMIC_RELEASE);
}
