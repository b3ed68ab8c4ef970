/*
 * Streams through shared memory: that they come about, what goes which way, waking, and a side that
 * lies or stays away.
 */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/fd.h"
#include "rpc/grpc_int.h"
#include "tests/harness/test.h"
#include "tests/unit/rpc/peer.h"

static struct rpc_stream_grpc *grpc_of(struct peer_end *end)
{
    return pl_container_of(end->stream, struct rpc_stream_grpc, base);
}

struct question {
    struct peer_end *end;
    bool open;
    bool mapped;
};

static void ask(void *user)
{
    struct question *question      = user;
    struct rpc_stream_grpc *stream = grpc_of(question->end);

    pl_mutex_lock(&stream->lock);
    question->mapped = stream->shm != NULL && stream->shm->memory != NULL;
    question->open   = question->mapped && stream->shm->in_open && stream->shm->out_open;
    pl_mutex_unlock(&stream->lock);
}

static bool is_open(struct rpc_loop *loop, struct peer_end *end)
{
    struct question question = {.end = end};

    peer_run_on(loop, ask, &question);
    return question.open;
}

static void wait_open(struct peer_pair *pair)
{
    uint64_t deadline_ns = pl_now_ns() + UINT64_C(10000000000);

    ASSERT_OK(
        peer_send(&pair->client, "first", 5)); /* then the other end is there as well */
    peer_end_wait(&pair->served, &pair->served.messages, 1, 5000);
    while (!is_open(pair->client_loop, &pair->client) ||
           !is_open(pair->server_loop, &pair->served)) {
        ASSERT_TRUE(pl_now_ns() < deadline_ns);
        (void)usleep(1000);
    }
}

static void start_open(struct peer_pair *pair, enum peer_transport transport)
{
    peer_pair_start(pair, transport, NULL);
    peer_pair_open(pair);
    wait_open(pair);
}

static void check_comes_about(enum peer_transport transport)
{
    struct peer_pair pair;

    start_open(&pair, transport);
    for (unsigned i = 0; i < 3; i++) {
        ASSERT_OK(peer_send(&pair.client, "there", 5));
        ASSERT_OK(peer_send(&pair.served, "and back", 8));
        peer_end_wait(&pair.served, &pair.served.messages, i + 2, 5000);
        peer_end_wait(&pair.client, &pair.client.messages, i + 1, 5000);
    }
    peer_pair_stop(&pair);
    ASSERT_EQ(pair.served.status, PLASMON_OK);
}

TEST(it_comes_about_over_a_unix_socket)
{
    check_comes_about(PEER_UNIX);
}

TEST(it_comes_about_over_tcp_within_the_host)
{
    check_comes_about(PEER_TCP);
}

TEST(it_comes_about_over_a_descriptor)
{
    check_comes_about(PEER_FD);
}

TEST(who_does_not_ask_is_not_offered_it)
{
    struct peer_pair pair;

    peer_pair_start(&pair, PEER_GRPC, NULL);
    pair.served.on_message = peer_echo;
    peer_pair_open(&pair);
    for (unsigned i = 0; i < 20; i++) { /* as many round trips as it would take, and more */
        ASSERT_OK(peer_send(&pair.client, "x", 1));
        peer_end_wait(&pair.client, &pair.client.messages, i + 1, 5000);
    }
    ASSERT_NULL(grpc_of(&pair.client)->shm);
    ASSERT_NULL(grpc_of(&pair.served)->shm);
    peer_pair_stop(&pair);
}

/* ---------------------------------------------------------------------- order and room */

#define SIZES 3000u

static size_t size_of(uint64_t number)
{
    static const size_t sizes[] = {
        8, 100, RPC_RING_MESSAGE_MAX, RPC_RING_MESSAGE_MAX + 1, 9, 30000, 200};

    return number % 50 == 49 ? 1 << 20 : sizes[number % PL_COUNT(sizes)];
}

static void check_size(struct peer_end *end, const uint8_t *bytes, size_t length)
{
    uint64_t number =
        end->messages - 2; /* the first was another one, and this is counted */
    uint64_t got;

    memcpy(&got, bytes, sizeof(got));
    ASSERT_EQ(got, number);
    ASSERT_EQ(length, size_of(number));
    ASSERT_EQ(bytes[length - 1], length > 8 ? (uint8_t)number : bytes[7]);
}

