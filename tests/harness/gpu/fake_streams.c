/*
 * Work on the fake driver's streams: copies, words, functions of the host, streams and events.
 * fake_run.c does it.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/harness/gpu/fake_calls.h"
#include "tests/harness/gpu/fake_nccl.h"

#define EXPORT __attribute__((visibility("default")))

/* --------------------------------------------------------------------------------- work */

static CUresult put(CUstream to, const struct fake_op *op)
{
    struct fake_stream *stream = fake_stream_of(to);
    CUresult result            = CUDA_SUCCESS;

    bool anywhere = op->kind == FAKE_POLL || op->kind == FAKE_HOST;

    fake_lock();
    if (fake_stream_lost(stream)) {
        result = fake_lost_error();
    } else if (!anywhere && stream->device != fake_device_current()) {
        result = CUDA_ERROR_INVALID_CONTEXT;
    } else if (stream->capture != NULL) {
        fake_ops_push(&stream->capture->ops, op);
        stream->last = fake_node_at(stream->capture->ops.count - 1);
    } else {
        fake_enqueue(stream, op);
    }
    fake_unlock();
    return result;
}

/* From the first byte to the last, on both sides. */
static bool may_copy(const struct fake_stream *stream, const CUDA_MEMCPY3D *copy)
{
    uint64_t rows =
        (copy->Depth > 1 ? (copy->Depth - 1) * copy->srcHeight : 0) + copy->Height;
    uint64_t to_rows =
        (copy->Depth > 1 ? (copy->Depth - 1) * copy->dstHeight : 0) + copy->Height;
    uint64_t from = (rows - 1) * copy->srcPitch + copy->WidthInBytes;
    uint64_t to   = (to_rows - 1) * copy->dstPitch + copy->WidthInBytes;

    if (fake_device_is_far(stream->device)) {
        COUNT(far);
    }
    return (copy->srcMemoryType != CU_MEMORYTYPE_DEVICE ||
            fake_memory_open(copy->srcDevice, from, stream->device, false)) &&
           (copy->dstMemoryType != CU_MEMORYTYPE_DEVICE ||
            fake_memory_open(copy->dstDevice, to, stream->device, true));
}

CUresult fake_put(CUstream to, const struct fake_op *op)
{
    CUresult result;

    if (op->kind != FAKE_COPY) {
        return put(to, op);
    }
    if (!may_copy(fake_stream_of(to), &op->copy)) {
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    }
    fake_memory_enter();
    result = put(to, op);
    fake_memory_leave();
    return result;
}

static CUresult put_bytes(CUstream to, uint64_t dst, uint64_t src, size_t bytes)
{
    struct fake_op op = {.kind = FAKE_COPY};

    op.copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    op.copy.srcDevice     = src;
    op.copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    op.copy.dstDevice     = dst;
    op.copy.WidthInBytes  = bytes;
    op.copy.Height        = 1;
    op.copy.Depth         = 1;
    return fake_put(to, &op);
}

CUresult fake_cuMemcpyDtoDAsync(CUdeviceptr dst, CUdeviceptr src, size_t bytes,
                                CUstream stream)
{
    COUNT(cuMemcpyDtoDAsync);
    return put_bytes(stream, dst, src, bytes);
}

