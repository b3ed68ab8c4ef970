/*
 * Servers and channels: tokens, limits, addresses, unknown methods, health, unary calls, and what
 * goes away.
 */
#include "tests/harness/test.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fault.h"
#include "rpc/rpc_int.h"
#include "tests/unit/rpc/peer.h"

static plasmon_status_t unary(struct peer_pair *pair, const char *path, const char *text,
                              uint8_t **out, size_t *out_length, struct pl_err *err)
{
    return rpc_unary_call(pair->channel, path, (const uint8_t *)text, strlen(text), 5000,
                          out, out_length, err);
}

/* ------------------------------------------------------------------------------- tokens */

TEST(a_wrong_token_is_refused_with_what_to_do)
{
    static const char *const wrong[] = {NULL,      "",        "secret",
                                        "secrets", "secreT2", "xxxxxxxx"};

    for (size_t i = 0; i < PL_COUNT(wrong); i++) {
        struct peer_pair pair;
        struct pl_err err;
        uint8_t *answer;
        size_t length;

        peer_pair_start(
            &pair, PEER_UNIX,
            &(struct peer_options){.server_token = "secret2", .client_token = wrong[i]});
        peer_pair_open(&pair);
        peer_end_wait(&pair.client, &pair.client.closed, 1, 5000);
        ASSERT_EQ(pair.client.status, PLASMON_EAUTH);
        ASSERT_CONTAINS(pair.client.why, wrong[i] == NULL || wrong[i][0] == '\0'
                                             ? "no token was given"
                                             : "is not one of this cluster");
        ASSERT_CONTAINS(pair.client.why, "PLASMON_TOKEN_FILE"); /* what to do */
        ASSERT_EQ(pair.accepted, 0);
        ASSERT_STATUS(unary(&pair, "/test.Test/Unary", "hi", &answer, &length, &err),
                      PLASMON_EAUTH);
        ASSERT_CONTAINS(err.text, "--token-file");
        peer_pair_stop(&pair);
    }
}

TEST(the_right_token_is_taken_and_can_be_read)
{
    struct peer_pair pair;

    peer_pair_start(
        &pair, PEER_TCP,
        &(struct peer_options){.server_token = "secret2", .client_token = "secret2"});
    peer_pair_open(&pair);
    ASSERT_OK(peer_send(&pair.client, "a", 1));
    peer_end_wait(&pair.served, &pair.served.messages, 1, 5000);
    ASSERT_STR(rpc_stream_token(pair.served.stream), "secret2");
    ASSERT_CONTAINS(rpc_stream_peer(pair.served.stream), "127.0.0.1");
    peer_pair_stop(&pair);
}

/* It is no wrong token: who is told so looks for the fault in the wrong place, or ends for good. */
TEST(a_token_that_a_server_has_no_memory_for_is_not_called_none)
{
    struct peer_pair pair;
    struct pl_err err;
    uint8_t *answer;
    size_t length;

    peer_pair_start(
        &pair, PEER_UNIX,
        &(struct peer_options){.server_token = "secret2", .client_token = "secret2"});
    pl_fault_arm("rpc.token", 0);
    peer_pair_open(&pair);
    peer_end_wait(&pair.client, &pair.client.closed, 1, 5000);
    ASSERT_EQ(pair.client.status, PLASMON_ENOMEM);
    ASSERT_CONTAINS(pair.client.why, "the server is out of memory");
    ASSERT_EQ(pair.accepted, 0);
    ASSERT_EQ(pl_fault_disarm(), 1);
    pl_fault_arm("rpc.token", 0);
    ASSERT_STATUS(unary(&pair, "/test.Test/Unary", "hi", &answer, &length, &err),
                  PLASMON_ENOMEM);
    ASSERT_CONTAINS(err.text, "the server is out of memory");
    ASSERT_EQ(pl_fault_disarm(), 1);
    ASSERT_OK(unary(&pair, "/test.Test/Unary", "hi", &answer, &length, &err));
    pl_free(answer);
    peer_pair_stop(&pair);
}

