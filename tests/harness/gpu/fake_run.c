/*
 * The device: one thread that takes the first operation of each stream in turn. An operation that
 * has to wait stays where it is. While some stream waits the thread looks every few microseconds;
 * while there is nothing to do it sleeps.
 */
#include "tests/harness/gpu/fake_calls.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LOOK_NS   5000
#define QUEUE_MAX 1020 /* operations of a stream that are not done */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t work  = PTHREAD_COND_INITIALIZER;
static pthread_once_t once  = PTHREAD_ONCE_INIT;
static struct fake_stream *streams;
static uint64_t kernel_ns;
static const char *gate;     /* NULL: none */
static const char *far_lost; /* likewise */
static bool stalling;        /* likewise */
static uint64_t stall_state;
static bool sleeps;
static bool lost;

void fake_lock(void)
{
    (void)pthread_mutex_lock(&lock);
}

void fake_unlock(void)
{
    (void)pthread_mutex_unlock(&lock);
}

struct fake_stream *fake_streams(void)
{
    return streams;
}

bool fake_lost(void)
{
    return lost;
}

CUresult fake_lost_error(void)
{
    const char *text = getenv("FAKE_CUDA_LOST_ERROR");

    return text != NULL ? (CUresult)strtol(text, NULL, 10) : CUDA_ERROR_ILLEGAL_ADDRESS;
}

bool fake_stream_lost(const struct fake_stream *stream)
{
    return lost || (far_lost != NULL && fake_device_is_far(stream->device) &&
                    access(far_lost, F_OK) == 0);
}

