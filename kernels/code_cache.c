#include "kernels/code_cache.h"

#include "kernels/code.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/vec.h"

#define SUFFIX           ".code"
#define TURN_SUFFIX      ".turn"
#define TURN_LOOK_NS     2000000 /* compiling takes 45 ms and more */
#define IMAGE_BYTES_MAX  (256u << 20)
#define SYMBOL_BYTES_MAX 4096u
#define PATH_BYTES       4096

struct header {
    char magic[8];
    uint8_t hash[PL_SHA256_BYTES]; /* of the key and of what follows */
    uint32_t symbol_bytes;         /* with its NUL */
    uint32_t image_bytes;
};
static_assert(sizeof(struct header) == 48, "a file format");
static const char magic[8] = "PLCODE2";

const char *kernel_code_cache_dir(char *out, size_t out_bytes)
{
    const char *dir  = getenv("PLASMON_CACHE_DIR");
    const char *base = getenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME");
    int length       = -1;

    if (dir != NULL) {
        length = *dir == '\0' ? -1 : snprintf(out, out_bytes, "%s", dir);
    } else if (base != NULL && *base == '/') {
        length = snprintf(out, out_bytes, "%s/plasmon", base);
    } else if (home != NULL && *home == '/') {
        length = snprintf(out, out_bytes, "%s/.cache/plasmon", home);
    }
    return length > 0 && (size_t)length < out_bytes ? out : NULL;
}

static bool path_make(char out[PATH_BYTES], const char *dir,
                      const uint8_t key[PL_SHA256_BYTES])
{
    char hex[2 * PL_SHA256_BYTES + 1];
    int length;

    pl_sha256_hex(key, hex);
    length = snprintf(out, PATH_BYTES, "%s/%s" SUFFIX, dir, hex);
    return length > 0 && length < PATH_BYTES;
}

/* The key as well: a whole file that got another one's name is not what was asked for. */
static void payload_hash(const uint8_t key[PL_SHA256_BYTES], const char *symbol,
                         size_t symbol_bytes, const void *image, size_t image_bytes,
                         uint8_t out[PL_SHA256_BYTES])
{
    struct pl_sha256 sha;

    pl_sha256_init(&sha);
    pl_sha256_add_field(&sha, key, PL_SHA256_BYTES);
    pl_sha256_add_field(&sha, symbol, symbol_bytes);
    pl_sha256_add_field(&sha, image, image_bytes);
    pl_sha256_finish(&sha, out);
}

/* ------------------------------------------------------------------------------ reading */

static bool read_all(int fd, void *out, size_t bytes)
{
    char *at = out;

    while (bytes > 0) {
        ssize_t got = read(fd, at, bytes);

        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            return false;
        }
        at += got;
        bytes -= (size_t)got;
    }
    return true;
}

/* Ours, nobody else may write it, and as long as it says. */
static bool file_trusted(int fd, const struct header *header)
{
    struct stat at;

    return fstat(fd, &at) == 0 && S_ISREG(at.st_mode) && at.st_uid == geteuid() &&
           (at.st_mode & (S_IWGRP | S_IWOTH)) == 0 &&
           memcmp(header->magic, magic, sizeof(magic)) == 0 &&
           header->image_bytes <= IMAGE_BYTES_MAX && header->symbol_bytes > 0 &&
           header->symbol_bytes <= SYMBOL_BYTES_MAX &&
           (uint64_t)at.st_size ==
               sizeof(*header) + (uint64_t)header->symbol_bytes + header->image_bytes;
}

static bool file_read(int fd, const uint8_t key[PL_SHA256_BYTES], struct code_cached *out)
{
    uint8_t hash[PL_SHA256_BYTES];
    struct header header;

    if (!read_all(fd, &header, sizeof(header)) || !file_trusted(fd, &header)) {
        return false;
    }
    out->symbol      = pl_alloc(header.symbol_bytes);
    out->image       = pl_alloc((size_t)header.image_bytes + 1); /* PTX ends in a NUL */
    out->image_bytes = header.image_bytes;
    if (out->symbol == NULL || out->image == NULL ||
        !read_all(fd, out->symbol, header.symbol_bytes) ||
        !read_all(fd, out->image, header.image_bytes)) {
        return false;
    }
    payload_hash(key, out->symbol, header.symbol_bytes, out->image, header.image_bytes,
                 hash);
    return memcmp(hash, header.hash, sizeof(hash)) == 0 &&
           out->symbol[header.symbol_bytes - 1] == '\0';
}

