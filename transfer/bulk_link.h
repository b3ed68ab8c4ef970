/*
 * Connections of the bulk channel, from either side: who says what on them, and bytes over them
 * with no wait without an end. Workers use them (bulk_int.h), and clients on hosts from which no
 * memory is to be reached (client/bulk.h).
 *
 *   between workers     hello with the receiver's secret, welcome; then frames with chunks, and an
 *                       answer to each
 *   from a client       hello as BULK_CLIENT, welcome; then any number of transfers, one after the
 *                       other: a request with its ticket, and
 *                         a put: parts with bytes from the client; from the worker parts without,
 *                         which say how many bytes are on the device a get: parts with bytes from
 *                         the worker, in order
 *
 * A worker that refuses a request says why in a part (status) and ends the connection. While it
 * gets on without moving bytes it says so with a part of none, every BULK_ALIVE_NS.
 *
 * Threads: a link is one thread's.
 */
#ifndef TRANSFER_BULK_LINK_H
#define TRANSFER_BULK_LINK_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/base.h"
#include "base/str.h"
#include "transfer/bulk_tls.h"

#define TRANSFER_BULK_SECRET_BYTES  16u
#define TRANSFER_BULK_ADDRESS_BYTES 64u

#define BULK_MAGIC   0x6b6c626d736c7031ull /* "1plsmblk" */
#define BULK_VERSION 4u
/*
 * A transfer is stuck when nothing is heard of it for GRACE and four times what the bytes that are
 * owed should take, by what the connection was measured to do. Whoever receives says every ALIVE
 * that it gets on: that bytes come, or that its device has not made room yet; so slow is not stuck.
 */
#define BULK_GRACE_NS UINT64_C(1000000000)
#define BULK_ALIVE_NS UINT64_C(200000000)
/* bytes a second, before anything was measured */
#define BULK_RATE_GUESS   UINT64_C(100000000)
#define BULK_RATE_MIN     UINT64_C(1000000)
#define BULK_HANDSHAKE_NS UINT64_C(2000000000) /* all of it */
#define BULK_CONNECT_MS   1000
#define BULK_RETRY_MIN_MS 5
#define BULK_RETRY_MAX_MS 500
#define BULK_WAKE_BYTES   (256u << 10) /* bulk_link_wake_at() */

/* All little-endian, as every machine that CUDA runs on. */
struct bulk_hello {
    uint64_t magic;
    uint32_t version;
    uint32_t from; /* device of the cluster */
    uint32_t to;   /* another one's than whom we speak to: pass it on */
    uint32_t reserved;
    uint8_t secret[TRANSFER_BULK_SECRET_BYTES]; /* of whom we speak to */
};
static_assert(sizeof(struct bulk_hello) == 40, "wire format");
/* Answer to the hello, also when it is refused. */
struct bulk_welcome {
    uint64_t magic;
    uint32_t version;
    int32_t status; /* plasmon_status_t; not OK: the connection ends */
};
static_assert(sizeof(struct bulk_welcome) == 16, "wire format");
struct bulk_frame {
    uint64_t chunk; /* of the receiver's ring */
    uint32_t bytes; /* 0: only the word */
    uint32_t reserved;
};
static_assert(sizeof(struct bulk_frame) == 16, "wire format");
/* One for each frame in order, and one of these in between. */
struct bulk_answer {
    uint64_t chunk;
};
#define BULK_ALIVE   UINT64_MAX       /* bytes come */
#define BULK_WAITING (UINT64_MAX - 1) /* its device has not made room yet */

/* The one who says hello is no worker: `from` of its hello; its secret is zeros. */
#define BULK_CLIENT       UINT32_MAX
#define BULK_TICKET_BYTES 64u
#define BULK_PART_BYTES   (1u << 20)
enum bulk_request_kind { BULK_PUT = 1, BULK_GET = 2 };
struct bulk_request {
    uint32_t kind;
    uint32_t reserved;
    uint64_t offset; /* in the buffer */
    uint64_t bytes;
    uint8_t ticket[BULK_TICKET_BYTES]; /* what the head gave (wire/ticket.h) */
};
static_assert(sizeof(struct bulk_request) == 88, "wire format");
/*
 * `bytes` bytes follow, which belong at `offset` of what was asked for; in an answer to a put
 * offset says how many are on the device.
 */
