/*
 * Clients of the host: processes that map the memory of CPU devices and read the object tables.
 *
 * A client is whoever runs as the same user and speaks the control protocol; one that does not is
 * told why and dropped, and nobody else notices. It has a page of pins from its hello until its
 * socket or its process ends, whichever comes first; then the page is cleared, the workers are
 * told, and what it held can be freed.
 *
 * Who connects and says nothing holds two descriptors, so there are STRANGERS_MAX of those at most:
 * one more, and the one that has been there longest is hung up on. When no descriptor is left, one
 * that is kept for it lets the next caller in to be hung up on: a caller that waits in the queue
 * would wake the loop for ever. And the last FILES_KEPT are for the workers: what one of them sends
 * with a descriptor is lost when there is none, and it must be replaced, which takes some, too.
 */
#include "store/daemon_int.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "base/host.h"
#include "base/log.h"
#include "device/device.h"
#include "store/lanes.h"
#include "store/setup.h"

#define CLIENTS_MAX   1024u /* connections; those without a hello yet count too */
#define STRANGERS_MAX 64u   /* of these without one */
#define FILES_KEPT    64u   /* or a quarter, where there are few */

static void client_drop(struct store_daemon *daemon, struct store_client *client)
{
    pl_debug("store", "client %d is gone", (int)client->pid);
    daemon_unwatch(daemon, &client->control);
    daemon_unwatch(daemon, &client->gone);
    pl_fd_close(&client->pidfd);
    store_link_finish(&client->link);
    if (client->greeted) {
        workers_ring(daemon, store_lanes_release(&daemon->host, client->reader));
        host_buffers_drop_of(daemon, client->reader);
        store_host_remove_reader(&daemon->host, client->reader);
        workers_tell_reader(daemon, client->reader, false);
    }
    pl_list_remove(&client->list);
    daemon->client_count--;
    pl_free(client);
}

plasmon_status_t clients_error(struct store_client *client,
                               const struct store_control *request, plasmon_status_t error,
                               const char *text)
{
    struct store_control answer = {.type        = STORE_CONTROL_ERROR,
                                   .host_device = request->host_device,
                                   .chunk_id    = request->chunk_id,
                                   .status      = error};

    (void)snprintf(answer.text, sizeof(answer.text), "%.255s", text);
    return store_link_send(&client->link, &answer, NULL, 0);
}

/* New descriptors have the lowest number that is free. Is that one of those kept for workers? */
static bool files_are_kept_from(int fd)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) {
        return false;
    }
    return (rlim_t)fd + pl_min_u64(FILES_KEPT, limit.rlim_cur / 4) >= limit.rlim_cur;
}

bool clients_files_left(const struct store_daemon *daemon)
{
    bool left = true;

    if (!daemon->options->embedded) {
        int lowest = fcntl(daemon->listen_fd, F_DUPFD_CLOEXEC, 3);

        left = lowest >= 0 ? !files_are_kept_from(lowest) : errno != EMFILE;
        pl_fd_close(&lowest);
    }
    return left;
}

/* ----------------------------------------------------------------------------- requests */

/*
 * The record that we made of a client of the store before us (clients_adopt), of this process and
 * with this page. NULL: there is none.
 */
static struct store_client *client_before(struct store_daemon *daemon,
                                          const struct store_client *client,
                                          const struct store_control *hello)
{
    struct pl_list *pos;

    if (hello->offset == 0 || hello->offset != daemon->host.memory) {
        return NULL;
    }
    pl_list_for_each(pos, &daemon->clients) {
        struct store_client *before = pl_container_of(pos, struct store_client, list);

        if (before->greeted && before->link.fd < 0 && before->reader == hello->reader &&
            before->pid == client->pid) {
            return before;
        }
    }
    return NULL;
}

/* It has its page, and what goes with it, from the store before us: all of that goes on, by a new socket. */
static plasmon_status_t client_again(struct store_daemon *daemon,
                                     struct store_client *client,
                                     struct store_client *before)
{
    client->reader  = before->reader;
    client->greeted = true;
    before->greeted = false; /* its page is not its any more */
    client_drop(daemon, before);
    pl_info("store", "client %d of the store before is back", (int)client->pid);
    return store_setup_client(&daemon->host, client->reader, true, &client->link);
}

