/*
 * Wrong calls fail where they are made, with a text that helps; wrong peers lose their own
 * connection and nobody else's.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <poll.h>
#include <unistd.h>

#include "base/base.h"
#include "base/clock.h"
#include "rpc/rpc.h"
#include "tests/integration/started.h"
#include "wire/wire.h"

/* -------------------------------------------------------------------------------- calls */

static plasmon_status_t submit(struct plasmon_client *client, const char *function,
                               struct plasmon_arg *args, uint32_t arg_count,
                               const plasmon_scalar_t *scalars, uint32_t scalar_count)
{
    struct plasmon_call call = PLASMON_CALL_INIT;
    struct plasmon_ref *outs[8];

    call.function     = function;
    call.args         = args;
    call.arg_count    = arg_count;
    call.scalars      = scalars;
    call.scalar_count = scalar_count;
    return plasmon_submit(client, &call, outs, NULL);
}

TEST(a_wrong_call_fails_at_submit_and_says_why)
{
    struct plasmon_client *client = cluster_start(1);
    struct plasmon_shape ints     = cluster_vector(PLASMON_I32, 10);
    int32_t numbers[10]           = {0};
    struct plasmon_ref *x         = cluster_put(client, 10, 0, PLASMON_ANYWHERE);
    struct plasmon_ref *longer    = cluster_put(client, 11, 0, PLASMON_ANYWHERE), *integers;
    struct plasmon_arg args[]     = {
            {.mode = PLASMON_OUT}, {.mode = PLASMON_IN, .ref = x}, {.mode = PLASMON_IN}};

    CLUSTER_OK(plasmon_put(client, numbers, &ints, NULL, &integers));
    args[2].ref = integers;
    ASSERT_STATUS(submit(client, "add", args, 3, NULL, 0), PLASMON_EDTYPE);
    ASSERT_CONTAINS(plasmon_error(client), "add");
    args[2].ref = longer;
    ASSERT_STATUS(submit(client, "add", args, 3, NULL, 0), PLASMON_ESHAPE);
    ASSERT_CONTAINS(plasmon_error(client), "11");
    ASSERT_STATUS(submit(client, "add", args, 2, NULL, 0), PLASMON_EARITY);
    args[2].ref = x;
    ASSERT_STATUS(submit(client, "ad", args, 3, NULL, 0), PLASMON_ENOFUNCTION);
    ASSERT_CONTAINS(plasmon_error(client), "add"); /* what was meant */
    args[1].mode = PLASMON_INOUT;
    ASSERT_TRUE(submit(client, "add", args, 3, NULL, 0) < 0);
    args[1].mode = PLASMON_IN;
    CLUSTER_OK(plasmon_release(client, longer));
    args[2].ref = longer;
    ASSERT_STATUS(submit(client, "add", args, 3, NULL, 0), PLASMON_ERELEASED);
    args[2].ref = NULL;
    ASSERT_TRUE(submit(client, "add", args, 3, NULL, 0) < 0);
    args[2].ref = x;
    CLUSTER_OK(submit(client, "add", args, 3, NULL, 0)); /* all this harmed nothing */
    cluster_expect_ramp(client, x, 10, 0, 1);
    plasmon_finish(client);
}

TEST(a_view_out_of_range_names_its_dimension)
{
    struct plasmon_client *client = cluster_start(1);
    struct plasmon_ref *x         = cluster_put(client, 10, 0, PLASMON_ANYWHERE), *view;
    static const int64_t bad[][3] = {{-1, 2, 1}, {0, 11, 1},        {9, 2, 1},
                                     {0, 4, 4},  {0, INT64_MAX, 2}, {INT64_MAX, 1, 1},
                                     {0, -1, 1}, {1, 2, INT64_MAX}};

    for (size_t i = 0; i < PL_COUNT(bad); i++) {
        ASSERT_STATUS(plasmon_view(client, x, &bad[i][0], &bad[i][1], &bad[i][2], &view),
                      PLASMON_ERANGE);
        ASSERT_CONTAINS(plasmon_error(client), "dimension 0");
    }
    plasmon_finish(client);
}

