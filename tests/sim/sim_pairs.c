/*
 * The nccl route, simulated: what transfer/pair.c does with threads and a communicator, in virtual
 * time. The lanes are the real ones (transfer/lane.h), and so are the decisions of head and worker
 * (head/pair.c, worker/pairs.c). Simulated are
 *
 *   the communicator   operations of its two ends meet in their order. One that nobody meets waits,
 *                      also when the other process is dead; one that is aborted ends as if all were
 *                      well, and what it wrote is rubbish; and if it had begun it tells the others
 *                      that all of its bytes came, so that theirs end, too, with rubbish. Some take
 *                      a send before its receive is there of a team: an operation is over when all
 *                      have come to it, and those that were under way when one died, never
 *   the pair's thread  opens, waits, closes or aborts; every step comes some time later
 *   the watcher        looks at the words some time after they change
 *   the main thread    hears of news some time after that
 *
 * Between any two of those the worker, or the other one, may crash. Now and then a communicator
 * says that it has failed.
 */
#include "tests/sim/sim.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "worker/pair_news.h"

enum {
    THREAD_MAX_NS = 60000,
    ABORT_MAX_NS  = 500000,
    LOOK_MAX_NS   = 3000,
    NEWS_MAX_NS   = 20000,
    STALL_NS      = 3000000,
    TIMEOUT_NS    = 20000000,
};
#define PAIR_BYTES_MIN \
    (UINT64_C(300)     \
     << 20) /* of a device's memory, as told: pairs are closed for want of room */
#define PAIR_BYTES_MAX (UINT64_C(1600) << 20)

/* One side of a communicator. */
struct sim_end {
    struct sim_pair *pair; /* NULL: not joined yet, or its process is dead */
    bool joined;
    bool aborted;
    uint64_t ops;
    uint64_t arrived;   /* operations that have begun here */
    const uint8_t *src; /* of a team: of the last of these */
};
struct sim_comm {
    struct sim_end end[SIM_DEVICES_MAX]; /* by rank; of a pair: [receives] */
    uint32_t ranks;
    uint64_t reduced;   /* of a team: operations that all have come to */
    bool eager;         /* a send may be over before its receive is there */
    uint64_t delivered; /* sends that are over */
    uint64_t taken;
    uint64_t bytes; /* of what was delivered last */
    uint8_t data[SIM_STAGE_BYTES_MAX];
};

enum phase {
    PHASE_STARTING,
    PHASE_MEETING,
    PHASE_OPEN,
    PHASE_ABORTING,
    PHASE_ENDED,
    PHASE_FREEING,
    PHASE_OVER
};

struct sim_pair {
    struct pl_list link; /* worker->pairs.all */
    struct sim_worker *worker;
    struct transfer_lane_pair on;
    uint32_t rank;
    uint32_t ranks;
    struct sim_comm *comm; /* the simulation's */
    enum phase phase;
    uint64_t serial; /* events of one that was freed are void */
    bool close_asked;
    bool abort_asked;
    bool ended_told;
    bool quiet_told;
    bool step_pending;
    uint64_t until_ns; /* MEETING, a receiver: then it gives up */
};

static void pair_step(void *user, uint64_t arg, void *data);

/* --------------------------------------------------------------------------------- news */

static void news_take(struct sim_worker *worker, const struct transfer_pair_news *news)
{
    struct worker_pair_report report;

    if (news->event == TRANSFER_PAIR_TURN) {
        sim_pairs_stage_next(worker);
    } else if (worker_pair_news(worker->core, news, &report)) {
        sim_worker_ops.report_pair(worker, &report);
    }
}

static void news_come(void *user, uint64_t arg, void *data)
{
    struct sim_worker *worker = user;

    (void)data;
    if (arg != worker->life || !worker->alive) {
        return;
    }
    worker->pairs.news_pending = false;
    sim_memory_enter(worker);
    for (size_t i = 0; i < worker->pairs.news.count; i++) {
        struct transfer_pair_news news =
            *(struct transfer_pair_news *)pl_vec_at(&worker->pairs.news, i);

        news_take(worker, &news);
    }
    pl_vec_clear(&worker->pairs.news);
    sim_memory_leave();
    sim_worker_advance(worker);
}

