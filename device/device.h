/*
 * Devices: one ops table, two implementations. A device has memory in chunks that can be exported
 * as descriptors and mapped by other processes, in-order streams, timelines (64-bit words in shared
 * host memory that streams write and wait for), copies and launches. `cuda` is a GPU through the
 * driver API, found at run time; `cpu` has the same parts: memfds, threads, futexes. One contract
 * test suite runs against both.
 *
 * Threads: a device may be used from any thread; calls on one stream must not overlap. Nothing here
 * blocks on work in a stream except device_stream_sync(), device_close() and
 * device_stream_destroy().
 *
 * Plain C for .cu files: no _Atomic here.
 */
#ifndef DEVICE_DEVICE_H
#define DEVICE_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/box.h"
#include "base/str.h"
#include "plasmon/status.h"

enum device_kind {
    DEVICE_CPU  = 1,
    DEVICE_CUDA = 2,
};

/* An address that only the device may dereference (on a CPU device the host may too: device_ptr_host()). */
struct device_ptr {
    uint64_t addr;
};
static inline struct device_ptr device_ptr_add(struct device_ptr base, uint64_t offset)
{
    return (struct device_ptr){.addr = base.addr + offset};
}

struct device_info {
    enum device_kind kind;
    uint32_t ordinal;
    char name[96];
    uint8_t uuid[16];
    uint64_t bytes_total;
    uint32_t multiprocessors; /* CPU: stream threads */
    uint32_t compute_major;
    uint32_t compute_minor;
    int numa_node;      /* -1: unknown */
    bool notify_stalls; /* device_notify() holds up its stream: better look at the words */
    uint64_t chunk_granularity;
    bool early_start; /* kernels that have DEVICE_EARLY_MARK may begin early */
    bool mps; /* the multi-process service: an error of one process ends all contexts */
    char pci[24];
};

enum device_open_step {
    DEVICE_OPENED_CONTEXT,   /* it has a context */
    DEVICE_OPENED_LIBRARIES, /* and cuBLAS is at hand, or is not there */
};

struct device_config {
    /* CPU: how much memory the device pretends to have; 0: a quarter of the host's RAM */
    uint64_t bytes_max;
    uint32_t cpu_threads; /* CPU: threads a kernel may use; 0: 1 */
    bool cpu_guard_pages; /* tests */
    bool cublas_later;    /* CUDA: cuBLAS is left to device_cublas_start() */
    /*
     * A launch failed that had been taken; may be NULL. Before anything behind it in the stream
     * runs: on the stream's thread (CPU), or on the thread that flushes the stream (CUDA,
     * device_launch_soon()).
     */
    void (*launch_failed)(void *user, uint64_t tag);
    /*
     * A step of opening is over, for who measures; may be NULL. On the thread that opens. CPU
     * devices have no such steps.
     */
    void (*opened)(void *user, enum device_open_step step);
    void *user;
};

struct device;
struct device_stream;
struct device_event;
struct device_module;

/*
 * A kernel on a CPU device. Runs on the stream's thread; `args` is a private copy. Not OK fails the
 * launch.
 */
typedef plasmon_status_t (*device_cpu_fn)(void *args, struct pl_err *err);

/*
 * How many devices of that kind there are; 0 when the driver is missing. why (may be NULL) says
 * what is missing.
 */
uint32_t device_count(enum device_kind kind, struct pl_err *why);
/*
 * CUDA shows a process one MIG device at most. Where CUDA_VISIBLE_DEVICES names several devices, a
 * MIG device among them, each of them is for a process of its own, and ordinals are places in that
 * list. How many there are; 0: it is not so.
 */
uint32_t device_slices(void);
/*
 * Before the first other call: this process is for that one. Nothing where there are no slices.
 * ENOENT: the list is shorter. Threads: before there are any (it changes the environment).
 */
plasmon_status_t device_slice_take(uint32_t ordinal, struct pl_err *err) PL_MUST_CHECK;
/* How many devices CUDA_VISIBLE_DEVICES names; 0: none, or it is not set. */
uint32_t device_visible_count(void);
/*
 * Load what device_open() would load, and make nothing: so that it takes less time later. What is
 * missing shows there.
 */
