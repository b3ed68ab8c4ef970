/*
 * Addresses of a server.
 *
 * The core does two things that we must not let it do: with SO_REUSEPORT (its default; off in
 * server.c) two servers share a TCP port without a word, and a second server on a Unix path unlinks
 * the first one's socket. So a path is guarded by an flock on PATH.lock, held as long as we listen.
 * And since the core does not say why it cannot listen, we ask the kernel the same question again
 * for the answer.
 */
#include "rpc/grpc_int.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "base/log.h"

static const char *address_unix_path(const char *text)
{
    return strncmp(text, "unix:", 5) == 0 ? text + 5 : NULL;
}

/* True: the file behind fd is still the one at path (a leaving owner unlinks it). */
static bool address_same_file(int fd, const char *path)
{
    struct stat held, named;

    return fstat(fd, &held) == 0 && stat(path, &named) == 0 &&
           held.st_ino == named.st_ino && held.st_dev == named.st_dev;
}

static plasmon_status_t address_guard(struct rpc_address *address, const char *path,
                                      struct pl_err *err)
{
    size_t bytes = strlen(path) + sizeof(".lock");

    address->lock_path = pl_alloc(bytes);
    if (address->lock_path == NULL) {
        return pl_err_set(err, PLASMON_ENOMEM, "out of host memory");
    }
    (void)snprintf(address->lock_path, bytes, "%s.lock", path);

    for (;;) {
        address->lock_fd = open(address->lock_path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        if (address->lock_fd < 0) {
            return pl_err_set(err, pl_status_from_errno(errno),
                              "cannot listen on %s: %s: %s", address->text,
                              address->lock_path, strerror(errno));
        }
        if (flock(address->lock_fd, LOCK_EX | LOCK_NB) != 0) {
            int error = errno;

            pl_fd_close(&address->lock_fd);
            return pl_err_set(
                err,
                error == EWOULDBLOCK ? PLASMON_EADDRINUSE : pl_status_from_errno(error),
                "cannot listen on %s: another process serves it", address->text);
        }
        if (address_same_file(address->lock_fd, address->lock_path)) {
            return PLASMON_OK;
        }
        pl_fd_close(&address->lock_fd);
    }
}

/* The errno that listening there gives, 0 if none. */
static int address_ask_tcp(const char *text)
{
    struct addrinfo hints = {.ai_flags = AI_PASSIVE, .ai_socktype = SOCK_STREAM}, *found;
    char host[256], *port;
    int error = 0, one = 1, fd;

    (void)snprintf(host, sizeof(host), "%s", text[0] == '[' ? text + 1 : text);
    port = strrchr(host, ':');
    if (port == NULL) {
        return EINVAL;
    }
    *port++ = '\0';
    if (text[0] == '[' && strchr(host, ']') != NULL) {
        *strchr(host, ']') = '\0';
    }
    if (getaddrinfo(host, port, &hints, &found) != 0) {
        return EADDRNOTAVAIL;
    }

    fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) != 0 ||
        bind(fd, found->ai_addr, found->ai_addrlen) != 0 || listen(fd, 1) != 0) {
        error = errno;
    }
    pl_fd_close(&fd);
    freeaddrinfo(found);
    return error;
}

static plasmon_status_t address_explain(const char *text, struct pl_err *err)
{
    const char *path = address_unix_path(text);
    int error;

    if (path != NULL) {
        if (strlen(path) >= sizeof(((struct sockaddr_un *)NULL)->sun_path)) {
            return pl_err_set(err, PLASMON_EINVAL,
                              "cannot listen on %s: the path is longer than %zu bytes",
                              text, sizeof(((struct sockaddr_un *)NULL)->sun_path) - 1);
        }
        return pl_err_set(
            err, PLASMON_EADDRINUSE,
            "cannot listen on %s: there is something that is no socket, or the folder "
            "cannot be written",
            text);
    }

    error = address_ask_tcp(text);
    if (error == 0 || error == EADDRINUSE) {
        return pl_err_set(err, PLASMON_EADDRINUSE, "cannot listen on %s: address in use",
                          text);
    }
    return pl_err_set(err, pl_status_from_errno(error), "cannot listen on %s: %s", text,
                      strerror(error));
}

plasmon_status_t rpc_address_listen(struct rpc_address *address, struct rpc_server *server,
                                    const char *text, struct pl_err *err)
{
    const char *path = address_unix_path(text);
    grpc_server_credentials *credentials;
    plasmon_status_t status;

    *address = (struct rpc_address){.lock_fd = -1, .text = pl_strdup(text)};
    if (address->text == NULL) {
        return pl_err_set(err, PLASMON_ENOMEM, "out of host memory");
    }
    if (path == NULL && server->tls != NULL) {
        status = pl_mutex_init(&address->tls.lock, PL_RANK_RPC);
        if (status != PLASMON_OK) {
            return pl_err_set(err, status, "out of host memory");
        }
        address->tls.source = server->tls;
    }
    if (path != NULL) {
        status = address_guard(address, path, err);
        if (status != PLASMON_OK) {
            return status;
        }
    }

    credentials   = address->tls.source != NULL ? rpc_tls_server_credentials(&address->tls)
                                                : grpc_insecure_server_credentials_create();
    address->port = grpc_server_add_http2_port(server->server, text, credentials);
    grpc_server_credentials_release(credentials);
    if (address->port == 0) {
        return address_explain(text, err);
    }
    if (path != NULL) {
        address->port = 0;
        if (chmod(path, 0600) != 0) {
            pl_warn("rpc", "cannot make %s private: %s", path, strerror(errno));
        }
    }
    if (address->tls.source != NULL) {
        rpc_room_tls(address->port, true);
    }
    return PLASMON_OK;
}

void rpc_address_finish(struct rpc_address *address)
{
    if (address->lock_fd >= 0) {
        (void)unlink(address->lock_path); /* while it is locked: see address_same_file() */
        pl_fd_close(&address->lock_fd);
    }
    if (address->tls.source != NULL) {
        if (address->port != 0) {
            rpc_room_tls(address->port, false);
        }
        trust_pems_release(address->tls.pems);
        pl_mutex_finish(&address->tls.lock);
    }
    pl_free(address->lock_path);
    pl_free(address->text);
    *address = (struct rpc_address){.lock_fd = -1};
}
