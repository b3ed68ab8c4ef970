/*
 * A launch, copied out of its message into one allocation.
 *
 * wire/ has checked numbers, shapes and that views and pieces lie inside their frames; what only
 * this device can know is checked here: that buffers are ours, that a launch waits for nothing that
 * comes after it, that each kind has the operands it needs. Sizes are powers of two from free
 * lists: in steady state no launch costs a malloc.
 */
#include "worker/core_int.h"

#include "base/alloc.h"
#include "base/pool.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* -------------------------------------------------------------------------------- FIFOs */

void worker_fifo_push(struct worker_fifo *fifo, struct worker_launch *launch)
{
    launch->next = NULL;
    if (fifo->first == NULL) {
        fifo->first = launch;
    } else {
        fifo->last->next = launch;
    }
    fifo->last = launch;
    fifo->count++;
}

struct worker_launch *worker_fifo_pop(struct worker_fifo *fifo)
{
    struct worker_launch *launch = fifo->first;

    assert(launch != NULL);
    fifo->first = launch->next;
    if (fifo->first == NULL) {
        fifo->last = NULL;
    }
    fifo->count--;
    return launch;
}

/* ------------------------------------------------------------------------------- memory */

/* Every part starts at a multiple of 8. */
static size_t part(size_t *io_bytes, size_t count, size_t item_bytes)
{
    size_t at = *io_bytes;

    *io_bytes = (at + count * item_bytes + 7) & ~(size_t)7;
    return at;
}

static unsigned size_class(size_t bytes)
{
    unsigned class = 0;

    while (class < WORKER_SIZE_CLASSES && bytes > (size_t)256 << class) {
        class ++;
    }
    return class;
}

/* Not zeroed beyond the struct itself. */
static struct worker_launch *launch_alloc(struct worker_core *core, size_t bytes)
{
    unsigned class               = size_class(bytes);
    struct worker_launch *launch = NULL;

    if (class < WORKER_SIZE_CLASSES && core->spare[class] != NULL) {
        launch             = core->spare[class];
        core->spare[class] = launch->next;
        worker_launch_expect(launch->next);
        memset(launch, 0, sizeof(*launch));
    } else {
        launch = pl_alloc(class < WORKER_SIZE_CLASSES ? (size_t)256 << class : bytes);
    }
    if (launch != NULL) {
        launch->size_class = (uint8_t) class;
    }
    return launch;
}

/* With the address sanitizer it is freed (base/pool.h). */
void worker_launch_destroy(struct worker_core *core, struct worker_launch *launch)
{
    if (launch->graph != NULL) {
        worker_graph_drop(core, launch);
    }
    pl_free(launch->failure_text);
    launch->failure_text = NULL;
    if (PL_POOL_KEEPS && launch->size_class < WORKER_SIZE_CLASSES) {
        launch->next                    = core->spare[launch->size_class];
        core->spare[launch->size_class] = launch;
    } else {
        pl_free(launch);
    }
}

static void copy_in(void *to, const void *from, size_t bytes)
{
    if (bytes != 0) { /* memcpy wants pointers even for nothing */
        memcpy(to, from, bytes);
    }
}

static void shape_get(const Plasmon__V1__Launch *message, struct kernel_launch_shape *out)
{
    const uint32_t *numbers = message->launch_shape;

    if (message->n_launch_shape == WIRE_LAUNCH_SHAPE_COUNT) {
        memcpy(out->grid, numbers, sizeof(out->grid));
        memcpy(out->block, numbers + 3, sizeof(out->block));
        out->shared_bytes = numbers[6];
    }
}

