/*
 * A started cluster whose store dies: its workers go on, hand back what they have to the next one,
 * and nothing that anybody put or made is lost.
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "store/handback.h"
#include "tests/integration/one_way.h"
#include "tests/integration/started.h"

#define DEVICES 3
#define COUNT   (3 << 20)  /* floats: 12 MiB */
#define LARGE   (20 << 20) /* 80 MiB: more than the chunks that there are */

static char head_target[160];

static void head_start(void)
{
    started_begin();
    (void)snprintf(head_target, sizeof(head_target), "unix:%s/h.sock", cluster_folder());
    (void)STARTED_DAEMON("head.log", "plasmon-head", "--listen", head_target);
}

static pid_t store_start_with(const char *target, const char *log, const char *lease_ms,
                              const char *devices, const char *memory)
{
    return STARTED_DAEMON(log, "plasmon-store", "--head", target, "--gpus", "none",
                          "--cpu-devices", devices, "--device-memory", memory,
                          "--socket-dir", cluster_folder(), "--bulk-address", "none",
                          "--store-lease", lease_ms);
}

static pid_t store_start_at(const char *target, const char *log, const char *lease_ms)
{
    return store_start_with(target, log, lease_ms, "3", "1G");
}

static pid_t store_start(const char *lease_ms)
{
    return store_start_at(head_target, "store.log", lease_ms);
}

static void store_kill(pid_t store)
{
    ASSERT_EQ(kill(store, SIGKILL), 0);
    ASSERT_EQ(started_wait(store), 128 + SIGKILL);
}

/* Lines of the library that say that bytes went by messages although their device is of this host. */
static _Atomic unsigned by_messages;

static void count_line(void *user, int level, const char *module, const char *text)
{
    (void)user;
    (void)level;
    if (strcmp(module, "client") == 0 && (strstr(text, "in another way") != NULL ||
                                          strncmp(text, "ref ", strlen("ref ")) == 0)) {
        by_messages++;
    }
}

/* A client whose lines are counted. */
static struct plasmon_client *join_counting(void)
{
    plasmon_set_log(count_line, NULL, 3); /* debug */
    return started_join_knowing(head_target, DEVICES);
}

static void expect_mapped(const struct plasmon_mapping *mapping, int64_t count, float first,
                          float step)
{
    const float *data = plasmon_mapping_data(mapping);

    for (int64_t i = 0; i < count; i++) {
        ASSERT_TRUE(data[i] == first + step * (float)i);
    }
}

/*
 * At each of these a store that takes over lacks a descriptor, once. It ends and says so; the one
 * after it finds the same workers with all that they have.
 */
static void expect_next_takes_over(const char *fault, const char *lack)
{
    struct plasmon_client *client;
    struct plasmon_ref *made[DEVICES];
    pid_t store, workers[DEVICES];

    test_expect_log();
    head_start();
    store  = store_start("60000");
    client = started_join_knowing(head_target, DEVICES);
    for (int i = 0; i < DEVICES; i++) {
        made[i]    = cluster_put(client, COUNT, (float)(i + 1), i);
        workers[i] = cluster_find("plasmon-worker", i);
    }
    CLUSTER_OK(plasmon_wait(client, made, DEVICES, DEVICES, CLUSTER_WAIT_MS, NULL, NULL));
    cluster_expect_ramp(client, made[0], COUNT, 1,
                        1); /* so that the store has this client */
    store_kill(store);
    ASSERT_EQ(setenv("PLASMON_FAULT", fault, 1), 0);
    store = store_start_at(head_target, "lacking.log", "60000");
    ASSERT_EQ(unsetenv("PLASMON_FAULT"), 0);
    ASSERT_EQ(started_wait(store), 1);
    (void)started_wait_log("lacking.log", NULL, lack);
    (void)started_wait_log("lacking.log", NULL, "and start this store again");
    store = store_start_at(head_target, "next.log", "60000");
    (void)started_wait_log("next.log", NULL, "took over the memory of 3 devices");
    for (int i = 0; i < DEVICES; i++) {
        cluster_expect_ramp(client, made[i], COUNT, (float)(i + 1), 1);
        ASSERT_EQ(cluster_find("plasmon-worker", i), workers[i]);
    }
    plasmon_finish(client);
    ASSERT_EQ(kill(store, SIGTERM), 0);
    ASSERT_EQ(started_wait(store), 0);
}

