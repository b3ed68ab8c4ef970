/*
 * The link to the head: see node.h. What is said over it is node_session.c's; here are the thread,
 * the connections and the mailboxes.
 *
 * A head that refuses us for good is told to the daemon, which ends.
 *
 * THREADS. `lock` guards the mailboxes between the daemon's thread and rpc's loop: deaths and
 * descriptors one way, events the other. Everything else belongs to the loop's thread. Nothing of
 * rpc is called with the lock held.
 */
#include "store/node.h"

#include <errno.h>
#include <semaphore.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/host.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/vec.h"
#include "rpc/rpc.h"
#include "store/node_session.h"

#define TICK_MS           100u
#define BEAT_NS           1000000000ull
#define PAUSE_MIN_NS      100000000ull
#define PAUSE_MAX_NS      2000000000ull
#define LEAVE_BREAK_NS    500000000ull /* a broken connection, while the store leaves */
#define CONNECT_MS        5000u
#define COMMAND_BYTES_MAX (1u << 20)

struct posted_event {
    enum store_uplink_event event;
    uint32_t host_device;
    uint32_t incarnation;
};

struct store_node {
    /* Constant after start(). */
    const struct store_options *options;
    const char *token;
    struct trust_source *trust; /* NULL: in the clear; lent */
    char host_id[PL_HOST_ID_BYTES];
    char name[256];
    char store_socket[128];
    struct rpc_loop *loop;
    struct store_spill *spill; /* NULL: none */
    int event_fd;
    bool started;
    sem_t quit_done; /* posted once the loop's thread has let go of everything */

    struct pl_mutex lock; /* rank PL_RANK_LEAF */
    /* Guarded by `lock`. */
    struct pl_vec downs_in; /* struct store_uplink_down, for the loop */
    struct pl_vec events;   /* struct posted_event, for the daemon; from event_next on */
    size_t event_next;
    char refusal[512];     /* why STORE_UPLINK_REFUSED; written once, before it is posted */
    int fd_in;             /* a connection for us; -1: none */
    bool ending;           /* the daemon ends */
    bool reachable;        /* the head has welcomed this connection */
    bool returns;          /* it may come back if it goes away: it has a journal */
    uint64_t leave_due_ns; /* the daemon wants to leave until then; 0: it does not */

    /* The loop's thread. */
    struct rpc_channel *channel;
    struct rpc_stream *stream;
    struct wire_arena arena;
    struct store_node_session session;
    bool told; /* the log says that the head cannot be reached */
    bool fd_asked;
    bool quitting;
    bool left_told;    /* the daemon: nobody is there who would move anything */
    uint64_t broke_ns; /* the last connection */
    /* of the last welcome, for the store after us; in the host's memory */
    uint64_t *session_kept;
    uint64_t beat_due_ns;
    uint64_t connect_due_ns;
    uint64_t pause_ns;
};

/* ---------------------------------------------------------------------------- mailboxes */

static void node_post(struct store_node *node, enum store_uplink_event event,
                      uint32_t host_device, uint32_t incarnation)
{
    struct posted_event *posted;
    uint64_t one = 1;

    pl_mutex_lock(&node->lock);
    posted = pl_vec_push(&node->events);
    if (posted != NULL) {
        *posted = (struct posted_event){event, host_device, incarnation};
    }
    pl_mutex_unlock(&node->lock);
    (void)!write(node->event_fd, &one,
                 sizeof(one)); /* full means that it is readable anyway */
}

static enum store_uplink_event node_next(void *user, uint32_t *out_host_device,
                                         uint32_t *out_incarnation)
{
    struct store_node *node       = user;
    enum store_uplink_event event = STORE_UPLINK_NONE;

    pl_mutex_lock(&node->lock);
    if (node->event_next < node->events.count) {
        struct posted_event *posted = pl_vec_at(&node->events, node->event_next++);

        event            = posted->event;
        *out_host_device = posted->host_device;
        *out_incarnation = posted->incarnation;
    } else {
        pl_vec_clear(&node->events);
        node->event_next = 0;
    }
    pl_mutex_unlock(&node->lock);
    return event;
}

static void node_tick(void *user);
static void node_quit_end(void *user);

