/*
 * /proc/self/cgroup names the groups: "0::/a/b" for version 2, "9:memory:/a/b" for version 1. A
 * limit of /a or of the root holds for /a/b, too, so each of them is looked at. In a container the
 * names may be those of the machine, while its own group is mounted as the root: then only the root
 * is found, and it is the right one.
 */
#include "ram.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TEXT_BYTES = 8192, PATH_BYTES = 4096 };

struct hierarchy {
    const char *mark; /* in its line of /proc/self/cgroup, before the name of the group */
    const char *folder;
    const char *limit, *used;
    const char *cache; /* of memory.stat: of `used`, what goes when it is wanted */
};
static const struct hierarchy hierarchies[] = {
    {"0::", "sys/fs/cgroup", "memory.max", "memory.current", "inactive_file "},
    {":memory:", "sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
     "total_inactive_file "},
};

static bool text_read(const char *path, char out[TEXT_BYTES])
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length;

    if (fd < 0) {
        return false;
    }
    length = read(fd, out, TEXT_BYTES - 1);
    (void)close(fd);
    out[length > 0 ? length : 0] = '\0';
    return length > 0;
}

/* The number behind `key` at the beginning of a line; false: there is none ("max" is none). */
static bool number_find(const char *text, const char *key, uint64_t *out)
{
    const char *line = text;
    char *end;

    while (line != NULL && strncmp(line, key, strlen(key)) != 0) {
        line = strchr(line, '\n');
        line = line != NULL ? line + 1 : NULL;
    }
    if (line == NULL) {
        return false;
    }
    *out = strtoull(line + strlen(key), &end, 10);
    return end != line + strlen(key);
}

static bool number_read(const char *root, const struct hierarchy *h, const char *group,
                        const char *file, const char *key, uint64_t *out)
{
    char path[PATH_BYTES], text[TEXT_BYTES];

    (void)snprintf(path, sizeof(path), "%s/%s%s/%s", root, h->folder, group, file);
    return text_read(path, text) && number_find(text, key, out);
}

static void group_look(const char *root, const struct hierarchy *h, const char *group,
                       struct pl_ram *io_ram)
{
    uint64_t limit, used, cache = 0;

    if (!number_read(root, h, group, h->limit, "", &limit) ||
        !number_read(root, h, group, h->used, "", &used)) {
        return;
    }
    (void)number_read(root, h, group, "memory.stat", h->cache, &cache);
    used -= pl_min_u64(cache, used);
    io_ram->total     = pl_min_u64(io_ram->total, limit);
    io_ram->available = pl_min_u64(io_ram->available, limit - pl_min_u64(used, limit));
}

/* The group of this process, and those that it is in. */
static void groups_look(const char *root, const struct hierarchy *h, const char *groups,
                        struct pl_ram *io_ram)
{
    const char *mark = strstr(groups, h->mark);
    char group[PATH_BYTES / 2];
    char *slash;

    if (mark == NULL) {
        return;
    }
    (void)snprintf(group, sizeof(group), "%.*s", (int)strcspn(mark + strlen(h->mark), "\n"),
                   mark + strlen(h->mark));
    while ((slash = strrchr(group, '/')) != NULL) {
        if (slash[1] != '\0') {
            group_look(root, h, group, io_ram);
        }
        *slash = '\0';
    }
    group_look(root, h, "", io_ram);
}

struct pl_ram pl_ram_below(const char *root)
{
    struct pl_ram ram = {.total = UINT64_C(4) << 30, .available = UINT64_C(4) << 30};
    char path[PATH_BYTES], text[TEXT_BYTES];
    uint64_t kib;

    (void)snprintf(path, sizeof(path), "%s/proc/meminfo", root);
    if (text_read(path, text)) {
        if (number_find(text, "MemTotal:", &kib)) {
            ram.total = ram.available = kib << 10;
        }
        if (number_find(text, "MemAvailable:", &kib)) {
            ram.available = kib << 10;
        }
    }
    (void)snprintf(path, sizeof(path), "%s/proc/self/cgroup", root);
    for (size_t i = 0; i < PL_COUNT(hierarchies) && text_read(path, text); i++) {
        groups_look(root, &hierarchies[i], text, &ram);
    }
    return ram;
}

struct pl_ram pl_ram(void)
{
    return pl_ram_below("");
}
