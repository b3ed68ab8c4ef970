/*
 * plasmon-head: options, signals, and in the embedded default the control socket over which
 * plasmon-store hands it connections. It ends with SIGTERM, SIGINT, or when that socket closes.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/host.h"
#include "base/log.h"
#include "base/text.h"
#include "base/thread.h"
#include "head/metrics.h"
#include "head/namespaces.h"
#include "head/run.h"
#include "head/serve.h"
#include "plasmon/version.h"
#include "store/control.h"

#define ADDRESS_WAIT_NS (UINT64_C(5) * 1000 * 1000 * 1000)
enum {
    ADDRESS_MAX           = 16,
    EXIT_JOURNAL          = 3,
    EXIT_REPLACED         = 4,
    LINEAGE_BYTES_DEFAULT = 0,
};

struct option_text {
    const char *name;
    const char *argument;
    const char *help;
};

/* The one table: getopt and --help both come from it. */
static const struct option_text options[] = {
    {"listen", "ADDRESS",
     "serve here: unix:/path or host:port; may be given several times"},
    {"token-file", "FILE",
     "cluster token, the first line of FILE; default: $PLASMON_TOKEN"},
    {"token-before", "FILE",
     "and the one that it was before, while some still have that (docs/security.md)"},
    {"namespaces", "FILE",
     "which namespaces there are, with their quotas and tokens (docs/security.md); "
     "without: any"},
    {"tls-ca", "FILE",
     "mutual TLS on every TCP address: certificate (PEM) of the CA that all others' are "
     "of"},
    {"tls-cert", "FILE", "our certificate, of role head (`plasmon cert`)"},
    {"tls-key", "FILE", "its key, readable by us alone"},
    {"policy", "NAME", "placement: auto (default), locality, round-robin, pinned"},
    {"transfer", "ROUTE", "between devices: auto (default), peer, host, nccl"},
    {"window", "N", "launches outstanding at a worker (default 8192)"},
    {"node-lease", "SECONDS",
     "a store that is away for longer is given up, with its devices (default 10)"},
    {"reach-wait", "SECONDS",
     "a transfer between two hosts that both live and cannot reach each other, directly or "
     "through a third one, fails after this (default 60)"},
    {"hello-wait", "SECONDS",
     "a connection or stream that has not said who it is by then is closed (default 10)"},
    {"journal", "URL",
     "what is acknowledged outlives this process: "
     "redis://[user@]host[:port][/db][?prefix=P] "
     "or unix:/path[?db=N&user=U&prefix=P]"},
    {"journal-password-file", "FILE", "the password for it, the first line of FILE"},
    {"journal-lease", "SECONDS",
     "a head that is silent for longer is replaced by one that stands by (default 10)"},
    {"journal-wait", "SECONDS",
     "how long clients wait for a journal that cannot be reached, before this head ends "
     "(default 60)"},
    {"journal-log", "MIB",
     "how long the journal may get before it is cut down by a checkpoint, even if clients "
     "have to wait for that (default 32)"},
    {"standby", NULL,
     "wait until the head that has the journal is gone, then go on for it"},
    {"lineage-bytes", "BYTES",
     "for records of calls, so that what is lost can be made again, 64M say; suffix K, M, "
     "G; 0 (default, or PLASMON_LINEAGE_BYTES): off"},
    {"shadow-bytes", "BYTES",
     "with lineage: keep a version each time so many bytes were overwritten in place, so "
     "that a loss need not go back to the beginning; 0 (default, or PLASMON_SHADOW_BYTES): "
     "none"},
    {"nccl-bytes", "BYTES",
     "what NCCL's communicators may take of a GPU's memory, beside --device-memory: the "
     "one "
     "that was not used for longest is closed for the next (default 4294967296)"},
    {"metrics", "ADDRESS",
     "figures for Prometheus over HTTP, GET /metrics, at host:port, or at a port of "
     "127.0.0.1; to whoever reaches it, in the clear (docs/operations.md); default: off"},
    {"log", "LEVEL", "error, warn, info (default), debug, trace"},
    {"embedded", NULL, "private cluster: connections come over --control-fd"},
    {"control-fd", "FD", "the store's socket (with --embedded)"},
    {"version", NULL, "print the version"},
    {"help", NULL, "print this"},
};

