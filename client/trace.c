/* Timelines: what the head sends of them, and the calls. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "client/client_int.h"

#define SPANS_DEFAULT   (1u << 20)
#define SPANS_AT_FIRST  1024u
#define STOP_TIMEOUT_MS 10000u

/* ------------------------------------------------------------------------------ keeping */

void trace_init(struct trace *trace)
{
    memset(trace, 0, sizeof(*trace));
    trace->devices = PL_VEC_INIT(struct trace_device);
    pl_map_init(&trace->names);
}

void trace_finish(struct trace *trace)
{
    uint64_t key;
    void *name;

    for (size_t i = 0; pl_map_next(&trace->names, &i, &key, &name);) {
        pl_free(name);
    }
    pl_map_finish(&trace->names);
    pl_vec_finish(&trace->devices);
    pl_free(trace->spans);
}

static void trace_clear(struct trace *trace)
{
    trace->first   = 0;
    trace->count   = 0;
    trace->dropped = 0;
    pl_vec_clear(&trace->devices);
}

static uint64_t name_hash(const char *name)
{
    uint64_t hash = UINT64_C(14695981039346656037); /* FNV-1a */

    for (; *name != '\0'; name++) {
        hash = (hash ^ (uint8_t)*name) * UINT64_C(1099511628211);
    }
    return hash == 0 ? 1 : hash;
}

/* The one copy of this name; "?" when there is no memory. */
static const char *name_keep(struct trace *trace, const char *name)
{
    uint64_t hash = name_hash(name);
    char *kept;

    while ((kept = pl_map_get(&trace->names, hash)) != NULL && strcmp(kept, name) != 0) {
        hash = hash * 31 + 1; /* another name has this one's place */
    }
    if (kept != NULL) {
        return kept;
    }
    kept = pl_strdup(name);
    if (kept == NULL || pl_map_set(&trace->names, hash, kept) != PLASMON_OK) {
        pl_free(kept);
        return "?";
    }
    return kept;
}

/* Room for one more: a larger ring up to the bound, then the oldest goes. */
static struct plasmon_span *span_room(struct trace *trace)
{
    if (trace->count == trace->capacity && trace->capacity < trace->spans_max) {
        size_t capacity =
            pl_min_u64(trace->spans_max, pl_max_u64(SPANS_AT_FIRST, trace->capacity * 2));
        struct plasmon_span *grown = PL_NEW_N(struct plasmon_span, capacity);

        if (grown != NULL) {
            for (size_t i = 0; i < trace->count; i++) {
                grown[i] = *trace_at(trace, i);
            }
            pl_free(trace->spans);
            trace->spans    = grown;
            trace->capacity = capacity;
            trace->first    = 0;
        }
    }
    if (trace->capacity == 0) {
        trace->dropped++;
        return NULL;
    }
    if (trace->count == trace->capacity) {
        trace->first = (trace->first + 1) % trace->capacity;
        trace->count--;
        trace->dropped++;
    }
    return &trace->spans[(trace->first + trace->count++) % trace->capacity];
}

static uint32_t kind_of(uint32_t launch_kind)
{
    switch (launch_kind) {
    case PLASMON__V1__LAUNCH_KIND__LAUNCH_COPY:
        return PLASMON_SPAN_COPY;
    case PLASMON__V1__LAUNCH_KIND__LAUNCH_SEND:
        return PLASMON_SPAN_SEND;
    case PLASMON__V1__LAUNCH_KIND__LAUNCH_RECV:
        return PLASMON_SPAN_RECV;
    case PLASMON__V1__LAUNCH_KIND__LAUNCH_PUT:
    case PLASMON__V1__LAUNCH_KIND__LAUNCH_PUT_HOST:
        return PLASMON_SPAN_PUT;
    case PLASMON__V1__LAUNCH_KIND__LAUNCH_READ:
    case PLASMON__V1__LAUNCH_KIND__LAUNCH_GET_HOST:
        return PLASMON_SPAN_READ;
    default:
        return PLASMON_SPAN_RUN;
    }
}

const char *trace_kind_name(uint32_t kind)
{
    static const char *const names[] = {"run", "copy", "send", "receive", "put", "read"};

    return kind < PL_COUNT(names) ? names[kind] : "?";
}

const char *trace_stream_name(const struct trace_view *view, uint32_t device,
                              uint32_t stream, char out[32])
{
    /* As enum worker_stream_role has them; then those of a priority. */
    static const char *const others[] = {"copies in",   "bytes out",   "receives",
                                         "copies in 2", "bytes out 2", "bytes out 3",
                                         "urgent"};
    uint32_t run                      = view->device_facts[device].run_streams;

    if (stream < run) {
        (void)snprintf(out, 32, "stream %u", stream);
    } else if (stream - run < PL_COUNT(others)) {
        (void)snprintf(out, 32, "%s", others[stream - run]);
    } else {
        (void)snprintf(out, 32, "low");
    }
    return out;
}

