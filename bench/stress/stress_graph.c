/*
 * A graph: random steps, each submitted and applied to the model, and all that is left read at the
 * end. What went before is told on failure.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/stress/stress.h"

static const char *const kinds[STRESS_KINDS] = {
    "fill",     "put",    "unary", "binary", "inout", "reduce",  "spin",  "source",
    "snapshot", "record", "get",   "map",    "unmap", "release", "large", "flood"};

const char *stress_kind_name(enum stress_kind kind)
{
    return kinds[kind];
}

/* ------------------------------------------------------------------ grounds and threads */

void stress_ground_init(struct stress_ground *ground, const struct stress_hooks *hooks,
                        struct plasmon_client *client, uint32_t devices)
{
    memset(ground, 0, sizeof(*ground));
    ground->hooks        = hooks;
    ground->client       = client;
    ground->devices      = devices;
    ground->source_count = STRESS_SOURCES;
    for (uint32_t i = 0; i < STRESS_DEVICES_MAX; i++) {
        atomic_init(&ground->number[i], (int)i);
    }
    (void)pthread_mutex_init(&ground->source_lock, NULL); /* cannot fail on Linux */
}

void stress_ground_finish(struct stress_ground *ground)
{
    (void)pthread_mutex_destroy(&ground->source_lock); /* nobody has it */
}

bool stress_thread_init(struct stress_thread *thread, struct stress_ground *ground,
                        uint32_t index, uint64_t seed)
{
    memset(thread, 0, sizeof(*thread));
    thread->ground  = ground;
    thread->index   = index;
    thread->random  = seed;
    thread->scratch = calloc(STRESS_ELEMENTS_MAX, sizeof(uint64_t));
    thread->want    = calloc(STRESS_ELEMENTS_MAX, sizeof(uint64_t));
    return thread->scratch != NULL && thread->want != NULL;
}

void stress_thread_finish(struct stress_thread *thread)
{
    free(thread->scratch);
    free(thread->want);
    thread->scratch = thread->want = NULL;
}

int stress_device(const struct stress_thread *thread, int device)
{
    return device < 0 ? device : atomic_load(&thread->ground->number[device]);
}

/* ------------------------------------------------------------------------- what is told */

void stress_print_steps(const struct stress_thread *thread, uint32_t most)
{
    uint32_t count = atomic_load(&thread->log_count);
    uint32_t first = count > most ? count - most : 0;

    printf("# thread %u, graph %016llx, %u steps done; the last ones submitted:\n",
           thread->index, (unsigned long long)thread->graph, atomic_load(&thread->steps));
    for (uint32_t i = first; i < count; i++) {
        printf("#   %u: %s\n", i, thread->log[i % STRESS_LOG_LINES]);
    }
}

void stress_fail(struct stress_thread *thread, const char *format, ...)
{
    char text[STRESS_TEXT_BYTES];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    thread->ground->hooks->fail(thread, text);
}

void stress_must(struct stress_thread *thread, plasmon_status_t status, const char *what)
{
    if (status != PLASMON_OK) {
        stress_fail(thread, "%s: %s: %s", what, plasmon_status_name(status),
                    plasmon_error(thread->ground->client));
    }
}

void stress_judge(struct stress_thread *thread, plasmon_status_t status, bool consumable,
                  uint64_t bytes, const char *what)
{
    if (!thread->ground->hooks->excuse(thread, status, consumable, bytes)) {
        stress_fail(thread,
                    "%s: %s: %s (something it comes from is overwritten in place: %s)",
                    what, plasmon_status_name(status),
                    plasmon_error(thread->ground->client), consumable ? "yes" : "no");
    }
    atomic_fetch_add(&thread->ground->excused, 1);
}

/* ------------------------------------------------------------------------------ playing */

void stress_log_step(struct stress_thread *thread, const struct stress_step *step)
{
    struct stress_coverage *covered = &thread->ground->covered;
    uint32_t count                  = atomic_load(&thread->log_count);

    stress_describe(step, thread->log[count % STRESS_LOG_LINES]);
    atomic_fetch_add(&covered->kind[step->kind], 1);
    if ((step->kind == STRESS_SPIN || step->kind == STRESS_SOURCE) && step->delay_us > 0) {
        atomic_fetch_add(&covered->delays, 1);
        atomic_fetch_add(&covered->delayed_us, step->delay_us);
    }
    atomic_store(&thread->log_count, count + 1);
}

static void begin_graph(struct stress_thread *thread)
{
    thread->graph       = stress_random(&thread->random);
    thread->random      = thread->graph;
    thread->fresh_count = 0;
    thread->quiet       = stress_chance(thread, 40);
    thread->consumable  = 0;
    atomic_store(&thread->log_count, 0);
    if (thread->ground->hooks->begin != NULL) {
        thread->ground->hooks->begin(thread);
    }
}

void stress_graph_play(struct stress_thread *thread)
{
    uint32_t steps;

    begin_graph(thread);
    steps = 20 + (uint32_t)stress_draw(thread, 120);
    for (uint32_t i = 0; i < steps; i++) {
        struct stress_step step;

        stress_step_make(thread, &step);
        stress_log_step(thread, &step);
        stress_step_play(thread, &step);
        stress_step_apply(thread, &step);
        atomic_fetch_add(&thread->steps, 1);
    }
    stress_graph_end(thread);
    atomic_fetch_add(&thread->graphs, 1);
}
