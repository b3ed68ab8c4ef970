/*
 * Sessions: who a client is, what it may name, what it is told.
 *
 * A ref is found in its client's own map only, so an id of somebody else names nothing: sharing
 * goes through published names, within a namespace. A session that lost its connection keeps
 * everything for a lease, then ends as if it had said bye: its refs go, and its tasks that have not
 * been sent to a worker and whose results nobody else can see are skipped.
 */
#include "base/fault.h"
#include "head/core_int.h"

#include <stdlib.h>
#include <string.h>

/* of a frame, before the first launches go out; behind the first of a device that is idle */
#define GO_TASKS     4u
#define EXPECT_AHEAD 2u  /* tasks (pl_map_expect) */
#define GO_MANY      64u /* launches under way: no device waits for the next one */

enum {
    FIELD_DONE      = 3,
    FIELD_FAILED    = 4,
    FIELD_REPLIES   = 8,
    FIELD_PONG      = 9,
    REPORT_TEXT_MAX = 2000,
};

/* --------------------------------------------------------------------------------- refs */

struct head_ref *head_client_ref(struct head_client *client, uint64_t id)
{
    return pl_map_get(&client->refs, id);
}

plasmon_status_t head_client_ref_get(struct head_client *client, uint64_t id,
                                     uint64_t owner, struct head_ref **out_ref,
                                     struct pl_err *err)
{
    struct head_ref *ref;

    if (owner != 0 && owner != client->id) {
        return pl_err_set(
            err, PLASMON_EFOREIGN,
            "ref %llu belongs to client %016llx; its owner can publish it under a name",
            (unsigned long long)id, (unsigned long long)owner);
    }
    ref = pl_map_get(&client->refs, id);
    if (ref == NULL) {
        return pl_err_set(err, PLASMON_ERELEASED, "ref %llu was released or never existed",
                          (unsigned long long)id);
    }
    *out_ref = ref;
    return PLASMON_OK;
}

plasmon_status_t head_client_ref_add(struct head_core *core, struct head_client *client,
                                     uint64_t id, struct head_array *array,
                                     const struct pl_view *base, struct pl_err *err)
{
    struct head_ref *ref;

    if (id == 0 || pl_map_get(&client->refs, id) != NULL) {
        head_array_release(core, array);
        return pl_err_set(err, PLASMON_EEXIST, "ref id %llu is 0 or in use",
                          (unsigned long long)id);
    }
    ref        = head_alloc(sizeof(*ref));
    ref->array = array;
    if (base != NULL) {
        ref->based = true;
        ref->base  = *base;
    }
    PL_CHECK(pl_map_set(&client->refs, id, ref) == PLASMON_OK);
    head_lookahead_born(core, client, id, ref);
    core->counts.refs++;
    return PLASMON_OK;
}

plasmon_status_t head_ref_view(const struct head_ref *ref, size_t n, const int64_t *numbers,
                               struct pl_view *out, struct pl_err *err)
{
    struct pl_shape shape;
    struct pl_view inner;
    plasmon_status_t status;

    if (!ref->based) {
        return wire_view_get(n, numbers, &ref->array->shape, out, err);
    }
    if (n == 0) {
        *out = ref->base;
        return PLASMON_OK;
    }
    shape  = pl_view_shape(&ref->base, ref->array->shape.dtype);
    status = wire_view_get(n, numbers, &shape, &inner, err);
    if (status != PLASMON_OK) {
        return status;
    }
    return pl_view_compose(&ref->base, &inner, out, err);
}

static void ref_remove(struct head_core *core, struct head_client *client, uint64_t id)
{
    struct head_ref *ref = pl_map_remove(&client->refs, id);

    if (ref == NULL) {
        return; /* a repeat */
    }
    head_array_release(core, ref->array);
    pl_free(ref);
    core->counts.refs--;
}

static void refs_remove(struct head_core *core, struct head_client *client, uint64_t first,
                        uint64_t count)
{
    if (count <= client->refs.count * 4 + 64) {
        for (uint64_t id = first; id - first < count; id++) {
            ref_remove(core, client, id);
        }
        return;
    }

    /* A range much larger than what there is: walk what there is. */
    struct pl_vec ids = PL_VEC_INIT(uint64_t);
    uint64_t key;
    void *value;

    for (size_t i = 0; pl_map_next(&client->refs, &i, &key, &value);) {
        if (key - first < count) {
            uint64_t *place = pl_vec_push(&ids);

            PL_CHECK(place != NULL);
            *place = key;
        }
    }
    for (size_t i = 0; i < ids.count; i++) {
        ref_remove(core, client, *(uint64_t *)pl_vec_at(&ids, i));
    }
    pl_vec_finish(&ids);
}

