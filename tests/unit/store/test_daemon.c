/*
 * The daemon with fake workers: what survives a worker, who is fenced, and what clients may and may
 * not do.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "cluster.h"
#include "store/lane.h"
#include "store/table.h"
#include "tests/harness/test.h"

static struct cluster cluster;

TEST(a_restarted_worker_gets_its_chunks_its_table_and_its_timeline_back)
{
    cluster_start(&cluster, 2, NULL);
    ASSERT_CONTAINS(cluster_wait(&cluster, "device 0 is ready: incarnation 1"),
                    "chunks 0/2 states 241 timeline 1 text written by the first");
    (void)cluster_wait(&cluster, "fake 1: chunk 1 of peer 0"); /* the other one got them */

    ASSERT_EQ(kill(cluster_worker_pid(&cluster, 0, 1), SIGKILL), 0);
    ASSERT_CONTAINS(cluster_wait(&cluster, "down: device 0 incarnation 1 status 9"),
                    "quarantined 0: killed by signal 9");
    /*
     * The doomed buffer (1) was freed by the store, the sealed one stands, the unwritten one is not
     * sealed.
     */
    ASSERT_CONTAINS(cluster_wait(&cluster, "device 0 is ready: incarnation 2"),
                    "chunks 2/2 states 201 timeline 2 text written by the first");
    (void)cluster_wait(&cluster, "fake 1: peer 0 up");
    ASSERT_EQ(cluster_end(&cluster), 0);
}

TEST(a_stopped_worker_is_killed_and_replaced)
{
    cluster_start(&cluster, 1, NULL);
    ASSERT_EQ(kill(cluster_worker_pid(&cluster, 0, 1), SIGSTOP), 0);
    ASSERT_CONTAINS(cluster_wait(&cluster, "down: device 0 incarnation 1 status 9"),
                    "it was stopped");
    (void)cluster_wait(&cluster, "device 0 is ready: incarnation 2");
    ASSERT_EQ(cluster_end(&cluster), 0);
}

TEST(a_worker_whose_main_loop_stands_still_is_killed_and_replaced)
{
    cluster_start(&cluster, 1, "stuck"); /* with a lease of a second, see cluster.c */
    ASSERT_CONTAINS(cluster_wait(&cluster, "down: device 0 incarnation 1 status 9"),
                    "its main loop made no progress for 1000 ms");
    (void)cluster_wait(&cluster, "device 0 is ready: incarnation 2");
    ASSERT_EQ(cluster_end(&cluster), 0);
}

TEST(a_device_whose_workers_hang_before_they_are_ready_is_given_up_and_it_is_said_why)
{
    cluster_start(&cluster, 1, "mute"); /* with a lease of 400 ms for a start */
    ASSERT_CONTAINS(cluster_wait(&cluster, "down: device 0 incarnation 1 status 9"),
                    "quarantined 0: killed by signal 9: its start came no further for 400 "
                    "ms; done is nothing that needs the store");
    (void)cluster_wait(&cluster, "down: device 0 incarnation 2 status 9");
    ASSERT_CONTAINS(cluster_wait(&cluster, "down: device 0 incarnation 3 status 9"),
                    "the device is quarantined: 3 starts of a worker in a row hung");
    ASSERT_EQ(cluster_end(&cluster), 0);
}

TEST(a_worker_that_breaks_the_protocol_is_fenced_and_replaced)
{
    cluster_start(&cluster, 1, "garbage");
    ASSERT_CONTAINS(cluster_wait(&cluster, "down: device 0 incarnation 1"),
                    "message of 8 bytes instead of");
    (void)cluster_wait(&cluster, "device 0 is ready: incarnation 2");
    ASSERT_EQ(cluster_end(&cluster), 0);
}

TEST(every_death_is_reported_once_with_its_incarnation)
{
    uint64_t begin = pl_now_ns();

    cluster_start(&cluster, 1, "exit");
    for (unsigned i = 1; i <= 4; i++) {
        char part[64];

        (void)snprintf(part, sizeof(part), "down: device 0 incarnation %u status 768", i);
        ASSERT_CONTAINS(cluster_wait(&cluster, part), "quarantined 0: exit status 3");
    }
    ASSERT_TRUE(pl_now_ns() - begin > 300u * 1000000u); /* 0, 0.1 and 0.2 s of pauses */
    ASSERT_EQ(cluster_end(&cluster), 0);
}

