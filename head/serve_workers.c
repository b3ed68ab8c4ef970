/*
 * Work streams. A worker is known by host and host device; its session lasts as long as its process
 * (incarnation) and survives a broken connection. A new incarnation starts a new session: what its
 * predecessor had not taken over is owed again by the core, not by the link (machine_peers.c).
 *
 * A device gets its number from its store's hello (serve_nodes.c). A worker that is faster than its
 * store waits for it: until a store with the memory that this worker has is known.
 */
#include "head/serve.h"

#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"

struct serve_worker *serve_worker_of(struct serve *serve, uint32_t device)
{
    struct pl_list *pos;

    pl_list_for_each(pos, &serve->workers) {
        struct serve_worker *worker = pl_container_of(pos, struct serve_worker, link);

        if (worker->device == device && device != UINT32_MAX) {
            return worker;
        }
    }
    return NULL;
}

void serve_worker_free(struct serve_worker *worker)
{
    pl_list_remove(&worker->link);
    pl_free(worker->hello.bytes);
    pl_free(worker);
}

static void worker_close(struct serve_worker *worker, plasmon_status_t status,
                         const char *why)
{
    serve_close(worker->serve, worker->stream, status, why);
    serve_worker_free(worker);
}

void serve_worker_drop(struct serve *serve, uint32_t device, const char *why)
{
    struct serve_worker *worker = serve_worker_of(serve, device);

    if (worker != NULL) {
        worker_close(worker, PLASMON_EHEADLOST, why);
    }
}

static void refuse(struct serve_worker *worker, plasmon_status_t status, const char *text)
{
    pl_warn("head", "a worker is refused: %s", text);
    worker_close(worker, status, text);
}

/* The worker may be freed. */
static void take_hello(struct serve_worker *worker, const uint8_t *bytes, size_t length)
{
    struct serve *serve     = worker->serve;
    struct head_input input = {.type = HEAD_INPUT_WORKER_UP, .strings = {{bytes, length}}};
    struct serve_worker *older;
    struct head_outcome outcome;
    struct pl_err err = {0};

    if (serve_input(serve, &input, &outcome, &err) != PLASMON_OK) {
        refuse(worker, err.status, err.text);
        return;
    }
    older = serve_worker_of(serve, outcome.device);
    if (older != NULL) {
        serve_replace(serve, older->stream, "the worker came back over another connection");
        serve_worker_free(older);
    }
    worker->device = outcome.device;
    head_machine_worker_welcome(serve->machine, worker->device);
    serve_clients_tick(serve, serve_now_ms(serve));
}

static void first_frame(struct serve_worker *worker, const uint8_t *bytes, size_t length,
                        const Plasmon__V1__WorkerFrame *frame)
{
    struct serve *serve = worker->serve;

    if (worker->hello.bytes != NULL) {
        refuse(worker, PLASMON_EMALFORMED, "a second hello on one stream");
    } else if (frame->hello->resume_session != 0 ||
               head_machine_memory_known(serve->machine, frame->hello->host,
                                         frame->hello->memory)) {
        take_hello(worker, bytes, length);
    } else {
        serve_hello_keep(serve, &worker->hello, bytes, length);
    }
}

/* What the kept hello says. It was checked when it came. */
static Plasmon__V1__WorkerFrame *decode_kept(struct serve *serve,
                                             const struct serve_hello *hello)
{
    Plasmon__V1__WorkerFrame *frame;
    struct pl_err err;

    wire_arena_reset(&serve->arena);
    return wire_decode_worker_frame(&serve->arena, hello->bytes, hello->length, &frame,
                                    &err) == PLASMON_OK
               ? frame
               : NULL;
}

