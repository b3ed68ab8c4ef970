/*
 * The worker's decisions, without threads, clock, sockets or driver: launches come in, calls of
 * `worker_ops` and reports come out. worker/main.c gives it a real device and gRPC; tests/sim a
 * simulated device and a loopback.
 *
 * Rules it keeps (docs/ordering.md has the argument why nothing can hang):
 *   - launches are enqueued in increasing seq. The front waits until each launch of another device
 *     that it depends on has been published as enqueued (store_timeline_point), and until memory
 *     for all its fresh buffers is in hand; meanwhile nothing behind it is enqueued.
 *   - nothing that was enqueued is put back. A launch is published just before its work goes to the
 *     device, in one go that waits for nothing: so a launch that was never published has touched
 *     nothing.
 *   - a buffer that is overwritten in place is marked CONSUMED in the table before its launch is enqueued.
 *   - a stream's word is written after the last launch of each batch on that stream, and in between
 *     after 32 launches or after some tens of microseconds of work (signal_bytes; what is known to
 *     take long: pace.c); a later value covers earlier ones. Where nobody but the host watches the
 *     words (lone), the end of a batch does without while two writes are still to come (streams.c).
 *     It is also written before anything goes into a stream that may wait for another device: what
 *     another device may need of this stream never hides behind such a wait.
 *   - same stream: no wait. Another stream of this device: ops->join. Another device: ops->wait on
 *     its timeline word.
 *   - no memory: report Starved once and stay; the head frees something, or answers `starve`, which
 *     fails this launch alone.
 *   - new memory is used when the store keeps it, and not before (ops->grow); who needs it waits,
 *     failed launches too.
 *   - a failed launch keeps its place, its waits and its word, and does nothing else, so that
 *     nobody waits for it for ever and "done" still means that everything before it is done; what
 *     it should have written is never sealed. Half a transfer that failed still moves the words of
 *     the staging ring.
 *   - a launch with a time limit is marked as it begins, and its word follows right behind it (condemn.c).
 *   - at most WORKER_DEPTH launches are on the device at a time, and WORKER_OPERATIONS operations
 *     in a stream: a driver whose queues are full blocks the thread that enqueues, and with it
 *     whoever could still end a kernel that never ends. A launch of more operations than that goes
 *     when nothing else is in its stream.
 *   - what a restarted worker is sent again is done one launch at a time, so that if it dies again
 *     there is one to blame.
 *   - restart: launches that the timeline shows complete are sealed; the head sends the rest again
 *     with the same seqs; a launch that the ring already names keeps its stream; one that the head
 *     leaves out (it is over for it) is passed as SKIP.
 *
 * Threads: one at a time (the caller's lock).
 */
#ifndef WORKER_CORE_H
#define WORKER_CORE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/box.h"
#include "base/str.h"
#include "kernels/kernels.h"
#include "store/arena.h"
#include "store/table.h"
#include "store/timeline.h"
#include "wire/wire.h"

struct worker_core;

/*
 * Streams 0 .. run_streams-1 run functions; then one for each role (core_int.h); then
 * urgent_streams that run functions of high priority; then low_streams, of low priority.
 */
enum {
    WORKER_RUN_STREAMS_MAX    = 8,
    WORKER_ROLE_STREAMS       = 6,
    WORKER_URGENT_STREAMS_MAX = 1,
    WORKER_LOW_STREAMS_MAX    = 1,
};

/* Is it one that copies of other devices' memory go to? */
bool worker_stream_copies(uint32_t run_streams, uint32_t stream);

/* Between record_begin and record_end, stream WORKER_BRANCH + i is branch i of what is recorded. */
enum { WORKER_BRANCH = 64, WORKER_BRANCH_MAX = 8 };
/*
 * Of wait() and combine() in worker_core_alone(): the stream for what a team does not do, which is
 * whoever's who called that.
 */
enum { WORKER_STREAM_ALONE = 63 };

