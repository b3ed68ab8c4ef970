/* What collective_step.c, collective_reduce.c and collective_together.c share. */
#ifndef HEAD_COLLECTIVE_INT_H
#define HEAD_COLLECTIVE_INT_H

#include "head/collective.h"

/* ---- collective_step.c: one launch while it is put together; there is one at a time */

/*
 * What was kept apart for the step before may be spilled, but not results that are half made, nor
 * what was brought to a host for all of them.
 */
void collective_plan_begin(struct collective *c);
/* New memory, the caller's. NULL: c->failure. */
struct head_buffer *collective_fresh_buffer(struct collective *c,
                                            struct head_device *device,
                                            const struct pl_box *frame, uint32_t dtype);

void collective_step_begin(void);
/* It was started, or is given up: what was held for it is let go. */
void collective_step_end(struct collective *c);
/* Its number. */
uint32_t collective_step_operand(const struct head_operand *operand);
struct head_buffer *collective_step_operand_buffer(uint32_t operand);
/* As collective_fresh_buffer(), held until the step ends. */
struct head_buffer *collective_step_buffer(struct collective *c, struct head_device *device,
                                           const struct pl_box *frame, uint32_t dtype);
/* Pieces that bring `from` to box `to` of an operand, which is `dst`. false: c->failure. */
bool collective_step_pieces(struct collective *c, const struct collective_part *from,
                            const struct pl_box *to, struct head_buffer *dst,
                            uint32_t operand);
/* One that is read where it lies: box `from` of the source, as `to`. */
void collective_step_piece(struct head_buffer *source, const struct pl_box *from,
                           const struct pl_box *to);

/* What is done together with others: by which team, as which rank, under which number. */
struct collective_joint {
    const struct head_team *team; /* NULL: it is done alone */
    uint32_t rank;
    uint64_t order;
};
extern const struct collective_joint collective_alone;

/* copies: a COPY, of the pieces or by the function; else a RUN. */
struct head_task *collective_step_start_as(struct collective *c, struct head_device *device,
                                           bool copies, const char *function,
                                           const uint64_t *scalar,
                                           const struct collective_joint *joint);
/* .. alone. */
struct head_task *collective_step_start(struct collective *c, struct head_device *device,
                                        bool copies, const char *function,
                                        const uint64_t *scalar);
/* `box` of the array is from now on what the task makes in the buffer. */
void collective_makes(struct collective *c, struct head_task *task,
                      struct head_array *array, const struct pl_box *box,
                      struct head_buffer *buffer);

/* ---- collective_reduce.c */

struct collective_reduction {
    struct collective *c;
    struct head_device *device;
    uint32_t first;
    bool in_shot; /* members come as pieces of the fold */
    bool direct;  /* all are read where they lie */
    const struct collective_part *to;
    struct collective_part from[WIRE_COLLECTIVE_MAX];
    struct head_buffer *source[WIRE_COLLECTIVE_MAX]; /* direct: where that is */
    /* in which it lies here; NULL: elsewhere */
    struct head_buffer *local[WIRE_COLLECTIVE_MAX];
    struct pl_box slot[WIRE_COLLECTIVE_MAX]; /* of the landing, if not local */
    struct head_buffer *landing;             /* the reduction's; NULL: none is needed */
};

/* Member i's `part`. What of it lies in host memory only is brought here. false: c->failure. */
bool collective_reduction_find(struct collective_reduction *r, uint32_t i,
                               const struct pl_box *part);
/*
 * When all of them have been found, and nothing is brought any more: are all where the device can
 * read them?
 */
bool collective_reduction_reached(struct collective_reduction *r);
/* The members where they lie, in their order. */
struct head_task *collective_reduction_combine(struct collective_reduction *r,
                                               struct head_buffer *out,
                                               const struct collective_joint *joint);
/* The task makes it in there; of an average the sum. false: no memory for the rest; c->failure. */
bool collective_reduction_becomes(struct collective_reduction *r, struct head_task *task,
                                  struct head_buffer *accumulator);

#endif
