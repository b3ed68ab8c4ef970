/*
 * `plasmon bench timelines`: what its parts share.
 *
 *   timelines.c        the command: which ways, rows, remarks
 *   timelines_pair.c   two processes and the page that they share
 *   timelines_run.c    the measurements, the same for every way
 *   timelines_words.c  words in host memory, by device/ alone: what Plasmon uses; and the kernels
 *                      on CPU devices
 *   timelines_cuda.c   words in device memory, interprocess events, events in one process;
 *                      timelines_kernel.cu
 *
 * A SIDE is one device with one stream, and the memory that its peer reads. There are two, each in
 * a process of its own that is forked before a driver is loaded; the yardstick has both in one
 * process, and one thread enqueues for both.
 *
 * A WAY is how a side tells its peer on the device that it got somewhere: signal(n) behind its work
 * so far, and wait(n) for the peer's. n only grows, from 1.
 *
 * "ENQUEUED EARLY" means: behind a gate (a word in host memory that both streams wait for first),
 * which the host opens when both sides have enqueued everything. So what is timed is the devices'
 * work alone. A group behind the gate is short enough for the driver's queues, of which some hold
 * 1024 launches: an enqueue that blocked there would wait for the gate for ever.
 *
 * Threads: one a process.
 */
#ifndef BENCH_TIMELINES_H
#define BENCH_TIMELINES_H

#include <stdatomic.h>
#include <stdbool.h>

#include "device/device.h"

#define TIMELINES_CHUNK_BYTES (4u << 20)
#define TIMELINES_ROUNDS      64u /* in a group behind the gate */
#define TIMELINES_GROUPS      8u
#define TIMELINES_SAMPLES     (TIMELINES_ROUNDS * TIMELINES_GROUPS)
#define TIMELINES_CHAIN       10000u /* kernels */
#define TIMELINES_CHAIN_GROUP 200u   /* of them behind the gate */
#define TIMELINES_SPIN_NS     2000u
#define TIMELINES_HANDLE      64u /* bytes of an exported event */

/* Where things lie in a side's chunk. */
#define TIMELINES_AT_PAYLOAD 0u /* the peer pulls from here */
#define TIMELINES_AT_LANDING (1u << 20)
#define TIMELINES_AT_WRONG   (2u << 20) /* how many words were not what the peer wrote */
#define TIMELINES_AT_WORD    ((2u << 20) + 4096u)

enum timelines_way {
    TIMELINES_HOST_WORDS,
    TIMELINES_DEVICE_WORDS,
    TIMELINES_EVENTS,
    TIMELINES_ONE_PROCESS, /* plain events: the yardstick */
    TIMELINES_WAYS
};

#define TIMELINES_SIZES 3u /* bytes that an edge carries: 4 KiB, 64 KiB, 1 MiB */
extern const uint64_t timelines_size[TIMELINES_SIZES];
#define TIMELINES_INTERVALS 2u /* kernels a signal: 1, 16 */
extern const uint32_t timelines_interval[TIMELINES_INTERVALS];

/* All in microseconds; 0: not measured. `p99` belongs to the line above it. */
struct timelines_figures {
    double chain_bare, chain[TIMELINES_INTERVALS]; /* a kernel, enqueued early */
    double flow_bare, flow[TIMELINES_INTERVALS];   /* a kernel, enqueued while they run */
    double enqueue_signal, enqueue_wait;           /* one call */
    double edge;                                   /* signal and wait, nothing else */
    double edge_data[TIMELINES_SIZES]; /* kernel, signal, wait, pull of that size */
    uint64_t words_checked, words_wrong;
};

/* Between the two processes and their parent. */
struct timelines_page {
    _Alignas(4096) uint64_t gate; /* this page is registered with the devices */
    _Alignas(128) uint64_t word[2][16];
    uint64_t answer[2]; /* where a side reads back its count of wrong words */

    _Alignas(4096) _Atomic uint32_t arrived; /* at meetings so far */
    _Atomic uint32_t failed;                 /* a side gave up */
    /* enqueued by the host of that side (events need to know) */
    _Atomic uint32_t signalled[2];
    uint32_t parties; /* processes: 2, or 1 */
    uint32_t ordinal[2];
    struct pl_err err[2];
    uint8_t handle[2][TIMELINES_ROUNDS][TIMELINES_HANDLE];
    struct timelines_figures figures;
};

