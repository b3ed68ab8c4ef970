#include "tests/unit/rpc/peer.h"

#include <sched.h>
#include <dirent.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "tests/harness/test.h"

#define PEER_RANK PL_RANK_CLIENT /* tests hold these while they call rpc/ */

/* --------------------------------------------------------------------------------- ends */

void peer_end_init(struct peer_end *end)
{
    *end = (struct peer_end){.stream = NULL};
    ASSERT_OK(pl_mutex_init(&end->lock, PEER_RANK));
    ASSERT_OK(pl_cond_init(&end->changed));
}

void peer_end_finish(struct peer_end *end)
{
    ASSERT_EQ(end->after_closed, 0);
    pl_cond_finish(&end->changed);
    pl_mutex_finish(&end->lock);
}

void peer_end_wait(struct peer_end *end, const uint64_t *field, uint64_t value, unsigned ms)
{
    uint64_t deadline = pl_now_ns() + (uint64_t)ms * 1000000u;
    uint64_t got;
    int in_time = 1;

    pl_mutex_lock(&end->lock);
    while (*field < value && in_time) {
        in_time = pl_cond_wait_until(&end->changed, &end->lock, deadline);
    }
    got = *field;
    pl_mutex_unlock(&end->lock);
    if (got < value) {
        test_fail(__FILE__, __LINE__,
                  "waited %u ms for %llu, got %llu (messages %llu, closed %llu: %s)", ms,
                  (unsigned long long)value, (unsigned long long)got,
                  (unsigned long long)end->messages, (unsigned long long)end->closed,
                  end->why);
    }
}

void peer_idle_wait(struct peer_end *end, unsigned ms)
{
    uint64_t deadline = pl_now_ns() + (uint64_t)ms * 1000000u;

    while (!rpc_stream_idle(end->stream)) { /* nobody is told of that moment */
        if (pl_now_ns() > deadline) {
            test_fail(__FILE__, __LINE__, "the stream is not idle after %u ms", ms);
        }
        (void)sched_yield();
    }
}

static void peer_message(void *user, struct rpc_stream *stream, const uint8_t *bytes,
                         size_t length)
{
    struct peer_end *end = user;

    (void)stream;
    pl_mutex_lock(&end->lock);
    end->messages++;
    end->bytes += length;
    end->after_closed += end->closed;
    pl_cond_broadcast(&end->changed);
    pl_mutex_unlock(&end->lock);
    if (end->on_message != NULL) {
        end->on_message(end, bytes, length);
    }
}

static void peer_writable(void *user, struct rpc_stream *stream)
{
    struct peer_end *end = user;

    (void)stream;
    pl_mutex_lock(&end->lock);
    end->writable++;
    end->after_closed += end->closed;
    pl_cond_broadcast(&end->changed);
    pl_mutex_unlock(&end->lock);
    if (end->on_writable != NULL) {
        end->on_writable(end);
    }
}

static void peer_closed(void *user, struct rpc_stream *stream, plasmon_status_t status,
                        const char *why)
{
    struct peer_end *end = user;

    (void)stream;
    pl_mutex_lock(&end->lock);
    end->after_closed += end->closed;
    end->closed++;
    end->status = status;
    end->stream = NULL;
    (void)snprintf(end->why, sizeof(end->why), "%s", why);
    pl_cond_broadcast(&end->changed);
    pl_mutex_unlock(&end->lock);
}

const struct rpc_stream_ops peer_ops = {
    .message  = peer_message,
    .writable = peer_writable,
    .closed   = peer_closed,
};

plasmon_status_t peer_send(struct peer_end *end, const void *bytes, size_t length)
{
    uint8_t *buffer = rpc_buffer_create(length);

    ASSERT_NOT_NULL(buffer);
    if (length > 0) {
        memcpy(buffer, bytes, length);
    }
    return rpc_stream_send(end->stream, buffer, length);
}

void peer_echo(struct peer_end *end, const uint8_t *bytes, size_t length)
{
    ASSERT_OK(peer_send(end, bytes, length));
}

