/*
 * Devices: their object tables' slots, the numbers of launches, what is on its way to their
 * workers, and how workers come and go.
 */
#ifndef HEAD_DEVICE_H
#define HEAD_DEVICE_H

#include <string.h>

#include "head/bytes.h"

struct head_core;
struct head_task;

/* What a worker said of a launch; texts of `row` are those behind it. */
struct head_launch_wait {
    Plasmon__V1__LaunchWait row;
    char function[64];
    char label[WIRE_LABEL_BYTES_MAX + 1];
    char text[512];
};

/*
 * What the workers of a device before the one that serves had moved and spent, by their last
 * reports (moved.c).
 */
enum { HEAD_PAST_ROUTES = 8 };
struct head_past {
    uint64_t copies[HEAD_PAST_ROUTES]; /* by RouteStats.route */
    uint64_t bytes[HEAD_PAST_ROUTES];
    uint64_t cpu_ns;
    uint64_t driver_ns;
    struct pl_vec pairs; /* Plasmon__V1__PairStats, one for each route, `from` and `to` */
};

/* An order to copy a buffer to host memory beside the launches (relief.c), not answered yet. */
struct head_relief {
    uint64_t request;           /* 0: there is none */
    uint64_t seq;               /* the launch that is in need */
    uint64_t order;             /* what came before has a number up to this one */
    uint64_t host_buffer;       /* the slab's number at the worker */
    struct head_buffer *buffer; /* held; NULL: the worker was only asked */
    struct head_buffer *copy;   /* held, and it has a place */
    uint64_t launch;            /* the spill that this stands for; 0: for none */
};

struct head_device {
    uint32_t index;
    /* its worker has said hello; before that it is only a number that its store announced */
    bool joined;
    bool connected;
    bool gone; /* will not come back */
    /* 0, or no worker has come yet, and is waited for until then (expect.c) */
    uint64_t expected_ms;
    bool announced; /* of one that is expected: its store has come */
    /* its oldest launch, when that runs for nobody (orphan.c); 0: it does not .. */
    uint64_t orphan_seq;
    uint64_t orphan_since_ms; /* .. and since when it is the oldest */
    uint64_t down_ms;         /* not connected: since then, in this process */
    uint64_t down_ns;         /* the same, of head_times; 0: it is not timed */
    bool draining;            /* nothing new is placed there (drain.c) */
    bool peer_capable;
    uint32_t comm_version; /* of what makes its pairs (pair.h); 0: nothing does .. */
    char *comm_missing;    /* .. because of this */
    bool comm_plain;       /* with other hosts, too: no encryption was asked for */
    /* communicators of teams (team.h) that it ever was to open, and of pairs that are forgotten */
    uint64_t teams_opened;
    uint32_t kind;
    uint32_t ordinal;
    uint32_t host_device;
    uint32_t incarnation;
    uint32_t restarts;
    char *host;
    char *node;
    char *name;
    char *bulk_address; /* "": takes no objects of other hosts */
    uint8_t bulk_secret[WIRE_BULK_SECRET_BYTES];
    bool bulk_tls;
    uint64_t bulk_clock_ms; /* of its worker, when our own said .. */
    uint64_t bulk_heard_ms; /* .. this */
    uint64_t bulk_since_ms; /* others are told its address since then */
    char *death;            /* why its last worker died; NULL: none did */
    uint64_t bytes_total;
    uint64_t bytes_planned; /* of all buffers that exist for us */
    /*
     * of those that somebody may still name, as the arena rounds them: what is there in plan order
     * (spill.c)
     */
    uint64_t bytes_live;
    /* of those that unfinished tasks use, as the arena rounds them */
    uint64_t bytes_in_use;
    /*
     * of its buffers that are replicas, less of those that were when its worker was told to make
     * them
     */
    int64_t replica_off;
    uint64_t bytes_graphs; /* that recorded graphs keep there */

    /* Slots of its object table. */
    uint32_t slot_next;
    struct pl_vec generations; /* uint32_t a slot */
    struct pl_vec resting;     /* uint32_t, FIFO from resting_first */
    size_t resting_first;

    /* Launches: unfinished ones are by_seq[seq & mask]; NULL once finished. */
    uint64_t seq_last; /* last number given out */
    uint64_t seq_sent; /* last number put into the outbox */
    /* sent for the first time: a worker that follows is sent much again */
    uint64_t seq_timed;
    /* its worker died, and of what was sent it is being looked at what had begun */
    bool judged;
    uint64_t seq_oldest; /* every launch before it is finished */
    struct head_task **by_seq;
    uint64_t by_seq_mask;
    uint64_t unfinished;
    uint64_t load_ns; /* estimated work of the unfinished ones */