static plasmon_status_t client_hello(struct store_daemon *daemon,
                                     struct store_client *client,
                                     const struct store_control *message)
{
    struct store_client *before;
    plasmon_status_t status;

    if (client->greeted) {
        return clients_error(client, message, PLASMON_EEXIST, "said hello already");
    }
    before = client_before(daemon, client, message);
    if (before != NULL) {
        return client_again(daemon, client, before);
    }
    if (!clients_files_left(daemon)) {
        (void)clients_error(client, message, PLASMON_ELIMIT, STORE_FEW_FILES);
        return PLASMON_ELIMIT;
    }
    status = store_host_add_reader(&daemon->host, (uint64_t)client->pid, &client->reader);
    if (status != PLASMON_OK) {
        char text[128];

        (void)snprintf(text, sizeof(text),
                       "no page of pins: this host has %u readers already",
                       STORE_READER_MAX);
        (void)clients_error(client, message, PLASMON_ELIMIT, text);
        return PLASMON_ELIMIT;
    }
    client->greeted = true;
    /* The epoch was raised: until a worker has taken this over, it frees nothing. */
    workers_tell_reader(daemon, client->reader, true);
    return store_setup_client(&daemon->host, client->reader, false, &client->link);
}

static plasmon_status_t client_get_chunk(struct store_daemon *daemon,
                                         struct store_client *client,
                                         const struct store_control *message)
{
    const struct store_host *host = &daemon->host;
    const struct store_host_chunk *chunk;

    if (!client->greeted) {
        return clients_error(client, message, PLASMON_EINVAL, "hello comes first");
    }
    if (message->host_device >= host->device_count) {
        return clients_error(client, message, PLASMON_ENOENT,
                             "no such device on this host");
    }
    if (host->devices[message->host_device].kind != DEVICE_CPU) {
        return clients_error(client, message, PLASMON_EUNREACHABLE,
                             "memory of a GPU cannot be mapped by a client");
    }
    chunk = store_host_chunk_find(host, message->host_device, message->chunk_id);
    if (chunk == NULL) {
        return clients_error(client, message, PLASMON_ENOENT,
                             "no such chunk on this device");
    }
    return store_setup_chunk(host, message->host_device, chunk, !chunk->client_writable,
                             &client->link);
}

static plasmon_status_t client_get_lane(struct store_daemon *daemon,
                                        struct store_client *client,
                                        const struct store_control *message)
{
    struct store_host_lane *lane;
    bool made;
    plasmon_status_t status;

    if (!client->greeted) {
        return clients_error(client, message, PLASMON_EINVAL, "hello comes first");
    }
    if (message->host_device >= daemon->host.device_count) {
        return clients_error(client, message, PLASMON_ENOENT,
                             "no such device on this host");
    }
    if (!clients_files_left(daemon)) {
        return clients_error(client, message, PLASMON_ELIMIT, STORE_FEW_FILES);
    }
    status =
        store_lanes_take(&daemon->host, message->host_device, client->reader, &lane, &made);
    if (status != PLASMON_OK) {
        char text[128];

        (void)snprintf(text, sizeof(text), "no lane to device %u of this host: %s",
                       message->host_device,
                       status == PLASMON_EAGAIN ? "all that it may have are in use"
                                                : pl_status_text(status));
        return clients_error(client, message, status, text);
    }
    if (made) {
        workers_tell_lane(daemon, message->host_device, lane);
    }
    return store_setup_lane(&daemon->host, message->host_device, lane, true, &client->link);
}

static plasmon_status_t client_message(struct store_daemon *daemon,
                                       struct store_client *client,
                                       const struct store_control *message)
{
    char text[96];

    switch (message->type) {
    case STORE_CONTROL_CLIENT_HELLO:
        return client_hello(daemon, client, message);
    case STORE_CONTROL_GET_CHUNK:
        return client_get_chunk(daemon, client, message);
    case STORE_CONTROL_GET_LANE:
        return client_get_lane(daemon, client, message);
    case STORE_CONTROL_GET_HOST_BUFFER:
        return host_buffers_get(daemon, client, message);
    case STORE_CONTROL_HOST_BUFFER_DROP:
        return host_buffers_drop(daemon, client, message);
    case STORE_CONTROL_NEW_HEAD_FD:
        return daemon->options->embedded
                   ? embedded_send_head_fd(daemon, &client->link)
                   : clients_error(client, message, PLASMON_ENOTSUP,
                                   "only an embedded cluster hands out connections");
    default:
        (void)snprintf(text, sizeof(text), "control message of unknown type %u",
                       message->type);
        (void)clients_error(client, message, PLASMON_EMALFORMED, text);
        return PLASMON_EMALFORMED;
    }
}

