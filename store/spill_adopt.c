/*
 * Taking over the spill files of a store that died: see spill_index.h.
 *
 * RULE. The head's records say what should be there, the index says what is. An entry is believed
 * if it is as it was written, of the present era, within its file, and over no other; its bytes are
 * believed if they have their checksum when they are read. All else is dropped here, and a value
 * that the head looks for and that is not there is lost to it (ELOST), which makes it again where
 * it can. There are no entries that the head does not know: it asked for each, and asks again for
 * what was not answered.
 *
 * What no entry names in a file - the rest of a write that was under way, what was forgotten when
 * the store died - is given back to the disk.
 */
#include "store/spill_files_int.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "base/log.h"

/* What is given up, by directory: one line in the log for each. */
struct drops {
    uint32_t counts[STORE_SPILL_DIRS_MAX + 1]; /* the last: of no directory */
    const char *why[STORE_SPILL_DIRS_MAX + 1];
};

static void drop(struct store_spill_files *files, struct drops *drops, uint32_t at,
                 const struct store_spill_entry *entry, const char *why)
{
    uint32_t dir  = entry->dir;
    uint32_t slot = dir < STORE_SPILL_DIRS_MAX ? dir : STORE_SPILL_DIRS_MAX;

    drops->counts[slot]++;
    drops->why[slot] = why;
    store_spill_entry_clear(files->index, at);
}

static void drops_say(const struct store_spill_files *files, const struct drops *drops)
{
    for (uint32_t i = 0; i <= STORE_SPILL_DIRS_MAX; i++) {
        if (drops->counts[i] > 0) {
            pl_warn("store",
                    "%u values that the store before had in spill directory %.*s are lost: "
                    "%s",
                    drops->counts[i], (int)STORE_SPILL_PATH_MAX - 1,
                    i < STORE_SPILL_DIRS_MAX ? files->index->dirs[i].path : "(unknown)",
                    drops->why[i]);
        }
    }
}

/* -------------------------------------------------------------------------------- files */

/*
 * A copy of the descriptor of the file that the index names, which has no other name; -1: nobody
 * handed it on.
 */
static int file_find(const struct store_spill_index_dir *named, const int *fds,
                     size_t count)
{
    struct stat about;

    for (size_t i = 0; i < count && named->inode != 0; i++) {
        if (fstat(fds[i], &about) == 0 && S_ISREG(about.st_mode) && about.st_nlink == 0 &&
            about.st_dev == named->device && about.st_ino == named->inode) {
            return fcntl(fds[i], F_DUPFD_CLOEXEC, 3);
        }
    }
    return -1;
}

static uint64_t file_bytes(const struct store_spill_dir *dir)
{
    struct stat about;

    return dir->fd >= 0 && fstat(dir->fd, &about) == 0 && about.st_size > 0
               ? (uint64_t)about.st_size
               : 0;
}

/* Two slots would give the same bytes away twice. */
static bool named_before(const struct store_spill_index *index, uint32_t slot)
{
    for (uint32_t i = 0; i < slot; i++) {
        if (index->dirs[i].inode == index->dirs[slot].inode &&
            index->dirs[i].device == index->dirs[slot].device) {
            return true;
        }
    }
    return false;
}

static plasmon_status_t dirs_take(struct store_spill_files *files, const int *fds,
                                  size_t count)
{
    for (uint32_t i = 0; i < STORE_SPILL_DIRS_MAX; i++) {
        struct store_spill_dir *dir = &files->dirs[i];

        dir->fd = named_before(files->index, i)
                      ? -1
                      : file_find(&files->index->dirs[i], fds, count);
        if (dir->fd >= 0) {
            files->index->dirs[i].path[STORE_SPILL_PATH_MAX - 1] = '\0';
            dir->path = pl_strdup(files->index->dirs[i].path);
            if (dir->path == NULL) {
                return PLASMON_ENOMEM;
            }
        }
    }
    return PLASMON_OK;
}

/* ------------------------------------------------------------------------------ entries */

struct candidate {
    uint32_t at;
    struct store_spill_entry entry; /* a copy */
};

static int candidate_compare(const void *a, const void *b)
{
    const struct store_spill_entry *left  = &((const struct candidate *)a)->entry;
    const struct store_spill_entry *right = &((const struct candidate *)b)->entry;

    if (left->dir != right->dir) {
        return left->dir < right->dir ? -1 : 1;
    }
    return left->offset < right->offset ? -1 : left->offset > right->offset;
}

/* NULL: it can be. */
static const char *entry_wrong(const struct store_spill_files *files,
                               const struct store_spill_entry *entry,
                               const uint64_t *file_sizes)
{
    uint64_t size;

    if (entry->dir >= STORE_SPILL_DIRS_MAX || files->dirs[entry->dir].fd < 0) {
        return "no worker had its file";
    }
    size = file_sizes[entry->dir];
    if (entry->number == 0 || entry->bytes == 0 || entry->bytes > size ||
        entry->offset > size - entry->bytes ||
        entry->offset != spill_file_span(entry->offset)) {
        return "it lies outside of its file";
    }
    return NULL;
}

/* Those that may be taken. false: no memory. */
static bool candidates_collect(struct store_spill_files *files, struct drops *drops,
                               struct pl_vec *candidates)
{
    uint64_t sizes[STORE_SPILL_DIRS_MAX];

