/*
 * Descriptors: memory without names, processes without races, and both over Unix sockets. All are
 * close-on-exec.
 */
#ifndef BASE_FD_H
#define BASE_FD_H

#include <stdbool.h>
#include <sys/types.h>

#include "base.h"
#include "str.h"

#define PL_FD_MAX_PER_MESSAGE 64

/* A memfd of `bytes`, sealed against resizing. */
plasmon_status_t pl_memfd_create(const char *name, size_t bytes, int *out_fd) PL_MUST_CHECK;
/* A read-only descriptor of the same memory, for handing out. */
plasmon_status_t pl_fd_reopen_readonly(int fd, int *out_fd) PL_MUST_CHECK;
/*
 * The other way round, which one user may (fd.c): for who takes over memory of which only readers
 * are left.
 */
plasmon_status_t pl_fd_reopen_writable(int fd, int *out_fd) PL_MUST_CHECK;
/* An eventfd that does not block: raised until somebody lowers it. Any thread, in signal handlers too. */
void pl_fd_raise(int fd);
/* Was it raised? It is not any more. */
bool pl_fd_lower(int fd);
/* Does the file hold so many bytes? Who maps one that is shorter than its giver says dies of SIGBUS. */
bool pl_fd_holds(int fd, uint64_t bytes);
/* And will it for ever, whatever its giver does? It is sealed. */
bool pl_fd_keeps(int fd, uint64_t bytes);
plasmon_status_t pl_fd_map(int fd, size_t bytes, int writable,
                           void **out_ptr) PL_MUST_CHECK;
/*
 * Have the pages of shared memory that is mapped for writing made now, as they are, and not when
 * each is first touched. It is a favour: what the kernel cannot do (it is older than 5.14, memory
 * is short) is left to that touch.
 */
void pl_fd_make_pages(void *ptr, size_t bytes);
void pl_fd_unmap(void *ptr, size_t bytes);
void pl_fd_close(int *io_fd); /* -1 is fine; sets -1 */
/* The errno of who looked for something says nothing about that: there is nothing left to look with. */
bool pl_fd_none_left(int error);

/*
 * One datagram-like message with descriptors over a SOCK_SEQPACKET socket. recv: *io_bytes is
 * capacity in, length out; 0 length with PLASMON_ECLOSED at end of file; EMALFORMED: more than
 * there is room for; ELIMIT: this process has no descriptor left for those that came
 * (PL_FD_NONE_LEFT says what to do), and the message is lost. Received descriptors are the
 * caller's.
 */
#define PL_FD_NONE_LEFT                                                                   \
    "no descriptor is left for what was sent: raise the limit of open files (ulimit -n, " \
    "LimitNOFILE=)"
plasmon_status_t pl_fd_send(int socket, const void *bytes, size_t length, const int *fds,
                            unsigned fd_count) PL_MUST_CHECK;
plasmon_status_t pl_fd_recv(int socket, void *bytes, size_t *io_bytes, int *out_fds,
                            unsigned *io_fd_count) PL_MUST_CHECK;

/* Does somebody listen on the stream socket of that name? false: nobody does, or not yet. */
bool pl_unix_listens(const char *path);
/*
 * The process that listens on the socket of that name and type (SOCK_..), which may be stopped. 0:
 * not known.
 */
pid_t pl_unix_owner(const char *path, int type);

int pl_pidfd_open(pid_t pid); /* -1 and errno */
/* Does this machine have what is here? ENOTSUP, and what it needs. */
plasmon_status_t pl_pidfd_check(struct pl_err *err) PL_MUST_CHECK;
/*
 * When it was started, in the kernel's clock ticks since boot: tells a process from a later one
 * with the same number. Compare after opening a pidfd, when the number cannot be given to another
 * any more. ENOENT: there is none.
 */
plasmon_status_t pl_pid_started(pid_t pid, uint64_t *out_ticks) PL_MUST_CHECK;
/* by a signal or a debugger; of one that is not our child, too */
bool pl_pid_stopped(pid_t pid);
/*
 * "process 4242 (plasmon-head)", and of one that is stopped ".. is stopped ..: `kill -CONT 4242`
 * lets it go on". true: it is.
 */
bool pl_pid_describe(pid_t pid, char *out, size_t out_bytes);
/*
 * SIGKILL through the pidfd and wait until it has ended (ours: reaped). PLASMON_ETIMEDOUT: it
 * cannot be reaped.
 */
plasmon_status_t pl_pidfd_kill_wait(int pidfd, uint64_t timeout_ms) PL_MUST_CHECK;

#endif
