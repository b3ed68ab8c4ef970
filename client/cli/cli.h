/*
 * `plasmon`: the command line. One file a command; a command has a table of options, from which
 * parsing, defaults and --help come. Results go to stdout, everything else to stderr. Exit status:
 * 0 done, 1 it failed (with what to do about it), 2 wrong usage.
 */
#ifndef CLIENT_CLI_CLI_H
#define CLIENT_CLI_CLI_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/host.h"
#include "base/str.h"
#include "plasmon/plasmon.h"
#include "wire/wire.h"

#define CLI_OK    0
#define CLI_FAIL  1
#define CLI_USAGE 2

#define CLI_LISTENS_MAX 8

enum cli_kind {
    CLI_FLAG,  /* bool */
    CLI_TEXT,  /* const char * */
    CLI_COUNT, /* uint32_t, decimal */
    CLI_TEXTS, /* struct cli_texts: may be repeated */
    CLI_OUTPUT, /* const char *: a file that is written in the end. One that cannot be is refused at once */
};
struct cli_texts {
    const char *text[CLI_LISTENS_MAX];
    uint32_t count;
};

struct cli_option {
    const char *name;  /* "--address" */
    const char *value; /* "HOST:PORT"; NULL: a flag */
    enum cli_kind kind;
    size_t offset; /* in the command's struct */
    const char *help;
};

/* Where a command finds its cluster, and what lets it in. */
struct cli_cluster {
    const char *address;
    const char *token_file;
};
/* The options for it, in the table of a command whose struct has a `struct cli_cluster cluster`. */
#define CLI_CLUSTER_OPTIONS(type)                                                     \
    {"--address", "ADDRESS", CLI_TEXT, offsetof(type, cluster.address),               \
     "host:port or unix:/path [$PLASMON_ADDRESS, or what was started here]"},         \
    {                                                                                 \
        "--token-file", "FILE", CLI_TEXT, offsetof(type, cluster.token_file),         \
            "file with the cluster's token [$PLASMON_TOKEN, $PLASMON_TOKEN_FILE; of " \
            "what was started here: its own]"                                         \
    }

/* The options of a command that only asks a cluster: `struct cli_asks` is its struct. */
struct cli_asks {
    bool json;
    struct cli_cluster cluster;
};
#define CLI_ASKS_OPTIONS                                                            \
    {"--json", NULL, CLI_FLAG, offsetof(struct cli_asks, json), "one JSON object"}, \
        CLI_CLUSTER_OPTIONS(struct cli_asks)

struct cli_command {
    const char *name;
    const char *summary; /* one line for `plasmon --help` */
    const char *usage;   /* after the name: "[options] [NAME]" */
    const char *text;    /* more for --help; may be NULL */
    const struct cli_option *options;
    size_t option_count;
    uint32_t operands_max;
    int (*run)(int argc, char **argv);
};

extern const struct cli_command cli_start, cli_stop, cli_status, cli_functions, cli_tasks,
    cli_objects, cli_nodes, cli_top, cli_metrics, cli_timeline, cli_transfers, cli_memory,
    cli_drain, cli_cert, cli_doctor, cli_version;

/* What is left of the arguments after parsing. */
struct cli_parsed {
    const char *operands[8];
    uint32_t operand_count;
    int exit; /* -1: go on; otherwise --help was printed, or an error */
};
/* argv[0] is the command's name. Options go into `into` by their offsets. */
struct cli_parsed cli_parse(const struct cli_command *command, int argc, char **argv,
                            void *into);
/* "plasmon start: text" on stderr; returns CLI_FAIL. */
int cli_fail(const struct cli_command *command, const char *format, ...) PL_PRINTF(2, 3);
/* The same with "see `plasmon start --help`"; returns CLI_USAGE. */
int cli_usage(const struct cli_command *command, const char *format, ...) PL_PRINTF(2, 3);

