#include "example.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

void example_die(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    (void)vfprintf(stderr, format, args);
    va_end(args);
    (void)fputc('\n', stderr);
    exit(1);
}

void example_need(struct plasmon_client *client, plasmon_status_t status, const char *what)
{
    if (status != PLASMON_OK) {
        example_die("%s: %s (%s)", what, plasmon_error(client),
                    plasmon_status_name(status));
    }
}

void example_submit(struct plasmon_client *client, const char *function,
                    const struct plasmon_arg *args, uint32_t arg_count,
                    const plasmon_scalar_t *scalars, uint32_t scalar_count, int device,
                    struct plasmon_ref **out_refs)
{
    struct plasmon_call call = PLASMON_CALL_INIT;

    call.function     = function;
    call.args         = args;
    call.arg_count    = arg_count;
    call.scalars      = scalars;
    call.scalar_count = scalar_count;
    call.device       = device;
    example_need(client, plasmon_submit(client, &call, out_refs, NULL), function);
}

void example_release(struct plasmon_client *client, struct plasmon_ref *ref)
{
    example_need(client, plasmon_release(client, ref), "release");
}

struct plasmon_ref *example_rows(struct plasmon_client *client, struct plasmon_ref *ref,
                                 int64_t first, int64_t count, int64_t columns)
{
    struct plasmon_ref *view;

    example_need(client,
                 plasmon_view(client, ref, (const int64_t[]){first, 0},
                              (const int64_t[]){count, columns}, NULL, &view),
                 "view of rows");
    return view;
}

double example_seconds(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now); /* cannot fail with this clock */
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void example_progress(const char *what, uint64_t done, uint64_t total)
{
    static double last;
    bool terminal = isatty(STDERR_FILENO) == 1;
    double now    = example_seconds();

    if (done < total && (!terminal || now - last < 0.1)) {
        return;
    }
    last = now;
    (void)fprintf(stderr, "%s%s: %llu of %llu%s", terminal ? "\r\033[K" : "", what,
                  (unsigned long long)done, (unsigned long long)total,
                  done < total ? "" : "\n");
}

int64_t example_number(const char *option, const char *text, int64_t min, int64_t max)
{
    char *end;
    long long value;

    errno = 0;
    value = strtoll(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || value < min || value > max) {
        example_die("%s wants a number from %lld to %lld, not \"%s\"", option,
                    (long long)min, (long long)max, text);
    }
    return value;
}

struct example_route example_route_of(const char *status_json, const char *route)
{
    struct example_route result = {0, 0};
    const char *at              = strstr(status_json, "\"routes\":[");
    char key[64];
    unsigned long long copies;
    unsigned long long bytes;

    (void)snprintf(key, sizeof(key), "{\"route\":\"%s\",", route);
    at = at != NULL ? strstr(at, key) : NULL;
    if (at != NULL &&
        sscanf(at + strlen(key), "\"copies\":%llu,\"bytes\":%llu", &copies, &bytes) == 2) {
        result.copies = copies;
        result.bytes  = bytes;
    }
    return result;
}
