/*
 * The head's decisions: a state machine. Frames and events come in, bodies of frames go out through
 * head_ops; there is no clock, socket, thread or random source inside. head/main.c gives it gRPC;
 * tests/sim a loopback and a seeded clock.
 *
 * What it knows (head/README in docs/architecture.md has the tour):
 *   client   a session: refs by id, tasks by id, what to tell it
 *   ref      a client's name for an array, or for a part of one
 *   array    a fragment map: disjoint boxes that cover the array, each pointing to a tile
 *   tile     immutable content of a box, made by one task; where its bytes are: instances (buffer, box)
 *   buffer   one allocation on one device (device, slot, generation): the unit of memory and of hazards
 *   task     one launch on one device: what a client submitted, or a copy or fold that the head itself put in
 *
 * Frames in and out carry no Header here: numbering, repeats and resumption are the caller's (wire_link).
 *
 * Threads: one.
 */
#ifndef HEAD_CORE_H
#define HEAD_CORE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"
#include "wire/wire.h"

struct head_core;

/* What the store of a host does for spilling (docs/memory.md). */
enum head_spill_kind {
    /*
     * make `bytes` of host memory; answers with its number when all workers have registered more
     * than `offset` bytes of it
     */
    HEAD_SPILL_SLAB = 1,
    /* write `bytes` of host_buffer, from offset on, to file `file`, with a checksum */
    HEAD_SPILL_WRITE  = 2,
    HEAD_SPILL_READ   = 3, /* and read them back, checked */
    HEAD_SPILL_FORGET = 4, /* file `file` is not needed any more */
    /* `bytes` of host_buffer from offset to offset `file`; the two may overlap */
    HEAD_SPILL_MOVE = 5
};
struct head_spill_op {
    uint64_t id; /* 1, 2, 3 .. for each host */
    enum head_spill_kind kind;
    uint64_t host_buffer;
    uint64_t offset;
    uint64_t bytes;
    uint64_t file;
};

struct head_ops {
    /*
     * Body of a HeadFrame / WorkerCommand: every field but the header, encoded. Prepending an
     * encoded Header gives the frame.
     */
    void (*client_frame)(void *user, uint64_t session, const uint8_t *body, size_t length);
    void (*worker_command)(void *user, uint32_t device, const uint8_t *body, size_t length);
    /* Kill and restart the worker of this device. */
    void (*fence)(void *user, uint32_t device);
    /* The session has ended on our side: drop it once what was sent is out. */
    void (*session_ended)(void *user, uint64_t session);
    uint64_t (*random64)(void *user); /* ids */
    /* How many bytes of frames to this session it has not acknowledged. NULL: none. */
    uint64_t (*client_owed)(void *user, uint64_t session);
    /*
     * Ask the store of this host. It does what it is asked one after the other; see
     * head_core_spill_done(). NULL: nothing is spilled.
     */
    void (*spill)(void *user, const char *host, const struct head_spill_op *op);
};

enum head_transfer {
    HEAD_TRANSFER_AUTO,
    HEAD_TRANSFER_PEER,
    HEAD_TRANSFER_HOST,
    HEAD_TRANSFER_NCCL
};

