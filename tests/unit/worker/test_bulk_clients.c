/*
 * Clients of other hosts at a worker's bulk channel, over loopback: what they may touch, what is
 * refused, who goes on where he was, and that whoever is slow, silent or hostile loses his own
 * connection and nothing else.
 */
#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/fd.h"
#include "client/bulk.h"
#include "tests/harness/test.h"
#include "transfer/bulk_int.h"
#include "wire/wire.h"
#include "worker/bulk_clients.h"

#define CHUNK_BYTES  (UINT64_C(32) << 20)
#define BUFFER_BYTES ((UINT64_C(5) << 20) + 77)
#define EPOCH        UINT64_C(0x0102030405060708)
#define DEVICE       3u
#define LONG_NS      UINT64_C(60000000000)
#define ASKED        8
/* Slots of the table: one open for a client, one that is sealed, one that a task writes. */
#define OPENED 1u
#define SEALED 2u
#define TASKS  3u

static struct store_table *table;
static struct worker_shared shared;
static struct device *device;
static struct worker_memory *memory;
static struct transfer_counters counters;
static struct worker_lanes lanes;
static struct worker_bulk_clients clients;
static struct transfer_bulk *channel;
static struct transfer_bulk_endpoint endpoint;
static struct store_timeline timeline;
static struct bulk_links links;
static uint8_t *chunk;    /* the device's memory */
static uint8_t *bytes_of; /* a client's */
static pthread_t server;  /* of lanes: the worker's main thread */
static atomic_bool server_stop;

static void *serve(void *user)
{
    struct pollfd fd = {.fd = shared.doorbells[0], .events = POLLIN};
    uint64_t count;

    (void)user;
    while (!atomic_load(&server_stop)) {
        (void)poll(&fd, 1, 20);
        (void)!read(fd.fd, &count, sizeof(count));
        worker_lanes_serve(&lanes);
    }
    return NULL;
}

static void fill_table(void)
{
    const struct pl_shape frame = {.dtype = PL_U8, .ndim = 1, .dim = {BUFFER_BYTES}};

    for (uint32_t slot = OPENED; slot <= TASKS; slot++) {
        store_table_alloc(table, slot, 10 + slot, slot * (BUFFER_BYTES + 51), &frame,
                          slot == OPENED ? STORE_ENTRY_CLIENT_WRITES : 0, 1);
    }
    store_table_seal(table, SEALED);
}

static uint8_t *buffer_of(uint32_t slot)
{
    return chunk + slot * (BUFFER_BYTES + 51);
}

static void device_begin(void)
{
    struct device_config config = {.bytes_max = 2 * CHUNK_BYTES};
    struct pl_err err;
    int fd;

    table = mmap(NULL, sizeof(*table), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                 -1, 0);
    ASSERT_TRUE(table != MAP_FAILED);
    store_table_init(table, 0, DEVICE_CPU, 0, UINT64_C(1) << 30);
    fill_table();
    worker_shared_init(&shared, -1);
    shared.tables[0]         = table;
    shared.host_device_count = 1;
    shared.doorbells[0]      = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    ASSERT_TRUE(shared.doorbells[0] >= 0);
    ASSERT_OK(device_open(DEVICE_CPU, 0, &config, &device, &err));
    ASSERT_OK(worker_memory_create(device, &shared, 0, &memory, &err));
    ASSERT_OK(device_chunk_create(device, CHUNK_BYTES, &fd));
    ASSERT_OK(
        device_chunk_map(device, fd, CHUNK_BYTES, 0, true, worker_memory_own(memory, 0)));
    chunk = device_ptr_host(device, worker_memory_own(memory, 0));
    pl_fd_close(&fd);
    ASSERT_OK(worker_lanes_init(&lanes, device, &shared, memory, &counters));
}

