/*
 * The host route between hosts: chunks of a transfer go over a TCP connection from the sender's
 * staging slots to the receiver's.
 *
 *   sender's device      copies a chunk into a slot of the connection's own ring, and writes that slot's word
 *   sender's thread      sends it with its number: the receiver's ring counts chunks, whoever sends
 *                        them (transfer.h)
 *   receiver's thread    waits until the slot of that number is empty, reads the bytes right into
 *                        it, writes its word, answers
 *   receiver's device    takes it out: transfer_stage_recv(), the same as within a host
 *
 * The memory of a CPU device is the host's: its chunks are sent from where they lie and received
 * where they belong, and only the words are moved as above.
 *
 * Bytes never pass through gRPC. A connection joins one sending device with one receiving device,
 * so nobody waits for the traffic of others.
 *
 * NOTHING HANGS. What a device waits for is a word that a thread of its own process writes, and the
 * thread always gets on. A connection on which nothing is heard for a second and four times what
 * its bytes should take is a stall: it is ended, and what was not answered is sent again over the
 * next one; a chunk that was delivered twice is read and dropped, because its word says that it is
 * there. A device that cannot be reached is reached through a worker that can: that one passes
 * bytes on (a relay). When the head gives the other device up (transfer_bulk_gone), the threads
 * move the words without bytes, as halves that failed do within a host. The launches have failed by
 * then, so nobody believes the content.
 *
 * TRUST. With certificates the connection is TLS 1.3 and both sides belong to the cluster's CA
 * (bulk_tls.h). Without, it is in the clear, and the network must be the operator's own. Either way
 * the receiver has made a secret of 128 bits, which the head hands to who may send. Every field
 * that arrives is checked; a sender that breaks the protocol is disconnected, and a handshake has
 * an end.
 *
 * Threads: one accepts, one a connection on either side. The functions below are the worker's,
 * under its lock.
 */
#ifndef TRANSFER_BULK_H
#define TRANSFER_BULK_H

#include "base/str.h"
#include "transfer/bulk_client.h"
#include "transfer/bulk_link.h"
#include "transfer/transfer.h"

#define TRANSFER_BULK_OUT_SLOTS 8u /* of STORE_STAGE_SLOT_BYTES, pinned, a connection */

struct transfer_bulk_config {
    struct device *device;     /* whose transfers these are */
    struct transfer_ring ring; /* that others send into */
    const char *listen;        /* "ADDRESS" or "[ADDRESS]" of the interface; numeric */
    uint16_t port_first;       /* 0: any port */
    uint16_t port_last;
    /* files, all or none of them: TLS 1.3, both sides with certificates */
    const char *tls_cert;
    const char *tls_key;
    const char *tls_ca;
    const struct transfer_bulk_access_ops *access; /* for clients; NULL: none may come */
    void *access_user;
    bool staged; /* also on a CPU device: bytes go through slots, as a GPU's do (tests) */
};

#define TRANSFER_BULK_WHY_BYTES 160u

/* To one device, since our process began. */
struct transfer_bulk_stats {
    uint64_t transfers;
    uint64_t bytes;        /* answered */
    uint64_t stalls;       /* times that its deadline was over */
    uint64_t retries;      /* chunks that were sent again */
    uint64_t relays;       /* connections through another worker */
    uint64_t bytes_queued; /* enqueued and not answered */
    /*
     * The last attempt to reach it failed: why, with the address ("": all is well); for how long
     * bytes that are ready were not moved by any (0: there are none); and it was made for all that
     * was enqueued up to this chunk.
     */
    char unreached_why[TRANSFER_BULK_WHY_BYTES];
    uint64_t unreached_ms;
    uint64_t unreached_last;
    uint64_t rate; /* bytes a second while it was busy; 0: not measured */
};

struct transfer_bulk;

/*
 * Listens from now on. EADDRINUSE-like failures name the ports that were tried.
 * @param out_endpoint  what others need to send to us.
 */