static void tell(struct sim_pair *pair, struct transfer_pair_news *news)
{
    struct sim_worker *worker        = pair->worker;
    struct transfer_pair_news *place = pl_vec_push(&worker->pairs.news);

    PL_CHECK(place != NULL);
    news->key = pair->on.key;
    *place    = *news;
    sim_trace(worker->sim, "device %u pair %s %u epoch %llu: news %d", worker->host_device,
              news->key.receives ? "from" : "to", news->key.peer,
              (unsigned long long)news->key.epoch, (int)news->event);
    if (!worker->pairs.news_pending) {
        worker->pairs.news_pending = true;
        sim_after(worker->sim, sim_below(worker->sim, NEWS_MAX_NS), news_come, worker,
                  worker->life, NULL);
    }
}

static void trouble(struct sim_pair *pair, const char *text)
{
    struct transfer_pair_news news = {.event = TRANSFER_PAIR_TROUBLE};

    if (!pair->on.doubted && !pair->on.broken) {
        pair->on.doubted = true;
        (void)snprintf(news.text, sizeof(news.text), "%s", text);
        tell(pair, &news);
    }
}

/* -------------------------------------------------------------------------- the watcher */

static struct sim_pair *pair_of(struct transfer_lane_pair *on)
{
    return pl_container_of(on, struct sim_pair, on);
}

static bool whole(void *user, struct transfer_lane_pair *on)
{
    struct sim_worker *worker = user;

    if (sim_below(worker->sim, 1000000) < worker->sim->config.pair_trouble_millionth) {
        trouble(pair_of(on), "the communicator has failed");
        return false;
    }
    return true;
}

static void look(void *user, uint64_t arg, void *data);

static void stall(struct sim_worker *worker, struct transfer_lane_half *half)
{
    struct transfer_pair_news news = {.event       = TRANSFER_PAIR_STALLED,
                                      .first_chunk = half->half.first_chunk};

    if (half->first_ns == 0) {
        half->first_ns = worker->sim->now_ns;
        sim_after(worker->sim, STALL_NS + 1, look, worker, worker->life, NULL);
    }
    if (!half->stall_told && !half->pair->broken &&
        worker->sim->now_ns - half->first_ns > STALL_NS) {
        half->stall_told = true;
        tell(pair_of(half->pair), &news);
    }
}

static void lane_look(struct sim_worker *worker, uint32_t index)
{
    struct sim_pairs *pairs    = &worker->pairs;
    struct transfer_lane *lane = &pairs->lanes[index];
    struct transfer_lane_half *first;
    uint64_t number;

    if (transfer_lane_look(lane, pairs->done[index], pairs->staged[index], whole, worker)) {
        sim_pairs_look_soon(worker); /* what cannot be said now */
    }
    first = transfer_lane_first_running(lane);
    if (first != NULL) {
        stall(worker, first);
    }
    number = transfer_lane_pop(lane);
    if (number != 0) {
        pairs->over[index] = number;
        sim_streams_kick(worker->sim);
    }
    if (transfer_lane_turn(lane)) {
        struct transfer_pair_news turn = {.event = TRANSFER_PAIR_TURN};

        tell(pair_of(((struct transfer_lane_half *)pl_vec_at(&lane->halves, 0))->pair),
             &turn);
    }
}

static void look(void *user, uint64_t arg, void *data)
{
    struct sim_worker *worker = user;
    struct pl_list *pos, *next;

    (void)data;
    if (arg != worker->life || !worker->alive) {
        return;
    }
    worker->pairs.look_pending = false;
    for (uint32_t i = 0; i < TRANSFER_LANES; i++) {
        lane_look(worker, i);
    }
    pl_list_for_each_safe(pos, next, &worker->pairs.all) {
        struct sim_pair *pair           = pl_container_of(pos, struct sim_pair, link);
        struct transfer_pair_news ended = {.event = TRANSFER_PAIR_ENDED};
        struct transfer_pair_news quiet = {.event = TRANSFER_PAIR_QUIET};

        if (!pair->ended_told && pair->on.running == 0 && pair->phase == PHASE_ENDED) {
            pair->ended_told = true;
            tell(pair, &ended);
        }
        if (pair->on.broken && !pair->quiet_told && pair->on.running == 0 &&
            pair->phase == PHASE_OVER) {
            pair->quiet_told = true;
            tell(pair, &quiet);
        }
    }
}

