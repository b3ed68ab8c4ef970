/*
 * How much memory may this process use? Of the machine, or of the control groups that it is in (a
 * container, a job, a systemd slice), whichever is less: who takes more is killed, whatever the
 * machine has.
 *
 * Threads: any.
 */
#ifndef BASE_RAM_H
#define BASE_RAM_H

#include "base.h"

struct pl_ram {
    uint64_t total; /* that there is, or the smallest limit */
    /* of it, without that anything else must be written out; caches of files count as free */
    uint64_t available;
};

/* What cannot be read is no limit. 4 GiB when nothing can. */
struct pl_ram pl_ram(void);
/* As of a machine whose /proc and /sys lie below this folder. */
struct pl_ram pl_ram_below(const char *root);

#endif