/* Lists of words with commas between: is `name` one of `list`, is each word of `list` one of `all`? */
bool cli_list_has(const char *list, const char *name);
bool cli_list_is_of(const char *list, const char *all);

/* -------------------------------------------------------------- the local node (node.c) */

/* What `plasmon start` started here, as it wrote it down. */
struct cli_process {
    char name[32]; /* "plasmon-head"; its log is NAME.log */
    int pid;
    /* of the kernel: tells a process from a later one with the same number */
    uint64_t start_time;
};
/* Files that it was started with, which commands find again. */
enum cli_file {
    CLI_FILE_TOKEN,
    CLI_FILE_TLS_CA,
    CLI_FILE_TLS_CERT,
    CLI_FILE_TLS_KEY,
    CLI_FILES
};
struct cli_node {
    char dir[PL_RUNTIME_FOLDER_BYTES]; /* 0700 */
    char address[256];
    char files[CLI_FILES][PATH_MAX]; /* whole paths; empty: none was given */
    struct cli_process processes[4];
    uint32_t process_count;
};

/* The folder, made if `make`. EPERM: it is somebody else's or open to others. */
plasmon_status_t cli_node_dir(bool make, char out[PL_RUNTIME_FOLDER_BYTES],
                              struct pl_err *err);
/* ENOENT: nothing was started here. */
plasmon_status_t cli_node_read(struct cli_node *out, struct pl_err *err);
plasmon_status_t cli_node_write(const struct cli_node *node, struct pl_err *err);
void cli_node_remove(const struct cli_node *node);
/* The head, or the one that stands by. */
#define CLI_HEAD "plasmon-head"
bool cli_process_is_head(const struct cli_process *process);
/* A pidfd if the process is still the one that was started, -1 otherwise. */
int cli_process_open(const struct cli_process *process);
plasmon_status_t cli_process_describe(const char *name, int pidfd, struct cli_process *out,
                                      struct pl_err *err);
/*
 * The signal, also to a process that is stopped, then SIGKILL after timeout_ms. false: it is still
 * there. Takes pidfd.
 */
bool cli_process_end(int pidfd, int signal, uint32_t timeout_ms);
/*
 * Connect to --address, $PLASMON_ADDRESS, or what runs here, then with its token unless one is
 * given. Prints why not.
 */
struct plasmon_client *cli_connect(const struct cli_command *command,
                                   const struct cli_cluster *cluster);
/* The same for who only asks (client_ask_init()): the first question connects. */
struct plasmon_client *cli_ask(const struct cli_command *command,
                               const struct cli_cluster *cluster);
/*
 * All of such a command: the status, with what moved between devices, printed for people or as
 * JSON. The exit status.
 */
int cli_show_status(const struct cli_command *command, int argc, char **argv,
                    void (*text)(const Plasmon__V1__StatusReply *reply),
                    void (*json)(const Plasmon__V1__StatusReply *reply));
/*
 * The same for a command that has options of its own and has parsed them. holders: and with who
 * holds the memory, those with this label; "": all; NULL: without.
 */
int cli_show_asked(const struct cli_command *command, const struct cli_asks *asks,
                   const char *holders, void (*text)(const Plasmon__V1__StatusReply *reply),
                   void (*json)(const Plasmon__V1__StatusReply *reply));
/* A line of how far it is; and its end, in the one way or the other. */
void cli_drain_progress(const Plasmon__V1__DrainReply *reply, FILE *out);
void cli_drain_show(const Plasmon__V1__DrainReply *reply, bool json);
/* "used", "replica", "host memory", "file" (memory.c). */
const char *cli_memory_state(uint32_t state);
/* The label of a value for a column: "-" without one, "label +" when it is not that of all parts. */
enum { CLI_LABEL_COLUMN = 24 };
const char *cli_label(const char *label, bool more, char out[CLI_LABEL_COLUMN + 1]);
/* The first line of a file; NULL and a message if there is none. free() it. */
char *cli_token_read(const struct cli_command *command, const char *path);

#endif
