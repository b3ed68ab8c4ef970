/*
 * Pairs in the one order. A pair is a communicator from one device to one other (transfer/pair.h);
 * the head opens and closes it with launches that, like the halves of a transfer, share one order
 * number on the two devices.
 *
 *   OPEN, CLOSE   at the front, when nothing is on the device: making and ending a communicator
 *                 blocks while a stream of the device waits. Nothing is enqueued before it is open,
 *                 or is known not to be
 *   SEND, RECV    at the front, when the pair is open, what the launch waits for is done as the
 *                 host sees it, and its lane has room: then its operation goes on the lane at once.
 *                 So lanes are filled in the one order, and wait for nothing but the other side's
 *                 operation with the same number
 *
 * BROKEN, DECIDED, STAGED. The head says that a pair is broken, on both sides. Each marks it, and
 * the receiver aborts. From the mark on a receiver knows what came by the pair: the rest goes by
 * the host route, each half when its operation has left the device (transfer/lane.h). It reports
 * that when it has reported all that came; then the head tells the sender, which aborts, and whose
 * halves go that way likewise. (Not before: operations of an aborted sender tell the receiver that
 * all bytes came.) No half waits until nothing of the pair is on a device. Halves that are not
 * enqueued yet wait at the front meanwhile. Whatever is said of an epoch holds for earlier ones,
 * too: there is a next one only when the one before is over.
 *
 * FREED is what is left when nothing else is on the device (worker_pairs_freed): the driver waits
 * for that in the call, and holds up copies meanwhile, for which something on the device might
 * wait. An OPEN or CLOSE, which waits for that, too, comes behind it; else it is done when there is
 * nothing to do.
 *
 * TEAMS are communicators of several devices, for launches that all of them have and that each of
 * them could do alone: a COPY with a function, of members that nobody writes before all are done.
 * They live like pairs, and a part goes on its lane like a half. When one is broken all mark it,
 * and say so (DECIDED); when all have (STAGED) they abort. What ended before the mark is done, and
 * each device does the rest of its own by itself (worker_core_alone).
 *
 * A worker that was restarted has no pair. The head tells it which are broken before it sends
 * launches that name them.
 */
#include "worker/core_int.h"

#include <string.h>

#include "base/alloc.h"
#include "base/fault.h"
#include "base/log.h"

static bool receives(const struct worker_launch *launch)
{
    return launch->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_RECV ||
           ((worker_launch_is_pairs(launch) || worker_launch_is_joint(launch)) &&
            launch->length != 0);
}

static struct worker_pair_key key_of(const struct worker_launch *launch)
{
    return (struct worker_pair_key){.peer     = launch->team != 0 ? 0 : launch->peer,
                                    .receives = receives(launch),
                                    .epoch    = launch->comm,
                                    .team     = launch->team};
}

static uint32_t lane_of(const struct worker_pair_key *key)
{
    return key->team != 0  ? WORKER_LANE_TEAMS
           : key->receives ? WORKER_LANE_RECEIVES
                           : WORKER_LANE_SENDS;
}

bool worker_launch_is_joint(const struct worker_launch *launch)
{
    return launch->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_COPY && launch->team != 0;
}

bool worker_launch_is_pairs(const struct worker_launch *launch)
{
    return launch->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_OPEN ||
           launch->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_CLOSE;
}

/* Of all epochs of it. */
static uint64_t name_of(const struct worker_pair_key *key)
{
    return ((uint64_t)key->team << 32 | (uint64_t)key->peer << 1 | key->receives) + 1;
}

/* NULL: no memory. */
static struct worker_comm *pair_of(struct worker_core *core,
                                   const struct worker_pair_key *key)
{
    uint64_t name            = name_of(key);
    struct worker_comm *pair = pl_map_get(&core->comms, name);

    if (pair != NULL) {
        return pair;
    }
    pair = PL_NEW(struct worker_comm);
    if (pair != NULL) {
        pair->key = (struct worker_pair_key){
            .peer = key->peer, .receives = key->receives, .team = key->team};
        if (pl_map_set(&core->comms, name, pair) != PLASMON_OK) {
            pl_free(pair);
            pair = NULL;
        }
    }
    return pair;
}

void worker_pairs_finish(struct worker_core *core)
{
    size_t i = 0;
    uint64_t name;
    void *pair;

    while (pl_map_next(&core->comms, &i, &name, &pair)) {
        pl_free(pair);
    }
    pl_map_finish(&core->comms);
}

