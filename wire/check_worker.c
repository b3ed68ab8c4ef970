/*
 * Checks of the frames inside the cluster: WorkerFrame and WorkerCommand (one stream a device),
 * NodeFrame and NodeCommand (one stream a host). A worker maps memory and starts copies by what a
 * command says, so the geometry of a launch is checked as a whole: every view and every piece lies
 * inside the frame that its buffer is said to hold.
 */
#include "wire/wire_int.h"

/*
 * Dimension by dimension: a view's hull, or a box, lies inside a frame. The lists were checked one
 * by one before.
 */
static bool view_inside(size_t n, const int64_t *view, const int64_t *frame)
{
    for (size_t v = 0, f = 0; v < n; v += 3, f += 2) {
        int64_t last = view[v] + (view[v + 1] - 1) * view[v + 2];

        if (view[v] < frame[f] || last - frame[f] >= frame[f + 1]) {
            return false;
        }
    }
    return true;
}

static bool box_inside(size_t n, const int64_t *box, const int64_t *frame)
{
    for (size_t i = 0; i < n; i += 2) {
        if (box[i] < frame[i] || box[i] + box[i + 1] > frame[i] + frame[i + 1]) {
            return false;
        }
    }
    return true;
}

static plasmon_status_t check_frame_bytes(const Plasmon__V1__Operand *operand,
                                          struct pl_err *err)
{
    uint64_t bytes = pl_dtype_bytes(operand->dtype);

    if (bytes == 0) {
        return pl_err_set(err, PLASMON_EMALFORMED, "dtype %u does not exist",
                          operand->dtype);
    }
    for (size_t i = 0; i < operand->n_frame; i += 2) {
        bytes *=
            (uint64_t)operand->frame
                [i + 1]; /* the product of the counts is at most 2^48, a dtype at most 16 */
    }
    if (bytes > WIRE_VALUE_BYTES_MAX) {
        return pl_err_set(err, PLASMON_EMALFORMED, "frame of %llu bytes",
                          (unsigned long long)bytes);
    }
    return PLASMON_OK;
}

static plasmon_status_t check_operand(const Plasmon__V1__Operand *operand,
                                      struct pl_err *err)
{
    plasmon_status_t status = check_mode(operand->mode, err);

    if (status == PLASMON_OK) {
        status = check_box_numbers(operand->n_frame, operand->frame, "frame", err);
    }
    if (status == PLASMON_OK) {
        status = check_view_numbers(operand->n_view, operand->view, "view", err);
    }
    if (status == PLASMON_OK) {
        status = check_frame_bytes(operand, err);
    }
    if (status != PLASMON_OK || operand->n_view == 0) {
        return status;
    }

    if (operand->n_view / 3 != operand->n_frame / 2 ||
        !view_inside(operand->n_view, operand->view, operand->frame)) {
        return pl_err_set(err, PLASMON_EMALFORMED, "its view is not inside its frame");
    }
    return PLASMON_OK;
}

static plasmon_status_t check_piece(const Plasmon__V1__Piece *piece,
                                    const Plasmon__V1__Launch *launch, struct pl_err *err)
{
    plasmon_status_t status =
        check_source_numbers(piece->n_src_frame, piece->src_frame, "src_frame", err);
    const Plasmon__V1__Operand *to;

    if (status == PLASMON_OK && piece->operand >= launch->n_operands) {
        status = pl_err_set(err, PLASMON_EMALFORMED, "it fills operand %u of %zu",
                            piece->operand, launch->n_operands);
    }

    if (status == PLASMON_OK) {
        status = check_box_numbers(piece->n_box, piece->box, "box", err);
    }
    if (status != PLASMON_OK) {
        return status;
    }

    to = launch->operands[piece->operand];
    if (piece->n_box != piece->n_src_frame || piece->n_box != to->n_frame ||
        !box_inside(piece->n_box, piece->box, piece->src_frame) ||
        !box_inside(piece->n_box, piece->box, to->frame)) {
        return pl_err_set(err, PLASMON_EMALFORMED, "its box is not inside both frames");
    }
    return PLASMON_OK;
}

static plasmon_status_t check_pieces(const Plasmon__V1__Launch *launch, struct pl_err *err)
{
    plasmon_status_t status = check_count(launch->n_pieces, WIRE_PIECES_MAX, "pieces", err);

    for (size_t i = 0; status == PLASMON_OK && i < launch->n_pieces; i++) {
        status = check_piece(launch->pieces[i], launch, err);
        if (status != PLASMON_OK) {
            return check_below(err, status, "pieces", (long)i);
        }
    }
    return status;
}

static plasmon_status_t check_launch_counts(const Plasmon__V1__Launch *launch,
                                            struct pl_err *err)
{
    plasmon_status_t status =
        check_count(launch->n_operands, WIRE_ARGS_MAX, "operands", err);

