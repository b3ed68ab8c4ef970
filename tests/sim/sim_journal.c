/*
 * The head's journal: what it puts out waits until the batch of inputs that it follows from is
 * stored. Storing takes time; a crash finds some batches stored whose outputs never left, and loses
 * those that were on their way.
 *
 * The next head is made from what is stored. For everybody else that is a broken connection. Before
 * that, a second machine that is made from all records must be the same as the one that crashes:
 * sessions, numbers, every byte that is kept or was ever put out.
 */
#include "tests/sim/sim.h"

#include <string.h>

#include "base/alloc.h"
#include "head/checkpoint.h"
#include "head/core_int.h"

enum {
    STORE_MAX_NS        = 20000,
    DOWN_MAX_NS         = 2000000,
    GRACE_MS            = 1000,
    CHECKPOINT_PERMILLE = 200,
};

bool sim_head_down(const struct sim *sim)
{
    return sim->now_ns < sim->head_process.down_until_ns || sim->head_process.stopped;
}

/* ------------------------------------------------------------------------------- output */

void sim_held_leave(struct sim *sim, struct sim_held *held)
{
    if (held->gives_up) {
        sim_device_given_up(sim, held->incarnation);
    } else if (held->fence != NULL) {
        sim_limits_order(held->fence, held->incarnation);
    } else if (held->pipe == NULL) {
        if (held->life == sim->spill_hellos) {
            sim_spill_op(sim, (const struct head_spill_op *)held->data);
        } /* else it was for a store that is dead; the next one was asked again */
    } else if (held->pipe->life == held->life) {
        sim_pipe_send(held->pipe, held->data, held->length);
    }
    pl_free(held->data);
}

static void release(struct sim *sim)
{
    struct sim_head *head = &sim->head_process;
    struct pl_vec held    = head->held;

    head->held = PL_VEC_INIT(struct sim_held);
    for (size_t i = 0; i < held.count; i++) {
        struct sim_held *one = pl_vec_at(&held, i);

        if (one->batch <= head->stored) {
            sim_held_leave(sim, one);
        } else {
            struct sim_held *kept = pl_vec_push(&head->held);

            PL_CHECK(kept != NULL);
            *kept = *one;
        }
    }
    pl_vec_finish(&held);
}

static struct sim_held *hold(struct sim *sim)
{
    struct sim_held *held = pl_vec_push(&sim->head_process.held);

    PL_CHECK(held != NULL);
    held->batch = sim->head_process.batches.count + 1; /* the one that is open */
    return held;
}

void sim_journal_put(struct sim *sim, struct sim_pipe *pipe, const uint8_t *data,
                     size_t length)
{
    struct sim_held *held;

    if (!sim->config.journal) {
        sim_pipe_send(pipe, data, length);
        return;
    }
    held         = hold(sim);
    held->pipe   = pipe;
    held->life   = pipe->life;
    held->length = length;
    held->data   = sim_alloc(length + 1);
    memcpy(held->data, data, length);
}

void sim_journal_fence(struct sim *sim, struct sim_worker *worker, uint32_t incarnation)
{
    struct sim_held *held;

    if (!sim->config.journal) {
        sim_limits_order(worker, incarnation);
        return;
    }
    held              = hold(sim);
    held->fence       = worker;
    held->incarnation = incarnation;
}

void sim_journal_given_up(struct sim *sim, uint32_t number)
{
    struct sim_held *held;

    if (!sim->config.journal) {
        sim_device_given_up(sim, number);
        return;
    }
    held              = hold(sim);
    held->gives_up    = true;
    held->incarnation = number;
}

void sim_journal_spill(struct sim *sim, const struct head_spill_op *op)
{
    struct sim_held *held;

    if (!sim->config.journal) {
        sim_spill_op(sim, op);
        return;
    }
    held       = hold(sim);
    held->life = sim->spill_hellos;
    held->data = sim_alloc(sizeof(*op));
    memcpy(held->data, op, sizeof(*op));
}

/* ------------------------------------------------------------------------------ storing */