/* ----------------------------------------------------------------------------- sessions */

struct head_client *head_client_restore(struct head_core *core, uint64_t session,
                                        uint64_t id, const char *name_space,
                                        const char *label, const char *host)
{
    struct head_client *client;

    if (pl_map_get(&core->sessions, session) != NULL) {
        return NULL;
    }
    client          = head_alloc(sizeof(*client));
    client->session = session;
    client->id      = id;
    client->space   = head_space_take(core, name_space);
    client->label   = head_strdup(label);
    client->host    = head_strdup(host);
    client->space->sessions++;
    pl_map_init(&client->refs);
    pl_map_init(&client->tasks);
    pl_map_init(&client->graphs);
    pl_map_init(&client->groups);
    pl_map_init(&client->functions);
    wire_ranges_init(&client->done);
    client->failed = PL_VEC_INIT(struct head_failed);
    pl_list_init(&client->link);
    pl_list_init(&client->dirty_link);
    pl_list_init(&client->reads_late);
    pl_list_init(&client->unfinished);
    pl_list_add_tail(&core->clients, &client->link);
    PL_CHECK(pl_map_set(&core->sessions, session, client) == PLASMON_OK);
    core->counts.clients++;
    return client;
}

plasmon_status_t head_core_client_open(struct head_core *core,
                                       const Plasmon__V1__Hello *hello,
                                       uint64_t *out_session, struct pl_err *err)
{
    struct head_client *client;
    struct head_space *space;
    uint64_t session, id;
    plasmon_status_t status;

    if (hello->protocol_min > WIRE_PROTOCOL || hello->protocol_max < WIRE_PROTOCOL) {
        return pl_err_set(err, PLASMON_EVERSION,
                          "this head speaks protocol %u, the client %u to %u; use programs "
                          "of one release",
                          WIRE_PROTOCOL, hello->protocol_min, hello->protocol_max);
    }
    status = head_space_open(core, hello->namespace_, &space, err);
    if (status == PLASMON_OK) {
        status = head_space_admit_session(space, err);
        if (status != PLASMON_OK) {
            head_space_release(space);
        }
    }
    if (status != PLASMON_OK) {
        return status;
    }
    do {
        session = core->config.ops->random64(core->config.user);
    } while (session == 0 || pl_map_get(&core->sessions, session) != NULL);
    do {
        id = core->config.ops->random64(core->config.user);
    } while (id == 0);
    client = head_client_restore(core, session, id, space->name, hello->label, hello->host);
    head_space_release(space); /* the client holds it */
    core->numbers_told = true; /* by the welcome that follows */
    head_host_copies_begin(core, client);
    pl_debug("head", "client %016llx ('%s') opened a session",
             (unsigned long long)client->id, client->label);
    *out_session = client->session;
    return PLASMON_OK;
}

bool head_core_client_known(const struct head_core *core, uint64_t session)
{
    return pl_map_get(&core->sessions, session) != NULL;
}

const char *head_core_client_namespace(const struct head_core *core, uint64_t session)
{
    const struct head_client *client = pl_map_get(&core->sessions, session);

    return client != NULL ? client->space->name : NULL;
}

plasmon_status_t head_core_client_message(struct head_core *core, uint64_t session,
                                          size_t bytes, struct pl_err *err)
{
    const struct head_client *client = pl_map_get(&core->sessions, session);

    /* Small operations travel together; one that is larger begins a frame of its own, or ends one. */
    return client == NULL || bytes <= HEAD_TOGETHER_BYTES
               ? PLASMON_OK
               : head_space_admit_message(client->space, bytes - HEAD_TOGETHER_BYTES,
                                          "a frame", err);
}

