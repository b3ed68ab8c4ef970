#include "tests/harness/test.h"

#include "base/fault.h"
#include "base/fd.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define BYTES 65536

static int make_memfd(void)
{
    int fd = -1;

    ASSERT_OK(pl_memfd_create("test", BYTES, &fd));
    ASSERT_TRUE(fd >= 0);
    return fd;
}

static void make_pair(int out_ends[2])
{
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, out_ends), 0);
}

static unsigned count_open_fds(void)
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

TEST(a_memfd_is_zeroed_closed_on_exec_and_shared)
{
    int fd = make_memfd();
    void *one, *two;

    ASSERT_TRUE((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
    ASSERT_OK(pl_fd_map(fd, BYTES, 1, &one));
    ASSERT_OK(pl_fd_map(fd, BYTES, 0, &two));
    ASSERT_EQ(((char *)two)[BYTES - 1], 0);
    ((char *)one)[BYTES - 1] = 42;
    ASSERT_EQ(((char *)two)[BYTES - 1], 42);
    pl_fd_unmap(one, BYTES);
    pl_fd_unmap(two, BYTES);
    pl_fd_close(&fd);
    ASSERT_EQ(fd, -1);
    pl_fd_close(&fd); /* fine */
}

TEST(pages_are_made_as_they_are)
{
    int fd = make_memfd();
    void *one, *two;

    ASSERT_OK(pl_fd_map(fd, BYTES, 1, &one));
    ASSERT_OK(pl_fd_map(fd, BYTES, 0, &two));
    ((char *)one)[BYTES - 1] = 42;
    pl_fd_make_pages(one, BYTES);
    pl_fd_make_pages(two, BYTES); /* cannot be done, and is no error */
    ASSERT_EQ(((char *)two)[0], 0);
    ASSERT_EQ(((char *)two)[BYTES - 1], 42);
    pl_fd_unmap(one, BYTES);
    pl_fd_unmap(two, BYTES);
    pl_fd_close(&fd);
}

TEST(a_memfd_cannot_be_resized_nor_its_seals_changed)
{
    int fd = make_memfd();

    ASSERT_EQ(ftruncate(fd, 1), -1);
    ASSERT_EQ(ftruncate(fd, 2 * BYTES), -1);
    ASSERT_EQ(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
    pl_fd_close(&fd);
}

TEST(a_read_only_reopen_reads_and_cannot_be_mapped_writable)
{
    int fd        = make_memfd();
    int read_only = -1;
    void *ptr     = NULL;

    ASSERT_OK(pl_fd_reopen_readonly(fd, &read_only));
    ASSERT_TRUE((fcntl(read_only, F_GETFD) & FD_CLOEXEC) != 0);
    ASSERT_EQ(pwrite(fd, "abc", 3, 100), 3);

    ASSERT_STATUS(pl_fd_map(read_only, BYTES, 1, &ptr), PLASMON_EPERM);
    ASSERT_NULL(ptr);
    ASSERT_EQ(pwrite(read_only, "x", 1, 0), -1);
    ASSERT_OK(pl_fd_map(read_only, BYTES, 0, &ptr));
    ASSERT_EQ(memcmp((char *)ptr + 100, "abc", 3), 0);
    ASSERT_EQ(mprotect(ptr, BYTES, PROT_READ | PROT_WRITE), -1); /* nor made so later */

    pl_fd_unmap(ptr, BYTES);
    pl_fd_close(&read_only);
    pl_fd_close(&fd);
}

TEST(bad_sizes_and_descriptors_are_refused)
{
    void *ptr;
    int fd;

    ASSERT_STATUS(pl_memfd_create("test", 0, &fd), PLASMON_EINVAL);
    ASSERT_STATUS(pl_memfd_create("test", SIZE_MAX, &fd), PLASMON_EINVAL);
    ASSERT_STATUS(pl_fd_map(-1, BYTES, 0, &ptr), PLASMON_EINVAL);
    ASSERT_STATUS(pl_fd_reopen_readonly(-1, &fd), PLASMON_ENOENT);
}

TEST(faults_stop_creation_and_mapping_without_a_leak)
{
    int fd          = make_memfd();
    unsigned before = count_open_fds();
    int other       = -1;
    void *ptr;

    pl_fault_arm("fd.memfd", 0);
    ASSERT_STATUS(pl_memfd_create("test", BYTES, &other), PLASMON_ENOMEM);
    pl_fault_arm("fd.map", 0);
    ASSERT_STATUS(pl_fd_map(fd, BYTES, 1, &ptr), PLASMON_ENOMEM);
    ASSERT_TRUE(pl_fault_disarm());
    ASSERT_EQ(other, -1);
    ASSERT_EQ(count_open_fds(), before);
    pl_fd_close(&fd);
}

TEST(memory_passes_to_another_process_by_descriptor)
{
    int fd = make_memfd();
    int ends[2];
    int status;
    pid_t pid;
    void *ptr;

    make_pair(ends);
    (void)fflush(stdout);
    pid = fork();
    ASSERT_TRUE(pid >= 0);
    if (pid == 0) { /* only what comes through the socket is used here */
        size_t bytes   = 16;
        unsigned count = 1;
        char text[16];
        int got;

        pl_fd_close(&fd);
        if (pl_fd_recv(ends[1], text, &bytes, &got, &count) != PLASMON_OK || count != 1 ||
            bytes != 5 || memcmp(text, "take!", 5) != 0 ||
            pwrite(got, "taken", 5, 1000) != 5) {
            _exit(1);
        }
        _exit(0);
    }
    ASSERT_OK(pl_fd_send(ends[0], "take!", 5, &fd, 1));
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    ASSERT_EQ(status, 0);
    ASSERT_OK(pl_fd_map(fd, BYTES, 0, &ptr));
    ASSERT_EQ(memcmp((char *)ptr + 1000, "taken", 5), 0);
    pl_fd_unmap(ptr, BYTES);
    pl_fd_close(&ends[0]);
    pl_fd_close(&ends[1]);
    pl_fd_close(&fd);
}

TEST(messages_keep_their_bounds_and_order)
{
    char text[64];
    int ends[2];

    make_pair(ends);
    for (size_t length = 1; length <= 30; length++) {
        ASSERT_OK(pl_fd_send(ends[0], "abcdefghijklmnopqrstuvwxyz0123", length, NULL, 0));
    }
    for (size_t length = 1; length <= 30; length++) {
        size_t bytes   = sizeof(text);
        unsigned count = 0;

        ASSERT_OK(pl_fd_recv(ends[1], text, &bytes, NULL, &count));
        ASSERT_EQ(bytes, length);
        ASSERT_EQ(count, 0);
    }
    pl_fd_close(&ends[0]);
    pl_fd_close(&ends[1]);
}

TEST(as_many_descriptors_as_allowed_arrive_in_order_and_closed_on_exec)
{
    int sent[PL_FD_MAX_PER_MESSAGE + 1];
    int got[PL_FD_MAX_PER_MESSAGE];
    unsigned count = PL_FD_MAX_PER_MESSAGE;
    size_t bytes   = 1;
    char byte;
    int ends[2];

    make_pair(ends);
    for (unsigned i = 0; i <= PL_FD_MAX_PER_MESSAGE; i++) {
        ASSERT_OK(pl_memfd_create("test", i + 1, &sent[i])); /* the size tells them apart */
    }
    ASSERT_STATUS(pl_fd_send(ends[0], "x", 1, sent, PL_FD_MAX_PER_MESSAGE + 1),
                  PLASMON_ELIMIT);
    ASSERT_OK(pl_fd_send(ends[0], "x", 1, sent, PL_FD_MAX_PER_MESSAGE));
    ASSERT_OK(pl_fd_recv(ends[1], &byte, &bytes, got, &count));
    ASSERT_EQ(count, PL_FD_MAX_PER_MESSAGE);
    for (unsigned i = 0; i < count; i++) {
        struct stat stat;

        ASSERT_EQ(fstat(got[i], &stat), 0);
        ASSERT_EQ(stat.st_size, i + 1);
        ASSERT_TRUE((fcntl(got[i], F_GETFD) & FD_CLOEXEC) != 0);
        pl_fd_close(&got[i]);
    }
    for (unsigned i = 0; i <= PL_FD_MAX_PER_MESSAGE; i++) {
        pl_fd_close(&sent[i]);
    }
    pl_fd_close(&ends[0]);
    pl_fd_close(&ends[1]);
}

/*
 * A message of `length` bytes and `fd_count` descriptors to a receiver that allows 4 bytes and 2
 * descriptors.
 */
static plasmon_status_t send_to_a_small_receiver(size_t length, unsigned fd_count)
{
    int fds[5]     = {STDIN_FILENO, STDIN_FILENO, STDIN_FILENO, STDIN_FILENO, STDIN_FILENO};
    int got[2]     = {-1, -1};
    size_t bytes   = 4;
    unsigned count = 2;
    plasmon_status_t status;
    char text[4];
    int ends[2];

    make_pair(ends);
    ASSERT_OK(pl_fd_send(ends[0], "0123456789", length, fds, fd_count));
    status = pl_fd_recv(ends[1], text, &bytes, got, &count);
    if (status == PLASMON_OK) {
        for (unsigned i = 0; i < count; i++) {
            pl_fd_close(&got[i]);
        }
    }
    pl_fd_close(&ends[0]);
    pl_fd_close(&ends[1]);
    return status;
}

TEST(messages_too_large_for_the_receiver_leak_no_descriptor)
{
    unsigned before = count_open_fds();

    ASSERT_OK(send_to_a_small_receiver(4, 2));
    ASSERT_STATUS(send_to_a_small_receiver(5, 2), PLASMON_EMALFORMED);
    ASSERT_STATUS(send_to_a_small_receiver(4, 3), PLASMON_EMALFORMED);
    ASSERT_STATUS(send_to_a_small_receiver(10, 5), PLASMON_EMALFORMED);
    ASSERT_EQ(count_open_fds(), before);
}

/* From here on no descriptor can be made; returns what the limit was. */
static struct rlimit no_more_descriptors(void)
{
    struct rlimit limit, none;
    int next = dup(STDIN_FILENO);

    ASSERT_TRUE(next >= 0);
    ASSERT_EQ(close(next), 0);
    ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
    none          = limit;
    none.rlim_cur = (rlim_t)next;
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
    return limit;
}

/* It is not the peer's fault, and what comes next is as good as ever. */
TEST(a_receiver_without_descriptors_is_told_apart_from_a_peer_that_sends_too_many)
{
    static const int fds[3] = {STDIN_FILENO, STDIN_FILENO, STDIN_FILENO};
    unsigned before         = count_open_fds();
    struct rlimit limit;
    char byte = 0;
    int ends[2];

    make_pair(ends);
    for (unsigned left = 0; left < 3; left++) {
        int got[PL_FD_MAX_PER_MESSAGE];
        unsigned count = PL_FD_MAX_PER_MESSAGE;
        size_t bytes   = 1;
        struct rlimit some;

        ASSERT_OK(pl_fd_send(ends[0], "a", 1, fds, 3));
        ASSERT_OK(pl_fd_send(ends[0], "b", 1, fds, 1));
        limit = no_more_descriptors();
        ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &some), 0);
        some.rlim_cur += left;
        ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &some), 0);
        ASSERT_STATUS(pl_fd_recv(ends[1], &byte, &bytes, got, &count), PLASMON_ELIMIT);
        ASSERT_EQ(count, 0);
        ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);

        count = PL_FD_MAX_PER_MESSAGE;
        ASSERT_OK(pl_fd_recv(ends[1], &byte, &bytes, got, &count));
        ASSERT_EQ(byte, 'b');
        ASSERT_EQ(count, 1);
        pl_fd_close(&got[0]);
    }
    pl_fd_close(&ends[0]);
    pl_fd_close(&ends[1]);
    ASSERT_EQ(count_open_fds(), before);
}

