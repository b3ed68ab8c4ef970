/*
 * Small things that every benchmark needs: percentiles, memory that was touched, the speed of
 * memcpy, progress.
 */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/text.h"
#include "bench/bench.h"

#define DIE_TEXT_BYTES 16384 /* a compiler's words; the rest is left out */

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

double bench_percentile(double *samples, size_t count, double p)
{
    size_t rank;

    if (count == 0) {
        return 0;
    }
    qsort(samples, count, sizeof(*samples), compare);
    rank = (size_t)ceil(p * (double)count);
    return samples[rank > 0 ? rank - 1 : 0];
}

uint64_t bench_process_cpu_ns(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now); /* cannot fail on Linux */
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void bench_say(const char *format, ...)
{
    va_list args;

    fputs("bench: ", stderr);
    va_start(args, format);
    (void)vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
}

_Noreturn void bench_die(const char *format, ...)
{
    char text[DIE_TEXT_BYTES], clean[DIE_TEXT_BYTES];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    pl_text_clean(
        text, clean,
        sizeof(clean)); /* others have a part in it: a function's own words, say */
    (void)fflush(stdout);
    fprintf(stderr, "plasmon bench: %s\n", clean);
    exit(CLI_FAIL);
}

void *bench_must_alloc(size_t bytes)
{
    uint8_t *memory = pl_alloc_aligned(4096, bytes > 0 ? bytes : 1);

    if (memory == NULL) {
        bench_die("out of host memory: %zu bytes are needed", bytes);
    }
    memset(memory, 0x5a, bytes); /* page faults belong to nobody's figure */
    memset(memory, 0, bytes);
    return memory;
}

double bench_memcpy_seconds(void *dst, const void *src, size_t bytes)
{
    double seconds[5];

    for (size_t i = 0; i < PL_COUNT(seconds); i++) {
        uint64_t began = pl_now_ns();

        memcpy(dst, src, bytes);
        /* or the copies before the last are dead */
        __asm__ volatile("" ::"r"(dst) : "memory");
        seconds[i] = (double)(pl_now_ns() - began) * 1e-9;
    }
    return bench_percentile(seconds, PL_COUNT(seconds), 0.5);
}

uint32_t bench_parse_sizes(const char *text, uint64_t out[BENCH_SIZES_MAX])
{
    uint32_t count = 0;

    while (*text != '\0') {
        char *end;
        unsigned long long number = strtoull(text, &end, 10);

        if (end == text || *text == '-' || count == BENCH_SIZES_MAX) {
            return 0;
        }
        switch (*end) {
        case 'K':
            number <<= 10, end++;
            break;
        case 'M':
            number <<= 20, end++;
            break;
        case 'G':
            number <<= 30, end++;
            break;
        default:
            break;
        }
        if (number < 4 || number % 4 != 0 || (*end != ',' && *end != '\0')) {
            return 0;
        }
        out[count++] = number;
        text         = *end == ',' ? end + 1 : end;
    }
    return count;
}
