/*
 * Collectives: all-reduce and the like over arrays on many devices, as launches of the kinds that
 * there are (docs/collectives.md). Who does what is collective_ways.c's, by which launches
 * collective_step.c's.
 *
 * ALL ARE READ BEFORE ANY IS WRITTEN. Results are put together in arrays of their own and shown in
 * their targets at the end, so a target may be a member, or overlap one. Where all reading launches
 * are started before the first writing one (all-reduce in segments), a result is made in its
 * target's own memory.
 *
 * ONE TASK. The launches are a group (group.c) that fails as a whole. It is no more than that: each
 * launch waits for what it reads, as any other does, so there is nothing to reserve and nothing new
 * to wait for.
 */
#include "head/collective.h"

#include <string.h>

/* ---------------------------------------------------------------- what is wrong with it */

static bool reducible(uint32_t dtype, uint32_t op)
{
    switch (dtype) {
    case PL_F16:
    case PL_BF16:
    case PL_F32:
    case PL_F64:
        return true;
    case PL_I32:
    case PL_I64:
        return op != COLLECTIVE_AVG;
    case PL_C64:
    case PL_C128:
        return op <= 2; /* sum, prod */
    default:
        return false;
    }
}

static bool reduces(const Plasmon__V1__Collective *wire)
{
    return wire->kind == PLASMON__V1__COLLECTIVE_KIND__ALL_REDUCE ||
           wire->kind == PLASMON__V1__COLLECTIVE_KIND__REDUCE ||
           wire->kind == PLASMON__V1__COLLECTIVE_KIND__REDUCE_SCATTER;
}

static bool splits(const Plasmon__V1__Collective *wire)
{
    return wire->kind == PLASMON__V1__COLLECTIVE_KIND__REDUCE_SCATTER ||
           wire->kind == PLASMON__V1__COLLECTIVE_KIND__ALL_TO_ALL;
}

/* What a result looks like, given a member; false: such a member cannot be. */
static bool result_shape(const Plasmon__V1__Collective *wire, uint32_t count,
                         struct pl_shape *io_shape)
{
    bool gathers = wire->kind == PLASMON__V1__COLLECTIVE_KIND__ALL_GATHER;

    if (!gathers && !splits(wire)) {
        return true;
    }
    if (io_shape->ndim == 0 || (splits(wire) && io_shape->dim[0] % count != 0)) {
        return false;
    }
    if (gathers) {
        return !__builtin_mul_overflow(io_shape->dim[0], (int64_t)count, &io_shape->dim[0]);
    }
    if (wire->kind == PLASMON__V1__COLLECTIVE_KIND__REDUCE_SCATTER) {
        io_shape->dim[0] /= count;
    }
    return true;
}

static bool arg_is(const struct head_arg *arg, const struct pl_shape *shape)
{
    struct pl_shape own = pl_view_shape(&arg->view, arg->dtype);

    return pl_shape_equal(&own, shape);
}

/* The client library refuses these before it sends them. */
static plasmon_status_t check(const Plasmon__V1__Task *task, const struct head_arg *args,
                              uint32_t count, struct pl_err *err)
{
    const Plasmon__V1__Collective *wire = task->collective;
    struct pl_shape member              = pl_view_shape(&args[0].view, args[0].dtype);
    struct pl_shape result              = member;

    if (reduces(wire) && !reducible(member.dtype, wire->op)) {
        return pl_err_set(err, PLASMON_EDTYPE, "reduction %u is not for %s", wire->op,
                          pl_dtype_name(member.dtype));
    }
    if (!result_shape(wire, count, &result)) {
        return pl_err_set(err, PLASMON_ESHAPE,
                          "the members' first dimension cannot be split into %u", count);
    }
    for (uint32_t i = 0; i < task->n_args; i++) {
        if (!arg_is(&args[i], i < count ? &member : &result)) {
            return pl_err_set(err, PLASMON_ESHAPE,
                              "argument %u has another dtype or shape than it must have",
                              i);
        }
        for (uint32_t k = count; k < i; k++) {
            if (args[k].array == args[i].array &&
                pl_box_intersects(&args[k].hull, &args[i].hull)) {
                return pl_err_set(err, PLASMON_EINVAL,
                                  "results %u and %u overlap: write them to different refs",
                                  k - count, i - count);
            }
        }
    }
    return PLASMON_OK;
}

/* ------------------------------------------------------------------ members and results */

