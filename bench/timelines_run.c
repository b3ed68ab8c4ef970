/*
 * The measurements of `plasmon bench timelines`, the same for every way.
 *
 * PING-PONG. In round n side 0 signals n and waits for n of side 1, which waits for n of side 0 and
 * then signals n. Half a round is an edge. With data, a side's kernel checks what it pulled and
 * writes a new payload before each signal, and a pull follows each wait. A payload is not
 * overwritten before the peer has pulled it: round n + 1 of a side starts behind its wait for the
 * peer's n, which the peer signals behind its pull.
 *
 * CHAIN. Side 0 alone: kernels of 2 us in one stream, with a signal after every one or every 16th;
 * once early (the devices' cost), once while they run (what a program gets that enqueues one after
 * another).
 */
#include "bench/bench.h"
#include "bench/timelines.h"

const uint64_t timelines_size[TIMELINES_SIZES]         = {4096, 65536, 1u << 20};
const uint32_t timelines_interval[TIMELINES_INTERVALS] = {1, 16};

/* ----------------------------------------------------------------------------- the gate */

static plasmon_status_t close_gate(struct timelines_side *side)
{
    side->gate++;
    return device_wait(side->stream, &side->page->gate, side->gate);
}

static void open_gate(struct timelines_side *side)
{
    __atomic_store_n(&side->page->gate, side->gate, __ATOMIC_SEQ_CST);
    device_word_wake(&side->page->gate);
}

static plasmon_status_t elapsed_us(struct timelines_side *side, double *out_us)
{
    uint64_t elapsed_ns     = 0;
    plasmon_status_t status = device_event_elapsed_ns(side->begin, side->end, &elapsed_ns);

    *out_us = (double)elapsed_ns * 1e-3;
    return status;
}

/* ------------------------------------------------------------- signals and waits, timed */

static void add_sample(struct timelines_side *side, size_t kind, uint64_t began_ns)
{
    if (side->sample_count[kind] < TIMELINES_SAMPLES) {
        side->sample[kind][side->sample_count[kind]++] =
            (double)(pl_now_ns() - began_ns) * 1e-3;
    }
}

static plasmon_status_t signal_peer(struct timelines_side *side, uint64_t n)
{
    uint64_t began_ns       = pl_now_ns();
    plasmon_status_t status = side->ops->signal(side, n);

    add_sample(side, 0, began_ns);
    timelines_tell(&side->page->signalled[side->role], (uint32_t)n);
    return status;
}

static plasmon_status_t wait_peer(struct timelines_side *side, uint64_t n)
{
    plasmon_status_t status = PLASMON_OK;
    uint64_t began_ns;

    if (side->ops->needs_order) {
        status = timelines_await(side->page, &side->page->signalled[1 - side->role],
                                 (uint32_t)n);
    }
    began_ns = pl_now_ns();
    if (status == PLASMON_OK) {
        status = side->ops->wait(side, n);
        add_sample(side, 1, began_ns);
    }
    return status;
}

/* ---------------------------------------------------------------------------- ping-pong */

static plasmon_status_t hop(struct timelines_side *side, uint64_t bytes, uint64_t expect,
                            uint64_t round)
{
    const struct timelines_exchange args = {
        .landing = side->chunk.addr + TIMELINES_AT_LANDING,
        .payload = side->chunk.addr + TIMELINES_AT_PAYLOAD,
        .wrong   = side->chunk.addr + TIMELINES_AT_WRONG,
        .words   = bytes / sizeof(uint64_t),
        .expect  = expect,
        .round   = round,
        .role    = side->role,
    };

    side->words_checked += expect != 0 ? args.words : 0;
    return timelines_exchange(side, &args);
}

/* expect: the round whose payload was pulled last; 0: none. */
static plasmon_status_t send_round(struct timelines_side *side, uint64_t bytes, uint64_t n,
                                   uint64_t expect)
{
    plasmon_status_t status = PLASMON_OK;

    if (bytes > 0) {
        status = hop(side, bytes, expect, n);
    }
    return status == PLASMON_OK ? signal_peer(side, n) : status;
}