static void begin(bool staged)
{
    struct transfer_bulk_config config = {.device      = device,
                                          .ring        = {.timeline = &timeline},
                                          .listen      = "127.0.0.1",
                                          .access      = &worker_bulk_clients_ops,
                                          .access_user = &clients};
    struct pl_err err;

    test_expect_log(); /* who is refused or unreached is told of */
    device_begin();
    config.device = device;
    ASSERT_OK(worker_bulk_clients_init(&clients, device, memory, &lanes, staged,
                                       endpoint.secret));
    ASSERT_OK(transfer_bulk_create(&config, &channel, &endpoint, &err));
    transfer_bulk_identify(channel, DEVICE);
    worker_bulk_clients_identify(&clients, EPOCH, DEVICE);
    ASSERT_OK(bulk_links_init(&links));
    bytes_of = malloc(BUFFER_BYTES);
    ASSERT_NOT_NULL(bytes_of);
    for (uint64_t i = 0; i < BUFFER_BYTES; i++) {
        bytes_of[i]          = (uint8_t)(i * 37 >> 3);
        buffer_of(SEALED)[i] = (uint8_t)(i * 41 >> 2);
    }
    atomic_store(&server_stop, false);
    ASSERT_EQ(pthread_create(&server, NULL, serve, NULL), 0);
}

static void end(void)
{
    bulk_links_finish(&links);
    transfer_bulk_destroy(channel);
    atomic_store(&server_stop, true);
    ASSERT_EQ(pthread_join(server, NULL), 0);
    worker_bulk_clients_finish(&clients);
    worker_lanes_finish(&lanes);
    device_chunk_unmap(device, worker_memory_own(memory, 0), CHUNK_BYTES);
    worker_memory_destroy(memory);
    device_close(device);
    shared.tables[0] = NULL;
    pl_fd_close(&shared.doorbells[0]);
    worker_shared_finish(&shared);
    ASSERT_EQ(munmap(table, sizeof(*table)), 0);
    free(bytes_of);
}

static void grant_make(uint32_t slot, uint32_t rights, struct bulk_grant *out)
{
    const struct wire_ticket ticket = {.buffer   = wire_buffer(DEVICE, slot, 10 + slot),
                                       .until_ms = pl_now_ns() / 1000000 + 600000,
                                       .client   = 7,
                                       .rights   = rights};

    *out = (struct bulk_grant){.address = ""};
    memcpy(out->address, endpoint.address, sizeof(out->address));
    wire_ticket_make(&ticket, EPOCH, endpoint.secret, sizeof(endpoint.secret), out->ticket);
}

static plasmon_status_t put_of(uint32_t slot, uint32_t rights, uint64_t offset,
                               uint64_t count)
{
    struct bulk_grant grant;
    struct bulk_transfer transfer = {.device      = DEVICE,
                                     .grant       = &grant,
                                     .offset      = offset,
                                     .bytes       = count,
                                     .deadline_ns = UINT64_MAX};
    struct pl_err err;

    grant_make(slot, rights, &grant);
    return bulk_put(&links, &transfer, bytes_of + offset, &err);
}

static plasmon_status_t get_of(uint32_t slot, uint32_t rights, uint64_t offset,
                               uint64_t count, uint8_t *to)
{
    struct bulk_grant grant;
    struct bulk_transfer transfer = {.device      = DEVICE,
                                     .grant       = &grant,
                                     .offset      = offset,
                                     .bytes       = count,
                                     .deadline_ns = pl_now_ns() + LONG_NS};
    struct pl_err err;

    grant_make(slot, rights, &grant);
    return bulk_get(&links, &transfer, to, &err);
}

static void assert_put_and_get(void)
{
    uint8_t *to = calloc(BUFFER_BYTES + 1, 1);

    ASSERT_NOT_NULL(to);
    ASSERT_OK(put_of(OPENED, WIRE_TICKET_WRITE, 0, BUFFER_BYTES));
    ASSERT_TRUE(memcmp(buffer_of(OPENED), bytes_of, BUFFER_BYTES) == 0);
    ASSERT_OK(get_of(SEALED, WIRE_TICKET_READ, 0, BUFFER_BYTES, to));
    ASSERT_TRUE(memcmp(to, buffer_of(SEALED), BUFFER_BYTES) == 0);
    ASSERT_EQ(to[BUFFER_BYTES], 0);
    free(to);
}

/* ------------------------------------------------------------------------------- moving */

static void wait_for_transfers(uint64_t count)
{
    uint64_t deadline_ns = pl_now_ns() + LONG_NS;

    while (atomic_load(&clients.transfers) < count) {
        ASSERT_TRUE(pl_now_ns() < deadline_ns);
        (void)poll(NULL, 0, 1);
    }
}

