/*
 * Collectives on CPU devices against plain loops, to the bit: all kinds, dtypes and operations, one
 * to four devices, sizes below and above what goes in one step, views, in place; what fails, fails
 * as a whole; wrong calls say what is wrong; workers may die in between.
 *
 * Built twice: for CPU devices, and (COLLECTIVES_OF_GPUS: test_collectives_cuda) for up to four
 * GPUs; there a test that wants more of them than there are is skipped.
 */
#include <stdbool.h>
#include <stdlib.h>

#include "base/base.h"
#include "base/clock.h"
#include "tests/integration/cluster.h"

enum { MEMBERS_MAX = 6, WAIT_MS = 120000, GONE_MS = 60000, TEST_S = 200 };

#ifdef COLLECTIVES_OF_GPUS
static struct plasmon_client *start(uint32_t devices)
{
    struct plasmon_options options = PLASMON_OPTIONS_INIT;
    struct plasmon_client *client;
    uint32_t count = 0;
    plasmon_status_t status;

    test_set_timeout(TEST_S);
    cluster_tag();
    status = plasmon_init(&options, &client);
    if (status != PLASMON_OK) {
        test_skip("no cluster with GPUs: %s", plasmon_error(NULL));
    }
    CLUSTER_OK(plasmon_devices(client, NULL, 0, &count));
    if (count > 0) {
        struct plasmon_device_info info;

        CLUSTER_OK(plasmon_devices(client, &info, 1, &count));
        count = info.kind == 2 ? count : 0;
    }
    if (count < devices) {
        plasmon_finish(client);
        test_skip("the test wants %u GPUs, and there are %u", devices, count);
    }
    return client;
}
#else
static struct plasmon_client *start(uint32_t devices)
{
    test_set_timeout(TEST_S);
    return cluster_start_sized(devices, 512u << 20);
}
#endif

/* ------------------------------------------------------------------------------- values */

static size_t bytes_of(plasmon_dtype_t dtype)
{
    static const uint8_t bytes[] = {0, 1, 1, 1, 2, 2, 4, 4, 8, 8, 2, 2, 4, 8, 8, 16};

    return bytes[dtype];
}

/* A small integer as a 16-bit float: exact. */
static uint16_t half_of(int value, bool bf16)
{
    float f = (float)value;
    uint32_t bits;

    memcpy(&bits, &f, sizeof(bits));
    if (bf16 || value == 0) {
        return (uint16_t)(bits >> 16);
    }
    return (uint16_t)((bits >> 16 & 0x8000) | ((bits >> 23 & 0xff) - 112) << 10 |
                      (bits >> 13 & 0x3ff));
}

static void put_value(plasmon_dtype_t dtype, int value, void *out)
{
    float f32[2]  = {(float)value, (float)-value};
    double f64[2] = {value, -value};
    int32_t i32   = value;
    int64_t i64   = value;
    uint16_t half = half_of(value, dtype == PLASMON_BF16);
    const void *from;

    switch (dtype) {
    case PLASMON_F16:
    case PLASMON_BF16:
        from = &half;
        break;
    case PLASMON_I32:
        from = &i32;
        break;
    case PLASMON_F32:
    case PLASMON_C64:
        from = f32;
        break;
    case PLASMON_F64:
    case PLASMON_C128:
        from = f64;
        break;
    default:
        from = &i64;
    }
    memcpy(out, from, bytes_of(dtype));
}

static uint32_t noise_state = 12345;
static uint32_t noise(void)
{
    noise_state = noise_state * 1664525u + 1013904223u;
    return noise_state >> 8;
}

static float join(plasmon_reduce_t op, float a, float b)
{
    switch (op) {
    case PLASMON_REDUCE_PROD:
        return a * b;
    case PLASMON_REDUCE_MIN:
        return a < b ? a : b;
    case PLASMON_REDUCE_MAX:
        return a > b ? a : b;
    default:
        return a + b;
    }
}

/* As the header says: x0 op tree(x1, ..). */
static float fold(plasmon_reduce_t op, const float *x, uint32_t count)
{
    float level[MEMBERS_MAX];
    float out;

    for (uint32_t i = 1; i < count; i++) {
        level[i - 1] = x[i];
    }
    for (uint32_t width = count - 1; width > 1; width = (width + 1) / 2) {
        for (uint32_t i = 0; i < width / 2; i++) {
            level[i] = join(op, level[2 * i], level[2 * i + 1]);
        }
        if (width % 2 != 0) {
            level[width / 2] = level[width - 1];
        }
    }
    out = count == 1 ? x[0] : join(op, x[0], level[0]);
    return op == PLASMON_REDUCE_AVG && count > 1 ? out * (float)(1.0 / count) : out;
}

/* ------------------------------------------------------------------------------- a case */

struct set {
    struct plasmon_client *client;
    uint32_t devices;
    uint32_t count;
    struct plasmon_shape shape;
    int64_t elements;
    float *data[MEMBERS_MAX];
    struct plasmon_ref *refs[MEMBERS_MAX];
};

static int64_t elements_of(const struct plasmon_shape *shape)
{
    int64_t elements = 1;

    for (uint32_t i = 0; i < shape->ndim; i++) {
        elements *= shape->dim[i];
    }
    return elements;
}

