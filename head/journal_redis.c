/*
 * Talking to Redis, or what speaks its protocol (5 or later): the connection, the scripts, and what
 * an error of the server means for the head.
 *
 *   <prefix>term        a number: of the last head that took the lease
 *   <prefix>lease       its owner, while it is alive: expires
 *   <prefix>log         a list of batches
 *   <prefix>first       number of the first batch of the list, from 0
 *   <prefix>checkpoint  what comes before the list; need not be there
 *
 * All that changes something is a script, so it is checked there where the data is, in one step: a
 * term that is not the last one is FENCED, and when there is none, or an older one, the data is
 * gone (LACKING): somebody emptied the database, or put an older one in its place. A log without a
 * term is what is left of more (TORN).
 *
 * ONE COMMAND THAT WRITES in each script but the checkpoint's. A server stores what a script did as
 * that command then, otherwise as a transaction; and one whose user "default" has no rights leaves
 * transactions out, without an error, when it reads its append-only file (Redis before the end of
 * 2025, Valkey before the middle of 2026). A term, a batch or a lease that is stored by itself is
 * there. A checkpoint that is left out is harmless: the one before it is there, with the log that
 * it was to replace, and their numbers are the same.
 */
#include "head/journal_int.h"

#include <poll.h>

enum { CONNECT_MS = 5000, ANSWER_MS = 30000, KEYS = 5 };

#define CHECK_TERM                                      \
    "local last = redis.call('GET', KEYS[1]) "          \
    "if last ~= ARGV[1] then return redis.error_reply(" \
    "  tonumber(last or '0') > tonumber(ARGV[1]) and 'FENCED' or 'LACKING') end "

/* KEYS: term lease log first checkpoint. */
static const char *const scripts[HEAD_SCRIPTS] = {
    /* owner, wait -> term, or -ms of the other's lease. The lease is to be taken then, as it is renewed */
    [HEAD_SCRIPT_ACQUIRE] =
        "local owner = redis.call('GET', KEYS[2]) "
        "if ARGV[2] == '1' and owner and owner ~= ARGV[1] then "
        "  return {-math.max(redis.call('PTTL', KEYS[2]), 1), owner} end "
        "if not redis.call('GET', KEYS[1]) and "
        "  (redis.call('GET', KEYS[4]) or redis.call('LLEN', KEYS[3]) > 0) then "
        "  return redis.error_reply('TORN') end "
        "return {redis.call('INCR', KEYS[1]), owner or ''}",
    /* term, first number, batches -> end of the list */
    [HEAD_SCRIPT_APPEND] = CHECK_TERM
    "local have = tonumber(redis.call('GET', KEYS[4]) or '0') + redis.call('LLEN', "
    "KEYS[3]) "
    "local first = tonumber(ARGV[2]) "
    "local at = 3 + have - first "
    "if have < first or at > #ARGV then return have end "
    "redis.call('RPUSH', KEYS[3], unpack(ARGV, at)) "
    "return first + #ARGV - 2",
    [HEAD_SCRIPT_CHECKPOINT] = /* term, number that it has, bytes */
    CHECK_TERM "redis.call('SET', KEYS[5], ARGV[3]) "
               "redis.call('DEL', KEYS[3]) "
               "redis.call('SET', KEYS[4], ARGV[2]) "
               "return tonumber(ARGV[2])",
    [HEAD_SCRIPT_RENEW] = /* term, owner, lease_ms */
    (CHECK_TERM "redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3]) return 1"),
    [HEAD_SCRIPT_RELEASE] = /* term */
    "if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[2]) end return 1",
};

const char *head_redis_where(const struct head_journal *journal,
                             char out[HEAD_JOURNAL_AT_MAX])
{
    if (journal->path[0] != '\0') {
        (void)snprintf(out, HEAD_JOURNAL_AT_MAX, "unix:%s", journal->path);
    } else {
        (void)snprintf(out, HEAD_JOURNAL_AT_MAX, "%s:%d", journal->host, journal->port);
    }
    return out;
}

const char *head_journal_where(const struct head_journal *journal,
                               char out[HEAD_JOURNAL_WHERE_MAX])
{
    char at[HEAD_JOURNAL_AT_MAX];

    (void)snprintf(out, HEAD_JOURNAL_WHERE_MAX, "database %d of Redis at %s, prefix '%s',",
                   journal->db, head_redis_where(journal, at), journal->prefix);
    return out;
}

void head_redis_disconnect(struct head_journal *journal)
{
    if (journal->redis != NULL) {
        redisFree(journal->redis);
        journal->redis = NULL;
        journal->asked = false;
    }
}

/*
 * What an error of the server means. EAGAIN: it may be over soon; EAUTH, EPERM, ENOSPC, EVERSION,
 * EMALFORMED: it will not go away. EHEADLOST: another head goes on.
 */
static plasmon_status_t server_error(const struct head_journal *journal, const char *text,
                                     struct pl_err *err)
{
    char at[HEAD_JOURNAL_AT_MAX];

