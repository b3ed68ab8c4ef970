/*
 * What a worker says: its hello, and reports batched into frames, which go out a little later and
 * only while the connection is up.
 */
#include "tests/sim/sim.h"

#include <stdio.h>

#include "base/alloc.h"

enum { FLUSH_MAX_NS = 6000 };

static void ranges_put(const struct wire_ranges *ranges, Plasmon__V1__Range *out,
                       Plasmon__V1__Range **places)
{
    for (size_t i = 0; i < ranges->items.count; i++) {
        const struct wire_range *range = pl_vec_at(&ranges->items, i);

        plasmon__v1__range__init(&out[i]);
        out[i].first = range->first;
        out[i].count = range->count;
        places[i]    = &out[i];
    }
}

static void *arena_take(struct sim *sim, size_t count, size_t bytes)
{
    void *ptr = wire_arena_alloc(&sim->arena, (count + 1) * bytes);

    PL_CHECK(ptr != NULL);
    return ptr;
}

static Plasmon__V1__Range **ranges_say(struct sim *sim, const struct wire_ranges *ranges,
                                       size_t *out_count)
{
    size_t n                    = ranges->items.count;
    Plasmon__V1__Range **places = arena_take(sim, n, sizeof(*places));

    ranges_put(ranges, arena_take(sim, n, sizeof(Plasmon__V1__Range)), places);
    *out_count = n;
    return places;
}

static void frame_fill(struct sim_worker *worker, Plasmon__V1__WorkerFrame *frame)
{
    struct sim *sim = worker->sim;

    frame->done = ranges_say(sim, &worker->done, &frame->n_done);

    frame->n_failed = worker->failed.count;
    frame->failed   = arena_take(sim, frame->n_failed, sizeof(*frame->failed));
    for (size_t i = 0; i < frame->n_failed; i++) {
        const struct sim_report *report = pl_vec_at(&worker->failed, i);

        frame->failed[i] = arena_take(sim, 1, sizeof(Plasmon__V1__LaunchFailure));
        plasmon__v1__launch_failure__init(frame->failed[i]);
        frame->failed[i]->seq    = report->seq;
        frame->failed[i]->status = report->status;
        frame->failed[i]->text   = report->text;
    }
    frame->n_starved = worker->starved.count;
    frame->starved   = arena_take(sim, frame->n_starved, sizeof(*frame->starved));
    for (size_t i = 0; i < frame->n_starved; i++) {
        const struct sim_report *report = pl_vec_at(&worker->starved, i);

        frame->starved[i] = arena_take(sim, 1, sizeof(Plasmon__V1__Starved));
        plasmon__v1__starved__init(frame->starved[i]);
        frame->starved[i]->seq          = report->seq;
        frame->starved[i]->bytes        = report->bytes;
        frame->starved[i]->largest_hole = report->hole;
    }
    frame->n_condemned = worker->condemned.count;
    frame->condemned   = arena_take(sim, frame->n_condemned, sizeof(*frame->condemned));
    for (size_t i = 0; i < frame->n_condemned; i++) {
        const struct sim_report *report = pl_vec_at(&worker->condemned, i);

        frame->condemned[i] = arena_take(sim, 1, sizeof(Plasmon__V1__Condemned));
        plasmon__v1__condemned__init(frame->condemned[i]);
        frame->condemned[i]->seq    = report->seq;
        frame->condemned[i]->status = report->status;
        frame->condemned[i]->text   = report->text;
        frame->condemned[i]->fence  = report->fence;
    }
    frame->n_data = worker->data.count;
    frame->data   = arena_take(sim, frame->n_data, sizeof(*frame->data));
    for (size_t i = 0; i < frame->n_data; i++) {
        const struct sim_read_back *back = pl_vec_at(&worker->data, i);

        frame->data[i] = arena_take(sim, 1, sizeof(Plasmon__V1__WorkerData));
        plasmon__v1__worker_data__init(frame->data[i]);
        frame->data[i]->request    = back->request;
        frame->data[i]->status     = back->status;
        frame->data[i]->bytes.data = back->data;
        frame->data[i]->bytes.len  = back->length;
    }
}

