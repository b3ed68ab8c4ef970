/*
 * `plasmon transfers`: what moved on which route, and between which devices; for people, or
 * (--json) for scripts. Bandwidth is bytes over the time in which some were under way, by the clock
 * of the receiving worker.
 */
#include <stdio.h>

#include "client/cli/cli.h"
#include "client/client_int.h"
#include "wire/metrics.h"

struct transfers {
    struct cli_asks asks;
    bool routes;
};

static const struct cli_option options[] = {
    CLI_ASKS_OPTIONS,
    {"--routes", NULL, CLI_FLAG, offsetof(struct transfers, routes),
     "by which route large transfers go now, what was measured, and why"},
};

static int run(int argc, char **argv);
const struct cli_command cli_transfers = {
    .name    = "transfers",
    .summary = "what moved between devices, on which route, and what stalled",
    .usage   = "[options]",
    .text =
        "Counted at the call that copies, since the head was started. in flight: "
        "enqueued, not yet done.\n"
        "stalls: deadlines that were over; retries: chunks that went again over a new "
        "connection;\n"
        "relays: connections through a third worker; written: bytes that the GPU they come "
        "from wrote,\nthe others were read. See docs/transfers.md.\n"
        "--routes: samples are reports of a worker, one a second while something moves; "
        "latency is of small\nobjects, bandwidth of those from 1 MiB on.\n",
    .options      = options,
    .option_count = PL_COUNT(options),
    .run          = run,
};

/* Bytes a second; 0: not known. */
static uint64_t rate_of(const Plasmon__V1__PairStats *pair)
{
    uint64_t done = pair->bytes - pl_min_u64(pair->bytes, pair->in_flight_bytes);

    return pair->busy_ns < 1000 ? 0
                                : (uint64_t)((double)done * 1e9 / (double)pair->busy_ns);
}

static const char *rate_text(const Plasmon__V1__PairStats *pair, char out[40])
{
    char bytes[32];
    uint64_t rate = rate_of(pair);

    (void)snprintf(out, 40, "%s%s", rate == 0 ? "-" : pl_format_bytes(rate, bytes),
                   rate == 0 ? "" : "/s");
    return out;
}

static void print_pair(const Plasmon__V1__PairStats *pair, const char *from, const char *to)
{
    char bytes[32], written[32], rate[40];

    printf("  %-6s %5s %5s %10llu %10s %12s %9llu %6llu %7llu %6llu %10s\n",
           wire_route_name(pair->route), from, to, (unsigned long long)pair->transfers,
           pl_format_bytes(pair->bytes, bytes), rate_text(pair, rate),
           (unsigned long long)pair->in_flight, (unsigned long long)pair->stalls,
           (unsigned long long)pair->retries, (unsigned long long)pair->relays,
           pl_format_bytes(pair->written_bytes, written));
}

static void add(Plasmon__V1__PairStats *sum, const Plasmon__V1__PairStats *pair)
{
    sum->transfers += pair->transfers;
    sum->bytes += pair->bytes;
    sum->busy_ns += pair->busy_ns;
    sum->in_flight += pair->in_flight;
    sum->in_flight_bytes += pair->in_flight_bytes;
    sum->stalls += pair->stalls;
    sum->retries += pair->retries;
    sum->relays += pair->relays;
    sum->written_bytes += pair->written_bytes;
}

/*
 * The pairs of one route together; *io_index: the first of them, then the first of the next route.
 * Pairs come in order of routes.
 */
static Plasmon__V1__PairStats route_sum(const Plasmon__V1__StatusReply *reply,
                                        size_t *io_index)
{
    Plasmon__V1__PairStats sum = PLASMON__V1__PAIR_STATS__INIT;

    sum.route = reply->pairs[*io_index]->route;
    while (*io_index < reply->n_pairs && reply->pairs[*io_index]->route == sum.route) {
        add(&sum, reply->pairs[(*io_index)++]);
    }
    return sum;
}

/* Within a device, and to and from clients: nobody is at the other end. */
static bool is_unpaired(const Plasmon__V1__RouteStats *route)
{
    return route->copies > 0 && (route->route == 0 || route->route >= 4);
}

static void print_reply(const Plasmon__V1__StatusReply *reply)
{
    char bytes[32];

    printf("  %-6s %5s %5s %10s %10s %12s %9s %6s %7s %6s %10s\n", "route", "from", "to",
           "objects", "bytes", "bandwidth", "in flight", "stalls", "retries", "relays",
           "written");
    for (size_t i = 0; i < reply->n_pairs;) {
        Plasmon__V1__PairStats sum = route_sum(reply, &i);

        print_pair(&sum, "all", "");
    }
    for (size_t i = 0; i < reply->n_routes; i++) {
        if (is_unpaired(reply->routes[i])) {
            printf("  %-6s %5s %5s %10llu %10s\n", wire_route_name(reply->routes[i]->route),
                   "all", "", (unsigned long long)reply->routes[i]->copies,
                   pl_format_bytes(reply->routes[i]->bytes, bytes));
        }
    }
    if (reply->n_pairs > 0) {
        printf("\n");
    }
    for (size_t i = 0; i < reply->n_pairs; i++) {
        char from[16], to[16];

        (void)snprintf(from, sizeof(from), "%u", reply->pairs[i]->from);
        (void)snprintf(to, sizeof(to), "%u", reply->pairs[i]->to);
        print_pair(reply->pairs[i], from, to);
    }
}

