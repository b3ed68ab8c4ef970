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
 * Where one of them waited for another stream or device, nobody knows for how long, and they are
 * not taken to be long. A host that is busy looks late, so a few milliseconds have to be seen three
 * times in a row; SURE_NS or more on average are believed at once. A wrong guess, as of short
 * functions in a batch with a long one, costs words. It is taken back when they are seen alone,
 * which they are the next time, for each has its own word then. Which functions they are is
 * remembered in a small table, by address, where one may take another's place.
 */
#include "worker/core_int.h"

#define LONG_NS UINT64_C(1000000)
#define SURE_NS UINT64_C(50000000)
#define CERTAIN 3u /* times */

/* What stands for a launch's work; NULL: it is no function's. */
static const void *work_of(const struct worker_launch *launch)
{
    return launch->graph != NULL ? (const void *)launch->graph : launch->function;
}

/* In the table; the address is mixed by the golden ratio, and its high bits are taken. */
static size_t slot_of(const void *work)
{
    return (uintptr_t)work * UINT64_C(0x9e3779b97f4a7c15) >> (64 - WORKER_LONG_WORKS_BITS);
}

/* It took so long, on average; once for each look. */
static void note(struct worker_core *core, const void *work, uint64_t average_ns,
                 uint64_t now_ns)
{
    struct worker_long_work *entry = &core->long_works[slot_of(work)];
    uint32_t times                 = entry->work == work ? entry->times : 0;

    if (times != 0 && entry->noted_ns == now_ns) {
        return;
    }
    if (average_ns >= LONG_NS) {
        core->long_work_count += entry->work == NULL;
        times = average_ns >= SURE_NS || times + 1 > CERTAIN ? CERTAIN : times + 1;
        *entry =
            (struct worker_long_work){.work = work, .noted_ns = now_ns, .times = times};
    } else if (times != 0) {
        core->long_work_count--;
        *entry = (struct worker_long_work){.work = NULL};
    }
}

bool worker_pace_is_long(const struct worker_core *core, const struct worker_launch *launch)
{
    const void *work = work_of(launch);
    const struct worker_long_work *entry;

    if (core->long_work_count == 0 || work == NULL) {
        return false;
    }
    entry = &core->long_works[slot_of(work)];
    return entry->work == work && entry->times == CERTAIN;
}

void worker_pace_begins(struct worker_core *core, uint32_t stream)
{
    core->streams[stream].paced_ns = worker_now(core);
}

static void stream_done(struct worker_core *core, struct worker_stream *stream,
                        uint64_t word, uint64_t now_ns)
{
    uint64_t span_ns = now_ns - stream->paced_ns, count = 0;
    const struct worker_launch *launch;
    bool waited = false;

    stream->paced_ns = now_ns;
    if (span_ns < LONG_NS && core->long_work_count == 0) {
        return;
    }
    for (launch = stream->running.first; launch != NULL && launch->seq <= word;
         launch = launch->next) {
        waited |= launch->waits;
        count++;
    }
    if (span_ns / count >= LONG_NS ? waited : span_ns / count >= LONG_NS / 2) {
        return;
    }
    for (launch = stream->running.first; launch != NULL && launch->seq <= word;
         launch = launch->next) {
        if (work_of(launch) != NULL) {
            note(core, work_of(launch), span_ns / count, now_ns);
        }
    }
}

void worker_pace_done(struct worker_core *core, const uint64_t *words)
{
    uint64_t now_ns = 0;

    for (uint32_t i = 0; i < core->stream_count; i++) {
        struct worker_stream *stream = &core->streams[i];

        if (stream->running.first != NULL && stream->running.first->seq <= words[i]) {
            now_ns = now_ns != 0 ? now_ns : worker_now(core);
            stream_done(core, stream, words[i], now_ns);
        }
    }
}
