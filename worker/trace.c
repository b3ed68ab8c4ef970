#include "worker/trace.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/vec.h"

#define BASE_PERIOD_NS UINT64_C(1000000000)
#define BASE_TRIES     3u
/* the device is busy with other things: the last base will do */
#define BASE_TIMEOUT_NS UINT64_C(1000000)
#define NAME_BYTES      48u
#define LABEL_BYTES     (WIRE_LABEL_BYTES_MAX + 1u)

struct worker_trace_base {
    struct device_event *event;
    uint64_t host_ns;
    uint32_t refs;
};

struct worker_trace_span {
    struct device_event *begin;
    struct device_event *end;
    /* a reference while in use; NULL: the device has the host's clock */
    struct worker_trace_base *base;
    uint64_t enqueued_ns;
};

/* A span that is over, with texts of its own. */
struct worker_trace_over {
    struct worker_span facts;
    uint64_t enqueued_ns;
    uint64_t begin_ns;
    uint64_t end_ns;
    char name[NAME_BYTES];
    char label[LABEL_BYTES];
};

/* -------------------------------------------------------------------------------- bases */

static void base_release(struct worker_trace_base *base)
{
    if (base != NULL && --base->refs == 0) {
        device_event_destroy(base->event);
        pl_free(base);
    }
}

/* One bracket: false if the device did not get to it in time. */
static bool bracket(struct worker_trace *trace, struct worker_trace_base *base,
                    uint64_t *out_error_ns)
{
    uint64_t before = pl_now_ns();
    uint64_t after  = before;

    if (device_event_record(base->event, trace->clock) != PLASMON_OK) {
        return false;
    }
    while (!device_event_done(base->event)) {
        after = pl_now_ns();
        if (after - before > BASE_TIMEOUT_NS) {
            return false;
        }
    }
    after         = pl_now_ns();
    base->host_ns = before + (after - before) / 2;
    *out_error_ns = (after - before + 1) / 2;
    return true;
}

/* The best of a few: a bracket can be interrupted. */
static struct worker_trace_base *base_take(struct worker_trace *trace)
{
    struct worker_trace_base *best = NULL;
    uint64_t best_error_ns         = UINT64_MAX;

    for (unsigned i = 0; i < BASE_TRIES; i++) {
        struct worker_trace_base *base = PL_NEW(struct worker_trace_base);
        uint64_t error_ns              = 0;

        if (base == NULL ||
            device_event_create(trace->device, true, &base->event) != PLASMON_OK) {
            pl_free(base);
            break;
        }
        base->refs = 1;
        if (bracket(trace, base, &error_ns) && error_ns < best_error_ns) {
            base_release(best);
            best          = base;
            best_error_ns = error_ns;
        } else {
            base_release(base);
        }
    }
    if (best != NULL) {
        trace->error_ns = pl_max_u64(trace->error_ns, best_error_ns);
    }
    return best;
}

static bool host_clock(const struct worker_trace *trace)
{
    return device_get_info(trace->device)->kind == DEVICE_CPU;
}

void worker_trace_tick(struct worker_trace *trace, uint64_t now_ns)
{
    struct worker_trace_base *base;

    if (!trace->on || now_ns < trace->base_due_ns || host_clock(trace)) {
        return;
    }
    trace->base_due_ns = now_ns + BASE_PERIOD_NS;
    base               = base_take(trace);
    if (base != NULL) {
        base_release(trace->base);
        trace->base = base;
    }
}

/* ---------------------------------------------------------------------------- switching */

plasmon_status_t worker_trace_init(struct worker_trace *trace, struct device *device,
                                   uint32_t run_streams)
{
    memset(trace, 0, sizeof(*trace));
    trace->device      = device;
    trace->run_streams = run_streams;
    trace->idle        = PL_VEC_INIT(struct worker_trace_span *);
    trace->over        = PL_VEC_INIT(struct worker_trace_over);
    /* Now, because later it could block behind a stream that waits. */
    return host_clock(trace)
               ? PLASMON_OK
               : device_stream_create(device, DEVICE_STREAM_HIGH_PRIORITY, &trace->clock);
}

