/*
 * The queue of a stream: operations of any size, one producer (calls on a stream do not overlap),
 * one consumer (its thread), no lock and, once warm, no allocation.
 *
 * Records lie one after another in segments of 128 KiB. When a record does not fit, the producer
 * takes a segment that the consumer has used up (or a new one), writes an END record that points to
 * it, and goes on there. A record becomes visible by the release store of `published`, a count; the
 * consumer reads only records it has counted, so it never sees half a record, and END records
 * travel with the record behind them. The producer never touches a segment again before the
 * consumer has put it on `used_up`.
 *
 * SLEEPING. The consumer stores sleeping = 1, reads `published` again, and sleeps while sleeping ==
 * 1. The producer stores `published`, then reads `sleeping`. All four are sequentially consistent:
 * either the consumer sees the new record or the producer sees the sleeper. While the consumer
 * works, push() is one atomic store and one load.
 *
 * The queue grows with the work outstanding up to SEGMENT_MAX segments, some two million launches;
 * beyond that reserve() answers ELIMIT, because it must not wait for the stream.
 */
#include "device/cpu/cpu_int.h"

#include "base/alloc.h"
#include "base/clock.h"

#include <assert.h>
#include <sched.h>

#define SEGMENT_BYTES 131072u
#define SEGMENT_MAX   1024u
#define SPARE_MAX     8u /* kept for reuse; more are freed */
#define OP_END        UINT32_MAX
#define YIELD_MAX     2u /* before sleeping: lets a producer on the same CPU go on */

struct device_cpu_segment {
    /* used: the next in the queue; spare, used up: the next in that stack */
    struct device_cpu_segment *next;
    _Alignas(16) unsigned char bytes[SEGMENT_BYTES];
};

static_assert(sizeof(struct device_cpu_op) == 16, "payloads stay aligned to 16");

static struct device_cpu_segment *segment_create(struct device_cpu_queue *queue)
{
    struct device_cpu_segment *segment;

    if (queue->segment_count >= SEGMENT_MAX) {
        return NULL;
    }
    segment = PL_NEW(struct device_cpu_segment);
    if (segment != NULL) {
        queue->segment_count++;
    }
    return segment;
}

/* Take over what the consumer has used up; keep a few. */
static void spare_collect(struct device_cpu_queue *queue)
{
    struct device_cpu_segment *segment = atomic_exchange(&queue->used_up, NULL);

    while (segment != NULL) {
        struct device_cpu_segment *next = segment->next;

        if (queue->spare_count < SPARE_MAX) {
            segment->next = queue->spare;
            queue->spare  = segment;
            queue->spare_count++;
        } else {
            pl_free(segment);
            queue->segment_count--;
        }
        segment = next;
    }
}

static struct device_cpu_segment *segment_take(struct device_cpu_queue *queue)
{
    struct device_cpu_segment *segment;

    if (queue->spare == NULL) {
        spare_collect(queue);
    }
    segment = queue->spare;
    if (segment == NULL) {
        return segment_create(queue);
    }
    queue->spare = segment->next;
    queue->spare_count--;
    return segment;
}

plasmon_status_t device_cpu_queue_init(struct device_cpu_queue *queue)
{
    struct device_cpu_segment *segment;

    *queue  = (struct device_cpu_queue){.segment_count = 0};
    segment = segment_create(queue);
    if (segment == NULL) {
        return PLASMON_ENOMEM;
    }
    queue->tail = segment;
    queue->head = segment;
    return PLASMON_OK;
}

void device_cpu_queue_finish(struct device_cpu_queue *queue)
{
    assert(queue->popped == atomic_load(&queue->published));

    spare_collect(queue);
    while (queue->spare != NULL) {
        struct device_cpu_segment *segment = queue->spare;

        queue->spare = segment->next;
        pl_free(segment);
    }
    /* The head may be a segment behind: nothing was popped since the tail moved on. */
    while (queue->head != queue->tail) {
        struct device_cpu_segment *segment = queue->head;

        queue->head = segment->next;
        pl_free(segment);
    }
    pl_free(queue->tail);
}

static struct device_cpu_op *tail_op(const struct device_cpu_queue *queue)
{
    return (struct device_cpu_op *)(void *)(queue->tail->bytes + queue->tail_used);
}

