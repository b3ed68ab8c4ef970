/*
 * When there are pairs, and which transfers go by them.
 *
 *   CLOSED -> opening -> OPEN -> closing -> CLOSED
 *        \________|________|________|____> breaking -> CLOSED
 *
 * OPENED AND CLOSED IN ORDER. Both halves of an OPEN share an order number, like those of a
 * transfer; a transfer that gets its number behind it goes by the pair, one behind a CLOSE does
 * not. A worker makes and ends a communicator only when nothing is on its device, so what a pair
 * costs is a pause of both devices: it is opened when enough bytes went another way (more each time
 * that it broke), and closed when another one needs its place or its memory.
 *
 * BROKEN. Somebody reports trouble, both sides report that the same transfer is stuck (one side
 * alone only waits for the other), or a worker was restarted. Both are told. The receiver answers
 * when it is decided what it got by the pair, and all of that was reported. Only then may the
 * sender send the rest by the host route, whose chunk numbers each transfer has from the start: so
 * nothing comes twice by two ways, and a transfer keeps its number whatever becomes of its pair.
 *
 * GONE. A device's number is not given out again, so when one of the two is gone, and nothing that
 * the other has under way names the pair, nobody asks for it any more. It is forgotten when another
 * one is made.
 *
 * SENT. A sender's launch is over when the receiver's is, and hears of that from here: NCCL says
 * that bytes are sent while they lie in buffers that die with the receiver.
 */
#include "head/checkpoint.h"
#include "head/core_int.h"

#include <string.h>

#define FIELD_PAIRS 14
#define FIELD_SENT  15

enum { FAILURES_MAX = 6 }; /* the pause before the next attempt doubles so often */
/* of one that was never open; over NVLink (limits.md) */
#define PAIR_BYTES_GUESS (UINT64_C(300) << 20)
/* of the guess: what others took meanwhile is in a worker's figure, too */
#define BYTES_TIMES_MAX 4
/* that went another way before one is opened */
#define PAIR_WANTED_BYTES (UINT64_C(64) << 20)

static uint64_t key_of(const struct head_device *src, const struct head_device *dst)
{
    return ((uint64_t)src->index << 32 | dst->index) + 1;
}

static struct head_pair *pair_find(struct head_core *core, const struct head_device *src,
                                   const struct head_device *dst)
{
    return pl_map_get(&core->pairs, key_of(src, dst));
}

static bool forgettable(const struct head_pair *pair)
{
    const struct head_device *other = pair->src->gone ? pair->dst : pair->src;

    return pair->state == HEAD_PAIR_CLOSED &&
           (other->gone || other->seq_oldest > pair->last_seq);
}

static void pairs_forget(struct head_core *core)
{
    struct pl_vec keys = PL_VEC_INIT(uint64_t);
    uint64_t key;
    void *item;

    core->pairs_gone = false;
    for (size_t i = 0; pl_map_next(&core->pairs, &i, &key, &item);) {
        const struct head_pair *pair = item;
        uint64_t *place;

        if (!pair->src->gone && !pair->dst->gone) {
            continue;
        }
        if (!forgettable(pair)) {
            core->pairs_gone = true;
            continue;
        }
        place = pl_vec_push(&keys);
        PL_CHECK(place != NULL);
        *place = key;
    }
    for (size_t i = 0; i < keys.count; i++) {
        struct head_pair *pair =
            pl_map_remove(&core->pairs, *(uint64_t *)pl_vec_at(&keys, i));

        pair->src->teams_opened += pair->epoch;
        pair->dst->teams_opened += pair->epoch;
        pl_free(pair);
    }
    pl_vec_finish(&keys);
}

static struct head_pair *pair_of(struct head_core *core, struct head_device *src,
                                 struct head_device *dst)
{
    struct head_pair *pair = pair_find(core, src, dst);

    if (pair == NULL && core->pairs_gone) {
        pairs_forget(core);
    }
    if (pair == NULL) {
        pair      = head_alloc(sizeof(*pair));
        pair->src = src;
        pair->dst = dst;
        PL_CHECK(pl_map_set(&core->pairs, key_of(src, dst), pair) == PLASMON_OK);
    }
    return pair;
}

