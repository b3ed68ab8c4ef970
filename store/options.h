/* The command line of plasmon-store. One table gives parsing, defaults and --help. */
#ifndef STORE_OPTIONS_H
#define STORE_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/str.h"
#include "store/spill_files.h"

#define STORE_HEAD_ARGS_MAX   32u
#define STORE_AUTO            UINT32_MAX
#define STORE_SPILL_AUTO      UINT64_MAX
#define STORE_WRITE_BACK      75
#define STORE_DRAIN_MS        20000u /* Slurm gives 30 s between SIGTERM and SIGKILL */
#define STORE_LEASE_MS        10000u /* as the head waits for a store (--node-lease) */
#define STORE_WORKER_LEASE_MS 30000u /* far longer than any call into a driver takes */
/* a driver that is not loaded yet takes seconds a GPU */
#define STORE_START_LEASE_MS 60000u

struct store_options {
    const char *head;       /* NULL in the embedded default */
    uint32_t cpu_devices;   /* STORE_AUTO: none if there are GPUs, else 2 */
    uint32_t gpus;          /* STORE_AUTO: all there are */
    uint64_t device_memory; /* 0: GPUs: all; CPU devices: a share of a quarter of the RAM */
    const char *token_file;
    const char *socket_dir; /* NULL: the default */
    const char *node;       /* NULL: the host's name */
    const char *log;
    const char *bulk_address; /* NULL: auto */
    const char *bulk_ports;   /* NULL: any */
    bool bulk_plain; /* the network is the operator's own: objects cross it in the clear */
    const char *tls_cert; /* all three or none */
    const char *tls_key;
    const char *tls_ca;
    const char *spare_workers; /* auto, none, process or context */
    uint32_t worker_lease_ms;
    uint32_t start_lease_ms; /* of a worker until it is ready, for each step */
    uint32_t store_lease_ms;
    uint32_t drain_deadline_ms; /* 0: leave at once */
    bool allow_source;          /* workers run C text of clients */
    bool check_functions;       /* workers check what functions write */
    const char *library_dir;    /* NULL: workers load no libraries */
    uint64_t host_memory;       /* for host buffers of clients; 0: a quarter of the RAM */
    uint64_t spill_memory;      /* STORE_SPILL_AUTO: an eighth of the RAM; 0: none */
    const char *spill_dirs[STORE_SPILL_DIRS_MAX];
    uint32_t spill_dir_count;
    bool spill_no_dir;   /* nor the one of its own choice */
    uint32_t write_back; /* percent; 0: never */
    bool no_prefetch;
    bool embedded;
    int client_pidfd; /* -1: none */
    int client_fd;    /* -1: none */
    const char *head_args[STORE_HEAD_ARGS_MAX + 1];
    uint32_t head_arg_count;
    bool help;
    bool version;
};

/* EINVAL: err says which option and what it wants. Strings are borrowed from argv. */
plasmon_status_t store_options_parse(int argc, char **argv,
                                     struct store_options *out_options,
                                     struct pl_err *err) PL_MUST_CHECK;
void store_options_print_help(FILE *out);

#endif
