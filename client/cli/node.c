/*
 * What runs on this machine because of `plasmon start`: a folder only we can enter, with sockets,
 * logs and a record of processes. A process is known by pid and start time, so that a record from
 * before a crash never hits a stranger.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/text.h"
#include "client/cli/cli.h"
#include "client/client_int.h"
#include "trust/trust.h"

#define RECORD "node"

/* Names of files in the record: the rest of the line is the path, which may have spaces. */
static const char *const file_words[CLI_FILES] = {[CLI_FILE_TOKEN]    = "token-file ",
                                                  [CLI_FILE_TLS_CA]   = "tls-ca ",
                                                  [CLI_FILE_TLS_CERT] = "tls-cert ",
                                                  [CLI_FILE_TLS_KEY]  = "tls-key "};

/*
 * Whoever has another XDG_RUNTIME_DIR would look for it elsewhere, so it is said that this one is
 * not used; once.
 */
static void find_folder(char out[PL_RUNTIME_FOLDER_BYTES])
{
    static bool told;
    char why[512], clean[512];

    pl_runtime_folder(out, why, sizeof(why));
    if (why[0] != '\0' && !told) {
        pl_text_clean(why, clean, sizeof(clean));
        fprintf(stderr, "plasmon: %s\n", clean);
        told = true;
    }
}

plasmon_status_t cli_node_dir(bool make, char out[PL_RUNTIME_FOLDER_BYTES],
                              struct pl_err *err)
{
    struct stat info;

    find_folder(out);
    if (make && mkdir(out, 0700) != 0 && errno != EEXIST) {
        return pl_err_set(err, pl_status_from_errno(errno), "cannot make %s: %s", out,
                          strerror(errno));
    }
    if (lstat(out, &info) != 0) {
        return pl_err_set(err, pl_status_from_errno(errno), "%s: %s", out, strerror(errno));
    }
    if (!S_ISDIR(info.st_mode) || info.st_uid != getuid() || (info.st_mode & 077) != 0) {
        return pl_err_set(err, PLASMON_EPERM,
                          "%s is not a folder of ours with mode 0700: remove it", out);
    }
    return PLASMON_OK;
}

/* true: the line names a file. */
static bool read_file_name(struct cli_node *out, char *line)
{
    for (int i = 0; i < CLI_FILES; i++) {
        if (strncmp(line, file_words[i], strlen(file_words[i])) == 0) {
            line[strcspn(line, "\n")] = '\0';
            (void)snprintf(out->files[i], sizeof(out->files[i]), "%.*s", PATH_MAX - 1,
                           line + strlen(file_words[i]));
            return true;
        }
    }
    return false;
}

plasmon_status_t cli_node_read(struct cli_node *out, struct pl_err *err)
{
    char path[128], line[PATH_MAX + 32], word[32];
    plasmon_status_t status;
    FILE *file;

    *out   = (struct cli_node){.process_count = 0};
    status = cli_node_dir(false, out->dir, err);
    if (status != PLASMON_OK) {
        return status;
    }
    (void)snprintf(path, sizeof(path), "%s/" RECORD, out->dir);
    file = fopen(path, "re");
    if (file == NULL) {
        return pl_err_set(err, pl_status_from_errno(errno), "%s: %s", path,
                          strerror(errno));
    }
    while (fgets(line, sizeof(line), file) != NULL &&
           out->process_count < PL_COUNT(out->processes)) {
        struct cli_process *process = &out->processes[out->process_count];

        if (read_file_name(out, line)) {
            continue;
        }
        if (sscanf(line, "%31s", word) == 1 && strcmp(word, "address") == 0) {
            (void)sscanf(line, "address %255[^\n]",
                         out->address); /* a path may have spaces */
        } else if (sscanf(line, "process %31s %d %" SCNu64, process->name, &process->pid,
                          &process->start_time) == 3) {
            out->process_count++;
        }
    }
    (void)fclose(file);
    return PLASMON_OK;
}

