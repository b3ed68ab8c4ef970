/*
 * Teams without NCCL: three devices in one process, each with its part of a communicator, over the
 * stand-in. Each device enqueues its parts in the one order; the test is the head. Whatever breaks,
 * wherever the parts are, every device gets every sum, by the team or alone.
 */
#include <pthread.h>
#include <string.h>
#include <unistd.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <time.h>

#include "base/clock.h"
#include "base/lock.h"
#include "tests/harness/test.h"
#include "transfer/pair.h"

enum { HOSTS = 3, ELEMENTS = 5003, TEAM = 7, DEADLINE_S = 60, ROUNDS = 25 };

struct host {
    uint32_t index;
    struct device *device;
    struct device_stream *stream; /* the launches' */
    struct transfer_pairs *pairs;
    struct transfer_counters counters;
    struct store_timeline *timeline;
    int notify_fd;
    struct pl_mutex lock; /* the worker's */
    uint32_t alone;       /* parts that it did by itself */
    int64_t member[TRANSFER_PAIR_DEPTH][ELEMENTS];
    int64_t result[TRANSFER_PAIR_DEPTH][ELEMENTS];
    uint64_t done[TRANSFER_PAIR_DEPTH];
};

static struct host host[HOSTS];
static uint64_t until_ns;

static void nap(const char *what)
{
    const struct timespec pause = {.tv_nsec = 50000};

    if (pl_now_ns() > until_ns) {
        test_fail(__FILE__, __LINE__, "%s has not come in %d s", what, DEADLINE_S);
    }
    (void)nanosleep(&pause, NULL);
}

/* -------------------------------------------------------------------------------- alone */

struct sum {
    struct host *host;
    uint64_t part;
};

static plasmon_status_t sum_run(void *user, struct pl_err *err)
{
    const struct sum *sum = user;

    (void)err;
    for (uint32_t k = 0; k < ELEMENTS; k++) {
        int64_t x = 0;

        for (uint32_t i = 0; i < HOSTS; i++) {
            x += host[i].member[sum->part][k];
        }
        sum->host->result[sum->part][k] = x;
    }
    return PLASMON_OK;
}

static plasmon_status_t stage(void *user, struct device_stream *stream,
                              const struct transfer_half *half)
{
    struct sum sum = {.host = user, .part = half->seq - 1};

    ASSERT_EQ(half->key.team, TEAM);
    sum.host->alone++;
    return device_cpu_launch(stream, sum_run, &sum, sizeof(sum), half->seq);
}

static void stuck(void *user, const char *text)
{
    (void)user;
    test_fail(__FILE__, __LINE__, "%s", text);
}

/* -------------------------------------------------------------------------------- hosts */

static struct transfer_pair_key key_of(uint32_t index)
{
    return (struct transfer_pair_key){.receives = index != 0, .epoch = 1, .team = TEAM};
}

