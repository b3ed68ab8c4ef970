/*
 * NCCL itself, on two GPUs or more: what a pair costs and gives over NVLink and over sockets (each
 * process told that it is another host), an abort of a pair whose other side was killed while
 * another stream of the device waits, and random graphs on clusters whose every transfer goes by
 * NCCL, with graphs replayed and modules loaded beside, and workers killed.
 *
 * Figures are printed, never asserted. Everything has a deadline; a test that hangs says where.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "base/clock.h"
#include "device/device.h"
#include "tests/integration/cluster.h"
#include "tests/stress/stress_test.h"

enum { SKIP = 77, OPEN_S = 60, STEP_S = 30 };
#define BYTES (UINT64_C(1) << 30)

/* ----------------------------------------------------------------------------- one side */

struct side {
    int rank;
    int to, from; /* pipes to the other side */
    bool sockets;
    struct device *device;
    struct device_stream *stream, *waiting;
    struct device_ptr base;
    struct device_comm *comm;
    uint64_t *words;
    double opened_s;
};

static void say(const struct side *side, const char *format, ...)
{
    va_list args;

    printf("# rank %d, %s: ", side->rank, side->sockets ? "sockets" : "NVLink");
    va_start(args, format);
    (void)vprintf(format, args);
    va_end(args);
    printf("\n");
    (void)fflush(stdout);
}

static void die(const struct side *side, const char *what, const char *why)
{
    say(side, "%s: %s", what, why);
    _exit(1);
}

static void need(const struct side *side, plasmon_status_t status, const char *what,
                 const struct pl_err *err)
{
    if (status != PLASMON_OK) {
        die(side, what,
            err != NULL && err->text[0] != '\0' ? err->text : pl_status_text(status));
    }
}

static void device_start(struct side *side)
{
    struct device_config config = {0};
    struct pl_err err           = {0};
    struct device_info info;
    int fd;

    if (device_probe(DEVICE_CUDA, (uint32_t)side->rank, &info, &err) != PLASMON_OK) {
        _exit(SKIP);
    }
    need(side, device_open(DEVICE_CUDA, (uint32_t)side->rank, &config, &side->device, &err),
         "device_open", &err);
    if (device_comm_version(side->device, &err) == 0) {
        say(side, "%s", err.text);
        _exit(SKIP);
    }
    need(side, device_stream_create(side->device, 0, &side->stream), "stream", NULL);
    need(side, device_stream_create(side->device, 0, &side->waiting), "stream", NULL);
    need(side, device_range_reserve(side->device, BYTES, &side->base), "range", NULL);
    need(side, device_chunk_create(side->device, BYTES, &fd), "chunk", NULL);
    need(side,
         device_chunk_map(side->device, fd, BYTES, (uint32_t)side->rank, true, side->base),
         "map", NULL);
    side->words =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (side->words == MAP_FAILED) {
        die(side, "mmap", strerror(errno));
    }
    need(side, device_host_register(side->device, side->words, 4096), "words", NULL);
}

static void comm_start(struct side *side)
{
    struct device_comm_config config = {.rank   = (uint32_t)side->rank,
                                        .remote = side->sockets};
    uint64_t since_ns                = pl_now_ns();
    struct pl_err err                = {0};
    uint8_t id[DEVICE_COMM_ID_BYTES];
    plasmon_status_t status;

    if (side->rank == 0) {
        need(side, device_comm_id(side->device, &config, id, &err), "device_comm_id", &err);
        if (write(side->to, id, sizeof(id)) != (ssize_t)sizeof(id)) {
            die(side, "id", strerror(errno));
        }
    } else if (read(side->from, id, sizeof(id)) != (ssize_t)sizeof(id)) {
        die(side, "id", "the other side is gone");
    }
    need(side, device_comm_open(side->device, &config, id, side->stream, &side->comm, &err),
         "device_comm_open", &err);
    while ((status = device_comm_poll(side->comm, &err)) == PLASMON_EAGAIN) {
        if (pl_now_ns() - since_ns > OPEN_S * UINT64_C(1000000000)) {
            die(side, "device_comm_poll", "not open after 60 s");
        }
        (void)usleep(200);
    }
    need(side, status, "device_comm_poll", &err);
    side->opened_s = (double)(pl_now_ns() - since_ns) * 1e-9;
}

