/*
 * The link to the head: see node.h.
 *
 * Each connection is a session of its own: hello outside the sequence, then, when the head has welcomed us, numbered frames with the
 * deaths that it has not acknowledged. A death names device and incarnation, so telling it twice does no harm; it is kept
 * until acknowledged, and a quarantine is told again on every connection, because a new head does not know of it.
 *
 * The session of the last welcome is shown at the next hello. A head that welcomes us with another one does not know us any more - it was
 * started anew, or has given us up - and has told our workers the same, each of which ends, is started again and drops what lay there
 * (worker/daemon.c). So nothing is to be done here but to go on. A head that refuses us for good is told to the daemon, which ends.
 *
 * THREADS. `lock` guards the mailboxes between the daemon's thread and rpc's loop: deaths and descriptors one way, events the other.
 * Everything else belongs to the loop's thread. Nothing of rpc is called with the lock held.
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
#include "store/spill.h"
#include "wire/wire.h"

#define TICK_MS           100u
#define BEAT_NS           1000000000ull
#define PAUSE_MIN_NS      100000000ull
#define PAUSE_MAX_NS      2000000000ull
#define CONNECT_MS        5000u
#define DOWNS_KEPT_MAX    256u
#define FRAME_DOWNS_MAX   64u
#define FRAME_SPILLS_MAX  64u
#define COMMAND_BYTES_MAX (1u << 20)

struct kept_down {
    struct store_uplink_down down;
    uint64_t sent_seq; /* in this connection; 0: not sent yet */
};

struct kept_result {
    struct store_spill_result result;
    uint64_t sent_seq; /* in this connection; 0: not sent yet */
};

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
    uint32_t devices;
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
    char refusal[512]; /* why STORE_UPLINK_REFUSED; written once, before it is posted */
    int fd_in;         /* a connection for us; -1: none */
    bool ending;       /* the daemon ends */
    bool reachable;    /* the head has welcomed this connection */
    uint32_t leave_ms; /* the daemon wants to leave, within so long */

    /* The loop's thread. */
    struct rpc_channel *channel;
    struct rpc_stream *stream;
    struct wire_arena arena;
    bool welcomed;
    bool told; /* the log says that the head cannot be reached */
    bool fd_asked;
    bool quitting;
    uint64_t epoch;
    uint64_t session;
    uint64_t joined;        /* session of the last welcome; 0: there was none */
    uint64_t *session_kept; /* the same, for the store after us; in the host's memory */
    uint64_t out_seq;
    uint64_t in_seq;
    uint64_t in_acked;
    uint64_t beat;
    uint64_t beat_due_ns;
    uint64_t connect_due_ns;
    uint64_t pause_ns;
    struct pl_vec downs;   /* struct kept_down, oldest first */
    struct pl_vec results; /* struct kept_result, oldest first */
};

/* ------------------------------------------------------------------------------------------------ mailboxes */

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
    node->leave_ms = deadline_ms;
    possible       = node->reachable;
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
    pl_mutex_unlock(&node->lock);
}

static void node_ending(void *user)
{
    struct store_node *node = user;

    pl_mutex_lock(&node->lock);
    node->ending = true;
    pl_mutex_unlock(&node->lock);
}

static bool node_is_leaving(struct store_node *node)
{
    bool leaving;

    pl_mutex_lock(&node->lock);
    leaving = node->leave_ms != 0;
    pl_mutex_unlock(&node->lock);
    return leaving;
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
        struct kept_down *kept = pl_vec_push(&node->downs);

        if (kept != NULL) {
            kept->down = *(struct store_uplink_down *)pl_vec_at(&node->downs_in, i);
        }
    }
    pl_vec_clear(&node->downs_in);
    pl_mutex_unlock(&node->lock);
}

/* ------------------------------------------------------------------------------------------------ frames */

static void node_send(struct store_node *node, Plasmon__V1__NodeFrame *frame, uint64_t seq)
{
    Plasmon__V1__Header header = PLASMON__V1__HEADER__INIT;
    size_t length;
    uint8_t *bytes;

    header.protocol = WIRE_PROTOCOL;
    header.epoch    = node->epoch;
    header.session  = node->session;
    header.seq      = seq;
    header.ack      = node->in_seq;
    frame->header   = &header;
    node->in_acked  = node->in_seq;

    length = plasmon__v1__node_frame__get_packed_size(frame);
    bytes  = rpc_buffer_create(length);
    if (bytes == NULL) {
        return; /* a lost frame: the head asks by hanging up, and deaths are kept */
    }
    (void)plasmon__v1__node_frame__pack(frame, bytes);
    (void)!rpc_stream_send(node->stream, bytes, length); /* if it fails, closed() follows */
}

