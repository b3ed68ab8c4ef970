/*
 * MUL and CG for several devices: a dense matrix whose rows are in parts, by a vector that everybody needs.
 *
 *   MUL  parts of x are doubled where they are, then y = A x: each part of y needs all of x. 32 kernels
 *   CG   50 iterations; the product in parts, the vectors on one device: each iteration sends p out
 *        and brings A p back. 1068 kernels
 */
#include "bench/graphs/graph.h"
#include "bench/graphs/text.h"

#include "base/alloc.h"

#define PARTS      16u
#define ITERATIONS 50

static const struct graphs_kernel kernels[] = {
    {"part_centred", "part_centred(out f32[n] y, i64 n, i64 first, i64 seed)"},
    {"dense_matrix",
     "dense_matrix(out f32[rows,n] a, i64 rows, i64 n, i64 first, i64 seed)"},
    {"dense_matvec",
     "dense_matvec(out f32[rows] y, in f32[rows,n] a, in f32[n] x, i64 rows, i64 n)"},
    {"dense_double", "dense_double(out f32[n] y, in f32[n] x, i64 n)"},
    {"cg_zero", "cg_zero(out f32[n] x, i64 n)"},
    {"cg_start",
     "cg_start(out f32[n] x, out f32[n] r, out f32[n] p, in f32[n] b, in f32[n] ax, "
     "i64 n)"},
    {"cg_dot",
     "cg_dot(out f32[1] y, in f32[n] a, in f32[n] b, scratch f32[1056] partial, inout "
     "u32[1] ticket, i64 n)"},
    {"cg_advance",
     "cg_advance(inout f32[n] x, in f32[n] p, in f32[1] rr, in f32[1] pap, i64 n, "
     "f32 sign)"},
    {"cg_direction",
     "cg_direction(inout f32[n] p, in f32[n] r, in f32[1] next, in f32[1] rr, i64 n)"},
};

/* ---------------------------------------------------------------------------- reference */

/* (A x)[row] times `scale`, for every step-th row; x is a series. */
struct product {
    int64_t n;
    uint64_t matrix_seed, vector_seed;
    double scale;
    const struct graphs_expect *expect;
};

static void product_rows(void *user, int64_t begin, int64_t end)
{
    const struct product *product = user;

    for (int64_t i = begin; i < end; i++) {
        int64_t row = (int64_t)graphs_expect_at(product->expect, (uint64_t)i);
        int64_t n   = product->n;
        double sum  = 0;

        for (int64_t column = 0; column < n; column++) {
            int64_t low = row < column ? row : column, high = row < column ? column : row;
            double u = graphs_uniform24(product->matrix_seed, (uint64_t)(low * n + high));
            float a  = (float)(2 * u - 1) / 512 + (float)(row == column ? 2 : 0);

            sum += (double)a *
                   (2 * graphs_uniform24(product->vector_seed, (uint64_t)column) - 1);
        }
        product->expect->want[i] = product->scale * sum;
    }
}

/*
 * A row's terms are random below 1/512, so their sum is a few hundredths of their number's root;
 * fp32 leaves a millionth of that open, and a millionth of the diagonal's 2. Only some rows: each
 * costs n hashes.
 */
static void expect_product(struct graphs_graph *graph, uint32_t y, uint64_t matrix_seed,
                           uint64_t vector_seed, double scale)
{
    struct product product = {.n           = graph->n,
                              .matrix_seed = matrix_seed,
                              .vector_seed = vector_seed,
                              .scale       = scale};
    uint64_t step          = graph->n > 4096 ? ((uint64_t)graph->n / 512) | 1 : 1;

    product.expect = graphs_expect_every(graph, y, step, 1e-5, 0);
    graphs_parallel((int64_t)product.expect->count, product_rows, &product);
}

/* ------------------------------------------------------------------------- common parts */

static uint32_t vector(struct graphs_graph *graph, enum graphs_role role)
{
    return graphs_array(graph, role, PLASMON_F32, 1, graph->n, 0, 0);
}

static uint32_t parted(struct graphs_graph *graph, enum graphs_role role)
{
    uint32_t array = vector(graph, role);

    graphs_split(graph, array, PARTS);
    return array;
}

