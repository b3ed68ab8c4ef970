/* What `plasmon metrics` prints, read as Prometheus reads it. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "wire/metrics.h"
#include "tests/harness/test.h"

#define FAMILIES_MAX 128

static char families[FAMILIES_MAX][96];
static size_t family_count, sample_count;
static bool is_histogram; /* the family that is being read */

/* Of a histogram: buckets come in order, counts do not fall, and the last one has all. */
static struct {
    char labels[128]; /* but for le */
    double bound;     /* of the bucket that was read last */
    double count;
    bool all;
} buckets;

static size_t name_length(const char *text)
{
    size_t length = strspn(text, "abcdefghijklmnopqrstuvwxyz_");

    ASSERT_TRUE(length > 0 && length < 96);
    return length;
}

static void bucket_read(const char *labels)
{
    const char *le = strstr(labels, "le=\"");
    bool all       = le != NULL && strncmp(le + 4, "+Inf\"}", 6) == 0;
    double bound, count;
    char *end;

    ASSERT_TRUE(le != NULL && (size_t)(le - labels) < sizeof(buckets.labels));
    if (strncmp(buckets.labels, labels, (size_t)(le - labels)) != 0 ||
        buckets.labels[le - labels] != '\0' || buckets.all) {
        memset(&buckets, 0, sizeof(buckets));
        memcpy(buckets.labels, labels, (size_t)(le - labels));
    }
    bound = all ? 0 : strtod(le + 4, &end);
    ASSERT_TRUE(all || (strncmp(end, "\"}", 2) == 0 && bound > buckets.bound));
    count = strtod(strchr(le, '}') + 1, &end);
    ASSERT_TRUE(*end == '\0' && count >= buckets.count);
    buckets.bound = bound;
    buckets.count = count;
    buckets.all   = all;
}

/* The part of a histogram that a line is of, behind the name of its family; what follows it. */
static const char *part_read(const char *line, size_t length)
{
    if (strncmp(line + length, "_bucket{", 8) == 0) {
        bucket_read(line + length + 8);
        return line + length + 7;
    }
    ASSERT_TRUE(buckets.all); /* behind its buckets */
    if (strncmp(line + length, "_sum", 4) == 0) {
        return line + length + 4;
    }
    ASSERT_EQ(strncmp(line + length, "_count", 6), 0);
    ASSERT_TRUE(strtod(strrchr(line, ' '), NULL) == buckets.count);
    return line + length + 6;
}

/* {name="value",name="value"}: what follows it. */
static const char *labels_read(const char *at)
{
    ASSERT_EQ(*at++, '{');
    for (;;) {
        at += name_length(at);
        ASSERT_TRUE(at[0] == '=' && at[1] == '"');
        for (at += 2; *at != '"'; at++) {
            ASSERT_TRUE(*at != '\0' && *at != '\n');
            if (*at == '\\') {
                at++;
                ASSERT_TRUE(*at == '\\' || *at == '"' || *at == 'n');
            }
        }
        at++;
        if (*at == '}') {
            return at + 1;
        }
        ASSERT_EQ(*at++, ',');
    }
}