static void node_send_hello(struct store_node *node)
{
    Plasmon__V1__NodeFrame frame = PLASMON__V1__NODE_FRAME__INIT;
    Plasmon__V1__NodeHello hello = PLASMON__V1__NODE_HELLO__INIT;

    hello.host           = node->host_id;
    hello.node           = node->name;
    hello.store_socket   = node->store_socket;
    hello.devices        = node->devices;
    hello.resume_session = node->joined;
    if (node->spill != NULL) {
        hello.spill_memory = store_spill_memory_bytes(node->spill);
        hello.spill_files  = store_spill_file_bytes(node->spill);
        hello.spill_life   = store_spill_life(node->spill);
        hello.spill_slab   = store_spill_slab(node->spill);
    }
    frame.hello = &hello;
    node_send(node, &frame, 0);
}

static void node_send_beat(struct store_node *node)
{
    Plasmon__V1__NodeFrame frame = PLASMON__V1__NODE_FRAME__INIT;

    frame.beat = ++node->beat;
    node_send(node, &frame, 0);
}

/* On the loop's thread. */
static void node_leave_send(void *user)
{
    struct store_node *node      = user;
    Plasmon__V1__NodeFrame frame = PLASMON__V1__NODE_FRAME__INIT;
    Plasmon__V1__NodeLeave leave = PLASMON__V1__NODE_LEAVE__INIT;

    if (node->stream == NULL || !node->welcomed) {
        node_post(node, STORE_UPLINK_LEFT, 0, 0); /* nobody can be asked any more */
        return;
    }
    pl_mutex_lock(&node->lock);
    leave.deadline_ms = node->leave_ms;
    pl_mutex_unlock(&node->lock);
    frame.leave = &leave;
    node_send(node, &frame, ++node->out_seq);
}

/* The deaths that this connection has not carried yet. */
static void node_send_downs(struct store_node *node)
{
    Plasmon__V1__NodeFrame frame = PLASMON__V1__NODE_FRAME__INIT;
    Plasmon__V1__WorkerDown down[FRAME_DOWNS_MAX];
    Plasmon__V1__WorkerDown *list[FRAME_DOWNS_MAX];
    size_t count = 0;

    for (size_t i = 0; i < node->downs.count && count < FRAME_DOWNS_MAX; i++) {
        struct kept_down *kept = pl_vec_at(&node->downs, i);

        if (kept->sent_seq != 0) {
            continue;
        }
        plasmon__v1__worker_down__init(&down[count]);
        down[count].host_device = kept->down.host_device;
        down[count].incarnation = kept->down.incarnation;
        down[count].wait_status = kept->down.wait_status;
        down[count].text        = kept->down.text;
        down[count].quarantined = kept->down.quarantined;
        down[count].status      = kept->down.status;
        list[count]             = &down[count];
        kept->sent_seq          = node->out_seq + 1;
        count++;
    }
    if (count == 0) {
        return;
    }
    frame.n_down = count;
    frame.down   = list;
    node_send(node, &frame, ++node->out_seq);
}

/* ------------------------------------------------------------------------------------------------ spilling */

static void node_slab_wanted(void *user)
{
    node_post(user, STORE_UPLINK_SLAB, 0, 0);
}

static void node_spill_done(void *user)
{
    struct store_node *node = user;

    rpc_loop_post(node->loop, node_tick, node);
}

