#include "store/checksum.h"

#include <string.h>

#define PRIME_1 UINT64_C(0x9e3779b185ebca87)
#define PRIME_2 UINT64_C(0xc2b2ae3d27d4eb4f)
#define PRIME_3 UINT64_C(0x165667b19e3779f9)
#define PRIME_4 UINT64_C(0x85ebca77c2b2ae63)
#define PRIME_5 UINT64_C(0x27d4eb2f165667c5)

static uint64_t rotate(uint64_t value, unsigned by)
{
    return value << by | value >> (64 - by);
}

static uint64_t read_64(const uint8_t *at)
{
    uint64_t value;

    memcpy(&value, at, sizeof(value));
    return value;
}

static uint64_t read_32(const uint8_t *at)
{
    uint32_t value;

    memcpy(&value, at, sizeof(value));
    return value;
}

static uint64_t lane_round(uint64_t lane, uint64_t input)
{
    return rotate(lane + input * PRIME_2, 31) * PRIME_1;
}

static uint64_t lane_merge(uint64_t sum, uint64_t lane)
{
    return (sum ^ lane_round(0, lane)) * PRIME_1 + PRIME_4;
}

/* All whole stripes of 32 bytes; *io_at is behind them. */
static uint64_t stripes(const uint8_t **io_at, const uint8_t *end)
{
    uint64_t a = PRIME_1 + PRIME_2, b = PRIME_2, c = 0, d = 0 - PRIME_1;
    const uint8_t *at = *io_at;
    uint64_t sum;

    for (; end - at >= 32; at += 32) {
        a = lane_round(a, read_64(at));
        b = lane_round(b, read_64(at + 8));
        c = lane_round(c, read_64(at + 16));
        d = lane_round(d, read_64(at + 24));
    }
    *io_at = at;
    sum    = rotate(a, 1) + rotate(b, 7) + rotate(c, 12) + rotate(d, 18);
    sum    = lane_merge(sum, a);
    sum    = lane_merge(sum, b);
    sum    = lane_merge(sum, c);
    return lane_merge(sum, d);
}

uint64_t store_checksum(const void *data, size_t bytes)
{
    const uint8_t *at  = data;
    const uint8_t *end = at + bytes;
    uint64_t sum       = (bytes >= 32 ? stripes(&at, end) : PRIME_5) + bytes;

    for (; end - at >= 8; at += 8) {
        sum = rotate(sum ^ lane_round(0, read_64(at)), 27) * PRIME_1 + PRIME_4;
    }
    if (end - at >= 4) {
        sum = rotate(sum ^ read_32(at) * PRIME_1, 23) * PRIME_2 + PRIME_3;
        at += 4;
    }
    for (; at < end; at++) {
        sum = rotate(sum ^ *at * PRIME_5, 11) * PRIME_1;
    }
    sum = (sum ^ sum >> 33) * PRIME_2;
    sum = (sum ^ sum >> 29) * PRIME_3;
    return sum ^ sum >> 32;
}
