/*
 * Sessions, and what a client may ask for besides tasks: names, functions of its own, bytes in and
 * out, a timeline.
 */
#ifndef HEAD_CLIENT_H
#define HEAD_CLIENT_H

#include "head/object.h"

struct head_function;
struct head_wait;

struct head_client {
    uint64_t session;
    uint64_t id;
    struct head_space *space; /* held */
    char *label;
    char *host;
    bool lost;
    bool closing;
    bool tracing; /* it is sent spans */
    /* Told whether devices of its host copy for it (HeadFrame.host_copies), and what it has heard. */
    uint64_t host_copies, host_copies_heard;
    uint64_t lost_ms;
    uint64_t ops_taken;
    uint64_t tasks_open;
    struct pl_map refs;  /* id -> head_ref */
    struct pl_map tasks; /* id -> head_task, unfinished */
    /* head_task.client_link, in order: these, and launches of ours for it */
    struct pl_list unfinished;
    struct pl_map graphs;      /* id -> head_graph */
    struct pl_map groups;      /* id -> head_group, not resolved */
    struct pl_map functions;   /* the client's number -> head_function */
    struct pl_list reads_late; /* struct read_late, in order: wait for room (read.c) */
    uint64_t reads_bytes;      /* of reads that are begun and not answered */
    /* Outbox. */
    struct wire_ranges done;
    struct pl_vec failed;  /* struct head_failed */
    struct head_bytes out; /* other HeadFrame fields, encoded */
    struct pl_list link;
    bool dirty;
    struct pl_list dirty_link;
};

struct head_failed {
    uint64_t task;
    struct head_failure *failure;
};

/* A session that stops recording, once it was told all that is over; trace.c. */
struct head_trace_wait {
    uint64_t session;
    uint64_t request; /* of the client */
    uint64_t number;  /* towards the workers */
    uint32_t missing; /* workers that have not answered */
    uint64_t since_ms;
};

struct head_name {
    char *key; /* namespace, NUL, name: key_length bytes, and a NUL behind them */
    size_t key_length;
    uint64_t number; /* 1, 2, 3 .. in the order of core->names */
    struct head_ref ref;
    struct pl_list link;
    uint64_t hash;
    struct head_name *same; /* another one with that hash */
};

/* ---- client.c */
/* One of a checkpoint; texts are copied. NULL: there is one with this session. */
struct head_client *head_client_restore(struct head_core *core, uint64_t session,
                                        uint64_t id, const char *name_space,
                                        const char *label, const char *host);
struct head_ref *head_client_ref(struct head_client *client, uint64_t id);
plasmon_status_t head_client_ref_get(struct head_client *client, uint64_t id,
                                     uint64_t owner, struct head_ref **out_ref,
                                     struct pl_err *err);
/* Takes the array reference. EEXIST when the id is taken. */
plasmon_status_t head_client_ref_add(struct head_core *core, struct head_client *client,
                                     uint64_t id, struct head_array *array,
                                     const struct pl_view *base, struct pl_err *err);
/* What a view given by a client shows, in root coordinates. */
plasmon_status_t head_ref_view(const struct head_ref *ref, size_t n, const int64_t *numbers,
                               struct pl_view *out, struct pl_err *err);
/* A task of it, or a group, is submitted; is resolved. */
void head_client_task_begun(struct head_client *client);
void head_client_task_over(struct head_client *client);
void head_client_dirty(struct head_core *core, struct head_client *client);
void head_client_done(struct head_core *core, struct head_client *client, uint64_t task);
void head_client_failed(struct head_core *core, struct head_client *client, uint64_t task,
                        struct head_failure *failure);
/*
 * Send what there is for the client if it is much: a frame has a largest size. After adding what
 * may be long.
 */
void head_client_spill(struct head_core *core, struct head_client *client);
void head_client_flush(struct head_core *core, struct head_client *client);
/* The answer to a request. */
void head_reply(struct head_core *core, struct head_client *client, uint64_t request,
                plasmon_status_t status, const char *text);
/* To a lookup. */
void head_reply_found(struct head_core *core, struct head_client *client, uint64_t request,
                      const struct pl_shape *shape, bool pending);

/* ---- name.c */
void head_name_publish(struct head_core *core, struct head_client *client,
                       const Plasmon__V1__Publish *wire);
void head_name_lookup(struct head_core *core, struct head_client *client,
                      const Plasmon__V1__Lookup *wire);
void head_names_destroy(struct head_core *core);
/* One of a checkpoint, whose key and array are set; taken. false: there is one of that key. */
bool head_name_add(struct head_core *core, struct head_name *name);
/*
 * The first whose number is not smaller; NULL: there is none. A search through all of them only if
 * just that one has gone.
 */
struct head_name *head_name_from(const struct head_core *core, uint64_t number);
/* The one after it; NULL: it is the last. */
struct head_name *head_name_next(const struct head_core *core,
                                 const struct head_name *name);
void head_names_check(const struct head_core *core);

/* ---- found.c */
/*
 * The array was looked up. true: it is not made yet, or has failed; then the client is told how it
 * ends, by this number. 0: it does not ask.
 */
bool head_found_await(struct head_core *core, struct head_client *client, uint64_t task,
                      struct head_array *array);
/* Of tasks that make it there is one less, it has failed, or nobody can reach it any more. */
void head_found_settle(struct head_core *core, struct head_tile *tile);
void head_found_check(const struct head_core *core);
void head_found_destroy(struct head_core *core);

