/*
 * Copies that are on their way when the call returns: from host memory of this client to a new
 * object, and from what a ref shows to host memory. To the head they are tasks like others, in the
 * order of submission: a put, the calls that read it and a get of what they make are sent without
 * waiting for anything in between.
 *
 * What cannot go so - no device of this host, or the put's device is elsewhere - goes the ordinary
 * way, with the same promises: a put is over when the call returns, a get is done by a thread
 * (host_relay.c). So do values of at most VALUE_BYTES_MAX: they travel with their task.
 *
 * plasmon_put() and plasmon_get() of such memory are the same, waited for, where the alternative is
 * a lane (a GPU): memory of a CPU device is mapped, and copied by several threads of ours.
 */
#include "client/data.h"
#include "client/graph.h"
#include "client/put.h"

/* The head has not heard of it. */
static void forget_ref_locked(struct plasmon_client *client, struct plasmon_ref *ref)
{
    struct pl_err unused = {0};
    struct ref_slot *slot;
    uint64_t id;
    bool at_once;

    if (refs_find(&client->refs, ref, &slot, &unused) == PLASMON_OK) {
        (void)refs_close(&client->refs, ref, slot, &id, &at_once);
    }
}

/* A ref for a task: made with it, resolved with it. */
struct future {
    struct task *task;
    struct root *root;
    struct plasmon_ref *ref;
};

static plasmon_status_t future_make(struct plasmon_client *client, const char *what,
                                    struct future *out)
{
    struct refs *refs = &client->refs;
    uint64_t id       = refs_draw_task(refs);
    struct root *root;

    out->task = task_create(refs, id, what, NULL);
    if (out->task == NULL) {
        return PLASMON_ENOMEM;
    }
    root = root_create(refs, id, NULL);
    if (root == NULL) {
        goto err_abandon;
    }
    out->root = root;
    out->ref  = refs_open(refs, root, NULL);
    if (out->ref == NULL) {
        root_drop(refs, root);
        goto err_abandon;
    }
    if (task_writes(out->task, root, NULL, WRITE_ADDS) != PLASMON_OK) {
        goto err_close;
    }
    return PLASMON_OK;

err_close:
    forget_ref_locked(client, out->ref);
err_abandon:
    task_abandon(refs, out->task);
    return PLASMON_ENOMEM;
}

static void future_undo(struct plasmon_client *client, struct future *future)
{
    task_abandon(&client->refs, future->task);
    forget_ref_locked(client, future->ref);
}

/* ---------------------------------------------------------------------------------- put */

static plasmon_status_t put_send_locked(const struct put *put, struct host_buffer *buffer,
                                        struct host_use **io_use, struct root *root)
{
    struct plasmon_client *client = put->client;
    struct frame_arg arg   = {.mode = PLASMON_OUT, .ref = root->id, .shape = &put->shape};
    struct frame_task wire = {
        .id          = refs_draw_task(&client->refs),
        .kind        = PLASMON__V1__TASK_KIND__TASK_PUT_HOST,
        .args        = &arg,
        .arg_count   = 1,
        .host_buffer = buffer->id,
        .host_offset = (*io_use)->begin,
        .label       = put->options.label,
        .place       = (uint32_t)(put->options.device + 1),
        .donatable   = put->options.donatable != 0,
        .replica     = put->options.replica != 0,
        .submit_ns   = client->trace.on ? pl_realtime_ns() : 0,
    };
    struct task *task = task_create(&client->refs, wire.id, "put", put->options.label);
    plasmon_status_t status;

    if (task == NULL) {
        return PLASMON_ENOMEM;
    }
    status = task_writes(task, root, NULL, WRITE_ADDS);
    if (status == PLASMON_OK) {
        status = frame_add_task(&client->session.frame, &wire);
    }
    if (status != PLASMON_OK) {
        task_abandon(&client->refs, task);
        return status;
    }
    task->host_use = *io_use; /* until the task ends */
    *io_use        = NULL;
    task_commit(&client->refs, task);
    client->session.tasks_sent++;
    session_kick_locked(client);
    return PLASMON_OK;
}

