/*
 * `plasmon start`: a head and a store on this machine, or only a store that joins a head elsewhere,
 * in the background.
 *
 * It returns when the cluster can be used, or with what its log says when it cannot.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/host.h"
#include "client/cli/cli.h"
#include "client/client_int.h"
#include "client/spawn.h"

#define UP_TIMEOUT_NS      60000000000ull
#define STANDBY_TIMEOUT_NS 2000000000ull
#define ARGS_MAX           48
#define SECOND_HEAD        CLI_HEAD "-2"
#define STORE              "plasmon-store"

struct start {
    bool head;
    const char *address;
    uint32_t port;
    struct cli_texts listen;
    const char *token_file;
    const char *token_before;
    const char *namespaces;
    const char *metrics;
    const char *lineage_bytes;
    const char *shadow_bytes;
    const char *reach_wait;
    const char *hello_wait;
    const char *journal;
    const char *journal_password_file;
    const char *journal_lease;
    bool standby;
    const char *cpu_devices;
    const char *gpus;
    const char *device_memory;
    const char *host_memory;
    const char *spill_memory;
    struct cli_texts spill_dirs;
    const char *write_back;
    bool no_prefetch;
    const char *bulk_address;
    const char *bulk_ports;
    bool bulk_plain;
    const char *tls_cert;
    const char *tls_key;
    const char *tls_ca;
    const char *transfer;
    const char *policy;
    const char *node_name;
    bool allow_source;
    bool check_functions;
    const char *library_dir;
    const char *log;
};

#define AT(field) offsetof(struct start, field)
static const struct cli_option options[] = {
    {"--head", NULL, CLI_FLAG, AT(head),
     "start a cluster: a head, and a store for the devices of this machine"},
    {"--address", "HOST:PORT", CLI_TEXT, AT(address),
     "join the cluster whose head is there"},
    {"--port", "PORT", CLI_COUNT, AT(port),
     "with --head: listen on this TCP port; on loopback only, unless there is a token"},
    {"--listen", "ADDRESS", CLI_TEXTS, AT(listen),
     "with --head: listen there too (host:port or unix:/path); repeatable"},
    {"--token-file", "FILE", CLI_TEXT, AT(token_file),
     "file with the cluster's token [$PLASMON_TOKEN]"},
    {"--token-before", "FILE", CLI_TEXT, AT(token_before),
     "with --head: the token that it was before is taken, too, while some still have that "
     "(docs/security.md)"},
    {"--metrics", "ADDRESS", CLI_TEXT, AT(metrics),
     "with --head: figures for Prometheus over HTTP, GET /metrics, at host:port, or at a "
     "port of 127.0.0.1 [none]"},
    {"--namespaces", "FILE", CLI_TEXT, AT(namespaces),
     "with --head: which namespaces there are, their quotas and tokens (docs/security.md) "
     "[any, "
     "without]"},
    {"--lineage-bytes", "BYTES", CLI_TEXT, AT(lineage_bytes),
     "with --head: for records of calls, so that what is lost is made again "
     "(docs/lineage.md), 64M say; suffix K, M, G [0: off]"},
    {"--shadow-bytes", "BYTES", CLI_TEXT, AT(shadow_bytes),
     "with --lineage-bytes: keep a version each time so many bytes were overwritten in "
     "place [0: none]"},
    {"--reach-wait", "SECONDS", CLI_TEXT, AT(reach_wait),
     "with --head: a transfer between two hosts that both live and cannot reach each "
     "other, "
     "directly or through a third one, fails after this [60]"},
    {"--hello-wait", "SECONDS", CLI_TEXT, AT(hello_wait),
     "with --head: a connection or stream that has not said who it is by then is closed "
     "[10]"},
    {"--journal", "URL", CLI_TEXT, AT(journal),
     "with --head: what is acknowledged is in this Redis, and outlives the head "
     "(docs/journal.md): redis://[user@]host[:port][/db][?prefix=P] or "
     "unix:/path[?db=N&user=U&prefix=P]; where the store still runs, its head is started "
     "again [none]"},
    {"--journal-password-file", "FILE", CLI_TEXT, AT(journal_password_file),
     "the password for it, the first line of FILE"},
    {"--standby", NULL, CLI_FLAG, AT(standby),
     "with --journal: a second head here, which takes over when the first one ends or "
     "says nothing for a lease; where only one runs, another one is started beside it"},
    {"--journal-lease", "SECONDS", CLI_TEXT, AT(journal_lease),
     "with --journal: how long a head that runs now may say nothing before one that stands "
     "by takes over [10]"},
    {"--cpu-devices", "N", CLI_TEXT, AT(cpu_devices),
     "CPU devices of this machine [2; none if there is a GPU]"},
    {"--gpus", "N|auto|none", CLI_TEXT, AT(gpus), "GPUs of this machine [auto]"},
    {"--bulk-address", "ADDRESS", CLI_TEXT, AT(bulk_address),
     "objects of other machines come in on this numeric address of ours; none [that of the "
     "way to the head, or the default route's, or our only one]"},
    {"--bulk-ports", "A-B", CLI_TEXT, AT(bulk_ports), "and on one of these ports [any]"},
    {"--tls-cert", "FILE", CLI_TEXT, AT(tls_cert),
     "mutual TLS for all that goes between machines: this machine's certificate, PEM, of "
     "role "
     "host, and with --head also of role head (`plasmon cert`)"},
    {"--tls-key", "FILE", CLI_TEXT, AT(tls_key), "its key, readable by us alone"},
    {"--tls-ca", "FILE", CLI_TEXT, AT(tls_ca),
     "the CA that all machines' certificates are of"},
    {"--bulk-plain", NULL, CLI_FLAG, AT(bulk_plain),
     "or: objects may go between machines in the clear, for that network is private"},
    {"--device-memory", "BYTES", CLI_TEXT, AT(device_memory),
     "memory of each device to use; suffix K, M, G"},
    {"--host-memory", "BYTES", CLI_TEXT, AT(host_memory),
     "host memory that clients may have page-locked; suffix K, M, G [a quarter of the "
     "RAM]"},
    {"--spill-memory", "BYTES", CLI_TEXT, AT(spill_memory),
     "host memory for what devices have no room for; suffix K, M, G; 0: none [an eighth of "
     "the RAM]"},
    {"--spill-dir", "DIR[:LIMIT]", CLI_TEXTS, AT(spill_dirs),
     "and files there when that is full; repeatable; none: no files [without "
     "--spill-memory: "
     "/var/tmp, half of what is free there]"},
    {"--write-back", "PERCENT", CLI_TEXT, AT(write_back),
     "copy what a device has not used for long to that memory ahead of need, while more of "
     "it is taken than this; 0: never [75]"},
    {"--no-prefetch", NULL, CLI_FLAG, AT(no_prefetch),
     "bring back what was spilled when a task that reads it has its turn, not before"},
    {"--transfer", "ROUTE", CLI_TEXT, AT(transfer),
     "with --head: auto, peer, host or nccl [auto]"},
    {"--policy", "NAME", CLI_TEXT, AT(policy),
     "with --head: auto, locality, round-robin or pinned [auto]"},
    {"--node", "NAME", CLI_TEXT, AT(node_name),
     "name of this machine, for people [host name]"},
    {"--allow-source", NULL, CLI_FLAG, AT(allow_source),
     "CPU devices of this machine run C text that clients send"},
    {"--library-dir", "DIR", CLI_TEXT, AT(library_dir),
     "devices of this machine load functions from shared objects there [none]"},
    {"--check-functions", NULL, CLI_FLAG, AT(check_functions),
     "check what functions read and write; slow"},
    {"--log", "LEVEL", CLI_TEXT, AT(log),
     "error, warn, info, debug or trace [$PLASMON_LOG, info]"},
};

static int run(int argc, char **argv);
const struct cli_command cli_start = {
    .name    = "start",
    .summary = "start a cluster here, or join one",
    .usage   = "--head | --address HOST:PORT [options]",
    .text = "Processes run in the background until `plasmon stop`. Sockets, logs and the "
            "list of processes are in\n"
            "$XDG_RUNTIME_DIR/plasmon-UID, or /tmp/plasmon-UID.",
    .options      = options,
    .option_count = PL_COUNT(options),
    .run          = run,
};

/* ----------------------------------------------------------------------------- programs */