/* Members of noise, by turns on the devices. */
static struct set set_make(struct plasmon_client *client, uint32_t devices, uint32_t count,
                           struct plasmon_shape shape)
{
    struct set set = {.client   = client,
                      .devices  = devices,
                      .count    = count,
                      .shape    = shape,
                      .elements = elements_of(&shape)};

    for (uint32_t i = 0; i < count; i++) {
        struct plasmon_put_options options = PLASMON_PUT_INIT;

        options.device    = (int)(i % devices);
        options.donatable = 1;
        set.data[i]       = malloc((size_t)set.elements * sizeof(float));
        ASSERT_TRUE(set.data[i] != NULL);
        for (int64_t k = 0; k < set.elements; k++) {
            set.data[i][k] = (float)noise() / 65536.0f - 100.0f;
        }
        CLUSTER_OK(plasmon_put(client, set.data[i], &shape, &options, &set.refs[i]));
    }
    return set;
}

static void set_finish(struct set *set)
{
    for (uint32_t i = 0; i < set->count; i++) {
        CLUSTER_OK(plasmon_release(set->client, set->refs[i]));
        free(set->data[i]);
    }
}

static float reduced(const struct set *set, plasmon_reduce_t op, int64_t at)
{
    float x[MEMBERS_MAX];

    for (uint32_t i = 0; i < set->count; i++) {
        x[i] = set->data[i][at];
    }
    return fold(op, x, set->count);
}

static void expect(const struct set *set, struct plasmon_ref *ref, const float *want,
                   int64_t elements, const char *what, uint32_t number)
{
    size_t bytes = (size_t)elements * sizeof(float);
    float *got   = malloc(bytes);

    ASSERT_TRUE(got != NULL);
    CLUSTER_OK(plasmon_get(set->client, ref, got, bytes, WAIT_MS));
    for (int64_t i = 0; i < elements; i++) {
        if (memcmp(&got[i], &want[i], sizeof(float)) != 0) {
            test_fail(__FILE__, __LINE__,
                      "%s, %u members on %u devices: result %u, element %lld of %lld is "
                      "%.9g, expected %.9g",
                      what, set->count, set->devices, number, (long long)i,
                      (long long)elements, (double)got[i], (double)want[i]);
            break;
        }
    }
    free(got);
}

static void expect_and_release(const struct set *set, struct plasmon_ref **refs,
                               uint32_t count, const float *want, int64_t elements,
                               int64_t stride, const char *what)
{
    for (uint32_t i = 0; i < count; i++) {
        expect(set, refs[i], want + i * stride, elements, what, i);
        CLUSTER_OK(plasmon_release(set->client, refs[i]));
    }
}

/* -------------------------------------------------------------------------------- kinds */

static void check_reductions(const struct set *set, plasmon_reduce_t op,
                             plasmon_collective_way_t way)
{
    struct plasmon_collective_options options = PLASMON_COLLECTIVE_INIT;
    struct plasmon_ref *out[MEMBERS_MAX], *task;
    float *want = malloc((size_t)set->elements * sizeof(float));

    ASSERT_TRUE(want != NULL);
    for (int64_t i = 0; i < set->elements; i++) {
        want[i] = reduced(set, op, i);
    }
    options.way = way;
    CLUSTER_OK(
        plasmon_all_reduce(set->client, op, set->refs, set->count, &options, out, &task));
    expect_and_release(set, out, set->count, want, set->elements, 0, "all_reduce");
    CLUSTER_OK(plasmon_wait(set->client, &task, 1, 1, WAIT_MS, NULL, NULL));
    CLUSTER_OK(plasmon_state(set->client, task));
    CLUSTER_OK(plasmon_release(set->client, task));
    CLUSTER_OK(plasmon_reduce(set->client, op, set->refs, set->count, set->count - 1,
                              &options, out, NULL));
    expect_and_release(set, out, 1, want, set->elements, 0, "reduce");
    if (set->shape.ndim > 0 && set->shape.dim[0] % set->count == 0) {
        CLUSTER_OK(plasmon_reduce_scatter(set->client, op, set->refs, set->count, &options,
                                          out, NULL));
        expect_and_release(set, out, set->count, want, set->elements / set->count,
                           set->elements / set->count, "reduce_scatter");
    }
    free(want);
}

static void check_moves(const struct set *set)
{
    struct plasmon_collective_options options = PLASMON_COLLECTIVE_INIT;
    size_t bytes                              = (size_t)set->elements * sizeof(float);
    struct plasmon_ref *out[MEMBERS_MAX];
    int devices[MEMBERS_MAX];
    float *want = malloc(bytes * set->count);

    ASSERT_TRUE(want != NULL);
    for (uint32_t i = 0; i < set->count; i++) {
        devices[i] = (int)((i + 1) % set->devices);
        memcpy(want + i * set->elements, set->data[i], bytes);
    }
    options.devices = devices;
    CLUSTER_OK(
        plasmon_broadcast(set->client, set->refs[0], set->count, &options, out, NULL));
    expect_and_release(set, out, set->count, set->data[0], set->elements, 0, "broadcast");
    if (set->shape.ndim > 0) {
        CLUSTER_OK(
            plasmon_all_gather(set->client, set->refs, set->count, &options, out, NULL));
        expect_and_release(set, out, set->count, want, set->elements * set->count, 0,
                           "all_gather");
    }
    if (set->shape.ndim > 0 && set->shape.dim[0] % set->count == 0) {
        int64_t part = set->elements / set->count;

        for (uint32_t i = 0; i < set->count; i++) {
            for (uint32_t k = 0; k < set->count; k++) {
                memcpy(want + i * set->elements + k * part, set->data[k] + i * part,
                       (size_t)part * sizeof(float));
            }
        }
        CLUSTER_OK(plasmon_all_to_all(set->client, set->refs, set->count, NULL, out, NULL));
        expect_and_release(set, out, set->count, want, set->elements, set->elements,
                           "all_to_all");
    }
    free(want);
}

