/*
 * IMG: eleven kernels, four wide, six deep. Three blurs of a picture; edges of two of them; the
 * edges of the large blur stretched to a mask; then the sharpened picture where the large mask is
 * high, and the blurred one elsewhere.
 */
#include "bench/graphs/graph.h"
#include "bench/graphs/text.h"

#include <math.h>

#include "base/alloc.h"

#define AMOUNT 0.5
/* columns that are blurred together: loops that a compiler turns into vectors */
#define STRIP 256

static const struct graphs_kernel kernels[] = {
    {"img_blur3", "img_blur3(out f32[n,n] y, in f32[n,n] x, in f32[9] weights, i64 n)"},
    {"img_blur5", "img_blur5(out f32[n,n] y, in f32[n,n] x, in f32[25] weights, i64 n)"},
    {"img_sobel", "img_sobel(out f32[n,n] y, in f32[n,n] x, i64 n)"},
    {"img_max",
     "img_max(out f32[1] y, in f32[n,n] x, scratch f32[1056] partial, inout u32[1] "
     "ticket, i64 n)"},
    {"img_min",
     "img_min(out f32[1] y, in f32[n,n] x, scratch f32[1056] partial, inout u32[1] "
     "ticket, i64 n)"},
    {"img_extend", "img_extend(inout f32[n,n] mask, in f32[1] low, in f32[1] high, i64 n)"},
    {"img_unsharpen",
     "img_unsharpen(out f32[n,n] y, in f32[n,n] x, in f32[n,n] blurred, i64 "
     "n, f32 amount)"},
    {"img_combine", "img_combine(out f32[n,n] y, in f32[n,n] a, in f32[n,n] b, in f32[n,n] "
                    "mask, i64 n)"},
};

static uint32_t gauss(struct graphs_graph *graph, int64_t width, double sigma)
{
    uint32_t input = graphs_input(graph, PLASMON_F32, 1, width * width, 0, 0);
    float *weight  = graphs_data(graph, input);
    double sum     = 0;

    for (int pass = 0; pass < 2; pass++) { /* the second knows the sum */
        for (int64_t i = 0; i < width * width; i++) {
            int64_t y = i / width - width / 2, x = i % width - width / 2;
            double value = exp(-(double)(x * x + y * y) / (2 * sigma * sigma));

            sum += pass == 0 ? value : 0;
            weight[i] = (float)(value / sum);
        }
    }
    return input;
}

/* ---------------------------------------------------------------------------- reference */

/*
 * Everything that follows from the picture alone is computed where it is needed, in fp64; only the
 * large mask is kept, for its extremes.
 */
struct reference {
    int64_t n;
    const float *image, *weight_small, *weight_large, *weight_unsharp;
    /* [n][n]: fp64 values rounded once, which is less than the bound by far */
    float *large;
    double low, high;
    const struct graphs_expect *expect;
    double *row_low, *row_high;
};

static double blur_at(const struct reference *reference, const float *weight, int64_t width,
                      int64_t row, int64_t column)
{
    int64_t n  = reference->n;
    double sum = 0;

    for (int64_t i = 0; i < width * width; i++) {
        int64_t y = row + i / width - width / 2, x = column + i % width - width / 2;

        if (y >= 0 && y < n && x >= 0 && x < n) {
            sum += (double)weight[i] * (double)reference->image[y * n + x];
        }
    }
    return sum;
}

static double sobel_of(double v[3][3])
{
    double gx = v[0][2] - v[0][0] + 2 * (v[1][2] - v[1][0]) + v[2][2] - v[2][0];
    double gy = v[2][0] + 2 * v[2][1] + v[2][2] - v[0][0] - 2 * v[0][1] - v[0][2];

    return sqrt(gx * gx + gy * gy);
}

static double small_mask_at(const struct reference *reference, int64_t row, int64_t column)
{
    double v[3][3];

    for (int64_t i = 0; i < 9; i++) {
        int64_t y = row + i / 3 - 1, x = column + i % 3 - 1;
        bool inside = y >= 0 && y < reference->n && x >= 0 && x < reference->n;

        v[i / 3][i % 3] = inside ? blur_at(reference, reference->weight_small, 3, y, x) : 0;
    }
    return sobel_of(v);
}

static double large_mask_at(const struct reference *reference, int64_t row, int64_t column)
{
    double v[3][3];

    for (int64_t i = 0; i < 9; i++) {
        int64_t y = row + i / 3 - 1, x = column + i % 3 - 1;
        bool inside = y >= 0 && y < reference->n && x >= 0 && x < reference->n;

        v[i / 3][i % 3] = inside ? (double)reference->large[y * reference->n + x] : 0;
    }
    return sobel_of(v);
}