plasmon_status_t head_core_client_welcome(struct head_core *core, uint64_t session,
                                          struct wire_arena *arena,
                                          Plasmon__V1__Welcome *out)
{
    const struct head_client *client = pl_map_get(&core->sessions, session);
    Plasmon__V1__StatusReply status  = PLASMON__V1__STATUS_REPLY__INIT;
    plasmon_status_t result;

    PL_CHECK(client != NULL);
    result = head_core_status(core, arena, &status);
    if (result != PLASMON_OK) {
        return result;
    }
    out->protocol    = WIRE_PROTOCOL;
    out->epoch       = core->epoch;
    out->session     = session;
    out->client      = client->id;
    out->devices     = status.devices;
    out->n_devices   = status.n_devices;
    out->version     = status.version;
    out->host_copies = client->host_copies;
    return PLASMON_OK;
}

uint64_t head_core_client_credit(const struct head_core *core, uint64_t session)
{
    const struct head_client *client = pl_map_get(&core->sessions, session);

    return client == NULL ? 0
                          : client->ops_taken - client->tasks_open + core->config.credit;
}

static void cancel(struct head_core *core, struct head_client *client, uint64_t id,
                   bool force)
{
    struct head_task *task   = pl_map_get(&client->tasks, id);
    struct head_group *group = pl_map_get(&client->groups, id);

    if (task != NULL) {
        head_task_cancel(core, task, force);
    }
    if (group != NULL) {
        head_group_cancel(core, group, force);
    }
}

/*
 * A task with parts of arrays takes some 10 us here, and where little is under way devices have
 * nothing to do meanwhile. So the first one for a device that is idle goes out at once if more than
 * a few come, and the next ones before all are placed, then twice as many, while that is so.
 */
static plasmon_status_t tasks_take(struct head_core *core, struct head_client *client,
                                   const Plasmon__V1__ClientFrame *frame,
                                   struct pl_err *err)
{
    plasmon_status_t status = PLASMON_OK;
    size_t go               = GO_TASKS;

    head_priority_order(frame->tasks, frame->n_tasks);
    head_lookahead_begin(core, client, frame->tasks, frame->n_tasks);
    for (size_t i = 0; status == PLASMON_OK && i < frame->n_tasks; i++) {
        client->ops_taken++;
        head_lookahead_pass(core, i);
        if (i + EXPECT_AHEAD < frame->n_tasks) {
            pl_map_expect(&client->tasks, frame->tasks[i + EXPECT_AHEAD]->id);
        }
        status = head_submit(core, client, frame->tasks[i], err);
        if (frame->n_tasks - i > GO_TASKS) {
            head_devices_begin(core);
        }
        if (i + 1 == go && i + 1 < frame->n_tasks && !head_core_under_way(core, GO_MANY)) {
            head_devices_go(core);
            go *= 2;
        }
    }
    head_lookahead_end(core);
    return status;
}

plasmon_status_t head_core_client_frame(struct head_core *core, uint64_t session,
                                        const Plasmon__V1__ClientFrame *frame,
                                        struct pl_err *err)
{
    struct head_client *client = pl_map_get(&core->sessions, session);
    plasmon_status_t status    = PLASMON_OK;

    if (client == NULL) {
        return pl_err_set(err, PLASMON_ECLOSED, "the session has ended");
    }
    for (size_t i = 0; status == PLASMON_OK && i < frame->n_define; i++) {
        status = head_function_define(core, client, frame->define[i], err);
    }
    status = status == PLASMON_OK ? tasks_take(core, client, frame, err) : status;
    for (size_t i = 0; status == PLASMON_OK && i < frame->n_put_open; i++) {
        status = head_put_open(core, client, frame->put_open[i], err);
    }
    for (size_t i = 0; status == PLASMON_OK && i < frame->n_put_seal; i++) {
        status = head_put_seal(core, client, frame->put_seal[i], err);
    }
    for (size_t i = 0; status == PLASMON_OK && i < frame->n_locate; i++) {
        status = head_read_locate(core, client, frame->locate[i], err);
    }
    for (size_t i = 0; status == PLASMON_OK && i < frame->n_read; i++) {
        status = head_read(core, client, frame->read[i], err);
    }
    if (status != PLASMON_OK) {
        return status;
    }
    for (size_t i = 0; i < frame->n_publish; i++) {
        head_name_publish(core, client, frame->publish[i]);
    }
    for (size_t i = 0; i < frame->n_function_wait; i++) {
        head_function_wait(core, client, frame->function_wait[i]);
    }
    for (size_t i = 0; i < frame->n_lookup; i++) {
        head_name_lookup(core, client, frame->lookup[i]);
    }
    for (size_t i = 0; i < frame->n_cancel; i++) {
        cancel(core, client, frame->cancel[i], false);
    }
    for (size_t i = 0; i < frame->n_cancel_force; i++) {
        cancel(core, client, frame->cancel_force[i], !pl_bug("head.force_ignored"));
    }
    for (size_t i = 0; i < frame->n_graph_release; i++) {
        head_graph_release(core, client, frame->graph_release[i]);
    }
    if (frame->trace != NULL) {
        head_trace_switch(core, client, frame->trace);
    }
    for (size_t i = pl_bug("head.release_lost") ? 1 : 0; i < frame->n_release; i++) {
        refs_remove(core, client, frame->release[i]->first, frame->release[i]->count);
    }
    if (frame->host_copies_heard != 0) {
        client->host_copies_heard = frame->host_copies_heard;
    }
    if (frame->ping != 0) {
        head_bytes_varint(&client->out, FIELD_PONG << 3);
        head_bytes_varint(&client->out, frame->ping);
        head_client_dirty(core, client);
    }
    if (frame->bye) {
        head_core_client_close(core, session);
    } else {
        head_reads_resume(core, client); /* it may have acknowledged something */
    }
    return PLASMON_OK;
}

