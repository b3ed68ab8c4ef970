/*
 * Two hosts that live and cannot reach each other, with nobody between who could pass bytes on: what was to go from one to the other over the bulk
 * channel fails in the end.
 *
 * The sender's worker knows it: for so long bytes were ready, and no attempt, direct or by relay, had an answer (transfer/bulk_out.c). It goes on trying
 * and reports that each second, as long as nothing gets through. From the first report on the way is marked: whoever may choose takes another source, or another device to run on. Nothing
 * is refused for a mark; what has no other way begins, and goes through if the network is well again. The bound is ours: when it is over, each SEND that
 * the last attempt was made for fails, and with it its RECV and who reads from that. (Where calls are on record they run again, by the mark elsewhere.)
 *
 * NOBODY WAITS ON. Both workers, with whom we can talk, are told to let go of these chunks (transfer_bulk_give_up): the sender's device finds its slots
 * taken, the receiver's its chunks there, without bytes, and both launches end. A worker that is replaced is told again before its launches come again,
 * so the orders are lost with nobody. The launches fail before either is told: whatever lies in the receiver's memory then, nobody reads it.
 *
 * NOTHING FAILS FOR LESS. One answer in all that time, to whatever chunk, or a word that the receiver's device takes its time, begins it anew; so does a new
 * address, and a sender that is replaced. Nor does anything fail for a receiver that the head misses, too: that one is not there. What was enqueued after the last attempt began waits for the next one.
 *
 * Seeded bugs: head.give_up_once (who is replaced is not told again), head.give_up_all (an attempt counts for what came after it).
 */
#include "base/fault.h"
#include "head/move_int.h"

#include <string.h>

#define FIELD_BULK_GIVE_UP 22

static bool unfinished_half(const struct head_task *task, uint32_t kind)
{
    return task != NULL && task->kind == kind && task->team == 0 && !task->finished;
}

static uint64_t chunks_of(const struct head_task *task)
{
    const struct head_use *use = &task->uses[0];

    return head_move_chunks(head_move_box_bytes(&use->box, use->buffer->dtype));
}

static void tell(struct head_device *device, const struct head_task *half)
{
    Plasmon__V1__BulkGiveUp order;

    if (device->gone || !device->joined) {
        return;
    }
    plasmon__v1__bulk_give_up__init(&order);
    order.device   = half->peer;
    order.receives = half->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_RECV;
    order.first    = half->chunk;
    order.count    = chunks_of(half);
    head_bytes_message(&device->out, FIELD_BULK_GIVE_UP, &order.base);
}

void head_reach_tell_again(struct head_device *device)
{
    for (uint64_t seq = device->seq_oldest;
         seq <= device->seq_last && !pl_bug("head.give_up_once"); seq++) {
        const struct head_task *task = head_device_task(device, seq);

        if (task != NULL && task->given_up) {
            tell(device, task);
        }
    }
}

/* ---------------------------------------------------------------------------------------- marks */

static void gets_through(struct head_way *way)
{
    pl_free(way->unreached);
    way->unreached = NULL;
}

void head_reach_forget(struct head_core *core, const struct head_device *from)
{
    size_t i = 0;
    uint64_t key;
    void *value;

    while (pl_map_next(&core->ways, &i, &key, &value)) {
        struct head_way *way = value;

        if (way->from == from->index) {
            gets_through(way);
        }
    }
}

bool head_reach_apart(const struct head_core *core, const struct head_device *from,
                      const struct head_device *to)
{
    const struct head_way *way = head_rates_way(core, from->index, to->index);

    return way != NULL && way->unreached != NULL;
}

/* ---------------------------------------------------------------------------------------- failing */

/* Over the bulk channel, and a part of what the attempt was made for. */
static bool attempted(struct head_core *core, const struct head_task *send,
                      const struct head_device *to, uint64_t last)
{
    return unfinished_half(send, PLASMON__V1__LAUNCH_KIND__LAUNCH_SEND) && !send->ended &&
           !send->given_up && send->peer == to->index &&
           send->seq <= send->device->seq_sent &&
           (send->chunk <= last || pl_bug("head.give_up_all")) &&
           !head_pair_whole(core, send->device, to, send->pair);
}