struct settings {
    const char *addresses[ADDRESS_MAX + 1];
    size_t address_count;
    char token[TRUST_TOKEN_BYTES_MAX + 1];
    char token_before[TRUST_TOKEN_BYTES_MAX + 1];
    struct head_namespaces namespaces;
    struct trust_files tls;
    struct trust_source *trust; /* NULL: TCP is in the clear */
    struct serve_config config;
    struct head_journal_config journal; /* url NULL: none */
    char password[TRUST_TOKEN_BYTES_MAX + 1];
    const char *metrics; /* NULL: none */
    bool standby;
    int control_fd;
};

static void print_help(FILE *out)
{
    fprintf(
        out,
        "usage: plasmon-head --listen ADDRESS [options]\n\n"
        "The head of a Plasmon cluster: directory of objects, task graph, placement.\n\n");
    for (size_t i = 0; i < PL_COUNT(options); i++) {
        char left[48];

        (void)snprintf(left, sizeof(left), "--%s%s%s", options[i].name,
                       options[i].argument != NULL ? " " : "",
                       options[i].argument != NULL ? options[i].argument : "");
        pl_text_option(out, 22, left, options[i].help);
    }
}

static int complain(const struct pl_err *err)
{
    fprintf(stderr, "plasmon-head: %s\n", err->text);
    return 0;
}

static int parse_transfer(const char *text, enum head_transfer *out)
{
    static const char *const names[] = {"auto", "peer", "host", "nccl"};

    for (size_t i = 0; i < PL_COUNT(names); i++) {
        if (strcmp(text, names[i]) == 0) {
            *out = (enum head_transfer)i;
            return 1;
        }
    }
    fprintf(stderr,
            "plasmon-head: no transfer route '%s'; there are auto, peer, host and nccl\n",
            text);
    return 0;
}

static int parse_policy(const char *text, const char **out)
{
    if (head_policy_find(text) == NULL) {
        fprintf(stderr,
                "plasmon-head: no placement policy '%s'; there are auto, locality, "
                "round-robin and pinned\n",
                text);
        return 0;
    }
    *out = text;
    return 1;
}

static int parse_seconds(const char *name, const char *text, uint32_t *out_ms)
{
    char *end;
    double seconds = strtod(text, &end);

    if (end == text || *end != '\0' || !(seconds >= 0.1 && seconds <= 86400)) {
        fprintf(stderr,
                "plasmon-head: --%s %s is not a number of seconds between 0.1 and "
                "86400\n",
                name, text);
        return 0;
    }
    *out_ms = (uint32_t)(seconds * 1000);
    return 1;
}

/* A number, with a suffix if there is one. name: what said so. */
static int parse_bytes(const char *name, const char *text, uint64_t *out_bytes)
{
    static const char suffixes[] = "KMGT";
    const char *suffix           = NULL;
    unsigned shift               = 0;
    char *end;

    errno      = 0;
    *out_bytes = strtoull(text, &end, 10);
    if (end != text && *end != '\0') {
        suffix = strchr(suffixes, *end);
        shift  = suffix != NULL ? 10 * (unsigned)(suffix - suffixes + 1) : 0;
        end += suffix != NULL;
    }
    if (errno != 0 || end == text || *end != '\0' || text[0] == '-' ||
        *out_bytes > UINT64_MAX >> shift) {
        fprintf(stderr,
                "plasmon-head: %s: '%s' is not a number of bytes (67108864, 64M, 2G)\n",
                name, text);
        return 0;
    }
    *out_bytes <<= shift;
    return 1;
}

