/*
 * The journal's life: opened, the lease taken, read, closed. What is stored meanwhile: journal_commit.c.
 *
 * Threads: all of this is for main, before head_journal_start() and after head_journal_stop().
 */
#include "head/journal_int.h"

enum {
    LEASE_MS_DEFAULT    = 10000,
    PATIENCE_MS_DEFAULT = 60000,
    OPEN_MS             = 10000,
    READ_BATCHES        = 256,
    ASK_LEASE_MS        = 200,
};

void head_journal_pause(uint64_t ms)
{
    struct timespec pause = {.tv_sec  = (time_t)(ms / 1000),
                             .tv_nsec = (long)(ms % 1000) * 1000000};

    (void)nanosleep(&pause, NULL);
}

/* A server that keeps nothing over its own end is no journal; one that evicts is worse. */
static void look_at_server(struct head_journal *journal)
{
    const char *info[] = {"INFO", "persistence"};
    const char *conf[] = {"CONFIG", "GET", "maxmemory-policy"};
    const char *save[] = {"CONFIG", "GET", "save"};
    struct pl_err err  = {0};
    redisReply *reply  = head_redis_call(journal, 2, info, NULL, &err);
    bool aof           = true;
    char at[HEAD_JOURNAL_AT_MAX];

    (void)head_redis_where(journal, at);
    if (reply != NULL) {
        aof = reply->type == REDIS_REPLY_STRING &&
              strstr(reply->str, "aof_enabled:1") != NULL;
        freeReplyObject(reply);
    }
    if (!aof && journal->redis != NULL) {
        reply = head_redis_call(journal, 3, save, NULL, &err);
        pl_warn("head",
                "Redis at %s has no append-only file (%s): what it stores is lost when it "
                "ends. Set appendonly yes and appendfsync everysec or always",
                at,
                reply != NULL && reply->elements == 2 && reply->element[1]->len > 0
                    ? "snapshots only"
                    : "nor snapshots");
        if (reply != NULL) {
            freeReplyObject(reply);
        }
    }
    reply = journal->redis != NULL ? head_redis_call(journal, 3, conf, NULL, &err) : NULL;
    if (reply != NULL) {
        if (reply->elements == 2 && strcmp(reply->element[1]->str, "noeviction") != 0) {
            pl_warn("head",
                    "Redis at %s has maxmemory-policy %s, and may drop the journal; "
                    "set noeviction",
                    at, reply->element[1]->str);
        }
        freeReplyObject(reply);
    }
}

/* The server may be starting, as we are. */
static plasmon_status_t redis_connect_first(struct head_journal *journal,
                                            struct pl_err *err)
{
    uint64_t began_ns       = pl_now_ns();
    plasmon_status_t status = head_redis_connect(journal, err);

    if (status == PLASMON_EAGAIN) {
        pl_warn("head", "%s; asking again for %d s", err->text, OPEN_MS / 1000);
    }
    while (status == PLASMON_EAGAIN &&
           pl_now_ns() - began_ns < OPEN_MS * UINT64_C(1000000)) {
        head_journal_pause(HEAD_JOURNAL_PAUSE_MS * 5);
        status = head_redis_connect(journal, err);
    }
    return status;
}

plasmon_status_t head_journal_open(const struct head_journal_config *config,
                                   struct head_journal **out_journal, struct pl_err *err)
{
    static const char *const names[5] = {"term", "lease", "log", "first", "checkpoint"};
    struct head_journal *journal      = PL_NEW(struct head_journal);
    plasmon_status_t status;

