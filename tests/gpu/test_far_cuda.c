/*
 * Streams whose copies the device makes that the bytes come from (device/cuda/far.c): that they are
 * one stream wherever they are, that the other device reaches what it must, and who copies when
 * that one cannot be had. On GPUs, two or more, and with the driver that has none
 * (tests/harness/gpu).
 */
#include "tests/unit/device/contract.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "tests/harness/gpu/fake_counts.h"

const enum device_kind contract_kind = DEVICE_CUDA;

/* an engine's, and beside its stream (device/cuda/copy.c) */
#define BLOCK       (UINT64_C(2) << 20)
#define BLOCKS      4u
#define CHUNK       (BLOCK * BLOCKS)
#define WAIT_NS     (UINT64_C(20) * 1000 * 1000 * 1000)
#define FAR_STREAMS 2u
#define STREAMS     3u /* the last one is for nothing but work of this device */
#define STEPS       60u
#define ROUNDS      12u
#define OTHERS_MAX  3u

/* Device 0, which reads, and memory of devices 1 to OTHERS_MAX, as far as there are, that is mapped there. */
struct far {
    struct contract c;
    uint32_t others;
    struct device *other[OTHERS_MAX];
    struct device_ptr theirs[OTHERS_MAX]; /* for device 0 */
    struct device_ptr own;
    struct device_stream *streams[STREAMS];
    uint8_t *bytes; /* CHUNK of the host, registered */
};

/* A chunk of `owner`, for `reader`. Takes fd. */
static struct device_ptr map_chunk(struct device *reader, struct device *owner, int fd,
                                   bool writable)
{
    struct device_ptr at;

    ASSERT_OK(device_range_reserve(reader, CHUNK, &at));
    ASSERT_OK(
        device_chunk_map(reader, fd, CHUNK, device_get_info(owner)->ordinal, writable, at));
    ASSERT_EQ(close(fd), 0);
    return at;
}

static struct device_ptr map_own(struct device *device)
{
    int fd;

    ASSERT_OK(device_chunk_create(device, CHUNK, &fd));
    return map_chunk(device, device, fd, true);
}

/*
 * A chunk of that device whose block i is 100 times its number and i, written through a mapping of
 * its own; a descriptor, owned.
 */
static int theirs_make(struct device *owner)
{
    struct device_stream *stream;
    struct device_ptr at;
    int fd;

    ASSERT_OK(device_chunk_create(owner, CHUNK, &fd));
    ASSERT_OK(device_range_reserve(owner, CHUNK, &at));
    ASSERT_OK(
        device_chunk_map(owner, fd, CHUNK, device_get_info(owner)->ordinal, true, at));
    ASSERT_OK(device_stream_create(owner, 0, &stream));
    for (uint64_t i = 0; i < BLOCKS; i++) {
        ASSERT_OK(device_fill8(stream, device_ptr_add(at, i * BLOCK),
                               (uint8_t)(100 * device_get_info(owner)->ordinal + i),
                               BLOCK));
    }
    ASSERT_OK(device_stream_sync(stream, NULL));
    device_stream_destroy(stream);
    device_chunk_unmap(owner, at, CHUNK);
    device_range_release(owner, at, CHUNK);
    return fd;
}

static void far_begin(struct far *far)
{
    struct pl_err err = {.status = PLASMON_OK};

    memset(far, 0, sizeof(*far));
    ASSERT_EQ(setenv("FAKE_CUDA_STALLS", "1", 1), 0);
    if (device_count(DEVICE_CUDA, &err) < 2) {
        test_skip("fewer than two GPUs");
    }
    contract_open(&far->c);
    far->others = (uint32_t)pl_min_u64(OTHERS_MAX, device_count(DEVICE_CUDA, &err) - 1);
    for (uint32_t i = 0; i < far->others; i++) {
        const struct device_config config = {.cublas_later = true};

        if (!device_can_peer(far->c.device, i + 1)) {
            test_skip("the GPUs do not reach each other");
        }
        ASSERT_OK(device_open(DEVICE_CUDA, i + 1, &config, &far->other[i], &err));
        far->theirs[i] =
            map_chunk(far->c.device, far->other[i], theirs_make(far->other[i]), false);
    }
    far->own = map_own(far->c.device);
    for (uint32_t i = 0; i < STREAMS; i++) {
        ASSERT_OK(device_stream_create(
            far->c.device, i < FAR_STREAMS ? DEVICE_STREAM_COPIES : 0, &far->streams[i]));
    }
    ASSERT_EQ(posix_memalign((void **)&far->bytes, 4096, CHUNK), 0);
    ASSERT_OK(device_host_register(far->c.device, far->bytes, CHUNK));
}