/* -------------------------------------------------------------------------------- pairs */

static plasmon_status_t pair_accept(void *user, struct rpc_stream *stream,
                                    struct pl_err *err)
{
    struct peer_pair *pair = user;

    if (pair->refuse != PLASMON_OK) {
        return pl_err_set(err, pair->refuse, "refused by the test");
    }
    pair->served.stream = stream;
    rpc_stream_set_user(stream, &peer_ops, &pair->served);
    pl_mutex_lock(&pair->lock);
    pair->accepted++;
    pl_cond_broadcast(&pair->changed);
    pl_mutex_unlock(&pair->lock);
    return PLASMON_OK;
}

static void pair_unary(void *user, struct rpc_unary *call, const uint8_t *bytes,
                       size_t length)
{
    uint8_t *answer;

    (void)user;
    if (length == 4 && memcmp(bytes, "fail", 4) == 0) {
        rpc_unary_fail(call, PLASMON_ESHAPE, "the shape of \"fail\" does not fit");
        return;
    }
    if (length == 4 && memcmp(bytes, "wait", 4) == 0) {
        return; /* never answered */
    }
    answer = rpc_buffer_create(length);
    memcpy(answer, bytes, length);
    rpc_unary_reply(call, answer, length);
}

static void pair_start_server(struct peer_pair *pair, const struct peer_options *options)
{
    static const struct rpc_method methods[] = {
        {.path = "/test.Test/Echo", .accept = pair_accept},
        {.path = "/test.Test/Unary", .unary = pair_unary},
    };
    const char *addresses[2]        = {pair->address, NULL};
    struct rpc_server_config config = {
        .addresses         = pair->transport == PEER_FD ? NULL : addresses,
        .token             = options->server_token,
        .methods           = methods,
        .method_count      = PL_COUNT(methods),
        .user              = pair,
        .message_bytes_max = options->server_bytes_max,
    };
    struct pl_err err;

    if (pair->transport == PEER_UNIX || pair->transport == PEER_GRPC) {
        peer_dir_create(pair->dir);
        (void)snprintf(pair->address, sizeof(pair->address), "unix:%s/socket", pair->dir);
    } else {
        (void)snprintf(pair->address, sizeof(pair->address), "127.0.0.1:0");
    }
    if (rpc_server_create(pair->server_loop, &config, &pair->server, &err) != PLASMON_OK) {
        test_fail(__FILE__, __LINE__, "%s", err.text);
    }
    if (pair->transport == PEER_TCP) {
        (void)snprintf(pair->address, sizeof(pair->address), "127.0.0.1:%d",
                       rpc_server_port(pair->server, 0));
    }
}

static void pair_start_channel(struct peer_pair *pair, const struct peer_options *options)
{
    struct rpc_channel_config config = {
        .target            = pair->transport == PEER_FD ? NULL : pair->address,
        .fd                = -1,
        .token             = options->client_token,
        .message_bytes_max = options->client_bytes_max,
        .by_socket         = pair->transport == PEER_GRPC,
    };

    if (pair->transport == PEER_FD) {
        int fds[2];

        ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
        ASSERT_OK(rpc_server_add_fd(pair->server, fds[0]));
        config.fd = fds[1];
    }
    ASSERT_OK(rpc_channel_create(pair->client_loop, &config, &pair->channel));
}

void peer_pair_start(struct peer_pair *pair, enum peer_transport transport,
                     const struct peer_options *options)
{
    static const struct peer_options none;

    *pair   = (struct peer_pair){.transport = transport};
    options = options != NULL ? options : &none;
    peer_end_init(&pair->client);
    peer_end_init(&pair->served);
    pair->served.on_message = options->served_message;
    ASSERT_OK(pl_mutex_init(&pair->lock, PEER_RANK));
    ASSERT_OK(pl_cond_init(&pair->changed));

    if (transport == PEER_LOOPBACK) {
        ASSERT_OK(rpc_loopback_loop_create(&pair->client_loop));
        ASSERT_OK(rpc_loopback_loop_create(&pair->server_loop));
    } else {
        rpc_init();
        ASSERT_OK(rpc_loop_create(&pair->client_loop));
        ASSERT_OK(rpc_loop_create(&pair->server_loop));
        pair_start_server(pair, options);
        pair_start_channel(pair, options);
    }
    if (!options->client_waits) {
        ASSERT_OK(rpc_loop_start(pair->client_loop, "client"));
    }
    ASSERT_OK(rpc_loop_start(pair->server_loop, "server"));
}

