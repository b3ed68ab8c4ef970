/*
 * Random graphs on real clusters, compared to the bit with what they mean. For
 * docs/ordering.md: it looks for waits that are missing, and for waits that
 * never end.
 *
 *   stress_program.c   a thread's program: one random step after another, and
 *                      what each means on plain arrays
 *   stress_submit.c    the same step through the public API
 *   stress_record.c    steps that are recorded once and launched several times
 *   stress_large.c     objects that a device grows for, and more of them than
 *                      it can hold
 *   stress_source.c    functions in source text: delays of their own, and
 *                      modules that are loaded while streams wait
 *   stress_run.c       clusters of all kinds, threads, workers that are killed,
 *                      the watchdog
 *   stress_coverage.c  how often what makes trouble has happened
 *   stress_main.c      --seed, --graphs, --seconds, --devices
 *
 * THE MODEL. Each thread has arrays of its own (i64, two dimensions) and knows
 * what is in them: a step is applied to the model in the order of submission,
 * which is what the API promises. All functions are exact on integers, so
 * results are compared to the bit, whatever ran where. Threads share the
 * cluster, its devices and their memory, but no array.
 *
 * WHAT MAY FAIL. Nothing, unless a worker was killed since the graph began.
 * Then a read may fail with ECONSUMED, or with EDEPENDENCY of such a failure,
 * if an array from which its bytes come was ever overwritten in place (INOUT,
 * REDUCE, OUT through a view). A read that succeeds must be right in any case.
 *
 * A SEED gives the same programs and the same kinds of clusters; how threads
 * interleave and when a worker dies is the machine's.
 */
#ifndef TESTS_STRESS_STRESS_H
#define TESTS_STRESS_STRESS_H

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

/* ------------------------------------------------------------------------------------------------ a thread's program */

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

struct stress_run;
struct stress_thread {
    struct stress_run *run;
    uint32_t index;
    uint64_t random;
    pthread_t id;
    uint64_t graph;         /* its seed */
    uint64_t deaths_before; /* that had ended when the graph began */
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
    _Atomic bool done;
};

#define STRESS_ROWS_MAX     48
#define STRESS_COLUMNS_MAX  512
#define STRESS_ELEMENTS_MAX (STRESS_ROWS_MAX * STRESS_COLUMNS_MAX)

uint64_t stress_draw(struct stress_thread *thread, uint64_t bound); /* 0 .. bound - 1 */
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
void stress_array_drop(
    struct stress_array *array); /* of the model; the ref is gone already */

/* ------------------------------------------------------------------------------------------------ on the cluster */

#define STRESS_READ_TIMEOUT_MS 120000u /* the watchdog comes first */
#define STRESS_RETRIES \
    1000 /* a task that was never at fault may not give up  \
                             */

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
/* Can the devices of this cluster compile? Says why not. */
bool stress_source_probe(struct stress_run *run);
/* Make it known to the cluster if it is not. The name is for the call. */
void stress_source_ready(struct stress_thread *thread, uint32_t number, char out_name[32]);

/* ------------------------------------------------------------------------------------------------ runs */

struct stress_profile {
    bool gpu;
    bool kills;       /* workers, on the way */
    uint32_t seconds; /* 0: until `graphs` are done */
    uint64_t graphs;  /* 0: until the time is over */
    uint64_t seed;
    uint32_t devices;     /* of every cluster; 0: 1, 2 or 4 */
    uint32_t devices_max; /* CPU devices; on GPUs as many as there are, at most that */
    uint64_t large_bytes; /* the most that one object has */
    const char *transfer; /* NULL: any */
};

/* Of all clusters of a run. */
struct stress_coverage {
    _Atomic uint64_t kind[STRESS_KINDS]; /* steps, recorded ones too */
    _Atomic uint64_t delays, delayed_us; /* kernels that wait before they read */
    _Atomic uint64_t modules;            /* loaded while others run */
    _Atomic uint64_t frees;              /* refs let go */
    _Atomic uint64_t launches, replays;  /* of recorded graphs; all but a graph's first */
    /* By the run's own thread, between clusters. */
    uint32_t clusters[STRESS_DEVICES_MAX + 1], with_sources;
    uint64_t copies;
};

/* One cluster of some kind, and the threads on it. */
struct stress_run {
    const struct stress_profile *profile;
    struct plasmon_client *client;
    uint32_t devices;
    uint32_t cluster; /* number of the cluster in this run */
    char about[160];  /* "2 devices, 1 run stream, transfer host, 3 threads" */
    bool kills;
    bool scarce;          /* its devices have little memory */
    bool sources;         /* its devices can compile */
    uint64_t deadline_ns; /* of this cluster */
    uint32_t thread_count;
    struct stress_thread *thread;
    _Atomic uint64_t deaths_begun,
        deaths_ended;                   /* of workers; a kill lies between the two */
    _Atomic uint64_t compared, excused; /* elements; reads that failed as they may */
    pthread_mutex_t source_lock;
    uint64_t sources_known;       /* bits; guarded by source_lock */
    uint64_t graphs, steps;       /* finished, of earlier clusters too */
    _Atomic uint64_t graphs_left; /* may be begun; all threads */
    _Atomic bool stop;
    struct stress_coverage covered;
};

/* stress_coverage.c. Any thread: */
void stress_cover_step(struct stress_run *run, const struct stress_step *step);
const char *stress_kind_name(enum stress_kind kind);
/* The run's own thread: a cluster is about to end; the run has. The latter fails when a long run has not seen everything. */
void stress_cover_cluster(struct stress_run *run);
void stress_cover_end(struct stress_run *run, uint64_t deaths);

/* Plays graphs on one cluster after another until time or graphs are over.
 * Fails the test with a report when something is wrong. */
void stress_play(const struct stress_profile *profile);
/* Something is wrong in this thread: prints the cluster, the last steps of the
 * thread, and fails the test. */
_Noreturn void stress_fail(struct stress_thread *thread, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* A call that must not fail. */
void stress_must(struct stress_thread *thread, plasmon_status_t status, const char *what);

/* stress_main.c: what was asked for on the command line, over these defaults.
 */
struct stress_profile stress_profile_from(const struct stress_profile *defaults);
int stress_main(int argc, char **argv);

#endif
