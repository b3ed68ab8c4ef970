#include "base/sha256.h"

#include <string.h>

static const uint32_t constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4,
    0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe,
    0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f,
    0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7,
    0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc,
    0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
    0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116,
    0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7,
    0xc67178f2};

static uint32_t rotate(uint32_t x, unsigned bits)
{
    return x >> bits | x << (32 - bits);
}

static uint32_t load(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static void schedule(const uint8_t *block, uint32_t w[64])
{
    for (unsigned i = 0; i < 16; i++) {
        w[i] = load(block + (size_t)4 * i);
    }
    for (unsigned i = 16; i < 64; i++) {
        uint32_t s0 = rotate(w[i - 15], 7) ^ rotate(w[i - 15], 18) ^ w[i - 15] >> 3;
        uint32_t s1 = rotate(w[i - 2], 17) ^ rotate(w[i - 2], 19) ^ w[i - 2] >> 10;

        w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
}

static void compress(struct pl_sha256 *sha, const uint8_t *block)
{
    uint32_t w[64], v[8];

    schedule(block, w);
    memcpy(v, sha->state, sizeof(v));
    for (unsigned i = 0; i < 64; i++) {
        uint32_t s1     = rotate(v[4], 6) ^ rotate(v[4], 11) ^ rotate(v[4], 25);
        uint32_t choose = (v[4] & v[5]) ^ (~v[4] & v[6]);
        uint32_t t1     = v[7] + s1 + choose + constants[i] + w[i];
        uint32_t s0     = rotate(v[0], 2) ^ rotate(v[0], 13) ^ rotate(v[0], 22);
        uint32_t most   = (v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]);

        memmove(v + 1, v, 7 * sizeof(v[0]));
        v[4] += t1;
        v[0] = t1 + s0 + most;
    }
    for (unsigned i = 0; i < 8; i++) {
        sha->state[i] += v[i];
    }
}

void pl_sha256_init(struct pl_sha256 *sha)
{
    *sha = (struct pl_sha256){.state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                        0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19}};
}

void pl_sha256_add(struct pl_sha256 *sha, const void *data, size_t bytes)
{
    const uint8_t *at = data;

    while (bytes > 0) {
        size_t used = (size_t)(sha->bytes % 64);
        size_t part = bytes < 64 - used ? bytes : 64 - used;

        memcpy(sha->block + used, at, part);
        sha->bytes += part;
        at += part;
        bytes -= part;
        if (used + part == 64) {
            compress(sha, sha->block);
        }
    }
}

static void store_big(uint64_t value, uint8_t out[8])
{
    for (unsigned i = 0; i < 8; i++) {
        out[i] = (uint8_t)(value >> (56 - 8 * i));
    }
}

void pl_sha256_add_field(struct pl_sha256 *sha, const void *data, size_t bytes)
{
    uint8_t length[8];

    store_big(bytes, length);
    pl_sha256_add(sha, length, sizeof(length));
    pl_sha256_add(sha, data, bytes);
}

void pl_sha256_finish(struct pl_sha256 *sha, uint8_t out[PL_SHA256_BYTES])
{
    uint8_t end[72] = {0x80};
    size_t used     = (size_t)(sha->bytes % 64);
    size_t zeros    = (used < 56 ? 56 : 120) - used; /* the 0x80 is one of them */

    store_big(sha->bytes * 8, end + zeros);
    pl_sha256_add(sha, end, zeros + 8);
    for (unsigned i = 0; i < 8; i++) {
        out[4 * i]     = (uint8_t)(sha->state[i] >> 24);
        out[4 * i + 1] = (uint8_t)(sha->state[i] >> 16);
        out[4 * i + 2] = (uint8_t)(sha->state[i] >> 8);
        out[4 * i + 3] = (uint8_t)sha->state[i];
    }
}

void pl_sha256_hex(const uint8_t hash[PL_SHA256_BYTES], char out[2 * PL_SHA256_BYTES + 1])
{
    static const char digits[] = "0123456789abcdef";

    for (size_t i = 0; i < PL_SHA256_BYTES; i++) {
        out[2 * i]     = digits[hash[i] >> 4];
        out[2 * i + 1] = digits[hash[i] & 15];
    }
    out[2 * PL_SHA256_BYTES] = '\0';
}

void pl_hmac_sha256(const void *key, size_t key_bytes, const void *data, size_t bytes,
                    uint8_t out[PL_SHA256_BYTES])
{
    uint8_t block[64] = {0}, pad[64];
    struct pl_sha256 sha;

    if (key_bytes > sizeof(block)) {
        pl_sha256_init(&sha);
        pl_sha256_add(&sha, key, key_bytes);
        pl_sha256_finish(&sha, block);
    } else {
        memcpy(block, key, key_bytes);
    }
    for (size_t i = 0; i < sizeof(pad); i++) {
        pad[i] = block[i] ^ 0x36;
    }
    pl_sha256_init(&sha);
    pl_sha256_add(&sha, pad, sizeof(pad));
    pl_sha256_add(&sha, data, bytes);
    pl_sha256_finish(&sha, out);
    for (size_t i = 0; i < sizeof(pad); i++) {
        pad[i] = block[i] ^ 0x5c;
    }
    pl_sha256_init(&sha);
    pl_sha256_add(&sha, pad, sizeof(pad));
    pl_sha256_add(&sha, out, PL_SHA256_BYTES);
    pl_sha256_finish(&sha, out);
}
