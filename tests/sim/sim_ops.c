/*
 * What the worker's core asks of its device, as ops in simulated streams. Enqueuing copies
 * everything that the op needs; the effect comes when the stream gets there.
 *
 * The host route: a slab of slots at the receiver, one chunk a transfer here (everything is small).
 * The sender waits until its slot is free, the receiver until its chunk has come. After a restart a
 * half comes again, and does only what the words do not show as done.
 */
#include "tests/sim/sim.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "tests/harness/test.h"

/* ---------------------------------------------------------------------------- enqueuing */

static struct sim_worker *peer_of(struct sim_worker *worker, uint32_t host_device)
{
    struct sim *sim = worker->sim;

    PL_CHECK(host_device < sim->config.devices + sim->ghost_count);
    return host_device < sim->config.devices
               ? &sim->workers[host_device]
               : &sim->ghosts[host_device - sim->config.devices];
}

static plasmon_status_t op_grow(void *user, uint32_t pool, uint64_t bytes)
{
    return sim_growth_begin(user, pool, bytes);
}

static plasmon_status_t op_wait(void *user, uint32_t stream, uint32_t host_device,
                                uint64_t *word, uint64_t value)
{
    uint32_t on       = stream == WORKER_STREAM_ALONE ? SIM_STREAMS - 1 : stream;
    struct sim_op *op = sim_op_add(user, on, SIM_OP_WAIT);

    op->word  = word;
    op->value = value;
    op->other = host_device;
    sim_op_start(user, on);
    return PLASMON_OK;
}

/* Behind the first `count` ops that went into the other stream. */
static plasmon_status_t join(struct sim_worker *worker, uint32_t stream, uint32_t other,
                             uint64_t count)
{
    struct sim_op *op = sim_op_add(worker, stream, SIM_OP_JOIN);

    op->other = other;
    op->value = count;
    sim_stream_flush(worker, other);
    sim_op_start(worker, stream);
    return PLASMON_OK;
}

void sim_op_join(struct sim_worker *worker, uint32_t stream, uint32_t other)
{
    (void)join(worker, stream, other, worker->streams[other].enqueued); /* it never fails */
}

static plasmon_status_t op_join(void *user, uint32_t stream, uint32_t other)
{
    sim_op_join(user, stream, other);
    return PLASMON_OK;
}

static plasmon_status_t op_mark(void *user, uint32_t stream, uint32_t slot)
{
    struct sim_stream *mine = &((struct sim_worker *)user)->streams[stream];

    mine->marks[slot] = mine->enqueued;
    sim_stream_flush(user, stream);
    return PLASMON_OK;
}

static plasmon_status_t op_join_mark(void *user, uint32_t stream, uint32_t other,
                                     uint32_t slot)
{
    struct sim_worker *worker = user;

    return join(worker, stream, other, worker->streams[other].marks[slot]);
}

static plasmon_status_t op_settle(void *user, uint32_t stream)
{
    (void)sim_op_add(user, stream, SIM_OP_SETTLE);
    sim_op_start(user, stream);
    return PLASMON_OK;
}

/*
 * Who copies, the other device's engines or ours, changes now and then. What was put in elsewhere
 * is over first, words and all.
 */
static plasmon_status_t op_source(void *user, uint32_t stream, uint32_t host_device,
                                  uint64_t bytes, uint64_t seq)
{
    struct sim_worker *worker = user;
    struct sim_stream *mine   = &worker->streams[stream];
    uint32_t from;

    (void)bytes;
    (void)seq;
    mine->leaves ^= test_random(&worker->sim->late_random) % 32 == 0;
    from = mine->leaves ? host_device : worker->host_device;
    if (from != mine->from && mine->from != worker->host_device) {
        (void)op_settle(worker, stream);
    }
    mine->from = from;
    return PLASMON_OK;
}

static bool op_words_late(void *user, uint32_t stream)
{
    const struct sim_worker *worker = user;

    return worker->streams[stream].from != worker->host_device;
}

