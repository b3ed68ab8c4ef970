#include "base/numa.h"

#include <ctype.h>
#include <errno.h>
#include <linux/mempolicy.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    NODES_MAX = 1024,
    WORD_BITS = 8 * sizeof(unsigned long),
    LOOKED_AT = 256, /* pages: tells a sixteenth that is elsewhere all but surely */
};

const char *pl_numa_root(void)
{
    const char *named = getenv("PLASMON_SYSFS");

    return named != NULL && named[0] != '\0' ? named : "/sys";
}

/* The first line of a file; false: there is none. */
static bool line_of(const char *path, char *out, int bytes)
{
    FILE *file = fopen(path, "re");
    bool read  = file != NULL && fgets(out, bytes, file) != NULL;

    if (file != NULL) {
        (void)fclose(file); /* it was only read */
    }
    return read;
}

int pl_numa_node_of_pci(const char *root, const char *pci)
{
    char lower[24], path[512], line[32];
    size_t i;
    int node;

    for (i = 0; pci[i] != '\0' && i + 1 < sizeof(lower); i++) {
        lower[i] = (char)tolower((unsigned char)pci[i]);
    }
    lower[i] = '\0';
    (void)snprintf(path, sizeof(path), "%s/bus/pci/devices/%s/numa_node", root, lower);
    if (!line_of(path, line, sizeof(line)) || sscanf(line, "%d", &node) != 1 || node < 0 ||
        node >= NODES_MAX) {
        return -1;
    }
    return node;
}

/* Of a file that has a list of numbers; false: there is none. */
static bool list_read(const char *path, cpu_set_t *out_set)
{
    char line[4096];

    CPU_ZERO(out_set);
    if (!line_of(path, line, sizeof(line))) {
        return false;
    }
    for (char *rest = line; *rest >= '0' && *rest <= '9';) { /* "0-15,32-47" */
        unsigned long first = strtoul(rest, &rest, 10);
        unsigned long last  = *rest == '-' ? strtoul(rest + 1, &rest, 10) : first;

        for (; first <= last && first < CPU_SETSIZE; first++) {
            CPU_SET(first, out_set);
        }
        rest += *rest == ',';
    }
    return CPU_COUNT(out_set) > 0;
}

bool pl_numa_processors(const char *root, int node, cpu_set_t *out_set)
{
    char path[512];

    (void)snprintf(path, sizeof(path), "%s/devices/system/node/node%d/cpulist", root, node);
    return list_read(path, out_set);
}

/* For set_mempolicy and mbind; returns how many bits it has. */
static unsigned long mask_of(int node, unsigned long mask[NODES_MAX / WORD_BITS])
{
    memset(mask, 0, NODES_MAX / 8);
    mask[(size_t)node / WORD_BITS] |= 1ul << ((size_t)node % WORD_BITS);
    return NODES_MAX;
}

/* "": it is. */
static const char *memory_prefer(int node)
{
    unsigned long mask[NODES_MAX / WORD_BITS];
    unsigned long bits = mask_of(node, mask);

    return syscall(SYS_set_mempolicy, MPOL_PREFERRED, mask, bits) == 0
               ? ""
               : strerror(errno); /* containers may forbid it, kernels may lack it */
}

bool pl_numa_bind(const char *root, int node, char text[PL_NUMA_TEXT_BYTES])
{
    cpu_set_t near, allowed;
    const char *why;

    if (node < 0) {
        (void)snprintf(text, PL_NUMA_TEXT_BYTES,
                       "not bound to a NUMA node: the system does not say at which one the "
                       "device is");
        return false;
    }
    if (!pl_numa_processors(root, node, &near) ||
        sched_getaffinity(0, sizeof(allowed), &allowed) != 0) {
        (void)snprintf(
            text, PL_NUMA_TEXT_BYTES,
            "not bound to NUMA node %d: the system does not say which processors "
            "it has",
            node);
        return false;
    }
    CPU_AND(&allowed, &allowed, &near);
    if (CPU_COUNT(&allowed) == 0) {
        (void)snprintf(text, PL_NUMA_TEXT_BYTES,
                       "not bound to NUMA node %d: none of its %d processors is this "
                       "process's; give it some that are near its device",
                       node, CPU_COUNT(&near));
        return false;
    }
    if (sched_setaffinity(0, sizeof(allowed), &allowed) != 0) {
        (void)snprintf(text, PL_NUMA_TEXT_BYTES, "not bound to NUMA node %d: %s", node,
                       strerror(errno));
        return false;
    }
    why = memory_prefer(node);
    (void)snprintf(
        text, PL_NUMA_TEXT_BYTES, "bound to NUMA node %d: %d of its %d processors, %s%s",
        node, CPU_COUNT(&allowed), CPU_COUNT(&near),
        why[0] == '\0' ? "and its memory first" : "but not to its memory: ", why);
    return true;
}

