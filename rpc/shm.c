/*
 * Streams whose ends are on one host: their messages go through shared memory (ring.h), and the
 * gRPC stream below stays for everything else - who the other side is, that it lives, how it ended,
 * messages that are too large, and to wake a loop that sleeps.
 *
 * COMING ABOUT  by gRPC (>) and over a Unix socket of its own (=):
 *
 *   client > the call's first metadata: which host this is
 *   server > its first metadata, where that is its own host: the name of a socket, and a secret
 *   client = connects, says the secret; > COME
 *   server = takes the connection, sends a descriptor of the memory; > COME
 *   client   maps it; > SWITCH
 *   server > SWITCH
 *
 * Behind its SWITCH a side's messages go through its ring, before it by gRPC. Whoever misses
 * something on the way LEAVEs and says nothing more of it, and the stream stays as it was: so a
 * SWITCH is only sent by who has mapped the memory to who has. The other side lets go of what it
 * has, for a server has places for few. The socket's name is one that the kernel draws, in
 * the network namespace; the secret goes over the stream, which may be TLS, so that nobody else who
 * finds the name is let in. The memory is the server's, sealed against shrinking.
 *
 * ORDER  What a ring holds is the order of its direction. A message that goes by gRPC has its place
 * there (RPC_RING_ELSEWHERE): the reader delivers what is before it when it arrives, and nothing
 * behind it until then. At the end of a stream the ring is read empty before the end is told: a
 * sender ends its direction by gRPC when all is in the ring.
 *
 * WAKING  A loop that pauses waits for its connections' sockets as well, and is sent a byte over
 * one: a socket, since no flag of a descriptor that two share can make that block. A loop that
 * sleeps does so in gRPC, and is sent a message there, BELL. A loop that is awake looks. Why
 * nothing is left lying: ring.h.
 *
 * A signal (COME, SWITCH, BELL, LEAVE) is a gRPC message that is no frame: a field's number is not 0.
 */
#include "rpc/grpc_int.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/host.h"
#include "base/log.h"

#define SHM_KEY          "plasmon-shm"
#define SHM_NAME_BYTES   16u /* of a socket, as the kernel draws it: five digits */
#define SHM_SIGNAL_BYTES 5u
#define SHM_CALLERS      4 /* that wait at a socket */
/*
 * Messages in a row before gRPC is looked at, which costs a system call; then, while there is
 * something, as many of its events.
 */
#define SHM_ROW       16u
#define SHM_GATHER_NS UINT64_C(50000)

/* In this order in the memory. */
struct shm_memory {
    struct rpc_ring to_server;
    struct rpc_ring to_client;
};

/* --------------------------------------------------------------------- what host this is */

static pthread_once_t shm_once = PTHREAD_ONCE_INIT;
static char shm_host[96]; /* "": there is no shared memory here */

/* One kernel, one network namespace: where a name of a socket means the same. */
static void shm_host_read(void)
{
    const char *wanted = getenv("PLASMON_SHM");
    char boot[PL_BOOT_ID_BYTES];
    struct stat net;

    if ((wanted == NULL || strcmp(wanted, "0") != 0) && pl_boot_id(boot) &&
        stat("/proc/self/ns/net", &net) == 0) {
        (void)snprintf(shm_host, sizeof(shm_host), "%s/%llu", boot,
                       (unsigned long long)net.st_ino);
    }
}

static const char *shm_this_host(void)
{
    (void)pthread_once(&shm_once, shm_host_read);
    return shm_host;
}

bool rpc_shm_ask(grpc_metadata *out)
{
    if (shm_this_host()[0] == '\0') {
        return false;
    }
    *out = (grpc_metadata){.key   = grpc_slice_from_static_string(SHM_KEY),
                           .value = grpc_slice_from_static_string(shm_this_host())};
    return true;
}

/* --------------------------------------------------------------------------------- life */

