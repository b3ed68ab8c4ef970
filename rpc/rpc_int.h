/*
 * Inside rpc/: what the face in rpc.h stands on. No gRPC type is named here (see grpc_int.h), so
 * that the loopback and its loop need none.
 *
 * LOCKS  A stream has a lock (rank PL_RANK_RPC), a loop has one (RPC_RANK_LOOP, taken inside a
 * stream's). No callback of a user runs under either.
 */
#ifndef RPC_RPC_INT_H
#define RPC_RPC_INT_H

#include <pthread.h>

#include "base/linger.h"
#include "base/list.h"
#include "base/lock.h"
#include "base/vec.h"
#include "rpc/rpc.h"

#define RPC_RANK_LOOP             ((enum pl_rank)(PL_RANK_RPC + 1))
#define RPC_MESSAGE_BYTES_DEFAULT ((size_t)8 << 20)
#define RPC_STREAMS_DEFAULT       4096u
/* how long a close waits for what is queued, and for the peer's answer */
#define RPC_LINGER_MS 2000u
#define RPC_NEVER_NS  UINT64_MAX
/*
 * Of a process that serves. As many streams as there may be with a connection of their own, and as
 * many strangers.
 */
#define RPC_DESCRIPTORS_MAX   8192u
#define RPC_DESCRIPTORS_SPARE 192u /* 64 of them for RPC_SHMS_MAX */
/* connections that have not said enough to be taken over by the core */
#define RPC_STRANGERS_MAX      1024u
#define RPC_HEALTH_STREAMS_MAX 64u
#define RPC_UNARIES_MAX        1024u  /* calls that wait for their answer */
#define RPC_HANDSHAKE_MS       10000u /* for TLS and the first frames of HTTP/2 */
/* how long a connection may be there without a call; those given as a descriptor: for ever */
#define RPC_CONNECTION_IDLE_MS 30000u

/* -------------------------------------------------------------------------------- loops */

enum rpc_step {
    RPC_STEP_EVENT,   /* one event was handled */
    RPC_STEP_WAKE,    /* woken: there are posts, or a stop */
    RPC_STEP_TIMEOUT, /* the deadline passed, and nothing was there */
};

struct rpc_loop_ops {
    /* Wait for one event until deadline_ns (0: only look) and handle it. */
    enum rpc_step (*step)(struct rpc_loop *loop, uint64_t deadline_ns);
    /*
     * Sleep for a moment, or until there is something for a step. false, and it has not slept: that
     * cannot be told. NULL: never.
     */
    bool (*pause)(struct rpc_loop *loop, uint64_t pause_ns);
    /* Make the running step, or the next one, return RPC_STEP_WAKE. Any thread; once until it did. */
    void (*wake)(struct rpc_loop *loop);
    /* Handle what is left, then free. No thread runs the loop. */
    void (*destroy)(struct rpc_loop *loop);
};

/* One shot, on the loop's thread. Any thread may arm or disarm; a disarm on the loop's thread is final. */
struct rpc_timer {
    struct pl_list link;
    uint64_t deadline_ns;
    void (*fn)(struct rpc_timer *timer);
};

struct rpc_loop {
    const struct rpc_loop_ops *ops;

    struct pl_mutex lock; /* rank RPC_RANK_LOOP; guards the next five */
    struct pl_vec posts;  /* struct rpc_post, oldest first */
    struct pl_vec spare;  /* empty: takes the place of posts while those run */
    struct pl_list timers;
    bool wake_pending;
    bool stopped;

    /* Whoever runs the loop. */
    unsigned events;   /* since idle was last called */
    uint64_t burst_ns; /* when the first of these came */
    uint64_t event_ns; /* when the last one came */
    bool is_many;      /* many things are under way, as it was told last; others read it */
    struct pl_recent waits; /* between events */
    uint64_t tick_ns;
    uint64_t tick_due_ns;
    void (*tick)(void *user);
    void *tick_user;
    void (*idle)(void *user);
    void *idle_user;
    bool (*many)(void *user);
    void *many_user;
    struct pl_list late; /* struct rpc_late, for after idle */
    /* what can wait does: this burst began after a wait, and idle was not called yet */
    bool lates;

    bool started; /* by rpc_loop_start() */
    pthread_t thread;
    char thread_name[16];
};

/* Runs behind the next idle. Embedded in what it belongs to. */
struct rpc_late {
    struct pl_list link;
    void (*fn)(struct rpc_late *late);
};
/* False: do it now. On the loop's thread. */
bool rpc_loop_late(struct rpc_loop *loop, struct rpc_late *late) PL_MUST_CHECK;

