/* A put on its way: what put.c and host_copy.c share. */
#ifndef CLIENT_PUT_H
#define CLIENT_PUT_H

#include "client/client_int.h"

struct put {
    struct plasmon_client *client;
    const uint8_t *data;
    uint64_t bytes;
    struct pl_shape shape;
    struct plasmon_put_options options;
    bool bulk; /* ask for what it takes to write it over the bulk channel */
};

/* The caller's arguments, checked; options with defaults for what an older program does not have. */
plasmon_status_t put_check(const struct plasmon_put_options *options, const void *data,
                           const struct plasmon_shape *shape,
                           struct put *put) PL_MUST_CHECK;
/* ETOOBIG: no device that we know of could hold it. Without the lock. */
plasmon_status_t put_check_size(const struct put *put) PL_MUST_CHECK;
/*
 * host_copy.c: from memory of plasmon_host_alloc(), by the device itself; waits until that is over.
 * EUNREACHABLE: it is no such memory, or another way may do better.
 */
plasmon_status_t host_put(const struct put *put,
                          struct plasmon_ref **out_ref) PL_MUST_CHECK;
/* A ref to a new array, of which the head has not heard. NULL: out of memory. */
struct plasmon_ref *put_make_ref_locked(const struct put *put, struct root **out_root);

#endif