static struct rpc_shm *shm_create(struct rpc_stream_grpc *stream)
{
    struct rpc_shm *shm = pl_fault_point("rpc.shm") ? NULL : PL_NEW(struct rpc_shm);

    if (shm != NULL) {
        shm->stream   = stream;
        shm->listener = -1;
        shm->socket   = -1;
        pl_list_init(&shm->link);
        stream->shm = shm;
    }
    return shm;
}

/* In the loop from now on: says when it rests. */
static plasmon_status_t shm_map(struct rpc_stream_grpc *stream, int memory_fd)
{
    struct rpc_shm *shm      = stream->shm;
    struct rpc_shms *all     = rpc_loop_shms(stream->base.loop);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = shm->socket};
    struct shm_memory *memory;
    plasmon_status_t status;
    void *ptr;

    if (!pl_fd_keeps(memory_fd, sizeof(*memory))) {
        return PLASMON_EMALFORMED;
    }
    if (all->epoll < 0) {
        all->epoll = epoll_create1(EPOLL_CLOEXEC);
    }
    if (all->epoll < 0 || epoll_ctl(all->epoll, EPOLL_CTL_ADD, shm->socket, &event) != 0) {
        return PLASMON_ELIMIT;
    }
    status = pl_fd_map(memory_fd, sizeof(*memory), 1, &ptr);
    if (status != PLASMON_OK) {
        (void)epoll_ctl(all->epoll, EPOLL_CTL_DEL, shm->socket, NULL);
        return status;
    }
    memory        = ptr;
    shm->memory   = memory;
    shm->in.ring  = stream->server ? &memory->to_server : &memory->to_client;
    shm->out.ring = stream->server ? &memory->to_client : &memory->to_server;
    pl_list_add_tail(&all->list, &shm->link);
    return PLASMON_OK;
}

/* All but itself. */
static void shm_let_go(struct rpc_shm *shm)
{
    if (shm->counted != NULL) {
        shm->counted->count--;
        shm->counted = NULL;
    }
    pl_list_remove(&shm->link);
    if (shm->memory != NULL) {
        /* closing it is not enough where a child that was forked has it as well */
        (void)epoll_ctl(rpc_loop_shms(shm->stream->base.loop)->epoll, EPOLL_CTL_DEL,
                        shm->socket, NULL);
        pl_fd_unmap(shm->memory, sizeof(struct shm_memory));
        shm->memory = NULL;
    }
    pl_fd_close(&shm->listener);
    pl_fd_close(&shm->socket);
}

void rpc_shm_destroy(struct rpc_shm *shm)
{
    if (shm != NULL) {
        shm_let_go(shm);
        pl_free(shm);
    }
}

/* ---------------------------------------------------------------------- coming about */

static void shm_signal_locked(struct rpc_stream_grpc *stream, enum rpc_shm_signal signal)
{
    stream->shm->signals |= 1u << signal;
    rpc_stream_kick_locked(stream);
}

static void shm_give_up_locked(struct rpc_stream_grpc *stream, const char *why)
{
    pl_mutex_assert_held(&stream->lock);
    pl_debug("rpc", "no shared memory with %s: %s", rpc_stream_peer(&stream->base), why);
    rpc_shm_destroy(stream->shm);
    stream->shm = NULL;
}

/* The other side has something for it, too. */
static void shm_leave_locked(struct rpc_stream_grpc *stream, const char *why)
{
    pl_debug("rpc", "no shared memory with %s: %s", rpc_stream_peer(&stream->base), why);
    shm_let_go(stream->shm);
    stream->shm->signals = 0;
    shm_signal_locked(stream, RPC_SHM_LEAVE);
}

