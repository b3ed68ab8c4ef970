/*
 * Calls. What a call makes gets its ids here, so that submitting needs no round trip.
 *
 * Under the client's lock in three steps: look (submit_look.c, no side effects), make (refs, task;
 * undone on failure), send (cannot fail half-way).
 */
#include <string.h>

#include "base/alloc.h"
#include "client/graph.h"
#include "client/submit_int.h"

struct submit_scratch *submit_scratch_create(void)
{
    struct submit_scratch *scratch = PL_NEW(struct submit_scratch);

    if (scratch != NULL) {
        scratch->args   = PL_VEC_INIT(struct submit_arg);
        scratch->shapes = PL_VEC_INIT(struct kernel_arg_shape);
        scratch->wire   = PL_VEC_INIT(struct frame_arg);
        scratch->refs   = PL_VEC_INIT(struct plasmon_ref *);
    }
    return scratch;
}

void submit_scratch_destroy(struct submit_scratch *scratch)
{
    if (scratch == NULL) {
        return;
    }
    pl_vec_finish(&scratch->args);
    pl_vec_finish(&scratch->shapes);
    pl_vec_finish(&scratch->wire);
    pl_vec_finish(&scratch->refs);
    pl_free(scratch);
}

/* --------------------------------------------------------------------------------- make */

plasmon_status_t submit_make_ref(struct submit *submit, struct submit_arg *arg,
                                 const struct pl_shape *shape)
{
    struct refs *refs        = &submit->client->refs;
    struct plasmon_ref **ref = pl_vec_push(&submit->client->scratch->refs);

    if (ref == NULL) {
        return PLASMON_ENOMEM;
    }
    arg->made = root_create(refs, refs_draw_ref(refs), shape);
    if (arg->made == NULL) {
        pl_vec_pop(&submit->client->scratch->refs);
        return PLASMON_ENOMEM;
    }
    *ref = refs_open(refs, arg->made, NULL);
    if (*ref == NULL) {
        root_drop(refs, arg->made);
        pl_vec_pop(&submit->client->scratch->refs);
        return PLASMON_ENOMEM;
    }
    return PLASMON_OK;
}

enum write_effect submit_effect_of(const struct plasmon_arg *arg,
                                   const struct submit_arg *at)
{
    if (arg->mode == PLASMON_INOUT) {
        return WRITE_UPDATES;
    }
    return arg->mode == PLASMON_OUT && (at->whole || pl_view_dense(&at->view))
               ? WRITE_OVERWRITES
               : WRITE_ADDS;
}

/*
 * The refs that the call makes, and the task with all that it writes. On failure submit_undo_make()
 * follows.
 */
static plasmon_status_t make(struct submit *submit, bool with_task_ref)
{
    const struct plasmon_call *call = submit->call;
    struct refs *refs               = &submit->client->refs;
    plasmon_status_t status         = PLASMON_OK;

    pl_vec_clear(&submit->client->scratch->refs);
    submit->id   = refs_draw_task(refs);
    submit->task = task_create(refs, submit->id, submit->function->name, call->label);
    if (submit->task == NULL) {
        return PLASMON_ENOMEM;
    }
    for (uint32_t i = 0; i < call->arg_count && status == PLASMON_OK; i++) {
        struct submit_arg *arg = &submit->args[i];

        if (!submit_writes(call->args[i].mode)) {
            continue;
        }
        if (arg->slot == NULL) {
            status = submit_make_ref(submit, arg, &submit->shapes[i].shape);
            if (status != PLASMON_OK) {
                break;
            }
        }
        status = task_writes(submit->task, arg->made != NULL ? arg->made : arg->slot->root,
                             arg->whole ? NULL : &arg->hull,
                             submit_effect_of(&call->args[i], arg));
    }
    if (status == PLASMON_OK && with_task_ref) {
        struct submit_arg future = {0};

        status = submit_make_ref(submit, &future, NULL);
        if (status == PLASMON_OK) {
            submit->task_root     = future.made;
            submit->task_root->id = submit->id;
            status = task_writes(submit->task, submit->task_root, NULL, WRITE_ADDS);
        }
    }
    return status;
}

void submit_undo_make(struct submit *submit)
{
    struct refs *refs    = &submit->client->refs;
    struct pl_vec *made  = &submit->client->scratch->refs;
    struct pl_err unused = {0};

    if (submit->task != NULL) {
        task_abandon(refs, submit->task);
    }
    for (size_t i = 0; i < made->count; i++) {
        struct plasmon_ref *ref = *(struct plasmon_ref **)pl_vec_at(made, i);
        struct ref_slot *slot;
        uint64_t id;
        bool at_once;

        if (refs_find(refs, ref, &slot, &unused) == PLASMON_OK) {
            (void)refs_close(refs, ref, slot, &id,
                             &at_once); /* the head never heard of it */
        }
    }
}

/* --------------------------------------------------------------------------------- send */

static bool is_dense(const struct submit *submit, uint32_t index)
{
    const struct kernel_signature *signature = kernel_signature_of(submit->function);

    return signature != NULL && !signature->slots[signature->tensor_slot[index]].strided;
}