bool worker_pairs_used(const struct worker_core *core)
{
    size_t i = 0;
    uint64_t name;
    void *at;

    while (pl_map_next(&core->comms, &i, &name, &at)) {
        const struct worker_comm *pair = at;

        if (pair->state != WORKER_PAIR_NONE && pair->state != WORKER_PAIR_CLOSED) {
            return true;
        }
    }
    return false;
}

static void report(struct worker_core *core, const struct worker_pair_key *key,
                   Plasmon__V1__PairEvent event, uint64_t bytes, const char *text)
{
    const struct worker_pair_report it = {
        .key = *key, .event = (uint32_t)event, .bytes = bytes, .text = text};

    core->config.ops->report_pair(core->config.user, &it);
}

/* -------------------------------------------------------------------- the end of a pair */

/* What of it is under way goes by the host route. The first launch that did not come by the pair; 0: none. */
static uint64_t stage(struct worker_core *core, struct worker_comm *pair, uint64_t epoch)
{
    uint64_t first = 0;

    pair->staged = pl_max_u64(pair->staged, epoch);
    if (pair->key.epoch <= epoch &&
        core->config.ops->pair_stage(core->config.user, &pair->key, &first) != PLASMON_OK) {
        /* The device refused a call: who runs us sees its health. */
        pl_error("worker", "what went by a communicator with %s %u cannot go another way",
                 pair->key.team != 0 ? "team" : "device",
                 pair->key.team != 0 ? pair->key.team : pair->key.peer);
    }
    return first;
}

/* The last receive that came by the pair and is not seen to be done; 0: none. */
static uint64_t last_received(const struct worker_core *core,
                              const struct worker_comm *pair, uint64_t first_lost)
{
    uint64_t last = 0;

    for (uint32_t i = 0; i < core->stream_count; i++) {
        const struct worker_launch *launch = core->streams[i].running.first;

        for (; launch != NULL; launch = launch->next) {
            if (launch->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_RECV && launch->by_pair &&
                launch->comm == pair->key.epoch && launch->peer == pair->key.peer &&
                (first_lost == 0 || launch->seq < first_lost)) {
                last = pl_max_u64(last, launch->seq);
            }
        }
    }
    return last;
}

static void report_decided(struct worker_core *core, struct worker_comm *pair)
{
    struct worker_pair_key key = pair->key;

    key.epoch           = pair->staged;
    pair->decided_after = 0;
    report(core, &key, PLASMON__V1__PAIR_EVENT__PAIR_DECIDED, 0, NULL);
}

void worker_pair_received(struct worker_core *core, const struct worker_launch *launch)
{
    const struct worker_pair_key key = key_of(launch);
    struct worker_comm *pair;

    if (launch->kind != PLASMON__V1__LAUNCH_KIND__LAUNCH_RECV || launch->comm == 0) {
        return;
    }
    pair = pair_of(core, &key);
    if (pair != NULL && pair->decided_after != 0 && launch->seq >= pair->decided_after) {
        report_decided(core, pair);
    }
}

/*
 * What ends from now on is not believed. Aborted is at once only who writes to nobody: a receiver,
 * and who has no operation yet. The operations of others tell, when they are aborted, those who
 * read that all is there.
 */
static void mark(struct worker_core *core, struct worker_comm *pair, uint64_t epoch)
{
    bool alone = (pair->key.receives && pair->key.team == 0) ||
                 pair->state == WORKER_PAIR_OPENING || pl_bug("worker.abort_early");

    if (pair->key.epoch <= epoch && pair->state == WORKER_PAIR_CLOSING) {
        core->config.ops->pair_break(core->config.user, &pair->key); /* it ends already */
        return;
    }
    if (pair->key.epoch > epoch ||
        (pair->state != WORKER_PAIR_OPENING && pair->state != WORKER_PAIR_OPEN)) {
        return;
    }
    pair->state = WORKER_PAIR_ENDING;
    pair->held  = !alone;
    core->config.ops->pair_break(core->config.user, &pair->key);
    if (alone) {
        core->config.ops->pair_abort(core->config.user, &pair->key);
    }
}

/*
 * A receiver says that it has marked only after it said what it did get by the pair: what the
 * sender does not know to be over it sends again, into slots that may be somebody else's by then.
 */
