/*
 * Pairs: when they are opened, which transfers go by them, and what each side is told when one breaks.
 */
#include "tests/harness/test.h"
#include "tests/unit/head/comms.h"
#include "tests/unit/head/core.h"

enum { DEVICES = 3, ROWS = 64 };

static void begin(uint32_t version_of_last)
{
    comms_begin(DEVICES, 1, version_of_last);
    comms.core->config.transfer = HEAD_TRANSFER_NCCL;
}

/* Task `id` on a device: ref 0 makes an array as ref id + 100, another is read. */
static void submit(uint64_t id, uint32_t device, uint64_t ref)
{
    core_submit(comms.core, comms.session, id, device, ref, (uint64_t[]){ROWS}, 1);
}

static void report_pair(uint32_t device, uint32_t peer, bool receives,
                        Plasmon__V1__PairEvent event, uint64_t chunk)
{
    Plasmon__V1__PairReport report = PLASMON__V1__PAIR_REPORT__INIT;

    report.peer     = peer;
    report.receives = receives;
    report.event    = event;
    report.chunk    = chunk;
    report.text     = "the network is down";
    comms_report(device, &report);
}

static void expect_told(uint32_t device, uint32_t index, Plasmon__V1__PairState state,
                        uint32_t peer, bool receives, uint64_t epoch)
{
    const struct comms_told *told = comms_told(device, index, state);

    ASSERT_EQ(told->peer, peer);
    ASSERT_EQ(told->receives, receives);
    ASSERT_EQ(told->epoch, epoch);
}

/* Made on 0, read on 1: launches of 0: fill, OPEN, SEND; of 1: OPEN, RECV, touch. */
static void transfer_begin(void)
{
    begin(COMMS_NCCL);
    submit(1, 0, 0);
    submit(2, 1, 101);
}

TEST(a_pair_is_opened_before_the_first_transfer_by_it)
{
    const struct head_task *open[2], *half[2];

    transfer_begin();
    open[0] = comms_task(0, 2), half[0] = comms_task(0, 3);
    open[1] = comms_task(1, 1), half[1] = comms_task(1, 2);
    for (uint32_t i = 0; i < 2; i++) {
        ASSERT_EQ(open[i]->kind, PLASMON__V1__LAUNCH_KIND__LAUNCH_OPEN);
        ASSERT_EQ(open[i]->length, i);
        ASSERT_EQ(open[i]->peer, 1 - i);
        ASSERT_EQ(open[i]->pair, 1);
        ASSERT_EQ(half[i]->pair, 1);
    }
    ASSERT_EQ(half[0]->kind, PLASMON__V1__LAUNCH_KIND__LAUNCH_SEND);
    ASSERT_EQ(half[1]->kind, PLASMON__V1__LAUNCH_KIND__LAUNCH_RECV);
    ASSERT_EQ(open[0]->order, open[1]->order);
    ASSERT_EQ(half[0]->order, half[1]->order);
    ASSERT_TRUE(open[0]->order < half[0]->order);
    comms_end();
}

TEST(the_senders_id_goes_to_the_receiver)
{
    transfer_begin();
    report_pair(0, 1, false, PLASMON__V1__PAIR_EVENT__PAIR_MADE, 0);
    expect_told(1, 0, PLASMON__V1__PAIR_STATE__PAIR_ID, 0, true, 1);
    ASSERT_EQ(comms.told_count[0], 0);
    comms_end();
}

TEST(a_sender_hears_when_the_other_half_is_over)
{
    transfer_begin();
    comms_report_done(1, 2);
    ASSERT_EQ(comms.sent_count[0], 1);
    ASSERT_EQ(comms.sent[0][0], 3);
    ASSERT_TRUE(comms_task(1, 2)->ended); /* and is over itself when what it read from is */
    comms_report_done(0, 1);
    comms_report_done(0, 3);
    ASSERT_NULL(comms_task(1, 2));
    ASSERT_EQ(comms.sent_count[0], 1);
    comms_end();
}

/* Its SEND is older, and waits for it. */
TEST(a_receive_without_memory_fails_when_all_but_its_send_is_over)
{
    transfer_begin();
    comms_report_starved(1, 2);
    ASSERT_EQ(comms.starve[1],
              0); /* the OPEN is not over, and the fill might free something */
    comms_report_done(0, 1);
    comms_report_done(0, 2);
    comms_report_done(1, 1);
    ASSERT_EQ(comms_task(0, 3)->order, comms_task(1, 2)->order);
    ASSERT_EQ(comms.starve[1], 2);
    comms_end();
}

TEST(a_sender_takes_the_other_way_when_the_receiver_has_said_what_came)
{
    test_expect_log();
    transfer_begin();
    report_pair(0, 1, false, PLASMON__V1__PAIR_EVENT__PAIR_TROUBLE, 0);
    expect_told(0, 0, PLASMON__V1__PAIR_STATE__PAIR_BROKEN, 1, false, 1);
    expect_told(1, 0, PLASMON__V1__PAIR_STATE__PAIR_BROKEN, 0, true, 1);
    ASSERT_EQ(comms.told_count[0], 1);
    submit(3, 0, 0);
    submit(4, 1, 103); /* meanwhile transfers get no pair */
    ASSERT_EQ(comms_task(0, 5)->kind, PLASMON__V1__LAUNCH_KIND__LAUNCH_SEND);
    ASSERT_EQ(comms_task(0, 5)->pair, 0);
    report_pair(0, 1, false, PLASMON__V1__PAIR_EVENT__PAIR_DECIDED,
                0); /* it is not asked */
    ASSERT_EQ(comms.told_count[0], 1);
    report_pair(1, 0, true, PLASMON__V1__PAIR_EVENT__PAIR_DECIDED, 0);
    expect_told(0, 1, PLASMON__V1__PAIR_STATE__PAIR_STAGED, 1, false, 1);
    report_pair(1, 0, true, PLASMON__V1__PAIR_EVENT__PAIR_DECIDED, 0); /* again: nothing */
    ASSERT_EQ(comms.told_count[0], 2);
    comms_end();
}