/* NCCL's sums have an order of their own; those of what stands in for it are Plasmon's. */
#ifdef COLLECTIVES_OF_GPUS
enum { WAYS = PLASMON_WAY_NCCL };
#else
enum { WAYS = PLASMON_WAY_FASTEST + 1 };
#endif

TEST(every_collective_is_its_loop_on_one_to_four_devices)
{
    static const struct plasmon_shape shapes[] = {
        {PLASMON_F32, 0, {0}},          {PLASMON_F32, 1, {1}},
        {PLASMON_F32, 1, {3}},          {PLASMON_F32, 1, {60}},
        {PLASMON_F32, 2, {30, 7}},      {PLASMON_F32, 1, {100003}},
        {PLASMON_F32, 1, {180000}},     {PLASMON_F32, 2, {2, 90001}},
        {PLASMON_F32, 2, {360, 251}},
#ifdef COLLECTIVES_OF_GPUS /* too much for one step: segments that are joined, and copied */
        {PLASMON_F32, 1, {1500000}},    {PLASMON_F32, 1, {5000001}},
        {PLASMON_F32, 2, {1200, 1251}},
#endif
    };

    for (uint32_t devices = 1; devices <= 4; devices++) {
        struct plasmon_client *client = start(devices);

        for (size_t s = 0; s < PL_COUNT(shapes); s++) {
            for (uint32_t i = 0; i < 2; i++) { /* one a device, and some other number */
                uint32_t count =
                    i == 0 ? devices : 1 + (uint32_t)(s + devices) % MEMBERS_MAX;
                struct set set = set_make(client, devices, count, shapes[s]);

                check_reductions(&set, (plasmon_reduce_t)(1 + (s + count) % 5),
                                 (plasmon_collective_way_t)((s + i) % WAYS));
                check_moves(&set);
                set_finish(&set);
            }
        }
        plasmon_finish(client);
    }
    cluster_expect_gone(GONE_MS);
}

TEST(large_arrays_go_in_several_chunks)
{
    struct plasmon_client *client = start(2);
    struct plasmon_shape shape    = cluster_vector(PLASMON_F32, 17000001); /* 65 MiB */
    struct set set                = set_make(client, 2, 2, shape);

    check_reductions(&set, PLASMON_REDUCE_SUM, PLASMON_WAY_AUTO);
    set_finish(&set);
    plasmon_finish(client);
    cluster_expect_gone(GONE_MS);
}

static int plain(plasmon_reduce_t op, const int *x, uint32_t count)
{
    int out = x[0];

    for (uint32_t i = 1; i < count; i++) {
        out = op == PLASMON_REDUCE_PROD  ? out * x[i]
              : op == PLASMON_REDUCE_MIN ? (x[i] < out ? x[i] : out)
              : op == PLASMON_REDUCE_MAX ? (x[i] > out ? x[i] : out)
                                         : out + x[i];
    }
    return op == PLASMON_REDUCE_AVG ? out / (int)count : out;
}

/* Of 2 or 4 members. */
static void check_dtype(struct plasmon_client *client, uint32_t count,
                        plasmon_dtype_t dtype, plasmon_reduce_t op, int64_t elements,
                        plasmon_collective_way_t way)
{
    enum { COUNT = 4 };
    static const int values[COUNT]        = {2, 4, 1, 5}; /* their sum is a multiple of 4 */
    struct plasmon_shape shape            = cluster_vector(dtype, elements);
    size_t one                            = bytes_of(dtype);
    uint8_t *data                         = malloc((size_t)elements * one);
    struct plasmon_collective_options how = PLASMON_COLLECTIVE_INIT;
    struct plasmon_ref *refs[COUNT], *out[COUNT];
    bool is_complex = dtype == PLASMON_C64 || dtype == PLASMON_C128;
    uint8_t want[16];

    ASSERT_TRUE(data != NULL);
    for (uint32_t i = 0; i < count; i++) {
        struct plasmon_put_options options = PLASMON_PUT_INIT;

        options.device = (int)i;
        for (int64_t k = 0; k < elements; k++) {
            put_value(dtype, values[i], data + k * (int64_t)one);
        }
        CLUSTER_OK(plasmon_put(client, data, &shape, &options, &refs[i]));
    }
    how.way = way;
    CLUSTER_OK(plasmon_all_reduce(client, op, refs, count, &how, out, NULL));
    put_value(dtype, plain(op, values, count), want);
    if (is_complex && op == PLASMON_REDUCE_PROD) { /* (a - ai)(b - bi) = -2ab i, twice */
        double real = -4.0 * 40, zero = 0;
        float small = (float)real, small_zero = 0;

        memcpy(want, dtype == PLASMON_C64 ? (void *)&small : (void *)&real, one / 2);
        memcpy(want + one / 2, dtype == PLASMON_C64 ? (void *)&small_zero : (void *)&zero,
               one / 2);
    }
    for (uint32_t i = 0; i < count; i++) {
        CLUSTER_OK(plasmon_get(client, out[i], data, (size_t)elements * one, WAIT_MS));
        for (int64_t k = 0; k < elements; k++) {
            if (memcmp(data + k * (int64_t)one, want, one) != 0) {
                test_fail(__FILE__, __LINE__, "dtype %d, op %d: result %u, element %lld",
                          (int)dtype, (int)op, i, (long long)k);
                break;
            }
        }
        CLUSTER_OK(plasmon_release(client, out[i]));
        CLUSTER_OK(plasmon_release(client, refs[i]));
    }
    free(data);
}

