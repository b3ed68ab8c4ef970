/*
 * Namespaces: who shares names, and how much all of them together may use.
 *
 * A session is in one namespace. A published name is found in its own only, and so is everything
 * else by way of it: a ref names nothing in another session, so what is in one namespace never gets
 * into another one.
 *
 * What is counted, in space.c and where it says so:
 *
 *   bytes     of values that refs and names show, wherever they lie (device, host memory, file).
 *             Content that several versions show counts once. Replicas, scratch and what is on its
 *             way do not count: they go when room is wanted.
 *   tasks     submitted and not resolved
 *   sessions
 *
 * A quota refuses what would go over it, with EQUOTA; what is there is left alone.
 */
#ifndef HEAD_SPACE_H
#define HEAD_SPACE_H

#include "base/list.h"
#include "base/str.h"
#include "head/core.h"

struct head_array;
struct head_run;
struct head_tile;

struct head_space {
    uint32_t refs; /* sessions, arrays, and one of a space that is configured */
    bool configured;
    char *name;
    struct head_quota quota;
    uint64_t bytes;
    uint64_t tasks;
    uint64_t sessions;
    uint64_t refused;     /* times that a quota said no */
    struct pl_list link;  /* core->spaces */
    struct pl_list tiles; /* head_tile.space_link: what it is charged for */
};

void head_spaces_finish(struct head_core *core);
/* Held for the caller. "" is "default". ENOENT: there is a configuration, and it is not in there. */
plasmon_status_t head_space_open(struct head_core *core, const char *name,
                                 struct head_space **out_space,
                                 struct pl_err *err) PL_MUST_CHECK;
/* The same without asking whether it may be: of a checkpoint. */
struct head_space *head_space_take(struct head_core *core, const char *name);
struct head_space *head_space_hold(struct head_space *space);
void head_space_release(struct head_space *space);

/* May it have this much more? EQUOTA: the text names the quota, what is in use and what to do. */
plasmon_status_t head_space_admit_session(struct head_space *space, struct pl_err *err);
plasmon_status_t head_space_admit_task(struct head_space *space, struct pl_err *err);
plasmon_status_t head_space_admit_bytes(struct head_space *space, uint64_t bytes,
                                        struct pl_err *err);
plasmon_status_t head_space_admit_message(struct head_space *space, uint64_t bytes,
                                          const char *what, struct pl_err *err);
/* Of what a client's call writes. */
plasmon_status_t head_space_admit_run(const struct head_run *run, struct pl_err *err);

/* A fragment or a partial result of `array` shows `bytes` of the tile from now on, or no longer does. */
void head_space_show(struct head_array *array, struct head_tile *tile, uint64_t bytes);
void head_space_hide(struct head_array *array, struct head_tile *tile, uint64_t bytes);
/* Invariants of all spaces; aborts. */
void head_spaces_check(const struct head_core *core);

#endif