struct arguments {
    char *argv[ARGS_MAX + 1];
    unsigned count;
    char text[16 * PATH_MAX]; /* some of them are paths */
    size_t used;
    bool full; /* something was left out: launch() says so */
};

/* "--name=value"; nothing when value is NULL. */
static void add(struct arguments *arguments, const char *name, const char *value)
{
    size_t room = sizeof(arguments->text) - arguments->used;
    int length;

    if (value == NULL) {
        return;
    }
    length = snprintf(arguments->text + arguments->used, room, "%s%s%s", name,
                      value[0] != '\0' ? "=" : "", value);
    PL_CHECK(length > 0 && arguments->count < ARGS_MAX);
    if ((size_t)length >= room) {
        arguments->full = true;
        return;
    }
    arguments->argv[arguments->count++] = arguments->text + arguments->used;
    arguments->argv[arguments->count]   = NULL;
    arguments->used += (size_t)length + 1;
}

/* Start one program with its log in the node's folder, and write it down under this name. */
static plasmon_status_t launch(struct cli_node *node, const char *program, const char *name,
                               struct arguments *arguments, int *out_pidfd,
                               struct pl_err *err)
{
    char path[4096], log[128];
    plasmon_status_t status = spawn_find(program, NULL, path, sizeof(path), err);
    int log_fd;

