/*
 * Collectives, the client's side: a call is checked against everything that can be known without
 * the head, its results get their ids, and one task goes out. The head makes launches of it
 * (head/collective.c).
 *
 * Under the client's lock in three steps, as in submit.c: look (no side effects), make (undone on
 * failure), send (cannot fail half-way).
 */
#include <string.h>

#include "client/graph.h"
#include "client/submit_int.h"

/* A ref of the call. */
struct party {
    struct ref_slot *slot; /* NULL: a result that is made */
    struct root *made;
    struct pl_shape shape;
};

struct call {
    struct plasmon_client *client;
    const char *name;
    Plasmon__V1__CollectiveKind kind;
    plasmon_reduce_t op;
    struct plasmon_ref *const *refs;
    uint32_t count;
    uint32_t result_count;
    uint32_t root;
    struct plasmon_collective_options options;
    struct party members[WIRE_COLLECTIVE_MAX];
    struct party results[WIRE_COLLECTIVE_MAX];
    struct submit submit; /* what is made, for the parts of submit.c */
};

static_assert(PLASMON_COLLECTIVE_MAX == WIRE_COLLECTIVE_MAX, "one limit, two names");
static_assert(PLASMON_WAY_FASTEST + 1 == WIRE_COLLECTIVE_WAYS, "the same");

/* --------------------------------------------------------------------------------- look */

static bool reduces(const struct call *call)
{
    return call->kind == PLASMON__V1__COLLECTIVE_KIND__ALL_REDUCE ||
           call->kind == PLASMON__V1__COLLECTIVE_KIND__REDUCE ||
           call->kind == PLASMON__V1__COLLECTIVE_KIND__REDUCE_SCATTER;
}

static plasmon_status_t take_options(struct call *call,
                                     const struct plasmon_collective_options *options)
{
    const struct plasmon_collective_options defaults = PLASMON_COLLECTIVE_INIT;

    call->options = defaults;
    if (options == NULL) {
        return PLASMON_OK;
    }
    if (options->size < offsetof(struct plasmon_collective_options, into)) {
        return error_set(PLASMON_EINVAL,
                         "%s: options.size is not set: start from PLASMON_COLLECTIVE_INIT",
                         call->name);
    }
    memcpy(&call->options, options,
           options->size < sizeof(*options) ? options->size : sizeof(*options));
    return call->options.label == NULL
               ? PLASMON_OK
               : client_check_name(call->options.label, WIRE_LABEL_BYTES_MAX,
                                   "options.label");
}

static plasmon_status_t check_counts(const struct call *call)
{
    uint32_t count = call->count > call->result_count ? call->count : call->result_count;

    if (count == 0 || call->refs == NULL) {
        return error_set(PLASMON_EINVAL, "%s: no refs", call->name);
    }
    if (count > WIRE_COLLECTIVE_MAX) {
        return error_set(PLASMON_ELIMIT, "%s: %u refs; one call takes at most %u",
                         call->name, count, WIRE_COLLECTIVE_MAX);
    }
    if (call->root >= call->count) {
        return error_set(PLASMON_EINVAL, "%s: root is %u, and there are %u refs",
                         call->name, call->root, call->count);
    }
    if (reduces(call) && (call->op < PLASMON_REDUCE_SUM || call->op > PLASMON_REDUCE_AVG)) {
        return error_set(PLASMON_EINVAL, "%s: op %d is none of SUM, PROD, MIN, MAX, AVG",
                         call->name, (int)call->op);
    }
    return PLASMON_OK;
}

/* What needs no lock. */
static plasmon_status_t check_call(const struct call *call,
                                   struct plasmon_ref *const *out_refs)
{
    plasmon_status_t status = check_counts(call);
    const int *devices      = call->options.devices;