TEST(a_peer_that_sends_more_descriptors_than_allowed_leaks_none)
{
    enum { COUNT = 100 };
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(COUNT * sizeof(int))];
    } control              = {0};
    char byte              = 'x';
    struct iovec part      = {.iov_base = &byte, .iov_len = 1};
    struct msghdr message  = {.msg_iov        = &part,
                              .msg_iovlen     = 1,
                              .msg_control    = control.bytes,
                              .msg_controllen = sizeof(control.bytes)};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    int got[PL_FD_MAX_PER_MESSAGE];
    unsigned count = PL_FD_MAX_PER_MESSAGE;
    size_t bytes   = 1;
    unsigned before;
    int ends[2];

    make_pair(ends);
    before             = count_open_fds();
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type  = SCM_RIGHTS;
    header->cmsg_len   = CMSG_LEN(COUNT * sizeof(int)); /* the zeros in it are stdin */
    ASSERT_EQ(sendmsg(ends[0], &message, 0), 1);
    ASSERT_STATUS(pl_fd_recv(ends[1], &byte, &bytes, got, &count), PLASMON_EMALFORMED);
    ASSERT_EQ(count_open_fds(), before);
    pl_fd_close(&ends[0]);
    pl_fd_close(&ends[1]);
}

TEST(a_closed_peer_is_told_apart_from_an_empty_message)
{
    size_t bytes   = 8;
    unsigned count = 0;
    char text[8];
    int ends[2];

    make_pair(ends);
    ASSERT_STATUS(pl_fd_send(ends[0], "", 0, NULL, 0), PLASMON_EINVAL);
    pl_fd_close(&ends[0]);
    ASSERT_STATUS(pl_fd_recv(ends[1], text, &bytes, NULL, &count), PLASMON_ECLOSED);
    ASSERT_EQ(bytes, 0);
    ASSERT_STATUS(pl_fd_send(ends[1], "x", 1, NULL, 0),
                  PLASMON_ECLOSED); /* and no SIGPIPE */
    pl_fd_close(&ends[1]);
}

TEST_MAIN()
