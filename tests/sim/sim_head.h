/* The head of a simulated cluster (sim.h), its journal, and the one that takes its place. */
#ifndef TESTS_SIM_SIM_HEAD_H
#define TESTS_SIM_SIM_HEAD_H

#include "head/machine.h"
#include "tests/sim/sim_process.h"

void sim_head_start(struct sim *sim);
void sim_head_finish(struct sim *sim);
void sim_head_tick(struct sim *sim);
void sim_head_flush_soon(struct sim *sim);
/* Bytes that arrive at the head; `user` of a pipe is the worker or the client. */
void sim_head_from_client(void *user, const uint8_t *data, size_t length);
void sim_head_from_worker(void *user, const uint8_t *data, size_t length);
void sim_head_client_lost(struct sim_client *client);
void sim_head_worker_lost(struct sim_worker *worker);
/* At once, of a connection that says nothing any more. */
void sim_head_client_silent(struct sim_client *client);
/* the process is dead, its place is free */
void sim_head_client_forget(struct sim_client *client);
void sim_head_worker_silent(struct sim_worker *worker);
void sim_head_node_silent(struct sim_node *node);
void sim_head_from_node(void *user, const uint8_t *data, size_t length);
/* A hello that was on its way for too long. */
void sim_head_late_hello(struct sim_worker *worker, const uint8_t *data, size_t length);
void sim_head_worker_down(struct sim_worker *worker, uint32_t incarnation);
/* Its store gives it up. */
/* The second host is to leave. */
void sim_head_drain(struct sim *sim, uint64_t deadline_ms);
/* false: it may not go yet. */
bool sim_head_drain_over(struct sim *sim, bool *out_done);
void sim_head_worker_gone(struct sim_worker *worker);
/* Has it heard of all that went so far? */
bool sim_head_knows_gone(const struct sim *sim);
/* Is some of what the ref shows nowhere, or failed? Then why; NULL: all of it is there. */
const char *sim_head_lacks(const struct sim_client *client, uint64_t ref);

/* What is to leave the head when a batch is stored. */
struct sim_held {
    uint64_t batch;
    struct sim_pipe *pipe; /* NULL: an order to fence, or something for the store */
    uint64_t life;         /* of the pipe; for the store: spill_hellos */
    struct sim_worker *fence;
    bool gives_up; /* .. or that a device is gone: `incarnation` is its number */
    uint32_t incarnation;
    size_t length;
    uint8_t *data; /* owned */
};
struct sim_batch {
    bool checkpoint; /* it stands for all before it */
    uint8_t *bytes;  /* owned */
    size_t length;
};

struct sim_head {
    struct head_machine *machine;
    /* of the clients, as far as they said hello; 0: none */
    uint64_t sessions[SIM_CLIENTS_MAX];
    bool flush_pending;
    /* With a journal (sim_journal.c). */
    uint64_t life;    /* a crash begins a new one */
    bool stopped;     /* it stands still (sim_standby.c) */
    uint64_t unheard; /* batches that were stored meanwhile */
    uint32_t stops;
    uint64_t down_until_ns; /* who connects before is refused */
    struct pl_vec batches;  /* struct sim_batch: all of them; the first `stored` ones are */
    uint64_t stored;
    uint64_t last_store_ns;
    struct pl_vec held; /* struct sim_held, in order */
    uint32_t crashes;
    uint64_t replayed; /* inputs */
    bool replaying;    /* what is put out goes nowhere */
    uint64_t checkpoints;
    /* Of these, with things that only some programs have. */
    uint64_t checkpoints_spilled, checkpoints_graphs, checkpoints_lineage,
        checkpoints_pairs;
};

/* One whose place another one has taken. */
struct sim_old_head {
    struct head_machine *machine; /* NULL: there is none */
    uint64_t serial;
    bool speaks; /* what is put out just now is its */
    struct pl_vec held;
    uint64_t stored; /* of its batches, before the other one came */
    uint64_t sessions[SIM_CLIENTS_MAX];
};

/* sim_standby.c */
void sim_head_maybe_stop(struct sim *sim);
void sim_old_head_put(struct sim *sim, const struct sim_pipe *to_head,
                      struct sim_pipe *from_head, const uint8_t *data, size_t length);
/* What arrives there over a pipe that is `old`. */
void sim_old_head_worker(struct sim_worker *worker, const uint8_t *data, size_t length);
void sim_old_head_client(struct sim_client *client, const uint8_t *data, size_t length);
void sim_old_head_node(struct sim_node *node);
void sim_old_head_finish(struct sim *sim);

/* sim_journal.c */
/* Nobody listens there, or nobody who runs. */
bool sim_head_down(const struct sim *sim);
/* It leaves the head: data is freed. */
void sim_held_leave(struct sim *sim, struct sim_held *held);
void sim_held_drop(struct pl_vec *held, size_t from);
/* It goes on, and hears what was stored meanwhile. */
void sim_journal_heard(struct sim *sim);
/*
 * Its machine is somebody else's by now, or was destroyed: another one is made from what was
 * stored. broken: with the process all connections ended.
 */
void sim_head_replace(struct sim *sim, bool broken);
/* It leaves the head, when all that it says of what was taken over is stored. Takes data (NULL: fence). */
void sim_journal_put(struct sim *sim, struct sim_pipe *pipe, const uint8_t *data,
                     size_t length);
void sim_journal_fence(struct sim *sim, struct sim_worker *worker, uint32_t incarnation);
void sim_journal_given_up(struct sim *sim, uint32_t number);
void sim_journal_spill(struct sim *sim, const struct head_spill_op *op);
void sim_journal_flushed(struct sim *sim); /* the input ran dry: store it */
/* The process is killed; another one has the journal. */
void sim_head_crash(struct sim *sim);
/* A second machine, made from all records, is the same as this one. */
bool sim_journal_quiet(const struct sim *sim); /* a checkpoint can be made */
/* All that was is in it, and stored; false: none can be made now. */
bool sim_journal_checkpoint(struct sim *sim);
void sim_journal_check(struct sim *sim);
void sim_journal_finish(struct sim *sim);
/* sim_head.c */
void sim_head_machine(struct sim *sim,
                      struct head_machine **out_machine); /* that has not begun */
void sim_head_begin(struct sim *sim);
void sim_head_spill_up(struct sim *sim);
void sim_head_spill_done(struct sim *sim, uint64_t id, plasmon_status_t status,
                         uint64_t host_buffer, uint64_t bytes, const char *text);

#endif
