/*
 * The journal in Redis, or what speaks its protocol (5 or later).
 *
 *   <prefix>term        a number: of the last head that took the lease
 *   <prefix>lease       its owner, while it is alive: expires
 *   <prefix>log         a list of batches
 *   <prefix>first       number of the first batch of the list, from 0
 *   <prefix>checkpoint  what comes before the list; need not be there
 *
 * GROUP COMMIT. A thread of its own takes all batches that have come since it last looked and sends them in one call of a script. While the
 * answer is on its way, the next ones collect. So a burst of any size costs two round trips at most, and a slow server makes batches
 * larger and not more.
 *
 * EACH APPEND IS CHECKED there where the list is, in one step: the term is still ours (else FENCED: another head goes on, and this one ends),
 * and the list ends where we think. It may be longer, when the answer to our last call was lost with a connection: what is there already is
 * skipped. It may be shorter, when a server that syncs once a second was killed: the batches of the last KEEP_NS are kept here and
 * appended again. If it lacks more than that, what was acknowledged is lost, and the head ends rather than go on beside the truth.
 *
 * Threads: append, checkpoint, stored, figures by the head's loop; everything else before start() by main.
 */
#include "head/journal.h"

#include <errno.h>
#include <hiredis/hiredis.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/lock.h"
#include "base/log.h"

enum {
    LEASE_MS_DEFAULT    = 10000,
    PATIENCE_MS_DEFAULT = 60000,
    CONNECT_MS          = 5000,
    OPEN_MS             = 10000,
    ANSWER_MS           = 30000,
    BACKOFF_MS_MIN      = 20,
    BACKOFF_MS_MAX      = 1000,
    CALL_BATCHES_MAX    = 256,
    CALL_BYTES_MAX      = 16 << 20,
    READ_BATCHES        = 256,
    TEXT_MAX            = 256,
    ASK_LEASE_MS        = 200,
};
#define KEEP_NS        (UINT64_C(5) * 1000 * 1000 * 1000)
#define KEEP_BYTES_MAX (UINT64_C(256) << 20)

struct batch {
    struct pl_list link;
    uint64_t number; /* in the list of the server */
    uint64_t stored_ns;
    bool checkpoint;
    size_t length;
    uint8_t bytes[];
};

enum script {
    SCRIPT_ACQUIRE,
    SCRIPT_APPEND,
    SCRIPT_CHECKPOINT,
    SCRIPT_RENEW,
    SCRIPT_RELEASE,
    SCRIPTS
};

struct head_journal {
    /* Constant after open. */
    char host[TEXT_MAX];
    char path[TEXT_MAX]; /* "": host and port */
    int port;
    int db;
    char user[TEXT_MAX];
    char password[1024];
    char prefix[TEXT_MAX];
    char owner[TEXT_MAX];
    char keys[5][TEXT_MAX + 16];
    uint32_t lease_ms;
    uint32_t patience_ms;
    struct head_journal_ops ops;
    void *user_data;

    /* The thread's, or main's before start. */
    redisContext *redis;
    char sha[SCRIPTS][48];
    uint64_t term;
    uint64_t renewed_ns;
    uint64_t began_ns;   /* of trouble; 0: none */
    struct pl_list kept; /* struct batch: stored a short while ago */
    uint64_t kept_bytes;
    uint64_t number_last; /* of batches that came in so far */

    pthread_t thread;
    bool started;
    struct pl_mutex lock; /* rank PL_RANK_LEAF */
    struct pl_cond changed;
    /* Guarded by `lock`. */
    struct pl_list waiting; /* struct batch */
    bool closing;

    _Atomic uint64_t stored;
    _Atomic uint64_t batches, bytes, waiting_bytes, log_batches, log_bytes, cpu_ns,
        reconnects;
};

