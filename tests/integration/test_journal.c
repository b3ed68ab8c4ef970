/*
 * Heads that are killed, stopped and replaced while a program runs, with a real Redis that is
 * killed, too: what was acknowledged is there afterwards, and nothing is done twice.
 *
 * The program adds vectors into vectors, in place, at random: a task that is lost or done twice
 * changes a value. All is compared with a model that knows the order of submission and nothing
 * else.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "head/journal.h"
#include "tests/integration/started.h"

enum { VECTORS = 12, ELEMENTS = 64, WAIT_MS = 30000 };

/* ------------------------------------------------------------------------ the processes */

static char redis_socket[128], head_address[160], journal_url[160], password_file[160];

static void wait_socket(const char *path)
{
    uint64_t deadline_ns = pl_now_ns() + WAIT_MS * 1000000ull;

    while (!pl_unix_listens(path)) {
        if (pl_now_ns() > deadline_ns) {
            test_fail(__FILE__, __LINE__, "nobody listens at %s", path);
        }
        (void)poll(NULL, 0, 10); /* nothing tells of it: ask */
    }
}

static void begin(void)
{
    if (access("/usr/bin/redis-server", X_OK) != 0) {
        test_skip("there is no /usr/bin/redis-server; tools/setup installs it");
    }
    test_set_timeout(240);
    test_expect_log();
    started_begin();
    (void)snprintf(redis_socket, sizeof(redis_socket), "%s/redis.sock", cluster_folder());
    (void)snprintf(head_address, sizeof(head_address), "unix:%s/head.sock",
                   cluster_folder());
    (void)snprintf(journal_url, sizeof(journal_url), "unix:%s?prefix=test:", redis_socket);
    (void)snprintf(password_file, sizeof(password_file), "%s/password", cluster_folder());
}

static pid_t start_redis(const char *option, const char *value)
{
    pid_t pid =
        STARTED_DAEMON("redis.log", "/usr/bin/redis-server", "--port", "0", "--unixsocket",
                       redis_socket, "--dir", cluster_folder(), "--save", "",
                       "--appendonly", "yes", "--appendfsync", "everysec", option, value);

    wait_socket(redis_socket);
    return pid;
}

static pid_t start_head_at(const char *at, const char *log, const char *option)
{
    return STARTED_DAEMON(log, "plasmon-head", "--listen", at, "--journal", journal_url,
                          "--journal-lease", "1", "--journal-log", "1", option);
}

static pid_t start_head(const char *log, const char *option)
{
    return start_head_at(head_address, log, option);
}

