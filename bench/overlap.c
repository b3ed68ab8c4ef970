/*
 * `plasmon bench overlap`: how much a matrix product slows down beside transfers, and transfers
 * beside a product, by each route. Two devices: the first sends objects, the second receives them,
 * and products run on one of the two.
 *
 * All objects are made before the clock starts, so that nothing but copies runs beside the
 * products. To see how fast A is while B runs, B must outlast A: the product is timed beside
 * transfers that take longer, and the transfers beside a product that does.
 */
#include <stdio.h>
#include <string.h>

#include "bench/bench.h"

#define ROUNDS      3u
#define OBJECTS_MAX 512u
/* a run of either takes about so long, when there is memory for it */
#define RUN_SECONDS 0.15

struct overlap_options {
    uint32_t rows;
    uint32_t object_mib;
    const char *routes;
    const char *gpus;
    const char *json;
};

#define OPTION(field) offsetof(struct overlap_options, field)
static const struct cli_option options[] = {
    {"--n", "N", CLI_COUNT, OPTION(rows),
     "rows and columns of the product in fp64 [4096 on GPUs, 512 on CPUs]"},
    {"--object-mib", "N", CLI_COUNT, OPTION(object_mib),
     "size of an object that moves [64 on GPUs, 16 on CPUs]"},
    {"--routes", "LIST", CLI_TEXT, OPTION(routes), "of peer, host and nccl [peer,host]"},
    {"--gpus", "N", CLI_TEXT, OPTION(gpus), "GPUs: 2 or none [2 where there are as many]"},
    {"--json", "FILE", CLI_OUTPUT, OPTION(json), "write the results as JSON"},
};

static int run_overlap(int argc, char **argv);
const struct cli_command bench_overlap = {
    .name         = "bench overlap",
    .summary      = "a matrix product and transfers of each route, alone and side by side",
    .usage        = "[options]",
    .text         = "Always in private clusters on this machine: one for each route.",
    .options      = options,
    .option_count = PL_COUNT(options),
    .run          = run_overlap,
};

struct overlap {
    struct bench_cluster cluster;
    struct bench_report report;
    const char *route;
    uint32_t rows, objects;
    uint64_t bytes;
    struct plasmon_ref *object[OBJECTS_MAX], *task[OBJECTS_MAX];
    struct plasmon_ref *a, *b, *c; /* on the device of the products */
    int device;
};

/* ---------------------------------------------------------------------------- what runs */

static struct plasmon_ref *random_matrix(struct overlap *overlap, int64_t seed)
{
    const struct plasmon_shape shape =
        bench_shape(PLASMON_F64, 2, (int64_t)overlap->rows, (int64_t)overlap->rows);
    const plasmon_scalar_t scalars[5] = {
        {.i = seed}, {.i = 0}, {.i = (int64_t)overlap->rows}, {.f = -1}, {.f = 1}};

    return bench_must_make(&overlap->cluster, "random_uniform", &shape, scalars, 5,
                           overlap->device);
}

static void make_matrices(struct overlap *overlap, int device)
{
    overlap->device = device;
    overlap->a      = random_matrix(overlap, 1);
    overlap->b      = random_matrix(overlap, 2);
    overlap->c      = random_matrix(overlap, 3);
    bench_must_wait(&overlap->cluster, &overlap->c, 1);
}

static void release_matrices(struct overlap *overlap)
{
    bench_must_release(&overlap->cluster, &overlap->a, 1);
    bench_must_release(&overlap->cluster, &overlap->b, 1);
    bench_must_release(&overlap->cluster, &overlap->c, 1);
}

/* c := c / 2 + a b, so that it stays finite. The returned ref is ready when the last one is done. */
static struct plasmon_ref *submit_products(struct overlap *overlap, uint32_t count)
{
    const struct plasmon_arg args[3]  = {{.mode = PLASMON_INOUT, .ref = overlap->c},
                                         {.mode = PLASMON_IN, .ref = overlap->a},
                                         {.mode = PLASMON_IN, .ref = overlap->b}};
    const plasmon_scalar_t scalars[4] = {{.f = 1}, {.f = 0.5}, {.i = 0}, {.i = 0}};
    struct plasmon_ref *last          = NULL;