/* KEYS: term lease log first checkpoint. */
static const char *const scripts[SCRIPTS] = {
    [SCRIPT_ACQUIRE] = /* owner, lease_ms, wait -> term, or -ms of the other's lease */
    "local owner = redis.call('GET', KEYS[2]) "
    "if ARGV[3] == '1' and owner and owner ~= ARGV[1] then "
    "  return {-math.max(redis.call('PTTL', KEYS[2]), 1), owner} end "
    "local term = redis.call('INCR', KEYS[1]) "
    "redis.call('SET', KEYS[2], ARGV[1], 'PX', ARGV[2]) "
    "return {term, owner or ''}",
    [SCRIPT_APPEND] = /* owner, lease_ms, term, first number, batches -> end of the list */
    "if redis.call('GET', KEYS[1]) ~= ARGV[3] then return redis.error_reply('FENCED') end "
    "redis.call('SET', KEYS[2], ARGV[1], 'PX', ARGV[2]) "
    "local have = tonumber(redis.call('GET', KEYS[4]) or '0') + redis.call('LLEN', "
    "KEYS[3]) "
    "local first = tonumber(ARGV[4]) "
    "if have < first then return have end "
    "for i = 5 + have - first, #ARGV do redis.call('RPUSH', KEYS[3], ARGV[i]) end "
    "return math.max(have, first + #ARGV - 4)",
    [SCRIPT_CHECKPOINT] = /* owner, lease_ms, term, number that it has, bytes */
    "if redis.call('GET', KEYS[1]) ~= ARGV[3] then return redis.error_reply('FENCED') end "
    "redis.call('SET', KEYS[2], ARGV[1], 'PX', ARGV[2]) "
    "redis.call('SET', KEYS[5], ARGV[5]) "
    "redis.call('DEL', KEYS[3]) "
    "redis.call('SET', KEYS[4], ARGV[4]) "
    "return tonumber(ARGV[4])",
    [SCRIPT_RENEW] = /* owner, lease_ms, term */
    "if redis.call('GET', KEYS[1]) ~= ARGV[3] then return redis.error_reply('FENCED') end "
    "redis.call('SET', KEYS[2], ARGV[1], 'PX', ARGV[2]) return 1",
    [SCRIPT_RELEASE] = /* owner, lease_ms, term */
    "if redis.call('GET', KEYS[1]) == ARGV[3] then redis.call('DEL', KEYS[2]) end return 1",
};

/* ------------------------------------------------------------------------------------------ the address */

static plasmon_status_t url_bad(const char *url, const char *what, struct pl_err *err)
{
    return pl_err_set(err, PLASMON_EINVAL,
                      "journal address '%.200s': %s; write redis://[user@]host[:port][/db]"
                      "[?prefix=P] or unix:/path[?db=N&user=U&prefix=P]",
                      url, what);
}

static bool copy_part(char out[TEXT_MAX], const char *text, size_t length)
{
    if (length >= TEXT_MAX) {
        return false;
    }
    memcpy(out, text, length);
    out[length] = '\0';
    return true;
}

static bool number_part(const char *text, size_t length, int most, int *out)
{
    char digits[TEXT_MAX];
    char *end;
    long value;

    if (length == 0 || !copy_part(digits, text, length)) {
        return false;
    }
    value = strtol(digits, &end, 10);
    *out  = (int)value;
    return *end == '\0' && value >= 0 && value <= most;
}

static plasmon_status_t parse_query(struct head_journal *journal, const char *url,
                                    const char *query, struct pl_err *err)
{
    while (*query != '\0') {
        size_t length     = strcspn(query, "&");
        const char *equal = memchr(query, '=', length);
        size_t key        = equal != NULL ? (size_t)(equal - query) : length;
        const char *value = equal != NULL ? equal + 1 : query + length;
        size_t bytes      = (size_t)(query + length - value);
        bool good         = false;

        if (key == 6 && memcmp(query, "prefix", 6) == 0) {
            good = copy_part(journal->prefix, value, bytes);
        } else if (key == 4 && memcmp(query, "user", 4) == 0) {
            good = copy_part(journal->user, value, bytes);
        } else if (key == 2 && memcmp(query, "db", 2) == 0) {
            good = number_part(value, bytes, 1 << 20, &journal->db);
        }
        if (!good) {
            return url_bad(url, "what is behind '?' is not db, user or prefix", err);
        }
        query += length + (query[length] == '&');
    }
    return PLASMON_OK;
}

