/* Refs as the program sees them: views, snapshots, shapes, release, and names. */
#include <string.h>

#include "base/alloc.h"
#include "client/client_int.h"
#include "client/graph.h"

plasmon_status_t plasmon_view(struct plasmon_client *client, struct plasmon_ref *ref,
                              const int64_t *start, const int64_t *count,
                              const int64_t *step, struct plasmon_ref **out_view)
{
    struct pl_view inner = {0}, outer, composed, whole;
    struct pl_err err    = {0};
    struct ref_slot *slot;
    struct pl_shape shape;
    struct plasmon_ref *view;
    plasmon_status_t status = client_enter(client);

    if (status != PLASMON_OK) {
        return status;
    }
    if (out_view == NULL) {
        return error_set(PLASMON_EINVAL, "out_view is NULL");
    }

    pl_mutex_lock(&client->lock);
    status = refs_find(&client->refs, ref, &slot, &err);
    if (status == PLASMON_OK && slot->root->is_task) {
        status = pl_err_set(&err, PLASMON_EINVAL, "the ref is a task's; it has no bytes");
    }
    if (status == PLASMON_OK) {
        shape      = slot_shape(slot);
        inner.ndim = shape.ndim;
        if (shape.ndim > 0 && (start == NULL || count == NULL)) {
            status = pl_err_set(&err, PLASMON_EINVAL, "start or count is NULL");
        }
    }
    for (uint32_t i = 0; status == PLASMON_OK && i < inner.ndim; i++) {
        inner.start[i] = start[i];
        inner.count[i] = count[i];
        inner.step[i]  = step != NULL ? step[i] : 1;
    }
    if (status == PLASMON_OK) {
        status = pl_view_check(&inner, &shape, &err);
    }
    if (status == PLASMON_OK) {
        outer  = slot_view(slot);
        status = pl_view_compose(&outer, &inner, &composed, &err);
    }
    if (status == PLASMON_OK) {
        whole = pl_view_whole(&slot->root->shape);
        view  = refs_open(&client->refs, slot->root,
                         memcmp(&whole, &composed, sizeof(whole)) == 0 ? NULL : &composed);
        if (view == NULL) {
            status = pl_err_set(&err, PLASMON_ENOMEM, "out of host memory");
        } else {
            *out_view = view;
        }
    }
    pl_mutex_unlock(&client->lock);
    return status == PLASMON_OK ? PLASMON_OK : error_from(&err, status);
}

plasmon_status_t plasmon_shape_of(struct plasmon_client *client, struct plasmon_ref *ref,
                                  struct plasmon_shape *out_shape)
{
    struct pl_err err = {0};
    struct ref_slot *slot;
    struct pl_shape shape;
    plasmon_status_t status = client_enter(client);

    if (status != PLASMON_OK) {
        return status;
    }
    if (out_shape == NULL) {
        return error_set(PLASMON_EINVAL, "out_shape is NULL");
    }

    pl_mutex_lock(&client->lock);
    status = refs_find(&client->refs, ref, &slot, &err);
    if (status == PLASMON_OK && slot->root->is_task) {
        status = pl_err_set(&err, PLASMON_EINVAL, "the ref is a task's; it has no shape");
    }
    if (status == PLASMON_OK) {
        shape      = slot_shape(slot);
        *out_shape = (struct plasmon_shape){.dtype = (plasmon_dtype_t)shape.dtype,
                                            .ndim  = shape.ndim};
        memcpy(out_shape->dim, shape.dim, shape.ndim * sizeof(shape.dim[0]));
    }
    pl_mutex_unlock(&client->lock);
    return status == PLASMON_OK ? PLASMON_OK : error_from(&err, status);
}

/* ------------------------------------------------------------------------------ release */

void client_close_ref_locked(struct plasmon_client *client, struct plasmon_ref *ref,
                             struct ref_slot *slot)
{
    const struct root *root = slot->root;
    uint64_t bytes          = root->is_task ? 0 : pl_shape_bytes(&root->shape);
    uint64_t id;
    bool at_once;

    if (refs_close(&client->refs, ref, slot, &id, &at_once) && id != 0) {
        session_release_locked(client, id, bytes, at_once ? RELEASE_AT_ONCE : RELEASE_SOON);
    }
}