TEST(every_dtype_and_operation)
{
    static const plasmon_dtype_t dtypes[] = {PLASMON_F16, PLASMON_BF16, PLASMON_F32,
                                             PLASMON_F64, PLASMON_I32,  PLASMON_I64,
                                             PLASMON_C64, PLASMON_C128};
    struct plasmon_client *client         = start(4);

    for (size_t d = 0; d < PL_COUNT(dtypes); d++) {
        bool is_complex = dtypes[d] == PLASMON_C64 || dtypes[d] == PLASMON_C128;
        bool whole      = dtypes[d] == PLASMON_I32 || dtypes[d] == PLASMON_I64;

        for (int op = PLASMON_REDUCE_SUM; op <= PLASMON_REDUCE_AVG; op++) {
            struct plasmon_shape shape = cluster_vector(dtypes[d], 8);
            struct plasmon_ref *ref, *out;
            int64_t zeros[16] = {0};

            if ((!is_complex || op <= PLASMON_REDUCE_PROD) &&
                (!whole || op != PLASMON_REDUCE_AVG)) {
                check_dtype(client, 4, dtypes[d], (plasmon_reduce_t)op, 5,
                            PLASMON_WAY_AUTO);
                check_dtype(client, 4, dtypes[d], (plasmon_reduce_t)op, 140000,
                            PLASMON_WAY_AUTO);
                continue;
            }
            CLUSTER_OK(plasmon_put(client, zeros, &shape, NULL, &ref));
            ASSERT_STATUS(
                plasmon_all_reduce(client, (plasmon_reduce_t)op, &ref, 1, NULL, &out, NULL),
                PLASMON_EDTYPE);
            CLUSTER_OK(plasmon_release(client, ref));
        }
    }
    plasmon_finish(client);
    cluster_expect_gone(GONE_MS);
}

/* Until the cluster has counted so many reductions by NCCL, or more. */
static void expect_by_nccl(struct plasmon_client *client, unsigned long long parts)
{
    static const char route[] = "{\"route\":\"nccl\",\"copies\":";
    uint64_t until_ns         = pl_now_ns() + WAIT_MS * UINT64_C(1000000);
    unsigned long long seen   = 0;

    while (seen < parts) {
        const char *at;
        char *text;

        CLUSTER_OK(plasmon_status_json(client, &text));
        at   = strstr(text, route);
        seen = at != NULL ? strtoull(at + sizeof(route) - 1, NULL, 10) : 0;
        free(text);
        if (pl_now_ns() > until_ns) {
            test_fail(__FILE__, __LINE__, "%llu of %llu parts went by NCCL", seen, parts);
        }
    }
}

/*
 * Element k of member i is 1000000 i + k: its parts are summed, one a device; then all are gathered
 * on each.
 */
static void check_parts(struct plasmon_client *client, uint32_t count)
{
    enum { PART = 3001, COUNT = 4 };
    struct plasmon_collective_options how = PLASMON_COLLECTIVE_INIT;
    struct plasmon_shape shape = cluster_vector(PLASMON_I64, (int64_t)count * PART);
    int64_t elements           = (int64_t)count * PART;
    int64_t *data = malloc((size_t)(elements * (int64_t)count) * sizeof(int64_t));
    struct plasmon_ref *refs[COUNT], *sums[COUNT], *all[COUNT];

    ASSERT_TRUE(data != NULL);
    for (uint32_t i = 0; i < count; i++) {
        struct plasmon_put_options put = PLASMON_PUT_INIT;

        put.device = (int)i;
        for (int64_t k = 0; k < elements; k++) {
            data[k] = (int64_t)i * 1000000 + k;
        }
        CLUSTER_OK(plasmon_put(client, data, &shape, &put, &refs[i]));
    }
    how.way = PLASMON_WAY_NCCL;
    CLUSTER_OK(
        plasmon_reduce_scatter(client, PLASMON_REDUCE_SUM, refs, count, &how, sums, NULL));
    CLUSTER_OK(plasmon_all_gather(client, refs, count, &how, all, NULL));
    for (uint32_t i = 0; i < count; i++) {
        int64_t base = 1000000 * (int64_t)(count * (count - 1) / 2);

        CLUSTER_OK(plasmon_get(client, sums[i], data, PART * sizeof(int64_t), WAIT_MS));
        for (int64_t k = 0; k < PART; k++) {
            ASSERT_EQ(data[k], base + (int64_t)count * ((int64_t)i * PART + k));
        }
        CLUSTER_OK(plasmon_get(client, all[i], data,
                               (size_t)elements * count * sizeof(int64_t), WAIT_MS));
        for (int64_t k = 0; k < elements * (int64_t)count; k++) {
            ASSERT_EQ(data[k], k / elements * 1000000 + k % elements);
        }
        CLUSTER_OK(plasmon_release(client, refs[i]));
        CLUSTER_OK(plasmon_release(client, sums[i]));
        CLUSTER_OK(plasmon_release(client, all[i]));
    }
    free(data);
}