    uint64_t starved_seq; /* 0: not */
    uint64_t starved_bytes;
    uint64_t starved_hole;
    struct head_relief relief; /* what its worker was asked to copy for that one */
    uint64_t relief_refused;   /* a launch for which it copies nothing */
    uint64_t relief_asked;     /* a launch for which it was asked what lies side by side */
    struct pl_list relief_row; /* head_buffer.row_link: what is left of its answer */
    uint64_t stage_next;       /* next chunk number of its staging ring */
    uint32_t maps; /* mapped arrays in the cluster; 0 spares the search for them */

    /* Its worker is to be ended (condemn.c), or was replaced (worker.c). */
    bool fencing; /* the store was asked to kill it */
    uint64_t fence_ms;
    /* launches up to here are done one at a time, for they come again */
    uint64_t alone_until;
    plasmon_status_t death_status; /* what the dead one said of its device, or OK */
    /* workers that died before one came; of this head's time, in no checkpoint */
    uint32_t failed_starts;

    struct head_bytes out; /* WorkerCommand fields, encoded */
    bool arriving; /* it said hello, and has not been welcomed: `early` goes after that */
    struct pl_vec early;    /* struct head_bytes: full outboxes of that moment, in order */
    uint32_t out_launches;  /* launches in it: a frame may carry WIRE_TASKS_MAX */
    struct pl_vec out_free; /* uint64_t buffers */
    struct pl_vec out_retire;        /* uint64_t buffers */
    struct pl_vec out_graph_free;    /* uint64_t graphs */
    struct pl_vec out_function_free; /* uint32_t ids */
    /*
     * ids of defined functions that its worker was told, and must be told again when it begins anew
     */
    struct pl_map told;
    uint32_t runs;                     /* WIRE_RUNS_*: what of clients it runs */
    struct pl_vec out_cancel;          /* uint64_t seqs */
    struct pl_vec out_force;           /* uint64_t seqs */
    Plasmon__V1__WorkerStats stats;    /* last report; routes and waits apart */
    struct head_launch_wait waits[17]; /* the front and each stream, of the last report */
    uint32_t wait_count;
    Plasmon__V1__NumaPlace numa; /* of the last report */
    bool numa_told;
    Plasmon__V1__CommsLeft left; /* of the last report; communicators 0: nothing is */
    Plasmon__V1__RouteStats routes[HEAD_PAST_ROUTES];
    /* Plasmon__V1__PairStats of the last report, `from` and `to` filled in */
    struct pl_vec pairs;
    struct head_past past;  /* of the workers before this one */
    struct pl_list buffers; /* head_buffer.device_link */
    struct pl_list ending;  /* head_buffer.ending_link */
    /* head_buffer.recent_link, least recently named by a launch first */
    struct pl_list recent;
    /* head_buffer.loose_link (loose.c); the same order, but for those that came later */
    struct pl_list loose;
    /* it is no device but the memory of this host; NULL: a device */
    struct head_spill_host *spill;
};

/* ---- device.c */
struct head_device *head_device_at(const struct head_core *core, uint32_t index);
/* The name of a host, the same pointer each time; lent until the core is destroyed. */
char *head_host_name(struct head_core *core, const char *host);
/* On different hosts. */
static inline bool head_device_apart(const struct head_device *a,
                                     const struct head_device *b)
{
    return a->host != b->host;
}
uint64_t
head_device_slot_take(struct head_core *core,
                      struct head_device *device); /* a buffer id; 0: the table is full */
void head_device_slot_rest(struct head_device *device, uint64_t buffer);
/*
 * Clients hold these, in rising order, since before we knew the device: they are never given out.
 */
void head_device_slots_held(const struct head_core *core, struct head_device *device,
                            const uint32_t *slots, size_t count);
/* Of a slot that was not given out yet. */
uint32_t head_device_generation_none(const struct head_core *core,
                                     const struct head_device *device);
void head_device_number(struct head_core *core, struct head_device *device,
                        struct head_task *task);                             /* gives seq */
void head_device_forget(struct head_device *device, struct head_task *task); /* finished */
struct head_task *head_device_task(struct head_device *device,
                                   uint64_t seq); /* unfinished, or NULL */
void head_device_send(struct head_core *core, struct head_device *device,
                      const struct head_task *task); /* into the outbox */
void head_device_pump(struct head_core *core,
                      struct head_device *device); /* outbox up to the window */
void head_device_flush(struct head_core *core, struct head_device *device);
/* What has been started so far goes out, in the middle of something that starts much. */
void head_devices_go(struct head_core *core);
/*
 * The same for those that had nothing to do: in the middle of many launches, after each that may be
 * the first of a device.
 */
void head_devices_begin(struct head_core *core);
/* It says hello: until its next flush is asked for from outside (false) nothing goes out. */
void head_device_arriving(struct head_core *core, struct head_device *device,
                          bool arriving);