/* A port that nobody listens on; below the ones that the kernel gives out. */
static void free_port(char out[32])
{
    struct sockaddr_in at = {.sin_family      = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int reuse             = 1;
    bool free;

    do {
        uint64_t random = pl_now_ns() / 1000 * 2654435761u;
        int fd          = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

        at.sin_port = htons((uint16_t)(20000 + (random >> 8) % 10000));
        ASSERT_TRUE(fd >= 0);
        (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof(reuse));
        free = bind(fd, (const struct sockaddr *)&at, sizeof(at)) == 0;
        (void)close(fd);
    } while (!free);
    (void)snprintf(out, 32, "127.0.0.1:%u", (unsigned)ntohs(at.sin_port));
}

static pid_t start_store(void)
{
    char folder[160];

    (void)snprintf(folder, sizeof(folder), "%s/store", cluster_folder());
    (void)mkdir(folder, 0700);
    return STARTED_DAEMON("store.log", "plasmon-store", "--head", head_address,
                          "--socket-dir", folder, "--cpu-devices", "2", "--gpus", "none",
                          "--device-memory", "64M", "--node", "here");
}

static uint32_t device_count(struct plasmon_client *client)
{
    struct plasmon_device_info infos[2];
    uint32_t count;

    CLUSTER_OK(plasmon_devices(client, infos, 2, &count));
    return count;
}

static struct plasmon_client *join(void)
{
    uint64_t deadline_ns = pl_now_ns() + WAIT_MS * 1000000ull;
    struct plasmon_client *client;

    while (started_try_join(head_address, NULL, &client) != PLASMON_OK) {
        ASSERT_TRUE(pl_now_ns() < deadline_ns);
    }
    while (device_count(client) < 2) { /* a store that joins after the first client */
        plasmon_finish(client);
        ASSERT_TRUE(pl_now_ns() < deadline_ns);
        CLUSTER_OK(started_try_join(head_address, NULL, &client));
    }
    return client;
}

/* -------------------------------------------------------------------------- the program */

struct program {
    struct plasmon_client *client;
    struct plasmon_ref *vectors[VECTORS];
    double value[VECTORS];
    uint64_t random;
    uint64_t tasks;
};

static uint64_t draw(struct program *program, uint64_t bound)
{
    program->random = program->random * 6364136223846793005u + 1442695040888963407u;
    return (program->random >> 33) % bound;
}

static void program_begin(struct program *program, uint64_t seed)
{
    *program = (struct program){.client = join(), .random = seed};
    for (int i = 0; i < VECTORS; i++) {
        program->value[i]   = i + 1;
        program->vectors[i] = cluster_fill(program->client, ELEMENTS, i + 1, i % 2);
    }
}

/* One task: lost, or done twice, it leaves a wrong value. Small integers: floats are exact. */
static void program_step(struct program *program)
{
    uint32_t to   = (uint32_t)draw(program, VECTORS);
    uint32_t from = (uint32_t)draw(program, VECTORS);
    double factor = draw(program, 2) != 0 ? 1 : -1;
    double sum    = program->value[to] + factor * program->value[from];

    program->tasks++;
    if (to == from || sum > 100000 || sum < -100000) {
        double fresh = (double)draw(program, 50);

        CLUSTER_OK(plasmon_release(program->client, program->vectors[to]));
        program->vectors[to] =
            cluster_fill(program->client, ELEMENTS, fresh, (int)draw(program, 2));
        program->value[to] = fresh;
        return;
    }
    CLUSTER_OK(cluster_axpy(program->client, program->vectors[to], program->vectors[from],
                            factor, (int)draw(program, 2)));
    program->value[to] = sum;
}

static void program_steps(struct program *program, uint64_t count)
{
    while (count-- > 0) {
        program_step(program);
    }
}

static void program_compare(struct program *program)
{
    for (int i = 0; i < VECTORS; i++) {
        cluster_expect_all(program->client, program->vectors[i], ELEMENTS,
                           (float)program->value[i]);
    }
}

static void program_end(struct program *program)
{
    program_compare(program);
    for (int i = 0; i < VECTORS; i++) {
        CLUSTER_OK(plasmon_release(program->client, program->vectors[i]));
    }
    printf("# %llu tasks\n", (unsigned long long)program->tasks);
    plasmon_finish(program->client);
}

static void kill_now(pid_t pid)
{
    ASSERT_EQ(kill(pid, SIGKILL), 0);
    ASSERT_EQ(started_wait(pid), 128 + SIGKILL);
}

/* ------------------------------------------------------------------------------------------------ */

TEST(a_head_that_is_killed_again_and_again_goes_on_from_its_journal)
{
    struct program program;
    pid_t head;

    begin();
    (void)start_redis(NULL, NULL);
    head = start_head("head.log", NULL);
    (void)start_store();
    program_begin(&program, test_seed());
    for (int i = 0; i < 8; i++) {
        program_steps(&program, 100 + draw(&program, 400));
        if (i % 3 == 0) {
            program_compare(&program); /* else it dies with much under way */
        }
        kill_now(head);
        program_steps(&program, draw(&program, 200)); /* nobody listens */
        head = start_head("head.log", NULL);
    }
    program_steps(&program, 200);
    program_end(&program);
    (void)started_wait_log("head.log", NULL, "goes on from its journal");
}

TEST(a_head_that_goes_on_tells_of_what_was_looked_up_before)
{
    struct plasmon_client *writer, *reader;
    struct plasmon_ref *made, *never, *spin, *found[2];
    pid_t head;

    begin();
    (void)start_redis(NULL, NULL);
    head = start_head("head.log", NULL);
    (void)start_store();
    writer = join();
    reader = join();
    made   = cluster_fill(writer, ELEMENTS, 3, 0);
    never  = cluster_fill(writer, ELEMENTS, 4, 1);
    cluster_spin(writer, made, 3000000, 0, NULL);
    cluster_spin(writer, never, 600000000, 1, &spin); /* it is cancelled */
    CLUSTER_OK(plasmon_publish(writer, "made", made));
    CLUSTER_OK(plasmon_publish(writer, "never", never));
    CLUSTER_OK(plasmon_lookup(reader, "made", &found[0]));
    CLUSTER_OK(plasmon_lookup(reader, "never", &found[1]));
    ASSERT_STATUS(plasmon_state(reader, found[0]), PLASMON_INPROGRESS);
    ASSERT_STATUS(plasmon_state(reader, found[1]), PLASMON_INPROGRESS);
    kill_now(head);
    head = start_head("head.log", NULL);
    (void)started_wait_log("head.log", NULL, "goes on from its journal");
    CLUSTER_OK(plasmon_wait(reader, found, 2, 1, WAIT_MS, NULL, NULL));
    CLUSTER_OK(plasmon_state(reader, found[0]));
    ASSERT_STATUS(plasmon_state(reader, found[1]), PLASMON_INPROGRESS);
    cluster_expect_all(reader, found[0], ELEMENTS, 3);

    kill_now(head);
    (void)start_head("head.log", NULL);
    CLUSTER_OK(plasmon_cancel_force(writer, spin));
    CLUSTER_OK(plasmon_wait(reader, found, 2, 2, WAIT_MS, NULL, NULL));
    CLUSTER_OK(plasmon_state(reader, found[0]));
    ASSERT_STATUS(plasmon_state(reader, found[1]), PLASMON_ECANCELLED);
    plasmon_finish(reader);
    plasmon_finish(writer);
}

/* What `plasmon objects --label` prints. */
static void objects_with(const char *label, char *said, size_t bytes)
{
    ASSERT_EQ(STARTED_RUN(said, bytes, "plasmon", "objects", "--json", "--label", label,
                          "--address", head_address),
              0);
}

TEST(a_head_that_goes_on_from_its_journal_tells_what_values_are)
{
    struct plasmon_shape shape         = cluster_vector(PLASMON_F32, 16);
    struct plasmon_put_options options = PLASMON_PUT_INIT;
    struct program program;
    struct plasmon_ref *ref;
    char said[16384];
    float data[16] = {0};
    pid_t head;

    begin();
    (void)start_redis(NULL, NULL);
    head = start_head("head.log", NULL);
    (void)start_store();
    program_begin(&program, test_seed());
    options.label = "weights epoch 3";
    CLUSTER_OK(plasmon_put(program.client, data, &shape, &options, &ref));
    CLUSTER_OK(plasmon_wait(program.client, &ref, 1, 1, WAIT_MS, NULL, NULL));
    kill_now(head);
    head = start_head("head.log", NULL);
    program_steps(&program, 2500);
    objects_with("epoch 3", said, sizeof(said));
    ASSERT_CONTAINS(said, "\"label\":\"weights epoch 3\"");

    while (strstr(started_wait_log("head.log", NULL, "goes on"), "checkpoint of") == NULL) {
        program_steps(&program, 2500);
        program_compare(&program); /* a moment when nothing is under way */
    }
    kill_now(head);
    (void)start_head("head.log", NULL);
    program_compare(&program);
    objects_with("epoch 3", said, sizeof(said));
    ASSERT_CONTAINS(said, "\"label\":\"weights epoch 3\"");
    CLUSTER_OK(plasmon_release(program.client, ref));
    program_end(&program);
}

TEST(the_journal_is_cut_down_and_heads_go_on_from_what_is_left)
{
    struct program program;
    pid_t head;

    begin();
    (void)start_redis(NULL, NULL);
    head = start_head("head.log", NULL);
    (void)start_store();
    program_begin(&program, test_seed());
    for (int i = 0; i < 4; i++) {
        program_steps(&program, 2500);
        if (i % 2 == 0) {
            program_compare(&program); /* a moment when nothing is under way */
        }
        kill_now(head);
        head = start_head("head.log", NULL);
    }
    program_steps(&program, 500);
    program_end(&program);
    (void)started_wait_log("head.log", NULL, "checkpoint of");
}

TEST(a_standby_takes_over_from_a_head_that_is_killed)
{
    struct program program;
    pid_t head, standby;

    begin();
    (void)start_redis(NULL, NULL);
    head = start_head("head.log", NULL);
    (void)start_store();
    program_begin(&program, test_seed());
    for (int i = 0; i < 3; i++) {
        char log[32];

        (void)snprintf(log, sizeof(log), "standby%d.log", i);
        standby = start_head(log, "--standby");
        (void)started_wait_log(log, NULL, "stands by");
        program_steps(&program, 300);
        kill_now(head);
        program_steps(&program, 100);
        head = standby;
        (void)started_wait_log(log, NULL, "goes on from its journal");
    }
    program_end(&program);
}

TEST(a_head_that_was_stopped_and_replaced_is_not_believed_and_ends)
{
    struct program program;
    char first[32], second[32];
    pid_t stopped;

    begin();
    free_port(first);
    do {
        free_port(second);
    } while (strcmp(first, second) == 0);
    (void)snprintf(head_address, sizeof(head_address), "%s,%s", first, second);
    (void)start_redis(NULL, NULL);
    stopped = start_head_at(first, "head.log", NULL);
    (void)start_store();
    program_begin(&program, test_seed());
    program_steps(&program, 300);
    ASSERT_EQ(kill(stopped, SIGSTOP), 0);
    (void)start_head_at(second, "next.log", NULL); /* takes the journal over at once */
    (void)started_wait_log("next.log", NULL, "goes on from its journal");
    program_steps(&program, 100);
    ASSERT_EQ(kill(stopped, SIGCONT), 0);
    ASSERT_EQ(started_wait(stopped), 4);
    (void)started_wait_log("head.log", NULL, "another head goes on with the journal");
    program_steps(&program, 300);
    program_end(&program);
}

TEST(a_redis_that_is_killed_and_comes_back_costs_a_pause)
{
    struct program program;
    pid_t redis, head;

    begin();
    redis = start_redis(NULL, NULL);
    head  = start_head("head.log", NULL);
    (void)start_store();
    program_begin(&program, test_seed());
    for (int i = 0; i < 3; i++) {
        program_steps(&program, 300);
        kill_now(redis);
        program_steps(&program, 100);
        redis = start_redis(NULL, NULL);
    }
    program_compare(&program);
    kill_now(head); /* and what is in there is all of it */
    (void)start_head("head.log", NULL);
    program_steps(&program, 100);
    program_end(&program);
}

/*
 * Whether the head's loop or its thread waits for the answer to a batch when Redis stops is left to
 * chance, so it stops often.
 */
TEST(a_redis_that_is_stopped_in_the_middle_of_an_answer_costs_a_pause)
{
    struct program program;
    pid_t redis, head;

    begin();
    redis = start_redis(NULL, NULL);
    head  = start_head("head.log", NULL);
    (void)start_store();
    program_begin(&program, test_seed());
    for (int i = 0; i < 40; i++) {
        program_steps(&program, 1 + draw(&program, 20));
        if (i % 2 == 0) {
            program_compare(&program); /* so that batches come alone */
        }
        ASSERT_EQ(kill(redis, SIGSTOP), 0);
        program_steps(&program, 1 + draw(&program, 3));
        (void)poll(NULL, 0, (int)draw(&program, 4));
        ASSERT_EQ(kill(redis, SIGCONT), 0);
    }
    program_compare(&program);
    kill_now(head);
    (void)start_head("head.log", NULL);
    program_steps(&program, 100);
    program_end(&program);
}

/* Until plasmon_doctor() says that, as JSON or not; the status does not wait for the journal. */
static void wait_doctor(struct plasmon_client *client, int json, const char *text)
{
    uint64_t deadline_ns = pl_now_ns() + WAIT_MS * 1000000ull;
    bool found           = false;

    while (!found) {
        char *said;

        CLUSTER_OK(plasmon_doctor(client, json, &said));
        found = strstr(said, text) != NULL;
        if (!found && pl_now_ns() > deadline_ns) {
            test_fail(__FILE__, __LINE__, "'%s' is never said: %s", text, said);
        }
        free(said);
        (void)poll(NULL, 0, found ? 0 : 20); /* nothing tells of it: ask */
    }
}

/*
 * Who only looks makes no session, for which the journal would be needed; and what drain starts is
 * told to wait.
 */
static void expect_answers(void)
{
    static const char *const commands[] = {"status", "nodes", "objects"};
    char said[16384];

    for (size_t i = 0; i < PL_COUNT(commands); i++) {
        ASSERT_EQ(STARTED_RUN(said, sizeof(said), "plasmon", commands[i], "--address",
                              head_address),
                  0);
    }
    ASSERT_EQ(
        STARTED_RUN(said, sizeof(said), "plasmon", "doctor", "--address", head_address), 0);
    ASSERT_CONTAINS(said, "has stored nothing for ");
    ASSERT_EQ(STARTED_RUN(said, sizeof(said), "plasmon", "drain", "here", "--deadline", "0",
                          "--address", head_address),
              1);
    ASSERT_CONTAINS(said, "the journal has stored nothing for ");
}

TEST(a_redis_that_does_not_answer_is_what_doctor_says)
{
    struct program program;
    pid_t redis;

    begin();
    redis = start_redis(NULL, NULL);
    (void)start_head("head.log", NULL);
    (void)start_store();
    program_begin(&program, test_seed());
    program_steps(&program, 100);
    program_compare(&program);
    ASSERT_EQ(kill(redis, SIGSTOP), 0);
    program_steps(&program, 3);
    wait_doctor(program.client, 0, "journal\n  has stored nothing for ");
    expect_answers();
    ASSERT_EQ(kill(redis, SIGCONT), 0);
    wait_doctor(program.client, 1, "\"journal\":{\"waiting_ms\":0,\"held\":0}");
    ASSERT_EQ(STARTED_RUN(NULL, 0, "plasmon", "drain", "--undo", "here", "--address",
                          head_address),
              0);
    program_compare(&program);
    program_end(&program);
}

TEST(what_is_wrong_with_a_redis_is_said)
{
    static const char secret[] = "right\n";
    char said[4096];
    int fd;

    begin();
    ASSERT_EQ(STARTED_RUN(said, sizeof(said), "plasmon-head", "--listen", head_address,
                          "--journal", "redis://user:secret@host"),
              1);
    ASSERT_CONTAINS(said, "--journal-password-file");
    ASSERT_EQ(STARTED_RUN(said, sizeof(said), "plasmon-head", "--listen", head_address,
                          "--standby"),
              2);
    ASSERT_CONTAINS(said, "need --journal");
    (void)start_redis("--requirepass", "right");
    ASSERT_EQ(STARTED_RUN(said, sizeof(said), "plasmon-head", "--listen", head_address,
                          "--journal", journal_url),
              1);
    ASSERT_CONTAINS(said, "refuses the user or the password");
    fd = open(password_file, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    ASSERT_TRUE(fd >= 0);
    ASSERT_EQ(write(fd, secret, sizeof(secret) - 1), sizeof(secret) - 1);
    (void)close(fd);
    (void)STARTED_DAEMON("head.log", "plasmon-head", "--listen", head_address, "--journal",
                         journal_url, "--journal-password-file", password_file);
    (void)started_wait_log("head.log", NULL, "has the journal, term 1");
}

/* -------------------------------------------------------------------- without a head */

enum { LEASE_MS = 300, TIMES = 40, BATCHES = 300 };

static struct head_journal *must_open(const char *owner)
{
    const struct head_journal_config config = {
        .url = journal_url, .lease_ms = LEASE_MS, .owner = owner};
    struct head_journal *journal;
    struct pl_err err = {0};

    if (head_journal_open(&config, &journal, &err) != PLASMON_OK) {
        test_fail(__FILE__, __LINE__, "%s", err.text);
    }
    return journal;
}

static void is_stored(void *user)
{
    (void)user;
}

static void is_lost(void *user, const struct pl_err *err)
{
    (void)user;
    test_fail(__FILE__, __LINE__, "%s", err->text);
}

static const struct head_journal_ops journal_ops = {.stored = is_stored, .lost = is_lost};

static plasmon_status_t read_nothing(void *user, bool checkpoint, const uint8_t *bytes,
                                     size_t length, struct pl_err *err)
{
    (void)user;
    (void)checkpoint;
    (void)bytes;
    (void)length;
    (void)err;
    return PLASMON_OK;
}

static void must_store(struct head_journal *journal, uint64_t count)
{
    uint64_t deadline_ns = pl_now_ns() + WAIT_MS * 1000000ull;

    for (uint64_t i = 0; i < count; i++) {
        head_journal_append(journal, (const uint8_t *)"batch", 5);
    }
    while (head_journal_stored(journal) < count) {
        ASSERT_TRUE(pl_now_ns() < deadline_ns);
        (void)poll(NULL, 0, 1);
    }
}

static struct head_journal *must_begin(void)
{
    struct head_journal *journal = must_open("first");
    struct pl_err err            = {0};

    ASSERT_OK(head_journal_acquire(journal, false, NULL, NULL, &err));
    ASSERT_OK(head_journal_read(journal, read_nothing, NULL, &err));
    return journal;
}

TEST(a_lease_that_is_due_at_the_start_is_not_renewed_amid_the_first_batch)
{
    begin();
    (void)start_redis(NULL, NULL);
    for (int i = 0; i < TIMES; i++) {
        struct head_journal *journal = must_begin();
        struct pl_err err            = {0};

        (void)poll(NULL, 0, LEASE_MS / 2); /* as if there had been much to replay */
        ASSERT_OK(head_journal_start(journal, &journal_ops, NULL, &err));
        must_store(journal, 3);
        head_journal_stop(journal);
        head_journal_close(journal);
    }
}

static bool ask_no_more(void *user)
{
    (void)user;
    return false;
}

/* One that stands by asks once, when the lease would be over long since. */
static plasmon_status_t read_slowly(void *user, bool checkpoint, const uint8_t *bytes,
                                    size_t length, struct pl_err *err)
{
    uint32_t *read = user;

    (void)poll(NULL, 0, 3 * LEASE_MS / BATCHES);
    if (++*read == BATCHES) {
        struct head_journal *second = must_open("second");

        ASSERT_EQ(head_journal_acquire(second, true, ask_no_more, NULL, err),
                  PLASMON_ECANCELLED);
        head_journal_close(second);
    }
    return read_nothing(NULL, checkpoint, bytes, length, err);
}

TEST(who_reads_for_longer_than_the_lease_has_it_still)
{
    struct head_journal *journal;
    struct pl_err err = {0};
    uint32_t read     = 0;

    begin();
    (void)start_redis(NULL, NULL);
    journal = must_begin();
    ASSERT_OK(head_journal_start(journal, &journal_ops, NULL, &err));
    must_store(journal, BATCHES);
    head_journal_stop(journal);
    head_journal_close(journal);

    journal = must_open("first");
    ASSERT_OK(head_journal_acquire(journal, false, NULL, NULL, &err));
    ASSERT_OK(head_journal_read(journal, read_slowly, &read, &err));
    ASSERT_EQ(read, BATCHES);
    head_journal_close(journal);
}

/* ------------------------------------------------------------------- what has been lost */

static void redis_do(const char *command, const char *key)
{
    ASSERT_EQ(STARTED_RUN(NULL, 0, "/usr/bin/redis-cli", "-s", redis_socket, command, key),
              0);
}

TEST(what_is_left_of_a_journal_that_lost_its_term_is_not_gone_on_from)
{
    char said[4096];
    pid_t head;

    begin();
    (void)start_redis(NULL, NULL);
    head = start_head("head.log", NULL);
    (void)start_store();
    plasmon_finish(join());
    kill_now(head);
    redis_do("del", "test:term");
    ASSERT_EQ(STARTED_RUN(said, sizeof(said), "plasmon-head", "--listen", head_address,
                          "--journal", journal_url),
              1);
    ASSERT_CONTAINS(said, "has a log and no term");
    redis_do("get", "test:term");
    redis_do("del", "test:log"); /* nothing at all is another thing: a new cluster */
    (void)start_head("next.log", NULL);
    (void)started_wait_log("next.log", NULL, "has no journal: a new cluster begins");
}

/* The lease is renewed three times a second. */
TEST(a_redis_that_was_emptied_is_said_and_ends_the_head)
{
    char log[4096];
    pid_t head;

    begin();
    (void)start_redis(NULL, NULL);
    head = start_head("head.log", NULL);
    (void)started_wait_log("head.log", NULL, "has no journal: a new cluster begins");
    ASSERT_EQ(STARTED_RUN(NULL, 0, "/usr/bin/redis-cli", "-s", redis_socket, "flushall"),
              0);
    ASSERT_TRUE(started_wait(head) > 0);
    started_log("head.log", log, sizeof(log));
    ASSERT_CONTAINS(log, "database 0 of Redis at unix:");
    ASSERT_CONTAINS(log, "prefix 'test:', has not what this head stored there");
}

static void redis_config(const char *name, const char *value)
{
    ASSERT_EQ(STARTED_RUN(NULL, 0, "/usr/bin/redis-cli", "-s", redis_socket, "config",
                          "set", name, value),
              0);
}

/*
 * Neither can the lease be renewed, nor has who stands by anything to take it over with. Whoever
 * has it afterwards goes on.
 */
TEST(a_redis_that_is_full_in_the_middle_costs_a_pause_and_no_standby)
{
    struct program program;
    pid_t head;

    begin();
    (void)start_redis(NULL, NULL);
    head = start_head("head.log", NULL);
    (void)start_store();
    program_begin(&program, test_seed());
    (void)start_head("standby.log", "--standby");
    (void)started_wait_log("standby.log", NULL, "stands by");
    program_steps(&program, 300);
    program_compare(&program);
    redis_config("maxmemory", "1");
    program_steps(&program, 100);
    (void)started_wait_log("head.log", NULL, "is at its maxmemory");
    (void)started_wait_log("standby.log", NULL, "goes on standing by");
    redis_config("maxmemory", "0");
    program_compare(&program);
    program_steps(&program, 100);
    ASSERT_EQ(kill(head, SIGKILL), 0); /* it may have ended: the other one was first */
    program_steps(&program, 100);
    program_end(&program);
    (void)started_wait_log("standby.log", NULL, "goes on from its journal");
}

/* The rules of docs/journal.md, less `without`; nobody else may do anything. */
static void write_acl(const char *path, const char *without)
{
    static const char *const rules[] = {
        "+auth", "+select", "+info",  "+config|get", "+script|load", "+evalsha", "+get",
        "+set",  "+incr",   "+rpush", "+llen",       "+lrange",      "+del",     "+pttl"};
    FILE *file = fopen(path, "we");

    ASSERT_NOT_NULL(file);
    fprintf(file, "user default off\nuser plasmon on >right ~test:* -@all");
    for (size_t i = 0; i < PL_COUNT(rules); i++) {
        if (strcmp(rules[i], without) != 0) {
            fprintf(file, " %s", rules[i]);
        }
    }
    fprintf(file, "\n");
    ASSERT_EQ(fclose(file), 0);
}

static pid_t start_redis_tcp(const char *port, const char *acl)
{
    pid_t pid =
        STARTED_DAEMON("redis.log", "/usr/bin/redis-server", "--port", port, "--bind",
                       "127.0.0.1", "--unixsocket", redis_socket, "--dir", cluster_folder(),
                       "--save", "", "--appendonly", "yes", "--aclfile", acl);

    wait_socket(redis_socket);
    return pid;
}

static pid_t start_head_with_password(const char *log, const char *option)
{
    return STARTED_DAEMON(log, "plasmon-head", "--listen", head_address, "--journal",
                          journal_url, "--journal-password-file", password_file,
                          "--journal-lease", "1", "--journal-log", "1", option);
}

TEST(a_user_of_redis_over_tcp_needs_the_rights_that_are_written_down_and_no_others)
{
    struct program program;
    char at[32], acl[160], said[4096];
    const char *port = at + strlen("127.0.0.1:");
    pid_t redis, head;
    FILE *file;

    begin();
    free_port(at);
    (void)snprintf(acl, sizeof(acl), "%s/acl", cluster_folder());
    (void)snprintf(journal_url, sizeof(journal_url),
                   "redis://plasmon@%s/2?prefix=test:", at);
    file = fopen(password_file, "we");
    ASSERT_NOT_NULL(file);
    fprintf(file, "right\n");
    ASSERT_EQ(fclose(file), 0);
    ASSERT_EQ(chmod(password_file, 0600), 0);

    write_acl(acl, "+incr");
    redis = start_redis_tcp(port, acl);
    ASSERT_EQ(STARTED_RUN(said, sizeof(said), "plasmon-head", "--listen", head_address,
                          "--journal", journal_url, "--journal-password-file",
                          password_file),
              1);
    ASSERT_CONTAINS(said, "does not allow its user 'plasmon'");
    ASSERT_CONTAINS(said, "docs/journal.md");
    kill_now(redis);

    write_acl(acl, "");
    redis = start_redis_tcp(port, acl);
    head  = start_head_with_password("head.log", NULL);
    (void)start_store();
    program_begin(&program, test_seed());
    (void)start_head_with_password("standby.log", "--standby");
    (void)started_wait_log("standby.log", NULL, "stands by");
    program_steps(&program, 2500);
    program_compare(&program); /* a moment for a checkpoint */
    program_steps(&program, 100);
    program_compare(&program);
    kill_now(redis); /* it reads its log as its user "default", who may do nothing */
    program_steps(&program, 100);
    (void)start_redis_tcp(port, acl);
    program_compare(&program);
    kill_now(head);
    program_steps(&program, 100);
    program_end(&program);
    (void)started_wait_log("standby.log", NULL, "goes on from its journal");
}

TEST(a_redis_that_stores_nothing_is_said)
{
    char said[4096];

    begin();
    (void)start_redis("--replicaof", "127.0.0.1 1");
    ASSERT_EQ(STARTED_RUN(said, sizeof(said), "plasmon-head", "--listen", head_address,
                          "--journal", journal_url),
              1);
    ASSERT_CONTAINS(said, "is a replica and stores nothing");
}

TEST_MAIN()