void device_preload(enum device_kind kind);
plasmon_status_t device_probe(enum device_kind kind, uint32_t ordinal,
                              struct device_info *out_info, struct pl_err *err);
plasmon_status_t device_open(enum device_kind kind, uint32_t ordinal,
                             const struct device_config *config, struct device **out_device,
                             struct pl_err *err);
void device_close(struct device *device); /* waits for its streams */
const struct device_info *device_get_info(const struct device *device);

/* ------------------------------------------------------------------------------- memory */

/* Reserve `bytes` of address space (a multiple of the granularity); nothing is behind it yet. */
plasmon_status_t device_range_reserve(struct device *device, uint64_t bytes,
                                      struct device_ptr *out_base);
void device_range_release(struct device *device, struct device_ptr base, uint64_t bytes);
/* Make memory: a descriptor that keeps it alive (caller owns). EDEVMEM when the device is full. */
plasmon_status_t device_chunk_create(struct device *device, uint64_t bytes, int *out_fd);
/*
 * Map a chunk (made by any process, on this device or a peer of the same kind on this host) at
 * `where`, inside a reserved range. The descriptor is borrowed. EUNREACHABLE: no peer access
 * between the devices. owner_ordinal: ordinal of the device that the memory is on (it may be this
 * one).
 */
plasmon_status_t device_chunk_map(struct device *device, int fd, uint64_t bytes,
                                  uint32_t owner_ordinal, bool writable,
                                  struct device_ptr where);
void device_chunk_unmap(struct device *device, struct device_ptr where, uint64_t bytes);
/* Can this device map and read memory of that one (same kind)? */
bool device_can_peer(struct device *device, uint32_t peer_ordinal);
/*
 * Make host memory (shared, page-aligned) reachable for copies at full speed and for timelines.
 * Large memory is registered in pieces of DEVICE_HOST_PIECE_BYTES from its beginning, so that other
 * threads' calls wait for one of them at most; a copy from or to it must not reach over the end of
 * a piece: device_host_run() says how far it may.
 */
#define DEVICE_HOST_PIECE_BYTES (UINT64_C(128) << 20)
static inline uint64_t device_host_run(uint64_t offset, uint64_t bytes)
{
    uint64_t left = DEVICE_HOST_PIECE_BYTES - offset % DEVICE_HOST_PIECE_BYTES;

    return bytes < left ? bytes : left;
}
plasmon_status_t device_host_register(struct device *device, void *ptr, uint64_t bytes);
/*
 * The same, and after each piece: so many bytes from the beginning may be copied from and to. On
 * the calling thread, in which registering goes on when it returns. If a piece cannot be
 * registered, those before it stay, until device_host_unregister(); without any there is nothing to
 * unregister.
 */
typedef void (*device_host_piece_fn)(void *user, uint64_t bytes);
plasmon_status_t device_host_register_told(struct device *device, void *ptr, uint64_t bytes,
                                           device_host_piece_fn piece,
                                           void *user) PL_MUST_CHECK;
void device_host_unregister(struct device *device, void *ptr);
/* Where kernels of the device find registered memory. EINVAL: it is not registered. */
plasmon_status_t device_host_address(struct device *device, const void *ptr, uint64_t bytes,
                                     struct device_ptr *out_address);
/* Host address of device memory on a CPU device; NULL on others. */
void *device_ptr_host(struct device *device, struct device_ptr ptr);

/* ------------------------------------------------------------------------------ streams */

enum device_stream_flags {
    DEVICE_STREAM_HIGH_PRIORITY = 1u << 0,
    /* below one without flags, where the device has three levels */
    DEVICE_STREAM_LOW_PRIORITY = 1u << 1,
    DEVICE_STREAM_KEEPS =
        1u
        << 2, /* CUDA: device_launch_soon() may wait for others; who uses it flushes it */
    DEVICE_STREAM_COPIES =
        1u
        << 3, /* CUDA: a word behind a large copy is written when that ends, whatever other streams copy */
};
plasmon_status_t device_stream_create(struct device *device, unsigned flags,
                                      struct device_stream **out_stream);