static void unmap(struct far *far, struct device_ptr at)
{
    device_chunk_unmap(far->c.device, at, CHUNK);
    device_range_release(far->c.device, at, CHUNK);
}

static void far_end(struct far *far)
{
    for (uint32_t i = 0; i < STREAMS; i++) {
        device_stream_destroy(far->streams[i]);
    }
    device_host_unregister(far->c.device, far->bytes);
    free(far->bytes);
    unmap(far, far->own);
    for (uint32_t i = 0; i < far->others; i++) {
        unmap(far, far->theirs[i]);
        device_close(far->other[i]);
    }
    contract_close(&far->c);
}

/* What has become of opening that device's. */
static enum device_engines engines_opened(struct device *device, uint32_t ordinal)
{
    const struct timespec nap = {.tv_nsec = 1000000};
    uint64_t until_ns         = pl_now_ns() + WAIT_NS;

    device_engines_open(device, ordinal);
    while (device_engines_state(device, ordinal) == DEVICE_ENGINES_OPENING) {
        ASSERT_TRUE(pl_now_ns() < until_ns);
        (void)nanosleep(&nap, NULL);
    }
    return device_engines_state(device, ordinal);
}

static void far_await(struct device *device, struct device_stream *stream, uint32_t ordinal)
{
    ASSERT_EQ(engines_opened(device, ordinal), DEVICE_ENGINES_OPEN);
    ASSERT_OK(device_stream_source(stream, ordinal));
    ASSERT_EQ(device_stream_engines(stream), ordinal);
}

static void far_await_all(struct far *far)
{
    for (uint32_t i = 0; i < far->others; i++) {
        far_await(far->c.device, far->streams[0], i + 1);
    }
}

static void own_read(struct far *far)
{
    ASSERT_OK(device_copy(far->c.other, DEVICE_COPY_DEVICE_TO_HOST,
                          (uint64_t)(uintptr_t)far->bytes, far->own.addr, CHUNK));
    ASSERT_OK(device_stream_sync(far->c.other, NULL));
}

/* All of block i is that. */
static void own_expect(struct far *far, const uint8_t *expected)
{
    own_read(far);
    for (uint64_t i = 0; i < BLOCKS; i++) {
        const uint8_t *block = far->bytes + i * BLOCK;

        ASSERT_EQ(block[0], expected[i]);
        ASSERT_EQ(memcmp(block, block + 1, BLOCK - 1), 0); /* so all are */
    }
}

static void copy_in(struct device_stream *stream, struct far *far, uint64_t to,
                    struct device_ptr from, uint64_t block)
{
    ASSERT_OK(device_copy(stream, DEVICE_COPY_DEVICE_TO_DEVICE,
                          device_ptr_add(far->own, to * BLOCK).addr,
                          device_ptr_add(from, block * BLOCK).addr, BLOCK));
}

TEST(the_device_that_much_came_from_copies_the_rest_and_it_is_the_same)
{
    struct far far;
    uint8_t expected[BLOCKS];

    far_begin(&far);
    ASSERT_OK(device_stream_source(far.streams[0], 1));
    ASSERT_EQ(device_stream_engines(far.streams[0]), 0); /* not open */
    ASSERT_EQ(device_engines_state(far.c.device, 1), DEVICE_ENGINES_CLOSED);
    for (int away = 0; away < 2; away++) {
        for (uint64_t i = 0; i < BLOCKS; i++) {
            expected[i] = (uint8_t)(100 + (i + (uint64_t)away) % BLOCKS);
            copy_in(far.streams[0], &far, i, far.theirs[0], (i + (uint64_t)away) % BLOCKS);
        }
        ASSERT_OK(device_stream_sync(far.streams[0], NULL));
        own_expect(&far, expected);
        far_await(far.c.device, far.streams[0], 1);
    }
    ASSERT_OK(device_stream_source(far.streams[0], 0));
    ASSERT_EQ(device_stream_engines(far.streams[0]), 0);
    far_end(&far);
}