    if (status == PLASMON_OK) {
        status = check_count(launch->n_scalars, WIRE_SCALARS_MAX, "scalars", err);
    }
    if (status == PLASMON_OK) {
        status = check_count(launch->n_after, WIRE_RANGES_MAX, "points to wait for", err);
    }
    if (status == PLASMON_OK) {
        status = check_bytes(&launch->data, WIRE_DATA_BYTES_MAX, "data", err);
    }
    if (status == PLASMON_OK) {
        status = check_name(launch->label, WIRE_LABEL_BYTES_MAX, "label", err);
    }
    if (status == PLASMON_OK) {
        status = check_launch_shape(launch->n_launch_shape, launch->launch_shape, err);
    }
    return status;
}

static bool opens_or_closes(const Plasmon__V1__Launch *launch)
{
    return launch->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_OPEN ||
           launch->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_CLOSE;
}

static plasmon_status_t check_operands(const Plasmon__V1__Launch *launch,
                                       struct pl_err *err)
{
    for (size_t i = 0; i < launch->n_operands; i++) {
        plasmon_status_t status = check_operand(launch->operands[i], err);

        if (status != PLASMON_OK) {
            return check_below(err, status, "operands", (long)i);
        }
    }
    return PLASMON_OK;
}

static plasmon_status_t check_launch(const Plasmon__V1__Launch *launch,
                                     struct check_seen *seen, struct pl_err *err)
{
    plasmon_status_t status;

    if (launch->seq == 0 ||
        (unsigned)launch->kind > PLASMON__V1__LAUNCH_KIND__LAUNCH_CLOSE ||
        (opens_or_closes(launch) && launch->pair == 0) ||
        (launch->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_GRAPH) != (launch->graph != 0) ||
        (launch->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_PUT_HOST ||
         launch->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_GET_HOST) !=
            (launch->host_buffer != 0)) {
        return pl_err_set(err, PLASMON_EMALFORMED, "its seq is %llu and its kind %d",
                          (unsigned long long)launch->seq, (int)launch->kind);
    }
    if (launch->team != 0 && ((!opens_or_closes(launch) &&
                               launch->kind != PLASMON__V1__LAUNCH_KIND__LAUNCH_COPY) ||
                              launch->pair == 0 || launch->length >= WIRE_TEAM_MAX)) {
        return pl_err_set(err, PLASMON_EMALFORMED, "rank %llu of team %u",
                          (unsigned long long)launch->length, launch->team);
    }
    if (launch->team != 0 && launch->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_OPEN
            ? launch->ranks < 2 || launch->ranks > WIRE_TEAM_MAX ||
                  launch->length >= launch->ranks
            : launch->ranks != 0) {
        return pl_err_set(err, PLASMON_EMALFORMED, "a team of %u devices", launch->ranks);
    }
    if (launch->peer >= WIRE_DEVICES_MAX || launch->offset > WIRE_VALUE_BYTES_MAX ||
        launch->length > WIRE_VALUE_BYTES_MAX) {
        return pl_err_set(err, PLASMON_EMALFORMED, "peer %u, offset %llu, length %llu",
                          launch->peer, (unsigned long long)launch->offset,
                          (unsigned long long)launch->length);
    }

    status = check_launch_counts(launch, err);
    if (status == PLASMON_OK) {
        status = check_graph_scalars(launch->n_set, launch->set, err);
    }
    if (status == PLASMON_OK && !check_again(seen, launch->operands)) {
        status = check_operands(launch, err);
    }
    return status == PLASMON_OK ? check_pieces(launch, err) : status;
}

/*
 * A node's operand has its geometry from the launch when it is one of the launch's operands (the
 * worker checks that then), and of its own when it lies in the graph's memory.
 */
static plasmon_status_t check_node_operand(const Plasmon__V1__Operand *operand,
                                           const Plasmon__V1__GraphPart *part,
                                           struct pl_err *err)
{
    plasmon_status_t status;

    if (operand->graph_operand > part->operands) {
        return pl_err_set(err, PLASMON_EMALFORMED, "it is operand %u of %u",
                          operand->graph_operand - 1, part->operands);
    }
    if (operand->graph_operand == 0) {
        status = check_operand(operand, err);
        if (status == PLASMON_OK && operand->graph_offset > part->bytes) {
            status = pl_err_set(err, PLASMON_EMALFORMED, "it is at byte %llu of %llu",
                                (unsigned long long)operand->graph_offset,
                                (unsigned long long)part->bytes);
        }
        return status;
    }
    status = check_mode(operand->mode, err);
    if (status == PLASMON_OK && pl_dtype_bytes(operand->dtype) == 0) {
        status =
            pl_err_set(err, PLASMON_EMALFORMED, "dtype %u does not exist", operand->dtype);
    }
    return status == PLASMON_OK
               ? check_view_numbers(operand->n_view, operand->view, "view", err)
               : status;
}