    for (uint32_t i = 0; i < count; i++) {
        if (last != NULL) {
            bench_must_release(&overlap->cluster, &last, 1);
        }
        last = bench_must_task(&overlap->cluster, "gemm_into", args, 3, scalars, 4,
                               overlap->device);
    }
    return last;
}

static void make_objects(struct overlap *overlap)
{
    const struct plasmon_shape shape =
        bench_shape(PLASMON_F32, 1, (int64_t)(overlap->bytes / 4), 0);

    for (uint32_t i = 0; i < overlap->objects; i++) {
        const plasmon_scalar_t scalars[2] = {{.f = i}, {.f = 1}};

        overlap->object[i] =
            bench_must_make(&overlap->cluster, "arange", &shape, scalars, 2, 0);
    }
    bench_must_wait(&overlap->cluster, overlap->object, overlap->objects);
}

static void submit_transfers(struct overlap *overlap)
{
    for (uint32_t i = 0; i < overlap->objects; i++) {
        overlap->task[i] = bench_must_touch(&overlap->cluster, overlap->object[i], 1);
    }
}

static void finish_transfers(struct overlap *overlap)
{
    bench_must_wait(&overlap->cluster, overlap->task, overlap->objects);
    bench_must_release(&overlap->cluster, overlap->task, overlap->objects);
    bench_must_release(&overlap->cluster, overlap->object, overlap->objects);
}

static void finish_products(struct overlap *overlap, struct plasmon_ref *last)
{
    bench_must_wait(&overlap->cluster, &last, 1);
    bench_must_release(&overlap->cluster, &last, 1);
}

/* -------------------------------------------------------------------------------- times */

static double products_alone(struct overlap *overlap, uint32_t count)
{
    uint64_t began = pl_now_ns();

    finish_products(overlap, submit_products(overlap, count));
    return (double)(pl_now_ns() - began) * 1e-9;
}

static double transfers_alone(struct overlap *overlap)
{
    uint64_t began;

    make_objects(overlap);
    began = pl_now_ns();
    submit_transfers(overlap);
    finish_transfers(overlap);
    return (double)(pl_now_ns() - began) * 1e-9;
}

/* Both at once; how long the products took, or the transfers. */
static double together(struct overlap *overlap, uint32_t products, bool time_products)
{
    struct plasmon_ref *last;
    uint64_t began;
    double seconds;

    make_objects(overlap);
    began = pl_now_ns();
    /* first: a device has room for few launches */
    last = submit_products(overlap, products);
    submit_transfers(overlap);
    if (time_products) {
        finish_products(overlap, last);
    } else {
        finish_transfers(overlap);
    }
    seconds = (double)(pl_now_ns() - began) * 1e-9;
    if (time_products) {
        finish_transfers(overlap);
    } else {
        finish_products(overlap, last);
    }
    return seconds;
}

/* ------------------------------------------------------------------------------ figures */

static double median(struct overlap *overlap, uint32_t products, int what)
{
    double seconds[ROUNDS];

    for (size_t i = 0; i < ROUNDS; i++) {
        seconds[i] = what == 0   ? products_alone(overlap, products)
                     : what == 1 ? transfers_alone(overlap)
                                 : together(overlap, products, what == 2);
    }
    return bench_percentile(seconds, ROUNDS, 0.5);
}

static void add(struct overlap *overlap, const char *name, double value, const char *unit,
                double alone, const char *note)
{
    struct bench_row row = {
        .value = value, .unit = unit, .limit = alone, .limit_name = "the same alone"};

    (void)snprintf(row.name, sizeof(row.name), "%s", name);
    (void)snprintf(row.series, sizeof(row.series), "%s", overlap->route);
    (void)snprintf(row.note, sizeof(row.note), "%s", note);
    bench_report_add(&overlap->report, &row);
}