/*
 * 256 kernels of 2 us last ten times as long as it takes to hear of a completion and enqueue more.
 * CUDA takes 1020 operations that are not done in a stream (measured: then a call blocks; a graph
 * is one, events and host functions are none); a launch of one kernel has two or three (begin,
 * kernel, signal), but a QR factor has hundreds, and half a transfer three for each chunk. What is
 * put in beside launches (a join by another stream's need, a write of the word) is in what is left
 * to 1020.
 */
enum { WORKER_DEPTH = 256, WORKER_OPERATIONS = 900 };

/* Instead of an offset in stage_send and stage_recv: move the ring's words, no bytes. */
#define WORKER_NOWHERE UINT64_MAX
/* In host_device_of: nobody told us yet what that device is. A launch that names it waits. */
#define WORKER_DEVICE_PENDING (UINT32_MAX - 1)
/* Sequence number of no launch: an entry of the table that bears it is not made right by any. */
#define WORKER_SEQ_NEVER (UINT64_MAX >> 16)

/* A launch that must not go on (condemn.c); lent for the call. */
struct worker_condemned {
    uint64_t seq;
    plasmon_status_t status;
    const char *text;
    bool fence;
};

/* In whose order operations of communicators go; as transfer/pair.h has them. */
enum { WORKER_LANE_SENDS, WORKER_LANE_RECEIVES, WORKER_LANE_TEAMS };

/* A pair with another device, or a team of several (pairs.c, transfer/pair.h). */
struct worker_pair_key {
    uint32_t peer; /* device of the cluster */
    bool receives; /* this one does; of a team: its id comes from another one */
    uint64_t epoch;
    uint32_t team; /* 0: a pair; else its number, and peer is 0 */
};
struct worker_pair_shape {
    uint32_t rank;
    uint32_t ranks; /* 0: a pair */
    bool remote;
    uint32_t host_device; /* of a pair: the other one, if it is not remote */
};
/* Half of a transfer by a pair, or a device's part of what a team does. */
struct worker_half {
    struct worker_pair_key key;
    uint32_t host_device; /* of the peer; UINT32_MAX: on another host */
    uint64_t seq;
    uint64_t first_chunk;
    uint64_t offset; /* WORKER_NOWHERE: it failed */
    uint64_t bytes;
    /* of a team: what this device gives for the result at `offset` */
    uint64_t member_offset;
    uint32_t collective; /* as enum device_collective */
    uint32_t dtype;
    uint32_t op;  /* as enum plasmon_reduce */
    bool signals; /* its stream's word becomes `seq` right behind it, as by ops->signal */
};
/* Something about a pair that the head must know; lent for the call. */
struct worker_pair_report {
    struct worker_pair_key key;
    uint32_t event; /* Plasmon__V1__PairEvent */
    const uint8_t *id;
    uint64_t bytes;
    uint64_t chunk;
    const char *text; /* NULL: none */
};

/* As RouteStats.route. */
enum {
    WORKER_ROUTE_LOCAL       = 0,
    WORKER_ROUTE_PEER        = 1,
    WORKER_ROUTE_HOST        = 2,
    WORKER_ROUTE_NCCL        = 3,
    WORKER_ROUTE_INLINE      = 4,
    WORKER_ROUTE_HOST_BUFFER = 6,
};

/* What came from another device on one route (traffic.c). */
struct worker_pair {
    uint32_t peer; /* device of the cluster */
    uint32_t route;
    uint64_t transfers;
    uint64_t bytes;
    uint64_t busy_ns;
    uint64_t moved_ns; /* a transfer was last seen done */
    uint64_t stalls;
    uint32_t in_flight;
    uint64_t bytes_in_flight;
};

/* What a launch was, for who records it. Texts are lent for the call. */
struct worker_span {
    uint64_t seq;
    uint32_t stream;
    uint32_t kind;
    const char *name;
    const char *label;
    uint64_t client;
    uint64_t task;
    uint64_t submit_ns;
    uint64_t placed_ns;
    uint64_t bytes;
    uint32_t route;
    uint32_t peer;
    bool failed;
};

