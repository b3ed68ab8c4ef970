/*
 * put: host bytes to a new object, five ways.
 *
 *   host memory          by the device, like plasmon_put_async() (host_copy.c), and waited for
 *   small                with the task, in one message: no round trip, and the call returns at once
 *   on this host         the head allocates; we write the bytes, where they lie (a chunk that
 *                        clients may map) or through a lane, and say that they are right
 *   on another host      likewise, over its worker's bulk channel (bulk.h)
 *   anywhere else        in tasks of a MiB each, in order
 */
#include <stddef.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fault.h"
#include "base/log.h"
#include "client/data.h"
#include "client/parallel.h"
#include "client/put.h"

#define OPEN_TIMEOUT_NS 10000000000ull
#define OPEN_TRIES      3

plasmon_status_t put_check(const struct plasmon_put_options *options, const void *data,
                           const struct plasmon_shape *shape, struct put *put)
{
    const struct plasmon_put_options defaults = PLASMON_PUT_INIT;
    struct pl_err err                         = {0};
    plasmon_status_t status;

    if (data == NULL || shape == NULL) {
        return error_set(PLASMON_EINVAL, "%s is NULL", data == NULL ? "data" : "shape");
    }
    if (shape->ndim > PL_DIM_MAX) {
        return error_set(PLASMON_ESHAPE, "%u dimensions; the limit is %d", shape->ndim,
                         PL_DIM_MAX);
    }
    put->shape = (struct pl_shape){.dtype = (uint32_t)shape->dtype, .ndim = shape->ndim};
    memcpy(put->shape.dim, shape->dim, shape->ndim * sizeof(shape->dim[0]));
    status = pl_shape_check(&put->shape, &err);
    if (status != PLASMON_OK) {
        return error_from(&err, status);
    }

    put->options = defaults;
    if (options != NULL &&
        options->size < offsetof(struct plasmon_put_options, donatable)) {
        return error_set(PLASMON_EINVAL, "options.size is %zu: start from PLASMON_PUT_INIT",
                         options->size);
    }
    if (options != NULL) {
        memcpy(&put->options, options,
               options->size < sizeof(put->options) ? options->size : sizeof(put->options));
    }
    if (put->options.device < PLASMON_ANYWHERE ||
        put->options.device >= (int)WIRE_DEVICES_MAX) {
        return error_set(PLASMON_EINVAL,
                         "device is %d; it is PLASMON_ANYWHERE or a device's index",
                         put->options.device);
    }
    put->data  = data;
    put->bytes = pl_shape_bytes(&put->shape);
    return put->options.label == NULL
               ? PLASMON_OK
               : client_check_name(put->options.label, WIRE_LABEL_BYTES_MAX, "the label");
}

static plasmon_status_t check_size_locked(const struct put *put)
{
    uint64_t largest = client_largest_device_locked(put->client);
    char asked[32], there[32];

    if (largest > 0 && put->bytes > largest) {
        return error_set(PLASMON_ETOOBIG, "the object has %s; the largest device has %s",
                         pl_format_bytes(put->bytes, asked),
                         pl_format_bytes(largest, there));
    }
    return PLASMON_OK;
}

plasmon_status_t put_check_size(const struct put *put)
{
    plasmon_status_t status;

    for (int refreshed = 0;;
         refreshed++) { /* a larger device may have come since we were told */
        pl_mutex_lock(&put->client->lock);
        status = check_size_locked(put);
        pl_mutex_unlock(&put->client->lock);
        if (status != PLASMON_ETOOBIG || refreshed > 0 ||
            client_on_loop_thread(put->client) ||
            client_refresh_devices(put->client, put->client->unary_ms) != PLASMON_OK) {
            return status;
        }
    }
}

/* -------------------------------------------------------------------------- by messages */

