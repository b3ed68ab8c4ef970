/*
 * `plasmon bench spill`: a program whose values are 1, 2 and 4 times what its device has memory
 * for, beside the same program where all of them fit, and beside what must be moved at the rate of
 * pinned copies: both in the same run.
 *
 * The program adds to values in place, one value a task, so that each that goes must be copied out
 * and each that comes back, in. It submits all of its tasks and waits for the last; in "bursts" it
 * waits for some at a time, and meanwhile the device works for a while on what it has, which is
 * when values can be copied ahead of need; that work is not counted. At the end all elements of all
 * values are compared with what they must be.
 *
 * THE LIMIT of a row is the longer of two times: of the program where everything fits, and of the
 * copies that even a plan which knows all accesses beforehand must make (spill_plan.c), in both
 * directions at once, at the rate that pinned copies have one direction at a time. (A device that
 * is half as fast when both directions copy does not reach it.)
 *
 * Modes: both what is copied ahead of need and what is brought back and kept ahead of its turn, or
 * one of them, or none.
 */
#include "bench/spill.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/ram.h"
#include "bench/bench.h"

enum { FACTORS = 3, BURST_PART = 4, VALUES_MAX = 4096 };

struct mode {
    const char *name;
    bool write_back, prefetch;
};
static const struct mode modes[]       = {{"both", true, true},
                                          {"no write-back", false, true},
                                          {"no prefetch", true, false},
                                          {"neither", false, false}};
static const uint32_t factors[FACTORS] = {1, 2, 4};

struct spill_options {
    uint32_t device_mib;
    uint32_t value_mib;
    uint32_t rounds;
    const char *gpus;
    const char *json;
};

#define OPTION(field) offsetof(struct spill_options, field)
static const struct cli_option options[] = {
    {"--device-mib", "N", CLI_COUNT, OPTION(device_mib),
     "memory of the device [16384 on a GPU, 64 on a CPU device; less where there is not "
     "enough "
     "host memory for four times as much]"},
    {"--value-mib", "N", CLI_COUNT, OPTION(value_mib),
     "size of a value [256 on a GPU, 1 on a CPU device]"},
    {"--rounds", "N", CLI_COUNT, OPTION(rounds), "accesses to each value [8]"},
    {"--gpus", "N", CLI_TEXT, OPTION(gpus), "GPUs: 1 or none [1 where there is one]"},
    {"--json", "FILE", CLI_OUTPUT, OPTION(json), "write the results as JSON"},
};

static int run_spill(int argc, char **argv);
const struct cli_command bench_spill = {
    .name    = "bench spill",
    .summary = "more values than a device has memory for, beside enough of it",
    .usage   = "[options]",
    .text =
        "Always in private clusters of one device on this machine, one after the other.",
    .options      = options,
    .option_count = PL_COUNT(options),
    .run          = run_spill,
};

struct spill {
    struct bench_cluster cluster;
    struct bench_cluster_config config;
    struct bench_report report;
    uint64_t device_bytes, value_bytes;
    uint64_t memory_bytes; /* of the host, for what does not fit */
    uint32_t room;         /* values that fit */
    uint32_t rounds;
    double pinned[2];                     /* GB/s in, out */
    double fits[FACTORS][SPILL_PATTERNS]; /* seconds an access where everything fits */
    struct plasmon_ref *value[VALUES_MAX], *ones;
};

/* -------------------------------------------------------------------------- the program */

static struct plasmon_ref *make_value(struct spill *spill, double number)
{
    const struct plasmon_shape shape =
        bench_shape(PLASMON_F32, 1, (int64_t)(spill->value_bytes / 4), 0);

    return bench_must_make(&spill->cluster, "fill", &shape,
                           &(plasmon_scalar_t){.f = number}, 1, 0);
}

/* The returned ref is ready when it is done. */
static struct plasmon_ref *add_one(struct spill *spill, struct plasmon_ref *value,
                                   double times)
{
    const struct plasmon_arg args[2] = {{.mode = PLASMON_INOUT, .ref = value},
                                        {.mode = PLASMON_IN, .ref = spill->ones}};

    return bench_must_task(&spill->cluster, "axpy", args, 2,
                           &(plasmon_scalar_t){.f = times}, 1, 0);
}