static void assert_all_sizes(void)
{
    static const uint64_t sizes[] = {1, 4096, BULK_PART_BYTES, BULK_PART_BYTES + 1,
                                     3 * BULK_PART_BYTES - 5};
    uint64_t moved                = 0;
    uint8_t *to                   = malloc(BUFFER_BYTES);

    ASSERT_NOT_NULL(to);
    for (size_t i = 0; i < PL_COUNT(sizes); i++) {
        uint64_t offset = i * 1001;

        memset(buffer_of(OPENED), 0, BUFFER_BYTES);
        ASSERT_OK(put_of(OPENED, WIRE_TICKET_WRITE, offset, sizes[i]));
        ASSERT_TRUE(memcmp(buffer_of(OPENED) + offset, bytes_of + offset, sizes[i]) == 0);
        ASSERT_EQ(buffer_of(OPENED)[offset + sizes[i]], 0);
        ASSERT_OK(get_of(SEALED, WIRE_TICKET_READ, offset, sizes[i], to));
        ASSERT_TRUE(memcmp(to, buffer_of(SEALED) + offset, sizes[i]) == 0);
        moved += 2 * sizes[i];
    }
    free(to);
    assert_put_and_get();
    /*
     * The worker's thread goes on for a moment when the client has all. What stalls and goes twice
     * counts twice.
     */
    wait_for_transfers(2 * PL_COUNT(sizes) + 2);
    ASSERT_TRUE(atomic_load(&clients.bytes) >= moved + 2 * BUFFER_BYTES);
    for (uint32_t slot = OPENED; slot <= TASKS; slot++) {
        ASSERT_TRUE(!worker_bulk_clients_hold(&clients, slot));
    }
}

TEST(bytes_go_both_ways_where_they_lie)
{
    begin(false);
    assert_all_sizes();
    end();
}

TEST(bytes_go_both_ways_through_slots_of_lanes)
{
    begin(true);
    assert_all_sizes();
    ASSERT_EQ(counters.copies[TRANSFER_LANE], 0); /* they are nobody's lanes */
    end();
}

static void assert_goes_on_after(const char *fault)
{
    begin(false);
    for (unsigned pass = 0; pass < 4; pass++) {
        pl_fault_arm(fault, pass);
        assert_put_and_get();
        ASSERT_TRUE(pl_fault_disarm());
    }
    end();
}

TEST(a_transfer_goes_on_after_its_connection_broke)
{
#ifndef PL_FAULTS
    test_skip("this build has no fault points (PLASMON_FAULTS is off)");
#endif
    assert_goes_on_after("transfer.bulk_client_half");
    assert_goes_on_after("transfer.bulk_client_part");
}

/* ---------------------------------------------------------------------- who may do what */

static int raw_connect(int receive_bytes)
{
    struct bulk_hello hello = {
        .magic = BULK_MAGIC, .version = BULK_VERSION, .from = BULK_CLIENT, .to = DEVICE};
    struct sockaddr_in to     = {.sin_family = AF_INET};
    int fd                    = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const char *port          = strrchr(endpoint.address, ':');
    struct bulk_welcome reply = {.magic = 0};

    ASSERT_NOT_NULL(port);
    if (receive_bytes > 0) {
        ASSERT_EQ(
            setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof(receive_bytes)),
            0);
    }
    to.sin_port        = htons((uint16_t)strtoul(port + 1, NULL, 10));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ASSERT_EQ(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
    ASSERT_EQ(send(fd, &hello, sizeof(hello), MSG_NOSIGNAL), (ssize_t)sizeof(hello));
    ASSERT_EQ(recv(fd, &reply, sizeof(reply), MSG_WAITALL), (ssize_t)sizeof(reply));
    ASSERT_EQ(reply.status, PLASMON_OK);
    return fd;
}

static struct bulk_request request_of(uint32_t kind, uint32_t slot, uint64_t offset,
                                      uint64_t count)
{
    struct bulk_request request = {.kind = kind, .offset = offset, .bytes = count};
    struct bulk_grant grant;

    grant_make(slot, kind == BULK_PUT ? WIRE_TICKET_WRITE : WIRE_TICKET_READ, &grant);
    memcpy(request.ticket, grant.ticket, sizeof(request.ticket));
    return request;
}