static plasmon_status_t parse_host(struct head_journal *journal, const char *url,
                                   const char *rest, struct pl_err *err)
{
    size_t length     = strcspn(rest, "/?");
    const char *at    = memchr(rest, '@', length);
    const char *host  = at != NULL ? at + 1 : rest;
    const char *end   = rest + length;
    const char *colon = NULL;
    size_t digits;

    if (at != NULL && (memchr(rest, ':', (size_t)(at - rest)) != NULL ||
                       !copy_part(journal->user, rest, (size_t)(at - rest)))) {
        return url_bad(url, "a password does not belong into it (--journal-password-file)",
                       err);
    }
    if (*host == '[') { /* an address of IPv6 */
        const char *close = memchr(host, ']', (size_t)(end - host));

        if (close == NULL ||
            !copy_part(journal->host, host + 1, (size_t)(close - host - 1))) {
            return url_bad(url, "the host begins with '[' and does not end with ']'", err);
        }
        colon = close + 1 < end ? close + 1 : NULL;
    } else {
        colon = memchr(host, ':', (size_t)(end - host));
        if (!copy_part(journal->host, host,
                       (size_t)((colon != NULL ? colon : end) - host))) {
            return url_bad(url, "the host is too long", err);
        }
    }
    if (journal->host[0] == '\0' ||
        (colon != NULL &&
         (*colon != ':' ||
          !number_part(colon + 1, (size_t)(end - colon - 1), 65535, &journal->port)))) {
        return url_bad(url, "it needs a host, and a port is a number up to 65535", err);
    }
    if (*end == '/') {
        digits = strcspn(end + 1, "?");
        if (digits > 0 && !number_part(end + 1, digits, 1 << 20, &journal->db)) {
            return url_bad(url, "what is behind '/' is the number of a database", err);
        }
        end += 1 + digits;
    }
    return parse_query(journal, url, *end == '?' ? end + 1 : end, err);
}

static plasmon_status_t parse_url(struct head_journal *journal, const char *url,
                                  struct pl_err *err)
{
    (void)snprintf(journal->prefix, sizeof(journal->prefix), "plasmon:");
    journal->port = 6379;
    if (strncmp(url, "redis://", 8) == 0) {
        return parse_host(journal, url, url + 8, err);
    }
    if (strncmp(url, "unix:", 5) == 0) {
        size_t length = strcspn(url + 5, "?");

        if (length == 0 || !copy_part(journal->path, url + 5, length)) {
            return url_bad(url, "the path is empty or too long", err);
        }
        return parse_query(journal, url, url[5 + length] == '?' ? url + 6 + length : "",
                           err);
    }
    return url_bad(url, "it begins neither with redis:// nor with unix:", err);
}

static const char *where(const struct head_journal *journal, char out[TEXT_MAX + 32])
{
    if (journal->path[0] != '\0') {
        (void)snprintf(out, TEXT_MAX + 32, "unix:%s", journal->path);
    } else {
        (void)snprintf(out, TEXT_MAX + 32, "%s:%d", journal->host, journal->port);
    }
    return out;
}

/* ------------------------------------------------------------------------------------------ talking */

static void disconnect(struct head_journal *journal)
{
    if (journal->redis != NULL) {
        redisFree(journal->redis);
        journal->redis = NULL;
    }
}

/*
 * What an error of the server means. EAGAIN: it may be over soon; EAUTH, EPERM, ENOSPC, EVERSION, EMALFORMED: it will not go away.
 * EHEADLOST: another head goes on.
 */
static plasmon_status_t server_error(const struct head_journal *journal, const char *text,
                                     struct pl_err *err)
{
    char at[TEXT_MAX + 32];

    (void)where(journal, at);
    if (strstr(text, "FENCED") != NULL) {
        return pl_err_set(err, PLASMON_EHEADLOST,
                          "another head goes on with the journal in Redis at %s; this one "
                          "(term %" PRIu64 ") ends",
                          at, journal->term);
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
    char at[TEXT_MAX + 32];

    if (reply == NULL) {
        (void)pl_err_set(err, PLASMON_EAGAIN, "the connection to Redis at %s broke: %.200s",
                         where(journal, at),
                         journal->redis->errstr[0] != '\0' ? journal->redis->errstr
                                                           : "no answer in time");
        disconnect(journal);
        return NULL;
    }
    if (reply->type == REDIS_REPLY_ERROR) {
        (void)server_error(journal, reply->str, err);
        if (strncmp(reply->str, "NOSCRIPT", 8) == 0) { /* told at the next connection */
            err->status = PLASMON_EAGAIN;
            disconnect(journal);
        }
        freeReplyObject(reply);
        return NULL;
    }
    return reply;
}

static redisReply *call(struct head_journal *journal, int argc, const char **argv,
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
        reply = call(journal, named ? 3 : 2, auth, NULL, err);
        if (reply == NULL) {
            return err->status;
        }
        freeReplyObject(reply);
    }
    if (journal->db != 0) {
        (void)snprintf(db, sizeof(db), "%d", journal->db);
        reply = call(journal, 2, select, NULL, err);
        if (reply == NULL) {
            return err->status;
        }
        freeReplyObject(reply);
    }
    return PLASMON_OK;
}