static struct worker_launch *launch_layout(struct worker_core *core,
                                           const Plasmon__V1__Launch *message, bool node)
{
    size_t bytes        = sizeof(struct worker_launch);
    size_t label_length = message->label == NULL ? 0 : strlen(message->label);
    size_t operands     = part(&bytes, message->n_operands, sizeof(struct worker_operand));
    size_t node_operands =
        part(&bytes, node ? message->n_operands : 0, sizeof(struct worker_node_operand));
    size_t pieces  = part(&bytes, message->n_pieces, sizeof(struct worker_piece));
    size_t scalars = part(&bytes, message->n_scalars, sizeof(union kernel_scalar));
    size_t after   = part(&bytes, message->n_after, sizeof(uint64_t));
    size_t set     = part(&bytes, message->n_set, sizeof(struct worker_set));
    size_t data    = part(&bytes, message->data.len, 1);
    size_t label   = part(&bytes, label_length + 1, 1);
    struct worker_launch *launch = launch_alloc(core, bytes);
    char *base                   = (char *)launch;

    if (launch == NULL) {
        return NULL;
    }

    launch->operands = (struct worker_operand *)(void *)(base + operands);
    if (node) {
        launch->node_operands =
            (struct worker_node_operand *)(void *)(base + node_operands);
    }
    launch->pieces        = (struct worker_piece *)(void *)(base + pieces);
    launch->scalars       = (union kernel_scalar *)(void *)(base + scalars);
    launch->after         = (uint64_t *)(void *)(base + after);
    launch->set           = (struct worker_set *)(void *)(base + set);
    launch->set_count     = (uint32_t)message->n_set;
    launch->data          = (uint8_t *)base + data;
    launch->label         = base + label;
    launch->operand_count = (uint32_t)message->n_operands;
    launch->piece_count   = (uint32_t)message->n_pieces;
    launch->scalar_count  = (uint32_t)message->n_scalars;
    launch->after_count   = (uint32_t)message->n_after;
    launch->data_bytes    = message->data.len;

    shape_get(message, &launch->shape);
    copy_in(launch->scalars, message->scalars, message->n_scalars * sizeof(uint64_t));
    copy_in(launch->after, message->after, message->n_after * sizeof(uint64_t));
    for (size_t i = 0; i < message->n_set; i++) {
        launch->set[i] = (struct worker_set){.node     = message->set[i]->task,
                                             .position = message->set[i]->position,
                                             .value    = {.bits = message->set[i]->value}};
    }
    copy_in(launch->data, message->data.data, message->data.len);
    copy_in(launch->label, message->label == NULL ? "" : message->label, label_length + 1);
    return launch;
}

/* ----------------------------------------------------------------------------- operands */

static void box_get(size_t n, const int64_t *numbers, struct pl_box *out_box)
{
    memset(out_box, 0, sizeof(*out_box));
    out_box->ndim = (uint32_t)(n / 2);
    for (size_t i = 0; i < n / 2; i++) {
        out_box->start[i] = numbers[2 * i];
        out_box->count[i] = numbers[2 * i + 1];
    }
}

/*
 * What the kernel sees: the view's counts, strides of the frame times the view's steps, the place
 * of its first element.
 */
void worker_operand_aim(struct worker_operand *operand, size_t n_view, const int64_t *view)
{
    struct kernel_arg *arg = &operand->arg;
    uint64_t element_bytes = pl_dtype_bytes(arg->dtype);
    int64_t first          = 0;
    int64_t stride[PL_DIM_MAX];

    pl_box_strides(&operand->frame, stride);
    for (uint32_t i = 0; i < operand->frame.ndim; i++) {
        bool whole     = n_view == 0;
        arg->dim[i]    = whole ? operand->frame.count[i] : view[3 * i + 1];
        arg->stride[i] = stride[i] * (whole ? 1 : view[3 * i + 2]);
        if (!whole) {
            first += (view[3 * i] - operand->frame.start[i]) * stride[i];
        }
    }
    arg->ndim      = operand->frame.ndim;
    arg->data.addr = (uint64_t)first * element_bytes;
    operand->bytes = (uint64_t)pl_box_elements(&operand->frame) * element_bytes;
}

uint64_t worker_operand_bytes_shown(const struct worker_operand *operand)
{
    uint64_t bytes = pl_dtype_bytes(operand->arg.dtype);

    for (uint32_t i = 0; i < operand->arg.ndim; i++) {
        bytes *= (uint64_t)operand->arg.dim[i];
    }
    return bytes;
}

static void arg_get(const Plasmon__V1__Operand *message, struct worker_operand *operand)
{
    operand->arg.mode      = message->mode;
    operand->arg.dtype     = message->dtype;
    operand->arg.reduce_op = message->reduce_op;
    worker_operand_aim(operand, message->n_view, message->view);
}