#define WORKER_MARKS 64u /* a stream */

/* What the core needs of the world. Addresses are offsets in arenas: (host device, offset). */
/* A buffer of this or another device of the host. */
struct worker_source {
    uint32_t host_device;
    uint64_t offset; /* in that device's arena */
    uint64_t bytes;
};

struct worker_ops {
    /*
     * Grow the arena by a chunk of at least `bytes` at the growing end of this pool
     * (store/arena.h). OK: the implementation has called worker_core_chunk_added(). EAGAIN: it
     * will, when the store keeps the chunk; it is not asked again before. EDEVMEM: the device is
     * full.
     */
    plasmon_status_t (*grow)(void *user, uint32_t pool, uint64_t bytes);
    /* Enqueue on stream: wait for a word of another device's timeline. */
    plasmon_status_t (*wait)(void *user, uint32_t stream, uint32_t host_device,
                             uint64_t *word, uint64_t value);
    plasmon_status_t (*join)(void *user, uint32_t stream, uint32_t other);
    /*
     * Both or none. Mark number `slot` (below WORKER_MARKS, used again) of a stream is behind what
     * it holds now; wait for another stream's.
     */
    plasmon_status_t (*mark)(void *user, uint32_t stream, uint32_t slot);
    plasmon_status_t (*join_mark)(void *user, uint32_t stream, uint32_t other,
                                  uint32_t slot);
    /*
     * What is copied in this stream, which is one of copies, from now on comes from that device of
     * the host, whose engines may copy it; so many bytes next, for that launch. Own: from anywhere,
     * and ours copy; bytes that come from other devices. words_late(): a copy that is put in next
     * may begin before a word is written that was put in before it; it does not once settle() is
     * put in between, in two operations at most. All NULL: it makes no difference.
     */
    plasmon_status_t (*source)(void *user, uint32_t stream, uint32_t host_device,
                               uint64_t bytes, uint64_t seq);
    bool (*words_late)(void *user, uint32_t stream);
    plasmon_status_t (*settle)(void *user, uint32_t stream);
    /*
     * Enqueue: copy `box` from a buffer of host_device (own: local copy; other: peer copy) into a
     * local buffer. Counts the route.
     */
    plasmon_status_t (*copy)(void *user, uint32_t stream, const struct pl_box *box,
                             uint32_t element_bytes, uint64_t dst_offset,
                             const struct pl_box *dst_frame, uint32_t src_host_device,
                             uint64_t src_offset, const struct pl_box *src_frame,
                             uint64_t seq);
    /*
     * Enqueue: the two halves of the host route. After a restart the same halves come again with
     * the same chunk numbers, and only what the ring's words show as not yet done may be done
     * again; chunks first_chunk, first_chunk + 1, .. of the receiver's ring. Dense buffers;
     * WORKER_NOWHERE: only the words.
     */
    plasmon_status_t (*stage_send)(void *user, uint32_t stream, uint32_t to_host_device,
                                   uint64_t first_chunk, uint64_t offset, uint64_t bytes);
    plasmon_status_t (*stage_recv)(void *user, uint32_t stream, uint32_t from_host_device,
                                   uint64_t first_chunk, uint64_t offset, uint64_t bytes);
    /*
     * The same with a device of another host; all NULL where there is no other. peer: where it
     * listens; gone: it will not come back. expect: a receive from it was enqueued, and its words
     * must move even if it is gone.
     */
    plasmon_status_t (*bulk_peer)(void *user, uint32_t device, const char *address,
                                  const uint8_t *secret);
    plasmon_status_t (*bulk_gone)(void *user, uint32_t device);
    /*
     * Chunks first .. of the receiver's ring, ours if it `receives`, are not brought by that
     * device, or to it, which lives.
     */
    plasmon_status_t (*bulk_give_up)(void *user, uint32_t device, bool receives,
                                     uint64_t first, uint64_t count);
    plasmon_status_t (*bulk_send)(void *user, uint32_t stream, uint32_t to_device,
                                  uint64_t first_chunk, uint64_t offset, uint64_t bytes);
    plasmon_status_t (*bulk_recv)(void *user, uint32_t stream, uint32_t from_device,
                                  uint64_t first_chunk, uint64_t offset, uint64_t bytes);
    plasmon_status_t (*bulk_expect)(void *user, uint32_t from_device, uint64_t first_chunk,
                                    uint64_t bytes);
    /*
     * Pairs and teams; all or none. open: begin, worker_core_pair_opened() comes; id NULL: make it
     * and tell the head. close: .._closed() comes. break: mark it as broken, so that nothing more
     * comes by it; abort: then end its operations; .._ended() comes, or .._quiet() if it was not
     * open. free: then, with nothing on the device; .._quiet() comes. room: one more may be moved.
     * move: enqueue our half, and on `stream` what waits until it is over. stage: it is broken, and
     * what did not come by it goes by the host route: *out_first is the first launch of those (0:
     * none); of a team: worker_core_alone() is called for each when it has its turn. sent: the
     * other half of that launch is over.
     */
    plasmon_status_t (*pair_open)(void *user, const struct worker_pair_key *key,
                                  const struct worker_pair_shape *shape, const uint8_t *id);
    void (*pair_close)(void *user, const struct worker_pair_key *key);
    void (*pair_break)(void *user, const struct worker_pair_key *key);
    void (*pair_abort)(void *user, const struct worker_pair_key *key);
    void (*pair_free)(void *user, const struct worker_pair_key *key);
    bool (*pair_room)(void *user, uint32_t lane);
    /* false: no half may be enqueued until all halves of broken pairs have had their turn. */
    bool (*pair_settled)(void *user, uint32_t lane);
    plasmon_status_t (*pair_move)(void *user, uint32_t stream,
                                  const struct worker_half *half);
    plasmon_status_t (*pair_stage)(void *user, const struct worker_pair_key *key,
                                   uint64_t *out_first);
    void (*pair_sent)(void *user, uint64_t seq);
    void (*report_pair)(void *user, const struct worker_pair_report *report);
    /* Enqueue: bytes lent until return (copied by the implementation). */
    plasmon_status_t (*put)(void *user, uint32_t stream, uint64_t dst_offset,
                            const uint8_t *bytes, uint64_t length);
    /* Enqueue: read back; when done the implementation reports WorkerData{request}. */
    plasmon_status_t (*read)(void *user, uint32_t stream, uint64_t src_offset,
                             uint64_t length, uint64_t request);
    /*
     * Enqueue: one copy from, or to, memory of a client (store/host_buffer.h). Not OK: err says
     * why, and nothing was enqueued.
     */
    plasmon_status_t (*put_host)(void *user, uint32_t stream, uint64_t dst_offset,
                                 uint64_t host_buffer, uint64_t host_offset,
                                 uint64_t length, struct pl_err *err);
    plasmon_status_t (*get_host)(void *user, uint32_t stream, uint64_t src_offset,
                                 uint64_t host_buffer, uint64_t host_offset,
                                 uint64_t length, struct pl_err *err);
    /*
     * May these bytes of it be copied from and to? false: they are being page-locked (then wake
     * whoever calls advance). NULL: always.
     */
    bool (*host_ready)(void *user, uint64_t host_buffer, uint64_t host_offset,
                       uint64_t length);
    /*
     * What a catalogue function needs before it is enqueued (kernel_prepared()); may be NULL.
     * EAGAIN: it is being made, which begins only when `quiet`: nothing is enqueued on the device
     * (then wake whoever calls advance). keep: for a recorded graph, until prepared_release().
     * Asked before scratch_bytes; args as there.
     */
    plasmon_status_t (*prepare)(void *user, const struct kernel_function *function,
                                const struct kernel_arg *args, uint32_t arg_count,
                                const union kernel_scalar *scalars, uint32_t scalar_count,
                                bool keep, bool quiet, struct pl_err *err);
    void (*prepared_release)(void *user); /* no recorded graph is left */
    /*
     * Enqueue a function. args[i].data.addr is an arena offset here; scratch too. tag: seq, comes
     * back in worker_core_failed().
     */
    uint64_t (*scratch_bytes)(void *user, const struct kernel_function *function,
                              const struct kernel_arg *args, uint32_t arg_count,
                              const union kernel_scalar *scalars, uint32_t scalar_count);
    /* Of these, without what checks want (check.h): combine() is not checked. NULL: scratch_bytes. */
    uint64_t (*own_scratch)(void *user, const struct kernel_function *function,
                            const struct kernel_arg *args, uint32_t arg_count,
                            const union kernel_scalar *scalars, uint32_t scalar_count);
    /*
     * How many operations run() puts into the stream, at most (kernel_operations()). args as there.
     * NULL: one.
     */
    uint64_t (*operations)(void *user, const struct kernel_function *function,
                           const struct kernel_arg *args, uint32_t arg_count,
                           const union kernel_scalar *scalars, uint32_t scalar_count);
    plasmon_status_t (*run)(void *user, uint32_t stream,
                            const struct kernel_function *function,
                            const struct kernel_arg *args, uint32_t arg_count,
                            const union kernel_scalar *scalars, uint32_t scalar_count,
                            uint64_t scratch_offset, uint64_t scratch_bytes, uint64_t tag,
                            struct pl_err *err);
    /*
     * Enqueue a catalogue function that reads its arguments where they are: args[i].data.addr is a
     * place in sources[i]. args[0] is written, and ours. It needs no scratch. tag as for run.
     * Counts the route of what it reads elsewhere.
     */
    plasmon_status_t (*combine)(void *user, uint32_t stream,
                                const struct kernel_function *function,
                                const struct kernel_arg *args,
                                const struct worker_source *sources, uint32_t arg_count,
                                const union kernel_scalar *scalars, uint32_t scalar_count,
                                uint64_t tag, struct pl_err *err);
    /*
     * Functions that clients define; all three or none. function: NULL with err's status EAGAIN
     * while it is compiled and loaded (then wake whoever calls advance), or why there is none.
     * quiet: nothing is enqueued on the device; code is loaded only then. function_text: all that
     * is to be said about why there is none; NULL: err said it.
     */
    const struct kernel_function *(*function)(void *user, uint32_t id, bool quiet,
                                              struct pl_err *err);
    const char *(*function_text)(void *user, uint32_t id);
    plasmon_status_t (*run_defined)(void *user, uint32_t stream,
                                    const struct kernel_function *function,
                                    const struct kernel_arg *args, uint32_t arg_count,
                                    const union kernel_scalar *scalars,
                                    uint32_t scalar_count, uint64_t scratch_offset,
                                    struct kernel_launch_shape *io_shape, uint64_t tag,
                                    struct pl_err *err);
    plasmon_status_t (*fill_identity)(void *user, uint32_t stream,
                                      const struct kernel_arg *arg, uint64_t tag);
    /*
     * Recorded graphs; record_begin may be NULL: nodes are then enqueued one by one. What run()
     * puts on branches between begin and end is recorded and not run. tag_offset: 8 bytes in the
     * arena that are the recording's, for what wants to know in which launch it runs. mark:
     * remember what is on the branch now; after: what follows on the branch comes after that mark.
     * end: *io_exec becomes what replay() enqueues (an earlier one is changed, or replaced); keep
     * false: throw the recording away. *io_recorder is made by the first begin and, like what end
     * makes, ends with record_drop. ENOTSUP: not on this device. item: what follows is that one,
     * until the next. Between change_begin and change_end, what is run after item(i) takes the
     * place of what was recorded as item i of the exec; when any of it fails, the exec must be
     * recorded anew before it is replayed.
     */
    plasmon_status_t (*record_begin)(void *user, void **io_recorder, uint32_t branches,
                                     uint64_t tag_offset, struct pl_err *err);
    plasmon_status_t (*record_mark)(void *user, uint32_t branch, uint32_t mark);
    plasmon_status_t (*record_after)(void *user, uint32_t branch, uint32_t mark);
    plasmon_status_t (*record_end)(void *user, bool keep, void **io_exec,
                                   struct pl_err *err);
    plasmon_status_t (*record_item)(void *user, uint32_t item);
    plasmon_status_t (*change_begin)(void *user, void *recorder, void *exec,
                                     struct pl_err *err);
    plasmon_status_t (*change_end)(void *user);
    /* Launches of one exec are ordered by the caller. tag: as of run(), for every node. */
    plasmon_status_t (*replay)(void *user, uint32_t stream, void *exec, uint64_t tag);
    void (*record_drop)(void *user, void *recorder, void *exec); /* either may be NULL */
    /* Enqueue: this stream's word of our timeline := seq; then wake whoever calls worker_core_complete(). */
    plasmon_status_t (*signal)(void *user, uint32_t stream, uint64_t seq);
    /*
     * The core has nothing more for this stream at once: what run_defined() may have kept, to put
     * several launches in by one call, goes in now. Any other op for the stream does that, too. May
     * be NULL.
     */
    void (*flush)(void *user, uint32_t stream);
    /* Enqueue: `begun` of this stream of our timeline := seq. */
    plasmon_status_t (*begin)(void *user, uint32_t stream, uint64_t seq);
    /*
     * Recording (trace.h): begin: what follows on the stream is a span, until end; done: it is
     * over. All NULL: none. span_begin answers NULL when nothing is recorded.
     */
    void *(*span_begin)(void *user, uint32_t stream);
    void (*span_end)(void *user, uint32_t stream, void *span);
    void (*span_done)(void *user, void *span, const struct worker_span *facts);
    /*
     * The words were read: call worker_core_failed() for what failed before. Then completions are
     * taken. May be NULL.
     */
    void (*collect)(void *user);
    /* The core stored a word itself (a launch without work on an idle stream). May be NULL. */
    void (*wake)(void *user, uint64_t *word);
    /*
     * Something is about to go into the device, and its word will change: for who has stopped
     * looking. Comes often. May be NULL.
     */
    void (*stir)(void *user);
    /*
     * There is more to enqueue, but others are to have their turn, or more to look at: call
     * worker_core_advance() again soon. May be NULL: none are.
     */
    void (*again)(void *user);
    /*
     * Something beside the launches still writes this slot's memory: it must not be freed yet. May
     * be NULL.
     */
    bool (*written)(void *user, uint32_t slot);
    /* The clock of worker_core_tick(). NULL: transfers are not timed. */
    uint64_t (*now)(void *user);
    /* Tell workers that wait for us (published something they may wait for). */
    void (*ring_doorbells)(void *user);
    /* Reports for the head, in order; the implementation batches them into WorkerFrames. */
    void (*report_done)(void *user, uint64_t first, uint64_t count);
    void (*report_failed)(void *user, uint64_t seq, plasmon_status_t status,
                          const char *text);
    void (*report_starved)(void *user, uint64_t seq, uint64_t bytes, uint64_t largest_hole);
    /* WorkerData: a relief was not done; its bytes are these buffers (starve.c), or none. */
    void (*report_refused)(void *user, uint64_t request, plasmon_status_t status,
                           const uint64_t *buffers, size_t count);
    void (*report_condemned)(void *user, const struct worker_condemned *condemned);
};