static plasmon_status_t check_node(const Plasmon__V1__GraphNode *node, uint32_t number,
                                   const Plasmon__V1__GraphPart *part, struct pl_err *err)
{
    const Plasmon__V1__Launch *launch = node->launch;
    plasmon_status_t status;

    if (launch == NULL || launch->kind != PLASMON__V1__LAUNCH_KIND__LAUNCH_RUN ||
        launch->n_pieces != 0 || launch->n_set != 0 || node->branch >= part->branches) {
        return pl_err_set(err, PLASMON_EMALFORMED,
                          "it is no function on one of %u branches", part->branches);
    }
    status = check_count(node->n_after, WIRE_GRAPH_NODES_MAX, "after", err);
    for (size_t i = 0; status == PLASMON_OK && i < node->n_after; i++) {
        if (node->after[i] >= number) {
            status =
                pl_err_set(err, PLASMON_EMALFORMED, "it waits for node %u", node->after[i]);
        }
    }
    if (status == PLASMON_OK) {
        status = check_launch_counts(launch, err);
    }
    for (size_t i = 0; status == PLASMON_OK && i < launch->n_operands; i++) {
        status = check_node_operand(launch->operands[i], part, err);
        if (status != PLASMON_OK) {
            return check_below(err, status, "operands", (long)i);
        }
    }
    return status;
}

static plasmon_status_t check_graph_part(const Plasmon__V1__GraphPart *part,
                                         struct pl_err *err)
{
    plasmon_status_t status = check_count(part->n_nodes, WIRE_TASKS_MAX, "nodes", err);

    if (status != PLASMON_OK) {
        return status;
    }
    if (part->id == 0 || part->operands > WIRE_ARGS_MAX ||
        part->branches > WIRE_GRAPH_BRANCHES_MAX || part->bytes > WIRE_VALUE_BYTES_MAX ||
        part->first > WIRE_GRAPH_NODES_MAX) {
        return pl_err_set(err, PLASMON_EMALFORMED,
                          "graph %llu: node %u, %u operands, %u branches, %llu bytes",
                          (unsigned long long)part->id, part->first, part->operands,
                          part->branches, (unsigned long long)part->bytes);
    }
    for (size_t i = 0; i < part->n_nodes; i++) {
        status = check_node(part->nodes[i], part->first + (uint32_t)i, part, err);
        if (status != PLASMON_OK) {
            return check_below(err, status, "nodes", (long)i);
        }
    }
    return PLASMON_OK;
}

static plasmon_status_t check_graph_parts(const Plasmon__V1__WorkerCommand *command,
                                          struct pl_err *err)
{
    plasmon_status_t status = check_count(command->n_graphs, WIRE_TASKS_MAX, "graphs", err);

    for (size_t i = 0; status == PLASMON_OK && i < command->n_graphs; i++) {
        status = check_graph_part(command->graphs[i], err);
        if (status != PLASMON_OK) {
            return check_below(err, status, "graphs", (long)i);
        }
    }
    if (status == PLASMON_OK) {
        status = check_count(command->n_graph_free, WIRE_RANGES_MAX, "freed graphs", err);
    }
    return status;
}

static plasmon_status_t check_bulk(const char *address, const ProtobufCBinaryData *secret,
                                   struct pl_err *err)
{
    plasmon_status_t status =
        check_text(address, WIRE_BULK_ADDRESS_BYTES_MAX, "bulk address", err);

    if (status == PLASMON_OK &&
        secret->len != (address[0] != '\0' ? WIRE_BULK_SECRET_BYTES : 0)) {
        status =
            pl_err_set(err, PLASMON_EMALFORMED, "bulk secret of %zu bytes", secret->len);
    }
    return status;
}

static plasmon_status_t check_bulk_peers(const Plasmon__V1__WorkerCommand *command,
                                         struct pl_err *err)
{
    plasmon_status_t status =
        check_count(command->n_bulk_peers, WIRE_DEVICES_MAX, "bulk peers", err);

    for (size_t i = 0; status == PLASMON_OK && i < command->n_bulk_peers; i++) {
        const Plasmon__V1__BulkPeer *peer = command->bulk_peers[i];

        status = check_bulk(peer->address, &peer->secret, err);
        if (status == PLASMON_OK && (peer->device >= WIRE_DEVICES_MAX ||
                                     (peer->address[0] == '\0' && !peer->gone))) {
            status = pl_err_set(err, PLASMON_EMALFORMED,
                                "device %u is neither somewhere nor gone", peer->device);
        }
        if (status != PLASMON_OK) {
            return check_below(err, status, "bulk peers", (long)i);
        }
    }
    return status;
}