static plasmon_status_t operand_get(const struct worker_core *core,
                                    const Plasmon__V1__Operand *message,
                                    struct worker_operand *operand, struct pl_err *err)
{
    memset(operand, 0, sizeof(*operand));
    operand->slot       = wire_buffer_slot(message->buffer);
    operand->generation = wire_buffer_generation(message->buffer);
    if (worker_host_device_of(core, wire_buffer_device(message->buffer)) !=
        core->config.host_device) {
        return pl_err_set(
            err, PLASMON_EMALFORMED, "buffer %#llx is on device %u, which is not this one",
            (unsigned long long)message->buffer, wire_buffer_device(message->buffer));
    }
    if (operand->slot >= STORE_TABLE_SLOTS || pl_dtype_bytes(message->dtype) == 0 ||
        message->n_frame > 2 * PL_DIM_MAX ||
        (message->n_view != 0 && message->n_view / 3 != message->n_frame / 2)) {
        return pl_err_set(err, PLASMON_EMALFORMED, "operand in slot %u with dtype %u",
                          operand->slot, message->dtype);
    }

    box_get(message->n_frame, message->frame, &operand->frame);
    arg_get(message, operand);
    operand->fresh         = message->fresh;
    operand->client_writes = message->writable_by_client;
    operand->replica       = message->replica;
    operand->writes = (message->mode & KERNEL_OUT) != 0 || message->mode == KERNEL_REDUCE ||
                      message->consume;
    return PLASMON_OK;
}

/* Only a function's are what the message says; of other kinds more depends on the launch. */
static plasmon_status_t operands_get(struct worker_core *core,
                                     const Plasmon__V1__Launch *message,
                                     struct worker_launch *launch, struct pl_err *err)
{
    struct worker_shared_list *shared =
        &core->lists[(uintptr_t)message->operands / 16 % WORKER_SHARED_LISTS];
    plasmon_status_t status = PLASMON_OK;

    if (launch->operand_count == 0) {
        return PLASMON_OK;
    }
    if (shared->list == message->operands) {
        assert(shared->launch->operand_count == launch->operand_count);
        memcpy(launch->operands, shared->launch->operands,
               launch->operand_count * sizeof(launch->operands[0]));
        return PLASMON_OK;
    }
    for (uint32_t i = 0; status == PLASMON_OK && i < launch->operand_count; i++) {
        status = operand_get(core, message->operands[i], &launch->operands[i], err);
    }
    if (status == PLASMON_OK && launch->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_RUN) {
        *shared = (struct worker_shared_list){.list = message->operands, .launch = launch};
    }
    return status;
}

void worker_launch_lists_forget(struct worker_core *core)
{
    memset(core->lists, 0, sizeof(core->lists));
}

static plasmon_status_t piece_get(const struct worker_launch *launch,
                                  const Plasmon__V1__Piece *message,
                                  struct worker_piece *piece, struct pl_err *err)
{
    piece->operand = message->operand;
    piece->src     = message->src;
    box_get(message->n_src_frame, message->src_frame, &piece->src_frame);
    box_get(message->n_box, message->box, &piece->box);
    if (piece->operand >= launch->operand_count ||
        piece->box.ndim != piece->src_frame.ndim ||
        piece->box.ndim != launch->operands[piece->operand].frame.ndim ||
        !pl_box_contains(&piece->src_frame, &piece->box) ||
        !pl_box_contains(&launch->operands[piece->operand].frame, &piece->box)) {
        return pl_err_set(err, PLASMON_EMALFORMED, "a piece does not lie in operand %u",
                          piece->operand);
    }
    return PLASMON_OK;
}

/* -------------------------------------------------------------------------------- kinds */

/* The one operand of every kind but RUN and SKIP: is it written, and to its end? */
static bool only_operand_writes(const struct worker_launch *launch)
{
    switch (launch->kind) {
    case PLASMON__V1__LAUNCH_KIND__LAUNCH_COPY:
    case PLASMON__V1__LAUNCH_KIND__LAUNCH_RECV:
    case PLASMON__V1__LAUNCH_KIND__LAUNCH_SEAL:
    case PLASMON__V1__LAUNCH_KIND__LAUNCH_PUT_HOST:
        return true;
    case PLASMON__V1__LAUNCH_KIND__LAUNCH_PUT:
        return launch->offset + launch->data_bytes == launch->operands[0].bytes;
    default:
        return false;
    }
}

/* What the operand shows lies side by side, in C order. */
static bool without_gaps(const struct kernel_arg *arg)
{
    int64_t want = 1;

    for (uint32_t i = arg->ndim; i-- > 0;) {
        if (arg->dim[i] != 1 && arg->stride[i] != want) {
            return false;
        }
        want *= arg->dim[i];
    }
    return true;
}