struct worker_core_config {
    const struct worker_ops *ops;
    void *user;
    uint32_t host_device;
    uint32_t host_device_count;
    uint32_t run_streams;    /* 1 .. WORKER_RUN_STREAMS_MAX */
    uint32_t urgent_streams; /* 0 .. WORKER_URGENT_STREAMS_MAX */
    uint32_t low_streams;    /* 0 .. WORKER_LOW_STREAMS_MAX */
    /*
     * A batch signals in between after launches on so many bytes, because such take long and
     * somebody may wait; 0: only by count.
     */
    uint64_t signal_bytes;
    uint64_t mark_bytes; /* behind copies of at least so many: a mark (marks.c); 0: none */
    /*
     * from other devices: which stream it goes to, and who copies, is chosen with care (streams.c)
     */
    uint64_t large_copy_bytes;
    /*
     * A word costs the device next to nothing. It tells the begin of every launch that overwrites
     * in place (begun.c); false: of those that something may hold up. And each function of a client
     * has its own end: what it takes nobody knows, and who waits for one is not to wait for its
     * batch.
     */
    bool words_cheap;
    bool lone; /* no other device of this host watches our words */
    /* one a host device; may hold NULL for devices that are not up */
    struct store_timeline *const *timelines;
    struct store_table *const *tables; /* one a host device; own one is written */
    /* STORE_READER_MAX pages; NULL where there is none; may change between calls */
    struct store_pins *const *readers;
    /* from here on all are NULL; may change between calls. NULL: unknown */
    const uint32_t *readers_end;
    /*
     * The reader epoch (store/control.h, PINS_ADD) up to which `readers` is complete; may change
     * between calls. NULL: no epochs.
     */
    const uint64_t *reader_epoch;
    /*
     * device index (cluster) -> host device; UINT32_MAX when it is on another host;
     * WORKER_DEVICE_PENDING; may change between calls
     */
    const uint32_t *host_device_of;
    uint32_t device_max;
    uint64_t device_bytes; /* memory that the device has in all; for texts; 0: not known */
};