/* Small ones and large ones, which go by gRPC, from a thread that is faster than the reader. */
TEST(what_goes_either_way_keeps_its_order)
{
    static uint8_t bytes[1 << 20];
    struct peer_pair pair;

    start_open(&pair, PEER_UNIX);
    pair.served.on_message = check_size;
    for (uint64_t number = 0; number < SIZES; number++) {
        plasmon_status_t status;

        memset(bytes, (uint8_t)number, sizeof(bytes));
        memcpy(bytes, &number, sizeof(number));
        while ((status = peer_send(&pair.client, bytes, size_of(number))) ==
               PLASMON_EAGAIN) {
            (void)usleep(1000);
        }
        ASSERT_OK(status);
    }
    peer_end_wait(&pair.served, &pair.served.messages, SIZES + 1, 20000);
    peer_pair_stop(&pair);
}

/* More than the ring holds, then the end at once: all of it arrives before the end. */
TEST(an_end_comes_after_what_is_in_the_ring_and_queued_behind_it)
{
    enum { COUNT = 400 };
    static uint8_t bytes[4000];
    struct peer_pair pair;

    start_open(&pair, PEER_UNIX);
    pl_mutex_lock(&pair.served.lock); /* so that the server's callback does not return */
    for (unsigned i = 0; i < COUNT; i++) {
        ASSERT_OK(peer_send(&pair.client, bytes, sizeof(bytes)));
    }
    ASSERT_TRUE(!rpc_stream_idle(pair.client.stream));
    rpc_stream_close(pair.client.stream, PLASMON_OK, "");
    pl_mutex_unlock(&pair.served.lock);
    peer_end_wait(&pair.served, &pair.served.closed, 1, 10000);
    ASSERT_EQ(pair.served.messages, COUNT + 1);
    ASSERT_EQ(pair.served.status, PLASMON_OK);
    peer_end_wait(&pair.client, &pair.client.closed, 1, 10000);
    peer_pair_stop(&pair);
}

TEST(writable_comes_when_the_reader_has_caught_up)
{
    struct peer_pair pair;
    uint64_t before;

    start_open(&pair, PEER_UNIX);
    peer_idle_wait(&pair.client, 5000);
    pl_mutex_lock(&pair.client.lock);
    before = pair.client.writable;
    pl_mutex_unlock(&pair.client.lock);
    pl_mutex_lock(&pair.served.lock);
    for (unsigned i = 0; i < 10; i++) {
        ASSERT_OK(peer_send(&pair.client, "x", 1));
    }
    ASSERT_TRUE(!rpc_stream_idle(pair.client.stream));
    pl_mutex_unlock(&pair.served.lock);
    peer_end_wait(&pair.client, &pair.client.writable, before + 1, 5000);
    peer_pair_stop(&pair);
}

static bool always(void *user)
{
    (void)user;
    return true;
}

/* Whenever it is not idle writable follows: no matter how soon the loop's thread rests. */
static void check_gathering(bool many)
{
    struct peer_pair pair;
    unsigned follows = 0;

    peer_pair_start(&pair, PEER_UNIX, &(struct peer_options){.client_waits = true});
    if (many) {
        rpc_loop_set_many(pair.client_loop, always, NULL);
    }
    ASSERT_OK(rpc_loop_start(pair.client_loop, "client"));
    peer_pair_open(&pair);
    wait_open(&pair);
    for (unsigned i = 0; i < 3000; i++) {
        uint64_t before;
        bool gathers;

        pl_mutex_lock(&pair.client.lock);
        before = pair.client.writable;
        ASSERT_OK(peer_send(&pair.client, "x", 1));
        gathers = !rpc_stream_idle(pair.client.stream);
        pl_mutex_unlock(&pair.client.lock);
        if (gathers) {
            follows++;
            peer_end_wait(&pair.client, &pair.client.writable, before + 1, 5000);
        }
    }
    printf("# %u of 3000 followed\n", follows);
    peer_pair_stop(&pair);
}

