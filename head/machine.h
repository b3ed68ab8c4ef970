/*
 * The head as one deterministic machine: the core, and the links to its peers.
 *
 * Everything that changes it goes through head_machine_input() as a record (input.h). Given the
 * same records, a second machine has the same core, the same sessions, and links with the same
 * numbers and the same kept bytes: frames get their numbers at the moment the core emits them. So a
 * head that is made again from the records is, for clients, stores and workers, nothing but a
 * broken connection: they say hello with their session, and go on from the last number that they
 * took over.
 *
 * RECORDING. With `record`, each input is appended to the open batch before it is applied. The
 * caller takes the batch (head_machine_batch_take) when its input ran dry, stores it, and lets
 * nothing that was put out since the batch began leave the process before it is stored: neither
 * frames nor acknowledgements nor orders to fence. What was acknowledged is then in the journal.
 * Without `record` nothing is copied.
 *
 * What is not a function of the inputs does not go into anything that is kept: which frames are
 * sent apart from numbered ones (welcomes, acknowledgements), and when.
 *
 * Threads: one.
 */
#ifndef HEAD_MACHINE_H
#define HEAD_MACHINE_H

#include "head/input.h"

struct head_machine;

struct head_machine_ops {
    /*
     * A whole frame. To a peer without a connection it goes nowhere: what is numbered is kept and
     * sent again.
     */
    void (*client_send)(void *user, uint64_t session, const uint8_t *bytes, size_t length);
    void (*worker_send)(void *user, uint32_t device, const uint8_t *bytes, size_t length);
    /* Kill and restart the worker; once a connection of its store: the core repeats it. */
    void (*fence)(void *user, const char *host, uint32_t host_device, uint32_t incarnation);
    /* Of these only the connection is left. */
    void (*session_ended)(void *user, uint64_t session);
    void (*worker_gone)(void *user, uint32_t device, const char *why);
    void (*node_gone)(void *user, const char *host, const char *why);
    /*
     * Ask the store of this host. What it does not answer is asked again at the next SPILL_UP.
     * NULL: there is no store that can.
     */
    void (*spill)(void *user, const char *host, const struct head_spill_op *op);
    uint64_t (*random64)(void *user);
    uint64_t (*cpu_ns)(void *user); /* for figures only; NULL: none */
    uint64_t (*now_ns)(void *user); /* the same: a clock that never goes back */
};

/* What decides how the head behaves, and therefore is in the journal. */
struct head_settings {
    uint64_t epoch;
    enum head_transfer transfer;
    uint32_t window;
    uint32_t retries;
    uint64_t credit;
    uint64_t lease_ms;
    uint64_t chain_bytes;
    uint64_t lineage_bytes;
    uint64_t shadow_bytes;
    uint64_t nccl_bytes;
    uint64_t reach_wait_ms;
    uint64_t node_lease_ms; /* a store that is away for longer is given up */
    const char *policy;
};

struct head_machine_config {
    const struct head_machine_ops *ops;
    void *user;
    bool record;
    bool digest; /* of everything numbered that was put out, for head_machine_digest() */
    uint64_t kept_bytes_max;        /* unacknowledged, to one peer */
    uint64_t client_kept_bytes_max; /* to a client; 0: as to any peer */
};

plasmon_status_t head_machine_create(const struct head_machine_config *config,
                                     struct head_machine **out_machine) PL_MUST_CHECK;
void head_machine_destroy(struct head_machine *machine);
/* Either begin, or replay batches of another head that did. EINVAL: no such policy. */
plasmon_status_t head_machine_begin(struct head_machine *machine,
                                    const struct head_settings *settings,
                                    struct pl_err *err) PL_MUST_CHECK;
/* Nothing is recorded meanwhile. EMALFORMED, EVERSION: these are not the batches of a head. */
plasmon_status_t head_machine_replay(struct head_machine *machine, const uint8_t *batch,
                                     size_t length, struct pl_err *err) PL_MUST_CHECK;

struct head_outcome {
    uint64_t session; /* CLIENT_OPEN */
    uint32_t device;  /* WORKER_UP */
    bool resumed;     /* NODE_UP, WORKER_UP: it goes on as it was */
    bool ended;       /* CLIENT_FRAME: not OK, and the session has been closed */
    /* WORKER_FRAME: the number of the question for figures that it answers; 0: none */
    uint64_t answered;
};
/*
 * Something happened. Not OK: the peer is to be refused with this text. The machine is in a defined
 * state all the same.
 */