static int apply(struct settings *settings, const char *name, char *value)
{
    enum pl_log_level level;
    struct pl_err err = {0};

    if (strcmp(name, "listen") == 0) {
        if (settings->address_count == ADDRESS_MAX) {
            fprintf(stderr, "plasmon-head: at most %d addresses\n", ADDRESS_MAX);
            return 0;
        }
        settings->addresses[settings->address_count++] = value;
    } else if (strcmp(name, "token-file") == 0) {
        return trust_token_read(value, settings->token, &err) == PLASMON_OK ||
               complain(&err);
    } else if (strcmp(name, "token-before") == 0) {
        return trust_token_read(value, settings->token_before, &err) == PLASMON_OK ||
               complain(&err);
    } else if (strcmp(name, "namespaces") == 0) {
        return head_namespaces_read(value, &settings->namespaces, &err) == PLASMON_OK ||
               complain(&err);
    } else if (strcmp(name, "tls-ca") == 0) {
        settings->tls.ca = value;
    } else if (strcmp(name, "tls-cert") == 0) {
        settings->tls.cert = value;
    } else if (strcmp(name, "tls-key") == 0) {
        settings->tls.key = value;
    } else if (strcmp(name, "policy") == 0) {
        return parse_policy(value, &settings->config.policy);
    } else if (strcmp(name, "transfer") == 0) {
        return parse_transfer(value, &settings->config.transfer);
    } else if (strcmp(name, "window") == 0) {
        settings->config.window = (uint32_t)strtoul(value, NULL, 10);
        if (settings->config.window < 2 || settings->config.window > 30000) {
            fprintf(stderr, "plasmon-head: --window %s is not between 2 and 30000\n",
                    value);
            return 0;
        }
    } else if (strcmp(name, "node-lease") == 0) {
        return parse_seconds(name, value, &settings->config.node_lease_ms);
    } else if (strcmp(name, "reach-wait") == 0) {
        return parse_seconds(name, value, &settings->config.reach_wait_ms);
    } else if (strcmp(name, "hello-wait") == 0) {
        return parse_seconds(name, value, &settings->config.hello_wait_ms);
    } else if (strcmp(name, "journal") == 0) {
        settings->journal.url = value;
    } else if (strcmp(name, "journal-password-file") == 0) {
        return trust_secret_read("password file", value, settings->password, &err) ==
                   PLASMON_OK ||
               complain(&err);
    } else if (strcmp(name, "journal-lease") == 0) {
        return parse_seconds(name, value, &settings->journal.lease_ms);
    } else if (strcmp(name, "journal-wait") == 0) {
        return parse_seconds(name, value, &settings->journal.patience_ms);
    } else if (strcmp(name, "journal-log") == 0) {
        settings->config.log_bytes_max = strtoull(value, NULL, 10) << 20;
        if (settings->config.log_bytes_max == 0 ||
            settings->config.log_bytes_max > UINT64_C(1) << 40) {
            fprintf(stderr, "plasmon-head: --journal-log %s is not a number of MiB\n",
                    value);
            return 0;
        }
    } else if (strcmp(name, "standby") == 0) {
        settings->standby = true;
    } else if (strcmp(name, "lineage-bytes") == 0) {
        return parse_bytes("--lineage-bytes", value, &settings->config.lineage_bytes);
    } else if (strcmp(name, "shadow-bytes") == 0) {
        return parse_bytes("--shadow-bytes", value, &settings->config.shadow_bytes);
    } else if (strcmp(name, "nccl-bytes") == 0) {
        if (!parse_bytes("--nccl-bytes", value, &settings->config.nccl_bytes)) {
            return 0;
        }
        settings->config.nccl_bytes = pl_max_u64(settings->config.nccl_bytes, 1);
    } else if (strcmp(name, "metrics") == 0) {
        settings->metrics = value;
    } else if (strcmp(name, "log") == 0) {
        if (pl_log_level_parse(value, &level) != PLASMON_OK) {
            fprintf(stderr,
                    "plasmon-head: no log level '%s'; there are error, warn, info, debug "
                    "and trace\n",
                    value);
            return 0;
        }
        pl_log_set_level(level);
    } else if (strcmp(name, "embedded") == 0) {
        settings->config.embedded = true;
    } else if (strcmp(name, "control-fd") == 0) {
        settings->control_fd = atoi(value);
    }
    return 1;
}

