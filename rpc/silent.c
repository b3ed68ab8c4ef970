/*
 * Who is at an address that does not answer? "Nobody listens" and "somebody accepts connections,
 * but says nothing" look the same to who waits for an answer, and are not the same to who has to do
 * something about it: the one is to be started, the other to be let go on, or ended.
 *
 * So we connect by hand, say what a client of HTTP/2 says first, and wait for a first byte. The
 * kernel takes connections for a listener whose process is stopped, until its queue is full. Whose
 * process that is, is known on the same host: the kernel says it of a Unix socket; a TCP listener
 * is found by its port in /proc/net, and whose that is in /proc/PID/fd, if it is a process of the
 * same user.
 */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fd.h"
#include "rpc/rpc_int.h"

#define CONNECT_MS  100 /* on this host it is there at once; to others a round trip */
#define ANSWER_MS   250
#define TCP_LISTEN  0x0a /* as in /proc/net/tcp */
#define ADDRESS_MAX 512

struct silent {
    int fd;
    pid_t pid; /* whose listener it is; 0: not known */
};

/* --------------------------------------------------------------------------- connecting */

static bool connects(struct silent *silent, const struct sockaddr *to, socklen_t bytes)
{
    struct pollfd at = {.events = POLLOUT};
    int error        = 0;
    socklen_t size   = sizeof(error);

    pl_fd_close(&silent->fd);
    silent->fd = socket(to->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (silent->fd < 0) {
        return false;
    }
    if (connect(silent->fd, to, bytes) == 0) {
        return true;
    }
    at.fd = silent->fd;
    return errno == EINPROGRESS && poll(&at, 1, CONNECT_MS) == 1 &&
           getsockopt(silent->fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0;
}

static bool unix_connects(struct silent *silent, const char *path)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    struct ucred peer     = {0};
    socklen_t bytes       = sizeof(peer);

    if (strlen(path) >= sizeof(to.sun_path)) {
        return false;
    }
    memcpy(to.sun_path, path, strlen(path) + 1);
    if (!connects(silent, (const struct sockaddr *)&to, sizeof(to))) {
        return false;
    }
    if (getsockopt(silent->fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0) {
        silent->pid = peer.pid; /* who called listen() */
    }
    return true;
}

/* "10.0.0.1:4711", "[fd00::1]:4711", "head:4711"; cut in two. */
static bool tcp_connects(struct silent *silent, char *address)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
    char *host = address, *colon = strrchr(address, ':');
    bool connected = false;

    if (colon == NULL || colon == address) {
        return false;
    }
    *colon = '\0';
    if (host[0] == '[' && colon[-1] == ']') {
        host++;
        colon[-1] = '\0';
    }
    if (getaddrinfo(host, colon + 1, &hints, &found) != 0) {
        return false;
    }
    for (struct addrinfo *at = found; at != NULL && !connected; at = at->ai_next) {
        connected = connects(silent, at->ai_addr, at->ai_addrlen);
    }
    freeaddrinfo(found);
    return connected;
}

/* -------------------------------------------------------------------------- whose it is */

/* The port of the other end, when that is on this host: then both ends have one address. 0: it is not. */
static unsigned port_on_this_host(int fd)
{
    struct sockaddr_storage ours, theirs;
    socklen_t bytes = sizeof(ours), their_bytes = sizeof(theirs);

    if (getsockname(fd, (struct sockaddr *)&ours, &bytes) != 0 ||
        getpeername(fd, (struct sockaddr *)&theirs, &their_bytes) != 0) {
        return 0;
    }
    if (theirs.ss_family == AF_INET) {
        const struct sockaddr_in *a = (const void *)&ours, *b = (const void *)&theirs;

        return a->sin_addr.s_addr == b->sin_addr.s_addr ? ntohs(b->sin_port) : 0;
    }
    if (theirs.ss_family == AF_INET6) {
        const struct sockaddr_in6 *a = (const void *)&ours, *b = (const void *)&theirs;

        return memcmp(&a->sin6_addr, &b->sin6_addr, sizeof(a->sin6_addr)) == 0
                   ? ntohs(b->sin6_port)
                   : 0;
    }
    return 0;
}

/* Of the listener at that port; 0: none was found. */
static unsigned long listener_inode(const char *table, unsigned port)
{
    unsigned long inode = 0;
    char line[512];
    FILE *file = fopen(table, "re");

    while (file != NULL && inode == 0 && fgets(line, sizeof(line), file) != NULL) {
        unsigned at, state;
        unsigned long number;

        if (sscanf(line, " %*u: %*[0-9A-Fa-f]:%x %*s %x %*s %*s %*s %*u %*u %lu", &at,
                   &state, &number) == 3 &&
            at == port && state == TCP_LISTEN) {
            inode = number;
        }
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    return inode;
}

static bool process_has(const char *pid, const char *socket_name)
{
    char path[300], target[64];
    const struct dirent *entry;
    bool has = false;
    DIR *dir;

    (void)snprintf(path, sizeof(path), "/proc/%.16s/fd", pid);
    dir = opendir(path);
    while (dir != NULL && !has && (entry = readdir(dir)) != NULL) {
        ssize_t length = readlinkat(dirfd(dir), entry->d_name, target, sizeof(target) - 1);

        target[length > 0 ? length : 0] = '\0';
        has                             = strcmp(target, socket_name) == 0;
    }
    if (dir != NULL) {
        (void)closedir(dir);
    }
    return has;
}

static pid_t owner_of(unsigned long inode)
{
    char name[64];
    const struct dirent *entry;
    pid_t pid = 0;
    DIR *dir  = opendir("/proc");

    (void)snprintf(name, sizeof(name), "socket:[%lu]", inode);
    while (dir != NULL && pid == 0 && (entry = readdir(dir)) != NULL) {
        if (isdigit((unsigned char)entry->d_name[0]) && process_has(entry->d_name, name)) {
            pid = (pid_t)strtol(entry->d_name, NULL, 10);
        }
    }
    if (dir != NULL) {
        (void)closedir(dir);
    }
    return pid;
}

static void find_owner(struct silent *silent)
{
    unsigned port       = silent->pid == 0 ? port_on_this_host(silent->fd) : 0;
    unsigned long inode = 0;

    if (port != 0) {
        inode = listener_inode("/proc/net/tcp", port);
        inode = inode != 0 ? inode : listener_inode("/proc/net/tcp6", port);
    }
    if (inode != 0) {
        silent->pid = owner_of(inode);
    }
}

/* --------------------------------------------------------------------------- the answer */

/* A server of HTTP/2 begins as well, once it has heard this; whoever hangs up has answered, too. */
static bool answers(int fd)
{
    static const char begin[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0";
    struct pollfd at          = {.fd = fd, .events = POLLIN};

    return send(fd, begin, sizeof(begin), MSG_NOSIGNAL) < 0 || poll(&at, 1, ANSWER_MS) != 0;
}

static void describe(const struct silent *silent, struct pl_str *out)
{
    char who[160];

    if (silent->pid == 0) {
        pl_str_append(out, "somebody accepts connections there, but says nothing: a "
                           "plasmon-head that is stopped, hangs or has too much to do, or "
                           "another program; look on that host");
        return;
    }
    if (pl_pid_describe(silent->pid, who, sizeof(who))) {
        pl_str_append(out, "who listens there, %s", who);
    } else {
        pl_str_append(out,
                      "%s listens there, but says nothing: it hangs, has too much to do, "
                      "or is no plasmon-head",
                      who);
    }
}

/* One address; cut up. */
static bool silent_at(char *address, bool tls, struct pl_str *out)
{
    struct silent silent = {.fd = -1};
    bool is_unix         = strncmp(address, "unix:", 5) == 0;
    bool found =
        is_unix ? unix_connects(&silent, address + 5) : tcp_connects(&silent, address);

    if (found) {
        find_owner(&silent);
        found = tls && !is_unix ? silent.pid != 0 && pl_pid_stopped(silent.pid)
                                : !answers(silent.fd);
    }
    if (found) {
        describe(&silent, out);
    }
    pl_fd_close(&silent.fd);
    return found;
}

bool rpc_silent_listener(const char *target, bool tls, struct pl_str *out)
{
    char addresses[ADDRESS_MAX], *rest = addresses, *address;
    bool found = false;

    if (strlen(target) >= sizeof(addresses)) {
        return false;
    }
    memcpy(addresses, target, strlen(target) + 1);
    if (strncmp(addresses, "unix:", 5) == 0) {
        return silent_at(addresses, tls, out);
    }
    while (!found && (address = strsep(&rest, ",")) != NULL) {
        found = silent_at(address, tls, out);
    }
    return found;
}