/* What all sessions of a namespace together may have; 0: as much as there is. */
struct head_quota {
    uint64_t bytes;         /* of values */
    uint64_t tasks;         /* in flight */
    uint64_t message_bytes; /* that a put, a read or a definition carries */
    uint64_t sessions;
};
struct head_times;
struct head_config {
    const struct head_ops *ops;
    void *user;
    struct head_times *times; /* lent; NULL: nothing is timed */
    const char *policy;       /* "auto", "locality", "round-robin", "pinned" */
    enum head_transfer transfer;
    uint64_t epoch;
    uint32_t window;   /* launches outstanding at a worker; 0: 8192 */
    uint32_t retries;  /* default of a task after system failures; UINT32_MAX: 2 */
    uint64_t credit;   /* ops a client may have in flight; 0: 1 << 20 */
    uint64_t lease_ms; /* a lost client's refs go after this; 0: 10000 */
    /*
     * copies of a quarter of it go through chains of devices, part by part (move_launch.c); 0: 256
     * MiB; at least 4
     */
    uint64_t chain_bytes;
    /* collectives reduce so much of a member in one step (collective_ways.c); 0: 256 KiB */
    uint64_t one_shot_bytes;
    /*
     * a launch names so many others to wait for, and waits for gates beyond (task.c); 0: 32768, the
     * most
     */
    uint32_t gate_points;
    /* and read so much of one where it lies, on another device; 0: 1 GiB */
    uint64_t direct_bytes;
    /*
     * members of so much are reduced by NCCL where that is allowed and faster (collective_ways.c);
     * 0: 128 MiB
     */
    uint64_t team_bytes;
    /* of a device, in pairs and teams together, of which one may have more (comm.h); 0: 4 GiB */
    uint64_t nccl_bytes;
    /* what records of calls may have (lineage.h); 0: none are kept, and what is lost stays lost */
    uint64_t lineage_bytes;
    /*
     * with lineage: a version is kept each time so much was overwritten in place (shadow.c); 0:
     * none
     */
    uint64_t shadow_bytes;
    /* a transfer between hosts that cannot reach each other fails after this (reach.c); 0: 60000 */
    uint64_t reach_wait_ms;
};

plasmon_status_t head_core_create(const struct head_config *config,
                                  struct head_core **out_core) PL_MUST_CHECK;
void head_core_destroy(struct head_core *core);

/* ------------------------------------------------------------------------------ clients */

/* A new session; the Welcome for it is lent until the next call. */
plasmon_status_t head_core_client_open(struct head_core *core,
                                       const Plasmon__V1__Hello *hello,
                                       uint64_t *out_session,
                                       struct pl_err *err) PL_MUST_CHECK;
/* Fills a Welcome's epoch, session, client, devices .. from the arena. */
plasmon_status_t head_core_client_welcome(struct head_core *core, uint64_t session,
                                          struct wire_arena *arena,
                                          Plasmon__V1__Welcome *out) PL_MUST_CHECK;
bool head_core_client_known(const struct head_core *core, uint64_t session);
/*
 * Which namespaces there are. Cleared: any may be named, without quotas. From the first one that is
 * added on: only these, and "default". What is in use stays, and counts against the quotas that are
 * set now.
 */
void head_core_namespaces_clear(struct head_core *core);
void head_core_namespace_set(struct head_core *core, const char *name,
                             const struct head_quota *quota);
/* Which namespace it is in; NULL: not known. */
const char *head_core_client_namespace(const struct head_core *core, uint64_t session);
/* A frame of so many bytes came. EQUOTA */
plasmon_status_t head_core_client_message(struct head_core *core, uint64_t session,
                                          size_t bytes, struct pl_err *err) PL_MUST_CHECK;
/*
 * A frame that the link took over (in order, once). EMALFORMED, EAUTH ..: the session must be
 * closed with this text.
 */
plasmon_status_t head_core_client_frame(struct head_core *core, uint64_t session,
                                        const Plasmon__V1__ClientFrame *frame,
                                        struct pl_err *err) PL_MUST_CHECK;
void head_core_client_lost(struct head_core *core, uint64_t session,
                           uint64_t now_ms); /* connection broke: the lease runs */
void head_core_client_resumed(struct head_core *core, uint64_t session);
void head_core_client_close(struct head_core *core,
                            uint64_t session); /* its refs and waiting tasks go */
/* Ops that the client may have sent in all, for Header.credit. */
uint64_t head_core_client_credit(const struct head_core *core, uint64_t session);

/* -------------------------------------------------------------------------------- hosts */

/*
 * A store announces the devices of its host, which get their numbers now, in the host's own order,
 * whenever their workers come. Saying it again changes nothing. Stores that come before anybody was
 * told a number are ordered by node name. again: a store that was here before, with the memory that
 * it had: of its devices those that are gone stay gone. ELIMIT.
 */
