/*
 * ML for several devices: rows in 16 parts, 1024 features, 16 classes. Five kernels a part; between
 * them the features' figures of all parts become those of the whole; the tail of naive Bayes wants
 * all rows on one device. 86 kernels.
 */
#include "bench/graphs/ml_reference.h"
#include "bench/graphs/text.h"

#include <math.h>

#include "base/alloc.h"

#define PARTS        16u
#define CLASSES      16
#define LEVELS       10
#define FEATURES_MAX 1024

static const struct graphs_kernel kernels[] = {
    {"part_levels", "part_levels(out f32[n,f] y, i64 n, i64 f, i64 first, i64 seed)"},
    {"ml_stats",
     "ml_stats(out f32[2,f] stats, in f32[n,f] x, inout f64[2,f] sums, inout u32[1] "
     "ticket, i64 n, i64 f)"},
    {"ml_combine",
     "ml_combine(out f32[2,f] stats, in f32[2*parts,f] all, i64 parts, i64 f)"},
    {"ml_standardise",
     "ml_standardise(out f32[n,f] z, in f32[n,f] x, in f32[2,f] stats, i64 n, i64 f)"},
    {"ml_product16",
     "ml_product16(out f32[n,16] r, in f32[n,f] x, in f32[16,f] weights, in "
     "f32[16] bias, i64 n, i64 f)"},
    {"ml_softmax", "ml_softmax(inout f32[n,c] r, i64 n, i64 c)"},
    {"ml_row_max", "ml_row_max(out f32[n] most, in f32[n,c] r, i64 n, i64 c)"},
    {"ml_row_lse",
     "ml_row_lse(out f32[n] lse, in f32[n,c] r, in f32[n] most, i64 n, i64 c)"},
    {"ml_exp", "ml_exp(inout f32[n,c] r, in f32[n] lse, i64 n, i64 c)"},
    {"ml_argmax",
     "ml_argmax(out i32[n] best, in f32[n,c] r1, in f32[n,c] r2, i64 n, i64 c)"},
};

struct ml {
    int64_t f;
    uint32_t x, z, stats, combined, sums, ticket, r1, r2, most, lse, best;
    uint32_t coefficient, intercept, likelihood, prior;
};

/* ---------------------------------------------------------------------------- reference */

struct reference {
    const struct graphs_graph *graph;
    const struct ml *ml;
    double mean[FEATURES_MAX], by[FEATURES_MAX];
    double *sums; /* [slot][2][f] */
    struct graphs_expect best;
    double margin;
};

static double level(const struct reference *reference, int64_t row, int64_t column)
{
    return (double)(graphs_random(reference->graph->seed,
                                  (uint64_t)(row * reference->ml->f + column)) %
                    LEVELS);
}

static void sum_rows(void *user, int64_t begin, int64_t end)
{
    const struct reference *reference = user;
    int64_t f                         = reference->ml->f;
    double *sum                       = &reference->sums[(begin >> 12) * 2 * f];

    for (int64_t i = begin; i < end; i++) {
        for (int64_t j = 0; j < f; j++) {
            double value = level(reference, i, j);

            sum[j] += value;
            sum[f + j] += value * value;
        }
    }
}

