/*
 * For test_daemon.c and test_embedded.c: a bare store with fake workers in a process of its own,
 * and what it says.
 */
#ifndef TESTS_UNIT_STORE_CLUSTER_H
#define TESTS_UNIT_STORE_CLUSTER_H

#include <stdbool.h>
#include <sys/types.h>

#include "store/control.h"

struct cluster {
    pid_t pid;
    int log; /* its standard error */
    char folder[128];
    char socket[108];
    char text[65536]; /* everything it said so far */
    size_t length;
};

/* A folder with fake binaries, in PLASMON_BIN_DIR. */
void cluster_folder(struct cluster *cluster);
/*
 * A store with this many CPU devices and a socket; waits until all workers are ready, unless mode
 * is given.
 */
void cluster_start(struct cluster *cluster, unsigned devices, const char *mode);
/*
 * Wait until it says `part`; returns the rest of that line, in static storage. Only looks at what
 * came after `from` bytes.
 */
const char *cluster_wait_from(struct cluster *cluster, size_t from, const char *part);
const char *cluster_wait(struct cluster *cluster, const char *part);
/* SIGTERM, and the exit status. Removes the folder. */
int cluster_end(struct cluster *cluster);
void cluster_folder_remove(struct cluster *cluster);
pid_t cluster_worker_pid(struct cluster *cluster, unsigned device, unsigned incarnation);

/* A client's control socket. */
int client_connect(const struct cluster *cluster);
void client_send(int fd, const struct store_control *message);
/* The next message; false at end of file. Descriptors beyond the first are closed; *out_fd may be NULL. */
bool client_receive(int fd, struct store_control *out_message, int *out_fd);
/* Hello and the whole set-up. Table of device 0 is mapped read-only, our page read-write. */
struct client {
    int fd;
    uint32_t reader;
    const struct store_table *table;
    struct store_pins *pins;
};
void client_hello(struct client *client, int fd);

#endif
