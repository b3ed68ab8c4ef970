/*
 * The host's memory: failure at every step of making it, what chunks are refused, readers' pages,
 * and a queue that fills.
 */
#include "store/host.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/fd.h"
#include "device/device.h"
#include "store/link.h"
#include "store/setup.h"
#include "tests/harness/test.h"

static struct store_host host;

static unsigned open_files(void)
{
    DIR *dir       = opendir("/proc/self/fd");
    unsigned count = 0;

    ASSERT_NOT_NULL(dir);
    while (readdir(dir) != NULL) {
        count++;
    }
    (void)closedir(dir);
    return count;
}

static void host_with_one(uint32_t kind)
{
    struct pl_err err;

    store_host_init(&host);
    ASSERT_OK(store_host_add_device(&host, kind, 0, 64u << 20, 1ull << 30, &err));
}

TEST(a_device_fails_cleanly_at_every_step)
{
    static const char *const points[] = {"fd.memfd", "fd.map"};
    unsigned before                   = open_files();

    for (size_t p = 0; p < PL_COUNT(points); p++) {
        for (unsigned nth = 0;; nth++) {
            struct pl_err err;
            plasmon_status_t status;

            store_host_init(&host);
            pl_fault_arm(points[p], nth);
            status = store_host_add_device(&host, DEVICE_CPU, 0, 0, 1ull << 30, &err);
            if (!pl_fault_disarm()) {
                ASSERT_OK(status);
                ASSERT_TRUE(nth >= 3); /* timeline, table, .. pins */
                store_host_finish(&host);
                break;
            }
            ASSERT_STATUS(status, PLASMON_ENOMEM);
            ASSERT_EQ(host.device_count, 0);
            store_host_finish(&host);
        }
        ASSERT_EQ(open_files(), before);
    }
}

static plasmon_status_t try_chunk(uint32_t id, uint64_t offset, uint64_t bytes,
                                  uint64_t backed, struct pl_err *err)
{
    struct store_chunk chunk = {.id = id, .offset = offset, .bytes = bytes};
    int fd                   = -1;

    if (backed > 0) {
        ASSERT_OK(pl_memfd_create("chunk", backed, &fd));
    }
    return store_host_add_chunk(&host, 0, &chunk, fd, err);
}

TEST(chunks_that_would_harm_a_reader_are_refused)
{
    unsigned before;
    struct pl_err err;

    host_with_one(DEVICE_CPU);
    before = open_files();
    ASSERT_STATUS(try_chunk(0, 0, 4096, 0, &err), PLASMON_EMALFORMED);
    ASSERT_CONTAINS(err.text, "without a descriptor");
    ASSERT_STATUS(try_chunk(0, 0, 8192, 4096, &err), PLASMON_EMALFORMED);
    ASSERT_CONTAINS(err.text, "smaller than it says");
    ASSERT_STATUS(try_chunk(0, 1ull << 30, 4096, 4096, &err), PLASMON_EMALFORMED);
    ASSERT_STATUS(try_chunk(0, UINT64_MAX - 4095, 4096, 4096, &err), PLASMON_EMALFORMED);
    ASSERT_STATUS(try_chunk(0, 0, UINT64_MAX, 4096, &err), PLASMON_EMALFORMED);
    ASSERT_STATUS(try_chunk(0, 0, 0, 4096, &err), PLASMON_EMALFORMED);
    ASSERT_STATUS(try_chunk(STORE_CHUNK_MAX, 0, 4096, 4096, &err), PLASMON_EMALFORMED);
    ASSERT_EQ(open_files(), before); /* taken also on failure */

    ASSERT_OK(try_chunk(0, 0, 4096, 4096, &err));
    ASSERT_STATUS(try_chunk(0, 4096, 4096, 4096, &err), PLASMON_EMALFORMED);
    ASSERT_CONTAINS(err.text, "known already");
    ASSERT_NOT_NULL(store_host_chunk_find(&host, 0, 0));
    ASSERT_NULL(store_host_chunk_find(&host, 0, 1));
    store_host_finish(&host);
}

TEST(readers_have_pages_up_to_the_limit_and_raise_the_epoch)
{
    uint32_t reader = 0;

    host_with_one(DEVICE_CPU);
    for (uint32_t i = 1; i < STORE_READER_MAX; i++) {
        ASSERT_OK(store_host_add_reader(&host, 4711, &reader));
        ASSERT_EQ(reader, i);
        ASSERT_EQ(host.devices[0].timeline->reader_epoch, i);
        ASSERT_EQ(host.pages[i]->owner_pid, 4711);
    }
    ASSERT_STATUS(store_host_add_reader(&host, 1, &reader), PLASMON_ELIMIT);
    store_host_remove_reader(&host, 17);
    ASSERT_NULL(host.pages[17]);
    ASSERT_OK(store_host_add_reader(&host, 2, &reader));
    ASSERT_EQ(reader, 17);
    store_host_finish(&host);
}

