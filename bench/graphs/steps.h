/*
 * Between a CUDA graph launched by hand and one replayed by Plasmon: what each thing that a worker
 * does more costs by itself.
 */
#ifndef BENCH_GRAPHS_STEPS_H
#define BENCH_GRAPHS_STEPS_H

#include "bench/bench.h"

/*
 * In a child; adds rows. false: it failed; a remark says how. Without a GPU there is nothing to
 * tell: true.
 */
bool graphs_steps_measure(bool cuda, struct bench_report *report);

#endif