static plasmon_status_t op_copy(void *user, uint32_t stream, const struct pl_box *box,
                                uint32_t element_bytes, uint64_t dst_offset,
                                const struct pl_box *dst_frame, uint32_t src_host_device,
                                uint64_t src_offset, const struct pl_box *src_frame,
                                uint64_t seq)
{
    struct sim_worker *worker = user;
    struct sim_op *op         = sim_op_add(worker, stream, SIM_OP_COPY);

    op->tag           = seq;
    op->box           = *box;
    op->dst_frame     = *dst_frame;
    op->src_frame     = *src_frame;
    op->element_bytes = element_bytes;
    op->dst_offset    = dst_offset;
    op->src_offset    = src_offset;
    op->src           = peer_of(worker, src_host_device);
    if (op->src != worker && (!worker->sim->config.peer_capable ||
                              worker->sim->config.transfer == HEAD_TRANSFER_HOST ||
                              worker->sim->config.transfer == HEAD_TRANSFER_NCCL)) {
        sim_fail(worker->sim, "device %u copies from device %u, which it cannot map",
                 worker->host_device, src_host_device);
    }
    sim_op_touch(op, worker, dst_offset);
    sim_op_touch(op, op->src, src_offset);
    sim_op_start(worker, stream);
    return PLASMON_OK;
}

void sim_stage(struct sim_worker *worker, uint32_t stream, enum sim_op_kind kind,
               uint32_t other, uint64_t first_chunk, const struct sim_touch *touch,
               uint64_t bytes)
{
    struct sim_op *op = sim_op_add(worker, stream, kind);

    PL_CHECK(bytes <= SIM_STAGE_BYTES_MAX);
    op->src         = peer_of(worker, other);
    op->first_chunk = first_chunk;
    op->enqueued_ns = worker->sim->now_ns;
    op->bytes       = bytes;
    op->nowhere     = touch == NULL;
    if (touch != NULL) {
        op->dst_offset                 = touch->offset;
        op->touches[op->touch_count++] = *touch;
    }
    sim_op_start(worker, stream);
}

static plasmon_status_t stage(struct sim_worker *worker, uint32_t stream,
                              enum sim_op_kind kind, uint32_t other, uint64_t first_chunk,
                              uint64_t offset, uint64_t bytes)
{
    struct sim_touch touch = sim_touch_of(worker, offset);

    sim_stage(worker, stream, kind, other, first_chunk,
              offset == WORKER_NOWHERE ? NULL : &touch, bytes);
    return PLASMON_OK;
}

static plasmon_status_t op_stage_send(void *user, uint32_t stream, uint32_t to,
                                      uint64_t first_chunk, uint64_t offset, uint64_t bytes)
{
    return stage(user, stream, SIM_OP_SEND, to, first_chunk, offset, bytes);
}

static plasmon_status_t op_stage_recv(void *user, uint32_t stream, uint32_t from,
                                      uint64_t first_chunk, uint64_t offset, uint64_t bytes)
{
    return stage(user, stream, SIM_OP_RECV, from, first_chunk, offset, bytes);
}

static plasmon_status_t op_put(void *user, uint32_t stream, uint64_t dst_offset,
                               const uint8_t *bytes, uint64_t length)
{
    struct sim_op *op = sim_op_add(user, stream, SIM_OP_PUT);

    op->data = sim_alloc(length);
    memcpy(op->data, bytes, length);
    op->bytes      = length;
    op->dst_offset = dst_offset;
    sim_op_touch(op, user, dst_offset);
    sim_op_start(user, stream);
    return PLASMON_OK;
}

static plasmon_status_t op_read(void *user, uint32_t stream, uint64_t src_offset,
                                uint64_t length, uint64_t request)
{
    struct sim_op *op = sim_op_add(user, stream, SIM_OP_READ);

    op->src_offset = src_offset;
    op->bytes      = length;
    op->request    = request;
    sim_op_touch(op, user, src_offset);
    sim_op_start(user, stream);
    return PLASMON_OK;
}