/* One TASK_PUT. `root` is not known to the head before the first. */
static plasmon_status_t put_piece_locked(const struct put *put, struct root *root,
                                         uint64_t offset, uint64_t length)
{
    struct plasmon_client *client = put->client;
    struct frame_arg arg   = {.mode = PLASMON_OUT, .ref = root->id, .shape = &put->shape};
    struct frame_task wire = {
        .id         = refs_draw_task(&client->refs),
        .kind       = PLASMON__V1__TASK_KIND__TASK_PUT,
        .args       = &arg,
        .arg_count  = 1,
        .data       = put->data + offset,
        .data_bytes = length,
        .put_offset = offset,
        .label      = put->options.label,
        .place      = (uint32_t)(put->options.device + 1),
        .donatable  = put->options.donatable != 0,
        .replica    = put->options.replica != 0,
    };
    struct task *task = task_create(&client->refs, wire.id, "put", put->options.label);
    plasmon_status_t status;

    if (task == NULL) {
        return error_set(PLASMON_ENOMEM, "out of host memory");
    }
    status = task_writes(task, root, NULL, WRITE_ADDS);
    if (status == PLASMON_OK) {
        status = frame_add_task(&client->session.frame, &wire);
    }
    if (status != PLASMON_OK) {
        task_abandon(&client->refs, task);
        return error_set(status, "%s", pl_status_text(status));
    }
    task_commit(&client->refs, task);
    (void)pl_fault_point("client.put_piece"); /* cannot fail; the process can end */
    if (length == put->bytes) {
        root_keep_value(&client->refs, root, put->data);
    }
    client->session.tasks_sent++;
    session_kick_locked(client);
    return PLASMON_OK;
}

struct plasmon_ref *put_make_ref_locked(const struct put *put, struct root **out_root)
{
    struct refs *refs = &put->client->refs;
    struct plasmon_ref *ref;
    struct root *root = root_create(refs, refs_draw_ref(refs), &put->shape);

    if (root == NULL) {
        return NULL;
    }
    ref = refs_open(refs, root, NULL);
    if (ref == NULL) {
        root_drop(refs, root);
        return NULL;
    }
    *out_root = root;
    return ref;
}

/* Undo put_make_ref_locked(). at_head: the head has heard of it. */
static void drop_ref_locked(const struct put *put, struct plasmon_ref *ref, bool at_head)
{
    struct pl_err err = {0};
    struct ref_slot *slot;
    uint64_t id;
    bool at_once;

    if (refs_find(&put->client->refs, ref, &slot, &err) != PLASMON_OK) {
        return; /* nobody else has the handle yet: cannot be */
    }
    if (refs_close(&put->client->refs, ref, slot, &id, &at_once) && at_head) {
        session_release_locked(put->client, id, 0, RELEASE_SOON);
    }
}

static plasmon_status_t put_by_messages(const struct put *put, struct plasmon_ref **out_ref)
{
    struct plasmon_client *client = put->client;
    struct plasmon_ref *ref       = NULL;
    struct root *root             = NULL;
    uint64_t offset               = 0;
    plasmon_status_t status       = PLASMON_OK;

    pl_mutex_lock(&client->lock);
    do {
        uint64_t length = pl_min_u64(put->bytes - offset, WIRE_DATA_BYTES_MAX);

        status = session_room_locked(client, 1, FRAME_TASK);
        if (status == PLASMON_OK && ref == NULL) {
            ref = put_make_ref_locked(put, &root);
            status =
                ref != NULL ? PLASMON_OK : error_set(PLASMON_ENOMEM, "out of host memory");
        }
        if (status == PLASMON_OK) {
            status = put_piece_locked(put, root, offset, length);
        }
        if (status == PLASMON_OK) {
            offset += length;
        }
    } while (status == PLASMON_OK && offset < put->bytes);

    if (status != PLASMON_OK && ref != NULL) {
        drop_ref_locked(put, ref, offset > 0);
    }
    pl_mutex_unlock(&client->lock);
    if (status == PLASMON_OK) {
        *out_ref = ref;
    }
    return status;
}

