/*
 * A cluster among enemies: floods of connections, bytes that dribble, a client that does not read,
 * others' sessions and tickets, and messages at random from every role. Meanwhile an honest client
 * gets right results; afterwards every process is the one that it was, has the descriptors that it
 * had, and no more memory than what is said here.
 *
 * --seed repeats a run. PLASMON_HOSTILE_ROUNDS: how many peers with messages at random (default 20).
 */
#include "tests/integration/hostile.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "base/clock.h"
#include "base/fd.h"
#include "transfer/bulk_link.h"

#define TOKEN "right"
#define MIB   (UINT64_C(1) << 20)

/* -------------------------------------------------------------------------- the cluster */

struct server {
    const char *name;
    pid_t pid;
    unsigned descriptors;
    uint64_t resident;
};

static struct server servers[4]; /* head, store, two workers */
static unsigned server_count;
static pid_t daemons[2]; /* head, store */

static void folder_make(void)
{
    char path[256];

    (void)snprintf(path, sizeof(path), "%s/plasmon-%u", cluster_folder(),
                   (unsigned)getuid());
    ASSERT_TRUE(mkdir(path, 0700) == 0 || errno == EEXIST);
}

/*
 * A head that may have so many descriptors and waits so many seconds for a word, and a store with
 * two CPU devices that take bulk connections.
 */
static void cluster_begin_patient(unsigned descriptors, unsigned hello_wait)
{
    char command[1024];

    test_expect_log();
    started_begin();
    folder_make();
    ASSERT_EQ(setenv("PLASMON_TOKEN", TOKEN, 1), 0);
    (void)snprintf(command, sizeof(command),
                   "ulimit -n %u; exec \"$PLASMON_BIN_DIR\"/plasmon-head --listen %s "
                   "--hello-wait %u",
                   descriptors, started_address(), hello_wait);
    daemons[0] = STARTED_DAEMON("head.log", "/bin/sh", "-c", command);
    daemons[1] = STARTED_DAEMON("store.log", "plasmon-store", "--head", started_address(),
                                "--cpu-devices", "2", "--gpus", "none", "--device-memory",
                                "64M", "--spill-memory", "0", "--bulk-address", "127.0.0.1",
                                "--bulk-plain", "--drain-deadline", "0");
}

static void cluster_begin(unsigned descriptors)
{
    cluster_begin_patient(descriptors, 1);
}

static struct plasmon_client *honest_join(void)
{
    struct plasmon_client *client;

    CLUSTER_OK(started_try_join(started_address(), TOKEN, &client));
    cluster_watch(client);
    started_wait_devices(client, 2);
    return client;
}

/* What must be right, whoever else is there. */
static void expect_works(struct plasmon_client *client)
{
    struct plasmon_ref *x = cluster_put(client, 1000, 1, 0),
                       *y = cluster_fill(client, 1000, 3, 1);

    cluster_expect_ramp(client, x, 1000, 1, 1);
    CLUSTER_OK(cluster_axpy(client, y, cluster_fill(client, 1000, 2, 0), 2, 1));
    cluster_expect_all(client, y, 1000, 7);
}

/* Ends as an operator would, so that nothing is left. */
static void cluster_end(struct plasmon_client *honest)
{
    plasmon_finish(honest);
    ASSERT_EQ(kill(daemons[1], SIGTERM), 0);
    ASSERT_EQ(started_wait(daemons[1]), 0);
    ASSERT_EQ(kill(daemons[0], SIGTERM), 0);
    ASSERT_EQ(started_wait(daemons[0]), 0);
}

/* From here on: each is to stay what it is. */
static void servers_note(struct plasmon_client *client)
{
    static const char *const names[] = {"plasmon-head", "plasmon-store"};

    expect_works(client); /* what is opened when it is first used is open */
    server_count = 4;
    for (unsigned i = 0; i < 2; i++) {
        servers[i].name     = names[i];
        servers[i].pid      = cluster_find(names[i], -1);
        servers[2 + i].name = "plasmon-worker";
        servers[2 + i].pid  = cluster_find("plasmon-worker", (int)i);
    }
    for (unsigned i = 0; i < server_count; i++) {
        servers[i].descriptors = hostile_descriptors(servers[i].pid);
        servers[i].resident    = hostile_resident(servers[i].pid);
    }
}

