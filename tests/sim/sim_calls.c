/*
 * What a client asks for, with frames made by hand.
 *
 * Ops are gathered into a frame until a flush. Tasks in a frame come before everything else in it,
 * so a frame is closed when a task follows another op, or when the kind of op changes: the order of
 * the program is the order on the wire.
 */
#include "tests/sim/sim.h"

#include <stdio.h>
#include <string.h>

enum { FRAME_TASKS_MAX = 16 };

static void *take(struct sim_client *client, size_t bytes)
{
    void *ptr = wire_arena_alloc(&client->arena, bytes);

    PL_CHECK(ptr != NULL);
    return ptr;
}

static void place(struct pl_vec *list, void *item)
{
    void **slot = pl_vec_push(list);

    PL_CHECK(slot != NULL);
    *slot = item;
}

enum tail {
    TAIL_TASKS,
    TAIL_RELEASE,
    TAIL_LOCATE,
    TAIL_READ,
    TAIL_CANCEL,
    TAIL_OPEN,
    TAIL_SEAL,
    TAIL_PUBLISH,
    TAIL_LOOKUP,
    TAIL_BYE
};

/* Keeps the order of the program: see above. */
static void begin(struct sim_client *client, enum tail kind)
{
    if (client->tail != TAIL_TASKS && client->tail != (uint32_t)kind) {
        sim_client_flush(client);
    }
    client->tail = kind;
}

static Plasmon__V1__Shape *put_shape(struct sim_client *client,
                                     const struct pl_shape *shape)
{
    Plasmon__V1__Shape *out = take(client, sizeof(*out));

    plasmon__v1__shape__init(out);
    wire_shape_put(shape, out, take(client, PL_DIM_MAX * sizeof(uint64_t)));
    return out;
}

static int64_t *put_view(struct sim_client *client, const struct pl_view *view,
                         size_t *out_n)
{
    int64_t *numbers;

    if (view == NULL) {
        *out_n = 0;
        return NULL;
    }
    numbers = take(client, 3 * PL_DIM_MAX * sizeof(int64_t));
    *out_n  = wire_view_put(view, numbers);
    return numbers;
}

uint64_t sim_client_id(struct sim_client *client)
{
    return ++client->id_last;
}

static struct sim_answer *answer_add(struct sim_client *client, enum sim_answer_kind kind,
                                     uint64_t id)
{
    struct sim_answer *answer = sim_alloc(sizeof(*answer));

    answer->kind     = kind;
    answer->id       = id;
    answer->asked_ns = client->sim->now_ns;
    answer->pins     = PL_VEC_INIT(struct sim_pin);
    answer->pending  = PL_VEC_INIT(struct sim_pin);
    PL_CHECK(pl_map_get(&client->answers, id) == NULL);
    PL_CHECK(pl_map_set(&client->answers, id, answer) == PLASMON_OK);
    client->waiting++;
    return answer;
}

static Plasmon__V1__Arg *put_arg(struct sim_client *client, const struct sim_arg *arg)
{
    Plasmon__V1__Arg *out = take(client, sizeof(*out));

    plasmon__v1__arg__init(out);
    out->mode      = arg->mode;
    out->ref       = arg->ref;
    out->view      = put_view(client, arg->viewed ? &arg->view : NULL, &out->n_view);
    out->reduce_op = arg->reduce_op;
    if (arg->shaped) {
        out->shape = put_shape(client, &arg->shape);
    }
    return out;
}

static Plasmon__V1__Collective *put_collective(struct sim_client *client,
                                               const struct sim_task *task)
{
    Plasmon__V1__Collective *out = take(client, sizeof(*out));

    plasmon__v1__collective__init(out);
    out->kind    = (Plasmon__V1__CollectiveKind)task->collective;
    out->way     = task->way;
    out->op      = task->reduction;
    out->root    = task->root;
    out->n_place = task->results;
    out->place   = take(client, task->results * sizeof(uint32_t));
    memcpy(out->place, task->places, task->results * sizeof(uint32_t));
    return out;
}

/* For most none, for others one of a few, and now and then one that nobody else has. */
static char *label_of(struct sim_client *client, uint64_t id)
{
    static const char *const labels[] = {"weights", "gradient", "loss"};
    char *own;

    if (id % 3 != 0) {
        return (char *)(uintptr_t) "";
    }
    if (id % 5 != 0) {
        return (char *)(uintptr_t)labels[id / 3 % PL_COUNT(labels)];
    }
    own = take(client, 32);
    (void)snprintf(own, 32, "step %llu", (unsigned long long)id);
    return own;
}