void head_pairs_destroy(struct head_core *core)
{
    size_t i = 0;
    uint64_t key;
    void *pair;

    while (pl_map_next(&core->pairs, &i, &key, &pair)) {
        pl_free(pair);
    }
    pl_map_finish(&core->pairs);
    pl_map_init(&core->pairs); /* what ends after them finds none */
}

static bool alive(const struct head_pair *pair)
{
    return pair->state != HEAD_PAIR_CLOSED && pair->state != HEAD_PAIR_BREAKING;
}

uint32_t head_pair_count(const struct head_core *core, const struct head_device *device)
{
    uint32_t count = 0;
    size_t i       = 0;
    uint64_t key;
    void *item;

    while (pl_map_next(&core->pairs, &i, &key, &item)) {
        const struct head_pair *pair = item;

        count += alive(pair) && (pair->src == device || pair->dst == device);
    }
    return count;
}

uint64_t head_pair_opened(const struct head_core *core, const struct head_device *device)
{
    uint64_t opened = 0, key;
    size_t i        = 0;
    void *item;

    while (pl_map_next(&core->pairs, &i, &key, &item)) {
        const struct head_pair *pair = item;

        opened += pair->src == device || pair->dst == device ? pair->epoch : 0;
    }
    return opened;
}

static void tell(const struct head_pair *pair, bool receives, Plasmon__V1__PairState state,
                 uint64_t epoch, const ProtobufCBinaryData *id)
{
    struct head_device *to = receives ? pair->dst : pair->src;
    Plasmon__V1__PairOrder order;

    if (to->gone || !to->joined) {
        return;
    }
    plasmon__v1__pair_order__init(&order);
    order.peer     = (receives ? pair->src : pair->dst)->index;
    order.receives = receives;
    order.epoch    = epoch;
    order.state    = state;
    if (id != NULL) {
        order.id = *id;
    }
    head_bytes_message(&to->out, FIELD_PAIRS, &order.base);
}

/* ----------------------------------------------------------------------- opened, closed */

static void start_halves(struct head_core *core, struct head_pair *pair, uint32_t kind)
{
    struct head_launch launch = {
        .kind        = kind,
        .device      = pair->src,
        .order       = ++core->order_last,
        .peer        = pair->dst->index,
        .pair        = pair->epoch,
        .retries_max = 250,
    };

    (void)head_task_start(core, &launch); /* the core owns it */
    launch.device = pair->dst;
    launch.peer   = pair->src->index;
    launch.length = 1;
    (void)head_task_start(core, &launch);
}

static void pair_open(struct head_core *core, struct head_pair *pair)
{
    pair->epoch++;
    pair->state  = HEAD_PAIR_OPENING;
    pair->ends   = 0;
    pair->wanted = 0;
    memset(pair->stalled, 0, sizeof(pair->stalled));
    for (uint32_t i = 0; i < 2; i++) {
        pair->bytes[i] = pl_max_u64(pair->bytes[i], 1);
    }
    start_halves(core, pair, PLASMON__V1__LAUNCH_KIND__LAUNCH_OPEN);
}

void head_pair_close(struct head_core *core, struct head_pair *pair)
{
    pair->state = HEAD_PAIR_CLOSING;
    pair->ends  = 0;
    start_halves(core, pair, PLASMON__V1__LAUNCH_KIND__LAUNCH_CLOSE);
}

static uint64_t bytes_at(const struct head_pair *pair, bool at_dst)
{
    return pair->bytes[at_dst] > 1 ? pair->bytes[at_dst] : PAIR_BYTES_GUESS;
}

uint64_t head_pair_bytes(const struct head_pair *pair, const struct head_device *device)
{
    /* One that closes is away before the next is opened. */
    return (pair->src != device && pair->dst != device) || !alive(pair) ||
                   pair->state == HEAD_PAIR_CLOSING
               ? 0
               : bytes_at(pair, pair->dst == device);
}

