/*
 * `plasmon bench`: what the parts share.
 *
 *   tasks.c, tasks_data.c, tasks_scale.c   the control plane, by the names of Ray's microbenchmark
 *   tasks_paths.c                          gets and puts by each way that bytes can take
 *   transfer.c, transfer_shapes.c          objects from device to device, by every route; parts in transfer.h
 *   remote.c                               puts and gets from another host, beside raw TCP (raw_tcp.c)
 *   overlap.c                              a product beside transfers
 *   spill.c, spill_plan.c                  more values than a device has memory for, beside enough of it
 *   journal.c                              a head with a journal beside one without; parts in daemons.h
 *   hostile.c                              an honest client beside peers that are up to no good;
 *                                          parts in daemons.h
 *   tls.c                                  a cluster with mutual TLS beside one without; parts in daemons.h
 *   collectives.c                          all-reduce over all devices, beside a ring by hand
 *   gemm.c                                 a blocked product against one library call
 *   timelines*.c                           how one device waits for another; parts in timelines.h
 *   graphs/                                task graphs beside hand-written streams; parts in graphs/graph.h
 *   chaos/                                 faults and long runs beside programs with known results
 *                                          (stress/); parts in chaos/chaos.h
 *   echo.c, raw*.c                         the yardsticks: the same machine without Plasmon
 *   report.c, report_json.c, plot.c        rows as a table, as JSON, as a picture
 *
 * RULES  A result is checked, byte by byte or against a reference, before it is timed. A yardstick
 *        is measured in the same run as what it stands beside, never quoted. What could not be
 *        measured is a note and not a number.
 *
 * Yardsticks that touch a device or serve an echo run in a forked child, and children are forked
 * before this process makes its first gRPC object and never while a cluster of it runs: neither
 * gRPC nor a device driver survives a fork.
 *
 * A benchmark has nothing to recover: functions named bench_must_... print what failed and exit
 * with 1; the private cluster and the children end with the process.
 *
 * Threads: everything here is called by the main thread only, unless it says otherwise.
 */
#ifndef BENCH_BENCH_H
#define BENCH_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/str.h"
#include "base/vec.h"
#include "client/cli/cli.h"
#include "plasmon/plasmon.h"

int bench_main(int argc, char **argv);
extern const struct cli_command bench_tasks, bench_transfer, bench_overlap, bench_gemm,
    bench_timelines, bench_graphs, bench_remote, bench_collectives, bench_journal,
    bench_chaos, bench_soak, bench_hostile, bench_spill, bench_tls;

/* ---------------------------------------------------------------------- rows (report.c) */

/* One result. Zero means "there is none" for all numbers but x. Texts are constant or inside the row. */
struct bench_row {
    char name[64];   /* "single_client_tasks_sync" */
    char series[64]; /* the line it belongs to in a picture; "" */
    double x;        /* where on that line: bytes, tasks, rows */
    double value;    /* the median */
    double p99;
    const char *unit;       /* "us", "1/s", "GB/s" */
    double limit;           /* the yardstick, same unit, same run */
    const char *limit_name; /* what it is */
    double ratio;           /* of value to limit; computed by bench_report_add() when 0 */
    double target;          /* what the ratio may be at most; negative: must be at least */
    const char *reference;  /* somebody else's published figure, with its unit */
    char note[120];
};
struct bench_report {
    const char *title;
    const char *reference_title; /* head of that column; NULL: no column */
    const char *x_title;         /* the same for x */
    struct pl_vec rows;          /* struct bench_row */
    struct pl_vec remarks;       /* char[160]: what was not measured, and why */
};
void bench_report_init(struct bench_report *report, const char *title);
void bench_report_finish(struct bench_report *report);
/* Copies the row, and says on stderr that it is there. */
void bench_report_add(struct bench_report *report, const struct bench_row *row);
void bench_report_remark(struct bench_report *report, const char *format, ...)
    PL_PRINTF(2, 3);
/* Of rows with a target: how many there are, and how many have met it. */
void bench_report_targets(const struct bench_report *report, uint32_t *out_count,
                          uint32_t *out_met);