static plasmon_status_t receive_round(struct timelines_side *side, uint64_t bytes,
                                      uint64_t n)
{
    plasmon_status_t status = wait_peer(side, n);

    if (status != PLASMON_OK || bytes == 0) {
        return status;
    }
    return device_copy(side->stream, DEVICE_COPY_DEVICE_TO_DEVICE,
                       side->chunk.addr + TIMELINES_AT_LANDING,
                       side->peer.addr + TIMELINES_AT_PAYLOAD, bytes);
}

/* One round of the sides that are here, in an order that works for one thread with both. */
static plasmon_status_t enqueue_round(struct timelines_side *sides, uint32_t count,
                                      uint64_t bytes, bool first)
{
    struct timelines_side *zero = sides[0].role == 0 ? &sides[0] : NULL;
    struct timelines_side *one  = sides[count - 1].role == 1 ? &sides[count - 1] : NULL;
    uint64_t n                  = sides[0].signalled + 1;
    plasmon_status_t status     = PLASMON_OK;

    if (zero != NULL) {
        zero->signalled = n;
        status          = send_round(zero, bytes, n, first ? 0 : n - 1);
    }
    if (one != NULL && status == PLASMON_OK) {
        one->signalled = n;
        status         = receive_round(one, bytes, n);
        if (status == PLASMON_OK) {
            status = send_round(one, bytes, n, n);
        }
    }
    if (zero != NULL && status == PLASMON_OK) {
        status = receive_round(zero, bytes, n);
    }
    return status;
}

static plasmon_status_t enqueue_group(struct timelines_side *sides, uint32_t count,
                                      uint64_t bytes)
{
    plasmon_status_t status = PLASMON_OK;

    for (uint32_t i = 0; i < count && status == PLASMON_OK; i++) {
        status = close_gate(&sides[i]);
    }
    if (status == PLASMON_OK && sides[0].role == 0) {
        status = device_event_record(sides[0].begin, sides[0].stream);
    }
    for (uint32_t i = 0; i < TIMELINES_ROUNDS && status == PLASMON_OK; i++) {
        status = enqueue_round(sides, count, bytes, i == 0);
    }
    if (status == PLASMON_OK && sides[0].role == 0) {
        status = device_event_record(sides[0].end, sides[0].stream);
        if (status == PLASMON_OK && bytes > 0) {
            status = hop(&sides[0], bytes, sides[0].signalled, 0);
        }
    }
    return status;
}

/* Microseconds of half a round; only where side 0 is. */
static plasmon_status_t run_group(struct timelines_side *sides, uint32_t count,
                                  uint64_t bytes, double *out_us, struct pl_err *err)
{
    plasmon_status_t status = enqueue_group(sides, count, bytes);

    if (status == PLASMON_OK) {
        status = timelines_meet(sides[0].page);
    }
    if (status == PLASMON_OK && sides[0].role == 0) {
        open_gate(&sides[0]);
    }
    for (uint32_t i = 0; i < count && status == PLASMON_OK; i++) {
        status = device_stream_sync(sides[i].stream, err);
    }
    if (status == PLASMON_OK && sides[0].role == 0) {
        status = elapsed_us(&sides[0], out_us);
        *out_us /= 2 * TIMELINES_ROUNDS;
    }
    return status == PLASMON_OK ? timelines_meet(sides[0].page) : status;
}

/* The median of the groups. The first one is not counted: it is where pages and paths are touched first. */
static plasmon_status_t measure_edge(struct timelines_side *sides, uint32_t count,
                                     uint64_t bytes, double *out_us, struct pl_err *err)
{
    double sample[TIMELINES_GROUPS], first;
    plasmon_status_t status = run_group(sides, count, bytes, &first, err);

    sides[0].sample_count[0] = sides[0].sample_count[1] = 0;
    for (size_t i = 0; i < TIMELINES_GROUPS && status == PLASMON_OK; i++) {
        status = run_group(sides, count, bytes, &sample[i], err);
    }
    if (status == PLASMON_OK && sides[0].role == 0) {
        *out_us = bench_percentile(sample, TIMELINES_GROUPS, 0.5);
    }
    return status;
}

static plasmon_status_t measure_edges(struct timelines_side *sides, uint32_t count,
                                      struct pl_err *err)
{
    struct timelines_figures *figures = &sides[0].page->figures;
    plasmon_status_t status           = measure_edge(sides, count, 0, &figures->edge, err);

