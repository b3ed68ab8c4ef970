/*
 * The product of two matrices in .npy files, block by block, into a third.
 *
 *   03_matmul [--block N] [--check] [--random MxKxN [--f32]] A.npy B.npy C.npy
 *
 * A and B are one object each; blocks are views, and C is an array whose blocks are written by
 * different tasks, wherever they run. C(i,j) = A(i,1) B(1,j) + A(i,2) B(2,j) + ..: tasks of one
 * block of C wait for each other, because each updates it in place; those of different blocks do
 * not. Sizes need not divide by the block: the last ones are smaller.
 *
 * --random writes A and B first. --check multiplies 64 sampled rows in fp64 on the host and compares.
 */
#include <math.h>
#include <plasmon/plasmon.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "example.h"
#include "npy.h"

struct options {
    int64_t block;
    int64_t random[3]; /* M, K, N; 0: none */
    bool f32;
    bool check;
    const char *path[3];
    int path_count;
};

struct matmul {
    struct plasmon_client *px;
    int64_t block;
    int64_t m, k, n;
    plasmon_dtype_t dtype;
    size_t element_bytes;
    struct plasmon_ref *a, *b, *c;
};

static int64_t min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t blocks_of(const struct matmul *mm, int64_t length)
{
    return (length + mm->block - 1) / mm->block;
}

/* Block (i, j) of an array of rows x columns. */
static struct plasmon_ref *block_of(const struct matmul *mm, struct plasmon_ref *ref,
                                    int64_t rows, int64_t columns, int64_t i, int64_t j)
{
    int64_t start[] = {i * mm->block, j * mm->block};
    int64_t count[] = {min64(mm->block, rows - start[0]),
                       min64(mm->block, columns - start[1])};
    struct plasmon_ref *view;

    example_need(mm->px, plasmon_view(mm->px, ref, start, count, NULL, &view), "view");
    return view;
}

static void submit_block(const struct matmul *mm, int64_t i, int64_t j)
{
    struct plasmon_ref *c = block_of(mm, mm->c, mm->m, mm->n, i, j);

    for (int64_t p = 0; p < blocks_of(mm, mm->k); p++) {
        struct plasmon_ref *a = block_of(mm, mm->a, mm->m, mm->k, i, p);
        struct plasmon_ref *b = block_of(mm, mm->b, mm->k, mm->n, p, j);

        example_submit(mm->px, "gemm_into",
                       EXAMPLE_ARGS(example_inout(c), example_in(a), example_in(b)),
                       EXAMPLE_SCALARS({.f = 1.0}, {.f = 1.0}, {.i = 0}, {.i = 0}),
                       PLASMON_ANYWHERE, NULL);
        example_release(mm->px, a);
        example_release(mm->px, b);
    }
    example_release(mm->px, c);
}

static struct plasmon_ref *put(const struct matmul *mm, const struct npy *file,
                               const char *label)
{
    struct plasmon_shape shape         = {mm->dtype, 2, {file->rows, file->columns}};
    struct plasmon_put_options options = PLASMON_PUT_INIT;
    struct plasmon_ref *ref;

    options.label = label;
    example_need(mm->px, plasmon_put(mm->px, file->data, &shape, &options, &ref), label);
    return ref;
}