plasmon_status_t plasmon_release(struct plasmon_client *client, struct plasmon_ref *ref)
{
    struct pl_err err = {0};
    struct ref_slot *slot;
    plasmon_status_t status = client_enter(client);

    if (status != PLASMON_OK || ref == NULL) {
        return status;
    }

    pl_mutex_lock(&client->lock);
    status = refs_find(&client->refs, ref, &slot, &err);
    if (status == PLASMON_OK) {
        client_close_ref_locked(client, ref, slot);
    }
    client_run_callbacks_unlock(client); /* who waited for it hears ERELEASED */
    return status == PLASMON_OK ? PLASMON_OK : error_from(&err, status);
}

/* ----------------------------------------------------------------------------- snapshot */

/* The snapshot task, told to the head and to refs. */
static plasmon_status_t send_snapshot_locked(struct plasmon_client *client,
                                             const struct ref_slot *slot, struct root *root)
{
    struct refs *refs       = &client->refs;
    struct pl_view view     = slot_view(slot);
    struct frame_arg args[] = {
        {.mode = PLASMON_IN,
         .ref  = slot->root->id,
         .view = slot->view != NULL ? &view : NULL},
        {.mode = PLASMON_OUT, .ref = root->id, .shape = &root->shape},
    };
    struct frame_task wire = {.id        = refs_draw_task(refs),
                              .kind      = PLASMON__V1__TASK_KIND__TASK_SNAPSHOT,
                              .args      = args,
                              .arg_count = 2};
    struct task *task      = task_create(refs, wire.id, "snapshot", NULL);
    struct pl_box box;
    plasmon_status_t status;

    if (task == NULL) {
        return PLASMON_ENOMEM;
    }
    status = task_writes(task, root, NULL, WRITE_ADDS);
    if (status == PLASMON_OK) {
        /* the head takes the name at once; the bytes come with those who write the source */
        status = root_inherit(root, slot->root, slot_box(slot, &box));
    }
    if (status == PLASMON_OK) {
        status = frame_add_task(&client->session.frame, &wire);
    }
    if (status != PLASMON_OK) {
        task_abandon(refs, task);
        return status;
    }
    task_commit(refs, task);
    client->session.tasks_sent++;
    session_kick_locked(client);
    return PLASMON_OK;
}

/* A snapshot of a part remembers of what. */
static plasmon_status_t set_base(struct root *root, const struct ref_slot *slot)
{
    if (slot->view == NULL && slot->root->base == NULL) {
        return PLASMON_OK;
    }
    root->base = PL_NEW(struct root_base);
    if (root->base == NULL) {
        return PLASMON_ENOMEM;
    }
    slot_place(slot, &root->base->shape, &root->base->view);
    return PLASMON_OK;
}

plasmon_status_t client_snapshot_locked(struct plasmon_client *client,
                                        struct ref_slot *slot, struct plasmon_ref **out_ref)
{
    struct pl_shape shape = slot_shape(slot);
    struct plasmon_ref *ref;
    struct ref_slot *made;
    struct root *root;
    struct pl_err err = {0};
    uint64_t id;
    bool at_once;
    plasmon_status_t status;

    root = root_create(&client->refs, refs_draw_ref(&client->refs), &shape);
    if (root == NULL) {
        return error_set(PLASMON_ENOMEM, "out of host memory");
    }
    root->is_snapshot = true;
    ref = set_base(root, slot) == PLASMON_OK ? refs_open(&client->refs, root, NULL) : NULL;
    if (ref == NULL) {
        root_drop(&client->refs, root);
        return error_set(PLASMON_ENOMEM, "out of host memory");
    }
    status = send_snapshot_locked(client, slot, root);
    if (status != PLASMON_OK) {
        if (refs_find(&client->refs, ref, &made, &err) == PLASMON_OK) {
            (void)refs_close(&client->refs, ref, made, &id, &at_once);
        }
        return error_set(status, "%s", pl_status_text(status));
    }
    *out_ref = ref;
    return PLASMON_OK;
}

plasmon_status_t plasmon_snapshot(struct plasmon_client *client, struct plasmon_ref *ref,
                                  struct plasmon_ref **out_ref)
{
    struct pl_err err = {0};
    struct ref_slot *slot;
    plasmon_status_t status = client_enter(client);

    if (status != PLASMON_OK) {
        return status;
    }
    if (out_ref == NULL) {
        return error_set(PLASMON_EINVAL, "out_ref is NULL");
    }

