/*
 * Storing batches, in order.
 *
 * A BATCH ALONE. When the head has nothing else to do - which is when it commits - and a small
 * batch finds nobody at the connection, the loop sends it itself and waits for the answer, for a
 * moment at most. Waking a thread, and being woken by it, costs several times what Redis takes.
 *
 * GROUP COMMIT. Else a thread of its own takes all batches that have come since it last looked and
 * sends them in one call of a script. While the answer is on its way, the next ones collect. So a
 * burst of any size costs two round trips at most, and a slow server makes batches larger and not
 * more. The thread also has what takes time: answers that the loop did not wait for, trouble with
 * the server, renewing the lease.
 *
 * TURNS. The connection, the batches that are kept, and all that is known of the server belong to
 * whose turn it is. Both take their turn under the lock and the loop gives it back before it goes
 * on, so batches are sent in order: the loop sends none while some wait for the thread.
 *
 * EACH APPEND IS CHECKED there where the list is, in one step: the term is still ours (else FENCED:
 * another head goes on, and this one ends), and the list ends where we think. It may be longer,
 * when the answer to our last call was lost with a connection: what is there already is skipped. It
 * may be shorter, when a server that syncs once a second was killed: the batches of the last
 * KEEP_NS are kept here and appended again. If it lacks more than that, what was acknowledged is
 * lost, and the head ends rather than go on beside the truth.
 *
 * Threads: append, checkpoint, stored, figures by the head's loop; start and stop by main, while
 * the loop does not run.
 */
#include "head/journal_int.h"

#include "base/thread.h"

enum {
    BACKOFF_MS_MAX   = 1000,
    CALL_BATCHES_MAX = 256,
    CALL_BYTES_MAX   = 16 << 20,
    LOOP_BYTES_MAX   = 4096,   /* more comes of a stream, which wants no waiting */
    LOOP_WAIT_NS     = 400000, /* a Redis that is not busy answers in a tenth of it */
    LOOP_IMPATIENT   = 64,     /* batches, after one that was not answered in that time */
};
#define KEEP_NS        (UINT64_C(5) * 1000 * 1000 * 1000)
#define KEEP_BYTES_MAX (UINT64_C(256) << 20)

void head_journal_batch_drop(struct head_batch *batch)
{
    pl_list_remove(&batch->link);
    pl_free(batch);
}

/* Kept for a server that forgets the last second. */
static void kept_trim(struct head_journal *journal, uint64_t now_ns)
{
    while (!pl_list_empty(&journal->kept)) {
        struct head_batch *oldest = pl_list_first(&journal->kept, struct head_batch, link);

        if (now_ns - oldest->stored_ns < KEEP_NS && journal->kept_bytes <= KEEP_BYTES_MAX) {
            break;
        }
        journal->kept_bytes -= oldest->length;
        head_journal_batch_drop(oldest);
    }
}

/* The first batches of `todo` are stored. */
static void keep(struct head_journal *journal, struct pl_list *todo, uint64_t end)
{
    uint64_t now_ns = pl_now_ns();
    struct head_batch *batch;

    while ((batch = pl_list_first(todo, struct head_batch, link)) != NULL &&
           batch->number < end) {
        if (batch->stored_ns == 0) {
            journal->stored++;
        }
        batch->stored_ns = now_ns;
        pl_list_remove(&batch->link);
        pl_list_add_tail(&journal->kept, &batch->link);
        journal->kept_bytes += batch->length;
    }
    kept_trim(journal, now_ns);
}

/* The answer to send_some(): where the list ends now. */
static plasmon_status_t hear(struct head_journal *journal, uint64_t *out_end,
                             struct pl_err *err)
{
    redisReply *reply = head_redis_answer(journal, err);

    if (reply == NULL) {
        return err->status;
    }
    *out_end = (uint64_t)reply->integer;
    freeReplyObject(reply);
    return PLASMON_OK;
}

/* One call's worth of batches, in order; a checkpoint goes alone. false: the connection broke. */
static bool send_some(struct head_journal *journal, const struct pl_list *todo)
{
    const struct head_batch *first = pl_container_of(todo->next, struct head_batch, link);
    const char *arguments[2 + CALL_BATCHES_MAX];
    size_t lengths[2 + CALL_BATCHES_MAX] = {0};
    char term[24], number[24];
    size_t count = 2, bytes = 0;
    const struct pl_list *pos;

    (void)snprintf(term, sizeof(term), "%" PRIu64, journal->term);
    (void)snprintf(number, sizeof(number), "%" PRIu64,
                   first->number + (first->checkpoint ? 1 : 0));
    arguments[0] = term;
    arguments[1] = number;
    pl_list_for_each(pos, todo) {
        const struct head_batch *batch = pl_container_of(pos, struct head_batch, link);

        if (batch != first && (batch->checkpoint || first->checkpoint ||
                               count == PL_COUNT(arguments) || bytes > CALL_BYTES_MAX)) {
            break;
        }
        arguments[count] = (const char *)batch->bytes;
        lengths[count++] = batch->length;
        bytes += batch->length;
    }
    return head_redis_ask(journal,
                          first->checkpoint ? HEAD_SCRIPT_CHECKPOINT : HEAD_SCRIPT_APPEND,
                          count, arguments, lengths);
}

