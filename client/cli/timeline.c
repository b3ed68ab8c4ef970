/* `plasmon timeline`: record for a while what a running cluster does, and write it down. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "client/cli/cli.h"

struct timeline {
    struct cli_cluster cluster;
    const char *out;
    const char *plot;
    const char *seconds;
};

#define AT(field) offsetof(struct timeline, field)

static const struct cli_option options[] = {
    {"--out", "FILE", CLI_OUTPUT, AT(out), "trace for ui.perfetto.dev or chrome://tracing"},
    {"--plot", "FILE.svg", CLI_OUTPUT, AT(plot), "a picture of it"},
    {"--seconds", "S", CLI_TEXT, AT(seconds), "how long; ^C ends it earlier [5]"},
    CLI_CLUSTER_OPTIONS(struct timeline),
};

static int run(int argc, char **argv);
const struct cli_command cli_timeline = {
    .name    = "timeline",
    .summary = "record when tasks and transfers run, as a trace and a picture",
    .usage   = "[--out FILE] [--plot FILE.svg] [--seconds S]",
    .text =
        "Records all clients and devices of the cluster. A program records itself with\n"
        "plasmon_timeline_start(), also in a private cluster.\n",
    .options      = options,
    .option_count = PL_COUNT(options),
    .run          = run,
};

static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal)
{
    (void)signal;
    interrupted = 1;
}

static void sleep_for(double seconds)
{
    struct timespec left = {.tv_sec  = (time_t)seconds,
                            .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};

    while (!interrupted && nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
}

static int record(struct plasmon_client *client, const struct timeline *timeline,
                  double seconds)
{
    size_t count;
    uint64_t dropped;

    if (plasmon_timeline_start(client, NULL) != PLASMON_OK) {
        return cli_fail(&cli_timeline, "%s", plasmon_error(client));
    }
    (void)signal(SIGINT, on_interrupt); /* cannot fail for this signal */
    sleep_for(seconds);
    if (plasmon_timeline_stop(client) != PLASMON_OK ||
        plasmon_timeline_spans(client, NULL, 0, &count, &dropped) != PLASMON_OK ||
        plasmon_timeline_write(client, timeline->out, timeline->plot) != PLASMON_OK) {
        return cli_fail(&cli_timeline, "%s", plasmon_error(client));
    }
    printf("%zu launches recorded, %llu dropped", count, (unsigned long long)dropped);
    if (timeline->out != NULL) {
        printf("; trace: %s (open it in ui.perfetto.dev)", timeline->out);
    }
    if (timeline->plot != NULL) {
        printf("; picture: %s", timeline->plot);
    }
    printf("\n");
    return CLI_OK;
}

static int run(int argc, char **argv)
{
    struct timeline timeline = {.seconds = "5"};
    struct cli_parsed parsed = cli_parse(&cli_timeline, argc, argv, &timeline);
    struct plasmon_client *client;
    double seconds;
    char *end;
    int result;

    if (parsed.exit >= 0) {
        return parsed.exit;
    }
    seconds = strtod(timeline.seconds, &end);
    if (end == timeline.seconds || *end != '\0' || !(seconds >= 0 && seconds <= 86400)) {
        return cli_usage(&cli_timeline, "--seconds wants a number up to 86400, not \"%s\"",
                         timeline.seconds);
    }
    if (timeline.out == NULL && timeline.plot == NULL) {
        return cli_usage(&cli_timeline, "where to? Give --out, --plot, or both");
    }
    client = cli_connect(&cli_timeline, &timeline.cluster);
    if (client == NULL) {
        return CLI_FAIL;
    }
    result = record(client, &timeline, seconds);
    plasmon_finish(client);
    return result;
}
