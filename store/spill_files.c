#include "store/spill_files_int.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/log.h"
#include "store/checksum.h"

/* at a time, so that a large value is no single call */
#define PIECE_BYTES (UINT64_C(8) << 20)
#define BLOCK_BYTES 4096u /* what disks give back holes in */

/* -------------------------------------------------------------------------- directories */

/* A limit behind the last colon: digits and a suffix. Anything else is part of the name. */
static bool limit_parse(const char *text, uint64_t *out_bytes)
{
    static const char suffixes[] = "KMGT";
    const char *suffix;
    int shift = 0;
    char *end;

    if (*text < '0' || *text > '9') {
        return false;
    }
    errno      = 0;
    *out_bytes = strtoull(text, &end, 10);
    if (errno != 0) {
        return false;
    }
    if (*end != '\0') {
        suffix = strchr(suffixes, *end);
        if (suffix == NULL || end[1] != '\0') {
            return false;
        }
        shift = 10 * (int)(suffix - suffixes + 1);
    }
    if (*out_bytes > UINT64_MAX >> 1 >> shift) {
        return false;
    }
    *out_bytes <<= shift;
    return true;
}

/* A file without a name in this directory. -1: errno. */
static int file_open(const char *path)
{
    char name[4096];
    int fd = open(path, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)) {
        return fd;
    }
    if (snprintf(name, sizeof(name), "%s/plasmon-spill-XXXXXX", path) >=
        (int)sizeof(name)) {
        errno = ENAMETOOLONG;
        return -1;
    }
    fd = mkostemp(name, O_CLOEXEC); /* a file system that knows no O_TMPFILE */
    if (fd >= 0) {
        (void)unlink(name);
    }
    return fd;
}

void spill_dir_name(struct store_spill_files *files, uint32_t slot)
{
    struct store_spill_index_dir *named = &files->index->dirs[slot];
    const struct store_spill_dir *dir   = &files->dirs[slot];
    struct stat about                   = {0};

    (void)snprintf(named->path, sizeof(named->path), "%s", dir->path);
    if (fstat(dir->fd, &about) == 0) { /* else nobody will find it, and it ends with us */
        named->device = about.st_dev;
        named->inode  = about.st_ino;
    }
}

void spill_dir_drop(struct store_spill_files *files, uint32_t slot)
{
    struct store_spill_dir *dir = &files->dirs[slot];

    files->index->dirs[slot].inode = 0;
    pl_fd_close(&dir->fd);
    pl_free(dir->path);
    dir->path = NULL;
}

static plasmon_status_t dir_refuse(const char *path, int error, struct pl_err *err)
{
    struct stat about;
    bool is_dir = stat(path, &about) == 0 && S_ISDIR(about.st_mode);

    /* Of a directory that is there: the kernel's own, /proc say, say it of each file that is to be made. */
    return pl_err_set(
        err, pl_status_from_errno(error), "--spill-dir %s: %s%s; give a directory %s", path,
        is_dir && error == ENOENT ? "no file can be made there" : strerror(error),
        !is_dir && strchr(path, ':') != NULL
            ? " (a limit behind ':' is a number with K, M, G or T)"
            : "",
        is_dir && error == ENOSPC  ? "on a disk with room"
        : is_dir && error == EROFS ? "on a disk that can be written"
                                   : "on a disk, that this user can write");
}

static plasmon_status_t dir_add(struct store_spill_files *files, uint32_t slot,
                                const char *text, struct pl_err *err)
{
    struct store_spill_dir *dir = &files->dirs[slot];
    const char *colon           = strrchr(text, ':');
    bool limited                = colon != NULL && limit_parse(colon + 1, &dir->bytes_max);
    struct statvfs fs;

    dir->path = pl_strdup(text);
    if (dir->path == NULL) {
        return pl_err_set(err, PLASMON_ENOMEM, "out of host memory");
    }
    if (limited) {
        dir->path[colon - text] = '\0';
    }
    if (strlen(dir->path) >= STORE_SPILL_PATH_MAX) {
        return pl_err_set(err, PLASMON_EINVAL,
                          "--spill-dir: a name of at most %u bytes, not %s",
                          STORE_SPILL_PATH_MAX - 1, dir->path);
    }
    dir->fd = file_open(dir->path);
    if (dir->fd < 0 || fstatvfs(dir->fd, &fs) != 0) {
        return dir_refuse(dir->path, errno, err);
    }
    if (!limited) {
        dir->bytes_max = (uint64_t)fs.f_bavail * fs.f_frsize / 10 * 9;
    }
    spill_dir_name(files, slot);
    files->order[files->order_count++] = slot;
    return PLASMON_OK;
}