static plasmon_status_t client_read(struct store_daemon *daemon,
                                    struct store_client *client)
{
    struct store_control message;
    struct pl_err err;
    plasmon_status_t status;
    int fd;

    status = store_link_receive(&client->link, &message, &fd, &err);
    pl_fd_close(&fd); /* clients have nothing to give */
    if (status == PLASMON_EAGAIN) {
        return PLASMON_OK;
    }
    if (status == PLASMON_EMALFORMED || status == PLASMON_EVERSION) {
        pl_debug("store", "client %d: %s", (int)client->pid, err.text);
        (void)clients_error(client, &message, status, err.text); /* it is dropped anyway */
        return status;
    }
    return status == PLASMON_OK ? client_message(daemon, client, &message) : status;
}

/* -------------------------------------------------------------------------- connections */

static bool client_is_embedded(const struct store_daemon *daemon,
                               const struct store_client *client)
{
    return daemon->options->embedded && client->link.fd == daemon->options->client_fd;
}

static void client_ready(struct store_daemon *daemon, struct store_source *source,
                         uint32_t events)
{
    struct store_client *client = pl_container_of(source, struct store_client, control);
    plasmon_status_t status     = PLASMON_OK;

    if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) {
        status = client_read(daemon, client);
    }
    if (status == PLASMON_OK) {
        status = daemon_link_flush(daemon, &client->link, source);
    }
    if (status != PLASMON_OK) {
        bool embedded = client_is_embedded(daemon, client);

        client_drop(daemon, client);
        if (embedded) {
            daemon_stop(daemon, 0, "the client closed its socket");
        }
    }
}

/* Room for one more that has not said hello. */
static void strangers_limit(struct store_daemon *daemon)
{
    struct store_client *oldest = NULL;
    uint32_t count              = 0;
    struct pl_list *pos;

    pl_list_for_each(pos, &daemon->clients) {
        struct store_client *client = pl_container_of(pos, struct store_client, list);

        if (!client->greeted && !client_is_embedded(daemon, client)) {
            oldest = oldest != NULL ? oldest : client;
            count++;
        }
    }
    if (count >= STRANGERS_MAX) {
        client_drop(daemon, oldest);
    }
}

static void client_ended(struct store_daemon *daemon, struct store_source *source,
                         uint32_t events)
{
    (void)events;
    client_drop(daemon, pl_container_of(source, struct store_client, gone));
}

plasmon_status_t clients_add(struct store_daemon *daemon, int fd, pid_t pid,
                             struct pl_err *err)
{
    struct store_client *client =
        daemon->client_count < CLIENTS_MAX ? PL_NEW(struct store_client) : NULL;

    if (client == NULL) {
        pl_fd_close(&fd);
        return pl_err_set(err, PLASMON_ELIMIT, "more than %u clients, or out of memory",
                          CLIENTS_MAX);
    }
    store_link_init(&client->link, fd, STORE_CLIENT_QUEUE_MAX);
    client->pid     = pid;
    client->pidfd   = pid > 0 ? pl_pidfd_open(pid) : -1;
    client->gone.fd = -1;
    if (client->pidfd >= 0) {
        daemon_watch(daemon, &client->gone, client->pidfd, EPOLLIN, client_ended);
    }
    daemon_watch(daemon, &client->control, fd, EPOLLIN, client_ready);
    pl_list_add_tail(&daemon->clients, &client->list);
    daemon->client_count++;
    return PLASMON_OK;
}

plasmon_status_t clients_adopt(struct store_daemon *daemon)
{
    for (uint32_t i = daemon->host.device_count; i < STORE_READER_MAX; i++) {
        const struct store_pins *page = daemon->host.pages[i];
        struct store_client *client   = page != NULL ? PL_NEW(struct store_client) : NULL;
        pid_t pid                     = page != NULL ? (pid_t)page->owner_pid : 0;

        if (page == NULL) {
            continue;
        }
        if (client == NULL) {
            return PLASMON_ENOMEM;
        }
        client->pidfd = pid > 0 ? pl_pidfd_open(pid) : -1;
        if (pid > 0 && client->pidfd < 0 && pl_fd_none_left(errno)) {
            pl_free(client); /* it may live: what it reads is not to be given to others */
            return PLASMON_ELIMIT;
        }
        client->link       = (struct store_link){.fd = -1}; /* it was to the other store */
        client->control.fd = -1;
        client->gone.fd    = -1;
        client->pid        = pid;
        client->greeted    = true;
        client->reader     = i;
        pl_list_add_tail(&daemon->clients, &client->list);
        daemon->client_count++;
        if (client->pidfd >= 0) {
            daemon_watch(daemon, &client->gone, client->pidfd, EPOLLIN, client_ended);
        } else {
            client_drop(daemon, client); /* it has ended meanwhile */
        }
    }
    return PLASMON_OK;
}

