/*
 * The head's listener for metrics: what is answered, and that nobody who is slow, many, large or
 * gone keeps others from it.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "head/metrics.h"
#include "head/metrics_request.h"
#include "tests/harness/test.h"
#include "wire/wire.h"

enum { PEERS = 4, REQUEST_MS = 400, LONG_MS = 20000 };

static struct head_metrics *metrics;
static _Atomic uint32_t asked;
static atomic_bool silent; /* the head does not answer */

static void answer(void)
{
    Plasmon__V1__StatusReply reply = PLASMON__V1__STATUS_REPLY__INIT;
    size_t length;
    uint8_t *bytes;

    reply.tasks_done = 4711;
    length           = protobuf_c_message_get_packed_size(&reply.base);
    bytes            = pl_alloc(length);
    ASSERT_NOT_NULL(bytes);
    (void)protobuf_c_message_pack(&reply.base, bytes);
    head_metrics_answer(metrics, bytes, length);
}

static void ask(void *user)
{
    (void)user;
    atomic_fetch_add(&asked, 1);
    if (!silent) {
        answer();
    }
}

static void begin(uint32_t fresh_ms)
{
    const struct head_metrics_config config = {.address    = "0",
                                               .ask        = ask,
                                               .request_ms = REQUEST_MS,
                                               .answer_ms  = REQUEST_MS,
                                               .send_ms    = REQUEST_MS,
                                               .fresh_ms   = fresh_ms,
                                               .peers_max  = PEERS};
    struct pl_err err                       = {0};

    asked = 0;
    ASSERT_OK(head_metrics_create(&config, &metrics, &err));
    ASSERT_TRUE(head_metrics_port(metrics) != 0);
}

