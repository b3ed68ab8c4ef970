/*
 * Answers that are owed when tasks are done. Each of those tasks holds a pointer to the head_wait
 * and calls head_wait_ended(); the last one sends it. What the answer speaks of is protected by a
 * snapshot: the hold of a Locate is a ref of the client, a Read keeps the bytes by the use of its
 * launch.
 */
#include "head/wait.h"

#include <string.h>

static struct head_client *wait_client(struct head_core *core, const struct head_wait *wait)
{
    return pl_map_get(&core->sessions, wait->session);
}

static Plasmon__V1__Shape *put_shape(struct head_core *core, const struct pl_shape *shape)
{
    Plasmon__V1__Shape *out = wire_arena_alloc(&core->arena, sizeof(*out));
    uint64_t *dims          = wire_arena_alloc(&core->arena, PL_DIM_MAX * sizeof(uint64_t));

    PL_CHECK(out != NULL && dims != NULL);
    plasmon__v1__shape__init(out);
    wire_shape_put(shape, out, dims);
    return out;
}

/* ------------------------------------------------------------------------------ answers */

void head_wait_put_ready(struct head_core *core, struct head_client *client,
                         uint64_t request, uint64_t buffer, bool bulk,
                         plasmon_status_t status, const char *text)
{
    Plasmon__V1__PutReady ready = PLASMON__V1__PUT_READY__INIT;

    wire_arena_reset(&core->arena);
    if (bulk && status == PLASMON_OK) {
        ready.bulk = head_bulk_grant(core, buffer, client->id, WIRE_TICKET_WRITE);
    }
    ready.request = request;
    ready.buffer  = buffer;
    ready.status  = status;
    ready.text    = (char *)text;
    head_bytes_message(&client->out, 7, &ready.base);
    head_client_dirty(core, client);
}

static void send_data(struct head_core *core, struct head_client *client,
                      const struct head_wait *wait, const ProtobufCBinaryData *bytes,
                      plasmon_status_t status, const char *text)
{
    Plasmon__V1__Data data = PLASMON__V1__DATA__INIT;

    wire_arena_reset(&core->arena);
    data.request = wait->request;
    data.status  = status;
    data.text    = (char *)text;
    data.total   = wait->total;
    if (bytes != NULL) {
        data.bytes = *bytes;
        data.shape = put_shape(core, &wait->shape);
    }
    head_bytes_message(&client->out, 6, &data.base);
    head_client_dirty(core, client);
    head_client_spill(core, client);
}

static void add_location(struct head_core *core, struct pl_vec *out, uint64_t buffer,
                         const struct pl_box *box, const struct pl_box *frame)
{
    Plasmon__V1__Location *location = wire_arena_alloc(&core->arena, sizeof(*location));
    Plasmon__V1__Location **place   = pl_vec_push(out);

    PL_CHECK(location != NULL && place != NULL);
    plasmon__v1__location__init(location);
    *place           = location;
    location->buffer = buffer;
    location->box    = wire_arena_alloc(&core->arena, 2 * PL_DIM_MAX * sizeof(int64_t));
    location->frame  = wire_arena_alloc(&core->arena, 2 * PL_DIM_MAX * sizeof(int64_t));
    PL_CHECK(location->box != NULL && location->frame != NULL);
    location->n_box   = wire_box_put(box, location->box);
    location->n_frame = wire_box_put(frame, location->frame);
}

static bool is_settled(const struct head_instance *instance)
{
    const struct pl_list *pos;

    pl_list_for_each(pos, &instance->buffer->writers) {
        if (pl_box_intersects(&pl_container_of(pos, struct head_use, link)->box,
                              &instance->box)) {
            return false;
        }
    }
    return true;
}

/*
 * Of two copies of a part: one that is there, which not all are that were begun since, or need not
 * be waited for (locate_places); then a near one.
 */
