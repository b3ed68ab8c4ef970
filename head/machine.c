/* Inputs, one by one: recorded, then applied. What happens to peers is in machine_peers.c. */
#include "head/machine_int.h"

#include <string.h>

enum { RECORD_TIMED = 31 };

/* ---------------------------------------------------------------------- ops of the core */

static void op_client_frame(void *user, uint64_t session, const uint8_t *body,
                            size_t length)
{
    head_machine_to_client(user, session, body, length);
}

static void op_worker_command(void *user, uint32_t device, const uint8_t *body,
                              size_t length)
{
    head_machine_to_worker(user, device, body, length);
}

static void op_fence(void *user, uint32_t device)
{
    struct head_machine *machine             = user;
    const struct head_machine_worker *worker = head_machine_worker_of(machine, device);

    if (worker != NULL) {
        machine->config.ops->fence(machine->config.user, worker->host, worker->host_device,
                                   worker->incarnation);
    }
}

/*
 * While the core is replaced by what was saved of it, its sessions do not end, and nothing of it is
 * forgotten.
 */
static void op_session_ended(void *user, uint64_t session)
{
    struct head_machine *machine       = user;
    struct head_machine_client *client = head_machine_client_of(machine, session);

    if (client != NULL && !machine->replacing) {
        client->ended       = true;
        machine->some_ended = true;
    }
}

/* While records are replayed, the numbers that were drawn are in them. */
static uint64_t op_random64(void *user)
{
    struct head_machine *machine = user;
    struct head_input drawn      = {.type = HEAD_INPUT_RANDOM};

    if (machine->replay != NULL) {
        struct pl_err err;

        if (head_input_end(machine->replay) ||
            head_input_next(machine->replay, &drawn, &err) != PLASMON_OK ||
            drawn.type != HEAD_INPUT_RANDOM) {
            machine->diverged = true;
            drawn.numbers[0]  = ++machine->session_last | UINT64_C(1) << 63;
        }
        return drawn.numbers[0];
    }
    drawn.numbers[0] = machine->config.ops->random64(machine->config.user);
    if (machine->recording) {
        head_input_append(&machine->batch, &drawn);
    }
    return drawn.numbers[0];
}

static uint64_t op_client_owed(void *user, uint64_t session)
{
    const struct head_machine_client *client = head_machine_client_of(user, session);

    return client != NULL ? client->peer.link.kept_bytes : 0;
}

static void op_spill(void *user, const char *host, const struct head_spill_op *op)
{
    struct head_machine *machine = user;

    if (machine->config.ops->spill != NULL && !machine->replacing) {
        machine->config.ops->spill(machine->config.user, host, op);
    }
}

static const struct head_ops core_ops = {
    .client_frame   = op_client_frame,
    .worker_command = op_worker_command,
    .fence          = op_fence,
    .session_ended  = op_session_ended,
    .random64       = op_random64,
    .client_owed    = op_client_owed,
    .spill          = op_spill,
};

/* --------------------------------------------------------------------------------- life */

plasmon_status_t head_machine_create(const struct head_machine_config *config,
                                     struct head_machine **out_machine)
{
    struct head_machine *machine = pl_alloc(sizeof(*machine));
    plasmon_status_t status;

    if (machine == NULL) {
        return PLASMON_ENOMEM;
    }
    machine->config    = *config;
    machine->recording = config->record;
    status             = wire_arena_init(&machine->arena, WIRE_ARENA_BYTES_MAX);
    if (status != PLASMON_OK) {
        pl_free(machine);
        return status;
    }
    pl_list_init(&machine->clients);
    pl_list_init(&machine->workers);
    pl_list_init(&machine->nodes);
    pl_list_init(&machine->gone);
    pl_map_init(&machine->sessions);
    head_times_init(&machine->times);
    head_blob_begin(&machine->batch);
    *out_machine = machine;
    return PLASMON_OK;
}

void head_machine_destroy(struct head_machine *machine)
{
    if (machine == NULL) {
        return;
    }
    machine->replay    = NULL;
    machine->recording = false;
    head_core_destroy(machine->core);
    head_machine_peers_finish(machine);
    pl_map_finish(&machine->sessions);
    head_times_finish(&machine->times);
    wire_arena_finish(&machine->arena);
    pl_free(machine->batch.data);
    pl_free(machine->scratch.data);
    pl_free(machine->saved.data);
    pl_free(machine->policy);
    pl_free(machine);
}

