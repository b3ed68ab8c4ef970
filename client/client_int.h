/*
 * The client handle: what the parts of libplasmon share.
 *
 *   frame.c              encodes what goes out
 *   session.c            the stream: in order, once; request.c: questions that wait for an answer
 *   dispatch.c           what the head says
 *   refs.c, tasks.c      what names what, and who will still write it; watch.c: who waits for that
 *   submit.c             calls; functions.c: what they may call besides the built-in ones; index.c:
 *                        many instances of one; graph.c: recorded ones
 *   collective.c         all-reduce and the like
 *   put.c, data.c, map.c bytes in and out; place.c: where they are, and which way; copy.c: strided parts
 *   host.h               host_memory.c, host_copy.c, host_relay.c: host memory that devices copy
 *                        from and to, and such copies
 *   ahead.c              small values before they are asked for
 *   bulk.c               bytes straight to and from workers of other hosts
 *   shared.c             the host's object tables and chunks; lane.c: to devices that cannot be
 *                        mapped; parallel.c: threads
 *   trace.c              timelines; trace_json.c, trace_plot.c: written and drawn
 *   views.c, wait.c, status.c  the other calls of plasmon.h
 *   embedded.c, spawn.c  a private cluster
 *
 * LOCKS   client->lock (rank CLIENT) guards session and refs. shared.lock (rank STORE) guards what
 *         came from the store. No lock is held while a callback of the user runs.
 * FORK    Threads, sockets and pins do not survive fork(): every entry point begins with
 *         client_enter(), which refuses in a child before it touches a lock.
 */
#ifndef CLIENT_CLIENT_INT_H
#define CLIENT_CLIENT_INT_H

#include <pthread.h>

#include "base/clock.h"
#include "base/host.h"
#include "base/lock.h"
#include "client/bulk.h"
#include "client/embedded.h"
#include "client/error.h"
#include "client/functions.h"
#include "client/host.h"
#include "client/refs.h"
#include "client/session.h"
#include "client/shared.h"
#include "client/trace.h"
#include "plasmon/plasmon.h"

/* up to here the bytes go with the task: no round trip */
#define PUT_INLINE_BYTES   (256u << 10)
#define READ_CHUNK_BYTES   WIRE_DATA_BYTES_MAX
#define READS_MAX          16u /* of one value, each ended by the death of a worker */
#define READS_IN_FLIGHT    16u /* 16 MiB: what the head has of one get at a time */
#define CONNECT_TIMEOUT_MS 20000u
#define UNARY_TIMEOUT_MS   10000u
#define FINISH_GRACE_MS    1000u
#define STORE_GONE_MS      2000u
#define RECONNECT_MS       30000u

struct client_device {
    uint32_t index;
    uint32_t kind;
    uint32_t host_device;
    bool same_host;
    bool alive;
    bool usable;   /* it has come, and is not gone for good */
    uint32_t bulk; /* BulkAccess: how its worker takes and gives bytes of other hosts */
    uint64_t bytes_total;
    char name[96];
    char node[64];
};

/* How bytes of a device's memory are reached; place.c. */
enum data_path { DATA_AUTO, DATA_MAPPED, DATA_STAGED, DATA_BULK, DATA_MESSAGES };

/* Who gets small values one after the other; ahead.c. */
struct ahead {
    uint64_t last_id; /* root of the last small get */
    uint32_t window;  /* how many more to ask for with the next one */
};

struct submit_scratch; /* submit.c: room for the arguments of a call */

struct plasmon_client {
    /* Constant after plasmon_init(). */
    uint64_t fork_count; /* of the process that made it */
    char *address;       /* as given; NULL: private cluster */
    char *token;
    struct trust_source *trust; /* NULL: without TLS */
    uint32_t unary_ms;          /* how long a unary call may take, connecting included */
    char *name_space;
    char *label;
    enum data_path path;         /* the one that is allowed; AUTO: whichever is best */
    char host[PL_HOST_ID_BYTES]; /* who shares memory with us */
    struct rpc_loop *loop;
    struct embedded embedded; /* a private cluster; .active says */

    struct pl_mutex lock; /* rank PL_RANK_CLIENT */

    /* Guarded by `lock`. */
    /* replaced only by the loop's thread, when a private head comes back */
    struct rpc_channel *channel;
    uint32_t channel_users; /* threads in a unary call */
    struct session session;
    struct refs refs;
    struct functions functions;
    struct pl_vec devices;     /* struct client_device */
    uint64_t devices_asked_ns; /* when the head was last asked for want of a device */
    uint64_t look_at_ns;       /* not before then for a store that is gone (place.c) */
    uint64_t look_wait_ns;     /* between the last look and the next */
    struct submit_scratch *scratch;
    struct ahead ahead;
    struct pl_list graphs; /* struct plasmon_graph.link */
    uint64_t graph_last;   /* number of the last one */
    struct trace trace;
    char store_socket[108]; /* of this host's store; "": none */
    int ready_fd;           /* -1: nobody asked */

    struct host_memory memory;

    struct shared shared;   /* has its own lock */
    struct bulk_links bulk; /* likewise */

    _Atomic bool loop_thread_known; /* then loop_thread is constant */
    pthread_t loop_thread;
};

/* First in every call: NULL and fork. OK, EINVAL or EFORKED with the text set. */
plasmon_status_t client_enter(const struct plasmon_client *client) PL_MUST_CHECK;
bool client_on_loop_thread(const struct plasmon_client *client);
/* With the lock: run callbacks that became due, without it. Loop's thread or a caller's. */
void client_run_callbacks_unlock(struct plasmon_client *client);
/* pl_now_ns() + timeout; UINT64_MAX for PLASMON_FOREVER. */
uint64_t client_deadline(uint32_t timeout_ms);
/* Devices as Welcome or a StatusReply lists them. */
plasmon_status_t
client_set_devices_locked(struct plasmon_client *client, size_t count,
                          Plasmon__V1__Device *const *devices) PL_MUST_CHECK;