/* -1: go on; otherwise the exit status. */
static int parse(int argc, char **argv, struct settings *settings)
{
    struct option longs[PL_COUNT(options) + 1];
    struct pl_err err = {0};
    int index         = 0;
    int c;

    memset(longs, 0, sizeof(longs));
    for (size_t i = 0; i < PL_COUNT(options); i++) {
        longs[i].name    = options[i].name;
        longs[i].has_arg = options[i].argument != NULL ? required_argument : no_argument;
    }
    if (trust_token_take(settings->token, &err) != PLASMON_OK) {
        (void)complain(&err);
        return 2;
    }
    while ((c = getopt_long(argc, argv, "", longs, &index)) != -1) {
        if (c != 0) {
            fprintf(stderr, "plasmon-head: see plasmon-head --help\n");
            return 2;
        }
        if (strcmp(options[index].name, "help") == 0) {
            print_help(stdout);
            return 0;
        }
        if (strcmp(options[index].name, "version") == 0) {
            printf("plasmon-head %s\n", PLASMON_VERSION_STRING);
            return 0;
        }
        if (!apply(settings, options[index].name, optarg)) {
            return 2;
        }
    }
    if (optind < argc) {
        fprintf(stderr, "plasmon-head: what is '%s'? See plasmon-head --help\n",
                argv[optind]);
        return 2;
    }
    if (settings->config.embedded != (settings->control_fd >= 0)) {
        fprintf(stderr, "plasmon-head: --embedded and --control-fd go together\n");
        return 2;
    }
    if (settings->config.shadow_bytes > 0 && settings->config.lineage_bytes == 0) {
        fprintf(
            stderr,
            "plasmon-head: --shadow-bytes (PLASMON_SHADOW_BYTES) needs --lineage-bytes: "
            "without records of calls nothing that is lost is made again\n");
        return 2;
    }
    if (settings->journal.url == NULL &&
        (settings->standby || settings->password[0] != '\0' ||
         settings->config.log_bytes_max != 0 || settings->journal.lease_ms != 0 ||
         settings->journal.patience_ms != 0)) {
        fprintf(stderr, "plasmon-head: --standby and --journal-... need --journal\n");
        return 2;
    }
    if (settings->config.embedded && settings->journal.url != NULL) {
        fprintf(stderr, "plasmon-head: a private cluster ends with its head and has no "
                        "journal\n");
        return 2;
    }
    if (!settings->config.embedded && settings->address_count == 0) {
        fprintf(stderr, "plasmon-head: nowhere to listen; give --listen, for example "
                        "--listen 127.0.0.1:4711\n");
        return 2;
    }
    return -1;
}

/* host:port or unix:/path, as far as can be seen without asking for the host. */
static bool address_formed(const char *address)
{
    const char *colon = strrchr(address, ':');
    const char *end   = colon != NULL ? colon + 1 : "";
    size_t digits     = strspn(end, "0123456789");

    if (strncmp(address, "unix:", 5) == 0) {
        return address[5] == '/';
    }
    return colon != address && digits > 0 && end[digits] == '\0' && digits <= 5 &&
           strtoul(end, NULL, 10) <= 65535;
}

static bool trust_open(struct settings *settings)
{
    struct pl_err err = {0};

    if (!trust_files_given(&settings->tls)) {
        return true;
    }
    if (trust_source_create(&settings->tls, TRUST_ROLE_HEAD, &settings->trust, &err) !=
        PLASMON_OK) {
        fprintf(stderr, "plasmon-head: %s\n", err.text);
        return false;
    }
    return true;
}

static bool tokens_allowed(const struct settings *settings)
{
    struct pl_err err = {0};

    if (settings->token_before[0] != '\0' && settings->token[0] == '\0') {
        fprintf(stderr,
                "plasmon-head: --token-before is for a cluster that has another token "
                "now: give that with --token-file\n");
        return false;
    }
    if (head_namespaces_beside(&settings->namespaces, settings->token,
                               settings->token_before, &err) != PLASMON_OK) {
        fprintf(stderr, "plasmon-head: %s\n", err.text);
        return false;
    }
    return true;
}

/* Without a token only loopback and Unix sockets. */
static bool addresses_allowed(const struct settings *settings)
{
    for (size_t i = 0; i < settings->address_count; i++) {
        const char *address = settings->addresses[i];

        if (!address_formed(address)) {
            fprintf(stderr,
                    "plasmon-head: --listen %s is neither host:port nor unix:/path\n",
                    address);
            return false;
        }
        if (!pl_address_is_local(address) && settings->token[0] == '\0') {
            fprintf(stderr,
                    "plasmon-head: %s is not a loopback address, and there is no cluster "
                    "token: whoever reaches it could "
                    "run code. Give --token-file, or listen on 127.0.0.1\n",
                    address);
            return false;
        }
    }
    return true;
}