static void span_free(struct worker_trace_span *span)
{
    device_event_destroy(span->begin);
    device_event_destroy(span->end);
    pl_free(span);
}

static void idle_free(struct worker_trace *trace)
{
    while (trace->idle.count > 0) {
        span_free(
            *(struct worker_trace_span **)pl_vec_at(&trace->idle, trace->idle.count - 1));
        pl_vec_pop(&trace->idle);
        trace->made--;
    }
}

void worker_trace_finish(struct worker_trace *trace)
{
    idle_free(trace);
    base_release(trace->base);
    if (trace->clock != NULL) {
        device_stream_destroy(trace->clock);
    }
    pl_vec_finish(&trace->idle);
    pl_vec_finish(&trace->over);
}

void worker_trace_switch(struct worker_trace *trace, bool on)
{
    if (on == trace->on) {
        return;
    }
    trace->on = on;
    if (on) {
        trace->real_ns     = pl_realtime_ns() - pl_now_ns();
        trace->base_due_ns = 0;
        trace->error_ns    = 0;
        worker_trace_tick(trace, pl_now_ns());
    } else {
        idle_free(trace); /* those in use follow when they are done */
        base_release(trace->base);
        trace->base = NULL;
    }
}

/* -------------------------------------------------------------------------------- spans */

static struct worker_trace_span *span_make(struct worker_trace *trace)
{
    struct worker_trace_span *span = PL_NEW(struct worker_trace_span);

    if (span == NULL) {
        return NULL;
    }
    if (device_event_create(trace->device, true, &span->begin) != PLASMON_OK ||
        device_event_create(trace->device, true, &span->end) != PLASMON_OK) {
        span_free(span);
        return NULL;
    }
    trace->made++;
    return span;
}

static struct worker_trace_span *span_take(struct worker_trace *trace)
{
    struct worker_trace_span *span;

    if (trace->idle.count == 0) {
        return trace->made < WORKER_DEPTH ? span_make(trace) : NULL;
    }
    span = *(struct worker_trace_span **)pl_vec_at(&trace->idle, trace->idle.count - 1);
    pl_vec_pop(&trace->idle);
    return span;
}

static void span_put(struct worker_trace *trace, struct worker_trace_span *span)
{
    struct worker_trace_span **place = trace->on ? pl_vec_push(&trace->idle) : NULL;

    base_release(span->base);
    span->base = NULL;
    if (place == NULL) {
        span_free(span);
        trace->made--;
        return;
    }
    *place = span;
}

void *worker_trace_begin(struct worker_trace *trace, struct device_stream *stream)
{
    struct worker_trace_span *span;

    if (!trace->on) {
        return NULL;
    }
    span = trace->base != NULL || host_clock(trace) ? span_take(trace) : NULL;
    if (span == NULL) {
        trace->dropped++;
        return NULL;
    }
    span->enqueued_ns = pl_now_ns();
    span->base        = trace->base;
    if (span->base != NULL) {
        span->base->refs++;
    }
    if (device_event_record(span->begin, stream) != PLASMON_OK) {
        trace->dropped++;
        span_put(trace, span);
        return NULL;
    }
    return span;
}

void worker_trace_end(void *opaque, struct device_stream *stream)
{
    struct worker_trace_span *span = opaque;

    (void)device_event_record(span->end,
                              stream); /* if not, its time is not known when it is done */
}

static bool time_of(const struct worker_trace_span *span, struct device_event *event,
                    uint64_t *out_ns)
{
    uint64_t since_ns;

    if (span->base == NULL) {
        return device_event_host_ns(event, out_ns);
    }
    if (device_event_elapsed_ns(span->base->event, event, &since_ns) != PLASMON_OK) {
        return false;
    }
    *out_ns = span->base->host_ns + since_ns;
    return true;
}

static void texts_copy(struct worker_trace_over *over)
{
    (void)snprintf(over->name, sizeof(over->name), "%s", over->facts.name);
    (void)snprintf(over->label, sizeof(over->label), "%s", over->facts.label);
}