TEST(who_is_not_idle_is_told)
{
    check_gathering(false);
}

TEST(who_gathers_is_told)
{
    check_gathering(true);
}

/* Long enough apart that both loops sleep, pause, or are just about to. */
TEST(a_loop_that_rests_is_woken)
{
    uint64_t random = test_seed();
    struct peer_pair pair;

    start_open(&pair, PEER_UNIX);
    pair.served.on_message = peer_echo;
    for (unsigned i = 0; i < 2000; i++) {
        uint64_t pause_us = i % 100 == 0 ? 20000 : test_random(&random) % 200;

        ASSERT_OK(peer_send(&pair.client, "x", 1));
        peer_end_wait(&pair.client, &pair.client.messages, i + 1, 5000);
        (void)usleep((useconds_t)pause_us);
    }
    peer_pair_stop(&pair);
}

/* ------------------------------------------------------------------------- who lies */

static void lie(void *user)
{
    struct rpc_stream_grpc *stream = grpc_of(user);

    pl_mutex_lock(&stream->lock);
    __atomic_store_n(&stream->shm->out.ring->written, UINT64_MAX, __ATOMIC_SEQ_CST);
    (void)rpc_ring_rouse(&stream->shm->out);
    stream->shm->signals |= 1u << RPC_SHM_BELL;
    rpc_stream_kick_locked(stream);
    pl_mutex_unlock(&stream->lock);
}

TEST(who_writes_rubbish_loses_his_stream_and_only_that)
{
    struct peer_pair pair, other;

    start_open(&pair, PEER_UNIX);
    start_open(&other, PEER_UNIX);
    peer_run_on(pair.client_loop, lie, &pair.client);
    peer_end_wait(&pair.client, &pair.client.closed, 1, 15000);
    ASSERT_STATUS(pair.client.status, PLASMON_EMALFORMED);
    ASSERT_CONTAINS(pair.client.why, "shared memory");
    ASSERT_OK(peer_send(&other.client, "x", 1));
    peer_end_wait(&other.served, &other.served.messages, 2, 5000);
    peer_pair_stop(&pair);
    peer_pair_stop(&other);
}

struct said {
    struct peer_end *by;
    unsigned signal;
};

static void say(void *user)
{
    const struct said *said        = user;
    struct rpc_stream_grpc *stream = grpc_of(said->by);

    pl_mutex_lock(&stream->lock);
    stream->shm->signals |= 1u << said->signal;
    rpc_stream_kick_locked(stream);
    pl_mutex_unlock(&stream->lock);
}

/* What nobody says when it has come about. */
static void signal_ends_the_stream(unsigned signal)
{
    struct peer_pair pair;
    struct said said = {.by = &pair.client, .signal = signal};

    start_open(&pair, PEER_UNIX);
    peer_run_on(pair.client_loop, say, &said);
    peer_end_wait(&pair.client, &pair.client.closed, 1, 5000);
    ASSERT_STATUS(pair.client.status, PLASMON_EMALFORMED);
    peer_pair_stop(&pair);
}

TEST(who_comes_a_second_time_loses_his_stream)
{
    signal_ends_the_stream(RPC_SHM_COME);
}

TEST(who_leaves_when_it_has_come_about_loses_his_stream)
{
    signal_ends_the_stream(RPC_SHM_LEAVE);
}

/* A message by gRPC that has no place in the ring: its sender has forgotten what he switched to. */
static void forget(void *user)
{
    struct rpc_stream_grpc *stream = grpc_of(user);

    pl_mutex_lock(&stream->lock);
    stream->shm->out_open = false;
    pl_mutex_unlock(&stream->lock);
}

TEST(a_message_that_the_ring_does_not_know_of_is_refused)
{
    struct peer_pair pair;

    start_open(&pair, PEER_UNIX);
    peer_run_on(pair.client_loop, forget, &pair.client);
    ASSERT_OK(peer_send(&pair.client, "stray", 5));
    peer_end_wait(&pair.client, &pair.client.closed, 1, 5000);
    ASSERT_STATUS(pair.client.status, PLASMON_EMALFORMED);
    ASSERT_EQ(pair.served.messages, 1);
    peer_pair_stop(&pair);
}

