/* Options: see options.h. */
#include "store/options.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/text.h"

enum kind {
    OPTION_TEXT,
    OPTION_COUNT,   /* a number, or "auto" */
    OPTION_GPUS,    /* a number, "auto" or "none" */
    OPTION_MS,      /* a whole number, not 0 */
    OPTION_MS_OR_0, /* a whole number */
    OPTION_PERCENT, /* 0 to 100 */
    OPTION_BYTES,   /* 4096, 512M, 8G */
    OPTION_FD,
    OPTION_FLAG,
    OPTION_LIST,
    OPTION_DIRS,
    OPTION_SPARE, /* auto, none, process, context */
};

struct option {
    const char *name;
    const char *value; /* NULL: takes none */
    enum kind kind;
    size_t offset;
    const char *fallback;
    const char *help;
};

#define AT(field) offsetof(struct store_options, field)

static const struct option options[] = {
    {"--head", "TARGET", OPTION_TEXT, AT(head), "none",
     "where the head is: host:port or unix:/path"},
    {"--cpu-devices", "N", OPTION_COUNT, AT(cpu_devices), "auto",
     "CPU devices to serve; auto: 2 where there is no GPU"},
    {"--gpus", "N|auto|none", OPTION_GPUS, AT(gpus), "auto",
     "GPUs to serve; auto: all that the driver shows"},
    {"--device-memory", "BYTES", OPTION_BYTES, AT(device_memory), "all",
     "memory of each device to use (suffix K, M, G); CPU devices share a quarter of the "
     "RAM by default"},
    {"--host-memory", "BYTES", OPTION_BYTES, AT(host_memory), "a quarter of the RAM",
     "host memory that clients of this host may have page-locked in all (suffix K, M, G)"},
    {"--spill-memory", "BYTES", OPTION_BYTES, AT(spill_memory), "an eighth of the RAM",
     "host memory for what devices have no room for, page-locked when first needed; 0: "
     "nothing is spilled"},
    {"--spill-dir", "DIR[:LIMIT]", OPTION_DIRS, AT(spill_dirs),
     "without --spill-memory: /var/tmp, half of what is free there",
     "and files there when that is full, up to LIMIT bytes (suffix K, M, G, T; default: "
     "nine tenths of what is free); may be repeated; none: no files"},
    {"--write-back", "PERCENT", OPTION_PERCENT, AT(write_back), "75",
     "copy what a device has not used for long to that host memory ahead of need, while "
     "more of it is taken than this; 0: never"},
    {"--no-prefetch", NULL, OPTION_FLAG, AT(no_prefetch), NULL,
     "bring back what was spilled when a task that reads it has its turn, not before; to "
     "compare"},
    {"--token-file", "FILE", OPTION_TEXT, AT(token_file), "$PLASMON_TOKEN",
     "file with the cluster's token"},
    {"--socket-dir", "DIR", OPTION_TEXT, AT(socket_dir),
     "$XDG_RUNTIME_DIR/plasmon-<uid> or /tmp/plasmon-<uid>",
     "folder (mode 0700, made if missing) for the socket that clients of this host use"},
    {"--node", "NAME", OPTION_TEXT, AT(node), "host name", "name of this host, for people"},
    {"--bulk-address", "ADDRESS", OPTION_TEXT, AT(bulk_address), "auto",
     "workers take objects of other hosts on this numeric address; auto: where the head is "
     "reached from (on its own machine, if objects may cross a network: default); default: "
     "of "
     "the default route, or our only one; none"},
    {"--bulk-ports", "A-B", OPTION_TEXT, AT(bulk_ports), "any",
     "and on one of these ports; at least one for each device"},
    {"--log", "LEVEL", OPTION_TEXT, AT(log), "$PLASMON_LOG or info",
     "error, warn, info, debug or trace; workers use it too"},
    {"--tls-cert", "FILE", OPTION_TEXT, AT(tls_cert), "none",
     "encrypt what goes to the head and between machines: this machine's certificate, PEM, "
     "of role host (`plasmon cert`)"},
    {"--tls-key", "FILE", OPTION_TEXT, AT(tls_key), "none",
     "its key, readable by us alone"},
    {"--tls-ca", "FILE", OPTION_TEXT, AT(tls_ca), "none",
     "the CA that all machines' certificates are of"},
    {"--bulk-plain", NULL, OPTION_FLAG, AT(bulk_plain), NULL,
     "or: objects may go between machines in the clear, for that network is private"},
    {"--worker-lease", "MS", OPTION_MS, AT(worker_lease_ms), "30000",
     "a worker whose main loop stands still for so long is killed and replaced"},
    {"--worker-start-lease", "MS", OPTION_MS, AT(start_lease_ms), "60000",
     "and one that is not ready yet, when its start comes no further for so long; three of "
     "these in a row, and the device is given up"},
    {"--spare-workers", "WHICH", OPTION_SPARE, AT(spare_workers), "none",
     "keep a worker started ahead for each device, so that the next one of a dead one is "
     "there sooner: none; process (driver and libraries loaded, no device memory); context "
     "(and a context, about 1 GiB of a GPU); auto: process for GPUs, none for CPU "
     "devices"},
    {"--store-lease", "MS", OPTION_MS, AT(store_lease_ms), "10000",
     "when this store dies, its workers and what they hold wait so long for one that is "
     "started in its place"},
    {"--drain-deadline", "MS", OPTION_MS_OR_0, AT(drain_deadline_ms), "20000",
     "on SIGTERM, move what lies only here to other nodes within so long; 0: end at once"},
    {"--allow-source", NULL, OPTION_FLAG, AT(allow_source), NULL,
     "CPU devices run C text that clients send (anybody who may connect may run code "
     "here)"},
    {"--library-dir", "DIR", OPTION_TEXT, AT(library_dir), "none",
     "devices load functions from shared objects in DIR"},
    {"--check-functions", NULL, OPTION_FLAG, AT(check_functions), NULL,
     "check what each function reads and writes; slow"},
    {"--embedded", NULL, OPTION_FLAG, AT(embedded), NULL,
     "private cluster of one client: start the head too, have no names, end with the "
     "client"},
    {"--client-pidfd", "FD", OPTION_FD, AT(client_pidfd), "none",
     "embedded: pidfd of the client"},
    {"--client-fd", "FD", OPTION_FD, AT(client_fd), "none",
     "embedded: end of a SOCK_SEQPACKET socketpair with the client"},
    {"--head-arg", "ARG", OPTION_LIST, AT(head_args), "none",
     "embedded: pass ARG to plasmon-head; may be repeated"},
    {"--version", NULL, OPTION_FLAG, AT(version), NULL, "print the version"},
    {"--help", NULL, OPTION_FLAG, AT(help), NULL, "print this"},
};

