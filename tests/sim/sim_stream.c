/*
 * In-order streams of a simulated device. Each op starts when the one before it is done and when
 * what it waits for is there, takes a random time, and has its whole effect at the end of it.
 * Streams of one device run side by side, so work that should have been ordered and was not is done
 * in either order, depending on the seed.
 *
 * A device may have fewer queues than streams. Then streams share them, and the ops of a queue
 * start in the order in which they were enqueued: one that waits holds up all behind it, whatever
 * their streams.
 *
 * A stream whose copies another device makes (worker/core.h: source()) goes past its words: each is
 * written some time later, and what follows may be over by then. Joins are behind the words, too.
 *
 * A crash drops what is queued. An op that was running has its effect or not; nobody can tell from outside.
 */
#include "tests/sim/sim.h"

#include "base/alloc.h"
#include "tests/harness/test.h"

enum {
    OP_MIN_NS      = 300,
    OP_MAX_NS      = 30000,
    OP_SLOW_MAX_NS = 800000, /* one in fifty */
    OP_WAIT_MAX_NS = 2000,
    KEPT_MAX       = 5, /* launches; a GPU keeps more */
};

static void stream_kick(struct sim_stream *stream);

void sim_streams_init(struct sim_worker *worker)
{
    for (uint32_t i = 0; i < SIM_STREAMS; i++) {
        struct sim_stream *stream = &worker->streams[i];

        *stream        = (struct sim_stream){.worker = worker, .index = i};
        stream->leaves = test_random(&worker->sim->late_random) % 2 != 0;
        stream->from   = worker->host_device;
        pl_list_init(&stream->ops);
        pl_list_init(&stream->words);
    }
}

static void op_free(struct sim_op *op)
{
    pl_list_remove(&op->link);
    pl_free(op->data);
    pl_free(op->args);
    pl_free(op);
}

static void ops_free(struct pl_list *ops)
{
    while (!pl_list_empty(ops)) {
        op_free(pl_list_first(ops, struct sim_op, link));
    }
}

/*
 * Its owner has joined anew and let go of all it had; who reads there was given up with it, and has
 * not heard of it. What it makes of that is nobody's (sim_hosts.c).
 */
static bool let_go(const struct sim_worker *reader, const struct sim_touch *touch)
{
    return touch->owner != reader && touch->owner->device != touch->device &&
           reader->given_up;
}

/* Is the memory that the op was enqueued for still the same? */
static bool touches_live(struct sim_worker *worker, const struct sim_op *op)
{
    for (uint32_t i = 0; i < op->touch_count; i++) {
        const struct sim_touch *touch = &op->touches[i];

        if (let_go(worker, touch)) {
            continue;
        }
        if (!touch->owner->alive) {
            continue; /* its book is being rebuilt; its memory stands */
        }
        if (!sim_memory_touch(touch->owner, touch->offset, touch->serial)) {
            struct pl_str what;

            pl_str_init(&what);
            sim_op_describe(op, &what);
            sim_fail(worker->sim,
                     "device %u uses memory of device %u at %llu that was freed: %s",
                     worker->host_device, touch->owner->host_device,
                     (unsigned long long)touch->offset, pl_str_text(&what));
            pl_str_finish(&what);
            return false;
        }
    }
    return true;
}

void sim_streams_drop(struct sim_worker *worker, bool half)
{
    for (uint32_t i = 0; i < SIM_STREAMS; i++) {
        struct sim_stream *stream = &worker->streams[i];

        if (half && stream->running && sim_chance(worker->sim, 500) &&
            touches_live(worker, pl_list_first(&stream->ops, struct sim_op, link))) {
            sim_store_writes(worker, pl_list_first(&stream->ops, struct sim_op, link));
            sim_op_do(stream, pl_list_first(&stream->ops, struct sim_op, link));
        }
        while (half && !pl_list_empty(&stream->words) && sim_chance(worker->sim, 500)) {
            sim_op_do(stream, pl_list_first(&stream->words, struct sim_op, link));
            op_free(pl_list_first(&stream->words, struct sim_op, link));
        }
        ops_free(&stream->ops);
        ops_free(&stream->words);
        stream->running  = false;
        stream->from     = worker->host_device;
        stream->enqueued = stream->passed = stream->completed = stream->kept = 0;
    }
}

static void stream_count(struct sim_stream *stream)
{
    const struct sim_op *word = pl_list_first(&stream->words, struct sim_op, link);

    stream->completed = word != NULL ? word->number - 1 : stream->passed;
}

