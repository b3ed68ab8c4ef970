/*
 * Memory that another process may have written: an object table and its chunks, a timeline, pages
 * of pins, as a client, another worker and the store look at them. The input is words (words.h), of
 * which the upper half of the number says where: the table's head, its chunks, the first entries,
 * the timeline, a reader's page. An entry's checksum is made right when bit 31 is set, or nothing
 * behind it would be reached. Whatever is there: what is handed out lies inside of what is mapped,
 * and every pin that is taken can be given back.
 */
#include <stdatomic.h>
#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "client/chunks.h"
#include "store/timeline.h"
#include "tests/fuzz/words.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define SLOTS       8u /* of the table, that are written and looked at */
#define CHUNK_BYTES (1u << 16)
#define ARENA_BYTES (1u << 20)
#define SEQS        4u

enum where { HEAD, CHUNKS, ENTRIES, TIMELINE, RING, PINS, WHERE_COUNT };

static struct store_table *table;
static struct store_timeline *timeline;
static struct store_pins *pages[2]; /* ours, and another process's */
static struct fuzz_words words;
static int chunk_fd = -1;

static void *pages_of(size_t bytes)
{
    void *memory =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    PL_CHECK(memory != MAP_FAILED);
    return memory;
}

/* Once: a device with two chunks and a few buffers, which every input begins with. */
static void begin(void)
{
    const struct pl_shape frame = {.dtype = PL_U8, .ndim = 1, .dim = {4096}};

    pl_log_set_level(PL_LOG_ERROR);
    table    = pages_of(sizeof(*table));
    timeline = pages_of(sizeof(*timeline));
    store_table_init(table, 0, 1, 0, ARENA_BYTES);
    store_timeline_init(timeline, 0);
    for (uint32_t i = 0; i < 2; i++) {
        struct store_chunk chunk = {.offset          = (uint64_t)i * CHUNK_BYTES,
                                    .bytes           = CHUNK_BYTES,
                                    .client_writable = i == 1,
                                    .id              = i};

        pages[i] = pages_of(sizeof(*pages[i]));
        store_pins_init(pages[i], i + 1);
        PL_CHECK(store_table_add_chunk(table, &chunk) == PLASMON_OK);
    }
    for (uint32_t slot = 0; slot < SLOTS; slot++) {
        store_table_alloc(table, slot, 1, (uint64_t)slot * 16384, &frame,
                          slot % 2 == 1 ? STORE_ENTRY_CLIENT_WRITES : 0, 1);
        if (slot % 4 == 0) {
            store_table_seal(table, slot);
        }
    }
    for (uint64_t seq = 1; seq <= SEQS; seq++) {
        store_timeline_publish(timeline, seq, (uint32_t)seq % STORE_STREAM_MAX);
    }
    PL_CHECK(pl_memfd_create("chunk", CHUNK_BYTES, &chunk_fd) == PLASMON_OK);
}

static void entry_write(uint32_t index, uint64_t value, bool right)
{
    struct store_entry *entry = &table->entries[index / 16 % SLOTS];

    fuzz_words_write(&words, entry, index % 16, value);
    if (right) { /* the word behind those that are checked has the checksum and the state */
        uint64_t state = atomic_load(&entry->state);

        fuzz_words_write(&words, entry, offsetof(struct store_entry, checksum) / 8,
                         store_entry_checksum(entry) | state << 32);
    }
}

static void write_word(const struct fuzz_word *word)
{
    uint32_t index = word->which & 0xffffu;

    switch ((enum where)((word->which >> 16 & 0x7fffu) % WHERE_COUNT)) {
    case HEAD:
        fuzz_words_write(&words, table, index % (offsetof(struct store_table, chunks) / 8),
                         word->value);
        return;
    case CHUNKS:
        fuzz_words_write(&words, table->chunks, index % 12, word->value);
        return;
    case ENTRIES:
        entry_write(index, word->value, word->which >> 31 != 0);
        return;
    case TIMELINE:
        fuzz_words_write(&words, timeline,
                         index % (offsetof(struct store_timeline, ring) / 8), word->value);
        return;
    case RING:
        fuzz_words_write(&words, timeline->ring, index % 8, word->value);
        return;
    case PINS:
    case WHERE_COUNT:
        fuzz_words_write(&words, pages[1], index % (sizeof(*pages[1]) / 8), word->value);
        return;
    }
}

static void write_words(const uint8_t **io_data, size_t *io_size, size_t count)
{
    struct fuzz_word word;

    while (count-- > 0 && words.count + 2 <= FUZZ_WORDS_MAX &&
           fuzz_word_next(io_data, io_size, &word)) {
        write_word(&word);
    }
}