struct timelines_side;
struct timelines_way_ops {
    const char *name;
    /* Called when both sides' memory is mapped and before either enqueues. */
    plasmon_status_t (*init)(struct timelines_side *side, struct pl_err *err);
    plasmon_status_t (*signal)(struct timelines_side *side, uint64_t n);
    plasmon_status_t (*wait)(struct timelines_side *side, uint64_t n);
    bool needs_order; /* a wait is for a signal that was already enqueued */
};

struct timelines_side {
    struct timelines_page *page;
    const struct timelines_way_ops *ops;
    uint32_t role; /* 0 or 1 */
    bool cuda;
    struct timelines_side *other; /* in this process; NULL: in another */
    int socket;                   /* to the peer's process; -1 */

    struct device *device;
    struct device_stream *stream;
    struct device_event *begin, *end;
    struct device_ptr chunk, peer; /* its own; the other side's, read-only */
    int fd;                        /* of its own chunk */
    uint64_t spin_units;           /* what spin() takes for TIMELINES_SPIN_NS */
    uint64_t signalled, waited;    /* n so far */
    uint64_t gate;                 /* how often it was closed */
    uint64_t words_checked;
    uint32_t sample_count[2]; /* signals, waits */
    double sample[2][TIMELINES_SAMPLES];

    void *way;                  /* of the way's own, NULL: none */
    struct device_module *code; /* on a GPU */
    void *spin, *exchange;      /* functions of it */
};

/* --------------------------------------------------------------------- timelines_pair.c */

/*
 * Runs one way in children of its own. ENOTSUP, ETIMEDOUT or another failure: err says why, and
 * there are no figures. Children that do not end within the time are killed.
 */
plasmon_status_t timelines_run_way(enum timelines_way way, bool cuda,
                                   struct timelines_page *page, struct pl_err *err);
/* Wait until both processes are here. Not OK: the other one failed, or never came. */
plasmon_status_t timelines_meet(struct timelines_page *page);
/* Wait until *number is at least `least`, likewise. */
plasmon_status_t timelines_await(struct timelines_page *page, _Atomic uint32_t *number,
                                 uint32_t least);
void timelines_tell(_Atomic uint32_t *number, uint32_t value);

/* ---------------------------------------------------------------------- timelines_run.c */

/* All figures of a way, into page->figures (by the side whose role is 0). Sides that are in this process. */
plasmon_status_t timelines_measure(struct timelines_side *sides, uint32_t count,
                                   struct pl_err *err);

/* ------------------------------------------------------------------------ kernels, ways */

/*
 * Check the landing place (expect 0: do not) against what the peer wrote in that round, then write
 * the payload of `round` (0: do not).
 */
struct timelines_exchange {
    uint64_t landing, payload, wrong; /* addresses */
    uint64_t words;
    uint64_t expect, round;
    uint64_t role; /* of this side */
};
/* What role wrote into word i in a round. */
#define TIMELINES_PATTERN(role, round, i) \
    ((round)*0x9e3779b97f4a7c15ull + ((role) + 1) * 0xc2b2ae3d27d4eb4full + (i))

plasmon_status_t timelines_kernels_init(struct timelines_side *side, struct pl_err *err);
plasmon_status_t timelines_spin(struct timelines_side *side, uint64_t units);
plasmon_status_t timelines_exchange(struct timelines_side *side,
                                    const struct timelines_exchange *args);

extern const struct timelines_way_ops timelines_host_words;
#ifdef PLASMON_HAVE_CUDA
extern const struct timelines_way_ops timelines_device_words, timelines_events,
    timelines_one_process;
plasmon_status_t timelines_cuda_init(struct timelines_side *side, struct pl_err *err);
plasmon_status_t timelines_cuda_spin(struct timelines_side *side, uint64_t units);
plasmon_status_t timelines_cuda_exchange(struct timelines_side *side,
                                         const struct timelines_exchange *args);
#endif

#endif