    if (arguments->full) {
        return pl_err_set(err, PLASMON_ELIMIT,
                          "the options for %s have more than %zu bytes in all: shorter "
                          "paths, or fewer",
                          program, sizeof(arguments->text));
    }
    if (status != PLASMON_OK) {
        return status;
    }
    (void)snprintf(log, sizeof(log), "%s/%s.log", node->dir, name);
    log_fd =
        open(log, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (log_fd < 0) {
        return pl_err_set(err, pl_status_from_errno(errno), "cannot write %s: %s", log,
                          strerror(errno));
    }
    status = spawn_daemon(path, arguments->argv, NULL, 0, log_fd, out_pidfd, err);
    pl_fd_close(&log_fd);
    if (status != PLASMON_OK) {
        return status;
    }
    status =
        cli_process_describe(name, *out_pidfd, &node->processes[node->process_count], err);
    if (status == PLASMON_OK) {
        node->process_count++;
        status = cli_node_write(node, err);
    }
    return status;
}

static bool has_ended(int pidfd)
{
    struct pollfd poller = {.fd = pidfd, .events = POLLIN};

    return poll(&poller, 1, 0) > 0;
}

/* The end of its log; false: there is none. */
static bool read_log_tail(const struct cli_node *node, const char *name,
                          char text[1024 + 1], const char **out_from)
{
    const char *line;
    char path[128];
    ssize_t got;
    off_t end;
    int fd;

    (void)snprintf(path, sizeof(path), "%s/%s.log", node->dir, name);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    end = lseek(fd, 0, SEEK_END);
    got = pread(fd, text, 1024, end > 1024 ? end - 1024 : 0);
    (void)close(fd);
    if (got <= 0) {
        return false;
    }
    text[got] = '\0';
    *out_from = text;
    line      = strchr(text, '\n');
    if (end > 1024 && line != NULL && line[1] != '\0') {
        *out_from = line + 1; /* not in the middle of a line, unless it is the last one */
    }
    return true;
}

/* Of a process that was not started, what is there is another one's. */
static void print_log_tail(const struct cli_node *node, const char *name, bool started)
{
    char text[1024 + 1];
    const char *from;

    if (started && read_log_tail(node, name, text, &from)) {
        fprintf(stderr, "%s/%s.log ends with:\n%s", node->dir, name, from);
    }
}

/*
 * A short pause between looks at a process that is coming up: there is nothing to wait on until it
 * listens.
 */
static void pause_briefly(void)
{
    struct timespec pause = {.tv_nsec = 20000000};

    (void)nanosleep(&pause, NULL);
}

/* --------------------------------------------------------------------------------- head */

/* With a token the port is for other machines too. */
static bool is_open(const struct start *start)
{
    const char *token = getenv("PLASMON_TOKEN");

    return start->token_file != NULL || (token != NULL && token[0] != '\0');
}

/* Is the head for other machines, too? */
static bool is_for_others(const struct start *start)
{
    bool others = start->port != 0 && is_open(start);

    for (uint32_t i = 0; i < start->listen.count; i++) {
        others = others || !pl_address_is_local(start->listen.text[i]);
    }
    return start->head && others;
}

static void tcp_address(const struct start *start, char out[64])
{
    (void)snprintf(out, 64, "%s:%u", is_open(start) ? "0.0.0.0" : "127.0.0.1", start->port);
}

/* What both heads are given: the one that stands by listens there when it takes over. */
static void head_arguments(const struct start *start, const char *unix_address,
                           struct arguments *arguments)
{
    char tcp[64];

