/*
 * Random programs, played on a simulated cluster and compared with what they mean.
 *
 *   graph_make.c, graph_args.c  a program from a seed: tasks, puts, snapshots, reads, mappings,
 *                               releases, cancels, names
 *   graph_play.c    submits it step by step while the cluster runs, with faults
 *   graph_model.c   what it means: the steps one after the other on plain arrays, by the same CPU functions
 *   graph_check.c   every answer against the model; what was covered
 *
 * Everything is compared to the bit (only a NaN stands for any NaN). A task may fail only where the
 * model says so, or where a cancel, a crash or a full device explains it; then the model goes on
 * with that failure.
 */
#ifndef TESTS_SIM_GRAPH_H
#define TESTS_SIM_GRAPH_H

#include "tests/sim/sim.h"

enum {
    GRAPH_REFS_MAX  = 96,
    GRAPH_STEPS_MAX = 512,
    GRAPH_PUT_MAX   = 3, /* pieces of a put */
};

enum graph_view_kind {
    GRAPH_WHOLE,
    GRAPH_DENSE,
    GRAPH_STRIDED,
    GRAPH_OVERLAPPING, /* meets what was accessed last, without being equal to it */
    GRAPH_NESTED,      /* a view of a view */
    GRAPH_VIEW_KINDS,
};

/* A ref of a client. Each has an array of its own: snapshots and looked-up versions are copies. */
struct graph_ref {
    uint32_t client;
    uint32_t dtype;
    struct pl_shape root;  /* of the coordinates of its array */
    struct pl_view base;   /* what it shows of them */
    struct pl_shape shape; /* of what it shows */
    bool released;         /* later steps do not name it */
    bool may_fail;         /* the generator put a failure upstream */
    bool accessed;
    struct pl_box last; /* hull of the last access, in root coordinates */
    uint32_t made_by;   /* step */
    uint64_t id;        /* while played; 0: not yet, or released */
    bool lacks;         /* at the end, the head has not all of it */
};

struct graph_arg {
    uint32_t mode;
    uint32_t ref;
    bool fresh; /* OUT makes the ref */
    enum graph_view_kind kind;
    struct pl_view view; /* of what the ref shows */
    struct pl_view root; /* of the array */
    uint32_t reduce_op;
    /* Who else had a stake in the array when the task was submitted. */
    bool by_snapshot;
    bool by_mapping;
    bool by_reader;
};

enum graph_step_kind {
    GRAPH_RUN,
    GRAPH_PUT,
    GRAPH_PUT_SHARED, /* through shared memory */
    GRAPH_SNAPSHOT,
    GRAPH_READ,
    GRAPH_MAP,
    GRAPH_UNMAP,
    GRAPH_RELEASE,
    GRAPH_CANCEL,
    GRAPH_PUBLISH,
    GRAPH_LOOKUP,
    GRAPH_UNPUBLISH,
};

struct graph_step {
    enum graph_step_kind kind;
    uint32_t client;
    const char *function;
    struct graph_arg args[SIM_ARGS_MAX]; /* READ, MAP, SNAPSHOT: args[0] is what is read */
    uint32_t arg_count;
    union kernel_scalar scalars[6];
    uint32_t scalar_count;
    uint32_t place; /* device index + 1, or 0 */
    /* RELEASE: ref; CANCEL, UNMAP: step; SNAPSHOT, LOOKUP: the new ref; LOOKUP: see other */
    uint32_t target;
    uint32_t other; /* LOOKUP, UNPUBLISH: the PUBLISH step */
    bool donatable;
    uint8_t *data; /* puts; owned */
    uint32_t pieces;
    uint64_t pause_ns; /* virtual time that passes before it */
    bool flush;
    uint32_t time_limit_ms; /* RUN; 0: none */
    bool endless;      /* RUN: its kernel does not end: a limit or a cancel must end it */
    uint32_t lasts_us; /* RUN: it takes so long; 0: as others */
    bool force;        /* CANCEL */
    /*
     * A step of a recorded graph: several in a row are one launch. The first launch of a graph
     * comes with its recording.
     */
    uint32_t recorded; /* which graph; 0: none */
    uint32_t launch;   /* from 0 */
    bool last;         /* of its launch */
    bool last_launch;
    /* While played. */
    struct sim_answer *answers[GRAPH_PUT_MAX];
    uint64_t task;
    uint64_t hold;
    bool played;
    bool cancel_asked;
};

