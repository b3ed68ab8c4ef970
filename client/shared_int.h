/* Between shared.c and shared_control.c: what the store sends, and asking it. Everything under shared->lock. */
#ifndef CLIENT_SHARED_INT_H
#define CLIENT_SHARED_INT_H

#include "client/shared.h"

void shared_memory_release_locked(struct shared_memory *memory); /* NULL is fine */

plasmon_status_t shared_control_connect(const char *path, int *out_fd,
                                        struct pl_err *err) PL_MUST_CHECK;
plasmon_status_t shared_control_send(struct shared *shared, struct store_control message,
                                     struct pl_err *err) PL_MUST_CHECK;
/* Take one message, whatever it is, into `shared`. */
plasmon_status_t shared_control_step(struct shared *shared, uint64_t deadline_ns,
                                     struct pl_err *err) PL_MUST_CHECK;

#endif