void sim_pairs_look_soon(struct sim_worker *worker)
{
    if (!worker->pairs.look_pending && worker->alive) {
        worker->pairs.look_pending = true;
        sim_after(worker->sim, sim_below(worker->sim, LOOK_MAX_NS), look, worker,
                  worker->life, NULL);
    }
}

/* ---------------------------------------------------------------------- a pair's thread */

/* user is the worker: the pair may be freed when it dies. */
static void step_soon(struct sim_pair *pair, uint64_t max_ns)
{
    if (!pair->step_pending) {
        pair->step_pending = true;
        sim_after(pair->worker->sim, 1 + sim_below(pair->worker->sim, max_ns), pair_step,
                  pair->worker, pair->serial, NULL);
    }
}

static struct sim_end *own_end(struct sim_pair *pair)
{
    return &pair->comm->end[pair->rank];
}

/* All have joined, and none has gone since. */
static bool all_there(const struct sim_comm *comm)
{
    for (uint32_t i = 0; i < comm->ranks; i++) {
        if (!comm->end[i].joined || comm->end[i].pair == NULL || comm->end[i].aborted) {
            return false;
        }
    }
    return true;
}

static void comm_make(struct sim_pair *pair)
{
    struct sim *sim                = pair->worker->sim;
    struct transfer_pair_news made = {.event = TRANSFER_PAIR_MADE};
    struct sim_comm **place        = pl_vec_push(&sim->comms);

    PL_CHECK(place != NULL);
    pair->comm        = sim_alloc(sizeof(*pair->comm));
    pair->comm->ranks = pair->ranks;
    pair->comm->eager = sim_chance(sim, 400);
    *place            = pair->comm;
    memcpy(made.id, &pair->comm, sizeof(pair->comm));
    tell(pair, &made);
}

static void pair_join(struct sim_pair *pair)
{
    if (!pair->on.key.receives) {
        comm_make(pair);
    }
    own_end(pair)->pair   = pair;
    own_end(pair)->joined = true;
    pair->phase           = PHASE_MEETING;
    if (pair->on.key.receives) {
        pair->until_ns = pair->worker->sim->now_ns + TIMEOUT_NS;
    }
    for (uint32_t i = 0; pair->on.key.receives && i < pair->ranks; i++) {
        struct sim_pair *other = pair->comm->end[i].pair;

        if (i != pair->rank && other != NULL && other->phase == PHASE_MEETING) {
            other->step_pending = false; /* perhaps it sleeps until it gives up */
            step_soon(other, THREAD_MAX_NS);
        }
    }
    if (pair->on.key.receives || pair->on.broken) {
        step_soon(pair, THREAD_MAX_NS);
    }
}

static void pair_over(struct sim_pair *pair)
{
    own_end(pair)->aborted = true; /* closed is as good: nothing is under way */
    pair->phase            = PHASE_OVER;
    pair->on.aborted       = true;
    sim_pairs_look_soon(pair->worker);
}

static void pair_not_opened(struct sim_pair *pair, plasmon_status_t status)
{
    struct transfer_pair_news opened = {.event = TRANSFER_PAIR_OPENED, .status = status};

    (void)snprintf(opened.text, sizeof(opened.text), "nobody came");
    pair_over(pair);
    tell(pair, &opened);
}

static void pair_meet(struct sim_pair *pair)
{
    struct sim *sim                  = pair->worker->sim;
    struct transfer_pair_news opened = {.event = TRANSFER_PAIR_OPENED};

    if (pair->on.broken) {
        pair_not_opened(pair, PLASMON_ECANCELLED);
    } else if (all_there(pair->comm)) {
        pair->phase        = PHASE_OPEN;
        pair->on.uncertain = false;
        opened.bytes       = sim_between(sim, PAIR_BYTES_MIN, PAIR_BYTES_MAX);
        tell(pair, &opened);
    } else if (pair->on.key.receives && sim->now_ns >= pair->until_ns) {
        pair_not_opened(pair, PLASMON_ETIMEDOUT);
    } else if (pair->on.key.receives) {
        pair->step_pending = true;
        sim_after(sim, TIMEOUT_NS, pair_step, pair->worker, pair->serial, NULL);
    }
}

