/*
 * LIFE OF A CONNECTION
 *
 *   accept -> [reading] -> [waiting] -> [writing] -> [closing] -> closed
 *
 * One request each, then "Connection: close". Reading ends with the request (metrics_request.h) or
 * its time; waiting with an answer of the head or its time; writing when all is out or its time is
 * over. Closing reads on and throws away until the peer has closed too, for a moment at most: bytes
 * that nobody has read when a socket is closed make the kernel reset the connection, and what the
 * peer was sent is lost with it.
 *
 * BOUNDS  A connection has a buffer of one request; texts are shared. When there are peers_max
 * connections, one that waits for nothing of ours gives way to the next that comes: the oldest that
 * has not sent its request, else the oldest that takes its answer. So who holds connections open
 * keeps nobody out, and a scrape, whose request is there with its connection, is disturbed only by
 * more strangers than peers_max in the time that takes.
 *
 * TEXTS  are made here, of a status that the head's loop packed. One is good for fresh_ms: until
 * then all are told the same, and the head is not asked.
 */
#include "head/metrics.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/list.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/thread.h"
#include "head/metrics_request.h"
#include "wire/metrics.h"
#include "wire/wire.h"

enum {
    REQUEST_MS     = 5000,
    ANSWER_MS      = 5000,
    SEND_MS        = 10000,
    FRESH_MS       = 1000, /* Prometheus asks every 15 s by default */
    CLOSE_MS       = 1000,
    PEERS_MAX      = 32,
    PEERS_MAX_MAX  = 1024,
    NO_ROOM_MS     = 100, /* no descriptor was free: accept again after this */
    STEP_BYTES_MAX = 64 << 10,
};

enum peer_state { PEER_READING, PEER_WAITING, PEER_WRITING, PEER_CLOSING };

/* What is sent: a whole answer, or an error. Shared; thread of the listener alone. */
struct text {
    uint32_t refs;
    struct pl_str body;
};

struct peer {
    int fd;
    enum peer_state state;
    uint64_t deadline_ms; /* of this state */
    struct pl_list link;  /* metrics.peers, the oldest first */
    struct text *text;    /* writing */
    size_t sent;
    size_t length;
    char request[HEAD_METRICS_REQUEST_BYTES_MAX];
};

struct head_metrics {
    /* Constant. */
    struct head_metrics_config config;
    int listen_fd;
    int wake_fd;
    uint16_t port;
    pthread_t thread;

    struct pl_mutex lock; /* leaf; guards the next five */
    bool stopping;
    bool answered;
    uint8_t *reply; /* NULL: there is none */
    size_t reply_length;

    /* Of the thread. */
    struct pl_list peers;
    uint32_t peer_count;
    struct pollfd *polls;  /* 2 + peers_max */
    struct text *fresh;    /* the last answer; NULL */
    uint64_t fresh_ms;     /* when it came */
    bool asked;            /* the head has not answered yet */
    uint64_t accept_at_ms; /* no descriptor was free; 0: one was */
};

static uint64_t now_ms(void)
{
    return pl_now_ns() / 1000000;
}

static uint32_t or_default(uint32_t value, uint32_t otherwise)
{
    return value != 0 ? value : otherwise;
}

/* -------------------------------------------------------------------------------- texts */

static void text_release(struct text *text)
{
    if (text != NULL && --text->refs == 0) {
        pl_str_finish(&text->body);
        pl_free(text);
    }
}

/* Head and body; refs 1. NULL: no memory. */
static struct text *text_make(int status, const char *more, const struct pl_str *body)
{
    static const struct {
        int status;
        const char *reason;
    } reasons[]        = {{200, "OK"},
                          {400, "Bad Request"},
                          {404, "Not Found"},
                          {405, "Method Not Allowed"},
                          {408, "Request Timeout"},
                          {414, "URI Too Long"},
                          {431, "Request Header Fields Too Large"},
                          {503, "Service Unavailable"},
                          {505, "HTTP Version Not Supported"}};
    struct text *text  = PL_NEW(struct text);
    const char *reason = "";

    if (text == NULL) {
        return NULL;
    }
    for (size_t i = 0; i < PL_COUNT(reasons); i++) {
        reason = reasons[i].status == status ? reasons[i].reason : reason;
    }
    text->refs = 1;
    pl_str_init(&text->body);
    pl_str_append(&text->body,
                  "HTTP/1.1 %d %s\r\n"
                  "Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
                  "Content-Length: %zu\r\n"
                  "Cache-Control: no-store\r\n"
                  "X-Content-Type-Options: nosniff\r\n"
                  "%s"
                  "Connection: close\r\n\r\n%s",
                  status, reason, body->length, more, pl_str_text(body));
    if (text->body.failed != 0) {
        text_release(text);
        return NULL;
    }
    return text;
}

