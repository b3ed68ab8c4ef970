/*
 * Compiled code on disk, by a hash of everything that it depends on. Several workers, and other programs of the same user, use one
 * folder at the same time: files appear whole (written aside, then renamed) and are never changed.
 *
 * What is read is run on the device. So a file counts only if it belongs to this user and nobody else may write it, and if its
 * content, with the key that it is named for, has the hash that stands in it; what fails is removed and compiled again.
 */
#ifndef KERNELS_CODE_CACHE_H
#define KERNELS_CODE_CACHE_H

#include <assert.h>
#include <stdbool.h>

#include "base/sha256.h"
#include "base/str.h"

struct code_cached {
    char *symbol; /* of the kernel; the caller frees both */
    void *image;
    size_t image_bytes;
};

/* true: found, and as it was stored. */
bool code_cache_load(const char *dir, const uint8_t key[PL_SHA256_BYTES],
                     struct code_cached *out);
/* Best effort: a cache that cannot be written is a slower start, and a line in the log. Then the oldest files go, over bytes_max. */
void code_cache_store(const char *dir, uint64_t bytes_max,
                      const uint8_t key[PL_SHA256_BYTES], const char *symbol,
                      const void *image, size_t image_bytes);
#endif