/* A socket that nobody knows by name but who is told. */
static plasmon_status_t shm_listen(struct rpc_shm *shm, char out_name[SHM_NAME_BYTES])
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    socklen_t length           = sizeof(address.sun_family); /* the kernel draws one */
    size_t name_bytes;

    shm->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (shm->listener < 0 ||
        bind(shm->listener, (struct sockaddr *)&address, length) != 0 ||
        listen(shm->listener, SHM_CALLERS) != 0) {
        return pl_status_from_errno(errno);
    }
    length = sizeof(address);
    if (getsockname(shm->listener, (struct sockaddr *)&address, &length) != 0) {
        return pl_status_from_errno(errno);
    }
    name_bytes = length - offsetof(struct sockaddr_un, sun_path);
    if (name_bytes < 2 || name_bytes > SHM_NAME_BYTES || address.sun_path[0] != '\0') {
        return PLASMON_ENOTSUP;
    }
    memcpy(out_name, address.sun_path + 1, name_bytes - 1);
    out_name[name_bytes - 1] = '\0';
    return PLASMON_OK;
}

static plasmon_status_t shm_draw_secret(char out[RPC_SHM_SECRET_BYTES])
{
    uint8_t random[(RPC_SHM_SECRET_BYTES - 1) / 2];

    if (getrandom(random, sizeof(random), 0) != (ssize_t)sizeof(random)) {
        return PLASMON_EIO;
    }
    for (size_t i = 0; i < sizeof(random); i++) {
        (void)snprintf(out + 2 * i, 3, "%02x", random[i]);
    }
    return PLASMON_OK;
}

bool rpc_shm_offer_locked(struct rpc_stream_grpc *stream,
                          const grpc_metadata_array *metadata, grpc_metadata *out)
{
    struct rpc_shms *all = rpc_loop_shms(stream->base.loop);
    char *host           = rpc_text_of_metadata(metadata, SHM_KEY);
    bool here            = host != NULL && shm_this_host()[0] != '\0' &&
                strcmp(host, shm_this_host()) == 0 && all->count < RPC_SHMS_MAX;
    char name[SHM_NAME_BYTES];
    char text[SHM_NAME_BYTES + RPC_SHM_SECRET_BYTES + 2];

    pl_free(host);
    if (!here || shm_create(stream) == NULL) {
        return false;
    }
    all->count++;
    stream->shm->counted = all;
    if (shm_listen(stream->shm, name) != PLASMON_OK ||
        shm_draw_secret(stream->shm->secret) != PLASMON_OK) {
        shm_give_up_locked(stream, "no socket can be made");
        return false;
    }
    (void)snprintf(text, sizeof(text), "%s:%s", name, stream->shm->secret);
    *out = (grpc_metadata){.key   = grpc_slice_from_static_string(SHM_KEY),
                           .value = grpc_slice_from_copied_string(text)};
    return true;
}

static plasmon_status_t shm_connect(struct rpc_shm *shm, const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t length              = strlen(name);

    memcpy(address.sun_path + 1, name, length);
    shm->socket = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (shm->socket < 0 ||
        connect(shm->socket, (struct sockaddr *)&address,
                (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length)) != 0) {
        return pl_status_from_errno(errno);
    }
    return pl_fd_send(shm->socket, shm->secret, RPC_SHM_SECRET_BYTES, NULL, 0);
}

void rpc_shm_answer_locked(struct rpc_stream_grpc *stream,
                           const grpc_metadata_array *metadata)
{
    char *offer = rpc_text_of_metadata(metadata, SHM_KEY);
    char name[SHM_NAME_BYTES];
    struct rpc_shm *shm;
    plasmon_status_t status;

    if (offer == NULL || shm_this_host()[0] == '\0') {
        pl_free(offer);
        return;
    }
    shm = shm_create(stream);
    if (shm == NULL) {
        stream->shm_declined = true;
        rpc_stream_kick_locked(stream);
        pl_free(offer);
        return;
    }
    /* a name of at most 15, a secret of at most 32 */
    if (sscanf(offer, "%15[0-9a-f]:%32[0-9a-f]", name, shm->secret) != 2) {
        shm_leave_locked(stream, "its offer cannot be read");
    } else if ((status = shm_connect(shm, name)) != PLASMON_OK) {
        shm_leave_locked(stream, pl_status_text(status));
    } else {
        shm_signal_locked(stream, RPC_SHM_COME);
    }
    pl_free(offer);
}

