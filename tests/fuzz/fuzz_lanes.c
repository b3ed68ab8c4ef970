/*
 * The mailboxes of a client's lane (store/lane.h), which the client writes as it likes, as a worker
 * reads them. The input is words (words.h) for the page of mailboxes: half of them before the
 * worker looks, half while copies are under way. Whatever is there: the device copies into what was
 * opened for a client, out of what is sealed, and nowhere else.
 */
#include <stddef.h>
#include <sys/mman.h>

#include "base/fd.h"
#include "base/log.h"
#include "tests/fuzz/device.h"
#include "tests/fuzz/words.h"
#include "worker/lanes.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define BUFFER_BYTES 8192u
#define TAIL_BYTES   64u /* of a lane's slot, behind the longest copy */

/* Slots of the table, one behind the other in memory; what each byte of theirs is. */
enum { OPENED = FUZZ_OPENED, SEALED = FUZZ_SEALED, OF_A_TASK = 3, BUFFERS = 3 };
enum { NOBODYS = 0x44, FROM_CLIENT = 0x55 };
#define PATTERN(slot) ((uint8_t)((slot)*0x11))

static struct fuzz_device device;
static struct transfer_counters counters;
static struct worker_lanes lanes;
static struct store_lane *lane; /* as the client maps it */
static uint8_t *memory;         /* the device's */

static void lane_begin(void)
{
    struct pl_err err;
    void *mapped;
    int *given = pl_vec_push(&device.shared.lanes);

    PL_CHECK(given != NULL);
    PL_CHECK(pl_memfd_create("lane", STORE_LANE_BYTES, given) == PLASMON_OK);
    PL_CHECK(pl_fd_map(*given, STORE_LANE_BYTES, 1, &mapped) == PLASMON_OK);
    lane        = mapped;
    lane->magic = STORE_LANE_MAGIC;
    PL_CHECK(worker_lanes_take(&lanes, &err) == PLASMON_OK);
}

/* Once: a device, its table, and a lane. */
static void begin(void)
{
    pl_log_set_level(PL_LOG_ERROR);
    fuzz_device_begin(&device, BUFFERS, BUFFER_BYTES, BUFFER_BYTES);
    memory = device_ptr_host(device.device, worker_memory_own(device.memory, 0));
    PL_CHECK(worker_lanes_init(&lanes, device.device, &device.shared, device.memory,
                               &counters) == PLASMON_OK);
    lane_begin();
}

static void memory_fill(void)
{
    memset(memory, NOBODYS, FUZZ_CHUNK_BYTES);
    for (uint32_t slot = OPENED; slot <= BUFFERS; slot++) {
        memset(memory + slot * BUFFER_BYTES, PATTERN(slot), BUFFER_BYTES);
    }
    for (uint32_t i = 0; i < STORE_LANE_SLOTS; i++) {
        memset(store_lane_data(lane, i), FROM_CLIENT, BUFFER_BYTES + TAIL_BYTES);
    }
}

/* --------------------------------------------------------------------------- the client */

/*
 * One word of the mailboxes. Bit 31 of `which`: a request that would be right, changed by that
 * word, is asked.
 */
static void write_word(const struct fuzz_word *word)
{
    struct store_lane_slot *mailbox =
        &lane->slot[(word->which >> 8 & 0xffu) % STORE_LANE_SLOTS];
    uint32_t slot = (word->which >> 16 & 1u) != 0 ? OPENED : SEALED;

    if (word->which >> 31 != 0) {
        mailbox->kind        = slot == OPENED ? STORE_LANE_PUT : STORE_LANE_GET;
        mailbox->buffer_slot = slot;
        mailbox->generation  = FUZZ_GENERATION + slot;
        mailbox->offset      = 0;
        mailbox->bytes       = BUFFER_BYTES;
    }
    ((uint64_t *)(void *)mailbox)[(word->which & 0xffu) % (sizeof(*mailbox) / 8)] =
        word->value;
    if (word->which >> 31 != 0) { /* the word may have been this one */
        __atomic_store_n(&mailbox->asked, store_lane_done(lane, 0) + word->value,
                         __ATOMIC_RELEASE);
    }
}

static void write_words(const uint8_t **io_data, size_t *io_size, size_t count)
{
    struct fuzz_word word;

    while (count-- > 0 && fuzz_word_next(io_data, io_size, &word)) {
        write_word(&word);
    }
}

/* ------------------------------------------------------------------------- what must be */

static void streams_sync(void)
{
    struct pl_err err;

    PL_CHECK(device_stream_sync(lanes.in, &err) == PLASMON_OK);
    PL_CHECK(device_stream_sync(lanes.out, &err) == PLASMON_OK);
}

static void expect_all(const uint8_t *bytes, size_t count, uint8_t right)
{
    for (size_t i = 0; i < count; i++) {
        PL_CHECK(bytes[i] == right);
    }
}

/*
 * A get may have put an opened buffer's bytes nowhere, since it is not sealed; a sealed one's
 * anywhere in a slot.
 */
static void expect_memory(void)
{
    expect_all(memory, BUFFER_BYTES, NOBODYS);
    expect_all(memory + SEALED * BUFFER_BYTES, BUFFER_BYTES, PATTERN(SEALED));
    expect_all(memory + OF_A_TASK * BUFFER_BYTES, BUFFER_BYTES, PATTERN(OF_A_TASK));
    expect_all(memory + (BUFFERS + 1) * BUFFER_BYTES,
               FUZZ_CHUNK_BYTES - (BUFFERS + 1) * BUFFER_BYTES, NOBODYS);
    for (uint32_t i = 0; i < STORE_LANE_SLOTS; i++) {
        const uint8_t *bytes = store_lane_data(lane, i);

        for (size_t at = 0; at < BUFFER_BYTES; at++) {
            PL_CHECK(bytes[at] == FROM_CLIENT || bytes[at] == PATTERN(SEALED));
        }
        expect_all(bytes + BUFFER_BYTES, TAIL_BYTES, FROM_CLIENT);
    }
}

/* As it was, whatever was said: every copy is over, and its word seen. */
static void reset(void)
{
    streams_sync();
    for (uint32_t i = 0; i < STORE_LANE_SLOTS; i++) {
        lane->slot[i].done = UINT64_MAX;
    }
    PL_CHECK(!worker_lanes_busy(&lanes));
    memset(lane->slot, 0, sizeof(lane->slot));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (device.table == NULL) {
        begin();
    }
    memory_fill();
    write_words(&data, &size, size / FUZZ_WORD_BYTES / 2);
    worker_lanes_serve(&lanes);
    write_words(&data, &size, size / FUZZ_WORD_BYTES); /* while copies are under way */
    worker_lanes_serve(&lanes);
    (void)worker_lanes_write(&lanes, OPENED);
    PL_CHECK(!worker_lanes_write(&lanes, SEALED));
    PL_CHECK(!worker_lanes_write(&lanes, OF_A_TASK));
    PL_CHECK(worker_lanes_health(&lanes) == PLASMON_OK);
    streams_sync();
    expect_memory();
    reset();
    return 0;
}
