/*
 * `plasmon start`: a head and a store on this machine, or only a store that joins a head elsewhere, in the background.
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
#include "client/cli/cli.h"
#include "client/client_int.h"
#include "client/spawn.h"

#define UP_TIMEOUT_NS 60000000000ull
#define ARGS_MAX      48

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
    const char *journal;
    const char *journal_password_file;
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
    {"--journal", "URL", CLI_TEXT, AT(journal),
     "with --head: what is acknowledged is in this Redis, and outlives the head "
     "(docs/journal.md): redis://[user@]host[:port][/db][?prefix=P] or "
     "unix:/path[?db=N&user=U&prefix=P]; where the store still runs, its head is started "
     "again [none]"},
    {"--journal-password-file", "FILE", CLI_TEXT, AT(journal_password_file),
     "the password for it, the first line of FILE"},
    {"--cpu-devices", "N", CLI_TEXT, AT(cpu_devices),
     "CPU devices of this machine [2; none if there is a GPU]"},
    {"--gpus", "N|auto|none", CLI_TEXT, AT(gpus), "GPUs of this machine [auto]"},
    {"--bulk-address", "ADDRESS", CLI_TEXT, AT(bulk_address),
     "objects of other machines come in on this numeric address of ours; none [that of the "
     "way to the head, or the default route's]"},
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

/* ------------------------------------------------------------------------------------------------ programs */

struct arguments {
    char *argv[ARGS_MAX + 1];
    unsigned count;
    char text[4096];
    size_t used;
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
    PL_CHECK(length > 0 && (size_t)length < room && arguments->count < ARGS_MAX);
    arguments->argv[arguments->count++] = arguments->text + arguments->used;
    arguments->argv[arguments->count]   = NULL;
    arguments->used += (size_t)length + 1;
}

/* Start one program with its log in the node's folder, and write it down. */
static plasmon_status_t launch(struct cli_node *node, const char *name,
                               struct arguments *arguments, int *out_pidfd,
                               struct pl_err *err)
{
    char path[4096], log[128];
    plasmon_status_t status = spawn_find(name, NULL, path, sizeof(path), err);
    int log_fd;

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

/* The last lines of its log. */
static void print_log_tail(const struct cli_node *node, const char *name)
{
    char path[128], text[1024 + 1];
    const char *from = text;
    ssize_t got;
    off_t end;
    int fd;

    (void)snprintf(path, sizeof(path), "%s/%s.log", node->dir, name);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return;
    }
    end = lseek(fd, 0, SEEK_END);
    got = pread(fd, text, sizeof(text) - 1,
                end > (off_t)sizeof(text) ? end - (off_t)sizeof(text) + 1 : 0);
    (void)close(fd);
    if (got <= 0) {
        return;
    }
    text[got] = '\0';
    if (end > (off_t)sizeof(text) && strchr(text, '\n') != NULL) {
        from = strchr(text, '\n') + 1; /* not in the middle of a line */
    }
    fprintf(stderr, "%s ends with:\n%s", path, from);
}

/* A short pause between looks at a process that is coming up: there is nothing to wait on until it listens. */
static void pause_briefly(void)
{
    struct timespec pause = {.tv_nsec = 20000000};

    (void)nanosleep(&pause, NULL);
}

/* ------------------------------------------------------------------------------------------------ head */

/* With a token the port is for other machines too. */
static bool is_open(const struct start *start)
{
    const char *token = getenv("PLASMON_TOKEN");

    return start->token_file != NULL || (token != NULL && token[0] != '\0');
}

static void tcp_address(const struct start *start, char out[64])
{
    (void)snprintf(out, 64, "%s:%u", is_open(start) ? "0.0.0.0" : "127.0.0.1", start->port);
}

static int start_head(const struct start *start, struct cli_node *node)
{
    uint64_t deadline_ns       = pl_now_ns() + UP_TIMEOUT_NS;
    struct arguments arguments = {.count = 0};
    struct pl_err err          = {0};
    char socket_path[108], unix_address[128], tcp[64];
    int pidfd = -1;
    plasmon_status_t status;

    (void)snprintf(socket_path, sizeof(socket_path), "%s/head.sock", node->dir);
    (void)snprintf(unix_address, sizeof(unix_address), "unix:%s", socket_path);
    (void)snprintf(node->address, sizeof(node->address), "%s", unix_address);
    (void)unlink(socket_path);

    add(&arguments, "plasmon-head", "");
    add(&arguments, "--listen", unix_address);
    if (start->port != 0) {
        tcp_address(start, tcp);
        add(&arguments, "--listen", tcp);
    }
    for (uint32_t i = 0; i < start->listen.count; i++) {
        add(&arguments, "--listen", start->listen.text[i]);
    }
    add(&arguments, "--token-file", start->token_file);
    add(&arguments, "--token-before", start->token_before);
    add(&arguments, "--tls-cert", start->tls_cert);
    add(&arguments, "--tls-key", start->tls_key);
    add(&arguments, "--tls-ca", start->tls_ca);
    add(&arguments, "--namespaces", start->namespaces);
    add(&arguments, "--metrics", start->metrics);
    add(&arguments, "--lineage-bytes", start->lineage_bytes);
    add(&arguments, "--shadow-bytes", start->shadow_bytes);
    add(&arguments, "--journal", start->journal);
    add(&arguments, "--journal-password-file", start->journal_password_file);
    add(&arguments, "--transfer", start->transfer);
    add(&arguments, "--policy", start->policy);
    add(&arguments, "--log", start->log);

    status = launch(node, "plasmon-head", &arguments, &pidfd, &err);
    while (status == PLASMON_OK && !pl_unix_listens(socket_path)) {
        if (has_ended(pidfd)) {
            status = pl_err_set(&err, PLASMON_ECLOSED, "plasmon-head ended");
        } else if (pl_now_ns() >= deadline_ns) {
            status = pl_err_set(&err, PLASMON_ETIMEDOUT, "plasmon-head does not answer");
        } else {
            pause_briefly();
        }
    }
    pl_fd_close(&pidfd);
    if (status != PLASMON_OK) {
        (void)cli_fail(&cli_start, "%s", err.text);
        print_log_tail(node, "plasmon-head");
        return CLI_FAIL;
    }
    return CLI_OK;
}