static void write_result(const struct matmul *mm, const char *path)
{
    size_t bytes = (size_t)min64(mm->block, mm->m) * (size_t)min64(mm->block, mm->n) *
                   mm->element_bytes;
    int64_t done = 0;
    void *buffer = malloc(bytes);
    char error[NPY_TEXT_BYTES];
    struct npy file;

    if (buffer == NULL) {
        example_die("out of memory for a block of %zu bytes: choose a smaller --block",
                    bytes);
    }
    if (npy_create(path, mm->element_bytes, mm->m, mm->n, &file, error) != 0) {
        example_die("%s", error);
    }
    for (int64_t i = 0; i < blocks_of(mm, mm->m); i++) {
        for (int64_t j = 0; j < blocks_of(mm, mm->n); j++) {
            struct plasmon_ref *c = block_of(mm, mm->c, mm->m, mm->n, i, j);

            example_need(mm->px, plasmon_get(mm->px, c, buffer, bytes, PLASMON_FOREVER),
                         "get a block");
            example_release(mm->px, c);
            if (npy_write_box(&file, i * mm->block, j * mm->block,
                              min64(mm->block, mm->m - i * mm->block),
                              min64(mm->block, mm->n - j * mm->block), buffer,
                              error) != 0) {
                example_die("%s: %s", path, error);
            }
            example_progress("blocks of C", (uint64_t)++done,
                             (uint64_t)(blocks_of(mm, mm->m) * blocks_of(mm, mm->n)));
        }
    }
    free(buffer);
    if (npy_close(&file, error) != 0) {
        example_die("%s: %s", path, error);
    }
}

static double element(const struct npy *file, int64_t row, int64_t column)
{
    int64_t i = row * file->columns + column;

    return file->element_bytes == 4 ? (double)((const float *)file->data)[i]
                                    : ((const double *)file->data)[i];
}

/*
 * One row of C against fp64, in units of what rounding may do: k x epsilon x sum |a||b|. Returns
 * the worst.
 */
static double row_error(const struct npy *a, const struct npy *b, const struct npy *c,
                        int64_t row)
{
    double epsilon = c->element_bytes == 4 ? 0x1p-23 : 0x1p-52;
    double worst   = 0.0;

    for (int64_t j = 0; j < b->columns; j++) {
        double sum     = 0.0;
        double largest = 0.0;

        for (int64_t p = 0; p < a->columns; p++) {
            double product = element(a, row, p) * element(b, p, j);

            sum += product;
            largest += fabs(product);
        }
        worst = fmax(worst, fabs(element(c, row, j) - sum) /
                                (epsilon * (double)a->columns * largest + 1e-300));
    }
    return worst;
}

static int check(const struct options *options)
{
    struct npy file[3];
    char error[NPY_TEXT_BYTES];
    double worst = 0.0;
    int64_t rows;

    for (int i = 0; i < 3; i++) {
        if (npy_open(options->path[i], &file[i], error) != 0) {
            example_die("%s", error);
        }
    }
    rows = min64(64, file[2].rows);
    for (int64_t i = 0; i < rows; i++) {
        worst = fmax(worst, row_error(&file[0], &file[1], &file[2],
                                      i * (file[2].rows - 1) / (rows > 1 ? rows - 1 : 1)));
        example_progress("checked rows", (uint64_t)i + 1, (uint64_t)rows);
    }
    for (int i = 0; i < 3; i++) {
        (void)npy_close(&file[i], error); /* only read */
    }
    printf("check: %s (%lld rows; %.3f of what rounding may do)\n",
           worst <= 1.0 ? "right" : "WRONG", (long long)rows, worst);
    return worst <= 1.0 ? 0 : 1;
}

static void write_random(const char *path, bool f32, int64_t rows, int64_t columns,
                         uint64_t state)
{
    void *line = calloc((size_t)columns, sizeof(double));
    struct npy file;
    char error[NPY_TEXT_BYTES];

    if (line == NULL) {
        example_die("out of memory");
    }
    if (npy_create(path, f32 ? 4 : 8, rows, columns, &file, error) != 0) {
        example_die("%s", error);
    }
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = 0; j < columns; j++) {
            double value;

            state = state * 6364136223846793005u + 1442695040888963407u;
            value = (double)(state >> 11) * 0x1p-52 - 1.0;
            if (f32) {
                ((float *)line)[j] = (float)value;
            } else {
                ((double *)line)[j] = value;
            }
        }
        if (npy_write_box(&file, i, 0, 1, columns, line, error) != 0) {
            example_die("%s: %s", path, error);
        }
        example_progress(path, (uint64_t)i + 1, (uint64_t)rows);
    }
    free(line);
    if (npy_close(&file, error) != 0) {
        example_die("%s: %s", path, error);
    }
}

