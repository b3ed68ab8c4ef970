#include "store/spill_index.h"

#include <fcntl.h>
#include <stddef.h>
#include <sys/random.h>
#include <sys/stat.h>

#include "base/base.h"
#include "base/fd.h"
#include "store/checksum.h"

#define INDEX_MAGIC UINT64_C(0x31786469726c6c73) /* "sllridx1" */

static plasmon_status_t index_map(int fd, struct store_spill_index **out_index)
{
    void *memory;
    plasmon_status_t status = pl_fd_map(fd, sizeof(**out_index), 1, &memory);

    *out_index = status == PLASMON_OK ? memory : NULL;
    return status;
}

plasmon_status_t store_spill_index_create(struct store_spill_index **out_index, int *out_fd,
                                          struct pl_err *err)
{
    struct store_spill_index *index = NULL;
    uint64_t life                   = 0;
    plasmon_status_t status;
    int fd = -1;

    while (life == 0) {
        if (getrandom(&life, sizeof(life), 0) != (ssize_t)sizeof(life)) {
            return pl_err_set(err, PLASMON_EIO, "no random numbers");
        }
    }
    status = pl_memfd_create("plasmon-spill", sizeof(*index), &fd);
    if (status == PLASMON_OK) {
        status = index_map(fd, &index);
    }
    if (status != PLASMON_OK) {
        pl_fd_close(&fd);
        return pl_err_set(err, status, "memory for the index of spill files: %s",
                          pl_status_text(status));
    }
    index->magic      = INDEX_MAGIC;
    index->version    = STORE_SPILL_INDEX_VERSION;
    index->generation = 1;
    index->life       = life;
    index->era        = 1;
    *out_index        = index;
    *out_fd           = fd;
    return PLASMON_OK;
}

plasmon_status_t store_spill_index_open(int fd, uint64_t memory,
                                        struct store_spill_index **out_index,
                                        struct pl_err *err)
{
    struct store_spill_index *index;
    plasmon_status_t status;
    struct stat about;

    /* Sealed: whoever else has it cannot make it shorter under us. */
    if (fstat(fd, &about) != 0 || !S_ISREG(about.st_mode) ||
        about.st_size != (off_t)sizeof(*index) ||
        (fcntl(fd, F_GET_SEALS) & F_SEAL_SHRINK) == 0) {
        return pl_err_set(err, PLASMON_EMALFORMED, "it is no index of spill files");
    }
    status = index_map(fd, &index);
    if (status != PLASMON_OK) {
        return pl_err_set(err, status, "the index of spill files: %s",
                          pl_status_text(status));
    }
    if (index->magic != INDEX_MAGIC || index->version != STORE_SPILL_INDEX_VERSION) {
        status = pl_err_set(err, PLASMON_EVERSION,
                            "the index of spill files is of version %u, and this store "
                            "knows %u",
                            index->version, STORE_SPILL_INDEX_VERSION);
    } else if (memory == 0 || index->memory != memory) {
        status = pl_err_set(err, PLASMON_EMALFORMED,
                            "the index of spill files is of other memory than this "
                            "host's devices");
    } else if (index->life == 0 || index->entry_end > STORE_SPILL_ENTRIES_MAX) {
        status = pl_err_set(err, PLASMON_EMALFORMED,
                            "the index of spill files says that it has %u entries",
                            index->entry_end);
    }
    if (status != PLASMON_OK) {
        store_spill_index_close(index);
        return status;
    }
    for (unsigned i = 0; i < STORE_SPILL_DIRS_MAX; i++) {
        index->dirs[i].path[STORE_SPILL_PATH_MAX - 1] = '\0';
    }
    *out_index = index;
    return PLASMON_OK;
}

void store_spill_index_close(struct store_spill_index *index)
{
    if (index != NULL) {
        pl_fd_unmap(index, sizeof(*index));
    }
}

/* ------------------------------------------------------------------------------ entries */

static uint64_t entry_check(const struct store_spill_index *index,
                            const struct store_spill_entry *entry)
{
    return store_checksum(entry, offsetof(struct store_spill_entry, state)) ^ index->life;
}

void store_spill_entry_set(struct store_spill_index *index, uint32_t at, uint64_t era)
{
    struct store_spill_entry *entry = &index->entries[at];

    entry->era   = era;
    entry->check = entry_check(index, entry);
    if (index->entry_end <= at) {
        index->entry_end = at + 1;
    }
    __atomic_store_n(&entry->state, 1, __ATOMIC_RELEASE); /* whoever finds it finds all */
}

void store_spill_entry_clear(struct store_spill_index *index, uint32_t at)
{
    __atomic_store_n(&index->entries[at].state, 0, __ATOMIC_RELEASE);
}

bool store_spill_entry_get(const struct store_spill_index *index, uint32_t at,
                           struct store_spill_entry *out_entry, bool *out_damaged)
{
    uint32_t state = __atomic_load_n(&index->entries[at].state, __ATOMIC_ACQUIRE);

    *out_damaged = false;
    if (state == 0) {
        return false;
    }
    *out_entry   = index->entries[at];
    *out_damaged = state != 1 || out_entry->check != entry_check(index, out_entry);
    return !*out_damaged &&
           out_entry->era == __atomic_load_n(&index->era, __ATOMIC_ACQUIRE);
}
