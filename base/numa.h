/*
 * NUMA nodes: where a PCI device is, keeping a process near it, and whether it is.
 *
 * root is where sysfs is mounted: pl_numa_root(), or a folder of a test. Nothing here needs libnuma
 * or a right: what the system refuses is told, and the process goes on where it is.
 *
 * Threads: any.
 */
#ifndef BASE_NUMA_H
#define BASE_NUMA_H

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

/* "/sys", or for tests what $PLASMON_SYSFS names. */
const char *pl_numa_root(void);
/*
 * As the driver spells its address, "0000:1B:00.0". -1: sysfs does not say, or the machine has no
 * such nodes.
 */
int pl_numa_node_of_pci(const char *root, const char *pci);
/* Processors of the node. false: sysfs does not say. */
bool pl_numa_processors(const char *root, int node, cpu_set_t *out_set);

enum { PL_NUMA_TEXT_BYTES = 192 };
/*
 * This thread, and those that it makes from now on, run on those processors of the node that it may
 * use already - what was taken from it, by a batch system or taskset, stays taken - and what they
 * touch first is in memory of that node while there is some. `text` says what was done, or why not.
 * false: it runs where it did.
 */
bool pl_numa_bind(const char *root, int node, char text[PL_NUMA_TEXT_BYTES]);
/*
 * Pages of a shared mapping that nobody touched yet come from memory of the node, whoever touches
 * them. -1, or where that is refused: from anywhere.
 */
void pl_numa_prefer(void *memory, size_t bytes, int node);

/* How near to a device at `node` the main thread of this process runs, and memory lies. */
struct pl_numa_place {
    int node;            /* of the device; -1: the system does not say */
    uint32_t nodes;      /* of the machine; 0: it does not say */
    uint32_t processors; /* that it may use */
    uint32_t near;       /* of these, at the node */
    uint32_t pages;      /* of the memory that were looked at, and are there */
    uint32_t pages_near; /* of these, at the node */
};
/*
 * memory may be NULL; of much of it a few hundred pages are looked at. Pages that nobody touched
 * yet do not count. A fraction of a millisecond.
 */
void pl_numa_look(const char *root, int node, const void *memory, size_t bytes,
                  struct pl_numa_place *out_place);
/*
 * Says it, with what to do where something is far away. `whose`: "this process", "its worker".
 * @return all is near, or nothing can be known.
 */
bool pl_numa_say(const struct pl_numa_place *place, const char *whose, struct pl_str *out);

#endif
