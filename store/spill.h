/*
 * What this host does for spilling: the head decides (head/spill_places.c), and asks for one thing after another; a thread of our own does them in that
 * order, for files may take their time.
 *
 *   head --NodeCommand.spill--> node.c --ask--> [queue] --thread--> [results] --take--> node.c --NodeFrame.spill_done--> head
 *
 * Things are numbered 1, 2, 3 ..: what was asked before (the head repeats itself after a broken connection) is not done again, and its result is
 * kept until the head has it. A head that does not know us begins with 1 again: store_spill_forget() comes before.
 *
 * THE SLAB is a host buffer (host_buffers.h) that the daemon's thread makes, as it does for clients; we map it too, and wait for it.
 *
 * Threads: any, but for create and destroy. Nothing of the caller's is called with the lock held.
 */
#ifndef STORE_SPILL_H
#define STORE_SPILL_H

#include <stdbool.h>

#include "base/str.h"

enum store_spill_kind {
    STORE_SPILL_SLAB   = 1,
    STORE_SPILL_WRITE  = 2,
    STORE_SPILL_READ   = 3,
    STORE_SPILL_FORGET = 4,
    STORE_SPILL_MOVE   = 5
};

struct store_spill_op {
    uint64_t id;
    uint32_t kind;
    uint64_t host_buffer;
    uint64_t offset;
    uint64_t bytes;
    uint64_t file;
};

struct store_spill_result {
    uint64_t id;
    plasmon_status_t status;
    uint64_t host_buffer;
    char text[256];
};

/* How the head uses it, beyond what there is: what this store was started with. */
struct store_spill_ahead {
    uint32_t
        write_back; /* percent of a device above which it is copied ahead of need; 0: never */
    bool on_demand; /* nothing is brought back before its turn */
};

struct store_spill;

/* dirs: as --spill-dir takes them. EINVAL and others: err says what is wrong with them. */
plasmon_status_t store_spill_create(uint64_t memory_bytes, const char *const *dirs,
                                    uint32_t dir_count, struct store_spill **out_spill,
                                    struct pl_err *err) PL_MUST_CHECK;
/* slab_wanted: on the thread: have a host buffer made, and say store_spill_slab_made(). done: on the thread: there is a result. */
plasmon_status_t store_spill_start(struct store_spill *spill,
                                   void (*slab_wanted)(void *user),
                                   void (*done)(void *user), void *user) PL_MUST_CHECK;
/* Before start. 0 and false otherwise. */
void store_spill_set_ahead(struct store_spill *spill,
                           const struct store_spill_ahead *ahead);
const struct store_spill_ahead *store_spill_ahead(const struct store_spill *spill);
/* Waits for what the thread is at; nothing is called from then on. NULL is fine, as below. */
void store_spill_stop(struct store_spill *spill);
void store_spill_destroy(struct store_spill *spill);
uint64_t store_spill_memory_bytes(const struct store_spill *spill);
uint64_t store_spill_file_bytes(const struct store_spill *spill);
/* Of this process: another store of the host has another one. */
uint64_t store_spill_life(const struct store_spill *spill);
/* Number of the host buffer; 0: there is none yet. */
uint64_t store_spill_slab(struct store_spill *spill);
void store_spill_ask(struct store_spill *spill, const struct store_spill_op *op);
/* The oldest result that was not taken. false: there is none. */
bool store_spill_take(struct store_spill *spill, struct store_spill_result *out_result);
/* Another head: what the last one had in files, and what it asked, is nothing any more. The slab stays. */
void store_spill_forget(struct store_spill *spill);
/* fd is borrowed. status: why there is none; text too. */
void store_spill_slab_made(struct store_spill *spill, plasmon_status_t status, int fd,
                           uint64_t host_buffer, const char *text);

#endif