/* On both, or on none. */
static bool room_make(struct head_core *core, const struct head_pair *pair)
{
    const struct head_comm_place places[] = {{pair->src, bytes_at(pair, false)},
                                             {pair->dst, bytes_at(pair, true)}};

    return head_comm_room(core, HEAD_COMM_PAIR, places, PL_COUNT(places));
}

static void ends_take(struct head_core *core, const struct head_task *task)
{
    bool at_dst               = task->length == 1;
    struct head_device *other = head_device_at(core, task->peer);
    struct head_pair *pair    = at_dst ? pair_find(core, other, task->device)
                                       : pair_find(core, task->device, other);

    if (pair == NULL || pair->epoch != task->pair || !alive(pair)) {
        return;
    }
    pair->ends |= 1u << at_dst;
    if (pair->ends == 3 && pair->state == HEAD_PAIR_OPENING) {
        pair->state    = HEAD_PAIR_OPEN;
        pair->failures = 0;
        pl_info("head", "pair from device %u to device %u is open", pair->src->index,
                pair->dst->index);
    } else if (pair->ends == 3 && pair->state == HEAD_PAIR_CLOSING) {
        pair->state = HEAD_PAIR_CLOSED;
    }
}

/* ------------------------------------------------------------------------------- broken */

static void pair_decided(struct head_pair *pair)
{
    pair->state = HEAD_PAIR_CLOSED;
    tell(pair, false, PLASMON__V1__PAIR_STATE__PAIR_STAGED, pair->epoch, NULL);
}

/* failed: the network or NCCL did, so that it would again. */
static void pair_break(struct head_pair *pair, bool failed, const char *why)
{
    if (!alive(pair)) {
        return;
    }
    if (failed) {
        pl_warn("head", "pair from device %u to device %u is broken: %s", pair->src->index,
                pair->dst->index, why);
    } else {
        pl_info("head", "pair from device %u to device %u ends: %s", pair->src->index,
                pair->dst->index, why);
    }
    pair->state = HEAD_PAIR_BREAKING;
    if (failed) {
        pair->failures = (uint32_t)pl_min_u64(pair->failures + 1ull, FAILURES_MAX);
    }
    tell(pair, false, PLASMON__V1__PAIR_STATE__PAIR_BROKEN, pair->epoch, NULL);
    tell(pair, true, PLASMON__V1__PAIR_STATE__PAIR_BROKEN, pair->epoch, NULL);
    if (pair->dst->gone) {
        pair_decided(pair);
    }
}

void head_pairs_restarted(struct head_core *core, struct head_device *device)
{
    size_t i = 0;
    uint64_t key;
    void *item;

    while (pl_map_next(&core->pairs, &i, &key, &item)) {
        struct head_pair *pair = item;

        if ((pair->src != device && pair->dst != device) || pair->epoch == 0) {
            continue;
        }
        if (pair->src == device && pair->epoch > 1) {
            /*
             * Earlier ones were over when this one was opened. What is left of them must not wait
             * for its receiver.
             */
            tell(pair, false, PLASMON__V1__PAIR_STATE__PAIR_STAGED, pair->epoch - 1, NULL);
        }
        if (alive(pair)) {
            pair_break(pair, false, "a worker was restarted");
        } else {
            tell(pair, pair->dst == device, PLASMON__V1__PAIR_STATE__PAIR_BROKEN,
                 pair->epoch, NULL);
        }
        if (pair->state == HEAD_PAIR_BREAKING && pair->dst == device) {
            /* the one that used it was fenced, and its last word was heard */
            pair_decided(pair);
        } else if (pair->state == HEAD_PAIR_CLOSED && pair->src == device) {
            tell(pair, false, PLASMON__V1__PAIR_STATE__PAIR_STAGED, pair->epoch, NULL);
        }
    }
}