/* The bytes move when the copy runs, as they do on a device, and not when it is enqueued. */
static plasmon_status_t host_copy(struct sim_worker *worker, uint32_t stream,
                                  enum sim_op_kind kind, uint64_t offset,
                                  uint64_t host_buffer, uint64_t host_offset,
                                  uint64_t length)
{
    struct sim_op *op = sim_op_add(worker, stream, kind);

    op->host        = (struct sim_host *)(uintptr_t)host_buffer;
    op->bytes       = length;
    op->dst_offset  = offset;
    op->src_offset  = offset;
    op->host_offset = host_offset;
    if (op->host->slab ? host_offset + length > op->host->bytes
                       : host_offset != 0 || length != op->host->bytes) {
        sim_fail(worker->sim, "a copy of %llu bytes at %llu of %llu of host memory",
                 (unsigned long long)length, (unsigned long long)host_offset,
                 (unsigned long long)op->host->bytes);
    }
    sim_op_touch(op, worker, offset);
    sim_op_start(worker, stream);
    return PLASMON_OK;
}

static plasmon_status_t op_put_host(void *user, uint32_t stream, uint64_t dst_offset,
                                    uint64_t host_buffer, uint64_t host_offset,
                                    uint64_t length, struct pl_err *err)
{
    (void)err;
    return host_copy(user, stream, SIM_OP_PUT, dst_offset, host_buffer, host_offset,
                     length);
}

static plasmon_status_t op_get_host(void *user, uint32_t stream, uint64_t src_offset,
                                    uint64_t host_buffer, uint64_t host_offset,
                                    uint64_t length, struct pl_err *err)
{
    (void)err;
    return host_copy(user, stream, SIM_OP_READ, src_offset, host_buffer, host_offset,
                     length);
}

static bool op_host_ready(void *user, uint64_t host_buffer, uint64_t host_offset,
                          uint64_t length)
{
    (void)host_buffer;
    (void)host_offset;
    (void)length;
    return sim_worker_locked(user);
}

/* Some functions want scratch here, so that it is allocated, scribbled over and freed. */
static uint64_t op_scratch_bytes(void *user, const struct kernel_function *function,
                                 const struct kernel_arg *args, uint32_t arg_count,
                                 const union kernel_scalar *scalars, uint32_t scalar_count)
{
    (void)user;
    (void)args;
    (void)scalars;
    (void)scalar_count;
    return strcmp(function->name, "sum") == 0 || strcmp(function->name, "copy") == 0
               ? 300 * arg_count
               : 0;
}

/* Half of all clusters have GPUs that keep launches of functions (device_launch_soon()). */
static bool sim_keeps(const struct sim_worker *worker, uint32_t stream)
{
    uint32_t run = worker->sim->config.run_streams;

    return worker->sim->config.seed % 2 == 0 &&
           (stream < run || stream >= run + WORKER_ROLE_STREAMS);
}

static plasmon_status_t op_run(void *user, uint32_t stream,
                               const struct kernel_function *function,
                               const struct kernel_arg *args, uint32_t arg_count,
                               const union kernel_scalar *scalars, uint32_t scalar_count,
                               uint64_t scratch_offset, uint64_t scratch_bytes,
                               uint64_t tag, struct pl_err *err)
{
    struct sim_op *op = sim_op_add(user, stream, SIM_OP_RUN);

    (void)err;
    PL_CHECK(scalar_count <= KERNEL_SCALARS_MAX);
    op->function       = function;
    op->args           = sim_alloc((arg_count + 1) * sizeof(*args));
    op->arg_count      = arg_count;
    op->scalar_count   = scalar_count;
    op->scratch_offset = scratch_offset;
    op->scratch_bytes  = scratch_bytes;
    op->tag            = tag;
    if (arg_count > 0) {
        memcpy(op->args, args, arg_count * sizeof(*args));
    }
    if (scalar_count > 0) {
        memcpy(op->scalars, scalars, scalar_count * sizeof(*scalars));
    }
    for (uint32_t i = 0; i < arg_count; i++) {
        sim_op_touch(op, user, args[i].data.addr);
    }
    if (scratch_bytes > 0) {
        sim_op_touch(op, user, scratch_offset);
    }
    if (sim_keeps(user, stream)) {
        sim_op_keep(user, stream);
    } else {
        sim_op_start(user, stream);
    }
    return PLASMON_OK;
}

