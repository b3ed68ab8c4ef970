/*
 * The link to the head against a real gRPC server that plays the head: what is told, when it is
 * told again, and what comes back.
 */
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/host.h"
#include "base/lock.h"
#include "rpc/rpc.h"
#include "store/node.h"
#include "tests/harness/test.h"
#include "wire/wire.h"

#define DEADLINE_NS (20ull * 1000000000u)
#define MEMORY      0x6d656d6f7279ull

static struct {
    char folder[64];
    char address[96];
    struct rpc_loop *loop;
    struct rpc_server *server;
    uint64_t epoch;
    bool acknowledge;

    struct pl_mutex lock;
    struct pl_cond changed;
    /* Guarded by `lock`. */
    struct rpc_stream *stream;
    unsigned hellos;
    unsigned downs; /* in all */
    unsigned quarantined;
    unsigned beats;
    unsigned leaves;
    uint32_t leave_ms; /* of the last one */
    bool journal;      /* it says that it has one */
    uint64_t last_seq;
    uint64_t session;         /* that it welcomes with */
    uint64_t memory;          /* that the last hello named */
    bool silent;              /* it hears hellos and welcomes nobody */
    plasmon_status_t refuses; /* OK: nobody */
    uint64_t acked_by_store;
    char host[PL_HOST_ID_BYTES];
    char node[64];
    char socket[128];
    char token[64];
    char down_text[256];
    uint32_t devices;
    uint32_t down_device;
    uint32_t down_incarnation;
} head;

static struct store_options options;
static struct store_node *node;
static struct store_uplink uplink;

static void head_send(Plasmon__V1__NodeCommand *command, uint64_t seq, uint64_t ack)
{
    Plasmon__V1__Header header = PLASMON__V1__HEADER__INIT;
    size_t length;
    uint8_t *bytes;

    header.protocol = WIRE_PROTOCOL;
    header.epoch    = head.epoch;
    header.session  = head.session;
    header.seq      = seq;
    header.ack      = ack;
    command->header = &header;
    length          = plasmon__v1__node_command__get_packed_size(command);
    bytes           = rpc_buffer_create(length);
    PL_CHECK(bytes != NULL);
    (void)plasmon__v1__node_command__pack(command, bytes);
    (void)!rpc_stream_send(head.stream, bytes, length);
}

static void head_welcome(void)
{
    Plasmon__V1__NodeCommand command = PLASMON__V1__NODE_COMMAND__INIT;
    Plasmon__V1__NodeWelcome welcome = PLASMON__V1__NODE_WELCOME__INIT;

    welcome.epoch   = head.epoch;
    welcome.cluster = (char *)(uintptr_t) "test";
    welcome.journal = head.journal;
    command.welcome = &welcome;
    head_send(&command, 0, 0);
}

static void head_take_hello(const Plasmon__V1__NodeHello *hello)
{
    head.hellos++;
    head.devices = hello->devices;
    head.memory  = hello->memory;
    (void)snprintf(head.host, sizeof(head.host), "%s", hello->host);
    (void)snprintf(head.node, sizeof(head.node), "%s", hello->node);
    (void)snprintf(head.socket, sizeof(head.socket), "%s", hello->store_socket);
    PL_CHECK(hello->token.len == 0); /* a hello is written down, in the head's journal */
}

static void head_message(void *user, struct rpc_stream *stream, const uint8_t *bytes,
                         size_t length)
{
    Plasmon__V1__NodeFrame *frame;
    struct wire_arena arena;
    struct pl_err err;

    (void)user;
    (void)stream;
    PL_CHECK(wire_arena_init(&arena, 1u << 20) == PLASMON_OK);
    PL_CHECK(wire_decode_node_frame(&arena, bytes, length, &frame, &err) == PLASMON_OK);
    pl_mutex_lock(&head.lock);
    if (frame->header->seq != 0) {
        /* no gap, from 1 on each connection */
        PL_CHECK(frame->header->seq == head.last_seq + 1);
        head.last_seq = frame->header->seq;
    }
    head.acked_by_store = frame->header->ack;
    if (frame->hello != NULL) {
        head_take_hello(frame->hello);
        (void)snprintf(head.token, sizeof(head.token), "%s", rpc_stream_token(stream));
        if (head.refuses == PLASMON_OK && !head.silent) {
            head_welcome();
        } else if (head.refuses != PLASMON_OK) {
            rpc_stream_close(stream, head.refuses, "not you");
        }
    }
    for (size_t i = 0; i < frame->n_down; i++) {
        head.downs++;
        head.quarantined += frame->down[i]->quarantined ? 1 : 0;
        head.down_device      = frame->down[i]->host_device;
        head.down_incarnation = frame->down[i]->incarnation;
        (void)snprintf(head.down_text, sizeof(head.down_text), "%s", frame->down[i]->text);
    }
    head.beats += frame->beat > 0;
    if (frame->leave != NULL) {
        head.leaves++;
        head.leave_ms = frame->leave->deadline_ms;
    }
    if (head.acknowledge && frame->n_down > 0) {
        Plasmon__V1__NodeCommand command = PLASMON__V1__NODE_COMMAND__INIT;

        head_send(&command, 0, frame->header->seq);
    }
    pl_cond_broadcast(&head.changed);
    pl_mutex_unlock(&head.lock);
    wire_arena_finish(&arena);
}