/* One step of a program, after which block `to` holds *io_value. */
static void step(struct far *far, struct device_stream *stream, uint32_t what, uint64_t to,
                 uint64_t block, uint8_t *values)
{
    if (what < 2 * far->others && stream != far->streams[STREAMS - 1]) {
        /* from another one, twice as often */
        ASSERT_OK(device_stream_source(stream, what / 2 + 1));
        ASSERT_EQ(device_stream_engines(stream), what / 2 + 1);
        copy_in(stream, far, to, far->theirs[what / 2], block);
        values[to] = (uint8_t)(100 * (what / 2 + 1) + block);
    } else if (what == 2 * far->others) {
        /* within the device; a block onto itself is none */
        ASSERT_OK(device_stream_source(stream, 0));
        copy_in(stream, far, to, far->own, (to + 1) % BLOCKS);
        values[to] = values[(to + 1) % BLOCKS];
    } else {
        values[to] = (uint8_t)(block + 1);
        ASSERT_OK(
            device_fill8(stream, device_ptr_add(far->own, to * BLOCK), values[to], BLOCK));
    }
}

/*
 * A program whose steps are in one order, since each stream that takes over joins the one before,
 * or waits for a mark in it. A gate holds it up until all is put in, so that no step is over before
 * the next one comes.
 */
TEST(streams_keep_their_order_wherever_they_are)
{
    struct far far;
    struct device_event *event;
    uint64_t state = 4711, gate = 0;

    far_begin(&far);
    far_await_all(&far);
    ASSERT_OK(device_event_create(far.c.device, false, &event));
    for (uint32_t round = 0; round < ROUNDS; round++) {
        struct device_stream *last = far.streams[round % STREAMS];
        uint8_t values[BLOCKS]     = {0};
        uint8_t draws[4 * STEPS];

        contract_fill_random(draws, sizeof(draws), &state);
        ASSERT_OK(device_wait(last, &far.c.words[0], ++gate));
        ASSERT_OK(device_fill8(last, far.own, 0, CHUNK));
        for (uint32_t i = 0; i < STEPS; i++) {
            struct device_stream *stream = far.streams[draws[4 * i] / 2 % STREAMS];

            if (draws[4 * i] % 2 == 0) {
                ASSERT_OK(device_stream_join(stream, last));
            } else {
                ASSERT_OK(device_event_record(event, last));
                ASSERT_OK(device_stream_behind(stream, event));
            }
            step(&far, stream, draws[4 * i + 1] % (2 * far.others + 2),
                 draws[4 * i + 2] % BLOCKS, draws[4 * i + 3] % BLOCKS, values);
            ASSERT_OK(device_signal(stream, &far.c.words[1], gate * 1000 + i));
            last = stream;
        }
        ASSERT_TRUE(contract_word_load(&far.c.words[1]) < gate * 1000);
        contract_gate_open(&far.c.words[0], gate);
        ASSERT_OK(device_stream_sync(last, NULL));
        ASSERT_EQ(contract_word_load(&far.c.words[1]), gate * 1000 + STEPS - 1);
        own_expect(&far, values);
    }
    device_event_destroy(event);
    far_end(&far);
}

/* On the driver without a GPU, where that can be had. */
static void fake_only(void)
{
    if (getenv("FAKE_CUDA_DEVICES") == NULL) {
        test_skip("a real driver");
    }
}

/* A name that the driver looks for a file by; there is none yet. */
static void file_name(char *path)
{
    int fd = mkstemp(path);

    ASSERT_TRUE(fd >= 0);
    ASSERT_EQ(close(fd), 0);
    ASSERT_EQ(unlink(path), 0);
}

