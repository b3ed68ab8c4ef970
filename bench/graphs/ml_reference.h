/* What the two ML graphs, on one device and on several, share in fp64. */
#ifndef BENCH_GRAPHS_ML_REFERENCE_H
#define BENCH_GRAPHS_ML_REFERENCE_H

#include "bench/graphs/graph.h"

void graphs_ml_softmax(double *r, int classes);
/*
 * The class with the largest r1 + r2, or NaN where no more than `margin` lies between it and the
 * next: rounding may decide it.
 */
double graphs_ml_winner(const double *r1, const double *r2, int classes, double margin);
/* Features nearly as likely in one class as in another, so that no class wins every time. */
void graphs_ml_fill_log_likelihood(const struct graphs_graph *graph, uint32_t input,
                                   int64_t classes, int64_t features);

#endif
