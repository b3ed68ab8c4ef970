/*
 * plasmon-store: keeps the memory of a host. This file wires the parts: options, token, signals,
 * the link to the head (node.c), the daemon.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/ram.h"
#include "rpc/rpc.h"
#include "store/bulk_address.h"
#include "store/daemon.h"
#include "store/node.h"
#include "store/process.h"
#include "store/spill.h"

static plasmon_status_t token_get(const char *path, char out[TRUST_TOKEN_BYTES_MAX + 1],
                                  struct pl_err *err)
{
    plasmon_status_t status = trust_token_take(out, err); /* it is wiped in any case */

    return status == PLASMON_OK && path != NULL ? trust_token_read(path, out, err) : status;
}

static plasmon_status_t log_open(const struct store_options *options, struct pl_err *err)
{
    const char *text = options->log != NULL ? options->log : getenv("PLASMON_LOG");
    /* A library's private cluster is quiet unless asked. */
    enum pl_log_level level = options->embedded ? PL_LOG_WARN : PL_LOG_INFO;

    if (text != NULL && *text != '\0' && pl_log_level_parse(text, &level) != PLASMON_OK) {
        return pl_err_set(err, PLASMON_EINVAL,
                          "log level \"%s\": use error, warn, info, debug or trace", text);
    }
    pl_log_set_level(level);
    pl_log_set_sink(pl_log_stderr, NULL);
    return PLASMON_OK;
}

/* Workers would say so as well, but only to the first program that wants a library. */
static plasmon_status_t library_dir_check(const char *dir, struct pl_err *err)
{
    struct stat about;

    if (dir == NULL) {
        return PLASMON_OK;
    }
    if (stat(dir, &about) != 0) {
        return pl_err_set(
            err, pl_status_from_errno(errno),
            "--library-dir %s: %s; give the folder that has the shared objects", dir,
            strerror(errno));
    }
    return S_ISDIR(about.st_mode)
               ? PLASMON_OK
               : pl_err_set(err, PLASMON_EINVAL, "--library-dir %s is not a folder", dir);
}

#define DISK "/var/tmp"

/*
 * Where nothing was said of spilling: files for half of what is free on the disk for temporary
 * files that may be large. NULL: it is no disk but memory, or nothing is free.
 */
static const char *disk_default(char out[64])
{
    struct statfs disk;
    uint64_t bytes;

    if (statfs(DISK, &disk) != 0 || disk.f_type == TMPFS_MAGIC ||
        disk.f_type == RAMFS_MAGIC) {
        return NULL;
    }
    bytes = (uint64_t)disk.f_bavail * (uint64_t)disk.f_bsize / 2;
    (void)snprintf(out, 64, DISK ":%llu", (unsigned long long)bytes);
    return bytes != 0 ? out : NULL;
}

static plasmon_status_t spill_by_default(uint64_t bytes, struct store_spill **out_spill,
                                         struct pl_err *err)
{
    char text[64];
    const char *disk        = disk_default(text);
    plasmon_status_t status = disk != NULL
                                  ? store_spill_create(bytes, &disk, 1, out_spill, err)
                                  : PLASMON_ENOTSUP;

    if (status != PLASMON_OK) {
        if (disk != NULL) {
            pl_info("store", "no files for spilling: %s", err->text);
        }
        status = store_spill_create(bytes, NULL, 0, out_spill, err);
    }
    return status;
}

/* NULL and OK: nothing is spilled. */
static plasmon_status_t spill_create(const struct store_options *options,
                                     struct store_spill **out_spill, struct pl_err *err)
{
    uint64_t bytes = options->spill_memory == STORE_SPILL_AUTO ? pl_ram().total / 8
                                                               : options->spill_memory;

    const struct store_spill_ahead ahead = {.write_back = options->write_back,
                                            .on_demand  = options->no_prefetch};
    plasmon_status_t status;

    *out_spill = NULL;
    if (bytes == 0) {
        return PLASMON_OK;
    }
    status = options->spill_memory == STORE_SPILL_AUTO && options->spill_dir_count == 0 &&
                     !options->spill_no_dir
                 ? spill_by_default(bytes, out_spill, err)
                 : store_spill_create(bytes, options->spill_dirs, options->spill_dir_count,
                                      out_spill, err);
    if (status == PLASMON_OK) {
        store_spill_set_ahead(*out_spill, &ahead);
    }
    return status;
}

static int run(const struct store_options *options, const char *token,
               struct trust_source *trust)
{
    struct store_spill *spill = NULL;
    struct store_node *node   = NULL;
    struct store_uplink uplink;
    struct pl_err err;
    int exit_status = 1;

    rpc_init();
    if (spill_create(options, &spill, &err) != PLASMON_OK ||
        store_node_create(options, token, trust, &node, &uplink, &err) != PLASMON_OK) {
        pl_error("store", "%s", err.text);
    } else {
        store_node_set_spill(node, spill, &uplink);
        exit_status = store_daemon_run(options, token, &uplink);
    }
    store_spill_stop(spill);
    store_node_destroy(node);
    store_spill_destroy(spill);
    rpc_finish();
    return exit_status;
}

/* One set of files for what goes to the head and for what goes between machines. */
static plasmon_status_t trust_open(const struct store_options *options,
                                   struct trust_source **out_trust, struct pl_err *err)
{
    struct trust_files files = {
        .ca = options->tls_ca, .cert = options->tls_cert, .key = options->tls_key};

    *out_trust = NULL;
    return trust_files_given(&files)
               ? trust_source_create(&files, TRUST_ROLE_HOST, out_trust, err)
               : PLASMON_OK;
}

int main(int argc, char **argv)
{
    static char token[TRUST_TOKEN_BYTES_MAX + 1];
    struct trust_source *trust;
    int exit_status;
    struct store_options options;
    struct pl_err err;

    if (store_options_parse(argc, argv, &options, &err) != PLASMON_OK) {
        (void)fprintf(stderr, "plasmon-store: %s\n", err.text);
        return 2;
    }
    if (options.help) {
        store_options_print_help(stdout);
        return 0;
    }
    if (options.version) {
        (void)printf("plasmon-store %s\n", PLASMON_VERSION_TEXT);
        return 0;
    }
    store_bulk_settle(&options);
    if (log_open(&options, &err) != PLASMON_OK || pl_pidfd_check(&err) != PLASMON_OK ||
        token_get(options.token_file, token, &err) != PLASMON_OK ||
        store_bulk_check(&options, &err) != PLASMON_OK ||
        library_dir_check(options.library_dir, &err) != PLASMON_OK ||
        trust_open(&options, &trust, &err) != PLASMON_OK) {
        (void)fprintf(stderr, "plasmon-store: %s\n", err.text);
        return 2;
    }

    store_bulk_tell(&options);
    store_process_prepare(&options);
    pl_fault_from_env("store");
    exit_status = run(&options, token, trust);
    trust_source_destroy(trust);
    return exit_status;
}
