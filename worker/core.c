/*
 * The worker's core: making it, what the head commands, and its figures. worker/core_int.h says
 * what its files are.
 */
#include "worker/core_int.h"

#include "base/alloc.h"
#include "base/linger.h"
#include "base/log.h"

#include <assert.h>
#include <stdlib.h>

static void queue_clear(struct worker_core *core, struct worker_fifo *fifo)
{
    while (fifo->first != NULL) {
        worker_launch_destroy(core, worker_fifo_pop(fifo));
    }
}

static bool ops_complete(const struct worker_ops *ops)
{
    return ops->grow != NULL && ops->wait != NULL && ops->join != NULL &&
           ops->copy != NULL && ops->stage_send != NULL && ops->stage_recv != NULL &&
           ops->put != NULL && ops->read != NULL && ops->scratch_bytes != NULL &&
           ops->run != NULL && ops->fill_identity != NULL && ops->signal != NULL &&
           ops->ring_doorbells != NULL && ops->begin != NULL &&
           ops->report_condemned != NULL && ops->report_done != NULL &&
           ops->report_failed != NULL && ops->report_starved != NULL &&
           ops->report_refused != NULL;
}

plasmon_status_t worker_core_create(const struct worker_core_config *config,
                                    struct worker_core **out_core)
{
    struct worker_core *core;
    plasmon_status_t status;

    PL_CHECK(ops_complete(config->ops));
    assert(config->run_streams >= 1 && config->run_streams <= WORKER_RUN_STREAMS_MAX);
    assert(config->urgent_streams <= WORKER_URGENT_STREAMS_MAX);
    assert(config->low_streams <= WORKER_LOW_STREAMS_MAX);
    assert(config->host_device < config->host_device_count);

    core = PL_NEW(struct worker_core);
    if (core == NULL) {
        return PLASMON_ENOMEM;
    }
    core->config       = *config;
    core->table        = config->tables[config->host_device];
    core->timeline     = config->timelines[config->host_device];
    core->stream_count = config->run_streams + WORKER_STREAM_ROLES +
                         config->urgent_streams + config->low_streams;
    core->noop_id     = pl_hash_name("noop");
    core->doomed      = PL_VEC_INIT(uint32_t);
    core->interrupted = PL_VEC_INIT(struct worker_interrupted);
    core->waits       = PL_VEC_INIT(struct worker_wait);
    core->args        = PL_VEC_INIT(struct kernel_arg);
    core->shapes      = PL_VEC_INIT(struct kernel_arg_shape);
    core->sources     = PL_VEC_INIT(struct worker_source);
    wire_ranges_init(&core->unfinished);
    pl_map_init(&core->graphs);
    pl_map_init(&core->pairs);
    pl_map_init(&core->comms);
    assert(core->table != NULL && core->timeline != NULL);

    status         = PLASMON_ENOMEM;
    core->writers  = PL_NEW_N(uint16_t, STORE_TABLE_SLOTS);
    core->followed = PL_NEW_N(uint8_t, STORE_RING);
    if (worker_reuse_create(core) && worker_before_create(core) && core->writers != NULL &&
        core->followed != NULL) {
        status = store_arena_create(&core->arena);
    }
    if (status != PLASMON_OK) {
        worker_core_destroy(core);
        return status;
    }
    *out_core = core;
    return PLASMON_OK;
}

void worker_core_destroy(struct worker_core *core)
{
    if (core == NULL) {
        return;
    }
    queue_clear(core, &core->queue);
    for (uint32_t i = 0; i < STORE_STREAM_MAX; i++) {
        queue_clear(core, &core->streams[i].running);
    }
    worker_traffic_finish(core);
    worker_pairs_finish(core);
    worker_graphs_finish(core);
    for (unsigned class = 0; class < WORKER_SIZE_CLASSES; class ++) {
        while (core->spare[class] != NULL) {
            struct worker_launch *launch = core->spare[class];

            core->spare[class] = launch->next;
            pl_free(launch);
        }
    }
    if (core->arena != NULL) {
        store_arena_destroy(core->arena);
    }
    wire_ranges_finish(&core->unfinished);
    pl_vec_finish(&core->doomed);
    pl_vec_finish(&core->interrupted);
    pl_vec_finish(&core->waits);
    pl_vec_finish(&core->args);
    pl_vec_finish(&core->shapes);
    pl_vec_finish(&core->sources);
    worker_reuse_destroy(core);
    worker_before_destroy(core);
    pl_free(core->writers);
    pl_free(core->followed);
    pl_free(core);
}