void device_stream_destroy(struct device_stream *stream); /* waits for its work */
/* What device_launch_soon() keeps goes in now. Whoever has nothing more to put into it at once says so. */
void device_stream_flush(struct device_stream *stream);
/* Tests and shutdown only. Gives the first error of work in this stream since the last call. */
plasmon_status_t device_stream_sync(struct device_stream *stream, struct pl_err *err);
/* First sticky error of the device (an illegal access, say): the context is lost. Never blocks. */
plasmon_status_t device_health(struct device *device, struct pl_err *err);

enum device_copy_kind {
    DEVICE_COPY_DEVICE_TO_DEVICE, /* both mapped here; src may be a peer's */
    DEVICE_COPY_HOST_TO_DEVICE,
    DEVICE_COPY_DEVICE_TO_HOST,
};
/*
 * dst/src: device addresses, or host pointers as integers on the host side. Host memory must be
 * registered, stay until done.
 */
plasmon_status_t device_copy(struct device_stream *stream, enum device_copy_kind kind,
                             uint64_t dst, uint64_t src, uint64_t bytes);
/*
 * Copy `box` from a buffer at src that holds src_frame to one at dst that holds dst_frame (both
 * mapped here). Uses the widest calls there are (contiguous runs merged, 2D and 3D copies); at most
 * a bounded number of driver calls, else a kernel.
 */
plasmon_status_t device_copy_box(struct device_stream *stream, const struct pl_box *box,
                                 uint32_t element_bytes, struct device_ptr dst,
                                 const struct pl_box *dst_frame, struct device_ptr src,
                                 const struct pl_box *src_frame);
plasmon_status_t device_fill8(struct device_stream *stream, struct device_ptr dst,
                              uint8_t value, uint64_t bytes);

/*
 * The engines of another device (same kind, by ordinal) for copies from it: begin to open them,
 * once, on a thread of its own, and how that stands. It costs a context there, which takes about
 * DEVICE_ENGINES_BYTES of its memory. REFUSED: it cannot be, or cannot be any more; CPU devices
 * have no engines.
 */
#define DEVICE_ENGINES_BYTES (UINT64_C(524) << 20)
enum device_engines {
    DEVICE_ENGINES_CLOSED,
    DEVICE_ENGINES_OPENING,
    DEVICE_ENGINES_OPEN,
    DEVICE_ENGINES_REFUSED,
};
void device_engines_open(struct device *device, uint32_t ordinal);
enum device_engines device_engines_state(struct device *device, uint32_t ordinal);
/*
 * What is copied in a stream with DEVICE_STREAM_COPIES from now on is copied by the engines of that
 * device, if they are open, else by its own; in the same order as before (device/cuda/far.c). Until
 * the next call all copies of device memory in this stream must come from there, if it is another
 * device.
 */
plasmon_status_t device_stream_source(struct device_stream *stream, uint32_t ordinal);
/*
 * A copy that is put in next may begin before a word is written that was put in before it (never
 * before what that word is about is over).
 */
bool device_stream_words_late(const struct device_stream *stream);
/* What is put in next begins when all words that were put in before are written. */
plasmon_status_t device_stream_settle(struct device_stream *stream);

/* Ordinal of the device whose engines copy what is put in next. */
uint32_t device_stream_engines(const struct device_stream *stream);

/*
 * Timelines. `word` is in memory given to device_host_register(). Wait: until *word >= value (as
 * unsigned 64 bits).
 */
plasmon_status_t device_signal(struct device_stream *stream, uint64_t *word,
                               uint64_t value);
plasmon_status_t device_wait(struct device_stream *stream, uint64_t *word, uint64_t value);
/*
 * Several of these in their order, which cost who enqueues on a GPU hardly more than one. All or,
 * when it is not OK, perhaps none: the device is lost.
 */
