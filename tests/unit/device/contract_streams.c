/* Streams: bytes, order within one, between two, and towards the host. */
#include "tests/unit/device/contract.h"

#include "base/clock.h"

#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define ROUNDS 10000u
#define LINE   64u /* bytes of a message */

/* Look for a while: an event that nothing holds back would be reached in it. */
static void check_held(struct device_event *event)
{
    uint64_t until_ns = pl_now_ns() + 20000000;

    do {
        ASSERT_TRUE(!device_event_done(event));
    } while (pl_now_ns() < until_ns);
}

TEST(copies_carry_bytes_to_the_device_and_back)
{
    enum { BYTES = 1000003 };
    uint64_t seed = test_seed();
    uint8_t *want = malloc(BYTES);
    uint8_t *got  = malloc(BYTES);
    struct contract c;

    contract_open(&c);
    contract_fill_random(want, BYTES, &seed);
    contract_upload(&c, c.memory, want, BYTES);
    ASSERT_OK(device_copy(c.stream, DEVICE_COPY_DEVICE_TO_DEVICE,
                          c.memory.addr + (2u << 20), c.memory.addr, BYTES));
    contract_download(&c, got, device_ptr_add(c.memory, 2u << 20), BYTES);
    ASSERT_EQ(memcmp(got, want, BYTES), 0);
    contract_close(&c);
    free(want);
    free(got);
}

TEST(a_fill_sets_its_bytes_and_no_others)
{
    uint8_t got[300];
    struct contract c;

    contract_open(&c);
    ASSERT_OK(device_fill8(c.stream, c.memory, 0x11, sizeof(got)));
    ASSERT_OK(device_fill8(c.stream, device_ptr_add(c.memory, 101), 0xee, 97));
    ASSERT_OK(device_fill8(c.stream, device_ptr_add(c.memory, 5), 0xdd, 0));
    contract_download(&c, got, c.memory, sizeof(got));
    for (size_t i = 0; i < sizeof(got); i++) {
        ASSERT_EQ(got[i], i >= 101 && i < 198 ? 0xee : 0x11);
    }
    contract_close(&c);
}

TEST(a_wait_holds_its_stream_and_no_other)
{
    struct device_event *held;
    uint8_t got;
    struct contract c;

    contract_open(&c);
    ASSERT_OK(device_event_create(c.device, true, &held));
    ASSERT_OK(device_fill8(c.stream, c.memory, 1, 1));
    ASSERT_OK(device_stream_sync(c.stream, NULL));

    ASSERT_OK(device_wait(c.other, &c.words[0], 7));
    ASSERT_OK(device_fill8(c.other, c.memory, 2, 1));
    ASSERT_OK(device_event_record(held, c.other));
    contract_gate_open(&c.words[0], 6); /* not enough */
    contract_download(&c, &got, c.memory, 1);
    ASSERT_EQ(got, 1);
    check_held(held);

    contract_gate_open(&c.words[0], 8); /* more than asked for will do */
    ASSERT_OK(device_stream_sync(c.other, NULL));
    ASSERT_TRUE(device_event_done(held));
    contract_download(&c, &got, c.memory, 1);
    ASSERT_EQ(got, 2);
    device_event_destroy(held);
    contract_close(&c);
}

