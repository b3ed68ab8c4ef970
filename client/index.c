/*
 * Index launch: one call, one message, an instance for each point of an index space.
 *
 * Here every instance is looked at like a call of its own - views, shapes, aliasing, scalars - so
 * that a mapping that does not fit fails at the call with the index in the text; and each has a
 * task of its own, so that what is ready and what failed is known by the part. Only the message is
 * one: the base of each view and its steps, from which the head makes the same instances again.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "client/graph.h"

/* A call over an index space, on its way. */
struct expansion {
    struct submit submit;
    struct plasmon_index_space space;
    uint32_t total;
    int64_t *steps; /* an argument: PL_DIM_MAX * ndim, in elements of the root */
    uint64_t float_scalars;
    struct pl_vec tasks; /* struct task * */
    struct pl_vec made;  /* struct root *: by new output */
};

/* ---------------------------------------------------------------------------- the space */

static plasmon_status_t take_space(const struct plasmon_index_space *space,
                                   struct expansion *out)
{
    const struct plasmon_index_space defaults = PLASMON_INDEX_SPACE_INIT;
    uint64_t total                            = 1;

    if (space == NULL || space->size < offsetof(struct plasmon_index_space, spread)) {
        return error_set(PLASMON_EINVAL,
                         "space is NULL, or its size is not set: start from "
                         "PLASMON_INDEX_SPACE_INIT");
    }
    out->space = defaults;
    memcpy(&out->space, space,
           space->size < sizeof(out->space) ? space->size : sizeof(out->space));
    if (out->space.ndim == 0 || out->space.ndim > PLASMON_INDEX_DIM_MAX) {
        return error_set(PLASMON_EINVAL,
                         "the index space has %u dimensions; it has 1 to %d",
                         out->space.ndim, PLASMON_INDEX_DIM_MAX);
    }
    for (uint32_t k = 0; k < out->space.ndim; k++) {
        total *= out->space.count[k];
        if (total == 0 || total > WIRE_INDEX_MAX) {
            return error_set(PLASMON_ELIMIT,
                             "count[%u] is %u: an index space has 1 to %u points", k,
                             out->space.count[k], WIRE_INDEX_MAX);
        }
    }
    if ((unsigned)out->space.spread > PLASMON_SPREAD_ROUND_ROBIN) {
        return error_set(PLASMON_EINVAL,
                         "space.spread is %d; it is 0 (none), 1 (block) or 2 (round robin)",
                         (int)out->space.spread);
    }
    out->total = (uint32_t)total;
    return PLASMON_OK;
}

static void point_of(const struct expansion *exp, uint32_t number,
                     int64_t out_point[PLASMON_INDEX_DIM_MAX])
{
    for (uint32_t k = exp->space.ndim; k-- > 0;) {
        out_point[k] = number % exp->space.count[k];
        number /= exp->space.count[k];
    }
}

/* The failure at hand, with the index before it. */
static plasmon_status_t at_index(const struct expansion *exp, const int64_t *point,
                                 plasmon_status_t status)
{
    char text[512], where[96];
    int length = snprintf(where, sizeof(where), "index (%lld", (long long)point[0]);

    for (uint32_t k = 1; k < exp->space.ndim; k++) {
        length += snprintf(where + length, sizeof(where) - (size_t)length, ", %lld",
                           (long long)point[k]);
    }
    (void)snprintf(text, sizeof(text), "%s", plasmon_error(exp->submit.client));
    return error_set(status, "%s): %s", where, text);
}

static const struct plasmon_index_view *mapping_of(const struct expansion *exp,
                                                   uint32_t arg)
{
    return exp->space.views != NULL ? exp->space.views[arg] : NULL;
}

/* ---------------------------------------------------------------------------- one point */

/* The mapped part at this point, in coordinates of what the argument shows. */
static struct pl_view part_at(const struct expansion *exp,
                              const struct plasmon_index_view *mapping, uint32_t ndim,
                              const int64_t *point)
{
    struct pl_view part = {.ndim = ndim};

    for (uint32_t d = 0; d < ndim; d++) {
        part.start[d] = mapping->start[d];
        part.count[d] = mapping->count[d];
        part.step[d]  = mapping->step[d] == 0 ? 1 : mapping->step[d];
        for (uint32_t k = 0; k < exp->space.ndim; k++) {
            int64_t moved;

            /* What overflows is out of range anyway; the check that follows says so. */
            if (__builtin_mul_overflow(mapping->step_of[d][k], point[k], &moved) ||
                __builtin_add_overflow(part.start[d], moved, &part.start[d])) {
                part.start[d] = -1;
                return part;
            }
        }
    }
    return part;
}

