/*
 * Inside of making again what was lost: loss.c notes it, rebuild.c decides which calls that takes,
 * rerun.c runs one.
 */
#ifndef HEAD_REBUILD_INT_H
#define HEAD_REBUILD_INT_H

#include "head/wait.h"

/* Who waited for a launch that is to be made again. */
struct head_again {
    struct head_client *client; /* NULL: nobody is told */
    uint64_t id;
    struct head_group *group; /* as the old launch held it; NULL */
    /* what happened to the old launch itself; NULL: to what it read */
    struct head_failure *cause;
    struct pl_vec waits; /* struct head_wait *: that its bytes are for */
    uint64_t submit_ns;
};

/* A tile that is to have a result. */
struct head_rebuilt {
    struct head_tile *tile;     /* kept */
    struct head_tile *stand_in; /* owned; NULL: the tile itself */
};

/* A record that is run again. */
struct head_rerun {
    struct head_record *record; /* held */
    struct head_arg *args;
};

struct head_rebuild {
    struct head_core *core;
    struct pl_vec reruns; /* struct head_rerun */
    struct pl_vec open;   /* struct head_record *: whose inputs were not looked at */
    struct pl_vec tiles;  /* struct head_rebuilt * */
    uint64_t never;
};

/* ---- rebuild.c */
/* Is all of the box somewhere, where it does not fail with the value of something else? */
bool head_rebuild_covers(const struct head_tile *tile, const struct pl_box *box);

/* ---- rerun.c */
/* Arrays that show what the call read: from now on nothing of it is written in place. */
void head_rerun_hold(struct head_rebuild *rebuild, struct head_rerun *rerun);
/*
 * It becomes a launch, or fails; who waited for its last launch waits for this one or has been
 * told. It is used up.
 */
void head_rerun_start(struct head_rebuild *rebuild, struct head_rerun *rerun);

#endif