static void file_make(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

    ASSERT_TRUE(fd >= 0);
    ASSERT_EQ(close(fd), 0);
}

/* What would begin too early has done so then. */
static void let_it_begin(void)
{
    const struct timespec nap = {.tv_nsec = 10000000};

    (void)nanosleep(&nap, NULL);
}

static void await_word(const uint64_t *word, uint64_t value)
{
    uint64_t until_ns = pl_now_ns() + WAIT_NS;

    while (contract_word_load(word) < value) {
        ASSERT_TRUE(pl_now_ns() < until_ns);
        (void)sched_yield();
    }
}

/* Events, marks for others, stay this device's. */
TEST(events_of_a_stream_that_is_away_are_behind_its_copies)
{
    struct far far;
    struct device_event *event;
    uint64_t gate = 0;

    far_begin(&far);
    far_await_all(&far);
    ASSERT_OK(device_event_create(far.c.device, false, &event));
    for (uint32_t i = 0; i < ROUNDS; i++) {
        const uint8_t expected[BLOCKS] = {100, 7, 7, 100};

        ASSERT_OK(device_fill8(far.streams[2], far.own, 7, CHUNK));
        ASSERT_OK(device_event_record(event, far.streams[2]));
        ASSERT_OK(device_stream_source(far.streams[0], 1));
        ASSERT_OK(device_stream_behind(far.streams[0], event));
        ASSERT_OK(device_wait(far.streams[0], &far.c.words[0], ++gate));
        copy_in(far.streams[0], &far, 0, far.theirs[0], 0);
        ASSERT_OK(device_event_record(event, far.streams[0]));
        ASSERT_OK(device_stream_behind(far.streams[2], event));
        ASSERT_OK(device_copy(far.streams[2], DEVICE_COPY_DEVICE_TO_DEVICE,
                              device_ptr_add(far.own, 3 * BLOCK).addr, far.own.addr,
                              BLOCK));
        let_it_begin();
        ASSERT_TRUE(!device_event_done(event));
        contract_gate_open(&far.c.words[0], gate);
        ASSERT_OK(device_stream_sync(far.streams[2], NULL));
        ASSERT_TRUE(device_event_done(event));
        own_expect(&far, expected);
    }
    device_event_destroy(event);
    far_end(&far);
}

/* A copy is the last that it holds, and no word is behind that. */
TEST(who_joins_a_stream_that_is_away_is_behind_its_copies)
{
    const uint8_t expected[BLOCKS] = {100, 7, 7, 100};
    struct far far;

    far_begin(&far);
    far_await_all(&far);
    for (uint64_t gate = 1; gate <= ROUNDS; gate++) {
        ASSERT_OK(device_fill8(far.c.other, far.own, 7, CHUNK));
        ASSERT_OK(device_stream_sync(far.c.other, NULL));
        ASSERT_OK(device_stream_source(far.streams[0], 1));
        ASSERT_OK(device_wait(far.streams[0], &far.c.words[0], gate));
        copy_in(far.streams[0], &far, 0, far.theirs[0], 0);
        if (gate % 2 == 0) { /* from elsewhere: away, too */
            ASSERT_OK(device_stream_source(far.streams[1], far.others));
            ASSERT_OK(device_stream_join(far.streams[1], far.streams[0]));
        }
        ASSERT_OK(device_stream_join(far.streams[2], far.streams[gate % 2 == 0]));
        copy_in(far.streams[2], &far, 3, far.own, 0);
        let_it_begin();
        contract_gate_open(&far.c.words[0], gate);
        ASSERT_OK(device_stream_sync(far.streams[2], NULL));
        own_expect(&far, expected);
    }
    far_end(&far);
}

/*
 * Words are written at home, which must be behind all that came before each: copies, waits, other
 * streams, and what this one held elsewhere.
 */