/* After what is done: that it is decided what came by a pair must not be told before that. */
static void pairs_fill(struct sim_worker *worker, Plasmon__V1__WorkerFrame *frame)
{
    struct sim *sim = worker->sim;

    frame->n_pairs = worker->pair_reports.count;
    frame->pairs   = arena_take(sim, frame->n_pairs, sizeof(*frame->pairs));
    for (size_t i = 0; i < frame->n_pairs; i++) {
        struct sim_pair_report *from = pl_vec_at(&worker->pair_reports, i);

        frame->pairs[i] = arena_take(sim, 1, sizeof(Plasmon__V1__PairReport));
        plasmon__v1__pair_report__init(frame->pairs[i]);
        frame->pairs[i]->peer     = from->report.key.peer;
        frame->pairs[i]->receives = from->report.key.receives;
        frame->pairs[i]->team     = from->report.key.team;
        frame->pairs[i]->epoch    = from->report.key.epoch;
        frame->pairs[i]->event    = (Plasmon__V1__PairEvent)from->report.event;
        frame->pairs[i]->bytes    = from->report.bytes;
        frame->pairs[i]->chunk    = from->report.chunk;
        frame->pairs[i]->text     = from->text;
        if (from->report.id != NULL) {
            frame->pairs[i]->id.data = from->id;
            frame->pairs[i]->id.len  = sizeof(from->id);
        }
    }
}

void sim_reports_clear(struct sim_worker *worker)
{
    wire_ranges_clear(&worker->done);
    for (size_t i = 0; i < worker->failed.count; i++) {
        pl_free(((struct sim_report *)pl_vec_at(&worker->failed, i))->text);
    }
    for (size_t i = 0; i < worker->condemned.count; i++) {
        pl_free(((struct sim_report *)pl_vec_at(&worker->condemned, i))->text);
    }
    pl_vec_clear(&worker->condemned);
    for (size_t i = 0; i < worker->data.count; i++) {
        pl_free(((struct sim_read_back *)pl_vec_at(&worker->data, i))->data);
    }
    pl_vec_clear(&worker->failed);
    pl_vec_clear(&worker->starved);
    pl_vec_clear(&worker->data);
    pl_vec_clear(&worker->pair_reports);
}

static void body_send(struct sim_worker *worker, const Plasmon__V1__WorkerFrame *frame,
                      bool plain)
{
    size_t length = plasmon__v1__worker_frame__get_packed_size(frame);
    uint8_t *body = sim_alloc(length + 1);

    (void)plasmon__v1__worker_frame__pack(frame, body); /* its size was just computed */
    if (plain) {
        sim_link_send_plain(worker->sim, &worker->link, &worker->to_head, worker->session,
                            0, body, length);
    } else {
        sim_link_send(worker->sim, &worker->link, &worker->to_head, worker->session, 0,
                      body, length);
    }
    pl_free(body);
}

static void worker_flush(void *user, uint64_t arg, void *data)
{
    struct sim_worker *worker      = user;
    Plasmon__V1__WorkerFrame frame = PLASMON__V1__WORKER_FRAME__INIT;
    Plasmon__V1__WorkerStats stats = PLASMON__V1__WORKER_STATS__INIT;

    (void)data;
    if (arg != worker->life || worker->process.stopped) {
        return;
    }
    worker->flush_pending = false;
    if (!worker->connected) {
        return; /* goes out after the welcome */
    }
    wire_arena_reset(&worker->sim->arena);
    frame_fill(worker, &frame);
    pairs_fill(worker, &frame);
    if (worker->stats_due) {
        worker->stats_due = false;
        worker_core_stats(worker->core, &stats);
        sim_ways_report(worker, &stats);
        frame.stats = &stats;
    }
    if (frame.n_done + frame.n_failed + frame.n_starved + frame.n_condemned + frame.n_data +
                frame.n_pairs >
            0 ||
        frame.stats != NULL) {
        body_send(worker, &frame, false);
        sim_reports_clear(worker);
    } else if (wire_link_owes_ack(&worker->link)) {
        body_send(worker, &frame, true);
    }
}

