/*
 * One end of a control socket: what the other side does not take waits in order and up to a limit,
 * and what cannot be taken is said.
 */
#include "store/link.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "tests/harness/test.h"

static struct store_link near, far;

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

static void begin(uint32_t queue_max)
{
    int pair[2];

    ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    store_link_init(&near, pair[0], queue_max);
    store_link_init(&far, pair[1], queue_max);
}

static void end(void)
{
    store_link_finish(&near);
    store_link_finish(&far);
}

static plasmon_status_t send_number(uint32_t number)
{
    static const int fd          = STDIN_FILENO;
    struct store_control message = {.type = STORE_CONTROL_CHUNK, .chunk_id = number};

    return store_link_send(&near, &message, &fd, number % 2);
}

/*
 * Those up to `end` are there, in order, each odd one with a descriptor. Returns the first one that
 * is not.
 */
static uint32_t receive_numbers(uint32_t first)
{
    struct store_control message;
    plasmon_status_t status;
    struct pl_err err;
    int fd;

    while ((status = store_link_receive(&far, &message, &fd, &err)) == PLASMON_OK) {
        ASSERT_EQ(message.chunk_id, first);
        ASSERT_EQ(message.count, first % 2);
        ASSERT_EQ(fd >= 0, first % 2);
        pl_fd_close(&fd);
        first++;
    }
    ASSERT_STATUS(status, PLASMON_EAGAIN);
    return first;
}

TEST(what_the_other_side_does_not_take_waits_in_order_and_up_to_the_limit)
{
    unsigned before = open_files();
    uint32_t sent = 0, got = 0;
    uint64_t random = test_seed();

    begin(40);
    for (unsigned round = 0; round < 50; round++) {
        plasmon_status_t status;

        while ((status = send_number(sent)) == PLASMON_OK) {
            sent++;
        }
        ASSERT_STATUS(status, PLASMON_ELIMIT);
        ASSERT_TRUE(store_link_pending(&near));
        ASSERT_EQ(near.queue.count - near.sent, 40);
        ASSERT_TRUE(near.queue.count <= 80);
        got = receive_numbers(got);
        ASSERT_EQ(got, sent - 40);
        while (store_link_pending(&near) && test_random(&random) % 8 != 0) {
            ASSERT_OK(store_link_flush(&near));
            got = receive_numbers(got);
        }
    }
    ASSERT_OK(store_link_flush(&near));
    end(); /* with descriptors in the queue, perhaps */
    ASSERT_EQ(open_files(), before);
}

TEST(what_cannot_be_taken_is_said)
{
    struct store_control message = {.version = STORE_CONTROL_VERSION};
    static const int fds[2]      = {STDIN_FILENO, STDIN_FILENO};
    unsigned before              = open_files();
    struct rlimit limit, none;
    struct pl_err err = {0};
    int fd, next;

    begin(8);
    ASSERT_OK(pl_fd_send(near.fd, &message, sizeof(message), fds, 2));
    ASSERT_STATUS(store_link_receive(&far, &message, &fd, &err), PLASMON_EMALFORMED);
    ASSERT_CONTAINS(err.text, "more descriptors");

    ASSERT_OK(send_number(1));
    next = dup(STDIN_FILENO);
    ASSERT_EQ(close(next), 0);
    ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
    none          = limit;
    none.rlim_cur = (rlim_t)next;
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
    ASSERT_STATUS(store_link_receive(&far, &message, &fd, &err), PLASMON_ELIMIT);
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
    ASSERT_EQ(fd, -1);
    ASSERT_CONTAINS(err.text, "LimitNOFILE");

    store_link_finish(&near);
    ASSERT_STATUS(store_link_receive(&far, &message, &fd, &err), PLASMON_ECLOSED);
    ASSERT_TRUE(err.text[0] != '\0');
    end();
    ASSERT_EQ(open_files(), before);
}

TEST_MAIN()
