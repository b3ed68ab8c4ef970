/*
 * Disks that do not do as they are told: calls that are interrupted, do less than was asked, find
 * no room half way, or find out only when the bytes are to be written for good. What is said to be
 * there is there, byte for byte; what is not leaves nothing.
 *
 * This program has its own pread(), pwrite(), fallocate() and fdatasync(), which the store's files
 * are linked with.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fault.h"
#include "store/spill_files.h"
#include "tests/harness/test.h"

#define BYTES (600u << 10)

static struct {
    uint64_t random;  /* 0: calls do what they are to do */
    uint64_t room;    /* bytes that can still be written */
    int write_error;  /* when there is no room */
    int place_error;  /* of fallocate() */
    int settle_error; /* of fdatasync() */
    int read_error;
    uint64_t read_end; /* nothing is behind it */
    unsigned interrupted, shortened;
} disk;

static void disk_good(void)
{
    memset(&disk, 0, sizeof(disk));
    disk.room     = UINT64_MAX;
    disk.read_end = UINT64_MAX;
}

/* How much of it is done now; 0: it is interrupted. */
static size_t part_of(size_t bytes)
{
    if (disk.random == 0 || bytes == 0) {
        return bytes;
    }
    if (test_random(&disk.random) % 3 == 0) {
        disk.interrupted++;
        return 0;
    }
    disk.shortened++;
    return 1 + test_random(&disk.random) % bytes;
}

ssize_t pwrite(int fd, const void *data, size_t bytes, off_t offset)
{
    size_t part = part_of(bytes);
    ssize_t wrote;

    if (part == 0 || disk.room == 0) {
        errno = part == 0 ? EINTR : disk.write_error;
        return -1;
    }
    part  = part < disk.room ? part : (size_t)disk.room;
    wrote = syscall(SYS_pwrite64, fd, data, part, offset);
    disk.room -= wrote > 0 && disk.room != UINT64_MAX ? (uint64_t)wrote : 0;
    return wrote;
}

ssize_t pread(int fd, void *data, size_t bytes, off_t offset)
{
    size_t part = part_of(bytes);

    if (part == 0 || disk.read_error != 0) {
        errno = part == 0 ? EINTR : disk.read_error;
        return -1;
    }
    if ((uint64_t)offset >= disk.read_end) {
        return 0;
    }
    part =
        part < disk.read_end - (uint64_t)offset ? part : disk.read_end - (uint64_t)offset;
    return syscall(SYS_pread64, fd, data, part, offset);
}

int fallocate(int fd, int mode, off_t offset, off_t bytes)
{
    if ((mode & FALLOC_FL_PUNCH_HOLE) == 0 && disk.place_error != 0) {
        errno = disk.place_error;
        return -1;
    }
    return (int)syscall(SYS_fallocate, fd, mode, offset, bytes);
}

int fdatasync(int fd)
{
    if (disk.settle_error != 0) {
        errno = disk.settle_error;
        return -1;
    }
    return (int)syscall(SYS_fdatasync, fd);
}

static uint8_t data[BYTES], back[BYTES];
static char dirs[2][64];
static struct store_spill_files files;

static void begin(void)
{
    const char *list[2] = {dirs[0], dirs[1]};
    struct pl_err err;

    disk_good();
    for (unsigned i = 0; i < 2; i++) {
        (void)snprintf(dirs[i], sizeof(dirs[i]), "/tmp/plasmon-test-spill-io-XXXXXX");
        ASSERT_NOT_NULL(mkdtemp(dirs[i]));
    }
    for (size_t i = 0; i < BYTES; i++) {
        data[i] = (uint8_t)(i * 31 + (i >> 8) * 7);
    }
    ASSERT_OK(store_spill_files_init(&files, list, 2, &err));
}

static void end(void)
{
    store_spill_files_finish(&files);
    ASSERT_EQ(rmdir(dirs[0]), 0);
    ASSERT_EQ(rmdir(dirs[1]), 0);
}

static void expect_there(uint64_t number)
{
    struct pl_err err;

    memset(back, 0, sizeof(back));
    ASSERT_OK(store_spill_files_read(&files, number, back, BYTES, &err));
    ASSERT_EQ(memcmp(data, back, BYTES), 0);
}

/* Of the first directory. */
static uint64_t blocks_taken(void)
{
    struct stat about;

    ASSERT_EQ(fstat(files.dirs[0].fd, &about), 0);
    return (uint64_t)about.st_blocks;
}

TEST(calls_that_are_interrupted_or_do_less_are_gone_on_with)
{
    struct pl_err err;

    begin();
    disk.random = test_seed() | 1;
    for (uint64_t number = 1; number <= 5; number++) {
        ASSERT_OK(store_spill_files_write(&files, number, data, BYTES, &err));
    }
    for (uint64_t number = 1; number <= 5; number++) {
        expect_there(number);
    }
    ASSERT_TRUE(disk.interrupted > 0 && disk.shortened > 0);
    end();
}

