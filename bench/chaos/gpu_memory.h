/*
 * What the driver says is in use of each GPU, by whoever it is: contexts, code and communicators
 * too, which Plasmon's own accounts of buffers do not have. Asked of NVML, which is looked for at
 * run time; this process needs no context for it.
 */
#ifndef BENCH_CHAOS_GPU_MEMORY_H
#define BENCH_CHAOS_GPU_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

/* How many GPUs can be asked; 0: there are none, or no NVML. Opens it the first time, for good. */
uint32_t gpu_memory_count(void);
/* Bytes in use of one of them, in NVML's order. false: it does not say. */
bool gpu_memory_used(uint32_t index, uint64_t *out_bytes);

#endif