/* Tell somebody who may not come in why, and hang up. */
static void refuse(int fd, plasmon_status_t status, const char *text)
{
    struct store_control answer = {
        .version = STORE_CONTROL_VERSION, .type = STORE_CONTROL_ERROR, .status = status};

    (void)snprintf(answer.text, sizeof(answer.text), "%s", text);
    (void)!pl_fd_send(fd, &answer, sizeof(answer), NULL, 0); /* it may be gone */
    pl_fd_close(&fd);
}

/* No descriptor is left: the next caller gets the spare one, for a moment. */
static void refuse_unheard(struct store_daemon *daemon, int listener)
{
    int fd;

    pl_fd_close(&daemon->spare_fd);
    fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    pl_fd_close(&fd);
    daemon->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    pl_warn("store",
            "a client is refused: no descriptor is left (ulimit -n, LimitNOFILE=)");
}

static void listener_ready(struct store_daemon *daemon, struct store_source *source,
                           uint32_t events)
{
    int fd = accept4(source->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    struct ucred peer;
    socklen_t length = sizeof(peer);
    struct pl_err err;

    (void)events;
    if (fd < 0) {
        if (errno == EMFILE || errno == ENFILE) {
            refuse_unheard(daemon, source->fd);
        }
        return;
    }
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) {
        pl_fd_close(&fd);
        return;
    }
    if (peer.uid != geteuid()) {
        char text[128];

        (void)snprintf(text, sizeof(text), "this store belongs to user %u, you are user %u",
                       (unsigned)geteuid(), (unsigned)peer.uid);
        pl_warn("store", "refused a client of user %u", (unsigned)peer.uid);
        refuse(fd, PLASMON_EAUTH, text);
        return;
    }
    if (files_are_kept_from(fd)) {
        pl_warn("store", "a client is refused: %s", STORE_FEW_FILES);
        refuse(fd, PLASMON_ELIMIT, STORE_FEW_FILES);
        return;
    }
    strangers_limit(daemon);
    if (clients_add(daemon, fd, peer.pid, &err) != PLASMON_OK) {
        pl_warn("store", "%s", err.text);
    }
}

/* --------------------------------------------------------------------------- the socket */

/* The one that `plasmon` has, too. */
static plasmon_status_t folder_default(char *out, size_t out_bytes)
{
    static bool told; /* asked for each kind of socket */
    char folder[PL_RUNTIME_FOLDER_BYTES], why[512];

    pl_runtime_folder(folder, why, sizeof(why));
    if (why[0] != '\0' && !told) {
        pl_warn("store", "%s", why);
        told = true;
    }
    return (size_t)snprintf(out, out_bytes, "%s", folder) < out_bytes ? PLASMON_OK
                                                                      : PLASMON_ELIMIT;
}

/* Ours, a real folder, and closed to everybody else: otherwise somebody else could put a socket there. */
static plasmon_status_t folder_check(const char *folder, struct pl_err *err)
{
    struct stat info;

    if (mkdir(folder, 0700) != 0 && errno != EEXIST) {
        return pl_err_set(err, pl_status_from_errno(errno), "cannot make %s: %s", folder,
                          strerror(errno));
    }
    if (lstat(folder, &info) != 0) {
        return pl_err_set(err, pl_status_from_errno(errno), "%s: %s", folder,
                          strerror(errno));
    }
    if (!S_ISDIR(info.st_mode) || info.st_uid != geteuid() || (info.st_mode & 077) != 0) {
        return pl_err_set(err, PLASMON_EPERM,
                          "%s must be a folder of user %u with mode 0700", folder,
                          (unsigned)geteuid());
    }
    return PLASMON_OK;
}

enum store_neighbour clients_look(const struct sockaddr_un *address)
{
    enum store_neighbour found = STORE_NEIGHBOUR_NONE;
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0) {
        return STORE_NEIGHBOUR_UNKNOWN;
    }
    if (connect(fd, (const struct sockaddr *)address, sizeof(*address)) == 0 ||
        errno == EAGAIN) {
        found = STORE_NEIGHBOUR_ALIVE;
    } else if (errno == ECONNREFUSED) {
        found = STORE_NEIGHBOUR_DEAD;
    }
    pl_fd_close(&fd);
    return found;
}