void store_options_print_help(FILE *out)
{
    (void)fprintf(out,
                  "usage: plasmon-store --head TARGET [options]\n\n"
                  "Keeps the memory of this host's devices and starts, fences and restarts "
                  "their workers.\n\n");
    for (size_t i = 0; i < PL_COUNT(options); i++) {
        const struct option *option = &options[i];
        char left[64], help[1024];

        (void)snprintf(left, sizeof(left), "%s %s", option->name,
                       option->value != NULL ? option->value : "");
        (void)snprintf(help, sizeof(help), option->fallback != NULL ? "%s [%s]" : "%s%s",
                       option->help, option->fallback != NULL ? option->fallback : "");
        pl_text_option(out, 26, left, help);
    }
}

/* A number with an optional suffix, and nothing after it. */
static bool number_parse(const char *text, bool suffixes, uint64_t max, uint64_t *out_value)
{
    unsigned long long value;
    unsigned shift = 0;
    char *end;

    if (*text < '0' || *text > '9') {
        return false;
    }
    errno = 0;
    value = strtoull(text, &end, 10);
    if (errno != 0) {
        return false;
    }
    if (suffixes && *end != '\0') {
        const char *known = "KMGT";
        const char *found = strchr(known, *end);

        if (found == NULL) {
            return false;
        }
        shift = 10u * (unsigned)(found - known + 1);
        end++;
    }
    if (*end != '\0' || value > max >> shift) {
        return false;
    }
    *out_value = (uint64_t)value << shift;
    return true;
}

/* What values look like, where the name of the value in --help does not say it. */
static const char *kind_text(enum kind kind)
{
    switch (kind) {
    case OPTION_COUNT:
        return ": 0 to 64, or auto";
    case OPTION_GPUS:
        return ": 0 to 64, auto or none";
    case OPTION_MS:
        return ": 1 to 86400000";
    case OPTION_MS_OR_0:
        return ": 0 to 86400000";
    case OPTION_PERCENT:
        return ": 0 to 100";
    case OPTION_BYTES:
        return ": a number below 256T, with a suffix K, M, G or T if you like";
    default:
        return "";
    }
}

static bool count_parse(const char *text, bool none_allowed, uint32_t *out_count)
{
    uint64_t value;

    if (strcmp(text, "auto") == 0) {
        *out_count = STORE_AUTO;
        return true;
    }
    if (none_allowed && strcmp(text, "none") == 0) {
        *out_count = 0;
        return true;
    }
    if (!number_parse(text, false, 64, &value)) {
        return false;
    }
    *out_count = (uint32_t)value;
    return true;
}

static bool list_append(struct store_options *out, const char *value)
{
    if (out->head_arg_count >= STORE_HEAD_ARGS_MAX) {
        return false;
    }
    out->head_args[out->head_arg_count++] = value;
    return true;
}

static bool option_set(const struct option *option, const char *value,
                       struct store_options *out)
{
    void *field = (char *)out + option->offset;
    uint64_t number;

