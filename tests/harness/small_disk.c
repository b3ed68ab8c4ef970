#include "small_disk.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <unistd.h>

#include "test.h"

#define DISKS_MAX 4

static bool entered;
static char disks[DISKS_MAX][256];
static unsigned disk_count;

static bool write_text(const char *path, const char *text)
{
    int fd    = open(path, O_WRONLY | O_CLOEXEC);
    bool good = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);

    if (fd >= 0) {
        (void)close(fd);
    }
    return good;
}

/*
 * A mount namespace; for somebody who is not root within a user namespace, in which everybody is
 * who they were.
 */
static bool enter(void)
{
    unsigned user = (unsigned)getuid(), group = (unsigned)getgid();
    char map[64];

    if (unshare(CLONE_NEWNS) == 0) {
        return mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
    }
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) {
        return false;
    }
    (void)snprintf(map, sizeof(map), "%u %u 1", user, user);
    if (!write_text("/proc/self/setgroups", "deny") ||
        !write_text("/proc/self/uid_map", map)) {
        return false;
    }
    (void)snprintf(map, sizeof(map), "%u %u 1", group, group);
    return write_text("/proc/self/gid_map", map) &&
           mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
}

void small_disk_unmount(void)
{
    while (disk_count > 0) {
        (void)umount2(disks[--disk_count], MNT_DETACH);
    }
}

void small_disk_mount(const char *path, const char *limits)
{
    char options[128];

    if (!entered && !enter()) {
        test_skip("no mount namespace here: %s", strerror(errno));
    }
    entered = true;
    ASSERT_TRUE(disk_count < DISKS_MAX);
    (void)snprintf(options, sizeof(options), "mode=0700,%s", limits);
    if (mount("none", path, "tmpfs", MS_NOSUID | MS_NODEV, options) != 0) {
        test_skip("no tmpfs may be mounted here: %s", strerror(errno));
    }
    (void)snprintf(disks[disk_count++], sizeof(disks[0]), "%s", path);
    if (disk_count == 1) {
        ASSERT_EQ(atexit(small_disk_unmount), 0); /* so that the folder can be removed */
    }
}

static void filler(const char *folder, char out[512])
{
    (void)snprintf(out, 512, "%s/filler", folder);
}

void small_disk_fill(const char *folder)
{
    static const char zeros[4096];
    char path[512];
    ssize_t put;
    int fd;

    filler(folder, path);
    fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    ASSERT_TRUE(fd >= 0);
    do {
        put = write(fd, zeros, sizeof(zeros));
    } while (put > 0);
    ASSERT_EQ(errno, ENOSPC);
    (void)close(fd);
}

void small_disk_free(const char *folder)
{
    char path[512];

    filler(folder, path);
    ASSERT_EQ(unlink(path), 0);
}
