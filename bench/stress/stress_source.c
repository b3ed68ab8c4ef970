/*
 * Functions in source text. Each has constants of its own in it, so each is a
 * module of its own: one that is called for the first time in the middle of a
 * graph is compiled and loaded while streams wait for each other.
 *
 * All arguments are strided, so any view will do.
 *
 * A function delays before it reads and writes. So whoever did not wait for it
 * sees what was there before, and whoever overwrote or freed its inputs too
 * early is seen by it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/stress/stress.h"

#define TEXT_BYTES    2048
#define PROBE_WAIT_MS 60000u
#define FACTOR_X(n)   (2 * (uint64_t)(n) + 3)
#define FACTOR_Z(n)   (5 * (uint64_t)(n) + 1)

static const char signature[] = "%s(out i64[r,c]~ y, in i64[r,c]~ x, in i64[r,c]~ z, i64 "
                                "us, i64 rows := r, i64 columns "
                                ":= c)";

static const char cuda_text[] =
    "extern \"C\" __global__ void %s(unsigned long long *y, long long yr, long "
    "long yc,\n"
    "    const unsigned long long *x, long long xr, long long xc,\n"
    "    const unsigned long long *z, long long zr, long long zc, long long "
    "us,\n"
    "    long long rows, long long columns)\n"
    "{\n"
    "    unsigned long long begin, now;\n"
    "    asm volatile(\"mov.u64 %%0, %%globaltimer;\" : \"=l\"(begin));\n"
    "    do {\n"
    "        asm volatile(\"mov.u64 %%0, %%globaltimer;\" : \"=l\"(now));\n"
    "    } while (now - begin < (unsigned long long)us * 1000);\n"
    "    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;\n"
    "         i < rows * columns; i += gridDim.x * (long long)blockDim.x) {\n"
    "        long long r = i / columns, c = i %% columns;\n"
    "        y[r * yr + c * yc] = x[r * xr + c * xc] * %lluull +\n"
    "                             z[r * zr + c * zc] * %lluull + %uull;\n"
    "    }\n"
    "}\n";

/* Sleeps, so that the cores stay free for what is tested beside it. */
static const char c_text[] =
    "#include <stdint.h>\n"
    "#include <time.h>\n"
    "void %s(uint64_t *y, int64_t yr, int64_t yc, const uint64_t *x, int64_t "
    "xr, int64_t "
    "xc,\n"
    "    const uint64_t *z, int64_t zr, int64_t zc, int64_t us, int64_t rows,\n"
    "    int64_t columns)\n"
    "{\n"
    "    struct timespec delay = {us / 1000000, us %% 1000000 * 1000};\n"
    "    nanosleep(&delay, 0);\n"
    "    for (int64_t r = 0; r < rows; r++) {\n"
    "        for (int64_t c = 0; c < columns; c++) {\n"
    "            y[r * yr + c * yc] = x[r * xr + c * xc] * %lluull +\n"
    "                                 z[r * zr + c * zc] * %lluull + %uull;\n"
    "        }\n"
    "    }\n"
    "}\n";

uint64_t stress_source_value(uint32_t number, uint64_t x, uint64_t z)
{
    return x * FACTOR_X(number) + z * FACTOR_Z(number) + number;
}

static plasmon_status_t make_known(struct plasmon_client *client, uint32_t number,
                                   char out_name[32])
{
    struct plasmon_source_options options = PLASMON_SOURCE_OPTIONS_INIT;
    char cuda[TEXT_BYTES], c[TEXT_BYTES], says[sizeof(signature) + 32];

    (void)snprintf(out_name, 32, "stress_mix_%u", number);
    (void)snprintf(says, sizeof(says), signature, out_name);
    (void)snprintf(cuda, sizeof(cuda), cuda_text, out_name,
                   (unsigned long long)FACTOR_X(number),
                   (unsigned long long)FACTOR_Z(number), number);
    (void)snprintf(c, sizeof(c), c_text, out_name, (unsigned long long)FACTOR_X(number),
                   (unsigned long long)FACTOR_Z(number), number);
    options.c_text = c;
    return plasmon_function_source(client, out_name, cuda, says, &options);
}

plasmon_status_t stress_source_probe(struct stress_ground *ground)
{
    char name[32];
    plasmon_status_t status = make_known(ground->client, 0, name);

    if (status == PLASMON_OK) {
        status = plasmon_function_wait(ground->client, name, PROBE_WAIT_MS);
    }
    return status;
}

void stress_source_ready(struct stress_thread *thread, uint32_t number, char out_name[32])
{
    struct stress_ground *ground = thread->ground;
    plasmon_status_t status      = PLASMON_OK;

    (void)snprintf(out_name, 32, "stress_mix_%u", number);
    (void)pthread_mutex_lock(&ground->source_lock); /* cannot fail: not held */
    if ((ground->sources_known >> number & 1) == 0) {
        status = make_known(ground->client, number, out_name);
        ground->sources_known |= 1ull << number;
        atomic_fetch_add(&ground->covered.modules, 1);
    }
    (void)pthread_mutex_unlock(&ground->source_lock);
    stress_must(thread, status, "plasmon_function_source");
}