void head_core_client_lost(struct head_core *core, uint64_t session, uint64_t now_ms)
{
    struct head_client *client = pl_map_get(&core->sessions, session);

    if (client != NULL) {
        client->lost    = true;
        client->lost_ms = now_ms;
    }
}

void head_core_client_resumed(struct head_core *core, uint64_t session)
{
    struct head_client *client = pl_map_get(&core->sessions, session);

    if (client != NULL) {
        client->lost = false;
        head_reads_resume(core, client);
    }
}

/* Newest first, so that whatever reads a result has been looked at before what makes it. */
static void skip_unwanted(struct head_core *core, struct head_client *client)
{
    while (!pl_list_empty(&client->unfinished)) {
        struct head_task *task =
            pl_container_of(client->unfinished.prev, struct head_task, client_link);
        bool wanted = false;

        pl_list_remove(&task->client_link);
        task->client = NULL;
        task->id     = 0;
        for (size_t i = 0; i < task->outputs.count; i++) {
            wanted |= (*(struct head_tile **)pl_vec_at(&task->outputs, i))->refs > 1;
        }
        for (size_t i = 0; i < task->dependents.count; i++) {
            const struct head_task *dependent =
                *(struct head_task **)pl_vec_at(&task->dependents, i);

            wanted |= !dependent->finished && !dependent->unwanted &&
                      dependent->kind != PLASMON__V1__LAUNCH_KIND__LAUNCH_SKIP;
        }
        task->unwanted = !wanted;
        if (!wanted && task->seq > task->device->seq_sent) {
            head_launch_skip(core, task);
        }
    }
}

static void client_destroy(struct head_core *core, struct head_client *client)
{
    pl_list_remove(&client->link);
    pl_list_remove(&client->dirty_link);
    for (size_t i = 0; i < client->failed.count; i++) {
        head_failure_release(
            ((struct head_failed *)pl_vec_at(&client->failed, i))->failure);
    }
    pl_vec_finish(&client->failed);
    wire_ranges_finish(&client->done);
    pl_map_finish(&client->refs);
    pl_map_finish(&client->tasks);
    pl_map_finish(&client->graphs);
    pl_map_finish(&client->groups);
    pl_map_finish(&client->functions);
    pl_free(client->out.data);
    client->space->tasks -= client->tasks_open; /* they go on, and nobody's */
    client->space->sessions--;
    head_space_release(client->space);
    pl_free(client->label);
    pl_free(client->host);
    pl_free(client);
    core->counts.clients--;
}

void head_core_client_close(struct head_core *core, uint64_t session)
{
    struct head_client *client = pl_map_get(&core->sessions, session);
    uint64_t key;
    size_t at = 0;

    if (client == NULL) {
        return;
    }
    pl_debug("head", "client %016llx ('%s') ended", (unsigned long long)client->id,
             client->label);
    while (pl_map_some(&client->refs, &at, &key) != NULL) {
        ref_remove(core, client, key);
    }
    head_graphs_release(core, client);
    head_reads_forget(core, client);
    skip_unwanted(core, client);
    head_trace_forget(core, client);
    head_groups_forget(client);
    head_functions_release(core, client);
    if (pl_bug("head.name_dies")) {
        head_names_destroy(core);
    }
    (void)pl_map_remove(&core->sessions, session);
    client_destroy(core, client);
    core->config.ops->session_ended(core->config.user, session);
}