bool code_cache_load(const char *dir, const uint8_t key[PL_SHA256_BYTES],
                     struct code_cached *out)
{
    char path[PATH_BYTES];
    bool good;
    int fd;

    if (dir == NULL || !path_make(path, dir, key)) {
        return false;
    }
    /* Without waiting: of a pipe that somebody put there nobody may ever write the other end. */
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) {
        return false;
    }
    *out = (struct code_cached){.symbol = NULL};
    good = file_read(fd, key, out);
    if (good) {
        (void)futimens(fd, NULL); /* used now: the oldest go first */
    } else {
        pl_free(out->symbol);
        pl_free(out->image);
        pl_warn("kernels", "%s is damaged or not ours to trust; compiling again", path);
        (void)unlink(path); /* what cannot be removed is refused again next time */
    }
    pl_fd_close(&fd);
    return good;
}

/* ------------------------------------------------------------------------------ writing */

static bool folder_make(const char *dir)
{
    char path[PATH_BYTES];

    if (snprintf(path, sizeof(path), "%s", dir) >= (int)sizeof(path)) {
        return false;
    }
    for (char *slash = strchr(path + 1, '/'); slash != NULL;
         slash       = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)mkdir(path, 0700); /* the last one says what is wrong */
        *slash = '/';
    }
    return mkdir(path, 0700) == 0 || errno == EEXIST;
}

static bool write_all(int fd, const void *data, size_t bytes)
{
    const char *at = data;

    while (bytes > 0) {
        ssize_t put = write(fd, at, bytes);

        if (put < 0 && errno == EINTR) {
            continue;
        }
        if (put <= 0) {
            return false;
        }
        at += put;
        bytes -= (size_t)put;
    }
    return true;
}

static bool file_write(const char *path, const uint8_t key[PL_SHA256_BYTES],
                       const char *symbol, const void *image, size_t image_bytes)
{
    struct header header = {.symbol_bytes = (uint32_t)strlen(symbol) + 1,
                            .image_bytes  = (uint32_t)image_bytes};
    char aside[PATH_BYTES + 16];
    bool good;
    int fd;

    memcpy(header.magic, magic, sizeof(magic));
    payload_hash(key, symbol, header.symbol_bytes, image, image_bytes, header.hash);
    (void)snprintf(aside, sizeof(aside), "%s.XXXXXX", path);
    fd = mkostemp(aside, O_CLOEXEC); /* mode 0600 */
    if (fd < 0) {
        return false;
    }
    good = write_all(fd, &header, sizeof(header)) &&
           write_all(fd, symbol, header.symbol_bytes) && write_all(fd, image, image_bytes);
    pl_fd_close(&fd);
    if (!good || rename(aside, path) != 0) {
        (void)unlink(aside); /* ours, and half of a file */
        return false;
    }
    return true;
}

struct entry {
    char name[2 * PL_SHA256_BYTES + 32];
    uint64_t bytes;
    int64_t used;
};

static int compare_used(const void *a, const void *b)
{
    int64_t x = ((const struct entry *)a)->used;
    int64_t y = ((const struct entry *)b)->used;

    return x < y ? -1 : x > y;
}

/* Files of ours, and what a dead process left half-written. */
static void folder_read(DIR *folder, struct pl_vec *entries, uint64_t *out_bytes)
{
    const struct dirent *found;

    *out_bytes = 0;
    while ((found = readdir(folder)) != NULL) {
        struct entry *entry;
        struct stat at;

        if (strstr(found->d_name, SUFFIX) == NULL ||
            strlen(found->d_name) >= sizeof(entry->name) ||
            fstatat(dirfd(folder), found->d_name, &at, AT_SYMLINK_NOFOLLOW) != 0) {
            continue;
        }
        entry = pl_vec_push(entries);
        if (entry == NULL) {
            return;
        }
        (void)snprintf(entry->name, sizeof(entry->name), "%s", found->d_name);
        entry->bytes = (uint64_t)at.st_size;
        entry->used  = (int64_t)at.st_mtim.tv_sec * 1000 + at.st_mtim.tv_nsec / 1000000;
        *out_bytes += entry->bytes;
    }
}