/* STRIP columns of the large blur from `column` on, none within two of the border. */
static void blur_strip(struct reference *reference, int64_t row, int64_t column)
{
    int64_t n         = reference->n;
    double sum[STRIP] = {0};

    for (int64_t i = 0; i < 25; i++) {
        const float *from = &reference->image[(row + i / 5 - 2) * n + column + i % 5 - 2];
        double weight     = (double)reference->weight_large[i];

        for (int64_t k = 0; k < STRIP; k++) {
            sum[k] += weight * (double)from[k];
        }
    }
    for (int64_t k = 0; k < STRIP; k++) {
        reference->large[row * n + column + k] = (float)sum[k];
    }
}

static void blur_rows(void *user, int64_t begin, int64_t end)
{
    struct reference *reference = user;
    int64_t n                   = reference->n;

    for (int64_t i = begin; i < end;) {
        int64_t row = i / n, column = i % n;

        if (row >= 2 && row < n - 2 && column >= 2 && column + STRIP <= n - 2 &&
            i + STRIP <= end) {
            blur_strip(reference, row, column);
            i += STRIP;
        } else {
            reference->large[i] =
                (float)blur_at(reference, reference->weight_large, 5, row, column);
            i++;
        }
    }
}

static void extreme_rows(void *user, int64_t begin, int64_t end)
{
    struct reference *reference = user;

    for (int64_t row = begin / reference->n; row < (end + reference->n - 1) / reference->n;
         row++) {
        double low = INFINITY, high = -INFINITY;

        for (int64_t column = 0; column < reference->n; column++) {
            double mask = large_mask_at(reference, row, column);

            low  = fmin(low, mask);
            high = fmax(high, mask);
        }
        /* Pieces begin and end within rows: a row may be done twice, with the same result. */
        __atomic_store(&reference->row_low[row], &low, __ATOMIC_RELAXED);
        __atomic_store(&reference->row_high[row], &high, __ATOMIC_RELAXED);
    }
}

static double result_at(const struct reference *reference, int64_t row, int64_t column)
{
    double pixel   = (double)reference->image[row * reference->n + column];
    double unsharp = blur_at(reference, reference->weight_unsharp, 3, row, column);
    double sharp   = fmin(1, fmax(0, (1 + AMOUNT) * pixel - AMOUNT * unsharp));
    double large   = (double)reference->large[row * reference->n + column];
    double small   = blur_at(reference, reference->weight_small, 3, row, column);
    double mask    = fmin(1, 5 * (large_mask_at(reference, row, column) - reference->low) /
                                 (reference->high - reference->low));
    double second  = sharp * mask + large * (1 - mask);
    double edge    = small_mask_at(reference, row, column);

    return second * edge + small * (1 - edge);
}

static void result_pieces(void *user, int64_t begin, int64_t end)
{
    const struct reference *reference = user;

    for (int64_t i = begin; i < end; i++) {
        int64_t at = (int64_t)graphs_expect_at(reference->expect, (uint64_t)i);

        reference->expect->want[i] =
            result_at(reference, at / reference->n, at % reference->n);
    }
}

static void expect_picture(struct graphs_graph *graph, uint32_t image,
                           const uint32_t weight[3], uint32_t output)
{
    int64_t n                  = graph->n;
    struct reference reference = {.n              = n,
                                  .image          = graphs_data(graph, image),
                                  .weight_small   = graphs_data(graph, weight[0]),
                                  .weight_large   = graphs_data(graph, weight[1]),
                                  .weight_unsharp = graphs_data(graph, weight[2]),
                                  .low            = INFINITY,
                                  .high           = -INFINITY};

    reference.large    = graphs_must_map((uint64_t)(n * n) * sizeof(float));
    reference.row_low  = bench_must_alloc((size_t)n * sizeof(double));
    reference.row_high = bench_must_alloc((size_t)n * sizeof(double));
    graphs_parallel(n * n, blur_rows, &reference);
    graphs_parallel(n * n, extreme_rows, &reference);
    for (int64_t i = 0; i < n; i++) {
        reference.low  = fmin(reference.low, reference.row_low[i]);
        reference.high = fmax(reference.high, reference.row_high[i]);
    }
    /*
     * Pixels are below 1 and the masks below 10; the stretch by 5 / (high - low), about 10, is the
     * steepest part.
     */
    reference.expect = graphs_expect(graph, output, 1e-4, 0);
    graphs_parallel((int64_t)reference.expect->count, result_pieces, &reference);
    graphs_unmap(reference.large, (uint64_t)(n * n) * sizeof(float));
    pl_free(reference.row_low);
    pl_free(reference.row_high);
}

/* -------------------------------------------------------------------------------- graph */

static uint32_t picture(struct graphs_graph *graph)
{
    return graphs_array(graph, GRAPHS_TEMP, PLASMON_F32, 2, graph->n, graph->n, 0);
}

