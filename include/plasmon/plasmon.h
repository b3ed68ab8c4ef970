/*
 * Plasmon: objects in device memory, functions that run where the objects are.
 *
 *     struct plasmon_client *px;
 *     plasmon_init(NULL, &px);                              // a private cluster, or PLASMON_ADDRESS
 *     plasmon_put(px, data, &shape, NULL, &a);              // host bytes -> an object on some device
 *     plasmon_submit(px, &call, &c, NULL);                  // returns at once with a ref to the result
 *     plasmon_get(px, c, out, bytes, PLASMON_FOREVER);      // waits and copies out
 *
 * Words
 *   object   bytes with a dtype and a shape of up to 8 dimensions, written once, then only read
 *   ref      a variable of this client that names an object. IN arguments read what it names at the
 *            moment of the call; OUT and INOUT make it name a new version. Older versions live on
 *            for who still reads them, and for plasmon_snapshot().
 *   view     a ref to a part of another ref's array: start, count, step a dimension. Writing
 *            through a view writes the array.
 *   task     one call of a function. Tasks of one client behave as if they ran one after the other,
 *            in the order of their submission; those that do not touch the same elements run at the
 *            same time.
 *
 * Memory: every ref that a call returns is owned by the caller and ends with plasmon_release().
 * Structs given to calls are borrowed for the call. Options start from PLASMON_..._INIT, and zero
 * means "default"; new fields are added at the end.
 *
 * Errors: every call returns a plasmon_status_t; plasmon_error(px) gives the calling thread the
 * text of its last failure: what was wrong, where, what to do. Outputs are set on success only.
 *
 * Threads: all calls are thread-safe. The order of tasks that several threads submit is the order
 * in which their calls took the client's lock.
 *
 * fork(): every call in a child that was forked while there was a client answers PLASMON_EFORKED,
 * plasmon_init() included. plasmon_abandon() frees the handle there, and so does plasmon_finish(),
 * which says nothing to the cluster then: one of them, once. Such a child may exec().
 * To have clients in several processes, fork before the first plasmon_init(), or after the last
 * plasmon_finish().
 */
#ifndef PLASMON_PLASMON_H
#define PLASMON_PLASMON_H

#include <stddef.h>
#include <stdint.h>

#include "plasmon/status.h"
#include "plasmon/version.h"

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define PLASMON_API __attribute__((visibility("default")))
#else
#define PLASMON_API
#endif

#define PLASMON_DIM_MAX  8
#define PLASMON_FOREVER  UINT32_MAX
#define PLASMON_ANYWHERE (-1)

/**
 * Element types. F16 to C128 can be stored and moved by all of Plasmon; functions say which they
 * compute with.
 */
typedef enum {
    PLASMON_BOOL = 1,
    PLASMON_I8   = 2,
    PLASMON_U8   = 3,
    PLASMON_I16  = 4,
    PLASMON_U16  = 5,
    PLASMON_I32  = 6,
    PLASMON_U32  = 7,
    PLASMON_I64  = 8,
    PLASMON_U64  = 9,
    PLASMON_F16  = 10,
    PLASMON_BF16 = 11,
    PLASMON_F32  = 12,
    PLASMON_F64  = 13,
    PLASMON_C64  = 14,
    PLASMON_C128 = 15
} plasmon_dtype_t;

/** How a task uses an argument. */
typedef enum {
    PLASMON_IN      = 1,
    PLASMON_OUT     = 2,
    PLASMON_INOUT   = 3,
    PLASMON_REDUCE  = 4,
    PLASMON_SCRATCH = 8
} plasmon_mode_t;

typedef enum {
    PLASMON_REDUCE_SUM  = 1,
    PLASMON_REDUCE_PROD = 2,
    PLASMON_REDUCE_MIN  = 3,
    PLASMON_REDUCE_MAX  = 4,
    PLASMON_REDUCE_AVG  = 5 /* collectives only */
} plasmon_reduce_t;

/** dtype and dimensions, slowest first; ndim 0 is one element. */
struct plasmon_shape {
    plasmon_dtype_t dtype;
    uint32_t ndim;
    int64_t dim[PLASMON_DIM_MAX];
};

struct plasmon_client;
struct plasmon_ref;
struct plasmon_mapping;

/* --------------------------------------------------------------------------------- life */

struct plasmon_options {
    size_t size; /* sizeof(struct plasmon_options): set by PLASMON_OPTIONS_INIT */
    /* "host:port" or "unix:/path"; NULL: $PLASMON_ADDRESS, else a private cluster */
    const char *address;
    /*
     * the cluster's, or a namespace's; NULL: $PLASMON_TOKEN, or the first line of
     * $PLASMON_TOKEN_FILE
     */
    const char *token;
    /* NULL: $PLASMON_NAMESPACE, else that of the token or certificate, else "default" */
    const char *name_space;
    const char *label; /* shown in `plasmon status`; NULL: program name */
    /*
     * private cluster: CPU devices where there is no GPU, or gpus is "none"; 0: 2 (1 with "none")
     */
    uint32_t cpu_devices;
    const char *gpus; /* private cluster: "auto" (NULL), "none", or a number */
    /* private cluster: bytes a CPU device may use; 0: a quarter of RAM over the devices */
    uint64_t device_memory;
    const char *transfer; /* private cluster: "auto" (NULL), "peer", "host", "nccl" */
    /* private cluster: placement "auto" (NULL), "locality", "round-robin", "pinned" */
    const char *policy;
    uint32_t connect_timeout_ms; /* 0: 20000 */
    /*
     * where plasmon-store and the others are; NULL: $PLASMON_BIN_DIR, beside libplasmon, then PATH
     */
    const char *bin_dir;
    /*
     * private cluster: check what functions write (docs/own-functions.md); 0: as $PLASMON_CHECK
     * says
     */
    int check_functions;
    /* private cluster: where library functions may come from; NULL: nowhere */
    const char *library_dir;
    /* private cluster: bytes that plasmon_host_alloc() may give in all; 0: a quarter of RAM */
    uint64_t host_memory;
    /* files in PEM, all three or none, for a head that speaks TLS; NULL: $PLASMON_TLS_CA */
    const char *tls_ca;
    const char *tls_cert; /* NULL: $PLASMON_TLS_CERT */
    const char *tls_key;  /* readable by its owner alone; NULL: $PLASMON_TLS_KEY */
    /*
     * private cluster: host memory for what devices have no room for (docs/memory.md); 0: an eighth
     * of RAM; PLASMON_NO_SPILL: none
     */
    uint64_t spill_memory;
    /*
     * private cluster: and files in these directories, "DIR[:LIMIT]" separated by commas; NULL:
     * none if spill_memory is given, else half of what is free in /var/tmp; "none": none
     */
    const char *spill_dirs;
    /*
     * private cluster: percent of a device's memory above which what was not used for long is
     * copied to host memory ahead of need; 0: 75; PLASMON_NO_WRITE_BACK: never
     */
    uint32_t write_back;
    /*
     * private cluster: not 0: what was spilled comes back when a task that reads it has its turn,
     * not before; to compare
     */
    int no_prefetch;
};
#define PLASMON_NO_SPILL      UINT64_MAX
#define PLASMON_NO_WRITE_BACK UINT32_MAX
#define PLASMON_OPTIONS_INIT                                                               \
    {                                                                                      \
        sizeof(struct plasmon_options), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, \
            0, 0, 0, 0                                                                     \
    }

