/*
 * A worker that has no device: it speaks the control protocol and says on standard error what it
 * sees, for test_daemon.c and test_embedded.c. $FAKE_WORKER chooses how it misbehaves.
 *
 *   (nothing)  makes a chunk and seals a buffer in it when the table is empty; reports what it
 *              finds otherwise
 *   exit       exits at once
 *   garbage    its first incarnation sends a broken message once it is ready
 *   stubborn   ignores SIGTERM and end of file
 *   mute       does not even read its set-up
 *   stuck      its first incarnation shows one beat and never another
 */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fd.h"
#include "store/control.h"
#include "store/table.h"
#include "store/timeline.h"

#define CHUNK_BYTES (2u << 20)

static struct {
    uint32_t device;
    uint32_t incarnation;
    int control;
    int head;
    struct store_table *table;
    struct store_timeline *timeline;
    char *chunk; /* our first one */
    uint32_t own_chunks;
    uint32_t peer_chunks;
    uint32_t readers;
} fake = {.control = -1, .head = -1};

static int is(const char *mode)
{
    const char *chosen = getenv("FAKE_WORKER");

    return chosen != NULL && strcmp(chosen, mode) == 0;
}

static const char *argument(int argc, char **argv, const char *name)
{
    for (int i = 1; i + 1 < argc; i++) {
        if (strcmp(argv[i], name) == 0) {
            return argv[i + 1];
        }
    }
    return NULL;
}

static void *map(int fd, uint64_t bytes, int writable)
{
    void *ptr;

    PL_CHECK(pl_fd_map(fd, bytes, writable, &ptr) == PLASMON_OK);
    return ptr;
}

static void say(uint32_t type, const struct store_control *content, const int *fds,
                unsigned count)
{
    struct store_control message = *content;

    message.version = STORE_CONTROL_VERSION;
    message.type    = type;
    PL_CHECK(pl_fd_send(fake.control, &message, sizeof(message), fds, count) == PLASMON_OK);
}

static void take_setup(const struct store_control *message, const int *fds)
{
    if (message->part == STORE_PART_TABLES) {
        fake.table = map(fds[fake.device], message->bytes, 1);
        for (uint32_t i = 0; i < message->count; i++) {
            int writable = (fcntl(fds[i], F_GETFL) & O_ACCMODE) == O_RDWR;

            PL_CHECK(writable == (i == fake.device)); /* one writer a table */
        }
    } else if (message->part == STORE_PART_TIMELINES) {
        fake.timeline = map(fds[fake.device], message->bytes, 1);
    } else if (message->part == STORE_PART_READERS) {
        fake.readers += message->count;
    }
}