    switch (option->kind) {
    case OPTION_TEXT:
        *(const char **)field = value;
        return *value != '\0';
    case OPTION_COUNT:
        return count_parse(value, false, field);
    case OPTION_GPUS:
        return count_parse(value, true, field);
    case OPTION_MS:
    case OPTION_MS_OR_0:
        if (!number_parse(value, false, 86400000u, &number) ||
            (number == 0 && option->kind == OPTION_MS)) {
            return false;
        }
        *(uint32_t *)field = (uint32_t)number;
        return true;
    case OPTION_PERCENT:
        if (!number_parse(value, false, 100, &number)) {
            return false;
        }
        *(uint32_t *)field = (uint32_t)number;
        return true;
    case OPTION_BYTES:
        return number_parse(value, true, UINT64_MAX >> 16, field);
    case OPTION_FD:
        if (!number_parse(value, false, INT32_MAX, &number)) {
            return false;
        }
        *(int *)field = (int)number;
        return true;
    case OPTION_FLAG:
        *(bool *)field = true;
        return true;
    case OPTION_LIST:
        return list_append(out, value);
    case OPTION_SPARE:
        *(const char **)field = value;
        return strcmp(value, "auto") == 0 || strcmp(value, "none") == 0 ||
               strcmp(value, "process") == 0 || strcmp(value, "context") == 0;
    case OPTION_DIRS:
        if (strcmp(value, "none") == 0) {
            out->spill_no_dir = true;
            return true;
        }
        if (*value == '\0' || out->spill_dir_count >= STORE_SPILL_DIRS_MAX) {
            return false;
        }
        out->spill_dirs[out->spill_dir_count++] = value;
        return true;
    }
    return false;
}

static const struct option *option_find(const char *text, size_t length)
{
    for (size_t i = 0; i < PL_COUNT(options); i++) {
        if (strlen(options[i].name) == length &&
            strncmp(options[i].name, text, length) == 0) {
            return &options[i];
        }
    }
    return NULL;
}

/* What single options cannot say. */
static plasmon_status_t options_check(const struct store_options *options_in,
                                      struct pl_err *err)
{
    if (options_in->help || options_in->version) {
        return PLASMON_OK;
    }
    if (options_in->spill_memory == 0 && options_in->spill_dir_count > 0) {
        return pl_err_set(err, PLASMON_EINVAL,
                          "--spill-dir needs --spill-memory: what goes to files passes "
                          "through it");
    }
    if (options_in->embedded) {
        if (options_in->head != NULL) {
            return pl_err_set(err, PLASMON_EINVAL,
                              "--embedded starts its own head: leave out --head");
        }
        if (options_in->client_fd < 0) {
            return pl_err_set(err, PLASMON_EINVAL, "--embedded needs --client-fd");
        }
        return PLASMON_OK;
    }
    if (options_in->client_fd >= 0 || options_in->client_pidfd >= 0 ||
        options_in->head_arg_count > 0) {
        return pl_err_set(err, PLASMON_EINVAL,
                          "--client-fd, --client-pidfd and --head-arg need --embedded");
    }
    if (options_in->head == NULL) {
        return pl_err_set(err, PLASMON_EINVAL,
                          "--head is missing: give host:port or unix:/path");
    }
    return PLASMON_OK;
}

plasmon_status_t store_options_parse(int argc, char **argv,
                                     struct store_options *out_options, struct pl_err *err)
{
    *out_options = (struct store_options){.cpu_devices       = STORE_AUTO,
                                          .gpus              = STORE_AUTO,
                                          .spill_memory      = STORE_SPILL_AUTO,
                                          .write_back        = STORE_WRITE_BACK,
                                          .spare_workers     = "none",
                                          .worker_lease_ms   = STORE_WORKER_LEASE_MS,
                                          .start_lease_ms    = STORE_START_LEASE_MS,
                                          .store_lease_ms    = STORE_LEASE_MS,
                                          .drain_deadline_ms = STORE_DRAIN_MS,
                                          .client_pidfd      = -1,
                                          .client_fd         = -1};

    for (int i = 1; i < argc; i++) {
        const char *text   = argv[i];
        const char *equals = strchr(text, '=');
        size_t length      = equals != NULL ? (size_t)(equals - text) : strlen(text);
        const struct option *option = option_find(text, length);
        const char *value           = equals != NULL ? equals + 1 : NULL;

        if (option == NULL) {
            return pl_err_set(err, PLASMON_EINVAL, "no such option: %s (see --help)", text);
        }
        if (option->value == NULL && equals != NULL) {
            return pl_err_set(err, PLASMON_EINVAL, "%s takes no value", option->name);
        }
        if (option->value != NULL && value == NULL) {
            if (i + 1 == argc) {
                return pl_err_set(err, PLASMON_EINVAL, "%s wants %s", option->name,
                                  option->value);
            }
            value = argv[++i];
        }
        if (!option_set(option, value, out_options)) {
            return pl_err_set(err, PLASMON_EINVAL, "%s wants %s, not \"%s\"%s",
                              option->name, option->value, value, kind_text(option->kind));
        }
    }
    return options_check(out_options, err);
}