static void request_send(int fd, const struct bulk_request *request)
{
    ASSERT_EQ(send(fd, request, sizeof(*request), MSG_NOSIGNAL), (ssize_t)sizeof(*request));
}

/* The next part says so, and then the connection ends. */
static void assert_refused(int fd, plasmon_status_t status)
{
    struct bulk_part part = {.offset = 0};
    char more;

    do { /* the worker may say first that it is still there */
        ASSERT_EQ(recv(fd, &part, sizeof(part), MSG_WAITALL), (ssize_t)sizeof(part));
    } while (part.status == PLASMON_OK && part.bytes == 0);
    ASSERT_EQ(part.status, status);
    ASSERT_EQ(part.bytes, 0);
    ASSERT_TRUE(recv(fd, &more, 1, 0) <= 0);
    ASSERT_EQ(close(fd), 0);
}

static void assert_request_refused(const struct bulk_request *request,
                                   plasmon_status_t status)
{
    int fd = raw_connect(0);

    request_send(fd, request);
    if (request->kind == BULK_PUT && request->bytes > 0) {
        /* refused by then, or just now */
        const struct bulk_part part = {.bytes = 1};

        (void)!send(fd, &part, sizeof(part), MSG_NOSIGNAL);
    }
    assert_refused(fd, status);
}

TEST(a_ticket_is_good_for_its_buffer_and_its_right_alone)
{
    struct bulk_request request;
    struct wire_ticket old = {.buffer   = wire_buffer(DEVICE, SEALED, 10 + SEALED),
                              .until_ms = pl_now_ns() / 1000000 - 1,
                              .rights   = WIRE_TICKET_READ};

    begin(false);
    memset(buffer_of(TASKS), 0x11, BUFFER_BYTES);
    request = request_of(BULK_GET, SEALED, 0, 10);
    request.ticket[5] ^= 1;
    assert_request_refused(&request, PLASMON_EAUTH);
    request      = request_of(BULK_GET, OPENED, 0, 10);
    request.kind = BULK_PUT;
    assert_request_refused(&request, PLASMON_EAUTH);
    request      = request_of(BULK_PUT, SEALED, 0, 10);
    request.kind = BULK_GET;
    assert_request_refused(&request, PLASMON_EAUTH);
    request = request_of(BULK_GET, SEALED, 0, 10);
    wire_ticket_make(&old, EPOCH, endpoint.secret, sizeof(endpoint.secret), request.ticket);
    assert_request_refused(&request, PLASMON_EAUTH);
    old.until_ms += 600000;
    wire_ticket_make(&old, EPOCH - 1, endpoint.secret, sizeof(endpoint.secret),
                     request.ticket);
    assert_request_refused(&request, PLASMON_EAUTH);
    old.buffer = wire_buffer(DEVICE + 1, SEALED, 10 + SEALED);
    wire_ticket_make(&old, EPOCH, endpoint.secret, sizeof(endpoint.secret), request.ticket);
    assert_request_refused(&request, PLASMON_EAUTH);

    /* What the ticket allows, the buffer's state must allow too. */
    request = request_of(BULK_PUT, SEALED, 0, 10);
    assert_request_refused(&request, PLASMON_ELOST);
    request = request_of(BULK_PUT, TASKS, 0, 10);
    assert_request_refused(&request, PLASMON_ELOST);
    old.buffer = wire_buffer(DEVICE, SEALED, 9 + SEALED); /* the one before it there */
    wire_ticket_make(&old, EPOCH, endpoint.secret, sizeof(endpoint.secret), request.ticket);
    request.kind = BULK_GET;
    assert_request_refused(&request, PLASMON_ELOST);
    request = request_of(BULK_GET, SEALED, BUFFER_BYTES - 5, 6);
    assert_request_refused(&request, PLASMON_ERANGE);
    request = request_of(BULK_GET, SEALED, UINT64_MAX - 2, 6);
    assert_request_refused(&request, PLASMON_ERANGE);
    ASSERT_EQ(buffer_of(TASKS)[0], 0x11);
    assert_put_and_get();
    end();
}

