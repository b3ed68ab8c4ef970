/*
 * A worker process, with this test as its store and its head: set-up, commands, reports, a broken
 * connection, a worker that is killed. The embedded form: both connections are socketpairs.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/lock.h"
#include "rpc/rpc.h"
#include "tests/unit/worker/fake.h"
#include "tests/unit/worker/host.h"

#define EPOCH       UINT64_C(0xe1)
#define SESSION     UINT64_C(0x5e)
#define DEVICE      5u /* of the cluster */
#define RUN         PLASMON__V1__LAUNCH_KIND__LAUNCH_RUN
#define PATIENCE_NS (UINT64_C(20) * 1000 * 1000 * 1000)

extern char **environ;

static struct world {
    struct host host;
    pid_t pid;
    uint32_t incarnation;
    int control;          /* our end */
    struct pl_vec chunks; /* struct chunk */
    struct rpc_loop *loop;
    struct rpc_server *server;
    uint64_t seq; /* of launches */
    char last_words[256];

    struct pl_mutex lock;
    struct pl_cond changed;
    /* Guarded by lock. */
    struct rpc_stream *stream;
    uint32_t hellos;
    uint64_t hello_enqueued, hello_unfinished, hello_resume, hello_received;
    uint64_t out_seq; /* frames that we sent */
    uint64_t in_seq;  /* frames that we took over */
    bool swallow;     /* take frames and acknowledge nothing: as if they were lost */
    uint64_t done, failed;
    plasmon_status_t failed_status;
    char text[256];
    float value;
    uint64_t values;
    uint64_t stats_launches, stats_cpu_ns;
} world;

struct chunk {
    struct store_control message;
    int fd;
};

/* ------------------------------------------------------------------------------- a head */

static void command_send_locked(Plasmon__V1__WorkerCommand *command, bool numbered)
{
    Plasmon__V1__Header header = PLASMON__V1__HEADER__INIT;
    size_t length;
    uint8_t *buffer;

    header.protocol = WIRE_PROTOCOL;
    header.epoch    = EPOCH;
    header.session  = SESSION;
    header.seq      = numbered ? ++world.out_seq : 0;
    header.ack      = world.in_seq;
    command->header = &header;
    length          = plasmon__v1__worker_command__get_packed_size(command);
    buffer          = rpc_buffer_create(length);
    ASSERT_NOT_NULL(buffer);
    (void)plasmon__v1__worker_command__pack(command, buffer);
    ASSERT_OK(rpc_stream_send(world.stream, buffer, length));
}

static void hello_take_locked(const Plasmon__V1__WorkerHello *hello)
{
    Plasmon__V1__WorkerCommand command = PLASMON__V1__WORKER_COMMAND__INIT;
    Plasmon__V1__WorkerWelcome welcome = PLASMON__V1__WORKER_WELCOME__INIT;

    world.hellos++;
    world.hello_enqueued   = hello->enqueued;
    world.hello_resume     = hello->resume_session;
    world.hello_received   = hello->received;
    world.hello_unfinished = 0;
    for (size_t i = 0; i < hello->n_unfinished; i++) {
        world.hello_unfinished += hello->unfinished[i]->count;
    }
    if (hello->resume_session == 0) { /* a new process: our numbers start again */
        world.in_seq  = 0;
        world.out_seq = 0;
    }
    welcome.epoch             = EPOCH;
    welcome.session           = SESSION;
    welcome.device            = DEVICE;
    welcome.host_device_count = HOST_WORKERS;
    welcome.resumed_seq       = world.in_seq;
    command.welcome           = &welcome;
    command_send_locked(&command, false);
}

static void frame_take_locked(const Plasmon__V1__WorkerFrame *frame)
{
    if (frame->hello != NULL) {
        hello_take_locked(frame->hello);
    }
    if (frame->header->seq == 0 || frame->header->seq <= world.in_seq || world.swallow) {
        return;
    }
    if (frame->header->seq != world.in_seq + 1) {
        world.failed = UINT64_MAX; /* a gap: no test expects it */
        return;
    }
    world.in_seq = frame->header->seq;
    for (size_t i = 0; i < frame->n_done; i++) {
        world.done += frame->done[i]->count;
    }
    for (size_t i = 0; i < frame->n_failed; i++) {
        world.failed++;
        world.failed_status = (plasmon_status_t)frame->failed[i]->status;
        (void)snprintf(world.text, sizeof(world.text), "%s", frame->failed[i]->text);
    }
    for (size_t i = 0; i < frame->n_data; i++) {
        memcpy(&world.value, frame->data[i]->bytes.data, sizeof(world.value));
        world.values++;
    }
    if (frame->stats != NULL) {
        world.stats_launches = frame->stats->launches;
        world.stats_cpu_ns   = frame->stats->cpu_ns;
    }
}

