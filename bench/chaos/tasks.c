/*
 * Tasks of the main process: small ones that show that work goes on, large ones that fill a device,
 * and those that do what may not be done. Nothing here waits.
 */
#include <stdio.h>

#include "base/alloc.h"
#include "bench/chaos/chaos.h"

#define PROBE_ELEMENTS 16
#define LIMIT_MS       100
#define RETRIES        1000

enum chaos_turn chaos_wrong(struct chaos *chaos, const struct chaos_fault *fault,
                            const char *what, const char *why)
{
    (void)snprintf(chaos->tally.text, sizeof(chaos->tally.text), "%s: %s%s%.800s",
                   chaos_kind_name(fault->kind), what, why != NULL ? ": " : "",
                   why != NULL ? why : "");
    return CHAOS_WRONG;
}

/* --------------------------------------------------------------------- tasks of our own */

struct plasmon_ref *chaos_fill(struct chaos *chaos, uint64_t bytes, int64_t value,
                               int device)
{
    const struct plasmon_shape shape =
        bench_shape(PLASMON_I64, 1, (int64_t)(bytes / sizeof(int64_t)), 0);
    const struct plasmon_arg arg  = {.mode = PLASMON_OUT, .shape = &shape};
    const plasmon_scalar_t scalar = {.i = value};
    struct plasmon_call call      = PLASMON_CALL_INIT;
    struct plasmon_ref *ref       = NULL;

    call.function     = "fill_int";
    call.args         = &arg;
    call.arg_count    = 1;
    call.scalars      = &scalar;
    call.scalar_count = 1;
    call.device       = device;
    call.retries      = RETRIES;
    if (plasmon_submit(chaos->cluster.client, &call, &ref, NULL) != PLASMON_OK) {
        bench_die("submitting: %s", plasmon_error(chaos->cluster.client));
    }
    (void)plasmon_flush(chaos->cluster.client); /* what it says the task says, too */
    return ref;
}

void chaos_let_go(struct chaos *chaos, struct plasmon_ref **io_ref)
{
    if (*io_ref != NULL) {
        (void)plasmon_release(chaos->cluster.client, *io_ref);
        *io_ref = NULL;
    }
}

int chaos_number(const struct chaos *chaos, uint32_t device)
{
    return chaos->cluster.device[device].number;
}

void chaos_probe(struct chaos *chaos, struct chaos_fault *fault, int device)
{
    fault->probe = chaos_fill(chaos, PROBE_ELEMENTS * sizeof(int64_t), 7, device);
}

static bool is_filled(const struct chaos *chaos)
{
    const struct chaos_board *board = chaos->cluster.board;

    return atomic_load(&board->begun[CHAOS_COST_ROOM]) >
           atomic_load(&board->ended[CHAOS_COST_ROOM]);
}

/* MENDED: it is done. */
enum chaos_turn chaos_probe_step(struct chaos *chaos, struct chaos_fault *fault)
{
    plasmon_status_t status = plasmon_state(chaos->cluster.client, fault->probe);

    if (status == PLASMON_INPROGRESS) {
        return CHAOS_GOES_ON;
    }
    if (status != PLASMON_OK && !(status == PLASMON_EDEVMEM && is_filled(chaos))) {
        return chaos_wrong(chaos, fault, "the task that was submitted then failed",
                           plasmon_error(chaos->cluster.client));
    }
    chaos_let_go(chaos, &fault->probe);
    return CHAOS_MENDED;
}

/* ------------------------------------------------------------- functions that misbehave */

static const char illegal_cuda[] =
    "extern \"C\" __global__ void chaos_illegal(unsigned long "
    "long *x, long long n)\n"
    "{ *(volatile int *)8 = (int)n; x[0] = 1; }\n";
static const char illegal_c[] = "#include <stdint.h>\n"
                                "void chaos_illegal(uint64_t *x, int64_t n)\n"
                                "{ *(volatile int *)8 = (int)n; x[0] = 1; }\n";
static const char endless_cuda[] =
    "extern \"C\" __global__ void chaos_endless(unsigned long long *x, long long n)\n"
    "{ unsigned long long now;\n"
    "  do { asm volatile(\"mov.u64 %0, %globaltimer;\" : \"=l\"(now)); } while (now != "
    "0);\n"
    "  x[0] = (unsigned long long)n; }\n";
static const char endless_c[] = "#include <stdint.h>\n"
                                "#include <unistd.h>\n"
                                "void chaos_endless(uint64_t *x, int64_t n)\n"
                                "{ for (;;) { pause(); } x[0] = (uint64_t)n; }\n";

static plasmon_status_t make_function(struct plasmon_client *client, const char *name,
                                      const char *cuda, const char *c)
{
    struct plasmon_source_options options = PLASMON_SOURCE_OPTIONS_INIT;
    char signature[96];
    plasmon_status_t status;

    options.c_text = c;
    (void)snprintf(signature, sizeof(signature), "%s(out i64[n] x, i64 count := n)", name);
    status = plasmon_function_source(client, name, cuda, signature, &options);
    return status == PLASMON_OK ? plasmon_function_wait(client, name, 60000) : status;
}

bool chaos_prepare_functions(struct chaos_cluster *cluster, char out_why[256])
{
    if (make_function(cluster->client, "chaos_illegal", illegal_cuda, illegal_c) !=
            PLASMON_OK ||
        make_function(cluster->client, "chaos_endless", endless_cuda, endless_c) !=
            PLASMON_OK) {
        (void)snprintf(out_why, 256, "%.255s", plasmon_error(cluster->client));
        return false;
    }
    return true;
}

void chaos_misbehave(struct chaos *chaos, struct chaos_fault *fault, const char *function)
{
    const struct plasmon_shape shape = bench_shape(PLASMON_I64, 1, PROBE_ELEMENTS, 0);
    const struct plasmon_arg arg     = {.mode = PLASMON_OUT, .shape = &shape};
    struct plasmon_call call         = PLASMON_CALL_INIT;

    call.function      = function;
    call.args          = &arg;
    call.arg_count     = 1;
    call.device        = chaos_number(chaos, fault->device);
    call.retries       = fault->kind == CHAOS_ILLEGAL ? 0 : RETRIES;
    call.time_limit_ms = fault->kind == CHAOS_ENDLESS ? LIMIT_MS : 0;
    fault->fill        = PL_NEW_N(struct plasmon_ref *, 1);
    if (fault->fill == NULL ||
        plasmon_submit(chaos->cluster.client, &call, fault->fill, NULL) != PLASMON_OK) {
        bench_die("submitting %s: %s", function, plasmon_error(chaos->cluster.client));
    }
    fault->fill_count = 1;
    (void)plasmon_flush(chaos->cluster.client); /* what it says the task says, too */
}

/* Has the one that misbehaves failed as it must? MENDED: yes. */
enum chaos_turn chaos_culprit_step(struct chaos *chaos, struct chaos_fault *fault)
{
    plasmon_status_t status;

    if (fault->fill_count == 0) {
        return CHAOS_MENDED; /* it has, before */
    }
    status = plasmon_state(chaos->cluster.client, fault->fill[0]);
    if (status == PLASMON_INPROGRESS) {
        return CHAOS_GOES_ON;
    }
    if (fault->kind == CHAOS_ENDLESS
            ? status != PLASMON_ETIMELIMIT
            : status != PLASMON_EDEVICE && status != PLASMON_EWORKER) {
        return chaos_wrong(chaos, fault, "it ended otherwise", plasmon_status_name(status));
    }
    chaos_let_go(chaos, &fault->fill[0]);
    fault->fill_count = 0;
    return CHAOS_MENDED;
}