plasmon_status_t device_cpu_queue_reserve(struct device_cpu_queue *queue, uint32_t kind,
                                          size_t payload_bytes, void **out_payload)
{
    size_t bytes = sizeof(struct device_cpu_op) + pl_round_up(payload_bytes, 16);
    struct device_cpu_op *op;

    assert(bytes + sizeof(*op) <= SEGMENT_BYTES);

    /* An END record must always fit behind. */
    if (queue->tail_used + bytes + sizeof(*op) > SEGMENT_BYTES) {
        struct device_cpu_segment *next = segment_take(queue);

        if (next == NULL) {
            return queue->segment_count >= SEGMENT_MAX ? PLASMON_ELIMIT : PLASMON_ENOMEM;
        }
        next->next        = NULL;
        queue->tail->next = next;
        *tail_op(queue)   = (struct device_cpu_op){.bytes = sizeof(*op), .kind = OP_END};
        queue->tail       = next;
        queue->tail_used  = 0;
    }

    op           = tail_op(queue);
    op->bytes    = (uint32_t)bytes;
    op->kind     = kind;
    *out_payload = op + 1;
    return PLASMON_OK;
}

/* Whoever turns `sleeping` back to 0 wakes. */
static void consumer_wake(struct device_cpu_queue *queue)
{
    if (atomic_load(&queue->sleeping) != 0 && atomic_exchange(&queue->sleeping, 0) != 0) {
        device_cpu_wake(&queue->sleeping);
    }
}

void device_cpu_queue_push(struct device_cpu_queue *queue)
{
    queue->tail_used += tail_op(queue)->bytes;
    queue->pushed++;
    atomic_store(&queue->published,
                 queue->pushed); /* pairs with the load in queue_poll() */
    consumer_wake(queue);
}

void device_cpu_queue_stop(struct device_cpu_queue *queue)
{
    atomic_store(&queue->stopping, true);
    consumer_wake(queue);
}

/* true: there is an operation that was not popped yet. */
static bool queue_poll(struct device_cpu_queue *queue)
{
    queue->published_seen = atomic_load(&queue->published);
    return queue->published_seen > queue->popped;
}

static bool queue_spin(struct device_cpu_queue *queue, uint64_t spin_ns)
{
    uint64_t deadline_ns;

    if (spin_ns == 0) {
        /* Few CPUs: the producer may need this one. */
        for (unsigned i = 0; i < YIELD_MAX; i++) {
            (void)sched_yield(); /* cannot fail on Linux */
            if (queue_poll(queue)) {
                return true;
            }
        }
        return false;
    }
    deadline_ns = pl_now_ns() + spin_ns;
    do {
        for (unsigned i = 0; i < 32; i++) {
            if (queue_poll(queue)) {
                return true;
            }
            pl_cpu_relax();
        }
    } while (pl_now_ns() < deadline_ns);
    return false;
}

/* false: stopped and empty. */
static bool queue_await(struct device_cpu_queue *queue, uint64_t spin_ns)
{
    while (!queue_poll(queue) && !queue_spin(queue, spin_ns)) {
        atomic_store(&queue->sleeping, 1);
        if (queue_poll(queue)) {
            atomic_store(&queue->sleeping, 0);
            return true;
        }
        if (atomic_load(&queue->stopping)) {
            return false;
        }
        device_cpu_sleep(&queue->sleeping, 1);
        atomic_store(&queue->sleeping, 0);
    }
    return true;
}

static void used_up_push(struct device_cpu_queue *queue, struct device_cpu_segment *segment)
{
    struct device_cpu_segment *top = atomic_load(&queue->used_up);

    /* The producer only ever takes the whole stack, so a segment cannot come back in between (no ABA). */
    do {
        segment->next = top;
    } while (!atomic_compare_exchange_weak(&queue->used_up, &top, segment));
}

struct device_cpu_op *device_cpu_queue_pop(struct device_cpu_queue *queue, uint64_t spin_ns)
{
    struct device_cpu_op *op;

    if (queue->published_seen == queue->popped && !queue_await(queue, spin_ns)) {
        return NULL;
    }

    op = (struct device_cpu_op *)(void *)(queue->head->bytes + queue->head_used);
    if (op->kind == OP_END) {
        struct device_cpu_segment *done = queue->head;

        queue->head      = done->next;
        queue->head_used = 0;
        used_up_push(queue, done);
        op = (struct device_cpu_op *)(void *)queue->head->bytes;
    }
    queue->head_used += op->bytes;
    queue->popped++;
    return op;
}
