#include "worker/options.h"

#include "base/text.h"
#include "worker/core.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum option_kind { OPTION_NUMBER, OPTION_TEXT, OPTION_FLAG, OPTION_DEVICE };

struct option {
    const char *name;
    enum option_kind kind;
    size_t offset; /* in struct worker_options */
    size_t bytes;  /* of the number there */
    const char *value;
    const char *help;
};

#define FIELD(field) \
    offsetof(struct worker_options, field), sizeof(((struct worker_options *)0)->field)

static const struct option option_table[] = {
    {"--control-fd", OPTION_NUMBER, FIELD(control_fd), "FD",
     "control socket to plasmon-store"},
    {"--handback-socket", OPTION_TEXT, FIELD(handback_socket), "PATH",
     "when the store dies, wait for another one there"},
    {"--store-lease", OPTION_NUMBER, FIELD(store_lease_ms), "MS", "so long"},
    {"--head-fd", OPTION_NUMBER, FIELD(head_fd), "FD", "connected socket to the head"},
    {"--head", OPTION_TEXT, FIELD(head), "ADDRESS", "the head: host:port or unix:/path"},
    {"--kind", OPTION_DEVICE, FIELD(kind), "cpu|cuda", "what the device is"},
    {"--ordinal", OPTION_NUMBER, FIELD(ordinal), "N", "which of its kind"},
    {"--host-device", OPTION_NUMBER, FIELD(host_device), "N", "its number on this host"},
    {"--device-memory", OPTION_NUMBER, FIELD(device_memory), "BYTES",
     "how much of its memory to use; 0: all"},
    {"--run-streams", OPTION_NUMBER, FIELD(run_streams), "N",
     "streams for functions, 1 to 8; 0: by the kind of device [$PLASMON_RUN_STREAMS]"},
    {"--bulk-address", OPTION_TEXT, FIELD(bulk_address), "ADDRESS",
     "take objects of other hosts on this address; none: take no part"},
    {"--bulk-ports", OPTION_TEXT, FIELD(bulk_ports), "A-B", "on one of these ports"},
    {"--tls-cert", OPTION_TEXT, FIELD(tls_cert), "FILE",
     "encrypt transfers between hosts: our certificate, PEM"},
    {"--tls-key", OPTION_TEXT, FIELD(tls_key), "FILE", "its key"},
    {"--tls-ca", OPTION_TEXT, FIELD(tls_ca), "FILE", "the CA of all of the cluster"},
    {"--node", OPTION_TEXT, FIELD(node), "NAME", "name of this host, for people"},
    {"--spare", OPTION_TEXT, FIELD(spare), "HOW",
     "wait for a turn: process, with driver and libraries loaded; context, and the device "
     "open"},
    {"--incarnation", OPTION_NUMBER, FIELD(incarnation), "N", "how often it was started"},
    {"--in-haste", OPTION_FLAG, FIELD(in_haste), NULL,
     "somebody waits: start what not everybody needs (cuBLAS) when it is asked for"},
    {"--allow-source", OPTION_FLAG, FIELD(allow_source), NULL,
     "run C text that clients send (on CPU devices)"},
    {"--library-dir", OPTION_TEXT, FIELD(library_dir), "DIR",
     "load library functions from there"},
    {"--check-functions", OPTION_FLAG, FIELD(check_functions), NULL,
     "check what each function writes; slow"},
    {"--probe", OPTION_FLAG, FIELD(probe), NULL,
     "print \"cuda ORDINAL BYTES NAME\" for each GPU, and exit"},
    {"--help", OPTION_FLAG, FIELD(help), NULL, "print this, and exit"},
    {"--version", OPTION_FLAG, FIELD(version), NULL, "print the version, and exit"},
};

void worker_options_print_help(FILE *out)
{
    fputs("plasmon-worker: serves one device of a host. plasmon-store starts it.\n\n", out);
    for (size_t i = 0; i < PL_COUNT(option_table); i++) {
        const struct option *option = &option_table[i];
        char left[64];

        (void)snprintf(left, sizeof(left), "%-16s %s", option->name,
                       option->value == NULL ? "" : option->value);
        pl_text_option(out, 26, left, option->help);
    }
    fputs("\nPLASMON_TOKEN is the cluster's token, PLASMON_LOG the log level (error .. "
          "trace).\n"
          "With PLASMON_DRIVER_TIME set the status tells time inside the driver's calls "
          "apart;\n"
          "two looks at the clock a call.\n",
          out);
}