/* The word comes, or this says what did not. */
static void wait_word(struct side *side, uint32_t index, uint64_t value, const char *what)
{
    uint64_t since_ns = pl_now_ns();

    while (__atomic_load_n(&side->words[index * 8], __ATOMIC_ACQUIRE) < value) {
        if (pl_now_ns() - since_ns > STEP_S * UINT64_C(1000000000)) {
            die(side, what, "not done after 30 s");
        }
        pl_cpu_relax();
    }
}

static void move(struct side *side, uint64_t bytes)
{
    struct pl_err err = {0};

    need(side, device_comm_move(side->comm, side->stream, side->base, bytes, &err),
         "device_comm_move", &err);
}

static void figures(struct side *side)
{
    static const uint64_t sizes[] = {4096, 1 << 20, 16 << 20, 256 << 20, BYTES};
    uint64_t value                = 0;

    say(side, "open after %.0f ms, %.0f MiB of device memory", side->opened_s * 1e3,
        (double)device_comm_bytes(side->comm) / 1048576);
    for (size_t i = 0; i < PL_COUNT(sizes) && (!side->sockets || sizes[i] < BYTES); i++) {
        double best = 1e9;

        for (int k = 0; k < 5; k++) {
            uint64_t since_ns;
            uint32_t reps = sizes[i] > (64u << 20) ? 4 : 50;

            move(side, 4096); /* both are here */
            need(side, device_signal(side->stream, &side->words[0], ++value), "signal",
                 NULL);
            wait_word(side, 0, value, "the first of a series");
            since_ns = pl_now_ns();
            for (uint32_t r = 0; r < reps; r++) {
                move(side, sizes[i]);
            }
            need(side, device_signal(side->stream, &side->words[0], ++value), "signal",
                 NULL);
            wait_word(side, 0, value, "a series of transfers");
            best = best < (double)(pl_now_ns() - since_ns) / reps
                       ? best
                       : (double)(pl_now_ns() - since_ns) / reps;
        }
        if (side->rank == 1) {
            say(side, "%9llu bytes: %8.1f us, %6.1f GB/s", (unsigned long long)sizes[i],
                best * 1e-3, (double)sizes[i] / best);
        }
    }
}

static void content(struct side *side)
{
    const uint64_t bytes = 16 << 20;
    uint8_t *host =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct pl_err err = {0};

    if (host == MAP_FAILED) {
        die(side, "mmap", strerror(errno));
    }
    need(side, device_host_register(side->device, host, bytes), "register", NULL);
    for (uint64_t i = 0; side->rank == 0 && i < bytes; i++) {
        host[i] = (uint8_t)(i * 2654435761u >> 11);
    }
    if (side->rank == 0) {
        need(side,
             device_copy(side->stream, DEVICE_COPY_HOST_TO_DEVICE, side->base.addr,
                         (uint64_t)(uintptr_t)host, bytes),
             "copy in", NULL);
    }
    move(side, bytes);
    if (side->rank == 1) {
        need(side,
             device_copy(side->stream, DEVICE_COPY_DEVICE_TO_HOST,
                         (uint64_t)(uintptr_t)host, side->base.addr, bytes),
             "copy out", NULL);
    }
    need(side, device_stream_sync(side->stream, &err), "sync", &err);
    for (uint64_t i = 0; side->rank == 1 && i < bytes; i++) {
        if (host[i] != (uint8_t)(i * 2654435761u >> 11)) {
            say(side, "byte %llu is %u, not %u", (unsigned long long)i, host[i],
                (uint8_t)(i * 2654435761u >> 11));
            _exit(1);
        }
    }
}