/* ------------------------------------------------------------------------------ running */

struct runner {
    struct rpc_loop *loop;
    struct serve *serve;
    int control_fd;
    int signal_fd;
    int stop_fd[2]; /* pipe: the main thread ends the watcher */
};

struct new_connection {
    struct serve *serve;
    int fd;
};

static void add_connection(void *user)
{
    struct new_connection *connection = user;

    if (serve_add_fd(connection->serve, connection->fd) != PLASMON_OK) {
        pl_warn("head", "a connection could not be served");
    }
    pl_free(connection);
}

/* One message of the store. false: it is gone. */
static bool control_read(struct runner *runner)
{
    struct store_control message;
    size_t bytes = sizeof(message);
    int fds[PL_FD_MAX_PER_MESSAGE];
    unsigned count = PL_COUNT(fds);

    if (pl_fd_recv(runner->control_fd, &message, &bytes, fds, &count) != PLASMON_OK) {
        return false;
    }
    for (unsigned i = 0; i < count; i++) {
        struct new_connection *connection = PL_NEW(struct new_connection);

        if (bytes != sizeof(message) || message.type != STORE_CONTROL_ADD_CONNECTION ||
            connection == NULL) {
            pl_fd_close(&fds[i]);
            pl_free(connection);
            continue;
        }
        connection->serve = runner->serve;
        connection->fd    = fds[i];
        rpc_loop_post(runner->loop, add_connection, connection);
    }
    return true;
}

/* Waits for signals and for the store, so that the loop's thread never does. */
static void *watch(void *user)
{
    struct runner *runner  = user;
    struct pollfd polls[3] = {
        {.fd = runner->signal_fd, .events = POLLIN},
        {.fd = runner->stop_fd[0], .events = POLLIN},
        {.fd = runner->control_fd, .events = POLLIN},
    };

    for (;;) {
        if (poll(polls, runner->control_fd >= 0 ? 3 : 2, -1) < 0 && errno != EINTR) {
            break;
        }
        if (polls[1].revents != 0) {
            return NULL;
        }
        if (polls[0].revents != 0) {
            pl_info("head", "asked to stop");
            break;
        }
        if (polls[2].revents != 0 && !control_read(runner)) {
            /* The store is gone, and with it everything that this head is for: end now, not tidily. */
            _exit(0);
        }
        polls[2].revents = 0;
    }
    rpc_loop_stop(runner->loop);
    return NULL;
}

/* -------------------------------------------------------------------------- the journal */

static void serve_has_stored(void *user)
{
    struct runner *runner = user;

    if (runner->serve != NULL) {
        serve_stored(runner->serve);
    }
}

static void journal_stored(void *user)
{
    struct runner *runner = user;

    rpc_loop_post(runner->loop, serve_has_stored, runner);
}

/* Nothing that is held may leave: end now, not tidily. */
static void journal_lost(void *user, const struct pl_err *err)
{
    (void)user;
    pl_error("head", "%s", err->text);
    _exit(err->status == PLASMON_EHEADLOST ? EXIT_REPLACED : EXIT_JOURNAL);
}

static bool not_asked_to_stop(void *user)
{
    sigset_t pending;

    (void)user;
    return sigpending(&pending) != 0 ||
           (!sigismember(&pending, SIGTERM) && !sigismember(&pending, SIGINT));
}

static plasmon_status_t journal_take(struct settings *settings, struct pl_err *err)
{
    char owner[256], host[128] = "?", id[PL_HOST_ID_BYTES];
    plasmon_status_t status;

    /* In containers heads of several hosts are process 1, and hosts may have one name. */
    (void)gethostname(host, sizeof(host) - 1);
    status = pl_host_id(id);
    if (status != PLASMON_OK) {
        return pl_err_set(err, status, "which host this is: %s", pl_status_text(status));
    }
    (void)snprintf(owner, sizeof(owner), "%s, process %d of %s", host, (int)getpid(), id);
    settings->journal.owner    = owner;
    settings->journal.password = settings->password;
    status = head_journal_open(&settings->journal, &settings->config.journal, err);
    if (status == PLASMON_OK) {
        status = head_journal_acquire(settings->config.journal, settings->standby,
                                      not_asked_to_stop, NULL, err);
    }
    return status;
}

