/*
 * Clients that are stopped and killed in named places of each way of their bytes: in messages, over
 * the bulk channel, through a lane; while they put, and while they get. Nobody else is disturbed,
 * no worker ends. Who was stopped for longer than the bulk channel's deadline (a second and four
 * times what a part should take) and goes on has the right bytes in the end; of who was killed
 * nothing is left, and the ways work again. (Their workers are stopped and killed in
 * test_transfers, test_client_bulk.sh and test_lanes.sh.)
 */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "base/clock.h"
#include "base/fault.h"
#include "tests/integration/started.h"

#define BYTES \
    ((UINT64_C(9) << 20) + 5) /* ten parts of the bulk channel, five slots of a lane */
#define SILENT_NS UINT64_C(2500000000) /* the deadline of a part of 1 MiB, and some */
enum { AGAIN_MAX = 10 };
#define UNDISTURBED_S 20 /* for what takes a fraction of a second on a quiet machine */

struct place {
    const char *way;
    const char *name; /* a fault point of the client, and how often it is passed before */
};
static const struct place places[] = {
    {"messages", "client.put_piece:4"}, {"messages", "client.get_piece:2"},
    {"bulk", "client.bulk_put_half:3"}, {"bulk", "client.bulk_get_part:5"},
    {"staged", "client.lane_put:2"},    {"staged", "client.lane_get:1"},
};
#define VICTIMS PL_COUNT(places)

static const char *const ways[] = {"messages", "bulk", "staged"};

static void cluster_begin(void)
{
    char path[256];

    pl_fault_arm("any", 0);
    if (!pl_fault_point("any")) {
        test_skip("this build has no fault points");
    }
    (void)pl_fault_disarm();
    test_expect_log(); /* connections that end are news */
    test_set_timeout(150);
    started_begin();
    (void)snprintf(path, sizeof(path), "%s/plasmon-%u", cluster_folder(),
                   (unsigned)getuid());
    ASSERT_EQ(mkdir(path, 0700), 0);
    (void)STARTED_DAEMON("head.log", "plasmon-head", "--listen", started_address());
    (void)STARTED_DAEMON("store.log", "plasmon-store", "--head", started_address(),
                         "--cpu-devices", "1", "--gpus", "none", "--device-memory", "512M",
                         "--bulk-address", "127.0.0.1", "--bulk-plain");
}

/* ----------------------------------------------------------------------- there and back */

static uint64_t word_at(uint64_t i, uint64_t seed)
{
    return (i + 1) * (seed * 2 + 1) * UINT64_C(0x9e3779b97f4a7c15);
}

static void round_trip(struct plasmon_client *client, uint64_t seed)
{
    struct plasmon_shape shape = cluster_vector(PLASMON_U8, (int64_t)BYTES);
    uint64_t words             = BYTES / 8 + 1;
    uint64_t *from = calloc(words, 8), *to = calloc(words, 8);
    struct plasmon_ref *ref;

    ASSERT_NOT_NULL(from);
    ASSERT_NOT_NULL(to);
    for (uint64_t i = 0; i < words; i++) {
        from[i] = word_at(i, seed);
    }
    CLUSTER_OK(plasmon_put(client, from, &shape, NULL, &ref));
    CLUSTER_OK(plasmon_get(client, ref, to, BYTES, CLUSTER_WAIT_MS));
    ASSERT_EQ(memcmp(from, to, BYTES), 0);
    CLUSTER_OK(plasmon_release(client, ref));
    free(from);
    free(to);
}

/*
 * A process that ends with 0 when its bytes came back right; in its place it gets the signal.
 * Before this process has a client.
 */
static pid_t victim_start(const struct place *place, const char *end, uint64_t seed)
{
    struct plasmon_client *client;
    char armed[96];
    bool right;
    pid_t pid;

    (void)snprintf(armed, sizeof(armed), "client/%s=%s", place->name, end);
    pid = fork();
    ASSERT_TRUE(pid >= 0);
    if (pid > 0) {
        return pid;
    }
    right = setenv("PLASMON_FAULT", armed, 1) == 0 &&
            setenv("PLASMON_CLIENT_PATH", place->way, 1) == 0;
    pl_fault_from_env("client");
    client = started_join_knowing(started_address(), 1);
    started_wait_devices(client, 1);
    plasmon_finish(client);
    client = started_join(); /* and knows now what its device has */
    round_trip(client, seed);
    _exit(right ? 0 : 1);
}

/* Until it was stopped or has ended; how. */
static int state_of(pid_t pid)
{
    int status;

    ASSERT_EQ(waitpid(pid, &status, WUNTRACED), pid);
    return status;
}

/* By every way, for so long: right, soon, and with the worker that there was. */
static void others_work(uint64_t ns)
{
    uint64_t began_ns = pl_now_ns();
    uint64_t seed     = 1000;

    do {
        for (size_t i = 0; i < PL_COUNT(ways); i++) {
            struct plasmon_client *client;
            uint64_t now_ns;

            ASSERT_EQ(setenv("PLASMON_CLIENT_PATH", ways[i], 1), 0);
            client = started_join();
            now_ns = pl_now_ns();
            round_trip(client, seed++);
            ASSERT_TRUE(pl_now_ns() - now_ns < UNDISTURBED_S * UINT64_C(1000000000));
            ASSERT_EQ(started_status(client, "", "restarts"), 0);
            plasmon_finish(client);
        }
    } while (pl_now_ns() - began_ns < ns);
}

/*
 * Each to its place. One that ends well without having come there went another way, because that
 * was refused to it for the moment (a handshake took too long on a loaded machine): it begins anew.
 */
static void victims_start(pid_t *victims, const char *end)
{
    for (size_t i = 0; i < VICTIMS; i++) {
        victims[i] = victim_start(&places[i], end, i);
    }
    for (size_t i = 0; i < VICTIMS; i++) {
        int status = state_of(victims[i]);

        for (int again = 0; again < AGAIN_MAX && status == 0; again++) {
            victims[i] = victim_start(&places[i], end, i);
            status     = state_of(victims[i]);
        }
        if (strcmp(end, "stop") == 0
                ? !WIFSTOPPED(status)
                : !WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL) {
            test_fail(__FILE__, __LINE__, "no %s at %s by %s: ended with %#x", end,
                      places[i].name, places[i].way, (unsigned)status);
        }
    }
}

/* ------------------------------------------------------------------------------- claims */

TEST(clients_that_are_stopped_disturb_nobody_and_go_on_afterwards)
{
    pid_t victims[VICTIMS];

    cluster_begin();
    victims_start(victims, "stop");
    others_work(SILENT_NS);
    for (size_t i = 0; i < VICTIMS; i++) {
        ASSERT_EQ(kill(victims[i], SIGCONT), 0);
    }
    for (size_t i = 0; i < VICTIMS; i++) {
        int status = state_of(victims[i]);

        if (status != 0) {
            test_fail(__FILE__, __LINE__, "stopped at %s by %s: ended with %d",
                      places[i].name, places[i].way, status);
        }
    }
    others_work(0);
}

TEST(clients_that_are_killed_disturb_nobody_and_leave_nothing)
{
    struct plasmon_client *client;
    pid_t victims[VICTIMS];

    cluster_begin();
    victims_start(victims, "kill");
    others_work(0);
    client = started_join();
    started_wait_status(client,
                        "\"bytes_used\":0,"); /* when their sessions' leases are over */
    plasmon_finish(client);
    others_work(0);
}

TEST_MAIN()
