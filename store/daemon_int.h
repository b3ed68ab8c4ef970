/* What the parts of the daemon share. Threads: everything here belongs to the loop's thread. */
#ifndef STORE_DAEMON_INT_H
#define STORE_DAEMON_INT_H

#include <sys/types.h>

#include "base/list.h"
#include "store/daemon.h"
#include "store/handback.h"
#include "store/host.h"
#include "store/host_buffers.h"
#include "store/link.h"
#include "store/worker_proc.h"

#define STORE_CLIENT_QUEUE_MAX 256u
#define STORE_TERM_TIMEOUT_NS  (500ull * 1000000u)
#define STORE_LEAVE_GRACE_NS   UINT64_C(2000000000) /* beyond the deadline, for the answer */
#define STORE_KILL_TIMEOUT_NS  (10ull * 1000000000u)
#define STORE_STATUS_UNKNOWN   (-1) /* of a child of another store, which nobody told us */

struct store_daemon;

/*
 * Something with a descriptor that the loop waits for. One event is handled at a time, so a handler
 * may free any source.
 */
struct store_source {
    int fd; /* borrowed; -1: not watched */
    uint32_t events;
    void (*ready)(struct store_daemon *daemon, struct store_source *source,
                  uint32_t events);
};
/* A child process. */
struct store_child {
    pid_t pid;    /* 0: none */
    bool adopted; /* of another store: it cannot be reaped by us */
    int pidfd;
    struct store_source source; /* of the pidfd */
};

/* A process that has begun to be a worker and waits for its turn: spares.c. */
struct store_spare {
    struct store_child child; /* pid 0: none */
    struct store_link link;
    uint64_t due_ns;     /* start one then; UINT64_MAX: not now */
    uint64_t started_ns; /* the child */
    bool passed_over;    /* the child: killed by us, for it could not be used */
};

struct store_worker {
    uint32_t host_device;
    struct store_proc proc;
    struct store_child child;
    struct store_link link;
    struct store_source control;
    char last_words[256];         /* of FATAL, or why we fenced it */
    plasmon_status_t last_status; /* of FATAL */
    bool noticed;                 /* that it ends: phases.h */
    struct store_spare spare;
};

/* A worker of the store before us, until workers_start() takes it. */
struct store_adopted {
    struct store_link link; /* fd -1: it did not come */
    pid_t pid;
    int pidfd; /* -1: it has ended */
    uint32_t incarnation;
};

struct store_client {
    struct pl_list list; /* in daemon->clients */
    struct store_link link;
    struct store_source control;
    int pidfd; /* -1: it was gone already, or it is the embedded client */
    struct store_source gone;
    pid_t pid;
    bool greeted; /* has a page: number `reader` */
    uint32_t reader;
};

struct store_daemon {
    const struct store_options *options;
    const char *token; /* "" if none */
    const char *node;
    const struct store_uplink *uplink; /* may be NULL */
    struct store_host host;
    struct store_worker *workers; /* host.device_count of them */
    char worker_path[4096];
    uint64_t beats_due_ns;   /* look at their beats then */
    uint64_t adopted_due_ns; /* and whether one that is no child of ours was stopped */

    int epoll_fd;
    int signal_fd;
    struct store_source signals;
    struct store_source uplink_events;

    int handback_fd; /* -1: embedded, or another store of this node is there */
    struct store_source handback;
    char handback_path[108];
    char marks_path[108];          /* "": there is none; handback_serve.c */
    struct store_adopted *adopted; /* device_count of them; NULL: a fresh host */
    bool follows;                  /* a store that died here */
    bool started;                  /* all of it: what that one left is ours */

    int listen_fd; /* -1: embedded */
    int spare_fd;  /* given up for a caller when there is no other: clients.c */
    struct store_source listener;
    char socket_path[108]; /* "" if none */
    struct pl_list clients;
    uint32_t client_count;

    /* Embedded only. */
    struct store_child head;
    struct store_link head_link;
    struct store_source head_control;
    struct store_source client_gone;

    bool stopping;
    bool killed;
    /* the head has until then to move what lies here; 0: not asked */
    uint64_t leave_due_ns;
    uint64_t stop_due_ns; /* next step of the shutdown */
    int exit_status;
};

/* daemon.c */
void daemon_watch(struct store_daemon *daemon, struct store_source *source, int fd,
                  uint32_t events,
                  void (*ready)(struct store_daemon *, struct store_source *, uint32_t));
void daemon_unwatch(struct store_daemon *daemon,
                    struct store_source *source); /* before the fd is closed */
/* Begin the end: no new workers, SIGTERM to all children, SIGKILL later. Once. */
void daemon_stop(struct store_daemon *daemon, int exit_status, const char *why);
/* Reap; *out_status as of waitpid(), or STORE_STATUS_UNKNOWN. false: it is not dead. */
bool daemon_child_reap(struct store_daemon *daemon, struct store_child *child,
                       int *out_status);
void daemon_child_signal(const struct store_child *child, int signal);
/* Send what a link has queued and ask for more room if need be. Not OK: the peer is lost. */
plasmon_status_t daemon_link_flush(struct store_daemon *daemon, struct store_link *link,
                                   struct store_source *source);

/* workers.c */
plasmon_status_t workers_start(struct store_daemon *daemon, struct pl_err *err);
void workers_finish(struct store_daemon *daemon);
void workers_tick(struct store_daemon *daemon, uint64_t now_ns);
uint64_t workers_due(const struct store_daemon *daemon);
/* incarnation 0: whichever runs. Another one than that is left alone. */
void workers_fence(struct store_daemon *daemon, uint32_t host_device, uint32_t incarnation,
                   const char *why);