static struct text *text_error(int status)
{
    const char *says = status == 404   ? "there is /metrics and nothing else"
                       : status == 405 ? "only GET"
                       : status == 408 ? "no request came in time"
                       : status == 503 ? "the head does not answer"
                                       : "no request that is understood here";
    struct text *text;
    struct pl_str body;

    pl_str_init(&body);
    pl_str_append(&body, "%s\n", says);
    text = text_make(status, status == 405 ? "Allow: GET\r\n" : "", &body);
    pl_str_finish(&body);
    return text;
}

static struct text *text_of_status(const uint8_t *bytes, size_t length)
{
    struct text *text = NULL;
    struct pl_err err = {0};
    Plasmon__V1__StatusReply *reply;
    struct wire_arena arena;
    struct pl_str body;

    if (wire_arena_init(&arena, WIRE_ARENA_BYTES_MAX) != PLASMON_OK) {
        return NULL;
    }
    pl_str_init(&body);
    if (wire_decode_status_reply(&arena, bytes, length, &reply, &err) == PLASMON_OK) {
        wire_metrics_up(true, &body);
        wire_metrics_text(reply, &body);
        text = body.failed == 0 ? text_make(200, "", &body) : NULL;
    } else {
        pl_warn("head", "the status is no status: %s", err.text);
    }
    pl_str_finish(&body);
    wire_arena_finish(&arena);
    return text;
}

/* -------------------------------------------------------------------------------- peers */

static void peer_close(struct head_metrics *metrics, struct peer *peer)
{
    pl_list_remove(&peer->link);
    metrics->peer_count--;
    pl_fd_close(&peer->fd);
    text_release(peer->text);
    pl_free(peer);
}

static void peer_enter(struct peer *peer, enum peer_state state, uint32_t for_ms)
{
    peer->state       = state;
    peer->deadline_ms = now_ms() + for_ms;
}

/* Takes the text; NULL: there was no memory for it. */
static void peer_tell(struct head_metrics *metrics, struct peer *peer, struct text *text)
{
    if (text == NULL) {
        peer_close(metrics, peer);
        return;
    }
    peer->text = text;
    peer_enter(peer, PEER_WRITING, or_default(metrics->config.send_ms, SEND_MS));
}

static void peer_wants_status(struct head_metrics *metrics, struct peer *peer)
{
    uint64_t fresh_ms = or_default(metrics->config.fresh_ms, FRESH_MS);

    if (metrics->fresh != NULL && now_ms() - metrics->fresh_ms < fresh_ms) {
        metrics->fresh->refs++;
        peer_tell(metrics, peer, metrics->fresh);
        return;
    }
    peer_enter(peer, PEER_WAITING, or_default(metrics->config.answer_ms, ANSWER_MS));
    if (!metrics->asked) {
        metrics->asked = true;
        metrics->config.ask(metrics->config.user);
    }
}

/* What has come of the request. */
static void peer_read(struct head_metrics *metrics, struct peer *peer)
{
    ssize_t got = recv(peer->fd, peer->request + peer->length,
                       sizeof(peer->request) - peer->length, 0);
    int status;

    if (got <= 0) {
        if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
            peer_close(metrics, peer);
        }
        return;
    }
    peer->length += (size_t)got;
    status = head_metrics_request(peer->request, peer->length);
    if (status == 200) {
        peer_wants_status(metrics, peer);
    } else if (status != 0) {
        peer_tell(metrics, peer, text_error(status));
    }
}

static void peer_write(struct head_metrics *metrics, struct peer *peer)
{
    const struct pl_str *body = &peer->text->body;
    ssize_t sent =
        send(peer->fd, body->text + peer->sent,
             pl_min_u64(body->length - peer->sent, STEP_BYTES_MAX), MSG_NOSIGNAL);

    if (sent < 0) {
        if (errno != EAGAIN && errno != EINTR) {
            peer_close(metrics, peer);
        }
        return;
    }
    peer->sent += (size_t)sent;
    if (peer->sent == body->length) {
        (void)shutdown(peer->fd,
                       SHUT_WR); /* it fails if the peer is gone, which recv() tells */
        text_release(peer->text);
        peer->text = NULL;
        peer_enter(peer, PEER_CLOSING, CLOSE_MS);
    }
}