static void node_worker_down(void *user, const struct store_uplink_down *down)
{
    struct store_node *node = user;
    struct store_uplink_down *kept;

    pl_mutex_lock(&node->lock);
    kept = pl_vec_push(&node->downs_in);
    if (kept != NULL) {
        *kept = *down;
    }
    pl_mutex_unlock(&node->lock);
    if (kept == NULL) {
        pl_error("store", "out of memory: the head is not told that a worker is down");
    } else if (node->started) {
        rpc_loop_post(node->loop, node_tick, node);
    }
}

static void node_give_fd(void *user, int fd)
{
    struct store_node *node = user;
    int old;

    pl_mutex_lock(&node->lock);
    old         = node->fd_in;
    node->fd_in = fd;
    pl_mutex_unlock(&node->lock);
    pl_fd_close(&old);
    if (node->started) {
        rpc_loop_post(node->loop, node_tick, node);
    }
}

static void node_leave_send(void *user);

static bool node_leave(void *user, uint32_t deadline_ms)
{
    struct store_node *node = user;
    bool possible;

    pl_mutex_lock(&node->lock);
    node->leave_due_ns = pl_now_ns() + deadline_ms * UINT64_C(1000000);
    possible           = node->reachable || node->returns;
    pl_mutex_unlock(&node->lock);
    if (possible) {
        rpc_loop_post(node->loop, node_leave_send, node);
    }
    return possible;
}

static void node_set_reachable(struct store_node *node, bool reachable)
{
    pl_mutex_lock(&node->lock);
    node->reachable = reachable;
    node->returns   = node->session.journal;
    pl_mutex_unlock(&node->lock);
}

static void node_ending(void *user)
{
    struct store_node *node = user;

    pl_mutex_lock(&node->lock);
    node->ending = true;
    pl_mutex_unlock(&node->lock);
}

/* 0: it is not leaving. */
static uint64_t node_leave_due(struct store_node *node)
{
    uint64_t due_ns;

    pl_mutex_lock(&node->lock);
    due_ns = node->leave_due_ns;
    pl_mutex_unlock(&node->lock);
    return due_ns;
}

static bool node_is_ending(struct store_node *node)
{
    bool ending;

    pl_mutex_lock(&node->lock);
    ending = node->ending;
    pl_mutex_unlock(&node->lock);
    return ending;
}

/* Take over what the daemon said. */
static void node_collect(struct store_node *node)
{
    pl_mutex_lock(&node->lock);
    for (size_t i = 0; i < node->downs_in.count; i++) {
        store_node_session_down(&node->session, pl_vec_at(&node->downs_in, i));
    }
    pl_vec_clear(&node->downs_in);
    pl_mutex_unlock(&node->lock);
}

/* ----------------------------------------------------------------- the session asks for */

static void session_send(void *user, uint8_t *bytes, size_t length)
{
    struct store_node *node = user;

    (void)!rpc_stream_send(node->stream, bytes, length); /* if it fails, closed() follows */
}

static void session_joined(void *user, uint64_t session, bool known, const char *cluster)
{
    struct store_node *node = user;

    node_set_reachable(node, true);
    node->told     = false;
    node->pause_ns = PAUSE_MIN_NS;
    if (!known) {
        pl_warn("store", "the head does not know this store any more: it joins as a fresh "
                         "one, and what was in its memory is given up");
        if (node->spill != NULL) {
            store_spill_forget(node->spill);
        }
    }
    pl_mutex_lock(&node->lock);
    if (!node->ending) { /* its memory is there until then */
        __atomic_store_n(node->session_kept, session, __ATOMIC_RELEASE);
    }
    pl_mutex_unlock(&node->lock);
    pl_info("store", "joined cluster %s", cluster[0] != '\0' ? cluster : "(no name)");
    if (node_leave_due(node) != 0) { /* of which this connection has not carried a word */
        rpc_loop_post(node->loop, node_leave_send, node);
    }
}

static void session_event(void *user, enum store_uplink_event event, uint32_t host_device,
                          uint32_t incarnation)
{
    node_post(user, event, host_device, incarnation);
}