static struct trace_device *device_room(struct trace *trace, uint32_t device)
{
    while (trace->devices.count <= device) {
        struct trace_device *place = pl_vec_push(&trace->devices);

        if (place == NULL) {
            return NULL;
        }
        *place = (struct trace_device){.run_streams = 0};
    }
    return pl_vec_at(&trace->devices, device);
}

void trace_take(struct trace *trace, const Plasmon__V1__SpanBatch *batch)
{
    struct trace_device *device = device_room(trace, batch->device);

    if (device != NULL) {
        device->run_streams = batch->run_streams;
        device->error_ns    = pl_max_u64(device->error_ns, batch->error_ns);
    }
    trace->dropped += batch->dropped;
    for (size_t i = 0; i < batch->n_spans; i++) {
        const Plasmon__V1__Span *from = batch->spans[i];
        struct plasmon_span *span     = span_room(trace);

        if (span == NULL) {
            continue;
        }
        *span = (struct plasmon_span){
            .submit_ns   = from->submit_ns,
            .placed_ns   = from->placed_ns,
            .enqueued_ns = from->enqueued_ns,
            .begin_ns    = from->begin_ns,
            .end_ns      = from->begin_ns + from->duration_ns,
            .bytes       = from->bytes,
            .task        = from->task,
            .client      = from->client,
            .launch      = from->seq,
            .device      = batch->device,
            .stream      = from->stream,
            .kind        = kind_of(from->kind),
            .route       = from->route,
            .peer        = from->peer,
            .function    = name_keep(trace, from->name),
            .label       = name_keep(trace, from->label),
        };
    }
}

/* -------------------------------------------------------------------------------- calls */

static plasmon_status_t switch_locked(struct plasmon_client *client, bool on)
{
    Plasmon__V1__ClientFrame fields = PLASMON__V1__CLIENT_FRAME__INIT;
    Plasmon__V1__Trace message      = PLASMON__V1__TRACE__INIT;
    struct request request;
    struct pl_cond cond;
    plasmon_status_t status = pl_cond_init(&cond);

    if (status != PLASMON_OK) {
        return error_set(status, "%s", pl_status_text(status));
    }
    request_init(&request, &cond);
    status = request_open_locked(client, &request);
    if (status == PLASMON_OK) {
        message.request = request.number;
        message.on      = on;
        fields.trace    = &message;
        status          = request_send_locked(client, &request, FRAME_TRACE, &fields);
    }
    if (status == PLASMON_OK) {
        status = request_wait_locked(client, &request, client_deadline(STOP_TIMEOUT_MS));
    }
    request_close_locked(client, &request);
    pl_cond_finish(&cond);
    return status;
}

plasmon_status_t plasmon_timeline_start(struct plasmon_client *client,
                                        const struct plasmon_timeline_options *options)
{
    plasmon_status_t status = client_enter(client);

    if (status != PLASMON_OK) {
        return status;
    }
    if (options != NULL && options->size < sizeof(size_t)) {
        return error_set(PLASMON_EINVAL,
                         "options.size is not set: start from PLASMON_TIMELINE_INIT");
    }
    pl_mutex_lock(&client->lock);
    if (client->trace.on) {
        status = error_set(PLASMON_EEXIST, "a timeline is being recorded already");
    } else {
        trace_clear(&client->trace);
        client->trace.spans_max =
            options != NULL && options->size >= sizeof(*options) && options->spans_max != 0
                ? options->spans_max
                : SPANS_DEFAULT;
        status           = switch_locked(client, true);
        client->trace.on = status == PLASMON_OK;
    }
    pl_mutex_unlock(&client->lock);
    return status;
}

plasmon_status_t plasmon_timeline_stop(struct plasmon_client *client)
{
    plasmon_status_t status = client_enter(client);

    if (status != PLASMON_OK) {
        return status;
    }
    pl_mutex_lock(&client->lock);
    if (!client->trace.on) {
        status = error_set(PLASMON_EINVAL,
                           "no timeline is being recorded: plasmon_timeline_start() first");
    } else {
        client->trace.on = false;
        status           = switch_locked(client, false);
    }
    pl_mutex_unlock(&client->lock);
    return status;
}

plasmon_status_t plasmon_timeline_spans(struct plasmon_client *client,
                                        struct plasmon_span *spans, size_t capacity,
                                        size_t *out_count, uint64_t *out_dropped)
{
    plasmon_status_t status = client_enter(client);

    if (status != PLASMON_OK) {
        return status;
    }
    if (out_count == NULL || (spans == NULL && capacity > 0)) {
        return error_set(PLASMON_EINVAL, "spans or out_count is NULL");
    }
    pl_mutex_lock(&client->lock);
    for (size_t i = 0; i < capacity && i < client->trace.count; i++) {
        spans[i] = *trace_at(&client->trace, i);
    }
    *out_count = client->trace.count;
    if (out_dropped != NULL) {
        *out_dropped = client->trace.dropped;
    }
    pl_mutex_unlock(&client->lock);
    return PLASMON_OK;
}

/* -------------------------------------------------------------------------------- files */

