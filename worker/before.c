/*
 * What a wait for another device stands for, so that nothing is waited for twice.
 *
 * A stream that has waited for a word of another device need not wait for what that word was
 * written behind: an earlier value of it, and words of that device's other streams which its launch
 * came behind (store_timeline_say_before). Nor need a stream that has joined it. So each stream
 * has, for each word of each other device, the launch that is shown done before what comes next in
 * it.
 *
 * It is the WORDS of others that count here, not their work. Who overwrites what another device
 * reads must find its word written, for what no word shows as done is done again after a crash
 * (streams.c). A wait that is left out would have shown no more than what is known without it.
 *
 * An example, of most programs that send a vector out and bring results back: A makes x; B copies
 * it and makes y; A reads y, then makes x anew in place. That would wait for B's copy, whose word B
 * wrote before it began y. And B makes y anew in place, for which it would wait for A to have read
 * the old one; but it waits for the new x, which A made behind that.
 *
 * A mark (marks.c) says of the stream that it is in what was known then, of which nothing is kept.
 * So who waits for a mark learns nothing.
 *
 * Seeded bugs: worker.before_all (a launch says that all that its device began before it is shown),
 * worker.before_work (what it comes behind counts as shown when it is done).
 */
#include "worker/core_int.h"

#include "base/fault.h"

bool worker_before_create(struct worker_core *core)
{
    uint32_t devices = core->config.host_device_count;

    if (devices == 1) {
        return true; /* there is nobody to wait for */
    }
    core->before =
        PL_NEW_N(uint64_t, (size_t)STORE_STREAM_MAX * devices * STORE_STREAM_MAX);
    return core->before != NULL;
}

void worker_before_destroy(struct worker_core *core)
{
    pl_free(core->before);
}

/* Of one device, by its streams. */
static uint64_t *words_of(const struct worker_core *core, uint32_t stream,
                          uint32_t host_device)
{
    return core->before + ((size_t)stream * core->config.host_device_count + host_device) *
                              STORE_STREAM_MAX;
}

static size_t word_number(const struct worker_core *core, const struct worker_wait *wait)
{
    const struct store_word *words = core->config.timelines[wait->host_device]->stream;

    return (size_t)((const struct store_word *)(const void *)wait->word - words);
}

void worker_before_joined(struct worker_core *core, uint32_t stream, uint32_t other)
{
    size_t count = (size_t)core->config.host_device_count * STORE_STREAM_MAX;

    if (core->before != NULL) {
        uint64_t *mine         = words_of(core, stream, 0);
        const uint64_t *theirs = words_of(core, other, 0);

        for (size_t i = 0; i < count; i++) {
            mine[i] = pl_max_u64(mine[i], theirs[i]);
        }
    }
}

bool worker_before_waits(struct worker_core *core, uint32_t stream,
                         const struct worker_wait *wait)
{
    struct store_timeline *timeline = core->config.timelines[wait->host_device];
    uint64_t *words                 = words_of(core, stream, wait->host_device);
    size_t number                   = word_number(core, wait);

    if (words[number] >= wait->value) {
        return false;
    }
    words[number] = wait->value;
    store_timeline_before(timeline, wait->value, words);
    return true;
}

void worker_before_say(struct worker_core *core, const struct worker_launch *launch,
                       uint32_t stream)
{
    const struct worker_stream *mine = &core->streams[stream];
    const uint64_t *words            = mine->joined_word;
    uint64_t all[STORE_STREAM_MAX];

    if (core->before == NULL) {
        return;
    }
    if (pl_bug("worker.before_all")) {
        for (uint32_t i = 0; i < STORE_STREAM_MAX; i++) {
            all[i] = launch->seq - 1;
        }
        words = all;
    } else if (pl_bug("worker.before_work")) {
        words = mine->joined;
    }
    store_timeline_say_before(core->timeline, launch->seq, words);
}
