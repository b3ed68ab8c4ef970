/*
 * What stands in for NCCL on CPU devices: teams of several processes' devices, here in one process.
 * Nobody is through before all have come; what dies is not noticed; an abort ends what waits.
 */
#include <string.h>
#include <time.h>

#include "base/box.h"
#include "base/clock.h"
#include "device/device.h"
#include "tests/harness/test.h"

enum { RANKS = 4, ELEMENTS = 3001, DEADLINE_S = 60 };

struct rank {
    struct device *device;
    struct device_stream *stream;
    struct device_comm *comm;
    double member[ELEMENTS];
    double result[ELEMENTS];
    uint64_t word;
};

static struct rank rank[RANKS];
static uint64_t until_ns;

static void nap(void)
{
    const struct timespec pause = {.tv_nsec = 50000};

    ASSERT_TRUE(pl_now_ns() < until_ns);
    (void)nanosleep(&pause, NULL);
}

static void comm_begin(uint32_t i, uint8_t *id)
{
    const struct device_comm_config config = {.rank = i, .ranks = RANKS};
    struct pl_err err;

    if (i == 0) {
        ASSERT_OK(device_comm_id(rank[0].device, &config, id, &err));
    }
    ASSERT_OK(
        device_comm_open(rank[i].device, &config, id, rank[i].stream, &rank[i].comm, &err));
}

static void begin(void)
{
    struct device_config config = {.bytes_max = 1 << 20};
    uint8_t id[DEVICE_COMM_ID_BYTES];
    uint32_t open = 0;
    struct pl_err err;

    test_set_timeout(DEADLINE_S);
    until_ns = pl_now_ns() + DEADLINE_S * UINT64_C(1000000000);
    memset(rank, 0, sizeof(rank));
    for (uint32_t i = 0; i < RANKS; i++) {
        ASSERT_OK(device_open(DEVICE_CPU, i, &config, &rank[i].device, &err));
        ASSERT_OK(device_stream_create(rank[i].device, 0, &rank[i].stream));
    }
    for (uint32_t i = 0; i + 1 < RANKS; i++) {
        comm_begin(i, id);
    }
    for (uint32_t i = 0; i < 200; i++) { /* the last one is not there: none is open */
        for (uint32_t k = 0; k + 1 < RANKS; k++) {
            ASSERT_STATUS(device_comm_poll(rank[k].comm, &err), PLASMON_EAGAIN);
        }
    }
    comm_begin(RANKS - 1, id);
    while (open < RANKS) {
        open = 0;
        for (uint32_t i = 0; i < RANKS; i++) {
            open += device_comm_poll(rank[i].comm, &err) == PLASMON_OK;
        }
        nap();
    }
}

static void end(void)
{
    struct pl_err err;

    for (uint32_t i = 0; i < RANKS; i++) {
        ASSERT_OK(device_stream_sync(rank[i].stream, &err));
        device_stream_destroy(rank[i].stream);
        device_close(rank[i].device);
    }
}

static void reduce(uint32_t i, uint32_t dtype, uint32_t op, uint64_t elements)
{
    const struct device_comm_collective reduction = {
        .src      = {.addr = (uint64_t)(uintptr_t)rank[i].member},
        .dst      = {.addr = (uint64_t)(uintptr_t)rank[i].result},
        .elements = elements,
        .dtype    = dtype,
        .op       = op};
    struct pl_err err;

    ASSERT_OK(device_comm_join(rank[i].comm, rank[i].stream, &reduction, &err));
    ASSERT_OK(device_signal(rank[i].stream, &rank[i].word, 1));
}

static double meant(uint32_t op, uint64_t k)
{
    double out = (double)k;

    for (uint32_t i = 1; i < RANKS; i++) {
        double x = (double)(k + i);

        out = op == DEVICE_REDUCE_SUM    ? out + x
              : op == DEVICE_REDUCE_PROD ? out * x
              : op == DEVICE_REDUCE_MIN  ? (x < out ? x : out)
                                         : (x > out ? x : out);
    }
    return out;
}

TEST(all_ranks_get_the_reduction_of_all)
{
    begin();
    for (uint32_t op = DEVICE_REDUCE_SUM; op <= DEVICE_REDUCE_MAX; op++) {
        struct pl_err err;

        for (uint32_t i = 0; i < RANKS; i++) {
            for (uint64_t k = 0; k < ELEMENTS; k++) {
                rank[i].member[k] = (double)(k + i);
            }
        }
        for (uint32_t i = RANKS; i-- > 0;) {
            reduce(i, PL_F64, op, ELEMENTS);
        }
        for (uint32_t i = 0; i < RANKS; i++) {
            ASSERT_OK(device_stream_sync(rank[i].stream, &err));
            for (uint64_t k = 0; k < ELEMENTS; k++) {
                ASSERT_TRUE(rank[i].result[k] == meant(op, k));
            }
        }
    }
    for (uint32_t i = 0; i < RANKS; i++) {
        device_comm_close(rank[i].comm);
    }
    end();
}