/* Each device has one part of each, by one communicator of all. */
static void check_together(uint32_t count)
{
    static const plasmon_dtype_t dtypes[] = {PLASMON_F32, PLASMON_I64, PLASMON_F64,
                                             PLASMON_I32,
#ifdef COLLECTIVES_OF_GPUS
                                             PLASMON_F16, PLASMON_BF16
#endif
    };
    struct plasmon_client *client = start(count);

    for (size_t d = 0; d < PL_COUNT(dtypes); d++) {
        bool whole = dtypes[d] == PLASMON_I32 || dtypes[d] == PLASMON_I64;

        for (int op = PLASMON_REDUCE_SUM; op <= PLASMON_REDUCE_AVG; op++) {
            bool some = d == 0 || op == 1 + (int)(d % 4); /* of f32 all */

            if (some && (!whole || op != PLASMON_REDUCE_AVG)) {
                check_dtype(client, count, dtypes[d], (plasmon_reduce_t)op,
                            op == PLASMON_REDUCE_MIN ? 1 : 140003, PLASMON_WAY_NCCL);
            }
        }
    }
    check_parts(client, count);
    expect_by_nccl(client, count); /* on a slow machine a team may be taken for stuck */
    plasmon_finish(client);
    cluster_expect_gone(GONE_MS);
}

TEST(two_devices_reduce_together_by_nccl)
{
    check_together(2);
}

TEST(four_devices_reduce_together_by_nccl)
{
    check_together(4);
}

/* ---------------------------------------------------------------------- views, in place */

/* Row i of a matrix, from column 3 on, with steps. */
static struct plasmon_ref *row_view(struct plasmon_client *client, struct plasmon_ref *ref,
                                    int64_t row, int64_t count, int64_t step)
{
    int64_t start[] = {row, 3}, counts[] = {1, count}, steps[] = {1, step};
    struct plasmon_ref *view;

    CLUSTER_OK(plasmon_view(client, ref, start, counts, steps, &view));
    return view;
}

static void check_views(struct plasmon_client *client, int64_t columns, int64_t step)
{
    enum { COUNT = 3, ROWS = 4 };
    struct plasmon_shape shape                = {PLASMON_F32, 2, {ROWS, columns}};
    struct set set                            = set_make(client, 3, COUNT, shape);
    struct plasmon_collective_options options = PLASMON_COLLECTIVE_INIT;
    struct plasmon_ref *in[COUNT], *out[COUNT];
    int64_t count = (columns - 3) / step;

    for (uint32_t i = 0; i < COUNT; i++) { /* row i of member i, to row 3 - i of it */
        in[i]  = row_view(client, set.refs[i], i, count, step);
        out[i] = row_view(client, set.refs[i], 3 - i, count, step);
    }
    options.into = out;
    CLUSTER_OK(
        plasmon_all_reduce(client, PLASMON_REDUCE_SUM, in, COUNT, &options, NULL, NULL));
    for (int64_t k = 0; k < count; k++) {
        float x[COUNT], sum;

        for (uint32_t i = 0; i < COUNT; i++) {
            x[i] = set.data[i][i * columns + 3 + k * step];
        }
        sum = fold(PLASMON_REDUCE_SUM, x, COUNT);
        for (uint32_t i = 0; i < COUNT; i++) {
            set.data[i][(3 - i) * columns + 3 + k * step] = sum;
        }
    }
    for (uint32_t i = 0; i < COUNT; i++) {
        expect(&set, set.refs[i], set.data[i], set.elements, "views", i);
        CLUSTER_OK(plasmon_release(client, in[i]));
        CLUSTER_OK(plasmon_release(client, out[i]));
    }
    set_finish(&set);
}

TEST(members_and_results_may_be_views)
{
    struct plasmon_client *client = start(3);

    for (int64_t step = 1; step <= 3; step++) {
        check_views(client, 40, step);
        check_views(client, 300000, step);
    }
    plasmon_finish(client);
    cluster_expect_gone(GONE_MS);
}

static void check_in_place(struct plasmon_client *client, int64_t elements, bool held)
{
    enum { COUNT = 4 };
    struct set set = set_make(client, 4, COUNT, cluster_vector(PLASMON_F32, elements));
    struct plasmon_collective_options options = PLASMON_COLLECTIVE_INIT;
    struct plasmon_ref *before[COUNT];
    float *want = malloc((size_t)elements * sizeof(float));

    ASSERT_TRUE(want != NULL);
    for (int64_t i = 0; i < elements; i++) {
        want[i] = reduced(&set, PLASMON_REDUCE_AVG, i);
    }
    for (uint32_t i = 0; held && i < COUNT; i++) {
        CLUSTER_OK(plasmon_snapshot(client, set.refs[i], &before[i]));
    }
    options.into = set.refs;
    CLUSTER_OK(plasmon_all_reduce(client, PLASMON_REDUCE_AVG, set.refs, COUNT, &options,
                                  NULL, NULL));
    for (uint32_t i = 0; i < COUNT; i++) {
        expect(&set, set.refs[i], want, elements, "in place", i);
    }
    for (uint32_t i = 0; held && i < COUNT; i++) { /* what was is still there */
        expect(&set, before[i], set.data[i], elements, "before", i);
        CLUSTER_OK(plasmon_release(client, before[i]));
    }
    set_finish(&set);
    free(want);
}