#define DEVICE_WORDS_MAX 6u
struct device_word_step {
    bool waits; /* else it signals */
    uint64_t *word;
    uint64_t value;
};
plasmon_status_t device_words(struct device_stream *stream,
                              const struct device_word_step *steps, uint32_t count);
/* After all work so far: write 1 to the eventfd, so that a poller wakes. */
plasmon_status_t device_notify(struct device_stream *stream, int eventfd);
/*
 * Wake threads of CPU streams that wait for this word (a plain store from outside needs it; a GPU
 * needs nothing).
 */
void device_word_wake(uint64_t *word);

/*
 * Order between two streams of one device: work put into `stream` from now on starts after what is
 * in `other` now.
 */
plasmon_status_t device_stream_join(struct device_stream *stream,
                                    struct device_stream *other);

/*
 * Marks in streams. A timed one tells when it was reached (GPU timestamps; CPU: the stream thread's
 * clock); elapsed is valid once the second has been, and EINVAL of one that is not timed. A time
 * stamp holds up a GPU's stream: 2.8 us of 49.5 behind a copy of 16 MiB from a peer.
 */
plasmon_status_t device_event_create(struct device *device, bool timed,
                                     struct device_event **out_event);
void device_event_destroy(struct device_event *event);
plasmon_status_t device_event_record(struct device_event *event,
                                     struct device_stream *stream);
plasmon_status_t device_event_elapsed_ns(struct device_event *begin,
                                         struct device_event *end, uint64_t *out_ns);
bool device_event_done(struct device_event *event);
/*
 * Order within one device: work put into `stream` from now on starts after what was in the event's
 * stream when it was last recorded. EINVAL: it never was.
 */
plasmon_status_t device_stream_behind(struct device_stream *stream,
                                      struct device_event *event);
/* When it was reached, by pl_now_ns(); false: the device has a clock of its own, or it was not reached. */
bool device_event_host_ns(struct device_event *event, uint64_t *out_ns);

/* ----------------------------------------------------------------------------- launches */

/*
 * CPU devices: run fn on the stream's thread. args (args_bytes) are copied. `tag` names the launch
 * in failures.
 */
plasmon_status_t device_cpu_launch(struct device_stream *stream, device_cpu_fn fn,
                                   const void *args, size_t args_bytes, uint64_t tag);
/*
 * Launches that failed after they had been taken (CPU devices; device_launch_soon()), oldest first;
 * false: none. Any thread.
 */
bool device_launch_failure(struct device *device, uint64_t *out_tag,
                           struct pl_err *out_err);

/*
 * Recorded work. A graph has branches: streams on which copies, fills and launches are recorded
 * between begin and end, and not run; a branch that is told `after` goes on behind a `mark` of
 * another one. Signals, waits, notifications and events cannot be recorded (ENOTSUP): a wait's
 * value would be a constant, and pass at once the second time. What was recorded becomes an exec
 * that can be launched many times, in order with the rest of a stream.
 *
 * Threads: one at a time for a graph and its branches. Launches of one exec must not overlap: the
 * caller puts them into one stream, or joins streams in between.
 */
struct device_graph;
struct device_exec;
#define DEVICE_BRANCH_MAX 8u
plasmon_status_t device_graph_create(struct device *device, uint32_t branches,
                                     struct device_graph **out_graph, struct pl_err *err);
void device_graph_destroy(struct device_graph *graph); /* what it recorded stays */
struct device_stream *device_graph_branch(struct device_graph *graph, uint32_t branch);
/* Is it a branch: will what is put on it run later, and perhaps many times? */
bool device_stream_records(const struct device_stream *stream);
/*
 * Which launch it runs in is not known when work is recorded. What wants to know on a GPU (a kernel
 * that reports a failure) reads it when it runs: device_graph_tag_at() before begin gives the
 * recording 8 bytes of the device's memory for that, which stay the execs' as long as they are
 * launched; device_stream_tag() says on a branch where they are, address 0: it was given none. Each
 * launch of an exec in which somebody asked writes its tag there first, in its stream.
 */