static void wait_for(struct spill *spill, struct plasmon_ref **task)
{
    bench_must_wait(&spill->cluster, task, 1);
    bench_must_release(&spill->cluster, task, 1);
}

/* Accesses [first, end), all of them submitted at once; seconds. */
static double access_all(struct spill *spill, enum spill_pattern pattern, uint32_t values,
                         uint32_t first, uint32_t end)
{
    uint64_t began           = pl_now_ns();
    struct plasmon_ref *last = NULL;

    for (uint32_t n = first; n < end; n++) {
        if (last != NULL) {
            bench_must_release(&spill->cluster, &last, 1);
        }
        last = add_one(spill, spill->value[spill_access(pattern, values, n)], 1);
    }
    wait_for(spill, &last);
    return (double)(pl_now_ns() - began) * 1e-9;
}

/* The device works on what it has for about so long. */
static void work(struct spill *spill, double seconds)
{
    uint64_t until = pl_now_ns() + (uint64_t)(seconds * 1e9);

    while (pl_now_ns() < until) {
        struct plasmon_ref *task = bench_must_touch(&spill->cluster, spill->ones, 0);

        wait_for(spill, &task);
    }
}

static double access_in_bursts(struct spill *spill, uint32_t values, uint32_t count)
{
    uint32_t burst = (uint32_t)pl_max_u64(1, spill->room / BURST_PART);
    double seconds = 0;

    for (uint32_t first = 0; first < count; first += burst) {
        uint32_t end = (uint32_t)pl_min_u64(count, first + burst);
        double one   = access_all(spill, SPILL_BURSTS, values, first, end);

        seconds += one;
        work(spill, one < 0.0005 ? 0.001 : 2 * one);
    }
    return seconds;
}

static double extreme(struct spill *spill, const char *function, struct plasmon_ref *value)
{
    const struct plasmon_shape shape  = bench_shape(PLASMON_F32, 1, 1, 0);
    const struct plasmon_arg args[2]  = {{.mode = PLASMON_OUT, .shape = &shape},
                                         {.mode = PLASMON_IN, .ref = value}};
    const plasmon_scalar_t scalars[2] = {{.i = 0}, {.i = 1}};
    struct plasmon_call call          = PLASMON_CALL_INIT;
    struct plasmon_ref *result;
    float number = 0;

    call.function     = function;
    call.args         = args;
    call.arg_count    = 2;
    call.scalars      = scalars;
    call.scalar_count = 2;
    bench_must(&spill->cluster, plasmon_submit(spill->cluster.client, &call, &result, NULL),
               function);
    bench_must(&spill->cluster,
               plasmon_get(spill->cluster.client, result, &number, sizeof(number),
                           PLASMON_FOREVER),
               "reading a result");
    bench_must_release(&spill->cluster, &result, 1);
    return (double)number;
}

/* Every element of every value: it began with its number, and one was added at each access. */
static void must_be_right(struct spill *spill, enum spill_pattern pattern, uint32_t values,
                          uint32_t count)
{
    for (uint32_t i = 0; i < values; i++) {
        double want = i, least, most;

        for (uint32_t n = 0; n < count; n++) {
            want += spill_access(pattern, values, n) == i;
        }
        least = extreme(spill, "min", spill->value[i]);
        most  = extreme(spill, "max", spill->value[i]);
        if (least != want || most != want) {
            bench_die("%s: value %u is between %g and %g, and must be %g",
                      spill_pattern_name(pattern), i, least, most, want);
        }
    }
}

/* --------------------------------------------------------------------------- one figure */

static uint32_t values_of(const struct spill *spill, uint32_t factor)
{
    return (uint32_t)pl_min_u64((uint64_t)spill->room * factors[factor], VALUES_MAX);
}

/* Seconds an access; what was moved for it goes to *out_moved. */
static double measure(struct spill *spill, enum spill_pattern pattern, uint32_t factor,
                      struct bench_status *out_moved)
{
    uint32_t values = values_of(spill, factor), count = values * spill->rounds;
    struct bench_status before, after;
    double seconds;

