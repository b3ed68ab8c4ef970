/*
 * `plasmon bench gemm`: C = A B in fp64, cut into square blocks that are objects, on one device and
 * on all; beside it one library call for the whole product. The blocks of A and B are tiles of one
 * random matrix each, made where they are first used.
 *
 * CHECK (Freivalds) For a random vector x, C x must be A (B x), up to rounding: three passes over
 * the blocks, as they come
 *                    from plasmon_get(), instead of a product of our own. A wrong block slips
 *                    through with probability 0 for all practical purposes, as x is real-valued.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "bench/bench.h"

#define ROUNDS     3u
#define BLOCKS_MAX 64u /* a side */
#define SIZES      3u  /* N / 4, N / 2, N: for the picture */

struct gemm_options {
    uint32_t rows;
    uint32_t block;
    const char *gpus;
    uint32_t cpu_devices;
    const char *json;
    const char *plot;
};

#define OPTION(field) offsetof(struct gemm_options, field)
static const struct cli_option options[] = {
    {"--n", "N", CLI_COUNT, OPTION(rows),
     "rows and columns; N/2 and N/4 are measured too [16384 on GPUs, 2048 on CPUs]"},
    {"--block", "B", CLI_COUNT, OPTION(block),
     "rows and columns of a block [a quarter of each]"},
    {"--gpus", "N", CLI_TEXT, OPTION(gpus),
     "GPUs of a private cluster: a number or none [all]"},
    {"--cpu-devices", "N", CLI_COUNT, OPTION(cpu_devices),
     "CPU devices where there is no GPU [2]"},
    {"--json", "FILE", CLI_OUTPUT, OPTION(json), "write the results as JSON"},
    {"--plot", "FILE.svg", CLI_OUTPUT, OPTION(plot), "draw the speed over N"},
};

static int run_gemm(int argc, char **argv);
const struct cli_command bench_gemm = {
    .name    = "bench gemm",
    .summary = "a blocked product on one device and on all; beside it one library call",
    .usage   = "[options]",
    .text = "Uses the cluster of PLASMON_ADDRESS, or a private one; the library call runs "
            "on this machine.",
    .options      = options,
    .option_count = PL_COUNT(options),
    .run          = run_gemm,
};

typedef struct plasmon_ref *block_grid[BLOCKS_MAX][BLOCKS_MAX];
struct gemm {
    struct bench_cluster cluster;
    struct bench_report report;
    uint32_t rows, block, side, devices;
    block_grid a, b, c;
};

/* Rows of blocks go round the devices, so that a device needs its rows of A, and all of B. */
static int device_of(const struct gemm *gemm, uint32_t i, uint32_t j)
{
    return (int)((i + j * gemm->side) % gemm->devices);
}

/* -------------------------------------------------------------------------------- tasks */

static void make_matrix(struct gemm *gemm, block_grid grid, int64_t seed)
{
    const struct plasmon_shape shape =
        bench_shape(PLASMON_F64, 2, (int64_t)gemm->block, (int64_t)gemm->block);

    for (uint32_t i = 0; i < gemm->side; i++) {
        for (uint32_t j = 0; j < gemm->side; j++) {
            int64_t offset                    = ((int64_t)i * gemm->rows + j) * gemm->block;
            const plasmon_scalar_t scalars[5] = {{.i = seed},
                                                 {.i = offset},
                                                 {.i = (int64_t)gemm->rows},
                                                 {.f = -1},
                                                 {.f = 1}};

            grid[i][j] = bench_must_make(&gemm->cluster, "random_uniform", &shape, scalars,
                                         5, device_of(gemm, i, j));
        }
    }
}

static struct plasmon_ref *first_product(struct gemm *gemm, uint32_t i, uint32_t j)
{
    const struct plasmon_arg args[3]  = {{.mode = PLASMON_OUT},
                                         {.mode = PLASMON_IN, .ref = gemm->a[i][0]},
                                         {.mode = PLASMON_IN, .ref = gemm->b[0][j]}};
    const plasmon_scalar_t scalars[3] = {{.f = 1}, {.i = 0}, {.i = 0}};
    struct plasmon_call call          = PLASMON_CALL_INIT;
    struct plasmon_ref *out;