/* ------------------------------------------------------------------------------------------------ store */

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

/* How many devices of this machine are up. */
static plasmon_status_t count_here(struct plasmon_client *client, uint32_t *out_count,
                                   struct pl_err *err)
{
    struct plasmon_device_info infos[1024];
    uint32_t count          = 0;
    plasmon_status_t status = plasmon_devices(client, infos, PL_COUNT(infos), &count);

    if (status != PLASMON_OK) {
        return pl_err_set(err, status, "%.400s", plasmon_error(client));
    }
    *out_count = 0;
    for (uint32_t i = 0; i < count && i < PL_COUNT(infos); i++) {
        *out_count += infos[i].same_host != 0;
    }
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

/* Until the devices of this machine are there, all of them. */
static plasmon_status_t wait_devices(const struct start *start, const struct cli_node *node,
                                     const char *token, int pidfd, uint32_t *out_count,
                                     struct pl_err *err)
{
    uint64_t deadline_ns          = pl_now_ns() + UP_TIMEOUT_NS;
    uint32_t expected             = 0; /* not known yet */
    struct plasmon_client *client = NULL;
    plasmon_status_t status       = connect_head(start, node, token, &client, err);
    char hint[SPAWN_HINT_BYTES];

    *out_count = 0;
    while (status == PLASMON_OK) {
        status = count_here(client, out_count, err);
        if (status == PLASMON_OK && *out_count > 0 && expected == 0) {
            plasmon_finish(client); /* a new session hears where the store's socket is */
            client = NULL;
            status = connect_head(start, node, token, &client, err);
            expected =
                status == PLASMON_OK && is_ours(node, client) ? ask_store(client) : 0;
        }
        if (status != PLASMON_OK || (expected > 0 && *out_count >= expected)) {
            break;
        }
        if (has_ended(pidfd)) {
            status = pl_err_set(err, PLASMON_ECLOSED, "plasmon-store ended%s",
                                spawn_limit_hint(hint));
        } else if (pl_now_ns() >= deadline_ns) {
            status = *out_count > 0 ? PLASMON_OK
                                    : pl_err_set(err, PLASMON_ETIMEDOUT,
                                                 "no device of this machine came up");
            break;
        } else {
            pause_briefly();
        }
    }
    plasmon_finish(client);
    return status;
}

/* The first process of a node with --head is the head. */
static bool head_has_ended(const struct start *start, const struct cli_node *node)
{
    int pidfd  = start->head ? cli_process_open(&node->processes[0]) : -1;
    bool ended = start->head && (pidfd < 0 || has_ended(pidfd));

    pl_fd_close(&pidfd);
    return ended;
}

static int start_store(const struct start *start, struct cli_node *node, const char *token)
{
    struct arguments arguments = {.count = 0};
    struct pl_err err          = {0};
    int pidfd                  = -1;
    uint32_t count             = 0;
    plasmon_status_t status;

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
        start->bulk_address != NULL                         ? start->bulk_address
        : start->head && start->port != 0 && is_open(start) ? "default"
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

    status = launch(node, "plasmon-store", &arguments, &pidfd, &err);
    if (status == PLASMON_OK) {
        status = wait_devices(start, node, token, pidfd, &count, &err);
    }
    pl_fd_close(&pidfd);
    if (status != PLASMON_OK && head_has_ended(start, node)) {
        (void)cli_fail(&cli_start, "plasmon-head ended");
        print_log_tail(node, "plasmon-head");
        return CLI_FAIL;
    }
    if (status != PLASMON_OK) {
        (void)cli_fail(&cli_start, "%s", err.text);
        print_log_tail(node, "plasmon-store");
        return CLI_FAIL;
    }
    printf("%u device%s of this machine %s ready\n", count, count == 1 ? "" : "s",
           count == 1 ? "is" : "are");
    return CLI_OK;
}

/* ------------------------------------------------------------------------------------------------ both */

static void end_all(struct cli_node *node)
{
    for (uint32_t i = node->process_count; i > 0; i--) {
        int pidfd = cli_process_open(&node->processes[i - 1]);

        if (pidfd >= 0) {
            (void)cli_process_end(pidfd, SIGTERM, 5000);
        }
    }
    cli_node_remove(node);
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

/* All that runs here is this. */
static bool runs_alone(const struct cli_node *node, const char *name)
{
    return node->process_count == 1 && strcmp(node->processes[0].name, name) == 0;
}

/*
 * A head whose store has died is given another one, which takes over what that kept; a store whose head has died, one that goes on from the journal.
 * Otherwise nothing may run here.
 */
static int check_free(const struct start *start, struct cli_node *node)
{
    struct pl_err err = {0};
    plasmon_status_t status;

    if (cli_node_read(node, &err) == PLASMON_OK) {
        keep_running(node);
        if (start->head && start->journal != NULL && runs_alone(node, "plasmon-store")) {
            printf("plasmon-store runs here (pid %d), and its head does not: starting one "
                   "that goes on from the journal\n",
                   node->processes[0].pid);
            return CLI_OK;
        }
        if (start->head && runs_alone(node, "plasmon-head")) {
            printf(
                "plasmon-head runs here (pid %d), and its store does not: starting one\n",
                node->processes[0].pid);
            return CLI_OK;
        }
        if (node->process_count > 0) {
            return cli_fail(&cli_start,
                            "%s (pid %d) runs here already; `plasmon stop` ends it",
                            node->processes[0].name, node->processes[0].pid);
        }
    }
    *node  = (struct cli_node){.process_count = 0};
    status = cli_node_dir(true, node->dir, &err);
    return status == PLASMON_OK ? CLI_OK : cli_fail(&cli_start, "%s", err.text);
}

/* In the record a head stands before its store. */
static int head_goes_first(struct cli_node *node)
{
    struct cli_process store = node->processes[0];
    struct pl_err err        = {0};

    node->processes[0]                       = node->processes[node->process_count - 1];
    node->processes[node->process_count - 1] = store;
    return cli_node_write(node, &err) == PLASMON_OK ? CLI_OK
                                                    : cli_fail(&cli_start, "%s", err.text);
}

/* What programs, and stores of other machines, need besides the address. */
static void print_use(const struct start *start, const struct cli_node *node)
{
    char tcp[64];

    printf("\nprograms on this machine:\n    export PLASMON_ADDRESS=%s\n", node->address);
    if (start->token_file != NULL) {
        printf("    export PLASMON_TOKEN_FILE=%s\n",
               node->token_file[0] != '\0' ? node->token_file : start->token_file);
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

static int run(int argc, char **argv)
{
    struct start start       = {.port = 0};
    struct cli_parsed parsed = cli_parse(&cli_start, argc, argv, &start);
    struct cli_node node;
    char *token    = NULL;
    bool has_store = false;
    int result;

    if (parsed.exit >= 0) {
        return parsed.exit;
    }
    if (start.head == (start.address != NULL)) {
        return cli_usage(&cli_start, "give either --head or --address");
    }
    if (!start.head &&
        (start.port != 0 || start.listen.count > 0 || start.transfer != NULL ||
         start.policy != NULL || start.namespaces != NULL || start.metrics != NULL ||
         start.lineage_bytes != NULL || start.shadow_bytes != NULL ||
         start.journal != NULL || start.token_before != NULL)) {
        return cli_usage(&cli_start,
                         "--port, --listen, --transfer, --policy, --namespaces, --metrics, "
                         "--lineage-bytes, --shadow-bytes, --journal and --token-before "
                         "belong to --head");
    }
    if (start.journal_password_file != NULL && start.journal == NULL) {
        return cli_usage(&cli_start, "--journal-password-file belongs to --journal");
    }
    if (start.port > 65535) {
        return cli_usage(&cli_start, "there is no port %u", start.port);
    }
    if (start.token_file != NULL) {
        token = cli_token_read(&cli_start, start.token_file);
        if (token == NULL) {
            return CLI_FAIL;
        }
    }

    result = check_free(&start, &node);
    if (result != CLI_OK) { /* what runs here is not ours to end */
        free(token);
        return result;
    }
    if (start.token_file != NULL && realpath(start.token_file, node.token_file) == NULL) {
        node.token_file[0] = '\0'; /* it was read just now; commands ask for it then */
    }
    has_store = runs_alone(&node, "plasmon-store");
    if (start.head && (node.process_count == 0 || has_store)) {
        result = start_head(&start, &node);
    } else if (!start.head) {
        (void)snprintf(node.address, sizeof(node.address), "%s", start.address);
    }
    if (result == CLI_OK) {
        result = has_store ? head_goes_first(&node) : start_store(&start, &node, token);
    }
    if (result == CLI_OK) {
        print_use(&start, &node);
    } else if (node.process_count > 0 && !has_store) { /* that one has values */
        end_all(&node);
    }
    free(token);
    return result;
}
