/*
 * Random programs on real clusters, compared to the bit with what they mean. Shared by the stress
 * tests (tests/stress), which look for waits that are missing or never end, and by `plasmon bench
 * chaos`, which looks at what faults do to programs.
 *
 *   stress_program.c   a thread's program: one random step after another, and what each means on plain arrays
 *   stress_graph.c     a graph: a random number of steps, and all that it made read at the end
 *   stress_submit.c    the same step through the public API
 *   stress_record.c    steps that are recorded once and launched several times
 *   stress_large.c     objects that a device grows for, and more of them than it can hold
 *   stress_source.c    functions in source text: delays of their own, and modules that are loaded
 *                      while streams wait
 *
 * THE MODEL. Each thread has arrays of its own (i64, two dimensions) and knows what is in them: a
 * step is applied to the model in the order of submission, which is what the API promises. All
 * functions are exact on integers, so results are compared to the bit, whatever ran where. Threads
 * share the cluster, its devices and their memory, but no array.
 *
 * WHAT MAY FAIL is for whoever plays: a read that failed is shown to `excuse` of struct
 * stress_hooks, with whether an array from which its bytes come was ever overwritten in place
 * (INOUT, REDUCE, OUT through a view), for these may be lost with a worker. A read that succeeds
 * must be right in any case, and no other call may fail.
 *
 * A SEED gives the same programs; how threads interleave is the machine's.
 */
#ifndef BENCH_STRESS_STRESS_H
#define BENCH_STRESS_STRESS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "plasmon/plasmon.h"

enum {
    STRESS_ARRAYS_MAX   = 14, /* of a thread, at a time */
    STRESS_FRESH_MAX    = 64, /* of a graph: one bit each */
    STRESS_FLOOD_MAX    = 24,
    STRESS_RECORD_MAX   = 6, /* steps that are recorded together */
    STRESS_THREADS_MAX  = 4,
    STRESS_DEVICES_MAX  = 8,
    STRESS_MAPPINGS_MAX = 3,
    STRESS_TEXT_BYTES   = 2048,
    STRESS_LOG_LINES    = 96, /* the last steps of a thread, for a failure's report */
    STRESS_LINE_BYTES   = 120,
};

/* ------------------------------------------------------------------- a thread's program */

struct stress_view {
    int64_t start[2], count[2], step[2];
};

struct stress_array {
    bool live;
    int64_t rows, columns;
    uint64_t *value;         /* what must be in it; rows * columns */
    uint64_t ancestors;      /* bits of arrays that its bytes come from, its own too */
    uint32_t bit;            /* its own */
    struct plasmon_ref *ref; /* of the cluster */
};

enum stress_kind {
    STRESS_FILL,
    STRESS_PUT,
    STRESS_UNARY,
    STRESS_BINARY,
    STRESS_ADD_INTO, /* INOUT */
    STRESS_REDUCE,
    STRESS_SPIN, /* INOUT: what comes after it on the device has to wait */
    STRESS_SOURCE,
    STRESS_SNAPSHOT,
    STRESS_RECORD, /* a graph of a few steps, launched at once */
    STRESS_GET,
    STRESS_MAP,
    STRESS_UNMAP,
    STRESS_RELEASE,
    STRESS_LARGE,
    STRESS_FLOOD, /* more than the device can hold at a time, one after the other
                 */
    STRESS_KINDS
};

/* operand 0 is what is written; 1 and 2 are read. */
struct stress_step {
    enum stress_kind kind;
    const char *function;
    uint32_t array[3];
    struct stress_view view[3];
    uint32_t operands;
    bool fresh; /* array[0] is made by it */
    bool donatable;
    int device;
    int priority;
    uint64_t number;   /* fill's value, put's seed, large's bytes */
    uint32_t delay_us; /* spin, source */
    uint32_t source;   /* number of the source function */
    uint32_t mapping;  /* place */
    uint32_t repeat;   /* reduce: how often, each on another device; record: launches */
    bool by_rows;      /* as one index launch */
};

struct stress_mapping {
    struct plasmon_mapping *mapping;
    struct stress_view view;
    uint64_t *value; /* what was there when it was mapped */
};

struct stress_ground;
struct stress_thread {
    struct stress_ground *ground;
    uint32_t index;
    uint64_t random;
    pthread_t id;
    uint64_t graph; /* its seed */
    struct stress_array array[STRESS_ARRAYS_MAX];
    uint32_t fresh_count;
    bool quiet;          /* nothing is read on the way: the whole graph is enqueued early */
    uint64_t consumable; /* bits of arrays that something overwrote in place */
    struct stress_mapping mapping[STRESS_MAPPINGS_MAX];
    uint64_t *scratch,
        *want; /* STRESS_ELEMENTS_MAX each: what was read, and what it must be */

    /* Written by the thread, read by whoever reports a failure. */
    char log[STRESS_LOG_LINES][STRESS_LINE_BYTES];
    _Atomic uint32_t log_count;
    _Atomic uint32_t steps;  /* finished */
    _Atomic uint32_t graphs; /* finished */
};

#define STRESS_ROWS_MAX     48
#define STRESS_COLUMNS_MAX  512
#define STRESS_ELEMENTS_MAX (STRESS_ROWS_MAX * STRESS_COLUMNS_MAX)

