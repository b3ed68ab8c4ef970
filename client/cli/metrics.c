/*
 * `plasmon metrics`: the status in the text format of Prometheus; once, or into a file again and
 * again, for the textfile collector of node_exporter. The file is replaced whole: who reads it
 * never sees a part.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "client/cli/cli.h"
#include "client/client_int.h"
#include "wire/metrics.h"

struct metrics {
    struct cli_cluster cluster;
    const char *out;
    uint32_t interval_s;
};

static const struct cli_option options[] = {
    {"--out", "FILE", CLI_TEXT, offsetof(struct metrics, out),
     "into this file, which is replaced whole [standard output]"},
    {"--interval", "S", CLI_COUNT, offsetof(struct metrics, interval_s),
     "with --out: again every S seconds, until ^C; 0: once [0]"},
    CLI_CLUSTER_OPTIONS(struct metrics),
};

static int run(int argc, char **argv);
const struct cli_command cli_metrics = {
    .name    = "metrics",
    .summary = "figures of a cluster for Prometheus",
    .usage   = "[options]",
    .text =
        "Text format 0.0.4. For node_exporter: --out DIR/plasmon.prom --interval 15, with "
        "DIR its\n--collector.textfile.directory. While the cluster does not answer the "
        "file has plasmon_up 0 alone.\n",
    .options      = options,
    .option_count = PL_COUNT(options),
    .run          = run,
};

static bool write_whole(const char *path, const struct pl_str *text)
{
    char fresh[4096];
    size_t done = 0;
    bool good   = snprintf(fresh, sizeof(fresh), "%s.new", path) < (int)sizeof(fresh);
    int fd      = good ? open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644) : -1;

    if (!good) {
        errno = ENAMETOOLONG;
    }
    good = fd >= 0;
    while (good && done < text->length) {
        ssize_t wrote = write(fd, text->text + done, text->length - done);

        good = wrote > 0;
        done += good ? (size_t)wrote : 0;
    }
    if (fd >= 0) {
        good = close(fd) == 0 && good;
    }
    if (good && rename(fresh, path) == 0) {
        return true;
    }
    (void)cli_fail(&cli_metrics, "cannot write %s: %s", path, strerror(errno));
    if (fd >= 0) {
        (void)unlink(fresh);
    }
    return false;
}

/* false: there is no answer, which is printed, and what the text says then. */
static bool ask(struct plasmon_client *client, struct pl_str *out)
{
    Plasmon__V1__StatusReply *reply;
    struct wire_arena arena;
    bool up = client_status(client, CLIENT_STATUS_WAITS, &arena, &reply) == PLASMON_OK;

    wire_metrics_up(up, out);
    if (!up) {
        (void)cli_fail(&cli_metrics, "%s", plasmon_error(client));
        return false;
    }
    wire_metrics_text(reply, out);
    wire_arena_finish(&arena);
    return true;
}

static bool look(struct plasmon_client *client, const struct metrics *metrics, bool *out_up)
{
    struct pl_str text;
    bool good = true;

    pl_str_init(&text);
    *out_up = ask(client, &text);
    if (text.failed != 0) {
        (void)cli_fail(&cli_metrics, "no memory");
        good = false;
    } else if (metrics->out != NULL) {
        good = write_whole(metrics->out, &text);
    } else {
        printf("%s", pl_str_text(&text));
    }
    pl_str_finish(&text);
    return good;
}

static int run(int argc, char **argv)
{
    struct metrics metrics   = {.interval_s = 0};
    struct cli_parsed parsed = cli_parse(&cli_metrics, argc, argv, &metrics);
    struct plasmon_client *client;
    bool good, up;

    if (parsed.exit >= 0) {
        return parsed.exit;
    }
    if (metrics.interval_s != 0 && metrics.out == NULL) {
        return cli_usage(&cli_metrics, "--interval needs --out");
    }
    client = cli_ask(&cli_metrics, &metrics.cluster);
    if (client == NULL) {
        return CLI_FAIL;
    }
    do {
        good = look(client, &metrics, &up);
        if (good && metrics.interval_s != 0) {
            (void)nanosleep(&(struct timespec){.tv_sec = metrics.interval_s}, NULL);
        }
    } while (good && metrics.interval_s != 0);
    plasmon_finish(client);
    return good && up ? CLI_OK : CLI_FAIL;
}
