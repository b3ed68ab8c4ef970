#include "turn.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "fd.h"

#define LOOK_NS 5000000

/* errno, or 0: the name is this socket's. */
static int name_take(int fd, const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    /* behind a first byte of 0, which makes it abstract */
    int length = snprintf(address.sun_path + 1, sizeof(address.sun_path) - 1,
                          "plasmon.turn.%u.%s", (unsigned)getuid(), name);

    return bind(fd, (const struct sockaddr *)&address,
                (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length)) ==
                   0
               ? 0
               : errno;
}

int pl_turn_take(const char *name, const atomic_bool *left, uint64_t most_ns)
{
    const struct timespec nap = {.tv_nsec = LOOK_NS};
    uint64_t until_ns         = pl_now_ns() + most_ns;
    int fd                    = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0), error;

    if (fd < 0) {
        return -1;
    }
    while ((error = name_take(fd, name)) == EADDRINUSE && pl_now_ns() < until_ns &&
           !atomic_load(left)) {
        (void)nanosleep(&nap, NULL); /* cut short is as good */
    }
    if (error != 0) {
        pl_fd_close(&fd);
    }
    return fd;
}