/* ------------------------------------------------------------------------ shared memory */

static plasmon_status_t open_locked(const struct put *put, uint64_t ref_id,
                                    uint64_t *out_buffer, struct bulk_grant *out_grant)
{
    Plasmon__V1__ClientFrame fields = PLASMON__V1__CLIENT_FRAME__INIT;
    Plasmon__V1__PutOpen open = PLASMON__V1__PUT_OPEN__INIT, *list[] = {&open};
    Plasmon__V1__Shape shape = PLASMON__V1__SHAPE__INIT;
    uint64_t dims[PL_DIM_MAX];
    struct request request;
    struct pl_cond cond;
    plasmon_status_t status = pl_cond_init(&cond);

    if (status != PLASMON_OK) {
        return error_set(status, "%s", pl_status_text(status));
    }
    request_init(&request, &cond);
    status = request_open_locked(put->client, &request);
    if (status == PLASMON_OK) {
        wire_shape_put(&put->shape, &shape, dims);
        open.request      = request.number;
        open.ref          = ref_id;
        open.shape        = &shape;
        open.place        = (uint32_t)(put->options.device + 1);
        open.donatable    = put->options.donatable != 0;
        open.replica      = put->options.replica != 0;
        open.bulk         = put->bulk;
        open.label        = (char *)(put->options.label != NULL ? put->options.label : "");
        fields.n_put_open = 1;
        fields.put_open   = list;
        status = request_send_locked(put->client, &request, FRAME_PUT_OPEN, &fields);
    }
    if (status == PLASMON_OK) {
        status = request_wait_locked(put->client, &request, UINT64_MAX);
    }
    if (status == PLASMON_OK) {
        *out_buffer = request.buffer;
        *out_grant  = request.bulk;
    }
    request_close_locked(put->client, &request);
    pl_cond_finish(&cond);
    return status;
}

static plasmon_status_t seal_locked(const struct put *put, uint64_t ref_id, bool abandon)
{
    Plasmon__V1__ClientFrame fields = PLASMON__V1__CLIENT_FRAME__INIT;
    Plasmon__V1__PutSeal seal = PLASMON__V1__PUT_SEAL__INIT, *list[] = {&seal};

    seal.ref          = ref_id;
    seal.abandon      = abandon;
    fields.n_put_seal = 1;
    fields.put_seal   = list;
    return request_send_locked(put->client, NULL, FRAME_PUT_SEAL, &fields);
}

/* Without the lock: the copy is the long part. */
static plasmon_status_t copy_to_buffer(const struct put *put, uint64_t buffer,
                                       const struct bulk_grant *grant, struct pl_err *err)
{
    uint32_t index      = wire_buffer_device(buffer), host_device;
    enum data_path path = data_path_to(put->client, index, &host_device);
    struct shared_key key;
    struct shared_pin pin;
    void *to;
    plasmon_status_t status;

    if (path == DATA_BULK) {
        return data_bulk_put(put->client, buffer, grant, put->data, put->bytes, err);
    }
    if (path == DATA_STAGED) {
        return data_lane_put(put->client, host_device, buffer, put->data, put->bytes, err);
    }
    if (path != DATA_MAPPED) {
        return pl_err_set(
            err, PLASMON_EUNREACHABLE,
            "the head chose device %u, whose memory cannot be reached from here", index);
    }
    key = data_key(host_device, buffer);
    do {
        status = shared_writable(&put->client->shared, &key, put->bytes,
                                 pl_now_ns() + OPEN_TIMEOUT_NS, &to, &pin, err);
    } while (status == PLASMON_ECLOSED && data_look_again(put->client));
    if (status == PLASMON_OK) {
        (void)pl_fault_point("client.put_copy"); /* cannot fail; the process can stop */
        parallel_copy(to, put->data, put->bytes);
        shared_unpin(&pin);
    }
    return status;
}