/* ------------------------------------------------------------------ who is not expected */

/* The socket's name is there for everybody to read, in /proc/net/unix. */
struct door {
    struct peer_end *end;
    struct sockaddr_un address;
    socklen_t length; /* 0: there is none yet */
};

static void find_door(void *user)
{
    struct door *door         = user;
    const struct rpc_shm *shm = grpc_of(door->end)->shm;

    door->length = 0;
    if (shm != NULL && shm->listener >= 0) {
        door->length = sizeof(door->address);
        ASSERT_EQ(
            getsockname(shm->listener, (struct sockaddr *)&door->address, &door->length),
            0);
    }
}

/* Stays there: a place in the queue. */
static bool knock(const struct door *door, int *out_fd)
{
    static const char secret[RPC_SHM_SECRET_BYTES] = "0123456789abcdef0123456789abcdef";

    *out_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    return connect(*out_fd, (const struct sockaddr *)&door->address, door->length) == 0 &&
           send(*out_fd, secret, sizeof(secret), MSG_NOSIGNAL) == (ssize_t)sizeof(secret);
}

/* The client's loop stands still until it is started. */
static void start_accepted(struct peer_pair *pair)
{
    peer_pair_start(pair, PEER_UNIX, &(struct peer_options){.client_waits = true});
    pair->served.on_message = peer_echo;
    peer_pair_open(pair);
    pl_mutex_lock(&pair->lock);
    while (pair->accepted == 0) { /* the server's loop polls for both, in one process */
        pl_cond_wait(&pair->changed, &pair->lock);
    }
    pl_mutex_unlock(&pair->lock);
}

/* .. until others have knocked. */
static void start_late(struct peer_pair *pair, int knocks[], unsigned count)
{
    struct door door = {.end = &pair->served};

    start_accepted(pair);
    peer_run_on(pair->server_loop, find_door, &door);
    ASSERT_TRUE(door.length > 0);
    for (unsigned i = 0; i < count; i++) {
        ASSERT_TRUE(knock(&door, &knocks[i]) || i > 3);
    }
    ASSERT_OK(rpc_loop_start(pair->client_loop, "client"));
}

static void leave(const int knocks[], unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        (void)close(knocks[i]);
    }
}

TEST(who_does_not_know_the_secret_is_sent_away)
{
    struct peer_pair pair;
    char byte;
    int knocks[2];

    start_late(&pair, knocks, PL_COUNT(knocks));
    wait_open(&pair);
    for (size_t i = 0; i < PL_COUNT(knocks); i++) {
        ASSERT_EQ(recv(knocks[i], &byte, 1, 0), 0); /* hung up on, without a descriptor */
    }
    leave(knocks, PL_COUNT(knocks));
    peer_pair_stop(&pair);
}

TEST(where_others_are_in_the_way_the_stream_stays_as_it_was)
{
    struct peer_pair pair;
    int knocks[10];

    start_late(&pair, knocks, PL_COUNT(knocks));
    for (unsigned i = 0; i < 20; i++) {
        ASSERT_OK(peer_send(&pair.client, "x", 1));
        peer_end_wait(&pair.client, &pair.client.messages, i + 1, 5000);
    }
    ASSERT_TRUE(!is_open(pair.client_loop, &pair.client));
    leave(knocks, PL_COUNT(knocks));
    peer_pair_stop(&pair);
    ASSERT_EQ(pair.served.status, PLASMON_OK);
}

/* ------------------------------------------------------------------------- who never stops */

/* Writes into the client's ring without end, whatever becomes of its stream. */
struct flood {
    struct peer_pair *pair;
    struct rpc_ring_out out;
    pthread_t thread;
    bool stop; /* atomic */
};

static void *flood_main(void *user)
{
    struct flood *flood = user;

    while (!__atomic_load_n(&flood->stop, __ATOMIC_RELAXED)) {
        (void)rpc_ring_put(&flood->out, (const uint8_t *)"", 0);
    }
    return NULL;
}