/* EUNREACHABLE: not so. */
static plasmon_status_t put_direct_locked(const struct put *put,
                                          struct plasmon_ref **out_ref)
{
    struct plasmon_client *client = put->client;
    struct pl_err err             = {0};
    struct host_use *use          = NULL;
    struct host_buffer *buffer;
    struct plasmon_ref *ref;
    struct root *root;
    plasmon_status_t status = session_room_locked(client, 1, FRAME_TASK);

    if (status == PLASMON_OK && !host_copies_locked(client)) {
        status = PLASMON_EUNREACHABLE; /* by now */
    }
    if (status != PLASMON_OK) {
        return status;
    }
    buffer = host_find_locked(client, put->data, put->bytes, &err);
    status = buffer == NULL
                 ? err.status
                 : host_use_begin_locked(buffer, put->data, put->bytes, false, &use, &err);
    if (status != PLASMON_OK) {
        return error_from(&err, status);
    }
    ref    = put_make_ref_locked(put, &root);
    status = ref == NULL ? PLASMON_ENOMEM : put_send_locked(put, buffer, &use, root);
    if (status != PLASMON_OK) {
        host_use_end(use);
        if (ref != NULL) {
            forget_ref_locked(client, ref);
        }
        return error_set(status, "put: %s", pl_status_text(status));
    }
    *out_ref = ref;
    return PLASMON_OK;
}

/* Is the memory ours, and free to be read? Which way is it to go? */
static plasmon_status_t put_way(const struct put *put, bool *out_direct)
{
    struct plasmon_client *client = put->client;
    struct pl_err err             = {0};
    struct host_use *use          = NULL;
    uint64_t memory               = 0;
    struct host_buffer *buffer;
    plasmon_status_t status;

    pl_mutex_lock(&client->lock);
    buffer = host_find_locked(client, put->data, put->bytes, &err);
    status = buffer == NULL
                 ? err.status
                 : host_use_begin_locked(buffer, put->data, put->bytes, false, &use, &err);
    if (status == PLASMON_OK) {
        memory = buffer->memory;
        host_use_end(use);
    }
    pl_mutex_unlock(&client->lock);
    if (status != PLASMON_OK) {
        return error_from(&err, status);
    }
    *out_direct = put->bytes > VALUE_BYTES_MAX && memory != 0 &&
                  memory == host_direct(client, put->options.device);
    return PLASMON_OK;
}

plasmon_status_t plasmon_put_async(struct plasmon_client *client, const void *data,
                                   const struct plasmon_shape *shape,
                                   const struct plasmon_put_options *options,
                                   struct plasmon_ref **out_ref)
{
    struct put put          = {.client = client};
    bool direct             = false;
    plasmon_status_t status = client_enter(client);

    if (status != PLASMON_OK) {
        return status;
    }
    if (out_ref == NULL) {
        return error_set(PLASMON_EINVAL, "out_ref is NULL");
    }
    status = put_check(options, data, shape, &put);
    if (status == PLASMON_OK && !client_on_loop_thread(client)) {
        status = put_check_size(&put);
    }
    if (status == PLASMON_OK) {
        status = put_way(&put, &direct);
    }
    if (status != PLASMON_OK) {
        return status;
    }
    status = PLASMON_EUNREACHABLE;
    if (direct) {
        pl_mutex_lock(&client->lock);
        status = put_direct_locked(&put, out_ref);
        pl_mutex_unlock(&client->lock);
    }
    return status == PLASMON_EUNREACHABLE
               ? plasmon_put(client, data, shape, options, out_ref)
               : status;
}