/* ---------------------------------------------------------------------------- who looks */

/* What a store would answer to a client that asks for this chunk. */
static plasmon_status_t chunk_answer(struct chunks *chunks, uint32_t id)
{
    const struct store_chunk *listed = &table->chunks[id % STORE_CHUNK_MAX];
    struct store_control message     = {.chunk_id        = id,
                                        .offset          = listed->offset,
                                        .bytes           = listed->bytes,
                                        .client_writable = listed->client_writable};
    struct pl_err err                = {.status = PLASMON_OK};
    plasmon_status_t status;

    if (message.bytes != CHUNK_BYTES) {
        return PLASMON_EMALFORMED; /* the store has only chunks that it made: of that size */
    }
    status = chunks_map(chunks, &message, chunk_fd, &err);
    PL_CHECK(status == PLASMON_OK || err.text[0] != '\0');
    return status;
}

static void buffer_look(struct chunks *chunks, const struct store_entry *entry,
                        bool must_write)
{
    struct pl_err err       = {.status = PLASMON_OK};
    plasmon_status_t status = PLASMON_EAGAIN;
    void *data;

    for (unsigned i = 0; status == PLASMON_EAGAIN && i < 4; i++) {
        uint32_t id;

        status = chunks_locate(chunks, entry->offset, entry->bytes, must_write, &data, &id,
                               &err);
        if (status == PLASMON_EAGAIN && chunk_answer(chunks, id) != PLASMON_OK) {
            return;
        }
    }
    if (status == PLASMON_OK && entry->bytes > 0) { /* all of it can be touched */
        volatile uint8_t *bytes = data;

        PL_CHECK(entry->bytes <= ARENA_BYTES);
        (void)bytes[0];
        (void)bytes[entry->bytes - 1];
    }
    PL_CHECK(status == PLASMON_OK || status == PLASMON_EAGAIN || err.text[0] != '\0');
}

/* As client/shared.c and worker/bulk_clients.c. */
static void slot_look(struct chunks *chunks, uint32_t slot, bool writing)
{
    struct store_entry entry;
    uint32_t pin;

    for (uint32_t generation = 0; generation < 3; generation++) {
        plasmon_status_t status = (writing ? store_table_pin_writing : store_table_pin)(
            table, slot, generation, pages[0], &entry, &pin);

        if (status == PLASMON_OK) {
            PL_CHECK(entry.generation == generation);
            PL_CHECK(entry.checksum == store_entry_checksum(&entry));
            if (chunks != NULL) {
                buffer_look(chunks, &entry, writing);
            }
            store_table_unpin(pages[0], pin);
        }
    }
}

static void client_look(struct chunks *chunks)
{
    for (uint32_t slot = 0; slot < SLOTS + 1; slot++) {
        slot_look(chunks, slot, false);
        slot_look(chunks, slot, true);
    }
    slot_look(chunks, STORE_TABLE_SLOTS, false);
}

/* As a worker that waits for another one's launches. */
static void worker_look(void)
{
    const uint8_t *first = (const uint8_t *)timeline->stream;
    const uint8_t *end   = first + sizeof(timeline->stream);

    for (uint64_t seq = 0; seq <= SEQS + 1; seq++) {
        uint64_t *word, value;

        if (store_timeline_point(timeline, seq, &word, &value) == STORE_POINT_ENQUEUED) {
            PL_CHECK((uint8_t *)word >= first && (uint8_t *)(word + 1) <= end);
            PL_CHECK(value == seq);
        }
        (void)store_timeline_failed(timeline, seq);
        (void)store_timeline_known(timeline, seq);
    }
    (void)store_timeline_is_released(timeline);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct chunks *chunks = NULL;
    struct pl_err err     = {.status = PLASMON_OK};
    if (table == NULL) {
        begin();
    }
    write_words(&data, &size, size / FUZZ_WORD_BYTES / 2);
    /* The arena's bytes are address space, and more of it than there is may be said. */
    if (chunks_create(table, &chunks, &err) != PLASMON_OK) {
        PL_CHECK(err.text[0] != '\0');
        chunks = NULL;
    }
    client_look(chunks);
    write_words(&data, &size, size / FUZZ_WORD_BYTES); /* while they are in use */
    client_look(chunks);
    worker_look();
    chunks_destroy(chunks);
    for (uint32_t i = 0; i < STORE_PIN_MAX; i++) {
        PL_CHECK(atomic_load(&pages[0]->pin[i]) == 0);
    }
    for (uint32_t slot = 0; slot < SLOTS; slot++) {
        (void)store_table_pinned(table, slot, pages, 2);
    }
    fuzz_words_undo(&words);
    return 0;
}