/* Nothing of what was to go out counts any more. */
void head_device_forget_output(struct head_device *device);
void head_device_starved(struct head_core *core, struct head_device *device, uint64_t seq,
                         uint64_t bytes, uint64_t hole);
void head_device_relieve(struct head_core *core); /* answers starved devices */

/* ---- condemn.c */
void head_device_condemned(struct head_core *core, struct head_device *device,
                           const Plasmon__V1__Condemned *report);
void head_device_fence_again(struct head_core *core); /* time went by */
/* Another incarnation is here: had we asked for the end of the last one? */
bool head_device_fenced(struct head_device *device);

/* ---- waits.c */
void head_waits_take(struct head_device *device, const Plasmon__V1__WorkerStats *stats);

/* ---- moved.c: what workers moved, and their time */
/* A report of the worker that serves, of which device->stats is a copy already. */
void head_moved_take(struct head_core *core, struct head_device *device,
                     const Plasmon__V1__WorkerStats *stats);
/* Another worker will count from nothing: what the last one had reported becomes part of device->past. */
void head_moved_replaced(struct head_device *device);
/* Routes and processor time of all workers there were, into the status. In the arena. ENOMEM. */
plasmon_status_t head_moved_status(const struct head_core *core, struct wire_arena *arena,
                                   Plasmon__V1__StatusReply *out) PL_MUST_CHECK;

/* ---- gone.c */
/*
 * It will not come back: nor will what lies only there and what was to run there. head_rebuild() is
 * the caller's.
 */
void head_device_gone(struct head_core *core, struct head_device *device, const char *text);

/* ---- worker_back.c */
/*
 * Another incarnation says hello: of what the dead one had enqueued, what is done is closed, and
 * what cannot run again fails.
 */
void head_worker_back(struct head_core *core, struct head_device *device,
                      const Plasmon__V1__WorkerHello *hello);
/*
 * All that the worker must know, as if nothing had been sent before; unfinished launches go out
 * again, oldest first.
 */
void head_worker_send_again(struct head_core *core, struct head_device *device,
                            const Plasmon__V1__WorkerHello *hello, bool restarted);

/* ---- worker.c */
/* Its worker is not there: since when is remembered. */
void head_device_down(const struct head_core *core, struct head_device *device);
/* One of a checkpoint, or one that is expected. NULL: there are as many as a buffer's id can name. */
struct head_device *head_device_restore(struct head_core *core, const char *host,
                                        const char *node, uint32_t host_device);
void head_device_destroy(struct head_device *device);
/* An encoded GraphPart, ahead of the launches that follow. */
void head_device_tell(struct head_core *core, struct head_device *device,
                      const struct head_bytes *part);

/* ---- expect.c */
enum { HEAD_EXPECT_MS = 60000 };
/*
 * After so many nobody waits for the device's worker to come: their store goes on trying for 20 s
 * and more, with ever longer pauses (the first ones: a second).
 */
enum { HEAD_FAILED_STARTS = 5 };
/* A host is gone with these devices (struct head_device *), and head_rebuild() has not looked at it yet. */
void head_expect(struct head_core *core, const struct pl_vec *lost);
/* A store of that host has come. */
void head_expect_announced(struct head_core *core, const char *host, uint32_t devices);
/*
 * Is the worker what was planned for? false: head_expect_replaced(), and head_rebuild() once its
 * device has joined.
 */
bool head_expect_fits(const struct head_device *device,
                      const Plasmon__V1__WorkerHello *hello);
void head_expect_replaced(struct head_core *core, struct head_device *device);
/* A worker has come: what is expected of other hosts is given up. head_rebuild() is the caller's. */
void head_expect_joined(struct head_core *core, const struct head_device *joined);
void head_expect_tick(struct head_core *core);

/* ---- orphan.c */
enum { HEAD_ORPHAN_MS = 30000 };
/* Functions of sessions that have ended, which nobody needs and which do not end. */
void head_orphans_tick(struct head_core *core);

/* ---- bulk.c */
/* Where the worker that says hello takes objects of other hosts. */
void head_bulk_take(struct head_core *core, struct head_device *device,
                    const Plasmon__V1__WorkerHello *hello);
/*
 * What a client needs to move bytes of the buffer over the bulk channel, in the core's arena; NULL:
 * its worker is not there for that.
 */
Plasmon__V1__BulkGrant *head_bulk_grant(struct head_core *core, uint64_t buffer,
                                        uint64_t client, uint32_t rights);
Plasmon__V1__BulkAccess head_bulk_access(const struct head_device *device);
/* Of all workers on other hosts, the gone ones too: what a new worker must know. */
void head_bulk_tell_all(struct head_core *core, struct head_device *device);
/* To all workers on other hosts: where this one listens now, or that it is gone. */
void head_bulk_tell(struct head_core *core, const struct head_device *device);

#endif
