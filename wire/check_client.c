/*
 * Checks of the client's two frames: ClientFrame (what a program asks) and HeadFrame (what it is told).
 */
#include "wire/wire_int.h"

#include <assert.h>

/* Three of these times the largest index stay far from 2^63. */
#define INDEX_STEP_MAX (INT64_C(1) << 44)

static plasmon_status_t check_arg(const Plasmon__V1__Arg *arg, struct pl_err *err)
{
    plasmon_status_t status = check_mode(arg->mode, err);

    if (status != PLASMON_OK) {
        return status;
    }
    if (arg->ref == 0 && arg->mode != PLASMON__V1__MODE__MODE_SCRATCH) {
        return pl_err_set(err, PLASMON_EMALFORMED, "it names no ref");
    }
    if (arg->mode == PLASMON__V1__MODE__MODE_SCRATCH && arg->shape == NULL) {
        return pl_err_set(err, PLASMON_EMALFORMED, "a SCRATCH has no shape");
    }
    if (arg->n_view != 0) {
        status = check_view_numbers(arg->n_view, arg->view, "view", err);
        if (status != PLASMON_OK) {
            return status;
        }
    }
    return check_shape(arg->shape, err);
}

static plasmon_status_t check_put(const Plasmon__V1__Task *task, struct pl_err *err)
{
    if (task->n_args != 1) {
        return pl_err_set(err, PLASMON_EMALFORMED, "a PUT has %zu arguments, not 1",
                          task->n_args);
    }
    if (task->put_offset > WIRE_VALUE_BYTES_MAX) {
        return pl_err_set(err, PLASMON_EMALFORMED, "a PUT at byte %llu",
                          (unsigned long long)task->put_offset);
    }
    return check_bytes(&task->data, WIRE_DATA_BYTES_MAX, "data", err);
}

/* A copy between an object and memory of the client's host. What the buffer has room for is known there. */
static plasmon_status_t check_host_copy(const Plasmon__V1__Task *task, struct pl_err *err)
{
    bool put = task->kind == PLASMON__V1__TASK_KIND__TASK_PUT_HOST;

    if (task->n_args != 1 || task->args[0]->mode != (put ? PLASMON__V1__MODE__MODE_OUT
                                                         : PLASMON__V1__MODE__MODE_IN)) {
        return pl_err_set(err, PLASMON_EMALFORMED, "a %s has one argument, %s",
                          put ? "PUT_HOST" : "GET_HOST", put ? "OUT" : "IN");
    }
    if (put && (task->args[0]->shape == NULL || task->args[0]->n_view != 0)) {
        return pl_err_set(err, PLASMON_EMALFORMED, "a PUT_HOST makes a ref with a shape");
    }
    if (task->host_buffer == 0 || task->host_offset > WIRE_VALUE_BYTES_MAX ||
        task->data.len != 0) {
        return pl_err_set(err, PLASMON_EMALFORMED,
                          "host buffer %llx, byte %llu, and %zu bytes of data",
                          (unsigned long long)task->host_buffer,
                          (unsigned long long)task->host_offset, task->data.len);
    }
    return PLASMON_OK;
}

static plasmon_status_t check_graph_task(const Plasmon__V1__Task *task, struct pl_err *err)
{
    plasmon_status_t status = check_count(task->n_bind, WIRE_RANGES_MAX, "bind", err);

    if (status == PLASMON_OK) {
        status = check_graph_scalars(task->n_set, task->set, err);
    }
    if (status != PLASMON_OK) {
        return status;
    }
    if (task->graph == 0) {
        return pl_err_set(err, PLASMON_EMALFORMED, "it names no graph");
    }
    for (size_t i = 0; i < task->n_bind; i++) {
        if (task->bind[i]->recorded == 0 || task->bind[i]->ref == 0) {
            return pl_err_set(err, PLASMON_EMALFORMED, "bind[%zu]: it names no ref", i);
        }
    }
    if (task->kind == PLASMON__V1__TASK_KIND__TASK_GRAPH_LAUNCH) {
        return task->n_args == 0
                   ? PLASMON_OK
                   : pl_err_set(err, PLASMON_EMALFORMED, "a launch of a graph has no args");
    }
    for (size_t i = 0; i < task->n_args; i++) {
        if (task->args[i]->mode != PLASMON__V1__MODE__MODE_OUT ||
            task->args[i]->shape == NULL) {
            return pl_err_set(err, PLASMON_EMALFORMED,
                              "args[%zu]: a graph's output is OUT, with a shape", i);
        }
    }
    return PLASMON_OK;
}

