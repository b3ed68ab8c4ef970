/*
 * The head's journal: batches of inputs (input.h), stored in order somewhere that outlives the process.
 *
 * Its rules:
 *   (1) A batch is stored when that was said to be so, and not before; batches are stored in order,
 *       without gaps.
 *   (2) One head writes at a time. Who takes the lease gets a term, a number that only grows, and
 *       every append says its term: under an older one it is refused, there where the batches lie.
 *       A head whose append is refused ends at once and lets nothing out that was held.
 *   (3) What was read back is what was stored, up to some batch, which is not before the last one
 *       that was said to be stored.
 *
 * There is one implementation, for Redis (journal_int.h has its parts). A head without a journal
 * has none of this, and no cost of it.
 */
#ifndef HEAD_JOURNAL_H
#define HEAD_JOURNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base.h"
#include "base/str.h"

struct head_journal;
struct rpc_loop;

enum { HEAD_JOURNAL_WHERE_MAX = 640 };
/* "database 0 of Redis at HOST:PORT, prefix 'P'," for people. */
const char *head_journal_where(const struct head_journal *journal,
                               char out[HEAD_JOURNAL_WHERE_MAX]);

struct head_journal_config {
    /* redis://[user@]host[:port][/db][?prefix=P], unix:/path[?db=N&prefix=P&user=U] */
    const char *url;
    const char *password; /* NULL: none */
    /* a head that is silent for longer may be replaced by a standby; 0: 10 s */
    uint32_t lease_ms;
    uint32_t patience_ms; /* a store that is away for longer ends the head; 0: 60 s */
    const char *owner;    /* who has the lease: for people, and no other process's */
};

/* On a thread of the journal's own. */
struct head_journal_ops {
    void (*stored)(void *user); /* more batches are: look at head_journal_stored() */
    /* Nothing more can be stored; the process is to end and to say nothing. Does not return. */
    void (*lost)(void *user, const struct pl_err *err);
};

/* Connects; what can be wrong with the address, the password or the server is said here. */
plasmon_status_t head_journal_open(const struct head_journal_config *config,
                                   struct head_journal **out_journal,
                                   struct pl_err *err) PL_MUST_CHECK;
/*
 * Become the one that writes. wait: only when the lease of another is over, asking until then
 * (false from `go_on` ends that with ECANCELLED); else at once, which fences the other.
 */
plasmon_status_t head_journal_acquire(struct head_journal *journal, bool wait,
                                      bool (*go_on)(void *user), void *user,
                                      struct pl_err *err) PL_MUST_CHECK;
/*
 * All that is stored, oldest first, as it was appended; a checkpoint, if there is one, comes
 * before. Before the first append.
 */
plasmon_status_t
head_journal_read(struct head_journal *journal,
                  plasmon_status_t (*fn)(void *user, bool checkpoint, const uint8_t *bytes,
                                         size_t length, struct pl_err *err),
                  void *user, struct pl_err *err) PL_MUST_CHECK;
/* From here on batches are stored, by a thread of its own. */
plasmon_status_t head_journal_start(struct head_journal *journal,
                                    const struct head_journal_ops *ops, void *user,
                                    struct pl_err *err) PL_MUST_CHECK;
/*
 * The bytes are copied. It may be stored when this returns: then head_journal_stored() has it, and
 * `stored` is not called for it.
 */
void head_journal_append(struct head_journal *journal, const uint8_t *bytes, size_t length);
/* Instead of all that was appended so far there is this, once it is stored. Counts as a batch. */
void head_journal_checkpoint(struct head_journal *journal, const uint8_t *bytes,
                             size_t length);
uint64_t
head_journal_stored(const struct head_journal *journal); /* batches, since the start */

/* Stores what was appended, gives the lease back, and ends the thread. Nothing is appended after it. */
void head_journal_stop(struct head_journal *journal);
/* stopped, or never started; NULL: nothing */
void head_journal_close(struct head_journal *journal);

#endif
