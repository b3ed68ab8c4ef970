/*
 * What compiled C text depends on: its source, how it is compiled, which compiler that is and, as
 * it is compiled for the processor that it runs on, which processor. Several machines may share a
 * home and so a cache.
 *
 * The compiler is its file: where it is, its size and when it was written. Asking it for its
 * version would cost a process each time, and not tell apart two builds of one version.
 */
#include "kernels/code_int.h"

#include <ctype.h>
#include <fcntl.h>
#include <gnu/libc-version.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fd.h"

/* "cc" as a process that is started by that name finds it. */
static bool program_find(const char *name, char out[PATH_MAX])
{
    const char *path = getenv("PATH");

    if (strchr(name, '/') != NULL) {
        return realpath(name, out) != NULL;
    }
    path = path != NULL ? path : "/usr/bin:/bin";
    while (*path != '\0') {
        size_t length = strcspn(path, ":");
        char at[PATH_MAX];

        if (snprintf(at, sizeof(at), "%.*s/%s", (int)length, path, name) <
                (int)sizeof(at) &&
            access(at, X_OK) == 0) {
            return realpath(at, out) != NULL;
        }
        path += length + (path[length] == ':');
    }
    return false;
}

static bool add_compiler(struct pl_sha256 *sha, const char *cc)
{
    char path[PATH_MAX];
    struct stat at;

    if (!program_find(cc, path) || stat(path, &at) != 0) {
        return false;
    }
    pl_sha256_add_field(sha, cc,
                        strlen(cc)); /* by its name a program may do other things */
    pl_sha256_add_field(sha, path, strlen(path));
    pl_sha256_add_field(sha, &at.st_size, sizeof(at.st_size));
    pl_sha256_add_field(sha, &at.st_mtim, sizeof(at.st_mtim));
    return true;
}

/* Of the first processor: its name and what it can do. */
static bool add_processor(struct pl_sha256 *sha)
{
    static const char *const keys[] = {"vendor_id", "model name",      "flags",
                                       "Features",  "CPU implementer", "CPU part"};
    char text[16384], *line, *rest = NULL;
    int fd         = open("/proc/cpuinfo", O_RDONLY | O_CLOEXEC);
    ssize_t length = fd >= 0 ? read(fd, text, sizeof(text) - 1) : -1;
    char *end;
    bool some = false;

    pl_fd_close(&fd);
    if (length <= 0) {
        return false;
    }
    text[length] = '\0';
    end          = strstr(text, "\n\n");
    if (end != NULL) {
        *end = '\0';
    }
    for (line = strtok_r(text, "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest)) {
        for (size_t i = 0; i < PL_COUNT(keys); i++) {
            if (strncmp(line, keys[i], strlen(keys[i])) == 0) {
                pl_sha256_add_field(sha, line, strlen(line));
                some = true;
            }
        }
    }
    return some;
}

/* As the compiler reads it: without the line ends that a backslash hides. NULL: no memory. */
static char *spliced(const char *text)
{
    char *out = pl_alloc(strlen(text) + 1), *end = out;

    while (out != NULL && *text != '\0') {
        size_t hidden = strncmp(text, "\\\n", 2) == 0     ? 2
                        : strncmp(text, "\\\r\n", 3) == 0 ? 3
                        : strncmp(text, "?\?/\n", 4) == 0 ? 4
                                                          : 0;

        if (hidden == 0) {
            *end++ = *text++;
        }
        text += hidden;
    }
    if (out != NULL) {
        *end = '\0';
    }
    return out;
}

/* Whose texts may be put together from pieces, and may read files. */
static bool has_assembly(const char *text)
{
    static const char *const words[] = {"asm", "__asm", "__asm__"};

    for (const char *at = text; *at != '\0';) {
        size_t length = 0;

        while (isalnum((unsigned char)at[length]) || at[length] == '_') {
            length++;
        }
        for (size_t i = 0; i < PL_COUNT(words); i++) {
            if (length == strlen(words[i]) && strncmp(at, words[i], length) == 0) {
                return true;
            }
        }
        at += length > 0 ? length : 1;
    }
    return false;
}

static bool includes_of_system(const char *text)
{
    for (const char *at = text; (at = strstr(at, "include")) != NULL;) {
        at += strlen("include");
        at += strspn(at, " \t");
        if (at[0] != '<' || !isalpha((unsigned char)at[1]) ||
            memchr(at, '>', strcspn(at, "\n")) == NULL) {
            return false;
        }
        for (const char *c = at; *c != '>'; c++) {
            if (c[0] == '.' && c[1] == '.') {
                return false;
            }
        }
    }
    return true;
}

/*
 * Headers of the system come with compiler and libc, or with the toolkit; those of the user may
 * change. Rather once too often: whatever looks like another file.
 */
bool code_text_alone(const char *text, bool assembler)
{
    char *whole = spliced(text);
    bool alone  = whole != NULL && includes_of_system(whole) &&
                 !(assembler && has_assembly(whole)) && strstr(whole, "incbin") == NULL &&
                 strstr(whole, "embed") == NULL && strstr(whole, "import") == NULL;

    pl_free(whole);
    return alone;
}

/* Where the compiler looks for headers before the system's. */
static void add_search_paths(struct pl_sha256 *sha)
{
    static const char *const names[] = {"CPATH", "C_INCLUDE_PATH"};

    for (size_t i = 0; i < PL_COUNT(names); i++) {
        const char *path = getenv(names[i]);

        path = path != NULL ? path : "";
        pl_sha256_add_field(sha, path, strlen(path));
    }
}

bool code_c_key(const char *text, const char *source, const char *cc,
                const char *const *options, size_t option_count,
                uint8_t out[PL_SHA256_BYTES])
{
    const char *libc = gnu_get_libc_version();
    struct pl_sha256 sha;

    if (!code_text_alone(text, true)) {
        return false;
    }
    pl_sha256_init(&sha);
    pl_sha256_add_field(&sha, "C text 1", 8); /* of this way to compile */
    pl_sha256_add_field(&sha, source, strlen(source));
    for (size_t i = 0; i < option_count; i++) {
        pl_sha256_add_field(&sha, options[i], strlen(options[i]));
    }
    pl_sha256_add_field(&sha, libc, strlen(libc));
    add_search_paths(&sha);
    if (!add_compiler(&sha, cc) || !add_processor(&sha)) {
        return false;
    }
    pl_sha256_finish(&sha, out);
    return true;
}
