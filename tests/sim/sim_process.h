/* What workers and stores of a simulated cluster (sim.h) do and suffer. */
#ifndef TESTS_SIM_SIM_PROCESS_H
#define TESTS_SIM_SIM_PROCESS_H

#include "store/node_session.h"
#include "tests/sim/sim_client.h"

struct sim_report {
    uint64_t seq;
    uint64_t bytes;
    uint64_t hole;
    plasmon_status_t status;
    char *text; /* owned */
    bool fence; /* of a condemned launch */
};
struct sim_read_back {
    uint64_t request;
    plasmon_status_t status;
    uint8_t *data; /* owned */
    size_t length;
};

struct sim_pair_report {
    struct worker_pair_report report;
    uint8_t id[WIRE_PAIR_ID_BYTES];
    char text[200];
};

void sim_worker_init(struct sim_worker *worker, struct sim *sim, uint32_t host_device);
void sim_worker_finish(struct sim_worker *worker);
void sim_worker_start(struct sim_worker *worker);
void sim_worker_crash(struct sim_worker *worker, const char *why); /* and restart, later */
/* it crashes, and nobody takes its place */
void sim_worker_gone(struct sim_worker *worker);
const char *sim_worker_host(const struct sim_worker *worker);
void sim_numbers_refresh(struct sim *sim); /* which device is which, to each */
/* the process, and all that it had on the device */
void sim_worker_end(struct sim_worker *worker);
/* Another one takes its place, which is a mistake as long as the device works for it. */
void sim_worker_supplant(struct sim_worker *worker);
void sim_worker_spawn(struct sim_worker *worker); /* the next incarnation, now */
void sim_worker_stop(struct sim_worker *worker);  /* SIGSTOP: its device goes on */
void sim_worker_continue(struct sim_worker *worker);

/*
 * sim_growth.c: worker_ops.grow, and what becomes of the chunk: its worker dies or goes on; another
 * store takes over.
 */
plasmon_status_t sim_growth_begin(struct sim_worker *worker, uint32_t pool, uint64_t bytes);
void sim_growth_died(struct sim_worker *worker);
void sim_growth_continued(struct sim_worker *worker);
void sim_growth_handed_back(struct sim_worker *worker);

/* The store process of a host (sim_node.c), with config.stores. */
struct sim_node {
    struct sim *sim;
    uint32_t index;
    const char *name;
    uint32_t first; /* of its devices .. */
    uint32_t count; /* .. so many */
    uint64_t memory;
    bool alive;
    uint64_t life; /* a death begins a new one */
    /* when it died, if the next one has not been welcomed since; else 0 */
    uint64_t away_ns;
    bool beats_watched; /* a look at the beats is due */
    bool paused;        /* the store stands still, with all its workers */
    struct store_node_session session;
    struct sim_pipe to_head;
    struct sim_pipe from_head;
    struct sim_cut cut;
    /* sim_hosts.c */
    bool gone;          /* it is dead, and nobody comes in its place */
    bool counted;       /* among those that are gone */
    uint64_t silent_ns; /* the head was told that its connection is gone; 0: it has one */
    uint32_t give_ups;  /* by heads */
    /* The head's side of the connection. */
    uint64_t head_session; /* 0: no hello has come over it */
    uint64_t head_out_seq;
    uint64_t head_in_seq;
    /* the last incarnation that the head heard to be dead */
    uint32_t told[SIM_DEVICES_MAX];
};
/* Of the host where this device is. */
struct sim_node *sim_node_of(const struct sim_worker *worker);
uint32_t sim_hosts(const struct sim *sim);
void sim_node_init(struct sim_node *node, struct sim *sim, uint32_t index);
void sim_node_start(struct sim_node *node);
/* Another one, with nothing of what was there before. */
void sim_node_begin_anew(struct sim_node *node);
void sim_node_end(struct sim_node *node); /* and nobody comes in its place */
void sim_node_finish(struct sim_node *node);
/* May it, the head or their connection break? */
bool sim_node_settled(const struct sim_node *node);
bool sim_nodes_settled(const struct sim *sim);
void sim_node_break(struct sim_node *node); /* the connection; it comes back by itself */
void sim_node_die(struct sim_node *node);
/* The store has found a worker dead. */
void sim_node_down(struct sim_node *node, uint32_t local, uint32_t incarnation);

/* sim_hosts.c */
struct sim_worker *sim_worker_at(struct sim *sim, const char *host, uint32_t local);
/* The second host meets its fate, if that is a matter of hosts. */
void sim_host_lose(struct sim *sim);
/* The head says that a host is gone: is it right? */
void sim_host_given_up(struct sim *sim, const char *host, const char *why);
/* Or that a device is. */
void sim_device_forgotten(struct sim *sim, uint32_t number, const char *why);
/* Everybody else is told that. */
void sim_device_given_up(struct sim *sim, uint32_t number);
/* How many there may be. */
uint32_t sim_ghosts(const struct sim *sim);
/* A hello was refused, because of that. */
bool sim_worker_refused(struct sim_worker *worker, const struct pl_err *err);
void sim_hosts_finish(struct sim *sim);
/* Nothing is left in the memory of the device. */
void sim_worker_blank(struct sim_worker *worker);