    add(arguments, "plasmon-head", "");
    add(arguments, "--listen", unix_address);
    if (start->port != 0) {
        tcp_address(start, tcp);
        add(arguments, "--listen", tcp);
    }
    for (uint32_t i = 0; i < start->listen.count; i++) {
        add(arguments, "--listen", start->listen.text[i]);
    }
    add(arguments, "--token-file", start->token_file);
    add(arguments, "--token-before", start->token_before);
    add(arguments, "--tls-cert", start->tls_cert);
    add(arguments, "--tls-key", start->tls_key);
    add(arguments, "--tls-ca", start->tls_ca);
    add(arguments, "--namespaces", start->namespaces);
    add(arguments, "--metrics", start->metrics);
    add(arguments, "--lineage-bytes", start->lineage_bytes);
    add(arguments, "--shadow-bytes", start->shadow_bytes);
    add(arguments, "--reach-wait", start->reach_wait);
    add(arguments, "--hello-wait", start->hello_wait);
    add(arguments, "--journal", start->journal);
    add(arguments, "--journal-password-file", start->journal_password_file);
    add(arguments, "--journal-lease", start->journal_lease);
    add(arguments, "--transfer", start->transfer);
    add(arguments, "--policy", start->policy);
    add(arguments, "--log", start->log);
}

/* There are two names, and so two logs: of the one that runs, and of the one that stands by. */
static const char *head_name(const struct cli_node *node)
{
    for (uint32_t i = 0; i < node->process_count; i++) {
        if (strcmp(node->processes[i].name, CLI_HEAD) == 0) {
            return SECOND_HEAD;
        }
    }
    return CLI_HEAD;
}

static int start_head(const struct start *start, struct cli_node *node)
{
    uint64_t deadline_ns       = pl_now_ns() + UP_TIMEOUT_NS;
    struct arguments arguments = {.count = 0};
    const char *name           = head_name(node);
    struct pl_err err          = {0};
    char socket_path[108];
    int pidfd = -1;
    bool started;
    plasmon_status_t status;

    (void)snprintf(socket_path, sizeof(socket_path), "%s/head.sock", node->dir);
    (void)snprintf(node->address, sizeof(node->address), "unix:%s", socket_path);
    (void)unlink(socket_path);
    head_arguments(start, node->address, &arguments);

    status = launch(node, CLI_HEAD, name, &arguments, &pidfd, &err);
    while (status == PLASMON_OK && !pl_unix_listens(socket_path)) {
        if (has_ended(pidfd)) {
            status = pl_err_set(&err, PLASMON_ECLOSED, "plasmon-head ended");
        } else if (pl_now_ns() >= deadline_ns) {
            status = pl_err_set(&err, PLASMON_ETIMEDOUT, "plasmon-head does not answer");
        } else {
            pause_briefly();
        }
    }
    started = pidfd >= 0;
    pl_fd_close(&pidfd);
    if (status != PLASMON_OK) {
        (void)cli_fail(&cli_start, "%s", err.text);
        print_log_tail(node, name, started);
        return CLI_FAIL;
    }
    return CLI_OK;
}

/*
 * It has found the journal, and who has it. A log without what it says of that at level info:
 * nothing more is known than that it runs.
 */
static bool stands_by(const struct cli_node *node, const char *name)
{
    char text[1024 + 1];
    const char *from;

    return read_log_tail(node, name, text, &from) &&
           (strstr(from, "stands by") != NULL || strstr(from, "has the journal") != NULL);
}

static int start_standby(const struct start *start, struct cli_node *node)
{
    uint64_t deadline_ns       = pl_now_ns() + STANDBY_TIMEOUT_NS;
    struct arguments arguments = {.count = 0};
    const char *name           = head_name(node);
    struct pl_err err          = {0};
    int pidfd                  = -1;
    bool started;
    plasmon_status_t status;

    head_arguments(start, node->address, &arguments);
    add(&arguments, "--standby", "");
    status = launch(node, CLI_HEAD, name, &arguments, &pidfd, &err);
    while (status == PLASMON_OK && !stands_by(node, name) && pl_now_ns() < deadline_ns) {
        if (has_ended(pidfd)) {
            status =
                pl_err_set(&err, PLASMON_ECLOSED, "the plasmon-head that stands by ended");
        } else {
            pause_briefly();
        }
    }
    started = pidfd >= 0;
    pl_fd_close(&pidfd);
    if (status != PLASMON_OK) {
        (void)cli_fail(&cli_start, "%s", err.text);
        print_log_tail(node, name, started);
        return CLI_FAIL;
    }
    printf("a second plasmon-head stands by (pid %d)\n",
           node->processes[node->process_count - 1].pid);
    return CLI_OK;
}

/* -------------------------------------------------------------------------------- store */

static plasmon_status_t connect_head(const struct start *start, const struct cli_node *node,
                                     const char *token, struct plasmon_client **out_client,
                                     struct pl_err *err)
{
    struct plasmon_options init = PLASMON_OPTIONS_INIT;
    plasmon_status_t status;

    init.address            = node->address;
    init.token              = token;
    init.tls_ca             = start->tls_ca;
    init.tls_cert           = start->tls_cert;
    init.tls_key            = start->tls_key;
    init.connect_timeout_ms = 10000;
    init.label              = "plasmon start";
    status                  = plasmon_init(&init, out_client);
    if (status != PLASMON_OK) {
        return pl_err_set(err, status, "%.400s", plasmon_error(NULL));
    }
    return PLASMON_OK;
}

#define HOST_DEVICES_MAX 64u

/* The devices of this machine. */
struct here {
    uint32_t up;
    uint32_t cpu;      /* of these */
    uint32_t starting; /* their workers have not come yet */
    uint32_t given_up;
    uint32_t closed; /* of those that are up: no object of another machine comes to them */
    char why[400];   /* of the last one without a worker; "": nothing was said */
};

/*
 * Of those that have the same place on the host the last one counts: the others are of stores
 * before. So are those that are gone in a place that ours, which brings `expected` (0: not known
 * yet), does not have.
 */
static void look_at(const Plasmon__V1__StatusReply *reply, const char *host,
                    uint32_t expected, struct here *out)
{
    const Plasmon__V1__Device *last[HOST_DEVICES_MAX] = {NULL};

    *out = (struct here){.up = 0};
    for (size_t i = 0; i < reply->n_devices; i++) {
        const Plasmon__V1__Device *device = reply->devices[i];

        if (strcmp(device->host, host) == 0 && device->host_device < HOST_DEVICES_MAX) {
            last[device->host_device] = device;
        }
    }
    for (uint32_t i = 0; i < HOST_DEVICES_MAX; i++) {
        const Plasmon__V1__Device *device = last[i];
        const char *state = device != NULL ? status_device_state(device) : "";

        if (device == NULL) {
            continue;
        }
        if (strcmp(state, "up") == 0 || strcmp(state, "down") == 0) {
            out->up++;
            out->cpu += device->kind == 1;
            out->closed += device->bulk == PLASMON__V1__BULK_ACCESS__BULK_ACCESS_NONE;
            continue;
        }
        if (expected > 0 && i >= expected && strcmp(state, "gone") == 0) {
            continue;
        }
        out->given_up += strcmp(state, "gone") == 0;
        out->starting += strcmp(state, "gone") != 0;
        if (device->death[0] != '\0') {
            (void)snprintf(out->why, sizeof(out->why), "device %u: %.360s", i,
                           device->death);
        }
    }
}

static plasmon_status_t look_here(struct plasmon_client *client, uint32_t expected,
                                  struct here *out, struct pl_err *err)
{
    Plasmon__V1__StatusReply *reply;
    struct wire_arena arena;
    plasmon_status_t status = client_status(client, CLIENT_STATUS_PLAIN, &arena, &reply);

