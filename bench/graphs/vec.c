/* VEC: x1 = x^2, y1 = y^2, res = sum(x1 - y1). Three kernels, the first two independent. */
#include "bench/graphs/graph.h"
#include "bench/graphs/text.h"

#include "base/alloc.h"

static const struct graphs_kernel kernels[] = {
    {"vec_square", "vec_square(out f32[n] y, in f32[n] x, i64 n)"},
    {"vec_diff_sum",
     "vec_diff_sum(out f32[1] res, in f32[n] a, in f32[n] b, scratch f32[1056] "
     "partial, inout u32[1] ticket, i64 n)"},
};

struct sums {
    const float *x, *y;
    int64_t pieces;
    double *sum, *size; /* a piece each: of the terms, of their absolute values */
};

static void sum_pieces(void *user, int64_t begin, int64_t end)
{
    const struct sums *sums = user;

    for (int64_t i = begin; i < end; i++) {
        double a = (double)sums->x[i] * (double)sums->x[i];
        double b = (double)sums->y[i] * (double)sums->y[i];

        sums->sum[begin >> 12] += a - b;
        sums->size[begin >> 12] += a + b;
    }
}

/*
 * The bound: a term is rounded three times; a piece of a few thousand terms is summed one by one,
 * which leaves errors like a walk of that many steps of 6e-8: about 4e-6 of the piece, in each
 * direction as often.
 */
static void expect_sum(struct graphs_graph *graph, uint32_t x, uint32_t y, uint32_t res)
{
    int64_t slots    = (graph->n >> 12) + 1;
    struct sums sums = {.x    = graphs_data(graph, x),
                        .y    = graphs_data(graph, y),
                        .sum  = bench_must_alloc((size_t)slots * sizeof(double)),
                        .size = bench_must_alloc((size_t)slots * sizeof(double))};
    double sum = 0, size = 0;

    graphs_parallel(graph->n, sum_pieces, &sums);
    for (int64_t i = 0; i < slots; i++) {
        sum += sums.sum[i];
        size += sums.size[i];
    }
    graphs_expect(graph, res, size * 1e-6, 0)->want[0] = sum;
    pl_free(sums.sum);
    pl_free(sums.size);
}

static void build(struct graphs_graph *graph)
{
    int64_t n                    = graph->n;
    struct graphs_launch squares = graphs_blocks(n, 4 * 4 * 256, 256);
    struct graphs_launch sum     = graphs_loop(n / 16, 256);
    uint32_t x                   = graphs_input(graph, PLASMON_F32, 1, n, 0, 0);
    uint32_t y                   = graphs_input(graph, PLASMON_F32, 1, n, 0, 0);
    uint32_t x1  = graphs_array(graph, GRAPHS_TEMP, PLASMON_F32, 1, n, 0, 0);
    uint32_t y1  = graphs_array(graph, GRAPHS_TEMP, PLASMON_F32, 1, n, 0, 0);
    uint32_t res = graphs_array(graph, GRAPHS_OUTPUT, PLASMON_F32, 1, 1, 0, 0);
    uint32_t partial =
        graphs_array(graph, GRAPHS_SCRATCH, PLASMON_F32, 1, GRAPHS_LOOP_BLOCKS, 0, 0);
    uint32_t ticket = graphs_array(graph, GRAPHS_STATE, PLASMON_U32, 1, 1, 0, 0);
    uint32_t second, third;

    /* Random, not 1 / (i + 1): there a wrong last half would not show. */
    graphs_fill_uniform(graph, x, 0, -1, 1);
    graphs_fill_uniform(graph, y, 1, -1, 2);

    (void)GRAPHS_STEP(graph, "vec_square", squares, 0, GRAPHS_A(x1), GRAPHS_A(x),
                      GRAPHS_I(n));
    second = GRAPHS_STEP(graph, "vec_square", squares, 1, GRAPHS_A(y1), GRAPHS_A(y),
                         GRAPHS_I(n));
    third  = GRAPHS_STEP(graph, "vec_diff_sum", sum, 0, GRAPHS_A(res), GRAPHS_A(x1),
                         GRAPHS_A(y1), GRAPHS_A(partial), GRAPHS_A(ticket), GRAPHS_I(n));
    graphs_after(graph, third, second);
    expect_sum(graph, x, y, res);
}

const struct graphs_definition graphs_vec = {
    .title        = "VEC",
    .option       = "vec",
    .cuda_text    = graphs_text_vec_cu,
    .c_text       = graphs_text_vec_cpu,
    .kernels      = kernels,
    .kernel_count = PL_COUNT(kernels),
    .size         = {100000, 20000000, 250000000, 950000000},
    .published    = 2.55,
    .build        = build,
};
