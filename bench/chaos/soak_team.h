/*
 * What the main process of a soak does beside its clients: reductions over all devices that may go
 * by NCCL, again and again. So there is a team (head/team.c), and with little room for
 * communicators it and the pairs of the clients' copies close each other all the time.
 */
#ifndef BENCH_CHAOS_SOAK_TEAM_H
#define BENCH_CHAOS_SOAK_TEAM_H

#include <stdbool.h>
#include <stdint.h>

#include "bench/stress/stress.h"

struct soak_team {
    /* Constant. */
    struct plasmon_client *client;
    uint32_t devices;
    int number[STRESS_DEVICES_MAX]; /* in the cluster */

    struct plasmon_ref *sum[STRESS_DEVICES_MAX]; /* of the round that is under way */
    bool under_way;
    uint64_t next_ns; /* when the next one begins */
    uint64_t rounds;  /* that were right */
};

/*
 * Looks at the round under way, or begins the next. Does not wait but for the bytes of a result
 * that is there.
 *
 * @param out_text  Of failure: what was wrong.
 * @return false: a reduction failed, or its result was wrong.
 */
bool soak_team_turn(struct soak_team *team, uint64_t now_ns,
                    char out_text[STRESS_TEXT_BYTES]);
/* Lets go of what is under way. */
void soak_team_end(struct soak_team *team);

#endif