static void *abort_run(void *user)
{
    struct side *side = user;
    uint64_t since_ns = pl_now_ns();

    device_comm_abort(side->comm);
    side->opened_s = (double)(pl_now_ns() - since_ns) * 1e-9;
    __atomic_store_n(&side->words[32], 1, __ATOMIC_RELEASE);
    return NULL;
}

/*
 * The other side is killed in the middle. Another stream waits meanwhile, as launches' streams do:
 * the operation must end all the same, and the driver take other calls. Whether the abort returns
 * before that stream goes on is only told.
 */
static void survive(struct side *side)
{
    struct pl_err err = {0};
    pthread_t thread;
    uint64_t since_ns;
    char byte;

    need(side, device_wait(side->waiting, &side->words[8], 1), "wait", NULL);
    for (int i = 0; i < 4; i++) {
        move(side, side->sockets ? 64u << 20 : BYTES);
    }
    need(side, device_signal(side->stream, &side->words[0], UINT64_MAX / 2), "signal",
         NULL);
    if (side->rank == 1) {
        (void)usleep(3000);
        (void)raise(SIGKILL);
    }
    if (read(side->from, &byte, 1) != 0) { /* until its pipe ends */
        die(side, "pipe", "the other side said something");
    }
    (void)usleep(200000);
    say(side, "a fifth of a second after the kill NCCL says: %s",
        device_comm_check(side->comm, &err) == PLASMON_OK ? "nothing" : err.text);
    if (pthread_create(&thread, NULL, abort_run, side) != 0) {
        die(side, "pthread_create", "no thread");
    }
    since_ns = pl_now_ns();
    wait_word(side, 0, UINT64_MAX / 2, "the operations of an aborted communicator");
    say(side, "its operations ended %.0f ms after the abort began",
        (double)(pl_now_ns() - since_ns) * 1e-6);
    need(side, device_fill8(side->stream, side->base, 7, 4096), "a fill during the abort",
         NULL);
    need(side, device_signal(side->stream, &side->words[0], UINT64_MAX / 2 + 1), "signal",
         NULL);
    wait_word(side, 0, UINT64_MAX / 2 + 1, "a fill during the abort");
    (void)usleep(1000000);
    say(side, "the abort %s while a stream waits",
        __atomic_load_n(&side->words[32], __ATOMIC_ACQUIRE) != 0
            ? "returned"
            : "HAS NOT RETURNED after 1 s");
    __atomic_store_n(&side->words[8], 1, __ATOMIC_RELEASE);
    wait_word(side, 4, 1, "the abort");
    (void)pthread_join(thread, NULL);
    say(side, "the abort took %.0f ms", side->opened_s * 1e3);
    need(side, device_health(side->device, &err), "the device afterwards", &err);
}

/* -------------------------------------------------------------------------- two of them */

static void side_run(int rank, int to, int from, bool sockets,
                     void (*body)(struct side *side))
{
    struct side side = {.rank = rank, .to = to, .from = from, .sockets = sockets};

    (void)alarm(240); /* whatever happens */
    (void)setenv("NCCL_NVLS_ENABLE", "0", 1);
    (void)setenv("NCCL_SOCKET_IFNAME", "=lo", 1);
    if (sockets) {
        (void)setenv("NCCL_HOSTID", rank == 0 ? "plasmon-a" : "plasmon-b", 1);
    }
    device_start(&side);
    comm_start(&side);
    body(&side);
    _exit(0);
}