TEST(a_store_that_lacks_a_descriptor_to_take_over_leaves_it_to_the_next)
{
    expect_next_takes_over("store/fd.reopen:1", "a limit was reached");
}

/* Who lives and cannot be watched was taken for dead, and another one started beside it. */
TEST(a_store_that_cannot_watch_a_worker_leaves_it_to_the_next)
{
    expect_next_takes_over("store/pidfd.none_left:2",
                           "cannot be watched: Too many open files");
}

/* What it reads was given to others. */
TEST(a_store_that_cannot_watch_a_client_leaves_it_to_the_next)
{
    expect_next_takes_over("store/pidfd.none_left:3",
                           "clients of the store before cannot be watched");
}

/* Nobody tells a program that there is a store again: when it looked a moment ago, it looks in a moment. */
static struct plasmon_mapping *map_at_last(struct plasmon_client *client,
                                           struct plasmon_ref *ref)
{
    struct plasmon_mapping *mapping;

    for (unsigned ms = 0;; ms += 20) {
        plasmon_status_t status = plasmon_map(client, ref, CLUSTER_WAIT_MS, &mapping);

        if (status == PLASMON_OK) {
            return mapping;
        }
        ASSERT_EQ(status, PLASMON_EUNREACHABLE);
        ASSERT_TRUE(ms < CLUSTER_WAIT_MS);
        (void)usleep(20000);
    }
}

/*
 * What is put and made now goes through memory that is mapped: into new chunks, too. `first`:
 * number of the host's first device.
 */
static void expect_shared(struct plasmon_client *client, int first)
{
    struct plasmon_ref *put, *made;
    struct plasmon_mapping *mapping;

    by_messages = 0;
    for (int i = first; i < first + DEVICES; i++) {
        put = cluster_put(client, LARGE, 3, i);
        cluster_expect_ramp(client, put, LARGE, 3, 1);
        made = cluster_fill(client, COUNT, 6, i);
        cluster_expect_all(client, made, COUNT, 6);
        CLUSTER_OK(plasmon_map(client, made, CLUSTER_WAIT_MS, &mapping));
        expect_mapped(mapping, COUNT, 6, 0);
        plasmon_unmap(mapping);
        CLUSTER_OK(plasmon_release(client, put));
        CLUSTER_OK(plasmon_release(client, made));
    }
    ASSERT_EQ(by_messages, 0);
}

TEST(nothing_is_lost_with_a_store_that_another_one_follows)
{
    struct plasmon_ref *put, *made[DEVICES], *large, *sum;
    struct plasmon_mapping *mapping, *before;
    struct plasmon_client *client;
    pid_t store, workers[DEVICES], again[DEVICES];

    test_expect_log();
    head_start();
    store  = store_start("60000");
    client = join_counting();
    put    = cluster_put(client, COUNT, 5, 1);
    CLUSTER_OK(plasmon_map(client, put, CLUSTER_WAIT_MS, &before));
    for (int i = 0; i < DEVICES; i++) {
        made[i] = cluster_fill(client, COUNT, i + 1, i);
        cluster_expect_all(client, made[i], COUNT, (float)(i + 1));
    }
    for (int i = 0; i < DEVICES; i++) {
        workers[i] = cluster_find("plasmon-worker", i);
    }

    cluster_spin(client, made[0], 300000, 0, NULL); /* it runs while the store dies */
    store_kill(store);
    large = cluster_fill(client, LARGE, 7, 0); /* a chunk that no store knows */
    store = store_start("60000");
    (void)started_wait_log("store.log", NULL, "took over the memory of 3 devices");
    sum = cluster_copy(client, large, 2); /* and a peer copies from it */
    CLUSTER_OK(cluster_axpy(client, sum, large, 1, 2));

    cluster_expect_all(client, sum, LARGE, 14);
    mapping = map_at_last(client, large); /* its chunk came after our store */
    expect_mapped(mapping, LARGE, 7, 0);
    plasmon_unmap(mapping);
    (void)started_wait_log("store.log", NULL, "of the store before is back");
    expect_shared(client, 0);
    /* What was pinned is pinned: nobody writes there. */
    CLUSTER_OK(cluster_axpy(client, put, made[1], 1, 1));
    cluster_expect_ramp(client, put, COUNT, 7, 1);
    expect_mapped(before, COUNT, 5, 1);
    plasmon_unmap(before);
    CLUSTER_OK(cluster_axpy(client, put, made[1], -1, 1));
    cluster_expect_ramp(client, put, COUNT, 5, 1);
    for (int i = 0; i < DEVICES; i++) {
        cluster_expect_all(client, made[i], COUNT, (float)(i + 1));
        again[i] = cluster_find("plasmon-worker", i);
        ASSERT_EQ(again[i], workers[i]); /* nobody was restarted */
    }

    /* A worker that it took over dies like any other. */
    cluster_kill(workers[1]);
    CLUSTER_OK(cluster_axpy(client, made[1], put, 0, 1));
    cluster_expect_all(client, made[1], COUNT, 2);
    cluster_expect_ramp(client, put, COUNT, 5, 1);
    plasmon_finish(client);

    /* a program that knew no other store */
    client = started_join_knowing(head_target, DEVICES);
    put    = cluster_put(client, COUNT, 1, 2);
    cluster_expect_ramp(client, put, COUNT, 1, 1);
    plasmon_finish(client);
}