/* ------------------------------------------------------------------------------- outbox */

void head_client_task_begun(struct head_client *client)
{
    client->tasks_open++;
    client->space->tasks++;
}

void head_client_task_over(struct head_client *client)
{
    PL_CHECK(client->tasks_open > 0 && client->space->tasks > 0);
    client->tasks_open--;
    client->space->tasks--;
}

void head_client_dirty(struct head_core *core, struct head_client *client)
{
    if (!client->dirty) {
        client->dirty = true;
        pl_list_add_tail(&core->dirty_clients, &client->dirty_link);
    }
}

void head_client_done(struct head_core *core, struct head_client *client, uint64_t task)
{
    if (task % 16 == 0 && pl_bug("head.answer_lost")) {
        return;
    }
    PL_CHECK(wire_ranges_add(&client->done, task) == PLASMON_OK);
    head_client_dirty(core, client);
}

void head_client_failed(struct head_core *core, struct head_client *client, uint64_t task,
                        struct head_failure *failure)
{
    struct head_failed *failed = pl_vec_push(&client->failed);

    PL_CHECK(failed != NULL);
    failed->task    = task;
    failed->failure = head_failure_hold(failure);
    head_client_dirty(core, client);
}

void head_reply_found(struct head_core *core, struct head_client *client, uint64_t request,
                      const struct pl_shape *shape, bool pending)
{
    Plasmon__V1__Reply out  = PLASMON__V1__REPLY__INIT;
    Plasmon__V1__Shape wire = PLASMON__V1__SHAPE__INIT;
    uint64_t dims[PL_DIM_MAX];

    wire_shape_put(shape, &wire, dims);
    out.request = request;
    out.shape   = &wire;
    out.pending = pending;
    head_bytes_message(&client->out, FIELD_REPLIES, &out.base);
    head_client_dirty(core, client);
}

void head_reply(struct head_core *core, struct head_client *client, uint64_t request,
                plasmon_status_t status, const char *text)
{
    Plasmon__V1__Reply out = PLASMON__V1__REPLY__INIT;

    out.request = request;
    out.status  = status;
    out.text    = (char *)text;
    head_bytes_message(&client->out, FIELD_REPLIES, &out.base);
    head_client_dirty(core, client);
}

static void append_range(struct head_bytes *out, const struct wire_range *range)
{
    Plasmon__V1__Range message = PLASMON__V1__RANGE__INIT;

    message.first = range->first;
    message.count = range->count;
    head_bytes_message(out, FIELD_DONE, &message.base);
}

static void emit(struct head_core *core, struct head_client *client)
{
    core->config.ops->client_frame(core->config.user, client->session, client->out.data,
                                   client->out.length);
    client->out.length = 0;
}

void head_client_spill(struct head_core *core, struct head_client *client)
{
    if (client->out.length > HEAD_BODY_BYTES_MAX) {
        emit(core, client);
    }
}

void head_client_flush(struct head_core *core, struct head_client *client)
{
    client->dirty = false;
    pl_list_remove(&client->dirty_link);
    for (size_t i = 0; i < client->done.items.count; i++) {
        append_range(&client->out, pl_vec_at(&client->done.items, i));
        head_client_spill(core, client);
    }
    wire_ranges_clear(&client->done);
    for (size_t i = 0; i < client->failed.count; i++) {
        const struct head_failed *failed = pl_vec_at(&client->failed, i);
        Plasmon__V1__Failure message     = PLASMON__V1__FAILURE__INIT;
        char text[REPORT_TEXT_MAX];

        strncpy(text, failed->failure->text, sizeof(text) - 1);
        text[sizeof(text) - 1] = '\0';
        message.task           = failed->task;
        message.status         = failed->failure->status;
        message.text           = text;
        message.first_task     = failed->failure->first_task;
        message.first_client   = failed->failure->first_client;
        head_bytes_message(&client->out, FIELD_FAILED, &message.base);
        head_failure_release(failed->failure);
        head_client_spill(core, client);
    }
    pl_vec_clear(&client->failed);
    if (client->out.length > 0) {
        emit(core, client);
    }
}
