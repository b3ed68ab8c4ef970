/*
 * Communicators of a CUDA device over an NCCL without a GPU (tests/harness/gpu/fake_nccl.c), which
 * stops a process that uses one by two threads: opening never waits in a call for a peer,
 * operations cost no thread, and what waits for a peer that does not come can be ended.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/box.h"
#include "base/clock.h"
#include "device/device.h"
#include "tests/harness/test.h"

enum { RANKS = 3, DEADLINE_S = 60, BYTES = 3 << 20 };

struct rank {
    struct device *device;
    struct device_stream *stream;
    struct device_comm *comm;
    struct device_ptr memory[2]; /* what is given, what comes */
    uint64_t *word;
};

static struct rank rank[RANKS];
static uint64_t until_ns;
static char gate[64];

static void nap(void)
{
    const struct timespec pause = {.tv_nsec = 50000};

    ASSERT_TRUE(pl_now_ns() < until_ns);
    (void)nanosleep(&pause, NULL);
}

static void rank_start(uint32_t i)
{
    const struct device_config config = {.bytes_max = UINT64_C(64) << 20};
    struct rank *at                   = &rank[i];
    struct pl_err err                 = {.status = PLASMON_OK};
    struct device_ptr base;
    uint64_t bytes;
    int fd;

    until_ns = pl_now_ns() + DEADLINE_S * UINT64_C(1000000000);
    ASSERT_OK(device_open(DEVICE_CUDA, i, &config, &at->device, &err));
    ASSERT_TRUE(device_comm_version(at->device, &err) >= 21800);
    ASSERT_OK(device_stream_create(at->device, 0, &at->stream));
    bytes = pl_round_up((RANKS + 1) * (uint64_t)BYTES,
                        device_get_info(at->device)->chunk_granularity);
    ASSERT_OK(device_range_reserve(at->device, bytes, &base));
    ASSERT_OK(device_chunk_create(at->device, bytes, &fd));
    ASSERT_OK(device_chunk_map(at->device, fd, bytes, i, true, base));
    ASSERT_EQ(close(fd), 0);
    at->memory[0] = base;
    at->memory[1] = device_ptr_add(base, BYTES);
    at->word      = aligned_alloc(4096, 4096);
    ASSERT_TRUE(at->word != NULL);
    memset(at->word, 0, 4096);
    ASSERT_OK(device_host_register(at->device, at->word, 4096));
}

/* The driver's memory is the host's. */
static uint8_t *bytes_of(const struct rank *at, int which)
{
    return (uint8_t *)(uintptr_t)at->memory[which].addr;
}

static void comm_begin(uint32_t i, uint32_t ranks, uint8_t *id)
{
    const struct device_comm_config config = {.rank = i, .ranks = ranks};
    struct pl_err err                      = {.status = PLASMON_OK};

    if (i == 0) {
        ASSERT_OK(device_comm_id(rank[0].device, &config, id, &err));
    }
    ASSERT_OK(
        device_comm_open(rank[i].device, &config, id, rank[i].stream, &rank[i].comm, &err));
}

/* No look waits for anybody. */
static plasmon_status_t look(uint32_t i)
{
    uint64_t since_ns       = pl_now_ns();
    struct pl_err err       = {.status = PLASMON_OK};
    plasmon_status_t status = device_comm_poll(rank[i].comm, &err);

    ASSERT_TRUE(pl_now_ns() - since_ns < UINT64_C(5000000000));
    ASSERT_TRUE(status == PLASMON_OK || status == PLASMON_EAGAIN);
    return status;
}

static void open_all(uint32_t count, bool team)
{
    uint8_t id[DEVICE_COMM_ID_BYTES];
    uint32_t open = 0;

    for (uint32_t i = 0; i < count; i++) {
        rank_start(i);
        comm_begin(i, team ? count : 0, id);
    }
    while (open < count) {
        open = 0;
        for (uint32_t i = 0; i < count; i++) {
            open += look(i) == PLASMON_OK;
        }
        nap();
    }
}

static void done(uint32_t i, uint64_t value)
{
    ASSERT_OK(device_signal(rank[i].stream, &rank[i].word[0], value));
}

static void await(uint32_t i, uint64_t value)
{
    while (__atomic_load_n(&rank[i].word[0], __ATOMIC_ACQUIRE) < value) {
        nap();
    }
}

static void close_all(uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        device_comm_close(rank[i].comm);
        device_stream_destroy(rank[i].stream);
        device_host_unregister(rank[i].device, rank[i].word);
        free(rank[i].word);
        device_close(rank[i].device);
    }
}

static void move(uint32_t i, uint64_t bytes)
{
    struct pl_err err = {.status = PLASMON_OK};

    ASSERT_OK(
        device_comm_move(rank[i].comm, rank[i].stream, rank[i].memory[i], bytes, &err));
}