/*
 * The head has heard it, and with it its workers; it has heard nothing, so it has no session that
 * the next one could show.
 */
TEST(a_store_that_was_never_welcomed_is_who_it_was_to_its_successor)
{
    char head_path[128], relay_path[128], relay_target[160], socket[128], said[1 << 16];
    struct plasmon_ref *put, *made[DEVICES];
    struct plasmon_client *client;
    struct one_way *relay;
    pid_t store;

    test_expect_log();
    head_start();
    (void)snprintf(head_path, sizeof(head_path), "%s/h.sock", cluster_folder());
    (void)snprintf(relay_path, sizeof(relay_path), "%s/r.sock", cluster_folder());
    (void)snprintf(relay_target, sizeof(relay_target), "unix:%s", relay_path);
    (void)snprintf(socket, sizeof(socket), "%s/store-", cluster_folder());
    relay  = one_way_create(relay_path, head_path,
                            socket); /* which only a store's hello names */
    store  = store_start_at(relay_target, "first.log", "60000");
    client = started_join_knowing(head_target, DEVICES);
    ASSERT_TRUE(one_way_met(relay));
    put = cluster_put(client, COUNT, 5, 1);
    for (int i = 0; i < DEVICES; i++) {
        made[i] = cluster_fill(client, COUNT, i + 1, i);
        cluster_expect_all(client, made[i], COUNT, (float)(i + 1));
    }
    store_kill(store);
    started_log("first.log", said, sizeof(said));
    ASSERT_TRUE(strstr(said, "joined cluster") == NULL);

    one_way_mend(relay);
    store = store_start_at(relay_target, "store.log", "60000");
    (void)started_wait_log("store.log", NULL, "took over the memory of 3 devices");
    (void)started_wait_log("store.log", NULL, "joined cluster");
    cluster_expect_ramp(client, put, COUNT, 5, 1);
    for (int i = 0; i < DEVICES; i++) {
        cluster_expect_all(client, made[i], COUNT, (float)(i + 1));
        CLUSTER_OK(cluster_axpy(client, made[i], put, 0, i));
        cluster_expect_all(client, made[i], COUNT, (float)(i + 1));
    }
    started_log("head.log", said, sizeof(said));
    ASSERT_TRUE(strstr(said, "took its place") == NULL);
    plasmon_finish(client);
    ASSERT_EQ(kill(store, SIGTERM), 0);
    ASSERT_EQ(started_wait(store), 0);
    one_way_destroy(relay);
}