static void take_broken(struct worker_core *core, struct worker_comm *pair, uint64_t epoch)
{
    struct worker_pair_key key = pair->key;

    pair->broken = pl_max_u64(pair->broken, epoch);
    mark(core, pair, epoch);
    if (key.team != 0) {
        key.epoch = epoch;
        report(core, &key, PLASMON__V1__PAIR_EVENT__PAIR_DECIDED, 0, NULL);
    } else if (key.receives) {
        pair->decided_after = last_received(core, pair, stage(core, pair, epoch));
        if (pair->decided_after == 0) {
            report_decided(core, pair);
        }
    }
}

/* Whoever reads what we write believes nothing of it any more. To a sender, or to all of a team. */
static void take_staged(struct worker_core *core, struct worker_comm *pair, uint64_t epoch)
{
    pair->broken = pl_max_u64(pair->broken, epoch);
    mark(core, pair, epoch);
    if (pair->held && pair->key.epoch <= epoch) {
        pair->held = false;
        core->config.ops->pair_abort(core->config.user, &pair->key);
    }
    (void)stage(core, pair, epoch);
}

plasmon_status_t worker_pairs_take(struct worker_core *core,
                                   const Plasmon__V1__WorkerCommand *command,
                                   struct pl_err *err)
{
    const struct worker_ops *ops = core->config.ops;

    /* First: what is over is not staged. */
    for (size_t i = 0; ops->pair_open != NULL && i < command->n_sent; i++) {
        ops->pair_sent(core->config.user, command->sent[i]);
    }
    for (size_t i = 0; ops->pair_open != NULL && i < command->n_pairs; i++) {
        const Plasmon__V1__PairOrder *order = command->pairs[i];
        const struct worker_pair_key key    = {
               .peer = order->peer, .receives = order->receives, .team = order->team};
        struct worker_comm *pair = pair_of(core, &key);

        if (pair == NULL) {
            return pl_err_set(err, PLASMON_ENOMEM, "no memory for a pair");
        }
        if (order->state == PLASMON__V1__PAIR_STATE__PAIR_ID) {
            pair->id_epoch = order->epoch;
            memcpy(pair->id, order->id.data, sizeof(pair->id));
        } else if (order->state == PLASMON__V1__PAIR_STATE__PAIR_BROKEN) {
            take_broken(core, pair, order->epoch);
        } else {
            take_staged(core, pair, order->epoch);
        }
    }
    return PLASMON_OK;
}

/* -------------------------------------------------------------------- what became of it */

/* Its OPEN is at the front: nothing went since. */
static void open_fail(struct worker_core *core, const struct worker_comm *pair,
                      plasmon_status_t status, const char *text)
{
    struct worker_launch *front = core->queue.first;
    struct worker_pair_key key;

    if (front == NULL || front->kind != PLASMON__V1__LAUNCH_KIND__LAUNCH_OPEN) {
        return;
    }
    key = key_of(front);
    if (name_of(&key) != name_of(&pair->key) || key.epoch != pair->key.epoch) {
        return;
    }
    if (key.team != 0) {
        worker_launch_fail(front, status, "no team %u: %s", key.team, text);
    } else {
        worker_launch_fail(front, status, "no pair %s device %u: %s",
                           key.receives ? "from" : "to", key.peer, text);
    }
}

void worker_core_pair_opened(struct worker_core *core, const struct worker_pair_key *key,
                             plasmon_status_t status, const char *text, uint64_t bytes)
{
    struct worker_comm *pair = pair_of(core, key);

    if (pair == NULL || pair->key.epoch != key->epoch) {
        return;
    }
    if (status != PLASMON_OK) {
        /* that its OPEN failed makes the head say that it is broken */
        pair->state  = WORKER_PAIR_NONE;
        pair->broken = pl_max_u64(pair->broken, key->epoch);
        open_fail(core, pair, status, text);
    } else if (pair->state == WORKER_PAIR_OPENING) {
        pair->state = WORKER_PAIR_OPEN;
        pair->bytes = bytes;
        report(core, key, PLASMON__V1__PAIR_EVENT__PAIR_OPENED, bytes, NULL);
    }
}

void worker_core_pair_closed(struct worker_core *core, const struct worker_pair_key *key)
{
    struct worker_comm *pair = pair_of(core, key);

    if (pair != NULL && pair->key.epoch == key->epoch) {
        pair->state = WORKER_PAIR_CLOSED;
    }
}