static uint64_t word_at(uint64_t *word)
{
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

TEST(words_that_go_in_together_keep_their_order)
{
    const struct device_word_step steps[] = {{.word = NULL, .value = 1},
                                             {.waits = true, .value = 7},
                                             {.value = 2},
                                             {.waits = true, .value = 9},
                                             {.value = 3},
                                             {.value = 4}};
    struct device_word_step step[PL_COUNT(steps)];
    uint64_t until_ns;
    struct contract c;

    contract_open(&c);
    memcpy(step, steps, sizeof(step));
    step[0].word = &c.words[8];
    step[1].word = &c.words[0];
    step[2].word = &c.words[16];
    step[3].word = &c.words[0];
    step[4].word = &c.words[24];
    step[5].word = &c.words[8]; /* the first one again */
    ASSERT_OK(device_words(c.stream, step, PL_COUNT(step)));
    while (word_at(&c.words[8]) != 1) {
        (void)sched_yield();
    }
    ASSERT_EQ(word_at(&c.words[16]), 0);
    contract_gate_open(&c.words[0], 8); /* past the first wait, and not the second */
    while (word_at(&c.words[16]) != 2) {
        (void)sched_yield();
    }
    until_ns = pl_now_ns() + 20000000;
    while (pl_now_ns() < until_ns) {
        ASSERT_EQ(word_at(&c.words[24]), 0);
    }
    contract_gate_open(&c.words[0], 9);
    ASSERT_OK(device_stream_sync(c.stream, NULL));
    ASSERT_EQ(word_at(&c.words[24]), 3);
    ASSERT_EQ(word_at(&c.words[8]), 4);
    ASSERT_OK(device_words(c.stream, step, 1)); /* one alone */
    ASSERT_OK(device_stream_sync(c.stream, NULL));
    ASSERT_EQ(word_at(&c.words[8]), 1);
    contract_close(&c);
}

/*
 * `other` produces into one line, `stream` consumes it; each round's wait is enqueued before the
 * signal it waits for. If a wait let go early, or a signal overtook its fill, a line of the log
 * would hold another round's bytes.
 */
static void log_rounds(struct contract *c, struct device_ptr line, struct device_ptr log)
{
    uint64_t *ready = &c->words[0];
    uint64_t *taken = &c->words[8];

    for (uint64_t i = 1; i <= ROUNDS; i++) {
        ASSERT_OK(device_wait(c->stream, ready, i));
        ASSERT_OK(device_copy(c->stream, DEVICE_COPY_DEVICE_TO_DEVICE,
                              log.addr + (i - 1) * LINE, line.addr, LINE));
        ASSERT_OK(device_signal(c->stream, taken, i));

        ASSERT_OK(device_wait(c->other, taken, i - 1));
        ASSERT_OK(device_fill8(c->other, line, (uint8_t)(i * 37), LINE));
        ASSERT_OK(device_signal(c->other, ready, i));
    }
}

TEST(waits_before_their_signals_are_right_ten_thousand_times)
{
    uint8_t *got = malloc(ROUNDS * LINE);
    struct device_ptr log;
    struct contract c;

    test_set_timeout(120);
    contract_open(&c);
    log = device_ptr_add(c.memory, 4096);
    log_rounds(&c, c.memory, log);
    ASSERT_OK(device_stream_sync(c.stream, NULL));
    ASSERT_EQ(contract_word_load(&c.words[8]), ROUNDS);
    contract_download(&c, got, log, ROUNDS * LINE);
    for (size_t i = 0; i < ROUNDS * LINE; i++) {
        ASSERT_EQ(got[i], (uint8_t)((i / LINE + 1) * 37));
    }
    contract_close(&c);
    free(got);
}

TEST(a_signal_comes_after_the_work_before_it)
{
    enum { BYTES = 1 << 20, TIMES = 50 };
    struct contract c;

    contract_open(&c);
    for (uint64_t i = 1; i <= TIMES; i++) {
        uint64_t deadline_ns = pl_now_ns() + 20000000000u;

        ASSERT_OK(device_fill8(c.stream, c.memory, (uint8_t)i, BYTES));
        ASSERT_OK(device_copy(c.stream, DEVICE_COPY_DEVICE_TO_HOST, (uintptr_t)c.host,
                              c.memory.addr, BYTES));
        ASSERT_OK(device_signal(c.stream, &c.words[0], i));
        while (contract_word_load(&c.words[0]) < i) {
            ASSERT_TRUE(pl_now_ns() < deadline_ns);
            (void)sched_yield();
        }
        ASSERT_EQ(c.host[0], (uint8_t)i);
        ASSERT_EQ(c.host[BYTES - 1], (uint8_t)i);
    }
    contract_close(&c);
}

TEST(a_join_waits_for_what_was_enqueued_and_not_for_more)
{
    struct device_event *joined;
    uint8_t got = 0;
    struct contract c;

    contract_open(&c);
    ASSERT_OK(device_event_create(c.device, true, &joined));
    ASSERT_OK(device_fill8(c.stream, c.memory, 1, 1));
    ASSERT_OK(device_stream_sync(c.stream, NULL));

    ASSERT_OK(device_wait(c.other, &c.words[0], 1));
    ASSERT_OK(device_fill8(c.other, c.memory, 9, 1));
    ASSERT_OK(device_stream_join(c.stream, c.other));
    ASSERT_OK(device_event_record(joined, c.stream));
    ASSERT_OK(device_wait(c.other, &c.words[8], 1)); /* after the join: must not matter */
    check_held(joined);

    contract_gate_open(&c.words[0], 1);
    contract_download(&c, &got, c.memory, 1);
    ASSERT_EQ(got, 9);
    ASSERT_TRUE(device_event_done(joined));
    contract_gate_open(&c.words[8], 1);
    device_event_destroy(joined);
    contract_close(&c);
}

TEST(a_stream_goes_on_behind_an_event_and_not_behind_what_came_later)
{
    struct device_event *point, *held;
    uint8_t got = 0;
    struct contract c;

    contract_open(&c);
    ASSERT_OK(device_event_create(c.device, true, &point));
    ASSERT_OK(device_event_create(c.device, true, &held));
    ASSERT_STATUS(device_stream_behind(c.stream, point), PLASMON_EINVAL);
    ASSERT_OK(device_fill8(c.stream, c.memory, 1, 1));
    ASSERT_OK(device_stream_sync(c.stream, NULL));

    ASSERT_OK(device_wait(c.other, &c.words[0], 1));
    ASSERT_OK(device_fill8(c.other, c.memory, 9, 1));
    ASSERT_OK(device_event_record(point, c.other));
    ASSERT_OK(device_wait(c.other, &c.words[8], 1)); /* before the call, behind the event */
    ASSERT_OK(device_stream_behind(c.stream, point));
    ASSERT_OK(device_event_record(held, c.stream));
    /* who waits for the last one does so still */
    ASSERT_OK(device_event_record(point, c.other));
    check_held(held);

    contract_gate_open(&c.words[0], 1);
    contract_download(&c, &got, c.memory, 1);
    ASSERT_EQ(got, 9);
    ASSERT_TRUE(device_event_done(held));
    ASSERT_TRUE(!device_event_done(point));
    contract_gate_open(&c.words[8], 1);
    ASSERT_OK(device_stream_sync(c.other, NULL));
    device_event_destroy(held);
    device_event_destroy(point);
    contract_close(&c);
}

TEST(joins_back_and_forth_keep_every_round_in_order)
{
    enum { TIMES = 2000 };
    uint8_t *got = malloc(TIMES);
    struct device_ptr log;
    struct contract c;

    test_set_timeout(60);
    contract_open(&c);
    log = device_ptr_add(c.memory, 4096);
    for (unsigned i = 0; i < TIMES; i++) {
        ASSERT_OK(device_fill8(c.stream, c.memory, (uint8_t)(i * 7), 1));
        ASSERT_OK(device_stream_join(c.other, c.stream));
        ASSERT_OK(device_copy(c.other, DEVICE_COPY_DEVICE_TO_DEVICE, log.addr + i,
                              c.memory.addr, 1));
        ASSERT_OK(device_stream_join(c.stream, c.other));
    }
    contract_download(&c, got, log, TIMES);
    for (unsigned i = 0; i < TIMES; i++) {
        ASSERT_EQ(got[i], (uint8_t)(i * 7));
    }
    contract_close(&c);
    free(got);
}

TEST(a_stream_may_be_destroyed_while_another_waits_for_its_work)
{
    struct device_stream *brief;
    uint8_t got = 0;
    struct contract c;

    contract_open(&c);
    for (unsigned i = 1; i <= 50; i++) {
        ASSERT_OK(device_stream_create(c.device, 0, &brief));
        ASSERT_OK(device_fill8(brief, c.memory, (uint8_t)i, 1));
        ASSERT_OK(device_stream_join(c.stream, brief));
        device_stream_destroy(brief);
        contract_download(&c, &got, c.memory, 1);
        ASSERT_EQ(got, i);
    }
    contract_close(&c);
}

TEST(destroying_a_stream_waits_for_its_work)
{
    struct device_stream *brief;
    struct contract c;

    contract_open(&c);
    for (uint64_t i = 1; i <= 50; i++) {
        ASSERT_OK(device_stream_create(c.device, 0, &brief));
        ASSERT_OK(device_fill8(brief, c.memory, 1, CONTRACT_DEVICE_BYTES));
        ASSERT_OK(device_signal(brief, &c.words[0], i));
        device_stream_destroy(brief);
        ASSERT_EQ(contract_word_load(&c.words[0]), i);
    }
    contract_close(&c);
}

static int readable(int fd, int timeout_ms)
{
    struct pollfd waiting = {.fd = fd, .events = POLLIN};

    return poll(&waiting, 1, timeout_ms);
}

TEST(a_notification_comes_after_the_work_and_wakes_a_poller)
{
    int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    uint64_t count;
    struct contract c;

    contract_open(&c);
    ASSERT_TRUE(fd >= 0);
    ASSERT_OK(device_wait(c.stream, &c.words[0], 1));
    ASSERT_OK(device_signal(c.stream, &c.words[8], 5));
    ASSERT_OK(device_notify(c.stream, fd));
    ASSERT_EQ(readable(fd, 0), 0);

    contract_gate_open(&c.words[0], 1);
    ASSERT_EQ(readable(fd, 10000), 1);
    ASSERT_EQ(contract_word_load(&c.words[8]), 5);
    ASSERT_EQ(read(fd, &count, sizeof(count)), sizeof(count));
    ASSERT_EQ(count, 1);
    contract_close(&c);
    close(fd);
}

TEST(an_event_that_is_not_timed_tells_only_that_it_was_reached)
{
    struct device_event *timed, *untimed;
    uint64_t elapsed_ns;
    struct contract c;

    contract_open(&c);
    ASSERT_OK(device_event_create(c.device, true, &timed));
    ASSERT_OK(device_event_create(c.device, false, &untimed));
    ASSERT_OK(device_event_record(timed, c.stream));
    ASSERT_OK(device_event_record(untimed, c.stream));
    ASSERT_OK(device_stream_sync(c.stream, NULL));
    ASSERT_TRUE(device_event_done(untimed));
    ASSERT_STATUS(device_event_elapsed_ns(timed, untimed, &elapsed_ns), PLASMON_EINVAL);
    device_event_destroy(timed);
    device_event_destroy(untimed);
    contract_close(&c);
}

TEST(events_tell_time_and_whether_they_were_reached)
{
    struct device_event *begin;
    struct device_event *end;
    uint64_t elapsed_ns;
    uint64_t started_ns;
    uint64_t opened_ns;
    struct contract c;

    contract_open(&c);
    ASSERT_OK(device_event_create(c.device, true, &begin));
    ASSERT_OK(device_event_create(c.device, true, &end));
    ASSERT_STATUS(device_event_elapsed_ns(begin, end, &elapsed_ns), PLASMON_EINVAL);

    started_ns = pl_now_ns();
    ASSERT_OK(device_event_record(begin, c.stream));
    ASSERT_OK(device_wait(c.stream, &c.words[0], 1));
    ASSERT_OK(device_event_record(end, c.stream));
    ASSERT_TRUE(!device_event_done(end));
    ASSERT_STATUS(device_event_elapsed_ns(begin, end, &elapsed_ns), PLASMON_INPROGRESS);
    while (!device_event_done(begin)) {
        ASSERT_TRUE(pl_now_ns() < started_ns + 20000000000u);
        (void)sched_yield();
    }
    for (opened_ns = pl_now_ns(); pl_now_ns() < opened_ns + 2000000;) {
        /* Two milliseconds that must be seen between the events. */
    }
    contract_gate_open(&c.words[0], 1);
    ASSERT_OK(device_stream_sync(c.stream, NULL));
    ASSERT_TRUE(device_event_done(end));
    ASSERT_OK(device_event_elapsed_ns(begin, end, &elapsed_ns));
    /* clocks of a GPU and of the host differ a little */
    ASSERT_TRUE(elapsed_ns >= 1900000);
    ASSERT_TRUE(elapsed_ns <= (pl_now_ns() - started_ns) * 11 / 10 + 10000);

    /* A new record begins anew; and an event may go while its record is still to come. */
    ASSERT_OK(device_wait(c.stream, &c.words[0], 2));
    ASSERT_OK(device_event_record(end, c.stream));
    ASSERT_TRUE(!device_event_done(end));
    device_event_destroy(end);
    contract_gate_open(&c.words[0], 2);
    device_event_destroy(begin);
    contract_close(&c);
}

TEST(a_working_device_is_healthy_also_while_a_stream_waits)
{
    struct pl_err err = {.status = PLASMON_OK};
    struct contract c;

    contract_open(&c);
    ASSERT_OK(device_wait(c.stream, &c.words[0], 1));
    ASSERT_OK(device_health(c.device, &err)); /* would hang here if it waited */
    contract_gate_open(&c.words[0], 1);
    ASSERT_OK(device_stream_sync(c.stream, NULL));
    ASSERT_OK(device_health(c.device, &err));
    contract_close(&c);
}

TEST(closing_a_device_waits_for_streams_that_are_left)
{
    struct device *device;
    struct device_stream *stream;
    struct pl_err err = {.status = PLASMON_OK};

    if (device_count(contract_kind, &err) == 0) {
        test_skip("%s", err.text);
    }
    ASSERT_OK(device_open(contract_kind, 0, NULL, &device, &err));
    ASSERT_OK(device_stream_create(device, 0, &stream));
    ASSERT_TRUE(device_of_stream(stream) == device);
    device_close(device); /* a leak or a thread that lives on would fail the test */
}

TEST(a_device_describes_itself)
{
    struct device_info info = {.kind = 0};
    struct pl_err err       = {.status = PLASMON_OK};

    if (device_count(contract_kind, &err) == 0) {
        test_skip("%s", err.text);
    }
    ASSERT_OK(device_probe(contract_kind, 0, &info, &err));
    ASSERT_EQ(info.kind, contract_kind);
    ASSERT_EQ(info.ordinal, 0);
    ASSERT_TRUE(info.name[0] != '\0');
    ASSERT_TRUE(info.bytes_total > 0);
    ASSERT_TRUE(info.multiprocessors > 0);
    ASSERT_TRUE(info.chunk_granularity >= 4096);
    ASSERT_EQ(info.chunk_granularity & (info.chunk_granularity - 1), 0);
    ASSERT_STATUS(device_probe(contract_kind, 100000, &info, &err), PLASMON_ENOENT);
    ASSERT_CONTAINS(err.text, "device 100000 does not exist");
}
