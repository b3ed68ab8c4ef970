#include "store/spill_files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/log.h"
#include "store/checksum.h"

#define PIECE_BYTES \
    (UINT64_C(8) << 20) /* at a time, so that a large file is no single call */

struct spill_file {
    int fd;
    uint64_t bytes;
    uint64_t checksum;
    struct store_spill_dir *dir;
};

/* --------------------------------------------------------------------------------------------- directories */

/* A limit behind the last colon: digits and a suffix. Anything else is part of the name. */
static bool limit_parse(const char *text, uint64_t *out_bytes)
{
    static const char suffixes[] = "KMGT";
    const char *suffix;
    char *end;

    if (*text < '0' || *text > '9') {
        return false;
    }
    errno      = 0;
    *out_bytes = strtoull(text, &end, 10);
    if (errno != 0 || *out_bytes > UINT64_MAX >> 41) {
        return false;
    }
    if (*end != '\0') {
        suffix = strchr(suffixes, *end);
        if (suffix == NULL || end[1] != '\0') {
            return false;
        }
        *out_bytes <<= 10 * (suffix - suffixes + 1);
    }
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

static plasmon_status_t dir_add(struct store_spill_files *files, const char *text,
                                struct pl_err *err)
{
    struct store_spill_dir *dir = &files->dirs[files->dir_count];
    const char *colon           = strrchr(text, ':');
    bool limited                = colon != NULL && limit_parse(colon + 1, &dir->bytes_max);
    struct statvfs fs;
    int fd;

    dir->path = pl_strdup(text);
    if (dir->path == NULL) {
        return pl_err_set(err, PLASMON_ENOMEM, "out of host memory");
    }
    if (limited) {
        dir->path[colon - text] = '\0';
    }
    files->dir_count++;
    fd = file_open(dir->path);
    if (fd < 0 || fstatvfs(fd, &fs) != 0) {
        plasmon_status_t status = pl_status_from_errno(errno);

        (void)pl_err_set(err, status,
                         "--spill-dir %s: %s; give a directory that this user can write",
                         dir->path, strerror(errno));
        pl_fd_close(&fd);
        return status;
    }
    pl_fd_close(&fd);
    if (!limited) {
        dir->bytes_max = (uint64_t)fs.f_bavail * fs.f_frsize / 10 * 9;
    }
    return PLASMON_OK;
}

plasmon_status_t store_spill_files_init(struct store_spill_files *files,
                                        const char *const *texts, uint32_t count,
                                        struct pl_err *err)
{
    plasmon_status_t status = PLASMON_OK;

    memset(files, 0, sizeof(*files));
    pl_map_init(&files->by_number);
    if (count > STORE_SPILL_DIRS_MAX) {
        return pl_err_set(err, PLASMON_EINVAL, "--spill-dir: at most %u directories",
                          STORE_SPILL_DIRS_MAX);
    }
    for (uint32_t i = 0; i < count && status == PLASMON_OK; i++) {
        status = dir_add(files, texts[i], err);
    }
    if (status != PLASMON_OK) {
        store_spill_files_finish(files);
    }
    return status;
}

uint64_t store_spill_files_max(const struct store_spill_files *files)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < files->dir_count; i++) {
        bytes += files->dirs[i].bytes_max;
    }
    return bytes;
}

/* --------------------------------------------------------------------------------------------------- files */

static void file_destroy(struct spill_file *file)
{
    file->dir->bytes_used -= file->bytes;
    file->dir->full = false; /* there may be room now */
    pl_fd_close(&file->fd);
    pl_free(file);
}

void store_spill_files_forget(struct store_spill_files *files, uint64_t number)
{
    struct spill_file *file = pl_map_remove(&files->by_number, number);

    if (file != NULL) {
        file_destroy(file);
    }
}

void store_spill_files_forget_all(struct store_spill_files *files)
{
    uint64_t number;
    void *file;

    for (size_t i = 0; pl_map_next(&files->by_number, &i, &number, &file);) {
        file_destroy(file);
    }
    pl_map_finish(&files->by_number);
    pl_map_init(&files->by_number);
}

void store_spill_files_finish(struct store_spill_files *files)
{
    store_spill_files_forget_all(files);
    pl_map_finish(&files->by_number);
    for (uint32_t i = 0; i < files->dir_count; i++) {
        pl_free(files->dirs[i].path);
    }
    files->dir_count = 0;
}

