/* The same contract over the loopback, whose every access the thread sanitizer sees. */
#include "tests/unit/rpc/contract.h"

CONTRACT(loopback, PEER_LOOPBACK)

static struct peer_pair said;

static void last_words(struct peer_end *end)
{
    (void)end;
    for (int i = 0; i < 100; i++) {
        ASSERT_OK(peer_send(&said.served, "last words", 10));
    }
    rpc_stream_close(said.served.stream, PLASMON_EWORKER, "died");
}

/* The other side says its last words and closes while this one hears that it may send. */
TEST(what_comes_while_a_callback_runs_is_heard_before_the_end)
{
    peer_pair_start(&said, PEER_LOOPBACK, NULL);
    said.client.on_writable = last_words;
    peer_pair_open(&said);
    ASSERT_OK(peer_send(&said.client, "a", 1));
    peer_end_wait(&said.client, &said.client.closed, 1, 5000);
    peer_end_wait(&said.served, &said.served.closed, 1, 5000);
    ASSERT_EQ(said.client.messages, 100);
    ASSERT_EQ(said.client.status, PLASMON_EWORKER);
    peer_pair_stop(&said);
}

TEST_MAIN()
