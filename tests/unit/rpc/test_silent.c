/* Nobody there, somebody who says nothing, and somebody who answers: told apart, with who it is. */
#include <netinet/in.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "rpc/rpc.h"
#include "rpc/rpc_int.h"
#include "tests/harness/test.h"

/* What is said of the address: "" when it is not silent. */
static const char *said_of(const char *target, bool tls)
{
    static char text[1024];
    struct pl_str out;
    bool silent;

    pl_str_init(&out);
    silent = rpc_silent_listener(target, tls, &out);
    ASSERT_EQ(silent, out.length > 0);
    (void)snprintf(text, sizeof(text), "%s", pl_str_text(&out));
    pl_str_finish(&out);
    return text;
}

/* Nobody ever takes a connection from it; the kernel does. */
static int listen_tcp(char out[64])
{
    struct sockaddr_in at = {.sin_family      = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes       = sizeof(at);
    int fd                = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    ASSERT_EQ(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
    ASSERT_EQ(listen(fd, 8), 0);
    ASSERT_EQ(getsockname(fd, (struct sockaddr *)&at, &bytes), 0);
    (void)snprintf(out, 64, "127.0.0.1:%u", ntohs(at.sin_port));
    return fd;
}

static void expect_this_process(const char *text)
{
    char mine[64];

    (void)snprintf(mine, sizeof(mine), "process %d (", (int)getpid());
    ASSERT_CONTAINS(text, mine);
    ASSERT_CONTAINS(text, "listens there, but says nothing");
}

TEST(a_tcp_listener_that_says_nothing_is_named_and_one_that_has_gone_is_not)
{
    char address[64], list[160];
    int fd = listen_tcp(address);

    expect_this_process(said_of(address, false));
    (void)snprintf(list, sizeof(list), "127.0.0.1:1,%s", address);
    expect_this_process(said_of(list, false));
    ASSERT_STR(said_of(address, true), ""); /* TLS: it may be waiting for its handshake */
    ASSERT_EQ(close(fd), 0);
    ASSERT_STR(said_of(address, false), "");
    ASSERT_STR(said_of("no address", false), "");
}

TEST(a_unix_listener_that_says_nothing_is_named)
{
    char folder[]         = "/tmp/plasmon-silent-XXXXXX", target[128];
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int fd                = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    ASSERT_NOT_NULL(mkdtemp(folder));
    (void)snprintf(at.sun_path, sizeof(at.sun_path), "%s/s", folder);
    (void)snprintf(target, sizeof(target), "unix:%s", at.sun_path);
    ASSERT_STR(said_of(target, false), "");
    ASSERT_EQ(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
    ASSERT_EQ(listen(fd, 8), 0);
    expect_this_process(said_of(target, false));
    ASSERT_EQ(close(fd), 0);
    ASSERT_STR(said_of(target, false), ""); /* the file alone is nobody */
    ASSERT_EQ(unlink(at.sun_path), 0);
    ASSERT_EQ(rmdir(folder), 0);
}

static sem_t destroyed;

static void destroy(void *user)
{
    rpc_server_destroy(user);
    (void)sem_post(&destroyed); /* it is at 0 */
}

TEST(a_server_that_answers_is_not_silent)
{
    const char *const addresses[]         = {"127.0.0.1:0", NULL};
    const struct rpc_server_config config = {.token = "", .addresses = addresses};
    struct rpc_server *server;
    struct rpc_loop *loop;
    struct pl_err err;
    char target[64];

    rpc_init();
    ASSERT_OK(rpc_loop_create(&loop));
    ASSERT_OK(rpc_loop_start(loop, "silent"));
    ASSERT_OK(rpc_server_create(loop, &config, &server, &err));
    (void)snprintf(target, sizeof(target), "127.0.0.1:%d", rpc_server_port(server, 0));
    ASSERT_STR(said_of(target, false), "");
    ASSERT_EQ(sem_init(&destroyed, 0, 0), 0);
    rpc_loop_post(loop, destroy, server);
    ASSERT_EQ(sem_wait(&destroyed), 0);
    rpc_loop_destroy(loop);
    rpc_finish();
}

TEST_MAIN()