/* Who changes them and starts a store again would not see that nothing came of it. */
TEST(options_that_a_store_which_takes_over_leaves_are_named)
{
    static const struct {
        const char *devices, *memory;
        bool named;
    } starts[]       = {{"3", "1G", false}, {"2", "1G", true}, {"3", "512M", true}};
    const char *line = "goes on with the 0 GPUs and 3 CPU devices that it took over";
    char log[32], said[8192];
    pid_t store;

    test_expect_log();
    head_start();
    store = store_start("60000");
    (void)started_wait_log("store.log", NULL, "joined cluster");
    for (size_t i = 0; i < PL_COUNT(starts); i++) {
        store_kill(store);
        (void)snprintf(log, sizeof(log), "store-%zu.log", i);
        store = store_start_with(head_target, log, "60000", starts[i].devices,
                                 starts[i].memory);
        (void)started_wait_log(log, NULL, "joined cluster");
        started_log(log, said, sizeof(said));
        ASSERT_EQ(strstr(said, line) != NULL, starts[i].named);
    }
    ASSERT_EQ(kill(store, SIGTERM), 0);
    ASSERT_EQ(started_wait(store), 0);
}

TEST(a_worker_that_dies_while_there_is_no_store_is_replaced_by_the_next)
{
    struct plasmon_ref *made[DEVICES], *put;
    struct plasmon_client *client;
    pid_t store;

    test_expect_log();
    head_start();
    store  = store_start("60000");
    client = started_join_knowing(head_target, DEVICES);
    put    = cluster_put(client, COUNT, 5, 2);
    for (int i = 0; i < DEVICES; i++) {
        made[i] = cluster_fill(client, COUNT, i + 1, i);
        cluster_expect_all(client, made[i], COUNT, (float)(i + 1));
    }
    for (int round = 0; round < 2; round++) {
        pid_t first = cluster_find("plasmon-worker", 0),
              last  = cluster_find("plasmon-worker", 2);

        store_kill(store);
        cluster_kill(first);
        ASSERT_EQ(kill(last, SIGSTOP), 0); /* one that cannot hand back, and might write */
        store = store_start("60000");
        for (int i = 0; i < DEVICES; i++) {
            CLUSTER_OK(cluster_axpy(client, made[i], put, 0, i));
            cluster_expect_all(client, made[i], COUNT, (float)(i + 1));
        }
        cluster_expect_ramp(client, put, COUNT, 5, 1);
        ASSERT_TRUE(kill(last, 0) != 0);
    }
    plasmon_finish(client);
}

/* Stopped, or without a processor: what workers say meanwhile is heard, however long it takes. */
TEST(a_store_that_stands_still_while_its_workers_hand_back_takes_over_all_the_same)
{
    struct plasmon_ref *made[DEVICES];
    struct plasmon_client *client;
    pid_t store, workers[DEVICES];

    test_expect_log();
    head_start();
    store  = store_start("60000");
    client = started_join_knowing(head_target, DEVICES);
    for (int i = 0; i < DEVICES; i++) {
        made[i] = cluster_fill(client, COUNT, i + 1, i);
        cluster_expect_all(client, made[i], COUNT, (float)(i + 1));
        workers[i] = cluster_find("plasmon-worker", i);
    }
    store_kill(store);
    for (int i = 0; i < DEVICES; i++) {
        ASSERT_EQ(kill(workers[i], SIGSTOP), 0); /* so that it waits until it is stopped */
    }
    store = store_start("60000");
    (void)started_wait_log("store.log", NULL, "waiting for its workers");
    ASSERT_EQ(kill(store, SIGSTOP), 0);
    for (int i = 0; i < DEVICES; i++) {
        ASSERT_EQ(kill(workers[i], SIGCONT), 0);
    }
    (void)usleep((STORE_HANDBACK_FIRST_MS + 500) * 1000);
    ASSERT_EQ(kill(store, SIGCONT), 0);
    (void)started_wait_log("store.log", NULL, "took over the memory of 3 devices");
    for (int i = 0; i < DEVICES; i++) {
        cluster_expect_all(client, made[i], COUNT, (float)(i + 1));
        ASSERT_EQ(cluster_find("plasmon-worker", i), workers[i]);
    }
    plasmon_finish(client);
}