    call.function     = "gemm";
    call.args         = args;
    call.arg_count    = 3;
    call.scalars      = scalars;
    call.scalar_count = 3;
    call.device       = device_of(gemm, i, j);
    bench_must(&gemm->cluster, plasmon_submit(gemm->cluster.client, &call, &out, NULL),
               "gemm");
    return out;
}

static void add_product(struct gemm *gemm, uint32_t i, uint32_t j, uint32_t k)
{
    const struct plasmon_arg args[3]  = {{.mode = PLASMON_INOUT, .ref = gemm->c[i][j]},
                                         {.mode = PLASMON_IN, .ref = gemm->a[i][k]},
                                         {.mode = PLASMON_IN, .ref = gemm->b[k][j]}};
    const plasmon_scalar_t scalars[4] = {{.f = 1}, {.f = 1}, {.i = 0}, {.i = 0}};
    struct plasmon_call call          = PLASMON_CALL_INIT;

    call.function     = "gemm_into";
    call.args         = args;
    call.arg_count    = 3;
    call.scalars      = scalars;
    call.scalar_count = 4;
    call.device       = device_of(gemm, i, j);
    bench_must(&gemm->cluster, plasmon_submit(gemm->cluster.client, &call, NULL, NULL),
               "gemm_into");
}

static double product(struct gemm *gemm)
{
    uint64_t began = pl_now_ns();

    for (uint32_t k = 0; k < gemm->side; k++) {
        for (uint32_t i = 0; i < gemm->side; i++) {
            for (uint32_t j = 0; j < gemm->side; j++) {
                if (k == 0) {
                    gemm->c[i][j] = first_product(gemm, i, j);
                } else {
                    add_product(gemm, i, j, k);
                }
            }
        }
    }
    for (uint32_t i = 0; i < gemm->side; i++) {
        bench_must_wait(&gemm->cluster, gemm->c[i], gemm->side);
    }
    return (double)(pl_now_ns() - began) * 1e-9;
}

static void release_matrix(struct gemm *gemm, block_grid grid)
{
    for (uint32_t i = 0; i < gemm->side; i++) {
        bench_must_release(&gemm->cluster, grid[i], gemm->side);
    }
}

/* -------------------------------------------------------------------------------- check */

/* out = grid x */
static void multiply(struct gemm *gemm, block_grid grid, const double *x, double *out)
{
    size_t bytes  = (size_t)gemm->block * gemm->block * sizeof(double);
    double *block = bench_must_alloc(bytes);

    memset(out, 0, gemm->rows * sizeof(*out));
    for (uint32_t i = 0; i < gemm->side; i++) {
        for (uint32_t j = 0; j < gemm->side; j++) {
            bench_must(&gemm->cluster,
                       plasmon_get(gemm->cluster.client, grid[i][j], block, bytes,
                                   PLASMON_FOREVER),
                       "getting a block");
            for (size_t r = 0; r < gemm->block; r++) {
                double sum = 0;

                for (size_t s = 0; s < gemm->block; s++) {
                    sum += block[r * gemm->block + s] * x[j * (size_t)gemm->block + s];
                }
                out[i * (size_t)gemm->block + r] += sum;
            }
        }
    }
    pl_free(block);
}

static void check(struct gemm *gemm)
{
    size_t bytes = gemm->rows * sizeof(double);
    double *x = bench_must_alloc(bytes), *bx = bench_must_alloc(bytes);
    double *want = bench_must_alloc(bytes), *got = bench_must_alloc(bytes);
    /* Terms are below 1 and there are N^2 of them a row; errors add up like a walk. */
    double bound = 64 * 2.3e-16 * gemm->rows * sqrt((double)gemm->rows);

    srand48(4711);
    for (uint32_t i = 0; i < gemm->rows; i++) {
        x[i] = drand48() - 0.5;
    }
    multiply(gemm, gemm->b, x, bx);
    multiply(gemm, gemm->a, bx, want);
    multiply(gemm, gemm->c, x, got);
    for (uint32_t i = 0; i < gemm->rows; i++) {
        if (!(fabs(want[i] - got[i]) <= bound)) { /* NaN is wrong too */
            bench_die("the product is wrong in row %u: off by %g, and %g would be rounding",
                      i, fabs(want[i] - got[i]), bound);
        }
    }
    pl_free(x);
    pl_free(bx);
    pl_free(want);
    pl_free(got);
}

/* ------------------------------------------------------------------------------ figures */