plasmon_status_t worker_core_chunk_added(struct worker_core *core, uint32_t pool,
                                         uint64_t offset, uint64_t bytes)
{
    plasmon_status_t status = store_arena_add(core->arena, pool, offset, bytes);

    core->growing = false;
    if (status == PLASMON_OK) {
        core->freed_count++; /* a front that waits for memory may try again */
    }
    return status;
}

/* ----------------------------------------------------------------------------- commands */

static plasmon_status_t launch_take(struct worker_core *core,
                                    const Plasmon__V1__Launch *message, struct pl_err *err)
{
    struct worker_launch *launch;
    plasmon_status_t status;
    bool take;

    status = worker_recover_accept(core, message->seq, &take, err);
    if (status != PLASMON_OK || !take) {
        return status;
    }
    status = worker_launch_create(core, message, &launch, err);
    if (status != PLASMON_OK) {
        return status;
    }
    if (message->seq <= core->recovered &&
        store_timeline_failed(core->timeline, message->seq)) {
        worker_launch_fail(
            launch, PLASMON_EWORKER,
            "it had failed when its worker died, which took the reason with it");
    }
    worker_reuse_note(core, launch);
    launch->queued_ns = core->command_ns;
    worker_fifo_push(&core->queue, launch);
    core->received = message->seq;
    return PLASMON_OK;
}

