/* Status of the cluster, as the head tells it; and the catalogue of functions. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "client/client_int.h"
#include "client/json.h"
#include "wire/metrics.h"

#define STATUS_PATH "/plasmon.v1.Plasmon/Status"
/* No head is there sooner; a private cluster that has ended is known to have. */
#define UNARY_PAUSE_NS 20000000L

static uint8_t *alloc_bytes(size_t length)
{
    return pl_alloc(length > 0 ? length : 1);
}

static plasmon_status_t unary_once(struct plasmon_client *client, const char *path,
                                   const uint8_t *message, size_t message_length,
                                   uint32_t timeout_ms, uint8_t **out_bytes,
                                   size_t *out_length, bool *out_dead)
{
    struct rpc_channel *channel;
    struct pl_err err       = {0};
    plasmon_status_t status = PLASMON_OK;

    pl_mutex_lock(&client->lock);
    *out_dead = client->session.state == SESSION_DEAD;
    if (*out_dead) {
        status = error_set(client->session.dead_status, "%s", client->session.dead_text);
    }
    channel = client->channel;
    client->channel_users++;
    pl_mutex_unlock(&client->lock);

    if (status == PLASMON_OK) {
        status = rpc_unary_call(channel, path, message, message_length, timeout_ms,
                                out_bytes, out_length, &err);
        if (status != PLASMON_OK) {
            (void)error_from(&err, status);
        }
    }
    pl_mutex_lock(&client->lock);
    client->channel_users--;
    pl_mutex_unlock(&client->lock);
    return status;
}

/*
 * A call that is on its way when the head goes waits for the next one, as one that begins a moment
 * later does. Whatever is asked may be asked twice.
 */
static bool unary_again(plasmon_status_t status, uint64_t deadline_ns)
{
    const struct timespec pause = {.tv_nsec = UNARY_PAUSE_NS};

    return (status == PLASMON_ECLOSED || status == PLASMON_ECONNECT) &&
           pl_now_ns() + UNARY_PAUSE_NS < deadline_ns &&
           (nanosleep(&pause, NULL) == 0 || errno == EINTR);
}

static plasmon_status_t unary(struct plasmon_client *client, const char *path,
                              const ProtobufCMessage *message, uint32_t timeout_ms,
                              uint8_t **out_bytes, size_t *out_length)
{
    const uint64_t deadline_ns = client_deadline(timeout_ms);
    uint64_t now_ns;
    uint8_t *bytes;
    size_t length;
    bool dead;
    plasmon_status_t status;

    if (client_on_loop_thread(client)) {
        return error_set(PLASMON_EINVAL,
                         "this call waits for the head and cannot be made in a callback");
    }
    status = wire_encode(message, alloc_bytes, &bytes, &length);
    if (status != PLASMON_OK) {
        return error_set(status, "%s", pl_status_text(status));
    }
    do {
        now_ns = pl_now_ns();
        status = unary_once(client, path, bytes, length,
                            now_ns < deadline_ns
                                ? (uint32_t)((deadline_ns - now_ns + 999999) / 1000000)
                                : 1,
                            out_bytes, out_length, &dead);
    } while (!dead && unary_again(status, deadline_ns));
    pl_free(bytes);
    return status;
}

plasmon_status_t client_unary(struct plasmon_client *client, const char *path,
                              const ProtobufCMessage *message, uint8_t **out_bytes,
                              size_t *out_length)
{
    return unary(client, path, message, client->unary_ms, out_bytes, out_length);
}

static plasmon_status_t ask_status(struct plasmon_client *client,
                                   enum client_status_what what, const char *label,
                                   uint32_t timeout_ms, struct wire_arena *arena,
                                   Plasmon__V1__StatusReply **out_reply)
{
    Plasmon__V1__StatusRequest request = PLASMON__V1__STATUS_REQUEST__INIT;
    struct pl_err err                  = {.status = PLASMON_OK};
    uint8_t *bytes;
    size_t length;
    plasmon_status_t status;

    request.detail     = what == CLIENT_STATUS_PAIRS || what == CLIENT_STATUS_MEMORY;
    request.no_holders = what != CLIENT_STATUS_MEMORY;
    request.waits      = what == CLIENT_STATUS_WAITS;
    request.host       = client->host;
    request.label      = (char *)(uintptr_t)label;
    status = unary(client, STATUS_PATH, &request.base, timeout_ms, &bytes, &length);
    if (status != PLASMON_OK) {
        return status;
    }
    status = wire_arena_init(arena, WIRE_ARENA_BYTES_MAX);
    if (status == PLASMON_OK) {
        status = wire_decode_status_reply(arena, bytes, length, out_reply, &err);
        if (status != PLASMON_OK) {
            wire_arena_finish(arena);
            (void)error_from(&err, status);
        }
    }
    pl_free(bytes);
    return status;
}