/* ---- host_copy.c */
plasmon_status_t head_host_put(struct head_core *core, struct head_client *client,
                               const Plasmon__V1__Task *task, struct pl_err *err);
plasmon_status_t head_host_get(struct head_core *core, struct head_client *client,
                               const Plasmon__V1__Task *task, struct pl_err *err);
/* Of a client that is about to be welcomed: what it goes by. */
void head_host_copies_begin(struct head_core *core, struct head_client *client);
/* Devices of the host came, are gone, are drained or not any more: its clients are told. */
void head_host_copies_tell(struct head_core *core, const char *host);
/* Do all of them go by what they were told last? */
bool head_host_copies_heard(const struct head_core *core, const char *host);

/* ---- put.c, read.c, wait.c */
/* What is put, all but its bytes. */
struct head_put {
    uint64_t ref; /* the client's name for it */
    struct pl_shape shape;
    uint32_t place;   /* as in head_place() */
    const char *host; /* as in head_want */
    bool donatable;
    const char *label;
};
/*
 * A new array with one buffer, in which nothing is yet. *out_tile is the caller's. Not OK: the ref
 * may exist all the same, failed.
 */
plasmon_status_t head_put_array(struct head_core *core, struct head_client *client,
                                const struct head_put *put, struct head_buffer **out_buffer,
                                struct head_tile **out_tile, struct head_array **out_array,
                                struct pl_err *err);
/*
 * The elements that a view shows, copied into an array of their own (on a device of the hint, as in
 * head_place(), also one that is drained). NULL: *out_failure.
 */
struct head_array *head_read_compact(struct head_core *core, struct head_array *array,
                                     const struct pl_view *view, uint32_t place,
                                     struct head_failure **out_failure);
/*
 * An array just made for a put, and whether its client wants a second copy. Not OK: there is no
 * place for one; the array has failed, and the tile is released.
 */
plasmon_status_t head_put_admit_second(struct head_core *core, struct head_array *array,
                                       struct head_tile *tile, bool replica,
                                       struct pl_err *err);
plasmon_status_t head_put(struct head_core *core, struct head_client *client,
                          const Plasmon__V1__Task *task, struct pl_err *err);
plasmon_status_t head_put_open(struct head_core *core, struct head_client *client,
                               const Plasmon__V1__PutOpen *open, struct pl_err *err);
plasmon_status_t head_put_seal(struct head_core *core, struct head_client *client,
                               const Plasmon__V1__PutSeal *seal, struct pl_err *err);
plasmon_status_t head_read_locate(struct head_core *core, struct head_client *client,
                                  const Plasmon__V1__Locate *locate, struct pl_err *err);
plasmon_status_t head_read(struct head_core *core, struct head_client *client,
                           const Plasmon__V1__Read *read, struct pl_err *err);
/* Reads that have waited begin, as many as there is room for. */
void head_reads_resume(struct head_core *core, struct head_client *client);
void head_reads_forget(struct head_core *core, struct head_client *client);
void head_read_arrived(struct head_core *core, const Plasmon__V1__WorkerData *data);
void head_wait_ended(struct head_core *core, struct head_wait *wait,
                     struct head_failure *failure); /* one of its tasks */
void head_waits_destroy(struct head_core *core);

/* ---- function.c */
plasmon_status_t head_function_define(struct head_core *core, struct head_client *client,
                                      const Plasmon__V1__FunctionDefine *define,
                                      struct pl_err *err);
/* What a client calls by this number; NULL: it has defined nothing so. */
struct head_function *head_function_of(const struct head_client *client, uint32_t number);
uint32_t head_function_id(const struct head_function *function); /* for workers */
const char *head_function_name(const struct head_function *function);
/* For calls of it that may be run again, whoever made them. */
void head_function_hold(struct head_function *function);
void head_function_release(struct head_core *core, struct head_function *function);
bool head_function_runs_on(const struct head_function *function,
                           const struct head_device *device);
/* Why no device of the cluster runs it; NULL: one does. */
struct head_failure *head_function_nowhere(struct head_core *core,
                                           const struct head_function *function);
/* Ahead of what follows; once a worker. */
void head_function_tell(struct head_core *core, struct head_device *device,
                        const struct head_function *function);
void head_function_tell_id(struct head_core *core, struct head_device *device, uint32_t id);
void head_functions_tell_again(struct head_core *core,
                               struct head_device *device); /* a worker began anew */
void head_functions_flush(struct head_device *device);      /* frees, into the outbox */
void head_function_wait(struct head_core *core, struct head_client *client,
                        const Plasmon__V1__FunctionWait *wire);
void head_function_report(struct head_core *core, struct head_device *device,
                          const Plasmon__V1__FunctionReport *report);
void head_functions_look_again(struct head_core *core); /* devices came or went */
void head_functions_release(struct head_core *core, struct head_client *client);
void head_functions_reap(struct head_core *core);
void head_functions_destroy(struct head_core *core);
struct head_function *head_function_by_id(struct head_core *core, uint32_t id);

/* ---- trace.c */
void head_trace_switch(struct head_core *core, struct head_client *client,
                       const Plasmon__V1__Trace *trace);
void head_trace_joined(struct head_core *core, struct head_device *device);
void head_trace_spans(struct head_core *core, struct head_device *device,
                      Plasmon__V1__SpanBatch *batch);
/* who waits for a worker that does not answer */
void head_trace_tick(struct head_core *core);
void head_trace_forget(struct head_core *core, struct head_client *client); /* it ended */

#endif
