/*
 * Many of one thing: arguments of a task, refs to wait for, objects to get, tasks in the queue. Ray
 * packs refs into objects and several outputs into a task; here an object holds no refs and a
 * function has as many outputs as its signature says, so the nearest thing stands under its name,
 * with a note.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "bench/bench.h"

#define WAIT_REFS   1000u
#define MANY_REFS   10000u
#define RETURN_REFS 3000u
#define GROUP_TASKS 50000u
#define HOLD_US     3000000 /* keeps the stream busy while the queue fills */

static double seconds_since(uint64_t began)
{
    return (double)(pl_now_ns() - began) * 1e-9;
}

/* `count` objects of 8 bytes, number i holding i. */
static void make_objects(struct bench_cluster *cluster, struct plasmon_ref **refs,
                         uint32_t count)
{
    const struct plasmon_shape shape = bench_shape(PLASMON_F64, 0, 0, 0);

    for (uint32_t i = 0; i < count; i++) {
        const plasmon_scalar_t value = {.f = i};

        refs[i] = bench_must_make(cluster, "fill", &shape, &value, 1, PLASMON_ANYWHERE);
    }
}

/* Ray's loop: one ref is taken off the list a call, until none is left. */
static void wait_refs(struct bench_tasks_run *run, struct plasmon_ref **refs)
{
    struct bench_row row = {.name      = "single_client_wait_1k_refs",
                            .unit      = "ms",
                            .reference = "195 ms",
                            .note      = "one is taken off a call, until none is left"};
    int *ready           = bench_must_alloc(WAIT_REFS * sizeof(*ready));
    uint64_t began       = pl_now_ns();

    for (uint32_t i = 0; i < WAIT_REFS; i++) {
        refs[i] =
            bench_must_task(&run->cluster, "noop", NULL, 0, NULL, 0, PLASMON_ANYWHERE);
    }
    for (uint32_t left = WAIT_REFS; left > 0; left--) {
        uint32_t i = 0;

        bench_must(
            &run->cluster,
            plasmon_wait(run->cluster.client, refs, left, 1, PLASMON_FOREVER, ready, NULL),
            "waiting");
        while (i < left && ready[i] == 0) {
            i++;
        }
        if (i == left || ready[i] != 1) {
            bench_die("a wait for one of %u refs returned without a good one", left);
        }
        bench_must_release(&run->cluster, &refs[i], 1);
        refs[i] = refs[left - 1];
    }
    row.value = seconds_since(began) * 1e3;
    bench_report_add(&run->report, &row);
    pl_free(ready);
}

/* One wait for parts of one array, each of which a task of its own writes. `refs` has room for them. */
static void wait_parts(struct bench_tasks_run *run, struct plasmon_ref **refs,
                       const char *name, uint32_t count)
{
    const struct plasmon_shape shape = bench_shape(PLASMON_F64, 1, count, 0);
    const plasmon_scalar_t value     = {.f = 0};
    const int64_t one                = 1;
    struct bench_row row = {.unit = "ms", .note = "a task writes each; then one wait"};
    struct plasmon_ref *all, *task;
    uint64_t began;

    all = bench_must_make(&run->cluster, "fill", &shape, &value, 1, PLASMON_ANYWHERE);
    bench_must_wait(&run->cluster, &all, 1);
    began = pl_now_ns();
    for (uint32_t i = 0; i < count; i++) {
        const int64_t start       = i;
        const plasmon_scalar_t of = {.f = i};
        struct plasmon_arg arg    = {.mode = PLASMON_OUT};

        bench_must(&run->cluster,
                   plasmon_view(run->cluster.client, all, &start, &one, NULL, &refs[i]),
                   "a view");
        arg.ref = refs[i];
        task    = bench_must_task(&run->cluster, "fill", &arg, 1, &of, 1, PLASMON_ANYWHERE);
        bench_must_release(&run->cluster, &task, 1);
    }
    bench_must_wait(&run->cluster, refs, count);
    row.value = seconds_since(began) * 1e3;
    (void)snprintf(row.name, sizeof(row.name), "%s", name);
    bench_report_add(&run->report, &row);
    bench_must_release(&run->cluster, refs, count);
    bench_must_release(&run->cluster, &all, 1);
}