    if (journal == NULL) {
        return pl_err_set(err, PLASMON_ENOMEM, "out of host memory");
    }
    status = head_journal_url(journal, config->url, err);
    if (status != PLASMON_OK) {
        goto err_free;
    }
    (void)snprintf(journal->password, sizeof(journal->password), "%s",
                   config->password != NULL ? config->password : "");
    (void)snprintf(journal->owner, sizeof(journal->owner), "%s", config->owner);
    journal->lease_ms = config->lease_ms != 0 ? config->lease_ms : LEASE_MS_DEFAULT;
    journal->patience_ms =
        config->patience_ms != 0 ? config->patience_ms : PATIENCE_MS_DEFAULT;
    for (size_t i = 0; i < 5; i++) {
        (void)snprintf(journal->keys[i], sizeof(journal->keys[i]), "%s%s", journal->prefix,
                       names[i]);
    }
    pl_list_init(&journal->waiting);
    pl_list_init(&journal->kept);
    status = pl_mutex_init(&journal->lock, PL_RANK_LEAF);
    if (status != PLASMON_OK) {
        goto err_free;
    }
    status = pl_cond_init(&journal->changed);
    if (status != PLASMON_OK) {
        goto err_finish_lock;
    }
    status = redis_connect_first(journal, err);
    if (status == PLASMON_OK) {
        look_at_server(journal);
    }
    if (status == PLASMON_OK && journal->redis == NULL) {
        status = head_redis_connect(journal, err);
    }
    if (status != PLASMON_OK) {
        goto err_finish_cond;
    }
    *out_journal = journal;
    return PLASMON_OK;

err_finish_cond:
    pl_cond_finish(&journal->changed);
err_finish_lock:
    pl_mutex_finish(&journal->lock);
err_free:
    pl_free(journal);
    return status;
}

bool head_journal_renewal_due(const struct head_journal *journal)
{
    return pl_now_ns() - journal->renewed_ns >= journal->lease_ms * UINT64_C(1000000) / 3;
}

plasmon_status_t head_journal_renew(struct head_journal *journal, struct pl_err *err)
{
    char lease[16], term[24];
    const char *arguments[] = {term, journal->owner, lease};
    redisReply *reply;

    (void)snprintf(lease, sizeof(lease), "%u", journal->lease_ms);
    (void)snprintf(term, sizeof(term), "%" PRIu64, journal->term);
    reply = head_redis_run(journal, HEAD_SCRIPT_RENEW, 3, arguments, NULL, err);
    if (reply == NULL) {
        return err->status;
    }
    journal->renewed_ns = pl_now_ns();
    freeReplyObject(reply);
    return PLASMON_OK;
}

/* EAGAIN: the other's lease still runs. */
static plasmon_status_t acquire_once(struct head_journal *journal, bool wait,
                                     struct pl_err *err)
{
    const char *arguments[2] = {journal->owner, wait ? "1" : "0"};
    plasmon_status_t status  = PLASMON_EAGAIN;
    redisReply *reply;
    long long term;

    if (journal->redis == NULL && head_redis_connect(journal, err) != PLASMON_OK) {
        return err->status;
    }
    reply = head_redis_run(journal, HEAD_SCRIPT_ACQUIRE, 2, arguments, NULL, err);
    if (reply == NULL) {
        return err->status;
    }
    term = reply->elements == 2 ? reply->element[0]->integer : 0;
    if (term > 0) {
        journal->term = (uint64_t)term;
        status        = head_journal_renew(journal, err);
        if (status == PLASMON_OK && reply->element[1]->len > 0 &&
            strcmp(reply->element[1]->str, journal->owner) != 0) {
            pl_warn("head", "takes the journal over from %s, which ends if it is alive",
                    reply->element[1]->str);
        }
    } else {
        (void)pl_err_set(err, PLASMON_EAGAIN, "%s has the lease",
                         reply->elements == 2 ? reply->element[1]->str : "?");
    }
    freeReplyObject(reply);
    /* Another one that stood by had the same idea at the same moment: then that one has it. */
    return status == PLASMON_EHEADLOST && wait ? PLASMON_EAGAIN : status;
}

/* Of a server that was well when we came: as what a head bears that has the lease (journal_commit.c). */
static bool may_pass(plasmon_status_t status)
{
    return status == PLASMON_ENOSPC || status == PLASMON_EIO;
}

plasmon_status_t head_journal_acquire(struct head_journal *journal, bool wait,
                                      bool (*go_on)(void *user), void *user,
                                      struct pl_err *err)
{
    plasmon_status_t status = acquire_once(journal, wait, err);
    bool told = false, full = false;

