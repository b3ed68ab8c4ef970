#include "worker/numa.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"

void worker_numa_bind(int node)
{
    char path[64], line[512];
    cpu_set_t cpus;
    FILE *file;

    if (node < 0) {
        return;
    }
    (void)snprintf(path, sizeof(path), "/sys/devices/system/node/node%d/cpulist", node);
    file = fopen(path, "re");
    if (file == NULL || fgets(line, sizeof(line), file) == NULL) {
        line[0] = '\0';
    }
    if (file != NULL) {
        (void)fclose(file); /* it was only read */
    }

    CPU_ZERO(&cpus);
    for (char *rest = line; *rest >= '0' && *rest <= '9';) { /* "0-15,32-47" */
        unsigned long first = strtoul(rest, &rest, 10);
        unsigned long last  = *rest == '-' ? strtoul(rest + 1, &rest, 10) : first;

        for (; first <= last && first < CPU_SETSIZE; first++) {
            CPU_SET(first, &cpus);
        }
        rest += *rest == ',';
    }
    if (CPU_COUNT(&cpus) == 0 || sched_setaffinity(0, sizeof(cpus), &cpus) != 0) {
        pl_debug("worker", "not bound to node %d", node); /* a container may forbid it */
    }
}