struct graph {
    uint64_t seed;
    uint64_t random;
    struct sim_config config;
    /* Moods of this one, so that rare things meet each other. */
    uint32_t cancel_weight;
    uint32_t map_weight;
    uint32_t unmap_permille;
    bool client_crashes;
    bool replays; /* nothing fails in it; some steps are recorded and launched again */
    bool limits;  /* see sim_config */
    bool hurries; /* no time passes between steps: many transfers at once */
    uint32_t lasting_permille; /* of its tasks take their time */
    uint32_t recordings;
    uint32_t crash_step;   /* before it ... */
    uint32_t crash_client; /* ... this client dies */
    bool says_bye;         /* instead of releasing its refs */
    bool no_puts;
    bool dawdles;    /* long pauses now and then: things are enqueued while others wait */
    bool names_none; /* no task names the device where it is to run */
    struct graph_ref refs[GRAPH_REFS_MAX];
    uint32_t ref_count;
    struct graph_step *steps; /* GRAPH_STEPS_MAX */
    uint32_t step_count;
    uint32_t end; /* while played: the first step of those that read all there is .. */
    uint32_t end_again; /* .. and of those that read it once more when all ways are there */
};

/* What kind of runs to make. */
struct graph_profile {
    uint32_t devices_min, devices_max;
    uint32_t steps_min, steps_max;
    uint32_t crash_permille; /* of the graphs */
    uint32_t break_permille;
    uint32_t scarce_permille; /* with little device memory */
    /* with little device memory, and host memory and files for the rest */
    uint32_t spill_permille;
    /* then: so many writes find no room; 0: few of few programs */
    uint32_t disk_full_permille;
    /* of these, stores that are killed while they spill; no draw */
    uint32_t spill_deaths_most;
    uint32_t client_crash_permille; /* a client dies on the way */
    uint32_t pairs_permille;        /* all transfers by pairs */
    bool pairs_of_hosts;            /* .. between two hosts with stores, too */
    uint32_t limit_permille;        /* with time limits and cancels by force */
    /* the head writes a journal and is killed; 0: it writes none */
    uint32_t head_crash_permille;
    /* of these: it stands still, and another one goes on; no draw */
    uint32_t head_stops_most;
    uint32_t gone_permille; /* a device is lost for good */
    uint32_t host_permille; /* of these: several, with their host */
    /* .. which have stores, and are lost as a whole: see sim_config; no draw */
    bool host_faults;
    bool drains;           /* .. and it is drained before */
    bool no_puts;          /* so that everything can be made again */
    uint32_t crashes_most; /* in one graph; 0: 3 */
    uint32_t breaks_most;  /* 0: 4 */
    uint32_t cut_permille; /* the network is cut now and then */
    uint32_t cuts_most;
    /* workers stand still; their stores watch, fence and start them */
    uint32_t stop_permille;
    uint32_t stops_most;
    uint32_t store_deaths_most; /* of these, with stop_permille */
    bool store_early;           /* see sim_config */
    bool no_lineage;            /* what is lost is not made again */
    bool replays_anyway;        /* graphs are recorded beside faults, too */
    bool replicas;              /* what is put is to be in two places .. */
    bool some_replicas;         /* .. in some programs; no draw */
    bool patient;               /* see sim_config */
    bool gates;             /* who waits for more than some others does so behind gates */
    uint32_t way_cuts_most; /* ways between two hosts are cut; 0: none is .. */
    /* .. for less or more than that; 0: longer than any lease, and than any worker is away .. */
    uint32_t reach_wait_ms;
    bool ways_long; /* .. most for more; no draw */
    uint32_t check_every;
};

enum { GRAPH_MODES = 5, GRAPH_RELATIONS = 2, GRAPH_HOLDERS = 4, GRAPH_FAILURES = 4 };
struct graph_coverage {
    uint64_t cell[GRAPH_MODES][GRAPH_VIEW_KINDS][GRAPH_RELATIONS][GRAPH_HOLDERS]
                 [GRAPH_FAILURES];
    uint64_t graphs, tasks, tasks_done, tasks_failed, unexplained_by_model, reads, crashes,
        breaks, starvations, spills, restores, file_writes, file_reads, slab_moves, no_room,
        launches, replayed, components, over_limit, ended_by_force, fences, head_crashes,
        inputs_replayed, checkpoints, gone, rebuilt, shadows, given_back;
    uint64_t write_backs, write_back_cancels, spill_deaths, spills_undone, spills_stranded;
    uint64_t relieved, relieved_spills, relieved_in_vain;
    uint64_t drained;
    uint64_t kept;      /* refs of which the head had all at the end */
    uint64_t unreached; /* answers */
    uint64_t found_late,
        found_failed; /* what was looked up, and made after that, or not at all */
    uint64_t checkpoints_spilled, checkpoints_graphs, checkpoints_lineage;
    uint64_t met[SIM_CELL_COUNT];
};

