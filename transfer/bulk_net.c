/*
 * Sockets of the bulk channel: numeric addresses, non-blocking, every wait with an end. Who waits
 * for what the other side has to say next (a receiver, a relay) waits as long as that is there: a
 * relay between two hosts that are both cut off would have its place, of few, for ever.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "transfer/bulk_link.h"

union any_address {
    struct sockaddr_storage storage;
    struct sockaddr any;
    struct sockaddr_in in;
    struct sockaddr_in6 in6;
};

/* "1.2.3.4:5", "[::1]:5"; with_port false: without ":5". */
static bool parse(const char *text, bool with_port, union any_address *out,
                  socklen_t *out_bytes)
{
    char host[TRANSFER_BULK_ADDRESS_BYTES], port[8] = "0";
    struct addrinfo hints = {.ai_flags    = AI_NUMERICHOST | AI_NUMERICSERV,
                             .ai_socktype = SOCK_STREAM};
    struct addrinfo *found;
    size_t length     = strnlen(text, sizeof(host));
    const char *colon = with_port ? strrchr(text, ':') : NULL;
    const char *end   = colon != NULL ? colon : text + length;

    if (length == sizeof(host) || (with_port && colon == NULL) ||
        (colon != NULL && strlen(colon + 1) >= sizeof(port))) {
        return false;
    }
    if (colon != NULL) {
        memcpy(port, colon + 1, strlen(colon + 1) + 1);
    }
    if (*text == '[' && end > text + 1 && end[-1] == ']') {
        text++, end--;
    }
    memcpy(host, text, (size_t)(end - text));
    host[end - text] = '\0';
    if (getaddrinfo(host, port, &hints, &found) != 0) {
        return false;
    }
    memcpy(&out->storage, found->ai_addr, found->ai_addrlen);
    *out_bytes = found->ai_addrlen;
    freeaddrinfo(found);
    return true;
}

static void format(const union any_address *address, char *out)
{
    char host[INET6_ADDRSTRLEN] = "";
    bool six                    = address->any.sa_family == AF_INET6;

    (void)inet_ntop(address->any.sa_family,
                    six ? (const void *)&address->in6.sin6_addr
                        : (const void *)&address->in.sin_addr,
                    host, sizeof(host));
    (void)snprintf(out, TRANSFER_BULK_ADDRESS_BYTES, six ? "[%s]:%u" : "%s:%u", host,
                   (unsigned)ntohs(six ? address->in6.sin6_port : address->in.sin_port));
}

static void set_port(union any_address *address, uint16_t port)
{
    if (address->any.sa_family == AF_INET6) {
        address->in6.sin6_port = htons(port);
    } else {
        address->in.sin_port = htons(port);
    }
}

/*
 * Of a few ports: one that a worker had that has ended is free at once. Connections that are still
 * being closed have it for a minute, and nobody else would get it.
 */
static void share_with_the_dead(int fd)
{
    int one = 1;

    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)); /* fewer ports */
}

/* A host that is cut off says no goodbye. Without a word of it for so long the connection is over. */
#define QUIET_S 60
#define PROBE_S 10
#define PROBES  3

static void end_when_silent(int fd)
{
    const struct {
        int level, name, value;
    } options[] = {{SOL_SOCKET, SO_KEEPALIVE, 1},
                   {IPPROTO_TCP, TCP_KEEPIDLE, QUIET_S},
                   {IPPROTO_TCP, TCP_KEEPINTVL, PROBE_S},
                   {IPPROTO_TCP, TCP_KEEPCNT, PROBES}};

    for (size_t i = 0; i < PL_COUNT(options); i++) { /* works without, too */
        (void)setsockopt(fd, options[i].level, options[i].name, &options[i].value,
                         sizeof(options[i].value));
    }
}

/*
 * The buffers are the system's business: it makes them as large as the way there needs, up to
 * tcp_rmem and tcp_wmem. Asking for a size ends that, and gives less where rmem_max is the usual
 * 208 KiB.
 */
static void tune(int fd)
{
    int one = 1;

    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)); /* works without */
    end_when_silent(fd);
}

plasmon_status_t bulk_listen(const char *listen_on, uint16_t port_first, uint16_t port_last,
                             int *out_fd, char *out_address, struct pl_err *err)
{
    union any_address address;
    socklen_t bytes;
    uint32_t port = port_first;
    int error     = 0;

    if (!parse(listen_on, false, &address, &bytes)) {
        return pl_err_set(err, PLASMON_EINVAL,
                          "\"%s\" is not a numeric address of this machine to listen on "
                          "for objects of other machines",
                          listen_on);
    }
    for (; port <= port_last; port++) {
        int fd =
            socket(address.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

        set_port(&address, (uint16_t)port);
        tune(fd); /* what it accepts inherits it */
        if (port_first != 0) {
            share_with_the_dead(fd);
        }
        if (fd >= 0 && bind(fd, &address.any, bytes) == 0 && listen(fd, 64) == 0 &&
            getsockname(fd, &address.any, &bytes) == 0) {
            format(&address, out_address);
            *out_fd = fd;
            return PLASMON_OK;
        }
        error = errno;
        pl_fd_close(&fd);
    }
    return port_first == 0
               ? pl_err_set(err, pl_status_from_errno(error),
                            "%s cannot be listened on: %s", listen_on, strerror(error))
               : pl_err_set(err, pl_status_from_errno(error),
                            "no port from %u to %u of %s can be listened on: %s; each "
                            "device takes one, so give the store more or others "
                            "(--bulk-ports)",
                            port_first, port_last, listen_on, strerror(error));
}

plasmon_status_t bulk_connect(const char *text, int stop_fd, int *out_fd,
                              struct pl_err *err)
{
    union any_address address;
    struct bulk_link link;
    socklen_t bytes, error_bytes = sizeof(int);
    plasmon_status_t status = PLASMON_OK;
    int error               = 0, fd;

    if (!parse(text, true, &address, &bytes)) {
        return pl_err_set(err, PLASMON_EINVAL, "\"%s\" is not an address with a port",
                          text);
    }
    fd   = socket(address.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    link = (struct bulk_link){.fd = fd, .stop_fd = stop_fd};
    if (fd < 0) {
        return pl_err_set(err, pl_status_from_errno(errno), "socket: %s", strerror(errno));
    }
    tune(fd);
    if (connect(fd, &address.any, bytes) != 0) {
        error = errno;
        if (error == EINPROGRESS) {
            status = bulk_link_wait(&link, POLLOUT, BULK_CONNECT_MS);
            error  = status == PLASMON_OK ? 0 : ETIMEDOUT;
            if (status == PLASMON_OK) {
                (void)getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &error_bytes);
            }
        }
    }
    if (error != 0) {
        pl_fd_close(&fd);
        return pl_err_set(err,
                          status == PLASMON_ECLOSED ? status : pl_status_from_errno(error),
                          "%s: %s", text, strerror(error));
    }
    *out_fd = fd;
    return PLASMON_OK;
}

void bulk_peer_address(int fd, char out[TRANSFER_BULK_ADDRESS_BYTES])
{
    union any_address address;
    socklen_t bytes = sizeof(address);

    if (getpeername(fd, &address.any, &bytes) == 0) {
        format(&address, out);
    } else {
        (void)snprintf(out, TRANSFER_BULK_ADDRESS_BYTES, "somebody");
    }
}

bool bulk_same_place(const char *address, const char *other)
{
    const char *colon = strrchr(address, ':');
    size_t length     = colon != NULL ? (size_t)(colon - address) : strlen(address);

    return strncmp(address, other, length) == 0 && other[length] == ':';
}
