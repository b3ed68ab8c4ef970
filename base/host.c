/*
 * The boot id is drawn at each boot, so no two hosts share one, whatever their names are. Containers of one host have the same
 * boot id but cannot see each other's processes, so the pid namespace is part of the id: what is decided by it (pidfds,
 * SO_PEERCRED, shared memory) works exactly inside one.
 */
#include "host.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int boot_id_read(char out[64])
{
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t length;

    if (fd < 0) {
        return 0;
    }
    length = read(fd, out, 63);
    (void)close(fd);
    if (length <= 0) {
        return 0;
    }
    out[length]               = '\0';
    out[strcspn(out, "\r\n")] = '\0';
    return 1;
}

const char *pl_host_id(char out[PL_HOST_ID_BYTES])
{
    char boot_id[64];
    char link[64] = "";
    ssize_t length =
        readlink("/proc/self/ns/pid", link, sizeof(link) - 1); /* "pid:[1234]" */
    unsigned long space;

    if (!boot_id_read(boot_id) || length <= 0 || sscanf(link, "pid:[%lu]", &space) != 1) {
        char name[64] = "";

        (void)gethostname(name, sizeof(name) - 1);
        (void)snprintf(out, PL_HOST_ID_BYTES, "unknown:%.63s", name);
        return out;
    }
    (void)snprintf(out, PL_HOST_ID_BYTES, "%s:%lu", boot_id, space);
    return out;
}