static void session_offer(void *user, struct store_node_offer *out)
{
    struct store_node *node = user;

    if (node->spill != NULL) {
        out->memory_bytes = store_spill_memory_bytes(node->spill);
        out->file_bytes   = store_spill_file_bytes(node->spill);
        out->life         = store_spill_life(node->spill);
        out->slab         = store_spill_slab(node->spill);
        out->ahead        = *store_spill_ahead(node->spill);
    }
}

static void session_spill(void *user, const struct store_spill_op *op)
{
    struct store_node *node = user;

    if (node->spill != NULL) {
        store_spill_ask(node->spill, op);
    }
}

static bool session_spilled(void *user, struct store_spill_result *out)
{
    struct store_node *node = user;

    return node->spill != NULL && store_spill_take(node->spill, out);
}

static const struct store_node_session_ops session_ops = {.buffer  = rpc_buffer_create,
                                                          .send    = session_send,
                                                          .event   = session_event,
                                                          .joined  = session_joined,
                                                          .offer   = session_offer,
                                                          .spill   = session_spill,
                                                          .spilled = session_spilled};

/* On the loop's thread. Without a connection it is sent on the next one. */
static void node_leave_send(void *user)
{
    struct store_node *node = user;
    uint64_t now_ns = pl_now_ns(), due_ns = node_leave_due(node);
    uint64_t left_ms = due_ns > now_ns ? (due_ns - now_ns) / 1000000u : 0;

    if (node->stream != NULL) {
        (void)store_node_session_leave(&node->session,
                                       (uint32_t)left_ms); /* or at the welcome */
    }
}

/*
 * Leaving without a connection: a head with a journal is waited for until the deadline, which the
 * daemon watches. Any other one is given a moment, for the network may have failed; if it does not
 * answer, it is gone with all that it knew.
 */
static void node_leave_look(struct store_node *node, uint64_t now_ns)
{
    if (node_leave_due(node) != 0 && !node->session.welcomed && !node->session.journal &&
        !node->left_told && now_ns >= node->broke_ns + LEAVE_BREAK_NS) {
        node->left_told = true;
        node_post(node, STORE_UPLINK_LEFT, STORE_LEFT_ALONE, 0);
    }
}

static void node_slab_wanted(void *user)
{
    node_post(user, STORE_UPLINK_SLAB, 0, 0);
}

static void node_spill_done(void *user)
{
    struct store_node *node = user;

    rpc_loop_post(node->loop, node_tick, node);
}

/* ------------------------------------------------------------------------------- stream */

static void stream_message(void *user, struct rpc_stream *stream, const uint8_t *bytes,
                           size_t length)
{
    struct store_node *node = user;
    Plasmon__V1__NodeCommand *command;
    struct pl_err err;

    wire_arena_reset(&node->arena);
    if (wire_decode_node_command(&node->arena, bytes, length, &command, &err) !=
        PLASMON_OK) {
        pl_warn("store", "from the head: %s", err.text);
        rpc_stream_close(stream, PLASMON_EMALFORMED, err.text);
        return;
    }
    if (!store_node_session_take(&node->session, command)) {
        rpc_stream_close(stream, PLASMON_EMALFORMED, "a gap in the sequence");
    }
}

static void stream_writable(void *user, struct rpc_stream *stream)
{
    (void)user;
    (void)stream; /* we send little, and when it comes up */
}

/* Wait a little, then connect again. */
static void node_retry_later(struct store_node *node)
{
    node->connect_due_ns = pl_now_ns() + node->pause_ns;
    node->pause_ns       = pl_min_u64(node->pause_ns * 2, PAUSE_MAX_NS);
}

static const char *node_refusal(void *user)
{
    return ((struct store_node *)user)->refusal;
}

/*
 * Asking again would not help: not beside another store, and not with what the head did not accept
 * even once.
 */
static bool node_refused(const struct store_node *node, plasmon_status_t status)
{
    return status == PLASMON_EEXIST ||
           (node->session.joined == 0 &&
            (status == PLASMON_EAUTH || status == PLASMON_EVERSION));
}