TEST(words_of_a_stream_that_is_away_are_behind_what_it_waits_for)
{
    struct far far;

    far_begin(&far);
    far_await_all(&far);
    for (uint64_t i = 0; i < ROUNDS; i++) {
        uint64_t *gate = &far.c.words[0], *said = &far.c.words[1],
                 *behind               = &far.c.words[2];
        const uint64_t at              = 4 * i;
        const uint8_t before[BLOCKS]   = {7, 7, 7, 7};
        const uint8_t after[BLOCKS]    = {101, 7, 7, 7};
        struct device_stream *stream   = far.streams[0];
        struct device_word_step step[] = {
            {.word = behind, .value = at + 2},
            {.waits = true, .word = gate, .value = at + 3},
            {.word = said, .value = at + 3},
            {.word = behind, .value = at + 3},
        };

        ASSERT_OK(device_fill8(far.c.other, far.own, 7, CHUNK));
        ASSERT_OK(device_stream_sync(far.c.other, NULL));
        ASSERT_OK(device_wait(far.streams[2], gate, at + 2));
        ASSERT_OK(device_stream_source(stream, 1));
        ASSERT_OK(device_signal(stream, behind, at)); /* nothing to wait for */
        ASSERT_OK(device_stream_source(stream, 0));
        ASSERT_OK(device_wait(stream, gate, at + 1));
        ASSERT_OK(device_stream_source(stream, 1));
        ASSERT_OK(device_signal(stream, said, at + 1));
        ASSERT_OK(device_stream_join(stream, far.streams[2]));
        ASSERT_OK(device_signal(stream, said, at + 2));
        ASSERT_OK(device_words(stream, step, PL_COUNT(step)));
        copy_in(stream, &far, 0, far.theirs[0], 1);
        for (uint64_t k = 0; k < 3; k++) {
            contract_gate_open(gate, at + k);
            await_word(said, k == 0 && i > 0 ? at - 1 : at + k);
            await_word(behind, k < 2 ? at : at + 2);
            let_it_begin();
            ASSERT_EQ(contract_word_load(said), k == 0 && i > 0 ? at - 1 : at + k);
            ASSERT_EQ(contract_word_load(behind), k < 2 ? at : at + 2);
            own_expect(&far, before);
        }
        contract_gate_open(gate, at + 3);
        ASSERT_OK(device_stream_sync(stream, NULL)); /* its words, too */
        ASSERT_EQ(contract_word_load(said), at + 3);
        ASSERT_EQ(contract_word_load(behind), at + 3);
        own_expect(&far, after);
    }
    far_end(&far);
}

/* Seen where the device's memory is the host's: nothing but a copy can show that it began. */
TEST(what_comes_in_a_stream_that_was_settled_begins_when_its_words_are_written)
{
    enum { TURNS = 200 };
    const volatile uint8_t *began;
    struct far far;
    uint64_t early = 0;

    fake_only();
    far_begin(&far);
    far_await_all(&far);
    began = (const volatile uint8_t *)(uintptr_t)far.own.addr;
    ASSERT_TRUE(!device_stream_words_late(far.streams[1]));
    for (uint64_t i = 1; i <= 2 * TURNS; i++) {
        uint64_t until_ns = pl_now_ns() + WAIT_NS;

        ASSERT_OK(device_fill8(far.c.other, far.own, 7, CHUNK));
        ASSERT_OK(device_stream_sync(far.c.other, NULL));
        ASSERT_OK(device_stream_source(far.streams[0], 1));
        ASSERT_TRUE(device_stream_words_late(far.streams[0]));
        copy_in(far.streams[0], &far, 1, far.theirs[0], 1);
        ASSERT_OK(device_signal(far.streams[0], &far.c.words[0], i));
        if (i > TURNS) {
            ASSERT_OK(device_stream_settle(far.streams[0]));
        }
        copy_in(far.streams[0], &far, 0, far.theirs[0], 1);
        while (*began == 7) {
            ASSERT_TRUE(pl_now_ns() < until_ns);
        }
        early += contract_word_load(&far.c.words[0]) < i;
        ASSERT_TRUE(i <= TURNS || contract_word_load(&far.c.words[0]) == i);
        ASSERT_OK(device_stream_sync(far.streams[0], NULL));
    }
    ASSERT_TRUE(early > 0); /* of those that were not settled: words are late, then */
    far_end(&far);
}