static void stored(void *user, uint64_t arg, void *data)
{
    struct sim *sim = user;

    (void)data;
    if (arg != sim->head_process.life) {
        return;
    }
    if (sim->head_process.stopped) {
        sim->head_process.unheard++;
        return;
    }
    sim->head_process.stored++;
    release(sim);
}

void sim_journal_heard(struct sim *sim)
{
    sim->head_process.stored += sim->head_process.unheard;
    sim->head_process.unheard = 0;
    release(sim);
}

static void batch_add(struct sim *sim, bool checkpoint, const uint8_t *bytes, size_t length)
{
    struct sim_batch *batch = pl_vec_push(&sim->head_process.batches);

    PL_CHECK(batch != NULL);
    batch->checkpoint = checkpoint;
    batch->length     = length;
    batch->bytes      = sim_alloc(length);
    memcpy(batch->bytes, bytes, length);
}

static bool batch_close(struct sim *sim)
{
    const uint8_t *bytes;
    size_t length;

    if (!head_machine_batch_take(sim->head_process.machine, &bytes, &length)) {
        return false;
    }
    batch_add(sim, false, bytes, length);
    return true;
}

static void store_last(struct sim *sim)
{
    struct sim_head *head = &sim->head_process;
    uint64_t at =
        pl_max_u64(sim->now_ns + sim_below(sim, STORE_MAX_NS), head->last_store_ns + 1);

    head->last_store_ns = at;
    sim_after(sim, at - sim->now_ns, stored, sim, head->life, NULL);
}

/* What is in it besides arrays. */
static void count_checkpoint(struct sim_head *head, const struct head_core *core)
{
    const struct pl_list *pos;
    bool spilled = false;

    pl_list_for_each(pos, &core->spill_hosts) {
        spilled |= !pl_list_empty(
            &pl_container_of(pos, struct head_spill_host, link)->home.buffers);
    }
    head->checkpoints++;
    head->checkpoints_spilled += spilled;
    head->checkpoints_graphs += !pl_list_empty(&core->plans);
    head->checkpoints_lineage += core->lineage.records > 0;
    head->checkpoints_pairs += core->pairs.count > 0;
}

bool sim_journal_quiet(const struct sim *sim)
{
    return head_core_unquiet(sim->head) == NULL;
}

/* The head goes on from what it saved. */
static bool checkpoint(struct sim *sim)
{
    struct sim_head *head = &sim->head_process;
    const uint8_t *bytes;
    const char *why;
    size_t length;

    bytes = head_machine_checkpoint(head->machine, &length, &why);
    if (bytes == NULL) {
        return false;
    }
    sim->head = head_machine_core(head->machine);
    head_core_check(sim->head);
    count_checkpoint(head, sim->head);
    batch_add(sim, true, bytes, length);
    return true;
}

bool sim_journal_checkpoint(struct sim *sim)
{
    bool closed;

    head_machine_flush(sim->head_process.machine);
    closed = batch_close(sim);
    if (!checkpoint(sim)) { /* the flush began something: a copy ahead of need, perhaps */
        if (closed) {
            store_last(sim);
        }
        return false;
    }
    sim->head_process.stored = sim->head_process.batches.count;
    release(sim);
    return true;
}

/* Now and then, at moments that allow it. */
static void maybe_checkpoint(struct sim *sim)
{
    if (sim_chance(sim, CHECKPOINT_PERMILLE) && checkpoint(sim)) {
        store_last(sim);
    }
}

void sim_journal_flushed(struct sim *sim)
{
    struct sim_head *head = &sim->head_process;

    if (!sim->config.journal) {
        return;
    }
    if (batch_close(sim)) {
        store_last(sim);
        maybe_checkpoint(sim);
        return;
    }
    /* Nothing happened since the last batch: what is put out follows from that one. */
    for (size_t i = 0; i < head->held.count; i++) {
        struct sim_held *held = pl_vec_at(&head->held, i);

        held->batch = pl_min_u64(held->batch, head->batches.count);
    }
    release(sim);
}

/* ------------------------------------------------------------------------------ crashes */

static const struct sim_batch *batch_at(struct sim *sim, size_t index)
{
    return pl_vec_at(&sim->head_process.batches, index);
}