static void on_message(void *user, struct rpc_stream *stream, const uint8_t *bytes,
                       size_t length)
{
    struct wire_arena arena;
    Plasmon__V1__WorkerFrame *frame;
    struct pl_err err;

    (void)user;
    ASSERT_OK(wire_arena_init(&arena, WIRE_ARENA_BYTES_MAX));
    ASSERT_OK(wire_decode_worker_frame(&arena, bytes, length, &frame, &err));
    pl_mutex_lock(&world.lock);
    if (stream == world.stream) {
        frame_take_locked(frame);
    }
    pl_cond_broadcast(&world.changed);
    pl_mutex_unlock(&world.lock);
    wire_arena_finish(&arena);
}

static void on_writable(void *user, struct rpc_stream *stream)
{
    (void)user, (void)stream;
}

static void on_closed(void *user, struct rpc_stream *stream, plasmon_status_t status,
                      const char *why)
{
    (void)user, (void)status, (void)why;
    pl_mutex_lock(&world.lock);
    if (stream == world.stream) {
        world.stream = NULL;
    }
    pl_cond_broadcast(&world.changed);
    pl_mutex_unlock(&world.lock);
}

static const struct rpc_stream_ops stream_ops = {.message  = on_message,
                                                 .writable = on_writable,
                                                 .closed   = on_closed};

static plasmon_status_t on_accept(void *user, struct rpc_stream *stream, struct pl_err *err)
{
    (void)user, (void)err;
    pl_mutex_lock(&world.lock);
    world.stream = stream;
    pl_mutex_unlock(&world.lock);
    rpc_stream_set_user(stream, &stream_ops, NULL);
    return PLASMON_OK;
}

static void head_start(void)
{
    static const struct rpc_method methods[] = {
        {.path = "/plasmon.v1.Plasmon/Work", .accept = on_accept}};
    struct rpc_server_config config = {.methods = methods, .method_count = 1};
    struct pl_err err;

    rpc_init();
    ASSERT_OK(rpc_loop_create(&world.loop));
    ASSERT_OK(rpc_server_create(world.loop, &config, &world.server, &err));
    ASSERT_OK(rpc_loop_start(world.loop, "head"));
}

/* ------------------------------------------------------------------------------ a store */

static int head_connection(void)
{
    int pair[2];

    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    ASSERT_OK(rpc_server_add_fd(world.server, pair[0]));
    return pair[1];
}

