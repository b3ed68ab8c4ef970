/* Keeping a worker near its device. */
#ifndef WORKER_NUMA_H
#define WORKER_NUMA_H

/* Run this thread and those it makes on the cores of this node. -1, or where it is forbidden: changes nothing. */
void worker_numa_bind(int node);

#endif