static struct head_machine *replay(struct sim *sim, size_t count)
{
    size_t first = count > 0 ? count - 1 : 0; /* the last checkpoint, or the beginning */
    struct head_machine *machine;
    struct head_figures figures;
    struct pl_err err = {0};

    sim_head_machine(sim, &machine);
    sim->head_process.replaying = true;
    while (first > 0 && !batch_at(sim, first)->checkpoint) {
        first--;
    }
    for (size_t i = first; i < count && !sim->failed; i++) {
        const struct sim_batch *batch = batch_at(sim, i);
        plasmon_status_t status =
            batch->checkpoint
                ? head_machine_load(machine, batch->bytes, batch->length, &err)
                : head_machine_replay(machine, batch->bytes, batch->length, &err);

        if (status != PLASMON_OK) {
            sim_fail(sim, "batch %zu of the journal cannot be replayed: %s", i, err.text);
        }
    }
    sim->head_process.replaying = false;
    head_machine_figures(machine, &figures);
    sim->head_process.replayed += figures.inputs;
    return machine;
}

static bool same_counts(struct head_machine *a, struct head_machine *b)
{
    struct head_core_counts x, y;

    head_core_count(head_machine_core(a), &x);
    head_core_count(head_machine_core(b), &y);
    return memcmp(&x, &y, sizeof(x)) == 0;
}

/* When nothing is under way, a checkpoint of the one is that of the other, byte by byte. Neither is kept. */
static bool same_state(struct head_core *a, struct head_core *b)
{
    struct head_bytes x = {0}, y = {0};
    bool same = (head_core_unquiet(a) == NULL) == (head_core_unquiet(b) == NULL);

    if (same && head_core_unquiet(a) == NULL) {
        head_core_save(a, &x);
        head_core_save(b, &y);
        same = x.length == y.length && memcmp(x.data, y.data, x.length) == 0;
    }
    pl_free(x.data);
    pl_free(y.data);
    return same;
}

/* What a replayed machine puts out goes nowhere. */
void sim_held_drop(struct pl_vec *held, size_t from)
{
    for (size_t i = from; i < held->count; i++) {
        pl_free(((struct sim_held *)pl_vec_at(held, i))->data);
    }
    held->count = from;
}

void sim_journal_check(struct sim *sim)
{
    struct sim_head *head = &sim->head_process;
    uint64_t sessions[SIM_CLIENTS_MAX];
    struct head_machine *twin;
    size_t held = head->held.count;

    if (!sim->config.journal || sim->failed) {
        return;
    }
    memcpy(sessions, head->sessions, sizeof(sessions));
    (void)batch_close(sim);
    twin = replay(sim, head->batches.count);
    if (!sim->failed) {
        head_core_check(head_machine_core(twin));
        if (head_machine_digest(twin) != head_machine_digest(head->machine) ||
            !same_counts(twin, head->machine) ||
            !same_state(head_machine_core(twin), head_machine_core(head->machine))) {
            sim_fail(sim,
                     "a head made from %zu batches differs from the one that wrote "
                     "them",
                     head->batches.count);
        }
    }
    head_machine_destroy(twin);
    sim_held_drop(&head->held, held);
    memcpy(head->sessions, sessions, sizeof(sessions));
}

/* Devices whose hello was not stored have no number yet. */
static void devices_look_again(struct sim *sim)
{
    for (uint32_t i = 0; i < sim->config.devices; i++) {
        struct sim_worker *worker = &sim->workers[i];
        uint32_t number = UINT32_MAX, known = 0;

        for (uint32_t device = 0; device < SIM_NUMBERS_MAX; device++) {
            uint32_t host_device, incarnation;
            const char *host;

            if (head_machine_worker_where(sim->head_process.machine, device, &host,
                                          &host_device, &incarnation) &&
                sim_worker_at(sim, host, host_device) == worker) {
                number = device;
                known  = incarnation;
            }
        }
        worker->greeted = (uint32_t)pl_min_u64(worker->greeted, known); /* by this head */
        if (worker->gone || (number == UINT32_MAX && sim_node_of(worker)->give_ups > 0)) {
            continue; /* the head may have forgotten it: its number stays */
        }
        if (worker->session != 0 && worker->device != number &&
            sim_node_of(worker)->give_ups == 0) {
            sim_fail(sim, "device %u was welcomed as %u and is %u after a crash", i,
                     worker->device, number);
        }
        worker->device = number;
    }
}

