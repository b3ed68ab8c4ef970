/*
 * Namespaces in a real cluster, as programs meet them (docs/security.md): over a quota a call is
 * told EQUOTA, with the quota's name and what is in use. Nothing waits, what is there stays, what
 * was released may be had again, and another namespace does not notice. What is published is there
 * when its client has gone, in its own namespace alone.
 */
#include <poll.h>
#include <stdlib.h>

#include "tests/integration/started.h"

#define LONG_US 600000000 /* it is cancelled */
#define TASKS   8
#define MOST    200000 /* floats that are within it, .. */
#define MORE    100000 /* .. and these are not, beside them */
#define SHORT   16
#define KEPT    "kept"
#define SPACES  "[team]\ndevice_bytes = 1M\ntasks = 8\nsessions = 2\n[default]\n"

/* A cluster of two devices whose head has the two namespaces. */
static void begin(void)
{
    static char path[256];
    FILE *file;

    started_begin();
    (void)snprintf(path, sizeof(path), "%s/spaces", cluster_folder());
    file = fopen(path, "we");
    ASSERT_NOT_NULL(file);
    ASSERT_TRUE(fputs(SPACES, file) >= 0);
    ASSERT_EQ(fclose(file), 0);
    started_cluster_with(2, "--namespaces", path);
    plasmon_finish(started_join_knowing(started_address(), 2));
}

static plasmon_status_t try_join(const char *name_space, struct plasmon_client **out_client)
{
    struct plasmon_options options = PLASMON_OPTIONS_INIT;

    options.address            = started_address();
    options.name_space         = name_space;
    options.connect_timeout_ms = 2 * CLUSTER_WAIT_MS;
    return plasmon_init(&options, out_client);
}

static struct plasmon_client *join(const char *name_space)
{
    struct plasmon_client *client;

    CLUSTER_OK(try_join(name_space, &client));
    cluster_watch(client);
    return client;
}

/* Once the head has heard that another session has ended. */
static struct plasmon_client *join_when_there_is_room(const char *name_space)
{
    plasmon_status_t status = PLASMON_EQUOTA;
    struct plasmon_client *client;

    for (unsigned ms = 0; ms < CLUSTER_WAIT_MS && status == PLASMON_EQUOTA; ms += 10) {
        status = try_join(name_space, &client);
        (void)poll(NULL, 0, status == PLASMON_EQUOTA ? 10 : 0); /* nothing tells of it */
    }
    CLUSTER_OK(status);
    return client;
}

/* It is over, and was refused for a quota, which the text names. */
static void expect_refused(struct plasmon_client *client, struct plasmon_ref *ref,
                           const char *text)
{
    CLUSTER_OK(plasmon_wait(client, &ref, 1, 1, CLUSTER_WAIT_MS, NULL, NULL));
    ASSERT_STATUS(plasmon_state(client, ref), PLASMON_EQUOTA);
    ASSERT_CONTAINS(plasmon_error(client), text);
    CLUSTER_OK(plasmon_release(client, ref));
}

/* What failed counts until the device is through with it: its worker is replaced. */
static void wait_for_room(struct plasmon_client *client)
{
    plasmon_status_t status = PLASMON_EQUOTA;

    for (unsigned ms = 0; ms < CLUSTER_WAIT_MS && status == PLASMON_EQUOTA; ms += 10) {
        struct plasmon_ref *ref = cluster_fill(client, SHORT, 2, 0);

        CLUSTER_OK(plasmon_wait(client, &ref, 1, 1, CLUSTER_WAIT_MS, NULL, NULL));
        status = plasmon_state(client, ref);
        CLUSTER_OK(plasmon_release(client, ref));
        (void)poll(NULL, 0, status == PLASMON_EQUOTA ? 10 : 0); /* nothing tells of it */
    }
    CLUSTER_OK(status);
}

TEST(bytes_over_the_quota_are_refused_until_some_are_released)
{
    struct plasmon_client *team, *other;
    struct plasmon_ref *most, *more;

    begin();
    team  = join("team");
    other = join("default");
    most  = cluster_fill(team, MOST, 3, 0);
    cluster_expect_all(team, most, MOST, 3);
    CLUSTER_OK(cluster_try_fill(team, MORE, 4, 0, &more));
    expect_refused(team, more, "namespace 'team' uses");
    ASSERT_CONTAINS(plasmon_error(team), "device_bytes");
    cluster_expect_all(team, most, MOST, 3); /* what is there stays */
    cluster_expect_all(other, cluster_fill(other, MOST + MORE, 5, 0), MOST + MORE, 5);

    CLUSTER_OK(plasmon_release(team, most));
    cluster_expect_all(team, cluster_fill(team, MORE, 6, 0), MORE, 6);
    plasmon_finish(other);
    plasmon_finish(team);
}

/*
 * A mapping keeps the bytes where they are, so it counts as long as it is there, whether a ref
 * shows them or not.
 */