void sim_client_record(struct sim_client *client, const struct sim_task *task)
{
    Plasmon__V1__Task *out;

    begin(client, TAIL_TASKS);
    out = take(client, sizeof(*out));
    plasmon__v1__task__init(out);
    out->id            = task->id;
    out->kind          = (Plasmon__V1__TaskKind)task->kind;
    out->function      = task->function == NULL ? 0 : pl_hash_name(task->function);
    out->place         = task->place;
    out->retries       = task->retries;
    out->time_limit_ms = task->time_limit_ms;
    out->put_offset    = task->put_offset;
    out->put_donatable = task->donatable;
    out->put_replica   = client->sim->config.replicas;
    out->graph         = task->graph;
    out->label         = label_of(client, task->id);
    out->n_args        = task->arg_count;
    out->args          = take(client, (task->arg_count + 1) * sizeof(*out->args));
    for (uint32_t i = 0; i < task->arg_count; i++) {
        out->args[i] = put_arg(client, &task->args[i]);
    }
    out->n_scalars = task->scalar_count;
    out->scalars   = take(client, (task->scalar_count + 1) * sizeof(uint64_t));
    for (uint32_t i = 0; i < task->scalar_count; i++) {
        out->scalars[i] = task->scalars[i].bits;
    }
    out->host_buffer = (uintptr_t)task->host;
    if (task->kind == PLASMON__V1__TASK_KIND__TASK_COLLECTIVE) {
        out->collective = put_collective(client, task);
    }
    if (task->data_length > 0) {
        out->data.len  = task->data_length;
        out->data.data = take(client, task->data_length);
        memcpy(out->data.data, task->data, task->data_length);
    }
    place(&client->tasks, out);
    if (client->tasks.count >= FRAME_TASKS_MAX) {
        sim_client_flush(client);
    }
}

struct sim_answer *sim_client_task(struct sim_client *client, const struct sim_task *task)
{
    struct sim_answer *answer;

    sim_client_record(client, task);
    answer       = answer_add(client, SIM_ANSWER_TASK, task->id);
    answer->host = task->host;
    return answer;
}

struct sim_host *sim_host_create(struct sim *sim, const uint8_t *data, uint64_t bytes)
{
    struct sim_host *host   = sim_alloc(sizeof(*host) + bytes);
    struct sim_host **place = pl_vec_push(&sim->hosts);

    PL_CHECK(place != NULL);
    *place      = host;
    host->bytes = bytes;
    if (data != NULL) {
        memcpy(host->data, data, bytes);
    } else {
        sim_memory_noise(sim, host->data, bytes);
    }
    return host;
}

struct sim_answer *sim_client_read(struct sim_client *client, uint64_t ref,
                                   const struct pl_view *view, uint64_t bytes)
{
    Plasmon__V1__Read *out;

    begin(client, TAIL_READ);
    out = take(client, sizeof(*out));
    plasmon__v1__read__init(out);
    out->request = sim_client_id(client);
    out->ref     = ref;
    out->view    = put_view(client, view, &out->n_view);
    out->length  = bytes;
    place(&client->reads, out);
    return answer_add(client, SIM_ANSWER_DATA, out->request);
}

struct sim_answer *sim_client_map(struct sim_client *client, uint64_t ref,
                                  const struct pl_view *view, const struct pl_view *root,
                                  const struct pl_shape *shape, uint64_t hold_ref)
{
    Plasmon__V1__Locate *out;
    struct sim_answer *answer;

    begin(client, TAIL_LOCATE);
    out = take(client, sizeof(*out));
    plasmon__v1__locate__init(out);
    out->request  = sim_client_id(client);
    out->ref      = ref;
    out->view     = put_view(client, view, &out->n_view);
    out->hold_ref = hold_ref;
    out->compact  = out->request % 2 != 0;
    out->gather   = !out->compact;
    place(&client->locates, out);
    answer        = answer_add(client, SIM_ANSWER_MAPPING, out->request);
    answer->view  = *root;
    answer->shape = *shape;
    if (out->compact) { /* the answer is in coordinates of its own */
        answer->shape = pl_view_shape(root, shape->dtype);
        answer->view  = pl_view_whole(&answer->shape);
    }
    return answer;
}

struct sim_answer *sim_client_put_open(struct sim_client *client, uint64_t ref,
                                       const struct pl_shape *shape, uint32_t place_on,
                                       bool donatable)
{
    Plasmon__V1__PutOpen *out;

    begin(client, TAIL_OPEN);
    out = take(client, sizeof(*out));
    plasmon__v1__put_open__init(out);
    out->request   = sim_client_id(client);
    out->ref       = ref;
    out->shape     = put_shape(client, shape);
    out->place     = place_on;
    out->donatable = donatable;
    out->label     = label_of(client, out->request);
    out->replica   = client->sim->config.replicas;
    place(&client->opens, out);
    return answer_add(client, SIM_ANSWER_PUT, out->request);
}

void sim_client_put_seal(struct sim_client *client, uint64_t ref, bool abandon)
{
    Plasmon__V1__PutSeal *out;

    begin(client, TAIL_SEAL);
    out = take(client, sizeof(*out));
    plasmon__v1__put_seal__init(out);
    out->ref     = ref;
    out->abandon = abandon;
    place(&client->seals, out);
}

