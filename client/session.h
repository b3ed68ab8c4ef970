/*
 * The session with the head: one stream that may break and come back, over which numbered frames go
 * out once and in order.
 *
 *   CONNECTING --Welcome--> OPEN --stream closed--> BROKEN --Welcome--> OPEN
 *        |                    |                        |
 *        +------- refused ----+---- fatal, finish -----+--- too long --> DEAD
 *
 * OUT    Application threads add operations to the batch. It is sent at once when nothing is being
 *        written, otherwise when the write in flight is done, or when it is large. A frame is
 *        numbered when it is cut and kept by wire_link until the head acknowledged it; when the
 *        stream comes back, what the head has not taken over is sent again.
 * IN     On the loop's thread: decoded, checked, told to refs (done, failed) and to who waits for
 * an answer (requests). LIMITS The head's credit bounds the tasks in flight; KEPT_MAX the bytes
 * that wait for an acknowledgement. A thread that would
 *        exceed them waits; the loop's own thread (callbacks) never waits and is told EAGAIN.
 *
 * Threads: everything under the client's lock (_locked), unless it says otherwise.
 */
#ifndef CLIENT_SESSION_H
#define CLIENT_SESSION_H

#include "base/lock.h"
#include "base/map.h"
#include "client/frame.h"
#include "rpc/rpc.h"

struct plasmon_client;

enum session_state {
    SESSION_CONNECTING,
    SESSION_OPEN,
    SESSION_BROKEN,
    SESSION_DEAD,
};

/* What it takes to move bytes of a buffer over the bulk channel (bulk.h). No address: nothing does. */
struct bulk_grant {
    char address[WIRE_BULK_ADDRESS_BYTES_MAX + 1];
    uint8_t ticket[WIRE_TICKET_BYTES];
    bool tls;
};

/* Somebody waits for an answer. Lives on the waiting thread's stack; found by number while `linked`. */
struct request {
    uint64_t number; /* 0: not linked */
    bool answered;
    plasmon_status_t status;
    char text[WIRE_TEXT_BYTES_MAX];

    struct pl_shape shape;  /* Located, Lookup */
    bool pending;           /* Lookup */
    uint64_t buffer;        /* PutReady */
    struct bulk_grant bulk; /* PutReady */
    struct pl_vec places;   /* Located: struct place */

    uint8_t *data; /* Read: where the bytes go; they must be data_bytes */
    uint64_t data_bytes;
    struct pl_cond *cond; /* signalled when answered */
};
struct place {
    uint64_t buffer;
    struct pl_box box;
    struct pl_box frame;
    uint64_t producer_seq;
    struct bulk_grant bulk;
};

struct session {
    enum session_state state;
    struct rpc_stream *stream; /* NULL: none */
    bool writing; /* a message is in flight; `writable` will say when it is out */
    bool many;    /* tasks are under way, when the loop's thread last heard; its alone */
    bool ending;  /* plasmon_finish: a close is not a failure */
    /* frames after this one are kept, and not with the stream; UINT64_MAX: none */
    uint64_t stuck_from;

    uint64_t epoch;
    uint64_t session;
    uint64_t client;
    uint64_t credit;
    uint64_t tasks_sent; /* given to the batch */
    struct wire_link link;
    struct frame frame;
    struct wire_arena arena; /* of the frame being taken; loop's thread */

    uint64_t ping_last; /* 0: none yet */
    uint64_t pong_last; /* answers that one and all before it */
    uint64_t request_last;
    struct pl_map requests;
    struct pl_cond changed; /* room, Welcome, death, all tasks ended */

    uint64_t broken_at_ns;
    uint64_t retry_at_ns;
    uint64_t retry_delay_ns;
    plasmon_status_t dead_status;
    char dead_text[512];
};

plasmon_status_t session_init(struct plasmon_client *client) PL_MUST_CHECK;
void session_finish(struct plasmon_client *client); /* the loop has stopped */
/* Open the stream and wait for Welcome. Without the lock. */
plasmon_status_t session_open(struct plasmon_client *client,
                              uint32_t timeout_ms) PL_MUST_CHECK;