void spill_files_clear(struct store_spill_files *files)
{
    memset(files, 0, sizeof(*files));
    pl_map_init(&files->by_number);
    files->entries_free   = PL_VEC_INIT(uint32_t);
    files->index_fd       = -1;
    files->again_after_ns = STORE_SPILL_AGAIN_NS;
    for (uint32_t i = 0; i < STORE_SPILL_DIRS_MAX; i++) {
        files->dirs[i].fd = -1;
        pl_list_init(&files->dirs[i].extents);
    }
}

plasmon_status_t store_spill_files_init(struct store_spill_files *files,
                                        const char *const *texts, uint32_t count,
                                        struct pl_err *err)
{
    plasmon_status_t status;

    spill_files_clear(files);
    if (count > STORE_SPILL_DIRS_MAX) {
        return pl_err_set(err, PLASMON_EINVAL, "--spill-dir: at most %u directories",
                          STORE_SPILL_DIRS_MAX);
    }
    status = store_spill_index_create(&files->index, &files->index_fd, err);
    for (uint32_t i = 0; i < count && status == PLASMON_OK; i++) {
        status = dir_add(files, i, texts[i], err);
    }
    if (status != PLASMON_OK) {
        store_spill_files_finish(files);
        return status;
    }
    files->era = files->index->era;
    return PLASMON_OK;
}

uint64_t store_spill_files_max(const struct store_spill_files *files)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < STORE_SPILL_DIRS_MAX; i++) {
        bytes += files->dirs[i].bytes_max;
    }
    return bytes;
}

/* ------------------------------------------------------------------------------- places */

uint64_t spill_file_span(uint64_t bytes)
{
    return pl_round_up(bytes, BLOCK_BYTES);
}

static struct spill_file *file_of(struct pl_list *pos)
{
    return pl_container_of(pos, struct spill_file, link);
}

/* The first hole that will do, or behind all that there is; out_before: what it comes after. */
static uint64_t place_find(struct store_spill_dir *dir, uint64_t bytes,
                           struct pl_list **out_before)
{
    uint64_t end = 0;
    struct pl_list *pos;

    *out_before = &dir->extents;
    pl_list_for_each(pos, &dir->extents) {
        const struct spill_file *file = file_of(pos);

        if (file->offset - end >= spill_file_span(bytes)) {
            break;
        }
        end         = file->offset + spill_file_span(file->bytes);
        *out_before = pos;
    }
    return end;
}

void spill_dir_give_back(const struct store_spill_dir *dir, uint64_t offset, uint64_t bytes)
{
    if (bytes == UINT64_MAX) {
        (void)!ftruncate(dir->fd, (off_t)offset); /* what it keeps is used again */
    } else if (bytes > 0) {
        (void)fallocate(dir->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset,
                        (off_t)bytes); /* as above: a file system may know no holes */
    }
}

plasmon_status_t spill_file_append(struct store_spill_files *files, uint32_t at,
                                   const struct store_spill_entry *entry)
{
    struct store_spill_dir *dir = &files->dirs[entry->dir];
    struct spill_file *file     = PL_NEW(struct spill_file);

    if (file == NULL || pl_map_set(&files->by_number, entry->number, file) != PLASMON_OK) {
        pl_free(file);
        return PLASMON_ENOMEM;
    }
    *file = (struct spill_file){.number   = entry->number,
                                .bytes    = entry->bytes,
                                .offset   = entry->offset,
                                .checksum = entry->checksum,
                                .entry    = at,
                                .dir      = entry->dir};
    pl_list_init(&file->link);
    pl_list_add_tail(&dir->extents, &file->link);
    dir->bytes_used += spill_file_span(file->bytes);
    return PLASMON_OK;
}

bool spill_entries_reserve(struct store_spill_files *files, uint32_t count)
{
    size_t had = files->entries_free.count;

    if (files->entries_free.capacity >= count) {
        return true;
    }
    if (pl_vec_push_n(&files->entries_free, count - had) == NULL) {
        return false;
    }
    files->entries_free.count = had;
    return true;
}

/* false: more values than the index has entries for, or no memory. */
static bool entry_take(struct store_spill_files *files, uint32_t *out_at)
{
    if (files->entries_free.count > 0) {
        *out_at =
            *(uint32_t *)pl_vec_at(&files->entries_free, files->entries_free.count - 1);
        pl_vec_pop(&files->entries_free);
        return true;
    }
    *out_at = files->index->entry_end;
    return *out_at < STORE_SPILL_ENTRIES_MAX && spill_entries_reserve(files, *out_at + 1);
}