static bool only_operand_fits(const struct worker_launch *launch)
{
    uint64_t bytes = launch->operands[0].bytes;

    switch (launch->kind) {
    case PLASMON__V1__LAUNCH_KIND__LAUNCH_COPY:
        return launch->piece_count > 0 &&
               (launch->team == 0 || (launch->function_id != 0 && launch->comm != 0));
    case PLASMON__V1__LAUNCH_KIND__LAUNCH_PUT:
        return launch->offset <= bytes && launch->data_bytes <= bytes - launch->offset;
    case PLASMON__V1__LAUNCH_KIND__LAUNCH_READ:
        return launch->offset <= bytes && launch->length <= bytes - launch->offset &&
               launch->length <= WIRE_DATA_BYTES_MAX;
    case PLASMON__V1__LAUNCH_KIND__LAUNCH_GET_HOST:
    case PLASMON__V1__LAUNCH_KIND__LAUNCH_SEND:
    case PLASMON__V1__LAUNCH_KIND__LAUNCH_RECV:
        return without_gaps(&launch->operands[0].arg);
    default:
        return true;
    }
}

static plasmon_status_t kind_check(struct worker_core *core, struct worker_launch *launch,
                                   uint64_t graph, struct pl_err *err)
{
    switch (launch->kind) {
    case PLASMON__V1__LAUNCH_KIND__LAUNCH_RUN:
        launch->without_work =
            launch->function_id == core->noop_id && launch->operand_count == 0;
        return PLASMON_OK;
    case PLASMON__V1__LAUNCH_KIND__LAUNCH_SKIP:
    case PLASMON__V1__LAUNCH_KIND__LAUNCH_OPEN:
    case PLASMON__V1__LAUNCH_KIND__LAUNCH_CLOSE:
        launch->without_work = true;
        return PLASMON_OK;
    case PLASMON__V1__LAUNCH_KIND__LAUNCH_ALLOC:
    case PLASMON__V1__LAUNCH_KIND__LAUNCH_SEAL:
        launch->without_work = true;
        break;
    case PLASMON__V1__LAUNCH_KIND__LAUNCH_GRAPH:
        return worker_graph_hold(core, launch, graph, err);
    default:
        break;
    }

    if (launch->operand_count != 1 || !only_operand_fits(launch)) {
        return pl_err_set(err, PLASMON_EMALFORMED,
                          "kind %u with %u operands, %u pieces, offset %llu, length %llu",
                          launch->kind, launch->operand_count, launch->piece_count,
                          (unsigned long long)launch->offset,
                          (unsigned long long)launch->length);
    }
    launch->operands[0].writes = only_operand_writes(launch);
    return PLASMON_OK;
}

static plasmon_status_t after_check(const struct worker_core *core,
                                    const struct worker_launch *launch, struct pl_err *err)
{
    for (uint32_t i = 0; i < launch->after_count; i++) {
        uint32_t device = wire_point_device(launch->after[i]);

        if (device >= core->config.device_max ||
            (worker_host_device_of(core, device) == core->config.host_device &&
             wire_point_seq(launch->after[i]) >= launch->seq)) {
            return pl_err_set(err, PLASMON_EMALFORMED,
                              "it waits for launch %llu of device %u",
                              (unsigned long long)wire_point_seq(launch->after[i]), device);
        }
    }
    return PLASMON_OK;
}

static plasmon_status_t launch_fill(struct worker_core *core,
                                    const Plasmon__V1__Launch *message,
                                    struct worker_launch *launch, struct pl_err *err)
{
    plasmon_status_t status;

    launch->seq         = message->seq;
    launch->kind        = (uint32_t)message->kind;
    launch->function_id = message->function;
    launch->peer        = message->peer;
    launch->offset      = message->offset;
    launch->length      = message->length;
    launch->request     = message->request;
    launch->host_buffer = message->host_buffer;
    launch->client      = message->client;
    launch->task        = message->task;
    launch->submit_ns   = message->submit_ns;
    launch->placed_ns   = message->placed_ns;
    launch->priority    = message->priority;
    launch->team        = message->team;
    launch->ranks       = message->ranks;
    launch->order       = message->order;
    if (worker_launch_is_half(launch) || worker_launch_is_pairs(launch) ||
        worker_launch_is_joint(launch)) {
        launch->comm = message->pair;
    }
    if (worker_launch_is_function(launch)) {
        launch->time_limit_ms = message->time_limit_ms;
    }

