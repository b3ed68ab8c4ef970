/*
 * Which GPUs are there? The store must not have a CUDA context, nor load the driver: a short-lived
 * `plasmon-worker --probe` looks, and says a line a device: "cuda ORDINAL BYTES NAME".
 */
#ifndef STORE_PROBE_H
#define STORE_PROBE_H

#include "base/str.h"
#include "store/timeline.h"

struct store_probe_device {
    uint32_t ordinal;
    uint64_t bytes;
    char name[96];
};
struct store_probe {
    uint32_t count;
    struct store_probe_device devices[STORE_HOST_DEVICE_MAX];
};

/* Blocks up to a minute. No driver, no GPU: OK and a count of 0. */
plasmon_status_t store_probe_run(struct store_probe *out_probe,
                                 struct pl_err *err) PL_MUST_CHECK;
/* The lines; EMALFORMED names the one that is wrong. Cuts up `text`. */
plasmon_status_t store_probe_parse(char *text, struct store_probe *out_probe,
                                   struct pl_err *err) PL_MUST_CHECK;

#endif
