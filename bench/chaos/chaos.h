/*
 * `plasmon bench chaos` and `plasmon bench soak`: programs with known results on a cluster of real
 * processes, while these are killed, stopped, cut off and filled up; or while nothing happens for
 * long.
 *
 *   chaos.c    the command: faults at random moments, until the time is over
 *   faults.c   what each kind of fault does, and when it may be
 *   mend.c     what ends it, and how one sees that it is over
 *   tasks.c    tasks of our own: that show that work goes on, that fill a device, that misbehave
 *   cluster.c  the processes: Redis, head, store, workers, clients
 *   relay.c    between the store's host and the head: a network that can be broken
 *   watch.c    what each device has enqueued, from its timeline in shared memory
 *   player.c   a client: a process that plays random programs (bench/stress) and judges what it reads
 *   report.c   what it comes to: as text, JSON, a picture
 *   where.c    where the time went when a worker was replaced
 *   slow.c     what a recovery consisted of that took too long
 *   progress.c how it comes along, while it does
 *   hosts.c    two more hosts, between which transfers are broken
 *   soak.c     the other command: the same load without faults
 *   soak_team.c   reductions that it does beside its clients
 *   gpu_memory.c  what the driver says is in use of GPUs
 *   samples.c  what processes use, over time, and the line through it
 *
 * WHAT MUST HOLD. Whatever is killed: a read that succeeds is right to the bit; no future stays
 * open; nothing that was sealed and that no launch was to overwrite is lost with a worker. A read
 * may fail only for what the faults that met its graph may cost (enum chaos_cost).
 *
 * RECOVERY is the time until work goes on. Of a worker: from the fault (of a task that misbehaves:
 * from when it was noticed, for until then it has its limit) until its device's timeline shows that
 * the next one has enqueued something; sampled every millisecond. The phases in between are in the
 * timeline, too (store/phases.h). Of a transfer: from when its bytes were under way and the
 * connection was broken until a task that needs nothing but them is done. Of all others: until a
 * small task that was submitted when the fault was over (a head that is killed: when it happened)
 * is done, which includes what stood in the queue before it.
 *
 * Threads: all here is the main thread's, but for the relay's own and a player's threads.
 */
#ifndef BENCH_CHAOS_CHAOS_H
#define BENCH_CHAOS_CHAOS_H

#include <stdatomic.h>
#include <stdio.h>
#include <sys/types.h>

#include "bench/bench.h"
#include "bench/chaos/hosts.h"
#include "bench/chaos/relay.h"
#include "bench/daemons.h"
#include "bench/stress/stress.h"
#include "store/timeline.h"

enum {
    CHAOS_CLIENTS_MAX = 8,
    CHAOS_THREADS     = 2, /* of a client, each with its own program */
    CHAOS_TOGETHER    = 2, /* faults */
    CHAOS_TEXT_BYTES  = 1024,
    CHAOS_PATH_BYTES  = 160,
    CHAOS_ENDED_BYTES = 128,
};

/* ---------------------------------------------------------------------------- the board */

/* What a fault may cost a graph that it meets. */
enum chaos_cost {
    CHAOS_COST_BEGUN, /* what a launch that had begun was overwriting in place */
    CHAOS_COST_HOST,  /* what was only there */
    CHAOS_COST_ROOM,  /* results that found no memory */
    CHAOS_COSTS
};

/*
 * A client's place; it outlives the processes that play there one after another, so its counters
 * only grow.
 */
struct chaos_slot {
    /* By the main process, before it starts the client. */
    uint64_t seed;
    uint32_t graphs_max; /* 0: until `stop` */

    _Atomic uint64_t steps, graphs, compared, excused;
    _Atomic uint64_t lost_bytes;    /* that no fault may have cost */
    _Atomic uint64_t spilled_bytes; /* that were in files, and lost with the store */
    _Atomic uint64_t wrong;         /* results, and calls that failed that may not */
    _Atomic uint64_t unresolved;
    _Atomic uint32_t ready;      /* clients that have connected, so far */
    char text[CHAOS_TEXT_BYTES]; /* of the first failure; complete when `failed` */
    _Atomic bool failed;
};

