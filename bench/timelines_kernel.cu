/*
 * Kernels of `plasmon bench timelines`.
 *
 * timelines_spin takes as many clock cycles as it is told, in one thread: a kernel of a length that
 * is known. timelines_exchange is a hop of a ping-pong: it compares what was pulled from the peer,
 * word by word, and writes what the peer pulls next.
 *
 * Launch of exchange: 256 threads a block, at most 32 blocks; a grid-stride loop. The CPU variants
 * are in timelines_words.c.
 */
#include <stdint.h>

#define PATTERN(role, round, i) \
    ((round) * 0x9e3779b97f4a7c15ull + ((role) + 1) * 0xc2b2ae3d27d4eb4full + (i))

extern "C" __global__ void timelines_spin(uint64_t cycles)
{
    const uint64_t begin = static_cast<uint64_t>(clock64());

    while (static_cast<uint64_t>(clock64()) - begin < cycles) {
    }
}

extern "C" __global__ void timelines_exchange(const uint64_t *landing, uint64_t *payload,
                                              unsigned long long *wrong, uint64_t words,
                                              uint64_t expect, uint64_t round, uint64_t role)
{
    const uint64_t step = static_cast<uint64_t>(gridDim.x) * blockDim.x;
    const uint64_t at   = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;

    for (uint64_t i = at; i < words; i += step) {
        if (expect != 0 && landing[i] != PATTERN(1 - role, expect, i)) {
            atomicAdd(wrong, 1ull);
        }
        if (round != 0) {
            payload[i] = PATTERN(role, round, i);
        }
    }
}
