/*
 * The processes of `plasmon bench hostile` that are neither the cluster nor the honest client: the
 * enemies', which is told what to be and against whom, and nobody's, which is what the enemies are
 * measured against besides the head.
 *
 * The enemy has a process of its own so that its work is not done by threads of the honest client,
 * and its processor time can be told apart. Nobody is what an enemy costs the machine and not the
 * head: for those that only connect, a listener that closes whatever it accepts; for those that
 * make calls, a gRPC server that refuses each one.
 *
 * Both are forked before this process makes its first gRPC object, and end with it.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "bench/bench.h"
#include "bench/daemons.h"
#include "bench/hostile.h"
#include "rpc/rpc.h"

#define QUEUE 1024

struct order {
    void *(*run)(void *user); /* the same address in the child; NULL: end what was begun */
    char address[HOSTILE_ADDRESS_BYTES];
};

/* In the parent: its child, or it does not come back. */
static pid_t must_fork(void)
{
    pid_t parent = getpid(), child = fork();

    if (child < 0) {
        bench_die("cannot start a process beside the client: %s", strerror(errno));
    }
    if (child == 0 && (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent)) {
        _exit(1);
    }
    return child;
}

/* ----------------------------------------------------------------- the enemies' process */

/* Begins and ends enemies as it is told; each order is answered when it is done. */
static _Noreturn void obey(int fd, const char *token)
{
    static struct hostile_field field;
    pthread_t thread;
    struct order order;

    field.token = token;
    rpc_init();
    while (recv(fd, &order, sizeof(order), 0) == sizeof(order)) {
        if (order.run != NULL) {
            memcpy(field.address, order.address, sizeof(field.address));
            atomic_store(&field.stop, false);
            if (pthread_create(&thread, NULL, order.run, &field) != 0) {
                break;
            }
        } else {
            atomic_store(&field.stop, true);
            (void)pthread_join(thread, NULL);
        }
        if (send(fd, "", 1, MSG_NOSIGNAL) != 1) {
            break;
        }
    }
    _exit(0);
}

void hostile_must_fork_party(struct hostile_party *party, const char *token)
{
    int fds[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) != 0) {
        bench_die("no socket for the enemies: %s", strerror(errno));
    }
    party->pid = must_fork();
    if (party->pid == 0) {
        (void)close(fds[0]);
        obey(fds[1], token);
    }
    (void)close(fds[1]);
    party->fd = fds[0];
}

static void must_obey(struct hostile_party *party, const struct order *order)
{
    char done;

    if (send(party->fd, order, sizeof(*order), MSG_NOSIGNAL) != sizeof(*order) ||
        recv(party->fd, &done, 1, 0) != 1) {
        bench_die("the enemies' process has ended");
    }
}

void hostile_begin(struct hostile_party *party, void *(*run)(void *user),
                   const char *address)
{
    struct order order = {.run = run};

    (void)snprintf(order.address, sizeof(order.address), "%s", address);
    must_obey(party, &order);
}

void hostile_end(struct hostile_party *party)
{
    must_obey(party, &(struct order){0});
}

/* ------------------------------------------------------------------------------- nobody */

/* Accepts and closes. */
static _Noreturn void hang_up(int listener)
{
    for (;;) {
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);

        if (fd >= 0) {
            (void)close(fd);
        }
    }
}

static plasmon_status_t refuse(void *user, struct rpc_stream *stream, struct pl_err *err)
{
    (void)user;
    (void)stream;
    return pl_err_set(err, PLASMON_EAUTH, "nobody is here");
}

/* Refuses each session. */
static _Noreturn void decline(const char *address)
{
    static const struct rpc_method method = {.path = HOSTILE_SESSION, .accept = refuse};
    const char *addresses[]               = {address, NULL};
    const struct rpc_server_config config = {
        .addresses = addresses, .methods = &method, .method_count = 1};
    struct rpc_server *server;
    struct rpc_loop *loop;
    struct pl_err err;

    rpc_init();
    if (rpc_loop_create(&loop) != PLASMON_OK ||
        rpc_server_create(loop, &config, &server, &err) != PLASMON_OK) {
        _exit(1);
    }
    rpc_loop_run(loop);
    _exit(0);
}

static int must_listen(const char *path)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int fd                = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    (void)snprintf(at.sun_path, sizeof(at.sun_path), "%s", path);
    if (fd < 0 || bind(fd, (const struct sockaddr *)&at, sizeof(at)) != 0 ||
        listen(fd, QUEUE) != 0) {
        bench_die("cannot listen at %s: %s", path, strerror(errno));
    }
    return fd;
}

void hostile_must_fork_nobody(const char *closes, const char *refuses)
{
    int listener = must_listen(closes + strlen("unix:"));
    pid_t pid;

    if (must_fork() == 0) {
        hang_up(listener);
    }
    (void)close(listener);
    pid = must_fork();
    if (pid == 0) {
        decline(refuses);
    }
    bench_must_listen(pid, refuses + strlen("unix:"));
}