/* Who knows the secret, of those who came; -1: none of them. */
static int shm_take_caller(const struct rpc_shm *shm)
{
    for (int i = 0; i < SHM_CALLERS; i++) {
        /* not libc's, which is in front of connections that speak HTTP/2 (accept.c) */
        int fd = (int)syscall(SYS_accept4, shm->listener, NULL, NULL,
                              SOCK_CLOEXEC | SOCK_NONBLOCK);
        char said[RPC_SHM_SECRET_BYTES] = "";

        if (fd < 0) {
            break;
        }
        if (recv(fd, said, sizeof(said), 0) == (ssize_t)sizeof(said) &&
            said[sizeof(said) - 1] == '\0' && rpc_token_equal(shm->secret, said)) {
            return fd;
        }
        pl_fd_close(&fd);
    }
    return -1;
}

/* The client has come. */
static plasmon_status_t server_come(struct rpc_stream_grpc *stream)
{
    struct rpc_shm *shm = stream->shm;
    int memory_fd       = -1;
    plasmon_status_t status;

    shm->socket = shm_take_caller(shm);
    pl_fd_close(&shm->listener);
    if (shm->socket < 0) {
        return PLASMON_EAUTH;
    }
    status = pl_memfd_create("plasmon-rpc", sizeof(struct shm_memory), &memory_fd);
    if (status != PLASMON_OK) {
        return status;
    }
    status = shm_map(stream, memory_fd);
    if (status == PLASMON_OK) {
        status = pl_fd_send(shm->socket, "", 1, &memory_fd, 1);
    }
    pl_fd_close(&memory_fd);
    return status;
}

/* The memory lies ready. */
static plasmon_status_t client_come(struct rpc_stream_grpc *stream)
{
    char nothing[8];
    size_t length  = sizeof(nothing);
    unsigned count = 1;
    int memory_fd  = -1;
    plasmon_status_t status;

    status = pl_fd_recv(stream->shm->socket, nothing, &length, &memory_fd, &count);
    if (status == PLASMON_OK) {
        status = count == 1 ? shm_map(stream, memory_fd) : PLASMON_EMALFORMED;
    }
    pl_fd_close(&memory_fd);
    return status;
}

static void shm_come(struct rpc_stream_grpc *stream)
{
    plasmon_status_t status;

    if (stream->shm->memory != NULL) { /* what lies in the rings is not to be given up */
        rpc_stream_close(&stream->base, PLASMON_EMALFORMED,
                         "it came to its shared memory a second time");
        return;
    }
    status = stream->server ? server_come(stream) : client_come(stream);
    pl_mutex_lock(&stream->lock);
    if (status != PLASMON_OK) {
        shm_leave_locked(stream, pl_status_text(status));
    } else if (stream->server) {
        shm_signal_locked(stream, RPC_SHM_COME);
    } else {
        stream->shm->out_open = true;
        shm_signal_locked(stream, RPC_SHM_SWITCH);
    }
    pl_mutex_unlock(&stream->lock);
}

static void shm_switch(struct rpc_stream_grpc *stream)
{
    pl_mutex_lock(&stream->lock);
    if (stream->shm->memory != NULL) { /* else the other side lies: what it sends is lost */
        stream->shm->in_open = true;
        if (!stream->shm->out_open) {
            stream->shm->out_open = true;
            shm_signal_locked(stream, RPC_SHM_SWITCH);
        }
        pl_debug("rpc", "messages of %s go through shared memory",
                 rpc_stream_peer(&stream->base));
    }
    pl_mutex_unlock(&stream->lock);
}