TEST(one_side_that_waits_is_not_stuck)
{
    test_expect_log();
    transfer_begin();
    report_pair(1, 0, true, PLASMON__V1__PAIR_EVENT__PAIR_STALLED, 0);
    report_pair(0, 1, false, PLASMON__V1__PAIR_EVENT__PAIR_STALLED, 7); /* at another one */
    ASSERT_EQ(comms.told_count[0], 0);
    report_pair(0, 1, false, PLASMON__V1__PAIR_EVENT__PAIR_STALLED, 0);
    expect_told(0, 0, PLASMON__V1__PAIR_STATE__PAIR_BROKEN, 1, false, 1);
    expect_told(1, 0, PLASMON__V1__PAIR_STATE__PAIR_BROKEN, 0, true, 1);
    comms_end();
}

/* The one that used it was fenced: nothing of it is on the device. */
TEST(a_receiver_that_was_replaced_got_nothing_more)
{
    transfer_begin();
    comms_join(1, 1, 2, COMMS_NCCL, 2);
    expect_told(0, 0, PLASMON__V1__PAIR_STATE__PAIR_BROKEN, 1, false, 1);
    expect_told(0, 1, PLASMON__V1__PAIR_STATE__PAIR_STAGED, 1, false, 1);
    expect_told(1, 0, PLASMON__V1__PAIR_STATE__PAIR_BROKEN, 0, true, 1);
    comms_end();
}

/* Its launches by earlier pairs must not wait for what the receiver still does with the last one. */
TEST(a_sender_that_was_replaced_hears_of_earlier_pairs)
{
    transfer_begin();
    comms_join(1, 1, 2, COMMS_NCCL, 2); /* epoch 1 is over */
    submit(3, 0, 0);
    submit(4, 1, 103); /* and opens epoch 2 */
    ASSERT_EQ(comms_task(0, 5)->kind, PLASMON__V1__LAUNCH_KIND__LAUNCH_OPEN);
    ASSERT_EQ(comms_task(0, 5)->pair, 2);
    comms.told_count[0] = 0;
    comms_join(0, 1, 2, COMMS_NCCL, 6);
    expect_told(0, 0, PLASMON__V1__PAIR_STATE__PAIR_STAGED, 1, false, 1);
    expect_told(0, 1, PLASMON__V1__PAIR_STATE__PAIR_BROKEN, 1, false, 2);
    ASSERT_EQ(comms.told_count[0], 2);
    comms_end();
}

TEST(a_device_that_is_gone_ends_its_pairs)
{
    test_expect_log();
    transfer_begin();
    head_core_worker_down(comms.core, "a", 1, true, PLASMON_OK, "it died too often");
    head_core_flush(comms.core);
    expect_told(0, 0, PLASMON__V1__PAIR_STATE__PAIR_BROKEN, 1, false, 1);
    expect_told(0, 1, PLASMON__V1__PAIR_STATE__PAIR_STAGED, 1, false, 1);
    comms_end();
}

static uint64_t opened(uint32_t device)
{
    return head_pair_opened(comms.core, head_device_at(comms.core, device)) +
           head_device_at(comms.core, device)->teams_opened;
}

TEST(a_pair_of_a_device_that_is_gone_is_forgotten_when_nothing_under_way_names_it)
{
    test_expect_log();
    transfer_begin(); /* 0 to 1 */
    head_core_worker_down(comms.core, "a", 0, true, PLASMON_OK, "it died too often");
    head_core_flush(comms.core);
    submit(3, 1, 0);
    submit(4, 2, 103); /* another pair, 1 to 2 */
    ASSERT_EQ(comms.core->pairs.count, 2);
    report_pair(1, 0, true, PLASMON__V1__PAIR_EVENT__PAIR_DECIDED, 0);
    submit(5, 2, 0);
    submit(6, 1, 105); /* 2 to 1, and the receive of 0's is not over */
    ASSERT_EQ(comms.core->pairs.count, 3);
    ASSERT_EQ(opened(1), 3);

    for (uint64_t seq = 1; seq <= 3; seq++) {
        if (comms_task(1, seq) != NULL) {
            comms_report_done(1, seq);
        }
    }
    head_core_worker_down(comms.core, "a", 2, true, PLASMON_OK, "it died too often");
    head_core_flush(comms.core);
    comms_join(3, 1, 1, COMMS_NCCL, 0);
    submit(7, 1, 0);
    submit(8, 3, 107); /* 1 to 3 */
    ASSERT_TRUE(pl_map_get(&comms.core->pairs, (UINT64_C(0) << 32 | 1) + 1) == NULL);
    ASSERT_EQ(opened(1), 4); /* as many as there ever were */
    comms_end();
}

TEST(without_nccl_a_forced_transfer_fails_and_says_why)
{
    begin(0);
    submit(1, 0, 0);
    submit(2, 2, 101);
    ASSERT_EQ(head_device_at(comms.core, 2)->seq_last, 0);
    ASSERT_EQ(comms.core->tasks_failed, 1);
    comms_end();
}

TEST_MAIN()