static void pair_ending(struct sim_pair *pair)
{
    struct transfer_pair_news closed = {.event = TRANSFER_PAIR_CLOSED};

    if (pair->abort_asked) {
        own_end(pair)->aborted = true;
        pair->phase            = PHASE_ABORTING;
        sim_streams_kick(pair->worker->sim);
        step_soon(pair, ABORT_MAX_NS);
    } else if (pair->close_asked) {
        pair_over(pair);
        tell(pair, &closed);
    }
}

static void pair_ended(struct sim_pair *pair)
{
    pair->phase      = PHASE_ENDED;
    pair->on.aborted = true;
    sim_pairs_look_soon(pair->worker);
}

/* The driver frees when nothing is on the device; and whoever calls it meanwhile waits. */
static void device_check_empty(struct sim_worker *worker, const char *what)
{
    for (uint32_t i = 0; i < SIM_STREAMS; i++) {
        if (!pl_list_empty(&worker->streams[i].ops)) {
            sim_fail(worker->sim, "device %u %s a pair with work in stream %u",
                     worker->host_device, what, i);
        }
    }
}

static struct sim_pair *pair_find(struct sim_worker *worker, uint64_t serial)
{
    struct pl_list *pos;

    pl_list_for_each(pos, &worker->pairs.all) {
        struct sim_pair *pair = pl_container_of(pos, struct sim_pair, link);

        if (pair->serial == serial) {
            return pair;
        }
    }
    return NULL;
}

static void pair_step(void *user, uint64_t arg, void *data)
{
    struct sim_pair *pair = pair_find(user, arg);

    (void)data;
    if (pair == NULL) {
        return;
    }
    pair->step_pending = false;
    switch (pair->phase) {
    case PHASE_STARTING:
        pair_join(pair);
        break;
    case PHASE_MEETING:
        pair_meet(pair);
        break;
    case PHASE_OPEN:
        pair_ending(pair);
        break;
    case PHASE_ABORTING:
        pair_ended(pair);
        break;
    case PHASE_ENDED:
        break;
    case PHASE_FREEING:
        device_check_empty(pair->worker, "has freed");
        pair_over(pair);
        break;
    case PHASE_OVER:
        break;
    }
}

/* --------------------------------------------------------------------------- operations */

static void join(uint32_t reduction, float *x, const float *y, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        x[i] = reduction == DEVICE_REDUCE_MIN   ? (y[i] < x[i] ? y[i] : x[i])
               : reduction == DEVICE_REDUCE_MAX ? (y[i] > x[i] ? y[i] : x[i])
                                                : x[i] + y[i];
    }
}

/*
 * By the end of somebody whose operation had begun: who had none has nothing that could tell others
 * that its bytes came.
 */
static bool any_aborted(const struct sim_comm *comm, uint64_t index)
{
    for (uint32_t i = 0; i < comm->ranks; i++) {
        if (comm->end[i].aborted && comm->end[i].arrived > index) {
            return true;
        }
    }
    return false;
}

/* The last one comes: what all get, in the order of ranks, which is nobody's. */
static void reduce(struct sim_worker *worker, const struct sim_op *op)
{
    struct sim_comm *comm = op->comm;
    static float data[SIM_STAGE_BYTES_MAX / sizeof(float)], member[PL_COUNT(data)];

    memcpy(data, comm->end[0].src, op->bytes);
    for (uint32_t i = 1; i < comm->ranks; i++) {
        memcpy(member, comm->end[i].src, op->bytes);
        join(op->reduction, data, member, op->bytes / sizeof(float));
    }
    memcpy(comm->data, data, op->bytes);
    comm->reduced = op->index + 1;
    worker->sim->together++;
    for (uint32_t i = 0; i < comm->ranks; i++) {
        sim_streams_kick_soon(comm->end[i].pair->worker);
    }
}

static bool team_ready(struct sim_op *op)
{
    struct sim_comm *comm = op->comm;
    struct sim_end *own   = &comm->end[op->rank];
    bool all              = all_there(comm);

    if (own->arrived == op->index) {
        own->arrived++;
        own->src = own->pair->worker->arena + op->src_offset;
    }
    if (any_aborted(comm, op->index) || comm->reduced > op->index) {
        return true;
    }
    for (uint32_t i = 0; i < comm->ranks; i++) {
        all = all && comm->end[i].arrived > op->index;
    }
    if (all) {
        reduce(own->pair->worker, op);
    }
    return all;
}

