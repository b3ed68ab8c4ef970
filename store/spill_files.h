/*
 * Files for what neither devices nor host memory have room for: one in each directory, without a
 * name (O_TMPFILE), so nothing is left behind however store and workers end. Values lie in it side
 * by side, each in the first hole that will do; what is forgotten is given back to the disk.
 * Directories are filled in the order in which they were given, each up to its limit; one that
 * turns out to be full before is passed over until something in it is forgotten, and for so long at
 * most: then others may have given room back.
 *
 * The index (spill_index.h) has the place of each, and a checksum (checksum.h): what is read back
 * is believed only if it has it. Index and files outlive us in the workers, and
 * store_spill_files_adopt() takes those of the store before.
 *
 * Threads: owner only (the thread of spill.c; before it starts, its creator).
 */
#ifndef STORE_SPILL_FILES_H
#define STORE_SPILL_FILES_H

#include <stdbool.h>

#include "base/list.h"
#include "base/map.h"
#include "base/str.h"
#include "base/vec.h"
#include "store/spill_index.h"

#define STORE_SPILL_AGAIN_NS UINT64_C(5000000000)

struct store_spill_dir {
    char *path;
    uint64_t bytes_max;
    uint64_t bytes_used;
    bool full;              /* said that there is no room, or cannot be written .. */
    uint64_t again_ns;      /* .. and is not asked again before */
    int error;              /* .. for this */
    int fd;                 /* its file; -1: there is none here, as in the index */
    struct pl_list extents; /* of struct spill_file, by offset */
};

struct store_spill_files {
    struct store_spill_index *index;
    int index_fd;
    uint64_t era;                                      /* of what is written from now on */
    struct store_spill_dir dirs[STORE_SPILL_DIRS_MAX]; /* as in the index */
    /* those that are written to: as they were given */
    uint32_t order[STORE_SPILL_DIRS_MAX];
    uint32_t order_count;
    uint64_t again_after_ns;    /* STORE_SPILL_AGAIN_NS, but in tests */
    struct pl_map by_number;    /* number -> struct spill_file */
    struct pl_vec entries_free; /* uint32_t: of the index, below its entry_end */
};

/*
 * `texts`: DIR or DIR:LIMIT (suffix K, M, G, T), each a directory that this user can write; without
 * a limit nine tenths of what is free there now. EINVAL, or what is wrong with the directory: err
 * says which and why.
 */
plasmon_status_t store_spill_files_init(struct store_spill_files *files,
                                        const char *const *texts, uint32_t count,
                                        struct pl_err *err) PL_MUST_CHECK;
void store_spill_files_finish(struct store_spill_files *files);
/*
 * Take over what another store had, before anything was written: its index (taken, with index_fd)
 * and those of `fds` (borrowed) that are its files. Directories that were given to us are used from
 * now on; from others there is only read. What cannot be right is dropped, with a line in the log.
 * Not OK (ENOMEM): nothing changed, and what was to be taken is closed.
 */
plasmon_status_t store_spill_files_adopt(struct store_spill_files *files,
                                         struct store_spill_index *index, int index_fd,
                                         const int *fds, size_t fd_count) PL_MUST_CHECK;
uint64_t store_spill_files_max(const struct store_spill_files *files);
/*
 * ELIMIT: no directory has room; EIO: none can be written. err names the last that was tried, and
 * the remedy.
 */
plasmon_status_t store_spill_files_write(struct store_spill_files *files, uint64_t number,
                                         const void *data, uint64_t bytes,
                                         struct pl_err *err) PL_MUST_CHECK;
/* ELOST: it is not what was written; ENOENT: there is none; EIO. */
plasmon_status_t store_spill_files_read(struct store_spill_files *files, uint64_t number,
                                        void *data, uint64_t bytes,
                                        struct pl_err *err) PL_MUST_CHECK;
/* Is there one of so many bytes? */
bool store_spill_files_has(const struct store_spill_files *files, uint64_t number,
                           uint64_t bytes);
void store_spill_files_forget(struct store_spill_files *files, uint64_t number);
/* All of them: what is written from now on is of another era. */
void store_spill_files_forget_all(struct store_spill_files *files, uint64_t era);

#endif
