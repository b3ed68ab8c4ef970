/*
 * The real libplasmon in the simulation: client/ as it is, on top of a network and a clock that are
 * simulated.
 *
 * What is replaced is rpc/ (rpc.h's face, here on the pipes of a simulated client), and at link
 * time the clock, conditions and the question which thread runs:
 *
 *   pl_now_ns           virtual time
 *   pl_cond_wait..      the cluster runs until the condition is signalled or its time has come. So
 *                       a call that blocks blocks the program and nothing else: everybody else goes
 *                       on, connections break and heads die meanwhile
 *   pthread_self        within a callback of rpc: another one, as it would be there
 *
 * A process of a client can be KILLED: from then on nothing of it happens any more. Its handle is
 * finished when the simulation is over, only so that no memory leaks.
 *
 * Threads: one. One simulation at a time.
 */
#ifndef TESTS_SIM_SIM_RPC_H
#define TESTS_SIM_SIM_RPC_H

#include "plasmon/plasmon.h"
#include "tests/sim/sim.h"

/*
 * Clients of `sim`, which was made with config.library. failed is called when a wait finds that the
 * run has failed; it does not return.
 */
void sim_rpc_start(struct sim *sim, void (*failed)(struct sim *sim));
/* After every handle was finished; before sim_destroy(). */
void sim_rpc_finish(void);
/* A process in this place, with a session. As plasmon_init(). */
plasmon_status_t sim_rpc_open(struct sim_client *place, struct plasmon_client **out_client);
/* SIGKILL. The place is free; the handle is finished by sim_rpc_bury(). */
void sim_rpc_kill(struct sim_client *place, struct plasmon_client *client);
void sim_rpc_bury(void);
/* Let virtual time pass, and what happens in it. */
void sim_rpc_pass(uint64_t ns);

#endif