    for (uint32_t i = 0; i < values; i++) {
        spill->value[i] = make_value(spill, i);
    }
    bench_must_wait(&spill->cluster, spill->value, values);
    work(spill, 0.01);
    bench_must_status(&spill->cluster, &before);
    seconds = pattern == SPILL_BURSTS ? access_in_bursts(spill, values, count)
                                      : access_all(spill, pattern, values, 0, count);
    bench_must_status(&spill->cluster, &after);
    must_be_right(spill, pattern, values, count);
    bench_must_release(&spill->cluster, spill->value, values);
    work(spill, 0.001); /* they are gone before others are made */
    out_moved->spill_bytes      = after.spill_bytes - before.spill_bytes;
    out_moved->write_back_bytes = after.write_back_bytes - before.write_back_bytes;
    out_moved->restore_bytes    = after.restore_bytes - before.restore_bytes;
    return seconds / count;
}

static void add_row(struct spill *spill, const struct mode *mode,
                    enum spill_pattern pattern, uint32_t factor)
{
    uint32_t values = values_of(spill, factor), count = values * spill->rounds;
    uint32_t misses = spill_misses_least(pattern, values, spill->room, count);
    double slowest =
        1e-9 / (spill->pinned[0] < spill->pinned[1] ? spill->pinned[0] : spill->pinned[1]);
    double copies = (double)misses / count * (double)spill->value_bytes * slowest;
    double fits   = spill->fits[factor][pattern];
    struct bench_status moved;
    double seconds       = measure(spill, pattern, factor, &moved);
    struct bench_row row = {.x          = factors[factor],
                            .value      = seconds * 1e6,
                            .unit       = "us",
                            .limit      = (copies > fits ? copies : fits) * 1e6,
                            .limit_name = copies > fits ? "the copies it must make"
                                                        : "where everything fits"};

    (void)snprintf(row.name, sizeof(row.name), "%s, %ux", spill_pattern_name(pattern),
                   factors[factor]);
    (void)snprintf(row.series, sizeof(row.series), "%s", mode->name);
    (void)snprintf(row.note, sizeof(row.note),
                   "back %.2f, out %.2f, ahead %.2f an access; least %.2f; fits: %.4g us",
                   (double)moved.restore_bytes / (double)spill->value_bytes / count,
                   (double)moved.spill_bytes / (double)spill->value_bytes / count,
                   (double)moved.write_back_bytes / (double)spill->value_bytes / count,
                   (double)misses / count, fits * 1e6);
    bench_report_add(&spill->report, &row);
}

/* ----------------------------------------------------------------------------- clusters */

static void begin(struct spill *spill, uint64_t device_bytes, const struct mode *mode)
{
    spill->config.device_memory = device_bytes;
    spill->config.spill_memory  = spill->memory_bytes;
    spill->config.write_back    = mode->write_back ? 0 : PLASMON_NO_WRITE_BACK;
    spill->config.no_prefetch   = !mode->prefetch;
    bench_must_start(&spill->cluster, &spill->config);
    spill->ones = make_value(spill, 1);
    bench_must_wait(&spill->cluster, &spill->ones, 1);
}

static void end(struct spill *spill)
{
    bench_must_release(&spill->cluster, &spill->ones, 1);
    bench_cluster_finish(&spill->cluster);
}

static void measure_where_all_fits(struct spill *spill)
{
    uint64_t values = values_of(spill, FACTORS - 1);
    struct bench_status moved;

    bench_say("where everything fits");
    begin(spill, 2 * values * spill->value_bytes, &modes[3]);
    for (uint32_t factor = 0; factor < FACTORS; factor++) {
        for (int pattern = 0; pattern < SPILL_PATTERNS; pattern++) {
            spill->fits[factor][pattern] =
                measure(spill, (enum spill_pattern)pattern, factor, &moved);
            if (moved.spill_bytes + moved.restore_bytes > 0) {
                bench_die("%s, %ux: something was spilled where everything was to fit",
                          spill_pattern_name((enum spill_pattern)pattern), factors[factor]);
            }
        }
    }
    end(spill);
}

static void measure_mode(struct spill *spill, const struct mode *mode)
{
    begin(spill, spill->device_bytes, mode);
    for (uint32_t factor = 0; factor < FACTORS; factor++) {
        for (int pattern = 0; pattern < SPILL_PATTERNS; pattern++) {
            add_row(spill, mode, (enum spill_pattern)pattern, factor);
        }
    }
    end(spill);
}

