/* The contract of streams over gRPC on each transport, and the speed that the control plane counts on. */
#include "tests/unit/rpc/contract.h"

#include <stdlib.h>

CONTRACT(unix, PEER_UNIX)
CONTRACT(grpc, PEER_GRPC)
CONTRACT(tcp, PEER_TCP)
CONTRACT(fd, PEER_FD)

static int compare_u64(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

#define PINGS 3000

struct ping {
    uint64_t start;
    uint64_t taken[PINGS];
};

static void ping_next(struct peer_end *end, const uint8_t *bytes, size_t length)
{
    struct ping *ping = end->user;

    (void)bytes;
    ping->taken[end->messages - 1] = pl_now_ns() - ping->start;
    if (end->messages < PINGS) {
        ping->start = pl_now_ns();
        ASSERT_OK(peer_send(end, "ping", length));
    }
}

/* 42-120 us on two quiet cores; the bound leaves room for a loaded machine and for sanitizers. */
static void check_ping(enum peer_transport transport)
{
    static struct ping ping;
    struct peer_pair pair;

    peer_pair_start(&pair, transport, NULL);
    pair.served.on_message = peer_echo;
    pair.client.on_message = ping_next;
    pair.client.user       = &ping;
    peer_pair_open(&pair);
    ping.start = pl_now_ns();
    ASSERT_OK(peer_send(&pair.client, "ping", 4));
    peer_end_wait(&pair.client, &pair.client.messages, PINGS, 20000);
    qsort(ping.taken, PINGS, sizeof(ping.taken[0]), compare_u64);
    printf("# ping p50 %.1f us, p99 %.1f us\n", (double)ping.taken[PINGS / 2] / 1000,
           (double)ping.taken[PINGS * 99 / 100] / 1000);
    ASSERT_TRUE(ping.taken[PINGS / 2] < 5000000);
    peer_pair_stop(&pair);
}

TEST(a_ping_over_a_unix_socket_is_quick)
{
    check_ping(PEER_GRPC);
}

TEST(a_ping_through_shared_memory_is_quick)
{
    check_ping(PEER_UNIX);
}

#define BATCH_BYTES (64 * 144) /* 64 tasks of 144 bytes */
#define BATCHES     4000u
#define WINDOW      8u

struct window {
    uint64_t sent;
    uint8_t bytes[BATCH_BYTES];
};

static void window_next(struct peer_end *end, const uint8_t *bytes, size_t length)
{
    struct window *window = end->user;

    (void)bytes;
    (void)length;
    if (window->sent < BATCHES) {
        window->sent++;
        ASSERT_OK(peer_send(end, window->bytes, sizeof(window->bytes)));
    }
}

static void batch_ack(struct peer_end *end, const uint8_t *bytes, size_t length)
{
    (void)bytes;
    (void)length;
    ASSERT_OK(peer_send(end, "ack", 3));
}

TEST(batches_of_64_tasks_flow)
{
    static struct window window;
    struct peer_pair pair;
    uint64_t start;
    double seconds;

    peer_pair_start(&pair, PEER_UNIX, NULL);
    pair.served.on_message = batch_ack;
    pair.client.on_message = window_next;
    pair.client.user       = &window;
    peer_pair_open(&pair);
    start       = pl_now_ns();
    window.sent = WINDOW;
    for (unsigned i = 0; i < WINDOW; i++) {
        ASSERT_OK(peer_send(&pair.client, window.bytes, sizeof(window.bytes)));
    }
    peer_end_wait(&pair.client, &pair.client.messages, BATCHES, 20000);
    seconds = (double)(pl_now_ns() - start) / 1e9;
    printf("# %.2f M tasks/s\n", 64 * BATCHES / seconds / 1e6);
    ASSERT_TRUE(64 * BATCHES / seconds > 20000);
    peer_pair_stop(&pair);
}

TEST_MAIN()