void sim_worker_flush_soon(struct sim_worker *worker)
{
    if (!worker->flush_pending && worker->alive) {
        worker->flush_pending = true;
        sim_after(worker->sim, sim_below(worker->sim, FLUSH_MAX_NS), worker_flush, worker,
                  worker->life, NULL);
    }
}

/* What clients have pinned; few at a time. */
static uint32_t *held_say(struct sim_worker *worker, size_t *out_count)
{
    struct sim *sim = worker->sim;
    uint64_t *bits  = wire_arena_alloc(&sim->arena, STORE_TABLE_SLOTS / 8);
    uint32_t *held  = wire_arena_alloc(&sim->arena, STORE_PIN_MAX * sizeof(*held));

    PL_CHECK(bits != NULL && held != NULL);
    memset(bits, 0, STORE_TABLE_SLOTS / 8);
    for (uint32_t i = 0; i < STORE_READER_MAX; i++) {
        if (sim->readers[i] != NULL) {
            store_pins_held(sim->readers[i], worker->table->host_device, bits);
        }
    }
    *out_count = 0;
    for (uint32_t slot = 0; slot < STORE_TABLE_SLOTS && *out_count < STORE_PIN_MAX;
         slot++) {
        if ((bits[slot / 64] & UINT64_C(1) << slot % 64) != 0) {
            held[(*out_count)++] = slot;
        }
    }
    return held;
}

void sim_worker_hello(struct sim_worker *worker)
{
    struct sim *sim                        = worker->sim;
    Plasmon__V1__WorkerFrame frame         = PLASMON__V1__WORKER_FRAME__INIT;
    Plasmon__V1__WorkerHello hello         = PLASMON__V1__WORKER_HELLO__INIT;
    uint8_t secret[WIRE_BULK_SECRET_BYTES] = {1};
    char name[32], address[32];

    wire_arena_reset(&sim->arena);
    (void)snprintf(name, sizeof(name), "sim %u", worker->host_device);
    hello.host        = (char *)(uintptr_t)sim_worker_host(worker);
    hello.node        = hello.host;
    hello.name        = name;
    hello.host_device = worker->local;
    hello.kind        = DEVICE_CPU;
    hello.ordinal     = worker->local;
    hello.bytes_total =
        sim->config.device_bytes != 0 ? sim->config.device_bytes : worker->arena_bytes;
    hello.incarnation    = worker->incarnation;
    hello.memory         = worker->timeline->memory;
    hello.peer_capable   = sim->config.peer_capable;
    hello.comm_version   = 1;
    hello.comm_plain     = true;
    hello.resume_session = worker->session;
    hello.resume_ack     = worker->link.in_seq;
    hello.received       = worker_core_received(worker->core);
    hello.enqueued       = worker->recovered;
    hello.unfinished     = ranges_say(sim, &worker->recovered_open, &hello.n_unfinished);
    hello.untouched = ranges_say(sim, &worker->recovered_untouched, &hello.n_untouched);
    hello.held      = held_say(worker, &hello.n_held);
    if (sim->config.second_host) {
        /* what goes between hosts takes the way of the host route */
        (void)snprintf(address, sizeof(address), "sim:%u",
                       sim_ways(sim) ? worker->incarnation : 1);
        hello.bulk_address     = address;
        hello.bulk_secret.data = secret;
        hello.bulk_secret.len  = sizeof(secret);
    }
    frame.hello = &hello;
    sim_pipe_open(&worker->to_head);
    body_send(worker, &frame, true);
}
