/*
 * Asynchronous gets where no device of this host can write our memory: a thread that gets them one
 * after the other, each from a snapshot of what was asked for, and ends its task. The task has a
 * number of ours that the head never hears of.
 *
 * The range stays in use until plasmon_get() has returned, also when the session died meanwhile and
 * the task with it: nobody unmaps what the thread may still be writing.
 */
#include "base/alloc.h"
#include "client/client_int.h"

struct relay_job {
    struct pl_list link;
    struct plasmon_ref *snapshot;
    struct host_use *use;
    uint64_t id;
};

static struct relay_job *job_take(struct plasmon_client *client)
{
    struct host_memory *memory = &client->memory;
    struct relay_job *job      = NULL;

    pl_mutex_lock(&client->lock);
    while (!memory->stop && pl_list_empty(&memory->jobs)) {
        pl_cond_wait(&memory->changed, &client->lock);
    }
    if (!pl_list_empty(&memory->jobs)) { /* those too that are left when it stops */
        job = pl_list_first(&memory->jobs, struct relay_job, link);
        pl_list_remove(&job->link);
    }
    pl_mutex_unlock(&client->lock);
    return job;
}

static void job_end_unlock(struct plasmon_client *client, struct relay_job *job,
                           plasmon_status_t status, const char *text)
{
    struct failure *failure = NULL;

    host_use_end(job->use);
    if (status != PLASMON_OK) {
        failure = refs_describe_failure(&client->refs, job->id, status, text, 0);
    }
    refs_resolve(&client->refs, job->id, failure);
    failure_release(failure);
    client_tell_ready_fd(client);
    pl_cond_broadcast(&client->session.changed); /* plasmon_finish() may wait for it */
    client_run_callbacks_unlock(client);
    pl_free(job);
}

static void *thread_main(void *user)
{
    struct plasmon_client *client = user;
    struct relay_job *job;

    while ((job = job_take(client)) != NULL) {
        const struct host_use *use = job->use;
        plasmon_status_t status =
            plasmon_get(client, job->snapshot, use->buffer->data + use->begin,
                        use->end - use->begin, PLASMON_FOREVER);
        struct pl_str text;

        pl_str_init(&text);
        pl_str_append(&text, "%s", plasmon_error(client));
        (void)plasmon_release(client, job->snapshot); /* ours: it is there */
        pl_mutex_lock(&client->lock);
        job_end_unlock(client, job, status, pl_str_text(&text));
        pl_str_finish(&text);
    }
    return NULL;
}

plasmon_status_t host_relay_locked(struct plasmon_client *client,
                                   struct plasmon_ref *snapshot, struct host_use *use,
                                   uint64_t id)
{
    struct host_memory *memory = &client->memory;
    struct relay_job *job      = PL_NEW(struct relay_job);

    if (job == NULL) {
        return PLASMON_ENOMEM;
    }
    if (!memory->started) {
        memory->started = pthread_create(&memory->thread, NULL, thread_main, client) == 0;
    }
    if (!memory->started) {
        pl_free(job);
        return PLASMON_ELIMIT;
    }
    *job = (struct relay_job){.snapshot = snapshot, .use = use, .id = id};
    pl_list_add_tail(&memory->jobs, &job->link);
    pl_cond_signal(&memory->changed);
    return PLASMON_OK;
}

/* The session is dead, so what is left fails at once. */
void host_relay_finish(struct plasmon_client *client)
{
    struct host_memory *memory = &client->memory;

    if (memory->started) {
        pl_mutex_lock(&client->lock);
        memory->stop = true;
        pl_cond_signal(&memory->changed);
        pl_mutex_unlock(&client->lock);
        (void)pthread_join(memory->thread, NULL); /* it is ours, and was started */
        memory->started = false;
    }
}