/*
 * The server has forgotten batches that it said it had stored: all from number `end` on. Or it has
 * everything again from a checkpoint on.
 */
static plasmon_status_t put_back(struct head_journal *journal, struct pl_list *todo,
                                 uint64_t end, struct pl_err *err)
{
    char at[HEAD_JOURNAL_AT_MAX];
    bool whole = false;

    while (!whole && !pl_list_empty(&journal->kept)) {
        struct head_batch *batch =
            pl_container_of(journal->kept.prev, struct head_batch, link);

        whole = batch->number <= end || batch->checkpoint;
        if (batch->number >= end || batch->checkpoint) {
            journal->kept_bytes -= batch->length;
            pl_list_remove(&batch->link);
            pl_list_add_head(todo, &batch->link);
        }
    }
    if (!whole) {
        return pl_err_set(
            err, PLASMON_ELOST,
            "Redis at %s lost batches of the journal that it had stored, from number "
            "%" PRIu64
            " on; this head ends rather than go on beside it. Give Redis an append-only "
            "file; then end the cluster and begin anew with another prefix",
            head_redis_where(journal, at), end);
    }
    pl_warn("head",
            "Redis at %s forgot what it had stored last; it is told again from "
            "batch %" PRIu64 " on",
            head_redis_where(journal, at),
            pl_list_first(todo, struct head_batch, link)->number);
    return PLASMON_OK;
}

static plasmon_status_t work_once(struct head_journal *journal, struct pl_list *todo,
                                  struct pl_err *err)
{
    plasmon_status_t status = PLASMON_OK;
    uint64_t end            = 0;
    char at[HEAD_JOURNAL_AT_MAX];

    if (journal->redis == NULL) {
        status = head_redis_connect(journal, err);
    }
    if (status == PLASMON_OK && pl_list_empty(todo)) {
        return head_journal_renewal_due(journal) ? head_journal_renew(journal, err)
                                                 : PLASMON_OK;
    }
    if (status == PLASMON_OK && !journal->asked && !send_some(journal, todo)) {
        status = pl_err_set(err, PLASMON_EAGAIN, "the connection to Redis at %s broke",
                            head_redis_where(journal, at));
    }
    if (status == PLASMON_OK) {
        status = hear(journal, &end, err);
    }
    if (status == PLASMON_OK &&
        end < pl_list_first(todo, struct head_batch, link)->number) {
        return put_back(journal, todo, end, err);
    }
    if (status == PLASMON_OK) {
        keep(journal, todo, end);
        journal->ops.stored(journal->user_data);
        status = head_journal_renewal_due(journal) ? head_journal_renew(journal, err)
                                                   : PLASMON_OK;
    }
    return status;
}

/* Trouble that may pass is borne for a while. */
static bool bear(struct head_journal *journal, const struct pl_err *err)
{
    uint64_t now_ns = pl_now_ns();

    if (err->status != PLASMON_EAGAIN && err->status != PLASMON_ENOSPC &&
        err->status != PLASMON_EIO) {
        return false;
    }
    if (journal->began_ns == 0) {
        journal->began_ns = now_ns;
        pl_warn("head", "%s; clients wait, for %u s at most", err->text,
                journal->patience_ms / 1000);
    }
    return now_ns - journal->began_ns < journal->patience_ms * UINT64_C(1000000);
}

/* Something to do for the thread, whose turn it could be. */
static bool due_locked(struct head_journal *journal, const struct pl_list *todo)
{
    pl_mutex_assert_held(&journal->lock);
    return journal->turn != HEAD_TURN_LOOP &&
           (!pl_list_empty(todo) || !pl_list_empty(&journal->waiting) || journal->closing ||
            head_journal_renewal_due(journal));
}

/*
 * What has come in goes behind `todo`, and it is the thread's turn. false: it is over. (At first the
 * turn may be the loop's, which has begun before this thread.)
 */
static bool collect(struct head_journal *journal, struct pl_list *todo)
{
    bool go_on;

    pl_mutex_lock(&journal->lock);
    if (journal->turn == HEAD_TURN_THREAD && pl_list_empty(todo)) {
        journal->turn = HEAD_TURN_NOBODY;
    }
    while (!due_locked(journal, todo)) {
        (void)pl_cond_wait_until(&journal->changed, &journal->lock,
                                 pl_now_ns() + journal->lease_ms * UINT64_C(1000000) / 6);
    }
    journal->turn = HEAD_TURN_THREAD;
    while (!pl_list_empty(&journal->waiting)) {
        struct pl_list *link = journal->waiting.next;

        pl_list_remove(link);
        pl_list_add_tail(todo, link);
    }
    go_on = !journal->closing || !pl_list_empty(todo);
    pl_mutex_unlock(&journal->lock);
    return go_on;
}

