/*
 * The object table: the protocol of table.h in code. Every access to shared memory goes through shared_int.h.
 *
 * WHY A PINNED BUFFER IS NOT FREED
 *
 *   reader:  R1 pin := slot      R2 load state == SEALED    (R3 use the bytes)    R4 pin := 0
 *   writer:  W1 state := DOOMED  W2 load pins: slot absent   W3 state := FREE, reuse the bytes
 *
 *   R1, R2, W1, W2 have one order that all processes agree on. If W2 misses the pin, W2 is before
 *   R1, so W1 is before R2, which sees DOOMED (or later) and gives up. `high` is raised before R1
 *   and read before the pins, so a scan that stops short of the pin was before R1 too.
 *
 * WHY THE COPY OF THE ENTRY IS WHOLE
 *
 *   After R2 the fields cannot change while the pin stands, but for `seq` and `checksum` in
 *   store_table_consume(). That sets CONSUMED first; whoever read a new field (acquire) then sees
 *   CONSUMED (release) at the second look at the state.
 *
 * Seeded bugs, for the model: store.pin_after_check (R2 before R1), store.scan_before_doom (W2 before W1),
 * store.pin_unordered (R1 may become visible after R2, as a plain store would).
 */
#include "store/table.h"

#include <assert.h>
#include <string.h>

#include "base/fault.h"
#include "store/shared_int.h"
#include "store/timeline.h"

#define GENERATION_MASK 0xffffffu
#define CHECKED_WORDS   (offsetof(struct store_entry, checksum) / sizeof(uint64_t))

static_assert(offsetof(struct store_entry, checksum) == 104, "whole words are checked");
#ifndef STORE_MODEL
static_assert(offsetof(struct store_table, entries) % 64 == 0, "entries are cache-aligned");
static_assert(sizeof(struct store_pins) == 8192, "two pages");
#endif

void store_table_init(struct store_table *table, uint32_t host_device, uint32_t kind,
                      uint32_t ordinal, uint64_t arena_bytes)
{
    table->host_device = host_device;
    table->kind        = kind;
    table->ordinal     = ordinal;
    table->arena_bytes = arena_bytes;
    shared_store32(&table->chunk_count, 0);
    shared_store64(&table->magic, STORE_TABLE_MAGIC);
}

void store_pins_init(struct store_pins *pins, uint64_t owner_pid)
{
    for (uint32_t i = 0; i < STORE_PIN_MAX; i++) {
        shared_store64(&pins->pin[i], 0);
    }
    shared_store64(&pins->high, 0);
    shared_store64(&pins->owner_pid, owner_pid);
    shared_store64(&pins->magic, STORE_PINS_MAGIC);
}

plasmon_status_t store_table_add_chunk(struct store_table *table,
                                       const struct store_chunk *chunk)
{
    uint32_t count = shared_load32(&table->chunk_count);

    if (count >= STORE_CHUNK_MAX) {
        return PLASMON_ELIMIT;
    }
    table->chunks[count] = *chunk;
    shared_store32(&table->chunk_count, count + 1); /* release: the chunk is right */
    return PLASMON_OK;
}

/* FNV-1a over words, folded; never 0, so that a zeroed entry is not right by chance. */
uint32_t store_entry_checksum(const struct store_entry *entry)
{
    const uint64_t *word = (const uint64_t *)(const void *)entry;
    uint64_t hash        = 14695981039346656037ull;

    for (size_t i = 0; i < CHECKED_WORDS; i++) {
        hash = (hash ^ word[i]) * 1099511628211ull;
        hash ^= hash >> 29;
    }
    return (uint32_t)(hash >> 32 ^ hash) | 1u;
}

/* ------------------------------------------------------------------------------- writer */

static struct store_entry *table_entry(struct store_table *table, uint32_t slot)
{
    PL_CHECK(slot < STORE_TABLE_SLOTS);
    return &table->entries[slot];
}

static uint32_t entry_state(const struct store_entry *entry)
{
    return shared_load32(&entry->state);
}

