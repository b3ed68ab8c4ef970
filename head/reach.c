/*
 * Two hosts that live and cannot reach each other, with nobody between who could pass bytes on:
 * what was to go from one to the other over the bulk channel fails in the end.
 *
 * The sender's worker knows it: for so long bytes were ready, and no attempt, direct or by relay,
 * had an answer (transfer/bulk_out.c). It goes on trying and reports that each second, as long as
 * nothing gets through. From the first report on the way is marked: whoever may choose takes
 * another source, or another device to run on. Nothing is refused for a mark; what has no other way
 * begins, and goes through if the network is well again. The bound is ours: when it is over, each
 * SEND that the last attempt was made for fails, and with it its RECV and who reads from that.
 * (Where calls are on record they run again, by the mark elsewhere.)
 *
 * A MARK COUNTS FOR BOTH HOSTS. A report is of two devices, but between all devices of two hosts is
 * one network: one address, of the store, and a port for each device. So what is noted of one way
 * is taken to be so for each of them, in that direction, and nobody finds it out once more by
 * waiting for the whole bound. A report that all is well says little, for who sends nothing misses
 * nothing; but bytes that arrive between the two hosts do: then what is noted is of those devices
 * alone (a firewall that lets some ports through), and of the others nothing is.
 *
 * NOBODY WAITS ON. Both workers, with whom we can talk, are told to let go of these chunks
 * (transfer_bulk_give_up): the sender's device finds its slots taken, the receiver's its chunks
 * there, without bytes, and both launches end. A worker that is replaced is told again before its
 * launches come again, so the orders are lost with nobody. The launches fail before either is told:
 * whatever lies in the receiver's memory then, nobody reads it.
 *
 * NOTHING FAILS FOR LESS. One answer in all that time, to whatever chunk, or a word that the
 * receiver's device takes its time, begins it anew; so does a new address, and a sender that is
 * replaced. Nor does anything fail for a receiver that the head misses, too: that one is not there.
 * What was enqueued after the last attempt began waits for the next one.
 *
 * Seeded bugs: head.give_up_once (who is replaced is not told again), head.give_up_all (an attempt
 * counts for what came after it).
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

/* -------------------------------------------------------------------------------- marks */

/*
 * Of two hosts, one direction: there is one as long as something is noted of a way between devices
 * of theirs.
 */
struct head_hosts_apart {
    struct pl_list link;
    const char *from; /* head_device.host */
    const char *to;
    uint32_t noted; /* ways .. */
    uint32_t alone; /* .. of them that count for themselves alone */
    char *why;      /* owned: of the last report */
};

static struct head_hosts_apart *hosts_of(const struct head_core *core, const char *from,
                                         const char *to)
{
    struct pl_list *pos;

    pl_list_for_each(pos, &core->hosts_apart) {
        struct head_hosts_apart *hosts =
            pl_container_of(pos, struct head_hosts_apart, link);

        if (hosts->from == from && hosts->to == to) {
            return hosts;
        }
    }
    return NULL;
}

static struct head_hosts_apart *hosts_of_way(const struct head_core *core,
                                             const struct head_way *way)
{
    return hosts_of(core, head_device_at(core, way->from)->host,
                    head_device_at(core, way->to)->host);
}

static void hosts_free(struct head_hosts_apart *hosts)
{
    pl_list_remove(&hosts->link);
    pl_free(hosts->why);
    pl_free(hosts);
}

static void note(struct head_core *core, struct head_way *way, const char *why)
{
    struct head_hosts_apart *hosts = hosts_of_way(core, way);

    if (hosts == NULL) {
        hosts       = head_alloc(sizeof(*hosts));
        hosts->from = head_device_at(core, way->from)->host;
        hosts->to   = head_device_at(core, way->to)->host;
        pl_list_init(&hosts->link);
        pl_list_add_tail(&core->hosts_apart, &hosts->link);
    }
    hosts->noted += way->unreached == NULL;
    pl_free(way->unreached);
    way->unreached = head_strdup(why);
    if (!way->alone) {
        pl_free(hosts->why);
        hosts->why = head_strdup(why);
    }
}

static void gets_through(struct head_core *core, struct head_way *way)
{
    struct head_hosts_apart *hosts;

    if (way->unreached == NULL) {
        return;
    }
    hosts = hosts_of_way(core, way);
    hosts->noted--;
    hosts->alone -= way->alone;
    way->alone = false;
    pl_free(way->unreached);
    way->unreached = NULL;
    if (hosts->noted == 0) {
        hosts_free(hosts);
    }
}