TEST(what_is_mapped_later_is_reached_too_and_a_stream_that_ends_leaves_its_place)
{
    const uint8_t first[BLOCKS] = {100, 101, 102, 103};
    struct far far;
    struct device_ptr before;

    far_begin(&far);
    far_await_all(&far);
    before = far.own;
    for (uint32_t i = 0; i < 3 * FAR_STREAMS; i++) {
        struct device_ptr theirs =
            map_chunk(far.c.device, far.other[0], theirs_make(far.other[0]), false);

        far.own = map_own(far.c.device);
        ASSERT_OK(device_stream_source(far.streams[0], 1));
        ASSERT_EQ(device_stream_engines(far.streams[0]), 1);
        ASSERT_OK(device_copy(far.streams[0], DEVICE_COPY_DEVICE_TO_DEVICE, far.own.addr,
                              theirs.addr, CHUNK));
        ASSERT_OK(device_stream_sync(far.streams[0], NULL));
        own_expect(&far, first);
        device_stream_destroy(far.streams[0]);
        ASSERT_OK(
            device_stream_create(far.c.device, DEVICE_STREAM_COPIES, &far.streams[0]));
        unmap(&far, far.own);
        unmap(&far, theirs);
    }
    far.own = before;
    far_end(&far);
}

/* So a worker's main thread goes on, and what it has mapped meanwhile is reached, too. */
TEST(what_is_mapped_while_a_device_is_opened_does_not_wait_for_all_that_was)
{
    enum { MAPS = 100 };
    const uint8_t first[BLOCKS] = {100, 101, 102, 103};
    char path[]                 = "/tmp/calls-XXXXXX";
    const struct fake_cuda_calls *calls;
    struct device_ptr maps[MAPS], before;
    struct far far;
    uint64_t count;

    fake_only();
    file_name(path);
    ASSERT_EQ(setenv("FAKE_CUDA_CALLS", path, 1), 0);
    ASSERT_EQ(setenv("FAKE_CUDA_SLOW", "1", 1), 0);
    calls = fake_counts_open(path);
    far_begin(&far);
    for (uint32_t i = 0; i < MAPS; i++) {
        maps[i] = map_own(far.c.device);
    }
    count = fake_counts_of(calls, "cuMemSetAccess");
    device_engines_open(far.c.device, 1);
    while (fake_counts_of(calls, "cuMemSetAccess") < count + 2) {
        let_it_begin();
    }
    before  = far.own;
    far.own = map_own(far.c.device);
    ASSERT_EQ(device_engines_state(far.c.device, 1), DEVICE_ENGINES_OPENING);
    far_await(far.c.device, far.streams[0], 1);
    ASSERT_OK(device_copy(far.streams[0], DEVICE_COPY_DEVICE_TO_DEVICE, far.own.addr,
                          far.theirs[0].addr, CHUNK));
    ASSERT_OK(device_stream_sync(far.streams[0], NULL));
    ASSERT_EQ(device_stream_engines(far.streams[0]), 1);
    own_expect(&far, first);
    for (uint32_t i = 0; i < MAPS; i++) {
        unmap(&far, maps[i]);
    }
    unmap(&far, before);
    far_end(&far);
    fake_counts_close(calls);
    ASSERT_EQ(unlink(path), 0);
}

TEST(a_place_less_than_streams_and_the_last_one_copies_by_itself)
{
    const uint8_t first[BLOCKS] = {100, 101, 102, 103};
    struct device_stream *third;
    struct far far;

    far_begin(&far);
    far_await_all(&far);
    ASSERT_OK(device_stream_create(far.c.device, DEVICE_STREAM_COPIES, &third));
    far_await(far.c.device, far.streams[1], 1);
    ASSERT_OK(device_stream_source(far.streams[0], 1));
    ASSERT_EQ(device_stream_engines(far.streams[0]), 1);
    ASSERT_OK(device_stream_source(third, 1));
    ASSERT_EQ(device_stream_engines(third), 0);
    ASSERT_OK(device_copy(third, DEVICE_COPY_DEVICE_TO_DEVICE, far.own.addr,
                          far.theirs[0].addr, CHUNK));
    ASSERT_OK(device_stream_sync(third, NULL));
    own_expect(&far, first);
    device_stream_destroy(third);
    far_end(&far);
}