/* It has all; what it still says nobody reads. */
static void peer_drain(struct head_metrics *metrics, struct peer *peer)
{
    ssize_t got = recv(peer->fd, peer->request, sizeof(peer->request), 0);

    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) {
        peer_close(metrics, peer);
    }
}

/* Its time is over. */
static void peer_late(struct head_metrics *metrics, struct peer *peer)
{
    if (peer->state == PEER_READING && peer->length > 0) {
        peer_tell(metrics, peer, text_error(408));
    } else if (peer->state == PEER_WAITING) {
        peer_tell(metrics, peer, text_error(503));
    } else {
        peer_close(metrics, peer);
    }
}

/* Who gives way; NULL: all wait for us. */
static struct peer *peer_oldest(struct head_metrics *metrics)
{
    struct peer *writing = NULL;
    struct pl_list *pos;

    pl_list_for_each(pos, &metrics->peers) {
        struct peer *peer = pl_container_of(pos, struct peer, link);

        if (peer->state == PEER_READING) {
            return peer;
        }
        if (peer->state != PEER_WAITING && writing == NULL) {
            writing = peer;
        }
    }
    return writing;
}

/* --------------------------------------------------------------------------- the thread */

static uint32_t peers_max(const struct head_metrics *metrics)
{
    return or_default(metrics->config.peers_max, PEERS_MAX);
}

/* accept4() of this process is for HTTP/2 and TLS: it closes whoever says anything else (rpc/accept.c). */
static int accept_ours(int listen_fd)
{
    int fd = accept(listen_fd, NULL, NULL);

    if (fd >= 0) {
        (void)fcntl(fd, F_SETFD, FD_CLOEXEC); /* of an open descriptor neither fails */
        (void)fcntl(fd, F_SETFL, O_NONBLOCK);
    }
    return fd;
}

/* One, for which there is a place: it may be that of another, of whom nobody wants anything. */
static void accept_next(struct head_metrics *metrics)
{
    struct peer *oldest =
        metrics->peer_count == peers_max(metrics) ? peer_oldest(metrics) : NULL;
    struct peer *peer;
    int fd;

    if (metrics->peer_count == peers_max(metrics) && oldest == NULL) {
        return; /* since it was decided to accept, its request has come */
    }
    fd                    = accept_ours(metrics->listen_fd);
    metrics->accept_at_ms = 0;
    if (fd < 0) {
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            metrics->accept_at_ms = now_ms() + NO_ROOM_MS;
        }
        return;
    }
    if (oldest != NULL) {
        peer_close(metrics, oldest);
    }
    peer = PL_NEW(struct peer);
    if (peer == NULL) {
        (void)close(fd);
        return;
    }
    peer->fd = fd;
    pl_list_init(&peer->link);
    pl_list_add_tail(&metrics->peers, &peer->link);
    metrics->peer_count++;
    peer_enter(peer, PEER_READING, or_default(metrics->config.request_ms, REQUEST_MS));
}

/* false: it is to end. */
static bool take_answer(struct head_metrics *metrics)
{
    struct pl_list *pos, *tmp;
    uint8_t *reply;
    size_t length;
    bool answered, stopping;

    (void)pl_fd_lower(metrics->wake_fd); /* it may have been nobody */
    pl_mutex_lock(&metrics->lock);
    answered          = metrics->answered;
    reply             = metrics->reply;
    length            = metrics->reply_length;
    stopping          = metrics->stopping;
    metrics->answered = false;
    metrics->reply    = NULL;
    pl_mutex_unlock(&metrics->lock);

    if (answered) {
        text_release(metrics->fresh);
        metrics->asked    = false;
        metrics->fresh    = reply != NULL ? text_of_status(reply, length) : NULL;
        metrics->fresh_ms = now_ms();
        pl_list_for_each_safe(pos, tmp, &metrics->peers) {
            struct peer *peer = pl_container_of(pos, struct peer, link);

            if (peer->state == PEER_WAITING && metrics->fresh != NULL) {
                metrics->fresh->refs++;
                peer_tell(metrics, peer, metrics->fresh);
            } else if (peer->state == PEER_WAITING) {
                peer_tell(metrics, peer, text_error(503));
            }
        }
    }
    pl_free(reply);
    return !stopping;
}

