/*
 * A worker process: what worker/main.c does around worker_core. Commands in, device work out,
 * reports batched into frames.
 *
 * A crash takes the core, the streams and the connection; table, timeline, arena and staging slab
 * stand. After a while a new incarnation recovers from them and says hello. What was in flight on
 * the old connection is lost, and with it reports that the head never saw: the hello of the new
 * incarnation tells the head what it must know.
 *
 * A broken connection alone loses nothing: both sides keep what was not acknowledged and resume.
 *
 * A process that is stopped does nothing, and takes nothing over; what it is to do meanwhile it
 * does when it goes on. Its device does not stop with it (sim_store.c).
 */
#include "tests/sim/sim.h"

#include <string.h>
#include <sys/mman.h>

#include "base/alloc.h"
#include "base/fault.h"
#include "worker/siblings.h"

enum {
    ARENA_BYTES      = 4 << 20,
    WAKE_MAX_NS      = 4000,
    RECONNECT_MAX_NS = 300000,
    RESTART_MAX_NS   = 400000,
    POLL_NS          = 1000000,
    POLL_LONG_NS     = 20000000, /* a host is missed for seconds before it is given up */
    LOCK_NS          = 50000,
    LINK_KEPT_BYTES  = 64 << 20,
    WAY_DEATHS_MAX   = 4,
};

static void worker_connect(void *user, uint64_t arg, void *data);

const char *sim_worker_host(const struct sim_worker *worker)
{
    return sim_node_of(worker)->name;
}

/* Memory that starts as zero and costs only what is touched. */
static void *map_zero(size_t bytes)
{
    void *ptr = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    PL_CHECK(ptr != MAP_FAILED);
    return ptr;
}

/* -------------------------------------------------------------------------------- wakes */

static void worker_poll(void *user, uint64_t arg, void *data);

/* Is this for the process that is there, and does it run? */
static bool runs(const struct sim_worker *worker, uint64_t life)
{
    return life == worker->life && worker->alive && !worker->process.stopped;
}

void sim_worker_advance(struct sim_worker *worker)
{
    bool gone = worker->sim->config.gone_max != 0 || worker->sim->gone_count != 0;

    sim_memory_enter(worker);
    worker_core_advance(worker->core);
    worker_core_complete(worker->core);
    if (gone) { /* as often as the loop of a worker passes by */
        worker_core_look_for_gone(worker->core);
        sim_streams_kick(worker->sim);
    }
    sim_memory_leave();
    if ((worker_core_wants_poll(worker->core) ||
         (gone && !worker_core_idle(worker->core))) &&
        !worker->poll_pending) {
        worker->poll_pending = true;
        sim_after(worker->sim,
                  worker_core_wants_poll(worker->core) || sim_ghosts(worker->sim) == 0
                      ? POLL_NS
                      : POLL_LONG_NS,
                  worker_poll, worker, worker->life, NULL);
    }
    if (worker->sim->config.limits) {
        sim_limits_tick(worker);
    }
}

static void worker_poll(void *user, uint64_t arg, void *data)
{
    struct sim_worker *worker = user;

    (void)data;
    if (runs(worker, arg)) {
        worker->poll_pending = false;
        sim_worker_wake(worker);
    }
}

static void worker_woken(void *user, uint64_t arg, void *data)
{
    struct sim_worker *worker = user;

    (void)data;
    if (runs(worker, arg)) {
        worker->wake_pending = false;
        sim_memory_enter(worker);
        worker_core_complete(worker->core);
        sim_memory_leave();
        sim_worker_advance(worker);
    }
}

void sim_worker_wake(struct sim_worker *worker)
{
    if (!worker->wake_pending && worker->alive) {
        worker->wake_pending = true;
        sim_after(worker->sim, sim_below(worker->sim, WAKE_MAX_NS), worker_woken, worker,
                  worker->life, NULL);
    }
}

