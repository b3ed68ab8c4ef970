/*
 * What a worker is told of a launch: encoded once, when it has its number and its edges, and kept,
 * because a worker that is restarted is told again. Only head_launch_skip() ever changes it: what
 * will not be run still has its number, waits and makes its memory.
 */
#include "head/graph.h"

struct head_operand head_operand_whole(struct head_buffer *buffer, bool fresh, bool writes)
{
    return (struct head_operand){
        .mode   = writes ? PLASMON__V1__MODE__MODE_OUT : PLASMON__V1__MODE__MODE_IN,
        .buffer = buffer,
        .fresh  = fresh,
        .reads  = !writes,
        .writes = writes,
        .box    = buffer->frame,
        .view   = pl_view_of_box(&buffer->frame),
    };
}

int64_t *head_wire_box(struct wire_arena *arena, const struct pl_box *box, size_t *out_n)
{
    int64_t *numbers = wire_arena_alloc(arena, 2 * PL_DIM_MAX * sizeof(int64_t));

    PL_CHECK(numbers != NULL);
    *out_n = wire_box_put(box, numbers);
    return numbers;
}

int64_t *head_wire_view(struct wire_arena *arena, const struct pl_view *view, size_t *out_n)
{
    int64_t *numbers = wire_arena_alloc(arena, 3 * PL_DIM_MAX * sizeof(int64_t));

    PL_CHECK(numbers != NULL);
    *out_n = wire_view_put(view, numbers);
    return numbers;
}

/* An operand with its lists. */
struct encoded_operand {
    Plasmon__V1__Operand message;
    int64_t frame[2 * PL_DIM_MAX];
    int64_t view[3 * PL_DIM_MAX];
};

static Plasmon__V1__Operand *encode_operand(struct wire_arena *arena,
                                            const struct head_operand *operand)
{
    struct encoded_operand *encoded = wire_arena_alloc(arena, sizeof(*encoded));
    Plasmon__V1__Operand *out;

    PL_CHECK(encoded != NULL);
    out = &encoded->message;
    plasmon__v1__operand__init(out);
    out->mode               = operand->mode;
    out->buffer             = operand->buffer->id;
    out->fresh              = operand->fresh;
    out->consume            = operand->consume;
    out->dtype              = operand->buffer->dtype;
    out->frame              = encoded->frame;
    out->n_frame            = wire_box_put(&operand->buffer->frame, encoded->frame);
    out->view               = encoded->view;
    out->n_view             = wire_view_put(&operand->view, encoded->view);
    out->reduce_op          = operand->reduce_op;
    out->writable_by_client = operand->client_writes;
    out->replica            = operand->buffer->replica;
    if (operand->fresh) {
        head_buffer_tell(operand->buffer);
    }
    return out;
}

static Plasmon__V1__Piece *encode_piece(struct wire_arena *arena,
                                        const struct head_piece *piece)
{
    Plasmon__V1__Piece *out = wire_arena_alloc(arena, sizeof(*out));
    struct pl_box frame     = piece->src->frame;
    struct pl_box box       = piece->box;

    PL_CHECK(out != NULL);
    for (uint32_t i = 0; i < box.ndim; i++) {
        frame.start[i] += piece->shift[i]; /* perhaps below 0 */
        box.start[i] += piece->shift[i];
    }
    plasmon__v1__piece__init(out);
    out->src       = piece->src->id;
    out->src_frame = head_wire_box(arena, &frame, &out->n_src_frame);
    out->box       = head_wire_box(arena, &box, &out->n_box);
    out->operand   = piece->operand;
    return out;
}

static void keep_encoded(struct head_task *task, const Plasmon__V1__Launch *launch)
{
    size_t length;

    head_launch_forget(task);
    task->bytes =
        wire_launch_pack(launch, task->small, sizeof(task->small), head_alloc, &length);
    task->bytes_length = (uint32_t)length;
}

void head_launch_forget(struct head_task *task)
{
    if (task->bytes != task->small) {
        pl_free(task->bytes);
    }
    task->bytes = NULL;
}

void head_launch_settings(const struct head_launch *launch, Plasmon__V1__Launch *out)
{
    out->function = launch->function;
    if (launch->launch_shape != NULL) {
        out->launch_shape   = (uint32_t *)(uintptr_t)launch->launch_shape;
        out->n_launch_shape = WIRE_LAUNCH_SHAPE_COUNT;
    }
    out->scalars   = (uint64_t *)launch->scalars;
    out->n_scalars = launch->scalar_count;
    if (launch->label != NULL) {
        out->label = (char *)launch->label;
    }
}

