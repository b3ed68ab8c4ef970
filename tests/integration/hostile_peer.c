/* Streams that say what they like, raw sockets, and what processes have. */
#include "tests/integration/hostile.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "base/clock.h"
#include "base/fd.h"

/* ------------------------------------------------------------------------ what it hears */

static void take_grant(struct hostile_peer *peer, const Plasmon__V1__BulkGrant *grant)
{
    if (grant != NULL && grant->ticket.len == sizeof(peer->ticket)) {
        (void)snprintf(peer->bulk_address, sizeof(peer->bulk_address), "%s",
                       grant->address);
        memcpy(peer->ticket, grant->ticket.data, sizeof(peer->ticket));
    }
}

/* Only of what a real head sends: its frames are taken as they are. */
static void take_frame(struct hostile_peer *peer, const uint8_t *bytes, size_t length)
{
    Plasmon__V1__HeadFrame *frame = plasmon__v1__head_frame__unpack(NULL, length, bytes);

    if (frame == NULL) {
        return;
    }
    if (frame->welcome != NULL) {
        peer->epoch   = frame->welcome->epoch;
        peer->session = frame->welcome->session;
        peer->welcome = true;
    }
    peer->pongs += frame->pong != 0;
    for (size_t i = 0; i < frame->n_data; i++) {
        peer->data += frame->data[i]->bytes.len > 0;
    }
    if (frame->header != NULL && frame->header->seq > peer->heard) {
        peer->heard = frame->header->seq;
    }
    for (size_t i = 0; i < frame->n_located; i++) {
        for (size_t l = 0; l < frame->located[i]->n_locations; l++) {
            take_grant(peer, frame->located[i]->locations[l]->bulk);
        }
    }
    for (size_t i = 0; i < frame->n_put_ready; i++) {
        take_grant(peer, frame->put_ready[i]->bulk);
    }
    plasmon__v1__head_frame__free_unpacked(frame, NULL);
}

static void peer_message(void *user, struct rpc_stream *stream, const uint8_t *bytes,
                         size_t length)
{
    struct hostile_peer *peer = user;

    (void)stream;
    (void)pthread_mutex_lock(&peer->lock);
    peer->messages++;
    take_frame(peer, bytes, length);
    (void)pthread_cond_broadcast(&peer->changed);
    while (peer->deaf && !peer->stopping) { /* this thread does the reading */
        (void)pthread_cond_wait(&peer->changed, &peer->lock);
    }
    (void)pthread_mutex_unlock(&peer->lock);
}

static void peer_writable(void *user, struct rpc_stream *stream)
{
    (void)user;
    (void)stream;
}

static void peer_closed(void *user, struct rpc_stream *stream, plasmon_status_t status,
                        const char *why)
{
    struct hostile_peer *peer = user;

    (void)stream;
    (void)pthread_mutex_lock(&peer->lock);
    peer->closed = true;
    peer->status = status;
    peer->stream = NULL;
    (void)snprintf(peer->why, sizeof(peer->why), "%s", why);
    (void)pthread_cond_broadcast(&peer->changed);
    (void)pthread_mutex_unlock(&peer->lock);
}

static const struct rpc_stream_ops peer_ops = {.message  = peer_message,
                                               .writable = peer_writable,
                                               .closed   = peer_closed};

/* ------------------------------------------------------------------------- what it says */

void hostile_open(struct hostile_peer *peer, const char *path, const char *token)
{
    /* A size that honest ones do not have: the core lets channels of the same settings share a connection. */
    static _Atomic size_t bytes_max  = 64u << 20;
    struct rpc_channel_config config = {
        .target = started_address(), .token = token, .message_bytes_max = ++bytes_max};

    memset(peer, 0, sizeof(*peer));
    (void)pthread_mutex_init(&peer->lock, NULL);
    (void)pthread_cond_init(&peer->changed, NULL);
    rpc_init();
    ASSERT_OK(rpc_loop_create(&peer->loop));
    ASSERT_OK(rpc_loop_start(peer->loop, "hostile"));
    ASSERT_OK(rpc_channel_create(peer->loop, &config, &peer->channel));
    ASSERT_OK(rpc_stream_open(peer->channel, path, CLUSTER_WAIT_MS, &peer_ops, peer,
                              &peer->stream));
}