plasmon_status_t head_core_node_up(struct head_core *core, const char *host,
                                   const char *node, uint32_t devices, bool again,
                                   struct pl_err *err) PL_MUST_CHECK;
/*
 * It will not come back. Its devices are gone, with what lay only there and what was to run there;
 * the text says why.
 */
void head_core_node_gone(struct head_core *core, const char *host, const char *text);
/*
 * Move what lies only on this node (its name, or its host) to others, until deadline_ms are over,
 * and place nothing there any more. Again: another deadline. ENOENT: there is no such node. The
 * report is of the last look, a fraction of a second ago.
 */
enum head_drain_why {
    HEAD_DRAIN_LATER,   /* it is on its way, or its turn has not come */
    HEAD_DRAIN_WRITTEN, /* a task that was placed there, or a put, has yet to write it */
    /* no device of a node that stays can take it, with all dropped and spilled there that may be */
    HEAD_DRAIN_NO_ROOM,
    HEAD_DRAIN_NO_ROUTE, /* nor can any be reached */
    HEAD_DRAIN_REFUSED,  /* something else: head_drain_report.why */
    HEAD_DRAIN_DEADLINE, /* there was no time left to begin */
};
/* What one ref or name shows of what is left. */
struct head_drain_left {
    /* published; "": a client's ref. Lent until the next call, or input */
    const char *name;
    uint64_t client;
    const char *label; /* of the client; lent as the name is */
    uint64_t ref;
    uint64_t bytes;
    enum head_drain_why why; /* of the part that is furthest from leaving */
};
enum { HEAD_DRAIN_LEFT_MAX = 16 };
struct head_drain_report {
    bool done;             /* nothing is lost when it leaves */
    bool over;             /* nothing more will be moved */
    uint64_t objects_safe; /* parts of values that are elsewhere, too */
    uint64_t bytes_safe;
    uint64_t objects_left; /* that are not yet */
    uint64_t bytes_left;
    uint64_t objects_moving; /* of these */
    uint64_t tasks_left;     /* unfinished launches there */
    uint64_t bytes_no_room;  /* of bytes_left: no node can take them */
    char why[256];           /* what stands in the way; "": nothing is known to */
};
plasmon_status_t head_core_drain(struct head_core *core, const char *node,
                                 uint64_t deadline_ms, struct pl_err *err) PL_MUST_CHECK;
plasmon_status_t head_core_drain_undo(struct head_core *core, const char *node,
                                      struct pl_err *err) PL_MUST_CHECK;
plasmon_status_t head_core_drain_report(struct head_core *core, const char *node,
                                        struct head_drain_report *out,
                                        struct pl_err *err) PL_MUST_CHECK;
/*
 * Whose values are left: the refs and names that show the most of it, at most HEAD_DRAIN_LEFT_MAX.
 * Returns how many there are in all; 0 for a node that is not drained. To find them all refs are
 * looked at, so the answer may be as old as a look of the drain, and older where there are very
 * many.
 */
uint32_t head_core_drain_left(struct head_core *core, const char *node,
                              struct head_drain_left out[HEAD_DRAIN_LEFT_MAX]);
/*
 * What the store offers for spilling. Said again when it is back after a broken connection: then
 * what it has not answered is asked again, under the same ids; but for another store (`life`),
 * which begins with 1 again.
 */
struct head_spill_config {
    uint64_t memory_bytes; /* host memory; 0: nothing is spilled */
    uint64_t file_bytes;   /* in files; 0: none */
    /* another one: another store took over; it has no files of the last .. */
    uint64_t life;
    uint64_t slab; /* .. and its memory only if that has this number; 0: there is none */
    /* percent of a device's memory above which it is written back; 0: never */
    uint32_t write_back;
    /* what was spilled comes back when whoever reads it has its turn, not before */
    bool on_demand;
};
void head_core_spill_up(struct head_core *core, const char *host,
                        const struct head_spill_config *config);