bool sim_worker_locked(struct sim_worker *worker)
{
    uint64_t now_ns = worker->sim->now_ns;

    if (now_ns < worker->locks_until_ns && !worker->poll_pending) {
        worker->poll_pending = true;
        sim_after(worker->sim, worker->locks_until_ns - now_ns, worker_poll, worker,
                  worker->life, NULL);
    }
    return now_ns >= worker->locks_until_ns;
}

static void worker_rung(void *user, uint64_t arg, void *data)
{
    struct sim_worker *worker = user;

    (void)data;
    if (runs(worker, arg)) {
        worker->doorbell_pending = false;
        sim_worker_advance(worker);
    }
}

void sim_worker_doorbell(struct sim_worker *worker)
{
    if (!worker->doorbell_pending && worker->alive) {
        worker->doorbell_pending = true;
        sim_after(worker->sim, sim_below(worker->sim, WAKE_MAX_NS), worker_rung, worker,
                  worker->life, NULL);
    }
}

/* ----------------------------------------------------------------------------- commands */

static void note_launch(struct sim_worker *worker, const Plasmon__V1__Launch *launch)
{
    struct sim *sim = worker->sim;

    sim_losses_note(worker, launch);
    sim_limits_note(worker, launch);
    sim_begun_note(worker, launch);
    for (size_t i = 0; i < launch->n_operands; i++) {
        uint32_t slot = wire_buffer_slot(launch->operands[i]->buffer);

        worker->slots_used = slot >= worker->slots_used ? slot + 1 : worker->slots_used;
        if (launch->operands[i]->fresh) {
            struct sim_fresh *fresh = pl_vec_push(&worker->fresh);

            PL_CHECK(fresh != NULL);
            *fresh = (struct sim_fresh){
                .seq        = launch->seq,
                .slot       = slot,
                .generation = wire_buffer_generation(launch->operands[i]->buffer)};
        }
    }
    for (uint32_t i = 0; i < sim->config.clients; i++) {
        if (launch->task != 0 && sim->clients[i].id == launch->client) {
            PL_CHECK(pl_map_set(&sim->ran_on, sim_task_key(&sim->clients[i], launch->task),
                                (void *)(uintptr_t)(worker->host_device + 1)) ==
                     PLASMON_OK);
        }
    }
}

/* What was noted of its launches and buffers: there are others under their numbers now. */
static void memory_forget(struct sim_worker *worker)
{
    sim_sealed_finish(worker);
    sim_sealed_init(worker);
    pl_vec_clear(&worker->fresh);
    pl_vec_clear(&worker->uses);
}

void sim_worker_blank(struct sim_worker *worker)
{
    memory_forget(worker);
    PL_CHECK(madvise(worker->table, sizeof(*worker->table), MADV_DONTNEED) == 0);
    PL_CHECK(madvise(worker->timeline, sizeof(*worker->timeline), MADV_DONTNEED) == 0);
    PL_CHECK(madvise(worker->arena, ARENA_BYTES, MADV_DONTNEED) == 0);
    store_table_init(worker->table, worker->host_device, DEVICE_CPU, worker->host_device,
                     ARENA_BYTES);
    store_timeline_init(worker->timeline, worker->host_device);
    worker->timeline->memory = sim_node_of(worker)->memory;
    store_pins_init(worker->pins, 1000 + worker->host_device);
    pl_map_finish(&worker->begun);
    pl_map_init(&worker->begun);
    pl_vec_clear(&worker->chunks);
    pl_vec_clear(&worker->blocks);
    pl_vec_clear(&worker->leaving);
    pl_vec_clear(&worker->blocks_before);
    worker->chunk_bytes = 0;
    memset(worker->pool_bytes, 0, sizeof(worker->pool_bytes));
    worker->recovered = 0;
    wire_ranges_clear(&worker->recovered_open);
    wire_ranges_clear(&worker->recovered_untouched);
    worker->slots_used = 0;
    worker->blank      = true;
}

static void resend(void *user, const uint8_t *bytes, size_t length)
{
    struct sim_worker *worker = user;

    sim_pipe_send(&worker->to_head, bytes, length);
}

