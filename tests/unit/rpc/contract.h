/*
 * What every stream must do, over whatever transport: the same claims run over gRPC (test_stream.c)
 * and over the loopback (test_loopback.c). Each takes the transport.
 */
#ifndef TESTS_UNIT_RPC_CONTRACT_H
#define TESTS_UNIT_RPC_CONTRACT_H

#include "base/alloc.h"
#include "base/clock.h"
#include "tests/harness/test.h"
#include "tests/unit/rpc/peer.h"

#define CONTRACT_MESSAGES 10000u

static void contract_echo(enum peer_transport transport)
{
    struct peer_pair pair;

    peer_pair_start(&pair, transport, &(struct peer_options){.served_message = peer_echo});
    pair.served.on_message = peer_echo;
    peer_pair_open(&pair);
    ASSERT_OK(peer_send(&pair.client, "hello", 5));
    peer_end_wait(&pair.client, &pair.client.messages, 1, 5000);
    ASSERT_EQ(pair.client.bytes, 5);
    ASSERT_OK(peer_send(&pair.client, "", 0));
    peer_end_wait(&pair.client, &pair.client.messages, 2, 5000);
    ASSERT_EQ(pair.client.bytes, 5);
    peer_pair_stop(&pair);
    ASSERT_EQ(pair.client.closed, 1);
    ASSERT_EQ(pair.served.closed, 1);
    ASSERT_EQ(pair.served.status, PLASMON_OK);
}

/* Messages carry their number; order and number are checked at both ends. */
static void contract_expect_next(struct peer_end *end, const uint8_t *bytes, size_t length)
{
    uint64_t number;

    ASSERT_EQ(length, sizeof(number));
    memcpy(&number, bytes, sizeof(number));
    ASSERT_EQ(number, end->messages);
}

static void contract_expect_next_and_echo(struct peer_end *end, const uint8_t *bytes,
                                          size_t length)
{
    contract_expect_next(end, bytes, length);
    peer_echo(end, bytes, length);
}

static void contract_many(enum peer_transport transport)
{
    struct peer_pair pair;

    peer_pair_start(&pair, transport, NULL);
    pair.client.on_message = contract_expect_next;
    pair.served.on_message = contract_expect_next_and_echo;
    peer_pair_open(&pair);
    for (uint64_t number = 1; number <= CONTRACT_MESSAGES; number++) {
        ASSERT_OK(peer_send(&pair.client, &number, sizeof(number)));
    }
    peer_end_wait(&pair.client, &pair.client.messages, CONTRACT_MESSAGES, 20000);
    ASSERT_EQ(pair.served.messages, CONTRACT_MESSAGES);
    peer_pair_stop(&pair);
}

static void *contract_sender(void *user)
{
    struct peer_end *end = user;

    for (int i = 0; i < 1000; i++) {
        ASSERT_OK(peer_send(end, "x", 1));
    }
    return NULL;
}

static void contract_threads(enum peer_transport transport)
{
    struct peer_pair pair;
    pthread_t threads[4];

    peer_pair_start(&pair, transport, NULL);
    pair.served.on_message = peer_echo;
    peer_pair_open(&pair);
    for (size_t i = 0; i < PL_COUNT(threads); i++) {
        ASSERT_EQ(pthread_create(&threads[i], NULL, contract_sender, &pair.client), 0);
    }
    for (size_t i = 0; i < PL_COUNT(threads); i++) {
        ASSERT_EQ(pthread_join(threads[i], NULL), 0);
    }
    peer_end_wait(&pair.client, &pair.client.messages, 4000, 20000);
    peer_pair_stop(&pair);
}

static void contract_big_check(struct peer_end *end, const uint8_t *bytes, size_t length)
{
    (void)end;
    for (size_t i = 0; i < length; i += 997) {
        ASSERT_EQ(bytes[i], (uint8_t)(i * 31));
    }
}

static void contract_big_check_and_echo(struct peer_end *end, const uint8_t *bytes,
                                        size_t length)
{
    contract_big_check(end, bytes, length);
    peer_echo(end, bytes, length);
}