static void stream_closed(void *user, struct rpc_stream *stream, plasmon_status_t status,
                          const char *why)
{
    struct store_node *node = user;

    (void)stream;
    node->stream = NULL;
    if (node->session.welcomed) {
        node->broke_ns = pl_now_ns();
    }
    store_node_session_broke(&node->session);
    node_set_reachable(node, false);
    if (node_refused(node, status) && node->refusal[0] == '\0') {
        (void)snprintf(node->refusal, sizeof(node->refusal), "%s", why);
        node_post(node, STORE_UPLINK_REFUSED, 0, 0);
        node->told = true;
    }
    if (!node->told && !node_is_ending(node)) {
        pl_warn("store", "no connection to the head: %s%s%s; trying again",
                pl_status_text(status), why != NULL && why[0] != '\0' ? ": " : "",
                why != NULL ? why : "");
        node->told = true; /* once, until it worked again */
    }
    if (node->quitting) {
        rpc_loop_post(node->loop, node_quit_end,
                      node); /* the stream is still being freed */
        return;
    }
    node_retry_later(node);
}

static const struct rpc_stream_ops stream_ops = {
    .message  = stream_message,
    .writable = stream_writable,
    .closed   = stream_closed,
};

/* --------------------------------------------------------------------------- connecting */

/* Embedded: the connection comes from the daemon, which has to be asked. false: not there yet. */
static bool node_take_fd(struct store_node *node, int *out_fd)
{
    pl_mutex_lock(&node->lock);
    *out_fd     = node->fd_in;
    node->fd_in = -1;
    pl_mutex_unlock(&node->lock);
    if (*out_fd >= 0) {
        node->fd_asked = false;
        return true;
    }
    if (!node->fd_asked) {
        node->fd_asked = true;
        node_post(node, STORE_UPLINK_NEED_FD, 0, 0);
    }
    return false;
}

static void node_connect(struct store_node *node)
{
    struct rpc_channel_config config = {
        .target            = node->options->head,
        .fd                = -1,
        .token             = node->token[0] != '\0' ? node->token : NULL,
        .message_bytes_max = COMMAND_BYTES_MAX,
        .tls               = node->trust,
    };
    plasmon_status_t status;

    if (node->channel != NULL && node->options->embedded) {
        rpc_channel_destroy(node->channel); /* a socketpair does not come back */
        node->channel = NULL;
    }
    if (node->channel == NULL) {
        if (node->options->embedded && !node_take_fd(node, &config.fd)) {
            return;
        }
        status = rpc_channel_create(node->loop, &config, &node->channel);
        if (status != PLASMON_OK) {
            node_retry_later(node);
            return;
        }
    }

    status = rpc_stream_open(node->channel, "/plasmon.v1.Plasmon/Node", CONNECT_MS,
                             &stream_ops, node, &node->stream);
    if (status != PLASMON_OK) {
        node->stream = NULL;
        node_retry_later(node);
        return;
    }
    node->beat_due_ns = pl_now_ns() + BEAT_NS;
    store_node_session_begin(&node->session);
}

static void node_tick(void *user)
{
    struct store_node *node = user;
    uint64_t now_ns         = pl_now_ns();

    if (node->quitting) {
        return;
    }
    node_collect(node);
    node_leave_look(node, now_ns);
    if (node->stream == NULL) {
        if (now_ns >= node->connect_due_ns) {
            node_connect(node);
        }
        return;
    }
    if (!node->session.welcomed) {
        return;
    }
    store_node_session_send_owed(&node->session);
    if (now_ns >= node->beat_due_ns || store_node_session_owes_ack(&node->session)) {
        node->beat_due_ns = now_ns + BEAT_NS;
        store_node_session_beat(&node->session);
    }
}

/* --------------------------------------------------------------------------------- life */

static plasmon_status_t node_start(void *user, const char *name, const char *store_socket,
                                   uint32_t devices, uint64_t memory, uint64_t *session)
{
    struct store_node *node = user;
    plasmon_status_t status;

    (void)snprintf(node->name, sizeof(node->name), "%s", name);
    (void)snprintf(node->store_socket, sizeof(node->store_socket), "%s", store_socket);
    node->session_kept = session;
    store_node_session_init(&node->session, &session_ops, node, *session);
    node->session.host         = node->host_id;
    node->session.name         = node->name;
    node->session.store_socket = node->store_socket;
    node->session.devices      = devices;
    node->session.memory       = memory;
    (void)sem_init(&node->quit_done, 0, 0); /* cannot fail with these arguments */
    rpc_loop_set_tick(node->loop, TICK_MS, node_tick, node);
    node->started = true;
    status        = rpc_loop_start(node->loop, "plasmon-node");
    if (status != PLASMON_OK) {
        node->started = false;
        return status;
    }
    if (node->spill != NULL) {
        status = store_spill_start(node->spill, node_slab_wanted, node_spill_done, node);
        if (status != PLASMON_OK) {
            return status;
        }
    }
    rpc_loop_post(node->loop, node_tick, node);
    return PLASMON_OK;
}

