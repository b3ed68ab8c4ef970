/*
 * Inside of the machine: machine.c applies inputs, machine_peers.c knows clients and workers,
 * machine_frames.c what is put out to them, machine_nodes.c knows stores, machine_waits.c says
 * which of them are silent, machine_list.c lists stores, machine_checkpoint.c saves and loads all
 * of it.
 */
#ifndef HEAD_MACHINE_INT_H
#define HEAD_MACHINE_INT_H

#include "head/machine.h"
#include "head/times.h"

/* One side of a session. */
struct head_peer {
    uint64_t session;
    struct wire_link link;
    bool connected;
    bool overflown; /* it acknowledges nothing: a frame was not kept */
    uint64_t credit_told;
    uint64_t acked;    /* of a client's link, when it last moved, or nothing was owed ... */
    uint64_t acked_ms; /* ... then; 0: nobody has looked */
};

struct head_machine_client {
    struct head_peer peer;
    bool ended;
    struct pl_list link;
};

struct head_machine_worker {
    struct head_peer peer;
    uint32_t device;
    uint32_t host_device;
    uint32_t incarnation;
    /*
     * its store has said that this incarnation has ended; 0: of none. In no checkpoint: there is
     * none until the next one is here
     */
    uint32_t over;
    uint64_t answered; /* the last request for figures that it has */
    char *host;
    struct pl_list link;
};

struct head_machine_node {
    char *host;
    char *name;
    char *store_socket;
    uint64_t memory; /* which memory of the host: who has that is this store */
    uint64_t session;
    bool connected;
    bool leaving; /* it said that it is about to end */
    uint64_t lost_ms;
    uint64_t answered; /* the last question that its store has answered; in no checkpoint */
    uint64_t heard_ms; /* likewise: when it last said anything */
    struct pl_list link;
};

/* A node that left: told for a while, to who wonders where it is. */
struct head_machine_gone {
    char *host;
    char *name;
    char *why;
    uint64_t devices;
    uint64_t gone_ms;
    struct pl_list link;
};

struct head_machine {
    struct head_machine_config config;
    struct head_settings settings;
    char *policy;
    struct head_core *core; /* NULL until it has begun */
    struct wire_arena arena;
    struct head_bytes batch;
    struct head_bytes scratch; /* a frame that is kept nowhere */
    struct head_bytes saved;   /* the last checkpoint */
    bool batch_taken;
    bool recording;
    bool changed; /* since the last flush */
    bool diverged;
    bool some_ended;
    bool replacing;                   /* the core, by what was saved of it */
    struct head_input_reader *replay; /* NULL: the inputs are new */
    uint64_t now_ms;
    uint64_t session_last;
    struct pl_list clients;
    struct pl_map sessions; /* session -> head_machine_client */
    struct pl_list workers;
    struct pl_list nodes;
    struct pl_list gone; /* the newest first, at most HEAD_MACHINE_GONE_MAX */
    struct head_figures figures;
    struct head_times times;
    uint64_t digest; /* of what was put out */
};

/* ---- machine.c */
/* Settings, from their numbers in the order of HEAD_INPUT_BEGIN, and a core that has them. */
plasmon_status_t head_machine_settle(struct head_machine *machine, const uint64_t *numbers,
                                     struct head_string policy, struct pl_err *err);
plasmon_status_t head_machine_core_create(struct head_machine *machine,
                                          struct head_core **out_core, struct pl_err *err);

/* ---- machine_peers.c */
uint64_t head_machine_client_kept_max(const struct head_machine *machine);
struct head_machine_client *head_machine_client_create(struct head_machine *machine,
                                                       uint64_t session);
struct head_machine_worker *head_machine_worker_create(struct head_machine *machine,
                                                       uint32_t device, const char *host,
                                                       uint32_t host_device);
char *head_string_copy(struct head_string string); /* NUL-terminated; the caller's */
uint64_t head_machine_session_new(struct head_machine *machine);
struct head_machine_client *head_machine_client_of(const struct head_machine *machine,
                                                   uint64_t session);
struct head_machine_worker *head_machine_worker_of(const struct head_machine *machine,
                                                   uint32_t device);
plasmon_status_t head_machine_client_open(struct head_machine *machine,
                                          struct head_string frame,
                                          struct head_outcome *out, struct pl_err *err);
plasmon_status_t head_machine_client_frame(struct head_machine *machine, uint64_t session,
                                           struct head_string frame,
                                           struct head_outcome *out, struct pl_err *err);
plasmon_status_t head_machine_client_change(struct head_machine *machine,
                                            const struct head_input *input,
                                            struct pl_err *err);
void head_machine_clients_reap(struct head_machine *machine);
plasmon_status_t head_machine_worker_up(struct head_machine *machine,
                                        struct head_string frame, struct head_outcome *out,
                                        struct pl_err *err);
plasmon_status_t head_machine_worker_frame(struct head_machine *machine, uint64_t device,
                                           struct head_string frame,
                                           struct head_outcome *out, struct pl_err *err);
plasmon_status_t head_machine_worker_lost(struct head_machine *machine, uint64_t device,
                                          struct pl_err *err);
plasmon_status_t head_machine_worker_down(struct head_machine *machine,
                                          const struct head_input *input,
                                          struct pl_err *err);
/* Its device is gone: so is its session. */
void head_machine_worker_forget(struct head_machine *machine,
                                struct head_machine_worker *worker, const char *why);
void head_machine_peers_finish(struct head_machine *machine);

/* ---- machine_frames.c */
void head_machine_to_client(struct head_machine *machine, uint64_t session,
                            const uint8_t *body, size_t length);
void head_machine_to_worker(struct head_machine *machine, uint32_t device,
                            const uint8_t *body, size_t length);

/* ---- machine_waits.c */
/* How far it is drained, in the arena; NULL: it is not drained, or no memory. */
char *head_machine_drain_text(const struct head_machine *machine,
                              const struct head_machine_node *node,
                              struct wire_arena *arena);
void head_machine_peers_watch(struct head_machine *machine);

/* ---- machine_nodes.c */
enum { HEAD_MACHINE_GONE_MAX = 16, HEAD_MACHINE_GONE_MS = 3600000 };
/* The last of those that are remembered, for who loads them. */
void head_machine_gone_add(struct head_machine *machine, struct head_machine_gone *gone);
/* How long it has said nothing, of one that did not answer what was asked; 0: it did, or is away. */
uint64_t head_machine_node_silent_ms(const struct head_machine_node *node,
                                     const struct head_asked *asked);
plasmon_status_t head_machine_node_up(struct head_machine *machine,
                                      struct head_string frame, struct head_outcome *out,
                                      struct pl_err *err);
plasmon_status_t head_machine_node_change(struct head_machine *machine,
                                          const struct head_input *input,
                                          struct pl_err *err);
void head_machine_nodes_tick(struct head_machine *machine);
void head_machine_nodes_finish(struct head_machine *machine);
/* Another process goes on: every connection is gone, and leases run from grace_ms after now. */
void head_machine_restarted(struct head_machine *machine, uint64_t now_ms,
                            uint64_t grace_ms);

#endif