static uint64_t fake_threads(void)
{
    void *library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_NOLOAD);
    void *symbol  = library != NULL ? dlsym(library, "fake_nccl_threads") : NULL;
    uint64_t (*count)(void);

    ASSERT_TRUE(symbol != NULL);
    memcpy(&count, &symbol, sizeof(symbol));
    (void)dlclose(library);
    return count();
}

TEST(a_pair_moves_bytes_in_order)
{
    static const uint64_t sizes[] = {1, 4096, BYTES, 77, 1 << 20, BYTES - 5};

    test_set_timeout(DEADLINE_S);
    open_all(2, false);
    for (size_t k = 0; k < PL_COUNT(sizes); k++) {
        for (uint64_t i = 0; i < sizes[k]; i++) {
            bytes_of(&rank[0], 0)[i] = (uint8_t)(i * 2654435761u >> 9 ^ k);
        }
        memset(bytes_of(&rank[1], 1), 0, BYTES);
        for (uint32_t i = 0; i < 2; i++) {
            move(i, sizes[k]);
            done(i, k + 1);
        }
        await(0, k + 1);
        await(1, k + 1);
        ASSERT_EQ(memcmp(bytes_of(&rank[0], 0), bytes_of(&rank[1], 1), sizes[k]), 0);
        ASSERT_EQ(sizes[k] == BYTES ? 0 : bytes_of(&rank[1], 1)[sizes[k]], 0);
    }
    close_all(2);
}

/*
 * What connects has been done when it is open; then a call only enqueues. And the watcher may ask
 * all the time.
 */
TEST(an_operation_makes_no_thread_and_may_be_watched)
{
    struct pl_err err = {.status = PLASMON_OK};
    uint64_t before;

    test_set_timeout(DEADLINE_S);
    open_all(2, false);
    before = fake_threads();
    for (uint64_t k = 1; k <= 200; k++) {
        move(0, 64);
        ASSERT_OK(device_comm_check(rank[0].comm, &err));
        move(1, 64);
        ASSERT_OK(device_comm_check(rank[1].comm, &err));
        done(1, k);
    }
    await(1, 200);
    ASSERT_EQ(fake_threads(), before);
    close_all(2);
}

static atomic_bool watching;

static void *watch(void *user)
{
    struct pl_err err = {.status = PLASMON_OK};

    (void)user;
    while (atomic_load(&watching)) {
        if (device_comm_check(rank[0].comm, &err) != PLASMON_OK) {
            return user;
        }
    }
    return NULL;
}

TEST(a_watcher_and_who_enqueues_are_in_no_communicator_at_once)
{
    pthread_t thread;
    void *failed;

    test_set_timeout(DEADLINE_S);
    open_all(2, false);
    atomic_store(&watching, true);
    ASSERT_EQ(pthread_create(&thread, NULL, watch, rank), 0);
    for (uint64_t k = 1; k <= 3000; k++) {
        move(0, 8);
        move(1, 8);
        done(1, k);
    }
    await(1, 3000);
    atomic_store(&watching, false);
    ASSERT_EQ(pthread_join(thread, &failed), 0);
    ASSERT_TRUE(failed == NULL);
    close_all(2);
}

static void join(uint32_t i, enum device_collective kind, uint64_t elements)
{
    const struct device_comm_collective how = {.kind     = kind,
                                               .src      = rank[i].memory[0],
                                               .dst      = rank[i].memory[1],
                                               .elements = elements,
                                               .dtype    = PL_I32,
                                               .op       = DEVICE_REDUCE_SUM};
    struct pl_err err                       = {.status = PLASMON_OK};

    ASSERT_OK(device_comm_join(rank[i].comm, rank[i].stream, &how, &err));
}

static int32_t *ints_of(uint32_t i, int which)
{
    return (int32_t *)(void *)bytes_of(&rank[i], which);
}

TEST(a_team_reduces_scatters_and_gathers)
{
    const uint64_t count = BYTES / sizeof(int32_t) / RANKS;

    test_set_timeout(DEADLINE_S);
    open_all(RANKS, true);
    for (uint32_t i = 0; i < RANKS; i++) {
        for (uint64_t k = 0; k < count * RANKS; k++) {
            ints_of(i, 0)[k] = (int32_t)(k * (i + 1));
        }
    }
    for (uint64_t step = 1; step <= 3; step++) {
        for (uint32_t i = 0; i < RANKS; i++) {
            join(i,
                 step == 1   ? DEVICE_ALL_REDUCE
                 : step == 2 ? DEVICE_REDUCE_SCATTER
                             : DEVICE_ALL_GATHER,
                 step == 1 ? count * RANKS : count);
            done(i, step);
        }
        for (uint32_t i = 0; i < RANKS; i++) {
            await(i, step);
            for (uint64_t k = 0; k < count; k++) {
                int32_t got = ints_of(i, 1)[k];

                ASSERT_EQ(got, step == 1   ? (int32_t)(6 * k)
                               : step == 2 ? (int32_t)(6 * (k + i * count))
                                           : (int32_t)k);
            }
        }
    }
    ASSERT_EQ(ints_of(1, 1)[2 * count + 5], 15); /* of rank 2 */
    close_all(RANKS);
}