static int compare_seqs(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a;
    uint64_t y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

/* It keeps its place, behind all that is before it; that it will not run is told now. */
static void launch_cancel(struct worker_core *core, struct worker_launch *launch)
{
    struct worker_condemned condemned = {.seq    = launch->seq,
                                         .status = PLASMON_ECANCELLED,
                                         .text   = "cancelled before it started"};

    if (launch->failure == PLASMON_OK) {
        worker_launch_fail(launch, condemned.status, "%s", condemned.text);
        core->config.ops->report_condemned(core->config.user, &condemned);
    }
}

/* Those of the queue, in one pass over it; it is in order of seq. The list is ours to sort. */
static void launches_cancel(struct worker_core *core, uint64_t *seqs, size_t count)
{
    struct worker_launch *launch = core->queue.first;

    if (count > 1) {
        qsort(seqs, count, sizeof(*seqs), compare_seqs);
    }
    for (size_t i = 0; i < count && launch != NULL;) {
        if (launch->seq < seqs[i]) {
            launch = launch->next;
        } else {
            if (launch->seq == seqs[i]) {
                launch_cancel(core, launch);
            }
            i++;
        }
    }
}

/* What came back since may do: only a front that still finds no memory fails. */
static void launch_starve(struct worker_core *core, uint64_t seq)
{
    worker_core_advance(core);
    if (core->queue.first == NULL || core->queue.first->seq != seq) {
        return;
    }
    if (core->waits_memory) {
        worker_front_starved(core, core->queue.first);
    } else if (core->waits_chunk) {
        /* the head has answered; it may have to be told again */
        core->queue.first->starved = false;
    }
}

/* Receives from it that are enqueued would wait for ever. */
static plasmon_status_t receives_release(struct worker_core *core, uint32_t device)
{
    plasmon_status_t status = PLASMON_OK;

    for (uint32_t i = 0; i < core->stream_count; i++) {
        for (const struct worker_launch *launch = core->streams[i].running.first;
             status == PLASMON_OK && launch != NULL; launch = launch->next) {
            if (launch->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_RECV &&
                launch->peer == device) {
                status = core->config.ops->bulk_expect(
                    core->config.user, device, launch->offset,
                    worker_operand_bytes_shown(&launch->operands[0]));
            }
        }
    }
    return status;
}

static plasmon_status_t bulk_peer_take(struct worker_core *core,
                                       const Plasmon__V1__BulkPeer *peer,
                                       struct pl_err *err)
{
    const struct worker_ops *ops = core->config.ops;
    plasmon_status_t status      = PLASMON_OK;

    if (ops->bulk_peer == NULL) {
        return PLASMON_OK;
    }
    if (peer->address[0] != '\0') {
        status = ops->bulk_peer(core->config.user, peer->device, peer->address,
                                peer->secret.data);
    }
    if (status == PLASMON_OK && peer->gone) {
        status = ops->bulk_gone(core->config.user, peer->device);
        if (status == PLASMON_OK) {
            status = receives_release(core, peer->device);
        }
    }
    return status == PLASMON_OK ? status
                                : pl_err_set(err, status, "device %u of another host: %s",
                                             peer->device, pl_status_text(status));
}

static plasmon_status_t bulk_give_up_take(struct worker_core *core,
                                          const Plasmon__V1__BulkGiveUp *order,
                                          struct pl_err *err)
{
    plasmon_status_t status =
        core->config.ops->bulk_give_up == NULL
            ? PLASMON_OK
            : core->config.ops->bulk_give_up(core->config.user, order->device,
                                             order->receives, order->first, order->count);

    return status == PLASMON_OK
               ? status
               : pl_err_set(err, status, "a transfer with device %u is given up: %s",
                            order->device, pl_status_text(status));
}

plasmon_status_t worker_core_command(struct worker_core *core,
                                     const Plasmon__V1__WorkerCommand *command,
                                     struct pl_err *err)
{
    plasmon_status_t status = PLASMON_OK;

    for (size_t i = 0; i < command->n_free; i++) {
        worker_buffers_free(core, command->free[i]);
    }
    for (size_t i = 0; status == PLASMON_OK && i < command->n_graphs; i++) {
        status = worker_graph_take(core, command->graphs[i], err);
    }
    for (size_t i = 0; status == PLASMON_OK && i < command->n_bulk_peers; i++) {
        status = bulk_peer_take(core, command->bulk_peers[i], err);
    }
    for (size_t i = 0; status == PLASMON_OK && i < command->n_bulk_give_up; i++) {
        status = bulk_give_up_take(core, command->bulk_give_up[i], err);
    }
    if (status == PLASMON_OK) {
        status = worker_pairs_take(core, command, err);
    }
    if (command->n_launches > 0) {
        worker_queue_times_command(core);
    }
    for (size_t i = 0; status == PLASMON_OK && i < command->n_launches; i++) {
        status = launch_take(core, command->launches[i], err);
    }
    worker_launch_lists_forget(core);
    if (status != PLASMON_OK) {
        return status;
    }
    for (size_t i = 0; i < command->n_retire; i++) {
        worker_reuse_retire(core, command->retire[i]);
    }
    launches_cancel(core, command->cancel, command->n_cancel);
    launches_cancel(core, command->cancel_force, command->n_cancel_force);
    for (size_t i = 0; i < command->n_cancel_force; i++) {
        worker_condemn_force(core, command->cancel_force[i]);
    }
    for (size_t i = 0; i < command->n_starve; i++) {
        launch_starve(core, command->starve[i]);
    }
    for (size_t i = 0; i < command->n_graph_free; i++) {
        worker_graph_free(core, command->graph_free[i]);
    }
    for (size_t i = 0; status == PLASMON_OK && i < command->n_relief; i++) {
        status = worker_front_relieve(core, command->relief[i], err);
    }
    return status;
}

/* ------------------------------------------------------------------------------ figures */

void worker_core_stats(const struct worker_core *core, Plasmon__V1__WorkerStats *out)
{
    struct store_arena_stats stats;

    store_arena_get_stats(core->arena, &stats);
    out->bytes_used     = stats.bytes_used;
    out->bytes_reserved = stats.bytes_total;
    out->bytes_replica  = core->bytes_replica;
    out->largest_hole   = stats.largest_hole;
    out->bytes_scratch  = worker_account_scratch(core);
    out->launches       = core->launch_count;
}

uint64_t worker_core_launches(const struct worker_core *core)
{
    return core->launch_count;
}

bool worker_core_idle(const struct worker_core *core)
{
    return core->queue.first == NULL && worker_streams_quiet(core);
}

bool worker_core_many(const struct worker_core *core)
{
    return core->running_count > PL_LINGER_MANY;
}

void worker_core_hold(struct worker_core *core)
{
    core->holds++;
}

void worker_core_resume(struct worker_core *core)
{
    assert(core->holds > 0);
    core->holds--;
    /* nobody has looked at the front since */
    core->waits_quiet = core->queue.first != NULL;
}

bool worker_core_wants_poll(const struct worker_core *core)
{
    return core->doomed.count != 0 || core->waits_unpin || core->relief != 0;
}

uint64_t worker_core_waits_for(const struct worker_core *core)
{
    return core->queue.first == NULL ? 0 : core->waits_for;
}

uint64_t worker_core_received(const struct worker_core *core)
{
    return core->received;
}
