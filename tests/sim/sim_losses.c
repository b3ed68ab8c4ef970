/*
 * What a crash may cost, judged from outside: by the launches that the head sent and by the
 * timeline, which outlives the worker. The worker's and the head's own opinion is not asked.
 *
 * A launch had BEGUN when it was published and its stream's word had not passed it, unless the
 * simulated device knows better (sim_begun.c). Begun launches may have written, so they are what a
 * crash can cost:
 *
 *   consumed   it writes over something in place, or reads what a later begun launch writes: it
 *              cannot be run again
 *   begun      it may be what killed the worker, and runs out of retries
 *
 * A launch that is over and marked as failed counts as well: it may have written, and its reason
 * has died with the worker.
 *
 * A FENCE is a crash that the head has ordered. It is charged to nobody, so it is no reason to run
 * out of retries; and what lay behind a launch that was ended for its limit may come again even if
 * it is consumed (sim_limits.c).
 *
 * Whatever else fails after a crash must depend on one of those. The head's own launches (copies,
 * folds) belong to no task, so of them is only known that there was one.
 */
#include "tests/sim/sim.h"

#include "base/alloc.h"

struct use {
    uint64_t seq;
    uint64_t buffer;
    uint64_t task; /* sim_task_key(); 0: the head's own */
    bool reads;
    bool writes;
    bool consumes;
};

static void use_add(struct sim_worker *worker, const struct use *use)
{
    struct use *place = pl_vec_push(&worker->uses);

    PL_CHECK(place != NULL);
    *place = *use;
}

static uint64_t task_of(struct sim *sim, const Plasmon__V1__Launch *launch)
{
    for (uint32_t i = 0; i < sim->config.clients; i++) {
        if (launch->task != 0 && sim->clients[i].id == launch->client) {
            return sim_task_key(&sim->clients[i], launch->task);
        }
    }
    return 0;
}

void sim_losses_init(struct sim_worker *worker)
{
    worker->uses = PL_VEC_INIT(struct use);
}

void sim_losses_note(struct sim_worker *worker, const Plasmon__V1__Launch *launch)
{
    struct use use = {.seq = launch->seq, .task = task_of(worker->sim, launch)};

    use_add(worker, &use); /* even without operands it can have begun */
    for (size_t i = 0; i < launch->n_operands; i++) {
        const Plasmon__V1__Operand *operand = launch->operands[i];

        use.buffer   = operand->buffer;
        use.reads    = !operand->fresh && operand->mode != PLASMON__V1__MODE__MODE_OUT;
        use.writes   = operand->mode != PLASMON__V1__MODE__MODE_IN;
        use.consumes = operand->consume;
        use_add(worker, &use);
    }
    for (size_t i = 0; i < launch->n_pieces; i++) {
        use_add(worker, &(struct use){.seq    = launch->seq,
                                      .task   = use.task,
                                      .buffer = launch->pieces[i]->src,
                                      .reads  = true});
    }
}

uint64_t sim_losses_task(const struct sim_worker *worker, uint64_t seq)
{
    for (size_t i = worker->uses.count; i-- > 0;) {
        const struct use *use = pl_vec_at(&worker->uses, i);

        if (use->seq == seq) {
            return use->task;
        }
    }
    return 0;
}

/* Every later begun write into what this one reads. */
static bool overwritten(const struct sim_worker *worker, const struct use *read)
{
    for (size_t i = 0; i < worker->uses.count; i++) {
        const struct use *write = pl_vec_at(&worker->uses, i);

        if (write->writes && write->buffer == read->buffer && write->seq > read->seq &&
            sim_begun_perhaps(worker, write->seq) &&
            !sim_limits_sheltered(worker, write->seq)) {
            return true;
        }
    }
    return false;
}

static void lose(struct sim *sim, uint64_t task, uint32_t how)
{
    uint32_t known = sim_losses_of(sim, task);

    if (task == 0) {
        sim->own_losses |= how;
    } else {
        PL_CHECK(pl_map_set(&sim->losses, task, (void *)(uintptr_t)(known | how)) ==
                 PLASMON_OK);
    }
}

void sim_losses_crash(struct sim_worker *worker)
{
    size_t begun = 0;

    /*
     * Only those count, now and at a crash of the next worker before it got them again. What was
     * not published is sent again.
     */
    for (size_t i = 0; i < worker->uses.count; i++) {
        const struct use *use = pl_vec_at(&worker->uses, i);

        if (use->seq <= worker->timeline->enqueued &&
            (store_timeline_point(worker->timeline, use->seq, NULL, NULL) ==
                 STORE_POINT_ENQUEUED ||
             store_timeline_failed(worker->timeline, use->seq))) {
            *(struct use *)pl_vec_at(&worker->uses, begun++) = *use;
        }
    }
    while (worker->uses.count > begun) {
        pl_vec_pop(&worker->uses);
    }
    for (size_t i = 0; i < begun; i++) {
        const struct use *use = pl_vec_at(&worker->uses, i);

        if (!worker->limits.fenced || store_timeline_failed(worker->timeline, use->seq)) {
            lose(worker->sim, use->task, SIM_LOSS_BEGUN);
        }
        if ((use->consumes && sim_begun_perhaps(worker, use->seq) &&
             !sim_limits_sheltered(worker, use->seq)) ||
            (use->reads && overwritten(worker, use))) {
            lose(worker->sim, use->task, SIM_LOSS_CONSUMED);
        }
    }
}

uint32_t sim_losses_of(const struct sim *sim, uint64_t task)
{
    return task == 0 ? sim->own_losses
                     : (uint32_t)(uintptr_t)pl_map_get(&sim->losses, task);
}