/* Rank 1 is a process of its own, which comes as far as the first operation and then is killed. */
static pid_t other_start(int from, bool team)
{
    pid_t pid = fork();

    if (pid == 0) {
        uint8_t id[DEVICE_COMM_ID_BYTES];

        ASSERT_EQ(setenv("FAKE_NCCL_GATE", gate, 1), 0);
        rank_start(1);
        ASSERT_EQ(read(from, id, sizeof(id)), (ssize_t)sizeof(id));
        comm_begin(1, team ? 2 : 0, id);
        for (;;) {
            ASSERT_STATUS(look(1), PLASMON_EAGAIN);
            nap();
        }
    }
    ASSERT_TRUE(pid > 0);
    return pid;
}

static void abandon(bool team)
{
    uint8_t id[DEVICE_COMM_ID_BYTES];
    uint64_t since_ns;
    int pipes[2], status;
    pid_t pid;

    test_set_timeout(DEADLINE_S);
    (void)snprintf(gate, sizeof(gate), "/tmp/plasmon-fake-nccl-%d", (int)getpid());
    ASSERT_EQ(close(open(gate, O_CREAT | O_WRONLY | O_CLOEXEC, 0600)), 0);
    ASSERT_EQ(pipe(pipes), 0);
    pid = other_start(pipes[0], team);
    rank_start(0);
    comm_begin(0, team ? 2 : 0, id);
    ASSERT_EQ(write(pipes[1], id, sizeof(id)), (ssize_t)sizeof(id));
    for (since_ns = pl_now_ns(); pl_now_ns() - since_ns < UINT64_C(700000000);) {
        ASSERT_STATUS(look(0), PLASMON_EAGAIN); /* its first operation waits in the call */
        nap();
    }
    ASSERT_EQ(kill(pid, SIGKILL), 0);
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    ASSERT_EQ(unlink(gate), 0);
    ASSERT_STATUS(look(0), PLASMON_EAGAIN);
    since_ns = pl_now_ns();
    device_comm_abort(rank[0].comm);
    ASSERT_TRUE(pl_now_ns() - since_ns < UINT64_C(10000000000));
    done(0, 1); /* and the stream goes on */
    await(0, 1);
}

TEST(a_peer_that_dies_before_a_pair_is_connected_holds_nobody)
{
    abandon(false);
}

TEST(a_peer_that_dies_before_a_team_is_connected_holds_nobody)
{
    abandon(true);
}

/*
 * Operations that nobody meets end as if they had been met: who aborts has marked before that
 * nothing of them is believed.
 */
TEST(an_abort_ends_what_is_under_way)
{
    test_set_timeout(DEADLINE_S);
    open_all(2, false);
    move(1, BYTES);
    done(1, 1);
    (void)usleep(50000);
    ASSERT_EQ(__atomic_load_n(&rank[1].word[0], __ATOMIC_ACQUIRE), 0);
    device_comm_abort(rank[1].comm);
    await(1, 1);
    device_comm_abort(rank[0].comm);
}

/*
 * What is freed waits until nothing is on the device, and copies wait for that: so whoever ends a
 * communicator beside other work cuts it first, and goes on.
 */
TEST(a_communicator_that_is_cut_holds_no_call_about_the_device)
{
    struct device_stream *other;
    uint64_t word;

    test_set_timeout(DEADLINE_S);
    open_all(2, false);
    ASSERT_OK(device_stream_create(rank[1].device, 0, &other));
    ASSERT_OK(device_wait(other, &rank[1].word[1], 1)); /* another device's part, say */
    move(1, BYTES);
    done(1, 1);
    device_comm_cut(rank[1].comm);
    await(1, 1); /* as if it had come */
    bytes_of(&rank[1], 0)[3] = 77;
    ASSERT_OK(device_copy(rank[1].stream, DEVICE_COPY_DEVICE_TO_HOST,
                          (uintptr_t)&rank[1].word[2], rank[1].memory[0].addr, 8));
    done(1, 2);
    await(1, 2);
    word = __atomic_load_n(&rank[1].word[2], __ATOMIC_ACQUIRE);
    ASSERT_EQ(word >> 24 & 0xff, 77);
    __atomic_store_n(&rank[1].word[1], 1, __ATOMIC_RELEASE);
    device_comm_abort(rank[1].comm);
    device_comm_abort(rank[0].comm);
    device_stream_destroy(other);
}

TEST_MAIN()
