/* What a worker says to its store. */
#include "worker/shared.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "base/fd.h"
#include "tests/harness/test.h"

/* Nobody uses it, so a store that comes later must not keep it under a number that the next chunk gets. */
TEST(a_chunk_that_could_not_be_sent_is_not_handed_back)
{
    static struct worker_shared shared; /* large */
    struct store_control message = {.type = STORE_CONTROL_CHUNK_ADD, .bytes = 1};
    plasmon_status_t status      = PLASMON_OK;
    int pair[2], fd = memfd_create("chunk", MFD_CLOEXEC);

    ASSERT_TRUE(fd >= 0);
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair),
              0);
    worker_shared_init(&shared, pair[0]);
    shared.handback.socket_path = "/nowhere"; /* another store may come */
    ASSERT_OK(worker_shared_send(&shared, &message, fd));
    ASSERT_EQ(shared.handback.kept.count, 1);
    while (status == PLASMON_OK) { /* the store does not read */
        message.chunk_id++;
        status = worker_shared_send(&shared, &message, fd);
    }
    ASSERT_STATUS(status, PLASMON_EAGAIN);
    ASSERT_EQ(shared.handback.kept.count, message.chunk_id);
    pl_fd_close(&pair[1]);
    ASSERT_OK(worker_shared_send(&shared, &message, fd)); /* but this one, to the next */
    ASSERT_EQ(shared.handback.kept.count, message.chunk_id + 1);
    worker_shared_finish(&shared);
    pl_fd_close(&fd);
}

TEST_MAIN()
