/* Between data.c, put.c and map.c: finding the bytes of a ref. */
#ifndef CLIENT_DATA_H
#define CLIENT_DATA_H

#include "client/client_int.h"

/* A value whose present version is held: what a get or a map works on. */
struct held_value {
    uint64_t root_id;
    bool whole;
    uint64_t bytes;
    struct pl_view asked;   /* what the ref shows, in its root's coordinates */
    struct pl_shape shape;  /* what the head's coordinates are of */
    struct pl_view view;    /* what the ref shows, in those */
    uint64_t hold;          /* id at the head; 0: none */
    struct request request; /* its places */
    struct pl_cond cond;
};

/* Wait for what the ref shows; nothing is held yet. ESHAPE: more than `capacity` bytes. Without the lock. */
plasmon_status_t held_value_begin(struct plasmon_client *client, struct plasmon_ref *ref,
                                  size_t capacity, uint64_t deadline_ns,
                                  struct held_value *value) PL_MUST_CHECK;
/* Where are the bytes? Takes a hold at the head. With the lock; held_value_drop_locked() ends it, also after a failure. */
plasmon_status_t held_value_locate_locked(struct plasmon_client *client,
                                          struct held_value *value, bool gather,
                                          uint64_t deadline_ns) PL_MUST_CHECK;
void held_value_drop_locked(struct plasmon_client *client, struct held_value *value);
/* Is there a CPU device on this host, so that its memory can be mapped? Connects to the store when first asked. Without the lock. */
bool data_reachable(struct plasmon_client *client, int device);
/* Pin one place. Without the lock. */
plasmon_status_t data_pin(struct plasmon_client *client, const struct place *place,
                          uint64_t deadline_ns, struct shared_pin *out_pin,
                          struct pl_err *err) PL_MUST_CHECK;

#endif