static void entry_give(struct store_spill_files *files, uint32_t at)
{
    uint32_t *place = pl_vec_push(&files->entries_free);

    PL_CHECK(place != NULL); /* spill_entries_reserve() made room */
    *place = at;
}

/* -------------------------------------------------------------------------------- files */

/* The entry goes before the bytes do: see spill_index.h. */
static void file_destroy(struct store_spill_files *files, struct spill_file *file)
{
    struct store_spill_dir *dir = &files->dirs[file->dir];
    bool last                   = file->link.next == &dir->extents;

    store_spill_entry_clear(files->index, file->entry);
    entry_give(files, file->entry);
    dir->bytes_used -= spill_file_span(file->bytes);
    dir->full = false; /* there may be room now */
    spill_dir_give_back(dir, file->offset,
                        last ? UINT64_MAX : spill_file_span(file->bytes));
    pl_list_remove(&file->link);
    pl_free(file);
}

void store_spill_files_forget(struct store_spill_files *files, uint64_t number)
{
    struct spill_file *file = pl_map_remove(&files->by_number, number);

    if (file != NULL) {
        file_destroy(files, file);
    }
}

bool store_spill_files_has(const struct store_spill_files *files, uint64_t number,
                           uint64_t bytes)
{
    const struct spill_file *file = pl_map_get(&files->by_number, number);

    return file != NULL && file->bytes == bytes;
}

void store_spill_files_forget_all(struct store_spill_files *files, uint64_t era)
{
    uint64_t number;
    void *file;

    for (size_t i = 0; pl_map_next(&files->by_number, &i, &number, &file);) {
        file_destroy(files, file);
    }
    pl_map_finish(&files->by_number);
    pl_map_init(&files->by_number);
    files->era = era;
}

/* What is in the files stays for whoever has their descriptors; without one it is gone. */
void store_spill_files_finish(struct store_spill_files *files)
{
    uint64_t number;
    void *file;

    for (size_t i = 0; pl_map_next(&files->by_number, &i, &number, &file);) {
        pl_free(file);
    }
    pl_map_finish(&files->by_number);
    pl_vec_finish(&files->entries_free);
    for (uint32_t i = 0; i < STORE_SPILL_DIRS_MAX; i++) {
        pl_fd_close(&files->dirs[i].fd);
        pl_free(files->dirs[i].path);
        files->dirs[i].path = NULL;
    }
    store_spill_index_close(files->index);
    files->index = NULL;
    pl_fd_close(&files->index_fd);
}

/* errno, or 0. */
static int all_write(int fd, uint64_t offset, const uint8_t *data, uint64_t bytes)
{
    uint64_t done = 0;

    if (pl_fault_point("store.spill_full")) {
        return ENOSPC;
    }
    /* All of it is to have its place before anything is believed to be there. */
    if (fallocate(fd, 0, (off_t)offset, (off_t)bytes) != 0 && errno != EOPNOTSUPP &&
        errno != EINTR) {
        return errno;
    }
    while (done < bytes) {
        ssize_t wrote = pwrite(fd, data + done, pl_min_u64(bytes - done, PIECE_BYTES),
                               (off_t)(offset + done));

        if (wrote < 0 && errno == EINTR) {
            continue;
        }
        if (wrote <= 0) {
            return wrote < 0 ? errno : ENOSPC;
        }
        done += (uint64_t)wrote;
    }
    /*
     * What the disk cannot take is to be known now, while the bytes are elsewhere, too; and the
     * page cache is to hold no second copy.
     */
    if (fdatasync(fd) != 0 && errno != EINVAL && errno != EROFS) {
        return errno;
    }
    (void)posix_fadvise(fd, (off_t)offset, (off_t)bytes, POSIX_FADV_DONTNEED); /* a hint */
    return 0;
}

static int all_read(int fd, uint64_t offset, uint8_t *data, uint64_t bytes)
{
    uint64_t done = 0;

    while (done < bytes) {
        ssize_t got = pread(fd, data + done, pl_min_u64(bytes - done, PIECE_BYTES),
                            (off_t)(offset + done));

        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            return got < 0 ? errno : ENODATA;
        }
        done += (uint64_t)got;
    }
    (void)posix_fadvise(fd, (off_t)offset, (off_t)bytes, POSIX_FADV_DONTNEED); /* a hint */
    return 0;
}