static void servers_expect_alive(void)
{
    for (unsigned i = 0; i < server_count; i++) {
        if (kill(servers[i].pid, 0) != 0) {
            test_fail(__FILE__, __LINE__, "%s %d has died", servers[i].name,
                      (int)servers[i].pid);
        }
    }
}

/* Nobody takes more than `mib` more than before. */
static void servers_expect_memory(uint64_t mib)
{
    for (unsigned i = 0; i < server_count; i++) {
        uint64_t now = hostile_resident(servers[i].pid);

        if (now > servers[i].resident + mib * MIB) {
            test_fail(__FILE__, __LINE__, "%s has %llu MiB, and had %llu", servers[i].name,
                      (unsigned long long)(now / MIB),
                      (unsigned long long)(servers[i].resident / MIB));
        }
    }
}

static void servers_expect_descriptors(void)
{
    for (unsigned i = 0; i < server_count; i++) {
        hostile_wait_descriptors(servers[i].pid, servers[i].descriptors);
    }
}

/* ------------------------------------------------------------------------------- floods */

#define FLOOD 400

static void flood_close(int *fds)
{
    for (unsigned i = 0; i < FLOOD; i++) {
        pl_fd_close(&fds[i]);
    }
}

/* As many as it takes; some are refused. Returns how many are there. */
static unsigned flood(const char *address, int type, int *fds)
{
    unsigned count = 0;

    for (unsigned i = 0; i < FLOOD; i++) {
        fds[i] = hostile_connect(address, type);
        count += fds[i] >= 0;
    }
    return count;
}

TEST(a_flood_of_connections_ends_neither_the_listening_nor_who_is_there)
{
    static int fds[FLOOD];
    struct plasmon_client *honest, *second;

    test_set_timeout(240);
    cluster_begin(96);
    honest = honest_join();
    servers_note(honest);
    for (unsigned round = 0; round < 2; round++) {
        ASSERT_TRUE(flood(started_address(), SOCK_STREAM, fds) > 0);
        expect_works(honest);
        ASSERT_TRUE(hostile_descriptors(servers[0].pid) < 96);
        flood_close(fds);
        servers_expect_descriptors();
        second = honest_join(); /* it listens still */
        expect_works(second);
        plasmon_finish(second);
    }
    servers_expect_alive();
    servers_expect_memory(64);
    cluster_end(honest);
}

/* Strangers who stay, each of whom has said that. */
static void expect_no_harm_of(const char *said, size_t length)
{
    /*
     * Whom the core has taken over it hangs up on when a ping stays without an answer, after 15 s:
     * nobody is to wait for that.
     */
    enum { FOR_EVER = 3600, PING_S = 15 };
    static int fds[FLOOD];
    struct plasmon_client *honest, *second;
    uint64_t began_ns;

    test_set_timeout(240);
    cluster_begin_patient(96, FOR_EVER);
    honest = honest_join();
    servers_note(honest);
    began_ns = pl_now_ns();
    ASSERT_TRUE(flood(started_address(), SOCK_STREAM, fds) > 96);
    for (unsigned i = 0; length > 0 && i < FLOOD; i++) {
        if (fds[i] >= 0) { /* it may have been hung up on */
            (void)!send(fds[i], said, length, MSG_NOSIGNAL | MSG_DONTWAIT);
        }
    }
    second = honest_join();
    ASSERT_TRUE(pl_now_ns() - began_ns < (PING_S - 1) * UINT64_C(1000000000));
    expect_works(second);
    plasmon_finish(second);
    servers_expect_memory(16);
    flood_close(fds);
    servers_expect_descriptors();
    servers_expect_alive();
    cluster_end(honest);
}