TEST(what_no_device_can_hold_is_refused_at_once)
{
    struct plasmon_client *client = cluster_start_sized(1, 32 << 20);
    struct plasmon_shape shape    = cluster_vector(PLASMON_F32, 1 << 28);
    struct plasmon_arg arg        = {.mode = PLASMON_OUT, .shape = &shape};
    plasmon_scalar_t value        = {.f = 1};

    ASSERT_STATUS(submit(client, "fill", &arg, 1, &value, 1), PLASMON_ETOOBIG);
    shape.dim[0] = INT64_MAX;
    ASSERT_TRUE(submit(client, "fill", &arg, 1, &value, 1) < 0);
    shape.dim[0] = -1;
    ASSERT_TRUE(submit(client, "fill", &arg, 1, &value, 1) < 0);
    cluster_expect_all(client, cluster_fill(client, 10, 1, PLASMON_ANYWHERE), 10, 1);
    plasmon_finish(client);
}

TEST(a_full_device_says_so_and_works_again_after_a_release)
{
    enum { COUNT = 1 << 20, TRIES = 32 }; /* 4 MiB each */
    struct plasmon_client *client = cluster_start_sized(1, 32 << 20);
    struct plasmon_ref *refs[TRIES];
    plasmon_status_t status = PLASMON_OK;
    int count               = 0;

    while (status == PLASMON_OK && count < TRIES) {
        refs[count] = cluster_fill(client, COUNT, count, 0);
        CLUSTER_OK(plasmon_wait(client, &refs[count], 1, 1, CLUSTER_WAIT_MS, NULL, NULL));
        status = plasmon_state(client, refs[count++]);
    }
    ASSERT_STATUS(status, PLASMON_EDEVMEM);
    ASSERT_CONTAINS(plasmon_error(client), "device 0");
    ASSERT_CONTAINS(plasmon_error(client), "MiB");
    ASSERT_TRUE(count > 4);
    cluster_expect_all(client, refs[0], COUNT, 0);
    for (int i = 0; i < count; i++) {
        CLUSTER_OK(plasmon_release(client, refs[i]));
    }
    for (int i = 0; i < 4; i++) {
        cluster_expect_all(client, cluster_fill(client, COUNT, 50 + i, 0), COUNT,
                           (float)(50 + i));
    }
    plasmon_finish(client);
}

/* --------------------------------------------------------------------------- connecting */

TEST(an_address_where_nobody_is_fails_in_time)
{
    struct plasmon_options options = PLASMON_OPTIONS_INIT;
    struct plasmon_client *client  = NULL;
    uint64_t start_ns              = pl_now_ns();

    options.connect_timeout_ms = 500;
    options.address            = "unix:/nowhere/head";
    ASSERT_TRUE(plasmon_init(&options, &client) == PLASMON_ECONNECT);
    ASSERT_CONTAINS(plasmon_error(NULL), "/nowhere/head");
    options.address = "127.0.0.1:1";
    ASSERT_TRUE(plasmon_init(&options, &client) == PLASMON_ECONNECT);
    ASSERT_CONTAINS(plasmon_error(NULL), "127.0.0.1:1");
    ASSERT_TRUE(pl_now_ns() - start_ns < 10000000000ull);
    ASSERT_NULL(client);
}

TEST(missing_programs_are_named_with_where_they_were_looked_for)
{
    struct plasmon_options options = PLASMON_OPTIONS_INIT;
    struct plasmon_client *client;

    options.bin_dir = "/nowhere/bin";
    ASSERT_STATUS(plasmon_init(&options, &client), PLASMON_ENOENT);
    ASSERT_CONTAINS(plasmon_error(NULL), "/nowhere/bin/plasmon-store");
    options.bin_dir = NULL;
    ASSERT_EQ(setenv("PLASMON_BIN_DIR", "/nowhere/else", 1), 0);
    ASSERT_STATUS(plasmon_init(&options, &client), PLASMON_ENOENT);
    ASSERT_CONTAINS(plasmon_error(NULL), "/nowhere/else/plasmon-store");
    ASSERT_CONTAINS(plasmon_error(NULL), "PLASMON_BIN_DIR");
}

