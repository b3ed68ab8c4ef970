/*
 * Connections that have not said enough, between the kernel and the core: accept4() and the room,
 * at listeners of this process.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "rpc/rpc_int.h"
#include "tests/harness/test.h"
#include "tests/unit/rpc/peer.h"

#define PREFACE  "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
#define SETTINGS "\x00\x00\x06\x04\x00\x00\x00\x00\x00"
#define SETTING  "\x00\x03\x00\x00\x00\x64"
#define FIRST    PREFACE SETTINGS SETTING /* what a peer says before it has heard anything */
#define ACK      "\x00\x00\x00\x04\x01\x00\x00\x00\x00"
#define REQUEST                            \
    "\x00\x00\x04\x01\x04\x00\x00\x00\x01" \
    "head"
#define GREETING "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
#define TLS      "\x16\x03\x01\x00\x04head" /* a record of four bytes */
#define WAIT_MS  5000
#define LONG_MS  60000u

/* ------------------------------------------------------------------------- what is said */

static enum rpc_beginning begun(const char *bytes, size_t length, bool goes)
{
    enum rpc_beginning begins;
    int fds[2];

    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    ASSERT_EQ(send(fds[0], bytes, length, MSG_NOSIGNAL), length);
    if (goes) {
        pl_fd_close(&fds[0]);
    }
    begins = rpc_beginning(fds[1]);
    pl_fd_close(&fds[0]);
    pl_fd_close(&fds[1]);
    return begins;
}

#define BEGUN(text) begun("" text, sizeof("" text) - 1, false)

TEST(a_first_request_is_a_beginning_and_each_part_of_it_could_become_one)
{
    static const char http[] = FIRST ACK REQUEST;
    const size_t listens = sizeof(FIRST) - 1, acknowledged = listens + sizeof(ACK) - 1;

    for (size_t length = 0; length < sizeof(http) - 1; length++) {
        ASSERT_EQ(begun(http, length, false),
                  length < listens ? RPC_BEGINS_SLOWLY : RPC_BEGINS_AND_LISTENS);
        ASSERT_EQ(begun(http, length, true), RPC_BEGINS_AS_NOBODY);
    }
    ASSERT_TRUE(acknowledged < sizeof(http) - 1);
    ASSERT_EQ(begun(http, sizeof(http) - 1, false), RPC_BEGINS_WELL);
    ASSERT_EQ(begun(http, sizeof(http) - 1, true), RPC_BEGINS_AS_NOBODY);
    ASSERT_EQ(BEGUN(FIRST REQUEST "more"), RPC_BEGINS_WELL); /* it has not waited for us */
}

TEST(what_cannot_become_a_beginning_is_known_at_once)
{
    ASSERT_EQ(BEGUN("GET / HTTP/1.1\r\n"), RPC_BEGINS_AS_NOBODY);
    ASSERT_EQ(BEGUN("PRI * HTTP/2.1"), RPC_BEGINS_AS_NOBODY);
    ASSERT_EQ(BEGUN("\x17"), RPC_BEGINS_AS_NOBODY);
    ASSERT_EQ(BEGUN("\x16"), RPC_BEGINS_AS_TLS);
    ASSERT_EQ(BEGUN(PREFACE "\x00\x00\x06\x01\x00\x00\x00\x00\x00"),
              RPC_BEGINS_AS_NOBODY); /* HEADERS */
    ASSERT_EQ(BEGUN(PREFACE "\x00\x40\x01\x04\x00\x00\x00\x00\x00"),
              RPC_BEGINS_AS_NOBODY); /* longer than frames are */
}

TEST(who_says_much_and_asks_for_nothing_is_nobody)
{
    char said[2048] = FIRST;
    size_t length   = sizeof(FIRST) - 1;

    while (length + sizeof(ACK) - 1 < sizeof(said)) {
        memcpy(said + length, ACK, sizeof(ACK) - 1);
        length += sizeof(ACK) - 1;
    }
    ASSERT_EQ(begun(said, 1023, false), RPC_BEGINS_AND_LISTENS);
    ASSERT_EQ(begun(said, length, false), RPC_BEGINS_AS_NOBODY);
}

/* ---------------------------------------------------------------------------- who waits */

struct place {
    int listener;
    struct sockaddr_storage address;
    socklen_t bytes;
    char dir[64];
};

