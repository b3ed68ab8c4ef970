/*
 * Inside of the journal: journal.c opens, takes the lease, reads and closes; journal_commit.c is
 * the thread that stores; journal_redis.c talks to the server and knows what its errors mean;
 * journal_url.c reads the address.
 */
#ifndef HEAD_JOURNAL_INT_H
#define HEAD_JOURNAL_INT_H

#include "head/journal.h"

#include <hiredis/hiredis.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/lock.h"
#include "base/log.h"

enum {
    HEAD_JOURNAL_TEXT_MAX = 256,
    HEAD_JOURNAL_AT_MAX   = HEAD_JOURNAL_TEXT_MAX + 32, /* of head_redis_where() */
    HEAD_JOURNAL_PAUSE_MS = 20, /* the shortest, before it is tried again */
};

struct head_batch {
    struct pl_list link;
    uint64_t number; /* in the list of the server */
    uint64_t stored_ns;
    bool checkpoint;
    size_t length;
    uint8_t bytes[];
};

enum head_script {
    HEAD_SCRIPT_ACQUIRE,
    HEAD_SCRIPT_APPEND,
    HEAD_SCRIPT_CHECKPOINT,
    HEAD_SCRIPT_RENEW,
    HEAD_SCRIPT_RELEASE,
    HEAD_SCRIPTS
};

/* Who has the connection and what belongs to it. */
enum head_turn { HEAD_TURN_NOBODY, HEAD_TURN_LOOP, HEAD_TURN_THREAD };

struct head_journal {
    /* Constant after open. */
    char host[HEAD_JOURNAL_TEXT_MAX];
    char path[HEAD_JOURNAL_TEXT_MAX]; /* "": host and port */
    int port;
    int db;
    char user[HEAD_JOURNAL_TEXT_MAX];
    char password[1024];
    char prefix[HEAD_JOURNAL_TEXT_MAX];
    char owner[HEAD_JOURNAL_TEXT_MAX];
    char keys[5][HEAD_JOURNAL_TEXT_MAX + 16];
    uint32_t lease_ms;
    uint32_t patience_ms;
    struct head_journal_ops ops;
    void *user_data;

    /* Whose turn it is: the thread's or the loop's; main's before start. */
    redisContext *redis;
    /* a call's answer is still to come: that for the first batches that are not stored */
    bool asked;
    char sha[HEAD_SCRIPTS][48];
    uint64_t term;
    uint64_t renewed_ns;
    uint64_t began_ns;   /* of trouble; 0: none */
    struct pl_list kept; /* struct head_batch: stored a short while ago */
    uint64_t kept_bytes;

    /* The loop's, or main's before start. */
    uint64_t number_last; /* of batches that came in so far */
    uint64_t patient_at;  /* the loop waits for no answer before this number of a batch */

    pthread_t thread;
    bool started;
    struct pl_mutex lock; /* rank PL_RANK_LEAF */
    struct pl_cond changed;
    /* Guarded by `lock`. */
    enum head_turn turn;
    struct pl_list waiting; /* struct head_batch */
    bool closing;

    _Atomic uint64_t stored;
};

/* ---- journal.c */
void head_journal_pause(uint64_t ms);
bool head_journal_renewal_due(const struct head_journal *journal);
/* EHEADLOST: another head goes on. */
plasmon_status_t head_journal_renew(struct head_journal *journal,
                                    struct pl_err *err) PL_MUST_CHECK;

/* ---- journal_commit.c */
void head_journal_batch_drop(struct head_batch *batch);

/* ---- journal_url.c */
/* Where the server is, and who we are there. EINVAL. */
plasmon_status_t head_journal_url(struct head_journal *journal, const char *url,
                                  struct pl_err *err) PL_MUST_CHECK;

/* ---- journal_redis.c */
const char *head_redis_where(const struct head_journal *journal,
                             char out[HEAD_JOURNAL_AT_MAX]);
plasmon_status_t head_redis_connect(struct head_journal *journal,
                                    struct pl_err *err) PL_MUST_CHECK;
void head_redis_disconnect(struct head_journal *journal); /* or there is no connection */
/* A command; the answer is the caller's. NULL: *err, and after EAGAIN there may be no connection. */
redisReply *head_redis_call(struct head_journal *journal, int argc, const char **argv,
                            const size_t *lengths, struct pl_err *err);
/* A script, with our keys and these arguments; likewise. A length of 0, or no lengths: up to the NUL. */
redisReply *head_redis_run(struct head_journal *journal, enum head_script script,
                           size_t count, const char **arguments, const size_t *lengths,
                           struct pl_err *err);
/* The same in halves. false: the connection broke, and is closed. */
bool head_redis_ask(struct head_journal *journal, enum head_script script, size_t count,
                    const char **arguments, const size_t *lengths);
redisReply *head_redis_answer(struct head_journal *journal, struct pl_err *err);
/* Waits so long for the first of an answer. */
bool head_redis_answers(struct head_journal *journal, uint64_t wait_ns);

#endif