static struct store_table *const *tables_of(const struct sim_worker *worker)
{
    return worker->sim->tables + sim_node_of(worker)->first;
}

/* As worker/daemon.c does: to this head we are another device than we were to one before. */
static void forget_all(struct sim_worker *worker)
{
    sim_trace(worker->sim, "device %u lets go of all it had", worker->host_device);
    sim_cover(worker->sim, SIM_CELL_HOST_FORGOT);
    if (pl_bug("worker.keep_all")) {
        return;
    }
    worker->forgets = true;
    sim_memory_enter(worker);
    worker_core_forget(worker->core);
    sim_memory_leave();
    worker->forgets = false;
    worker->forgot  = true;
    memory_forget(worker);
    worker_siblings_forget(
        &(struct worker_siblings){.tables = tables_of(worker), .own = worker->local});
}

static struct worker_siblings siblings_of(const struct sim_worker *worker)
{
    return (struct worker_siblings){.tables = tables_of(worker),
                                    .timelines =
                                        worker->sim->timelines + sim_node_of(worker)->first,
                                    .count        = sim_node_of(worker)->count,
                                    .own          = worker->local,
                                    .epoch        = SIM_EPOCH,
                                    .node_session = worker->node_session};
}

/* Those of its own host by their tables, as worker/daemon.c; others when its own ring has begun. */
static uint32_t known_as(const struct sim_worker *worker,
                         const struct worker_siblings *siblings, uint32_t number)
{
    struct sim *sim      = worker->sim;
    uint32_t host_device = sim->host_device_of[number];
    const struct sim_worker *other;

    if (host_device >= sim->config.devices || host_device == worker->host_device) {
        return host_device;
    }
    other = &sim->workers[host_device];
    if (worker->host_device_of[number] == host_device) {
        return host_device;
    }
    if (!worker->ring_begun ||
        (sim_node_of(other) == sim_node_of(worker) &&
         worker_siblings_number(siblings, other->local) != number + 1ull)) {
        return WORKER_DEVICE_PENDING;
    }
    return host_device;
}

static void numbers_refresh(struct sim_worker *worker)
{
    struct worker_siblings siblings = siblings_of(worker);

    if (!worker->alive || worker->session == 0) {
        return;
    }
    if (!worker->ring_begun && worker_siblings_ring_begin(&siblings)) {
        worker->ring_begun = true;
        sim_ways_fill(worker);
        if (worker->forgot) { /* others may have waited for that */
            worker->forgot = false;
            sim_streams_kick_soon(worker);
        }
    }
    for (uint32_t i = 0; i < SIM_NUMBERS_MAX; i++) {
        worker->host_device_of[i] = known_as(worker, &siblings, i);
    }
}

void sim_numbers_refresh(struct sim *sim)
{
    for (uint32_t k = 0; k < 2; k++) { /* rings first */
        for (uint32_t i = 0; i < sim->config.devices; i++) {
            numbers_refresh(&sim->workers[i]);
        }
    }
}

static void take_welcome(struct sim_worker *worker,
                         const Plasmon__V1__WorkerCommand *command)
{
    const Plasmon__V1__WorkerWelcome *welcome = command->welcome;
    struct worker_siblings siblings;

    if (worker->session != welcome->session && worker->session != 0) {
        sim_fail(worker->sim, "device %u: its session changed without a restart",
                 worker->host_device);
    }
    if (worker->table->device != 0 && worker->table->device != welcome->device + 1ull) {
        forget_all(worker);
    }
    worker->node_session = welcome->node_session;
    siblings             = siblings_of(worker);
    worker_siblings_announce(&siblings, welcome->device);
    worker->blank = worker->given_up             = false;
    worker->session                              = welcome->session;
    worker->device                               = welcome->device;
    worker->connected                            = true;
    worker->sim->host_device_of[welcome->device] = worker->host_device;
    sim_numbers_refresh(worker->sim);
    wire_link_acked(&worker->link, welcome->resumed_seq);
    wire_link_resend(&worker->link, welcome->resumed_seq, resend, worker);
    for (uint32_t i = 0; i < worker->sim->config.devices; i++) {
        sim_worker_doorbell(&worker->sim->workers[i]); /* a device has a name now */
    }
}

