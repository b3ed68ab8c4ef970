/*
 * Slices. A process of CUDA sees one MIG device at most, whatever CUDA_VISIBLE_DEVICES names. We
 * have a process a device anyhow, so where that list names several devices and a slice among them,
 * each worker has its own entry alone: ordinals are places in the list, and the driver of a process
 * that took one knows it as its device 0. No other process's device is seen there, so slices do not
 * map each other's memory.
 */
#include "device/device_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VISIBLE "CUDA_VISIBLE_DEVICES"

static int taken = -1; /* set once, before there are threads */

/* Entry `index` of the list; false: there is none. */
static bool entry_of(const char *list, uint32_t index, char *out, size_t out_bytes)
{
    for (; index > 0 && list != NULL; index--) {
        list = strchr(list, ',');
        list = list != NULL ? list + 1 : NULL;
    }
    if (list == NULL) {
        return false;
    }
    list += strspn(list, " ");
    (void)snprintf(out, out_bytes, "%.*s", (int)strcspn(list, ", "), list);
    return out[0] != '\0';
}

uint32_t device_visible_count(void)
{
    const char *list = getenv(VISIBLE);
    uint32_t count   = 0;
    char entry[96];

    while (list != NULL && entry_of(list, count, entry, sizeof(entry))) {
        count++;
    }
    return count;
}

uint32_t device_slices(void)
{
    const char *list = getenv(VISIBLE);
    uint32_t count   = device_visible_count();

    return count > 1 && strstr(list, "MIG-") != NULL ? count : 0;
}

plasmon_status_t device_slice_take(uint32_t ordinal, struct pl_err *err)
{
    const char *list = getenv(VISIBLE);
    char entry[96];

    if (device_slices() == 0) {
        return PLASMON_OK;
    }
    if (!entry_of(list, ordinal, entry, sizeof(entry))) {
        return pl_err_set(err, PLASMON_ENOENT, VISIBLE " names no device %u: %s", ordinal,
                          list);
    }
    if (setenv(VISIBLE, entry, 1) != 0) {
        return pl_err_set(err, PLASMON_ENOMEM, "no memory for " VISIBLE);
    }
    taken = (int)ordinal;
    return PLASMON_OK;
}

int device_slice_taken(void)
{
    return taken;
}
