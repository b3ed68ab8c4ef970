/*
 * Compiled code on disk, by a hash of everything that it depends on. Several workers, and other
 * programs of the same user, use one folder at the same time: files appear whole (written aside,
 * then renamed) and are never changed.
 *
 * What is read is run on the device. So a file counts only if it belongs to this user and nobody
 * else may write it, and if its content, with the key that it is named for, has the hash that
 * stands in it; what fails is removed and compiled again.
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
/*
 * Best effort: a cache that cannot be written is a slower start, and a line in the log. Then the
 * oldest files go, over bytes_max.
 */
void code_cache_store(const char *dir, uint64_t bytes_max,
                      const uint8_t key[PL_SHA256_BYTES], const char *symbol,
                      const void *image, size_t image_bytes);
void code_cache_drop(const char *dir, const uint8_t key[PL_SHA256_BYTES]);

/*
 * The turn to compile what has this name: one process of those that use the folder has it, until it
 * ends it or dies (or, it was given to another, that does). -1: there can be no turns here, or
 * somebody else has had it for wait_ms. Who has it looks first whether it is there by now.
 */
int code_cache_turn(const char *dir, const uint8_t key[PL_SHA256_BYTES], uint32_t wait_ms);
void code_cache_turn_end(const char *dir, const uint8_t key[PL_SHA256_BYTES],
                         int *io_fd); /* -1 is fine */
#endif