void worker_core_pair_ended(struct worker_core *core, const struct worker_pair_key *key)
{
    struct worker_comm *pair = pair_of(core, key);

    if (pair != NULL && pair->key.epoch == key->epoch &&
        pair->state == WORKER_PAIR_ENDING) {
        pair->state    = WORKER_PAIR_ENDED;
        pair->ended_ns = worker_now(core);
        core->comms_to_free++;
    }
}

void worker_core_pair_quiet(struct worker_core *core, const struct worker_pair_key *key)
{
    struct worker_comm *pair = pair_of(core, key);

    if (pair == NULL || pair->key.epoch != key->epoch) {
        return;
    }
    if (pair->state == WORKER_PAIR_FREEING) {
        pair->state = WORKER_PAIR_NONE;
        core->comms_freeing--;
    } else if (pair->state == WORKER_PAIR_ENDING) {
        pair->state = WORKER_PAIR_NONE;
        open_fail(core, pair, PLASMON_EWORKER, "it was broken before it was open");
    }
}

/* ---------------------------------------------------------------------------- the front */

static bool wait_for_pair(struct worker_core *core)
{
    core->waits_pair = true;
    return false;
}

/* Somebody is in a call that needs the device to be as it is. */
static bool opens_or_closes(const struct worker_core *core)
{
    size_t i = 0;
    uint64_t name;
    void *at;

    while (pl_map_next(&core->comms, &i, &name, &at)) {
        const struct worker_comm *pair = at;

        if (pair->state == WORKER_PAIR_OPENING || pair->state == WORKER_PAIR_CLOSING) {
            return true;
        }
    }
    return false;
}

bool worker_pairs_still(const struct worker_core *core)
{
    size_t i = 0;
    uint64_t name;
    void *at;

    while (pl_map_next(&core->comms, &i, &name, &at)) {
        const struct worker_comm *pair = at;

        if (pair->state == WORKER_PAIR_OPENING || pair->state == WORKER_PAIR_ENDING ||
            pair->state == WORKER_PAIR_FREEING || pair->state == WORKER_PAIR_CLOSING) {
            return false;
        }
    }
    return true;
}

static void free_ended(struct worker_core *core)
{
    size_t i = 0;
    uint64_t name;
    void *at;

    while (pl_map_next(&core->comms, &i, &name, &at)) {
        struct worker_comm *pair = at;

        if (pair->state == WORKER_PAIR_ENDED) {
            pair->state = WORKER_PAIR_FREEING;
            core->comms_to_free--;
            core->comms_freeing++;
            core->config.ops->pair_free(core->config.user, &pair->key);
        }
    }
}

bool worker_pairs_freed(struct worker_core *core)
{
    const struct worker_launch *front = core->queue.first;

    if (core->comms_freeing > 0) {
        return wait_for_pair(core);
    }
    if (core->comms_to_free == 0 || (front != NULL && !worker_launch_is_pairs(front)) ||
        opens_or_closes(core)) { /* that is at the front, and keeps it */
        return true;
    }
    if (!worker_front_quiet(core)) {
        return false;
    }
    free_ended(core);
    return wait_for_pair(core);
}

Plasmon__V1__CommsLeft *worker_pairs_left(const struct worker_core *core,
                                          struct wire_arena *arena, uint64_t now_ns)
{
    uint32_t count               = core->comms_to_free + core->comms_freeing;
    Plasmon__V1__CommsLeft *left = NULL;
    uint64_t name, oldest_ns = now_ns;
    size_t i = 0;
    void *at;

    if (count > 0) {
        left = wire_arena_alloc(arena, sizeof(*left));
    }
    if (left == NULL) {
        return NULL;
    }
    plasmon__v1__comms_left__init(left);
    left->communicators = count;
    left->freeing       = core->comms_freeing;
    while (pl_map_next(&core->comms, &i, &name, &at)) {
        const struct worker_comm *pair = at;

        if (pair->state == WORKER_PAIR_ENDED || pair->state == WORKER_PAIR_FREEING) {
            left->bytes += pair->bytes;
            oldest_ns =
                pair->ended_ns != 0 ? pl_min_u64(oldest_ns, pair->ended_ns) : oldest_ns;
        }
    }
    left->oldest_ms = (now_ns - oldest_ns) / 1000000;
    return left;
}