/* Write all fields but the state. Readers that look meanwhile see a state that is not SEALED. */
static void entry_write(struct store_entry *entry, const struct store_entry *fields)
{
    uint64_t *to         = (uint64_t *)(void *)entry;
    const uint64_t *from = (const uint64_t *)(const void *)fields;

    for (size_t i = 0; i < CHECKED_WORDS; i++) {
        shared_store64(&to[i], from[i]);
    }
    shared_store32(&entry->checksum, store_entry_checksum(fields));
}

/* The fields as they are; the caller decides whether they can be trusted. */
static void entry_read(const struct store_entry *entry, struct store_entry *out_fields)
{
    const uint64_t *from = (const uint64_t *)(const void *)entry;
    uint64_t *to         = (uint64_t *)(void *)out_fields;

    memset(out_fields, 0, sizeof(*out_fields));
    for (size_t i = 0; i < CHECKED_WORDS; i++) {
        to[i] = shared_load64(&from[i]);
    }
    out_fields->checksum = shared_load32(&entry->checksum);
}

void store_table_alloc(struct store_table *table, uint32_t slot, uint32_t generation,
                       uint64_t offset, const struct pl_shape *frame, uint32_t flags,
                       uint64_t seq)
{
    struct store_entry *entry = table_entry(table, slot);
    struct store_entry fields = {
        .generation = generation & GENERATION_MASK,
        .dtype      = frame->dtype,
        .offset     = offset,
        .bytes      = pl_shape_bytes(frame),
        .seq        = seq,
        .ndim       = frame->ndim,
        .flags      = flags,
    };

    PL_CHECK(entry_state(entry) == STORE_FREE); /* else two buffers have one name */
    assert(frame->ndim <= PL_DIM_MAX);
    memcpy(fields.dim, frame->dim, frame->ndim * sizeof(frame->dim[0]));

    if (slot >= shared_load32(&table->slot_high)) {
        shared_store32(&table->slot_high,
                       slot + 1); /* before the entry, so that recovery finds it */
    }
    entry_write(entry, &fields);
    shared_store32(&entry->state, STORE_WRITING);
}

void store_table_seal(struct store_table *table, uint32_t slot)
{
    struct store_entry *entry = table_entry(table, slot);
    uint32_t state            = entry_state(entry);
    struct store_entry fields;

    PL_CHECK(state == STORE_WRITING || state == STORE_CONSUMED);
    entry_read(entry, &fields); /* a crash inside consume() may have left an old checksum */
    shared_store32(&entry->checksum, store_entry_checksum(&fields));
    shared_store32(&entry->state, STORE_SEALED); /* release: bytes and fields are right */
}

void store_table_consume(struct store_table *table, uint32_t slot, uint64_t seq)
{
    struct store_entry *entry = table_entry(table, slot);
    struct store_entry fields;

    PL_CHECK(entry_state(entry) != STORE_FREE && entry_state(entry) != STORE_DOOMED &&
             entry_state(entry) != STORE_RETIRED);
    /* First, and visible before the caller scans the pins. */
    shared_store_sc32(&entry->state, STORE_CONSUMED);
    entry_read(entry, &fields);
    fields.seq = seq;
    shared_store64(&entry->seq, seq);
    shared_store32(&entry->checksum, store_entry_checksum(&fields));
}

void store_table_doom(struct store_table *table, uint32_t slot)
{
    struct store_entry *entry = table_entry(table, slot);

    PL_CHECK(entry_state(entry) != STORE_FREE);
    if (pl_bug("store.scan_before_doom")) {
        return; /* store_table_pinned() does it, too late */
    }
    shared_store_sc32(&entry->state,
                      STORE_DOOMED); /* visible before the scan that follows */
}

void store_table_retire(struct store_table *table, uint32_t slot)
{
    struct store_entry *entry = table_entry(table, slot);

    PL_CHECK(entry_state(entry) != STORE_FREE && entry_state(entry) != STORE_DOOMED);
    shared_store_sc32(&entry->state,
                      STORE_RETIRED); /* visible before the scan that follows */
}

/*
 * Does this page hold a pin whose upper part is `key`? The generation does not matter: a late pin
 * of an old one only delays.
 */
