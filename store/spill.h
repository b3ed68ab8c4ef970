/*
 * What this host does for spilling: the head decides (head/spill_places.c), and asks for one thing
 * after another; a thread of our own does them in that order, for files may take their time.
 *
 *   head --NodeCommand.spill--> node.c --ask--> [queue] --thread--> [results] --take--> node.c --NodeFrame.spill_done--> head
 *
 * Things are numbered 1, 2, 3 ..: what was asked before (the head repeats itself after a broken
 * connection) is not done again, and its result is kept until the head has it. A head that does not
 * know us begins with 1 again: store_spill_forget() comes before. One that knew the store before us
 * goes on where that one had not answered.
 *
 * ANOTHER STORE TAKES OVER. Slab, files and their index (spill_index.h) outlive us in the workers
 * of the host. The next store that is handed all of it (store_spill_adopt) is, to the head, the
 * same one: same life, same slab. The head asks it again what was not answered, in order; each of
 * these can be done twice. So nothing that was spilled is lost with a store while a worker of its
 * host lives.
 *
 * THE SLAB is a host buffer (host_buffers.h) that the daemon's thread makes, as it does for
 * clients; we map it too, and wait for it.
 *
 * Threads: any, but for create and destroy. Nothing of the caller's is called with the lock held.
 */
#ifndef STORE_SPILL_H
#define STORE_SPILL_H

#include <stdbool.h>

#include "base/str.h"
#include "store/spill_index.h"

enum store_spill_kind {
    STORE_SPILL_SLAB   = 1, /* more of it than `offset` bytes */
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
    /* SLAB: that may be used, from the beginning; more than `offset` asked, or it is all */
    uint64_t bytes;
    char text[256];
};

/* How the head uses it, beyond what there is: what this store was started with. */
struct store_spill_ahead {
    /* percent of a device above which it is copied ahead of need; 0: never */
    uint32_t write_back;
    bool on_demand; /* nothing is brought back before its turn */
};

struct store_spill;

/* dirs: as --spill-dir takes them. EINVAL and others: err says what is wrong with them. */
plasmon_status_t store_spill_create(uint64_t memory_bytes, const char *const *dirs,
                                    uint32_t dir_count, struct store_spill **out_spill,
                                    struct pl_err *err) PL_MUST_CHECK;
/*
 * slab_wanted: on the thread: have a host buffer made, and say store_spill_slab_made(). done: on
 * the thread: there is a result.
 */
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
/* Of what was spilled: a store that has not taken it over from the one before has another one. */
uint64_t store_spill_life(const struct store_spill *spill);
/* What workers are to keep for the store after us. Descriptors are lent. */
uint32_t store_spill_parts(const struct store_spill *spill,
                           struct store_spill_part parts[STORE_SPILL_PARTS_MAX]);
/* Bytes in files. Before start. */
uint64_t store_spill_files_used(const struct store_spill *spill);
/* Before start: whose memory this is (store_host.memory). */
void store_spill_set_memory(struct store_spill *spill, uint64_t memory);
/*
 * Before start: take over what workers handed back of the store before us, which had the same
 * `memory`: the greatest index among `parts`, its files, and the host buffer that it names, of
 * which `slabs` are those that there are. Its size is ours from now on. *out_slab: its number,
 * whose descriptor store_spill_slab_found() is to bring; 0: none was made. ENOENT: there was
 * nothing, or it cannot be taken over (the log says why), and we begin anew.
 */
struct store_spill_slab {
    uint64_t id;
    uint64_t bytes;
};
plasmon_status_t store_spill_adopt(struct store_spill *spill, uint64_t memory,
                                   const struct store_spill_part *parts, size_t part_count,
                                   const struct store_spill_slab *slabs, size_t slab_count,
                                   uint64_t *out_slab) PL_MUST_CHECK;
/*
 * Before start: the slab that was adopted. What the store before us had named is ours at once, for
 * values lie in it; how far it may be used from now on is not known: store_spill_slab_made() says
 * that when the workers have. fd is borrowed.
 */
plasmon_status_t store_spill_slab_found(struct store_spill *spill, int fd,
                                        uint64_t host_buffer) PL_MUST_CHECK;
/* Number of the host buffer; 0: there is none yet. */
uint64_t store_spill_slab(struct store_spill *spill);
void store_spill_ask(struct store_spill *spill, const struct store_spill_op *op);
/* The oldest result that was not taken. false: there is none. */
bool store_spill_take(struct store_spill *spill, struct store_spill_result *out_result);
/* Another head: what the last one had in files, and what it asked, is nothing any more. The slab stays. */
void store_spill_forget(struct store_spill *spill);
/*
 * All workers have these bytes of it, from its beginning; said again when they have more. status:
 * why there will be no more (bytes 0: none at all); text too. fd is borrowed.
 */
void store_spill_slab_made(struct store_spill *spill, plasmon_status_t status, int fd,
                           uint64_t host_buffer, uint64_t bytes, const char *text);

#endif