static void worker_spawn(void)
{
    char incarnation[16];
    char *argv[] = {
        (char *)WORKER_PATH, (char *)"--control-fd",  (char *)"3",   (char *)"--head-fd",
        (char *)"4",         (char *)"--kind",        (char *)"cpu", (char *)"--ordinal",
        (char *)"0",         (char *)"--host-device", (char *)"0",   (char *)"--node",
        (char *)"test",      (char *)"--incarnation", incarnation,   NULL};
    posix_spawn_file_actions_t actions;
    int head = head_connection();
    int pair[2];

    (void)snprintf(incarnation, sizeof(incarnation), "%u", ++world.incarnation);
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    ASSERT_EQ(posix_spawn_file_actions_init(&actions), 0);
    /* 10 and 11 first, so that neither lies in the other's place. */
    ASSERT_EQ(posix_spawn_file_actions_adddup2(&actions, pair[1], 100), 0);
    ASSERT_EQ(posix_spawn_file_actions_adddup2(&actions, head, 101), 0);
    ASSERT_EQ(posix_spawn_file_actions_adddup2(&actions, 100, 3), 0);
    ASSERT_EQ(posix_spawn_file_actions_adddup2(&actions, 101, 4), 0);
    ASSERT_EQ(posix_spawn_file_actions_addclose(&actions, 100), 0);
    ASSERT_EQ(posix_spawn_file_actions_addclose(&actions, 101), 0);
    ASSERT_EQ(posix_spawn(&world.pid, WORKER_PATH, &actions, NULL, argv, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    pl_fd_close(&pair[1]);
    pl_fd_close(&head);

    world.control = pair[0];
    host_setup_send_parts(&world.host, world.control, 0);
    for (size_t i = 0; i < world.chunks.count; i++) {
        const struct chunk *chunk = pl_vec_at(&world.chunks, i);

        ASSERT_OK(pl_fd_send(world.control, &chunk->message, sizeof(chunk->message),
                             &chunk->fd, 1));
    }
    host_setup_send_done(world.control, 0);
}

/* What the worker said to its store; true if there was something. */
static bool control_take(void)
{
    struct pollfd poll_fd = {.fd = world.control, .events = POLLIN};
    struct store_control message;
    size_t bytes      = sizeof(message);
    unsigned fd_count = 1;
    int fd            = -1;

    if (world.control < 0 || poll(&poll_fd, 1, 0) <= 0 ||
        pl_fd_recv(world.control, &message, &bytes, &fd, &fd_count) != PLASMON_OK) {
        return false;
    }
    if (message.type == STORE_CONTROL_CHUNK_ADD) {
        struct chunk *chunk = pl_vec_push(&world.chunks);

        ASSERT_NOT_NULL(chunk);
        message.type     = STORE_CONTROL_CHUNK;
        message.kind     = 1;
        *chunk           = (struct chunk){.message = message, .fd = fd};
        message.type     = STORE_CONTROL_CHUNKS_KEPT;
        message.chunk_id = (uint32_t)world.chunks.count;
        ASSERT_OK(pl_fd_send(world.control, &message, sizeof(message), NULL, 0));
    } else if (message.type == STORE_CONTROL_FATAL) {
        (void)snprintf(world.last_words, sizeof(world.last_words), "%s", message.text);
    } else if (message.type == STORE_CONTROL_NEW_HEAD_FD) {
        message.type = STORE_CONTROL_HEAD_FD;
        fd           = head_connection();
        ASSERT_OK(pl_fd_send(world.control, &message, sizeof(message), &fd, 1));
        pl_fd_close(&fd);
    }
    return true;
}

/* Until `check` holds; the store's part is played meanwhile. */
static void wait_until(bool (*check)(void))
{
    uint64_t deadline = pl_now_ns() + PATIENCE_NS;

    pl_mutex_lock(&world.lock);
    while (!check()) {
        ASSERT_TRUE(pl_now_ns() < deadline);
        (void)pl_cond_wait_until(&world.changed, &world.lock, pl_now_ns() + 5000000);
        pl_mutex_unlock(&world.lock);
        while (control_take()) {
        }
        pl_mutex_lock(&world.lock);
    }
    pl_mutex_unlock(&world.lock);
}

static int worker_reap(void)
{
    int status;

    ASSERT_EQ(waitpid(world.pid, &status, 0), world.pid);
    world.pid = 0;
    return status;
}

/* --------------------------------------------------------------------------- conditions */

static uint64_t wanted;

static bool connected(void)
{
    return world.stream != NULL && world.hellos >= wanted;
}
static bool all_done(void)
{
    return world.done >= wanted;
}
static bool some_failed(void)
{
    return world.failed >= wanted;
}
static bool value_came(void)
{
    return world.values >= wanted;
}
static bool stats_came(void)
{
    return world.stats_launches != 0;
}

static void start(void)
{
    host_create(&world.host);
    world.chunks = PL_VEC_INIT(struct chunk);
    ASSERT_OK(pl_mutex_init(&world.lock, PL_RANK_WORKER));
    ASSERT_OK(pl_cond_init(&world.changed));
    head_start();
    worker_spawn();
    wanted = 1;
    wait_until(connected);
}

static void give_again(struct fake_launch *launch, uint64_t seq)
{
    Plasmon__V1__WorkerCommand command = PLASMON__V1__WORKER_COMMAND__INIT;
    Plasmon__V1__Launch *launches[1]   = {&launch->message};

    launch->message.seq = seq;
    command.launches    = launches;
    command.n_launches  = 1;
    pl_mutex_lock(&world.lock);
    ASSERT_NOT_NULL(world.stream);
    command_send_locked(&command, true);
    pl_mutex_unlock(&world.lock);
}

static void give(struct fake_launch *launch)
{
    give_again(launch, ++world.seq);
}

static void fill_make(struct fake_launch *launch, uint32_t slot, double value)
{
    fake_launch_init(launch, 0, RUN);
    fake_launch_function(launch, "fill");
    fake_launch_scalar(launch, value);
    fake_launch_fresh(launch, slot, 1000)->buffer = wire_buffer(DEVICE, slot, 1);
}

static void give_fill(uint32_t slot, double value)
{
    struct fake_launch launch;

    fill_make(&launch, slot, value);
    give(&launch);
}

static float read_element(uint32_t slot)
{
    struct fake_launch launch;

    fake_launch_init(&launch, 0, PLASMON__V1__LAUNCH_KIND__LAUNCH_READ);
    fake_launch_operand(&launch, KERNEL_IN, slot, 1000)->buffer =
        wire_buffer(DEVICE, slot, 1);
    launch.message.offset = 999 * 4;
    launch.message.length = 4;
    if (world.seq != 0) {
        fake_launch_after(&launch, DEVICE, world.seq);
    }
    wanted = world.values + 1;
    give(&launch);
    wait_until(value_came);
    return world.value;
}

/* -------------------------------------------------------------------------------- tests */

TEST(launches_run_and_are_reported)
{
    Plasmon__V1__WorkerCommand command = PLASMON__V1__WORKER_COMMAND__INIT;
    struct fake_launch launch;

    start();
    for (uint32_t i = 0; i < 100; i++) {
        fake_launch_init(&launch, 0, RUN);
        fake_launch_function(&launch, "noop");
        give(&launch);
    }
    give_fill(1, 3.5);
    wanted = 101;
    wait_until(all_done);
    ASSERT_TRUE(read_element(1) == 3.5f);
    ASSERT_EQ(world.failed, 0);
    ASSERT_EQ(world.host.tables[0]->entries[1].state, STORE_SEALED);
    ASSERT_EQ(world.host.tables[0]->device, DEVICE + 1); /* where peers look */

    command.stats_request = 1;
    pl_mutex_lock(&world.lock);
    command_send_locked(&command, true);
    pl_mutex_unlock(&world.lock);
    wait_until(stats_came);
    ASSERT_EQ(world.stats_launches, 102);
    ASSERT_TRUE(world.stats_cpu_ns > 0);
    printf("# %llu ns of own CPU a launch\n",
           (unsigned long long)(world.stats_cpu_ns / world.stats_launches));
}

static bool kept_from_children(int fd)
{
    char path[64], line[64];
    unsigned flags = 0;
    FILE *file;

    (void)snprintf(path, sizeof(path), "/proc/%d/fdinfo/%d", (int)world.pid, fd);
    file = fopen(path, "re");
    ASSERT_NOT_NULL(file);
    while (fgets(line, sizeof(line), file) != NULL) {
        (void)sscanf(line, "flags: %o", &flags);
    }
    ASSERT_EQ(fclose(file), 0);
    return (flags & O_CLOEXEC) != 0;
}

/* A compiler that outlives it would be taken for a worker that lives. */
TEST(what_the_store_gave_is_not_for_programs_that_a_worker_starts)
{
    start();
    give_fill(1, 1.0);
    wanted = 1;
    wait_until(all_done);
    ASSERT_TRUE(kept_from_children(3));
    ASSERT_TRUE(kept_from_children(4));
}

TEST(failure_comes_with_status_and_text)
{
    struct fake_launch launch;

    start();
    fake_launch_init(&launch, 0, RUN);
    fake_launch_function(&launch, "test_fail");
    fake_launch_scalar(&launch, 0.0);
    fake_launch_fresh(&launch, 1, 4)->buffer = wire_buffer(DEVICE, 1, 1);
    give(&launch);
    wanted = 1;
    wait_until(some_failed);
    ASSERT_CONTAINS(world.text, "test_fail");
    give_fill(2, 1.0); /* and life goes on */
    ASSERT_TRUE(read_element(2) == 1.0f);
}

TEST(broken_connection_is_resumed_without_a_gap)
{
    start();
    give_fill(1, 1.0);
    wanted = 1;
    wait_until(all_done);

    pl_mutex_lock(&world.lock);
    world.swallow = true; /* the report of the next one is lost with the connection */
    pl_mutex_unlock(&world.lock);
    give_fill(2, 2.0);
    while (world.host.tables[0]->entries[2].state != STORE_SEALED) {
        ASSERT_EQ(sched_yield(), 0);
    }
    pl_mutex_lock(&world.lock);
    world.swallow = false;
    rpc_stream_close(world.stream, PLASMON_ECLOSED, "test");
    world.stream = NULL;
    pl_mutex_unlock(&world.lock);

    wanted = 2;
    wait_until(connected);
    ASSERT_EQ(world.hello_resume, SESSION);
    ASSERT_EQ(world.hello_received, 2);
    wanted = 2;
    wait_until(all_done);
    ASSERT_EQ(world.done, 2);
    ASSERT_EQ(world.failed, 0);
    ASSERT_TRUE(read_element(2) == 2.0f);
}

TEST(killed_worker_is_replaced_and_objects_live)
{
    struct fake_launch launch;

    test_expect_log();
    start();
    give_fill(1, 7.0);
    wanted = 1;
    wait_until(all_done);
    fake_launch_init(&launch, 0, RUN); /* long enough to be found unfinished */
    fake_launch_function(&launch, "spin");
    fake_launch_scalar(&launch, 0.0);
    launch.scalar[0]                                            = 20000000;
    fake_launch_operand(&launch, KERNEL_INOUT, 1, 1000)->buffer = wire_buffer(DEVICE, 1, 1);
    launch.operand[0].consume                                   = 1;
    give(&launch);
    while (world.host.timelines[0]->enqueued < 2) {
        ASSERT_EQ(sched_yield(), 0);
    }
    ASSERT_EQ(kill(world.pid, SIGKILL), 0);
    ASSERT_TRUE(WIFSIGNALED(worker_reap()));
    while (control_take()) {
    }
    pl_fd_close(&world.control);

    worker_spawn();
    wanted = 2;
    wait_until(connected);
    ASSERT_EQ(world.hello_enqueued, 2);
    ASSERT_EQ(world.hello_unfinished, 1);
    ASSERT_EQ(world.hello_resume, 0);
    ASSERT_EQ(world.host.tables[0]->entries[1].state, STORE_CONSUMED);
    fake_launch_init(&launch, 0, PLASMON__V1__LAUNCH_KIND__LAUNCH_SKIP);
    give_again(&launch, 2);
    wanted = 2;
    wait_until(all_done);
    ASSERT_TRUE(read_element(1) == 7.0f); /* spin leaves it as it is */
}

TEST(worker_whose_device_is_lost_says_what_ran_and_ends)
{
    int status;

    ASSERT_EQ(setenv("PLASMON_FAULT", "worker.signal:1", 1), 0);
    start();
    give_fill(1, 1.0);
    wanted = 1;
    wait_until(all_done);
    give_fill(2, 1.0);
    status = worker_reap();
    ASSERT_TRUE(WIFEXITED(status));
    ASSERT_EQ(WEXITSTATUS(status), 70);
    while (control_take()) {
    }
    ASSERT_CONTAINS(world.last_words, "the device refused a call");
    ASSERT_CONTAINS(world.last_words, "launch 2 (fill");
    ASSERT_EQ(world.failed, 0); /* whether it may run again is the head's to say */
}

TEST(worker_ends_with_its_store)
{
    start();
    pl_fd_close(&world.control);
    ASSERT_EQ(worker_reap(), 0);
}

TEST(worker_ends_when_told_to)
{
    Plasmon__V1__WorkerCommand command = PLASMON__V1__WORKER_COMMAND__INIT;

    start();
    command.stop = 1;
    pl_mutex_lock(&world.lock);
    command_send_locked(&command, true);
    pl_mutex_unlock(&world.lock);
    ASSERT_EQ(worker_reap(), 0);
}

TEST_MAIN()
