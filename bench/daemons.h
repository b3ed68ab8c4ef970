/*
 * Daemons that a benchmark starts, kills and starts again, in a folder of their own. They end with this process, however it ends; the folder goes when
 * it ends by exit().
 */
#ifndef BENCH_DAEMONS_H
#define BENCH_DAEMONS_H

#include <sys/types.h>

#include "bench/bench.h"

/* A fresh folder under $TMPDIR, or /tmp, short enough for sockets; removed at exit. Once. */
const char *bench_must_folder(void);
/* argv[0] is the program's path; what it says goes to `log` in the folder, behind what is there. */
pid_t bench_must_daemon(const char *log, const char *const *argv);
/* SIGKILL, and wait. */
void bench_daemon_kill(pid_t pid);
/* CPU time so far, all threads, also those that have ended. */
uint64_t bench_daemon_cpu_ns(pid_t pid);
/* Until somebody listens there; exits when the daemon has ended, or after a minute, and says where its log is. */
void bench_must_listen(pid_t pid, const char *socket_path);

#endif