/* Neither directory takes it: nothing of it is left, and what is there already stays. */
static void leaves_nothing(plasmon_status_t status, int place_error, int settle_error,
                           int write_error, uint64_t room)
{
    struct pl_err err;
    uint64_t taken;

    test_expect_log();
    begin();
    ASSERT_OK(store_spill_files_write(&files, 1, data, BYTES, &err));
    taken             = blocks_taken();
    disk.place_error  = place_error;
    disk.settle_error = settle_error;
    disk.write_error  = write_error;
    disk.room         = room;
    ASSERT_STATUS(store_spill_files_write(&files, 2, data, BYTES, &err), status);
    ASSERT_EQ(strstr(err.text, "free space") != NULL, status == PLASMON_ELIMIT);
    ASSERT_TRUE(!store_spill_files_has(&files, 2, BYTES));
    ASSERT_EQ(blocks_taken(), taken);
    ASSERT_EQ(files.dirs[0].bytes_used, BYTES);
    ASSERT_EQ(files.dirs[1].bytes_used, 0);
    disk_good();
    expect_there(1);
    store_spill_files_forget(&files, 1); /* then it may be tried again */
    ASSERT_OK(store_spill_files_write(&files, 3, data, BYTES, &err));
    expect_there(3);
    end();
}

TEST(what_no_disk_takes_leaves_nothing)
{
    leaves_nothing(PLASMON_ELIMIT, ENOSPC, 0, 0, UINT64_MAX);
    leaves_nothing(PLASMON_ELIMIT, EDQUOT, 0, 0, UINT64_MAX);
    leaves_nothing(PLASMON_ELIMIT, 0, ENOSPC, 0, UINT64_MAX);
    leaves_nothing(PLASMON_EIO, 0, EIO, 0, UINT64_MAX);
    leaves_nothing(PLASMON_ELIMIT, 0, 0, ENOSPC, 0);
    leaves_nothing(PLASMON_ELIMIT, 0, 0, ENOSPC, BYTES / 2);
    leaves_nothing(PLASMON_EIO, 0, 0, EIO, BYTES - 1);
}

/* Some file systems cannot reserve a place, or settle what they have in memory alone. */
TEST(a_disk_that_cannot_reserve_is_used_all_the_same)
{
    struct pl_err err;

    begin();
    disk.place_error  = EOPNOTSUPP;
    disk.settle_error = EINVAL;
    ASSERT_OK(store_spill_files_write(&files, 1, data, BYTES, &err));
    expect_there(1);
    end();
}

TEST(what_cannot_be_read_is_an_error_and_is_there_when_it_can)
{
    struct pl_err err;

    begin();
    ASSERT_OK(store_spill_files_write(&files, 1, data, BYTES, &err));
    disk.read_error = EIO;
    ASSERT_STATUS(store_spill_files_read(&files, 1, back, BYTES, &err), PLASMON_EIO);
    disk_good();
    disk.read_end = BYTES - 1;
    ASSERT_TRUE(store_spill_files_read(&files, 1, back, BYTES, &err) != PLASMON_OK);
    ASSERT_CONTAINS(err.text, dirs[0]);
    disk_good();
    expect_there(1);
    end();
}

/* ---------------------------------------------------------------------------- no memory */

static unsigned open_files(void)
{
    unsigned count = 0;

    for (int fd = 0; fd < 256; fd++) {
        count += fcntl(fd, F_GETFD) >= 0;
    }
    return count;
}

/* The nth allocation fails, for each n: what is not there is said to be not there, and may be tried again. */
TEST(a_value_is_written_or_not_whichever_allocation_fails)
{
    unsigned before = open_files();
    bool fired      = true;

#ifndef PL_FAULTS
    test_skip("this build has no faults (PLASMON_FAULTS is off)");
#endif
    test_expect_log();
    for (unsigned nth = 0; fired; nth++) {
        plasmon_status_t status;
        struct pl_err err;

        begin();
        ASSERT_OK(store_spill_files_write(&files, 1, data, BYTES, &err));
        pl_fault_arm("alloc", nth);
        status = store_spill_files_write(&files, 2, data, BYTES, &err);
        fired  = pl_fault_disarm() != 0;
        expect_there(1);
        ASSERT_EQ(store_spill_files_has(&files, 2, BYTES), status == PLASMON_OK);
        if (status != PLASMON_OK) {
            ASSERT_TRUE(fired && err.text[0] != '\0');
            store_spill_files_forget(&files, 1);
            ASSERT_OK(store_spill_files_write(&files, 2, data, BYTES, &err));
        }
        expect_there(2);
        end();
    }
    ASSERT_EQ(open_files(), before);
}

/* It is what makes room when there is none. */
TEST(to_forget_takes_no_memory)
{
    enum { MANY = 50 };
    struct pl_err err;

#ifndef PL_FAULTS
    test_skip("this build has no faults (PLASMON_FAULTS is off)");
#endif
    begin();
    for (uint64_t number = 1; number <= MANY; number++) {
        ASSERT_OK(store_spill_files_write(&files, number, data, 64, &err));
    }
    pl_fault_arm("alloc", 0);
    for (uint64_t number = 1; number <= MANY; number++) {
        store_spill_files_forget(&files, number);
    }
    ASSERT_TRUE(!pl_fault_disarm());
    ASSERT_EQ(files.dirs[0].bytes_used, 0);
    end();
}

TEST_MAIN()