static plasmon_status_t scripts_load(struct head_journal *journal, struct pl_err *err)
{
    for (int i = 0; i < SCRIPTS; i++) {
        const char *load[] = {"SCRIPT", "LOAD", scripts[i]};
        redisReply *reply  = call(journal, 3, load, NULL, err);

        if (reply == NULL) {
            return err->status;
        }
        (void)snprintf(journal->sha[i], sizeof(journal->sha[i]), "%s", reply->str);
        freeReplyObject(reply);
    }
    return PLASMON_OK;
}

static plasmon_status_t redis_connect(struct head_journal *journal, struct pl_err *err)
{
    struct timeval limit  = {.tv_sec = CONNECT_MS / 1000};
    struct timeval answer = {.tv_sec = ANSWER_MS / 1000};
    char at[TEXT_MAX + 32];
    plasmon_status_t status;

    disconnect(journal);
    journal->redis = journal->path[0] != '\0'
                         ? redisConnectUnixWithTimeout(journal->path, limit)
                         : redisConnectWithTimeout(journal->host, journal->port, limit);
    if (journal->redis == NULL || journal->redis->err != 0) {
        status = pl_err_set(
            err, PLASMON_EAGAIN, "no connection to Redis at %s: %.200s", where(journal, at),
            journal->redis != NULL ? journal->redis->errstr : "out of memory");
        disconnect(journal);
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
        disconnect(journal);
    }
    return status;
}

/* EVALSHA with our keys and the arguments. */
static redisReply *run(struct head_journal *journal, enum script script, size_t count,
                       const char **arguments, const size_t *lengths, struct pl_err *err)
{
    size_t argc       = 3 + 5 + count;
    const char **argv = PL_NEW_N(const char *, argc);
    size_t *bytes     = PL_NEW_N(size_t, argc);
    redisReply *reply;

    PL_CHECK(argv != NULL && bytes != NULL);
    argv[0] = "EVALSHA";
    argv[1] = journal->sha[script];
    argv[2] = "5";
    for (size_t i = 0; i < 5; i++) {
        argv[3 + i] = journal->keys[i];
    }
    for (size_t i = 0; i < 8; i++) {
        bytes[i] = strlen(argv[i]);
    }
    for (size_t i = 0; i < count; i++) {
        argv[8 + i] = arguments[i];
        bytes[8 + i] =
            lengths != NULL && lengths[i] != 0 ? lengths[i] : strlen(arguments[i]);
    }
    reply = call(journal, (int)argc, argv, bytes, err);
    pl_free(argv);
    pl_free(bytes);
    return reply;
}

/* ------------------------------------------------------------------------------------------ life */