/* Shared memory of the main process and its clients. */
struct chaos_board {
    char address[CHAOS_PATH_BYTES];
    uint32_t devices;
    bool gpu;
    bool sources;
    uint64_t large_bytes;
    uint32_t source_count; /* as of struct stress_ground */
    _Atomic bool stop;
    _Atomic uint32_t tell; /* counted up: each client writes to its log what it is at */
    _Atomic uint64_t store_kills;
    /* in the cluster, of the devices that there are now */
    _Atomic int number[STRESS_DEVICES_MAX];
    /* Faults with that cost that have begun, and that are over and mended. */
    _Atomic uint64_t begun[CHAOS_COSTS], ended[CHAOS_COSTS];
    struct chaos_slot slot[CHAOS_CLIENTS_MAX];
};

/* player.c: the main function of a client. */
int chaos_play(int board_fd, uint32_t slot);

/* -------------------------------------------------------------------------- the cluster */

struct chaos_config {
    uint32_t cpu_devices;
    const char *gpus; /* "none", or how many */
    const char *device_memory;
    const char *transfer;   /* NULL: auto */
    const char *nccl_bytes; /* of plasmon-head; NULL: its default */
    const char *spares;     /* of plasmon-store; NULL: its default */
    uint32_t clients;
    uint32_t lineage_mib;
    bool journal;
    bool standby; /* beside each head another one stands by, which takes over */
};

/* A device of the cluster's host. */
struct chaos_device {
    struct store_timeline *timeline; /* mapped read-only; NULL: none */
    int number;                      /* in the cluster */
    uint64_t bytes_total;            /* of its memory */
};

struct chaos_cluster {
    struct chaos_config config;
    char dir[BENCH_FOLDER_BYTES];
    char address[CHAOS_PATH_BYTES]; /* of the head */
    char relayed[CHAOS_PATH_BYTES]; /* of the head, by the relay */
    pid_t redis, head, store;       /* 0: not running */
    pid_t standby;                  /* the head that stands by; 0: none does */
    struct chaos_relay *relay;
    struct plasmon_client *client; /* our own, not by the relay */
    struct chaos_device device[STRESS_DEVICES_MAX];
    uint32_t devices;
    int board_fd;
    struct chaos_board *board;
    pid_t player[CHAOS_CLIENTS_MAX];
    pid_t doctor;        /* that was asked last; 0: none was */
    uint64_t started_ns; /* the first of its processes */
};

/* Defaults of this machine for gpus and device_memory that are NULL. false: a number is out of range. */
bool chaos_complete(struct chaos_config *config);
/* text NULL: of the clock. false: it is no number. */
bool chaos_take_seed(const char *text, uint64_t *out_seed);
/* Starts all but the players; exits when that fails. */
void chaos_must_start(struct chaos_cluster *cluster, const struct chaos_config *config);
/*
 * Players that run are killed, daemons are ended by SIGTERM in order. false: one of them did not
 * end well; says so. The folder goes unless `keep`.
 */
bool chaos_cluster_end(struct chaos_cluster *cluster, bool keep);
bool chaos_has_redis(void);

void chaos_start_redis(struct chaos_cluster *cluster);
void chaos_start_head(struct chaos_cluster *cluster);
/*
 * The head has ended: who stood by is the head, and another one stands by; where none did, the next
 * one is started.
 */
void chaos_follow_head(struct chaos_cluster *cluster);
void chaos_start_store(struct chaos_cluster *cluster);
void chaos_start_player(struct chaos_cluster *cluster, uint32_t slot);
/* SIGKILL and reaped. *io_pid becomes 0. */
void chaos_kill(pid_t *io_pid);
/* Has it ended? Then it is reaped: *out_status as of waitpid(). */
bool chaos_has_ended(pid_t pid, int *out_status);
/*
 * The same of a daemon: then *io_pid becomes 0, and the text says how it ended. NULL: it runs, or
 * there is none.
 */
