/*
 * Priorities, before there are numbers. A launch keeps its place once it has one
 * (docs/ordering.md), so what can still be put in order are the tasks of one client's frame, which
 * come together and get their numbers one after the other.
 *
 * A task may go before an earlier one if that changes nothing: if they have no ref in common, but
 * for refs that both only read. (Two refs are two arrays; views of one array are one ref here, so
 * this is on the safe side. What a task makes is a ref that nothing before it can name.) Then the
 * versions that each of them sees are the same in both orders. Anything but a plain call - a put, a
 * snapshot, an index launch, recording or launching a graph - stays where it is, and nothing passes
 * it.
 *
 * So this is a bubble sort by priority in which only independent neighbours change places: it is
 * stable, and at worst leaves things as they are. Most frames have one priority; they cost a look
 * at each task.
 */
#include "head/core_int.h"

enum {
    PASS_MAX = 256
}; /* how many a task may pass: a frame of a client has about as many */

static bool plain(const Plasmon__V1__Task *task)
{
    return task->kind == PLASMON__V1__TASK_KIND__TASK_RUN && task->graph == 0 &&
           task->index == NULL;
}

static bool reads_only(const Plasmon__V1__Arg *arg)
{
    return arg->mode == PLASMON__V1__MODE__MODE_IN;
}

/* Two clients may own refs of the same number; taking those for one is on the safe side. */
static bool independent(const Plasmon__V1__Task *a, const Plasmon__V1__Task *b)
{
    for (size_t i = 0; i < a->n_args; i++) {
        for (size_t k = 0; k < b->n_args; k++) {
            if (a->args[i]->ref != 0 && a->args[i]->ref == b->args[k]->ref &&
                !(reads_only(a->args[i]) && reads_only(b->args[k]))) {
                return false;
            }
        }
    }
    return true;
}

static void move_forward(Plasmon__V1__Task **tasks, size_t index)
{
    Plasmon__V1__Task *task = tasks[index];

    for (size_t passed = 0; index > 0 && passed < PASS_MAX; index--, passed++) {
        if (!plain(tasks[index - 1]) || tasks[index - 1]->priority >= task->priority ||
            !independent(tasks[index - 1], task)) {
            break;
        }
        tasks[index]     = tasks[index - 1];
        tasks[index - 1] = task;
    }
}

void head_priority_order(Plasmon__V1__Task **tasks, size_t count)
{
    bool mixed = false;

    for (size_t i = 1; i < count && !mixed; i++) {
        mixed = tasks[i]->priority != tasks[i - 1]->priority;
    }
    for (size_t i = 1; mixed && i < count; i++) {
        if (plain(tasks[i])) {
            move_forward(tasks, i);
        }
    }
}
