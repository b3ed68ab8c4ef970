/* Between place.c, data.c, put.c and map.c: finding the bytes of a ref, and moving them. */
#ifndef CLIENT_DATA_H
#define CLIENT_DATA_H

#include "client/client_int.h"

/* A value whose present version is held: what a get or a map works on. */
struct held_value {
    uint64_t root_id;
    uint64_t version; /* of the root */
    bool whole;
    uint64_t bytes;
    struct pl_view asked;   /* what the ref shows, in its root's coordinates */
    struct pl_shape shape;  /* what the head's coordinates are of */
    struct pl_view view;    /* what the ref shows, in those */
    struct pl_view shown;   /* what it shows, in the coordinates of the places */
    uint64_t hold;          /* id at the head; 0: none */
    uint64_t asked_ns;      /* when it was asked for the hold */
    bool bulk;              /* ask for what it takes to move it over the bulk channel */
    struct request request; /* its places */
    struct pl_cond cond;
};

/* Wait for what the ref shows; nothing is held yet. ESHAPE: more than `capacity` bytes. Without the lock. */
plasmon_status_t held_value_begin(struct plasmon_client *client, struct plasmon_ref *ref,
                                  size_t capacity, uint64_t deadline_ns,
                                  struct held_value *value) PL_MUST_CHECK;
/* The same without waiting, with the lock. The slot is good as long as the lock is held. */
plasmon_status_t held_value_begin_locked(struct plasmon_client *client,
                                         struct plasmon_ref *ref, size_t capacity,
                                         struct held_value *value,
                                         struct ref_slot **out_slot) PL_MUST_CHECK;
void held_value_of_slot(const struct ref_slot *slot, struct held_value *value);
/* In which form are the bytes wanted? */
enum data_form {
    DATA_PLACES,   /* wherever they are */
    DATA_GATHERED, /* all in one buffer */
    DATA_COMPACT,  /* in a buffer that has them in C order and nothing else between them */
};
/*
 * Where are the bytes? Takes a hold at the head. With the lock; held_value_drop_locked() ends it,
 * also after a failure. EAGAIN: only the compact form makes sense here.
 */
plasmon_status_t held_value_locate_locked(struct plasmon_client *client,
                                          struct held_value *value, enum data_form form,
                                          uint64_t deadline_ns) PL_MUST_CHECK;
/*
 * The same for several values at once, and one answer's wait: for the first. The others, which are
 * wholes, are held (hold is not 0) if their answers came by then.
 */
#define DATA_VALUES_MAX 65u
plasmon_status_t held_values_locate_locked(struct plasmon_client *client,
                                           struct held_value *const *values, uint32_t count,
                                           enum data_form form,
                                           uint64_t deadline_ns) PL_MUST_CHECK;
/*
 * Has it been held until now? Who is stopped, or waits for bytes, for longer than the session's
 * lease, may find another version in the same buffer, written there in place. So what was read is
 * good when this says so after it was read; and what is pinned, and a call in place waits for, when
 * it says so after it was pinned. A question to the head only if it is long since it was asked.
 * Without the lock.
 */
plasmon_status_t held_value_sure(struct plasmon_client *client,
                                 const struct held_value *value,
                                 uint64_t deadline_ns) PL_MUST_CHECK;
/* The same of now, without a question. */
bool held_value_fresh(const struct held_value *value);
void held_value_drop_locked(struct plasmon_client *client, struct held_value *value);
/* Small values that are asked for before the program does (ahead.c). */
struct ahead_values {
    uint32_t count;
    struct held_value *values; /* wholes; not held yet */
    struct plasmon_ref **refs; /* a handle of our own each */
    bool asked;                /* once is enough */
    uint8_t *bytes;            /* VALUE_BYTES_MAX a value */
    bool *got;                 /* a value: its bytes are there */
};
/*
 * A get of `root` begins; it is small or not, and its bytes are at hand (got) or not. What else to
 * ask for with it: *out is the caller's, and ahead_finish() ends it.
 */
void ahead_plan_locked(struct plasmon_client *client, const struct root *root, bool got,
                       struct ahead_values *out);
