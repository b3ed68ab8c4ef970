/*
 * Runs by seed, for tests whose programs are random: PLASMON_SEEDS=n of them, or as many as the
 * test wants, from the test's seed (--seed) on. Runs are silent but for errors: crashes are logged
 * as warnings, thousands of them; an error says why a process ends.
 */
#ifndef TESTS_SIM_SEEDS_H
#define TESTS_SIM_SEEDS_H

#include "tests/sim/graph.h"

void seeds_log_errors(void);
/*
 * Fails the test at the first seed for which `run` is false, and says how to repeat it. Returns how
 * many there were.
 */
uint64_t seeds_run(uint64_t by_default, bool (*run)(uint64_t seed, void *user), void *user);
/* graph_run() for each. */
uint64_t seeds_run_graphs(uint64_t by_default, const struct graph_profile *profile,
                          struct graph_coverage *sum);
/* Prints how often those from `first` to `last` were met; each at least once, if there were `enough` runs. */
void seeds_assert_met(const struct graph_coverage *sum, uint64_t enough,
                      enum sim_cell first, enum sim_cell last);

#endif