TEST(without_a_head_no_ticket_is_good)
{
    struct bulk_request request;

    begin(false);
    worker_bulk_clients_identify(&clients, 0, DEVICE);
    request = request_of(BULK_GET, SEALED, 0, 10);
    assert_request_refused(&request, PLASMON_EAUTH);
    end();
}

/* ---------------------------------------------------------------- nonsense, and silence */

static void assert_part_refused(struct bulk_part part)
{
    struct bulk_request request = request_of(BULK_PUT, OPENED, 0, 100);
    int fd                      = raw_connect(0);

    request_send(fd, &request);
    ASSERT_EQ(send(fd, &part, sizeof(part), MSG_NOSIGNAL), (ssize_t)sizeof(part));
    assert_refused(fd, PLASMON_EMALFORMED);
}

TEST(who_says_nonsense_loses_his_connection)
{
    struct bulk_request request;

    begin(false);
    request = request_of(BULK_GET, SEALED, 0, 0);
    assert_request_refused(&request, PLASMON_EMALFORMED);
    request      = request_of(BULK_GET, SEALED, 0, 10);
    request.kind = 3;
    assert_request_refused(&request, PLASMON_EMALFORMED);
    assert_part_refused((struct bulk_part){.offset = 1, .bytes = 10});
    assert_part_refused((struct bulk_part){.offset = 0, .bytes = 0});
    assert_part_refused((struct bulk_part){.offset = 0, .bytes = 101});
    assert_part_refused((struct bulk_part){.offset = 0, .bytes = UINT32_MAX});
    assert_part_refused((struct bulk_part){.offset = 0, .bytes = 10, .status = 1});
    assert_put_and_get();
    end();
}

/* The worker ends it, and then holds nothing of it. */
static void assert_ended(int fd, uint32_t slot)
{
    struct pollfd ends   = {.fd = fd, .events = POLLRDHUP};
    uint64_t deadline_ns = pl_now_ns() + LONG_NS;

    ASSERT_EQ(poll(&ends, 1, (int)(LONG_NS / 1000000)), 1);
    while (worker_bulk_clients_hold(&clients, slot)) {
        ASSERT_TRUE(pl_now_ns() < deadline_ns);
        (void)poll(NULL, 0, 1);
    }
    ASSERT_EQ(close(fd), 0);
}

TEST(who_falls_silent_in_the_middle_of_a_part_loses_his_connection)
{
    const struct bulk_part part = {.offset = 0, .bytes = 1000};
    struct bulk_request request;
    uint8_t some[100];
    char byte = 1;
    int fd;

    begin(false);
    request = request_of(BULK_PUT, OPENED, 0, 2000);
    fd      = raw_connect(0);
    request_send(fd, &request);
    ASSERT_EQ(send(fd, &part, sizeof(part), MSG_NOSIGNAL), (ssize_t)sizeof(part));
    ASSERT_EQ(send(fd, &byte, 1, MSG_NOSIGNAL), 1);
    ASSERT_OK(get_of(SEALED, WIRE_TICKET_READ, 5, sizeof(some), some)); /* meanwhile */
    ASSERT_TRUE(memcmp(some, buffer_of(SEALED) + 5, sizeof(some)) == 0);
    assert_ended(fd, OPENED);
    assert_put_and_get();
    end();
}

static size_t places(void)
{
    size_t count;

    pl_mutex_lock(&clients.lock);
    count = clients.places.count;
    pl_mutex_unlock(&clients.lock);
    return count;
}

/*
 * A part that the device is through with holds its buffer no more, though the next one does not
 * come: its client is stopped, say, which may be for ten seconds.
 */