static void team_do(struct sim_worker *worker, const struct sim_op *op)
{
    uint8_t *at = worker->arena + op->dst_offset;

    if (op->comm->reduced > op->index && !op->comm->end[op->rank].aborted) {
        memcpy(at, op->comm->data, op->bytes);
    } else if (sim_chance(worker->sim, 500)) {
        sim_memory_noise(worker->sim, at, op->bytes);
    }
}

bool sim_meet_ready(struct sim_op *op)
{
    struct sim_comm *comm = op->comm;
    struct sim_end *own   = &comm->end[op->receives];

    if (op->reduction != 0) {
        return team_ready(op);
    }
    if (own->arrived == op->index) {
        own->arrived++;
        if (op->receives && comm->end[0].pair != NULL) {
            sim_streams_kick_soon(comm->end[0].pair->worker);
        }
    }
    if (own->aborted) {
        return true;
    }
    if (op->receives) {
        return comm->delivered > op->index ||
               (comm->end[0].aborted && comm->end[0].arrived > op->index);
    }
    return comm->end[1].pair != NULL && !comm->end[1].aborted &&
           comm->delivered == comm->taken && comm->delivered == op->index &&
           (comm->eager || comm->end[1].arrived > op->index);
}

void sim_meet_do(struct sim_worker *worker, const struct sim_op *op)
{
    struct sim_comm *comm = op->comm;
    uint8_t *at           = worker->arena + op->dst_offset;

    if (op->reduction != 0) {
        team_do(worker, op);
    } else if (comm->end[op->receives].aborted) {
        if (op->receives && sim_chance(worker->sim, 500)) {
            sim_memory_noise(worker->sim, at, op->bytes);
        }
    } else if (op->receives) {
        if (comm->delivered <= op->index || comm->bytes != op->bytes) {
            /* The sender was aborted; or it is not its other half: one of the two had failed. */
            sim_memory_noise(worker->sim, at, op->bytes);
        } else {
            memcpy(at, comm->data, op->bytes);
        }
        comm->taken++;
    } else {
        memcpy(comm->data, at, op->bytes);
        comm->bytes = op->bytes;
        comm->delivered++;
    }
}

/* ----------------------------------------------------------------------- the core's ops */

static struct sim_pair *pair_named(struct sim_worker *worker,
                                   const struct worker_pair_key *key)
{
    struct pl_list *pos;

    pl_list_for_each(pos, &worker->pairs.all) {
        struct sim_pair *pair = pl_container_of(pos, struct sim_pair, link);

        if (pair->on.key.peer == key->peer && pair->on.key.receives == key->receives &&
            pair->on.key.team == key->team && pair->on.key.epoch == key->epoch) {
            return pair;
        }
    }
    return NULL;
}

plasmon_status_t sim_pair_op_open(void *user, const struct worker_pair_key *key,
                                  const struct worker_pair_shape *shape, const uint8_t *id)
{
    struct sim_worker *worker = user;
    struct sim_pair *pair     = sim_alloc(sizeof(*pair));

    device_check_empty(worker, "opens");
    PL_CHECK(!shape->remote && (id != NULL) == key->receives &&
             (shape->ranks != 0) == (key->team != 0));
    *pair        = (struct sim_pair){.worker = worker, .serial = ++worker->pairs.serial};
    pair->on.key = (struct transfer_pair_key){.peer     = key->peer,
                                              .receives = key->receives,
                                              .epoch    = key->epoch,
                                              .team     = key->team};
    pair->rank   = shape->ranks != 0 ? shape->rank : key->receives;
    pair->ranks  = shape->ranks != 0 ? shape->ranks : 2;
    pair->on.uncertain = true;
    if (id != NULL) {
        memcpy(&pair->comm, id, sizeof(pair->comm));
    }
    pl_list_init(&pair->link);
    pl_list_add_tail(&worker->pairs.all, &pair->link);
    step_soon(pair, THREAD_MAX_NS);
    return PLASMON_OK;
}

void sim_pair_op_close(void *user, const struct worker_pair_key *key)
{
    struct sim_pair *pair = pair_named(user, key);

    PL_CHECK(pair != NULL && pair->on.halves == 0);
    pair->close_asked = true;
    step_soon(pair, THREAD_MAX_NS);
}

