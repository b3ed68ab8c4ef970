/*
 * Files of compiled code that somebody else wrote, cut or changed. The input is [what to do: 1
 * byte][bytes of the file]; the upper bits of the first byte say what of the file is put right,
 * since nothing gets past a hash by chance: its lengths, its hash, the hash under another name.
 * What is taken must be ours, of that name and whole; what is not taken is gone, so that nobody
 * looks at it twice.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "kernels/code_cache.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum {
    RIGHT_LENGTHS = 1u << 7, /* bits of the first byte */
    RIGHT_HASH    = 1u << 6,
    OTHERS_NAME   = 1u << 5, /* .. but of the name that another one has */
    WRITABLE      = 1u << 4, /* by others */
    KIND          = 7,
};
enum { A_FILE, A_LINK, A_HARD_LINK, A_PIPE, A_FOLDER }; /* anything else: a file */

#define INPUT_MAX 8192u

/* As in the file: a hash over the key, the name of the kernel and its code. */
struct header {
    char magic[8];
    uint8_t hash[PL_SHA256_BYTES];
    uint32_t symbol_bytes;
    uint32_t image_bytes;
};

static const uint8_t key[PL_SHA256_BYTES]   = {0x4b};
static const uint8_t other[PL_SHA256_BYTES] = {0x4f};
static char folder[64], path[160], aside[96];

static void folder_remove(void)
{
    (void)unlink(path);
    (void)rmdir(path);
    (void)unlink(aside);
    (void)rmdir(folder);
}

static void begin(void)
{
    char hex[2 * PL_SHA256_BYTES + 1];

    if (folder[0] != '\0') {
        return;
    }
    pl_log_set_level(PL_LOG_ERROR); /* each damaged file is warned of */
    (void)snprintf(folder, sizeof(folder), "%s/fuzz-code-XXXXXX",
                   access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    PL_CHECK(mkdtemp(folder) != NULL);
    pl_sha256_hex(key, hex);
    (void)snprintf(path, sizeof(path), "%s/%s.code", folder, hex);
    (void)snprintf(aside, sizeof(aside), "%s/aside", folder);
    PL_CHECK(atexit(folder_remove) == 0);
}

/* What can be put right, as the first byte wants it. */
static void mend(uint8_t what, uint8_t *bytes, size_t size)
{
    struct pl_sha256 sha;
    struct header header;
    size_t rest, symbol;

    if (size < sizeof(header)) {
        return;
    }
    memcpy(&header, bytes, sizeof(header));
    rest = size - sizeof(header);
    if ((what & RIGHT_LENGTHS) != 0) {
        header.symbol_bytes = (uint32_t)pl_min_u64(header.symbol_bytes, rest);
        header.image_bytes  = (uint32_t)(rest - header.symbol_bytes);
        memcpy(header.magic, "PLCODE2", 8);
    }
    if ((what & RIGHT_HASH) != 0) {
        symbol = pl_min_u64(header.symbol_bytes, rest);
        pl_sha256_init(&sha);
        pl_sha256_add_field(&sha, (what & OTHERS_NAME) != 0 ? other : key, PL_SHA256_BYTES);
        pl_sha256_add_field(&sha, bytes + sizeof(header), symbol);
        pl_sha256_add_field(&sha, bytes + sizeof(header) + symbol, rest - symbol);
        pl_sha256_finish(&sha, header.hash);
    }
    memcpy(bytes, &header, sizeof(header));
}

static void put_file(const char *at, const uint8_t *bytes, size_t size, mode_t mode)
{
    int fd = open(at, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    PL_CHECK(fd >= 0 && write(fd, bytes, size) == (ssize_t)size && fchmod(fd, mode) == 0);
    (void)close(fd);
}

static void put(uint8_t what, const uint8_t *bytes, size_t size)
{
    mode_t mode = (what & WRITABLE) != 0 ? 0602 : 0600;

    switch (what & KIND) {
    case A_LINK:
    case A_HARD_LINK:
        put_file(aside, bytes, size, mode);
        PL_CHECK(((what & KIND) == A_LINK ? symlink(aside, path) : link(aside, path)) == 0);
        break;
    case A_PIPE:
        PL_CHECK(mkfifo(path, 0600) == 0);
        break;
    case A_FOLDER:
        PL_CHECK(mkdir(path, 0700) == 0);
        break;
    default:
        put_file(path, bytes, size, mode);
    }
}

/* What was taken is what the file says, and the file had a right to say it. */
static void check_taken(uint8_t what, const struct code_cached *got, const uint8_t *bytes,
                        size_t size)
{
    size_t symbol = strlen(got->symbol) + 1;

    PL_CHECK((what & WRITABLE) == 0);
    PL_CHECK((what & KIND) != A_LINK && (what & KIND) != A_PIPE &&
             (what & KIND) != A_FOLDER);
    PL_CHECK((what & (RIGHT_HASH | OTHERS_NAME)) != (RIGHT_HASH | OTHERS_NAME));
    PL_CHECK(size >= sizeof(struct header) + symbol + got->image_bytes);
    PL_CHECK(memcmp(bytes + size - got->image_bytes, got->image, got->image_bytes) == 0);
    PL_CHECK(memcmp(bytes + sizeof(struct header), got->symbol, symbol) == 0);
    PL_CHECK(((const char *)got->image)[got->image_bytes] == '\0'); /* PTX is a text */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t bytes[INPUT_MAX];
    struct code_cached got;
    struct stat about;

    if (size < 1 || size > INPUT_MAX) {
        return 0;
    }
    begin();
    memcpy(bytes, data + 1, size - 1);
    mend(data[0], bytes, size - 1);
    put(data[0], bytes, size - 1);
    if (code_cache_load(folder, key, &got)) {
        check_taken(data[0], &got, bytes, size - 1);
        pl_free(got.symbol);
        pl_free(got.image);
    } else if ((data[0] & KIND) != A_LINK && (data[0] & KIND) != A_FOLDER) {
        PL_CHECK(lstat(path, &about) != 0); /* of those two nothing was read */
    }
    (void)unlink(path);
    (void)rmdir(path);
    (void)unlink(aside);
    return 0;
}