void device_graph_tag_at(struct device_graph *graph, struct device_ptr word);
struct device_ptr device_stream_tag(struct device_stream *stream);
plasmon_status_t device_graph_begin(struct device_graph *graph, struct pl_err *err);
/* What is on the branch now is mark number `mark`, from 0, of this recording. */
plasmon_status_t device_graph_mark(struct device_graph *graph, uint32_t branch,
                                   uint32_t mark);
plasmon_status_t device_graph_after(struct device_graph *graph, uint32_t branch,
                                    uint32_t mark);
/*
 * End the recording. keep false: throw it away. Otherwise *io_exec is changed to it (launches under
 * way are not), or replaced, or made when it is NULL. On failure *io_exec is as it was.
 */
plasmon_status_t device_graph_end(struct device_graph *graph, bool keep,
                                  struct device_exec **io_exec, struct pl_err *err);
/*
 * Changing an exec in parts. What is recorded after device_graph_item() is that item, until the
 * next. Between change_begin and change_end, what is put on the branches after device_graph_item(i)
 * takes the place of what was recorded as item i: the same number of launches, with other arguments
 * and shapes; launches of the exec under way keep theirs. ENOTSUP, of any of them: not this exec
 * (CPU devices: none), or not these items (copies, fills and calls of libraries are not changed
 * alone). After a change_begin that was OK, anything that fails leaves the exec to be recorded
 * anew, which device_graph_end() does, before it is launched again. change_end comes after every
 * such change_begin.
 */
plasmon_status_t device_graph_item(struct device_graph *graph, uint32_t item);
plasmon_status_t device_graph_change_begin(struct device_graph *graph,
                                           struct device_exec *exec, struct pl_err *err);
plasmon_status_t device_graph_change_end(struct device_graph *graph);
/*
 * tag: of every launch in it on a CPU device, where the first that fails ends the exec's run;
 * device_stream_tag() on a GPU.
 */
plasmon_status_t device_exec_launch(struct device_stream *stream, struct device_exec *exec,
                                    uint64_t tag);
void device_exec_destroy(struct device_exec *exec); /* launches under way still run */

/*
 * Communicators: bytes from one device to another, in processes that share no memory. NCCL on GPUs;
 * on CPU devices a stand-in that waits as NCCL does (cpu/comm.c). A communicator joins processes of
 * a device each: two, and then it is used in one direction, from rank 0 to rank 1 (a pair); or, for
 * reductions, two and more (a team). Its operations go in order; each ends when those of the other
 * sides have met it, and so waits on the device for what other processes enqueue. After an abort
 * its operations end as if all were well, and what they should have written is rubbish.
 *
 * Threads: one at a time for a communicator, but device_comm_check(), which one other thread may
 * call from when it is open. What says "blocks" may block for long, and while a stream of the
 * device waits: not for the thread that enqueues.
 */
#define DEVICE_COMM_ID_BYTES      128u
#define DEVICE_COMM_ADDRESS_BYTES 64u
struct device_comm;
struct device_comm_config {
    uint32_t rank;       /* of a pair: 0 sends, 1 receives */
    uint32_t ranks;      /* of a team; 0: a pair */
    bool remote;         /* another one is on another host: few channels, small buffers */
    const char *address; /* numeric; CPU: where rank 0 listens. NULL: loopback */
};
/* Which reductions there are; numbers as of enum plasmon_reduce. */
enum device_reduce {
    DEVICE_REDUCE_SUM = 1,
    DEVICE_REDUCE_PROD,
    DEVICE_REDUCE_MIN,
    DEVICE_REDUCE_MAX
};
enum device_collective {
    DEVICE_ALL_REDUCE, /* every dst becomes the reduction of all srcs, the same bits everywhere */
    DEVICE_REDUCE_SCATTER, /* rank i's dst becomes part i of that; srcs are as large as all dsts */
    DEVICE_ALL_GATHER, /* every dst becomes all srcs, in the order of ranks */
};
/* One rank's part: dense arrays, which do not overlap. */
struct device_comm_collective {
    enum device_collective kind;
    struct device_ptr src;
    struct device_ptr dst;
    uint64_t elements; /* of the smaller one of src and dst */
    uint32_t dtype;    /* enum pl_dtype */
    uint32_t op;       /* enum device_reduce; ALL_GATHER: 0 */
};
#define DEVICE_COMM_RANKS_MAX 16u
/*
 * Version number of what makes communicators, NCCL's on GPUs; both sides need the same. 0: none,
 * why says what is missing.
 */