struct graph *graph_make(uint64_t seed, const struct graph_profile *profile);
void graph_destroy(struct graph *graph);
void graph_describe(const struct graph *graph, uint32_t first, struct pl_str *out);
/* Play it. false: sim->failure says why. */
bool graph_play(struct graph *graph, struct sim *sim);
bool graph_check(struct graph *graph, struct sim *sim, struct graph_coverage *coverage);
/* All of it for one seed. false: why and the program are printed when `print`. */
bool graph_run(uint64_t seed, const struct graph_profile *profile,
               struct graph_coverage *coverage, bool print);
void graph_coverage_print(const struct graph_coverage *coverage);
/* How many feasible cells were never executed; names them. */
uint32_t graph_coverage_missing(const struct graph_coverage *coverage, struct pl_str *out);

/* -------------------------------------------------------------------------------- model */

struct graph_partial {
    struct pl_box box;
    uint8_t *bytes; /* owned; dense over box */
    bool failed;
    bool doubtful;
    bool cut;
};

/* What the model knows of an element. */
enum { GRAPH_RIGHT, GRAPH_FAILED, GRAPH_DOUBTFUL };
/* May who needs an element be told that it is lost? */
enum {
    GRAPH_MADE,     /* no: it is made again */
    GRAPH_CUT,      /* yes: it depends on what nobody can make again, a put or a replay */
    GRAPH_PUT_HERE, /* it was put and not written since: a call no, its device is there */
    /* likewise, and it is in two places whenever something is lost: who reads it at the end no */
    GRAPH_PUT_TWICE
};

struct graph_array {
    bool exists;
    struct pl_shape shape;
    uint8_t *bytes; /* owned */
    /* an element: FAILED: it has no right value; DOUBTFUL: perhaps it has */
    uint8_t *failed;
    uint8_t *home;          /* an element: device + 1 that wrote it */
    uint8_t *cut;           /* an element: GRAPH_MADE .. GRAPH_PUT_HERE */
    struct pl_vec partials; /* struct graph_partial */
    uint32_t partial_op;
    bool folded; /* ever: a fold is made when somebody reads, and may find no room then */
    struct pl_vec held; /* uint32_t: refs that are snapshots of it */
};

void graph_array_init(struct graph_array *array, const struct pl_shape *shape);
void graph_array_finish(struct graph_array *array);
struct kernel_arg graph_array_arg(const struct graph_array *array,
                                  const struct pl_view *view, uint32_t mode);
/* Is there one that is not GRAPH_MADE, or that is GRAPH_CUT? */
bool graph_array_rooted(const struct graph_array *array, const struct pl_box *box);
bool graph_array_cut(const struct graph_array *array, const struct pl_box *box);
/* .. that may be lost to who reads it? */
bool graph_array_losable(const struct graph_array *array, const struct pl_box *box);
bool graph_array_failed(const struct graph_array *array, const struct pl_box *box);
/* Is there something of which nobody can say whether it failed? If it did not, it is as the model has it. */
bool graph_array_doubtful(const struct graph_array *array, const struct pl_box *box);
void graph_array_mark(const struct graph_array *array, const struct pl_box *box,
                      uint8_t *marks, uint8_t value);
/* What was right there is in doubt from now on. */
void graph_array_doubt(const struct graph_array *array, const struct pl_box *box);
bool graph_array_elsewhere(const struct graph_array *array, const struct pl_box *box,
                           uint8_t home);
void graph_array_copy(struct graph_array *to, const struct graph_array *from);
/* Before any use of the array but a REDUCE with op. */
void graph_array_fold(struct graph_array *array);
/* A private accumulator for a REDUCE through `view`. */
struct graph_partial *graph_array_partial(struct graph_array *array,
                                          const struct pl_view *view, uint32_t op);
struct kernel_arg graph_partial_arg(const struct graph_array *array,
                                    const struct graph_partial *partial,
                                    const struct pl_view *view, uint32_t op);
/* What the view shows, dense. From pl_alloc. */
uint8_t *graph_array_show(const struct graph_array *array, const struct pl_view *view,
                          uint64_t *out_bytes);

#endif