/*
 * Reads where its arguments are when it runs, as a device does. Addresses are distances from our
 * own arena.
 */
static plasmon_status_t op_combine(void *user, uint32_t stream,
                                   const struct kernel_function *function,
                                   const struct kernel_arg *args,
                                   const struct worker_source *sources, uint32_t arg_count,
                                   const union kernel_scalar *scalars,
                                   uint32_t scalar_count, uint64_t tag, struct pl_err *err)
{
    struct sim_worker *worker = user;
    uint32_t on               = stream == WORKER_STREAM_ALONE ? SIM_STREAMS - 1 : stream;
    struct sim_op *op         = sim_op_add(worker, on, SIM_OP_RUN);

    (void)err;
    PL_CHECK(scalar_count <= KERNEL_SCALARS_MAX);
    op->function     = function;
    op->args         = sim_alloc(arg_count * sizeof(*args));
    op->arg_count    = arg_count;
    op->scalar_count = scalar_count;
    op->tag          = tag;
    worker->sim->combined++;
    worker->sim->alone += on != stream;
    memcpy(op->scalars, scalars, scalar_count * sizeof(*scalars));
    for (uint32_t i = 0; i < arg_count; i++) {
        struct sim_worker *owner = peer_of(worker, sources[i].host_device);

        op->args[i]           = args[i];
        op->args[i].data.addr = args[i].data.addr + sources[i].offset +
                                (uint64_t)(uintptr_t)owner->arena -
                                (uint64_t)(uintptr_t)worker->arena;
        if (owner == worker && on != stream) {
            op->touches[op->touch_count++] = *sim_pairs_part(worker, tag, i > 0);
        } else {
            sim_op_touch(op, owner, sources[i].offset);
        }
        if (owner != worker && (i == 0 || !worker->sim->config.peer_capable ||
                                worker->sim->config.transfer == HEAD_TRANSFER_HOST ||
                                worker->sim->config.transfer == HEAD_TRANSFER_NCCL)) {
            sim_fail(worker->sim, "device %u reaches into device %u, which it cannot map",
                     worker->host_device, sources[i].host_device);
        }
    }
    sim_op_start(worker, on);
    return PLASMON_OK;
}

static plasmon_status_t op_fill_identity(void *user, uint32_t stream,
                                         const struct kernel_arg *arg, uint64_t tag)
{
    struct sim_op *op = sim_op_add(user, stream, SIM_OP_IDENTITY);

    op->args      = sim_alloc(sizeof(*arg));
    *op->args     = *arg;
    op->arg_count = 1;
    op->tag       = tag;
    sim_op_touch(op, user, arg->data.addr);
    sim_op_start(user, stream);
    return PLASMON_OK;
}

static plasmon_status_t op_begin(void *user, uint32_t stream, uint64_t seq)
{
    struct sim_worker *worker = user;
    struct sim_op *op         = sim_op_add(worker, stream, SIM_OP_SIGNAL);

    op->word  = &worker->timeline->begun[stream].value;
    op->value = seq;
    op->late  = op_words_late(worker, stream);
    sim_op_start(worker, stream);
    return PLASMON_OK;
}

static void op_flush(void *user, uint32_t stream)
{
    sim_stream_flush(user, stream);
}

static plasmon_status_t op_signal(void *user, uint32_t stream, uint64_t seq)
{
    struct sim_worker *worker = user;
    struct sim_op *op         = sim_op_add(worker, stream, SIM_OP_SIGNAL);

    op->word  = &worker->timeline->stream[stream].value;
    op->value = seq;
    op->late  = op_words_late(worker, stream);
    sim_op_start(worker, stream);
    return PLASMON_OK;
}

