/*
 * Starting the process of a worker: its arguments, its control socket. Whose turn that is,
 * workers.c knows, and of a spare, spares.c.
 */
#include "store/bulk_address.h"
#include "store/daemon_int.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/fd.h"
#include "device/device.h"
#include "store/spawn.h"

/* The arguments of a worker, in storage of their own. */
struct worker_argv {
    char ordinal[16];
    char host_device[16];
    char memory[24];
    char incarnation[16];
    char store_lease[16];
    char token[1100];
    char log[32];
    char *argv[48];
    char bulk_address[STORE_BULK_ADDRESS_BYTES];
    const char *environ_add[3];
};

static void argv_add(struct worker_argv *args, unsigned *io_count, const char *name,
                     const char *value)
{
    PL_CHECK(*io_count + 3 <= PL_COUNT(args->argv));
    args->argv[(*io_count)++] = (char *)(uintptr_t)name;
    args->argv[(*io_count)++] = (char *)(uintptr_t)value;
    args->argv[*io_count]     = NULL;
}

static void argv_flag(struct worker_argv *args, unsigned *io_count, const char *name)
{
    PL_CHECK(*io_count + 2 <= PL_COUNT(args->argv));
    args->argv[(*io_count)++] = (char *)(uintptr_t)name;
    args->argv[*io_count]     = NULL;
}

static void argv_fill(struct store_daemon *daemon, const struct store_worker *worker,
                      const char *spare, struct worker_argv *args)
{
    const struct store_host_device *device = &daemon->host.devices[worker->host_device];
    unsigned count                         = 0;
    unsigned added                         = 0;

    memset(args, 0, sizeof(*args));
    (void)snprintf(args->ordinal, sizeof(args->ordinal), "%u", device->ordinal);
    (void)snprintf(args->host_device, sizeof(args->host_device), "%u", worker->host_device);
    (void)snprintf(args->memory, sizeof(args->memory), "%llu",
                   (unsigned long long)device->memory_bytes);
    (void)snprintf(args->incarnation, sizeof(args->incarnation), "%u",
                   worker->proc.incarnation);

    args->argv[count++] = (char *)(uintptr_t)daemon->worker_path;
    argv_add(args, &count, "--control-fd", "3");
    if (daemon->options->embedded) {
        argv_add(args, &count, "--head-fd", "4");
    } else {
        argv_add(args, &count, "--head", daemon->options->head);
    }
    argv_add(args, &count, "--kind", device->kind == DEVICE_CUDA ? "cuda" : "cpu");
    argv_add(args, &count, "--ordinal", args->ordinal);
    argv_add(args, &count, "--host-device", args->host_device);
    argv_add(args, &count, "--device-memory", args->memory);
    argv_add(args, &count, "--node", daemon->node);
    argv_add(args, &count, "--incarnation", args->incarnation);
    if (!daemon->options->embedded) {
        argv_add(args, &count, "--bulk-address",
                 store_bulk_address(daemon->options->bulk_address, daemon->options->head,
                                    args->bulk_address));
    }
    if (daemon->handback_fd >= 0) {
        (void)snprintf(args->store_lease, sizeof(args->store_lease), "%u",
                       daemon->options->store_lease_ms);
        argv_add(args, &count, "--handback-socket", daemon->handback_path);
        argv_add(args, &count, "--store-lease", args->store_lease);
    }
    if (daemon->options->bulk_ports != NULL) {
        argv_add(args, &count, "--bulk-ports", daemon->options->bulk_ports);
    }
    if (daemon->options->tls_cert != NULL) {
        argv_add(args, &count, "--tls-cert", daemon->options->tls_cert);
        argv_add(args, &count, "--tls-key", daemon->options->tls_key);
        argv_add(args, &count, "--tls-ca", daemon->options->tls_ca);
    }
    if (daemon->options->library_dir != NULL) {
        argv_add(args, &count, "--library-dir", daemon->options->library_dir);
    }
    if (daemon->options->allow_source) {
        argv_flag(args, &count, "--allow-source");
    }
    if (daemon->options->check_functions) {
        argv_flag(args, &count, "--check-functions");
    }
    if (daemon->follows) {
        argv_flag(args, &count, "--in-haste");
    }
    if (spare != NULL) {
        argv_add(args, &count, "--spare", spare);
    }

    if (daemon->token[0] != '\0') {
        (void)snprintf(args->token, sizeof(args->token), "PLASMON_TOKEN=%s", daemon->token);
        args->environ_add[added++] = args->token;
    }
    if (daemon->options->log != NULL) {
        (void)snprintf(args->log, sizeof(args->log), "PLASMON_LOG=%s",
                       daemon->options->log);
        args->environ_add[added++] = args->log;
    }
}

/*
 * Start the process with our control socket `theirs` and, embedded, a connection to the head; else
 * with the mark that it lives.
 */
static plasmon_status_t start_with(struct store_daemon *daemon,
                                   const struct store_worker *worker, const char *spare,
                                   int theirs, struct store_child *child,
                                   struct pl_err *err)
{
    struct worker_argv args;
    int fds[2] = {theirs, -1};
    struct store_spawn spawn;
    plasmon_status_t status;

    if (!daemon->options->embedded) {
        fds[1] = handback_mark(daemon, worker->host_device);
    } else {
        status = embedded_connect(daemon, &fds[1]);
        if (status != PLASMON_OK) {
            return pl_err_set(err, status, "no connection to the head: %s",
                              pl_status_text(status));
        }
    }
    argv_fill(daemon, worker, spare, &args);
    spawn  = (struct store_spawn){.path        = daemon->worker_path,
                                  .argv        = args.argv,
                                  .environ_add = args.environ_add,
                                  .fds         = fds,
                                  .fd_count    = fds[1] >= 0 ? 2 : 1,
                                  .stdout_fd   = -1};
    status = store_spawn(&spawn, &child->pid, &child->pidfd, err);
    pl_fd_close(&fds[1]);
    return status;
}

plasmon_status_t workers_process_start(struct store_daemon *daemon,
                                       const struct store_worker *worker, const char *spare,
                                       struct store_child *child, struct store_link *link,
                                       struct pl_err *err)
{
    plasmon_status_t status;
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
        return pl_err_set(err, pl_status_from_errno(errno), "socketpair: %s",
                          strerror(errno));
    }
    status = start_with(daemon, worker, spare, pair[1], child, err);
    pl_fd_close(&pair[1]);
    if (status != PLASMON_OK) {
        child->pid = 0;
        pl_fd_close(&pair[0]);
        return status;
    }
    store_link_init(link, pair[0], STORE_LINK_QUEUE_MAX);
    return PLASMON_OK;
}