uint64_t stress_random(uint64_t *io_state);
uint64_t stress_draw(struct stress_thread *thread, uint64_t bound); /* 0 .. bound - 1 */
/* The cluster's number of a step's device; PLASMON_ANYWHERE stays. */
int stress_device(const struct stress_thread *thread, int device);
bool stress_chance(struct stress_thread *thread, uint32_t percent);
/* The next step of the thread's graph, which the arrays there are allow. */
void stress_step_make(struct stress_thread *thread, struct stress_step *out_step);
/* The next step of a recording: one that works on arrays, and may make one.
 * false: there are no arrays for it. */
bool stress_step_make_recorded(struct stress_thread *thread, struct stress_step *out_step);
/* What it means. Before the submit, but for reads, which change nothing. */
void stress_step_apply(struct stress_thread *thread, const struct stress_step *step);
/* What a view of an array shows now, dense. */
void stress_show(const struct stress_array *array, const struct stress_view *view,
                 uint64_t *out);
void stress_describe(const struct stress_step *step, char out[STRESS_LINE_BYTES]);
/* of the model; the ref is gone already */
void stress_array_drop(struct stress_array *array);

/* ----------------------------------------------------------------------- on the cluster */

#define STRESS_READ_TIMEOUT_MS 120000u /* the watchdog comes first */
#define STRESS_RETRIES         1000    /* a task that was never at fault may not give up */

/* Submit, read, compare. Does not return when something is wrong. */
void stress_step_play(struct stress_thread *thread, const struct stress_step *step);
/* stress_large.c */
void stress_large_play(struct stress_thread *thread, const struct stress_step *step);
void stress_flood_play(struct stress_thread *thread, const struct stress_step *step);
/* stress_record.c: makes, records, launches and applies; nothing is left to do
 * for STRESS_RECORD. */
void stress_record_play(struct stress_thread *thread, const struct stress_step *step);
void stress_log_step(struct stress_thread *thread, const struct stress_step *step);
/* Read and compare all that is there, release everything. */
void stress_graph_end(struct stress_thread *thread);

/* Functions in source text, by number: each delays first, then computes this
 * for each element. */
#define STRESS_SOURCES 64u
uint64_t stress_source_value(uint32_t number, uint64_t x, uint64_t z);
/*
 * Can the devices of this cluster compile? ENOTSUP, EPERM and ENOLIB: they cannot, and
 * plasmon_error() has why.
 */
plasmon_status_t stress_source_probe(struct stress_ground *ground);
/* Make it known to the cluster if it is not. The name is for the call. */
void stress_source_ready(struct stress_thread *thread, uint32_t number, char out_name[32]);

/* Of all that is played. */
struct stress_coverage {
    _Atomic uint64_t kind[STRESS_KINDS]; /* steps, recorded ones too */
    _Atomic uint64_t delays, delayed_us; /* kernels that wait before they read */
    _Atomic uint64_t modules;            /* loaded while others run */
    _Atomic uint64_t frees;              /* refs let go */
    _Atomic uint64_t launches, replays;  /* of recorded graphs; all but a graph's first */
};

/* Called by the threads that play. */
struct stress_hooks {
    /* A graph begins. NULL: nothing. */
    void (*begin)(struct stress_thread *thread);
    /* Reading so many bytes failed: may it have? consumable: see above. */
    bool (*excuse)(struct stress_thread *thread, plasmon_status_t status, bool consumable,
                   uint64_t bytes);
    /* Something is wrong. Does not return. */
    void (*fail)(struct stress_thread *thread, const char *text) __attribute__((noreturn));
};

/* Where programs are played: one cluster, and what the threads on it share. */
struct stress_ground {
    /* Constant while threads play, but for `number`. */
    const struct stress_hooks *hooks;
    struct plasmon_client *client;
    uint32_t devices; /* as programs count them, from 0 */
    bool gpu;
    bool scarce;  /* its devices have little memory */
    bool sources; /* its devices can compile */
    /* functions that there are, at most STRESS_SOURCES: who calls one keeps it loaded */
    uint32_t source_count;
    uint64_t large_bytes; /* the most that one object has */

    /* of a device in the cluster: it changes when a host is replaced */
    _Atomic int number[STRESS_DEVICES_MAX];
    _Atomic uint64_t compared, excused; /* elements; reads that failed as they may */
    struct stress_coverage covered;
    pthread_mutex_t source_lock;
    uint64_t sources_known; /* bits; guarded by source_lock */
};

/* Fresh: hooks, client and devices, which have the cluster's numbers. The rest is the caller's to set. */
void stress_ground_init(struct stress_ground *ground, const struct stress_hooks *hooks,
                        struct plasmon_client *client, uint32_t devices);
void stress_ground_finish(struct stress_ground *ground);
/* false: no memory. */
bool stress_thread_init(struct stress_thread *thread, struct stress_ground *ground,
                        uint32_t index, uint64_t seed);
void stress_thread_finish(struct stress_thread *thread);

/* The next graph of the thread, from its first step to the release of all that it made. */
void stress_graph_play(struct stress_thread *thread);

const char *stress_kind_name(enum stress_kind kind);
/* Something is wrong in this thread. */
_Noreturn void stress_fail(struct stress_thread *thread, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* A call that must not fail. */
void stress_must(struct stress_thread *thread, plasmon_status_t status, const char *what);
/* A read that failed: returns if that may be. */
void stress_judge(struct stress_thread *thread, plasmon_status_t status, bool consumable,
                  uint64_t bytes, const char *what);
/* What the thread submitted last, a line a step, on stdout. */
void stress_print_steps(const struct stress_thread *thread, uint32_t most);

#endif