/* ------------------------------------------------------------------------------ metrics */

static void serve_metrics_wanted(void *user)
{
    struct runner *runner = user;

    if (runner->serve != NULL) {
        serve_status_metrics(runner->serve);
    }
}

static void metrics_wanted(void *user)
{
    struct runner *runner = user;

    rpc_loop_post(runner->loop, serve_metrics_wanted, runner);
}

static plasmon_status_t metrics_listen(struct settings *settings, struct runner *runner,
                                       struct pl_err *err)
{
    const struct head_metrics_config config = {
        .address = settings->metrics, .ask = metrics_wanted, .user = runner};

    return settings->metrics == NULL || settings->config.metrics != NULL
               ? PLASMON_OK
               : head_metrics_create(&config, &settings->config.metrics, err);
}

/* ---------------------------------------------------------------------------- beginning */

/*
 * Who had the journal before, and is stopped, would keep an address of ours until somebody lets it
 * go on, only to end then (EXIT_REPLACED). So it is ended now. One that runs ends by itself.
 */
static void end_who_is_stopped(const struct settings *settings)
{
    for (size_t i = 0; i < settings->address_count; i++) {
        const char *address = settings->addresses[i];
        pid_t pid =
            strncmp(address, "unix:", 5) == 0 ? pl_unix_owner(address + 5, SOCK_STREAM) : 0;

        if (pid > 0 && pid != getpid() && pl_pid_stopped(pid)) {
            pl_warn("head",
                    "process %d had the journal, is stopped and has %s still: it is killed",
                    (int)pid, address);
            (void)kill(pid, SIGKILL);
        }
    }
}

/* One that stood by may be faster than the end of the one whose address it takes. */
static plasmon_status_t listen_patiently(struct settings *settings, struct runner *runner,
                                         struct pl_err *err)
{
    uint64_t began_ns = pl_now_ns();
    plasmon_status_t status;

    do {
        status = metrics_listen(settings, runner, err);
        if (status == PLASMON_OK) {
            status = serve_create(runner->loop, &settings->config, &runner->serve, err);
        }
        if (status == PLASMON_EADDRINUSE && settings->standby) {
            end_who_is_stopped(settings);
            (void)poll(NULL, 0, 50);
        }
    } while (status == PLASMON_EADDRINUSE && settings->standby && not_asked_to_stop(NULL) &&
             pl_now_ns() - began_ns < ADDRESS_WAIT_NS);
    return status;
}

static plasmon_status_t begin(struct settings *settings, struct runner *runner,
                              struct pl_err *err)
{
    static const struct head_journal_ops ops = {.stored = journal_stored,
                                                .lost   = journal_lost};
    plasmon_status_t status                  = PLASMON_OK;

    if (rpc_loop_create(&runner->loop) != PLASMON_OK) {
        return pl_err_set(err, PLASMON_ENOMEM, "out of memory");
    }
    if (settings->standby) { /* its address may be that of the one that it waits for */
        status = journal_take(settings, err);
    }
    if (status == PLASMON_OK) {
        status = listen_patiently(settings, runner, err);
    }
    if (status == PLASMON_OK && settings->journal.url != NULL && !settings->standby) {
        status = journal_take(settings, err); /* who cannot listen takes nothing over */
    }
    if (status == PLASMON_OK) {
        status = serve_begin(runner->serve, settings->config.journal, err);
    }
    if (status == PLASMON_OK && settings->config.journal != NULL) {
        status = head_journal_start(settings->config.journal, &ops, runner, err);
    }
    return status;
}