void head_pairs_gone(struct head_core *core, struct head_device *device)
{
    size_t i = 0;
    uint64_t key;
    void *item;

    while (pl_map_next(&core->pairs, &i, &key, &item)) {
        struct head_pair *pair = item;

        if (pair->src == device || pair->dst == device) {
            pair_break(pair, false, "a device is gone");
            pair->last_seq   = (pair->src == device ? pair->dst : pair->src)->seq_last;
            core->pairs_gone = true;
        }
        if (pair->state == HEAD_PAIR_BREAKING && pair->dst == device) {
            pair_decided(pair);
        }
    }
}

/* ------------------------------------------------------------------------------ reports */

/* One side alone may be waiting for the other, which has not come to that transfer yet. */
static void stalled(struct head_pair *pair, bool at_dst, uint64_t chunk)
{
    pair->stalled[at_dst] = chunk + 1;
    if (pair->stalled[!at_dst] == chunk + 1) {
        pair_break(pair, true, "a transfer is stuck on both sides");
    }
}

void head_pair_report(struct head_core *core, struct head_device *device,
                      const Plasmon__V1__PairReport *report)
{
    struct head_device *other = head_device_at(core, report->peer);
    struct head_pair *pair;

    if (other == NULL) {
        return;
    }
    pair =
        report->receives ? pair_find(core, other, device) : pair_find(core, device, other);
    if (pair == NULL || pair->epoch != report->epoch) {
        return; /* of one that is over */
    }
    switch (report->event) {
    case PLASMON__V1__PAIR_EVENT__PAIR_MADE:
        if (!report->receives && pair->state == HEAD_PAIR_OPENING) {
            tell(pair, true, PLASMON__V1__PAIR_STATE__PAIR_ID, pair->epoch, &report->id);
        }
        break;
    case PLASMON__V1__PAIR_EVENT__PAIR_OPENED:
        pair->bytes[report->receives] =
            pl_min_u64(pl_max_u64(report->bytes, 1), BYTES_TIMES_MAX * PAIR_BYTES_GUESS);
        break;
    case PLASMON__V1__PAIR_EVENT__PAIR_DECIDED:
        if (report->receives && pair->state == HEAD_PAIR_BREAKING) {
            pair_decided(pair);
        }
        break;
    case PLASMON__V1__PAIR_EVENT__PAIR_STALLED:
        stalled(pair, report->receives, report->chunk);
        break;
    default:
        pair_break(pair, true, report->text);
        break;
    }
}

/* ------------------------------------------------------------------------------- halves */

/* Its SEND waits for it. */
static void tell_sent(struct head_core *core, struct head_task *task)
{
    struct head_device *src = head_device_at(core, task->peer);

    if (!task->told_sent && src != NULL && !src->gone) {
        head_bytes_varint(&src->out, FIELD_SENT << 3);
        head_bytes_varint(&src->out, task->twin_seq);
    }
    task->told_sent = true;
}

void head_pair_task_over(struct head_core *core, struct head_task *task)
{
    bool opens = task->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_OPEN;

    if (task->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_RECV) {
        tell_sent(core, task);
    } else if (opens || task->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_CLOSE) {
        struct head_device *other = head_device_at(core, task->peer);
        struct head_pair *pair    = task->length == 1 ? pair_find(core, other, task->device)
                                                      : pair_find(core, task->device, other);

        if (opens && task->failure != NULL && pair != NULL && pair->epoch == task->pair) {
            pair_break(pair, true, task->failure->text);
        } else {
            ends_take(core, task);
        }
    }
}

/* ------------------------------------------------------------------------------- routes */

bool head_pair_whole(struct head_core *core, const struct head_device *from,
                     const struct head_device *to, uint64_t epoch)
{
    const struct head_pair *pair = pair_find(core, from, to);

    return epoch != 0 && pair != NULL && pair->epoch == epoch &&
           pair->state != HEAD_PAIR_CLOSED;
}

bool head_pair_possible(const struct head_device *from, const struct head_device *to)
{
    return from->kind == to->kind && from->comm_version != 0 &&
           from->comm_version == to->comm_version &&
           ((from->comm_plain && to->comm_plain) || !head_device_apart(from, to));
}