TEST(memory_that_the_other_device_may_not_reach_is_copied_by_this_one)
{
    const uint8_t first[BLOCKS] = {100, 101, 102, 103};
    struct far far;
    struct device_ptr theirs;
    char path[] = "/tmp/shut-XXXXXX";
    int made;

    fake_only();
    test_expect_log();
    file_name(path);
    ASSERT_EQ(setenv("FAKE_CUDA_SHUT", path, 1), 0);
    far_begin(&far);
    far_await_all(&far);
    made = theirs_make(far.other[0]);
    ASSERT_OK(device_stream_source(far.streams[0], 1));
    ASSERT_EQ(device_stream_engines(far.streams[0]), 1);
    file_make(path);
    theirs = map_chunk(far.c.device, far.other[0], made,
                       false); /* now, when it was told already */
    ASSERT_OK(device_copy(far.streams[0], DEVICE_COPY_DEVICE_TO_DEVICE, far.own.addr,
                          theirs.addr, CHUNK));
    ASSERT_OK(device_stream_sync(far.streams[0], NULL));
    ASSERT_EQ(device_stream_engines(far.streams[0]), 0);
    own_expect(&far, first);
    ASSERT_EQ(unlink(path), 0);
    ASSERT_OK(device_stream_source(far.streams[0], 1));
    ASSERT_EQ(device_stream_engines(far.streams[0]), 0); /* for good */
    unmap(&far, theirs);
    far_end(&far);
}

enum where { AWAY, HOME, ELSEWHERE };

/*
 * Whatever comes first in the stream: a wait, a copy, another stream that joins it, or is joined, a
 * mark, a word.
 */
static void goes_on_at_home(struct far *far)
{
    const uint8_t expected[BLOCKS] = {101, 101, 102, 103};
    struct device_stream *stream   = far->streams[0];
    struct device_event *event;

    ASSERT_OK(device_event_create(far->c.device, false, &event));
    ASSERT_OK(device_event_record(event, stream));
    ASSERT_OK(device_stream_behind(far->streams[2], event));
    ASSERT_OK(device_stream_join(far->streams[2], stream));
    ASSERT_OK(device_signal(stream, &far->c.words[1], 1));
    ASSERT_OK(device_wait(stream, &far->c.words[0], 1));
    ASSERT_OK(device_stream_source(stream, 1));
    ASSERT_EQ(device_stream_engines(stream), 0);
    for (uint64_t i = 1; i < BLOCKS; i++) {
        copy_in(stream, far, i, far->theirs[0], i);
    }
    ASSERT_OK(device_signal(stream, &far->c.words[1], 2));
    ASSERT_OK(device_stream_sync(stream, NULL));
    ASSERT_EQ(contract_word_load(&far->c.words[1]), 2);
    ASSERT_TRUE(device_event_done(event));
    own_expect(far, expected);
    device_event_destroy(event);
}

/*
 * The stream has put a copy in at device 1, whose context is lost then, when that was not over
 * (owes) or all was.
 */