    pl_mutex_lock(&client->lock);
    status = session_room_locked(client, 1, FRAME_TASK);
    if (status == PLASMON_OK) {
        status = refs_find(&client->refs, ref, &slot, &err);
        if (status == PLASMON_OK && slot->root->is_task) {
            status =
                pl_err_set(&err, PLASMON_EINVAL, "the ref is a task's; it has no bytes");
        }
        if (status == PLASMON_OK) {
            status = graph_check_content(slot->root, &err);
        }
        status = status == PLASMON_OK ? client_snapshot_locked(client, slot, out_ref)
                                      : error_from(&err, status);
    }
    pl_mutex_unlock(&client->lock);
    return status;
}

/* -------------------------------------------------------------------------------- names */

static plasmon_status_t check_name(const char *name)
{
    if (name == NULL || name[0] == '\0') {
        return error_set(PLASMON_EINVAL, "the name is empty");
    }
    return client_check_name(name, WIRE_NAME_BYTES_MAX, "the name");
}

static plasmon_status_t publish_id_locked(struct plasmon_client *client, const char *name,
                                          uint64_t id)
{
    Plasmon__V1__ClientFrame fields = PLASMON__V1__CLIENT_FRAME__INIT;
    Plasmon__V1__Publish publish = PLASMON__V1__PUBLISH__INIT, *list[] = {&publish};
    struct request request;
    struct pl_cond cond;
    plasmon_status_t status = pl_cond_init(&cond);

    if (status != PLASMON_OK) {
        return error_set(status, "%s", pl_status_text(status));
    }
    request_init(&request, &cond);
    status = request_open_locked(client, &request);
    if (status == PLASMON_OK) {
        publish.request  = request.number;
        publish.name     = (char *)name;
        publish.ref      = id;
        fields.n_publish = 1;
        fields.publish   = list;
        status           = request_send_locked(client, &request, FRAME_PUBLISH, &fields);
    }
    if (status == PLASMON_OK) {
        status = request_wait_locked(client, &request, UINT64_MAX);
    }
    request_close_locked(client, &request);
    pl_cond_finish(&cond);
    return status;
}

/* A view is published as the snapshot of what it shows. */
static plasmon_status_t publish_ref_locked(struct plasmon_client *client, const char *name,
                                           struct plasmon_ref *ref)
{
    struct plasmon_ref *snapshot = NULL;
    struct pl_err err            = {0};
    struct ref_slot *slot;
    plasmon_status_t status = session_room_locked(client, 1, FRAME_TASK);

    if (status != PLASMON_OK) {
        return status;
    }
    status = refs_find(&client->refs, ref, &slot, &err);
    if (status == PLASMON_OK && slot->root->is_task) {
        status = pl_err_set(&err, PLASMON_EINVAL, "the ref is a task's; it has no bytes");
    }
    if (status == PLASMON_OK) {
        status = graph_check_content(slot->root, &err);
    }
    if (status != PLASMON_OK) {
        return error_from(&err, status);
    }
    if (slot->view == NULL) {
        return publish_id_locked(client, name, slot->root->id);
    }

    status = client_snapshot_locked(client, slot, &snapshot);
    if (status == PLASMON_OK &&
        refs_find(&client->refs, snapshot, &slot, &err) == PLASMON_OK) {
        status = publish_id_locked(client, name, slot->root->id);
        if (refs_find(&client->refs, snapshot, &slot, &err) == PLASMON_OK) {
            client_close_ref_locked(client, snapshot, slot);
        }
    }
    return status;
}

plasmon_status_t plasmon_publish(struct plasmon_client *client, const char *name,
                                 struct plasmon_ref *ref)
{
    plasmon_status_t status = client_enter(client);

    if (status == PLASMON_OK) {
        status = check_name(name);
    }
    if (status != PLASMON_OK) {
        return status;
    }
    pl_mutex_lock(&client->lock);
    status = ref == NULL ? publish_id_locked(client, name, 0)
                         : publish_ref_locked(client, name, ref);
    pl_mutex_unlock(&client->lock);
    return status;
}

/*
 * What will be found, and a task that stands for what another client is yet to write there. Both
 * are there before the head is asked: how that task ended may come with its answer, and be taken
 * before the thread that asked wakes.
 */