static bool page_holds(const struct store_pins *page, uint64_t key)
{
    uint64_t high = shared_load64(&page->high); /* before the pins: see above */

    high = pl_min_u64(high, STORE_PIN_MAX); /* the page belongs to another process */
    for (uint64_t i = 0; i < high; i++) {
        if (shared_load64(&page->pin[i]) >> 24 == key) {
            return true;
        }
    }
    return false;
}

void store_pins_held(const struct store_pins *page, uint32_t host_device, uint64_t *io_bits)
{
    uint64_t high = pl_min_u64(shared_load64(&page->high), STORE_PIN_MAX);

    for (uint64_t i = 0; i < high; i++) {
        uint64_t pin  = shared_load64(&page->pin[i]);
        uint64_t slot = pin >> 24 & 0xffffffu;

        if (pin >> 48 == host_device + 1ull && slot < STORE_TABLE_SLOTS) {
            io_bits[slot / 64] |= UINT64_C(1) << slot % 64;
        }
    }
}

static uint64_t pin_key(uint32_t host_device, uint32_t slot)
{
    return (uint64_t)(host_device + 1) << 24 | slot;
}

bool store_table_pinned(struct store_table *table, uint32_t slot,
                        struct store_pins *const *pages, uint32_t page_count)
{
    uint64_t key = pin_key(table->host_device, slot);
    bool held    = false;

    for (uint32_t i = 0; i < page_count && !held; i++) {
        held = pages[i] != NULL && page_holds(pages[i], key);
    }
    if (pl_bug("store.scan_before_doom") && !held &&
        entry_state(table_entry(table, slot)) != STORE_CONSUMED &&
        entry_state(table_entry(table, slot)) != STORE_RETIRED) {
        shared_store_sc32(&table_entry(table, slot)->state, STORE_DOOMED);
    }
    return held;
}

void store_table_free(struct store_table *table, uint32_t slot)
{
    struct store_entry *entry = table_entry(table, slot);
    struct store_entry fields;

    PL_CHECK(entry_state(entry) == STORE_DOOMED); /* else readers were not kept out */
    shared_store32(&entry->state, STORE_FREE);

    entry_read(entry, &fields);
    /* the next that may come */
    fields.generation = (fields.generation + 1) & GENERATION_MASK;
    shared_store64(entry, *(const uint64_t *)(const void *)&fields);
    shared_store32(&entry->checksum, store_entry_checksum(&fields));
}

uint32_t store_table_sweep(struct store_table *table, struct store_pins *const *pages,
                           uint32_t page_count)
{
    uint32_t freed = 0;
    uint32_t end =
        (uint32_t)pl_min_u64(shared_load32(&table->slot_high), STORE_TABLE_SLOTS);

    for (uint32_t slot = 0; slot < end; slot++) {
        if (entry_state(&table->entries[slot]) == STORE_DOOMED &&
            !store_table_pinned(table, slot, pages, page_count)) {
            store_table_free(table, slot);
            freed++;
        }
    }
    return freed;
}

/* ------------------------------------------------------------------------------- reader */

static void high_raise(struct store_pins *mine, uint64_t wanted)
{
    uint64_t high = shared_load64(&mine->high);

    while (high < wanted && !shared_swap64(&mine->high, high, wanted)) {
        high = shared_load64(&mine->high); /* another thread of ours raised it */
    }
}

/* Take the lowest unused pin, so that `high` stays low and scans short. */
static plasmon_status_t pin_set(struct store_pins *mine, uint64_t value, uint32_t *out_pin)
{
    for (uint32_t i = 0; i < STORE_PIN_MAX; i++) {
        if (shared_load64(&mine->pin[i]) != 0) {
            continue;
        }
        high_raise(mine, i + 1);
        if (pl_bug("store.pin_unordered")) {
            shared_store64(&mine->pin[i], value);
            *out_pin = i;
            return PLASMON_OK;
        }
        if (shared_swap64(&mine->pin[i], 0, value)) { /* visible before the state is read */
            *out_pin = i;
            return PLASMON_OK;
        }
    }
    return PLASMON_ELIMIT;
}

