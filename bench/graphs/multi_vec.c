/*
 * VEC and B&S for several devices: arrays in equal parts, a chain of kernels (VEC) or one kernel
 * (B&S) for each, and nothing between parts. What is made of one part should stay where the part
 * is.
 */
#include "bench/graphs/graph.h"
#include "bench/graphs/text.h"

#include <math.h>

#include "base/alloc.h"

#define VEC_PARTS  16u
#define BS_PARTS   24u
#define RATE       0.08
#define VOLATILITY 0.3
#define YEARS      1.0
#define STRIKE     60.0

/* ---------------------------------------------------------------------------------- VEC */

static const struct graphs_kernel vec_kernels[] = {
    {"part_centred", "part_centred(out f32[n] y, i64 n, i64 first, i64 seed)"},
    {"vec_square", "vec_square(out f32[n] y, in f32[n] x, i64 n)"},
    {"vec_diff_sum",
     "vec_diff_sum(out f32[1] res, in f32[n] a, in f32[n] b, scratch f32[1056] "
     "partial, inout u32[1] ticket, i64 n)"},
};

struct sums {
    int64_t first;
    uint64_t seed[2];
    double *sum, *size; /* a piece each */
};

static void sum_pieces(void *user, int64_t begin, int64_t end)
{
    const struct sums *sums = user;

    for (int64_t i = begin; i < end; i++) {
        double x = 2 * graphs_uniform24(sums->seed[0], (uint64_t)(sums->first + i)) - 1;
        double y = 2 * graphs_uniform24(sums->seed[1], (uint64_t)(sums->first + i)) - 1;

        sums->sum[begin >> 12] += x * x - y * y;
        sums->size[begin >> 12] += x * x + y * y;
    }
}

/* The bound is vec.c's. */
static void expect_sums(struct graphs_graph *graph, uint32_t res, const uint64_t seed[2])
{
    int64_t n    = graph->n / VEC_PARTS;
    size_t slots = (size_t)(n >> 12) + 1;
    double *want = bench_must_alloc(VEC_PARTS * sizeof(double)), largest = 0;
    struct sums sums = {.seed = {seed[0], seed[1]}};

    for (uint32_t part = 0; part < VEC_PARTS; part++) {
        double size = 0;

        sums.first = n * part;
        sums.sum   = bench_must_alloc(slots * sizeof(double));
        sums.size  = bench_must_alloc(slots * sizeof(double));
        graphs_parallel(n, sum_pieces, &sums);
        for (size_t i = 0; i < slots; i++) {
            want[part] += sums.sum[i];
            size += sums.size[i];
        }
        largest = fmax(largest, size);
        pl_free(sums.sum);
        pl_free(sums.size);
    }
    memcpy(graphs_expect(graph, res, 1e-6 * largest, 0)->want, want,
           VEC_PARTS * sizeof(double));
    pl_free(want);
}

static uint32_t split(struct graphs_graph *graph, enum graphs_role role,
                      plasmon_dtype_t dtype, int64_t elements, uint32_t parts)
{
    uint32_t array = graphs_array(graph, role, dtype, 1, elements, 0, 0);

    graphs_split(graph, array, parts);
    return array;
}

static void build_vec(struct graphs_graph *graph)
{
    const int64_t n                    = graph->n / VEC_PARTS;
    const struct graphs_launch squares = graphs_blocks(n, 4 * 4 * 256, 256);
    const struct graphs_launch loop    = graphs_loop(n / 16, 256);
    uint64_t seed[2]                   = {graphs_random(graph->seed, 0) & GRAPHS_SEED_MASK,
                                          graphs_random(graph->seed, 1) & GRAPHS_SEED_MASK};
    uint32_t input[2], square[2], res, partial, ticket;

    for (size_t i = 0; i < 2; i++) {
        input[i]  = split(graph, GRAPHS_MADE, PLASMON_F32, graph->n, VEC_PARTS);
        square[i] = split(graph, GRAPHS_TEMP, PLASMON_F32, graph->n, VEC_PARTS);
    }
    res     = split(graph, GRAPHS_OUTPUT, PLASMON_F32, VEC_PARTS, VEC_PARTS);
    partial = split(graph, GRAPHS_SCRATCH, PLASMON_F32, VEC_PARTS * GRAPHS_LOOP_BLOCKS,
                    VEC_PARTS);
    ticket  = split(graph, GRAPHS_STATE, PLASMON_U32, VEC_PARTS, VEC_PARTS);
    for (uint32_t part = 0; part < VEC_PARTS; part++) {
        for (size_t i = 0; i < 2; i++) {
            graphs_place(graph,
                         GRAPHS_STEP(graph, "part_centred", loop, 0,
                                     GRAPHS_P(input[i], part), GRAPHS_I(n),
                                     GRAPHS_I(n * part), GRAPHS_I((int64_t)seed[i])),
                         part);
        }
    }
    graph->init_steps = (uint32_t)graph->steps.count;
    for (uint32_t part = 0; part < VEC_PARTS; part++) {
        for (size_t i = 0; i < 2; i++) {
            graphs_place(graph,
                         GRAPHS_STEP(graph, "vec_square", squares, 0,
                                     GRAPHS_P(square[i], part), GRAPHS_P(input[i], part),
                                     GRAPHS_I(n)),
                         part);
        }
        graphs_place(graph,
                     GRAPHS_STEP(graph, "vec_diff_sum", loop, 0, GRAPHS_P(res, part),
                                 GRAPHS_P(square[0], part), GRAPHS_P(square[1], part),
                                 GRAPHS_P(partial, part), GRAPHS_P(ticket, part),
                                 GRAPHS_I(n)),
                     part);
    }
    expect_sums(graph, res, seed);
}