CUresult fake_cuMemcpyHtoDAsync(CUdeviceptr dst, const void *src, size_t bytes,
                                CUstream stream)
{
    COUNT(cuMemcpyHtoDAsync);
    if (!fake_memory_may_copy(src, bytes)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return put_bytes(stream, dst, (uintptr_t)src, bytes);
}

CUresult fake_cuMemcpyDtoHAsync(void *dst, CUdeviceptr src, size_t bytes, CUstream stream)
{
    COUNT(cuMemcpyDtoHAsync);
    if (!fake_memory_may_copy(dst, bytes)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return put_bytes(stream, (uintptr_t)dst, src, bytes);
}

CUresult fake_cuMemcpyPeerAsync(CUdeviceptr dst, CUcontext to, CUdeviceptr src,
                                CUcontext from, size_t bytes, CUstream stream)
{
    COUNT(cuMemcpyPeerAsync);
    (void)to;
    (void)from;
    return put_bytes(stream, dst, src, bytes);
}

CUresult fake_cuMemcpy2DAsync(const CUDA_MEMCPY2D *copy, CUstream stream)
{
    struct fake_op op = {.kind = FAKE_COPY};

    COUNT(cuMemcpy2DAsync);
    op.copy.srcMemoryType = copy->srcMemoryType;
    op.copy.srcHost       = copy->srcHost;
    op.copy.srcDevice     = copy->srcDevice;
    op.copy.srcPitch      = copy->srcPitch;
    op.copy.dstMemoryType = copy->dstMemoryType;
    op.copy.dstHost       = copy->dstHost;
    op.copy.dstDevice     = copy->dstDevice;
    op.copy.dstPitch      = copy->dstPitch;
    op.copy.WidthInBytes  = copy->WidthInBytes;
    op.copy.Height        = copy->Height;
    op.copy.Depth         = 1;
    return fake_put(stream, &op);
}

CUresult fake_cuMemcpy3DAsync(const CUDA_MEMCPY3D *copy, CUstream stream)
{
    const struct fake_op op = {.kind = FAKE_COPY, .copy = *copy};

    COUNT(cuMemcpy3DAsync);
    return fake_put(stream, &op);
}

CUresult fake_cuMemsetD8Async(CUdeviceptr dst, unsigned char value, size_t bytes,
                              CUstream stream)
{
    const struct fake_op op = {.kind = FAKE_SET,
                               .word = {.at = dst, .value = value, .bytes = bytes}};

    COUNT(cuMemsetD8Async);
    return fake_put(stream, &op);
}

CUresult fake_cuStreamWriteValue64(CUstream stream, CUdeviceptr at, cuuint64_t value,
                                   unsigned flags)
{
    const struct fake_op op = {.kind = FAKE_WRITE, .word = {.at = at, .value = value}};

    COUNT(cuStreamWriteValue64);
    (void)flags;
    return fake_put(stream, &op);
}

CUresult fake_cuStreamWaitValue64(CUstream stream, CUdeviceptr at, cuuint64_t value,
                                  unsigned flags)
{
    const struct fake_op op = {.kind = FAKE_WAIT, .word = {.at = at, .value = value}};

    COUNT(cuStreamWaitValue64);
    (void)flags;
    return fake_put(stream, &op);
}

CUresult fake_cuStreamBatchMemOp(CUstream stream, unsigned count,
                                 CUstreamBatchMemOpParams *params, unsigned flags)
{
    CUresult result = CUDA_SUCCESS;

    COUNT(cuStreamBatchMemOp);
    (void)flags;
    for (unsigned i = 0; i < count && result == CUDA_SUCCESS; i++) {
        bool waits              = params[i].operation == CU_STREAM_MEM_OP_WAIT_VALUE_64;
        const struct fake_op op = {.kind = waits ? FAKE_WAIT : FAKE_WRITE,
                                   .word = {.at    = waits ? params[i].waitValue.address
                                                           : params[i].writeValue.address,
                                            .value = waits ? params[i].waitValue.value64
                                                           : params[i].writeValue.value64}};

        result = fake_put(stream, &op);
    }
    return result;
}

CUresult fake_cuLaunchHostFunc(CUstream stream, CUhostFn fn, void *user)
{
    const struct fake_op op = {.kind = FAKE_HOST, .host = {.fn = fn, .user = user}};

    COUNT(cuLaunchHostFunc);
    return fake_put(stream, &op);
}

/* For fake_nccl.c. */
EXPORT void fake_stream_poll(CUstream stream, bool (*fn)(void *user), void *user)
{
    const struct fake_op op = {.kind = FAKE_POLL, .poll = {.fn = fn, .user = user}};

    (void)fake_put(stream, &op); /* NCCL's operations are not captured */
}

/* ------------------------------------------------------------------------------ streams */

CUresult fake_cuStreamCreateWithPriority(CUstream *out, unsigned flags, int priority)
{
    struct fake_stream *stream = calloc(1, sizeof(*stream));

    COUNT(cuStreamCreateWithPriority);
    (void)flags;
    (void)priority;
    if (stream == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    stream->device = fake_device_current();
    fake_lock();
    fake_stream_add(stream);
    fake_unlock();
    *out = (CUstream)(void *)stream;
    return CUDA_SUCCESS;
}

CUresult fake_cuStreamDestroy(CUstream stream)
{
    COUNT(cuStreamDestroy);
    fake_sync(fake_stream_of(stream));
    fake_lock();
    fake_stream_remove(fake_stream_of(stream));
    fake_unlock();
    free(fake_stream_of(stream)->ops.items);
    free(fake_stream_of(stream));
    return CUDA_SUCCESS;
}

CUresult fake_cuStreamQuery(CUstream stream)
{
    bool busy, lost;

    COUNT(cuStreamQuery);
    fake_lock();
    busy =
        fake_stream_of(stream)->ops.count > 0 || fake_stream_of(stream)->busy_until_ns != 0;
    lost = fake_stream_lost(fake_stream_of(stream));
    fake_unlock();
    return lost ? fake_lost_error() : busy ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

CUresult fake_cuStreamSynchronize(CUstream stream)
{
    bool lost;

    COUNT(cuStreamSynchronize);
    fake_sync(fake_stream_of(stream));
    fake_lock();
    lost = fake_stream_lost(fake_stream_of(stream));
    fake_unlock();
    return lost ? fake_lost_error() : CUDA_SUCCESS;
}

/* ------------------------------------------------------------------------------- events */

CUresult fake_cuEventCreate(CUevent *out, unsigned flags)
{
    struct fake_event *event = calloc(1, sizeof(*event));

    COUNT(cuEventCreate);
    (void)flags;
    if (event != NULL) {
        event->device = fake_device_current();
    }
    *out = (CUevent)(void *)event;
    return event != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult fake_cuEventDestroy(CUevent event)
{
    COUNT(cuEventDestroy);
    fake_lock();
    fake_record_unref(fake_event_of(event)->last);
    free(fake_event_of(event));
    fake_unlock();
    return CUDA_SUCCESS;
}

CUresult fake_cuEventRecord(CUevent event, CUstream stream)
{
    struct fake_event *it    = fake_event_of(event);
    struct fake_stream *mine = fake_stream_of(stream);

    COUNT(cuEventRecord);
    if (it->device != mine->device) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    fake_lock();
    if (fake_stream_lost(mine) && !fake_lost()) {
        fake_unlock();
        return fake_lost_error();
    }
    it->capture = mine->capture != NULL ? mine->capture->capture : 0;
    if (it->capture == 0) {
        struct fake_record *record = malloc(sizeof(*record));
        const struct fake_op op    = {.kind = FAKE_RECORD, .record = record};

        if (record == NULL) {
            fake_unlock();
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        *record = (struct fake_record){.refs = 2};
        fake_record_unref(it->last);
        it->last = record;
        fake_enqueue(mine, &op);
    }
    fake_unlock();
    return CUDA_SUCCESS;
}

/* The graph that is captured under this number; NULL: that is over. */
static struct fake_graph *captured(uint64_t capture)
{
    for (struct fake_stream *stream = fake_streams(); stream != NULL;
         stream                     = stream->next) {
        if (stream->capture != NULL && stream->capture->capture == capture) {
            return stream->capture;
        }
    }
    return NULL;
}

CUresult fake_cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags)
{
    struct fake_event *it    = fake_event_of(event);
    struct fake_stream *mine = fake_stream_of(stream);
    CUresult result          = CUDA_SUCCESS;

    COUNT(cuStreamWaitEvent);
    (void)flags;
    fake_lock();
    if (it->capture != 0) {
        /* the order of calls is one of the orders that the graph allows */
        mine->capture = captured(it->capture);
        result = mine->capture != NULL ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    } else if (it->last != NULL && !it->last->done) {
        const struct fake_op op = {.kind = FAKE_AFTER, .record = it->last};

        it->last->refs++;
        fake_enqueue(mine, &op);
    }
    fake_unlock();
    return result;
}

CUresult fake_cuEventQuery(CUevent event)
{
    const struct fake_record *last;
    bool done;

    COUNT(cuEventQuery);
    fake_lock();
    last = fake_event_of(event)->last;
    done = last == NULL || last->done;
    fake_unlock();
    return done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult fake_cuEventElapsedTime(float *out_ms, CUevent begin, CUevent end)
{
    const struct fake_record *from, *to;
    bool known;

    COUNT(cuEventElapsedTime);
    fake_lock();
    from  = fake_event_of(begin)->last;
    to    = fake_event_of(end)->last;
    known = from != NULL && from->done && to != NULL && to->done;
    if (known) {
        *out_ms = (float)(to->done_ns - from->done_ns) * 1e-6f;
    }
    fake_unlock();
    return known ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult fake_cuIpcGetEventHandle(CUipcEventHandle *out, CUevent event)
{
    COUNT(cuIpcGetEventHandle);
    (void)out;
    (void)event;
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult fake_cuIpcOpenEventHandle(CUevent *out, CUipcEventHandle handle)
{
    COUNT(cuIpcOpenEventHandle);
    (void)out;
    (void)handle;
    return CUDA_ERROR_NOT_SUPPORTED;
}