static void op_effect(struct sim_stream *stream, struct sim_op *op)
{
    struct sim_worker *worker = stream->worker;

    if (worker->sim->trace) {
        struct pl_str what;

        pl_str_init(&what);
        sim_op_describe(op, &what);
        sim_trace(worker->sim, "device %u stream %u: %s", worker->host_device,
                  stream->index, pl_str_text(&what));
        pl_str_finish(&what);
    }
    sim_store_writes(worker, op);
    if (touches_live(worker, op)) {
        sim_op_do(stream, op);
    }
    op_free(op);
}

static void op_finish(void *user, uint64_t arg, void *data)
{
    struct sim_stream *stream = user;
    struct sim_op *op;

    (void)data;
    if (arg != stream->worker->life) {
        return; /* the process that enqueued it is dead */
    }
    op = pl_list_first(&stream->ops, struct sim_op, link);
    PL_CHECK(op != NULL && stream->running);
    op_effect(stream, op);
    stream->running = false;
    stream->passed++;
    stream_count(stream);
    /* Joins look at completed counts, waits at words: anybody may go on. */
    sim_streams_kick(stream->worker->sim);
}

static void word_soon(struct sim_stream *stream);

static void word_finish(void *user, uint64_t arg, void *data)
{
    struct sim_stream *stream = user;

    (void)data;
    if (arg != stream->worker->life) {
        return;
    }
    op_effect(stream, pl_list_first(&stream->words, struct sim_op, link));
    stream_count(stream);
    if (!pl_list_empty(&stream->words)) {
        word_soon(stream);
    }
    sim_streams_kick(stream->worker->sim);
}

static void word_soon(struct sim_stream *stream)
{
    struct sim *sim     = stream->worker->sim;
    uint64_t draw       = test_random(&sim->late_random);
    uint64_t longest_ns = draw % 5 == 0 ? OP_SLOW_MAX_NS : OP_MAX_NS;

    sim_after(sim, 50 + draw / 5 % longest_ns, word_finish, stream, stream->worker->life,
              NULL);
}

static uint64_t op_duration(struct sim *sim, const struct sim_op *op)
{
    switch (op->kind) {
    case SIM_OP_WAIT:
    case SIM_OP_JOIN:
    case SIM_OP_SIGNAL:
    case SIM_OP_SETTLE:
        return sim_between(sim, 50, OP_WAIT_MAX_NS);
    case SIM_OP_MEET: /* long enough for several to be under way */
        return sim_between(sim, OP_MAX_NS, OP_SLOW_MAX_NS);
    default:
        return sim_between(sim, OP_MIN_NS,
                           sim_chance(sim, 20) ? OP_SLOW_MAX_NS : OP_MAX_NS);
    }
}

/* A half of the host route begins. */
static void count_sends(struct sim_worker *worker)
{
    uint64_t peers = 0;
    uint32_t at_once;

    for (uint32_t i = 0; i < SIM_STREAMS; i++) {
        const struct sim_op *op =
            pl_list_first(&worker->streams[i].ops, struct sim_op, link);

        if (worker->streams[i].running && op->kind == SIM_OP_SEND) {
            peers |= UINT64_C(1) << op->src->host_device;
        }
    }
    at_once = (uint32_t)__builtin_popcountll(peers);
    worker->sim->sends_at_once =
        at_once > worker->sim->sends_at_once ? at_once : worker->sim->sends_at_once;
}

static uint64_t op_start(struct sim_worker *worker, const struct sim_op *op)
{
    uint64_t own_ns = worker->sim->config.limits ? sim_limits_duration(worker, op) : 0;

    sim_begun_started(worker, op);
    if (op->kind == SIM_OP_SEND) {
        count_sends(worker);
    }
    return own_ns != 0 ? own_ns : op_duration(worker->sim, op);
}

/* The first op that has gone in and not started; NULL: there is none. */
static const struct sim_op *next_op(const struct sim_stream *stream)
{
    const struct pl_list *link = stream->ops.next;
    const struct sim_op *op;

    if (stream->running) {
        link = link->next;
    }
    if (link == &stream->ops) {
        return NULL;
    }
    op = pl_container_of(link, const struct sim_op, link);
    return op->serial != 0 ? op : NULL;
}

/* Has everything started that went into its queue before it? */
static bool is_its_turn(const struct sim_stream *stream, const struct sim_op *op)
{
    const struct sim_worker *worker = stream->worker;
    uint32_t queues                 = worker->sim->config.queues;

    for (uint32_t i = queues == 0 ? SIM_STREAMS : stream->index % queues; i < SIM_STREAMS;
         i += queues) {
        const struct sim_op *other = next_op(&worker->streams[i]);

        if (other != NULL && other->serial < op->serial) {
            return false;
        }
    }
    return true;
}