/**
 * Connect to a cluster, or start a private one on this machine (one worker a GPU, or CPU devices
 * where there is none) that ends with this client, however it ends.
 *
 * @param options     Borrowed; NULL for defaults.
 * @param out_client  Set on success. Owned; ends with plasmon_finish().
 * @return PLASMON_OK, ECONNECT, EAUTH, EVERSION, ENOENT (programs not found), ETIMEDOUT, EINVAL,
 *     EFORKED (a child of a process that had a client when it forked). plasmon_error(NULL) has the
 *     text.
 */
PLASMON_API
plasmon_status_t plasmon_init(const struct plasmon_options *options,
                              struct plasmon_client **out_client);
/**
 * End the session: its refs go, its private cluster too. Waits for tasks in flight at most a
 * second. NULL is fine.
 */
PLASMON_API
void plasmon_finish(struct plasmon_client *client);
/** Free an inherited handle in a forked child, without a word to the cluster; elsewhere: plasmon_finish(). */
PLASMON_API
void plasmon_abandon(struct plasmon_client *client);
/**
 * Text of the calling thread's last failed call ("" if none); valid until its next call. client
 * may be NULL.
 */
PLASMON_API
const char *plasmon_error(const struct plasmon_client *client);
PLASMON_API
const char *plasmon_status_string(plasmon_status_t status);
PLASMON_API
const char *plasmon_status_name(plasmon_status_t status);
/** "0.1.0" */
PLASMON_API
const char *plasmon_version(void);
typedef void (*plasmon_log_fn)(void *user, int level, const char *module, const char *text);
/** Log lines of the library (0 error .. 4 trace); it prints nothing itself. Call before plasmon_init(). */
PLASMON_API
void plasmon_set_log(plasmon_log_fn fn, void *user, int level_max);

struct plasmon_device_info {
    int index; /* for placement hints */
    int kind;  /* 1 CPU, 2 CUDA */
    char name[96];
    char node[64];
    uint64_t bytes_total;
    int same_host; /* this process shares its host */
};
/**
 * Devices of the cluster, by index: fills up to `capacity`, sets *out_count to how many there
 * are. Those that have not come yet, or are gone for good, are left out, so indices may have gaps.
 * The devices of one host are numbered in its own order, in every run.
 */
PLASMON_API
plasmon_status_t plasmon_devices(struct plasmon_client *client,
                                 struct plasmon_device_info *infos, uint32_t capacity,
                                 uint32_t *out_count);

/* ------------------------------------------------------------------------------ objects */

struct plasmon_put_options {
    size_t size;
    /*
     * PLASMON_ANYWHERE, or a device's index (0 is one, so start from PLASMON_PUT_INIT); one that is
     * not there fails the ref
     */
    int device;
    int donatable;     /* an INOUT may overwrite it in place; default: it is copied first */
    const char *label; /* shown in errors and status, and with the value */
    /*
     * keeps two copies, on two hosts if there are two, and makes a lost one again: what is put
     * cannot be made again. EDEVMEM if there is no place for a second one; see docs/lineage.md
     */
    int replica;
};
#define PLASMON_PUT_INIT                                              \
    {                                                                 \
        sizeof(struct plasmon_put_options), PLASMON_ANYWHERE, 0, 0, 0 \
    }

/**
 * Copy host bytes into a new object.
 *
 * @param data   shape's bytes in C order, borrowed for the call: it may be changed as soon as this
 *     returns.
 * @return PLASMON_OK, ESHAPE, EDTYPE, ETOOBIG (no device could ever hold it), EDEVMEM, ECLOSED,
 *     EFORKED.
 */
PLASMON_API
plasmon_status_t plasmon_put(struct plasmon_client *client, const void *data,
                             const struct plasmon_shape *shape,
                             const struct plasmon_put_options *options,
                             struct plasmon_ref **out_ref);
/**
 * Wait for the object and copy it to host memory, in C order.
 *
 * @param bytes       Capacity of `data`; at least the object's size (ESHAPE otherwise).
 * @param timeout_ms  0 polls, PLASMON_FOREVER waits.
 * @return PLASMON_OK, ETIMEDOUT, ESHAPE, ERELEASED, EFOREIGN, ECLOSED, EFORKED, or the failure of
 *     the task that should have made it (plasmon_error: with the first failing task).
 */
PLASMON_API
plasmon_status_t plasmon_get(struct plasmon_client *client, struct plasmon_ref *ref,
                             void *data, size_t bytes, uint32_t timeout_ms);