void pl_numa_prefer(void *memory, size_t bytes, int node)
{
    unsigned long mask[NODES_MAX / WORD_BITS];

    if (node >= 0 && bytes > 0) {
        unsigned long bits = mask_of(node, mask);

        (void)syscall(SYS_mbind, memory, bytes, MPOL_PREFERRED, mask, bits,
                      0); /* a hint: see the header */
    }
}

/* ------------------------------------------------------------------------------ looking */

static uint32_t nodes_of(const char *root)
{
    char path[512];
    cpu_set_t online; /* numbers of nodes are read like those of processors */

    (void)snprintf(path, sizeof(path), "%s/devices/system/node/online", root);
    return list_read(path, &online) ? (uint32_t)CPU_COUNT(&online) : 0;
}

static void pages_look(const void *memory, size_t bytes, struct pl_numa_place *place)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t all  = bytes / page;
    size_t some = all < LOOKED_AT ? all : LOOKED_AT;
    void *pages[LOOKED_AT];
    int at[LOOKED_AT];

    if (memory == NULL || some == 0) {
        return;
    }
    for (size_t i = 0; i < some; i++) {
        pages[i] = (char *)(uintptr_t)memory + all * i / some * page;
        at[i]    = -1;
    }
    if (syscall(SYS_move_pages, 0, some, pages, NULL, at, 0) != 0) {
        return; /* containers may forbid it: nothing is known then */
    }
    for (size_t i = 0; i < some; i++) {
        place->pages += at[i] >= 0;
        place->pages_near += at[i] >= 0 && at[i] == place->node;
    }
}

void pl_numa_look(const char *root, int node, const void *memory, size_t bytes,
                  struct pl_numa_place *out_place)
{
    cpu_set_t near, allowed;

    *out_place = (struct pl_numa_place){.node = node, .nodes = nodes_of(root)};
    if (sched_getaffinity(getpid(), sizeof(allowed), &allowed) != 0) {
        CPU_ZERO(&allowed); /* more processors than a set holds */
    }
    out_place->processors = (uint32_t)CPU_COUNT(&allowed);
    if (node < 0) {
        return;
    }
    if (pl_numa_processors(root, node, &near)) {
        CPU_AND(&allowed, &allowed, &near);
        out_place->near = (uint32_t)CPU_COUNT(&allowed);
    }
    pages_look(memory, bytes, out_place);
}

bool pl_numa_say(const struct pl_numa_place *place, const char *whose, struct pl_str *out)
{
    bool good = true;

    if (place->nodes == 1) {
        pl_str_append(out, "the machine has one node");
        return true;
    }
    if (place->node < 0) {
        pl_str_append(out, "the system does not say at which node it is");
        return true;
    }
    pl_str_append(out, "at node %d; ", place->node);
    if (place->near == 0) {
        pl_str_append(out,
                      "none of the %u processors of %s is there: what it does for this GPU "
                      "goes through another node's memory and links. Give the store "
                      "processors near it (taskset, the cgroup, Slurm: "
                      "--gpu-bind=closest)",
                      place->processors, whose);
        good = false;
    } else {
        pl_str_append(out, "%u of the %u processors of %s are there", place->near,
                      place->processors, whose);
    }
    if (place->pages > 0 && place->pages_near < place->pages) {
        uint32_t percent = (place->pages - place->pages_near) * 100 / place->pages;

        pl_str_append(
            out,
            "; %u %% of its pinned memory is not: that node had no room, or the "
            "worker was not bound when it was pinned (its log says so). Free memory "
            "there (`numactl -H`) and start the store again",
            percent > 0 ? percent : 1);
        good = false;
    } else if (place->pages > 0) {
        pl_str_append(out, ", and its pinned memory is");
    }
    return good;
}