/* ------------------------------------------------------------------------------ running */

static struct sim_worker *receiver_of(struct sim_stream *stream, const struct sim_op *op)
{
    return op->kind == SIM_OP_SEND ? op->src : stream->worker;
}

static bool chunk_taken(const struct sim_worker *receiver, uint64_t chunk)
{
    return receiver->timeline->stage_taken.value > chunk;
}

static bool one_host(const struct sim_worker *a, const struct sim_worker *b)
{
    return sim_node_of(a) == sim_node_of(b);
}

/*
 * Between hosts: nobody takes anything of a device that was given up, and nobody is there who would
 * take anything for one. Within a host the bytes go where they went before.
 */
static bool goes_nowhere(const struct sim_worker *sender, const struct sim_worker *receiver)
{
    return receiver->host_device >= sender->sim->config.devices ||
           (sender->given_up && !one_host(sender, receiver));
}

bool sim_op_ready(struct sim_stream *stream, struct sim_op *op)
{
    struct sim_worker *receiver;
    uint64_t slot = op->first_chunk % STORE_STAGE_SLOTS;

    switch (op->kind) {
    case SIM_OP_WAIT:
        return *op->word >= op->value;
    case SIM_OP_JOIN:
        return stream->worker->streams[op->other].completed >= op->value;
    case SIM_OP_SEND:
        receiver = receiver_of(stream, op);
        if (goes_nowhere(stream->worker, receiver)) {
            return true;
        }
        if (sim_ways_hold(stream->worker, receiver, op->first_chunk)) {
            return false;
        }
        return sim_ways_dropped(stream->worker, receiver, op->first_chunk) ||
               (!receiver->blank &&
                (one_host(stream->worker, receiver) || receiver->table->ring_begun != 0) &&
                receiver->timeline->stage_taken.value + STORE_STAGE_SLOTS >
                    op->first_chunk);
    case SIM_OP_RECV:
        receiver = receiver_of(stream, op);
        /* Chunks are taken in order, whoever sends them. */
        return chunk_taken(receiver, op->first_chunk) ||
               (receiver->timeline->stage_ready[slot].value == op->first_chunk + 1 &&
                receiver->timeline->stage_taken.value == op->first_chunk);
    case SIM_OP_SETTLE:
        return pl_list_empty(&stream->words);
    case SIM_OP_MEET:
        return sim_meet_ready(op);
    default:
        return true;
    }
}

static void do_stage(struct sim_stream *stream, const struct sim_op *op)
{
    struct sim_worker *receiver = receiver_of(stream, op);
    uint64_t slot               = op->first_chunk % STORE_STAGE_SLOTS;
    uint8_t *staged             = receiver->slab + slot * SIM_STAGE_BYTES_MAX;

    if ((op->kind == SIM_OP_SEND && (goes_nowhere(stream->worker, receiver) ||
                                     receiver->blank)) || /* its host died just now */
        chunk_taken(receiver, op->first_chunk)) {
        return; /* .. or done before a restart */
    }
    if (op->kind == SIM_OP_SEND) {
        if (sim_ways_dropped(stream->worker, receiver, op->first_chunk)) {
            return;
        }
        sim_ways_moved(stream->worker, receiver);
        if (!op->nowhere) {
            memcpy(staged, stream->worker->arena + op->dst_offset, op->bytes);
        }
        receiver->timeline->stage_ready[slot].value = op->first_chunk + 1;
    } else {
        if (!op->nowhere) {
            memcpy(stream->worker->arena + op->dst_offset, staged, op->bytes);
        }
        receiver->timeline->stage_taken.value = op->first_chunk + 1;
    }
}

static void do_read(struct sim_worker *worker, const struct sim_op *op)
{
    struct sim_read_back *back = pl_vec_push(&worker->data);

    PL_CHECK(back != NULL);
    *back = (struct sim_read_back){
        .request = op->request, .data = sim_alloc(op->bytes), .length = op->bytes};
    memcpy(back->data, worker->arena + op->src_offset, op->bytes);
    if (worker->core != NULL) {
        back->status = worker_core_relieved(worker->core, op->request);
    }
    sim_worker_flush_soon(worker);
}