/* The other half, if it is not over. */
static struct head_task *receive_of(const struct head_task *send)
{
    for (size_t i = 0; i < send->dependents.count; i++) {
        struct head_task *task = *(struct head_task **)pl_vec_at(&send->dependents, i);

        if (unfinished_half(task, PLASMON__V1__LAUNCH_KIND__LAUNCH_RECV) &&
            task->device->index == send->peer && task->chunk == send->chunk) {
            return task;
        }
    }
    return NULL;
}

static void give_up(struct head_core *core, struct head_task *send,
                    struct head_failure *failure)
{
    struct head_task *receive = receive_of(send);

    if (receive != NULL && !receive->ended) { /* else its bytes are there */
        head_task_doom(core, send, failure);
        receive->given_up = true;
        tell(receive->device, receive);
    }
    send->given_up = true;
    tell(send->device, send);
}

static struct head_failure *failure_of(const struct head_device *from,
                                       const struct head_device *to,
                                       const struct head_way *way, uint64_t ms)
{
    struct head_failure *failure = head_failure_create(
        PLASMON_EUNREACHABLE, 0, 0,
        "no bytes went from device %u on %s to device %u on %s for %llu s, though both are "
        "there: %s; nor was there a way through a third machine. Let %s through to the "
        "--bulk-address and --bulk-ports of %s's store (docs/operations.md)",
        from->index, from->node, to->index, to->node, (unsigned long long)(ms / 1000),
        way->unreached, from->node, to->node);

    failure->loss = true; /* between hosts calls are on record */
    return failure;
}

static void give_up_attempted(struct head_core *core, struct head_device *from,
                              const struct head_device *to, struct head_way *way,
                              const Plasmon__V1__PairStats *pair)
{
    struct pl_vec sends          = PL_VEC_INIT(struct head_task *);
    struct head_failure *failure = failure_of(from, to, way, pair->unreached_ms);

    for (uint64_t seq = from->seq_oldest; seq <= from->seq_sent; seq++) {
        struct head_task *task = head_device_task(from, seq);

        if (attempted(core, task, to, pair->unreached_last)) {
            struct head_task **place = pl_vec_push(&sends);

            PL_CHECK(place != NULL);
            *place = task;
            task->refs++;
        }
    }
    if (sends.count > 0) {
        pl_warn("head", "%zu transfer%s: %s", sends.count,
                sends.count == 1 ? " is given up" : "s are given up", failure->text);
    }
    for (size_t i = 0; i < sends.count; i++) {
        struct head_task *send = *(struct head_task **)pl_vec_at(&sends, i);

        give_up(core, send, failure);
        head_task_release(send);
    }
    head_failure_release(failure);
    pl_vec_finish(&sends);
}

/* The sender may not have heard yet that another worker is there by now, and go on counting what it missed of the one before. */
static bool bound_is_over(const struct head_core *core, const struct head_device *to,
                          uint64_t ms)
{
    return ms >= core->config.reach_wait_ms &&
           core->now_ms - to->bulk_since_ms >= core->config.reach_wait_ms;
}

void head_reach_take(struct head_core *core, const Plasmon__V1__PairStats *pair)
{
    struct head_device *from     = head_device_at(core, pair->from);
    const struct head_device *to = head_device_at(core, pair->to);
    struct head_way *way;

    if (!pair->sent || pair->route != HEAD_ROUTE_HOST || from == NULL || to == NULL ||
        !head_device_apart(from, to)) {
        return;
    }
    way = head_rates_way_of(core, from->index, to->index);
    if (pair->unreached_why[0] == '\0' || to->gone) {
        gets_through(way);
        return;
    }
    if (!to->connected) {
        return; /* it is away, and may come back; for how long it may be is the leases' business */
    }
    if (way->unreached == NULL) {
        pl_warn("head",
                "nothing gets from device %u on %s to device %u on %s: %s; what has no "
                "other way fails after %llu s of that (--reach-wait)",
                from->index, from->node, to->index, to->node, pair->unreached_why,
                (unsigned long long)(core->config.reach_wait_ms / 1000));
    }
    pl_free(way->unreached);
    way->unreached = head_strdup(pair->unreached_why);
    if (bound_is_over(core, to, pair->unreached_ms)) {
        give_up_attempted(core, from, to, way, pair);
    }
}