bool bench_row_met(const struct bench_row *row);
/* Rows and remarks of `from`, too. */
void bench_report_append(struct bench_report *report, const struct bench_report *from);
/* Aligned columns on stdout, the machine above them. */
void bench_report_print(const struct bench_report *report);
/*
 * path NULL: nothing. false: it could not be written; says so. A file is replaced when the new one
 * is complete: a benchmark that writes after each row and is killed leaves the rows that it has.
 */
bool bench_report_write_json(const struct bench_report *report, const char *path);
/* The same of a text. */
bool bench_write_text(const struct pl_str *text, const char *path);

/* -------------------------------------------------------------------- pictures (plot.c) */

struct bench_plot {
    const char *title;
    const char *x_label; /* with the unit */
    const char *y_label;
    bool x_is_bytes;  /* ticks as 4 KiB, 1 MiB */
    bool x_is_linear; /* and not logarithmic: for moments */
    bool y_is_linear; /* from 0: for what should not grow */
    const char *rows; /* only those of this name; NULL: all */
};
/*
 * A line chart as SVG, log-log if the plot does not say otherwise: one line a series of those rows
 * that have one and the given unit, and a dashed one for its limits. Limits that are the same for
 * all series are drawn once. path NULL: nothing.
 */
bool bench_plot_write(const struct bench_plot *plot, const struct bench_report *report,
                      const char *unit, const char *path);

/* ------------------------------------------------------------------- machine.c, stats.c */

/* "AMD EPYC, 64 cores; 8 x NVIDIA H200; plasmon 0.1.0 (1a2b3c4d5e6f)" */
void bench_machine_describe(struct pl_str *out);
/* How many GPUs this host shows to a program, without loading a driver. */
uint32_t bench_machine_gpus(void);
/*
 * How many of so many are in a list like that of CUDA_VISIBLE_DEVICES (NULL: all): up to the first
 * entry that is none of them, as the driver reads it.
 */
uint32_t bench_visible_gpus(uint32_t gpus, const char *visible);

/* Sorts. p in 0..1; nearest rank. 0 for no samples. */
double bench_percentile(double *samples, size_t count, double p);
/* CPU time of this process so far, all threads. */
uint64_t bench_process_cpu_ns(void);
void bench_say(const char *format, ...) PL_PRINTF(1, 2); /* progress, on stderr */
/* Zeroed and touched, or exits. pl_free() it. */
void *bench_must_alloc(size_t bytes);
/* "4,4K,1M": how many; 0 when it is something else. */
#define BENCH_SIZES_MAX 16
uint32_t bench_parse_sizes(const char *text, uint64_t out[BENCH_SIZES_MAX]);
double bench_memcpy_seconds(void *dst, const void *src, size_t bytes); /* median of 5 */

/* ---------------------------------------------------------------------------- cluster.c */

struct bench_cluster {
    struct plasmon_client *client;
    bool is_private;
    uint32_t devices;
    struct plasmon_device_info info[64];
};
/*
 * transfer, policy NULL: auto; cpu_devices 0 with GPUs: none. Connects to $PLASMON_ADDRESS when it
 * is set, unless the cluster must be a private one: because it is to have this route or policy, or
 * because is_private says so.
 */
struct bench_cluster_config {
    const char *gpus;
    uint32_t cpu_devices;
    const char *transfer;
    bool driver_time; /* workers of a private cluster tell time inside the driver apart */
    const char *policy;
    bool is_private;
    /* As in plasmon_options; 0: as by default. Of a private cluster. */
    uint64_t device_memory;
    uint64_t spill_memory;
    uint32_t write_back;
    bool no_prefetch;
};
void bench_must_start(struct bench_cluster *cluster,
                      const struct bench_cluster_config *config);
void bench_cluster_finish(struct bench_cluster *cluster);
/*
 * The device of that index, of which a cluster that machines left has gaps; ends with a text that
 * begins with `option` if there is none.
 */
