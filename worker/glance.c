/*
 * 20 us are a launch and a kernel of ten microseconds; 100 us are as long as the main thread looks without a pause, and more than it takes
 * to wake up.
 */
#include "worker/glance.h"

#include <string.h>

#define WAKE_NS UINT64_C(20000)
#define OVER_NS UINT64_C(100000)

void worker_glance_init(struct worker_glance *glance, const struct store_timeline *timeline,
                        uint32_t stream_count)
{
    memset(glance, 0, sizeof(*glance));
    glance->timeline     = timeline;
    glance->stream_count = stream_count;
}

static bool words_changed(struct worker_glance *glance)
{
    bool changed = false;

    for (uint32_t i = 0; i < glance->stream_count; i++) {
        /* Relaxed: who takes completions loads the word again, with acquire. */
        uint64_t word =
            __atomic_load_n(&glance->timeline->stream[i].value, __ATOMIC_RELAXED);

        changed |= word != glance->seen[i];
        glance->seen[i] = word;
    }
    return changed;
}

void worker_glance_begin(struct worker_glance *glance, uint64_t now_ns)
{
    if (glance->on) {
        return; /* the main thread is woken in time for the first launch */
    }
    glance->on       = true;
    glance->woken    = false;
    glance->began_ns = now_ns;
}

void worker_glance_end(struct worker_glance *glance)
{
    glance->on = false;
}

enum worker_glanced worker_glance(struct worker_glance *glance, uint64_t now_ns)
{
    uint64_t taken_ns = now_ns - glance->began_ns;

    if (!glance->on) {
        return WORKER_GLANCE_OFF;
    }
    if (words_changed(glance)) {
        return WORKER_GLANCE_CHANGED;
    }
    if (taken_ns >= WAKE_NS && !glance->woken) {
        glance->woken = true;
        return WORKER_GLANCE_WAKE;
    }
    if (taken_ns >= OVER_NS) {
        glance->on = false;
        return WORKER_GLANCE_OFF;
    }
    return WORKER_GLANCE_NOTHING;
}