plasmon_status_t worker_core_create(const struct worker_core_config *config,
                                    struct worker_core **out_core) PL_MUST_CHECK;
void worker_core_destroy(struct worker_core *core);

/*
 * Rebuild from table and timeline after a restart. Chunks must have been added. Fills hello's
 * enqueued, unfinished and untouched.
 */
plasmon_status_t worker_core_recover(struct worker_core *core, uint64_t *out_enqueued,
                                     struct wire_ranges *out_unfinished,
                                     struct wire_ranges *out_untouched) PL_MUST_CHECK;
/*
 * After recover, when the head is another one, which knows nothing of us: free every buffer, let
 * the words of unfinished launches pass. The numbers go on after the last enqueued one.
 */
void worker_core_forget(struct worker_core *core);
plasmon_status_t worker_core_chunk_added(struct worker_core *core, uint32_t pool,
                                         uint64_t offset, uint64_t bytes) PL_MUST_CHECK;

/* From the head. Launches are copied. EMALFORMED: a gap or nonsense (the stream must be closed). */
plasmon_status_t worker_core_command(struct worker_core *core,
                                     const Plasmon__V1__WorkerCommand *command,
                                     struct pl_err *err) PL_MUST_CHECK;
/* Enqueue what can be enqueued; call after a command, when a doorbell rang, when a chunk or peer came up. */
void worker_core_advance(struct worker_core *core);
/* Until as many calls of resume: enqueue nothing. Nothing is enqueued now. */
void worker_core_hold(struct worker_core *core);
void worker_core_resume(struct worker_core *core);
/*
 * What read() was asked for with this request is over. Not OK: it was a relief, and came too late:
 * report_refused() instead of the bytes.
 */