static void *work(void *user)
{
    struct head_journal *journal = user;
    uint64_t backoff_ms          = HEAD_JOURNAL_PAUSE_MS;
    struct pl_list todo;

    pl_list_init(&todo);
    while (collect(journal, &todo)) {
        struct pl_err err = {0};

        if (work_once(journal, &todo, &err) == PLASMON_OK) {
            if (journal->began_ns != 0) {
                pl_info("head", "Redis stores again");
            }
            journal->began_ns = 0;
            backoff_ms        = HEAD_JOURNAL_PAUSE_MS;
        } else if (bear(journal, &err)) {
            head_journal_pause(backoff_ms);
            backoff_ms = pl_min_u64(backoff_ms * 2, BACKOFF_MS_MAX);
        } else {
            journal->ops.lost(journal->user_data, &err);
        }
    }
    return NULL;
}

plasmon_status_t head_journal_start(struct head_journal *journal,
                                    const struct head_journal_ops *ops, void *user,
                                    struct pl_err *err)
{
    journal->ops       = *ops;
    journal->user_data = user;
    if (pthread_create(&journal->thread, NULL, work, journal) != 0) {
        return pl_err_set(err, PLASMON_ENOMEM, PL_THREAD_NONE_LEFT);
    }
    journal->started = true;
    return PLASMON_OK;
}

/* ----------------------------------------------------------------------------- the loop */

static struct head_batch *batch_make(struct head_journal *journal, bool checkpoint,
                                     const uint8_t *bytes, size_t length)
{
    struct head_batch *batch = pl_alloc(sizeof(*batch) + length);

    PL_CHECK(batch != NULL);
    *batch = (struct head_batch){
        .checkpoint = checkpoint, .length = length, .number = journal->number_last++};
    memcpy(batch->bytes, bytes, length);
    pl_list_init(&batch->link);
    return batch;
}

/* Is it a batch for which the loop had better wait, and is nobody else at it? Then it is the loop's turn. */
static bool take_turn(struct head_journal *journal, const struct head_batch *batch)
{
    bool taken = false;

    if (batch->checkpoint || batch->length > LOOP_BYTES_MAX ||
        batch->number < journal->patient_at) {
        return false;
    }
    pl_mutex_lock(&journal->lock);
    if (journal->turn == HEAD_TURN_NOBODY && pl_list_empty(&journal->waiting)) {
        journal->turn = HEAD_TURN_LOOP;
        taken         = true;
    }
    pl_mutex_unlock(&journal->lock);
    return taken;
}

/* Sent, and stored within a moment? Whatever else happens is the thread's business. */
static bool store_here(struct head_journal *journal, struct head_batch *batch)
{
    struct pl_err err = {0};
    struct pl_list todo;
    uint64_t end = 0;
    bool stored;

    if (journal->redis == NULL || journal->began_ns != 0) {
        return false;
    }
    pl_list_init(&todo);
    pl_list_add_tail(&todo, &batch->link);
    stored = send_some(journal, &todo) && head_redis_answers(journal, LOOP_WAIT_NS) &&
             hear(journal, &end, &err) == PLASMON_OK && end > batch->number;
    if (stored) {
        keep(journal, &todo, end);
    } else {
        pl_list_remove(&batch->link);
        journal->patient_at = batch->number + LOOP_IMPATIENT;
    }
    return stored;
}

static void give_turn(struct head_journal *journal)
{
    pl_mutex_lock(&journal->lock);
    journal->turn = HEAD_TURN_NOBODY;
    pl_mutex_unlock(&journal->lock);
}

/* It is for the thread, and nobody's turn. */
static void pass_on(struct head_journal *journal, struct head_batch *batch, bool was_here)
{
    pl_mutex_lock(&journal->lock);
    if (was_here) {
        journal->turn = HEAD_TURN_NOBODY;
    }
    pl_list_add_tail(&journal->waiting, &batch->link);
    pl_cond_broadcast(&journal->changed);
    pl_mutex_unlock(&journal->lock);
}

static void put(struct head_journal *journal, bool checkpoint, const uint8_t *bytes,
                size_t length)
{
    struct head_batch *batch = batch_make(journal, checkpoint, bytes, length);
    bool here                = take_turn(journal, batch);

    if (here && store_here(journal, batch)) {
        give_turn(journal);
    } else {
        pass_on(journal, batch, here);
    }
}

void head_journal_append(struct head_journal *journal, const uint8_t *bytes, size_t length)
{
    put(journal, false, bytes, length);
}

void head_journal_checkpoint(struct head_journal *journal, const uint8_t *bytes,
                             size_t length)
{
    put(journal, true, bytes, length);
}

uint64_t head_journal_stored(const struct head_journal *journal)
{
    return journal->stored;
}

void head_journal_stop(struct head_journal *journal)
{
    if (!journal->started) {
        return;
    }
    pl_mutex_lock(&journal->lock);
    journal->closing = true;
    pl_cond_broadcast(&journal->changed);
    pl_mutex_unlock(&journal->lock);
    pthread_join(journal->thread, NULL);
    journal->started = false;
}
