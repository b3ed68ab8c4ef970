/*
 * Two processes and one memory. The child is forked before either touches a device (a driver does
 * not survive fork), so each opens its own. What passes between them are descriptors over a socket,
 * and words in shared memory.
 *
 * A child's assertions end it with a message; its parent sees the status.
 */
#include "tests/harness/alone.h"
#include "tests/unit/device/contract.h"

#include "base/fd.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define BYTES  100000u
#define ROUNDS 1000u
/* Two processes take turns on one GPU, and each wait lasts a turn. */
#define ROUNDS_OF_A_GPU 50u

static uint64_t rounds(void)
{
    return contract_kind == DEVICE_CUDA ? ROUNDS_OF_A_GPU : ROUNDS;
}

struct pair {
    pid_t child;
    int socket;   /* this side's end */
    int words_fd; /* shared by both */
};

typedef void (*child_fn)(struct pair *pair);

/* Start `run` in a child; it ends with status 0 when `run` returns. */
static void pair_start(struct pair *pair, child_fn run)
{
    int sockets[2];

    ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets), 0);
    ASSERT_OK(pl_memfd_create("pair-words", contract_words_bytes(), &pair->words_fd));
    (void)fflush(stdout);
    pair->child = fork();
    ASSERT_TRUE(pair->child >= 0);
    if (pair->child == 0) {
        close(sockets[0]);
        pair->socket = sockets[1];
        run(pair);
        (void)fflush(stdout);
        _exit(0);
    }
    close(sockets[1]);
    pair->socket = sockets[0];
}

static int pair_wait(struct pair *pair)
{
    int status;

    pl_fd_close(&pair->socket);
    pl_fd_close(&pair->words_fd);
    ASSERT_EQ(waitpid(pair->child, &status, 0), pair->child);
    return status;
}

static void send_fd(int socket, int fd)
{
    ASSERT_OK(pl_fd_send(socket, "c", 1, &fd, 1));
}

/* The descriptor and, behind the end of the stream, the end: a parent that skips closes its socket. */
static int receive_fd(int socket)
{
    char text;
    size_t length  = 1;
    int fd         = -1;
    unsigned count = 1;

    if (pl_fd_recv(socket, &text, &length, &fd, &count) != PLASMON_OK || count != 1) {
        _exit(0);
    }
    return fd;
}

static void pattern_write(struct contract *c, uint64_t seed)
{
    uint8_t *bytes = malloc(BYTES);

    for (size_t i = 0; i < BYTES; i++) {
        bytes[i] = contract_pattern(seed, i);
    }
    contract_upload(c, c->memory, bytes, BYTES);
    free(bytes);
}

/* Map somebody else's chunk in the second half of our range. */
static struct device_ptr foreign_map(struct contract *c, int fd, bool writable)
{
    struct device_ptr where = device_ptr_add(c->range, c->chunk_bytes);

    ASSERT_OK(device_chunk_map(c->device, fd, c->chunk_bytes, 0, writable, where));
    return where;
}

static void pattern_check(struct contract *c, struct device_ptr at, uint64_t seed)
{
    uint8_t *bytes = malloc(BYTES);

    contract_download(c, bytes, at, BYTES);
    for (size_t i = 0; i < BYTES; i++) {
        ASSERT_EQ(bytes[i], contract_pattern(seed, i));
    }
    free(bytes);
}

/* ------------------------------------------------------------------------------------------------ */

static void reader(struct pair *pair)
{
    int fd = receive_fd(pair->socket);
    struct device_ptr where;
    struct contract c;

    contract_open(&c);
    where = foreign_map(&c, fd, false);
    pl_fd_close(&fd);
    pattern_check(&c, where, 11);
    device_chunk_unmap(c.device, where, c.chunk_bytes);
    contract_close(&c);
    ASSERT_OK(pl_fd_send(pair->socket, "k", 1, NULL, 0));
}

TEST_ALONE(another_process_maps_a_chunk_and_reads_it)
{
    struct pair pair;
    struct contract c;
    char answer    = '?';
    size_t length  = 1;
    unsigned count = 0;

    test_set_timeout(60);
    pair_start(&pair, reader);
    contract_open(&c);
    pattern_write(&c, 11);
    send_fd(pair.socket, c.chunk);
    ASSERT_OK(pl_fd_recv(pair.socket, &answer, &length, NULL, &count));
    ASSERT_EQ(answer, 'k');
    ASSERT_EQ(pair_wait(&pair), 0);
    contract_close(&c);
}