/* It knows so, and need not wait for anybody. */
TEST(a_store_whose_predecessor_died_with_all_its_workers_finds_that_nobody_lives)
{
    struct plasmon_client *client;
    size_t from = 0;
    pid_t store;

    test_expect_log();
    head_start();
    store  = store_start("60000");
    client = started_join_knowing(head_target, DEVICES);
    cluster_expect_all(client, cluster_fill(client, COUNT, 1, 1), COUNT, 1);
    plasmon_finish(client);
    ASSERT_TRUE(!cluster_has_argument(cluster_find("plasmon-worker", 0), "--in-haste"));
    store_kill(store);
    for (int i = 0; i < DEVICES; i++) {
        cluster_kill(cluster_find("plasmon-worker", i));
    }
    store = store_start("60000");
    (void)started_wait_log("store.log", &from, "nobody else of its workers lives");
    ASSERT_TRUE(cluster_has_argument(cluster_find("plasmon-worker", 0), "--in-haste"));
    (void)started_wait_log("store.log", &from, "what it kept is gone");
    (void)started_wait_log("head.log", NULL, "another store of its host took its place");
    client = started_join_knowing(head_target, DEVICES);
    cluster_expect_all(client, cluster_fill(client, COUNT, 1, PLASMON_ANYWHERE), COUNT, 1);
    plasmon_finish(client);

    /* One that lives is heard, and nobody waits for the others. */
    store_kill(store);
    cluster_kill(cluster_find("plasmon-worker", 2));
    cluster_kill(cluster_find("plasmon-worker", 0));
    store = store_start("60000");
    (void)started_wait_log("store.log", &from, "nobody else of its workers lives");
    (void)started_wait_log("store.log", &from, "took over the memory of 3 devices");
    ASSERT_EQ(kill(store, SIGTERM), 0);
    ASSERT_EQ(started_wait(store), 0);
}

/* Another memory, under other numbers. What the program has mapped of the old one is its own. */
TEST(a_program_goes_over_to_the_memory_of_another_store)
{
    struct plasmon_ref *put, *made, *again;
    struct plasmon_mapping *mapping, *before[3];
    struct plasmon_client *client;
    void *old, *fresh;
    pid_t store;

    test_expect_log();
    head_start();
    store  = store_start("60000");
    client = join_counting();
    put    = cluster_put(client, COUNT, 5, 1);
    CLUSTER_OK(plasmon_map(client, put, CLUSTER_WAIT_MS, &before[0]));
    CLUSTER_OK(plasmon_host_alloc(client, COUNT * sizeof(float), &old));
    for (int round = 0; round < 2; round++) {
        store_kill(store);
        for (int i = 0; i < DEVICES; i++) {
            cluster_kill(cluster_find("plasmon-worker", i));
        }
        store = store_start("60000");
        (void)started_wait_log("head.log", NULL,
                               "another store of its host took its place");
        started_wait_devices(client, DEVICES);
        made    = cluster_fill(client, COUNT, 4, PLASMON_ANYWHERE);
        mapping = map_at_last(client, made);
        expect_mapped(mapping, COUNT, 4, 0);
        expect_mapped(before[0], COUNT, 5, 1);
        before[round + 1] = mapping;
    }
    expect_mapped(before[1], COUNT, 4, 0);
    expect_shared(client, 2 * DEVICES);
    for (int i = 0; i < 3; i++) {
        plasmon_unmap(before[i]);
    }

    /* Memory that the old store had shared is memory all the same. */
    again = cluster_put(client, COUNT, 2, PLASMON_ANYWHERE);
    CLUSTER_OK(plasmon_get(client, again, old, COUNT * sizeof(float), CLUSTER_WAIT_MS));
    ASSERT_TRUE(((const float *)old)[COUNT - 1] == (float)(COUNT + 1));
    CLUSTER_OK(plasmon_host_alloc(client, COUNT * sizeof(float), &fresh));
    CLUSTER_OK(plasmon_get(client, again, fresh, COUNT * sizeof(float), CLUSTER_WAIT_MS));
    ASSERT_TRUE(((const float *)fresh)[COUNT - 1] == (float)(COUNT + 1));
    CLUSTER_OK(plasmon_host_free(client, old));
    CLUSTER_OK(plasmon_host_free(client, fresh));
    plasmon_finish(client);
    ASSERT_EQ(kill(store, SIGTERM), 0);
    ASSERT_EQ(started_wait(store), 0);
}