/* Steps so small that no sum with any index of the space overflows. */
static plasmon_status_t check_index_step(const Plasmon__V1__Arg *arg, size_t dims,
                                         struct pl_err *err)
{
    if (arg->n_index_step != 0 &&
        (arg->n_view == 0 || arg->n_index_step != arg->n_view / 3 * dims)) {
        return pl_err_set(err, PLASMON_EMALFORMED,
                          "index_step has %zu numbers for a view of %zu dimensions in a "
                          "space of %zu",
                          arg->n_index_step, arg->n_view / 3, dims);
    }
    for (size_t i = 0; i < arg->n_index_step; i++) {
        if (arg->index_step[i] > INDEX_STEP_MAX || arg->index_step[i] < -INDEX_STEP_MAX) {
            return pl_err_set(err, PLASMON_EMALFORMED, "index_step[%zu] is %lld", i,
                              (long long)arg->index_step[i]);
        }
    }
    return PLASMON_OK;
}

static plasmon_status_t check_index(const Plasmon__V1__Task *task, struct pl_err *err)
{
    const Plasmon__V1__Index *index = task->index;
    uint64_t instances              = 1;

    if (task->kind != PLASMON__V1__TASK_KIND__TASK_RUN || task->graph != 0) {
        return pl_err_set(err, PLASMON_EMALFORMED,
                          "index: only a task that runs now can have one");
    }
    if (index->n_count == 0 || index->n_count > WIRE_INDEX_DIM_MAX) {
        return pl_err_set(err, PLASMON_EMALFORMED, "index: %zu dimensions; it has 1 to %u",
                          index->n_count, WIRE_INDEX_DIM_MAX);
    }
    for (size_t i = 0; i < index->n_count; i++) {
        if (index->count[i] == 0 || index->count[i] > WIRE_INDEX_MAX ||
            (instances *= index->count[i]) > WIRE_INDEX_MAX) {
            return pl_err_set(err, PLASMON_ELIMIT,
                              "index: count[%zu] is %llu; a space has 1 to %u points", i,
                              (unsigned long long)index->count[i], WIRE_INDEX_MAX);
        }
    }
    if (index->spread > 2 || (index->n_scalar_step != 0 &&
                              index->n_scalar_step != task->n_scalars * index->n_count)) {
        return pl_err_set(err, PLASMON_EMALFORMED,
                          "index: spread %u, %zu steps for %zu scalars", index->spread,
                          index->n_scalar_step, task->n_scalars);
    }
    for (size_t i = 0; i < task->n_args; i++) {
        plasmon_status_t status = check_index_step(task->args[i], index->n_count, err);

        if (status != PLASMON_OK) {
            return check_below(err, status, "args", (long)i);
        }
    }
    return PLASMON_OK;
}

static bool collective_reduces(const Plasmon__V1__Collective *collective)
{
    return collective->kind == PLASMON__V1__COLLECTIVE_KIND__ALL_REDUCE ||
           collective->kind == PLASMON__V1__COLLECTIVE_KIND__REDUCE ||
           collective->kind == PLASMON__V1__COLLECTIVE_KIND__REDUCE_SCATTER;
}

/* How many members and results a collective of this kind has. */
static bool collective_counts_fit(const Plasmon__V1__Collective *collective, size_t members,
                                  size_t results)
{
    if (members == 0 || members > WIRE_COLLECTIVE_MAX || results == 0 ||
        results > WIRE_COLLECTIVE_MAX) {
        return false;
    }
    switch (collective->kind) {
    case PLASMON__V1__COLLECTIVE_KIND__REDUCE:
        return results == 1 && collective->root < members;
    case PLASMON__V1__COLLECTIVE_KIND__BROADCAST:
        return members == 1;
    default:
        return members == results;
    }
}

