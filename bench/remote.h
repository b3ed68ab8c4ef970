/*
 * `plasmon bench remote`: what its parts share. remote.c is the command and what a program puts and
 * gets, remote_between.c what goes from a device of one host to a device of another.
 *
 * Threads: the main thread only.
 */
#ifndef BENCH_REMOTE_H
#define BENCH_REMOTE_H

#include "bench/transfer.h"

#define REMOTE_ROUNDS_MAX 32u

struct remote_options {
    const char *sizes;
    const char *serve;
    const char *raw;
    uint32_t device;
    const char *paths;
    const char *between;
    const char *tls;
    uint32_t rounds;
    const char *json;
};

struct remote {
    struct bench_cluster cluster;
    struct bench_report report;
    const struct remote_options *given;
    const char *path;
    uint8_t *src, *dst; /* as large as the largest size */
    int raw_fd;
    bool tls;
};

/* Adds its rows. Exits when something fails. */
void bench_remote_between(struct remote *remote, uint32_t from, uint32_t to,
                          const uint64_t *sizes, uint32_t count);

#endif