plasmon_status_t rpc_loop_init(struct rpc_loop *loop,
                               const struct rpc_loop_ops *ops) PL_MUST_CHECK;
void rpc_loop_finish(struct rpc_loop *loop);
/*
 * Run the loop's events, posts and timers here until done() is true, without tick and idle: for
 * destructors, on the loop's thread or when none runs it.
 */
void rpc_loop_drive(struct rpc_loop *loop, bool (*done)(void *user), void *user);
void rpc_timer_init(struct rpc_timer *timer, void (*fn)(struct rpc_timer *timer));
void rpc_timer_arm(struct rpc_loop *loop, struct rpc_timer *timer, uint32_t after_ms);
void rpc_timer_disarm(struct rpc_loop *loop, struct rpc_timer *timer);

/* ------------------------------------------------------------------------------ streams */

struct rpc_stream_impl {
    plasmon_status_t (*send)(struct rpc_stream *stream, uint8_t *buffer, size_t length);
    bool (*idle)(struct rpc_stream *stream);
    bool (*by_memory)(const struct rpc_stream *stream);
    void (*close)(struct rpc_stream *stream, plasmon_status_t status, const char *why);
};

/* The part that gRPC and the loopback share. */
struct rpc_stream {
    const struct rpc_stream_impl *impl;
    struct rpc_loop *loop;
    const struct rpc_stream_ops *ops;
    void *user;
    char *token; /* owned; NULL: none */
    int token_index;
    struct trust_identity *identity; /* owned; NULL: none */
    char *peer;                      /* owned */
};

/* One message that waits to be sent. The bytes given to the user are `bytes`. */
struct rpc_buffer {
    struct rpc_buffer *next;
    size_t length;
    _Alignas(16) uint8_t bytes[];
};
struct rpc_buffer *rpc_buffer_of(uint8_t *bytes);

/* First in, first out, with the bytes counted. */
struct rpc_queue {
    struct rpc_buffer *first;
    struct rpc_buffer *last;
    size_t bytes;
};
void rpc_queue_push(struct rpc_queue *queue, struct rpc_buffer *buffer);
struct rpc_buffer *rpc_queue_pop(struct rpc_queue *queue); /* NULL: empty */
void rpc_queue_drop(struct rpc_queue *queue);

/* ----------------------------------------------------------------------------- accept.c */

/*
 * From now on connections leave descriptors for everything else; raises the process's soft limit.
 * Returns how many connections there can be.
 */
unsigned rpc_accept_guard(void);

/* ------------------------------------------------------------------------------- room.c */

enum rpc_beginning {
    RPC_BEGINS_WELL,        /* its first request has arrived; of TLS the first record */
    RPC_BEGINS_AND_LISTENS, /* all of what a peer says before it has heard anything has */
    RPC_BEGINS_SLOWLY,      /* what there is so far could be that */
    RPC_BEGINS_AS_TLS,      /* and nobody speaks that here */
    RPC_BEGINS_AS_NOBODY,   /* it speaks something else, or has gone again */
};
/* What a connection has said so far, none of which is taken from it. Any thread; does not wait. */
enum rpc_beginning rpc_beginning(int fd);

/* To somebody who begins as TLS: that nobody speaks it here. The descriptor is to be closed then. */
void rpc_refuse_tls(int fd);
/* A server begins to speak TLS at that port, or does no longer. Any thread. */
void rpc_room_tls(int port, bool speaks);

/*
 * silent.c. Does somebody accept connections at the address (or one of those in the list) and say
 * nothing? Then who that is and what to do, appended to `out`. tls: the address is one of TLS,
 * where only a process of this host that is stopped is known to be silent. Blocks, for some tenths
 * of a second.
 */
bool rpc_silent_listener(const char *target, bool tls, struct pl_str *out);

/*
 * While there is a server that listens: whoever has not begun well waits, for wait_ms and with at
 * most guests_max others, and is closed then. ENOMEM, ELIMIT: there is no room; all the others may
 * be called nevertheless.
 */
plasmon_status_t rpc_room_open(uint32_t wait_ms, unsigned guests_max) PL_MUST_CHECK;
void rpc_room_close(void);
/*
 * One that came by that listener and has not begun well. true: taken, and the room's; false: there
 * is no room for it.
 */
bool rpc_room_take(int listener_fd, int fd);
/* One that came by that listener, waited, and begins well; -1: there is none. The caller's. */
int rpc_room_give(int listener_fd);
/* Closes the one that waits for longest. false: nobody waits. */
bool rpc_room_give_way(void);

#endif