/*
 * A store tells every head of a device that it has given up (store/node_session.h): this one may
 * not know what the last one had heard.
 */
static void losses_tell_again(struct sim *sim)
{
    for (uint32_t i = 0; i < sim->config.devices; i++) {
        if (sim->workers[i].gone && !sim_node_of(&sim->workers[i])->gone) {
            sim_head_worker_gone(&sim->workers[i]);
        }
    }
}

static void connections_break(struct sim *sim)
{
    for (uint32_t i = 0; sim->config.stores && i < sim_hosts(sim); i++) {
        sim_node_break(&sim->nodes[i]);
    }
    for (uint32_t i = 0; i < sim->config.devices; i++) {
        sim_worker_break(&sim->workers[i]);
    }
    for (uint32_t i = 0; i < sim->config.clients; i++) {
        sim_client_break(&sim->clients[i]);
    }
}

static void store_is_back(void *user, uint64_t arg, void *data)
{
    struct sim *sim = user;

    (void)data;
    if (arg == sim->head_process.life && sim->now_ns >= sim->spill_down_until_ns) {
        sim_head_spill_up(sim);
        sim_head_flush_soon(sim);
    }
}

void sim_head_replace(struct sim *sim, bool broken)
{
    struct sim_head *head     = &sim->head_process;
    struct head_input restart = {.type    = HEAD_INPUT_RESTART,
                                 .numbers = {sim->now_ns / 1000000 + 1, GRACE_MS}};
    struct pl_err err;
    size_t kept;

    head->life++;
    head->flush_pending = false;
    sim->spill_joined   = false;

    /* Of the batches on their way, those before some one were stored, and the head did not hear of it. */
    kept = head->stored + sim_below(sim, head->batches.count - head->stored + 1);
    while (head->batches.count > kept) {
        pl_free(((struct sim_batch *)pl_vec_at(&head->batches, head->batches.count - 1))
                    ->bytes);
        pl_vec_pop(&head->batches);
    }
    head->stored  = kept;
    head->machine = replay(sim, kept);
    sim_held_drop(&head->held, 0);
    if (sim->failed) {
        return;
    }
    if (kept == 0) {
        sim_head_begin(sim); /* nobody was ever told anything */
    }
    sim->head = head_machine_core(head->machine);
    PL_CHECK(head_machine_input(head->machine, &restart, NULL, &err) == PLASMON_OK);
    devices_look_again(sim);
    for (uint32_t i = 0; i < SIM_HOSTS_MAX; i++) {
        sim->nodes[i].silent_ns = sim->now_ns;
    }
    if (broken) {
        connections_break(sim);
    }
    losses_tell_again(sim);
    sim_limits_head_crashed(sim);
    sim_after(sim, head->down_until_ns - pl_min_u64(head->down_until_ns, sim->now_ns),
              store_is_back, sim, head->life, NULL);
    sim_head_flush_soon(sim);
}

void sim_head_crash(struct sim *sim)
{
    struct sim_head *head = &sim->head_process;

    sim_trace(sim, "the head crashes");
    sim_journal_check(sim);
    head->crashes++;
    head->down_until_ns = sim->now_ns + sim_below(sim, DOWN_MAX_NS);
    head_machine_destroy(head->machine);
    sim_held_drop(&head->held, 0);
    sim_head_replace(sim, true);
}

void sim_journal_finish(struct sim *sim)
{
    struct sim_head *head = &sim->head_process;

    for (size_t i = 0; i < head->batches.count; i++) {
        pl_free(((struct sim_batch *)pl_vec_at(&head->batches, i))->bytes);
    }
    sim_held_drop(&head->held, 0);
    pl_vec_finish(&head->batches);
    pl_vec_finish(&head->held);
}