    status = operands_get(core, message, launch, err);
    for (uint32_t i = 0; status == PLASMON_OK && i < launch->piece_count; i++) {
        status = piece_get(launch, message->pieces[i], &launch->pieces[i], err);
    }
    if (status == PLASMON_OK) {
        status = after_check(core, launch, err);
    }
    if (status == PLASMON_OK) {
        status = kind_check(core, launch, message->graph, err);
    }
    for (uint32_t i = 0; i < launch->operand_count; i++) {
        launch->overwrites |= launch->operands[i].writes && !launch->operands[i].fresh;
    }
    return status;
}

plasmon_status_t worker_launch_create(struct worker_core *core,
                                      const Plasmon__V1__Launch *message,
                                      struct worker_launch **out_launch, struct pl_err *err)
{
    struct worker_launch *launch = launch_layout(core, message, false);
    struct pl_err cause;
    plasmon_status_t status;

    pl_err_init(&cause);
    if (launch == NULL) {
        return pl_err_set(err, PLASMON_ENOMEM, "no memory for launch %llu",
                          (unsigned long long)message->seq);
    }
    status = launch_fill(core, message, launch, &cause);
    if (status != PLASMON_OK) {
        worker_launch_destroy(core, launch);
        return pl_err_set(err, status, "launch %llu: %s", (unsigned long long)message->seq,
                          cause.text);
    }
    *out_launch = launch;
    return PLASMON_OK;
}

/* ---------------------------------------------------------------------- nodes of graphs */

static plasmon_status_t node_operand_get(const Plasmon__V1__Operand *message,
                                         struct worker_operand *operand,
                                         struct worker_node_operand *node,
                                         struct pl_err *err)
{
    memset(operand, 0, sizeof(*operand));
    memset(node, 0, sizeof(*node));
    node->operand = message->graph_operand;
    node->offset  = message->graph_offset;
    if (message->n_view > 3 * PL_DIM_MAX || pl_dtype_bytes(message->dtype) == 0 ||
        (message->graph_operand == 0 && message->n_view != 0 &&
         message->n_view / 3 != message->n_frame / 2)) {
        return pl_err_set(err, PLASMON_EMALFORMED, "a node's operand with dtype %u",
                          message->dtype);
    }
    node->view.ndim = (uint32_t)(message->n_view / 3);
    for (uint32_t i = 0; i < node->view.ndim; i++) {
        node->view.start[i] = message->view[3 * i];
        node->view.count[i] = message->view[3 * i + 1];
        node->view.step[i]  = message->view[3 * i + 2];
    }
    if (message->graph_operand == 0) {
        box_get(message->n_frame, message->frame, &operand->frame);
        arg_get(message, operand);
    } else {
        operand->arg.mode  = message->mode;
        operand->arg.dtype = message->dtype;
    }
    return PLASMON_OK;
}

plasmon_status_t worker_node_create(struct worker_core *core,
                                    const Plasmon__V1__Launch *message,
                                    struct worker_launch **out_launch, struct pl_err *err)
{
    struct worker_launch *launch = launch_layout(core, message, true);
    plasmon_status_t status      = PLASMON_OK;

    if (launch == NULL) {
        return pl_err_set(err, PLASMON_ENOMEM, "no memory for a node");
    }
    launch->kind        = (uint32_t)message->kind;
    launch->function_id = message->function;
    for (uint32_t i = 0; status == PLASMON_OK && i < launch->operand_count; i++) {
        status = node_operand_get(message->operands[i], &launch->operands[i],
                                  &launch->node_operands[i], err);
    }
    if (status != PLASMON_OK) {
        worker_launch_destroy(core, launch);
        return status;
    }
    *out_launch = launch;
    return PLASMON_OK;
}

/* ------------------------------------------------------------------------ failure, text */

void worker_launch_fail(struct worker_launch *launch, plasmon_status_t status,
                        const char *format, ...)
{
    struct pl_err err;
    va_list args;

    assert(status != PLASMON_OK);
    if (launch->failure != PLASMON_OK) {
        return;
    }

    va_start(args, format);
    (void)vsnprintf(err.text, sizeof(err.text), format, args);
    va_end(args);
    launch->failure      = status;
    launch->failure_text = pl_strdup(err.text); /* NULL: the status has to do */
}

static const char *kind_name(uint32_t kind)
{
    static const char *const names[] = {"run",   "copy", "send", "receive", "put", "read",
                                        "alloc", "seal", "skip", "graph",   "put", "get"};

    return kind < PL_COUNT(names) ? names[kind] : "?";
}