static plasmon_status_t check_bulk_give_up(const Plasmon__V1__WorkerCommand *command,
                                           struct pl_err *err)
{
    plasmon_status_t status =
        check_count(command->n_bulk_give_up, WIRE_RANGES_MAX, "bulk give up", err);

    for (size_t i = 0; status == PLASMON_OK && i < command->n_bulk_give_up; i++) {
        const Plasmon__V1__BulkGiveUp *order = command->bulk_give_up[i];

        if (order->device >= WIRE_DEVICES_MAX || order->count == 0 ||
            order->first > UINT64_MAX - order->count) {
            status = pl_err_set(err, PLASMON_EMALFORMED,
                                "%llu chunks from %llu on, with device %u",
                                (unsigned long long)order->count,
                                (unsigned long long)order->first, order->device);
            return check_below(err, status, "bulk give up", (long)i);
        }
    }
    return status;
}

static plasmon_status_t check_relief(const Plasmon__V1__WorkerCommand *command,
                                     struct pl_err *err)
{
    plasmon_status_t status =
        check_count(command->n_relief, WIRE_RANGES_MAX, "relief", err);

    for (size_t i = 0; status == PLASMON_OK && i < command->n_relief; i++) {
        if (command->relief[i]->request == 0) {
            status =
                pl_err_set(err, PLASMON_EMALFORMED, "request 0 will never be answered");
            return check_below(err, status, "relief", (long)i);
        }
    }
    return status;
}

static plasmon_status_t check_pair_id(size_t length, bool wanted, struct pl_err *err)
{
    return length == (wanted ? WIRE_PAIR_ID_BYTES : 0)
               ? PLASMON_OK
               : pl_err_set(err, PLASMON_EMALFORMED, "pair id of %zu bytes", length);
}

static plasmon_status_t check_pair_names(uint32_t peer, uint32_t team, uint64_t epoch,
                                         struct pl_err *err)
{
    return peer < WIRE_DEVICES_MAX && (team == 0 || peer == 0) && epoch != 0
               ? PLASMON_OK
               : pl_err_set(err, PLASMON_EMALFORMED, "pair %llu with device %u",
                            (unsigned long long)epoch, peer);
}

static plasmon_status_t check_pair_orders(const Plasmon__V1__WorkerCommand *command,
                                          struct pl_err *err)
{
    plasmon_status_t status = check_count(command->n_pairs, WIRE_RANGES_MAX, "pairs", err);

    for (size_t i = 0; status == PLASMON_OK && i < command->n_pairs; i++) {
        const Plasmon__V1__PairOrder *order = command->pairs[i];

        status = check_pair_names(order->peer, order->team, order->epoch, err);
        if (status == PLASMON_OK) {
            status =
                (unsigned)order->state > PLASMON__V1__PAIR_STATE__PAIR_STAGED
                    ? pl_err_set(err, PLASMON_EMALFORMED, "pair state %d",
                                 (int)order->state)
                    : check_pair_id(order->id.len,
                                    order->state == PLASMON__V1__PAIR_STATE__PAIR_ID, err);
        }
        if (status != PLASMON_OK) {
            return check_below(err, status, "pairs", (long)i);
        }
    }
    if (status == PLASMON_OK) {
        status = check_count(command->n_sent, WIRE_RANGES_MAX, "sent", err);
    }
    return status;
}

plasmon_status_t check_worker_command(const Plasmon__V1__WorkerCommand *command,
                                      struct pl_err *err)
{
    plasmon_status_t status = check_header(command->header, err);
    struct check_seen seen  = {.lists = {NULL}};

    if (status == PLASMON_OK) {
        status = check_count(command->n_launches, WIRE_TASKS_MAX, "launches", err);
    }
    for (size_t i = 0; status == PLASMON_OK && i < command->n_launches; i++) {
        status = check_launch(command->launches[i], &seen, err);
        if (status != PLASMON_OK) {
            return check_below(err, status, "launches", (long)i);
        }
    }
    if (status == PLASMON_OK) {
        status = check_graph_parts(command, err);
    }
    if (status == PLASMON_OK) {
        status = check_function_defines(command->n_functions, command->functions,
                                        "functions", err);
    }
    if (status == PLASMON_OK) {
        status =
            check_count(command->n_function_free, WIRE_RANGES_MAX, "function_frees", err);
    }
    if (status == PLASMON_OK) {
        status = check_count(command->n_cancel_force, WIRE_RANGES_MAX, "launches to cancel",
                             err);
    }
    if (status == PLASMON_OK) {
        status = check_count(command->n_cancel, WIRE_RANGES_MAX, "launches to cancel", err);
    }
    if (status == PLASMON_OK) {
        status = check_bulk_peers(command, err);
    }
    if (status == PLASMON_OK) {
        status = check_bulk_give_up(command, err);
    }
    if (status == PLASMON_OK) {
        status = check_relief(command, err);
    }
    if (status == PLASMON_OK) {
        status = check_pair_orders(command, err);
    }
    if (status == PLASMON_OK && command->welcome != NULL &&
        (command->welcome->device >= WIRE_DEVICES_MAX ||
         command->welcome->host_device_count > WIRE_DEVICES_MAX)) {
        status = pl_err_set(err, PLASMON_EMALFORMED, "welcome: device %u of %u on its host",
                            command->welcome->device, command->welcome->host_device_count);
    }
    return status;
}