plasmon_status_t cli_node_write(const struct cli_node *node, struct pl_err *err)
{
    char path[128], fresh[128];
    bool good;
    FILE *file;

    (void)snprintf(path, sizeof(path), "%s/" RECORD, node->dir);
    (void)snprintf(fresh, sizeof(fresh), "%s/" RECORD ".new", node->dir);
    file = fopen(fresh, "we");
    if (file == NULL) {
        return pl_err_set(err, pl_status_from_errno(errno), "cannot write %s: %s", fresh,
                          strerror(errno));
    }
    good = fprintf(file, "address %s\n", node->address) > 0;
    for (int i = 0; i < CLI_FILES; i++) {
        if (node->files[i][0] != '\0' && strchr(node->files[i], '\n') == NULL) {
            good = fprintf(file, "%s%s\n", file_words[i], node->files[i]) > 0 && good;
        }
    }
    for (uint32_t i = 0; i < node->process_count; i++) {
        const struct cli_process *process = &node->processes[i];

        good = fprintf(file, "process %s %d %" PRIu64 "\n", process->name, process->pid,
                       process->start_time) > 0 &&
               good;
    }
    good = fclose(file) == 0 && good;
    if (!good || rename(fresh, path) != 0) {
        (void)pl_err_set(err, pl_status_from_errno(errno), "cannot write %s: %s", path,
                         strerror(errno));
        (void)unlink(fresh); /* half of a record */
        return err->status;
    }
    return PLASMON_OK;
}

void cli_node_remove(const struct cli_node *node)
{
    static const char *const names[] = {RECORD, "head.sock"};
    char path[128];

    for (size_t i = 0; i < PL_COUNT(names); i++) {
        (void)snprintf(path, sizeof(path), "%s/%s", node->dir, names[i]);
        (void)unlink(path);
    }
}

/* ---------------------------------------------------------------------------- processes */

bool cli_process_is_head(const struct cli_process *process)
{
    return strncmp(process->name, CLI_HEAD, strlen(CLI_HEAD)) == 0;
}

int cli_process_open(const struct cli_process *process)
{
    int pidfd = pl_pidfd_open((pid_t)process->pid);
    uint64_t started;

    /* Compared after opening: now the number cannot be given to another. */
    if (pidfd >= 0 && (pl_pid_started((pid_t)process->pid, &started) != PLASMON_OK ||
                       started != process->start_time)) {
        pl_fd_close(&pidfd);
    }
    return pidfd;
}

plasmon_status_t cli_process_describe(const char *name, int pidfd, struct cli_process *out,
                                      struct pl_err *err)
{
    char path[64], line[128];
    FILE *file;

    *out = (struct cli_process){.pid = -1};
    (void)snprintf(out->name, sizeof(out->name), "%s", name);
    (void)snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", pidfd);
    file = fopen(path, "re");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        (void)sscanf(line, "Pid: %d", &out->pid);
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    if (out->pid <= 0 || pl_pid_started((pid_t)out->pid, &out->start_time) != PLASMON_OK) {
        return pl_err_set(err, PLASMON_ECLOSED, "%s ended at once", name);
    }
    return PLASMON_OK;
}

static bool wait_end(int pidfd, uint32_t timeout_ms)
{
    uint64_t deadline_ns = pl_now_ns() + timeout_ms * 1000000ull;

    for (;;) {
        struct pollfd poller = {.fd = pidfd, .events = POLLIN};
        uint64_t now_ns      = pl_now_ns();
        int ready =
            poll(&poller, 1,
                 now_ns >= deadline_ns ? 0 : (int)((deadline_ns - now_ns) / 1000000 + 1));

        if (ready > 0) {
            return true;
        }
        if (ready == 0 && pl_now_ns() >= deadline_ns) {
            return false;
        }
    }
}

bool cli_process_end(int pidfd, int signal, uint32_t timeout_ms)
{
    bool gone;

    (void)syscall(SYS_pidfd_send_signal, pidfd, signal, NULL, 0u);
    /* Who is stopped would hear of it when the time is over, and be killed with nothing said. */
    (void)syscall(SYS_pidfd_send_signal, pidfd, SIGCONT, NULL, 0u);
    gone = wait_end(pidfd, timeout_ms);
    if (!gone) {
        (void)syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0u);
        gone = wait_end(pidfd, timeout_ms);
    }
    pl_fd_close(&pidfd);
    return gone;
}

/* --------------------------------------------------------------------------- connecting */

char *cli_token_read(const struct cli_command *command, const char *path)
{
    char *token       = calloc(1, TRUST_TOKEN_BYTES_MAX + 1);
    struct pl_err err = {0};

    if (token == NULL || trust_token_read(path, token, &err) != PLASMON_OK) {
        (void)cli_fail(command, "%s", token == NULL ? "out of memory" : err.text);
        free(token);
        token = NULL;
    }
    return token;
}

static bool is_set(const char *name)
{
    const char *value = getenv(name);

    return value != NULL && value[0] != '\0';
}