static void compute_stats(struct reference *reference)
{
    int64_t n = reference->graph->n, f = reference->ml->f, slots = (n >> 12) + 1;

    reference->sums = bench_must_alloc((size_t)(slots * 2 * f) * sizeof(double));
    graphs_parallel(n, sum_rows, reference);
    for (int64_t j = 0; j < f; j++) {
        double sum = 0, squares = 0;

        for (int64_t i = 0; i < slots; i++) {
            sum += reference->sums[i * 2 * f + j];
            squares += reference->sums[(i * 2 + 1) * f + j];
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
    const struct graphs_graph *graph = reference->graph;
    const struct ml *ml              = reference->ml;
    const float *coefficient         = graphs_data(graph, ml->coefficient);
    const float *likelihood          = graphs_data(graph, ml->likelihood);

    for (int64_t c = 0; c < CLASSES; c++) {
        r1[c] = (double)((const float *)graphs_data(graph, ml->prior))[c];
        r2[c] = (double)((const float *)graphs_data(graph, ml->intercept))[c];
        for (int64_t j = 0; j < ml->f; j++) {
            double value = level(reference, row, j);

            r1[c] += value * (double)likelihood[c * ml->f + j];
            r2[c] += (value - reference->mean[j]) * reference->by[j] *
                     (double)coefficient[c * ml->f + j];
        }
    }
    graphs_ml_softmax(r1, CLASSES); /* exp(r - log(sum(exp(r)))) is one */
    graphs_ml_softmax(r1, CLASSES);
    graphs_ml_softmax(r2, CLASSES);
}

/* The winner of each sampled row, or NaN where rounding may decide it. */
static void best_rows(void *user, int64_t begin, int64_t end)
{
    const struct reference *reference = user;
    double r1[CLASSES], r2[CLASSES];

    for (int64_t i = begin; i < end; i++) {
        classify(reference, (int64_t)graphs_expect_at(&reference->best, (uint64_t)i), r1,
                 r2);
        reference->best.want[i] = graphs_ml_winner(r1, r2, CLASSES, reference->margin);
    }
}

/*
 * Scores of naive Bayes are sums of f products of together -4.5 f log f: about 5e-6 of that is open
 * in fp32, a fifth of it after two softmaxes.
 */
static void expect_best(struct graphs_graph *graph, const struct ml *ml)
{
    struct reference *reference = bench_must_alloc(sizeof(*reference));
    uint64_t step               = graph->n > 50000 ? ((uint64_t)graph->n / 20000) | 1 : 1;

    reference->graph  = graph;
    reference->ml     = ml;
    reference->margin = 1e-6 * 4.5 * (double)ml->f * log((double)ml->f);
    compute_stats(reference);
    reference->best = *graphs_expect_every(graph, ml->best, step, 0, 0);
    graphs_parallel((int64_t)reference->best.count, best_rows, reference);
    pl_free(reference);
}

/* ------------------------------------------------------------------------------- inputs */

static uint32_t rows_of(struct graphs_graph *graph, enum graphs_role role, int64_t columns)
{
    uint32_t array =
        graphs_array(graph, role, PLASMON_F32, columns > 1 ? 2 : 1, graph->n, columns, 0);

    graphs_split(graph, array, PARTS);
    return array;
}

static struct ml make_arrays(struct graphs_graph *graph)
{
    struct ml ml = {.f = graph->n < 100000 ? 64 : FEATURES_MAX};

    ml.x           = rows_of(graph, GRAPHS_MADE, ml.f);
    ml.z           = rows_of(graph, GRAPHS_TEMP, ml.f);
    ml.r1          = rows_of(graph, GRAPHS_TEMP, CLASSES);
    ml.r2          = rows_of(graph, GRAPHS_TEMP, CLASSES);
    ml.stats       = graphs_array(graph, GRAPHS_TEMP, PLASMON_F32, 2, 2 * PARTS, ml.f, 0);
    ml.sums        = graphs_array(graph, GRAPHS_STATE, PLASMON_F64, 2, 2 * PARTS, ml.f, 0);
    ml.ticket      = graphs_array(graph, GRAPHS_STATE, PLASMON_U32, 1, PARTS, 0, 0);
    ml.combined    = graphs_array(graph, GRAPHS_TEMP, PLASMON_F32, 2, 2, ml.f, 0);
    ml.most        = graphs_array(graph, GRAPHS_TEMP, PLASMON_F32, 1, graph->n, 0, 0);
    ml.lse         = graphs_array(graph, GRAPHS_TEMP, PLASMON_F32, 1, graph->n, 0, 0);
    ml.best        = graphs_array(graph, GRAPHS_OUTPUT, PLASMON_I32, 1, graph->n, 0, 0);
    ml.coefficient = graphs_input(graph, PLASMON_F32, 2, CLASSES, ml.f, 0);
    ml.intercept   = graphs_input(graph, PLASMON_F32, 1, CLASSES, 0, 0);
    ml.likelihood  = graphs_input(graph, PLASMON_F32, 2, CLASSES, ml.f, 0);
    ml.prior       = graphs_input(graph, PLASMON_F32, 1, CLASSES, 0, 0);
    graphs_split(graph, ml.stats, PARTS);
    graphs_split(graph, ml.sums, PARTS);
    graphs_split(graph, ml.ticket, PARTS);
    graphs_fill_uniform(graph, ml.coefficient, 1, -0.05, 0.05);
    graphs_fill_uniform(graph, ml.intercept, 2, -0.5, 0.5);
    graphs_ml_fill_log_likelihood(graph, ml.likelihood, CLASSES, ml.f);
    for (int64_t i = 0; i < CLASSES; i++) {
        ((float *)graphs_data(graph, ml.prior))[i] = (float)log(1.0 / CLASSES);
    }
    return ml;
}

/* -------------------------------------------------------------------------------- graph */

static struct graphs_launch feature_rows(const struct ml *ml, int64_t n)
{
    uint32_t quads = (uint32_t)ml->f / 4, rows = 256 / quads;
    struct graphs_launch launch = graphs_loop(n * ml->f / 16, 256);

    launch.block[0] = quads;
    launch.block[1] = rows;
    return launch;
}

static void add_part_stats(struct graphs_graph *graph, const struct ml *ml, uint32_t part)
{
    int64_t n                     = graph->n / PARTS;
    struct graphs_launch features = feature_rows(ml, n);

    features.shared_bytes =
        features.block[1] * 2 * (uint32_t)ml->f * (uint32_t)sizeof(float);
    graphs_place(graph,
                 GRAPHS_STEP(graph, "ml_stats", features, 0, GRAPHS_P(ml->stats, part),
                             GRAPHS_P(ml->x, part), GRAPHS_P(ml->sums, part),
                             GRAPHS_P(ml->ticket, part), GRAPHS_I(n), GRAPHS_I(ml->f)),
                 part);
}

static void add_part_bayes(struct graphs_graph *graph, const struct ml *ml, uint32_t part)
{
    int64_t n = graph->n / PARTS;

    graphs_place(graph,
                 GRAPHS_STEP(graph, "ml_product16", graphs_blocks(n, 128, 128), 0,
                             GRAPHS_P(ml->r1, part), GRAPHS_P(ml->x, part),
                             GRAPHS_A(ml->likelihood), GRAPHS_A(ml->prior), GRAPHS_I(n),
                             GRAPHS_I(ml->f)),
                 part);
}

static void add_part_ridge(struct graphs_graph *graph, const struct ml *ml, uint32_t part)
{
    int64_t n = graph->n / PARTS;

    graphs_place(graph,
                 GRAPHS_STEP(graph, "ml_standardise", feature_rows(ml, n), 0,
                             GRAPHS_P(ml->z, part), GRAPHS_P(ml->x, part),
                             GRAPHS_A(ml->combined), GRAPHS_I(n), GRAPHS_I(ml->f)),
                 part);
    graphs_place(graph,
                 GRAPHS_STEP(graph, "ml_product16", graphs_blocks(n, 128, 128), 0,
                             GRAPHS_P(ml->r2, part), GRAPHS_P(ml->z, part),
                             GRAPHS_A(ml->coefficient), GRAPHS_A(ml->intercept),
                             GRAPHS_I(n), GRAPHS_I(ml->f)),
                 part);
    graphs_place(graph,
                 GRAPHS_STEP(graph, "ml_softmax", graphs_blocks(n, 256, 256), 0,
                             GRAPHS_P(ml->r2, part), GRAPHS_I(n), GRAPHS_I(CLASSES)),
                 part);
}

/* On the device of place 0. */
static void add_tail(struct graphs_graph *graph, const struct ml *ml)
{
    const int64_t n = graph->n, c = CLASSES;
    const struct graphs_launch rows = graphs_blocks(n, 256, 256);

    (void)GRAPHS_STEP(graph, "ml_row_max", rows, 0, GRAPHS_A(ml->most), GRAPHS_A(ml->r1),
                      GRAPHS_I(n), GRAPHS_I(c));
    (void)GRAPHS_STEP(graph, "ml_row_lse", rows, 0, GRAPHS_A(ml->lse), GRAPHS_A(ml->r1),
                      GRAPHS_A(ml->most), GRAPHS_I(n), GRAPHS_I(c));
    (void)GRAPHS_STEP(graph, "ml_exp", rows, 0, GRAPHS_A(ml->r1), GRAPHS_A(ml->lse),
                      GRAPHS_I(n), GRAPHS_I(c));
    (void)GRAPHS_STEP(graph, "ml_softmax", rows, 0, GRAPHS_A(ml->r1), GRAPHS_I(n),
                      GRAPHS_I(c));
    (void)GRAPHS_STEP(graph, "ml_argmax", rows, 0, GRAPHS_A(ml->best), GRAPHS_A(ml->r1),
                      GRAPHS_A(ml->r2), GRAPHS_I(n), GRAPHS_I(c));
}

static void build(struct graphs_graph *graph)
{
    struct ml ml = make_arrays(graph);
    int64_t n    = graph->n / PARTS;

    for (uint32_t part = 0; part < PARTS; part++) {
        graphs_place(graph,
                     GRAPHS_STEP(graph, "part_levels", graphs_loop(n * ml.f, 256), 0,
                                 GRAPHS_P(ml.x, part), GRAPHS_I(n), GRAPHS_I(ml.f),
                                 GRAPHS_I(n * part * ml.f), GRAPHS_I((int64_t)graph->seed)),
                     part);
    }
    graph->init_steps = (uint32_t)graph->steps.count;
    for (uint32_t part = 0; part < PARTS; part++) {
        add_part_stats(graph, &ml, part);
    }
    (void)GRAPHS_STEP(graph, "ml_combine", graphs_blocks(ml.f, 256, 256), 0,
                      GRAPHS_A(ml.combined), GRAPHS_A(ml.stats), GRAPHS_I(PARTS),
                      GRAPHS_I(ml.f));
    for (uint32_t part = 0; part < PARTS; part++) {
        add_part_bayes(graph, &ml, part); /* while the figures are put together */
    }
    for (uint32_t part = 0; part < PARTS; part++) {
        add_part_ridge(graph, &ml, part);
    }
    add_tail(graph, &ml);
    expect_best(graph, &ml);
}

const struct graphs_definition graphs_multi_ml = {
    .title        = "ML",
    .option       = "ml",
    .cuda_text    = graphs_text_multi_ml_cu,
    .c_text       = graphs_text_multi_ml_cpu,
    .kernels      = kernels,
    .kernel_count = PL_COUNT(kernels),
    .size         = {16 * 192, 320000, 1800000, 1800000},
    .build        = build,
};