/**
 * Wait for the object and map it read-only, without a copy, where its memory can be reached from
 * this process (a CPU device on this host). While mapped its bytes stay: writers get a new version.
 *
 * @param out_mapping Owned; ends with plasmon_unmap(). Stays as it is whoever dies, workers and
 *     stores included.
 * @return PLASMON_OK, EUNREACHABLE (use plasmon_get; for a moment also where plasmon-store of this
 *     host was replaced), ETIMEDOUT, or the task's failure.
 */
PLASMON_API
plasmon_status_t plasmon_map(struct plasmon_client *client, struct plasmon_ref *ref,
                             uint32_t timeout_ms, struct plasmon_mapping **out_mapping);
PLASMON_API
const void *plasmon_mapping_data(const struct plasmon_mapping *mapping);
/** Strides in elements, one a dimension of the ref (a view's mapping need not be contiguous). */
PLASMON_API
const int64_t *plasmon_mapping_strides(const struct plasmon_mapping *mapping);
PLASMON_API
void plasmon_unmap(struct plasmon_mapping *mapping);

/**
 * A view: part of `ref` (which may be a view). start, count, step have one number a dimension;
 * step NULL is all 1. Costs no message.
 *
 * @return PLASMON_OK, ERANGE (names the dimension), EINVAL (a task's ref), ERELEASED, EFOREIGN,
 *     ECLOSED, EFORKED.
 */
PLASMON_API
plasmon_status_t plasmon_view(struct plasmon_client *client, struct plasmon_ref *ref,
                              const int64_t *start, const int64_t *count,
                              const int64_t *step, struct plasmon_ref **out_view);
/**
 * A ref that goes on naming the present version of `ref` (or of the part a view shows), whatever
 * is written later.
 */
PLASMON_API
plasmon_status_t plasmon_snapshot(struct plasmon_client *client, struct plasmon_ref *ref,
                                  struct plasmon_ref **out_ref);
/** Shape of what the ref shows. Never waits. */
PLASMON_API
plasmon_status_t plasmon_shape_of(struct plasmon_client *client, struct plasmon_ref *ref,
                                  struct plasmon_shape *out_shape);
/** Let go. Tasks submitted before still run. NULL is fine; a second release is ERELEASED. */
PLASMON_API
plasmon_status_t plasmon_release(struct plasmon_client *client, struct plasmon_ref *ref);

/**
 * Give the present version a name in the namespace, so that it outlives this client and others
 * can find it. A name that is in use, by whomever, goes over to this version; who looked it up
 * before keeps what it found.
 *
 * @param name  1 to 256 bytes of UTF-8.
 * @param ref   NULL: remove the name.
 * @return PLASMON_OK, EINVAL (the name, a task's ref, in a callback), ELIMIT (a longer name),
 *     ENOENT (nothing to remove), ERELEASED, EFOREIGN, ECLOSED, EFORKED. Waits for the head's
 *     answer.
 */
PLASMON_API
plasmon_status_t plasmon_publish(struct plasmon_client *client, const char *name,
                                 struct plasmon_ref *ref);
/**
 * A ref to the version published under `name`. Writing to it makes a version of one's own.
 *
 * That version may have been published before it was made. Then the ref is pending until whatever
 * was to make it when it was looked up has ended, and ready or failed as that is. plasmon_state,
 * plasmon_wait, plasmon_on_ready and plasmon_ready_fd say so of all of its parts alike, views
 * included; what reads it (plasmon_get, plasmon_map, a call) waits for it, and fails with the part
 * that it reads. What makes it can be cancelled by the client alone that submitted that, by its own
 * ref: plasmon_cancel of this one is EFOREIGN. plasmon_finish does not wait for it.
 *
 * @param out_ref  Owned.
 * @return PLASMON_OK, EINVAL (the name; in a callback), ELIMIT (a longer name), ENOENT (nothing has
 *     it in this namespace), ECLOSED, EFORKED. Waits for the head's answer.
 */
PLASMON_API
plasmon_status_t plasmon_lookup(struct plasmon_client *client, const char *name,
                                struct plasmon_ref **out_ref);

/* -------------------------------------------------------------------------- host memory */

/**
 * Page-locked memory that the devices of this host copy from and to themselves: a put from it and
 * a get into it are one DMA each, in the one order of the device's work, with no copy by a CPU and
 * no round trip in between (docs/transfers.md):
 *
 *     plasmon_host_alloc(px, bytes, (void **)&in);  plasmon_host_alloc(px, bytes, (void **)&out);
 *     for (..) {
 *         fill(in);
 *         plasmon_put_async(px, in, &shape, NULL, &x);
 *         plasmon_submit(px, &call, &y, NULL);            // reads x, makes y
 *         plasmon_get_async(px, y, out, bytes, &got);
 *         plasmon_wait(px, &got, 1, 1, PLASMON_FOREVER, NULL, NULL);    // the first wait of all
 *         use(out);
 *     }
 *
 * OWNERSHIP   The memory is the caller's until plasmon_host_free(), at the latest
 *             plasmon_finish(). Its content is not defined at first.
 * ON ITS WAY  A copy has its range from the call that starts it until its ref is ready or failed:
 *             plasmon_wait(), plasmon_on_ready() or plasmon_ready_fd() tell. A put's range may be
 *             read meanwhile, and put again; a get's not even that. A call that would break this
 *             fails with EBUSY and starts nothing. (A session that dies fails all refs at once,
 *             with ECLOSED or EHEADLOST, and says nothing about copies on the devices: the bytes
 *             are undefined then.)
 * PUT, GET    plasmon_put() and plasmon_get() (that waits for ever) of more than 256 KiB of it go
 *             the same way on a GPU, and return when the copy is over.
 * FAILURES    A worker that dies is replaced, and the copies that were not done are done again. The
 *             memory stays. So it does when the store dies; if all its workers died, too, it is
 *             ordinary memory from then on.
 * LIMIT       All clients of a host together may have so much (plasmon-store --host-memory; a
 *             quarter of the RAM): ELIMIT says how much is in use. What was freed counts until the
 *             devices have let go of it, which they do when they have nothing to do;
 *             plasmon_host_alloc() waits a second for that.
 * SPEED       Allocating costs about a quarter of a second a GiB: do it once. Few large pieces; at
 *             most 1024 on a host.
 * NO DEVICE   Without a device on this host, or while it is drained, and with devices of other hosts,
 *             the same calls do the same by the ordinary ways, and cost what those do.
 * FORK        The child shares the memory's bytes with the parent and may neither free it nor start
 *             copies; plasmon_abandon() unmaps it.
 * THREADS     Any. Many copies may be on their way at once.
 *
 * @param out_data  Set on success: page-aligned.
 * @return PLASMON_OK, EINVAL (0 bytes; in a callback), ELIMIT, ENOMEM (also: a device cannot
 *     page-lock it), ETIMEDOUT (also: plasmon-store of this host has died, and none followed it
 *     within a minute), ECLOSED, EFORKED.
 */
