/*
 * `plasmon transfers`: what moved on which route, and between which devices; for people, or (--json) for scripts. Bandwidth is bytes over the
 * time in which some were under way, by the clock of the receiving worker.
 */
#include <stdio.h>

#include "client/cli/cli.h"
#include "client/client_int.h"

static const struct cli_option options[] = {
    CLI_ASKS_OPTIONS,
};

static int run(int argc, char **argv);
const struct cli_command cli_transfers = {
    .name    = "transfers",
    .summary = "what moved between devices, on which route, and what stalled",
    .usage   = "[options]",
    .text = "Counted at the call that copies, since the workers were started. in flight: "
            "enqueued, not yet done.\n"
            "stalls: deadlines that were over; retries: chunks that went again over a new "
            "connection;\n"
            "relays: connections through a third worker. See docs/transfers.md.\n",
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
    char bytes[32], rate[40];

    printf("  %-6s %5s %5s %10llu %10s %12s %9llu %6llu %7llu %6llu\n",
           status_route_name(pair->route), from, to, (unsigned long long)pair->transfers,
           pl_format_bytes(pair->bytes, bytes), rate_text(pair, rate),
           (unsigned long long)pair->in_flight, (unsigned long long)pair->stalls,
           (unsigned long long)pair->retries, (unsigned long long)pair->relays);
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
}

/* The pairs of one route together; *io_index: the first of them, then the first of the next route. Pairs come in order of routes. */
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

    printf("  %-6s %5s %5s %10s %10s %12s %9s %6s %7s %6s\n", "route", "from", "to",
           "objects", "bytes", "bandwidth", "in flight", "stalls", "retries", "relays");
    for (size_t i = 0; i < reply->n_pairs;) {
        Plasmon__V1__PairStats sum = route_sum(reply, &i);

        print_pair(&sum, "all", "");
    }
    for (size_t i = 0; i < reply->n_routes; i++) {
        if (is_unpaired(reply->routes[i])) {
            printf("  %-6s %5s %5s %10llu %10s\n",
                   status_route_name(reply->routes[i]->route), "all", "",
                   (unsigned long long)reply->routes[i]->copies,
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
    printf("{\"route\":\"%s\"", status_route_name(pair->route));
    if (named) {
        printf(",\"from\":%u,\"to\":%u", pair->from, pair->to);
    }
    printf(",\"objects\":%llu,\"bytes\":%llu,\"bytes_per_second\":%llu,\"busy_ns\":%llu,"
           "\"in_flight\":%llu,\"in_flight_bytes\":%llu,\"stalls\":%llu,\"retries\":%llu,"
           "\"relays\":%llu}",
           (unsigned long long)pair->transfers, (unsigned long long)pair->bytes,
           (unsigned long long)rate_of(pair), (unsigned long long)pair->busy_ns,
           (unsigned long long)pair->in_flight, (unsigned long long)pair->in_flight_bytes,
           (unsigned long long)pair->stalls, (unsigned long long)pair->retries,
           (unsigned long long)pair->relays);
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
                   status_route_name(reply->routes[i]->route),
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

static int run(int argc, char **argv)
{
    return cli_show_status(&cli_transfers, argc, argv, print_reply, print_json);
}
