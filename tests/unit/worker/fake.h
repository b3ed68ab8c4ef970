/*
 * A world for the worker's core: two (or more) host devices in this process, whose tables and
 * timelines are plain memory, and an ops table that does nothing but write down what was asked.
 * Nothing completes until a test says so.
 *
 * `calls` is the device's side, one call after another, separated by blanks: "run:0:fill join:1:0
 * signal:1:7". `reports` is the head's side: "done:1+3 failed:4:EDEVMEM starved:5". A recording is
 * "record:BRANCHES run:64:.. mark:B:M after:B:M recorded:N", and "replay:STREAM:N" launches number
 * N; "recorded:N!" replaced it; "change:N item:I run:64:.. changed" changed item I of it.
 */
#ifndef TESTS_UNIT_WORKER_FAKE_H
#define TESTS_UNIT_WORKER_FAKE_H

#include "tests/harness/test.h"
#include "worker/core.h"

#define FAKE_DEVICES 3u /* host devices; device 7 of the cluster is on another host */
#define FAKE_BASE    2u /* cluster index of host device 0 */
#define FAKE_FAR     7u
#define FAKE_US      1u /* our host device */
/* so copies are streams 2 and 5, sends 3, 6 and 7, receives 4, urgent functions 8, low ones 9 */
#define FAKE_RUN_STREAMS  2u
#define FAKE_CHUNK        (1u << 20)
#define FAKE_LARGE_COPY   (32u << 20)
#define FAKE_ARENA        (1u << 30)
#define FAKE_SIGNAL_BYTES 8192u
#define FAKE_MARK_BYTES   4096u

struct fake {
    struct worker_core *core;
    struct store_table *tables[FAKE_DEVICES];
    struct store_timeline *timelines[FAKE_DEVICES];
    struct store_pins *readers[STORE_READER_MAX];
    uint32_t host_device_of[16];
    uint64_t reader_epoch;
    uint64_t now_ns;
    uint64_t signal_bytes;
    uint64_t mark_bytes;
    bool lone;
    uint32_t run_streams;
    bool flushes;                /* flushes of streams are written down */
    bool stirs;                  /* so is that the device is about to get work */
    bool tells_sources;          /* and where copies come from */
    bool late[STORE_STREAM_MAX]; /* whose words are late: others copy what comes next */
    bool words_cheap;            /* from the next restart on */
    /* What the last restart found. */
    uint64_t enqueued;
    struct wire_ranges unfinished;
    char untouched[256]; /* "3+2 7+1" */
    struct pl_str calls;
    struct pl_str reports;
    char last_text[512]; /* of the last failure */
    uint64_t grow_bytes; /* the device has this much left */
    bool store_slow;     /* what grows is not kept before fake_kept() */
    bool growing;
    uint32_t grow_pool;
    uint64_t grow_offset, grow_chunk;
    uint64_t arena_end;              /* of what results go to; */
    uint64_t arena_top;              /* of what clients write, downwards from FAKE_ARENA */
    uint64_t scratch;                /* what every function wants */
    uint64_t operations;             /* that every function has; 0: one */
    const char *refuse;              /* a call by this name fails */
    struct kernel_arg args[8];       /* of the last run */
    struct worker_source sources[8]; /* of the last combine */
    uint32_t arg_count;
    uint64_t starved_bytes;
    uint32_t pairs_broken; /* calls of that op */
    uint32_t doorbells;
    struct pl_str rang; /* what was published when they rang: "1 2 4 " */
    uint32_t wakes;
    /* what every defined function is; NULL: not loaded yet */
    const struct kernel_function *own;
    plasmon_status_t own_status; /* why there is none: EAGAIN, or a failure for good */
    bool own_quiet;              /* as the core said when it asked last */
    uintptr_t recordings;        /* how many were made; the last one's number */
    bool changes;                /* recordings can be changed in parts */
    bool changing;

    bool host_locking; /* host memory is being page-locked */
    /* What `prepare_of` needs (any other function needs nothing); NULL. */
    const char *prepare_of;
    plasmon_status_t prepare_status;  /* EAGAIN: not yet; OK: at hand; or a failure */
    bool prepare_quiet, prepare_keep; /* as the core said when it asked last */
    uint32_t prepared_released;       /* how often it said that no graph is left */
};