plasmon_status_t submit_frame(struct submit *submit, struct frame_task *out_task)
{
    const struct plasmon_call *call = submit->call;
    struct pl_vec *wire             = &submit->client->scratch->wire;
    struct frame_arg *args          = NULL;
    struct frame_task task          = {
                 .id               = submit->id,
                 .kind             = PLASMON__V1__TASK_KIND__TASK_RUN,
                 .function         = submit->function_id,
                 .arg_count        = call->arg_count,
                 .scalars          = &submit->scalars[0].bits,
                 .scalar_count     = call->scalar_count,
                 .label            = call->label,
                 .place            = (uint32_t)(call->device + 1),
                 .retries          = call->retries < 0 ? 0 : (uint32_t)call->retries + 1,
                 .time_limit_ms    = call->time_limit_ms,
                 .priority         = call->priority,
                 .function_retries = call->function_retries,
                 .submit_ns        = submit->client->trace.on ? pl_realtime_ns() : 0,
                 .launch_shape     = submit->shaped ? submit->launch_shape : NULL,
    };

    pl_vec_clear(wire);
    if (call->arg_count > 0) {
        args = pl_vec_push_n(wire, call->arg_count);
        if (args == NULL) {
            return PLASMON_ENOMEM;
        }
    }
    for (uint32_t i = 0; i < call->arg_count; i++) {
        const struct submit_arg *arg = &submit->args[i];

        args[i] = (struct frame_arg){
            .mode      = (uint32_t)call->args[i].mode,
            .ref       = arg->slot != NULL   ? arg->slot->root->id
                         : arg->made != NULL ? arg->made->id
                                             : 0,
            .view      = arg->whole ? NULL : &arg->view,
            .shape     = arg->slot == NULL ? &submit->shapes[i].shape : NULL,
            .reduce_op = call->args[i].mode == PLASMON_REDUCE
                             ? (uint32_t)call->args[i].reduce_op
                             : 0,
            .relaxed   = call->args[i].mode == PLASMON_REDUCE && call->args[i].relaxed != 0,
            .dense     = is_dense(submit, i),
        };
    }
    task.args = args;
    *out_task = task;
    return PLASMON_OK;
}

void submit_hand_out(struct submit *submit, struct plasmon_ref **out_refs,
                     struct plasmon_ref **out_task)
{
    struct plasmon_ref **made = submit->client->scratch->refs.items;

    for (uint32_t i = 0; i < submit->new_count; i++) {
        out_refs[i] = made[i];
    }
    if (out_task != NULL) {
        *out_task = made[submit->new_count];
    }
}

static plasmon_status_t submit_locked(struct submit *submit, struct plasmon_ref **out_refs,
                                      struct plasmon_ref **out_task)
{
    struct session *session = &submit->client->session;
    struct plasmon_graph *recording;
    struct frame_task task;
    /* may let go of the lock: first */
    plasmon_status_t status = session_room_locked(submit->client, 1, FRAME_TASK);

    if (status == PLASMON_OK) {
        status = submit_look(submit);
    }
    if (status != PLASMON_OK) {
        return status;
    }
    if (submit->new_count > 0 && out_refs == NULL) {
        return error_set(PLASMON_EINVAL, "%s makes new refs (%u) and out_refs is NULL",
                         submit->call->function, submit->new_count);
    }

    recording = graph_recording_locked(submit->client);
    if (recording != NULL) {
        status = graph_record_locked(recording, submit, out_task != NULL);
        if (status == PLASMON_OK) {
            submit_hand_out(submit, out_refs, NULL);
        }
        return status;
    }
    status = make(submit, out_task != NULL);
    if (status == PLASMON_OK) {
        status = submit_frame(submit, &task);
    }
    if (status == PLASMON_OK) {
        status = frame_add_task(&session->frame, &task);
    }
    if (status != PLASMON_OK) {
        submit_undo_make(submit);
        return error_set(status, "%s: %s", submit->call->function, pl_status_text(status));
    }
    task_commit(&submit->client->refs, submit->task);
    session->tasks_sent++;
    session_kick_locked(submit->client);
    submit_hand_out(submit, out_refs, out_task);
    return PLASMON_OK;
}

plasmon_status_t submit_take_call(const struct plasmon_call *call, struct plasmon_call *out)
{
    const struct plasmon_call defaults = PLASMON_CALL_INIT;

    if (call == NULL || call->size < offsetof(struct plasmon_call, label)) {
        return error_set(
            PLASMON_EINVAL,
            "call is NULL, or its size is not set: start from PLASMON_CALL_INIT");
    }
    *out = defaults;
    memcpy(out, call, call->size < sizeof(*out) ? call->size : sizeof(*out));
    return PLASMON_OK;
}

plasmon_status_t plasmon_submit(struct plasmon_client *client,
                                const struct plasmon_call *user_call,
                                struct plasmon_ref **out_refs,
                                struct plasmon_ref **out_task)
{
    struct submit submit = {.client = client};
    struct plasmon_call call;
    plasmon_status_t status = client_enter(client);

    if (status == PLASMON_OK) {
        status = submit_take_call(user_call, &call);
    }
    if (status == PLASMON_OK) {
        status = submit_check_call(&call);
    }
    if (status != PLASMON_OK) {
        return status;
    }

    submit.call = &call;
    pl_mutex_lock(&client->lock);
    status = submit_locked(&submit, out_refs, out_task);
    pl_mutex_unlock(&client->lock);
    if (status == PLASMON_ETOOBIG && !client_on_loop_thread(client) &&
        client_refresh_devices(client, client->unary_ms) ==
            PLASMON_OK) { /* a larger device may have come since we were told */
        pl_mutex_lock(&client->lock);
        status = submit_locked(&submit, out_refs, out_task);
        pl_mutex_unlock(&client->lock);
    }
    return status;
}
