/*
 * Collectives, inside: collective.c has members and results, collective_ways.c decides who does
 * what; collective_step.c (copies), collective_hosts.c (what comes to a host once),
 * collective_reduce.c and collective_together.c (by a team) start the launches.
 */
#ifndef HEAD_COLLECTIVE_H
#define HEAD_COLLECTIVE_H

#include "head/core_int.h"

enum {
    COLLECTIVE_SUM = 1,
    COLLECTIVE_MAX = 4,
    COLLECTIVE_AVG = 5
}; /* of enum plasmon_reduce */
enum {
    COLLECTIVE_AUTO    = 0,
    COLLECTIVE_DIRECT  = 1,
    COLLECTIVE_COPIES  = 2,
    COLLECTIVE_NCCL    = 3,
    COLLECTIVE_FASTEST = 4
}; /* of enum plasmon_collective_way */

/* A dense part of an array: what a member gives, an intermediate result, or what is to be written. */
struct collective_part {
    struct head_array *array;
    struct pl_box box;
};

/*
 * One result. What is made of it so far is in `made`, an array of its own: the target shows it when
 * all of the collective is started.
 */
struct collective_out {
    const struct head_arg *arg;
    struct head_device *device;
    struct collective_part made;
    struct head_buffer *buffer; /* held: in which it is made; NULL: nothing is yet */
};

struct collective {
    struct head_core *core;
    struct head_client *client;
    const Plasmon__V1__Task *task;
    struct head_group *group;
    uint32_t op;
    bool direct; /* members may be read where they lie, by the launch that reduces them */
    /* results may be made where what they replace is: no launch reads that any more */
    bool in_place;
    uint32_t count;              /* members: inputs */
    struct collective_part *ins; /* held arrays */
    uint32_t out_count;
    struct collective_out *outs;
    struct pl_vec landed;         /* struct head_buffer *, held (collective_hosts.c) */
    struct head_failure *failure; /* owned: why it cannot go on */
};

/* ---- collective_ways.c */
/* Start all launches that make the results. false: c->failure. */
bool collective_run(struct collective *c);
/* The device that has most of it; NULL: none has any. */
struct head_device *collective_home(struct head_core *core,
                                    const struct collective_part *part);

/* ---- collective_step.c */
static inline uint64_t collective_bytes(const struct collective_part *part)
{
    return (uint64_t)pl_box_elements(&part->box) * pl_dtype_bytes(part->array->shape.dtype);
}
/* As large, and begins at 0. */
static inline struct pl_box collective_at_zero(const struct pl_box *box)
{
    struct pl_box out = *box;

    for (uint32_t i = 0; i < out.ndim; i++) {
        out.start[i] = 0;
    }
    return out;
}
/* `part` is in coordinates that begin at 0; the same of a member. */
struct collective_part collective_part_of(const struct collective_part *whole,
                                          const struct pl_box *part);
/*
 * One launch on out's device that copies from[i] to boxes[i] of out, in the coordinates of
 * out->made.array; together they are `cover`. false: c->failure.
 */
bool collective_copy(struct collective *c, struct collective_out *out,
                     const struct pl_box *cover, const struct collective_part *from,
                     const struct pl_box *boxes, uint32_t count);
/*
 * The same where from[0], from[1], .. lie one behind the other in `cover` along the axis, by one
 * function that reads them where they are (`concatenate`); as above if it cannot.
 */
bool collective_join(struct collective *c, struct collective_out *out,
                     const struct pl_box *cover, const struct collective_part *from,
                     const struct pl_box *boxes, uint32_t count, uint32_t axis);
/* Part number `index` of as many equal ones along the slowest dimension. */
static inline struct pl_box collective_slab(const struct pl_box *box, uint32_t index,
                                            uint32_t parts)
{
    struct pl_box out = *box;

    out.count[0] /= parts;
    out.start[0] += out.count[0] * index;
    return out;
}

/* ---- collective_hosts.c */
/*
 * All results' devices are about to read all of the parts: what of them is on no device of a
 * result's host comes there, to one of these devices, and is found there until
 * collective_hosts_end(). false: c->failure.
 */
bool collective_hosts_begin(struct collective *c, const struct collective_part *parts,
                            uint32_t count);
void collective_hosts_end(struct collective *c);

/* ---- collective_reduce.c */
/*
 * `part` of all members, reduced in their order on the device, becomes to->box of to->array. first:
 * the member whose bytes are asked for first, so that not all devices ask the same one. false:
 * c->failure.
 */
bool collective_reduce(struct collective *c, struct head_device *device, uint32_t first,
                       const struct pl_box *part, const struct collective_part *to);

/* ---- collective_together.c */
/*
 * By a team of the results' devices: all of the members, reduced, becomes every result; or,
 * scattered, its part i result i. The same of members that are gathered. *out_done false: they
 * cannot be, and nothing was begun. false: c->failure.
 */
bool collective_reduce_together(struct collective *c, bool scattered, bool *out_done);
bool collective_gather_together(struct collective *c, bool *out_done);

#endif