    if (status != PLASMON_OK) {
        return status;
    }
    for (uint32_t i = 0; devices != NULL && i < call->result_count; i++) {
        if (devices[i] < 0 || devices[i] >= (int)WIRE_DEVICES_MAX) {
            return error_set(PLASMON_EINVAL,
                             "%s: options.devices[%u] is %d; it is a device's index",
                             call->name, i, devices[i]);
        }
    }
    if (call->options.way > PLASMON_WAY_FASTEST) {
        return error_set(PLASMON_EINVAL,
                         "%s: options.way is %u; it is 0 (auto), 1 (direct), 2 (copies), "
                         "3 (NCCL) or 4 (fastest)",
                         call->name, call->options.way);
    }
    if (call->options.into == NULL && out_refs == NULL) {
        return error_set(PLASMON_EINVAL,
                         "%s makes new refs (%u) and out_refs is NULL (options.into names "
                         "refs to write instead)",
                         call->name, call->result_count);
    }
    if (call->kind == PLASMON__V1__COLLECTIVE_KIND__BROADCAST && devices == NULL &&
        call->options.into == NULL) {
        return error_set(PLASMON_EINVAL,
                         "%s: to where? Give options.devices or options.into", call->name);
    }
    return PLASMON_OK;
}

static plasmon_status_t look_at(const struct call *call, struct plasmon_ref *ref,
                                const char *list, uint32_t index, struct party *out)
{
    struct pl_err err       = {0};
    plasmon_status_t status = refs_find(&call->client->refs, ref, &out->slot, &err);

    if (status == PLASMON_OK && out->slot->root->is_task) {
        status = pl_err_set(&err, PLASMON_EINVAL, "the ref is a task's; it has no bytes");
    }
    if (status == PLASMON_OK) {
        status = graph_check_use(call->client, out->slot->root, &err);
    }
    if (status != PLASMON_OK) {
        return error_set(status, "%s: %s[%u]: %s", call->name, list, index, err.text);
    }
    out->shape = slot_shape(out->slot);
    return PLASMON_OK;
}

static plasmon_status_t check_dtype(const struct call *call)
{
    uint32_t dtype = call->members[0].shape.dtype;
    bool ordered   = dtype != PL_C64 && dtype != PL_C128;
    bool whole     = dtype == PL_I32 || dtype == PL_I64;

    if (!reduces(call)) {
        return PLASMON_OK;
    }
    if (ordered && !whole && dtype != PL_F16 && dtype != PL_BF16 && dtype != PL_F32 &&
        dtype != PL_F64) {
        return error_set(PLASMON_EDTYPE,
                         "%s: refs[0] is %s; f16, bf16, f32, f64, i32, i64, c64 and c128 "
                         "can be reduced: convert it first (function `cast`)",
                         call->name, pl_dtype_name(dtype));
    }
    if (!ordered && call->op > PLASMON_REDUCE_PROD) {
        return error_set(PLASMON_EDTYPE, "%s: refs[0] is %s, which has SUM and PROD only",
                         call->name, pl_dtype_name(dtype));
    }
    if (whole && call->op == PLASMON_REDUCE_AVG) {
        return error_set(PLASMON_EDTYPE, "%s: refs[0] is %s; AVG is for floats", call->name,
                         pl_dtype_name(dtype));
    }
    return PLASMON_OK;
}

/* ESHAPE or EDTYPE: what the ref is, and what it should be. */
static plasmon_status_t check_shape(const struct call *call, const struct party *party,
                                    const char *list, uint32_t index,
                                    const struct pl_shape *want)
{
    char have_text[128], want_text[128];

    if (pl_shape_equal(&party->shape, want)) {
        return PLASMON_OK;
    }
    return error_set(party->shape.dtype != want->dtype ? PLASMON_EDTYPE : PLASMON_ESHAPE,
                     "%s: %s[%u] is %s, needs %s", call->name, list, index,
                     pl_shape_format(&party->shape, have_text),
                     pl_shape_format(want, want_text));
}

/* Of a result, from that of a member. */
static plasmon_status_t result_shape(const struct call *call, struct pl_shape *out)
{
    bool gathers      = call->kind == PLASMON__V1__COLLECTIVE_KIND__ALL_GATHER;
    bool scatters     = call->kind == PLASMON__V1__COLLECTIVE_KIND__REDUCE_SCATTER;
    bool splits       = scatters || call->kind == PLASMON__V1__COLLECTIVE_KIND__ALL_TO_ALL;
    struct pl_err err = {0};
    char text[128];

    *out = call->members[0].shape;
    if ((gathers || splits) && out->ndim == 0) {
        return error_set(PLASMON_ESHAPE,
                         "%s: refs[0] is one element without dimensions; its parts are "
                         "along the first dimension",
                         call->name);
    }
    if (splits && out->dim[0] % call->count != 0) {
        return error_set(PLASMON_ESHAPE,
                         "%s: refs[0] is %s, and its first dimension is no multiple of %u",
                         call->name, pl_shape_format(out, text), call->count);
    }
    if (scatters) {
        out->dim[0] /= call->count;
    }
    if (gathers &&
        (__builtin_mul_overflow(out->dim[0], (int64_t)call->count, &out->dim[0]) ||
         pl_shape_check(out, &err) != PLASMON_OK)) {
        return error_set(PLASMON_ETOOBIG,
                         "%s: %u times refs[0] is more than an array holds", call->name,
                         call->count);
    }
    return PLASMON_OK;
}