/* Is it memory that devices copy from and to, and should they? */
static bool is_direct(struct plasmon_client *client, const void *data, uint64_t bytes,
                      int device)
{
    const struct host_buffer *buffer;
    struct pl_err unused = {0};
    uint64_t memory;

    pl_mutex_lock(&client->lock);
    buffer = host_find_locked(client, data, bytes, &unused);
    memory = buffer != NULL ? buffer->memory : 0;
    pl_mutex_unlock(&client->lock);
    return memory != 0 && data_known(client, device, DATA_STAGED) &&
           memory == host_direct(client, device);
}

/* Until the copy is over; the ref that tells goes if it failed. */
static plasmon_status_t wait_locked(struct plasmon_client *client, struct plasmon_ref *ref,
                                    bool keep)
{
    struct pl_err err = {0};
    struct ref_slot *slot;
    plasmon_status_t status = refs_find(&client->refs, ref, &slot, &err);

    if (status != PLASMON_OK) {
        return error_from(&err, status);
    }
    status = client_wait_ref_locked(client, slot->root, NULL, UINT64_MAX);
    if ((status != PLASMON_OK || !keep) &&
        refs_find(&client->refs, ref, &slot, &err) == PLASMON_OK) {
        client_close_ref_locked(client, ref, slot);
    }
    return status;
}

/* What the ordinary way may do better, or say better. */
static plasmon_status_t or_ordinary(plasmon_status_t status)
{
    return status == PLASMON_OK || status == PLASMON_EBUSY || status == PLASMON_ECLOSED
               ? status
               : PLASMON_EUNREACHABLE;
}

plasmon_status_t host_put(const struct put *put, struct plasmon_ref **out_ref)
{
    struct plasmon_client *client = put->client;
    plasmon_status_t status;

    if (!is_direct(client, put->data, put->bytes, put->options.device)) {
        return PLASMON_EUNREACHABLE;
    }
    pl_mutex_lock(&client->lock);
    status = put_direct_locked(put, out_ref);
    if (status == PLASMON_OK) {
        status = wait_locked(client, *out_ref, true);
    }
    pl_mutex_unlock(&client->lock);
    return or_ordinary(status);
}

/* ---------------------------------------------------------------------------------- get */

struct get {
    struct plasmon_client *client;
    struct plasmon_ref *ref;
    uint8_t *data;
    uint64_t capacity;
    struct ref_slot *slot;
    struct host_buffer *buffer;
    struct host_use *use;
};

/* What is wrong with it; else the range is in use. */
static plasmon_status_t get_look_locked(struct get *get)
{
    struct pl_err err       = {0};
    plasmon_status_t status = refs_find(&get->client->refs, get->ref, &get->slot, &err);
    struct pl_shape shape;

    if (status == PLASMON_OK && get->slot->root->is_task) {
        status = pl_err_set(&err, PLASMON_EINVAL, "the ref is a task's; it has no bytes");
    }
    if (status == PLASMON_OK) {
        status = graph_check_content(get->slot->root, &err);
    }
    if (status == PLASMON_OK) {
        shape = slot_shape(get->slot);
        if (pl_shape_bytes(&shape) > get->capacity) {
            status = pl_err_set(&err, PLASMON_ESHAPE,
                                "the ref shows %llu bytes, and there is room for %llu",
                                (unsigned long long)pl_shape_bytes(&shape),
                                (unsigned long long)get->capacity);
        }
    }
    if (status == PLASMON_OK) {
        get->buffer =
            host_find_locked(get->client, get->data, pl_shape_bytes(&shape), &err);
        status = get->buffer == NULL
                     ? err.status
                     : host_use_begin_locked(get->buffer, get->data, pl_shape_bytes(&shape),
                                             true, &get->use, &err);
    }
    return status == PLASMON_OK ? PLASMON_OK : error_from(&err, status);
}