static void shm_left(struct rpc_stream_grpc *stream)
{
    bool open;

    pl_mutex_lock(&stream->lock);
    open = stream->shm->in_open || stream->shm->out_open;
    if (!open) {
        shm_give_up_locked(stream, "the other side cannot");
    }
    pl_mutex_unlock(&stream->lock);
    if (open) { /* what lies in the rings would be lost */
        rpc_stream_close(&stream->base, PLASMON_EMALFORMED,
                         "it left its shared memory when messages went through it");
    }
}

/* -------------------------------------------------------------------------------- signals */

static const uint8_t shm_mark[SHM_SIGNAL_BYTES - 1] = {0, 's', 'h', 'm'};

static grpc_byte_buffer *signal_buffer(uint8_t signal)
{
    uint8_t bytes[SHM_SIGNAL_BYTES];
    grpc_byte_buffer *buffer;
    grpc_slice slice;

    memcpy(bytes, shm_mark, sizeof(shm_mark));
    bytes[sizeof(shm_mark)] = signal;
    slice  = grpc_slice_from_copied_buffer((const char *)bytes, sizeof(bytes));
    buffer = grpc_raw_byte_buffer_create(&slice, 1);
    grpc_slice_unref(slice);
    return buffer;
}

grpc_byte_buffer *rpc_shm_leave(void)
{
    return signal_buffer(RPC_SHM_LEAVE);
}

grpc_byte_buffer *rpc_shm_signal_locked(struct rpc_shm *shm)
{
    uint8_t signal = RPC_SHM_COME;

    while ((shm->signals & 1u << signal) == 0) {
        signal++;
    }
    shm->signals &= ~(1u << signal);
    return signal_buffer(signal);
}

bool rpc_shm_signal_take(struct rpc_stream_grpc *stream, const uint8_t *bytes,
                         size_t length)
{
    if (stream->shm == NULL || length != SHM_SIGNAL_BYTES ||
        memcmp(bytes, shm_mark, sizeof(shm_mark)) != 0) {
        return false;
    }
    switch (bytes[sizeof(shm_mark)]) {
    case RPC_SHM_COME:
        shm_come(stream);
        break;
    case RPC_SHM_SWITCH:
        shm_switch(stream);
        break;
    case RPC_SHM_LEAVE:
        shm_left(stream);
        break;
    default: /* the bell: this loop looks before it rests again */
        break;
    }
    return true;
}