/* On the client's loop: a mapping that stays when the stream goes. */
static void flood_map(void *user)
{
    struct flood *flood            = user;
    struct rpc_stream_grpc *stream = grpc_of(&flood->pair->client);
    uint8_t *memory                = stream->shm->memory;
    size_t bytes                   = 2 * sizeof(struct rpc_ring);
    uint8_t *again                 = mremap(memory, 0, bytes, MREMAP_MAYMOVE);

    ASSERT_TRUE(again != MAP_FAILED);
    flood->out = stream->shm->out;
    flood->out.ring =
        (struct rpc_ring *)(void *)(again + ((uint8_t *)stream->shm->out.ring - memory));
}

static void ring_bell(void *user)
{
    struct rpc_stream_grpc *stream = grpc_of(user);

    pl_mutex_lock(&stream->lock);
    stream->shm->signals |= 1u << RPC_SHM_BELL;
    rpc_stream_kick_locked(stream);
    pl_mutex_unlock(&stream->lock);
}

static void flood_start(struct flood *flood, struct peer_pair *pair)
{
    *flood = (struct flood){.pair = pair};
    peer_run_on(pair->client_loop, flood_map, flood);
    ASSERT_TRUE(rpc_ring_put(&flood->out, (const uint8_t *)"", 0));
    ASSERT_EQ(pthread_create(&flood->thread, NULL, flood_main, flood), 0);
    peer_run_on(pair->client_loop, ring_bell, &pair->client);
}

static void flood_stop(struct flood *flood)
{
    __atomic_store_n(&flood->stop, true, __ATOMIC_RELAXED);
    ASSERT_EQ(pthread_join(flood->thread, NULL), 0);
}

/* As long as a head takes for a message: who only writes is always ahead. */
static void take_time(struct peer_end *end, const uint8_t *bytes, size_t length)
{
    uint64_t until_ns = pl_now_ns() + 20000;

    (void)end;
    (void)bytes;
    (void)length;
    while (pl_now_ns() < until_ns) {
    }
}

TEST(who_writes_without_end_does_not_keep_his_stream_from_ending)
{
    struct peer_pair pair;
    struct flood flood;

    start_open(&pair, PEER_UNIX);
    pair.served.on_message = take_time;
    flood_start(&flood, &pair);
    rpc_stream_close(pair.client.stream, PLASMON_OK, "");
    peer_end_wait(&pair.served, &pair.served.closed, 1, 5000);
    flood_stop(&flood);
    peer_end_wait(&pair.client, &pair.client.closed, 1, 5000);
    peer_pair_stop(&pair);
}

#define POSTS 1600u

/* One post after the other, on the server's loop, which counts the messages as well. */
struct chain {
    struct peer_pair *pair;
    unsigned posts;
    uint64_t before, between; /* messages */
    bool done;                /* guarded by pair->lock */
};

static void chain(void *user)
{
    struct chain *links = user;

    if (links->posts == 0) {
        links->before = links->pair->served.messages;
    }
    if (links->posts++ < POSTS) {
        rpc_loop_post(links->pair->server_loop, chain, links);
        return;
    }
    links->between = links->pair->served.messages - links->before;
    pl_mutex_lock(&links->pair->lock);
    links->done = true;
    pl_cond_broadcast(&links->pair->changed);
    pl_mutex_unlock(&links->pair->lock);
}

/* What comes by gRPC has as many turns as what comes by rings, and so have posts. */
TEST(who_writes_without_end_leaves_others_their_turns)
{
    struct peer_pair pair;
    struct flood flood;
    struct chain links = {.pair = &pair};
    uint64_t messages;

    start_open(&pair, PEER_UNIX);
    flood_start(&flood, &pair);
    do { /* it may be that the server was faster, and sleeps */
        peer_run_on(pair.client_loop, ring_bell, &pair.client);
        (void)usleep(1000);
        pl_mutex_lock(&pair.served.lock);
        messages = pair.served.messages;
        pl_mutex_unlock(&pair.served.lock);
    } while (messages < 1000);
    rpc_loop_post(pair.server_loop, chain, &links);
    pl_mutex_lock(&pair.lock);
    while (!links.done) {
        pl_cond_wait(&pair.changed, &pair.lock);
    }
    pl_mutex_unlock(&pair.lock);
    printf("# %llu messages beside %u posts\n", (unsigned long long)links.between, POSTS);
    ASSERT_TRUE(links.between < UINT64_C(4) * POSTS);
    flood_stop(&flood);
    peer_pair_stop(&pair);
}