static bool overlap(const struct ref_slot *a, const struct ref_slot *b)
{
    struct pl_box box_a, box_b;
    const struct pl_box *hull_a = slot_box(a, &box_a), *hull_b = slot_box(b, &box_b);

    return a->root == b->root &&
           (hull_a == NULL || hull_b == NULL || pl_box_intersects(hull_a, hull_b));
}

static plasmon_status_t look_at_results(struct call *call, const struct pl_shape *shape)
{
    plasmon_status_t status = PLASMON_OK;

    for (uint32_t i = 0; status == PLASMON_OK && i < call->result_count; i++) {
        struct party *result = &call->results[i];

        result->shape = *shape;
        if (call->options.into == NULL) {
            continue;
        }
        status = look_at(call, call->options.into[i], "options.into", i, result);
        if (status == PLASMON_OK) {
            status = check_shape(call, result, "options.into", i, shape);
        }
        for (uint32_t k = 0; status == PLASMON_OK && k < i; k++) {
            if (overlap(call->results[k].slot, result->slot)) {
                status = error_set(PLASMON_EINVAL,
                                   "%s: options.into[%u] and [%u] overlap: each result "
                                   "needs a place of its own",
                                   call->name, k, i);
            }
        }
    }
    return status;
}

/* Could any device that we know of hold one? */
static plasmon_status_t check_size(const struct call *call, const struct pl_shape *shape)
{
    uint64_t bytes   = pl_shape_bytes(shape);
    uint64_t largest = client_largest_device_locked(call->client);
    char asked[32], there[32];

    if (largest == 0 || bytes <= largest) {
        return PLASMON_OK;
    }
    return error_set(PLASMON_ETOOBIG, "%s: a result would be %s; the largest device has %s",
                     call->name, pl_format_bytes(bytes, asked),
                     pl_format_bytes(largest, there));
}

static plasmon_status_t look(struct call *call)
{
    plasmon_status_t status = PLASMON_OK;
    struct pl_shape shape;

    if (graph_recording_locked(call->client) != NULL) {
        return error_set(PLASMON_EGRAPH,
                         "%s: this thread records, and a collective cannot be a part of a "
                         "graph: end the graph before it, and begin another behind it",
                         call->name);
    }
    for (uint32_t i = 0; status == PLASMON_OK && i < call->count; i++) {
        status = look_at(call, call->refs[i], "refs", i, &call->members[i]);
        if (status == PLASMON_OK) {
            status =
                check_shape(call, &call->members[i], "refs", i, &call->members[0].shape);
        }
    }
    if (status == PLASMON_OK) {
        status = check_dtype(call);
    }
    if (status == PLASMON_OK) {
        status = result_shape(call, &shape);
    }
    if (status == PLASMON_OK) {
        status = check_size(call, &shape);
    }
    return status == PLASMON_OK ? look_at_results(call, &shape) : status;
}

/* --------------------------------------------------------------------------------- make */

static plasmon_status_t make_result(struct call *call, struct party *result)
{
    struct task *task         = call->submit.task;
    enum write_effect effect  = WRITE_OVERWRITES;
    struct submit_arg arg     = {0};
    const struct pl_box *hull = NULL;
    struct pl_box box;
    plasmon_status_t status = PLASMON_OK;

    if (result->slot == NULL) {
        status       = submit_make_ref(&call->submit, &arg, &result->shape);
        result->made = arg.made;
    } else {
        hull = slot_box(result->slot, &box);
        if (result->slot->view != NULL && !pl_view_dense(result->slot->view)) {
            effect = WRITE_ADDS;
        }
    }
    return status == PLASMON_OK
               ? task_writes(task, result->made != NULL ? result->made : result->slot->root,
                             hull, effect)
               : status;
}

