/*
 * Teams: sets of devices of one host with a communicator, by which all of them do one thing
 * together (collective_team.c). The head decides when there is one: it opens and closes it with
 * launches that share one order number on all devices, and says when it is broken.
 */
#ifndef HEAD_TEAM_H
#define HEAD_TEAM_H

#include "head/device.h"

struct head_reader;
struct head_task;

enum head_team_state {
    HEAD_TEAM_CLOSED,
    HEAD_TEAM_OPENING,
    HEAD_TEAM_OPEN,
    HEAD_TEAM_CLOSING,
    HEAD_TEAM_BREAKING,
};

/*
 * The record of a set; another set may have it later (team.c). There is one communicator at a time;
 * each has its epoch.
 */
struct head_team {
    uint32_t number; /* from 1 */
    uint32_t count;
    struct head_device *device[WIRE_TEAM_MAX]; /* of rank i; indices grow */
    enum head_team_state state;
    uint64_t epoch;                  /* of the one that there is, or was last, of any set */
    uint64_t tasks;                  /* unfinished launches that name it */
    uint32_t ends;                   /* OPENING, CLOSING: bit i: done at rank i */
    uint32_t decided;                /* BREAKING: bit i: rank i has marked it */
    uint64_t used;                   /* core->pair_uses when it was asked for last */
    uint64_t bytes[WIRE_TEAM_MAX];   /* device memory that it takes at rank i */
    uint64_t stalled[WIRE_TEAM_MAX]; /* order of the launches that are stuck there */
    uint64_t wanted;                 /* bytes of results since it failed */
    uint32_t failures;               /* in a row */
    bool leaving;                    /* comm.c's, while it looks for room */
};

enum { HEAD_TEAM_RECORDS_MAX = 4096 };
/* So many records. Changed by tests alone, while there is no head. */
extern uint32_t head_team_records_max;

/*
 * The team of these devices (their indices grow), to reduce members of so many bytes by launches
 * that get their numbers now. Opens it if it is time to; asked: it is, unless it failed before;
 * else when some like it went another way. NULL: there is none.
 */
struct head_team *head_team_take(struct head_core *core, struct head_device *const *devices,
                                 uint32_t count, uint64_t bytes, bool asked);
/* Device memory that its communicator takes there, or is going to; 0: none, or it is being closed. */
uint64_t head_team_bytes(const struct head_team *team, const struct head_device *device);
/* It is open; what gets its number from now on goes another way. */
void head_team_close(struct head_core *core, struct head_team *team);
/* Communicators of teams that the device has, or is about to have. */
uint32_t head_team_count(const struct head_core *core, const struct head_device *device);
/* A launch that names one is unfinished from here on; it is over. */
void head_team_task_new(struct head_core *core, const struct head_task *task);
void head_team_task_over(struct head_core *core, struct head_task *task);
void head_team_report(struct head_core *core, struct head_device *device,
                      const Plasmon__V1__PairReport *report);
/*
 * Its worker is another one, which has none; what it must know goes into its outbox. Or it will not
 * come back.
 */
void head_teams_restarted(struct head_core *core, struct head_device *device);
void head_teams_gone(struct head_core *core, struct head_device *device);
/* Is one of them being opened or closed? */
bool head_teams_change(const struct head_core *core);
/* Into a checkpoint, while none is, and out of one: what is read is checked. */
void head_teams_save(const struct head_core *core, struct head_bytes *out);
void head_teams_load(struct head_core *core, struct head_reader *in);
/* Stops if something is wrong. For tests. */
void head_teams_check(const struct head_core *core);
void head_teams_destroy(struct head_core *core);

#endif