/* Of those that are held now: the bytes of those that come through a lane, all at once. */
void ahead_fetch(struct plasmon_client *client, struct ahead_values *ahead,
                 uint64_t deadline_ns);
void ahead_finish(struct plasmon_client *client, struct ahead_values *ahead);

/* PLASMON_CLIENT_PATH; NULL is auto. EINVAL with the text set. */
plasmon_status_t data_path_parse(const char *text, enum data_path *out_path) PL_MUST_CHECK;
/* How a device is reached; never DATA_AUTO. Without the lock. */
enum data_path data_path_to(struct plasmon_client *client, uint32_t index,
                            uint32_t *out_host_device);
/*
 * Is there a device on this host that is reached without messages? Connects to the store when first
 * asked. Without the lock.
 */
bool data_reachable(struct plasmon_client *client, int device);
/*
 * The store of this host is gone, or the head names a device that we do not know: ask the head who
 * there is now, and connect to that store. false: that was done a moment ago, is being done, or
 * cannot be done here. Without the lock; not for long in a hurry: it is a call to the head.
 */
bool data_look_again(struct plasmon_client *client);
/* As long as there is a session: without one nothing keeps the bytes. ECLOSED, with why. */
plasmon_status_t data_hope(struct plasmon_client *client, struct pl_err *err) PL_MUST_CHECK;
/* The same of what we know now, and for one of these ways (AUTO: any but messages): never asks. */
bool data_known(struct plasmon_client *client, int device, enum data_path path);
/*
 * Is there a device on another host whose worker moves this many bytes straight, as far as we know?
 * Without the lock.
 */
bool data_bulk(struct plasmon_client *client, int device, uint64_t bytes);
/*
 * host_copy.c: what a ref shows, `bytes` in all, into memory of plasmon_host_alloc(); as
 * host_put(). Without the lock.
 */
plasmon_status_t host_get(struct plasmon_client *client, struct plasmon_ref *ref,
                          void *data, uint64_t bytes) PL_MUST_CHECK;
/* The buffer, as shared.h names it. */
struct shared_key data_key(uint32_t host_device, uint64_t buffer);
/* Pin one place; its data is NULL if it is not mapped. Without the lock. */
plasmon_status_t data_pin(struct plasmon_client *client, const struct place *place,
                          bool must_map, uint64_t deadline_ns, struct shared_pin *out_pin,
                          struct pl_err *err) PL_MUST_CHECK;
/*
 * Several small buffers of one device, which are pinned: buffers[i] from its first byte on,
 * bytes[i] of it to data[i]. Without the lock.
 */
plasmon_status_t data_lane_get_many(struct plasmon_client *client, uint32_t host_device,
                                    const uint64_t *buffers, const uint64_t *bytes,
                                    void *const *data, uint32_t count, uint64_t deadline_ns,
                                    struct pl_err *err) PL_MUST_CHECK;
/*
 * To a buffer that a put opened, from the place of a get, on another host. As bulk_put() and
 * bulk_get(). Without the lock.
 */
plasmon_status_t data_bulk_put(struct plasmon_client *client, uint64_t buffer,
                               const struct bulk_grant *grant, const void *data,
                               uint64_t bytes, struct pl_err *err) PL_MUST_CHECK;
plasmon_status_t data_bulk_get(struct plasmon_client *client, const struct place *place,
                               uint64_t offset, void *data, uint64_t bytes,
                               uint64_t deadline_ns, struct pl_err *err) PL_MUST_CHECK;
/* Through a lane: to a buffer that a put opened; from one that is pinned. Without the lock. */
plasmon_status_t data_lane_put(struct plasmon_client *client, uint32_t host_device,
                               uint64_t buffer, const void *data, uint64_t bytes,
                               struct pl_err *err) PL_MUST_CHECK;
plasmon_status_t data_lane_get(struct plasmon_client *client, uint32_t host_device,
                               uint64_t buffer, uint64_t offset, void *data, uint64_t bytes,
                               uint64_t deadline_ns, struct pl_err *err) PL_MUST_CHECK;

#endif