TEST(who_falls_silent_between_parts_holds_no_buffer)
{
    struct bulk_part part = {.offset = 0, .bytes = 1000};
    struct bulk_request request;
    uint64_t silent_ns;
    int fd;

    begin(true);
    request = request_of(BULK_PUT, OPENED, 0, 2000);
    fd      = raw_connect(0);
    request_send(fd, &request);
    ASSERT_EQ(send(fd, &part, sizeof(part), MSG_NOSIGNAL), (ssize_t)sizeof(part));
    ASSERT_EQ(send(fd, bytes_of, 1000, MSG_NOSIGNAL), 1000);
    silent_ns = pl_now_ns();
    while (places() == 0) { /* the part has begun; its pin comes next */
        ASSERT_TRUE(pl_now_ns() - silent_ns < LONG_NS);
        (void)poll(NULL, 0, 1);
    }
    (void)poll(NULL, 0, 50);
    while (worker_bulk_clients_hold(&clients, OPENED)) {
        ASSERT_TRUE(pl_now_ns() - silent_ns < UINT64_C(8000000000));
        (void)poll(NULL, 0, 1);
    }
    part.offset = 1000;
    ASSERT_EQ(send(fd, &part, sizeof(part), MSG_NOSIGNAL), (ssize_t)sizeof(part));
    ASSERT_EQ(send(fd, bytes_of + 1000, 1000, MSG_NOSIGNAL), 1000);
    while (part.offset != 2000) { /* the worker says how far it is */
        ASSERT_EQ(recv(fd, &part, sizeof(part), MSG_WAITALL), (ssize_t)sizeof(part));
        ASSERT_EQ(part.status, PLASMON_OK);
    }
    ASSERT_TRUE(memcmp(buffer_of(OPENED), bytes_of, 2000) == 0);
    ASSERT_EQ(close(fd), 0);
    end();
}

/* A connection of a client is over, as the worker sees it; it is forgotten when the next one comes. */
static bool any_ended(void)
{
    bool any = false;

    pl_mutex_lock(&channel->lock);
    for (size_t i = 0; i < channel->ins.count; i++) {
        const struct bulk_in *in = *(struct bulk_in **)pl_vec_at(&channel->ins, i);

        any = any || (in->client && in->ended);
    }
    pl_mutex_unlock(&channel->lock);
    return any;
}

TEST(who_does_not_take_what_he_asked_for_loses_his_connection)
{
    uint64_t deadline_ns = pl_now_ns() + LONG_NS;
    struct bulk_request request;
    int fd;

    begin(false);
    request = request_of(BULK_GET, SEALED, 0, BUFFER_BYTES);
    fd      = raw_connect(4096);
    for (int i = 0; i < ASKED; i++) { /* more than sockets hold */
        request_send(fd, &request);
    }
    while (!any_ended()) { /* its end does not reach who takes nothing */
        ASSERT_TRUE(pl_now_ns() < deadline_ns);
        (void)poll(NULL, 0, 1);
    }
    ASSERT_TRUE(!worker_bulk_clients_hold(&clients, SEALED));
    ASSERT_TRUE(atomic_load(&clients.transfers) < ASKED);
    ASSERT_EQ(close(fd), 0);
    assert_put_and_get();
    end();
}

TEST(more_clients_than_there_is_room_for_are_told_so)
{
    struct bulk_request request;
    int fds[BULK_CLIENTS_MAX];
    uint8_t got[10 + sizeof(struct bulk_part)];

    begin(true);
    request = request_of(BULK_GET, SEALED, 0, 10);
    for (uint32_t i = 0; i < BULK_CLIENTS_MAX; i++) {
        fds[i] = raw_connect(0);
        request_send(fds[i], &request);
        ASSERT_EQ(recv(fds[i], got, sizeof(got), MSG_WAITALL), (ssize_t)sizeof(got));
    }
    assert_request_refused(&request, PLASMON_ELIMIT);
    ASSERT_STATUS(get_of(SEALED, WIRE_TICKET_READ, 0, 10, got), PLASMON_EUNREACHABLE);
    ASSERT_TRUE(!bulk_links_allow(&links, DEVICE, false)); /* for a second */
    for (uint32_t i = 0; i < BULK_CLIENTS_MAX; i++) {
        ASSERT_EQ(close(fds[i]), 0);
    }
    end();
}

static struct transfer_bulk_access *access_open(void)
{
    const struct bulk_request request = request_of(BULK_GET, SEALED, 0, 10);
    struct transfer_bulk_access *access;
    struct pl_err err;

    ASSERT_OK(worker_bulk_clients_ops.open(&clients, &request, &access, &err));
    return access;
}

