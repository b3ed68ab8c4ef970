/*
 * Checkpoints: the state of the core at a moment when nothing is under way, as bytes.
 *
 * WHEN. What is under way is not in a checkpoint - tasks, waits, puts, drains, timelines - so none
 * is made while there is any (head_core_unquiet says what). What is left is what exists: devices
 * with their numbers, arrays with their tiles and buffers, what lies in memory of the hosts, names,
 * sessions, functions, recorded graphs, pairs, lineage, rates.
 *
 * WHO GOES ON. Maps and lists come back in another order than they were in, and the order of what
 * is put out may depend on it. So the head that wrote a checkpoint goes on from it, too: it loads
 * what it saved. Then it is the same as any head that is made from the bytes later.
 *
 * Loading takes bytes that may be anything: every count, index, box and number is checked, and
 * nothing that is too large is allocated.
 */
#ifndef HEAD_CHECKPOINT_H
#define HEAD_CHECKPOINT_H

#include "head/bytes.h"

struct head_reader {
    const uint8_t *at;
    const uint8_t *end;
    /* it ended too early, or had a number that cannot be; all that is read from then on is 0 */
    bool bad;
};

/* ---- checkpoint_bytes.c */
void head_save_text(struct head_bytes *out, const char *text);
void head_save_bytes(struct head_bytes *out, const void *data, size_t length);
void head_save_box(struct head_bytes *out, const struct pl_box *box);
void head_save_shape(struct head_bytes *out, const struct pl_shape *shape);
void head_save_view(struct head_bytes *out, const struct pl_view *view);
uint64_t head_load_number(struct head_reader *in);
/* At most `most`, or it is bad. */
uint64_t head_load_below(struct head_reader *in, uint64_t most);
/* How many things of at least a byte each follow: never more than there are bytes. */
size_t head_load_count(struct head_reader *in);
bool head_load_flag(struct head_reader *in);
char *head_load_text(struct head_reader *in); /* the caller's, never NULL */
/* Lent; NULL and 0 when it is bad. */
const uint8_t *head_load_bytes(struct head_reader *in, size_t *out_length);
void head_load_box(struct head_reader *in, struct pl_box *out);
void head_load_shape(struct head_reader *in, struct pl_shape *out);
void head_load_view(struct head_reader *in, struct pl_view *out);

/* ---- checkpoint_quiet.c */
/* Why no checkpoint can be made now; NULL: one can. */
const char *head_core_unquiet(struct head_core *core);
/* Can all that is under way come to its end as things are? Not while a device that has some of it is away. */
bool head_core_may_end(struct head_core *core);

/* ---- checkpoint_save.c */
enum {
    /*
     * before the last one, if any tile has a label: a checkpoint of before there were labels is one
     * without
     */
    HEAD_SECTION_LABELS = 0x4c,
    HEAD_SECTION_END    = 0x5a /* the last number of all */
};
void head_core_save(struct head_core *core, struct head_bytes *out);

/* ---- checkpoint_load.c */
/* Into a core that was just created. EMALFORMED: then it is only good for head_core_destroy(). */
plasmon_status_t head_core_load(struct head_core *core, struct head_reader *in,
                                struct pl_err *err) PL_MUST_CHECK;

/* ---- memory.c */
/*
 * Figures for people, which depend on the allocator and so are in no checkpoint: those of the core
 * that it was made from.
 */
void head_core_figures_take(struct head_core *core, const struct head_core *before);

#endif
