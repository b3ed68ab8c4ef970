/*
 * What is in a buffer, and who uses it, by where that is: instances, and unfinished uses that read
 * or write. There may be thousands, and a call that updates one part in place has to do with few of
 * them.
 *
 * Of a few the buffer's lists are looked through. While there are more, each has a span
 * (base/spans.h) as well, in memory that comes and goes with it.
 */
#ifndef HEAD_PLACES_H
#define HEAD_PLACES_H

#include "head/object.h"

/*
 * Of so many the lists are looked through. At most 40. Changed by the simulation alone, while there
 * is no head.
 */
extern uint32_t head_places_few;

enum head_place_kind { HEAD_PLACE_READER, HEAD_PLACE_WRITER, HEAD_PLACE_INSTANCE };

/* It is in its buffer's list now, or no longer is. (A use with the `write` that it has in there.) */
void head_places_instance_add(struct head_instance *instance);
void head_places_instance_remove(struct head_instance *instance);
void head_places_use_add(struct head_use *use);
void head_places_use_remove(struct head_use *use);

/*
 * Those that meet the box, in the order of the list, until instances, or uses, are asked for again.
 * The list may change meanwhile.
 */
struct head_instance *const *head_places_instances(const struct head_buffer *buffer,
                                                   const struct pl_box *box,
                                                   size_t *out_count);
struct head_use *const *head_places_uses(const struct head_buffer *buffer, bool write,
                                         const struct pl_box *box, size_t *out_count);
/* Is there a copy among its writers? */
bool head_places_copied_to(const struct head_buffer *buffer);
/* Among its readers a copy to host memory before there is need (write_back.c)? */
bool head_places_copied_ahead(const struct head_buffer *buffer);
/* At so many spans was looked, for tests; 0: there are none. */
uint64_t head_places_looked(const struct head_buffer *buffer);
/* Invariants; aborts. */
void head_places_check(const struct head_buffer *buffer);

#endif
