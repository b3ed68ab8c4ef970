/*
 * Timelines. The ring says which stream a launch went to, the stream's word how far that stream is;
 * timeline.h has the rule.
 *
 * Why a slot that names a later launch means "done": launches share a slot when they are STORE_RING
 * apart, the head keeps fewer than half of that outstanding, and a launch is outstanding until it
 * is done.
 *
 * A restarted worker publishes launches again that the ring knows already. `enqueued` never goes
 * back, so a reader that looked before the crash is not contradicted.
 */
#include "store/timeline.h"

#include <assert.h>

#include "store/shared_int.h"

#define STREAM_BITS STORE_RING_SEQ_SHIFT

static_assert(STORE_STREAM_MAX <= 1u << STREAM_BITS, "a stream's number fits");
static_assert(sizeof(struct store_word) == 64, "a word has its own cache line");
static_assert(offsetof(struct store_timeline, stream) % 64 == 0, "and is aligned to it");

void store_timeline_init(struct store_timeline *timeline, uint32_t host_device)
{
    timeline->host_device = host_device;
    shared_store64(&timeline->magic, STORE_TIMELINE_MAGIC);
}

/* Release: a worker that dies has made its stores up to some point, and none behind it. */
static void known_store(struct store_timeline *timeline, uint64_t seq, uint8_t value)
{
    __atomic_store_n(&timeline->known[seq % STORE_RING], value, __ATOMIC_RELEASE);
}

void store_timeline_know(struct store_timeline *timeline, uint64_t seq, uint8_t what)
{
    known_store(timeline, seq, (uint8_t)(store_timeline_known(timeline, seq) | what));
}

void store_timeline_unknow(struct store_timeline *timeline, uint64_t seq, uint8_t mask)
{
    known_store(timeline, seq, (uint8_t)(store_timeline_known(timeline, seq) & mask));
}

uint8_t store_timeline_known(const struct store_timeline *timeline, uint64_t seq)
{
    return __atomic_load_n(&timeline->known[seq % STORE_RING], __ATOMIC_ACQUIRE);
}

void store_timeline_hold(struct store_timeline *timeline, uint64_t seq, uint64_t by)
{
    uint64_t back = by == 0 || seq - by > UINT16_MAX ? 0 : seq - by;

    assert(by < seq);
    __atomic_store_n(&timeline->held[seq % STORE_RING], (uint16_t)back, __ATOMIC_RELEASE);
}

bool store_timeline_held(struct store_timeline *timeline, uint64_t seq)
{
    uint64_t back = __atomic_load_n(&timeline->held[seq % STORE_RING], __ATOMIC_ACQUIRE);

    return back != 0 && !store_timeline_done(timeline, seq - back);
}

void store_timeline_say_before(struct store_timeline *timeline, uint64_t seq,
                               const uint64_t words[STORE_STREAM_MAX])
{
    uint32_t *before = timeline->before[seq % STORE_BEFORE];

    for (uint32_t i = 0; i < STORE_STREAM_MAX; i++) {
        uint64_t back = words[i] == 0 || seq - words[i] > UINT16_MAX ? 0 : seq - words[i];

        assert(words[i] < seq);
        __atomic_store_n(&before[i], STORE_BEFORE_TAG(seq) | (uint32_t)back,
                         __ATOMIC_RELEASE);
    }
}

void store_timeline_before(const struct store_timeline *timeline, uint64_t seq,
                           uint64_t io_words[STORE_STREAM_MAX])
{
    const uint32_t *before = timeline->before[seq % STORE_BEFORE];

    for (uint32_t i = 0; i < STORE_STREAM_MAX; i++) {
        uint32_t said = __atomic_load_n(&before[i], __ATOMIC_ACQUIRE);
        uint64_t back = said & UINT16_MAX;

        if (said - (uint32_t)back == STORE_BEFORE_TAG(seq) && back != 0 && back < seq) {
            io_words[i] = pl_max_u64(io_words[i], seq - back);
        }
    }
}

void store_timeline_publish(struct store_timeline *timeline, uint64_t seq, uint32_t stream)
{
    uint64_t enqueued = timeline->enqueued; /* ours to write */

    assert(seq > 0);
    PL_CHECK(stream < STORE_STREAM_MAX);
    PL_CHECK(seq <= enqueued + 1); /* a gap would read as done or unknown at random */

    /* Before the ring names it: what is known of another launch must not be taken for its own. */
    known_store(timeline, seq, 0);
    /* Release; pairs with the load in store_timeline_point(). */
    shared_store64(&timeline->ring[seq % STORE_RING], seq << STREAM_BITS | stream);
    if (seq > enqueued) {
        shared_store64(&timeline->enqueued, seq);
    }
}

void store_timeline_mark(struct store_timeline *timeline, uint64_t seq, bool failed)
{
    uint64_t *slot = &timeline->ring[seq % STORE_RING];
    uint64_t entry = shared_load64(slot);

    if (entry >> STREAM_BITS == seq) {
        entry &= ~(uint64_t)STORE_RING_FAILED;
        shared_store64(slot, failed ? entry | STORE_RING_FAILED : entry);
    }
}

bool store_timeline_failed(struct store_timeline *timeline, uint64_t seq)
{
    uint64_t entry = shared_load64(&timeline->ring[seq % STORE_RING]);

    return entry >> STREAM_BITS == seq && (entry & STORE_RING_FAILED) != 0;
}

void store_timeline_release(struct store_timeline *timeline)
{
    /* Launches that were not published: their slots name one that is later than any. */
    for (uint32_t i = 0; i < STORE_RING; i++) {
        shared_store64(&timeline->ring[i], UINT64_MAX);
    }
    /* Those that were: devices wait for the words themselves, and compare them as signed differences. */
    for (uint32_t i = 0; i < STORE_STREAM_MAX; i++) {
        shared_store64(&timeline->stream[i].value, INT64_MAX);
    }
    shared_store64(&timeline->stage_taken.value, INT64_MAX);
    shared_store64(&timeline->released, 1);
}

bool store_timeline_is_released(const struct store_timeline *timeline)
{
    return shared_load64((uint64_t *)(uintptr_t)&timeline->released) != 0;
}

enum store_point_state store_timeline_point(struct store_timeline *timeline, uint64_t seq,
                                            uint64_t **out_word, uint64_t *out_value)
{
    uint64_t entry = shared_load64(&timeline->ring[seq % STORE_RING]);
    uint64_t *word;

    if (entry >> STREAM_BITS < seq) {
        return STORE_POINT_UNKNOWN;
    }
    if (entry >> STREAM_BITS > seq) {
        return STORE_POINT_DONE;
    }

    /* Masked: a worker that went mad must not send us out of bounds. */
    word = &timeline->stream[(uint32_t)entry % STORE_STREAM_MAX].value;
    if (shared_load64(word) >= seq) {
        return STORE_POINT_DONE;
    }
    if (out_word != NULL) {
        *out_word = word;
    }
    if (out_value != NULL) {
        *out_value = seq;
    }
    return STORE_POINT_ENQUEUED;
}