static int run(struct settings *settings)
{
    struct runner runner = {.control_fd = settings->control_fd};
    struct pl_err err    = {0};
    pthread_t watcher;
    sigset_t signals;

    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &signals,
                    NULL); /* before gRPC makes threads, which inherit it */
    sigdelset(&signals, SIGPIPE);
    runner.signal_fd = signalfd(-1, &signals, SFD_CLOEXEC);
    if (runner.signal_fd < 0 || pipe2(runner.stop_fd, O_CLOEXEC) != 0) {
        fprintf(stderr, "plasmon-head: %s\n", strerror(errno));
        return 1;
    }

    rpc_init();
    settings->config.addresses    = settings->addresses;
    settings->config.token        = settings->token;
    settings->config.token_before = settings->token_before;
    settings->config.trust        = settings->trust;
    settings->config.namespaces   = &settings->namespaces;
    if (begin(settings, &runner, &err) != PLASMON_OK) {
        fprintf(stderr, "plasmon-head: %s\n", err.text);
        head_journal_close(settings->config.journal);
        return err.status == PLASMON_ECANCELLED ? 0 : 1;
    }
    for (size_t i = 0; i < settings->address_count; i++) {
        const char *address = settings->addresses[i];
        bool unix_socket    = strncmp(address, "unix:", 5) == 0;
        char port[24]       = "";

        if (!unix_socket && strcmp(address + strlen(address) - 2, ":0") == 0) {
            (void)snprintf(port, sizeof(port), ", port %d", serve_port(runner.serve, i));
        }
        pl_info("head", "listening on %s%s%s", address, port,
                unix_socket               ? ""
                : settings->trust != NULL ? " (TLS, both sides with certificates)"
                : !pl_address_is_local(address)
                    ? " (in the clear: whoever sees that network sees "
                      "the token; --tls-ca, --tls-cert and --tls-key "
                      "encrypt)"
                : settings->token[0] == '\0'
                    ? " (no token: every user of this machine may run code here; "
                      "--token-file keeps them out)"
                    : "");
    }
    if (settings->config.metrics != NULL) {
        pl_info("head", "metrics at %s, port %u, GET /metrics", settings->metrics,
                head_metrics_port(settings->config.metrics));
    }
    if (pthread_create(&watcher, NULL, watch, &runner) != 0) {
        fprintf(stderr, "plasmon-head: " PL_THREAD_NONE_LEFT "\n");
        return 1;
    }
    rpc_loop_run(runner.loop);

    (void)!write(runner.stop_fd[1], "", 1); /* it may have ended by itself */
    pthread_join(watcher, NULL);
    if (settings->config.journal != NULL) {
        head_journal_stop(settings->config.journal);
    }
    head_metrics_destroy(settings->config.metrics); /* asks the serve no more */
    serve_destroy(runner.serve);
    runner.serve = NULL;
    head_journal_close(settings->config.journal);
    rpc_loop_destroy(runner.loop);
    rpc_finish();
    trust_source_destroy(settings->trust);
    head_namespaces_finish(&settings->namespaces);
    return 0;
}

/* --log goes over it. */
static void log_level_from_environment(void)
{
    const char *log         = getenv("PLASMON_LOG");
    enum pl_log_level level = PL_LOG_INFO;

    if (log != NULL && pl_log_level_parse(log, &level) != PLASMON_OK) {
        level = PL_LOG_INFO; /* who set it for another program hears of it there */
    }
    pl_log_set_level(level);
}

static bool bytes_from_environment(const char *name, uint64_t *io_bytes)
{
    const char *value = getenv(name);

    return value == NULL || parse_bytes(name, value, io_bytes) != 0;
}

int main(int argc, char **argv)
{
    static struct settings settings = {
        .control_fd = -1,
        .config     = {.policy = "auto", .lineage_bytes = LINEAGE_BYTES_DEFAULT}};
    int status;

    (void)signal(SIGXFSZ, SIG_IGN); /* a log over its limit is no reason to die */
    pl_log_set_sink(pl_log_stderr, NULL);
    log_level_from_environment();
    pl_fault_from_env("head");
    if (!bytes_from_environment("PLASMON_LINEAGE_BYTES", &settings.config.lineage_bytes) ||
        !bytes_from_environment("PLASMON_SHADOW_BYTES", &settings.config.shadow_bytes)) {
        return 2;
    }
    status = parse(argc, argv, &settings);
    if (status >= 0) {
        return status;
    }
    if (!tokens_allowed(&settings) || !addresses_allowed(&settings) ||
        !trust_open(&settings)) {
        return 2;
    }
    return run(&settings);
}