void worker_trace_done(struct worker_trace *trace, void *opaque,
                       const struct worker_span *facts)
{
    struct worker_trace_span *span = opaque;
    struct worker_trace_over *over = NULL;
    uint64_t begin_ns, end_ns;

    if (trace->over.count - trace->over_first < WORKER_TRACE_SPANS_MAX &&
        time_of(span, span->begin, &begin_ns) && time_of(span, span->end, &end_ns)) {
        over = pl_vec_push(&trace->over);
    }
    if (over == NULL) {
        trace->dropped++;
    } else {
        over->facts       = *facts;
        over->enqueued_ns = span->enqueued_ns + trace->real_ns;
        over->begin_ns    = begin_ns + trace->real_ns;
        over->end_ns      = pl_max_u64(end_ns, begin_ns) + trace->real_ns;
        texts_copy(over);
    }
    span_put(trace, span);
}

/* ------------------------------------------------------------------------------ telling */

bool worker_trace_pending(const struct worker_trace *trace)
{
    return trace->over.count > trace->over_first || trace->dropped != 0;
}

static void span_fill(struct worker_trace_over *over, Plasmon__V1__Span *out)
{
    plasmon__v1__span__init(out);
    out->seq         = over->facts.seq;
    out->stream      = over->facts.stream;
    out->kind        = over->facts.kind;
    out->name        = over->name;
    out->label       = over->label;
    out->client      = over->facts.client;
    out->task        = over->facts.task;
    out->submit_ns   = over->facts.submit_ns;
    out->placed_ns   = over->facts.placed_ns;
    out->enqueued_ns = over->enqueued_ns;
    out->begin_ns    = over->begin_ns;
    out->duration_ns = over->end_ns - over->begin_ns;
    out->bytes       = over->facts.bytes;
    out->route       = over->facts.route;
    out->peer        = over->facts.peer;
}

/* The arena's strings, because what they lie in may go before the frame is packed. */
static bool span_fill_own(struct wire_arena *arena, struct worker_trace_over *over,
                          Plasmon__V1__Span *out)
{
    size_t name  = strlen(over->name) + 1;
    size_t label = strlen(over->label) + 1;
    char *texts  = wire_arena_alloc(arena, name + label);

    if (texts == NULL) {
        return false;
    }
    span_fill(over, out);
    out->name  = memcpy(texts, over->name, name);
    out->label = memcpy(texts + name, over->label, label);
    return true;
}

static void told(struct worker_trace *trace, size_t count)
{
    trace->over_first += count;
    trace->dropped = 0;
    if (trace->over_first == trace->over.count) {
        pl_vec_clear(&trace->over);
        trace->over_first = 0;
    }
}

Plasmon__V1__SpanBatch *worker_trace_batch(struct worker_trace *trace,
                                           struct wire_arena *arena)
{
    size_t count = pl_min_u64(trace->over.count - trace->over_first, WORKER_TRACE_FRAME);
    Plasmon__V1__SpanBatch *batch = wire_arena_alloc(arena, sizeof(*batch));
    Plasmon__V1__Span *spans      = wire_arena_alloc(arena, (count + 1) * sizeof(*spans));

    if (batch == NULL || spans == NULL) {
        return NULL;
    }
    plasmon__v1__span_batch__init(batch);
    batch->spans = wire_arena_alloc(arena, (count + 1) * sizeof(*batch->spans));
    if (batch->spans == NULL) {
        return NULL;
    }
    batch->run_streams = trace->run_streams;
    batch->dropped     = trace->dropped;
    batch->error_ns    = trace->error_ns;
    for (size_t i = 0; i < count; i++) {
        if (!span_fill_own(arena, pl_vec_at(&trace->over, trace->over_first + i),
                           &spans[i])) {
            return NULL;
        }
        batch->spans[i] = &spans[i];
    }
    batch->n_spans = count;
    told(trace, count);
    return batch;
}