    (void)head_redis_where(journal, at);
    if (strstr(text, "FENCED") != NULL) {
        return pl_err_set(err, PLASMON_EHEADLOST,
                          "another head goes on with the journal in Redis at %s; this one "
                          "(term %" PRIu64 ") ends",
                          at, journal->term);
    }
    if (strstr(text, "LACKING") != NULL) {
        char what[HEAD_JOURNAL_WHERE_MAX];

        return pl_err_set(
            err, PLASMON_ELOST,
            "%s has not what this head stored there: it was emptied (FLUSHALL?), "
            "or older data was put in its place. This head ends rather than go on "
            "beside it; one that is started now begins a new cluster, unless the "
            "data is put back first",
            head_journal_where(journal, what));
    }
    if (strstr(text, "TORN") != NULL) {
        char what[HEAD_JOURNAL_WHERE_MAX];

        return pl_err_set(err, PLASMON_ELOST,
                          "%s has a log and no term, so that Redis has lost some of what "
                          "was stored there (its own log may say when). Put it back from a "
                          "copy, or begin anew with another prefix",
                          head_journal_where(journal, what));
    }
    if (strncmp(text, "WRONGPASS", 9) == 0 || strncmp(text, "NOAUTH", 6) == 0 ||
        strncmp(text, "ERR AUTH", 8) == 0 ||
        strncmp(text, "ERR invalid password", 20) == 0 ||
        strncmp(text, "ERR Client sent AUTH", 20) == 0) {
        return pl_err_set(err, PLASMON_EAUTH,
                          "Redis at %s refuses the user or the password (%.100s); give the "
                          "user in --journal and the password in --journal-password-file",
                          at, text);
    }
    if (strstr(text, "NOPERM") != NULL || strstr(text, "can't run this command") != NULL) {
        return pl_err_set(err, PLASMON_EPERM,
                          "Redis at %s does not allow its user '%s' what a journal needs "
                          "(%.150s); see docs/journal.md for the rules of its ACL",
                          at, journal->user[0] != '\0' ? journal->user : "default", text);
    }
    if (strstr(text, "OOM ") != NULL) {
        return pl_err_set(
            err, PLASMON_ENOSPC,
            "Redis at %s is at its maxmemory and stores nothing more; give it "
            "more (its policy must be noeviction)",
            at);
    }
    if (strstr(text, "MISCONF") != NULL) {
        return pl_err_set(err, PLASMON_ENOSPC,
                          "Redis at %s cannot write to its disk and stores nothing more: "
                          "%.200s",
                          at, text);
    }
    if (strstr(text, "READONLY") != NULL) {
        return pl_err_set(
            err, PLASMON_EPERM,
            "Redis at %s is a replica and stores nothing; give the address of "
            "its master",
            at);
    }
    if (strncmp(text, "LOADING", 7) == 0 || strncmp(text, "BUSY", 4) == 0 ||
        strncmp(text, "MASTERDOWN", 10) == 0 || strncmp(text, "TRYAGAIN", 8) == 0) {
        return pl_err_set(err, PLASMON_EAGAIN, "Redis at %s: %.200s", at, text);
    }
    return pl_err_set(err, PLASMON_EIO, "Redis at %s: %.300s", at, text);
}

/* The answer, the caller's; NULL: *err. */
static redisReply *answer_check(struct head_journal *journal, redisReply *reply,
                                struct pl_err *err)
{
    char at[HEAD_JOURNAL_AT_MAX];

    if (reply == NULL) {
        (void)pl_err_set(err, PLASMON_EAGAIN, "the connection to Redis at %s broke: %.200s",
                         head_redis_where(journal, at),
                         journal->redis->errstr[0] != '\0' ? journal->redis->errstr
                                                           : "no answer in time");
        head_redis_disconnect(journal);
        return NULL;
    }
    if (reply->type == REDIS_REPLY_ERROR) {
        (void)server_error(journal, reply->str, err);
        if (strncmp(reply->str, "NOSCRIPT", 8) == 0) { /* told at the next connection */
            err->status = PLASMON_EAGAIN;
            head_redis_disconnect(journal);
        }
        freeReplyObject(reply);
        return NULL;
    }
    return reply;
}

redisReply *head_redis_call(struct head_journal *journal, int argc, const char **argv,
                            const size_t *lengths, struct pl_err *err)
{
    return answer_check(journal, redisCommandArgv(journal->redis, argc, argv, lengths),
                        err);
}

static plasmon_status_t login(struct head_journal *journal, struct pl_err *err)
{
    const char *auth[] = {"AUTH", journal->user, journal->password};
    char db[16];
    const char *select[] = {"SELECT", db};
    redisReply *reply;

    if (journal->password[0] != '\0') {
        bool named = journal->user[0] != '\0';

        if (!named) {
            auth[1] = journal->password;
        }
        reply = head_redis_call(journal, named ? 3 : 2, auth, NULL, err);
        if (reply == NULL) {
            return err->status;
        }
        freeReplyObject(reply);
    }
    if (journal->db != 0) {
        (void)snprintf(db, sizeof(db), "%d", journal->db);
        reply = head_redis_call(journal, 2, select, NULL, err);
        if (reply == NULL) {
            return err->status;
        }
        freeReplyObject(reply);
    }
    return PLASMON_OK;
}