TEST(results_may_take_the_place_of_the_members)
{
    struct plasmon_client *client = start(4);

    check_in_place(client, 50, false);
    check_in_place(client, 50, true);
    check_in_place(client, 400001, false);
    check_in_place(client, 400001, true);
    plasmon_finish(client);
    cluster_expect_gone(GONE_MS);
}

/*
 * All members are read before any result is written: gather into arrays of which the members are
 * parts, and rotate parts among them.
 */
TEST(members_may_be_parts_of_results)
{
    enum { COUNT = 4, PART = 30 };
    struct plasmon_client *client = start(4);
    struct set set = set_make(client, 4, COUNT, cluster_vector(PLASMON_F32, COUNT * PART));
    struct plasmon_collective_options options = PLASMON_COLLECTIVE_INIT;
    struct plasmon_ref *part[COUNT];
    float want[COUNT * PART];

    for (uint32_t i = 0; i < COUNT; i++) {
        int64_t start = i * PART, count = PART;

        CLUSTER_OK(plasmon_view(client, set.refs[i], &start, &count, NULL, &part[i]));
        memcpy(want + start, set.data[i] + start, sizeof(float) * PART);
    }
    options.into = set.refs;
    CLUSTER_OK(plasmon_all_gather(client, part, COUNT, &options, NULL, NULL));
    for (uint32_t i = 0; i < COUNT; i++) {
        expect(&set, set.refs[i], want, COUNT * PART, "gather in place", i);
    }
    options.into = part; /* part i of array i becomes part 3 of array 3, ... */
    CLUSTER_OK(plasmon_broadcast(client, part[3], COUNT, &options, NULL, NULL));
    for (uint32_t i = 0; i < COUNT; i++) {
        float own[COUNT * PART];

        memcpy(own, want, sizeof(own));
        memcpy(own + i * PART, want + 3 * PART, sizeof(float) * PART);
        expect(&set, set.refs[i], own, COUNT * PART, "broadcast to a part", i);
        CLUSTER_OK(plasmon_release(client, part[i]));
    }
    set_finish(&set);
    plasmon_finish(client);
    cluster_expect_gone(GONE_MS);
}

/* ----------------------------------------------------------------------------- failures */

TEST(a_member_that_fails_fails_every_result)
{
    enum { COUNT = 3 };
    struct plasmon_client *client = start(3);
    struct plasmon_ref *refs[COUNT], *out[COUNT], *task;
    struct plasmon_call call  = PLASMON_CALL_INIT;
    struct plasmon_arg args[] = {{.mode = PLASMON_OUT}, {.mode = PLASMON_IN}};

    refs[0] = cluster_put(client, 300000, 1, 0);
    refs[1] = cluster_put(client, 300000, 2, 1);
    cluster_spin(client, refs[0], 50000, 0, &task);
    /* Cancelled while it waits behind the spin: known late, and before it runs. */
    args[1].ref    = refs[0];
    call.function  = "copy";
    call.args      = args;
    call.arg_count = 2;
    call.label     = "doomed";
    call.device    = 0;
    CLUSTER_OK(plasmon_submit(client, &call, &refs[2], NULL));
    CLUSTER_OK(
        plasmon_all_reduce(client, PLASMON_REDUCE_SUM, refs, COUNT, NULL, out, NULL));
    CLUSTER_OK(plasmon_cancel(client, refs[2]));
    ASSERT_STATUS(plasmon_wait(client, &refs[2], 1, 1, WAIT_MS, NULL, NULL), PLASMON_OK);
    if (plasmon_state(client, refs[2]) == PLASMON_ECANCELLED) {
        for (uint32_t i = 0; i < COUNT; i++) {
            CLUSTER_OK(plasmon_wait(client, &out[i], 1, 1, WAIT_MS, NULL, NULL));
            ASSERT_STATUS(plasmon_state(client, out[i]), PLASMON_EDEPENDENCY);
            ASSERT_TRUE(strstr(plasmon_error(client), "doomed") != NULL);
            CLUSTER_OK(plasmon_release(client, out[i]));
        }
        /* Known before: the same. */
        CLUSTER_OK(plasmon_all_gather(client, refs, COUNT, NULL, out, NULL));
        for (uint32_t i = 0; i < COUNT; i++) {
            CLUSTER_OK(plasmon_wait(client, &out[i], 1, 1, WAIT_MS, NULL, NULL));
            ASSERT_STATUS(plasmon_state(client, out[i]), PLASMON_EDEPENDENCY);
        }
    }
    /* What the failure took with it is only that. */
    {
        struct plasmon_ref *good[] = {refs[0], refs[1]};
        struct plasmon_ref *sum[2];

        CLUSTER_OK(
            plasmon_all_reduce(client, PLASMON_REDUCE_SUM, good, 2, NULL, sum, NULL));
        cluster_expect_ramp(client, sum[0], 300000, 3, 2);
        cluster_expect_ramp(client, sum[1], 300000, 3, 2);
    }
    plasmon_finish(client);
    cluster_expect_gone(GONE_MS);
}