TEST(wrong_options_are_named)
{
    struct plasmon_options options = PLASMON_OPTIONS_INIT;
    struct plasmon_client *client;

    options.transfer = "pigeon";
    ASSERT_STATUS(plasmon_init(&options, &client), PLASMON_EINVAL);
    ASSERT_CONTAINS(plasmon_error(NULL), "pigeon");
    options.transfer = NULL;
    options.policy   = "whim";
    ASSERT_STATUS(plasmon_init(&options, &client), PLASMON_EINVAL);
    ASSERT_CONTAINS(plasmon_error(NULL), "whim");
    options.policy       = NULL;
    options.spill_memory = PLASMON_NO_SPILL;
    options.spill_dirs   = "/tmp";
    ASSERT_STATUS(plasmon_init(&options, &client), PLASMON_EINVAL);
    ASSERT_CONTAINS(plasmon_error(NULL), "options.spill_dirs is \"/tmp\"");
    ASSERT_CONTAINS(plasmon_error(NULL), "PLASMON_NO_SPILL");
    options.gpus       = "none";
    options.spill_dirs = "none"; /* the same, said twice */
    CLUSTER_OK(plasmon_init(&options, &client));
    plasmon_finish(client);
}

/*
 * A variable that a daemon of a private cluster refuses: what that one said is the cause, and it is
 * the first of many words when the others say what came of it.
 */
static void expect_named(const char *variable, const char *value)
{
    struct plasmon_options options = PLASMON_OPTIONS_INIT;
    struct plasmon_client *client;
    plasmon_status_t status;
    bool named = false;

    options.gpus        = "none";
    options.cpu_devices = 2;
    ASSERT_EQ(setenv(variable, value, 1), 0);
    /* Nobody waits for what a slow machine has not come to yet. */
    options.connect_timeout_ms = 1000;
    do {
        status = plasmon_init(&options, &client);
        ASSERT_TRUE(status != PLASMON_OK);
        named = strstr(plasmon_error(NULL), variable) != NULL;
        options.connect_timeout_ms *= 2;
    } while (!named && status == PLASMON_ETIMEDOUT && options.connect_timeout_ms < 64000);
    if (!named) {
        test_fail(__FILE__, __LINE__, "%s does not name %s", plasmon_error(NULL), variable);
    }
    ASSERT_EQ(unsetenv(variable), 0);
}

TEST(a_variable_that_the_head_refuses_is_named)
{
    cluster_tag();
    expect_named("PLASMON_LINEAGE_BYTES", "plenty");
    cluster_expect_gone(CLUSTER_GONE_MS);
}

TEST(a_variable_that_every_worker_refuses_is_named)
{
    cluster_tag();
    expect_named("PLASMON_RUN_STREAMS", "99");
    cluster_expect_gone(CLUSTER_GONE_MS);
}

/* ----------------------------------------------------------------- a cluster with names */

/* A head with the token "right" and one CPU device; ends with the test. */
static void start_cluster(void)
{
    started_begin();
    ASSERT_EQ(setenv("PLASMON_TOKEN", "right", 1), 0);
    started_cluster(1);
}

static struct plasmon_client *join(const char *token)
{
    struct plasmon_client *client;

    CLUSTER_OK(started_try_join(started_address(), token, &client));
    return client;
}

static void expect_works(struct plasmon_client *client)
{
    cluster_expect_ramp(client, cluster_put(client, 1000, 1, PLASMON_ANYWHERE), 1000, 1, 1);
    cluster_expect_all(client, cluster_fill(client, 1000, 3, PLASMON_ANYWHERE), 1000, 3);
}