    if (status != PLASMON_OK) {
        return pl_err_set(err, status, "%.400s", plasmon_error(client));
    }
    look_at(reply, client->host, expected, out);
    wire_arena_finish(&arena);
    return PLASMON_OK;
}

/* How many there will be: the store tells its clients. It is asked once the head knows where it is. */
static uint32_t ask_store(struct plasmon_client *client)
{
    struct pl_err unused = {0};

    return shared_ensure(&client->shared, client->store_socket, &unused) == PLASMON_OK
               ? shared_device_count(&client->shared)
               : 1;
}

/* The head knows of one store a host: is it the one that we started (the last process of the node)? */
static bool is_ours(const struct cli_node *node, const struct plasmon_client *client)
{
    char ours[160];

    (void)snprintf(ours, sizeof(ours), "%s/store-%d.sock", node->dir,
                   node->processes[node->process_count - 1].pid);
    return strcmp(client->store_socket, ours) == 0;
}

/* Until the devices of this machine are there, all of them but those that are given up. */
static plasmon_status_t wait_devices(const struct start *start, const struct cli_node *node,
                                     const char *token, int pidfd, struct here *out_here,
                                     struct pl_err *err)
{
    uint64_t deadline_ns          = pl_now_ns() + UP_TIMEOUT_NS;
    uint32_t expected             = 0; /* not known yet */
    struct plasmon_client *client = NULL;
    plasmon_status_t status       = connect_head(start, node, token, &client, err);
    char hint[SPAWN_HINT_BYTES];