static plasmon_status_t get_send_locked(struct get *get, struct future *future)
{
    struct plasmon_client *client = get->client;
    struct frame_arg arg          = {
                 .mode = PLASMON_IN, .ref = get->slot->root->id, .view = get->slot->view};
    struct frame_task wire = {
        .id          = future->root->id,
        .kind        = PLASMON__V1__TASK_KIND__TASK_GET_HOST,
        .args        = &arg,
        .arg_count   = 1,
        .host_buffer = get->buffer->id,
        .host_offset = get->use->begin,
        .submit_ns   = client->trace.on ? pl_realtime_ns() : 0,
    };
    plasmon_status_t status = frame_add_task(&client->session.frame, &wire);

    if (status == PLASMON_OK) {
        future->task->host_use = get->use;
        task_commit(&client->refs, future->task);
        client->session.tasks_sent++;
        session_kick_locked(client);
    }
    return status;
}

/* A snapshot, because what is submitted after this call must not be seen. */
static plasmon_status_t get_relay_locked(struct get *get, struct future *future)
{
    struct plasmon_client *client = get->client;
    struct plasmon_ref *snapshot;
    plasmon_status_t status = client_snapshot_locked(client, get->slot, &snapshot);

    if (status != PLASMON_OK) {
        return status;
    }
    status = host_relay_locked(client, snapshot, get->use, future->root->id);
    if (status != PLASMON_OK) {
        struct ref_slot *slot;
        struct pl_err unused = {0};

        if (refs_find(&client->refs, snapshot, &slot, &unused) == PLASMON_OK) {
            client_close_ref_locked(client, snapshot, slot);
        }
        return status;
    }
    task_commit(&client->refs, future->task);
    return PLASMON_OK;
}

/* memory: whose buffers devices write themselves; 0: none. */
static plasmon_status_t get_locked(struct get *get, uint64_t memory,
                                   struct plasmon_ref **out_task)
{
    struct plasmon_client *client = get->client;
    struct future future;
    plasmon_status_t status = session_room_locked(client, 1, FRAME_TASK);

    if (status == PLASMON_OK) {
        status = get_look_locked(get);
    }
    if (status != PLASMON_OK) {
        return status;
    }
    status = future_make(client, "get", &future);
    if (status == PLASMON_OK) {
        status = memory != 0 && get->buffer->memory == memory && host_copies_locked(client)
                     ? get_send_locked(get, &future)
                     : get_relay_locked(get, &future);
        if (status != PLASMON_OK) {
            future_undo(client, &future);
        }
    }
    if (status != PLASMON_OK) {
        host_use_end(get->use);
        return error_set(status, "get: %s", pl_status_text(status));
    }
    *out_task = future.ref;
    return PLASMON_OK;
}

plasmon_status_t plasmon_get_async(struct plasmon_client *client, struct plasmon_ref *ref,
                                   void *data, size_t bytes, struct plasmon_ref **out_task)
{
    struct get get = {.client = client, .ref = ref, .data = data, .capacity = bytes};
    plasmon_status_t status = client_enter(client);
    uint64_t memory;

    if (status != PLASMON_OK) {
        return status;
    }
    if (data == NULL || out_task == NULL) {
        return error_set(PLASMON_EINVAL, "data or out_task is NULL");
    }
    memory = host_direct(client, PLASMON_ANYWHERE);
    pl_mutex_lock(&client->lock);
    status = get_locked(&get, memory, out_task);
    pl_mutex_unlock(&client->lock);
    return status;
}

plasmon_status_t host_get(struct plasmon_client *client, struct plasmon_ref *ref,
                          void *data, uint64_t bytes)
{
    struct get get = {.client = client, .ref = ref, .data = data, .capacity = bytes};
    struct plasmon_ref *task;
    uint64_t memory;
    plasmon_status_t status;

    if (!is_direct(client, data, bytes, PLASMON_ANYWHERE)) {
        return PLASMON_EUNREACHABLE;
    }
    memory = shared_number(&client->shared);
    pl_mutex_lock(&client->lock);
    status = get_locked(&get, memory, &task);
    if (status == PLASMON_OK) {
        status = wait_locked(client, task, false);
    }
    pl_mutex_unlock(&client->lock);
    return or_ordinary(status);
}