/* -------------------------------------------------------------------------------- ends */

/*
 * The server waits for room and sleeps; the client, which has ended its direction, cannot ring by
 * gRPC any more when it makes some.
 */
TEST(an_end_does_not_wait_for_room_that_nobody_tells_of)
{
    static const uint8_t bytes[4000];
    struct peer_pair pair;

    start_open(&pair, PEER_UNIX);
    pl_mutex_lock(&pair.client.lock); /* so that its callback does not return */
    for (unsigned i = 0; i < 100; i++) {
        ASSERT_OK(peer_send(&pair.served, bytes, sizeof(bytes)));
    }
    rpc_stream_close(pair.client.stream, PLASMON_OK, "");
    (void)usleep(200000); /* the server has heard of the end, and sleeps again */
    pl_mutex_unlock(&pair.client.lock);
    peer_end_wait(&pair.client, &pair.client.closed, 1, 5000);
    peer_end_wait(&pair.served, &pair.served.closed, 1, 5000);
    ASSERT_EQ(pair.served.status, PLASMON_OK); /* not cancelled after RPC_LINGER_MS */
    peer_pair_stop(&pair);
}

/* Both ways, large ones among small ones, and the end at once. */
TEST(an_end_comes_after_large_messages_and_what_is_behind_them)
{
    enum { COUNT = 1000 };
    static const uint8_t bytes[30000];

    for (unsigned turn = 0; turn < 2; turn++) {
        struct peer_pair pair;
        struct peer_end *from, *to;

        start_open(&pair, PEER_UNIX);
        from = turn % 2 == 0 ? &pair.client : &pair.served;
        to   = turn % 2 == 0 ? &pair.served : &pair.client;
        for (unsigned i = 0; i < COUNT; i++) {
            ASSERT_OK(peer_send(from, bytes, i % 7 == 0 ? sizeof(bytes) : 100));
        }
        rpc_stream_close(from->stream, PLASMON_OK, "");
        peer_end_wait(to, &to->closed, 1, 10000);
        ASSERT_EQ(to->messages, COUNT + (to == &pair.served ? 1 : 0));
        ASSERT_EQ(to->status, PLASMON_OK);
        peer_end_wait(from, &from->closed, 1, 10000);
        peer_pair_stop(&pair);
    }
}

/* ---------------------------------------------------------------------------- who forks */

struct socket_of {
    struct peer_end *end;
    int socket;
};

static void find_socket(void *user)
{
    struct socket_of *of = user;

    of->socket = grpc_of(of->end)->shm->socket;
}

static void drain(void *user)
{
    struct rpc_shms *all = rpc_loop_shms(user);

    for (unsigned i = 0; i < 10; i++) {
        rpc_shms_drain(all);
    }
}

/* A child holds the socket of a stream that has gone: its number is another descriptor's by now. */
TEST(a_child_that_was_forked_does_not_make_others_lose_what_they_are_sent)
{
    struct peer_pair pair, keeps;
    struct socket_of of = {.end = &pair.served}, other = {.end = &pair.client};
    char got[8] = "";
    int pair_fds[2], fds[2];
    pid_t child;

    start_open(&pair, PEER_UNIX);
    start_open(&keeps, PEER_UNIX);
    peer_run_on(pair.server_loop, find_socket, &of);
    peer_run_on(pair.client_loop, find_socket, &other);
    ASSERT_EQ(send(other.socket, "", 1, 0), 1);
    child = fork();
    if (child == 0) {
        for (;;) {
            (void)pause();
        }
    }
    ASSERT_TRUE(child > 0);
    rpc_stream_close(pair.client.stream, PLASMON_OK, "");
    peer_end_wait(&pair.served, &pair.served.closed, 1, 5000);
    peer_end_wait(&pair.client, &pair.client.closed, 1, 5000);
    peer_run_on(pair.server_loop, drain, keeps.server_loop); /* `closed` has returned */
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair_fds), 0);
    for (unsigned i = 0; i < 2; i++) { /* neither has the number that it is about */
        fds[i] = fcntl(pair_fds[i], F_DUPFD_CLOEXEC, 500);
        ASSERT_TRUE(fds[i] >= 0);
        (void)close(pair_fds[i]);
    }
    ASSERT_EQ(dup2(fds[0], of.socket), of.socket);
    ASSERT_EQ(send(fds[1], "mine", 4, 0), 4);
    peer_run_on(pair.server_loop, drain, pair.server_loop);
    ASSERT_EQ(recv(of.socket, got, sizeof(got), MSG_DONTWAIT), 4);
    (void)kill(child, SIGKILL);
    (void)waitpid(child, NULL, 0);
    (void)close(of.socket);
    (void)close(fds[0]);
    (void)close(fds[1]);
    peer_pair_stop(&pair);
    peer_pair_stop(&keeps);
}