/* sim_ways.c */
bool sim_ways(const struct sim *sim); /* there are such that may be cut */
/* The sender has nobody to send the chunk to now, and tries. */
bool sim_ways_hold(struct sim_worker *from, struct sim_worker *to, uint64_t chunk);
/* Its bytes are for nobody: one of the two was told to give them up. */
bool sim_ways_dropped(const struct sim_worker *from, const struct sim_worker *to,
                      uint64_t chunk);
/* Something got on. */
void sim_ways_moved(struct sim_worker *from, const struct sim_worker *to);
/* What the receiver has given up is marked as full, as far as there is room. */
void sim_ways_fill(struct sim_worker *worker);
plasmon_status_t sim_ways_op_give_up(void *user, uint32_t device, bool receives,
                                     uint64_t first, uint64_t count);
plasmon_status_t sim_ways_op_peer(void *user, uint32_t device, const char *address,
                                  const uint8_t *secret);
plasmon_status_t sim_ways_op_gone(void *user, uint32_t device);
plasmon_status_t sim_ways_op_expect(void *user, uint32_t device, uint64_t first_chunk,
                                    uint64_t bytes);
void sim_ways_report(struct sim_worker *worker, Plasmon__V1__WorkerStats *stats);
void sim_ways_init(struct sim_worker *worker);
void sim_ways_finish(struct sim_worker *worker);
void sim_ways_crash(struct sim_worker *worker);
void sim_ways_maybe_cut(struct sim *sim);
void sim_ways_heal(struct sim *sim); /* and none is cut any more */
/* Was anything given up? */
bool sim_ways_given_up(const struct sim *sim);
/* Is that failure due to a way that was cut for long enough? */
bool sim_ways_explain(const struct sim *sim, const char *text);

/* sim_store.c */
void sim_store_fence(struct sim_worker *worker,
                     uint32_t incarnation);      /* the head's order */
void sim_store_adopt(struct sim_worker *worker); /* by the store after the one that died */
void sim_store_look_again(struct sim_node *node);
void sim_store_init(struct sim_worker *worker);
void sim_store_exited(struct sim_worker *worker); /* it died by itself */
void sim_store_maybe_stop(struct sim *sim);       /* a worker, or a whole host */
void sim_store_growth(struct sim_worker *worker); /* it was sent a chunk: may die of it */
void sim_crash_one(struct sim *sim, struct sim_worker *worker); /* counted */
/* Something of what the worker enqueued is about to be written: may it be? */
void sim_store_writes(struct sim_worker *worker, const struct sim_op *op);
void sim_worker_break(struct sim_worker *worker);
void sim_worker_wake(struct sim_worker *worker); /* completions */
/* Is host memory page-locked? In one that follows a dead one, not at once; it is woken then. */
bool sim_worker_locked(struct sim_worker *worker);
/* something that it waits for may be there */
void sim_worker_doorbell(struct sim_worker *worker);
void sim_worker_advance(struct sim_worker *worker);
void sim_worker_flush_soon(struct sim_worker *worker);
void sim_reports_clear(struct sim_worker *worker);
void sim_worker_hello(struct sim_worker *worker);
void sim_worker_describe(const struct sim_worker *worker, struct pl_str *out);
extern const struct worker_ops sim_worker_ops;

void sim_pairs_init(struct sim_worker *worker);
void sim_pairs_finish(struct sim_worker *worker);
void sim_pairs_crash(struct sim_worker *worker);
/* A word has changed, or something else that its watcher looks at. */
void sim_pairs_look_soon(struct sim_worker *worker);
/* Is it one that its pairs' watcher looks at? */
bool sim_pairs_word(const struct sim_worker *worker, const uint64_t *word);
void sim_pairs_stage_next(struct sim_worker *worker);
void sim_pairs_describe(const struct sim_worker *worker, struct pl_str *out);
bool sim_meet_ready(struct sim_op *op);
void sim_meet_do(struct sim_worker *worker, const struct sim_op *op);
plasmon_status_t sim_pair_op_open(void *user, const struct worker_pair_key *key,
                                  const struct worker_pair_shape *shape, const uint8_t *id);
void sim_pair_op_close(void *user, const struct worker_pair_key *key);
void sim_pair_op_break(void *user, const struct worker_pair_key *key);
void sim_pair_op_abort(void *user, const struct worker_pair_key *key);
void sim_pair_op_free(void *user, const struct worker_pair_key *key);
bool sim_pair_op_room(void *user, uint32_t lane);
bool sim_pair_op_settled(void *user, uint32_t lane);
plasmon_status_t sim_pair_op_move(void *user, uint32_t stream,
                                  const struct worker_half *half);
plasmon_status_t sim_pair_op_stage(void *user, const struct worker_pair_key *key,
                                   uint64_t *out_first);
void sim_pair_op_sent(void *user, uint64_t seq);
/*
 * What a launch of a team writes to, or its own member, as it was when the launch was enqueued: by
 * now something else may be planned there.
 */