/* ----------------------------------------------------------------------- worker -> head */

/* Which memory of its host it is: a peer that does not say so is of an older release. */
static plasmon_status_t check_memory(uint64_t memory, struct pl_err *err)
{
    return memory != 0 ? PLASMON_OK
                       : pl_err_set(err, PLASMON_EVERSION,
                                    "memory 0: a store or worker that does not say which "
                                    "memory it has; all programs of a cluster are of one "
                                    "release, start the one of this head's");
}

static plasmon_status_t check_held(const Plasmon__V1__WorkerHello *hello,
                                   struct pl_err *err)
{
    plasmon_status_t status = check_count(hello->n_held, WIRE_RANGES_MAX, "held", err);

    for (size_t i = 1; status == PLASMON_OK && i < hello->n_held; i++) {
        if (hello->held[i] <= hello->held[i - 1]) {
            status = pl_err_set(err, PLASMON_EMALFORMED, "held[%zu] is %u, behind %u", i,
                                hello->held[i], hello->held[i - 1]);
        }
    }
    return status;
}

static plasmon_status_t check_worker_hello(const Plasmon__V1__WorkerHello *hello,
                                           struct pl_err *err)
{
    plasmon_status_t status =
        check_bytes(&hello->token, WIRE_TOKEN_BYTES_MAX, "token", err);

    if (status == PLASMON_OK) {
        status = check_name(hello->host, WIRE_NAME_BYTES_MAX, "host", err);
    }
    if (status == PLASMON_OK) {
        status = check_name(hello->node, WIRE_NAME_BYTES_MAX, "node", err);
    }
    if (status == PLASMON_OK) {
        status = check_name(hello->name, WIRE_NAME_BYTES_MAX, "name", err);
    }
    if (status == PLASMON_OK && hello->host_device >= WIRE_DEVICES_MAX) {
        status = pl_err_set(err, PLASMON_EMALFORMED, "host_device %u", hello->host_device);
    }
    if (status == PLASMON_OK &&
        (hello->enqueued > WIRE_SEQ_MAX || hello->received > WIRE_SEQ_MAX)) {
        status = pl_err_set(err, PLASMON_EMALFORMED, "enqueued %llu, received %llu",
                            (unsigned long long)hello->enqueued,
                            (unsigned long long)hello->received);
    }
    if (status == PLASMON_OK) {
        status = check_ranges(hello->n_unfinished, hello->unfinished, "unfinished", err);
    }
    if (status == PLASMON_OK) {
        status = check_ranges(hello->n_untouched, hello->untouched, "untouched", err);
    }
    if (status == PLASMON_OK) {
        status = check_held(hello, err);
    }
    if (status == PLASMON_OK) {
        status = check_bulk(hello->bulk_address, &hello->bulk_secret, err);
    }
    if (status == PLASMON_OK) {
        status = check_text(hello->comm_missing, WIRE_TEXT_BYTES_MAX, "comm_missing", err);
    }
    return status == PLASMON_OK ? check_memory(hello->memory, err) : status;
}

static plasmon_status_t check_pair_reports(const Plasmon__V1__WorkerFrame *frame,
                                           struct pl_err *err)
{
    plasmon_status_t status = check_count(frame->n_pairs, WIRE_RANGES_MAX, "pairs", err);

    for (size_t i = 0; status == PLASMON_OK && i < frame->n_pairs; i++) {
        const Plasmon__V1__PairReport *report = frame->pairs[i];

        status = check_pair_names(report->peer, report->team, report->epoch, err);
        if (status == PLASMON_OK) {
            status = (unsigned)report->event > PLASMON__V1__PAIR_EVENT__PAIR_TROUBLE
                         ? pl_err_set(err, PLASMON_EMALFORMED, "pair event %d",
                                      (int)report->event)
                         : check_pair_id(
                               report->id.len,
                               report->event == PLASMON__V1__PAIR_EVENT__PAIR_MADE, err);
        }
        if (status == PLASMON_OK) {
            status = check_text(report->text, WIRE_TEXT_BYTES_MAX, "text", err);
        }
        if (status != PLASMON_OK) {
            return check_below(err, status, "pairs", (long)i);
        }
    }
    return status;
}

