/*
 * Who waits for what in a cluster: the chains from the oldest tasks to what holds them up, and what
 * to do about each. Of a status with waits (client_status()); borrows from it.
 *
 * Threads: any. Pure functions.
 */
#ifndef CLIENT_DOCTOR_H
#define CLIENT_DOCTOR_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"
#include "wire/plasmon.pb-c.h"

/* A launch on its way through the chain; either may be NULL. */
struct doctor_step {
    uint32_t device;
    uint64_t seq;
    const Plasmon__V1__TaskWait *task;     /* as the head has it */
    const Plasmon__V1__LaunchWait *launch; /* as its worker has it */
};

/* What holds up the end of a chain, and what to do. */
struct doctor_cause {
    const char *name; /* for scripts */
    const char *why;  /* "runs", "waits for device memory" */
    const char *remedy;
};

/* A task, where its chain ends, and why. */
struct doctor_finding {
    struct doctor_step task;
    struct doctor_step end;
    const struct doctor_cause *cause;
    uint32_t steps;
};

struct doctor_finding doctor_find(const Plasmon__V1__StatusReply *reply,
                                  const Plasmon__V1__TaskWait *task);
/* NULL: the reply does not have it. */
const Plasmon__V1__Device *doctor_device(const Plasmon__V1__StatusReply *reply,
                                         uint32_t index);
/* Why a copy for spilling has not been sent. */
const struct doctor_cause *doctor_hold(const Plasmon__V1__TaskWait *task);
bool doctor_silent(const Plasmon__V1__Waits *waits, uint32_t device);

/*
 * The oldest tasks, a line each: what each waits for in the end, how long, and what to do. spills:
 * with copies for spilling, where nothing else has these.
 */
void doctor_say_oldest(const Plasmon__V1__StatusReply *reply, uint32_t most, bool spills,
                       struct pl_str *out);
void doctor_text(const Plasmon__V1__StatusReply *reply, struct pl_str *out);
void doctor_json(const Plasmon__V1__StatusReply *reply, struct pl_str *out);

#endif