static void measure(struct gemm *gemm, uint32_t rows, uint32_t block, uint32_t devices,
                    double raw_seconds)
{
    struct bench_row row = {.name       = "dgemm",
                            .x          = rows,
                            .unit       = "TFLOP/s",
                            .limit_name = devices > 1 ? "the call times the devices"
                                                      : "one library call"};
    double work          = 2e-12 * rows * rows * rows, seconds[ROUNDS];

    gemm->rows    = rows;
    gemm->block   = block;
    gemm->side    = rows / block;
    gemm->devices = devices;
    make_matrix(gemm, gemm->a, 1);
    make_matrix(gemm, gemm->b, 2);
    (void)product(gemm);
    check(gemm);
    release_matrix(gemm, gemm->c);
    for (size_t i = 0; i < ROUNDS; i++) {
        seconds[i] = product(gemm);
        release_matrix(gemm, gemm->c);
    }
    release_matrix(gemm, gemm->a);
    release_matrix(gemm, gemm->b);

    row.value = work / bench_percentile(seconds, ROUNDS, 0.5);
    row.limit = devices * work / raw_seconds;
    (void)snprintf(row.series, sizeof(row.series), "%u device%s", devices,
                   devices > 1 ? "s" : "");
    (void)snprintf(row.note, sizeof(row.note), "%ux%u blocks of %u", gemm->side, gemm->side,
                   block);
    bench_report_add(&gemm->report, &row);
}

static void measure_all(struct gemm *gemm, const struct bench_raw_gemm *raw,
                        const double *raw_seconds, uint32_t block)
{
    for (uint32_t devices = 1; devices <= gemm->cluster.devices; devices *= 2) {
        for (uint32_t i = 0; i < raw->size_count; i++) {
            uint32_t rows = raw->size[i], one = block > 0 ? block : rows / 4;

            if (rows % one != 0 || rows / one > BLOCKS_MAX) {
                bench_report_remark(
                    &gemm->report,
                    "N %u: blocks of %u do not cut it into at most %u a side", rows, one,
                    BLOCKS_MAX);
                continue;
            }
            measure(gemm, rows, one, devices, raw_seconds[i]);
        }
    }
}

static int run_gemm(int argc, char **argv)
{
    static const struct bench_plot plot = {
        .title = "Blocked DGEMM", .x_label = "rows and columns, N", .y_label = "TFLOP/s"};
    struct gemm_options given          = {0};
    struct cli_parsed parsed           = cli_parse(&bench_gemm, argc, argv, &given);
    struct bench_cluster_config config = {0};
    struct bench_raw_gemm raw          = {.size_count = SIZES};
    struct gemm *gemm;
    double seconds[SIZES];
    bool ok;

    if (parsed.exit >= 0) {
        return parsed.exit;
    }
    raw.cuda =
        bench_machine_gpus() > 0 && (given.gpus == NULL || strcmp(given.gpus, "none") != 0);
    given.rows = given.rows > 0 ? given.rows : raw.cuda ? 16384 : 2048;
    if (given.rows % 16 != 0 || given.rows > 65536) {
        return cli_usage(&bench_gemm, "--n is a multiple of 16 up to 65536");
    }
    for (uint32_t i = 0; i < SIZES; i++) {
        raw.size[i] = given.rows >> (SIZES - 1 - i);
    }
    config.gpus        = raw.cuda ? given.gpus : "none";
    config.cpu_devices = raw.cuda ? 0 : given.cpu_devices > 0 ? given.cpu_devices : 2;

    bench_say("one library call");
    bench_must_run_raw(bench_raw_gemm_run, &raw, seconds, SIZES);
    gemm = bench_must_alloc(sizeof(*gemm));
    bench_report_init(&gemm->report, "Plasmon: blocked DGEMM");
    gemm->report.x_title = "N";
    bench_must_start(&gemm->cluster, &config);
    measure_all(gemm, &raw, seconds, given.block);
    bench_cluster_finish(&gemm->cluster);

    bench_report_print(&gemm->report);
    ok = bench_report_write_json(&gemm->report, given.json);
    ok &= bench_plot_write(&plot, &gemm->report, "TFLOP/s", given.plot);
    bench_report_finish(&gemm->report);
    pl_free(gemm);
    return ok ? CLI_OK : CLI_FAIL;
}
