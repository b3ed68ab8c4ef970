/* Parts of a graph on Plasmon, for who plays graphs in other ways too. All exit on failure. */
#ifndef BENCH_GRAPHS_PLAY_H
#define BENCH_GRAPHS_PLAY_H

#include "bench/graphs/graph.h"

/* Kernels become functions, and are compiled when this returns. */
void graphs_play_register(struct bench_cluster *cluster,
                          const struct graphs_definition *definition);
/* An input's bytes, or zeros for a state. */
struct plasmon_ref *graphs_play_put(struct bench_cluster *cluster,
                                    const struct graphs_array *array, int device);

#endif
