/*
 * A timeline as Chrome's trace event format (JSON), which ui.perfetto.dev and chrome://tracing open.
 *
 *   process   a device; process 1000 is the clients
 *   thread    a stream of it: run streams first, then copies in, bytes out, receives, then those of
 *             high priority
 *   slice     a launch ("X": begin and duration on the device)
 *   arrow     from the submit (a slice of no width in the clients' process) to where it runs ("s", "f")
 *
 * Times are microseconds since the first event, because doubles of microseconds since 1970 cannot
 * tell nanoseconds apart; `otherData` has the beginning in absolute time.
 */
#include <inttypes.h>

#include "base/str.h"
#include "client/client_int.h"
#include "wire/metrics.h"
#include "client/trace.h"

#define CLIENTS_PROCESS 1000u

static double us(const struct trace_view *view, uint64_t ns)
{
    return ns <= view->begin_ns ? 0 : (double)(ns - view->begin_ns) / 1000.0;
}

static void text(FILE *out, const char *value)
{
    struct pl_str quoted;

    pl_str_init(&quoted);
    pl_str_append_json(&quoted, value);
    (void)fputs(pl_str_text(&quoted), out);
    pl_str_finish(&quoted);
}

static void metadata(FILE *out, const char *what, uint32_t process, uint32_t thread,
                     const char *name)
{
    (void)fprintf(out,
                  "{\"ph\":\"M\",\"name\":\"%s\",\"pid\":%u,\"tid\":%u,\"args\":{\"name\":",
                  what, process, thread);
    text(out, name);
    (void)fprintf(out, "}},\n");
}

static void devices(const struct trace_view *view, FILE *out)
{
    for (uint32_t i = 0; i < view->device_count; i++) {
        const struct plasmon_device_info *info = &view->devices[i];
        uint64_t seen                          = 0;
        char name[224], stream[32];

        (void)snprintf(name, sizeof(name), "device %u: %s on %s", i,
                       info->name[0] != '\0' ? info->name : "?",
                       info->node[0] != '\0' ? info->node : "?");
        metadata(out, "process_name", i, 0, name);
        for (size_t k = 0; k < view->count; k++) {
            const struct plasmon_span *span = &view->spans[k];

            if (span->device == i && span->stream < 64 &&
                (seen & UINT64_C(1) << span->stream) == 0) {
                seen |= UINT64_C(1) << span->stream;
                metadata(out, "thread_name", i, span->stream,
                         trace_stream_name(view, i, span->stream, stream));
            }
        }
    }
    metadata(out, "process_name", CLIENTS_PROCESS, 0, "clients: submitted");
}

static void slice(const struct trace_view *view, const struct plasmon_span *span, FILE *out)
{
    (void)fprintf(
        out,
        "{\"ph\":\"X\",\"pid\":%u,\"tid\":%u,\"ts\":%.3f,\"dur\":%.3f,\"cat\":\"%s\","
        "\"name\":",
        span->device, span->stream, us(view, span->begin_ns),
        (double)(span->end_ns - span->begin_ns) / 1000.0, trace_kind_name(span->kind));
    text(out, span->label[0] != '\0' ? span->label : span->function);
    (void)fprintf(out, ",\"args\":{\"function\":");
    text(out, span->function);
    (void)fprintf(out,
                  ",\"task\":%" PRIu64 ",\"client\":\"%016" PRIx64 "\",\"launch\":%" PRIu64
                  ",\"bytes\":%" PRIu64 ",\"enqueued_us\":%.3f",
                  span->task, span->client, span->launch, span->bytes,
                  us(view, span->enqueued_ns));
    if (span->placed_ns != 0) {
        (void)fprintf(out, ",\"placed_us\":%.3f", us(view, span->placed_ns));
    }
    if (span->submit_ns != 0) {
        (void)fprintf(out, ",\"submitted_us\":%.3f", us(view, span->submit_ns));
    }
    if (span->kind != PLASMON_SPAN_RUN) {
        (void)fprintf(out, ",\"route\":\"%s\",\"peer\":%u", wire_route_name(span->route),
                      span->peer);
    }
    (void)fprintf(out, "}},\n");
}

/* Perfetto binds an arrow to the slices that enclose its ends. */
static void arrow(const struct trace_view *view, const struct plasmon_span *span,
                  size_t number, FILE *out)
{
    double from = us(view, span->submit_ns);

    (void)fprintf(
        out,
        "{\"ph\":\"X\",\"pid\":%u,\"tid\":0,\"ts\":%.3f,\"dur\":0.5,\"cat\":\"submit\","
        "\"name\":",
        CLIENTS_PROCESS, from);
    text(out, span->label[0] != '\0' ? span->label : span->function);
    (void)fprintf(out,
                  "},\n{\"ph\":\"s\",\"id\":%zu,\"pid\":%u,\"tid\":0,\"ts\":%.3f,"
                  "\"cat\":\"submit\",\"name\":\"task\"},\n"
                  "{\"ph\":\"f\",\"bp\":\"e\",\"id\":%zu,\"pid\":%u,\"tid\":%u,\"ts\":%.3f,"
                  "\"cat\":\"submit\",\"name\":\"task\"},\n",
                  number, CLIENTS_PROCESS, from, number, span->device, span->stream,
                  us(view, span->begin_ns));
}

void trace_write_json(const struct trace_view *view, FILE *out)
{
    uint64_t error_ns = 0;

    for (size_t i = 0; i < view->device_count; i++) {
        error_ns = pl_max_u64(error_ns, view->device_facts[i].error_ns);
    }
    (void)fprintf(out, "{\"displayTimeUnit\":\"ns\",\n\"traceEvents\":[\n");
    devices(view, out);
    for (size_t i = 0; i < view->count; i++) {
        const struct plasmon_span *span = &view->spans[i];

        slice(view, span, out);
        if (span->submit_ns != 0 && span->task != 0 && span->kind == PLASMON_SPAN_RUN) {
            arrow(view, span, i + 1, out);
        }
    }
    (void)fprintf(out,
                  "{\"ph\":\"M\",\"name\":\"trace\",\"pid\":%u,\"tid\":0,\"args\":{}}\n],\n"
                  "\"otherData\":{\"begin_unix_ns\":\"%" PRIu64 "\",\"spans\":%zu,"
                  "\"dropped\":%" PRIu64 ",\"clock_error_ns\":%" PRIu64 "}}\n",
                  CLIENTS_PROCESS, view->count == 0 ? 0 : view->begin_ns, view->count,
                  view->dropped, error_ns);
}