/* Its first op is a word that it does not wait for. */
static bool goes_past(struct sim_stream *stream)
{
    struct sim_op *op = pl_list_first(&stream->ops, struct sim_op, link);
    bool first        = pl_list_empty(&stream->words);

    if (op == NULL || stream->running || op->serial == 0 || !op->late ||
        !is_its_turn(stream, op)) {
        return false;
    }
    pl_list_remove(&op->link);
    pl_list_add_tail(&stream->words, &op->link);
    stream->passed++;
    if (first) {
        word_soon(stream);
    }
    if (stream->worker->sim->config.queues != 0) {
        sim_streams_kick_soon(stream->worker);
    }
    return true;
}

static void stream_kick(struct sim_stream *stream)
{
    struct sim_op *op;

    while (goes_past(stream)) {
    }
    op = pl_list_first(&stream->ops, struct sim_op, link);
    if (op == NULL || stream->running || op->serial == 0 || !is_its_turn(stream, op) ||
        !sim_op_ready(stream, op)) {
        return;
    }
    stream->running = true;
    if (stream->worker->sim->config.queues != 0) {
        sim_streams_kick_soon(stream->worker); /* who is behind it in its queue */
    }
    sim_after(stream->worker->sim, op_start(stream->worker, op), op_finish, stream,
              stream->worker->life, NULL);
}

void sim_streams_kick(struct sim *sim)
{
    for (uint32_t i = 0; i < sim->config.devices; i++) {
        struct sim_worker *worker = &sim->workers[i];

        if (worker->receives_given_up.count > 0) {
            sim_ways_fill(worker);
        }
        for (uint32_t s = 0; worker->alive && s < SIM_STREAMS; s++) {
            stream_kick(&worker->streams[s]);
        }
    }
}

static void streams_kicked(void *user, uint64_t arg, void *data)
{
    struct sim_worker *worker = user;

    (void)arg;
    (void)data;
    worker->kick_pending = false;
    sim_streams_kick(worker->sim);
}

void sim_streams_kick_soon(struct sim_worker *worker)
{
    if (!worker->kick_pending) {
        worker->kick_pending = true;
        sim_after(worker->sim, 1, streams_kicked, worker, 0, NULL);
    }
}

struct sim_op *sim_op_add(struct sim_worker *worker, uint32_t stream, enum sim_op_kind kind)
{
    struct sim_op *op = sim_alloc(sizeof(*op));

    PL_CHECK(stream < SIM_STREAMS);
    op->kind        = kind;
    op->by          = worker;
    op->stream      = stream;
    op->incarnation = worker->incarnation;
    pl_list_init(&op->link);
    pl_list_add_tail(&worker->streams[stream].ops, &op->link);
    op->number = ++worker->streams[stream].enqueued;
    return op;
}

void sim_op_start(struct sim_worker *worker, uint32_t stream)
{
    const struct pl_list *ops = &worker->streams[stream].ops;
    struct pl_list *link      = ops->prev;

    while (link != ops && pl_container_of(link, struct sim_op, link)->serial == 0) {
        link = link->prev;
    }
    for (link = link->next; link != ops; link = link->next) {
        pl_container_of(link, struct sim_op, link)->serial = ++worker->op_serial;
    }
    worker->streams[stream].kept = 0;
    stream_kick(&worker->streams[stream]);
}

void sim_op_keep(struct sim_worker *worker, uint32_t stream)
{
    if (++worker->streams[stream].kept == KEPT_MAX) {
        sim_op_start(worker, stream);
    }
}

void sim_stream_flush(struct sim_worker *worker, uint32_t stream)
{
    sim_op_start(worker, stream);
}

struct sim_touch sim_touch_of(struct sim_worker *owner, uint64_t offset)
{
    const struct sim_block *block = sim_memory_find(owner, offset);

    return (struct sim_touch){.owner  = owner,
                              .offset = offset,
                              .serial = block == NULL ? 0 : block->serial,
                              .device = owner->device};
}

void sim_op_touch(struct sim_op *op, struct sim_worker *owner, uint64_t offset)
{
    PL_CHECK(op->touch_count < PL_COUNT(op->touches));
    op->touches[op->touch_count++] = sim_touch_of(owner, offset);
    sim_memory_use(owner, op, offset);
}