plasmon_status_t transfer_bulk_create(const struct transfer_bulk_config *config,
                                      struct transfer_bulk **out_bulk,
                                      struct transfer_bulk_endpoint *out_endpoint,
                                      struct pl_err *err) PL_MUST_CHECK;
void transfer_bulk_destroy(struct transfer_bulk *bulk);
/*
 * Which device of the cluster we are: before the first send. Until then the words of our ring are
 * left alone, and no connection is ours.
 */
void transfer_bulk_identify(struct transfer_bulk *bulk, uint32_t device);
/* Where device `peer` of the cluster listens; again after its worker was restarted. */
plasmon_status_t
transfer_bulk_peer(struct transfer_bulk *bulk, uint32_t peer,
                   const struct transfer_bulk_endpoint *endpoint) PL_MUST_CHECK;
/*
 * It will not come back. What is to be sent to it, now or later, is taken as sent. What it should
 * have sent: transfer_bulk_expect(), for each transfer that is enqueued.
 */
plasmon_status_t transfer_bulk_gone(struct transfer_bulk *bulk,
                                    uint32_t peer) PL_MUST_CHECK;
/*
 * Nothing is on our device, so what was made to send to devices that are gone - a thread, 64 MiB of
 * pinned memory - can go, too.
 */
void transfer_bulk_rest(struct transfer_bulk *bulk);
/*
 * A transfer with `peer`, which lives, has failed, because the two cannot reach each other: chunks
 * first .. first + count - 1 of the receiver's ring do not come. Told to both sides, in any order,
 * before or after their halves are enqueued. receives: ours is the ring. Bytes of them that come
 * all the same are dropped.
 */
plasmon_status_t transfer_bulk_give_up(struct transfer_bulk *bulk, uint32_t peer,
                                       bool receives, uint64_t first,
                                       uint64_t count) PL_MUST_CHECK;
/*
 * The receiver's half of chunks first .. first + count - 1 from device `peer` is enqueued. When
 * that one is gone, it will get no bytes: its words are moved.
 */
plasmon_status_t transfer_bulk_expect(struct transfer_bulk *bulk, uint32_t peer,
                                      uint64_t first, uint64_t count) PL_MUST_CHECK;
/*
 * Enqueue the receiver's half of a transfer from device `peer`, which is transfer_bulk_expect()
 * and, as transfer_stage_recv(), what takes the chunks out of the ring. A CPU device's go from the
 * socket to where they belong once the half has begun (bulk_place.c).
 */
plasmon_status_t transfer_bulk_recv(struct transfer_bulk *bulk,
                                    struct device_stream *stream, uint32_t peer,
                                    uint64_t first, struct device_ptr dst, uint64_t bytes,
                                    bool with_bytes,
                                    struct transfer_counters *counters) PL_MUST_CHECK;
/*
 * What the first send to that device would make: pinned memory and a thread. Of one that is not
 * known: nothing.
 */
plasmon_status_t transfer_bulk_prepare(struct transfer_bulk *bulk,
                                       uint32_t peer) PL_MUST_CHECK;
/*
 * Enqueue the sender's half of a transfer to device `peer`, as transfer_stage_send(). EUNREACHABLE:
 * no endpoint is known. with_bytes false: only the words move.
 */
plasmon_status_t transfer_bulk_send(struct transfer_bulk *bulk,
                                    struct device_stream *stream, uint32_t peer,
                                    uint64_t first, struct device_ptr src, uint64_t bytes,
                                    bool with_bytes) PL_MUST_CHECK;

/* Whom something was sent to: for (size_t i = 0; transfer_bulk_next_stats(bulk, &i, &peer, &stats);) */
bool transfer_bulk_next_stats(struct transfer_bulk *bulk, size_t *io_index,
                              uint32_t *out_peer, struct transfer_bulk_stats *out);

#endif