TEST(a_worker_that_cannot_be_started_is_reported_and_tried_again)
{
    char path[192];

    cluster_start(&cluster, 1, NULL);
    (void)snprintf(path, sizeof(path), "%s/plasmon-worker", cluster.folder);
    ASSERT_EQ(unlink(path), 0);
    ASSERT_EQ(kill(cluster_worker_pid(&cluster, 0, 1), SIGKILL), 0);
    ASSERT_CONTAINS(cluster_wait(&cluster, "down: device 0 incarnation 2"), "cannot start");
    ASSERT_EQ(symlink(FAKE_WORKER_PATH, path), 0);
    ASSERT_CONTAINS(cluster_wait(&cluster, "worker of device 0 is ready: incarnation 3"),
                    "written by the first");
    ASSERT_EQ(cluster_end(&cluster), 0);
}

TEST(a_worker_hears_that_its_chunks_are_kept)
{
    cluster_start(&cluster, 1, NULL);
    (void)cluster_wait(&cluster, "fake 0: chunks below 1 are kept");
    (void)cluster_wait(&cluster, "fake 0: chunks below 2 are kept");
    ASSERT_EQ(cluster_end(&cluster), 0);
}

TEST(a_worker_that_ignores_sigterm_does_not_keep_the_store)
{
    uint64_t begin;

    cluster_start(&cluster, 1, "stubborn");
    (void)cluster_wait(&cluster, "device 0 is ready");
    begin = pl_now_ns();
    ASSERT_EQ(cluster_end(&cluster), 0);
    ASSERT_TRUE(pl_now_ns() - begin < 2ull * 1000000000u);
}

TEST(a_second_sigterm_is_not_kept_waiting_by_what_lies_here_alone)
{
    ASSERT_EQ(setenv("FAKE_HEAD", "slow", 1), 0);
    cluster_start(&cluster, 1, NULL);
    ASSERT_EQ(kill(cluster.pid, SIGTERM), 0);
    (void)cluster_wait(&cluster, "SIGTERM: leaving when what lies only here is elsewhere");
    ASSERT_EQ(cluster_end(&cluster), 0); /* sends the second one */
}

/* ------------------------------------------------------------------------------ clients */

TEST(a_client_reads_a_sealed_buffer_and_cannot_write_it)
{
    struct store_control get = {.version = STORE_CONTROL_VERSION,
                                .type    = STORE_CONTROL_GET_CHUNK};
    struct store_control answer;
    struct store_entry entry;
    struct client client;
    uint32_t pin;
    void *bytes;
    int fd;

    cluster_start(&cluster, 1, NULL);
    client_hello(&client, client_connect(&cluster));
    ASSERT_OK(store_table_pin(client.table, 0, 1, client.pins, &entry, &pin));

    client_send(client.fd, &get);
    ASSERT_TRUE(client_receive(client.fd, &answer, &fd));
    ASSERT_EQ(answer.type, STORE_CONTROL_CHUNK);
    ASSERT_TRUE(pl_fd_map(fd, answer.bytes, 1, &bytes) != PLASMON_OK);
    ASSERT_OK(pl_fd_map(fd, answer.bytes, 0, &bytes));
    ASSERT_STR((char *)bytes + entry.offset - answer.offset, "written by the first");

    get.chunk_id = 1; /* the client-writable one */
    client_send(client.fd, &get);
    ASSERT_TRUE(client_receive(client.fd, &answer, &fd));
    ASSERT_EQ(answer.type, STORE_CONTROL_CHUNK);
    ASSERT_EQ(answer.client_writable, 1);
    ASSERT_OK(pl_fd_map(fd, answer.bytes, 1, &bytes));
    ASSERT_EQ(cluster_end(&cluster), 0);
}

/* The answer to GET_LANE, mapped; NULL: it was this error. */
static struct store_lane *lane_get(const struct client *client, uint32_t host_device,
                                   plasmon_status_t error)
{
    struct store_control get = {.version     = STORE_CONTROL_VERSION,
                                .type        = STORE_CONTROL_GET_LANE,
                                .host_device = host_device};
    struct store_control answer;
    void *mapped;
    int fd;

    client_send(client->fd, &get);
    ASSERT_TRUE(client_receive(client->fd, &answer, &fd));
    if (error != PLASMON_OK) {
        ASSERT_EQ(answer.type, STORE_CONTROL_ERROR);
        ASSERT_EQ(answer.status, error);
        return NULL;
    }
    ASSERT_EQ(answer.type, STORE_CONTROL_LANE);
    ASSERT_EQ(answer.count, 2); /* slab, doorbell */
    ASSERT_EQ(answer.bytes, STORE_LANE_BYTES);
    ASSERT_OK(pl_fd_map(fd, answer.bytes, 1, &mapped));
    (void)close(fd);
    return mapped;
}