struct sim_answer *sim_client_publish(struct sim_client *client, const char *name,
                                      uint64_t ref)
{
    Plasmon__V1__Publish *out;

    begin(client, TAIL_PUBLISH);
    out = take(client, sizeof(*out));
    plasmon__v1__publish__init(out);
    out->request = sim_client_id(client);
    out->name    = take(client, strlen(name) + 1);
    memcpy(out->name, name, strlen(name) + 1);
    out->ref = ref;
    place(&client->publishes, out);
    return answer_add(client, SIM_ANSWER_REPLY, out->request);
}

struct sim_answer *sim_client_lookup(struct sim_client *client, const char *name,
                                     uint64_t new_ref, struct sim_answer **out_made)
{
    struct sim_answer *reply;
    Plasmon__V1__Lookup *out;

    begin(client, TAIL_LOOKUP);
    out = take(client, sizeof(*out));
    plasmon__v1__lookup__init(out);
    out->request = sim_client_id(client);
    out->name    = take(client, strlen(name) + 1);
    memcpy(out->name, name, strlen(name) + 1);
    out->new_ref = new_ref;
    out->task    = sim_client_id(client);
    place(&client->lookups, out);
    *out_made    = answer_add(client, SIM_ANSWER_TASK, out->task);
    reply        = answer_add(client, SIM_ANSWER_REPLY, out->request);
    reply->found = out->task;
    return reply;
}

void sim_client_release(struct sim_client *client, uint64_t ref)
{
    Plasmon__V1__Range *out;

    begin(client, TAIL_RELEASE);
    out = take(client, sizeof(*out));
    plasmon__v1__range__init(out);
    out->first = ref;
    out->count = 1;
    place(&client->ranges, out);
}

void sim_client_graph_release(struct sim_client *client, uint64_t graph)
{
    uint64_t *out;

    begin(client, TAIL_RELEASE);
    out = pl_vec_push(&client->graph_releases);
    PL_CHECK(out != NULL);
    *out = graph;
}

void sim_client_cancel(struct sim_client *client, uint64_t task, bool force)
{
    uint64_t *out;

    begin(client, TAIL_CANCEL);
    out = pl_vec_push(force ? &client->cancels_force : &client->cancels);
    PL_CHECK(out != NULL);
    *out = task;
}

void sim_client_heard(struct sim_client *client)
{
    sim_client_flush(client);
    client->frame.host_copies_heard = client->copies_told;
    sim_client_flush(client);
}

void sim_client_bye(struct sim_client *client)
{
    begin(client, TAIL_BYE);
    client->frame.bye = true;
    client->said_bye  = true;
    sim_client_flush(client);
}

void sim_frame_clear(struct sim_client *client)
{
    struct pl_vec *const lists[] = {
        &client->tasks,   &client->ranges,        &client->locates,        &client->reads,
        &client->cancels, &client->cancels_force, &client->graph_releases, &client->opens,
        &client->seals,   &client->publishes,     &client->lookups};

    for (size_t i = 0; i < PL_COUNT(lists); i++) {
        pl_vec_clear(lists[i]);
    }
    plasmon__v1__client_frame__init(&client->frame);
    wire_arena_reset(&client->arena);
    client->tail = TAIL_TASKS;
}

void sim_client_flush(struct sim_client *client)
{
    Plasmon__V1__ClientFrame *frame = &client->frame;
    struct sim_body *body;
    size_t length;

    frame->n_tasks         = client->tasks.count;
    frame->tasks           = client->tasks.items;
    frame->n_release       = client->ranges.count;
    frame->release         = client->ranges.items;
    frame->n_locate        = client->locates.count;
    frame->locate          = client->locates.items;
    frame->n_read          = client->reads.count;
    frame->read            = client->reads.items;
    frame->n_graph_release = client->graph_releases.count;
    frame->graph_release   = client->graph_releases.items;
    frame->n_cancel        = client->cancels.count;
    frame->cancel          = client->cancels.items;
    frame->n_cancel_force  = client->cancels_force.count;
    frame->cancel_force    = client->cancels_force.items;
    frame->n_put_open      = client->opens.count;
    frame->put_open        = client->opens.items;
    frame->n_put_seal      = client->seals.count;
    frame->put_seal        = client->seals.items;
    frame->n_publish       = client->publishes.count;
    frame->publish         = client->publishes.items;
    frame->n_lookup        = client->lookups.count;
    frame->lookup          = client->lookups.items;

    length = plasmon__v1__client_frame__get_packed_size(frame);
    if (length > 0) {
        body         = sim_alloc(sizeof(*body) + length);
        body->ops    = frame->n_tasks;
        body->length = length;
        (void)plasmon__v1__client_frame__pack(frame, body->data);
        pl_list_init(&body->link);
        pl_list_add_tail(&client->outbox, &body->link);
    }
    sim_frame_clear(client);
    sim_client_pump(client);
}
