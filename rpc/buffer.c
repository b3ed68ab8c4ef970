/*
 * Memory of messages. A buffer that is sent becomes a slice of gRPC's without a copy; the core
 * frees it when its bytes are in the kernel.
 */
#include "rpc/grpc_int.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fault.h"

uint8_t *rpc_buffer_create(size_t length)
{
    struct rpc_buffer *buffer;

    if (pl_fault_point("alloc") || length > SIZE_MAX / 2) {
        return NULL;
    }
    buffer =
        malloc(sizeof(*buffer) +
               length); /* not zeroed, as pl_alloc() would: the caller fills all of it */
    if (buffer == NULL) {
        return NULL;
    }
    buffer->next   = NULL;
    buffer->length = length;
    return buffer->bytes;
}

struct rpc_buffer *rpc_buffer_of(uint8_t *bytes)
{
    return pl_container_of(bytes, struct rpc_buffer, bytes);
}

void rpc_buffer_destroy(uint8_t *buffer)
{
    if (buffer != NULL) {
        free(rpc_buffer_of(buffer));
    }
}

void rpc_queue_push(struct rpc_queue *queue, struct rpc_buffer *buffer)
{
    buffer->next = NULL;
    if (queue->last == NULL) {
        queue->first = buffer;
    } else {
        queue->last->next = buffer;
    }
    queue->last = buffer;
    queue->bytes += buffer->length;
}

struct rpc_buffer *rpc_queue_pop(struct rpc_queue *queue)
{
    struct rpc_buffer *buffer = queue->first;

    if (buffer != NULL) {
        queue->first = buffer->next;
        queue->bytes -= buffer->length;
        if (queue->first == NULL) {
            queue->last = NULL;
        }
    }
    return buffer;
}

void rpc_queue_drop(struct rpc_queue *queue)
{
    struct rpc_buffer *buffer;

    while ((buffer = rpc_queue_pop(queue)) != NULL) {
        free(buffer);
    }
}

grpc_byte_buffer *rpc_bytes_of_buffer(struct rpc_buffer *buffer)
{
    grpc_byte_buffer *bytes;
    grpc_slice slice;

    if (buffer->length == 0) {
        free(buffer);
        return grpc_raw_byte_buffer_create(NULL, 0);
    }

    slice = grpc_slice_new_with_user_data(buffer->bytes, buffer->length, free, buffer);
    bytes = grpc_raw_byte_buffer_create(&slice, 1); /* has its own reference */
    grpc_slice_unref(slice);
    return bytes;
}

bool rpc_received_open(struct rpc_received *received, grpc_byte_buffer *buffer)
{
    static const uint8_t nothing[1];
    grpc_slice *first;

    *received =
        (struct rpc_received){.bytes = nothing, .length = grpc_byte_buffer_length(buffer)};
    if (!grpc_byte_buffer_reader_init(&received->reader, buffer)) {
        return false;
    }
    if (received->length == 0) {
        return true;
    }

    if (grpc_byte_buffer_reader_peek(&received->reader, &first) &&
        GRPC_SLICE_LENGTH(*first) == received->length) {
        received->bytes = GRPC_SLICE_START_PTR(*first);
        return true;
    }

    /* In several pieces: start over, and copy. */
    grpc_byte_buffer_reader_destroy(&received->reader);
    if (!grpc_byte_buffer_reader_init(&received->reader, buffer)) {
        return false;
    }
    received->whole  = grpc_byte_buffer_reader_readall(&received->reader);
    received->copied = true;
    received->bytes  = GRPC_SLICE_START_PTR(received->whole);
    return true;
}

void rpc_received_close(struct rpc_received *received)
{
    if (received->copied) {
        grpc_slice_unref(received->whole);
    }
    grpc_byte_buffer_reader_destroy(&received->reader);
}