/* The results that this connection has not carried yet. */
static void node_send_spilled(struct store_node *node)
{
    Plasmon__V1__NodeFrame frame = PLASMON__V1__NODE_FRAME__INIT;
    Plasmon__V1__SpillDone done[FRAME_SPILLS_MAX];
    Plasmon__V1__SpillDone *list[FRAME_SPILLS_MAX];
    struct store_spill_result fresh;

    while (node->spill != NULL && store_spill_take(node->spill, &fresh)) {
        struct kept_result *kept = pl_vec_push(&node->results);

        PL_CHECK(kept != NULL);
        *kept = (struct kept_result){.result = fresh};
    }
    for (size_t i = 0; i < node->results.count && frame.n_spill_done < FRAME_SPILLS_MAX;
         i++) {
        struct kept_result *kept     = pl_vec_at(&node->results, i);
        Plasmon__V1__SpillDone *next = &done[frame.n_spill_done];

        if (kept->sent_seq != 0) {
            continue;
        }
        plasmon__v1__spill_done__init(next);
        next->id                   = kept->result.id;
        next->status               = kept->result.status;
        next->host_buffer          = kept->result.host_buffer;
        next->text                 = kept->result.text;
        list[frame.n_spill_done++] = next;
        kept->sent_seq             = node->out_seq + 1;
    }
    if (frame.n_spill_done > 0) {
        frame.spill_done = list;
        node_send(node, &frame, ++node->out_seq);
    }
}

static void node_forget_spilled(struct store_node *node, uint64_t ack)
{
    size_t used = 0;

    for (size_t i = 0; i < node->results.count; i++) {
        const struct kept_result *kept = pl_vec_at(&node->results, i);

        if (kept->sent_seq == 0 || kept->sent_seq > ack) {
            *(struct kept_result *)pl_vec_at(&node->results, used++) = *kept;
        }
    }
    node->results.count = used;
}

static void node_ask_spill(struct store_node *node, const Plasmon__V1__SpillOp *op)
{
    const struct store_spill_op asked = {.id          = op->id,
                                         .kind        = op->kind,
                                         .host_buffer = op->host_buffer,
                                         .offset      = op->offset,
                                         .bytes       = op->bytes,
                                         .file        = op->file};

    if (node->spill != NULL) {
        store_spill_ask(node->spill, &asked);
    }
}

/* ------------------------------------------------------------------------------------------------ what is over */

/* The head has everything up to `ack`; quarantines are kept for the next head. Not more than a bounded number is kept at all. */
static void node_forget_downs(struct store_node *node, uint64_t ack)
{
    struct pl_vec *downs = &node->downs;
    size_t excess = downs->count > DOWNS_KEPT_MAX ? downs->count - DOWNS_KEPT_MAX : 0;
    size_t used   = 0;

    for (size_t i = 0; i < downs->count; i++) {
        struct kept_down *kept = pl_vec_at(downs, i);
        bool acked             = kept->sent_seq != 0 && kept->sent_seq <= ack;

        if (!kept->down.quarantined && (acked || i < excess)) {
            continue;
        }
        *(struct kept_down *)pl_vec_at(downs, used++) = *kept;
    }
    while (downs->count > used) {
        pl_vec_pop(downs);
    }
}

/* ------------------------------------------------------------------------------------------------ stream */

static void node_welcome(struct store_node *node, const Plasmon__V1__NodeCommand *command)
{
    node->welcomed = true;
    node_set_reachable(node, true);
    node->told     = false;
    node->pause_ns = PAUSE_MIN_NS;
    node->epoch    = command->welcome->epoch;
    node->session  = command->header->session;
    if (node->joined != 0 && node->joined != node->session) {
        pl_warn("store", "the head does not know this store any more: it joins as a fresh "
                         "one, and what was in its memory is given up");
        if (node->spill != NULL) {
            store_spill_forget(node->spill);
            pl_vec_clear(&node->results);
        }
    }
    node->joined = node->session;
    pl_mutex_lock(&node->lock);
    if (!node->ending) { /* its memory is there until then */
        __atomic_store_n(node->session_kept, node->joined, __ATOMIC_RELEASE);
    }
    pl_mutex_unlock(&node->lock);
    pl_info("store", "joined cluster %s",
            command->welcome->cluster[0] != '\0' ? command->welcome->cluster : "(no name)");
}

/* false: the connection makes no sense any more. */
static bool node_sequence(struct store_node *node, const Plasmon__V1__Header *header,
                          bool *out_repeat)
{
    *out_repeat = false;
    if (header->seq == 0) {
        return true;
    }
    *out_repeat = header->seq <= node->in_seq;
    if (header->seq > node->in_seq + 1) {
        return false;
    }
    node->in_seq = pl_max_u64(node->in_seq, header->seq);
    return true;
}

