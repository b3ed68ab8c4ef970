/*
 * Lineage: how what exists was made, so that it can be made again when every copy of it is gone.
 *
 *   lineage.c   records: what they hold, when they go, how many bytes they may have
 *   loss.c      a loss: which bytes and which launches it took
 *   spared.c    .. and what launches that it took had not touched
 *   roots.c     what an unfinished call reads and nobody can make again
 *   rebuild.c   which records are run again for it, in which order, and what takes the results;
 *               rerun.c runs one
 *
 * A RECORD is a call without its launch: function, scalars, views, and for each argument that it
 * reads the tiles (versions) that it read. A tile points to the record that made it. A record keeps
 * the tiles that it read as DESCRIPTORS: identity, box, and their own records, but not their bytes.
 * So there are two counts in a tile: refs, which keep bytes, and kept, which keeps the descriptor.
 */
#ifndef HEAD_LINEAGE_H
#define HEAD_LINEAGE_H

#include "head/task.h"

struct head_again;
struct head_array;
struct head_function;
struct head_run;
struct head_wait;

enum {
    HEAD_RUNS_AGAIN_MAX = 16 /* of one record after its first run */
};

/* Why a tile has no record: in the order in which somebody is told. */
enum head_cut {
    HEAD_CUT_PUT,        /* no task made it: its bytes were its client's */
    HEAD_CUT_OFF,        /* the head keeps no lineage (--lineage-bytes 0) */
    HEAD_CUT_OLD,        /* its record was dropped for newer ones */
    HEAD_CUT_GRAPH,      /* it was made inside of a recorded graph */
    HEAD_CUT_COLLECTIVE, /* several devices made it together */
};

struct head_record_input {
    struct head_tile *tile; /* kept */
    uint32_t box_at;        /* its numbers: starts, counts */
};
struct head_record_arg {
    /* what this call made of it; NULL: nothing, or nothing that anybody can reach */
    struct head_tile *output;
    uint32_t mode;
    uint32_t dtype;
    uint32_t reduce_op;
    uint32_t ndim;
    uint32_t view_at; /* its numbers: starts, counts, steps */
    uint32_t input_first;
    uint32_t input_count;
    bool dense;
};

/*
 * One block with everything that is said of the call. refs: tiles that it made, and launches of it
 * that are not finished.
 */
struct head_record {
    uint64_t serial; /* of its call: whatever it read has a lower one */
    uint32_t refs;
    uint32_t running; /* of these, launches */
    uint32_t runs;    /* after the first */
    uint8_t attempts; /* that killed a worker, in all runs */
    /* runs one after the other that could not get what they read (reach.h) */
    uint8_t apart;
    bool planned; /* rebuild.c: it is to be run again now */
    /* its oldest launch that is not finished: head_record_launch() */
    struct head_task *task;
    uint32_t kind;  /* LaunchKind: RUN, READ, GET_HOST */
    uint64_t bytes; /* of this block */
    /* who waits for its next run; NULL: nobody but those who need what it makes */
    struct head_again *again;
    struct pl_list link; /* lineage.idle: nothing of it runs */
    struct pl_list all_link;
    uint32_t function;
    struct head_function *defined; /* held */
    uint32_t place;
    uint32_t retries;
    uint32_t function_retries; /* left: so often again when the function itself fails */
    uint32_t time_limit_ms;
    int32_t priority;
    uint64_t cost_bytes;  /* of its arguments */
    uint64_t read_offset; /* READ; GET_HOST: in host memory */
    uint64_t read_length; /* READ */
    uint64_t host_buffer; /* GET_HOST */
    uint32_t arg_count;
    uint32_t input_count;
    uint32_t scalar_count;
    uint32_t *launch_shape; /* NULL: none given */
    char *label;            /* NULL: none */
    uint64_t *scalars;
    struct head_record_arg *args;
    struct head_record_input *inputs;
    int64_t *numbers;
};

/* A tile that has lost bytes, and what becomes of it if it cannot be made again. */
struct head_loss {
    struct head_tile *tile; /* kept */
    struct head_failure *failure;
};

struct head_lineage {
    /* of all records, and of descriptors of tiles whose bytes nobody needs */
    uint64_t bytes;
    uint64_t records;     /* how many */
    uint64_t descriptors; /* tiles that only records keep */
    uint64_t dropped;     /* records, for the bound */
    uint64_t serial_last;
    struct pl_list all;  /* head_record.all_link */
    struct pl_list idle; /* head_record.link, longest idle first */
    struct pl_vec dying; /* struct head_record *: nothing refers to them */
    bool several_hosts;  /* a device of a second one was announced, once */
    bool sweeping;
    bool rebuilding; /* nothing is dropped meanwhile */
    /* Of a loss that is being looked at; empty between any two inputs of the head. */
    struct pl_vec lost;       /* struct head_loss */
    struct pl_vec again;      /* struct head_record *, held */
    struct pl_vec waits;      /* struct head_wait *: to be ended when all is under way */
    struct head_root *roots;  /* owned: of launches that were lost (roots.c) */
    struct pl_list all_roots; /* head_root.link */
    struct pl_vec spared;     /* spared.c .. */
    struct pl_map spared_of;  /* .. tile -> the last of it there, + 1 */
    uint64_t losses;          /* the number of this one */
    /* For `plasmon status`. */
    uint64_t rebuilt_tasks;
    uint64_t rebuilt_bytes;
    uint64_t rebuilt_never; /* tiles that were lost for good */
    uint64_t shadows;       /* versions that were kept (shadow.c) */
    uint64_t given_back;    /* versions that a launch had not touched (spared.c) */
};