static void folder_trim(const char *dir, uint64_t bytes_max)
{
    struct pl_vec entries = PL_VEC_INIT(struct entry);
    DIR *folder           = opendir(dir);
    uint64_t bytes;

    if (folder == NULL) {
        return;
    }
    folder_read(folder, &entries, &bytes);
    if (bytes > bytes_max) {
        qsort(entries.items, entries.count, sizeof(struct entry), compare_used);
    }
    for (size_t i = 0; bytes > bytes_max && i < entries.count; i++) {
        const struct entry *entry = pl_vec_at(&entries, i);

        if (unlinkat(dirfd(folder), entry->name, 0) == 0) {
            bytes -= entry->bytes;
        }
    }
    (void)closedir(folder);
    pl_vec_finish(&entries);
}

void code_cache_store(const char *dir, uint64_t bytes_max,
                      const uint8_t key[PL_SHA256_BYTES], const char *symbol,
                      const void *image, size_t image_bytes)
{
    char path[PATH_BYTES];

    if (dir == NULL || image_bytes > IMAGE_BYTES_MAX ||
        strlen(symbol) >= SYMBOL_BYTES_MAX || !path_make(path, dir, key)) {
        return;
    }
    if (!folder_make(dir) || !file_write(path, key, symbol, image, image_bytes)) {
        pl_warn("kernels", "cannot keep compiled code in %s: %s", dir, strerror(errno));
        return;
    }
    folder_trim(dir, bytes_max);
}

/* -------------------------------------------------------------------------------- turns */

/*
 * No file of a lock tells when it is free, and a lock is not waited for with a time-out: so it is
 * looked at.
 */
static bool lock_take(int fd, uint64_t until_ns)
{
    const struct timespec pause = {.tv_nsec = TURN_LOOK_NS};

    while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if ((errno != EWOULDBLOCK && errno != EINTR) || pl_now_ns() >= until_ns) {
            return false;
        }
        (void)nanosleep(&pause, NULL); /* less is as well */
    }
    return true;
}

static bool turn_path(char out[PATH_BYTES], const char *dir,
                      const uint8_t key[PL_SHA256_BYTES])
{
    return path_make(out, dir, key) &&
           strlen(strncat(out, TURN_SUFFIX, PATH_BYTES - strlen(out) - 1)) < PATH_BYTES - 1;
}

int code_cache_turn(const char *dir, const uint8_t key[PL_SHA256_BYTES], uint32_t wait_ms)
{
    uint64_t until_ns = pl_now_ns() + wait_ms * UINT64_C(1000000);
    char path[PATH_BYTES];
    struct stat at;
    int fd;

    if (!turn_path(path, dir, key) || !folder_make(dir)) {
        return -1;
    }
    for (;;) {
        fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
        if (fd < 0 || !lock_take(fd, until_ns)) {
            pl_fd_close(&fd);
            return -1;
        }
        if (fstat(fd, &at) == 0 && at.st_nlink > 0) {
            return fd;
        }
        pl_fd_close(&fd); /* of a turn that is over: its file is gone */
    }
}

void code_cache_turn_end(const char *dir, const uint8_t key[PL_SHA256_BYTES], int *io_fd)
{
    char path[PATH_BYTES];

    if (*io_fd >= 0 && turn_path(path, dir, key)) {
        (void)unlink(path); /* while it is ours; if it stays, it is used again */
    }
    pl_fd_close(io_fd);
}

void code_cache_drop(const char *dir, const uint8_t key[PL_SHA256_BYTES])
{
    char path[PATH_BYTES];

    if (path_make(path, dir, key)) {
        (void)unlink(path); /* it may not be there */
    }
}