static plasmon_status_t scripts_load(struct head_journal *journal, struct pl_err *err)
{
    for (int i = 0; i < HEAD_SCRIPTS; i++) {
        const char *load[] = {"SCRIPT", "LOAD", scripts[i]};
        redisReply *reply  = head_redis_call(journal, 3, load, NULL, err);

        if (reply == NULL) {
            return err->status;
        }
        (void)snprintf(journal->sha[i], sizeof(journal->sha[i]), "%s", reply->str);
        freeReplyObject(reply);
    }
    return PLASMON_OK;
}

plasmon_status_t head_redis_connect(struct head_journal *journal, struct pl_err *err)
{
    struct timeval limit  = {.tv_sec = CONNECT_MS / 1000};
    struct timeval answer = {.tv_sec = ANSWER_MS / 1000};
    char at[HEAD_JOURNAL_AT_MAX];
    plasmon_status_t status;

    head_redis_disconnect(journal);
    journal->redis = journal->path[0] != '\0'
                         ? redisConnectUnixWithTimeout(journal->path, limit)
                         : redisConnectWithTimeout(journal->host, journal->port, limit);
    if (journal->redis == NULL || journal->redis->err != 0) {
        status =
            pl_err_set(err, PLASMON_EAGAIN,
                       "no connection to Redis at %s: %.200s; is redis-server running, and "
                       "listening there?",
                       head_redis_where(journal, at),
                       journal->redis != NULL ? journal->redis->errstr : "out of memory");
        head_redis_disconnect(journal);
        return status;
    }
    (void)redisSetTimeout(journal->redis, answer);
    if (journal->path[0] == '\0') {
        (void)redisEnableKeepAlive(journal->redis);
    }
    status = login(journal, err);
    if (status == PLASMON_OK) {
        status = scripts_load(journal, err);
    }
    if (status != PLASMON_OK) {
        head_redis_disconnect(journal);
    }
    return status;
}

/* EVALSHA with our keys and the arguments. */
bool head_redis_ask(struct head_journal *journal, enum head_script script, size_t count,
                    const char **arguments, const size_t *lengths)
{
    size_t argc       = 3 + KEYS + count;
    const char **argv = PL_NEW_N(const char *, argc);
    size_t *bytes     = PL_NEW_N(size_t, argc);
    int done          = 0;

    PL_CHECK(argv != NULL && bytes != NULL);
    argv[0] = "EVALSHA";
    argv[1] = journal->sha[script];
    argv[2] = "5";
    for (size_t i = 0; i < KEYS; i++) {
        argv[3 + i] = journal->keys[i];
    }
    for (size_t i = 0; i < 3 + KEYS; i++) {
        bytes[i] = strlen(argv[i]);
    }
    for (size_t i = 0; i < count; i++) {
        argv[3 + KEYS + i] = arguments[i];
        bytes[3 + KEYS + i] =
            lengths != NULL && lengths[i] != 0 ? lengths[i] : strlen(arguments[i]);
    }
    if (redisAppendCommandArgv(journal->redis, (int)argc, argv, bytes) == REDIS_OK) {
        while (done == 0 && redisBufferWrite(journal->redis, &done) == REDIS_OK) {
        }
    }
    pl_free(argv);
    pl_free(bytes);
    journal->asked = done != 0;
    if (done == 0) {
        head_redis_disconnect(journal);
    }
    return done != 0;
}

redisReply *head_redis_answer(struct head_journal *journal, struct pl_err *err)
{
    void *reply = NULL;

    journal->asked = false;
    if (redisGetReply(journal->redis, &reply) != REDIS_OK) {
        reply = NULL;
    }
    return answer_check(journal, reply, err);
}

bool head_redis_answers(struct head_journal *journal, uint64_t wait_ns)
{
    struct pollfd fd      = {.fd = journal->redis->fd, .events = POLLIN};
    struct timespec limit = {.tv_nsec = (long)wait_ns};

    return ppoll(&fd, 1, &limit, NULL) == 1;
}

redisReply *head_redis_run(struct head_journal *journal, enum head_script script,
                           size_t count, const char **arguments, const size_t *lengths,
                           struct pl_err *err)
{
    char at[HEAD_JOURNAL_AT_MAX];

    if (!head_redis_ask(journal, script, count, arguments, lengths)) {
        (void)pl_err_set(err, PLASMON_EAGAIN, "the connection to Redis at %s broke",
                         head_redis_where(journal, at));
        return NULL;
    }
    return head_redis_answer(journal, err);
}