    *out_here = (struct here){.up = 0};
    while (status == PLASMON_OK) {
        bool none_comes;

        status = look_here(client, expected, out_here, err);
        if (status == PLASMON_OK && expected == 0 &&
            out_here->up + out_here->starting + out_here->given_up > 0) {
            plasmon_finish(client); /* a new session hears where the store's socket is */
            client = NULL;
            status = connect_head(start, node, token, &client, err);
            expected =
                status == PLASMON_OK && is_ours(node, client) ? ask_store(client) : 0;
            if (expected > 0) { /* it has joined: what was seen may be of the one before */
                continue;
            }
        }
        none_comes = expected > 0 && out_here->given_up > 0 &&
                     out_here->up + out_here->starting == 0;
        if (status != PLASMON_OK || (expected > 0 && out_here->up > 0 &&
                                     out_here->up + out_here->given_up >= expected)) {
            break;
        }
        if (has_ended(pidfd)) {
            status = pl_err_set(err, PLASMON_ECLOSED, "plasmon-store ended%s",
                                spawn_limit_hint(hint));
        } else if (none_comes || pl_now_ns() >= deadline_ns) {
            status = out_here->up > 0
                         ? PLASMON_OK
                         : pl_err_set(err, none_comes ? PLASMON_EDEVICE : PLASMON_ETIMEDOUT,
                                      "no device of this machine came up%s%s",
                                      out_here->why[0] != '\0' ? "; " : "", out_here->why);
            break;
        } else {
            pause_briefly();
        }
    }
    plasmon_finish(client);
    return status;
}

/* None of the heads runs that were to be. */
static bool head_has_ended(const struct start *start, const struct cli_node *node)
{
    bool ended = start->head;

    for (uint32_t i = 0; i < node->process_count && ended; i++) {
        int pidfd = cli_process_is_head(&node->processes[i])
                        ? cli_process_open(&node->processes[i])
                        : -1;

        ended = pidfd < 0 || has_ended(pidfd);
        pl_fd_close(&pidfd);
    }
    return ended;
}

static void print_head_log(const struct cli_node *node)
{
    for (uint32_t i = 0; i < node->process_count; i++) {
        if (cli_process_is_head(&node->processes[i])) {
            print_log_tail(node, node->processes[i].name, true);
        }
    }
}

static void print_here(const struct here *here)
{
    uint32_t without = here->starting + here->given_up;

    printf("%u %sdevice%s of this machine %s ready\n", here->up,
           here->up == here->cpu ? "CPU " : "", here->up == 1 ? "" : "s",
           here->up == 1 ? "is" : "are");
    if (without > 0) {
        printf("%u %s not%s%s\n", without, without == 1 ? "is" : "are",
               here->why[0] != '\0' ? "; " : "", here->why);
    }
}

static int start_store(const struct start *start, struct cli_node *node, const char *token)
{
    struct arguments arguments = {.count = 0};
    struct pl_err err          = {0};
    int pidfd                  = -1;
    struct here here           = {.up = 0};
    plasmon_status_t status;
    bool started;

    add(&arguments, "plasmon-store", "");
    add(&arguments, "--head", node->address);
    add(&arguments, "--socket-dir", node->dir);
    add(&arguments, "--token-file", start->token_file);
    add(&arguments, "--cpu-devices", start->cpu_devices);
    add(&arguments, "--gpus", start->gpus);
    add(&arguments, "--device-memory", start->device_memory);
    add(&arguments, "--host-memory", start->host_memory);
    add(&arguments, "--spill-memory", start->spill_memory);
    for (uint32_t i = 0; i < start->spill_dirs.count; i++) {
        add(&arguments, "--spill-dir", start->spill_dirs.text[i]);
    }
    add(&arguments, "--write-back", start->write_back);
    add(&arguments, "--no-prefetch", start->no_prefetch ? "" : NULL);
    add(&arguments, "--bulk-address",
        start->bulk_address != NULL ? start->bulk_address
        : is_for_others(start)      ? "default"
                                    : NULL);
    add(&arguments, "--bulk-ports", start->bulk_ports);
    add(&arguments, "--tls-cert", start->tls_cert);
    add(&arguments, "--tls-key", start->tls_key);
    add(&arguments, "--tls-ca", start->tls_ca);
    add(&arguments, "--node", start->node_name);
    add(&arguments, "--library-dir", start->library_dir);
    add(&arguments, "--bulk-plain", start->bulk_plain ? "" : NULL);
    add(&arguments, "--allow-source", start->allow_source ? "" : NULL);
    add(&arguments, "--check-functions", start->check_functions ? "" : NULL);
    add(&arguments, "--log", start->log);

    status = launch(node, STORE, STORE, &arguments, &pidfd, &err);
    if (status == PLASMON_OK) {
        status = wait_devices(start, node, token, pidfd, &here, &err);
    }
    started = pidfd >= 0;
    pl_fd_close(&pidfd);
    if (status != PLASMON_OK && head_has_ended(start, node)) {
        (void)cli_fail(&cli_start, "plasmon-head ended");
        print_head_log(node);
        return CLI_FAIL;
    }
    if (status != PLASMON_OK) {
        (void)cli_fail(&cli_start, "%s", err.text);
        print_head_log(node); /* it may be what the store waits for */
        print_log_tail(node, STORE, started);
        return CLI_FAIL;
    }
    print_here(&here);
    if (is_for_others(start) && start->bulk_address == NULL && here.closed > 0) {
        printf(
            "objects cannot go from and to other machines: no address for that was found "
            "here; start it again with --bulk-address ADDRESS\n");
    }
    return CLI_OK;
}

/* --------------------------------------------------------------------------------- both */

/* Those that were started after the first `kept`, which run on. */
static void end_started(struct cli_node *node, uint32_t kept)
{
    struct pl_err unused = {0};

    while (node->process_count > kept) {
        int pidfd = cli_process_open(&node->processes[--node->process_count]);

        if (pidfd >= 0) {
            (void)cli_process_end(pidfd, SIGTERM, 5000);
        }
    }
    if (kept == 0) {
        cli_node_remove(node);
    } else {
        (void)cli_node_write(node, &unused); /* who has ended is known by its pid anyhow */
    }
}

/* Which of the recorded processes still run, in the order in which they were started. */
static void keep_running(struct cli_node *node)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < node->process_count; i++) {
        int pidfd = cli_process_open(&node->processes[i]);

        if (pidfd >= 0 && !has_ended(pidfd)) {
            node->processes[count++] = node->processes[i];
        }
        pl_fd_close(&pidfd);
    }
    node->process_count = count;
}

/* What is missing here, and is to be started. */
struct missing {
    bool head;
    bool standby;
    bool store;
};

/* Told of a node of which something runs. */
static void print_missing(const struct cli_node *node, const struct missing *missing)
{
    printf("%s runs here (pid %d), and %s: starting %s\n", node->processes[0].name,
           node->processes[0].pid,
           missing->head    ? "its head does not"
           : missing->store ? "its store does not"
                            : "no head stands by",
           missing->head ? "one that goes on from the journal" : "one");
}