PLASMON_API
plasmon_status_t plasmon_host_alloc(struct plasmon_client *client, size_t bytes,
                                    void **out_data);
/**
 * Free what plasmon_host_alloc() gave, by the same address. NULL is fine.
 *
 * @return PLASMON_OK, EBUSY (copies are on their way: nothing is freed), EINVAL (not such an
 *     address), EFORKED.
 */
PLASMON_API
plasmon_status_t plasmon_host_free(struct plasmon_client *client, void *data);
/**
 * plasmon_put() that returns at once: the bytes are read later. `data` lies in memory of
 * plasmon_host_alloc(); the range may be changed when the ref is ready. Calls that use the ref may
 * be submitted at once.
 *
 * @param options As plasmon_put(). With PLASMON_ANYWHERE the object comes to a device of this host.
 * @return as plasmon_put(); EBUSY: a get into the range is on its way; ERANGE: the shape's bytes
 *     leave the memory; EINVAL: it is no such memory; ELIMIT: 4096 copies are on their way; EAGAIN
 *     (in a callback, see plasmon_submit()).
 */
PLASMON_API
plasmon_status_t plasmon_put_async(struct plasmon_client *client, const void *data,
                                   const struct plasmon_shape *shape,
                                   const struct plasmon_put_options *options,
                                   struct plasmon_ref **out_ref);
/**
 * plasmon_get() that returns at once: what the ref shows now - what was submitted before this
 * call makes - is written to `data`, in C order, as soon as it is there. Writing the ref later does
 * not disturb it.
 *
 * @param data      In memory of plasmon_host_alloc().
 * @param bytes Room there; at least what the ref shows (ESHAPE otherwise), and only that much of it
 *     is used.
 * @param out_task A ref that becomes ready when the bytes are there, or fails as the task that
 *     should have made them. Owned.
 * @return PLASMON_OK, ESHAPE, EBUSY (another copy is at the range), ERANGE, EINVAL, ELIMIT,
 *     ERELEASED, EFOREIGN, EAGAIN, ECLOSED, EFORKED.
 */
PLASMON_API
plasmon_status_t plasmon_get_async(struct plasmon_client *client, struct plasmon_ref *ref,
                                   void *data, size_t bytes, struct plasmon_ref **out_task);

/* -------------------------------------------------------------------------------- tasks */

struct plasmon_arg {
    plasmon_mode_t mode;
    /* IN, INOUT, REDUCE; OUT into an existing ref or view. NULL: OUT makes a new ref */
    struct plasmon_ref *ref;
    /* OUT with ref NULL, SCRATCH: stated shape; NULL: the function's shape rule decides */
    const struct plasmon_shape *shape;
    plasmon_reduce_t reduce_op; /* REDUCE */
    int relaxed; /* REDUCE: the order of folding need not be the order of submission */
};
typedef union {
    int64_t i;
    double f;
} plasmon_scalar_t;

struct plasmon_call {
    size_t size;
    const char *function;           /* see `plasmon functions` */
    const struct plasmon_arg *args; /* in the order of the signature */
    uint32_t arg_count;
    /* small values, in the order of the signature: .i or .f as it says */
    const plasmon_scalar_t *scalars;
    uint32_t scalar_count;
    const char *label; /* shown in errors and status, and with what it writes */
    int device; /* PLASMON_ANYWHERE, or a device's index; one that is not there fails the task */
    int retries; /* after system failures; -1: the cluster's default */
    /*
     * Source and library functions only; built-in ones choose for themselves. All 0: a block as the
     * occupancy heuristic suggests and min(ceil(elements of the largest tensor / block), 32 a
     * multiprocessor) blocks, in one dimension. block alone: as many such blocks. A 0 behind a
     * number counts as 1.
     */
    uint32_t grid[3];
    uint32_t block[3];
    uint32_t shared_bytes; /* dynamic shared memory a block */
    /* from when it begins on the device: then it is ended and fails with ETIMELIMIT; 0: none */
    uint32_t time_limit_ms;
    int priority; /* 1 before others, -1 after them, where that changes no result; see docs/ordering.md */
    /* so often again when the function itself reports an error; needs lineage (docs/lineage.md) */
    uint32_t function_retries;
};
#define PLASMON_CALL_INIT                                                                 \
    {                                                                                     \
        sizeof(struct plasmon_call), 0, 0, 0, 0, 0, 0, PLASMON_ANYWHERE, -1, {0}, {0}, 0, \
            0, 0, 0                                                                       \
    }

/**
 * Submit a task. Returns at once, without a round trip; a wrong call (dtype, shape, arity,
 * unknown function) fails here.
 *
 * @param out_refs One a new OUT argument (ref NULL), in order; owned. May be NULL when there is
 *     none.
 * @param out_task NULL, or a ref that becomes ready when the task is done: to wait for, cancel,
 *     release. Owned.
 *
 * Blocks only while as many tasks are in flight as the head allows (a million). In a callback it
 * answers EAGAIN instead.
 *
 * @return PLASMON_OK, EINVAL, ENOFUNCTION, EARITY, EDTYPE, ESHAPE, ERELEASED, EFOREIGN, ETOOBIG,
 *     ELIMIT, EAGAIN, ECLOSED, EFORKED; EGRAPH: a ref is made by what another thread records, or
 *     by a recording that was thrown away.
 */