TEST(a_lane_is_another_clients_when_its_first_one_is_gone)
{
    struct client none = {.fd = -1}, first, second;
    struct store_lane *lane, *other;
    size_t seen;

    cluster_start(&cluster, 1, NULL);
    none.fd = client_connect(&cluster);
    ASSERT_NULL(lane_get(&none, 0, PLASMON_EINVAL)); /* hello comes first */
    client_hello(&first, client_connect(&cluster));
    ASSERT_NULL(lane_get(&first, 1, PLASMON_ENOENT));
    lane = lane_get(&first, 0, PLASMON_OK);
    ASSERT_EQ(lane->magic, STORE_LANE_MAGIC);
    lane->slot[3].status = 77; /* to know it by */
    ASSERT_EQ(lane_get(&first, 0, PLASMON_OK)->slot[3].status, 77);
    client_hello(&second, client_connect(&cluster));
    ASSERT_EQ(lane_get(&second, 0, PLASMON_OK)->slot[3].status, 0);

    seen = cluster.length;
    (void)close(first.fd);
    (void)cluster_wait_from(&cluster, seen, "went");
    client_hello(&first, client_connect(&cluster));
    other = lane_get(&first, 0, PLASMON_OK);
    ASSERT_EQ(other->slot[3].status, 77);
    ASSERT_EQ(cluster_end(&cluster), 0);
}

TEST(a_dead_clients_page_is_taken_away)
{
    struct client first;
    struct client second;
    pid_t child;
    int status;
    size_t seen;

    cluster_start(&cluster, 1, NULL);
    child = fork();
    ASSERT_TRUE(child >= 0);
    if (child == 0) { /* pins, and dies with it */
        struct store_entry entry;
        uint32_t pin;

        client_hello(&first, client_connect(&cluster));
        ASSERT_EQ(first.reader, 1);
        ASSERT_OK(store_table_pin(first.table, 0, 1, first.pins, &entry, &pin));
        (void)raise(SIGKILL);
    }
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    (void)cluster_wait(&cluster, "fake 0: reader 1 came");
    (void)cluster_wait(&cluster, "fake 0: reader 1 went");
    seen = cluster.length;

    client_hello(&second,
                 client_connect(&cluster)); /* the number again, a page of its own */
    ASSERT_EQ(second.reader, 1);
    ASSERT_EQ(second.pins->pin[0], 0);
    (void)cluster_wait_from(&cluster, seen, "fake 0: reader 1 came");
    (void)close(second.fd);
    (void)cluster_wait_from(&cluster, seen, "fake 0: reader 1 went");
    ASSERT_EQ(cluster_end(&cluster), 0);
}

/* Sends one message on a fresh connection: the answer must be this error, and the connection must end. */
static void expect_dropped(const void *bytes, size_t length, plasmon_status_t status,
                           const char *says)
{
    struct store_control answer;
    int fd = client_connect(&cluster);

    ASSERT_OK(pl_fd_send(fd, bytes, length, NULL, 0));
    ASSERT_TRUE(client_receive(fd, &answer, NULL));
    ASSERT_EQ(answer.type, STORE_CONTROL_ERROR);
    ASSERT_EQ(answer.status, status);
    ASSERT_CONTAINS(answer.text, says);
    ASSERT_TRUE(!client_receive(fd, &answer, NULL));
    (void)close(fd);
}

TEST(a_client_that_talks_nonsense_is_told_so_and_dropped_alone)
{
    struct store_control wrong    = {.version = STORE_CONTROL_VERSION + 1,
                                     .type    = STORE_CONTROL_CLIENT_HELLO};
    char large[2 * sizeof(wrong)] = {1};
    struct store_control get      = {.version     = STORE_CONTROL_VERSION,
                                     .type        = STORE_CONTROL_GET_CHUNK,
                                     .host_device = 99};
    struct store_control answer;
    struct client good;

    cluster_start(&cluster, 1, NULL);
    client_hello(&good, client_connect(&cluster));

    expect_dropped(&wrong, sizeof(wrong), PLASMON_EVERSION,
                   "version 3 of the protocol within a host, and we speak 2: all programs "
                   "of a cluster must be of one release");
    large[0] = STORE_CONTROL_VERSION + 1; /* its messages are longer */
    expect_dropped(large, sizeof(large), PLASMON_EVERSION, "version 3");
    large[0] = STORE_CONTROL_VERSION;
    expect_dropped("?", 1, PLASMON_EMALFORMED, "message of 1 bytes");
    expect_dropped(large, sizeof(large), PLASMON_EMALFORMED, "longer than");
    wrong.version = STORE_CONTROL_VERSION;
    wrong.type    = 4711;
    expect_dropped(&wrong, sizeof(wrong), PLASMON_EMALFORMED, "unknown type 4711");
    wrong.type = STORE_CONTROL_READY; /* a worker's word */
    expect_dropped(&wrong, sizeof(wrong), PLASMON_EMALFORMED, "unknown type");

    client_send(good.fd, &get); /* still served */
    ASSERT_TRUE(client_receive(good.fd, &answer, NULL));
    ASSERT_EQ(answer.type, STORE_CONTROL_ERROR);
    ASSERT_EQ(answer.status, PLASMON_ENOENT);
    ASSERT_EQ(answer.host_device, 99);
    ASSERT_EQ(cluster_end(&cluster), 0);
}