/* A store that is ended leaves what programs have mapped, and their pins, as they are. */
TEST(a_mapping_is_let_go_of_when_its_store_was_ended)
{
    struct plasmon_ref *put, *made;
    struct plasmon_mapping *before, *mapping;
    struct plasmon_client *client;
    pid_t store;

    test_expect_log();
    head_start();
    store  = store_start("60000");
    client = join_counting();
    put    = cluster_put(client, COUNT, 5, 1);
    CLUSTER_OK(plasmon_map(client, put, CLUSTER_WAIT_MS, &before));
    ASSERT_EQ(kill(store, SIGTERM), 0);
    ASSERT_EQ(started_wait(store), 0);
    expect_mapped(before, COUNT, 5, 1);
    store = store_start("60000");
    (void)started_wait_log("head.log", NULL, " left the cluster: ");
    started_wait_devices(client, DEVICES);
    made    = cluster_fill(client, COUNT, 4, PLASMON_ANYWHERE);
    mapping = map_at_last(client, made);
    expect_mapped(before, COUNT, 5, 1);
    plasmon_unmap(before);
    expect_mapped(mapping, COUNT, 4, 0);
    plasmon_unmap(mapping);
    plasmon_finish(client);
    ASSERT_EQ(kill(store, SIGTERM), 0);
    ASSERT_EQ(started_wait(store), 0);
}

struct allocation {
    struct plasmon_client *client;
    void *data;
    plasmon_status_t status;
};

static void *allocate(void *user)
{
    struct allocation *allocation = user;

    allocation->status =
        plasmon_host_alloc(allocation->client, COUNT * sizeof(float), &allocation->data);
    if (allocation->status != PLASMON_OK) {
        printf("# %s\n", plasmon_error(allocation->client));
    }
    return NULL;
}

/* The session goes on, so ECLOSED would be a lie. */
TEST(who_wants_host_memory_while_there_is_no_store_gets_it_of_the_next)
{
    struct allocation allocation = {.data = NULL};
    struct plasmon_ref *put, *got;
    pthread_t thread;
    pid_t store;

    test_expect_log();
    head_start();
    store             = store_start("60000");
    allocation.client = started_join_knowing(head_target, DEVICES);
    put               = cluster_put(allocation.client, COUNT, 5, 1);
    store_kill(store);
    ASSERT_EQ(pthread_create(&thread, NULL, allocate, &allocation), 0);
    (void)usleep(300000);
    store = store_start("60000");
    ASSERT_EQ(pthread_join(thread, NULL), 0);
    ASSERT_OK(allocation.status);
    CLUSTER_OK(plasmon_get_async(allocation.client, put, allocation.data,
                                 COUNT * sizeof(float), &got));
    CLUSTER_OK(plasmon_wait(allocation.client, &got, 1, 1, CLUSTER_WAIT_MS, NULL, NULL));
    ASSERT_TRUE(((const float *)allocation.data)[COUNT - 1] == (float)(COUNT + 4));
    plasmon_finish(allocation.client);
}

TEST(workers_without_a_store_end_when_its_lease_is_over)
{
    struct plasmon_client *client;
    pid_t store;

    test_expect_log();
    head_start();
    store  = store_start("300");
    client = started_join_knowing(head_target, DEVICES);
    cluster_expect_all(client, cluster_fill(client, COUNT, 1, 1), COUNT, 1);
    store_kill(store);
    for (unsigned ms = 0; cluster_count("plasmon-worker") > 0; ms += 20) {
        ASSERT_TRUE(ms < CLUSTER_WAIT_MS);
        (void)usleep(20000);
    }
    store = store_start("300"); /* finds nobody, and begins anew */
    (void)started_wait_log("head.log", NULL, "another store of its host took its place");
    plasmon_finish(client);
    client = started_join_knowing(head_target, DEVICES);
    cluster_expect_all(client, cluster_fill(client, COUNT, 1, PLASMON_ANYWHERE), COUNT, 1);
    plasmon_finish(client);
    ASSERT_EQ(kill(store, SIGTERM), 0);
    ASSERT_EQ(started_wait(store), 0);
}

TEST_MAIN()