/* ---- lineage.c */
/* Are calls recorded? With several hosts those that are under way are, whatever --lineage-bytes is. */
bool head_lineage_on(const struct head_core *core);
void head_lineage_init(struct head_core *core);
void head_lineage_finish(struct head_core *core);
/*
 * What is about to be started, before it changes anything: refs 1, the caller's. NULL: no lineage
 * is kept. Who reads for a client has a record without lineage, too: it makes nothing, so the
 * record goes with its launch, and what it reads may lie elsewhere.
 */
struct head_record *head_record_create(struct head_core *core, const struct head_run *run,
                                       uint32_t kind);
/* How much of each a record's block has room for. */
struct head_record_sizes {
    size_t args;
    size_t inputs;
    size_t numbers;
    size_t scalars;
    size_t label; /* with its NUL; 0: none */
    bool shaped;
};
/*
 * Refs 1, the caller's; zero but for where its parts lie. head_record_add() puts it to the others
 * when it is complete.
 */
struct head_record *head_record_block(const struct head_record_sizes *sizes);
void head_record_add(struct head_core *core, struct head_record *record);
void head_record_hold(struct head_record *record);
void head_record_release(struct head_core *core, struct head_record *record);
/* The launch is one of it, until it finishes. */
void head_record_started(struct head_record *record, struct head_task *task);
/* Its launch that is unfinished and well. NULL: there is none. */
struct head_task *head_record_launch(const struct head_record *record);
void head_record_finished(struct head_core *core, struct head_task *task);
/* The call has made this of its argument. record NULL: cut says why there is none. */
void head_record_made(struct head_record *record, size_t arg, struct head_tile *tile);
struct pl_view head_record_view(const struct head_record *record,
                                const struct head_record_arg *arg);
struct pl_box head_record_box(const struct head_record *record,
                              const struct head_record_arg *arg,
                              const struct head_record_input *input);
void head_tile_keep(struct head_core *core, struct head_tile *tile);
void head_tile_unkeep(struct head_core *core, struct head_tile *tile);
/* Its bytes went with the last reference: true: the descriptor stays. false: the caller frees it. */
bool head_lineage_tile_left(struct head_core *core, struct head_tile *tile);
/* A descriptor is to have bytes again: its first reference. */
void head_lineage_tile_back(struct head_core *core, struct head_tile *tile);
void head_lineage_bound(struct head_core *core); /* drops what is too much */
/* For StatusReply; NULL: the arena is full. */
Plasmon__V1__Lineage *head_lineage_status(const struct head_core *core,
                                          struct wire_arena *arena);
void head_lineage_check(const struct head_core *core);

/* ---- loss.c */
/*
 * The launch will not do what it was to do, because of a loss and not by its own fault. true: its
 * call will be run again; whoever waits for it goes on waiting. false: that cannot be; fail it.
 */
bool head_loss_task(struct head_core *core, struct head_task *task,
                    struct head_failure *failure);
/*
 * .. and its client is told that it failed: so has what its call makes, also what nobody lacked
 * when this launch was made, which makes it nowhere therefore (rebuild.c). Somebody may come to
 * lack it, and is not to find it made after all.
 */
void head_loss_final(struct head_core *core, struct head_task *task,
                     struct head_failure *failure);
/*
 * Its worker could not do it, for a device that it reads from is gone. Workers of a host may know
 * that before we do. true: it stays unfinished until we hear of it, for where it would be run again
 * depends on that.
 */
bool head_loss_strand(struct head_task *task);
/*
 * The device is gone: launches of others that read its memory may find it or not. Their calls are
 * run again.
 */
void head_loss_readers(struct head_core *core, struct head_device *device,
                       struct head_failure *failure);
/* A launch that had to run to its end before its call could be run again, has. */
void head_loss_task_over(struct head_core *core, struct head_task *task);
/*
 * Some bytes of the tile are gone: a failure that is a loss is what its readers are told if nothing
 * helps (it is held). One that is none, or without lineage: the tile has failed.
 */
void head_tile_lose(struct head_core *core, struct head_tile *tile,
                    struct head_failure *failure);
/* ---- roots.c */
struct head_root {
    struct head_root *next;   /* of the same call */
    struct head_array *array; /* owned; NULL: bytes of it were lost */
    struct pl_list link;      /* head_lineage.all_roots */
};
/* Before what it writes is committed. */
void head_roots_hold(struct head_core *core, struct head_task *task,
                     const struct head_run *run);
/* It has finished. What it held is lineage.roots until the loss has been looked at, if it was one. */
void head_roots_over(struct head_core *core, struct head_task *task);
void head_roots_release(struct head_core *core, struct head_root **io_roots);
/* Bytes may have been lost: holds that lack any are none any more. */
void head_roots_lost(struct head_core *core);

/* ---- spared.c */
void head_spared_init(struct head_core *core);
void head_spared_finish(struct head_core *core);
/*
 * The launch is given up, and its call run again. If it has not begun, what it was to write over is
 * kept in mind.
 */
void head_spared_note(struct head_core *core, struct head_task *task);
/* A launch that was given up has begun, or may begin: what it was to write may be anything. */
void head_spared_spoil(struct head_core *core, struct head_task *task);
/* Some of the tile is nowhere. true: some of that was where a launch that was given up did not touch it. */
bool head_spared_give_back(struct head_core *core, struct head_tile *tile);
void head_spared_clear(struct head_core *core); /* the loss has been looked at */

/* ---- rebuild.c */
/* All that was lost is known: run again what must be. At the end of every input that may lose something. */
void head_rebuild(struct head_core *core);

#endif