static bool open_begin(struct worker_core *core, struct worker_comm *pair,
                       struct worker_launch *launch)
{
    const struct worker_pair_shape shape = {
        .rank   = (uint32_t)launch->length,
        .ranks  = launch->ranks,
        .remote = launch->team == 0 && worker_host_device_of(core, launch->peer) >=
                                           core->config.host_device_count,
        .host_device = worker_host_device_of(core, launch->peer)};
    plasmon_status_t status;

    if (!worker_front_quiet(core)) {
        return false;
    }
    if (pair->state == WORKER_PAIR_ENDING || pair->state == WORKER_PAIR_ENDED ||
        pair->state == WORKER_PAIR_FREEING ||
        (pair->key.receives && pair->id_epoch != launch->comm)) {
        return wait_for_pair(core);
    }
    pair->key.epoch = launch->comm;
    pair->state     = WORKER_PAIR_OPENING;
    status          = core->config.ops->pair_open(core->config.user, &pair->key, &shape,
                                         pair->key.receives ? pair->id : NULL);
    if (status == PLASMON_OK) {
        return wait_for_pair(core);
    }
    worker_core_pair_opened(core, &pair->key, status, pl_status_text(status), 0);
    return true;
}

static bool open_front(struct worker_core *core, struct worker_comm *pair,
                       struct worker_launch *launch)
{
    bool mine = pair->key.epoch == launch->comm;

    if (launch->comm <= pair->broken && !(mine && pair->state == WORKER_PAIR_ENDING)) {
        worker_launch_fail(launch, PLASMON_EWORKER,
                           "the communicator with %s %u was broken before it was open",
                           launch->team != 0 ? "team" : "device",
                           launch->team != 0 ? launch->team : launch->peer);
        return true;
    }
    if (launch->failure != PLASMON_OK || (mine && pair->state == WORKER_PAIR_OPEN)) {
        return true;
    }
    if (mine && pair->state != WORKER_PAIR_NONE) {
        return wait_for_pair(core);
    }
    return open_begin(core, pair, launch);
}

static bool close_front(struct worker_core *core, struct worker_comm *pair,
                        struct worker_launch *launch)
{
    if (pair->key.epoch != launch->comm || pair->state == WORKER_PAIR_NONE ||
        pair->state == WORKER_PAIR_CLOSED) {
        return true;
    }
    if (pair->state == WORKER_PAIR_OPEN) {
        if (!worker_front_quiet(core)) {
            return false;
        }
        pair->state = WORKER_PAIR_CLOSING;
        core->config.ops->pair_close(core->config.user, &pair->key);
    }
    return wait_for_pair(core);
}

/*
 * Launch `seq` of this device is a part of the same team, and on its lane: what it makes is there
 * when the next operation on the lane begins, and nobody need have seen that before
 * (docs/collectives.md says why it can be believed). One by another communicator might have to be
 * done again when this one has read what it left.
 */
bool worker_joint_ahead(const struct worker_core *core, const struct worker_launch *launch,
                        uint64_t seq)
{
    for (uint32_t i = 0; i < core->stream_count; i++) {
        const struct worker_launch *at = core->streams[i].running.first;

        while (at != NULL && at->seq < seq) {
            at = at->next;
        }
        if (at != NULL && at->seq == seq) {
            return worker_launch_is_joint(at) && at->by_pair && at->failure == PLASMON_OK &&
                   at->team == launch->team && at->comm == launch->comm;
        }
    }
    return false;
}

static bool half_front(struct worker_core *core, struct worker_comm *pair,
                       struct worker_launch *launch)
{
    uint32_t lane = lane_of(&pair->key);
    bool done;

    if (launch->comm <= pair->staged) { /* 0, too */
        return core->config.ops->pair_settled(core->config.user, lane) ||
               wait_for_pair(core);
    }
    if (launch->comm <= pair->broken || launch->comm <= pair->doubted ||
        launch->comm != pair->key.epoch || pair->state != WORKER_PAIR_OPEN) {
        return wait_for_pair(core); /* the head says what is to become of it */
    }
    /* A team takes our own member; the others see to theirs before their parts are on their lanes. */
    done = worker_launch_is_joint(launch) ? worker_own_inputs_done(core, launch)
                                          : worker_inputs_done(core, launch);
    if (launch->failure == PLASMON_OK &&
        (!done || !core->config.ops->pair_room(core->config.user, lane) ||
         !core->config.ops->pair_settled(core->config.user, lane))) {
        return wait_for_pair(core);
    }
    return true;
}