/* Flush, let tasks end for up to grace_ms, say bye, wait for the stream's end. Without the lock. */
void session_end(struct plasmon_client *client, uint32_t grace_ms);
/* No session any more: all that waits fails with this. */
void session_die_locked(struct plasmon_client *client, plasmon_status_t status,
                        const char *text);

/*
 * What a session holds is held at least this long after something was asked in it that has been
 * answered, whatever has happened since: the head keeps for twice as long (core.h, lease_ms) a
 * session whose connection breaks.
 */
#define SESSION_SURE_NS UINT64_C(5000000000)
/*
 * Wait until the head says that it knows this session. What it held then, it had held all the time.
 * ETIMEDOUT; or how the session ended.
 */
plasmon_status_t session_ask_locked(struct plasmon_client *client,
                                    uint64_t deadline_ns) PL_MUST_CHECK;

/*
 * Room for `tasks` more, and an open batch that admits `kind`. May drop the lock while it waits.
 * ECLOSED; EAGAIN on the loop's thread.
 */
plasmon_status_t session_room_locked(struct plasmon_client *client, uint32_t tasks,
                                     enum frame_kind kind) PL_MUST_CHECK;
/* After adding to the batch: send it if now is the time. */
void session_kick_locked(struct plasmon_client *client);
/* Send the batch now. */
void session_flush_locked(struct plasmon_client *client);
enum release_when {
    RELEASE_AT_ONCE, /* before anything that is sent from now on */
    RELEASE_SOON,    /* when the stream is free */
    RELEASE_LATER,   /* with whatever is sent next */
};
/*
 * Let the ref go at the head. bytes: that may come free by it; what is sent behind much of that
 * finds them free. Never waits, never fails (without memory the head learns it at the session's
 * end).
 */
void session_release_locked(struct plasmon_client *client, uint64_t ref, uint64_t bytes,
                            enum release_when when);
/* Answer HeadFrame.host_copies, behind all that was submitted. Never waits, never fails. */
void session_heard_locked(struct plasmon_client *client, uint64_t number);

/* --- session_out.c, for session.c. */
#define SESSION_NOT_STUCK UINT64_MAX
void session_header_locked(struct session *session, uint64_t seq,
                           Plasmon__V1__Header *header);
/* A frame outside the sequence: acknowledges, and carries nothing. */
void session_ack_locked(struct session *session);
/*
 * Everything after `from` that the link keeps. What the stream does not take now follows when it is
 * writable.
 */
void session_resend_locked(struct session *session, uint64_t from);

/*
 * --- request.c. Ask: number it, add `fields` (the caller filled in `number`), send. Then
 * session_wait_locked().
 */
void request_init(struct request *request, struct pl_cond *cond);
plasmon_status_t request_open_locked(struct plasmon_client *client,
                                     struct request *request) PL_MUST_CHECK;
plasmon_status_t request_send_locked(struct plasmon_client *client, struct request *request,
                                     enum frame_kind kind,
                                     const Plasmon__V1__ClientFrame *fields) PL_MUST_CHECK;
/*
 * Until answered; ETIMEDOUT. The answer's status with its text as this thread's error. deadline_ns
 * UINT64_MAX: forever.
 */
plasmon_status_t request_wait_locked(struct plasmon_client *client, struct request *request,
                                     uint64_t deadline_ns) PL_MUST_CHECK;
void request_close_locked(struct plasmon_client *client, struct request *request);
/* The session died: everybody hears it. */
void requests_fail_locked(struct session *session, plasmon_status_t status,
                          const char *text);

/* Loop's thread, from rpc's tick: acknowledgements, reconnecting, what was left in the batch. */
void session_tick(void *user);
bool session_many(void *user); /* for rpc_loop_set_many() */

/* --- dispatch.c: one decoded frame. Loop's thread, locked. */
void dispatch_head_frame_locked(struct plasmon_client *client,
                                const Plasmon__V1__HeadFrame *frame);

#endif
