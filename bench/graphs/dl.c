/*
 * DL: two branches of convolution, pooling, convolution; then both together through a dense layer
 * to one number. Eight kernels.
 */
#include "bench/graphs/graph.h"
#include "bench/graphs/text.h"

#include <math.h>

#include "base/alloc.h"

#define FIRST  8  /* planes after the first convolution */
#define SECOND 16 /* after the second */
#define POOL   5

static const struct graphs_kernel kernels[] = {
    {"dl_conv1",
     "dl_conv1(out f32[8,m,m] y, in f32[2*m,2*m] x, in f32[8,9] weights, i64 m)"},
    {"dl_pool", "dl_pool(out f32[8,m,m] y, in f32[8,5*m,5*m] x, i64 m)"},
    {"dl_conv2",
     "dl_conv2(out f32[16,m,m] y, in f32[8,2*m,2*m] x, in f32[16,8,9] weights, i64 "
     "m)"},
    {"dl_concat",
     "dl_concat(out f32[32,m,m] y, in f32[16,m,m] a, in f32[16,m,m] b, i64 m)"},
    {"dl_dense", "dl_dense(out f32[1] y, in f32[32,m,m] x, in f32[32,m,m] weights, scratch "
                 "f32[1056] partial, inout u32[1] ticket, i64 m)"},
};

struct branch {
    uint32_t image, weight1, weight2, conv1, pool, conv2;
};

/* ---------------------------------------------------------------------------- reference */

/* In fp64 from the picture to the pooled planes, which are kept; the rest is small. */
struct reference {
    int64_t m1, m2, m3; /* sides after conv1, pool, conv2 */
    const float *image, *weight1, *weight2, *dense;
    double *pooled; /* [FIRST][m2][m2] */
    double *value,
        *size; /* [SECOND][m3][m3]: terms of the dense layer, and their absolute values */
};

/* `inside`: no tap lies beyond the border, and none is asked for it. */
static inline double conv1_at(const struct reference *reference, int64_t plane, int64_t row,
                              int64_t column, bool inside)
{
    const int64_t n     = 2 * reference->m1;
    const float *weight = &reference->weight1[plane * 9];
    double sum          = 0;

    for (int64_t k = 0; k < 9; k++) {
        int64_t y = 2 * row + k / 3 - 1, x = 2 * column + k % 3 - 1;

        if (inside || (y >= 0 && x >= 0)) { /* below n, as row and column are below n / 2 */
            sum += (double)weight[k] * (double)reference->image[y * n + x];
        }
    }
    return fmax(sum, 0);
}

static double pool_at(const struct reference *reference, int64_t plane, int64_t row,
                      int64_t column)
{
    bool inside = row > 0 && column > 0;
    double sum  = 0;

    for (int64_t k = 0; k < POOL * POOL; k++) {
        sum += conv1_at(reference, plane, POOL * row + k / POOL, POOL * column + k % POOL,
                        inside);
    }
    return sum / (POOL * POOL);
}

static void pool_elements(void *user, int64_t begin, int64_t end)
{
    const struct reference *reference = user;
    int64_t m                         = reference->m2;

    for (int64_t i = begin; i < end; i++) {
        reference->pooled[i] = pool_at(reference, i / (m * m), i / m % m, i % m);
    }
}

static void conv2_elements(void *user, int64_t begin, int64_t end)
{
    const struct reference *reference = user;
    int64_t m = reference->m3, n = reference->m2;

    for (int64_t i = begin; i < end; i++) {
        int64_t plane = i / (m * m), row = i / m % m, column = i % m;
        double sum = 0;

        for (int64_t k = 0; k < FIRST * 9; k++) {
            int64_t from = k / 9, y = 2 * row + k % 9 / 3 - 1, x = 2 * column + k % 3 - 1;

            if (y >= 0 && x >= 0) {
                sum += (double)reference->weight2[plane * FIRST * 9 + k] *
                       reference->pooled[(from * n + y) * n + x];
            }
        }
        reference->value[i] = fmax(sum, 0) * (double)reference->dense[i];
        reference->size[i]  = fabs(reference->value[i]);
    }
}

/* The terms are good to a few 1e-6 of their size each, and errors are as often up as down. */
static void expect_answer(struct graphs_graph *graph, const struct branch branch[2],
                          uint32_t dense, uint32_t out)
{
    int64_t n                  = graph->n;
    struct reference reference = {.m1 = n / 2, .m2 = n / 10, .m3 = n / 20};
    int64_t pooled             = FIRST * reference.m2 * reference.m2;
    int64_t count              = SECOND * reference.m3 * reference.m3;
    double sum = 0, size = 0;

    reference.pooled = graphs_must_map((uint64_t)pooled * sizeof(double));
    reference.value  = graphs_must_map((uint64_t)count * sizeof(double));
    reference.size   = graphs_must_map((uint64_t)count * sizeof(double));
    for (int i = 0; i < 2; i++) {
        reference.image   = graphs_data(graph, branch[i].image);
        reference.weight1 = graphs_data(graph, branch[i].weight1);
        reference.weight2 = graphs_data(graph, branch[i].weight2);
        reference.dense   = (const float *)graphs_data(graph, dense) + i * count;
        graphs_parallel(pooled, pool_elements, &reference);
        graphs_parallel(count, conv2_elements, &reference);
        for (int64_t j = 0; j < count; j++) {
            sum += reference.value[j];
            size += reference.size[j];
        }
    }
    graphs_expect(graph, out, 1e-6 * size, 0)->want[0] = sum;
    graphs_unmap(reference.pooled, (uint64_t)pooled * sizeof(double));
    graphs_unmap(reference.value, (uint64_t)count * sizeof(double));
    graphs_unmap(reference.size, (uint64_t)count * sizeof(double));
}