/* Milliseconds until something is due; -1: nothing is. */
static int fill_polls(struct head_metrics *metrics, nfds_t *out_count)
{
    uint64_t now = now_ms(), first = UINT64_MAX;
    bool accepts = metrics->peer_count < peers_max(metrics) || peer_oldest(metrics) != NULL;
    struct pl_list *pos;
    nfds_t count = 2;

    if (metrics->accept_at_ms > now) {
        accepts = false;
        first   = metrics->accept_at_ms;
    }
    metrics->polls[0] = (struct pollfd){.fd = metrics->wake_fd, .events = POLLIN};
    metrics->polls[1] =
        (struct pollfd){.fd = accepts ? metrics->listen_fd : -1, .events = POLLIN};
    pl_list_for_each(pos, &metrics->peers) {
        const struct peer *peer = pl_container_of(pos, struct peer, link);

        /* Of one that waits only its end is heard: it may send what it likes. */
        metrics->polls[count++] =
            (struct pollfd){.fd     = peer->fd,
                            .events = peer->state == PEER_WRITING   ? POLLOUT
                                      : peer->state == PEER_WAITING ? 0
                                                                    : POLLIN};
        first = pl_min_u64(first, peer->deadline_ms);
    }
    *out_count = count;
    return first == UINT64_MAX ? -1 : first > now ? (int)(first - now) : 0;
}

static void serve_peers(struct head_metrics *metrics)
{
    const struct pollfd *poll = metrics->polls + 2; /* in the order of the peers */
    uint64_t now              = now_ms();
    struct pl_list *pos, *tmp;

    pl_list_for_each_safe(pos, tmp, &metrics->peers) {
        struct peer *peer = pl_container_of(pos, struct peer, link);
        bool ready        = (poll++)->revents != 0;

        if (!ready) {
            if (now >= peer->deadline_ms) {
                peer_late(metrics, peer);
            }
        } else if (peer->state == PEER_WAITING) {
            peer_close(metrics, peer); /* it is gone */
        } else if (now >= peer->deadline_ms) {
            peer_late(metrics, peer); /* however busy it is */
        } else if (peer->state == PEER_READING) {
            peer_read(metrics, peer);
        } else if (peer->state == PEER_WRITING) {
            peer_write(metrics, peer);
        } else {
            peer_drain(metrics, peer);
        }
    }
}

static void *listener(void *user)
{
    struct head_metrics *metrics = user;
    nfds_t count;
    bool goes_on = true;

    (void)pthread_setname_np(pthread_self(), "metrics");
    while (goes_on) {
        int wait_ms = fill_polls(metrics, &count);

        if (poll(metrics->polls, count, wait_ms) < 0) {
            PL_CHECK(errno == EINTR || errno == ENOMEM);
            continue;
        }
        serve_peers(metrics); /* the first: those that come now have no place in `polls` */
        if (metrics->polls[0].revents != 0) {
            goes_on = take_answer(metrics);
        }
        if (metrics->polls[1].revents != 0) {
            accept_next(metrics);
        }
    }
    return NULL;
}

void head_metrics_answer(struct head_metrics *metrics, uint8_t *reply, size_t length)
{
    pl_mutex_lock(&metrics->lock);
    pl_free(metrics->reply);
    metrics->reply        = reply;
    metrics->reply_length = length;
    metrics->answered     = true;
    pl_mutex_unlock(&metrics->lock);
    pl_fd_raise(metrics->wake_fd);
}

/* --------------------------------------------------------------------------------- life */

/* Host and port of the address; the host "127.0.0.1" if it names none. false: it is no address. */
static bool address_split(const char *address, char host[256], char port[8])
{
    const char *colon  = strrchr(address, ':');
    const char *number = colon != NULL ? colon + 1 : address;
    size_t length      = colon != NULL ? (size_t)(colon - address) : 0;
    size_t digits      = strspn(number, "0123456789");

    if (digits == 0 || digits > 5 || number[digits] != '\0' ||
        strtoul(number, NULL, 10) > 65535 || length >= 256) {
        return false;
    }
    (void)snprintf(port, 8, "%s", number);
    if (length >= 2 && address[0] == '[' && address[length - 1] == ']') {
        address++;
        length -= 2;
    } else if (memchr(address, ':', length) != NULL) {
        return false; /* which colon is meant? */
    }
    (void)snprintf(host, 256, "%.*s", (int)length, address);
    if (length == 0) {
        (void)snprintf(host, 256, "127.0.0.1");
    }
    return true;
}