TEST(cancelling_one_result_cancels_all)
{
    enum { COUNT = 3 };
    struct plasmon_client *client = start(3);
    struct plasmon_ref *refs[COUNT], *out[COUNT];
    plasmon_status_t first;

    for (int i = 0; i < COUNT; i++) {
        refs[i] = cluster_put(client, 300000, (float)i, i);
    }
    cluster_spin(client, refs[1], 300000, 1, NULL);
    CLUSTER_OK(
        plasmon_all_reduce(client, PLASMON_REDUCE_SUM, refs, COUNT, NULL, out, NULL));
    CLUSTER_OK(plasmon_cancel(client, out[2]));
    CLUSTER_OK(plasmon_wait(client, out, COUNT, COUNT, WAIT_MS, NULL, NULL));
    first = plasmon_state(client, out[0]);
    ASSERT_TRUE(first == PLASMON_OK || first == PLASMON_ECANCELLED);
    for (int i = 1; i < COUNT; i++) {
        ASSERT_STATUS(plasmon_state(client, out[i]), first);
    }
    cluster_expect_ramp(client, refs[0], 300000, 0, 1);
    plasmon_finish(client);
    cluster_expect_gone(GONE_MS);
}

static void expect_refused(plasmon_status_t got, plasmon_status_t want,
                           struct plasmon_client *client, const char *text)
{
    if (got != want || strstr(plasmon_error(client), text) == NULL) {
        test_fail(__FILE__, __LINE__, "status %s with \"%s\", expected %s with \"%s\"",
                  plasmon_status_name(got), plasmon_error(client),
                  plasmon_status_name(want), text);
    }
}

TEST(wrong_calls_say_what_is_wrong)
{
    struct plasmon_client *client             = start(2);
    struct plasmon_shape u8                   = cluster_vector(PLASMON_U8, 8);
    struct plasmon_collective_options options = PLASMON_COLLECTIVE_INIT;
    struct plasmon_ref *a = cluster_put(client, 8, 0, 0), *b = cluster_put(client, 8, 0, 1);
    struct plasmon_ref *longer = cluster_put(client, 9, 0, 0), *bytes, *task, *gone;
    struct plasmon_ref *pair[] = {a, b}, *uneven[] = {a, longer}, *mixed[2], *out[65];
    struct plasmon_ref *twice[] = {a, a}, *odd[] = {longer, longer}, *many[65];
    struct plasmon_graph *graph;
    int devices[] = {0, -3}, nowhere[] = {0, 77};
    uint8_t data[8] = {0};

    CLUSTER_OK(plasmon_put(client, data, &u8, NULL, &bytes));
    mixed[0] = a;
    mixed[1] = bytes;
    for (int i = 0; i < 65; i++) {
        many[i] = a;
    }
    expect_refused(plasmon_all_reduce(client, PLASMON_REDUCE_SUM, NULL, 2, NULL, out, NULL),
                   PLASMON_EINVAL, client, "no refs");
    expect_refused(plasmon_all_reduce(client, PLASMON_REDUCE_SUM, pair, 0, NULL, out, NULL),
                   PLASMON_EINVAL, client, "no refs");
    expect_refused(plasmon_all_gather(client, many, 65, NULL, out, NULL), PLASMON_ELIMIT,
                   client, "65");
    expect_refused(
        plasmon_all_reduce(client, (plasmon_reduce_t)6, pair, 2, NULL, out, NULL),
        PLASMON_EINVAL, client, "op 6");
    expect_refused(
        plasmon_all_reduce(client, PLASMON_REDUCE_SUM, uneven, 2, NULL, out, NULL),
        PLASMON_ESHAPE, client, "refs[1]");
    expect_refused(
        plasmon_all_reduce(client, PLASMON_REDUCE_SUM, mixed, 2, NULL, out, NULL),
        PLASMON_EDTYPE, client, "refs[1]");
    expect_refused(
        plasmon_all_reduce(client, PLASMON_REDUCE_SUM, &bytes, 1, NULL, out, NULL),
        PLASMON_EDTYPE, client, "cast");
    expect_refused(plasmon_reduce(client, PLASMON_REDUCE_SUM, pair, 2, 2, NULL, out, NULL),
                   PLASMON_EINVAL, client, "root is 2");
    expect_refused(
        plasmon_all_reduce(client, PLASMON_REDUCE_SUM, pair, 2, NULL, NULL, NULL),
        PLASMON_EINVAL, client, "out_refs is NULL");
    expect_refused(plasmon_broadcast(client, a, 2, NULL, out, NULL), PLASMON_EINVAL, client,
                   "to where");
    expect_refused(plasmon_broadcast(client, a, 0, NULL, out, NULL), PLASMON_EINVAL, client,
                   "count is 0");
    expect_refused(
        plasmon_reduce_scatter(client, PLASMON_REDUCE_SUM, odd, 2, NULL, out, NULL),
        PLASMON_ESHAPE, client, "no multiple of 2");
    options.devices = devices;
    expect_refused(plasmon_broadcast(client, a, 2, &options, out, NULL), PLASMON_EINVAL,
                   client, "devices[1] is -3");
    options.devices = NULL;
    options.into    = twice;
    expect_refused(plasmon_all_gather(client, &a, 1, &options, NULL, NULL), PLASMON_OK,
                   client, "");
    expect_refused(
        plasmon_all_reduce(client, PLASMON_REDUCE_SUM, pair, 2, &options, NULL, NULL),
        PLASMON_EINVAL, client, "overlap");
    expect_refused(plasmon_all_gather(client, pair, 2, &options, NULL, NULL),
                   PLASMON_ESHAPE, client, "into[0]");
    options.into = NULL;
    options.way  = 5;
    expect_refused(
        plasmon_all_reduce(client, PLASMON_REDUCE_SUM, pair, 2, &options, out, NULL),
        PLASMON_EINVAL, client, "options.way is 5");
    options.size = 3;
    expect_refused(plasmon_all_gather(client, pair, 2, &options, NULL, NULL),
                   PLASMON_EINVAL, client, "PLASMON_COLLECTIVE_INIT");
    options = (struct plasmon_collective_options)PLASMON_COLLECTIVE_INIT;

    CLUSTER_OK(plasmon_all_gather(client, pair, 2, NULL, out, &task));
    pair[1] = task;
    expect_refused(plasmon_all_gather(client, pair, 2, NULL, out, NULL), PLASMON_EINVAL,
                   client, "no bytes");
    gone = cluster_put(client, 8, 0, 1);
    CLUSTER_OK(plasmon_release(client, gone));
    pair[1] = gone;
    expect_refused(plasmon_all_gather(client, pair, 2, NULL, out, NULL), PLASMON_ERELEASED,
                   client, "refs[1]");
    CLUSTER_OK(plasmon_graph_begin(client, &graph));
    expect_refused(plasmon_all_gather(client, twice, 2, NULL, out, NULL), PLASMON_EGRAPH,
                   client, "cannot be a part of a graph");
    CLUSTER_OK(plasmon_graph_release(client, graph));

    /* What only the head knows fails the results. */
    options.devices = nowhere;
    CLUSTER_OK(plasmon_broadcast(client, a, 2, &options, out, NULL));
    for (int i = 0; i < 2; i++) {
        CLUSTER_OK(plasmon_wait(client, &out[i], 1, 1, WAIT_MS, NULL, NULL));
        expect_refused(plasmon_state(client, out[i]), PLASMON_EINVAL, client,
                       "no device 77");
    }
    plasmon_finish(client);
    cluster_expect_gone(GONE_MS);
}