static void contract_big(enum peer_transport transport)
{
    const size_t length = (8u << 20) - 100;
    uint8_t *bytes      = pl_alloc(length);
    struct peer_pair pair;

    for (size_t i = 0; i < length; i++) {
        bytes[i] = (uint8_t)(i * 31);
    }
    peer_pair_start(&pair, transport, NULL);
    pair.client.on_message = contract_big_check;
    pair.served.on_message = contract_big_check_and_echo;
    peer_pair_open(&pair);
    for (int i = 0; i < 3; i++) {
        ASSERT_OK(peer_send(&pair.client, bytes, length - (size_t)i));
    }
    peer_end_wait(&pair.client, &pair.client.messages, 3, 20000);
    ASSERT_EQ(pair.client.bytes, 3 * length - 3);
    peer_pair_stop(&pair);
    pl_free(bytes);
}

static void contract_writable(enum peer_transport transport)
{
    struct peer_pair pair;

    peer_pair_start(&pair, transport, NULL);
    peer_pair_open(&pair);
    ASSERT_OK(peer_send(&pair.client, "a", 1));
    ASSERT_OK(peer_send(&pair.client, "b", 1));
    peer_end_wait(&pair.served, &pair.served.messages, 2, 5000);
    peer_end_wait(&pair.client, &pair.client.writable, 1, 5000);
    peer_idle_wait(&pair.client,
                   5000); /* the first may have been told before the second went in */
    peer_pair_stop(&pair);
}

static void contract_server_closes(enum peer_transport transport)
{
    struct peer_pair pair;

    peer_pair_start(&pair, transport, NULL);
    peer_pair_open(&pair);
    ASSERT_OK(peer_send(&pair.client, "a", 1));
    peer_end_wait(&pair.served, &pair.served.messages, 1, 5000);
    for (int i = 0; i < 100; i++) {
        ASSERT_OK(peer_send(&pair.served, "last words", 10));
    }
    rpc_stream_close(pair.served.stream, PLASMON_EWORKER, "device 3 died: \xc3\xa9 50%");
    peer_end_wait(&pair.client, &pair.client.closed, 1, 5000);
    peer_end_wait(&pair.served, &pair.served.closed, 1, 5000);
    ASSERT_EQ(pair.client.messages, 100); /* what was queued came first */
    ASSERT_EQ(pair.client.status, PLASMON_EWORKER);
    ASSERT_STR(pair.client.why, "device 3 died: \xc3\xa9 50%");
    ASSERT_EQ(pair.served.status, PLASMON_EWORKER);
    peer_pair_stop(&pair);
}

static void contract_client_cancels(enum peer_transport transport)
{
    struct peer_pair pair;

    peer_pair_start(&pair, transport, NULL);
    peer_pair_open(&pair);
    ASSERT_OK(peer_send(&pair.client, "a", 1));
    peer_end_wait(&pair.served, &pair.served.messages, 1, 5000);
    rpc_stream_close(pair.client.stream, PLASMON_EMALFORMED, "nonsense from the head");
    peer_end_wait(&pair.client, &pair.client.closed, 1, 5000);
    peer_end_wait(&pair.served, &pair.served.closed, 1, 5000);
    ASSERT_EQ(pair.client.status, PLASMON_EMALFORMED);
    ASSERT_STR(pair.client.why, "nonsense from the head");
    ASSERT_EQ(pair.served.status, PLASMON_ECLOSED);
    peer_pair_stop(&pair);
}

static void contract_client_ends(enum peer_transport transport)
{
    struct peer_pair pair;

    peer_pair_start(&pair, transport, NULL);
    peer_pair_open(&pair);
    for (int i = 0; i < 500; i++) {
        ASSERT_OK(peer_send(&pair.client, "bye", 3));
    }
    rpc_stream_close(pair.client.stream, PLASMON_OK, "");
    peer_end_wait(&pair.client, &pair.client.closed, 1, 5000);
    peer_end_wait(&pair.served, &pair.served.closed, 1, 5000);
    ASSERT_EQ(pair.served.messages, 500);
    ASSERT_EQ(pair.served.status, PLASMON_OK);
    ASSERT_EQ(pair.client.status, PLASMON_OK);
    peer_pair_stop(&pair);
}