/*
 * A head whose store has died is given another one, which takes over what that kept; a store whose
 * head has died, one that goes on from the journal; a head that is to have one beside it, that one.
 * Otherwise nothing may run here.
 */
static int check_free(const struct start *start, struct cli_node *node,
                      struct missing *out_missing)
{
    uint32_t heads = 0, stores = 0;
    struct pl_err err = {0};
    plasmon_status_t status;

    if (cli_node_read(node, &err) == PLASMON_OK) {
        keep_running(node);
    } else {
        node->process_count = 0;
    }
    for (uint32_t i = 0; i < node->process_count; i++) {
        heads += cli_process_is_head(&node->processes[i]);
        stores += !cli_process_is_head(&node->processes[i]);
    }
    *out_missing = (struct missing){.head    = start->head && heads == 0,
                                    .standby = start->standby && heads < 2,
                                    .store   = stores == 0};
    if (node->process_count > 0 &&
        (!start->head || (heads == 0 && start->journal == NULL) ||
         !(out_missing->head || out_missing->store || out_missing->standby))) {
        return cli_fail(&cli_start, "%s (pid %d) runs here already; `plasmon stop` ends it",
                        node->processes[0].name, node->processes[0].pid);
    }
    if (node->process_count > 0) {
        print_missing(node, out_missing);
        return CLI_OK;
    }
    *node  = (struct cli_node){.process_count = 0};
    status = cli_node_dir(true, node->dir, &err);
    return status == PLASMON_OK ? CLI_OK : cli_fail(&cli_start, "%s", err.text);
}

static void swap_first_two(struct cli_node *node)
{
    struct cli_process first = node->processes[0];

    node->processes[0] = node->processes[1];
    node->processes[1] = first;
}

/*
 * They are ended from the last to the first: a head after its store, and before both the one that
 * stands by, which would go on for the other. So a new head goes before the store that was there.
 */
static int head_goes_first(struct cli_node *node)
{
    struct pl_err err = {0};

    swap_first_two(node);
    if (cli_node_write(node, &err) != PLASMON_OK) {
        swap_first_two(node);
        return cli_fail(&cli_start, "%s", err.text);
    }
    return CLI_OK;
}

static int start_missing(const struct start *start, const struct missing *missing,
                         struct cli_node *node, const char *token)
{
    int result = CLI_OK;

    if (missing->head) {
        result = start_head(start, node);
    }
    if (result == CLI_OK && missing->store) {
        result = start_store(start, node, token);
    }
    if (result == CLI_OK && missing->standby) {
        result = start_standby(start, node);
    }
    if (result == CLI_OK && missing->head && !missing->store) {
        result = head_goes_first(node);
    }
    return result;
}

/* ----------------------------------------------------------------------- how it is used */

/* For a shell: as it is, if it is plain; else in quotes. */
static void print_word(const char *text)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                "0123456789_-+=:,./@%";

    if (text[0] != '\0' && strspn(text, plain) == strlen(text)) {
        printf("%s", text);
        return;
    }
    printf("'");
    for (const char *at = text; *at != '\0'; at++) {
        if (*at == '\'') {
            printf("'\\''");
        } else {
            printf("%c", *at);
        }
    }
    printf("'");
}

static void print_export(const char *name, const char *value)
{
    printf("    export %s=", name);
    print_word(value);
    printf("\n");
}

/* A path that means the same in another folder; as it was given if it has gone meanwhile. */
static const char *whole(const char *kept, const char *given)
{
    return kept[0] != '\0' ? kept : given;
}

/* What programs, and stores of other machines, need besides the address. */
static void print_use(const struct start *start, const struct cli_node *node)
{
    char tcp[64];

    printf("\nprograms on this machine:\n");
    print_export("PLASMON_ADDRESS", node->address);
    if (start->token_file != NULL) {
        print_export("PLASMON_TOKEN_FILE",
                     whole(node->files[CLI_FILE_TOKEN], start->token_file));
    }
    if (start->tls_cert != NULL && !start->head) { /* Unix sockets need none */
        print_export("PLASMON_TLS_CA", whole(node->files[CLI_FILE_TLS_CA], start->tls_ca));
        print_export("PLASMON_TLS_CERT",
                     whole(node->files[CLI_FILE_TLS_CERT], start->tls_cert));
        print_export("PLASMON_TLS_KEY",
                     whole(node->files[CLI_FILE_TLS_KEY], start->tls_key));
        printf("  or with a certificate of their own (`plasmon cert issue`); commands of "
               "`plasmon` here find these\n");
    }
    if (start->head && start->port != 0) {
        tcp_address(start, tcp);
        printf("other machines%s:\n    plasmon start --address %s%s%s%s\n",
               strncmp(tcp, "127.", 4) == 0 ? " (only through a tunnel: without "
                                              "--token-file the head listens on loopback)"
                                            : "",
               strncmp(tcp, "0.0.0.0", 7) == 0 ? "THIS_MACHINE" : "127.0.0.1",
               strchr(tcp, ':'), start->token_file != NULL ? " --token-file FILE" : "",
               start->bulk_plain         ? " --bulk-plain"
               : start->tls_cert != NULL ? " --tls-ca FILE --tls-cert FILE --tls-key FILE"
                                         : "");
    }
    printf("end it:\n    plasmon stop\nlogs are in %s\n", node->dir);
}