uint32_t device_comm_version(struct device *device, struct pl_err *why);
/* By rank 0's process, which must live until the communicator is open. */
plasmon_status_t device_comm_id(struct device *device,
                                const struct device_comm_config *config, uint8_t *out_id,
                                struct pl_err *err);
/*
 * Begin. Then poll until it is not EAGAIN; a byte goes through `stream` on the way, so that the
 * first transfer does not connect. Blocks.
 */
plasmon_status_t device_comm_open(struct device *device,
                                  const struct device_comm_config *config,
                                  const uint8_t *id, struct device_stream *stream,
                                  struct device_comm **out_comm, struct pl_err *err);
plasmon_status_t device_comm_poll(struct device_comm *comm, struct pl_err *err);
/* device memory that it took; once it is open */
uint64_t device_comm_bytes(const struct device_comm *comm);
/*
 * Enqueue: rank 0 sends, rank 1 receives as many bytes. Does not wait for the other side, as long
 * as few operations are under way (a driver takes 1024 launches). EDEVICE: abort.
 */
plasmon_status_t device_comm_move(struct device_comm *comm, struct device_stream *stream,
                                  struct device_ptr ptr, uint64_t bytes,
                                  struct pl_err *err);
/*
 * Enqueue: a team does it. ENOTSUP: not of that dtype, and nothing was enqueued. Otherwise as above.
 */
plasmon_status_t device_comm_join(struct device_comm *comm, struct device_stream *stream,
                                  const struct device_comm_collective *reduction,
                                  struct pl_err *err);
/*
 * Does not wait. OK: nothing is wrong, which says little: between GPUs of a host a dead peer is not
 * noticed. Else it cannot be used any more.
 */
plasmon_status_t device_comm_check(struct device_comm *comm, struct pl_err *err);
/* Ends it and frees it, on all sides, with nothing under way. May block. */
void device_comm_close(struct device_comm *comm);
/*
 * Ends what is under way, as if it were done, and calls that wait; does not wait for the device.
 * Nothing but device_comm_abort() may follow, on this thread, which until then makes no other call
 * about communicators.
 */
void device_comm_cut(struct device_comm *comm);
/*
 * Cuts it, if that was not done, and frees it. Blocks while a stream of the device waits, and so do
 * other calls about the device, on any thread.
 */
void device_comm_abort(struct device_comm *comm);

/*
 * CUDA devices: fatbins, cubins or PTX; every function is loaded at once (no lazy loading on the
 * first launch).
 */
plasmon_status_t device_module_load(struct device *device, const void *image,
                                    size_t image_bytes, struct device_module **out_module,
                                    struct pl_err *err);
void device_module_unload(struct device_module *module);
plasmon_status_t device_module_function(struct device_module *module, const char *name,
                                        void **out_function, struct pl_err *err);
/*
 * A variable in code each of whose kernels begins by waiting for the kernel before it (CUDA:
 * griddepcontrol.wait, before anything that reads or writes memory), and then, if its grid is
 * small, lets the next one begin. The device may hand out such a kernel's blocks early; what it
 * reads and writes, and when, stays what it was.
 */
#define DEVICE_EARLY_MARK "plasmon_early_start"
/* Threads of a grid that may take room while it waits for another one: a quarter of an H200. */
#define DEVICE_EARLY_THREADS_MAX 65536
/* What a function can be launched with. */
struct device_function_limits {
    uint32_t threads_max; /* of a block, with the registers that it takes */
    uint32_t registers;   /* of a thread */
    uint32_t shared_static;
    uint32_t shared_max; /* dynamic shared memory of a block */
    uint32_t block_max[3];
    uint32_t grid_max[3];
    /* device_launch_soon() takes it, with as much dynamic shared memory as follows */
    bool soon;
    uint32_t soon_shared_max;
    bool early; /* it waits by itself for what comes before it (DEVICE_EARLY_MARK) */
    /* threads that fill the device best, without dynamic shared memory */
    uint32_t suggested_block;
};
plasmon_status_t device_function_limits(struct device_module *module, void *function,
                                        struct device_function_limits *out_limits,
                                        struct pl_err *err);