plasmon_status_t worker_core_relieved(struct worker_core *core, uint64_t request);
/* Look at the timeline, seal and report what completed. Call when the device signalled, and after advance. */
void worker_core_complete(struct worker_core *core);
/* What became of a pair; advance afterwards. status not OK: it is not open, and quiet. */
void worker_core_pair_opened(struct worker_core *core, const struct worker_pair_key *key,
                             plasmon_status_t status, const char *text, uint64_t bytes);
void worker_core_pair_closed(struct worker_core *core, const struct worker_pair_key *key);
void worker_core_pair_ended(struct worker_core *core, const struct worker_pair_key *key);
void worker_core_pair_quiet(struct worker_core *core, const struct worker_pair_key *key);
/*
 * This launch of a team that is broken has its turn: enqueue what it does without the others, by
 * ops->combine on WORKER_STREAM_ALONE.
 */
void worker_core_alone(struct worker_core *core, uint64_t seq);
/* A launch failed on the device (CPU: function error). Before the completion that covers it is processed. */
void worker_core_failed(struct worker_core *core, uint64_t seq, plasmon_status_t status,
                        const char *text);
/*
 * Time went by: does a launch run longer than it may? Returns when to ask again; UINT64_MAX: not
 * before something new is enqueued. Any clock that goes on evenly will do.
 */
