/*
 * Between shared.c and shared_control.c: what the store sends, and asking it. Everything under
 * shared->lock.
 */
#ifndef CLIENT_SHARED_INT_H
#define CLIENT_SHARED_INT_H

#include "client/shared.h"

void shared_memory_release_locked(struct shared_memory *memory); /* NULL is fine */

plasmon_status_t shared_control_connect(struct shared *shared, const char *path,
                                        int *out_fd, struct pl_err *err) PL_MUST_CHECK;
/* Something that wants no answer. */
plasmon_status_t shared_control_send(struct shared *shared, struct store_control message,
                                     struct pl_err *err) PL_MUST_CHECK;
/*
 * A question, whose answer shared_control_step() waits for. ETIMEDOUT: the store did not answer the
 * one before, and is left alone.
 */
plasmon_status_t shared_control_ask(struct shared *shared, struct store_control message,
                                    struct pl_err *err) PL_MUST_CHECK;
/* If the one that did not answer has ended, that is over. */
void shared_control_look(struct shared *shared);
/* Is it to be left alone now? ETIMEDOUT. */
plasmon_status_t shared_control_rests(const struct shared *shared,
                                      struct pl_err *err) PL_MUST_CHECK;
/*
 * By when an answer to what is asked now must be there. One that did not answer the last time has
 * less time.
 */
uint64_t shared_control_deadline(const struct shared *shared, uint64_t deadline_ns);
/* Take one message, whatever it is, into `shared`. */
plasmon_status_t shared_control_step(struct shared *shared, uint64_t deadline_ns,
                                     struct pl_err *err) PL_MUST_CHECK;

#endif
