/* The command line of plasmon-worker, which plasmon-store writes. One table gives parsing and --help. */
#ifndef WORKER_OPTIONS_H
#define WORKER_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/str.h"
#include "device/device.h"

struct worker_options {
    int control_fd;              /* -1: none given */
    const char *handback_socket; /* NULL: end with the store */
    uint32_t store_lease_ms;
    int head_fd; /* -1: use `head` */
    const char *head;
    enum device_kind kind;
    uint32_t ordinal;
    uint32_t host_device;
    uint64_t device_memory; /* 0: all there is */
    uint32_t run_streams;   /* 0: as many as suit the kind of device */
    const char *node;
    const char *bulk_address; /* NULL: none */
    const char *tls_cert;     /* NULL: transfers between hosts are in the clear */
    const char *tls_key;
    const char *tls_ca;
    const char *bulk_ports; /* NULL: any */
    /*
     * process, context, or next (a context and no cuBLAS, in a hurry): go so far, then wait for
     * BEGIN; NULL: no spare
     */
    const char *spare;
    uint32_t incarnation;
    bool allow_source;       /* run C text of clients */
    const char *library_dir; /* NULL: load no libraries */
    bool check_functions;    /* check what functions write */
    bool in_haste;           /* somebody waits for what an earlier one left undone */
    bool probe;
    bool help;
    bool version;
};

/* EINVAL: err says which option and what it wants. Strings are borrowed from argv. */
plasmon_status_t worker_options_parse(int argc, char **argv,
                                      struct worker_options *out_options,
                                      struct pl_err *err) PL_MUST_CHECK;
void worker_options_print_help(FILE *out);

#endif