/* # HELP, # TYPE, and samples of that name: a family is whole, and there once. */
static void line_read(const char *line)
{
    const char *last = family_count > 0 ? families[family_count - 1] : "";
    size_t length;
    char type[16], *end;

    if (strncmp(line, "# HELP ", 7) == 0) {
        ASSERT_TRUE(family_count < FAMILIES_MAX);
        length = name_length(line + 7);
        ASSERT_TRUE(strlen(line + 7) > length + 1); /* it says something */
        for (size_t i = 0; i < family_count; i++) {
            ASSERT_TRUE(strlen(families[i]) != length ||
                        strncmp(families[i], line + 7, length) != 0);
        }
        memcpy(families[family_count], line + 7, length);
        families[family_count++][length] = '\0';
        return;
    }
    if (line[0] == '#') {
        bool total = strlen(last) > 6 && strcmp(last + strlen(last) - 6, "_total") == 0;

        ASSERT_EQ(strncmp(line, "# TYPE ", 7), 0);
        ASSERT_EQ(strncmp(line + 7, last, strlen(last)), 0);
        ASSERT_EQ(sscanf(line + 7 + strlen(last), " %15s", type), 1);
        is_histogram = strcmp(type, "histogram") == 0;
        ASSERT_TRUE(is_histogram ? !total : strcmp(type, total ? "counter" : "gauge") == 0);
        memset(&buckets, 0, sizeof(buckets));
        return;
    }
    length = is_histogram ? strlen(last) : name_length(line);
    ASSERT_TRUE(length == strlen(last) && strncmp(line, last, length) == 0);
    line = is_histogram ? part_read(line, length) : line + length;
    line = *line == '{' ? labels_read(line) : line;
    ASSERT_EQ(*line, ' ');
    ASSERT_TRUE(isdigit((unsigned char)line[1]));
    (void)strtod(line + 1, &end);
    ASSERT_EQ(*end, '\0');
    sample_count++;
}

static void text_read(const struct pl_str *text)
{
    char *copy = strdup(pl_str_text(text)), *next;

    ASSERT_NOT_NULL(copy);
    ASSERT_EQ(copy[strlen(copy) - 1], '\n');
    family_count = sample_count = 0;
    for (char *line = copy; *line != '\0'; line = next + 1) {
        next = strchr(line, '\n');
        ASSERT_NOT_NULL(next);
        *next = '\0';
        line_read(line);
    }
    free(copy);
}