static plasmon_status_t check_worker_data(const Plasmon__V1__WorkerFrame *frame,
                                          struct pl_err *err)
{
    plasmon_status_t status = check_count(frame->n_data, WIRE_RANGES_MAX, "data", err);

    for (size_t i = 0; status == PLASMON_OK && i < frame->n_data; i++) {
        status = check_bytes(&frame->data[i]->bytes, WIRE_DATA_BYTES_MAX, "bytes", err);
        if (status == PLASMON_OK) {
            status = check_text(frame->data[i]->text, WIRE_TEXT_BYTES_MAX, "text", err);
        }
        if (status != PLASMON_OK) {
            return check_below(err, status, "data", (long)i);
        }
    }
    return status;
}

plasmon_status_t check_span_batches(size_t count, Plasmon__V1__SpanBatch *const *batches,
                                    struct pl_err *err)
{
    plasmon_status_t status = check_count(count, WIRE_RANGES_MAX, "spans", err);

    for (size_t i = 0; status == PLASMON_OK && i < count; i++) {
        const Plasmon__V1__SpanBatch *batch = batches[i];

        status = batch->device >= WIRE_DEVICES_MAX
                     ? pl_err_set(err, PLASMON_EMALFORMED, "device %u", batch->device)
                     : check_count(batch->n_spans, WIRE_RANGES_MAX, "spans", err);
        for (size_t k = 0; status == PLASMON_OK && k < batch->n_spans; k++) {
            const Plasmon__V1__Span *span = batch->spans[k];

            status = check_name(span->name, WIRE_NAME_BYTES_MAX, "name", err);
            if (status == PLASMON_OK) {
                status = check_name(span->label, WIRE_LABEL_BYTES_MAX, "label", err);
            }
        }
        if (status != PLASMON_OK) {
            return check_below(err, status, "spans", (long)i);
        }
    }
    return status;
}

static plasmon_status_t check_condemned(const Plasmon__V1__WorkerFrame *frame,
                                        struct pl_err *err)
{
    plasmon_status_t status =
        check_count(frame->n_condemned, WIRE_RANGES_MAX, "condemned", err);

    for (size_t i = 0; status == PLASMON_OK && i < frame->n_condemned; i++) {
        const Plasmon__V1__Condemned *condemned = frame->condemned[i];

        status =
            condemned->status >= 0
                ? pl_err_set(err, PLASMON_EMALFORMED, "its status is %d", condemned->status)
                : check_text(condemned->text, WIRE_TEXT_BYTES_MAX, "text", err);
        if (status != PLASMON_OK) {
            return check_below(err, status, "condemned", (long)i);
        }
    }
    return status;
}

static plasmon_status_t check_pairs(const Plasmon__V1__WorkerStats *stats,
                                    struct pl_err *err)
{
    plasmon_status_t status =
        check_count(stats->n_pairs, WIRE_DEVICES_MAX * 8u, "pairs", err);

    for (size_t i = 0; status == PLASMON_OK && i < stats->n_pairs; i++) {
        const Plasmon__V1__PairStats *pair = stats->pairs[i];

        if (pair->route >= 8 || pair->from >= WIRE_DEVICES_MAX ||
            pair->to >= WIRE_DEVICES_MAX) {
            status = pl_err_set(err, PLASMON_EMALFORMED,
                                "pair %zu: route %u from device %u to %u", i, pair->route,
                                pair->from, pair->to);
        } else {
            status =
                check_text(pair->unreached_why, WIRE_TEXT_BYTES_MAX, "unreached why", err);
        }
    }
    return status;
}

static plasmon_status_t check_numa(const Plasmon__V1__NumaPlace *numa, struct pl_err *err)
{
    if (numa->node > INT32_MAX || numa->near > numa->processors ||
        numa->pages_near > numa->pages) {
        return pl_err_set(err, PLASMON_EMALFORMED,
                          "NUMA node %u: %u of %u processors, %u of %u pages", numa->node,
                          numa->near, numa->processors, numa->pages_near, numa->pages);
    }
    return PLASMON_OK;
}

static plasmon_status_t check_left(const Plasmon__V1__CommsLeft *left, struct pl_err *err)
{
    if (left->freeing > left->communicators) {
        return pl_err_set(err, PLASMON_EMALFORMED,
                          "%u of %u communicators that are left are being freed",
                          left->freeing, left->communicators);
    }
    return PLASMON_OK;
}

