/*
 * Recorded graphs: a few steps are submitted between plasmon_graph_begin() and
 * plasmon_graph_end(), and launched several times in a row. Each launch means
 * what the steps mean, one after the other, and is applied to the model so.
 *
 * An array that a recorded step makes is a temporary: released before the end,
 * and made anew by each launch, in the model too. A launch fails as a whole, so
 * what it writes comes from all that it touches.
 */
#include <string.h>

#include "bench/stress/stress.h"

struct recording {
    struct stress_step step[STRESS_RECORD_MAX];
    uint32_t count;
    uint32_t launches;
};

static void apply_steps(const struct recording *recording, struct stress_thread *thread)
{
    for (uint32_t i = 0; i < recording->count; i++) {
        stress_step_apply(thread, &recording->step[i]);
    }
}

/* What any step touched is an ancestor of what any step wrote. */
static void mix_ancestors(const struct recording *recording, struct stress_thread *thread)
{
    uint64_t ancestors = 0;

    for (uint32_t i = 0; i < recording->count; i++) {
        for (uint32_t k = 0; k < recording->step[i].operands; k++) {
            ancestors |= thread->array[recording->step[i].array[k]].ancestors;
        }
    }
    for (uint32_t i = 0; i < recording->count; i++) {
        thread->array[recording->step[i].array[0]].ancestors |= ancestors;
    }
}

static void drop_temporaries(const struct recording *recording,
                             struct stress_thread *thread)
{
    for (uint32_t i = 0; i < recording->count; i++) {
        if (recording->step[i].fresh) {
            stress_array_drop(&thread->array[recording->step[i].array[0]]);
        }
    }
}

/* A step is made when the ones before it were applied: they may have made what
 * it reads. */
static void record_steps(struct stress_thread *thread, struct recording *recording)
{
    uint32_t wanted = 1 + (uint32_t)stress_draw(thread, STRESS_RECORD_MAX);

    while (recording->count < wanted &&
           stress_step_make_recorded(thread, &recording->step[recording->count])) {
        const struct stress_step *step = &recording->step[recording->count++];

        stress_log_step(thread, step);
        stress_step_play(thread, step);
        stress_step_apply(thread, step);
    }
    for (uint32_t i = 0; i < recording->count; i++) {
        if (recording->step[i].fresh) {
            stress_must(thread,
                        plasmon_release(thread->ground->client,
                                        thread->array[recording->step[i].array[0]].ref),
                        "release of a temporary");
        }
    }
}

static void launch(struct stress_thread *thread, struct plasmon_graph *graph, bool again)
{
    atomic_fetch_add(&thread->ground->covered.launches, 1);
    atomic_fetch_add(&thread->ground->covered.replays, again);
    stress_must(thread,
                plasmon_graph_launch(thread->ground->client, graph, NULL, 0, NULL, 0, NULL),
                "plasmon_graph_launch");
}

void stress_record_play(struct stress_thread *thread, const struct stress_step *step)
{
    struct recording recording = {.launches = step->repeat};
    struct plasmon_graph *graph;

    stress_must(thread, plasmon_graph_begin(thread->ground->client, &graph),
                "plasmon_graph_begin");
    record_steps(thread, &recording);
    if (recording.count > 0) {
        stress_must(thread, plasmon_graph_end(thread->ground->client, graph),
                    "plasmon_graph_end");
        launch(thread, graph, false); /* its steps were applied while they were recorded */
        mix_ancestors(&recording, thread);
        drop_temporaries(&recording, thread);
        for (uint32_t i = 1; i < recording.launches; i++) {
            launch(thread, graph, true);
            apply_steps(&recording, thread);
            mix_ancestors(&recording, thread);
            drop_temporaries(&recording, thread);
        }
    }
    stress_must(thread, plasmon_graph_release(thread->ground->client, graph),
                "plasmon_graph_release");
}