static void node_command(struct store_node *node, const Plasmon__V1__NodeCommand *command)
{
    bool repeat;

    if (!node_sequence(node, command->header, &repeat)) {
        rpc_stream_close(node->stream, PLASMON_EMALFORMED, "a gap in the sequence");
        return;
    }
    if (command->welcome != NULL) {
        node_welcome(node, command);
    }
    node_forget_downs(node, command->header->ack);
    node_forget_spilled(node, command->header->ack);
    if (repeat) {
        return;
    }
    for (size_t i = 0; i < command->n_fence; i++) {
        node_post(node, STORE_UPLINK_FENCE, command->fence[i],
                  command->n_fence_incarnation == 0 ? 0 : command->fence_incarnation[i]);
    }
    for (size_t i = 0; i < command->n_spill; i++) {
        node_ask_spill(node, command->spill[i]);
    }
    if (command->left != NULL) {
        if (command->left->objects_left > 0) {
            pl_warn("store", "%llu objects that lie only here are lost with this node: %s",
                    (unsigned long long)command->left->objects_left, command->left->text);
        }
        node_post(node, STORE_UPLINK_LEFT, 0, 0);
    }
    if (command->stop) {
        node_post(node, STORE_UPLINK_STOP, 0, 0);
    }
}

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
    node_command(node, command);
    if (node->welcomed) {
        node_send_downs(node);
        node_send_spilled(node);
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

/* Asking again would not help: not beside another store, and not with what the head did not accept even once. */
static bool node_refused(const struct store_node *node, plasmon_status_t status)
{
    return status == PLASMON_EEXIST ||
           (node->joined == 0 && (status == PLASMON_EAUTH || status == PLASMON_EVERSION));
}

static void stream_closed(void *user, struct rpc_stream *stream, plasmon_status_t status,
                          const char *why)
{
    struct store_node *node = user;

    (void)stream;
    node->stream   = NULL;
    node->welcomed = false;
    node_set_reachable(node, false);
    if (node_is_leaving(node)) {
        node_post(node, STORE_UPLINK_LEFT, 0,
                  0); /* nobody is there who would move anything */
    }
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

/* ------------------------------------------------------------------------------------------------ connecting */

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

    node->epoch = node->session = 0;
    node->out_seq = node->in_seq = node->in_acked = 0;
    for (size_t i = 0; i < node->downs.count; i++) {
        ((struct kept_down *)pl_vec_at(&node->downs, i))->sent_seq = 0;
    }
    for (size_t i = 0; i < node->results.count; i++) {
        ((struct kept_result *)pl_vec_at(&node->results, i))->sent_seq = 0;
    }
    status = rpc_stream_open(node->channel, "/plasmon.v1.Plasmon/Node", CONNECT_MS,
                             &stream_ops, node, &node->stream);
    if (status != PLASMON_OK) {
        node->stream = NULL;
        node_retry_later(node);
        return;
    }
    node->beat_due_ns = pl_now_ns() + BEAT_NS;
    node_send_hello(node);
}

static void node_tick(void *user)
{
    struct store_node *node = user;
    uint64_t now_ns         = pl_now_ns();

    if (node->quitting) {
        return;
    }
    node_collect(node);
    if (node->stream == NULL) {
        if (now_ns >= node->connect_due_ns) {
            node_connect(node);
        }
        return;
    }
    if (!node->welcomed) {
        return;
    }
    node_send_downs(node);
    node_send_spilled(node);
    if (now_ns >= node->beat_due_ns || node->in_seq != node->in_acked) {
        node->beat_due_ns = now_ns + BEAT_NS;
        node_send_beat(node);
    }
}

/* ------------------------------------------------------------------------------------------------ life */

static plasmon_status_t node_start(void *user, const char *name, const char *store_socket,
                                   uint32_t devices, uint64_t *session)
{
    struct store_node *node = user;
    plasmon_status_t status;

    (void)snprintf(node->name, sizeof(node->name), "%s", name);
    (void)snprintf(node->store_socket, sizeof(node->store_socket), "%s", store_socket);
    node->devices      = devices;
    node->session_kept = session;
    node->joined       = *session;
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
    node->downs    = PL_VEC_INIT(struct kept_down);
    node->results  = PL_VEC_INIT(struct kept_result);
    (void)pl_host_id(node->host_id);

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
    pl_vec_finish(&node->downs);
    pl_vec_finish(&node->results);
    pl_fd_close(&node->fd_in);
    pl_mutex_finish(&node->lock);
    pl_fd_close(&node->event_fd);
    pl_free(node);
}
