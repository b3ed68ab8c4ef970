/*
 * Files for what neither devices nor host memory have room for: one a spilled buffer, without a name (O_TMPFILE), so nothing is left behind
 * however the store ends. Directories are filled in the order in which they were given, each up to its limit; one that turns out to be
 * full before is passed over from then on until something in it is forgotten. The index keeps a checksum of each (checksum.h), and what is
 * read back is believed only if it has it.
 *
 * Threads: owner only (the thread of spill.c).
 */
#ifndef STORE_SPILL_FILES_H
#define STORE_SPILL_FILES_H

#include <stdbool.h>

#include "base/map.h"
#include "base/str.h"

#define STORE_SPILL_DIRS_MAX 8u

struct store_spill_dir {
    char *path;
    uint64_t bytes_max;
    uint64_t bytes_used;
    bool full; /* said that there is no room, or cannot be written */
};

struct store_spill_files {
    struct store_spill_dir dirs[STORE_SPILL_DIRS_MAX];
    uint32_t dir_count;
    struct pl_map by_number; /* number -> struct spill_file */
};

/*
 * `texts`: DIR or DIR:LIMIT (suffix K, M, G, T), each a directory that this user can write; without a limit nine tenths of what is free there
 * now. EINVAL, or what is wrong with the directory: err says which and why.
 */
plasmon_status_t store_spill_files_init(struct store_spill_files *files,
                                        const char *const *texts, uint32_t count,
                                        struct pl_err *err) PL_MUST_CHECK;
void store_spill_files_finish(struct store_spill_files *files);
uint64_t store_spill_files_max(const struct store_spill_files *files);
/* ELIMIT: no directory has room; EIO: none can be written. err names the last that was tried, and the remedy. */
plasmon_status_t store_spill_files_write(struct store_spill_files *files, uint64_t number,
                                         const void *data, uint64_t bytes,
                                         struct pl_err *err) PL_MUST_CHECK;
/* ELOST: it is not what was written; ENOENT: there is none; EIO. */
plasmon_status_t store_spill_files_read(struct store_spill_files *files, uint64_t number,
                                        void *data, uint64_t bytes,
                                        struct pl_err *err) PL_MUST_CHECK;
void store_spill_files_forget(struct store_spill_files *files, uint64_t number);
void store_spill_files_forget_all(struct store_spill_files *files);

#endif