void store_node_set_spill(struct store_node *node, struct store_spill *spill,
                          struct store_uplink *uplink)
{
    node->spill   = spill;
    uplink->spill = spill;
}

plasmon_status_t store_node_create(const struct store_options *options, const char *token,
                                   struct trust_source *trust, struct store_node **out_node,
                                   struct store_uplink *out_uplink, struct pl_err *err)
{
    struct store_node *node = PL_NEW(struct store_node);
    plasmon_status_t status;

    if (node == NULL) {
        return pl_err_set(err, PLASMON_ENOMEM, "out of host memory");
    }
    node->options  = options;
    node->token    = token;
    node->trust    = trust;
    node->fd_in    = -1;
    node->pause_ns = PAUSE_MIN_NS;
    node->downs_in = PL_VEC_INIT(struct store_uplink_down);
    node->events   = PL_VEC_INIT(struct posted_event);
    status         = pl_host_id(node->host_id);
    if (status != PLASMON_OK) {
        goto err_free;
    }
    node->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (node->event_fd < 0) {
        status = pl_status_from_errno(errno);
        goto err_free;
    }
    status = pl_mutex_init(&node->lock, PL_RANK_LEAF);
    if (status != PLASMON_OK) {
        goto err_close;
    }
    status = wire_arena_init(&node->arena, COMMAND_BYTES_MAX);
    if (status != PLASMON_OK) {
        goto err_finish_lock;
    }
    status = rpc_loop_create(&node->loop);
    if (status != PLASMON_OK) {
        goto err_finish_arena;
    }

    *out_uplink = (struct store_uplink){.user        = node,
                                        .event_fd    = node->event_fd,
                                        .start       = node_start,
                                        .worker_down = node_worker_down,
                                        .give_fd     = node_give_fd,
                                        .leave       = node_leave,
                                        .ending      = node_ending,
                                        .next        = node_next,
                                        .refusal     = node_refusal};
    *out_node   = node;
    return PLASMON_OK;

err_finish_arena:
    wire_arena_finish(&node->arena);
err_finish_lock:
    pl_mutex_finish(&node->lock);
err_close:
    pl_fd_close(&node->event_fd);
err_free:
    pl_free(node);
    return pl_err_set(err, status, "the link to the head: %s", pl_status_text(status));
}

/* On the loop's thread, when no stream is left. */
static void node_quit_end(void *user)
{
    struct store_node *node = user;

    if (node->channel != NULL) {
        rpc_channel_destroy(node->channel);
        node->channel = NULL;
    }
    (void)sem_post(&node->quit_done);
}

/* On the loop's thread: connect no more, and end what there is. */
static void node_quit(void *user)
{
    struct store_node *node = user;

    node->quitting = true;
    if (node->stream != NULL) {
        rpc_stream_close(node->stream, PLASMON_OK, "the store ends"); /* closed() goes on */
    } else {
        node_quit_end(node);
    }
}

void store_node_destroy(struct store_node *node)
{
    if (node == NULL) {
        return;
    }
    node_ending(node);
    if (node->started) {
        rpc_loop_post(node->loop, node_quit, node);
        while (sem_wait(&node->quit_done) != 0) {
        }
        (void)sem_destroy(&node->quit_done);
    }
    rpc_loop_destroy(node->loop);
    wire_arena_finish(&node->arena);
    pl_vec_finish(&node->downs_in);
    pl_vec_finish(&node->events);
    store_node_session_finish(&node->session);
    pl_fd_close(&node->fd_in);
    pl_mutex_finish(&node->lock);
    pl_fd_close(&node->event_fd);
    pl_free(node);
}
