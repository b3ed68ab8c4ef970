/*
 * Marks: points in a stream that another one can wait for, with work of the first one behind them.
 *
 * A join waits for all that its stream holds by then. A program that puts ten large arrays and
 * works on each has ten copies in the stream when the first kernel goes in; behind a join, that
 * kernel would begin after the last copy, and the way back to the host would lie idle meanwhile. So
 * behind a large copy there is a mark, and behind whatever waited for one: a kernel between two
 * copies is as much part of the pipeline.
 *
 * And a mark is put before a function that takes long, if there is none yet behind what lies before
 * it: of several launches that wait for one, the first follows it in its stream, and the others,
 * which get streams of their own, would wait for that one too. (Eight products of a vector: the
 * first two ran alone, and took a tenth of the time of all.) Elsewhere there are none, since each
 * costs the stream something and chains of short kernels would pay for it.
 *
 * A wait for a mark is a join that waits for less. So it adds no way to hang (docs/ordering.md).
 * Where a join is needed for more than order, behind the write of a word, the mark must be behind
 * that write. A launch that overwrites what a large copy takes to host memory needs just that, and
 * programs that work on ten arrays in turn, again and again, have nine more copies in the stream by
 * then: so behind such a copy the word is written before the mark.
 */
#include "worker/core_int.h"

#include "base/fault.h"
#include "base/log.h"

static uint64_t moved_by(const struct worker_launch *launch)
{
    uint64_t bytes = 0;

    switch (launch->kind) {
    case PLASMON__V1__LAUNCH_KIND__LAUNCH_COPY:
    case PLASMON__V1__LAUNCH_KIND__LAUNCH_PUT:
    case PLASMON__V1__LAUNCH_KIND__LAUNCH_PUT_HOST:
    case PLASMON__V1__LAUNCH_KIND__LAUNCH_GET_HOST:
    case PLASMON__V1__LAUNCH_KIND__LAUNCH_RECV:
        for (uint32_t i = 0; i < launch->operand_count; i++) {
            bytes = pl_max_u64(bytes, launch->operands[i].bytes);
        }
        return bytes;
    default:
        return 0;
    }
}

/* A write takes 2.6 us of a GPU's stream: a thirtieth of what so many times mark_bytes take over a link. */
#define WORD_EACH 4u

/* So that it gets a mark. */
static bool large(const struct worker_core *core, const struct worker_launch *launch)
{
    return moved_by(launch) >=
           core->config.mark_bytes *
               (launch->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_GET_HOST ? WORD_EACH : 1);
}

bool worker_mark_wants_word(const struct worker_core *core,
                            const struct worker_launch *launch)
{
    return core->config.mark_bytes != 0 && launch->failure == PLASMON_OK &&
           launch->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_GET_HOST && large(core, launch);
}

/* pipeline: who waits for it gets one behind itself. */
static void mark_put(struct worker_core *core, uint32_t stream, uint64_t seq, bool pipeline)
{
    struct worker_stream *mine = &core->streams[stream];
    uint32_t slot              = mine->mark_count % WORKER_MARKS;

    worker_stream_put(core, stream, 1);
    if (core->config.ops->mark(core->config.user, stream, slot) == PLASMON_OK) {
        mine->marks[slot]         = seq;
        mine->mark_words[slot]    = mine->signalled;
        mine->mark_pipeline[slot] = pipeline;
        mine->mark_count++;
    } else { /* who follows joins */
        mine->marks[slot] = 0;
        pl_debug("worker", "no mark behind launch %llu", (unsigned long long)seq);
    }
}

void worker_mark_before_work(struct worker_core *core, uint32_t stream)
{
    const struct worker_stream *mine = &core->streams[stream];

    if (core->config.mark_bytes != 0 && !worker_stream_idle(core, stream) &&
        (mine->mark_count == 0 ||
         mine->marks[(mine->mark_count - 1) % WORKER_MARKS] < mine->last)) {
        mark_put(core, stream, mine->last, false);
    }
}

void worker_mark_enqueued(struct worker_core *core, const struct worker_launch *launch,
                          uint32_t stream)
{
    struct worker_stream *mine = &core->streams[stream];
    uint32_t slot              = mine->mark_count % WORKER_MARKS;

    if (core->config.mark_bytes == 0 || (!launch->behind_mark && !large(core, launch))) {
        return;
    }
    if (pl_bug("worker.mark_early") && mine->mark_count > 0) { /* the last one again */
        slot                   = (mine->mark_count - 1) % WORKER_MARKS;
        mine->marks[slot]      = launch->seq;
        mine->mark_words[slot] = mine->signalled;
        return;
    }
    mark_put(core, stream, launch->seq, true);
}

bool worker_mark_find(const struct worker_core *core, uint32_t stream, uint64_t seq,
                      bool word, uint32_t *out_slot)
{
    const struct worker_stream *other = &core->streams[stream];
    bool found                        = false;

    for (uint32_t i = 1; i <= WORKER_MARKS && i <= other->mark_count; i++) {
        uint32_t slot = (other->mark_count - i) % WORKER_MARKS;

        /* They grow; 0: none was made. */
        if (other->marks[slot] < seq || (word && other->mark_words[slot] < seq)) {
            break;
        }
        *out_slot = slot;
        found     = true;
    }
    return found;
}