plasmon_status_t head_machine_core_create(struct head_machine *machine,
                                          struct head_core **out_core, struct pl_err *err)
{
    const struct head_settings *settings = &machine->settings;
    struct head_config config            = {.ops           = &core_ops,
                                            .user          = machine,
                                            .times         = &machine->times,
                                            .epoch         = settings->epoch,
                                            .transfer      = settings->transfer,
                                            .window        = settings->window,
                                            .retries       = settings->retries,
                                            .credit        = settings->credit,
                                            .lease_ms      = settings->lease_ms,
                                            .chain_bytes   = settings->chain_bytes,
                                            .nccl_bytes    = settings->nccl_bytes,
                                            .reach_wait_ms = settings->reach_wait_ms,
                                            .lineage_bytes = settings->lineage_bytes,
                                            .shadow_bytes  = settings->shadow_bytes,
                                            .policy        = settings->policy};
    plasmon_status_t status              = head_core_create(&config, out_core);

    return status == PLASMON_OK
               ? PLASMON_OK
               : pl_err_set(err, status, "the head cannot start with policy '%s'",
                            settings->policy);
}

plasmon_status_t head_machine_settle(struct head_machine *machine, const uint64_t *n,
                                     struct head_string policy, struct pl_err *err)
{
    if (n[1] > HEAD_TRANSFER_NCCL || n[0] == 0 || policy.length > WIRE_NAME_BYTES_MAX) {
        return pl_err_set(err, PLASMON_EMALFORMED,
                          "journal: a cluster that begins in a way that makes no sense");
    }
    machine->policy   = head_string_copy(policy);
    machine->settings = (struct head_settings){.epoch         = n[0],
                                               .transfer      = (enum head_transfer)n[1],
                                               .window        = (uint32_t)n[2],
                                               .retries       = (uint32_t)n[3],
                                               .credit        = n[4],
                                               .lease_ms      = n[5],
                                               .chain_bytes   = n[6],
                                               .node_lease_ms = n[7],
                                               .lineage_bytes = n[8],
                                               .shadow_bytes  = n[9],
                                               .nccl_bytes    = n[10],
                                               .reach_wait_ms = n[11],
                                               .policy        = machine->policy};
    return head_machine_core_create(machine, &machine->core, err);
}

/* ------------------------------------------------------------------------------- inputs */

static plasmon_status_t drain(struct head_machine *machine, const struct head_input *input,
                              struct pl_err *err)
{
    char *node = head_string_copy(input->strings[0]);
    plasmon_status_t status =
        input->type == HEAD_INPUT_DRAIN
            ? head_core_drain(machine->core, node, input->numbers[0], err)
            : head_core_drain_undo(machine->core, node, err);

    pl_free(node);
    return status;
}

static void spill(struct head_machine *machine, const struct head_input *input)
{
    const uint64_t *n = input->numbers;
    char *host        = head_string_copy(input->strings[0]);
    char *text        = head_string_copy(input->strings[1]);

    if (input->type == HEAD_INPUT_SPILL_UP) {
        head_core_spill_up(
            machine->core, host,
            &(struct head_spill_config){.memory_bytes = n[0],
                                        .file_bytes   = n[1],
                                        .life         = n[2],
                                        .slab         = n[3],
                                        .write_back   = (uint32_t)pl_min_u64(n[4], 100),
                                        .on_demand    = n[5] != 0});
    } else {
        head_core_spill_done(
            machine->core, host, n[0],
            &(struct head_spill_answer){.status      = (plasmon_status_t)(int32_t)n[1],
                                        .host_buffer = n[2],
                                        .bytes       = n[3],
                                        .text        = text});
    }
    pl_free(host);
    pl_free(text);
}

static plasmon_status_t namespace_set(struct head_machine *machine,
                                      const struct head_input *input, struct pl_err *err)
{
    const uint64_t *n             = input->numbers;
    const struct head_quota quota = {
        .bytes = n[0], .tasks = n[1], .message_bytes = n[2], .sessions = n[3]};
    char *name;

    if (input->strings[0].length == 0 || input->strings[0].length > WIRE_NAME_BYTES_MAX) {
        return pl_err_set(err, PLASMON_EMALFORMED,
                          "journal: a record 'namespace' that makes no sense");
    }
    name = head_string_copy(input->strings[0]);
    head_core_namespace_set(machine->core, name, &quota);
    pl_free(name);
    return PLASMON_OK;
}

static void tick(struct head_machine *machine, uint64_t now_ms)
{
    machine->now_ms = pl_max_u64(machine->now_ms, now_ms);
    head_core_tick(machine->core, machine->now_ms);
    head_machine_nodes_tick(machine);
    head_machine_peers_watch(machine);
}

static plasmon_status_t apply(struct head_machine *machine, const struct head_input *input,
                              struct head_outcome *out, struct pl_err *err)
{
    const uint64_t *n = input->numbers;