/* What was spilled so far, on all hosts, and what is in host memory and files now. */
struct head_spill_counts {
    uint64_t memory_bytes; /* given for it */
    uint64_t memory_used;
    uint64_t file_bytes; /* given */
    uint64_t file_used;
    uint64_t spills, spill_bytes;
    uint64_t restores, restore_bytes;
    uint64_t write_backs, write_back_bytes, write_back_cancels;
    uint64_t undone; /* spills that found no place; since this head began */
    /* copies beside the launches, for one that found no memory; likewise, .. */
    uint64_t relieved;
    uint64_t relieved_spills, relieved_in_vain; /* .. (spill.h) */
    uint64_t stranded;                          /* restores that failed for it; likewise */
    uint64_t writes, write_bytes;
    uint64_t reads, read_bytes;
};
void head_core_spill_count(const struct head_core *core, struct head_spill_counts *out);
/* The store did it, or could not. An id that is not waited for changes nothing. */
struct head_spill_answer {
    plasmon_status_t status;
    uint64_t host_buffer; /* SLAB: the number of the memory .. */
    uint64_t bytes;   /* .. and how much of it, from its beginning, can be used; 0: all */
    const char *text; /* not OK: why */
};
void head_core_spill_done(struct head_core *core, const char *host, uint64_t id,
                          const struct head_spill_answer *answer);
bool head_core_any_joined(struct head_core *core);
/*
 * Have all announced devices come, but for those that never will? Where some have, one whose
 * workers fail to start is not waited for.
 */
bool head_core_all_joined(struct head_core *core);

/* ------------------------------------------------------------------------------ workers */

/*
 * A worker says hello (first time, after a reconnect, or as a restarted incarnation). What must be
 * sent again follows through worker_command at the next flush. *out_device is its index.
 */
plasmon_status_t head_core_worker_up(struct head_core *core,
                                     const Plasmon__V1__WorkerHello *hello,
                                     uint32_t *out_device,
                                     struct pl_err *err) PL_MUST_CHECK;
plasmon_status_t head_core_worker_frame(struct head_core *core, uint32_t device,
                                        const Plasmon__V1__WorkerFrame *frame,
                                        struct pl_err *err) PL_MUST_CHECK;
void head_core_worker_lost(struct head_core *core,
                           uint32_t device); /* connection broke; it may come back */
/*
 * The store says: dead and fenced. final: no replacement will come. status: what it had said was
 * wrong with its device, or OK.
 */
void head_core_worker_down(struct head_core *core, const char *host, uint32_t host_device,
                           bool final, plasmon_status_t status, const char *text);
uint32_t head_core_device_count(const struct head_core *core); /* announced ones too */

/* ------------------------------------------------------------------------- time, output */

void head_core_tick(struct head_core *core, uint64_t now_ms);
/*
 * Another process goes on after a time in which no worker could come: devices that are waited for
 * get the whole time again.
 */
void head_core_restarted(struct head_core *core, uint64_t now_ms);
/* Does somebody record a timeline? Then the time (CLOCK_REALTIME) is wanted before each client's frame. */
bool head_core_tracing(const struct head_core *core);
void head_core_time(struct head_core *core, uint64_t realtime_ns);
/* Send everything that was batched up. Call when the input ran dry. */
void head_core_flush(struct head_core *core);
/*
 * Who waits for what; texts are lent until the next call of the core. Peers and silent devices are
 * the process's.
 */
plasmon_status_t head_core_waits(struct head_core *core, struct wire_arena *arena,
                                 Plasmon__V1__Waits *out) PL_MUST_CHECK;
/* The id and label of a client; unknown: 0 and "". The label is lent until the next call of the core. */
void head_core_client_name(struct head_core *core, uint64_t session, uint64_t *out_id,
                           char **out_label);