PLASMON_API
plasmon_status_t plasmon_submit(struct plasmon_client *client,
                                const struct plasmon_call *call,
                                struct plasmon_ref **out_refs,
                                struct plasmon_ref **out_task);

/* -------------------------------------------------------------------- record and replay */

/**
 * A recorded sequence of calls, sent once and launched many times by one small message each (docs/graphs.md).
 *
 *     plasmon_graph_begin(px, &graph);
 *     plasmon_submit(px, &step, &t, NULL);            // recorded, not run; t is a ref to use in what follows
 *     plasmon_submit(px, &next, NULL, NULL);
 *     plasmon_release(px, t);                         // a temporary: nobody outside will see it
 *     plasmon_graph_end(px, graph);
 *     for (..) plasmon_graph_launch(px, graph, NULL, 0, NULL, 0, NULL);
 *
 * A launch does what submitting the same calls again would do, with the bits that would give: it is
 * one task in the order of submission, and reads and writes what the refs name then. What differs:
 * refs made inside and released before end are temporaries of each launch; refs made inside and
 * kept name the newest launch's version (before the first: EGRAPH); and a launch fails as a whole:
 * when one of its calls fails, plasmon_state() of all that it writes says so.
 *
 * A graph keeps the refs that it was recorded with, and those that it makes, until it is released.
 */
struct plasmon_graph;

/**
 * For one launch, `ref` takes the place of the array that `recorded` is, or is a view of. Both
 * whole arrays of one dtype and shape.
 */
struct plasmon_graph_binding {
    struct plasmon_ref *recorded;
    struct plasmon_ref *ref; /* a whole array, no view */
};
/**
 * For one launch, another value for a scalar: of recorded call number `call`, from 0; or of every
 * call with this label.
 */
struct plasmon_graph_scalar {
    const char *label; /* NULL: `call` says which */
    uint32_t call;
    uint32_t position; /* which of the call's scalars */
    plasmon_scalar_t value;
};

/**
 * Begin to record: until plasmon_graph_end(), plasmon_submit() of this thread is recorded instead
 * of run. All other calls, and other threads, work as always; but what is made inside has no
 * content yet.
 *
 * @param out_graph  Owned; ends with plasmon_graph_release().
 * @return PLASMON_OK, EGRAPH (this thread records another), ENOMEM, ECLOSED, EFORKED.
 */
PLASMON_API
plasmon_status_t plasmon_graph_begin(struct plasmon_client *client,
                                     struct plasmon_graph **out_graph);
/**
 * The recording is complete. Placement is decided now, by where arrays are now.
 *
 * @return PLASMON_OK, EGRAPH (not recording, another thread's, or nothing was recorded), ECLOSED.
 */
PLASMON_API
plasmon_status_t plasmon_graph_end(struct plasmon_client *client,
                                   struct plasmon_graph *graph);
/**
 * Run it once more. Returns at once, like plasmon_submit().
 *
 * @param bindings  Borrowed; NULL with count 0: on the refs of the recording.
 * @param scalars   Borrowed; what is not named has its recorded value.
 * @param out_task  NULL, or a ref that becomes ready when all of the launch is done. Owned.
 *
 * @return PLASMON_OK; EGRAPH: not ended, recorded ref not used in it, two refs of one array of
 *     which one is written; ESHAPE, EDTYPE: a ref is not what was recorded (the text says which,
 *     and what fits), or a scalar would change a shape; EINVAL: no such call or scalar; ERELEASED,
 *     EFOREIGN, EAGAIN, ECLOSED, EFORKED.
 */
PLASMON_API
plasmon_status_t plasmon_graph_launch(struct plasmon_client *client,
                                      struct plasmon_graph *graph,
                                      const struct plasmon_graph_binding *bindings,
                                      uint32_t binding_count,
                                      const struct plasmon_graph_scalar *scalars,
                                      uint32_t scalar_count, struct plasmon_ref **out_task);
/**
 * Let go; launches under way still run. While it records: throws the recording away. What it made
 * answers EGRAPH for good if it was never launched. NULL is fine.
 */
PLASMON_API
plasmon_status_t plasmon_graph_release(struct plasmon_client *client,
                                       struct plasmon_graph *graph);

/* ------------------------------------------------------------------------- index launch */

#define PLASMON_INDEX_DIM_MAX 3

/**
 * The view of one argument at index i: start[d] + sum of step_of[d][k] * i[k], in elements of
 * what the ref shows.
 */
struct plasmon_index_view {
    int64_t start[PLASMON_DIM_MAX];
    int64_t count[PLASMON_DIM_MAX];
    int64_t step[PLASMON_DIM_MAX]; /* all 0: all 1 */
    int64_t step_of[PLASMON_DIM_MAX][PLASMON_INDEX_DIM_MAX];
};
typedef enum {
    PLASMON_SPREAD_NONE = 0, /* call.device, or the policy for each instance */
    /* the first n-th of the instances on the first of n devices, and so on */
    PLASMON_SPREAD_BLOCK       = 1,
    PLASMON_SPREAD_ROUND_ROBIN = 2 /* instance after instance on the next device */
} plasmon_spread_t;

/** An index space, and what of a call depends on the index. */
struct plasmon_index_space {
    size_t size;
    uint32_t ndim;                         /* 1 to 3; the last dimension is the fastest */
    uint32_t count[PLASMON_INDEX_DIM_MAX]; /* at most 65536 points in all */
    /* one an argument; NULL, or NULL in it: all of what the ref shows */
    const struct plasmon_index_view *const *views;
    /* NULL, or for each scalar ndim numbers of its type: added once a step */
    const plasmon_scalar_t *scalar_steps;
    plasmon_spread_t spread;
};
#define PLASMON_INDEX_SPACE_INIT                                              \
    {                                                                         \
        sizeof(struct plasmon_index_space), 0, {0}, 0, 0, PLASMON_SPREAD_NONE \
    }