void serve_workers_tick(struct serve *serve, uint64_t now_ms)
{
    struct pl_list *pos, *tmp;

    pl_list_for_each_safe(pos, tmp, &serve->workers) {
        struct serve_worker *worker = pl_container_of(pos, struct serve_worker, link);
        struct serve_hello hello    = worker->hello;
        const Plasmon__V1__WorkerFrame *frame =
            hello.bytes != NULL ? decode_kept(serve, &hello) : NULL;
        struct pl_err err = {0};

        if (worker->device == UINT32_MAX && hello.bytes == NULL &&
            serve_hello_late(serve, worker->since_ms, now_ms, &err)) {
            refuse(worker, err.status, err.text);
        }
        if (frame == NULL) {
            continue;
        }
        if (head_machine_memory_known(serve->machine, frame->hello->host,
                                      frame->hello->memory)) {
            worker->hello = (struct serve_hello){.bytes = NULL};
            take_hello(worker, hello.bytes, hello.length);
            pl_free(hello.bytes);
        } else if (now_ms - hello.since_ms >= SERVE_STORE_WAIT_MS) {
            worker_close(worker, PLASMON_EAGAIN,
                         "the store of this worker's host has not joined this head");
        }
    }
}

/* Before its hello. */
static void greet(struct serve_worker *worker, const uint8_t *bytes, size_t length)
{
    struct serve *serve = worker->serve;
    Plasmon__V1__WorkerFrame *frame;
    struct pl_err err = {0};
    plasmon_status_t status;

    wire_arena_reset(&serve->arena);
    status = wire_decode_worker_frame(&serve->arena, bytes, length, &frame, &err);
    if (status == PLASMON_OK && frame->hello == NULL) {
        status = pl_err_set(&err, PLASMON_EMALFORMED,
                            "the first frame of a worker must carry a hello");
    }
    if (status != PLASMON_OK) {
        refuse(worker, status, err.text);
        return;
    }
    first_frame(worker, bytes, length, frame);
}

static void worker_message(void *user, struct rpc_stream *stream, const uint8_t *bytes,
                           size_t length)
{
    struct serve_worker *worker = user;
    struct serve *serve         = worker->serve;
    struct head_input input     = {.type    = HEAD_INPUT_WORKER_FRAME,
                                   .numbers = {worker->device},
                                   .strings = {{bytes, length}}};
    struct head_outcome outcome;
    struct pl_err err = {0};

    if (worker->device == UINT32_MAX) {
        greet(worker, bytes, length);
        return;
    }
    if (serve_input(serve, &input, &outcome, &err) != PLASMON_OK) {
        pl_error("head", "the connection of device %u is closed: %s", worker->device,
                 err.text);
        rpc_stream_close(stream, err.status, err.text);
    } else if (outcome.answered != 0) {
        serve_status_stats(serve, outcome.answered);
    }
}

static void worker_closed(void *user, struct rpc_stream *stream, plasmon_status_t status,
                          const char *why)
{
    struct serve_worker *worker = user;
    struct serve *serve         = worker->serve;
    struct head_input input = {.type = HEAD_INPUT_WORKER_LOST, .numbers = {worker->device}};
    struct pl_err err;

    (void)status;
    serve_gate_forget(serve, stream);
    if (worker->device != UINT32_MAX) {
        pl_debug("head", "device %u lost its connection: %s", worker->device, why);
        if (serve_input(serve, &input, NULL, &err) != PLASMON_OK) {
            pl_debug("head", "device %u: %s", worker->device, err.text);
        }
    }
    serve_worker_free(worker);
}

static const struct rpc_stream_ops worker_ops = {
    .message = worker_message,
    .closed  = worker_closed,
};

plasmon_status_t serve_worker_accept(void *user, struct rpc_stream *stream,
                                     struct pl_err *err)
{
    struct serve *serve         = user;
    struct serve_worker *worker = PL_NEW(struct serve_worker);

    if (worker == NULL) {
        return pl_err_set(err, PLASMON_ENOMEM, "the head is out of memory");
    }
    worker->serve    = serve;
    worker->device   = UINT32_MAX;
    worker->stream   = stream;
    worker->since_ms = serve_now_ms(serve);
    pl_list_init(&worker->link);
    pl_list_add_tail(&serve->workers, &worker->link);
    rpc_stream_set_user(stream, &worker_ops, worker);
    return PLASMON_OK;
}