TEST(a_wrong_token_is_refused_by_name)
{
    struct plasmon_client *client;

    start_cluster();
    ASSERT_STATUS(started_try_join(started_address(), "wrong", &client), PLASMON_EAUTH);
    ASSERT_CONTAINS(plasmon_error(NULL), "token");
    /* the real one is not given away */
    ASSERT_TRUE(strstr(plasmon_error(NULL), "right") == NULL);
    client = join("right");
    expect_works(client);
    plasmon_finish(client);
}

/* -------------------------------------------------------------------------- raw streams */

/* A peer that says what it likes. */
struct raw {
    struct rpc_loop *loop;
    struct rpc_channel *channel;
    struct rpc_stream *stream;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool closed;
    plasmon_status_t status;
    char why[1024];
};

static void raw_message(void *user, struct rpc_stream *stream, const uint8_t *bytes,
                        size_t length)
{
    (void)user;
    (void)stream;
    (void)bytes;
    (void)length;
}

static void raw_writable(void *user, struct rpc_stream *stream)
{
    (void)user;
    (void)stream;
}

static void raw_closed(void *user, struct rpc_stream *stream, plasmon_status_t status,
                       const char *why)
{
    struct raw *raw = user;

    (void)stream;
    (void)pthread_mutex_lock(&raw->lock);
    raw->closed = true;
    raw->status = status;
    (void)snprintf(raw->why, sizeof(raw->why), "%s", why);
    (void)pthread_cond_broadcast(&raw->changed);
    (void)pthread_mutex_unlock(&raw->lock);
}

static const struct rpc_stream_ops raw_ops = {.message  = raw_message,
                                              .writable = raw_writable,
                                              .closed   = raw_closed};

static void raw_open(struct raw *raw, const char *path)
{
    struct rpc_channel_config config = {
        .target = started_address(), .token = "right", .message_bytes_max = 64u << 20};

    memset(raw, 0, sizeof(*raw));
    (void)pthread_mutex_init(&raw->lock, NULL);
    (void)pthread_cond_init(&raw->changed, NULL);
    rpc_init();
    ASSERT_OK(rpc_loop_create(&raw->loop));
    ASSERT_OK(rpc_loop_start(raw->loop, "raw"));
    ASSERT_OK(rpc_channel_create(raw->loop, &config, &raw->channel));
    ASSERT_OK(rpc_stream_open(raw->channel, path, 5000, &raw_ops, raw, &raw->stream));
}

static void raw_send(struct raw *raw, const void *bytes, size_t length)
{
    uint8_t *buffer = rpc_buffer_create(length);

    ASSERT_NOT_NULL(buffer);
    memcpy(buffer, bytes, length);
    ASSERT_OK(rpc_stream_send(raw->stream, buffer, length));
}

/* The other side must end the stream, with an error. */
static void raw_expect_refused(struct raw *raw)
{
    struct timespec deadline;
    int result = 0;

    (void)clock_gettime(CLOCK_REALTIME, &deadline);
    deadline.tv_sec += CLUSTER_WAIT_MS / 1000;
    (void)pthread_mutex_lock(&raw->lock);
    while (!raw->closed && result == 0) {
        result = pthread_cond_timedwait(&raw->changed, &raw->lock, &deadline);
    }
    (void)pthread_mutex_unlock(&raw->lock);
    if (!raw->closed) {
        test_fail(__FILE__, __LINE__, "the stream goes on");
    }
    if (raw->status == PLASMON_OK) {
        test_fail(__FILE__, __LINE__, "the stream ended well");
    }
}

static void raw_finish(struct raw *raw)
{
    rpc_channel_destroy(raw->channel);
    rpc_loop_stop(raw->loop);
    rpc_loop_destroy(raw->loop);
    rpc_finish();
}