/* What joins what runs here must show the same secrets; a head without a token would let everybody in. */
static void take_files(struct start *start, const struct cli_node *node)
{
    const char **const wanted[CLI_FILES] = {[CLI_FILE_TOKEN]    = &start->token_file,
                                            [CLI_FILE_TLS_CA]   = &start->tls_ca,
                                            [CLI_FILE_TLS_CERT] = &start->tls_cert,
                                            [CLI_FILE_TLS_KEY]  = &start->tls_key};

    for (int i = 0; i < CLI_FILES; i++) {
        if (*wanted[i] == NULL && node->files[i][0] != '\0') {
            *wanted[i] = node->files[i];
        }
    }
}

/* For commands in whatever folder. */
static void keep_files(const struct start *start, struct cli_node *node)
{
    const char *const given[CLI_FILES] = {[CLI_FILE_TOKEN]    = start->token_file,
                                          [CLI_FILE_TLS_CA]   = start->tls_ca,
                                          [CLI_FILE_TLS_CERT] = start->tls_cert,
                                          [CLI_FILE_TLS_KEY]  = start->tls_key};

    for (int i = 0; i < CLI_FILES; i++) {
        if (given[i] != NULL && given[i] != node->files[i] &&
            realpath(given[i], node->files[i]) == NULL) {
            node->files[i][0] = '\0'; /* commands ask for it then */
        }
    }
}

/* CLI_OK, or which options do not go together. */
static int check_options(const struct start *start)
{
    if (start->head == (start->address != NULL)) {
        return cli_usage(&cli_start, "give either --head or --address");
    }
    if (!start->head &&
        (start->port != 0 || start->listen.count > 0 || start->transfer != NULL ||
         start->policy != NULL || start->namespaces != NULL || start->metrics != NULL ||
         start->lineage_bytes != NULL || start->shadow_bytes != NULL ||
         start->reach_wait != NULL || start->hello_wait != NULL || start->journal != NULL ||
         start->token_before != NULL)) {
        return cli_usage(&cli_start,
                         "--port, --listen, --transfer, --policy, --namespaces, --metrics, "
                         "--lineage-bytes, --shadow-bytes, --reach-wait, --hello-wait, "
                         "--journal and --token-before belong to --head");
    }
    if (start->journal_password_file != NULL && start->journal == NULL) {
        return cli_usage(&cli_start, "--journal-password-file belongs to --journal");
    }
    if (start->standby && start->journal == NULL) {
        return cli_usage(&cli_start,
                         "--standby belongs to --journal: the head that stands by goes on "
                         "from what the other one has written there");
    }
    if (start->journal_lease != NULL && start->journal == NULL) {
        return cli_usage(&cli_start, "--journal-lease belongs to --journal");
    }
    if (start->port > 65535) {
        return cli_usage(&cli_start, "there is no port %u", start->port);
    }
    return CLI_OK;
}

static int run(int argc, char **argv)
{
    struct start start       = {.port = UINT32_MAX};
    struct cli_parsed parsed = cli_parse(&cli_start, argc, argv, &start);
    struct missing missing;
    struct cli_node node;
    char *token = NULL;
    uint32_t kept;
    int result;

    if (parsed.exit >= 0) {
        return parsed.exit;
    }
    if (start.port == 0) {
        return cli_usage(&cli_start,
                         "--port wants 1 to 65535: nobody would know which one it was "
                         "(with --listen HOST:0 the log of the head has it)");
    }
    start.port = start.port == UINT32_MAX ? 0 : start.port;
    result     = check_options(&start);
    if (result != CLI_OK) {
        return result;
    }

    result = check_free(&start, &node, &missing);
    kept   = node.process_count;
    if (result == CLI_OK) {
        take_files(&start, &node);
        if (start.token_file != NULL) {
            token  = cli_token_read(&cli_start, start.token_file);
            result = token != NULL ? CLI_OK : CLI_FAIL;
        }
    }
    if (result == CLI_OK) {
        keep_files(&start, &node);
        if (!start.head) {
            (void)snprintf(node.address, sizeof(node.address), "%s", start.address);
        }
        result = start_missing(&start, &missing, &node, token);
        if (result == CLI_OK) {
            print_use(&start, &node);
        } else { /* what ran here before is not ours to end */
            end_started(&node, kept);
        }
    }
    free(token);
    return result;
}