static void build(struct graphs_graph *graph)
{
    int64_t n                   = graph->n;
    struct graphs_launch filter = graphs_tiles(n, n, 32, 8, 1, 8);
    struct graphs_launch points = graphs_blocks(n * n, 4 * 256, 256);
    struct graphs_launch whole  = graphs_loop(n * n / 16, 256);
    uint32_t image              = graphs_input(graph, PLASMON_F32, 2, n, n, 0);
    uint32_t weight[3] = {gauss(graph, 3, 1), gauss(graph, 5, 10), gauss(graph, 3, 5)};
    uint32_t small = picture(graph), large = picture(graph), unsharp = picture(graph);
    uint32_t small_mask = picture(graph), large_mask = picture(graph);
    uint32_t sharp = picture(graph), second = picture(graph);
    uint32_t out = graphs_array(graph, GRAPHS_OUTPUT, PLASMON_F32, 2, n, n, 0);
    uint32_t extreme[2], partial[2], ticket[2];
    uint32_t s_small_mask, s_large_mask, s_min, s_extend, s_sharp, s_second, s_out;

    for (size_t i = 0; i < 2; i++) {
        extreme[i] = graphs_array(graph, GRAPHS_TEMP, PLASMON_F32, 1, 1, 0, 0);
        partial[i] =
            graphs_array(graph, GRAPHS_SCRATCH, PLASMON_F32, 1, GRAPHS_LOOP_BLOCKS, 0, 0);
        ticket[i] = graphs_array(graph, GRAPHS_STATE, PLASMON_U32, 1, 1, 0, 0);
    }
    graphs_fill_uniform(graph, image, 0, 0, 1);

    /* The longest way first, in stream 0. */
    (void)GRAPHS_STEP(graph, "img_blur5", filter, 0, GRAPHS_A(large), GRAPHS_A(image),
                      GRAPHS_A(weight[1]), GRAPHS_I(n));
    s_large_mask = GRAPHS_STEP(graph, "img_sobel", filter, 0, GRAPHS_A(large_mask),
                               GRAPHS_A(large), GRAPHS_I(n));
    (void)GRAPHS_STEP(graph, "img_blur3", filter, 1, GRAPHS_A(small), GRAPHS_A(image),
                      GRAPHS_A(weight[0]), GRAPHS_I(n));
    s_small_mask = GRAPHS_STEP(graph, "img_sobel", filter, 1, GRAPHS_A(small_mask),
                               GRAPHS_A(small), GRAPHS_I(n));
    (void)GRAPHS_STEP(graph, "img_blur3", filter, 2, GRAPHS_A(unsharp), GRAPHS_A(image),
                      GRAPHS_A(weight[2]), GRAPHS_I(n));
    s_sharp =
        GRAPHS_STEP(graph, "img_unsharpen", points, 2, GRAPHS_A(sharp), GRAPHS_A(image),
                    GRAPHS_A(unsharp), GRAPHS_I(n), GRAPHS_F(AMOUNT));
    (void)GRAPHS_STEP(graph, "img_max", whole, 0, GRAPHS_A(extreme[1]),
                      GRAPHS_A(large_mask), GRAPHS_A(partial[1]), GRAPHS_A(ticket[1]),
                      GRAPHS_I(n));
    s_min =
        GRAPHS_STEP(graph, "img_min", whole, 3, GRAPHS_A(extreme[0]), GRAPHS_A(large_mask),
                    GRAPHS_A(partial[0]), GRAPHS_A(ticket[0]), GRAPHS_I(n));
    graphs_after(graph, s_min, s_large_mask);
    s_extend = GRAPHS_STEP(graph, "img_extend", points, 0, GRAPHS_A(large_mask),
                           GRAPHS_A(extreme[0]), GRAPHS_A(extreme[1]), GRAPHS_I(n));
    graphs_after(graph, s_extend, s_min);
    s_second =
        GRAPHS_STEP(graph, "img_combine", points, 0, GRAPHS_A(second), GRAPHS_A(sharp),
                    GRAPHS_A(large), GRAPHS_A(large_mask), GRAPHS_I(n));
    graphs_after(graph, s_second, s_sharp);
    s_out = GRAPHS_STEP(graph, "img_combine", points, 0, GRAPHS_A(out), GRAPHS_A(second),
                        GRAPHS_A(small), GRAPHS_A(small_mask), GRAPHS_I(n));
    graphs_after(graph, s_out, s_small_mask);
    expect_picture(graph, image, weight, out);
}

const struct graphs_definition graphs_img = {
    .title        = "IMG",
    .option       = "img",
    .cuda_text    = graphs_text_img_cu,
    .c_text       = graphs_text_img_cpu,
    .kernels      = kernels,
    .kernel_count = PL_COUNT(kernels),
    .size         = {128, 1600, 6400, 20000},
    .published    = 1.49,
    .build        = build,
};