    while (wait && (status == PLASMON_EAGAIN || (told && may_pass(status)))) {
        if (!told) {
            pl_info("head", "stands by: %s", err->text);
            told = true;
        }
        if (status != PLASMON_EAGAIN && !full) {
            pl_warn("head", "%s; goes on standing by", err->text);
        }
        full = status != PLASMON_EAGAIN;
        if (!go_on(user)) {
            return pl_err_set(err, PLASMON_ECANCELLED, "asked to stop while standing by");
        }
        head_journal_pause(ASK_LEASE_MS);
        status = acquire_once(journal, wait, err);
    }
    if (status == PLASMON_OK) {
        pl_info("head", "has the journal, term %" PRIu64, journal->term);
    }
    return status;
}

/* ------------------------------------------------------------------------------ reading */

static redisReply *get(struct head_journal *journal, const char *key, struct pl_err *err)
{
    const char *argv[] = {"GET", key};

    return head_redis_call(journal, 2, argv, NULL, err);
}

static redisReply *range(struct head_journal *journal, uint64_t first, struct pl_err *err)
{
    char from[24], to[24];
    const char *argv[] = {"LRANGE", journal->keys[2], from, to};

    (void)snprintf(from, sizeof(from), "%" PRIu64, first);
    (void)snprintf(to, sizeof(to), "%" PRIu64, first + READ_BATCHES - 1);
    return head_redis_call(journal, 4, argv, NULL, err);
}

plasmon_status_t
head_journal_read(struct head_journal *journal,
                  plasmon_status_t (*fn)(void *user, bool checkpoint, const uint8_t *bytes,
                                         size_t length, struct pl_err *err),
                  void *user, struct pl_err *err)
{
    redisReply *reply       = get(journal, journal->keys[4], err);
    plasmon_status_t status = PLASMON_OK;
    uint64_t count          = 0;
    size_t taken            = READ_BATCHES;

    if (reply == NULL) {
        return err->status;
    }
    if (reply->type == REDIS_REPLY_STRING) {
        status = fn(user, true, (const uint8_t *)reply->str, (size_t)reply->len, err);
    }
    freeReplyObject(reply);
    while (status == PLASMON_OK && taken == READ_BATCHES) {
        reply = range(journal, count, err);
        if (reply == NULL) {
            return err->status;
        }
        taken = reply->elements;
        for (size_t i = 0; i < taken && status == PLASMON_OK; i++) {
            status = fn(user, false, (const uint8_t *)reply->element[i]->str,
                        (size_t)reply->element[i]->len, err);
            if (status == PLASMON_OK && head_journal_renewal_due(journal)) {
                status = head_journal_renew(journal, err); /* much is replayed for long */
            }
        }
        count += taken;
        freeReplyObject(reply);
    }
    if (status != PLASMON_OK) {
        return status;
    }
    reply = get(journal, journal->keys[3], err);
    if (reply == NULL) {
        return err->status;
    }
    journal->number_last =
        count + (reply->type == REDIS_REPLY_STRING ? strtoull(reply->str, NULL, 10) : 0);
    freeReplyObject(reply);
    return PLASMON_OK;
}

/* ------------------------------------------------------------------------------ closing */

static void lease_give_back(struct head_journal *journal)
{
    char term[24];
    const char *arguments[] = {term};
    struct pl_err err       = {0};

    (void)snprintf(term, sizeof(term), "%" PRIu64, journal->term);
    if (journal->redis != NULL && journal->term != 0) {
        redisReply *reply =
            head_redis_run(journal, HEAD_SCRIPT_RELEASE, 1, arguments, NULL, &err);

        if (reply != NULL) {
            freeReplyObject(reply);
        }
    }
}

void head_journal_close(struct head_journal *journal)
{
    if (journal == NULL) {
        return;
    }
    head_journal_stop(journal);
    lease_give_back(journal);
    head_redis_disconnect(journal);
    while (!pl_list_empty(&journal->kept)) {
        head_journal_batch_drop(pl_list_first(&journal->kept, struct head_batch, link));
    }
    pl_cond_finish(&journal->changed);
    pl_mutex_finish(&journal->lock);
    pl_free(journal);
}