void sim_pair_op_break(void *user, const struct worker_pair_key *key)
{
    struct sim_pair *pair = pair_named(user, key);

    PL_CHECK(pair != NULL);
    pair->on.broken |= !pair->close_asked; /* that one ends already */
    sim_pairs_look_soon(user);
}

void sim_pair_op_abort(void *user, const struct worker_pair_key *key)
{
    struct sim_pair *pair = pair_named(user, key);

    PL_CHECK(pair != NULL && pair->on.broken);
    pair->abort_asked = true;
    if (pair->phase == PHASE_MEETING) {
        pair->step_pending = false; /* it looks more often than it takes to give up */
    }
    step_soon(pair, THREAD_MAX_NS);
    sim_pairs_look_soon(user);
}

void sim_pair_op_free(void *user, const struct worker_pair_key *key)
{
    struct sim_pair *pair = pair_named(user, key);

    PL_CHECK(pair != NULL && pair->phase == PHASE_ENDED && pair->ended_told);
    device_check_empty(user, "frees");
    pair->phase = PHASE_FREEING;
    step_soon(pair, ABORT_MAX_NS);
}

bool sim_pair_op_room(void *user, uint32_t lane)
{
    const struct sim_worker *worker = user;

    return transfer_lane_has_room(&worker->pairs.lanes[lane]);
}

bool sim_pair_op_settled(void *user, uint32_t lane)
{
    const struct sim_worker *worker = user;

    return transfer_lane_settled(&worker->pairs.lanes[lane]);
}

static void put_word(struct sim_worker *worker, uint32_t stream, enum sim_op_kind kind,
                     uint64_t *word, uint64_t value)
{
    struct sim_op *op = sim_op_add(worker, stream, kind);

    op->word  = word;
    op->value = value;
    op->other = worker->host_device;
    sim_op_start(worker, stream);
}

/* Notes what half `number` moves; those that are over are forgotten. */
static void touch_note(struct sim_worker *worker, uint32_t lane, uint64_t number,
                       const struct worker_half *half)
{
    struct pl_vec *touches = &worker->pairs.touches[lane];
    struct sim_half_touch *place;

    for (size_t i = touches->count; i-- > 0;) {
        if (((struct sim_half_touch *)pl_vec_at(touches, i))->number <=
            worker->pairs.over[lane]) {
            pl_vec_remove_unordered(touches, i);
        }
    }
    place = pl_vec_push(touches);
    PL_CHECK(place != NULL);
    *place = (struct sim_half_touch){
        .number = number, .seq = half->seq, .touch = sim_touch_of(worker, half->offset)};
    if (half->key.team != 0) {
        place->member = sim_touch_of(worker, half->member_offset);
    }
}

const struct sim_touch *sim_pairs_part(const struct sim_worker *worker, uint64_t seq,
                                       bool member)
{
    const struct pl_vec *touches = &worker->pairs.touches[TRANSFER_LANE_TEAMS];

    for (size_t i = 0; i < touches->count; i++) {
        const struct sim_half_touch *noted = pl_vec_at(touches, i);

        if (noted->seq == seq) {
            return member ? &noted->member : &noted->touch;
        }
    }
    return NULL;
}

static const struct sim_touch *touch_noted(struct sim_worker *worker, bool receives,
                                           uint64_t number)
{
    struct pl_vec *touches = &worker->pairs.touches[receives];

    for (size_t i = 0; i < touches->count; i++) {
        const struct sim_half_touch *noted = pl_vec_at(touches, i);

        if (noted->number == number) {
            return &noted->touch;
        }
    }
    return NULL;
}

static void put_operation(struct sim_worker *worker, struct sim_pair *pair,
                          const struct worker_half *half)
{
    uint32_t index    = transfer_lane_of(&pair->on.key);
    uint32_t lane     = STORE_STREAM_MAX + index;
    struct sim_op *op = sim_op_add(worker, lane, SIM_OP_MEET);

    op->comm      = pair->comm;
    op->receives  = half->key.receives;
    op->rank      = pair->rank;
    op->reduction = half->key.team != 0 ? half->op : 0;
    PL_CHECK(half->collective == DEVICE_ALL_REDUCE); /* programs have no others */
    op->src_offset = half->member_offset;
    op->index      = own_end(pair)->ops++;
    op->bytes      = half->bytes;
    op->dst_offset = half->offset;
    PL_CHECK(half->bytes <= SIM_STAGE_BYTES_MAX);
    sim_op_touch(op, worker, half->offset);
    sim_op_start(worker, lane);
}