static void trace_numbers(struct pl_str *out, size_t n, const int64_t *numbers)
{
    for (size_t i = 0; i < n; i++) {
        pl_str_append(out, "%s%lld", i == 0 ? "" : ",", (long long)numbers[i]);
    }
}

static void trace_launch(const struct sim_worker *worker, const Plasmon__V1__Launch *launch)
{
    struct pl_str text;

    if (!worker->sim->trace) {
        return;
    }
    pl_str_init(&text);
    for (size_t i = 0; i < launch->n_operands; i++) {
        const Plasmon__V1__Operand *operand = launch->operands[i];

        pl_str_append(&text, "\n    mode %u %s%sslot %u frame ", operand->mode,
                      operand->fresh ? "fresh " : "", operand->consume ? "in place " : "",
                      wire_buffer_slot(operand->buffer));
        trace_numbers(&text, operand->n_frame, operand->frame);
        pl_str_append(&text, " view ");
        trace_numbers(&text, operand->n_view, operand->view);
    }
    for (size_t i = 0; i < launch->n_pieces; i++) {
        const Plasmon__V1__Piece *piece = launch->pieces[i];

        pl_str_append(&text, "\n    piece of device %u slot %u box ",
                      wire_buffer_device(piece->src), wire_buffer_slot(piece->src));
        trace_numbers(&text, piece->n_box, piece->box);
    }
    for (size_t i = 0; i < launch->n_after; i++) {
        pl_str_append(&text, "%s%u:%llu", i == 0 ? "\n    after " : " ",
                      wire_point_device(launch->after[i]),
                      (unsigned long long)wire_point_seq(launch->after[i]));
    }
    sim_trace(worker->sim, "device %u gets launch %llu, order %llu, kind %d, task %llu%s",
              worker->host_device, (unsigned long long)launch->seq,
              (unsigned long long)launch->order, (int)launch->kind,
              (unsigned long long)launch->task, pl_str_text(&text));
    pl_str_finish(&text);
}

static void take_command(struct sim_worker *worker,
                         const Plasmon__V1__WorkerCommand *command)
{
    struct pl_err err = {0};
    plasmon_status_t status;

    for (size_t i = 0; i < command->n_launches; i++) {
        const Plasmon__V1__Launch *launch = command->launches[i];

        trace_launch(worker, launch);
        note_launch(worker, launch);
    }
    sim_sealed_note(worker, command);
    sim_memory_enter(worker);
    status = worker_core_command(worker->core, command, &err);
    sim_memory_leave();
    if (status != PLASMON_OK) {
        sim_fail(worker->sim, "device %u refuses a command: %s", worker->host_device,
                 err.text);
        return;
    }
    sim_worker_advance(worker);
}

/* It was told to give up something, and has not done it yet. */
static bool dies_of_order(struct sim_worker *worker)
{
    struct sim *sim = worker->sim;

    if (sim->config.crashes_max == 0 || sim->way_deaths >= WAY_DEATHS_MAX ||
        !sim_chance(sim, 200)) {
        return false;
    }
    sim->way_deaths++;
    sim_cover(sim, SIM_CELL_WAY_DEATH);
    sim_crash_one(sim, worker);
    return true;
}