static void head_writable(void *user, struct rpc_stream *stream)
{
    (void)user;
    (void)stream;
}

static void head_closed(void *user, struct rpc_stream *stream, plasmon_status_t status,
                        const char *why)
{
    (void)user;
    (void)status;
    (void)why;
    pl_mutex_lock(&head.lock);
    if (head.stream == stream) {
        head.stream = NULL;
    }
    pl_cond_broadcast(&head.changed);
    pl_mutex_unlock(&head.lock);
}

static const struct rpc_stream_ops head_ops = {head_message, head_writable, head_closed};

static plasmon_status_t head_accept(void *user, struct rpc_stream *stream,
                                    struct pl_err *err)
{
    (void)user;
    (void)err;
    pl_mutex_lock(&head.lock);
    head.stream   = stream;
    head.last_seq = 0;
    pl_mutex_unlock(&head.lock);
    rpc_stream_set_user(stream, &head_ops, NULL);
    return PLASMON_OK;
}

static uint64_t session_kept; /* where the next store would find it */

static void head_start(uint64_t epoch)
{
    const char *addresses[]     = {head.address, NULL};
    struct rpc_method methods[] = {
        {.path = "/plasmon.v1.Plasmon/Node", .accept = head_accept}};
    struct rpc_server_config config = {
        .addresses = addresses, .token = "secret", .methods = methods, .method_count = 1};
    struct pl_err err;

    head.epoch   = epoch;
    head.session = epoch * 10;
    ASSERT_OK(rpc_loop_create(&head.loop));
    ASSERT_OK(rpc_server_create(head.loop, &config, &head.server, &err));
    ASSERT_OK(rpc_loop_start(head.loop, "head"));
}

static void server_stop(void *user)
{
    rpc_server_destroy(head.server);
    *(bool *)user = true;
    rpc_loop_stop(head.loop);
}

static void head_stop(void)
{
    bool done = false;

    rpc_loop_post(head.loop, server_stop, &done);
    rpc_loop_destroy(head.loop);
    ASSERT_TRUE(done);
}

/* Wait until `*counter` is at least `count`. */
static void head_wait(const unsigned *counter, unsigned count)
{
    uint64_t deadline = pl_now_ns() + DEADLINE_NS;
    int in_time       = 1;

    pl_mutex_lock(&head.lock);
    while (*counter < count && in_time) {
        in_time = pl_cond_wait_until(&head.changed, &head.lock, deadline);
    }
    pl_mutex_unlock(&head.lock);
    if (!in_time) {
        test_fail(__FILE__, __LINE__, "waited too long: %u instead of %u", *counter, count);
    }
}

static void begin(void)
{
    struct pl_err err;

    test_expect_log(); /* it says when the head cannot be reached */
    (void)snprintf(head.folder, sizeof(head.folder), "/tmp/plasmon-test-XXXXXX");
    ASSERT_NOT_NULL(mkdtemp(head.folder));
    (void)snprintf(head.address, sizeof(head.address), "unix:%s/head", head.folder);
    ASSERT_OK(pl_mutex_init(&head.lock, PL_RANK_CLIENT));
    ASSERT_OK(pl_cond_init(&head.changed));
    rpc_init();
    options =
        (struct store_options){.head = head.address, .client_fd = -1, .client_pidfd = -1};
    ASSERT_OK(store_node_create(&options, "secret", NULL, &node, &uplink, &err));
}

static void end(void)
{
    char path[128];

    store_node_destroy(node);
    head_stop();
    rpc_finish();
    pl_cond_finish(&head.changed);
    pl_mutex_finish(&head.lock);
    (void)unlink(head.address + strlen("unix:"));
    (void)snprintf(path, sizeof(path), "%s/head.lock", head.folder);
    (void)unlink(path); /* rpc's, if it keeps one */
    ASSERT_EQ(rmdir(head.folder), 0);
}