static void to_host_pointers(const struct sim_worker *worker, const struct sim_op *op)
{
    for (uint32_t i = 0; i < op->arg_count; i++) {
        op->args[i].data.addr += (uint64_t)(uintptr_t)worker->arena;
    }
}

static void do_run(struct sim_worker *worker, const struct sim_op *op)
{
    struct pl_err err = {0};
    plasmon_status_t status;

    if (op->scratch_bytes > 0) {
        sim_memory_noise(worker->sim, worker->arena + op->scratch_offset,
                         op->scratch_bytes);
    }
    to_host_pointers(worker, op);
    status = kernel_run_cpu_now(op->function, op->args, op->arg_count, op->scalars,
                                op->scalar_count, &err);
    worker->launches_run++;
    if (status != PLASMON_OK && worker->core != NULL) {
        sim_memory_enter(worker);
        worker_core_failed(worker->core, op->tag, status, err.text);
        sim_memory_leave();
    }
}

plasmon_status_t sim_fill_identity(const struct kernel_arg *arg)
{
    bool far = arg->reduce_op == KERNEL_MIN || arg->reduce_op == KERNEL_MAX;
    union kernel_scalar value = {.i = arg->reduce_op == KERNEL_PROD};
    struct kernel_arg out     = *arg;
    struct pl_err err         = {0};

    if (far) {
        value.f = arg->reduce_op == KERNEL_MIN ? (double)INFINITY : -(double)INFINITY;
    }
    out.mode = KERNEL_OUT;
    return kernel_run_cpu_now(kernel_by_name(far ? "fill" : "fill_int"), &out, 1, &value, 1,
                              &err);
}

static void do_identity(struct sim_worker *worker, const struct sim_op *op)
{
    to_host_pointers(worker, op);
    if (sim_fill_identity(&op->args[0]) != PLASMON_OK) {
        sim_fail(worker->sim, "no identity of reduction %u for dtype %u",
                 op->args[0].reduce_op, op->args[0].dtype);
    }
}

static void do_host_copy(struct sim_worker *worker, const struct sim_op *op)
{
    if (op->host->over) {
        sim_fail(worker->sim,
                 "device %u copies from or to host memory whose client was told that the "
                 "copy is over",
                 worker->host_device);
    } else if (op->kind == SIM_OP_PUT) {
        memcpy(worker->arena + op->dst_offset, op->host->data + op->host_offset, op->bytes);
    } else {
        memcpy(op->host->data + op->host_offset, worker->arena + op->src_offset, op->bytes);
    }
}

void sim_op_do(struct sim_stream *stream, struct sim_op *op)
{
    struct sim_worker *worker = stream->worker;

    if (op->host != NULL) {
        do_host_copy(worker, op);
        return;
    }
    switch (op->kind) {
    case SIM_OP_WAIT:
    case SIM_OP_JOIN:
        break;
    case SIM_OP_COPY:
        pl_box_copy_host(&op->box, worker->arena + op->dst_offset, &op->dst_frame,
                         op->src->arena + op->src_offset, &op->src_frame,
                         op->element_bytes);
        break;
    case SIM_OP_SEND:
    case SIM_OP_RECV:
        do_stage(stream, op);
        break;
    case SIM_OP_PUT:
        memcpy(worker->arena + op->dst_offset, op->data, op->bytes);
        break;
    case SIM_OP_READ:
        do_read(worker, op);
        break;
    case SIM_OP_RUN:
        do_run(worker, op);
        break;
    case SIM_OP_IDENTITY:
        do_identity(worker, op);
        break;
    case SIM_OP_SIGNAL:
        if (*op->word > op->value) {
            sim_fail(worker->sim,
                     "device %u: the word of stream %u goes back from %llu to %llu",
                     worker->host_device, stream->index, (unsigned long long)*op->word,
                     (unsigned long long)op->value);
        }
        *op->word = op->value;
        if (stream->index >= STORE_STREAM_MAX || sim_pairs_word(worker, op->word)) {
            sim_pairs_look_soon(worker);
            break;
        }
        if (op->word == &worker->timeline->begun[stream->index].value) {
            stream->begun_ns = worker->sim->now_ns;
            sim_begun_reached(worker, op->value);
        }
        sim_worker_wake(worker);
        break;
    case SIM_OP_SETTLE:
        break;
    case SIM_OP_MEET:
        sim_meet_do(worker, op);
        break;
    }
}