bool head_pair_serves(struct head_core *core, const struct head_device *from,
                      const struct head_device *to)
{
    const struct head_pair *pair = pair_find(core, from, to);

    return pair != NULL &&
           (pair->state == HEAD_PAIR_OPENING || pair->state == HEAD_PAIR_OPEN);
}

uint64_t head_pair_route(struct head_core *core, struct head_device *from,
                         struct head_device *to, uint64_t bytes)
{
    bool forced = core->config.transfer == HEAD_TRANSFER_NCCL;
    struct head_pair *pair;

    if (bytes == 0 || !head_pair_possible(from, to) ||
        (!forced && (core->config.transfer != HEAD_TRANSFER_AUTO || from->kind != 2))) {
        return 0;
    }
    if (!forced && !head_rates_nccl(core, from, to, bytes)) {
        return 0;
    }
    pair = pair_of(core, from, to);
    if (pair->state == HEAD_PAIR_CLOSED) {
        pair->wanted += bytes;
        if ((forced && pair->failures == 0) || pair->wanted > PAIR_WANTED_BYTES
                                                                  << pair->failures) {
            if (!room_make(core, pair)) {
                return 0;
            }
            pair_open(core, pair);
        }
    }
    if (pair->state != HEAD_PAIR_OPENING && pair->state != HEAD_PAIR_OPEN) {
        return 0;
    }
    pair->used = ++core->pair_uses;
    return pair->epoch;
}

/* -------------------------------------------------------------------------- checkpoints */

bool head_pairs_change(const struct head_core *core)
{
    uint64_t key;
    void *item;

    for (size_t i = 0; pl_map_next(&core->pairs, &i, &key, &item);) {
        const struct head_pair *pair = item;

        if (pair->state != HEAD_PAIR_OPEN && pair->state != HEAD_PAIR_CLOSED) {
            return true;
        }
    }
    return false;
}

void head_pairs_save(const struct head_core *core, struct head_bytes *out)
{
    uint64_t key;
    void *item;

    head_bytes_varint(out, core->pairs.count);
    for (size_t i = 0; pl_map_next(&core->pairs, &i, &key, &item);) {
        const struct head_pair *pair = item;
        const uint64_t numbers[]     = {
                pair->src->index, pair->dst->index, pair->state == HEAD_PAIR_OPEN,
                pair->epoch,      pair->ends,       pair->used,
                pair->bytes[0],   pair->bytes[1],   pair->stalled[0],
                pair->stalled[1], pair->wanted,     pair->failures};

        for (size_t n = 0; n < PL_COUNT(numbers); n++) {
            head_bytes_varint(out, numbers[n]);
        }
    }
}

static void pair_load(struct head_core *core, struct head_reader *in)
{
    struct head_device *src =
        head_device_at(core, (uint32_t)head_load_below(in, UINT32_MAX));
    struct head_device *dst =
        head_device_at(core, (uint32_t)head_load_below(in, UINT32_MAX));
    struct head_pair *pair;

    if (in->bad || src == NULL || dst == NULL || src == dst ||
        pair_find(core, src, dst) != NULL) {
        in->bad = true;
        return;
    }
    pair             = pair_of(core, src, dst);
    pair->state      = head_load_flag(in) ? HEAD_PAIR_OPEN : HEAD_PAIR_CLOSED;
    pair->epoch      = head_load_number(in);
    pair->ends       = (uint32_t)head_load_below(in, 3);
    pair->used       = head_load_below(in, core->pair_uses);
    pair->bytes[0]   = head_load_number(in);
    pair->bytes[1]   = head_load_number(in);
    pair->stalled[0] = head_load_number(in);
    pair->stalled[1] = head_load_number(in);
    pair->wanted     = head_load_number(in);
    pair->failures   = (uint32_t)head_load_below(in, UINT32_MAX);
}

void head_pairs_load(struct head_core *core, struct head_reader *in)
{
    size_t count = head_load_count(in);

    for (size_t i = 0; i < count && !in->bad; i++) {
        pair_load(core, in);
    }
    core->pairs_gone = true; /* nothing is under way */
}