static int compare_begins(const void *a, const void *b)
{
    const struct plasmon_span *x = a;
    const struct plasmon_span *y = b;

    return (x->begin_ns > y->begin_ns) - (x->begin_ns < y->begin_ns);
}

/* A copy of what there is, so that drawing holds no lock. */
struct snapshot {
    struct trace_view view;
    struct plasmon_span *spans;
    struct plasmon_device_info *infos;
    struct trace_device *facts;
};

static void snapshot_free(struct snapshot *snapshot)
{
    pl_free(snapshot->spans);
    pl_free(snapshot->infos);
    pl_free(snapshot->facts);
}

static bool snapshot_spans(struct plasmon_client *client, struct snapshot *snapshot)
{
    struct trace_view *view = &snapshot->view;

    pl_mutex_lock(&client->lock);
    view->count     = client->trace.count;
    view->dropped   = client->trace.dropped;
    snapshot->spans = PL_NEW_N(struct plasmon_span, view->count + 1);
    snapshot->facts = PL_NEW_N(struct trace_device, client->trace.devices.count + 1);
    for (size_t i = 0; snapshot->spans != NULL && i < view->count; i++) {
        snapshot->spans[i] = *trace_at(&client->trace, i);
    }
    view->device_count = client->trace.devices.count;
    for (size_t i = 0; snapshot->facts != NULL && i < view->device_count; i++) {
        snapshot->facts[i] = *(struct trace_device *)pl_vec_at(&client->trace.devices, i);
    }
    pl_mutex_unlock(&client->lock);
    return snapshot->spans != NULL && snapshot->facts != NULL;
}

static bool snapshot_devices(struct plasmon_client *client, struct snapshot *snapshot)
{
    uint32_t count = 0;
    struct plasmon_device_info *infos;

    if (plasmon_devices(client, NULL, 0, &count) != PLASMON_OK) {
        count = 0;
    }
    infos           = PL_NEW_N(struct plasmon_device_info, count + 1);
    snapshot->infos = PL_NEW_N(struct plasmon_device_info, snapshot->view.device_count + 1);
    if (infos != NULL && snapshot->infos != NULL && count > 0 &&
        plasmon_devices(client, infos, count, &count) == PLASMON_OK) {
        for (uint32_t i = 0; i < count; i++) {
            if ((size_t)infos[i].index < snapshot->view.device_count) {
                snapshot->infos[infos[i].index] = infos[i];
            }
        }
    }
    pl_free(infos);
    return snapshot->infos != NULL;
}

static plasmon_status_t snapshot_take(struct plasmon_client *client,
                                      struct snapshot *snapshot)
{
    struct trace_view *view = &snapshot->view;

    memset(snapshot, 0, sizeof(*snapshot));
    if (!snapshot_spans(client, snapshot) || !snapshot_devices(client, snapshot)) {
        return error_set(PLASMON_ENOMEM, "out of host memory");
    }
    qsort(snapshot->spans, view->count, sizeof(*snapshot->spans), compare_begins);
    view->spans        = snapshot->spans;
    view->devices      = snapshot->infos;
    view->device_facts = snapshot->facts;
    view->begin_ns     = UINT64_MAX;
    for (size_t i = 0; i < view->count; i++) {
        const struct plasmon_span *span = &view->spans[i];
        uint64_t first = span->submit_ns != 0 ? span->submit_ns : span->begin_ns;

        view->begin_ns = pl_min_u64(view->begin_ns, pl_min_u64(first, span->begin_ns));
        view->end_ns   = pl_max_u64(view->end_ns, span->end_ns);
    }
    return PLASMON_OK;
}

static plasmon_status_t write_file(const char *path, const struct trace_view *view,
                                   void (*write)(const struct trace_view *, FILE *))
{
    FILE *out = fopen(path, "we");
    int cause;

    if (out == NULL) {
        return error_set(pl_status_from_errno(errno), "cannot write %s: %s", path,
                         strerror(errno));
    }
    errno = 0;
    write(view, out);
    cause = ferror(out) != 0 ? (errno != 0 ? errno : EIO) : 0;
    if (fclose(out) != 0 && cause == 0) {
        cause = errno;
    }
    return cause != 0 ? error_set(pl_status_from_errno(cause), "writing %s failed: %s",
                                  path, strerror(cause))
                      : PLASMON_OK;
}

plasmon_status_t plasmon_timeline_write(struct plasmon_client *client,
                                        const char *json_path, const char *svg_path)
{
    struct snapshot snapshot;
    plasmon_status_t status = client_enter(client);

    if (status != PLASMON_OK) {
        return status;
    }
    if (json_path == NULL && svg_path == NULL) {
        return error_set(PLASMON_EINVAL, "neither json_path nor svg_path is given");
    }
    status = snapshot_take(client, &snapshot);
    if (status == PLASMON_OK && json_path != NULL) {
        status = write_file(json_path, &snapshot.view, trace_write_json);
    }
    if (status == PLASMON_OK && svg_path != NULL) {
        status = write_file(svg_path, &snapshot.view, trace_write_svg);
    }
    snapshot_free(&snapshot);
    return status;
}
