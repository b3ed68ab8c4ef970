/*
 * The mailboxes of a client's lane (store/lane.h), which the client writes as it likes, as a worker reads them. The input is words (words.h) for the page of
 * mailboxes: half of them before the worker looks, half while copies are under way. Whatever is there: the device copies into what was
 * opened for a client, out of what is sealed, and nowhere else.
 */
#include <stddef.h>
#include <sys/mman.h>

#include "base/fd.h"
#include "base/log.h"
#include "tests/fuzz/words.h"
#include "worker/lanes.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHUNK_BYTES  65536u
#define BUFFER_BYTES 8192u
#define GENERATION   10u /* of slot 1, and so on */
#define TAIL_BYTES   64u /* of a lane's slot, behind the longest copy */

/* Slots of the table, one behind the other in memory; what each byte of theirs is. */
enum { OPENED = 1, SEALED = 2, OF_A_TASK = 3, BUFFERS = 3 };
enum { NOBODYS = 0x44, FROM_CLIENT = 0x55 };
#define PATTERN(slot) ((uint8_t)((slot)*0x11))

static struct store_table *table;
static struct worker_shared shared;
static struct transfer_counters counters;
static struct worker_lanes lanes;
static struct store_lane *lane; /* as the client maps it */
static uint8_t *memory;         /* the device's */

static void table_begin(void)
{
    const struct pl_shape frame = {.dtype = PL_U8, .ndim = 1, .dim = {BUFFER_BYTES}};

    table = mmap(NULL, sizeof(*table), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                 -1, 0);
    PL_CHECK(table != MAP_FAILED);
    store_table_init(table, 0, DEVICE_CPU, 0, UINT64_C(1) << 30);
    for (uint32_t slot = OPENED; slot <= BUFFERS; slot++) {
        store_table_alloc(table, slot, GENERATION + slot, slot * BUFFER_BYTES, &frame,
                          slot == OPENED ? STORE_ENTRY_CLIENT_WRITES : 0, 1);
    }
    store_table_seal(table, SEALED);
}

static void lane_begin(void)
{
    struct pl_err err;
    void *mapped;
    int *given = pl_vec_push(&shared.lanes);

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
    struct device_config config = {.bytes_max = CHUNK_BYTES};
    struct worker_memory *arena;
    struct device *device;
    struct pl_err err;
    int fd;

    pl_log_set_level(PL_LOG_ERROR);
    table_begin();
    worker_shared_init(&shared, -1);
    shared.tables[0]         = table;
    shared.host_device_count = 1;
    PL_CHECK(device_open(DEVICE_CPU, 0, &config, &device, &err) == PLASMON_OK);
    PL_CHECK(worker_memory_create(device, &shared, 0, &arena, &err) == PLASMON_OK);
    PL_CHECK(device_chunk_create(device, CHUNK_BYTES, &fd) == PLASMON_OK);
    PL_CHECK(device_chunk_map(device, fd, CHUNK_BYTES, 0, true,
                              worker_memory_own(arena, 0)) == PLASMON_OK);
    memory = device_ptr_host(device, worker_memory_own(arena, 0));
    pl_fd_close(&fd);
    PL_CHECK(worker_lanes_init(&lanes, device, &shared, arena, &counters) == PLASMON_OK);
    lane_begin();
}

static void memory_fill(void)
{
    memset(memory, NOBODYS, CHUNK_BYTES);
    for (uint32_t slot = OPENED; slot <= BUFFERS; slot++) {
        memset(memory + slot * BUFFER_BYTES, PATTERN(slot), BUFFER_BYTES);
    }
    for (uint32_t i = 0; i < STORE_LANE_SLOTS; i++) {
        memset(store_lane_data(lane, i), FROM_CLIENT, BUFFER_BYTES + TAIL_BYTES);
    }
}

/* ------------------------------------------------------------------------------------------ the client */

/* One word of the mailboxes. Bit 31 of `which`: a request that would be right, changed by that word, is asked. */
static void write_word(const struct fuzz_word *word)
{
    struct store_lane_slot *mailbox =
        &lane->slot[(word->which >> 8 & 0xffu) % STORE_LANE_SLOTS];
    uint32_t slot = (word->which >> 16 & 1u) != 0 ? OPENED : SEALED;

    if (word->which >> 31 != 0) {
        mailbox->kind        = slot == OPENED ? STORE_LANE_PUT : STORE_LANE_GET;
        mailbox->buffer_slot = slot;
        mailbox->generation  = GENERATION + slot;
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

/* ------------------------------------------------------------------------------------------ what must be */

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

/* A get may have put an opened buffer's bytes nowhere, since it is not sealed; a sealed one's anywhere in a slot. */
static void expect_memory(void)
{
    expect_all(memory, BUFFER_BYTES, NOBODYS);
    expect_all(memory + SEALED * BUFFER_BYTES, BUFFER_BYTES, PATTERN(SEALED));
    expect_all(memory + OF_A_TASK * BUFFER_BYTES, BUFFER_BYTES, PATTERN(OF_A_TASK));
    expect_all(memory + (BUFFERS + 1) * BUFFER_BYTES,
               CHUNK_BYTES - (BUFFERS + 1) * BUFFER_BYTES, NOBODYS);
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
    if (table == NULL) {
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