TEST(requests_that_cannot_be_met_are_refused_and_the_client_stays)
{
    static const struct {
        struct store_control message;
        plasmon_status_t status;
    } requests[] = {
        {{.type = STORE_CONTROL_GET_CHUNK, .chunk_id = 7}, PLASMON_ENOENT},
        {{.type = STORE_CONTROL_GET_CHUNK, .host_device = UINT32_MAX}, PLASMON_ENOENT},
        {{.type = STORE_CONTROL_NEW_HEAD_FD}, PLASMON_ENOTSUP},
        {{.type = STORE_CONTROL_CLIENT_HELLO}, PLASMON_EEXIST},
    };
    struct store_control early = {.version = STORE_CONTROL_VERSION,
                                  .type    = STORE_CONTROL_GET_CHUNK};
    struct store_control answer;
    struct client client;
    int fd;

    cluster_start(&cluster, 1, NULL);
    fd = client_connect(&cluster);
    client_send(fd, &early);
    ASSERT_TRUE(client_receive(fd, &answer, NULL));
    ASSERT_EQ(answer.status, PLASMON_EINVAL); /* hello comes first */

    client_hello(&client, fd);
    for (size_t i = 0; i < PL_COUNT(requests); i++) {
        struct store_control message = requests[i].message;

        message.version = STORE_CONTROL_VERSION;
        client_send(fd, &message);
        ASSERT_TRUE(client_receive(fd, &answer, NULL));
        ASSERT_EQ(answer.type, STORE_CONTROL_ERROR);
        ASSERT_EQ(answer.status, requests[i].status);
    }
    ASSERT_EQ(cluster_end(&cluster), 0);
}

TEST(a_client_that_never_reads_is_dropped_and_nobody_else_notices)
{
    struct store_control get = {.version = STORE_CONTROL_VERSION,
                                .type    = STORE_CONTROL_GET_CHUNK};
    struct client greedy;
    struct client good;
    size_t sent = 0;

    cluster_start(&cluster, 1, NULL);
    client_hello(&greedy, client_connect(&cluster));
    while (pl_fd_send(greedy.fd, &get, sizeof(get), NULL, 0) == PLASMON_OK) {
        ASSERT_TRUE(sent++ < 100000);
    }
    client_hello(&good, client_connect(&cluster));
    ASSERT_EQ(cluster_end(&cluster), 0);
}

TEST(a_folder_that_others_may_enter_is_refused)
{
    char folder[192];
    int status;
    pid_t pid;
    int ends[2];
    char text[1024];
    ssize_t length;

    cluster_folder(&cluster);
    (void)snprintf(folder, sizeof(folder), "%s/sockets", cluster.folder);
    ASSERT_EQ(mkdir(folder, 0755), 0);
    ASSERT_EQ(chmod(folder, 0755), 0);
    ASSERT_EQ(pipe(ends), 0);
    pid = fork();
    ASSERT_TRUE(pid >= 0);
    if (pid == 0) {
        (void)dup2(ends[1], 2);
        (void)execl(BARE_STORE_PATH, "plasmon-store", "--head", "unix:/nowhere",
                    "--cpu-devices", "1", "--gpus", "none", "--socket-dir", folder,
                    (char *)NULL);
        _exit(127);
    }
    (void)close(ends[1]);
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    ASSERT_EQ(status, 1 << 8);
    length = read(ends[0], text, sizeof(text) - 1);
    ASSERT_TRUE(length > 0);
    text[length] = '\0';
    ASSERT_CONTAINS(text, "mode 0700");
    cluster_folder_remove(&cluster);
}

TEST_MAIN()