TEST(every_line_is_of_the_format_whatever_names_there_are)
{
    Plasmon__V1__StatusReply reply = PLASMON__V1__STATUS_REPLY__INIT;
    Plasmon__V1__Device devices[2] = {PLASMON__V1__DEVICE__INIT, PLASMON__V1__DEVICE__INIT};
    Plasmon__V1__Device *device_list[]    = {&devices[0], &devices[1]};
    Plasmon__V1__SpillHost host           = PLASMON__V1__SPILL_HOST__INIT;
    Plasmon__V1__SpillHost *host_list[]   = {&host};
    Plasmon__V1__RouteStats route         = PLASMON__V1__ROUTE_STATS__INIT;
    Plasmon__V1__RouteStats *routes[]     = {&route};
    Plasmon__V1__NamespaceStats space     = PLASMON__V1__NAMESPACE_STATS__INIT;
    Plasmon__V1__NamespaceStats *spaces[] = {&space};
    Plasmon__V1__Lineage lineage          = PLASMON__V1__LINEAGE__INIT;
    Plasmon__V1__Waits waits              = PLASMON__V1__WAITS__INIT;
    uint64_t counts[]                     = {0, 7, 0, 2};
    Plasmon__V1__Histogram times[4]       = {
              PLASMON__V1__HISTOGRAM__INIT, PLASMON__V1__HISTOGRAM__INIT,
              PLASMON__V1__HISTOGRAM__INIT, PLASMON__V1__HISTOGRAM__INIT};
    Plasmon__V1__Histogram *histograms[] = {&times[0], &times[1], &times[2], &times[3]};
    struct pl_str text;

    times[0].n_counts = 4, times[0].counts = counts, times[0].sum_ns = 1500000;
    times[1].of = times[2].of = PLASMON__V1__TIME_OF__TIME_TRANSFER;
    times[1].route = 1, times[2].route = 3;
    times[1].n_counts = 1, times[1].counts = counts;
    times[2].n_counts = 2, times[2].counts = counts, times[2].sum_ns = 14000;
    times[3].of       = PLASMON__V1__TIME_OF__TIME_FRONT;
    times[3].why      = PLASMON__V1__WAIT_WHY__WAIT_MEMORY;
    times[3].n_counts = 4, times[3].counts = counts;
    reply.n_histograms = 4, reply.histograms = histograms;
    reply.n_devices = 2, reply.devices = device_list;
    reply.n_spill_hosts = 1, reply.spill_hosts = host_list;
    reply.n_routes = 1, reply.routes = routes;
    reply.n_namespaces = 1, reply.namespaces = spaces;
    reply.lineage = &lineage, reply.waits = &waits;
    reply.uptime_ms       = 1005;
    reply.core_ns         = 2000000003;
    reply.tasks_done      = UINT64_MAX;
    devices[0].node       = (char *)(uintptr_t) "a \"quoted\" name \\ with\na line";
    devices[0].bytes_used = 77;
    devices[1].index      = 1;
    devices[1].alive      = 1;
    devices[1].restarts   = 3;
    route.route           = 12345;
    waits.journal_ms      = 20;

    pl_str_init(&text);
    wire_metrics_up(true, &text);
    wire_metrics_text(&reply, &text);
    text_read(&text);
    ASSERT_TRUE(family_count > 40 && sample_count > 50);
    ASSERT_CONTAINS(pl_str_text(&text), "plasmon_up 1\n");
    ASSERT_CONTAINS(pl_str_text(&text), "plasmon_uptime_seconds 1.005\n");
    ASSERT_CONTAINS(pl_str_text(&text), "plasmon_head_cpu_seconds_total 2.000000003\n");
    ASSERT_CONTAINS(pl_str_text(&text), "plasmon_tasks_done_total 18446744073709551615\n");
    ASSERT_CONTAINS(
        pl_str_text(&text),
        "plasmon_device_memory_used_bytes{device=\"0\",node=\"a \\\"quoted\\\" name "
        "\\\\ with\\na line\",kind=\"unknown\"} 77\n");
    ASSERT_CONTAINS(pl_str_text(&text), "plasmon_device_restarts_total{device=\"1\",");
    ASSERT_CONTAINS(pl_str_text(&text), "plasmon_journal_stalled_seconds 0.020\n");
    ASSERT_CONTAINS(pl_str_text(&text), "plasmon_task_seconds_bucket{le=\"0.000001\"} 0\n");
    ASSERT_CONTAINS(pl_str_text(&text), "plasmon_task_seconds_bucket{le=\"0.000002\"} 7\n");
    ASSERT_CONTAINS(pl_str_text(&text),
                    "plasmon_task_seconds_bucket{le=\"67.108864\"} 9\n");
    ASSERT_CONTAINS(pl_str_text(&text), "plasmon_task_seconds_bucket{le=\"+Inf\"} 9\n"
                                        "plasmon_task_seconds_sum 0.001500000\n"
                                        "plasmon_task_seconds_count 9\n");
    ASSERT_CONTAINS(pl_str_text(&text), "plasmon_queue_stands_seconds_count{cause="
                                        "\"memory\"} 9\n");
    ASSERT_CONTAINS(pl_str_text(&text),
                    "plasmon_transfer_seconds_bucket{route=\"nccl\",le=\"+Inf\"} 7\n"
                    "plasmon_transfer_seconds_sum{route=\"nccl\"} 0.000014000\n"
                    "plasmon_transfer_seconds_count{route=\"nccl\"} 7\n");
    pl_str_finish(&text);
}

TEST(an_empty_cluster_and_none_at_all_have_their_metrics)
{
    Plasmon__V1__StatusReply reply = PLASMON__V1__STATUS_REPLY__INIT;
    struct pl_str text;

    pl_str_init(&text);
    wire_metrics_up(true, &text);
    wire_metrics_text(&reply, &text);
    text_read(&text);
    ASSERT_TRUE(family_count > 10);
    pl_str_finish(&text);
    pl_str_init(&text);
    wire_metrics_up(false, &text);
    text_read(&text);
    ASSERT_EQ(sample_count, 1);
    ASSERT_CONTAINS(pl_str_text(&text), "plasmon_up 0\n");
    pl_str_finish(&text);
}

TEST_MAIN()
