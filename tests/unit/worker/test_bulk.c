/*
 * The host route between hosts: two bulk channels in one process, each with its CPU device, over
 * loopback. What arrives is compared; a sender that comes back, a receiver that comes back, a peer
 * that is given up, and hostile connections.
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "tests/harness/test.h"
#include "trust/trust.h"
#include "transfer/bulk.h"
#include "transfer/bulk_int.h"

#define SLOT ((uint64_t)STORE_STAGE_SLOT_BYTES)
/* bytes that are written and compared: every so many, for the sanitizers' sake */
#define STEP  251
#define LARGE (23 * SLOT + 4093) /* more than the rings of both sides hold */

#define SOME (5 * SLOT + 4093)

struct host {
    struct device *device;
    struct device_stream *stream;
    struct device_ptr base;
    uint64_t bytes;
    uint8_t *memory;
    struct transfer_ring ring;
    struct transfer_bulk *bulk;
    struct transfer_bulk_endpoint endpoint;
    struct transfer_counters counters;
    const char *certificate; /* of tls_begin(); NULL: plain */
    const char *authority;
};

static void *zero_pages(uint64_t bytes)
{
    void *ptr =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    ASSERT_TRUE(ptr != MAP_FAILED);
    return ptr;
}

static bool staged; /* channels that are opened: through slots, as on a GPU */

static char tls_folder[64];

/* Good until seven more were asked for. */
static const char *certificate_file(const char *name, const char *suffix)
{
    static char paths[8][128];
    static unsigned next;
    char *path = paths[next++ % PL_COUNT(paths)];

    (void)snprintf(path, sizeof(paths[0]), "%s/%s%s", tls_folder, name, suffix);
    return path;
}

/* What clients get at of the hosts that are opened from now on; NULL: nothing. */
static const struct transfer_bulk_access_ops *access_ops;
static void *access_user;

/* The channels that are opened from now on hear who they are. */
static bool identified = true;

static void channel_open(struct host *host, uint32_t index)
{
    static const char *const places[]  = {"127.0.0.1", "127.0.0.1", "127.0.0.2"};
    struct transfer_bulk_config config = {.device      = host->device,
                                          .ring        = host->ring,
                                          .listen      = places[index],
                                          .staged      = staged,
                                          .access      = access_ops,
                                          .access_user = access_user};
    struct pl_err err                  = {.status = PLASMON_OK};

    if (host->certificate != NULL) {
        config.tls_cert = certificate_file(host->certificate, ".crt");
        config.tls_key  = certificate_file(host->certificate, ".key");
        config.tls_ca   = certificate_file(host->authority, ".crt");
    }

    ASSERT_OK(transfer_bulk_create(&config, &host->bulk, &host->endpoint, &err));
    if (identified) {
        transfer_bulk_identify(host->bulk, index);
    }
}

static void host_open_tls(struct host *host, uint32_t index, uint64_t bytes,
                          const char *certificate, const char *authority)
{
    struct device_config config = {.bytes_max = UINT64_C(1) << 30};
    struct pl_err err;
    int fd;

    if (bytes >= LARGE) {
        test_set_timeout(120); /* gigabytes of shadow memory, with the thread sanitizer */
    }
    memset(host, 0, sizeof(*host));
    host->certificate = certificate;
    host->authority   = authority;
    ASSERT_OK(device_open(DEVICE_CPU, index, &config, &host->device, &err));
    host->bytes = pl_round_up(bytes, device_get_info(host->device)->chunk_granularity);
    ASSERT_OK(device_stream_create(host->device, 0, &host->stream));
    ASSERT_OK(device_range_reserve(host->device, host->bytes, &host->base));
    ASSERT_OK(device_chunk_create(host->device, host->bytes, &fd));
    ASSERT_OK(device_chunk_map(host->device, fd, host->bytes, index, true, host->base));
    host->memory        = device_ptr_host(host->device, host->base);
    host->ring.timeline = zero_pages(sizeof(struct store_timeline));
    host->ring.slab     = zero_pages(STORE_STAGE_SLOTS * SLOT);
    store_timeline_init(host->ring.timeline, index);
    ASSERT_OK(device_host_register(host->device, host->ring.timeline,
                                   sizeof(struct store_timeline)));
    ASSERT_OK(
        device_host_register(host->device, host->ring.slab, STORE_STAGE_SLOTS * SLOT));
    channel_open(host, index);
}

static void host_open(struct host *host, uint32_t index, uint64_t bytes)
{
    host_open_tls(host, index, bytes, NULL, NULL);
}

static void host_close(struct host *host)
{
    transfer_bulk_destroy(host->bulk);
    device_stream_destroy(host->stream);
    device_chunk_unmap(host->device, host->base, host->bytes);
    device_range_release(host->device, host->base, host->bytes);
    device_close(host->device);
}

static void fill(struct host *host, uint64_t bytes, uint64_t seed)
{
    for (uint64_t i = 0; i < bytes; i += STEP) {
        host->memory[i] = (uint8_t)((i * 2654435761u + seed) >> 9);
    }
}

static void compare(const struct host *host, uint64_t bytes, uint64_t seed)
{
    for (uint64_t i = 0; i < bytes; i += STEP) {
        if (host->memory[i] != (uint8_t)((i * 2654435761u + seed) >> 9)) {
            ASSERT_EQ(i, bytes); /* the first wrong byte */
        }
    }
}

static void send_half(struct host *from, uint32_t to, uint64_t first, uint64_t bytes)
{
    ASSERT_OK(
        transfer_bulk_send(from->bulk, from->stream, to, first, from->base, bytes, true));
}

static void recv_half(struct host *to, uint32_t from, uint64_t first, uint64_t bytes)
{
    ASSERT_OK(transfer_bulk_recv(to->bulk, to->stream, from, first, to->base, bytes, true,
                                 &to->counters));
}

static void finish_half(struct host *host)
{
    struct pl_err err;

    ASSERT_OK(device_stream_sync(host->stream, &err));
}

static void all_sizes(void)
{
    static const uint64_t sizes[] = {1, 4096, SLOT - 1, SLOT, SLOT + 1, LARGE};
    struct host a, b;
    uint64_t chunk = 0;

    host_open(&a, 0, LARGE);
    host_open(&b, 1, LARGE);
    ASSERT_OK(transfer_bulk_peer(a.bulk, 1, &b.endpoint));
    for (size_t i = 0; i < PL_COUNT(sizes); i++) {
        fill(&a, sizes[i], i);
        memset(b.memory, 0, sizes[i]);
        if (i % 2 == 0) { /* whichever half comes first */
            send_half(&a, 1, chunk, sizes[i]);
            recv_half(&b, 0, chunk, sizes[i]);
        } else {
            recv_half(&b, 0, chunk, sizes[i]);
            send_half(&a, 1, chunk, sizes[i]);
        }
        finish_half(&a);
        finish_half(&b);
        compare(&b, sizes[i], i);
        chunk += transfer_chunks(sizes[i]);
    }
    host_close(&a);
    host_close(&b);
}

TEST(transfers_of_any_size_arrive_whole)
{
    all_sizes();
}

TEST(transfers_of_any_size_arrive_whole_through_slots)
{
    staged = true;
    all_sizes();
    staged = false;
}

/* Until the half of the transfer that begins with that chunk has begun on b's device. */
static void until_begun(const struct host *b, uint64_t first, uint64_t bytes)
{
    uint64_t until_ns = pl_now_ns() + UINT64_C(60000000000);
    uint8_t *place    = NULL;

    while (place == NULL) {
        ASSERT_OK(bulk_place_find(b->bulk->board, &b->ring, 0, first,
                                  pl_min_u64(bytes, SLOT), &place));
        ASSERT_TRUE(pl_now_ns() < until_ns);
        pl_cpu_relax();
    }
    ASSERT_TRUE(place == b->memory);
}

static void assert_untouched(const uint8_t *slab, uint32_t slots)
{
    for (uint64_t i = 0; i < slots * SLOT; i += STEP) {
        ASSERT_EQ(slab[i], 0);
    }
}

TEST(bytes_of_a_cpu_device_go_from_where_they_lie_to_where_they_belong)
{
    struct bulk_out *out;
    struct host a, b;

    host_open(&a, 0, LARGE);
    host_open(&b, 1, LARGE);
    ASSERT_OK(transfer_bulk_peer(a.bulk, 1, &b.endpoint));
    fill(&a, LARGE, 11);
    recv_half(&b, 0, 0, LARGE);
    until_begun(&b, 0, LARGE);
    send_half(&a, 1, 0, LARGE);
    finish_half(&a);
    finish_half(&b);
    compare(&b, LARGE, 11);
    assert_untouched(b.ring.slab, STORE_STAGE_SLOTS);
    out = pl_map_get(&a.bulk->outs, 2);
    assert_untouched(out->slab, TRANSFER_BULK_OUT_SLOTS);
    ASSERT_EQ(b.ring.timeline->stage_taken.value, transfer_chunks(LARGE));
    ASSERT_EQ(b.counters.bytes[TRANSFER_HOST], LARGE);
    host_close(&a);
    host_close(&b);
}

TEST(a_receiver_that_ends_in_the_middle_gets_the_rest_through_slots)
{
    uint64_t until_ns = pl_now_ns() + UINT64_C(60000000000);
    struct host a, b;

    test_expect_log();
    host_open(&a, 0, LARGE);
    host_open(&b, 1, LARGE);
    ASSERT_OK(transfer_bulk_peer(a.bulk, 1, &b.endpoint));
    fill(&a, LARGE, 12);
    recv_half(&b, 0, 0, LARGE);
    until_begun(&b, 0, LARGE);
    send_half(&a, 1, 0, LARGE);
    while (__atomic_load_n(&b.ring.timeline->stage_taken.value, __ATOMIC_ACQUIRE) < 2) {
        ASSERT_TRUE(pl_now_ns() < until_ns);
        pl_cpu_relax();
    }
    transfer_bulk_destroy(b.bulk); /* its half is on the stream all the same */
    channel_open(&b, 1);
    ASSERT_OK(transfer_bulk_peer(a.bulk, 1, &b.endpoint));
    finish_half(&a);
    finish_half(&b);
    compare(&b, LARGE, 12);
    host_close(&a);
    host_close(&b);
}