static void measure_device(struct overlap *overlap, int device)
{
    const char *end = device == 0 ? "sender" : "receiver";
    double flop     = 2.0 * overlap->rows * overlap->rows * overlap->rows;
    double bytes    = (double)overlap->bytes * overlap->objects;
    double product, transfers, alone, beside;
    uint32_t few, many;
    char name[64], note[96];

    make_matrices(overlap, device);
    (void)products_alone(overlap, 2);
    product   = products_alone(overlap, 8) / 8;
    transfers = median(overlap, 0, 1);

    few    = (uint32_t)pl_max_u64(2, (uint64_t)(0.5 * transfers / product));
    alone  = median(overlap, few, 0);
    beside = median(overlap, few, 2);
    (void)snprintf(name, sizeof(name), "product on the %s", end);
    (void)snprintf(note, sizeof(note), "%u products of %u rows, %u objects moving", few,
                   overlap->rows, overlap->objects);
    add(overlap, name, flop * few * 1e-12 / beside, "TFLOP/s", flop * few * 1e-12 / alone,
        note);

    many   = (uint32_t)(2 * transfers / product) + 2;
    beside = median(overlap, many, 3);
    (void)snprintf(name, sizeof(name), "transfers, product on the %s", end);
    (void)snprintf(note, sizeof(note), "%u products meanwhile", many);
    add(overlap, name, bytes * 1e-9 / beside, "GB/s", bytes * 1e-9 / transfers, note);
    release_matrices(overlap);
}

/* So many objects that moving them takes a while, and that fit into a quarter of a device. */
static void plan_objects(struct overlap *overlap)
{
    uint64_t fit = overlap->cluster.info[0].bytes_total / 4 / overlap->bytes;
    double seconds;

    overlap->objects = (uint32_t)pl_max_u64(1, pl_min_u64(4, fit));
    (void)transfers_alone(overlap);
    seconds = transfers_alone(overlap) / overlap->objects;
    overlap->objects =
        (uint32_t)pl_max_u64(overlap->objects, pl_min_u64((uint64_t)(RUN_SECONDS / seconds),
                                                          pl_min_u64(OBJECTS_MAX, fit)));
    (void)transfers_alone(overlap);
}

static void measure_route(struct overlap *overlap, struct bench_cluster_config *config)
{
    struct bench_status status;

    bench_say("route %s", overlap->route);
    config->transfer = overlap->route;
    bench_must_start(&overlap->cluster, config);
    plan_objects(overlap);
    measure_device(overlap, 1);
    measure_device(overlap, 0);
    bench_must_status(&overlap->cluster, &status);
    if (!bench_all_by(&status, overlap->route)) {
        bench_report_remark(&overlap->report,
                            "route %s: some copies went another way: the figures are not "
                            "of this route alone",
                            overlap->route);
    }
    bench_cluster_finish(&overlap->cluster);
}

static int run_overlap(int argc, char **argv)
{
    static const char *const routes[]  = {"peer", "host", "nccl"};
    struct overlap_options given       = {.routes = "peer,host"};
    struct cli_parsed parsed           = cli_parse(&bench_overlap, argc, argv, &given);
    struct bench_cluster_config config = {.is_private = true};
    struct overlap overlap             = {0};
    bool cuda                          = bench_machine_gpus() >= 2;
    bool ok;

    if (parsed.exit >= 0) {
        return parsed.exit;
    }
    if (given.gpus != NULL && strcmp(given.gpus, "none") == 0) {
        cuda = false;
    } else if (given.gpus != NULL && (strcmp(given.gpus, "2") != 0 || !cuda)) {
        return cli_usage(&bench_overlap,
                         "--gpus is none, or 2 where there are as many, and not \"%s\"",
                         given.gpus);
    }
    if (!cli_list_is_of(given.routes, "peer,host,nccl")) {
        return cli_usage(&bench_overlap,
                         "--routes is of peer, host and nccl, and not \"%s\"",
                         given.routes);
    }
    config.gpus        = cuda ? "2" : "none";
    config.cpu_devices = 2;
    overlap.rows       = given.rows > 0 ? given.rows : cuda ? 4096 : 512;
    overlap.bytes      = (uint64_t)(given.object_mib > 0 ? given.object_mib
                                    : cuda               ? 64
                                                         : 16)
                    << 20;
    bench_report_init(&overlap.report, "Plasmon: products beside transfers");
    for (size_t i = 0; i < PL_COUNT(routes); i++) {
        if (cli_list_has(given.routes, routes[i])) {
            overlap.route = routes[i];
            measure_route(&overlap, &config);
        }
    }
    bench_report_print(&overlap.report);
    ok = bench_report_write_json(&overlap.report, given.json);
    bench_report_finish(&overlap.report);
    return ok ? CLI_OK : CLI_FAIL;
}
