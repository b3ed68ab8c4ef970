/* SHA-256 (FIPS 180-4): names for content, where a collision would run the wrong code. */
#ifndef BASE_SHA256_H
#define BASE_SHA256_H

#include "base.h"

#define PL_SHA256_BYTES 32

struct pl_sha256 {
    uint32_t state[8];
    uint64_t bytes;
    uint8_t block[64];
};

void pl_sha256_init(struct pl_sha256 *sha);
void pl_sha256_add(struct pl_sha256 *sha, const void *data, size_t bytes);
/* Its length and then the bytes, so that a series of fields cannot be cut up in two ways. */
void pl_sha256_add_field(struct pl_sha256 *sha, const void *data, size_t bytes);
void pl_sha256_finish(struct pl_sha256 *sha, uint8_t out[PL_SHA256_BYTES]);
/* HMAC (RFC 2104): who has the key made this. */
void pl_hmac_sha256(const void *key, size_t key_bytes, const void *data, size_t bytes,
                    uint8_t out[PL_SHA256_BYTES]);
/* 64 hexadecimal digits and a NUL. */
void pl_sha256_hex(const uint8_t hash[PL_SHA256_BYTES], char out[2 * PL_SHA256_BYTES + 1]);

#endif
