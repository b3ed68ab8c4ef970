/*
 * The yardstick of a task's round trip: one message there and one back, in lock-step, through the
 * same rpc/ and over a Unix socket, with nothing behind it. A task goes client -> head -> worker ->
 * head -> client, so two such trips are what the transport alone costs it.
 *
 * The other side is a process, as the head is: a thread of ours would share our scheduler slot and
 * caches. The waiting is what plasmon_wait() does too: a callback on the loop's thread wakes the
 * caller.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "base/lock.h"
#include "bench/bench.h"
#include "rpc/rpc.h"

#define ECHO_PATH       "/plasmon.bench/Echo"
#define MESSAGE_BYTES   64 /* a noop's submission and its completion are about this long */
#define PING_TIMEOUT_NS 10000000000ull

struct bench_echo {
    pid_t child;
    int fd;
    struct rpc_loop *loop;
    struct rpc_channel *channel;
    struct rpc_stream *stream;

    struct pl_mutex lock; /* rank CLIENT */
    struct pl_cond changed;
    /* Guarded by `lock`. */
    uint64_t received;
    bool closed;
};

/* ----------------------------------------------------------------------- the other side */

static void echo_message(void *user, struct rpc_stream *stream, const uint8_t *bytes,
                         size_t length)
{
    uint8_t *answer = rpc_buffer_create(length);

    (void)user;
    if (answer != NULL) {
        memcpy(answer, bytes, length);
        if (rpc_stream_send(stream, answer, length) == PLASMON_OK) {
            return;
        }
    }
    rpc_stream_close(stream, PLASMON_ENOMEM, "cannot answer");
}

static void echo_writable(void *user, struct rpc_stream *stream)
{
    (void)user;
    (void)stream;
}

static void echo_closed(void *user, struct rpc_stream *stream, plasmon_status_t status,
                        const char *why)
{
    (void)user;
    (void)stream;
    (void)status;
    (void)why;
}

static plasmon_status_t echo_accept(void *user, struct rpc_stream *stream,
                                    struct pl_err *err)
{
    static const struct rpc_stream_ops ops = {echo_message, echo_writable, echo_closed};

    (void)user;
    (void)err;
    rpc_stream_set_user(stream, &ops, NULL);
    return PLASMON_OK;
}

/* Serves until it is killed: by bench_echo_destroy(), or because the parent ended. */
static _Noreturn void serve(int fd, pid_t parent)
{
    static const struct rpc_method method = {.path = ECHO_PATH, .accept = echo_accept};
    const struct rpc_server_config config = {.methods = &method, .method_count = 1};
    struct rpc_server *server;
    struct rpc_loop *loop;
    struct pl_err err;

    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent) {
        _exit(1);
    }
    rpc_init();
    if (rpc_loop_create(&loop) != PLASMON_OK ||
        rpc_server_create(loop, &config, &server, &err) != PLASMON_OK ||
        rpc_server_add_fd(server, fd) != PLASMON_OK) {
        _exit(1);
    }
    rpc_loop_run(loop);
    _exit(0);
}

struct bench_echo *bench_must_fork_echo(void)
{
    struct bench_echo *echo = PL_NEW(struct bench_echo);
    pid_t parent            = getpid();
    int fds[2];

    if (echo == NULL || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0 ||
        (echo->child = fork()) < 0) {
        bench_die("cannot start the echo process: %s", strerror(errno));
    }
    if (echo->child == 0) {
        (void)close(fds[0]);
        serve(fds[1], parent);
    }
    (void)close(fds[1]);
    echo->fd = fds[0];
    return echo;
}

/* ----------------------------------------------------------------------------- our side */

static void ping_message(void *user, struct rpc_stream *stream, const uint8_t *bytes,
                         size_t length)
{
    struct bench_echo *echo = user;

    (void)stream;
    (void)bytes;
    (void)length;
    pl_mutex_lock(&echo->lock);
    echo->received++;
    pl_cond_signal(&echo->changed);
    pl_mutex_unlock(&echo->lock);
}

static void ping_closed(void *user, struct rpc_stream *stream, plasmon_status_t status,
                        const char *why)
{
    struct bench_echo *echo = user;

    (void)stream;
    (void)status;
    (void)why;
    pl_mutex_lock(&echo->lock);
    echo->closed = true;
    pl_cond_signal(&echo->changed);
    pl_mutex_unlock(&echo->lock);
}

void bench_must_connect_echo(struct bench_echo *echo)
{
    static const struct rpc_stream_ops ops = {ping_message, echo_writable, ping_closed};
    struct rpc_channel_config config       = {.fd = echo->fd, .by_socket = true};

    rpc_init();
    if (pl_mutex_init(&echo->lock, PL_RANK_CLIENT) != PLASMON_OK ||
        pl_cond_init(&echo->changed) != PLASMON_OK ||
        rpc_loop_create(&echo->loop) != PLASMON_OK ||
        rpc_loop_start(echo->loop, "bench-echo") != PLASMON_OK ||
        rpc_channel_create(echo->loop, &config, &echo->channel) != PLASMON_OK ||
        rpc_stream_open(echo->channel, ECHO_PATH, 10000, &ops, echo, &echo->stream) !=
            PLASMON_OK) {
        bench_die("cannot connect to the echo process");
    }
}

static void ping_once(struct bench_echo *echo)
{
    uint8_t *buffer   = rpc_buffer_create(MESSAGE_BYTES);
    uint64_t deadline = pl_now_ns() + PING_TIMEOUT_NS;
    bool in_time      = true, ok;
    uint64_t before;

    if (buffer == NULL) {
        bench_die("out of host memory");
    }
    memset(buffer, 7, MESSAGE_BYTES);
    pl_mutex_lock(&echo->lock);
    before = echo->received;
    pl_mutex_unlock(&echo->lock);
    if (rpc_stream_send(echo->stream, buffer, MESSAGE_BYTES) != PLASMON_OK) {
        bench_die("the echo process went away");
    }
    pl_mutex_lock(&echo->lock);
    while (echo->received == before && !echo->closed && in_time) {
        in_time = pl_cond_wait_until(&echo->changed, &echo->lock, deadline) != 0;
    }
    ok = echo->received == before + 1;
    pl_mutex_unlock(&echo->lock);
    if (!ok) {
        bench_die("the echo process does not answer");
    }
}

void bench_must_ping(struct bench_echo *echo, double *seconds, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t began = pl_now_ns();

        ping_once(echo);
        seconds[i] = (double)(pl_now_ns() - began) * 1e-9;
    }
}

static void wait_closed(struct bench_echo *echo)
{
    uint64_t deadline = pl_now_ns() + PING_TIMEOUT_NS;
    bool in_time      = true;

    pl_mutex_lock(&echo->lock);
    while (!echo->closed && in_time) {
        in_time = pl_cond_wait_until(&echo->changed, &echo->lock, deadline) != 0;
    }
    pl_mutex_unlock(&echo->lock);
}

void bench_echo_destroy(struct bench_echo *echo)
{
    rpc_stream_close(echo->stream, PLASMON_OK, "done");
    wait_closed(echo);
    rpc_channel_destroy(echo->channel);
    rpc_loop_stop(echo->loop);
    rpc_loop_destroy(echo->loop);
    rpc_finish();
    (void)kill(echo->child, SIGKILL);
    while (waitpid(echo->child, NULL, 0) < 0 && errno == EINTR) {
    }
    pl_cond_finish(&echo->changed);
    pl_mutex_finish(&echo->lock);
    pl_free(echo);
}