static void json_pair(const Plasmon__V1__PairStats *pair, bool named)
{
    printf("{\"route\":\"%s\"", wire_route_name(pair->route));
    if (named) {
        printf(",\"from\":%u,\"to\":%u", pair->from, pair->to);
    }
    printf(",\"objects\":%llu,\"bytes\":%llu,\"bytes_per_second\":%llu,\"busy_ns\":%llu,"
           "\"in_flight\":%llu,\"in_flight_bytes\":%llu,\"stalls\":%llu,\"retries\":%llu,"
           "\"relays\":%llu,\"written_bytes\":%llu}",
           (unsigned long long)pair->transfers, (unsigned long long)pair->bytes,
           (unsigned long long)rate_of(pair), (unsigned long long)pair->busy_ns,
           (unsigned long long)pair->in_flight, (unsigned long long)pair->in_flight_bytes,
           (unsigned long long)pair->stalls, (unsigned long long)pair->retries,
           (unsigned long long)pair->relays, (unsigned long long)pair->written_bytes);
}

static void print_json(const Plasmon__V1__StatusReply *reply)
{
    const char *comma = "";

    printf("{\"routes\":[");
    for (size_t i = 0; i < reply->n_pairs;) {
        Plasmon__V1__PairStats sum = route_sum(reply, &i);

        printf("%s", comma);
        json_pair(&sum, false);
        comma = ",";
    }
    for (size_t i = 0; i < reply->n_routes; i++) {
        if (is_unpaired(reply->routes[i])) {
            printf("%s{\"route\":\"%s\",\"objects\":%llu,\"bytes\":%llu}", comma,
                   wire_route_name(reply->routes[i]->route),
                   (unsigned long long)reply->routes[i]->copies,
                   (unsigned long long)reply->routes[i]->bytes);
            comma = ",";
        }
    }
    printf("],\"pairs\":[");
    for (size_t i = 0; i < reply->n_pairs; i++) {
        printf("%s", i > 0 ? "," : "");
        json_pair(reply->pairs[i], true);
    }
    printf("]}\n");
}

/* ----------------------------------------------------------------------------- --routes */

static void print_rate(const Plasmon__V1__RouteRate *rate)
{
    char bytes[32], bandwidth[40] = "-", latency[32] = "-";

    if (rate->samples > 0) {
        (void)snprintf(bandwidth, sizeof(bandwidth), "%s/s",
                       pl_format_bytes(rate->bytes_per_second, bytes));
    }
    if (rate->latency_samples > 0) {
        (void)snprintf(latency, sizeof(latency), "%.1f us", (double)rate->latency_ns / 1e3);
    }
    printf("  %11s %-6s %14s %12s %8llu\n", "", wire_route_name(rate->route), bandwidth,
           latency, (unsigned long long)(rate->samples + rate->latency_samples));
}

static void print_choices(const Plasmon__V1__StatusReply *reply)
{
    printf("  %5s %5s %-6s %14s %12s %8s  %s\n", "from", "to", "route", "bandwidth",
           "latency", "samples", "why");
    for (size_t i = 0; i < reply->n_choices; i++) {
        const Plasmon__V1__RouteChoice *choice = reply->choices[i];

        printf("  %5u %5u %-6s %14s %12s %8s  %s", choice->from, choice->to,
               wire_route_name(choice->route), "", "", "", choice->why);
        if (choice->explored > 0) {
            printf("; %llu went the other way to measure it",
                   (unsigned long long)choice->explored);
        }
        printf("\n");
        for (size_t r = 0; r < choice->n_rates; r++) {
            print_rate(choice->rates[r]);
        }
    }
    if (reply->n_choices == 0) {
        printf("  nothing that was measured has moved between devices yet\n");
    }
}

static void json_choices(const Plasmon__V1__StatusReply *reply)
{
    struct pl_str why;

    printf("{\"choices\":[");
    for (size_t i = 0; i < reply->n_choices; i++) {
        const Plasmon__V1__RouteChoice *choice = reply->choices[i];

        pl_str_init(&why);
        pl_str_append_json(&why, choice->why);
        printf("%s{\"from\":%u,\"to\":%u,\"route\":\"%s\",\"why\":%s,\"explored\":%llu,"
               "\"rates\":[",
               i > 0 ? "," : "", choice->from, choice->to, wire_route_name(choice->route),
               pl_str_text(&why), (unsigned long long)choice->explored);
        pl_str_finish(&why);
        for (size_t r = 0; r < choice->n_rates; r++) {
            const Plasmon__V1__RouteRate *rate = choice->rates[r];

            printf("%s{\"route\":\"%s\",\"bytes_per_second\":%llu,\"samples\":%llu,"
                   "\"latency_ns\":%llu,\"latency_samples\":%llu}",
                   r > 0 ? "," : "", wire_route_name(rate->route),
                   (unsigned long long)rate->bytes_per_second,
                   (unsigned long long)rate->samples, (unsigned long long)rate->latency_ns,
                   (unsigned long long)rate->latency_samples);
        }
        printf("]}");
    }
    printf("]}\n");
}

static int run(int argc, char **argv)
{
    struct transfers transfers = {.routes = false};
    struct cli_parsed parsed   = cli_parse(&cli_transfers, argc, argv, &transfers);

    if (parsed.exit >= 0) {
        return parsed.exit;
    }
    return transfers.routes ? cli_show_asked(&cli_transfers, &transfers.asks, NULL,
                                             print_choices, json_choices)
                            : cli_show_asked(&cli_transfers, &transfers.asks, NULL,
                                             print_reply, print_json);
}