/* The child fills a line of our chunk each round; we copy it out, and wait before the child has signalled. */
static void producer(struct pair *pair)
{
    int fd = receive_fd(pair->socket);
    struct device_ptr line;
    struct contract c;

    contract_open_sharing(&c, pair->words_fd);
    line = foreign_map(&c, fd, true);
    pl_fd_close(&fd);
    for (uint64_t i = 1; i <= rounds(); i++) {
        ASSERT_OK(device_wait(c.stream, &c.words[8], i - 1));
        ASSERT_OK(device_fill8(c.stream, line, (uint8_t)(i * 29), 64));
        ASSERT_OK(device_signal(c.stream, &c.words[0], i));
    }
    ASSERT_OK(device_stream_sync(c.stream, NULL));
    device_chunk_unmap(c.device, line, c.chunk_bytes);
    contract_close(&c);
}

TEST_ALONE(a_timeline_orders_the_streams_of_two_processes)
{
    uint8_t *got = malloc(rounds() * 64);
    struct pair pair;
    struct contract c;

    test_set_timeout(120);
    pair_start(&pair, producer);
    contract_open_sharing(&c, pair.words_fd);
    send_fd(pair.socket, c.chunk);
    for (uint64_t i = 1; i <= rounds(); i++) {
        ASSERT_OK(device_wait(c.stream, &c.words[0], i));
        ASSERT_OK(device_copy(c.stream, DEVICE_COPY_DEVICE_TO_DEVICE,
                              c.memory.addr + 4096 + (i - 1) * 64, c.memory.addr, 64));
        ASSERT_OK(device_signal(c.stream, &c.words[8], i));
    }
    contract_download(&c, got, device_ptr_add(c.memory, 4096), rounds() * 64);
    for (size_t i = 0; i < rounds() * 64; i++) {
        ASSERT_EQ(got[i], (uint8_t)((i / 64 + 1) * 29));
    }
    ASSERT_EQ(pair_wait(&pair), 0);
    contract_close(&c);
    free(got);
}

static void maker_that_dies(struct pair *pair)
{
    struct contract c;

    contract_open(&c);
    pattern_write(&c, 13);
    send_fd(pair->socket, c.chunk);
    (void)raise(SIGKILL);
}

TEST_ALONE(memory_outlives_its_killed_maker)
{
    struct pair pair;
    struct contract c;
    struct device_ptr where;
    int status;
    int fd         = -1;
    char text      = '?';
    size_t length  = 1;
    unsigned count = 1;
    bool received;

    test_set_timeout(60);
    pair_start(&pair, maker_that_dies);
    received =
        pl_fd_recv(pair.socket, &text, &length, &fd, &count) == PLASMON_OK && count == 1;
    status = pair_wait(&pair);
    /* skips when there is no device: then the child had nothing to send */
    contract_open(&c);
    ASSERT_TRUE(received);
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);

    where = foreign_map(&c, fd, false);
    pattern_check(&c, where, 13);
    device_chunk_unmap(c.device, where, c.chunk_bytes);
    pl_fd_close(&fd);
    contract_close(&c);
}

/*
 * A stream of another process that waits is released by a plain store and a wake, as the store does
 * for the dead.
 */
static void waiter(struct pair *pair)
{
    struct contract c;

    contract_open_sharing(&c, pair->words_fd);
    ASSERT_OK(device_signal(c.stream, &c.words[16], 1)); /* here we are */
    ASSERT_OK(device_wait(c.stream, &c.words[0], 1ull << 40));
    ASSERT_OK(device_signal(c.stream, &c.words[8], 1));
    ASSERT_OK(device_stream_sync(c.stream, NULL));
    contract_close(&c);
}

TEST_ALONE(a_store_by_another_process_releases_a_waiting_stream)
{
    struct pair pair;
    struct contract c;

    test_set_timeout(60);
    pair_start(&pair, waiter);
    contract_open_sharing(&c, pair.words_fd);
    ASSERT_OK(device_wait(c.stream, &c.words[16], 1));
    ASSERT_OK(device_stream_sync(c.stream, NULL));
    ASSERT_EQ(contract_word_load(&c.words[8]), 0);
    contract_gate_open(&c.words[0], 1ull << 40); /* the low half does not change */
    ASSERT_EQ(pair_wait(&pair), 0);
    ASSERT_EQ(contract_word_load(&c.words[8]), 1);
    contract_close(&c);
}