TEST(integers_go_round_and_are_ordered_with_their_sign)
{
    static const int32_t members[RANKS] = {INT32_MAX, 1, -5, 7}; /* and round by 3 */
    struct pl_err err;
    int32_t got;

    begin();
    for (uint32_t i = 0; i < RANKS; i++) {
        memcpy(rank[i].member, &members[i], sizeof(members[i]));
        reduce(i, PL_I32, DEVICE_REDUCE_SUM, 1);
    }
    for (uint32_t i = 0; i < RANKS; i++) {
        ASSERT_OK(device_stream_sync(rank[i].stream, &err));
        memcpy(&got, rank[i].result, sizeof(got));
        ASSERT_EQ(got, INT32_MIN + 2);
    }
    for (uint32_t i = 0; i < RANKS; i++) {
        reduce(i, PL_I32, DEVICE_REDUCE_MIN, 1);
    }
    for (uint32_t i = 0; i < RANKS; i++) {
        ASSERT_OK(device_stream_sync(rank[i].stream, &err));
        memcpy(&got, rank[i].result, sizeof(got));
        ASSERT_EQ(got, -5);
        device_comm_close(rank[i].comm);
    }
    end();
}

TEST(parts_are_scattered_and_gathered)
{
    enum { PART = ELEMENTS / RANKS };
    struct pl_err err;

    begin();
    for (uint32_t i = 0; i < RANKS; i++) {
        for (uint64_t k = 0; k < ELEMENTS; k++) {
            rank[i].member[k] = (double)(k + i);
        }
    }
    for (uint32_t kind = DEVICE_REDUCE_SCATTER; kind <= DEVICE_ALL_GATHER; kind++) {
        for (uint32_t i = 0; i < RANKS; i++) {
            const struct device_comm_collective how = {
                .kind     = (enum device_collective)kind,
                .src      = {.addr = (uint64_t)(uintptr_t)rank[i].member},
                .dst      = {.addr = (uint64_t)(uintptr_t)rank[i].result},
                .elements = PART,
                .dtype    = PL_F64,
                .op       = DEVICE_REDUCE_SUM};

            ASSERT_OK(device_comm_join(rank[i].comm, rank[i].stream, &how, &err));
        }
        for (uint32_t i = 0; i < RANKS; i++) {
            ASSERT_OK(device_stream_sync(rank[i].stream, &err));
            for (uint64_t k = 0; kind == DEVICE_REDUCE_SCATTER && k < PART; k++) {
                ASSERT_TRUE(rank[i].result[k] == meant(DEVICE_REDUCE_SUM, i * PART + k));
            }
            for (uint64_t k = 0; kind == DEVICE_ALL_GATHER && k < RANKS * PART; k++) {
                ASSERT_TRUE(rank[i].result[k] == (double)(k % PART + k / PART));
            }
        }
    }
    for (uint32_t i = 0; i < RANKS; i++) {
        device_comm_close(rank[i].comm);
    }
    end();
}

/* Rank 3 does not come: the others wait, whatever becomes of it. */
TEST(whoever_waits_for_one_that_is_gone_waits_until_the_abort)
{
    struct pl_err err;

    begin();
    for (uint32_t i = 0; i + 1 < RANKS; i++) {
        reduce(i, PL_F64, DEVICE_REDUCE_SUM, ELEMENTS);
    }
    device_comm_abort(rank[RANKS - 1].comm);
    for (uint32_t i = 0; i < 1000; i++) { /* 50 ms, in which it would take microseconds */
        nap();
    }
    for (uint32_t i = 0; i + 1 < RANKS; i++) {
        ASSERT_EQ(__atomic_load_n(&rank[i].word, __ATOMIC_ACQUIRE), 0);
        ASSERT_OK(device_comm_check(rank[i].comm, &err)); /* it does not tell */
    }
    for (uint32_t i = 0; i + 1 < RANKS; i++) {
        device_comm_abort(rank[i].comm);
    }
    for (uint32_t i = 0; i + 1 < RANKS; i++) {
        ASSERT_OK(device_stream_sync(rank[i].stream, &err));
        ASSERT_EQ(rank[i].word, 1); /* as if all were well */
    }
    end();
}

TEST(what_it_does_not_reduce_is_refused)
{
    const struct device_comm_collective reduction = {
        .elements = 1, .dtype = PL_F16, .op = DEVICE_REDUCE_SUM};
    struct pl_err err;

    begin();
    ASSERT_STATUS(device_comm_join(rank[0].comm, rank[0].stream, &reduction, &err),
                  PLASMON_ENOTSUP);
    for (uint32_t i = 0; i < RANKS; i++) {
        device_comm_close(rank[i].comm);
    }
    end();
}

TEST_MAIN()