static plasmon_status_t check_collective(const Plasmon__V1__Task *task, struct pl_err *err)
{
    const Plasmon__V1__Collective *collective = task->collective;
    size_t members;

    if (collective == NULL ||
        (unsigned)collective->kind > PLASMON__V1__COLLECTIVE_KIND__ALL_TO_ALL ||
        collective->way >= WIRE_COLLECTIVE_WAYS) {
        return pl_err_set(err, PLASMON_EMALFORMED,
                          "no collective, or none of a known kind");
    }
    if (collective->n_place > task->n_args) {
        return pl_err_set(err, PLASMON_EMALFORMED,
                          "a collective with %zu results, and %zu arguments",
                          collective->n_place, task->n_args);
    }
    members = task->n_args - collective->n_place;
    if (!collective_counts_fit(collective, members, collective->n_place)) {
        return pl_err_set(err, PLASMON_EMALFORMED,
                          "collective %d of %zu members, root %u, with %zu results",
                          (int)collective->kind, members, collective->root,
                          collective->n_place);
    }
    if (collective_reduces(collective) ? collective->op < 1 || collective->op > 5
                                       : collective->op != 0) {
        return pl_err_set(err, PLASMON_EMALFORMED, "collective %d with reduction %u",
                          (int)collective->kind, collective->op);
    }
    for (size_t i = 0; i < task->n_args; i++) {
        if (task->args[i]->mode !=
            (i < members ? PLASMON__V1__MODE__MODE_IN : PLASMON__V1__MODE__MODE_OUT)) {
            return pl_err_set(err, PLASMON_EMALFORMED,
                              "args[%zu]: members are IN, and results OUT", i);
        }
    }
    for (size_t i = 0; i < collective->n_place; i++) {
        if (collective->place[i] > WIRE_DEVICES_MAX) {
            return pl_err_set(err, PLASMON_EMALFORMED, "place[%zu] is %u; the limit is %u",
                              i, collective->place[i], WIRE_DEVICES_MAX);
        }
    }
    return PLASMON_OK;
}

static plasmon_status_t check_task_kind(const Plasmon__V1__Task *task, struct pl_err *err)
{
    if (task->kind == PLASMON__V1__TASK_KIND__TASK_PUT) {
        return check_put(task, err);
    }
    if (task->kind == PLASMON__V1__TASK_KIND__TASK_GRAPH_END ||
        task->kind == PLASMON__V1__TASK_KIND__TASK_GRAPH_LAUNCH) {
        return check_graph_task(task, err);
    }
    if (task->kind == PLASMON__V1__TASK_KIND__TASK_PUT_HOST ||
        task->kind == PLASMON__V1__TASK_KIND__TASK_GET_HOST) {
        return check_host_copy(task, err);
    }
    if (task->data.len != 0) {
        return pl_err_set(err, PLASMON_EMALFORMED, "it carries data and is no PUT");
    }
    if (task->kind == PLASMON__V1__TASK_KIND__TASK_COLLECTIVE) {
        return check_collective(task, err);
    }
    if (task->kind == PLASMON__V1__TASK_KIND__TASK_SNAPSHOT && task->n_args != 2) {
        return pl_err_set(err, PLASMON_EMALFORMED, "a SNAPSHOT has %zu arguments, not 2",
                          task->n_args);
    }
    return PLASMON_OK;
}

static plasmon_status_t check_args(const Plasmon__V1__Task *task, struct pl_err *err)
{
    for (size_t i = 0; i < task->n_args; i++) {
        plasmon_status_t status = check_arg(task->args[i], err);

        if (status != PLASMON_OK) {
            return check_below(err, status, "args", (long)i);
        }
    }
    return PLASMON_OK;
}

static plasmon_status_t check_task(const Plasmon__V1__Task *task, struct check_seen *seen,
                                   struct pl_err *err)
{
    plasmon_status_t status;