const struct plasmon_device_info *bench_must_device(const struct bench_cluster *cluster,
                                                    uint32_t index, const char *option);
/* Any thread. */
void bench_must(struct bench_cluster *cluster, plasmon_status_t status, const char *what);
_Noreturn void bench_die(const char *format, ...) PL_PRINTF(1, 2);

/* Short forms of submitting; all exit on failure. Any thread. */
struct plasmon_ref *bench_must_task(struct bench_cluster *cluster, const char *function,
                                    const struct plasmon_arg *args, uint32_t arg_count,
                                    const plasmon_scalar_t *scalars, uint32_t scalar_count,
                                    int device);
struct plasmon_ref *bench_must_make(struct bench_cluster *cluster, const char *function,
                                    const struct plasmon_shape *shape,
                                    const plasmon_scalar_t *scalars, uint32_t scalar_count,
                                    int device);
/* A task that reads `ref` on `device`; the returned ref is ready when it is done. */
struct plasmon_ref *bench_must_touch(struct bench_cluster *cluster, struct plasmon_ref *ref,
                                     int device);
void bench_must_wait(struct bench_cluster *cluster, struct plasmon_ref *const *refs,
                     uint32_t count); /* all, and all good */
void bench_must_release(struct bench_cluster *cluster, struct plasmon_ref **refs,
                        uint32_t count);
struct plasmon_shape bench_shape(plasmon_dtype_t dtype, uint32_t ndim, int64_t rows,
                                 int64_t columns);

/* Figures of the head's status. */
struct bench_status {
    uint64_t tasks_queued, core_ns, worker_cpu_ns, worker_driver_ns, task_bytes;
    uint64_t peer_copies, host_copies, nccl_copies;
    uint64_t spill_bytes, write_back_bytes, restore_bytes; /* of the first node */
    bool driver_counted; /* worker_driver_ns is not part of worker_cpu_ns */
    /* whose make large copies between GPUs may change when much was copied, or will soon */
    bool engines_own, engines_opening;
    bool engines_sources; /* those of the GPUs that the bytes come from do */
};
void bench_must_status(struct bench_cluster *cluster, struct bench_status *out);
/* There were copies between devices, and all of them went by "peer", "host" or "nccl". */
bool bench_all_by(const struct bench_status *status, const char *route);

/* ------------------------------------------------------------------------------- echo.c */

/* Another process that sends back each message, over a Unix socket and the same rpc/ that Plasmon uses. */
struct bench_echo;
struct bench_echo *
bench_must_fork_echo(void); /* before the first gRPC object of this process */
void bench_must_connect_echo(struct bench_echo *echo);
/* Seconds of each of `count` round trips, one message in flight. */
void bench_must_ping(struct bench_echo *echo, double *seconds, size_t count);
void bench_echo_destroy(struct bench_echo *echo);

/* ----------------------------------------------------------------------- raw yardsticks */

/*
 * Runs `measure` in a forked child, which fills result[count]; exits when the child fails. Results
 * are doubles, seconds or whatever the two agree on; a negative one means "not possible here".
 */
typedef plasmon_status_t (*bench_raw_fn)(const void *config, double *result, size_t count,
                                         struct pl_err *err);
void bench_must_run_raw(bench_raw_fn measure, const void *config, double *result,
                        size_t count);
/* The same for who can go on without: err says how the child failed. */
plasmon_status_t bench_run_raw(bench_raw_fn measure, const void *config, double *result,
                               size_t count, struct pl_err *err);