/* The entry is not ours to read: is it gone, or not there yet? */
static plasmon_status_t entry_refusal(uint32_t state, uint32_t there, uint32_t wanted)
{
    uint32_t ahead = (there - wanted) & GENERATION_MASK;

    if (ahead == 0) {
        return state == STORE_DOOMED || state == STORE_RETIRED ? PLASMON_ELOST
                                                               : PLASMON_EAGAIN;
    }
    return ahead <= GENERATION_MASK / 2 ? PLASMON_ELOST : PLASMON_EAGAIN;
}

static plasmon_status_t entry_examine(const struct store_entry *entry, uint32_t generation,
                                      struct store_entry *out_entry)
{
    uint32_t wanted = generation & GENERATION_MASK;
    uint32_t state  = entry_state(entry);

    entry_read(entry, out_entry);
    if (state != STORE_SEALED || out_entry->generation != wanted) {
        return entry_refusal(state, out_entry->generation, wanted);
    }
    if (entry_state(entry) != STORE_SEALED ||
        out_entry->checksum != store_entry_checksum(out_entry)) {
        return PLASMON_EAGAIN; /* being consumed or doomed just now: the next look tells which */
    }
    out_entry->state = STORE_SEALED;
    return PLASMON_OK;
}

static plasmon_status_t entry_examine_writing(const struct store_entry *entry,
                                              uint32_t generation,
                                              struct store_entry *out_entry)
{
    uint32_t state = entry_state(entry);

    entry_read(entry, out_entry);
    if (state != STORE_WRITING || entry_state(entry) != STORE_WRITING ||
        out_entry->generation != (generation & GENERATION_MASK) ||
        out_entry->checksum != store_entry_checksum(out_entry) ||
        (out_entry->flags & STORE_ENTRY_CLIENT_WRITES) == 0) {
        return PLASMON_ELOST;
    }
    out_entry->state = STORE_WRITING;
    return PLASMON_OK;
}

typedef plasmon_status_t (*examine_fn)(const struct store_entry *entry, uint32_t generation,
                                       struct store_entry *out_entry);

/* Pin, then look: the order that the writer relies on. */
static plasmon_status_t pin_examined(const struct store_table *table, uint32_t slot,
                                     uint32_t generation, struct store_pins *mine,
                                     examine_fn examine, struct store_entry *out_entry,
                                     uint32_t *out_pin)
{
    /* Once: the table is another process's, and a pin of 0 would be none. */
    uint32_t host_device = *(const volatile uint32_t *)&table->host_device;
    plasmon_status_t status;
    uint64_t value;
    uint32_t pin;

    if (slot >= STORE_TABLE_SLOTS || host_device >= STORE_HOST_DEVICE_MAX) {
        return PLASMON_ELOST; /* from the wire; a table that was overwritten */
    }
    value = pin_key(host_device, slot) << 24 | (generation & GENERATION_MASK);
    if (examine == entry_examine && pl_bug("store.pin_after_check")) {
        status = examine(&table->entries[slot], generation, out_entry);
        return status == PLASMON_OK ? pin_set(mine, value, out_pin) : status;
    }
    status = pin_set(mine, value, &pin);
    if (status != PLASMON_OK) {
        return status;
    }
    status = examine(&table->entries[slot], generation, out_entry);
    if (status != PLASMON_OK) {
        store_table_unpin(mine, pin);
        return status;
    }
    *out_pin = pin;
    return PLASMON_OK;
}

plasmon_status_t store_table_pin(const struct store_table *table, uint32_t slot,
                                 uint32_t generation, struct store_pins *mine,
                                 struct store_entry *out_entry, uint32_t *out_pin)
{
    return pin_examined(table, slot, generation, mine, entry_examine, out_entry, out_pin);
}

plasmon_status_t store_table_pin_writing(const struct store_table *table, uint32_t slot,
                                         uint32_t generation, struct store_pins *mine,
                                         struct store_entry *out_entry, uint32_t *out_pin)
{
    return pin_examined(table, slot, generation, mine, entry_examine_writing, out_entry,
                        out_pin);
}

void store_table_unpin(struct store_pins *mine, uint32_t pin)
{
    assert(pin < STORE_PIN_MAX);
    assert(shared_load64(&mine->pin[pin]) != 0);
    shared_store64(&mine->pin[pin], 0); /* release: the copy is done before this is seen */
}