static int listen_at(const struct addrinfo *info)
{
    int on = 1, error;
    int fd = socket(info->ai_family, info->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC,
                    info->ai_protocol);

    if (fd < 0) {
        return -1;
    }
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on,
                     sizeof(on)); /* else TIME_WAIT is in the way */
    if (bind(fd, info->ai_addr, info->ai_addrlen) != 0 || listen(fd, SOMAXCONN) != 0) {
        error = errno;
        (void)close(fd);
        errno = error;
        return -1;
    }
    return fd;
}

static plasmon_status_t open_listener(struct head_metrics *metrics, struct pl_err *err)
{
    const char *address          = metrics->config.address;
    const struct addrinfo wanted = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    struct sockaddr_storage bound;
    socklen_t length = sizeof(bound);
    struct addrinfo *found;
    char host[256], port[8];
    int error;

    if (!address_split(address, host, port)) {
        return pl_err_set(err, PLASMON_EINVAL,
                          "--metrics %s is neither a port nor host:port, like 9464 or "
                          "[::]:9464",
                          address);
    }
    error = getaddrinfo(host, port, &wanted, &found);
    if (error != 0) {
        return pl_err_set(err, PLASMON_EINVAL, "--metrics %s: %s", address,
                          gai_strerror(error));
    }
    metrics->listen_fd = listen_at(found);
    error              = errno;
    freeaddrinfo(found);
    if (metrics->listen_fd < 0) {
        return pl_err_set(err, error == EADDRINUSE ? PLASMON_EADDRINUSE : PLASMON_EINVAL,
                          "--metrics %s: %s", address, strerror(error));
    }
    PL_CHECK(getsockname(metrics->listen_fd, (struct sockaddr *)&bound, &length) == 0);
    metrics->port =
        ntohs(bound.ss_family == AF_INET6 ? ((const struct sockaddr_in6 *)&bound)->sin6_port
                                          : ((const struct sockaddr_in *)&bound)->sin_port);
    return PLASMON_OK;
}

plasmon_status_t head_metrics_create(const struct head_metrics_config *config,
                                     struct head_metrics **out_metrics, struct pl_err *err)
{
    struct head_metrics *metrics = PL_NEW(struct head_metrics);
    plasmon_status_t status      = pl_err_set(err, PLASMON_ENOMEM, "out of host memory");

    if (metrics == NULL) {
        return status;
    }
    metrics->config    = *config;
    metrics->listen_fd = -1;
    pl_list_init(&metrics->peers);
    PL_CHECK(peers_max(metrics) <= PEERS_MAX_MAX);
    metrics->polls = PL_NEW_N(struct pollfd, 2 + peers_max(metrics));
    if (metrics->polls == NULL) {
        goto err_free;
    }
    if (pl_mutex_init(&metrics->lock, PL_RANK_LEAF) != PLASMON_OK) {
        goto err_free;
    }
    metrics->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (metrics->wake_fd < 0) {
        status = pl_err_set(err, PLASMON_ENOMEM, "no eventfd: %s", strerror(errno));
        goto err_finish_lock;
    }
    status = open_listener(metrics, err);
    if (status != PLASMON_OK) {
        goto err_close_wake;
    }
    if (pl_thread_start(&metrics->thread, listener, metrics) != 0) {
        status = pl_err_set(err, PLASMON_ENOMEM, "cannot start a thread");
        goto err_close_listener;
    }
    *out_metrics = metrics;
    return PLASMON_OK;

err_close_listener:
    pl_fd_close(&metrics->listen_fd);
err_close_wake:
    pl_fd_close(&metrics->wake_fd);
err_finish_lock:
    pl_mutex_finish(&metrics->lock);
err_free:
    pl_free(metrics->polls);
    pl_free(metrics);
    return status;
}

uint16_t head_metrics_port(const struct head_metrics *metrics)
{
    return metrics->port;
}

void head_metrics_destroy(struct head_metrics *metrics)
{
    struct pl_list *pos, *tmp;

    if (metrics == NULL) {
        return;
    }
    pl_mutex_lock(&metrics->lock);
    metrics->stopping = true;
    pl_mutex_unlock(&metrics->lock);
    pl_fd_raise(metrics->wake_fd);
    (void)pthread_join(metrics->thread, NULL);

    pl_list_for_each_safe(pos, tmp, &metrics->peers) {
        peer_close(metrics, pl_container_of(pos, struct peer, link));
    }
    text_release(metrics->fresh);
    pl_free(metrics->reply);
    pl_fd_close(&metrics->listen_fd);
    pl_fd_close(&metrics->wake_fd);
    pl_mutex_finish(&metrics->lock);
    pl_free(metrics->polls);
    pl_free(metrics);
}