    if (task->id == 0) {
        return pl_err_set(err, PLASMON_EMALFORMED, "its id is 0");
    }
    if ((unsigned)task->kind > PLASMON__V1__TASK_KIND__TASK_COLLECTIVE) {
        return pl_err_set(err, PLASMON_EMALFORMED, "its kind is %d", (int)task->kind);
    }
    if (task->priority < -1 || task->priority > 1) {
        return pl_err_set(err, PLASMON_EMALFORMED, "its priority is %d", task->priority);
    }
    if (task->place > WIRE_DEVICES_MAX) {
        return pl_err_set(err, PLASMON_EMALFORMED, "its place is %u; the limit is %u",
                          task->place, WIRE_DEVICES_MAX);
    }

    status = check_count(task->n_scalars, WIRE_SCALARS_MAX, "scalars", err);
    if (status != PLASMON_OK) {
        return status;
    }
    status = check_count(task->n_args, WIRE_ARGS_MAX, "args", err);
    if (status != PLASMON_OK) {
        return status;
    }
    status = check_name(task->label, WIRE_LABEL_BYTES_MAX, "label", err);
    if (status != PLASMON_OK) {
        return status;
    }
    status = check_launch_shape(task->n_launch_shape, task->launch_shape, err);
    if (status != PLASMON_OK) {
        return status;
    }
    status = check_task_kind(task, err);
    if (status != PLASMON_OK) {
        return status;
    }

    if (!check_again(seen, task->args)) {
        status = check_args(task, err);
        if (status != PLASMON_OK) {
            return status;
        }
    }
    return task->index == NULL ? PLASMON_OK : check_index(task, err);
}

static plasmon_status_t check_tasks(const Plasmon__V1__ClientFrame *frame,
                                    struct pl_err *err)
{
    plasmon_status_t status = check_count(frame->n_tasks, WIRE_TASKS_MAX, "tasks", err);
    struct check_seen seen  = {.lists = {NULL}};

    for (size_t i = 0; status == PLASMON_OK && i < frame->n_tasks; i++) {
        status = check_task(frame->tasks[i], &seen, err);
        if (status != PLASMON_OK) {
            return check_below(err, status, "tasks", (long)i);
        }
    }
    return status;
}

static plasmon_status_t check_hello(const Plasmon__V1__Hello *hello, struct pl_err *err)
{
    plasmon_status_t status;

    if (hello->protocol_min > hello->protocol_max) {
        return pl_err_set(err, PLASMON_EMALFORMED, "protocols %u to %u",
                          hello->protocol_min, hello->protocol_max);
    }
    status = check_bytes(&hello->token, WIRE_TOKEN_BYTES_MAX, "token", err);
    if (status != PLASMON_OK) {
        return status;
    }
    status = check_name(hello->namespace_, WIRE_NAME_BYTES_MAX, "namespace", err);
    if (status != PLASMON_OK) {
        return status;
    }
    status = check_name(hello->host, WIRE_NAME_BYTES_MAX, "host", err);
    if (status != PLASMON_OK) {
        return status;
    }
    return check_name(hello->label, WIRE_LABEL_BYTES_MAX, "label", err);
}

static plasmon_status_t check_locates(const Plasmon__V1__ClientFrame *frame,
                                      struct pl_err *err)
{
    plasmon_status_t status = check_count(frame->n_locate, WIRE_RANGES_MAX, "locates", err);

    for (size_t i = 0; status == PLASMON_OK && i < frame->n_locate; i++) {
        const Plasmon__V1__Locate *locate = frame->locate[i];

        status = locate->ref == 0
                     ? pl_err_set(err, PLASMON_EMALFORMED, "it names no ref")
                     : check_view_numbers(locate->n_view, locate->view, "view", err);
        if (status != PLASMON_OK) {
            return check_below(err, status, "locate", (long)i);
        }
    }
    return status;
}

static plasmon_status_t check_read(const Plasmon__V1__Read *read, struct pl_err *err)
{
    if (read->ref == 0) {
        return pl_err_set(err, PLASMON_EMALFORMED, "it names no ref");
    }
    if (read->length > WIRE_DATA_BYTES_MAX) {
        return pl_err_set(err, PLASMON_ELIMIT, "%llu bytes at once; the limit is %u",
                          (unsigned long long)read->length, WIRE_DATA_BYTES_MAX);
    }
    if (read->offset > WIRE_VALUE_BYTES_MAX) {
        return pl_err_set(err, PLASMON_EMALFORMED, "offset %llu",
                          (unsigned long long)read->offset);
    }
    return check_view_numbers(read->n_view, read->view, "view", err);
}

