/* In which order the tasks of a frame get their numbers: by priority, where that changes no result. */
#include "head/core_int.h"
#include "tests/harness/test.h"

enum { TASKS_MAX = 16 };

static struct {
    Plasmon__V1__Task task[TASKS_MAX];
    Plasmon__V1__Arg arg[TASKS_MAX][2];
    Plasmon__V1__Arg *args[TASKS_MAX][2];
    Plasmon__V1__Task *tasks[TASKS_MAX];
    size_t count;
} frame;

static Plasmon__V1__Task *add(int32_t priority, uint64_t writes, uint64_t reads)
{
    size_t i                = frame.count++;
    Plasmon__V1__Task *task = &frame.task[i];

    plasmon__v1__task__init(task);
    for (size_t k = 0; k < 2; k++) {
        plasmon__v1__arg__init(&frame.arg[i][k]);
        frame.args[i][k] = &frame.arg[i][k];
    }
    frame.arg[i][0].mode = PLASMON__V1__MODE__MODE_INOUT;
    frame.arg[i][0].ref  = writes;
    frame.arg[i][1].mode = PLASMON__V1__MODE__MODE_IN;
    frame.arg[i][1].ref  = reads;
    task->id             = i + 1;
    task->priority       = priority;
    task->args           = frame.args[i];
    task->n_args         = 2;
    frame.tasks[i]       = task;
    return task;
}

static const char *ordered(void)
{
    static char text[128];
    size_t length = 0;

    head_priority_order(frame.tasks, frame.count);
    for (size_t i = 0; i < frame.count; i++) {
        length += (size_t)snprintf(text + length, sizeof(text) - length, "%llu ",
                                   (unsigned long long)frame.tasks[i]->id);
    }
    frame.count = 0;
    return text;
}

TEST(independent_tasks_go_by_priority_and_otherwise_as_they_came)
{
    add(0, 10, 20);
    add(-1, 11, 20);
    add(0, 12, 20);
    add(1, 13, 20);
    add(-1, 14, 20);
    add(1, 15, 20);
    ASSERT_STR(ordered(), "4 6 1 3 2 5 ");
}

TEST(a_task_passes_nothing_that_it_needs)
{
    add(0, 10, 20);
    add(0, 11, 20);
    add(1, 12, 10); /* reads what 1 writes: before 2, not before 1 */
    ASSERT_STR(ordered(), "1 3 2 ");
}

TEST(a_task_passes_nothing_that_needs_what_it_writes)
{
    add(0, 10, 20);
    add(0, 11, 12); /* reads 12 as it was */
    add(1, 12, 20);
    ASSERT_STR(ordered(), "1 2 3 ");
}

TEST(two_writers_of_one_ref_keep_their_order)
{
    add(-1, 10, 20);
    add(1, 10, 20);
    ASSERT_STR(ordered(), "1 2 ");
}

TEST(nothing_passes_a_put_a_snapshot_or_a_graph)
{
    add(0, 10, 20);
    add(0, 11, 20)->kind = PLASMON__V1__TASK_KIND__TASK_SNAPSHOT;
    add(1, 12, 20);
    ASSERT_STR(ordered(), "1 2 3 ");
    add(0, 10, 20)->graph = 7;
    add(1, 12, 20);
    ASSERT_STR(ordered(), "1 2 ");
}

TEST(one_priority_changes_nothing)
{
    for (uint64_t i = 0; i < TASKS_MAX; i++) {
        add(1, 10 + i, 40);
    }
    ASSERT_STR(ordered(), "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 ");
}

TEST_MAIN()