static const char *file_or_null(const struct cli_node *node, enum cli_file file)
{
    return node->files[file][0] != '\0' ? node->files[file] : NULL;
}

/* Certificates of what was started here, unless the environment has others. */
static void take_certificates(const struct cli_node *node, struct plasmon_options *options)
{
    if (!is_set("PLASMON_TLS_CA") && !is_set("PLASMON_TLS_CERT") &&
        !is_set("PLASMON_TLS_KEY")) {
        options->tls_ca   = file_or_null(node, CLI_FILE_TLS_CA);
        options->tls_cert = file_or_null(node, CLI_FILE_TLS_CERT);
        options->tls_key  = file_or_null(node, CLI_FILE_TLS_KEY);
    }
}

static void say_none(const struct cli_command *command, const struct cli_node *node,
                     const struct pl_err *err)
{
    if (err->status != PLASMON_OK && err->status != PLASMON_ENOENT) {
        (void)cli_fail(command, "%s", err->text);
        return;
    }
    (void)cli_fail(command,
                   "which cluster? None was started on this machine (`plasmon start "
                   "--head`) that %s tells of; give --address or set PLASMON_ADDRESS",
                   node->dir);
}

/* Without a session, or with one. */
static struct plasmon_client *reach(const struct cli_command *command,
                                    const struct cli_cluster *cluster, bool asks)

{
    struct plasmon_options options = PLASMON_OPTIONS_INIT;
    struct plasmon_client *client  = NULL;
    struct pl_err err              = {0};
    const char *token_file         = cluster->token_file;
    struct cli_node node;
    char *token = NULL;

    options.label              = "plasmon";
    options.connect_timeout_ms = 5000;
    options.address =
        cluster->address != NULL ? cluster->address : getenv("PLASMON_ADDRESS");
    if (options.address == NULL || options.address[0] == '\0') {
        if (cli_node_read(&node, &err) != PLASMON_OK || node.address[0] == '\0') {
            say_none(command, &node, &err);
            return NULL;
        }
        options.address = node.address;
        if (token_file == NULL && !is_set("PLASMON_TOKEN") &&
            !is_set("PLASMON_TOKEN_FILE")) {
            token_file = file_or_null(&node, CLI_FILE_TOKEN);
        }
        take_certificates(&node, &options);
    }
    if (token_file != NULL) {
        token = cli_token_read(command, token_file);
        if (token == NULL) {
            return NULL;
        }
        options.token = token;
    }
    if ((asks ? client_ask_init : plasmon_init)(&options, &client) != PLASMON_OK) {
        (void)cli_fail(command, "no answer from %s: %s", options.address,
                       plasmon_error(NULL));
        client = NULL;
    }
    free(token);
    return client;
}

struct plasmon_client *cli_connect(const struct cli_command *command,
                                   const struct cli_cluster *cluster)
{
    return reach(command, cluster, false);
}

struct plasmon_client *cli_ask(const struct cli_command *command,
                               const struct cli_cluster *cluster)
{
    return reach(command, cluster, true);
}

int cli_show_asked(const struct cli_command *command, const struct cli_asks *asks,
                   const char *holders, void (*text)(const Plasmon__V1__StatusReply *reply),
                   void (*json)(const Plasmon__V1__StatusReply *reply))
{
    struct plasmon_client *client = cli_ask(command, &asks->cluster);
    Plasmon__V1__StatusReply *reply;
    struct wire_arena arena;
    int result = CLI_OK;

    if (client == NULL) {
        return CLI_FAIL;
    }
    if ((holders != NULL
             ? client_status_memory(client, holders, &arena, &reply)
             : client_status(client, CLIENT_STATUS_PAIRS, &arena, &reply)) != PLASMON_OK) {
        result = cli_fail(command, "%s", plasmon_error(client));
    } else {
        (asks->json ? json : text)(reply);
        wire_arena_finish(&arena);
    }
    plasmon_finish(client);
    return result;
}

int cli_show_status(const struct cli_command *command, int argc, char **argv,
                    void (*text)(const Plasmon__V1__StatusReply *reply),
                    void (*json)(const Plasmon__V1__StatusReply *reply))
{
    struct cli_asks asks     = {.json = false};
    struct cli_parsed parsed = cli_parse(command, argc, argv, &asks);

    return parsed.exit >= 0 ? parsed.exit
                            : cli_show_asked(command, &asks, NULL, text, json);
}