/* As words_put() of transfer/pair.c: of a send beside its launch's stream, else in it. */
static void put_done(struct sim_worker *worker, uint32_t index, uint32_t stream,
                     uint64_t number)
{
    uint32_t lane = STORE_STREAM_MAX + index;

    if (index == TRANSFER_LANE_SENDS) {
        put_word(worker, lane, SIM_OP_SIGNAL, &worker->pairs.done[index], number);
        return;
    }
    sim_op_join(worker, stream, lane);
    put_word(worker, stream, SIM_OP_SIGNAL, &worker->pairs.done[index], number);
}

bool sim_pairs_word(const struct sim_worker *worker, const uint64_t *word)
{
    for (uint32_t i = 0; i < TRANSFER_LANES; i++) {
        if (word == &worker->pairs.done[i] || word == &worker->pairs.staged[i]) {
            return true;
        }
    }
    return word == &worker->pairs.passed;
}

plasmon_status_t sim_pair_op_move(void *user, uint32_t stream,
                                  const struct worker_half *half)
{
    struct sim_worker *worker      = user;
    struct sim_pairs *pairs        = &worker->pairs;
    struct sim_pair *pair          = pair_named(worker, &half->key);
    uint32_t index                 = pair != NULL ? transfer_lane_of(&pair->on.key) : 0;
    bool receives                  = index == TRANSFER_LANE_RECEIVES;
    bool with_bytes                = half->offset != WORKER_NOWHERE;
    struct transfer_lane *lane     = &pairs->lanes[index];
    uint64_t number                = transfer_lane_number(lane);
    const struct transfer_half its = {
        .key         = pair != NULL ? pair->on.key : (struct transfer_pair_key){.peer = 0},
        .host_device = half->host_device,
        .seq         = half->seq,
        .first_chunk = half->first_chunk,
        .ptr         = {.addr = half->offset},
        .bytes       = half->bytes,
        .with_bytes  = with_bytes,
    };

    PL_CHECK(pair != NULL && pair->phase == PHASE_OPEN);
    if (with_bytes) {
        touch_note(worker, index, number, half);
        if (!pair->on.doubted) {
            put_operation(worker, pair, half);
        }
        put_done(worker, index, stream, number);
    }
    put_word(worker, stream, SIM_OP_WAIT, &pairs->over[index], number);
    if (receives) {
        put_word(worker, stream, SIM_OP_SIGNAL, &worker->timeline->stage_taken.value,
                 half->first_chunk + 1);
        put_word(worker, stream, SIM_OP_SIGNAL, &pairs->passed, number);
    }
    if (half->signals) {
        put_word(worker, stream, SIM_OP_SIGNAL, &worker->timeline->stream[stream].value,
                 half->seq);
    }
    PL_CHECK(transfer_lane_add(lane, &pair->on, &its, number, with_bytes));
    pair->on.uncertain |= with_bytes && pair->on.doubted;
    if (!with_bytes) {
        trouble(pair, "half of a transfer failed");
    } else if (sim_below(worker->sim, 1000000) <
               worker->sim->config.pair_trouble_millionth) {
        pair->on.uncertain = true;
        trouble(pair, "an operation was refused");
    }
    sim_pairs_look_soon(worker);
    return PLASMON_OK;
}

static void lane_stage_next(struct sim_worker *worker, uint32_t index)
{
    struct sim_pairs *pairs = &worker->pairs;
    uint32_t stream         = STORE_STREAM_MAX + TRANSFER_LANES + index;
    struct transfer_lane_half half;

    if (!transfer_lane_stage_next(&pairs->lanes[index], &half)) {
        return;
    }
    if (index == TRANSFER_LANE_TEAMS) {
        worker_core_alone(worker->core, half.half.seq);
        put_word(worker, stream, SIM_OP_SIGNAL, &pairs->staged[index], half.staged);
        return;
    }
    if (index == 1) {
        put_word(worker, stream, SIM_OP_WAIT, &pairs->passed, half.number - 1);
        put_word(worker, stream, SIM_OP_WAIT, &worker->timeline->stage_taken.value,
                 half.half.first_chunk);
    }
    /* Whose number that is now: the other one may have been given up since. */
    sim_stage(worker, stream, index == 1 ? SIM_OP_RECV : SIM_OP_SEND,
              worker->sim->host_device_of[half.half.key.peer], half.half.first_chunk,
              touch_noted(worker, index == 1, half.number), half.half.bytes);
    put_word(worker, stream, SIM_OP_SIGNAL, &pairs->staged[index], half.staged);
}