static plasmon_status_t check_times(Plasmon__V1__Histogram *const *times, size_t count,
                                    size_t most, const char *what, struct pl_err *err)
{
    plasmon_status_t status = check_count(count, most, what, err);

    for (size_t i = 0; status == PLASMON_OK && i < count; i++) {
        status = check_histogram(times[i], err);
        if (status != PLASMON_OK) {
            return check_below(err, status, what, (long)i);
        }
    }
    return status;
}

static plasmon_status_t check_waits(const Plasmon__V1__WorkerStats *stats,
                                    struct pl_err *err)
{
    plasmon_status_t status =
        check_count(stats->n_waits, WIRE_SCALARS_MAX, "stats: waits", err);

    for (size_t i = 0; status == PLASMON_OK && i < stats->n_waits; i++) {
        const Plasmon__V1__LaunchWait *wait = stats->waits[i];

        if ((unsigned)wait->why > PLASMON__V1__WAIT_WHY__WAIT_STORE) {
            status = pl_err_set(err, PLASMON_EMALFORMED, "it waits for reason %d",
                                (int)wait->why);
        }
        if (status == PLASMON_OK) {
            status = check_name(wait->function, WIRE_NAME_BYTES_MAX, "function", err);
        }
        if (status == PLASMON_OK) {
            status = check_name(wait->label, WIRE_LABEL_BYTES_MAX, "label", err);
        }
        if (status == PLASMON_OK) {
            status = check_text(wait->text, WIRE_TEXT_BYTES_MAX, "text", err);
        }
        if (status != PLASMON_OK) {
            return check_below(err, status, "waits", (long)i);
        }
    }
    return status;
}

plasmon_status_t check_worker_frame(const Plasmon__V1__WorkerFrame *frame,
                                    struct pl_err *err)
{
    plasmon_status_t status = check_header(frame->header, err);

    if (status == PLASMON_OK && frame->hello != NULL) {
        status = check_worker_hello(frame->hello, err);
        if (status != PLASMON_OK) {
            return check_below(err, status, "hello", -1);
        }
    }
    if (status == PLASMON_OK) {
        status = check_ranges(frame->n_done, frame->done, "done", err);
    }
    if (status == PLASMON_OK) {
        status = check_count(frame->n_failed, WIRE_RANGES_MAX, "failures", err);
    }
    for (size_t i = 0; status == PLASMON_OK && i < frame->n_failed; i++) {
        status =
            check_text(frame->failed[i]->text, WIRE_TEXT_BYTES_MAX, "failed text", err);
    }
    if (status == PLASMON_OK) {
        status = check_count(frame->n_functions, WIRE_RANGES_MAX, "functions", err);
    }
    for (size_t i = 0; status == PLASMON_OK && i < frame->n_functions; i++) {
        status = check_text(frame->functions[i]->text, WIRE_TEXT_BYTES_MAX,
                            "functions text", err);
    }
    if (status == PLASMON_OK) {
        status = check_count(frame->n_starved, WIRE_RANGES_MAX, "starved", err);
    }
    if (status == PLASMON_OK) {
        status = check_condemned(frame, err);
    }
    if (status == PLASMON_OK) {
        status = check_span_batches(frame->n_spans, frame->spans, err);
    }
    if (status == PLASMON_OK) {
        status = check_worker_data(frame, err);
    }
    if (status == PLASMON_OK) {
        status = check_pair_reports(frame, err);
    }
    if (status == PLASMON_OK && frame->stats != NULL) {
        status = check_count(frame->stats->n_routes, WIRE_SCALARS_MAX, "routes", err);
    }
    if (status == PLASMON_OK && frame->stats != NULL) {
        status = check_pairs(frame->stats, err);
    }
    if (status == PLASMON_OK && frame->stats != NULL) {
        status = check_waits(frame->stats, err);
    }
    if (status == PLASMON_OK && frame->stats != NULL && frame->stats->numa != NULL) {
        status = check_numa(frame->stats->numa, err);
    }
    if (status == PLASMON_OK && frame->stats != NULL && frame->stats->left != NULL) {
        status = check_left(frame->stats->left, err);
    }
    if (status == PLASMON_OK && frame->stats != NULL) {
        status = check_times(frame->stats->transfers, frame->stats->n_transfers, 8,
                             "transfers", err);
    }
    if (status == PLASMON_OK && frame->stats != NULL) {
        status = check_times(frame->stats->queue, frame->stats->n_queue, 1 + WIRE_WAIT_WHYS,
                             "times of a queue", err);
    }
    return status;
}

/* ----------------------------------------------------------------------- store <-> head */

static plasmon_status_t check_node_hello(const Plasmon__V1__NodeHello *hello,
                                         struct pl_err *err)
{
    plasmon_status_t status =
        check_bytes(&hello->token, WIRE_TOKEN_BYTES_MAX, "token", err);