    if ((input->type == HEAD_INPUT_BEGIN) != (machine->core == NULL)) {
        return pl_err_set(err, PLASMON_EMALFORMED,
                          "journal: a record '%s' where a journal begins or does not",
                          head_input_name(input->type));
    }
    switch (input->type) {
    case HEAD_INPUT_BEGIN:
        return head_machine_settle(machine, n, input->strings[0], err);
    case HEAD_INPUT_RESTART:
        head_machine_restarted(machine, n[0], n[1]);
        return PLASMON_OK;
    case HEAD_INPUT_TICK:
        tick(machine, n[0]);
        return PLASMON_OK;
    case HEAD_INPUT_FLUSH:
        head_core_flush(machine->core);
        return PLASMON_OK;
    case HEAD_INPUT_TIME:
        head_core_time(machine->core, n[0]);
        return PLASMON_OK;
    case HEAD_INPUT_CLIENT_OPEN:
        return head_machine_client_open(machine, input->strings[0], out, err);
    case HEAD_INPUT_CLIENT_FRAME:
        return head_machine_client_frame(machine, n[0], input->strings[0], out, err);
    case HEAD_INPUT_CLIENT_LOST:
    case HEAD_INPUT_CLIENT_RESUME:
    case HEAD_INPUT_CLIENT_CLOSE:
        return head_machine_client_change(machine, input, err);
    case HEAD_INPUT_NODE_UP:
        return head_machine_node_up(machine, input->strings[0], out, err);
    case HEAD_INPUT_NODE_LOST:
    case HEAD_INPUT_NODE_LEAVE:
        return head_machine_node_change(machine, input, err);
    case HEAD_INPUT_DRAIN:
    case HEAD_INPUT_DRAIN_UNDO:
        return drain(machine, input, err);
    case HEAD_INPUT_WORKER_UP:
        return head_machine_worker_up(machine, input->strings[0], out, err);
    case HEAD_INPUT_WORKER_FRAME:
        return head_machine_worker_frame(machine, n[0], input->strings[0], out, err);
    case HEAD_INPUT_WORKER_LOST:
        return head_machine_worker_lost(machine, n[0], err);
    case HEAD_INPUT_WORKER_DOWN:
        return head_machine_worker_down(machine, input, err);
    case HEAD_INPUT_SPILL_UP:
    case HEAD_INPUT_SPILL_DONE:
        spill(machine, input);
        return PLASMON_OK;
    case HEAD_INPUT_NAMESPACES:
        head_core_namespaces_clear(machine->core);
        return PLASMON_OK;
    case HEAD_INPUT_NAMESPACE:
        return namespace_set(machine, input, err);
    case HEAD_INPUT_RANDOM:
    case HEAD_INPUT_TYPES:
        break;
    }
    return pl_err_set(err, PLASMON_EMALFORMED, "journal: a record '%s' out of place",
                      head_input_name(input->type));
}

static uint64_t cpu_ns(const struct head_machine *machine)
{
    return machine->config.ops->cpu_ns != NULL
               ? machine->config.ops->cpu_ns(machine->config.user)
               : 0;
}

/* A flush comes behind other inputs, and has the time of the last. */
static void look_at_clock(struct head_machine *machine, const struct head_input *input)
{
    if (machine->replay != NULL || machine->config.ops->now_ns == NULL) {
        machine->times.now_ns = 0;
    } else if (input->type != HEAD_INPUT_FLUSH) {
        machine->times.now_ns = machine->config.ops->now_ns(machine->config.user);
    }
}

/*
 * To look at the clock costs as much as to record an input: one in RECORD_TIMED is timed, and
 * stands for the others.
 */
static void record(struct head_machine *machine, const struct head_input *input)
{
    bool timed     = machine->figures.inputs % RECORD_TIMED == 0;
    uint64_t began = timed ? cpu_ns(machine) : 0;

    head_input_append(&machine->batch, input);
    if (timed) {
        machine->figures.record_ns += RECORD_TIMED * (cpu_ns(machine) - began);
    }
}

plasmon_status_t head_machine_input(struct head_machine *machine,
                                    const struct head_input *input,
                                    struct head_outcome *out, struct pl_err *err)
{
    struct head_outcome unused;
    plasmon_status_t status;

    out  = out != NULL ? out : &unused;
    *out = (struct head_outcome){.device = UINT32_MAX};
    if (machine->batch_taken) {
        head_blob_begin(&machine->batch);
        machine->batch_taken = false;
    }
    if (machine->recording) {
        record(machine, input);
    }
    look_at_clock(machine, input);
    machine->figures.inputs++;
    machine->changed = input->type != HEAD_INPUT_FLUSH;
    status           = apply(machine, input, out, err);
    /* It was not taken for want of memory; a head that replays it would take it. */
    PL_CHECK(!machine->arena.out_of_memory);
    if (machine->some_ended) {
        head_machine_clients_reap(machine);
    }
    return status;
}