/*
 * EUNREACHABLE: nothing is left of the attempt; send the bytes instead. ELOST: likewise, and
 * another attempt may do.
 */
static plasmon_status_t put_shared(const struct put *put, struct plasmon_ref **out_ref)
{
    struct plasmon_client *client = put->client;
    struct pl_err err             = {0};
    struct bulk_grant grant       = {.address = ""};
    struct plasmon_ref *ref;
    struct root *root;
    uint64_t buffer = 0, id;
    plasmon_status_t status;

    pl_mutex_lock(&client->lock);
    ref = put_make_ref_locked(put, &root);
    if (ref == NULL) {
        pl_mutex_unlock(&client->lock);
        return error_set(PLASMON_ENOMEM, "out of host memory");
    }
    id     = root->id;
    status = open_locked(put, id, &buffer, &grant);
    if (status != PLASMON_OK) {
        drop_ref_locked(put, ref, true); /* the head has it, failed */
        pl_mutex_unlock(&client->lock);
        return status == PLASMON_ENOTSUP ? PLASMON_EUNREACHABLE : status;
    }
    pl_mutex_unlock(&client->lock);

    status = copy_to_buffer(put, buffer, &grant, &err);
    pl_mutex_lock(&client->lock);
    if (status == PLASMON_OK) {
        status = seal_locked(put, id, false);
    } else {
        pl_debug("client", "a put of %llu bytes in another way: %s",
                 (unsigned long long)put->bytes, err.text);
        status = status == PLASMON_ELOST ? PLASMON_ELOST : PLASMON_EUNREACHABLE;
        status = seal_locked(put, id, true) == PLASMON_OK ? status : PLASMON_ECLOSED;
    }
    if (status != PLASMON_OK) {
        drop_ref_locked(put, ref, true);
    }
    pl_mutex_unlock(&client->lock);
    if (status == PLASMON_OK) {
        *out_ref = ref;
    }
    return status;
}

/* Where it goes is reached. EUNREACHABLE: it is not. */
static plasmon_status_t put_to_buffer(struct put *put, struct plasmon_ref **out_ref)
{
    plasmon_status_t status = PLASMON_ELOST;

    bool near = data_reachable(put->client, put->options.device);

    put->bulk = data_bulk(put->client, put->options.device, put->bytes);
    if (!put->bulk && !near) {
        return PLASMON_EUNREACHABLE;
    }
    for (int i = 0; i < OPEN_TRIES && status == PLASMON_ELOST; i++) {
        status = put_shared(put, out_ref); /* a worker that ended is replaced meanwhile */
    }
    return status == PLASMON_ELOST ? PLASMON_EUNREACHABLE : status;
}

plasmon_status_t plasmon_put(struct plasmon_client *client, const void *data,
                             const struct plasmon_shape *shape,
                             const struct plasmon_put_options *options,
                             struct plasmon_ref **out_ref)
{
    struct put put          = {.client = client};
    plasmon_status_t status = client_enter(client);

    if (status != PLASMON_OK) {
        return status;
    }
    if (out_ref == NULL) {
        return error_set(PLASMON_EINVAL, "out_ref is NULL");
    }
    status = put_check(options, data, shape, &put);
    if (status == PLASMON_OK) {
        status = put_check_size(&put);
    }
    if (status != PLASMON_OK) {
        return status;
    }

    if (put.bytes > PUT_INLINE_BYTES && !client_on_loop_thread(client)) {
        status = host_put(&put, out_ref);
        if (status != PLASMON_EUNREACHABLE) {
            return status;
        }
    }
    if (put.bytes > PUT_INLINE_BYTES && !client_on_loop_thread(client)) {
        status = put_to_buffer(&put, out_ref);
        if (status != PLASMON_EUNREACHABLE) {
            return status;
        }
    }
    return put_by_messages(&put, out_ref);
}