static bool serves_better(const struct head_instance *a, const struct head_instance *b,
                          const struct head_client *client)
{
    bool settled_a = is_settled(a), settled_b = is_settled(b);

    if (settled_a != settled_b) {
        return settled_a;
    }
    return a->buffer->device->kind == 1 &&
           strcmp(a->buffer->device->host, client->host) == 0;
}

/* One location for each part of a fragment that one instance serves. */
static void add_locations(struct head_core *core, struct pl_vec *out,
                          struct head_tile *tile, const struct pl_box *box,
                          const struct head_client *client)
{
    struct head_instance *best = NULL;
    struct pl_box part, rest[2 * PL_DIM_MAX];
    struct pl_list *pos;
    unsigned count;

    pl_list_for_each(pos, &tile->instances) {
        struct head_instance *instance =
            pl_container_of(pos, struct head_instance, tile_link);

        if (instance->buffer->spilled == NULL && pl_box_intersects(&instance->box, box) &&
            (best == NULL || serves_better(instance, best, client))) {
            best = instance;
        }
    }
    if (best == NULL) {
        return; /* lost: the failure of the tile says so */
    }
    PL_CHECK(pl_box_intersection(&best->box, box, &part));
    add_location(core, out, best->buffer->id, &part, &best->buffer->frame);
    count = pl_box_subtract(box, &part, rest);
    for (unsigned i = 0; i < count; i++) {
        add_locations(core, out, tile, &rest[i], client);
    }
}

static void send_located(struct head_core *core, struct head_client *client,
                         const struct head_wait *wait)
{
    Plasmon__V1__Located located = PLASMON__V1__LOCATED__INIT;
    struct pl_vec locations      = PL_VEC_INIT(Plasmon__V1__Location *);
    struct head_failure *failure =
        wait->failure != NULL ? wait->failure : head_array_failure(wait->array, &wait->box);
    struct pl_list *pos;

    wire_arena_reset(&core->arena);
    located.request = wait->request;
    if (failure != NULL) {
        located.status = failure->status;
        located.text   = failure->text;
    } else if (wait->buffer != 0 && wait->shape.dtype != 0) {
        /* compact: the buffer is the value */
        struct pl_box whole = pl_box_of_shape(&wait->shape);

        add_location(core, &locations, wait->buffer, &whole, &whole);
    } else if (wait->buffer != 0) {
        add_location(core, &locations, wait->buffer, &wait->box, &wait->frame);
    } else {
        pl_list_for_each(pos, &wait->array->fragments) {
            const struct head_fragment *fragment =
                pl_container_of(pos, struct head_fragment, array_link);
            struct pl_box part;

            if (pl_box_intersection(&fragment->box, &wait->box, &part)) {
                add_locations(core, &locations, fragment->tile, &part, client);
            }
        }
    }
    for (size_t i = 0; wait->bulk && i < locations.count; i++) {
        Plasmon__V1__Location *location =
            *(Plasmon__V1__Location **)pl_vec_at(&locations, i);

        location->bulk =
            head_bulk_grant(core, location->buffer, client->id, WIRE_TICKET_READ);
    }
    if (failure == NULL) {
        located.locations   = locations.items;
        located.n_locations = locations.count;
        located.shape =
            put_shape(core, wait->shape.dtype != 0 ? &wait->shape : &wait->array->shape);
    }
    head_bytes_message(&client->out, 5, &located.base);
    head_client_dirty(core, client);
    head_client_spill(core, client);
    pl_vec_finish(&locations);
}

void head_wait_free(struct head_core *core, struct head_wait *wait)
{
    if (wait->own_request != 0) {
        (void)pl_map_remove(&core->requests, wait->own_request); /* a READ that failed */
    }
    pl_free(wait->bytes);
    pl_free(wait->bytes_text);
    if (wait->array != NULL) {
        head_array_release(core, wait->array);
    }
    head_failure_release(wait->failure);
    pl_free(wait);
}

