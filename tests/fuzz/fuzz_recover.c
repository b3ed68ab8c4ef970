/*
 * What a worker finds when it comes after one that died: its object table and timeline, in which
 * the dead one, or code that ran in it, may have written anything. The input is words (words.h), of
 * which bits 16 to 30 of the number say where: entries of the table (bit 31: with a checksum that
 * is right), the timeline's words, its ring, what is known of launches. The worker begins with what
 * makes sense and gives up the rest, or says that it cannot; no check of its own fails, also when
 * the head frees all that was there.
 */
#include <stddef.h>

#include "base/log.h"
#include "tests/fuzz/words.h"
#include "tests/unit/worker/fake.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define SLOTS    8u /* of the table, that are written */
#define LAUNCHES 8u

enum where { ENTRIES, TIMELINE, RING, KNOWN, WHERE_COUNT };

static struct fake *fake;
/* What every input begins with: the table's first page with entries in it, and the timeline. */
static uint8_t table_before[offsetof(struct store_table, entries)];
static struct store_entry entries_before[SLOTS];
static struct store_timeline timeline_before;

static struct store_table *table_of(void)
{
    return fake->tables[FAKE_US];
}

static struct store_timeline *timeline_of(void)
{
    return fake->timelines[FAKE_US];
}

/* Once: a worker that died with some launches done and some not. */
static void begin(void)
{
    pl_log_set_level(PL_LOG_ERROR);
    fake = fake_create();
    for (uint32_t seq = 1; seq <= LAUNCHES; seq++) {
        fake_fill(fake, seq, seq - 1, 1024);
    }
    fake_finish(fake, 0, 3);
    memcpy(table_before, table_of(), sizeof(table_before));
    memcpy(entries_before, table_of()->entries, sizeof(entries_before));
    timeline_before = *timeline_of();
}

static void restore(void)
{
    memcpy(table_of(), table_before, sizeof(table_before));
    memcpy(table_of()->entries, entries_before, sizeof(entries_before));
    *timeline_of() = timeline_before;
}

static void write_word(const struct fuzz_word *word)
{
    uint32_t index            = word->which & 0xffffu;
    struct store_entry *entry = &table_of()->entries[index / 16 % SLOTS];
    uint64_t *words;

    switch ((enum where)((word->which >> 16 & 0x7fffu) % WHERE_COUNT)) {
    case ENTRIES:
        words             = (uint64_t *)(void *)entry;
        words[index % 16] = word->value;
        if (word->which >> 31 != 0) {
            entry->checksum = store_entry_checksum(entry);
        }
        return;
    case TIMELINE:
        words = (uint64_t *)(void *)timeline_of();
        words[index % (offsetof(struct store_timeline, ring) / sizeof(*words))] =
            word->value;
        return;
    case RING:
        timeline_of()->ring[index % (2 * LAUNCHES)] = word->value;
        return;
    case KNOWN:
    case WHERE_COUNT:
        timeline_of()->known[index % (2 * LAUNCHES)] = (uint8_t)word->value;
        return;
    }
}

/* What a head does that wants nothing of what is there: each buffer is freed, whatever it has become. */
static void free_all(void)
{
    for (uint32_t slot = 0; slot < SLOTS; slot++) {
        Plasmon__V1__WorkerCommand command = PLASMON__V1__WORKER_COMMAND__INIT;
        uint64_t buffer =
            wire_buffer(FAKE_BASE + FAKE_US, slot, table_of()->entries[slot].generation);
        struct pl_err err = {.status = PLASMON_OK};

        command.free   = &buffer;
        command.n_free = 1;
        PL_CHECK(worker_core_command(fake->core, &command, &err) == PLASMON_OK ||
                 err.text[0] != '\0');
    }
    worker_core_advance(fake->core);
    worker_core_complete(fake->core);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_word word;

    if (fake == NULL) {
        begin();
    }
    restore();
    for (unsigned i = 0; i < FUZZ_WORDS_MAX && fuzz_word_next(&data, &size, &word); i++) {
        write_word(&word);
    }
    if (fake_try_restart(fake) == PLASMON_OK) {
        free_all();
    }
    return 0;
}