void head_reach_restore(struct head_core *core, struct head_way *way, const char *why,
                        bool alone)
{
    if (why[0] != '\0') {
        gets_through(core, way);
        way->alone = alone;
        note(core, way, why);
        hosts_of_way(core, way)->alone += alone;
    }
}

void head_reach_destroy(struct head_core *core)
{
    while (!pl_list_empty(&core->hosts_apart)) {
        hosts_free(pl_list_first(&core->hosts_apart, struct head_hosts_apart, link));
    }
}

void head_reach_came(struct head_core *core, const struct head_task *receive)
{
    const struct head_device *to = receive->device;
    const struct head_device *from;
    struct head_hosts_apart *hosts;
    uint64_t key;
    void *value;

    if (pl_list_empty(&core->hosts_apart) ||
        !unfinished_half(receive, PLASMON__V1__LAUNCH_KIND__LAUNCH_RECV) ||
        receive->given_up) {
        return;
    }
    from = head_device_at(core, receive->peer);
    if (from->gone || head_pair_whole(core, from, to, receive->pair)) {
        return; /* its half ends without bytes; by NCCL, which has ports of its own */
    }
    hosts = hosts_of(core, from->host, to->host);
    for (size_t i = 0; hosts != NULL && hosts->alone < hosts->noted &&
                       pl_map_next(&core->ways, &i, &key, &value);) {
        struct head_way *way = value;

        if (way->unreached != NULL && !way->alone && hosts_of_way(core, way) == hosts) {
            way->alone = true;
            hosts->alone++;
        }
    }
}

/* Each way from a device, or to it. */
static void forget(struct head_core *core, const struct head_device *device, bool to)
{
    size_t i = 0;
    uint64_t key;
    void *value;

    while (!pl_list_empty(&core->hosts_apart) &&
           pl_map_next(&core->ways, &i, &key, &value)) {
        struct head_way *way = value;

        if ((to ? way->to : way->from) == device->index) {
            gets_through(core, way);
        }
    }
}

void head_reach_forget(struct head_core *core, const struct head_device *from)
{
    forget(core, from, false);
}

void head_reach_gone(struct head_core *core, const struct head_device *device)
{
    forget(core, device, false);
    forget(core, device, true);
}

const char *head_reach_why(const struct head_core *core, const struct head_device *from,
                           const struct head_device *to)
{
    const struct head_hosts_apart *hosts = hosts_of(core, from->host, to->host);
    const struct head_way *way;

    if (hosts == NULL) {
        return NULL;
    }
    if (hosts->noted > hosts->alone) {
        return hosts->why;
    }
    way = head_rates_way(core, from->index, to->index);
    return way != NULL ? way->unreached : NULL;
}

bool head_reach_apart(const struct head_core *core, const struct head_device *from,
                      const struct head_device *to)
{
    return head_reach_why(core, from, to) != NULL;
}

void *head_reach_hosts(const struct head_core *core, const struct head_device *from,
                       const struct head_device *to)
{
    struct head_hosts_apart *hosts = hosts_of(core, from->host, to->host);

    return hosts != NULL && hosts->noted > hosts->alone ? hosts : NULL;
}

void head_reach_check(const struct head_core *core)
{
    const struct pl_list *pos;
    uint64_t key;
    void *value;

    for (size_t i = 0; pl_map_next(&core->ways, &i, &key, &value);) {
        const struct head_way *way = value;

        PL_CHECK(way->unreached == NULL ? !way->alone : hosts_of_way(core, way) != NULL);
    }
    pl_list_for_each(pos, &core->hosts_apart) {
        const struct head_hosts_apart *hosts =
            pl_container_of(pos, const struct head_hosts_apart, link);
        uint32_t noted = 0, alone = 0;

        for (size_t i = 0; pl_map_next(&core->ways, &i, &key, &value);) {
            const struct head_way *way = value;

            if (way->unreached != NULL && hosts_of_way(core, way) == hosts) {
                PL_CHECK(!head_device_at(core, way->from)->gone &&
                         !head_device_at(core, way->to)->gone);
                noted++;
                alone += way->alone;
            }
        }
        PL_CHECK(noted > 0 && noted == hosts->noted && alone == hosts->alone);
        PL_CHECK(noted == alone || hosts->why != NULL);
    }
}

/* ------------------------------------------------------------------------------ failing */

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

/*
 * The sender may not have heard yet that another worker is there by now, and go on counting what it
 * missed of the one before.
 */
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
    if (pair->unreached_why[0] == '\0' || from->gone || to->gone) {
        gets_through(core, way);
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
    note(core, way, pair->unreached_why);
    if (bound_is_over(core, to, pair->unreached_ms)) {
        give_up_attempted(core, from, to, way, pair);
    }
}