/*
 * Threads of a block that fill the device best where a block has so much dynamic shared memory,
 * which must be within the function's limits.
 */
plasmon_status_t device_function_block(struct device_module *module, void *function,
                                       uint32_t shared_bytes, uint32_t *out_block,
                                       struct pl_err *err);
struct device_launch_shape {
    uint32_t grid[3];
    uint32_t block[3];
    uint32_t shared_bytes;
    bool cooperative; /* all blocks run at once or none, so they may wait for each other */
    /*
     * as the function's limits say: it may begin while the launch before it, if that was such a one
     * too, still runs
     */
    bool early;
};
plasmon_status_t device_launch(struct device_stream *stream, void *function,
                               const struct device_launch_shape *shape, void **params);
/* Parameters that lie behind each other, `each` bytes apart; a parameter may be shorter than that. */
struct device_params {
    const void *bytes;
    uint32_t count;
    uint32_t each;
};
/*
 * The same for a function whose limits say `soon`, with parameters of at most
 * DEVICE_SOON_PARAMS_MAX and DEVICE_SOON_BYTES_MAX together, which are copied. In a stream with
 * DEVICE_STREAM_KEEPS it is kept until device_stream_flush(), until anything else is put into the
 * stream or looks at it, or until there are many; those that follow each other then go in by one
 * call. Shapes must have been checked against the limits: what the driver refuses all the same
 * fails when it goes in, and is told by device_launch_failure() with this tag. The function's
 * module must not be unloaded meanwhile. ENOTSUP: not in this stream; nothing happened.
 */
#define DEVICE_SOON_PARAMS_MAX 16u
#define DEVICE_SOON_BYTES_MAX  512u
plasmon_status_t device_launch_soon(struct device_stream *stream, void *function,
                                    const struct device_launch_shape *shape,
                                    const struct device_params *params, uint64_t tag);
/*
 * CUDA: make the device's context the calling thread's, for libraries that take what is current.
 * Nothing to do on CPU devices.
 */
plasmon_status_t device_enter(struct device *device);
/*
 * Is cuBLAS not started yet (device_config.cublas_later)? Starting it loads all of its kernels,
 * which takes seconds, and blocks while a stream waits: it wants a device on which nothing is
 * enqueued. It may turn out to be missing then.
 */
bool device_cublas_pending(const struct device *device);
void device_cublas_start(struct device *device);
/* cuBLAS handle of the device; NULL on CPU devices, when cuBLAS is missing, or is pending (why says so). */
void *device_cublas(struct device *device, struct pl_err *why);
/*
 * The same handle, bound to this stream and to the stream's own workspace (two streams must not
 * share one, and cublasSetStream forgets it): call it before each series of cuBLAS calls on a
 * stream. One thread at a time uses the handle.
 */
void *device_cublas_on(struct device_stream *stream, struct pl_err *why);
/* A function of the loaded cuBLAS ("cublasDgemm_v2"); NULL when it is missing. */
void *device_cublas_symbol(struct device *device, const char *name);
void *device_native_stream(struct device_stream *stream); /* CUstream */
struct device *device_of_stream(struct device_stream *stream);

/*
 * Time spent inside the driver's calls by the calling thread since it started (CUDA only; 0 on
 * CPU), with what it took to read the clock beside them: so what a thread spent less this is what
 * it would spend if nothing were counted.
 */
uint64_t device_driver_ns(void);
/*
 * Off by default: to count costs two reads of the clock a call. Before there are threads that call
 * the driver.
 */
void device_driver_time_enable(bool on);

#endif