static void many_arguments(struct bench_tasks_run *run, struct plasmon_ref **refs)
{
    struct bench_row row     = {.name = "single_client_get_object_containing_10k_refs",
                                .unit = "ms",
                                .note = "our nearest: a task with 10,000 arguments"};
    struct bench_row whole   = {.name      = "task_with_10k_arguments",
                                .unit      = "ms",
                                .reference = "17200 ms",
                                .note      = "with the making of the 10,000 arguments"};
    struct plasmon_arg *args = bench_must_alloc(MANY_REFS * sizeof(*args));
    uint64_t began           = pl_now_ns(), submitted;
    struct plasmon_ref *task;

    make_objects(&run->cluster, refs, MANY_REFS);
    bench_must_wait(&run->cluster, refs, MANY_REFS);
    submitted = pl_now_ns();
    for (uint32_t i = 0; i < MANY_REFS; i++) {
        args[i] = (struct plasmon_arg){.mode = PLASMON_IN, .ref = refs[i]};
    }
    task =
        bench_must_task(&run->cluster, "touch", args, MANY_REFS, NULL, 0, PLASMON_ANYWHERE);
    bench_must_wait(&run->cluster, &task, 1);
    row.value   = seconds_since(submitted) * 1e3;
    whole.value = seconds_since(began) * 1e3;
    bench_report_add(&run->report, &row);
    bench_report_add(&run->report, &whole);
    bench_must_release(&run->cluster, &task, 1);
    pl_free(args);
}

/* Uses and releases the objects of many_arguments(). */
static void many_gets(struct bench_tasks_run *run, struct plasmon_ref **refs)
{
    struct bench_row row = {.name      = "get_10k_objects",
                            .unit      = "ms",
                            .reference = "23500 ms",
                            .note      = "one after the other, 8 bytes each, all checked"};
    uint64_t began       = pl_now_ns();

    for (uint32_t i = 0; i < MANY_REFS; i++) {
        double got = -1;

        bench_must(
            &run->cluster,
            plasmon_get(run->cluster.client, refs[i], &got, sizeof(got), PLASMON_FOREVER),
            "getting");
        if (got != i) {
            bench_die("object number %u holds %g", i, got);
        }
    }
    row.value = seconds_since(began) * 1e3;
    bench_report_add(&run->report, &row);
    bench_must_release(&run->cluster, refs, MANY_REFS);
}

static void many_returns(struct bench_tasks_run *run, struct plasmon_ref **refs)
{
    struct bench_row row = {.name      = "3k_returns",
                            .unit      = "ms",
                            .reference = "5700 ms",
                            .note = "our nearest: 3,000 outputs of 3,000 fills, all there"};
    uint64_t began       = pl_now_ns();

    make_objects(&run->cluster, refs, RETURN_REFS);
    bench_must_wait(&run->cluster, refs, RETURN_REFS);
    row.value = seconds_since(began) * 1e3;
    bench_report_add(&run->report, &row);
    bench_must_release(&run->cluster, refs, RETURN_REFS);
}

/*
 * Readers of an object that a long task holds: none can run while they are submitted. Each also
 * reads its group's object, whose last writer runs after all of the group, so the refs of the
 * writers stand for all. (Groups, because one message names at most WIRE_ARGS_MAX launches to wait
 * for.)
 */
struct queue {
    struct plasmon_ref *held, *first;
    struct plasmon_ref **group, **last;
    uint32_t groups;
};

static struct plasmon_ref *spin(struct bench_cluster *cluster, struct plasmon_ref *ref,
                                int64_t microseconds)
{
    const struct plasmon_arg arg      = {.mode = PLASMON_INOUT, .ref = ref};
    const plasmon_scalar_t scalars[1] = {{.i = microseconds}};

    return bench_must_task(cluster, "spin", &arg, 1, scalars, 1, PLASMON_ANYWHERE);
}

