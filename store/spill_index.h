/*
 * What is in spill files, in memory that outlives the store which wrote it.
 *
 * A store that dies leaves the bytes of what it spilled: files without names, kept by the
 * descriptors that every worker of the host has of them (as of device memory, handback.h), and the
 * slab. What would go with the process is where in them which value lies. So that is here, in a
 * memfd that workers keep, too. The next store takes slab, files and index over, or none of them.
 *
 * AN ENTRY is written after its bytes are on the disk, its state last; it is freed before its bytes
 * are given away. So whatever step a store died at, an entry that is there names bytes that are
 * what they were. What is asked of a store (spill.h) may be asked again of the next one: a write
 * that has its entry is done, a read and a forget change nothing when they are done twice, and of a
 * move it is recorded how far it came (store_spill_move).
 *
 * WHOSE it is. `memory` is the number of the host's device memory (host.h), so another cluster's,
 * or that of another life of this host, is never taken. `life` is what the head knows all of this
 * by: while it stays, the head's records hold. `era` counts the heads that knew nothing of those
 * before them: entries of another era are nobody's.
 *
 * What comes from workers is checked like anything from outside: an entry that cannot be (out of
 * its file, over another one, with another check sum) is dropped, and what the head looks for there
 * is then lost.
 *
 * Threads: owner only, but for the words that say otherwise.
 */
#ifndef STORE_SPILL_INDEX_H
#define STORE_SPILL_INDEX_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

#define STORE_SPILL_DIRS_MAX      8u
#define STORE_SPILL_ENTRIES_MAX   (1u << 18)
#define STORE_SPILL_PATH_MAX      1008u
#define STORE_SPILL_INDEX_VERSION 1u

/* One of the descriptors that a worker keeps for the next store. */
struct store_spill_part {
    uint32_t which; /* STORE_SPILL_PART_INDEX, else that of the file plus 1 */
    int fd;
};
#define STORE_SPILL_PART_INDEX 0u
#define STORE_SPILL_PARTS_MAX  (STORE_SPILL_DIRS_MAX + 1)

/* A directory that was given, and the file in it. */
struct store_spill_index_dir {
    uint64_t device; /* st_dev and st_ino of the file */
    uint64_t inode;  /* 0: none */
    char path[STORE_SPILL_PATH_MAX];
};
static_assert(sizeof(struct store_spill_index_dir) == 1024, "both sides must agree");

struct store_spill_entry {
    uint64_t number; /* the head's */
    uint64_t offset; /* in the file */
    uint64_t bytes;
    uint64_t checksum; /* of the bytes */
    uint64_t era;
    uint32_t dir;
    uint32_t state; /* 1: it is there; written last, with release */
    uint64_t check; /* of the fields before `state`, and the life */
    uint64_t unused;
};
static_assert(sizeof(struct store_spill_entry) == 64, "both sides must agree");

struct store_spill_index {
    uint64_t magic;
    uint32_t version;
    uint32_t entry_end; /* those from here on were never used */
    /* one more than that of the index before; the greater one counts */
    uint64_t generation;
    uint64_t life;   /* drawn */
    uint64_t memory; /* store_host.memory; 0: not known yet */
    uint64_t era;    /* atomic: any thread */
    /* number of the host buffer; 0: none was made. Written after slab_bytes */
    uint64_t slab;
    uint64_t slab_bytes;
    uint64_t move; /* store_spill_move() */
    uint64_t unused[7];
    struct store_spill_index_dir dirs[STORE_SPILL_DIRS_MAX];
    struct store_spill_entry entries[STORE_SPILL_ENTRIES_MAX];
};

/* A fresh one, of a new life. *out_fd is the caller's. */
plasmon_status_t store_spill_index_create(struct store_spill_index **out_index, int *out_fd,
                                          struct pl_err *err) PL_MUST_CHECK;
/*
 * The index of a store that died, mapped for writing. fd is borrowed. EMALFORMED, EVERSION: it is
 * none, or of other memory than `memory`: err says which.
 */
plasmon_status_t store_spill_index_open(int fd, uint64_t memory,
                                        struct store_spill_index **out_index,
                                        struct pl_err *err) PL_MUST_CHECK;
void store_spill_index_close(struct store_spill_index *index); /* NULL is fine */
/* Say that it is there, when all but `era`, `state` and `check` are set. */
void store_spill_entry_set(struct store_spill_index *index, uint32_t at, uint64_t era);
void store_spill_entry_clear(struct store_spill_index *index, uint32_t at);
/*
 * Is it there, of this era, and as it was written? Then *out_entry is a copy, which nobody changes
 * any more. out_damaged: it says that it is there, and is not as it was written.
 */
bool store_spill_entry_get(const struct store_spill_index *index, uint32_t at,
                           struct store_spill_entry *out_entry, bool *out_damaged);

/*
 * Move bytes down in `memory`, from `from` to `to`, which may overlap. What was done is in
 * *progress (store_spill_index.move) after each piece, so that who is asked again, after a store
 * died in the middle, goes on there. The head asks for a move only when nothing else is unanswered,
 * so the last one is all that has to be known. steps_max: so many pieces at most (UINT64_MAX: all);
 * false: there are more.
 */
bool store_spill_move(uint8_t *memory, uint64_t id, uint64_t from, uint64_t to,
                      uint64_t bytes, uint64_t *progress, uint64_t steps_max);

#endif