void head_launch_encode(struct head_core *core, struct head_task *task,
                        const struct head_launch *launch, const uint64_t *after,
                        size_t after_count)
{
    struct wire_arena *arena = &core->arena;
    Plasmon__V1__Launch out  = PLASMON__V1__LAUNCH__INIT;

    wire_arena_reset(arena);
    out.seq   = task->seq;
    out.order = task->order;
    out.kind  = (Plasmon__V1__LaunchKind)launch->kind;
    head_launch_settings(launch, &out);
    if (launch->operand_count > 0) {
        out.operands =
            wire_arena_alloc(arena, launch->operand_count * sizeof(*out.operands));
        PL_CHECK(out.operands != NULL);
        out.n_operands = launch->operand_count;
        for (size_t i = 0; i < launch->operand_count; i++) {
            out.operands[i] = encode_operand(arena, &launch->operands[i]);
        }
    }
    if (launch->piece_count > 0) {
        out.pieces = wire_arena_alloc(arena, launch->piece_count * sizeof(*out.pieces));
        PL_CHECK(out.pieces != NULL);
        out.n_pieces = launch->piece_count;
        for (size_t i = 0; i < launch->piece_count; i++) {
            out.pieces[i] = encode_piece(arena, &launch->pieces[i]);
        }
    }
    out.after         = (uint64_t *)after;
    out.n_after       = after_count;
    out.data.data     = (uint8_t *)launch->data;
    out.data.len      = launch->data_length;
    out.offset        = launch->offset;
    out.length        = launch->length;
    out.host_buffer   = launch->host_buffer;
    out.peer          = launch->peer;
    out.pair          = launch->pair;
    out.team          = launch->team;
    out.ranks         = launch->ranks;
    out.request       = launch->request;
    out.client        = launch->client != NULL ? launch->client->id : 0;
    out.task          = launch->id;
    out.graph         = launch->graph;
    out.set           = (Plasmon__V1__GraphScalar **)launch->set;
    out.n_set         = launch->set_count;
    out.time_limit_ms = launch->time_limit_ms;
    out.priority      = launch->priority;
    if (core->tracing != 0) {
        out.submit_ns = launch->submit_ns;
        out.placed_ns = core->trace_ns;
    }

    keep_encoded(task, &out);
}

void head_launch_place(struct head_core *core, struct head_task *task, uint64_t host_buffer,
                       uint64_t offset)
{
    Plasmon__V1__Launch *out;

    wire_arena_reset(&core->arena);
    out = plasmon__v1__launch__unpack(&core->arena.allocator, task->bytes_length,
                                      task->bytes);
    PL_CHECK(out != NULL);
    out->host_buffer = host_buffer;
    out->offset      = offset;
    keep_encoded(task, out);
    head_memory_count(core, task);
}

void head_launch_copy_from(struct head_core *core, struct head_task *task,
                           const struct head_buffer *buffer)
{
    struct head_piece piece = {.src = (struct head_buffer *)(uintptr_t)buffer,
                               .box = buffer->frame};
    Plasmon__V1__Piece *pieces;
    Plasmon__V1__Launch *out;

    wire_arena_reset(&core->arena);
    out = plasmon__v1__launch__unpack(&core->arena.allocator, task->bytes_length,
                                      task->bytes);
    PL_CHECK(out != NULL && out->n_operands == 1);
    pieces                    = encode_piece(&core->arena, &piece);
    task->kind                = PLASMON__V1__LAUNCH_KIND__LAUNCH_COPY;
    out->kind                 = PLASMON__V1__LAUNCH_KIND__LAUNCH_COPY;
    out->pieces               = &pieces;
    out->n_pieces             = 1;
    out->host_buffer          = 0;
    out->offset               = 0;
    out->operands[0]->replica = task->uses[0].buffer->replica;
    head_buffer_tell(task->uses[0].buffer);
    keep_encoded(task, out);
    head_memory_count(core, task);
}

/*
 * The launch keeps its number, what it waits for (so that "done" goes on meaning that all of that
 * is done) and the memory that it would have made, because later launches may write parts of it in
 * place without depending on what was to be there.
 */
void head_launch_skip(struct head_core *core, struct head_task *task)
{
    Plasmon__V1__Launch *out;
    size_t kept = 0;

    wire_arena_reset(&core->arena);
    out = plasmon__v1__launch__unpack(&core->arena.allocator, task->bytes_length,
                                      task->bytes);
    PL_CHECK(out != NULL);
    for (size_t i = 0; i < out->n_operands; i++) {
        if (out->operands[i]->fresh) {
            /* made, and never sealed */
            out->operands[i]->mode = PLASMON__V1__MODE__MODE_SCRATCH;
            out->operands[kept++]  = out->operands[i];
        }
    }
    out->n_operands  = kept;
    out->n_pieces    = 0;
    out->n_scalars   = 0;
    out->n_set       = 0;
    out->graph       = 0;
    out->pair        = 0;
    out->team        = 0;
    out->data.len    = 0;
    out->host_buffer = 0;
    out->kind        = PLASMON__V1__LAUNCH_KIND__LAUNCH_SKIP;
    task->kind       = PLASMON__V1__LAUNCH_KIND__LAUNCH_SKIP;
    keep_encoded(task, out);
    head_memory_count(core, task);
}