/* A receiver that the test plays. */
static int listen_as(struct transfer_bulk_endpoint *out)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t bytes       = sizeof(at);
    int fd                = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ASSERT_EQ(bind(fd, (struct sockaddr *)&at, bytes), 0);
    ASSERT_EQ(listen(fd, 4), 0);
    ASSERT_EQ(getsockname(fd, (struct sockaddr *)&at, &bytes), 0);
    memset(out, 0, sizeof(*out));
    (void)snprintf(out->address, sizeof(out->address), "127.0.0.1:%u", ntohs(at.sin_port));
    return fd;
}

/* Both ends of a connection, which wait for nothing. */
static void connect_pair(struct bulk_link *from, struct bulk_link *to)
{
    struct transfer_bulk_endpoint at;
    struct sockaddr_in address;
    socklen_t bytes = sizeof(address);
    int listen_fd   = listen_as(&at);

    *from = (struct bulk_link){.fd      = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0),
                               .stop_fd = -1};
    *to   = (struct bulk_link){.stop_fd = -1};
    ASSERT_EQ(getsockname(listen_fd, (struct sockaddr *)&address, &bytes), 0);
    ASSERT_EQ(connect(from->fd, (struct sockaddr *)&address, bytes), 0);
    to->fd = accept(listen_fd, NULL, NULL);
    ASSERT_TRUE(to->fd >= 0);
    ASSERT_EQ(fcntl(from->fd, F_SETFL, O_NONBLOCK), 0);
    ASSERT_EQ(fcntl(to->fd, F_SETFL, O_NONBLOCK), 0);
    (void)close(listen_fd);
}

/* As much as goes now. */
static void lend(struct bulk_link *link, const uint8_t *data, size_t bytes, size_t *io_done)
{
    size_t done = 0;
    plasmon_status_t status =
        bulk_link_try_lend(link, data + *io_done, bytes - *io_done, &done);

    ASSERT_TRUE(status == PLASMON_OK || status == PLASMON_EAGAIN);
    *io_done += done;
}

static void take(struct bulk_link *link, uint8_t *data, size_t bytes, size_t *io_done)
{
    size_t done = 0;
    plasmon_status_t status =
        bulk_link_try_read(link, data + *io_done, bytes - *io_done, &done);

    ASSERT_TRUE(status == PLASMON_OK || status == PLASMON_EAGAIN);
    *io_done += done;
}

/* The system's pipe is larger than some, and smaller than others; the last is copied. */
static void lend_all_sizes(void)
{
    static const size_t sizes[] = {1, 65536, 65537, 1 << 20, (1 << 20) + 1, 5000001, 100};
    const size_t largest        = 5000001;
    uint8_t *from = zero_pages(largest), *to = zero_pages(largest);
    struct bulk_link out, in;

    connect_pair(&out, &in);
    for (size_t i = 0; i < PL_COUNT(sizes); i++) {
        size_t sent = 0, taken = 0;

        for (size_t k = 0; k < sizes[i]; k++) {
            from[k] = (uint8_t)(k * 7 + i + k / 4096);
        }
        while (taken < sizes[i]) {
            if (sent < sizes[i]) {
                lend(&out, from, sizes[i], &sent);
            }
            take(&in, to, sizes[i], &taken);
        }
        ASSERT_EQ(sent, sizes[i]);
        ASSERT_EQ(memcmp(from, to, sizes[i]), 0);
    }
    bulk_link_close(&out);
    bulk_link_close(&in);
    (void)munmap(from, largest);
    (void)munmap(to, largest);
}

TEST(bytes_that_are_lent_arrive_in_their_order)
{
    bulk_tls_thread();
    lend_all_sizes();
}