static plasmon_status_t check_reads(const Plasmon__V1__ClientFrame *frame,
                                    struct pl_err *err)
{
    plasmon_status_t status = check_count(frame->n_read, WIRE_RANGES_MAX, "reads", err);

    for (size_t i = 0; status == PLASMON_OK && i < frame->n_read; i++) {
        status = check_read(frame->read[i], err);
        if (status != PLASMON_OK) {
            return check_below(err, status, "read", (long)i);
        }
    }
    return status;
}

static plasmon_status_t check_put_open(const Plasmon__V1__PutOpen *open, struct pl_err *err)
{
    plasmon_status_t status;

    if (open->ref == 0 || open->shape == NULL) {
        return pl_err_set(err, PLASMON_EMALFORMED, "it needs a ref and a shape");
    }
    if (open->place > WIRE_DEVICES_MAX) {
        return pl_err_set(err, PLASMON_EMALFORMED, "its place is %u; the limit is %u",
                          open->place, WIRE_DEVICES_MAX);
    }
    status = check_name(open->label, WIRE_LABEL_BYTES_MAX, "label", err);
    return status == PLASMON_OK ? check_shape(open->shape, err) : status;
}

static plasmon_status_t check_puts(const Plasmon__V1__ClientFrame *frame,
                                   struct pl_err *err)
{
    plasmon_status_t status =
        check_count(frame->n_put_open, WIRE_RANGES_MAX, "put_opens", err);

    for (size_t i = 0; status == PLASMON_OK && i < frame->n_put_open; i++) {
        status = check_put_open(frame->put_open[i], err);
        if (status != PLASMON_OK) {
            return check_below(err, status, "put_open", (long)i);
        }
    }
    if (status == PLASMON_OK) {
        status = check_count(frame->n_put_seal, WIRE_RANGES_MAX, "put_seals", err);
    }
    return status;
}

static plasmon_status_t check_names(const Plasmon__V1__ClientFrame *frame,
                                    struct pl_err *err)
{
    plasmon_status_t status =
        check_count(frame->n_publish, WIRE_RANGES_MAX, "publishes", err);

    for (size_t i = 0; status == PLASMON_OK && i < frame->n_publish; i++) {
        status = check_name(frame->publish[i]->name, WIRE_NAME_BYTES_MAX, "name", err);
        if (status != PLASMON_OK) {
            return check_below(err, status, "publish", (long)i);
        }
    }
    if (status == PLASMON_OK) {
        status = check_count(frame->n_lookup, WIRE_RANGES_MAX, "lookups", err);
    }
    for (size_t i = 0; status == PLASMON_OK && i < frame->n_lookup; i++) {
        status = check_name(frame->lookup[i]->name, WIRE_NAME_BYTES_MAX, "name", err);
        if (status != PLASMON_OK) {
            return check_below(err, status, "lookup", (long)i);
        }
    }
    return status;
}

typedef plasmon_status_t (*client_part_fn)(const Plasmon__V1__ClientFrame *,
                                           struct pl_err *);

plasmon_status_t check_client_frame(const Plasmon__V1__ClientFrame *frame,
                                    struct pl_err *err)
{
    static const client_part_fn parts[] = {check_tasks, check_locates, check_reads,
                                           check_puts, check_names};
    plasmon_status_t status             = check_header(frame->header, err);

    if (status == PLASMON_OK && frame->hello != NULL) {
        status = check_hello(frame->hello, err);
        if (status != PLASMON_OK) {
            return check_below(err, status, "hello", -1);
        }
    }
    for (size_t i = 0; status == PLASMON_OK && i < PL_COUNT(parts); i++) {
        status = parts[i](frame, err);
    }
    if (status == PLASMON_OK) {
        status = check_ranges(frame->n_release, frame->release, "release", err);
    }
    if (status == PLASMON_OK) {
        status = check_count(frame->n_cancel, WIRE_RANGES_MAX, "cancels", err);
    }
    if (status == PLASMON_OK) {
        status = check_function_defines(frame->n_define, frame->define, "define", err);
    }
    if (status == PLASMON_OK) {
        status =
            check_count(frame->n_function_wait, WIRE_FUNCTIONS_MAX, "function_waits", err);
    }
    if (status == PLASMON_OK) {
        status =
            check_count(frame->n_graph_release, WIRE_RANGES_MAX, "released graphs", err);
    }
    if (status == PLASMON_OK) {
        status = check_count(frame->n_cancel_force, WIRE_RANGES_MAX, "cancels", err);
    }
    return status;
}