const struct sim_touch *sim_pairs_part(const struct sim_worker *worker, uint64_t seq,
                                       bool member);

void sim_limits_init(struct sim_worker *worker);
void sim_limits_forget(struct sim_worker *worker); /* a new incarnation */
void sim_limits_finish(struct sim_worker *worker);
void sim_limits_note(struct sim_worker *worker, const Plasmon__V1__Launch *launch);
/* What the worker's loop does about time, whenever it was awake. */
void sim_limits_tick(struct sim_worker *worker);
/* How long the op takes if its task has a time of its own; 0: it has none. */
uint64_t sim_limits_duration(const struct sim_worker *worker, const struct sim_op *op);
void sim_limits_condemned(struct sim_worker *worker,
                          const struct worker_condemned *condemned);
/* The head's order, on its way to the store. */
void sim_limits_order(struct sim_worker *worker, uint32_t incarnation);
/* An order to fence may have died with it: time passes until the next head gives it again. */
void sim_limits_head_crashed(struct sim *sim);
void sim_limits_check(struct sim_worker *worker);
/*
 * Did this launch lie behind one that was ended for its limit, so that it may come again whatever
 * it does? After the crash.
 */
bool sim_limits_sheltered(const struct sim_worker *worker, uint64_t seq);

void sim_begun_note(struct sim_worker *worker, const Plasmon__V1__Launch *launch);
void sim_begun_started(struct sim_worker *worker, const struct sim_op *op);
void sim_begun_reached(struct sim_worker *worker, uint64_t seq);
/* false: its device would have told, and did not. */
bool sim_begun_perhaps(const struct sim_worker *worker, uint64_t seq);
void sim_begun_check(struct sim_worker *worker); /* what a new incarnation says */

void sim_streams_init(struct sim_worker *worker);
void sim_streams_drop(struct sim_worker *worker,
                      bool half); /* half: some running ops have their effect */
struct sim_op *sim_op_add(struct sim_worker *worker, uint32_t stream,
                          enum sim_op_kind kind);
void sim_op_start(struct sim_worker *worker, uint32_t stream);
/* The next op of `stream` comes behind what is in `other` now. */
void sim_op_join(struct sim_worker *worker, uint32_t stream, uint32_t other);
/*
 * The op that was added last is kept, and so are those before it that were, until another kind is
 * added, or too many are.
 */
void sim_op_keep(struct sim_worker *worker, uint32_t stream);
void sim_stream_flush(struct sim_worker *worker, uint32_t stream);
void sim_op_touch(struct sim_op *op, struct sim_worker *owner, uint64_t offset);
void sim_streams_kick(struct sim *sim); /* a word changed */
/* The same, from inside of a look at the streams. */
void sim_streams_kick_soon(struct sim_worker *worker);
/* One half of the host route. touch NULL: only the words. */
void sim_stage(struct sim_worker *worker, uint32_t stream, enum sim_op_kind kind,
               uint32_t other, uint64_t first_chunk, const struct sim_touch *touch,
               uint64_t bytes);
/* The memory that lies there now. */
struct sim_touch sim_touch_of(struct sim_worker *owner, uint64_t offset);
void sim_op_do(struct sim_stream *stream, struct sim_op *op); /* sim_ops.c: the effect */
bool sim_op_ready(struct sim_stream *stream, struct sim_op *op);
/* x = what a reduction starts from. Also for references: the pointer is a host address. */
plasmon_status_t sim_fill_identity(const struct kernel_arg *arg);
void sim_op_describe(const struct sim_op *op, struct pl_str *out);

/* Memory of a worker's core is watched between these two. */
void sim_memory_enter(struct sim_worker *worker);
void sim_memory_leave(void);
struct sim_worker *sim_memory_watched(void); /* NULL: none */
const struct sim_block *sim_memory_find(const struct sim_worker *worker, uint64_t offset);
/*
 * An op has its effect now: may it still touch what it was enqueued for? What it is the first to
 * touch becomes noise.
 */
bool sim_memory_touch(struct sim_worker *worker, uint64_t offset, uint64_t serial);
/* An op that is put in will touch what is there. */
void sim_memory_use(struct sim_worker *owner, const struct sim_op *op, uint64_t offset);
void sim_memory_noise(struct sim *sim, uint8_t *bytes, uint64_t length);
void sim_memory_forget(struct sim_worker *worker);    /* a crash: its book is gone */
void sim_memory_recovered(struct sim_worker *worker); /* poisons what nobody took back */

void sim_sealed_init(struct sim_worker *worker);
void sim_sealed_finish(struct sim_worker *worker);
/* What the head tells a worker: before the worker hears it. */
void sim_sealed_note(struct sim_worker *worker, const Plasmon__V1__WorkerCommand *command);
void sim_sealed_check(struct sim_worker *worker);
void sim_sealed_check_idle(struct sim_worker *worker); /* when nothing is under way */
/* The launch failed: what it alone should have made must not be sealed. */
void sim_sealed_check_failed(struct sim_worker *worker, uint64_t seq);

#endif