uint64_t worker_core_tick(struct worker_core *core, uint64_t now_ns);
/*
 * The context is lost: what of our launches was running? Text for people: the earliest unfinished
 * launch a stream.
 */
void worker_core_describe_running(const struct worker_core *core, struct pl_str *out);
/*
 * The front of the queue and each stream: what is next there, and what it waits for. Lines, without
 * one at the end.
 */
void worker_core_describe(const struct worker_core *core, struct pl_str *out);
void worker_core_stats(const struct worker_core *core, Plasmon__V1__WorkerStats *out);
/* Who has what of the device's memory, as the arena rounds it. Looks at every entry of the table. */
struct worker_account {
    uint64_t used;     /* given out by the arena: the sum of the following */
    uint64_t objects;  /* that are nowhere else, .. */
    uint64_t replicas; /* .. or are */
    uint64_t held;     /* freed, but a reader has not let go */
    uint64_t rests;    /* of retired objects, since the incarnation before */
    uint64_t scratch;  /* of launches, for as long as they run */
    uint64_t graphs;   /* temporaries of recorded graphs */
    /* not part of the sum: of replicas, not rounded, as in the figures */
    uint64_t replica_bytes;
};
void worker_core_account(const struct worker_core *core, struct worker_account *out);
uint64_t worker_core_launches(const struct worker_core *core); /* enqueued so far */
/* Adds the front of the queue and the oldest launch of each stream, by the clock of worker_core_tick(). */
void worker_core_waits(const struct worker_core *core, struct wire_arena *arena,
                       uint64_t now_ns, Plasmon__V1__WorkerStats *out);
