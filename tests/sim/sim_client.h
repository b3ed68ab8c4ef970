/* Clients of a simulated cluster (sim.h): what they ask for. */
#ifndef TESTS_SIM_SIM_CLIENT_H
#define TESTS_SIM_SIM_CLIENT_H

#include "tests/sim/sim_device.h"

struct sim_arg {
    uint32_t mode;
    uint64_t ref;
    bool viewed;
    struct pl_view view; /* in coordinates of what the ref shows */
    bool shaped;
    struct pl_shape shape;
    uint32_t reduce_op;
};
struct sim_task {
    uint64_t id;
    uint32_t kind; /* TaskKind */
    const char *function;
    struct sim_arg args[SIM_ARGS_MAX];
    uint32_t arg_count;
    union kernel_scalar scalars[KERNEL_SCALARS_MAX];
    uint32_t scalar_count;
    const uint8_t *data;
    size_t data_length;
    uint64_t put_offset;
    uint32_t place; /* 0: anywhere; device index + 1 */
    uint32_t retries;
    uint32_t time_limit_ms;
    bool donatable;
    uint64_t graph;        /* recorded in it; or which one ends, or is launched */
    struct sim_host *host; /* PUT_HOST, GET_HOST */
    /* COLLECTIVE: the first arguments are its members. */
    uint32_t collective; /* CollectiveKind */
    uint32_t way;        /* enum plasmon_collective_way */
    uint32_t reduction;
    uint32_t root;
    uint32_t results;
    uint32_t places[SIM_ARGS_MAX];
};

enum sim_answer_kind {
    SIM_ANSWER_TASK,
    SIM_ANSWER_DATA,
    SIM_ANSWER_MAPPING,
    SIM_ANSWER_PUT,
    SIM_ANSWER_REPLY,
};
/* Something that the head owes an answer for. */
struct sim_answer {
    enum sim_answer_kind kind;
    uint64_t id; /* task or request */
    bool answered;
    plasmon_status_t status;
    char text[480];
    uint64_t first_task;
    uint8_t *data; /* DATA, MAPPING, TASK that gets: owned */
    size_t length;
    /* REPLY to a lookup: the task that is over by it, unless it says otherwise; 0: none */
    uint64_t found;
    struct sim_host *host; /* TASK: of a copy from (data NULL) or to host memory */
    uint64_t buffer;       /* PUT */
    uint64_t asked_ns;
    uint64_t answered_ns;
    /* MAPPING: what was seen at the first look must stay. */
    struct pl_view view; /* root coordinates */
    struct pl_shape shape;
    struct pl_vec pins;    /* struct sim_pin */
    struct pl_vec pending; /* struct sim_pin: located, and not sealed at the first look */
    uint32_t tries;
    bool mapped;
};
struct sim_pin {
    struct sim_worker *worker;
    uint32_t slot;
    uint32_t generation;
    uint32_t pin;
    uint64_t offset;
    struct pl_box box;
    struct pl_box frame;
};

/* An encoded frame that waits for credit, or for the connection. */
struct sim_body {
    struct pl_list link;
    uint64_t ops;
    bool bye;
    size_t length;
    uint8_t data[];
};

/* The real libplasmon in the place of a client (sim_rpc.c). */
struct sim_library {
    void (*message)(struct sim_client *place, const uint8_t *data, size_t length);
    /* Its connection has ended. */
    void (*closed)(struct sim_client *place, plasmon_status_t status, const char *why);
};