void sim_op_describe(const struct sim_op *op, struct pl_str *out)
{
    static const char *const names[] = {"wait",     "join",   "copy",   "send",
                                        "recv",     "put",    "read",   "run",
                                        "identity", "signal", "settle", "meet"};

    pl_str_append(out, "%s", names[op->kind]);
    switch (op->kind) {
    case SIM_OP_WAIT:
        pl_str_append(out, " for device %u: word %llu, wanted %llu", op->other,
                      (unsigned long long)*op->word, (unsigned long long)op->value);
        break;
    case SIM_OP_JOIN:
        pl_str_append(out, " with stream %u up to op %llu", op->other,
                      (unsigned long long)op->value);
        break;
    case SIM_OP_SEND:
    case SIM_OP_RECV:
        pl_str_append(out, " chunk %llu, device %u", (unsigned long long)op->first_chunk,
                      op->src->host_device);
        if (op->kind == SIM_OP_SEND) {
            pl_str_append(out, ", which took %llu",
                          (unsigned long long)op->src->timeline->stage_taken.value);
        }
        break;
    case SIM_OP_RUN:
        pl_str_append(out, " %s, launch %llu:", op->function->name,
                      (unsigned long long)op->tag);
        for (uint32_t i = 0; i < op->arg_count; i++) {
            pl_str_append(out, " %llu", (unsigned long long)op->args[i].data.addr);
        }
        break;
    case SIM_OP_SIGNAL:
        pl_str_append(out, " %llu", (unsigned long long)op->value);
        break;
    case SIM_OP_MEET:
        pl_str_append(out, ", %s %llu of its communicator, %llu bytes at %llu",
                      op->receives ? "receive" : "send", (unsigned long long)op->index,
                      (unsigned long long)op->bytes, (unsigned long long)op->dst_offset);
        break;
    default:
        pl_str_append(out, " to %llu from %llu, launch %llu",
                      (unsigned long long)op->dst_offset,
                      (unsigned long long)op->src_offset, (unsigned long long)op->tag);
        break;
    }
}

/* ------------------------------------------------------------------------------ reports */

static void op_wake(void *user, uint64_t *word)
{
    struct sim_worker *worker = user;

    (void)word;
    sim_worker_wake(worker);
    sim_streams_kick(worker->sim);
}

static void op_ring_doorbells(void *user)
{
    struct sim_worker *worker = user;

    for (uint32_t i = 0; i < worker->sim->config.devices; i++) {
        if (i != worker->host_device) {
            sim_worker_doorbell(&worker->sim->workers[i]);
        }
    }
}

static void op_report_done(void *user, uint64_t first, uint64_t count)
{
    struct sim_worker *worker = user;

    for (uint64_t seq = first; seq < first + count; seq++) {
        PL_CHECK(wire_ranges_add(&worker->done, seq) == PLASMON_OK);
    }
    sim_worker_flush_soon(worker);
}

static void op_report_failed(void *user, uint64_t seq, plasmon_status_t status,
                             const char *text)
{
    struct sim_worker *worker = user;
    struct sim_report *report = pl_vec_push(&worker->failed);

    PL_CHECK(report != NULL);
    sim_sealed_check_failed(worker, seq);
    *report = (struct sim_report){.seq = seq, .status = status, .text = pl_strdup(text)};
    PL_CHECK(report->text != NULL);
    sim_worker_flush_soon(worker);
}

