/*
 * What takes long, learned.
 *
 * What a launch works on says how long it takes while its function does a little with each byte. Of a
 * decomposition, of a recorded graph and of a program's own functions it says nothing: five of 300 ms
 * on a few bytes, in one message, had one word, behind the last, so whoever waited for the first one,
 * on another device or in a program, waited for all.
 *
 * A stream's words tell it. When a look finds that one has changed, the launches that it covers took as
 * long as the time since the last such look, or since the stream was empty. On average LONG_NS or more:
 * these functions take long; less than half: they do not. What takes long counts as so much work that a
 * word goes in before it and behind it (enqueue.c). A word costs a GPU 2.6 us, a 400th of LONG_NS.
 *
 * A wrong guess costs words. It is made where a stream waited for another device, where the host came
 * late, and of short functions in a batch with a long one; it is taken back when they are seen alone,
 * which they are the next time, for each has its own word then. Which functions they are is remembered
 * in a small table, by address, where one may take another's place.
 */
#include "worker/core_int.h"

#define LONG_NS UINT64_C(1000000)

/* What stands for a launch's work; NULL: it is no function's. */
static const void *work_of(const struct worker_launch *launch)
{
    return launch->graph != NULL ? (const void *)launch->graph : launch->function;
}

static const void **entry_of(const struct worker_core *core, const void *work)
{
    uint64_t hash = (uintptr_t)work * UINT64_C(0x9e3779b97f4a7c15);

    return (const void **)&core->long_works[hash >> (64 - WORKER_LONG_WORKS_BITS)];
}

static void note(struct worker_core *core, const void *work, bool is_long)
{
    const void **entry = entry_of(core, work);

    if (is_long) {
        core->long_work_count += *entry == NULL;
        *entry = work;
    } else if (*entry == work) {
        core->long_work_count--;
        *entry = NULL;
    }
}

bool worker_pace_is_long(const struct worker_core *core, const struct worker_launch *launch)
{
    return core->long_work_count > 0 && work_of(launch) != NULL &&
           *entry_of(core, work_of(launch)) == work_of(launch);
}

void worker_pace_begins(struct worker_core *core, uint32_t stream)
{
    if (core->config.ops->now != NULL) {
        core->streams[stream].paced_ns = core->config.ops->now(core->config.user);
    }
}

static void stream_done(struct worker_core *core, struct worker_stream *stream,
                        uint64_t word, uint64_t now_ns)
{
    uint64_t span_ns = now_ns - stream->paced_ns, count = 0;
    const struct worker_launch *launch;

    stream->paced_ns = now_ns;
    if (span_ns < LONG_NS && core->long_work_count == 0) {
        return;
    }
    for (launch = stream->running.first; launch != NULL && launch->seq <= word;
         launch = launch->next) {
        count++;
    }
    if (span_ns < count * LONG_NS && span_ns >= count * LONG_NS / 2) {
        return;
    }
    for (launch = stream->running.first; launch != NULL && launch->seq <= word;
         launch = launch->next) {
        if (work_of(launch) != NULL) {
            note(core, work_of(launch), span_ns >= count * LONG_NS);
        }
    }
}

void worker_pace_done(struct worker_core *core, const uint64_t *words)
{
    uint64_t now_ns = 0;

    for (uint32_t i = 0; i < core->stream_count && core->config.ops->now != NULL; i++) {
        struct worker_stream *stream = &core->streams[i];

        if (stream->running.first != NULL && stream->running.first->seq <= words[i]) {
            now_ns = now_ns != 0 ? now_ns : core->config.ops->now(core->config.user);
            stream_done(core, stream, words[i], now_ns);
        }
    }
}