/* Copies between devices of one host, through device/ alone. */
struct bench_raw_copy {
    bool cuda;
    uint32_t devices; /* the first sends; all others receive in the "many" figures */
    uint32_t size_count;
    uint64_t size[BENCH_SIZES_MAX];
};
enum bench_raw_figure {
    BENCH_RAW_PEER,         /* seconds a copy, many in one stream */
    BENCH_RAW_PEER_LATENCY, /* one copy, and waiting for it */
    BENCH_RAW_PEER_MANY,    /* one object to every other device, all done */
    BENCH_RAW_PEER_CHAIN,   /* the same, each from the one before, in pieces */
    BENCH_RAW_PEER_DUPLEX, /* seconds for two copies, one each way between the first two, many in a row */
    BENCH_RAW_PEER_ALL, /* seconds for one copy from each to each, many in a row */
    /* as BENCH_RAW_PEER, and each copy says by a word that it is over: in the same stream, */
    BENCH_RAW_PEER_WORD,
    BENCH_RAW_PEER_WORD_TURNS,  /* in two streams by turns, */
    BENCH_RAW_PEER_WORD_BESIDE, /* or written by another stream */
    BENCH_RAW_PEER_HALVES,      /* one copy, its halves on two streams */
    BENCH_RAW_HOST,             /* through 16 pinned slots of 8 MiB, both halves at once */
    BENCH_RAW_HOST_LATENCY,
    BENCH_RAW_HOST_MANY,
    BENCH_RAW_HOST_DUPLEX,
    BENCH_RAW_HOST_ALL,
    BENCH_RAW_NCCL, /* a process a device, bench_raw_nccl_run; shapes as of PEER */
    BENCH_RAW_NCCL_LATENCY,
    BENCH_RAW_NCCL_MANY,
    BENCH_RAW_NCCL_DUPLEX,
    BENCH_RAW_NCCL_ALL,
    BENCH_RAW_TCP, /* to another host's program (raw_tcp.h), by bench remote */
    BENCH_RAW_TCP_LATENCY,
    BENCH_RAW_FIGURES
};
/* result[size index * BENCH_RAW_FIGURES + figure] */
plasmon_status_t bench_raw_copy_run(const void *config, double *result, size_t count,
                                    struct pl_err *err);
/* The same config; only the figures of NCCL. Not OK: there is none. */
plasmon_status_t bench_raw_nccl_run(const void *config, double *result, size_t count,
                                    struct pl_err *err);

/* NCCL's all-reduce of f32 over the first so many GPUs. Not OK: there is no NCCL, or no GPU. */
struct bench_raw_all_reduce {
    bool cpu; /* the stand-in of CPU devices; bench_raw_team_run() only */
    uint32_t devices;
    uint32_t size_count;
    uint64_t size[BENCH_SIZES_MAX];
};
/* result[2 * size index]: seconds of one, many in a row; + 1: one at a time */
plasmon_status_t bench_raw_all_reduce_run(const void *config, double *result, size_t count,
                                          struct pl_err *err);
/* The same in a process a device, with a communicator as a team of Plasmon's has it (raw_nccl.c). */
plasmon_status_t bench_raw_team_run(const void *config, double *result, size_t count,
                                    struct pl_err *err);

/* One library call for the whole product. */
struct bench_raw_gemm {
    bool cuda;
    uint32_t size_count;
    uint32_t size[BENCH_SIZES_MAX];
};
/* result[size index]: seconds, median */
plasmon_status_t bench_raw_gemm_run(const void *config, double *result, size_t count,
                                    struct pl_err *err);

/* config: const bool *, is it a GPU? result[0], result[1]: GB/s from pinned memory to device 0, and back. */
plasmon_status_t bench_raw_pinned_run(const void *config, double *result, size_t count,
                                      struct pl_err *err);

/* -------------------------------------------------------------------------------- tasks */

struct bench_tasks_run {
    struct bench_cluster cluster;
    struct bench_report report;
    struct bench_echo *echo;
    uint32_t tasks;       /* how many of each kind */
    uint32_t scale_tasks; /* 0: no scale part */
    uint64_t object_bytes;
    double pinned[2]; /* GB/s of bench_raw_pinned_run(); 0: no GPU */
};
/* Each way of a client's bytes; starts clusters of its own, so no other may run. */
void bench_tasks_paths(struct bench_tasks_run *run,
                       const struct bench_cluster_config *config);
void bench_tasks_data(struct bench_tasks_run *run); /* get, put, gigabytes, map */
/* many arguments, many returns, many queued */
void bench_tasks_scale(struct bench_tasks_run *run);

#endif
