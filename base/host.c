/*
 * The boot id is drawn at each boot, so no two hosts share one, whatever their names are.
 * Containers of one host have the same boot id but cannot see each other's processes, so the pid
 * namespace is part of the id: what is decided by it (pidfds, SO_PEERCRED, shared memory) works
 * exactly inside one.
 */
#include "host.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fd.h"

bool pl_boot_id(char out[PL_BOOT_ID_BYTES])
{
    int fd         = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t length = fd >= 0 ? read(fd, out, PL_BOOT_ID_BYTES - 1) : 0;

    if (fd >= 0) {
        (void)close(fd);
    }
    out[length > 0 ? length : 0] = '\0';
    out[strcspn(out, "\r\n")]    = '\0';
    return length > 0;
}

plasmon_status_t pl_host_id(char out[PL_HOST_ID_BYTES])
{
    char boot_id[PL_BOOT_ID_BYTES];
    char link[64] = "";
    /* "pid:[1234]" */
    ssize_t length = readlink("/proc/self/ns/pid", link, sizeof(link) - 1);
    unsigned long space;

    errno = 0;
    if (!pl_boot_id(boot_id) || length <= 0 || sscanf(link, "pid:[%lu]", &space) != 1) {
        char name[64] = "";

        if (pl_fd_none_left(errno)) {
            return pl_status_from_errno(errno); /* it has an id, by which it is known */
        }
        (void)gethostname(name, sizeof(name) - 1);
        (void)snprintf(out, PL_HOST_ID_BYTES, "unknown:%.63s", name);
        return PLASMON_OK;
    }
    (void)snprintf(out, PL_HOST_ID_BYTES, "%s:%lu", boot_id, space);
    return PLASMON_OK;
}

/* NULL: it can be used. */
static const char *runtime_fault(const char *runtime, bool fits)
{
    struct stat info;

    if (runtime[0] != '/') {
        return "is no absolute path";
    }
    if (stat(runtime, &info) != 0) {
        return errno == ENOENT ? "does not exist" : strerror(errno);
    }
    if (!S_ISDIR(info.st_mode)) {
        return "is no folder";
    }
    if (access(runtime, W_OK | X_OK) != 0) {
        return errno == EACCES ? "is a folder that we may not write to" : strerror(errno);
    }
    return fits ? NULL : "is too long for the path of a socket";
}

void pl_runtime_folder(char out[PL_RUNTIME_FOLDER_BYTES], char *why, size_t why_bytes)
{
    const char *runtime = getenv("XDG_RUNTIME_DIR"), *fault;
    int length;

    why[0] = '\0';
    if (runtime != NULL && runtime[0] != '\0') {
        length = snprintf(out, PL_RUNTIME_FOLDER_BYTES, "%s/plasmon-%u", runtime,
                          (unsigned)getuid());
        fault  = runtime_fault(runtime, length > 0 && length < PL_RUNTIME_FOLDER_BYTES);
        if (fault == NULL) {
            return;
        }
        (void)snprintf(why, why_bytes,
                       "XDG_RUNTIME_DIR (%.200s) %s: /tmp/plasmon-%u is used instead; set "
                       "it to a folder of yours, or unset it",
                       runtime, fault, (unsigned)getuid());
    }
    (void)snprintf(out, PL_RUNTIME_FOLDER_BYTES, "/tmp/plasmon-%u", (unsigned)getuid());
}

bool pl_address_is_local(const char *address)
{
    size_t numeric = strspn(address, "0123456789."); /* 127.example.org is a name */

    return strncmp(address, "unix:", 5) == 0 ||
           (strncmp(address, "127.", 4) == 0 && address[numeric] == ':') ||
           strncmp(address, "localhost:", 10) == 0 || strncmp(address, "[::1]:", 6) == 0;
}