/* ------------------------------------------------------------------------------- deaths */

/*
 * Sums of sums: after `rounds` each element is what it was times their count to the power of them,
 * modulo 2^64.
 */
static void check_deaths(bool in_place, int count)
{
    enum { COUNT = 4, ROUNDS = 16, ELEMENTS = 100003 };
    struct plasmon_client *client             = start((uint32_t)count);
    struct plasmon_shape shape                = cluster_vector(PLASMON_I64, ELEMENTS);
    struct plasmon_collective_options options = PLASMON_COLLECTIVE_INIT;
    struct plasmon_ref *refs[COUNT], *out[COUNT];
    int64_t *data   = malloc(sizeof(int64_t) * ELEMENTS);
    uint64_t factor = (uint64_t)(count * (count - 1) / 2); /* 0 + 1 + .. */

    ASSERT_TRUE(data != NULL);
    for (int i = 0; i < count; i++) {
        struct plasmon_put_options put = PLASMON_PUT_INIT;

        put.device    = i;
        put.donatable = 1;
        for (int64_t k = 0; k < ELEMENTS; k++) {
            data[k] = i * (k + 1);
        }
        CLUSTER_OK(plasmon_put(client, data, &shape, &put, &refs[i]));
    }
    options.into = in_place ? refs : NULL;
    for (int round = 0; round < ROUNDS; round++) {
        factor *= round > 0 ? (uint64_t)count : 1;
        options.way = (uint32_t)round % 5;
        CLUSTER_OK(plasmon_all_reduce(client, PLASMON_REDUCE_SUM, refs, (uint32_t)count,
                                      &options, out, NULL));
        CLUSTER_OK(plasmon_flush(client));
        for (int i = 0; !in_place && i < count; i++) {
            CLUSTER_OK(plasmon_release(client, refs[i]));
            refs[i] = out[i];
        }
        if (round % 5 == 2) {
            cluster_kill(cluster_worker(client, (int)(noise() % (uint32_t)count)));
        }
    }
    for (int i = 0; i < count; i++) {
        CLUSTER_OK(plasmon_get(client, refs[i], data, sizeof(int64_t) * ELEMENTS, WAIT_MS));
        for (int64_t k = 0; k < ELEMENTS; k++) {
            if ((uint64_t)data[k] != factor * (uint64_t)(k + 1)) {
                test_fail(__FILE__, __LINE__,
                          "result %d, element %lld is %llu, expected %llu", i, (long long)k,
                          (unsigned long long)data[k],
                          (unsigned long long)(factor * (uint64_t)(k + 1)));
                break;
            }
        }
    }
    free(data);
    plasmon_finish(client);
}

TEST(workers_die_in_the_middle_and_nothing_is_lost)
{
    check_deaths(false, 4);
    check_deaths(true, 4);
    cluster_expect_gone(GONE_MS);
}

TEST(workers_die_in_the_middle_and_nothing_is_lost_on_two_devices)
{
    check_deaths(false, 2);
    cluster_expect_gone(GONE_MS);
}

TEST_MAIN()
