/*
 * The yardsticks of transfers to and from another host, over one TCP connection by plain send() and recv():
 *
 *   objects   the same bytes, a MiB a call, between two pieces of ordinary memory, both as large as
 *             the object. What a program without Plasmon would do.
 *   stream    what iperf3 does: 128 KiB a call, from one buffer and into one, which stay in the
 *             caches. What the network can do.
 *
 * The other end is a process that serves: a child of ours on this machine, or `plasmon bench remote
 * --serve` on the other host. It has an end with its connection, and trusts nobody with more than
 * memory of the size that it was asked for (at most RAW_BYTES_MAX).
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "bench/raw_tcp.h"

#define CALL_BYTES    (1u << 20)
#define STREAM_BYTES  (128u << 10)
#define RAW_BYTES_MAX (UINT64_C(8) << 30)

enum raw_kind { RAW_PUT = 1, RAW_GET = 2, RAW_STREAM = 3 };
struct raw_ask {
    uint64_t kind;
    uint64_t bytes;
};

static bool move_all(int fd, uint8_t *data, uint64_t bytes, bool out)
{
    while (bytes > 0) {
        size_t part  = (size_t)pl_min_u64(bytes, CALL_BYTES);
        ssize_t done = out ? send(fd, data, part, MSG_NOSIGNAL) : recv(fd, data, part, 0);

        if (done == 0 || (done < 0 && errno != EINTR)) {
            return false;
        }
        data += done > 0 ? done : 0;
        bytes -= done > 0 ? (uint64_t)done : 0;
    }
    return true;
}

/* All of it through one small buffer. */
static bool stream_all(int fd, uint64_t bytes, bool out)
{
    static uint8_t buffer[STREAM_BYTES];

    while (bytes > 0) {
        size_t part = (size_t)pl_min_u64(bytes, sizeof(buffer));

        if (!move_all(fd, buffer, part, out)) {
            return false;
        }
        bytes -= part;
    }
    return true;
}

static void set_nodelay(int fd)
{
    int one = 1;

    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)); /* slower without */
}

/* One connection, until it ends. */
static void serve_one(int fd)
{
    uint8_t *memory = NULL;
    uint64_t room   = 0;
    struct raw_ask ask;
    bool good = true;

    set_nodelay(fd);
    while (good && move_all(fd, (uint8_t *)&ask, sizeof(ask), false)) {
        uint8_t done = 1;

        if (ask.bytes == 0 || ask.bytes > RAW_BYTES_MAX) {
            break;
        }
        if (ask.kind == RAW_STREAM) {
            good = stream_all(fd, ask.bytes, false);
        } else {
            if (ask.bytes > room) {
                pl_free(memory);
                room   = ask.bytes;
                memory = bench_must_alloc((size_t)room);
            }
            good = move_all(fd, memory, ask.bytes, ask.kind == RAW_GET);
        }
        if (good && ask.kind != RAW_GET) {
            good = move_all(fd, &done, 1, true);
        }
    }
    pl_free(memory);
    (void)close(fd);
}

/* "10.0.0.1:7200": numeric. */
static struct addrinfo *must_resolve(const char *text)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                             .ai_flags    = AI_NUMERICHOST | AI_NUMERICSERV};
    const char *colon     = strrchr(text, ':');
    struct addrinfo *found;
    char host[64];

    if (colon == NULL || (size_t)(colon - text) >= sizeof(host)) {
        bench_die("\"%s\" is not ADDRESS:PORT", text);
    }
    (void)snprintf(host, sizeof(host), "%.*s", (int)(colon - text), text);
    if (getaddrinfo(host, colon + 1, &hints, &found) != 0) {
        bench_die("\"%s\" is not a numeric ADDRESS:PORT", text);
    }
    return found;
}

static int must_listen(const char *text, char out_text[64])
{
    struct addrinfo *to = must_resolve(text);
    struct sockaddr_in own;
    socklen_t bytes = sizeof(own);
    int one         = 1;
    int fd          = socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) != 0 ||
        bind(fd, to->ai_addr, to->ai_addrlen) != 0 || listen(fd, 4) != 0 ||
        getsockname(fd, (struct sockaddr *)&own, &bytes) != 0) {
        bench_die("cannot listen on %s: %s", text, strerror(errno));
    }
    (void)snprintf(out_text, 64, "%.*s:%u", (int)(strrchr(text, ':') - text), text,
                   (unsigned)ntohs(own.sin_port)); /* the same place for IPv6 */
    freeaddrinfo(to);
    return fd;
}

static _Noreturn void serve(int fd)
{
    for (;;) {
        int connection = accept4(fd, NULL, NULL, SOCK_CLOEXEC);

        if (connection >= 0) {
            serve_one(connection);
        } else if (errno != EINTR && errno != ECONNABORTED) {
            bench_die("accept: %s", strerror(errno));
        }
    }
}

void bench_raw_tcp_serve(const char *address)
{
    char said[64];
    int fd = must_listen(address, said);

    printf("serving raw TCP on %s until it is ended\n", said);
    (void)fflush(stdout);
    serve(fd);
}

void bench_must_fork_raw_tcp(char out_address[64])
{
    int fd       = must_listen("127.0.0.1:0", out_address);
    pid_t parent = getpid();
    pid_t child  = fork();

    if (child < 0) {
        bench_die("cannot start a process: %s", strerror(errno));
    }
    if (child == 0) {
        if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent) {
            _exit(1);
        }
        serve(fd);
    }
    (void)close(fd);
}

int bench_must_connect_raw_tcp(const char *address)
{
    struct addrinfo *to = must_resolve(address);
    int fd              = socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || connect(fd, to->ai_addr, to->ai_addrlen) != 0) {
        bench_die("%s: %s; is `plasmon bench remote --serve` running there?", address,
                  strerror(errno));
    }
    freeaddrinfo(to);
    set_nodelay(fd);
    return fd;
}

double bench_must_raw_tcp(int fd, bool put, uint8_t *data, uint64_t bytes)
{
    struct raw_ask ask = {.kind = put ? RAW_PUT : RAW_GET, .bytes = bytes};
    uint64_t began     = pl_now_ns();
    uint8_t done;

    if (!move_all(fd, (uint8_t *)&ask, sizeof(ask), true) ||
        !move_all(fd, data, bytes, put) || (put && !move_all(fd, &done, 1, false))) {
        bench_die("raw TCP: the other side ended the connection");
    }
    return (double)(pl_now_ns() - began) * 1e-9;
}

double bench_must_raw_tcp_stream(int fd, uint64_t bytes)
{
    struct raw_ask ask = {.kind = RAW_STREAM, .bytes = bytes};
    uint64_t began     = pl_now_ns();
    uint8_t done;

    if (!move_all(fd, (uint8_t *)&ask, sizeof(ask), true) || !stream_all(fd, bytes, true) ||
        !move_all(fd, &done, 1, false)) {
        bench_die("raw TCP: the other side ended the connection");
    }
    return (double)(pl_now_ns() - began) * 1e-9;
}
