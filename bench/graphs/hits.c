/*
 * HITS: hubs and authorities of a random graph of out-degree 3, five iterations of six kernels:
 *
 *     A2 = A^T H1    sum(A2)    A1 = A2 / sum
 *     H2 = A A1      sum(H2)    H1 = H2 / sum
 *
 * Both halves of an iteration read what the last one left, so the two chains run side by side and
 * cross after each.
 */
#include "bench/graphs/graph.h"
#include "bench/graphs/text.h"

#include "base/alloc.h"

#define DEGREE     3
#define ITERATIONS 5
#define SLOT_SHIFT 12 /* graphs_parallel() cuts no finer than 4096 */

static const struct graphs_kernel kernels[] = {
    {"hits_spmv",
     "hits_spmv(out f32[n] y, in i32[n+1] row, in i32[nnz] column, in f32[nnz] "
     "value, in f32[n] x, i64 n)"},
    {"hits_sum",
     "hits_sum(out f32[1] sum, in f32[n] x, scratch f32[1056] partial, inout u32[1] "
     "ticket, i64 n)"},
    {"hits_divide", "hits_divide(out f32[n] y, in f32[n] x, in f32[1] sum, i64 n)"},
};

/* ----------------------------------------------------------------- the graph's matrices */

struct matrix {
    uint32_t row, column, value; /* inputs */
};
struct links {
    const struct graphs_graph *graph;
    int32_t *row, *column;       /* of A */
    int32_t *to_row, *to_column; /* of its transpose */
    int32_t *next;               /* where the next entry of a row of the transpose goes */
};

static void make_links(void *user, int64_t begin, int64_t end)
{
    const struct links *links = user;

    for (int64_t i = begin; i < end; i++) {
        links->row[i] = (int32_t)(DEGREE * i);
        for (int64_t k = DEGREE * i; k < DEGREE * (i + 1); k++) {
            uint64_t to = graphs_random(links->graph->seed, (uint64_t)k);

            links->column[k] = (int32_t)(to % (uint64_t)links->graph->n);
            __atomic_fetch_add(&links->next[links->column[k]], 1, __ATOMIC_RELAXED);
        }
    }
}

static void transpose_links(void *user, int64_t begin, int64_t end)
{
    const struct links *links = user;

    for (int64_t i = begin; i < end; i++) {
        for (int64_t k = DEGREE * i; k < DEGREE * (i + 1); k++) {
            int32_t at =
                __atomic_fetch_add(&links->next[links->column[k]], 1, __ATOMIC_RELAXED);

            links->to_column[at] = (int32_t)i;
        }
    }
}

static void make_matrices(struct graphs_graph *graph, struct matrix *a, struct matrix *at)
{
    int64_t n          = graph->n;
    struct links links = {.graph = graph};
    int32_t count      = 0;

    for (int i = 0; i < 2; i++) {
        struct matrix *it = i == 0 ? a : at;

        it->row    = graphs_input(graph, PLASMON_I32, 1, n + 1, 0, 0);
        it->column = graphs_input(graph, PLASMON_I32, 1, DEGREE * n, 0, 0);
        it->value  = graphs_input(graph, PLASMON_F32, 1, DEGREE * n, 0, 0);
        graphs_fill_constant(graph, it->value, 1);
    }
    links.row       = graphs_data(graph, a->row);
    links.column    = graphs_data(graph, a->column);
    links.to_row    = graphs_data(graph, at->row);
    links.to_column = graphs_data(graph, at->column);
    links.next      = graphs_must_map((uint64_t)n * sizeof(int32_t));
    graphs_parallel(n, make_links, &links);
    for (int64_t i = 0; i < n; i++) { /* from counts to places */
        int32_t here    = links.next[i];
        links.next[i]   = count;
        links.to_row[i] = count;
        count += here;
    }
    links.row[n]    = count;
    links.to_row[n] = count;
    graphs_parallel(n, transpose_links, &links);
    graphs_unmap(links.next, (uint64_t)n * sizeof(int32_t));
}

/* ---------------------------------------------------------------------------- reference */

struct product {
    const int32_t *row, *column;
    const double *x;
    double *y;
};

static void product_rows(void *user, int64_t begin, int64_t end)
{
    const struct product *product = user;

    for (int64_t i = begin; i < end; i++) {
        double sum = 0;

        for (int32_t k = product->row[i]; k < product->row[i + 1]; k++) {
            sum += product->x[product->column[k]];
        }
        product->y[i] = sum;
    }
}

struct division {
    double *to;
    const double *from;
    double *sums; /* a piece each */
    double sum;
};

static void sum_piece(void *user, int64_t begin, int64_t end)
{
    const struct division *division = user;
    double sum                      = 0;

    for (int64_t i = begin; i < end; i++) {
        sum += division->from[i];
    }
    division->sums[begin >> SLOT_SHIFT] = sum;
}

static void divide_piece(void *user, int64_t begin, int64_t end)
{
    const struct division *division = user;

    for (int64_t i = begin; i < end; i++) {
        division->to[i] = division->from[i] / division->sum;
    }
}

static void normalise(double *to, const double *from, int64_t n)
{
    int64_t slots            = (n >> SLOT_SHIFT) + 1;
    struct division division = {
        .to = to, .from = from, .sums = bench_must_alloc((size_t)slots * sizeof(double))};

    graphs_parallel(n, sum_piece, &division);
    for (int64_t i = 0; i < slots; i++) {
        division.sum += division.sums[i];
    }
    graphs_parallel(n, divide_piece, &division);
    pl_free(division.sums);
}

static void ones_piece(void *user, int64_t begin, int64_t end)
{
    double *const *vectors = user;

    for (int64_t i = begin; i < end; i++) {
        vectors[0][i] = 1;
        vectors[1][i] = 1;
    }
}

