/*
 * Reports: what is gathered comes out once, in frames of bounded size, and a read's bytes never
 * after its end.
 */
#include "tests/harness/test.h"
#include "worker/reports.h"

struct out {
    struct wire_arena arena;
    Plasmon__V1__WorkerFrame frame;
};

static void fill(struct worker_report_batch *batch, struct out *out)
{
    ASSERT_OK(wire_arena_init(&out->arena, WIRE_ARENA_BYTES_MAX));
    plasmon__v1__worker_frame__init(&out->frame);
    ASSERT_OK(worker_report_batch_fill(batch, &out->arena, &out->frame));
}

static void sent(struct worker_report_batch *batch, struct out *out)
{
    worker_report_batch_sent(batch, &out->frame);
    wire_arena_finish(&out->arena);
}

TEST(neighbouring_ranges_become_one)
{
    struct worker_report_batch batch;
    struct out out;

    worker_report_batch_init(&batch);
    worker_report_batch_done(&batch, 1, 3);
    worker_report_batch_done(&batch, 4, 1);
    worker_report_batch_done(&batch, 7, 2);
    fill(&batch, &out);
    ASSERT_EQ(out.frame.n_done, 2);
    ASSERT_EQ(out.frame.done[0]->first, 1);
    ASSERT_EQ(out.frame.done[0]->count, 4);
    ASSERT_EQ(out.frame.done[1]->first, 7);
    sent(&batch, &out);
    ASSERT_TRUE(worker_report_batch_empty(&batch));
    worker_report_batch_finish(&batch);
}

TEST(failures_carry_their_text)
{
    struct worker_report_batch batch;
    struct out out;

    worker_report_batch_init(&batch);
    worker_report_batch_failed(&batch, 5, PLASMON_EFUNCTION, "the sky fell");
    worker_report_batch_starved(&batch, 6, 100, 7);
    fill(&batch, &out);
    ASSERT_EQ(out.frame.n_failed, 1);
    ASSERT_EQ(out.frame.failed[0]->seq, 5);
    ASSERT_EQ(out.frame.failed[0]->status, PLASMON_EFUNCTION);
    ASSERT_STR(out.frame.failed[0]->text, "the sky fell");
    ASSERT_EQ(out.frame.n_starved, 1);
    ASSERT_EQ(out.frame.starved[0]->largest_hole, 7);
    sent(&batch, &out);
    ASSERT_TRUE(worker_report_batch_empty(&batch));
    worker_report_batch_finish(&batch);
}

/* The head refuses a frame with a text that is not UTF-8, and that one would come again and again. */
TEST(texts_are_utf8_whatever_a_function_says)
{
    struct worker_condemned condemned = {
        .seq = 3, .status = PLASMON_ECANCELLED, .text = "caf\xe9"};
    struct worker_report_batch batch;
    struct out out;

    worker_report_batch_init(&batch);
    worker_report_batch_failed(&batch, 5, PLASMON_EFUNCTION, "caf\xe9 \xc3\xa9 \xe2\x82");
    worker_report_batch_condemned(&batch, &condemned);
    worker_report_batch_function(&batch, 1, PLASMON_ENOLIB, "\xff.so");
    fill(&batch, &out);
    ASSERT_STR(out.frame.failed[0]->text, "caf? \xc3\xa9 ??");
    ASSERT_STR(out.frame.condemned[0]->text, "caf?");
    ASSERT_STR(out.frame.functions[0]->text, "?.so");
    sent(&batch, &out);
    worker_report_batch_finish(&batch);
}

TEST(what_was_refused_has_a_status_and_no_bytes)
{
    struct worker_report_batch batch;
    struct out out;

    worker_report_batch_init(&batch);
    worker_report_batch_refused(&batch, 9, PLASMON_EAGAIN, NULL, 0);
    fill(&batch, &out);
    ASSERT_EQ(out.frame.n_data, 1);
    ASSERT_EQ(out.frame.data[0]->request, 9);
    ASSERT_EQ(out.frame.data[0]->status, PLASMON_EAGAIN);
    ASSERT_EQ(out.frame.data[0]->bytes.len, 0);
    sent(&batch, &out);
    ASSERT_TRUE(worker_report_batch_empty(&batch));
    worker_report_batch_finish(&batch);
}

TEST(what_would_make_a_hole_is_said_with_a_status)
{
    static const uint64_t buffers[] = {7, UINT64_MAX};
    struct worker_report_batch batch;
    struct out out;

    worker_report_batch_init(&batch);
    worker_report_batch_refused(&batch, 9, PLASMON_EDEVMEM, buffers, PL_COUNT(buffers));
    fill(&batch, &out);
    ASSERT_EQ(out.frame.n_data, 1);
    ASSERT_EQ(out.frame.data[0]->status, PLASMON_EDEVMEM);
    ASSERT_EQ(out.frame.data[0]->bytes.len, sizeof(buffers));
    ASSERT_EQ(memcmp(out.frame.data[0]->bytes.data, buffers, sizeof(buffers)), 0);
    sent(&batch, &out);
    worker_report_batch_finish(&batch);
}

TEST(data_goes_in_bounded_frames_and_ends_are_told_after_it)
{
    static uint8_t megabyte[1 << 20];
    struct worker_report_batch batch;
    size_t pieces = 0;
    bool done     = false;

    worker_report_batch_init(&batch);
    for (uint64_t i = 0; i < 10; i++) {
        megabyte[0] = (uint8_t)i;
        worker_report_batch_data(&batch, i + 1, megabyte, sizeof(megabyte));
    }
    worker_report_batch_done(&batch, 1, 10);
    worker_report_batch_starved(&batch, 11, 1, 1);
    while (!worker_report_batch_empty(&batch)) {
        struct out out;

        fill(&batch, &out);
        ASSERT_TRUE(!done);
        ASSERT_TRUE(plasmon__v1__worker_frame__get_packed_size(&out.frame) <
                    WIRE_MESSAGE_BYTES_MAX);
        for (size_t i = 0; i < out.frame.n_data; i++) {
            ASSERT_EQ(out.frame.data[i]->request, pieces + 1);
            ASSERT_EQ(out.frame.data[i]->bytes.data[0], pieces);
            pieces++;
        }
        done = out.frame.n_done != 0;
        ASSERT_TRUE(!done || pieces == 10);
        ASSERT_TRUE(out.frame.n_starved == 0 || pieces == 10);
        sent(&batch, &out);
    }
    ASSERT_TRUE(done);
    worker_report_batch_finish(&batch);
}

TEST_MAIN()
