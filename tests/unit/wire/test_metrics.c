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

static size_t name_length(const char *text)
{
    size_t length = strspn(text, "abcdefghijklmnopqrstuvwxyz_");

    ASSERT_TRUE(length > 0 && length < 96);
    return length;
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
        ASSERT_STR(type, total ? "counter" : "gauge");
        return;
    }
    length = name_length(line);
    ASSERT_TRUE(length == strlen(last) && strncmp(line, last, length) == 0);
    line = line[length] == '{' ? labels_read(line + length) : line + length;
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
    struct pl_str text;

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
