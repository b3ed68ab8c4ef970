/* What one launch costs that somebody waits for, beside the messages that it takes. */
#ifndef BENCH_GRAPHS_LATENCY_H
#define BENCH_GRAPHS_LATENCY_H

#include "bench/bench.h"

/* In a child; adds rows. false: it failed; a remark says how. */
bool graphs_latency_measure(bool cuda, struct bench_report *report);

#endif
