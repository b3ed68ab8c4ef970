/*
 * ML: an ensemble of two classifiers on the same rows. Ridge regression standardises the features,
 * multiplies, and takes a softmax; naive Bayes multiplies, normalises in logarithms, and takes a
 * softmax; the larger sum of both wins. Ten kernels, two branches.
 */
#include "bench/graphs/ml_reference.h"
#include "bench/graphs/text.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"

#define FEATURES   200
#define CLASSES    10
#define LEVELS     10 /* X has integers below this */
#define ROWS_STATS 5u /* rows of threads: 50 of four features each */
#define SLOT_SHIFT 12 /* graphs_parallel() cuts no finer than 4096 */

static const struct graphs_kernel kernels[] = {
    {"ml_stats",
     "ml_stats(out f32[2,f] stats, in f32[n,f] x, inout f64[2,f] sums, inout u32[1] "
     "ticket, i64 n, i64 f)"},
    {"ml_standardise",
     "ml_standardise(out f32[n,f] z, in f32[n,f] x, in f32[2,f] stats, i64 n, i64 f)"},
    {"ml_product10",
     "ml_product10(out f32[n,10] r, in f32[n,f] x, in f32[10,f] weights, in "
     "f32[10] bias, i64 n, i64 f)"},
    {"ml_softmax", "ml_softmax(inout f32[n,c] r, i64 n, i64 c)"},
    {"ml_row_max", "ml_row_max(out f32[n] most, in f32[n,c] r, i64 n, i64 c)"},
    {"ml_row_lse",
     "ml_row_lse(out f32[n] lse, in f32[n,c] r, in f32[n] most, i64 n, i64 c)"},
    {"ml_exp", "ml_exp(inout f32[n,c] r, in f32[n] lse, i64 n, i64 c)"},
    {"ml_argmax",
     "ml_argmax(out i32[n] best, in f32[n,c] r1, in f32[n,c] r2, i64 n, i64 c)"},
};

/* ------------------------------------------------------------------------------- inputs */

static void fill_levels(void *user, int64_t begin, int64_t end)
{
    const struct graphs_graph *graph = user;
    float *x                         = graphs_data(graph, 0);

    for (int64_t i = begin; i < end; i++) {
        x[i] = (float)(graphs_random(graph->seed, (uint64_t)i) % LEVELS);
    }
}

/* ---------------------------------------------------------------------------- reference */

struct reference {
    int64_t n;
    const float *x, *coefficient, *intercept, *likelihood, *prior;
    double mean[FEATURES], by[FEATURES];
    double *sums; /* [slot][2][FEATURES] */
    struct graphs_expect r1, r2, best;
};

static void sum_rows(void *user, int64_t begin, int64_t end)
{
    const struct reference *reference = user;
    double *sum = &reference->sums[(begin >> SLOT_SHIFT) * 2 * FEATURES];

    for (int64_t i = begin; i < end; i++) {
        for (int64_t j = 0; j < FEATURES; j++) {
            double value = (double)reference->x[i * FEATURES + j];

            sum[j] += value;
            sum[FEATURES + j] += value * value;
        }
    }
}

static void compute_stats(struct reference *reference)
{
    int64_t slots = (reference->n >> SLOT_SHIFT) + 1, n = reference->n;

    reference->sums = bench_must_alloc((size_t)slots * 2 * FEATURES * sizeof(double));
    graphs_parallel(n, sum_rows, reference);
    for (int64_t j = 0; j < FEATURES; j++) {
        double sum = 0, squares = 0;

        for (int64_t i = 0; i < slots; i++) {
            sum += reference->sums[i * 2 * FEATURES + j];
            squares += reference->sums[(i * 2 + 1) * FEATURES + j];
        }
        reference->mean[j] = sum / (double)n;
        reference->by[j] =
            1 / sqrt(squares / (double)n - reference->mean[j] * reference->mean[j]);
    }
    pl_free(reference->sums);
}

