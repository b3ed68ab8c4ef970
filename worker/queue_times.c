/*
 * How long functions wait in the queue of their worker, and what its front stood still for.
 *
 * A function's time runs from the command that it came with until it is enqueued. Of that, what its
 * device stood still for is told by SPELLS: a launch that may not go begins one with its cause
 * (waits.c); it ends when the cause is another one, or the launch goes. So a spell is counted once,
 * whatever number of launches stood behind, and a launch may have several.
 *
 * The clock is read once a command, and once an advance that has something to add.
 */
#include "worker/core_int.h"

#include "wire/wire.h"

static uint64_t look(struct worker_core *core)
{
    if (core->looked_ns == 0) {
        core->looked_ns = worker_now(core);
    }
    return core->looked_ns;
}

void worker_queue_times_command(struct worker_core *core)
{
    core->looked_ns  = 0;
    core->command_ns = look(core);
}

static void spell_end(struct worker_core *core)
{
    struct worker_spell *spell = &core->spell;

    if (spell->seq != 0) {
        pl_histogram_add(&core->front_times[spell->why], look(core) - spell->since_ns);
        spell->seq = 0;
    }
}

void worker_queue_times_goes(struct worker_core *core, const struct worker_launch *launch)
{
    if (core->config.ops->now == NULL) {
        return;
    }
    if (worker_launch_is_function(launch)) {
        pl_histogram_add(&core->queue_times, look(core) - launch->queued_ns);
    }
    spell_end(core);
}

void worker_queue_times_stands(struct worker_core *core)
{
    const struct worker_launch *front = core->queue.first;
    struct worker_spell *spell        = &core->spell;
    Plasmon__V1__WaitWhy why;

    if (front == NULL || core->config.ops->now == NULL) {
        return; /* the last one that went ended the spell */
    }
    why = worker_waits_why(core, front);
    if (spell->seq == front->seq && spell->why == why) {
        return;
    }
    spell_end(core);
    if (why != PLASMON__V1__WAIT_WHY__WAIT_NONE) {
        *spell =
            (struct worker_spell){.seq = front->seq, .why = why, .since_ns = look(core)};
    }
}

/* false: the arena is full. */
static bool tell(const struct pl_histogram *times, Plasmon__V1__TimeOf of,
                 Plasmon__V1__WaitWhy why, struct wire_arena *arena,
                 Plasmon__V1__WorkerStats *out)
{
    Plasmon__V1__Histogram *one;

    if (pl_histogram_count(times) == 0) {
        return true;
    }
    one = wire_histogram(times, arena);
    if (one == NULL) {
        return false;
    }
    one->of                    = of;
    one->why                   = why;
    out->queue[out->n_queue++] = one;
    return true;
}

void worker_core_queue_times(const struct worker_core *core, struct wire_arena *arena,
                             Plasmon__V1__WorkerStats *out)
{
    out->queue =
        wire_arena_alloc(arena, (1 + PL_COUNT(core->front_times)) * sizeof(*out->queue));
    if (out->queue == NULL || !tell(&core->queue_times, PLASMON__V1__TIME_OF__TIME_QUEUE,
                                    PLASMON__V1__WAIT_WHY__WAIT_NONE, arena, out)) {
        return;
    }
    for (uint32_t why = 0; why < PL_COUNT(core->front_times); why++) {
        if (!tell(&core->front_times[why], PLASMON__V1__TIME_OF__TIME_FRONT,
                  (Plasmon__V1__WaitWhy)why, arena, out)) {
            return;
        }
    }
}