plasmon_status_t head_machine_begin(struct head_machine *machine,
                                    const struct head_settings *settings,
                                    struct pl_err *err)
{
    struct head_input input = {
        .type    = HEAD_INPUT_BEGIN,
        .numbers = {settings->epoch, settings->transfer, settings->window,
                    settings->retries, settings->credit, settings->lease_ms,
                    settings->chain_bytes, settings->node_lease_ms, settings->lineage_bytes,
                    settings->shadow_bytes, settings->nccl_bytes, settings->reach_wait_ms},
        .strings = {head_string(settings->policy != NULL ? settings->policy : "auto")},
    };

    return head_machine_input(machine, &input, NULL, err);
}

void head_machine_tick(struct head_machine *machine, uint64_t now_ms)
{
    struct head_input input = {.type = HEAD_INPUT_TICK, .numbers = {now_ms}};
    struct pl_err err;

    PL_CHECK(head_machine_input(machine, &input, NULL, &err) == PLASMON_OK);
}

void head_machine_flush(struct head_machine *machine)
{
    struct head_input input = {.type = HEAD_INPUT_FLUSH};
    struct pl_err err;
    uint64_t began;

    if (!machine->changed) {
        return; /* a flush after a flush does nothing */
    }
    began = cpu_ns(machine);
    PL_CHECK(head_machine_input(machine, &input, NULL, &err) == PLASMON_OK);
    machine->figures.core_ns += cpu_ns(machine) - began;
}

/* ------------------------------------------------------------------------------ records */

bool head_machine_batch_take(struct head_machine *machine, const uint8_t **out_bytes,
                             size_t *out_length)
{
    if (machine->batch_taken || head_input_batch_empty(&machine->batch)) {
        return false;
    }
    head_blob_end(&machine->batch, HEAD_BLOB_BATCH);
    *out_bytes           = machine->batch.data;
    *out_length          = machine->batch.length;
    machine->batch_taken = true;
    return true;
}

static plasmon_status_t replay(struct head_machine *machine,
                               struct head_input_reader *reader, struct pl_err *err)
{
    struct head_input input;
    plasmon_status_t status = head_input_next(reader, &input, err);

    if (status != PLASMON_OK) {
        return status;
    }
    if (pl_bug("head.replay_skips") && input.type == HEAD_INPUT_WORKER_FRAME &&
        machine->figures.inputs % 16 == 0) {
        return PLASMON_OK;
    }
    if (input.type == HEAD_INPUT_RANDOM ||
        (input.type == HEAD_INPUT_BEGIN) != (machine->core == NULL)) {
        return pl_err_set(err, PLASMON_EMALFORMED, "journal: a record '%s' out of place",
                          head_input_name(input.type));
    }
    /* What was refused then is refused now, and that is no error of the journal. */
    status = head_machine_input(machine, &input, NULL, err);
    if (machine->core == NULL) {
        return status;
    }
    return machine->diverged
               ? pl_err_set(err, PLASMON_EMALFORMED,
                            "journal: a record '%s' needs a number that was not drawn; the "
                            "journal is not of this release",
                            head_input_name(input.type))
               : PLASMON_OK;
}

plasmon_status_t head_machine_replay(struct head_machine *machine, const uint8_t *batch,
                                     size_t length, struct pl_err *err)
{
    struct head_input_reader reader;
    plasmon_status_t status = head_blob_open(batch, length, HEAD_BLOB_BATCH, &reader, err);
    bool recording          = machine->recording;

    machine->recording = false;
    machine->replay    = &reader;
    while (status == PLASMON_OK && !head_input_end(&reader)) {
        status = replay(machine, &reader, err);
    }
    machine->replay    = NULL;
    machine->recording = recording;
    return status;
}

/* ------------------------------------------------------------------------ looking at it */

struct head_core *head_machine_core(struct head_machine *machine)
{
    return machine->core;
}

uint64_t head_machine_epoch(const struct head_machine *machine)
{
    return machine->settings.epoch;
}

uint64_t head_machine_now_ms(const struct head_machine *machine)
{
    return machine->now_ms;
}

const struct head_settings *head_machine_settings(const struct head_machine *machine)
{
    return &machine->settings;
}

void head_machine_figures(const struct head_machine *machine, struct head_figures *out)
{
    *out = machine->figures;
}