static void worker_deliver(void *user, const uint8_t *data, size_t length)
{
    struct sim_worker *worker           = user;
    Plasmon__V1__WorkerCommand *command = NULL;
    struct pl_err err                   = {0};
    int take;

    wire_arena_reset(&worker->sim->arena);
    if (wire_decode_worker_command(&worker->sim->arena, data, length, &command, &err) !=
        PLASMON_OK) {
        sim_fail(worker->sim, "device %u cannot decode a command: %s", worker->host_device,
                 err.text);
        return;
    }
    take = wire_link_receive(&worker->link, command->header->seq);
    if (take < 0) {
        sim_fail(worker->sim, "device %u: command %llu comes after %llu",
                 worker->host_device, (unsigned long long)command->header->seq,
                 (unsigned long long)worker->link.in_seq);
        return;
    }
    wire_link_acked(&worker->link, command->header->ack);
    if (take == 0) {
        return;
    }
    if (command->n_bulk_give_up > 0 && dies_of_order(worker)) {
        return;
    }
    if (command->welcome != NULL) {
        take_welcome(worker, command);
    }
    take_command(worker, command);
    sim_worker_flush_soon(worker);
}

/* --------------------------------------------------------------------- coming and going */

#define SIM_MARK_BYTES 64u /* everything is small: behind most copies, but not behind all */
#define SIM_LARGE_COPY 16u /* likewise */

static void core_create(struct sim_worker *worker)
{
    struct sim *sim                  = worker->sim;
    struct worker_core_config config = {
        .ops               = &sim_worker_ops,
        .user              = worker,
        .host_device       = worker->host_device,
        .host_device_count = sim->config.devices + sim_ghosts(sim),
        .run_streams       = sim->config.run_streams,
        .urgent_streams    = sim->config.run_streams % 2,
        .low_streams       = sim->config.run_streams / 2 % 2,
        .words_cheap       = worker->words_cheap,
        .mark_bytes        = SIM_MARK_BYTES,
        .large_copy_bytes  = SIM_LARGE_COPY,
        .lone              = sim->config.devices == 1,
        .timelines         = sim->timelines,
        .tables            = sim->tables,
        .readers           = sim->readers,
        .host_device_of    = worker->host_device_of,
        .device_max        = SIM_NUMBERS_MAX,
        .device_bytes      = worker->arena_bytes,
    };

    worker->ring_begun = false;
    for (uint32_t i = 0; i < SIM_NUMBERS_MAX; i++) {
        worker->host_device_of[i] = WORKER_DEVICE_PENDING;
    }
    worker->timeline->incarnation = ++worker->incarnation;
    worker->timeline->beat        = 1;
    if (worker->incarnation > 1) {
        /* for as long as it may take that one, whatever the seed */
        worker->locks_until_ns =
            sim->now_ns +
            (worker->incarnation * 3 + worker->host_device) % 7 * (uint64_t)LOCK_NS;
    }
    sim_memory_enter(worker);
    if (worker_core_create(&config, &worker->core) != PLASMON_OK) {
        sim_fail(sim, "device %u: no core", worker->host_device);
    }
    for (size_t i = 0; i < worker->chunks.count; i++) {
        const struct sim_chunk *chunk = pl_vec_at(&worker->chunks, i);

        if (worker_core_chunk_added(worker->core, chunk->pool, chunk->offset,
                                    chunk->bytes) != PLASMON_OK) {
            sim_fail(sim, "device %u: a chunk was refused", worker->host_device);
        }
    }
    sim_memory_leave();
}

/*
 * A connection that broke is made again; the head may never have got the last hello, so this one
 * says all of it again.
 */
static void worker_connect(void *user, uint64_t arg, void *data)
{
    struct sim_worker *worker = user;

    (void)data;
    if (runs(worker, arg)) {
        sim_worker_hello(worker);
    } else if (arg == worker->life && worker->alive) {
        worker->process.connect_due = true;
    }
}

void sim_worker_spawn(struct sim_worker *worker)
{
    wire_ranges_clear(&worker->recovered_open);
    wire_ranges_clear(&worker->recovered_untouched);
    worker->alive            = true;
    worker->recovered_memory = false;
    core_create(worker);
    sim_memory_enter(worker);
    if (worker_core_recover(worker->core, &worker->recovered, &worker->recovered_open,
                            &worker->recovered_untouched) != PLASMON_OK) {
        sim_fail(worker->sim, "device %u: recovery failed", worker->host_device);
    }
    worker->recovered_memory = true;
    sim_memory_leave();
    sim_memory_recovered(worker);
    sim_begun_check(worker);
    sim_worker_hello(worker);
    if (sim_ways(worker->sim)) { /* who waits for somebody who takes what they send */
        sim_streams_kick_soon(worker);
    }
}