TEST(a_channel_without_memory_is_a_status)
{
    struct rpc_channel_config config = {.target = "127.0.0.1:9,127.0.0.1:19",
                                        .token  = "secret"};
    struct rpc_channel *channel;
    struct rpc_loop *loop;
    unsigned nth;

    rpc_init();
    ASSERT_OK(rpc_loop_create(&loop));
    for (nth = 0; nth < 20; nth++) {
        plasmon_status_t status;

        pl_fault_arm("alloc", nth);
        status = rpc_channel_create(loop, &config, &channel);
        if (pl_fault_disarm() == 0) {
            ASSERT_OK(status);
            rpc_channel_destroy(channel);
            break;
        }
        ASSERT_STATUS(status, PLASMON_ENOMEM);
    }
    ASSERT_TRUE(nth >= 4 && nth < 20); /* the channel, its target twice, the token */
    rpc_loop_destroy(loop);
    rpc_finish();
}

/* ------------------------------------------------------------------ refusals and limits */

TEST(a_refusal_by_accept_reaches_the_client)
{
    struct peer_pair pair;

    peer_pair_start(&pair, PEER_UNIX, NULL);
    pair.refuse = PLASMON_EVERSION;
    peer_pair_open(&pair);
    peer_end_wait(&pair.client, &pair.client.closed, 1, 5000);
    ASSERT_EQ(pair.client.status, PLASMON_EVERSION);
    ASSERT_STR(pair.client.why, "refused by the test");
    ASSERT_EQ(pair.served.closed, 0);
    peer_pair_stop(&pair);
}

TEST(a_message_over_the_servers_limit_closes_the_stream_with_both_sizes)
{
    static uint8_t bytes[200000];
    struct peer_pair pair;

    peer_pair_start(&pair, PEER_UNIX, &(struct peer_options){.server_bytes_max = 100000});
    peer_pair_open(&pair);
    ASSERT_OK(peer_send(&pair.client, bytes, sizeof(bytes)));
    peer_end_wait(&pair.client, &pair.client.closed, 1, 5000);
    ASSERT_EQ(pair.client.status, PLASMON_ELIMIT);
    ASSERT_CONTAINS(pair.client.why, "larger than max (200000 vs. 100000)");
    peer_end_wait(&pair.served, &pair.served.closed, 1, 5000);
    ASSERT_EQ(pair.served.messages, 0);
    ASSERT_EQ(pair.served.status, PLASMON_ECLOSED);
    peer_pair_stop(&pair);
}

TEST(a_message_over_the_clients_limit_closes_the_stream_too)
{
    static uint8_t bytes[200000];
    struct peer_pair pair;

    peer_pair_start(&pair, PEER_UNIX, &(struct peer_options){.client_bytes_max = 100000});
    peer_pair_open(&pair);
    ASSERT_STATUS(peer_send(&pair.client, bytes, sizeof(bytes)),
                  PLASMON_ELIMIT); /* not even sent */
    ASSERT_OK(peer_send(&pair.client, "a", 1));
    peer_end_wait(&pair.served, &pair.served.messages, 1, 5000);
    ASSERT_OK(peer_send(&pair.served, bytes, sizeof(bytes)));
    peer_end_wait(&pair.client, &pair.client.closed, 1, 5000);
    ASSERT_EQ(pair.client.status, PLASMON_ELIMIT);
    ASSERT_CONTAINS(pair.client.why, "larger than max");
    peer_pair_stop(&pair);
}