const char *chaos_ended(pid_t *io_pid, const char *name, char text[CHAOS_ENDED_BYTES]);
/* By SIGTERM, as an operator would; *io_pid becomes 0. false: it did not end well; says so. */
bool chaos_end_daemon(const struct chaos_cluster *cluster, pid_t *io_pid, const char *name);
/* What libplasmon says in this process goes to that stream, from now on. */
void chaos_log_to(FILE *file);
/* What ends in the middle without being told to, in words, or NULL. */
const char *chaos_who_ended(struct chaos_cluster *cluster);

/*
 * watch.c. Map the timelines that the store has now, and ask the head for the numbers of its
 * devices. false: not all are there yet.
 */
bool chaos_watch_devices(struct chaos_cluster *cluster);
void chaos_unwatch_devices(struct chaos_cluster *cluster);
pid_t chaos_worker(const struct chaos_cluster *cluster, uint32_t device); /* 0: none */

/* Which worker of the device runs, or ran last. */
uint32_t chaos_incarnation(const struct chaos_cluster *cluster, uint32_t device);
/*
 * Has one after that incarnation enqueued something? How it came to that. *out_next: it is the very
 * next one.
 */
bool chaos_goes_on(const struct chaos_cluster *cluster, uint32_t device,
                   uint32_t incarnation, struct store_phases *out, bool *out_next);

/* ------------------------------------------------------------------------------- faults */

enum chaos_kind {
    CHAOS_WORKER_KILL,
    CHAOS_WORKER_STOP,
    CHAOS_ILLEGAL,
    CHAOS_ENDLESS,
    CHAOS_STORE_KILL,
    CHAOS_HOST_KILL,
    CHAOS_HEAD_KILL,
    CHAOS_HEAD_STOP,
    CHAOS_JOURNAL_KILL,
    CHAOS_CLIENT_KILL,
    CHAOS_CLIENT_STOP,
    CHAOS_FILL,
    CHAOS_PARTITION,
    CHAOS_HOLD,
    CHAOS_TRANSFER_STALL,
    CHAOS_TRANSFER_CUT,
    CHAOS_TRANSFER, /* what one takes when nothing is done */
    CHAOS_NOTHING,  /* what a small task takes beside the programs when nothing is done */
    CHAOS_KINDS
};
const char *chaos_kind_name(enum chaos_kind kind);
int chaos_kind_cost(enum chaos_kind kind); /* enum chaos_cost; -1: nothing */
/* Milliseconds to recover in; 0: none is stated. */
double chaos_kind_target(enum chaos_kind kind, bool gpu);
/* Milliseconds from which on what it consisted of is told: the target where there is one. */
double chaos_kind_slow(enum chaos_kind kind, bool gpu);

enum { CHAOS_MARKS = 6, CHAOS_LOGS = 2 };
/* A moment on the way to recovery. */
struct chaos_mark {
    const char *what; /* lent for ever */
    uint64_t at_ns;
};

/* A fault that is under way. */
struct chaos_fault {
    enum chaos_kind kind;
    bool active;
    bool alone;        /* no other was under way so far */
    uint32_t step;     /* of its kind: 0, it was done; 1, what ends it was done, too; .. */
    uint32_t device;   /* or client */
    uint64_t began_ns; /* it happened */
    uint64_t due_ns;   /* of the next step, if that is by time */
    uint64_t from_ns;  /* recovery counts from here */
    /* a worker's: its device has gone on; a transfer's: its bytes are there; 0: not yet */
    uint64_t recovered_ns;
    uint32_t incarnation;       /* a worker's: which one it meets */
    struct store_phases phases; /* of its successor, if `phased` */
    bool phased;
    pid_t worker;              /* that is to end; 0: it has */
    uint64_t steps_before;     /* a client's: what its slot had counted */
    struct plasmon_ref *probe; /* a task that is to be done; NULL: none */
    struct plasmon_ref **fill; /* what fills the device, or the one that misbehaves */
    uint32_t fill_count;
    struct chaos_mark marks[CHAOS_MARKS];
    uint32_t mark_count;
    uint64_t log_from[CHAOS_LOGS]; /* what is behind is of this fault */
};