TEST(without_a_pipe_they_are_copied)
{
    struct rlimit limit, none;
    struct bulk_link out, in;
    uint8_t bytes[100000], got[sizeof(bytes)];
    size_t sent = 0, taken = 0;

    bulk_tls_thread();
    connect_pair(&out, &in);
    memset(bytes, 5, sizeof(bytes));
    ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
    none = (struct rlimit){.rlim_cur = 0, .rlim_max = limit.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
    lend(&out, bytes, sizeof(bytes), &sent);
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
    while (taken < sizeof(bytes)) {
        if (sent < sizeof(bytes)) {
            lend(&out, bytes, sizeof(bytes), &sent);
        }
        take(&in, got, sizeof(got), &taken);
    }
    ASSERT_EQ(memcmp(bytes, got, sizeof(bytes)), 0);
    bulk_link_close(&out);
    bulk_link_close(&in);
}

TEST(a_connection_that_ended_takes_nothing_more_and_ends_no_process)
{
    uint8_t *bytes = zero_pages(1 << 20);
    struct bulk_link out, in;
    plasmon_status_t status = PLASMON_OK;
    uint64_t until_ns       = pl_now_ns() + UINT64_C(60000000000);
    size_t done;

    bulk_tls_thread();
    connect_pair(&out, &in);
    bulk_link_close(&in);
    while (status == PLASMON_OK || status == PLASMON_EAGAIN) { /* until its reset is here */
        ASSERT_TRUE(pl_now_ns() < until_ns);
        status = bulk_link_try_lend(&out, bytes, 1 << 20, &done);
    }
    ASSERT_EQ(status, PLASMON_ECONNECT);
    bulk_link_close(&out);
    (void)munmap(bytes, 1 << 20);
}

TEST(both_directions_at_once)
{
    struct host a, b;

    test_expect_log(); /* under a sanitizer it may be so slow that it counts as a stall, which is told */
    host_open(&a, 0, 2 * LARGE);
    host_open(&b, 1, 2 * LARGE);
    ASSERT_OK(transfer_bulk_peer(a.bulk, 1, &b.endpoint));
    ASSERT_OK(transfer_bulk_peer(b.bulk, 0, &a.endpoint));
    fill(&a, LARGE, 1);
    fill(&b, LARGE, 2);
    send_half(&a, 1, 0, LARGE);
    send_half(&b, 0, 0, LARGE);
    {
        struct device_ptr upper_a = device_ptr_add(a.base, LARGE),
                          upper_b = device_ptr_add(b.base, LARGE);
        struct device_stream *second_a, *second_b;
        struct pl_err err;

        ASSERT_OK(device_stream_create(a.device, 0, &second_a));
        ASSERT_OK(device_stream_create(b.device, 0, &second_b));
        ASSERT_OK(
            transfer_bulk_recv(a.bulk, second_a, 1, 0, upper_a, LARGE, true, &a.counters));
        ASSERT_OK(
            transfer_bulk_recv(b.bulk, second_b, 0, 0, upper_b, LARGE, true, &b.counters));
        ASSERT_OK(device_stream_sync(second_a, &err));
        ASSERT_OK(device_stream_sync(second_b, &err));
        device_stream_destroy(second_a);
        device_stream_destroy(second_b);
    }
    finish_half(&a);
    finish_half(&b);
    for (uint64_t i = 0; i < LARGE; i += STEP) {
        if (a.memory[LARGE + i] != b.memory[i] || b.memory[LARGE + i] != a.memory[i]) {
            ASSERT_EQ(i, LARGE);
        }
    }
    host_close(&a);
    host_close(&b);
}

TEST(a_half_is_not_over_before_the_other_side_has_it)
{
    struct host a, b;

    host_open(&a, 0, LARGE);
    host_open(&b, 1, LARGE);
    ASSERT_OK(transfer_bulk_peer(a.bulk, 1, &b.endpoint));
    fill(&a, 3 * SLOT, 5);
    send_half(&a, 1, 0, 3 * SLOT);
    finish_half(&a);
    transfer_bulk_destroy(a.bulk); /* its worker dies, and does not run that half again */
    channel_open(&a, 0);
    recv_half(&b, 0, 0, 3 * SLOT);
    finish_half(&b);
    compare(&b, 3 * SLOT, 5);
    host_close(&a);
    host_close(&b);
}

TEST(a_sender_that_is_started_again_sends_again_and_nothing_arrives_twice)
{
    struct host a, b;

    host_open(&a, 0, LARGE);
    host_open(&b, 1, LARGE);
    ASSERT_OK(transfer_bulk_peer(a.bulk, 1, &b.endpoint));
    fill(&a, LARGE, 7);
    send_half(&a, 1, 0, 3 * SLOT); /* of LARGE: then its worker dies */
    recv_half(&b, 0, 0, LARGE);
    finish_half(&a);
    transfer_bulk_destroy(a.bulk);
    channel_open(&a, 0);
    ASSERT_OK(transfer_bulk_peer(a.bulk, 1, &b.endpoint));
    send_half(&a, 1, 0, LARGE);
    finish_half(&a);
    finish_half(&b);
    compare(&b, LARGE, 7);
    ASSERT_EQ(b.ring.timeline->stage_taken.value, transfer_chunks(LARGE));
    host_close(&a);
    host_close(&b);
}

TEST(a_receiver_that_is_started_again_gets_the_rest_at_its_new_address)
{
    struct host a, b;

    host_open(&a, 0, LARGE);
    host_open(&b, 1, LARGE);
    ASSERT_OK(transfer_bulk_peer(a.bulk, 1, &b.endpoint));
    fill(&a, LARGE, 9);
    send_half(&a, 1, 0, LARGE); /* the ring takes 16 chunks; nobody takes them out yet */
    while (__atomic_load_n(&b.ring.timeline->stage_ready[3].value, __ATOMIC_ACQUIRE) == 0) {
        pl_cpu_relax();
    }
    transfer_bulk_destroy(b.bulk);
    channel_open(&b, 1);
    ASSERT_OK(transfer_bulk_peer(a.bulk, 1, &b.endpoint));
    recv_half(&b, 0, 0, LARGE);
    finish_half(&a);
    finish_half(&b);
    compare(&b, LARGE, 9);
    host_close(&a);
    host_close(&b);
}

TEST(a_peer_that_is_given_up_holds_up_neither_half)
{
    struct host a, b;

    host_open(&a, 0, LARGE);
    host_open(&b, 1, LARGE);
    ASSERT_OK(transfer_bulk_peer(a.bulk, 1, &b.endpoint));
    send_half(&a, 1, 0, LARGE); /* b's device takes nothing out */
    recv_half(&a, 1, 0, LARGE); /* and b sends nothing */
    ASSERT_OK(transfer_bulk_gone(a.bulk, 1));
    ASSERT_OK(transfer_bulk_expect(a.bulk, 1, 5, transfer_chunks(LARGE) - 5));
    ASSERT_OK(transfer_bulk_expect(a.bulk, 1, 0, 5)); /* what the first fill waits for */
    finish_half(&a);
    host_close(&a);
    host_close(&b);
}

/* Its ring is full, so it answers that it waits, for ever: a half of a chunk is on its way to it. */
TEST(nor_does_one_that_is_given_up_while_it_waits_for_its_device)
{
    uint64_t until_ns = pl_now_ns() + UINT64_C(60000000000);
    struct host a, b;

    host_open(&a, 0, LARGE);
    host_open(&b, 1, LARGE);
    ASSERT_OK(transfer_bulk_peer(a.bulk, 1, &b.endpoint));
    send_half(&a, 1, 0, LARGE);
    while (__atomic_load_n(&b.ring.timeline->stage_ready[STORE_STAGE_SLOTS - 1].value,
                           __ATOMIC_ACQUIRE) == 0) {
        ASSERT_TRUE(pl_now_ns() < until_ns);
        pl_cpu_relax();
    }
    (void)poll(NULL, 0, 300); /* as much of the next one as the sockets hold */
    ASSERT_OK(transfer_bulk_gone(a.bulk, 1));
    finish_half(&a);
    host_close(&a);
    host_close(&b);
}

TEST(nobody_waits_for_ever_for_a_peer_that_was_never_there)
{
    struct transfer_bulk_endpoint nobody = {.address = "127.0.0.1:1"};
    struct host a;

    host_open(&a, 0, LARGE);
    ASSERT_EQ(transfer_bulk_send(a.bulk, a.stream, 5, 0, a.base, SLOT, true),
              PLASMON_EUNREACHABLE);
    ASSERT_OK(transfer_bulk_peer(a.bulk, 5, &nobody));
    send_half(&a, 5, 0, LARGE);
    ASSERT_OK(transfer_bulk_gone(a.bulk, 5));
    finish_half(&a);
    host_close(&a);
}

TEST(a_worker_that_only_knows_a_peer_as_gone_lets_its_half_pass)
{
    struct host a;

    host_open(&a, 0, LARGE); /* started again: it was never told an address */
    ASSERT_OK(transfer_bulk_gone(a.bulk, 5));
    send_half(&a, 5, 0, LARGE);
    finish_half(&a);
    host_close(&a);
}

/* ------------------------------------------------------------------------------- stalls */

static void send_all(int fd, const void *data, size_t bytes)
{
    ASSERT_EQ(send(fd, data, bytes, MSG_NOSIGNAL), (ssize_t)bytes);
}

/* The other side ends the connection, and says nothing more. */
static void assert_ended(int fd)
{
    struct bulk_answer answer;

    ASSERT_TRUE(recv(fd, &answer, sizeof(answer), MSG_WAITALL) <= 0);
    (void)close(fd);
}

static bool stats_of(const struct host *host, uint32_t to, struct transfer_bulk_stats *out)
{
    uint32_t peer;

    for (size_t i = 0; transfer_bulk_next_stats(host->bulk, &i, &peer, out);) {
        if (peer == to) {
            return true;
        }
    }
    return false;
}

static unsigned count_of(const char *folder)
{
    DIR *dir       = opendir(folder);
    unsigned count = 0;

    ASSERT_TRUE(dir != NULL);
    while (readdir(dir) != NULL) {
        count++;
    }
    (void)closedir(dir);
    return count;
}

TEST(who_finds_no_port_says_which_were_tried_and_what_to_do)
{
    struct sockaddr_in taken            = {.sin_family      = AF_INET,
                                           .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct transfer_bulk_config config  = {.listen = "127.0.0.1"};
    socklen_t bytes                     = sizeof(taken);
    int fd                              = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct transfer_bulk *bulk          = NULL;
    struct transfer_bulk_endpoint unset = {.address = ""};
    char ports[64];
    struct pl_err err = {.status = PLASMON_OK};

    ASSERT_EQ(bind(fd, (const struct sockaddr *)&taken, bytes), 0);
    ASSERT_EQ(listen(fd, 1), 0);
    ASSERT_EQ(getsockname(fd, (struct sockaddr *)&taken, &bytes), 0);
    config.port_first = config.port_last = ntohs(taken.sin_port);
    ASSERT_STATUS(transfer_bulk_create(&config, &bulk, &unset, &err), PLASMON_EADDRINUSE);
    (void)snprintf(ports, sizeof(ports), "no port from %u to %u of 127.0.0.1",
                   config.port_first, config.port_last);
    ASSERT_CONTAINS(err.text, ports);
    ASSERT_CONTAINS(err.text, "--bulk-ports");
    (void)close(fd);
}

/* Hosts come and go, each time with other devices: nothing may be left of each. */
TEST(of_a_peer_that_is_gone_no_thread_and_no_memory_stays)
{
    uint64_t until_ns                    = pl_now_ns() + UINT64_C(60000000000);
    struct transfer_bulk_endpoint nobody = {.address = "127.0.0.1:1"};
    struct transfer_bulk_stats stats;
    unsigned threads, files;
    struct host a;

    host_open(&a, 0, LARGE);
    threads = count_of("/proc/self/task");
    files   = count_of("/proc/self/fd");
    for (uint32_t peer = 5; peer < 8; peer++) {
        ASSERT_OK(transfer_bulk_peer(a.bulk, peer, &nobody));
        send_half(&a, peer, 0, LARGE);
    }
    transfer_bulk_rest(a.bulk); /* they live */
    ASSERT_EQ(count_of("/proc/self/task"), threads + 3);
    for (int round = 0; round < 2; round++) { /* what comes late passes, too */
        for (uint32_t peer = 5; peer < 8; peer++) {
            ASSERT_OK(transfer_bulk_gone(a.bulk, peer));
        }
        finish_half(&a);
        while (count_of("/proc/self/task") != threads ||
               count_of("/proc/self/fd") != files) {
            ASSERT_TRUE(pl_now_ns() < until_ns);
            (void)poll(NULL, 0, 10);
            transfer_bulk_rest(a.bulk);
        }
        ASSERT_TRUE(stats_of(&a, 6, &stats));
        ASSERT_EQ(stats.transfers, round + 1);
        ASSERT_EQ(stats.bytes_queued, 0);
        for (uint32_t peer = 5; round == 0 && peer < 8; peer++) {
            send_half(&a, peer, 99, LARGE);
        }
    }
    host_close(&a);
}

static void transfer(struct host *a, struct host *b, uint64_t seed)
{
    fill(a, SOME, seed);
    memset(b->memory, 0, SOME);
    send_half(a, 1, seed * transfer_chunks(SOME), SOME);
    recv_half(b, 0, seed * transfer_chunks(SOME), SOME);
    finish_half(a);
    finish_half(b);
    compare(b, SOME, seed);
}

static void break_anywhere(void)
{
    static const char *const points[] = {
        "transfer.bulk_connect",    "transfer.bulk_out_begin",    "transfer.bulk_out_half",
        "transfer.bulk_out_sent",   "transfer.bulk_out_answered", "transfer.bulk_in_begin",
        "transfer.bulk_in_half",    "transfer.bulk_in_read",      "transfer.bulk_in_ready",
        "transfer.bulk_in_answered"};
    struct transfer_bulk_stats stats;
    struct host a, b;

    test_expect_log();
    host_open(&a, 0, SOME);
    host_open(&b, 1, SOME);
    ASSERT_OK(transfer_bulk_peer(a.bulk, 1, &b.endpoint));
    for (size_t i = 0; i < PL_COUNT(points); i++) {
        pl_fault_arm(points[i], i == 0 ? 0 : 3);
        transfer(&a, &b, i);
        if (!pl_fault_disarm()) {
            test_skip("this build has no fault points");
        }
    }
    ASSERT_TRUE(stats_of(&a, 1, &stats));
    ASSERT_EQ(stats.transfers, PL_COUNT(points));
    ASSERT_EQ(stats.bytes, PL_COUNT(points) * SOME);
    ASSERT_EQ(stats.bytes_queued, 0);
    /* all that was sent may be answered at the last */
    ASSERT_TRUE(stats.retries >= PL_COUNT(points) - 2);
    ASSERT_EQ(stats.stalls, 0);
    ASSERT_TRUE(stats.rate > 0);
    host_close(&a);
    host_close(&b);
}

TEST(a_connection_that_breaks_anywhere_is_made_again_and_nothing_is_lost)
{
    break_anywhere();
}

TEST(nor_is_anything_lost_that_goes_through_slots)
{
    staged = true;
    break_anywhere();
    staged = false;
}

/* Until a sender comes, says hello and sends a chunk. */
static int take_frame(int listen_fd, struct bulk_frame *out)
{
    struct bulk_welcome welcome = {.magic = BULK_MAGIC, .version = BULK_VERSION};
    struct bulk_hello hello;
    int fd = accept(listen_fd, NULL, NULL);

    ASSERT_TRUE(fd >= 0);
    ASSERT_EQ(recv(fd, &hello, sizeof(hello), MSG_WAITALL), (ssize_t)sizeof(hello));
    send_all(fd, &welcome, sizeof(welcome));
    ASSERT_EQ(recv(fd, out, sizeof(*out), MSG_WAITALL), (ssize_t)sizeof(*out));
    return fd;
}

TEST(the_deadline_is_a_second_and_four_times_what_the_bytes_should_take)
{
    const uint64_t second = UINT64_C(1000000000);

    ASSERT_EQ(bulk_deadline_ns(0, second), second);
    ASSERT_EQ(bulk_deadline_ns(second, second), 5 * second);
    ASSERT_EQ(bulk_deadline_ns(second / 4, 2 * second), second + second / 2);
    ASSERT_EQ(bulk_deadline_ns(BULK_PART_BYTES, BULK_RATE_MIN),
              second + 4 * (BULK_PART_BYTES * UINT64_C(1000) / (BULK_RATE_MIN / 1000000)));
    ASSERT_EQ(bulk_deadline_ns(1000000, 0), 5 * second); /* as if it were a MB/s */
}

TEST(a_receiver_that_falls_silent_is_a_stall_and_one_that_is_slow_is_not)
{
    struct bulk_answer answer = {.chunk = BULK_ALIVE};
    struct transfer_bulk_endpoint endpoint;
    struct transfer_bulk_stats stats;
    struct bulk_frame frame;
    uint8_t bytes[1000];
    struct host a;
    int listen_fd     = listen_as(&endpoint), fd;
    uint64_t heard_ns = 0;

    test_expect_log();
    host_open(&a, 0, SLOT);
    fill(&a, sizeof(bytes), 1);
    ASSERT_OK(transfer_bulk_peer(a.bulk, 1, &endpoint));
    send_half(&a, 1, 0, sizeof(bytes));
    fd = take_frame(listen_fd, &frame);
    ASSERT_EQ(recv(fd, bytes, sizeof(bytes), MSG_WAITALL), (ssize_t)sizeof(bytes));
    for (int i = 0; i < 8; i++) { /* twice its deadline */
        struct pollfd ended = {.fd = fd, .events = POLLIN};
        uint64_t began_ns   = pl_now_ns();
        int count;

        heard_ns = began_ns; /* not earlier */
        send_all(fd, &answer, sizeof(answer));
        count = poll(&ended, 1, 250);
        if (pl_now_ns() - began_ns > BULK_GRACE_NS / 2) {
            test_skip("this machine is too busy for one to be slow on purpose");
        }
        ASSERT_EQ(count, 0);
    }
    assert_ended(fd); /* after more silence */
    ASSERT_TRUE(pl_now_ns() - heard_ns >= BULK_GRACE_NS);
    fd = take_frame(listen_fd, &frame);
    ASSERT_EQ(frame.chunk, 0);
    ASSERT_EQ(recv(fd, bytes, sizeof(bytes), MSG_WAITALL), (ssize_t)sizeof(bytes));
    answer.chunk = 0;
    send_all(fd, &answer, sizeof(answer));
    finish_half(&a);
    ASSERT_EQ(memcmp(bytes, a.memory, sizeof(bytes)), 0);
    ASSERT_TRUE(stats_of(&a, 1, &stats));
    ASSERT_EQ(stats.stalls, 1);
    ASSERT_EQ(stats.retries, 1);
    (void)close(fd);
    (void)close(listen_fd);
    host_close(&a);
}

TEST(a_receiver_that_falls_silent_behind_an_answer_is_a_stall_too)
{
    const uint64_t late       = UINT64_C(1) << 40; /* each byte of its number counts */
    struct bulk_answer answer = {.chunk = 0};
    struct transfer_bulk_endpoint endpoint;
    struct transfer_bulk_stats stats;
    struct bulk_frame frame;
    uint8_t bytes[1000];
    struct host a;
    int listen_fd = listen_as(&endpoint), fd;

    test_expect_log();
    host_open(&a, 0, SLOT);
    fill(&a, sizeof(bytes), 1);
    ASSERT_OK(transfer_bulk_peer(a.bulk, 1, &endpoint));
    send_half(&a, 1, 0, sizeof(bytes));
    fd = take_frame(listen_fd, &frame);
    ASSERT_EQ(recv(fd, bytes, sizeof(bytes), MSG_WAITALL), (ssize_t)sizeof(bytes));
    send_all(fd, &answer, sizeof(answer));
    finish_half(&a);
    send_half(&a, 1, late, sizeof(bytes));
    ASSERT_EQ(recv(fd, &frame, sizeof(frame), MSG_WAITALL), (ssize_t)sizeof(frame));
    ASSERT_EQ(frame.chunk, late);
    ASSERT_EQ(recv(fd, bytes, sizeof(bytes), MSG_WAITALL), (ssize_t)sizeof(bytes));
    assert_ended(fd);
    fd           = take_frame(listen_fd, &frame);
    answer.chunk = late;
    ASSERT_EQ(recv(fd, bytes, sizeof(bytes), MSG_WAITALL), (ssize_t)sizeof(bytes));
    send_all(fd, &answer, 3); /* in two pieces */
    (void)poll(NULL, 0, 50);
    send_all(fd, (const uint8_t *)&answer + 3, sizeof(answer) - 3);
    finish_half(&a);
    ASSERT_TRUE(stats_of(&a, 1, &stats));
    ASSERT_EQ(stats.stalls, 1);
    (void)close(fd);
    (void)close(listen_fd);
    host_close(&a);
}

/*
 * What is measured of a connection by which a chunk comes in 50 ms, and who receives it says
 * something on the way.
 */
static uint64_t rate_when_told(uint64_t what)
{
    static uint8_t bytes[2 << 20];
    struct bulk_answer answer = {.chunk = what};
    struct transfer_bulk_endpoint endpoint;
    struct transfer_bulk_stats stats;
    struct bulk_frame frame;
    struct host a;
    int listen_fd = listen_as(&endpoint), fd;

    host_open(&a, 0, SLOT);
    fill(&a, sizeof(bytes), 1);
    ASSERT_OK(transfer_bulk_peer(a.bulk, 1, &endpoint));
    send_half(&a, 1, 0, sizeof(bytes));
    fd = take_frame(listen_fd, &frame);
    ASSERT_EQ(recv(fd, bytes, sizeof(bytes) / 2, MSG_WAITALL), (ssize_t)sizeof(bytes) / 2);
    send_all(fd, &answer, sizeof(answer));
    (void)poll(NULL, 0, 50); /* the network takes so long */
    ASSERT_EQ(recv(fd, bytes, sizeof(bytes) / 2, MSG_WAITALL), (ssize_t)sizeof(bytes) / 2);
    answer.chunk = 0;
    send_all(fd, &answer, sizeof(answer));
    finish_half(&a);
    ASSERT_TRUE(stats_of(&a, 1, &stats));
    (void)close(fd);
    (void)close(listen_fd);
    host_close(&a);
    return stats.rate;
}

TEST(a_slow_connection_is_measured_and_a_wait_for_a_device_is_not)
{
    uint64_t rate = rate_when_told(BULK_ALIVE);

    ASSERT_TRUE(rate > 0 && rate <= (UINT64_C(2) << 20) * 20);
    ASSERT_EQ(rate_when_told(BULK_WAITING), 0);
}

TEST(a_peer_that_cannot_be_reached_is_reached_through_another)
{
    struct transfer_bulk_endpoint wrong;
    struct transfer_bulk_stats stats;
    struct host a, b, c;

    test_expect_log();
    host_open(&a, 0, SOME);
    host_open(&b, 1, SOME);
    host_open(&c, 2, SLOT);
    wrong = b.endpoint;
    (void)snprintf(wrong.address, sizeof(wrong.address), "127.0.0.1:1");
    ASSERT_OK(transfer_bulk_peer(a.bulk, 1, &wrong));
    ASSERT_OK(transfer_bulk_peer(a.bulk, 2, &c.endpoint));
    ASSERT_OK(transfer_bulk_peer(c.bulk, 1, &b.endpoint));
    transfer(&a, &b, 0);
    pl_fault_arm("transfer.bulk_relay", 5); /* the relay breaks in the middle */
    transfer(&a, &b, 1);
    (void)pl_fault_disarm();
    ASSERT_TRUE(stats_of(&a, 1, &stats));
    ASSERT_TRUE(stats.relays >= 2);
    ASSERT_TRUE(stats.stalls >= 1); /* nobody was there when the first deadline was over */
    ASSERT_TRUE(!stats_of(&c, 1, &stats));               /* c sent nothing of its own */
    ASSERT_EQ(c.ring.timeline->stage_ready[0].value, 0); /* and received nothing */

    ASSERT_OK(transfer_bulk_peer(a.bulk, 1, &b.endpoint)); /* the network is well again */
    transfer(&a, &b, 2);
    host_close(&a);
    host_close(&b);
    host_close(&c);
}

/* -------------------------------------------------------------------------------- ports */

/*
 * Of a worker that has ended, with a connection to another one: on its side that is being closed
 * for a minute.
 */
TEST(the_next_one_has_the_port_of_one_that_has_ended)
{
    struct transfer_bulk_endpoint at;
    char first[TRANSFER_BULK_ADDRESS_BYTES], second[TRANSFER_BULK_ADDRESS_BYTES];
    struct sockaddr_in to = {.sin_family = AF_INET};
    struct pl_err err     = {.status = PLASMON_OK};
    uint16_t port;
    int found = listen_as(&at), one_fd, other_fd, from_fd, to_fd;

    (void)close(found); /* no connection: it is free */
    port = (uint16_t)strtoul(strrchr(at.address, ':') + 1, NULL, 10);
    ASSERT_OK(bulk_listen("127.0.0.1", port, port, &one_fd, first, &err));
    to.sin_port        = htons(port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    from_fd            = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ASSERT_EQ(connect(from_fd, (struct sockaddr *)&to, sizeof(to)), 0);
    ASSERT_EQ(poll(&(struct pollfd){.fd = one_fd, .events = POLLIN}, 1, 10000), 1);
    to_fd = accept(one_fd, NULL, NULL);
    ASSERT_TRUE(to_fd >= 0);
    ASSERT_EQ(bulk_listen("127.0.0.1", port, port, &other_fd, second, &err),
              PLASMON_EADDRINUSE); /* while it lives */
    (void)close(to_fd);
    (void)close(one_fd);
    (void)close(from_fd);

    ASSERT_OK(bulk_listen("127.0.0.1", port, port, &other_fd, second, &err));
    ASSERT_STR(first, second);
    (void)close(other_fd);
}

static int option_of(int fd, int level, int name)
{
    int value       = -1;
    socklen_t bytes = sizeof(value);

    ASSERT_EQ(getsockopt(fd, level, name, &value, &bytes), 0);
    return value;
}

/* The system asks whether it is there: here, whether it would, for it takes a minute and a half. */
TEST(who_is_cut_off_keeps_no_connection)
{
    char address[TRANSFER_BULK_ADDRESS_BYTES];
    struct pl_err err = {.status = PLASMON_OK};
    int listener, fds[2];

    ASSERT_OK(bulk_listen("127.0.0.1", 0, 0, &listener, address, &err));
    ASSERT_OK(bulk_connect(address, -1, &fds[0], &err));
    ASSERT_EQ(poll(&(struct pollfd){.fd = listener, .events = POLLIN}, 1, 10000), 1);
    fds[1] = accept(listener, NULL, NULL);
    ASSERT_TRUE(fds[1] >= 0);
    for (int i = 0; i < 2; i++) {
        ASSERT_EQ(option_of(fds[i], SOL_SOCKET, SO_KEEPALIVE), 1);
        ASSERT_TRUE(option_of(fds[i], IPPROTO_TCP, TCP_KEEPIDLE) +
                        option_of(fds[i], IPPROTO_TCP, TCP_KEEPINTVL) *
                            option_of(fds[i], IPPROTO_TCP, TCP_KEEPCNT) <=
                    120);
        (void)close(fds[i]);
    }
    (void)close(listener);
}

/* ------------------------------------------------------------------------------ hostile */

static int connect_to(const struct host *host)
{
    struct sockaddr_in to = {.sin_family = AF_INET};
    int fd                = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const char *port      = strrchr(host->endpoint.address, ':');

    ASSERT_NOT_NULL(port);
    to.sin_port        = htons((uint16_t)strtoul(port + 1, NULL, 10));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ASSERT_EQ(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
    return fd;
}

static struct bulk_hello hello_of(const struct host *host)
{
    struct bulk_hello hello = {
        .magic = BULK_MAGIC, .version = BULK_VERSION, .from = 0, .to = 1};

    memcpy(hello.secret, host->endpoint.secret, sizeof(hello.secret));
    return hello;
}

static void assert_welcome(int fd, plasmon_status_t status)
{
    struct bulk_welcome welcome = {.magic = 0};

    ASSERT_EQ(recv(fd, &welcome, sizeof(welcome), MSG_WAITALL), (ssize_t)sizeof(welcome));
    ASSERT_EQ(welcome.magic, BULK_MAGIC);
    ASSERT_EQ(welcome.version, BULK_VERSION);
    ASSERT_EQ(welcome.status, status);
}

static void expect_refused(const struct host *b, const struct bulk_hello *hello,
                           plasmon_status_t status)
{
    int fd = connect_to(b);

    send_all(fd, hello, sizeof(*hello));
    assert_welcome(fd, status);
    assert_ended(fd);
}

TEST(strangers_are_refused)
{
    static const char stranger[] = "GET / HTTP/1.1\r\nHost: anybody\r\nAccept: */*\r\n\r\n";
    struct bulk_hello hello;
    struct host b;
    int fd;

    test_expect_log();
    host_open(&b, 1, SLOT);
    hello = hello_of(&b);
    hello.secret[15] ^= 1;
    expect_refused(&b, &hello, PLASMON_EAUTH);

    hello         = hello_of(&b);
    hello.version = BULK_VERSION + 1;
    expect_refused(&b, &hello, PLASMON_EVERSION);

    hello    = hello_of(&b);
    hello.to = 7; /* nobody that it could pass this on to */
    expect_refused(&b, &hello, PLASMON_EUNREACHABLE);

    fd = connect_to(&b);
    send_all(fd, stranger, sizeof(stranger));
    assert_ended(fd);

    fd = connect_to(&b); /* says too little, and is not waited for */
    send_all(fd, &hello, sizeof(hello) - 1);
    assert_ended(fd);
    ASSERT_EQ(b.ring.timeline->stage_ready[0].value, 0);
    host_close(&b);
}

static atomic_bool refusal_names; /* the log said from where, and what is wrong */

static void refusal_hear(void *user, enum pl_log_level level, const char *module,
                         const char *text)
{
    (void)user;
    (void)module;
    if (level == PL_LOG_WARN && strstr(text, "a connection from 127.0.0.1:") != NULL &&
        strstr(text, "no secret of this worker") != NULL) {
        atomic_store(&refusal_names, true);
    }
}

TEST(who_was_refused_is_named_in_the_log)
{
    struct bulk_hello hello;
    struct host b;

    test_expect_log();
    pl_log_set_sink(refusal_hear, NULL);
    host_open(&b, 1, SLOT);
    hello = hello_of(&b);
    hello.secret[15] ^= 1;
    expect_refused(&b, &hello, PLASMON_EAUTH);
    while (!atomic_load(&refusal_names)) {
        (void)poll(NULL, 0, 5);
    }
    host_close(&b);
    pl_log_set_sink(NULL, NULL);
}

TEST(a_sender_that_breaks_the_protocol_is_disconnected_and_writes_nothing)
{
    static const struct bulk_frame wrong[] = {
        {.chunk = 0, .bytes = STORE_STAGE_SLOT_BYTES + 1},
        {.chunk = UINT64_MAX, .bytes = 8},
        {.chunk = 0, .bytes = UINT32_MAX},
    };
    struct host b;

    test_expect_log();
    host_open(&b, 1, SLOT);
    for (size_t i = 0; i < PL_COUNT(wrong); i++) {
        struct bulk_hello hello = hello_of(&b);
        int fd                  = connect_to(&b);

        send_all(fd, &hello, sizeof(hello));
        assert_welcome(fd, PLASMON_OK);
        send_all(fd, &wrong[i], sizeof(wrong[i]));
        assert_ended(fd);
        ASSERT_EQ(b.ring.timeline->stage_ready[0].value, 0);
    }
    host_close(&b);
}

TEST(a_chunk_of_another_length_than_is_expected_in_its_place_is_refused)
{
    struct bulk_frame frame = {.chunk = 0, .bytes = 1001};
    struct bulk_hello hello;
    struct host a, b;
    int fd;

    test_expect_log();
    host_open(&a, 0, SLOT);
    host_open(&b, 1, SLOT);
    recv_half(&b, 0, 0, 1000);
    until_begun(&b, 0, 1000);
    hello = hello_of(&b);
    fd    = connect_to(&b);
    send_all(fd, &hello, sizeof(hello));
    assert_welcome(fd, PLASMON_OK);
    send_all(fd, &frame, sizeof(frame));
    assert_ended(fd);
    ASSERT_EQ(b.ring.timeline->stage_ready[0].value, 0);

    fill(&a, 1000, 4);
    ASSERT_OK(transfer_bulk_peer(a.bulk, 1, &b.endpoint));
    send_half(&a, 1, 0, 1000);
    finish_half(&a);
    finish_half(&b);
    compare(&b, 1000, 4);
    host_close(&a);
    host_close(&b);
}

/*
 * Its words are moved without bytes now: one that sends after all would write beside whoever has
 * the slots by then.
 */
TEST(who_was_given_up_does_not_get_in_again)
{
    struct bulk_hello hello;
    struct host b;
    int before, after;

    test_expect_log();
    host_open(&b, 1, SLOT);
    hello  = hello_of(&b);
    before = connect_to(&b);
    send_all(before, &hello, sizeof(hello));
    assert_welcome(before, PLASMON_OK);
    ASSERT_OK(transfer_bulk_gone(b.bulk, 0));
    assert_ended(before);
    after = connect_to(&b);
    send_all(after, &hello, sizeof(hello));
    assert_welcome(after, PLASMON_ECLOSED);
    assert_ended(after);
    host_close(&b);
}

/* -------------------------------------------------------------------- nobody reaches it */

static uint64_t unreached_ms(struct host *host, uint32_t peer,
                             struct transfer_bulk_stats *out)
{
    return stats_of(host, peer, out) ? out->unreached_ms : 0;
}

TEST(whom_nobody_reaches_is_told_of_and_what_is_given_up_holds_up_neither_half)
{
    struct transfer_bulk_endpoint wrong;
    struct transfer_bulk_stats stats;
    struct host a, b;
    uint64_t count = transfer_chunks(LARGE);

    test_expect_log();
    host_open(&a, 0, LARGE);
    host_open(&b, 1, LARGE);
    wrong = b.endpoint;
    (void)snprintf(wrong.address, sizeof(wrong.address), "127.0.0.1:1");
    ASSERT_OK(transfer_bulk_peer(a.bulk, 1, &wrong));
    send_half(&a, 1, 0, LARGE);
    recv_half(&b, 0, 0, LARGE);
    while (unreached_ms(&a, 1, &stats) == 0) {
        (void)poll(NULL, 0, 5);
    }
    ASSERT_EQ(stats.unreached_last, count - 1);
    ASSERT_NOT_NULL(strstr(stats.unreached_why, "127.0.0.1:1"));

    ASSERT_OK(transfer_bulk_give_up(b.bulk, 0, true, 0, count));
    finish_half(&b);
    ASSERT_OK(transfer_bulk_give_up(a.bulk, 1, false, 0, count));
    finish_half(&a);

    ASSERT_OK(transfer_bulk_peer(a.bulk, 1, &b.endpoint)); /* the network is well again */
    fill(&a, SOME, 3);
    send_half(&a, 1, count, SOME);
    recv_half(&b, 0, count, SOME);
    finish_half(&a);
    finish_half(&b);
    compare(&b, SOME, 3);
    ASSERT_EQ(unreached_ms(&a, 1, &stats), 0);
    host_close(&a);
    host_close(&b);
}

TEST(a_transfer_behind_one_that_was_given_up_arrives_over_the_same_way)
{
    struct host a, b;
    uint64_t count = transfer_chunks(LARGE);

    host_open(&a, 0, LARGE);
    host_open(&b, 1, LARGE);
    fill(&a, LARGE, 5);
    ASSERT_OK(transfer_bulk_give_up(a.bulk, 1, false, 0, count)); /* before its half */
    ASSERT_OK(transfer_bulk_give_up(b.bulk, 0, true, 0, count));
    ASSERT_OK(transfer_bulk_peer(a.bulk, 1, &b.endpoint));
    send_half(&a, 1, 0, LARGE);
    send_half(&a, 1, count, LARGE);
    recv_half(&b, 0, 0, LARGE);
    recv_half(&b, 0, count, LARGE);
    finish_half(&a);
    finish_half(&b);
    compare(&b, LARGE, 5);
    host_close(&a);
    host_close(&b);
}

/*
 * Its ring is cleared before it begins, which is when the channel hears who we are: until then
 * nobody may have moved a word of it.
 */
TEST(before_a_ring_has_begun_nothing_comes_into_it)
{
    struct transfer_bulk_stats stats;
    struct host a, b;

    test_expect_log();
    host_open(&a, 0, SOME);
    host_open(&b, 1, SOME);
    transfer_bulk_destroy(b.bulk);
    identified = false;
    channel_open(&b, 1);
    identified = true;
    ASSERT_OK(transfer_bulk_give_up(b.bulk, 2, true, 0, 1));
    ASSERT_OK(transfer_bulk_peer(a.bulk, 1, &b.endpoint));
    fill(&a, SOME, 6);
    send_half(&a, 1, 1, SOME);
    while (unreached_ms(&a, 1, &stats) == 0) {
        (void)poll(NULL, 0, 5);
    }
    for (uint32_t i = 0; i < STORE_STAGE_SLOTS; i++) {
        ASSERT_EQ(b.ring.timeline->stage_ready[i].value, 0);
    }
    transfer_bulk_identify(b.bulk, 1);
    ASSERT_OK(transfer_stage_recv(b.stream, &b.ring, 0, b.base, SLOT, false, &b.counters));
    recv_half(&b, 0, 1, SOME);
    finish_half(&a);
    finish_half(&b);
    compare(&b, SOME, 6);
    host_close(&a);
    host_close(&b);
}

/* Device 0 is one like any other: who has not heard who it is, is not that. */
TEST(who_has_no_number_yet_is_not_device_0)
{
    struct transfer_bulk_stats stats;
    struct host a, b;

    test_expect_log();
    host_open(&a, 1, SOME);
    host_open(&b, 0, SOME);
    transfer_bulk_destroy(b.bulk);
    identified = false;
    channel_open(&b, 0);
    identified = true;
    ASSERT_OK(transfer_bulk_peer(a.bulk, 0, &b.endpoint));
    fill(&a, SOME, 7);
    send_half(&a, 0, 0, SOME);
    while (unreached_ms(&a, 0, &stats) == 0) {
        ASSERT_EQ(b.ring.timeline->stage_ready[0].value, 0);
        (void)poll(NULL, 0, 5);
    }
    transfer_bulk_identify(b.bulk, 0);
    recv_half(&b, 1, 0, SOME);
    finish_half(&a);
    finish_half(&b);
    compare(&b, SOME, 7);
    host_close(&a);
    host_close(&b);
}

/* Its slot is another one's by then, or will be. */
TEST(bytes_of_what_was_given_up_are_dropped)
{
    static const uint8_t bytes[1000] = {[0] = 1, [999] = 2};
    /* its slot is not empty: nobody moves its word yet */
    const uint64_t chunk    = STORE_STAGE_SLOTS;
    struct bulk_frame frame = {.chunk = chunk, .bytes = sizeof(bytes)};
    struct bulk_answer answer;
    struct bulk_hello hello;
    struct host b;
    int fd;

    test_expect_log();
    host_open(&b, 1, SLOT);
    hello = hello_of(&b);
    fd    = connect_to(&b);
    ASSERT_OK(transfer_bulk_give_up(b.bulk, 0, true, chunk, 1));
    send_all(fd, &hello, sizeof(hello));
    assert_welcome(fd, PLASMON_OK);
    send_all(fd, &frame, sizeof(frame));
    send_all(fd, bytes, sizeof(bytes));
    __atomic_store_n(&b.ring.timeline->stage_taken.value, 1, __ATOMIC_RELEASE);
    do {
        ASSERT_EQ(recv(fd, &answer, sizeof(answer), MSG_WAITALL), (ssize_t)sizeof(answer));
    } while (answer.chunk == BULK_WAITING || answer.chunk == BULK_ALIVE);
    ASSERT_EQ(answer.chunk, chunk);
    ASSERT_EQ(b.ring.slab[0], 0);
    ASSERT_EQ(b.ring.slab[999], 0);
    while (__atomic_load_n(&b.ring.timeline->stage_ready[0].value, __ATOMIC_ACQUIRE) == 0) {
        (void)poll(NULL, 0, 1); /* the filler's turn */
    }
    (void)close(fd);
    host_close(&b);
}

/* A device that takes its time is no network that is gone, whatever was before. */
TEST(who_waits_for_a_device_is_reached)
{
    struct bulk_answer answer = {.chunk = BULK_WAITING};
    struct transfer_bulk_endpoint endpoint;
    struct transfer_bulk_stats stats;
    struct bulk_frame frame;
    int listen_fd = listen_as(&endpoint), fd;
    struct host a;

    test_expect_log();
    host_open(&a, 0, SLOT);
    ASSERT_OK(transfer_bulk_peer(a.bulk, 1, &endpoint));
    send_half(&a, 1, 0, 1000);
    for (int i = 0; i < 2 || unreached_ms(&a, 1, &stats) == 0; i++) {
        fd = take_frame(listen_fd, &frame);
        (void)close(fd); /* unanswered */
    }
    fd = take_frame(listen_fd, &frame);
    send_all(fd, &answer, sizeof(answer));
    while (unreached_ms(&a, 1, &stats) != 0) {
        (void)poll(NULL, 0, 1);
    }
    answer.chunk = 0;
    send_all(fd, &answer, sizeof(answer));
    finish_half(&a);
    (void)close(fd);
    (void)close(listen_fd);
    host_close(&a);
}

/* ----------------------------------------------------------------------------- in place */

static uint8_t *place_of(struct bulk_place_board *board, const struct host *host,
                         uint32_t peer, uint64_t chunk, uint64_t bytes)
{
    uint8_t *data = NULL;

    ASSERT_OK(bulk_place_find(board, &host->ring, peer, chunk, bytes, &data));
    return data;
}

TEST(a_place_is_for_its_chunks_of_its_peer_in_their_order_while_its_half_runs)
{
    const uint64_t bytes = SLOT + 1000;
    uint64_t until_ns    = pl_now_ns() + UINT64_C(60000000000);
    struct bulk_place_board *board;
    struct host b;
    struct pl_err err;
    uint8_t *data;

    host_open(&b, 1, 3 * SLOT);
    ASSERT_OK(bulk_place_create(&board));
    __atomic_store_n(&b.ring.timeline->stage_taken.value, 5,
                     __ATOMIC_RELEASE); /* of a ring that is in use */
    ASSERT_TRUE(place_of(board, &b, 0, 5, SLOT) == NULL);
    ASSERT_OK(bulk_place_recv(board, &b.ring, b.stream, 0, 5, b.memory, bytes));
    while (place_of(board, &b, 0, 5, SLOT) == NULL) { /* it has begun */
        ASSERT_TRUE(pl_now_ns() < until_ns);
    }
    ASSERT_TRUE(place_of(board, &b, 0, 5, SLOT) == b.memory);
    ASSERT_TRUE(place_of(board, &b, 2, 5, SLOT) == NULL); /* of another device */
    ASSERT_TRUE(place_of(board, &b, 0, 5, 0) == NULL);
    ASSERT_TRUE(place_of(board, &b, 0, 4, SLOT) == NULL);
    ASSERT_TRUE(place_of(board, &b, 0, 6, 1000) == NULL); /* the one before is to come */
    ASSERT_STATUS(bulk_place_find(board, &b.ring, 0, 5, SLOT - 1, &data),
                  PLASMON_EMALFORMED);
    bulk_place_filled(&b.ring, 5);
    ASSERT_TRUE(place_of(board, &b, 0, 5, SLOT) == NULL);
    ASSERT_TRUE(place_of(board, &b, 0, 6, 1000) == b.memory + SLOT);
    ASSERT_STATUS(bulk_place_find(board, &b.ring, 0, 6, SLOT, &data), PLASMON_EMALFORMED);
    bulk_place_filled(&b.ring, 6);
    ASSERT_TRUE(place_of(board, &b, 0, 7, SLOT) == NULL); /* the next half's */
    for (uint64_t chunk = 5; chunk < 7; chunk++) {
        uint64_t *ready = &b.ring.timeline->stage_ready[chunk % STORE_STAGE_SLOTS].value;

        __atomic_store_n(ready, chunk + 1, __ATOMIC_RELEASE);
        device_word_wake(ready);
    }
    ASSERT_OK(device_stream_sync(b.stream, &err));
    __atomic_store_n(&b.ring.timeline->stage_taken.value, 5,
                     __ATOMIC_RELEASE); /* its half is over, whatever comes */
    ASSERT_TRUE(place_of(board, &b, 0, 5, SLOT) == NULL);
    bulk_place_release(board);
    host_close(&b);
}

/* The test is the thread of device 0's connection, which is held up between the two words of its chunk. */
TEST(the_word_of_a_slot_does_not_go_back_behind_its_next_chunk)
{
    const uint64_t bytes = 1000;
    uint64_t chunk;
    struct host b, c;

    host_open(&b, 1, SLOT);
    host_open(&c, 2, SLOT);
    ASSERT_OK(transfer_bulk_peer(c.bulk, 1, &b.endpoint));
    fill(&c, bytes, 5);
    recv_half(&b, 0, 0, bytes);
    until_begun(&b, 0, bytes);
    bulk_place_filled(&b.ring, 0);
    for (chunk = 1; chunk <= STORE_STAGE_SLOTS; chunk++) {
        send_half(&c, 1, chunk, bytes);
    }
    finish_half(&c); /* the last one is in the slot of chunk 0 */
    bulk_slot_ready(&b.ring, 0);
    ASSERT_EQ(b.ring.timeline->stage_ready[0].value, STORE_STAGE_SLOTS + 1);
    for (chunk = 1; chunk <= STORE_STAGE_SLOTS; chunk++) {
        recv_half(&b, 2, chunk, bytes);
    }
    finish_half(&b);
    compare(&b, bytes, 5);
    host_close(&b);
    host_close(&c);
}

/* ------------------------------------------------------------------------------ clients */

/* A device that takes its time with what a client puts or gets. */
static struct slow_access {
    struct transfer_bulk_access access;
    atomic_bool committed[2]; /* slots that the device works on */
    atomic_bool through;      /* it is with all of them */
    atomic_uint polls;
    atomic_uint ends;
    atomic_uint early; /* of these, while it worked there */
    atomic_bool closed;
    atomic_ullong bytes;
    uint8_t memory[2][4096];
} slow;

static plasmon_status_t slow_open(void *user, const struct bulk_request *request,
                                  struct transfer_bulk_access **out_access,
                                  struct pl_err *err)
{
    (void)user;
    (void)request;
    (void)err;
    *out_access = &slow.access;
    return PLASMON_OK;
}

static void slow_close(void *user, struct transfer_bulk_access *access, uint64_t bytes,
                       bool whole)
{
    (void)user;
    (void)access;
    atomic_store(&slow.bytes, bytes + whole);
    atomic_store(&slow.closed, true);
}

static plasmon_status_t slow_begin(void *user, struct transfer_bulk_access *access,
                                   uint32_t slot, uint64_t offset, uint32_t bytes,
                                   void **out_memory)
{
    (void)user;
    (void)access;
    (void)offset;
    ASSERT_TRUE(slot < 2 && bytes <= sizeof(slow.memory[slot]));
    *out_memory = slow.memory[slot];
    return PLASMON_OK;
}

static plasmon_status_t slow_begin_get(void *user, struct transfer_bulk_access *access,
                                       uint32_t slot, uint64_t offset, uint32_t bytes,
                                       void **out_memory)
{
    atomic_store(&slow.committed[slot], true);
    return slow_begin(user, access, slot, offset, bytes, out_memory);
}

static void slow_commit(void *user, struct transfer_bulk_access *access, uint32_t slot)
{
    (void)user;
    (void)access;
    atomic_store(&slow.committed[slot], true);
}

static plasmon_status_t slow_poll(void *user, struct transfer_bulk_access *access,
                                  uint32_t slot)
{
    (void)user;
    (void)access;
    (void)slot;
    (void)atomic_fetch_add(&slow.polls, 1);
    return atomic_load(&slow.through) ? PLASMON_OK : PLASMON_EAGAIN;
}

static void slow_end(void *user, struct transfer_bulk_access *access, uint32_t slot)
{
    (void)user;
    (void)access;
    (void)atomic_fetch_add(&slow.ends, 1);
    if (atomic_load(&slow.committed[slot]) && !atomic_load(&slow.through)) {
        (void)atomic_fetch_add(&slow.early, 1);
    }
}

/* A client that goes in the middle: what the device works on stays its own until it is through. */
static void client_goes(bool put, unsigned pieces)
{
    const struct transfer_bulk_access_ops ops = {.open  = slow_open,
                                                 .close = slow_close,
                                                 .begin = put ? slow_begin : slow_begin_get,
                                                 .commit = slow_commit,
                                                 .poll   = slow_poll,
                                                 .end    = slow_end};
    struct bulk_request request = {.kind = put ? BULK_PUT : BULK_GET, .bytes = 3000};
    struct bulk_part part       = {.bytes = 1000};
    uint64_t until_ns           = pl_now_ns() + UINT64_C(60000000000);
    struct bulk_hello hello;
    struct host b;
    unsigned polls;
    int fd;

    memset(&slow, 0, sizeof(slow));
    slow.access.slots = 2;
    access_ops        = &ops;
    host_open(&b, 1, SLOT);
    hello      = hello_of(&b);
    hello.from = BULK_CLIENT;
    fd         = connect_to(&b);
    send_all(fd, &hello, sizeof(hello));
    assert_welcome(fd, PLASMON_OK);
    send_all(fd, &request, sizeof(request));
    if (put) {
        send_all(fd, &part, sizeof(part));
        send_all(fd, b.memory, part.bytes);
        part.offset = part.bytes;
        send_all(fd, &part, sizeof(part));
        send_all(fd, b.memory, part.bytes / 2); /* of the second one only half */
    }
    while (atomic_load(&slow.polls) == 0) {
        ASSERT_TRUE(pl_now_ns() < until_ns);
        (void)poll(NULL, 0, 1);
    }
    polls = atomic_load(&slow.polls);
    (void)close(fd);
    for (int i = 0; i < 100 && !atomic_load(&slow.closed); i++) { /* it is noticed */
        (void)poll(NULL, 0, 10);
    }
    ASSERT_TRUE(!atomic_load(&slow.closed));
    ASSERT_EQ(atomic_load(&slow.ends), 0);
    ASSERT_TRUE(atomic_load(&slow.polls) > polls);
    atomic_store(&slow.through, true);
    while (!atomic_load(&slow.closed)) {
        ASSERT_TRUE(pl_now_ns() < until_ns);
        (void)poll(NULL, 0, 1);
    }
    ASSERT_EQ(atomic_load(&slow.ends), pieces);
    ASSERT_EQ(atomic_load(&slow.early), 0);
    ASSERT_EQ(atomic_load(&slow.bytes), 0);
    host_close(&b);
    access_ops = NULL;
}

TEST(a_put_whose_client_goes_lets_the_device_end_what_it_has)
{
    client_goes(true, 2);
}

TEST(a_get_whose_client_goes_lets_the_device_end_what_it_has)
{
    client_goes(false, 1);
}

TEST(half_a_chunk_is_no_chunk)
{
    struct bulk_frame frame = {.chunk = 0, .bytes = 1000};
    struct bulk_hello hello;
    struct host a, b;
    int fd;

    host_open(&a, 0, SLOT);
    host_open(&b, 1, SLOT);
    hello = hello_of(&b);
    fd    = connect_to(&b);
    send_all(fd, &hello, sizeof(hello));
    assert_welcome(fd, PLASMON_OK);
    send_all(fd, &frame, sizeof(frame));
    send_all(fd, a.memory, 999);
    assert_ended(fd); /* whoever stops in the middle of a chunk */

    fill(&a, 1000, 3);
    ASSERT_OK(transfer_bulk_peer(a.bulk, 1, &b.endpoint));
    recv_half(&b, 0, 0, 1000);
    send_half(&a, 1, 0, 1000);
    finish_half(&a);
    finish_half(&b);
    compare(&b, 1000, 3);
    host_close(&a);
    host_close(&b);
}

TEST(a_chunk_that_comes_slowly_is_heard_of)
{
    struct bulk_frame frame   = {.chunk = 0, .bytes = (uint32_t)SLOT};
    struct bulk_answer answer = {.chunk = 0};
    uint64_t until_ns         = pl_now_ns() + UINT64_C(60000000000);
    struct bulk_hello hello;
    struct host b;
    ssize_t heard = 0;
    int fd;

    host_open(&b, 1, SLOT);
    hello = hello_of(&b);
    fd    = connect_to(&b);
    send_all(fd, &hello, sizeof(hello));
    assert_welcome(fd, PLASMON_OK);
    send_all(fd, &frame, sizeof(frame));
    while (heard <= 0) { /* ten bytes wake nobody, but are seen */
        struct pollfd spoken = {.fd = fd, .events = POLLIN};

        ASSERT_TRUE(pl_now_ns() < until_ns);
        send_all(fd, b.memory, 10);
        (void)poll(&spoken, 1, 20);
        heard = recv(fd, &answer, sizeof(answer), MSG_DONTWAIT);
        ASSERT_TRUE(heard != 0);
    }
    ASSERT_EQ(heard, (ssize_t)sizeof(answer));
    ASSERT_EQ(answer.chunk, BULK_ALIVE);
    (void)close(fd);
    host_close(&b);
}

/* ---------------------------------------------------------------------------------- TLS */

static void issue(const char *authority, const char *name, uint32_t roles)
{
    struct trust_request request = {
        .name = name, .roles = roles, .begins_s = -300, .ends_s = 3600};
    struct pl_err err = {0};
    char dir[128], from[256], to[128];

    (void)snprintf(dir, sizeof(dir), "%s/%s", tls_folder, authority);
    ASSERT_OK(trust_issue(dir, &request, &err));
    for (int i = 0; i < 2; i++) {
        const char *suffix = i == 0 ? "crt" : "key";

        (void)snprintf(from, sizeof(from), "%s/%s.%s", dir, name, suffix);
        (void)snprintf(to, sizeof(to), "%s/%s.%s", tls_folder, name, suffix);
        ASSERT_EQ(rename(from, to), 0);
    }
}

static void append(const char *from, const char *to)
{
    FILE *in = fopen(from, "re"), *out = fopen(to, "ae");
    int c;

    ASSERT_TRUE(in != NULL && out != NULL);
    while ((c = fgetc(in)) != EOF) {
        (void)fputc(c, out);
    }
    ASSERT_EQ(fclose(in), 0);
    ASSERT_EQ(fclose(out), 0);
}

/*
 * Two authorities. ours and client are of the first, in ca.crt; strange is of the second; both.crt
 * has the two.
 */
static void tls_begin(void)
{
    static const char *const authorities[] = {"first", "second"};
    struct pl_err err                      = {0};
    char path[256];

    (void)snprintf(tls_folder, sizeof(tls_folder), "/tmp/bulk-tls.XXXXXX");
    ASSERT_NOT_NULL(mkdtemp(tls_folder));
    for (size_t i = 0; i < PL_COUNT(authorities); i++) {
        (void)snprintf(path, sizeof(path), "%s/%s", tls_folder, authorities[i]);
        ASSERT_OK(trust_authority_create(path, authorities[i], TRUST_EC_P256, 3600, &err));
        (void)snprintf(path, sizeof(path), "%s/%s/ca.crt", tls_folder, authorities[i]);
        append(path, certificate_file("both", ".crt"));
        if (i == 0) {
            append(path, certificate_file("ca", ".crt"));
        }
    }
    issue("first", "ours", TRUST_ROLE_HOST);
    issue("first", "client", TRUST_ROLE_CLIENT);
    issue("second", "strange", TRUST_ROLE_HOST);
}

static void tls_end(void)
{
    static const char *const names[] = {
        "ca.crt",     "both.crt",      "ours.crt",      "ours.key",     "client.crt",
        "client.key", "strange.crt",   "strange.key",   "first/ca.crt", "first/ca.key",
        "first",      "second/ca.crt", "second/ca.key", "second"};

    for (size_t i = 0; i < PL_COUNT(names); i++) {
        ASSERT_EQ(remove(certificate_file(names[i], "")), 0);
    }
    ASSERT_EQ(rmdir(tls_folder), 0);
}

TEST(transfers_go_over_tls_between_those_of_one_authority)
{
    struct host a, b, c;
    struct transfer_bulk_endpoint wrong;

    test_expect_log();
    tls_begin();
    host_open_tls(&a, 0, SOME, "ours", "ca");
    host_open_tls(&b, 1, SOME, "ours", "ca");
    host_open_tls(&c, 2, SLOT, "ours", "ca");
    ASSERT_OK(transfer_bulk_peer(a.bulk, 1, &b.endpoint));
    transfer(&a, &b, 0);
    pl_fault_arm("transfer.bulk_in_half", 2);
    transfer(&a, &b, 1);
    (void)pl_fault_disarm();

    wrong = b.endpoint; /* and through a relay */
    (void)snprintf(wrong.address, sizeof(wrong.address), "127.0.0.1:1");
    ASSERT_OK(transfer_bulk_peer(a.bulk, 1, &wrong));
    ASSERT_OK(transfer_bulk_peer(a.bulk, 2, &c.endpoint));
    ASSERT_OK(transfer_bulk_peer(c.bulk, 1, &b.endpoint));
    transfer(&a, &b, 2);
    host_close(&a);
    host_close(&b);
    host_close(&c);
    tls_end();
}

/* Nothing of it arrives, and both sides are well afterwards. */
static void assert_no_transfer(struct host *from, struct host *to)
{
    uint32_t before = 0;

    fill(from, 1000, 1);
    ASSERT_OK(transfer_bulk_peer(from->bulk, 1, &to->endpoint));
    send_half(from, 1, 0, 1000);
    for (int i = 0; i < 300; i++) { /* some attempts */
        bulk_pause(&before);
    }
    {
        struct pollfd never = {.fd = -1};

        (void)poll(&never, 1, 300);
    }
    ASSERT_EQ(to->ring.timeline->stage_ready[0].value, 0);
    ASSERT_OK(transfer_bulk_gone(from->bulk, 1));
    finish_half(from);
}

TEST(neither_strangers_nor_those_without_tls_get_in)
{
    struct host ours, strange, plain, b, c;
    int fd;

    test_expect_log();
    tls_begin();
    host_open_tls(&ours, 0, SOME, "ours", "ca");
    host_open_tls(&strange, 0, SOME, "strange",
                  "both"); /* it trusts us, we do not trust it */
    host_open(&plain, 0, SOME);
    host_open_tls(&b, 1, SOME, "ours", "ca");
    host_open(&c, 1, SOME);
    assert_no_transfer(&strange, &b);
    assert_no_transfer(&plain, &b);
    assert_no_transfer(&ours, &c); /* TLS to one that speaks without */

    fd = connect_to(&b); /* silent: its handshake has an end */
    assert_ended(fd);
    fd = connect_to(&b);
    send_all(fd, "GET / HTTP/1.1\r\n\r\n", 18);
    ASSERT_TRUE(shutdown(fd, SHUT_WR) == 0);
    {
        char alert[64];

        while (recv(fd, alert, sizeof(alert), 0) > 0) {
        }
        (void)close(fd);
    }
    host_close(&ours);
    host_open_tls(&ours, 0, SOME, "ours", "ca");
    ASSERT_OK(transfer_bulk_peer(ours.bulk, 1, &b.endpoint));
    transfer(&ours, &b, 0);
    host_close(&ours);
    host_close(&strange);
    host_close(&plain);
    host_close(&b);
    host_close(&c);
    tls_end();
}

TEST(certificates_that_cannot_be_used_are_named)
{
    struct transfer_bulk_config config = {.listen = "127.0.0.1"};
    struct transfer_bulk_endpoint endpoint;
    struct transfer_bulk *bulk;
    struct pl_err err = {.status = PLASMON_OK};
    struct host a;

    tls_begin();
    host_open(&a, 0, SLOT);
    config.device   = a.device;
    config.ring     = a.ring;
    config.tls_cert = certificate_file("ours", ".crt");
    config.tls_key  = certificate_file("strange", ".key");
    config.tls_ca   = certificate_file("ca", ".crt");
    ASSERT_EQ(transfer_bulk_create(&config, &bulk, &endpoint, &err), PLASMON_EINVAL);
    ASSERT_CONTAINS(err.text, "--tls-key");
    config.tls_cert = certificate_file("nothing", ".crt");
    ASSERT_EQ(transfer_bulk_create(&config, &bulk, &endpoint, &err), PLASMON_ENOENT);
    ASSERT_CONTAINS(err.text, "--tls-cert");
    config.tls_cert = certificate_file("client", ".crt"); /* of the CA, and no host's */
    config.tls_key  = certificate_file("client", ".key");
    ASSERT_EQ(transfer_bulk_create(&config, &bulk, &endpoint, &err), PLASMON_EAUTH);
    ASSERT_CONTAINS(err.text, "is for client");
    config.tls_cert = certificate_file("ours", ".crt");
    config.tls_key  = certificate_file("ours", ".key");
    config.tls_ca   = certificate_file("ours", ".key");
    ASSERT_EQ(transfer_bulk_create(&config, &bulk, &endpoint, &err), PLASMON_EINVAL);
    ASSERT_CONTAINS(err.text, "--tls-ca");
    host_close(&a);
    tls_end();
}

TEST(an_address_that_cannot_be_listened_on_says_why)
{
    struct transfer_bulk_config config = {.listen = "203.0.113.7"};
    struct transfer_bulk_endpoint endpoint;
    struct transfer_bulk *bulk;
    struct pl_err err = {.status = PLASMON_OK};
    struct host a;

    host_open(&a, 0, SLOT);
    config.device = a.device;
    config.ring   = a.ring;
    ASSERT_TRUE(transfer_bulk_create(&config, &bulk, &endpoint, &err) != PLASMON_OK);
    ASSERT_NOT_NULL(strstr(err.text, "203.0.113.7"));
    config.listen = "somewhere";
    ASSERT_EQ(transfer_bulk_create(&config, &bulk, &endpoint, &err), PLASMON_EINVAL);
    ASSERT_NOT_NULL(strstr(err.text, "somewhere"));
    host_close(&a);
}

TEST_MAIN()