static void *piece_begin_run(void *access)
{
    void *piece;

    ASSERT_OK(worker_bulk_clients_ops.begin(&clients, access, 0, 0, 10, &piece));
    return NULL;
}

static void access_finish(struct transfer_bulk_access *access)
{
    while (worker_bulk_clients_ops.poll(&clients, access, 0) == PLASMON_EAGAIN) {
        (void)poll(NULL, 0, 1);
    }
    worker_bulk_clients_ops.end(&clients, access, 0);
    worker_bulk_clients_ops.close(&clients, access, 10, true);
}

/* All of them find that there is none: memory is pinned for as many as there are. */
TEST(clients_that_come_at_once_have_no_more_memory_pinned_than_they_need)
{
    struct transfer_bulk_access *access[8];
    pthread_t threads[8];

    begin(true);
    pl_mutex_lock(&lanes.lent_lock); /* whoever makes slots waits there */
    for (uint32_t i = 0; i < 8; i++) {
        access[i] = access_open();
        ASSERT_EQ(pthread_create(&threads[i], NULL, piece_begin_run, access[i]), 0);
    }
    (void)poll(NULL, 0, 300);
    pl_mutex_unlock(&lanes.lent_lock);
    for (uint32_t i = 0; i < 8; i++) {
        ASSERT_EQ(pthread_join(threads[i], NULL), 0);
    }
    ASSERT_EQ(places(), 8);
    for (uint32_t i = 0; i < 8; i++) {
        access_finish(access[i]);
    }
    end();
}

static uint32_t clients_there(void)
{
    uint32_t count = 0;

    pl_mutex_lock(&channel->lock);
    for (size_t i = 0; i < channel->ins.count; i++) {
        const struct bulk_in *in = *(struct bulk_in **)pl_vec_at(&channel->ins, i);

        count += in->client && !in->ended;
    }
    pl_mutex_unlock(&channel->lock);
    return count;
}

TEST(for_clients_that_there_is_no_room_for_no_memory_is_pinned)
{
    struct bulk_request request;
    int fds[BULK_CLIENTS_MAX];

    begin(true);
    request = request_of(BULK_PUT, OPENED, 0, 10);
    for (uint32_t i = 0; i < BULK_CLIENTS_MAX; i++) { /* each has yet to send its bytes */
        fds[i] = raw_connect(0);
        request_send(fds[i], &request);
    }
    while (clients_there() < BULK_CLIENTS_MAX) {
        (void)poll(NULL, 0, 1);
    }
    assert_request_refused(&request, PLASMON_ELIMIT);
    ASSERT_EQ(places(), 0);
    for (uint32_t i = 0; i < BULK_CLIENTS_MAX; i++) {
        ASSERT_EQ(close(fds[i]), 0);
    }
    end();
}

TEST(a_worker_that_cannot_be_reached_is_left_alone_for_a_while)
{
    struct bulk_transfer transfer = {.device = DEVICE, .bytes = 1};
    struct bulk_grant grant;
    struct pl_err err;
    uint8_t byte;

    begin(false);
    transfer_bulk_destroy(channel);
    channel = NULL;
    ASSERT_TRUE(bulk_links_allow(&links, DEVICE, false));
    ASSERT_STATUS(get_of(SEALED, WIRE_TICKET_READ, 0, 1, &byte), PLASMON_EUNREACHABLE);
    ASSERT_TRUE(!bulk_links_allow(&links, DEVICE, false));
    ASSERT_TRUE(bulk_links_allow(&links, DEVICE + 1, false));
    ASSERT_TRUE(!bulk_links_allow(&links, DEVICE + 1, true)); /* we have no certificate */
    grant_make(SEALED, WIRE_TICKET_READ, &grant);
    transfer.grant       = &grant;
    transfer.deadline_ns = pl_now_ns() + LONG_NS;
    ASSERT_STATUS(bulk_get(&links, &transfer, &byte, &err), PLASMON_EUNREACHABLE);
    ASSERT_NOT_NULL(strstr(err.text, endpoint.address));
    ASSERT_NOT_NULL(strstr(err.text, "--bulk-ports")); /* what to look at */
    end();
}

TEST_MAIN()