static uint32_t number(struct graphs_graph *graph, enum graphs_role role)
{
    return graphs_array(graph, role, PLASMON_F32, 1, 1, 0, 0);
}

static uint32_t make_matrix(struct graphs_graph *graph, uint64_t seed)
{
    int64_t n = graph->n, rows = n / PARTS;
    uint32_t a                  = graphs_array(graph, GRAPHS_MADE, PLASMON_F32, 2, n, n, 0);
    struct graphs_launch launch = graphs_blocks(n, 4 * 256, 256);

    graphs_split(graph, a, PARTS);
    launch.grid[1] = (uint32_t)pl_min_u64((uint64_t)rows, 4096);
    for (uint32_t part = 0; part < PARTS; part++) {
        graphs_place(graph,
                     GRAPHS_STEP(graph, "dense_matrix", launch, 0, GRAPHS_P(a, part),
                                 GRAPHS_I(rows), GRAPHS_I(n), GRAPHS_I(rows * part),
                                 GRAPHS_I((int64_t)seed)),
                     part);
    }
    return a;
}

static void multiply(struct graphs_graph *graph, uint32_t y, uint32_t a, uint32_t x)
{
    int64_t n = graph->n, rows = n / PARTS;

    for (uint32_t part = 0; part < PARTS; part++) {
        graphs_place(graph,
                     GRAPHS_STEP(graph, "dense_matvec", graphs_blocks(rows, 4, 256), 0,
                                 GRAPHS_P(y, part), GRAPHS_P(a, part), GRAPHS_A(x),
                                 GRAPHS_I(rows), GRAPHS_I(n)),
                     part);
    }
}

/* ---------------------------------------------------------------------------------- MUL */

static void build_mul(struct graphs_graph *graph)
{
    const int64_t n                 = graph->n / PARTS;
    const struct graphs_launch loop = graphs_loop(n, 256);
    uint64_t seed                   = graphs_random(graph->seed, 0) & GRAPHS_SEED_MASK;
    uint32_t a                      = make_matrix(graph, graph->seed);
    uint32_t half = parted(graph, GRAPHS_MADE), x = parted(graph, GRAPHS_TEMP);
    uint32_t y = parted(graph, GRAPHS_OUTPUT);

    for (uint32_t part = 0; part < PARTS; part++) {
        graphs_place(graph,
                     GRAPHS_STEP(graph, "part_centred", loop, 0, GRAPHS_P(half, part),
                                 GRAPHS_I(n), GRAPHS_I(n * part), GRAPHS_I((int64_t)seed)),
                     part);
    }
    graph->init_steps = (uint32_t)graph->steps.count;
    for (uint32_t part = 0; part < PARTS; part++) {
        graphs_place(graph,
                     GRAPHS_STEP(graph, "dense_double", loop, 0, GRAPHS_P(x, part),
                                 GRAPHS_P(half, part), GRAPHS_I(n)),
                     part);
    }
    multiply(graph, y, a, x);
    expect_product(graph, y, graph->seed, seed, 2);
}

const struct graphs_definition graphs_multi_mul = {
    .title        = "MUL",
    .option       = "mul",
    .cuda_text    = graphs_text_multi_dense_cu,
    .c_text       = graphs_text_multi_dense_cpu,
    .kernels      = kernels,
    .kernel_count = PL_COUNT(kernels),
    .size         = {512, 20480, 60000, 60000},
    .build        = build_mul,
};

/* ----------------------------------------------------------------------------------- CG */

struct cg {
    uint32_t a, x, r, p, ap, zero, rr[2], pap, partial, ticket;
    struct graphs_launch each, dot;
};

static void add_dot(struct graphs_graph *graph, const struct cg *cg, uint32_t out,
                    uint32_t a, uint32_t b)
{
    (void)GRAPHS_STEP(graph, "cg_dot", cg->dot, 0, GRAPHS_A(out), GRAPHS_A(a), GRAPHS_A(b),
                      GRAPHS_A(cg->partial), GRAPHS_A(cg->ticket), GRAPHS_I(graph->n));
}