static void worker_restart(void *user, uint64_t arg, void *data)
{
    struct sim_worker *worker = user;

    (void)data;
    if (arg == worker->life && !worker->alive) {
        sim_worker_spawn(worker);
    }
}

void sim_worker_start(struct sim_worker *worker)
{
    sim_store_init(worker);
    worker->alive = true;
    core_create(worker);
    worker->recovered_memory = true; /* there is none yet */
    if (sim_ways(worker->sim)) {
        sim_streams_kick_soon(worker);
    }
    sim_after(worker->sim, sim_below(worker->sim, RECONNECT_MAX_NS), worker_connect, worker,
              worker->life, NULL);
}

static void worker_disconnect(struct sim_worker *worker)
{
    sim_pipe_break(&worker->to_head);
    sim_pipe_break(&worker->from_head);
    worker->connected = false;
    sim_head_worker_lost(worker);
}

void sim_worker_break(struct sim_worker *worker)
{
    if (!worker->alive || !worker->to_head.up) {
        return;
    }
    worker_disconnect(worker);
    sim_after(worker->sim, sim_below(worker->sim, RECONNECT_MAX_NS), worker_connect, worker,
              worker->life, NULL);
}

/* Nothing is left of the process but its number. */
static void process_end(struct sim_worker *worker)
{
    if (worker->process.stopped) {
        worker->process.stopped = false;
        sim_pipe_release(&worker->from_head);
    }
    if (worker->cut.on) {
        sim_cover(worker->sim, SIM_CELL_CUT_DEATH);
    }
    sim_cut_died(&worker->cut);
    worker->process.connect_due = false;
    worker->alive               = false;
    worker->crashes++;
    worker->wake_pending = worker->flush_pending = worker->doorbell_pending =
        worker->poll_pending                     = false;
    worker_core_destroy(worker->core);
    worker->core = NULL;
    sim_growth_died(worker);
    sim_ways_crash(worker);
    sim_memory_forget(worker);
    sim_reports_clear(worker);
    wire_link_finish(&worker->link);
    wire_link_init(&worker->link, LINK_KEPT_BYTES);
    worker_disconnect(worker);
    worker->session = 0;
}

void sim_worker_end(struct sim_worker *worker)
{
    struct sim *sim = worker->sim;

    sim_trace(sim, "device %u crashes", worker->host_device);
    sim_streams_drop(worker, true);
    sim_pairs_crash(worker);
    sim_losses_crash(worker);
    sim_limits_forget(worker);
    sim_streams_kick(sim); /* the last thing that it did may have been to write a word */
    worker->life++;
    process_end(worker);
}

void sim_worker_supplant(struct sim_worker *worker)
{
    sim_trace(worker->sim, "device %u gets another worker beside the one it has",
              worker->host_device);
    process_end(worker);
}

/* ----------------------------------------------------------------------- standing still */

void sim_worker_stop(struct sim_worker *worker)
{
    sim_trace(worker->sim, "device %u: its worker is stopped", worker->host_device);
    worker->process.stopped = true;
    sim_pipe_hold(&worker->from_head);
}

void sim_worker_continue(struct sim_worker *worker)
{
    sim_trace(worker->sim, "device %u: its worker goes on", worker->host_device);
    worker->process.stopped = false;
    sim_pipe_release(&worker->from_head);
    worker->wake_pending = worker->flush_pending = worker->doorbell_pending =
        worker->poll_pending                     = false;
    sim_growth_continued(worker);
    sim_worker_wake(worker);
    sim_worker_flush_soon(worker);
    if (sim_ways(worker->sim)) {
        sim_streams_kick_soon(worker);
    }
    if (worker->process.connect_due) {
        worker->process.connect_due = false;
        sim_after(worker->sim, sim_below(worker->sim, RECONNECT_MAX_NS), worker_connect,
                  worker, worker->life, NULL);
    }
}