static plasmon_status_t arg_map(struct expansion *exp, uint32_t index, const int64_t *point)
{
    const struct plasmon_index_view *mapping = mapping_of(exp, index);
    struct submit *submit                    = &exp->submit;
    struct submit_arg *arg                   = &submit->args[index];
    struct kernel_arg_shape *shape           = &submit->shapes[index];
    struct pl_err err                        = {0};
    struct pl_view outer, part;
    plasmon_status_t status;

    if (mapping == NULL) {
        if (arg->slot == NULL && submit->call->args[index].mode == PLASMON_OUT) {
            return error_set(PLASMON_EINVAL,
                             "%s: args[%u]: a new output of an index launch needs a view: "
                             "what does each instance write?",
                             submit->call->function, index);
        }
        return PLASMON_OK;
    }
    if (!shape->given || submit->call->args[index].mode == PLASMON_SCRATCH) {
        return error_set(
            PLASMON_EINVAL,
            "%s: args[%u]: a view needs a ref, or args[].shape of the new array",
            submit->call->function, index);
    }
    part   = part_at(exp, mapping, shape->shape.ndim, point);
    status = pl_view_check(&part, &shape->shape, &err);
    if (status == PLASMON_OK && arg->slot == NULL && !pl_view_dense(&part)) {
        status = pl_err_set(&err, PLASMON_EINVAL,
                            "an instance writes its part of a new array with steps of 1");
    }
    if (status == PLASMON_OK) {
        outer  = arg->slot != NULL ? slot_view(arg->slot) : pl_view_whole(&shape->shape);
        status = pl_view_compose(&outer, &part, &arg->view, &err);
    }
    if (status != PLASMON_OK) {
        return error_set(status, "%s: args[%u]: %s", submit->call->function, index,
                         err.text);
    }
    shape->shape = pl_view_shape(&part, shape->shape.dtype);
    arg->hull    = pl_view_hull(&arg->view);
    arg->whole   = false;
    return PLASMON_OK;
}

/* As the head computes it: one product and one sum after the other. */
static void scalars_map(struct expansion *exp, const int64_t *point)
{
    const struct plasmon_call *call = exp->submit.call;

    for (uint32_t i = 0; i < call->scalar_count; i++) {
        union kernel_scalar *scalar = &exp->submit.scalars[i];

        memcpy(scalar, &call->scalars[i], sizeof(*scalar));
        for (uint32_t k = 0; exp->space.scalar_steps != NULL && k < exp->space.ndim; k++) {
            plasmon_scalar_t step = exp->space.scalar_steps[i * exp->space.ndim + k];

            if ((exp->float_scalars >> i & 1) != 0) {
                scalar->f += step.f * (double)point[k];
            } else {
                scalar->bits += (uint64_t)step.i * (uint64_t)point[k];
            }
        }
    }
}

static plasmon_status_t look_at_point(struct expansion *exp, const int64_t *point)
{
    struct submit *submit   = &exp->submit;
    struct pl_err err       = {0};
    plasmon_status_t status = PLASMON_OK;

    submit->new_count = 0;
    for (uint32_t i = 0; status == PLASMON_OK && i < submit->call->arg_count; i++) {
        status = submit_look_at_arg(submit, i);
        if (status == PLASMON_OK) {
            status = arg_map(exp, i, point);
        }
    }
    if (status != PLASMON_OK) {
        return status;
    }
    scalars_map(exp, point);
    status = kernel_check(submit->function, submit->shapes, submit->call->arg_count,
                          submit->scalars, submit->call->scalar_count, &err);
    if (status != PLASMON_OK) {
        return error_from(&err, status);
    }
    status = submit_check_gaps(submit);
    if (status == PLASMON_OK) {
        status = submit_check_aliasing(submit);
    }
    return status == PLASMON_OK ? submit_check_sizes(submit) : status;
}

/* Bit i: scalar i is a double. */
static uint64_t float_set(const struct kernel_function *function)
{
    uint64_t set      = 0;
    uint32_t position = 0;

    for (uint32_t i = 0; i < function->param_count; i++) {
        if (function->params[i].scalar) {
            set |= (uint64_t)!function->params[i].is_integer << position++;
        }
    }
    return set;
}

/* --------------------------------------------------------------------------------- make */