static void say_hello(struct raw *raw, uint32_t protocol)
{
    Plasmon__V1__ClientFrame frame = PLASMON__V1__CLIENT_FRAME__INIT;
    Plasmon__V1__Header header     = PLASMON__V1__HEADER__INIT;
    Plasmon__V1__Hello hello       = PLASMON__V1__HELLO__INIT;
    uint8_t *bytes;
    size_t length;

    header.protocol    = WIRE_PROTOCOL;
    hello.protocol_min = protocol;
    hello.protocol_max = protocol;
    frame.header       = &header;
    frame.hello        = &hello;
    ASSERT_OK(wire_encode(&frame.base, rpc_buffer_create, &bytes, &length));
    ASSERT_OK(rpc_stream_send(raw->stream, bytes, length));
}

#define SESSION "/plasmon.v1.Plasmon/Session"

TEST(another_protocol_version_is_refused_by_number)
{
    struct raw raw;

    start_cluster();
    raw_open(&raw, SESSION);
    say_hello(&raw, 99);
    raw_expect_refused(&raw);
    ASSERT_STATUS(raw.status, PLASMON_EVERSION);
    ASSERT_CONTAINS(raw.why,
                    "this head speaks protocol 1, the client 99 to 99; use programs "
                    "of one release");
    raw_finish(&raw);
}

/* What a worker or a store of another release says first. */
TEST(a_worker_and_a_store_of_another_protocol_are_refused_with_both_numbers)
{
    Plasmon__V1__Header header       = PLASMON__V1__HEADER__INIT;
    Plasmon__V1__WorkerFrame worker  = PLASMON__V1__WORKER_FRAME__INIT;
    Plasmon__V1__WorkerHello its     = PLASMON__V1__WORKER_HELLO__INIT;
    Plasmon__V1__NodeFrame node      = PLASMON__V1__NODE_FRAME__INIT;
    Plasmon__V1__NodeHello the_nodes = PLASMON__V1__NODE_HELLO__INIT;
    const ProtobufCMessage *first[]  = {&worker.base, &node.base};
    const char *const paths[] = {"/plasmon.v1.Plasmon/Work", "/plasmon.v1.Plasmon/Node"};

    header.protocol = WIRE_PROTOCOL + 41;
    worker.header   = &header;
    worker.hello    = &its;
    node.header     = &header;
    node.hello      = &the_nodes;
    start_cluster();
    for (size_t i = 0; i < 2; i++) {
        struct raw raw;
        uint8_t *bytes;
        size_t length;

        raw_open(&raw, paths[i]);
        ASSERT_OK(wire_encode(first[i], rpc_buffer_create, &bytes, &length));
        ASSERT_OK(rpc_stream_send(raw.stream, bytes, length));
        raw_expect_refused(&raw);
        ASSERT_STATUS(raw.status, PLASMON_EVERSION);
        ASSERT_CONTAINS(raw.why,
                        "the peer speaks protocol 42, this program 1: use matching "
                        "releases");
        raw_finish(&raw);
    }
}

TEST(garbage_on_a_stream_ends_that_stream_only)
{
    static const char *const paths[] = {SESSION, "/plasmon.v1.Plasmon/Work",
                                        "/plasmon.v1.Plasmon/Node"};
    struct plasmon_client *honest;
    uint64_t state = test_seed();
    uint8_t bytes[4096];

    test_set_timeout(60);
    start_cluster();
    honest = join("right");
    expect_works(honest);
    for (int round = 0; round < 12; round++) {
        struct raw raw;

        raw_open(&raw, paths[round % 3]);
        if (round % 3 == 0 && round % 2 == 0) {
            say_hello(&raw, WIRE_PROTOCOL); /* after a hello, too */
        }
        for (size_t i = 0; i < sizeof(bytes); i++) {
            bytes[i] = (uint8_t)test_random(&state);
        }
        bytes[0] = 0xff; /* no valid tag */
        bytes[1] = 0xff;
        raw_send(&raw, bytes, 16 + (size_t)(test_random(&state) % (sizeof(bytes) - 16)));
        raw_expect_refused(&raw);
        raw_finish(&raw);
        expect_works(honest);
    }
    plasmon_finish(honest);
}