const char *worker_launch_name(const struct worker_launch *launch)
{
    const struct kernel_function *function = launch->function;

    if (function == NULL && launch->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_RUN) {
        function = kernel_by_id(launch->function_id); /* not checked yet */
    }
    return function != NULL ? function->name : kind_name(launch->kind);
}

void worker_launch_describe(const struct worker_launch *launch, struct pl_str *out)
{
    pl_str_append(out, "launch %llu (%s", (unsigned long long)launch->seq,
                  worker_launch_name(launch));
    if (launch->label[0] != '\0') {
        pl_str_append(out, " '%s'", launch->label);
    }
    if (launch->shape.block[0] != 0) {
        const struct kernel_launch_shape *shape = &launch->shape;

        pl_str_append(out, ", grid %ux%ux%u, block %ux%ux%u, %u bytes of shared memory",
                      shape->grid[0], shape->grid[1], shape->grid[2], shape->block[0],
                      shape->block[1], shape->block[2], shape->shared_bytes);
    }
    pl_str_append(out, ", task %llu of client %016llx)", (unsigned long long)launch->task,
                  (unsigned long long)launch->client);
}

uint64_t worker_piece_bytes(const struct worker_launch *launch,
                            const struct worker_piece *piece)
{
    return (uint64_t)pl_box_elements(&piece->box) *
           pl_dtype_bytes(launch->operands[piece->operand].arg.dtype);
}

static uint64_t pieces_bytes(const struct worker_launch *launch)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < launch->piece_count; i++) {
        bytes += worker_piece_bytes(launch, &launch->pieces[i]);
    }
    return bytes;
}

/* The first device but ours that it takes from; ours if there is none. */
static uint32_t foreign_source(const struct worker_core *core,
                               const struct worker_launch *launch)
{
    for (uint32_t i = 0; i < launch->piece_count; i++) {
        uint32_t device = wire_buffer_device(launch->pieces[i].src);

        if (worker_host_device_of(core, device) != core->config.host_device) {
            return device;
        }
    }
    return wire_buffer_device(launch->pieces[0].src);
}

/* Bytes that it moved, how, and from or to where; a function: what its operands have. */
static void facts_of_bytes(const struct worker_core *core,
                           const struct worker_launch *launch, struct worker_span *facts)
{
    for (uint32_t i = 0; i < launch->operand_count; i++) {
        facts->bytes += launch->operands[i].bytes;
    }
    facts->peer = launch->peer;
    switch (launch->kind) {
    case PLASMON__V1__LAUNCH_KIND__LAUNCH_SEND:
    case PLASMON__V1__LAUNCH_KIND__LAUNCH_RECV:
        facts->route = WORKER_ROUTE_HOST;
        facts->bytes = worker_operand_bytes_shown(&launch->operands[0]);
        break;
    case PLASMON__V1__LAUNCH_KIND__LAUNCH_PUT:
        facts->route = WORKER_ROUTE_INLINE;
        facts->bytes = launch->data_bytes;
        break;
    case PLASMON__V1__LAUNCH_KIND__LAUNCH_READ:
        facts->route = WORKER_ROUTE_INLINE;
        facts->bytes = launch->length;
        break;
    case PLASMON__V1__LAUNCH_KIND__LAUNCH_PUT_HOST:
    case PLASMON__V1__LAUNCH_KIND__LAUNCH_GET_HOST:
        facts->route = WORKER_ROUTE_HOST_BUFFER;
        facts->bytes = worker_operand_bytes_shown(&launch->operands[0]);
        break;
    case PLASMON__V1__LAUNCH_KIND__LAUNCH_COPY:
        facts->bytes = pieces_bytes(launch); /* perhaps a part of its buffer */
        facts->peer  = foreign_source(core, launch);
        facts->route = worker_host_device_of(core, facts->peer) == core->config.host_device
                           ? WORKER_ROUTE_LOCAL
                           : WORKER_ROUTE_PEER;
        break;
    default:
        break;
    }
}

void worker_launch_facts(const struct worker_core *core, const struct worker_launch *launch,
                         uint32_t stream, struct worker_span *out)
{
    *out = (struct worker_span){
        .seq       = launch->seq,
        .stream    = stream,
        .kind      = launch->kind,
        .name      = worker_launch_name(launch),
        .label     = launch->label,
        .client    = launch->client,
        .task      = launch->task,
        .submit_ns = launch->submit_ns,
        .placed_ns = launch->placed_ns,
        .failed    = launch->failure != PLASMON_OK,
    };
    facts_of_bytes(core, launch, out);
}
