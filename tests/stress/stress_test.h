/*
 * Random programs (bench/stress) on real clusters of all kinds. For docs/ordering.md: it looks for
 * waits that are missing, and for waits that never end.
 *
 *   stress_run.c       clusters of all kinds, threads, workers that are killed, the watchdog
 *   stress_coverage.c  how often what makes trouble has happened
 *   stress_main.c      --seed, --graphs, --seconds, --devices
 *
 * WHAT MAY FAIL. Nothing, unless a worker was killed since the graph began. Then a read may fail
 * with ECONSUMED, or with EDEPENDENCY of such a failure, if an array from which its bytes come was
 * ever overwritten in place.
 *
 * A SEED gives the same programs and the same kinds of clusters; how threads interleave and when a
 * worker dies is the machine's.
 */
#ifndef TESTS_STRESS_STRESS_TEST_H
#define TESTS_STRESS_STRESS_TEST_H

#include "bench/stress/stress.h"

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

/* Counted between clusters, by the run's own thread. */
struct stress_tally {
    uint32_t clusters[STRESS_DEVICES_MAX + 1], with_sources, scarce, all;
    uint64_t copies;
};

struct stress_run;
struct stress_player {
    struct stress_thread thread;
    struct stress_run *run;
    pthread_t id;
    uint64_t deaths_before; /* that had ended when the graph began */
    _Atomic bool done;
};

/* One cluster of some kind at a time, and the threads on it. */
struct stress_run {
    const struct stress_profile *profile;
    struct stress_ground ground;
    uint32_t cluster;     /* number of the cluster in this run */
    char about[160];      /* "2 devices, 1 run stream, transfer host, 3 threads" */
    uint64_t deadline_ns; /* of this cluster */
    uint32_t player_count;
    struct stress_player *player; /* STRESS_THREADS_MAX */
    _Atomic uint64_t deaths_begun,
        deaths_ended;             /* of workers; a kill lies between the two */
    uint64_t graphs, steps;       /* finished, of earlier clusters too */
    _Atomic uint64_t graphs_left; /* may be begun; all threads */
    struct stress_tally tally;
};

/*
 * stress_coverage.c. The run's own thread: a cluster is about to end; the run has. The latter fails
 * when a long run has not seen everything.
 */
void stress_cover_cluster(struct stress_run *run);
void stress_cover_end(struct stress_run *run, uint64_t deaths);

/*
 * Plays graphs on one cluster after another until time or graphs are over. Fails the test with a
 * report when something is wrong.
 */
void stress_play(const struct stress_profile *profile);

/* stress_main.c: what was asked for on the command line, over these defaults. */
struct stress_profile stress_profile_from(const struct stress_profile *defaults);
int stress_main(int argc, char **argv);

#endif