bool worker_pair_front(struct worker_core *core, struct worker_launch *launch)
{
    const struct worker_pair_key key = key_of(launch);
    struct worker_comm *pair;

    if (core->config.ops->pair_open == NULL) {
        if (worker_launch_is_pairs(launch)) {
            worker_launch_fail(launch, PLASMON_ENOTSUP,
                               "this device takes part in no pairs");
        }
        return true; /* a half goes by the host route */
    }
    pair = pair_of(core, &key);
    if (pair == NULL) {
        worker_launch_fail(launch, PLASMON_ENOMEM, "no memory for a pair");
        return true;
    }
    switch (launch->kind) {
    case PLASMON__V1__LAUNCH_KIND__LAUNCH_OPEN:
        return open_front(core, pair, launch);
    case PLASMON__V1__LAUNCH_KIND__LAUNCH_CLOSE:
        return close_front(core, pair, launch);
    default:
        return half_front(core, pair, launch);
    }
}

/* ------------------------------------------------------------------------------- moving */

bool worker_pair_usable(struct worker_core *core, const struct worker_launch *launch)
{
    const struct worker_pair_key key = key_of(launch);
    const struct worker_comm *pair;

    if (launch->comm == 0 || core->config.ops->pair_open == NULL) {
        return false;
    }
    pair = pair_of(core, &key);
    return pair != NULL && pair->state == WORKER_PAIR_OPEN &&
           pair->key.epoch == launch->comm && pair->broken < launch->comm;
}

/*
 * Its launch's stream waits for one word and then has others to write, so its own goes in with
 * them. A span ends before the word, and a launch that failed is marked as such before it.
 */
static bool signals_itself(const struct worker_launch *launch)
{
    return launch->span == NULL && launch->failure == PLASMON_OK;
}

static plasmon_status_t moved(struct worker_core *core, struct worker_launch *launch,
                              uint32_t stream, const struct worker_half *half)
{
    plasmon_status_t status = core->config.ops->pair_move(core->config.user, stream, half);

    launch->signals = half->signals && status == PLASMON_OK;
    return status;
}

/*
 * One of ours is not on the lane. Operations meet in their order, so the next one would meet what
 * the other side has there for this one, and end well with other bytes. The head hears that
 * something failed, and breaks it.
 */
static void doubt(struct worker_core *core, const struct worker_launch *launch)
{
    const struct worker_pair_key key = key_of(launch);
    struct worker_comm *pair         = pair_of(core, &key);

    if (pair != NULL) { /* it is there: it was usable */
        pair->doubted = pl_max_u64(pair->doubted, launch->comm);
    }
}

plasmon_status_t worker_pair_enqueue(struct worker_core *core, struct worker_launch *launch,
                                     uint32_t stream, uint64_t offset)
{
    const struct worker_half half = {
        .key         = key_of(launch),
        .host_device = worker_host_device_of(core, launch->peer),
        .seq         = launch->seq,
        .first_chunk = launch->offset,
        .offset      = offset,
        .bytes       = worker_operand_bytes_shown(&launch->operands[0]),
        .signals     = signals_itself(launch),
    };

    launch->by_pair = true;
    if (offset == WORKER_NOWHERE) {
        doubt(core, launch);
    }
    return moved(core, launch, stream, &half);
}

/*
 * What a team is to do follows from what each would do alone: `combine` of all of the members, or
 * of as large a part of each, or `concatenate`. false: nothing that a team does.
 */
static bool joint_kind(const struct worker_launch *launch,
                       const struct worker_piece *member, uint32_t *out_kind)
{
    const struct worker_operand *to = &launch->operands[0];
    uint64_t element                = pl_dtype_bytes(to->arg.dtype);
    uint64_t gives = (uint64_t)pl_box_elements(&member->src_frame) * element;

    if (strcmp(launch->function->name, "concatenate") == 0) {
        *out_kind = DEVICE_ALL_GATHER;
        return gives * launch->piece_count == to->bytes;
    }
    *out_kind = gives == to->bytes ? DEVICE_ALL_REDUCE : DEVICE_REDUCE_SCATTER;
    return strcmp(launch->function->name, "combine") == 0 &&
           (gives == to->bytes || gives == to->bytes * launch->piece_count);
}