static void op_report_starved(void *user, uint64_t seq, uint64_t bytes,
                              uint64_t largest_hole)
{
    struct sim_worker *worker = user;
    struct sim_report *report = pl_vec_push(&worker->starved);

    PL_CHECK(report != NULL);
    *report = (struct sim_report){.seq = seq, .bytes = bytes, .hole = largest_hole};
    worker->starvations++;
    sim_worker_flush_soon(worker);
}

static void op_report_refused(void *user, uint64_t request, plasmon_status_t status,
                              const uint64_t *buffers, size_t count)
{
    struct sim_worker *worker  = user;
    struct sim_read_back *back = pl_vec_push(&worker->data);

    PL_CHECK(back != NULL);
    *back = (struct sim_read_back){.request = request,
                                   .status  = status,
                                   .data    = sim_alloc(count * sizeof(*buffers) + 1),
                                   .length  = count * sizeof(*buffers)};
    if (count > 0) {
        memcpy(back->data, buffers, back->length);
    }
    sim_worker_flush_soon(worker);
}

static void op_report_condemned(void *user, const struct worker_condemned *condemned)
{
    struct sim_worker *worker = user;
    struct sim_report *report = pl_vec_push(&worker->condemned);

    PL_CHECK(report != NULL);
    *report = (struct sim_report){.seq    = condemned->seq,
                                  .status = condemned->status,
                                  .text   = pl_strdup(condemned->text),
                                  .fence  = condemned->fence};
    PL_CHECK(report->text != NULL);
    sim_limits_condemned(worker, condemned);
    sim_worker_flush_soon(worker);
}

static void op_report_pair(void *user, const struct worker_pair_report *report)
{
    struct sim_worker *worker     = user;
    struct sim_pair_report *place = pl_vec_push(&worker->pair_reports);

    PL_CHECK(place != NULL);
    *place = (struct sim_pair_report){.report = *report};
    if (report->id != NULL) {
        memcpy(place->id, report->id, sizeof(place->id));
    }
    if (report->text != NULL) {
        (void)snprintf(place->text, sizeof(place->text), "%s", report->text);
    }
    sim_worker_flush_soon(worker);
}

const struct worker_ops sim_worker_ops = {
    .grow             = op_grow,
    .wait             = op_wait,
    .join             = op_join,
    .mark             = op_mark,
    .join_mark        = op_join_mark,
    .source           = op_source,
    .words_late       = op_words_late,
    .settle           = op_settle,
    .copy             = op_copy,
    .stage_send       = op_stage_send,
    .stage_recv       = op_stage_recv,
    .bulk_peer        = sim_ways_op_peer,
    .bulk_gone        = sim_ways_op_gone,
    .bulk_give_up     = sim_ways_op_give_up,
    .bulk_expect      = sim_ways_op_expect,
    .pair_open        = sim_pair_op_open,
    .pair_close       = sim_pair_op_close,
    .pair_break       = sim_pair_op_break,
    .pair_abort       = sim_pair_op_abort,
    .pair_free        = sim_pair_op_free,
    .pair_room        = sim_pair_op_room,
    .pair_settled     = sim_pair_op_settled,
    .pair_move        = sim_pair_op_move,
    .pair_stage       = sim_pair_op_stage,
    .pair_sent        = sim_pair_op_sent,
    .report_pair      = op_report_pair,
    .put              = op_put,
    .read             = op_read,
    .put_host         = op_put_host,
    .get_host         = op_get_host,
    .host_ready       = op_host_ready,
    .scratch_bytes    = op_scratch_bytes,
    .run              = op_run,
    .combine          = op_combine,
    .fill_identity    = op_fill_identity,
    .begin            = op_begin,
    .signal           = op_signal,
    .flush            = op_flush,
    .wake             = op_wake,
    .ring_doorbells   = op_ring_doorbells,
    .report_done      = op_report_done,
    .report_failed    = op_report_failed,
    .report_starved   = op_report_starved,
    .report_refused   = op_report_refused,
    .report_condemned = op_report_condemned,
};