/* How a fault came along. */
enum chaos_turn { CHAOS_GOES_ON, CHAOS_MENDED, CHAOS_WRONG };

struct chaos_sample {
    enum chaos_kind kind;
    double at_s; /* since the start of the run */
    double recover_ms;
    bool alone; /* no other fault was under way */
    bool phased;
    double phase_ms[STORE_PHASES]; /* of a worker's; noticed: since the fault */
};
/* Of one kind of fault. */
struct chaos_times {
    uint64_t count;
    double p50, p99;
};
struct chaos_tally {
    uint64_t injected[CHAOS_KINDS], survived[CHAOS_KINDS];
    struct pl_vec samples; /* struct chaos_sample */
    uint64_t redone, rebuilt_tasks, rebuilt_bytes;
    uint64_t wrong; /* seen by the main process itself */
    uint32_t slow;  /* recoveries that took too long */
    uint64_t hung;  /* faults after which nothing went on, clients that did not end */
    char text[CHAOS_TEXT_BYTES];
};

/* What has taken so long that it was told: after 4 s, and after twice that each time. */
struct chaos_late {
    uint64_t since_ns, next_ns;
};
struct chaos_progress {
    uint64_t looked_ns; /* last; 0: not yet */
    uint64_t next_ns;   /* to tell where it stands */
    uint64_t moved_ns;  /* a client did a step last, or the run began */
    struct chaos_late late[CHAOS_TOGETHER], steps_late, ending_late;
};

struct chaos {
    struct chaos_cluster cluster;
    struct chaos_hosts hosts; /* if a transfer may be broken */
    struct chaos_tally tally;
    struct chaos_progress progress;
    uint64_t seed, random;
    uint64_t began_ns, ended_ns;
    uint64_t interrupted_ns;                   /* somebody wants it ended; 0: nobody does */
    uint32_t kinds;                            /* bits: what may be injected */
    const char *without[CHAOS_KINDS];          /* why a kind is not; NULL */
    uint64_t death_ns[STRESS_DEVICES_MAX][16]; /* of workers, that we caused: a ring */
    uint32_t deaths[STRESS_DEVICES_MAX];
    uint64_t head_ns, journal_ns; /* when there was a fault of it last */
    uint64_t last_again, last_rebuilt_tasks, last_rebuilt_bytes; /* see chaos_count() */
};

/* Can it be done now, beside these others? Draws the device or client. */
bool chaos_fault_may(struct chaos *chaos, enum chaos_kind kind,
                     const struct chaos_fault *others, uint32_t count,
                     struct chaos_fault *out_fault);
void chaos_fault_begin(struct chaos *chaos, struct chaos_fault *fault);
/* Looks at it, does its next step. CHAOS_WRONG: chaos->tally.text says why. */
enum chaos_turn chaos_fault_step(struct chaos *chaos, struct chaos_fault *fault);
/* tasks.c. In `fault` there is room for one probe, and one that misbehaves. */
struct plasmon_ref *chaos_fill(struct chaos *chaos, uint64_t bytes, int64_t value,
                               int device);