plasmon_status_t client_status(struct plasmon_client *client, enum client_status_what what,
                               struct wire_arena *arena,
                               Plasmon__V1__StatusReply **out_reply)
{
    return ask_status(client, what, "", client->unary_ms, arena, out_reply);
}

plasmon_status_t client_status_memory(struct plasmon_client *client, const char *label,
                                      struct wire_arena *arena,
                                      Plasmon__V1__StatusReply **out_reply)
{
    return ask_status(client, CLIENT_STATUS_MEMORY, label, client->unary_ms, arena,
                      out_reply);
}

plasmon_status_t client_refresh_devices(struct plasmon_client *client, uint32_t timeout_ms)
{
    Plasmon__V1__StatusReply *reply;
    struct wire_arena arena;
    plasmon_status_t status =
        ask_status(client, CLIENT_STATUS_PLAIN, "", timeout_ms, &arena, &reply);

    if (status != PLASMON_OK) {
        return status;
    }
    pl_mutex_lock(&client->lock);
    status = client_set_devices_locked(client, reply->n_devices, reply->devices);
    client_set_store_locked(client, reply->store_socket);
    pl_mutex_unlock(&client->lock);
    wire_arena_finish(&arena);
    return status == PLASMON_OK ? PLASMON_OK
                                : error_set(status, "%s", pl_status_text(status));
}

/* --------------------------------------------------------------------------------- JSON */

const char *status_device_state(const Plasmon__V1__Device *device)
{
    static const char *const names[] = {"", "starting", "up", "down", "gone"};

    return device->state > 0 && device->state < PL_COUNT(names) ? names[device->state]
           : device->alive                                      ? "up"
                                                                : "down";
}

size_t status_devices_there(const Plasmon__V1__StatusReply *reply)
{
    size_t count = 0;

    for (size_t i = 0; i < reply->n_devices; i++) {
        count += reply->devices[i]->state != PLASMON__V1__DEVICE_STATE__DEVICE_STATE_GONE;
    }
    return count;
}

static void put_device(struct pl_str *out, const Plasmon__V1__Device *device)
{
    pl_str_append(out, "{");
    json_number(out, "index", device->index);
    json_text(out, "kind",
              device->kind == 1   ? "cpu"
              : device->kind == 2 ? "cuda"
                                  : "unknown");
    json_number(out, "ordinal", device->ordinal);
    json_text(out, "node", device->node);
    json_text(out, "name", device->name);
    json_flag(out, "alive", device->alive);
    json_text(out, "state", status_device_state(device));
    json_number(out, "bytes_total", device->bytes_total);
    json_number(out, "bytes_used", device->bytes_used);
    json_number(out, "bytes_replica", device->bytes_replica);
    json_number(out, "bytes_scratch", device->bytes_scratch);
    json_number(out, "bytes_reserved", device->bytes_reserved);
    json_number(out, "largest_hole", device->largest_hole);
    json_number(out, "launches", device->launches);
    json_number(out, "queued", device->queued);
    json_number(out, "communicators", device->communicators);
    json_number(out, "communicators_opened", device->communicators_opened);
    json_text(out, "engines",
              device->engines == PLASMON__V1__ENGINES__ENGINES_OPENING   ? "opening"
              : device->engines == PLASMON__V1__ENGINES__ENGINES_SOURCES ? "sources"
              : device->engines == PLASMON__V1__ENGINES__ENGINES_REFUSED ? "refused"
                                                                         : "own");
    json_text(out, "messages", device->messages_by_memory ? "memory" : "grpc");
    json_number(out, "restarts", device->restarts);
    json_text(out, "host", device->host);
    json_number(out, "host_device", device->host_device);
    pl_str_append(out, "}");
}

static void put_route(struct pl_str *out, const Plasmon__V1__RouteStats *route)
{
    pl_str_append(out, "{");
    json_text(out, "route", wire_route_name(route->route));
    json_number(out, "copies", route->copies);
    json_number(out, "bytes", route->bytes);
    pl_str_append(out, "}");
}