static void lose_device_1(enum where where, bool owes)
{
    struct far far;
    struct pl_err err = {.status = PLASMON_OK};
    char path[]       = "/tmp/lost-XXXXXX";

    file_name(path);
    ASSERT_EQ(setenv("FAKE_CUDA_FAR_LOST", path, 1), 0);
    far_begin(&far);
    far_await_all(&far);
    ASSERT_OK(device_stream_source(far.streams[0], 1));
    ASSERT_OK(device_wait(far.streams[0], &far.c.words[0], 1));
    copy_in(far.streams[0], &far, 0, far.theirs[0], 1);
    if (where != AWAY) {
        ASSERT_OK(device_stream_source(far.streams[0], where == HOME ? 0 : 2));
    }
    if (!owes) {
        contract_gate_open(&far.c.words[0], 1);
        ASSERT_OK(device_stream_sync(far.streams[0], NULL));
    }
    ASSERT_OK(device_health(far.c.device, &err));
    file_make(path);
    ASSERT_EQ(device_health(far.c.device, &err) != PLASMON_OK, owes);
    if (owes && where == AWAY) {
        ASSERT_TRUE(device_stream_sync(far.streams[0], NULL) != PLASMON_OK);
    }
    if (owes) {
        ASSERT_EQ(unlink(path), 0);
        _exit(0); /* nothing of this ends any more */
    }
    goes_on_at_home(&far);
    ASSERT_OK(device_health(far.c.device, &err));
    ASSERT_EQ(unlink(path), 0);
    far_end(&far);
}

/* `error`: what the driver says then. */
static void lose_device_1_in_a_child(enum where where, bool owes, const char *error)
{
    pid_t child;
    int status;

    (void)fflush(stdout);
    child = fork();
    ASSERT_TRUE(child >= 0);
    if (child == 0) {
        ASSERT_EQ(setenv("FAKE_CUDA_LOST_ERROR", error, 1), 0);
        lose_device_1(where, owes);
        _exit(0);
    }
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_EQ(status, 0);
}

TEST(a_device_is_lost_with_another_one_that_owes_it_a_copy)
{
    static const char *const errors[] = {"700", "226", "999", "911", "12345"};

    fake_only();
    for (size_t i = 0; i < PL_COUNT(errors); i++) {
        lose_device_1_in_a_child(AWAY, true, errors[i]);
    }
    lose_device_1_in_a_child(HOME, true, "700");
    lose_device_1_in_a_child(ELSEWHERE, true, "700");
}

TEST(a_device_that_owes_nothing_is_lost_alone)
{
    fake_only();
    lose_device_1_in_a_child(HOME, false, "700");
    /* where it is as long as nothing else is to be copied */
    lose_device_1_in_a_child(AWAY, false, "700");
    lose_device_1_in_a_child(ELSEWHERE, false, "700");
}

/* Its worker has it alone, also while that is dead and its next one not yet there. */
TEST(a_device_that_is_for_one_process_is_not_entered)
{
    char folder[] = "/tmp/modes-XXXXXX", file[64];
    struct far far;

    fake_only();
    ASSERT_NOT_NULL(mkdtemp(folder));
    (void)snprintf(file, sizeof(file), "%s/gpu1", folder);
    ASSERT_EQ(setenv("FAKE_CUDA_FOLDER", folder, 1), 0);
    ASSERT_EQ(setenv("FAKE_CUDA_MODES", "030", 1), 0);
    far_begin(&far);
    ASSERT_EQ(engines_opened(far.c.device, 1), DEVICE_ENGINES_REFUSED);
    ASSERT_OK(device_stream_source(far.streams[0], 1));
    ASSERT_EQ(device_stream_engines(far.streams[0]), 0);
    far_end(&far);
    ASSERT_EQ(unlink(file), 0); /* this process was its worker, too */
    ASSERT_EQ(rmdir(folder), 0);
}

TEST(streams_for_other_work_and_devices_that_are_none_make_no_difference)
{
    struct far far;

    far_begin(&far);
    far_await_all(&far);
    ASSERT_OK(device_stream_source(far.streams[2], 1));
    ASSERT_EQ(device_stream_engines(far.streams[2]), 0);
    device_engines_open(far.c.device, 63);
    ASSERT_EQ(device_engines_state(far.c.device, 63), DEVICE_ENGINES_REFUSED);
    ASSERT_OK(device_stream_source(far.streams[0], 63));
    ASSERT_EQ(device_stream_engines(far.streams[0]), 0);
    ASSERT_OK(device_stream_source(far.streams[0], UINT32_MAX));
    ASSERT_EQ(device_stream_engines(far.streams[0]), 0);
    far_end(&far);
}

TEST_MAIN()
