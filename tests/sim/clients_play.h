/*
 * Several programs with the real libplasmon (sim_rpc.h), played on a simulated cluster: each has
 * objects of its own, and finds those of the others by name. What every object must hold is kept
 * beside it. Programs are killed, and others take their place; names stay.
 *
 * Nothing may fail but for one reason: the head has given the session up, because its client was
 * away for a lease.
 */
#ifndef TESTS_SIM_CLIENTS_PLAY_H
#define TESTS_SIM_CLIENTS_PLAY_H

#include "tests/sim/sim.h"

struct clients_profile {
    uint32_t steps_min, steps_max;
    uint32_t break_permille; /* of the runs */
    uint32_t cut_permille;
    uint32_t lease_permille; /* of the runs: some cuts are longer than a lease */
    uint32_t kill_permille;
    uint32_t head_crash_permille;
    uint32_t check_every;
};
struct clients_coverage {
    uint64_t runs, steps, values, lost_sessions, kills;
    uint64_t met[SIM_CELL_COUNT];
};

/* One seed. false: why is printed when `print`. */
bool clients_run(uint64_t seed, const struct clients_profile *profile,
                 struct clients_coverage *coverage, bool print);

#endif