TEST(an_oversized_message_ends_that_session_only)
{
    size_t length  = WIRE_MESSAGE_BYTES_MAX + (1u << 20);
    uint8_t *bytes = calloc(1, length);
    struct plasmon_client *honest;
    struct raw raw;

    ASSERT_NOT_NULL(bytes);
    start_cluster();
    honest = join("right");
    raw_open(&raw, SESSION);
    say_hello(&raw, WIRE_PROTOCOL);
    raw_send(&raw, bytes, length);
    raw_expect_refused(&raw);
    raw_finish(&raw);
    expect_works(honest);
    plasmon_finish(honest);
    free(bytes);
}

/* ------------------------------------------------------------------- the store's socket */

static int connect_store(void)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    int fd                  = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    ASSERT_TRUE(fd >= 0);
    (void)snprintf(name.sun_path, sizeof(name.sun_path), "%s/plasmon-%u/store-%d.sock",
                   cluster_folder(), (unsigned)getuid(),
                   (int)cluster_find("plasmon-store", -1));
    ASSERT_EQ(connect(fd, (const struct sockaddr *)&name, sizeof(name)), 0);
    return fd;
}

TEST(garbage_on_the_stores_socket_ends_that_connection_only)
{
    struct plasmon_client *honest;
    uint64_t state = test_seed();
    uint8_t bytes[8192];

    start_cluster();
    honest = join("right");
    for (int round = 0; round < 20; round++) {
        struct pollfd poller = {.fd = connect_store(), .events = POLLIN};
        ssize_t got          = 1;

        for (size_t i = 0; i < sizeof(bytes); i++) {
            bytes[i] = (uint8_t)test_random(&state);
        }
        ASSERT_TRUE(send(poller.fd, bytes,
                         1 + (size_t)(test_random(&state) % sizeof(bytes)),
                         MSG_NOSIGNAL) > 0);
        while (got > 0) { /* it may say why first */
            ASSERT_EQ(poll(&poller, 1, (int)CLUSTER_WAIT_MS), 1);
            got = recv(poller.fd, bytes, sizeof(bytes), 0);
        }
        (void)close(poller.fd);
        expect_works(honest);
    }
    plasmon_finish(honest);
}

/* Labels are UTF-8, and texts that show them cut them: never in the middle of a character. */
TEST(a_long_label_is_shown_as_far_as_there_is_room)
{
    struct plasmon_client *client = cluster_start(1);
    struct plasmon_shape shape    = {PLASMON_F64, 1, {4}};
    struct plasmon_arg arg        = {.mode = PLASMON_OUT, .shape = &shape};
    plasmon_scalar_t code         = {.i = 3};
    struct plasmon_call call      = PLASMON_CALL_INIT;
    char label[128]               = "x";
    struct plasmon_ref *out;

    for (size_t i = 1; i < sizeof(label) - 2; i += 2) { /* 60 bytes end in one of them */
        memcpy(label + i, "\xc3\xa9", 3);
    }
    call.function     = "test_fail";
    call.args         = &arg;
    call.arg_count    = 1;
    call.scalars      = &code;
    call.scalar_count = 1;
    call.label        = label;
    CLUSTER_OK(plasmon_submit(client, &call, &out, NULL));
    (void)plasmon_wait(client, &out, 1, 1, CLUSTER_WAIT_MS, NULL, NULL);
    ASSERT_STATUS(plasmon_state(client, out), PLASMON_EFUNCTION);
    ASSERT_CONTAINS(plasmon_error(client), "test_fail: failed as asked, code 3");
    plasmon_finish(client);
}

TEST_MAIN()