/* errno, or 0: it is in the index. */
static int write_into(struct store_spill_files *files, uint32_t slot, uint64_t number,
                      const void *data, uint64_t bytes)
{
    struct store_spill_dir *dir = &files->dirs[slot];
    struct spill_file *file     = PL_NEW(struct spill_file);
    struct store_spill_entry *entry;
    struct pl_list *before;
    int error;

    if (file == NULL) {
        return ENOMEM;
    }
    if (!entry_take(files, &file->entry)) {
        pl_free(file);
        return EMFILE;
    }
    file->number   = number;
    file->bytes    = bytes;
    file->dir      = slot;
    file->checksum = store_checksum(data, bytes);
    file->offset   = place_find(dir, bytes, &before);
    pl_list_init(&file->link);

    error = all_write(dir->fd, file->offset, data, bytes);
    if (error == 0 && pl_map_set(&files->by_number, number, file) != PLASMON_OK) {
        error = ENOMEM;
    }
    pl_list_add_after(before, &file->link);
    dir->bytes_used += spill_file_span(bytes);
    if (error != 0) {
        file_destroy(files, file);
        return error;
    }
    entry           = &files->index->entries[file->entry];
    entry->number   = number;
    entry->offset   = file->offset;
    entry->bytes    = bytes;
    entry->checksum = file->checksum;
    entry->dir      = slot;
    store_spill_entry_set(files->index, file->entry, files->era);
    return 0;
}

static bool dir_has_room(const struct store_spill_dir *dir, uint64_t bytes)
{
    return spill_file_span(bytes) <=
           dir->bytes_max - pl_min_u64(dir->bytes_used, dir->bytes_max);
}

static plasmon_status_t dir_fault(const struct store_spill_dir *dir, struct pl_err *err)
{
    bool no_room = dir->error == ENOSPC || dir->error == EDQUOT;

    return pl_err_set(err, no_room ? PLASMON_ELIMIT : PLASMON_EIO,
                      "spill directory %s: %s; %s start plasmon-store with another "
                      "--spill-dir",
                      dir->path, strerror(dir->error),
                      no_room ? "free space there, or" : "look at its disk, or");
}

/* Said once, until it is written again. */
static plasmon_status_t dir_failed(struct store_spill_files *files,
                                   struct store_spill_dir *dir, bool was_full, int error,
                                   struct pl_err *err)
{
    dir->full     = true;
    dir->error    = error;
    dir->again_ns = pl_now_ns() + files->again_after_ns;
    (void)dir_fault(dir, err);
    if (!was_full) {
        pl_warn("store", "%s", err->text);
    }
    return err->status;
}

plasmon_status_t store_spill_files_write(struct store_spill_files *files, uint64_t number,
                                         const void *data, uint64_t bytes,
                                         struct pl_err *err)
{
    plasmon_status_t status = pl_err_set(err, PLASMON_ELIMIT,
                                         "the --spill-dir limits leave no room for %llu "
                                         "bytes; raise them, or add a directory",
                                         (unsigned long long)bytes);

    for (uint32_t i = 0; i < files->order_count; i++) {
        struct store_spill_dir *dir = &files->dirs[files->order[i]];
        bool was_full               = dir->full;
        int error;

        if (!dir_has_room(dir, bytes)) {
            continue;
        }
        if (was_full && pl_now_ns() < dir->again_ns) {
            status = dir_fault(dir, err); /* it is that still, and no limit of ours */
            continue;
        }
        error = write_into(files, files->order[i], number, data, bytes);
        if (error == 0) {
            if (was_full) {
                pl_info("store", "spill directory %s is written again", dir->path);
            }
            dir->full = false;
            return PLASMON_OK;
        }
        status = dir_failed(files, dir, was_full, error, err);
    }
    return status;
}

plasmon_status_t store_spill_files_read(struct store_spill_files *files, uint64_t number,
                                        void *data, uint64_t bytes, struct pl_err *err)
{
    const struct spill_file *file = pl_map_get(&files->by_number, number);
    const struct store_spill_dir *dir;
    int error;

    if (file == NULL || file->bytes != bytes) {
        return pl_err_set(err, PLASMON_ENOENT,
                          "there is no value of %llu bytes under %llu in spill files",
                          (unsigned long long)bytes, (unsigned long long)number);
    }
    dir   = &files->dirs[file->dir];
    error = all_read(dir->fd, file->offset, data, bytes);
    if (error != 0) {
        return pl_err_set(err, PLASMON_EIO,
                          "the file in spill directory %s cannot be read: %s", dir->path,
                          strerror(error));
    }
    if (store_checksum(data, bytes) != file->checksum) {
        return pl_err_set(err, PLASMON_ELOST,
                          "a value in spill directory %s has not the checksum that it was "
                          "written with: that disk is not to be trusted",
                          dir->path);
    }
    return PLASMON_OK;
}