struct bulk_part {
    uint64_t offset;
    uint32_t bytes;
    int32_t status; /* plasmon_status_t; by the worker */
};
static_assert(sizeof(struct bulk_part) == 16, "wire format");

struct transfer_bulk_endpoint {
    char address[TRANSFER_BULK_ADDRESS_BYTES]; /* "10.0.0.1:7071" or "[fe80::1]:7071" */
    uint8_t secret[TRANSFER_BULK_SECRET_BYTES];
};

/* A connection, from either side. Every wait on it ends when stop_fd becomes readable. */
struct bulk_link {
    int fd; /* -1: none */
    int stop_fd;
    void *tls;                  /* bulk_tls.c; NULL: plain */
    struct bulk_splice *splice; /* bulk_splice.c; NULL: nothing was lent yet */
    bool host; /* the other side may be a worker, as far as its certificate goes */
    /* what poll() must wait for before it gets on, whatever was asked for */
    short tls_wants;
    uint32_t wake_at; /* bulk_link_wake_at() */
};

static inline uint64_t bulk_deadline_ns(uint64_t bytes, uint64_t rate)
{
    return BULK_GRACE_NS + 4 * (bytes * UINT64_C(1000) / pl_max_u64(rate / 1000000, 1));
}

/* ---- bulk_net.c: sockets. All give up when stop_fd becomes readable (ECLOSED). */
/* On a port from port_first to port_last; 0, 0: any. */
plasmon_status_t bulk_listen(const char *listen_on, uint16_t port_first, uint16_t port_last,
                             int *out_fd, char *out_address, struct pl_err *err);
plasmon_status_t bulk_connect(const char *address, int stop_fd, int *out_fd,
                              struct pl_err *err);
/* Who is at the other end; "somebody": it is not there any more. */
void bulk_peer_address(int fd, char out[TRANSFER_BULK_ADDRESS_BYTES]);
/* Are both on one machine, by their addresses? */
bool bulk_same_place(const char *address, const char *other);

/* ---- bulk_link.c: bytes over a connection. ECONNECT: it is closed. */
/* Some bytes, without waiting; EAGAIN: not now. */
plasmon_status_t bulk_link_try_read(struct bulk_link *link, void *data, size_t bytes,
                                    size_t *out_done);
plasmon_status_t bulk_link_try_write(struct bulk_link *link, const void *data, size_t bytes,
                                     size_t *out_done);
/*
 * bulk_link_wait(POLLIN) ends when so many bytes are there, and not with each packet: waking a
 * thread costs more than receiving one. Never more than are sure to come; with TLS less by what
 * OpenSSL may hold (a record). wake_best: how many are good for a large piece.
 */
void bulk_link_wake_at(struct bulk_link *link, uint32_t bytes);
uint32_t bulk_link_wake_best(const struct bulk_link *link);
/* What recv(), send() and their like say. */
plasmon_status_t bulk_link_result(ssize_t done, size_t *out_done);
/*
 * As bulk_link_try_write(), but `data` stays as it is until the other side has said that it has the
 * bytes: they may be sent from where they lie. What was not done must be what is written next. The
 * thread must have SIGPIPE blocked (bulk_tls_thread).
 */
plasmon_status_t bulk_link_try_lend(struct bulk_link *link, const void *data, size_t bytes,
                                    size_t *out_done);
void bulk_splice_end(struct bulk_link *link);
/* All of them. ETIMEDOUT: not one for silence_ns (0: any time), or not all until until_ns (0: any time). */
plasmon_status_t bulk_link_read(struct bulk_link *link, void *data, size_t bytes,
                                uint64_t silence_ns, uint64_t until_ns);
plasmon_status_t bulk_link_write(struct bulk_link *link, const void *data, size_t bytes,
                                 uint64_t silence_ns, uint64_t until_ns);
/* Until it can be read or written, or milliseconds are over (EAGAIN; -1: any time). */
plasmon_status_t bulk_link_wait(const struct bulk_link *link, short events, int timeout_ms);
void bulk_link_close(struct bulk_link *link);
/* As `from` to `to`, which listens at the endpoint or (a relay) can be reached from there. */
plasmon_status_t bulk_link_introduce(struct bulk_link *link, struct bulk_tls *tls,
                                     uint32_t from, uint32_t to,
                                     const struct transfer_bulk_endpoint *endpoint,
                                     struct pl_err *err);

#endif
