/*
 * What every device must do, whatever it is made of: one suite, run on CPU devices
 * (test_device_cpu.c) and on a GPU (tests/gpu/test_device_cuda.c). An executable defines
 * `contract_kind` and links the contract_*.c files, whose tests register themselves.
 *
 * A gate is a word that the host opens: a stream that waits for it stands still until then, so that
 * a test can look at what has not happened yet without sleeping.
 */
#ifndef TESTS_UNIT_DEVICE_CONTRACT_H
#define TESTS_UNIT_DEVICE_CONTRACT_H

#include <stdbool.h>

#include "base/base.h"
#include "device/device.h"
#include "tests/harness/test.h"

extern const enum device_kind contract_kind;

#define CONTRACT_DEVICE_BYTES (4u << 20) /* at `memory`, mapped writable */
#define CONTRACT_HOST_BYTES   (4u << 20) /* at `host`, registered */
#define CONTRACT_WORDS        64u        /* at `words`, registered, zero at first */

struct contract {
    struct device *device;
    struct device_stream *stream;
    struct device_stream *other;
    uint64_t chunk_bytes; /* at least CONTRACT_DEVICE_BYTES */
    int chunk;
    struct device_ptr range; /* two chunks long; `memory` is its first half */
    struct device_ptr memory;
    uint8_t *host;
    uint64_t *words;
};

/*
 * Skips the test when there is no device of that kind. Do not call it before a fork() whose child
 * uses the device.
 */
void contract_open(struct contract *contract);
/*
 * The same with words that the caller shares with another process: `words_fd` is a memfd of
 * contract_words_bytes().
 */
void contract_open_sharing(struct contract *contract, int words_fd);
size_t contract_words_bytes(void);
void contract_close(struct contract *contract);

void contract_gate_open(uint64_t *word, uint64_t value);
uint64_t contract_word_load(const uint64_t *word);

/* Whole transfers between `host` and device memory, and wait for them. */
void contract_upload(struct contract *contract, struct device_ptr dst, const void *src,
                     size_t bytes);
void contract_download(struct contract *contract, void *dst, struct device_ptr src,
                       size_t bytes);
void contract_fill_random(void *bytes, size_t count, uint64_t *io_state);
/* Byte i of the pattern with that seed. */
uint8_t contract_pattern(uint64_t seed, size_t i);

#endif