static void put_lineage(struct pl_str *out, const Plasmon__V1__Lineage *lineage)
{
    static const Plasmon__V1__Lineage none = PLASMON__V1__LINEAGE__INIT;

    if (lineage == NULL) {
        lineage = &none; /* an older head */
    }
    json_open(out, "lineage", '{');
    json_number(out, "bytes_max", lineage->bytes_max);
    json_number(out, "bytes", lineage->bytes);
    json_number(out, "records", lineage->records);
    json_number(out, "dropped", lineage->dropped);
    json_number(out, "rebuilt_tasks", lineage->rebuilt_tasks);
    json_number(out, "rebuilt_bytes", lineage->rebuilt_bytes);
    json_number(out, "shadows", lineage->shadows);
    json_number(out, "never", lineage->never);
    json_open(out, "second_copies", '{');
    json_number(out, "apart", lineage->second_apart);
    json_number(out, "near", lineage->second_near);
    json_number(out, "missing", lineage->second_missing);
    json_number(out, "moving", lineage->second_moving);
    json_number(out, "made", lineage->second_made);
    pl_str_append(out, "}");
    pl_str_append(out, "}");
}

void status_spill_json(const Plasmon__V1__SpillHost *host, struct pl_str *out)
{
    pl_str_append(out, "{");
    json_text(out, "node", host->node);
    json_number(out, "memory_bytes", host->memory_bytes);
    json_number(out, "memory_used", host->memory_used);
    json_number(out, "file_bytes", host->file_bytes);
    json_number(out, "file_used", host->file_used);
    json_number(out, "spills", host->spills);
    json_number(out, "spill_bytes", host->spill_bytes);
    json_number(out, "restores", host->restores);
    json_number(out, "restore_bytes", host->restore_bytes);
    json_number(out, "write_backs", host->write_backs);
    json_number(out, "write_back_bytes", host->write_back_bytes);
    json_number(out, "write_back_cancels", host->write_back_cancels);
    json_number(out, "writes", host->writes);
    json_number(out, "write_bytes", host->write_bytes);
    json_number(out, "reads", host->reads);
    json_number(out, "read_bytes", host->read_bytes);
    pl_str_append(out, "}");
}

static void put_namespace(struct pl_str *out, const Plasmon__V1__NamespaceStats *space)
{
    pl_str_append(out, "{");
    json_text(out, "name", space->name);
    json_number(out, "device_bytes", space->bytes);
    json_number(out, "tasks", space->tasks);
    json_number(out, "sessions", space->sessions);
    json_number(out, "refused", space->refused);
    json_open(out, "quota", '{');
    json_number(out, "device_bytes", space->bytes_quota);
    json_number(out, "tasks", space->tasks_quota);
    json_number(out, "sessions", space->sessions_quota);
    json_number(out, "message_bytes", space->message_bytes_quota);
    pl_str_append(out, "}}");
}

static const char *time_name(Plasmon__V1__TimeOf of)
{
    static const char *const names[] = {"task",     "wait",  "worker",
                                        "transfer", "queue", "front"};

    return (unsigned)of < PL_COUNT(names) ? names[of] : "unknown";
}

/* Bounds double from a microsecond on; the last bucket has what is beyond all. */
static void put_histogram(struct pl_str *out, const Plasmon__V1__Histogram *message)
{
    struct pl_histogram times;

    wire_histogram_read(message, &times);
    pl_str_append(out, "{");
    json_text(out, "of", time_name(message->of));
    if (message->of == PLASMON__V1__TIME_OF__TIME_TRANSFER) {
        json_text(out, "route", wire_route_name(message->route));
    }
    if (message->of == PLASMON__V1__TIME_OF__TIME_FRONT) {
        json_text(out, "cause", wire_wait_name(message->why));
    }
    json_number(out, "count", pl_histogram_count(&times));
    json_number(out, "sum_ns", times.sum_ns);
    json_number(out, "p50_ns", pl_histogram_quantile_ns(&times, 0.5));
    json_number(out, "p99_ns", pl_histogram_quantile_ns(&times, 0.99));
    json_open(out, "counts", '[');
    for (uint32_t i = 0; i < PL_HISTOGRAM_BUCKETS; i++) {
        pl_str_append(out, "%s%llu", i > 0 ? "," : "", (unsigned long long)times.counts[i]);
    }
    pl_str_append(out, "]}");
}

