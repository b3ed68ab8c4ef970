/*
 * One table a message of the status: what of it is a metric, and under which name. A family - all
 * devices' memory, say - is told together, as the format wants it: help, type, then a line for each
 * of its labels.
 */
#include "wire/metrics.h"

#include <inttypes.h>
#include <stddef.h>
#include <string.h>

#include "base/vec.h"
#include "wire/wire.h"

enum kind { GAUGE, COUNTER, GAUGE_MS, COUNTER_NS };

struct metric {
    const char *name;
    enum kind kind;
    const char *help;
    size_t offset; /* of a uint64_t in the message .. */
    bool narrow;   /* .. or a uint32_t */
};

/* One thing that has such metrics: its labels, inside the braces, and the message. */
struct labelled {
    const void *message;
    struct pl_str labels;
};

/* --------------------------------------------------------------------------- the tables */

#define OF(type, field) \
    offsetof(Plasmon__V1__##type, field), sizeof(((Plasmon__V1__##type *)0)->field) == 4

static const struct metric cluster_metrics[] = {
    {"plasmon_uptime_seconds", GAUGE_MS, "Since the head was started.",
     OF(StatusReply, uptime_ms)},
    {"plasmon_nodes", GAUGE, "Stores that are connected.", OF(StatusReply, nodes)},
    {"plasmon_clients", GAUGE, "Sessions of clients.", OF(StatusReply, clients)},
    {"plasmon_launches_unfinished", GAUGE, "Launches that are not done.",
     OF(StatusReply, tasks_queued)},
    {"plasmon_tasks_done_total", COUNTER, "Tasks of clients that ended well.",
     OF(StatusReply, tasks_done)},
    {"plasmon_tasks_failed_total", COUNTER, "Tasks of clients that failed.",
     OF(StatusReply, tasks_failed)},
    {"plasmon_launches_again_total", COUNTER,
     "Launches sent again after the death of a worker.", OF(StatusReply, tasks_again)},
    {"plasmon_objects", GAUGE, "Values that something still names.",
     OF(StatusReply, objects)},
    {"plasmon_objects_bytes", GAUGE, "Their bytes.", OF(StatusReply, object_bytes)},
    {"plasmon_head_cpu_seconds_total", COUNTER_NS, "CPU time of the head's own code.",
     OF(StatusReply, core_ns)},
    {"plasmon_workers_cpu_seconds_total", COUNTER_NS,
     "CPU time of the enqueueing threads of all workers.", OF(StatusReply, worker_cpu_ns)},
    {"plasmon_workers_driver_seconds_total", COUNTER_NS,
     "The same inside of driver calls, where it is counted.",
     OF(StatusReply, worker_driver_ns)},
};
static const struct metric device_metrics[] = {
    {"plasmon_device_memory_bytes", GAUGE, "Memory that may be used.",
     OF(Device, bytes_total)},
    {"plasmon_device_memory_used_bytes", GAUGE, "Given out by the arena.",
     OF(Device, bytes_used)},
    {"plasmon_device_memory_replica_bytes", GAUGE, "Of these, copies that may be dropped.",
     OF(Device, bytes_replica)},
    {"plasmon_device_memory_scratch_bytes", GAUGE,
     "Of these, of running launches and recorded graphs.", OF(Device, bytes_scratch)},
    {"plasmon_device_memory_reserved_bytes", GAUGE, "In chunks.",
     OF(Device, bytes_reserved)},
    {"plasmon_device_memory_largest_hole_bytes", GAUGE,
     "The largest block to be had without growing.", OF(Device, largest_hole)},
    {"plasmon_device_launches_total", COUNTER, "Launches that are done.",
     OF(Device, launches)},
    {"plasmon_device_launches_unfinished", GAUGE, "Launches that are not.",
     OF(Device, queued)},
    {"plasmon_device_communicators", GAUGE, "Communicators of NCCL.",
     OF(Device, communicators)},
    {"plasmon_device_communicators_opened_total", COUNTER,
     "Communicators of NCCL that were opened.", OF(Device, communicators_opened)},
    {"plasmon_device_restarts_total", COUNTER, "Workers that were replaced.",
     OF(Device, restarts)},
};
static const struct metric route_metrics[] = {
    {"plasmon_route_copies_total", COUNTER, "Copies that were made on a route.",
     OF(RouteStats, copies)},
    {"plasmon_route_bytes_total", COUNTER, "Bytes of these.", OF(RouteStats, bytes)},
};
static const struct metric spill_metrics[] = {
    {"plasmon_spill_memory_bytes", GAUGE, "Host memory for what devices have no room for.",
     OF(SpillHost, memory_bytes)},
    {"plasmon_spill_memory_used_bytes", GAUGE, "Of it, in use.",
     OF(SpillHost, memory_used)},
    {"plasmon_spill_file_bytes", GAUGE, "Files for what that memory has no room for.",
     OF(SpillHost, file_bytes)},
    {"plasmon_spill_file_used_bytes", GAUGE, "Of them, in use.", OF(SpillHost, file_used)},
    {"plasmon_spilled_bytes_total", COUNTER, "Moved from devices to host memory.",
     OF(SpillHost, spill_bytes)},
    {"plasmon_restored_bytes_total", COUNTER, "And back.", OF(SpillHost, restore_bytes)},
    {"plasmon_written_back_bytes_total", COUNTER, "Copied to host memory ahead of need.",
     OF(SpillHost, write_back_bytes)},
    {"plasmon_spill_file_written_bytes_total", COUNTER, "Written to files.",
     OF(SpillHost, write_bytes)},
    {"plasmon_spill_file_read_bytes_total", COUNTER, "Read from files.",
     OF(SpillHost, read_bytes)},
};
static const struct metric lineage_metrics[] = {
    {"plasmon_lineage_bytes", GAUGE, "Records of calls that can be run again.",
     OF(Lineage, bytes)},
    {"plasmon_lineage_limit_bytes", GAUGE, "What they may have.", OF(Lineage, bytes_max)},
    {"plasmon_lineage_records_dropped_total", COUNTER,
     "Records that had to go for that limit.", OF(Lineage, dropped)},
    {"plasmon_lineage_tasks_rebuilt_total", COUNTER,
     "Tasks that were run again after a loss.", OF(Lineage, rebuilt_tasks)},
    {"plasmon_lineage_rebuilt_bytes_total", COUNTER, "Bytes of their results.",
     OF(Lineage, rebuilt_bytes)},
    {"plasmon_lineage_values_lost_total", COUNTER, "Results that could not be made again.",
     OF(Lineage, never)},
    {"plasmon_second_copies_missing", GAUGE,
     "Values that were put with a replica and have one copy.", OF(Lineage, second_missing)},
    {"plasmon_second_copies_near", GAUGE,
     "Values that were put with a replica and have both copies on one host.",
     OF(Lineage, second_near)},
    {"plasmon_second_copies_made_total", COUNTER,
     "Second copies that were begun anew, after a loss or for a host that joined.",
     OF(Lineage, second_made)},
};
static const struct metric space_metrics[] = {
    {"plasmon_namespace_used_bytes", GAUGE, "Bytes of values that refs and names show.",
     OF(NamespaceStats, bytes)},
    {"plasmon_namespace_tasks", GAUGE, "Tasks in flight.", OF(NamespaceStats, tasks)},
    {"plasmon_namespace_sessions", GAUGE, "Sessions.", OF(NamespaceStats, sessions)},
    {"plasmon_namespace_refused_total", COUNTER, "Times that a quota said no.",
     OF(NamespaceStats, refused)},
    {"plasmon_namespace_quota_bytes", GAUGE, "Quota of bytes; 0: none.",
     OF(NamespaceStats, bytes_quota)},
    {"plasmon_namespace_quota_tasks", GAUGE, "Quota of tasks; 0: none.",
     OF(NamespaceStats, tasks_quota)},
    {"plasmon_namespace_quota_sessions", GAUGE, "Quota of sessions; 0: none.",
     OF(NamespaceStats, sessions_quota)},
};
static const struct metric journal_metrics[] = {
    {"plasmon_journal_stalled_seconds", GAUGE_MS,
     "The journal has stored nothing for so long, though something waits.",
     OF(Waits, journal_ms)},
    {"plasmon_journal_held", GAUGE, "Frames and answers that wait for the journal.",
     OF(Waits, journal_held)},
};

/* --------------------------------------------------------------------------- the format */

static void header(struct pl_str *out, const char *name, const char *type, const char *help)
{
    pl_str_append(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* A label's value: any text but for three characters. */
static void label_add(struct pl_str *labels, const char *name, const char *value)
{
    pl_str_append(labels, "%s%s=\"", labels->length > 0 ? "," : "", name);
    for (; *value != '\0'; value++) {
        if (*value == '\n') {
            pl_str_append(labels, "\\n");
        } else {
            pl_str_append(labels, "%s%c", *value == '"' || *value == '\\' ? "\\" : "",
                          *value);
        }
    }
    pl_str_append(labels, "\"");
}

static void sample(struct pl_str *out, const char *name, const struct pl_str *labels,
                   enum kind kind, uint64_t value)
{
    uint64_t unit = kind == GAUGE_MS ? 1000 : kind == COUNTER_NS ? 1000000000 : 1;
    int digits    = kind == GAUGE_MS ? 3 : 9;

    pl_str_append(out, "%s", name);
    if (labels != NULL && labels->length > 0) {
        pl_str_append(out, "{%s}", pl_str_text(labels));
    }
    pl_str_append(out, " %" PRIu64, value / unit);
    if (unit != 1) {
        pl_str_append(out, ".%0*" PRIu64, digits, value % unit);
    }
    pl_str_append(out, "\n");
}

static uint64_t value_of(const struct metric *metric, const void *message)
{
    const uint8_t *at = (const uint8_t *)message + metric->offset;
    uint64_t wide;
    uint32_t narrow;

    if (metric->narrow) {
        memcpy(&narrow, at, sizeof(narrow));
        return narrow;
    }
    memcpy(&wide, at, sizeof(wide));
    return wide;
}

static void families(struct pl_str *out, const struct metric *metrics, size_t metric_count,
                     const struct labelled *rows, size_t row_count)
{
    for (size_t i = 0; i < metric_count && row_count > 0; i++) {
        const struct metric *metric = &metrics[i];
        bool counts                 = metric->kind == COUNTER || metric->kind == COUNTER_NS;

        header(out, metric->name, counts ? "counter" : "gauge", metric->help);
        for (size_t r = 0; r < row_count; r++) {
            sample(out, metric->name, &rows[r].labels, metric->kind,
                   value_of(metric, rows[r].message));
        }
    }
}

/* All of a list: labels_of gives each its own. */
static void list(struct pl_str *out, const struct metric *metrics, size_t metric_count,
                 const void *const *messages, size_t count,
                 void (*labels_of)(const void *message, struct pl_str *labels))
{
    struct pl_vec rows = PL_VEC_INIT(struct labelled);

    for (size_t i = 0; i < count; i++) {
        struct labelled *row = pl_vec_push(&rows);

        if (row == NULL) {
            out->failed = 1;
            break;
        }
        row->message = messages[i];
        pl_str_init(&row->labels);
        labels_of(messages[i], &row->labels);
    }
    families(out, metrics, metric_count, rows.items, rows.count);
    for (size_t i = 0; i < rows.count; i++) {
        pl_str_finish(&((struct labelled *)pl_vec_at(&rows, i))->labels);
    }
    pl_vec_finish(&rows);
}
#define LIST(out, metrics, messages, count, labels_of) \
    list(out, metrics, PL_COUNT(metrics), (const void *const *)(messages), count, labels_of)

/* ------------------------------------------------------------------------------- labels */

const char *wire_route_name(uint32_t route)
{
    static const char *const names[] = {"local",  "peer", "host",        "nccl",
                                        "inline", "lane", "host-buffer", "bulk"};

    return route < PL_COUNT(names) ? names[route] : "unknown";
}

const char *wire_wait_name(Plasmon__V1__WaitWhy why)
{
    static const char *const names[WIRE_WAIT_WHYS] = {
        "none",    "runs", "point", "transfer", "publish", "room",   "memory",
        "readers", "code", "quiet", "pair",     "ending",  "behind", "store"};

    return (unsigned)why < WIRE_WAIT_WHYS ? names[why] : "unknown";
}

static void no_labels(const void *message, struct pl_str *labels)
{
    (void)message;
    (void)labels;
}

static void device_labels(const void *message, struct pl_str *labels)
{
    const Plasmon__V1__Device *device = message;

    pl_str_append(labels, "device=\"%u\"", device->index);
    label_add(labels, "node", device->node);
    label_add(labels, "kind",
              device->kind == 1   ? "cpu"
              : device->kind == 2 ? "cuda"
                                  : "unknown");
}

static void route_labels(const void *message, struct pl_str *labels)
{
    label_add(labels, "route",
              wire_route_name(((const Plasmon__V1__RouteStats *)message)->route));
}

static void spill_labels(const void *message, struct pl_str *labels)
{
    label_add(labels, "node", ((const Plasmon__V1__SpillHost *)message)->node);
}

static void space_labels(const void *message, struct pl_str *labels)
{
    label_add(labels, "namespace", ((const Plasmon__V1__NamespaceStats *)message)->name);
}

/* --------------------------------------------------------------------------- histograms */

/* The labels with `le` behind them: the bound in seconds, or +Inf. */
static void bucket(struct pl_str *out, const char *name, const struct pl_str *labels,
                   uint32_t bound, uint64_t count)
{
    pl_str_append(out, "%s_bucket{%s%s", name, pl_str_text(labels),
                  labels->length > 0 ? "," : "");
    if (bound < PL_HISTOGRAM_BOUNDS) {
        uint64_t us = pl_histogram_bound_ns(bound) / 1000;

        pl_str_append(out, "le=\"%" PRIu64 ".%06" PRIu64 "\"} %" PRIu64 "\n", us / 1000000,
                      us % 1000000, count);
    } else {
        pl_str_append(out, "le=\"+Inf\"} %" PRIu64 "\n", count);
    }
}

static void histogram(struct pl_str *out, const char *name, const struct pl_str *labels,
                      const Plasmon__V1__Histogram *message)
{
    struct pl_histogram times;
    struct pl_str more;
    uint64_t count = 0;

    wire_histogram_read(message, &times);
    for (uint32_t i = 0; i < PL_HISTOGRAM_BUCKETS; i++) {
        count += times.counts[i]; /* of all up to that bound */
        bucket(out, name, labels, i, count);
    }
    pl_str_init(&more);
    pl_str_append(&more, "%s_sum", name);
    sample(out, pl_str_text(&more), labels, COUNTER_NS, times.sum_ns);
    pl_str_finish(&more);
    pl_str_init(&more);
    pl_str_append(&more, "%s_count", name);
    sample(out, pl_str_text(&more), labels, COUNTER, count);
    pl_str_finish(&more);
}

static void histograms(const Plasmon__V1__StatusReply *reply, struct pl_str *out)
{
    static const struct {
        Plasmon__V1__TimeOf of;
        const char *name, *help;
    } kinds[] = {
        {PLASMON__V1__TIME_OF__TIME_TASK, "plasmon_task_seconds",
         "Tasks of clients: from when the head heard of one until it was over."},
        {PLASMON__V1__TIME_OF__TIME_WAIT, "plasmon_task_wait_seconds",
         "The same until it was sent to its worker."},
        {PLASMON__V1__TIME_OF__TIME_WORKER, "plasmon_worker_recovery_seconds",
         "From when the head lost a worker until the next one was there."},
        {PLASMON__V1__TIME_OF__TIME_TRANSFER, "plasmon_transfer_seconds",
         "Transfers between devices: from when one was enqueued until it was seen done."},
        {PLASMON__V1__TIME_OF__TIME_QUEUE, "plasmon_task_queue_seconds",
         "Launches of functions: from when one came to its worker until it was enqueued."},
        {PLASMON__V1__TIME_OF__TIME_FRONT, "plasmon_queue_stands_seconds",
         "Queues of workers: each time that the front stood still, by what for."},
    };

    for (size_t k = 0; k < PL_COUNT(kinds); k++) {
        bool told = false;

        for (size_t i = 0; i < reply->n_histograms; i++) {
            const Plasmon__V1__Histogram *one = reply->histograms[i];
            struct pl_str labels;

            if (one->of != kinds[k].of) {
                continue;
            }
            if (!told) {
                header(out, kinds[k].name, "histogram", kinds[k].help);
                told = true;
            }
            pl_str_init(&labels);
            if (one->of == PLASMON__V1__TIME_OF__TIME_TRANSFER) {
                label_add(&labels, "route", wire_route_name(one->route));
            } else if (one->of == PLASMON__V1__TIME_OF__TIME_FRONT) {
                label_add(&labels, "cause", wire_wait_name(one->why));
            }
            histogram(out, kinds[k].name, &labels, one);
            pl_str_finish(&labels);
        }
    }
}

/* ---------------------------------------------------------------------------- all of it */

static void info(const Plasmon__V1__StatusReply *reply, struct pl_str *out)
{
    struct pl_str labels;

    pl_str_init(&labels);
    label_add(&labels, "version", reply->version);
    label_add(&labels, "policy", reply->policy);
    label_add(&labels, "transfer", reply->transfer);
    header(out, "plasmon_info", "gauge", "Release and settings of the head.");
    sample(out, "plasmon_info", &labels, GAUGE, 1);
    pl_str_finish(&labels);
}

static void devices_up(const Plasmon__V1__StatusReply *reply, struct pl_str *out)
{
    struct pl_str labels;

    if (reply->n_devices == 0) {
        return;
    }
    header(out, "plasmon_device_up", "gauge", "Its worker is connected.");
    for (size_t i = 0; i < reply->n_devices; i++) {
        pl_str_init(&labels);
        device_labels(reply->devices[i], &labels);
        sample(out, "plasmon_device_up", &labels, GAUGE, reply->devices[i]->alive ? 1 : 0);
        pl_str_finish(&labels);
    }
}

void wire_metrics_up(bool up, struct pl_str *out)
{
    header(out, "plasmon_up", "gauge", "The head answers.");
    sample(out, "plasmon_up", NULL, GAUGE, up ? 1 : 0);
}

void wire_metrics_text(const Plasmon__V1__StatusReply *reply, struct pl_str *out)
{
    info(reply, out);
    LIST(out, cluster_metrics, &reply, 1, no_labels);
    devices_up(reply, out);
    LIST(out, device_metrics, reply->devices, reply->n_devices, device_labels);
    LIST(out, route_metrics, reply->routes, reply->n_routes, route_labels);
    histograms(reply, out);
    LIST(out, spill_metrics, reply->spill_hosts, reply->n_spill_hosts, spill_labels);
    LIST(out, space_metrics, reply->namespaces, reply->n_namespaces, space_labels);
    if (reply->lineage != NULL) {
        LIST(out, lineage_metrics, &reply->lineage, 1, no_labels);
    }
    if (reply->waits != NULL) {
        LIST(out, journal_metrics, &reply->waits, 1, no_labels);
        header(out, "plasmon_workers_silent", "gauge",
               "Workers that did not answer in time.");
        sample(out, "plasmon_workers_silent", NULL, GAUGE, reply->waits->n_silent);
    }
}
