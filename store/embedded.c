/*
 * The embedded default: a private cluster of one client, without names and without anything left behind.
 *
 * The store starts the head and gives it one end of a fresh stream socketpair for everyone who
 * wants to talk to it: itself, each worker, the client. It watches the client twice: by pidfd,
 * which fires however the client ends, and by the control socket, which the client closes to say
 * goodbye. Head and workers watch their control sockets, so if the store is killed they end too.
 *
 * There is no second head: its journal was in memory, so without it nothing means anything any
 * more, and everything ends.
 */
#include "store/daemon_int.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "store/spawn.h"

#define HEAD_QUEUE_MAX 1024u

static void client_gone_ready(struct store_daemon *daemon, struct store_source *source,
                              uint32_t events)
{
    (void)events;
    daemon_unwatch(daemon, source);
    daemon_stop(daemon, 0, "the client has ended");
}

static void head_child_ready(struct store_daemon *daemon, struct store_source *source,
                             uint32_t events)
{
    int wait_status;

    (void)source;
    (void)events;
    if (!daemon_child_reap(daemon, &daemon->head, &wait_status)) {
        return;
    }
    if (!daemon->stopping) {
        pl_error("store", "the head is gone (%s %d)",
                 WIFSIGNALED(wait_status) ? "signal" : "exit status",
                 WIFSIGNALED(wait_status) ? WTERMSIG(wait_status)
                                          : WEXITSTATUS(wait_status));
        daemon_stop(daemon, 1, "the head is gone");
    }
}

/*
 * The head says nothing on its control socket. At its end of file the head is ending, and is known
 * to have when its pidfd says so: then there is a reason to tell. One that lives on cannot be told
 * of connections any more.
 */
static void head_control_ready(struct store_daemon *daemon, struct store_source *source,
                               uint32_t events)
{
    if ((events & EPOLLOUT) != 0 &&
        daemon_link_flush(daemon, &daemon->head_link, source) == PLASMON_OK &&
        (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) == 0) {
        return;
    }
    if ((events & EPOLLIN) != 0 && (events & (EPOLLHUP | EPOLLERR)) == 0) {
        struct store_control message;
        struct pl_err err;
        int fd;
        plasmon_status_t status =
            store_link_receive(&daemon->head_link, &message, &fd, &err);

        pl_fd_close(&fd);
        if (status == PLASMON_OK || status == PLASMON_EAGAIN) {
            return;
        }
    }
    daemon_unwatch(daemon, source);
    if (!daemon->stopping) {
        daemon_child_signal(&daemon->head, SIGKILL); /* changes nothing where it ends */
    }
}

plasmon_status_t embedded_connect(struct store_daemon *daemon, int *out_fd)
{
    struct store_control message = {.type = STORE_CONTROL_ADD_CONNECTION};
    plasmon_status_t status;
    int pair[2];

    if (daemon->head_link.fd < 0) {
        return PLASMON_ECLOSED;
    }
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0) {
        return pl_status_from_errno(errno);
    }
    status = store_link_send(&daemon->head_link, &message, &pair[1], 1);
    pl_fd_close(&pair[1]);
    if (status != PLASMON_OK) {
        pl_fd_close(&pair[0]);
        return status;
    }
    (void)daemon_link_flush(
        daemon, &daemon->head_link,
        &daemon->head_control); /* a dead head is noticed by its pidfd */
    *out_fd = pair[0];
    return PLASMON_OK;
}

plasmon_status_t embedded_send_head_fd(struct store_daemon *daemon, struct store_link *link)
{
    struct store_control message = {.type = STORE_CONTROL_HEAD_FD};
    plasmon_status_t status;
    int fd;

    status = embedded_connect(daemon, &fd);
    if (status != PLASMON_OK) {
        return status;
    }
    status = store_link_send(link, &message, &fd, 1);
    pl_fd_close(&fd);
    return status;
}

static plasmon_status_t head_spawn(struct store_daemon *daemon, struct pl_err *err)
{
    static char log[32];
    const char *environ_add[2] = {NULL, NULL};
    char path[4096];
    char *argv[STORE_HEAD_ARGS_MAX + 8] = {NULL};
    unsigned count                      = 0;
    struct store_spawn spawn;
    plasmon_status_t status = store_program_path("plasmon-head", path, sizeof(path));
    int pair[2];

    if (status != PLASMON_OK) {
        return pl_err_set(err, status, "cannot tell where plasmon-head is");
    }
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
        return pl_err_set(err, pl_status_from_errno(errno), "socketpair: %s",
                          strerror(errno));
    }
    argv[count++] = path;
    argv[count++] = (char *)(uintptr_t) "--embedded";
    argv[count++] = (char *)(uintptr_t) "--control-fd";
    argv[count++] = (char *)(uintptr_t) "3";
    for (uint32_t i = 0; i < daemon->options->head_arg_count; i++) {
        argv[count++] = (char *)(uintptr_t)daemon->options->head_args[i];
    }
    if (daemon->options->log != NULL) {
        (void)snprintf(log, sizeof(log), "PLASMON_LOG=%s", daemon->options->log);
        environ_add[0] = log;
    }
    spawn  = (struct store_spawn){.path        = path,
                                  .argv        = argv,
                                  .environ_add = environ_add,
                                  .fds         = &pair[1],
                                  .fd_count    = 1,
                                  .stdout_fd   = -1};
    status = store_spawn(&spawn, &daemon->head.pid, &daemon->head.pidfd, err);
    pl_fd_close(&pair[1]);
    if (status != PLASMON_OK) {
        daemon->head.pid = 0;
        pl_fd_close(&pair[0]);
        return status;
    }

    store_link_init(&daemon->head_link, pair[0], HEAD_QUEUE_MAX);
    daemon_watch(daemon, &daemon->head_control, pair[0], EPOLLIN, head_control_ready);
    daemon_watch(daemon, &daemon->head.source, daemon->head.pidfd, EPOLLIN,
                 head_child_ready);
    return PLASMON_OK;
}

plasmon_status_t embedded_start(struct store_daemon *daemon, struct pl_err *err)
{
    const struct store_options *options = daemon->options;
    plasmon_status_t status;
    struct store_client *client;

    if (options->client_pidfd >= 0) {
        daemon_watch(daemon, &daemon->client_gone, options->client_pidfd, EPOLLIN,
                     client_gone_ready);
    }
    status = head_spawn(daemon, err);
    if (status != PLASMON_OK) {
        return status;
    }
    status = clients_add(daemon, options->client_fd, 0, err);
    if (status != PLASMON_OK) {
        return status;
    }

    client = pl_list_first(&daemon->clients, struct store_client, list);
    status = embedded_send_head_fd(daemon, &client->link);
    return status == PLASMON_OK ? status
                                : pl_err_set(err, status, "cannot reach the client: %s",
                                             pl_status_text(status));
}

void embedded_finish(struct store_daemon *daemon)
{
    daemon_unwatch(daemon, &daemon->client_gone);
    daemon_unwatch(daemon, &daemon->head.source);
    pl_fd_close(&daemon->head.pidfd);
    if (daemon->head_link.fd >= 0) {
        daemon_unwatch(daemon, &daemon->head_control);
        store_link_finish(&daemon->head_link);
    }
}
