/*
 * A worker that finds no port for objects of other hosts (--bulk-ports). One that follows another waits
 * for it, for the objects of its device would be lost with the device. One of a device that nobody
 * has served yet ends at once, and says what to do.
 */
#include <arpa/inet.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/base.h"
#include "base/clock.h"
#include "base/fd.h"
#include "tests/integration/started.h"

#define COUNT    1024
#define LEASE_MS 4000u
#define HELD_MS  (LEASE_MS + LEASE_MS / 2)

static char target[160], ports[16];

/* -1: somebody has it. port 0: any; *io_port is the one. */
static int take_port(uint16_t *io_port)
{
    struct sockaddr_in at = {.sin_family      = AF_INET,
                             .sin_port        = htons(*io_port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes       = sizeof(at);
    int one               = 1;
    int fd                = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    ASSERT_TRUE(fd >= 0);
    ASSERT_EQ(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)), 0);
    if (bind(fd, (struct sockaddr *)&at, bytes) != 0 || listen(fd, 1) != 0) {
        pl_fd_close(&fd);
        return -1;
    }
    ASSERT_EQ(getsockname(fd, (struct sockaddr *)&at, &bytes), 0);
    *io_port = ntohs(at.sin_port);
    return fd;
}

/* As soon as who has it has let go of it. */
static int wait_for_port(uint16_t *io_port)
{
    uint64_t deadline_ns = pl_now_ns() + CLUSTER_WAIT_MS * UINT64_C(1000000);
    int fd;

    while ((fd = take_port(io_port)) < 0) {
        ASSERT_TRUE(pl_now_ns() < deadline_ns);
    }
    return fd;
}

static pid_t start_store(const char *log)
{
    static char lease[16];

    (void)snprintf(lease, sizeof(lease), "%u", LEASE_MS);
    return STARTED_DAEMON(log, "plasmon-store", "--head", target, "--gpus", "none",
                          "--cpu-devices", "1", "--device-memory", "16M", "--socket-dir",
                          cluster_folder(), "--bulk-address", "127.0.0.1", "--bulk-plain",
                          "--bulk-ports", ports, "--worker-start-lease", lease,
                          "--drain-deadline", "0");
}

static pid_t start(uint16_t port)
{
    test_expect_log();
    test_set_timeout(240);
    started_begin();
    (void)snprintf(target, sizeof(target), "unix:%s/h.sock", cluster_folder());
    (void)snprintf(ports, sizeof(ports), "%u-%u", port, port);
    (void)STARTED_DAEMON("head.log", "plasmon-head", "--listen", target);
    return start_store("store.log");
}

/*
 * A store with that port alone, which *io_taken held and holds again, and whose worker is dead; the
 * client has an array there.
 */
static pid_t begin(int *io_taken, uint16_t *io_port, struct plasmon_client **out_client,
                   struct plasmon_ref **out_ref)
{
    pid_t store;

    pl_fd_close(io_taken);
    /* The next one hangs before it wants the port, so that we can have it before the one after that. */
    ASSERT_EQ(setenv("PLASMON_FAULT", "worker0.2/worker.start.set-up=hang", 1), 0);
    store = start(*io_port);
    ASSERT_EQ(unsetenv("PLASMON_FAULT"), 0);
    *out_client = started_join_knowing(target, 1);
    *out_ref    = cluster_fill(*out_client, COUNT, 7, 0);
    cluster_expect_all(*out_client, *out_ref, COUNT, 7);
    cluster_kill(cluster_worker(*out_client, 0));
    *io_taken = wait_for_port(io_port);
    return store;
}

TEST(a_worker_that_follows_another_waits_for_a_port_and_nothing_is_lost)
{
    uint16_t port      = 0;
    size_t from        = 0;
    int taken          = take_port(&port);
    unsigned waited_ms = 0;
    struct plasmon_client *client;
    struct plasmon_ref *ref;
    const char *after;
    pid_t store;

    store = begin(&taken, &port, &client, &ref);
    (void)started_wait_log("store.log", &from, "so its worker waits and tries again");
    /* Not to wait for something: for longer than a start may come no further. */
    (void)poll(NULL, 0, HELD_MS);
    pl_fd_close(&taken);
    after = strstr(started_wait_log("store.log", &from, " listens on 127.0.0.1:"), "after");
    ASSERT_NOT_NULL(after);
    ASSERT_EQ(sscanf(after, "after %u ms", &waited_ms), 1);
    ASSERT_TRUE(waited_ms >= HELD_MS); /* the same one: it was not taken for stuck */
    cluster_expect_all(client, ref, COUNT, 7);
    CLUSTER_OK(plasmon_release(client, ref));
    plasmon_finish(client);
    ASSERT_EQ(kill(store, SIGTERM), 0);
    ASSERT_EQ(started_wait(store), 0);
}

TEST(a_worker_that_waits_for_a_port_hands_back_to_another_store)
{
    uint16_t port = 0;
    int taken     = take_port(&port);
    struct plasmon_client *client;
    struct plasmon_ref *ref;
    pid_t store;

    store = begin(&taken, &port, &client, &ref);
    (void)started_wait_log("store.log", NULL, "so its worker waits and tries again");
    ASSERT_EQ(kill(store, SIGKILL), 0);
    ASSERT_EQ(started_wait(store), 128 + SIGKILL);
    store = start_store("next.log");
    (void)started_wait_log("next.log", NULL, "worker of device 0 is taken over");
    pl_fd_close(&taken);
    cluster_expect_all(client, ref, COUNT, 7);
    plasmon_finish(client);
    ASSERT_EQ(kill(store, SIGTERM), 0);
    ASSERT_EQ(started_wait(store), 0);
}

TEST(a_first_worker_that_finds_no_port_ends_at_once_and_says_why)
{
    uint16_t port = 0;
    size_t from   = 0;
    int taken     = take_port(&port);
    pid_t store   = start(port);

    for (unsigned i = 0; i < 2; i++) { /* and the next one, for nobody has served yet */
        (void)started_wait_log("store.log", &from,
                               "worker of device 0 is down: exit status 70: no port from");
    }
    pl_fd_close(&taken);
    ASSERT_EQ(kill(store, SIGTERM), 0);
    ASSERT_EQ(started_wait(store), 0);
}

TEST_MAIN()