void sim_worker_gone(struct sim_worker *worker)
{
    if (worker->gone) {
        return;
    }
    worker->gone = true;
    if (worker->alive) {
        sim_worker_end(worker);
    }
    worker->life++; /* nor does one that is being started */
    sim_head_worker_gone(worker);
}

void sim_worker_crash(struct sim_worker *worker, const char *why)
{
    struct sim *sim = worker->sim;

    if (!worker->alive) {
        return;
    }
    sim_trace(sim, "device %u: %s", worker->host_device, why);
    sim_worker_end(worker);
    if (sim->config.stores) {
        sim_store_exited(worker);
        return;
    }
    if (sim_chance(sim, 700)) {
        sim_head_worker_down(worker, worker->incarnation);
    } /* else the hello of the next one is faster than the store's word */
    sim_after(sim, sim_between(sim, 1000, RESTART_MAX_NS), worker_restart, worker,
              worker->life, NULL);
}

/* ------------------------------------------------------------------------------ cut off */

static void cut_peer_gives_up(void *user)
{
    sim_worker_break(user);
}

static void cut_head_gives_up(void *user)
{
    sim_head_worker_silent(user);
}

static void cut_head_notices(void *user)
{
    sim_head_worker_lost(user);
}

static void cut_late(void *user, const uint8_t *bytes, size_t length)
{
    sim_head_late_hello(user, bytes, length);
}

static const struct sim_cut_ops cut_ops = {.peer_gives_up = cut_peer_gives_up,
                                           .head_gives_up = cut_head_gives_up,
                                           .head_notices  = cut_head_notices,
                                           .late          = cut_late};

void sim_worker_init(struct sim_worker *worker, struct sim *sim, uint32_t host_device)
{
    *worker       = (struct sim_worker){.sim           = sim,
                                        .host_device   = host_device,
                                        .blank         = true,
                                        .device        = UINT32_MAX,
                                        .arena_bytes   = ARENA_BYTES,
                                        .words_cheap   = sim->config.seed % 2 == 0,
                                        .life          = 1,
                                        .chunks        = PL_VEC_INIT(struct sim_chunk),
                                        .fresh         = PL_VEC_INIT(struct sim_fresh),
                                        .blocks        = PL_VEC_INIT(struct sim_block),
                                        .leaving       = PL_VEC_INIT(struct sim_block),
                                        .blocks_before = PL_VEC_INIT(struct sim_block),
                                        .failed        = PL_VEC_INIT(struct sim_report),
                                        .starved       = PL_VEC_INIT(struct sim_report),
                                        .condemned     = PL_VEC_INIT(struct sim_report),
                                        .pair_reports  = PL_VEC_INIT(struct sim_pair_report),
                                        .data          = PL_VEC_INIT(struct sim_read_back)};
    worker->local = host_device - sim_node_of(worker)->first;
    sim_losses_init(worker);
    sim_limits_init(worker);
    sim_pairs_init(worker);
    sim_ways_init(worker);
    sim_sealed_init(worker);

    worker->table    = map_zero(sizeof(*worker->table));
    worker->timeline = map_zero(sizeof(*worker->timeline));
    worker->arena    = map_zero(ARENA_BYTES);
    worker->slab     = map_zero((size_t)STORE_STAGE_SLOTS * SIM_STAGE_BYTES_MAX);
    worker->pins     = sim_alloc(sizeof(*worker->pins));
    store_table_init(worker->table, host_device, DEVICE_CPU, host_device, ARENA_BYTES);
    store_timeline_init(worker->timeline, host_device);
    worker->timeline->memory = sim_node_of(worker)->memory;
    store_pins_init(worker->pins, 1000 + host_device);
    wire_ranges_init(&worker->done);
    wire_ranges_init(&worker->recovered_open);
    wire_ranges_init(&worker->recovered_untouched);
    pl_map_init(&worker->begun);
    wire_link_init(&worker->link, LINK_KEPT_BYTES);
    sim_streams_init(worker);
    sim_pipe_init(&worker->to_head, sim, sim_head_from_worker, worker);
    sim_pipe_init(&worker->from_head, sim, worker_deliver, worker);
    sim_cut_init(&worker->cut, sim, &worker->to_head, &worker->from_head, &cut_ops, worker);
    sim->tables[host_device]    = worker->table;
    sim->timelines[host_device] = worker->timeline;
    sim->readers[host_device]   = worker->pins;
}

