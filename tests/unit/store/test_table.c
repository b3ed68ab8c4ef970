/* The object table: what readers are told in each state, pins, recovery, and threads hammering one slot. */
#include "store/table.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "store/timeline.h"
#include "tests/harness/test.h"

static const struct pl_shape frame = {.dtype = PL_F32, .ndim = 2, .dim = {3, 5}};

static struct store_table *table_create(void)
{
    void *table = mmap(NULL, sizeof(struct store_table), PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    ASSERT_TRUE(table != MAP_FAILED);
    store_table_init(table, 2, 1, 0, 1ull << 30);
    return table;
}

static struct store_pins *pins_create(void)
{
    void *pins = mmap(NULL, sizeof(struct store_pins), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    ASSERT_TRUE(pins != MAP_FAILED);
    store_pins_init(pins, 1);
    return pins;
}

static plasmon_status_t try_pin(const struct store_table *table, uint32_t slot,
                                uint32_t generation, struct store_pins *pins)
{
    struct store_entry entry;
    uint32_t pin;
    plasmon_status_t status = store_table_pin(table, slot, generation, pins, &entry, &pin);

    if (status == PLASMON_OK) {
        store_table_unpin(pins, pin);
    }
    for (uint32_t i = 0; i < STORE_PIN_MAX; i++) {
        ASSERT_EQ(pins->pin[i], 0); /* a refusal leaves no pin */
    }
    return status;
}

TEST(a_reader_is_told_the_truth_in_every_state)
{
    struct store_table *table = table_create();
    struct store_pins *pins   = pins_create();

    ASSERT_STATUS(try_pin(table, 9, 1, pins), PLASMON_EAGAIN); /* not allocated yet */
    store_table_alloc(table, 9, 1, 4096, &frame, 0, 17);
    ASSERT_STATUS(try_pin(table, 9, 1, pins), PLASMON_EAGAIN);
    store_table_seal(table, 9);
    ASSERT_OK(try_pin(table, 9, 1, pins));
    ASSERT_STATUS(try_pin(table, 9, 2, pins), PLASMON_EAGAIN);
    ASSERT_STATUS(try_pin(table, 9, 0xffffff, pins), PLASMON_ELOST); /* one before 0 */
    store_table_consume(table, 9, 18);
    ASSERT_STATUS(try_pin(table, 9, 1, pins), PLASMON_EAGAIN);
    store_table_seal(table, 9);
    ASSERT_OK(try_pin(table, 9, 1, pins));
    store_table_retire(table, 9);
    ASSERT_STATUS(try_pin(table, 9, 1, pins), PLASMON_ELOST);
    ASSERT_EQ(store_table_sweep(table, NULL, 0), 0); /* it may be needed after a crash */
    store_table_doom(table, 9);
    ASSERT_STATUS(try_pin(table, 9, 1, pins), PLASMON_ELOST);
    store_table_free(table, 9);
    ASSERT_STATUS(try_pin(table, 9, 1, pins), PLASMON_ELOST);
    ASSERT_STATUS(try_pin(table, 9, 2, pins), PLASMON_EAGAIN);
    ASSERT_STATUS(try_pin(table, STORE_TABLE_SLOTS, 1, pins), PLASMON_ELOST);
}

TEST(a_pin_copies_the_entry)
{
    struct store_table *table = table_create();
    struct store_pins *pins   = pins_create();
    struct store_entry entry;
    uint32_t pin;

    store_table_alloc(table, 0, 7, 8192, &frame, STORE_ENTRY_REPLICA, 17);
    store_table_seal(table, 0);
    ASSERT_OK(store_table_pin(table, 0, 7, pins, &entry, &pin));
    ASSERT_EQ(entry.generation, 7);
    ASSERT_EQ(entry.offset, 8192);
    ASSERT_EQ(entry.bytes, 60);
    ASSERT_EQ(entry.seq, 17);
    ASSERT_EQ(entry.dtype, PL_F32);
    ASSERT_EQ(entry.ndim, 2);
    ASSERT_EQ(entry.dim[1], 5);
    ASSERT_EQ(entry.flags, STORE_ENTRY_REPLICA);
    ASSERT_EQ(entry.checksum, store_entry_checksum(&entry));
    ASSERT_EQ(pins->pin[pin], 3ull << 48 | 0ull << 24 | 7);
}

TEST(what_a_page_holds_of_a_device_can_be_told)
{
    static uint64_t bits[STORE_TABLE_SLOTS / 64];
    struct store_table *table = table_create(); /* of device 2 */
    struct store_pins *pins   = pins_create();
    struct store_entry entry;
    uint32_t pin, last;

    store_table_alloc(table, 9, 1, 4096, &frame, 0, 17);
    store_table_seal(table, 9);
    store_table_alloc(table, STORE_TABLE_SLOTS - 1, 1, 8192, &frame, 0, 18);
    store_table_seal(table, STORE_TABLE_SLOTS - 1);
    ASSERT_OK(store_table_pin(table, 9, 1, pins, &entry, &pin));
    ASSERT_OK(store_table_pin(table, STORE_TABLE_SLOTS - 1, 1, pins, &entry, &last));
    store_pins_held(pins, 1, bits);
    ASSERT_EQ(bits[0] | bits[PL_COUNT(bits) - 1], 0);
    store_pins_held(pins, 2, bits);
    ASSERT_EQ(bits[0], 1u << 9);
    ASSERT_EQ(bits[PL_COUNT(bits) - 1], UINT64_C(1) << 63);
    store_table_unpin(pins, pin);
    pins->pin[pin] = UINT64_MAX; /* the page is another process's */
    pins->high     = UINT64_MAX;
    memset(bits, 0, sizeof(bits));
    store_pins_held(pins, 2, bits);
    ASSERT_EQ(bits[0], 0);
    ASSERT_EQ(bits[PL_COUNT(bits) - 1], UINT64_C(1) << 63);
}

TEST(a_corrupt_entry_is_never_given_out)
{
    struct store_table *table = table_create();
    struct store_pins *pins   = pins_create();

    store_table_alloc(table, 4, 1, 0, &frame, 0, 1);
    store_table_seal(table, 4);
    table->entries[4].offset ^= 1u << 20;
    ASSERT_STATUS(try_pin(table, 4, 1, pins), PLASMON_EAGAIN);
}

/*
 * A device that no host has would make pins that no writer looks for, or (one before 0) pins of 0,
 * which are none.
 */
TEST(a_table_that_was_overwritten_gives_no_pins)
{
    struct store_table *table = table_create();
    struct store_pins *pins   = pins_create();

    store_table_alloc(table, 4, 0, 0, &frame, 0, 1);
    store_table_seal(table, 4);
    ASSERT_OK(try_pin(table, 4, 0, pins));
    table->host_device = UINT32_MAX;
    ASSERT_STATUS(try_pin(table, 4, 0, pins), PLASMON_ELOST);
    table->host_device = STORE_HOST_DEVICE_MAX;
    ASSERT_STATUS(try_pin(table, 4, 0, pins), PLASMON_ELOST);
}

TEST(pins_of_any_page_hold_a_slot_and_only_that_slot)
{
    struct store_table *table  = table_create();
    struct store_pins *pages[] = {pins_create(), NULL, pins_create()};
    struct store_entry entry;
    uint32_t pin;

    for (uint32_t slot = 0; slot < 3; slot++) {
        store_table_alloc(table, slot, 1, slot * 4096, &frame, 0, 1);
        store_table_seal(table, slot);
    }
    ASSERT_OK(store_table_pin(table, 1, 1, pages[2], &entry, &pin));
    ASSERT_TRUE(!store_table_pinned(table, 0, pages, 3));
    ASSERT_TRUE(store_table_pinned(table, 1, pages, 3));
    ASSERT_TRUE(!store_table_pinned(table, 2, pages, 3));
    table->host_device = 1; /* the same slot of another device */
    ASSERT_TRUE(!store_table_pinned(table, 1, pages, 3));
    table->host_device = 2;
    store_table_unpin(pages[2], pin);
    ASSERT_TRUE(!store_table_pinned(table, 1, pages, 3));
}

TEST(a_full_page_says_so_and_works_again_after_an_unpin)
{
    struct store_table *table  = table_create();
    struct store_pins *pins    = pins_create();
    struct store_pins *pages[] = {pins};
    struct store_entry entry;
    uint32_t pin;

    store_table_alloc(table, 5, 1, 0, &frame, 0, 1);
    store_table_seal(table, 5);
    for (uint32_t i = 0; i < STORE_PIN_MAX; i++) {
        ASSERT_OK(store_table_pin(table, 5, 1, pins, &entry, &pin));
        ASSERT_EQ(pin, i);
    }
    ASSERT_STATUS(store_table_pin(table, 5, 1, pins, &entry, &pin), PLASMON_ELIMIT);
    store_table_unpin(pins, 500);
    ASSERT_OK(store_table_pin(table, 5, 1, pins, &entry, &pin));
    ASSERT_EQ(pin, 500);
    /* a reader that went mad does not send the scan out of bounds */
    pins->high = UINT64_MAX;
    ASSERT_TRUE(store_table_pinned(table, 5, pages, 1));
    ASSERT_TRUE(!store_table_pinned(table, 6, pages, 1));
}

TEST(a_sweep_frees_doomed_entries_that_nobody_holds)
{
    struct store_table *table  = table_create();
    struct store_pins *pages[] = {pins_create()};
    struct store_entry entry;
    uint32_t pin;

    for (uint32_t slot = 0; slot < 5; slot++) {
        store_table_alloc(table, slot, 1, slot * 4096, &frame, 0, 1);
        if (slot != 4) {
            store_table_seal(table, slot);
        }
    }
    ASSERT_OK(store_table_pin(table, 2, 1, pages[0], &entry, &pin));
    store_table_doom(table, 1);
    store_table_doom(table, 2);
    store_table_consume(table, 3, 9);

    ASSERT_EQ(store_table_sweep(table, pages, 1), 1);
    ASSERT_EQ(table->entries[0].state, STORE_SEALED);
    ASSERT_EQ(table->entries[1].state, STORE_FREE);
    ASSERT_EQ(table->entries[2].state, STORE_DOOMED);
    ASSERT_EQ(table->entries[3].state, STORE_CONSUMED);
    ASSERT_EQ(table->entries[4].state, STORE_WRITING);
    store_pins_init(pages[0], 0); /* the reader died: its page is cleared */
    ASSERT_EQ(store_table_sweep(table, pages, 1), 1);
    ASSERT_EQ(table->entries[2].state, STORE_FREE);
}

TEST(chunks_are_listed_in_order_up_to_the_limit)
{
    struct store_table *table = table_create();

    for (uint32_t i = 0; i < STORE_CHUNK_MAX; i++) {
        struct store_chunk chunk = {.offset = i * 4096ull, .bytes = 4096, .id = i};

        ASSERT_OK(store_table_add_chunk(table, &chunk));
        ASSERT_EQ(table->chunk_count, i + 1);
    }
    ASSERT_EQ(table->chunks[7].offset, 7 * 4096);
    ASSERT_STATUS(store_table_add_chunk(table, &table->chunks[0]), PLASMON_ELIMIT);
}

/* ------------------------------------------------------------------------------ threads */

enum { HAMMER_WORDS = 64, HAMMER_READERS = 2 };

static struct {
    struct store_table *table;
    struct store_pins *pages[HAMMER_READERS];
    /* what the buffer holds: its generation, everywhere */
    _Atomic uint64_t bytes[HAMMER_WORDS];
    _Atomic uint32_t generation;
    _Atomic uint32_t reads;
    _Atomic bool stop;
} hammer;

static void *hammer_read(void *user)
{
    struct store_pins *mine = user;

    while (!hammer.stop) {
        uint32_t generation = hammer.generation;
        struct store_entry entry;
        uint32_t pin;

        if (store_table_pin(hammer.table, 3, generation, mine, &entry, &pin) !=
            PLASMON_OK) {
            sched_yield();
            continue;
        }
        for (uint32_t i = 0; i < HAMMER_WORDS; i++) {
            PL_CHECK(hammer.bytes[i] == generation);
        }
        PL_CHECK(entry.seq == generation);
        store_table_unpin(mine, pin);
        hammer.reads++;
    }
    return NULL;
}

TEST(threads_never_read_a_buffer_that_was_reused)
{
    pthread_t threads[HAMMER_READERS];
    const uint64_t second = 1000000000u, began = pl_now_ns(),
                   deadline = began + 100 * second;

    test_set_timeout(120);
    hammer.table = table_create();
    for (uint32_t i = 0; i < HAMMER_READERS; i++) {
        hammer.pages[i] = pins_create();
        ASSERT_EQ(pthread_create(&threads[i], NULL, hammer_read, hammer.pages[i]), 0);
    }

    for (uint32_t generation = 1;
         hammer.reads < 1000 || (generation < 20000 && pl_now_ns() - began < 10 * second);
         generation++) {
        store_table_alloc(hammer.table, 3, generation, 0, &frame, 0, generation);
        for (uint32_t i = 0; i < HAMMER_WORDS; i++) {
            hammer.bytes[i] = generation;
        }
        hammer.generation = generation;
        store_table_seal(hammer.table, 3);
        if (generation % 8 == 0) {
            sched_yield(); /* a reader comes in although there may be one processor for all */
        }
        store_table_doom(hammer.table, 3);
        while (store_table_pinned(hammer.table, 3, hammer.pages, HAMMER_READERS)) {
            ASSERT_TRUE(pl_now_ns() < deadline);
        }
        store_table_free(hammer.table, 3);
        ASSERT_TRUE(pl_now_ns() < deadline);
    }
    hammer.stop = true;
    for (uint32_t i = 0; i < HAMMER_READERS; i++) {
        ASSERT_EQ(pthread_join(threads[i], NULL), 0);
    }
}

TEST_MAIN()