static void queue_fill(struct bench_tasks_run *run, struct queue *queue)
{
    for (uint32_t i = 0; i < run->scale_tasks; i++) {
        const struct plasmon_arg args[2] = {
            {.mode = PLASMON_IN, .ref = queue->held},
            {.mode = PLASMON_IN, .ref = queue->group[i / GROUP_TASKS]}};
        struct plasmon_call call = PLASMON_CALL_INIT;

        call.function  = "touch";
        call.args      = args;
        call.arg_count = 2;
        bench_must(&run->cluster, plasmon_submit(run->cluster.client, &call, NULL, NULL),
                   "touch");
        if (i % 250000 == 249999) {
            bench_say("%u tasks submitted", i + 1);
        }
    }
    for (uint32_t i = 0; i < queue->groups; i++) {
        queue->last[i] = spin(&run->cluster, queue->group[i], 0);
    }
    bench_must(&run->cluster, plasmon_flush(run->cluster.client), "flushing");
}

static void queued(struct bench_tasks_run *run)
{
    struct bench_row row    = {.name      = "queued_tasks",
                               .unit      = "s",
                               .x         = run->scale_tasks,
                               .reference = "184 s (10^6)",
                               .note      = "submitted while none can run, until all ran"};
    struct bench_row submit = {
        .name = "queued_tasks_submit", .unit = "1/s", .x = run->scale_tasks};
    struct queue queue = {.groups = (run->scale_tasks + GROUP_TASKS - 1) / GROUP_TASKS};
    struct bench_status status;
    uint64_t began;

    queue.group = bench_must_alloc(queue.groups * sizeof(*queue.group));
    queue.last  = bench_must_alloc(queue.groups * sizeof(*queue.last));
    make_objects(&run->cluster, &queue.held, 1);
    make_objects(&run->cluster, queue.group, queue.groups);
    queue.first = spin(&run->cluster, queue.held, HOLD_US);
    began       = pl_now_ns();
    queue_fill(run, &queue);
    submit.value = run->scale_tasks / seconds_since(began);
    bench_must_status(&run->cluster, &status);
    (void)snprintf(submit.note, sizeof(submit.note), "%llu were in the queue then",
                   (unsigned long long)status.tasks_queued);
    bench_must_wait(&run->cluster, queue.last, queue.groups);
    row.value = seconds_since(began);
    bench_report_add(&run->report, &submit);
    bench_report_add(&run->report, &row);
    if (status.task_bytes > 0) {
        bench_report_add(&run->report,
                         &(struct bench_row){.name  = "head_memory_per_queued_task",
                                             .unit  = "bytes",
                                             .value = (double)status.task_bytes});
    } else {
        bench_report_remark(&run->report,
                            "head_memory_per_queued_task: the status gives no figure");
    }
    bench_must_release(&run->cluster, &queue.first, 1);
    bench_must_release(&run->cluster, &queue.held, 1);
    bench_must_release(&run->cluster, queue.last, queue.groups);
    bench_must_release(&run->cluster, queue.group, queue.groups);
    pl_free(queue.group);
    pl_free(queue.last);
}

void bench_tasks_scale(struct bench_tasks_run *run)
{
    struct plasmon_ref **refs = bench_must_alloc(MANY_REFS * sizeof(struct plasmon_ref *));

    wait_refs(run, refs);
    wait_parts(run, refs, "wait_1k_parts_of_an_array", WAIT_REFS);
    wait_parts(run, refs, "wait_4k_parts_of_an_array", 4 * WAIT_REFS);
    many_arguments(run, refs);
    many_gets(run, refs);
    many_returns(run, refs);
    if (run->scale_tasks > 0) {
        queued(run);
    } else {
        bench_report_remark(&run->report, "queued_tasks: only with --scale");
    }
    pl_free(refs);
}