TEST(an_unknown_method_is_answered_at_once)
{
    struct peer_pair pair;
    uint64_t start, taken;
    struct pl_err err;
    uint8_t *answer;
    size_t length;

    peer_pair_start(&pair, PEER_UNIX, NULL);
    ASSERT_OK(unary(&pair, "/test.Test/Unary", "warm", &answer, &length, &err));
    pl_free(answer);
    start = pl_now_ns();
    ASSERT_STATUS(unary(&pair, "/test.Test/Nothing", "x", &answer, &length, &err),
                  PLASMON_ENOTSUP);
    taken = pl_now_ns() - start;
    ASSERT_CONTAINS(err.text, "there is no method /test.Test/Nothing here");
    ASSERT_TRUE(taken < 1000000000u); /* the call's deadline is 5 s */

    ASSERT_OK(rpc_stream_open(pair.channel, "/test.Test/Nothing", 5000, &peer_ops,
                              &pair.client, &pair.client.stream));
    peer_end_wait(&pair.client, &pair.client.closed, 1, 1000);
    ASSERT_EQ(pair.client.status, PLASMON_ENOTSUP);
    peer_pair_stop(&pair);
}

/* ------------------------------------------------------------------------ unary, health */

TEST(unary_calls_answer_or_fail)
{
    struct peer_pair pair;
    struct pl_err err;
    uint8_t *answer;
    size_t length;

    peer_pair_start(&pair, PEER_UNIX, NULL);
    for (int i = 0; i < 100; i++) {
        ASSERT_OK(unary(&pair, "/test.Test/Unary", "hello", &answer, &length, &err));
        ASSERT_EQ(length, 5);
        ASSERT_EQ(memcmp(answer, "hello", 5), 0);
        pl_free(answer);
    }
    ASSERT_STATUS(unary(&pair, "/test.Test/Unary", "fail", &answer, &length, &err),
                  PLASMON_ESHAPE);
    ASSERT_STR(err.text, "the shape of \"fail\" does not fit");
    ASSERT_STATUS(rpc_unary_call(pair.channel, "/test.Test/Unary", (const uint8_t *)"wait",
                                 4, 200, &answer, &length, &err),
                  PLASMON_ETIMEDOUT);
    peer_pair_stop(&pair); /* with a call that was never answered */
}

TEST(health_is_told_to_all)
{
    static const uint8_t unknown[] = {0x0a, 3, 'a', '.', 'b'};
    static const uint8_t known[]   = {0x0a, 9, 't', 'e', 's', 't', '.', 'T', 'e', 's', 't'};
    struct peer_pair pair;
    struct pl_err err;
    uint8_t *answer;
    size_t length;

    peer_pair_start(&pair, PEER_UNIX, &(struct peer_options){.server_token = "secret"});
    ASSERT_OK(unary(&pair, "/grpc.health.v1.Health/Check", "", &answer, &length, &err));
    ASSERT_EQ(length, 2);
    ASSERT_EQ(memcmp(answer, "\x08\x01", 2), 0);
    pl_free(answer);
    ASSERT_OK(rpc_unary_call(pair.channel, "/grpc.health.v1.Health/Check", known,
                             sizeof(known), 5000, &answer, &length, &err));
    pl_free(answer);
    ASSERT_STATUS(rpc_unary_call(pair.channel, "/grpc.health.v1.Health/Check", unknown,
                                 sizeof(unknown), 5000, &answer, &length, &err),
                  PLASMON_ENOENT);
    ASSERT_STATUS(
        unary(&pair, "/grpc.health.v1.Health/Check", "junk", &answer, &length, &err),
        PLASMON_EINVAL);

    ASSERT_OK(rpc_stream_open(pair.channel, "/grpc.health.v1.Health/Watch", 5000, &peer_ops,
                              &pair.client, &pair.client.stream));
    ASSERT_OK(peer_send(&pair.client, "", 0));
    peer_end_wait(&pair.client, &pair.client.messages, 1, 5000);
    ASSERT_EQ(pair.client.bytes, 2);
    peer_pair_stop(&pair);
}

/* ---------------------------------------------------------------------------- addresses */

