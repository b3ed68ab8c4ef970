/*
 * What was spilled outlives its store: a program whose values are more than devices and host memory
 * hold, while its stores are killed in the middle of it, alone, with a worker, and with the head;
 * the next store takes over what lies in host memory and in files, and the values end right.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "tests/integration/started.h"

/* 16 MiB of values, for 4 MiB of devices and 4 MiB of host memory. */
enum { DEVICES = 2, ARRAYS = 32, COUNT = 1 << 17 };

static char head_address[160], redis_socket[128], journal[160], spill_dir[160];

static pid_t head_start(bool durable)
{
    return STARTED_DAEMON("head.log", "plasmon-head", "--listen", head_address,
                          "--node-lease", "120", durable ? "--journal" : NULL, journal,
                          "--journal-lease", "1");
}

static pid_t store_start(void)
{
    return STARTED_DAEMON("store.log", "plasmon-store", "--head", head_address, "--gpus",
                          "none", "--cpu-devices", "2", "--device-memory", "2M",
                          "--spill-memory", "4M", "--spill-dir", spill_dir, "--socket-dir",
                          cluster_folder(), "--bulk-address", "none", "--store-lease",
                          "120000");
}

static void begin(void)
{
    test_expect_log();
    test_set_timeout(240);
    started_begin();
    (void)snprintf(head_address, sizeof(head_address), "unix:%s/h.sock", cluster_folder());
    (void)snprintf(redis_socket, sizeof(redis_socket), "%s/redis.sock", cluster_folder());
    (void)snprintf(journal, sizeof(journal), "unix:%s?prefix=test:", redis_socket);
    (void)snprintf(spill_dir, sizeof(spill_dir), "%s/files", cluster_folder());
    ASSERT_EQ(mkdir(spill_dir, 0700), 0);
}

static void end(pid_t pid, int signal)
{
    ASSERT_EQ(kill(pid, signal), 0);
    ASSERT_EQ(started_wait(pid), signal == SIGKILL ? 128 + SIGKILL : 0);
}

/* -------------------------------------------------------------------------- the program */

static struct plasmon_ref *refs[ARRAYS];
static float values[ARRAYS];

static void all_make(struct plasmon_client *client)
{
    for (int i = 0; i < ARRAYS; i++) {
        refs[i]   = cluster_fill(client, COUNT, i, i % DEVICES);
        values[i] = (float)i;
    }
}

static void all_add(struct plasmon_client *client)
{
    for (int i = 0; i < ARRAYS; i++) {
        CLUSTER_OK(cluster_axpy(client, refs[i], refs[(i + 1) % ARRAYS], 2, i % DEVICES));
        values[i] += 2.0f * values[(i + 1) % ARRAYS];
    }
}

static void all_wait(struct plasmon_client *client)
{
    CLUSTER_OK(plasmon_wait(client, refs, ARRAYS, ARRAYS, CLUSTER_WAIT_MS, NULL, NULL));
}

static void all_make_and_spill(struct plasmon_client *client)
{
    all_make(client);
    all_wait(client);
    ASSERT_TRUE(started_status(client, "\"spill\"", "file_used") > 0);
}

static void all_expect(struct plasmon_client *client)
{
    for (int i = 0; i < ARRAYS; i++) {
        cluster_expect_all(client, refs[i], COUNT, values[i]);
    }
}

static void expect_taken_over(void)
{
    static char said[1 << 18];

    started_log("store.log", said, sizeof(said));
    ASSERT_CONTAINS(said,
                    "took over what the store before spilled: 4.0 MiB of host memory, ");
    ASSERT_TRUE(strstr(said, "are lost") == NULL);
    started_log("head.log", said, sizeof(said));
    ASSERT_TRUE(strstr(said, "a value that was spilled") == NULL);
}

TEST(what_was_spilled_outlives_its_store)
{
    struct plasmon_client *client;
    pid_t store, head;

    begin();
    head   = head_start(false);
    store  = store_start();
    client = started_join_knowing(head_address, DEVICES);
    all_make_and_spill(client);
    for (int round = 0; round < 2; round++) {
        all_add(client); /* the store dies in the middle of it */
        if (round == 1) {
            /* else what the worker was writing in place is gone with it */
            all_wait(client);
        }
        end(store, SIGKILL);
        if (round == 1) {
            cluster_kill(cluster_find("plasmon-worker", 1));
        }
        all_add(client);
        store = store_start();
        all_expect(client);
        expect_taken_over();
    }
    plasmon_finish(client);
    end(store, SIGTERM);
    end(head, SIGTERM);
    ASSERT_EQ(rmdir(spill_dir), 0); /* nothing is left in it */
}

static void socket_wait(const char *path)
{
    uint64_t deadline_ns = pl_now_ns() + CLUSTER_WAIT_MS * 1000000ull;

    while (!pl_unix_listens(path)) {
        ASSERT_TRUE(pl_now_ns() < deadline_ns);
        (void)usleep(10000); /* nothing tells of it: ask */
    }
}

TEST(and_a_head_that_dies_with_it)
{
    struct plasmon_client *client;
    pid_t store, head, redis;

    if (access("/usr/bin/redis-server", X_OK) != 0) {
        test_skip("there is no /usr/bin/redis-server; tools/setup installs it");
    }
    begin();
    redis =
        STARTED_DAEMON("redis.log", "/usr/bin/redis-server", "--port", "0", "--unixsocket",
                       redis_socket, "--dir", cluster_folder(), "--save", "");
    socket_wait(redis_socket);
    head   = head_start(true);
    store  = store_start();
    client = started_join_knowing(head_address, DEVICES);
    all_make_and_spill(client);
    all_add(client);
    end(head, SIGKILL);
    end(store, SIGKILL);
    store = store_start();
    head  = head_start(true);
    all_add(client);
    all_expect(client);
    expect_taken_over();
    plasmon_finish(client);
    end(store, SIGTERM);
    end(head, SIGTERM);
    end(redis, SIGTERM);
    ASSERT_EQ(rmdir(spill_dir), 0);
}

TEST_MAIN()
