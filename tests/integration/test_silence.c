/*
 * Daemons that are there and do not answer, because they are stopped: what a client says of a head,
 * which no other head makes good, and that a store is asked now and then, and not by each call
 * anew.
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "tests/integration/started.h"

enum {
    COUNT      = 16384,
    GETS       = 6,
    DEADLINE_S = 60
}; /* floats: more than goes by messages anyway */

static const char *why_not(uint32_t timeout_ms)
{
    struct plasmon_options options = PLASMON_OPTIONS_INIT;
    struct plasmon_client *client;

    options.address            = started_address();
    options.token              = getenv("PLASMON_TOKEN");
    options.connect_timeout_ms = timeout_ms;
    ASSERT_STATUS(plasmon_init(&options, &client), PLASMON_ECONNECT);
    return plasmon_error(NULL);
}

TEST(a_head_that_is_stopped_is_not_taken_for_one_that_is_not_there)
{
    char text[8192], stopped[64], remedy[64];
    pid_t head;

    test_set_timeout(120);
    test_expect_log(); /* that the head does not answer */
    started_cluster(1);
    head = cluster_find("plasmon-head", -1);
    (void)snprintf(stopped, sizeof(stopped), "process %d (plasmon-head)", (int)head);
    (void)snprintf(remedy, sizeof(remedy), "`kill -CONT %d`", (int)head);

    ASSERT_EQ(kill(head, SIGSTOP), 0);
    (void)snprintf(text, sizeof(text), "%s", why_not(1000));
    ASSERT_CONTAINS(text, stopped);
    ASSERT_CONTAINS(text, "is stopped");
    ASSERT_CONTAINS(text, remedy);
    ASSERT_TRUE(strstr(text, "is a plasmon-head running") == NULL);
    ASSERT_TRUE(STARTED_RUN(text, sizeof(text), "plasmon", "doctor", "--cluster") != 0);
    ASSERT_CONTAINS(text, stopped);
    ASSERT_CONTAINS(text, remedy);

    ASSERT_EQ(kill(head, SIGCONT), 0);
    plasmon_finish(started_join());
    ASSERT_EQ(STARTED_RUN(text, sizeof(text), "plasmon", "stop"), 0);
    ASSERT_CONTAINS(why_not(500), "is a plasmon-head running");
}

static struct said {
    pthread_mutex_t lock;
    unsigned in_vain; /* calls that waited for the store until their time was over */
    unsigned at_once; /* that were told that it rests */
    unsigned warned;
    char warning[1024];
} said = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void listen_to_log(void *user, int level, const char *module, const char *text)
{
    (void)user;
    (void)level;
    (void)module;
    (void)pthread_mutex_lock(&said.lock);
    if (strstr(text, "what needs it goes by messages") != NULL) {
        said.warned++;
        (void)snprintf(said.warning, sizeof(said.warning), "%s", text);
    } else if (strstr(text, "did not answer in time") != NULL) {
        said.in_vain++;
    } else if (strstr(text, "is asked again in") != NULL) {
        said.at_once++;
    }
    (void)pthread_mutex_unlock(&said.lock);
}

static void get(struct plasmon_client *client, struct plasmon_ref *ref)
{
    static float got[COUNT];

    CLUSTER_OK(plasmon_get(client, ref, got, sizeof(got), PLASMON_FOREVER));
    ASSERT_TRUE(got[0] == 2 && got[COUNT - 1] == 2);
}

/* Mapped, since the store answers again; or the test fails. */
static void map_in_the_end(struct plasmon_client *client, struct plasmon_ref *ref)
{
    uint64_t deadline_ns = pl_now_ns() + (uint64_t)DEADLINE_S * 1000000000u;
    struct plasmon_mapping *mapping;

    while (plasmon_map(client, ref, PLASMON_FOREVER, &mapping) != PLASMON_OK) {
        if (pl_now_ns() >= deadline_ns) {
            CLUSTER_OK(plasmon_map(client, ref, PLASMON_FOREVER, &mapping));
        }
        get(client, ref); /* which goes some way */
    }
    plasmon_unmap(mapping);
}

TEST(a_store_that_is_stopped_is_asked_once_and_then_left_alone)
{
    struct plasmon_client *client;
    struct plasmon_ref *ref;
    char stopped[64], remedy[64];
    pid_t store;

    test_set_timeout(180);
    test_expect_log();
    started_cluster(1);
    store  = cluster_find("plasmon-store", -1);
    client = started_join_knowing(started_address(), 1);
    ref    = cluster_fill(client, COUNT, 2, 0);
    CLUSTER_OK(plasmon_wait(client, &ref, 1, 1, CLUSTER_WAIT_MS, NULL, NULL));
    plasmon_set_log(listen_to_log, NULL, 4);

    ASSERT_EQ(kill(store, SIGSTOP), 0);
    for (int i = 0; i < GETS; i++) {
        get(client, ref);
    }
    (void)pthread_mutex_lock(&said.lock);
    printf("# of %d gets %u waited for the store in vain, %u were told at once\n", GETS,
           said.in_vain, said.at_once);
    (void)snprintf(stopped, sizeof(stopped), "process %d (plasmon-store) is stopped",
                   (int)store);
    (void)snprintf(remedy, sizeof(remedy), "`kill -CONT %d`", (int)store);
    ASSERT_EQ(said.warned, 1);
    ASSERT_CONTAINS(said.warning, stopped);
    ASSERT_CONTAINS(said.warning, remedy);
    ASSERT_TRUE(said.in_vain >= 1);
    ASSERT_TRUE(said.at_once >= 1 && said.in_vain < GETS);
    (void)pthread_mutex_unlock(&said.lock);

    ASSERT_EQ(kill(store, SIGCONT), 0);
    map_in_the_end(client, ref);
    plasmon_finish(client);
}

TEST_MAIN()