/* The arrays that instances write views of; a future for all. */
static plasmon_status_t make_refs(struct expansion *exp, bool with_task_ref)
{
    struct submit *submit   = &exp->submit;
    plasmon_status_t status = PLASMON_OK;

    pl_vec_clear(&submit->client->scratch->refs);
    for (uint32_t i = 0; status == PLASMON_OK && i < submit->call->arg_count; i++) {
        const struct plasmon_shape *stated = submit->call->args[i].shape;
        struct submit_arg made             = {0};
        struct root **place;
        struct pl_shape shape;

        if (submit->call->args[i].mode != PLASMON_OUT || submit->args[i].slot != NULL) {
            continue;
        }
        shape = (struct pl_shape){.dtype = (uint32_t)stated->dtype, .ndim = stated->ndim};
        memcpy(shape.dim, stated->dim, stated->ndim * sizeof(shape.dim[0]));
        status = submit_make_ref(submit, &made, &shape);
        place  = status == PLASMON_OK ? pl_vec_push(&exp->made) : NULL;
        if (place == NULL) {
            return PLASMON_ENOMEM;
        }
        *place = made.made;
    }
    if (status == PLASMON_OK && with_task_ref) {
        struct submit_arg future = {0};

        status            = submit_make_ref(submit, &future, NULL);
        submit->task_root = future.made;
    }
    return status;
}

static plasmon_status_t make_task(struct expansion *exp, uint64_t id)
{
    struct submit *submit = &exp->submit;
    struct task **place   = pl_vec_push(&exp->tasks);
    size_t made           = 0;
    struct task *task;
    plasmon_status_t status = PLASMON_OK;

    if (place == NULL) {
        return PLASMON_ENOMEM;
    }
    task =
        task_create(&submit->client->refs, id, submit->function->name, submit->call->label);
    if (task == NULL) {
        pl_vec_pop(&exp->tasks);
        return PLASMON_ENOMEM;
    }
    *place = task;
    for (uint32_t i = 0; status == PLASMON_OK && i < submit->call->arg_count; i++) {
        const struct submit_arg *arg = &submit->args[i];
        struct root *root            = arg->slot != NULL ? arg->slot->root : NULL;

        if (!submit_writes(submit->call->args[i].mode)) {
            continue;
        }
        if (root == NULL) {
            root = *(struct root **)pl_vec_at(&exp->made, made++);
        }
        status = task_writes(task, root, arg->whole ? NULL : &arg->hull,
                             submit_effect_of(&submit->call->args[i], arg));
    }
    if (status == PLASMON_OK && submit->task_root != NULL) {
        submit->task_root->id = id; /* the last one's, in the end: what a cancel names */
        status                = task_writes(task, submit->task_root, NULL, WRITE_ADDS);
    }
    return status;
}

static void undo(struct expansion *exp)
{
    for (size_t i = 0; i < exp->tasks.count; i++) {
        task_abandon(&exp->submit.client->refs, *(struct task **)pl_vec_at(&exp->tasks, i));
    }
    pl_vec_clear(&exp->tasks);
    submit_undo_make(&exp->submit);
}

static plasmon_status_t make_all(struct expansion *exp, bool with_task_ref)
{
    plasmon_status_t status = make_refs(exp, with_task_ref);
    int64_t point[PLASMON_INDEX_DIM_MAX];

    exp->submit.id = refs_draw_tasks(&exp->submit.client->refs, exp->total);
    for (uint32_t i = 0; status == PLASMON_OK && i < exp->total; i++) {
        point_of(exp, i, point);
        status = look_at_point(exp, point); /* again: tasks need its boxes */
        if (status == PLASMON_OK) {
            status = make_task(exp, exp->submit.id + i);
        }
    }
    return status;
}

/* --------------------------------------------------------------------------------- send */

/* Steps in elements of the root: the mapping's, times those of the view that the ref is. */
static void steps_fill(struct expansion *exp, uint32_t index, struct frame_arg *arg)
{
    const struct plasmon_index_view *mapping = mapping_of(exp, index);
    const struct submit_arg *at              = &exp->submit.args[index];
    int64_t *steps = exp->steps + (size_t)index * PL_DIM_MAX * exp->space.ndim;
    struct pl_view outer;

    if (mapping == NULL) {
        return;
    }
    if (at->slot != NULL) {
        outer = slot_view(at->slot);
    }
    for (uint32_t d = 0; d < at->view.ndim; d++) {
        for (uint32_t k = 0; k < exp->space.ndim; k++) {
            int64_t step = exp->space.count[k] > 1 ? mapping->step_of[d][k] : 0;

            steps[d * exp->space.ndim + k] = at->slot != NULL ? step * outer.step[d] : step;
        }
    }
    arg->index_step = steps;
}