/* ----------------------------------------------------------------------- head -> client */

static plasmon_status_t check_device(const Plasmon__V1__Device *device, struct pl_err *err)
{
    plasmon_status_t status = check_name(device->node, WIRE_NAME_BYTES_MAX, "node", err);

    if (status == PLASMON_OK) {
        status = check_name(device->name, WIRE_NAME_BYTES_MAX, "name", err);
    }
    if (status == PLASMON_OK) {
        status = check_name(device->host, WIRE_NAME_BYTES_MAX, "host", err);
    }
    if (status == PLASMON_OK) {
        status = check_text(device->death, WIRE_TEXT_BYTES_MAX, "death", err);
    }
    if (status == PLASMON_OK && device->index >= WIRE_DEVICES_MAX) {
        status = pl_err_set(err, PLASMON_EMALFORMED, "index %u; the limit is %u",
                            device->index, WIRE_DEVICES_MAX);
    }
    if (status == PLASMON_OK &&
        (unsigned)device->bulk > PLASMON__V1__BULK_ACCESS__BULK_ACCESS_TLS) {
        status = pl_err_set(err, PLASMON_EMALFORMED, "bulk access %d", (int)device->bulk);
    }
    return status;
}

static plasmon_status_t check_welcome(const Plasmon__V1__Welcome *welcome,
                                      struct pl_err *err)
{
    plasmon_status_t status =
        check_count(welcome->n_devices, WIRE_DEVICES_MAX, "devices", err);

    for (size_t i = 0; status == PLASMON_OK && i < welcome->n_devices; i++) {
        status = check_device(welcome->devices[i], err);
        if (status != PLASMON_OK) {
            return check_below(err, status, "devices", (long)i);
        }
    }
    if (status == PLASMON_OK) {
        status =
            check_name(welcome->store_socket, WIRE_NAME_BYTES_MAX, "store_socket", err);
    }
    if (status == PLASMON_OK) {
        status = check_name(welcome->version, WIRE_NAME_BYTES_MAX, "version", err);
    }
    return status;
}

/* NULL: none. */
static plasmon_status_t check_grant(const Plasmon__V1__BulkGrant *grant, struct pl_err *err)
{
    plasmon_status_t status =
        grant == NULL
            ? PLASMON_OK
            : check_text(grant->address, WIRE_BULK_ADDRESS_BYTES_MAX, "bulk address", err);

    if (status == PLASMON_OK && grant != NULL &&
        (grant->address[0] == '\0' || grant->ticket.len != WIRE_TICKET_BYTES)) {
        status = pl_err_set(err, PLASMON_EMALFORMED, "ticket of %zu bytes for \"%s\"",
                            grant->ticket.len, grant->address);
    }
    return status;
}

static plasmon_status_t check_located(const Plasmon__V1__Located *located,
                                      struct pl_err *err)
{
    plasmon_status_t status = check_text(located->text, WIRE_TEXT_BYTES_MAX, "text", err);

    if (status == PLASMON_OK) {
        status = check_shape(located->shape, err);
    }
    if (status == PLASMON_OK) {
        status = check_count(located->n_locations, WIRE_PIECES_MAX, "locations", err);
    }
    for (size_t i = 0; status == PLASMON_OK && i < located->n_locations; i++) {
        const Plasmon__V1__Location *location = located->locations[i];

        status = check_box_numbers(location->n_box, location->box, "box", err);
        if (status == PLASMON_OK) {
            status = check_box_numbers(location->n_frame, location->frame, "frame", err);
        }
        if (status == PLASMON_OK) {
            status = check_grant(location->bulk, err);
        }
        if (status != PLASMON_OK) {
            return check_below(err, status, "locations", (long)i);
        }
    }
    return status;
}

