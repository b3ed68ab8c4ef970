/*
 * A call on its way: what submit.c, index.c (many instances of a call) and graph.c (a call that is
 * recorded) share.
 *
 * Under the client's lock in three steps: look (no side effects), make (refs, tasks; undone on
 * failure), send (cannot fail half-way).
 */
#ifndef CLIENT_SUBMIT_INT_H
#define CLIENT_SUBMIT_INT_H

#include "client/client_int.h"

/* One argument while the call is being looked at. */
struct submit_arg {
    struct ref_slot *slot; /* NULL: OUT of a new ref, SCRATCH */
    struct root *made;     /* OUT of a new ref */
    struct pl_view view;   /* of slot, when it is one */
    struct pl_box hull;
    bool whole;
};

/* Room for the arguments of one call; grows, never shrinks. Guarded by the client's lock. */
struct submit_scratch {
    struct pl_vec args;   /* struct submit_arg */
    struct pl_vec shapes; /* struct kernel_arg_shape */
    struct pl_vec wire;   /* struct frame_arg */
    struct pl_vec refs;   /* struct plasmon_ref *: what was made */
};

/* A call on its way through the steps. */
struct submit {
    struct plasmon_client *client;
    const struct plasmon_call *call;
    const struct kernel_function *function;
    uint32_t function_id; /* on the wire */
    bool shaped;
    uint32_t launch_shape[WIRE_LAUNCH_SHAPE_COUNT]; /* when shaped */
    struct submit_arg *args;
    struct kernel_arg_shape *shapes;
    uint32_t new_count; /* OUT of new refs */
    union kernel_scalar scalars[KERNEL_SCALARS_MAX];
    uint64_t id;
    struct task *task;
    struct root *task_root; /* out_task */
};

/* A copy of the caller's struct in today's size, with defaults for what it does not have. */
plasmon_status_t submit_take_call(const struct plasmon_call *call,
                                  struct plasmon_call *out) PL_MUST_CHECK;
/* What needs no lock. */
plasmon_status_t submit_check_call(const struct plasmon_call *call) PL_MUST_CHECK;
bool submit_writes(plasmon_mode_t mode);

/* --- look: submit_look.c. The function, built in or defined by this session, and the launch shape: first. */
plasmon_status_t submit_find_function(struct submit *submit) PL_MUST_CHECK;
/* No argument with steps goes to a function that takes it without gaps. */
plasmon_status_t submit_check_gaps(const struct submit *submit) PL_MUST_CHECK;
/* Room for the arguments of the call in args and shapes. */
plasmon_status_t submit_room(struct submit *submit) PL_MUST_CHECK;
plasmon_status_t submit_look_at_arg(struct submit *submit, uint32_t index) PL_MUST_CHECK;
plasmon_status_t submit_check_aliasing(const struct submit *submit) PL_MUST_CHECK;
plasmon_status_t submit_check_sizes(const struct submit *submit) PL_MUST_CHECK;

/* All of these, for a call that is one task. */
plasmon_status_t submit_look(struct submit *submit) PL_MUST_CHECK;

/* --- make. shape NULL: a task's future. */
plasmon_status_t submit_make_ref(struct submit *submit, struct submit_arg *arg,
                                 const struct pl_shape *shape) PL_MUST_CHECK;
enum write_effect submit_effect_of(const struct plasmon_arg *arg,
                                   const struct submit_arg *at);
/* The task, if any, and every ref in scratch->refs. */
void submit_undo_make(struct submit *submit);

/* --- send. The call as a task of the wire; its arguments are in scratch->wire. */
plasmon_status_t submit_frame(struct submit *submit,
                              struct frame_task *out_task) PL_MUST_CHECK;
void submit_hand_out(struct submit *submit, struct plasmon_ref **out_refs,
                     struct plasmon_ref **out_task);

#endif