/* for (size_t i = 0; worker_core_pair_next(core, &i, &pair);) */
bool worker_core_pair_next(const struct worker_core *core, size_t *io_index,
                           struct worker_pair *out);
/* Adds how long transfers to this device took, by route; none when the arena is full. */
void worker_core_transfer_times(const struct worker_core *core, struct wire_arena *arena,
                                Plasmon__V1__WorkerStats *out);
/* Likewise how long functions waited in the queue, and its front, by cause. */
void worker_core_queue_times(const struct worker_core *core, struct wire_arena *arena,
                             Plasmon__V1__WorkerStats *out);
/* nothing queued, nothing unfinished */
bool worker_core_idle(const struct worker_core *core);
/* more than PL_LINGER_MANY are on the device */
bool worker_core_many(const struct worker_core *core);
/* Bit i: the front waits until host device i publishes something, whose doorbell must make us advance. */
uint64_t worker_core_waits_for(const struct worker_core *core);
/*
 * Something waits for a reader to unpin, which wakes nobody: call worker_core_complete() again in a
 * millisecond or so.
 */
/*
 * Now and then, and after a doorbell: devices of this host that were given up. Nothing waits for
 * them any longer.
 */
void worker_core_look_for_gone(struct worker_core *core);
bool worker_core_wants_poll(const struct worker_core *core);
uint64_t
worker_core_received(const struct worker_core *core); /* last launch seq taken over */

#endif