static struct head_failure *failed_input(const struct collective *c,
                                         const struct head_arg *args)
{
    for (uint32_t i = 0; i < c->count; i++) {
        struct head_failure *failure = head_array_failure(args[i].array, &args[i].hull);

        if (failure != NULL) {
            return head_failure_create(
                PLASMON_EDEPENDENCY, failure->first_task, failure->first_client,
                "member %u of collective %llu failed before; the first failure: %s", i,
                (unsigned long long)c->task->id, head_failure_cause(failure));
        }
    }
    return NULL;
}

/* A member as a dense box: a view with steps is first copied together where it is. */
static bool take_member(struct collective *c, const struct head_arg *arg,
                        struct collective_part *out)
{
    struct head_device *home;

    *out = (struct collective_part){.array = arg->array, .box = arg->hull};
    if (pl_view_dense(&arg->view)) {
        arg->array->refs++;
        return true;
    }
    home       = collective_home(c->core, out);
    out->array = head_read_compact(c->core, arg->array, &arg->view,
                                   home != NULL ? home->index + 1 : 0, &c->failure);
    if (out->array == NULL) {
        return false;
    }
    out->box = out->array->extent;
    return true;
}

/* The member that says where result `i` is, unless its place does. */
static const struct head_arg *member_of(const struct collective *c,
                                        const struct head_arg *args, uint32_t i)
{
    const Plasmon__V1__Collective *wire = c->task->collective;

    if (wire->kind == PLASMON__V1__COLLECTIVE_KIND__BROADCAST) {
        return &args[c->count + i]; /* where what it takes the place of lies */
    }
    return wire->kind == PLASMON__V1__COLLECTIVE_KIND__REDUCE ? &args[wire->root]
                                                              : &args[i];
}

static bool choose_device(struct collective *c, const struct head_arg *args, uint32_t i)
{
    struct collective_out *out = &c->outs[i];
    struct head_want wants[WIRE_COLLECTIVE_MAX + 1];
    uint32_t place = c->task->collective->place[i];

    for (uint32_t k = 0; k < c->count; k++) {
        wants[k] = (struct head_want){.array = args[k].array, .box = args[k].hull};
    }
    wants[c->count] = (struct head_want){
        .box = out->arg->hull,
        .bytes =
            (uint64_t)pl_box_elements(&out->arg->hull) * pl_dtype_bytes(out->arg->dtype),
    };
    if (place == 0) {
        const struct head_arg *member     = member_of(c, args, i);
        const struct collective_part part = {.array = member->array, .box = member->hull};
        const struct head_device *home    = collective_home(c->core, &part);

        place = home != NULL ? home->index + 1 : 0;
    }
    out->device = head_place(c->core, wants, c->count + 1, place, &c->failure);
    return out->device != NULL;
}

/*
 * An array of its own for the result: in the target's coordinates, or, for a view with steps, in
 * such that begin at 0.
 */
static void open_result(struct collective *c, struct collective_out *out)
{
    const struct head_arg *arg = out->arg;
    struct pl_shape shape      = arg->array->shape;

    out->made.box = arg->hull;
    if (!pl_view_dense(&arg->view)) {
        shape         = pl_view_shape(&arg->view, arg->dtype);
        out->made.box = pl_box_of_shape(&shape);
    }
    out->made.array         = head_array_create(c->core, arg->array->space, &shape);
    out->made.array->extent = out->made.box;
}

/* The target shows the result. */
static bool show_result(struct collective *c, struct collective_out *out)
{
    const struct head_arg *arg = out->arg;
    struct head_arg args[2]    = {*arg};
    struct head_run copy;
    struct pl_list *pos;

    if (pl_view_dense(&arg->view)) {
        pl_list_for_each(pos, &out->made.array->fragments) {
            const struct head_fragment *fragment =
                pl_container_of(pos, struct head_fragment, array_link);

            head_array_set(c->core, arg->array, &fragment->box, fragment->tile);
        }
        return true;
    }
    args[1] = (struct head_arg){.mode  = PLASMON__V1__MODE__MODE_IN,
                                .array = out->made.array,
                                .view  = pl_view_of_box(&out->made.box),
                                .hull  = out->made.box,
                                .dtype = arg->dtype};
    copy    = (struct head_run){.client    = c->client,
                                .id        = c->task->id,
                                .function  = pl_hash_name("copy"),
                                .label     = c->task->label,
                                .args      = args,
                                .arg_count = 2,
                                .place     = out->device->index + 1,
                                .retries   = c->core->config.retries,
                                .group     = c->group};
    return head_run_start(c->core, &copy, &c->failure);
}

