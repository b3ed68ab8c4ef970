/* What `plasmon bench graphs` found out: as a table, as JSON, as a picture. */
#ifndef BENCH_GRAPHS_TABLE_H
#define BENCH_GRAPHS_TABLE_H

#include "bench/graphs/bare.h"

struct graphs_row {
    const struct graphs_definition *definition;
    enum graphs_size size;
    double seconds[GRAPHS_RESULTS]; /* negative: there is none */
};
struct graphs_table {
    uint64_t seed;
    struct pl_vec rows;         /* struct graphs_row */
    struct bench_report report; /* the same for JSON; remarks */
};

const char *graphs_size_name(enum graphs_size size);
void graphs_table_init(struct graphs_table *table, uint64_t seed);
void graphs_table_finish(struct graphs_table *table);
void graphs_table_add(struct graphs_table *table, const struct graphs_row *row);
void graphs_table_remark(struct graphs_table *table, const char *format, ...)
    PL_PRINTF(2, 3);
/* Rows and remarks of another report, so that one JSON file has all. */
void graphs_table_merge(struct graphs_table *table, const struct bench_report *other);
void graphs_table_print(const struct graphs_table *table);
bool graphs_table_write_json(const struct graphs_table *table, const char *path);
/* Speed of each contestant over that of hand-tuned streams (of serial where there are none). path NULL: nothing. */
bool graphs_table_write_plot(const struct graphs_table *table, const char *path);

#endif