static void close_stream(void *user)
{
    struct hostile_peer *peer = user;

    if (peer->stream != NULL) {
        rpc_stream_close(peer->stream, PLASMON_ECANCELLED, "");
    }
}

void hostile_close(struct hostile_peer *peer)
{
    (void)pthread_mutex_lock(&peer->lock);
    peer->stopping = true;
    (void)pthread_cond_broadcast(&peer->changed);
    (void)pthread_mutex_unlock(&peer->lock);
    rpc_loop_post(peer->loop, close_stream, peer);
    hostile_wait(peer, &peer->closed, "the end of its own stream");
    rpc_channel_destroy(peer->channel);
    rpc_loop_stop(peer->loop);
    rpc_loop_destroy(peer->loop);
    rpc_finish();
    (void)pthread_cond_destroy(&peer->changed);
    (void)pthread_mutex_destroy(&peer->lock);
}

bool hostile_send(struct hostile_peer *peer, const uint8_t *bytes, size_t length)
{
    uint8_t *buffer;
    bool sent = false;

    (void)pthread_mutex_lock(&peer->lock); /* while it is held the stream is not freed */
    if (peer->stream != NULL) {
        buffer = rpc_buffer_create(length);
        ASSERT_NOT_NULL(buffer);
        memcpy(buffer, bytes, length);
        sent = rpc_stream_send(peer->stream, buffer, length) == PLASMON_OK;
    }
    (void)pthread_mutex_unlock(&peer->lock);
    return sent;
}

bool hostile_send_message(struct hostile_peer *peer, const ProtobufCMessage *message)
{
    size_t length  = protobuf_c_message_get_packed_size(message);
    uint8_t *bytes = malloc(length + 1);
    bool sent;

    ASSERT_NOT_NULL(bytes);
    (void)protobuf_c_message_pack(message, bytes);
    sent = hostile_send(peer, bytes, length);
    free(bytes);
    return sent;
}

void hostile_header(struct hostile_peer *peer, Plasmon__V1__Header *out, bool numbered)
{
    plasmon__v1__header__init(out);
    out->protocol = WIRE_PROTOCOL;
    out->epoch    = peer->epoch;
    out->session  = peer->session;
    out->seq      = numbered ? ++peer->seq : 0;
}

void hostile_wait(struct hostile_peer *peer, const bool *field, const char *what)
{
    struct timespec deadline;
    int result = 0;
    bool got;

    (void)clock_gettime(CLOCK_REALTIME, &deadline);
    deadline.tv_sec += CLUSTER_WAIT_MS / 1000;
    (void)pthread_mutex_lock(&peer->lock);
    while (!*field && !peer->closed && result == 0) {
        result = pthread_cond_timedwait(&peer->changed, &peer->lock, &deadline);
    }
    got = result == 0;
    (void)pthread_mutex_unlock(&peer->lock);
    if (!got) {
        test_fail(__FILE__, __LINE__, "a hostile peer waits for %s for ever", what);
    }
}

bool hostile_hello(struct hostile_peer *peer, uint64_t resume_session, uint64_t epoch)
{
    Plasmon__V1__ClientFrame frame = PLASMON__V1__CLIENT_FRAME__INIT;
    Plasmon__V1__Header header     = PLASMON__V1__HEADER__INIT;
    Plasmon__V1__Hello hello       = PLASMON__V1__HELLO__INIT;

    header.protocol      = WIRE_PROTOCOL;
    header.epoch         = epoch;
    header.session       = resume_session;
    hello.protocol_min   = WIRE_PROTOCOL;
    hello.protocol_max   = WIRE_PROTOCOL;
    hello.resume_session = resume_session;
    frame.header         = &header;
    frame.hello          = &hello;
    (void)hostile_send_message(peer, &frame.base);
    hostile_wait(peer, &peer->welcome, "a welcome");
    return peer->welcome;
}