void rpc_shm_rouse_locked(struct rpc_shm *shm)
{
    switch (rpc_ring_rouse(&shm->out)) {
    case RPC_REST_AWAKE:
        break;
    case RPC_REST_PAUSES:
        /* If that cannot be sent its pause is over soon, as it is with all that are there to be read. */
        (void)send(shm->socket, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
        break;
    case RPC_REST_SLEEPS:
        shm->signals |= 1u << RPC_SHM_BELL;
        break;
    }
}

void rpc_shm_put_locked(struct rpc_shm *shm)
{
    __atomic_store_n(&shm->put_ns, pl_now_ns(), __ATOMIC_RELAXED);
    rpc_shm_rouse_locked(shm);
}

/*
 * With few things under way a message goes as soon as the one before has been taken. With many,
 * frames would become small then, which costs both sides more than the ring does: what comes within
 * so long after a message goes in the next one, and several may lie there. Nobody gathers where this
 * loop's thread rests, for it would have to be woken to send that.
 */
static bool shm_many(const struct rpc_shm *shm)
{
    return __atomic_load_n(&shm->stream->base.loop->is_many, __ATOMIC_RELAXED);
}

static bool shm_gathers(const struct rpc_shm *shm)
{
    return shm_many(shm) &&
           pl_now_ns() - __atomic_load_n(&shm->put_ns, __ATOMIC_RELAXED) < SHM_GATHER_NS;
}

static bool shm_caught_up(const struct rpc_shm *shm)
{
    return rpc_ring_caught_up(&shm->out, shm_many(shm));
}

bool rpc_shm_idle_locked(struct rpc_shm *shm)
{
    if (!shm->out_open || (shm_caught_up(shm) && !shm_gathers(shm))) {
        return true;
    }
    __atomic_store_n(&shm->due, true, __ATOMIC_SEQ_CST);
    rpc_ring_want(&shm->out);
    return shm_caught_up(shm) && (!shm_gathers(shm) || !rpc_ring_reader_awake(&shm->in));
}

/* ------------------------------------------------------------------------------- the loop */

void rpc_shms_init(struct rpc_shms *all)
{
    pl_list_init(&all->list);
    all->epoll = -1;
}

void rpc_shms_finish(struct rpc_shms *all)
{
    pl_fd_close(&all->epoll);
}

static bool shm_has_message(const struct rpc_shm *shm)
{
    uint32_t length;
    enum rpc_ring_first first;

    if (!shm->in_open) {
        return false;
    }
    first = rpc_ring_first(&shm->in, &length);
    return first == RPC_RING_MESSAGE || first == RPC_RING_BROKEN;
}

/*
 * Somebody waits until the other side has taken what was sent, and it has. If not, it tells after
 * the next that it takes.
 */
static bool shm_has_room(struct rpc_shm *shm)
{
    if (!__atomic_load_n(&shm->due, __ATOMIC_SEQ_CST)) {
        return false;
    }
    rpc_ring_want(&shm->out);
    return shm_caught_up(shm);
}

bool rpc_shms_look(struct rpc_shms *all)
{
    struct pl_list *pos;

    if (all->row == SHM_ROW) {
        all->row    = 0;
        all->others = SHM_ROW;
    }
    if (all->others > 0) {
        all->others--;
        return false;
    }
    pl_list_for_each(pos, &all->list) {
        struct rpc_shm *shm = pl_container_of(pos, struct rpc_shm, link);
        bool message        = shm_has_message(shm);

        if (message || (shm_has_room(shm) && !shm_gathers(shm))) {
            pl_list_remove(&shm->link); /* the others' turn */
            pl_list_add_tail(&all->list, &shm->link);
            all->row++;
            (message ? rpc_stream_shm_message : rpc_stream_shm_room)(shm->stream);
            return true;
        }
    }
    all->row = 0;
    return false;
}

static void shms_say(struct rpc_shms *all, enum rpc_rest rest)
{
    struct pl_list *pos;

    pl_list_for_each(pos, &all->list) {
        rpc_ring_rest(&pl_container_of(pos, struct rpc_shm, link)->in, rest);
    }
}

bool rpc_shms_rest(struct rpc_shms *all, enum rpc_rest rest)
{
    struct pl_list *pos;

    shms_say(all, rest);
    pl_list_for_each(pos, &all->list) {
        struct rpc_shm *shm = pl_container_of(pos, struct rpc_shm, link);

        if (shm_has_message(shm) || shm_has_room(shm)) {
            shms_say(all, RPC_REST_AWAKE);
            return false;
        }
    }
    return true;
}

void rpc_shms_rise(struct rpc_shms *all)
{
    shms_say(all, RPC_REST_AWAKE);
}

void rpc_shms_pass(struct rpc_shms *all)
{
    all->others = 0;
}

void rpc_shms_drain(struct rpc_shms *all)
{
    struct epoll_event events[SHM_ROW];
    int count = epoll_wait(all->epoll, events, (int)PL_COUNT(events), 0);

    for (int i = 0; i < count; i++) {
        char bytes[8];
        ssize_t got = recv(events[i].data.fd, bytes, sizeof(bytes), MSG_DONTWAIT);

        if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) {
            /* The other side is gone; the stream learns that by gRPC. */
            (void)epoll_ctl(all->epoll, EPOLL_CTL_DEL, events[i].data.fd, NULL);
        }
    }
}