/**
 * Submit one instance of the call for each point of the index space by one message: the same as a
 * loop of plasmon_submit(), in index order, with a view for each argument. A mapping that does not
 * fit (range, shape, dtype) fails here, and the text names the index.
 *
 * An OUT argument without a ref makes one array, of args[].shape, of which each instance writes its
 * view (steps 1); what no instance writes has no content, and reading it fails with EINVAL.
 *
 * @param out_refs  One a new OUT argument, in order; owned.
 * @param out_task NULL, or a ref that becomes ready when all instances are done. Owned.
 * @return as plasmon_submit(); ERANGE: a view lies outside; ELIMIT: more than 65536 points; EGRAPH:
 *     this thread records.
 */
PLASMON_API
plasmon_status_t plasmon_submit_index(struct plasmon_client *client,
                                      const struct plasmon_call *call,
                                      const struct plasmon_index_space *space,
                                      struct plasmon_ref **out_refs,
                                      struct plasmon_ref **out_task);

/* -------------------------------------------------------------------------- collectives */

/*
 * All-reduce and the like over arrays on many devices (docs/collectives.md): one task each, by one
 * message. The bytes go from device to device, and each device does its share.
 *
 *     plasmon_all_reduce(px, PLASMON_REDUCE_AVG, gradients, 4, NULL, averages, NULL);
 *                                                    // four refs, one on each device
 *
 * MEMBERS   `count` refs, views too, of one dtype and one shape; usually one on each device, but
 *           any place will do. Parts (gather, scatter, all-to-all) are along the first dimension.
 * RESULTS   New refs, owned; or, with options->into, these refs or views are written, in whole.
 *           They may be the members themselves: all members are read before any result is written.
 *           Results of one call must not overlap.
 * DEVICES   Result i comes to options->devices[i]; without, to where member i lies (of a broadcast:
 *           what into[i] was), so that the next task on it finds it there. Two results may be on
 *           one device.
 * ORDER     Of an element x0 op tree(x1, x2, ...), in the order of the refs, the tree joining
 *           neighbours pairwise, level by level, as of REDUCE arguments. It does not depend on
 *           sizes, devices or routes: the same members give the same bits, in all results. AVG is
 *           the sum times 1/count, both rounded to the dtype.
 * DTYPES    Moving: all. Reducing: f16, bf16, f32, f64; i32, i64 (no AVG); c64, c128 (SUM, PROD).
 *           16-bit floats are rounded after each step.
 * FUTURES   A collective succeeds or fails as a whole: what fails one result fails all of them,
 *           with the first cause. plasmon_cancel() of one result cancels all. An input that fails
 *           fails it, with EDEPENDENCY.
 *
 * All return as plasmon_submit() does: EINVAL (NULLs, options, device), EDTYPE and ESHAPE (the text
 * names the ref), ELIMIT (over PLASMON_COLLECTIVE_MAX), EGRAPH (a collective cannot be recorded in
 * a graph yet), ERELEASED, EFOREIGN, ETOOBIG, EAGAIN, ECLOSED, EFORKED.
 */
#define PLASMON_COLLECTIVE_MAX 64

/*
 * How a reduction gets the members of other devices. Neither is an order: where a way cannot be
 * gone, the other one is.
 */
typedef enum plasmon_collective_way {
    PLASMON_WAY_AUTO = 0,
    /* the function that reduces reads their memory: soonest, where they can be reached */
    PLASMON_WAY_DIRECT = 1,
    /* copy engines bring them: no multiprocessor waits for their bytes */
    PLASMON_WAY_COPIES = 2,
    /*
     * All-reduce, reduce-scatter, all-gather: by NCCL, on GPUs of one host, with one member a
     * device, which is all of an array, and result i where member i is. The order of its sums is
     * NCCL's own: the bits of floats may differ from those of the other ways, and, if a worker dies
     * on the way, between results. What cannot go like that goes as if nothing had been said.
     */
    PLASMON_WAY_NCCL = 3,
    /* Whichever is expected to take least, NCCL among them: as of NCCL, the bits of floats may differ. */
    PLASMON_WAY_FASTEST = 4
} plasmon_collective_way_t;

struct plasmon_collective_options {
    size_t size;
    const int *devices; /* one a result; NULL: see above */
    /* one a result, and out_refs may be NULL; NULL: new refs */
    struct plasmon_ref *const *into;
    const char *label;
    /* enum plasmon_collective_way; AUTO is NCCL only where the bits are the same: of integers */
    uint32_t way;
};
#define PLASMON_COLLECTIVE_INIT                               \
    {                                                         \
        sizeof(struct plasmon_collective_options), 0, 0, 0, 0 \
    }

/** Every result is the reduction of all members. `count` results, of the members' shape. */
PLASMON_API
plasmon_status_t plasmon_all_reduce(struct plasmon_client *client, plasmon_reduce_t op,
                                    struct plasmon_ref *const *refs, uint32_t count,
                                    const struct plasmon_collective_options *options,
                                    struct plasmon_ref **out_refs,
                                    struct plasmon_ref **out_task);
/** One result: the reduction of all members, where refs[root] lies. */
PLASMON_API
plasmon_status_t plasmon_reduce(struct plasmon_client *client, plasmon_reduce_t op,
                                struct plasmon_ref *const *refs, uint32_t count,
                                uint32_t root,
                                const struct plasmon_collective_options *options,
                                struct plasmon_ref **out_ref,
                                struct plasmon_ref **out_task);
/**
 * `count` results, copies of ref: on options->devices, or into options->into (one of the two must
 * be given).
 */
PLASMON_API
plasmon_status_t plasmon_broadcast(struct plasmon_client *client, struct plasmon_ref *ref,
                                   uint32_t count,
                                   const struct plasmon_collective_options *options,
                                   struct plasmon_ref **out_refs,
                                   struct plasmon_ref **out_task);
