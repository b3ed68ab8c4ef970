/*
 * A peer that is stopped (SIGSTOP) keeps its sockets open and answers nothing: only keepalive finds
 * it, and by default it stops looking after two pings on a silent stream. So the stream is silent
 * for longer than that first.
 */
#include "tests/harness/test.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "tests/unit/rpc/peer.h"

TEST(a_frozen_server_is_noticed_on_a_silent_stream)
{
    struct rpc_channel *channel;
    struct rpc_loop *loop;
    struct peer_end end;
    uint64_t start, taken;
    int fds[2];
    pid_t child;

    test_set_timeout(80);
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    child = fork(); /* before this process has started gRPC */
    ASSERT_TRUE(child >= 0);
    if (child == 0) {
        struct rpc_server *server;
        struct rpc_loop *served;
        struct pl_err err;

        (void)close(fds[0]);
        rpc_init();
        if (rpc_loop_create(&served) == PLASMON_OK &&
            rpc_server_create(served, &(struct rpc_server_config){.token = ""}, &server,
                              &err) == PLASMON_OK &&
            rpc_server_add_fd(server, fds[1]) == PLASMON_OK) {
            rpc_loop_run(served);
        }
        _exit(1);
    }

    (void)close(fds[1]);
    rpc_init();
    peer_end_init(&end);
    ASSERT_OK(rpc_loop_create(&loop));
    ASSERT_OK(rpc_loop_start(loop, "frozen"));
    ASSERT_OK(
        rpc_channel_create(loop, &(struct rpc_channel_config){.fd = fds[0]}, &channel));
    ASSERT_OK(rpc_stream_open(channel, "/grpc.health.v1.Health/Watch", 5000, &peer_ops,
                              &end, &end.stream));
    ASSERT_OK(peer_send(&end, "", 0));
    peer_end_wait(&end, &end.messages, 1, 5000);

    /* Silence for three pings: the stream must survive it (a server that counts pings would hang up)... */
    start = pl_now_ns();
    pl_mutex_lock(&end.lock);
    while (end.closed == 0 &&
           pl_cond_wait_until(&end.changed, &end.lock, start + 32000000000u) != 0) {
    }
    pl_mutex_unlock(&end.lock);
    ASSERT_EQ(end.closed, 0);

    /* ... and a freeze after that is found all the same: 10 s to the next ping, 5 s for its answer. */
    ASSERT_EQ(kill(child, SIGSTOP), 0);
    start = pl_now_ns();
    peer_end_wait(&end, &end.closed, 1, 25000);
    taken = pl_now_ns() - start;
    printf("# noticed after %.1f s\n", (double)taken / 1e9);
    ASSERT_EQ(end.status, PLASMON_ECLOSED);

    ASSERT_EQ(kill(child, SIGKILL), 0);
    ASSERT_EQ(waitpid(child, NULL, 0), child);
    rpc_channel_destroy(channel);
    rpc_loop_destroy(loop);
    rpc_finish();
    peer_end_finish(&end);
}

TEST_MAIN()