static plasmon_status_t make(struct call *call, bool with_task_ref)
{
    struct submit *submit   = &call->submit;
    struct refs *refs       = &call->client->refs;
    struct submit_arg arg   = {0};
    plasmon_status_t status = PLASMON_OK;

    pl_vec_clear(&call->client->scratch->refs);
    submit->client = call->client;
    submit->id     = refs_draw_task(refs);
    submit->task   = task_create(refs, submit->id, call->name, call->options.label);
    if (submit->task == NULL) {
        return PLASMON_ENOMEM;
    }
    for (uint32_t i = 0; status == PLASMON_OK && i < call->result_count; i++) {
        status = make_result(call, &call->results[i]);
        submit->new_count += call->results[i].made != NULL;
    }
    if (status == PLASMON_OK && with_task_ref) {
        status = submit_make_ref(submit, &arg, NULL);
        if (status == PLASMON_OK) {
            arg.made->id = submit->id;
            status       = task_writes(submit->task, arg.made, NULL, WRITE_ADDS);
        }
    }
    return status;
}

/* --------------------------------------------------------------------------------- send */

static plasmon_status_t add_to_frame(struct call *call)
{
    struct frame_arg args[2 * WIRE_COLLECTIVE_MAX] = {0};
    struct frame_collective collective             = {.kind        = call->kind,
                                                      .op          = reduces(call) ? call->op : 0,
                                                      .root        = call->root,
                                                      .way         = call->options.way,
                                                      .place_count = call->result_count};
    struct frame_task task                         = {.id         = call->submit.id,
                                                      .kind       = PLASMON__V1__TASK_KIND__TASK_COLLECTIVE,
                                                      .args       = args,
                                                      .arg_count  = call->count + call->result_count,
                                                      .label      = call->options.label,
                                                      .submit_ns  = call->client->trace.on ? pl_realtime_ns() : 0,
                                                      .collective = &collective};

    for (uint32_t i = 0; i < call->count; i++) {
        args[i] = (struct frame_arg){.mode = PLASMON_IN,
                                     .ref  = call->members[i].slot->root->id,
                                     .view = call->members[i].slot->view};
    }
    for (uint32_t i = 0; i < call->result_count; i++) {
        const struct party *result = &call->results[i];
        struct frame_arg *arg      = &args[call->count + i];

        arg->mode = PLASMON_OUT;
        if (result->made != NULL) {
            arg->ref   = result->made->id;
            arg->shape = &result->shape;
        } else {
            arg->ref  = result->slot->root->id;
            arg->view = result->slot->view;
        }
        if (call->options.devices != NULL) {
            collective.place[i] = (uint32_t)call->options.devices[i] + 1;
        }
    }
    return frame_add_task(&call->client->session.frame, &task);
}

static plasmon_status_t submit_locked(struct call *call, struct plasmon_ref **out_refs,
                                      struct plasmon_ref **out_task)
{
    struct plasmon_client *client = call->client;
    plasmon_status_t status       = session_room_locked(client, 1, FRAME_TASK);

    if (status == PLASMON_OK) {
        status = look(call);
    }
    if (status != PLASMON_OK) {
        return status;
    }
    status = make(call, out_task != NULL);
    if (status == PLASMON_OK) {
        status = add_to_frame(call);
    }
    if (status != PLASMON_OK) {
        submit_undo_make(&call->submit);
        return error_set(status, "%s: %s", call->name, pl_status_text(status));
    }
    task_commit(&client->refs, call->submit.task);
    client->session.tasks_sent++;
    session_kick_locked(client);
    submit_hand_out(&call->submit, out_refs, out_task);
    for (uint32_t i = 0;
         call->options.into != NULL && out_refs != NULL && i < call->result_count; i++) {
        out_refs[i] = NULL; /* nothing was made */
    }
    return PLASMON_OK;
}

static plasmon_status_t submit(struct call *call,
                               const struct plasmon_collective_options *options,
                               struct plasmon_ref **out_refs, struct plasmon_ref **out_task)
{
    plasmon_status_t status = client_enter(call->client);