/* ------------------------------------------------------------------- a server that lies */

static bool has_said_come(void *user)
{
    struct rpc_stream_grpc *stream = grpc_of(user);
    bool said;

    pl_mutex_lock(&stream->lock);
    said = stream->shm != NULL && stream->shm->signals == 0;
    pl_mutex_unlock(&stream->lock);
    return said;
}

/* The server's memory, on its way to the client, is replaced by some that could be shortened. */
TEST(memory_that_could_be_shortened_is_not_mapped)
{
    size_t bytes    = 2 * sizeof(struct rpc_ring);
    int memory_fd   = memfd_create("shrinks", MFD_CLOEXEC);
    char nothing[8] = "";
    struct question question;
    struct peer_pair pair;

    ASSERT_EQ(ftruncate(memory_fd, (off_t)bytes), 0);
    peer_pair_start(&pair, PEER_UNIX, &(struct peer_options){.client_waits = true});
    pair.served.on_message = peer_echo;
    peer_pair_open(&pair);
    rpc_loop_drive(pair.client_loop, has_said_come, &pair.client);
    question = (struct question){.end = &pair.served};
    while (!question.mapped) {
        peer_run_on(pair.server_loop, ask, &question);
    }
    ASSERT_EQ(recv(grpc_of(&pair.client)->shm->socket, nothing, sizeof(nothing), 0), 1);
    ASSERT_OK(pl_fd_send(grpc_of(&pair.served)->shm->socket, "", 1, &memory_fd, 1));
    ASSERT_OK(rpc_loop_start(pair.client_loop, "client"));
    for (unsigned i = 0; i < 20; i++) {
        ASSERT_OK(peer_send(&pair.client, "x", 1));
        peer_end_wait(&pair.client, &pair.client.messages, i + 1, 5000);
    }
    question = (struct question){.end = &pair.client};
    peer_run_on(pair.client_loop, ask, &question);
    ASSERT_TRUE(!question.mapped);
    (void)close(memory_fd);
    peer_pair_stop(&pair);
}

/* ------------------------------------------------------------------ when there is nothing left */

/* Sockets and memory of streams; gRPC has others, and takes its time to close them. */
static unsigned descriptors(void)
{
    unsigned count = 0;

    for (int fd = 0; fd < 1024; fd++) {
        int type         = 0;
        socklen_t length = sizeof(type);

        if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) == 0
                ? type == SOCK_SEQPACKET
                : fcntl(fd, F_GET_SEALS) > 0) {
            count++;
        }
    }
    return count;
}

struct counting {
    struct rpc_loop *loop;
    unsigned set; /* 0: only look */
    unsigned count;
};

static void count_on(void *user)
{
    struct counting *counting = user;
    struct rpc_shms *all      = rpc_loop_shms(counting->loop);

    counting->count = all->count;
    if (counting->set != 0) {
        all->count = counting->set;
    }
}