struct fake *fake_create(void);
struct fake *fake_create_wide(uint32_t run_streams);
struct fake *fake_create_lone(void); /* nobody but the host watches our words */
struct fake *
fake_create_marking(void); /* copies of FAKE_MARK_BYTES have marks behind them */
/* One MiB of memory, which clients do not map; words are written at the end of batches only. */
struct fake *fake_create_small(void);
void fake_destroy(struct fake *fake);
/*
 * The worker dies and another one starts over the same tables and timelines: `enqueued`,
 * `unfinished`, `untouched`.
 */
void fake_restart(struct fake *fake);
/* The same, which may be refused: then it is the core's only word. */
plasmon_status_t fake_try_restart(struct fake *fake);
/* With store_slow: the store keeps what was asked for last. A restart before loses it. */
void fake_kept(struct fake *fake);
/* Take what was written down since the last time; valid until the next. */
const char *fake_calls(struct fake *fake);
const char *fake_reports(struct fake *fake);
/* The device has done everything in this stream up to seq. */
void fake_finish(struct fake *fake, uint32_t stream, uint64_t seq);
/* A launch of another host device. */
void fake_peer_publish(struct fake *fake, uint32_t host_device, uint64_t seq,
                       uint32_t stream);
enum store_state fake_state(const struct fake *fake, uint32_t slot);
struct store_arena_stats fake_memory(const struct fake *fake);

/* A command with one launch, filled in step by step and sent. Everything is of dtype f32. */
struct fake_launch {
    Plasmon__V1__Launch message;
    Plasmon__V1__Operand operand[8];
    Plasmon__V1__Operand *operand_ptr[8];
    int64_t frame[8][4];
    int64_t view[8][6];
    uint64_t after[8];
    uint64_t scalar[8];
    Plasmon__V1__Piece piece[8];
    Plasmon__V1__Piece *piece_ptr[8];
    int64_t src_frame[8][4];
    int64_t box[8][4];
    uint8_t data[64];
};
void fake_launch_init(struct fake_launch *launch, uint64_t seq,
                      Plasmon__V1__LaunchKind kind);
void fake_launch_function(struct fake_launch *launch, const char *name);
/* A vector of `count` elements in (our device, slot, generation 1). */
Plasmon__V1__Operand *fake_launch_operand(struct fake_launch *launch, uint32_t mode,
                                          uint32_t slot, int64_t count);
Plasmon__V1__Operand *fake_launch_fresh(struct fake_launch *launch, uint32_t slot,
                                        int64_t count);
void fake_launch_after(struct fake_launch *launch, uint32_t device, uint64_t seq);
void fake_launch_piece(struct fake_launch *launch, uint32_t device, uint32_t slot,
                       int64_t count);
void fake_launch_scalar(struct fake_launch *launch, double value);
/* Command and advance. */
plasmon_status_t fake_send(struct fake *fake, struct fake_launch *launch);
plasmon_status_t fake_send_err(struct fake *fake, struct fake_launch *launch,
                               struct pl_err *err);
void fake_free(struct fake *fake, uint32_t slot); /* its first buffer */
void fake_free_generation(struct fake *fake, uint32_t slot, uint32_t generation);
void fake_retire(struct fake *fake, uint32_t slot);
void fake_cancel(struct fake *fake, uint64_t seq);
void fake_starve(struct fake *fake, uint64_t seq);

/* Ready-made launches. fill: writes `count` elements into a fresh buffer in `slot`. */
void fake_fill(struct fake *fake, uint64_t seq, uint32_t slot, int64_t count);
/* Launches 1 to `count`, at most 2, have filled the slots 1 to `count` with 4 elements each: sealed. */
void fake_filled(struct fake *fake, uint32_t count);
void fake_noop(struct fake *fake, uint64_t seq);
/* A fill of a fresh buffer after launches of ours; 0 ends the list. */
void fake_fill_after(struct fake *fake, uint64_t seq, uint32_t slot, uint64_t first,
                     uint64_t second);

#endif