/*
 * From each of the others: 2 (n - 1) / n of a member come to a device that gets all of it, else
 * what it gets less its own.
 */
static uint64_t comes_by(const struct worker_launch *launch, uint32_t kind)
{
    uint64_t bytes = launch->operands[0].bytes;

    return kind == DEVICE_ALL_REDUCE   ? 2 * bytes / launch->piece_count
           : kind == DEVICE_ALL_GATHER ? bytes / launch->piece_count
                                       : bytes;
}

/*
 * What one can fail for is looked at before its operation goes on the lane: the others are not to
 * wait for it.
 */
plasmon_status_t worker_joint_enqueue(struct worker_core *core,
                                      struct worker_launch *launch, uint32_t stream,
                                      struct pl_err *err)
{
    const struct worker_operand *to   = &launch->operands[0];
    const struct worker_piece *member = worker_joint_member(core, launch);
    struct worker_half half           = {
                  .signals     = signals_itself(launch),
                  .key         = key_of(launch),
                  .host_device = UINT32_MAX,
                  .seq         = launch->seq,
                  .first_chunk = launch->order,
                  .offset      = to->offset,
                  .bytes       = to->bytes,
                  .dtype       = to->arg.dtype,
                  .op          = launch->scalar_count > 0 ? (uint32_t)launch->scalars[0].bits : 0,
    };
    struct worker_source from;
    plasmon_status_t status;

    if (member == NULL || !joint_kind(launch, member, &half.collective)) {
        return pl_err_set(err, PLASMON_EINTERNAL,
                          "the member of this device is not what a team takes");
    }
    status = worker_piece_source(core, member, half.dtype, &from, err);
    if (status != PLASMON_OK) {
        return status;
    }
    half.member_offset = from.offset;
    launch->by_pair    = true;
    worker_stream_before_hazard(core, stream, launch->seq);
    status = moved(core, launch, stream, &half);
    for (uint32_t i = 0; status == PLASMON_OK && i < launch->piece_count; i++) {
        if (&launch->pieces[i] != member) {
            worker_traffic_count(core, launch, wire_buffer_device(launch->pieces[i].src),
                                 WORKER_ROUTE_NCCL, comes_by(launch, half.collective));
        }
    }
    return status;
}

void worker_joint_failed(struct worker_core *core, const struct worker_launch *launch)
{
    const struct worker_pair_key key = key_of(launch);

    if (worker_launch_is_joint(launch) && !launch->by_pair &&
        worker_pair_usable(core, launch)) {
        doubt(core, launch);
        report(core, &key, PLASMON__V1__PAIR_EVENT__PAIR_TROUBLE, 0,
               "a part of a collective failed");
    }
}

void worker_pair_describe(const struct worker_core *core,
                          const struct worker_launch *launch, struct pl_str *out)
{
    static const char *const states[] = {"none",  "opening", "open",    "ending",
                                         "ended", "freeing", "closing", "closed"};
    const struct worker_pair_key key  = key_of(launch);
    const char *comma                 = out->length == 0 ? "" : ", ";
    const struct worker_comm *pair;

    if (!worker_launch_is_half(launch) && !worker_launch_is_pairs(launch) &&
        !worker_launch_is_joint(launch)) {
        return;
    }
    pair = pl_map_get(&core->comms, name_of(&key));
    if (key.team != 0) {
        pl_str_append(out, "%swith team %u by ", comma, key.team);
    } else {
        pl_str_append(out, "%s%s device %u by ", comma, key.receives ? "from" : "to",
                      key.peer);
    }
    if (launch->comm == 0 || pair == NULL) {
        pl_str_append(out, "the host route");
        return;
    }
    pl_str_append(out, "pair %llu%s (pair %llu is %s, broken to %llu, staged to %llu",
                  (unsigned long long)launch->comm,
                  launch->by_pair ? ", enqueued by it" : "",
                  (unsigned long long)pair->key.epoch, states[pair->state],
                  (unsigned long long)pair->broken, (unsigned long long)pair->staged);
    if (pair->decided_after != 0) {
        pl_str_append(out, ", decided after launch %llu",
                      (unsigned long long)pair->decided_after);
    }
    pl_str_append(out, "%s)",
                  worker_inputs_done(core, launch) ? "" : ", input not complete");
}