static void parse_random(const char *text, int64_t out[3])
{
    long long m, k, n;
    char rest;

    if (sscanf(text, "%lldx%lldx%lld%c", &m, &k, &n, &rest) != 3 || m < 1 || k < 1 ||
        n < 1 || m > 1 << 20 || k > 1 << 20 || n > 1 << 20) {
        example_die("--random wants MxKxN, each from 1 to %d, not \"%s\"", 1 << 20, text);
    }
    out[0] = m;
    out[1] = k;
    out[2] = n;
}

static void parse(int argc, char **argv, struct options *options)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--check") == 0) {
            options->check = true;
        } else if (strcmp(argv[i], "--f32") == 0) {
            options->f32 = true;
        } else if (strcmp(argv[i], "--block") == 0 && i + 1 < argc) {
            options->block = example_number("--block", argv[++i], 1, 1 << 20);
        } else if (strcmp(argv[i], "--random") == 0 && i + 1 < argc) {
            parse_random(argv[++i], options->random);
        } else if (argv[i][0] != '-' && options->path_count < 3) {
            options->path[options->path_count++] = argv[i];
        } else {
            options->path_count = 0;
            break;
        }
    }
    if (options->path_count != 3) {
        example_die(
            "usage: %s [--block N] [--check] [--random MxKxN [--f32]] A.npy B.npy C.npy",
            argv[0]);
    }
}

static void multiply(const struct options *options)
{
    struct matmul mm = {.block = options->block};
    struct npy a;
    struct npy b;
    char error[NPY_TEXT_BYTES];
    double began;

    if (npy_open(options->path[0], &a, error) != 0 ||
        npy_open(options->path[1], &b, error) != 0) {
        example_die("%s", error);
    }
    if (a.columns != b.rows) {
        example_die("%s is %lld x %lld and %s is %lld x %lld: the first's columns must be "
                    "the second's rows",
                    options->path[0], (long long)a.rows, (long long)a.columns,
                    options->path[1], (long long)b.rows, (long long)b.columns);
    }
    if (a.element_bytes != b.element_bytes) {
        example_die("%s is float%zu and %s is float%zu: use array.astype on one of them",
                    options->path[0], 8 * a.element_bytes, options->path[1],
                    8 * b.element_bytes);
    }
    mm.m             = a.rows;
    mm.k             = a.columns;
    mm.n             = b.columns;
    mm.element_bytes = a.element_bytes;
    mm.dtype         = a.element_bytes == 4 ? PLASMON_F32 : PLASMON_F64;

    example_need(NULL, plasmon_init(NULL, &mm.px), "start");
    began = example_seconds();
    mm.a  = put(&mm, &a, "A");
    mm.b  = put(&mm, &b, "B");
    example_submit(
        mm.px, "fill",
        EXAMPLE_ARGS(example_make(&(struct plasmon_shape){mm.dtype, 2, {mm.m, mm.n}})),
        EXAMPLE_SCALARS({.f = 0.0}), PLASMON_ANYWHERE, &mm.c);
    for (int64_t i = 0; i < blocks_of(&mm, mm.m); i++) {
        for (int64_t j = 0; j < blocks_of(&mm, mm.n); j++) {
            submit_block(&mm, i, j);
        }
    }
    write_result(&mm, options->path[2]);
    printf("%lld x %lld x %lld, blocks of %lld: %.3f s with loading and writing\n",
           (long long)mm.m, (long long)mm.k, (long long)mm.n, (long long)mm.block,
           example_seconds() - began);
    plasmon_finish(mm.px);
    (void)npy_close(&a, error); /* only read */
    (void)npy_close(&b, error);
}

int main(int argc, char **argv)
{
    struct options options = {.block = 1024};

    parse(argc, argv, &options);
    if (options.random[0] != 0) {
        write_random(options.path[0], options.f32, options.random[0], options.random[1], 1);
        write_random(options.path[1], options.f32, options.random[1], options.random[2], 2);
    }
    multiply(&options);
    return options.check ? check(&options) : 0;
}
