/*
 * The store's daemon: one thread, one epoll, everything as events. It makes the host's shared
 * memory, keeps a worker on each device, serves the clients of the host, and in the embedded
 * default keeps the head and ends with its client.
 *
 *   daemon.c    the loop, signals, start and end          workers.c   worker processes: start, messages, death
 *   clients.c   control sockets of clients                embedded.c  the head as a child; the client's life
 *   host.c      shared memory and descriptors             worker_proc.c  when to restart, fence, quarantine
 *   handback.c  the same from what workers of a store that died hand back; handback_serve.c waits for them
 *   node.c      the gRPC link to the head (the only part with gRPC; the daemon sees it through
 *               struct store_uplink)
 *   node_session.c  what is said over it, and what is kept until the head has it
 */
#ifndef STORE_DAEMON_H
#define STORE_DAEMON_H

#include "store/options.h"

/*
 * The link to the head as the daemon sees it. Everything is asynchronous: calls go in, and
 * `event_fd` is readable when next() has something.
 */
enum store_left {
    STORE_LEFT_DRAINED, /* all is elsewhere */
    STORE_LEFT_LOSES,   /* not all of it could be moved */
    STORE_LEFT_ALONE,   /* no head answers, and none remembers */
};

enum store_uplink_event {
    STORE_UPLINK_NONE,
    STORE_UPLINK_FENCE, /* the head wants this host device's worker killed and restarted */
    STORE_UPLINK_STOP,  /* the head wants this host to end */
    STORE_UPLINK_NEED_FD, /* embedded: connect me */
    STORE_UPLINK_LEFT, /* after leave(): this host may end. In the place of host_device: enum store_left */
    STORE_UPLINK_SLAB, /* the memory for spilled objects is wanted: store_spill_slab_made() */
    STORE_UPLINK_REFUSED, /* the head does not want this store: refusal() says why */
};
struct store_uplink_down {
    uint32_t host_device;
    uint32_t incarnation;
    int32_t wait_status;
    bool quarantined;
    plasmon_status_t status; /* what it said was wrong with its device, or OK */
    char text[512];
};
struct store_spill;
struct store_uplink {
    void *user;
    int event_fd;
    struct store_spill *spill; /* NULL: nothing is spilled */
    /* Called once, when everything is up. store_socket: "" if none. */
    /*
     * memory: which memory it is (store/host.h). *session: what the head calls this store; not 0:
     * it knew the store before us by it. Kept true from now on.
     */
    plasmon_status_t (*start)(void *user, const char *node, const char *store_socket,
                              uint32_t devices, uint64_t memory, uint64_t *session);
    void (*worker_down)(void *user, const struct store_uplink_down *down);
    void (*give_fd)(void *user, int fd); /* takes fd */
    /* Have the head move what lies only here. false: it cannot be asked; end at once. */
    bool (*leave)(void *user, uint32_t deadline_ms);
    /* the host is about to end: a lost connection is no news any more */
    void (*ending)(void *user);
    /* *out_incarnation: whom to fence; 0: whoever runs. */
    enum store_uplink_event (*next)(void *user, uint32_t *out_host_device,
                                    uint32_t *out_incarnation);
    /* after STORE_UPLINK_REFUSED; lasts as long as the uplink */
    const char *(*refusal)(void *user);
};

/*
 * Runs until told to stop, or, embedded, until the client is gone. Returns the exit status. uplink
 * NULL: nobody to report to.
 */
int store_daemon_run(const struct store_options *options, const char *token,
                     const struct store_uplink *uplink);

#endif