static void tell_down(uint32_t incarnation, bool quarantined)
{
    struct store_uplink_down down = {.host_device = 1,
                                     .incarnation = incarnation,
                                     .wait_status = 9,
                                     .quarantined = quarantined};

    (void)snprintf(down.text, sizeof(down.text), "killed by signal 9");
    uplink.worker_down(uplink.user, &down);
}

static enum store_uplink_event wait_event(uint32_t *out_device, uint32_t *out_incarnation)
{
    struct pollfd waiting = {.fd = uplink.event_fd, .events = POLLIN};

    for (;;) {
        enum store_uplink_event event =
            uplink.next(uplink.user, out_device, out_incarnation);
        uint64_t count;

        if (event != STORE_UPLINK_NONE) {
            return event;
        }
        ASSERT_EQ(poll(&waiting, 1, 20000), 1);
        ASSERT_EQ(read(uplink.event_fd, &count, sizeof(count)), sizeof(count));
    }
}

TEST(hello_says_who_we_are_and_beats_follow)
{
    char host[PL_HOST_ID_BYTES];

    begin();
    head_start(5);
    ASSERT_OK(uplink.start(uplink.user, "mynode", "/run/sock", 3, MEMORY, &session_kept));
    head_wait(&head.hellos, 1);
    ASSERT_OK(pl_host_id(host));
    ASSERT_STR(head.host, host);
    ASSERT_STR(head.node, "mynode");
    ASSERT_STR(head.socket, "/run/sock");
    ASSERT_STR(head.token, "secret");
    ASSERT_EQ(head.devices, 3);
    head_wait(&head.beats, 2);
    end();
}

TEST(a_death_is_told_again_until_it_is_acknowledged)
{
    begin();
    head_start(5);
    ASSERT_OK(uplink.start(uplink.user, "n", "", 2, MEMORY, &session_kept));
    head_wait(&head.hellos, 1);
    tell_down(4, false);
    head_wait(&head.downs, 1);
    ASSERT_EQ(head.down_device, 1);
    ASSERT_EQ(head.down_incarnation, 4);
    ASSERT_STR(head.down_text, "killed by signal 9");

    head_stop(); /* it has not acknowledged */
    head.acknowledge = true;
    head_start(6);
    head_wait(&head.hellos, 2);
    head_wait(&head.downs, 2);

    head_stop(); /* it has: the third head hears nothing */
    head_start(7);
    head_wait(&head.hellos, 3);
    head.beats = 0;
    head_wait(&head.beats, 2);
    ASSERT_EQ(head.downs, 2);
    end();
}

TEST(every_hello_names_the_same_memory_whether_the_last_one_was_answered_or_not)
{
    begin();
    head.silent = true;
    head_start(5);
    ASSERT_OK(uplink.start(uplink.user, "n", "", 2, MEMORY, &session_kept));
    head_wait(&head.hellos, 1);
    ASSERT_EQ(head.memory, MEMORY);
    ASSERT_EQ(__atomic_load_n(&session_kept, __ATOMIC_ACQUIRE), 0);
    head_stop();
    head.silent = false;
    for (unsigned i = 2; i < 4; i++) {
        head.memory = 0;
        head.beats  = 0;
        head_start(4 + i);
        head_wait(&head.hellos, i);
        head_wait(&head.beats, 1); /* it was welcomed */
        ASSERT_EQ(head.memory, MEMORY);
        ASSERT_EQ(__atomic_load_n(&session_kept, __ATOMIC_ACQUIRE), (4 + i) * 10);
        head_stop();
    }
    head_start(9);
    end();
}

TEST(a_store_that_is_refused_beside_another_is_told_to_end)
{
    uint32_t unused;

    begin();
    head.refuses = PLASMON_EEXIST;
    head_start(5);
    ASSERT_OK(uplink.start(uplink.user, "n", "", 2, MEMORY, &session_kept));
    ASSERT_EQ(wait_event(&unused, &unused), STORE_UPLINK_REFUSED);
    ASSERT_STR(uplink.refusal(uplink.user), "not you");
    end();
}

TEST(every_head_is_told_of_a_quarantine)
{
    begin();
    head.acknowledge = true;
    ASSERT_OK(uplink.start(uplink.user, "n", "", 2, MEMORY,
                           &session_kept)); /* before there is a head */
    tell_down(11, true);
    head_start(5);
    head_wait(&head.quarantined, 1);
    head_stop();
    head_start(6);
    head_wait(&head.quarantined, 2);
    end();
}