/* Where this host's store is; "": it has none. */
void client_set_store_locked(struct plasmon_client *client, const char *socket);
/* Ask the head for both again, for so long at most. Without the lock. */
plasmon_status_t client_refresh_devices(struct plasmon_client *client,
                                        uint32_t timeout_ms) PL_MUST_CHECK;
const struct client_device *client_device_locked(const struct plasmon_client *client,
                                                 uint32_t index); /* NULL: unknown */
/* Of the devices that we know of; 0: none has come yet, so the head will say what is too big. */
uint64_t client_largest_device_locked(const struct plasmon_client *client);
/* A text for the wire: UTF-8, not longer than max. */
plasmon_status_t client_check_text(const char *text, size_t bytes_max,
                                   const char *what) PL_MUST_CHECK;
/* The same of names and labels, which logs and tables show: without control characters. */
plasmon_status_t client_check_name(const char *text, size_t bytes_max,
                                   const char *what) PL_MUST_CHECK;

/*
 * A client of a cluster (options.address or $PLASMON_ADDRESS is set) without a session: for
 * client_unary() and what is made of it, and plasmon_finish(). A session is an input of the head,
 * which it has only when its journal has stored it; who only looks does not wait for that, counts
 * as nobody, and sees a cluster whose devices are still starting. Does not connect: the first call
 * does.
 */
plasmon_status_t client_ask_init(const struct plasmon_options *options,
                                 struct plasmon_client **out_client) PL_MUST_CHECK;
/* A unary call of the head; *out_bytes is the caller's. Without the lock. */
plasmon_status_t client_unary(struct plasmon_client *client, const char *path,
                              const ProtobufCMessage *message, uint8_t **out_bytes,
                              size_t *out_length) PL_MUST_CHECK;

/*
 * status.c: the cluster's status in an arena of its own, which the caller finishes on success.
 * Without the lock.
 */
enum client_status_what {
    CLIENT_STATUS_PLAIN,
    CLIENT_STATUS_PAIRS,  /* and what moved between which devices */
    CLIENT_STATUS_MEMORY, /* and who holds the memory, too */
    CLIENT_STATUS_WAITS,  /* and who waits for what */
};
plasmon_status_t client_status(struct plasmon_client *client, enum client_status_what what,
                               struct wire_arena *arena,
                               Plasmon__V1__StatusReply **out_reply) PL_MUST_CHECK;
/*
 * With who holds the memory: those with this in their name, their client's label, or that of what
 * they show; "": all.
 */
plasmon_status_t client_status_memory(struct plasmon_client *client, const char *label,
                                      struct wire_arena *arena,
                                      Plasmon__V1__StatusReply **out_reply) PL_MUST_CHECK;
/*
 * How a public call begins that makes a text of the head's status: client_status(), after the check
 * of its arguments.
 */
plasmon_status_t client_text_ask(struct plasmon_client *client,
                                 enum client_status_what what, char **out_text,
                                 struct wire_arena *arena,
                                 Plasmon__V1__StatusReply **out_reply) PL_MUST_CHECK;
/* Finishes `text`; *out_text is the program's, which has free(). ENOMEM. */
plasmon_status_t client_text_give(struct pl_str *text, char **out_text) PL_MUST_CHECK;
/* A status as one JSON object. */
void status_json(const Plasmon__V1__StatusReply *reply, struct pl_str *out);
/*
 * What of a host's memory and files has what devices have no room for, and what went there and
 * back: of `status` and `memory`.
 */
void status_spill_json(const Plasmon__V1__SpillHost *host, struct pl_str *out);
const char *status_device_state(const Plasmon__V1__Device *device);
/* How many are not gone: the others stay in the list, for their numbers. */
size_t status_devices_there(const Plasmon__V1__StatusReply *reply);

/* dispatch.c: refs became ready. */
void client_tell_ready_fd(struct plasmon_client *client);

/* submit.c */
struct submit_scratch *submit_scratch_create(void) PL_MUST_CHECK;
void submit_scratch_destroy(struct submit_scratch *scratch);

/*
 * wait.c: wait until the box of the ref is decided; its status, with the failure's text as this
 * thread's error.
 */
plasmon_status_t client_wait_ref_locked(struct plasmon_client *client, struct root *root,
                                        const struct pl_box *box,
                                        uint64_t deadline_ns) PL_MUST_CHECK;

/*
 * The ref failed, or (status ETIMEDOUT) is pending: that, with its text as this thread's error.
 * Else `status`.
 */
plasmon_status_t client_tell_state_locked(const struct plasmon_client *client,
                                          const struct root *root, const struct pl_box *box,
                                          plasmon_status_t status) PL_MUST_CHECK;

/* views.c: a snapshot of what the slot shows, as a new root with one handle. */
plasmon_status_t client_snapshot_locked(struct plasmon_client *client,
                                        struct ref_slot *slot,
                                        struct plasmon_ref **out_ref) PL_MUST_CHECK;
/* Release the handle, and the ref at the head if it was the last one. */
void client_close_ref_locked(struct plasmon_client *client, struct plasmon_ref *ref,
                             struct ref_slot *slot);

/*
 * copy.c: the part of `view` that lies in `box`, from a buffer that holds `frame` into the view's
 * elements in C order.
 */
void copy_view_out(void *dst, const struct pl_view *view, const struct pl_box *box,
                   const void *src, const struct pl_box *frame, uint32_t element_bytes);

#endif
