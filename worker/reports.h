/* What the head must be told and was not yet; and a WorkerFrame made of it. Threads: owner only. */
#ifndef WORKER_REPORTS_H
#define WORKER_REPORTS_H

#include <stdbool.h>

#include "base/vec.h"
#include "wire/wire.h"
#include "worker/core.h"

struct worker_report_batch {
    struct wire_ranges done;
    struct pl_vec failed;    /* struct report_failure */
    struct pl_vec starved;   /* struct report_starved */
    struct pl_vec data;      /* struct report_data */
    struct pl_vec condemned; /* struct report_condemned */
    struct pl_vec functions; /* struct report_function */
    struct pl_vec pairs;     /* struct report_pair */
    uint64_t stats_request;  /* 0: nobody asked */
    /* no memory to note a report: it is lost, and the worker must start anew */
    bool incomplete;
};

void worker_report_batch_init(struct worker_report_batch *batch);
void worker_report_batch_finish(struct worker_report_batch *batch);
bool worker_report_batch_empty(const struct worker_report_batch *batch);
void worker_report_batch_done(struct worker_report_batch *batch, uint64_t first,
                              uint64_t count);
void worker_report_batch_failed(struct worker_report_batch *batch, uint64_t seq,
                                plasmon_status_t status, const char *text);
void worker_report_batch_starved(struct worker_report_batch *batch, uint64_t seq,
                                 uint64_t bytes, uint64_t largest_hole);
void worker_report_batch_condemned(struct worker_report_batch *batch,
                                   const struct worker_condemned *condemned);
void worker_report_batch_data(struct worker_report_batch *batch, uint64_t request,
                              const uint8_t *bytes, uint64_t length);
void worker_report_batch_refused(struct worker_report_batch *batch, uint64_t request,
                                 plasmon_status_t status, const uint64_t *buffers,
                                 size_t buffer_count);
void worker_report_batch_pair(struct worker_report_batch *batch,
                              const struct worker_pair_report *report);
void worker_report_batch_function(struct worker_report_batch *batch, uint32_t id,
                                  plasmon_status_t status, const char *text);
/*
 * Fill `frame` (all but header and stats) with what one frame may hold; the rest is left for the
 * next. What it points to lives in the arena and the batch until worker_report_batch_sent(), which
 * forgets what was in it.
 */
plasmon_status_t worker_report_batch_fill(struct worker_report_batch *batch,
                                          struct wire_arena *arena,
                                          Plasmon__V1__WorkerFrame *frame) PL_MUST_CHECK;
void worker_report_batch_sent(struct worker_report_batch *batch,
                              const Plasmon__V1__WorkerFrame *frame);

#endif