TEST(strangers_who_stay_and_say_nothing_keep_nobody_out)
{
    expect_no_harm_of("", 0);
}

TEST(strangers_who_begin_well_and_make_no_call_keep_nobody_out)
{
    static const char said[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0";

    expect_no_harm_of(said, sizeof(said));
}

TEST(a_flood_of_the_stores_socket_keeps_no_client_out)
{
    enum { STRANGERS = 64 }; /* at most, with two descriptors each: store/clients.c */
    static int fds[FLOOD];
    char address[256];
    struct plasmon_client *honest, *second;

    test_set_timeout(240);
    cluster_begin(1024);
    honest = honest_join();
    servers_note(honest);
    (void)snprintf(address, sizeof(address), "unix:%s/plasmon-%u/store-%d.sock",
                   cluster_folder(), (unsigned)getuid(), (int)servers[1].pid);
    for (unsigned round = 0; round < 4; round++) {
        ASSERT_TRUE(flood(address, SOCK_SEQPACKET, fds) > 0);
        second = honest_join(); /* while they are there */
        expect_works(second);
        ASSERT_TRUE(hostile_descriptors(servers[1].pid) <=
                    servers[1].descriptors + 2 * STRANGERS + 16);
        plasmon_finish(second);
        flood_close(fds);
    }
    servers_expect_descriptors();
    servers_expect_alive();
    cluster_end(honest);
}

/* ----------------------------------------------------------------------------- slowness */

/* Where the worker of device 0 takes bulk connections, and a ticket of its head for somebody who asked. */
static void bulk_ask(struct hostile_peer *peer)
{
    Plasmon__V1__ClientFrame frame = PLASMON__V1__CLIENT_FRAME__INIT;
    Plasmon__V1__Header header;
    Plasmon__V1__Locate locate       = PLASMON__V1__LOCATE__INIT;
    Plasmon__V1__Locate *const one[] = {&locate};
    struct timespec deadline;
    int result = 0;

    hostile_open(peer, HOSTILE_SESSION, TOKEN);
    ASSERT_TRUE(hostile_hello(peer, 0, 0));
    hostile_put(peer, 1 << 10);
    hostile_header(peer, &header, true);
    locate.request  = 20;
    locate.ref      = 1;
    locate.hold_ref = 30;
    locate.bulk     = 1;
    frame.header    = &header;
    frame.n_locate  = 1;
    frame.locate    = (Plasmon__V1__Locate **)(uintptr_t)one;
    ASSERT_TRUE(hostile_send_message(peer, &frame.base));
    (void)clock_gettime(CLOCK_REALTIME, &deadline);
    deadline.tv_sec += CLUSTER_WAIT_MS / 1000;
    (void)pthread_mutex_lock(&peer->lock);
    while (peer->bulk_address[0] == '\0' && !peer->closed && result == 0) {
        result = pthread_cond_timedwait(&peer->changed, &peer->lock, &deadline);
    }
    (void)pthread_mutex_unlock(&peer->lock);
    if (peer->bulk_address[0] == '\0') {
        test_fail(__FILE__, __LINE__, "no ticket: %s", peer->why);
    }
}

#define DRIBBLERS 8

/* A byte now and then of what an honest one would say at once. false: it was hung up on. */
static bool dribble(int fd, const void *bytes, size_t length, size_t *io_sent)
{
    if (*io_sent < length) {
        *io_sent += send(fd, (const uint8_t *)bytes + *io_sent, 1,
                         MSG_NOSIGNAL | MSG_DONTWAIT) == 1;
    }
    return !hostile_hung_up(fd);
}

TEST(who_does_not_say_who_he_is_in_time_is_hung_up_on)
{
    static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    uint64_t magic              = BULK_MAGIC;
    uint64_t deadline_ns        = pl_now_ns() + CLUSTER_WAIT_MS * 1000000ull;
    const char *const paths[]   = {HOSTILE_SESSION, HOSTILE_WORK, HOSTILE_NODE};
    size_t sent[2 * DRIBBLERS]  = {0};
    struct hostile_peer guest, silent[3];
    struct plasmon_client *honest;
    int fds[2 * DRIBBLERS];
    unsigned left = 2 * DRIBBLERS;

    test_set_timeout(240);
    cluster_begin(1024);
    honest = honest_join();
    bulk_ask(&guest);
    servers_note(honest);
    for (unsigned i = 0; i < 3; i++) {
        hostile_open(&silent[i], paths[i], TOKEN);
    }
    for (unsigned i = 0; i < 2 * DRIBBLERS; i++) {
        fds[i] = hostile_connect(i < DRIBBLERS ? started_address() : guest.bulk_address,
                                 SOCK_STREAM);
        ASSERT_TRUE(fds[i] >= 0);
    }
    while (left > 0) {
        ASSERT_TRUE(pl_now_ns() < deadline_ns);
        for (unsigned i = 0; i < 2 * DRIBBLERS; i++) {
            bool head = i < DRIBBLERS;

            if (fds[i] >= 0 &&
                !dribble(fds[i], head ? (const void *)preface : &magic,
                         head ? sizeof(preface) - 1 : sizeof(magic), &sent[i])) {
                pl_fd_close(&fds[i]);
                left--;
            }
        }
        expect_works(honest);
    }
    for (unsigned i = 0; i < 3; i++) {
        bool never = false;

        hostile_wait(&silent[i], &never, "being hung up on");
        ASSERT_TRUE(silent[i].closed);
        ASSERT_STATUS(silent[i].status, PLASMON_ETIMEDOUT);
        ASSERT_CONTAINS(silent[i].why, "hello");
        hostile_close(&silent[i]);
    }
    servers_expect_alive();
    servers_expect_descriptors();
    hostile_close(&guest);
    cluster_end(honest);
}

/* So many reads of 1 MiB of ref 1, which are answered with 100, 101, .. */
static void ask_reads(struct hostile_peer *peer, unsigned count)
{
    enum { A_FRAME = 50 };

    for (unsigned i = 0; i < count; i += A_FRAME) {
        Plasmon__V1__ClientFrame frame = PLASMON__V1__CLIENT_FRAME__INIT;
        Plasmon__V1__Header header;
        Plasmon__V1__Read reads[A_FRAME], *list[A_FRAME];

        hostile_header(peer, &header, true);
        for (unsigned r = 0; r < A_FRAME; r++) {
            plasmon__v1__read__init(&reads[r]);
            reads[r].request = 100 + i + r;
            reads[r].ref     = 1;
            reads[r].length  = 1 << 20;
            list[r]          = &reads[r];
        }
        frame.header = &header;
        frame.n_read = A_FRAME;
        frame.read   = list;
        (void)hostile_send_message(peer, &frame.base); /* it may be over by now */
    }
}

/* Ask for more than the head has under way for one client, and take none of it. */
TEST(a_client_that_does_not_read_costs_a_bounded_amount_of_memory_and_only_itself)
{
    struct plasmon_client *honest;
    struct hostile_peer deaf;

    test_set_timeout(240);
    cluster_begin(1024);
    honest = honest_join();
    servers_note(honest);
    hostile_open(&deaf, HOSTILE_SESSION, TOKEN);
    ASSERT_TRUE(hostile_hello(&deaf, 0, 0));
    hostile_put(&deaf, 1 << 18);
    deaf.deaf = true; /* with the next message */
    ask_reads(&deaf, 600);
    for (unsigned i = 0; i < 20; i++) {
        expect_works(honest);
        /*
         * 64 MiB of reads that it has not acknowledged, kept and queued, and what the allocator
         * keeps besides.
         */
        servers_expect_memory(320);
    }
    hostile_close(&deaf);
    servers_expect_alive();
    servers_expect_descriptors();
    cluster_end(honest);
}

/* More than is under way at a time: all of it comes to a client that takes it. */
TEST(a_client_that_asks_for_much_and_reads_it_gets_all_of_it)
{
    enum { READS = 200 };
    uint64_t deadline_ns = pl_now_ns() + CLUSTER_WAIT_MS * 1000000ull;
    struct plasmon_client *honest;
    struct hostile_peer greedy;
    uint64_t got = 0;

    test_set_timeout(240);
    cluster_begin(1024);
    honest = honest_join();
    servers_note(honest);
    hostile_open(&greedy, HOSTILE_SESSION, TOKEN);
    ASSERT_TRUE(hostile_hello(&greedy, 0, 0));
    hostile_put(&greedy, 1 << 18);
    ask_reads(&greedy, READS);
    while (got < READS) {
        Plasmon__V1__ClientFrame frame = PLASMON__V1__CLIENT_FRAME__INIT;
        Plasmon__V1__Header header;

        ASSERT_TRUE(pl_now_ns() < deadline_ns);
        hostile_header(&greedy, &header, false);
        (void)pthread_mutex_lock(&greedy.lock);
        got        = greedy.data;
        header.ack = greedy.heard;
        (void)pthread_mutex_unlock(&greedy.lock);
        frame.header = &header;
        ASSERT_TRUE(hostile_send_message(&greedy, &frame.base));
        (void)poll(NULL, 0, 5); /* as a client that acknowledges now and then */
    }
    ASSERT_EQ(got, READS);
    servers_expect_memory(320);
    hostile_close(&greedy);
    cluster_end(honest);
}

/* -------------------------------------------------------------------- what is another's */

TEST(a_session_of_somebody_else_cannot_be_taken_over)
{
    struct plasmon_client *honest;
    struct plasmon_ref *x;
    struct hostile_peer guest, thief;

    test_set_timeout(240);
    cluster_begin(1024);
    honest = honest_join();
    x      = cluster_put(honest, 1000, 1, 0);
    servers_note(honest);
    hostile_open(&guest, HOSTILE_SESSION, TOKEN);
    ASSERT_TRUE(hostile_hello(&guest, 0, 0));
    for (unsigned i = 0; i < 64; i++) {
        /*
         * Numbers that are near to its own, and those that follow from the epoch that every client
         * is told.
         */
        uint64_t session = i < 32 ? guest.session + i - 16 : guest.epoch ^ ((i - 32) << 1);

        if (session == guest.session) {
            continue;
        }
        hostile_open(&thief, HOSTILE_SESSION, TOKEN);
        if (hostile_hello(&thief, session, guest.epoch)) {
            test_fail(__FILE__, __LINE__, "session %016llx was taken over",
                      (unsigned long long)session);
        }
        ASSERT_STATUS(thief.status, PLASMON_EHEADLOST);
        hostile_close(&thief);
    }
    cluster_expect_ramp(honest, x, 1000, 1, 1);
    hostile_close(&guest);
    servers_expect_alive();
    servers_expect_descriptors();
    cluster_end(honest);
}

/* A bulk request; its status, or what ended the connection. */
static int ticket_try(const char *address, uint32_t kind, const uint8_t *ticket,
                      uint64_t offset, uint64_t bytes)
{
    struct bulk_hello hello = {
        .magic = BULK_MAGIC, .version = BULK_VERSION, .from = BULK_CLIENT};
    struct bulk_request request = {.kind = kind, .offset = offset, .bytes = bytes};
    struct bulk_link link       = {.fd = -1, .stop_fd = -1};
    struct bulk_welcome welcome;
    struct bulk_part part   = {.status = 0};
    uint64_t until_ns       = pl_now_ns() + CLUSTER_WAIT_MS * 1000000ull;
    struct pl_err err       = {.status = PLASMON_OK};
    plasmon_status_t status = bulk_connect(address, -1, &link.fd, &err);

    memcpy(request.ticket, ticket, sizeof(request.ticket));
    if (status == PLASMON_OK) {
        status = bulk_link_write(&link, &hello, sizeof(hello), 0, until_ns);
    }
    if (status == PLASMON_OK) {
        status = bulk_link_read(&link, &welcome, sizeof(welcome), 0, until_ns);
    }
    if (status == PLASMON_OK) {
        status = bulk_link_write(&link, &request, sizeof(request), 0, until_ns);
    }
    do {
        if (status == PLASMON_OK) {
            status = bulk_link_read(&link, &part, sizeof(part), 0, until_ns);
        }
    } while (status == PLASMON_OK && part.status == PLASMON_OK && part.bytes == 0);
    bulk_link_close(&link);
    return status != PLASMON_OK ? (int)status : part.status;
}

TEST(a_ticket_is_good_for_what_it_says_and_nothing_else)
{
    struct plasmon_client *honest;
    struct hostile_peer guest;
    uint8_t forged[WIRE_TICKET_BYTES];

    test_set_timeout(240);
    cluster_begin(1024);
    honest = honest_join();
    bulk_ask(&guest);
    servers_note(honest);
    ASSERT_EQ(ticket_try(guest.bulk_address, BULK_GET, guest.ticket, 0, 4096), 0);
    ASSERT_EQ(ticket_try(guest.bulk_address, BULK_GET, guest.ticket, 0, 4096),
              0); /* reads may be repeated */
    ASSERT_EQ(ticket_try(guest.bulk_address, BULK_PUT, guest.ticket, 0, 4096),
              PLASMON_EAUTH);
    ASSERT_EQ(ticket_try(guest.bulk_address, BULK_GET, guest.ticket, 4096, 1),
              PLASMON_ERANGE);
    ASSERT_EQ(ticket_try(guest.bulk_address, BULK_GET, guest.ticket, UINT64_MAX, 2),
              PLASMON_ERANGE);
    ASSERT_TRUE(ticket_try(guest.bulk_address, 77, guest.ticket, 0, 4096) < 0);
    for (unsigned bit = 0; bit < 8 * WIRE_TICKET_BYTES; bit += 5) {
        memcpy(forged, guest.ticket, sizeof(forged));
        forged[bit / 8] ^= (uint8_t)(1u << (bit % 8));
        ASSERT_EQ(ticket_try(guest.bulk_address, BULK_GET, forged, 0, 4096), PLASMON_EAUTH);
    }
    hostile_close(&guest);
    expect_works(honest);
    servers_expect_alive();
    servers_expect_descriptors();
    cluster_end(honest);
}

/* ---------------------------------------------------------------------- anything at all */

static unsigned rounds_of(unsigned rounds)
{
    const char *given = getenv("PLASMON_HOSTILE_ROUNDS");

    return given != NULL ? (unsigned)strtoul(given, NULL, 10) : rounds;
}

static const char *const words_texts[] = {
    "",      "default",          "model",         "hostile",     "kernel",
    "entry", "../../etc/passwd", "unix:/nowhere", "127.0.0.1:1", "IN<f32>[n] OUT<f32>[n]",
    NULL};

static void words_begin(struct hostile_words *words, uint64_t seed)
{
    static const char *const functions[] = {"fill", "add",  "axpy", "copy", "gemm",
                                            "sum",  "spin", "cast", "scale"};

    *words = (struct hostile_words){.rng = seed, .texts = words_texts};
    for (uint64_t i = 1; i <= 16; i++) {
        hostile_know(words, i); /* refs, tasks, devices, dtypes, modes */
    }
    for (unsigned i = 0; i < PL_COUNT(functions); i++) {
        hostile_know(words, pl_hash_name(functions[i]));
    }
    hostile_know(words, WIRE_FUNCTION_FIRST);
}

/* Frame by frame, until it has had enough or is thrown out. */
static void babble(struct hostile_words *words, struct hostile_peer *peer,
                   const ProtobufCMessageDescriptor *descriptor, unsigned frames)
{
    for (unsigned i = 0; i < frames; i++) {
        ProtobufCMessage *message   = hostile_message(words, descriptor);
        Plasmon__V1__Header *header = malloc(sizeof(*header));
        size_t length;
        uint8_t *bytes;
        bool sent;

        ASSERT_NOT_NULL(header);
        hostile_header(peer, header, hostile_below(words, 20) != 0);
        if (hostile_below(words, 20) == 0) {
            header->seq += hostile_below(words, 3) - 1;
        }
        if (hostile_below(words, 20) == 0) {
            header->epoch = test_random(&words->rng);
        }
        if (hostile_below(words, 20) == 0) {
            header->ack = hostile_below(words, 1000);
        }
        /* First in every frame's descriptor and struct (wire/plasmon.proto). */
        ASSERT_STR(descriptor->fields[0].name, "header");
        memcpy((char *)message + descriptor->fields[0].offset, &header, sizeof(header));
        length = protobuf_c_message_get_packed_size(message);
        bytes  = malloc(length + 1);
        ASSERT_NOT_NULL(bytes);
        (void)protobuf_c_message_pack(message, bytes);
        protobuf_c_message_free_unpacked(message, NULL);
        if (hostile_below(words, 8) == 0) {
            hostile_scramble(words, bytes, &length);
        }
        sent = hostile_send(peer, bytes, length);
        free(bytes);
        if (!sent) {
            return;
        }
    }
}

/* A hello at random, but with what makes it one. */
static void hello_any(struct hostile_words *words, struct hostile_peer *peer, bool worker)
{
    Plasmon__V1__WorkerFrame work = PLASMON__V1__WORKER_FRAME__INIT;
    Plasmon__V1__NodeFrame node   = PLASMON__V1__NODE_FRAME__INIT;
    Plasmon__V1__Header header;
    ProtobufCMessage *hello =
        hostile_message(words, worker ? &plasmon__v1__worker_hello__descriptor
                                      : &plasmon__v1__node_hello__descriptor);

    hostile_header(peer, &header, false);
    if (worker) {
        Plasmon__V1__WorkerHello *fields = (Plasmon__V1__WorkerHello *)hello;

        work.header         = &header;
        work.hello          = fields;
        fields->host_device = (uint32_t)hostile_below(words, 2);
        fields->kind        = 1;
        (void)hostile_send_message(peer, &work.base);
    } else {
        Plasmon__V1__NodeHello *fields = (Plasmon__V1__NodeHello *)hello;

        node.header     = &header;
        node.hello      = fields;
        fields->devices = (uint32_t)hostile_below(words, 3);
        (void)hostile_send_message(peer, &node.base);
    }
    protobuf_c_message_free_unpacked(hello, NULL);
}

TEST(messages_at_random_harm_nobody_else)
{
    unsigned rounds = rounds_of(20);
    struct plasmon_client *honest;
    struct hostile_words words;

    test_set_timeout(60 + 10 * rounds);
    cluster_begin(1024);
    honest = honest_join();
    servers_note(honest);
    words_begin(&words, test_seed());
    for (unsigned round = 0; round < rounds; round++) {
        struct hostile_peer peer;

        hostile_open(&peer, HOSTILE_SESSION, TOKEN);
        if (hostile_hello(&peer, 0, 0)) {
            hostile_know(&words, peer.session);
            hostile_know(&words, peer.epoch);
            hostile_put(&peer, 1024);
            babble(&words, &peer, &plasmon__v1__client_frame__descriptor, 40);
        }
        hostile_close(&peer);
        expect_works(honest);
        servers_expect_alive();
    }
    /* Hosts that are none: last, since whoever comes after them waits for their devices. */
    for (unsigned round = 0; round < rounds; round++) {
        struct hostile_peer peer;
        bool worker = round % 2 != 0;

        hostile_open(&peer, worker ? HOSTILE_WORK : HOSTILE_NODE, TOKEN);
        hello_any(&words, &peer, worker);
        babble(&words, &peer,
               worker ? &plasmon__v1__worker_frame__descriptor
                      : &plasmon__v1__node_frame__descriptor,
               20);
        hostile_close(&peer);
        expect_works(honest);
        servers_expect_alive();
    }
    servers_expect_memory(256);
    servers_expect_descriptors();
    cluster_end(honest);
}

TEST_MAIN()