    if (status == PLASMON_OK) {
        status = check_name(hello->host, WIRE_NAME_BYTES_MAX, "host", err);
    }
    if (status == PLASMON_OK) {
        status = check_name(hello->node, WIRE_NAME_BYTES_MAX, "node", err);
    }
    if (status == PLASMON_OK) {
        status = check_name(hello->store_socket, WIRE_NAME_BYTES_MAX, "store_socket", err);
    }
    if (status == PLASMON_OK && (hello->spill_memory > WIRE_SPILL_BYTES_MAX ||
                                 hello->spill_files > WIRE_SPILL_BYTES_MAX)) {
        status = pl_err_set(err, PLASMON_EMALFORMED, "spill_memory %llu, spill_files %llu",
                            (unsigned long long)hello->spill_memory,
                            (unsigned long long)hello->spill_files);
    }
    if (status == PLASMON_OK && hello->spill_write_back > 100) {
        status = pl_err_set(err, PLASMON_EMALFORMED,
                            "spill_write_back is %u; it is a percentage",
                            hello->spill_write_back);
    }
    if (status == PLASMON_OK && hello->devices > WIRE_HOST_DEVICES_MAX) {
        status = pl_err_set(err, PLASMON_EMALFORMED, "%u devices; a host has at most %u",
                            hello->devices, WIRE_HOST_DEVICES_MAX);
    }
    return status == PLASMON_OK ? check_memory(hello->memory, err) : status;
}

plasmon_status_t check_node_frame(const Plasmon__V1__NodeFrame *frame, struct pl_err *err)
{
    plasmon_status_t status = check_header(frame->header, err);

    if (status == PLASMON_OK && frame->hello != NULL) {
        status = check_node_hello(frame->hello, err);
        if (status != PLASMON_OK) {
            return check_below(err, status, "hello", -1);
        }
    }
    if (status == PLASMON_OK) {
        status = check_count(frame->n_down, WIRE_RANGES_MAX, "workers down", err);
    }
    for (size_t i = 0; status == PLASMON_OK && i < frame->n_down; i++) {
        status = check_text(frame->down[i]->text, WIRE_TEXT_BYTES_MAX, "down text", err);
        if (status == PLASMON_OK && frame->down[i]->host_device >= WIRE_DEVICES_MAX) {
            status = pl_err_set(err, PLASMON_EMALFORMED, "down: device %u",
                                frame->down[i]->host_device);
        }
    }
    if (status == PLASMON_OK) {
        status = check_count(frame->n_spill_done, WIRE_RANGES_MAX, "spill results", err);
    }
    for (size_t i = 0; status == PLASMON_OK && i < frame->n_spill_done; i++) {
        status =
            check_text(frame->spill_done[i]->text, WIRE_TEXT_BYTES_MAX, "spill text", err);
    }
    return status;
}

static plasmon_status_t check_spill_op(const Plasmon__V1__SpillOp *op, struct pl_err *err)
{
    if (op->id == 0 || op->kind == 0 || op->kind > WIRE_SPILL_KIND_MAX ||
        op->offset > WIRE_SPILL_BYTES_MAX || op->bytes > WIRE_SPILL_BYTES_MAX) {
        return pl_err_set(err, PLASMON_EMALFORMED,
                          "spill %llu: kind %u, offset %llu, %llu bytes",
                          (unsigned long long)op->id, op->kind,
                          (unsigned long long)op->offset, (unsigned long long)op->bytes);
    }
    return PLASMON_OK;
}

plasmon_status_t check_node_command(const Plasmon__V1__NodeCommand *command,
                                    struct pl_err *err)
{
    plasmon_status_t status = check_header(command->header, err);

    if (status == PLASMON_OK && command->left != NULL) {
        status = check_text(command->left->text, WIRE_TEXT_BYTES_MAX, "left", err);
    }
    if (status == PLASMON_OK && command->welcome != NULL) {
        status = check_name(command->welcome->cluster, WIRE_NAME_BYTES_MAX, "cluster", err);
    }
    if (status == PLASMON_OK) {
        status = check_count(command->n_fence, WIRE_DEVICES_MAX, "devices to fence", err);
    }
    if (status == PLASMON_OK && command->n_fence_incarnation != 0 &&
        command->n_fence_incarnation != command->n_fence) {
        status =
            pl_err_set(err, PLASMON_EMALFORMED, "%zu devices to fence, %zu incarnations",
                       command->n_fence, command->n_fence_incarnation);
    }
    if (status == PLASMON_OK) {
        status = check_count(command->n_spill, WIRE_RANGES_MAX, "things to spill", err);
    }
    for (size_t i = 0; status == PLASMON_OK && i < command->n_spill; i++) {
        status = check_spill_op(command->spill[i], err);
    }
    return status;
}