static void add_iteration(struct graphs_graph *graph, const struct cg *cg, int iteration)
{
    uint32_t rr = cg->rr[iteration % 2], next = cg->rr[(iteration + 1) % 2];
    int64_t n = graph->n;

    multiply(graph, cg->ap, cg->a, cg->p);
    add_dot(graph, cg, cg->pap, cg->p, cg->ap);
    (void)GRAPHS_STEP(graph, "cg_advance", cg->each, 0, GRAPHS_A(cg->x), GRAPHS_A(cg->p),
                      GRAPHS_A(rr), GRAPHS_A(cg->pap), GRAPHS_I(n), GRAPHS_F(1));
    (void)GRAPHS_STEP(graph, "cg_advance", cg->each, 0, GRAPHS_A(cg->r), GRAPHS_A(cg->ap),
                      GRAPHS_A(rr), GRAPHS_A(cg->pap), GRAPHS_I(n), GRAPHS_F(-1));
    add_dot(graph, cg, next, cg->r, cg->r);
    (void)GRAPHS_STEP(graph, "cg_direction", cg->each, 0, GRAPHS_A(cg->p), GRAPHS_A(cg->r),
                      GRAPHS_A(next), GRAPHS_A(rr), GRAPHS_I(n));
}

/*
 * b = A times a series; after 50 iterations x is the series again. b itself is held against fp64 in
 * some rows.
 */
static void build_cg(struct graphs_graph *graph)
{
    int64_t n       = graph->n;
    uint64_t seed   = graphs_random(graph->seed, 0) & GRAPHS_SEED_MASK;
    struct cg cg    = {.each = graphs_blocks(n, 256, 256), .dot = graphs_loop(n, 256)};
    uint32_t wanted = vector(graph, GRAPHS_MADE), b = parted(graph, GRAPHS_MADE);
    struct graphs_expect *expect;

    cg.a     = make_matrix(graph, graph->seed);
    cg.x     = vector(graph, GRAPHS_OUTPUT);
    cg.r     = vector(graph, GRAPHS_TEMP);
    cg.p     = vector(graph, GRAPHS_TEMP);
    cg.ap    = parted(graph, GRAPHS_TEMP);
    cg.zero  = vector(graph, GRAPHS_MADE);
    cg.rr[0] = number(graph, GRAPHS_TEMP);
    cg.rr[1] = number(graph, GRAPHS_TEMP);
    cg.pap   = number(graph, GRAPHS_TEMP);
    cg.partial =
        graphs_array(graph, GRAPHS_SCRATCH, PLASMON_F32, 1, GRAPHS_LOOP_BLOCKS, 0, 0);
    cg.ticket = graphs_array(graph, GRAPHS_STATE, PLASMON_U32, 1, 1, 0, 0);

    (void)GRAPHS_STEP(graph, "part_centred", graphs_loop(n, 256), 0, GRAPHS_A(wanted),
                      GRAPHS_I(n), GRAPHS_I(0), GRAPHS_I((int64_t)seed));
    (void)GRAPHS_STEP(graph, "cg_zero", cg.each, 0, GRAPHS_A(cg.zero), GRAPHS_I(n));
    multiply(graph, b, cg.a, wanted);
    graph->init_steps = (uint32_t)graph->steps.count;

    multiply(graph, cg.ap, cg.a, cg.zero);
    (void)GRAPHS_STEP(graph, "cg_start", cg.each, 0, GRAPHS_A(cg.x), GRAPHS_A(cg.r),
                      GRAPHS_A(cg.p), GRAPHS_A(b), GRAPHS_A(cg.ap), GRAPHS_I(n));
    add_dot(graph, &cg, cg.rr[0], cg.r, cg.r);
    for (int i = 0; i < ITERATIONS; i++) {
        add_iteration(graph, &cg, i);
    }
    expect_product(graph, b, graph->seed, seed, 1);
    expect = graphs_expect_every(graph, cg.x, 1, 1e-4, 0);
    for (uint64_t i = 0; i < expect->count; i++) {
        expect->want[i] = 2 * graphs_uniform24(seed, i) - 1;
    }
}

const struct graphs_definition graphs_multi_cg = {
    .title        = "CG",
    .option       = "cg",
    .cuda_text    = graphs_text_multi_dense_cu,
    .c_text       = graphs_text_multi_dense_cpu,
    .kernels      = kernels,
    .kernel_count = PL_COUNT(kernels),
    .size         = {512, 20480, 60000, 60000},
    .build        = build_cg,
};