TEST(one_stream_too_many_stays_as_it_was_and_the_next_one_is_not)
{
    struct peer_pair pair;
    struct counting counting;

    peer_pair_start(&pair, PEER_UNIX, NULL);
    pair.served.on_message = peer_echo;
    counting = (struct counting){.loop = pair.server_loop, .set = RPC_SHMS_MAX};
    peer_run_on(pair.server_loop, count_on, &counting);
    ASSERT_EQ(counting.count, 0);
    peer_pair_open(&pair);
    for (unsigned i = 0; i < 20; i++) {
        ASSERT_OK(peer_send(&pair.client, "x", 1));
        peer_end_wait(&pair.client, &pair.client.messages, i + 1, 5000);
    }
    ASSERT_NULL(grpc_of(&pair.client)->shm);
    rpc_stream_close(pair.client.stream, PLASMON_OK, "");
    peer_end_wait(&pair.client, &pair.client.closed, 1, 5000);
    peer_end_wait(&pair.served, &pair.served.closed, 1, 5000);

    counting.set = RPC_SHMS_MAX - 1;
    peer_run_on(pair.server_loop, count_on, &counting);
    ASSERT_EQ(counting.count, RPC_SHMS_MAX);
    pair.client.closed = pair.served.closed = 0;
    pair.served.messages                    = 0;
    pair.served.on_message                  = NULL;
    peer_pair_open(&pair);
    wait_open(&pair);
    rpc_stream_close(pair.client.stream, PLASMON_OK, "");
    peer_end_wait(&pair.served, &pair.served.closed, 1, 5000);
    counting.set = 0;
    peer_run_on(pair.server_loop, count_on, &counting); /* behind the end of the stream */
    ASSERT_EQ(counting.count, RPC_SHMS_MAX - 1);
    peer_end_wait(&pair.client, &pair.client.closed, 1, 5000);
    peer_pair_stop(&pair);
}

static void check_place_free(struct peer_pair *pair)
{
    struct counting counting = {.loop = pair->server_loop};

    peer_run_on(pair->server_loop, count_on, &counting);
    ASSERT_EQ(counting.count, 0);
}

static void check_stays(const char *fault, unsigned nth)
{
    unsigned before = descriptors();
    struct peer_pair pair;

    peer_pair_start(&pair, PEER_UNIX, NULL);
    pair.served.on_message = peer_echo;
    pl_fault_arm(fault, nth);
    peer_pair_open(&pair);
    for (unsigned i = 0; i < 20; i++) {
        ASSERT_OK(peer_send(&pair.client, "x", 1));
        peer_end_wait(&pair.client, &pair.client.messages, i + 1, 5000);
    }
    ASSERT_TRUE(pl_fault_disarm() == 1);
    ASSERT_TRUE(!is_open(pair.client_loop, &pair.client));
    ASSERT_TRUE(!is_open(pair.server_loop, &pair.served));
    check_place_free(&pair);
    ASSERT_EQ(descriptors(), before);
    peer_pair_stop(&pair);
    ASSERT_EQ(pair.served.status, PLASMON_OK);
}

TEST(where_there_is_no_memory_the_stream_stays_as_it_was)
{
    unsigned before = descriptors();

    check_stays("fd.memfd", 0);
    check_stays("fd.map", 0); /* the server's */
    check_stays("fd.map", 1); /* the client's */
    check_stays("rpc.shm", 0);
    check_stays("rpc.shm", 1); /* the client's, and who was to be told has a place for it */
    ASSERT_EQ(descriptors(), before);
}

static void close_door(void *user)
{
    pl_fd_close(&grpc_of(user)->shm->listener);
}

/* 64 such clients would keep all others from it. */
TEST(who_cannot_come_leaves_his_place_to_others)
{
    struct peer_pair pair;

    start_accepted(&pair);
    peer_run_on(pair.server_loop, close_door, &pair.served);
    ASSERT_OK(rpc_loop_start(pair.client_loop, "client"));
    for (unsigned i = 0; i < 20; i++) {
        ASSERT_OK(peer_send(&pair.client, "x", 1));
        peer_end_wait(&pair.client, &pair.client.messages, i + 1, 5000);
    }
    check_place_free(&pair);
    peer_pair_stop(&pair);
    ASSERT_EQ(pair.served.status, PLASMON_OK);
}

TEST_MAIN()