/* errno, or 0. */
static int all_write(int fd, const uint8_t *data, uint64_t bytes)
{
    uint64_t done = 0;

    if (pl_fault_point("store.spill_full")) {
        return ENOSPC;
    }
    /* All of it is to have its place before anything is believed to be there. */
    if (fallocate(fd, 0, 0, (off_t)bytes) != 0 && errno != EOPNOTSUPP && errno != EINTR) {
        return errno;
    }
    while (done < bytes) {
        ssize_t wrote =
            pwrite(fd, data + done, pl_min_u64(bytes - done, PIECE_BYTES), (off_t)done);

        if (wrote < 0 && errno == EINTR) {
            continue;
        }
        if (wrote <= 0) {
            return wrote < 0 ? errno : ENOSPC;
        }
        done += (uint64_t)wrote;
    }
    /* What the disk cannot take is to be known now, while the bytes are elsewhere, too; and the page cache is to hold no second copy. */
    if (fdatasync(fd) != 0 && errno != EINVAL && errno != EROFS) {
        return errno;
    }
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED); /* a hint */
    return 0;
}

static int all_read(int fd, uint8_t *data, uint64_t bytes)
{
    uint64_t done = 0;

    while (done < bytes) {
        ssize_t got =
            pread(fd, data + done, pl_min_u64(bytes - done, PIECE_BYTES), (off_t)done);

        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            return got < 0 ? errno : ENODATA;
        }
        done += (uint64_t)got;
    }
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED); /* a hint */
    return 0;
}

/* errno, or 0: it is in the index. */
static int write_into(struct store_spill_files *files, struct store_spill_dir *dir,
                      uint64_t number, const void *data, uint64_t bytes)
{
    struct spill_file *file = PL_NEW(struct spill_file);
    int error;

    if (file == NULL) {
        return ENOMEM;
    }
    *file = (struct spill_file){
        .fd = file_open(dir->path), .checksum = store_checksum(data, bytes), .dir = dir};
    error = file->fd < 0 ? errno : all_write(file->fd, data, bytes);
    if (error == 0 && pl_map_set(&files->by_number, number, file) != PLASMON_OK) {
        error = ENOMEM;
    }
    if (error != 0) {
        pl_fd_close(&file->fd);
        pl_free(file);
        return error;
    }
    file->bytes = bytes;
    dir->bytes_used += bytes;
    return 0;
}

plasmon_status_t store_spill_files_write(struct store_spill_files *files, uint64_t number,
                                         const void *data, uint64_t bytes,
                                         struct pl_err *err)
{
    plasmon_status_t status = pl_err_set(err, PLASMON_ELIMIT,
                                         "the --spill-dir limits leave no room for %llu "
                                         "bytes; raise them, or add a directory",
                                         (unsigned long long)bytes);

    for (uint32_t i = 0; i < files->dir_count; i++) {
        struct store_spill_dir *dir = &files->dirs[i];
        int error;

        if (dir->full ||
            bytes > dir->bytes_max - pl_min_u64(dir->bytes_used, dir->bytes_max)) {
            continue;
        }
        error = write_into(files, dir, number, data, bytes);
        if (error == 0) {
            return PLASMON_OK;
        }
        dir->full = true;
        status    = pl_err_set(
               err, error == ENOSPC || error == EDQUOT ? PLASMON_ELIMIT : PLASMON_EIO,
               "spill directory %s: %s; free space there, or start plasmon-store "
                  "with another --spill-dir",
               dir->path, strerror(error));
        pl_warn("store", "%s", err->text);
    }
    return status;
}

plasmon_status_t store_spill_files_read(struct store_spill_files *files, uint64_t number,
                                        void *data, uint64_t bytes, struct pl_err *err)
{
    const struct spill_file *file = pl_map_get(&files->by_number, number);
    int error;

    if (file == NULL || file->bytes != bytes) {
        return pl_err_set(err, PLASMON_ENOENT,
                          "there is no spill file of %llu bytes under %llu",
                          (unsigned long long)bytes, (unsigned long long)number);
    }
    error = all_read(file->fd, data, bytes);
    if (error != 0) {
        return pl_err_set(err, PLASMON_EIO,
                          "a file in spill directory %s cannot be read: %s",
                          file->dir->path, strerror(error));
    }
    if (store_checksum(data, bytes) != file->checksum) {
        return pl_err_set(err, PLASMON_ELOST,
                          "a file in spill directory %s has not the checksum that it was "
                          "written with: that disk is not to be trusted",
                          file->dir->path);
    }
    return PLASMON_OK;
}