    if (status == PLASMON_OK && sides[0].role == 0) {
        figures->enqueue_signal =
            bench_percentile(sides[0].sample[0], sides[0].sample_count[0], 0.5);
        figures->enqueue_wait =
            bench_percentile(sides[0].sample[1], sides[0].sample_count[1], 0.5);
    }
    for (size_t i = 0; i < TIMELINES_SIZES && status == PLASMON_OK; i++) {
        status = measure_edge(sides, count, timelines_size[i], &figures->edge_data[i], err);
    }
    return status;
}

/* -------------------------------------------------------------------------------- chain */

/* Microseconds in all. interval 0: no signals. */
static plasmon_status_t chain_part(struct timelines_side *side, uint32_t kernels,
                                   uint32_t interval, bool early, double *out_us,
                                   struct pl_err *err)
{
    plasmon_status_t status = early ? close_gate(side) : PLASMON_OK;

    if (status == PLASMON_OK) {
        status = device_event_record(side->begin, side->stream);
    }
    for (uint32_t i = 1; i <= kernels && status == PLASMON_OK; i++) {
        status = timelines_spin(side, side->spin_units);
        if (status == PLASMON_OK && interval > 0 && i % interval == 0) {
            status = side->ops->signal(side, ++side->signalled);
        }
    }
    if (status == PLASMON_OK) {
        status = device_event_record(side->end, side->stream);
    }
    if (early) {
        open_gate(side);
    }
    if (status == PLASMON_OK) {
        status = device_stream_sync(side->stream, err);
    }
    return status == PLASMON_OK ? elapsed_us(side, out_us) : status;
}

/* Microseconds a kernel: early, and while they run. */
static plasmon_status_t measure_chain(struct timelines_side *side, uint32_t interval,
                                      double *out_early, double *out_flow,
                                      struct pl_err *err)
{
    double part = 0, sum = 0;
    plasmon_status_t status = PLASMON_OK;

    for (uint32_t done = 0; done < TIMELINES_CHAIN && status == PLASMON_OK;
         done += TIMELINES_CHAIN_GROUP) {
        status = chain_part(side, TIMELINES_CHAIN_GROUP, interval, true, &part, err);
        sum += part;
    }
    if (status == PLASMON_OK) {
        status = chain_part(side, TIMELINES_CHAIN, interval, false, &part, err);
    }
    *out_early = sum / TIMELINES_CHAIN;
    *out_flow  = part / TIMELINES_CHAIN;
    return status;
}

static plasmon_status_t measure_chains(struct timelines_side *side, struct pl_err *err)
{
    struct timelines_figures *figures = &side->page->figures;
    plasmon_status_t status =
        measure_chain(side, 0, &figures->chain_bare, &figures->flow_bare, err);

    for (size_t i = 0; i < TIMELINES_INTERVALS && status == PLASMON_OK; i++) {
        status = measure_chain(side, timelines_interval[i], &figures->chain[i],
                               &figures->flow[i], err);
    }
    return status;
}

/* ---------------------------------------------------------------------------------- all */

static plasmon_status_t read_wrong(struct timelines_side *side, struct pl_err *err)
{
    uint64_t *answer = &side->page->answer[side->role];
    plasmon_status_t status =
        device_copy(side->stream, DEVICE_COPY_DEVICE_TO_HOST, (uint64_t)(uintptr_t)answer,
                    side->chunk.addr + TIMELINES_AT_WRONG, sizeof(*answer));

    return status == PLASMON_OK ? device_stream_sync(side->stream, err) : status;
}

plasmon_status_t timelines_measure(struct timelines_side *sides, uint32_t count,
                                   struct pl_err *err)
{
    struct timelines_page *page = sides[0].page;
    plasmon_status_t status     = measure_edges(sides, count, err);

    for (uint32_t i = 0; i < count && status == PLASMON_OK; i++) {
        status = read_wrong(&sides[i], err);
    }
    if (status == PLASMON_OK) {
        status = timelines_meet(page);
    }
    if (status == PLASMON_OK && sides[0].role == 0) {
        /* Both sides check as many words. */
        page->figures.words_checked = 2 * sides[0].words_checked;
        page->figures.words_wrong   = page->answer[0] + page->answer[1];
        status                      = measure_chains(&sides[0], err);
    }
    return status == PLASMON_OK ? timelines_meet(page) : status;
}