static uint64_t now_ns(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* ------------------------------------------------------------------ lists of operations */

void fake_ops_push(struct fake_ops *ops, const struct fake_op *op)
{
    if (ops->first + ops->count == ops->room) {
        if (ops->first > 0) {
            memmove(ops->items, ops->items + ops->first, ops->count * sizeof(*op));
            ops->first = 0;
        } else {
            ops->room  = ops->room == 0 ? 16 : 2 * ops->room;
            ops->items = realloc(ops->items, ops->room * sizeof(*op));
        }
    }
    if (ops->items == NULL) {
        fprintf(stderr, "fake cuda: out of memory\n");
        abort();
    }
    ops->items[ops->first + ops->count++] = *op;
}

void fake_ops_copy(struct fake_ops *out, const struct fake_ops *ops)
{
    *out = (struct fake_ops){.items = NULL};
    for (size_t i = 0; i < ops->count; i++) {
        fake_ops_push(out, &ops->items[ops->first + i]);
    }
}

void fake_record_unref(struct fake_record *record)
{
    if (record != NULL && --record->refs == 0) {
        free(record);
    }
}

void fake_exec_destroy(struct fake_exec *exec)
{
    free(exec->ops.items);
    free(exec);
}

/* --------------------------------------------------------------------------- operations */

static void *pointer(uint64_t address)
{
    return (void *)(uintptr_t)address;
}

static void copy_run(const CUDA_MEMCPY3D *copy)
{
    const char *src = copy->srcMemoryType == CU_MEMORYTYPE_HOST ? copy->srcHost
                                                                : pointer(copy->srcDevice);
    char *dst       = copy->dstMemoryType == CU_MEMORYTYPE_HOST ? copy->dstHost
                                                                : pointer(copy->dstDevice);

    for (size_t z = 0; z < copy->Depth; z++) {
        for (size_t y = 0; y < copy->Height; y++) {
            memmove(dst + (z * copy->dstHeight + y) * copy->dstPitch,
                    src + (z * copy->srcHeight + y) * copy->srcPitch, copy->WidthInBytes);
        }
    }
}

static bool word_reached(const struct fake_op *op)
{
    /* Acquire: what was done before the word was written is visible to what follows. */
    uint64_t word = __atomic_load_n((uint64_t *)pointer(op->word.at), __ATOMIC_ACQUIRE);

    return (int64_t)(word - op->word.value) >= 0;
}

/* As device/cuda/copy_box.cu. */
static void box_run(const struct device_copy_box_args *args, uint32_t width)
{
    const struct device_copy_plan *plan = &args->plan;

    for (uint64_t i = 0; i < args->words; i++) {
        uint64_t run = i / args->words_per_run;
        uint64_t dst = (i - run * args->words_per_run) * width, src = dst;

        for (uint32_t d = 0; d < plan->loop_count; d++) {
            dst += run % plan->count[d] * plan->dst_stride[d];
            src += run % plan->count[d] * plan->src_stride[d];
            run /= plan->count[d];
        }
        memcpy((char *)pointer(args->dst) + plan->dst_offset + dst,
               (const char *)pointer(args->src) + plan->src_offset + src, width);
    }
}

static void kernel_run(const struct fake_op *op)
{
    float *counted  = op->kernel.x;
    uint32_t *mixed = op->kernel.x;

    lost |= op->kernel.function->traps;
    if (op->kernel.function->copies) {
        box_run(&op->kernel.copy, op->kernel.function->copy_width);
    }
    for (int64_t i = 0; op->kernel.function->counts && i < op->kernel.n; i++) {
        counted[i] += 1;
    }
    for (int64_t i = 0; op->kernel.function->mixes && i < op->kernel.n; i++) {
        mixed[i] = 3 * mixed[i] + op->kernel.value;
    }
}

/* What may begin early and does not wait goes first. */
static void hasty_first(struct fake_ops *ops)
{
    for (size_t i = 1; i < ops->count; i++) {
        struct fake_op op = ops->items[i];

        if (op.kind == FAKE_KERNEL && op.kernel.early) {
            fake_count(FAKE_CALL_early);
            if (!op.kernel.function->waits) {
                ops->items[i]     = ops->items[i - 1];
                ops->items[i - 1] = op;
            }
        }
    }
}

static void graph_run(struct fake_exec *exec)
{
    hasty_first(&exec->ops);
    for (size_t i = 0; i < exec->ops.count; i++) {
        const struct fake_op *op = &exec->ops.items[i];

        if (op->kind == FAKE_COPY) {
            copy_run(&op->copy);
        } else if (op->kind == FAKE_SET) {
            memset(pointer(op->word.at), (int)op->word.value, op->word.bytes);
        } else {
            kernel_run(op);
        }
    }
    fake_exec_destroy(exec);
}

static void record_run(struct fake_record *record)
{
    record->done    = true;
    record->done_ns = now_ns();
    fake_record_unref(record);
}

/* false: it waits. */
static bool op_run(const struct fake_op *op)
{
    switch (op->kind) {
    case FAKE_COPY:
        copy_run(&op->copy);
        return true;
    case FAKE_SET:
        memset(pointer(op->word.at), (int)op->word.value, op->word.bytes);
        return true;
    case FAKE_WRITE:
        __atomic_store_n((uint64_t *)pointer(op->word.at), op->word.value,
                         __ATOMIC_SEQ_CST);
        return true;
    case FAKE_WAIT:
        return word_reached(op);
    case FAKE_RECORD:
        record_run(op->record);
        return true;
    case FAKE_AFTER:
        if (!op->record->done) {
            return false;
        }
        fake_record_unref(op->record);
        return true;
    case FAKE_KERNEL:
        kernel_run(op);
        return true;
    case FAKE_HOST:
        op->host.fn(op->host.user);
        return true;
    case FAKE_POLL:
        return op->poll.fn(op->poll.user);
    case FAKE_GRAPH:
        graph_run(op->exec);
        return true;
    }
    return true;
}

/* How many kernels it stands for. */
static uint64_t kernels_of(const struct fake_op *op)
{
    return op->kind == FAKE_KERNEL ? 1 : op->kind == FAKE_GRAPH ? op->exec->ops.count : 0;
}

static bool held_up(const struct fake_op *op)
{
    return gate != NULL && kernels_of(op) > 0 && access(gate, F_OK) == 0;
}

/* Streams come on in turns that nobody knows before. Under the lock. */
static bool stalls(void)
{
    stall_state = stall_state * UINT64_C(6364136223846793005) + 1442695040888963407;
    return stalling && stall_state >> 61 < 3;
}

/* As far as this stream gets now. */
static void stream_run(struct fake_stream *stream)
{
    while (stream->ops.count > 0 && stream->busy_until_ns == 0) {
        struct fake_op op = stream->ops.items[stream->ops.first];
        uint64_t time_ns  = kernels_of(&op) * kernel_ns;

        if (stalls()) {
            return;
        }
        if (fake_stream_lost(stream) || held_up(&op) || !op_run(&op)) {
            return;
        }
        stream->ops.first++;
        stream->ops.count--;
        if (time_ns != 0) { /* what follows sees it later */
            stream->busy_until_ns = now_ns() + time_ns;
        }
    }
    if (stream->ops.count == 0) {
        stream->ops.first = 0;
    }
    if (stream->busy_until_ns != 0 && now_ns() >= stream->busy_until_ns) {
        stream->busy_until_ns = 0;
        stream_run(stream);
    }
}

/* --------------------------------------------------------------------------- the thread */

static bool run_all(void)
{
    bool more = false;

    for (struct fake_stream *stream = streams; stream != NULL; stream = stream->next) {
        stream_run(stream);
    }
    for (struct fake_stream *stream = streams; stream != NULL; stream = stream->next) {
        more |= stream->ops.count > 0 || stream->busy_until_ns != 0;
    }
    return more;
}

static void *device_main(void *user)
{
    const struct timespec pause = {.tv_nsec = LOOK_NS};

    (void)user;
    (void)pthread_setname_np(pthread_self(), "fake-gpu");
    fake_lock();
    for (;;) {
        if (run_all()) {
            fake_unlock();
            (void)nanosleep(&pause, NULL);
            fake_lock();
        } else {
            sleeps = true;
            (void)pthread_cond_wait(&work, &lock);
            sleeps = false;
        }
    }
    return NULL;
}

static void device_start(void)
{
    const char *text = getenv("FAKE_CUDA_KERNEL_NS");
    pthread_t thread;

    kernel_ns = text != NULL ? strtoull(text, NULL, 10) : 0;
    gate      = getenv("FAKE_CUDA_GATE");
    far_lost  = getenv("FAKE_CUDA_FAR_LOST");
    stalling  = getenv("FAKE_CUDA_STALLS") != NULL;
    if (pthread_create(&thread, NULL, device_main, NULL) != 0) {
        fprintf(stderr, "fake cuda: no thread\n");
        abort();
    }
    (void)pthread_detach(thread);
}

/* ------------------------------------------------------------------------------ streams */

void fake_stream_add(struct fake_stream *stream)
{
    (void)pthread_once(&once, device_start);
    stream->next = streams;
    streams      = stream;
}

void fake_stream_remove(struct fake_stream *stream)
{
    struct fake_stream **place = &streams;

    while (*place != stream) {
        place = &(*place)->next;
    }
    *place = stream->next;
}

/* Gives the lock away meanwhile: who enqueues has nothing of the driver's in hand but the operation. */
static void wait_for_room(const struct fake_stream *stream)
{
    const struct timespec pause = {.tv_nsec = LOOK_NS};

    if (stream->ops.count >= QUEUE_MAX) {
        fake_count(FAKE_CALL_blocked);
    }
    while (stream->ops.count >= QUEUE_MAX && !fake_lost()) {
        fake_unlock();
        (void)nanosleep(&pause, NULL);
        fake_lock();
    }
}

void fake_enqueue(struct fake_stream *stream, const struct fake_op *op)
{
    wait_for_room(stream);
    fake_ops_push(&stream->ops, op);
    if (sleeps) {
        (void)pthread_cond_signal(&work);
    }
}

void fake_sync(struct fake_stream *stream)
{
    const struct timespec pause = {.tv_nsec = LOOK_NS};
    bool more;

    do {
        fake_lock();
        more = !fake_stream_lost(stream) &&
               (stream->ops.count > 0 || stream->busy_until_ns != 0);
        fake_unlock();
        if (more) {
            (void)nanosleep(&pause, NULL);
        }
    } while (more);
}