void sim_worker_finish(struct sim_worker *worker)
{
    if (worker->table == NULL) {
        return;
    }
    sim_streams_drop(worker, false);
    sim_pairs_finish(worker);
    sim_ways_finish(worker);
    worker_core_destroy(worker->core);
    sim_reports_clear(worker);
    wire_ranges_finish(&worker->done);
    wire_ranges_finish(&worker->recovered_open);
    wire_ranges_finish(&worker->recovered_untouched);
    pl_map_finish(&worker->begun);
    wire_link_finish(&worker->link);
    sim_pipe_finish(&worker->to_head);
    sim_pipe_finish(&worker->from_head);
    sim_cut_finish(&worker->cut);
    pl_vec_finish(&worker->uses);
    pl_vec_finish(&worker->chunks);
    pl_vec_finish(&worker->fresh);
    sim_sealed_finish(worker);
    pl_vec_finish(&worker->blocks);
    pl_vec_finish(&worker->leaving);
    pl_vec_finish(&worker->blocks_before);
    pl_vec_finish(&worker->failed);
    pl_vec_finish(&worker->starved);
    pl_vec_finish(&worker->condemned);
    sim_limits_finish(worker);
    pl_vec_finish(&worker->pair_reports);
    pl_vec_finish(&worker->data);
    (void)munmap(worker->table, sizeof(*worker->table));
    (void)munmap(worker->timeline, sizeof(*worker->timeline));
    (void)munmap(worker->arena, ARENA_BYTES);
    (void)munmap(worker->slab, (size_t)STORE_STAGE_SLOTS * SIM_STAGE_BYTES_MAX);
    pl_free(worker->pins);
}

void sim_worker_describe(const struct sim_worker *worker, struct pl_str *out)
{
    pl_str_append(out, "device %u (incarnation %u): ", worker->host_device,
                  worker->incarnation);
    if (!worker->alive) {
        pl_str_append(out, "dead\n");
        return;
    }
    pl_str_append(out, "%s%s", worker->process.stopped ? "stopped, " : "",
                  worker->cut.on ? "cut off, " : "");
    pl_str_append(out, "%s, received %llu, enqueued %llu, %s\n",
                  worker->connected ? "connected" : "not connected",
                  (unsigned long long)worker_core_received(worker->core),
                  (unsigned long long)worker->timeline->enqueued,
                  worker_core_idle(worker->core) ? "idle" : "busy");
    pl_str_append(out, "  staging: took %llu, in slots:",
                  (unsigned long long)worker->timeline->stage_taken.value);
    for (uint32_t i = 0; i < STORE_STAGE_SLOTS; i++) {
        pl_str_append(out, " %lld", (long long)worker->timeline->stage_ready[i].value - 1);
    }
    pl_str_append(out, "\n");
    for (uint32_t i = 0; i < SIM_STREAMS; i++) {
        const struct sim_stream *stream = &worker->streams[i];

        if (pl_list_empty(&stream->ops)) {
            continue;
        }
        pl_str_append(out, "  stream %u: %s ", i, stream->running ? "runs" : "waits at");
        sim_op_describe(pl_container_of(stream->ops.next, struct sim_op, link), out);
        pl_str_append(out, "\n");
    }
    sim_pairs_describe(worker, out);
    pl_str_append(out, "  ");
    worker_core_describe(worker->core, out);
    pl_str_append(out, "\n");
}