void workers_check_stopped(struct store_daemon *daemon); /* on SIGCHLD */
void workers_shutdown(struct store_daemon *daemon);
void workers_signal(struct store_daemon *daemon, int signal);
bool workers_alive(const struct store_daemon *daemon);
/* A reader came, or went. */
void workers_tell_reader(struct store_daemon *daemon, uint32_t reader, bool came);
/* Every send to a worker ends here. */
void workers_sent(struct store_daemon *daemon, struct store_worker *worker,
                  plasmon_status_t status);
/* A lane was made. */
void workers_tell_lane(struct store_daemon *daemon, uint32_t host_device,
                       const struct store_host_lane *lane);
/* Bit i: device i has something to do in its lanes. */
void workers_ring(struct store_daemon *daemon, uint64_t devices);

/*
 * worker_start.c. A process for this worker's place; spare: how far it goes before its turn, or
 * NULL. Sets child's pid and pidfd, and link.
 */
plasmon_status_t workers_process_start(struct store_daemon *daemon,
                                       const struct store_worker *worker, const char *spare,
                                       struct store_child *child, struct store_link *link,
                                       struct pl_err *err) PL_MUST_CHECK;

/* spares.c */
void spares_init(struct store_worker *worker);
void spares_finish(struct store_daemon *daemon, struct store_worker *worker);
/* Its worker is up: there is to be a spare soon, if the operator wants any. */
void spares_plan(struct store_daemon *daemon, struct store_worker *worker);
/* Its worker ends: the next one can begin with what needs nothing of it, if none is there already. */
void spares_hurry(struct store_daemon *daemon, struct store_worker *worker);
void spares_tick(struct store_daemon *daemon, struct store_worker *worker, uint64_t now_ns);
/* The spare is the worker now: its child and link, and it knows. false: there is none that can be. */
bool spares_take(struct store_daemon *daemon, struct store_worker *worker);
void spares_end(struct store_worker *worker, int signal);

/* clients.c */
plasmon_status_t clients_listen(struct store_daemon *daemon, struct pl_err *err);
plasmon_status_t clients_add(struct store_daemon *daemon, int fd, pid_t pid,
                             struct pl_err *err); /* takes fd */
/*
 * Who listens at a socket of a store? DEAD: there is one, and nobody behind it. UNKNOWN: there is
 * no descriptor to look with.
 */
enum store_neighbour {
    STORE_NEIGHBOUR_NONE,
    STORE_NEIGHBOUR_DEAD,
    STORE_NEIGHBOUR_ALIVE,
    STORE_NEIGHBOUR_UNKNOWN
};
struct sockaddr_un;
enum store_neighbour clients_look(const struct sockaddr_un *address);
/* The folder for sockets, made if it is not there. */
plasmon_status_t clients_folder(struct store_daemon *daemon, char *out, size_t out_bytes,
                                struct pl_err *err);
/* Readers of the store before us: their pages go when their processes do. */
plasmon_status_t clients_adopt(struct store_daemon *daemon);
void clients_finish(struct store_daemon *daemon);
#define STORE_FEW_FILES                                                                   \
    "plasmon-store has few descriptors left, which its workers need: raise its limit of " \
    "open files (ulimit -n, LimitNOFILE=)"
/* false: the descriptors that are left are for the workers. */
bool clients_files_left(const struct store_daemon *daemon);
/* ERROR, echoing the request. */
plasmon_status_t clients_error(struct store_client *client,
                               const struct store_control *request, plasmon_status_t error,
                               const char *text);

/* handback_serve.c */
/* First of all: what a store that died here has left. host.device_count 0 afterwards: nothing. */
plasmon_status_t handback_start(struct store_daemon *daemon, struct pl_err *err);
/*
 * A descriptor that a worker of the device is to hold as long as it lives; -1: there are no marks.
 * The caller's.
 */
int handback_mark(struct store_daemon *daemon, uint32_t host_device);
void handback_finish(struct store_daemon *daemon);

/* host_buffers_serve.c */
plasmon_status_t host_buffers_get(struct store_daemon *daemon, struct store_client *client,
                                  const struct store_control *message) PL_MUST_CHECK;
plasmon_status_t host_buffers_drop(struct store_daemon *daemon, struct store_client *client,
                                   const struct store_control *message) PL_MUST_CHECK;
/* The client is gone. */
void host_buffers_drop_of(struct store_daemon *daemon, uint32_t reader);
/* Those that every worker has answered for: to who asked for them. */
void host_buffers_answer(struct store_daemon *daemon);
/* A worker of the store before us is ours: those that it has to be asked for. */
void host_buffers_catch_up(struct store_daemon *daemon, struct store_worker *worker);
/* spill_serve.c: what the store before us spilled, if workers handed it back; and have them keep ours. */
void spill_take_over(struct store_daemon *daemon);
/* STORE_UPLINK_SLAB */
void host_buffers_spill(struct store_daemon *daemon);

/* embedded.c */
plasmon_status_t embedded_start(struct store_daemon *daemon, struct pl_err *err);
void embedded_finish(struct store_daemon *daemon);
/* A fresh connection to our head. The caller owns it. */
plasmon_status_t embedded_connect(struct store_daemon *daemon, int *out_fd);
/* Send HEAD_FD to a worker or client. */
plasmon_status_t embedded_send_head_fd(struct store_daemon *daemon,
                                       struct store_link *link);

#endif