static void play(bool sockets, void (*body)(struct side *side), bool second_dies)
{
    int a[2], b[2], status[2];
    pid_t pid[2];

    test_set_timeout(300);
    ASSERT_EQ(pipe(a), 0);
    ASSERT_EQ(pipe(b), 0);
    for (int rank = 0; rank < 2; rank++) {
        (void)fflush(stdout);
        pid[rank] = fork();
        ASSERT_TRUE(pid[rank] >= 0);
        if (pid[rank] == 0) {
            (void)close(rank == 0 ? a[0] : a[1]);
            (void)close(rank == 0 ? b[1] : b[0]);
            side_run(rank, rank == 0 ? a[1] : b[1], rank == 0 ? b[0] : a[0], sockets, body);
        }
    }
    for (int i = 0; i < 2; i++) {
        (void)close(a[i]);
        (void)close(b[i]);
    }
    for (int rank = 0; rank < 2; rank++) {
        ASSERT_EQ(waitpid(pid[rank], &status[rank], 0), pid[rank]);
    }
    if ((WIFEXITED(status[0]) && WEXITSTATUS(status[0]) == SKIP) ||
        (WIFEXITED(status[1]) &&
         WEXITSTATUS(status[1]) == SKIP)) { /* the other wrote to nobody */
        test_skip("no two GPUs with NCCL");
    }
    if (!WIFEXITED(status[0]) || WEXITSTATUS(status[0]) != 0) {
        test_fail(__FILE__, __LINE__, "rank 0: wait status %#x; its last line says where",
                  status[0]);
    }
    if (second_dies ? !WIFSIGNALED(status[1]) || WTERMSIG(status[1]) != SIGKILL
                    : !WIFEXITED(status[1]) || WEXITSTATUS(status[1]) != 0) {
        test_fail(__FILE__, __LINE__, "rank 1: wait status %#x; its last line says where",
                  status[1]);
    }
}

static void measure(struct side *side)
{
    struct device_comm *first = side->comm;

    content(side);
    say(side, "the first pair of a process, with NCCL's kernels: open after %.0f ms",
        side->opened_s * 1e3);
    comm_start(side); /* what a further pair costs */
    figures(side);
    device_comm_close(side->comm);
    device_comm_close(first);
}

TEST(a_pair_over_nvlink)
{
    play(false, measure, false);
}

TEST(a_pair_over_sockets)
{
    play(true, measure, false);
}

TEST(a_peer_that_is_killed_over_nvlink_is_survived)
{
    play(false, survive, true);
}

TEST(a_peer_that_is_killed_over_sockets_is_survived)
{
    play(true, survive, true);
}

/* ----------------------------------------------------------------------------- clusters */

static uint32_t count_gpus(void)
{
    struct plasmon_options options = PLASMON_OPTIONS_INIT;
    struct plasmon_device_info info[8];
    struct plasmon_client *client;
    uint32_t count = 0;

    cluster_tag();
    CLUSTER_OK(plasmon_init(&options, &client));
    CLUSTER_OK(plasmon_devices(client, info, 8, &count));
    plasmon_finish(client);
    cluster_expect_gone(CLUSTER_WAIT_MS);
    if (count < 2 || info[0].kind != 2) {
        test_skip("no two GPUs");
    }
    return count < STRESS_DEVICES_MAX ? count : STRESS_DEVICES_MAX;
}

static void graphs(bool kills)
{
    const struct stress_profile defaults = {.gpu         = true,
                                            .kills       = kills,
                                            .seconds     = 25,
                                            .devices_max = count_gpus(),
                                            .large_bytes = UINT64_C(256) << 20,
                                            .transfer    = "nccl"};
    const struct stress_profile profile  = stress_profile_from(&defaults);

    test_set_timeout(600);
    stress_play(&profile);
}

TEST(random_graphs_by_nccl)
{
    graphs(false);
}

TEST(random_graphs_by_nccl_over_sockets)
{
    ASSERT_EQ(setenv("PLASMON_NCCL_SPLIT_HOST", "1", 1), 0);
    graphs(false);
}

TEST(random_graphs_by_nccl_when_workers_die)
{
    test_expect_log();
    graphs(true);
}

TEST(random_graphs_by_nccl_over_sockets_when_workers_die)
{
    ASSERT_EQ(setenv("PLASMON_NCCL_SPLIT_HOST", "1", 1), 0);
    test_expect_log();
    graphs(true);
}

int main(int argc, char **argv)
{
    return stress_main(argc, argv);
}