void hostile_put(struct hostile_peer *peer, uint64_t count)
{
    Plasmon__V1__ClientFrame frame = PLASMON__V1__CLIENT_FRAME__INIT;
    Plasmon__V1__Header header;
    Plasmon__V1__Task tasks[4], *list[4];
    Plasmon__V1__Shape shapes[4];
    Plasmon__V1__Arg args[4], *arg_list[4];
    uint64_t counts[4] = {count, 16, 16, 1};
    uint8_t *bytes     = calloc(count, sizeof(float));

    ASSERT_NOT_NULL(bytes);
    hostile_header(peer, &header, true);
    for (unsigned i = 0; i < 4; i++) {
        plasmon__v1__task__init(&tasks[i]);
        plasmon__v1__arg__init(&args[i]);
        plasmon__v1__shape__init(&shapes[i]);
        shapes[i].dtype = PL_F32;
        shapes[i].n_dim = 1;
        shapes[i].dim   = &counts[i];
        args[i].mode    = PLASMON__V1__MODE__MODE_OUT;
        args[i].ref     = i + 1;
        args[i].shape   = &shapes[i];
        arg_list[i]     = &args[i];
        tasks[i].kind   = PLASMON__V1__TASK_KIND__TASK_PUT;
        tasks[i].id     = 10 + i;
        tasks[i].place  = 1;
        tasks[i].n_args = 1;
        tasks[i].args   = &arg_list[i];
        tasks[i].data   = (ProtobufCBinaryData){counts[i] * sizeof(float), bytes};
        list[i]         = &tasks[i];
    }
    frame.header  = &header;
    frame.n_tasks = 4;
    frame.tasks   = list;
    (void)hostile_send_message(peer, &frame.base);
    free(bytes);
}

/* ------------------------------------------------------------------------------ sockets */

int hostile_connect(const char *address, int type)
{
    struct sockaddr_un local  = {.sun_family = AF_UNIX};
    struct sockaddr_in remote = {.sin_family = AF_INET};
    bool unix_path            = strncmp(address, "unix:", 5) == 0;
    const char *colon         = strrchr(address, ':');
    char host[64];
    int fd, result;

    fd = socket(unix_path ? AF_UNIX : AF_INET, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return -1;
    }
    if (unix_path) {
        (void)snprintf(local.sun_path, sizeof(local.sun_path), "%s", address + 5);
        result = connect(fd, (const struct sockaddr *)&local, sizeof(local));
    } else {
        (void)snprintf(host, sizeof(host), "%.*s", (int)(colon - address), address);
        remote.sin_port = htons((uint16_t)atoi(colon + 1));
        (void)inet_pton(AF_INET, host, &remote.sin_addr);
        result = connect(fd, (const struct sockaddr *)&remote, sizeof(remote));
    }
    if (result != 0 && errno != EINPROGRESS) {
        pl_fd_close(&fd);
    }
    return fd;
}

bool hostile_hung_up(int fd)
{
    char bytes[4096];
    ssize_t got;

    do {
        got = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT);
    } while (got > 0);
    return got == 0 || (errno != EAGAIN && errno != EINTR);
}

/* ------------------------------------------------------------------- what a process has */

uint64_t hostile_resident(pid_t pid)
{
    char path[64], line[256];
    unsigned long long kib = 0;
    FILE *file;

    (void)snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    file = fopen(path, "re");
    ASSERT_NOT_NULL(file);
    while (fgets(line, sizeof(line), file) != NULL) {
        (void)sscanf(line, "VmRSS: %llu kB", &kib);
    }
    (void)fclose(file);
    return kib << 10;
}

unsigned hostile_descriptors(pid_t pid)
{
    char path[64];
    unsigned count = 0;
    DIR *dir;

    (void)snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
    dir = opendir(path);
    ASSERT_NOT_NULL(dir);
    while (readdir(dir) != NULL) {
        count++;
    }
    (void)closedir(dir);
    return count - 2; /* . and .. */
}

void hostile_wait_descriptors(pid_t pid, unsigned most)
{
    uint64_t deadline_ns = pl_now_ns() + CLUSTER_WAIT_MS * 1000000ull;
    unsigned count;

    while ((count = hostile_descriptors(pid)) > most) {
        if (pl_now_ns() > deadline_ns) {
            test_fail(__FILE__, __LINE__, "process %d has %u descriptors, and had %u",
                      (int)pid, count, most);
        }
        (void)poll(NULL, 0, 20); /* nothing tells of it */
    }
}