/* A server that keeps nothing over its own end is no journal; one that evicts is worse. */
static void look_at_server(struct head_journal *journal)
{
    const char *info[] = {"INFO", "persistence"};
    const char *conf[] = {"CONFIG", "GET", "maxmemory-policy"};
    const char *save[] = {"CONFIG", "GET", "save"};
    struct pl_err err  = {0};
    redisReply *reply  = call(journal, 2, info, NULL, &err);
    bool aof           = true;
    char at[TEXT_MAX + 32];

    (void)where(journal, at);
    if (reply != NULL) {
        aof = reply->type == REDIS_REPLY_STRING &&
              strstr(reply->str, "aof_enabled:1") != NULL;
        freeReplyObject(reply);
    }
    if (!aof && journal->redis != NULL) {
        reply = call(journal, 3, save, NULL, &err);
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
    reply = journal->redis != NULL ? call(journal, 3, conf, NULL, &err) : NULL;
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

static void pause_ms(uint64_t ms)
{
    struct timespec pause = {.tv_sec  = (time_t)(ms / 1000),
                             .tv_nsec = (long)(ms % 1000) * 1000000};

    (void)nanosleep(&pause, NULL);
}

/* The server may be starting, as we are. */
static plasmon_status_t redis_connect_first(struct head_journal *journal,
                                            struct pl_err *err)
{
    uint64_t began_ns       = pl_now_ns();
    plasmon_status_t status = redis_connect(journal, err);

    if (status == PLASMON_EAGAIN) {
        pl_warn("head", "%s; asking again for %d s", err->text, OPEN_MS / 1000);
    }
    while (status == PLASMON_EAGAIN &&
           pl_now_ns() - began_ns < OPEN_MS * UINT64_C(1000000)) {
        pause_ms(BACKOFF_MS_MIN * 5);
        status = redis_connect(journal, err);
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
    status = parse_url(journal, config->url, err);
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
        status = redis_connect(journal, err);
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

/* EAGAIN: the other's lease still runs. */
static plasmon_status_t acquire_once(struct head_journal *journal, bool wait,
                                     struct pl_err *err)
{
    char lease[16];
    const char *arguments[3] = {journal->owner, lease, wait ? "1" : "0"};
    redisReply *reply;
    long long term;

    (void)snprintf(lease, sizeof(lease), "%u", journal->lease_ms);
    if (journal->redis == NULL && redis_connect(journal, err) != PLASMON_OK) {
        return err->status;
    }
    reply = run(journal, SCRIPT_ACQUIRE, 3, arguments, NULL, err);
    if (reply == NULL) {
        return err->status;
    }
    term = reply->elements == 2 ? reply->element[0]->integer : 0;
    if (term > 0) {
        journal->term       = (uint64_t)term;
        journal->renewed_ns = pl_now_ns();
        if (reply->element[1]->len > 0 &&
            strcmp(reply->element[1]->str, journal->owner) != 0) {
            pl_warn("head", "takes the journal over from %s, which ends if it is alive",
                    reply->element[1]->str);
        }
    } else {
        (void)pl_err_set(err, PLASMON_EAGAIN, "%s has the lease",
                         reply->elements == 2 ? reply->element[1]->str : "?");
    }
    freeReplyObject(reply);
    return term > 0 ? PLASMON_OK : PLASMON_EAGAIN;
}

plasmon_status_t head_journal_acquire(struct head_journal *journal, bool wait,
                                      bool (*go_on)(void *user), void *user,
                                      struct pl_err *err)
{
    plasmon_status_t status = acquire_once(journal, wait, err);
    bool told               = false;

    while (wait && status == PLASMON_EAGAIN) {
        if (!told) {
            pl_info("head", "stands by: %s", err->text);
            told = true;
        }
        if (!go_on(user)) {
            return pl_err_set(err, PLASMON_ECANCELLED, "asked to stop while standing by");
        }
        pause_ms(ASK_LEASE_MS);
        status = acquire_once(journal, wait, err);
    }
    if (status == PLASMON_OK) {
        pl_info("head", "has the journal, term %" PRIu64, journal->term);
    }
    return status;
}

/* ------------------------------------------------------------------------------------------ reading */

static redisReply *get(struct head_journal *journal, const char *key, struct pl_err *err)
{
    const char *argv[] = {"GET", key};

    return call(journal, 2, argv, NULL, err);
}

static redisReply *range(struct head_journal *journal, uint64_t first, struct pl_err *err)
{
    char from[24], to[24];
    const char *argv[] = {"LRANGE", journal->keys[2], from, to};

    (void)snprintf(from, sizeof(from), "%" PRIu64, first);
    (void)snprintf(to, sizeof(to), "%" PRIu64, first + READ_BATCHES - 1);
    return call(journal, 4, argv, NULL, err);
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
            journal->log_bytes += (uint64_t)reply->element[i]->len;
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
    journal->log_batches = count;
    freeReplyObject(reply);
    return PLASMON_OK;
}

/* ------------------------------------------------------------------------------------------ the thread */

static void batch_drop(struct batch *batch)
{
    pl_list_remove(&batch->link);
    pl_free(batch);
}

/* Kept for a server that forgets the last second. */
static void kept_trim(struct head_journal *journal, uint64_t now_ns)
{
    while (!pl_list_empty(&journal->kept)) {
        struct batch *oldest = pl_list_first(&journal->kept, struct batch, link);

        if (now_ns - oldest->stored_ns < KEEP_NS && journal->kept_bytes <= KEEP_BYTES_MAX) {
            break;
        }
        journal->kept_bytes -= oldest->length;
        batch_drop(oldest);
    }
}

/* The first batches of `todo` are stored. */
static void keep(struct head_journal *journal, struct pl_list *todo, uint64_t end)
{
    uint64_t now_ns = pl_now_ns();
    struct batch *batch;

    while ((batch = pl_list_first(todo, struct batch, link)) != NULL &&
           batch->number < end) {
        if (batch->stored_ns == 0) {
            journal->stored++;
            journal->batches++;
            journal->bytes += batch->length;
            journal->waiting_bytes -= batch->length;
            journal->log_batches = batch->checkpoint ? 0 : journal->log_batches + 1;
            journal->log_bytes =
                batch->checkpoint ? batch->length : journal->log_bytes + batch->length;
        }
        batch->stored_ns = now_ns;
        pl_list_remove(&batch->link);
        pl_list_add_tail(&journal->kept, &batch->link);
        journal->kept_bytes += batch->length;
    }
    kept_trim(journal, now_ns);
    journal->ops.stored(journal->user_data);
}

/* One call's worth of batches, in order; a checkpoint goes alone. */
static plasmon_status_t send_some(struct head_journal *journal, struct pl_list *todo,
                                  uint64_t *out_end, struct pl_err *err)
{
    const struct batch *first = pl_list_first(todo, struct batch, link);
    const char *arguments[4 + CALL_BATCHES_MAX];
    size_t lengths[4 + CALL_BATCHES_MAX] = {0};
    char lease[16], term[24], number[24];
    size_t count = 4, bytes = 0;
    const struct pl_list *pos;
    redisReply *reply;

    (void)snprintf(lease, sizeof(lease), "%u", journal->lease_ms);
    (void)snprintf(term, sizeof(term), "%" PRIu64, journal->term);
    (void)snprintf(number, sizeof(number), "%" PRIu64,
                   first->number + (first->checkpoint ? 1 : 0));
    arguments[0] = journal->owner;
    arguments[1] = lease;
    arguments[2] = term;
    arguments[3] = number;
    pl_list_for_each(pos, todo) {
        const struct batch *batch = pl_container_of(pos, struct batch, link);

        if (batch != first && (batch->checkpoint || first->checkpoint ||
                               count == PL_COUNT(arguments) || bytes > CALL_BYTES_MAX)) {
            break;
        }
        arguments[count] = (const char *)batch->bytes;
        lengths[count++] = batch->length;
        bytes += batch->length;
    }
    reply = run(journal, first->checkpoint ? SCRIPT_CHECKPOINT : SCRIPT_APPEND, count,
                arguments, lengths, err);
    if (reply == NULL) {
        return err->status;
    }
    *out_end            = (uint64_t)reply->integer;
    journal->renewed_ns = pl_now_ns();
    freeReplyObject(reply);
    return PLASMON_OK;
}

/* The server has forgotten batches that it said it had stored: all from number `end` on. Or it has everything again from a checkpoint on. */
static plasmon_status_t put_back(struct head_journal *journal, struct pl_list *todo,
                                 uint64_t end, struct pl_err *err)
{
    char at[TEXT_MAX + 32];
    bool whole = false;

    while (!whole && !pl_list_empty(&journal->kept)) {
        struct batch *batch = pl_container_of(journal->kept.prev, struct batch, link);

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
            where(journal, at), end);
    }
    pl_warn("head",
            "Redis at %s forgot what it had stored last; it is told again from "
            "batch %" PRIu64 " on",
            where(journal, at), pl_list_first(todo, struct batch, link)->number);
    return PLASMON_OK;
}

static plasmon_status_t renew(struct head_journal *journal, struct pl_err *err)
{
    char lease[16], term[24];
    const char *arguments[] = {journal->owner, lease, term};
    redisReply *reply;

    (void)snprintf(lease, sizeof(lease), "%u", journal->lease_ms);
    (void)snprintf(term, sizeof(term), "%" PRIu64, journal->term);
    reply = run(journal, SCRIPT_RENEW, 3, arguments, NULL, err);
    if (reply == NULL) {
        return err->status;
    }
    journal->renewed_ns = pl_now_ns();
    freeReplyObject(reply);
    return PLASMON_OK;
}

static bool renewal_due(const struct head_journal *journal)
{
    return pl_now_ns() - journal->renewed_ns >= journal->lease_ms * UINT64_C(1000000) / 3;
}

static plasmon_status_t work_once(struct head_journal *journal, struct pl_list *todo,
                                  struct pl_err *err)
{
    plasmon_status_t status = PLASMON_OK;
    uint64_t end            = 0;

    if (journal->redis == NULL) {
        status = redis_connect(journal, err);
        if (status == PLASMON_OK) {
            journal->reconnects++;
        }
    }
    if (status == PLASMON_OK && pl_list_empty(todo)) {
        return renewal_due(journal) ? renew(journal, err) : PLASMON_OK;
    }
    if (status == PLASMON_OK) {
        status = send_some(journal, todo, &end, err);
    }
    if (status == PLASMON_OK && end < pl_list_first(todo, struct batch, link)->number) {
        return put_back(journal, todo, end, err);
    }
    if (status == PLASMON_OK) {
        keep(journal, todo, end);
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

/* What has come in goes behind `todo`. false: it is over. */
static bool collect(struct head_journal *journal, struct pl_list *todo)
{
    uint64_t deadline_ns = pl_now_ns() + journal->lease_ms * UINT64_C(1000000) / 6;
    bool go_on;

    pl_mutex_lock(&journal->lock);
    while (pl_list_empty(todo) && pl_list_empty(&journal->waiting) && !journal->closing &&
           !renewal_due(journal)) {
        (void)pl_cond_wait_until(&journal->changed, &journal->lock, deadline_ns);
        deadline_ns = pl_now_ns() + journal->lease_ms * UINT64_C(1000000) / 6;
    }
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
    uint64_t backoff_ms          = BACKOFF_MS_MIN;
    struct pl_list todo;

    pl_list_init(&todo);
    while (collect(journal, &todo)) {
        struct pl_err err = {0};

        if (work_once(journal, &todo, &err) == PLASMON_OK) {
            if (journal->began_ns != 0) {
                pl_info("head", "Redis stores again");
            }
            journal->began_ns = 0;
            backoff_ms        = BACKOFF_MS_MIN;
        } else if (bear(journal, &err)) {
            pause_ms(backoff_ms);
            backoff_ms = pl_min_u64(backoff_ms * 2, BACKOFF_MS_MAX);
        } else {
            journal->ops.lost(journal->user_data, &err);
        }
        journal->cpu_ns = pl_thread_cpu_ns();
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
        return pl_err_set(err, PLASMON_ENOMEM, "cannot start a thread");
    }
    journal->started = true;
    return PLASMON_OK;
}

static void put(struct head_journal *journal, bool checkpoint, const uint8_t *bytes,
                size_t length)
{
    struct batch *batch = pl_alloc(sizeof(*batch) + length);

    PL_CHECK(batch != NULL);
    *batch = (struct batch){.checkpoint = checkpoint, .length = length};
    memcpy(batch->bytes, bytes, length);
    pl_list_init(&batch->link);
    journal->waiting_bytes += length;
    pl_mutex_lock(&journal->lock);
    batch->number = journal->number_last++;
    pl_list_add_tail(&journal->waiting, &batch->link);
    pl_cond_broadcast(&journal->changed);
    pl_mutex_unlock(&journal->lock);
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

void head_journal_figures(const struct head_journal *journal,
                          struct head_journal_figures *out)
{
    *out = (struct head_journal_figures){.term          = journal->term,
                                         .batches       = journal->batches,
                                         .bytes         = journal->bytes,
                                         .waiting_bytes = journal->waiting_bytes,
                                         .log_batches   = journal->log_batches,
                                         .log_bytes     = journal->log_bytes,
                                         .cpu_ns        = journal->cpu_ns,
                                         .reconnects    = journal->reconnects};
}

static void lease_give_back(struct head_journal *journal)
{
    char term[24];
    const char *arguments[] = {journal->owner, "0", term};
    struct pl_err err       = {0};

    (void)snprintf(term, sizeof(term), "%" PRIu64, journal->term);
    if (journal->redis != NULL && journal->term != 0) {
        redisReply *reply = run(journal, SCRIPT_RELEASE, 3, arguments, NULL, &err);

        if (reply != NULL) {
            freeReplyObject(reply);
        }
    }
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

void head_journal_close(struct head_journal *journal)
{
    if (journal == NULL) {
        return;
    }
    head_journal_stop(journal);
    lease_give_back(journal);
    disconnect(journal);
    while (!pl_list_empty(&journal->kept)) {
        batch_drop(pl_list_first(&journal->kept, struct batch, link));
    }
    pl_cond_finish(&journal->changed);
    pl_mutex_finish(&journal->lock);
    pl_free(journal);
}