static plasmon_status_t second_server(const char *address, struct pl_err *err)
{
    const char *addresses[]         = {address, NULL};
    struct rpc_server_config config = {.addresses = addresses};
    struct rpc_server *server       = NULL;
    struct rpc_loop *loop;
    plasmon_status_t status;

    ASSERT_OK(rpc_loop_create(&loop));
    status = rpc_server_create(loop, &config, &server, err);
    rpc_server_destroy(server);
    rpc_loop_destroy(loop);
    return status;
}

TEST(an_address_in_use_is_named)
{
    static const enum peer_transport transports[] = {PEER_UNIX, PEER_TCP};

    for (size_t i = 0; i < PL_COUNT(transports); i++) {
        struct peer_pair pair;
        struct pl_err err;

        peer_pair_start(&pair, transports[i], NULL);
        pair.served.on_message = peer_echo;
        ASSERT_STATUS(second_server(pair.address, &err), PLASMON_EADDRINUSE);
        ASSERT_CONTAINS(err.text, pair.address);

        /* The first one still has it. */
        peer_pair_open(&pair);
        ASSERT_OK(peer_send(&pair.client, "a", 1));
        peer_end_wait(&pair.client, &pair.client.messages, 1, 5000);
        peer_pair_stop(&pair);
    }
}

TEST(a_unix_path_is_private_and_can_be_served_again)
{
    struct peer_pair pair;
    struct stat info;
    char address[128];
    struct pl_err err;
    char dir[64];

    rpc_init();
    peer_dir_create(dir);
    (void)snprintf(address, sizeof(address), "unix:%s/s", dir);
    ASSERT_OK(second_server(address, &err));
    ASSERT_OK(second_server(address, &err));
    peer_dir_destroy(dir);

    peer_pair_start(&pair, PEER_UNIX, NULL);
    ASSERT_EQ(stat(pair.address + 5, &info), 0);
    ASSERT_EQ(info.st_mode & 0777, 0600);
    peer_pair_stop(&pair);
    rpc_finish();
}

TEST(bad_addresses_say_what_is_wrong)
{
    char address[256];
    struct pl_err err;

    rpc_init();
    ASSERT_STATUS(second_server("unix:/nonexistent-folder/s", &err), PLASMON_ENOENT);
    ASSERT_CONTAINS(err.text, "/nonexistent-folder/s");
    (void)snprintf(address, sizeof(address), "unix:/tmp/%0150d", 1);
    ASSERT_STATUS(second_server(address, &err), PLASMON_EINVAL);
    ASSERT_CONTAINS(err.text, "longer than 107 bytes");
    /* not ours (RFC 5737) */
    ASSERT_TRUE(second_server("192.0.2.1:4711", &err) != PLASMON_OK);
    ASSERT_CONTAINS(err.text, "cannot listen on 192.0.2.1:4711");
    rpc_finish();
}

/* ------------------------------------------------------------------------- nobody there */

static void connect_to_nothing(const char *target, const char *cause)
{
    struct rpc_channel *channel;
    struct rpc_loop *loop;
    struct peer_end end;
    uint64_t start, taken;
    struct pl_err err;
    uint8_t *answer;
    size_t length;

    rpc_init();
    peer_end_init(&end);
    ASSERT_OK(rpc_loop_create(&loop));
    ASSERT_OK(rpc_loop_start(loop, "nothing"));
    ASSERT_OK(
        rpc_channel_create(loop, &(struct rpc_channel_config){.target = target}, &channel));
    start = pl_now_ns();
    ASSERT_OK(
        rpc_stream_open(channel, "/test.Test/Echo", 300, &peer_ops, &end, &end.stream));
    peer_end_wait(&end, &end.closed, 1, 5000);
    taken = pl_now_ns() - start;
    ASSERT_TRUE(taken >= 290000000u);
    ASSERT_EQ(end.status, PLASMON_ECONNECT);
    ASSERT_CONTAINS(end.why, target);
    ASSERT_CONTAINS(end.why, "within 300 ms");
    ASSERT_CONTAINS(end.why, cause);

    ASSERT_STATUS(rpc_unary_call(channel, "/test.Test/Unary", (const uint8_t *)"", 0, 300,
                                 &answer, &length, &err),
                  PLASMON_ECONNECT);
    ASSERT_CONTAINS(err.text, cause);
    rpc_channel_destroy(channel);
    rpc_loop_destroy(loop);
    peer_end_finish(&end);
    rpc_finish();
}

