/* What `plasmon bench graphs` found out: as a table, as JSON, as a picture. */
#ifndef BENCH_GRAPHS_TABLE_H
#define BENCH_GRAPHS_TABLE_H

#include "bench/graphs/bare.h"

/* A graph of some size on one device. */
struct graphs_row {
    const struct graphs_definition *definition;
    enum graphs_size size;
    double result[GRAPHS_RESULTS];          /* bare.h; negative: there is none */
    uint64_t traffic;                       /* bytes, of room.c */
    double prepare_s, by_hand_s, plasmon_s; /* how long it took to find out */
};
struct graphs_table {
    uint64_t seed;
    const char *json;           /* path, or NULL */
    struct pl_vec rows;         /* struct graphs_row */
    struct bench_report report; /* the same for JSON; remarks */
    struct bench_report more;   /* several devices, chains, latency */
};

const char *graphs_size_name(enum graphs_size size);
const char *graphs_mode_name(uint32_t mode);
void graphs_table_init(struct graphs_table *table, uint64_t seed, const char *json);
void graphs_table_finish(struct graphs_table *table);
void graphs_table_add(struct graphs_table *table, const struct graphs_row *row);
void graphs_table_remark(struct graphs_table *table, const char *format, ...)
    PL_PRINTF(2, 3);
/* Writes all that there is as JSON, if that was asked for. false: it could not be written. */
bool graphs_table_save(const struct graphs_table *table);
void graphs_table_print(const struct graphs_table *table);
/* Of all targets: how many there are, and how many were met. */
void graphs_table_targets(const struct graphs_table *table, uint32_t *out_count,
                          uint32_t *out_met);

/* Seconds a run; negative: not measured. */
double graphs_row_seconds(const struct graphs_row *row, uint32_t mode,
                          enum graphs_contestant contestant);
/* By whom a contestant is measured: plain by events, replay by the graph; on CPUs both by serial. */
enum graphs_contestant graphs_row_yardstick(const struct graphs_row *row, uint32_t mode,
                                            enum graphs_contestant contestant);
/* The most that its time may be of its yardstick's; 0: there is no target. */
double graphs_row_target(const struct graphs_row *row, uint32_t mode,
                         enum graphs_contestant contestant);

/* path NULL: nothing. */
bool graphs_table_write_plot(const struct graphs_table *table, const char *path);

#endif