/*
 * An element goes through a sum of a few terms and a division each time; a grid's sum is good to a
 * few 1e-6.
 */
static void expect_vector(struct graphs_graph *graph, uint32_t array, const double *value)
{
    struct graphs_expect *expect = graphs_expect(graph, array, 1e-30, 1e-4);

    for (uint64_t i = 0; i < expect->count; i++) {
        expect->want[i] = value[graphs_expect_at(expect, i)];
    }
}

static void expect_scores(struct graphs_graph *graph, const struct matrix *a,
                          const struct matrix *at, uint32_t authorities, uint32_t hubs)
{
    int64_t n      = graph->n;
    uint64_t bytes = (uint64_t)n * sizeof(double);
    double *a1 = graphs_must_map(bytes), *a2 = graphs_must_map(bytes);
    double *h1 = graphs_must_map(bytes), *h2 = graphs_must_map(bytes);
    double *ones[]      = {a1, h1};
    struct product up   = {graphs_data(graph, at->row), graphs_data(graph, at->column), h1,
                           a2};
    struct product down = {graphs_data(graph, a->row), graphs_data(graph, a->column), a1,
                           h2};

    graphs_parallel(n, ones_piece, ones);
    for (int i = 0; i < ITERATIONS; i++) {
        graphs_parallel(n, product_rows, &up);
        graphs_parallel(n, product_rows, &down);
        normalise(a1, a2, n);
        normalise(h1, h2, n);
    }
    expect_vector(graph, authorities, a1);
    expect_vector(graph, hubs, h1);
    graphs_unmap(a1, bytes);
    graphs_unmap(a2, bytes);
    graphs_unmap(h1, bytes);
    graphs_unmap(h2, bytes);
}

/* -------------------------------------------------------------------------------- graph */

/* One of the two chains. */
struct chain {
    const struct matrix *matrix;
    uint32_t ones, result, product, sum, partial, ticket;
    uint32_t s_spmv, s_divide; /* steps of the last iteration */
};

static void make_chain(struct graphs_graph *graph, struct chain *chain)
{
    int64_t n = graph->n;

    chain->ones = graphs_input(graph, PLASMON_F32, 1, n, 0, 0);
    graphs_fill_constant(graph, chain->ones, 1);
    chain->result  = graphs_array(graph, GRAPHS_OUTPUT, PLASMON_F32, 1, n, 0, 0);
    chain->product = graphs_array(graph, GRAPHS_TEMP, PLASMON_F32, 1, n, 0, 0);
    chain->sum     = graphs_array(graph, GRAPHS_TEMP, PLASMON_F32, 1, 1, 0, 0);
    chain->partial =
        graphs_array(graph, GRAPHS_SCRATCH, PLASMON_F32, 1, GRAPHS_LOOP_BLOCKS, 0, 0);
    chain->ticket = graphs_array(graph, GRAPHS_STATE, PLASMON_U32, 1, 1, 0, 0);
}

static void multiply(struct graphs_graph *graph, struct chain *chain, uint32_t stream,
                     const struct chain *other, bool first)
{
    const struct matrix *matrix = chain->matrix;

    chain->s_spmv =
        GRAPHS_STEP(graph, "hits_spmv", graphs_blocks(graph->n, 256, 256), stream,
                    GRAPHS_A(chain->product), GRAPHS_A(matrix->row),
                    GRAPHS_A(matrix->column), GRAPHS_A(matrix->value),
                    GRAPHS_A(first ? other->ones : other->result), GRAPHS_I(graph->n));
    if (!first) {
        graphs_after(graph, chain->s_spmv, other->s_divide);
    }
}

static void divide(struct graphs_graph *graph, struct chain *chain, uint32_t stream,
                   const struct chain *other, struct graphs_launch sum, bool first)
{
    int64_t n = graph->n;

    (void)GRAPHS_STEP(graph, "hits_sum", sum, stream, GRAPHS_A(chain->sum),
                      GRAPHS_A(chain->product), GRAPHS_A(chain->partial),
                      GRAPHS_A(chain->ticket), GRAPHS_I(n));
    chain->s_divide = GRAPHS_STEP(graph, "hits_divide", graphs_blocks(n, 4 * 256, 256),
                                  stream, GRAPHS_A(chain->result), GRAPHS_A(chain->product),
                                  GRAPHS_A(chain->sum), GRAPHS_I(n));
    if (!first) { /* the other product reads what this overwrites; the first read the ones */
        graphs_after(graph, chain->s_divide, other->s_spmv);
    }
}

static void build(struct graphs_graph *graph)
{
    struct graphs_launch sum = graphs_loop(graph->n / 16, 256);
    struct matrix a, at;
    struct chain authorities = {.matrix = &at}, hubs = {.matrix = &a};

    make_matrices(graph, &a, &at);
    make_chain(graph, &authorities);
    make_chain(graph, &hubs);
    for (int i = 0; i < ITERATIONS; i++) {
        struct chain last = authorities; /* of the last iteration: both halves read that */

        multiply(graph, &authorities, 0, &hubs, i == 0);
        multiply(graph, &hubs, 1, &last, i == 0);
        divide(graph, &authorities, 0, &hubs, sum, i == 0);
        divide(graph, &hubs, 1, &authorities, sum, i == 0);
    }
    expect_scores(graph, &a, &at, authorities.result, hubs.result);
}

const struct graphs_definition graphs_hits = {
    .title        = "HITS",
    .option       = "hits",
    .cuda_text    = graphs_text_hits_cu,
    .c_text       = graphs_text_hits_cpu,
    .kernels      = kernels,
    .kernel_count = PL_COUNT(kernels),
    .size         = {20000, 4000000, 50000000, 180000000},
    .published    = 1.33,
    .build        = build,
};
