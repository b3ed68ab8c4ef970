/*
 * Inside of wait.c, put.c and read.c: an answer that is owed when tasks are done.
 *
 * It is set up with one count of its own: create, head_wait_for() each task, then
 * head_wait_ended(), which answers at once when there was nothing to wait for.
 */
#ifndef HEAD_WAIT_H
#define HEAD_WAIT_H

#include "head/core_int.h"

enum head_wait_kind { HEAD_WAIT_PUT_READY, HEAD_WAIT_LOCATED, HEAD_WAIT_DATA };

struct head_wait {
    enum head_wait_kind kind;
    uint64_t session;
    uint64_t request;         /* the client's number */
    uint32_t remaining;       /* tasks that have not ended, +1 while it is being set up */
    uint64_t total;           /* DATA: bytes of the whole value */
    struct pl_shape shape;    /* DATA; LOCATED: of a compact value, else no dtype */
    uint64_t buffer;          /* PUT_READY; LOCATED: the one that holds all of it, or 0 */
    struct pl_box frame;      /* LOCATED: of that one */
    uint64_t own_request;     /* DATA: key in core->requests */
    struct head_array *array; /* LOCATED, PUT_READY: held */
    struct pl_box box;
    uint64_t read_bytes; /* DATA: counted in its client's reads_bytes */
    bool bulk; /* LOCATED, PUT_READY: the client moves the bytes over the bulk channel */
    /* DATA: the bytes came; they are passed on when every task behind them has ended well */
    bool arrived;
    uint8_t *bytes;
    size_t bytes_length;
    plasmon_status_t bytes_status;
    char *bytes_text;
    bool moved;    /* LOCATED: a launch that it waited for is made again: look anew */
    uint8_t apart; /* so often because nothing got through (reach.h) */
    bool one;      /* LOCATED: in one buffer .. */
    bool compact;  /* .. which holds nothing else */
    struct head_failure *failure;
};

struct head_wait *head_wait_create(struct head_client *client, enum head_wait_kind kind,
                                   uint64_t request);
/* Without an answer. */
void head_wait_free(struct head_core *core, struct head_wait *wait);
/* indifferent: the task's failure is not the answer's. */
void head_wait_for(struct head_wait *wait, struct head_task *task, bool indifferent);
/*
 * What a client will pin: wait for those who write what it asked for, and for everybody else who
 * writes elsewhere in the buffer, because they would have to wait for the pin (no new ones come:
 * head_buffer_mapped).
 */
void head_wait_to_map(struct head_wait *wait, struct head_buffer *buffer,
                      const struct pl_box *box);
/* The bytes of a READ whose launch was lost, for the same answer. */
bool head_read_again(struct head_core *core, struct head_record *record,
                     struct head_array *array, struct head_wait *wait,
                     struct head_failure **out_failure);
/* LOCATED, when all that was awaited is over: true: it is still so. false: it waits again. */
bool head_locate_holds(struct head_core *core, struct head_wait *wait);
/* An answer at once. bulk: with a ticket for the buffer, if there is one. */
void head_wait_put_ready(struct head_core *core, struct head_client *client,
                         uint64_t request, uint64_t buffer, bool bulk,
                         plasmon_status_t status, const char *text);

#endif