void peer_pair_open(struct peer_pair *pair)
{
    if (pair->transport == PEER_LOOPBACK) {
        ASSERT_OK(rpc_loopback_create(pair->client_loop, &pair->client.stream,
                                      pair->server_loop, &pair->served.stream));
        rpc_stream_set_user(pair->client.stream, &peer_ops, &pair->client);
        rpc_stream_set_user(pair->served.stream, &peer_ops, &pair->served);
        return;
    }
    ASSERT_OK(rpc_stream_open(pair->channel, "/test.Test/Echo", 5000, &peer_ops,
                              &pair->client, &pair->client.stream));
}

static void pair_destroy_server(void *user)
{
    rpc_server_destroy(user);
}

void peer_pair_stop(struct peer_pair *pair)
{
    bool gone;

    pl_mutex_lock(&pair->client.lock);
    gone = pair->client.stream == NULL;
    pl_mutex_unlock(&pair->client.lock);
    if (!gone) {
        rpc_stream_close(pair->client.stream, PLASMON_OK, "");
        peer_end_wait(&pair->client, &pair->client.closed, 1, 5000);
    }
    if (pair->transport != PEER_LOOPBACK) {
        rpc_channel_destroy(pair->channel);
        peer_run_on(pair->server_loop, pair_destroy_server, pair->server);
    }
    rpc_loop_destroy(pair->client_loop);
    rpc_loop_destroy(pair->server_loop);
    if (pair->transport != PEER_LOOPBACK) {
        rpc_finish();
    }
    if (pair->dir[0] != '\0') {
        peer_dir_destroy(pair->dir);
    }
    pl_cond_finish(&pair->changed);
    pl_mutex_finish(&pair->lock);
    peer_end_finish(&pair->served);
    peer_end_finish(&pair->client);
}

/* ------------------------------------------------------------------------- small things */

void peer_dir_create(char out[64])
{
    (void)snprintf(out, 64, "/tmp/plasmon-rpc-XXXXXX");
    ASSERT_NOT_NULL(mkdtemp(out));
}

/* Fails when anything is left: servers clean up after themselves. */
void peer_dir_destroy(const char *dir)
{
    DIR *list = opendir(dir);
    const struct dirent *entry;

    ASSERT_NOT_NULL(list);
    while ((entry = readdir(list)) != NULL) {
        if (entry->d_name[0] != '.') {
            test_fail(__FILE__, __LINE__, "%s was left in %s", entry->d_name, dir);
        }
    }
    (void)closedir(list);
    ASSERT_EQ(rmdir(dir), 0);
}

struct run_on {
    void (*fn)(void *user);
    void *user;
    struct pl_mutex lock;
    struct pl_cond done_cond;
    bool done;
};

static void run_on_main(void *user)
{
    struct run_on *run = user;

    run->fn(run->user);
    pl_mutex_lock(&run->lock);
    run->done = true;
    pl_cond_signal(&run->done_cond);
    pl_mutex_unlock(&run->lock);
}

void peer_run_on(struct rpc_loop *loop, void (*fn)(void *user), void *user)
{
    struct run_on run = {.fn = fn, .user = user};

    ASSERT_OK(pl_mutex_init(&run.lock, PEER_RANK));
    ASSERT_OK(pl_cond_init(&run.done_cond));
    rpc_loop_post(loop, run_on_main, &run);
    pl_mutex_lock(&run.lock);
    while (!run.done) {
        pl_cond_wait(&run.done_cond, &run.lock);
    }
    pl_mutex_unlock(&run.lock);
    pl_cond_finish(&run.done_cond);
    pl_mutex_finish(&run.lock);
}
