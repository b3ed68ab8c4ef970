/* Stands before the texts for several devices: inputs made where they are used, as part.cu makes them. */
#include <stdint.h>

static uint64_t random_at(int64_t seed, int64_t index)
{
    uint64_t z = (uint64_t)seed + (uint64_t)(index + 1) * 0x9e3779b97f4a7c15u;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static float centred_at(int64_t seed, int64_t index)
{
    return 2 * ((float)(random_at(seed, index) >> 40) * 0x1p-24f) - 1;
}

void part_centred(float *y, int64_t n, int64_t first, int64_t seed)
{
    for (int64_t i = 0; i < n; i++) {
        y[i] = centred_at(seed, first + i);
    }
}

void part_prices(double *y, int64_t n, int64_t first, int64_t seed)
{
    for (int64_t i = 0; i < n; i++) {
        y[i] = 59.5 + (double)(random_at(seed, first + i) >> 40) * 0x1p-24;
    }
}

void part_levels(float *y, int64_t n, int64_t f, int64_t first, int64_t seed)
{
    for (int64_t i = 0; i < n * f; i++) {
        y[i] = (float)(random_at(seed, first + i) % 10);
    }
}