TEST(connecting_to_nothing_fails_in_time_with_the_cause)
{
    connect_to_nothing("unix:/tmp/plasmon-no-such-socket", "No such file or directory");
    connect_to_nothing("127.0.0.1:1", "Connection refused");
}

/* Speaks HTTP/2 for as long as it takes to have a call, and goes without an answer. */
static void *accept_and_go(void *user)
{
    static const uint8_t settings[9] = {0, 0, 0, 4};
    int listener = *(int *)user, fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    size_t got = 0;
    uint8_t bytes[4096];
    ssize_t more;

    PL_CHECK(fd >= 0);
    PL_CHECK(write(fd, settings, sizeof(settings)) == (ssize_t)sizeof(settings));
    do { /* preface, settings, the call */
        more = read(fd, bytes, sizeof(bytes));
        got += more > 0 ? (size_t)more : 0;
    } while (more > 0 && got < 200);
    PL_CHECK(close(fd) == 0);
    return NULL;
}

TEST(a_server_that_goes_before_its_first_word_was_there)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    struct rpc_channel *channel;
    struct rpc_loop *loop;
    struct peer_end end;
    char address[128], dir[64];
    pthread_t thread;
    int listener;

    rpc_init();
    peer_dir_create(dir);
    peer_end_init(&end);
    (void)snprintf(at.sun_path, sizeof(at.sun_path), "%s/s", dir);
    (void)snprintf(address, sizeof(address), "unix:%s", at.sun_path);
    listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ASSERT_TRUE(listener >= 0);
    ASSERT_EQ(bind(listener, (const struct sockaddr *)&at, sizeof(at)), 0);
    ASSERT_EQ(listen(listener, 1), 0);
    ASSERT_EQ(pthread_create(&thread, NULL, accept_and_go, &listener), 0);
    ASSERT_OK(rpc_loop_create(&loop));
    ASSERT_OK(rpc_loop_start(loop, "gone"));
    ASSERT_OK(rpc_channel_create(loop, &(struct rpc_channel_config){.target = address},
                                 &channel));
    ASSERT_OK(
        rpc_stream_open(channel, "/test.Test/Echo", 20000, &peer_ops, &end, &end.stream));
    peer_end_wait(&end, &end.closed, 1, 20000);
    ASSERT_EQ(end.status, PLASMON_ECLOSED); /* and not: nobody is there */
    ASSERT_EQ(pthread_join(thread, NULL), 0);
    ASSERT_EQ(close(listener), 0);
    ASSERT_EQ(unlink(at.sun_path), 0);
    rpc_channel_destroy(channel);
    rpc_loop_destroy(loop);
    peer_end_finish(&end);
    ASSERT_EQ(rmdir(dir), 0);
    rpc_finish();
}

static void destroy_server(void *user)
{
    struct rpc_server **server = user;

    rpc_server_destroy(*server);
    *server = NULL;
}