/* -------------------------------------------------------------------------------- graph */

static struct branch make_branch(struct graphs_graph *graph, uint64_t salt)
{
    int64_t m1 = graph->n / 2, m2 = graph->n / 10, m3 = graph->n / 20;
    struct branch branch = {
        .image   = graphs_input(graph, PLASMON_F32, 2, graph->n, graph->n, 0),
        .weight1 = graphs_input(graph, PLASMON_F32, 2, FIRST, 9, 0),
        .weight2 = graphs_input(graph, PLASMON_F32, 3, SECOND, FIRST, 9),
        .conv1   = graphs_array(graph, GRAPHS_TEMP, PLASMON_F32, 3, FIRST, m1, m1),
        .pool    = graphs_array(graph, GRAPHS_TEMP, PLASMON_F32, 3, FIRST, m2, m2),
        .conv2   = graphs_array(graph, GRAPHS_TEMP, PLASMON_F32, 3, SECOND, m3, m3),
    };

    graphs_fill_uniform(graph, branch.image, salt, -1, 1);
    graphs_fill_uniform(graph, branch.weight1, salt + 1, -1, 1);
    graphs_fill_uniform(graph, branch.weight2, salt + 2, -1, 1);
    return branch;
}

static uint32_t add_branch(struct graphs_graph *graph, const struct branch *branch,
                           uint32_t stream)
{
    int64_t m1 = graph->n / 2, m2 = graph->n / 10, m3 = graph->n / 20;
    struct graphs_launch pool = graphs_tiles(m2, m2, 32, 8, 1, 1);

    pool.grid[2] = FIRST;
    (void)GRAPHS_STEP(graph, "dl_conv1", graphs_tiles(m1, m1, 32, 8, 2, 1), stream,
                      GRAPHS_A(branch->conv1), GRAPHS_A(branch->image),
                      GRAPHS_A(branch->weight1), GRAPHS_I(m1));
    (void)GRAPHS_STEP(graph, "dl_pool", pool, stream, GRAPHS_A(branch->pool),
                      GRAPHS_A(branch->conv1), GRAPHS_I(m2));
    return GRAPHS_STEP(graph, "dl_conv2", graphs_tiles(m3, m3, 32, 4, 1, 1), stream,
                       GRAPHS_A(branch->conv2), GRAPHS_A(branch->pool),
                       GRAPHS_A(branch->weight2), GRAPHS_I(m3));
}

static void build(struct graphs_graph *graph)
{
    int64_t m = graph->n / 20, planes = 2 * SECOND;
    struct branch branch[2]  = {make_branch(graph, 0), make_branch(graph, 3)};
    struct graphs_launch dot = graphs_loop(planes * m * m / 4, 256);
    uint32_t dense           = graphs_input(graph, PLASMON_F32, 3, planes, m, m);
    uint32_t both = graphs_array(graph, GRAPHS_TEMP, PLASMON_F32, 3, planes, m, m);
    uint32_t out  = graphs_array(graph, GRAPHS_OUTPUT, PLASMON_F32, 1, 1, 0, 0);
    uint32_t partial =
        graphs_array(graph, GRAPHS_SCRATCH, PLASMON_F32, 1, GRAPHS_LOOP_BLOCKS, 0, 0);
    uint32_t ticket = graphs_array(graph, GRAPHS_STATE, PLASMON_U32, 1, 1, 0, 0);
    uint32_t s_second, s_concat;

    graphs_fill_uniform(graph, dense, 6, -1, 1);
    (void)add_branch(graph, &branch[0], 0);
    s_second = add_branch(graph, &branch[1], 1);
    s_concat = GRAPHS_STEP(graph, "dl_concat", graphs_blocks(planes * m * m, 4 * 256, 256),
                           0, GRAPHS_A(both), GRAPHS_A(branch[0].conv2),
                           GRAPHS_A(branch[1].conv2), GRAPHS_I(m));
    graphs_after(graph, s_concat, s_second);
    (void)GRAPHS_STEP(graph, "dl_dense", dot, 0, GRAPHS_A(out), GRAPHS_A(both),
                      GRAPHS_A(dense), GRAPHS_A(partial), GRAPHS_A(ticket), GRAPHS_I(m));
    expect_answer(graph, branch, dense, out);
}

const struct graphs_definition graphs_dl = {
    .title        = "DL",
    .option       = "dl",
    .cuda_text    = graphs_text_dl_cu,
    .c_text       = graphs_text_dl_cpu,
    .kernels      = kernels,
    .kernel_count = PL_COUNT(kernels),
    .size         = {400, 3000, 12000, 22000},
    .published    = 1.17,
    .build        = build,
};