TEST(a_full_socket_queues_in_order_up_to_the_limit)
{
    struct store_link out;
    struct store_link in;
    struct store_control message = {.type = STORE_CONTROL_CHUNK};
    struct store_control got;
    struct pl_err err;
    uint64_t sent = 0;
    uint64_t seen = 0;
    int pair[2];
    int fd;
    unsigned before = open_files();

    ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    store_link_init(&out, pair[0], 100);
    store_link_init(&in, pair[1], 100);
    ASSERT_STATUS(store_link_receive(&in, &got, &fd, &err), PLASMON_EAGAIN);
    for (;;) {
        plasmon_status_t status;

        message.offset = sent;
        status         = store_link_send(&out, &message, &pair[0], 1);
        if (status == PLASMON_ELIMIT) {
            break;
        }
        ASSERT_OK(status);
        sent++;
        ASSERT_TRUE(sent < 100000);
    }
    ASSERT_TRUE(store_link_pending(&out));
    ASSERT_TRUE(sent > 100);

    while (seen < sent) {
        plasmon_status_t status = store_link_receive(&in, &got, &fd, &err);

        if (status == PLASMON_EAGAIN) {
            ASSERT_OK(store_link_flush(&out));
            continue;
        }
        ASSERT_OK(status);
        ASSERT_EQ(got.offset, seen);
        ASSERT_TRUE(fd >= 0);
        (void)close(fd);
        seen++;
    }
    ASSERT_TRUE(!store_link_pending(&out));
    /* and one that is never read */
    ASSERT_OK(store_link_send(&out, &message, &pair[0], 1));
    store_link_finish(&out);
    store_link_finish(&in);
    ASSERT_EQ(open_files(), before);
}

TEST(a_peer_that_is_never_quite_up_to_date_costs_no_more_than_the_limit)
{
    struct store_control message = {.type = STORE_CONTROL_CHUNK};
    struct store_link out, in;
    struct store_control got;
    struct pl_err err;
    uint64_t sent = 0, seen = 0;
    int pair[2];
    int fd;

    ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    store_link_init(&out, pair[0], 100);
    store_link_init(&in, pair[1], 100);
    while (sent < 20000) {
        while (out.queue.count - out.sent < 50) {
            message.offset = sent++;
            ASSERT_OK(store_link_send(&out, &message, &pair[0], 1));
        }
        ASSERT_OK(store_link_receive(&in, &got, &fd, &err));
        ASSERT_EQ(got.offset, seen++);
        (void)close(fd);
        ASSERT_OK(store_link_flush(&out));
        ASSERT_TRUE(store_link_pending(&out));
        ASSERT_TRUE(out.queue.count <= 200);
    }
    store_link_finish(&out);
    store_link_finish(&in);
}

TEST(a_full_host_fits_into_a_set_up)
{
    struct store_link out;
    struct store_link in;
    struct store_control got;
    struct pl_err err;
    uint32_t reader;
    unsigned readers = 0;
    int pair[2];

    host_with_one(DEVICE_CPU);
    for (uint32_t i = 1; i < STORE_HOST_DEVICE_MAX; i++) {
        ASSERT_OK(store_host_add_device(&host, DEVICE_CPU, i, 0, 1ull << 30, &err));
    }
    ASSERT_STATUS(store_host_add_device(&host, DEVICE_CPU, 64, 0, 1, &err), PLASMON_ELIMIT);
    for (uint32_t i = STORE_HOST_DEVICE_MAX; i < STORE_READER_MAX; i++) {
        ASSERT_OK(store_host_add_reader(&host, 1, &reader));
    }
    store_host_remove_reader(&host, 100); /* a gap */

    ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    store_link_init(&out, pair[0], 100);
    in = (struct store_link){.fd = pair[1]};
    ASSERT_OK(store_setup_worker(&host, 5, &out));
    for (;;) {
        size_t length  = sizeof(got);
        unsigned count = PL_FD_MAX_PER_MESSAGE;
        int fds[PL_FD_MAX_PER_MESSAGE];

        ASSERT_OK(store_link_flush(&out));
        ASSERT_OK(pl_fd_recv(in.fd, &got, &length, fds, &count));
        ASSERT_EQ(got.type, STORE_CONTROL_SETUP);
        ASSERT_EQ(count, got.count);
        if (got.part == STORE_PART_READERS) {
            readers += count;
            ASSERT_TRUE(got.reader > 5 || got.reader + count <= 5);
            ASSERT_TRUE(got.reader > 100 || got.reader + count <= 100);
        }
        for (unsigned i = 0; i < count; i++) {
            (void)close(fds[i]);
        }
        if (got.part == STORE_PART_DONE) {
            break;
        }
    }
    ASSERT_EQ(readers, STORE_READER_MAX - 2);
    store_link_finish(&out);
    (void)close(pair[1]);
    store_host_finish(&host);
}

TEST_MAIN()