static struct root *found_begin(struct refs *refs, const char *name, uint64_t ref,
                                uint64_t task_id)
{
    struct root *root = root_create(refs, ref, NULL);
    struct task *task =
        root != NULL ? task_create(refs, task_id, "what was found under", name) : NULL;

    if (task != NULL && task_writes(task, root, NULL, WRITE_OVERWRITES) == PLASMON_OK) {
        task->foreign = true;
        task_commit(refs, task);
        return root;
    }
    if (task != NULL) {
        task_abandon(refs, task);
    }
    if (root != NULL) {
        root_drop(refs, root);
    }
    return NULL;
}

static plasmon_status_t lookup_ask_locked(struct plasmon_client *client, const char *name,
                                          struct request *request,
                                          Plasmon__V1__Lookup *lookup)
{
    Plasmon__V1__ClientFrame fields = PLASMON__V1__CLIENT_FRAME__INIT;
    plasmon_status_t status;

    lookup->request = request->number;
    lookup->name    = (char *)name;
    fields.n_lookup = 1;
    fields.lookup   = &lookup;
    status          = request_send_locked(client, request, FRAME_LOOKUP, &fields);
    if (status == PLASMON_OK) {
        status = request_wait_locked(client, request, UINT64_MAX);
    }
    if (status == PLASMON_OK && request->shape.dtype == 0) {
        status = error_set(PLASMON_EMALFORMED,
                           "the head found \"%.64s\" and did not say its shape", name);
    }
    return status;
}

static plasmon_status_t lookup_locked(struct plasmon_client *client, const char *name,
                                      struct request *request, struct plasmon_ref **out_ref)
{
    Plasmon__V1__Lookup lookup = PLASMON__V1__LOOKUP__INIT;
    struct refs *refs          = &client->refs;
    struct root *root;
    plasmon_status_t status = request_open_locked(client, request);

    if (status != PLASMON_OK) {
        return status;
    }
    lookup.new_ref = refs_draw_ref(refs);
    lookup.task    = refs_draw_task(refs);
    root           = found_begin(refs, name, lookup.new_ref, lookup.task);
    if (root == NULL) {
        return error_set(PLASMON_ENOMEM, "out of host memory");
    }
    status = lookup_ask_locked(client, name, request, &lookup);
    if (status != PLASMON_OK || !request->pending) {
        refs_resolve(refs, lookup.task, NULL); /* nobody tells how it ends */
    }
    if (status != PLASMON_OK) {
        root_drop(refs, root);
        return status;
    }
    root_shape_set(root, &request->shape);
    *out_ref = refs_open(refs, root, NULL);
    if (*out_ref != NULL) {
        return PLASMON_OK;
    }
    root_drop(refs, root);
    session_release_locked(client, lookup.new_ref, 0, RELEASE_SOON);
    return error_set(PLASMON_ENOMEM, "out of host memory");
}

/* Of a cluster that ends with the program nobody else sees a name: most likely an address was forgotten. */
static plasmon_status_t say_private(const struct request *request)
{
    return error_set(
        PLASMON_ENOENT,
        "%.400s; this client has a private cluster, which shares nothing with other "
        "programs: start one, and set PLASMON_ADDRESS",
        request->text);
}

plasmon_status_t plasmon_lookup(struct plasmon_client *client, const char *name,
                                struct plasmon_ref **out_ref)
{
    struct plasmon_ref *ref = NULL;
    struct request request;
    struct pl_cond cond;
    plasmon_status_t status = client_enter(client);

    if (status == PLASMON_OK) {
        status = check_name(name);
    }
    if (status == PLASMON_OK && out_ref == NULL) {
        status = error_set(PLASMON_EINVAL, "out_ref is NULL");
    }
    if (status != PLASMON_OK) {
        return status;
    }
    status = pl_cond_init(&cond);
    if (status != PLASMON_OK) {
        return error_set(status, "%s", pl_status_text(status));
    }

    request_init(&request, &cond);
    pl_mutex_lock(&client->lock);
    status = lookup_locked(client, name, &request, &ref);
    if (status == PLASMON_ENOENT && client->embedded.active) {
        status = say_private(&request);
    }
    request_close_locked(client, &request);
    pl_mutex_unlock(&client->lock);
    pl_cond_finish(&cond);
    if (status == PLASMON_OK) {
        *out_ref = ref;
    }
    return status;
}