static void take_chunk(const struct store_control *message, int fd)
{
    int writable = (fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDWR;

    if (message->host_device != fake.device) {
        PL_CHECK(!writable);
        fake.peer_chunks++;
        (void)fprintf(stderr, "fake %u: chunk %u of peer %u\n", fake.device,
                      message->chunk_id, message->host_device);
        return;
    }
    PL_CHECK(writable);
    fake.own_chunks++;
    if (message->chunk_id == 0) {
        fake.chunk = map(fd, message->bytes, 1);
    }
}

static void make_chunk(uint32_t id, uint32_t client_writable)
{
    struct store_control message = {.host_device     = fake.device,
                                    .chunk_id        = id,
                                    .client_writable = client_writable,
                                    .offset          = (uint64_t)id * CHUNK_BYTES,
                                    .bytes           = CHUNK_BYTES};
    struct store_chunk chunk     = {.offset          = message.offset,
                                    .bytes           = message.bytes,
                                    .client_writable = client_writable,
                                    .id              = id};
    int fd;

    PL_CHECK(pl_memfd_create("fake-chunk", CHUNK_BYTES, &fd) == PLASMON_OK);
    if (id == 0) {
        fake.chunk = map(fd, CHUNK_BYTES, 1);
    }
    say(STORE_CONTROL_CHUNK_ADD, &message, &fd, 1);
    PL_CHECK(store_table_add_chunk(fake.table, &chunk) == PLASMON_OK);
    pl_fd_close(&fd);
}

static void work(void)
{
    struct pl_shape frame = {.dtype = PL_U8, .ndim = 1, .dim = {64}};

    if (fake.table->chunk_count > 0) {
        return;
    }
    make_chunk(0, 0);
    make_chunk(1, 1);
    for (uint32_t slot = 0; slot < 3; slot++) {
        store_table_alloc(fake.table, slot, 1, slot * 4096, &frame, 0, 1);
    }
    (void)snprintf(fake.chunk, CHUNK_BYTES, "written by the first");
    store_table_seal(fake.table, 0);
    store_table_seal(fake.table, 1);
    store_table_doom(fake.table, 1); /* and never freed: the store must */
}

static void ready(void)
{
    struct store_control message = {.host_device = fake.device};

    work();
    (void)snprintf(message.text, sizeof(message.text),
                   "chunks %u/%u states %u%u%u timeline %u text %s", fake.own_chunks,
                   fake.table->chunk_count, fake.table->entries[0].state,
                   fake.table->entries[1].state, fake.table->entries[2].state,
                   fake.timeline->incarnation, fake.chunk != NULL ? fake.chunk : "-");
    say(STORE_CONTROL_READY, &message, NULL, 0);
    if (fake.incarnation == 1 && is("stuck")) {
        __atomic_store_n(&fake.timeline->beat, 1, __ATOMIC_RELEASE);
    }
    if (fake.incarnation == 1 && is("garbage")) {
        (void)!write(fake.control, "nonsense", 8);
    }
}

static void take(const struct store_control *message, int *fds)
{
    switch (message->type) {
    case STORE_CONTROL_SETUP:
        take_setup(message, fds);
        if (message->part == STORE_PART_DONE) {
            ready();
        }
        break;
    case STORE_CONTROL_CHUNK:
        take_chunk(message, fds[0]);
        break;
    case STORE_CONTROL_CHUNKS_KEPT:
        (void)fprintf(stderr, "fake %u: chunks below %u are kept\n", fake.device,
                      message->chunk_id);
        break;
    case STORE_CONTROL_PINS_ADD:
        (void)fprintf(stderr, "fake %u: reader %u came\n", fake.device, message->reader);
        break;
    case STORE_CONTROL_PINS_REMOVE:
        (void)fprintf(stderr, "fake %u: reader %u went\n", fake.device, message->reader);
        break;
    case STORE_CONTROL_PEER_UP:
        (void)fprintf(stderr, "fake %u: peer %u up\n", fake.device, message->host_device);
        break;
    default:
        break;
    }
}

int main(int argc, char **argv)
{
    const char *head = argument(argc, argv, "--head-fd");

    if (argc == 2 && strcmp(argv[1], "--probe") == 0) {
        return 0; /* no GPU */
    }
    if (is("exit")) {
        return 3;
    }
    if (is("stubborn")) {
        (void)signal(SIGTERM, SIG_IGN);
    }
    fake.control     = atoi(argument(argc, argv, "--control-fd"));
    fake.device      = (uint32_t)atoi(argument(argc, argv, "--host-device"));
    fake.incarnation = (uint32_t)atoi(argument(argc, argv, "--incarnation"));
    if (head != NULL) {
        char text[5] = "";

        fake.head = atoi(head);
        (void)fcntl(fake.head, F_SETFL, 0);
        PL_CHECK(read(fake.head, text, 4) == 4 && strcmp(text, "head") == 0);
    }

    while (!is("mute")) {
        struct store_control message;
        size_t length  = sizeof(message);
        unsigned count = PL_FD_MAX_PER_MESSAGE;
        int fds[PL_FD_MAX_PER_MESSAGE];
        plasmon_status_t status = pl_fd_recv(fake.control, &message, &length, fds, &count);

        if (status != PLASMON_OK) {
            break;
        }
        PL_CHECK(length == sizeof(message) && message.version == STORE_CONTROL_VERSION &&
                 message.count == count);
        take(&message, fds);
        for (unsigned i = 0; i < count; i++) {
            pl_fd_close(&fds[i]);
        }
    }
    while (is("stubborn") || is("mute")) {
        (void)pause();
    }
    return 0;
}