static plasmon_status_t check_data(const Plasmon__V1__Data *data, struct pl_err *err)
{
    plasmon_status_t status = check_bytes(&data->bytes, WIRE_DATA_BYTES_MAX, "bytes", err);

    if (status == PLASMON_OK) {
        status = check_text(data->text, WIRE_TEXT_BYTES_MAX, "text", err);
    }
    return status == PLASMON_OK ? check_shape(data->shape, err) : status;
}

static plasmon_status_t check_reply(const Plasmon__V1__Reply *reply, struct pl_err *err)
{
    plasmon_status_t status = check_text(reply->text, WIRE_TEXT_BYTES_MAX, "text", err);

    return status == PLASMON_OK ? check_shape(reply->shape, err) : status;
}

static plasmon_status_t check_failures(const Plasmon__V1__HeadFrame *frame,
                                       struct pl_err *err)
{
    plasmon_status_t status =
        check_count(frame->n_failed, WIRE_RANGES_MAX, "failures", err);

    for (size_t i = 0; status == PLASMON_OK && i < frame->n_failed; i++) {
        status = check_text(frame->failed[i]->text, WIRE_TEXT_BYTES_MAX, "text", err);
        if (status != PLASMON_OK) {
            return check_below(err, status, "failed", (long)i);
        }
    }
    if (status == PLASMON_OK && frame->fatal != NULL) {
        status = check_text(frame->fatal->text, WIRE_TEXT_BYTES_MAX, "fatal text", err);
    }
    return status;
}

static plasmon_status_t check_answers(const Plasmon__V1__HeadFrame *frame,
                                      struct pl_err *err)
{
    plasmon_status_t status =
        check_count(frame->n_located, WIRE_RANGES_MAX, "located", err);

    for (size_t i = 0; status == PLASMON_OK && i < frame->n_located; i++) {
        status = check_located(frame->located[i], err);
        if (status != PLASMON_OK) {
            return check_below(err, status, "located", (long)i);
        }
    }
    if (status == PLASMON_OK) {
        status = check_count(frame->n_data, WIRE_RANGES_MAX, "data", err);
    }
    for (size_t i = 0; status == PLASMON_OK && i < frame->n_data; i++) {
        status = check_data(frame->data[i], err);
        if (status != PLASMON_OK) {
            return check_below(err, status, "data", (long)i);
        }
    }
    if (status == PLASMON_OK) {
        status = check_count(frame->n_put_ready, WIRE_RANGES_MAX, "put_ready", err);
    }
    for (size_t i = 0; status == PLASMON_OK && i < frame->n_put_ready; i++) {
        status = check_text(frame->put_ready[i]->text, WIRE_TEXT_BYTES_MAX,
                            "put_ready text", err);
        if (status == PLASMON_OK) {
            status = check_grant(frame->put_ready[i]->bulk, err);
        }
        if (status != PLASMON_OK) {
            return check_below(err, status, "put_ready", (long)i);
        }
    }
    if (status == PLASMON_OK) {
        status = check_count(frame->n_replies, WIRE_RANGES_MAX, "replies", err);
    }
    for (size_t i = 0; status == PLASMON_OK && i < frame->n_replies; i++) {
        status = check_reply(frame->replies[i], err);
        if (status != PLASMON_OK) {
            return check_below(err, status, "replies", (long)i);
        }
    }
    return status;
}

plasmon_status_t check_head_frame(const Plasmon__V1__HeadFrame *frame, struct pl_err *err)
{
    plasmon_status_t status = check_header(frame->header, err);

    if (status == PLASMON_OK && frame->welcome != NULL) {
        status = check_welcome(frame->welcome, err);
        if (status != PLASMON_OK) {
            return check_below(err, status, "welcome", -1);
        }
    }
    if (status == PLASMON_OK) {
        status = check_ranges(frame->n_done, frame->done, "done", err);
    }
    if (status == PLASMON_OK) {
        status = check_failures(frame, err);
    }
    if (status == PLASMON_OK) {
        status = check_span_batches(frame->n_spans, frame->spans, err);
    }
    return status == PLASMON_OK ? check_answers(frame, err) : status;
}