static void host_open(uint32_t index)
{
    struct device_config config = {.bytes_max = 1 << 20};
    struct host *it             = &host[index];
    struct transfer_pairs_config pairs;
    struct pl_err err;

    memset(it, 0, sizeof(*it));
    it->index = index;
    ASSERT_OK(pl_mutex_init(&it->lock, PL_RANK_WORKER));
    ASSERT_OK(device_open(DEVICE_CPU, index, &config, &it->device, &err));
    ASSERT_OK(device_stream_create(it->device, 0, &it->stream));
    it->timeline = mmap(NULL, sizeof(*it->timeline), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_TRUE(it->timeline != MAP_FAILED);
    it->notify_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    pairs         = (struct transfer_pairs_config){.device    = it->device,
                                                   .timeline  = it->timeline,
                                                   .counters  = &it->counters,
                                                   .notify_fd = it->notify_fd,
                                                   .stall_ns  = UINT64_C(300000000),
                                                   .stage     = stage,
                                                   .stuck     = stuck,
                                                   .user      = it};
    ASSERT_OK(transfer_pairs_create(&pairs, &it->pairs));
    for (uint32_t t = 0; t < TRANSFER_PAIR_DEPTH; t++) {
        for (uint32_t k = 0; k < ELEMENTS; k++) {
            it->member[t][k] = (int64_t)(k + 1) * (t + 1) * (index + 1);
        }
    }
}

static void hosts_close(void)
{
    for (uint32_t i = 0; i < HOSTS; i++) {
        device_stream_destroy(host[i].stream);
        transfer_pairs_destroy(host[i].pairs);
        device_close(host[i].device);
        pl_mutex_finish(&host[i].lock);
    }
}

/* Until news of that kind comes; what has its turn goes. */
static struct transfer_pair_news wait_for(struct host *it, enum transfer_pair_event event)
{
    struct transfer_pair_news news = {.event = TRANSFER_PAIR_TURN};

    for (;;) {
        bool some = transfer_pairs_news(it->pairs, &news);

        if (some && news.event == event) {
            return news;
        }
        if (some && news.event == TRANSFER_PAIR_TURN) {
            pl_mutex_lock(&it->lock);
            ASSERT_OK(transfer_pairs_stage_next(it->pairs));
            pl_mutex_unlock(&it->lock);
        } else if (!some) {
            nap("news");
        }
    }
}

static void team_open(void)
{
    struct transfer_pair_shape shape = {.ranks = HOSTS};
    struct transfer_pair_key key     = key_of(0);
    struct transfer_pair_news made;

    test_set_timeout(DEADLINE_S + 30);
    until_ns = pl_now_ns() + DEADLINE_S * UINT64_C(1000000000);
    for (uint32_t i = 0; i < HOSTS; i++) {
        host_open(i);
    }
    ASSERT_OK(transfer_pair_open(host[0].pairs, &key, &shape, NULL, 5000));
    made = wait_for(&host[0], TRANSFER_PAIR_MADE);
    for (uint32_t i = 1; i < HOSTS; i++) {
        key        = key_of(i);
        shape.rank = i;
        ASSERT_OK(transfer_pair_open(host[i].pairs, &key, &shape, made.id, 60000));
    }
    for (uint32_t i = 0; i < HOSTS; i++) {
        ASSERT_OK(wait_for(&host[i], TRANSFER_PAIR_OPENED).status);
    }
}

/* Part t + 1 of this device. */
static void part_put(struct host *it, uint32_t t)
{
    const struct transfer_half half = {
        .key         = key_of(it->index),
        .seq         = t + 1,
        .first_chunk = t + 1,
        .ptr         = {.addr = (uint64_t)(uintptr_t)it->result[t]},
        .member      = {.addr = (uint64_t)(uintptr_t)it->member[t]},
        .bytes       = sizeof(it->result[t]),
        .dtype       = PL_I64,
        .op          = DEVICE_REDUCE_SUM,
        .with_bytes  = true,
    };

    pl_mutex_lock(&it->lock);
    ASSERT_TRUE(transfer_pair_room(it->pairs, TRANSFER_LANE_TEAMS));
    ASSERT_OK(transfer_pair_move(it->pairs, it->stream, &half));
    ASSERT_OK(device_signal(it->stream, &it->done[t], 1));
    pl_mutex_unlock(&it->lock);
}

static void parts_put(struct host *it)
{
    for (uint32_t t = 0; t < TRANSFER_PAIR_DEPTH; t++) {
        part_put(it, t);
    }
}

/* As a worker does that is told so. */
static void team_break(struct host *it)
{
    struct transfer_pair_key key = key_of(it->index);
    uint64_t first;

    pl_mutex_lock(&it->lock);
    transfer_pair_break(it->pairs, &key);
    transfer_pair_abort(it->pairs, &key);
    ASSERT_OK(transfer_pair_stage(it->pairs, &key, &first));
    pl_mutex_unlock(&it->lock);
}

/* Nothing of it is on the device any more; it is freed when that is said. */
static void end(struct host *it)
{
    struct transfer_pair_key key = key_of(it->index);
    struct transfer_pair_news news;

    (void)wait_for(it, TRANSFER_PAIR_ENDED);
    (void)usleep(30000);
    ASSERT_TRUE(!transfer_pairs_news(it->pairs, &news));
    pl_mutex_lock(&it->lock);
    transfer_pair_free(it->pairs, &key);
    pl_mutex_unlock(&it->lock);
    (void)wait_for(it, TRANSFER_PAIR_QUIET);
}

/* All parts of this device come to an end, and are sums of all members. */
static void expect_sums(struct host *it)
{
    for (uint32_t t = 0; t < TRANSFER_PAIR_DEPTH; t++) {
        while (__atomic_load_n(&it->done[t], __ATOMIC_ACQUIRE) == 0) {
            struct transfer_pair_news news;

            if (transfer_pairs_news(it->pairs, &news) && news.event == TRANSFER_PAIR_TURN) {
                pl_mutex_lock(&it->lock);
                ASSERT_OK(transfer_pairs_stage_next(it->pairs));
                pl_mutex_unlock(&it->lock);
            }
            nap("a part");
        }
        for (uint32_t k = 0; k < ELEMENTS; k++) {
            ASSERT_EQ(it->result[t][k], (int64_t)(k + 1) * (t + 1) * 6);
        }
    }
}

/* -------------------------------------------------------------------------------- tests */

TEST(what_a_team_does_comes_to_all)
{
    team_open();
    for (uint32_t i = 0; i < HOSTS; i++) {
        parts_put(&host[i]);
    }
    for (uint32_t i = 0; i < HOSTS; i++) {
        expect_sums(&host[i]);
        ASSERT_EQ(host[i].alone, 0);
        ASSERT_EQ(host[i].counters.copies[TRANSFER_NCCL], TRANSFER_PAIR_DEPTH);
    }
    for (uint32_t i = 0; i < HOSTS; i++) {
        struct transfer_pair_key key = key_of(i);

        transfer_pair_close(host[i].pairs, &key);
        (void)wait_for(&host[i], TRANSFER_PAIR_CLOSED);
    }
    hosts_close();
}

TEST(what_was_under_way_when_it_breaks_each_does_alone)
{
    uint64_t random = test_seed();
    uint32_t alone  = 0;

    for (uint32_t round = 0; round < ROUNDS; round++) {
        team_open();
        for (uint32_t i = 0; i < HOSTS; i++) {
            parts_put(&host[i]);
        }
        for (uint64_t i = test_random(&random) % 3; i > 0; i--) {
            nap("a moment");
        }
        for (uint32_t i = 0; i < HOSTS; i++) { /* one after the other hears of it */
            team_break(&host[(i + round) % HOSTS]);
        }
        for (uint32_t i = 0; i < HOSTS; i++) {
            expect_sums(&host[i]);
            alone += host[i].alone;
        }
        hosts_close();
    }
    printf("# %u of %u parts were done alone\n", alone,
           ROUNDS * HOSTS * TRANSFER_PAIR_DEPTH);
}

TEST(parts_whose_others_never_come_are_done_alone)
{
    team_open();
    /* the worker of device 0 has died, that of 2 waits in front of it */
    parts_put(&host[1]);
    (void)wait_for(&host[1], TRANSFER_PAIR_STALLED);
    ASSERT_EQ(__atomic_load_n(&host[1].done[0], __ATOMIC_ACQUIRE), 0);
    for (uint32_t i = 0; i < HOSTS; i++) {
        team_break(&host[i]);
    }
    expect_sums(&host[1]);
    ASSERT_EQ(host[1].alone, TRANSFER_PAIR_DEPTH);
    end(&host[0]);
    end(&host[2]);
    hosts_close();
}

TEST_MAIN()