TEST(bytes_that_are_mapped_count_until_they_are_unmapped)
{
    struct plasmon_client *team;
    struct plasmon_mapping *mapping;
    struct plasmon_ref *most, *more;

    begin();
    team = join("team");
    most = cluster_fill(team, MOST, 3, 0);
    CLUSTER_OK(plasmon_map(team, most, CLUSTER_WAIT_MS, &mapping));
    CLUSTER_OK(plasmon_release(team, most));
    CLUSTER_OK(cluster_try_fill(team, MORE, 4, 0, &more));
    expect_refused(team, more, "device_bytes");
    ASSERT_TRUE(((const float *)plasmon_mapping_data(mapping))[MOST - 1] == 3);
    plasmon_unmap(mapping);
    cluster_expect_all(team, cluster_fill(team, MORE, 6, 0), MORE, 6);
    plasmon_finish(team);
}

/* What a recorded graph makes is no way around it. */
TEST(bytes_over_the_quota_are_refused_to_a_recorded_graph)
{
    struct plasmon_client *team;
    struct plasmon_graph *graph;
    struct plasmon_ref *made[TASKS];

    begin();
    team = join("team");
    CLUSTER_OK(plasmon_graph_begin(team, &graph));
    for (int i = 0; i < TASKS; i++) {
        CLUSTER_OK(cluster_try_fill(team, MOST, i, 0, &made[i]));
    }
    CLUSTER_OK(plasmon_graph_end(team, graph));
    CLUSTER_OK(plasmon_graph_launch(team, graph, NULL, 0, NULL, 0, NULL));
    for (int i = 0; i < TASKS; i++) {
        expect_refused(team, made[i], "device_bytes");
    }
    CLUSTER_OK(plasmon_graph_release(team, graph));
    cluster_expect_all(team, cluster_fill(team, MOST, 6, 0), MOST, 6);
    plasmon_finish(team);
}

/* They wait for one that does not end by itself. */
TEST(tasks_over_the_quota_are_refused_and_the_others_end)
{
    struct plasmon_ref *refs[TASKS], *x, *spin, *refused;
    struct plasmon_client *team, *other;

    test_set_timeout(240);
    begin();
    team  = join("team");
    other = join("default");
    x     = cluster_fill(team, SHORT, 1, 0);
    cluster_expect_all(team, x, SHORT, 1);
    cluster_spin(team, x, LONG_US, 0, &spin);
    for (int i = 1; i < TASKS; i++) {
        refs[i] = cluster_copy(team, x, 0);
    }
    CLUSTER_OK(cluster_try_fill(team, SHORT, 9, 0, &refused));
    expect_refused(team, refused, "namespace 'team' has 8 tasks in flight, its quota");
    cluster_expect_all(other, cluster_fill(other, SHORT, 7, 1), SHORT, 7);

    CLUSTER_OK(plasmon_cancel_force(team, spin));
    CLUSTER_OK(plasmon_wait(team, refs + 1, TASKS - 1, TASKS - 1, CLUSTER_WAIT_MS, NULL,
                            NULL)); /* each failed, since what it read did */
    wait_for_room(team);
    plasmon_finish(other);
    plasmon_finish(team);
}

TEST(sessions_over_the_quota_are_refused)
{
    struct plasmon_client *first, *second, *third;

    begin();
    first  = join("team");
    second = join("team");
    ASSERT_STATUS(try_join("team", &third), PLASMON_EQUOTA);
    ASSERT_CONTAINS(plasmon_error(NULL), "namespace 'team' has 2 sessions, its quota");
    plasmon_finish(join("default"));
    plasmon_finish(second);
    plasmon_finish(join_when_there_is_room("team"));
    plasmon_finish(first);
}

TEST(what_another_client_is_yet_to_write_is_waited_for_and_told)
{
    struct plasmon_client *writer, *reader;
    struct plasmon_ref *x, *spin, *found;
    float out[SHORT];

    begin();
    writer = join("default");
    reader = join("default");
    x      = cluster_fill(writer, SHORT, 1, 0);
    cluster_spin(writer, x, LONG_US, 0, &spin);
    CLUSTER_OK(plasmon_publish(writer, "late", x));
    CLUSTER_OK(plasmon_lookup(reader, "late", &found));
    ASSERT_STATUS(plasmon_get(reader, found, out, sizeof(out), 100), PLASMON_ETIMEDOUT);
    ASSERT_CONTAINS(plasmon_error(reader), "another client's task is yet to write it");
    ASSERT_STATUS(plasmon_lookup(reader, "early", &found), PLASMON_ENOENT);
    ASSERT_NULL(strstr(plasmon_error(reader), "private"));
    CLUSTER_OK(plasmon_cancel_force(writer, spin));
    ASSERT_STATUS(plasmon_get(reader, found, out, sizeof(out), CLUSTER_WAIT_MS),
                  PLASMON_ECANCELLED);
    plasmon_finish(reader);
    plasmon_finish(writer);
}

TEST(what_is_published_outlives_its_client_in_its_own_namespace)
{
    struct plasmon_client *team, *other;
    struct plasmon_ref *ref;

    begin();
    team = join("team");
    ref  = cluster_put(team, SHORT, 5, 0);
    CLUSTER_OK(plasmon_publish(team, KEPT, ref));
    CLUSTER_OK(plasmon_release(team, ref));
    plasmon_finish(team);

    other = join("default");
    ASSERT_STATUS(plasmon_lookup(other, KEPT, &ref), PLASMON_ENOENT);
    plasmon_finish(other);
    team = join("team");
    CLUSTER_OK(plasmon_lookup(team, KEPT, &ref));
    cluster_expect_ramp(team, ref, SHORT, 5, 1);
    plasmon_finish(team);
}

TEST_MAIN()