    if (status == PLASMON_OK) {
        status = take_options(call, options);
    }
    if (status == PLASMON_OK) {
        status = check_call(call, out_refs);
    }
    if (status != PLASMON_OK) {
        return status;
    }
    pl_mutex_lock(&call->client->lock);
    status = submit_locked(call, out_refs, out_task);
    pl_mutex_unlock(&call->client->lock);
    return status;
}

/* ---------------------------------------------------------------------------- the calls */

plasmon_status_t plasmon_all_reduce(struct plasmon_client *client, plasmon_reduce_t op,
                                    struct plasmon_ref *const *refs, uint32_t count,
                                    const struct plasmon_collective_options *options,
                                    struct plasmon_ref **out_refs,
                                    struct plasmon_ref **out_task)
{
    struct call call = {.client       = client,
                        .name         = "all_reduce",
                        .kind         = PLASMON__V1__COLLECTIVE_KIND__ALL_REDUCE,
                        .op           = op,
                        .refs         = refs,
                        .count        = count,
                        .result_count = count};

    return submit(&call, options, out_refs, out_task);
}

plasmon_status_t plasmon_reduce(struct plasmon_client *client, plasmon_reduce_t op,
                                struct plasmon_ref *const *refs, uint32_t count,
                                uint32_t root,
                                const struct plasmon_collective_options *options,
                                struct plasmon_ref **out_ref, struct plasmon_ref **out_task)
{
    struct call call = {.client       = client,
                        .name         = "reduce",
                        .kind         = PLASMON__V1__COLLECTIVE_KIND__REDUCE,
                        .op           = op,
                        .refs         = refs,
                        .count        = count,
                        .root         = root,
                        .result_count = 1};

    return submit(&call, options, out_ref, out_task);
}

plasmon_status_t plasmon_broadcast(struct plasmon_client *client, struct plasmon_ref *ref,
                                   uint32_t count,
                                   const struct plasmon_collective_options *options,
                                   struct plasmon_ref **out_refs,
                                   struct plasmon_ref **out_task)
{
    struct call call = {.client       = client,
                        .name         = "broadcast",
                        .kind         = PLASMON__V1__COLLECTIVE_KIND__BROADCAST,
                        .refs         = &ref,
                        .count        = 1,
                        .result_count = count};

    if (count == 0) {
        return error_set(PLASMON_EINVAL, "broadcast: count is 0");
    }
    return submit(&call, options, out_refs, out_task);
}

plasmon_status_t plasmon_all_gather(struct plasmon_client *client,
                                    struct plasmon_ref *const *refs, uint32_t count,
                                    const struct plasmon_collective_options *options,
                                    struct plasmon_ref **out_refs,
                                    struct plasmon_ref **out_task)
{
    struct call call = {.client       = client,
                        .name         = "all_gather",
                        .kind         = PLASMON__V1__COLLECTIVE_KIND__ALL_GATHER,
                        .refs         = refs,
                        .count        = count,
                        .result_count = count};

    return submit(&call, options, out_refs, out_task);
}

plasmon_status_t plasmon_reduce_scatter(struct plasmon_client *client, plasmon_reduce_t op,
                                        struct plasmon_ref *const *refs, uint32_t count,
                                        const struct plasmon_collective_options *options,
                                        struct plasmon_ref **out_refs,
                                        struct plasmon_ref **out_task)
{
    struct call call = {.client       = client,
                        .name         = "reduce_scatter",
                        .kind         = PLASMON__V1__COLLECTIVE_KIND__REDUCE_SCATTER,
                        .op           = op,
                        .refs         = refs,
                        .count        = count,
                        .result_count = count};

    return submit(&call, options, out_refs, out_task);
}

plasmon_status_t plasmon_all_to_all(struct plasmon_client *client,
                                    struct plasmon_ref *const *refs, uint32_t count,
                                    const struct plasmon_collective_options *options,
                                    struct plasmon_ref **out_refs,
                                    struct plasmon_ref **out_task)
{
    struct call call = {.client       = client,
                        .name         = "all_to_all",
                        .kind         = PLASMON__V1__COLLECTIVE_KIND__ALL_TO_ALL,
                        .refs         = refs,
                        .count        = count,
                        .result_count = count};

    return submit(&call, options, out_refs, out_task);
}