plasmon_status_t head_machine_input(struct head_machine *machine,
                                    const struct head_input *input,
                                    struct head_outcome *out,
                                    struct pl_err *err) PL_MUST_CHECK;
/* Those that cannot fail. */
void head_machine_tick(struct head_machine *machine, uint64_t now_ms);
void head_machine_flush(struct head_machine *machine);

/* The records since the last one was taken, as a batch; lent until the next input. false: there are none. */
bool head_machine_batch_take(struct head_machine *machine, const uint8_t **out_bytes,
                             size_t *out_length);

/*
 * A checkpoint, which stands for all inputs so far: lent until the next one. NULL: it cannot be
 * made now, *out_why says why not. Call after a batch was taken. The machine goes on from what it
 * saved (its core is another one).
 */
const uint8_t *head_machine_checkpoint(struct head_machine *machine, size_t *out_length,
                                       const char **out_why);
/* Into a machine that has not begun. EMALFORMED, EVERSION. */
plasmon_status_t head_machine_load(struct head_machine *machine, const uint8_t *bytes,
                                   size_t length, struct pl_err *err) PL_MUST_CHECK;

/* -------------------------------------------------------------- what is put out besides */

/*
 * A welcome for who said hello last under this session or number, and after it all that it has not
 * acknowledged.
 */
void head_machine_client_welcome(struct head_machine *machine, uint64_t session,
                                 const char *host);
void head_machine_worker_welcome(struct head_machine *machine, uint32_t device);
/* Acknowledgements and credit that no frame has carried: all, or only what many are owed. */
void head_machine_acks(struct head_machine *machine, bool all, uint64_t credit_step);
/* An unnumbered frame with this body to every worker that is connected; how many. */
uint32_t head_machine_ask_workers(struct head_machine *machine, const uint8_t *body,
                                  size_t length);

/* ------------------------------------------------------------------------ looking at it */

struct head_core *head_machine_core(struct head_machine *machine);
uint64_t head_machine_epoch(const struct head_machine *machine);
uint64_t
head_machine_now_ms(const struct head_machine *machine); /* of the last input with a time */
const struct head_settings *head_machine_settings(const struct head_machine *machine);
bool head_machine_client_known(const struct head_machine *machine, uint64_t session);
bool head_machine_host_known(const struct head_machine *machine, const char *host);
/* Is this the memory that the host's store has registered? */
bool head_machine_memory_known(const struct head_machine *machine, const char *host,
                               uint64_t memory);
const char *head_machine_store_socket(const struct head_machine *machine,
                                      const char *host); /* "": there is none */
/* What its store was called when it joined; 0: none has. */
uint64_t head_machine_node_session(const struct head_machine *machine, const char *host);
bool head_machine_node_leaving(const struct head_machine *machine, const char *host);
/* A device's worker; false: none has said hello, or it is gone. */
bool head_machine_worker_where(const struct head_machine *machine, uint32_t device,
                               const char **out_host, uint32_t *out_host_device,
                               uint32_t *out_incarnation);
struct head_figures {
    uint64_t inputs;
    uint64_t core_ns;   /* CPU inside the core */
    uint64_t record_ns; /* CPU for recording */
};
void head_machine_figures(const struct head_machine *machine, struct head_figures *out);
/* What workers and stores were asked for this answer, some of whom may have said nothing since. */
struct head_asked {
    uint64_t request;
    uint64_t now_ms;
};
/*
 * The store of a host said something: answered: the question that this answers, 0: none. Changes
 * nothing that the machine puts out. true: it is the first answer to that question.
 */
bool head_machine_node_heard(struct head_machine *machine, const char *host,
                             uint64_t answered, uint64_t now_ms);
/* Who waits for what, for somebody on `host` ("": on none of them). Texts are lent until the next input. */
plasmon_status_t head_machine_waits(const struct head_machine *machine,
                                    struct wire_arena *arena,
                                    const struct head_asked *asked, const char *host,
                                    Plasmon__V1__Waits *out) PL_MUST_CHECK;
/*
 * A page of the nodes, as head_core_list_tasks() has them of tasks, those that left within the hour
 * last. confined: without what others do there.
 */
plasmon_status_t head_machine_list_nodes(const struct head_machine *machine,
                                         const Plasmon__V1__ListRequest *request,
                                         const struct head_asked *asked, bool confined,
                                         struct wire_arena *arena,
                                         Plasmon__V1__ListReply *out) PL_MUST_CHECK;
/*
 * A number that two machines with the same links have in common, and that have put out the same.
 * For tests.
 */
uint64_t head_machine_digest(const struct head_machine *machine);

#endif