void chaos_let_go(struct chaos *chaos, struct plasmon_ref **io_ref);
int chaos_number(const struct chaos *chaos, uint32_t device); /* in the cluster */
/* A small task on that device of the cluster, which is to be done. */
void chaos_probe(struct chaos *chaos, struct chaos_fault *fault, int device);
enum chaos_turn chaos_probe_step(struct chaos *chaos, struct chaos_fault *fault);
void chaos_misbehave(struct chaos *chaos, struct chaos_fault *fault, const char *function);
/* Has the one that misbehaves failed as it must? MENDED: yes. */
enum chaos_turn chaos_culprit_step(struct chaos *chaos, struct chaos_fault *fault);
/* Says why; returns CHAOS_WRONG. */
enum chaos_turn chaos_wrong(struct chaos *chaos, const struct chaos_fault *fault,
                            const char *what, const char *why);
/* Functions that do what may not be done; false: devices here cannot compile, and why is in *out_why. */
bool chaos_prepare_functions(struct chaos_cluster *cluster, char out_why[256]);

uint64_t chaos_draw(struct chaos *chaos, uint64_t bound); /* 0 .. bound - 1 */
/* The sum over all slots of an _Atomic uint64_t of struct chaos_slot. */
uint64_t chaos_sum_at(const struct chaos_board *board, size_t offset);
#define CHAOS_SUM(board, field) chaos_sum_at(board, offsetof(struct chaos_slot, field))

/* ------------------------------------------------------------------------------- slow.c */

/* Before it happens. */
void chaos_slow_begin(const struct chaos *chaos, struct chaos_fault *fault);
/* It has come so far. Those beyond CHAOS_MARKS are left out. */
void chaos_mark(struct chaos_fault *fault, const char *what);
/* It is over: tells what it consisted of if it took too long. */
void chaos_slow_tell(struct chaos *chaos, const struct chaos_fault *fault,
                     double recover_ms);
/*
 * Clients stand still: what their threads are at, and the ends of the logs of head and store. Takes
 * a quarter of a second.
 */
void chaos_still_tell(struct chaos *chaos);

/* --------------------------------------------------------------------------- progress.c */

/* A line of progress, with the seconds since the cluster's first process. */
void chaos_say(const struct chaos_cluster *cluster, const char *format, ...)
    PL_PRINTF(2, 3);
/* Is what goes on since then to be told as late, now? */
bool chaos_late(struct chaos_late *late, uint64_t since_ns, uint64_t now_ns);
/* `plasmon doctor` in a process of its own, which writes to stderr. Does not wait for it. */
void chaos_ask_doctor(struct chaos_cluster *cluster);
/* How far it is, and what is under way. */
void chaos_say_where(struct chaos *chaos, const struct chaos_fault *faults, uint32_t count);
/* At each look at the faults. */
void chaos_progress(struct chaos *chaos, const struct chaos_fault *faults, uint32_t count);
/* At each look at clients that end since then. */
void chaos_progress_ending(struct chaos *chaos, uint64_t since_ns);

/* ----------------------------------------------------------------------------- report.c */

/*
 * Of what `take` has (true: it has one) of the faults of a kind beside which there was no other:
 * what two cost together is neither's.
 */
struct chaos_times chaos_times_of(const struct chaos *chaos, enum chaos_kind kind,
                                  bool (*take)(const struct chaos_sample *sample, int what,
                                               double *out_ms),
                                  int what);

/* ----------------------------------------------------------------------------- report.c */

struct chaos_verdict {
    uint64_t lost_bytes, wrong, unresolved;
    bool late; /* a target is missed */
    bool good; /* but for that */
};
struct chaos_verdict chaos_judge(const struct chaos *chaos);
void chaos_report_print(const struct chaos *chaos);
/* where.c */
void chaos_where_print(const struct chaos *chaos);
/* ,"phases_ms":{..}; nothing when none is known. */
void chaos_where_put(struct pl_str *out, const struct chaos *chaos, enum chaos_kind kind);
bool chaos_report_write(const struct chaos *chaos, const char *json, const char *plot);

/* Number after "KEY": in a text of JSON without spaces, after the first `in`; 0: there is none. */
uint64_t chaos_json_number(const char *json, const char *in, const char *key);

#endif