static void classify(const struct reference *reference, int64_t row, double r1[CLASSES],
                     double r2[CLASSES])
{
    const float *x = &reference->x[row * FEATURES];

    for (int64_t c = 0; c < CLASSES; c++) {
        r1[c] = (double)reference->prior[c];
        r2[c] = (double)reference->intercept[c];
        for (int64_t j = 0; j < FEATURES; j++) {
            double value = (double)x[j];

            r1[c] += value * (double)reference->likelihood[c * FEATURES + j];
            r2[c] += (value - reference->mean[j]) * reference->by[j] *
                     (double)reference->coefficient[c * FEATURES + j];
        }
    }
    graphs_ml_softmax(r1, CLASSES); /* exp(r - log(sum(exp(r)))) is one */
    graphs_ml_softmax(r1, CLASSES);
    graphs_ml_softmax(r2, CLASSES);
}

static void best_rows(void *user, int64_t begin, int64_t end)
{
    const struct reference *reference = user;
    double r1[CLASSES], r2[CLASSES];

    for (int64_t i = begin; i < end; i++) {
        classify(reference, (int64_t)graphs_expect_at(&reference->best, (uint64_t)i), r1,
                 r2);
        reference->best.want[i] = graphs_ml_winner(
            r1, r2, CLASSES, 2 * (reference->r1.absolute + reference->r2.absolute));
    }
}

static void score_elements(void *user, int64_t begin, int64_t end)
{
    const struct reference *reference = user;
    double r1[CLASSES], r2[CLASSES];
    int64_t last = -1;

    for (int64_t i = begin; i < end; i++) {
        int64_t at = (int64_t)graphs_expect_at(&reference->r1, (uint64_t)i); /* r2's too */

        if (at / CLASSES != last) {
            last = at / CLASSES;
            classify(reference, last, r1, r2);
        }
        reference->r1.want[i] = r1[at % CLASSES];
        reference->r2.want[i] = r2[at % CLASSES];
    }
}

/*
 * Bounds. A score of naive Bayes is a sum of 200 products of together -4800; fp32 leaves about
 * 0.005 of it uncertain, and the two softmaxes bring that down to a fifth of a quarter. Ridge
 * regression's scores are a few units, so a few 1e-6 each.
 */
static void expect_scores(struct graphs_graph *graph, struct reference *reference,
                          uint32_t r1, uint32_t r2, uint32_t best)
{
    compute_stats(reference);
    reference->r1 = *graphs_expect(graph, r1, 1e-3, 0);
    reference->r2 = *graphs_expect(graph, r2, 2e-5, 0);
    graphs_parallel((int64_t)reference->r1.count, score_elements, reference);
    reference->best = *graphs_expect(graph, best, 0, 0);
    graphs_parallel((int64_t)reference->best.count, best_rows, reference);
}

/* -------------------------------------------------------------------------------- graph */

static uint32_t rows_of(struct graphs_graph *graph, enum graphs_role role, int64_t columns)
{
    return graphs_array(graph, role, PLASMON_F32, columns > 1 ? 2 : 1, graph->n, columns,
                        0);
}

