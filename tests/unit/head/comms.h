/*
 * A head whose workers have NCCL, for tests of what goes by it: the commands to workers are
 * decoded, and of pairs and teams they are kept; what workers say is made up. All devices are of
 * one host.
 */
#ifndef TESTS_UNIT_HEAD_COMMS_H
#define TESTS_UNIT_HEAD_COMMS_H

#include "head/core_int.h"

enum { COMMS_DEVICES_MAX = 5, COMMS_TOLD_MAX = 64, COMMS_NCCL = 22809 };

/* What a worker was told of a pair or team. */
struct comms_told {
    Plasmon__V1__PairState state;
    uint32_t peer;
    uint32_t team;
    bool receives;
    uint64_t epoch;
};

struct comms {
    struct head_core *core;
    uint64_t session;
    struct comms_told told[COMMS_DEVICES_MAX][COMMS_TOLD_MAX]; /* in order */
    uint32_t told_count[COMMS_DEVICES_MAX];
    uint64_t sent[COMMS_DEVICES_MAX][COMMS_TOLD_MAX]; /* halves that it heard to be over */
    uint32_t sent_count[COMMS_DEVICES_MAX];
    uint64_t starve[COMMS_DEVICES_MAX]; /* told to fail for want of memory; 0: none */
    struct wire_arena arena;
};
extern struct comms comms;

/* kind: of the devices. All have COMMS_NCCL but the last one, which has that version; 0: none. */
void comms_begin(uint32_t devices, uint32_t kind, uint32_t version_of_last);
/* Checks the head's state, too. */
void comms_end(void);
/* A worker says hello. enqueued and unfinished: what an earlier incarnation left. */
void comms_join(uint32_t device, uint32_t kind, uint32_t incarnation, uint32_t version,
                uint64_t enqueued);
/* NULL: there is none, or it is over. */
const struct head_task *comms_task(uint32_t device, uint64_t seq);
void comms_report_done(uint32_t device, uint64_t seq);
void comms_report_starved(uint32_t device, uint64_t seq);
/* Of epoch 1, if it names none; with an id, if it was made. */
void comms_report(uint32_t device, Plasmon__V1__PairReport *report);
/* The told one; fails the test if there were not so many. */
const struct comms_told *comms_told(uint32_t device, uint32_t index,
                                    Plasmon__V1__PairState state);

#endif