static const struct option *option_find(const char *name)
{
    for (size_t i = 0; i < PL_COUNT(option_table); i++) {
        if (strcmp(option_table[i].name, name) == 0) {
            return &option_table[i];
        }
    }
    return NULL;
}

static plasmon_status_t number_set(const struct option *option, const char *text,
                                   void *field, struct pl_err *err)
{
    uint64_t max = option->bytes == sizeof(uint64_t) ? INT64_MAX : INT32_MAX;
    uint64_t number;
    char *end;

    errno  = 0;
    number = strtoull(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || *text == '-' || number > max) {
        return pl_err_set(err, PLASMON_EINVAL, "%s wants a number, not '%s'", option->name,
                          text);
    }
    if (option->bytes == sizeof(uint64_t)) {
        *(uint64_t *)field = number;
    } else {
        *(uint32_t *)field = (uint32_t)number;
    }
    return PLASMON_OK;
}

static plasmon_status_t option_set(const struct option *option, const char *text,
                                   void *field, struct pl_err *err)
{
    switch (option->kind) {
    case OPTION_FLAG:
        *(bool *)field = true;
        return PLASMON_OK;
    case OPTION_TEXT:
        *(const char **)field = text;
        return PLASMON_OK;
    case OPTION_DEVICE:
        if (strcmp(text, "cpu") != 0 && strcmp(text, "cuda") != 0) {
            return pl_err_set(err, PLASMON_EINVAL, "%s wants cpu or cuda, not '%s'",
                              option->name, text);
        }
        *(enum device_kind *)field = strcmp(text, "cpu") == 0 ? DEVICE_CPU : DEVICE_CUDA;
        return PLASMON_OK;
    case OPTION_NUMBER:
        return number_set(option, text, field, err);
    }
    return PLASMON_EINTERNAL;
}

/* Every incarnation inherits the same environment from the store, as it must: words belong to streams. */
static plasmon_status_t run_streams_from_environment(uint32_t *out_count,
                                                     struct pl_err *err)
{
    static const struct option variable = {.name  = "PLASMON_RUN_STREAMS",
                                           .bytes = sizeof(uint32_t)};
    const char *text                    = getenv(variable.name);

    return text == NULL || *text == '\0' ? PLASMON_OK
                                         : number_set(&variable, text, out_count, err);
}

plasmon_status_t worker_options_parse(int argc, char **argv,
                                      struct worker_options *out_options,
                                      struct pl_err *err)
{
    struct worker_options options = {
        .control_fd = -1, .head_fd = -1, .kind = DEVICE_CPU, .node = "?", .incarnation = 1};
    plasmon_status_t read = run_streams_from_environment(&options.run_streams, err);

    if (read != PLASMON_OK) {
        return read;
    }

    for (int i = 1; i < argc; i++) {
        const struct option *option = option_find(argv[i]);
        plasmon_status_t status;

        if (option == NULL) {
            return pl_err_set(err, PLASMON_EINVAL, "no such option: %s (see --help)",
                              argv[i]);
        }
        if (option->kind != OPTION_FLAG && i + 1 == argc) {
            return pl_err_set(err, PLASMON_EINVAL, "%s wants a value", option->name);
        }
        status = option_set(option, option->kind == OPTION_FLAG ? NULL : argv[++i],
                            (char *)&options + option->offset, err);
        if (status != PLASMON_OK) {
            return status;
        }
    }
    if (!options.probe && !options.help && !options.version &&
        (options.control_fd < 0 || (options.head_fd < 0 && options.head == NULL))) {
        return pl_err_set(
            err, PLASMON_EINVAL,
            "it wants --control-fd and --head or --head-fd: plasmon-store starts "
            "it, not people");
    }
    if (options.spare != NULL && strcmp(options.spare, "process") != 0 &&
        strcmp(options.spare, "context") != 0 && strcmp(options.spare, "next") != 0) {
        return pl_err_set(err, PLASMON_EINVAL,
                          "--spare is process, context or next, not '%s'", options.spare);
    }
    if (options.run_streams > WORKER_RUN_STREAMS_MAX) {
        return pl_err_set(err, PLASMON_EINVAL,
                          "--run-streams (PLASMON_RUN_STREAMS) is at most %d, not %u",
                          WORKER_RUN_STREAMS_MAX, options.run_streams);
    }
    *out_options = options;
    return PLASMON_OK;
}