/* Besides head_core_status(): what moved between which devices. */
plasmon_status_t head_core_status_pairs(struct head_core *core, struct wire_arena *arena,
                                        Plasmon__V1__StatusReply *out);
/*
 * And who holds the memory: a look at every ref and name, some at a time (memory_report.c). ENOMEM.
 * To be thrown away when the core is made anew from its checkpoint.
 */
struct head_holders;
/*
 * label: only of those with this in their name, their client's label, or that of what they show;
 * "": of all.
 */
plasmon_status_t head_holders_create(const char *label,
                                     struct head_holders **out_holders) PL_MUST_CHECK;
void head_holders_destroy(struct head_holders *holders);
/* At about `looks` things. false: it has looked at everything. */
bool head_core_holders_look(const struct head_core *core, struct head_holders *holders,
                            uint32_t looks);
/*
 * What was found; and, after head_core_status(), what is pinned of its devices now. Texts are lent
 * by `holders`.
 */
plasmon_status_t head_core_holders_tell(struct head_core *core,
                                        const struct head_holders *holders,
                                        struct wire_arena *arena,
                                        Plasmon__V1__StatusReply *out) PL_MUST_CHECK;
/* Besides head_core_status(): use and quotas of one namespace, or (NULL) of all. */
plasmon_status_t head_core_status_namespaces(struct head_core *core, const char *only,
                                             struct wire_arena *arena,
                                             Plasmon__V1__StatusReply *out);
/* For StatusReply; strings and arrays live in the arena. */
plasmon_status_t head_core_status(struct head_core *core, struct wire_arena *arena,
                                  Plasmon__V1__StatusReply *out) PL_MUST_CHECK;

/*
 * A page of what `plasmon tasks` and `objects` list, of one namespace or (NULL) all. Bounded work,
 * however much there is. Strings and arrays live in the arena, or are lent until the next call of
 * the core. ENOMEM.
 */
plasmon_status_t head_core_list_tasks(struct head_core *core,
                                      const Plasmon__V1__ListRequest *request,
                                      const char *only, struct wire_arena *arena,
                                      Plasmon__V1__ListReply *out) PL_MUST_CHECK;
plasmon_status_t head_core_list_objects(struct head_core *core,
                                        const Plasmon__V1__ListRequest *request,
                                        const char *only, struct wire_arena *arena,
                                        Plasmon__V1__ListReply *out) PL_MUST_CHECK;

/* What the core knows of one. */
void head_core_list_node(struct head_core *core, const char *host,
                         Plasmon__V1__NodeRow *row);

/* ---------------------------------------------------------------------------- for tests */

struct head_lineage_counts {
    uint64_t rebuilt_tasks; /* run again */
    uint64_t never;         /* results that were lost for good */
    uint64_t shadows;       /* versions that were kept */
    uint64_t given_back;    /* .. that a launch was to write over which had not begun */
};
void head_core_lineage(const struct head_core *core, struct head_lineage_counts *out);

/*
 * Walks everything and aborts on a broken invariant (reference counts, disjoint fragments,
 * accounting, orders). Slow.
 */
void head_core_check(const struct head_core *core);
uint64_t head_core_order(const struct head_core *core); /* number of the last launch */
/* Nothing in flight anywhere. */
bool head_core_idle(const struct head_core *core);
/* More than `most` launches have been given numbers and are not done. */
bool head_core_under_way(struct head_core *core, uint64_t most);
/*
 * Does every value that was put, or is being put, and is to be in two places lie in two, so that no
 * device (apart: no host) that is lost takes any of them along? Walks the refs.
 */
bool head_core_twice(const struct head_core *core, bool apart);
struct head_core_counts {
    uint64_t clients, refs, arrays, fragments, tiles, instances, buffers, tasks;
};
void head_core_count(const struct head_core *core, struct head_core_counts *out);
/* Components of recorded graphs that were launched by themselves, since this process began. */
uint64_t head_core_components(const struct head_core *core);

#endif