static void answer_data(struct head_core *core, struct head_client *client,
                        const struct head_wait *wait)
{
    ProtobufCBinaryData bytes = {.data = wait->bytes, .len = wait->bytes_length};

    if (wait->failure != NULL) {
        send_data(core, client, wait, NULL, wait->failure->status, wait->failure->text);
    } else if (wait->arrived) {
        send_data(core, client, wait, &bytes, wait->bytes_status, wait->bytes_text);
    } else {
        send_data(core, client, wait, NULL, PLASMON_EAGAIN, /* libplasmon does */
                  "the worker died after it had read the bytes and before it sent them; "
                  "read again");
    }
}

/* All tasks have ended. */
static void wait_done(struct head_core *core, struct head_wait *wait)
{
    struct head_client *client = wait_client(core, wait);

    if (client != NULL && wait->kind == HEAD_WAIT_LOCATED &&
        !head_locate_holds(core, wait)) {
        return;
    }

    if (client != NULL) {
        plasmon_status_t status =
            wait->failure != NULL ? wait->failure->status : PLASMON_OK;
        const char *text = wait->failure != NULL ? wait->failure->text : "";

        switch (wait->kind) {
        case HEAD_WAIT_PUT_READY:
            if (status != PLASMON_OK) {
                /* nothing will be put: it has failed */
                wait->array->put_offset = UINT64_MAX;
            }
            head_wait_put_ready(core, client, wait->request, wait->buffer, wait->bulk,
                                status, text);
            break;
        case HEAD_WAIT_LOCATED:
            send_located(core, client, wait);
            break;
        case HEAD_WAIT_DATA:
            client->reads_bytes -= wait->read_bytes;
            answer_data(core, client, wait);
            break;
        }
    }
    head_wait_free(core, wait);
}

void head_wait_ended(struct head_core *core, struct head_wait *wait,
                     struct head_failure *failure)
{
    if (failure != NULL && wait->failure == NULL) {
        wait->failure = head_failure_hold(failure);
    }
    PL_CHECK(wait->remaining > 0);
    if (--wait->remaining == 0) {
        wait_done(core, wait);
    }
}

struct head_wait *head_wait_create(struct head_client *client, enum head_wait_kind kind,
                                   uint64_t request)
{
    struct head_wait *wait = head_alloc(sizeof(*wait));

    wait->kind      = kind;
    wait->session   = client->session;
    wait->request   = request;
    wait->remaining = 1;
    return wait;
}

void head_wait_for(struct head_wait *wait, struct head_task *task, bool indifferent)
{
    struct head_waiting *waiting = pl_vec_push(&task->waits);

    PL_CHECK(waiting != NULL);
    waiting->wait        = wait;
    waiting->indifferent = indifferent;
    wait->remaining++;
}

/* Wait for everything that still writes `box` of the buffer. */
static void wait_for_writers(struct head_wait *wait, struct head_buffer *buffer,
                             const struct pl_box *box, bool indifferent)
{
    struct pl_vec after     = PL_VEC_INIT(uint64_t);
    struct pl_vec producers = PL_VEC_INIT(struct head_task *);

    head_hazard_collect(buffer, box, true, false, &after, &producers);
    for (size_t i = 0; i < producers.count; i++) {
        head_wait_for(wait, *(struct head_task **)pl_vec_at(&producers, i), indifferent);
    }
    pl_vec_finish(&after);
    pl_vec_finish(&producers);
}

void head_wait_to_map(struct head_wait *wait, struct head_buffer *buffer,
                      const struct pl_box *box)
{
    wait_for_writers(wait, buffer, box, false);
    wait_for_writers(wait, buffer, &buffer->frame, true);
}

void head_waits_destroy(struct head_core *core)
{
    struct head_wait *wait;
    uint64_t key;
    size_t at = 0;

    while ((wait = pl_map_some(&core->requests, &at, &key)) != NULL) {
        head_wait_free(core, wait);
    }
    pl_map_finish(&core->requests);
}