static int reach(void)
{
    struct sockaddr_in address = {.sin_family      = AF_INET,
                                  .sin_port        = htons(head_metrics_port(metrics)),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd                     = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    ASSERT_TRUE(fd >= 0);
    ASSERT_EQ(connect(fd, (const struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

static void say(int fd, const char *text)
{
    (void)!send(fd, text, strlen(text), MSG_NOSIGNAL);
}

/* All until the other side closes; "" if it resets, or says nothing. */
static const char *hear(int fd)
{
    static char text[64 << 10];
    uint64_t until_ns = pl_now_ns() + LONG_MS * UINT64_C(1000000);
    size_t length     = 0;
    ssize_t got       = 1;

    while (got > 0 && length < sizeof(text) - 1) {
        struct pollfd poller = {.fd = fd, .events = POLLIN};

        ASSERT_TRUE(pl_now_ns() < until_ns);
        (void)poll(&poller, 1, LONG_MS);
        got = recv(fd, text + length, sizeof(text) - 1 - length, 0);
        length += got > 0 ? (size_t)got : 0;
    }
    (void)close(fd);
    text[length] = '\0';
    return text;
}

static const char *scrape(const char *request)
{
    int fd = reach();

    say(fd, request);
    return hear(fd);
}

static void scrape_good(void)
{
    const char *text = scrape("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");

    ASSERT_EQ(strncmp(text, "HTTP/1.1 200 OK\r\n", 17), 0);
    ASSERT_CONTAINS(text, "Content-Type: text/plain; version=0.0.4");
    ASSERT_CONTAINS(text, "\r\n\r\n# HELP plasmon_up");
    ASSERT_CONTAINS(text, "\nplasmon_up 1\n");
    ASSERT_CONTAINS(text, "\nplasmon_tasks_done_total 4711\n");
}

static void assert_status(const char *text, int status)
{
    char wanted[32];

    (void)snprintf(wanted, sizeof(wanted), "HTTP/1.1 %d ", status);
    if (strncmp(text, wanted, strlen(wanted)) != 0) {
        test_fail(__FILE__, __LINE__, "not %d: %s", status, text);
    }
}

TEST(a_scrape_gets_the_figures_and_the_head_is_asked_once_a_second_at_most)
{
    begin(LONG_MS);
    for (int i = 0; i < 20; i++) {
        scrape_good();
    }
    ASSERT_EQ(asked, 1);
    ASSERT_EQ(strncmp(scrape("GET /metrics?x=1 HTTP/1.0\n\n"), "HTTP/1.1 200", 12), 0);
    head_metrics_destroy(metrics);
    begin(1);
    scrape_good();
    (void)poll(NULL, 0, 5);
    scrape_good();
    ASSERT_EQ(asked, 2);
    head_metrics_destroy(metrics);
}

TEST(everything_else_is_refused_with_the_reason)
{
    static const struct {
        const char *request;
        int status;
    } cases[] = {
        {"GET / HTTP/1.1\r\n\r\n", 404},
        {"GET /metricsx HTTP/1.1\r\n\r\n", 404},
        {"GET /metrics/../etc/passwd HTTP/1.1\r\n\r\n", 404},
        {"POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", 405},
        {"HEAD /metrics HTTP/1.1\r\n\r\n", 405},
        {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505},
        {"GET /metrics HTTP/1.1 \r\n\r\n", 400},
        {"GET  /metrics HTTP/1.1\r\n\r\n", 400},
        {"GET /metrics\r\n\r\n", 400},
        {"\r\n\r\n", 400},
        {"G\tT /metrics HTTP/1.1\r\n\r\n", 400},
        {"GET /metrics HTTP/1.1\r\nno field\r\n\r\n", 400},
        {"GET /metrics HTTP/1.1\r\n folded: 1\r\n\r\n", 400},
        {"GET /metrics HTTP/1.1\r\nA: b\rc: d\r\n\r\n", 400},
        {"GET /metrics HTTP/1.1\r\nA : b\r\n\r\n", 400},
        {"\x16\x03\x01\x02", 400}, /* TLS: not waited for */
    };

    begin(LONG_MS);
    for (size_t i = 0; i < PL_COUNT(cases); i++) {
        assert_status(scrape(cases[i].request), cases[i].status);
    }
    ASSERT_CONTAINS(scrape("POST /metrics HTTP/1.1\r\n\r\n"), "\r\nAllow: GET\r\n");
    ASSERT_EQ(asked, 0);
    head_metrics_destroy(metrics);
}

TEST(a_head_or_target_without_end_is_refused_when_it_is_too_long)
{
    static char field[HEAD_METRICS_REQUEST_BYTES_MAX];
    int fd;

    begin(LONG_MS);
    memset(field, 'a', sizeof(field) - 1);
    fd = reach();
    say(fd, "GET /");
    say(fd, field);
    assert_status(hear(fd), 414);
    fd = reach();
    say(fd, "GET /metrics HTTP/1.1\r\nHost: ");
    for (int i = 0; i < 64; i++) { /* it goes on, although nobody listens any more */
        say(fd, field);
    }
    assert_status(hear(fd), 431);
    fd = reach();
    say(fd, "GET /metrics HTTP/1.1\r\n");
    for (int i = 0; i < 4096; i++) {
        say(fd, "a:\r\n");
    }
    assert_status(hear(fd), 431);
    scrape_good();
    head_metrics_destroy(metrics);
}

TEST(who_sends_a_byte_at_a_time_is_ended_and_others_are_served_meanwhile)
{
    static const char request[] = "GET /metrics HTTP/1.1\r\nX: ";
    uint64_t began_ns;
    int slow[PEERS], mute;

    begin(LONG_MS);
    for (int i = 0; i < PEERS; i++) { /* all places */
        slow[i] = reach();
    }
    began_ns = pl_now_ns();
    for (size_t at = 0; pl_now_ns() - began_ns < (REQUEST_MS / 2) * UINT64_C(1000000);
         at++) {
        char byte[2] = {at < sizeof(request) - 1 ? request[at] : 'x', '\0'};

        for (int i = 0; i < PEERS; i++) {
            say(slow[i], byte);
        }
        scrape_good();
        ASSERT_TRUE(pl_now_ns() - began_ns < LONG_MS * UINT64_C(1000000));
    }
    for (int i = 0; i < PEERS; i++) { /* one gave way to each scrape, the others to time */
        const char *text = hear(slow[i]);

        ASSERT_TRUE(text[0] == '\0' || strstr(text, " 408 ") != NULL);
    }
    mute = reach();
    ASSERT_STR(hear(mute), "");
    scrape_good();
    head_metrics_destroy(metrics);
}

TEST(a_flood_of_connections_leaves_room_for_a_scrape)
{
    int flood[64 * PEERS];

    begin(LONG_MS);
    for (size_t i = 0; i < PL_COUNT(flood); i++) {
        flood[i] = reach();
    }
    scrape_good();
    for (size_t i = 0; i < PL_COUNT(flood); i++) {
        (void)close(flood[i]);
    }
    scrape_good();
    head_metrics_destroy(metrics);
}

TEST(who_waits_for_a_head_that_does_not_answer_is_told_and_later_ones_are_served)
{
    int fds[PEERS], half;

    silent = true;
    begin(LONG_MS);
    for (int i = 0; i < PEERS; i++) {
        fds[i] = reach();
        say(fds[i], "GET /metrics HTTP/1.1\r\n\r\n");
    }
    for (int i = 0; i < PEERS; i++) {
        assert_status(hear(fds[i]), 503);
    }
    ASSERT_EQ(asked, 1); /* it is asked already */
    half = reach();
    say(half, "GET /metrics HTTP/1.1\r\n\r\n");
    (void)shutdown(half, SHUT_WR); /* curl and others may */
    answer();
    assert_status(hear(half), 200);
    silent = false;
    scrape_good();
    test_expect_log();
    head_metrics_answer(metrics, NULL, 0); /* a head without memory */
    (void)scrape("GET /metrics HTTP/1.1\r\n\r\n");
    head_metrics_answer(metrics, memcpy(pl_alloc(3), "\xff\xff\xff", 3), 3);
    (void)scrape("GET /metrics HTTP/1.1\r\n\r\n");
    scrape_good();
    head_metrics_destroy(metrics);
}

TEST(who_leaves_in_the_middle_is_forgotten)
{
    begin(LONG_MS);
    silent = true;
    for (int i = 0; i < 50; i++) {
        int fd = reach();

        say(fd, i % 2 == 0 ? "GET /metr" : "GET /metrics HTTP/1.1\r\n\r\n");
        (void)close(fd);
    }
    silent = false; /* who asks from now on is answered; who has asked, here */
    answer();
    scrape_good();
    head_metrics_destroy(metrics);
}

TEST(addresses_are_read_and_bad_ones_refused)
{
    static const char *const good[] = {"0", ":0", "127.0.0.1:0", "localhost:0"};
    static const char *const bad[]  = {"",
                                       ":",
                                       "x",
                                       "127.0.0.1",
                                       "1:2:3",
                                       "65536",
                                       "0x10",
                                       "nobody.invalid:0",
                                       "127.0.0.1:-1",
                                       "[::1]"};
    struct pl_err err;
    char taken[32];

    for (size_t i = 0; i < PL_COUNT(good); i++) {
        const struct head_metrics_config config = {.address = good[i], .ask = ask};

        ASSERT_OK(head_metrics_create(&config, &metrics, &err));
        (void)snprintf(taken, sizeof(taken), "%u", head_metrics_port(metrics));
        head_metrics_destroy(metrics);
    }
    for (size_t i = 0; i < PL_COUNT(bad); i++) {
        const struct head_metrics_config config = {.address = bad[i], .ask = ask};
        struct head_metrics *none;

        ASSERT_STATUS(head_metrics_create(&config, &none, &err), PLASMON_EINVAL);
        ASSERT_CONTAINS(err.text, "--metrics");
    }
    begin(1);
    (void)snprintf(taken, sizeof(taken), "%u", head_metrics_port(metrics));
    const struct head_metrics_config second = {.address = taken, .ask = ask};
    struct head_metrics *none;

    ASSERT_STATUS(head_metrics_create(&second, &none, &err), PLASMON_EADDRINUSE);
    ASSERT_CONTAINS(err.text, taken);
    head_metrics_destroy(metrics);
    head_metrics_destroy(NULL);
}

TEST_MAIN()