static plasmon_status_t send_all(struct expansion *exp)
{
    struct submit *submit    = &exp->submit;
    struct frame_index index = {.ndim          = exp->space.ndim,
                                .spread        = (uint32_t)exp->space.spread,
                                .float_scalars = exp->float_scalars};
    struct frame_task task;
    struct frame_arg *args;
    size_t made                         = 0;
    int64_t zero[PLASMON_INDEX_DIM_MAX] = {0};
    plasmon_status_t status             = look_at_point(exp, zero);

    if (status == PLASMON_OK) {
        status = submit_frame(submit, &task);
    }
    if (status != PLASMON_OK) {
        return status;
    }
    args = submit->client->scratch->wire.items;
    for (uint32_t i = 0; i < submit->call->arg_count; i++) {
        const struct root *root;

        steps_fill(exp, i, &args[i]);
        if (submit->call->args[i].mode == PLASMON_OUT && submit->args[i].slot == NULL) {
            root          = *(struct root **)pl_vec_at(&exp->made, made++);
            args[i].ref   = root->id;
            args[i].shape = &root->shape;
            args[i].view  = &submit->args[i].view;
        }
    }
    for (uint32_t k = 0; k < index.ndim; k++) {
        index.count[k] = exp->space.count[k];
    }
    index.scalar_steps = (const uint64_t *)(const void *)exp->space.scalar_steps;
    task.scalars       = (const uint64_t *)(const void *)submit->call->scalars;
    task.index         = &index;
    return frame_add_task(&submit->client->session.frame, &task);
}

static plasmon_status_t index_locked(struct expansion *exp, struct plasmon_ref **out_refs,
                                     struct plasmon_ref **out_task)
{
    struct submit *submit         = &exp->submit;
    struct plasmon_client *client = submit->client;
    int64_t point[PLASMON_INDEX_DIM_MAX];
    plasmon_status_t status = session_room_locked(client, exp->total, FRAME_TASK);

    if (status == PLASMON_OK && graph_recording_locked(client) != NULL) {
        status = error_set(PLASMON_EGRAPH,
                           "an index launch cannot be recorded: record its calls, or "
                           "submit it outside of the recording");
    }
    if (status == PLASMON_OK) {
        status = submit_find_function(submit);
    }
    if (status == PLASMON_OK) {
        exp->float_scalars = float_set(submit->function);
        status             = submit_room(submit);
    }
    for (uint32_t i = 0; status == PLASMON_OK && i < exp->total; i++) {
        point_of(exp, i, point);
        status = look_at_point(exp, point);
        if (status != PLASMON_OK) {
            return at_index(exp, point, status);
        }
    }
    if (status == PLASMON_OK && submit->new_count > 0 && out_refs == NULL) {
        status = error_set(PLASMON_EINVAL, "%s makes new refs (%u) and out_refs is NULL",
                           submit->call->function, submit->new_count);
    }
    if (status != PLASMON_OK) {
        return status;
    }
    status = make_all(exp, out_task != NULL);
    if (status == PLASMON_OK) {
        status = send_all(exp);
    }
    if (status != PLASMON_OK) {
        undo(exp);
        return error_set(status, "%s: %s", submit->call->function, pl_status_text(status));
    }
    for (size_t i = 0; i < exp->tasks.count; i++) {
        task_commit(&client->refs, *(struct task **)pl_vec_at(&exp->tasks, i));
    }
    client->session.tasks_sent += exp->total;
    session_kick_locked(client);
    submit_hand_out(submit, out_refs, out_task);
    return PLASMON_OK;
}

plasmon_status_t plasmon_submit_index(struct plasmon_client *client,
                                      const struct plasmon_call *user_call,
                                      const struct plasmon_index_space *space,
                                      struct plasmon_ref **out_refs,
                                      struct plasmon_ref **out_task)
{
    struct expansion exp = {.submit = {.client = client},
                            .tasks  = PL_VEC_INIT(struct task *),
                            .made   = PL_VEC_INIT(struct root *)};
    struct plasmon_call call;
    plasmon_status_t status = client_enter(client);

    if (status == PLASMON_OK) {
        status = submit_take_call(user_call, &call);
    }
    if (status == PLASMON_OK) {
        status = submit_check_call(&call);
    }
    if (status == PLASMON_OK) {
        status = take_space(space, &exp);
    }
    if (status != PLASMON_OK) {
        return status;
    }
    exp.steps = PL_NEW_N(int64_t,
                         ((size_t)call.arg_count + 1) * PL_DIM_MAX * PLASMON_INDEX_DIM_MAX);
    if (exp.steps == NULL) {
        return error_set(PLASMON_ENOMEM, "out of host memory");
    }
    exp.submit.call = &call;
    pl_mutex_lock(&client->lock);
    status = index_locked(&exp, out_refs, out_task);
    pl_mutex_unlock(&client->lock);
    pl_vec_finish(&exp.tasks);
    pl_vec_finish(&exp.made);
    pl_free(exp.steps);
    return status;
}
