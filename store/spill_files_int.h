/* What spill_files.c and spill_adopt.c share: see spill_files.h. */
#ifndef STORE_SPILL_FILES_INT_H
#define STORE_SPILL_FILES_INT_H

#include "store/spill_files.h"

struct spill_file {
    uint64_t number;
    uint64_t bytes;
    uint64_t offset;
    uint64_t checksum;
    uint32_t entry; /* of the index */
    uint32_t dir;
    struct pl_list link; /* store_spill_dir.extents */
};

/* No index, no directories. */
void spill_files_clear(struct store_spill_files *files);
/* What it takes of the file. */
uint64_t spill_file_span(uint64_t bytes);
/* Behind what is there of the directory: it is the last in the file so far. ENOMEM. */
plasmon_status_t spill_file_append(struct store_spill_files *files, uint32_t at,
                                   const struct store_spill_entry *entry) PL_MUST_CHECK;
/* Room for so many entries that are given back, so that to forget a value cannot fail. false: no memory. */
bool spill_entries_reserve(struct store_spill_files *files, uint32_t count);
/* Give bytes of its file back to the disk. bytes UINT64_MAX: all from there on. */
void spill_dir_give_back(const struct store_spill_dir *dir, uint64_t offset,
                         uint64_t bytes);
/* A slot of the index names this directory and its file from now on. */
void spill_dir_name(struct store_spill_files *files, uint32_t slot);
/* Close it, and let its slot go. */
void spill_dir_drop(struct store_spill_files *files, uint32_t slot);

#endif
