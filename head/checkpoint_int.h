/*
 * Inside of checkpoints. What is named by several things has a number: from 1, in the order in
 * which it was met while saving. Loading makes things in that order and holds each once until the
 * end, when it is held by what names it and nothing else.
 *
 *   checkpoint_quiet.c    can one be made now?
 *   checkpoint_save.c     the core: sections, devices, sessions, arrays, tiles
 *   checkpoint_load.c     the same, read
 *   checkpoint_spill.c    hosts, and what lies in their memory and files
 *   checkpoint_lineage.c  records of calls
 *   checkpoint_graphs.c   recorded graphs and their plans
 *   checkpoint_labels.c   labels of tiles
 *   checkpoint_bytes.c    numbers, texts, boxes
 *
 *   checkpoint_functions.c  functions that clients define
 *
 * pair.c and rates.c save what nobody else sees.
 */
#ifndef HEAD_CHECKPOINT_INT_H
#define HEAD_CHECKPOINT_INT_H

#include "head/checkpoint.h"
#include "head/core_int.h"

struct head_numbering {
    struct pl_map numbers; /* address -> number */
    struct pl_vec items;   /* void * */
};

struct head_saving {
    struct head_core *core;
    struct head_bytes *out;
    struct head_numbering buffers, tiles, arrays, spaces, records;
};

struct head_loading {
    struct head_core *core;
    struct head_reader *in;
    struct pl_vec buffers; /* struct head_buffer *; each held once, for the load */
    struct pl_vec arrays;  /* struct head_array *; likewise */
    struct pl_vec tiles;   /* struct head_tile *; likewise */
    struct pl_vec spaces;  /* struct head_space *; likewise */
    struct pl_vec records; /* struct head_record *; likewise */
    /* struct wanted: fragments and partials, until the tiles are there */
    struct pl_vec wanted;
    struct pl_map loose; /* struct head_array *: of slots; they need not be covered */
    struct pl_vec owed; /* struct owed: refs, names and slots, until the arrays are there */
};

/* ---- checkpoint_save.c */
uint64_t head_numbering_of(struct head_numbering *numbering, void *item);
uint64_t head_list_count(const struct pl_list *list);
void head_save_failure(struct head_bytes *out, const struct head_failure *failure);

/* ---- checkpoint_load.c */
/* The item with a number; NULL: there is none, and the reader is bad. */
void *head_loading_item(struct head_loading *loading, const struct pl_vec *items,
                        uint64_t number);
void head_loading_add(struct pl_vec *items, void *item);
/*
 * A frame and a dtype: a buffer of the device, with a number of its own in the checkpoint. NULL:
 * they are none, and the reader is bad.
 */
struct head_buffer *head_loading_buffer(struct head_loading *loading,
                                        struct head_device *device, uint64_t id);
/* The place gets the array with this number, held, when the arrays are there; 0: none. */
void head_loading_owe_slot(struct head_loading *loading, struct head_array **slot,
                           uint64_t array);
struct head_failure *
head_load_failure(struct head_reader *in); /* the caller's; NULL: bad */

/* ---- checkpoint_functions.c: before the devices and sessions that name them, which come after */
void head_functions_save(const struct head_core *core, struct head_bytes *out);
void head_functions_save_told(const struct head_device *device, struct head_bytes *out);
void head_functions_save_client(const struct head_client *client, struct head_bytes *out);
void head_functions_load(struct head_core *core, struct head_reader *in);
void head_functions_load_told(struct head_core *core, struct head_device *device,
                              struct head_reader *in);
void head_functions_load_client(struct head_core *core, struct head_client *client,
                                struct head_reader *in);
bool head_functions_waited_for(const struct head_core *core); /* by anybody */
void head_functions_settle(struct head_core *core); /* all who may call them are there */

/* ---- checkpoint_spill.c */
void head_spill_save(struct head_saving *saving);
void head_spill_load(struct head_loading *loading);

/* ---- checkpoint_graphs.c */
void head_graphs_save(struct head_saving *saving, const struct head_client *client);
void head_graphs_load(struct head_loading *loading, struct head_client *client);

/* ---- checkpoint_labels.c */
void head_labels_save(struct head_saving *saving); /* all tiles have their numbers */
/* If they come next. The section that comes then. */
uint64_t head_labels_load(struct head_loading *loading);

/* ---- checkpoint_lineage.c */
void head_lineage_number(struct head_saving *saving); /* the tiles that records read */
void head_lineage_save(struct head_saving *saving);
void head_lineage_load(struct head_loading *loading); /* the tiles are there */
/* It was bad: records and tiles may hold each other in a circle. While all are held for the load. */
void head_lineage_untie(struct head_loading *loading);

#endif
