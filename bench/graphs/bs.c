/* B&S: ten independent batches of option prices in fp64. */
#include "bench/graphs/graph.h"
#include "bench/graphs/text.h"

#include <math.h>

#define BATCHES    10u
#define RATE       0.08
#define VOLATILITY 0.3
#define YEARS      1.0
#define STRIKE     60.0

static const struct graphs_kernel kernels[] = {
    {"bs_price", "bs_price(out f64[n] price, in f64[n] x, i64 n, f64 rate, f64 volatility, "
                 "f64 years, f64 strike)"},
};

static long double normal_cdf(long double x)
{
    return 0.5L * erfcl(-x * 0.70710678118654752440L);
}

static double price(double x)
{
    long double spread = VOLATILITY * sqrtl(YEARS);
    long double d1 =
        (logl(x / STRIKE) + (RATE + 0.5L * VOLATILITY * VOLATILITY) * YEARS) / spread;

    return (double)(x * normal_cdf(d1) -
                    STRIKE * expl(-RATE * YEARS) * normal_cdf(d1 - spread));
}

struct prices {
    const double *x;
    const struct graphs_expect *expect;
};

static void price_pieces(void *user, int64_t begin, int64_t end)
{
    const struct prices *prices = user;

    for (int64_t i = begin; i < end; i++) {
        prices->expect->want[i] =
            price(prices->x[graphs_expect_at(prices->expect, (uint64_t)i)]);
    }
}

static void build(struct graphs_graph *graph)
{
    int64_t n = graph->n;

    for (uint32_t i = 0; i < BATCHES; i++) {
        uint32_t x   = graphs_input(graph, PLASMON_F64, 1, n, 0, 0);
        uint32_t out = graphs_array(graph, GRAPHS_OUTPUT, PLASMON_F64, 1, n, 0, 0);
        struct prices prices;

        graphs_fill_uniform(graph, x, i, 59.5, 60.5);
        (void)GRAPHS_STEP(graph, "bs_price", graphs_blocks(n, 256, 256), i, GRAPHS_A(out),
                          GRAPHS_A(x), GRAPHS_I(n), GRAPHS_D(RATE), GRAPHS_D(VOLATILITY),
                          GRAPHS_D(YEARS), GRAPHS_D(STRIKE));
        /* Two terms of about 40 each, a few units in their last place. */
        prices.expect = graphs_expect(graph, out, 1e-12, 0);
        prices.x      = graphs_data(graph, x);
        graphs_parallel((int64_t)prices.expect->count, price_pieces, &prices);
    }
}

const struct graphs_definition graphs_bs = {
    .title        = "B&S",
    .option       = "bs",
    .cuda_text    = graphs_text_bs_cu,
    .c_text       = graphs_text_bs_cpu,
    .kernels      = kernels,
    .kernel_count = PL_COUNT(kernels),
    .size         = {10000, 2000000, 10000000, 35000000},
    .published    = 2.79,
    .build        = build,
};