TEST(a_store_that_leaves_says_so_to_the_head_that_goes_on_with_the_journal)
{
    begin();
    head.journal = true;
    head_start(5);
    ASSERT_OK(uplink.start(uplink.user, "n", "/s", 2, MEMORY, &session_kept));
    head_wait(&head.beats, 1);
    ASSERT_TRUE(uplink.leave(uplink.user, 600000));
    head_wait(&head.leaves, 1);
    ASSERT_TRUE(head.leave_ms > 500000 && head.leave_ms <= 600000);
    head_stop();
    head_start(5);
    head_wait(&head.leaves, 2);
    ASSERT_TRUE(head.leave_ms > 500000 && head.leave_ms < 600000); /* what is left of it */
    head_stop();
    ASSERT_TRUE(uplink.leave(uplink.user, 600000)); /* .. also when it is away already */
    head_start(5);
    head_wait(&head.leaves, 3);
    end();
}

TEST(without_a_journal_nobody_is_waited_for)
{
    uint32_t device, incarnation;

    begin();
    head_start(5);
    ASSERT_OK(uplink.start(uplink.user, "n", "/s", 2, MEMORY, &session_kept));
    head_wait(&head.beats, 1);
    ASSERT_TRUE(uplink.leave(uplink.user, 600000));
    head_wait(&head.leaves, 1);
    head_stop();
    ASSERT_EQ(wait_event(&device, &incarnation), STORE_UPLINK_LEFT);
    ASSERT_EQ(device, STORE_LEFT_ALONE);
    head_start(5);
    end();
}

TEST(a_store_that_may_leave_hears_whether_all_is_elsewhere)
{
    Plasmon__V1__NodeCommand command = PLASMON__V1__NODE_COMMAND__INIT;
    Plasmon__V1__NodeLeft left       = PLASMON__V1__NODE_LEFT__INIT;
    uint32_t device, incarnation;

    begin();
    test_expect_log();
    head_start(5);
    ASSERT_OK(uplink.start(uplink.user, "n", "/s", 2, MEMORY, &session_kept));
    head_wait(&head.hellos, 1);
    command.left = &left;
    pl_mutex_lock(&head.lock);
    head_send(&command, 1, 0);
    left.objects_left = 2;
    left.text         = (char *)(uintptr_t) "the deadline is over";
    head_send(&command, 2, 0);
    pl_mutex_unlock(&head.lock);
    ASSERT_EQ(wait_event(&device, &incarnation), STORE_UPLINK_LEFT);
    ASSERT_EQ(device, STORE_LEFT_DRAINED);
    ASSERT_EQ(wait_event(&device, &incarnation), STORE_UPLINK_LEFT);
    ASSERT_EQ(device, STORE_LEFT_LOSES);
    end();
}

TEST(fences_and_stop_come_back_as_events)
{
    Plasmon__V1__NodeCommand command = PLASMON__V1__NODE_COMMAND__INIT;
    uint32_t devices[]               = {1, 0};
    uint32_t incarnations[]          = {4, 0};
    uint32_t device                  = 9;
    uint32_t incarnation             = 9;

    begin();
    head_start(5);
    ASSERT_OK(uplink.start(uplink.user, "n", "", 2, MEMORY, &session_kept));
    head_wait(&head.hellos, 1);

    command.n_fence             = 2;
    command.fence               = devices;
    command.n_fence_incarnation = 2;
    command.fence_incarnation   = incarnations;
    pl_mutex_lock(&head.lock);
    head_send(&command, 1, 0);
    head_send(&command, 1, 0); /* a repeat: once is enough */
    command.n_fence             = 0;
    command.n_fence_incarnation = 0;
    command.stop                = true;
    head_send(&command, 2, 0);
    pl_mutex_unlock(&head.lock);

    ASSERT_EQ(wait_event(&device, &incarnation), STORE_UPLINK_FENCE);
    ASSERT_EQ(device, 1);
    ASSERT_EQ(incarnation, 4);
    ASSERT_EQ(wait_event(&device, &incarnation), STORE_UPLINK_FENCE);
    ASSERT_EQ(device, 0);
    ASSERT_EQ(incarnation, 0);
    ASSERT_EQ(wait_event(&device, &incarnation), STORE_UPLINK_STOP);
    ASSERT_EQ(uplink.next(uplink.user, &device, &incarnation), STORE_UPLINK_NONE);
    end();
}

TEST_MAIN()