/* Sockets of stores that were killed. */
static void folder_clean(const char *folder)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    DIR *dir                   = opendir(folder);
    struct dirent *item;

    if (dir == NULL) {
        return;
    }
    while ((item = readdir(dir)) != NULL) {
        int pid;
        int end = 0;

        if (sscanf(item->d_name, "store-%d.sock%n", &pid, &end) == 1 && end > 0 &&
            item->d_name[end] == '\0' && pid > 0 &&
            (size_t)snprintf(address.sun_path, sizeof(address.sun_path), "%s/%s", folder,
                             item->d_name) < sizeof(address.sun_path) &&
            clients_look(&address) == STORE_NEIGHBOUR_DEAD) {
            (void)unlinkat(dirfd(dir), item->d_name, 0); /* or another store was quicker */
        }
    }
    (void)closedir(dir);
}

static plasmon_status_t socket_bind(struct store_daemon *daemon, struct pl_err *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    static_assert(sizeof(address.sun_path) == sizeof(daemon->socket_path), "same limit");
    memcpy(address.sun_path, daemon->socket_path, sizeof(address.sun_path));
    (void)unlink(daemon->socket_path); /* of a dead store that had our pid */
    daemon->listen_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (daemon->listen_fd < 0 ||
        bind(daemon->listen_fd, (struct sockaddr *)&address, sizeof(address)) != 0 ||
        listen(daemon->listen_fd, 64) != 0) {
        plasmon_status_t status = pl_status_from_errno(errno);

        (void)pl_err_set(err, status, "cannot listen on %s: %s", daemon->socket_path,
                         strerror(errno));
        pl_fd_close(&daemon->listen_fd);
        daemon->socket_path[0] = '\0';
        return status;
    }
    return PLASMON_OK;
}

plasmon_status_t clients_folder(struct store_daemon *daemon, char *out, size_t out_bytes,
                                struct pl_err *err)
{
    const char *given       = daemon->options->socket_dir;
    plasmon_status_t status = PLASMON_OK;

    if (given == NULL) {
        status = folder_default(out, out_bytes);
    } else if ((size_t)snprintf(out, out_bytes, "%s", given) >= out_bytes) {
        status = PLASMON_ELIMIT;
    }
    return status == PLASMON_OK
               ? folder_check(out, err)
               : pl_err_set(err, status, "the socket folder's name is too long: %s",
                            given != NULL ? given : "$XDG_RUNTIME_DIR");
}

plasmon_status_t clients_listen(struct store_daemon *daemon, struct pl_err *err)
{
    char folder[sizeof(daemon->socket_path)];
    plasmon_status_t status = clients_folder(daemon, folder, sizeof(folder), err);
    int length;

    if (status != PLASMON_OK) {
        return status;
    }
    length = snprintf(daemon->socket_path, sizeof(daemon->socket_path), "%s/store-%d.sock",
                      folder, (int)getpid());
    if (length <= 0 || (size_t)length >= sizeof(daemon->socket_path)) {
        daemon->socket_path[0] = '\0';
        return pl_err_set(err, PLASMON_ELIMIT, "the socket folder's name is too long: %s",
                          folder);
    }
    folder_clean(folder);
    status = socket_bind(daemon, err);
    if (status == PLASMON_OK) {
        daemon->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC); /* without: as it was */
        daemon_watch(daemon, &daemon->listener, daemon->listen_fd, EPOLLIN, listener_ready);
        pl_info("store", "clients of this host: %s", daemon->socket_path);
    } else {
        daemon->socket_path[0] = '\0';
    }
    return status;
}

void clients_finish(struct store_daemon *daemon)
{
    while (!pl_list_empty(&daemon->clients)) {
        struct store_client *client =
            pl_list_first(&daemon->clients, struct store_client, list);

        /*
         * Its page stays as it is: it lives, may have something mapped, and lets go of that when it
         * likes. There is no worker any more that would free it.
         */
        client->greeted = false;
        client_drop(daemon, client);
    }
    if (daemon->listen_fd >= 0) {
        daemon_unwatch(daemon, &daemon->listener);
        pl_fd_close(&daemon->listen_fd);
        pl_fd_close(&daemon->spare_fd);
        (void)unlink(daemon->socket_path); /* somebody may have cleaned up for us */
    }
}