    for (uint32_t i = 0; i < STORE_SPILL_DIRS_MAX; i++) {
        sizes[i] = file_bytes(&files->dirs[i]);
    }
    for (uint32_t at = 0; at < files->index->entry_end; at++) {
        struct store_spill_entry entry;
        struct candidate *place;
        const char *wrong;
        bool damaged;

        if (!store_spill_entry_get(files->index, at, &entry, &damaged)) {
            if (damaged) {
                drop(files, drops, at, &entry, "the index is damaged");
            } else {
                store_spill_entry_clear(files->index, at);
            }
            continue;
        }
        wrong = entry_wrong(files, &entry, sizes);
        if (wrong != NULL) {
            drop(files, drops, at, &entry, wrong);
            continue;
        }
        place = pl_vec_push(candidates);
        if (place == NULL) {
            return false;
        }
        *place = (struct candidate){.at = at, .entry = entry};
    }
    return true;
}

static plasmon_status_t candidates_take(struct store_spill_files *files,
                                        struct drops *drops,
                                        const struct pl_vec *candidates)
{
    uint64_t ends[STORE_SPILL_DIRS_MAX] = {0};

    for (size_t i = 0; i < candidates->count; i++) {
        const struct candidate *candidate     = pl_vec_at(candidates, i);
        const struct store_spill_entry *entry = &candidate->entry;
        const struct store_spill_dir *dir     = &files->dirs[entry->dir];
        uint64_t *end                         = &ends[entry->dir];

        if (entry->offset < *end || pl_map_get(&files->by_number, entry->number) != NULL) {
            drop(files, drops, candidate->at, entry,
                 "it is there twice, or over another one");
            continue;
        }
        spill_dir_give_back(dir, *end, entry->offset - *end);
        if (spill_file_append(files, candidate->at, entry) != PLASMON_OK) {
            return PLASMON_ENOMEM;
        }
        *end = entry->offset + spill_file_span(entry->bytes);
    }
    for (uint32_t i = 0; i < STORE_SPILL_DIRS_MAX; i++) {
        if (files->dirs[i].fd >= 0) {
            spill_dir_give_back(&files->dirs[i], ends[i], UINT64_MAX);
        }
    }
    return PLASMON_OK;
}

static plasmon_status_t entries_take(struct store_spill_files *files)
{
    struct pl_vec candidates = PL_VEC_INIT(struct candidate);
    struct drops drops       = {{0}, {NULL}};
    plasmon_status_t status  = PLASMON_ENOMEM;

    if (candidates_collect(files, &drops, &candidates)) {
        if (candidates.count > 0) {
            qsort(candidates.items, candidates.count, sizeof(struct candidate),
                  candidate_compare);
        }
        status = candidates_take(files, &drops, &candidates);
    }
    if (status == PLASMON_OK && !spill_entries_reserve(files, files->index->entry_end)) {
        status = PLASMON_ENOMEM;
    }
    for (uint32_t at = 0; at < files->index->entry_end && status == PLASMON_OK; at++) {
        uint32_t *place =
            files->index->entries[at].state == 0 ? pl_vec_push(&files->entries_free) : NULL;

        if (place != NULL) {
            *place = at;
        } else if (files->index->entries[at].state == 0) {
            status = PLASMON_ENOMEM;
        }
    }
    drops_say(files, &drops);
    pl_vec_finish(&candidates);
    return status;
}

/* -------------------------------------------------------------------------- directories */

/* One that we were given: the file that is there goes on, or ours is used. */
static void dir_settle(struct store_spill_files *files, struct store_spill_dir *ours)
{
    uint32_t free_slot = STORE_SPILL_DIRS_MAX;

    for (uint32_t i = 0; i < STORE_SPILL_DIRS_MAX; i++) {
        struct store_spill_dir *dir = &files->dirs[i];

        if (dir->fd >= 0 && strcmp(dir->path, ours->path) == 0) {
            dir->bytes_max                     = ours->bytes_max;
            files->order[files->order_count++] = i;
            return;
        }
        if (dir->fd < 0 && free_slot == STORE_SPILL_DIRS_MAX) {
            free_slot = i;
        }
    }
    if (free_slot == STORE_SPILL_DIRS_MAX) {
        pl_warn("store",
                "--spill-dir %s is not used: %u directories of the store before have "
                "values still",
                ours->path, STORE_SPILL_DIRS_MAX);
        return;
    }
    files->dirs[free_slot].path      = ours->path;
    files->dirs[free_slot].bytes_max = ours->bytes_max;
    files->dirs[free_slot].fd        = ours->fd;
    ours->path                       = NULL;
    ours->fd                         = -1;
    spill_dir_name(files, free_slot);
    files->order[files->order_count++] = free_slot;
}

/* What we were given, in its order; others are read until they are empty. */
static void dirs_settle(struct store_spill_files *files, struct store_spill_files *given)
{
    for (uint32_t i = 0; i < STORE_SPILL_DIRS_MAX; i++) {
        struct store_spill_dir *dir = &files->dirs[i];

        dir->bytes_max = dir->bytes_used;
        if (dir->bytes_used == 0) {
            spill_dir_drop(files, i);
        }
    }
    for (uint32_t i = 0; i < given->order_count; i++) {
        dir_settle(files, &given->dirs[given->order[i]]);
    }
}

plasmon_status_t store_spill_files_adopt(struct store_spill_files *files,
                                         struct store_spill_index *index, int index_fd,
                                         const int *fds, size_t fd_count)
{
    struct store_spill_files given = *files; /* there is nothing in them */
    plasmon_status_t status;

    spill_files_clear(files);
    files->index    = index;
    files->index_fd = index_fd;
    files->era      = index->era;
    status          = dirs_take(files, fds, fd_count);
    if (status == PLASMON_OK) {
        status = entries_take(files);
    }
    if (status != PLASMON_OK) {
        store_spill_files_finish(files);
        *files = given;
        for (uint32_t i = 0; i < STORE_SPILL_DIRS_MAX; i++) {
            pl_list_init(&files->dirs[i].extents);
        }
        return status;
    }
    dirs_settle(files, &given);
    store_spill_files_finish(&given);
    return PLASMON_OK;
}