static void build(struct graphs_graph *graph)
{
    const int64_t n = graph->n, f = FEATURES, c = CLASSES;
    const struct graphs_launch product = graphs_blocks(n, 128, 128);
    const struct graphs_launch rows    = graphs_blocks(n, 256, 256);
    struct graphs_launch features      = graphs_loop(n * f / 16, f / 4 * ROWS_STATS);
    uint32_t x                         = graphs_input(graph, PLASMON_F32, 2, n, f, 0);
    uint32_t coefficient               = graphs_input(graph, PLASMON_F32, 2, c, f, 0);
    uint32_t intercept                 = graphs_input(graph, PLASMON_F32, 1, c, 0, 0);
    uint32_t likelihood                = graphs_input(graph, PLASMON_F32, 2, c, f, 0);
    uint32_t prior                     = graphs_input(graph, PLASMON_F32, 1, c, 0, 0);
    uint32_t stats  = graphs_array(graph, GRAPHS_TEMP, PLASMON_F32, 2, 2, f, 0);
    uint32_t sums   = graphs_array(graph, GRAPHS_STATE, PLASMON_F64, 2, 2, f, 0);
    uint32_t ticket = graphs_array(graph, GRAPHS_STATE, PLASMON_U32, 1, 1, 0, 0);
    uint32_t z      = rows_of(graph, GRAPHS_TEMP, f);
    uint32_t r1     = rows_of(graph, GRAPHS_OUTPUT, c);
    uint32_t r2     = rows_of(graph, GRAPHS_OUTPUT, c);
    uint32_t most   = rows_of(graph, GRAPHS_TEMP, 1);
    uint32_t lse    = rows_of(graph, GRAPHS_TEMP, 1);
    uint32_t best   = graphs_array(graph, GRAPHS_OUTPUT, PLASMON_I32, 1, n, 0, 0);
    struct reference *reference = bench_must_alloc(sizeof(*reference));
    uint32_t s_bayes, s_best;

    features.block[0]     = f / 4;
    features.block[1]     = ROWS_STATS;
    features.shared_bytes = ROWS_STATS * 2 * FEATURES * (uint32_t)sizeof(float);
    graphs_parallel(n * f, fill_levels, graph);
    graphs_fill_uniform(graph, coefficient, 1, -0.1, 0.1);
    graphs_fill_uniform(graph, intercept, 2, -0.5, 0.5);
    graphs_ml_fill_log_likelihood(graph, likelihood, c, f);
    for (int64_t i = 0; i < c; i++) {
        ((float *)graphs_data(graph, prior))[i] = (float)log(1.0 / CLASSES);
    }

    /* Ridge regression reads and writes more, so its branch starts. */
    (void)GRAPHS_STEP(graph, "ml_stats", features, 0, GRAPHS_A(stats), GRAPHS_A(x),
                      GRAPHS_A(sums), GRAPHS_A(ticket), GRAPHS_I(n), GRAPHS_I(f));
    (void)GRAPHS_STEP(graph, "ml_product10", product, 1, GRAPHS_A(r1), GRAPHS_A(x),
                      GRAPHS_A(likelihood), GRAPHS_A(prior), GRAPHS_I(n), GRAPHS_I(f));
    features.shared_bytes = 0;
    (void)GRAPHS_STEP(graph, "ml_standardise", features, 0, GRAPHS_A(z), GRAPHS_A(x),
                      GRAPHS_A(stats), GRAPHS_I(n), GRAPHS_I(f));
    (void)GRAPHS_STEP(graph, "ml_row_max", rows, 1, GRAPHS_A(most), GRAPHS_A(r1),
                      GRAPHS_I(n), GRAPHS_I(c));
    (void)GRAPHS_STEP(graph, "ml_product10", product, 0, GRAPHS_A(r2), GRAPHS_A(z),
                      GRAPHS_A(coefficient), GRAPHS_A(intercept), GRAPHS_I(n), GRAPHS_I(f));
    (void)GRAPHS_STEP(graph, "ml_row_lse", rows, 1, GRAPHS_A(lse), GRAPHS_A(r1),
                      GRAPHS_A(most), GRAPHS_I(n), GRAPHS_I(c));
    (void)GRAPHS_STEP(graph, "ml_exp", rows, 1, GRAPHS_A(r1), GRAPHS_A(lse), GRAPHS_I(n),
                      GRAPHS_I(c));
    s_bayes =
        GRAPHS_STEP(graph, "ml_softmax", rows, 1, GRAPHS_A(r1), GRAPHS_I(n), GRAPHS_I(c));
    (void)GRAPHS_STEP(graph, "ml_softmax", rows, 0, GRAPHS_A(r2), GRAPHS_I(n), GRAPHS_I(c));
    s_best = GRAPHS_STEP(graph, "ml_argmax", rows, 0, GRAPHS_A(best), GRAPHS_A(r1),
                         GRAPHS_A(r2), GRAPHS_I(n), GRAPHS_I(c));
    graphs_after(graph, s_best, s_bayes);

    reference->n           = n;
    reference->x           = graphs_data(graph, x);
    reference->coefficient = graphs_data(graph, coefficient);
    reference->intercept   = graphs_data(graph, intercept);
    reference->likelihood  = graphs_data(graph, likelihood);
    reference->prior       = graphs_data(graph, prior);
    expect_scores(graph, reference, r1, r2, best);
    pl_free(reference);
}

const struct graphs_definition graphs_ml = {
    .title        = "ML",
    .option       = "ml",
    .cuda_text    = graphs_text_ml_cu,
    .c_text       = graphs_text_ml_cpu,
    .kernels      = kernels,
    .kernel_count = PL_COUNT(kernels),
    .size         = {3000, 200000, 1600000, 8000000},
    .published    = 1.25,
    .build        = build,
};