static void place_open(struct place *place, int family)
{
    struct sockaddr_un *path = (struct sockaddr_un *)&place->address;
    struct sockaddr_in *host = (struct sockaddr_in *)&place->address;

    *place = (struct place){.bytes = sizeof(place->address)};
    peer_dir_create(place->dir);
    place->address.ss_family = (sa_family_t)family;
    if (family == AF_UNIX) {
        (void)snprintf(path->sun_path, sizeof(path->sun_path), "%.60s/l", place->dir);
    } else {
        host->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    }
    place->listener = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    ASSERT_EQ(bind(place->listener, (struct sockaddr *)&place->address,
                   family == AF_UNIX ? sizeof(*path) : sizeof(*host)),
              0);
    ASSERT_EQ(listen(place->listener, 64), 0);
    ASSERT_EQ(
        getsockname(place->listener, (struct sockaddr *)&place->address, &place->bytes), 0);
}

static void place_close(struct place *place)
{
    pl_fd_close(&place->listener);
    if (place->address.ss_family == AF_UNIX) {
        (void)unlink(((struct sockaddr_un *)&place->address)->sun_path);
    }
    peer_dir_destroy(place->dir);
}

static int come(const struct place *place)
{
    int fd = socket(place->address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

    ASSERT_EQ(connect(fd, (const struct sockaddr *)&place->address, place->bytes), 0);
    return fd;
}

static void say(int fd, const char *bytes, size_t length)
{
    ASSERT_EQ(send(fd, bytes, length, MSG_NOSIGNAL), length);
}
#define SAY(fd, text) say(fd, "" text, sizeof("" text) - 1)

/* As the core does: -1 when nobody is there whom it should know of. */
static int take(const struct place *place)
{
    struct sockaddr_storage address;
    socklen_t length = sizeof(address);
    int fd           = accept4(place->listener, (struct sockaddr *)&address, &length,
                               SOCK_CLOEXEC | SOCK_NONBLOCK);

    if (fd < 0) {
        ASSERT_EQ(errno, EAGAIN);
    } else {
        ASSERT_EQ(address.ss_family, place->address.ss_family);
        ASSERT_TRUE((fcntl(fd, F_GETFL) & O_NONBLOCK) != 0);
    }
    return fd;
}

/* As the core does when it has heard that nobody is there: it waits for the kernel. */
static int take_later(const struct place *place)
{
    uint64_t deadline_ns = pl_now_ns() + WAIT_MS * UINT64_C(1000000);
    int fd;

    while ((fd = take(place)) < 0) {
        struct pollfd at = {.fd = place->listener, .events = POLLIN};

        ASSERT_TRUE(pl_now_ns() < deadline_ns);
        ASSERT_EQ(poll(&at, 1, WAIT_MS), 1);
    }
    return fd;
}

static bool hung_up(int fd, int timeout_ms)
{
    struct pollfd at = {.fd = fd, .events = POLLIN};
    char byte;

    return poll(&at, 1, timeout_ms) == 1 && recv(fd, &byte, 1, MSG_DONTWAIT) <= 0;
}

static void begin(uint32_t wait_ms, unsigned guests_max)
{
    (void)rpc_accept_guard();
    ASSERT_OK(rpc_room_open(wait_ms, guests_max));
}

/* Who is there has the greeting as the next that it hears. */
static void expect_greeting(int fd)
{
    char heard[sizeof(GREETING) - 1];
    struct pollfd at = {.fd = fd, .events = POLLIN};

    ASSERT_EQ(poll(&at, 1, WAIT_MS), 1);
    ASSERT_EQ(recv(fd, heard, sizeof(heard), MSG_DONTWAIT), sizeof(heard));
    ASSERT_EQ(memcmp(heard, GREETING, sizeof(heard)), 0);
}

TEST(who_dribbles_is_taken_over_when_all_is_said_and_nothing_of_it_is_lost)
{
    static const char said[]    = FIRST ACK REQUEST;
    static const int families[] = {AF_UNIX, AF_INET};

    begin(LONG_MS, 16);
    for (unsigned i = 0; i < PL_COUNT(families); i++) {
        struct place place;
        char heard[sizeof(said)];
        int peer, served;

        place_open(&place, families[i]);
        peer = come(&place);
        for (size_t at = 0; at < sizeof(said) - 1; at++) {
            ASSERT_EQ(take(&place), -1);
            say(peer, said + at, 1);
        }
        served = take_later(&place);
        ASSERT_EQ(recv(served, heard, sizeof(heard), 0), sizeof(said) - 1);
        ASSERT_EQ(memcmp(heard, said, sizeof(said) - 1), 0);
        pl_fd_close(&served);
        pl_fd_close(&peer);
        place_close(&place);
    }
    rpc_room_close();
}

TEST(who_asks_for_nothing_is_greeted_once_and_taken_over_with_its_request)
{
    static const int families[] = {AF_UNIX, AF_INET};

    begin(LONG_MS, 16);
    for (unsigned i = 0; i < PL_COUNT(families); i++) {
        struct place place;
        char heard[sizeof(FIRST ACK REQUEST)];
        int peer, served;

        place_open(&place, families[i]);
        peer = come(&place);
        SAY(peer, FIRST);
        ASSERT_EQ(take(&place), -1);
        expect_greeting(peer);
        SAY(peer, ACK);
        ASSERT_EQ(take(&place), -1);
        SAY(peer, REQUEST);
        served = take_later(&place);
        ASSERT_EQ(recv(served, heard, sizeof(heard), 0), sizeof(heard) - 1);
        ASSERT_EQ(memcmp(heard, FIRST ACK REQUEST, sizeof(heard) - 1), 0);
        ASSERT_EQ(recv(peer, heard, sizeof(heard), MSG_DONTWAIT), -1);
        ASSERT_EQ(errno, EAGAIN); /* and has heard nothing else */
        pl_fd_close(&served);
        pl_fd_close(&peer);
        place_close(&place);
    }
    rpc_room_close();
}

TEST(who_asks_for_nothing_in_time_is_hung_up_on)
{
    struct place place;
    int mute;

    begin(300, 16);
    place_open(&place, AF_UNIX);
    mute = come(&place);
    SAY(mute, FIRST);
    ASSERT_EQ(take(&place), -1);
    expect_greeting(mute);
    SAY(mute, ACK);
    ASSERT_TRUE(hung_up(mute, WAIT_MS));
    ASSERT_EQ(take(&place), -1);
    pl_fd_close(&mute);
    place_close(&place);
    rpc_room_close();
}

TEST(tls_is_for_listeners_that_speak_it_and_nothing_else_is_there)
{
    struct place place;
    int port, tls, plain, late, served;

    begin(LONG_MS, 16);
    place_open(&place, AF_INET);
    port = ntohs(((struct sockaddr_in *)&place.address)->sin_port);
    tls  = come(&place);
    late = come(&place);
    SAY(tls, TLS);
    ASSERT_EQ(take(&place), -1);
    expect_greeting(tls); /* which is no TLS, as it can tell */
    ASSERT_TRUE(hung_up(tls, WAIT_MS));
    SAY(late, TLS); /* from the room */
    expect_greeting(late);
    ASSERT_TRUE(hung_up(late, WAIT_MS));
    pl_fd_close(&tls);
    pl_fd_close(&late);

    rpc_room_tls(port, true);
    tls   = come(&place);
    plain = come(&place);
    late  = come(&place);
    SAY(plain, FIRST REQUEST);
    for (size_t at = 0; at < sizeof(TLS) - 1; at++) {
        ASSERT_EQ(take(&place), -1);
        say(tls, TLS + at, 1);
    }
    served = take_later(&place);
    pl_fd_close(&served);
    ASSERT_TRUE(hung_up(plain, WAIT_MS)); /* without a word */
    SAY(late, "\x16\x02");                /* SSL 2 */
    ASSERT_TRUE(hung_up(late, WAIT_MS));
    pl_fd_close(&late);
    late = come(&place);
    SAY(late, "\x16\x03\x01\x40\x01"); /* longer than records are */
    ASSERT_EQ(take(&place), -1);
    ASSERT_TRUE(hung_up(late, WAIT_MS));
    pl_fd_close(&late);
    pl_fd_close(&tls);
    pl_fd_close(&plain);
    rpc_room_tls(port, false);

    plain = come(&place);
    SAY(plain, FIRST REQUEST);
    served = take_later(&place);
    pl_fd_close(&served);
    pl_fd_close(&plain);
    place_close(&place);
    rpc_room_close();
}

TEST(many_who_speak_late_are_all_taken_over)
{
    enum { PEERS = 100, AT_ONCE = 20 };
    static int peers[PEERS];
    struct place one, other;

    begin(LONG_MS, PEERS);
    place_open(&one, AF_UNIX);
    place_open(&other, AF_INET);
    for (unsigned i = 0; i < PEERS; i++) { /* not more than the listener's queue */
        const struct place *place = i % 2 == 0 ? &one : &other;

        peers[i] = come(place);
        ASSERT_EQ(take(place), -1);
    }
    for (unsigned i = 0; i < PEERS; i++) {
        SAY(peers[PEERS - 1 - i], FIRST REQUEST);
    }
    for (unsigned i = 0; i < PEERS; i++) {
        int served = take_later(i % 2 == 0 ? &one : &other);

        pl_fd_close(&served);
    }
    for (unsigned i = 0; i < PEERS; i++) {
        pl_fd_close(&peers[i]);
    }
    place_close(&one);
    place_close(&other);
    rpc_room_close();
}

TEST(who_says_too_little_or_rubbish_is_hung_up_on)
{
    struct place place;
    int silent, slow, rubbish;

    begin(300, 16);
    place_open(&place, AF_UNIX);
    silent  = come(&place);
    slow    = come(&place);
    rubbish = come(&place);
    ASSERT_EQ(take(&place), -1);
    SAY(slow, PREFACE);
    SAY(rubbish, "EHLO");
    ASSERT_TRUE(hung_up(rubbish, WAIT_MS));
    ASSERT_TRUE(hung_up(silent, WAIT_MS));
    ASSERT_TRUE(hung_up(slow, WAIT_MS));
    ASSERT_EQ(take(&place), -1);
    pl_fd_close(&silent);
    pl_fd_close(&slow);
    pl_fd_close(&rubbish);
    place_close(&place);
    rpc_room_close();
}

TEST(when_the_room_is_full_the_oldest_gives_way)
{
    struct place place;
    int first, second, third, served;

    begin(LONG_MS, 2);
    place_open(&place, AF_UNIX);
    first  = come(&place);
    second = come(&place);
    ASSERT_EQ(take(&place), -1);
    ASSERT_TRUE(!hung_up(first, 0));
    third = come(&place);
    ASSERT_EQ(take(&place), -1);
    ASSERT_TRUE(hung_up(first, WAIT_MS));
    ASSERT_TRUE(!hung_up(second, 0));
    SAY(third, FIRST REQUEST);
    served = take_later(&place);
    pl_fd_close(&served);
    pl_fd_close(&first);
    pl_fd_close(&second);
    pl_fd_close(&third);
    place_close(&place);
    rpc_room_close();
}

TEST(when_descriptors_run_out_the_oldest_gives_way_to_who_speaks)
{
    enum { PEERS = 24 };
    struct rlimit before, few;
    struct place place;
    int peers[PEERS], served;
    rlim_t most;

    ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
    place_open(&place, AF_UNIX);
    for (unsigned i = 0; i < PEERS; i++) {
        peers[i] = come(&place); /* all have their descriptors on this side */
    }
    SAY(peers[PEERS - 1], FIRST REQUEST);
    most = 2 * ((rlim_t)peers[PEERS - 1] + PEERS / 2); /* half of them is spare */
    few  = (struct rlimit){.rlim_cur = most, .rlim_max = most};
    ASSERT_EQ(prlimit(0, RLIMIT_NOFILE, &few, NULL), 0);
    begin(LONG_MS, 2 * PEERS);
    served = take(&place);
    ASSERT_TRUE(served >= 0);
    ASSERT_TRUE(hung_up(peers[0], 0)); /* the first that came */
    pl_fd_close(&served);
    for (unsigned i = 0; i < PEERS; i++) {
        pl_fd_close(&peers[i]);
    }
    place_close(&place);
    rpc_room_close();
    (void)prlimit(0, RLIMIT_NOFILE, &before, NULL); /* root may */
    (void)rpc_accept_guard();
}

TEST(a_listener_that_cannot_be_reached_has_no_room)
{
    struct place place;
    int silent, served;

    begin(LONG_MS, 16);
    place_open(&place, AF_UNIX);
    silent = come(&place);
    ASSERT_EQ(unlink(((struct sockaddr_un *)&place.address)->sun_path), 0);
    served = take(&place); /* nobody could be called later */
    ASSERT_TRUE(served >= 0);
    pl_fd_close(&served);
    pl_fd_close(&silent);
    place_close(&place);
    rpc_room_close();
}

TEST(who_waits_when_the_last_server_ends_is_hung_up_on)
{
    struct place place;
    int silent, ready;

    begin(LONG_MS, 16);
    ASSERT_OK(rpc_room_open(LONG_MS, 16)); /* and another server */
    place_open(&place, AF_UNIX);
    silent = come(&place);
    ready  = come(&place);
    ASSERT_EQ(take(&place), -1);
    SAY(ready, FIRST REQUEST);
    rpc_room_close();
    ASSERT_TRUE(!hung_up(silent, 0));
    rpc_room_close();
    ASSERT_TRUE(hung_up(silent, 0));
    ASSERT_TRUE(hung_up(ready, 0));
    pl_fd_close(&silent);
    pl_fd_close(&ready);
    place_close(&place);
}

TEST_MAIN()