struct sim_client {
    struct sim *sim;
    uint32_t index;
    const struct sim_library *library; /* NULL: frames are made by hand */
    void *library_user;                /* its connection; NULL: there is none */
    uint64_t seq_sent;                 /* the last frame of the session, so far */
    uint64_t lost_ns; /* when the head was told that the connection is gone; 0: it is not */
    uint32_t head_crashes; /* of the head that welcomed it last */
    const char *host;      /* where it runs */
    uint64_t copies_told;  /* HeadFrame.host_copies: even: not by devices of its host */
    bool dead;             /* crashed: it does nothing any more */
    bool said_bye;
    bool welcomed;
    bool connected;
    uint64_t life;
    uint64_t session;
    uint64_t id;
    uint64_t id_last; /* of refs, tasks and requests */
    struct wire_link link;
    struct sim_pipe to_head;
    struct sim_pipe from_head;
    struct sim_cut cut;
    uint64_t credit;
    uint64_t ops_sent;
    struct pl_list outbox; /* struct sim_body: encoded, not yet numbered */
    struct store_pins *pins;
    /* The frame that is being built. */
    struct wire_arena arena;
    struct pl_vec tasks; /* Plasmon__V1__Task * */
    Plasmon__V1__ClientFrame frame;
    struct pl_vec ranges;
    struct pl_vec locates;
    struct pl_vec reads;
    struct pl_vec cancels;
    struct pl_vec cancels_force;
    struct pl_vec graph_releases; /* uint64_t */
    struct pl_vec opens;
    struct pl_vec seals;
    struct pl_vec publishes;
    struct pl_vec lookups;
    uint32_t tail;         /* which kind of op the frame ends with; 0: tasks only */
    struct pl_map answers; /* id -> struct sim_answer */
    uint64_t waiting;      /* unanswered */
};

uint64_t sim_client_id(struct sim_client *client);
/* All of these are batched until sim_client_flush(). The answer stays until the simulation ends. */
/* Host memory with these bytes (NULL: noise) for one copy. */
struct sim_host *sim_host_create(struct sim *sim, const uint8_t *data, uint64_t bytes);
struct sim_answer *sim_client_task(struct sim_client *client, const struct sim_task *task);
/* A task of which nothing is told: recorded, or the end of a recording. */
void sim_client_record(struct sim_client *client, const struct sim_task *task);
void sim_client_graph_release(struct sim_client *client, uint64_t graph);
struct sim_answer *sim_client_read(struct sim_client *client, uint64_t ref,
                                   const struct pl_view *view, uint64_t bytes);
/*
 * Locate, pin, look. view: in the coordinates of what the ref shows, NULL for all of it; root: the
 * same in the coordinates of the array, with its shape. The answer is MAPPING; bytes are compared
 * again by sim_client_unmap().
 */
struct sim_answer *sim_client_map(struct sim_client *client, uint64_t ref,
                                  const struct pl_view *view, const struct pl_view *root,
                                  const struct pl_shape *shape, uint64_t hold_ref);
void sim_client_unmap(struct sim_client *client, struct sim_answer *mapping,
                      uint64_t hold_ref);
struct sim_answer *sim_client_put_open(struct sim_client *client, uint64_t ref,
                                       const struct pl_shape *shape, uint32_t place,
                                       bool donatable);
/* After the answer of put_open: write through the shared memory, then seal. */
void sim_client_put_write(struct sim_client *client, const struct sim_answer *open,
                          const uint8_t *data, uint64_t bytes);
void sim_client_put_seal(struct sim_client *client, uint64_t ref, bool abandon);
struct sim_answer *sim_client_publish(struct sim_client *client, const char *name,
                                      uint64_t ref);
/* *out_made: when what was found is made (TASK). */
struct sim_answer *sim_client_lookup(struct sim_client *client, const char *name,
                                     uint64_t new_ref, struct sim_answer **out_made);
void sim_client_release(struct sim_client *client, uint64_t ref);
void sim_client_cancel(struct sim_client *client, uint64_t task, bool force);
void sim_client_flush(struct sim_client *client);
/* What it was told last, and goes by from now on. */
void sim_client_heard(struct sim_client *client);
void sim_client_bye(struct sim_client *client);
void sim_client_crash(struct sim_client *client);
/* the connection; it comes back by itself */
void sim_client_break(struct sim_client *client);

/* sim_calls.c, sim_client.c and sim_mapping.c */
void sim_client_pump(struct sim_client *client); /* what there is credit for */
void sim_frame_clear(struct sim_client *client);
struct sim_answer *sim_client_answer(struct sim_client *client, uint64_t id,
                                     enum sim_answer_kind kind, plasmon_status_t status,
                                     const char *text);
void sim_client_located(struct sim_client *client, const Plasmon__V1__Located *located);
/* For sim_cluster.c. */
bool sim_queue_pop(struct sim *sim, struct sim_event *out);
void sim_client_start(struct sim_client *client, struct sim *sim, uint32_t index);
void sim_client_finish(struct sim_client *client);

#endif
