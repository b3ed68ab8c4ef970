/*
 * Two hosts of their own beside the cluster, so that there is a transfer between hosts to break: a
 * head, and two stores with a CPU device each, the second in a process namespace of its own, for
 * that is what makes it another host. Objects go from the first to the second over the bulk channel
 * (transfer/bulk.h), by the loopback.
 *
 * THE FAULT. Both ends of the connection are opened once more in this process (pidfd_getfd).
 * SILENT: either gets a filter that drops every packet, as a network does that has died without a
 * word; what is sent is not acknowledged, and neither side hears of it. CUT: it is silent, and when
 * bytes are under way, it is shut down in both directions: then both sides know at once. A filter
 * is the socket's, so the next connection is a good one.
 *
 * It needs the right to make a process namespace (CAP_SYS_ADMIN) and to open descriptors of its
 * children (ptrace).
 *
 * Threads: the main thread's.
 */
#ifndef BENCH_CHAOS_HOSTS_H
#define BENCH_CHAOS_HOSTS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "plasmon/plasmon.h"

enum {
    CHAOS_HOSTS         = 2,
    CHAOS_HOSTS_REFS    = 7, /* of a transfer: what is moved, made from it, and its end */
    CHAOS_HOSTS_MIB     = 32,
    CHAOS_HOSTS_WHY_MAX = 256,
};

struct chaos_cluster;

struct chaos_hosts {
    pid_t head, store[CHAOS_HOSTS];
    struct plasmon_client *client; /* NULL: there are no such hosts */
    int number[CHAOS_HOSTS];       /* of their devices */
    int end[CHAOS_HOSTS];          /* of the connection: the sender's, the receiver's; -1 */
    uint64_t moves;                /* begun so far */

    /* Of the transfer that is under way. */
    struct plasmon_ref *refs[CHAOS_HOSTS_REFS];
    uint32_t ref_count;
    struct plasmon_ref *arrived; /* one of them: a task that needs nothing but the bytes */
    struct plasmon_ref *off;     /* i64[]: by how much the worst element is wrong */
};

/*
 * Starts them, and moves one object; exits when that fails where it is possible.
 *
 * @param cluster  whose folder takes their logs and sockets; borrowed for the call.
 * @param out_why  of false: why that is not possible here.
 */
bool chaos_hosts_start(const struct chaos_cluster *cluster, struct chaos_hosts *hosts,
                       char out_why[CHAOS_HOSTS_WHY_MAX]);
/* In order, as an operator would. false: one of them did not end well; says so. */
bool chaos_hosts_end(const struct chaos_cluster *cluster, struct chaos_hosts *hosts);
/* What ended without being told to, in words; NULL: none has. */
const char *chaos_hosts_who_ended(struct chaos_hosts *hosts);

/* Opens both ends of the connection. false: there is none just now. */
bool chaos_hosts_find(struct chaos_hosts *hosts);
/* From now on no packet passes. false: errno says why. */
bool chaos_hosts_silence(struct chaos_hosts *hosts);
/* Bytes that are sent and not acknowledged. */
uint64_t chaos_hosts_owed(const struct chaos_hosts *hosts);
void chaos_hosts_cut(struct chaos_hosts *hosts);

/* Makes an object on the first host and has the second read it. Returns at once. */
void chaos_hosts_move(struct chaos_hosts *hosts);
/*
 * How that comes along, and lets go of it when it is over. Waits for nothing but the eight bytes of
 * a result that is there.
 *
 * @param io_arrived_ns  0: set when the bytes are there.
 * @param out_wrong      of false.
 * @param out_over       every element has been compared.
 */
bool chaos_hosts_look(struct chaos_hosts *hosts, uint64_t *io_arrived_ns, bool *out_over,
                      char out_wrong[CHAOS_HOSTS_WHY_MAX]);

#endif