void status_json(const Plasmon__V1__StatusReply *reply, struct pl_str *out)
{
    pl_str_append(out, "{");
    json_text(out, "version", reply->version);
    json_number(out, "protocol", reply->protocol);
    json_id(out, "epoch", reply->epoch);
    json_number(out, "uptime_ms", reply->uptime_ms);
    json_text(out, "policy", reply->policy);
    json_text(out, "transfer", reply->transfer);
    json_number(out, "nodes", reply->nodes);
    json_number(out, "clients", reply->clients);
    json_number(out, "tasks_queued", reply->tasks_queued);
    json_number(out, "tasks_done", reply->tasks_done);
    json_number(out, "tasks_failed", reply->tasks_failed);
    json_number(out, "tasks_again", reply->tasks_again);
    json_number(out, "objects", reply->objects);
    json_number(out, "object_bytes", reply->object_bytes);
    json_number(out, "core_ns", reply->core_ns);
    json_number(out, "worker_cpu_ns", reply->worker_cpu_ns);
    json_number(out, "worker_driver_ns", reply->worker_driver_ns);
    json_flag(out, "worker_driver_counted", reply->worker_driver_counted);
    json_number(out, "task_bytes", reply->task_bytes);
    put_lineage(out, reply->lineage);
    pl_str_append(out, ",\"devices\":[");
    for (size_t i = 0; i < reply->n_devices; i++) {
        pl_str_append(out, "%s", i > 0 ? "," : "");
        put_device(out, reply->devices[i]);
    }
    pl_str_append(out, "],\"routes\":[");
    for (size_t i = 0; i < reply->n_routes; i++) {
        pl_str_append(out, "%s", i > 0 ? "," : "");
        put_route(out, reply->routes[i]);
    }
    pl_str_append(out, "],\"histograms\":[");
    for (size_t i = 0; i < reply->n_histograms; i++) {
        pl_str_append(out, "%s", i > 0 ? "," : "");
        put_histogram(out, reply->histograms[i]);
    }
    pl_str_append(out, "],\"spill\":[");
    for (size_t i = 0; i < reply->n_spill_hosts; i++) {
        pl_str_append(out, "%s", i > 0 ? "," : "");
        status_spill_json(reply->spill_hosts[i], out);
    }
    pl_str_append(out, "],\"namespaces\":[");
    for (size_t i = 0; i < reply->n_namespaces; i++) {
        pl_str_append(out, "%s", i > 0 ? "," : "");
        put_namespace(out, reply->namespaces[i]);
    }
    pl_str_append(out, "]}");
}

plasmon_status_t client_text_ask(struct plasmon_client *client,
                                 enum client_status_what what, char **out_text,
                                 struct wire_arena *arena,
                                 Plasmon__V1__StatusReply **out_reply)
{
    plasmon_status_t status = client_enter(client);

    if (status == PLASMON_OK && out_text == NULL) {
        status = error_set(PLASMON_EINVAL, "out_text is NULL");
    }
    return status == PLASMON_OK ? client_status(client, what, arena, out_reply) : status;
}

plasmon_status_t client_text_give(struct pl_str *text, char **out_text)
{
    /* malloc'ed: the caller has free(), not pl_free() */
    char *copy = text->failed ? NULL : strdup(pl_str_text(text));

    pl_str_finish(text);
    if (copy == NULL) {
        return error_set(PLASMON_ENOMEM, "out of host memory");
    }
    *out_text = copy;
    return PLASMON_OK;
}

plasmon_status_t plasmon_status_json(struct plasmon_client *client, char **out_text)
{
    Plasmon__V1__StatusReply *reply;
    struct wire_arena arena;
    struct pl_str out;
    plasmon_status_t status =
        client_text_ask(client, CLIENT_STATUS_PAIRS, out_text, &arena, &reply);

    if (status != PLASMON_OK) {
        return status;
    }

    pl_str_init(&out);
    status_json(reply, &out);
    wire_arena_finish(&arena);
    return client_text_give(&out, out_text);
}

plasmon_status_t plasmon_function_at(uint32_t index, struct plasmon_function_info *out_info)
{
    const struct kernel_function *function;

    if (out_info == NULL) {
        return error_set(PLASMON_EINVAL, "out_info is NULL");
    }
    if (index >= kernel_count()) {
        return error_set(PLASMON_ENOENT, "there are %u functions", kernel_count());
    }
    function = kernel_at(index);
    *out_info =
        (struct plasmon_function_info){function->name, function->signature, function->doc};
    return PLASMON_OK;
}
