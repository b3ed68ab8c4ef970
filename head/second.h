/*
 * Second copies: what was put with plasmon_put_options.replica is kept in two places.
 * docs/lineage.md has the rule, second.c how it is kept.
 */
#ifndef HEAD_SECOND_H
#define HEAD_SECOND_H

#include "head/object.h"
#include "wire/wire.h"

/*
 * What may be lost without the value. Only copies count that stay: no replicas, nothing on a device
 * that is gone or a host that is drained.
 */
enum head_safety {
    HEAD_SAFE_NOT,   /* no copy of some of it stays */
    HEAD_SAFE_ONE,   /* a device takes some of it along */
    HEAD_SAFE_NEAR,  /* any device of its host, but not the host */
    HEAD_SAFE_APART, /* any host */
    HEAD_SAFE_COUNT,
};

enum head_second_state {
    HEAD_SECOND_DUE,    /* to be looked at: a copy went, or a place came */
    HEAD_SECOND_MOVING, /* a copy is on its way */
    /* there is no place for one, or none on another host: looked at again when its turn comes */
    HEAD_SECOND_WANTING,
    HEAD_SECOND_REST, /* as safe as the cluster's hosts allow */
    HEAD_SECOND_STATES,
};

/* That a tile is to have one. Owned by the tile, and gone with its bytes. */
struct head_second {
    struct head_tile *tile;
    enum head_second_state state;
    enum head_safety safety; /* when it was looked at last, with what was on its way */
    uint64_t bytes;
    uint32_t tries;    /* copies that were begun since all of it was there .. */
    uint64_t tried_ms; /* .. the last one, then */
    bool warned;
    struct pl_list link; /* head_seconds.lists */
};

struct head_seconds {
    struct pl_list lists[HEAD_SECOND_STATES];
    uint64_t counts[HEAD_SECOND_STATES];
    uint64_t moving_bytes;
    uint64_t safe_count[HEAD_SAFE_COUNT]; /* by what was seen last */
    uint64_t made;                        /* copies that were begun after the put */
    uint64_t wanting_ms; /* some of those that want a place were looked at then */
    uint32_t looks;      /* at full devices, in vain, left in this second */
    uint32_t full_next;  /* the device that is the next one of these */
};

void head_seconds_init(struct head_core *core);
/*
 * The array is about to be put, its first copy has a place, and a second one is asked for. Is there
 * a place for that, or will there be when a device that was announced has come? Otherwise EDEVMEM,
 * with what helps.
 */
plasmon_status_t head_second_admit(struct head_core *core, struct head_array *array,
                                   struct pl_err *err) PL_MUST_CHECK;
/* All of it has been put: a second copy is begun, and there will be one for as long as a client shows it. */
void head_second_want(struct head_core *core, struct head_array *array);
/*
 * As of a checkpoint: it is looked at before anything else is done with it. warned: that it has one
 * copy has been said.
 */
void head_second_add(struct head_core *core, struct head_tile *tile, uint64_t bytes,
                     bool warned);
/* A copy of it went. */
void head_second_look(struct head_core *core, struct head_tile *tile);
/* Nobody writes in the buffer any more: what is in it is there, if it was on its way. */
void head_seconds_arrived(struct head_core *core, const struct head_buffer *buffer);
/* Its bytes go. */
void head_second_end(struct head_core *core, struct head_tile *tile);
/* A place came, or is about to go: a device, memory of a host, a drain. */
void head_seconds_look(struct head_core *core);
/*
 * Would it be less safe without what this buffer has of the box? What is on its way to other places
 * is no copy then.
 */
bool head_second_needs(const struct head_tile *tile, const struct head_buffer *buffer,
                       const struct pl_box *box);
/* How safe is it now, without what is on its way? */
enum head_safety head_second_safety(const struct head_tile *tile, const struct pl_box *box);
/* As a SecondCopy, for people. */
uint32_t head_second_shown(const struct head_tile *tile, const struct pl_box *box);
void head_seconds_status(const struct head_core *core, Plasmon__V1__Lineage *out);
/* Before launches are sent: copies are begun for those that lack one. */
void head_seconds_make(struct head_core *core);
void head_seconds_tick(struct head_core *core);
/* Is nothing to be looked at or on its way? */
bool head_seconds_settled(const struct head_core *core);
void head_seconds_check(const struct head_core *core);

#endif
