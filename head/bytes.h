/*
 * What every file of the head's state machine builds with: memory that is there or the head stops,
 * and bytes that grow.
 */
#ifndef HEAD_BYTES_H
#define HEAD_BYTES_H

#include "base/alloc.h"
#include "base/fault.h"
#include "base/list.h"
#include "base/log.h"
#include "base/map.h"
#include "base/vec.h"
#include "head/core.h"

struct head_bytes {
    uint8_t *data;
    size_t length;
    size_t capacity;
};

/* ---- core.c */
void *head_alloc(size_t bytes);
struct pl_pool;
void *head_pool_get(struct pl_pool *pool);
char *head_strdup(const char *text);
void head_bytes_append(struct head_bytes *bytes, const void *data, size_t length);
void head_bytes_varint(struct head_bytes *bytes, uint64_t value);
/* field `number`, length-delimited */
void head_bytes_field(struct head_bytes *bytes, uint32_t number, const void *data,
                      size_t length);
void head_bytes_message(struct head_bytes *bytes, uint32_t number,
                        const ProtobufCMessage *message);

#endif