/** Every result is all members one after the other: of shape [a, ..], [count * a, ..]. */
PLASMON_API
plasmon_status_t plasmon_all_gather(struct plasmon_client *client,
                                    struct plasmon_ref *const *refs, uint32_t count,
                                    const struct plasmon_collective_options *options,
                                    struct plasmon_ref **out_refs,
                                    struct plasmon_ref **out_task);
/** Result i is part i of the reduction of all members: of shape [count * a, ..], [a, ..]. */
PLASMON_API
plasmon_status_t plasmon_reduce_scatter(struct plasmon_client *client, plasmon_reduce_t op,
                                        struct plasmon_ref *const *refs, uint32_t count,
                                        const struct plasmon_collective_options *options,
                                        struct plasmon_ref **out_refs,
                                        struct plasmon_ref **out_task);
/** Result i is part i of member 0, of member 1, ...: of shape [count * a, ..], the same. */
PLASMON_API
plasmon_status_t plasmon_all_to_all(struct plasmon_client *client,
                                    struct plasmon_ref *const *refs, uint32_t count,
                                    const struct plasmon_collective_options *options,
                                    struct plasmon_ref **out_refs,
                                    struct plasmon_ref **out_task);

/**
 * Send what was batched up, now. (It goes by itself within a fraction of a millisecond, and
 * before any wait.)
 */
PLASMON_API
plasmon_status_t plasmon_flush(struct plasmon_client *client);

/**
 * Wait until `need` of the refs are ready or failed.
 *
 * @param out_ready  NULL, or one int a ref: 1 ready, 0 pending, a negative plasmon_status_t if it
 *     failed.
 * @param out_count  NULL, or how many are not pending.
 * @return PLASMON_OK, ETIMEDOUT (outputs are set), EINVAL, ERELEASED.
 */
PLASMON_API
plasmon_status_t plasmon_wait(struct plasmon_client *client,
                              struct plasmon_ref *const *refs, uint32_t count,
                              uint32_t need, uint32_t timeout_ms, int *out_ready,
                              uint32_t *out_count);
/**
 * PLASMON_OK ready, INPROGRESS, or how it failed (plasmon_error has the text with the first
 * failing task). Never waits.
 */
PLASMON_API
plasmon_status_t plasmon_state(struct plasmon_client *client, struct plasmon_ref *ref);
/**
 * Ask that the task that makes this ref not run: it then fails with ECANCELLED, and what needs
 * its result with EDEPENDENCY. Too late (it is on the device already) is no error: it runs, and the
 * ref becomes ready. EFOREIGN: the ref was looked up (plasmon_lookup), and what is yet to make it
 * was there before.
 */
PLASMON_API
plasmon_status_t plasmon_cancel(struct plasmon_client *client, struct plasmon_ref *ref);
/**
 * The same for many at once, in one message. A ref that is released or foreign fails the call,
 * and nothing is cancelled.
 */
PLASMON_API
plasmon_status_t plasmon_cancel_many(struct plasmon_client *client,
                                     struct plasmon_ref *const *refs, uint32_t count);
/**
 * End the task that makes this ref even if it runs. It fails with ECANCELLED at once. On the
 * device only the end of its worker ends a running kernel: other work there has a second to finish,
 * then the worker is killed and replaced. Objects live on, and what had not finished runs again; a
 * task that was overwriting its input in place then cannot, and fails with ECONSUMED.
 */
PLASMON_API
plasmon_status_t plasmon_cancel_force(struct plasmon_client *client,
                                      struct plasmon_ref *ref);

typedef void (*plasmon_ready_fn)(void *user, plasmon_status_t status);
/**
 * Call fn once when the ref is ready or failed: on the library's thread (do not block it, do not
 * call plasmon_finish there), or in this call if it already is.
 */
PLASMON_API
plasmon_status_t plasmon_on_ready(struct plasmon_client *client, struct plasmon_ref *ref,
                                  plasmon_ready_fn fn, void *user);
/**
 * A descriptor that polls readable whenever refs became ready or failed since the last read of
 * its 8 bytes (an eventfd), and when the session has ended, with which all of them fail. Owned by
 * the client.
 */
PLASMON_API
plasmon_status_t plasmon_ready_fd(struct plasmon_client *client, int *out_fd);

/* --------------------------------------------------------------- functions of one's own */

/*
 * A function of the session, besides the built-in ones. docs/own-functions.md has the whole story.
 * Its signature:
 *
 *   saxpy(inout f32[n] y, in f32[n] x, f32 a, i64 n := n)
 *
 *   tensors     MODE DTYPE[DIM, ..] NAME        MODE is in, out, inout, reduce(sum|prod|min|max) or scratch
 *   scalars     DTYPE NAME                      given by the caller: .i for integers and bool, .f for f32 and f64
 *   computed    INTEGER-DTYPE NAME := DIM       passed to the kernel at its place, not given by the caller
 *   DIM         names, integers, + - * / and parentheses, over dimensions and the integer scalars
 *               of the call. A name is bound by the first argument that shows it; outputs and
 *               scratch get their shapes from it
 *
 * A kernel gets exactly these parameters, in this order: for a tensor a pointer to its first
 * element, for the rest the value. Tensors are contiguous, unless written f32[n,m]~ NAME: then one
 * i64 stride (in elements) a dimension follows the pointer.
 */
struct plasmon_source_options {
    size_t size;
    /*
     * variant for CPU devices: a C function NAME with these parameters, void or int (0: well);
     * NULL: none
     */
    const char *c_text;
    const char *nvrtc_options; /* more options for the CUDA compiler, separated by spaces */
    /* name of the __global__ and of the C function; NULL: the function's name */
    const char *entry;
};
#define PLASMON_SOURCE_OPTIONS_INIT                    \
    {                                                  \
        sizeof(struct plasmon_source_options), 0, 0, 0 \
    }

