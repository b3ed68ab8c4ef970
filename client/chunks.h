/*
 * The chunks of a CPU device, mapped in this process side by side as they lie in the device's
 * arena: a buffer that spans two of them is one piece of memory here too. Chunks are never taken
 * away, so a mapping stays until the end.
 *
 * Threads: owner only (shared.h's lock).
 */
#ifndef CLIENT_CHUNKS_H
#define CLIENT_CHUNKS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"
#include "store/control.h"
#include "store/table.h"

struct chunks;

/* Reserves address space for the whole arena; nothing is mapped. The table is lent until chunks_destroy(). */
plasmon_status_t chunks_create(const struct store_table *table, struct chunks **out_chunks,
                               struct pl_err *err) PL_MUST_CHECK;
void chunks_destroy(struct chunks *chunks); /* NULL is none */
/*
 * What the store answered to GET_CHUNK; fd is borrowed. EMALFORMED: it is not the chunk that the
 * table lists under that number.
 */
plasmon_status_t chunks_map(struct chunks *chunks, const struct store_control *message,
                            int fd, struct pl_err *err) PL_MUST_CHECK;
/*
 * Where [offset, offset + bytes) of the arena is here. EAGAIN: chunk *out_id must be mapped first.
 * EUNREACHABLE: it does not lie in chunks, or (must_write) not in such as clients may write.
 */
plasmon_status_t chunks_locate(const struct chunks *chunks, uint64_t offset, uint64_t bytes,
                               bool must_write, void **out_data, uint32_t *out_id,
                               struct pl_err *err) PL_MUST_CHECK;

#endif