static void contract_close_in_message(struct peer_end *end, const uint8_t *bytes,
                                      size_t length)
{
    (void)bytes;
    (void)length;
    rpc_stream_close(end->stream, PLASMON_EVERSION, "old");
}

static void contract_closes_within_a_callback(enum peer_transport transport)
{
    struct peer_pair pair;

    peer_pair_start(&pair, transport, NULL);
    pair.served.on_message = contract_close_in_message;
    peer_pair_open(&pair);
    for (int i = 0; i < 10; i++) {
        plasmon_status_t status = peer_send(&pair.client, "a", 1);

        ASSERT_TRUE(status == PLASMON_OK || status == PLASMON_ECLOSED);
        if (status != PLASMON_OK) {
            break;
        }
        if (i == 0) {
            peer_end_wait(&pair.served, &pair.served.closed, 1, 5000);
            break;
        }
    }
    peer_end_wait(&pair.client, &pair.client.closed, 1, 5000);
    ASSERT_EQ(pair.client.status, PLASMON_EVERSION);
    ASSERT_EQ(pair.served.messages, 1);
    peer_pair_stop(&pair);
}

static void contract_queue_is_bounded(enum peer_transport transport)
{
    const size_t length     = 1u << 20;
    uint8_t *bytes          = pl_alloc(length);
    plasmon_status_t status = PLASMON_OK;
    struct peer_pair pair;
    int sent = 0;

    peer_pair_start(&pair, transport, NULL);
    peer_pair_open(&pair);
    /* so that the server's message callback does not return */
    pl_mutex_lock(&pair.served.lock);
    while (status == PLASMON_OK && sent < 200) {
        status = peer_send(&pair.client, bytes, length);
        sent += status == PLASMON_OK;
    }
    pl_mutex_unlock(&pair.served.lock);
    ASSERT_STATUS(status, PLASMON_EAGAIN);
    peer_end_wait(&pair.served, &pair.served.messages, (uint64_t)sent, 20000);
    ASSERT_OK(peer_send(&pair.client, "x", 1));
    peer_end_wait(&pair.served, &pair.served.messages, (uint64_t)sent + 1, 5000);
    peer_pair_stop(&pair);
    pl_free(bytes);
}

/* One test for each claim and transport. */
#define CONTRACT(name, transport)                                \
    TEST(name##_an_echo_comes_back)                              \
    {                                                            \
        contract_echo(transport);                                \
    }                                                            \
    TEST(name##_ten_thousand_messages_go_both_ways_in_order)     \
    {                                                            \
        contract_many(transport);                                \
    }                                                            \
    TEST(name##_threads_may_send_at_the_same_time)               \
    {                                                            \
        contract_threads(transport);                             \
    }                                                            \
    TEST(name##_big_messages_arrive_whole)                       \
    {                                                            \
        contract_big(transport);                                 \
    }                                                            \
    TEST(name##_writable_comes_when_all_is_sent)                 \
    {                                                            \
        contract_writable(transport);                            \
    }                                                            \
    TEST(name##_a_server_closes_with_status_text_and_last_words) \
    {                                                            \
        contract_server_closes(transport);                       \
    }                                                            \
    TEST(name##_a_client_cancels)                                \
    {                                                            \
        contract_client_cancels(transport);                      \
    }                                                            \
    TEST(name##_a_client_ends_after_what_it_sent)                \
    {                                                            \
        contract_client_ends(transport);                         \
    }                                                            \
    TEST(name##_a_stream_may_be_closed_within_a_callback)        \
    {                                                            \
        contract_closes_within_a_callback(transport);            \
    }                                                            \
    TEST(name##_the_queue_is_bounded)                            \
    {                                                            \
        contract_queue_is_bounded(transport);                    \
    }

#endif
