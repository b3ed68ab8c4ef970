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
#include "tests/integration/one_way.h"
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

static pid_t head;

static void head_start(void)
{
    head = STARTED_DAEMON("head.log", "plasmon-head", "--listen", started_address());
}

static void store_start(const char *head_at)
{
    (void)STARTED_DAEMON("store.log", "plasmon-store", "--head", head_at, "--cpu-devices",
                         "1", "--gpus", "none", "--device-memory", "512M", "--bulk-address",
                         "127.0.0.1", "--bulk-plain");
}

static void faults_begin(void)
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
}

static void cluster_begin(void)
{
    faults_begin();
    head_start();
    store_start(started_address());
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

/* One that knows nothing of what there was. */
static struct plasmon_client *head_anew(void)
{
    struct plasmon_client *client;

    ASSERT_EQ(kill(head, SIGKILL), 0);
    (void)started_wait(head);
    head_start();
    client = started_join_knowing(started_address(), 1);
    started_wait_devices(client, 1);
    return client;
}

TEST(what_a_client_has_mapped_is_in_nobodys_way_when_the_head_is_started_anew)
{
    struct plasmon_shape shape = cluster_vector(PLASMON_U8, 100000);
    static uint8_t bytes[100000];
    struct plasmon_ref *ref;
    struct plasmon_client *before, *after;
    struct plasmon_mapping *mapped[2];

    cluster_begin();
    ASSERT_EQ(unsetenv("PLASMON_CLIENT_PATH"), 0);
    before = started_join_knowing(started_address(), 1);
    started_wait_devices(before, 1);
    for (int i = 0; i < 4; i++) { /* the second and the last of four */
        memset(bytes, 0xe0 + i, sizeof(bytes));
        CLUSTER_OK(plasmon_put(before, bytes, &shape, NULL, &ref));
        if (i % 2 == 1) {
            CLUSTER_OK(plasmon_map(before, ref, CLUSTER_WAIT_MS, &mapped[i / 2]));
        }
    }
    after = head_anew();
    for (int i = 0; i < 8; i++) {
        memset(bytes, i, sizeof(bytes));
        CLUSTER_OK(plasmon_put(after, bytes, &shape, NULL, &ref));
        bytes[0] = 0xff;
        CLUSTER_OK(plasmon_get(after, ref, bytes, sizeof(bytes), CLUSTER_WAIT_MS));
        ASSERT_EQ(bytes[0], i);
    }
    ASSERT_EQ(((const uint8_t *)plasmon_mapping_data(mapped[0]))[99999], 0xe1);
    ASSERT_EQ(((const uint8_t *)plasmon_mapping_data(mapped[1]))[99999], 0xe3);
    plasmon_finish(after);
    plasmon_finish(before);
}

/* A client of a process of its own, which stops at that point. */
static struct plasmon_client *join_to_stop(const char *fault)
{
    struct plasmon_client *client;

    ASSERT_EQ(setenv("PLASMON_FAULT", fault, 1), 0);
    pl_fault_from_env("client");
    client = started_join_knowing(started_address(), 1);
    started_wait_devices(client, 1);
    plasmon_finish(client);
    return started_join();
}

static uint8_t *marked_bytes(void)
{
    uint8_t *bytes = malloc(BYTES);

    ASSERT_NOT_NULL(bytes);
    memset(bytes, 0xee, BYTES);
    return bytes;
}

/* Puts into memory that it has mapped; stops in front of its first byte. */
static pid_t writer_start(void)
{
    struct plasmon_shape shape = cluster_vector(PLASMON_U8, (int64_t)BYTES);
    struct plasmon_client *client;
    struct plasmon_ref *ref;
    pid_t pid = fork();

    ASSERT_TRUE(pid >= 0);
    if (pid > 0) {
        return pid;
    }
    ASSERT_EQ(unsetenv("PLASMON_CLIENT_PATH"), 0);
    client = join_to_stop("client/client.put_copy=stop");
    /* it may not have heard yet */
    (void)!plasmon_put(client, marked_bytes(), &shape, NULL, &ref);
    _exit(0);
}

/*
 * Its session is over, and so is what it was about to write to: another head knows nothing of it.
 * What it writes all the same must not be in anybody's object.
 */
TEST(who_writes_on_when_his_session_is_over_writes_into_no_object)
{
    enum { OBJECTS = 8 };
    struct plasmon_shape shape = cluster_vector(PLASMON_U8, (int64_t)BYTES);
    struct plasmon_ref *refs[OBJECTS];
    struct plasmon_client *client;
    uint8_t *bytes;
    pid_t writer;

    cluster_begin();
    writer = writer_start();
    ASSERT_TRUE(WIFSTOPPED(state_of(writer)));
    ASSERT_EQ(unsetenv("PLASMON_CLIENT_PATH"), 0);
    client = head_anew();
    bytes  = malloc(BYTES);
    ASSERT_NOT_NULL(bytes);
    for (int i = 0; i < OBJECTS; i++) {
        memset(bytes, i + 1, BYTES);
        CLUSTER_OK(plasmon_put(client, bytes, &shape, NULL, &refs[i]));
    }
    ASSERT_EQ(kill(writer, SIGCONT), 0);
    ASSERT_EQ(state_of(writer), 0);
    for (int i = 0; i < OBJECTS; i++) {
        CLUSTER_OK(plasmon_get(client, refs[i], bytes, BYTES, CLUSTER_WAIT_MS));
        for (uint64_t k = 0; k < BYTES; k++) {
            if (bytes[k] != i + 1) {
                test_fail(__FILE__, __LINE__, "object %d, byte %llu: %#x", i,
                          (unsigned long long)k, bytes[k]);
            }
        }
    }
    free(bytes);
    plasmon_finish(client);
}

/*
 * Puts, and gets that; stops when it has been told where that lies. Ends with 0 when it got its own
 * bytes, with 1 when it got none, and with 2 when it got others.
 */
static pid_t reader_start(const char *way)
{
    struct plasmon_shape shape = cluster_vector(PLASMON_U8, (int64_t)BYTES);
    struct plasmon_client *client;
    plasmon_status_t status;
    struct plasmon_ref *ref;
    uint8_t *bytes;
    pid_t pid = fork();

    ASSERT_TRUE(pid >= 0);
    if (pid > 0) {
        return pid;
    }
    ASSERT_EQ(setenv("PLASMON_CLIENT_PATH", way, 1), 0);
    client = join_to_stop("client/client.get_located=stop");
    bytes  = marked_bytes();
    CLUSTER_OK(plasmon_put(client, bytes, &shape, NULL, &ref));
    memset(bytes, 0, BYTES);
    status = plasmon_get(client, ref, bytes, BYTES, CLUSTER_WAIT_MS);
    for (uint64_t i = 0; i < BYTES && status == PLASMON_OK; i++) {
        if (bytes[i] != 0xee) {
            _exit(2);
        }
    }
    _exit(status == PLASMON_OK ? 0 : 1);
}

static void nothing_of_another_head(const char *way)
{
    enum { OBJECTS = 8 };
    static uint8_t bytes[BYTES];
    struct plasmon_shape shape = cluster_vector(PLASMON_U8, (int64_t)BYTES);
    struct plasmon_client *client;
    struct plasmon_ref *ref;
    pid_t reader;

    cluster_begin();
    reader = reader_start(way);
    ASSERT_TRUE(WIFSTOPPED(state_of(reader)));
    ASSERT_EQ(setenv("PLASMON_CLIENT_PATH", way, 1), 0);
    client = head_anew();
    for (int i = 0; i < OBJECTS; i++) {
        memset(bytes, i + 1, BYTES);
        CLUSTER_OK(plasmon_put(client, bytes, &shape, NULL, &ref));
    }
    CLUSTER_OK(plasmon_wait(client, &ref, 1, 1, CLUSTER_WAIT_MS, NULL, NULL));
    ASSERT_EQ(kill(reader, SIGCONT), 0);
    ASSERT_EQ(state_of(reader), 1 << 8);
    plasmon_finish(client);
}

TEST(who_was_told_where_a_value_lies_gets_nothing_of_another_head)
{
    nothing_of_another_head("mapped");
}

TEST(nor_does_he_get_it_through_a_lane)
{
    nothing_of_another_head("staged");
}

/* ---------------------------------------------------------------------- leases that end */

enum { COUNT = 1 << 20 }; /* of floats: 4 MiB */
#define LATE_MS 5500 /* who has not heard of the head for so long asks (SESSION_SURE_NS) */

/* Stops when it has been told where the value lies, by a get or by a map. */
struct looker {
    const char *way;
    const char *fault;
    pid_t pid;
};

static plasmon_status_t look_get(struct plasmon_client *client, struct plasmon_ref *ref,
                                 float *out)
{
    return plasmon_get(client, ref, out, COUNT * sizeof(float), CLUSTER_WAIT_MS);
}

static plasmon_status_t look_map(struct plasmon_client *client, struct plasmon_ref *ref,
                                 float *out)
{
    struct plasmon_mapping *mapping;
    plasmon_status_t status = plasmon_map(client, ref, CLUSTER_WAIT_MS, &mapping);

    if (status == PLASMON_OK) {
        memcpy(out, plasmon_mapping_data(mapping), COUNT * sizeof(float));
    }
    return status;
}

/* Ends with 0 when it was given the value of then, with 1 when it got none, and with 2 for another. */
static void look(const char *head_at, const struct looker *looker)
{
    bool maps  = strstr(looker->fault, "map") != NULL;
    float *out = calloc(COUNT, sizeof(*out));
    struct plasmon_client *client;
    struct plasmon_ref *ref;
    plasmon_status_t status;

    ASSERT_NOT_NULL(out);
    ASSERT_EQ(setenv("PLASMON_CLIENT_PATH", looker->way, 1), 0);
    ASSERT_EQ(setenv("PLASMON_FAULT", looker->fault, 1), 0);
    pl_fault_from_env("client");
    client = started_join_knowing(head_at, 1);
    started_wait_devices(client, 1);
    plasmon_finish(client);
    CLUSTER_OK(started_try_join(head_at, NULL, &client));
    while ((status = plasmon_lookup(client, "value", &ref)) == PLASMON_ENOENT) {
        (void)poll(NULL, 0, 20);
    }
    CLUSTER_OK(status);
    status = (maps ? look_map : look_get)(client, ref, out);
    for (int i = 0; i < COUNT && status == PLASMON_OK; i++) {
        if (out[i] != 1) {
            _exit(2);
        }
    }
    _exit(status == PLASMON_OK ? 0 : 1);
}

static struct looker lookers[] = {
    {.way = "mapped", .fault = "client/client.get_located=stop"},
    {.way = "staged", .fault = "client/client.get_located=stop"},
    {.way = "bulk", .fault = "client/client.get_located=stop"},
    {.way = "mapped", .fault = "client/client.map_located=stop"},
};

/* Before this process has a client, or what the others connect to. */
static void lookers_start(const char *head_at)
{
    for (size_t i = 0; i < PL_COUNT(lookers); i++) {
        lookers[i].pid = fork();
        ASSERT_TRUE(lookers[i].pid >= 0);
        if (lookers[i].pid == 0) {
            look(head_at, &lookers[i]);
        }
    }
}

static void lookers_await(void)
{
    for (size_t i = 0; i < PL_COUNT(lookers); i++) {
        ASSERT_TRUE(WIFSTOPPED(state_of(lookers[i].pid)));
    }
}

static void lookers_end(int exit_status)
{
    size_t wrong = 0;

    for (size_t i = 0; i < PL_COUNT(lookers); i++) {
        int status;

        ASSERT_EQ(kill(lookers[i].pid, SIGCONT), 0);
        status = state_of(lookers[i].pid);
        if (status != exit_status << 8) {
            printf("# %s, %s: ended with %#x\n", lookers[i].way, lookers[i].fault,
                   (unsigned)status);
            wrong++;
        }
    }
    ASSERT_EQ(wrong, 0);
}

/*
 * They stand still; the owner of the value writes over it. If they are cut off as well, their
 * leases end before: so nothing holds the value for them any more, and it is written over where it
 * is, in the buffer that they were told of.
 */
static void look_late(bool cut_off)
{
    char at[160], to[176], cut[160], by[176];
    struct plasmon_client *client;
    struct plasmon_ref *value, *two;
    struct one_way *relay;
    size_t from = 0;

    faults_begin();
    (void)snprintf(at, sizeof(at), "%s/head.sock", cluster_folder());
    (void)snprintf(cut, sizeof(cut), "%s/cut.sock", cluster_folder());
    (void)snprintf(to, sizeof(to), "unix:%s", at);
    (void)snprintf(by, sizeof(by), "unix:%s", cut);
    lookers_start(by);
    relay = one_way_create(cut, at, "no client says this");
    head  = STARTED_DAEMON("head.log", "plasmon-head", "--listen", to);
    store_start(to);
    client = started_join_knowing(to, 1);
    started_wait_devices(client, 1);
    two   = cluster_fill(client, COUNT, 2, 0);
    value = cluster_fill(client, COUNT, 1, 0);
    CLUSTER_OK(plasmon_publish(client, "value", value));
    lookers_await();
    CLUSTER_OK(plasmon_publish(client, "value", NULL)); /* a name holds it, too */

    if (cut_off) {
        one_way_destroy(relay);
        ASSERT_EQ(unlink(cut), 0);
        for (size_t i = 0; i < PL_COUNT(lookers); i++) {
            (void)started_wait_log("head.log", &from, "did not come back within its lease");
        }
        relay = one_way_create(cut, at, "no client says this");
    } else {
        (void)poll(NULL, 0, LATE_MS);
    }
    CLUSTER_OK(cluster_axpy(client, value, two, 1, 0));
    cluster_expect_all(client, value, COUNT, 3);
    lookers_end(cut_off ? 1 : 0);
    one_way_destroy(relay);
    plasmon_finish(client);
}

TEST(who_was_told_where_a_value_lies_gets_no_later_one_when_his_lease_is_over)
{
    look_late(true);
}

TEST(who_stood_still_and_is_still_known_gets_the_value_of_then)
{
    look_late(false);
}

TEST_MAIN()