static void size(struct spill *spill, uint64_t device_bytes)
{
    spill->device_bytes = device_bytes;
    /* What the head keeps free of a device, the ones, and what a check makes. */
    spill->room = (uint32_t)pl_min_u64(device_bytes / 16 * 15 / spill->value_bytes,
                                       VALUES_MAX / factors[FACTORS - 1]);
    spill->room -= (uint32_t)pl_min_u64(spill->room, 2);
}

/*
 * Host memory for spilling, so that no value needs a file: a copy of each, or only of those that
 * are not on the device, and what is kept for those that come back (docs/memory.md). A quarter of
 * what this process may have is left for everybody else.
 */
static bool memory_find(struct spill *spill)
{
    uint64_t values     = values_of(spill, FACTORS - 1);
    uint64_t most       = (values + 8) * spill->value_bytes;
    uint64_t least      = (values - spill->room + 8) * spill->value_bytes;
    uint64_t there      = pl_ram().available / 4 * 3;
    spill->memory_bytes = pl_min_u64(most, there);
    return least <= there;
}

/* The device that was asked for, or the largest below the usual one for whose values there is host memory. */
static bool fit(struct spill *spill, uint32_t device_mib, uint64_t usual_mib)
{
    uint64_t mib = device_mib > 0 ? device_mib : usual_mib;

    size(spill, mib << 20);
    while (spill->room >= 6 && !memory_find(spill) && device_mib == 0) {
        size(spill, (mib /= 2) << 20);
    }
    return spill->room >= 6 && memory_find(spill);
}

static int no_memory(const struct spill *spill)
{
    char there[32], device[32];

    return cli_fail(
        &bench_spill,
        "four times a device of %s do not fit into the memory of this host: %s are "
        "available (its "
        "control group counted), of which three quarters are used; give a smaller "
        "--device-mib, and --value-mib",
        pl_format_bytes(spill->device_bytes, device),
        pl_format_bytes(pl_ram().available, there));
}

static int run_spill(int argc, char **argv)
{
    struct spill_options given = {.rounds = 8};
    struct cli_parsed parsed   = cli_parse(&bench_spill, argc, argv, &given);
    static struct spill spill;
    bool cuda = bench_machine_gpus() >= 1;
    bool ok;

    if (parsed.exit >= 0) {
        return parsed.exit;
    }
    if (given.gpus != NULL && strcmp(given.gpus, "none") == 0) {
        cuda = false;
    } else if (given.gpus != NULL && (strcmp(given.gpus, "1") != 0 || !cuda)) {
        return cli_usage(&bench_spill,
                         "--gpus is none, or 1 where there is one, and not \"%s\"",
                         given.gpus);
    }
    spill.value_bytes = (uint64_t)(given.value_mib > 0 ? given.value_mib
                                   : cuda              ? 256
                                                       : 1)
                        << 20;
    spill.rounds = given.rounds;
    if (spill.rounds == 0) {
        return cli_usage(&bench_spill, "each value is accessed");
    }
    if (!fit(&spill, given.device_mib, cuda ? 16384 : 64)) {
        return spill.room >= 6
                   ? no_memory(&spill)
                   : cli_usage(&bench_spill,
                               "a device has room for 8 values at least, and the host for "
                               "four times as many");
    }
    spill.config = (struct bench_cluster_config){
        .gpus = cuda ? "1" : "none", .cpu_devices = 1, .is_private = true};
    bench_must_run_raw(bench_raw_pinned_run, &cuda, spill.pinned, PL_COUNT(spill.pinned));
    bench_report_init(&spill.report, "Plasmon: more values than a device has memory for");
    spill.report.x_title = "times the memory";
    bench_report_remark(&spill.report,
                        "time an access, of %u MiB; %u fit; pinned copies %.2f GB/s in, "
                        "%.2f out",
                        (unsigned)(spill.value_bytes >> 20), spill.room, spill.pinned[0],
                        spill.pinned[1]);
    measure_where_all_fits(&spill);
    for (size_t i = 0; i < PL_COUNT(modes); i++) {
        measure_mode(&spill, &modes[i]);
    }
    bench_report_print(&spill.report);
    ok = bench_report_write_json(&spill.report, given.json);
    bench_report_finish(&spill.report);
    return ok ? CLI_OK : CLI_FAIL;
}