const struct graphs_definition graphs_multi_vec = {
    .title        = "VEC",
    .option       = "vec",
    .cuda_text    = graphs_text_multi_vec_cu,
    .c_text       = graphs_text_multi_vec_cpu,
    .kernels      = vec_kernels,
    .kernel_count = PL_COUNT(vec_kernels),
    .size         = {16 * 4096, 160000000, 950000000, 950000000},
    .build        = build_vec,
};

/* ---------------------------------------------------------------------------------- B&S */

static const struct graphs_kernel bs_kernels[] = {
    {"part_prices", "part_prices(out f64[n] y, i64 n, i64 first, i64 seed)"},
    {"bs_price", "bs_price(out f64[n] price, in f64[n] x, i64 n, f64 rate, f64 volatility, "
                 "f64 years, f64 strike)"},
};

static long double normal_cdf(long double x)
{
    return 0.5L * erfcl(-x * 0.70710678118654752440L);
}

struct prices {
    uint64_t seed;
    const struct graphs_expect *expect;
};

static void price_pieces(void *user, int64_t begin, int64_t end)
{
    const struct prices *prices = user;
    const long double spread    = VOLATILITY * sqrtl(YEARS);

    for (int64_t i = begin; i < end; i++) {
        uint64_t at   = graphs_expect_at(prices->expect, (uint64_t)i);
        long double x = 59.5L + graphs_uniform24(prices->seed, at);
        long double d =
            (logl(x / STRIKE) + (RATE + 0.5L * VOLATILITY * VOLATILITY) * YEARS) / spread;

        prices->expect->want[i] =
            (double)(x * normal_cdf(d) -
                     STRIKE * expl(-RATE * YEARS) * normal_cdf(d - spread));
    }
}

static void build_bs(struct graphs_graph *graph)
{
    const int64_t n      = graph->n;
    uint32_t x           = split(graph, GRAPHS_MADE, PLASMON_F64, n * BS_PARTS, BS_PARTS);
    uint32_t out         = split(graph, GRAPHS_OUTPUT, PLASMON_F64, n * BS_PARTS, BS_PARTS);
    struct prices prices = {.seed = graph->seed};

    for (uint32_t part = 0; part < BS_PARTS; part++) {
        graphs_place(graph,
                     GRAPHS_STEP(graph, "part_prices", graphs_loop(n, 256), 0,
                                 GRAPHS_P(x, part), GRAPHS_I(n), GRAPHS_I(n * part),
                                 GRAPHS_I((int64_t)graph->seed)),
                     part);
    }
    graph->init_steps = (uint32_t)graph->steps.count;
    for (uint32_t part = 0; part < BS_PARTS; part++) {
        graphs_place(graph,
                     GRAPHS_STEP(graph, "bs_price", graphs_blocks(n, 256, 256), 0,
                                 GRAPHS_P(out, part), GRAPHS_P(x, part), GRAPHS_I(n),
                                 GRAPHS_D(RATE), GRAPHS_D(VOLATILITY), GRAPHS_D(YEARS),
                                 GRAPHS_D(STRIKE)),
                     part);
    }
    prices.expect = graphs_expect(graph, out, 1e-12, 0);
    graphs_parallel((int64_t)prices.expect->count, price_pieces, &prices);
}

const struct graphs_definition graphs_multi_bs = {
    .title        = "B&S",
    .option       = "bs",
    .cuda_text    = graphs_text_multi_bs_cu,
    .c_text       = graphs_text_multi_bs_cpu,
    .kernels      = bs_kernels,
    .kernel_count = PL_COUNT(bs_kernels),
    .size         = {1000, 5000000, 35000000, 35000000}, /* a part */
    .build        = build_bs,
};
