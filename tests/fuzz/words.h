/*
 * Inputs that are words for memory that several processes share: [which word: 4 bytes][value: 8
 * bytes], little-endian, one after the other.
 */
#ifndef TESTS_FUZZ_WORDS_H
#define TESTS_FUZZ_WORDS_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/base.h"

#define FUZZ_WORD_BYTES 12u
#define FUZZ_WORDS_MAX  64u

struct fuzz_word {
    uint32_t which;
    uint64_t value;
};

/* false: none is left. */
static inline bool fuzz_word_next(const uint8_t **io_data, size_t *io_size,
                                  struct fuzz_word *out)
{
    if (*io_size < FUZZ_WORD_BYTES) {
        return false;
    }
    memcpy(&out->which, *io_data, sizeof(out->which));
    memcpy(&out->value, *io_data + sizeof(out->which), sizeof(out->value));
    *io_data += FUZZ_WORD_BYTES;
    *io_size -= FUZZ_WORD_BYTES;
    return true;
}

/* Words that were written, and what was there before. */
struct fuzz_words {
    uint64_t *place[FUZZ_WORDS_MAX];
    uint64_t before[FUZZ_WORDS_MAX];
    uint32_t count;
};

static inline void fuzz_words_write(struct fuzz_words *words, void *memory, size_t index,
                                    uint64_t value)
{
    uint64_t *place = (uint64_t *)memory + index;

    if (words->count < FUZZ_WORDS_MAX) {
        words->place[words->count]    = place;
        words->before[words->count++] = *place;
        *place                        = value;
    }
}

/* The last one first: a word may have been written twice. */
static inline void fuzz_words_undo(struct fuzz_words *words)
{
    while (words->count > 0) {
        words->count--;
        *words->place[words->count] = words->before[words->count];
    }
}

#endif