static bool start(struct collective *c, struct head_arg *args)
{
    bool ok = true;

    for (uint32_t i = 0; i < c->task->n_args; i++) {
        head_reduce_fold(c->core, args[i].array);
    }
    c->failure = failed_input(c, args);
    for (uint32_t i = 0; i < c->out_count; i++) {
        c->outs[i].arg = &args[c->count + i];
        open_result(c, &c->outs[i]);
    }
    ok = c->failure == NULL;
    for (uint32_t i = 0; ok && i < c->out_count; i++) {
        ok = choose_device(c, args, i);
    }
    for (uint32_t i = 0; ok && i < c->count; i++) {
        ok = take_member(c, &args[i], &c->ins[i]);
    }
    ok = ok && collective_run(c);
    for (uint32_t i = 0; ok && i < c->out_count; i++) {
        ok = show_result(c, &c->outs[i]);
    }
    return ok;
}

static void finish(struct collective *c)
{
    for (uint32_t i = 0; i < c->count; i++) {
        if (c->ins[i].array != NULL) {
            head_array_release(c->core, c->ins[i].array);
        }
    }
    for (uint32_t i = 0; i < c->out_count; i++) {
        if (c->outs[i].made.array != NULL) {
            head_array_release(c->core, c->outs[i].made.array);
        }
        if (c->outs[i].buffer != NULL) {
            head_buffer_release(c->core, c->outs[i].buffer);
        }
    }
    head_failure_release(c->failure);
    pl_free(c->ins);
    pl_free(c->outs);
}

/* Every result that the task names exists afterwards, perhaps failed. */
static plasmon_status_t resolve(struct head_core *core, struct head_client *client,
                                const Plasmon__V1__Task *task, struct head_arg *args,
                                struct pl_err *err)
{
    plasmon_status_t status = PLASMON_OK;

    for (size_t i = 0; i < task->n_args; i++) {
        plasmon_status_t one = head_arg_resolve(core, client, task->args[i], &args[i],
                                                status == PLASMON_OK ? err : NULL);

        if (one != PLASMON_OK) {
            args[i].array = NULL; /* not its own, or gone: there is nothing to fail */
        }
        status = status == PLASMON_OK ? one : status;
    }
    return status;
}

plasmon_status_t head_collective(struct head_core *core, struct head_client *client,
                                 const Plasmon__V1__Task *task, struct pl_err *err)
{
    struct head_arg *args = head_alloc(task->n_args * sizeof(*args));
    /* Before the group, which counts. */
    const plasmon_status_t admitted = head_space_admit_task(client->space, err);
    struct collective c             = {.core      = core,
                                       .client    = client,
                                       .task      = task,
                                       .group     = head_group_create(core, client, task->id),
                                       .op        = task->collective->op,
                                       .landed    = PL_VEC_INIT(struct head_buffer *),
                                       .out_count = (uint32_t)task->collective->n_place};
    struct head_run outs            = {
                   .client = client, .label = task->label, .args = args, .arg_count = task->n_args};
    plasmon_status_t status;

    c.group->whole = true;
    c.count        = (uint32_t)task->n_args - c.out_count;
    c.ins          = head_alloc(c.count * sizeof(*c.ins));
    c.outs         = head_alloc(c.out_count * sizeof(*c.outs));
    status         = resolve(core, client, task, args, err);
    if (status == PLASMON_OK) {
        status = check(task, args, c.count, err);
    }
    if (status == PLASMON_OK) {
        status = admitted;
    }
    if (status == PLASMON_OK) {
        status = head_space_admit_run(&outs, err);
    }
    if (status != PLASMON_OK) {
        c.failure =
            head_failure_create(status, task->id, client->id, "task %llu refused: %s",
                                (unsigned long long)task->id, err->text);
    }
    if (status != PLASMON_OK || !start(&c, args)) {
        if (c.failure->first_task == 0) {
            c.failure->first_task   = task->id;
            c.failure->first_client = client->id;
        }
        head_group_doom(core, c.group, c.failure);
        head_run_fail(core, &outs, c.failure);
    }
    head_group_close(core, c.group);
    finish(&c);
    pl_free(args);
    return PLASMON_OK;
}