void sim_pairs_stage_next(struct sim_worker *worker)
{
    for (uint32_t i = 0; i < TRANSFER_LANES; i++) {
        lane_stage_next(worker, i);
    }
}

plasmon_status_t sim_pair_op_stage(void *user, const struct worker_pair_key *key,
                                   uint64_t *out_first)
{
    struct sim_worker *worker = user;
    struct sim_pair *pair     = pair_named(worker, key);
    struct transfer_lane *lane;

    *out_first = 0;
    if (pair != NULL && pair->on.broken) {
        lane       = &worker->pairs.lanes[transfer_lane_of(&pair->on.key)];
        *out_first = transfer_lane_first_lost(lane, &pair->on);
        transfer_lane_stage(lane, &pair->on);
        sim_pairs_look_soon(worker);
    }
    sim_pairs_stage_next(worker);
    return PLASMON_OK;
}

void sim_pair_op_sent(void *user, uint64_t seq)
{
    struct sim_worker *worker = user;

    transfer_lane_sent(&worker->pairs.lanes[0], seq);
    sim_pairs_look_soon(worker);
}

/* --------------------------------------------------------------------- coming and going */

void sim_pairs_init(struct sim_worker *worker)
{
    uint64_t serial = worker->pairs.serial;

    worker->pairs = (struct sim_pairs){.news    = PL_VEC_INIT(struct transfer_pair_news),
                                       .touches = {PL_VEC_INIT(struct sim_half_touch),
                                                   PL_VEC_INIT(struct sim_half_touch),
                                                   PL_VEC_INIT(struct sim_half_touch)},
                                       .serial  = serial};
    pl_list_init(&worker->pairs.all);
    for (uint32_t i = 0; i < TRANSFER_LANES; i++) {
        transfer_lane_init(&worker->pairs.lanes[i], i);
    }
}

void sim_pairs_finish(struct sim_worker *worker)
{
    struct sim_pairs *pairs = &worker->pairs;

    while (!pl_list_empty(&pairs->all)) {
        struct sim_pair *pair = pl_list_first(&pairs->all, struct sim_pair, link);

        if (pair->comm != NULL && own_end(pair)->pair == pair) {
            own_end(pair)->pair = NULL;
        }
        pl_list_remove(&pair->link);
        pl_free(pair);
    }
    for (uint32_t i = 0; i < TRANSFER_LANES; i++) {
        transfer_lane_finish(&pairs->lanes[i]);
    }
    for (uint32_t i = 0; i < TRANSFER_LANES; i++) {
        pl_vec_finish(&pairs->touches[i]);
    }
    pl_vec_finish(&pairs->news);
}

void sim_pairs_crash(struct sim_worker *worker)
{
    sim_pairs_finish(worker);
    sim_pairs_init(worker);
}

void sim_pairs_describe(const struct sim_worker *worker, struct pl_str *out)
{
    static const char *const states[] = {"runs", "ended", "waits for its turn", "is staged",
                                         "is over"};

    for (uint32_t i = 0; i < TRANSFER_LANES; i++) {
        const struct transfer_lane *lane = &worker->pairs.lanes[i];

        for (size_t k = 0; k < lane->halves.count; k++) {
            const struct transfer_lane_half *half = pl_vec_at(&lane->halves, k);

            pl_str_append(
                out, "  %s %u: launch %llu, chunk %llu, pair %llu%s%s%s: %s%s\n",
                i == TRANSFER_LANE_SENDS      ? "send to"
                : i == TRANSFER_LANE_RECEIVES ? "receive from"
                                              : "with team",
                i == TRANSFER_LANE_TEAMS ? half->half.key.team : half->half.key.peer,
                (unsigned long long)half->half.seq,
                (unsigned long long)half->half.first_chunk,
                (unsigned long long)half->half.key.epoch,
                half->pair->doubted ? ", in doubt" : "",
                half->pair->broken ? ", broken" : "", half->pair->staged ? ", staged" : "",
                states[half->state], half->sent ? ", sent" : "");
        }
    }
}