/**
 * Make a function of source text: CUDA C for GPUs, C for CPU devices. From the next submit on it
 * is called by its name, like a built-in one. Returns without waiting for the compiler: what it
 * objects to fails the calls that use the function with ECOMPILE and its log (plasmon_function_wait
 * asks at once). Compiled once for each content and architecture, and kept on disk (not if it
 * includes "files" in quotes, or the options name folders of headers: those may change).
 *
 * @param cuda_c_text  With a __global__ function `name` (extern "C" or not). NULL: CPU devices
 *     only.
 * @param options      NULL: CUDA only.
 * @return PLASMON_OK (also when the name has this very content already), EEXIST (the name has other
 *     content, or is a built-in function's), EINVAL (signature, texts), ELIMIT (a text over 1 MiB,
 *     over 1024 functions), ECLOSED, EFORKED.
 */
PLASMON_API
plasmon_status_t plasmon_function_source(struct plasmon_client *client, const char *name,
                                         const char *cuda_c_text, const char *signature,
                                         const struct plasmon_source_options *options);
/**
 * Make a function of a shared object that lies in the library folder of the workers
 * (--library-dir); its entry point is in plasmon/function.h. A worker without such a folder is not
 * used for it.
 *
 * @param path    Inside that folder.
 * @param symbol  The entry point.
 * @return As plasmon_function_source.
 */
PLASMON_API
plasmon_status_t plasmon_function_library(struct plasmon_client *client, const char *name,
                                          const char *path, const char *symbol,
                                          const char *signature);
/**
 * Wait until one device of each kind that the function is for has compiled (loaded) it.
 *
 * @return PLASMON_OK, ECOMPILE (plasmon_error has the log), ENOFUNCTION, ENOTSUP or EPERM (no
 *     device can or may run it), ENOLIB, ENOENT (no such library or symbol), EFUNCTION (what
 *     SYMBOL_prepare answered), EWORKER (the library crashes when it is loaded), ETIMEDOUT.
 */
PLASMON_API
plasmon_status_t plasmon_function_wait(struct plasmon_client *client, const char *name,
                                       uint32_t timeout_ms);

/* ---------------------------------------------------------------------------- timelines */

typedef enum {
    PLASMON_SPAN_RUN  = 0,
    PLASMON_SPAN_COPY = 1, /* on the device, or from a peer */
    PLASMON_SPAN_SEND = 2, /* host route: the source's half ... */
    PLASMON_SPAN_RECV = 3, /* ... and the destination's */
    PLASMON_SPAN_PUT  = 4,
    PLASMON_SPAN_READ = 5
} plasmon_span_kind_t;

/** When something ran. Nanoseconds of CLOCK_REALTIME; 0: not known. Texts live until plasmon_finish(). */
struct plasmon_span {
    uint64_t submit_ns;   /* plasmon_submit() */
    uint64_t placed_ns;   /* the head chose the device */
    uint64_t enqueued_ns; /* the worker gave it to the device */
    uint64_t begin_ns; /* on the device, by its clock brought into line with its host's */
    uint64_t end_ns;
    uint64_t bytes; /* moved, or all operands of a function */
    uint64_t task;  /* 0: put in by the head (a copy, say) */
    uint64_t client;
    uint64_t launch; /* number on its device */
    uint32_t device;
    uint32_t stream;
    uint32_t kind; /* plasmon_span_kind_t */
    /* 0 local, 1 peer, 2 host, 3 nccl, 4 with messages; if bytes were moved */
    uint32_t route;
    uint32_t peer; /* the other device */
    uint32_t reserved;
    const char *function; /* or what kind of transfer */
    const char *label;
};

struct plasmon_timeline_options {
    size_t size;
    /* kept here, the newest; 0: 1048576 (112 bytes each, as they come) */
    uint32_t spans_max;
};
#define PLASMON_TIMELINE_INIT                      \
    {                                              \
        sizeof(struct plasmon_timeline_options), 0 \
    }

/**
 * Record when tasks and transfers run, of all clients and devices of the cluster, from now on.
 * What an earlier recording kept goes. While nobody records, nothing is spent on it; while somebody
 * does, two events a launch.
 *
 * @return PLASMON_OK, EEXIST (this client records already), ETIMEDOUT, ECLOSED.
 */
PLASMON_API
plasmon_status_t plasmon_timeline_start(struct plasmon_client *client,
                                        const struct plasmon_timeline_options *options);
/** Stop. What was over when this was called is here when it returns. */
PLASMON_API
plasmon_status_t plasmon_timeline_stop(struct plasmon_client *client);
/**
 * What was recorded, oldest first as it was reported: fills up to `capacity`, sets *out_count to
 * how many there are. May be called while recording. out_dropped (may be NULL): how many were lost
 * for want of room, here or on the way.
 */
PLASMON_API
plasmon_status_t plasmon_timeline_spans(struct plasmon_client *client,
                                        struct plasmon_span *spans, size_t capacity,
                                        size_t *out_count, uint64_t *out_dropped);
/**
 * Write it as a trace for ui.perfetto.dev or chrome://tracing, and draw it (SVG). Either path may
 * be NULL.
 */
PLASMON_API
plasmon_status_t plasmon_timeline_write(struct plasmon_client *client,
                                        const char *json_path, const char *svg_path);

/* -------------------------------------------------------------------- functions, status */

struct plasmon_function_info {
    const char *name;
    const char *signature;
    const char *doc;
};
/** Function number `index` of the catalogue; ENOENT past the end. Texts are constant. */
PLASMON_API
plasmon_status_t plasmon_function_at(uint32_t index,
                                     struct plasmon_function_info *out_info);
/**
 * Who waits for what, for how long, and what to do about it: for a program that does not go on.
 * In words, or (json not 0) as one JSON object (docs/operations.md); `plasmon doctor --address`
 * prints the same. *out_text is malloc'ed; the caller frees it.
 *
 * Threads: any, but not in a callback. Waits for the head, and half a second for workers that do not answer.
 */
PLASMON_API
plasmon_status_t plasmon_doctor(struct plasmon_client *client, int json, char **out_text);
/**
 * Status of the cluster as one JSON object (see docs/operations.md). *out_text is malloc'ed; the
 * caller frees it.
 */
PLASMON_API
plasmon_status_t plasmon_status_json(struct plasmon_client *client, char **out_text);

#ifdef __cplusplus
}
#endif

#endif
