/*
 * Daemons that a benchmark starts, kills and starts again, with their sockets and logs in a folder
 * of their own. They end with this process, however it ends.
 */
#ifndef BENCH_DAEMONS_H
#define BENCH_DAEMONS_H

#include <stdbool.h>
#include <sys/types.h>

#include "bench/bench.h"

#define BENCH_FOLDER_BYTES 64

/* A fresh folder under $TMPDIR, or under /tmp where that is not set or too long for the paths of sockets. */
void bench_must_make_folder(char out[BENCH_FOLDER_BYTES]);
/* With all that is in it; what cannot be removed stays. */
void bench_remove_folder(const char *folder);
/* A fresh folder that goes when this process ends by exit(). Once. */
const char *bench_must_folder(void);

/*
 * argv[0] is the program's path; what it says goes to `log`, behind what is there. pass: a
 * descriptor that it has under the number pass_as, or -1. An interrupt of the terminal is ours
 * alone.
 */
pid_t bench_must_run(const char *log, const char *const *argv, int pass, int pass_as);
/* The same with a log of that name in the folder of bench_must_folder(). */
pid_t bench_must_daemon(const char *log, const char *const *argv);
/* The program of that name beside this one. */
void bench_must_find(const char *name, char out[256]);
/* Until the cluster of $PLASMON_ADDRESS has a device. */
void bench_must_wait_devices(void);
/* The one process that this one has started: of a store with one device its worker. */
pid_t bench_must_child(pid_t pid);
/* SIGKILL, and wait. */
void bench_daemon_kill(pid_t pid);
/* CPU time so far, all threads, also those that have ended. */
uint64_t bench_daemon_cpu_ns(pid_t pid);
/* The number behind "KEY:" in /proc/PID/status; -1: the process or the key is not there. */
double bench_status_number(pid_t pid, const char *key);
/* Bytes of its own that are resident now. */
uint64_t bench_daemon_memory(pid_t pid);
/* Until somebody listens there. false: the daemon has ended, and is reaped, or a minute is over. */
bool bench_daemon_listens(pid_t pid, const char *socket_path);
/*
 * Of a daemon in the folder of bench_must_folder(): otherwise prints the logs, which go with it,
 * and exits.
 */
void bench_must_listen(pid_t pid, const char *socket_path);

#endif
