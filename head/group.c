/*
 * Groups: several launches that are one task for their client (a launch of a recorded graph, a collective).
 *
 * The client is told once, when every part is resolved: well, or with the first failure that was
 * known. Failure among the parts spreads by what they read, as always (task.c); a group adds no
 * edge. A `whole` one fails as one: its other parts are doomed with the first that fails.
 *
 * `open` counts parts that are not resolved, and one for whoever is still starting more. `refs`
 * counts the parts that are not finished, and the same one.
 */
#include "head/core_int.h"

struct head_group *head_group_create(const struct head_core *core,
                                     struct head_client *client, uint64_t id)
{
    struct head_group *group = head_alloc(sizeof(*group));

    group->refs     = 1;
    group->open     = 1;
    group->client   = client;
    group->id       = id;
    group->begun_ns = head_times_now(core->config.times);
    pl_list_init(&group->tasks);
    PL_CHECK(pl_map_set(&client->groups, id, group) == PLASMON_OK);
    head_client_task_begun(client);
    return group;
}

void head_group_release(struct head_group *group)
{
    PL_CHECK(group->refs > 0);
    if (--group->refs > 0) {
        return;
    }
    PL_CHECK(group->open == 0 && pl_list_empty(&group->tasks));
    head_failure_release(group->failure);
    pl_free(group);
}

void head_group_add(struct head_group *group, struct head_task *task)
{
    task->group = group;
    group->refs++;
    group->open++;
    pl_list_add_tail(&group->tasks, &task->group_link);
}

void head_group_fail(struct head_group *group, struct head_failure *failure)
{
    if (group->failure == NULL) {
        group->failure = head_failure_hold(failure);
    }
}

void head_group_doom(struct head_core *core, struct head_group *group,
                     struct head_failure *failure)
{
    head_group_fail(group, failure);
    group->refs++;
    while (!pl_list_empty(&group->tasks)) { /* what is doomed is resolved, and leaves */
        head_task_doom(core, pl_list_first(&group->tasks, struct head_task, group_link),
                       group->failure);
    }
    head_group_release(group);
}

static void tell(struct head_core *core, struct head_group *group)
{
    struct head_client *client = group->client;

    if (group->begun_ns != 0) {
        head_times_add(&core->config.times->tasks, core->config.times, group->begun_ns);
    }
    if (group->failure != NULL) {
        core->tasks_failed++;
    } else {
        core->tasks_done++;
    }
    if (client == NULL) {
        return;
    }
    (void)pl_map_remove(&client->groups, group->id); /* was put in when it was created */
    head_client_task_over(client);
    group->client = NULL;
    if (group->failure != NULL) {
        head_client_failed(core, client, group->id, group->failure);
    } else {
        head_client_done(core, client, group->id);
    }
}

void head_group_resolved(struct head_core *core, struct head_group *group,
                         struct head_failure *failure)
{
    if (failure != NULL && group->whole && group->failure == NULL) {
        head_group_doom(core, group, failure);
    } else if (failure != NULL) {
        head_group_fail(group, failure);
    }
    PL_CHECK(group->open > 0);
    if (--group->open == 0) {
        tell(core, group);
    }
}

void head_group_close(struct head_core *core, struct head_group *group)
{
    head_group_resolved(core, group, NULL);
    head_group_release(group);
}

void head_group_cancel(struct head_core *core, struct head_group *group, bool force)
{
    group->refs++;
    /*
     * A part that is cancelled now leaves the list, and so may others that need its result: begin
     * anew after each.
     */
    for (struct pl_list *pos = group->tasks.next; pos != &group->tasks;) {
        struct head_task *task = pl_container_of(pos, struct head_task, group_link);

        if (force ? task->forced : task->cancelled) {
            pos = pos->next;
            continue;
        }
        head_task_cancel(core, task, force);
        pos = group->tasks.next;
    }
    head_group_release(group);
}

void head_groups_forget(struct head_client *client)
{
    uint64_t key;
    void *value;

    for (size_t i = 0; pl_map_next(&client->groups, &i, &key, &value);) {
        ((struct head_group *)value)->client = NULL;
    }
}
