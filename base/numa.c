#include "base/numa.h"

#include <ctype.h>
#include <errno.h>
#include <linux/mempolicy.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { NODES_MAX = 1024, WORD_BITS = 8 * sizeof(unsigned long) };

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

bool pl_numa_processors(const char *root, int node, cpu_set_t *out_set)
{
    char path[512], line[4096];

    CPU_ZERO(out_set);
    (void)snprintf(path, sizeof(path), "%s/devices/system/node/node%d/cpulist", root, node);
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