TEST(a_server_that_comes_late_is_still_found)
{
    struct rpc_channel *channel;
    struct rpc_server *server;
    struct rpc_loop *loop, *server_loop;
    char address[128], dir[64];
    const char *addresses[] = {address, NULL};
    struct pl_err err;
    uint8_t *answer;
    size_t length;

    rpc_init();
    peer_dir_create(dir);
    (void)snprintf(address, sizeof(address), "unix:%s/s", dir);
    ASSERT_OK(rpc_loop_create(&loop));
    ASSERT_OK(rpc_loop_create(&server_loop));
    ASSERT_OK(rpc_loop_start(loop, "late"));
    ASSERT_OK(rpc_channel_create(loop, &(struct rpc_channel_config){.target = address},
                                 &channel));
    ASSERT_STATUS(rpc_unary_call(channel, "/grpc.health.v1.Health/Check", NULL, 0, 200,
                                 &answer, &length, &err),
                  PLASMON_ECONNECT);
    ASSERT_OK(rpc_server_create(
        server_loop, &(struct rpc_server_config){.addresses = addresses}, &server, &err));
    ASSERT_OK(rpc_loop_start(server_loop, "late-server"));
    ASSERT_OK(rpc_unary_call(channel, "/grpc.health.v1.Health/Check", NULL, 0, 10000,
                             &answer, &length, &err));
    pl_free(answer);
    rpc_channel_destroy(channel);
    rpc_loop_destroy(loop);
    peer_run_on(server_loop, destroy_server, &server);
    rpc_loop_destroy(server_loop);
    peer_dir_destroy(dir);
    rpc_finish();
}

/* ---------------------------------------------------------------------- who is taken in */

/* Connects, says that and, when told so, goes. What a server takes then: its descriptor, or -1 and errno. */
static int accepted(int listener, const char *path, const char *text, bool goes)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    int fd                = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), taken;

    (void)snprintf(to.sun_path, sizeof(to.sun_path), "%s", path);
    ASSERT_EQ(connect(fd, (const struct sockaddr *)&to, sizeof(to)), 0);
    ASSERT_EQ(send(fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
    if (goes) {
        ASSERT_EQ(close(fd), 0);
    }
    errno = 0;
    taken = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (!goes) {
        ASSERT_EQ(close(fd), 0);
    }
    if (taken >= 0) {
        ASSERT_EQ(close(taken), 0);
    }
    return taken;
}

TEST(who_begins_as_nobody_does_that_is_served_is_not_taken_in)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int listener          = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    char dir[64];

    (void)rpc_accept_guard();
    peer_dir_create(dir);
    (void)snprintf(at.sun_path, sizeof(at.sun_path), "%s/l", dir);
    ASSERT_EQ(bind(listener, (const struct sockaddr *)&at, sizeof(at)), 0);
    ASSERT_EQ(listen(listener, 16), 0);

    ASSERT_TRUE(accepted(listener, at.sun_path, "", false) >= 0); /* it may say it later */
    ASSERT_TRUE(accepted(listener, at.sun_path, "PRI *", false) >= 0);

    ASSERT_EQ(accepted(listener, at.sun_path, "", true), -1);
    ASSERT_EQ(errno, EAGAIN); /* nobody else is there */
    ASSERT_EQ(accepted(listener, at.sun_path, "PRI *", true), -1);
    ASSERT_EQ(accepted(listener, at.sun_path, "GET / HTTP/1.1\r\n", false), -1);
    ASSERT_EQ(accepted(listener, at.sun_path, "PRI * HTTP/2.1", false), -1);
    ASSERT_EQ(accepted(listener, at.sun_path, "\x17", false), -1);
    ASSERT_EQ(accepted(listener, at.sun_path, "\x16\x03\x01", false), -1); /* TLS */

    ASSERT_EQ(close(listener), 0);
    ASSERT_EQ(unlink(at.sun_path), 0);
    peer_dir_destroy(dir);
}

/* ------------------------------------------------------------------- somebody goes away */

