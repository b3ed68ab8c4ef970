/*
 * A head's machine (head/machine.h) without a network: what it puts out is dropped, who it gives up
 * is counted, and its random numbers are the same at every run.
 */
#ifndef TESTS_HARNESS_LONE_MACHINE_H
#define TESTS_HARNESS_LONE_MACHINE_H

#include "head/machine.h"

struct lone_machine {
    uint64_t drawn; /* random numbers */
    unsigned nodes_gone;
    unsigned workers_gone;
};

/* For a head_machine_config whose user is a struct lone_machine. */
extern const struct head_machine_ops lone_machine_ops;

#endif