TEST(a_server_that_goes_away_says_so)
{
    for (int transport = PEER_UNIX; transport <= PEER_FD; transport++) {
        struct peer_pair pair;

        peer_pair_start(&pair, (enum peer_transport)transport, NULL);
        peer_pair_open(&pair);
        ASSERT_OK(peer_send(&pair.client, "a", 1));
        peer_end_wait(&pair.served, &pair.served.messages, 1, 5000);
        peer_run_on(pair.server_loop, destroy_server, &pair.server);
        peer_end_wait(&pair.client, &pair.client.closed, 1, 5000);
        ASSERT_EQ(pair.client.status, PLASMON_ECLOSED);
        ASSERT_STR(pair.client.why, "the server is shutting down");
        ASSERT_EQ(pair.served.closed, 1);
        peer_pair_stop(&pair);
    }
}

/* A server in a process of its own, to be killed; says through the pipe that it serves. */
static pid_t serve_in_child(const char *address)
{
    int ready[2];
    pid_t child;
    char byte;

    ASSERT_EQ(pipe(ready), 0);
    child = fork(); /* before this process has started gRPC */
    ASSERT_TRUE(child >= 0);
    if (child == 0) {
        const char *addresses[] = {address, NULL};
        struct rpc_server *server;
        struct rpc_loop *loop;
        struct pl_err err;

        rpc_init();
        if (rpc_loop_create(&loop) != PLASMON_OK ||
            rpc_server_create(loop, &(struct rpc_server_config){.addresses = addresses},
                              &server, &err) != PLASMON_OK ||
            write(ready[1], "r", 1) != 1) {
            _exit(1);
        }
        rpc_loop_run(loop);
        _exit(0);
    }
    (void)close(ready[1]);
    ASSERT_EQ(read(ready[0], &byte, 1), 1);
    (void)close(ready[0]);
    return child;
}

TEST(a_server_that_is_killed_is_noticed_at_once)
{
    char address[128], dir[64], path[160];
    struct rpc_channel *channel;
    struct rpc_loop *loop;
    struct peer_end end;
    pid_t child;

    peer_dir_create(dir);
    (void)snprintf(address, sizeof(address), "unix:%s/s", dir);
    child = serve_in_child(address);
    rpc_init();
    peer_end_init(&end);
    ASSERT_OK(rpc_loop_create(&loop));
    ASSERT_OK(rpc_loop_start(loop, "killed"));
    ASSERT_OK(rpc_channel_create(loop, &(struct rpc_channel_config){.target = address},
                                 &channel));
    ASSERT_OK(rpc_stream_open(channel, "/grpc.health.v1.Health/Watch", 5000, &peer_ops,
                              &end, &end.stream));
    ASSERT_OK(peer_send(&end, "", 0));
    peer_end_wait(&end, &end.messages, 1, 5000);

    ASSERT_EQ(kill(child, SIGKILL), 0);
    peer_end_wait(&end, &end.closed, 1, 3000);
    ASSERT_EQ(end.status, PLASMON_ECLOSED);
    ASSERT_EQ(waitpid(child, NULL, 0), child);

    rpc_channel_destroy(channel);
    rpc_loop_destroy(loop);
    rpc_finish();
    (void)unlink(address + 5);
    (void)snprintf(path, sizeof(path), "%s.lock", address + 5);
    (void)unlink(path);
    peer_dir_destroy(dir);
    peer_end_finish(&end);
}

TEST(a_client_whose_socket_closes_is_noticed_by_the_server)
{
    struct peer_pair pair;

    peer_pair_start(&pair, PEER_FD, NULL);
    peer_pair_open(&pair);
    ASSERT_OK(peer_send(&pair.client, "a", 1));
    peer_end_wait(&pair.served, &pair.served.messages, 1, 5000);
    rpc_stream_close(pair.client.stream, PLASMON_ECANCELLED, "no longer wanted");
    peer_end_wait(&pair.served, &pair.served.closed, 1, 5000);
    ASSERT_EQ(pair.served.status, PLASMON_ECLOSED);
    peer_end_wait(&pair.client, &pair.client.closed, 1, 5000);
    peer_pair_stop(&pair);
}

TEST_MAIN()
